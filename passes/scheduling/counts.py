"""What is known of the ranges of a reduction before anything is emitted."""
from __future__ import annotations

from math import prod

from pipelink_ir.ir.evaluate import CannotEvaluate, evaluate_int
from pipelink_ir.ir.nodes import Expr, IntLit, Name, Range, Reduce
from pipelink_ir.ir.walk import children

UNROLL = 32
"""Reductions of at most so many terms are written out."""
GUESS = 256.0
"""What an extent that is not known is taken for where costs are compared."""


def known(x: Expr | None) -> int | None:
    """The value of an integer expression without names; a range without a beginning begins at 0."""
    if x is None:
        return 0
    if isinstance(x, IntLit):
        return x.value
    try:
        return evaluate_int(x, {})
    except CannotEvaluate:
        return None


def ranges_of(x: Reduce) -> tuple[Range, ...]:
    """The ranges, which inference has made plain ones."""
    out = []
    for r in x.ranges:
        assert isinstance(r, Range)
        out.append(r)
    return tuple(out)


def bounds(r: Range) -> tuple[int, int] | None:
    """Constant bounds of a range."""
    lo, hi = known(r.lo), known(r.hi)
    return None if lo is None or hi is None else (lo, hi)


def count(r: Range) -> int | None:
    """A constant number of terms."""
    b = bounds(r)
    return None if b is None else max(0, b[1] - b[0])


def terms(x: Reduce) -> int | None:
    """The constant number of terms of a reduction, filtered ones included."""
    counts = [count(r) for r in ranges_of(x)]
    known_counts = [c for c in counts if c is not None]
    return prod(known_counts) if len(known_counts) == len(counts) else None


def unrolled(x: Reduce) -> bool:
    """Whether the terms of a reduction are written out. Ranked ones only for a constant rank without a filter: that takes a network of comparisons."""
    n = terms(x)
    if n is None or n > UNROLL:
        return False
    return x.kind not in ("nth", "argnth") or (x.where is None and n > 0 and known(x.rank) is not None)


def guess(r: Range) -> float:
    """About how many terms a range has."""
    n = count(r)
    return GUESS if n is None else float(n)


def names(x: Expr) -> frozenset[str]:
    """The names in an expression that it does not bind itself."""
    if isinstance(x, Name):
        return frozenset((x.name,))
    if isinstance(x, Reduce):
        bound: set[str] = set()
        out: set[str] = set()
        for r in ranges_of(x):
            out |= frozenset[str]().union(*map(names, children(r))) - bound
            bound.add(r.index)
        for part in (x.where, x.body):
            if part is not None:
                out |= names(part) - bound
        return frozenset(out | (names(x.rank) if x.rank is not None else frozenset()))
    return frozenset[str]().union(*map(names, children(x)))
