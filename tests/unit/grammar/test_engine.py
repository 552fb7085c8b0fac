"""The cache of the grammar's tables: it speeds things up and never matters."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import lark
import pytest

from pipelink_ir.grammar import engine

CODE = "from pipelink_ir.grammar import parse; print(parse('import std.image', 't').imports[0].module)"


def run(env: dict[str, str]) -> str:
    clean = {k: v for k, v in os.environ.items() if k not in ("PIPELINK_CACHE_DIR", "XDG_CACHE_HOME")}
    done = subprocess.run([sys.executable, "-c", CODE], env=clean | env, capture_output=True, text=True, timeout=60, check=False,
                          cwd=Path(engine.__file__).resolve().parents[1])
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("variable", "place"), [("PIPELINK_CACHE_DIR", ""), ("XDG_CACHE_HOME", "pipelink"), ("HOME", ".cache/pipelink")])
def test_the_tables_are_kept(tmp_path: Path, variable: str, place: str) -> None:
    assert run({variable: str(tmp_path)}) == "std.image\n"
    (kept,) = (tmp_path / place).iterdir()
    assert kept.name.startswith("grammar-")
    assert run({variable: str(tmp_path)}) == "std.image\n"
    assert list((tmp_path / place).iterdir()) == [kept]


@pytest.mark.parametrize("damage", [lambda b: b"", lambda b: b[:100], lambda b: b[:-1] + bytes([b[-1] ^ 1]), lambda b: b"\0" * len(b)])
def test_a_damaged_file_is_replaced(tmp_path: Path, damage: object) -> None:
    assert callable(damage)
    run({"PIPELINK_CACHE_DIR": str(tmp_path)})
    (kept,) = tmp_path.iterdir()
    assert engine._load(kept) is not None
    kept.write_bytes(damage(kept.read_bytes()))
    assert engine._load(kept) is None
    assert run({"PIPELINK_CACHE_DIR": str(tmp_path)}) == "std.image\n"
    assert engine._load(kept) is not None


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert run({"PIPELINK_CACHE_DIR": str(tmp_path / "file" / "below")}) == "std.image\n"
    assert run({"PIPELINK_CACHE_DIR": "/proc/nowhere"}) == "std.image\n"


def test_another_grammar_is_another_file() -> None:
    assert engine._cache_file("a") != engine._cache_file("b")


def test_the_grammar_has_no_conflict(caplog: pytest.LogCaptureFixture) -> None:
    """lark settles conflicts between shift and reduce by itself and says so only in its log."""
    def said(grammar: str) -> list[str]:
        caplog.clear()
        with caplog.at_level("DEBUG", logger=lark.logger.name):
            lark.Lark(grammar, start="module", parser="lalr", lexer=engine.TokenFeed, debug=True)
        return [r.getMessage() for r in caplog.records if "onflict" in r.getMessage()]
    assert said('%declare NAME\nmodule: e\ne: e "+" e | NAME')
    assert said(engine.GRAMMAR_FILE.read_text(encoding="utf-8")) == []


def test_importing_the_package_does_not_import_lark() -> None:
    code = "import sys, pipelink_ir.grammar; print('lark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True, cwd=Path(engine.__file__).resolve().parents[1])
    assert done.stdout == "False\n"
