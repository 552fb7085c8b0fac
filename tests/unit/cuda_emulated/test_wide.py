"""Wide accesses and rows in registers, at sizes and places where they can be used and where they cannot: against NumPy in float64."""
from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from pipelink_ir.backends.cuda.emulate.executable import EmulatedExecutable, Options, load
from tests.emulated import prepared
from tests.unit.cuda_emulated.test_schedules import op, rng

Array = np.ndarray[Any, Any]

PROGRAMS = {
    "twice": op("%x: tensor<Nxf32> -> %y: tensor<Nxf32>", "%y[n] = 2 * %x[n]"),
    "wider": op("%x: tensor<NxKxu8> -> %y: tensor<NxKxf32>", "%y[n, k] = f32(%x[n, k]) / 2"),
    "halves": op("%x: tensor<Nxf64> -> %y: tensor<Nxf16>", "%y[n] = f16(%x[n] * 3)"),
    "bias": op("%x: tensor<NxCxKxf16>, %b: tensor<Kxf16>, %s: tensor<Cxf32> -> %y: tensor<NxCxKxf16>",
               "%y[n, c, k] = f16((f32(%x[n, c, k]) + f32(%b[k])) * %s[c])"),
    "moved": op("%x: tensor<NxKxf32> -> %y: tensor<Nx(K - 4)xf32>", "%y[n, k] = %x[n, k + 4] + %x[n, k + 1]"),
    "joined": op("%x: tensor<Nxf32>, %z: tensor<Mxf32> -> %y: tensor<(N + M)xf32>",
                 "%y[n < N] = %x[n] + 1\n%y[n in N..N + M] = %z[n - N] * 2"),
    "flags": op("%x: tensor<Nxi32> -> %y: tensor<Nxbool>, %z: tensor<Nxi8>", "%y[n] = %x[n] > 3\n%z[n] = i8(%x[n])"),
    "norm": op("%x: tensor<NxKxf16>, %g: tensor<Kxf16> -> %y: tensor<NxKxf32>",
               "%m[n] = mean[k < K](f32(%x[n, k]))\n%v[n] = mean[k < K]((f32(%x[n, k]) - %m[n]) ** 2)\n"
               "%y[n, k] = (f32(%x[n, k]) - %m[n]) * rsqrt(%v[n] + 1e-3) * f32(%g[k])"),
    "softmax": op("%x: tensor<NxKxf32> -> %y: tensor<NxKxf32>",
                  "%m[n] = max[k < K](%x[n, k])\n%e[n, k] = exp(%x[n, k] - %m[n])\n%y[n, k] = %e[n, k] / sum[j < K](%e[n, j])"),
    "both": op("%x: tensor<NxKxf32>, %w: tensor<NxKxf32> -> %y: tensor<Nxf32>, %z: tensor<Nxi32>",
               "%y[n] = sum[k < K](%x[n, k] * %w[n, k])\n%z[n] = argmax[k < K](%x[n, k])"),
    "row of two": op("%x: tensor<NxKxf64>, %z: tensor<NxLxf64> -> %y: tensor<Nxf64>, %w: tensor<Nx(K + L)xf64>",
                     "%j[n, k < K] = %x[n, k]\n%j[n, k in K..K + L] = %z[n, k - K]\n%y[n] = max[k < K + L](%j[n, k])\n%w[n, k] = %j[n, k] + %j[n, K + L - 1 - k]"),
    "some": op("%x: tensor<NxKxf32> -> %y: tensor<Nxf32>", "%y[n] = mean[k < K where %x[n, k] > 0](%x[n, k])", "semantic { empty = zero }"),
}


@functools.cache
def _all() -> dict[str, Any]:
    return prepared(PROGRAMS)


def run(name: str, *arrays: Array) -> list[Array]:
    executable: EmulatedExecutable = load(_all()[name], "main", Options())
    return list(executable({o.name: a for o, a in zip(executable.pipeline.inputs, arrays, strict=True)}).values())


def placed(a: Array, skew: int) -> Array:
    """The same array, `skew` elements behind a multiple of 64 bytes."""
    memory = np.zeros(a.nbytes + 64 + a.itemsize * skew, np.uint8)
    begin = -memory.ctypes.data % 64 + a.itemsize * skew
    out = memory[begin:begin + a.nbytes].view(a.dtype).reshape(a.shape)
    out[...] = a
    assert not a.size or out.ctypes.data % 64 == a.itemsize * skew % 64
    return out


