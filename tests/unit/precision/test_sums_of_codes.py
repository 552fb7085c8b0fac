"""Sums of codes: they fit i32 or are refused, and those that a zero point of the other factor is multiplied by."""
from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from pipelink_ir.grammar.printer import print_operator
from pipelink_ir.passes.precision.code_sums import summer
from pipelink_ir.passes.precision.codes import Codes, dequantiser
from pipelink_ir.passes.precision.quantised import quantised
from pipelink_ir.runtime.compile import compile as compile_program
from tests.emulated import EMULATED
from tests.unit.precision.bodies import AFFINE, CONVOLUTION, EIGHTH, PLAIN, RNG, SYMMETRIC, made, op, weights
from tests.unit.precision.coding import called, conditions, in_memory, operator

# ------------------------------------------------------------------------------------------------------------- sums that fit i32


@pytest.mark.parametrize("target", ["reference", "cpu", EMULATED])
@pytest.mark.parametrize("terms", [2, 4, 64, 1000])
def test_sums_of_bytes_do_not_saturate(target: str, terms: int) -> None:
    """255 * 127 a term: pairs of them are beyond 16 bits."""
    op = made(op_of("1x2"), x=Codes("u8", 1.0), w=Codes("i8", 1.0))
    x, w = np.full((1, terms), 255, np.uint8), np.full((terms, 2), 127, np.int8)
    w[:, 1] = -128
    got, = called(op, x, w, target=target)
    assert got.tolist() == [[255 * 127 * terms, -255 * 128 * terms]]


def op_of(result: str) -> str:
    h, n = result.split("x")
    return op(f"%x: tensor<{h}xDxf16>, %w: tensor<Dx{n}xf16>", "%y[i, j] = sum[d < D](%x[i, d] * %w[d, j])", f"{result}xf32")


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_the_largest_sum_that_fits(target: str) -> None:
    terms = (2**31 - 1) // (255 * 128)
    op = made(PLAIN.replace("D", str(terms)), x=Codes("u8", 1.0), w=Codes("i8", 1.0))
    got, = called(op, np.full((1, terms), 255), np.full((terms, 1), -128), target=target)
    assert got.tolist() == [[np.float32(-255 * 128 * terms)]]
    why = quantised(operator(PLAIN.replace("D", str(terms + 1))), {"x": Codes("u8", 1.0), "w": Codes("i8", 1.0)}, "f.1")
    assert why == f"a sum of {terms + 1} products of codes up to 32640 may not fit i32"


@pytest.mark.parametrize(("text", "codes", "want"), [
    (PLAIN, {"x": SYMMETRIC, "w": weights()}, ["D <= 131071"]), (PLAIN, {"x": AFFINE, "w": weights()}, ["D <= 65793"]),
    (PLAIN, {"x": SYMMETRIC, "w": Codes("i4", "block", axis=0, size=32)}, []), (PLAIN, {"w": weights()}, []), (PLAIN, {"x": EIGHTH, "w": EIGHTH}, []),
    (CONVOLUTION.replace("BORDER", "border = constant(0)"), {"x": SYMMETRIC, "k": weights(3)}, ["C <= 14563"]),
    (op("%x: tensor<BxHxWxCxf16>", "%y[b, c] = mean[h < H, w < W](%x[b, h, w, c])", "BxCxf32"), {"x": AFFINE}, ["H * W <= 8421504"])])
def test_conditions_on_sizes(text: str, codes: Mapping[str, Codes], want: list[str]) -> None:
    """A sum of products of codes up to 128 * 128 or 255 * 128, or of codes up to 255, below 2 ** 31."""
    assert conditions(made(text, **codes)) == want

# ------------------------------------------------------------------------------------------------- sizes that bytes do not say


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize("terms", [6, 7])
def test_sums_and_values_of_four_bits_whose_number_is_open(target: str, terms: int) -> None:
    """It is an attribute, which the pipeline gives as one of its own sizes."""
    codes = Codes("i4", "block", axis=0, size=4, param=True)
    op = operator(PLAIN)
    total, back = summer(op, "w", codes, "w.sum"), dequantiser(op.operands[1].type, codes, "w.real")
    assert total is not None
    assert [a.name for a in total.attributes] == [a.name for a in back.attributes] == ["D0"]
    text = f"""{print_operator(total)}
{print_operator(back)}
pipeline @main(%x: tensor<KxNxf16>, %q: tensor<((K + 1) floordiv 2)xNxu8>, %scale: tensor<(K ceildiv 4)xNxf32>) -> (%s: tensor<(K ceildiv 4)xNxi32>, %y: tensor<KxNxf16>) {{
  %s = @w.sum(%q) {{D0 = K}}
  %r = @w.real(%q, %scale) {{D0 = K}}
  %y = @add(%r, %x)
}}
op @add(%a: tensor<HxWxf16>, %b: tensor<HxWxf16>) -> (%c: tensor<HxWxf16>) {{ compute {{ %c[h, w] = %a[h, w] + %b[h, w] }} }}
"""
    q = RNG.integers(-7, 8, (terms, 3))
    scale = np.full((2, 3), 0.5, np.float32)
    given = {"x": np.zeros((terms, 3), np.float16), "q": in_memory(q, codes), "scale": scale}
    out = compile_program(text, target).executable(given)
    np.testing.assert_array_equal(out["s"], [q[:4].sum(0), q[4:].sum(0)])
    np.testing.assert_array_equal(out["y"], q / 2)
