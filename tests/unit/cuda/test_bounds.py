"""Interval arithmetic against brute force."""
from __future__ import annotations

import itertools

import pytest

from pipelink_ir.backends.cuda.bounds import Bounds, Interval, exact
from pipelink_ir.backends.loops.form import Choose, Const, Convert, Expr, Load, Op, Ref
from pipelink_ir.ir.dtypes import BOOL, F32, I8, I32, I64, U8, U16

FUNCTIONS = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "min": min, "max": max,
    "floordiv": lambda a, b: a // b if b else 0, "mod": lambda a, b: a % b if b else 0}
RANGES: list[Interval] = [(lo, hi) for lo in range(-4, 5) for hi in range(lo, 5)]


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_two_arguments(fn: str) -> None:
    for a, b in itertools.product(RANGES, RANGES):
        found = exact(fn, [a, b])
        assert found is not None
        values = [FUNCTIONS[fn](x, y) for x in range(a[0], a[1] + 1) for y in range(b[0], b[1] + 1)]
        assert found[0] <= min(values), (a, b)
        assert found[1] >= max(values), (a, b)
        if fn not in ("mod", "floordiv"):
            assert found == (min(values), max(values))


@pytest.mark.parametrize("fn", ["quot", "rest"])
def test_of_numbers_that_are_not_negative(fn: str) -> None:
    for a, b in itertools.product([r for r in RANGES if r[0] >= 0], [r for r in RANGES if r[0] >= 1]):
        found = exact(fn, [a, b])
        assert found is not None
        values = [x // y if fn == "quot" else x % y for x in range(a[0], a[1] + 1) for y in range(b[0], b[1] + 1)]
        assert found[0] <= min(values)
        assert found[1] >= max(values)


@pytest.mark.parametrize("fn", ["neg", "abs", "sign"])
def test_one_argument(fn: str) -> None:
    f = {"neg": lambda x: -x, "abs": abs, "sign": lambda x: (x > 0) - (x < 0)}[fn]
    for a in RANGES:
        values = [f(x) for x in range(a[0], a[1] + 1)]
        assert exact(fn, [a]) == (min(values), max(values))


def i32(name: str) -> Ref:
    return Ref(name, I32)


@pytest.mark.parametrize(("x", "want"), [
    (Const(7, I32), (7, 7)),
    (Load("x", Const(0, I64), U8, I32), (0, 255)),
    (Load("x", Const(0, I64), I32, I32), (-(2**31), 2**31 - 1)),
    (Op("+", (i32("a"), i32("a")), I32), (0, 200)),
    (Op("*", (i32("big"), Const(3, I32)), I32), (-(2**31), 2**31 - 1)),
    (Convert(i32("a"), U8, I32), (0, 100)),
    (Convert(i32("big"), U8, I32), (0, 255)),
    (Convert(i32("big"), I8, I32, True), (127, 127)),
    (Convert(i32("neg"), U16, I32, True), (0, 0)),
    (Convert(Ref("f", F32), I8, I32), (-128, 127)),
    (Convert(i32("a"), I64, I64), (0, 100)),
    (Choose(Ref("c", BOOL), i32("a"), i32("neg"), I32), (-9, 100)),
    (Choose(Op("<", (i32("a"), i32("big")), BOOL), i32("a"), i32("neg"), I32), (0, 100)),
    (Choose(Op("not", (Op(">=", (i32("neg"), i32("a")), BOOL),), BOOL), i32("a"), i32("neg"), I32), (0, 100)),
])
def test_expressions(x: Expr, want: Interval) -> None:
    bounds = Bounds({"a": (0, 100), "big": (2**30, 2**30 + 5), "neg": (-9, -3)})
    assert bounds.of(x) == want


@pytest.mark.parametrize("fn", ["<", "<=", ">", ">=", "==", "!="])
def test_comparisons_decide_only_what_holds_for_all(fn: str) -> None:
    python = {"<": int.__lt__, "<=": int.__le__, ">": int.__gt__, ">=": int.__ge__, "==": int.__eq__, "!=": int.__ne__}[fn]
    for a, b in itertools.product(RANGES, RANGES):
        values = {bool(python(x, y)) for x in range(a[0], a[1] + 1) for y in range(b[0], b[1] + 1)}
        known = Bounds({"a": a, "b": b}).decided(Op(fn, (i32("a"), i32("b")), BOOL))
        assert known == (values.pop() if len(values) == 1 else None)
