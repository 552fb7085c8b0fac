"""Evaluation of one function application, one cast and one literal on NumPy values, exactly as the language defines them.

Values are NumPy arrays (or scalars) in a compute type: bool, i32, i64, f32 or f64. The reference backend and constant folding use this and nothing
else, so that what is folded has the bits of what is run. NumPy is imported by the functions that need it; its warnings are silenced here.
"""
from __future__ import annotations

from collections.abc import Sequence
from math import isinf, isnan
from typing import TYPE_CHECKING, Any

from pipelink_ir.ir.diagnostics import internal_error
from pipelink_ir.ir.dtypes import BOOL, DTYPES, F8E4M3, DType
from pipelink_ir.ir.functions import FUNCTIONS
from pipelink_ir.ir.nodes import Apply, Cast, Const, Expr, FloatLit, IntLit

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[Any]

# ------------------------------------------------------------------------------------------------------------------- functions


def apply(fn: str, args: Sequence[Any], dtype: DType) -> Array:
    """The function `fn` of `ir/functions.py` on values that broadcast together; `dtype` is the compute type of the result."""
    import numpy as np
    with np.errstate(all="ignore"):
        return np.asarray(FUNCTIONS[fn].numpy(np, *(np.asarray(a) for a in args))).astype(dtype.compute.numpy(), copy=False)


# ----------------------------------------------------------------------------------------------------------------------- casts


def cast(value: Any, to: DType, from_: DType, saturate: bool = False) -> Array:
    """`to(value)` or, with `saturate`, `sat_to(value)`, in the compute type of `to`.

    A float becomes an integer toward zero, saturated, NaN 0; an integer a narrower one by wrapping unless `saturate`; floats round once, to nearest even."""
    import numpy as np
    value = np.asarray(value)
    with np.errstate(all="ignore"):
        if to is BOOL:
            return np.asarray(value != 0)
        if to.is_float:
            return np.asarray(_to_float(np, value, to, from_, saturate))
        return np.asarray(_float_to_int(np, value, to) if from_.is_float else _int_to_int(np, value, to, from_, saturate))


def _float_to_int(np: Any, value: Any, to: DType) -> Any:
    """The limits are compared in float64, where `highest` of i64 is 2**63: from there on every float saturates."""
    whole = np.trunc(value.astype(np.float64))
    low, high = whole <= float(to.lowest), whole >= float(to.highest)
    inside = np.where(low | high | np.isnan(whole), 0.0, whole).astype(np.int64)
    out = np.where(low, np.int64(to.lowest), np.where(high, np.int64(to.highest), inside))
    return out.astype(to.compute.numpy())


def _int_to_int(np: Any, value: Any, to: DType, from_: DType, saturate: bool) -> Any:
    if from_ is BOOL:
        return value.astype(to.compute.numpy())
    if saturate:
        return np.clip(value, max(to.lowest, from_.compute.lowest), min(to.highest, from_.compute.highest)).astype(to.compute.numpy())
    return value.astype(to.numpy()).astype(to.compute.numpy())


def _to_float(np: Any, value: Any, to: DType, from_: DType, saturate: bool) -> Any:
    if to.bits >= 32:
        out = value.astype(to.numpy())
        return np.where(np.isinf(out), np.copysign(np.finfo(out.dtype).max, out), out) if saturate else out
    wide = _sticky_float64(np, value) if from_.bits == 64 and from_.is_int else value.astype(np.float64)
    return _round_float(np, wide, to, saturate).astype(np.float32)


def _sticky_float64(np: Any, value: Any) -> Any:
    """i64 as float64 so that rounding it again, to at most 24 digits, gives what rounding the integer gives: lost bits leave a trace in the last one."""
    size = np.abs(value).astype(np.uint64)
    lost = size & np.uint64(0x7FF)
    kept = (size - lost) | np.where(lost != 0, np.uint64(0x800), np.uint64(0))
    exact = np.where(size < np.uint64(1 << 53), size, kept).astype(np.float64)
    return np.where(value < 0, -exact, exact)


def _round_float(np: Any, x: Any, to: DType, saturate: bool) -> Any:
    """float64 rounded to a narrow format, half to even. Dividing by a power of two is exact, so there is one rounding (`ml_dtypes` goes through f32)."""
    _, exponent = np.frexp(x)
    step = np.ldexp(1.0, np.maximum(exponent - 1, to.normal) - (to.digits - 1))
    out = np.where(np.isfinite(x), np.rint(x / step) * step, x)
    beyond = to.largest if saturate else np.nan if to is F8E4M3 else np.inf
    return np.where(np.abs(out) > to.largest, np.copysign(beyond, x), out)


# -------------------------------------------------------------------------------------------------------------- arrays in memory


