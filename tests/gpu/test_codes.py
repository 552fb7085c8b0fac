"""Products of codes as `lower-precision` makes them, on a GPU: strips of rows, few rows, windows, streams, with scales, activations and codes; against NumPy."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipelink_ir as pl
from tests.unit.cuda_emulated.test_few_rows import codes, eight_bits, four_bits
from tests.unit.cuda_emulated.test_strips import made, pointwise

pytestmark = pytest.mark.gpu
Array = np.ndarray[Any, Any]


def call(folder: Path, text: str, result: str = "y", **arrays: Array) -> Array:
    path = folder / "program.plir"
    path.write_text(text)
    out: Array = np.asarray(pl.compile(str(path), target="cuda")(**arrays)[result])
    return out


@pytest.mark.parametrize("out", ["i8", "f16"])
@pytest.mark.parametrize(("c", "o"), [(32, 32), (64, 64), (128, 128), (96, 40), (32, 3), (256, 64)])
def test_pointwise(tmp_path: Path, c: int, o: int, out: str) -> None:
    rng = np.random.default_rng(c + o)
    x, w = rng.integers(-128, 128, (3, 67, 131, c)).astype(np.int8), rng.integers(-127, 128, (c, o)).astype(np.int8)
    s, b = (rng.random(o) * 1e-2 + 1e-3).astype(np.float32), rng.normal(size=o).astype(np.float32)
    want = made(x.reshape(-1, c).astype(np.int64) @ w.astype(np.int64), s, b, out == "i8").reshape(3, 67, 131, o)
    got = call(tmp_path, pointwise(c, o, True, out), x=x, w=np.ascontiguousarray(w.T), b=b, s=s)
    assert np.abs(got.astype(np.float64) - want).max() <= (1.0 if out == "i8" else 4e-3)
    assert (got == want).mean() > 0.998


@pytest.mark.parametrize(("c", "o", "step"), [(3, 32, 2), (32, 64, 1), (32, 3, 1)])
def test_windows(tmp_path: Path, c: int, o: int, step: int) -> None:
    rng = np.random.default_rng(o)
    size, where = ("HxW", "") if step == 1 else ("(H floordiv 2)x(W floordiv 2)", "where H mod 2 == 0, W mod 2 == 0")
    signature = f"(%x: tensor<NxHxWx{c}xi8>, %w: tensor<3x3x{c}x{o}xi8>) -> (%y: tensor<Nx{size}x{o}xi32>)"
    body = f"%y[n, h, w, o] = sum[i < 3, j < 3, c < {c}](%x[n, {step} * h + i - 1, {step} * w + j - 1, c] * %w[i, j, c, o])"
    text = (f"op @conv{signature} {{ {where} memory {{ border = constant(0) }} compute {{ {body} }} }}\n"
            f"pipeline @main{signature} {{ {where} %y = @conv(%x, %w) }}\n")
    x, w = rng.integers(-128, 128, (2, 50, 70, c)).astype(np.int8), rng.integers(-128, 128, (3, 3, c, o)).astype(np.int8)
    wide = np.pad(x.astype(np.int64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    want = sum(wide[:, i:i + 50:step, j:j + 70:step] @ w[i, j].astype(np.int64) for i in range(3) for j in range(3))
    np.testing.assert_array_equal(call(tmp_path, text, x=x, w=w), want)


@pytest.mark.parametrize("m", [1, 7, 16, 17, 300])
def test_few_rows(tmp_path: Path, m: int) -> None:
    rng = np.random.default_rng(m)
    k, n = 2048, 1000
    x, w, b = rng.normal(size=(m, k)).astype(np.float16), rng.integers(0, 256, (n, k // 2)).astype(np.uint8), rng.normal(size=n).astype(np.float16)
    s = (rng.random((k // 32, n)) * 0.1).astype(np.float32)
    want = x.astype(np.float64) @ (codes(w).T.astype(np.float32) * np.repeat(s, 32, 0)).astype(np.float16).astype(np.float64) + b
    for rows in ("M", m):
        got = call(tmp_path, four_bits(rows, k, n), x=x, w=w, b=b, s=s).astype(np.float64)
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3 * np.abs(want).max())
    bytes_, scales = rng.integers(-127, 128, (n, k)).astype(np.int8), rng.random(n).astype(np.float32)
    want = x.astype(np.float64) @ bytes_.T.astype(np.float64) * scales
    got = call(tmp_path, eight_bits("M", k, n), x=x, w=bytes_, s=scales).astype(np.float64)
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3 * np.abs(want).max())


@pytest.mark.parametrize("zero", [0, -3])
def test_large_with_an_activation(tmp_path: Path, zero: int) -> None:
    rng = np.random.default_rng(3)
    m, k, n = 1100, 320, 1544
    more, minus = (", %t: tensor<Nxi32>", f" - {zero} * %t[j]") if zero else ("", "")
    signature = f"(%x: tensor<MxKxi8>, %w: tensor<NxKxi8>, %s: tensor<Nxf32>, %b: tensor<Nxf32>{more}) -> (%y: tensor<MxNxi8>)"
    body = (f"%acc[i, j] = sum[k < K](%x[i, k] * %w[j, k])  %h[i, j] = f16(f32(%acc[i, j]{minus}) * (0.01 * %s[j]) + %b[j])  "
            "%y[i, j] = i8(round(f16(0.5 * %h[i, j] * (1 + tanh(0.7978845608 * (%h[i, j] + 0.044715 * %h[i, j] ** 3)))) / 0.047))")
    text = (f"op @mm{signature} {{ compile {{ %y {{ accuracy = exact }} }} compute {{ {body} }} }}\n"
            f"pipeline @main{signature} {{ %y = @mm(%x, %w, %s, %b{', %t' if zero else ''}) }}\n")
    x, w = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((m, k), (n, k)))
    s, b = (rng.random(n) * 1e-3 + 1e-4).astype(np.float32), rng.normal(size=n).astype(np.float32)
    total = w.astype(np.int64).sum(1).astype(np.int32)
    acc = x.astype(np.int64) @ w.T.astype(np.int64) - zero * total.astype(np.int64)
    h = (acc * (np.float32(0.01) * s.astype(np.float64)) + b).astype(np.float16).astype(np.float64)
    g = (h * 0.5 * (1 + np.tanh(0.7978845608 * (h + 0.044715 * h ** 3)))).astype(np.float16).astype(np.float64)
    want = np.clip(np.rint(g / np.float64(np.float32(0.047))), -128, 127)
    got = call(tmp_path, text, x=x, w=w, s=s, b=b, **({"t": total} if zero else {}))
    assert np.abs(got.astype(np.float64) - want).max() <= 1.0
    assert (got == want).mean() > 0.995
