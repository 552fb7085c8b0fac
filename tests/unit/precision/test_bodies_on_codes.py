"""What the bodies and contracts of operators become on codes, as text, and what cannot be."""
from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from pipelink_ir.grammar.printer import print_operator
from pipelink_ir.ir.nodes import Operator
from pipelink_ir.passes.precision.codes import Codes
from pipelink_ir.passes.precision.quantised import quantised
from tests.unit.precision.bodies import AFFINE, ATTENTION, DEPTHWISE, EIGHTH, FOUND, JOINED, LINEAR, PLAIN, SYMMETRIC, made, weights
from tests.unit.precision.coding import conditions, operator


def body(op: Operator) -> str:
    text = print_operator(op)
    return re.sub(r" +", " ", text[text.index("compute"):])


def test_a_linear_layer_is_a_plain_product_of_bytes() -> None:
    """The form that kernels of products know: two reads of bytes, a sum of its own."""
    assert print_operator(made(LINEAR, x=AFFINE, w=weights(order=(1, 0)))) == """op @f.1.i8(%x: tensor<HxDxu8>, %w: tensor<NxDxi8>, %b: tensor<Nxf16>, %w.scale: tensor<Nxf32>, %w.sum: tensor<Nxi32>)
    -> (%y: tensor<HxNxf32>) {
  where D <= 65793
  compute {
    %acc[i, j] = sum[d < D](%x[i, d] * %w[j, d])
    %y[i, j]   = f32(%acc[i, j] - 37 * %w.sum[j]) * (0.05 * %w.scale[j]) + %b[j]
  }
}"""


def test_scales_found_at_the_call() -> None:
    out = made(LINEAR, x=FOUND, w=weights())
    assert [o.name for o in out.operands] == ["x", "w", "b", "x.scale", "x.zero", "w.scale", "w.sum"]
    assert "f32(%acc[i, j] - %x.zero * %w.sum[j]) * (%x.scale * %w.scale[j]) + %b[j]" in body(out)


def test_a_weight_that_is_no_parameter_is_summed_in_place() -> None:
    out = made(LINEAR, x=AFFINE, w=Codes("i8", "channel", axis=1))
    assert "%w.codes[j] = sum[d < D](%w[d, j])" in body(out)


def test_codes_of_four_bits_are_taken_apart_where_they_are_read() -> None:
    out = made(PLAIN, w=Codes("i4", "block", axis=0, size=32, order=(1, 0), param=True))
    assert ("sum[d < D](%x[i, d] * f16(f32((select(d mod 2 == 0, %w[j, d floordiv 2], %w[j, d floordiv 2] floordiv 16) + 8) mod 16 - 8) * "
            "%w.scale[d floordiv 32, j]))") in body(out)
    assert [o.type.dtype for o in out.operands] == ["f16", "u8", "f32"]


def test_a_list_of_operands_is_joined_as_codes() -> None:
    text = body(made(JOINED, **{"x.0": AFFINE, "x.1": AFFINE, "k": weights()}))
    assert "%x[n, h, c in 0..C] = %x.0[n, h, c]" in text
    assert "%acc[n, h, o] = sum[t < 3, c < C + D](%x[n, h + t - 1, c] * %k[c, o])" in text


def test_sums_of_blocks() -> None:
    text = body(made(PLAIN.replace("xf16>", "xf32>"), x=AFFINE, w=Codes("i8", "block", axis=0, size=32, param=True)))
    assert "%acc[i, j, b] = sum[d in b * 32..min(b * 32 + 32, D)](%x[i, d] * %w[d, j])" in text
    assert "%y[i, j] = sum[b < D ceildiv 32](f32(%acc[i, j, b] - 37 * %w.sum[b, j]) * (0.05 * %w.scale[b, j]))" in text


@pytest.mark.parametrize(("terms", "end"), [(64, "b * 32 + 32"), (67, "min(b * 32 + 32, 67)")])
def test_the_last_block_ends_with_its_axis(terms: int, end: str) -> None:
    text = body(made(re.sub(r"\bD\b|D(?=x)|(?<=x)D", str(terms), PLAIN).replace("xf16>", "xf32>"), x=AFFINE, w=Codes("i8", "block", axis=0, size=32, param=True)))
    assert f"sum[d in b * 32..{end}](%x[i, d] * %w[d, j])" in text


def test_scores_of_attention_keep_their_scale_outside() -> None:
    text = body(made(ATTENTION, q=SYMMETRIC, k=SYMMETRIC, v=SYMMETRIC))
    assert "%acc[b, i, j] = sum[d < D](%q[b, i, d] * %k[b, j, d])" in text
    assert "%s[b, i, j] = scale * (f32(%acc[b, i, j]) * 0.0025)" in text
    assert "(%e[b, i, j] * f16(%v[b, j, d])) * 0.05 / %z[b, i]" in text


