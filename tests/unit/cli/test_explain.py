"""`explain`, and the table behind it."""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pipelink_ir.cli.check import check_file
from pipelink_ir.ir.codes import CODES
from tests.unit.cli.command import Done

Command = Callable[..., Done]
PROGRAMS = [code for code, entry in CODES.items() if entry.wrong]

# What the language page lists as fields, and the fields of arrays, files and the command.
FIELDS = set("""syntax name duplicate arity attribute dtype rank shape layout align padding border bounds contiguity cross_device inplace range color
finite arch library downgrade budget streams batch cycle dependency result import target gradient recurrence device""".split())


@pytest.mark.parametrize("code", CODES)
def test_every_code_is_explained(pipelinkc: Command, code: str) -> None:
    done = pipelinkc("explain", code)
    entry = CODES[code]
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith(f"{code}: {entry.field}: {entry.title}\n")
    assert len(entry.why) > 80
    assert ("Wrong:" in done.out) == ("Right:" in done.out) == bool(entry.wrong) == bool(entry.right)
    assert pipelinkc("explain", code[2:]).out == pipelinkc("explain", code.lower()).out == done.out


def test_every_field_has_a_code() -> None:
    assert {entry.field for entry in CODES.values()} >= FIELDS


def test_a_field_instead_of_a_code(pipelinkc: Command) -> None:
    assert pipelinkc("explain", "layout").out == pipelinkc("explain", "PL3001").out


def test_codes_are_listed(pipelinkc: Command) -> None:
    lines = pipelinkc("explain").out.splitlines()
    assert [line.split()[0] for line in lines] == list(CODES)


def test_near_names(pipelinkc: Command) -> None:
    assert "did you mean 'layout'?" in pipelinkc("explain", "layuot").err
    assert "did you mean" in pipelinkc("explain", "PL3000").err


@pytest.mark.parametrize("code", PROGRAMS)
def test_right_programs_are_right(tmp_path: Path, code: str) -> None:
    path = tmp_path / "right.plir"
    path.write_text(CODES[code].right)
    assert [d.text() for d in check_file(str(path))] == []


@pytest.mark.parametrize("code", [c for c in PROGRAMS if c != "PL6101"])
def test_wrong_programs_get_their_code_and_no_other(tmp_path: Path, code: str) -> None:
    path = tmp_path / "wrong.plir"
    path.write_text(CODES[code].wrong)
    assert {d.code for d in check_file(str(path)) if d.severity == "error"} == {code}
