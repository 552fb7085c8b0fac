"""Calls of a compiled pipeline for a GPU: which arrays it takes, on which streams it runs, who waits for whom, what is told when something is wrong."""
from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

import pipelink_ir as pl
from pipelink_ir.backends.cuda.driver import FORKED, DeviceError
from pipelink_ir.ir.dtypes import DTYPES
from tests.unit.device.emulated import EmulatingDriver

TWICE = """
op @twice(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { schedule { target = cuda } compute { %y[n] = 2 * %x[n] } }
op @sum(%x: tensor<Nxf32>, %z: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { compute { %y[n] = %x[n] + %z[n] } }
pipeline @p(%x: tensor<Nxf32>, %z: tensor<Nxf32>) -> (%y: tensor<Nxf32>) {
  %a = @twice(%x)
  %y = @sum(%a, %z)
}
"""

GATHER = """
op @gather(%x: tensor<Nxf32>, %i: tensor<Mxi32>) -> (%y: tensor<Mxf32>) { compute { %y[m] = %x[%i[m]] } }
op @more(%x: tensor<Mxf32>) -> (%y: tensor<Mxf32>) { schedule { target = cuda } compute { %y[m] = %x[m] + 1 } }
pipeline @p(%x: tensor<Nxf32>, %i: tensor<Mxi32>) -> (%y: tensor<Mxf32>) {
  %a = @gather(%x, %i)
  %y = @more(%a)
}
"""

X, Z = np.arange(5, dtype=np.float32), np.full(5, 10, np.float32)
WANT = 2 * X + Z


def waits(device: EmulatingDriver) -> int:
    return len(device.waited)


def test_numpy_in_numpy_out(device: EmulatingDriver) -> None:
    p = pl.compile(TWICE, target="cuda:1")
    for _ in range(3):
        out = p(x=X, z=Z).y
        assert type(out) is np.ndarray
        np.testing.assert_array_equal(out, WANT)
    assert [e[0] for e in device.log if e[0] in ("launch", "replay")] == ["launch"] * 2 + ["replay", "launch", "launch"] * 2


def test_results_belong_to_the_caller(device: EmulatingDriver) -> None:
    p = pl.compile(TWICE, target="cuda")
    kept = [p(x=X + k, z=Z).y for k in range(4)]
    for k, y in enumerate(kept):
        np.testing.assert_array_equal(y, 2 * (X + k) + Z)


def test_arrays_on_the_device_stay_there(device: EmulatingDriver, cupy: Any) -> None:
    device.callers = device.handle()
    p = pl.compile(TWICE, target="cuda")
    x, z = cupy.ndarray(device, X), cupy.ndarray(device, Z)
    for _ in range(3):
        waited = waits(device)
        y = p(x=x, z=z).y
        assert waits(device) == waited
        assert not np.array_equal(device.look(y), WANT)  # nobody has waited
        np.testing.assert_array_equal(device.to_host(y), WANT)
        assert y.stream == device.callers
    assert not any(e[0] == "copy" for e in device.log)


def test_a_run_comes_after_what_the_caller_did_on_its_stream_and_before_what_it_does_next(device: EmulatingDriver, cupy: Any) -> None:
    p = pl.compile(TWICE, target="cuda")
    for _ in range(4):
        device.callers = device.handle()  # another stream each time: the arena is the same
        x, z = cupy.ndarray(device, X), cupy.ndarray(device, Z)
        y = p(x=x, z=z).y
        device.touch(x.data.ptr, 20, True, device.callers, "the caller")
        device.touch(y.address, 20, False, device.callers, "the caller")
    assert device.live < 4096


def test_host_and_device_arrays_together(device: EmulatingDriver, cupy: Any) -> None:
    p = pl.compile(TWICE, target="cuda")
    for k in range(3):
        y = p(x=X + k, z=cupy.ndarray(device, Z)).y
        np.testing.assert_array_equal(device.to_host(y), 2 * (X + k) + Z)


def test_pinned_memory_is_not_overwritten_while_it_is_read(device: EmulatingDriver, cupy: Any) -> None:
    p = pl.compile(TWICE, target="cuda")
    z = cupy.ndarray(device, Z)
    outs = [p(x=X + k, z=z).y for k in range(3)]
    device.flush()
    for k, y in enumerate(outs):
        np.testing.assert_array_equal(device.look(y), 2 * (X + k) + Z)


