"""Rewrites of one typed expression. Each gives the bits that the unchanged expression gives; what is not certain to is not here.

Not rewritten, because they are not equal: `x + 0` and `0 - x` of floats (a negative zero), `x * 0` and `x - x` of floats (infinities, NaN), a sum of
floats over one element (a sum begins with +0), the exponent of `**` (a literal one fixes the order of multiplication), and whatever would leave
out a read or a reduction that may fail.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pipelink_ir.ir.dtypes import DTYPES, I64
from pipelink_ir.ir.nodes import Apply, Cast, Expr, IntLit, Name, Range, Read, Reduce
from pipelink_ir.ir.prover import normal
from pipelink_ir.ir.scalar import fold, is_literal, literal
from pipelink_ir.ir.walk import rebuild, substitute, walk


@dataclass(slots=True)
class Rewriter:
    """Simplifies expressions of one operator."""

    constant: Callable[[str], Expr | None]
    """The literal that a local of rank 0 is, if it is one."""
    memory: dict[str, str]
    """The dtypes of operands in memory."""
    fast_math: bool

    def simplify(self, e: Expr) -> Expr:
        """`e` or something equal to it that is smaller; `e` itself where nothing was found."""
        if isinstance(e, Apply) and e.fn == "**":
            base, exponent = self.simplify(e.args[0]), self._exponent(e.args[1])
            e = e if base is e.args[0] and exponent is e.args[1] else replace(e, args=(base, exponent))
        elif isinstance(e, Range):
            return self._range(e)
        else:
            e = rebuild(e, self.simplify)
        if isinstance(e, Apply):
            return self._apply(e)
        if isinstance(e, Cast):
            return self._cast(e)
        return self._reduce(e) if isinstance(e, Reduce) else e

    def value(self, e: Expr) -> Expr | None:
        """The literal that an expression stands for: itself, a cast of one, or the name of one."""
        if is_literal(e):
            return e
        if isinstance(e, Cast):
            inner = self.value(e.arg)
            # A written cast to 64 bits stays in the text, but its value is known.
            return None if inner is None or self._approximate(e) else fold(replace(e, arg=inner, implicit=True))
        return self.constant(e.tensor) if isinstance(e, Read) and not e.indices else None

    def _approximate(self, e: Expr) -> bool:
        """Whether the operator allows this value to differ from what folding gives: subnormals may be flushed under `fast_math`."""
        return self.fast_math and any(n.dtype is not None and n.dtype.is_float for n in walk(e))

    # ------------------------------------------------------------------------------------------------------------ one node

    def _apply(self, e: Apply) -> Expr:
        values = [self.value(a) for a in e.args]
        if e.fn in ("select", "and", "or"):
            return self._lazy(e, values)
        if all(v is not None for v in values) and not self._approximate(e):
            folded = fold(replace(e, args=tuple(v for v in values if v is not None)))
            if folded is not None:
                return folded
        return _identity(e, values)

    def _exponent(self, e: Expr) -> Expr:
        """A literal exponent says how the power is computed if it is an integer, and may if it is a square root: those are not made here."""
        new = self.simplify(e)
        if new is e or e.dtype is None or not e.dtype.is_float:
            return e
        return new if is_literal(new) and 2 * float(literal(new)) % 1 != 0 else e

    def _lazy(self, e: Apply, values: list[Expr | None]) -> Expr:
        if values[0] is not None:
            decided = fold(replace(e, args=(values[0], *e.args[1:])))
            return e if decided is None else decided
        if e.fn == "select":
            return e.args[1] if _safe(e.args[0]) and same(e.args[1], e.args[2]) else e
        if values[1] is not None:
            if bool(literal(values[1])) == (e.fn == "and"):
                return e.args[0]
            return values[1] if _safe(e.args[0]) else e
        return e

    def _cast(self, e: Cast) -> Expr:
        if e.implicit:
            inner = self.value(e.arg)
            folded = None if inner is None or self._approximate(e) else fold(replace(e, arg=inner))
            return e if folded is None else folded
        arg, value = e.arg, self.value(e.arg)
        if value is not None and e.to not in ("f32", "f64", "i64") and not self._approximate(e):
            folded = fold(replace(e, arg=value))
            return e if folded is None else folded
        if isinstance(arg, Cast) and arg.to == e.to and arg.saturate == e.saturate:
            return arg
        if isinstance(arg, Read) and arg.tensor in self.memory and (self.memory[arg.tensor] == e.to or (arg.dtype is e.dtype and DTYPES[e.to] is e.dtype)):
            # An element of an operand is computed with as what it is: an f16 as an f32.
            return arg
        # An integer or a bool that has the type already. (Of a float the cast keeps a sum from joining a product as one operation.)
        return arg if arg.dtype is e.dtype and DTYPES[e.to] is e.dtype and not e.dtype.is_float and not is_literal(arg) else e

    # ---------------------------------------------------------------------------------------------------------- reductions

    def _range(self, e: Range) -> Range:
        lo, hi = None if e.lo is None else self._bound(e.lo), self._bound(e.hi)
        return e if lo is e.lo and hi is e.hi else replace(e, lo=lo, hi=hi)

    def _bound(self, e: Expr) -> Expr:
        return shorter(self.simplify(e))

    def _reduce(self, e: Reduce) -> Expr:
        """Ranges of extent one are dropped: the index is its lower bound."""
        if e.kind not in ("sum", "prod", "max", "min", "any", "all", "mean"):
            return e
        assert e.dtype is not None
        ranges = [r for r in e.ranges if isinstance(r, Range)]
        single = next((r for r in ranges if _extent_is_one(r)), None)
        if single is None or len(ranges) != len(e.ranges):
            return e
        if len(ranges) == 1 and (e.where is not None or e.kind == "mean" or (e.kind == "sum" and e.dtype.is_float)):
            return e
        lo = single.lo if single.lo is not None else IntLit(0, span=single.span, dtype=I64)
        names = {single.index: lo}
        if len(ranges) == 1:
            return self.simplify(substitute(e.body, names))
        others: list[Expr] = []
        for r in ranges:
            if r is not single:
                later = ranges.index(r) > ranges.index(single)
                others.append(replace(r, lo=None if r.lo is None else substitute(r.lo, names), hi=substitute(r.hi, names)) if later else r)
        shorter = replace(e, ranges=tuple(others), where=None if e.where is None else substitute(e.where, names), body=substitute(e.body, names))
        return self.simplify(shorter)


def _extent_is_one(r: Range) -> bool:
    lo = r.lo if r.lo is not None else IntLit(0, dtype=I64)
    if any(isinstance(n, Read) for e in (lo, r.hi) for n in walk(e)):
        return False
    extent = normal(Apply("-", (r.hi, lo), dtype=I64))
    return isinstance(extent, IntLit) and extent.value == 1


def _identity(e: Apply, values: list[Expr | None]) -> Expr:
    """Functions with an argument that does nothing. The types agree: arguments were converted to the type of the result."""
    assert e.dtype is not None
    if e.fn in ("neg", "not"):
        inner = e.args[0]
        return inner.args[0] if isinstance(inner, Apply) and inner.fn == e.fn else e
    numbers = [None if v is None or not is_literal(v) else literal(v) for v in values]
    if len(numbers) != 2:
        return e
    a, b = numbers
    if e.fn in ("*", "/") and b is not None and b == 1:
        return e.args[0]
    if e.fn == "*" and a is not None and a == 1:
        return e.args[1]
    positive_zero = b is not None and b == 0 and (e.dtype.is_int or str(b) == "0.0")
    if e.fn == "-" and positive_zero:
        return e.args[0]
    if e.fn == "+" and e.dtype.is_int:
        return e.args[0] if b is not None and b == 0 else e.args[1] if a is not None and a == 0 else e
    if e.fn == "floordiv" and e.dtype.is_int and b is not None and b == 1:
        return e.args[0]
    return e


def _safe(e: Expr) -> bool:
    """Whether leaving the expression out can hide no failure: nothing is read and nothing reduced."""
    return not any(isinstance(n, Read | Reduce) for n in walk(e))


def shorter(e: Expr) -> Expr:
    """Integer arithmetic over dimensions in its normal form, if that is smaller."""
    if any(not isinstance(n, IntLit | Name | Apply) for n in walk(e)) or isinstance(e, IntLit | Name):
        return e
    form = normal(e)
    if sum(1 for _ in walk(form)) >= sum(1 for _ in walk(e)):
        return e
    return replace(form, span=e.span)


def same(a: Expr, b: Expr, value: Callable[[Expr], Expr | None] = lambda e: None) -> bool:
    """Whether two typed expressions are equal, dtypes and the bits of literals included; `value` gives the literal that something else stands for.
    Without recursion."""
    stack = [(a, b)]
    while stack:
        x, y = stack.pop()
        x, y = value(x) or x, value(y) or y
        if x is y:
            continue
        if x.dtype is not y.dtype:
            return False
        if is_literal(x) and is_literal(y):
            if literal(x).tobytes() != literal(y).tobytes():
                return False
            continue
        if type(x) is not type(y) or _head(x) != _head(y):
            return False
        xs, ys = _parts(x), _parts(y)
        if len(xs) != len(ys):
            return False
        stack += zip(xs, ys, strict=True)
    return True


def _head(e: Expr) -> tuple[object, ...]:
    """What of a node is not a subexpression."""
    if isinstance(e, Apply):
        return (e.fn,)
    if isinstance(e, Read):
        return (e.tensor,)
    if isinstance(e, Cast):
        return (e.to, e.saturate)
    if isinstance(e, Name):
        return (e.name,)
    if isinstance(e, Range):
        return (e.index,)
    if isinstance(e, Reduce):
        return (e.kind, e.where is None, e.rank is None)
    return ()


def _parts(e: Expr) -> tuple[Expr, ...]:
    if isinstance(e, Range):
        return (e.lo if e.lo is not None else IntLit(0, dtype=I64), e.hi)
    from pipelink_ir.ir.walk import children
    return children(e)
