"""Shorter ways to compute what is rounded to a narrow float: every f16, every bf16, against float64."""
from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from scipy.special import expit, ndtr

import pipelink_ir
from pipelink_ir.backends.cuda.emit import emit_program
from pipelink_ir.backends.loops.gpu.build import build_gpu
from pipelink_ir.grammar import parse
from pipelink_ir.passes.infer.operator import typed_operator
from tests.emulated import NEEDS_COMPILER
from tests.unit.cuda_emulated.test_schedules import op

pytestmark = NEEDS_COMPILER
GELU = "%y[n] = 0.5 * %x[n] * (1 + erf(%x[n] * 0.7071067811865476))"
KINDS = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}


def program(dtype: str, result: str = "", more: str = "") -> str:
    return op(f"%x: tensor<Nx{dtype}> -> %y: tensor<Nx{result or dtype}>", GELU, more)


def emitted(text: str) -> str:
    return emit_program(build_gpu(typed_operator(parse(text, "test.plir").operators[0]))).text


@pytest.mark.parametrize("dtype", KINDS)
def test_gelu_of_every_number(dtype: str) -> None:
    x = np.arange(1 << 16, dtype=np.uint16).view(KINDS[dtype])
    got = np.asarray(pipelink_ir.compile(program(dtype), target="cuda-emulated")(x=x)["y"]).astype(np.float64)
    with np.errstate(invalid="ignore"):
        wide = x.astype(np.float64)
    finite = np.isfinite(wide)
    with np.errstate(invalid="ignore", over="ignore"):
        want = np.where(finite, wide, 0) * ndtr(wide)
        nearest = want.astype(KINDS[dtype]).astype(np.float64)
    digits, least = (10, -24) if dtype == "f16" else (7, -133)
    unit = np.exp2(np.maximum(np.frexp(np.where(finite, want, 1))[1] - 1 - digits, least))
    assert (np.abs(got[finite] - want[finite]) <= (0.5 + 1 / 16) * unit[finite]).all()
    assert np.mean(got[finite] != nearest[finite]) < 0.01
    assert np.isnan(got[np.isnan(wide) | (wide == -np.inf)]).all()
    assert got[wide == np.inf] == np.inf


TANH = "0.5 * %x[n] * (1 + tanh(0.7978845608 * (%x[n] + 0.044715 * {0})))"


@pytest.mark.parametrize("dtype", KINDS)
def test_gelu_by_tanh_of_every_number(dtype: str) -> None:
    x = np.arange(1 << 16, dtype=np.uint16).view(KINDS[dtype])
    text = op(f"%x: tensor<Nx{dtype}> -> %y: tensor<Nx{dtype}>", f"%y[n] = {TANH.format('%x[n] ** 3')}")
    assert f"pl::gelu_tanh_{dtype}(" in emitted(text)
    got = np.asarray(pipelink_ir.compile(text, target="cuda-emulated")(x=x)["y"]).astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        wide = x.astype(np.float64)
        finite = np.isfinite(wide)
        some = np.where(finite, wide, 0)
        want = some * expit(2 * 0.7978845608 * (some + 0.044715 * some ** 3))
    digits, least = (10, -24) if dtype == "f16" else (7, -133)
    unit = np.exp2(np.maximum(np.frexp(want)[1] - 1 - digits, least))
    assert (np.abs(got[finite] - want[finite]) <= (0.5 + 1 / 16) * unit[finite]).all()
    assert np.isnan(got[np.isnan(wide) | (wide == -np.inf)]).all()
    assert got[wide == np.inf] == np.inf


def test_how_it_may_be_written() -> None:
    for cube in ("%x[n] ** 3", "%x[n] * %x[n] * %x[n]"):
        assert "pl::gelu_tanh_f16(" in emitted(op("%x: tensor<Nxf16> -> %y: tensor<Nxf16>", f"%y[n] = {TANH.format(cube)}"))
    for other in ("%x[n] ** 2", "%x[n] * %x[n]"):
        assert "gelu_tanh" not in emitted(op("%x: tensor<Nxf16> -> %y: tensor<Nxf16>", f"%y[n] = {TANH.format(other)}"))
    assert "gelu_tanh" not in emitted(op("%x: tensor<Nxf32> -> %y: tensor<Nxf32>", f"%y[n] = {TANH.format('%x[n] ** 3')}"))


def test_where_it_is_taken() -> None:
    assert "pl::gelu_f16(" in emitted(program("f16"))
    assert "pl::erf(" in emitted(program("f32"))
    assert "pl::erf(" in emitted(program("f16", "f32"))
    assert "gelu_f16" not in emitted(program("f16", more="compile { accuracy = exact }"))


def test_an_edge_that_is_fused_away_rounds_alike() -> None:
    one = program("f16")
    both = op("%x: tensor<Nxf16> -> %z: tensor<Nxf16>", "%y[n] = f16(0.5 * %x[n] * (1 + erf(%x[n] * 0.7071067811865476)))\n%z[n] = %y[n] + %y[n]")
    x = np.random.default_rng(2).standard_normal(5000).astype(np.float16)
    y = np.asarray(pipelink_ir.compile(one, target="cuda-emulated")(x=x)["y"])
    z = np.asarray(pipelink_ir.compile(both, target="cuda-emulated")(x=x)["z"])
    assert (z == (y.astype(np.float32) * 2).astype(np.float16)).all()
