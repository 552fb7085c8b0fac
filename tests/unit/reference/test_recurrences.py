"""Recurrences of the reference backend, against loops in plain Python."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Op = Callable[..., Any]
X = np.random.default_rng(4).standard_normal((6, 3)).astype(np.float32)


def test_upwards_and_downwards(run_op: Op) -> None:
    signature = "(%x: tensor<TxCxf32>) -> (%a: tensor<TxCxf32>, %b: tensor<TxCxf32>)"
    body = """%a[t < T, c] = %a[t-1, c] + %x[t, c]
              %a[0, c] = %x[0, c]
              %b[t in 0..T - 1, c] = %b[t+1, c] + %x[t, c]
              %b[t in T - 1..T, c] = %x[t, c]"""
    got = run_op(signature, body, sections="where T >= 1", x=X)
    np.testing.assert_allclose(got["a"], np.cumsum(X.astype(np.float64), axis=0), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(got["b"], np.cumsum(X[::-1].astype(np.float64), axis=0)[::-1], rtol=1e-6, atol=1e-6)
    one = run_op(signature, body, sections="where T >= 1", x=X[:1])
    np.testing.assert_array_equal(one["a"], X[:1])
    np.testing.assert_array_equal(one["b"], X[:1])


def test_two_base_cases_along_the_last_axis(run_op: Op) -> None:
    body = "%y[0] = 0.0\n%y[1] = 1.0\n%y[t < T] = %y[t-1] + %y[t-2] + 0 * %x[t]"
    got = run_op("(%x: tensor<Txf32>) -> (%y: tensor<Txf32>)", body, sections="where T >= 2", x=np.zeros(20))
    want = [0, 1]
    while len(want) < 20:
        want.append(want[-1] + want[-2])
    np.testing.assert_array_equal(got, want)


def test_two_that_read_each_other(run_op: Op) -> None:
    body = """%a[0] = %x[0]
              %b[0] = 1.0
              %s[t] = %a[t-1] + %b[t-1]
              %a[t < T] = %s[t] * 0.5 + %x[t]
              %b[t < T] = %a[t] - %b[t-1]"""
    x = X[:, 0]
    got = run_op("(%x: tensor<Txf32>) -> (%a: tensor<Txf32>, %b: tensor<Txf32>)", body, sections="where T >= 1", x=x)
    a, b = [float(x[0])], [1.0]
    for v in x[1:].tolist():
        a.append((a[-1] + b[-1]) * .5 + v)
        b.append(a[-1] - b[-1])
    np.testing.assert_allclose(got["a"], a, rtol=1e-5)
    np.testing.assert_allclose(got["b"], b, rtol=1e-5, atol=1e-6)


def test_guards_inside_a_step(run_op: Op) -> None:
    """Longest common subsequence: the other axis runs in parallel, guarded by `select`."""
    body = "%y[0, j] = i32(0)\n%y[i < N + 1, j < M + 1] = max(%y[i-1, j], select(j >= 1, %y[i-1, j-1] + select(%a[i-1] == %b[j-1], 1, 0), 0))"
    signature = "(%a: tensor<Nxi32>, %b: tensor<Mxi32>) -> (%y: tensor<(N + 1)x(M + 1)xi32>)"
    a, b = [1, 2, 3, 2], [2, 3, 1, 2, 5]
    got = run_op(signature, body, a=a, b=b)
    want = np.zeros((len(a) + 1, len(b) + 1), np.int32)
    for i in range(1, len(a) + 1):
        for j in range(len(b) + 1):
            want[i, j] = max(want[i-1, j], want[i-1, j-1] + (a[i-1] == b[j-1]) if j else 0)
    np.testing.assert_array_equal(got, want)
