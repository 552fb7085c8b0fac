"""Attention on a device, by the copy engine and wgmma where it has them, and by mma.sync: against NumPy in f64. One program each serves several lengths."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pipelink_ir as pl
from tests.unit.cuda_emulated.test_attention import by_hand, close, program, qkv, sized

pytestmark = pytest.mark.gpu
Array = np.ndarray[Any, Any]


def attend(p: pl.Compiled, **arrays: Array) -> Array:
    return np.asarray(p(**arrays).o)


def test_sizes_that_the_call_tells() -> None:
    """Heads of any size: kernels for 64 and for 128, and those behind them for what is longer or begins where the copy engine cannot."""
    text = program().replace("BxGx", "BxHx").replace("where H mod G == 0, H >= G, G >= 1, S >= 1, B >= 1", "")
    p = pl.compile(text, target="cuda")
    for sizes in ((2, 3, 3, 260, 387, 64, 64), (1, 3, 3, 131, 513, 96, 96), (1, 70, 70, 300, 300, 128, 128), (1, 1, 1, 3, 1, 128, 72),
                  (1, 2, 2, 65, 140, 20, 20), (1, 1, 1, 70, 90, 200, 40)):
        q, k, v = qkv(*sizes)
        close(attend(p, q=q, k=k, v=v), by_hand(q, k, v))


@pytest.mark.parametrize(("dtype", "size"), [("f16", 64), ("bf16", 128)])
def test_causal_with_heads_in_groups(dtype: str, size: int) -> None:
    text = program("j < L where j <= i + (L - S)", head="h floordiv 2", dtype=dtype)
    p = pl.compile(sized(text, B=2, H=6, G=3, D=size, E=size), target="cuda")
    for s, n in ((300, 300), (65, 387), (1, 130)):
        q, k, v = qkv(2, 6, 3, s, n, size, size, dtype)
        hidden = n - s + s // 2 + 1
        v[0, :, hidden:, 3] = np.inf
        v[1, :, -1, 5] = np.nan
        i, j = np.ogrid[:s, :n]
        close(attend(p, q=q, k=k, v=v), by_hand(q, k, v, j <= i + n - s), dtype)


def test_lengths_and_rows_without_keys() -> None:
    text = program("j < L where j < %length[b]", more=", %length: tensor<Bxi32>", args=", %length",
                   out="select(%z[b, h, i] == 0, 0.25, %w[b, h, i, d] / %z[b, h, i])")
    p = pl.compile(sized(text, B=3, H=2, G=2, D=96, E=96), target="cuda")
    for s, n in ((140, 300), (65, 77)):
        q, k, v = qkv(3, 2, 2, s, n, 96, 96)
        length = np.array([77, 0, n - 1], np.int32)
        v[0, :, 77:], v[2, :, n - 1:] = np.nan, np.inf
        seen = (np.arange(n) < length[:, None])[:, None, None]
        close(attend(p, q=q, k=k, v=v, length=length), by_hand(q, k, v, seen, empty=0.25))


@pytest.mark.parametrize("size", [32, 64, 80, 128])
def test_masks_of_keys(size: int) -> None:
    """Bits say which keys are seen, beside bounds; what is hidden may be infinite, and rows may see nothing."""
    text = program("j < L where %mask[b, j] and j <= i + (L - S)", more=", %mask: tensor<BxLxbool>", args=", %mask", empty="semantic { empty = zero }",
                   out="select(%z[b, h, i] == 0, 0.25, %w[b, h, i, d] / %z[b, h, i])")
    p = pl.compile(sized(text, B=3, H=4, G=4, D=size, E=size), target="cuda")
    rng = np.random.default_rng(5)
    for s, n in ((140, 300), (65, 77), (512, 512)):
        q, k, v = qkv(3, 4, 4, s, n, size, size)
        mask = rng.random((3, n)) < 0.5
        mask[1], mask[2] = np.arange(n) < n // 2 + 3, False
        v[0, :, ~mask[0]], k[1, :, n // 2 + 3:] = np.inf, np.nan
        i, j = np.ogrid[:s, :n]
        close(attend(p, q=q, k=k, v=v, mask=mask), by_hand(q, k, v, mask[:, None, None] & (j <= i + n - s), empty=0.25))


@pytest.mark.parametrize("size", [24, 32, 48, 80, 96, 112])
def test_terms_and_columns_that_fill_no_line(size: int) -> None:
    p = pl.compile(sized(program("j < L where j <= i + (L - S)"), B=2, H=40, G=40, D=size, E=128 - size if size < 96 else size), target="cuda")
    for s, n in ((197, 197), (65, 387)):
        q, k, v = qkv(2, 40, 40, s, n, size, 128 - size if size < 96 else size)
        i, j = np.ogrid[:s, :n]
        close(attend(p, q=q, k=k, v=v), by_hand(q, k, v, j <= i + n - s))


@pytest.mark.parametrize(("d", "e"), [(64, 64), (48, 40)])
def test_more_queries_a_block_where_sizes_are_known(d: int, e: int) -> None:
    """Heads for one turn of all blocks of an H200, where three teams are better than two."""
    p = pl.compile(sized(program(dtype="bf16"), B=2, H=66, G=66, S=370, L=300, D=d, E=e), target="cuda")
    q, k, v = qkv(2, 66, 66, 370, 300, d, e, "bf16")
    q[0, 3, 200] *= 1e30
    close(attend(p, q=q, k=k, v=v), by_hand(q, k, v), "bf16")


def test_scores_too_large_for_one_product() -> None:
    p = pl.compile(sized(program(dtype="bf16"), B=1, H=4, G=4, D=128, E=128), target="cuda")
    q, k, v = qkv(1, 4, 4, 140, 300, 128, 128, "bf16")
    q[0, 0, 3, 0], q[0, 1, 4, 1], q[0, 2, 5, 2] = np.inf, -np.inf, np.nan
    q[0, 3] *= 200
    q[0, 0, 9] *= 1e9
    q[0, 0, 10] *= 1e30
    close(attend(p, q=q, k=k, v=v), by_hand(q, k, v), "bf16")


def test_biases() -> None:
    dtype = "bf16"
    text = program(score="%s0[b, h, i, j] * 0.3 + %bias[h, i, j]", more=", %bias: tensor<HxSxLxf32>", args=", %bias", dtype=dtype)
    p = pl.compile(sized(text, B=1, H=2, G=2, D=64, E=64), target="cuda")
    q, k, v = qkv(1, 2, 2, 60, 141, 64, 64, dtype)
    bias = np.random.default_rng(3).normal(size=(2, 60, 141)).astype(np.float32)
    bias[0, 5] = -np.inf
    bias[1, 6, ::2] = -np.inf
    close(attend(p, q=q, k=k, v=v, bias=bias), by_hand(q, k, v, bias=bias[None].astype(np.float64), scale=0.3), dtype)


def test_heads_that_are_merged() -> None:
    """The product behind attention: what is made here is written as it wants it (`lay-out`), what comes from outside is gathered first."""
    text = """op @twice(%x: tensor<BxHxSxDxf16>) -> (%y: tensor<BxHxSxDxf16>) { compute { %y[b, h, s, d] = 2 * %x[b, h, s, d] } }
