"""What tensor cores read, and what copies bring beside the work, fits into the shared memory of a block of each architecture: it can lie nowhere else."""
from __future__ import annotations

import pytest

from pipelink_ir.backends.cuda.compile import lowered
from pipelink_ir.backends.cuda.emit import emit_program
from pipelink_ir.backends.cuda.geometry import geometry
from pipelink_ir.grammar import parse
from pipelink_ir.ir.gpus import GPUS
from pipelink_ir.ir.targets import Arch


def product(dtype: str, wide: str, rows: str, terms: str, columns: str) -> str:
    return f"""op @f(%a: tensor<5x{rows}x{terms}x{dtype}>, %b: tensor<5x{terms}x{columns}x{dtype}>) -> (%y: tensor<5x{rows}x{columns}x{wide}>) {{
      compute {{ %y[q, m, n] = sum[k < {terms}]({wide}(%a[q, m, k]) * {wide}(%b[q, k, n])) }} }}"""


def convolution(dtype: str, wide: str, channels: int, columns: int) -> str:
    return f"""op @f(%z: tensor<NxHxWx{channels}x{dtype}>, %k: tensor<3x3x{channels}x{columns}x{dtype}>) -> (%y: tensor<NxHxWx{columns}x{wide}>) {{
      memory {{ border = constant(0) }}
      compute {{ %y[n, h, w, o] = sum[i < 3, j < 3, c < {channels}]({wide}(%z[n, h + i - 1, w + j - 1, c]) * {wide}(%k[i, j, c, o])) }} }}"""


def attention(terms: int) -> str:
    return f"""op @f(%q: tensor<BxSx{terms}xf16>, %k: tensor<BxSx{terms}xf16>, %v: tensor<BxSx{terms}xf16>) -> (%y: tensor<BxSx{terms}xf16>) {{ compute {{
      %s[b, i, j] = sum[d < {terms}](f32(%q[b, i, d]) * f32(%k[b, j, d]))
      %t[b, i] = max[j < S](%s[b, i, j])
      %e[b, i] = sum[j < S](exp(%s[b, i, j] - %t[b, i]))
      %y[b, i, d] = f16(sum[j < S](exp(%s[b, i, j] - %t[b, i]) / %e[b, i] * f32(%v[b, j, d]))) }} }}"""


PROGRAMS = {
    "few rows of f64": product("f64", "f64", "3", "K", "N"), "few rows of i64": product("i64", "i64", "2", "512", "640"),
    "few rows of f32": product("f32", "f32", "1", "K", "N"), "f64": product("f64", "f64", "M", "K", "N"), "small f64": product("f64", "f64", "8", "512", "48"),
    "f16": product("f16", "f32", "M", "K", "N"), "bytes": product("i8", "i32", "M", "K", "N"), "f8": product("f8e4m3", "f32", "M", "K", "N"),
    "pixels of f16": convolution("f16", "f32", 64, 64), "pixels of bytes": convolution("i8", "i32", 128, 96), "few channels": convolution("f16", "f32", 3, 32),
    "heads of 64": attention(64), "heads of 256": attention(256)}


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_fits(name: str) -> None:
    (found,) = parse(PROGRAMS[name], "test.plir").operators
    for sm, facts in GPUS.items():
        program = lowered(found, Arch("cuda", sm, "a" if sm == 90 else ""))
        for code in emit_program(program, found).kernels:
            needed = code.static_shared + geometry(code, dict.fromkeys(code.kernel.symbols, 70)).shared_bytes
            assert not code.near or needed <= facts.shared_block, f"{code.symbol} for sm_{sm} needs {needed} bytes"
