"""Between which integers the value of an expression lies: interval arithmetic over the loop form, for the emitter and for the host before a launch."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pipelink_ir.backends.loops.form import BYTE, Aligned, Choose, Const, Convert, Expr, Load, Op, Ref, Thread
from pipelink_ir.ir.dtypes import BOOL, DType

Interval = tuple[int, int]
"""Lowest and highest, both possible."""

LIMIT = 1 << 40
"""No array has more elements, so sizes and indices of which nothing is known lie below."""

_COMPARE: Mapping[str, Callable[[Interval, Interval], bool | None]] = {
    "<": lambda a, b: True if a[1] < b[0] else False if a[0] >= b[1] else None,
    "<=": lambda a, b: True if a[1] <= b[0] else False if a[0] > b[1] else None,
    ">": lambda a, b: True if a[0] > b[1] else False if a[1] <= b[0] else None,
    ">=": lambda a, b: True if a[0] >= b[1] else False if a[1] < b[0] else None,
    "==": lambda a, b: True if a[0] == a[1] == b[0] == b[1] else False if a[1] < b[0] or b[1] < a[0] else None,
    "!=": lambda a, b: False if a[0] == a[1] == b[0] == b[1] else True if a[1] < b[0] or b[1] < a[0] else None,
}


def full(dtype: DType) -> Interval:
    """Every value of an integer dtype, or of bool."""
    return (0, 1) if dtype is BOOL else (dtype.lowest, dtype.highest)


@dataclass(slots=True)
class Bounds:
    """Intervals of names, and from them those of expressions. Only integers and bools have one; of anything else nothing is asked."""

    names: dict[str, Interval] = field(default_factory=dict)
    memories: Mapping[str, DType] = field(default_factory=dict)
    """The dtypes that values come from which a memory holds alone, in a wider one."""

    def of(self, x: Expr) -> Interval:
        """The interval of an integer or a bool."""
        if isinstance(x, Const):
            return int(x.value), int(x.value)
        if isinstance(x, Ref):
            return self.names.get(x.name) or full(x.dtype)
        if isinstance(x, Load):
            memory = self.memories.get(x.buffer, x.memory)
            return full(memory if memory.is_int else x.dtype)
        if isinstance(x, Convert):
            return self._convert(x)
        if isinstance(x, Choose):
            return self._choose(x)
        if isinstance(x, Aligned):
            return 0, 1
        if isinstance(x, Thread):
            return 0, 1023
        return self._op(x)

    def decided(self, cond: Expr) -> bool | None:
        """Whether a condition is known to hold, or not to."""
        low, high = self.of(cond)
        return bool(low) if low == high else None

    def _convert(self, x: Convert) -> Interval:
        if x.to is BOOL or x.arg.dtype.is_float:
            return full(x.to)
        low, high = self.of(x.arg)
        least, most = full(x.to)
        if x.saturate:
            return min(max(low, least), most), max(min(high, most), least)
        return (low, high) if least <= low and high <= most else (least, most)

    def _choose(self, x: Choose) -> Interval:
        known = self.decided(x.cond)
        if known is not None:
            return self.of(x.then if known else x.other)
        a, b = self.of(x.then), self.of(x.other)
        return min(a[0], b[0]), max(a[1], b[1])

    def _op(self, x: Op) -> Interval:
        if x.dtype is BOOL:
            return self._logic(x)
        if x.fn in BYTE.values():
            return (-128, 127) if x.fn == BYTE[True] else (0, 255)
        found = exact(x.fn, [self.of(a) for a in x.args])
        least, most = full(x.dtype)
        return found if found is not None and least <= found[0] and found[1] <= most else (least, most)

    def _logic(self, x: Op) -> Interval:
        if x.args[0].dtype.is_float:
            return 0, 1
        args = [self.of(a) for a in x.args]
        if x.fn == "not":
            return 1 - args[0][1], 1 - args[0][0]
        if x.fn == "and":
            return min(a[0] for a in args), min(a[1] for a in args)
        if x.fn == "or":
            return max(a[0] for a in args), max(a[1] for a in args)
        known = _COMPARE[x.fn](args[0], args[1])
        return (0, 1) if known is None else (int(known), int(known))


def exact(fn: str, args: list[Interval]) -> Interval | None:
    """The interval of a function in integers that do not wrap; None for a function that has none here."""
    rule = _RULES.get(fn)
    return rule(*args) if rule else None


def _mul(a: Interval, b: Interval) -> Interval:
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)


def _floordiv(a: Interval, b: Interval) -> Interval:
    divisors = {d for d in (b[0], b[1], -1 if b[0] <= -1 <= b[1] else 0, 1 if b[0] <= 1 <= b[1] else 0) if d}
    values = [x // d for x in a for d in divisors] + ([0] if b[0] <= 0 <= b[1] else [])
    return min(values), max(values)


def _mod(a: Interval, b: Interval) -> Interval:
    if a[0] == a[1] and b[0] == b[1] != 0:
        return a[0] % b[0], a[0] % b[0]
    if b[0] > 0 and 0 <= a[0] and a[1] < b[0]:
        return a
    return min(0, b[0] + 1), max(0, b[1] - 1)


def _abs(a: Interval) -> Interval:
    return (0 if a[0] <= 0 <= a[1] else min(abs(a[0]), abs(a[1]))), max(abs(a[0]), abs(a[1]))


def _rest(a: Interval, b: Interval) -> Interval:
    if a[0] < 0 or b[0] <= 0:
        return 0, max(abs(b[0]), abs(b[1]))
    return a if a[1] < b[0] else (0, min(a[1], b[1] - 1))


_RULES: Mapping[str, Callable[..., Interval]] = {
    "+": lambda a, b: (a[0] + b[0], a[1] + b[1]), "-": lambda a, b: (a[0] - b[1], a[1] - b[0]), "*": _mul, "neg": lambda a: (-a[1], -a[0]),
    "min": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])), "max": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])), "abs": _abs,
    "sign": lambda a: (-1 if a[0] < 0 else int(a[0] > 0), 1 if a[1] > 0 else -int(a[1] < 0)), "floordiv": _floordiv, "mod": _mod, "rest": _rest,
    "quot": lambda a, b: _floordiv((max(0, a[0]), max(0, a[1])), (max(1, b[0]), max(1, b[1])))}
