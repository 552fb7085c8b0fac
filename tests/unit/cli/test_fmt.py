"""`fmt`: in place, whole or not at all."""
from __future__ import annotations

import io
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelink_ir.grammar import format_text
from tests.unit.cli.command import BROKEN, SCALE, Done

Command = Callable[..., Done]
UGLY = SCALE.replace("  %y = @scale(%x) {by = by}", "%y   =   @scale( %x ){ by=by }   // keep this")


def test_what_is_kept() -> None:
    tidy = SCALE.replace("  %y = @scale(%x) {by = by}", "  %y = @scale(%x) {by = by}  // keep this")
    assert format_text(UGLY, "x.plir").split() == tidy.split()


def test_in_place(pipelinkc: Command, tmp_path: Path) -> None:
    path = tmp_path / "x.plir"
    path.write_text(UGLY)
    path.chmod(0o640)
    done = pipelinkc("fmt", path)
    assert (done.status, done.out, done.err) == (0, "", "")
    assert path.read_text() == format_text(UGLY, "x.plir")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert [p.name for p in tmp_path.iterdir()] == ["x.plir"]


def test_a_tidy_file_is_not_touched(pipelinkc: Command, scale: Path) -> None:
    before = scale.stat()
    assert pipelinkc("fmt", scale).status == 0
    assert (scale.stat().st_ino, scale.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert scale.read_text() == SCALE


def test_check_writes_nothing(pipelinkc: Command, tmp_path: Path, scale: Path) -> None:
    path = tmp_path / "x.plir"
    path.write_text(UGLY)
    done = pipelinkc("fmt", "--check", scale, path)
    assert done.status == 1
    assert done.err == f"{path}: not formatted\n"
    assert path.read_text() == UGLY
    assert pipelinkc("fmt", "--check", scale).status == 0


def test_diff_writes_nothing(pipelinkc: Command, tmp_path: Path, scale: Path) -> None:
    path = tmp_path / "x.plir"
    path.write_text(UGLY)
    done = pipelinkc("fmt", "--diff", path, scale)
    assert done.status == 0
    assert done.out.startswith(f"--- {path}\n+++ {path} (formatted)\n@@ ")
    assert "\n-%y   =   @scale( %x ){ by=by }   // keep this\n+  %y = @scale(%x)" in done.out
    assert path.read_text() == UGLY
    assert pipelinkc("fmt", "--diff", "--check", path).status == 1


def test_one_bad_file_does_not_stop_the_others(pipelinkc: Command, tmp_path: Path) -> None:
    bad, ugly = tmp_path / "bad.plir", tmp_path / "ugly.plir"
    bad.write_text(BROKEN)
    ugly.write_text(UGLY)
    done = pipelinkc("fmt", bad, tmp_path / "missing.plir", ugly)
    assert done.status == 2
    assert f"{bad}:2:" in done.err
    assert "missing.plir: error[PL9101]" in done.err
    assert bad.read_text() == BROKEN
    assert ugly.read_text() == format_text(UGLY, "ugly.plir")
    assert pipelinkc("fmt", bad).status == 1


def test_a_folder(pipelinkc: Command, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for path in (tmp_path / "a.plir", tmp_path / "sub" / "b.plir", tmp_path / "c.txt"):
        path.write_text(UGLY)
    assert pipelinkc("fmt", tmp_path).status == 0
    assert (tmp_path / "a.plir").read_text() == (tmp_path / "sub" / "b.plir").read_text() == format_text(UGLY, "a.plir")
    assert (tmp_path / "c.txt").read_text() == UGLY


def test_standard_input(pipelinkc: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(UGLY.encode())))
    done = pipelinkc("fmt", "-")
    assert (done.status, done.out) == (0, format_text(UGLY, "<stdin>"))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(BROKEN.encode())))
    done = pipelinkc("fmt", "-")
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith("<stdin>:2:")


def test_line_ends_become_lf(pipelinkc: Command, tmp_path: Path) -> None:
    path = tmp_path / "x.plir"
    path.write_bytes(b"\xef\xbb\xbf" + SCALE.replace("\n", "\r\n").encode())
    assert pipelinkc("fmt", path).status == 0
    assert path.read_bytes() == SCALE.encode()
