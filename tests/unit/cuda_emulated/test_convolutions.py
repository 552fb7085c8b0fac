"""Convolutions from tiles of a picture in shared memory, played lane by lane: against NumPy in i64 and f64."""
from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pipelink_ir.backends.cuda import nvrtc
from pipelink_ir.backends.cuda.emit import emit_program
from pipelink_ir.backends.cuda.emulate.executable import Options, load
from pipelink_ir.backends.loops.gpu.build import build_gpu
from pipelink_ir.backends.loops.print import program_text
from pipelink_ir.ir.gpus import facts_of
from pipelink_ir.ir.targets import Arch, parse_arch
from pipelink_ir.passes.infer.operator import typed_operator
from pipelink_ir.runtime.compile import read
from tests.emulated import NEEDS_COMPILER, lowered
from tests.unit.cuda_emulated.test_strips import kinds

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(11)
DTYPES = {"i8": np.int8, "u8": np.uint8, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
MODES = {"reflect": "symmetric", "reflect101": "reflect", "replicate": "edge", "wrap": "wrap"}


def convolution(c: int, o: int, dtype: str, border: str = "constant(0)", taps: int = 3, step: int = 1, apart: int = 1, weights: str = "dy, dx, c, o") -> str:
    """Sums of a convolution as they are."""
    out, size = "i32" if dtype in ("i8", "u8") else "f32", {"dy": taps, "dx": taps, "c": c, "o": o}
    before = apart * (taps // 2)
    w = "x".join(str(size[n]) for n in weights.split(", "))
    shape = "HxW" if step == 1 else f"(H floordiv {step})x(W floordiv {step})"
    where = f"where H mod {step} == 0, W mod {step} == 0" if step > 1 else ""
    signature = f"(%x: tensor<NxHxWx{c}x{dtype}>, %w: tensor<{w}x{dtype}>) -> (%y: tensor<Nx{shape}x{o}x{out}>)"
    at = f"%x[n, {step} * h + {apart} * dy - {before}, {step} * w + {apart} * dx - {before}, c]"
    body = f"%y[n, h, w, o] = sum[dy < {taps}, dx < {taps}, c < {c}]({at} * %w[{weights}])"
    return (f"op @conv{signature} {{ {where} memory {{ border = {border} }} compute {{ {body} }} }}\n"
            f"pipeline @main{signature} {{ {where} %y = @conv(%x, %w) }}\n")


def drawn(shape: tuple[int, ...], dtype: str) -> Array:
    """Numbers of a dtype."""
    low, high = (0, 256) if dtype == "u8" else (-128, 128)
    return (RNG.integers(low, high, shape) if dtype in ("i8", "u8") else RNG.normal(size=shape)).astype(DTYPES[dtype])


def wanted(x: Array, w: Array, border: str = "constant(0)", step: int = 1, apart: int = 1) -> Array:
    """The sums, of weights by rows, pixels, channels and results."""
    taps = w.shape[0]
    before, (height, width) = apart * (taps // 2), x.shape[1:3]
    around = ((0, 0), (before, before), (before, before), (0, 0))
    if border.startswith("constant"):
        wide = np.pad(x.astype(np.float64), around, constant_values=float(border[9:-1]))
    else:
        wide = np.pad(x.astype(np.float64), around, mode=MODES[border])  # type: ignore[call-overload]
    out: Array = sum(wide[:, apart * i:apart * i + height:step, apart * j:apart * j + width:step] @ w[i, j].astype(np.float64)  # type: ignore[assignment]
                     for i in range(taps) for j in range(taps))
    return out


def run(text: str, arch: str = "sm_90", **arrays: Array) -> Array:
    module = lowered(read(text))
    assert module is not None
    out: Array = np.asarray(load(module, "main", Options(arch=parse_arch(arch)))(arrays)["y"])
    return out


def check(text: str, x: Array, w: Array, want: Array, order: tuple[int, ...] = (0, 1, 2, 3), arch: str = "sm_90") -> None:
    got = run(text, arch, x=x, w=np.ascontiguousarray(w.transpose(order)))
    exact = x.dtype.kind in "iu"
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=0 if exact else 1e-5, atol=0 if exact else 2e-4)


@NEEDS_COMPILER
@pytest.mark.parametrize("dtype", ["i8", "f16"])
@pytest.mark.parametrize(("c", "o", "shape"), [
    (32, 1, (2, 17, 37)), (32, 2, (1, 5, 66)), (32, 3, (1, 9, 23)), (32, 4, (1, 4, 8)), (32, 5, (1, 3, 70)), (32, 24, (2, 5, 19)), (3, 32, (2, 5, 16)),
    (3, 32, (1, 6, 67)), (4, 16, (1, 3, 32))])
def test_any_numbers_of_channels_and_results(c: int, o: int, shape: tuple[int, int, int], dtype: str) -> None:
    text = convolution(c, o, dtype)
    assert kinds(text, "sm_90") == ["convolution"]
    x, w = drawn((*shape, c), dtype), drawn((3, 3, c, o), dtype)
    check(text, x, w, wanted(x, w))


@NEEDS_COMPILER
@pytest.mark.parametrize(("c", "o"), [(32, 1), (32, 16), (3, 8)])
@pytest.mark.parametrize("border", ["constant(-7)", "reflect", "reflect101", "replicate", "wrap"])
def test_what_borders_answer(c: int, o: int, border: str) -> None:
    text = convolution(c, o, "i8", border)
    assert kinds(text, "sm_90") == ["convolution"]
    x, w = drawn((1, 7, 16, c), "i8"), drawn((3, 3, c, o), "i8")
    check(text, x, w, wanted(x, w, border))


@NEEDS_COMPILER
@pytest.mark.parametrize(("c", "o", "dtype", "weights", "order", "arch"), [
    (256, 40, "f16", "dy, dx, c, o", (0, 1, 2, 3), "sm_90"), (320, 48, "i8", "o, dy, dx, c", (3, 0, 1, 2), "sm_80"), (272, 40, "u8", "dy, dx, c, o", (0, 1, 2, 3), "sm_75")])
def test_more_channels_than_a_block_has_room_for(c: int, o: int, dtype: str, weights: str, order: tuple[int, ...], arch: str) -> None:
    """They are products of matrices, whose rows are copied 16 bytes at a time; zeros around the picture are copies of nothing."""
    text = convolution(c, o, dtype, weights=weights)
    assert kinds(text, arch) == ["mma"]
    module = lowered(read(text))
    assert module is not None
    loops = program_text(build_gpu(typed_operator(module.operators[0]), parse_arch(arch)))
    assert any(line.lstrip().startswith("copy %left") and "%x[" in line for line in loops.splitlines())
    x, w = drawn((2, 5, 7, c), dtype), drawn((3, 3, c, o), dtype)
    check(text, x, w, wanted(x, w), order, arch)


@NEEDS_COMPILER
def test_other_numbers_above_than_beside() -> None:
    """A tile has one number around the picture; where there are two, that of the rows is in the corners."""
    x, w = drawn((1, 5, 9, 32), "i8"), drawn((3, 3, 32, 8), "i8")
    wide = np.pad(np.pad(x, ((0, 0), (0, 0), (1, 1), (0, 0)), constant_values=2), ((0, 0), (1, 1), (0, 0), (0, 0)), constant_values=-7)
    check(convolution(32, 8, "i8", "[none, constant(-7), constant(2), none]"), x, w, wanted(wide, w)[:, 1:-1, 1:-1])


@NEEDS_COMPILER
def test_windows_of_results_behind() -> None:
    """The size of what lies between is a quotient, which the windows ask to be a multiple: it is computed where they ask."""
    signature = "(%x: tensor<NxHxWx32xf16>, %w: tensor<2x2x32x3xf16>) -> (%y: tensor<Nx((H + 1) floordiv 4)x((W + 1) floordiv 4)x3xf32>)"
    body = ("%acc[n < N, h < (H + 1) floordiv 2, w < (W + 1) floordiv 2, o < 3] = sum[dy < 2, dx < 2, c < 32](%x[n, 2 * h + dy, 2 * w + dx, c] * %w[dy, dx, c, o]) "
            "%y[n, h, w, c] = max[i < 2, j < 2](%acc[n, 2 * h + i, 2 * w + j, c])")
    text = (f"op @conv{signature} {{ memory {{ %x {{ border = constant(0) }} }} compute {{ {body} }} }}\n"
            f"pipeline @main{signature} {{ %y = @conv(%x, %w) }}\n")
    assert kinds(text, "sm_90") == ["convolution", "window"]
    x, w = drawn((2, 18, 32, 32), "f16"), drawn((2, 2, 32, 3), "f16")
    acc = sum(x[:, i::2, j::2].astype(np.float64) @ w[i, j].astype(np.float64) for i in range(2) for j in range(2))
    want = acc[:, :8].reshape(2, 4, 2, 8, 2, 3).max((2, 4))
    np.testing.assert_allclose(run(text, x=x, w=w), want, rtol=1e-5, atol=2e-4)


@NEEDS_COMPILER
@pytest.mark.parametrize(("c", "o", "dtype", "taps", "step", "apart"), [
    (3, 32, "i8", 3, 2, 1), (3, 32, "f16", 3, 2, 1), (32, 16, "i8", 3, 2, 1), (32, 16, "f16", 3, 2, 1), (32, 1, "f16", 3, 2, 1), (32, 8, "u8", 3, 1, 2),
    (32, 1, "bf16", 5, 1, 1), (32, 2, "i8", 3, 1, 2)])
def test_steps_and_taps(c: int, o: int, dtype: str, taps: int, step: int, apart: int) -> None:
    text = convolution(c, o, dtype, taps=taps, step=step, apart=apart)
    assert kinds(text, "sm_90") == ["convolution"]
    x, w = drawn((2, 10, 36, c), dtype), drawn((taps, taps, c, o), dtype)
    check(text, x, w, wanted(x, w, step=step, apart=apart))


@NEEDS_COMPILER
@pytest.mark.parametrize(("c", "dtype"), [(3, "i8"), (2, "u8"), (4, "f16")])
def test_few_channels_of_pixels_that_lie_apart(c: int, dtype: str) -> None:
    """Terms that are gathered lie side by side; these do not."""
    text = convolution(c, 16, dtype, apart=2)
    x, w = drawn((1, 9, 18, c), dtype), drawn((3, 3, c, 16), dtype)
    check(text, x, w, wanted(x, w, apart=2))


@NEEDS_COMPILER
@pytest.mark.parametrize("dtype", ["i8", "f16"])
@pytest.mark.parametrize(("weights", "order"), [("o, dy, dx, c", (3, 0, 1, 2)), ("dy, dx, o, c", (0, 1, 3, 2)), ("c, dy, dx, o", (2, 0, 1, 3))])
def test_weights_in_any_order(weights: str, order: tuple[int, ...], dtype: str) -> None:
    x, w = drawn((1, 5, 17, 32), dtype), drawn((3, 3, 32, 48), dtype)
    check(convolution(32, 48, dtype, weights=weights), x, w, wanted(x, w), order)


@NEEDS_COMPILER
@pytest.mark.parametrize(("c", "o", "dtype", "border"), [(32, 64, "i8", "constant(-7)"), (32, 32, "f16", "reflect"), (64, 32, "u8", "constant(0)")])
def test_four_warps_together(c: int, o: int, dtype: str, border: str) -> None:
    """On sm_90a tensor cores read both factors from shared memory."""
    text = convolution(c, o, dtype, border)
    module = lowered(read(text))
    assert module is not None
    assert "window_group" in emit_program(build_gpu(typed_operator(module.operators[0]), parse_arch("sm_90a"))).text
    x, w = drawn((1, 11, 70, c), dtype), drawn((3, 3, c, o), dtype)
    check(text, x, w, wanted(x, w, border), arch="sm_90a")


@NEEDS_COMPILER
@pytest.mark.parametrize(("c", "o", "arch", "panes"), [(32, 64, "sm_80", 2), (32, 64, "sm_90a", 2), (32, 128, "sm_90a", 1)])
def test_columns_in_panes(monkeypatch: pytest.MonkeyPatch, c: int, o: int, arch: str, panes: int) -> None:
    """Where the right factor does not fit, blocks have some of the columns each; where there are many, warps do."""
    from pipelink_ir.passes.scheduling import convolutions
    monkeypatch.setattr(convolutions, "PANES", (panes,))
    text = convolution(c, o, "f16")
    assert kinds(text, arch) == ["convolution"]
    x, w = drawn((1, 6, 66, c), "f16"), drawn((3, 3, c, o), "f16")
    check(text, x, w, wanted(x, w), arch=arch)


@NEEDS_COMPILER
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(("c", "o", "step"), [(32, 1, 1), (3, 8, 1), (3, 8, 2)])
def test_what_is_infinite_stays_in_its_windows(c: int, o: int, step: int, last: bool) -> None:
    """No product with a zero that only fills an instruction becomes a NaN, of whatever result."""
    x, w = drawn((1, 24, 22, c), "f16"), np.abs(drawn((3, 3, c, o), "f16")) + np.float16(0.1)
    x[0, 11, 10, c - 1 if last else 0] = np.inf
    got = run(convolution(c, o, "f16", step=step), x=x, w=w)
    there = np.zeros((24, 22), bool)
    there[10:13, 9:12] = True
    there = there[::step, ::step]
    assert (np.isposinf(got[0]) == there[:, :, None]).all()
    assert np.isfinite(got[0][~there]).all()


@NEEDS_COMPILER
def test_valid_places_alone_and_what_is_added() -> None:
    """No border: the result is smaller than the picture; another picture is added to it, and the sum becomes codes."""
    signature = "(%x: tensor<NxHxWx32xi8>, %w: tensor<3x3x32x1xi8>, %r: tensor<Nx(H - 2)x(W - 2)x1xf32>) -> (%y: tensor<Nx(H - 2)x(W - 2)x1xi8>)"
    body = "%acc[n, h, w, o] = sum[dy < 3, dx < 3, c < 32](%x[n, h + dy, w + dx, c] * %w[dy, dx, c, o])"
    made = "%y[n, h, w, o] = i8(round(clamp(f32(%acc[n, h, w, o]) * 0.0009765625 + %r[n, h, w, o], -100, 100)))"
    text = (f"op @conv{signature} {{ where H > 2, W > 2 compute {{ {body}  {made} }} }}\n"
            f"pipeline @main{signature} {{ where H > 2, W > 2 %y = @conv(%x, %w, %r) }}\n")
    assert kinds(text, "sm_90") == ["convolution"]
    x, w, r = drawn((2, 20, 35, 32), "i8"), drawn((3, 3, 32, 1), "i8"), RNG.normal(size=(2, 18, 33, 1)).astype(np.float32)
    acc = sum(x[:, i:i + 18, j:j + 33].astype(np.int64) @ w[i, j].astype(np.int64) for i in range(3) for j in range(3))
    want = np.rint(np.clip((acc * np.float64(0.0009765625)).astype(np.float32) + r, -100, 100))
    assert (run(text, x=x, w=w, r=r) == want).mean() > 0.999


@NEEDS_COMPILER
@pytest.mark.parametrize(("dtype", "c"), [("i8", 3), ("u8", 3), ("i8", 8)])
def test_short_sums_become_floats_and_stay_integers(dtype: str, c: int) -> None:
    """Sums that are small enough begin as the bits of a float; they are read as floats and as integers here, at their largest."""
    signature = f"(%x: tensor<NxHxWx{c}x{dtype}>, %w: tensor<3x3x{c}x8x{dtype}>) -> (%y: tensor<NxHxWx8xf32>)"
    body = f"%acc[n, h, w, o] = sum[dy < 3, dx < 3, c < {c}](%x[n, h + dy - 1, w + dx - 1, c] * %w[dy, dx, c, o])"
    made = "%y[n, h, w, o] = f32(%acc[n, h, w, o]) * 0.5 + f32(%acc[n, h, w, o] floordiv 3)"
    text = (f"op @conv{signature} {{ memory {{ border = constant(0) }} compute {{ {body}  {made} }} }}\n"
            f"pipeline @main{signature} {{ %y = @conv(%x, %w) }}\n")
    x, w = drawn((1, 8, 16, c), dtype), drawn((3, 3, c, 8), dtype)
    most, least = (255, 255) if dtype == "u8" else (-128, 127)
    x[:, :4], w[..., 0], w[..., 1] = most, most, least
    acc = wanted(x, w)
    want = acc * 0.5 + np.floor(acc / 3)
    np.testing.assert_allclose(run(text, x=x, w=w), want, rtol=2e-7)


@NEEDS_COMPILER
@pytest.mark.parametrize(("c", "o", "arch"), [(32, 1, "sm_90"), (3, 8, "sm_90"), (32, 32, "sm_90a")])
def test_blocks_that_take_several_tiles(monkeypatch: pytest.MonkeyPatch, c: int, o: int, arch: str) -> None:
    """With the next one on its way, and without."""
    from pipelink_ir.passes.scheduling import convolutions
    known = facts_of(parse_arch(arch) or Arch("cuda"))
    assert known is not None
    monkeypatch.setattr(convolutions, "facts_of", lambda arch: replace(known, processors=1))
    monkeypatch.setattr(convolutions, "THREADS", 256)
    monkeypatch.setattr(convolutions, "GROUPED_THREADS", 256)
    x, w = drawn((2, 26, 150, c), "i8"), drawn((3, 3, c, o), "i8")
    check(convolution(c, o, "i8"), x, w, wanted(x, w), arch=arch)


def test_what_is_none() -> None:
    assert kinds(convolution(512, 64, "f16"), "sm_90") != ["convolution"]  # more than a block has room for
    assert kinds(convolution(16, 8, "i8"), "sm_90") == ["strips"]  # 144 terms are too many to be gathered
    assert kinds(convolution(32, 8, "i8", taps=1), "sm_90") == ["strips"]  # one pixel is no window


@pytest.mark.skipif(not nvrtc.available(), reason="NVRTC is not installed")
@pytest.mark.parametrize("name", ["sm_75", "sm_80", "sm_86", "sm_90a", "sm_120"])
@pytest.mark.parametrize(("c", "o", "dtype"), [(32, 1, "i8"), (32, 24, "f16"), (3, 32, "i8"), (32, 64, "f16")])
def test_compiles_everywhere(c: int, o: int, dtype: str, name: str) -> None:
    arch = parse_arch(name)
    module = lowered(read(convolution(c, o, dtype)))
    assert arch is not None
    assert module is not None
    text = emit_program(build_gpu(typed_operator(module.operators[0]), arch)).text
    assert "window" in text
    usage = next(iter(nvrtc.compile_source(nvrtc.Source(text, "convolution.cu"), arch).usage.values()))
    assert usage.stack <= 64
