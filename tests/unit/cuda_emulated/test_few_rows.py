"""Products of few rows whose other factor is read once, codes of four or eight bits among them, played lane by lane: against NumPy in i64 and f64."""
from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pipelink_ir.backends.cuda import nvrtc
from pipelink_ir.backends.cuda.emit import emit_program
from pipelink_ir.backends.loops.gpu.build import build_gpu
from pipelink_ir.ir.targets import parse_arch
from pipelink_ir.passes.infer.operator import typed_operator
from pipelink_ir.passes.scheduling.few import Few
from pipelink_ir.passes.scheduling.kernels import kernels_of
from pipelink_ir.runtime.compile import read
from tests.emulated import NEEDS_COMPILER, lowered
from tests.unit.cuda_emulated.test_products import planned
from tests.unit.cuda_emulated.test_strips import kinds, run

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(9)
NARROW = {"i8": np.int8, "u8": np.uint8}


def ways(text: str) -> list[Any]:
    return [k.way for k in kernels_of(*planned(text), None)]


def four_bits(m: int | str, k: int, n: int) -> str:
    """Two codes in a byte, a scale for each 32 terms of a column, as `lower-precision` writes it."""
    signature = f"(%x: tensor<{m}x{k}xf16>, %w: tensor<{n}x{k // 2}xu8>, %b: tensor<{n}xf16>, %s: tensor<{k // 32}x{n}xf32>) -> (%y: tensor<{m}x{n}xf16>)"
    body = (f"%code[d < {k}, j < {n}] = (select(d mod 2 == 0, %w[j, d floordiv 2], %w[j, d floordiv 2] floordiv 16) + 8) mod 16 - 8 "
            f"%y[i, j] = sum[k < {k}](%x[i, k] * f16(f32(%code[k, j]) * %s[k floordiv 32, j])) + %b[j]")
    return f"op @lin{signature} {{ compute {{ {body} }} }}\npipeline @main{signature} {{ %y = @lin(%x, %w, %b, %s) }}\n"


def eight_bits(m: int | str, k: int, n: int) -> str:
    signature = f"(%x: tensor<{m}x{k}xf16>, %w: tensor<{n}x{k}xi8>, %s: tensor<{n}xf32>) -> (%y: tensor<{m}x{n}xf16>)"
    body = f"%y[i, j] = sum[k < {k}](%x[i, k] * f16(%w[j, k])) * %s[j]"
    return f"op @lin{signature} {{ compute {{ {body} }} }}\npipeline @main{signature} {{ %y = @lin(%x, %w, %s) }}\n"


def plain(m: int, k: int, n: int, dtype: str) -> str:
    signature = f"(%x: tensor<{m}x{k}x{dtype}>, %w: tensor<{n}x{k}x{dtype}>) -> (%y: tensor<{m}x{n}x{'i32' if dtype == 'i8' else 'f32'}>)"
    return f"op @lin{signature} {{ compute {{ %y[i, j] = sum[k < {k}](%x[i, k] * %w[j, k]) }} }}\npipeline @main{signature} {{ %y = @lin(%x, %w) }}\n"


def codes(w: Array) -> Array:
    both = np.stack([w & 15, w >> 4], -1).reshape(w.shape[0], -1).astype(np.int64)
    return (both + 8) % 16 - 8


