"""From expressions to polynomials: what an index expression is as a mathematical integer.

Index variables and dimensions are integers without bounds. Values that come from data are i32 or i64 and wrap: arithmetic on them is taken as exact
only where their intervals show that it cannot overflow; otherwise the result is an opaque value of its dtype.
"""
from __future__ import annotations

from collections.abc import Callable, Container
from typing import Protocol

from pipelink_ir.ir import polynomial
from pipelink_ir.ir.dtypes import DTYPES, I32, I64, DType
from pipelink_ir.ir.intervals import Interval, interval_of
from pipelink_ir.ir.nodes import Apply, Cast, Const, Expr, IntLit, Name, Read, Reduce
from pipelink_ir.ir.polynomial import Atom, Poly, const, of_atom

INDEX_LIMIT = 1 << 47
"""No index or dimension exceeds this in absolute value: used only to show that i64 arithmetic on data does not wrap."""

COMPARISONS = frozenset(("==", "!=", "<", "<=", ">", ">="))
NEGATED = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
LOGIC = frozenset(("and", "or", "not"))


TERMS = 256
"""Most terms of a product that is multiplied out."""


class Scope(Protocol):
    """What a translation asks of its surroundings."""

    def bound(self, atom: Atom) -> Interval:
        """What is known of an atom."""

    def note(self, atom: Atom, lo: int, hi: int) -> None:
        """Record the interval that an atom has by its dtype."""

    def value(self, atom: Atom) -> Poly:
        """What a name stands for: itself, or what an equation says it is."""

    def positive(self, p: Poly) -> bool:
        """Whether p >= 1 is proven."""

    def within(self, p: Poly, end: Poly) -> bool:
        """Whether 0 <= p < end is proven."""

    def decide(self, condition: Expr) -> bool | None:
        """Whether a condition is known to hold or known not to, None otherwise."""

    @property
    def define(self) -> Callable[[Read], Expr | None] | None:
        """The definitions of locals."""

    @property
    def interval(self) -> Callable[[Read], tuple[int, int] | None] | None:
        """Intervals of data."""

    @property
    def reals(self) -> Container[str]:
        """Names that are not integers."""


DEPTH = 12
"""How many definitions of locals are expanded within each other."""


