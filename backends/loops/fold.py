"""Constants: literals of a type, and what a primitive function of constants is, where that is exact.

Only integers and conditions are folded here, with the wrap-around of their type; floats are the business of `simplify` and of the emitter.
"""
from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

from pipelink_ir.backends.loops import form
from pipelink_ir.ir.diagnostics import internal_error
from pipelink_ir.ir.dtypes import BF16, BOOL, F32, F64, I32, I64, DType


def literal(value: int | float | bool, dtype: DType) -> form.Const | None:
    """The constant that `value` is as a `dtype`, where that needs no cast that rounds to a narrow type; else None."""
    if dtype is BOOL:
        return form.Const(value != 0, BOOL)
    if dtype in (I32, I64):
        return form.Const(wrap(int(value), dtype), dtype) if isinstance(value, int) else None
    if dtype is F64:
        return form.Const(float(value), F64)
    if dtype is F32:
        return form.Const(to_f32(value), F32)
    return None


def must(value: int | float | bool, dtype: DType) -> form.Const:
    """The constant of a compute type."""
    c = literal(value, dtype)
    return c if c is not None else internal_error(f"no constant {value} of type {dtype}")


def to_f32(value: int | float) -> float:
    """Rounded to f32 once, to nearest even; an integer of any size too."""
    if isinstance(value, int) and abs(value) >= 1 << 53:
        value = _odd(value)
    f = float(value)
    if math.isnan(f) or math.isinf(f):
        return f
    try:
        return float(struct.unpack("<f", struct.pack("<f", f))[0])
    except OverflowError:
        return math.copysign(math.inf, f)


def holds(dtype: DType, value: float) -> bool:
    """Whether a float of 16 bits has a value of f32 as it is."""
    digits = struct.pack("<f", value)
    if dtype is BF16:
        return digits[:2] == b"\0\0"
    try:
        return not value == value or struct.unpack("<e", struct.pack("<e", value))[0] == value
    except OverflowError:
        return False


def _odd(value: int) -> int:
    """An integer with its low bits pressed into one sticky bit, so that a second rounding rounds as if it were the first."""
    shift = abs(value).bit_length() - 50
    kept = abs(value) >> shift
    if abs(value) & ((1 << shift) - 1):
        kept |= 1
    return (kept << shift) * (1 if value > 0 else -1)


def wrap(value: int, dtype: DType) -> int:
    """Two's complement."""
    half = 1 << (dtype.bits - 1)
    return (value + half) % (2 * half) - half


def _floordiv(a: int, b: int) -> int:
    return a // b if b else 0


def _mod(a: int, b: int) -> int:
    return a % b if b else 0


_INTS: dict[str, Callable[..., int]] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "neg": lambda a: -a, "abs": abs, "min": min, "max": max,
    "floordiv": _floordiv, "mod": _mod, "quot": _floordiv, "rest": _mod, "sign": lambda a: (a > 0) - (a < 0)}
_TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "<": lambda a, b: a < b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b}


def fold(fn: str, args: tuple[form.Const | form.Ref, ...]) -> form.Const | form.Ref | None:
    """The value if it is known without evaluation, an argument that the function only hands on, or None."""
    a = args[0]
    if a.dtype is BOOL and fn in ("and", "or", "not"):
        return _logic(fn, args)
    values = [x.value for x in args if isinstance(x, form.Const)]
    if len(values) == len(args) and fn in _TESTS:
        return form.Const(_TESTS[fn](*values), BOOL)
    if not a.dtype.is_int:
        return None
    if len(values) == len(args) and fn in _INTS:
        return form.Const(wrap(_INTS[fn](*(int(v) for v in values)), a.dtype), a.dtype)
    if len(args) == 2:
        return _neutral(fn, a, args[1])
    return None


def _logic(fn: str, args: tuple[form.Const | form.Ref, ...]) -> form.Const | form.Ref | None:
    if fn == "not":
        return form.Const(not args[0].value, BOOL) if isinstance(args[0], form.Const) else None
    for one, two in (args, args[::-1]):
        if isinstance(one, form.Const):
            return two if bool(one.value) is (fn == "and") else one
    return args[0] if args[0] == args[1] else None


def _neutral(fn: str, a: form.Const | form.Ref, b: form.Const | form.Ref) -> form.Const | form.Ref | None:
    """Integers: x + 0, x * 1, x * 0, x floordiv 1, x mod 1, min(x, x)."""
    av = a.value if isinstance(a, form.Const) else None
    bv = b.value if isinstance(b, form.Const) else None
    if (fn in ("+", "-") and bv == 0) or (fn in ("*", "floordiv", "quot") and bv == 1) or (fn in ("min", "max") and a == b):
        return a
    if (fn == "+" and av == 0) or (fn == "*" and av == 1):
        return b
    if (fn == "*" and 0 in (av, bv)) or (fn in ("mod", "rest") and bv == 1):
        return form.Const(0, a.dtype)
    return None
