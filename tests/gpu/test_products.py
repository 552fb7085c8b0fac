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


@pytest.mark.parametrize("columns", [1600, 1544, 1543, 1534])
def test_bytes_that_are_traded(tmp_path: Path, columns: int) -> None:
    rng = np.random.default_rng(columns)
    x, w = array(rng, "f16", 1100, 320), array(rng, "f16", columns, 320)
    got = np.asarray(product(tmp_path, "f16", "f16", "i8", True, value="sat_i8(round(2 * %s[i, j]))")(x=x, w=w).y)
    want = np.clip(2 * (x.astype(np.float64) @ w.astype(np.float64).T), -128, 127)
    assert np.abs(got.astype(np.float64) - want).max() <= 0.5 + 1e-3


@pytest.mark.parametrize("columns", [1600, 1544, 1543])
@pytest.mark.parametrize("out", ["i8", "f16"])
def test_sums_of_bytes_that_become_numbers(tmp_path: Path, columns: int, out: str) -> None:
    """Integers of all sizes up to 2 to the 26, where f32 rounds."""
    rng = np.random.default_rng(columns)
    x, w = (rng.choice(np.array([-128, 127, 1, 0], np.int8), shape) for shape in ((1100, 4096), (columns, 4096)))
    value = "sat_i8(round(f32(%s[i, j]) * 0.000002))" if out == "i8" else "f32(%s[i, j]) * 0.0009765625"
    got = np.asarray(product(tmp_path, "i8", "i8", out, True, value=value)(x=x, w=w).y).astype(np.float64)
    want = x.astype(np.float64) @ w.astype(np.float64).T * (0.000002 if out == "i8" else 2.0 ** -10)
    off = np.abs(got - np.clip(want, -128, 127)) if out == "i8" else np.abs(got - want)
    assert (off <= (0.5 + 1e-4 if out == "i8" else 1e-3 * np.abs(want) + 1e-3)).all()


@pytest.mark.parametrize("by_terms", [False, True])
@pytest.mark.parametrize(("left", "right"), [("f8e4m3", "f8e4m3"), ("f8e5m2", "f8e4m3"), ("f8e5m2", "f8e5m2")])
@pytest.mark.parametrize("sizes", [(1100, 1040, 1544), (1101, 1033, 1543), (1024, 1024, 3072)])
def test_f8_with_the_sums_of_tensor_cores(tmp_path: Path, left: str, right: str, by_terms: bool, sizes: tuple[int, int, int]) -> None:
    """128 products are added up with 13 bits below the largest: they are off by less than 128 units of that, and so is each part."""
    m, k, n = sizes
    rng = np.random.default_rng(m)
    x, w = array(rng, left, m, k), array(rng, right, k, n)
    got = np.asarray(product(tmp_path, left, right, "f32", by_terms, "compile { accuracy = f8 }")(x=x, w=np.ascontiguousarray(w.T) if by_terms else w).y)
    a, b = x.astype(np.float64), w.astype(np.float64)
    off = np.abs(got.astype(np.float64) - a @ b)
    assert (off <= 2.0 ** -13 * (np.abs(a) @ np.abs(b))).all()
    assert np.sqrt(np.mean(off ** 2)) <= 1e-3 * np.sqrt(np.mean((a @ b) ** 2))


@pytest.mark.parametrize(("rows", "terms", "columns"), [(5, 4096, 1544), (16, 520, 72), (9, 264, 1031), (100, 520, 1544)])
@pytest.mark.parametrize("by_terms", [False, True])
@pytest.mark.parametrize("kind", ["f16", "bf16", "i8"])
def test_few_rows(tmp_path: Path, rows: int, terms: int, columns: int, by_terms: bool, kind: str) -> None:
    """Weights that are read once: halves by terms and by columns, wherever lines begin, codes by terms; and rows that are more than few."""
    rng = np.random.default_rng(rows)
    x, w = array(rng, "bf16" if kind == "bf16" else "f16", rows, terms), array(rng, kind, terms, columns)
    right, at = (f"{columns}x{terms}", "j, k") if by_terms else (f"{terms}x{columns}", "k, j")
    factor = f"f16(%w[{at}])" if kind == "i8" else f"%w[{at}]"
    signature = f"(%x: tensor<{rows}x{terms}x{'bf16' if kind == 'bf16' else 'f16'}>, %w: tensor<{right}x{kind}>) -> (%y: tensor<{rows}x{columns}xf32>)"
    path = tmp_path / "few.plir"
    path.write_text(f"op @mm{signature} {{ compute {{ %y[i, j] = sum[k < {terms}](%x[i, k] * {factor}) }} }}\npipeline @main{signature} {{ %y = @mm(%x, %w) }}\n")
    got = np.asarray(pl.compile(str(path), target="cuda")(x=x, w=np.ascontiguousarray(w.T) if by_terms else w).y)
    want = x.astype(np.float64) @ w.astype(np.float64)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())


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
