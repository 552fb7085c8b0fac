"""Pointwise values: arithmetic, casts, powers, lazy choices, pieces and holes."""
from __future__ import annotations

import numpy as np
import pytest

from pipelink_ir.backends.loops import form
from tests.unit.loops.programs import op, program, results

RNG = np.random.default_rng(7)


def test_three_axes_run_as_one_flat_loop() -> None:
    text = op("%x: tensor<AxBxCxf32> -> %y: tensor<AxBxCxf32>", "%y[a, b, c] = 2 * %x[a, b, c] + 1")
    (kernel,) = program(text).kernels
    assert kernel.loop is not None
    (inner,) = [s for s in kernel.loop.body if isinstance(s, form.For)]
    assert inner.vector
    assert not any(isinstance(s, form.For) for s in inner.body)
    x = RNG.random((3, 4, 5), dtype=np.float32)
    np.testing.assert_array_equal(results(text, x=x)["y"], 2 * x + 1)


@pytest.mark.parametrize("shape", [(0, 4, 5), (3, 0, 5), (3, 4, 0), (1, 1, 1)])
def test_empty_axes_do_nothing(shape: tuple[int, ...]) -> None:
    text = op("%x: tensor<AxBxCxf32>, %s: tensor<Cxf32> -> %y: tensor<AxBxCxf32>", "%y[a, b, c] = %x[a, b, c] * %s[c] + %s[0 * c]")
    x, s = np.ones(shape, np.float32), np.full(shape[2], 3, np.float32)
    np.testing.assert_array_equal(results(text, x=x, s=s)["y"], np.full(shape, 6, np.float32))


def test_transposed_and_strided_reads() -> None:
    x = RNG.random((6, 5), dtype=np.float32)
    text = op("%x: tensor<(2 * H)xWxf32> -> %y: tensor<WxHxf32>", "%y[w, h] = %x[2 * h + 1, w] - %x[2 * h, W - 1 - w]")
    np.testing.assert_array_equal(results(text, {"H": 3}, x=x)["y"], (x[1::2] - x[0::2, ::-1]).T)


def test_integers_wrap_and_floor() -> None:
    i = np.array([2147483647, -2147483648, 7, -7, 65536], np.int32)
    body = "%a[n] = %i[n] + 1 %b[n] = %i[n] * %i[n] %c[n] = %i[n] floordiv -3 %d[n] = %i[n] mod 4 %e[n] = %i[n] ceildiv 2 %z[n] = %i[n] floordiv (0 * %i[n])"
    out = results(op("%i: tensor<Nxi32> -> %a: tensor<Nxi32>, %b: tensor<Nxi32>, %c: tensor<Nxi32>, %d: tensor<Nxi32>, %e: tensor<Nxi32>, %z: tensor<Nxi32>",
                     body), i=i)
    wide = i.astype(object)
    assert out["a"].tolist() == [-2147483648, -2147483647, 8, -6, 65537]
    assert out["b"].tolist() == [1, 0, 49, 49, 0]
    assert out["c"].tolist() == [v // -3 for v in wide]
    assert out["d"].tolist() == [v % 4 for v in wide]
    assert out["e"].tolist() == [-(-v // 2) for v in wide]
    assert out["z"].tolist() == [0] * 5


def test_casts_saturate_wrap_and_round_to_even() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 3e9, -1.5, 256.7, -1.0], np.float32)
    body = "%i[n] = i32(%x[n]) %b[n] = u8(%x[n]) %r[n] = i32(round(%x[n] / 2)) %h[n] = f16(%x[n]) * 2"
    out = results(op("%x: tensor<Nxf32> -> %i: tensor<Nxi32>, %b: tensor<Nxu8>, %r: tensor<Nxi32>, %h: tensor<Nxf32>", body), x=x)
    assert out["i"].tolist() == [0, 2147483647, -2147483648, 2147483647, -1, 256, -1]
    assert out["b"].tolist() == [0, 255, 0, 255, 0, 255, 0]
    assert out["r"].tolist() == [0, 2147483647, -2147483648, 1500000000, -1, 128, 0]
    np.testing.assert_array_equal(out["h"][4:], [-3, 513.5, -2])
    i = np.array([255, 256, -1, 300], np.int32)
    out = results(op("%i: tensor<Nxi32> -> %w: tensor<Nxu8>, %s: tensor<Nxi8>", "%w[n] = u8(%i[n]) %s[n] = sat_i8(%i[n])"), i=i)
    assert out["w"].tolist() == [255, 0, 255, 44]
    assert out["s"].tolist() == [127, 127, -1, 127]


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 5, 6, 7, 13, -1, -3])
def test_constant_integer_powers_are_products(n: int) -> None:
    text = op("%x: tensor<Nxf64> -> %y: tensor<Nxf64>", f"%y[n] = %x[n] ** {n}")
    assert "pow" not in repr(program(text).kernels)
    x = np.array([1.5, -2.0, 0.5])
    np.testing.assert_allclose(results(text, x=x)["y"], x ** float(n), rtol=1e-15)


