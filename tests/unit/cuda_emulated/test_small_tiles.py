"""Products whose factors stream in small tiles (sm_90a), in tiles of both sizes where rows are not known, and of factors that are made of codes before: played
lane by lane, against NumPy in f64; and that NVRTC takes them."""
from __future__ import annotations

import numpy as np
import pytest

from pipelink_ir.backends.cuda import nvrtc
from pipelink_ir.backends.cuda.emit import emit_program
from pipelink_ir.backends.cuda.emulate import kernels
from pipelink_ir.backends.loops.gpu.build import build_gpu
from pipelink_ir.grammar import parse
from pipelink_ir.passes.infer.operator import typed_operator
from pipelink_ir.passes.scheduling import streams
from tests.unit.cuda_emulated.test_products import HOPPER, array, close, run, text_of
from tests.unit.passes.measured import weights_alone

TILES = [(64, 64, 2), (64, 96, 2), (64, 192, 1), (64, 128, 1), (128, 64, 2), (128, 128, 1)]


@pytest.fixture(params=TILES, ids=str)
def tile(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int, int]:
    """Products stream however small they are, in small tiles."""
    found: tuple[int, int, int] = request.param
    for name, value in (("DEEP", 1), ("ENOUGH", 4), ("small_tile", lambda *_: found)):
        monkeypatch.setattr(streams, name, value)
    return found


@pytest.mark.parametrize(("m", "k", "n"), [(64, 72, 264), (17, 41, 133)])
@pytest.mark.parametrize("columns", [False, True])
def test_tiles(tile: tuple[int, int, int], m: int, k: int, n: int, columns: bool) -> None:
    if columns and tile[1] % 64:
        pytest.skip("columns that lie side by side come 64 at a time")
    x, w = array("f16", m, k), array("f16", k, n)
    shape, at = (f"{k}x{n}", "k, j") if columns else (f"{n}x{k}", "j, k")
    text = text_of(f"{m}x{k}xf16", f"{shape}xf16", f"{m}x{n}xf16", f"%y[i, j] = sum[k < {k}](%x[i, k] * %w[{at}])")
    got = run(text, HOPPER, x=x, w=w if columns else np.ascontiguousarray(w.T))
    assert {"mm.y", "mm.y.otherwise"} <= set(kernels.COUNT.kernels)
    close(got, x.astype(np.float64) @ w.astype(np.float64), 1e-3)


@pytest.mark.parametrize("tile", [(64, 128, 1)], indirect=True)
@pytest.mark.parametrize(("m", "k", "n"), [(64, 72, 264), (300, 41, 200), (0, 8, 8)])
def test_rows_that_are_not_known_have_tiles_of_both_sizes(tile: tuple[int, int, int], m: int, k: int, n: int) -> None:
    x, w = array("bf16", m, k), array("bf16", k, n)
    got = run(text_of("MxKxbf16", "KxNxbf16", "MxNxf32", "%y[i, j] = sum[k < K](%x[i, k] * %w[k, j])"), HOPPER, x=x, w=w)
    assert {"mm.y", "mm.y.small", "mm.y.otherwise"} <= set(kernels.COUNT.kernels)
    close(got, x.astype(np.float64) @ w.astype(np.float64), 1e-6)


@pytest.mark.parametrize("tile", [(64, 128, 1)], indirect=True)
@pytest.mark.parametrize("rows", [17, 300])
@pytest.mark.parametrize("open_", [False, True])
@pytest.mark.parametrize("dtype", ["i8", "i4"])
def test_codes_become_halves_before(tile: tuple[int, int, int], rows: int, open_: bool, dtype: str) -> None:
    """Weights alone are codes, and rows are more than few."""
    k, n = 96, 200
    text = weights_alone(rows, dtype, k, n).replace("@p", "@main")
    text = text.replace(f"tensor<{rows}x", "tensor<Mx") if open_ else text
    rng = np.random.default_rng(rows)
    x, b = array("f16", rows, k), array("f16", n)
    s = rng.random(n if dtype == "i8" else (k // 32, n)).astype(np.float32)
    if dtype == "i8":
        w = rng.integers(-128, 128, (n, k)).astype(np.int8)
        right = w.T * s.astype(np.float64)
    else:
        w = rng.integers(0, 256, (n, k // 2)).astype(np.uint8)
        codes = np.stack([w & 15, w >> 4], -1).reshape(n, k).astype(np.int64)
        right = (((codes + 8) % 16 - 8).T * np.repeat(s, 32, 0)).astype(np.float16).astype(np.float64)
    got = run(text, HOPPER, x=x, w=w, s=s, b=b)
    assert any(".copied.right" in name for name in kernels.COUNT.kernels)
    close(got, x.astype(np.float64) @ right + b.astype(np.float64), 1e-3)


@pytest.mark.skipif(not nvrtc.available(), reason="NVRTC is not installed")
@pytest.mark.parametrize(("dtype", "columns"), [("f16", True), ("bf16", False), ("i8", False)])
def test_nvrtc_takes_them_without_spills(tile: tuple[int, int, int], dtype: str, columns: bool) -> None:
    if columns and tile[1] % 64:
        pytest.skip("columns that lie side by side come 64 at a time")
    shape, at = ("1024x512", "k, j") if columns else ("512x1024", "j, k")
    out = "i32" if dtype == "i8" else dtype
    op = parse(text_of(f"64x1024x{dtype}", f"{shape}x{dtype}", f"64x512x{out}", f"%y[i, j] = sum[k < 1024](%x[i, k] * %w[{at}])"), "test.plir").operators[0]
    code = emit_program(build_gpu(typed_operator(op), HOPPER), op)
    binary = nvrtc.compile_source(nvrtc.Source(code.text, "kernels.cu"), HOPPER)
    assert [u.spill_stores for u in binary.usage.values()] == [0] * len(code.kernels)
    assert "serialized" not in binary.log
    assert f"wgmma.mma_async.sync.aligned.m64n{tile[1]}" in binary.ptx
