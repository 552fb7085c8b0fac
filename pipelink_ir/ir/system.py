"""What is known in one scope, as the prover computes with it: inequalities between polynomials, bounds of atoms, and case distinctions.

`assume` adds a condition; `ir/search.py` tries to show that nothing satisfies all that was assumed. A fact is proven by assuming its negation. The
steps: the definitions of atoms (`d*q <= e <= d*q + d - 1` for q = e floordiv d, …) become rows when an atom first occurs; products of rows with
factors that are not negative are added where nonlinear monomials occur; the rest is linear. Where that is not enough, alternatives are tried.
"""
from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass

from pipelink_ir.ir import linear, polynomial
from pipelink_ir.ir.intervals import UNBOUNDED, Interval
from pipelink_ir.ir.nodes import Apply, Cast, Const, Expr, Read
from pipelink_ir.ir.polynomial import Atom, Mono, Poly, of_atom, without
from pipelink_ir.ir.products import connected, products, with_equations
from pipelink_ir.ir.translate import COMPARISONS, NEGATED, Translator

Definition = Callable[[Read], Expr | None]
DataInterval = Callable[[Read], tuple[int, int] | None]

Item = Poly | tuple[Expr, bool]
"""A polynomial that is not negative, or a condition with whether it holds."""

Alternative = tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Clause:
    """At least one of the alternatives holds. `atom` is what it defines, None for a condition that was assumed."""

    alternatives: tuple[Alternative, ...]
    atom: Atom | None = None


LIMITS = 4
"""Limits that are tried for a quotient."""

PROPAGATE = 40
"""Steps of bound propagation after a new row."""