def softmax(x: Array) -> Array:
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True, initial=-np.inf))
    return e / e.sum(1, keepdims=True)


@pytest.mark.parametrize("skew", [0, 1, 4])
@pytest.mark.parametrize("n", [0, 1, 3, 4, 5, 8, 9, 31, 1021])
def test_flat(n: int, skew: int) -> None:
    x = rng(n).integers(-100, 100, n)
    np.testing.assert_array_equal(run("twice", placed(x.astype(np.float32), skew))[0], 2 * x)
    np.testing.assert_array_equal(run("halves", placed(x.astype(np.float64), skew))[0], (3 * x).astype(np.float16))
    got = run("flags", placed(x.astype(np.int32), skew))
    np.testing.assert_array_equal(got[0], x > 3)
    np.testing.assert_array_equal(got[1], x)
    z = rng(n, 1).standard_normal(13).astype(np.float32)
    np.testing.assert_array_equal(run("joined", placed(x.astype(np.float32), skew), z)[0], np.concatenate([x + 1, 2 * z]).astype(np.float32))


@pytest.mark.parametrize("skew", [0, 1])
@pytest.mark.parametrize(("n", "k"), [(1, 1), (3, 5), (5, 8), (2, 12), (7, 1001), (4, 64), (0, 8), (8, 0)])
def test_rows_of_a_box(n: int, k: int, skew: int) -> None:
    x = rng(n, k).integers(0, 256, (n, k)).astype(np.uint8)
    np.testing.assert_array_equal(run("wider", placed(x, skew))[0], x / np.float32(2))
    h = rng(n, k).integers(-9, 9, (n, 3, k)).astype(np.float16)
    b, s = rng(k).integers(-9, 9, k).astype(np.float16), np.asarray([1, 2, -4], np.float32)
    np.testing.assert_array_equal(run("bias", placed(h, skew), b, s)[0], (h + b) * s[:, None].astype(np.float16))
    if k >= 4:
        f = rng(n, k).integers(-9, 9, (n, k)).astype(np.float32)
        np.testing.assert_array_equal(run("moved", placed(f, skew))[0], f[:, 4:] + f[:, 1:k - 3])


@pytest.mark.parametrize("skew", [0, 1])
@pytest.mark.parametrize(("n", "k"), [(2, 1), (3, 5), (3, 8), (5, 64), (2, 1000), (2, 1001), (1, 2056), (1, 16384), (1, 16392), (2, 0), (0, 8)])
def test_rows_in_registers(n: int, k: int, skew: int) -> None:
    x = rng(n, k).standard_normal((n, k)).astype(np.float32)
    np.testing.assert_allclose(run("softmax", placed(x, skew))[0], softmax(x), rtol=2e-6)
    if not k:
        return
    h, g = x.astype(np.float16), rng(k).standard_normal(k).astype(np.float16)
    wide = h.astype(np.float64)
    want = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-3) * g
    np.testing.assert_allclose(run("norm", placed(h, skew), g)[0], want, rtol=1e-5, atol=1e-5)
    w = rng(n, k, 2).standard_normal((n, k)).astype(np.float32)
    got = run("both", placed(x, skew), w)
    np.testing.assert_allclose(got[0], (x.astype(np.float64) * w).sum(1), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(got[1], x.argmax(1))
    positive = np.where(x > 0, x, 0).sum(1, dtype=np.float64) / np.maximum((x > 0).sum(1), 1)
    np.testing.assert_allclose(run("some", placed(x, skew))[0], positive, rtol=1e-5)


@pytest.mark.parametrize(("n", "k", "m"), [(2, 2, 2), (3, 64, 8), (2, 8, 4), (5, 1, 6)])
def test_rows_that_are_joined(n: int, k: int, m: int) -> None:
    x, z = rng(n, k).standard_normal((n, k)), rng(n, m).standard_normal((n, m))
    joined = np.concatenate([x, z], 1)
    got = run("row of two", x, z)
    np.testing.assert_array_equal(got[0], joined.max(1))
    np.testing.assert_array_equal(got[1], joined + joined[:, ::-1])


def test_the_first_nan_of_a_row_wins() -> None:
    x = rng(5).standard_normal((4, 512)).astype(np.float32)
    x[1, 300], x[1, 77], x[2, 511], x[3, 0] = np.nan, np.nan, np.nan, np.nan
    got = run("both", x, x)
    np.testing.assert_array_equal(got[1], [x[0].argmax(), 77, 511, 0])
