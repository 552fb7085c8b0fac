"""`compile { block = … }` is obeyed by generated kernels, changes no result, and says where it is not followed."""
from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pipelink_ir as pl
from pipelink_ir.backends.cuda import nvrtc
from pipelink_ir.backends.cuda.compile import lowered
from pipelink_ir.backends.cuda.emit import emit_unit
from pipelink_ir.ir.diagnostics import Report
from pipelink_ir.ir.nodes import Node
from pipelink_ir.ir.targets import parse_arch
from pipelink_ir.passes.infer.operator import typed_operator
from pipelink_ir.passes.manager import parse_passes, run_passes
from pipelink_ir.passes.scheduling.gpu_place import gpu_plan
from pipelink_ir.passes.scheduling.kernels import KernelPlan, kernels_of
from tests.emulated import NEEDS_COMPILER

NAMES: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "i8": np.int8, "f32": np.float32, "f8e4m3": ml_dtypes.float8_e4m3fn}


def product(dtype: str, block: str, out: str | None = None, sizes: str = "M K N", by_terms: bool = False) -> str:
    out = out or ("i32" if dtype == "i8" else "f32")
    m, k, n = sizes.split()
    w, at = (f"{n}x{k}", "j, k") if by_terms else (f"{k}x{n}", "k, j")
    signature = f"(%x: tensor<{m}x{k}x{dtype}>, %w: tensor<{w}x{dtype}>) -> (%y: tensor<{m}x{n}x{out}>)"
    return f"op @mm{signature} {{ {block} compute {{ %y[i, j] = sum[k < {k}](%x[i, k] * %w[{at}]) }} }}\npipeline @p{signature} {{ %y = @mm(%x, %w) }}\n"


def pointwise(block: str) -> str:
    signature = "(%x: tensor<HxWxf32>) -> (%y: tensor<HxWxf32>)"
    return f"op @twice{signature} {{ {block} compute {{ %y[h, w] = 2 * %x[h, w] }} }}\npipeline @p{signature} {{ %y = @twice(%x) }}\n"


def parsed(text: str) -> Any:
    from pipelink_ir.grammar import parse
    return run_passes(parse(text, "t.plir"), parse_passes("resolve,infer-types,check-contracts,flatten"), Report())


def plans(text: str, arch: str | None = None) -> tuple[KernelPlan, ...]:
    module = parsed(text)
    op = typed_operator(next(o for o in module.operators if any(isinstance(n, Node) and n.op == o.name for n in module.pipelines[0].nodes)))
    return kernels_of(op, gpu_plan(op, ()), None if arch is None else parse_arch(arch))


@pytest.mark.parametrize(("block", "threads"), [("block = 64", 64), ("block = 100", 128), ("block = [16, 16]", 256), ("block = [16, 16, 16]", 256), ("block = [128, 128]", 1024), ("block = 1", 32)])
def test_threads_of_a_block(block: str, threads: int) -> None:
    module = parsed(pointwise(f"compile {{ {block} }}"))
    code = emit_unit([(lowered(module.operators[0]), module.operators[0])])
    assert [k.threads for k in code.kernels] == [threads]
    assert all(k.exact for k in code.kernels)
    assert f"__launch_bounds__({threads}" in code.text


def test_a_schedule_goes_before_it() -> None:
    found, = plans(pointwise("compile { block = 64 } schedule { target = cuda, %y { map = grid, threads = 128 } }"))
    assert found.knobs.threads == 128


@pytest.mark.parametrize(("block", "dtype", "warps", "tiles", "depth"), [
    ("[16, 16, 16]", "f16", (1, 1), (1, 2), 16), ("[16, 16, 16]", "i8", (1, 1), (1, 2), 32), ("[64, 64]", "f16", (2, 2), (2, 4), 32), ("[128, 128, 32]", "bf16", (2, 2), (4, 8), 32),
    ("[32, 128, 64]", "f16", (2, 2), (1, 8), 64), ("[20, 40]", "bf16", (2, 2), (1, 4), 32), ("[256, 64, 32]", "i8", (4, 2), (4, 4), 64)])
def test_tiles_on_tensor_cores(block: str, dtype: str, warps: tuple[int, int], tiles: tuple[int, int], depth: int) -> None:
    for arch in ("sm_80", "sm_90a"):
        found, = plans(product(dtype, f"compile {{ block = {block} }}", sizes="4096 4096 4096"), arch)
        assert (found.kind, found.way.warps, found.way.tiles, found.way.depth) == ("mma", warps, tiles, depth)  # type: ignore[union-attr]


def test_without_tensor_cores_the_nearest_tile_is_taken() -> None:
    cuts = [plans(product("f32", f"compile {{ block = {b} }}", sizes="4096 4096 4096"))[0].way.cut for b in ("[64, 64]", "[16, 16, 16]", "[30, 33]")]  # type: ignore[union-attr]
    assert [(c.rows, c.columns) for c in cuts] == [(64, 64), (16, 16), (32, 32)]


