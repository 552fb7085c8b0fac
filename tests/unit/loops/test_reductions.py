"""Reductions: kinds, filters, bounds from data, over nothing, accuracy, ranks."""
from __future__ import annotations

import numpy as np
import pytest

from pipelink_ir.backends.loops.print import program_text
from tests.unit.loops.interpreter import Failed
from tests.unit.loops.programs import op, program, results

RNG = np.random.default_rng(11)


def reduced(kind: str, x: np.ndarray, dtype: str = "f32", sections: str = "") -> np.ndarray:
    """Every row of a matrix reduced."""
    out = {"argmax": "i32", "argmin": "i32", "any": "bool", "all": "bool"}.get(kind, "f32" if kind == "mean" else dtype)
    body = "%x[n, k] > 0" if kind in ("any", "all") else "%x[n, k]"
    made = results(op(f"%x: tensor<NxKx{dtype}> -> %y: tensor<Nx{out}>", f"%y[n] = {kind}[k < K]({body})", sections), x=x)
    return made["y"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("width", [1, 2, 40, 300])
def test_kinds(width: int) -> None:
    x = RNG.normal(size=(3, width)).astype(np.float32)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(reduced("sum", x), wide.sum(1), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(reduced("mean", x), wide.mean(1), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(reduced("prod", x[:, :8]), wide[:, :8].prod(1), rtol=1e-5)
    for kind in ("max", "min", "argmax", "argmin"):
        np.testing.assert_array_equal(reduced(kind, x), getattr(np, kind)(x, 1))
    np.testing.assert_array_equal(reduced("any", x - 2), (x > 2).any(1))
    np.testing.assert_array_equal(reduced("all", x + 2), (x > -2).all(1))


def test_long_sums_stay_accurate() -> None:
    x = np.full((1, 20000), 0.1, np.float32)
    np.testing.assert_allclose(reduced("sum", x), x.astype(np.float64).sum(1), rtol=5e-6)
    text = op("%x: tensor<NxKxf32> -> %y: tensor<Kxf32>", "%y[k] = sum[n < N](%x[n, k])")
    np.testing.assert_allclose(results(text, x=x.T.copy())["y"], x.astype(np.float64).sum(1), rtol=5e-6)


def test_integers_sum_in_their_type_and_mean_in_i64() -> None:
    x = np.array([[2147483647, 1, 5], [7, 8, -9]], np.int32)
    assert reduced("sum", x, "i32").tolist() == [-2147483643, 6]
    np.testing.assert_allclose(reduced("mean", x, "i32"), [2147483653 / 3, 2], rtol=1e-7)
    text = op("%x: tensor<NxKxu8> -> %y: tensor<Nxi32>", "%y[n] = max[k < K](%x[n, k])")
    assert results(text, x=np.array([[200, 7]], np.uint8))["y"].tolist() == [200]


def test_nan_wins_and_the_first_of_equals() -> None:
    nan = np.nan
    x = np.array([[1, nan, 9, nan], [3, 7, 7, 1], [nan, -np.inf, 0, 2], [5, 5, 5, 5]], np.float32)
    assert reduced("argmax", x).tolist() == [1, 1, 0, 0]
    assert reduced("argmin", x).tolist() == [1, 3, 0, 0]
    np.testing.assert_array_equal(reduced("max", x), [nan, 7, nan, 5])
    np.testing.assert_array_equal(reduced("min", x), [nan, 1, nan, 5])


def test_argmax_over_two_indices_is_a_flat_position() -> None:
    x = RNG.normal(size=(2, 3, 5, 4)).astype(np.float32)
    text = op("%x: tensor<NxAxBxCxf32> -> %y: tensor<NxCxi32>, %z: tensor<Nxi32>",
              "%y[n, c] = argmax[a < A, b < B](%x[n, a, b, c]) %z[n] = argmin[a in 1..A, c in 1..3](%x[n, a, 0, c])")
    out = results(text.replace("compute", "where A >= 2, B >= 1, C >= 3 compute"), x=x)
    np.testing.assert_array_equal(out["y"], x.reshape(2, 15, 4).argmax(1))
    np.testing.assert_array_equal(out["z"], x[:, 1:, 0, 1:3].reshape(2, 4).argmin(1))


def test_one_range_gives_the_index_itself() -> None:
    text = op("%x: tensor<Nxi32> -> %y: tensor<i32>", "%y = argmax[n in 2..N](%x[n])", "where N >= 3")
    assert results(text, x=np.array([9, 8, 1, 3, 3], np.int32))["y"] == 3


def test_over_nothing() -> None:
    x = np.zeros((2, 0), np.float32)
    for kind, want in (("sum", 0), ("prod", 1), ("max", -np.inf), ("min", np.inf), ("mean", np.nan), ("any", False), ("all", True)):
        np.testing.assert_array_equal(reduced(kind, x), np.array([want, want], reduced(kind, x).dtype))
    assert reduced("max", x.astype(np.int32), "i32").tolist() == [-2147483648] * 2
    with pytest.raises(Failed, match="'argmax' over nothing has no value"):
        reduced("argmax", x)
    for kind in ("max", "min", "mean", "argmax"):
        assert reduced(kind, x, sections="semantic { empty = zero }").tolist() == [0, 0]
    assert np.isnan(reduced("max", x, sections="semantic { empty = nan }")).all()
    assert reduced("sum", x, sections="semantic { empty = nan }").tolist() == [0, 0]


@pytest.mark.parametrize("empty", ["", "semantic { empty = zero }"])
def test_filters(empty: str) -> None:
    x, m = RNG.normal(size=(3, 300)).astype(np.float32), RNG.random((3, 300)) < 0.3
    m[1] = False
    body = ("%s[n] = sum[k < K where %m[n, k]](%x[n, k]) %h[n] = max[k < K where %m[n, k]](exp(%x[n, k])) %a[n] = mean[k < K where %m[n, k]](%x[n, k]) "
            "%c[n] = sum[k < K where %m[n, k]](1) %p[n] = sum[k < K where k >= 1 and %m[n, k]](%x[n, k - 1])")
    out = results(op("%x: tensor<NxKxf32>, %m: tensor<NxKxbool> -> %s: tensor<Nxf32>, %h: tensor<Nxf32>, %a: tensor<Nxf32>, %c: tensor<Nxi32>, "
                     "%p: tensor<Nxf32>", body, empty), x=x, m=m)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(out["s"], (wide * m).sum(1), rtol=1e-5, atol=1e-6)
    lost = 0 if empty else -np.inf
    np.testing.assert_allclose(out["h"], [np.exp(wide[i][m[i]]).max() if m[i].any() else lost for i in range(3)], rtol=1e-6)
    np.testing.assert_allclose(out["a"], [wide[i][m[i]].mean() if m[i].any() else (0 if empty else np.nan) for i in range(3)], rtol=1e-5, atol=1e-6)
    assert out["c"].tolist() == m.sum(1).tolist()
    np.testing.assert_allclose(out["p"], (wide[:, :-1] * m[:, 1:]).sum(1), rtol=1e-5, atol=1e-5)


def test_a_filter_keeps_what_does_not_pass_out_of_sums_and_checks() -> None:
    x, i = np.array([1.0, np.nan, np.inf], np.float32), np.array([0, 7, 0], np.int32)
    text = op("%x: tensor<Kxf32>, %i: tensor<Kxi32> -> %y: tensor<f32>, %z: tensor<f32>",
              "%y = sum[k < K where %i[k] == 0 and k < 2](%x[k]) %z = sum[k < K where %i[k] < K](%x[%i[k]])")
    out = results(text, x=x, i=i)
    assert out["y"] == 1
    assert out["z"] == 2


def test_bounds_from_data() -> None:
    v, o = RNG.normal(size=(10, 3)).astype(np.float32), np.array([0, 4, 4, 10], np.int32)
    text = op("%v: tensor<NxFxf32>, %o: tensor<(B + 1)xi32> -> %s: tensor<BxFxf32>, %c: tensor<Bxi32>",
              "%s[b, f] = sum[n in %o[b]..%o[b + 1]](%v[n, f]) %c[b] = sum[n in %o[b]..%o[b + 1], m in %o[b]..n](1)")
    out = results(text, {"B": 3}, v=v, o=o)
    np.testing.assert_allclose(out["s"], [v[0:4].sum(0), [0, 0, 0], v[4:].sum(0)], rtol=1e-5, atol=1e-6)
    assert out["c"].tolist() == [6, 0, 15]
    with pytest.raises(Failed, match="of '%v' is outside"):
        results(text, {"B": 3}, v=v[:9], o=o)


def test_invariant_reductions_run_once_a_row() -> None:
    text = op("%x: tensor<NxKxf32> -> %y: tensor<NxKxf32>", "%m[n] = max[k < K](%x[n, k]) %y[n, k] = exp(%x[n, k] - %m[n])")
    assert program_text(program(text)).count("max = max(max, ") == 1
    x = RNG.normal(size=(3, 50)).astype(np.float32)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(results(text, x=x)["y"], np.exp(wide - wide.max(1, keepdims=True)), rtol=1e-6)


def test_a_row_of_a_local_is_kept_in_scratch() -> None:
    text = op("%x: tensor<NxKxf32> -> %y: tensor<NxKxf32>",
              "%m[n] = max[k < K](%x[n, k]) %e[n, k] = exp(%x[n, k] - %m[n]) %s[n] = sum[k < K](%e[n, k]) %y[n, k] = %e[n, k] / %s[n]")
    p = program(text)
    assert len(p.kernels) == 1
    assert not p.temporaries
    assert program_text(p).count("exp(") == 1
    x = RNG.normal(size=(3, 50)).astype(np.float32)
    e = np.exp(x.astype(np.float64))
    np.testing.assert_allclose(results(text, x=x)["y"], e / e.sum(1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("keys", [0, 1, 5])
def test_attention_with_and_without_keys(keys: int) -> None:
    q, k, v = (RNG.normal(size=s).astype(np.float32) for s in ((2, 6, 4), (2, keys, 4), (2, keys, 9)))
    text = op("%q: tensor<BxSxDxf32>, %k: tensor<BxLxDxf32>, %v: tensor<BxLxExf32>, %g: tensor<Lxf32> -> %o: tensor<BxSxExf32>",
              "%s[b, i, j] = sum[d < D](%q[b, i, d] * %k[b, j, d]) * %g[0 * j] %m[b, i] = max[j < L](%s[b, i, j]) "
              "%p[b, i, j] = exp(%s[b, i, j] - %m[b, i]) %o[b, i, e] = sum[j < L](%p[b, i, j] * %v[b, j, e]) / sum[j < L](%p[b, i, j])")
    made = results(text, q=q, k=k, v=v, g=np.ones(keys, np.float32))["o"]
    with np.errstate(all="ignore"):
        s = np.einsum("bid,bjd->bij", q.astype(np.float64), k)
        p = np.exp(s - s.max(2, keepdims=True, initial=-np.inf))
        want = np.einsum("bij,bje->bie", p, v) / p.sum(2, keepdims=True)
    np.testing.assert_allclose(made, want, rtol=1e-5, atol=1e-6)


# ------------------------------------------------------------------------------------------------------------- accumulated rows


@pytest.mark.parametrize("shape", [(1, 1, 8), (3, 5, 9), (4, 300, 16), (9, 7, 260), (5, 0, 12), (0, 3, 9), (3, 3, 0)])
def test_products_of_matrices(shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    x, w, b = (RNG.normal(size=s).astype(np.float32) for s in ((m, k), (k, n), (n,)))
    text = op("%x: tensor<MxKxf32>, %w: tensor<KxNxf32>, %b: tensor<Nxf32> -> %y: tensor<MxNxf32>",
              "%h[i, j] = sum[k < K](%x[i, k] * %w[k, j]) + %b[j] %y[i, j] = max(%h[i, j], 0) - %h[i, j] / 2")
    assert "fma(" in program_text(program(text))
    h = x.astype(np.float64) @ w + b
    np.testing.assert_allclose(results(text, x=x, w=w, b=b)["y"], np.maximum(h, 0) - h / 2, rtol=1e-5, atol=1e-4)
    exact = op("%x: tensor<MxKxf32>, %w: tensor<KxNxf32> -> %y: tensor<MxNxf32>", "%y[i, j] = sum[k < K](%x[i, k] * %w[k, j])",
               "compile { accuracy = exact }")
    assert "fma(" not in program_text(program(exact))
    np.testing.assert_allclose(results(exact, x=x, w=w)["y"], h - b, rtol=1e-5, atol=1e-4)


def test_an_operand_that_runs_across_the_row_is_turned_once() -> None:
    x, w = RNG.normal(size=(2, 9, 5)).astype(np.float32), RNG.normal(size=(11, 5)).astype(np.float16)
    text = op("%x: tensor<BxMxKxf32>, %w: tensor<NxKxf16> -> %y: tensor<BxMxNxf32>", "%y[b, i, j] = sum[k < K](%x[b, i, k] * %w[j, k]) + %w[j, 0 * i]",
              "where K >= 1")
    p = program(text)
    assert [t.name for t in p.temporaries] == ["w.along.0"]
    want = x.astype(np.float64) @ w.astype(np.float64).T + w[:, 0].astype(np.float64)
    np.testing.assert_allclose(results(text, x=x, w=w)["y"], want, rtol=1e-5, atol=1e-5)
    # A single pass over the operand does not pay for a copy.
    assert not program(op("%x: tensor<Kxf32>, %w: tensor<NxKxf32> -> %y: tensor<Nxf32>", "%y[j] = sum[k < K](%x[k] * %w[j, k])")).temporaries


@pytest.mark.parametrize("kind", ["sum", "max", "min", "mean", "prod"])
def test_along_the_first_axis(kind: str) -> None:
    x = RNG.normal(size=(11, 300)).astype(np.float32)
    text = op("%x: tensor<NxKxf32> -> %y: tensor<Kxf32>", f"%y[k] = {kind}[n < N](%x[n, k])")
    np.testing.assert_allclose(results(text, x=x)["y"], getattr(np, kind)(x.astype(np.float64), 0), rtol=1e-5, atol=1e-5)
    empty = results(text, x=x[:0])["y"]
    np.testing.assert_array_equal(empty, np.full(300, {"sum": 0, "prod": 1, "max": -np.inf, "min": np.inf, "mean": np.nan}[kind], np.float32))


def test_convolution_shares_its_input_among_output_channels() -> None:
    x, k = RNG.normal(size=(2, 3, 6, 11)).astype(np.float32), RNG.normal(size=(5, 3, 3, 3)).astype(np.float32)
    text = op("%x: tensor<NxCxHxWxf32>, %k: tensor<OxCx3x3xf32> -> %y: tensor<NxOxHxWxf32>",
              "%y[n, o, h, w] = sum[c < C, dy < 3, dx < 3](%x[n, c, h + dy - 1, w + dx - 1] * %k[o, c, dy, dx])", "memory { border = constant(0) }")
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    np.testing.assert_allclose(results(text, x=x, k=k)["y"], np.einsum("nchwij,ocij->nohw", windows, k), rtol=1e-4, atol=1e-5)


def test_filters_of_accumulated_rows() -> None:
    x, i = RNG.normal(size=(20, 30)).astype(np.float32), RNG.integers(0, 4, 20).astype(np.int32)
    text = op("%x: tensor<NxKxf32>, %i: tensor<Nxi32>, V: dim -> %a: tensor<VxKxf32>, %b: tensor<VxKxf32>",
              "%a[v, k] = sum[n < N where %i[n] == v](%x[n, k]) %b[v, k] = max[n < N where %x[n, k] > v](%x[n, k])")
    out = results(text, {"V": 4}, x=x, i=i)
    np.testing.assert_allclose(out["a"], [x[i == v].astype(np.float64).sum(0) for v in range(4)], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(out["b"], [np.where(x > v, x, -np.inf).max(0) for v in range(4)])


def test_an_accumulated_sum_read_away_from_its_place() -> None:
    x = RNG.normal(size=(12, 20)).astype(np.float32)
    text = op("%x: tensor<NxKxf32> -> %y: tensor<Kxf32>",
              "%s[k] = sum[n < N](%x[n, k]) %y[k] = select(k >= 1, %s[k - 1], 0) + %s[k]", "schedule { %s { place = inline } }")
    s = x.astype(np.float64).sum(0)
    np.testing.assert_allclose(results(text, x=x)["y"], s + np.concatenate([[0], s[:-1]]), rtol=1e-5, atol=1e-5)


# -------------------------------------------------------------------------------------------------------------------------- ranks


@pytest.mark.parametrize(("size", "rank"), [(s, r) for s in (1, 2, 3, 5, 9, 16, 25) for r in (0, -1, 1) if r < s])
def test_networks(size: int, rank: int) -> None:
    x = RNG.integers(0, 4, (20, size)).astype(np.float32)
    x[::5, 0] = np.nan
    text = op(f"%x: tensor<Nx{size}xf32> -> %y: tensor<Nxf32>, %a: tensor<Nxi32>",
              f"%y[n] = nth[k < {size}](%x[n, k], {rank}) %a[n] = argnth[k < {size}](%x[n, k], {rank})")
    assert "Alloc" not in repr(program(text).kernels)
    order = np.argsort(x, 1, kind="stable")
    out = results(text, x=x)
    np.testing.assert_array_equal(out["y"], np.sort(x, 1)[:, rank])
    np.testing.assert_array_equal(out["a"], order[:, rank])


@pytest.mark.parametrize("size", [1, 2, 7, 33, 100])
def test_sorting(size: int) -> None:
    x = RNG.integers(0, 9, (2, size)).astype(np.float32)
    x[0, size // 2] = np.nan
    text = op("%x: tensor<NxKxf32> -> %y: tensor<NxKxf32>, %a: tensor<NxKxi32>",
              "%y[n, r] = nth[k < K](%x[n, k], r) %a[n, r] = argnth[k < K](%x[n, k], -1 - r)")
    p = program(text)
    assert program_text(p).count("for level") == 1          # one sort a row, for both results and all ranks
    out = results(text, x=x)
    np.testing.assert_array_equal(out["y"], np.sort(x, 1))
    np.testing.assert_array_equal(out["a"], np.argsort(x, 1, kind="stable")[:, ::-1])


def test_ranks_of_what_passes_a_filter() -> None:
    x = np.array([[3, -1, 2, 2, -5], [-1, -2, -3, -4, -5]], np.int32)
    body = "%y[n] = nth[k < K where %x[n, k] > 0](%x[n, k], 1) %a[n] = argnth[k < K where %x[n, k] > 0](%x[n, k], -2)"
    signature = "%x: tensor<NxKxi32> -> %y: tensor<Nxi32>, %a: tensor<Nxi32>"
    out = results(op(signature, body, "semantic { empty = zero }"), x=x)
    assert out["y"].tolist() == [2, 0]
    assert out["a"].tolist() == [3, 0]
    with pytest.raises(Failed, match=r"of rank -?[12] among 0 candidates has no value"):
        results(op(signature, body), x=x)