def array_from_storage(array: Any, dtype: DType) -> Array:
    """An array in memory as values in the compute type of `dtype`; a copy only where the types differ."""
    import numpy as np
    return np.asarray(array).astype(dtype.compute.numpy(), copy=False)


def array_to_storage(value: Any, dtype: DType, from_: DType | None = None) -> Array:
    """Values in a compute type as a fresh array of `dtype` in memory; floats round once, to nearest even, integers wrap."""
    import numpy as np
    value = np.asarray(value)
    if from_ is None:
        from_ = _COMPUTE[value.dtype.name]
    with np.errstate(all="ignore"):
        return np.array(cast(value, dtype, from_).astype(dtype.numpy()), order="C")


_COMPUTE = {"bool": BOOL, "int32": DTYPES["i32"], "int64": DTYPES["i64"], "float32": DTYPES["f32"], "float64": DTYPES["f64"]}

# -------------------------------------------------------------------------------------------------------------- literals, folding


def literal(e: Expr) -> np.generic:
    """The value of a literal, a constant or a minus before `inf`, in the compute type that inference gave it."""
    import numpy as np
    assert e.dtype is not None
    value: Any
    if isinstance(e, IntLit | FloatLit):
        value = e.value
    elif isinstance(e, Const):
        value = {"inf": np.inf, "nan": np.nan, "pi": np.pi, "true": True, "false": False}[e.name]
    elif isinstance(e, Apply) and e.fn == "neg":
        value = np.negative(literal(e.args[0]))
    else:
        internal_error(f"{type(e).__name__} is no literal")
    with np.errstate(all="ignore"):
        out: Any = np.asarray(value, np.float64 if e.dtype.is_float else None).astype(e.dtype.compute.numpy())
        value = out[()]
    assert isinstance(value, np.generic)
    return value


def is_literal(e: Expr) -> bool:
    """Whether `literal` gives its value."""
    if isinstance(e, Apply):
        return e.fn == "neg" and isinstance(e.args[0], Const) and e.args[0].name == "inf"
    return isinstance(e, IntLit | FloatLit | Const)


_EXACT = frozenset("or and not == != < <= > >= + - * / floordiv ceildiv mod neg select min max fmin fmax clamp abs sign floor ceil round fma sqrt "
                   "isnan isinf".split())
"""Functions that every backend computes to the same bits; the others are left to run."""


def fold(e: Expr) -> Expr | None:
    """A node whose arguments are literals as one literal of its dtype, with the bits that running it gives; None if it is not to be folded.

    `select`, `and`, `or` fold as soon as the arguments that decide are literals. Written casts to i64 and f64 stay: a literal alone is read as i32 or f32."""
    if e.dtype is None or is_literal(e):
        return None
    if isinstance(e, Cast):
        return _fold_cast(e)
    if not isinstance(e, Apply):
        return None
    if e.fn in ("select", "and", "or") and is_literal(e.args[0]):
        return _fold_lazy(e)
    if not all(is_literal(a) for a in e.args) or not (e.fn in _EXACT or _exact_power(e)):
        return None
    return as_literal(apply(e.fn, [literal(a) for a in e.args], e.dtype), e)


def _fold_cast(e: Cast) -> Expr | None:
    assert e.dtype is not None
    assert e.arg.dtype is not None
    if not is_literal(e.arg) or (e.dtype.bits == 64 and not e.implicit):
        return None
    return as_literal(cast(literal(e.arg), DTYPES[e.to], e.arg.dtype, e.saturate), e)


def _fold_lazy(e: Apply) -> Expr:
    decided = bool(literal(e.args[0]))
    if e.fn == "select":
        return e.args[1 if decided else 2]
    return e.args[0] if decided == (e.fn == "or") else e.args[1]


def _exact_power(e: Apply) -> bool:
    """Integer powers of integers, and of floats up to the fourth, whose order of multiplication is fixed."""
    if e.fn != "**" or not isinstance(e.args[1], IntLit) or e.args[1].value < 0:
        return False
    return e.dtype is not None and (e.dtype.is_int or e.args[1].value <= 4)


def as_literal(value: Any, like: Expr) -> Expr:
    """A value as a literal with the span and the dtype of `like`; -inf is a minus before `inf`, as the text has it."""
    dtype = like.dtype
    assert dtype is not None
    if dtype is BOOL:
        return Const("true" if value else "false", span=like.span, dtype=dtype)
    if dtype.is_int:
        return IntLit(int(value), span=like.span, dtype=dtype)
    number = float(value)
    if isnan(number):
        return Const("nan", span=like.span, dtype=dtype)
    if not isinf(number):
        return FloatLit(number, span=like.span, dtype=dtype)
    inf = Const("inf", span=like.span, dtype=dtype)
    return inf if number > 0 else Apply("neg", (inf,), span=like.span, dtype=dtype)
