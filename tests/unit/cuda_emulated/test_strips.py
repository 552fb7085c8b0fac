"""Products of many rows by few columns in strips of rows, played lane by lane, and codes of what is made of them: against NumPy in i64 and f64."""
from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pipelink_ir.backends.cuda import nvrtc
from pipelink_ir.backends.cuda.emit import emit_program
from pipelink_ir.backends.cuda.emulate.executable import Options, load
from pipelink_ir.backends.loops.gpu.build import build_gpu
from pipelink_ir.ir.targets import parse_arch
from pipelink_ir.passes.infer.operator import typed_operator
from pipelink_ir.passes.scheduling.gpu_place import gpu_plan
from pipelink_ir.passes.scheduling.kernels import kernels_of
from pipelink_ir.runtime.compile import read
from tests.emulated import NEEDS_COMPILER, lowered

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(5)
AS_STRIPS = "schedule { %y { map = strips } }"
"""What would be computed from tiles of the picture else."""


def pointwise(c: int, o: int, by_terms: bool, out: str, dtype: str = "i8", rows: str = "NxHxW") -> str:
    """A convolution of 1x1, its scales, its bias and a clamp, and codes of that or not."""
    w, at = (f"{o}x{c}", "o, c") if by_terms else (f"{c}x{o}", "c, o")
    i = ", ".join("nhw"[:len(rows.split("x"))])
    value = f"f16(clamp(f32(%acc[{i}, o]) * (0.0123 * %s[o]) + %b[o], -3, 6))"
    code = f"i8(round({value} / 0.047))" if out == "i8" else value
    signature = f"(%x: tensor<{rows}x{c}x{dtype}>, %w: tensor<{w}x{dtype}>, %b: tensor<{o}xf32>, %s: tensor<{o}xf32>) -> (%y: tensor<{rows}x{o}x{out}>)"
    body = f"%acc[{i}, o] = sum[c < {c}](%x[{i}, c] * %w[{at}])  %y[{i}, o] = {code}"
    return f"op @conv{signature} {{ compile {{ %y {{ accuracy = exact }} }} compute {{ {body} }} }}\npipeline @main{signature} {{\n  %y = @conv(%x, %w, %b, %s)\n}}\n"


def kinds(text: str, arch: str | None = None) -> list[str]:
    op = typed_operator(lowered(read(text)).operators[0])  # type: ignore[union-attr]
    return [k.kind for k in kernels_of(op, gpu_plan(op, frozenset()), None if arch is None else parse_arch(arch))]


def run(text: str, **arrays: Array) -> Array:
    module = lowered(read(text))
    assert module is not None
    out: Array = np.asarray(load(module, "main", Options())(arrays)["y"])
    return out


def made(acc: Array, s: Array, b: Array, codes: bool) -> Array:
    h = np.clip(acc.astype(np.float64) * (np.float32(0.0123) * s.astype(np.float64)) + b, -3, 6).astype(np.float16).astype(np.float64)
    return np.clip(np.rint(h / np.float64(np.float32(0.047))), -128, 127) if codes else h


def arrays(c: int, o: int) -> tuple[Array, Array, Array]:
    return RNG.integers(-127, 128, (c, o)).astype(np.int8), (RNG.random(o) * 1e-2 + 1e-3).astype(np.float32), RNG.normal(size=o).astype(np.float32)


@NEEDS_COMPILER
@pytest.mark.parametrize("out", ["i8", "f16"])
@pytest.mark.parametrize("by_terms", [False, True])
@pytest.mark.parametrize(("c", "o"), [(64, 64), (32, 128), (128, 32), (16, 24), (96, 48), (80, 40), (32, 3), (32, 1), (64, 60), (16, 136)])
def test_lines_of_any_width(c: int, o: int, by_terms: bool, out: str) -> None:
    text = pointwise(c, o, by_terms, out)
    assert kinds(text) == ["strips"]
    w, s, b = arrays(c, o)
    x = RNG.integers(-128, 128, (2, 7, 13, c)).astype(np.int8)
    want = made(x.reshape(-1, c).astype(np.int64) @ w.astype(np.int64), s, b, out == "i8").reshape(2, 7, 13, o)
    got = run(text, x=x, w=np.ascontiguousarray(w.T) if by_terms else w, b=b, s=s)
    # A value of f16 may round the other way where f32 and f64 lie on both sides of the middle of two.
    assert np.abs(got.astype(np.float64) - want).max() <= (1.0 if out == "i8" else 4e-3)
    assert (got == want).mean() > 0.998


