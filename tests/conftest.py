"""What all tests share: goldens, which `--update-golden` writes anew, and memory that is never clean."""
from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

GOLDEN = Path(__file__).parent / "golden"
DIRT = 0xFE
"""A byte that makes neither a small number nor a zero of any dtype."""


@pytest.fixture(scope="session", autouse=True)
def dirty_memory() -> Iterator[None]:
    """Fresh memory of the CPU backend holds neither zeros nor the right values that another backend left there: an element that no kernel writes is seen."""
    memory = importlib.import_module("pipelink_ir.backends.cpu.memory")
    executable = importlib.import_module("pipelink_ir.backends.cpu.executable")
    take, new_array = memory._take, memory.new_array

    def dirty_take(size: int) -> Any:
        block = take(size)
        block.fill(DIRT)
        return block

    def dirty_array(shape: tuple[int, ...], dtype: Any) -> tuple[Any, int]:
        array, address = new_array(shape, dtype)
        ctypes.memset(address, DIRT, array.nbytes)
        return array, address

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "_take", dirty_take)
        patch.setattr(executable, "new_array", dirty_array)
        yield


def _gpu_missing() -> str | None:
    """Why tests that need a GPU cannot run here."""
    try:
        cupy = importlib.import_module("cupy")
        return None if cupy.cuda.runtime.getDeviceCount() else "there is no GPU here"
    except ImportError:
        return "CuPy is not installed: pip install 'pipelink-ir[cuda13]'"
    except Exception as error:
        return f"there is no GPU here: {error}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    needing = [item for item in items if item.get_closest_marker("gpu")]
    reason = _gpu_missing() if needing else None
    for item in needing if reason else []:
        item.add_marker(pytest.mark.skip(reason=reason))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the texts of tests/golden anew instead of comparing with them")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(name, text)`: `text` is what tests/golden/NAME holds."""
    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.is_file(), f"there is no tests/golden/{name}: run pytest with --update-golden and read what it writes"
        assert text == path.read_text(encoding="utf-8"), f"tests/golden/{name} differs; if the new text is right, run pytest with --update-golden"
    return check
