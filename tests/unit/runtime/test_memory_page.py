"""The page about memory does what it says: its Python runs, and its plan prints the lines that it shows."""
from __future__ import annotations

import re
from pathlib import Path

import pipelink_ir as pl

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "memory.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(plir|python)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_the_python_of_the_page_runs() -> None:
    scope: dict[str, object] = {}
    ran = 0
    for kind, text in BLOCKS:
        if kind == "python":
            exec(compile(text, "memory.py", "exec"), scope)
            ran += 1
    assert ran == 2


def test_the_plan_of_the_page_is_explained_as_shown() -> None:
    program, = (text for kind, text in BLOCKS if kind == "plir")
    said = pl.compile(program, "cpu").explain().splitlines()
    shown = [line.strip() for line in PAGE.splitlines() if line.startswith("    memory:")]
    assert len(shown) == 3
    assert [line for line in said if line.startswith("memory:")] == shown
