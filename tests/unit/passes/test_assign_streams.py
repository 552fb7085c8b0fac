"""Streams and events: every dependency is kept, by nothing that could be left out. Orders are worked out here from the plan alone."""
from __future__ import annotations

import random

import pytest

from pipelink_ir.grammar import parse, print_module
from pipelink_ir.ir.diagnostics import Report
from pipelink_ir.ir.nodes import IntLit, Items, Module, Node, Setting
from pipelink_ir.passes.manager import parse_passes, run_passes

OPS = """op @f1(%a: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { TERMS compute { %y[n] = %a[n] + 1 } }
op @f2(%a: tensor<Nxf32>, %b: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { TERMS compute { %y[n] = %a[n] + %b[n] } }
"""


def plan_of(n: Node) -> dict[str, list[int]]:
    out: dict[str, list[int]] = {}
    for s in n.plan.entries if n.plan is not None else ():
        assert isinstance(s, Setting)
        out[s.key] = [v.value for v in (s.value.items if isinstance(s.value, Items) else (s.value,)) if isinstance(v, IntLit)]
    return out


def assigned(text: str, streams: int = 4) -> Module:
    return run_passes(parse(text, "<test>"), parse_passes(f"resolve,infer-types,assign-streams{{max_streams={streams}}}"), Report())


def ordered(nodes: list[Node], plans: list[dict[str, list[int]]]) -> list[set[int]]:
    """For each node the nodes that are done before it begins: behind each other on a stream, or over events. Launch order is that of the list."""
    recorded = {e: i for i, p in enumerate(plans) for e in p.get("record", [])}
    before: list[set[int]] = []
    last: dict[int, int] = {}
    for i, p in enumerate(plans):
        direct = {recorded[e] for e in p.get("wait", [])}
        if p["stream"][0] in last:
            direct.add(last[p["stream"][0]])
        assert all(j < i for j in direct), "a node waits for one that is launched later"
        before.append(set().union(direct, *(before[j] for j in direct)))
        last[p["stream"][0]] = i
    return before


def needs(nodes: list[Node]) -> list[set[int]]:
    made = {e.name: i for i, n in enumerate(nodes) for e in n.results}
    return [{made[e.name] for e in (*n.args, *n.after) if e.name in made} for n in nodes]  # type: ignore[union-attr]


def nodes_of(module: Module) -> list[Node]:
    return [n for n in module.pipelines[0].nodes if isinstance(n, Node)]


def random_program(seed: int, size: int, terms: str = "") -> str:
    rng = random.Random(seed)
    lines = []
    for i in range(size):
        names = ["%x", *(f"%e{j}" for j in range(max(0, i - 6), i))]
        if rng.random() < 0.5:
            lines.append(f"%e{i} = @f1({rng.choice(names)})")
        else:
            lines.append(f"%e{i} = @f2({rng.choice(names)}, {rng.choice(names)})")
        if i > 2 and rng.random() < 0.15:
            lines[-1] += f" after %e{rng.randrange(i)}"
    rng.shuffle(lines)
    results = ", ".join(f"%e{i}: tensor<Nxf32>" for i in range(size))
    return OPS.replace("TERMS", terms) + f"pipeline @p(%x: tensor<Nxf32>) -> ({results}) {{\n" + "\n".join(lines) + "\n}"


@pytest.mark.parametrize("seed", range(40))
def test_every_dependency_is_kept_and_no_event_can_be_left_out(seed: int) -> None:
    nodes = nodes_of(assigned(random_program(seed, 12), 1 + seed % 5))
    plans = [plan_of(n) for n in nodes]
    assert max(p["stream"][0] for p in plans) < 1 + seed % 5
    want, have = needs(nodes), ordered(nodes, plans)
    for i, before in enumerate(want):
        assert before <= have[i]
    for i, p in enumerate(plans):
        for e in p.get("wait", []):
            fewer = [dict(q) for q in plans]
            fewer[i]["wait"] = [x for x in p["wait"] if x != e]
            less = ordered(nodes, fewer)
            assert any(not before <= less[k] for k, before in enumerate(want)), f"node {i} waits for event {e} in vain"
    waited = {e for p in plans for e in p.get("wait", [])}
    assert {e for p in plans for e in p.get("record", [])} == waited