@NEEDS_COMPILER
def test_more_rows_than_a_block_has() -> None:
    w, s, b = arrays(32, 16)
    x = RNG.integers(-128, 128, (1, 3, 431, 32)).astype(np.int8)
    want = made(x.reshape(-1, 32).astype(np.int64) @ w.astype(np.int64), s, b, True).reshape(1, 3, 431, 16)
    got = run(pointwise(32, 16, False, "i8"), x=x, w=w, b=b, s=s)
    assert (got == want).mean() > 0.998


@NEEDS_COMPILER
def test_exact_integer_sums() -> None:
    signature = "(%x: tensor<Mx128xi8>, %w: tensor<128x64xi8>) -> (%y: tensor<Mx64xi32>)"
    text = f"op @mm{signature} {{ compute {{ %y[i, j] = sum[k < 128](%x[i, k] * %w[k, j]) }} }}\npipeline @main{signature} {{ %y = @mm(%x, %w) }}\n"
    assert kinds(text) == ["strips"]
    x, w = (RNG.integers(-128, 128, shape).astype(np.int8) for shape in ((77, 128), (128, 64)))
    np.testing.assert_array_equal(run(text, x=x, w=w), x.astype(np.int64) @ w.astype(np.int64))


@NEEDS_COMPILER
@pytest.mark.parametrize("dtype", ["f16", "bf16", "u8"])
def test_other_dtypes(dtype: str) -> None:
    out = "i32" if dtype == "u8" else "f32"
    signature = f"(%x: tensor<Mx48x{dtype}>, %w: tensor<48x32x{dtype}>) -> (%y: tensor<Mx32x{out}>)"
    text = f"op @mm{signature} {{ compute {{ %y[i, j] = sum[k < 48](%x[i, k] * %w[k, j]) }} }}\npipeline @main{signature} {{ %y = @mm(%x, %w) }}\n"
    assert kinds(text) == ["strips"]
    numpy = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "u8": np.uint8}[dtype]
    x, w = ((RNG.integers(0, 256, shape) if dtype == "u8" else RNG.normal(size=shape)).astype(numpy) for shape in ((150, 48), (48, 32)))
    np.testing.assert_allclose(run(text, x=x, w=w), x.astype(np.float64) @ w.astype(np.float64), rtol=1e-5, atol=1e-5 if out == "f32" else 0)


