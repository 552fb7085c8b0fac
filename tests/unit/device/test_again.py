"""Calls in the form of the last one: they do no more than they have to, follow every array, and anything that is different is still looked at."""
from __future__ import annotations

import ctypes
import gc
import sys
import types
import weakref
from typing import Any

import numpy as np
import pytest

import pipelink_ir as pl
from pipelink_ir.backends.cuda import executable
from tests.gpu.programs import SUM
from tests.unit.device.emulated import EmulatingDriver

ONE = "pipeline @p(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { %y = @twice(%x) }\n" \
      "op @twice(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { memory { align = 16 } compute { %y[n] = 2 * %x[n] } }\n"
BOTH = """
op @twice(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { schedule { target = cuda } compute { %y[n] = 2 * %x[n] } }
op @sum(%x: tensor<Nxf32>, %z: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { schedule { target = cuda } compute { %y[n] = %x[n] + %z[n] } }
pipeline @p(%x: tensor<Nxf32>, %z: tensor<Nxf32>) -> (%y: tensor<Nxf32>, %a: tensor<Nxf32>) {
  %a = @twice(%x)
  %y = @sum(%a, %z)
}
"""


def values(k: int, n: int = 8) -> Any:
    return np.arange(n, dtype=np.float32) + k


def shortened(p: pl.Compiled, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each call from now on goes the short way."""
    seen: list[bool] = []
    again: Any = p._again
    assert again is not None

    def look(given: Any) -> Any:
        out = again(given)
        seen.append(out is not None)
        return out

    monkeypatch.setattr(p, "_again", look)
    return seen


def called(p: pl.Compiled, device: EmulatingDriver, **arrays: Any) -> list[Any]:
    return [device.to_host(y) for y in p(**arrays)]


def test_one_kernel_is_launched_without_a_graph(device: EmulatingDriver, cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    p = pl.compile(ONE, target="cuda")
    arrays = [cupy.ndarray(device, values(k)) for k in range(4)]
    called(p, device, x=arrays[0])
    seen = shortened(p, monkeypatch)
    device.log.clear()
    kept = [(k, p(x=arrays[k]).y) for k in (0, 1, 1, 3, 2, 0)]
    for k, y in kept:
        np.testing.assert_array_equal(device.to_host(y), 2 * values(k))
    assert seen == [True] * 6
    assert [e[0] for e in device.log if e[0] in ("launch", "replay", "repoint")] == ["launch"] * 6


def test_without_graphs_kernels_are_launched(device: EmulatingDriver, cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIPELINK_GRAPHS", "off")
    p = pl.compile(BOTH, target="cuda")
    x, z = cupy.ndarray(device, values(1)), cupy.ndarray(device, values(5))
    called(p, device, x=x, z=z)
    seen = shortened(p, monkeypatch)
    device.log.clear()
    for _ in range(3):
        y, a = called(p, device, x=x, z=z)
        np.testing.assert_array_equal(a, 2 * values(1))
        np.testing.assert_array_equal(y, 2 * values(1) + values(5))
    assert seen == [True] * 3
    assert [e[0] for e in device.log if e[0] in ("launch", "replay")] == ["launch"] * 6


def test_a_graph_that_comes_later_is_used(device: EmulatingDriver, cupy: Any) -> None:
    p = pl.compile(ONE, target="cuda")
    x = cupy.ndarray(device, values(1))
    for _ in range(3):
        called(p, device, x=x)
    p.executable.graphs.least = 1  # type: ignore[attr-defined]
    device.log.clear()
    for k in range(4):
        np.testing.assert_array_equal(called(p, device, x=cupy.ndarray(device, values(k)))[0], 2 * values(k))
    assert sum(e[0] == "replay" for e in device.log) == 4
    assert p.executable.graphs.captured == 1  # type: ignore[attr-defined]


def test_another_stream_comes_after_the_last(device: EmulatingDriver, cupy: Any) -> None:
    """The played driver raises where two accesses to the same memory are not in order."""
    p = pl.compile(BOTH, target="cuda")
    streams = [0, device.stream(0), device.stream(0)]
    for turn in range(12):
        device.callers = streams[(turn // 2) % 3]
        y, _ = called(p, device, x=cupy.ndarray(device, values(turn)), z=cupy.ndarray(device, values(0)))
        np.testing.assert_array_equal(y, 2 * values(turn) + values(0))


WRONG = {
    "dtype": (lambda cupy, device: cupy.ndarray(device, np.ones(8, np.float64)), pl.ExecutionError),
    "rank": (lambda cupy, device: cupy.ndarray(device, np.ones((8, 1), np.float32)), pl.ExecutionError),
    "alignment": (lambda cupy, device: cupy.ndarray(device, values(0), offset=4), pl.ContractViolationError),
    "device": (lambda cupy, device: cupy.ndarray(device, values(0), device=1), pl.ExecutionError),
    "no array": (lambda cupy, device: "x", pl.ExecutionError),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_does_not_fit_is_an_error_after_many_calls(device: EmulatingDriver, cupy: Any, what: str) -> None:
    make, error = WRONG[what]
    p = pl.compile(ONE, target="cuda")
    good = cupy.ndarray(device, values(3))
    for _ in range(4):
        called(p, device, x=good)
    wrong = make(cupy, device)
    for _ in range(2):
        with pytest.raises(error):
            p(x=wrong)
    with pytest.raises(pl.ExecutionError):
        p()
    with pytest.raises(pl.ExecutionError):
        p(x=good, z=good)
    np.testing.assert_array_equal(called(p, device, x=good)[0], 2 * values(3))


def test_other_sizes_go_the_long_way(device: EmulatingDriver, cupy: Any) -> None:
    p = pl.compile(BOTH, target="cuda")
    for turn in range(10):
        n = (8, 8, 8, 1000, 3)[turn % 5]
        y, a = called(p, device, x=cupy.ndarray(device, values(turn, n)), z=cupy.ndarray(device, values(1, n)))
        np.testing.assert_array_equal(y, 2 * values(turn, n) + values(1, n))
        np.testing.assert_array_equal(a, 2 * values(turn, n))


# ------------------------------------------------------------------------------------------------------------------------- results


def warm(device: EmulatingDriver, cupy: Any, program: str = BOTH) -> tuple[pl.Compiled, dict[str, Any]]:
    p = pl.compile(program, target="cuda")
    arrays = {n: cupy.ndarray(device, values(k)) for k, n in enumerate(o.name for o in p.inputs)}
    for _ in range(4):
        called(p, device, **arrays)
    return p, arrays


def test_results_that_nobody_holds_are_handed_out_again(device: EmulatingDriver, cupy: Any) -> None:
    p, arrays = warm(device, cupy)
    before = len(device.memory)
    for k in range(5):
        arrays["x"] = cupy.ndarray(device, values(k))
        y, a = called(p, device, **arrays)
        np.testing.assert_array_equal(a, 2 * values(k))
        np.testing.assert_array_equal(y, 2 * values(k) + values(1))
    assert len(device.memory) == before + 5  # the inputs


def test_results_that_take_turns(device: EmulatingDriver, cupy: Any) -> None:
    """`y = p(x=x).y` in a loop: one is held while the other is written."""
    p, arrays = warm(device, cupy)
    y = p(**arrays).y
    y = p(**arrays).y
    before = len(device.memory)
    seen = set()
    for k in range(7):
        arrays["x"] = cupy.ndarray(device, values(k))
        y = p(**arrays).y
        seen.add(y.address)
        np.testing.assert_array_equal(device.to_host(y), 2 * values(k) + values(1))
    assert len(seen) == 2
    assert len(device.memory) == before + 7  # the inputs


def test_the_same_arrays_altogether_have_graphs_of_their_own(device: EmulatingDriver, cupy: Any) -> None:
    """Two sets of results take turns over the same input: in the end nothing is told to any graph; another input is; values are looked up at each call."""
    p, arrays = warm(device, cupy, SUM)
    x, z = arrays["x"], arrays["z"]
    y = p(x=x, z=z).y
    for _ in range(8):
        y = p(x=x, z=z).y
    graphs = len(device.graphs)
    device.log.clear()
    for k in range(6):
        ctypes.memmove(x.data.ptr, values(k).ctypes.data, 32)
        y = p(x=x, z=z).y
        np.testing.assert_array_equal(device.to_host(y), values(k) + 2 + values(1))
    counts = {e[0] for e in device.log}
    assert "replay" in counts
    assert "repoint" not in counts
    assert len(device.graphs) == graphs == 3  # that of the instance was told of changes, so it serves neither
    other = cupy.ndarray(device, values(9))
    for _ in range(2):
        y = p(x=other, z=z).y
        np.testing.assert_array_equal(device.to_host(y), values(9) + 2 + values(1))
        y = p(x=x, z=z).y
        np.testing.assert_array_equal(device.to_host(y), values(5) + 2 + values(1))
    # The arena moves: the graphs that know the old one are not used any more.
    big = {n: cupy.ndarray(device, values(k, 5000)) for k, n in enumerate("xz")}
    for _ in range(3):
        np.testing.assert_array_equal(device.to_host(p(**big).y), values(0, 5000) + 2 + values(1, 5000))
    for k in range(8):
        ctypes.memmove(x.data.ptr, values(k).ctypes.data, 32)
        y = p(x=x, z=z).y
        np.testing.assert_array_equal(device.to_host(y), values(k) + 2 + values(1))
    open_graphs = [g for g in device.graphs.values() if not g.closed]
    assert len(open_graphs) <= 2 + 3
    del p, y
    gc.collect()
    assert all(g.closed for g in device.graphs.values())


def test_one_set_of_results_has_a_graph_that_was_never_told_of_anything(device: EmulatingDriver, cupy: Any) -> None:
    """Whoever holds one result and drops all others: the graph was told of the second array for results once, and is not replayed for ever."""
    p, arrays = warm(device, cupy, SUM)
    first = p(**arrays).y
    for _ in range(4):
        p(**arrays)
    lane = p.executable.lane_of_last()  # type: ignore[attr-defined]
    (instance,) = lane.instances.values()
    assert instance.retold
    assert lane.spares.held[-1].graph is not None
    device.log.clear()
    for k in range(4):
        ctypes.memmove(arrays["x"].data.ptr, values(k).ctypes.data, 32)
        np.testing.assert_array_equal(device.to_host(p(**arrays).y), values(k) + 2 + values(1))
    assert {e[0] for e in device.log} & {"replay", "repoint"} == {"replay"}
    np.testing.assert_array_equal(device.to_host(first), values(0) + 2 + values(1))


def test_results_that_somebody_holds_stay(device: EmulatingDriver, cupy: Any) -> None:
    """By the results, by one of the arrays, by a reference that does not keep it alive, or by a list of a list."""
    p, arrays = warm(device, cupy)
    kept: list[Any] = []
    weak: list[Any] = []
    for k in range(12):
        arrays["x"] = cupy.ndarray(device, values(k))
        out = p(**arrays)
        kept.append((k, (out, [out.y], None, None)[k % 4]))
        if k % 4 == 2:
            weak.append((k, weakref.ref(out.a)))
        del out
    for k, held in kept:
        if held is not None:
            y = held[0]
            np.testing.assert_array_equal(device.to_host(y), 2 * values(k) + values(1))
    for k, reference in weak:
        if reference() is not None:
            np.testing.assert_array_equal(device.to_host(reference()), 2 * values(k))


def test_large_results_are_not_held(device: EmulatingDriver, cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executable, "SPARED", 63)
    p, arrays = warm(device, cupy)
    gc.collect()
    live = device.live
    for _ in range(3):
        called(p, device, **arrays)
    assert device.live == live
    assert not p.executable.lane_of_last().spares.held  # type: ignore[attr-defined]


def test_results_of_another_stream_are_not_handed_out(device: EmulatingDriver, cupy: Any) -> None:
    p, arrays = warm(device, cupy)
    streams = [0, device.stream(0)]
    last: list[int] = []
    for turn in range(9):  # to end on the stream of the arrays
        device.callers = streams[turn % 2]
        out = p(**arrays)
        last.append(out.y.stream)
        np.testing.assert_array_equal(device.to_host(out.y), 2 * values(0) + values(1))
        del out
    assert last == (streams * 5)[:9]


def test_what_follows_a_replay_on_the_default_stream_comes_after_it(device: EmulatingDriver, cupy: Any) -> None:
    """Its end is recorded when somebody asks: arrays of the host, an asynchronous call, another stream, and the end of the pipeline, which gives memory back.
    The played driver raises where two accesses to the same memory are not in order."""
    p, arrays = warm(device, cupy, SUM)
    hosts = {n: values(k) for k, n in enumerate(arrays)}
    for follow in ("host", "start", "stream", "replay"):
        device.callers = 0
        device.log.clear()
        for _ in range(3):
            called(p, device, **arrays)
        assert "replay" in {e[0] for e in device.log}
        if follow == "host":
            np.testing.assert_array_equal(p(**hosts).y, values(0) + 2 + values(1))
        elif follow == "start":
            np.testing.assert_array_equal(device.to_host(p(**arrays, asynchronous=True).wait().y), values(0) + 2 + values(1))
        elif follow == "stream":
            device.callers = device.stream(0)
            called(p, device, **{n: cupy.ndarray(device, v) for n, v in hosts.items()})
    device.callers = 0
    del p
    gc.collect()
    assert not [m for m in device.memory.values() if m.gone is None and m.size > 256]


def test_what_goes_while_somebody_captures_is_given_back_later(device: EmulatingDriver, cupy: Any) -> None:
    """The end of its last run would have to be recorded on the default stream, which a captured stream is ordered with."""
    def closed() -> int:
        return sum(e[0] == "close stream" for e in device.log)

    p, arrays = warm(device, cupy, SUM)
    q, _ = warm(device, cupy, SUM)
    called(p, device, **arrays)
    owned = p.executable.lane_of_last().owned  # type: ignore[attr-defined]
    assert owned.late
    device.log.clear()
    device.somebody_captures = True
    del p
    gc.collect()
    assert closed() == 0
    assert all(event in device.events for event in owned.events)
    device.somebody_captures = False
    called(q, device, **arrays)
    assert closed() == 0
    warm(device, cupy, SUM)  # a new lane
    assert closed() >= 1
    assert not [event for event in owned.events if event in device.events]


# ------------------------------------------------------------------------------------------------------------------------- PyTorch


class Tensor:
    """As much of PyTorch's tensor on a GPU as is looked at."""

    requires_grad = False

    def __init__(self, driver: EmulatingDriver, data: Any, device: int = 0) -> None:
        self._memory, self._device, self.held = driver.given(data, driver.callers), device, data.nbytes
        self.shape, self.dtype = data.shape, FLOAT

    def stride(self) -> tuple[int, ...]:
        return tuple(s // 4 for s in np.empty(self.shape, np.float32).strides)

    def untyped_storage(self) -> Any:
        return types.SimpleNamespace(nbytes=lambda: self.held)

    def storage_offset(self) -> int:
        return 0

    def element_size(self) -> int:
        return 4

    def get_device(self) -> int:
        return self._device

    def is_neg(self) -> bool:
        return False

    def data_ptr(self) -> int:
        return self._memory.address


FLOAT = object()


def test_tensors_of_pytorch(device: EmulatingDriver, cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of a tensor is taken for granted: each property that changes sends the call the long way."""
    from pipelink_ir.runtime.device_calls import Again
    streams = types.SimpleNamespace(torch=0)
    torch = types.ModuleType("torch")
    torch.Tensor, torch._C = Tensor, types.SimpleNamespace(_cuda_getCurrentRawStream=lambda index: streams.torch)  # type: ignore[attr-defined]
    p = pl.compile(ONE, target="cuda")
    for _ in range(2):
        called(p, device, x=cupy.ndarray(device, values(0)))
    bound: Any = p.check({"x": cupy.ndarray(device, values(0))})
    bound.sources = (Tensor(device, values(0)),)
    monkeypatch.setitem(sys.modules, "torch", torch)
    again = Again.of(p.executable, bound, p.binder, p.results, lambda found: found)  # type: ignore[arg-type, return-value]
    assert again is not None
    for k in range(3):
        out: Any = again({"x": Tensor(device, values(k))})
        np.testing.assert_array_equal(device.to_host(out["y"]), 2 * values(k))
    for name, value in (("dtype", object()), ("shape", (9,)), ("requires_grad", True), ("_device", 1), ("held", 28), ("is_neg", lambda: True),
                        ("stride", lambda: (2,)), ("data_ptr", lambda: 4), ("data_ptr", lambda: 0)):
        x = Tensor(device, values(1))
        setattr(x, name, value)
        assert again({"x": x}) is None, name
    streams.torch = device.stream(0)
    assert again({"x": Tensor(device, values(1))}) is None
