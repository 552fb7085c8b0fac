"""What the threads of a block do together, on a GPU: combining by shuffles and shared memory, in blocks of every size."""
from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

from pipelink_ir.backends.cuda.compile import compile_units
from pipelink_ir.backends.cuda.emit import emit_program
from pipelink_ir.backends.loops.form import Alloc, Assign, Barrier, Combine, Const, Expr, For, Load, Program, Ref, Stmt, Store, Var
from pipelink_ir.ir.dtypes import BOOL, F32, F64, I32, I64, DType
from pipelink_ir.ir.targets import Arch
from tests.unit.cuda.forms import ONE, ZERO, N, buffer, i64, kernel, op, program

pytestmark = pytest.mark.gpu
T, B = Ref("t", I64), Ref("b", I64)
TYPES = {"bool": BOOL, "i32": I32, "i64": I64, "f32": F32, "f64": F64}
CASES = [(fn, t) for fn in ("sum", "prod", "max", "min", "argmax", "argmin") for t in ("i32", "i64", "f32", "f64")] + [("any", "bool"), ("all", "bool")]


def _one(fn: str, dtype: DType) -> Program:
    """y[b] = fn of x[b, :], a thread an element; the threads beyond N hold what changes nothing."""
    arg = fn.startswith("arg")
    first: dict[str, Any] = {"sum": 0, "prod": 1, "any": False, "all": True, "argmax": 0, "argmin": 0,
                             "max": -np.inf if dtype.is_float else dtype.lowest, "min": np.inf if dtype.is_float else dtype.highest}
    start: Expr = Const(float(first[fn]) if dtype.is_float else first[fn], dtype)
    x = Load("x", op("+", op("*", B, N), T), dtype, dtype)
    inner: list[Stmt] = [Assign("v", x)]
    body: list[Stmt] = [Var("v", dtype, start)]
    if arg:
        body.append(Var("at", I32, Const(-1, I32)))
        inner.append(Assign("at", Load("number", T, I32, I32)))
    body += [For("t", ZERO, N, ONE, tuple(inner), "thread"), Combine(fn, ("v", "at") if arg else ("v",)),
             Store("y", B, Ref("at", I32) if arg else Ref("v", dtype), I32 if arg else dtype)]
    buffers = [buffer("x", dtype), buffer("number", I32), buffer("y", I32 if arg else dtype, "result")]
    return program(kernel((For("b", ZERO, Ref("ROWS", I64), ONE, tuple(body), "block"),), *buffers, symbols=("N", "ROWS"), name=f"{fn}.{dtype}"))


@pytest.fixture(scope="module")
def kernels() -> dict[tuple[str, str], Any]:
    cupy = importlib.import_module("cupy")
    units = [emit_program(_one(fn, TYPES[t]), threads=1024) for fn, t in CASES] + [emit_program(_turns(), threads=1024)]
    out: dict[tuple[str, str], Any] = {}
    for key, unit, binary in zip([*CASES, ("turns", "")], units, compile_units(units, Arch("cuda", int(cupy.cuda.Device().compute_capability))), strict=True):
        module = cupy.cuda.function.Module()
        module.load(binary.image)
        out[key] = module.get_function(unit.kernels[0].symbol)
    return out


def _data(t: str, rows: int, n: int) -> Any:
    chance = np.random.default_rng(n)
    if t == "bool":
        return chance.random((rows, n)) < np.array([0, 1, 0.01, 0.99])[np.arange(rows) % 4, None]
    if t in ("i32", "i64"):
        return chance.integers(-5, 6, (rows, n)).astype(np.dtype(f"int{t[1:]}"))
    x = chance.integers(-5, 6, (rows, n)).astype(np.dtype(f"float{t[1:]}"))
    x[1, n // 2] = np.nan
    x[2, n - 1] = np.inf
    return x


@pytest.mark.parametrize("threads", [32, 64, 96, 256, 1024])
@pytest.mark.parametrize(("fn", "t"), CASES)
def test_combining(kernels: dict[tuple[str, str], Any], fn: str, t: str, threads: int) -> None:
    cupy = importlib.import_module("cupy")
    for n in (1, 31, 32, 33, threads - 1, threads):
        if not 0 < n <= threads:
            continue
        x = _data(t, 6, n)
        result = np.int32 if fn.startswith("arg") else x.dtype
        y = cupy.empty(6, result)
        kernels[fn, t]((4,), (threads,), (cupy.asarray(x), cupy.arange(n, dtype=np.int32), y, np.int32(n), np.int32(6)))
        with np.errstate(all="ignore"):
            want = np.asarray(getattr(np, fn)(x, axis=1)).astype(result)
        np.testing.assert_array_equal(cupy.asnumpy(y), want)


def _turns() -> Program:
    """Rows reversed through shared memory, several rows a block: the next turn may not overwrite what the last one still reads."""
    row = op("+", op("*", B, N), T)
    body = (Alloc("row", F32, i64(1024), True), For("t", ZERO, N, ONE, (Store("row", T, Load("x", row, F32, F32), F32),), "thread"), Barrier(),
            For("u", ZERO, N, ONE, (Store("y", op("+", op("*", B, N), Ref("u", I64)), Load("row", op("-", op("-", N, Ref("u", I64)), ONE), F32, F32), F32),), "thread"))
    return program(kernel((For("b", ZERO, Ref("ROWS", I64), ONE, body, "block"),), buffer("x"), buffer("y", kind="result"), symbols=("N", "ROWS"), name="turns"))


@pytest.mark.parametrize("threads", [32, 256, 1024])
def test_turns_share_memory(kernels: dict[tuple[str, str], Any], threads: int) -> None:
    cupy = importlib.import_module("cupy")
    x = np.random.default_rng(0).random((200, 777)).astype(np.float32)
    y = cupy.zeros_like(cupy.asarray(x))
    kernels["turns", ""]((3,), (threads,), (cupy.asarray(x), y, np.int32(777), np.int32(200)))
    np.testing.assert_array_equal(cupy.asnumpy(y), x[:, ::-1])
