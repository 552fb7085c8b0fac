"""Symbolic bounds: what an index expression lies between, as expressions over dimensions, by eliminating everything else."""
from __future__ import annotations

from collections.abc import Container

from pipelink_ir.ir import linear, polynomial
from pipelink_ir.ir.nodes import Expr
from pipelink_ir.ir.polynomial import ZERO, Atom, Poly, const, of_atom
from pipelink_ir.ir.products import connected
from pipelink_ir.ir.search import inconsistent
from pipelink_ir.ir.system import System

Side = Poly | None

MOST = 3
"""Of bounds that hold together, at most so many are combined by `min` or `max`."""

FAR = 1 << 30
"""Bounds this far out say only that a value is an i32; they are left out where there are others."""

BEYOND = 1 << 40
"""No bound: its own arithmetic could overflow."""

CASES = 10
"""Most cases that are looked at."""

COMPARISONS = 40
"""Most comparisons of bounds."""


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
    search = _Search(target, keep)
    lo, hi = search.split(system)
    return search.simplest(system, lo, 1), search.simplest(system, hi, -1)


def _kept(p: Poly, keep: Container[str]) -> bool:
    return all(a.names is not None and all(n in keep for n in a.names) for m in p.terms for a in m)


def _size(p: Poly) -> int:
    return max(map(abs, p.terms.values()), default=0)


class _Search:
    """Bounds of one target, with the effort that is left."""

    __slots__ = ("cases", "comparisons", "keep", "target")

    def __init__(self, target: Atom, keep: Container[str]) -> None:
        self.target = target
        self.keep = keep
        self.cases = CASES
        self.comparisons = COMPARISONS

    def split(self, system: System) -> tuple[Side, Side]:
        """The bounds without case distinctions, tightened by what holds in every case."""
        self.cases -= 1
        lows, highs = self.project(system)
        lower, upper = self.tightest(system, lows, "max"), self.tightest(system, highs, "min")
        there = connected(system.rows, [of_atom(self.target)])
        atoms = {a for r in there for m in r.terms for a in m}
        clause = next((c for c in reversed(system.clauses) if c.atom in atoms), None)
        if clause is None or self.cases < len(clause.alternatives):
            return lower, upper
        found = []
        for alternative in clause.alternatives:
            branch = system.copy()
            branch.clauses.remove(clause)
            branch.require_all(alternative)
            if not inconsistent(branch, None, [1]):
                found.append(self.split(branch))
        if not found:
            return lower, upper
        low, high = self.weakest(system, [c[0] for c in found], "min"), self.weakest(system, [c[1] for c in found], "max")
        return (self.tightest(system, [b for b in (lower, low) if b is not None], "max"),
                self.tightest(system, [b for b in (upper, high) if b is not None], "min"))

    def project(self, system: System) -> tuple[list[Poly], list[Poly]]:
        """All lower and exclusive upper bounds that elimination gives."""
        target = self.target
        rows, numbers = system.numbered([r for r in system.rows if (target,) in r.terms], target)
        names = {n: m for m, n in numbers.items()}
        kept = {n for n, m in names.items() if m == (target,) or (target not in m and _kept(Poly({m: 1}), self.keep))}
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

    def simplest(self, system: System, side: Side, sign: int) -> Side:
        """A bound that is missing or not linear gives way to a dimension, or 0, that is one too (p floordiv W < H for p < H * W)."""
        if side is not None and all(len(m) < 2 for m in side.terms):
            return side
        names = sorted({a.key for r in system.rows for m in r.terms for a in m if a.kind == "name" and a.key in self.keep})
        target = of_atom(self.target)
        candidates = [ZERO] if sign > 0 else [of_atom(polynomial.name_atom(n)) for n in names[:8]]
        found = [c for c in candidates if self.at_least(system, target if sign > 0 else c, c if sign > 0 else target.shift(1))]
        return self.tightest(system, found, "max" if sign > 0 else "min") if found else side

    def tightest(self, system: System, sides: list[Poly], kind: str) -> Side:
        """The `max` of lower bounds or `min` of upper ones, without those that others dominate."""
        near = [p for p in sides if _size(p) < FAR] or [p for p in sides if _size(p) < BEYOND]
        kept = self._undominated(system, sorted(dict.fromkeys(near), key=lambda p: (len(p.terms), p.key)), kind)
        return polynomial.extremum(kind, kept[:MOST]) if kept else None

    def weakest(self, system: System, sides: list[Side], kind: str) -> Side:
        """The `min` of lower bounds of several cases, the `max` of upper ones; none if a case has none."""
        known = [p for p in sides if p is not None]
        if len(known) < len(sides):
            return None
        return polynomial.extremum(kind, self._undominated(system, list(dict.fromkeys(known)), kind))

    def _undominated(self, system: System, sides: list[Poly], kind: str) -> list[Poly]:
        """Those that decide the `min` or `max` of all, as far as that is found."""
        def decides(p: Poly, q: Poly) -> bool:
            return self.at_least(system, p, q) if kind == "max" else self.at_least(system, q, p)
        kept: list[Poly] = []
        for p in sides:
            if not any(decides(q, p) for q in kept):
                kept = [q for q in kept if not decides(p, q)] + [p]
        return kept

    def at_least(self, system: System, p: Poly, q: Poly) -> bool:
        """Whether p >= q follows."""
        difference = p - q
        if (value := difference.constant) is not None:
            return value >= 0
        if self.comparisons <= 0:
            return False
        self.comparisons -= 1
        branch = system.copy()
        row = (-difference).shift(-1)
        start = len(branch.rows)
        branch.require(row)
        return inconsistent(branch, [row, *branch.rows[start:]], [4])
