"""Every program in the documentation parses and passes all checks; every link in it leads somewhere."""
from __future__ import annotations

import re
import shlex
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelink_ir.grammar import parse, print_module
from pipelink_ir.ir.diagnostics import ProgramError, Report
from pipelink_ir.passes.manager import parse_passes, run_passes
from tests.emulated import NEEDS_COMPILER

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "examples" / "README.md", ROOT / "examples" / "data" / "README.md",
         *sorted((ROOT / "docs").rglob("*.md"))]


def _programs() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for block in re.finditer(r"^```plir\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            yield f"{page.relative_to(ROOT)}:{text.count(chr(10), 0, block.start()) + 2}", block.group(1)


PROGRAMS = list(_programs())


def test_the_documentation_has_programs() -> None:
    assert len(PROGRAMS) >= 20


@pytest.mark.parametrize(("place", "program"), PROGRAMS, ids=[place for place, _ in PROGRAMS])
def test_program(place: str, program: str) -> None:
    module = parse(program, place)
    assert parse(print_module(module), place) == module
    report = Report()
    try:
        run_passes(module, parse_passes("cpu"), report)
    except ProgramError as error:
        pytest.fail(str(error))
    assert [d.text() for d in report.diagnostics] == []


def _anchors(text: str) -> set[str]:
    """The anchors that GitHub makes of headings."""
    return {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)):
        path, _, anchor = link.partition("#")
        if "://" in link:
            continue
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in _anchors(target.read_text(encoding="utf-8"))):
            broken.append(link)
    assert not broken


def test_the_pass_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    from pipelink_ir.passes import manager
    monkeypatch.setattr(manager, "_REGISTRY", dict(manager._REGISTRY))
    page = (ROOT / "docs" / "adding-a-pass.md").read_text(encoding="utf-8")
    made = types.ModuleType("drop_labels")
    monkeypatch.setitem(sys.modules, made.__name__, made)
    exec(re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[0], vars(made))
    op = "op @f(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { compute { %y[n] = %x[n] } }\n"
    text = "pipeline @p(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) {\n  %z = @f(%x) as up\n  %y = @f(%z) as down\n}"
    module = parse(op + text, "p.plir")
    done = print_module(made.drop_labels(module, made.Options(keep="down"), Report()))
    assert "as up" not in done
    assert "as down" in done
    plain = parse(op + text.replace(" as up", "").replace(" as down", ""), "p.plir")
    assert made.drop_labels(plain, made.Options(), Report()) is plain


@pytest.fixture
def shares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a reader who saved the README's program as `shares.plir`, and has a `table.npy`."""
    import numpy as np
    program = next(p for place, p in PROGRAMS if place.startswith("README") and "@shares" in p)
    (tmp_path / "shares.plir").write_text(program, encoding="utf-8")
    np.save(tmp_path / "table.npy", np.random.default_rng(0).random((4, 3), np.float32))
    monkeypatch.chdir(tmp_path)
    return tmp_path


README_COMMANDS = re.findall(r"^    (pipelinkc .*?)(?: +#.*)?$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)


def test_the_readme_has_commands() -> None:
    assert len(README_COMMANDS) >= 6


@pytest.mark.parametrize("command", README_COMMANDS)
def test_command_of_the_readme(command: str, shares: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from pipelink_ir.cli.main import main
    assert main(command.split()[1:]) == 0
    said = capsys.readouterr()
    assert said.out + said.err or list(shares.glob("shares.npy"))


def test_python_of_the_readme(shares: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import numpy as np
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
    np.testing.assert_allclose(np.fromstring(capsys.readouterr().out.strip(" []\n"), sep=" "), [1, 1, 1, 1], rtol=1e-6)


def _commands() -> Iterator[object]:
    """The commands of other pages, as a reader types them; sizes are smaller ones, and pagers are left out."""
    for page in ("precision", "tuning", "tutorial", "measuring"):
        text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
        for command in re.findall(r"^    (?:\.venv/bin/)?(pipelinkc [^#|\n]*?)(?: 2>&1)?(?: *[|#].*| && ls .*)?$", text, re.MULTILINE):
            small = command.strip().replace("H=1080,W=1920", "H=27,W=48").replace("N=16", "N=2").replace("--b sm_75", "--b sm_75,on=cpu")
            yield pytest.param(small, id=f"{page}: {command[10:60]}", marks=[NEEDS_COMPILER] if "emulated" in small else [])


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a reader who saved what the pages show, beside this repository's examples."""
    import numpy as np
    programs = {name: next(p for place, p in PROGRAMS if place.startswith(page) and word in p) for name, page, word in (
        ("net", "docs/precision", "@net"), ("bright", "docs/tutorial", "@brighten"), ("outline", "docs/tutorial", "@outline"))}
    for name, text in programs.items():
        (tmp_path / f"{name}.plir").write_text(text, encoding="utf-8")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "edge.plir").write_bytes((ROOT / "examples" / "edge.plir").read_bytes())
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path)
    exec((ROOT / "docs" / "calibration.md").read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0], {})
    from PIL import Image
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (27, 48, 3), np.uint8)).save("photo.png")
    np.savez("rows.npz", x=np.ones((8, 64), np.float32), g=np.ones(64, np.float32), b=np.zeros(64, np.float32))
    return tmp_path


@pytest.mark.parametrize("command", list(_commands()))
def test_command_of_a_page(command: str, desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from pipelink_ir.cli.main import main
    before = set(desk.rglob("*"))
    status = main(shlex.split(command)[1:])
    said = capsys.readouterr()
    assert status == 0, said.err
    assert said.out + said.err or set(desk.rglob("*")) > before
