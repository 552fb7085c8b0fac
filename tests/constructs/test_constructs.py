"""Every construct of the language, as a small program with values from an independent source, on every backend."""
from __future__ import annotations

from pathlib import Path

import pytest

from pipelink_ir.grammar import parse, print_module
from pipelink_ir.ir.diagnostics import ExecutionError
from tests.constructs import borders, definitions, dtypes, functions, lexical, pipelines, recurrences, reductions, types
from tests.constructs.case import TARGETS, Case

MODULES = (lexical, types, dtypes, functions, definitions, reductions, recurrences, borders, pipelines)
CASES: list[Case] = [case for module in MODULES for case in module.CASES]


@pytest.fixture(scope="session", autouse=True)
def _cache_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The tests leave the user's cache alone, unless they are told which to use."""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_values(case: Case, target: str, tmp_path: Path) -> None:
    if case.fails:
        with pytest.raises(ExecutionError) as caught:
            case.run(target, tmp_path)
        assert case.fails in str(caught.value)
        return
    case.compare(case.run(target, tmp_path))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_round_trip(case: Case) -> None:
    module = parse(case.source, "case.plir")
    printed = print_module(module)
    assert parse(printed, "printed.plir") == module
    assert print_module(parse(printed, "printed.plir")) == printed
