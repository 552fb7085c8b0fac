"""Threads: loops are shared without losing or repeating an iteration, from several Python threads at once, after a fork, and at the end of a process."""
from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from pipelink_ir.backends.cpu import jit, pool
from pipelink_ir.backends.cpu.emit import emit_program
from pipelink_ir.backends.loops.form import Buffer, Const, Expr, Fail, For, If, Kernel, Load, Op, Program, Ref, Site, Store
from pipelink_ir.ir.dtypes import BOOL, I64
from pipelink_ir.ir.source import NOWHERE

N, I, ZERO, ONE = Ref("N", I64), Ref("i", I64), Const(0, I64), Const(1, I64)


class Counting:
    """y[i] = y[i] + 1 in a parallel loop; a failure where y[i] is negative."""

    def __init__(self) -> None:
        y: Expr = Load("y", I, I64, I64)
        body = (If(Op("<", (y, ZERO), BOOL), (Fail(0, (I,)),)), Store("y", I, Op("+", (y, ONE), I64), I64))
        kernel = Kernel("count", (Buffer("y", "result", I64, (N,)),), ("N",), (), (For("i", ZERO, N, ONE, body, "parallel"),))
        plain = Kernel("plain", kernel.buffers, ("N",), (), (For("i", ZERO, N, ONE, body),))
        program = Program("counting", (kernel, plain), (), (), (), ("N",), (), (Site(NOWHERE, "{0}"),))
        code = emit_program(program, jit.host().emitter, *jit.layout(jit.host()))
        self.library = jit.Library([jit.compile_object(code.text, jit.host())], code.symbols)
        self.parallel, self.plain = code.kernels

    def __call__(self, y: np.ndarray[Any, Any], times: int = 1, least: int = 1, shared: bool = True) -> tuple[int, list[int]]:
        """Runs both kernels in turn, `times` in all; (what the driver answers, the status block)."""
        status = (ctypes.c_int64 * 6)()
        frame = (ctypes.c_int64 * 3)(y.ctypes.data, y.size, ctypes.addressof(status))
        words: list[int] = []
        for n in range(times):
            k = self.plain if n % 4 == 3 else self.parallel
            words += [self.library.address(k.symbol), self.library.address(k.count) if k.count else 0, ctypes.addressof(frame), least, int(shared)]
        steps = (ctypes.c_int64 * len(words))(*words)
        return pool.run_plan(ctypes.addressof(steps), times, ctypes.addressof(status)), list(status)


@pytest.fixture(scope="module")
def counting() -> Counting:
    return Counting()


@pytest.fixture(autouse=True)
def _fresh_pool() -> Iterator[None]:
    yield
    pool.shut_down()


@pytest.mark.parametrize("threads", ["1", "2", "3", "7"])
@pytest.mark.parametrize("size", [0, 1, 2, 3, 7, 8, 9, 63, 64, 1000, 100_003])
def test_every_iteration_runs_once(counting: Counting, monkeypatch: pytest.MonkeyPatch, threads: str, size: int) -> None:
    monkeypatch.setenv("PIPELINK_NUM_THREADS", threads)
    for least in (1, 5, 1 << 40):
        y = np.zeros(size, np.int64)
        assert counting(y, times=9, least=least)[0] == -1
        assert y.tolist() == [9] * size


def test_many_small_jobs_in_a_row(counting: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIPELINK_NUM_THREADS", "3")
    y = np.zeros(16, np.int64)
    assert counting(y, times=20_000)[0] == -1
    assert y.tolist() == [20_000] * 16


def test_several_python_threads_call_at_once(counting: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIPELINK_NUM_THREADS", "2")
    arrays = [np.zeros(1000, np.int64) for _ in range(6)]
    answers: list[int] = []

    def work(y: np.ndarray[Any, Any]) -> None:
        for _ in range(40):
            answers.append(counting(y, times=10)[0])

    threads = [threading.Thread(target=work, args=(y,)) for y in arrays]
    for t in threads:
        t.start()
    for t in threads:
        t.join(timeout=60)
    assert not any(t.is_alive() for t in threads)
    assert answers == [-1] * 240
    assert all(y.tolist() == [400] * 1000 for y in arrays)


def test_the_plan_stops_behind_the_step_that_failed(counting: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIPELINK_NUM_THREADS", "2")
    y = np.zeros(100, np.int64)
    y[17] = -3
    step, status = counting(y, times=5)
    assert step == 0
    assert status[:3] == [1, 0, 17]
    assert y[0] == 1


def test_a_loop_that_is_not_worth_sharing_runs_on_the_caller(counting: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIPELINK_NUM_THREADS", "2")
    y = np.zeros(100, np.int64)
    assert counting(y, times=3, shared=False)[0] == -1
    assert y.tolist() == [3] * 100


def test_the_number_of_threads_may_change(counting: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    y = np.zeros(5000, np.int64)
    for threads in ("1", "4", "2", "1", "3"):
        monkeypatch.setenv("PIPELINK_NUM_THREADS", threads)
        assert counting(y, times=3)[0] == -1
    assert y.tolist() == [15] * 5000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_computes(counting: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIPELINK_NUM_THREADS", "2")
    y = np.zeros(1000, np.int64)
    assert counting(y, times=3)[0] == -1
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        answer = counting(y, times=3)[0] == -1 and y.tolist() == [6] * 1000
        pool.shut_down()
        os.write(writer, b"y" if answer else b"n")
        os._exit(0)
    os.close(writer)
    assert os.read(reader, 1) == b"y"
    os.close(reader)
    assert os.waitpid(child, 0)[1] == 0
    assert counting(y, times=3)[0] == -1
    assert y.tolist() == [6] * 1000


END = """
import os, sys
sys.path.insert(0, sys.argv[1])
os.environ["PIPELINK_NUM_THREADS"] = "3"
from pipelink_ir.backends.cpu import pool
pool.start(3)
if sys.argv[2] == "sleeping":
    import time
    time.sleep(0.1)
print(len([t for t in __import__("threading").enumerate() if t.name.startswith("pipelink")]))
if sys.argv[2] == "raising":
    raise SystemExit(3)
"""


@pytest.mark.parametrize(("how", "status"), [("spinning", 0), ("sleeping", 0), ("raising", 3)])
def test_a_process_with_workers_ends(how: str, status: int) -> None:
    root = os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3))
    done = subprocess.run([sys.executable, "-c", END, root, how], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (status, b"2", b"")


FIRST = """
import sys, threading
sys.path.insert(0, sys.argv[1])
import numpy as np
import pipelink_ir
call = pipelink_ir.compile(
    "op @f(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { compute { %y[i] = %x[i] + 1 } }\\n"
    "pipeline @p(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { %y = @f(%x) }\\n")
together, good = threading.Barrier(8), []
def run(seed):
    x = np.full(1000 + seed, seed, np.float32)
    together.wait()
    for _ in range(20):
        good.append(bool((call(x=x).y == seed + 1).all()))
threads = [threading.Thread(target=run, args=(n,)) for n in range(8)]
for t in threads: t.start()
for t in threads: t.join()
print(len(good), all(good))
"""


def test_the_first_calls_may_come_from_many_threads_at_once() -> None:
    root = os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3))
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", FIRST, root], capture_output=True, timeout=60, check=False, env={**os.environ, "PIPELINK_NUM_THREADS": "4"})
        assert (done.returncode, done.stdout.strip(), done.stderr) == (0, b"160 True", b"")
