"""Graphs: when they are made, what they hold, who has to be told of a change, how many are kept."""
from __future__ import annotations

import gc
import random
from typing import Any

import numpy as np
import pytest

import pipelink_ir as pl
from pipelink_ir.backends.cuda.capture import captured
from pipelink_ir.backends.cuda.driver import LAUNCH, RECORD, WAIT, Commands, DeviceError
from pipelink_ir.ir.diagnostics import InternalError
from tests.unit.device.emulated import EmulatingDriver

TWICE = """
op @twice(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { schedule { target = cuda } compute { %y[n] = 2 * %x[n] } }
op @sum(%x: tensor<Nxf32>, %z: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { schedule { target = cuda } compute { %y[n] = %x[n] + %z[n] } }
pipeline @p(%x: tensor<Nxf32>, %z: tensor<Nxf32>) -> (%y: tensor<Nxf32>) {
  %a = @twice(%x)
  %y = @sum(%a, %z)
}
"""


def counts(device: EmulatingDriver) -> dict[str, int]:
    """How many launches went by themselves, how many replays and new pointers there were; the log begins anew."""
    log, device.log = device.log, []
    found = {k: sum(e[0] == k for e in log) for k in ("launch", "replay", "repoint")}
    found["launch"] -= 2 * found["replay"]
    return found


def test_the_second_call_captures_and_later_ones_replay(device: EmulatingDriver) -> None:
    p = pl.compile(TWICE, target="cuda")
    for k, want in enumerate(({"launch": 2, "replay": 0, "repoint": 0}, *[{"launch": 0, "replay": 1, "repoint": 0}] * 3)):
        np.testing.assert_array_equal(p(x=np.full(8, k, np.float32), z=np.ones(8, np.float32)).y, 2 * k + 1)
        assert counts(device) == want
    assert p.executable.statistics["graphs"] == "1 kept, 1 captured"  # type: ignore[attr-defined]


def test_a_changed_pointer_is_told_to_the_kernels_that_have_it(device: EmulatingDriver, cupy: Any) -> None:
    p = pl.compile(TWICE, target="cuda")
    x, z = [cupy.ndarray(device, np.full(8, k, np.float32)) for k in range(4)], cupy.ndarray(device, np.ones(8, np.float32))
    kept: list[Any] = []
    for k in (0, 0, 0, 1, 2, 2, 3, 0):
        y = p(x=x[k], z=z).y
        kept.append((k, y))
        assert counts(device)["repoint"] <= 2
    for k, y in kept:
        np.testing.assert_array_equal(device.to_host(y), 2 * k + 1)
    assert len(device.graphs) == 1


def test_the_same_array_with_new_values(device: EmulatingDriver, cupy: Any) -> None:
    p = pl.compile(TWICE, target="cuda")
    x = np.arange(6, dtype=np.float32)
    for k in range(5):
        x += k
        np.testing.assert_array_equal(p(x=x, z=x).y, 3 * x)


def test_an_arena_that_moved_is_not_used_any_more(device: EmulatingDriver, cupy: Any) -> None:
    """A larger call makes the arena larger, at another place; the graph of the smaller one has to hear of it, by the short way too."""
    p = pl.compile(TWICE, target="cuda")
    small, large = (cupy.ndarray(device, np.ones(n, np.float32)) for n in (64, 5000))
    for n in (64, 64, 64, 64, 5000, 64, 64, 5000, 5000, 64):
        a = small if n == 64 else large
        np.testing.assert_array_equal(device.to_host(p(x=a, z=a).y), np.full(n, 3, np.float32))
    for m in device.memory.values():
        if m.gone is not None:
            np.ctypeslib.as_array(m.owner)[:] = 0  # whoever still looks there sees it
    np.testing.assert_array_equal(device.to_host(p(x=small, z=small).y), np.full(64, 3, np.float32))