op @merge(%o: tensor<BxHxSxDxf16>, %w: tensor<HxDxExf16>, %a: tensor<BxSxExf16>) -> (%y: tensor<BxSxExf16>) {
  compute { %y[b, s, e] = %a[b, s, e] + sum[h < H, d < D](%o[b, h, s, d] * %w[h, d, e]) }
}
pipeline @main(%x: tensor<BxHxSx64xf16>, %w: tensor<Hx64xExf16>, %a: tensor<BxSxExf16>) -> (%y: tensor<BxSxExf16>, %z: tensor<BxSxExf16>) {
  %t = @twice(%x)
  %y = @merge(%t, %w, %a)
  %z = @merge(%x, %w, %a)
}
"""
    p = pl.compile(text, target="cuda")
    rng = np.random.default_rng(6)
    for b, h, s, e in ((8, 4, 512, 384), (5, 6, 1000, 200)):
        x, w, a = (rng.normal(size=size).astype(np.float16) for size in ((b, h, s, 64), (h, 64, e), (b, s, e)))
        w *= np.float16(0.05)
        out = p(x=x, w=w, a=a)
        product = np.einsum("bshd,hde->bse", x.astype(np.float64).transpose(0, 2, 1, 3), w.astype(np.float64), optimize=True)
        np.testing.assert_allclose(np.asarray(out.y, np.float64), a + 2 * product, rtol=2e-3, atol=1e-2)
        np.testing.assert_allclose(np.asarray(out.z, np.float64), a + product, rtol=2e-3, atol=1e-2)
