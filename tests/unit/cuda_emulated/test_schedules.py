"""Every schedule for a GPU at sizes around its edges: parts of long reductions, teams, products in tiles, squares, sorting, recurrences; against NumPy in float64."""
from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from pipelink_ir.backends.cuda.emulate.executable import EmulatedExecutable, Options, load
from tests.emulated import prepared

Array = np.ndarray[Any, Any]


def op(signature: str, body: str, sections: str = "") -> str:
    """An operator and a pipeline that calls it."""
    operands, _, results = signature.partition(" -> ")
    outs = ", ".join(part.partition(":")[0] for part in results.split(", "))
    names = ", ".join(part.partition(":")[0] for part in operands.split(", "))
    return (f"op @f({operands}) -> ({results}) {{ {sections}\ncompute {{\n{body}\n}} }}\n"
            f"pipeline @main({operands}) -> ({results}) {{\n  {outs} = @f({names})\n}}\n")


PROGRAMS = {
    "sum": op("%x: tensor<Nxf32> -> %y: tensor<1xf32>", "%y[i] = sum[n < N](%x[n])"),
    "mean of rows": op("%x: tensor<HxWxf32> -> %y: tensor<Hxf32>", "%y[h] = mean[w < W](%x[h, w])"),
    "mean of what passes": op("%x: tensor<Nxf32> -> %y: tensor<1xf32>", "%y[i] = mean[n < N where %x[n] > 0](%x[n])", "semantic { empty = zero }"),
    "columns": op("%x: tensor<HxWxf16> -> %y: tensor<Wxf32>", "%y[w] = sum[h < H](f32(%x[h, w]))"),
    "argmax": op("%x: tensor<HxWxi32> -> %y: tensor<Hxi32>", "%y[h] = argmax[w < W](%x[h, w])"),
    "argmin of all": op("%x: tensor<Nxf32> -> %y: tensor<1xi32>", "%y[i] = argmin[n < N](%x[n])"),
    "argmax of a plane": op("%x: tensor<HxWxf32> -> %y: tensor<1xi32>", "%y[i] = argmax[h < H, w < W](%x[h, w])"),
    "any and all": op("%x: tensor<HxWxbool> -> %y: tensor<Hxbool>, %z: tensor<Hxbool>", "%y[h] = any[w < W](%x[h, w])\n%z[h] = all[w < W](%x[h, w])"),
    "product of integers": op("%x: tensor<Nxi32> -> %y: tensor<1xi32>", "%y[i] = prod[n < N](%x[n])"),
    "triangle": op("%x: tensor<Nxf32> -> %y: tensor<1xf32>", "%y[i] = sum[n < N, m < n](%x[n] * %x[m])"),
    "softmax": op("%x: tensor<HxWxf32> -> %y: tensor<HxWxf32>",
                  "%m[h] = max[w < W](%x[h, w])\n%e[h, w] = exp(%x[h, w] - %m[h])\n%y[h, w] = %e[h, w] / sum[w1 < W](%e[h, w1])"),
    "matmul": op("%a: tensor<MxKxf32>, %b: tensor<KxNxf32> -> %y: tensor<MxNxf32>", "%y[m, n] = sum[k < K](%a[m, k] * %b[k, n])"),
    "matmul, transposed": op("%a: tensor<BxKxMxf16>, %b: tensor<BxNxKxf16>, %c: tensor<Nxf32> -> %y: tensor<BxMxNxf16>",
                             "%y[b, m, n] = f16(sum[k < K](f32(%a[b, k, m]) * f32(%b[b, n, k])) + %c[n])"),
    "matmul of integers": op("%a: tensor<MxKxi8>, %b: tensor<NxKxi8> -> %y: tensor<MxNxi32>", "%y[m, n] = sum[k < K](i32(%a[m, k]) * i32(%b[n, k]))"),
    "transposition": op("%x: tensor<BxHxWxu8> -> %y: tensor<BxWxHxf32>", "%y[b, w, h] = f32(%x[b, h, w]) / 2"),
    "what is positive": op("%x: tensor<HxWxf32> -> %y: tensor<Hxf32>", "%y[h] = sum[w < W where %x[h, w] > 0](%x[h, w])"),
    "transposition and more": op("%x: tensor<HxWxf64>, %z: tensor<WxHxf64> -> %y: tensor<WxHxf64>", "%y[w, h] = %x[h, w] + 2 * %z[w, h]"),
    "median": op("%x: tensor<HxWxf32> -> %y: tensor<Hxf32>, %z: tensor<Hxf32>", "%y[h] = nth[w < W](%x[h, w], W floordiv 2)\n%z[h] = nth[w < W](%x[h, w], 0 - 1)"),
    "places in order": op("%x: tensor<Wxf32> -> %y: tensor<Wxf32>", "%y[w] = nth[w1 < W](%x[w1], w)"),
    "recurrence of a block": op("%x: tensor<TxCxf32> -> %y: tensor<TxCxf32>", "%y[0, c] = %x[0, c]\n%y[t < T, c] = %x[t, c] + 0.5 * %y[t-1, (c + 1) mod C]"),
    "recurrence of a thread": op("%x: tensor<TxCxf32> -> %y: tensor<TxCxf32>", "%y[0, c] = %x[0, c]\n%y[t < T, c] = %x[t, c] - 0.25 * %y[t-1, c]"),
}


