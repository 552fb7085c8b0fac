"""Which keys a query sees: conditions on two indices, as bounds of the one where they are some.

`j <= i + c`, `j < %length[b]`, `j >= i - w` bound the key `j` by the query `i`, or by what both do not change; whole tiles then lie on one side. Any other
condition is asked of each element.
"""
from __future__ import annotations

from dataclasses import dataclass

from pipelink_ir.ir.nodes import Apply, Cast, IntLit, Reduce
from pipelink_ir.passes.scheduling.counts import ranges_of
from pipelink_ir.passes.scheduling.views import Leaf, Looker, Seen, View


@dataclass(frozen=True, slots=True, eq=False)
class Sum:
    """constant + sum of factor * view, none of which depends on the two indices."""

    constant: int
    terms: tuple[tuple[int, View | Leaf], ...]


class NoBound(Exception):
    """A range of keys ends at something else than a sum."""


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """`upper`: key < rows * query + bound; `lower`: key >= rows * query + bound; `other`: what `view` says of each element."""

    kind: str
    view: View | None = None
    rows: int = 0
    bound: Sum = Sum(0, ())
    by_row: bool = False
    """Whether it depends on the query."""
    own: bool = False
    """Whether it is an end of the range itself, rather than part of the filter."""


def conditions(look: Looker, v: View, key: Leaf, row: Leaf) -> tuple[Condition, ...]:
    """The conditions on a key of a reduction over keys: its range, and the parts of its filter."""
    x = v.expr
    assert isinstance(x, Reduce)
    r = ranges_of(x)[0]
    out: list[Condition] = []
    if r.lo is not None:
        out += _bounds(look, View(r.lo, v.env), row, "lower")
    out += _bounds(look, View(r.hi, v.env), row, "upper")
    where = look.opened(v, key)[1]
    if where is not None:
        out += [_condition(look, c, key, row) for c in _both(look, where)]
    return tuple(out)


def _both(look: Looker, v: View) -> list[View]:
    """The parts of a conjunction."""
    found = look.of(v)
    assert isinstance(found, View)
    if isinstance(found.expr, Apply) and found.expr.fn == "and":
        return [c for p in look.parts(found) for c in _both(look, p)]
    return [found]


def _bounds(look: Looker, v: View, row: Leaf, kind: str) -> list[Condition]:
    """Both ends of a range: the least of several ends bounds like each of them."""
    seen = look.of(v)
    if isinstance(seen, View) and isinstance(seen.expr, Apply) and seen.expr.fn == ("min" if kind == "upper" else "max"):
        return [c for p in look.parts(seen) for c in _bounds(look, p, row, kind)]
    found = _linear(look, v, (row,))
    if found is None or found[0][0] not in (0, 1):
        raise NoBound
    return [Condition(kind, None, found[0][0], found[1], found[0][0] != 0, True)]


def _condition(look: Looker, v: View, key: Leaf, row: Leaf) -> Condition:
    """One part of a filter."""
    other = Condition("other", v, by_row=row in look.leaves(v))
    x = v.expr
    if not isinstance(x, Apply) or x.fn not in ("<", "<=", ">", ">="):
        return other
    a, b = look.parts(v)
    if x.fn in (">", ">="):
        a, b = b, a
    # a < b, or a <= b: a - b + (0 or -1) < 0
    one, two = _linear(look, a, (key, row)), _linear(look, b, (key, row))
    if one is None or two is None:
        return other
    ck, cr = one[0][0] - two[0][0], one[0][1] - two[0][1]
    rest = _minus(one[1], two[1])
    rest = Sum(rest.constant - (x.fn in ("<=", ">=")), rest.terms)
    if ck == 1 and -cr in (0, 1):                        # key < -cr * row - rest
        return Condition("upper", None, -cr, _minus(Sum(0, ()), rest), cr != 0)
    if ck == -1 and cr in (0, 1):                        # key > cr * row + rest
        return Condition("lower", None, cr, Sum(rest.constant + 1, rest.terms), cr != 0)
    return other


def _minus(a: Sum, b: Sum) -> Sum:
    return Sum(a.constant - b.constant, (*a.terms, *((-f, t) for f, t in b.terms)))


def _linear(look: Looker, v: Seen, leaves: tuple[Leaf, ...]) -> tuple[tuple[int, ...], Sum] | None:
    """How often each leaf stands in an integer, and the rest; None where that is no sum."""
    v = look.of(v)
    if isinstance(v, Leaf):
        return tuple(int(v == leaf) for leaf in leaves), Sum(0, () if v in leaves else ((1, v),))
    x = v.expr
    if x.dtype is None or not x.dtype.is_int:
        return None
    if isinstance(x, IntLit):
        return (0,) * len(leaves), Sum(x.value, ())
    if isinstance(x, Cast) and x.arg.dtype is not None and x.arg.dtype.is_int and x.implicit and x.dtype.bits >= x.arg.dtype.bits:
        return _linear(look, look.parts(v)[0], leaves)
    if isinstance(x, Apply) and x.fn in ("+", "-", "neg"):
        parts = [_linear(look, p, leaves) for p in look.parts(v)]
        if all(p is not None for p in parts):
            found = [p for p in parts if p is not None]
            signs = (-1,) if x.fn == "neg" else (1, -1 if x.fn == "-" else 1)
            counts = tuple(sum(s * p[0][n] for s, p in zip(signs, found, strict=True)) for n in range(len(leaves)))
            terms = tuple((s * f, t) for s, p in zip(signs, found, strict=True) for f, t in p[1].terms)
            return counts, Sum(sum(s * p[1].constant for s, p in zip(signs, found, strict=True)), terms)
    return None if look.leaves(v) & set(leaves) else ((0,) * len(leaves), Sum(0, ((1, v),)))