class Interface:
    """The CUDA array interface."""

    def __init__(self, device: EmulatingDriver, values: Any, stream: int | None) -> None:
        self._memory = device.given(values, stream or device.callers)
        self.__cuda_array_interface__ = {"shape": values.shape, "typestr": values.dtype.str, "data": (self._memory.address, False), "version": 3,
                                         "strides": None, "stream": stream}


def test_the_array_interface_names_its_stream(device: EmulatingDriver) -> None:
    p = pl.compile(TWICE, target="cuda")
    device.callers = device.handle()
    one, two = device.handle(), device.handle()
    y = p(x=Interface(device, X, one), z=Interface(device, Z, two)).y
    np.testing.assert_array_equal(device.to_host(y), WANT)
    with pytest.raises(pl.ExecutionError, match="stream 0"):
        p(x=Interface(device, X, one), z=Interface(device, Z, 0))


def test_another_device_is_refused(device: EmulatingDriver, cupy: Any) -> None:
    p = pl.compile(TWICE, target="cuda:0")
    with pytest.raises(pl.ContractViolationError, match="on cuda:1"):
        p(x=cupy.ndarray(device, X, device=1), z=Z)


def test_alignment_is_asked_of_arrays_in_place_alone(device: EmulatingDriver, cupy: Any) -> None:
    program = TWICE.replace("{ schedule", "{ memory { align = 64 } schedule")
    p = pl.compile(program, target="cuda")
    z = cupy.ndarray(device, Z)
    for _ in range(2):
        p(x=cupy.ndarray(device, X), z=z)
        with pytest.raises(pl.ContractViolationError, match="multiple of 4 bytes") as caught:
            p(x=cupy.ndarray(device, X, offset=4), z=z)
        assert caught.value.field == "align"
    np.testing.assert_array_equal(p(x=np.arange(6, dtype=np.float32)[1:], z=Z).y, 2 * np.arange(1, 6, dtype=np.float32) + Z)


def test_nothing_is_allocated_after_the_first_call_of_a_shape(device: EmulatingDriver) -> None:
    p = pl.compile(TWICE, target="cuda")
    sizes = (5, 1000, 17)
    for n in sizes:
        p(x=np.ones(n, np.float32), z=np.ones(n, np.float32))
    allocations, pinned = device.allocations, len(device.pins)
    for _ in range(5):
        for n in sizes:
            np.testing.assert_array_equal(p(x=np.ones(n, np.float32), z=np.ones(n, np.float32)).y, 3)
    assert (device.allocations, len(device.pins)) == (allocations, pinned)


def test_an_index_outside_is_told_when_results_are_handed_over(device: EmulatingDriver, cupy: Any) -> None:
    p = pl.compile(GATHER, target="cuda")
    good, bad = np.array([0, 4, 2], np.int32), np.array([0, 5, 2], np.int32)
    for _ in range(3):
        np.testing.assert_array_equal(p(x=X, i=good).y, X[good] + 1)
        with pytest.raises(pl.ExecutionError, match="index 5") as caught:
            p(x=X, i=bad)
        assert caught.value.diagnostics[0].code == "PL6101"
        with pytest.raises(pl.ExecutionError, match="index 5"):
            p(x=cupy.ndarray(device, X), i=cupy.ndarray(device, bad))


def test_asynchronous(device: EmulatingDriver, cupy: Any) -> None:
    p = pl.compile(GATHER, target="cuda")
    good, bad = np.array([0, 4, 2], np.int32), np.array([0, 5, 2], np.int32)
    pending = p(x=X, i=good, asynchronous=True)
    assert not pending.done()
    np.testing.assert_array_equal(pending.wait().y, X[good] + 1)
    first, second = p(x=X, i=bad, asynchronous=True), p(x=X, i=good, asynchronous=True)
    np.testing.assert_array_equal(second.wait().y, X[good] + 1)
    with pytest.raises(pl.ExecutionError, match="index 5"):
        first.wait()
    del pending, first, second
    p(x=X, i=good, asynchronous=True)  # nobody waits
    gc.collect()
    np.testing.assert_array_equal(p(x=X, i=good).y, X[good] + 1)
    with pytest.raises(pl.UsageError, match="asynchronous"):
        pl.compile(GATHER, target="cpu")(x=X, i=good, asynchronous=True)


