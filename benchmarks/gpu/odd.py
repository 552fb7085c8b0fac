"""Rows of shapes that nobody chose for speed, each beside a row of the same work whose sizes suit wide accesses: prime lengths, views that begin in between,
seven channels, rows that are very short or very long. What is told of a pair is the ratio of their times per byte that must move; all move 32 MiB or more.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from gpu import peers
from gpu.rows import CASES, GELU, NORM, RELU6, SOFTMAX, Make, Row, Work, pipeline

TURN = pipeline("op @turn(%x: tensor<NxMxf32>) -> (%y: tensor<MxNxf32>) { compute { %y[i, j] = %x[j, i] } }\n", "%x: tensor<NxMxf32>", "  %y = @turn(%x)",
                "tensor<MxNxf32>", "")
SUM = pipeline("op @total(%x: tensor<Nxf32>) -> (%y: tensor<f32>) { compute { %y = sum[n < N](%x[n]) } }\n", "%x: tensor<Nxf32>", "  %y = @total(%x)",
               "tensor<f32>", "")
POOL = pipeline("op @pool(%x: tensor<NxHxWxCxT, NHWC>) -> (%y: tensor<NxCxf32>) { compute { %y[n, c] = mean[h < H, w < W](%x[n, h, w, c]) } }\n",
                "%x: tensor<NxHxWxCxf16, NHWC>", "  %y = @pool(%x)", "tensor<NxCxf32>", "")
ROWS_OF = pipeline("op @rows(%x: tensor<NxKxf32>) -> (%y: tensor<Kxf32>) { compute { %y[k] = sum[n < N](%x[n, k]) } }\n", "%x: tensor<NxKxf32>",
                   "  %y = @rows(%x)", "tensor<Kxf32>", "")
NORM_F32 = NORM.replace("f16", "f32")
PRODUCT = pipeline("", "%x: tensor<NxKxf16>, %w: tensor<KxMxf16>, %b: tensor<Mxf16>", "  %y = @linear(%x, %w, %b)", "tensor<NxMxf16>")
BLUR = """op @blur(%x: tensor<NxHxWxCxf32, NHWC>) -> (%y: tensor<NxHxWxCxf32, NHWC>) {
  memory { border = replicate }
  compute { %y[n, h, w, c] = mean[dy in -1..2, dx in -1..2](%x[n, h + dy, w + dx, c]) }
}
pipeline @p(%x: tensor<NxHxWxCxf32, NHWC>) -> (%y: tensor<NxHxWxCxf32, NHWC>) { %y = @blur(%x) }
"""


def _relu6(n: int, skip: int = 0) -> Callable[[Make], Work]:
    def make(m: Make) -> Work:
        x, nn = m.normal(n + skip)[skip:], m.torch.nn.functional
        return Work(RELU6, {"x": x}, nn.relu6, nn.relu6, 0, 2 * x.nbytes)
    return make


def _sobel(frames: int, h: int, w: int) -> Callable[[Make], Work]:
    def make(m: Make) -> Work:
        img, run = 0.2 * m.unit(frames, h, w, 3), peers.sobel(m.torch)
        return Work(CASES / "edge_gamma.plir", {"img": img}, run, run, 1e-5, img.nbytes * 4 // 3, first=frozenset(["img"]))
    return make


def _gelu(n: int, k: int, skip: int = 0) -> Callable[[Make], Work]:
    def make(m: Make) -> Work:
        x, b, nn = m.normal(n * k + skip, dtype="float16")[skip:].reshape(n, k), m.normal(k, dtype="float16"), m.torch.nn.functional
        return Work(GELU, {"x": x, "b": b}, lambda x, b: nn.gelu(x + b), lambda x, b: nn.gelu((x + b).half().double()), 2e-3, 2 * x.nbytes)
    return make


def _norm(n: int, k: int) -> Callable[[Make], Work]:
    def make(m: Make) -> Work:
        x, g, b = m.normal(n, k), m.normal(k), m.normal(k)

        def run(x: Any, g: Any, b: Any) -> Any:
            return m.torch.nn.functional.layer_norm(x, (k,), g, b, 1e-5)
        # Rows of five may be nearly constant: then their quotient by the deviation is as inexact as that is.
        return Work(NORM_F32, {"x": x, "g": g, "b": b}, run, run, 1e-3 if k < 16 else 1e-4, 2 * x.nbytes)
    return make


def _softmax(n: int, k: int) -> Callable[[Make], Work]:
    def make(m: Make) -> Work:
        x = m.normal(n, k)

        def run(x: Any) -> Any:
            return m.torch.softmax(x, -1)
        return Work(SOFTMAX, {"x": x}, run, run, 1e-5, 2 * x.nbytes)
    return make


def _sum(n: int) -> Callable[[Make], Work]:
    def make(m: Make) -> Work:
        x = m.normal(n)
        return Work(SUM, {"x": x}, lambda x: x.sum(), lambda x: x.sum(), 1e-5, x.nbytes)
    return make


def _pool(n: int, h: int, w: int, c: int) -> Callable[[Make], Work]:
    def make(m: Make) -> Work:
        x = m.normal(n, h, w, c, dtype="float16")
        return Work(POOL, {"x": x}, lambda x: x.mean((1, 2), dtype=m.torch.float32), lambda x: x.mean((1, 2)), 1e-5, x.nbytes)
    return make


def _rows(n: int, k: int) -> Callable[[Make], Work]:
    def make(m: Make) -> Work:
        x = m.normal(n, k)
        # Sums of so many numbers around zero are small beside what was added up.
        return Work(ROWS_OF, {"x": x}, lambda x: x.sum(0), lambda x: x.sum(0), 1e-4, x.nbytes)
    return make


def _turn(n: int, k: int) -> Callable[[Make], Work]:
    def make(m: Make) -> Work:
        x = m.normal(n, k)
        return Work(TURN, {"x": x}, lambda x: x.t().contiguous(), lambda x: x.t(), 0, 2 * x.nbytes)
    return make


def _blur(n: int, h: int, w: int, c: int) -> Callable[[Make], Work]:
    def make(m: Make) -> Work:
        x, nn = m.unit(n, h, w, c), m.torch.nn.functional

        def run(x: Any) -> Any:
            return nn.avg_pool2d(nn.pad(x.permute(0, 3, 1, 2), (1, 1, 1, 1), mode="replicate"), 3, 1).permute(0, 2, 3, 1)
        return Work(BLUR, {"x": x}, run, run, 1e-5, 2 * x.nbytes, first=frozenset(["x"]))
    return make


def _product(n: int, k: int, columns: int) -> Callable[[Make], Work]:
    """As much is computed for each byte in both rows of the pair, so that times per byte can be compared."""
    def make(m: Make) -> Work:
        x, w, b = m.normal(n, k, dtype="float16"), m.normal(k, columns, dtype="float16") / math.isqrt(k), m.normal(columns, dtype="float16")

        def run(x: Any, w: Any, b: Any) -> Any:
            return m.torch.addmm(b, x, w)
        return Work(PRODUCT, {"x": x, "w": w, "b": b}, run, run, 4e-3, x.nbytes + w.nbytes + 2 * n * columns, 2 * n * k * columns)
    return make


def pair(name: str, odd: tuple[str, Callable[[Make], Work]], even: tuple[str, Callable[[Make], Work]]) -> tuple[Row, Row]:
    """Two rows; the second names the first."""
    aligned = f"odd: {name}, {even[0]}"
    return Row(aligned, even[1]), Row(f"odd: {name}, {odd[0]}", odd[1], beside=aligned)


ODD: tuple[Row, ...] = tuple(dict.fromkeys((
    *pair("relu6 f32", ("16,777,213", _relu6(16_777_213)), ("16 Mi", _relu6(16 << 20))),
    *pair("relu6 f32", ("16 Mi of a view x[1:]", _relu6(16 << 20, 1)), ("16 Mi, once more", _relu6(16 << 20))),
    *pair("sobel+gamma", ("4x1081x1919", _sobel(4, 1081, 1919)), ("4x1080x1920", _sobel(4, 1080, 1920))),
    *pair("bias+gelu f16", ("4096x8191", _gelu(4096, 8191)), ("4096x8192", _gelu(4096, 8192))),
    *pair("bias+gelu f16", ("4096x8192 of a view x[1:]", _gelu(4096, 8192, 1)), ("4096x8192, once more", _gelu(4096, 8192))),
    *pair("layer_norm f32, short rows", ("2,000,003 rows of 5", _norm(2_000_003, 5)), ("1,250,000 rows of 8", _norm(1_250_000, 8))),
    *pair("layer_norm f32", ("2048 rows of 8191", _norm(2048, 8191)), ("2048 rows of 8192", _norm(2048, 8192))),
    *pair("layer_norm f32, long rows", ("16 rows of 1,000,003", _norm(16, 1_000_003)), ("16 rows of 1,000,000", _norm(16, 1_000_000))),
    *pair("softmax f32, short rows", ("2,000,003 rows of 33", _softmax(2_000_003, 33)), ("1 Mi rows of 64", _softmax(1 << 20, 64))),
    *pair("softmax f32, long rows", ("16 rows of 1,000,003", _softmax(16, 1_000_003)), ("16 rows of 1,000,000", _softmax(16, 1_000_000))),
    *pair("sum of all, f32", ("64 Mi - 3", _sum((64 << 20) - 3)), ("64 Mi", _sum(64 << 20))),
    *pair("mean of pictures f16 NHWC", ("32x127x129x61", _pool(32, 127, 129, 61)), ("32x128x128x64", _pool(32, 128, 128, 64))),
    *pair("mean of pictures f16 NHWC, three channels", ("32x383x385x3", _pool(32, 383, 385, 3)), ("32x384x384x4", _pool(32, 384, 384, 4))),
    *pair("sum over rows f32", ("1,000,003x17", _rows(1_000_003, 17)), ("1,000,000x16", _rows(1_000_000, 16))),
    *pair("transposition f32", ("4099x4093", _turn(4099, 4093)), ("4096x4096", _turn(4096, 4096))),
    *pair("blur 3x3 NHWC", ("7 channels, 4x541x959", _blur(4, 541, 959, 7)), ("8 channels, 4x540x960", _blur(4, 540, 960, 8))),
    *pair("product f16", ("4096x4095 by 4095x4096", _product(4096, 4095, 4096)), ("4096x4096 by 4096x4096", _product(4096, 4096, 4096))),
)))
"""Pairs, the row with the odd shape behind the other."""
