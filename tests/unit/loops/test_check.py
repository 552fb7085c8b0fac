"""The rules of the loop-level form, each broken once, and the text of programs."""
from __future__ import annotations

import re
from dataclasses import replace

import pytest

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.check import check_program
from pipelink_ir.backends.loops.print import program_text
from pipelink_ir.ir.diagnostics import InternalError
from pipelink_ir.ir.dtypes import F16, F32, F64, I64
from tests.unit.loops.programs import op, program

N = form.Ref("N", I64)
ZERO, ONE = form.Const(0, I64), form.Const(1, I64)
X, Y = form.Buffer("x", "operand", F32, (N,)), form.Buffer("y", "result", F16, (N,))


def checked(*body: form.Stmt) -> None:
    kernel = form.Kernel("k", (X, Y), ("N",), (), body)
    check_program(form.Program("p", (kernel,), (X,), (Y,), (), ("N",), (), ()))


def load(index: form.Expr = ZERO) -> form.Load:
    return form.Load("x", index, F32, F32)


def loop(*body: form.Stmt, kind: str = "parallel") -> form.For:
    return form.For("i", ZERO, N, ONE, body, kind)


GOOD = form.Store("y", form.Ref("i", I64), load(form.Ref("i", I64)), F16)


def test_a_right_kernel_passes() -> None:
    checked(form.Let("n", N), loop(GOOD))
    checked(form.Alloc("t", F64, N), form.Store("t", ZERO, form.Convert(load(), F64, F64), F64), loop(GOOD, kind="serial"))


@pytest.mark.parametrize(("message", "body"), [
    ("stands before the parallel loop", (form.Var("v", F32, load()), loop(GOOD))),
    ("stands inside something", (loop(replace(loop(GOOD), var="j"), kind="serial"),)),
    ("bound twice", (form.Let("a", ZERO), form.Let("a", ONE))),
    ("not in sight", (loop(form.Let("a", ZERO)), form.Store("y", form.Ref("a", I64), load(), F16))),
    ("not in sight", (form.Let("a", form.Ref("N", F32)),)),
    ("read as another dtype", (form.Let("a", form.Load("x", ZERO, F16, F32)),)),
    ("read as another dtype", (form.Let("a", form.Load("z", ZERO, F32, F32)),)),
    ("not there to be written", (form.Store("x", ZERO, load(), F32),)),
    ("is stored in %y", (form.Store("y", ZERO, ZERO, F16),)),
    ("no Var in sight", (form.Let("a", ZERO), form.Assign("a", ONE))),
    ("assigned another type", (form.Var("a", I64, ZERO), form.Assign("a", load()))),
    ("'+' of f32, i64", (form.Let("a", form.Op("+", (ZERO, load()), I64)),)),
    ("'sum' of i64", (form.Let("a", form.Op("sum", (ZERO,), I64)),)),
    ("'<' gives i64", (form.Let("a", form.Op("<", (ZERO, ONE), I64)),)),
    ("condition is no bool", (form.If(ZERO, ()),)),
    ("no site 3", (form.Fail(3, ()),)),
    ("are no i64", (replace(loop(), hi=load()),)),
])
def test_a_broken_rule_is_a_fault_of_ours(message: str, body: tuple[form.Stmt, ...]) -> None:
    with pytest.raises(InternalError, match=re.escape(message)):
        checked(*body)


def test_text_of_a_program() -> None:
    text = program_text(program(op("%x: tensor<NxKxf16>, %i: tensor<Nxi32> -> %y: tensor<Nxf32>", "%y[n] = sum[k < %i[n]](%x[n, k])")))
    assert "program f" in text
    assert "operand %x: f16[N, K]" in text
    assert "parallel for n in 0..max(N, 0) {" in text
    assert "is outside 0..{1}" in text
    assert "sum = sum + f64(part)" in text


@pytest.mark.parametrize(("fn", "args", "value"), [("+", (5, 3), 8), ("-", (5, 3), 2), ("*", (5, 3), 15), ("floordiv", (-5, 3), -2), ("mod", (-5, 3), 1),
                                                   ("max", (5, 3), 5), ("min", (5, 3), 3), ("neg", (5,), -5), ("floordiv", (5, 0), 0)])
def test_sizes_are_evaluated(fn: str, args: tuple[int, ...], value: int) -> None:
    assert form.evaluate(form.Op(fn, (form.Ref("S", I64), *(form.Const(a, I64) for a in args[1:])), I64), {"S": args[0]}) == value
