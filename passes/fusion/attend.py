"""Attention that was written as several operators: a product, a softmax of it, a product with that, and whatever is element-wise between them.

Each edge between them is a matrix of scores. Weighed one by one they stay apart, since a product is computed in tiles of its own; together they are what a
GPU has a kernel for that never has the scores in memory (`scheduling/attention.py`). So they are looked for before anything else, and put together if what
they become is found to be attention.
"""
from __future__ import annotations

from collections.abc import Callable

from pipelink_ir.ir.nodes import Reduce
from pipelink_ir.ir.walk import walk
from pipelink_ir.passes.fusion.cost import GPU
from pipelink_ir.passes.fusion.groups import Call, Graph
from pipelink_ir.passes.infer.operator import typed_operator

MOST = 16
"""Operators that one attention is written as."""


def attentions(g: Graph, found: Callable[[list[Call]], bool]) -> list[list[int]]:
    """Calls that are attention together, each list in order, the product with the values last. `found` says whether they are."""
    out: list[list[int]] = []
    taken: set[int] = set()
    for call in g.calls.values():
        group = g.groups.get(call.number)
        if group is None or group.terms.own is not None or group.device is not GPU or not call.facts.product or call.number in taken:
            continue
        inside = _above(g, call, False)
        if inside is None or inside & taken or len(inside) > MOST:
            continue
        numbers = sorted({*inside, call.number})
        if found([g.calls[n] for n in numbers]):
            taken.update(numbers)
            out.append(numbers)
    return out


def _above(g: Graph, call: Call, softmax: bool, depth: int = 0) -> set[int] | None:
    """The calls above one that lead to a softmax, and through it to a product; None if no way does."""
    out: set[int] = set()
    for edge in dict.fromkeys(call.args):
        if edge not in g.maker or g.outside[edge] != 1 or edge in g.waited or depth > MOST:
            continue
        maker = g.calls[g.maker[edge]]
        group = g.groups[maker.number]
        if group.terms.own is not None or group.terms.place != g.groups[call.number].terms.place or len(maker.results) != 1:
            continue
        if maker.facts.product:
            found = set[int]() if softmax else None
        elif maker.facts.fails or maker.facts.recurrent:
            continue
        else:
            found = _above(g, maker, softmax or _has_maximum(maker), depth + 1)
        if found is not None:
            out |= found | {maker.number}
    return out or None


def _has_maximum(call: Call) -> bool:
    op = typed_operator(call.op)
    return any(isinstance(x, Reduce) and x.kind == "max" for t in op.tensors.values() for p in t.pieces for x in walk(p.value))