def test_a_chain_is_one_stream_without_events_and_two_chains_are_two() -> None:
    chain = OPS.replace("TERMS", "") + "pipeline @p(%x: tensor<Nxf32>) -> (%c: tensor<Nxf32>) { %a = @f1(%x) %b = @f1(%a) %c = @f1(%b) }"
    assert [plan_of(n) for n in nodes_of(assigned(chain))] == [{"stream": [0]}] * 3
    two = OPS.replace("TERMS", "") + """pipeline @p(%x: tensor<Nxf32>) -> (%c: tensor<Nxf32>, %d: tensor<Nxf32>) {
      %a = @f1(%x) %b = @f1(%x) %c = @f1(%a) %d = @f1(%b) }"""
    plans = [plan_of(n) for n in nodes_of(assigned(two))]
    assert sorted(p["stream"][0] for p in plans) == [0, 0, 1, 1]
    assert not any("wait" in p for p in plans)


def test_a_diamond_has_one_event_each_way() -> None:
    text = OPS.replace("TERMS", "") + """pipeline @p(%x: tensor<Nxf32>) -> (%d: tensor<Nxf32>) {
      %a = @f1(%x) %b = @f1(%a) %c = @f1(%a) %d = @f2(%b, %c) }"""
    plans = [plan_of(n) for n in nodes_of(assigned(text))]
    assert sum(len(p.get("wait", [])) for p in plans) == 2
    assert len({p["stream"][0] for p in plans}) == 2


def widest(have: list[set[int]], members: list[int]) -> int:
    """The most members that may be in flight at once: the largest set none of which is ordered with another, by trying all."""
    best = 0
    todo: list[tuple[int, list[int]]] = [(0, [])]
    while todo:
        k, chosen = todo.pop()
        best = max(best, len(chosen))
        for m in range(k, len(members)):
            if all(members[m] not in have[c] and c not in have[members[m]] for c in chosen):
                todo.append((m + 1, [*chosen, members[m]]))
    return best


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_max_streams_of_an_operator_bounds_its_nodes_in_flight(limit: int) -> None:
    reached = set()
    for seed in range(8):
        nodes = nodes_of(assigned(random_program(seed, 14, f"execution {{ max_streams = {limit} }}"), 8))
        have = ordered(nodes, [plan_of(n) for n in nodes])
        for op in ("f1", "f2"):
            reached.add(widest(have, [i for i, n in enumerate(nodes) if n.op.startswith(op)]))
    assert max(reached) == limit


def test_a_limit_that_is_kept_anyway_orders_nothing() -> None:
    for seed in range(8):
        free = nodes_of(assigned(random_program(seed, 12), 12))
        most = max(widest(ordered(free, [plan_of(n) for n in free]), [i for i, n in enumerate(free) if n.op.startswith(op)]) for op in ("f1", "f2"))
        kept = nodes_of(assigned(random_program(seed, 12, f"execution {{ max_streams = {most} }}"), 12))
        assert [plan_of(n) for n in kept] == [plan_of(n) for n in free]


def closure(want: list[set[int]]) -> list[set[int]]:
    out: list[set[int]] = []
    for before in want:
        out.append(set().union(before, *(out[j] for j in before)))
    return out


@pytest.mark.parametrize("seed", range(60))
def test_streams_are_the_fewest_that_lose_no_concurrency(seed: int) -> None:
    size = 4 + seed % 9
    nodes = nodes_of(assigned(random_program(100 + seed, size), size))
    plans = [plan_of(n) for n in nodes]
    must = closure(needs(nodes))
    # Nothing is ordered that need not be, and the largest set of nodes that may run at once needs as many streams.
    assert ordered(nodes, plans) == must
    width = widest(must, list(range(size)))
    assert len({p["stream"][0] for p in plans}) == width
    # One stream less has to order something, and does with as many streams as there may be.
    if width > 1:
        fewer = nodes_of(assigned(random_program(100 + seed, size), width - 1))
        have = ordered(fewer, [plan_of(n) for n in fewer])
        assert len({plan_of(n)["stream"][0] for n in fewer}) == width - 1
        assert all(a <= b for a, b in zip(closure(needs(fewer)), have, strict=True))


def test_the_critical_path_goes_first() -> None:
    big = """op @slow(%a: tensor<Nxf32>) -> (%y: tensor<8192x8192xf32>) { compute { %y[i, j] = max[n < N](%a[n]) } }
op @last(%a: tensor<8192x8192xf32>) -> (%y: tensor<f32>) { compute { %y = max[i < 8192, j < 8192](%a[i, j]) } }
"""
    text = OPS.replace("TERMS", "") + big + """pipeline @p(%x: tensor<Nxf32>) -> (%c: tensor<Nxf32>, %s: tensor<f32>) {
      %a = @f1(%x)  %b = @f1(%a)  %c = @f1(%b)  %t = @slow(%x)  %s = @last(%t) }"""
    assert nodes_of(assigned(text))[0].results[0].name == "t"
    # With one stream there is no path that could wait for another: the order of the text stays.
    assert [n.results[0].name for n in nodes_of(assigned(text, 1))] == ["a", "b", "c", "t", "s"]


