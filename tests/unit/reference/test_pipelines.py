"""Pipelines of the reference backend: binding, attributes, graphs, aliases, rounding of edges, the float64 mode."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pipelink_ir.backends.reference.executable import ReferenceExecutable
from pipelink_ir.ir.diagnostics import ExecutionError, ProgramError

Run = Callable[..., dict[str, np.ndarray[Any, Any]]]
COPY = "op @same(%x: tensor<...xT>) -> (%y: tensor<...xT>) { compute { %y[...] = %x[...] } }\n"
AFFINE = "op @affine(%x: tensor<...xf32>, by: f32 = 2.0, add: f32 = 0.0) -> (%y: tensor<...xf32>) { compute { %y[...] = by * %x[...] + add } }\n"


def test_results_share_memory_with_nothing(run: Run, compile_text: Callable[..., ReferenceExecutable]) -> None:
    program = compile_text(COPY + "pipeline @p(%x: tensor<Nxf32>) -> (%a: tensor<Nxf32>, %b: tensor<Nxf32>) { %a = @same(%x)\n%b = %a }")
    x = np.arange(4, dtype=np.float32)
    got = program({"x": x})
    np.testing.assert_array_equal(got["a"], x)
    np.testing.assert_array_equal(got["b"], x)
    assert not np.shares_memory(got["a"], got["b"])
    assert not np.shares_memory(got["a"], x)
    again = program({"x": x + 1})
    np.testing.assert_array_equal(got["a"], x)
    np.testing.assert_array_equal(again["b"], x + 1)


@pytest.mark.parametrize("dtype", ["bool", "u8", "i8", "u16", "i16", "i32", "i64", "f16", "bf16", "f32", "f64", "f8e4m3", "f8e5m2"])
def test_every_dtype_comes_through(run: Run, compile_text: Callable[..., ReferenceExecutable], dtype: str) -> None:
    program = compile_text(COPY + f"pipeline @p(%x: tensor<Nx{dtype}>) -> (%y: tensor<Nx{dtype}>) {{ %y = @same(%x) }}")
    kind = {"f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2, "bf16": ml_dtypes.bfloat16, "f16": np.float16}.get(dtype)
    bits = np.arange(256, dtype=np.uint8)
    x = bits.view(kind) if kind is not None else bits.astype(bool) if dtype == "bool" else \
        bits.view({"u8": "u1", "i8": "i1", "u16": "u2", "i16": "i2", "i32": "i4", "i64": "i8", "f32": "f4", "f64": "f8"}[dtype])
    got = program({"x": x})["y"]
    assert got.dtype == x.dtype
    wide = (x, got) if x.dtype.kind in "biu" else (x.astype(np.float64), got.astype(np.float64))
    np.testing.assert_array_equal(wide[1], wide[0])


def test_shapes_of_rank_0_and_of_size_0(run: Run) -> None:
    text = AFFINE + "pipeline @p(%x: tensor<f32>, %z: tensor<HxWxf32>) -> (%y: tensor<f32>, %w: tensor<HxWxf32>) { %y = @affine(%x)\n%w = @affine(%z) }"
    got = run(text, x=3.5, z=np.zeros((4, 0)))
    assert (got["y"].shape, got["w"].shape) == ((), (4, 0))
    assert got["y"] == 7
    assert got["w"].dtype == np.float32


def test_attributes(run: Run) -> None:
    text = AFFINE + """
    pipeline @p(%x: tensor<Nxf32>, alpha: f32 = 0.25) -> (%y: tensor<Nxf32>, %z: tensor<Nxf32>) {
      where alpha > 0
      %y = @affine(%x) {by = (1 - alpha) / 2, add = f32(N)}
      %z = @affine(%x)
    }"""
    got = run(text, x=[8, 16])
    np.testing.assert_array_equal(got["y"], [5, 8])
    np.testing.assert_array_equal(got["z"], [16, 32])


def test_conditions_are_checked_at_the_call(run: Run) -> None:
    text = COPY + "pipeline @p(%x: tensor<HxWxf32>) -> (%y: tensor<HxWxf32>) {\n  where H >= 1, W mod 4 == 0\n  %y = @same(%x)\n}"
    assert run(text, x=np.zeros((1, 8)))["y"].shape == (1, 8)
    with pytest.raises(ExecutionError) as caught:
        run(text, x=np.zeros((1, 6)))
    found = caught.value.diagnostics[0]
    assert "W = 6" in found.message
    assert found.span.source.text is not None
    assert found.span.source.text[found.span.start:found.span.end] == "W mod 4 == 0"


def test_shapes_that_contradict_each_other(run: Run) -> None:
    text = "op @add(%a: tensor<Nxf32>, %b: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { compute { %y[n] = %a[n] + %b[n] } }\n" \
           "pipeline @p(%a: tensor<Nxf32>, %b: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { %y = @add(%a, %b) }"
    with pytest.raises(ExecutionError) as caught:
        run(text, a=[1, 2], b=[1, 2, 3])
    assert (caught.value.diagnostics[0].code, caught.value.diagnostics[0].field) == ("PL6001", "input")
    with pytest.raises(ExecutionError, match="there is no array for '%b'"):
        run(text, a=[1, 2])


def test_symbols_bound_by_expressions(run: Run) -> None:
    text = """op @half(%x: tensor<Nxf32>, %o: tensor<(B + 1)xi32>, %q: tensor<(G * 4)xf32>) -> (%y: tensor<Bxf32>, %z: tensor<Gxf32>) {
      compute { %y[b] = f32(%o[b + 1] - %o[b]) + f32(N)\n%z[g] = %q[4 * g] + 0 * %x[0] }
      where N >= 1
    }
    pipeline @p(%x: tensor<Nxf32>, %o: tensor<(B + 1)xi32>, %q: tensor<(G * 4)xf32>) -> (%y: tensor<Bxf32>, %z: tensor<Gxf32>) {
      where N >= 1
      %y, %z = @half(%x, %o, %q)
    }"""
    got = run(text, x=[0, 0], o=[0, 3, 4], q=np.arange(8))
    np.testing.assert_array_equal(got["y"], [5, 3])
    np.testing.assert_array_equal(got["z"], [0, 4])


def test_graphs_hand_on_attributes(run: Run) -> None:
    text = AFFINE + """
    op @twice(%x: tensor<...xf32>, k: f32 = 1.0) -> (%y: tensor<...xf32>) { graph { %h = @affine(%x) {by = k, add = 1.0}\n%y = @affine(%h) {by = k / 2} } }
    pipeline @p(%x: tensor<Nxf32>, k: f32 = 8.0) -> (%y: tensor<Nxf32>) { %y = @twice(%x) {k = k} }"""
    np.testing.assert_array_equal(run(text, x=[1, 2])["y"], [36, 68])
    np.testing.assert_array_equal(run(text, float64=True, x=[1, 2])["y"], [36, 68])


SQUARE_SUM = """op @square(%x: tensor<Nxf16>) -> (%y: tensor<Nxf16>) { compute { %y[n] = %x[n] * %x[n] } }
op @total(%x: tensor<Nxf16>) -> (%y: tensor<f32>) { compute { %y = sum[n < N](%x[n]) } }
pipeline @p(%x: tensor<Nxf16>) -> (%y: tensor<f32>) { %s = @square(%x)\n%y = @total(%s) }"""


@pytest.mark.parametrize("float64", [False, True])
def test_edges_of_narrow_floats_always_round(run: Run, float64: bool) -> None:
    assert run(SQUARE_SUM, float64=float64, x=[300])["y"] == np.inf
    x = np.float16(1.0009765625)
    assert run(SQUARE_SUM, float64=float64, x=[x])["y"] == np.float16(x * x)


def test_float64_keeps_what_f32_would_round(run: Run, compile_text: Callable[..., ReferenceExecutable]) -> None:
    text = """op @third(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { compute { %y[n] = f32(%x[n] / 3) } }
    op @back(%x: tensor<Nxf32>, %y: tensor<Nxf32>) -> (%z: tensor<Nxf32>) { compute { %z[n] = %x[n] - 3 * %y[n] } }
    pipeline @p(%x: tensor<Nxf32>) -> (%z: tensor<Nxf32>) { %y = @third(%x)\n%z = @back(%x, %y) }"""
    x = np.array([.1, 1e10], np.float32)
    assert np.all(run(text, float64=True, x=x)["z"] == 0)
    plain = x - np.float32(3) * (x / np.float32(3))
    np.testing.assert_array_equal(run(text, x=x)["z"], plain)
    wide = compile_text(text, float64=True).evaluate({"x": x})["z"]
    assert wide.dtype == np.float64


def test_float64_rounds_written_casts_and_integers(run: Run) -> None:
    text = """op @f(%x: tensor<Nxf32>) -> (%h: tensor<Nxf32>, %b: tensor<Nxf32>, %i: tensor<Nxi32>, %w: tensor<Nxi32>) {
      compute { %h[n] = f16(%x[n])\n%b[n] = bf16(%x[n])\n%i[n] = i32(%x[n])\n%w[n] = i32(%x[n]) * 65536 * 65536 }
    }
    pipeline @p(%x: tensor<Nxf32>) -> (%h: tensor<Nxf32>, %b: tensor<Nxf32>, %i: tensor<Nxi32>, %w: tensor<Nxi32>) { %h, %b, %i, %w = @f(%x) }"""
    x = np.array([1.1, -2.7], np.float32)
    got = run(text, float64=True, x=x)
    np.testing.assert_array_equal(got["h"], x.astype(np.float16).astype(np.float32))
    np.testing.assert_array_equal(got["b"], x.astype(ml_dtypes.bfloat16).astype(np.float32))
    np.testing.assert_array_equal(got["i"], [1, -2])
    np.testing.assert_array_equal(got["w"], [0, 0])


def test_a_cast_rounds_inside_an_operator_and_nothing_else_does(run: Run) -> None:
    text = """op @f(%x: tensor<Nxf16>) -> (%y: tensor<Nxf16>, %z: tensor<Nxf16>) {
      compute { %y[n] = %x[n] * %x[n] / 2000\n%z[n] = f16(%x[n] * %x[n]) / 2000 }
    }
    pipeline @p(%x: tensor<Nxf16>) -> (%y: tensor<Nxf16>, %z: tensor<Nxf16>) { %y, %z = @f(%x) }"""
    got = run(text, x=[300])
    assert (float(got["y"][0]), float(got["z"][0])) == (45.0, np.inf)


def test_a_kernel_without_a_meaning(compile_text: Callable[..., ReferenceExecutable]) -> None:
    text = """op @k(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { kernel cuda "k.cu" { entry = "k", block = [256], grid = [N] } }
    pipeline @p(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { %y = @k(%x) }"""
    with pytest.raises(ProgramError, match=r"PL9001.*'@k' is a kernel without a 'compute'"):
        compile_text(text)


def test_chain_of_many_nodes(run: Run) -> None:
    steps = "\n".join(f"%v{i + 1} = @affine(%v{i}) {{by = 1.0, add = 1.0}}" for i in range(300))
    text = AFFINE + f"pipeline @p(%v0: tensor<Nxf32>) -> (%v300: tensor<Nxf32>) {{ {steps} }}"
    np.testing.assert_array_equal(run(text, v0=[0, 5])["v300"], [300, 305])
