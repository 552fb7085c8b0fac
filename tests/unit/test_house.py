"""The rules of the house: layers, cheap imports, package data, generated pages. Each checker is shown to find what it is for."""
from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("numpy", "lark", "llvmlite", "PIL", "ml_dtypes", "cupy", "yaml", "rich", "click")


def _load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


LAYERS = _load(ROOT / ".ci" / "check_layers.py")


def test_layers_hold() -> None:
    assert LAYERS.check(ROOT) == []


@pytest.mark.parametrize(("path", "text", "message"), [
    ("pipelink_ir/ir/nodes.py", "from pipelink_ir.grammar import parse", "later layer 'grammar'"),
    ("pipelink_ir/ir/nodes.py", "def f():\n    import pipelink_ir.cli.main", "later layer 'cli'"),
    ("passes/fuse.py", "from pipelink_ir.backends.cpu import driver", "later layer 'backends'"),
    ("passes/fuse.py", "from passes import manager", "import 'passes' as 'pipelink_ir.passes'"),
    ("tests/unit/test_x.py", "import backends.cpu", "import 'backends.cpu' as"),
    ("passes/fuse.py", "from . import manager\nfrom .. import ir", "relative import"),
    ("passes/fuse.py", "import numpy as np", "'numpy' is imported at the head"),
    ("pipelink_ir/cli/main.py", "from PIL import Image", "'PIL' is imported at the head"),
    ("backends/reference/frame.py", "from pipelink_ir.passes.simplify import fold", "the reference backend imports"),
    ("backends/cpu/driver.py", "import numpy as np\ny = np.exp(x)", "the CPU backend uses numpy.exp"),
])
def test_layers_find(tmp_path: Path, path: str, text: str, message: str) -> None:
    file = tmp_path / path
    file.parent.mkdir(parents=True)
    file.write_text(text)
    assert [fault for fault in LAYERS.check(tmp_path) if message in fault]


def test_layers_find_circles(tmp_path: Path) -> None:
    (tmp_path / "passes").mkdir()
    for name, other in (("a", "b"), ("b", "c"), ("c", "a")):
        (tmp_path / "passes" / f"{name}.py").write_text(f"from pipelink_ir.passes.{other} import x\n")
    assert [f for f in LAYERS.check(tmp_path) if "circular import: passes.a -> passes.b -> passes.c -> passes.a" in f]


def test_layers_admit_what_is_right(tmp_path: Path) -> None:
    (tmp_path / "passes").mkdir()
    (tmp_path / "passes" / "a.py").write_text("from pipelink_ir.ir.nodes import Module\ndef f():\n    import numpy\n")
    assert LAYERS.check(tmp_path) == []


@pytest.mark.parametrize("code", ["import pipelink_ir", *(f"from pipelink_ir.cli.main import main; main({args})" for args in (["--help"], ["run", "--help"]))])
def test_starting_is_cheap(code: str) -> None:
    """Help needs none of the heavy packages."""
    check = f"{code}\nimport sys\nprint('loaded:', *[m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stderr.strip() == "loaded:"


@pytest.mark.parametrize("folder", ["passes/precision", "passes/scheduling", "backends/loops", "backends/loops/gpu", "backends/cuda"])
def test_large_folders_have_a_page_that_names_every_module(folder: str) -> None:
    page = (ROOT / folder / "__init__.py").read_text(encoding="utf-8")
    assert {f.stem for f in (ROOT / folder).glob("*.py")} - {"__init__"} - set(re.findall(r"\w+", page)) == set()


def test_package_data_is_found() -> None:
    package = files("pipelink_ir")
    for name in ("std/core.plir", "std/image.plir", "std/nn.plir", "grammar/plir.lark", "py.typed"):
        assert package.joinpath(name).is_file(), name


def test_generated_pages_are_up_to_date() -> None:
    build = _load(ROOT / "docs" / "build.py")
    stale = [name for name, write in build.GENERATED.items() if (ROOT / "docs" / "generated" / name).read_text(encoding="utf-8") != write()]
    assert not stale, "run `make docs`"


def test_targets_of_make_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):.*##", makefile, re.MULTILINE))
    for page in ("README.md", "CONTRIBUTING.md", ".ci/run"):
        text = (ROOT / page).read_text(encoding="utf-8")
        named = set(re.findall(r"^\s*make ([a-z]+)|`make ([a-z]+)`", text, re.MULTILINE))
        assert {a or b for a, b in named} <= targets, page


def test_the_version_is_one() -> None:
    import pipelink_ir
    from pipelink_ir.version import __version__
    assert pipelink_ir.__version__ == __version__
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)
