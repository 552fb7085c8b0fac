"""The proof of plans, by mutation: every harmful change of a right plan is refused, no harmless one is. What is harmful, `oracle.py` finds by running the plan in
every order that the device may take.

    pytest tests/plans                            a part of it, the same each time
    pytest tests/plans --plan-graphs=500          so many random graphs (`make plans`); the summary says how many mutants there were
"""
from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pipelink_ir.grammar import parse, print_module
from pipelink_ir.ir.diagnostics import ProgramError, Report
from pipelink_ir.ir.nodes import Edge, Module, Name, Node, Pipeline
from pipelink_ir.ir.shapes import bind_shapes
from pipelink_ir.ir.walk import walk
from pipelink_ir.passes.manager import parse_passes, run_passes
from pipelink_ir.passes.verify_plan import NoOptions, verify_plan
from pipelink_ir.runtime.compile import read
from tests.plans.mutants import Mutant, as_user, mutants, on_stream, placed, shifted, swapped, without
from tests.plans.oracle import harmful, read_plan, states, surely_harmful
from tests.plans.programs import large, launches, planned, program, sized

Count = Callable[[str, Counter[str]], None]


def refused(module: Module, pipeline: Pipeline) -> bool:
    """Whether `verify-plan` refuses a pipeline in the place of the module's own."""
    report = Report()
    verify_plan(replace(module, items=(*module.operators, pipeline)), NoOptions(), report)
    return report.failed


def judge(module: Module, mutant: Mutant, found: Counter[str]) -> None:
    """The oracle and the proof agree on one mutant."""
    why = harmful(read_plan(mutant.pipeline, module.operators))
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


# ------------------------------------------------------------------------------------------------- cases and examples

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = [*sorted((ROOT / "tests" / "cases").glob("*.plir")), *sorted((ROOT / "examples").glob("*.plir"))]

MOST_STATES, MOST_MUTANTS = 4000, 120
"""Of larger plans not every change is judged, but some of every kind."""


def sizes_of(path: Path, module: Module) -> dict[str, int]:
    """Sizes for the dimensions of a program: those of the arrays beside it, else some that its conditions admit."""
    inputs = module.pipelines[0].inputs
    env: dict[str, int] = {}
    if path.with_suffix(".npz").exists():
        with np.load(path.with_suffix(".npz")) as data:
            bind_shapes([(o.type, data[f"in.{o.name}"].shape) for o in inputs], env)
        return env
    names = {n.name for o in inputs for d in o.type.dims for n in walk(d) if isinstance(n, Name)}
    for size in (48, 64, 224, 3):
        try:
            run_passes(sized(module, dict.fromkeys(names, size)), parse_passes("frontend"), Report())
        except ProgramError:
            continue
        return dict.fromkeys(names, size)
    return {}


def spread(found: Sequence[Mutant], most: int) -> list[Mutant]:
    """Some of them, evenly."""
    return list(found) if len(found) <= most else [found[k * len(found) // most] for k in range(most)]


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: p.stem)
def test_cases_and_examples(path: Path, count: Count) -> None:
    found: Counter[str] = Counter()
    module = read(path)
    known = sized(module, sizes_of(path, module))
    judged = 0
    for program_, fuse in ((module, "fuse"), (known, "fuse"), (known, "fuse{{nodes=1}}")):
        for streams in (1, 4):
            steps = f"frontend,place-devices,flatten,simplify,{fuse},assign-streams{{{{max_streams={{}}}}}},alias-buffers".format(streams)
            done = run_passes(program_, parse_passes(steps), Report())
            for pipeline in done.pipelines:
                if not launches(pipeline) or states(read_plan(pipeline)) > MOST_STATES:
                    continue
                judged += 1
                one = replace(done, items=(*done.operators, pipeline))
                for mutant in spread(list(mutants(pipeline)), MOST_MUTANTS):
                    judge(one, mutant, found)
    assert judged
    count(path.stem, found)


# ------------------------------------------------------------------------------------------------------- larger plans


def seeded(p: Pipeline, rng: random.Random, most: int) -> Iterator[Mutant]:
    """Changes of a large plan that do harm: each takes away what orders something, or puts two operands of one launch into one place."""
    p = as_user(p)
    at = [k for k, n in enumerate(p.nodes) if isinstance(n, Node)]
    nodes = {k: n for k, n in enumerate(p.nodes) if isinstance(n, Node)}
    waits = [(at[x.number], e) for x in read_plan(p).launches for e in x.waits]
    for k, e in rng.sample(waits, min(most, len(waits))):
        yield Mutant("event dropped", f"wait {e} of node {k}", replace(p, nodes=(*p.nodes[:k], without(nodes[k], "wait", e), *p.nodes[k + 1:])))
    made = {e.name: k for k, n in nodes.items() for e in n.results}
    pairs = [(made[a.name], k) for k, n in nodes.items() for a in n.args if isinstance(a, Edge) and a.name in made]
    for j, k in rng.sample(pairs, min(most, len(pairs))):
        yield Mutant("swapped", f"nodes {j} and {k}", swapped(p, j, k))
    for k in rng.sample(at, min(2 * most, len(at))):
        moved = replace(p, nodes=(*p.nodes[:k], on_stream(nodes[k], 99), *p.nodes[k + 1:]))
        if surely_harmful(read_plan(moved)):
            yield Mutant("moved", f"node {k}", moved)
    where = {e.tensor: (k, e, offset) for k, e, offset, _ in placed(p)}
    both = [tuple(a.name for a in n.args if isinstance(a, Edge)) for n in nodes.values() if len(n.args) == 2]
    both = [x for x in both if x[0] != x[1] and x[0] in where and x[1] in where]
    for a, b in rng.sample(both, min(most, len(both))):
        k, e, _ = where[a]
        yield Mutant("shifted", f"%{a} to %{b}", shifted(p, k, e, where[b][2]))


@pytest.mark.parametrize(("size", "streams"), [(100, 2), (100, 4), (300, 8), (1000, 4)])
def test_larger_plans(size: int, streams: int, count: Count) -> None:
    found: Counter[str] = Counter()
    module = planned(large(size + streams, size), streams)
    pipeline = module.pipelines[0]
    assert not surely_harmful(read_plan(pipeline))
    assert not refused(module, as_user(pipeline))
    for mutant in seeded(pipeline, random.Random(size), 25 if size == 100 else 10):
        assert mutant.kind == "shifted" or surely_harmful(read_plan(mutant.pipeline)), mutant.what
        assert refused(module, mutant.pipeline), f"let through: {mutant.what}"
        found[f"{mutant.kind}, harmful"] += 1
    count(f"{size} nodes, {streams} streams", found)
    assert all(found[f"{kind}, harmful"] >= 8 for kind in ("event dropped", "swapped", "moved", "shifted"))
