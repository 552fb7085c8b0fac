"""Codes by a constant scale: every number of f16, and numbers of f32 of all kinds and next to ties, as the true division gives them."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pipelink_ir
from pipelink_ir.backends.cuda.emit import emit_program
from pipelink_ir.backends.loops.gpu.build import build_gpu
from pipelink_ir.passes.infer.operator import typed_operator
from pipelink_ir.runtime.compile import read
from tests.emulated import NEEDS_COMPILER, lowered
from tests.quotients import edges

pytestmark = NEEDS_COMPILER
Array = np.ndarray[Any, Any]
HALVES = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
SCALES = [0.047, 0.05, 1 / 127, 0.25, 3e-6, 300.0]


def program(dtype: str, scale: float, zero: int, to: str) -> str:
    signature = f"(%x: tensor<Nx{dtype}>) -> (%y: tensor<Nx{to}>)"
    return f"pipeline @main{signature} {{\n  %y = @std.quantize(%x) {{scale = {scale!r}, zero = {zero}, U = {to}}}\n}}\n"


def codes(x: Array, scale: float, zero: int, to: str) -> Array:
    info = np.iinfo(to.replace("i", "int").replace("u", "uint"))
    with np.errstate(all="ignore"):
        quotient = np.rint(x.astype(np.float32) / np.float32(scale)).astype(np.float64) + zero
    return np.where(np.isnan(quotient), 0, np.clip(quotient, info.min, info.max)).astype(info.dtype)


@pytest.mark.parametrize(("to", "zero"), [("i8", 0), ("i8", -5), ("u8", 131), ("u8", 0), ("i16", 7)])
@pytest.mark.parametrize("scale", SCALES)
def test_every_number_of_f16(scale: float, to: str, zero: int) -> None:
    got = np.asarray(pipelink_ir.compile(program("f16", scale, zero, to), target="cuda-emulated")(x=HALVES)["y"])
    np.testing.assert_array_equal(got, codes(HALVES, scale, zero, to))


@pytest.mark.parametrize("scale", SCALES)
def test_numbers_of_f32(scale: float) -> None:
    """Beside all kinds those next to the middle between two codes."""
    ties = np.float32(scale) * (np.arange(-140, 140, dtype=np.float32) + np.float32(0.5))
    x = np.concatenate([edges(), ties, np.nextafter(ties, np.float32(np.inf)), np.nextafter(ties, np.float32(-np.inf))]).astype(np.float32)
    got = np.asarray(pipelink_ir.compile(program("f32", scale, 0, "i8"), target="cuda-emulated")(x=x)["y"])
    np.testing.assert_array_equal(got, codes(x, scale, 0, "i8"))


def test_how_it_is_written() -> None:
    def text(dtype: str, scale: float, code: str = "i8") -> str:
        module = lowered(read(program(dtype, scale, 0, code)))
        assert module is not None
        return emit_program(build_gpu(typed_operator(module.operators[-1]))).text

    assert "pl::code_i8<0>(" in text("f16", 0.05)
    assert "div" not in text("f16", 0.05).split("code_i8")[1].split(";")[0]
    assert "pl::times(" not in text("f16", 0.047)  # by the reciprocal one number of f16 would come out otherwise, not by its neighbour
    assert "pl::times(" in text("f16", 0.0059465123, "i16")
    assert "pl::div_for_code(" in text("f32", 0.05)
