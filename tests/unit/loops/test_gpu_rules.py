"""What the interpreter and the checker find wrong with kernels for a GPU: races, barriers that not all threads reach, values that differ between threads."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.check import check_program
from pipelink_ir.ir.diagnostics import InternalError
from pipelink_ir.ir.dtypes import BOOL, F32, I32, I64
from tests.unit.loops.interpreter import run

N = form.Ref("N", I64)
X = form.Buffer("x", "operand", F32, (N,))
Y = form.Buffer("y", "result", F32, (N,))


def num(n: int) -> form.Const:
    return form.Const(n, I64)


def ref(name: str) -> form.Ref:
    return form.Ref(name, I64)


def plus(a: form.Expr, b: form.Expr) -> form.Op:
    return form.Op("+", (a, b), a.dtype)


def loop(kind: str, var: str, hi: form.Expr, *body: form.Stmt) -> form.For:
    return form.For(var, num(0), hi, num(1), body, kind)


def store(buffer: str, at: form.Expr, value: form.Expr) -> form.Store:
    return form.Store(buffer, at, value, F32)


def load(buffer: str, at: form.Expr) -> form.Load:
    return form.Load(buffer, at, F32, F32)


def program(*body: form.Stmt, threads: int = 0) -> form.Program:
    kernel = form.Kernel("k", (X, Y), ("N",), (), body, device="gpu", threads=threads)
    return form.Program("p", (kernel,), (X,), (Y,), (), ("N",), (), ())


def block(*body: form.Stmt, threads: int = 0) -> form.Program:
    return program(loop("block", "b", num(1), *body), threads=threads)


def played(p: form.Program, n: int = 6) -> Any:
    check_program(p)
    return run(p, {"x": np.arange(n, dtype=np.float32)})["y"]


COPY = loop("thread", "i", N, store("y", ref("i"), load("x", ref("i"))))
ONE = form.Const(1.0, F32)


def test_what_is_right_runs() -> None:
    assert played(program(loop("grid", "i", N, store("y", ref("i"), load("x", ref("i")))))).tolist() == [0, 1, 2, 3, 4, 5]
    again = loop("thread", "j", N, store("y", ref("j"), plus(load("y", ref("j")), ONE)))
    assert played(block(COPY, form.Barrier(), again)).tolist() == [1, 2, 3, 4, 5, 6]


def reverse(barrier: bool) -> form.Program:
    """The row through shared memory, back to front."""
    last = form.Op("-", (plus(N, num(-1)), ref("j")), I64)
    between = (form.Barrier(),) if barrier else ()
    return block(form.Alloc("s", F32, num(6), True), loop("thread", "i", N, store("s", ref("i"), load("x", ref("i")))), *between,
                 loop("thread", "j", N, store("y", ref("j"), load("s", last))))


def test_shared_memory_needs_a_barrier() -> None:
    assert played(reverse(True)).tolist() == [5, 4, 3, 2, 1, 0]
    with pytest.raises(AssertionError, match="a race at %s"):
        played(reverse(False))


@pytest.mark.parametrize("p", [
    program(loop("grid", "i", N, store("y", num(0), load("x", ref("i"))))),                                                    # threads of a grid
    program(loop("block", "b", N, loop("thread", "i", N, store("y", ref("i"), load("x", ref("i")))))),                         # blocks
    block(loop("thread", "i", N, store("y", num(0), load("x", ref("i"))))),                                                    # threads of a block
    block(COPY, form.Let("v", load("y", num(5))), form.Barrier(), loop("thread", "j", N, store("y", ref("j"), form.Ref("v", F32)))),
    block(store("y", num(0), load("x", num(0))), loop("thread", "i", N, store("y", ref("i"), load("x", ref("i")))))])           # one thread, then all
def test_races_are_found(p: form.Program) -> None:
    with pytest.raises(AssertionError, match="a race at %y"):
        played(p)


def test_each_thread_has_its_own_variables_until_they_are_combined() -> None:
    add = loop("thread", "i", N, form.Assign("v", plus(form.Ref("v", F32), load("x", ref("i")))))
    twice = form.Assign("v", plus(form.Ref("v", F32), form.Ref("v", F32)))
    out = loop("thread", "j", N, store("y", ref("j"), form.Ref("v", F32)))
    assert played(block(form.Var("v", F32, form.Const(0.0, F32)), add, twice, form.Combine("sum", ("v",)), out)).tolist() == [30.0] * 6
    with pytest.raises(InternalError, match="differs between threads"):
        check_program(block(form.Var("v", F32, form.Const(0.0, F32)), add, store("y", num(0), form.Ref("v", F32))))


def test_the_winner_of_all_threads() -> None:
    names = ("v", "at")
    begin = (form.Var("v", F32, form.Const(0.0, F32)), form.Var("at", I32, form.Const(-1, I32)))
    turn = (form.Assign("v", load("x", ref("i"))), form.Assign("at", form.Convert(ref("i"), I32, I32)))
    three = form.Op("<", (ref("i"), num(3)), BOOL)
    take = loop("thread", "i", N, form.If(three, turn))
    out = loop("thread", "j", N, store("y", ref("j"), form.Convert(form.Ref("at", I32), F32, F32)))
    assert played(block(*begin, take, form.Combine("argmax", names), out)).tolist() == [2.0] * 6
    assert played(block(*begin, take, form.Combine("argmin", names), out)).tolist() == [0.0] * 6
    assert played(block(*begin, form.Combine("argmax", names), out)).tolist() == [-1.0] * 6


def test_an_exact_number_of_threads_keeps_its_turns() -> None:
    body = (form.Var("v", F32, form.Const(0.0, F32)), loop("thread", "t", num(6), form.Assign("v", load("x", ref("t")))), form.Barrier(),
            loop("thread", "u", num(6), store("y", ref("u"), form.Ref("v", F32))))
    assert played(block(*body, threads=6)).tolist() == [0, 1, 2, 3, 4, 5]


VARY = (form.Var("v", I64, num(0)), loop("thread", "i", N, form.Assign("v", ref("i"))))


@pytest.mark.parametrize(("p", "message"), [
    (program(COPY), "no loop over its grid or its blocks"),
    (program(store("y", num(0), ONE), loop("grid", "i", N)), "something but a Let"),
    (program(loop("grid", "g", N, COPY)), "a loop of kind thread"),
    (program(loop("grid", "g", N, form.Barrier())), "cannot wait"),
    (block(loop("thread", "j", N, COPY)), "a loop of kind thread"),
    (block(loop("thread", "j", N, form.Barrier())), "cannot wait"),
    (block(loop("thread", "j", N, form.Alloc("s", F32, num(1), True))), "cannot share memory"),
    (block(form.Alloc("s", F32, N, True)), "is not constant"),
    (block(loop("grid", "j", N)), "a loop of kind grid"),
    (block(*VARY, form.If(form.Op("<", (ref("v"), num(1)), BOOL), (form.Barrier(),))), "differs between threads"),
    (block(*VARY, form.Let("w", plus(ref("v"), num(1))), loop("serial", "k", ref("w"), form.Barrier())), "differs between threads"),
    (block(form.Var("v", I64, num(0)), loop("serial", "k", N, loop("serial", "m", ref("v"), form.Barrier()), loop("thread", "i", N, form.Assign("v", ref("i"))))),
     "differs between threads"),
    (block(form.Alloc("s", F32, num(4)), loop("thread", "i", N, store("s", num(0), ONE))), "scratch s of the uniform"),
    (block(form.Var("v", F32, ONE), form.Combine("argmax", ("v",))), "does not combine 1"),
    (block(form.Combine("sum", ("v",))), "no Var in sight"),
    (block(COPY, threads=2048), "2048 threads")])
def test_rules_are_checked(p: form.Program, message: str) -> None:
    with pytest.raises(InternalError, match=message):
        check_program(p)


def test_a_kernel_of_a_cpu_has_no_threads_of_a_gpu() -> None:
    kernel = form.Kernel("k", (X, Y), ("N",), (), (loop("grid", "i", N),))
    with pytest.raises(InternalError, match="a loop of kind grid"):
        check_program(form.Program("p", (kernel,), (X,), (Y,), (), ("N",), (), ()))
