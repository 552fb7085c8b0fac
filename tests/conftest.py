"""What all tests share: goldens, which `--update-golden` writes anew."""
from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"


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
