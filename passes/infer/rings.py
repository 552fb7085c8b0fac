"""Graph operators that are made of each other: no such ring can be unfolded."""
from __future__ import annotations

from collections.abc import Mapping

from pipelink_ir.ir.diagnostics import Note, Report
from pipelink_ir.ir.nodes import Node, Operator
from pipelink_ir.passes.scopes import find_cycle


def check_rings(operators: Mapping[str, Operator], report: Report) -> None:
    """Report a ring of graph operators at its first node in the text, with notes at the others. Names are resolved."""
    graphs = [o for o in operators.values() if o.graph is not None]
    place = {o.name: k for k, o in enumerate(graphs)}
    needs = [{place[n.op] for n in _nodes(o) if n.op in place} for o in graphs]
    ring = find_cycle(range(len(graphs)), needs)
    if not ring:
        return
    calls = [next(n for n in _nodes(graphs[a]) if place.get(n.op) == b) for a, b in zip(ring, [*ring[1:], ring[0]], strict=True)]
    calls.sort(key=lambda n: n.span.start)
    names = " and ".join(f"'@{graphs[k].name}'" for k in sorted(ring))
    if len(ring) == 1:
        report.error("cycle", calls[0].op_span, f"{names} is made of itself", [Note("it is declared here", graphs[ring[0]].signature)],
                     "break the ring: a graph cannot call itself; a loop over time is a recurrence inside one operator")
        return
    report.error("cycle", calls[0].op_span, f"{names} are made of each other", [Note("and back from here", n.op_span) for n in calls[1:]],
                 "break the ring: one of the graphs has to be made of something else")


def inner_first(operators: Mapping[str, Operator]) -> list[Operator]:
    """The graph operators in an order in which each stands behind those that it is made of. There is no ring."""
    out: dict[str, Operator] = {}
    left = [o for o in operators.values() if o.graph is not None][::-1]
    while left:
        op = left[-1]
        before = [operators[n.op] for n in _nodes(op) if n.op not in out and operators[n.op].graph is not None]
        if op.name in out or not before:
            out.setdefault(op.name, left.pop())
        left += before if op.name not in out else []
    return list(out.values())


def _nodes(op: Operator) -> list[Node]:
    assert op.graph is not None
    return [n for n in op.graph.nodes if isinstance(n, Node)]
