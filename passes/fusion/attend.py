"""Attention that was written as several operators: a product, a softmax of it, a product with that, and whatever is element-wise between them.

Each edge between them is a matrix of scores. Weighed one by one they stay apart, since a product is computed in tiles of its own; together they are what a
GPU has a kernel for that never has the scores in memory (`scheduling/attention.py`). So they are looked for before anything else, and put together if what
they become is found to be attention.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from pipelink_ir.ir.nodes import Apply, Cast, Expr, Operator, Read, Reduce
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
    weights = _Weights()
    for call in g.calls.values():
        group = g.groups.get(call.number)
        if group is None or group.terms.own is not None or group.device is not GPU or not call.facts.product or call.number in taken:
            continue
        inside = _above(g, call, False)
        if inside is None or inside & taken or len(inside) > MOST:
            continue
        numbers = sorted({*inside, call.number})
        calls = [g.calls[n] for n in numbers]
        if weights.among(calls) and found(calls):
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


# ------------------------------------------------------------------------------------------------------------------- weighted sums


@dataclass(frozen=True, slots=True)
class _Factors:
    """What a value is a product of, as far as it can be told: how many factors, whether an exponential is among them, and which operands may bring more."""

    count: int = 1
    exponential: bool = False
    operands: frozenset[str] = frozenset()

    @staticmethod
    def product(parts: Iterable[_Factors]) -> _Factors:
        found = list(parts)
        return _Factors(sum(f.count for f in found), any(f.exponential for f in found), frozenset().union(*(f.operands for f in found)))


@dataclass(slots=True)
class _Weights:
    """Which calls have a sum of products with an exponential, without which nothing is attention: most candidates are refused here, before they are written
    as one operator and typed. What it finds is never less than there is."""

    known: dict[str, tuple[dict[str, _Factors], list[_Factors]]] = field(default_factory=dict)
    """Of each operator: its tensors, and the bodies of its sums."""

    def among(self, calls: list[Call]) -> bool:
        """Whether one of some calls has such a sum; what the others do not make is no exponential."""
        made: dict[str, _Factors] = {}
        for call in calls:
            tensors, bodies = self._of(call.op)
            edges = {o.name: made[e] for o, e in zip(call.op.operands, call.args, strict=True) if e in made}
            if any(f.exponential and f.count > 1 for f in (_with(f, edges) for f in bodies)):
                return True
            made |= {e: _with(tensors[r.name], edges) for r, e in zip(call.op.results, call.results, strict=True)}
        return False

    def _of(self, op: Operator) -> tuple[dict[str, _Factors], list[_Factors]]:
        found = self.known.get(op.name)
        if found is None:
            typed = typed_operator(op)
            tensors: dict[str, _Factors] = {o.name: _Factors(operands=frozenset((o.name,))) for o in op.operands}
            for name in (n for group in typed.order for n in group.tensors):
                tensors[name] = _Factors.product(_factors(p.value, tensors) for p in typed.tensors[name].pieces)
            bodies = [_factors(x.body, tensors) for t in typed.tensors.values() for p in t.pieces for x in walk(p.value)
                      if isinstance(x, Reduce) and x.kind == "sum"]
            found = self.known[op.name] = tensors, bodies
        return found


def _with(f: _Factors, edges: dict[str, _Factors]) -> _Factors:
    """With what the makers of operands say."""
    return _Factors.product([_Factors(f.count, f.exponential), *(edges[o] for o in f.operands if o in edges)]) if f.operands else f


def _factors(x: Expr, tensors: dict[str, _Factors]) -> _Factors:
    if isinstance(x, Read):
        return tensors.get(x.tensor, _Factors(2, True))
    if isinstance(x, Cast):
        return _factors(x.arg, tensors)
    if isinstance(x, Apply) and x.fn in ("*", "/"):
        return _Factors.product(_factors(a, tensors) for a in x.args)
    if isinstance(x, Apply) and x.fn == "select":
        return _Factors.product(_factors(a, tensors) for a in x.args[1:])
    return _Factors(1, isinstance(x, Apply) and x.fn == "exp")