@NEEDS_COMPILER
@pytest.mark.parametrize("step", [1, 2])
def test_windows_are_lines(step: int) -> None:
    """A convolution of 3x3 pixels has nine lines a row; zeros around the picture."""
    size = "HxW" if step == 1 else "(H floordiv 2)x(W floordiv 2)"
    signature = f"(%x: tensor<NxHxWx32xi8>, %w: tensor<3x3x32x48xi8>) -> (%y: tensor<Nx{size}x48xi32>)"
    at = f"%x[n, {step} * h + i - 1, {step} * w + j - 1, c]"
    where = "where H mod 2 == 0, W mod 2 == 0" if step == 2 else ""
    body = f"%y[n, h, w, o] = sum[i < 3, j < 3, c < 32]({at} * %w[i, j, c, o])"
    text = (f"op @conv{signature} {{ {where} memory {{ border = constant(0) }} {AS_STRIPS} compute {{ {body} }} }}\n"
            f"pipeline @main{signature} {{ {where} %y = @conv(%x, %w) }}\n")
    assert kinds(text) == ["strips"]
    x, w = RNG.integers(-128, 128, (2, 6, 8, 32)).astype(np.int8), RNG.integers(-128, 128, (3, 3, 32, 48)).astype(np.int8)
    wide = np.pad(x.astype(np.int64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    want = sum(wide[:, i:i + 6:step, j:j + 8:step] @ w[i, j].astype(np.int64) for i in range(3) for j in range(3))
    np.testing.assert_array_equal(run(text, x=x, w=w), want)


def test_what_is_no_strip() -> None:
    assert "strips" not in kinds(pointwise(56, 64, False, "i8"))  # lines are no multiples of 16 bytes
    assert "strips" not in kinds(pointwise(1024, 64, False, "i8"))  # more than a block has room for
    assert "strips" not in kinds(pointwise(64, 64, False, "i8", rows="2x3x4"))  # few rows
    assert kinds(pointwise(64, 64, False, "i8"), "sm_80") == ["strips"]


@pytest.mark.skipif(not nvrtc.available(), reason="NVRTC is not installed")
@pytest.mark.parametrize("name", ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100", "sm_120"])
def test_compiles_everywhere(name: str) -> None:
    arch = parse_arch(name)
    assert arch is not None
    module = lowered(read(pointwise(64, 64, False, "i8")))
    assert module is not None
    text = emit_program(build_gpu(typed_operator(module.operators[0]), arch)).text
    usage = next(iter(nvrtc.compile_source(nvrtc.Source(text, "strips.cu"), arch).usage.values()))
    assert usage.stack <= 64


@NEEDS_COMPILER
@pytest.mark.parametrize("dtype", ["i8", "f16"])
@pytest.mark.parametrize(("c", "mode"), [(3, "constant(0)"), (3, "reflect"), (4, "replicate")])
def test_rows_put_together_of_elements(c: int, dtype: str, mode: str) -> None:
    """Three channels are no whole lines: 27 terms, each by itself."""
    out = "i32" if dtype == "i8" else "f32"
    signature = f"(%x: tensor<NxHxWx{c}x{dtype}>, %w: tensor<3x3x{c}x32x{dtype}>) -> (%y: tensor<NxHxWx32x{out}>)"
    body = f"%y[n, h, w, o] = sum[i < 3, j < 3, c < {c}](%x[n, h + i - 1, w + j - 1, c] * %w[i, j, c, o])"
    text = f"op @conv{signature} {{ memory {{ border = {mode} }} {AS_STRIPS} compute {{ {body} }} }}\npipeline @main{signature} {{ %y = @conv(%x, %w) }}\n"
    assert kinds(text) == ["strips"]
    x, w = (RNG.integers(-128, 128, s) if dtype == "i8" else RNG.normal(size=s) for s in ((2, 5, 9, c), (3, 3, c, 32)))
    x, w = (a.astype(np.int8 if dtype == "i8" else np.float16) for a in (x, w))
    around = ((0, 0), (1, 1), (1, 1), (0, 0))
    wide = np.pad(x.astype(np.float64), around, mode={"constant(0)": "constant", "reflect": "symmetric", "replicate": "edge"}[mode])  # type: ignore[call-overload]
    want = sum(wide[:, i:i + 5, j:j + 9] @ w[i, j].astype(np.float64) for i in range(3) for j in range(3))
    np.testing.assert_allclose(run(text, x=x, w=w), want, rtol=0 if dtype == "i8" else 1e-5, atol=0 if dtype == "i8" else 1e-4)


@NEEDS_COMPILER
def test_strips_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """With many rows each warp takes several strips."""
    from pipelink_ir.backends.loops.gpu import strips
    monkeypatch.setattr(strips, "BLOCKS", 1)
    monkeypatch.setattr(strips, "FEWER", 1)
    w, s, b = arrays(32, 16)
    x = RNG.integers(-128, 128, (1, 3, 431, 32)).astype(np.int8)
    want = made(x.reshape(-1, 32).astype(np.int64) @ w.astype(np.int64), s, b, True).reshape(1, 3, 431, 16)
    got = run(pointwise(32, 16, False, "i8"), x=x, w=w, b=b, s=s)
    assert (got == want).mean() > 0.998
