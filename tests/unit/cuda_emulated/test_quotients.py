"""Quotients of a row by one number, by its reciprocal and a correction: every bit as that of the division, over all kinds of sizes."""
from __future__ import annotations

import numpy as np
import pytest

import pipelink_ir
from pipelink_ir.backends.cuda.emit import emit_program
from pipelink_ir.backends.loops.gpu.build import build_gpu
from pipelink_ir.grammar import parse
from pipelink_ir.passes.infer.operator import typed_operator
from tests.emulated import NEEDS_COMPILER
from tests.quotients import ROWS, SHARE, alike, divided, edges, hard_to_round, shares
from tests.unit.cuda_emulated.test_schedules import op

pytestmark = NEEDS_COMPILER


def text(program: str) -> str:
    return emit_program(build_gpu(typed_operator(parse(program, "test.plir").operators[0]))).text


def test_every_size_by_every_size() -> None:
    d = edges()
    x = np.tile(np.resize(d, -(-len(d) // 8) * 8), (len(d), 1))
    got = np.asarray(pipelink_ir.compile(ROWS, target="cuda-emulated")(x=x, d=d)["y"])
    want = divided(x, d)
    assert alike(got, want).all(), [(a, b) for a, b in zip(*np.nonzero(~alike(got, want)), strict=True)][:5]


def test_digits_that_are_hard_to_round() -> None:
    x, d = hard_to_round()
    got = np.asarray(pipelink_ir.compile(ROWS, target="cuda-emulated")(x=x, d=d)["y"])
    assert alike(got, divided(x, d)).all()


@pytest.mark.parametrize("k", [64, 1000, 1001])
def test_rows_in_registers(k: int) -> None:
    x, want = shares(k)
    assert alike(np.asarray(pipelink_ir.compile(SHARE, target="cuda-emulated")(x=x)["y"]), want).all()


def test_where_it_is_taken() -> None:
    assert "pl::quotient(" in text(ROWS)
    assert "pl::quotient(" in text(SHARE)
    assert "pl::quotient(" not in text(SHARE.replace("f32", "f64"))
    assert "pl::quotient(" not in text(op("%x: tensor<NxKxf32>, %d: tensor<Nxf32> -> %y: tensor<NxKxf32>", "%y[n, k] = %x[n, k] / %d[n]",
                                          "compile { accuracy = exact }"))
