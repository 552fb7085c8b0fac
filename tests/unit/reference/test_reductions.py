"""Reductions of the reference backend: values by hand, from exact integers, or from NumPy in float64."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pipelink_ir.backends.reference import interpreter
from pipelink_ir.ir.diagnostics import ExecutionError

Op = Callable[..., Any]
nan, inf = float("nan"), float("inf")


def test_long_sums_stay_accurate_along_every_axis(run_op: Op) -> None:
    x = np.full((4, 40_000), .1, np.float32)
    want = float(np.float32(.1)) * 40_000
    np.testing.assert_allclose(run_op("(%x: tensor<AxBxf32>) -> (%y: tensor<Axf32>)", "%y[a] = sum[b < B](%x[a, b])", x=x), want, rtol=1e-7)
    np.testing.assert_allclose(run_op("(%x: tensor<BxAxf32>) -> (%y: tensor<Axf32>)", "%y[a] = sum[b < B](%x[b, a])", x=x.T.copy()), want, rtol=1e-7)


def test_rms_norm_of_f16_does_not_overflow(run_op: Op) -> None:
    body = "%m = mean[k < K](%x[k] ** 2)\n%y[k] = %x[k] * rsqrt(%m + 1e-6)"
    got = run_op("(%x: tensor<Kxf16>) -> (%y: tensor<Kxf16>)", body, x=[300, -300, 600, 8])
    np.testing.assert_array_equal(got, np.array([.8164, -.8164, 1.633, .02177], np.float16))


def test_softmax_rows(run_op: Op) -> None:
    body = "%m[r] = max[k < K](%x[r, k])\n%e[r, k] = exp(%x[r, k] - %m[r])\n%y[r, k] = %e[r, k] / sum[j < K](%e[r, j])"
    x = [[0, 0], [-inf, -inf], [nan, -inf], [1000, -1000], [inf, 0]]
    got = run_op("(%x: tensor<RxKxf32>) -> (%y: tensor<RxKxf32>)", body, x=x)
    np.testing.assert_array_equal(got, [[.5, .5], [nan, nan], [nan, nan], [1, 0], [nan, nan]])


ALL = "(%x: tensor<NxKxf32>) -> (%sum: tensor<Kxf32>, %prod: tensor<Kxf32>, %max: tensor<Kxf32>, %min: tensor<Kxf32>, %mean: tensor<Kxf32>, " \
      "%any: tensor<Kxbool>, %all: tensor<Kxbool>)"
ALL_BODY = "\n".join(f"%{r}[k] = {r}[n < N](%x[n, k]{' > 0' if r in ('any', 'all') else ''})" for r in ("sum", "prod", "max", "min", "mean", "any", "all"))


def test_reductions_over_nothing(run_op: Op) -> None:
    got = run_op(ALL, ALL_BODY, x=np.zeros((0, 3)))
    for name, want in {"sum": 0, "prod": 1, "max": -inf, "min": inf, "mean": nan, "any": False, "all": True}.items():
        np.testing.assert_array_equal(got[name], [want] * 3)
    assert {n: a.shape for n, a in run_op(ALL, ALL_BODY, x=np.zeros((3, 0))).items()} == dict.fromkeys(got, (0,))


@pytest.mark.parametrize(("empty", "value"), [("zero", 0), ("nan", nan)])
def test_empty_governs_all_but_sum_prod_any_all(run_op: Op, empty: str, value: float) -> None:
    got = run_op(ALL, ALL_BODY, sections=f"semantic {{ empty = {empty} }}", x=np.zeros((0, 2)))
    for name, want in {"sum": 0, "prod": 1, "max": value, "min": value, "mean": value, "any": False, "all": True}.items():
        np.testing.assert_array_equal(got[name], [want] * 2)


def test_integers_over_nothing_are_lowest_and_highest_of_i32(run_op: Op) -> None:
    signature = "(%x: tensor<Nxu8>) -> (%hi: tensor<i32>, %lo: tensor<i32>, %mean: tensor<f32>)"
    got = run_op(signature, "%hi = max[n < N](%x[n])\n%lo = min[n < N](%x[n])\n%mean = mean[n < N](%x[n])", x=np.zeros(0))
    assert (got["hi"], got["lo"]) == (-2**31, 2**31 - 1)
    assert np.isnan(got["mean"])


@pytest.mark.parametrize("kind", ["argmax", "argmin", "nth", "argnth"])
def test_no_winner_is_an_error_at_the_reduction(run_op: Op, kind: str) -> None:
    rank = ", 0" if kind in ("nth", "argnth") else ""
    text = f"{kind}[n < N where %x[n] > 0](%x[n]{rank})"
    with pytest.raises(ExecutionError) as caught:
        run_op("(%x: tensor<Nxi32>) -> (%y: tensor<i32>)", f"%y = {text}", x=[-1, -2])
    found = caught.value.diagnostics[0]
    assert found.code == "PL6101"
    assert found.span.source.text is not None
    assert found.span.source.text[found.span.start:found.span.end] == text
    assert run_op("(%x: tensor<Nxi32>) -> (%y: tensor<i32>)", f"%y = {text}", sections="semantic { empty = zero }", x=[-1, -2]) == 0
    # `nan` has no integer: 0.
    assert run_op("(%x: tensor<Nxi32>) -> (%y: tensor<i32>)", f"%y = {text}", sections="semantic { empty = nan }", x=[-1, -2]) == 0


@pytest.mark.parametrize(("x", "most", "least"), [
    ([3, 7, 7, 1], 1, 3), ([1, nan, 9, nan], 1, 1), ([nan, -inf, 0], 0, 0), ([5] * 1000, 0, 0), ([-inf, -inf], 0, 0), ([inf, inf], 0, 0), ([0, -0.0], 0, 0)])
def test_winners(run_op: Op, x: list[float], most: int, least: int) -> None:
    got = run_op("(%x: tensor<Nxf32>) -> (%a: tensor<i32>, %b: tensor<i32>)", "%a = argmax[n < N](%x[n])\n%b = argmin[n < N](%x[n])", x=x)
    assert (got["a"], got["b"]) == (most, least)
    assert got["a"].dtype == np.int32


def test_a_filter_does_not_renumber_and_hides_infinities(run_op: Op) -> None:
    body = "%a = argmax[n < N where %m[n]](%x[n])\n%b = argmin[n < N where %m[n]](%x[n])"
    got = run_op("(%x: tensor<Nxf32>, %m: tensor<Nxbool>) -> (%a: tensor<i32>, %b: tensor<i32>)", body,
                 x=[-inf, -inf, inf, inf], m=[False, True, False, True])
    assert (got["a"], got["b"]) == (3, 1)


def test_positions_over_ranges(run_op: Op) -> None:
    x = np.array([[0, 9, 1, 2], [3, 4, 5, 6], [9, 9, 9, 8]], np.float32)
    one = run_op("(%x: tensor<HxWxf32>) -> (%y: tensor<Hxi32>)", "%y[h] = argmax[w in 2..W](%x[h, w])", x=x)
    np.testing.assert_array_equal(one, [3, 3, 2])                     # the index itself
    two = run_op("(%x: tensor<HxWxf32>) -> (%y: tensor<i32>)", "%y = argmax[h in 1..H, w in 2..W](%x[h, w])", sections="where H >= 2, W >= 3", x=x)
    assert two == 2                                                   # row 1, column 0 of the box of rows 1, 2 and columns 2, 3


def test_ranks(run_op: Op) -> None:
    x = np.array([3, nan, 1, 3, -inf, nan, 2], np.float32)
    order = [4, 2, 6, 0, 3, 1, 5]
    signature = "(%x: tensor<Kxf32>) -> (%y: tensor<Kxf32>, %at: tensor<Kxi32>, %back: tensor<Kxi32>)"
    got = run_op(signature, "%y[r] = nth[k < K](%x[k], r)\n%at[r] = argnth[k < K](%x[k], r)\n%back[r] = argnth[k < K](%x[k], -1 - r)", x=x)
    np.testing.assert_array_equal(got["at"], order)
    np.testing.assert_array_equal(got["y"], x[order])
    np.testing.assert_array_equal(got["back"], order[::-1])


def test_ranks_count_what_passes_the_filter(run_op: Op) -> None:
    signature = "(%x: tensor<Kxi32>) -> (%lo: tensor<i32>, %hi: tensor<i32>, %none: tensor<i32>)"
    body = "\n".join(f"%{n} = nth[k < K where %x[k] > 0](%x[k], {r})" for n, r in (("lo", "0"), ("hi", "-1"), ("none", "3")))
    got = run_op(signature, body, sections="semantic { empty = zero }", x=[5, -7, 2, 0, 9])
    assert (got["lo"], got["hi"], got["none"]) == (2, 9, 0)


def test_ranks_from_data(run_op: Op) -> None:
    got = run_op("(%x: tensor<NxKxf32>, %r: tensor<Mxi32>) -> (%y: tensor<NxMxf32>)", "%y[n, m] = nth[k < K](%x[n, k], %r[m])",
                 sections="semantic { empty = nan }", x=[[3, 1, 2], [6, 5, 4]], r=[0, -1, 1, 3, -4])
    np.testing.assert_array_equal(got, [[1, 3, 2, nan, nan], [4, 6, 5, nan, nan]])


def test_integer_sums_wrap_and_means_do_not(run_op: Op) -> None:
    got = run_op("(%x: tensor<Nxi32>) -> (%s: tensor<i32>, %p: tensor<i32>, %m: tensor<f32>)",
                 "%s = sum[n < N](%x[n])\n%p = prod[n < N](%x[n])\n%m = mean[n < N](%x[n])", x=[2**31 - 1, 2**31 - 1, 2])
    assert (got["s"], got["p"]) == (0, 2)
    assert got["m"] == np.float32((2**32) / 3)


def test_u8_times_i8(run_op: Op) -> None:
    for k, want in ((2, 64770), (4, 129540), (64, 2072640)):
        got = run_op("(%a: tensor<Kxu8>, %b: tensor<Kxi8>) -> (%y: tensor<i32>)", "%y = sum[k < K](%a[k] * %b[k])", a=[255] * k, b=[127] * k)
        assert got == want


def test_ranges_that_depend_on_each_other(run_op: Op) -> None:
    x = np.arange(12, dtype=np.float32)
    got = run_op("(%x: tensor<Nxf32>) -> (%y: tensor<f32>)", "%y = sum[i < N, j < i](%x[i] * %x[j])", x=x)
    assert got == sum(float(x[i] * x[j]) for i in range(12) for j in range(i))
    rows = run_op("(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>)", "%y[n] = sum[j in 0..n + 1](%x[j])", x=x)
    np.testing.assert_array_equal(rows, np.cumsum(x))


def test_bounds_from_data(run_op: Op) -> None:
    signature = "(%v: tensor<Nxf32>, %o: tensor<(B + 1)xi32>) -> (%s: tensor<Bxf32>, %n: tensor<Bxi32>)"
    body = "%s[b] = sum[n in %o[b]..%o[b+1]](%v[n])\n%n[b] = sum[n in %o[b]..%o[b+1]](1)"
    got = run_op(signature, body, v=np.arange(10), o=[0, 3, 3, 10, 8])
    np.testing.assert_array_equal(got["s"], [3, 0, 42, 0])
    np.testing.assert_array_equal(got["n"], [3, 0, 7, 0])           # a range that ends before it begins is empty
    with pytest.raises(ExecutionError, match="read at index 10 along axis 0, but its extent is 10"):
        run_op(signature, body, v=np.arange(10), o=[0, 12])


def test_nested_reductions(run_op: Op) -> None:
    x = np.random.default_rng(0).standard_normal((5, 7)).astype(np.float32)
    got = run_op("(%x: tensor<HxWxf32>) -> (%y: tensor<f32>)", "%y = max[h < H](sum[w < W where %x[h, w] > mean[k < W](%x[h, k])](%x[h, w]))", x=x)
    wide = x.astype(np.float64)
    assert got == np.float32(max(row[row > row.mean()].sum() for row in wide))


@pytest.mark.parametrize("limit", [1, 5, 64])
def test_parts_give_the_same(run_op: Op, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((6, 9)), rng.standard_normal((9, 5))
    signature = "(%a: tensor<MxKxf32>, %b: tensor<KxNxf32>) -> (%c: tensor<MxNxf32>, %s: tensor<MxNxf32>, %at: tensor<Mxi32>)"
    body = """%c[m, n] = sum[k < K](%a[m, k] * %b[k, n])
              %s[m, n] = select(%a[m, 0] > 0, sum[k < K where %b[k, n] > 0](%a[m, k] * max[j < N](%b[k, j])), sum[k < K, j < N](%b[k, j]))
              %at[m] = argmax[k < K](sum[n < N](%a[m, k] * %b[k, n]))"""
    whole = run_op(signature, body, sections="where K >= 1", a=a, b=b)
    monkeypatch.setattr(interpreter, "LIMIT", limit)
    parts = run_op(signature, body, sections="where K >= 1", a=a, b=b)
    for name, value in whole.items():
        np.testing.assert_array_equal(parts[name], value)
    wide = a.astype(np.float32).astype(np.float64), b.astype(np.float32).astype(np.float64)
    np.testing.assert_allclose(whole["c"], wide[0] @ wide[1], rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(whole["at"], (wide[0] * wide[1].sum(axis=1)).argmax(axis=1))


def test_the_place_in_ranges_that_depend_on_an_index_alone(run_op: Op) -> None:
    """Nothing but the bounds tells the rows apart, and all of them are equally long."""
    signature = "(%m: tensor<Bxi32>, %v: tensor<Nxf32>) -> (%y: tensor<Bxi32>, %z: tensor<Bxi32>)"
    body = "%y[b] = argmax[n < %m[b], k < 3](%v[k])\n%z[b] = argnth[n in %m[b]..%m[b] + 2, k < 2](f32(k), -1)"
    got = run_op(signature, body, sections="where N >= 3", m=[2, 2, 2], v=[1, 3, 2])
    np.testing.assert_array_equal(got["y"], [1, 1, 1])
    np.testing.assert_array_equal(got["z"], [3, 3, 3])
    filtered = run_op(signature, body.replace("k < 3]", "k < 3 where n > 5]"), sections="where N >= 3 semantic { empty = zero }", m=[2, 2, 2], v=[1, 3, 2])
    np.testing.assert_array_equal(filtered["y"], [0, 0, 0])
