"""The order in which `fuse` meets nodes: one that follows from what a pipeline computes, so that what becomes one operator does not depend on the order in
which independent nodes are written."""
from __future__ import annotations

from collections.abc import Iterator, Mapping

from pipelink_ir.ir.nodes import Alias, Edge, Node, Operator, Pipeline
from pipelink_ir.passes.fusion.terms import taken_over


def in_canonical_order(p: Pipeline, operators: Mapping[str, Operator]) -> tuple[Node | Alias, ...]:
    """The nodes of a pipeline, each right behind what it needs, in the order in which the results (as declared) and the operands (as written) come to them;
    what no result needs follows. Second names stand behind what they name.

    Where a node may take over memory of the caller, the order as written says who reads that memory before, and stays."""
    maker = {e.name: n for n in p.nodes for e in (n.results if isinstance(n, Node) else (n.name,))}
    if any(not isinstance(maker.get(e), Node) for n in p.nodes if isinstance(n, Node) for e in _taken(n, operators[n.op])):
        return p.nodes
    done: set[str] = set()
    return tuple(n for e in (*(r.name for r in p.results), *maker) for n in _needed(e, maker, done))


def _taken(n: Node, op: Operator) -> list[str]:
    args = [a.name for a in n.args if isinstance(a, Edge)]
    return [args[k] for k in taken_over(op)]


def _needed(edge: str, maker: Mapping[str, Node | Alias], done: set[str]) -> Iterator[Node | Alias]:
    """What makes an edge, behind all that it needs, without what is `done`."""
    stack = [(edge, False)]
    while stack:
        e, ready = stack.pop()
        n = maker.get(e)
        if n is None or e in done:
            continue
        if ready:
            done.update(r.name for r in n.results) if isinstance(n, Node) else done.add(e)
            yield n
            continue
        stack.append((e, True))
        before = (*(a.name for a in n.args if isinstance(a, Edge)), *(a.name for a in n.after)) if isinstance(n, Node) else (n.of.name,)
        stack += [(b, False) for b in reversed(before)]