def test_a_tile_that_a_block_has_no_memory_for_is_not_followed() -> None:
    asked = product("f16", "compile { block = [256, 128, 64] }", sizes="4096 4096 4096")
    assert plans(asked, "sm_90")[0].way.warps == (4, 2)  # type: ignore[union-attr]
    assert plans(asked, "sm_75")[0].way == plans(product("f16", "", sizes="4096 4096 4096"), "sm_75")[0].way or plans(asked, "sm_75")[0].way.warps == (2, 2)  # type: ignore[union-attr]


@NEEDS_COMPILER
@pytest.mark.parametrize("by_terms", [False, True])
@pytest.mark.parametrize("dtype", ["f16", "i8", "f32", "f8e4m3"])
@pytest.mark.parametrize("block", ["[16, 16, 16]", "[32, 16]", "[64, 32, 64]", "[16, 64, 32]", "[128, 32]"])
def test_no_block_changes_a_product(block: str, dtype: str, by_terms: bool) -> None:
    r = np.random.default_rng(5)
    x, w = (r.integers(-8, 9, s).astype(np.float32).astype(NAMES[dtype]) for s in ((70, 41), (41, 35)))
    compiled = pl.compile(product(dtype, f"compile {{ block = {block} }}", by_terms=by_terms), target="cuda-emulated:sm_80")
    # Sums of whole numbers this small are exact.
    np.testing.assert_array_equal(compiled(x=x, w=np.ascontiguousarray(w.T) if by_terms else w).y, x.astype(np.float64) @ w.astype(np.float64))


@NEEDS_COMPILER
@pytest.mark.parametrize("block", ["block = 32", "block = 96", "block = [8, 8]", "block = 1024"])
def test_no_block_changes_a_picture(block: str) -> None:
    x = np.random.default_rng(6).normal(size=(37, 45)).astype(np.float32)
    np.testing.assert_array_equal(pl.compile(pointwise(f"compile {{ {block} }}"), target="cuda-emulated")(x=x).y, 2 * x)
    blur = """op @blur(%x: tensor<HxWxf32>) -> (%y: tensor<HxWxf32>) { memory { border = constant(0) } compile { BLOCK } compute { %y[h, w] = sum[i < 3, j < 3](%x[h + i - 1, w + j - 1]) } }
pipeline @p(%x: tensor<HxWxf32>) -> (%y: tensor<HxWxf32>) { %y = @blur(%x) }
"""
    y = pl.compile(blur.replace("BLOCK", block), target="cuda-emulated")(x=x).y
    padded = np.pad(x.astype(np.float64), 1)
    np.testing.assert_allclose(y, sum(padded[i:i + 37, j:j + 45] for i in range(3) for j in range(3)), rtol=1e-5, atol=1e-5)


def test_it_is_told_where_it_is_not_followed() -> None:
    text = """op @rows(%x: tensor<NxKxf32>) -> (%y: tensor<NxKxf32>) { compile { block = 64 } compute { %s[n] = sum[k < K](%x[n, k])  %y[n, k] = %x[n, k] / %s[n] } }
pipeline @p(%x: tensor<NxKxf32>) -> (%y: tensor<NxKxf32>) { %y = @rows(%x) }
"""
    said = [str(e) for e in pl.compile(text, target="sm_90").ledger]
    assert any("'block' is not followed by kernels of the kind 'block'" in s or "'block' is not followed" in s for s in said), said


def test_a_neighbour_without_a_block_goes_with_it() -> None:
    text = pointwise("compile { block = 64 }").replace("pipeline @p", "op @more(%x: tensor<HxWxf32>) -> (%y: tensor<HxWxf32>) { compute { %y[h, w] = %x[h, w] + 1 } }\npipeline @p")
    both = text.replace("{ %y = @twice(%x) }", "{ %a = @more(%x)  %b = @twice(%a)  %y = @more(%b) }")
    for program in (both, both.replace("%y = @more(%b)", "%y = @twice(%b)")):
        compiled = pl.compile(program, target="sm_90")
        assert len(compiled.pipeline.nodes) == 1
        assert re.findall(r"block = \d+", str(compiled.artifacts["plir"])) == ["block = 64"]
        assert "__launch_bounds__(64" in str(compiled.artifacts["cu"])
    other = both.replace("op @more(%x: tensor<HxWxf32>) -> (%y: tensor<HxWxf32>) {", "op @more(%x: tensor<HxWxf32>) -> (%y: tensor<HxWxf32>) { compile { block = 128 }")
    assert "they differ in 'block'" in pl.compile(other, target="sm_90").explain()


@pytest.mark.skipif(not nvrtc.available(), reason="NVRTC is not installed")
@pytest.mark.parametrize("sm", ["sm_75", "sm_80", "sm_90a", "sm_120"])
def test_small_tiles_compile(sm: str) -> None:
    for dtype in ("f16", "i8", "f8e4m3"):
        for block in ("[16, 16, 16]", "[64, 64, 32]"):
            compiled = pl.compile(product(dtype, f"compile {{ block = {block} }}"), target=sm)
            assert "mma.sync" in str(compiled.artifacts["ptx"])
