"""Ranges of values: integers wrap, and no number is too large."""
from __future__ import annotations

from math import inf

import pytest

from pipelink_ir.grammar import parse
from pipelink_ir.ir.diagnostics import Report
from pipelink_ir.passes.contracts.ranges import Interval, result_ranges
from pipelink_ir.passes.infer.operator import typed_operator
from pipelink_ir.passes.manager import parse_passes, run_passes


def _range(value: str, dtype: str, result: str) -> Interval:
    text = f"op @f(%x: tensor<Nx{dtype}>) -> (%y: tensor<Nx{result}>) {{ compute {{ %y[n] = {value} }} }}\n" + \
        f"pipeline @p(%x: tensor<Nx{dtype}>) -> (%y: tensor<Nx{result}>) {{ %y = @f(%x) }}"
    module = run_passes(parse(text, "ranges.plir"), parse_passes("resolve,infer-types"), Report())
    return result_ranges(typed_operator(module.operators[0]), {"x": Interval(0, 255, True, True)})["y"]


@pytest.mark.parametrize(("value", "lo", "hi"), [
    ("i32(%x[n]) * 2 + 1", 1, 511),
    ("sum[k < 3](i32(%x[n]))", 0, 765),
    ("i32(%x[n]) * 100000000", -inf, inf),                    # 25500000000 wraps to a negative number
    ("(i32(%x[n]) ** 7) ** 31", -inf, inf),                   # beyond any float
    ("sum[k < 100000000](i32(%x[n]))", -inf, inf),
    ("sum[k < n](i32(%x[n]))", -inf, inf),
])
def test_integers(value: str, lo: float, hi: float) -> None:
    found = _range(value, "u8", "i32")
    assert (found.lo, found.hi) == (lo, hi)


def test_floats_do_not_wrap() -> None:
    found = _range("f32(%x[n]) * 100000000.0", "u8", "f32")
    assert (found.lo, found.hi) == (0, 255e8)
    assert _range("sum[k < n](f32(%x[n]))", "u8", "f32") == Interval(0, inf)