@functools.cache
def _all() -> dict[str, Any]:
    return prepared(PROGRAMS)


def run(name: str, *arrays: Array, options: Options | None = None) -> list[Array]:
    """The results of a program on arrays, in the order of its signature."""
    executable: EmulatedExecutable = load(_all()[name], "main", options)
    return list(executable({o.name: np.ascontiguousarray(a) for o, a in zip(executable.pipeline.inputs, arrays, strict=True)}).values())


def rng(*seed: int) -> np.random.Generator:
    return np.random.default_rng([11, *seed])


LENGTHS = (0, 1, 63, 65, 100, 4095, 4097, 8193, 20_000)


@pytest.mark.parametrize("n", LENGTHS)
def test_sums(n: int) -> None:
    x = rng(n).integers(-50, 50, n).astype(np.float32)
    assert run("sum", x)[0][0] == x.sum(dtype=np.float64)
    positive = x[x > 0]
    np.testing.assert_allclose(run("mean of what passes", x)[0][0], positive.mean(dtype=np.float64) if positive.size else 0, rtol=1e-6)


def test_long_sums_stay_exact() -> None:
    x = np.full(70_000, 0.1, np.float32)
    np.testing.assert_allclose(run("sum", x)[0][0], x.sum(dtype=np.float64), rtol=1e-6)


@pytest.mark.parametrize(("h", "w"), [(1, 1), (3, 65), (5, 300), (2, 9000), (70, 70), (200, 3)])
def test_rows_and_columns(h: int, w: int) -> None:
    x = rng(h, w).standard_normal((h, w)).astype(np.float32)
    np.testing.assert_allclose(run("mean of rows", x)[0], x.mean(1, dtype=np.float64), rtol=1e-5, atol=1e-6)
    half = x.T.astype(np.float16)
    np.testing.assert_allclose(run("columns", half)[0], half.sum(0, dtype=np.float64), rtol=1e-5, atol=1e-4)
    wide = x.astype(np.float64)
    e = np.exp(wide - wide.max(1, keepdims=True))
    np.testing.assert_allclose(run("softmax", x)[0], e / e.sum(1, keepdims=True), rtol=2e-6)


@pytest.mark.parametrize("w", [5, 700, 8192, 8193, 20_000])
def test_sums_behind_a_filter(w: int) -> None:
    """By all threads of a block, in rounds."""
    x = rng(2, w).standard_normal((2, w)).astype(np.float32)
    np.testing.assert_allclose(run("what is positive", x)[0], np.maximum(x, 0).sum(1, dtype=np.float64), rtol=1e-6)


