"""What copies bring beside the work fits into the shared memory of a block of each architecture that has such copies: it can lie nowhere else."""
from __future__ import annotations

import pytest

from pipelink_ir.backends.cuda.compile import lowered
from pipelink_ir.backends.cuda.emit import COPIES, emit_program
from pipelink_ir.backends.cuda.geometry import geometry
from pipelink_ir.grammar import parse
from pipelink_ir.ir.gpus import GPUS
from pipelink_ir.ir.targets import Arch


def product(dtype: str, wide: str, rows: str, terms: str, columns: str, more: str = "") -> str:
    return f"""op @f(%a: tensor<{rows}x{terms}x{dtype}>, %b: tensor<{terms}x{columns}x{dtype}>) -> (%y: tensor<{rows}x{columns}x{wide}>) {{ {more}
      compute {{ %y[m, n] = sum[k < {terms}](%a[m, k] * %b[k, n]) }} }}"""


def convolution(dtype: str, wide: str, channels: int, columns: int) -> str:
    return f"""op @f(%z: tensor<NxHxWx{channels}x{dtype}>, %k: tensor<3x3x{channels}x{columns}x{dtype}>) -> (%y: tensor<NxHxWx{columns}x{wide}>) {{
      memory {{ border = constant(0) }}
      compute {{ %y[n, h, w, o] = sum[i < 3, j < 3, c < {channels}](%z[n, h + i - 1, w + j - 1, c] * %k[i, j, c, o]) }} }}"""


def attention(terms: int) -> str:
    return f"""op @f(%q: tensor<BxSx{terms}xf16>, %k: tensor<BxSx{terms}xf16>, %v: tensor<BxSx{terms}xf16>) -> (%y: tensor<BxSx{terms}xf16>) {{ compute {{
      %s[b, i, j] = sum[d < {terms}](f32(%q[b, i, d]) * f32(%k[b, j, d]))
      %t[b, i] = max[j < S](%s[b, i, j])
      %e[b, i] = sum[j < S](exp(%s[b, i, j] - %t[b, i]))
      %y[b, i, d] = f16(sum[j < S](exp(%s[b, i, j] - %t[b, i]) / %e[b, i] * f32(%v[b, j, d]))) }} }}"""


PROGRAMS = {
    **{f"{rows} x {terms} x {columns} of {dtype}": product(dtype, dtype, rows, terms, columns) for dtype in ("f32", "f64", "i64")
       for rows, terms, columns in (("1", "K", "N"), ("3", "512", "640"), ("8", "512", "48"), ("M", "K", "N"), ("100", "500", "90"))},
    **{f"{rows} x {terms} x {columns} of {dtype}": product(dtype, "i32" if dtype == "i8" else "f32", rows, terms, columns) for dtype in ("f16", "i8", "f8e4m3")
       for rows, terms, columns in (("M", "K", "N"), ("2048", "512", "2048"), ("4", "512", "2048"))},
    "f8 as it is": product("f8e4m3", "f32", "2048", "512", "2048", "compile { accuracy = f8 }"),
    "pixels of f16": convolution("f16", "f32", 64, 64), "many pixels of f16": convolution("f16", "f32", 256, 128),
    "pixels of bytes": convolution("i8", "i32", 128, 96), "few channels": convolution("f16", "f32", 3, 32),
    "heads of 64": attention(64), "heads of 128": attention(128), "heads of 256": attention(256)}


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_fits(name: str) -> None:
    (found,) = parse(PROGRAMS[name], "test.plir").operators
    for sm, facts in ((n, f) for n, f in GPUS.items() if n >= COPIES):
        program = lowered(found, Arch("cuda", sm, "a" if sm == 90 else ""))
        for code in emit_program(program, found).kernels:
            needed = code.static_shared + geometry(code, dict.fromkeys(code.kernel.symbols, 70)).shared_bytes
            assert not code.near or needed <= facts.shared_block, f"{code.symbol} for sm_{sm} needs {needed} bytes"