def test_events_of_a_partial_plan_stay() -> None:
    text = OPS.replace("TERMS", "") + """pipeline @p(%x: tensor<Nxf32>) -> (%b: tensor<Nxf32>, %c: tensor<Nxf32>, %d: tensor<Nxf32>) {
      %b = @f1(%x) plan { wait = [2] }  %a = @f1(%x) plan { record = 2 }  %c = @f1(%x)  %d = @f2(%b, %c) }"""
    nodes = nodes_of(assigned(text))
    plans = {n.results[0].name: plan_of(n) for n in nodes}
    assert (plans["a"]["record"], plans["b"]["wait"]) == ([2], [2])
    have = ordered(nodes, [plan_of(n) for n in nodes])
    names = [n.results[0].name for n in nodes]
    assert names.index("a") in have[names.index("b")]
    assert {names.index("b"), names.index("c")} <= have[names.index("d")]


def test_second_names_stay_behind_what_they_name() -> None:
    text = OPS.replace("TERMS", "") + """pipeline @p(%x: tensor<Nxf32>) -> (%c: tensor<Nxf32>, %e: tensor<Nxf32>, %i: tensor<Nxf32>) {
      %i = %x  %a = @f1(%i)  %b = %a  %d = %b  %c = @f1(%d)  %e = %d }"""
    module = assigned(text)
    assert [(n.results[0].name if isinstance(n, Node) else n.name.name) for n in module.pipelines[0].nodes] == ["i", "a", "b", "d", "e", "c"]
    assert print_module(assigned(print_module(module))) == print_module(module)


def test_async_false_orders_a_node_with_all_others() -> None:
    text = OPS.replace("TERMS", "") + """op @own(%a: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { execution { async = false } compute { %y[n] = 2 * %a[n] } }
    pipeline @p(%x: tensor<Nxf32>) -> (%a: tensor<Nxf32>, %b: tensor<Nxf32>, %c: tensor<Nxf32>, %d: tensor<Nxf32>) {
      %a = @f1(%x) %b = @own(%x) %c = @f1(%x) %d = @f1(%c) }"""
    nodes = nodes_of(assigned(text))
    have = ordered(nodes, [plan_of(n) for n in nodes])
    own = next(i for i, n in enumerate(nodes) if n.op.startswith("own"))
    for i in range(len(nodes)):
        assert i == own or i in have[own] or own in have[i]


def test_event_sync_records_an_event_behind_each_node() -> None:
    nodes = nodes_of(assigned(random_program(3, 6, "execution { event_sync = true }"), 1))
    events = [plan_of(n)["record"][0] for n in nodes]
    assert sorted(events) == [1, 2, 3, 4, 5, 6]


def test_a_whole_plan_is_kept_and_a_plan_reads_back() -> None:
    text = OPS.replace("TERMS", "") + """pipeline @p(%x: tensor<Nxf32>) -> (%b: tensor<Nxf32>) {
      %a = @f1(%x) plan { stream = 3, record = 9 }
      %b = @f1(%a) plan { stream = 1, wait = [9] } }"""
    assert [plan_of(n) for n in nodes_of(assigned(text))] == [{"stream": [3], "record": [9]}, {"stream": [1], "wait": [9]}]
    written = print_module(assigned(random_program(5, 10)))
    assert print_module(assigned(written)) == written


def test_a_partial_plan_is_completed() -> None:
    text = OPS.replace("TERMS", "") + """pipeline @p(%x: tensor<Nxf32>) -> (%c: tensor<Nxf32>) {
      %a = @f1(%x) plan { stream = 2 }  %b = @f1(%x)  %c = @f2(%a, %b) }"""
    nodes = nodes_of(assigned(text))
    plans = [plan_of(n) for n in nodes]
    assert [p["stream"][0] for n, p in zip(nodes, plans, strict=True) if n.results[0].name == "a"] == [2]
    for before, have in zip(needs(nodes), ordered(nodes, plans), strict=True):
        assert before <= have


def test_devices_have_streams_of_their_own() -> None:
    text = OPS.replace("TERMS", "") + """pipeline @p(%x: tensor<Nxf32>) -> (%c: tensor<Nxf32>) {
      %a = @f1(%x) on cuda:0  %b = @f1(%a) on cuda:1  %c = @f2(%a, %b) on cuda:0 }"""
    plans = [plan_of(n) for n in nodes_of(assigned(text))]
    assert [p["stream"][0] for p in plans] == [0, 0, 0]
    assert sum(len(p.get("wait", [])) for p in plans) == 2