def test_out_of_memory_and_again(device: EmulatingDriver) -> None:
    p = pl.compile(TWICE, target="cuda")
    device.room = 4096
    big = np.ones(4096, np.float32)
    for _ in range(2):
        with pytest.raises(pl.ExecutionError, match="bytes of memory") as caught:
            p(x=big, z=big)
        assert caught.value.diagnostics[0].code == "PL6201"
        np.testing.assert_array_equal(p(x=X, z=Z).y, WANT)
    device.room = 1 << 30
    np.testing.assert_array_equal(p(x=big, z=big).y, 3)


def test_a_failed_launch_and_again(device: EmulatingDriver) -> None:
    p = pl.compile(TWICE, target="cuda")
    for _ in range(4):  # without a graph, and with one
        device.fail["launch"] = DeviceError("a command", "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES")
        with pytest.raises(pl.ExecutionError, match="OUT_OF_RESOURCES") as caught:
            p(x=X, z=Z)
        assert caught.value.diagnostics[0].code == "PL6202"
        np.testing.assert_array_equal(p(x=X, z=Z).y, WANT)


def test_the_node_of_a_failed_launch_is_named(device: EmulatingDriver) -> None:
    p = pl.compile(TWICE, target="cuda")
    device.fail["launch"] = DeviceError("a command", "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES")
    with pytest.raises(pl.ExecutionError, match="'@twice'"):
        p(x=X, z=Z)


def test_a_device_that_is_lost(device: EmulatingDriver) -> None:
    p = pl.compile(TWICE, target="cuda")
    device.fail["wait"] = DeviceError("running", "CUDA_ERROR_ILLEGAL_ADDRESS", True)
    with pytest.raises(pl.ExecutionError, match="start the process anew") as caught:
        p(x=X, z=Z)
    assert isinstance(pickle.loads(pickle.dumps(caught.value)), pl.ExecutionError)


def test_out(device: EmulatingDriver, cupy: Any) -> None:
    p = pl.compile(TWICE, target="cuda")
    host = np.empty(5, np.float32)
    assert p(x=X, z=Z, out=host).y is host
    np.testing.assert_array_equal(host, WANT)
    host[...] = 0
    p(x=cupy.ndarray(device, X), z=Z, out=host)
    np.testing.assert_array_equal(host, WANT)


def test_threads(device: EmulatingDriver) -> None:
    p = pl.compile(TWICE, target="cuda")
    wrong: list[Any] = []
    lock = threading.Lock()  # the played device is for one thread at a time
    issue, wait = device.issue, device.wait

    def locked(f: Any) -> Any:
        def call(*args: Any) -> Any:
            with lock:
                return f(*args)
        return call

    device.issue, device.wait = locked(issue), locked(wait)  # type: ignore[method-assign]

    def work(k: int) -> None:
        for n in range(20):
            size = 3 + (n + k) % 5
            x = np.full(size, k, np.float32)
            if not np.array_equal(p(x=x, z=x).y, 3 * x):
                wrong.append((k, n))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_everything_is_given_back(device: EmulatingDriver) -> None:
    for _ in range(3):
        p = pl.compile(TWICE, target="cuda")
        for n in (3, 4):
            for _ in range(3):
                p(x=np.ones(n, np.float32), z=np.ones(n, np.float32))
        del p
        gc.collect()
        assert (device.live, len(device.graphs), len(device.events)) == (0, 0, 0)


