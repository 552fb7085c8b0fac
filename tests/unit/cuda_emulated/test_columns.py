"""Reductions of columns, whole and in parts: sums of whole numbers are exact, so they are NumPy's."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pipelink_ir
from pipelink_ir.passes.scheduling import columns
from tests.columns import NORM, ROWS, normed, text, values
from tests.emulated import NEEDS_COMPILER
from tests.unit.cuda_emulated.test_strips import kinds

pytestmark = NEEDS_COMPILER
SHAPES = [(2, 5, 7, 16), (1, 20, 33, 24), (3, 4, 6, 7), (1, 3, 300, 8), (2, 1, 1, 32), (2, 9, 9, 3), (1, 2, 2, 300), (2, 7, 7, 130), (1, 41, 1, 1000)]


def run(program: str, **arrays: Any) -> Any:
    return np.asarray(pipelink_ir.compile(program, target="cuda-emulated")(**arrays)["y"])


@pytest.fixture(params=["few", "many"])
def cut(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without parts where results are many, or with as many as there could be."""
    if request.param == "many":
        monkeypatch.setattr(columns, "LEAST", 1)
        monkeypatch.setattr(columns, "MOST", 37)


@pytest.mark.usefixtures("cut")
@pytest.mark.parametrize("dtype", ["f16", "f32", "i8", "bf16", "f64", "f8e4m3"])
def test_sums_means_and_largest(dtype: str) -> None:
    wide = "f64" if dtype == "f64" else "f32"
    programs = {"sum": text(dtype, f"sum[h < H, w < W]({wide}(%x[n, h, w, c]))", wide), "max": text(dtype, f"max[h < H, w < W]({wide}(%x[n, h, w, c]))", wide),
                "mean": text(dtype, f"mean[h < H, w < W]({wide}(%x[n, h, w, c]) * 0.5)", wide)}
    compiled = {kind: pipelink_ir.compile(program, target="cuda-emulated") for kind, program in programs.items()}
    for shape in SHAPES:
        x = values(np.random.default_rng(sum(shape)), dtype, *shape)
        exact = x.astype(np.float64)
        got = {kind: np.asarray(program(x=x)["y"]) for kind, program in compiled.items()}
        assert np.array_equal(got["sum"], exact.sum((1, 2))), shape
        assert np.array_equal(got["max"], exact.max((1, 2))), shape
        np.testing.assert_allclose(got["mean"], (exact * 0.5).mean((1, 2)), rtol=1e-6, atol=1e-6)


@pytest.mark.usefixtures("cut")
@pytest.mark.parametrize("shape", [(1, 1), (100, 1), (333, 7), (70, 64), (65, 257), (3, 1000), (1000, 12)], ids=str)
def test_sums_over_the_rows_of_a_matrix(shape: tuple[int, int]) -> None:
    x = np.random.default_rng(3).integers(-128, 128, shape).astype(np.int8)
    assert np.array_equal(run(ROWS, x=x), x.astype(np.int64).sum(0))


