"""Events of a plan that is written by hand: whoever waits for one must be waited for by nobody on the way to it."""
from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipelink_ir.ir.diagnostics import Note, Report
from pipelink_ir.ir.nodes import Alias, IntLit, Items, Node, Section, Setting
from pipelink_ir.passes.scopes import find_cycle, needs_of


def check_events(nodes: Sequence[Node | Alias], report: Report) -> None:
    """Report a `wait` for an event that nobody records, or that is recorded by a node which itself needs the waiting one."""
    recorded: dict[int, int] = {}
    for k, n in enumerate(nodes):
        for s in _plan(n, "record"):
            recorded.update(dict.fromkeys(_events(s), k))
    waits = [(k, s, v) for k, n in enumerate(nodes) for s in _plan(n, "wait") for v in _events(s)]
    for _, s, v in waits:
        if v not in recorded:
            known = ", ".join(map(str, sorted(recorded))) or "none"
            report.error("dependency", s.span, f"nobody records event {v}", (), f"recorded are {known}; add 'record = {v}' to the node it waits for")
    if not waits:
        return
    needs = needs_of(nodes)
    for k, _, v in waits:
        if v in recorded:
            needs[k].add(recorded[v])
    ring = find_cycle(range(len(nodes)), needs)
    for k, s, v in waits:
        if k in ring and recorded.get(v) in ring:
            report.error("dependency", s.span, f"event {v} can never happen: the node that records it itself waits for this one",
                         [Note("it is recorded here" if j == recorded[v] else "which needs this", nodes[j].span) for j in ring if j != k],
                         f"drop 'wait = [{v}]', or record the event earlier")
            return


def _events(s: Setting) -> Iterator[int]:
    for v in s.value.items if isinstance(s.value, Items) else (s.value,):
        if isinstance(v, IntLit):
            yield v.value


def _plan(n: Node | Alias, key: str) -> list[Setting]:
    plan: Section | None = n.plan if isinstance(n, Node) else None
    return [s for s in plan.entries if isinstance(s, Setting) and s.key == key] if plan is not None else []
