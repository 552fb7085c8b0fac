"""`ContractViolationError`: what it says of a program and of a call, and that it travels."""
from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipelink_ir as pl
from pipelink_ir.ir.diagnostics import CONTRACT_FIELDS, Diagnostic
from tests.unit.runtime.programs import ADD, TWICE, matrix, twice

CASES = Path(__file__).resolve().parents[2] / "cases"
BAD = sorted((CASES / "bad").glob("*.plir"))


def _marked(path: Path) -> str | None:
    """The field of the first `//~ error` marker of a faulty program."""
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        if "//~ error" in line:
            return line.split("//~ error", 1)[1].split()[0].strip("[]:,")
    return None


@pytest.mark.parametrize("path", BAD, ids=lambda p: p.stem)
def test_faulty_programs_raise_by_their_field(path: Path) -> None:
    try:
        pl.compile(path)
    except pl.ProgramError as error:
        first = next(d for d in error.diagnostics if d.severity == "error")
        assert isinstance(error, pl.ContractViolationError) == (first.field in CONTRACT_FIELDS)
        if isinstance(error, pl.ContractViolationError):
            assert error.field == first.field
            assert error.expected
            assert error.locations[0].span is first.span
    except pl.UsageError:
        pass    # a program without a pipeline, or one that needs a value


def test_the_fields_are_those_of_the_language() -> None:
    text = (CASES / "check_bad.py").read_text(encoding="utf-8")
    source = text[text.index('CONTRACT = set("""') + len('CONTRACT = set("""'):]
    assert set(source[:source.index('"""')].split()) == CONTRACT_FIELDS


LAYOUT = (CASES / "bad" / "layout-nhwc-into-nchw.plir")


def test_parts_of_a_violation_in_a_program() -> None:
    with pytest.raises(pl.ContractViolationError) as caught:
        pl.compile(LAYOUT)
    error = caught.value
    assert error.field == "layout"
    assert error.operator
    assert error.edge
    assert "NHWC" in error.got
    assert "NCHW" in error.expected
    assert len(error.locations) >= 2
    assert all(n.span.source.path == str(LAYOUT) for n in error.locations)


def _violations() -> list[pl.ProgramError]:
    out: list[pl.ProgramError] = []
    calls: list[Any] = [
        lambda: pl.compile(LAYOUT), lambda: pl.compile(twice(contiguity="dense"))(x=pl.as_view(matrix(4, 3).T)), lambda: pl.compile(TWICE)(x=np.zeros((2, 3))),
        lambda: pl.compile(ADD)(a=np.zeros(2, np.float32)), lambda: pl.compile("op @f("), lambda: pl.compile("nowhere.plir"),
    ]
    for call in calls:
        with pytest.raises(pl.ProgramError) as caught:
            call()
        out.append(caught.value)
    return out


@pytest.mark.parametrize("error", _violations(), ids=lambda e: type(e).__name__)
def test_errors_travel_between_processes(error: pl.ProgramError) -> None:
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert [d.json() for d in back.diagnostics] == [d.json() for d in error.diagnostics]
    if isinstance(error, pl.ContractViolationError):
        assert (back.field, back.operator, back.edge, back.expected, back.got) == (error.field, error.operator, error.edge, error.expected, error.got)
        assert [str(n.span) for n in back.locations] == [str(n.span) for n in error.locations]


def test_the_kinds_of_errors() -> None:
    kinds = [type(e) for e in _violations()]
    assert kinds == [pl.ContractViolationError] * 3 + [pl.ExecutionError, pl.ProgramError, pl.ProgramError]
    assert issubclass(pl.ContractViolationError, pl.ExecutionError)
    assert issubclass(pl.ExecutionError, pl.ProgramError)


def test_what_a_call_says() -> None:
    with pytest.raises(pl.ContractViolationError) as caught:
        pl.compile(TWICE)(x=np.zeros((2, 3)))
    error = caught.value
    assert (error.field, error.operator, error.edge, error.expected, error.got) == ("dtype", "main", "x", "f32", "f64")
    first = error.diagnostics[0]
    assert isinstance(first, Diagnostic)
    assert (first.code, first.field) == ("PL6001", "dtype")
    assert first.text().startswith("<text>:4:16: error[PL6001]: dtype: ")


def test_the_line_of_a_view_wins_over_the_line_of_the_call() -> None:
    def loader() -> pl.TensorView:
        return pl.as_view(matrix(4, 3).T)   # made here

    with pytest.raises(pl.ContractViolationError) as caught:
        pl.compile(twice(contiguity="dense"))(x=loader())
    said = [n for n in caught.value.locations if n.span.source.path == __file__]
    assert ["made here" in (n.span.source.line(n.span.line) or "") for n in said] == [True]
    assert said[0].message == "the array 'x' is made here"


def test_a_hidden_file_is_no_reason_to_fail() -> None:
    """Code without a file: the place is named, its text is not shown."""
    scope: dict[str, Any] = {"pl": pl, "array": matrix(4, 3).T, "compiled": pl.compile(twice(contiguity="dense"))}
    with pytest.raises(pl.ContractViolationError, match=r"<notebook>:2:1: note: the array 'x' is made here"):
        exec(compile("\nview = pl.as_view(array)\ncompiled(x=view)\n", "<notebook>", "exec"), scope)