def test_wrong_index(device: EmulatingDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(pl.UsageError, match="'cuda:0' to 'cuda:1'"):
        pl.compile(TWICE, target="cuda:2")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1")
    with pytest.raises(pl.UsageError, match="CUDA_VISIBLE_DEVICES=3,1"):
        pl.compile(TWICE, target="cuda:2")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_gets_one_clear_message_and_runs_on_the_cpu(device: EmulatingDriver) -> None:
    p = pl.compile(TWICE, target="cuda")
    p(x=X, z=Z)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        said = []
        for action in (lambda: p(x=X, z=Z), lambda: pl.compile(TWICE, target="cuda")):
            try:
                action()
                said.append("nothing")
            except pl.UsageError as error:
                said.append(str(error))
        del p
        gc.collect()
        fine = np.array_equal(pl.compile(TWICE, target="cpu")(x=X, z=Z).y, WANT)
        os.write(write, repr((said[0] == said[1] == FORKED, fine)).encode())
        os._exit(0)
    os.close(write)
    assert os.read(read, 1000) == b"(True, True)"
    os.waitpid(child, 0)


def test_no_driver_no_device_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = pytest.importorskip("cupy_backends.cuda.api.runtime")
    from pipelink_ir.backends.cuda import cupy_driver

    class Runtime:
        CUDARuntimeError = RuntimeError
        have, need, count = 0, 13000, 0

        def driverGetVersion(self) -> int:
            return self.have

        def runtimeGetVersion(self) -> int:
            return self.need

        def getDeviceCount(self) -> int:
            return self.count

    driver = object.__new__(cupy_driver.CupyDriver)
    driver._runtime = Runtime()
    for have, visible, want in ((0, None, "no NVIDIA driver"), (12040, None, r"too old: it knows CUDA 12.4.*pipelink-ir\[cuda12\]"),
                                (13000, None, "no GPU that CUDA can use"), (13000, "7", "CUDA_VISIBLE_DEVICES='7' hides")):
        driver._runtime.have = have
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        else:
            monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        with pytest.raises(pl.UsageError, match=want):
            driver._look()
    driver._runtime.have, driver._runtime.count = 13020, 2
    assert driver._look() == 2
    assert runtime is not None


def test_nothing_is_started_by_an_import_or_a_check() -> None:
    code = ("import sys, pipelink_ir as pl\nfrom pipelink_ir.backends.cuda import driver, executable, opened, run\nfrom pipelink_ir.cli.main import main\n"
            "main(['check', 'examples'])\nprint(opened._driver, 'cupy' in sys.modules)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "None False"


@pytest.mark.parametrize("dtype", ["f8e4m3", "f8e5m2"])
def test_f8_comes_and_goes_as_views_since_cupy_has_no_such_elements(device: EmulatingDriver, cupy: Any, dtype: str) -> None:
    kind = DTYPES[dtype].numpy()
    p = pl.compile(f"op @same(%x: tensor<Nx{dtype}>) -> (%y: tensor<Nx{dtype}>) {{ compute {{ %y[n] = %x[n] }} }}\n"
                   f"op @wide(%x: tensor<Nx{dtype}>, %w: tensor<Nxf32>) -> (%y: tensor<Nxf32>) {{ schedule {{ target = cuda }} compute {{ %y[n] = %x[n] * %w[n] }} }}\n"
                   f"op @code(%x: tensor<Nxf32>) -> (%y: tensor<Nx{dtype}>) {{ compute {{ %y[n] = {dtype}(%x[n]) }} }}\n"
                   f"pipeline @p(%x: tensor<Nx{dtype}>, param %w: tensor<Nxf32>) -> (%y: tensor<Nx{dtype}>, %z: tensor<Nxf32>, %c: tensor<Nx{dtype}>) {{\n"
                   "  %y = @same(%x)  %c = @code(%w)  %d = @same(%c)  %z = @wide(%d, %w)\n}\n", target="cuda")
    x, w = np.array([0, 1, -1.5, 448, 0.25]).astype(kind), np.array([1, 2, -3, 4, 0.5], np.float32)
    want = {"y": x.astype(np.float64), "z": w.astype(np.float64) ** 2, "c": w.astype(np.float64)}

    def same(found: Any, on: str) -> None:
        for name, values in want.items():
            y = found[name]
            if name != "z":
                assert (y.device, str(y.dtype)) == (on, dtype)
                y = y.owner
            got = device.to_host(y)
            np.testing.assert_array_equal((got if name == "z" else got.view(kind)).astype(np.float64), values)
    given = cupy.ndarray(device, x)
    for call in (p, p.bind(w=w)):
        more = {} if call is not p else {"w": cupy.ndarray(device, w)}
        for _ in range(4):
            same(call(x=given, **more), "cuda:0")
        assert call(x=x, **({"w": w} if more else {}))["y"].dtype == kind
    back = p(x=p(x=given, w=w).c, w=w)  # what is handed out may be handed in
    np.testing.assert_array_equal(device.to_host(back.y.owner).view(kind).astype(np.float64), want["c"])
