"""Number spellings: each has the obvious value or is refused at its place, and every float survives printing."""
from __future__ import annotations

import math
import random
import struct

import pytest

from pipelink_ir.grammar import parse, print_module
from pipelink_ir.grammar.printer import print_expr
from pipelink_ir.ir.diagnostics import ProgramError
from pipelink_ir.ir.nodes import Apply, Const, FloatLit, IntLit, Setting, Target, Value


def value(text: str) -> Value:
    return parse(f"target @t {{ a = {text} }}", "t").targets[0].settings[0].value


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("7", 7), ("007", 7), ("123456789012", 123456789012), ("-5", -5), ("9223372036854775807", 2**63 - 1),
                                              ("-9223372036854775808", -(2**63))])
def test_integers(text: str, number: int) -> None:
    assert value(text) == IntLit(number)


@pytest.mark.parametrize(("text", "number"), [
    ("2.2", 2.2), ("0.5", 0.5), ("1e5", 1e5), ("1E5", 1e5), ("1e+5", 1e5), ("1e-5", 1e-5), ("12.5e-3", 0.0125), ("0.0", 0.0), ("-0.0", -0.0), ("-1e-2", -0.01),
    ("5e-324", 5e-324), ("1.7976931348623157e308", 1.7976931348623157e308), ("0e999", 0.0), ("0.1000000000000000055511151231257827", 0.1)])
def test_floats(text: str, number: float) -> None:
    assert value(text) == FloatLit(number)


@pytest.mark.parametrize("text", ["2.2.1", "1_000", "0x10", "0b1", ".5", "5.", "1.e5", "1e", "1e+", "2L", "1.5f", "9223372036854775808", "1" * 5000, "1e309", "1e-400", "1_0.5",
                                  "12abc", "1..", "0x1p3"])
def test_refused_where_it_stands(text: str) -> None:
    with pytest.raises(ProgramError) as e:
        value(text)
    (error,) = e.value.diagnostics
    assert error.code == "PL1001"
    assert error.span.column == len("target @t { a = ") + (2 if text == "1.." else 1)


@pytest.mark.parametrize("text", ["+1", "- -", "1 2"])
def test_signs(text: str) -> None:
    with pytest.raises(ProgramError):
        value(text)


def test_minus_two_to_the_63_needs_its_minus() -> None:
    for text in ("-(9223372036854775808)", "3 - 9223372036854775808", "-9223372036854775808 ** 2"):
        with pytest.raises(ProgramError, match="beyond 64 bits"):
            value(text)


def survives(number: float) -> bool:
    module = parse("target @t { a = 0 }", "t")
    written = print_module(type(module)((Target("t", (Setting("a", FloatLit(number)),)),)))
    return parse(written, "t").targets[0].settings[0].value == FloatLit(number)


@pytest.mark.parametrize("number", [-0.155728638, 1 / 3, 1e-45, 3.4028235e38, 0.1, 5e-324, -0.0, 1e16, 1e22, 123456789.0, 2.0**-1074, 1.7976931348623157e308])
def test_known_floats_survive(number: float) -> None:
    assert survives(number)


def test_ten_thousand_bit_patterns_survive() -> None:
    rng = random.Random(7)
    lost = []
    for _ in range(5000):
        f32 = struct.unpack("<f", struct.pack("<I", rng.getrandbits(32)))[0]
        f64 = struct.unpack("<d", struct.pack("<Q", rng.getrandbits(64)))[0]
        lost += [x for x in (f32, f64) if math.isfinite(x) and value(print_expr(FloatLit(x))) != FloatLit(x)]
    assert lost == []


def test_infinities_and_nan_are_constants() -> None:
    assert print_expr(FloatLit(math.inf)) == "inf"
    assert print_expr(FloatLit(-math.inf)) == "-inf"
    assert print_expr(FloatLit(math.nan)) == "nan"
    assert value("[inf, -inf, nan]") == value(print_expr(value("[inf, -inf, nan]")))
    assert value("-inf") == Apply("neg", (Const("inf"),))
