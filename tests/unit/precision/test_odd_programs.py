"""Policies on programs that are small, odd, or written by somebody in a hurry: numbers beside NumPy in float64, or an error that helps."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipelink_ir as pl
from pipelink_ir.grammar import parse, print_module
from pipelink_ir.ir.diagnostics import ProgramError, Report
from pipelink_ir.passes.manager import parse_passes, run_passes

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(31)

LINEAR = """op @linear(%x: tensor<...xKxT>, %w: tensor<KxMxT>, %b: tensor<MxT>) -> (%y: tensor<...xMxT>) {{
  memory {{ dtypes = [f16, f32] }}
  downgrade cpu {{ {0} }}
  compute {{ %y[..., j] = sum[k < K](%x[..., k] * %w[k, j]) + %b[j] }}
}}
"""


def drawn(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def ran(text: str, **arrays: Any) -> Array:
    return np.asarray(pl.compile(text, target="cpu", calibration="off")(**arrays).y)


@pytest.mark.parametrize("keys", ["dtype = i8, weights = i4", "weights = i4", "dtype = i8", "weights = i8"])
def test_a_weight_that_is_one_number(keys: str) -> None:
    text = f"""op @scaled(%x: tensor<Kxf32>, %w: tensor<f32>) -> (%y: tensor<f32>) {{
      downgrade cpu {{ {keys}, force = true }}
      compute {{ %y = sum[k < K](%x[k] * %w) }}
    }}
    pipeline @p(%x: tensor<Kxf32>, param %w: tensor<f32>) -> (%y: tensor<f32>) {{ %y = @scaled(%x, %w) }}
    """
    x, w = drawn(7), np.float32(1.7)
    assert abs(float(ran(text, x=x, w=w)) - float(x.astype(np.float64).sum() * w)) <= 7 * 1.7 * np.abs(x).max() / 127


@pytest.mark.parametrize(("terms", "instead"), [(100, "block(20)"), (97, "channel"), (96, None)])
def test_blocks_of_half_bytes_that_do_not_divide_a_sum(terms: int, instead: str | None) -> None:
    """What the message says instead is accepted."""
    def text(granularity: str) -> str:
        return LINEAR.format(f"weights = i4, granularity = {granularity}, force = true") + \
            f"pipeline @p(%x: tensor<Bx{terms}xf32>, param %w: tensor<{terms}x3xf32>, param %b: tensor<3xf32>) -> (%y: tensor<Bx3xf32>) {{ %y = @linear(%x, %w, %b) }}\n"

    if instead is not None:
        with pytest.raises(ProgramError, match="do not divide the sum") as found:
            pl.compile(text("block(32)"), target="cpu")
        assert f"'granularity = {instead}'" in str(found.value)
    pl.compile(text(instead or "block(32)"), target="cpu")


def test_a_sum_that_is_too_long_at_the_call_is_told_at_the_clause() -> None:
    """131,071 products of codes of i8 fit an i32, whatever they are; what does not fit names the clause that asks for it."""
    text = LINEAR.format("dtype = i8, ranges = dynamic, force = true") + \
        "pipeline @p(%x: tensor<BxKxf32>, param %w: tensor<KxMxf32>, param %b: tensor<Mxf32>) -> (%y: tensor<BxMxf32>) { %y = @linear(%x, %w, %b) }\n"
    run = pl.compile(text, target="cpu", calibration="off")
    ones, most = np.ones, 131_071
    full = run(x=-ones((1, most), np.float32), w=ones((most, 1), np.float32), b=ones(1, np.float32)).y
    assert abs(float(full[0, 0]) + most - 1) <= 1e-6 * most
    with pytest.raises(ProgramError, match="'K <= 131071' does not hold") as found:
        run(x=ones((1, most + 1), np.float32), w=ones((most + 1, 1), np.float32), b=ones(1, np.float32))
    assert found.value.diagnostics[0].span.line == 3


@pytest.mark.parametrize("keys", ["dtype = i8", "dtype = i8, scheme = affine", "dtype = u8, weights = i8, scheme = affine", "weights = i4", "dtype = f8e4m3",
                                  "dtype = i8, granularity = tensor"])
def test_what_divides_is_no_code(keys: str) -> None:
    """A small divisor has the code 0, and the quotient would be infinite; nor is it one where codes are made of the same edge for another operator."""
    text = f"""op @ratios(%x: tensor<NxKxf32>, %w: tensor<KxMxf32>) -> (%y: tensor<NxMxf32>) {{
      downgrade cpu {{ {keys}, force = true }}
      compute {{ %y[n, m] = sum[k < K](%x[n, k] / %w[k, m]) }}
    }}
    pipeline @p(%x: tensor<NxKxf32>, param %w: tensor<KxMxf32>) -> (%y: tensor<NxMxf32>) {{ %y = @ratios(%x, %w) }}
    """
    x, w = drawn(4, 3), np.array([[1e-3, 1], [1, -1], [100, 1]], np.float32)
    exact = (x.astype(np.float64)[:, :, None] / w).sum(1)
    assert np.abs(ran(text, x=x, w=w) - exact).max() <= 0.07 * np.abs(exact).max()


@pytest.mark.parametrize("value", ["%a[n, k] / %x[n, k]", "%a[n, k] + log(%x[n, k])", "%a[n, k] * rsqrt(%x[n, k])", "%a[n, k] * %x[n, k] ** -1"])
def test_what_is_infinite_at_zero_reads_no_codes(value: str) -> None:
    text = LINEAR.format("dtype = i8, ranges = dynamic, force = true") + f"""op @beside(%a: tensor<NxKxT>, %x: tensor<NxKxT>) -> (%y: tensor<NxKxT>) {{
      memory {{ dtypes = [f16, f32] }}
      downgrade cpu {{ dtype = i8, ranges = dynamic, force = true }}
      compute {{ %y[n, k] = {value} }}
    }}
    pipeline @p(%a: tensor<NxKxf32>, %x: tensor<NxKxf32>, param %w: tensor<KxMxf32>, param %b: tensor<Mxf32>) -> (%y: tensor<NxKxf32>, %z: tensor<NxMxf32>) {{
      %y = @beside(%a, %x)
      %z = @linear(%x, %w, %b)
    }}
    """
    a, x = drawn(3, 4), np.array([[1e-4, 1, 2, 3], [50, 1e-3, 1, 1], [4, 3, 100, 1]], np.float32)
    exact = {"/": a / x.astype(np.float64), "+": a + np.log(x.astype(np.float64)), "r": a / np.sqrt(x.astype(np.float64))}
    found = ran(text, a=a, x=x, w=drawn(4, 2), b=drawn(2))
    expected = exact["+" if "log" in value else "r" if "rsqrt" in value else "/"]
    assert np.abs(found - expected).max() <= 0.02 * np.abs(expected).max()


@pytest.mark.parametrize("terms", [33, 64])
@pytest.mark.parametrize("granularity", ["block(32)", "channel"])
def test_what_is_printed_of_half_bytes_whose_number_the_call_decides_is_read_again(granularity: str, terms: int) -> None:
    """Their bytes do not tell whether the last one holds one or two: who sums them up for a zero point is told by a size of its own."""
    text = LINEAR.format(f"dtype = i8, scheme = affine, weights = i4, granularity = {granularity}, ranges = dynamic, force = true") + \
        "pipeline @p(%x: tensor<BxKxf32>, param %w: tensor<KxMxf32>, param %b: tensor<Mxf32>) -> (%y: tensor<BxMxf32>) { %y = @linear(%x, %w, %b) }\n"
    passes = "frontend,place-devices,push-policies{arch=cpu},flatten,lower-precision{arch=cpu}"
    printed = print_module(run_passes(parse(text, "<text>"), parse_passes(passes), Report()))
    x, w, b = drawn(5, terms) + 4, drawn(terms, 6), drawn(6)
    step = (x.max() - min(x.min(), 0)) / 255
    bound = np.abs(x).sum(1)[:, None] * np.abs(w).max(0) / 14 + np.abs(w).sum(0) * step / 2
    for program in (text, printed):
        assert (np.abs(ran(program, x=x, w=w, b=b) - (x.astype(np.float64) @ w + b)) <= 1.01 * bound).all()


def test_who_reads_codes_of_others_does_without_those_that_are_not_made_after_all() -> None:
    """The border of the convolution has no code before the range is found, so it stays as it is; then the sum beside it has nobody's codes to read."""
    text = """op @conv(%x: tensor<HxWxf32>, %k: tensor<3x3xf32>) -> (%y: tensor<HxWxf32>) {
      memory { %x { border = constant(0) } }
      downgrade cpu { dtype = u8, scheme = affine, weights = i8, ranges = dynamic, force = true }
      compute { %y[h, w] = sum[i < 3, j < 3](%x[h + i - 1, w + j - 1] * %k[i, j]) }
    }
    op @plus(%x: tensor<HxWxf32>, %z: tensor<HxWxf32>) -> (%y: tensor<HxWxf32>) {
      downgrade cpu { dtype = u8, scheme = affine, ranges = dynamic, force = true }
      compute { %y[h, w] = %x[h, w] + %z[h, w] }
    }
    pipeline @p(%x: tensor<HxWxf32>, %z: tensor<HxWxf32>, param %k: tensor<3x3xf32>) -> (%y: tensor<HxWxf32>, %c: tensor<HxWxf32>) {
      %c = @conv(%x, %k)
      %y = @plus(%x, %z)
    }
    """
    x, z, k = drawn(6, 7), drawn(6, 7), drawn(3, 3)
    x[0, 0] = 1e4
    np.testing.assert_array_equal(ran(text, x=x, z=z, k=k), x + z)


def test_a_policy_for_all_leaves_codes_of_the_program_to_the_program(tmp_path: Path) -> None:
    """`@std.quantize` reads values as they are: its own scale may be much finer than one for all of a tensor."""
    program = tmp_path / "p.plir"
    program.write_text("""op @total(%x: tensor<NxKxf32>, %w: tensor<Kxf32>) -> (%y: tensor<Nxf32>) { compute { %y[n] = sum[k < K](%x[n, k] * %w[k]) } }
    pipeline @p(%x: tensor<NxKxf32>, param %w: tensor<Kxf32>) -> (%q: tensor<NxKxi8>, %s: tensor<Nxf32>) {
      %q = @std.quantize(%x) {scale = 0.0625}
      %s = @total(%x, %w)
    }
    """)
    (tmp_path / "pipelink.yaml").write_text("precision: {cpu: {dtype: i8, ranges: dynamic, force: true}}\n")
    x = drawn(4, 9)
    x[0, 0] = 1e4
    made = pl.compile(program, target="cpu")
    assert any(e.kind == "lowered" for e in made.ledger)
    np.testing.assert_array_equal(np.asarray(made(x=x, w=drawn(9)).q), np.clip(np.rint(x.astype(np.float64) / 0.0625), -128, 127))
