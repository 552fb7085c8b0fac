"""The proof of a plan, by mutation: every harmful change of a right plan is refused, no harmless one is.

Whether a change is harmful is decided here by brute force, by looking at every state that the device can reach. That code knows nothing of the passes."""
from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from pipelink_ir.grammar import parse
from pipelink_ir.ir.diagnostics import InternalError, ProgramError, Report
from pipelink_ir.ir.nodes import IntLit, Items, Module, Node, Scoped, Section, Setting, Text
from pipelink_ir.ir.source import Source, Span
from pipelink_ir.passes.manager import parse_passes, run_passes
from pipelink_ir.passes.verify_plan import NoOptions, verify_plan

OPS = """op @f1(%a: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { compute { %y[n] = %a[n] + 1 } }
op @f2(%a: tensor<Nxf32>, %b: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { compute { %y[n] = %a[n] + %b[n] } }
"""
HERE = Span(Source("<plan>", "plan"), 0, 4)


@dataclass(frozen=True)
class Launch:
    """One node as the device sees it, and the launches that have to be done before it begins."""

    name: str
    stream: int
    waits: tuple[int, ...]
    records: tuple[int, ...]
    needs: frozenset[str]


def harmful(launches: list[Launch]) -> bool:
    """Whether some order that streams and events allow begins a launch before something that it needs is done, or the device never ends."""
    recorder: dict[int, tuple[int, str]] = {}
    for k, x in enumerate(launches):
        for e in x.records:
            recorder[e] = (k, x.name)
    for k, x in enumerate(launches):
        if any(e not in recorder or recorder[e][0] >= k for e in x.waits):
            return True
    lanes: dict[int, list[Launch]] = {}
    for x in launches:
        lanes.setdefault(x.stream, []).append(x)
    order = sorted(lanes)
    seen: set[tuple[int, ...]] = set()
    todo = [tuple(0 for _ in order)]
    while todo:
        state = todo.pop()
        if state in seen:
            continue
        seen.add(state)
        done = {x.name for lane, n in zip(order, state, strict=True) for x in lanes[lane][:n]}
        for k, lane in enumerate(order):
            if state[k] < len(lanes[lane]):
                x = lanes[lane][state[k]]
                if all(recorder[e][1] in done for e in x.waits):
                    if not x.needs <= done:
                        return True
                    todo.append((*state[:k], state[k] + 1, *state[k + 1:]))
    return False


def program(seed: int, size: int) -> str:
    rng = random.Random(seed)
    lines = []
    for i in range(size):
        names = ["%x", *(f"%e{j}" for j in range(i))]
        call = f"@f1({rng.choice(names)})" if rng.random() < 0.5 else f"@f2({rng.choice(names)}, {rng.choice(names)})"
        lines.append(f"%e{i} = {call}" + (f" after %e{rng.randrange(i)}" if i and rng.random() < 0.2 else ""))
    results = ", ".join(f"%e{i}: tensor<Nxf32>" for i in range(size))
    return OPS + f"pipeline @p(%x: tensor<Nxf32>) -> ({results}) {{\n" + "\n".join(lines) + "\n}"


def planned(seed: int, size: int) -> Module:
    return run_passes(parse(program(seed, size), "<test>"), parse_passes(f"resolve,infer-types,assign-streams{{max_streams={1 + seed % 4}}}"), Report())


def numbers(n: Node, key: str) -> tuple[int, ...]:
    found = [s.value for s in (n.plan.entries if n.plan else ()) if isinstance(s, Setting) and s.key == key]
    return tuple(v.value for value in found for v in (value.items if isinstance(value, Items) else (value,)) if isinstance(v, IntLit))


def launches(nodes: list[Node]) -> list[Launch]:
    made = {e.name: n.results[0].name for n in nodes for e in n.results}
    return [Launch(n.results[0].name, numbers(n, "stream")[0], numbers(n, "wait"), numbers(n, "record"),
                   frozenset(made[e.name] for e in (*n.args, *n.after) if e.name in made)) for n in nodes]  # type: ignore[union-attr]


def with_plan(n: Node, stream: int, waits: tuple[int, ...], records: tuple[int, ...]) -> Node:
    entries = [Setting("stream", IntLit(stream))]
    entries += [Setting("wait", Items(tuple(map(IntLit, waits))))] if waits else []
    entries += [Setting("record", Items(tuple(map(IntLit, records))))] if records else []
    return replace(n, plan=Section("plan", tuple(entries), span=HERE))


def mutants(nodes: list[Node]) -> Iterator[tuple[str, list[Node]]]:
    """Every event dropped, every two launches swapped, every launch moved to another stream."""
    parts = [(numbers(n, "stream")[0], numbers(n, "wait"), numbers(n, "record")) for n in nodes]
    user = [with_plan(n, *p) for n, p in zip(nodes, parts, strict=True)]
    yield "nothing", user
    for i, (stream, waits, records) in enumerate(parts):
        for e in waits:
            yield f"wait {e} of {i} dropped", [*user[:i], with_plan(nodes[i], stream, tuple(w for w in waits if w != e), records), *user[i + 1:]]
        for other in {p[0] for p in parts} | {max(p[0] for p in parts) + 1}:
            if other != stream:
                yield f"{i} moved to stream {other}", [*user[:i], with_plan(nodes[i], other, waits, records), *user[i + 1:]]
        for j in range(i):
            swapped = list(user)
            swapped[i], swapped[j] = user[j], user[i]
            yield f"{j} and {i} swapped", swapped


