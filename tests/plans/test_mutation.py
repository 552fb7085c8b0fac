"""The proof of plans, by mutation: every harmful change of a right plan is refused, no harmless one is. What is harmful, `oracle.py` finds by running the plan in
every order that the device may take.

    pytest tests/plans                            a part of it, the same each time
    pytest tests/plans --plan-graphs=500          so many random graphs (`make plans`); the summary says how many mutants there were
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from pipelink_ir.grammar import parse, print_module
from pipelink_ir.ir.diagnostics import Report
from pipelink_ir.ir.nodes import Module, Pipeline
from pipelink_ir.passes.manager import parse_passes, run_passes
from pipelink_ir.passes.verify_plan import NoOptions, verify_plan
from tests.plans.mutants import Mutant, mutants
from tests.plans.oracle import harmful, read_plan
from tests.plans.programs import launches, planned, program

Count = Callable[[str, Counter[str]], None]


def refused(module: Module, pipeline: Pipeline) -> bool:
    """Whether `verify-plan` refuses a pipeline in the place of the module's own."""
    report = Report()
    verify_plan(replace(module, items=(*module.operators, pipeline)), NoOptions(), report)
    return report.failed


def judge(module: Module, mutant: Mutant, found: Counter[str]) -> None:
    """The oracle and the proof agree on one mutant."""
    why = harmful(read_plan(mutant.pipeline))
    no = refused(module, mutant.pipeline)
    text = print_module(replace(module, items=(mutant.pipeline,)))
    assert no or not why, f"let through, although {why}: {mutant.what}\n{text}"
    assert why or not no, f"refused, although harmless: {mutant.what}\n{text}"
    if mutant.kind != "nothing":
        found[f"{mutant.kind}, {'harmful' if why else 'harmless'}"] += 1


def test_random_graphs(count: Count, request: pytest.FixtureRequest) -> None:
    found: Counter[str] = Counter()
    for seed in range(request.config.getoption("--plan-graphs")):
        module = planned(program(seed, 2 + seed % 7), 1 + seed % 5)
        pipeline = module.pipelines[0]
        assert launches(pipeline) <= 8
        assert harmful(read_plan(pipeline)) == ""
        for k, mutant in enumerate(mutants(pipeline)):
            if k == 0:
                # What is proven is in the text.
                back = run_passes(parse(print_module(module), "dump.plir"), parse_passes("resolve,infer-types"), Report())
                assert not refused(back, back.pipelines[0])
            judge(module, mutant, found)
    count("random graphs", found)
    for kind, least in (("event dropped", 30), ("shifted", 300), ("swapped", 500), ("moved", 300)):
        assert found[f"{kind}, harmful"] > least
        assert found[f"{kind}, harmless"] > 0
