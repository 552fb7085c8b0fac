"""Ranges of values through an operator, by interval arithmetic.

Intervals over-approximate, so a bound says by `hit` whether it is attained: it comes from a declared range or that of a dtype through steps that are
monotone in one value. Only an attained bound may make an error; any bound may discharge a check.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pipelink_ir.ir.dtypes import DTYPES, DType
from pipelink_ir.ir.nodes import Apply, Cast, Const, Expr, FloatLit, IntLit, Range, Read, Reduce
from pipelink_ir.ir.typed import TypedOperator


@dataclass(frozen=True, slots=True)
class Interval:
    """Values from `lo` to `hi`; NaN is not spoken of."""

    lo: float
    hi: float
    lo_hit: bool = False
    hi_hit: bool = False

    def within(self, other: Interval) -> bool:
        return other.lo <= self.lo and self.hi <= other.hi

    def meets(self, other: Interval) -> bool:
        """Whether it lies in `other` but for what rounding may add."""
        slack = 1e-6 * max((abs(b) for b in (other.lo, other.hi) if math.isfinite(b)), default=0)
        return other.lo - slack <= self.lo and self.hi <= other.hi + slack

    def misses(self, other: Interval) -> bool:
        """Whether a bound that is attained lies outside `other`."""
        return not Interval(self.lo if self.lo_hit else other.lo, self.hi if self.hi_hit else other.hi).meets(other)

    def join(self, other: Interval) -> Interval:
        """Both; a bound is attained if the side that gives it attains it."""
        lo, hi = min(self.lo, other.lo), max(self.hi, other.hi)
        return Interval(lo, hi, any(i.lo == lo and i.lo_hit for i in (self, other)), any(i.hi == hi and i.hi_hit for i in (self, other)))

    @property
    def constant(self) -> float | None:
        return self.lo if self.lo == self.hi and math.isfinite(self.lo) else None

    def __str__(self) -> str:
        return f"[{_short(self.lo)}, {_short(self.hi)}]"


UNKNOWN = Interval(-math.inf, math.inf)


def _short(x: float) -> str:
    return f"{x:.6g}"


def of_dtype(dtype: DType) -> Interval:
    """What an integer dtype of at most 16 bits, or a bool, can hold; wider ones say nothing of what the numbers mean."""
    if dtype.kind == "bool":
        return Interval(0, 1, True, True)
    if dtype.is_int and dtype.bits <= 16:
        return Interval(dtype.lowest, dtype.highest, True, True)
    return UNKNOWN


def result_ranges(op: TypedOperator, operands: Mapping[str, Interval]) -> dict[str, Interval]:
    """The range of each result, from those of the operands."""
    walker = _Ranges(op, operands)
    for group in op.order:
        for name in group.tensors:
            walker.known[name] = UNKNOWN if group.recurrence is not None else walker.tensor(name)
    return {r.name: walker.known.get(r.name, UNKNOWN) for r in op.op.results}


class _Ranges:
    def __init__(self, op: TypedOperator, operands: Mapping[str, Interval]) -> None:
        self.op = op
        self.known: dict[str, Interval] = dict(operands)

    def tensor(self, name: str) -> Interval:
        t = self.op.tensors[name]
        out: Interval | None = None
        for p in t.pieces:
            r = self.of(p.value)
            out = r if out is None else out.join(r)
        return _rounded(out or UNKNOWN, t.dtype)

    def of(self, e: Expr) -> Interval:
        if isinstance(e, IntLit | FloatLit):
            return Interval(float(e.value), float(e.value), True, True)
        if isinstance(e, Const):
            value = {"inf": math.inf, "pi": math.pi, "true": 1.0, "false": 0.0}.get(e.name)
            return UNKNOWN if value is None else Interval(value, value, True, True)
        if isinstance(e, Read):
            return self._read(e)
        if isinstance(e, Cast):
            return _cast(self.of(e.arg), DTYPES[e.to], e.saturate, e.arg.dtype)
        if isinstance(e, Reduce):
            return self._reduce(e)
        if isinstance(e, Apply):
            return self._apply(e)
        return UNKNOWN

    def _read(self, e: Read) -> Interval:
        out = self.known.get(e.tensor, UNKNOWN)
        for access, border in zip(e.access, self.op.tensors[e.tensor].border, strict=False):
            if access == "border" and border is not None and border.value is not None:
                out = out.join(self.of(border.value))
        return out

    def _reduce(self, e: Reduce) -> Interval:
        body = self.of(e.body)
        if e.kind in ("max", "min", "mean", "nth"):
            return body if e.where is None else Interval(body.lo, body.hi)
        if e.kind == "sum" and e.where is None:
            count = 1
            for r in e.ranges:
                if not (isinstance(r, Range) and isinstance(r.lo, IntLit) and isinstance(r.hi, IntLit)):
                    return UNKNOWN if body.lo < 0 or e.dtype is None or e.dtype.is_int else Interval(0, math.inf)
                count *= max(0, r.hi.value - r.lo.value)
            total = Interval(body.lo * count, body.hi * count, body.lo_hit, body.hi_hit) if count else Interval(0, 0, True, True)
            return _wrapped(total, e.dtype)
        if e.kind in ("any", "all"):
            return Interval(0, 1)
        return UNKNOWN

    def _apply(self, e: Apply) -> Interval:
        args = [self.of(a) for a in e.args]
        rule = _RULES.get(e.fn)
        if rule is None:
            return UNKNOWN
        out = rule(*args)
        try:
            out = Interval(float(out.lo), float(out.hi), out.lo_hit, out.hi_hit)
        except OverflowError:
            return _wrapped(UNKNOWN, e.dtype)
        return UNKNOWN if math.isnan(out.lo) or math.isnan(out.hi) else _wrapped(out, e.dtype)


def _wrapped(i: Interval, dtype: DType | None) -> Interval:
    """Integers wrap: what leaves its dtype may come to anything in it."""
    if dtype is None or not dtype.is_int or i.within(Interval(dtype.lowest, dtype.highest)):
        return i
    return UNKNOWN


def _rounded(i: Interval, dtype: DType) -> Interval:
    return i if dtype.is_float else Interval(max(i.lo, of_dtype(dtype).lo), min(i.hi, of_dtype(dtype).hi), i.lo_hit, i.hi_hit)


def _cast(i: Interval, to: DType, saturate: bool, source: DType | None) -> Interval:
    if to.is_float:
        return i
    limit = of_dtype(to) if to.bits <= 16 or not to.is_int else Interval(to.lowest, to.highest)
    whole = Interval(math.trunc(i.lo) if math.isfinite(i.lo) else i.lo, math.trunc(i.hi) if math.isfinite(i.hi) else i.hi, i.lo_hit, i.hi_hit)
    if whole.within(limit):
        return whole
    if saturate or (source is not None and source.is_float):
        return Interval(min(max(whole.lo, limit.lo), limit.hi), max(min(whole.hi, limit.hi), limit.lo), whole.lo_hit, whole.hi_hit)
    return Interval(limit.lo, limit.hi)


def _monotone(f: Callable[[float], float], lowest: float = -math.inf) -> Callable[[Interval], Interval]:
    def rule(a: Interval) -> Interval:
        if a.lo < lowest:
            return UNKNOWN
        return Interval(_safe(f, a.lo), _safe(f, a.hi), a.lo_hit, a.hi_hit)
    return rule


def _safe(f: Callable[[float], float], x: float) -> float:
    try:
        return f(x)
    except OverflowError:
        return math.inf
    except ValueError:
        return -math.inf if x == 0 else math.nan


def _add(a: Interval, b: Interval) -> Interval:
    one = a.constant is not None or b.constant is not None
    return Interval(a.lo + b.lo, a.hi + b.hi, one and a.lo_hit and b.lo_hit, one and a.hi_hit and b.hi_hit)


def _neg(a: Interval) -> Interval:
    return Interval(-a.hi, -a.lo, a.hi_hit, a.lo_hit)


def _mul(a: Interval, b: Interval) -> Interval:
    k = a.constant if a.constant is not None else b.constant
    other = b if a.constant is not None else a
    if k is not None:
        if k == 0:
            return Interval(0, 0, True, True) if math.isfinite(other.lo) and math.isfinite(other.hi) else UNKNOWN
        scaled = Interval(other.lo * k, other.hi * k, other.lo_hit, other.hi_hit)
        return scaled if k > 0 else Interval(scaled.hi, scaled.lo, other.hi_hit, other.lo_hit)
    ends = [x * y for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
    return UNKNOWN if any(map(math.isnan, ends)) else Interval(min(ends), max(ends))


def _div(a: Interval, b: Interval) -> Interval:
    if b.constant is not None and b.constant != 0:
        k = b.constant
        scaled = Interval(a.lo / k, a.hi / k, a.lo_hit, a.hi_hit)
        return scaled if k > 0 else Interval(scaled.hi, scaled.lo, a.hi_hit, a.lo_hit)
    if b.lo > 0 or b.hi < 0:
        ends = [x / y for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
        return UNKNOWN if any(map(math.isnan, ends)) else Interval(min(ends), max(ends))
    return UNKNOWN


def _pick(f: Callable[[float, float], float]) -> Callable[[Interval, Interval], Interval]:
    def rule(a: Interval, b: Interval) -> Interval:
        one = a.constant is not None or b.constant is not None
        lo, hi = f(a.lo, b.lo), f(a.hi, b.hi)
        return Interval(lo, hi, one and (a.lo_hit or a.lo != lo) and (b.lo_hit or b.lo != lo), one and (a.hi_hit or a.hi != hi) and (b.hi_hit or b.hi != hi))
    return rule


def _clamp(a: Interval, lo: Interval, hi: Interval) -> Interval:
    return _pick(min)(_pick(max)(a, lo), hi)


def _abs(a: Interval) -> Interval:
    if a.lo >= 0:
        return a
    if a.hi <= 0:
        return _neg(a)
    top = max(-a.lo, a.hi)
    return Interval(0, top, False, (a.hi_hit and a.hi == top) or (a.lo_hit and -a.lo == top))


def _power(a: Interval, b: Interval) -> Interval:
    k = b.constant
    if k is None:
        return UNKNOWN
    if k == int(k) and int(k) % 2 == 0 and k > 0:
        a = _abs(a)
    if a.lo >= 0 and k > 0:
        return _monotone(lambda x: x ** k)(a)
    if k == int(k) and k > 0:
        return _monotone(lambda x: x ** int(k))(a)
    return UNKNOWN


_RULES: dict[str, Callable[..., Interval]] = {
    "+": _add, "-": lambda a, b: _add(a, _neg(b)), "*": _mul, "/": _div, "neg": _neg, "min": _pick(min), "max": _pick(max), "clamp": _clamp, "abs": _abs,
    "**": _power, "pow": _power, "select": lambda c, a, b: Interval(min(a.lo, b.lo), max(a.hi, b.hi)),
    "sqrt": _monotone(math.sqrt, 0), "exp": _monotone(math.exp), "log": _monotone(math.log, 0), "tanh": _monotone(math.tanh), "erf": _monotone(math.erf),
    "sigmoid": _monotone(lambda x: 1 / (1 + math.exp(-x)) if x > -700 else 0.0),
    "floor": _monotone(lambda x: x if math.isinf(x) else math.floor(x)), "ceil": _monotone(lambda x: x if math.isinf(x) else math.ceil(x)),
    "round": _monotone(lambda x: x if math.isinf(x) else round(x)),
    "sin": lambda a: Interval(-1, 1), "cos": lambda a: Interval(-1, 1), "sign": lambda a: Interval(-1, 1),
}
"""Interval rules by function. A function that is not here says nothing."""
