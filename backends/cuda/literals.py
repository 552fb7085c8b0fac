"""Literals of C++: every value comes back with its bits."""
from __future__ import annotations

import math
import struct

from pipelink_ir.backends.loops.form import Const
from pipelink_ir.ir.dtypes import BOOL, F32, I64

ATOM, UNARY = 16, 15
"""Precedence of a literal, and of one with a minus."""


def literal(x: Const) -> tuple[str, int]:
    """A constant as text, and its precedence."""
    if x.dtype is BOOL:
        return ("true" if x.value else "false"), ATOM
    if x.dtype.is_float:
        text = float_text(float(x.value), x.dtype is F32)
    else:
        text = int_text(int(x.value), x.dtype is I64)
    return text, UNARY if text.startswith("-") else ATOM


def int_text(value: int, wide: bool) -> str:
    """An int where it fits, else a long long; the lowest number of a type is no literal of C++."""
    if -(1 << 31) < value < 1 << 31:
        return str(value)
    if value == -(1 << 31):
        return "(-2147483647 - 1)"
    assert wide, value
    return "(-9223372036854775807ll - 1)" if value == -(1 << 63) else f"{value}ll"


def float_text(value: float, single: bool) -> str:
    """The shortest decimal that reads back as `value`, f32 or f64."""
    if math.isnan(value):
        return "pl::nan()" if single else "pl::nan64()"
    if math.isinf(value):
        return ("-" if value < 0 else "") + ("pl::inf()" if single else "pl::inf64()")
    text = _shortest_f32(value) if single else repr(value)
    if not any(c in text for c in ".e"):
        text += ".0"
    return text + ("f" if single else "")


def _shortest_f32(value: float) -> str:
    """With its two neighbours in f64 it must round to `value`: then so does the decimal itself, which lies between them."""
    if value == 0:
        return str(value)
    wanted = _f32(value)
    for digits in range(1, 18):
        text = f"{value:.{digits}g}"
        near = float(text)
        if all(_f32(v) == wanted for v in (near, math.nextafter(near, -math.inf), math.nextafter(near, math.inf))):
            return _plain(text, value)
    return value.hex()


def _plain(text: str, value: float) -> str:
    """`16777216` for `1.6777216e+07`."""
    if "e" in text and 1e-4 <= abs(value) < 1e10:
        plain = f"{float(text):.10f}".rstrip("0")
        if _f32(float(plain)) == _f32(value) and len(plain) <= 12:
            return plain + ("0" if plain.endswith(".") else "")
    return text.replace("e+0", "e").replace("e+", "e").replace("e-0", "e-")


def _f32(value: float) -> bytes | None:
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return None


