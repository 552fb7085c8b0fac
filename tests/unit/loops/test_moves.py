"""Several neighbouring elements moved at once, loops with one turn for each thread, and what a thread keeps from one of them to the next: what the checker
and the interpreter allow and find wrong."""
from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.check import check_program
from pipelink_ir.backends.loops.print import kernel_text
from pipelink_ir.backends.loops.tidy import tidy
from pipelink_ir.ir.diagnostics import InternalError
from pipelink_ir.ir.dtypes import BOOL, F16, F32, I64, DType
from tests.unit.loops import interpreter
from tests.unit.loops.interpreter import run

N = form.Ref("N", I64)
T = form.Ref("t", I64)


def num(n: int) -> form.Const:
    return form.Const(n, I64)


def times(a: form.Expr, n: int) -> form.Op:
    return form.Op("*", (a, num(n)), I64)


def loop(kind: str, var: str, hi: form.Expr, *body: form.Stmt) -> form.For:
    return form.For(var, num(0), hi, num(1), body, kind)


def program(*body: form.Stmt, threads: int = 0, team: form.Expr | None = None, dtype: DType = F32) -> form.Program:
    x, y = form.Buffer("x", "operand", dtype, (N,)), form.Buffer("y", "result", dtype, (N,))
    kernel = form.Kernel("k", (x, y), ("N",), (), body, device="gpu", threads=threads, team=team)
    return form.Program("p", (kernel,), (x,), (y,), (), ("N",), (), ())


def played(p: form.Program, n: int = 8) -> Any:
    check_program(p)
    x = p.operands[0].memory.numpy()
    return run(p, {"x": np.arange(n, dtype=x)})["y"].tolist()


def fours(at: form.Expr, own: DType = F32) -> tuple[form.Stmt, ...]:
    """Four elements through a thread's own memory."""
    return form.Alloc("v", own, num(4)), form.Move("v", num(0), "x", at, 4), form.Move("y", at, "v", num(0), 4)


def test_neighbours_are_moved_at_once() -> None:
    quarter = form.Op("quot", (N, num(4)), I64)
    assert played(program(loop("grid", "t", quarter, *fours(times(T, 4))))) == list(range(8))
    assert played(program(loop("grid", "t", quarter, *fours(times(T, 4))), dtype=F16)) == list(range(8))
    assert "move %v[0] = %x[t * 4] x 4" in kernel_text(program(loop("grid", "t", quarter, *fours(times(T, 4)))).kernels[0])


def test_a_place_that_is_no_multiple() -> None:
    with pytest.raises(AssertionError, match=r"%x\[2\] is no place for 4 elements at once"):
        played(program(loop("grid", "t", num(1), *fours(num(2)))))


def test_a_buffer_that_begins_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "ALIGNED", False)
    with pytest.raises(AssertionError, match="is no place for 4 elements at once"):
        played(program(loop("grid", "t", num(1), *fours(num(0)))))
    guarded = form.If(form.Aligned("x", 16), fours(num(0)), (form.Store("y", num(0), form.Const(1.0, F32), F32),))
    assert played(program(loop("grid", "t", num(1), guarded)), 1) == [1]


