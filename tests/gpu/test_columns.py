"""Reductions of columns on a GPU: whole and in parts, of sizes that suit wide accesses and of others; sums of whole numbers are exact, so they are NumPy's."""
from __future__ import annotations

import numpy as np
import pytest

import pipelink_ir as pl
from tests.columns import NORM, ROWS, normed, text, values

pytestmark = pytest.mark.gpu
SHAPES = ((32, 7, 7, 512), (1, 7, 7, 1280), (2, 56, 56, 64), (1, 256, 256, 3), (3, 129, 127, 3), (4, 63, 65, 24), (2, 33, 31, 130), (1, 300, 2, 1000), (5, 1, 1, 32), (1, 1, 70_001, 7))


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64", "i8", "f8e4m3"])
def test_sums_means_and_largest(dtype: str) -> None:
    wide = "f64" if dtype == "f64" else "f32"
    of = {kind: pl.compile(text(dtype, f"{kind}[h < H, w < W]({wide}(%x[n, h, w, c]))", wide), target="cuda") for kind in ("sum", "mean", "max")}
    for shape in SHAPES:
        x = values(np.random.default_rng(sum(shape)), dtype, *shape)
        exact = x.astype(np.float64)
        assert np.array_equal(np.asarray(of["sum"](x=x).y), exact.sum((1, 2))), shape
        assert np.array_equal(np.asarray(of["max"](x=x).y), exact.max((1, 2))), shape
        np.testing.assert_allclose(np.asarray(of["mean"](x=x).y), exact.mean((1, 2)), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("shape", [(1, 1), (100_003, 1), (70_000, 7), (65_536, 64), (4097, 1001), (513, 8192), (1000, 12)], ids=str)
def test_sums_over_the_rows_of_a_matrix(shape: tuple[int, int]) -> None:
    x = np.random.default_rng(3).integers(-128, 128, shape).astype(np.int8)
    program = pl.compile(ROWS, target="cuda")
    first, second = (np.asarray(program(x=x).y) for _ in range(2))
    assert np.array_equal(first, x.astype(np.int64).sum(0))
    assert np.array_equal(first, second)


@pytest.mark.parametrize("channels", [3, 7, 64])
def test_statistics_of_channels(channels: int) -> None:
    x = np.random.default_rng(7).normal(3, 2, (4, 61, 50, channels)).astype(np.float32)
    np.testing.assert_allclose(np.asarray(pl.compile(NORM, target="cuda")(x=x).y), normed(x), rtol=1e-5, atol=2e-6)


def test_long_sums_are_accurate_and_the_same_in_every_run() -> None:
    program = pl.compile(text("f32", "sum[h < H, w < W](%x[n, h, w, c])", "f32"), target="cuda")
    np.testing.assert_allclose(np.asarray(program(x=np.full((1, 3000, 1000, 2), 0.1, np.float32)).y), float(np.float32(0.1)) * 3e6, rtol=1e-6)
    noise = np.random.default_rng(1).normal(size=(2, 500, 300, 24)).astype(np.float32)
    assert np.asarray(program(x=noise).y).tobytes() == np.asarray(program(x=noise).y).tobytes()
