"""Products of matrices on tensor cores, large enough to stream on sm_90a and odd ones, against NumPy in f64."""
from __future__ import annotations

import importlib
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
@pytest.mark.parametrize("sizes", [(1100, 320, 1544), (1024, 320, 1534), (1101, 321, 1543), (70, 41, 90)])
def test_products(tmp_path: Path, left: str, right: str, out: str, by_terms: bool, sizes: tuple[int, int, int]) -> None:
    m, k, n = sizes
    rng = np.random.default_rng(m)
    x, w = array(rng, left, m, k), array(rng, right, k, n)
    got = np.asarray(product(tmp_path, left, right, out, by_terms)(x=x, w=np.ascontiguousarray(w.T) if by_terms else w).y)
    want = x.astype(np.float64) @ w.astype(np.float64)
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=DIGITS[out], atol=DIGITS[out] * np.abs(want).max())


@pytest.mark.parametrize(("left", "right"), [(1, 0), (0, 3), (7, 5)])
@pytest.mark.parametrize("terms", [320, 321])
def test_views_that_begin_anywhere(tmp_path: Path, left: int, right: int, terms: int) -> None:
    cp = importlib.import_module("cupy")
    rng = np.random.default_rng(terms)
    x, w = (cp.asarray(array(rng, "f16", n * terms + skip))[skip:].reshape(n, terms) for n, skip in ((1100, left), (1544, right)))
    assert [a.data.ptr % 16 for a in (x, w)] == [2 * left, 2 * right]
    got = product(tmp_path, "f16", "f16", "f16", True)(x=x, w=w).y
    want = x.get().astype(np.float64) @ w.get().astype(np.float64).T
    np.testing.assert_allclose(cp.asnumpy(cp.asarray(got)).astype(np.float64), want, rtol=1e-3, atol=1e-3 * np.abs(want).max())


@pytest.mark.parametrize("columns", [1544, 1543, 1534])
def test_bytes_that_are_traded(tmp_path: Path, columns: int) -> None:
    rng = np.random.default_rng(columns)
    x, w = array(rng, "f16", 1100, 320), array(rng, "f16", columns, 320)
    got = np.asarray(product(tmp_path, "f16", "f16", "i8", True, value="sat_i8(round(2 * %s[i, j]))")(x=x, w=w).y)
    want = np.clip(2 * (x.astype(np.float64) @ w.astype(np.float64).T), -128, 127)
    assert np.abs(got.astype(np.float64) - want).max() <= 0.5 + 1e-3


@pytest.mark.parametrize("by_terms", [False, True])
@pytest.mark.parametrize("sizes", [(1100, 320, 1544), (1101, 321, 1543), (520, 264, 392), (70, 41, 90)])
def test_tf32_on_request(tmp_path: Path, by_terms: bool, sizes: tuple[int, int, int]) -> None:
    m, k, n = sizes
    rng = np.random.default_rng(k)
    x, w = array(rng, "f32", m, k), array(rng, "f32", k, n)
    got = np.asarray(product(tmp_path, "f32", "f32", "f32", by_terms, "compile { accuracy = tf32 }")(x=x, w=np.ascontiguousarray(w.T) if by_terms else w).y)

    def rounded(a: Array) -> Array:
        return ((a.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xffffe000)).view(np.float32).astype(np.float64)
    want = rounded(x) @ rounded(w)
    off = np.abs(got.astype(np.float64) - want)
    # What lies half way between two numbers of tf32 goes up in one kernel and to the even one in another: few sums have such a factor.
    assert (off <= 1e-5 * (np.abs(want) + np.abs(want).max())).mean() > 0.98
    assert off.max() <= 2.0 ** -9 * np.abs(x).max() * np.abs(w).max()
