"""Linear inequalities over the integers: Fourier-Motzkin elimination with the constants rounded to integers.

A row says that sum(coefficient * variable) + constant >= 0. `infeasible` answers True only if no integers satisfy all rows; False may mean that
the effort was not enough. Rows of one coefficient vector are kept once, with the tightest constant.
"""
from __future__ import annotations

from collections.abc import Container
from math import gcd

Vector = tuple[tuple[int, int], ...]
"""(variable, coefficient), sorted by variable, no zeros."""

LIMIT = 160
"""Most rows that one step of an elimination may leave before it is given up."""

EFFORT = 4000
"""Most rows that all steps of an elimination may handle together."""


class Rows:
    """A set of rows. `contradiction` is set as soon as two rows exclude each other."""

    __slots__ = ("contradiction", "of")

    def __init__(self) -> None:
        self.of: dict[Vector, int] = {}
        self.contradiction = False

    def add(self, coefficients: dict[int, int], constant: int) -> None:
        """Add one row, divided by the greatest common divisor of its coefficients and rounded."""
        vector = sorted([(v, c) for v, c in coefficients.items() if c])
        if not vector:
            self.contradiction = self.contradiction or constant < 0
            return
        g = gcd(*[c for _, c in vector])
        if g > 1:
            vector = [(v, c // g) for v, c in vector]
            constant //= g
        key = tuple(vector)
        old = self.of.get(key)
        if old is not None and old <= constant:
            return
        self.of[key] = constant
        opposite = self.of.get(tuple([(v, -c) for v, c in vector]))
        if opposite is not None and opposite + constant < 0:
            self.contradiction = True

    def equality(self, keep: Container[int] = ()) -> tuple[Vector, int, int] | None:
        """(vector, constant, variable) of a pair of rows that say `== 0`, with a variable of coefficient 1 or -1 that is not kept."""
        for vector, constant in self.of.items():
            if self.of.get(tuple([(v, -c) for v, c in vector])) == -constant:
                for v, c in vector:
                    if c in (1, -1) and v not in keep:
                        return vector, constant, v
        return None


def infeasible(rows: Rows) -> bool:
    """Whether the rows are proven to have no common integer point."""
    result = eliminate(rows, ())
    return result is not None and result.contradiction


def eliminate(rows: Rows, keep: Container[int]) -> Rows | None:
    """The rows that follow for the variables in `keep`; None when the effort is too great."""
    effort = EFFORT
    while not rows.contradiction:
        effort -= len(rows.of)
        if effort < 0:
            return None
        if (found := rows.equality(keep)) is not None:
            rows = _substitute(rows, *found)
            continue
        variable = _cheapest(rows, keep)
        if variable is None:
            return rows
        following = _eliminate_one(rows, variable)
        if following is None:
            return None
        rows = following
    return rows


def _substitute(rows: Rows, vector: Vector, constant: int, variable: int) -> Rows:
    """Use `vector + constant == 0` to remove a variable whose coefficient there is 1 or -1."""
    sign = dict(vector)[variable]
    out = Rows()
    changed: list[tuple[Vector, int, int]] = []
    for other, k in rows.of.items():
        factor = next((c for v, c in other if v == variable), 0)
        if factor:
            changed.append((other, k, factor))
        else:
            out.of[other] = k
    for other, k, factor in changed:
        total = dict(other)
        for v, c in vector:
            total[v] = total.get(v, 0) - factor * sign * c
        out.add(total, k - factor * sign * constant)
    return out


def _cheapest(rows: Rows, keep: Container[int]) -> int | None:
    """The variable whose elimination adds the fewest rows."""
    above: dict[int, int] = {}
    below: dict[int, int] = {}
    for vector in rows.of:
        for v, c in vector:
            if c > 0:
                below[v] = below.get(v, 0) + 1
            else:
                above[v] = above.get(v, 0) + 1
    best, cost = None, 0
    for v in below.keys() | above.keys():
        if v in keep:
            continue
        p, n = below.get(v, 0), above.get(v, 0)
        price = p * n - p - n
        if best is None or price < cost or (price == cost and v < best):
            best, cost = v, price
    return best


def _eliminate_one(rows: Rows, variable: int) -> Rows | None:
    out = Rows()
    lower: list[tuple[int, Vector, int]] = []
    upper: list[tuple[int, Vector, int]] = []
    for vector, constant in rows.of.items():
        for v, c in vector:
            if v == variable:
                (lower if c > 0 else upper).append((abs(c), vector, constant))
                break
        else:
            out.of[vector] = constant
    if len(lower) * len(upper) + len(out.of) > LIMIT:
        return None
    for a, low, k in lower:
        for b, high, m in upper:
            g = gcd(a, b)
            p, q = b // g, a // g
            total = {v: c * p for v, c in low}
            for v, c in high:
                total[v] = total.get(v, 0) + c * q
            out.add(total, k * p + m * q)
            if out.contradiction:
                return out
    return out

