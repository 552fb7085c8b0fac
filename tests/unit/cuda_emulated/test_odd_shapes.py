"""The programs of `benchmarks/gpu/odd.py` at sizes that suit nothing: primes, ones, operands that begin in between. Against NumPy and SciPy in float64."""
from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.ndimage
import scipy.special

import pipelink_ir as pl
from tests.unit.cuda_emulated.test_following import beginning

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks"))

from gpu import odd, rows

Array = np.ndarray[Any, Any]
SKIPS = (0, 1)


@cache
def program(text: str) -> pl.Compiled:
    return pl.compile(text, target="cuda-emulated")


def normal(*shape: int, dtype: str = "float32", skip: int = 0) -> Array:
    return beginning(np.random.default_rng(4).standard_normal(shape).astype(dtype), skip)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 1031, 4099])
@pytest.mark.parametrize("skip", SKIPS)
def test_relu6(n: int, skip: int) -> None:
    x = 8 * normal(n, skip=skip)
    x = beginning(x, skip)
    assert (program(rows.RELU6)(x=x).y == np.clip(x, 0, 6)).all()


@pytest.mark.parametrize("shape", [(1, 1), (3, 1), (5, 37), (2, 131), (1, 7)])
@pytest.mark.parametrize("skip", SKIPS)
def test_gelu(shape: tuple[int, int], skip: int) -> None:
    x, b = normal(*shape, dtype="float16", skip=skip), normal(shape[1], dtype="float16")
    h = (x + b).astype(np.float64)
    np.testing.assert_allclose(program(rows.GELU)(x=x, b=b).y, 0.5 * h * (1 + scipy.special.erf(h / np.sqrt(2))), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("shape", [(7, 5), (1, 1), (3, 2), (2, 257), (1, 8191), (1, 30_011), (3, 67)])
@pytest.mark.parametrize("skip", SKIPS)
def test_layer_norm(shape: tuple[int, int], skip: int) -> None:
    x, g, b = normal(*shape, skip=skip), normal(shape[1]), normal(shape[1])
    wide = x.astype(np.float64)
    want = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5) * g + b
    np.testing.assert_allclose(program(odd.NORM_F32)(x=x, g=g, b=b).y, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(1, 1), (1, 13), (13, 1), (37, 41), (67, 5), (101, 103)])
@pytest.mark.parametrize("skip", SKIPS)
def test_transposition(shape: tuple[int, int], skip: int) -> None:
    x = normal(*shape, skip=skip)
    assert (program(odd.TURN)(x=x).y == x.T).all()


@pytest.mark.parametrize("shape", [(1, 1, 1, 7), (1, 1, 1, 1), (2, 1, 5, 7), (1, 5, 1, 7), (2, 11, 13, 7), (1, 3, 67, 3), (1, 2, 2, 1)])
@pytest.mark.parametrize("skip", SKIPS)
def test_stencil(shape: tuple[int, int, int, int], skip: int) -> None:
    x = normal(*shape, skip=skip)
    want = scipy.ndimage.uniform_filter(x.astype(np.float64), size=(1, 3, 3, 1), mode="nearest")
    np.testing.assert_allclose(program(odd.BLUR)(x=x).y, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 1), (1, 2), (3, 1), (7, 11), (5, 67)])
def test_sobel_and_gamma(shape: tuple[int, int]) -> None:
    x = np.random.default_rng(1).random((1, *shape, 3), dtype=np.float32) * 0.2
    wide = x.astype(np.float64)
    gx, gy = (scipy.ndimage.correlate(wide, np.outer(*w).reshape(1, 3, 3, 1), mode="nearest") for w in
              (([1, 2, 1], [-1, 0, 1]), ([-1, 0, 1], [1, 2, 1])))
    want = np.clip(np.hypot(gx, gy).mean(-1, keepdims=True), 0, 1) ** (1 / 2.2)
    got = pl.compile(rows.CASES / "edge_gamma.plir", target="cuda-emulated")(img=x).out
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize("sizes", [(1, 1, 1), (3, 5, 7), (17, 33, 9), (65, 67, 3), (2, 1, 130)])
@pytest.mark.parametrize("skip", SKIPS)
def test_product(sizes: tuple[int, int, int], skip: int) -> None:
    n, k, m = sizes
    x, w, b = normal(n, k, dtype="float16", skip=skip), normal(k, m, dtype="float16", skip=skip), normal(m, dtype="float16")
    want = x.astype(np.float64) @ w.astype(np.float64) + b
    np.testing.assert_allclose(program(odd.PRODUCT)(x=x, w=w, b=b).y, want, rtol=4e-3, atol=1e-2)


@pytest.mark.parametrize("terms", [7, 33, 64])
def test_codes_of_blocks_whose_number_is_rounded_up(terms: int) -> None:
    """The length of a row of scales is a quotient that is rounded up, and is asked about before the block that reads them."""
    text = """op @coded(%x: tensor<64xKxf32>, %s: tensor<64x(K ceildiv 4)xf32>) -> (%q: tensor<64x((K + 1) floordiv 2)xi32>) {
      compile { accuracy = exact }
      compute {
        %c[m < 64, k < K] = i32(clamp(round(%x[m, k] / %s[m, k floordiv 4]), -7, 7))
        %q[m, k]          = %c[m, 2 * k] + 16 * select(2 * k + 1 < K, %c[m, 2 * k + 1], 0)
      }
    }
    pipeline @main(%x: tensor<64xKxf32>, %s: tensor<64x(K ceildiv 4)xf32>) -> (%q: tensor<64x((K + 1) floordiv 2)xi32>) { %q = @coded(%x, %s) }
    """
    rng = np.random.default_rng(terms)
    x, s = rng.standard_normal((64, terms)).astype(np.float32), rng.uniform(0.1, 1, (64, -(-terms // 4))).astype(np.float32)
    codes = np.zeros((64, terms + terms % 2), np.int32)
    codes[:, :terms] = np.clip(np.rint(x / np.repeat(s, 4, 1)[:, :terms]), -7, 7)
    found = pl.compile(text, target="cuda-emulated:sm_90a")(x=x, s=s)
    np.testing.assert_array_equal(np.asarray(found.q), codes[:, ::2] + 16 * codes[:, 1::2])