def test_what_a_contract_keeps_and_loses() -> None:
    op = operator("""
      /// Says what it does.
      op @f(%x: tensor<HxDxf16>, %w: tensor<DxNxf16>, %i: tensor<Hxi32>, eps: f32 = 0.5) -> (%y: tensor<HxNxf16>, %z: tensor<HxDxf16>) {
        where D mod 2 == 0
        memory { dtypes = [f16, f32], border = replicate, align = 16, %w { contiguity = dense }, %z { inplace = %x } }
        semantic { %x { range = [0, 1] }, %y { range = [0, 9] } }
        execution { max_streams = 2 }
        compile { fast_math = true }
        downgrade sm_75 { dtype = i8, budget = 0.01 }
        schedule { %y { map = grid } }
        compute {
          %y[i, j] = sum[d < D](%x[i, d + %i[i]] * %w[d, j]) + eps
          %z[i, d] = 1
        }
        gradient { %dx[i, d] = 0 }
      }""")
    out = quantised(op, {"x": SYMMETRIC, "w": weights()}, "f.1")
    assert not isinstance(out, str), out
    text = print_operator(out)
    assert out.doc == op.doc
    assert conditions(out) == ["D mod 2 == 0", "D <= 131071"]
    assert out.downgrades == op.downgrades
    assert out.gradient is None
    assert "memory { align = 16, %w { contiguity = dense }, %x { border = replicate }, %i { border = replicate } }" in re.sub(r"\s+", " ", text)
    assert "%y { range = [0, 9] }" in text
    assert "max_streams = 2" in text
    assert "fast_math = true" in text
    for gone in ("dtypes", "inplace", "[0, 1]", "schedule"):
        assert gone not in text
    assert [p.name for p in out.params] == ["x", "w", "i", "eps", "w.scale"]

# ------------------------------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(("text", "codes", "why"), [
    (PLAIN, {"x": Codes("u8", .05, 256)}, "the zero point 256 of '%x' is no u8"), (PLAIN, {"x": Codes("i8", .05, -129)}, "the zero point -129 of '%x' is no i8"),
    (PLAIN, {"x": Codes("f8e4m3", .05, 1)}, "f8e4m3 has no zero point"), (PLAIN, {"x": Codes("i8", 0.0)}, "the scale of '%x' is 0.0"),
    (PLAIN, {"x": Codes("i8", float("nan"))}, "the scale of '%x' is nan"), (PLAIN, {"x": Codes("i8", float("inf"))}, "the scale of '%x' is inf"),
    (PLAIN, {"z": SYMMETRIC}, "'%z' is no operand of floats"), (PLAIN.replace("DxNxf16", "DxNxi8"), {"w": SYMMETRIC}, "'%w' is no operand of floats"),
    (PLAIN, {"w": Codes("i4", "channel", axis=0, packed=1)}, "'N' does not follow from the bytes of '%w', two codes in each"),
    (DEPTHWISE.replace("BORDER", "border = constant(0)"), {"x": FOUND},
     "its border is a constant, which has no code before ranges are found at the call (calibrated ranges or 'scheme = symmetric' would give it one)"),
    (DEPTHWISE.replace("BORDER", "border = constant(1.5)"), {"x": Codes("i8", "tensor")},
     "its border is a constant, which has no code before ranges are found at the call (calibrated ranges would give it one)"),
    (DEPTHWISE.replace("BORDER", "border = constant(9)"), {"x": SYMMETRIC}, "its border, 9, is beyond what its codes stand for"),
    (DEPTHWISE.replace("BORDER", "border = constant(1000)"), {"x": EIGHTH}, "its border, 1000, is beyond what its codes stand for"),
    (DEPTHWISE.replace("BORDER", "border = reflect"), {"x": Codes("i8", "block", axis=2, size=2)}, "its border along the blocks of '%x' is reflect"),
    (DEPTHWISE.replace("BORDER", "border = constant(-inf)"), {"x": SYMMETRIC}, "its border is no finite number"),
    ('op @f(%x: tensor<Nxf16>) -> (%y: tensor<Nxf16>) { compute { %y[i] = %x[i] } kernel cuda "f.cu" { entry = "f" } }', {"x": SYMMETRIC},
     "it is computed by a kernel of its own")])
def test_what_cannot_be(text: str, codes: Mapping[str, Codes], why: str) -> None:
    assert quantised(operator(text), codes, "f.1") == why
