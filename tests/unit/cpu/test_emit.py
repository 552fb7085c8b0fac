"""The emitter: statements, names, scratch, failures and parallel loops, run and compared with what the loop form means."""
from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np
import pytest

from pipelink_ir.backends.cpu import jit
from pipelink_ir.backends.cpu.emit import ProgramCode, emit_into, emit_program
from pipelink_ir.backends.cpu.function import sanitise, slots
from pipelink_ir.backends.cpu.irtext import IRModule, float_text
from pipelink_ir.backends.loops.form import (
    Alloc,
    Assign,
    Block,
    Buffer,
    Choose,
    Const,
    Convert,
    Expr,
    Fail,
    For,
    If,
    Kernel,
    Let,
    Load,
    Op,
    Program,
    Ref,
    Site,
    Store,
    Var,
)
from pipelink_ir.ir.dtypes import BOOL, F16, F32, F64, I32, I64, U8, DType
from pipelink_ir.ir.source import NOWHERE

N, ZERO, ONE = Ref("N", I64), Const(0, I64), Const(1, I64)
I = Ref("i", I64)


def i64(value: int) -> Const:
    return Const(value, I64)


def op(fn: str, *args: Expr, dtype: DType | None = None) -> Op:
    return Op(fn, args, dtype or args[0].dtype)


def program(*kernels: Kernel, name: str = "test") -> Program:
    return Program(name, kernels, (), (), (), ("N",), (), (Site(NOWHERE, "bad {0}"),))


def kernel(body: Block, buffers: tuple[Buffer, ...], scalars: tuple[tuple[str, DType], ...] = (), symbols: tuple[str, ...] = ("N",),
           fast: bool = False) -> Kernel:
    return Kernel("kernel", buffers, symbols, scalars, body, fast_math=fast)


def code_of(p: Program) -> ProgramCode:
    return emit_program(p, jit.host().emitter, *jit.layout(jit.host()))


class Runner:
    """Runs the kernels of a program on arrays; `status` is the status block after the last call."""

    def __init__(self, p: Program) -> None:
        self.code = code_of(p)
        self.library = jit.Library([jit.compile_object(self.code.text, jit.host())], self.code.symbols, self.code.externals)
        self.status = np.zeros(6, np.int64)

    def __call__(self, *values: Any, n: int | None = None, part: tuple[int, int] | None = None, index: int = 0) -> int:
        """`values`: arrays, then scalars as the words of a frame. Returns how many iterations the parallel loop has."""
        code = self.code.kernels[index]
        arrays = [v for v in values if isinstance(v, np.ndarray)]
        size = arrays[0].size if n is None and arrays else n or 0
        words = [*(a.ctypes.data for a in arrays), size, *(v for v in values if not isinstance(v, np.ndarray)), self.status.ctypes.data]
        frame = (ctypes.c_int64 * len(words))(*words)
        address = ctypes.addressof(frame)
        count = 1
        if code.count:
            count = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(self.library.address(code.count))(address)
        begin, end = part or (0, count)
        ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(self.library.address(code.symbol))(address, begin, end)
        return int(count)


def loop(body: Block, lo: Expr = ZERO, hi: Expr = N, step: Expr = ONE, kind: str = "serial", var: str = "i") -> For:
    return For(var, lo, hi, step, body, kind)


def buffer(name: str, dtype: DType = F32, kind: str = "result") -> Buffer:
    return Buffer(name, kind, dtype, (N,))


def test_loops_with_steps_and_ranges() -> None:
    mark = Store("y", I, Const(1.0, F32), F32)
    run = Runner(program(*(kernel((loop((mark,), lo, hi, step),), (buffer("y"),)) for lo, hi, step in (
        (ZERO, N, ONE), (i64(2), N, i64(3)), (i64(5), i64(3), ONE), (N, N, ONE), (op("-", N, i64(3)), N, ONE)))))
    for index, want in enumerate((range(10), range(2, 10, 3), range(5, 3), range(10, 10), range(7, 10))):
        y = np.zeros(10, np.float32)
        run(y, index=index)
        assert np.nonzero(y)[0].tolist() == list(want)


@pytest.mark.parametrize(("lo", "hi", "step"), [(0, 10, 1), (3, 10, 2), (3, 10, 7), (3, 10, 8), (9, 3, 1), (4, 4, 1)])
def test_parallel_loops_in_parts(lo: int, hi: int, step: int) -> None:
    body = Store("y", I, op("+", Load("y", I, F32, F32), Const(1.0, F32)), F32)
    run = Runner(program(kernel((Let("from", i64(lo)), loop((body,), Ref("from", I64), i64(hi), i64(step), "parallel")), (buffer("y"),))))
    y = np.zeros(12, np.float32)
    count = run(y, part=(0, 0))
    assert count == len(range(lo, hi, step))
    assert not y.any()
    for begin in range(count):
        run(y, part=(begin, begin + 1))
    assert np.nonzero(y)[0].tolist() == list(range(lo, hi, step))
    assert y.max(initial=0) <= 1