def test_as_many_as_are_allowed(device: EmulatingDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIPELINK_GRAPHS", "3")
    p = pl.compile(TWICE, target="cuda")
    for _ in range(3):
        for n in range(1, 9):
            np.testing.assert_array_equal(p(x=np.ones(n, np.float32), z=np.ones(n, np.float32)).y, 3)
            assert len(device.graphs) <= 3
    assert len(device.graphs) == 3
    kept = counts(device)
    assert kept["replay"] > 0
    for n in (6, 7, 8):
        p(x=np.ones(n, np.float32), z=np.ones(n, np.float32))
    assert counts(device) == {"launch": 0, "replay": 3, "repoint": 0}


@pytest.mark.parametrize("value", ["off", "0"])
def test_off(device: EmulatingDriver, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("PIPELINK_GRAPHS", value)
    p = pl.compile(TWICE, target="cuda")
    for _ in range(4):
        p(x=np.ones(4, np.float32), z=np.ones(4, np.float32))
    assert counts(device) == {"launch": 8, "replay": 0, "repoint": 0}
    assert p.executable.statistics["graphs"] == "off: every call launches its kernels"  # type: ignore[attr-defined]


def test_what_cannot_be_captured_runs_without_and_says_why(device: EmulatingDriver) -> None:
    p = pl.compile(TWICE, target="cuda")
    device.fail["capture"] = DeviceError("building a graph", "this driver has no cuGraphAddKernelNode_v2")
    for _ in range(4):
        np.testing.assert_array_equal(p(x=np.ones(4, np.float32), z=np.ones(4, np.float32)).y, 3)
    assert counts(device) == {"launch": 8, "replay": 0, "repoint": 0}
    assert p.executable.statistics["graphs"] == "none: building a graph: this driver has no cuGraphAddKernelNode_v2"  # type: ignore[attr-defined]


def test_one_kernel_is_launched(device: EmulatingDriver) -> None:
    p = pl.compile(TWICE.replace("  %y = @sum(%a, %z)\n", "").replace("%a = ", "%y = ").replace(", %z: tensor<Nxf32>) -> (%y: tensor<Nxf32>) {\n  %y",
                                                                                               ") -> (%y: tensor<Nxf32>) {\n  %y"), target="cuda")
    for _ in range(3):
        np.testing.assert_array_equal(p(x=np.ones(4, np.float32)).y, 2)
    assert sum(e[0] == "replay" for e in device.log) == 0


def test_alternating_shapes_and_arrays(device: EmulatingDriver, cupy: Any) -> None:
    """Hundreds of calls with sizes, places, streams and values at random; nothing grows."""
    p = pl.compile(TWICE, target="cuda")
    draw = random.Random(5)
    sizes, streams = (1, 7, 64, 900), [device.handle() for _ in range(2)]
    live = 0
    for k in range(300):
        n = draw.choice(sizes)
        x, z = (np.array([draw.randint(-9, 9) for _ in range(n)], np.float32) for _ in range(2))
        device.callers = draw.choice(streams)
        if draw.random() < 0.5:
            got = p(x=x, z=z).y
        else:
            got = device.to_host(p(x=cupy.ndarray(device, x), z=cupy.ndarray(device, z) if draw.random() < 0.7 else z).y)
        np.testing.assert_array_equal(got, 2 * x + z)
        device.past.clear()
        if k == 100:
            live = device.live
    assert device.live <= live + 4096


def test_graphs_in_cycles_of_garbage(device: EmulatingDriver) -> None:
    gc.set_threshold(1)
    try:
        for _ in range(10):
            p = pl.compile(TWICE, target="cuda")
            p.itself = p  # type: ignore[attr-defined]
            for _ in range(3):
                np.testing.assert_array_equal(p(x=np.ones(4, np.float32), z=np.ones(4, np.float32)).y, 3)
            del p
    finally:
        gc.set_threshold(700, 10, 10)
    gc.collect()
    assert not device.graphs


# ------------------------------------------------------------------------------------------------------------------------ order


def launch(stream: int) -> tuple[int, ...]:
    return (LAUNCH, 1, 1, 1, 1, 1, 1, 1, 0, stream, 0)


def test_edges_of_a_graph_are_those_of_streams_and_events() -> None:
    commands = Commands([(RECORD, 10, 0), (WAIT, 1, 10), launch(0), launch(1), (RECORD, 11, 1), launch(1), launch(0), (WAIT, 0, 11), launch(0),
                         (RECORD, 12, 1), (WAIT, 0, 12), launch(0)])
    assert [(c.command, c.after) for c in captured(commands)] == [(2, ()), (3, ()), (5, (3,)), (6, (2,)), (8, (6, 3)), (11, (8, 5))]


def test_an_event_from_outside_has_no_place_in_a_graph() -> None:
    with pytest.raises(InternalError, match="waits for an event"):
        captured(Commands([(WAIT, 0, 9), launch(0)]))
