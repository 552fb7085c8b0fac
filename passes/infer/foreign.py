"""Names that other languages and libraries use, and what is written here instead: the help of messages about names that do not exist."""
from __future__ import annotations

from collections.abc import Iterable

from pipelink_ir.ir.diagnostics import did_you_mean
from pipelink_ir.ir.dtypes import DTYPES

WORDS = {
    "byte": "u8", "uchar": "u8", "uint8": "u8", "uint8_t": "u8", "char": "i8", "int8": "i8", "int8_t": "i8", "ushort": "u16", "uint16": "u16",
    "uint16_t": "u16", "short": "i16", "int16": "i16", "int16_t": "i16", "int": "i32", "int32": "i32", "int32_t": "i32", "long": "i64", "int64": "i64",
    "int64_t": "i64", "half": "f16", "float16": "f16", "fp16": "f16", "bfloat16": "bf16", "float": "f32", "float32": "f32", "fp32": "f32", "double": "f64",
    "float64": "f64", "fp64": "f64", "boolean": "bool", "fp8": "f8e4m3", "float8_e4m3fn": "f8e4m3", "float8_e5m2": "f8e5m2",
}
"""Dtypes by their names elsewhere."""

CALLS = {
    "sqr": "x ** 2", "square": "x ** 2", "pow2": "x ** 2", "cbrt": "x ** (1 / 3)", "powf": "pow(x, y)", "power": "pow(x, y)", "fabs": "abs(x)",
    "fabsf": "abs(x)", "expf": "exp(x)", "logf": "log(x)", "ln": "log(x)", "log10": "log(x) / log(10.0)", "sqrtf": "sqrt(x)", "rsqrtf": "rsqrt(x)",
    "rint": "round(x)", "roundf": "round(x)", "floorf": "floor(x)", "ceilf": "ceil(x)", "trunc": "i32(x), which drops the fraction",
    "relu": "max(x, 0)", "maximum": "max(a, b)", "minimum": "min(a, b)", "fmaxf": "fmax(a, b)", "fminf": "fmin(a, b)", "clip": "clamp(x, lo, hi)",
    "saturate": "clamp(x, 0, 1)", "fmod": "mod(a, b), with the sign of b", "remainder": "mod(a, b)", "logistic": "sigmoid(x)", "isfinite":
    "not (isnan(x) or isinf(x))", "if": "select(c, a, b)", "cond": "select(c, a, b)", "fma": "a * b + c", "lerp": "a + t * (b - a)", "average":
    "mean[k < K](x)", "median": "nth[k < K](x, (K - 1) floordiv 2)", "count": "sum[k < K](i32(c))", "asin": "atan2(x, sqrt(1 - x * x))",
    "atan": "atan2(x, 1)", "acos": "atan2(sqrt(1 - x * x), x)", "softmax": "an operator: '@softmax' of std.nn",
}
"""Functions by their names elsewhere, as expressions."""


def dtype_help(name: str, more: Iterable[str] = ()) -> str | None:
    """What a word that is no dtype may mean."""
    known = WORDS.get(name.lower())
    return f"'{known}' is meant, perhaps; the dtypes are {', '.join(DTYPES)}" if known is not None else did_you_mean(name, [*DTYPES, *more])


def call_help(name: str) -> str | None:
    """What a function that does not exist may mean."""
    if name.lower() in WORDS:
        return f"a cast is written '{WORDS[name.lower()]}(x)'"
    return f"write '{CALLS[name]}'" if name in CALLS else None