def test_variables_branches_and_early_values() -> None:
    """The number of steps of Collatz' sequence: a variable that a branch changes, in a loop of a loop."""
    v, steps = Ref("v", I64), Ref("steps", I64)
    odd = op("==", op("rest", v, i64(2)), ONE, dtype=BOOL)
    turn = If(op(">", v, ONE, dtype=BOOL), (
        Assign("steps", op("+", steps, ONE)),
        If(odd, (Assign("v", op("+", op("*", v, i64(3)), ONE)),), (Assign("v", op("quot", v, i64(2))),))))
    body = (loop((Var("v", I64, op("+", I, ONE)), Var("steps", I64, ZERO), loop((turn,), hi=i64(150), var="t"), Store("y", I, steps, I64))),)
    y = np.zeros(30, np.int64)
    Runner(program(kernel(body, (buffer("y", I64),))))(y)

    def collatz(n: int) -> int:
        return 0 if n == 1 else 1 + collatz(3 * n + 1 if n % 2 else n // 2)

    assert y.tolist() == [collatz(n) for n in range(1, 31)]


def test_if_with_and_without_the_other_block() -> None:
    body = (loop((If(op("<", I, i64(3), dtype=BOOL), (Store("y", I, Const(1, I32), I32),), (Store("y", I, Const(2, I32), I32),)),
                  If(op("==", I, i64(4), dtype=BOOL), (Store("y", I, Const(3, I32), I32),)),
                  If(op("==", I, i64(5), dtype=BOOL), (), (If(op("==", I, i64(6), dtype=BOOL), (Store("y", I, Const(4, I32), I32),)),)))),)
    y = np.zeros(8, np.int32)
    Runner(program(kernel(body, (buffer("y", I32),))))(y)
    assert y.tolist() == [1, 1, 1, 2, 3, 2, 4, 2]


def test_choose_takes_one_of_two_values() -> None:
    value = Choose(op(">", Load("x", I, F32, F32), Const(0.0, F32), dtype=BOOL), Load("x", I, F32, F32), Const(math.nan, F32), F32)
    x, y = np.asarray([1, -1, 2, -2], np.float32), np.zeros(4, np.float32)
    Runner(program(kernel((loop((Store("y", I, value, F32),)),), (buffer("x", kind="operand"), buffer("y")))))(x, y)
    np.testing.assert_array_equal(y, [1, np.nan, 2, np.nan])


def test_scalars_of_every_type() -> None:
    """One after the other in a frame, each in eight bytes."""
    scalars = (("b", BOOL), ("k", I32), ("m", I64), ("f", F32), ("d", F64))
    body = tuple(Store("y", i64(n), Convert(Ref(name, dtype), F64, F64), F64) for n, (name, dtype) in enumerate(scalars))
    y = np.zeros(5)
    half = int(np.asarray(0.5, np.float32).view(np.uint32))
    third = int(np.asarray(1 / 3).view(np.int64))
    Runner(program(kernel(body, (buffer("y", F64),), scalars)))(y, 1, 0xFFFFFFFF, -(2**40), half, third)
    assert y.tolist() == [1, -1, -(2.0**40), 0.5, 1 / 3]


def test_buffers_of_bools_halves_and_bytes() -> None:
    body = (loop((Let("v", Load("u", I, U8, I32)),
                  Store("b", I, op(">", Ref("v", I32), Const(200, I32), dtype=BOOL), BOOL),
                  Store("h", I, Convert(Ref("v", I32), F32, F32), F16),
                  Store("w", I, Choose(Load("b", I, BOOL, BOOL), Const(300, I32), Const(-1, I32), I32), U8))),)
    u, b, h, w = np.asarray([0, 199, 201, 255], np.uint8), np.zeros(4, bool), np.zeros(4, np.float16), np.zeros(4, np.uint8)
    Runner(program(kernel(body, (buffer("u", U8, "operand"), buffer("b", BOOL), buffer("h", F16), buffer("w", U8)))))(u, b, h, w)
    assert b.tolist() == [False, False, True, True]
    assert h.tolist() == [0, 199, 201, 255]
    assert w.tolist() == [255, 255, 44, 44]


# ------------------------------------------------------------------------------------------------------------------------- scratch


@pytest.mark.parametrize("size", [i64(64), i64(1 << 20), N, op("*", N, i64(1000)), Load("n", ZERO, I64, I64)], ids=["stack", "heap", "symbol", "sized", "data"])
@pytest.mark.parametrize("kind", ["serial", "parallel"])
def test_scratch(size: Expr, kind: str) -> None:
    """Each row reverses itself through scratch."""
    at = op("+", op("*", I, i64(4)), Ref("k", I64))
    back = op("-", i64(3), Ref("k", I64))
    row = (Alloc("t", F32, size),
           loop((Store("t", Ref("k", I64), Load("y", at, F32, F32), F32),), hi=i64(4), var="k"),
           loop((Let("at", op("+", op("*", I, i64(4)), Ref("j", I64))), Store("y", Ref("at", I64), Load("t", op("-", i64(3), Ref("j", I64)), F32, F32), F32)),
                hi=i64(4), var="j"))
    run = Runner(program(kernel((loop(row, hi=op("quot", N, i64(4)), kind=kind),), (buffer("y"), Buffer("n", "operand", I64, (ONE,))))))
    y = np.arange(40, dtype=np.float32)
    for _ in range(3):
        run(y, np.asarray([40], np.int64), n=40)
    assert back.dtype is I64
    np.testing.assert_array_equal(y, np.arange(40).reshape(10, 4)[:, ::-1].ravel())


def test_scratch_that_cannot_be_had_is_recorded() -> None:
    body = (loop((Alloc("t", F32, Load("n", ZERO, I64, I64)), Store("t", I, Const(1.0, F32), F32), Store("y", I, Load("t", I, F32, F32), F32))),)
    run = Runner(program(kernel(body, (buffer("y"), Buffer("n", "operand", I64, (ONE,))))))
    run(np.zeros(4, np.float32), np.asarray([1 << 58], np.int64), n=4)
    assert run.status[:2].tolist() == [1, -1]


# ----------------------------------------------------------------------------------------------------------------------- failures


def test_the_first_failure_is_kept() -> None:
    body = (loop((If(op("<", Load("x", I, F32, F32), Const(0.0, F32), dtype=BOOL), (Fail(0, (I, N, i64(-7))),)), Store("y", I, Const(1.0, F32), F32))),)
    run = Runner(program(kernel(body, (buffer("x", kind="operand"), buffer("y")))))
    y = np.zeros(5, np.float32)
    run(np.asarray([1, 1, -1, -1, 1], np.float32), y)
    assert run.status.tolist() == [1, 0, 2, 5, -7, 0]
    assert y.tolist() == [1] * 5


def test_no_failure_leaves_the_status_alone() -> None:
    body = (loop((If(op("<", Load("x", I, F32, F32), Const(0.0, F32), dtype=BOOL), (Fail(0, ()),)),)),)
    run = Runner(program(kernel(body, (buffer("x", kind="operand"),))))
    run(np.ones(5, np.float32))
    assert not run.status.any()


# ------------------------------------------------------------------------------------------------------- names, constants, texts


def test_symbols_are_injective() -> None:
    names = ["a.b", "a_b", "a__b", "a$b", "a b", "ä", "a$e4$", "gelu.1", "gelu.10", "int", "exp", "main", "NULL", "a\"b", "a\\b", "%a", ""]
    assert len({sanitise(n) for n in names}) == len(names)
    assert all(c.isascii() and (c.isalnum() or c in "._$") for n in names for c in sanitise(n))


@pytest.mark.parametrize("name", ["int", "float4", "main", "malloc", "0", "a b", "status", "frame", "begin", "v1", "N.at", "ü", "x\"y", "b0.0", "entry"])
def test_any_name_may_be_used(name: str) -> None:
    var, size, seventh = Ref(name, I64), Ref(name + "2", I64), Ref(name + "7", I64)
    scaled = (Let(name + "6", op("*", Load(name, var, F32, F32), Ref(name + "4", F32))), Store(name + "5", var, Ref(name + "6", F32), F32))
    k = Kernel(name, (Buffer(name, "operand", F32, (size,)), Buffer(name + "3", "result", F32, (size,))), (name + "2",), ((name + "4", F32),), (
        Alloc(name + "5", F32, size),
        For(name, ZERO, size, ONE, scaled),
        For(name + "7", ZERO, size, ONE, (Store(name + "3", seventh, Load(name + "5", seventh, F32, F32), F32),))))
    run = Runner(program(k, name=name))
    x, y = np.arange(5, dtype=np.float32), np.zeros(5, np.float32)
    run(x, y, int(np.asarray(3, np.float32).view(np.uint32)), n=5)
    np.testing.assert_array_equal(y, x * 3)


@pytest.mark.parametrize(("dtype", "values"), [
    (F32, [0.0, -0.0, math.inf, -math.inf, math.nan, 1e-45, -1e-45, 3.4028234663852886e38, 0.10000000149011612, 1.17549435e-38, -0.155728638]),
    (F64, [0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324, 1.7976931348623157e308, 0.1, 1 / 3, -1e-310]),
    (I32, [0, -1, 2**31 - 1, -(2**31)]), (I64, [0, -1, 2**63 - 1, -(2**63)]), (BOOL, [True, False])], ids=str)
def test_constants_keep_their_bits(dtype: DType, values: list[Any]) -> None:
    y = np.zeros(len(values), dtype.numpy())
    Runner(program(kernel(tuple(Store("y", i64(n), Const(v, dtype), dtype) for n, v in enumerate(values)), (buffer("y", dtype),))))(y)
    want = np.asarray(values, dtype.numpy())
    number = ~np.isnan(want)
    assert y[number].tobytes() == want[number].tobytes()
    assert np.isnan(y[~number]).all()


def test_random_float_constants_have_llvms_form() -> None:
    rng = np.random.default_rng(2)
    values = rng.integers(0, 2**64, 10_000, dtype=np.uint64).view(np.float64)
    for v in values.tolist():
        if v == v:
            assert int(float_text(v, "double"), 16) == int(np.asarray(v).view(np.uint64))
    for f in rng.integers(0, 2**32, 10_000, dtype=np.uint32).view(np.float32):
        if f == f:
            assert np.uint64(int(float_text(float(f), "float"), 16)).view(np.float64).astype(np.float32) == f


def test_floats_are_not_reassociated_unless_the_form_says_so() -> None:
    add = Op("+", (Ref("s", F32), Load("x", I, F32, F32)), F32, reorder=True)
    plain = Op("+", (Ref("s", F32), Load("x", I, F32, F32)), F32)
    texts = [code_of(program(kernel((Var("s", F32, Const(0.0, F32)), loop((Assign("s", e),)), Store("y", ZERO, Ref("s", F32), F32)),
                                    (buffer("x", kind="operand"), buffer("y")), fast=fast))).text for e, fast in ((add, False), (plain, False), (plain, True))]
    assert ["fadd reassoc nsz float" in t for t in texts] == [True, False, False]
    assert "fadd reassoc contract arcp afn float" in texts[2]
    assert not any(flag in t for t in texts for flag in ("nnan", "ninf", " fast "))


def test_a_sum_that_may_be_reordered_is_right() -> None:
    add = Op("+", (Ref("s", F64), Load("x", I, F64, F64)), F64, reorder=True)
    body = (Var("s", F64, Const(0.0, F64)), loop((Assign("s", add),)), Store("y", ZERO, Ref("s", F64), F64))
    x, y = np.arange(1001, dtype=np.float64), np.zeros(1)
    Runner(program(kernel(body, (buffer("x", F64, "operand"), buffer("y", F64)))))(x, y)
    assert y[0] == 500500


def test_many_programs_in_one_module_parse() -> None:
    module = IRModule(jit.host().emitter)
    bodies = [(loop((Store("y", I, op(fn, Load("x", I, F32, F32)), F32),)),) for fn in ("exp", "tanh", "erf")]
    for n, body in enumerate(bodies):
        emit_into(module, program(kernel(body, (buffer("x", kind="operand"), buffer("y"))), name=f"op.{n}"))
    parsed = jit.parse(module.text(*jit.layout(jit.host())))
    assert {"k0.op.0", "k0.op.1", "k0.op.2"} <= {f.name for f in parsed.functions}


def test_text_is_the_same_every_time() -> None:
    p = program(kernel((loop((Store("y", I, op("exp", Load("x", I, F32, F32)), F32),), kind="parallel"),), (buffer("x", kind="operand"), buffer("y"))))
    assert code_of(p).text == code_of(p).text


def test_a_frame_has_a_slot_for_each_thing() -> None:
    k = kernel((), (buffer("x"), buffer("y")), (("a", F32),), ("N", "M"))
    assert slots(k) == 6


def test_six_hundred_operands() -> None:
    """A sum of many tensors: alias metadata must not grow with the square of their number."""
    buffers = tuple(buffer(f"x{n}", kind="operand") for n in range(600)) + (buffer("y"),)
    stmts: list[Any] = [Var("s", F32, Const(0.0, F32))]
    stmts += [Assign("s", op("+", Ref("s", F32), Load(f"x{n}", I, F32, F32))) for n in range(600)]
    p = program(kernel((loop((*stmts, Store("y", I, Ref("s", F32), F32))),), buffers))
    assert len(code_of(p).text) < 400_000
    xs = [np.full(3, n, np.float32) for n in range(600)]
    y = np.zeros(3, np.float32)
    Runner(p)(*xs, y, n=3)
    assert y.tolist() == [179700.0] * 3
