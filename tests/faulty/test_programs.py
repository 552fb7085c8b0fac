"""The programs of this folder, one mistake each, and those of `tests/faultless`, in which nothing is to be reported.

The markers in them are those of `tests/cases/bad`: where the diagnostic points, its field, notes and what its help has to mention.
"""
from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from pipelink_ir.grammar import parse, print_module
from pipelink_ir.ir.diagnostics import Report
from pipelink_ir.passes.hooks import VerifyEach
from pipelink_ir.passes.manager import parse_passes, run_passes
from pipelink_ir.runtime.sources import read_program
from tests.faulty.checker import CHECKER, faults, field_of

HERE = Path(__file__).resolve().parent
FAULTY = sorted(HERE.glob("*.plir"))
FAULTLESS = sorted((HERE.parent / "faultless").glob("*.plir"))


def test_every_field_has_several_programs() -> None:
    count = Counter(map(field_of, FAULTY))
    assert {f for f in CHECKER.FIELDS if count[f] < 3} == set()
    assert len(FAULTY) >= 300
    assert len(FAULTLESS) >= 40


def test_there_are_many_policies() -> None:
    """Unreachable ones, and those that contradict themselves: each of them stands in a file of its own."""
    assert sum(p.stem.startswith(("policy-", "downgrade-", "budget-")) for p in FAULTY) >= 70


@pytest.mark.parametrize("path", FAULTY, ids=lambda p: p.stem)
def test_the_mistake_is_found(path: Path) -> None:
    assert not faults(path)


@pytest.mark.parametrize("path", FAULTLESS, ids=lambda p: p.stem)
def test_nothing_is_reported(path: Path) -> None:
    assert not faults(path, good=True)


@pytest.mark.parametrize("path", FAULTLESS, ids=lambda p: p.stem)
def test_what_the_passes_make_of_it_is_faultless_too(path: Path) -> None:
    report = Report()
    module = run_passes(read_program(str(path)), parse_passes("frontend"), report, [VerifyEach()])
    module = run_passes(parse(print_module(module), path.name), parse_passes("cpu"), report, [VerifyEach()])
    run_passes(parse(print_module(module), path.name), parse_passes("resolve,infer-types"), report, [VerifyEach()])
    assert [d.text() for d in report.diagnostics] == []
