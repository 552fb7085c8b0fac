"""The page about arrays does what it says: its Python runs, and prints what it shows."""
from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.cli.command import Done

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "arrays.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(plir|python|text)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def _settled(text: str) -> str:
    """Without what differs from run to run: addresses, and by how much more than asked they are aligned."""
    return re.sub(r"alignment  \d+", "alignment  256", re.sub(r"0x[0-9a-f]+", "0x…", text)).rstrip()


def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], pipelinkc: Callable[..., Done]) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {}
    printed = ""
    ran = shown = 0
    for kind, text in BLOCKS:
        if kind == "plir":
            Path("twice.plir").write_text(text)
        elif kind == "python":
            assert printed == "", "what is printed is shown"
            # Each block as a file of its own, so that messages show its lines.
            Path("work.py").write_text(text)
            import linecache
            linecache.checkcache("work.py")
            exec(compile(text, "work.py", "exec"), scope)
            printed, ran = capsys.readouterr().out, ran + 1
        else:
            assert _settled(text) == _settled(printed)
            printed, shown = "", shown + 1
    assert ran >= 6
    assert shown >= 3
    assert pipelinkc("inspect", "before").status == 0
    assert pipelinkc("inspect", "before", "after").out.startswith("different at [0, 0]: 0.0 and 2.0\n")
