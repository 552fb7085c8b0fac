"""The integer prover: what is known in a scope (`Facts`), and whether a condition on indices and dimensions follows from it.

Everything answered is sound: `prove` says True only if the condition holds for all integers that satisfy the facts, `refuted` only if it holds
for none. Effort is bounded; what is not found within it is unknown, which is False from both.
"""
from __future__ import annotations

from collections.abc import Callable, Container, Iterable

from pipelink_ir.ir import polynomial
from pipelink_ir.ir.affine import normal
from pipelink_ir.ir.dtypes import I64
from pipelink_ir.ir.evaluate import CannotEvaluate, evaluate_condition, evaluate_int
from pipelink_ir.ir.nodes import Apply, Dynamic, Expr, IntLit, Name, Read
from pipelink_ir.ir.polynomial import Mono, Poly, of_atom, render
from pipelink_ir.ir.project import bounds
from pipelink_ir.ir.search import inconsistent
from pipelink_ir.ir.system import System

BUDGET = 48
"""How many systems of inequalities one question may try."""


class Facts:
    """What is known in one scope. Immutable: `with_…` return facts that know more. A name stands for one value throughout."""

    __slots__ = ("_given", "_made", "_proved")

    def __init__(self, dims: Iterable[str] = (), define: Callable[[Read], Expr | None] | None = None,
                 interval: Callable[[Read], tuple[int, int] | None] | None = None, reals: Container[str] = ()) -> None:
        """`dims` are >= 0. `define` gives the definition of a local that is read, with the indices put in. `interval` gives the values that data in
        memory can have where that is narrower than the dtype of the read. `reals` are names that are not integers (float attributes, words)."""
        self._made: System | None = System(define, interval, reals)
        for d in dims:
            self._made.require(of_atom(polynomial.name_atom(d)))
        self._given: tuple[Facts, tuple[tuple[Expr, bool], ...]] | None = None
        """What these facts know more than others; put in when somebody asks, since about many places nobody does."""
        self._proved: dict[tuple[Expr, bool], bool] = {}

    @property
    def _system(self) -> System:
        if self._made is None:
            assert self._given is not None
            before, conditions = self._given
            system = before._system.copy()
            try:
                for cond, holds in conditions:
                    system.assume(cond, holds)
                system.settle()
            except RecursionError:
                system = before._system
            self._made, self._given = system, None
        return self._made

    def with_range(self, index: str, lo: Expr | None, hi: Expr) -> Facts:
        """lo <= index < hi; no `lo` is 0. Where the index has a range already, both hold: an inner index of the same name must be renamed before."""
        name = Name(index)
        return self.with_conditions([(Apply(">=", (name, lo if lo is not None else IntLit(0))), True), (Apply("<", (name, hi)), True)])

    def with_condition(self, cond: Expr, holds: bool = True) -> Facts:
        """The condition holds, or does not; what is not understood adds nothing."""
        return self.with_conditions([(cond, holds)])

    def with_conditions(self, conditions: Iterable[tuple[Expr, bool]]) -> Facts:
        """Several conditions, in order."""
        out = object.__new__(Facts)
        out._made, out._given, out._proved = None, (self, tuple(conditions)), {}
        return out

    def impossible(self) -> bool:
        """Whether intervals alone show that no values satisfy the facts."""
        return self._system.false

    def prove(self, cond: Expr) -> bool:
        """Whether the condition holds for all integer values of the names that satisfy the facts."""
        return self._decide(cond, True)

    def refuted(self, cond: Expr) -> bool:
        """Whether the condition holds for no values that satisfy the facts."""
        return self._decide(cond, False)

    def _decide(self, cond: Expr, holds: bool) -> bool:
        try:
            key = cond, holds
            known = self._proved.get(key)
            if known is None:
                known = self._proved[key] = self._system.false or self._follows(cond, holds)
            return known
        except RecursionError:
            return False

    def _follows(self, cond: Expr, holds: bool) -> bool:
        system = self._system.copy()
        start, clauses = len(system.rows), len(system.clauses)
        system.assume(cond, not holds)
        if not system.false and len(system.rows) == start and len(system.clauses) == clauses:
            # nothing new was said: the negation follows from the facts, or the condition was not understood
            return inconsistent(system, None, [BUDGET])
        return inconsistent(system, system.rows[start:], [BUDGET])

    def contradictory(self) -> bool:
        """Whether it is proven that no values satisfy the facts."""
        return inconsistent(self._system.copy(), None, [BUDGET])

    def bounds(self, expr: Expr, keep: Container[str]) -> tuple[Expr | None, Expr | None]:
        """A lower bound and an exclusive upper bound of an integer expression over all values of the facts, over names in `keep`; None if not found."""
        try:
            lo, hi = bounds(self._system, expr, keep)
        except RecursionError:
            return None, None
        dtype = None if expr.dtype is None else I64
        return None if lo is None else render(lo, dtype), None if hi is None else render(hi, dtype)


_NOTHING = Facts()


def equal(a: Expr, b: Expr, facts: Facts | None = None) -> bool:
    """Whether two integer expressions are proven equal for all values of their names."""
    if isinstance(a, Dynamic) or isinstance(b, Dynamic):
        return False
    try:
        return a == b or (facts or _NOTHING).prove(Apply("==", (a, b)))
    except RecursionError:
        return False


def solve(pattern: Expr, actual: Expr, unknown: str, facts: Facts | None = None) -> Expr | None:
    """The value of `unknown` for which pattern == actual, where pattern is a * unknown + b; None if it is not, or a is not proven to divide."""
    try:
        return _solve(pattern, actual, unknown, facts)
    except RecursionError:
        return None


def _solve(pattern: Expr, actual: Expr, unknown: str, facts: Facts | None) -> Expr | None:
    system = (facts or _NOTHING)._system.copy()
    p, target = system.translate.integer(pattern), system.translate.integer(actual)
    if p is None or target is None:
        return None
    x = polynomial.name_atom(unknown)
    factor, offset = _split(p, x)
    if factor is None or not factor.terms:
        return None
    rest = target - offset
    quotient, left = polynomial.divide(rest, factor)
    if not left.terms:
        return render(quotient, actual.dtype)
    if facts is None or not system.positive(factor) or not facts.prove(Apply("==", (Apply("mod", (render(rest), render(factor))), IntLit(0)))):
        return None
    return render(polynomial.floordiv(rest, factor, True), actual.dtype)


def _split(p: Poly, x: polynomial.Atom) -> tuple[Poly | None, Poly]:
    """(a, b) with p = a * x + b; a is None if p is not of that form."""
    factor: dict[Mono, int] = {}
    offset: dict[Mono, int] = {}
    for m, c in p.terms.items():
        inside = sum(1 for a in m if a is x)
        if inside > 1 or any(a is not x and (a.names is None or x.key in a.names) for a in m):
            return None, p
        if inside:
            factor[tuple(a for a in m if a is not x)] = c
        else:
            offset[m] = c
    return Poly(factor), Poly(offset)


__all__ = ["CannotEvaluate", "Facts", "equal", "evaluate_condition", "evaluate_int", "normal", "solve"]
