"""Rows of all lengths by the kernels of a GPU, played on the CPU: lengths at which another kernel, or another number of lanes, takes over."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pipelink_ir as pl
from tests.rows import NORM, REDUCED, SOFTMAX, norm, softmax

LENGTHS = ((300, 1), (1037, 5), (300, 8), (130, 9), (65, 16), (37, 33), (70, 64), (9, 128), (9, 129), (17, 200), (9, 256), (5, 257), (2, 16384), (2, 16385),
           (3, 49_999))


@pytest.fixture(scope="module")
def compiled() -> dict[str, Any]:
    return {text: pl.compile(text, target="cuda-emulated") for text in (SOFTMAX, NORM, REDUCED)}


@pytest.mark.parametrize(("n", "k"), LENGTHS)
@pytest.mark.parametrize("skip", [0, 1])
def test_softmax(compiled: dict[str, Any], n: int, k: int, skip: int) -> None:
    x = np.random.default_rng(k).standard_normal(n * k + skip, dtype=np.float32)[skip:].reshape(n, k)
    np.testing.assert_allclose(np.asarray(compiled[SOFTMAX](x=x).y), softmax(x), rtol=2e-6)


@pytest.mark.parametrize(("n", "k"), LENGTHS[1:])
def test_layer_norm(compiled: dict[str, Any], n: int, k: int) -> None:
    rng = np.random.default_rng(k)
    x, g, b = (rng.standard_normal(s, dtype=np.float32) for s in ((n, k), k, k))
    got = np.asarray(compiled[NORM](x=x, g=g, b=b).y)
    np.testing.assert_allclose(got, norm(x, g, b), rtol=2e-5, atol=2e-3 if k < 16 else 2e-5)


@pytest.mark.parametrize(("n", "k"), LENGTHS)
def test_reductions(compiled: dict[str, Any], n: int, k: int) -> None:
    x = np.random.default_rng(k).standard_normal((n, k), dtype=np.float32)
    got = compiled[REDUCED](x=x)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(np.asarray(got.total), wide.sum(1), atol=1e-6 * k + 1e-6)
    np.testing.assert_array_equal(np.asarray(got.top), x.max(1))
    np.testing.assert_allclose(np.asarray(got.middle), (wide * wide).mean(1), rtol=2e-6)


@pytest.mark.parametrize(("n", "k"), [(1100, 5), (70, 64), (70, 36), (40, 320), (30, 512), (21, 1024), (2, 40_001)])
def test_lengths_that_are_written(n: int, k: int) -> None:
    x = np.random.default_rng(k).standard_normal((n, k), dtype=np.float32)
    text = SOFTMAX.replace("NxK", f"Nx{k}").replace("< K", f"< {k}")
    np.testing.assert_allclose(np.asarray(pl.compile(text, target="cuda-emulated")(x=x).y), softmax(x), rtol=2e-6)


def test_rows_of_two_tensors_and_outer_axes() -> None:
    """Both are kept; rows of different axes follow each other."""
    text = """op @dots(%x: tensor<AxNxKxf32>, %w: tensor<AxNxKxf32>) -> (%y: tensor<AxNxKxf32>) {
  compute {
    %s[a, n] = sum[k < K](%x[a, n, k] * %w[a, n, k])
    %y[a, n, k] = %x[a, n, k] * %s[a, n] + %w[a, n, k]
  }
}
pipeline @p(%x: tensor<AxNxKxf32>, %w: tensor<AxNxKxf32>) -> (%y: tensor<AxNxKxf32>) { %y = @dots(%x, %w) }
"""
    p = pl.compile(text, target="cuda-emulated")
    rng = np.random.default_rng(0)
    for shape in ((3, 41, 5), (2, 9, 20), (2, 3, 128), (2, 3, 129), (1, 2, 33_000)):
        x, w = rng.standard_normal((2, *shape), dtype=np.float32)
        wide = x.astype(np.float64)
        want = wide * (wide * w).sum(-1, keepdims=True) + w
        np.testing.assert_allclose(np.asarray(p(x=x, w=w).y), want, rtol=1e-5, atol=1e-3)


def test_a_turned_operand_is_no_run() -> None:
    text = """op @first(%x: tensor<KxNxf32>, %z: tensor<NxMxKxf32>) -> (%y: tensor<NxMxf32>) {
  compute { %y[n, m] = max[k < K](%z[n, m, k]) + max[k < K](%x[k, n]) }
}
pipeline @p(%x: tensor<KxNxf32>, %z: tensor<NxMxKxf32>) -> (%y: tensor<NxMxf32>) { %y = @first(%x, %z) }
"""
    p = pl.compile(text, target="cuda-emulated")
    rng = np.random.default_rng(0)
    for k in (5, 64, 300):
        x, z = rng.standard_normal((k, 3), dtype=np.float32), rng.standard_normal((3, 7, k), dtype=np.float32)
        np.testing.assert_allclose(np.asarray(p(x=x, z=z).y), z.max(2) + x.max(0)[:, None], rtol=1e-6)


def test_nothing_passes_over_a_nan() -> None:
    x = np.random.default_rng(0).standard_normal((4, 40_000), dtype=np.float32)
    for k in (5, 64, 40_000):
        part = x[:, :k].copy()
        part[1, k - 1], part[2, 0] = np.nan, np.inf
        got = np.asarray(pl.compile(SOFTMAX, target="cuda-emulated")(x=part).y)
        assert np.isnan(got[1:3]).all()
        assert np.isfinite(got[[0, 3]]).all()


def test_parts_of_long_rows_that_differ_much() -> None:
    """What a part gives is brought to the largest, or the mean, of the whole row."""
    k = 40_001
    x = np.random.default_rng(0).standard_normal((6, k), dtype=np.float32)
    x[0] += 1000
    x[1, :k // 2] = -np.inf
    x[2] = np.linspace(-300, 300, k)
    x[3, 5] = np.nan
    x[4] = -np.inf
    x[5, 7] = np.inf
    with np.errstate(invalid="ignore"):
        want = softmax(x)
    np.testing.assert_allclose(np.asarray(pl.compile(SOFTMAX, target="cuda-emulated")(x=x).y), want, rtol=2e-6, atol=1e-44)
    x[1] = np.linspace(-5, 5, k)
    one, zero = np.ones(k, np.float32), np.zeros(k, np.float32)
    got = np.asarray(pl.compile(NORM, target="cuda-emulated")(x=x[:3], g=one, b=zero).y)
    # The mean of the first row is rounded to f32.
    np.testing.assert_allclose(got, norm(x[:3], one, zero), rtol=2e-5, atol=5e-5)


@pytest.mark.parametrize("k", [320, 640, 1000, 1024, 1032])
def test_halves_of_lengths_that_are_written(k: int) -> None:
    """A block has several rows of those that a warp is enough for, and was compiled for as many threads."""
    rng = np.random.default_rng(k)
    x = rng.standard_normal((37, k)).astype(np.float16)
    text = SOFTMAX.replace("NxK", f"Nx{k}").replace("< K", f"< {k}").replace("f32", "f16")
    np.testing.assert_allclose(np.asarray(pl.compile(text, target="cuda-emulated")(x=x).y).astype(np.float64), softmax(x.astype(np.float64)), rtol=2e-3, atol=1e-6)
