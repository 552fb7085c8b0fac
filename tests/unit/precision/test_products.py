"""What a policy asks of an operator's body: which operands are factors, which axis is a channel, which may be cut in blocks."""
from __future__ import annotations

import pytest

from pipelink_ir.passes.precision.products import block_axis, channel_axis, contracted, memory_order
from tests.unit.precision.coding import operator


def op(signature: str, body: str, result: str) -> str:
    return f"op @f({signature}) -> (%y: tensor<{result}>) {{ compute {{ {body} }} }}"


OPERATORS = {
    "linear": op("%x: tensor<MxKxf16>, %w: tensor<KxNxf16>, %b: tensor<Nxf16>", "%y[i, j] = sum[k < K](%x[i, k] * %w[k, j]) + %b[j]", "MxNxf16"),
    "transposed": op("%x: tensor<MxKxf16>, %w: tensor<NxKxf16>", "%y[i, j] = 2 * -sum[k < K](f32(%x[i, k]) * %w[j, k] / 3)", "MxNxf16"),
    "batched": op("%x: tensor<BxMxKxf16>, %w: tensor<BxKxNxf16>", "%y[b, i, j] = sum[k < K](%x[b, i, k] * %w[b, k, j])", "BxMxNxf16"),
    "1x1": op("%x: tensor<BxHxWxCxf16>, %w: tensor<CxOxf16>", "%y[n, h, w, o] = sum[c < C](%x[n, h, w, c] * %w[c, o])", "BxHxWxOxf16"),
    "3x3": op("%x: tensor<BxHxWxCxf16>, %w: tensor<Ox3x3xCxf16>",
              "%y[n, h, w, o] = sum[dy < 3, dx < 3, c < C](select(h + dy < H and w + dx < W, %x[n, h + dy, w + dx, c], 0) * %w[o, dy, dx, c])", "BxHxWxOxf16"),
    "depthwise": op("%x: tensor<BxHxWxCxf16>, %w: tensor<3x3xCxf16>", "%y[n, h, w, c] = sum[dy < 3, dx < 3 where h + dy < H and w + dx < W]"
                    "(%x[n, h + dy, w + dx, c] * %w[dy, dx, c])", "BxHxWxCxf16"),
    "depthwise by twos": op("%x: tensor<BxHxWx64xf16>, %w: tensor<3x64x2xf16>", "%y[n, h, w, c, m] = sum[dy < 3 where h + dy < H](%x[n, h + dy, w, c] * %w[dy, c, m])",
                            "BxHxWx64x2xf16"),
    "pooling": op("%x: tensor<HxCxf16>, %w: tensor<Cxf16>", "%y[c] = mean[h < H](%x[h, c]) * %w[c]", "Cxf16"),
    "grey": op("%x: tensor<HxWx3xf16>, %w: tensor<3xf16>", "%y[h, w] = sum[c < 3](0.3 * %x[h, w, c]) + %w[0]", "HxWxf16"),
    "triangle": op("%x: tensor<MxKxf16>, %w: tensor<KxNxf16>", "%y[i, j] = sum[k < min(i, K)](%x[i, k] * %w[k, j])", "MxNxf16"),
}


@pytest.mark.parametrize(("name", "operand", "is_factor", "axis", "block", "order"), [
    ("linear", "w", True, 1, 0, (1, 0)), ("linear", "x", True, 0, 1, ()), ("linear", "b", False, None, None, ()),
    ("transposed", "w", True, 0, 1, ()), ("batched", "w", True, 2, 1, ()), ("1x1", "w", True, 1, 0, (1, 0)), ("3x3", "w", True, 0, 3, ()),
    ("3x3", "x", True, 0, 3, ()), ("depthwise", "w", True, 2, 1, ()), ("depthwise by twos", "w", True, 1, 0, ()),
    ("pooling", "x", False, 1, 0, ()), ("pooling", "w", False, None, None, ()), ("grey", "x", False, 1, 2, ()), ("grey", "w", False, None, None, ()),
    ("triangle", "w", True, 1, None, (1, 0))])
def test_what_a_body_says(name: str, operand: str, is_factor: bool, axis: int | None, block: int | None, order: tuple[int, ...]) -> None:
    found = operator(OPERATORS[name])
    assert contracted(found, operand) is is_factor
    assert channel_axis(found, operand) == axis
    assert block_axis(found, operand) == block
    assert memory_order(found, operand) == order


def test_a_list_of_operands_is_a_factor() -> None:
    found = operator("""op @f(%x.0: tensor<MxCxf16>, %x.1: tensor<MxDxf16>, %w: tensor<(C + D)xNxf16>) -> (%y: tensor<MxNxf16>) { compute {
      %x[i, c in 0..C] = %x.0[i, c]
      %x[i, c in C..C + D] = %x.1[i, c - C]
      %y[i, j] = sum[c < C + D](%x[i, c] * %w[c, j])
    } }""")
    assert [contracted(found, o) for o in ("x.0", "x.1", "w")] == [True, True, True]