def test_neighbours_that_lie_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read by whole words, so a buffer has to be some."""
    each = [form.Store("y", num(k), form.Load("v", num(k % 3), F16, F32), F16) for k in range(4)]
    taken = program(loop("grid", "t", num(1), form.Alloc("v", F16, num(3)), form.Move("v", num(0), "x", num(1), 3, True), *each), dtype=F16)
    assert played(taken, 4) == [1, 2, 3, 1]
    with pytest.raises(AssertionError, match="%x is no whole number of words"):
        played(taken, 5)
    monkeypatch.setattr(interpreter, "ALIGNED", False)
    with pytest.raises(AssertionError, match="%x is no whole number of words"):
        played(taken, 4)


@pytest.mark.parametrize(("move", "message"), [
    (form.Move("v", num(0), "x", num(0), 3), "3 elements of %x are moved at once"),
    (form.Move("v", num(0), "x", num(0), 8), "8 elements of %x are moved at once"),
    (form.Move("v", num(0), "x", num(1), 3, True), "3 elements of %x are moved at once"),  # more than a word
    (form.Move("y", num(1), "v", num(0), 3, True), "3 elements of %y are moved at once"),  # that is for what is read
    (form.Move("x", num(0), "v", num(0), 4), "%v cannot be moved to %x"),
    (form.Move("y", num(0), "x", num(0), 4), "neither of which is scratch"),
])
def test_moves_that_no_access_makes(move: form.Move, message: str) -> None:
    with pytest.raises(InternalError, match=message):
        check_program(program(loop("grid", "t", num(1), form.Alloc("v", F32, num(8)), move)))


def test_moves_between_other_dtypes() -> None:
    with pytest.raises(InternalError, match="as another dtype"):
        check_program(program(loop("grid", "t", num(1), *fours(num(0), F16))))


def keeps(*between: form.Stmt, kind: str = "each") -> form.Block:
    """A block whose threads keep an element each and store it later."""
    return (form.Alloc("v", F32, num(1)),
            loop(kind, "t", num(8), form.Store("v", num(0), form.Load("x", T, F32, F32), F32)),
            *between,
            loop(kind, "u", num(8), form.Store("y", form.Ref("u", I64), form.Load("v", num(0), F32, F32), F32)))


def test_a_thread_finds_what_it_kept() -> None:
    assert played(program(loop("block", "b", num(1), *keeps()), threads=8)) == list(range(8))
    team = form.Op("min", (N, num(8)), I64)
    assert played(program(loop("block", "b", num(1), *keeps()), threads=32, team=team)) == list(range(8))
    assert "threads 32 team min(N, 8)" in kernel_text(program(loop("block", "b", num(1), *keeps()), threads=32, team=team).kernels[0])


def test_what_a_thread_kept_belongs_to_loops_with_a_turn_for_each() -> None:
    with pytest.raises(InternalError, match="a thread stores to the scratch v"):
        check_program(program(loop("block", "b", num(1), *keeps(kind="thread")), threads=8))
    with pytest.raises(InternalError, match="looks at %v, which differs"):
        check_program(program(loop("block", "b", num(1), *keeps(form.Let("a", form.Load("v", num(0), F32, F32)),
                                                                form.Store("y", num(0), form.Load("v", num(0), F32, F32), F32))), threads=8))
    with pytest.raises(InternalError, match="the number of threads that run the loop over t is not known"):
        check_program(program(loop("block", "b", num(1), *keeps())))


def sums(apart: form.Expr | None, *after: form.Stmt) -> form.Block:
    """The sums of groups of two threads, or of all."""
    return (form.Var("s", F32, form.Const(0.0, F32)),
            loop("each", "t", num(8), form.Assign("s", form.Load("x", T, F32, F32))),
            form.Combine("sum", ("s",), apart, num(2)), *after,
            loop("each", "u", num(8), form.Store("y", form.Ref("u", I64), form.Ref("s", F32), F32)))


def test_groups_of_threads_combine_for_themselves() -> None:
    few = form.Op("<", (N, num(9)), BOOL)
    assert played(program(loop("block", "b", num(1), *sums(few)), threads=8)) == [1, 1, 5, 5, 9, 9, 13, 13]
    assert played(program(loop("block", "b", num(1), *sums(form.Op("not", (few,), BOOL))), threads=8)) == [28] * 8
    assert "combine sum s apart by 2 if N < 9" in kernel_text(program(loop("block", "b", num(1), *sums(few)), threads=8).kernels[0])
    stored = form.Store("y", num(0), form.Ref("s", F32), F32)
    check_program(program(loop("block", "b", num(1), *sums(None, stored)), threads=8))
    with pytest.raises(InternalError, match="looks at s, which differs"):
        check_program(program(loop("block", "b", num(1), *sums(few, stored)), threads=8))


def test_the_number_of_a_thread_differs() -> None:
    number = form.Let("n", form.Op("*", (form.Thread(), num(2)), I64))
    value = form.Convert(form.Ref("n", I64), F32, F32)
    assert played(program(loop("block", "b", num(1), number, loop("each", "t", num(8), form.Store("y", T, value, F32))), threads=8)) == [0, 2, 4, 6, 8, 10, 12, 14]
    with pytest.raises(InternalError, match="looks at n, which differs"):
        check_program(program(loop("block", "b", num(1), number, form.Store("y", form.Ref("n", I64), form.Const(1.0, F32), F32)), threads=8))


def test_tidying_keeps_what_moves_need() -> None:
    kernel = program(loop("grid", "t", N, form.Alloc("w", F32, num(4)), form.Move("w", num(0), "x", num(0), 4), *fours(times(T, 4)))).kernels[0]
    text = kernel_text(replace(kernel, body=tidy(kernel.body)))
    assert text.count("move") == 2
    assert "%w" not in text