def test_powers_with_an_exponent_from_data() -> None:
    x, k = np.array([2.0, -3.0, 1.5, 2.0], np.float32), np.array([10, 3, -2, 0], np.int32)
    text = op("%x: tensor<Nxf32>, %k: tensor<Nxi32> -> %y: tensor<Nxf32>, %z: tensor<Nxi32>", "%y[n] = %x[n] ** %k[n] %z[n] = %k[n] ** 3")
    out = results(text, x=x, k=k)
    np.testing.assert_allclose(out["y"], [1024, -27, 1 / 2.25, 1], rtol=1e-6)
    assert out["z"].tolist() == [1000, 27, -8, 0]


def test_expansions_of_the_function_table() -> None:
    a, b = np.array([0.5, -np.inf, 1000.0, 3.0], np.float32), np.array([0.5, -np.inf, -1000.0, 2.0], np.float32)
    text = op("%a: tensor<Nxf32>, %b: tensor<Nxf32> -> %l: tensor<Nxf32>, %s: tensor<Nxf32>, %c: tensor<Nxf32>",
              "%l[n] = logaddexp(%a[n], %b[n]) %s[n] = sigmoid(%a[n]) %c[n] = clamp(%a[n], -1, 2)")
    out = results(text, a=a, b=b)
    np.testing.assert_allclose(out["l"], np.logaddexp(a.astype(np.float64), b), rtol=1e-6)
    np.testing.assert_allclose(out["s"][[0, 1, 2]], [0.62245933, 0, 1], rtol=1e-6)
    np.testing.assert_array_equal(out["c"], [0.5, -1, 2, 2])


def test_guards_keep_reads_inside() -> None:
    x = np.array([3.0, 1.0, 2.0, 5.0], np.float32)
    text = op("%x: tensor<Nxf32> -> %y: tensor<Nxf32>, %p: tensor<Nxbool>",
              "%y[n] = select(n >= 1, %x[n - 1], -inf) %p[n] = n + 1 < N and %x[n + 1] > %x[n]")
    out = results(text, x=x)
    np.testing.assert_array_equal(out["y"], [-np.inf, 3, 1, 2])
    assert out["p"].tolist() == [False, True, True, False]


def test_pieces_and_constant_positions() -> None:
    a, b = RNG.random((2, 3), dtype=np.float32), RNG.random((4, 3), dtype=np.float32)
    text = op("%a: tensor<AxWxf32>, %b: tensor<BxWxf32> -> %y: tensor<(A + B)xWxf32>, %z: tensor<(A + B)xWxf32>",
              "%y[i in 0..A, j] = %a[i, j] %y[i in A..A + B, j] = %b[i - A, j] %z[i, j] = 2 * %y[i, j] %z[0, j] = -1 %z[2, j] = -2")
    out = results(text, a=a, b=b)
    want = np.concatenate([a, b])
    np.testing.assert_array_equal(out["y"], want)
    want = 2 * want
    want[0], want[2] = -1, -2
    np.testing.assert_array_equal(out["z"], want)


