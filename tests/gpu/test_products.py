"""Products of matrices on tensor cores, large enough to stream on sm_90a and odd ones, against NumPy in f64."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pipelink_ir as pl

pytestmark = pytest.mark.gpu
NAMES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "i8": np.int8, "f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2}
DIGITS = {"f16": 1e-3, "bf16": 8e-3, "f32": 1e-5, "i32": 0.0}
Array = np.ndarray[Any, Any]


def array(rng: np.random.Generator, dtype: str, *shape: int) -> Array:
    return (rng.integers(-128, 128, shape) if dtype == "i8" else rng.normal(size=shape)).astype(NAMES[dtype])


def product(folder: Path, left: str, right: str, out: str, by_terms: bool, more: str = "", value: str = "%s[i, j]") -> pl.Compiled:
    w, at = ("NxK", "j, k") if by_terms else ("KxN", "k, j")
    signature = f"(%x: tensor<MxKx{left}>, %w: tensor<{w}x{right}>) -> (%y: tensor<MxNx{out}>)"
    body = f"%s[i, j] = sum[k < K](%x[i, k] * %w[{at}])  %y[i, j] = {value}"
    path = folder / "product.plir"
    path.write_text(f"op @mm{signature} {{ {more} compute {{ {body} }} }}\npipeline @main{signature} {{\n  %y = @mm(%x, %w)\n}}\n")
    return pl.compile(str(path), target="cuda")


@pytest.mark.parametrize("by_terms", [False, True])
@pytest.mark.parametrize(("left", "right", "out"), [
    ("f16", "f16", "f16"), ("bf16", "bf16", "bf16"), ("f16", "f16", "f32"), ("i8", "i8", "i32"), ("f8e4m3", "f8e4m3", "f32"), ("f8e5m2", "f8e4m3", "f16"), ("f8e4m3", "f16", "f16")])
@pytest.mark.parametrize("sizes", [(1100, 320, 1544), (1024, 320, 1534), (70, 41, 90)])
def test_products(tmp_path: Path, left: str, right: str, out: str, by_terms: bool, sizes: tuple[int, int, int]) -> None:
    m, k, n = sizes
    rng = np.random.default_rng(m)
    x, w = array(rng, left, m, k), array(rng, right, k, n)
    got = np.asarray(product(tmp_path, left, right, out, by_terms)(x=x, w=np.ascontiguousarray(w.T) if by_terms else w).y)
    want = x.astype(np.float64) @ w.astype(np.float64)
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=DIGITS[out], atol=DIGITS[out] * np.abs(want).max())


@pytest.mark.parametrize("columns", [1544, 1534])
def test_bytes_that_are_traded(tmp_path: Path, columns: int) -> None:
    rng = np.random.default_rng(columns)
    x, w = array(rng, "f16", 1100, 320), array(rng, "f16", columns, 320)
    got = np.asarray(product(tmp_path, "f16", "f16", "i8", True, value="sat_i8(round(2 * %s[i, j]))")(x=x, w=w).y)
    want = np.clip(2 * (x.astype(np.float64) @ w.astype(np.float64).T), -128, 127)
    assert np.abs(got.astype(np.float64) - want).max() <= 0.5 + 1e-3


@pytest.mark.parametrize("by_terms", [False, True])
@pytest.mark.parametrize("sizes", [(520, 264, 392), (70, 41, 90)])
def test_tf32_on_request(tmp_path: Path, by_terms: bool, sizes: tuple[int, int, int]) -> None:
    m, k, n = sizes
    rng = np.random.default_rng(k)
    x, w = array(rng, "f32", m, k), array(rng, "f32", k, n)
    got = np.asarray(product(tmp_path, "f32", "f32", "f32", by_terms, "compile { accuracy = tf32 }")(x=x, w=np.ascontiguousarray(w.T) if by_terms else w).y)

    def rounded(a: Array) -> Array:
        return ((a.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xffffe000)).view(np.float32).astype(np.float64)
    want = rounded(x) @ rounded(w)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())