class System:
    """The state. Mutable while it is built; `copy` is cheap."""

    __slots__ = ("_noted", "bounds", "clauses", "define", "false", "interval", "reals", "rows", "seen", "split", "translate", "values")

    def __init__(self, define: Definition | None = None, interval: DataInterval | None = None, reals: Container[str] = ()) -> None:
        self.rows: list[Poly] = []
        """Each is >= 0."""
        self.clauses: list[Clause] = []
        self.bounds: dict[Atom, Interval] = {}
        self.values: dict[Atom, Poly] = {}
        """Names that an equation makes superfluous."""
        self.seen: dict[Poly | Atom, None] = {}
        """Rows that are there and atoms whose definitions are."""
        self.split: tuple[Atom, ...] = ()
        """Divisions whose remainders are told apart."""
        self.false = False
        self.define = define
        self.interval = interval
        self.reals = reals
        self.translate = Translator(self)
        self._noted: set[Atom] = set()

    def copy(self) -> System:
        """An independent copy."""
        out = System(self.define, self.interval, self.reals)
        out.rows, out.clauses = list(self.rows), list(self.clauses)
        out.bounds, out.values, out.seen = dict(self.bounds), dict(self.values), dict(self.seen)
        out.split, out.false, out._noted = self.split, self.false, set(self._noted)
        return out

    # ------------------------------------------------------------------------------------------------- what a translation asks

    def bound(self, atom: Atom) -> Interval:
        """The constant bounds of an atom."""
        return self.bounds.get(atom, UNBOUNDED)

    def note(self, atom: Atom, lo: int, hi: int) -> None:
        """Record the interval that an atom has by its dtype."""
        if atom not in self._noted:
            self._noted.add(atom)
            self.require(of_atom(atom).shift(-lo))
            self.require((-of_atom(atom)).shift(hi))

    def value(self, atom: Atom) -> Poly:
        """What a name stands for."""
        return self.values.get(atom) or of_atom(atom)

    def positive(self, p: Poly) -> bool:
        """Whether p >= 1, by intervals or by linear reasoning over what is there."""
        lo, hi = self.translate.range(p)
        if lo is not None and lo >= 1:
            return True
        if hi is not None and hi < 1:
            return False
        return self.excludes(-p)

    def within(self, p: Poly, end: Poly) -> bool:
        """Whether 0 <= p < end, by intervals where they decide, by linear reasoning for a symbolic end."""
        lo, hi = self.translate.range(p)
        d = end.constant
        if d is not None:
            return lo is not None and lo >= 0 and hi is not None and hi < d
        return ((lo is not None and lo >= 0) or self.excludes((-p).shift(-1))) and self.excludes(p - end)

    def decide(self, condition: Expr) -> bool | None:
        """Whether a condition is settled by constants and intervals alone."""
        if isinstance(condition, Const):
            return {"true": True, "false": False}.get(condition.name)
        if not isinstance(condition, Apply) or condition.fn not in ("<", "<=", ">", ">=", "=="):
            return None
        p = self.difference(condition)
        if p is None:
            return None
        lo, hi = self.translate.range(p)
        if condition.fn == "==":
            return True if lo == hi == 0 else False if (lo is not None and lo > 0) or (hi is not None and hi < 0) else None
        return True if lo is not None and lo >= 0 else False if hi is not None and hi < 0 else None

    def difference(self, comparison: Apply) -> Poly | None:
        """The polynomial that is >= 0 where an order holds, or 0 where `==` does; None if it does not compare integers."""
        a, b = (self.translate.integer(x) for x in comparison.args)
        if a is None or b is None:
            return None
        if comparison.fn in ("<", "<="):
            a, b = b, a
        return (a - b).shift(-1) if comparison.fn in ("<", ">") else a - b

    # ------------------------------------------------------------------------------------------------- conditions

    def assume(self, condition: Expr, holds: bool = True) -> None:
        """Add that a condition holds, or does not."""
        while isinstance(condition, Apply) and condition.fn == "not":
            condition, holds = condition.args[0], not holds
        if isinstance(condition, Const) and condition.name in ("true", "false"):
            self.false = self.false or (condition.name == "true") is not holds
        elif isinstance(condition, Apply) and condition.fn in ("and", "or"):
            self._assume_logic(condition, holds)
        elif isinstance(condition, Apply) and condition.fn == "select":
            c, a, b = condition.args
            self.require_one([((c, True), (a, holds)), ((c, False), (b, holds))])
        elif isinstance(condition, Apply) and condition.fn in COMPARISONS:
            self._assume_comparison(condition, holds)
        elif isinstance(condition, Cast) and condition.to == "bool":
            self._assume_cast(condition, holds)
        else:
            self._assume_atom(condition, holds)

    def _assume_logic(self, condition: Apply, holds: bool) -> None:
        parts: list[Expr] = []
        node: Expr = condition
        while isinstance(node, Apply) and node.fn == condition.fn:
            parts.append(node.args[1])
            node = node.args[0]
        parts.append(node)
        parts.reverse()
        decisive = condition.fn == "or"
        if holds is not decisive:
            for part in parts:
                self.assume(part, holds)
            return
        # the n-th is the first that decides
        self.require_one([tuple([(p, not decisive) for p in parts[:n]] + [(parts[n], decisive)]) for n in range(len(parts))])

    def _assume_comparison(self, condition: Apply, holds: bool) -> None:
        a, b = condition.args
        if self.translate.is_bool(a) or self.translate.is_bool(b):
            if condition.fn in ("==", "!="):
                same = holds is (condition.fn == "==")
                self.require_one([((a, True), (b, same)), ((a, False), (b, not same))])
            return
        fn = condition.fn if holds else NEGATED[condition.fn]
        p = self.difference(Apply(fn, condition.args))
        if p is None:
            # floats: only the very same comparison is known to hold or not to
            self._require_truth(condition, holds)
        elif fn == "==":
            self.require_zero(p)
        elif fn == "!=":
            self.require_one([(p.shift(-1),), ((-p).shift(-1),)])
        else:
            self.require(p)

    def _assume_cast(self, condition: Cast, holds: bool) -> None:
        if self.translate.is_bool(condition.arg):
            self.assume(condition.arg, holds)
            return
        p = self.translate.integer(condition.arg)
        if p is None:
            self._require_truth(condition, holds)
        elif holds:
            self.require_one([(p.shift(-1),), ((-p).shift(-1),)])
        else:
            self.require_zero(p)

    def _assume_atom(self, condition: Expr, holds: bool) -> None:
        if condition.dtype is not None and condition.dtype.kind != "bool":
            return
        definition = self.translate.definition(condition) if isinstance(condition, Read) else None
        if definition is None:
            self._require_truth(condition, holds)
            return
        self.translate.depth += 1
        try:
            self.assume(definition, holds)
        finally:
            self.translate.depth -= 1

    def _require_truth(self, condition: Expr, holds: bool) -> None:
        truth = self.translate.truth(condition)
        self.require(truth.shift(-1) if holds else -truth)

    # ------------------------------------------------------------------------------------------------- rows and clauses

    def require(self, p: Poly) -> None:
        """Add p >= 0."""
        value = p.constant
        if value is not None:
            self.false = self.false or value < 0
            return
        if p in self.seen:
            return
        self.seen[p] = None
        self.rows.append(p)
        for a in p.atoms():
            self._define_atom(a)
        self._propagate(p)

    def require_zero(self, p: Poly) -> None:
        """Add p == 0; a name that it gives is replaced from now on."""
        p = polynomial.substitute(p, self.values)
        self.require(p)
        self.require(-p)
        for m, c in p.terms.items():
            if len(m) == 1 and c in (1, -1) and m[0].kind == "name" and _solvable(p, m[0]):
                value = (p - Poly({m: c})).times(-c)
                self.values = {a: polynomial.substitute(v, {m[0]: value}) for a, v in self.values.items()}
                self.values[m[0]] = value
                return

    def require_one(self, alternatives: Iterable[Alternative], atom: Atom | None = None) -> None:
        """Add that one of the alternatives holds. Those that are excluded already are left out."""
        left = [a for a in alternatives if not any(self._excluded(i) for i in a)]
        if not left:
            self.false = True
        elif len(left) == 1:
            self.require_all(left[0])
        else:
            self.clauses.append(Clause(tuple(left), atom))

    def require_all(self, items: Alternative) -> None:
        """Add all items of an alternative."""
        for item in items:
            if isinstance(item, Poly):
                self.require(item)
            else:
                self.assume(*item)

    def settle(self) -> None:
        """Drop alternatives that intervals exclude by now; the only one left is a fact."""
        changed = True
        while changed and not self.false:
            changed = False
            for clause in list(self.clauses):
                left = tuple(a for a in clause.alternatives if not any(self._out_of_range(i) for i in a))
                if len(left) == len(clause.alternatives):
                    continue
                self.clauses.remove(clause)
                if len(left) > 1:
                    self.clauses.append(Clause(left, clause.atom))
                    continue
                changed = True
                self.false = self.false or not left
                self.require_all(left[0] if left else ())

    def _excluded(self, item: Item) -> bool:
        return self._out_of_range(item) or (isinstance(item, Poly) and self.excludes(item))

    def _out_of_range(self, item: Item) -> bool:
        if isinstance(item, Poly):
            hi = self.translate.range(item)[1]
            return hi is not None and hi < 0
        known = self.decide(item[0])
        return known is not None and known is not item[1]

    def _define_atom(self, atom: Atom) -> None:
        """What holds for an atom by what it is."""
        if atom in self.seen:
            return
        self.seen[atom] = None
        me = of_atom(atom)
        if atom.kind in ("floordiv", "mod"):
            self._define_division(atom, me)
        elif atom.kind in ("min", "max"):
            sign = 1 if atom.kind == "min" else -1
            for arg in atom.args:
                self.require((arg - me).times(sign))
            self.require_one([((me - arg).times(sign),) for arg in atom.args], atom)
        elif atom.kind == "select":
            assert atom.expr is not None
            a, b = atom.args
            self.require_one([((atom.expr, True), me - a, a - me), ((atom.expr, False), me - b, b - me)], atom)
        lo, hi = self.translate.range(me)
        if lo is not None and atom.kind != "name":
            self.require(me.shift(-lo))
        if hi is not None and atom.kind != "name":
            self.require((-me).shift(hi))

    def _define_division(self, atom: Atom, me: Poly) -> None:
        a, b = atom.args
        if b.constant is not None or self.positive(b):
            for row in _division(atom.kind, me, a, b):
                self.require(row)
            if atom.kind == "floordiv" and b.constant is None:
                self._limit_quotient(me, b)
            return
        up = (b.shift(-1), *_division(atom.kind, me, a, b))
        zero = (b, -b, me, -me)
        down = ((-b).shift(-1), *_division(atom.kind, me, -a, -b, -1))
        self.require_one([up, zero, down], atom)

    def _limit_quotient(self, me: Poly, b: Poly) -> None:
        """(p floordiv W) < H where p < H * W: what a product with the divisor has besides it may be a limit."""
        divisor = next(iter(b.terms))
        if len(b.terms) > 1:
            return
        others = [rest for m in dict.fromkeys(m for r in self.rows for m in r.terms if len(m) > len(divisor))
                  if (rest := without(m, divisor)) is not None and not any(a in me.atoms() for a in rest)]
        for rest in others[:LIMITS]:
            limit = Poly({rest: 1})
            if self.excludes(me - limit):
                self.require((limit - me).shift(-1))

    def _propagate(self, row: Poly) -> None:
        """Tighten the bounds of the row's atoms, and of those that depend on them, for a few steps."""
        todo = [row]
        for _ in range(PROPAGATE):
            if not todo or self.false:
                return
            changed = self._tighten(todo.pop())
            if changed:
                todo += [r for r in self.rows if r not in todo and any(a in changed for m in r.terms for a in m)]

    def _tighten(self, row: Poly) -> set[Atom]:
        highs = {m: self.translate.range(Poly({m: c}))[1] for m, c in row.terms.items()}
        missing = [m for m, h in highs.items() if h is None]
        if len(missing) > 1:
            return set()
        changed: set[Atom] = set()
        total = sum(h for h in highs.values() if h is not None)
        for m in missing or row.terms:
            rest = total - (highs[m] or 0)
            c = row.terms[m]
            if len(m) != 1:
                if m and c > 0 > rest:
                    changed |= self._positive_factors(m)
                continue
            lo, hi = self.bounds.get(m[0], UNBOUNDED)
            # c * atom + rest >= 0
            if c > 0 and (lo is None or -(rest // c) > lo):
                lo = -(rest // c)
            elif c < 0 and (hi is None or rest // -c < hi):
                hi = rest // -c
            else:
                continue
            if abs(lo or 0) < 1 << 64 and abs(hi or 0) < 1 << 64:
                self.bounds[m[0]] = lo, hi
                changed.add(m[0])
                self.false = self.false or (lo is not None and hi is not None and lo > hi)
        return changed

    def _positive_factors(self, m: Mono) -> set[Atom]:
        """Where a product is at least 1 and no factor is negative, each factor is at least 1."""
        found = {a: self.bounds.get(a, UNBOUNDED) for a in m}
        if any(lo is None or lo < 0 for lo, _ in found.values()):
            return set()
        zero = {a for a, (lo, _) in found.items() if lo == 0}
        for a in zero:
            self.bounds[a] = 1, found[a][1]
            self.rows.append(of_atom(a).shift(-1))
        return zero

    # ------------------------------------------------------------------------------------------------- linear reasoning

    def excludes(self, p: Poly) -> bool:
        """Whether p >= 0 contradicts the rows, without trying alternatives."""
        return linear.infeasible(self.numbered([p])[0])

    def numbered(self, focus: list[Poly] | None, target: Atom | None = None) -> tuple[linear.Rows, dict[Mono, int]]:
        """The rows that are connected with those in focus (all rows for None), with products, as linear rows over numbered monomials. `target` is
        not solved for."""
        rows = with_equations(list(self.rows) if focus is None else connected(self.rows, focus), target)
        rows = rows + products(rows, lambda p: self.translate.range(p)[0])
        numbers: dict[Mono, int] = {}
        out = linear.Rows()
        for row in rows:
            out.add({numbers.setdefault(m, len(numbers)): c for m, c in row.terms.items() if m}, row.terms.get((), 0))
        return out, numbers


def _division(kind: str, me: Poly, a: Poly, b: Poly, sign: int = 1) -> list[Poly]:
    """What holds for `me`, a floordiv b or (times sign) a mod b, where b >= 1."""
    if kind == "floordiv":
        rest = a - b * me
        return [rest, (b - rest).shift(-1)]
    total = a.times(sign) - b.times(sign) * polynomial.floordiv(a, b, True) - me
    return [me.times(sign), (b - me.times(sign)).shift(-1), total, -total]


def _solvable(p: Poly, atom: Atom) -> bool:
    """Whether p == 0 can be solved for a name: it stands in one term only, and within no argument."""
    for m in p.terms:
        if m != (atom,) and any(a is atom or a.names is None or atom.key in a.names for a in m):
            return False
    return True
