"""Recurrences: directions, lanes, several tensors, base cases."""
from __future__ import annotations

import numpy as np
import pytest

from pipelink_ir.backends.loops.print import program_text
from tests.unit.loops.programs import op, program, results

RNG = np.random.default_rng(5)


@pytest.mark.parametrize("shape", [(1, 1), (6, 3), (4, 300), (5, 0)])
def test_along_the_first_axis_rows_stay_rows(shape: tuple[int, int]) -> None:
    x = RNG.random(shape)
    text = op("%x: tensor<TxCxf64> -> %y: tensor<TxCxf64>", "%y[0, c] = %x[0, c] %y[t < T, c] = %y[t - 1, c] + %x[t, c]", "where T >= 1")
    np.testing.assert_allclose(results(text, x=x)["y"], np.cumsum(x, 0), rtol=1e-14)
    assert "parallel for chunk" in program_text(program(text))


def test_along_the_last_axis_and_backwards() -> None:
    x = RNG.random((3, 7))
    text = op("%x: tensor<NxTxf64> -> %y: tensor<NxTxf64>, %z: tensor<NxTxf64>",
              "%y[n, t] = %x[n, t] + 0.5 * %y[n, t - 1] - %y[n, t - 2] %y[n, 0] = %x[n, 0] %y[n, 1] = %x[n, 1] "
              "%z[n, t in T - 1..T] = %x[n, t] %z[n, t in 0..T - 1] = %x[n, t] * %z[n, t + 1]", "where T >= 2")
    out = results(text, x=x)
    y, z = x.copy(), x.copy()
    for t in range(2, 7):
        y[:, t] = x[:, t] + 0.5 * y[:, t - 1] - y[:, t - 2]
    for t in reversed(range(6)):
        z[:, t] = x[:, t] * z[:, t + 1]
    np.testing.assert_allclose(out["y"], y, rtol=1e-14)
    np.testing.assert_allclose(out["z"], z, rtol=1e-14)
    assert "parallel for lane" in program_text(program(text))


def test_one_that_moves_across_its_row() -> None:
    x = RNG.random((5, 6))
    text = op("%x: tensor<TxSxf64> -> %y: tensor<TxSxf64>",
              "%y[0, s] = %x[0, s] %y[t < T, s] = %x[t, s] + max(%y[t - 1, s], select(s >= 1, %y[t - 1, s - 1], -inf))", "where T >= 1")
    want = x.copy()
    for t in range(1, 5):
        want[t] += np.maximum(want[t - 1], np.concatenate([[-np.inf], want[t - 1, :-1]]))
    np.testing.assert_array_equal(results(text, x=x)["y"], want)
    assert program(text).kernels[0].loop is None


def test_two_that_read_each_other_through_a_local() -> None:
    x = RNG.random((6, 4))
    text = op("%x: tensor<TxCxf64> -> %l: tensor<TxCxf64>, %b: tensor<TxCxf64>",
              "%l[0, c] = %x[0, c] %b[0, c] = 0 %g[t, c] = %l[t - 1, c] + %b[t - 1, c] %l[t < T, c] = 0.5 * %x[t, c] + 0.5 * %g[t, c] "
              "%b[t < T, c] = 0.1 * (%l[t, c] - %l[t - 1, c]) + 0.9 * %b[t - 1, c]", "where T >= 1")
    l, b = x.copy(), np.zeros_like(x)
    for t in range(1, 6):
        l[t] = 0.5 * x[t] + 0.5 * (l[t - 1] + b[t - 1])
        b[t] = 0.1 * (l[t] - l[t - 1]) + 0.9 * b[t - 1]
    out = results(text, x=x)
    np.testing.assert_allclose(out["l"], l, rtol=1e-13)
    np.testing.assert_allclose(out["b"], b, rtol=1e-13)


def test_of_rank_one_and_of_f16() -> None:
    x = np.array([1 / 3, 1 / 3, 1 / 3], np.float32)
    text = op("%x: tensor<Txf32> -> %y: tensor<Txf16>", "%y[0] = %x[0] %y[t < T] = %y[t - 1] + %x[t]", "where T >= 1")
    h = np.float16(1 / 3)
    second = np.float16(np.float32(h) + x[1])
    assert results(text, x=x)["y"].tolist() == [h, second, np.float16(np.float32(second) + x[2])]


def test_what_reads_it_from_data_is_checked() -> None:
    text = op("%x: tensor<Txf32>, %i: tensor<Bxi32> -> %y: tensor<Bxf32>", "%c[0] = %x[0] %c[t < T] = %c[t - 1] + %x[t] %y[b] = %c[%i[b]]", "where T >= 1")
    out = results(text, x=np.array([1, 2, 3], np.float32), i=np.array([2, 0], np.int32))
    assert out["y"].tolist() == [6, 1]
