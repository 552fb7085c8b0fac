"""Intervals: every value that a float may have while each function keeps the accuracy that the language states.

An interval is a complex number, lo + hi i, so that NumPy stores, indexes, copies and selects both ends at once. Three are special: a point (lo = hi, with
the same sign if it is zero) is a value on which all must agree to the bit; `nan + nan i` is a NaN for sure; `nan + 0i` (UNKNOWN) may be anything.

Ends are rounded as the language says. `+ - *`, casts, comparisons and rounding to integers are exact or correctly rounded, thus monotone, thus the rounded
ends enclose the rounded value, and points stay points. `/`, `sqrt` and other functions are widened by their ulps in `ir/functions.py` unless the result
is exact. With `loose` a value of f32 may also be left unrounded, as the float64 mode of the reference does.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelink_ir.ir import scalar
from pipelink_ir.ir.dtypes import F32, F64, DType
from pipelink_ir.ir.functions import FUNCTIONS

Array = NDArray[Any]
Ends = tuple[Array, Array]

UNKNOWN = complex(np.nan, 0.0)


def pack(lo: Any, hi: Any) -> Array:
    """Intervals of their ends; where only one end is a number, unknown ones."""
    lo, hi = np.broadcast_arrays(np.asarray(lo, np.float64), np.asarray(hi, np.float64))
    out = np.empty(lo.shape, np.complex128)
    out.real, out.imag = lo, hi
    return np.where(np.isnan(lo) != np.isnan(hi), UNKNOWN, out)


def points(values: Any) -> Array:
    """Values as they are."""
    return pack(values, values)


def is_unknown(z: Array) -> Array:
    return np.asarray(np.isnan(z.real) & ~np.isnan(z.imag))


def is_nan(z: Array) -> Array:
    return np.asarray(np.isnan(z.real) & np.isnan(z.imag))


def is_point(z: Array) -> Array:
    """One value, a NaN among them."""
    return np.asarray(((z.real == z.imag) & (np.signbit(z.real) == np.signbit(z.imag))) | is_nan(z))


def has_zero(z: Array) -> Array:
    return np.asarray((z.real <= 0) & (z.imag >= 0))


def has_infinity(z: Array) -> Array:
    return np.asarray(np.isinf(z.real) | np.isinf(z.imag))


# -------------------------------------------------------------------------------------------------------------------- rounding


def _rounded(x: Array, dtype: DType) -> Array:
    return x.astype(np.float32).astype(np.float64) if dtype is F32 else x


def settled(lo: Array, hi: Array, dtype: DType, loose: bool, ulps: Array | float = 0.0) -> Array:
    """The interval of a value computed to within `ulps` in `dtype` (f32 or f64); 0 is correctly rounded."""
    ulps = np.asarray(ulps, np.float64)
    low, high = _rounded(lo, dtype), _rounded(hi, dtype)
    kind = np.float32 if dtype is F32 else np.float64
    with np.errstate(all="ignore"):
        wide_low = _rounded(low - np.nan_to_num((ulps + 1) * np.spacing(np.abs(low).astype(kind)).astype(np.float64), posinf=0.0), dtype)
        wide_high = _rounded(high + np.nan_to_num((ulps + 1) * np.spacing(np.abs(high).astype(kind)).astype(np.float64), posinf=0.0), dtype)
    low, high = np.where(ulps > 0, wide_low, low), np.where(ulps > 0, wide_high, high)
    return pack(*_unrounded(low, high, lo, hi)) if loose else pack(low, high)


def _unrounded(low: Array, high: Array, lo: Array, hi: Array) -> Ends:
    """Rounded ends, moved out to the ends before rounding and a few of their last places more, where the two differ."""
    out = np.where(low == lo, low, np.fmin(low, lo - 8 * np.spacing(np.abs(lo)))), np.where(high == hi, high, np.fmax(high, hi + 8 * np.spacing(np.abs(hi))))
    return np.where(np.isinf(lo), lo, out[0]), np.where(np.isinf(hi), hi, out[1])


def to_float(z: Array, to: DType, loose: bool) -> Array:
    """A float cast to a float: rounded once."""
    if to is F64 or (to is F32 and loose):
        return settled(z.real, z.imag, to, loose) if to is F32 else z
    low, high = (np.where(is_nan(z), np.nan, scalar.cast(end, to, F64).astype(np.float64)) for end in (z.real, z.imag))
    # Both ends may leave the range of f8e4m3, where nothing but NaN is, on different sides.
    split = np.isnan(low) & np.isnan(high) & ~is_nan(z) & (np.signbit(z.real) != np.signbit(z.imag))
    return np.where(is_unknown(z) | split, UNKNOWN, pack(low, high))


def to_int(z: Array, to: DType) -> tuple[Array, Array]:
    """A float cast to an integer or a bool, and where that is not decided."""
    low, high = scalar.cast(z.real, to, F64), scalar.cast(z.imag, to, F64)
    split = has_zero(z) & ~is_point(z) if to.kind == "bool" else low != high
    return low, is_unknown(z) | split


def from_number(values: Array, from_: DType, to: DType, loose: bool) -> Array:
    """An integer or a bool as a float."""
    near = scalar.cast(values, to, from_).astype(np.float64)
    if not loose or to is not F32:
        return points(near)
    exact = scalar.cast(values, F64, from_)
    return pack(np.minimum(near, exact), np.maximum(near, exact))


# ----------------------------------------------------------------------------------------------------------------- comparisons


def compare(fn: str, a: Array, b: Array) -> tuple[Array, Array]:
    """The outcome of a comparison, and where it is not decided."""
    if fn in (">", ">="):
        return compare({">": "<", ">=": "<="}[fn], b, a)
    nan = is_nan(a) | is_nan(b)
    unknown = (is_unknown(a) | is_unknown(b))
    if fn in ("==", "!="):
        single = (a.real == a.imag) & (b.real == b.imag)
        equal, apart = single & (a.real == b.real), (a.imag < b.real) | (a.real > b.imag)
        return (~equal if fn == "!=" else equal), unknown | ~(nan | single | apart)
    yes = a.imag < b.real if fn == "<" else a.imag <= b.real
    no = a.real >= b.imag if fn == "<" else a.real > b.imag
    return yes & ~nan, unknown | ~(nan | yes | no)


def tests(fn: str, z: Array) -> tuple[Array, Array]:
    """`isnan`, `isinf`."""
    if fn == "isnan":
        return is_nan(z), is_unknown(z)
    return np.isinf(z.real), is_unknown(z) | (has_infinity(z) & ~is_point(z))


# ------------------------------------------------------------------------------------------------------------------- functions


def apply(fn: str, args: Sequence[Array], dtype: DType, loose: bool, exact: bool = False) -> Array:
    """A function of floats; `dtype` is f32 or f64. `exact`: under `accuracy = exact`."""
    args = [np.asarray(a) for a in args]
    unknown = np.logical_or.reduce(np.broadcast_arrays(*(is_unknown(a) for a in args)))
    nan = np.logical_or.reduce(np.broadcast_arrays(*(is_nan(a) for a in args)))
    single = np.logical_and.reduce(np.broadcast_arrays(*(is_point(a) for a in args)))
    with np.errstate(all="ignore"):
        ulp = 0.0 if exact and fn in ("/", "sqrt") else FUNCTIONS[fn].ulp
        out = _between(fn, args, dtype, loose, ulp)
        if fn in ("fmin", "fmax"):
            # One may be a NaN or not: then the other is the result, or not.
            nan = np.zeros_like(nan)
        elif fn in ("pow", "**"):
            out, nan = np.where(nan | is_nan(out), UNKNOWN, out), np.zeros_like(nan)
        else:
            out = np.where(is_nan(out) & ~nan, UNKNOWN, out)
        out = np.where(nan, complex(np.nan, np.nan), out)
        out = np.where(single, _at_points(fn, args, dtype, loose, ulp), out)
    return np.where(unknown, UNKNOWN, out)


_UNSIGNED_ZERO = ("min", "max", "fmin", "fmax", "clamp")
"""Which zero they give is left open."""

_STAYS_EXACT = ("/", "sqrt", "rsqrt", "exp", "exp2", "log", "log2", "cos", "pow", "**")
"""Functions whose value in float64 is a short number only where it is exactly that number."""


def _at_points(fn: str, args: Sequence[Array], dtype: DType, loose: bool, ulp: float) -> Array:
    values = [a.real for a in args]
    if ulp == 0:
        # Exact, or rounded once: what the table computes in the dtype itself.
        near = np.asarray(FUNCTIONS[fn].numpy(np, *(v.astype(dtype.numpy()) for v in values))).astype(np.float64)
        wide = near if not loose or dtype is not F32 else np.asarray(FUNCTIONS[fn].numpy(np, *values))
        out = pack(*_unrounded(near, near, wide, wide))
        return _both_zeros(out, args) if fn in _UNSIGNED_ZERO else out
    value = np.asarray(FUNCTIONS[fn].numpy(np, *values), np.float64)
    exact = (value == 0) | np.isinf(value)
    if fn in _STAYS_EXACT:
        exact |= _short(value) & np.logical_and.reduce(np.broadcast_arrays(*(_short(v) for v in values)))
    if fn in ("/", "sqrt"):
        exact |= (value * values[-1] == values[0]) if fn == "/" else (value * value == values[0])
    # A value that only just leaves the range of the dtype is not exact.
    exact &= (_rounded(value, dtype) == value)
    slack = np.where(exact, 0.0, ulp)
    if fn == "logaddexp":
        return settled(*_logaddexp_ends(value, value, args, dtype), dtype, loose, slack)
    return settled(value, value, dtype, loose, slack)


def _short(x: Array) -> Array:
    """Numbers of few digits."""
    return np.asarray((np.abs(x) < 2.0**14) & (np.rint(x * 1024) == x * 1024))


def _both_zeros(z: Array, args: Sequence[Array]) -> Array:
    """A zero result, of arguments that have zeros of both signs among them, may have either sign."""
    negative = np.logical_or.reduce(np.broadcast_arrays(*((a.real <= 0) & (a.imag >= 0) & np.signbit(a.real) for a in args)))
    positive = np.logical_or.reduce(np.broadcast_arrays(*((a.real <= 0) & (a.imag >= 0) & ~np.signbit(a.imag) for a in args)))
    open_ = negative & positive
    return pack(np.where(open_ & (z.real == 0), -0.0, z.real), np.where(open_ & (z.imag == 0), 0.0, z.imag))


def _corners(fn: Callable[..., Any], args: Sequence[Array]) -> Ends:
    """The least and greatest value at the corners; NaN where one of them is."""
    ends: list[tuple[Array, ...]] = [()]
    for a in args:
        ends = [(*e, end) for e in ends for end in (a.real, a.imag)]
    values = [np.asarray(fn(*e), np.float64) for e in ends]
    low, high = np.minimum.reduce(values), np.maximum.reduce(values)
    negative = np.logical_or.reduce([(v == 0) & np.signbit(v) for v in values])
    positive = np.logical_or.reduce([(v == 0) & ~np.signbit(v) for v in values])
    return np.where((low == 0) & negative, -0.0, low), np.where((high == 0) & positive, 0.0, high)


def _monotone(fn: Callable[..., Any]) -> Callable[..., Ends]:
    """A function that is monotone in each argument, whatever the others are. A domain that ends inside the interval shows as a NaN at an end."""
    return lambda *args: _corners(fn, args)


def _unless(bad: Array, ends: Ends) -> Ends:
    return np.where(bad, np.nan, ends[0]), np.where(bad, np.nan, ends[1])


def _multiply(a: Array, b: Array) -> Ends:
    return _unless((has_zero(a) & has_infinity(b)) | (has_zero(b) & has_infinity(a)), _corners(np.multiply, (a, b)))


def _fma(a: Array, b: Array, c: Array) -> Ends:
    low, high = _multiply(a, b)
    return low + c.real, high + c.imag


def _divide(a: Array, b: Array) -> Ends:
    return _unless(has_zero(b), _corners(np.divide, (a, b)))


def _quotient(a: Array, b: Array) -> Ends:
    """The ends of a quotient and a little more: rounded, they may have reached an integer that the quotient does not."""
    low, high = _divide(a, b)
    return low - np.abs(low) * 2.0**-52, high + np.abs(high) * 2.0**-52


def _floordiv(a: Array, b: Array) -> Ends:
    low, high = _quotient(a, b)
    return np.floor(low), np.floor(high)


def _ceildiv(a: Array, b: Array) -> Ends:
    low, high = _quotient(a, b)
    # The table writes it as a sum: its zero is positive, and what is left over of an infinite divisor counts.
    return _unless(has_infinity(a) | has_infinity(b), (np.ceil(low) + 0.0, np.ceil(high) + 0.0))


def _mod(a: Array, b: Array) -> Ends:
    """a - k b for the one k that is possible, else anything that has the sign of b and is smaller."""
    low, high = _floordiv(a, b)
    whole = pack(low, low)
    product = _multiply(whole, b)
    same = (low == high) & (np.abs(low) < 2.0**20)
    size = np.maximum(np.abs(b.real), np.abs(b.imag))
    slack = 4 * np.spacing(np.maximum(np.abs(a.real), np.abs(a.imag)))
    sides = np.where(b.real >= 0, 0.0, -size), np.where(b.imag <= 0, 0.0, size)
    rest_low = np.where(same, np.maximum(a.real - product[1] - slack, sides[0]), sides[0])
    rest_high = np.where(same, np.minimum(a.imag - product[0] + slack, sides[1]), sides[1])
    rest_low, rest_high = np.where(rest_low == 0, -0.0, rest_low), np.where(rest_high == 0, 0.0, rest_high)
    return _unless(np.isnan(low) | np.isnan(high) | has_infinity(a) | has_infinity(b), (rest_low, rest_high))


def _sign(x: Array) -> Array:
    """A zero keeps its sign, as the language has it; NumPy drops it."""
    return np.where(x == 0, x, np.sign(x))


def _abs(a: Array) -> Ends:
    low, high = np.abs(a.real), np.abs(a.imag)
    return np.where(has_zero(a), 0.0, np.minimum(low, high)), np.maximum(low, high)


def _wave(fn: Callable[..., Any]) -> Callable[..., Ends]:
    """sin, cos: no steeper than 1."""
    def ends(a: Array) -> Ends:
        middle, radius = (a.real + a.imag) / 2, (a.imag - a.real) / 2 * 1.0001
        at = fn(middle)
        return (_unless(has_infinity(a), (np.where(radius > 1, -1.0, np.maximum(at - radius, -1.0)), np.where(radius > 1, 1.0, np.minimum(at + radius, 1.0)))))
    return ends


def _tan(a: Array) -> Ends:
    low, high = np.floor(a.real / np.pi + 0.5), np.floor(a.imag / np.pi + 0.5)
    near = np.minimum(np.abs(np.cos(a.real)), np.abs(np.cos(a.imag))) < 1e-6
    return _unless(has_infinity(a) | (low != high) | near, (np.tan(a.real), np.tan(a.imag)))


def _rsqrt(a: Array) -> Ends:
    low, high = 1 / np.sqrt(a.imag), 1 / np.sqrt(a.real)
    return _unless((a.real <= 0) & (a.imag >= 0), (low, high))


def _from_zero(fn: Callable[..., Any]) -> Callable[..., Ends]:
    """sqrt, log, log2: what is below 0 is a NaN."""
    def ends(a: Array) -> Ends:
        return fn(a.real), fn(a.imag)
    return ends


def _pow(a: Array, b: Array) -> Ends:
    """Of positive bases; of others only where it is a power of a point."""
    low, high = _corners(np.power, (a, b))
    return _unless(~(a.real > 0), (low, high))


def _power(a: Array, n: Array) -> Ends:
    """Repeated multiplication; `n` are integers."""
    low, high = _corners(lambda x, y: np.power(x, y), (a, pack(n, n)))
    low = np.where(has_zero(a) & (n > 0) & (n % 2 == 0), 0.0, low)
    return _unless(has_zero(a) & (n < 0), (low, high))


def _atan2(y: Array, x: Array) -> Ends:
    cut = has_zero(y) & (x.real <= 0)
    return _unless(cut, _corners(np.arctan2, (y, x)))


def _logaddexp_ends(low: Array, high: Array, args: Sequence[Array], dtype: DType) -> Ends:
    """By its expansion it is the greater argument and something between 0 and ln 2, which may cancel: the error is that of the argument."""
    a, b = args
    size = np.maximum(np.abs(np.maximum(a.real, b.real)), np.abs(np.maximum(a.imag, b.imag)))
    slack = 4 * np.ldexp(np.where(size < 1e30, size + 1, 0.0), -(dtype.digits - 1))
    return low - slack, high + slack


_RULES: dict[str, Callable[..., Ends]] = {
    "+": lambda a, b: (a.real + b.real, a.imag + b.imag), "-": lambda a, b: (a.real - b.imag, a.imag - b.real), "*": _multiply, "/": _divide,
    "floordiv": _floordiv, "ceildiv": _ceildiv, "mod": _mod, "neg": lambda a: (-a.imag, -a.real), "fma": _fma,
    "min": lambda a, b: (np.minimum(a.real, b.real), np.minimum(a.imag, b.imag)), "max": lambda a, b: (np.maximum(a.real, b.real), np.maximum(a.imag, b.imag)),
    "fmin": lambda a, b: (np.fmin(a.real, b.real), np.fmin(a.imag, b.imag)), "fmax": lambda a, b: (np.fmax(a.real, b.real), np.fmax(a.imag, b.imag)),
    "clamp": lambda a, b, c: (np.minimum(np.maximum(a.real, b.real), c.real), np.minimum(np.maximum(a.imag, b.imag), c.imag)),
    "abs": _abs, "sign": lambda a: (_sign(a.real), _sign(a.imag)), "floor": lambda a: (np.floor(a.real), np.floor(a.imag)),
    "ceil": lambda a: (np.ceil(a.real), np.ceil(a.imag)), "round": lambda a: (np.rint(a.real), np.rint(a.imag)),
    "sqrt": _from_zero(np.sqrt), "rsqrt": _rsqrt, "exp": _monotone(np.exp), "exp2": _monotone(np.exp2), "expm1": _monotone(np.expm1),
    "log": _from_zero(np.log), "log2": _from_zero(np.log2), "log1p": _from_zero(np.log1p), "logaddexp": _monotone(np.logaddexp),
    "tanh": _monotone(np.tanh), "sin": _wave(np.sin), "cos": _wave(np.cos), "tan": _tan, "atan2": _atan2, "pow": _pow,
    "sigmoid": _monotone(lambda a: FUNCTIONS["sigmoid"].numpy(np, a)), "erf": _monotone(lambda a: FUNCTIONS["erf"].numpy(np, a)), "**": _pow,
}
"""The ends of each function, before they are rounded; NaN where nothing can be said."""


def _between(fn: str, args: Sequence[Array], dtype: DType, loose: bool, ulp: float) -> Array:
    low, high = _RULES[fn](*args)
    if fn == "logaddexp":
        low, high = _logaddexp_ends(low, high, args, dtype)
    out = settled(np.asarray(low), np.asarray(high), dtype, loose, ulp)
    return _both_zeros(out, args) if fn in _UNSIGNED_ZERO else out


def power(a: Array, n: Array, dtype: DType, loose: bool, literal: bool) -> Array:
    """A float to an integer. The order of the products is fixed up to the third, for a literal up to the fourth: they are rounded one by one. Beyond
    that it is within as many ulps as there are products."""
    with np.errstate(all="ignore"):
        low, high = _power(a, n)
        size = np.abs(n.astype(np.float64))
        out = settled(np.asarray(low), np.asarray(high), dtype, loose, np.maximum(4.0, np.minimum(size, 128.0)))
        near = FUNCTIONS["**"].numpy(np, a.real.astype(dtype.numpy()), n).astype(np.float64)
        exact = _short(near) & (np.power(a.real, n.astype(np.float64)) == near)
        fixed = is_point(a) & ((n >= 0) & ((n <= (4 if literal else 3)) | exact) | (n.astype(np.int64) == 0) | ~np.isfinite(a.real) | (a.real == 0))
        wide = near if not loose else np.power(a.real, n.astype(np.float64))
        out = np.where(fixed, pack(*_unrounded(near, near, wide, wide)), out)
        # In the dtype an intermediate product may leave the range although the power does not.
        out = np.where(np.isfinite(np.maximum(np.abs(out.real), np.abs(out.imag))) | fixed, out, UNKNOWN)
        edge = (n < 0) & ~fixed & ~(np.abs(near) > 2.0**-100)
    return np.where(is_unknown(a) | edge, UNKNOWN, np.where(is_nan(a), np.where(n == 0, 1 + 1j, complex(np.nan, np.nan)), out))
