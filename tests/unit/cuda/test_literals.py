"""Literals of C++: what is written reads back with its bits."""
from __future__ import annotations

import math
import random
import re
import struct

import numpy as np
import pytest

from pipelink_ir.backends.cuda.literals import ATOM, UNARY, float_text, int_text, literal
from pipelink_ir.backends.loops.form import Const
from pipelink_ir.ir.dtypes import BOOL, F32, I32, I64

DECIMAL = re.compile(r"-?(\d+\.\d*|\d+)(e-?\d+)?f?")


def f32(bits: int) -> float:
    value: float = struct.unpack("<f", struct.pack("<I", bits))[0]
    return value


@pytest.mark.parametrize(("value", "text"), [
    (0.1, "0.1f"), (-0.0, "-0.0f"), (0.0, "0.0f"), (1.0, "1.0f"), (16777216.0, "16777216.0f"), (1e10, "1e10f"), (1e-45, "1e-45f"), (3.4028234663852886e38, "3.4028235e38f"),
    (math.inf, "pl::inf()"), (-math.inf, "-pl::inf()"), (math.nan, "pl::nan()")])
def test_f32(value: float, text: str) -> None:
    assert float_text(float(np.float32(value)), True) == text


@pytest.mark.parametrize(("value", "text"), [(0.1, "0.1"), (5e-324, "5e-324"), (-0.0, "-0.0"), (1e22, "1e+22"), (math.inf, "pl::inf64()"), (math.nan, "pl::nan64()"), (3.0, "3.0")])
def test_f64(value: float, text: str) -> None:
    assert float_text(value, False) == text


def test_random_f32_read_back() -> None:
    chance = random.Random(1)
    values = [v for v in (f32(chance.getrandbits(32)) for _ in range(20000)) if math.isfinite(v)]
    values += [f32(b) for b in (1, 2, 0x7FFFFF, 0x800000, 0x7F7FFFFF, 0x3F800001)]
    for v in values:
        text = float_text(v, True)
        assert DECIMAL.fullmatch(text), text
        # NumPy reads decimal text straight to f32, as a C++ compiler does.
        assert np.float32(text[:-1]).tobytes() == np.float32(v).tobytes()


def test_random_f64_read_back() -> None:
    chance = random.Random(2)
    for _ in range(20000):
        v = struct.unpack("<d", struct.pack("<Q", chance.getrandbits(64)))[0]
        if math.isfinite(v):
            assert struct.pack("<d", float(float_text(v, False))) == struct.pack("<d", v)


@pytest.mark.parametrize(("value", "wide", "text"), [
    (5, False, "5"), (-5, True, "-5"), (2**31 - 1, False, "2147483647"), (-(2**31), False, "(-2147483647 - 1)"), (2**31, True, "2147483648ll"),
    (-(2**31), True, "(-2147483647 - 1)"), (2**63 - 1, True, "9223372036854775807ll"), (-(2**63), True, "(-9223372036854775807ll - 1)"), (-(2**40), True, "-1099511627776ll")])
def test_integers(value: int, wide: bool, text: str) -> None:
    assert int_text(value, wide) == text


def test_precedence() -> None:
    assert literal(Const(True, BOOL)) == ("true", ATOM)
    assert literal(Const(-3, I32)) == ("-3", UNARY)
    assert literal(Const(3, I64)) == ("3", ATOM)
    assert literal(Const(-math.inf, F32)) == ("-pl::inf()", UNARY)