@pytest.mark.usefixtures("cut")
@pytest.mark.parametrize("shape", [(333, 7), (700, 64), (3, 1000)], ids=str)
def test_a_vector_by_a_matrix(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(3)
    x, v = rng.integers(-128, 128, shape).astype(np.int8), rng.integers(-8, 9, shape[0]).astype(np.float32)
    program = """op @rows(%x: tensor<MxKxi8>, %v: tensor<Mxf32>) -> (%y: tensor<Kxf32>) { compute { %y[k] = sum[m < M](%v[m] * f32(%x[m, k])) } }
    pipeline @p(%x: tensor<MxKxi8>, %v: tensor<Mxf32>) -> (%y: tensor<Kxf32>) { %y = @rows(%x, %v) }"""
    assert np.array_equal(run(program, x=x, v=v), v.astype(np.float64) @ x)


@pytest.mark.usefixtures("cut")
@pytest.mark.parametrize("skip", [0, 1])
def test_arrays_that_begin_in_between(skip: int) -> None:
    x = values(np.random.default_rng(1), "f16", 2 * 40 * 64 + skip)[skip:].reshape(2, 40, 1, 64)
    assert np.array_equal(run(text("f16", "sum[h < H, w < W](f32(%x[n, h, w, c]))", "f32"), x=x), x.astype(np.float64).sum((1, 2)))


@pytest.mark.usefixtures("cut")
def test_views_with_strides() -> None:
    x = values(np.random.default_rng(1), "f16", 4, 20, 9, 48)
    program = text("f16", "sum[h < H, w < W](f32(%x[n, h, w, c]))", "f32")
    for view in (x[::2], x[:, ::3], x[..., 1:], x[..., ::2], x[:, :, ::-1], x[..., 8:24]):
        assert np.array_equal(run(program, x=view), view.astype(np.float64).sum((1, 2)))


@pytest.mark.usefixtures("cut")
@pytest.mark.parametrize("shape", [(3, 8, 8, 16), (1, 30, 11, 5)], ids=str)
def test_what_is_made_of_terms_and_of_the_sum(shape: tuple[int, int, int, int]) -> None:
    x = values(np.random.default_rng(5), "i8", *shape)
    wide = x.astype(np.float64)
    codes = run(text("i8", "sat_i8(round(mean[h < H, w < W](max(f32(%x[n, h, w, c]) * 0.5, 0)) / 0.25))", "i8"), x=x)
    want = np.clip(np.round(np.maximum(wide * 0.5, 0).mean((1, 2)) / 0.25), -128, 127)
    assert np.abs(codes - want).max() <= 1  # a mean in the middle between two codes goes either way
    assert (codes == want).mean() > 0.9
    weighed = run(text("i8", "sum[h < H, w < W](f32(%x[n, h, w, c]) * (h + 2 * w))", "f32"), x=x)
    h, w = np.meshgrid(np.arange(shape[1]), np.arange(shape[2]), indexing="ij")
    assert np.array_equal(weighed, (wide * (h + 2 * w)[None, :, :, None]).sum((1, 2)))
    shifted = run(text("i8", "max[h < H, w < W](f32(%x[n, h, (w + 1) mod W, c]))", "f32"), x=x)
    assert np.array_equal(shifted, wide.max((1, 2)))
    turned = run(text("i8", "sum[h < H, w < W](f32(%x[n, h, w, c])) + c", "f32", places="c, n", type_="CxN"), x=x)
    assert np.array_equal(turned, wide.sum((1, 2)).T + np.arange(shape[3])[:, None])


@pytest.mark.usefixtures("cut")
def test_pools_before_a_mean() -> None:
    x = values(np.random.default_rng(5), "f16", 2, 12, 14, 24)
    program = """op @pool(%x: tensor<NxHxWxCxf16>) -> (%y: tensor<Nx(H floordiv 2)x(W floordiv 2)xCxf16>) {
      compute { %y[n, h, w, c] = max[i < 2, j < 2](%x[n, 2 * h + i, 2 * w + j, c]) }
    }
    op @mean(%x: tensor<NxHxWxCxf16>) -> (%y: tensor<NxCxf32>) { semantic { empty = zero } compute { %y[n, c] = mean[h < H, w < W](%x[n, h, w, c]) } }
    pipeline @p(%x: tensor<NxHxWxCxf16>) -> (%y: tensor<NxCxf32>) { %a = @pool(%x) %y = @mean(%a) }"""
    want = x.astype(np.float64).reshape(2, 6, 2, 7, 2, 24).max((2, 4)).mean((1, 2))
    np.testing.assert_allclose(run(program, x=x), want, rtol=1e-6)


@pytest.mark.usefixtures("cut")
@pytest.mark.parametrize("channels", [3, 16])
def test_statistics_of_channels(channels: int) -> None:
    x = np.random.default_rng(7).normal(3, 2, (4, 9, 10, channels)).astype(np.float32)
    np.testing.assert_allclose(run(NORM, x=x), normed(x), rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("cut")
def test_long_sums_are_accurate_and_the_same_in_every_run() -> None:
    x = np.full((1, 400, 300, 2), 0.1, np.float32)
    program = pipelink_ir.compile(text("f32", "sum[h < H, w < W](%x[n, h, w, c])", "f32"), target="cuda-emulated")
    first = np.asarray(program(x=x)["y"])
    np.testing.assert_allclose(first, float(np.float32(0.1)) * 120_000, rtol=1e-6)
    noise = np.random.default_rng(1).normal(size=x.shape).astype(np.float32)
    assert np.asarray(program(x=noise)["y"]).tobytes() == np.asarray(program(x=noise)["y"]).tobytes()


@pytest.mark.usefixtures("cut")
def test_numbers_that_are_none() -> None:
    x = values(np.random.default_rng(1), "f32", 2, 30, 8, 8)
    x[0, 11, 3, 5] = np.nan
    x[1, 29, 7, 0] = np.inf
    with np.errstate(invalid="ignore"):
        for kind, of in (("max", np.max), ("sum", np.sum), ("min", np.min)):
            assert np.array_equal(run(text("f32", f"{kind}[h < H, w < W](%x[n, h, w, c])", "f32"), x=x), of(x, axis=(1, 2)), equal_nan=True)


@pytest.mark.usefixtures("cut")
@pytest.mark.parametrize("shape", [(0, 3, 4, 8), (2, 0, 4, 8), (2, 3, 0, 8), (2, 3, 4, 0)], ids=str)
def test_nothing_to_reduce(shape: tuple[int, int, int, int]) -> None:
    x = np.zeros(shape, np.float32)
    assert np.array_equal(run(text("f32", "sum[h < H, w < W](%x[n, h, w, c])", "f32"), x=x), x.sum((1, 2)))
    for word, none in (("zero", 0.0), ("nan", np.nan)):
        got = run(text("f32", "max[h < H, w < W](%x[n, h, w, c])", "f32", f"semantic {{ empty = {word} }}"), x=x)
        assert np.array_equal(got, np.full((shape[0], shape[3]), none if 0 in shape[1:3] else 0, np.float32), equal_nan=True)
    assert np.isnan(run(text("f32", "mean[h < H, w < W](%x[n, h, w, c])", "f32"), x=x)).all()


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("dtype", ["f32", "f16", "i8"])
def test_few_channels_whose_number_is_written(dtype: str, channels: int) -> None:
    """An access has several rows of a channel then: each of its numbers counts once. Whole numbers, so that sums are exact."""
    program = f"""op @g(%x: tensor<NxHxWxCx{dtype}>) -> (%y: tensor<NxCxf32>) {{ compute {{ %y[n, c] = sum[h < H, w < W](f32(%x[n, h, w, c])) }} }}
    pipeline @p(%x: tensor<NxHxWx{channels}x{dtype}>) -> (%y: tensor<Nx{channels}xf32>) {{ %y = @g(%x) }}
    """
    compiled = pipelink_ir.compile(program, target="cuda-emulated")
    for shape in ((1, 2, 2), (1, 8, 4), (2, 4, 4), (2, 5, 9), (1, 40, 64)):
        x = values(np.random.default_rng(sum(shape)), dtype, *shape, channels)
        np.testing.assert_array_equal(np.asarray(compiled(x=x)["y"]), x.astype(np.float64).sum((1, 2)).astype(np.float32))


@pytest.mark.usefixtures("cut")
@pytest.mark.parametrize(("dtype", "size"), [(np.int8, 1), (np.uint8, 1), (np.int16, 2), (np.int32, 4)])
def test_sums_of_codes_are_exact(dtype: Any, size: int) -> None:
    """Codes by a number are added up as they are. What is wider than two bytes could be too much for that."""
    low, high = (np.iinfo(dtype).min, np.iinfo(dtype).max)
    x = np.random.default_rng(2).choice([low, high, 1], (1, 70, 60, 5), p=[0.1, 0.8, 0.1]).astype(dtype)
    wide = x.astype(np.float64)
    name = np.dtype(dtype).name.replace("uint", "u").replace("int", "i")
    for value, want in (("f32(%x[n, h, w, c])", wide), ("0.1 * f32(%x[n, h, w, c])", np.float64(np.float32(0.1)) * wide)):
        for kind in ("sum", "mean"):
            got = run(text(name, f"{kind}[h < H, w < W]({value})", "f32"), x=x)
            exact = getattr(want, kind)(axis=(1, 2))
            np.testing.assert_allclose(got, exact, rtol=2.0 ** -24 if size <= 2 else 1e-6)


@pytest.mark.usefixtures("cut")
@pytest.mark.parametrize(("operand", "result", "value", "rows"), [
    ("2xHxC", "C", "%y[c] = sum[h < H](f32(%x[1, h, c]))", np.s_[1]),
    ("(2 * N + 1)xHxC", "NxC", "%y[n, c] = sum[h < H](f32(%x[2 * n + 1, h, c]))", np.s_[1::2]),
    ("NxHxC", "NxC", "%y[n, c] = sum[h < H floordiv 2](f32(%x[n, h, c]))", np.s_[:, :42]),
    ("NxHxC", "NxC", "%y[n, c] = sum[h in 0..H - 1](f32(%x[n, h, c]))", np.s_[:, :84]),
    ("NxHxC", "NxC", "%y[n, c] = sum[h < H](f32(%x[N - 1 - n, h, c]))", np.s_[::-1])])
@pytest.mark.parametrize(("n", "channels"), [(3, 3), (3, 4), (3, 16), (5, 8)])
def test_rows_that_begin_where_no_wide_access_may(operand: str, result: str, value: str, rows: Any, n: int, channels: int) -> None:
    """A picture that is one of several, every other one, or read in part: where its rows begin does not follow from how many are read."""
    n = 2 if operand.startswith("2x") else n
    x = values(np.random.default_rng(1), "f16", n, 85, channels)
    program = f"""op @rows(%x: tensor<{operand}xf16>) -> (%y: tensor<{result}xf32>) {{ compute {{ {value} }} }}
    pipeline @p(%x: tensor<{operand}xf16>) -> (%y: tensor<{result}xf32>) {{ %y = @rows(%x) }}"""
    assert np.array_equal(run(program, x=x), x[rows].astype(np.float64).sum(-2))


@pytest.mark.parametrize(("shape", "wanted"), [
    ((32, 56, 56, 64), ["columns"]), ((64, 28, 28, 256), ["columns"]), ((1, 256, 256, 64), ["parts", "join"]), ((32, 128, 128, 64), ["parts", "join"])])
def test_blocks_of_few_columns_do_without_parts_where_they_are_enough(shape: tuple[int, ...], wanted: list[str]) -> None:
    n, h, w, c = shape
    signature = f"(%x: tensor<{n}x{h}x{w}x{c}xf16>) -> (%y: tensor<{n}x{c}xf16>)"
    program = (f"op @g{signature} {{ compute {{ %y[n, c] = mean[h < {h}, w < {w}](%x[n, h, w, c]) }} }}\n"
               f"pipeline @p{signature} {{ %y = @g(%x) }}\n")
    assert kinds(program, "sm_90") == wanted
