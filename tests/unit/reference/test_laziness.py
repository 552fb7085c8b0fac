"""Nothing is evaluated, checked or able to fail where it is not taken; and a prover that was wrong is found out."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pipelink_ir.backends.reference.interpreter import run_operator
from pipelink_ir.ir.diagnostics import ExecutionError, InternalError
from pipelink_ir.ir.dtypes import BOOL, F32, I64
from pipelink_ir.ir.nodes import Apply, Const, Expr, FloatLit, IntLit, Name, Operand, Operator, Range, Read, TensorType
from pipelink_ir.ir.source import NOWHERE
from pipelink_ir.ir.typed import Group, Piece, Tensor, TypedOperator

Op = Callable[..., Any]
GATHER = "(%x: tensor<Nxf32>, %i: tensor<Mxi32>) -> (%y: tensor<Mxf32>)"
DATA = {"x": [5, 6, 7], "i": [2, -1, 0, 9]}


@pytest.mark.parametrize("body", [
    "%y[m] = select(%i[m] >= 0 and %i[m] < N, %x[%i[m]], -1)",
    "%y[m] = select(%i[m] < 0 or %i[m] >= N, -1, %x[%i[m]])",
    "%y[m] = select(%i[m] < 0 or %i[m] >= N or %x[%i[m]] < 0, -1, %x[clamp(%i[m], 0, 2)])",
    "%y[m] = select(%i[m] >= 0, select(%i[m] < N, %x[%i[m]], -1), -1)",
    "%ok[m] = %i[m] >= 0 and %i[m] < N\n%y[m] = select(%ok[m], %x[%i[m]], -1)",
])
def test_branches_not_taken_are_not_checked(run_op: Op, body: str) -> None:
    np.testing.assert_array_equal(run_op(GATHER, body, **DATA), [7, -1, 5, -1])


def test_a_filter_guards_its_body(run_op: Op) -> None:
    body = "%y = sum[m < M where %i[m] >= 0 and %i[m] < N](%x[%i[m]])"
    assert run_op("(%x: tensor<Nxf32>, %i: tensor<Mxi32>) -> (%y: tensor<f32>)", body, **DATA) == 12


def test_a_local_fails_only_where_it_is_read(run_op: Op) -> None:
    """%g is computed for every m, but at -1 and 9 nobody asks for it; also through a second local, and through a reduction."""
    guarded = "select(%i[m] >= 0 and %i[m] < N, {}, -1)"
    np.testing.assert_array_equal(run_op(GATHER, "%g[m] = %x[%i[m]]\n%y[m] = " + guarded.format("%g[m]"), **DATA), [7, -1, 5, -1])
    two = "%g[m] = %x[%i[m]]\n%h[m] = 2 * %g[m]\n%y[m] = " + guarded.format("%h[m]")
    np.testing.assert_array_equal(run_op(GATHER, two, **DATA), [14, -1, 10, -1])
    summed = "%g[m] = sum[k < 2](%x[%i[m]] + k)\n%y[m] = " + guarded.format("%g[m]")
    np.testing.assert_array_equal(run_op(GATHER, summed, **DATA), [15, -1, 11, -1])


def test_what_went_wrong_in_a_local_is_said_when_it_is_read(run_op: Op) -> None:
    with pytest.raises(ExecutionError) as caught:
        run_op(GATHER, "%g[m] = %x[%i[m]]\n%h[m] = 2 * %g[m]\n%y[m] = select(%i[m] > 2, %h[m], 0)", **DATA)
    found = caught.value.diagnostics[0]
    assert found.code == "PL6101"
    assert found.span.source.text is not None
    assert found.span.source.text[found.span.start:found.span.end] == "%x[%i[m]]"


def test_winners_over_nothing_in_a_branch_not_taken(run_op: Op) -> None:
    body = "%n[r] = sum[k < K where %m[r, k]](1)\n%y[r] = select(%n[r] > 0, argmax[k < K where %m[r, k]](%x[r, k]), -1)"
    got = run_op("(%x: tensor<RxKxf32>, %m: tensor<RxKxbool>) -> (%y: tensor<Rxi32>)", body, x=[[1, 2], [3, 4]], m=[[True, True], [False, False]])
    np.testing.assert_array_equal(got, [1, -1])


def test_integer_to_a_negative_power(run_op: Op) -> None:
    signature = "(%a: tensor<Nxi32>, %n: tensor<Nxi32>) -> (%y: tensor<Nxi32>)"
    np.testing.assert_array_equal(run_op(signature, "%y[n] = %a[n] ** %n[n]", a=[3, -2, 7], n=[4, 3, 0]), [81, -8, 1])
    with pytest.raises(ExecutionError, match="to the power -1"):
        run_op(signature, "%y[n] = %a[n] ** %n[n]", a=[3, 2], n=[4, -1])


def test_a_constant_position_wins_and_hides_the_general_definition(run_op: Op) -> None:
    """At 0 the general definition would divide and read data that is not there."""
    body = "%y[m] = %x[%i[m]]\n%y[0] = 42.0"
    np.testing.assert_array_equal(run_op(GATHER, body, sections="where M >= 1", x=[5, 6], i=[-7, 1, 0]), [42, 6, 5])
    got = run_op("(%x: tensor<HxWxf32>) -> (%y: tensor<HxWxf32>)", "%y[h, w] = %x[h, w]\n%y[1, 0] = -1.0", sections="where H >= 2, W >= 1", x=[[1, 2], [3, 4]])
    np.testing.assert_array_equal(got, [[1, 2], [-1, 4]])


# ------------------------------------------------------------------------------------------------------------- by hand, typed


def operator(value: Expr, size: int = 4) -> TypedOperator:
    """%y[n] = value over 0..size, of an operand %x of `size`."""
    zero, n = IntLit(0, dtype=I64), IntLit(size, dtype=I64)
    type = TensorType((n,), "f32")
    op = Operator("f", (Operand("x", type),), (Operand("y", type),))
    x = Tensor("x", "operand", F32, ((zero, n),), (None,), (), NOWHERE)
    y = Tensor("y", "result", F32, ((zero, n),), (None,), (Piece((Range("n", zero, n),), value, (), NOWHERE),), NOWHERE)
    return TypedOperator(op, {"x": x, "y": y}, (), (), (Group(("y",), None),), None, False, False)


def read(offset: int, access: str) -> Read:
    return Read("x", (Apply("+", (Name("n", dtype=I64), IntLit(offset, dtype=I64)), dtype=I64),), (access,), dtype=F32)


def run(value: Expr) -> np.ndarray[Any, Any]:
    return run_operator(operator(value), {}, {}, {"x": np.array([1, 2, 3, 4], np.float32)})["y"]


@pytest.mark.parametrize("access", ["inside", "guarded"])
def test_a_wrong_proof_is_an_internal_error(access: str) -> None:
    with pytest.raises(InternalError, match=r"read at 4 along axis 0 of extent 0\.\.4, which was proven not to happen"):
        run(read(1, access))
    guard = Apply("<", (Name("n", dtype=I64), IntLit(3, dtype=I64)), dtype=BOOL)
    guarded = Apply("select", (guard, read(1, access), FloatLit(0.0, dtype=F32)), dtype=F32)
    np.testing.assert_array_equal(run(guarded), [2, 3, 4, 0])


def test_a_checked_read_is_the_users_fault() -> None:
    with pytest.raises(ExecutionError, match="read at index -1"):
        run(read(-1, "check"))


def test_a_constant_condition_leaves_the_other_branch_alone() -> None:
    value = Apply("select", (Const("true", dtype=BOOL), FloatLit(3.0, dtype=F32), read(100, "inside")), dtype=F32)
    np.testing.assert_array_equal(run(value), [3] * 4)


def test_deep_expressions() -> None:
    value: Expr = read(0, "inside")
    for _ in range(950):
        value = Apply("+", (value, FloatLit(1.0, dtype=F32)), dtype=F32)
    np.testing.assert_array_equal(run(value), np.array([951, 952, 953, 954]))


def test_holes_with_several_conditions() -> None:
    typed = operator(read(0, "inside"))
    y = typed.tensors["y"]
    holes = (((0, 1),), ((0, 3),))
    bad = Piece(y.pieces[0].axes, read(100, "inside"), (((0, 0),), ((0, 2),), *holes), NOWHERE)
    pieces = (bad, replace(y.pieces[0], holes=holes))
    typed = replace(typed, tensors={**typed.tensors, "y": replace(y, pieces=pieces)})
    got = run_operator(typed, {}, {}, {"x": np.array([1, 2, 3, 4], np.float32)})["y"]
    np.testing.assert_array_equal(got, [1, 0, 3, 0])           # in the holes nobody else defines it here
