"""Windows over codes on a GPU: depthwise convolutions, pooling, sums and codes, at sizes that are whole runs and at those that are not; against NumPy."""
from __future__ import annotations

import numpy as np
import pytest

import pipelink_ir as pl
from tests.coded import ADDED, SCALE, added, codes, depthwise, expected, inputs, pooled, pools

pytestmark = pytest.mark.gpu
SHAPES = ((1, 8, 8, 8), (2, 9, 7, 16), (1, 5, 6, 3), (1, 1, 1, 8), (3, 30, 33, 12), (2, 64, 48, 32), (1, 17, 130, 256), (2, 14, 14, 512))


@pytest.mark.parametrize(("layout", "dtype", "weights", "zero"), [("NHWC", "i8", "i8", 0), ("NHWC", "u8", "i8", 131), ("NCHW", "i8", "i8", -3), ("NCHW", "u8", "u8", 0)])
@pytest.mark.parametrize("step", [1, 2])
def test_depthwise(layout: str, dtype: str, weights: str, zero: int, step: int) -> None:
    program = pl.compile(depthwise(layout, dtype, weights, zero, step=step), target="cuda")
    for shape in SHAPES:
        if step == 1 or all(n % 2 == 0 for n in shape[1:3]):
            given = inputs(shape, layout, dtype, weights, zero)
            assert np.array_equal(np.asarray(program(**given).y), expected(given, layout, zero, step)), shape


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_sizes_that_are_known(layout: str) -> None:
    for shape in ((2, 64, 48, 32), (1, 30, 34, 64), (2, 12, 10, 16)):
        given = inputs(shape, layout, "i8", "i8")
        assert np.array_equal(np.asarray(pl.compile(depthwise(layout, "i8", "i8", 0, shape), target="cuda")(**given).y), expected(given, layout, 0))


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize(("kind", "size", "border"), [("max", 2, -128), ("max", 3, -128), ("mean", 2, 0), ("mean", 3, 5)])
def test_pooling(kind: str, size: int, border: int, layout: str) -> None:
    program = pl.compile(pooled(kind, size, border, layout), target="cuda")
    for shape in ((2, 8, 16, 8), (1, 6, 10, 3), (2, 66, 34, 16)):
        x = np.random.default_rng(3).integers(-128, 128, shape).astype(np.int8)
        got = np.asarray(program(x=x if layout == "NHWC" else x.transpose(0, 3, 1, 2).copy()).y)
        want, error = pools(x, kind, size, border)
        assert np.abs((got if layout == "NHWC" else got.transpose(0, 2, 3, 1)) - want).max() <= error


def test_codes() -> None:
    x = np.tile(np.arange(1 << 16, dtype=np.uint16).view(np.float16), 8)
    for scale in (SCALE, 1 / 127, 0.1, 1.0):
        program = pl.compile(f"pipeline @p(%x: tensor<Nxf16>) -> (%y: tensor<Nxi8>) {{ %y = @std.quantize(%x) {{scale = {scale!r}}} }}\n", target="cuda")
        assert np.array_equal(np.asarray(program(x=x).y), codes(x, scale)), scale
    rng = np.random.default_rng(4)
    a, b = (rng.integers(-128, 128, (3, 50, 70, 16)).astype(np.int8) for _ in "ab")
    assert np.array_equal(np.asarray(pl.compile(ADDED, target="cuda")(a=a, b=b).y), added(a, b))


@pytest.mark.parametrize("channels", [7, 8])
def test_channels_that_lie_side_by_side(channels: int) -> None:
    """Floats, where rows of a thread go down the picture."""
    text = """op @blur(%x: tensor<NxHxWxCxf32, NHWC>) -> (%y: tensor<NxHxWxCxf32, NHWC>) {
      memory { border = replicate }
      compute { %y[n, h, w, c] = mean[dy in -1..2, dx in -1..2](%x[n, h + dy, w + dx, c]) }
    }
    pipeline @p(%x: tensor<NxHxWxCxf32, NHWC>) -> (%y: tensor<NxHxWxCxf32, NHWC>) { %y = @blur(%x) }
    """
    program = pl.compile(text, target="cuda")
    for n, h, w in ((1, 1, 1), (2, 9, 7), (1, 61, 95), (2, 16, 32)):
        x = np.random.default_rng(5).random((n, h, w, channels)).astype(np.float32)
        p = np.pad(x.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)), mode="edge")
        want = sum(p[:, i:i + h, j:j + w] for i in range(3) for j in range(3)) / 9
        np.testing.assert_allclose(np.asarray(program(x=x).y), want, rtol=0, atol=1e-6)