class Translator:
    """Translates under one scope."""

    __slots__ = ("_reads", "_widths", "depth", "scope", "sources")

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.depth = 0
        self.sources: dict[Atom, Expr] = {}
        """The expression that an atom stood for here: equal ones share an atom, whatever their spans and annotations."""
        self._reads: dict[Read, Poly | None] = {}
        self._widths: dict[Read, DType | None] = {}

    # ------------------------------------------------------------------------------------------------------------ entry points

    def integer(self, expr: Expr) -> Poly | None:
        """The polynomial of an integer expression; None if the expression is not known to be an integer."""
        if isinstance(expr, IntLit):
            return const(expr.value) if expr.dtype is None or expr.dtype.is_int else None
        if isinstance(expr, Name):
            return self._name(expr)
        if expr.dtype is not None and not expr.dtype.is_int:
            return None
        if isinstance(expr, Apply):
            return self._apply(expr)
        if isinstance(expr, Cast):
            return self._cast(expr)
        if isinstance(expr, Read):
            return self._read(expr)
        if isinstance(expr, Reduce) and expr.dtype is not None:
            return self._opaque(expr, expr.dtype)
        return None

    def is_bool(self, expr: Expr) -> bool:
        """Whether an expression is a condition."""
        if expr.dtype is not None:
            return expr.dtype.kind == "bool"
        if isinstance(expr, Const):
            return expr.name in ("true", "false")
        if isinstance(expr, Apply):
            return expr.fn in COMPARISONS or expr.fn in LOGIC or expr.fn in ("isnan", "isinf") or (expr.fn == "select" and self.is_bool(expr.args[1]))
        return (isinstance(expr, Cast) and expr.to == "bool") or (isinstance(expr, Reduce) and expr.kind in ("any", "all"))

    def definition(self, read: Read) -> Expr | None:
        """The definition of a local that is read, unless too many are nested."""
        if self.scope.define is None or self.depth >= DEPTH:
            return None
        return self.scope.define(read)

    def truth(self, expr: Expr) -> Poly:
        """A bool of which nothing is understood, as an integer 0 or 1."""
        return of_atom(self._valued(expr, 0, 1))

    def _valued(self, expr: Expr, lo: int, hi: int) -> Atom:
        """The atom of a value in lo..hi of which nothing else is known."""
        atom = polynomial.value_atom(self._plain(expr) if isinstance(expr, Read) else expr)
        self.sources.setdefault(atom, expr)
        self.scope.note(atom, lo, hi)
        return atom

    # ------------------------------------------------------------------------------------------------------------ kinds of expression

    def _name(self, expr: Name) -> Poly | None:
        if expr.name in self.scope.reals or (expr.dtype is not None and not expr.dtype.is_int):
            return None
        atom = polynomial.name_atom(expr.name)
        if expr.dtype is not None and expr.dtype is not I64:
            self.sources.setdefault(atom, expr)
            self.scope.note(atom, expr.dtype.lowest, expr.dtype.highest)
        return self.scope.value(atom)

    def _read(self, expr: Read) -> Poly | None:
        if expr not in self._reads:
            self._reads[expr] = self._read_local(expr) or self._read_data(expr)
        return self._reads[expr]

    def _read_local(self, expr: Read) -> Poly | None:
        definition = self.definition(expr)
        if definition is None:
            return None
        self.depth += 1
        try:
            return self.integer(definition)
        finally:
            self.depth -= 1

    def _read_data(self, expr: Read) -> Poly | None:
        known = self.scope.interval(expr) if self.scope.interval is not None else None
        if known is None and expr.dtype is not None:
            known = expr.dtype.lowest, expr.dtype.highest
        return None if known is None else of_atom(self._valued(expr, *known))

    def _plain(self, expr: Read) -> Read:
        """The read with its indices in canonical form, so that equal places are one value."""
        indices = []
        for i in expr.indices:
            p = self.integer(i)
            indices.append(i if p is None else polynomial.render(p))
        return Read(expr.tensor, tuple(indices))

    def _opaque(self, expr: Expr, dtype: DType) -> Poly | None:
        return of_atom(self._valued(expr, dtype.lowest, dtype.highest)) if dtype.is_int else None

    def _select_atom(self, condition: Expr, a: Poly, b: Poly) -> Poly:
        p = polynomial.select(condition, a, b)
        for atom in p.atoms():
            if atom.kind == "select":
                self.sources.setdefault(atom, condition)
        return p

    def _cast(self, expr: Cast) -> Poly | None:
        to = DTYPES.get(expr.to)
        if to is None or not to.is_int:
            return None
        if self.is_bool(expr.arg):
            return self._select_atom(expr.arg, polynomial.ONE, polynomial.ZERO)
        p = self.integer(expr.arg)
        if p is None:
            return self._opaque(expr, to)
        if to is I64:
            return p
        if expr.saturate:
            return self._extreme("min", [self._extreme("max", [p, const(to.lowest)]), const(to.highest)])
        lo, hi = self.range(p)
        if lo is not None and hi is not None and to.lowest <= lo and hi <= to.highest:
            return p
        return self._opaque(expr, to)

    def _apply(self, expr: Apply) -> Poly | None:
        if expr.fn in ("+", "-"):
            return self._sum(expr)
        handler = _HANDLERS.get(expr.fn)
        if handler is None:
            return None
        p = handler(self, expr)
        return p if p is None or expr.fn not in _OVERFLOWING else self._wrapped(expr, p, self.width(expr))

    def _sum(self, expr: Apply) -> Poly | None:
        """Sums are walked along their left spine without recursion: generated ones are long."""
        spine: list[Apply] = []
        node: Expr = expr
        while isinstance(node, Apply) and node.fn in ("+", "-") and (node.dtype is None or node.dtype.is_int):
            spine.append(node)
            node = node.args[0]
        total, width = self.integer(node), self.width(node)
        for part in reversed(spine):
            right = self.integer(part.args[1])
            if total is None or right is None:
                return None
            width = self._joined(part, (width, self.width(part.args[1])))
            total = self._wrapped(part, total.plus(right, 1 if part.fn == "+" else -1), width)
        return total

    def _args(self, expr: Apply) -> list[Poly] | None:
        out = []
        for a in expr.args:
            p = self.integer(a)
            if p is None:
                return None
            out.append(p)
        return out

    def _wrapped(self, expr: Apply, p: Poly, width: DType | None) -> Poly | None:
        """p itself if the arithmetic of `expr`, in `width`, cannot overflow, else an opaque value."""
        if width is None:
            return p
        lo, hi = self.range(p, INDEX_LIMIT)
        if lo is not None and hi is not None and width.lowest <= lo and hi <= width.highest:
            return p
        return self._opaque(expr, width)

    def _negate(self, expr: Apply) -> Poly | None:
        args = self._args(expr)
        return None if args is None else -args[0]

    def _multiply(self, expr: Apply) -> Poly | None:
        args = self._args(expr)
        return None if args is None else self._times(expr, args[0], args[1])

    def _times(self, expr: Apply, a: Poly, b: Poly) -> Poly:
        """a * b; a value of its own where the product would have too many terms."""
        return a * b if len(a.terms) * len(b.terms) <= TERMS else of_atom(polynomial.value_atom(expr))

    def _power(self, expr: Apply) -> Poly | None:
        args = self._args(expr)
        n = args[1].constant if args is not None else None
        if args is None or n is None or not 0 <= n <= 6:
            return None
        out = polynomial.ONE
        for _ in range(n):
            out = self._times(expr, out, args[0])
        return out

    def _division(self, expr: Apply) -> Poly | None:
        args = self._args(expr)
        if args is None:
            return None
        a, b = args
        width = self.width(expr)
        if width is not None:
            lo, hi = self.range(a, INDEX_LIMIT)
            low, _ = self.range(b, INDEX_LIMIT)
            # the lowest integer by -1 wraps; its negation in ceildiv too
            if (lo is None or lo <= width.lowest) and (expr.fn == "ceildiv" or low is None or low < 0):
                return self._opaque(expr, width)
            if expr.fn == "ceildiv" and (hi is None or hi > width.highest):
                return self._opaque(expr, width)
        d = b.constant
        positive = d > 0 if d is not None else self.scope.positive(b)
        if expr.fn == "ceildiv":
            return self._quotient(a + b.shift(-1), b, True) if positive else -polynomial.floordiv(-a, b)
        if expr.fn == "floordiv":
            return self._quotient(a, b, positive)
        return a - self._quotient(a, b, True) * b if positive else polynomial.mod(a, b)

    def _quotient(self, a: Poly, b: Poly, positive: bool) -> Poly:
        """a floordiv b; the part of a that is known to lie in 0..b adds nothing."""
        if not positive:
            return polynomial.floordiv(a, b)
        whole, rest = polynomial.divide(a, b)
        if self.scope.within(rest, b):
            return whole
        return polynomial.floordiv(a, b, True)

    def _extremum(self, expr: Apply) -> Poly | None:
        args = self._args(expr)
        return None if args is None else self._extreme("min" if expr.fn in ("min", "fmin") else "max", args)

    def _extreme(self, kind: str, args: list[Poly]) -> Poly:
        """The `min` or `max` of the arguments, without those that their intervals rule out."""
        kept: list[Poly] = []
        for p in args:
            if not any(self._surely(q, p, kind) for q in kept):
                kept = [q for q in kept if not self._surely(p, q, kind)] + [p]
        return polynomial.extremum(kind, kept)

    def _surely(self, p: Poly, q: Poly, kind: str) -> bool:
        """Whether p decides over q."""
        lo, hi = self.range(p - q)
        return hi is not None and hi <= 0 if kind == "min" else lo is not None and lo >= 0

    def _clamp(self, expr: Apply) -> Poly | None:
        args = self._args(expr)
        return None if args is None else self._extreme("min", [self._extreme("max", args[:2]), args[2]])

    def _abs(self, expr: Apply) -> Poly | None:
        args = self._args(expr)
        return None if args is None else self._extreme("max", [args[0], -args[0]])

    def _same(self, expr: Apply) -> Poly | None:
        return self.integer(expr.args[0])

    def _sign(self, expr: Apply) -> Poly | None:
        p = self.integer(expr.args[0])
        return None if p is None else self._extreme("min", [self._extreme("max", [p, const(-1)]), polynomial.ONE])

    def _select(self, expr: Apply) -> Poly | None:
        condition, a, b = expr.args
        known = self.scope.decide(condition)
        if known is not None:
            return self.integer(a if known else b)
        p, q = self.integer(a), self.integer(b)
        return None if p is None or q is None else self._select_atom(condition, p, q)

    # ------------------------------------------------------------------------------------------------------------ width and intervals

    def width(self, expr: Expr) -> DType | None:
        """The dtype in which an integer expression wraps; None for indices, dimensions and literals, which are exact."""
        if isinstance(expr, Name):
            return expr.dtype if expr.dtype is not None and expr.dtype is not I64 else None
        if isinstance(expr, Read):
            if expr not in self._widths:
                self._widths[expr] = self._width_of_read(expr)
            return self._widths[expr]
        if isinstance(expr, Cast):
            to = DTYPES.get(expr.to)
            return None if to is I64 and self.width(expr.arg) is None else to.compute if to is not None else I64
        if isinstance(expr, Reduce):
            return expr.dtype or I64
        if not isinstance(expr, Apply):
            return None
        if expr.fn == "select":
            return self._joined(expr, (self.width(expr.args[1]), self.width(expr.args[2])))
        spine: list[Apply] = [expr]
        while isinstance(left := spine[-1].args[0], Apply) and left.fn in ("+", "-"):
            spine.append(left)
        width = self.width(spine[-1].args[0])
        for part in reversed(spine):
            width = self._joined(part, (width, *(self.width(a) for a in part.args[1:])))
        return width

    def _joined(self, expr: Apply, widths: tuple[DType | None, ...]) -> DType | None:
        """The width of a function whose arguments have these."""
        if all(w is None for w in widths):
            return None
        if expr.dtype is not None:
            return expr.dtype
        args = expr.args[-len(widths):]
        return I64 if any(w is I64 or (w is None and _speaks_of_index(a)) for w, a in zip(widths, args, strict=True)) else I32

    def _width_of_read(self, expr: Read) -> DType | None:
        definition = self.definition(expr)
        if definition is None:
            return expr.dtype.compute if expr.dtype is not None else I64
        self.depth += 1
        try:
            return self.width(definition)
        finally:
            self.depth -= 1

    def range(self, p: Poly, limit: int | None = None) -> Interval:
        """An interval that holds p. `limit` bounds the names of which nothing is known."""
        return interval_of(p, self.scope.bound, limit)


def _speaks_of_index(e: Expr) -> bool:
    """Whether something exact is an index, not a literal that takes the type of the other side."""
    return isinstance(e, Name) or (isinstance(e, Apply) and any(_speaks_of_index(a) for a in e.args)) or isinstance(e, Cast)


_OVERFLOWING = frozenset(("neg", "*", "**", "abs"))
"""Functions, besides sums, whose result may not fit although the arguments do; divisions see to it themselves."""

_HANDLERS: dict[str, Callable[[Translator, Apply], Poly | None]] = {
    "neg": Translator._negate, "*": Translator._multiply, "**": Translator._power,
    "floordiv": Translator._division, "ceildiv": Translator._division, "mod": Translator._division,
    "min": Translator._extremum, "max": Translator._extremum, "fmin": Translator._extremum, "fmax": Translator._extremum,
    "clamp": Translator._clamp, "abs": Translator._abs, "sign": Translator._sign, "select": Translator._select,
    "floor": Translator._same, "ceil": Translator._same, "round": Translator._same,
}
