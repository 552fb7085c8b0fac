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
    """Calls that are attention together, each list in order: the last is the product with the values, or what divides that. `found` says whether they are."""
    out: list[list[int]] = []
    taken: set[int] = set()
    weights = _Weights()
    for call in g.calls.values():
        group = g.groups.get(call.number)
        if group is None or group.terms.own is not None or group.device is not GPU or not call.facts.product or call.number in taken:
            continue
        if call.facts.maximum and weights.among([call]):
            continue    # attention by itself: the products above it make its queries, keys and values
        for root in (call, *_dividing(g, call)):
            inside = _above(g, root, call)
            if inside is None or inside & taken or len(inside) > MOST:
                continue
            numbers = sorted({*inside, root.number})
            calls = [g.calls[n] for n in numbers]
            if weights.among(calls) and found(calls):
                taken.update(numbers)
                out.append(numbers)
                break
    return out


def _dividing(g: Graph, product: Call) -> list[Call]:
    """The one call that reads a product, which may divide by the sums of the weights."""
    edge = product.results[0]
    readers = g.readers.get(edge, [])
    if len(product.results) != 1 or len(readers) != 1 or g.outside[edge] != 1 or edge in g.waited:
        return []
    reader = g.calls[readers[0]]
    return [reader] if not reader.facts.product and len(reader.results) == 1 and _may(g, reader, product) else []


def _may(g: Graph, maker: Call, reader: Call) -> bool:
    """Whether a call can be a part of what another one is a part of."""
    one, other = g.groups[maker.number], g.groups[reader.number]
    return one.terms.own is None and one.terms.place == other.terms.place and len(maker.results) == 1 and not (
        not maker.facts.product and (maker.facts.fails or maker.facts.recurrent))


def _above(g: Graph, root: Call, through: Call) -> set[int] | None:
    """The calls on ways from `root` upwards that cross a maximum and end at a product (other than `through`), as far as nobody else reads what they make; None
    if there is no such way."""
    near: dict[int, list[int]] = {}
    stack = [root.number]
    while stack:
        call = g.calls[stack.pop()]
        makers = [g.maker[e] for e in dict.fromkeys(call.args) if e in g.maker and e not in g.waited and _may(g, g.calls[g.maker[e]], call)]
        near[call.number] = makers
        if len(near) > 2 * MOST:
            return None
        stack += [m for m in makers if m not in near and (not g.calls[m].facts.product or m == through.number)]
    while True:
        inside = _between(g, near, root.number)
        shared = {n for n in inside if n != root.number and _read_elsewhere(g, n, inside)}
        if not shared:
            return inside - {root.number} or None
        near = {n: [m for m in makers if m not in shared] for n, makers in near.items() if n not in shared}


def _read_elsewhere(g: Graph, number: int, inside: set[int]) -> bool:
    edge = g.calls[number].results[0]
    return sum(r in inside for r in g.readers.get(edge, ())) != g.outside[edge]


def _between(g: Graph, near: dict[int, list[int]], root: int) -> set[int]:
    """What lies on ways from the root to a product that cross a maximum."""
    ends: dict[int, set[bool]] = {}

    def above(n: int) -> set[bool]:
        """Whether ways from a call up to a product cross a maximum: of each way that there is."""
        if n not in ends:
            if n not in near:
                ends[n] = {False}
            else:
                ends[n] = set()
                crossed = g.calls[n].facts.maximum
                ends[n] = {crossed or x for m in near[n] for x in above(m)}
        return ends[n]

    out: set[int] = set()
    seen: set[tuple[int, bool]] = set()
    stack = [(root, False)]
    while stack:
        n, crossed = stack.pop()
        if (n, crossed) in seen:
            continue
        seen.add((n, crossed))
        if any(crossed or x for x in above(n)):
            out.add(n)
            stack += [(m, crossed or (n in near and g.calls[n].facts.maximum)) for m in near.get(n, ())]
    return out


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