@pytest.mark.parametrize("n", [1, 64, 65, 200, 5000, 10_000])
def test_winners(n: int) -> None:
    """The lowest index among equals, the first NaN before all."""
    x = rng(n).integers(0, 9, (3, n)).astype(np.int32)
    np.testing.assert_array_equal(run("argmax", x)[0], x.argmax(1))
    f = x[0].astype(np.float32)
    assert run("argmin of all", f)[0][0] == f.argmin()
    for at in {n - 1, n // 2, n // 3}:
        f[at] = np.nan
        assert run("argmin of all", f)[0][0] == np.isnan(f).argmax()
        plane = f[:n // 5 * 5].reshape(5, -1) if n >= 5 else f.reshape(1, -1)
        assert run("argmax of a plane", plane)[0][0] == (np.isnan(plane).argmax() if np.isnan(plane).any() else plane.argmax())


@pytest.mark.parametrize("n", [1, 65, 300, 5000])
def test_logic_and_products(n: int) -> None:
    x = np.zeros((3, n), np.bool_)
    x[1, n - 1], x[2] = True, True
    got = run("any and all", x)
    assert got[0].tolist() == [False, True, True]
    assert got[1].tolist() == [False, n == 1, True]
    i = rng(n).integers(-3, 4, n).astype(np.int32) * 2 + 1
    assert run("product of integers", i)[0][0] == np.multiply.reduce(i, dtype=np.int32)


@pytest.mark.parametrize("n", [2, 64, 90, 130])
def test_ranges_that_depend_on_each_other(n: int) -> None:
    x = rng(n).integers(-5, 6, n).astype(np.float32)
    assert run("triangle", x)[0][0] == sum(float(x[i]) * float(x[:i].sum()) for i in range(n))


@pytest.mark.parametrize(("m", "k", "n"), [(1, 1, 1), (1, 70, 1), (33, 65, 70), (64, 64, 64), (65, 130, 17), (130, 5, 40), (3, 0, 4), (0, 80, 3)])
def test_products_of_matrices(m: int, k: int, n: int) -> None:
    a, b = (rng(m, k, n, s).integers(-8, 9, shape).astype(np.float32) for s, shape in enumerate(((m, k), (k, n))))
    np.testing.assert_array_equal(run("matmul", a, b)[0], a @ b)
    i, j = (rng(m, k, n, s).integers(-128, 128, shape).astype(np.int8) for s, shape in enumerate(((m, k), (n, k))))
    np.testing.assert_array_equal(run("matmul of integers", i, j)[0], i.astype(np.int32) @ j.T.astype(np.int32))


@pytest.mark.parametrize(("b", "m", "k", "n"), [(2, 33, 66, 20), (3, 1, 100, 65)])
def test_batches_of_products(b: int, m: int, k: int, n: int) -> None:
    x, y = rng(b).integers(-4, 5, (b, k, m)).astype(np.float16), rng(n).integers(-4, 5, (b, n, k)).astype(np.float16)
    c = np.arange(n).astype(np.float32)
    want = np.einsum("bkm,bnk->bmn", x.astype(np.float64), y.astype(np.float64)) + c
    np.testing.assert_array_equal(run("matmul, transposed", x, y, c)[0], want.astype(np.float16))


@pytest.mark.parametrize(("h", "w"), [(1, 1), (32, 32), (33, 31), (1, 100), (70, 40), (0, 5)])
def test_transpositions(h: int, w: int) -> None:
    x = rng(h, w).integers(0, 256, (2, h, w)).astype(np.uint8)
    np.testing.assert_array_equal(run("transposition", x)[0], x.transpose(0, 2, 1) / np.float32(2))
    f, z = rng(h).standard_normal((h, w)), rng(w).standard_normal((w, h))
    np.testing.assert_array_equal(run("transposition and more", f, z)[0], f.T + 2 * z)


@pytest.mark.parametrize("w", [1, 2, 64, 65, 128, 129, 500])
def test_sorting(w: int) -> None:
    x = rng(w).integers(0, 40, (3, w)).astype(np.float32)
    if w > 2:
        x[1, w // 2] = np.nan
    got = run("median", x)
    np.testing.assert_array_equal(got[0], np.sort(x, 1)[:, w // 2])
    np.testing.assert_array_equal(got[1], np.sort(x, 1)[:, -1])
    np.testing.assert_array_equal(run("places in order", x[0])[0], np.sort(x[0]))


@pytest.mark.parametrize(("t", "c"), [(1, 1), (20, 1), (7, 65), (30, 130)])
def test_recurrences(t: int, c: int) -> None:
    x = rng(t, c).integers(-8, 9, (t, c)).astype(np.float32)

    def scan(step: Callable[[Array, Array], Array]) -> Sequence[Array]:
        rows = [x[0].astype(np.float64)]
        for row in x[1:]:
            rows.append(step(row.astype(np.float64), rows[-1]))
        return rows

    np.testing.assert_allclose(run("recurrence of a block", x)[0], scan(lambda row, y: row + 0.5 * np.roll(y, -1)), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(run("recurrence of a thread", x)[0], scan(lambda row, y: row - 0.25 * y), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("options", [Options(threads=32, blocks=5), Options(threads=256, blocks=1), Options(wide=True)], ids=["small blocks", "one block", "wide"])
@pytest.mark.parametrize("name", ["softmax", "median", "columns", "mean of rows", "transposition and more", "argmax"])
def test_with_other_launches(name: str, options: Options) -> None:
    """What a kernel gives does not depend on how many blocks and threads it has, sums of floats aside."""
    dtype = {"columns": np.float16, "transposition and more": np.float64, "argmax": np.int32}.get(name, np.float32)
    x = rng(5).integers(-20, 20, (9, 150)).astype(dtype)
    arrays = (x, x.T.copy()) if name == "transposition and more" else (x,)
    for got, want in zip(run(name, *arrays, options=options), run(name, *arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)