def test_holes_of_two_axes() -> None:
    text = op("%x: tensor<NxNxi32> -> %y: tensor<NxNxi32>", "%y[i, j] = %x[i, j] %y[1, 1] = 100 %y[0, j] = 7")
    x = np.arange(9, dtype=np.int32).reshape(3, 3)
    assert results(text, x=x)["y"].tolist() == [[7, 7, 7], [3, 100, 5], [6, 7, 8]]


def test_a_join_becomes_kernels_without_choices() -> None:
    a, b = RNG.random((5, 2), dtype=np.float32), RNG.random((5, 3), dtype=np.float32)
    text = op("%a: tensor<NxAxf32>, %b: tensor<NxBxf32>, %s: tensor<(A + B)xf32> -> %y: tensor<Nx(A + B)xf32>",
              "%l[n, k in 0..A] = %a[n, k] %l[n, k in A..A + B] = %b[n, k - A] %y[n, k] = %l[n, k] * %s[k]")
    p = program(text)
    assert len(p.kernels) == 2
    assert "If(" not in repr(p.kernels)
    s = RNG.random(5, dtype=np.float32)
    np.testing.assert_array_equal(results(text, a=a, b=b, s=s)["y"], np.concatenate([a, b], 1) * s)


def test_a_join_read_out_of_place_chooses() -> None:
    a, b = np.array([1.0, 2.0], np.float32), np.array([3.0, 4.0, 5.0], np.float32)
    text = op("%a: tensor<Axf32>, %b: tensor<Bxf32> -> %y: tensor<(A + B)xf32>",
              "%l[k in 0..A] = %a[k] %l[k in A..A + B] = %b[k - A] %y[k] = %l[A + B - 1 - k] + %l[k]")
    np.testing.assert_array_equal(results(text, a=a, b=b)["y"], [6, 6, 6, 6, 6])


def test_a_long_chain_of_definitions_and_of_terms() -> None:
    chain = " ".join(f"%t{i}[n] = %t{i - 1}[n] + %t{i - 1}[n]" for i in range(1, 41))
    text = op("%x: tensor<Nxf64> -> %y: tensor<Nxf64>", f"%t0[n] = %x[n] {chain} %y[n] = %t40[n]")
    assert results(text, x=np.array([1.0, 3.0]))["y"].tolist() == [2.0 ** 40, 3 * 2.0 ** 40]
    text = op("%x: tensor<Nxf64> -> %y: tensor<Nxf64>", "%y[n] = " + " + ".join(["%x[n]"] * 900))
    assert results(text, x=np.array([1.0]))["y"].tolist() == [900.0]


def test_scalars_and_symbols_are_parameters() -> None:
    text = "op @f(%x: tensor<Nxf32>, gain: f64 = 0.1, K: dim = 3) -> (%y: tensor<NxKxf64>) { compute { %y[n, k] = gain * %x[n] + k } }"
    p = program(text)
    assert p.scalars[0][0] == "gain"
    out = results(text, {"K": 2}, {"gain": 0.5}, x=np.array([2.0, 4.0], np.float32))
    assert out["y"].tolist() == [[1.0, 2.0], [2.0, 3.0]]


def test_a_result_of_f16_is_rounded_where_it_is_read() -> None:
    text = op("%x: tensor<Nxf32> -> %a: tensor<Nxf16>, %b: tensor<Nxf32>", "%a[n] = %x[n] %b[n] = %a[n] * 1024")
    x = np.array([1 / 3], np.float32)
    assert len(program(text).kernels) == 1
    assert results(text, x=x)["b"][0] == np.float32(np.float16(1 / 3)) * 1024
