"""Intervals of polynomials from the constant bounds of their atoms."""
from __future__ import annotations

from collections.abc import Callable

from pipelink_ir.ir.polynomial import Atom, Mono, Poly

Interval = tuple[int | None, int | None]
"""Smallest and largest value, None where there is no bound."""

UNBOUNDED: Interval = (None, None)

Bound = Callable[[Atom], Interval]
"""What is known of an atom."""


def interval_of(p: Poly, bound: Bound, limit: int | None = None) -> Interval:
    """An interval that holds p. `limit` bounds the names of which nothing is known."""
    lo: int | None = 0
    hi: int | None = 0
    for m, c in p.terms.items():
        low, high = _product(m, bound, limit)
        if c < 0:
            low, high = high, low
        lo = None if lo is None or low is None else lo + c * low
        hi = None if hi is None or high is None else hi + c * high
        if lo is None and hi is None:
            return UNBOUNDED
    return lo, hi


def _product(m: Mono, bound: Bound, limit: int | None) -> Interval:
    lo: int | None = 1
    hi: int | None = 1
    for a in m:
        low, high = _of_atom(a, bound, limit)
        lo, hi = _times(lo, hi, low, high)
    return lo, hi


def _of_atom(a: Atom, bound: Bound, limit: int | None) -> Interval:
    lo, hi = bound(a)
    if lo is not None and hi is not None:
        return lo, hi
    low, high = UNBOUNDED
    if a.kind == "name" and limit is not None:
        low, high = -limit, limit
    elif a.kind in ("min", "max", "select"):
        low, high = _of_extremum(a.kind, [interval_of(p, bound, limit) for p in a.args])
    elif a.kind in ("floordiv", "mod"):
        low, high = _of_division(a, bound, limit)
    return low if lo is None else lo if low is None else max(lo, low), high if hi is None else hi if high is None else min(hi, high)


def _of_division(a: Atom, bound: Bound, limit: int | None) -> Interval:
    (lo, hi), (low, high) = interval_of(a.args[0], bound, limit), interval_of(a.args[1], bound, limit)
    if low is None or low < 0:
        return UNBOUNDED
    if a.kind == "mod":
        return 0, None if high is None else max(high - 1, 0)
    d = a.args[1].constant
    if d:
        return None if lo is None else lo // d, None if hi is None else hi // d
    return None if lo is None else min(lo, 0), None if hi is None else max(hi, 0)


def _times(a: int | None, b: int | None, c: int | None, d: int | None) -> Interval:
    if a is not None and b is not None and c is not None and d is not None:
        corners = (a * c, a * d, b * c, b * d)
        return min(corners), max(corners)
    if a is not None and a >= 0 and c is not None and c >= 0:
        return a * c, None if b is None or d is None else b * d
    return UNBOUNDED


def _of_extremum(kind: str, ranges: list[Interval]) -> Interval:
    lows = [r[0] for r in ranges]
    highs = [r[1] for r in ranges]
    known_low, known_high = [v for v in lows if v is not None], [v for v in highs if v is not None]
    every_low, every_high = len(known_low) == len(lows), len(known_high) == len(highs)
    if kind == "min":
        return min(known_low) if every_low else None, min(known_high) if known_high else None
    if kind == "max":
        return max(known_low) if known_low else None, max(known_high) if every_high else None
    return min(known_low) if every_low else None, max(known_high) if every_high else None
