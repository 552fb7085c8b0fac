"""Symbolic bounds: what an index expression lies between, as expressions over dimensions, by eliminating everything else."""
from __future__ import annotations

from collections.abc import Container

from pipelink_ir.ir import linear, polynomial
from pipelink_ir.ir.nodes import Expr
from pipelink_ir.ir.polynomial import Atom, Poly, const, of_atom
from pipelink_ir.ir.system import System, inconsistent

Side = Poly | None

MOST = 3
"""Bounds that none dominates are combined by `min` or `max`, at most so many."""

SPLITS = 4
"""Nested case distinctions."""


def bounds(facts: System, expr: Expr, keep: Container[str]) -> tuple[Side, Side]:
    """(lower, exclusive upper) bound of an integer expression."""
    system = facts.copy()
    p = system.translate.integer(expr)
    if p is None or system.false:
        return None, None
    if _kept(p, keep):
        return p, p.shift(1)
    target = polynomial.name_atom("\0")
    row = of_atom(target) - p
    system.require(row)
    system.require(-row)
    return _split(system, target, keep, SPLITS)


def _kept(p: Poly, keep: Container[str]) -> bool:
    return all(a.names is not None and all(n in keep for n in a.names) for m in p.terms for a in m)


def _split(system: System, target: Atom, keep: Container[str], depth: int) -> tuple[Side, Side]:
    """The bounds without case distinctions, tightened by what holds in every case."""
    lows, highs = _project(system, target, keep)
    lower, upper = _tightest(system, lows, "max"), _tightest(system, highs, "min")
    clause = next((c for c in reversed(system.clauses) if c.atom is not None), None)
    if clause is None or not depth:
        return lower, upper
    cases = []
    for alternative in clause.alternatives:
        branch = system.copy()
        branch.clauses.remove(clause)
        branch.require_all(alternative)
        if not inconsistent(branch, None, [2]):
            cases.append(_split(branch, target, keep, depth - 1))
    if not cases:
        return lower, upper
    low, high = _weakest(system, [c[0] for c in cases], "min"), _weakest(system, [c[1] for c in cases], "max")
    return _tightest(system, [b for b in (lower, low) if b is not None], "max"), _tightest(system, [b for b in (upper, high) if b is not None], "min")


def _project(system: System, target: Atom, keep: Container[str]) -> tuple[list[Poly], list[Poly]]:
    """All lower and exclusive upper bounds that elimination gives."""
    rows, numbers = system.numbered([r for r in system.rows if (target,) in r.terms], target)
    names = {n: m for m, n in numbers.items()}
    kept = {n for n, m in names.items() if m == (target,) or (all(a is not target for a in m) and _kept(Poly({m: 1}), keep))}
    found = linear.eliminate(rows, kept)
    if found is None or found.contradiction:
        return [], []
    at = numbers.get((target,))
    lows: list[Poly] = []
    highs: list[Poly] = []
    for vector, constant in found.of.items():
        c = next((c for v, c in vector if v == at), 0)
        rest = Poly({names[v]: k for v, k in vector if v != at}).shift(constant)
        if c > 0:
            lows.append(-polynomial.floordiv(rest, const(c)))
        elif c < 0:
            highs.append(polynomial.floordiv(rest, const(-c)).shift(1))
    return lows, highs


def _tightest(system: System, sides: list[Poly], kind: str) -> Side:
    """The `max` of lower bounds or `min` of upper ones, without those that others dominate."""
    kept: list[Poly] = []
    for p in sorted(dict.fromkeys(sides), key=lambda p: (len(p.terms), p.key)):
        if any(_at_least(system, *((q, p) if kind == "max" else (p, q))) for q in kept):
            continue
        kept = [q for q in kept if not _at_least(system, *((p, q) if kind == "max" else (q, p)))] + [p]
    return polynomial.extremum(kind, kept[:MOST]) if kept else None


def _weakest(system: System, sides: list[Side], kind: str) -> Side:
    """The `min` of lower bounds of several cases, the `max` of upper ones; none if a case has none."""
    known = [p for p in sides if p is not None]
    if len(known) < len(sides):
        return None
    kept: list[Poly] = []
    for p in dict.fromkeys(known):
        if any(_at_least(system, *((p, q) if kind == "min" else (q, p))) for q in kept):
            continue
        kept = [q for q in kept if not _at_least(system, *((q, p) if kind == "min" else (p, q)))] + [p]
    return polynomial.extremum(kind, kept) if len(kept) <= MOST else None


def _at_least(system: System, p: Poly, q: Poly) -> bool:
    """Whether p >= q follows."""
    difference = p - q
    if (value := difference.constant) is not None:
        return value >= 0
    branch = system.copy()
    row = (-difference).shift(-1)
    start = len(branch.rows)
    branch.require(row)
    return inconsistent(branch, [row, *branch.rows[start:]], [4])

