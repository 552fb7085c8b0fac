"""Windows over codes: integer sums of products of bytes, four at a time, scaled and made codes of again. Every number is that of NumPy."""
from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

import pipelink_ir
from pipelink_ir.backends.cuda.emit import emit_program
from pipelink_ir.backends.loops.gpu.build import build_gpu
from pipelink_ir.grammar import parse
from pipelink_ir.passes.infer.operator import typed_operator
from tests.coded import ADDED, SCALE, added, codes, depthwise, expected, inputs, pooled, pools
from tests.emulated import NEEDS_COMPILER

pytestmark = NEEDS_COMPILER

SHAPES = [(1, 8, 8, 8), (2, 9, 7, 16), (2, 7, 7, 40), (1, 5, 6, 3), (1, 3, 2, 24), (1, 1, 1, 8), (3, 4, 33, 12), (1, 17, 5, 32)]


@cache
def compiled(text: str) -> pipelink_ir.Compiled:
    return pipelink_ir.compile(text, target="cuda-emulated")


def run(text: str, **given: NDArray[np.generic]) -> dict[str, NDArray[np.generic]]:
    return {k: np.asarray(v) for k, v in compiled(text)(**given).items()}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("layout", "dtype", "weights", "zero"), [("NHWC", "i8", "i8", 0), ("NHWC", "u8", "i8", 131), ("NCHW", "i8", "i8", -3), ("NCHW", "u8", "u8", 0)])
def test_depthwise(shape: tuple[int, int, int, int], layout: str, dtype: str, weights: str, zero: int) -> None:
    given = inputs(shape, layout, dtype, weights, zero)
    got = run(depthwise(layout, dtype, weights, zero), **given)["y"]
    assert np.array_equal(got, expected(given, layout, zero))


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_sizes_that_are_known(layout: str) -> None:
    shape = (2, 12, 10, 16)
    given = inputs(shape, layout, "i8", "i8")
    got = run(depthwise(layout, "i8", "i8", 0, shape), **given)["y"]
    assert np.array_equal(got, expected(given, layout, 0))


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_every_second_place(layout: str) -> None:
    given = inputs((1, 12, 16, 8), layout, "i8", "i8")
    got = run(depthwise(layout, "i8", "i8", 0, step=2), **given)["y"]
    assert np.array_equal(got, expected(given, layout, 0, 2))


def test_extremes() -> None:
    """All products at their largest: the sum is the largest that is a float's last digits."""
    for layout, sign in (("NHWC", 1), ("NCHW", -1)):
        given = inputs((1, 4, 8, 8), layout, "i8", "i8")
        given["x"][...] = -128
        given["k"][...] = -128 * sign if sign > 0 else 127
        given["s"][...] = 1e-4
        assert np.array_equal(run(depthwise(layout, "i8", "i8", 0), **given)["y"], expected(given, layout, 0))


def test_scales_that_are_no_numbers() -> None:
    given = inputs((1, 4, 4, 8), "NHWC", "i8", "i8")
    given["s"][:3] = np.nan, np.inf, -np.inf
    got = run(depthwise("NHWC", "i8", "i8", 0), **given)["y"]
    with np.errstate(invalid="ignore"):
        assert np.array_equal(got, expected(given, "NHWC", 0))
    assert (got[..., 0] == 0).all()


def test_where_four_products_are_one() -> None:
    for layout in ("NHWC", "NCHW"):
        module = parse(depthwise(layout, "i8", "i8", 0), "test.plir")
        text = emit_program(build_gpu(typed_operator(module.operators[0]))).text
        assert "pl::dot_ss(" in text
        assert "pl::last_digits(" in text
        assert "pl::dot_us(" in emit_program(build_gpu(typed_operator(parse(depthwise(layout, "u8", "i8", 0), "test.plir").operators[0]))).text
    assert SCALE > 0


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize(("kind", "size", "border"), [("max", 2, -128), ("max", 3, -128), ("mean", 2, 0), ("mean", 3, 5)])
@pytest.mark.parametrize("shape", [(2, 8, 16, 8), (1, 6, 10, 3), (1, 18, 34, 16)], ids=str)
def test_pooling(kind: str, size: int, border: int, layout: str, shape: tuple[int, int, int, int]) -> None:
    x = np.random.default_rng(3).integers(-128, 128, shape).astype(np.int8)
    got = run(pooled(kind, size, border, layout), x=x if layout == "NHWC" else x.transpose(0, 3, 1, 2).copy())["y"]
    want, error = pools(x, kind, size, border)
    assert np.abs((got if layout == "NHWC" else got.transpose(0, 2, 3, 1)) - want).max() <= error


def test_codes_of_every_number_of_16_bits() -> None:
    """A quotient by a constant that is a product: to each number the code of the division."""
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    for scale in (SCALE, 1 / 127, 0.1, 0.0078125, 3.7e-3, 1.0):
        got = run(f"pipeline @p(%x: tensor<Nxf16>) -> (%y: tensor<Nxi8>) {{ %y = @std.quantize(%x) {{scale = {scale!r}}} }}\n", x=x)["y"]
        assert np.array_equal(got, codes(x, scale)), scale


def test_coded_tensors_are_added_and_coded() -> None:
    rng = np.random.default_rng(4)
    a, b = (rng.integers(-128, 128, (3, 5, 7, 16)).astype(np.int8) for _ in "ab")
    assert np.array_equal(run(ADDED, a=a, b=b)["y"], added(a, b))


@pytest.mark.parametrize(("scale", "dtype", "bounds"), [(6 / 127, "i8", 1), (6 / 126, "i8", 2), (0.05, "i8", 2), (6 / 255, "u8", 0)])
def test_bounds_beyond_the_last_code_cost_nothing(scale: float, dtype: str, bounds: int) -> None:
    """relu6 into codes whose last one is 6: only the lower bound is left, or none; into others both are."""
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    text = f"""op @codes(%x: tensor<Nxf16>) -> (%y: tensor<Nx{dtype}>) {{
      compile {{ accuracy = exact }}
      compute {{ %y[n] = {dtype}(round(min(max(%x[n], 0), 6) / {scale!r})) }}
    }}
    pipeline @p(%x: tensor<Nxf16>) -> (%y: tensor<Nx{dtype}>) {{ %y = @codes(%x) }}
    """
    with np.errstate(invalid="ignore"):
        q = np.round(np.minimum(np.maximum(x, np.float16(0)), np.float16(6)).astype(np.float32) / np.float32(scale))
        want = np.where(np.isnan(q), 0, np.clip(q, *((-128, 127) if dtype == "i8" else (0, 255))))
    assert np.array_equal(run(text, x=x)["y"], want)
    emitted = emit_program(build_gpu(typed_operator(parse(text, "test.plir").operators[0]))).text
    line = next(t for t in emitted.splitlines() if f"pl::code_{dtype}<0>(" in t)
    assert line.count("pl::min(") + line.count("pl::max(") == bounds, line
