"""Rows `p >= 0` made ready for linear reasoning: those that matter, with equations used, and with the products that nonlinear monomials need.

`h * W + w < H * W` follows from h < H and w < W only after h < H was multiplied by W. Rows are multiplied by what is left of a nonlinear monomial that
occurs when one of their own atoms is taken out, if that cannot be negative.
"""
from __future__ import annotations

from collections.abc import Callable

from pipelink_ir.ir.polynomial import Atom, Mono, Poly, substitute

MOST = 90
"""Most products that are added."""

EQUATIONS = 8
"""Most equations that are put in."""


def connected(rows: list[Poly], focus: list[Poly]) -> list[Poly]:
    """The rows in focus and those that share atoms with them, also indirectly."""
    out = list(focus)
    atoms = {a for r in focus for m in r.terms for a in m}
    left = rows
    while left:
        away = []
        before = len(out)
        for r in left:
            there = r.atoms()
            if there.isdisjoint(atoms):
                away.append(r)
            else:
                atoms |= there
                out.append(r)
        if len(out) == before:
            break
        left = away
    return out


def with_equations(rows: list[Poly], target: Atom | None) -> list[Poly]:
    """Where nonlinear monomials occur: atoms that an equation gives are replaced, also within products. `target` stays."""
    if not any(len(m) > 1 for r in rows for m in r.terms):
        return rows
    for _ in range(EQUATIONS):
        found = _equation(rows, target)
        if found is None:
            return rows
        values = dict((found,))
        rows = [r for r in (substitute(r, values) for r in rows) if r.terms]
    return rows


def _equation(rows: list[Poly], target: Atom | None) -> tuple[Atom, Poly] | None:
    """An atom and its value, from two rows that are opposite."""
    there = set(rows)
    for r in rows:
        if -r not in there:
            continue
        for m, c in r.terms.items():
            if len(m) == 1 and c in (1, -1) and m[0] is not target and not any(m[0] in n for n in r.terms if n != m):
                return m[0], (r - Poly({m: c})).times(-c)
    return None


def products(rows: list[Poly], lowest: Callable[[Poly], int | None]) -> list[Poly]:
    """Rows times factors that are not negative, as far as they speak of nonlinear monomials that occur. `lowest` gives a lower bound."""
    wanted = [m for m in dict.fromkeys(m for r in rows for m in r.terms) if len(m) > 1]
    if not wanted:
        return []
    degree = max(len(m) for m in wanted)
    seen = set(wanted)
    out: dict[Poly, None] = {}
    while wanted and len(out) < MOST:
        m = wanted.pop(0)
        for atom, rest in _splits(m):
            lows = [lowest(Poly({(a,): 1})) for a in rest]
            if any(lo is None or lo < 0 for lo in lows):
                continue
            # of a single factor W >= 1, W - 1 is the stronger one
            factor = Poly({rest: 1}).shift(-(lows[0] or 0)) if len(rest) == 1 else Poly({rest: 1})
            for row in rows:
                if (atom,) not in row.terms:
                    continue
                found = row * factor
                if found in out or any(len(n) > degree for n in found.terms):
                    continue
                out[found] = None
                for n in found.terms:
                    if len(n) > 1 and n not in seen:
                        seen.add(n)
                        wanted.append(n)
    for row in _by_divisors(rows, lowest):
        out[row] = None
    return list(out)


def _splits(m: Mono) -> list[tuple[Atom, Mono]]:
    return [(a, m[:i] + m[i + 1:]) for i, a in enumerate(m) if a not in m[:i]]


def _by_divisors(rows: list[Poly], lowest: Callable[[Poly], int | None]) -> list[Poly]:
    """For q = a floordiv b, b of several terms: rows that speak of q, times b."""
    out = []
    for atom in dict.fromkeys(a for r in rows for m in r.terms for a in m):
        if atom.kind != "floordiv" or len(atom.args[1].terms) < 2:
            continue
        lo = lowest(atom.args[1])
        if (lo is not None and lo >= 0) or any(r == atom.args[1].shift(-1) for r in rows):
            out += [r * atom.args[1] for r in rows if (atom,) in r.terms and len(r.terms) <= 4]
    return out[:MOST // 3]
