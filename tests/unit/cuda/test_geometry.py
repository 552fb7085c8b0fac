"""Launches for given sizes: turns, width of indices, scratch."""
from __future__ import annotations

from typing import Any

import pytest

from pipelink_ir.backends.cuda.geometry import MAX_THREADS_IN_GRID, geometry
from pipelink_ir.backends.loops.form import Alloc, Choose, Const, Convert, For, If, Kernel, Let, Load, Ref, Store
from pipelink_ir.ir.dtypes import F32, F64, I32, I64, U8
from tests.unit.cuda.forms import ONE, ZERO, I, N, buffer, code, f32, grid, i64, kernel, load, op

M = Ref("M", I64)
NEAR = (1 << 31) - 1 - MAX_THREADS_IN_GRID


def launch(k: Kernel, **symbols: int) -> Any:
    return geometry(code(k), {"N": 1, **symbols})


def copies(index: Any = I, hi: Any = N) -> Kernel:
    return kernel(grid(Store("y", I, load("x", index=index), F32), hi=hi), symbols=("N", "M"))


@pytest.mark.parametrize(("n", "turns"), [(0, 0), (1, 1), (1000, 1000)])
def test_turns(n: int, turns: int) -> None:
    assert launch(copies(), N=n, M=1).turns == turns


def test_turns_in_steps_and_of_blocks() -> None:
    loop = For("i", ONE, N, i64(4), (), "block")
    assert [launch(kernel(loop), N=n).turns for n in (0, 1, 2, 5, 6, 100)] == [0, 0, 1, 1, 2, 25]


def test_turns_of_locals() -> None:
    k = kernel((Let("n", Choose(op(">", N, i64(3)), op("floordiv", N, i64(2)), ZERO, I64)), grid(Store("y", I, f32(0.0), F32), hi=Ref("n", I64))))
    assert [launch(k, N=n).turns for n in (3, 4, 9)] == [0, 2, 4]


def test_turns_that_data_tell() -> None:
    k = kernel((Let("n", Convert(load("x", I32, ZERO), I64, I64)), grid(Store("y", I, f32(0.0), F32), hi=Ref("n", I64))), buffer("x", I32), buffer("y", kind="result"))
    assert launch(k, N=7).turns is None


def test_one_thread() -> None:
    assert launch(kernel((Store("y", ZERO, f32(1.0), F32),)), N=0).turns == 1


@pytest.mark.parametrize(("n", "wide"), [(1000, False), (NEAR, False), (NEAR + 1, True), (1 << 31, True), (1 << 40, True)])
def test_the_end_of_the_grid_s_loop(n: int, wide: bool) -> None:
    assert launch(copies(), N=n, M=1).wide is wide


@pytest.mark.parametrize(("n", "m", "wide"), [(65536, 32767, False), (65537, 32768, True), (46342, 46342, True), (46340, 46340, False), (0, 1 << 31, True)])
def test_products(n: int, m: int, wide: bool) -> None:
    """One column of [65537, 32768] needs 64 bits although its rows are few."""
    assert launch(copies(op("*", I, M), N), N=n, M=m).wide is wide


def test_intermediate_values_count() -> None:
    """A sum that is large on the way to a small one."""
    x = op("-", op("*", op("+", I, M), i64(1000)), op("*", M, i64(1000)))
    assert not launch(copies(x), N=100, M=1000).wide
    assert launch(copies(x), N=100, M=3_000_000).wide


def test_what_the_index_itself_is_stored_as() -> None:
    """`i64(i) * 100000` of the user's is an index to us: its width follows its values."""
    k = kernel(grid(Store("y", I, op("*", I, i64(100000)), I64)), buffer("y", I64, "result"))
    assert not launch(k, N=20000).wide
    assert launch(k, N=30000).wide


def test_branches_not_taken_do_not_count() -> None:
    big = Store("y", op("*", N, i64(1 << 20)), f32(0.0), F32)
    k = kernel(grid(If(op("<", N, i64(4)), (big,), (Store("y", I, f32(0.0), F32),))))
    assert not launch(k, N=5000).wide
    taken = kernel(grid(If(op("<", I, i64(4)), (big,))))
    assert launch(taken, N=5000).wide


def test_loops_that_do_not_run_do_not_count() -> None:
    inner = For("j", ZERO, op("-", N, i64(5000)), ONE, (Store("y", op("*", N, i64(1 << 20)), f32(0.0), F32),))
    assert not launch(kernel(grid(inner)), N=5000).wide
    assert launch(kernel(grid(inner)), N=5001).wide


def test_borders_hold_what_data_say() -> None:
    """A clamped index of data is an index; one that is only checked is 64 bits wide anyway and asks for nothing."""
    data = Convert(load("k", I32), I64, I64)
    clamped = op("min", op("max", data, ZERO), op("-", N, ONE))
    buffers = (buffer("k", I32), buffer("x"), buffer("y", kind="result"))
    k = kernel(grid(Store("y", I, load("x", index=op("*", clamped, M)), F32)), *buffers, symbols=("N", "M"))
    assert not launch(k, N=1000, M=1000).wide
    assert launch(k, N=1 << 20, M=1 << 12).wide
    free = kernel(grid(Store("y", I, load("x", index=op("*", data, M)), F32)), *buffers, symbols=("N", "M"))
    assert not launch(free, N=1000, M=1 << 20).wide


def test_symbols_themselves() -> None:
    assert launch(copies(), N=1, M=1 << 31).wide


def test_scratch() -> None:
    k = kernel(grid(Alloc("a", F32, op("*", N, i64(3))), Alloc("b", U8, N), Alloc("c", F64, i64(5)), Store("a", ZERO, f32(0.0), F32)))
    assert launch(k, N=7).thread_bytes == 96 + 16   # each piece in multiples of 16; `c` is small and stays with the thread
    assert launch(k, N=0).thread_bytes == 0
    block = For("i", ZERO, N, ONE, (Alloc("s", F32, i64(30000), shared=True), Alloc("t", F32, i64(8), shared=True)), "block")
    shared = launch(kernel(block), N=7)
    assert (shared.shared_bytes, shared.thread_bytes) == (120000, 0)
    assert code(kernel(block)).static_shared == 32


def test_a_kernel_of_ours() -> None:
    """The bound of a stencil with a border is exact: the last element that fits is no reason for 64 bits."""
    row = op("min", op("max", op("+", I, i64(1)), ZERO), op("-", N, ONE))
    k = kernel(grid(Store("y", I, load("x", index=op("+", op("*", row, M), op("-", M, ONE))), F32)), symbols=("N", "M"))
    assert not launch(k, N=1 << 10, M=(1 << 21) - 1).wide
    assert launch(k, N=1 << 10, M=(1 << 21) + 1).wide


def test_loads_count_through_their_index() -> None:
    k = kernel(grid(Store("y", Load("k", op("*", I, M), I64, I64), f32(0.0), F32)), buffer("k", I64), buffer("y", kind="result"), symbols=("N", "M"))
    assert launch(k, N=1 << 16, M=1 << 16).wide
    assert not launch(k, N=1 << 10, M=1 << 10).wide


def test_constants() -> None:
    assert launch(kernel(grid(Let("big", Const(1 << 40, I64)), Store("y", op("+", I, Const(1 << 31, I64)), f32(0.0), F32))), N=1).wide
