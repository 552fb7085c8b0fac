"""Rounding, saturating and wrapping as the language page says it, in Python's exact integers and fractions: the independent source of the tests of dtypes."""
from __future__ import annotations

from fractions import Fraction
from math import copysign, inf, isinf, isnan, nan, trunc

INTEGERS = {"u8": (0, 255), "i8": (-128, 127), "u16": (0, 65535), "i16": (-32768, 32767), "i32": (-2**31, 2**31 - 1), "i64": (-2**63, 2**63 - 1)}
FLOATS = {"f8e4m3": (4, -6, 448.0, nan), "f8e5m2": (3, -14, 57344.0, inf), "f16": (11, -14, 65504.0, inf), "bf16": (8, -126, 255 * 2.0**120, inf),
          "f32": (24, -126, (2**24 - 1) * 2.0**104, inf), "f64": (53, -1022, (2**53 - 1) * 2.0**971, inf)}
"""Bits of the significand, the exponent of the smallest normal number, the largest number, and what stands beyond it."""

Number = int | float | bool


def cast(value: Number, to: str, saturate: bool = False) -> Number:
    """A cast of the language."""
    if to == "bool":
        return value != 0
    if to in FLOATS:
        return rounded(value, to)
    low, high = INTEGERS[to]
    if isinstance(value, float):
        if isnan(value):
            return 0
        if isinf(value):
            return low if value < 0 else high
        return min(max(trunc(value), low), high)
    return min(max(int(value), low), high) if saturate else (int(value) - low) % (high - low + 1) + low


def rounded(value: Number, to: str) -> float:
    """To the nearest, half to even, once."""
    bits, least, top, beyond = FLOATS[to]
    if isinstance(value, float) and (isnan(value) or value == 0):
        return value
    if isinstance(value, float) and isinf(value):
        return copysign(beyond, value)
    exact = abs(Fraction(value))
    if exact == 0:
        return 0.0
    exponent = max(_log2(exact), least)
    step = Fraction(2) ** (exponent - bits + 1)
    result = round(exact / step) * step
    return float(copysign(beyond if result > Fraction(top) else float(result), value))


def _log2(x: Fraction) -> int:
    """The largest k with 2**k <= x."""
    k = x.numerator.bit_length() - x.denominator.bit_length()
    return k if Fraction(2) ** k <= x else k - 1


def ties(to: str) -> list[float]:
    """Numbers halfway between neighbours of a float dtype, a little beside them, and around its ends."""
    bits, least, top, _ = FLOATS[to]
    out: list[float] = []
    smallest = 2.0 ** (least - bits + 1)
    for x in (1.0, 2.0**bits - 1, 2.0**bits - 2, 3 * 2.0**(bits - 2), 2.0**(least), smallest, 2 * smallest, 5 * smallest):
        step = max(2.0 ** (_log2(Fraction(x)) - bits + 1), smallest)
        half = x + step / 2
        out += [x, half, half * (1 + 2.0**-40), half * (1 - 2.0**-40)]
    last = 2.0 ** (_log2(Fraction(top)) - bits + 1)
    if to != "f64":
        out += [top, top + last / 2, (top + last / 2) * (1 - 2.0**-45), (top + last / 2) * (1 + 2.0**-45)]
    out += [smallest / 2, smallest / 2 * (1 + 2.0**-40), smallest / 4] if to != "f64" else []
    return [*out, *(-x for x in out)]