def refused(module: Module, nodes: list[Node]) -> bool:
    report = Report()
    pipeline = replace(module.pipelines[0], nodes=tuple(nodes))
    verify_plan(replace(module, items=(*module.operators, pipeline)), NoOptions(), report)
    return report.failed


def test_every_harmful_mutant_is_refused_and_no_harmless_one() -> None:
    counts = {True: 0, False: 0}
    for seed in range(120):
        module = planned(seed, 3 + seed % 6)
        nodes = [n for n in module.pipelines[0].nodes if isinstance(n, Node)]
        assert not harmful(launches(nodes))
        for what, mutant in mutants(nodes):
            bad = harmful(launches(mutant))
            counts[bad] += 1
            assert refused(module, mutant) == bad, f"graph {seed}: {what}"
    print(f"{counts[True]} harmful mutants refused, {counts[False]} harmless ones let through")
    assert counts[True] > 1000
    assert counts[False] > 200


@pytest.mark.parametrize(("a", "b", "overlap"), [((0, 64), (64, 64), False), ((0, 65), (64, 64), True), ((32, 8), (0, 64), True), ((128, 64), (0, 128), False)])
def test_edges_that_live_together_do_not_share_bytes(a: tuple[int, int], b: tuple[int, int], overlap: bool) -> None:
    text = OPS + "pipeline @p(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { %a = @f1(%x) %b = @f1(%x) %y = @f2(%a, %b) }"
    assert placed(text, {"a": a, "b": b}) == overlap


def test_memory_is_used_again_when_its_last_reader_is_done() -> None:
    # %a is read by %b alone; %c is written after %b, so it may lie where %a lay. %b may not: it is written while %a is read.
    text = OPS + "pipeline @p(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { %a = @f1(%x) %b = @f1(%a) %c = @f1(%b) %y = @f1(%c) }"
    assert not placed(text, {"a": (0, 64), "b": (64, 64), "c": (0, 64)})
    assert placed(text, {"a": (0, 64), "b": (0, 64)})


def test_memory_is_not_used_again_while_another_stream_reads_it() -> None:
    text = OPS + """pipeline @p(%x: tensor<Nxf32>) -> (%b: tensor<Nxf32>, %y: tensor<Nxf32>) {
      %a = @f1(%x)  %b = @f1(%a)  %c = @f1(%a)  %d = @f1(%c)  %y = @f1(%d) }"""
    # %b and %d run at the same time on two streams; %d may not take the place of %a, which %b may still be reading.
    assert placed(text, {"a": (0, 64), "d": (0, 64)})


def placed(text: str, where: dict[str, tuple[int, int]]) -> bool:
    """Whether the plan with these places (offset, bytes) is refused."""
    module = run_passes(parse(text, "<test>"), parse_passes("resolve,infer-types,assign-streams"), Report())
    nodes = []
    for n in module.pipelines[0].nodes:
        assert isinstance(n, Node)
        assert n.plan is not None
        scoped = tuple(Scoped(e.name, (Setting("arena", Text("cuda:0")), Setting("offset", IntLit(where[e.name][0])), Setting("bytes", IntLit(where[e.name][1]))))
                       for e in n.results if e.name in where)
        nodes.append(replace(n, plan=Section("plan", (*n.plan.entries, *scoped), span=HERE)))
    return refused(module, nodes)


def test_a_user_is_told_what_is_not_ordered_and_a_pass_is_not() -> None:
    text = OPS + """pipeline @p(%x: tensor<Nxf32>) -> (%b: tensor<Nxf32>) {
  %a = @f1(%x) plan { stream = 0 }
  %b = @f1(%a) plan { stream = 1 }
}"""
    with pytest.raises(ProgramError) as caught:
        run_passes(parse(text, "p.plir"), parse_passes("resolve,infer-types,assign-streams,verify-plan"), Report())
    fault = caught.value.diagnostics[0]
    assert (fault.field, fault.span.line) == ("dependency", 5)
    assert "'%a'" in fault.message
    assert fault.notes[0].span.line == 4
    with pytest.raises(ProgramError) as caught:
        run_passes(parse(text.replace(" plan { stream = 1 }", ""), "p.plir"), parse_passes("resolve,infer-types,verify-plan"), Report())
    fault = caught.value.diagnostics[0]
    assert (fault.field, fault.span.line) == ("dependency", 5)
    assert "'%b' has 0 streams" in fault.message
    module = planned(3, 6)
    nodes = [n for n in module.pipelines[0].nodes if isinstance(n, Node)]
    broken = [replace(n, plan=Section("plan", (Setting("stream", IntLit(i)),))) for i, n in enumerate(nodes)]
    with pytest.raises(InternalError):
        refused(module, broken)
