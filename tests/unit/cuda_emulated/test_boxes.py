"""Convolutions of many channels, whose left factor the copy engine of sm_90a reads off the picture, played lane by lane: against NumPy in i64 and f64."""
from __future__ import annotations

import numpy as np
import pytest

from pipelink_ir.backends.cuda import nvrtc
from pipelink_ir.backends.cuda.emit import emit_program
from pipelink_ir.backends.loops.gpu.build import build_gpu
from pipelink_ir.ir.targets import parse_arch
from pipelink_ir.passes.infer.operator import typed_operator
from pipelink_ir.passes.scheduling import boxes, streams
from pipelink_ir.passes.scheduling import kernels as scheduling
from pipelink_ir.runtime.compile import read
from tests.emulated import NEEDS_COMPILER, lowered
from tests.unit.cuda_emulated.test_convolutions import check, convolution, drawn, run, wanted
from tests.unit.cuda_emulated.test_strips import kinds

RNG = np.random.default_rng(31)


@pytest.fixture(autouse=True)
def small_ones_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here channels are few enough for tiles in shared memory."""
    monkeypatch.setattr(streams, "DEEP", 1)
    monkeypatch.setattr(scheduling, "convolution_of", lambda *_: None)


def fixed(text: str, n: int, h: int, w: int) -> str:
    """The same of known sizes."""
    return text.replace("NxHxWx", f"{n}x{h}x{w}x")


@NEEDS_COMPILER
@pytest.mark.parametrize(("c", "o", "shape", "dtype", "taps", "step", "apart"), [
    (64, 64, (2, 9, 17), "f16", 3, 1, 1), (128, 40, (1, 7, 11), "i8", 3, 1, 1), (64, 72, (2, 10, 38), "bf16", 3, 2, 1), (64, 16, (1, 9, 20), "f16", 3, 1, 2),
    (64, 24, (1, 8, 9), "f16", 5, 1, 1), (64, 16, (40, 2, 3), "f16", 3, 1, 1), (128, 33, (1, 9, 18), "u8", 3, 1, 1)])
def test_sums(c: int, o: int, shape: tuple[int, int, int], dtype: str, taps: int, step: int, apart: int) -> None:
    text = convolution(c, o, dtype, taps=taps, step=step, apart=apart)
    assert kinds(text, "sm_90a")[-2:] == ["wgmma", "mma"]
    x, w = drawn((*shape, c), dtype), drawn((taps, taps, c, o), dtype)
    check(text, x, w, wanted(x, w, step=step, apart=apart), arch="sm_90a")


@NEEDS_COMPILER
@pytest.mark.parametrize("shape", [(3, 5, 6), (40, 2, 3), (1, 14, 14), (2, 1, 130)])
def test_boxes_of_known_sizes(shape: tuple[int, int, int]) -> None:
    """Some cover several pictures, some leave rows of a tile empty. Weights by results: their terms lie side by side."""
    text = fixed(convolution(128, 64, "i8", weights="o, dy, dx, c"), *shape)
    x, w = drawn((*shape, 128), "i8"), drawn((3, 3, 128, 64), "i8")
    check(text, x, w, wanted(x, w), (3, 0, 1, 2), "sm_90a")


@NEEDS_COMPILER
def test_what_is_added_lies_at_the_same_pixels() -> None:
    """No border, no batch: the result is smaller than the picture; another picture and a number for each column are added, and codes made of it."""
    signature = "(%x: tensor<HxWx64xf16>, %w: tensor<3x3x64x32xf16>, %r: tensor<(H - 2)x(W - 2)x32xf16>, %b: tensor<32xf32>) -> (%y: tensor<(H - 2)x(W - 2)x32xi8>)"
    body = "%acc[h, w, o] = sum[dy < 3, dx < 3, c < 64](%x[h + dy, w + dx, c] * %w[dy, dx, c, o])"
    made = "%y[h, w, o] = i8(round(clamp(%acc[h, w, o] * 2 + %r[h, w, o] * 8 + %b[o], -100, 100)))"
    text = (f"op @conv{signature} {{ where H > 2, W > 2 compute {{ {body}  {made} }} }}\n"
                     f"pipeline @main{signature} {{ where H > 2, W > 2 %y = @conv(%x, %w, %r, %b) }}\n")
    assert kinds(text, "sm_90a") == ["wgmma", "mma"]
    x, w, r = drawn((13, 21, 64), "f16"), drawn((3, 3, 64, 32), "f16"), drawn((11, 19, 32), "f16")
    b = RNG.normal(size=32).astype(np.float32)
    acc = sum(x[i:i + 11, j:j + 19].astype(np.float64) @ w[i, j].astype(np.float64) for i in range(3) for j in range(3))
    want = np.clip(acc * 2 + r.astype(np.float64) * 8 + b, -100, 100)
    assert np.abs(run(text, "sm_90a", x=x, w=w, r=r, b=b) - want).max() < 0.51


@NEEDS_COMPILER
def test_no_pictures() -> None:
    x, w = drawn((0, 6, 7, 64), "f16"), drawn((3, 3, 64, 64), "f16")
    assert run(convolution(64, 64, "f16"), "sm_90a", x=x, w=w).shape == (0, 6, 7, 64)


@pytest.mark.parametrize(("size", "tiles"), [((14, 14, 32), 49), ((14, 14, 64), 98), ((56, 56, 32), 784), ((28, 28, 8), 49)])
def test_few_boxes_cover_a_result(size: tuple[int, int, int], tiles: int) -> None:
    box = boxes.best_box(*size, 128)
    assert np.prod(box) <= 128
    assert np.prod([-(-n // b) for n, b in zip(size, box, strict=True)]) == tiles


@pytest.mark.parametrize(("c", "dtype", "border", "taps", "step"), [
    (96, "f16", "constant(0)", 3, 1), (64, "i8", "constant(0)", 3, 1), (64, "f16", "constant(1)", 3, 1), (64, "f16", "replicate", 3, 1), (64, "f16", "constant(0)", 3, 3)])
def test_what_is_none(c: int, dtype: str, border: str, taps: int, step: int) -> None:
    """Channels that are no whole lines of 128 bytes, other numbers around the picture than zero, large steps."""
    assert "wgmma" not in kinds(convolution(c, 64, dtype, border, taps, step), "sm_90a")


@pytest.mark.skipif(not nvrtc.available(), reason="NVRTC is not installed")
@pytest.mark.parametrize(("c", "o", "dtype", "step"), [(64, 64, "f16", 1), (128, 192, "i8", 2), (256, 256, "bf16", 1)])
def test_compiles(c: int, o: int, dtype: str, step: int) -> None:
    arch = parse_arch("sm_90a")
    module = lowered(read(convolution(c, o, dtype, step=step)))
    assert arch is not None
    assert module is not None
    text = emit_program(build_gpu(typed_operator(module.operators[0]), arch)).text
    usage = nvrtc.compile_source(nvrtc.Source(text, "boxes.cu"), arch).usage
    assert all(u.stack == 0 for u in usage.values())