@NEEDS_COMPILER
@pytest.mark.parametrize(("m", "size"), [(16, 16), ("M", 3), ("M", 16), ("M", 17), ("M", 150)])
@pytest.mark.parametrize("k", [1024, 640])
def test_codes_of_four_bits(m: int | str, size: int, k: int) -> None:
    text = four_bits(m, k, 40)
    assert kinds(text) == (["few", "mma"] if m == "M" else ["few"])
    x, w, b = RNG.normal(size=(size, k)).astype(np.float16), RNG.integers(0, 256, (40, k // 2)).astype(np.uint8), RNG.normal(size=40).astype(np.float16)
    s = (RNG.random((k // 32, 40)) * 0.1).astype(np.float32)
    factor = (codes(w).T.astype(np.float32) * np.repeat(s, 32, 0)).astype(np.float16).astype(np.float64)
    want = x.astype(np.float64) @ factor + b
    np.testing.assert_allclose(run(text, x=x, w=w, b=b, s=s).astype(np.float64), want, rtol=1e-3, atol=1e-3 * np.abs(want).max())


@NEEDS_COMPILER
@pytest.mark.parametrize(("m", "k", "n"), [(1, 512, 20), (5, 1024, 40), (9, 528, 50), (16, 80, 33)])
def test_codes_of_eight_bits(m: int, k: int, n: int) -> None:
    assert kinds(eight_bits(m, k, n)) == ["few"]
    x, w, s = RNG.normal(size=(m, k)).astype(np.float16), RNG.integers(-127, 128, (n, k)).astype(np.int8), RNG.random(n).astype(np.float32)
    want = x.astype(np.float64) @ w.T.astype(np.float64) * s
    np.testing.assert_allclose(run(eight_bits(m, k, n), x=x, w=w, s=s).astype(np.float64), want, rtol=1e-3, atol=1e-3 * np.abs(want).max())


@NEEDS_COMPILER
@pytest.mark.parametrize(("code", "scale", "known"), [
    ("f32(%w[j, k]) * %s[k floordiv 32, j]", 32, True),
    ("%s[k floordiv 16, j] * f32(%w[j, k])", 16, True),
    ("f32(%w[j, k]) * %s[k floordiv 8, j]", 8, False),  # 16 bytes of a lane have two scales
    ("bf16(f32(%w[j, k]) * %s[k floordiv 32, j])", 32, False),  # is rounded twice
    ("bf16(%w[j, k])", 0, True),
    ("f32(%w[j, k]) + 1", 0, False)])
@pytest.mark.parametrize("kind", ["i8", "u8"])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_bytes_with_scales(dtype: str, kind: str, code: str, scale: int, known: bool) -> None:
    m, k, n = 9, 512, 24
    known = known or (dtype == "bf16" and code.startswith("bf16"))
    signature = f"(%x: tensor<{m}x{k}x{dtype}>, %w: tensor<{n}x{k}x{kind}>, %s: tensor<{k // (scale or 8)}x{n}xf32>) -> (%y: tensor<{m}x{n}xf32>)"
    text = (f"op @lin{signature} {{ compute {{ %y[i, j] = sum[k < {k}](%x[i, k] * {dtype}({code})) }} }}\n"
            f"pipeline @main{signature} {{ %y = @lin(%x, %w, %s) }}\n")
    way, = ways(text)
    assert isinstance(way, Few)
    assert (way.coded is not None) == known
    numpy = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}
    x, s = RNG.normal(size=(m, k)).astype(numpy[dtype]), RNG.random((k // (scale or 8), n)).astype(np.float32)
    w = RNG.integers(np.iinfo(NARROW[kind]).min, np.iinfo(NARROW[kind]).max, (n, k), endpoint=True).astype(NARROW[kind])
    factor = w.T.astype(np.float32) * np.repeat(s, scale, 0) if scale else w.T.astype(np.float32) + (1 if "+ 1" in code else 0)
    factor = factor.astype(numpy["bf16"]) if code.startswith("bf16") else factor
    want = x.astype(np.float64) @ factor.astype(numpy[dtype]).astype(np.float64)
    np.testing.assert_allclose(run(text, x=x, w=w, s=s), want, rtol=1e-4, atol=1e-5 * np.abs(want).max())


@NEEDS_COMPILER
@pytest.mark.parametrize(("k", "n", "weights", "factor", "skew"), [
    (72, 24, "KxNxf16", "%w[k, j]", 1), (72, 20, "NxKxf16", "%w[j, k]", 1), (80, 20, "NxKxi8", "f16(f32(%w[j, k]) * %s[k floordiv 16])", 0),
    (80, 20, "NxKxi8", "f16(f32(%w[j, k]) * %s[k floordiv 16])", 1), (80, 20, "NxKxi8", "f16(%s[k floordiv 16] / f32(%w[j, k]))", 0)])
def test_infinite_last_terms_are_added_once(k: int, n: int, weights: str, factor: str, skew: int) -> None:
    """Lanes without terms of their own add zeros, not zero times what is infinite there."""
    shape, dtype = ((k, n) if weights.startswith("K") else (n, k)), weights.rpartition("x")[2]
    signature = f"(%x: tensor<5x{k}xf16>, %w: tensor<{'x'.join(str(size) for size in shape)}x{dtype}>, %s: tensor<{k // 16 + 1}xf32>) -> (%y: tensor<5x{n}xf32>)"
    text = (f"op @lin{signature} {{ compute {{ %y[i, j] = sum[k < {k}](%x[i, k] * {factor}) }} }}\n"
            f"pipeline @main{signature} {{ %y = @lin(%x, %w, %s) }}\n")
    assert kinds(text) == ["few"]
    numpy = np.dtype(NARROW.get(dtype, np.float16))
    w = np.empty(n * k + skew, numpy)[skew:].reshape(shape)
    w[...], s = 1, np.ones(k // 16 + 1, np.float32)
    if dtype == "f16":
        w[np.unravel_index(w.size - 1, shape)] = np.inf
    else:
        s[(k - 1) // 16] = np.inf
    got = run(text, x=np.ones((5, k), np.float16), w=w, s=s)
    infinite = np.full(n, dtype != "f16")
    infinite[-1] = True
    assert (got == np.where(infinite, np.inf, k)).all()


@NEEDS_COMPILER
def test_codes_that_begin_anywhere() -> None:
    """Where 16 bytes cannot be read at once they are read one by one."""
    m, k, n = 3, 512, 20
    x, s = RNG.normal(size=(m, k)).astype(np.float16), RNG.random(n).astype(np.float32)
    memory = np.empty(n * k + 16, np.int8)
    begin = (17 - memory.ctypes.data) % 16
    w = memory[begin:begin + n * k].reshape(n, k)
    w[...] = RNG.integers(-127, 128, (n, k))
    assert w.ctypes.data % 16 == 1
    want = x.astype(np.float64) @ w.T.astype(np.float64) * s
    np.testing.assert_allclose(run(eight_bits(m, k, n), x=x, w=w, s=s).astype(np.float64), want, rtol=1e-3, atol=1e-3 * np.abs(want).max())


@NEEDS_COMPILER
@pytest.mark.parametrize("dtype", ["i8", "f16"])
@pytest.mark.parametrize(("m", "k", "n"), [(1, 512, 20), (9, 528, 50), (16, 80, 40)])
def test_factors_as_they_lie(dtype: str, m: int, k: int, n: int) -> None:
    assert kinds(plain(m, k, n, dtype)) == ["few"]
    x, w = (RNG.integers(-128, 128, s).astype(np.int8) if dtype == "i8" else RNG.normal(size=s).astype(np.float16) for s in ((m, k), (n, k)))
    want = x.astype(np.float64) @ w.T.astype(np.float64)
    np.testing.assert_allclose(run(plain(m, k, n, dtype), x=x, w=w), want, rtol=0 if dtype == "i8" else 1e-4, atol=0 if dtype == "i8" else 1e-4)


def beside(m: int, k: int, n: int, dtype: str) -> str:
    signature = f"(%x: tensor<{m}x{k}x{dtype}>, %w: tensor<{k}x{n}x{dtype}>) -> (%y: tensor<{m}x{n}xf32>)"
    return f"op @lin{signature} {{ compute {{ %y[i, j] = sum[k < {k}](%x[i, k] * %w[k, j]) }} }}\npipeline @main{signature} {{ %y = @lin(%x, %w) }}\n"


@NEEDS_COMPILER
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize(("m", "k", "n"), [(1, 512, 64), (8, 136, 40), (9, 72, 200), (16, 1024, 72), (3, 520, 16), (2, 512, 68), (15, 136, 131), (16, 72, 9), (8, 264, 65)])
def test_halves_whose_columns_lie_side_by_side(dtype: str, m: int, k: int, n: int) -> None:
    assert kinds(beside(m, k, n, dtype)) == ["few"]
    x, w = (RNG.normal(size=s).astype({"f16": np.float16, "bf16": ml_dtypes.bfloat16}[dtype]) for s in ((m, k), (k, n)))
    want = x.astype(np.float64) @ w.astype(np.float64)
    np.testing.assert_allclose(run(beside(m, k, n, dtype), x=x, w=w), want, rtol=1e-4, atol=1e-4)


@NEEDS_COMPILER
def test_halves_that_begin_anywhere() -> None:
    m, k, n = 5, 144, 24
    memory = np.empty(k * n + 8, np.float16)
    begin = (18 - memory.ctypes.data) % 16 // 2
    w = memory[begin:begin + k * n].reshape(k, n)
    w[...] = RNG.normal(size=(k, n))
    assert w.ctypes.data % 16 == 2
    x = RNG.normal(size=(m, k)).astype(np.float16)
    np.testing.assert_allclose(run(beside(m, k, n, "f16"), x=x, w=w), x.astype(np.float64) @ w.astype(np.float64), rtol=1e-4, atol=1e-4)


def test_what_is_not_few() -> None:
    assert "few" not in kinds(beside(4, 516, 40, "f16"))  # eight terms at a time
    assert "few" not in kinds(beside(17, 512, 64, "f16"))
    assert "few" not in kinds(plain(17, 512, 40, "i8"))
    assert "few" not in kinds(plain(4, 520, 40, "i8"))  # columns of 520 bytes do not begin at multiples of 16
    assert "few" not in kinds(plain(4, 32, 40, "i8"))  # few terms as well


@pytest.mark.skipif(not nvrtc.available(), reason="NVRTC is not installed")
@pytest.mark.parametrize("name", ["sm_75", "sm_80", "sm_89", "sm_90a", "sm_100", "sm_120"])
def test_compiles_everywhere(name: str) -> None:
    arch = parse_arch(name)
    assert arch is not None
    for program in (four_bits(16, 1024, 64), plain(16, 1024, 64, "i8")):
        module = lowered(read(program))
        assert module is not None
        text = emit_program(build_gpu(typed_operator(module.operators[0]), arch)).text
        assert "0 bytes of stack" in str(next(iter(nvrtc.compile_source(nvrtc.Source(text, "few.cu"), arch).usage.values())))
