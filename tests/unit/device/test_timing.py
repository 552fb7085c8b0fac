"""Times on a GPU, on a played one: what is launched between which events, and that everything is given back."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pipelink_ir as pl
from pipelink_ir.backends.cuda import timing
from pipelink_ir.runtime import bench
from tests.unit.device.emulated import EmulatingDriver
from tests.unit.device.test_again import BOTH, values


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, device: EmulatingDriver, cupy: Any) -> None:
    monkeypatch.setattr(timing, "FLUSH", 1 << 16)
    monkeypatch.setattr(timing.DeviceClock.__init__, "__defaults__", (1 << 16,))
    monkeypatch.setitem(bench.COPY_BYTES, "cuda", 1 << 12)
    monkeypatch.setattr(timing.DeviceClock, "array", lambda clock, array, dtype: cupy.ndarray(device, array))


def test_every_kernel_has_a_time(device: EmulatingDriver) -> None:
    p = pl.compile(BOTH, target="cuda")
    p(x=values(0, 300), z=values(1, 300))
    before, memory = len(device.events), device.live
    found = bench.measure(p, {"x": values(0, 300), "z": values(1, 300)}, 4)
    assert [(k.node, k.bytes) for k in found.kernels] == [("%a", 2 * 1200), ("%y", 3 * 1200)]
    assert all(k.ms > 0 for k in found.kernels)
    assert found.bytes == 4 * 1200
    assert len(found.call_ms) == 4
    assert min(found.call_ms) > 0
    assert found.rate > 0
    assert found.host_us is not None
    assert len(device.events) <= before + 4  # those of the lane
    assert device.live <= memory + 8 * 1200


def test_kernels_that_run_beside_one_another_are_timed_one_by_one(device: EmulatingDriver, cupy: Any) -> None:
    from tests.gpu.programs import diamonds, of_diamonds
    p = pl.compile(diamonds(2), target="cuda")
    x = np.full(64, 3, np.float32)
    found = bench.measure(p, {"x": x}, 2)
    assert len(found.kernels) == 6  # equal nodes are one
    assert sorted({k.node for k in found.kernels}) == ["%a0", "%a1", "%b0", "%b1", "%d0", "%y"]
    y = p(x=cupy.ndarray(device, x)).y
    np.testing.assert_array_equal(device.to_host(y), of_diamonds(2, 3.0))


def test_kernels_for_other_sizes_are_not_listed() -> None:
    """Which of an operator's kernels has a row depends on its length; only one of them is launched."""
    p = pl.compile("import std.nn\npipeline @p(%x: tensor<NxKxf32>) -> (%y: tensor<NxKxf32>) { %y = @softmax(%x) }\n", target="cuda")
    found = bench.measure(p, {"x": np.ones((3, 40), np.float32)}, 2)
    assert len(p.executable.code.operators) == 1  # type: ignore[attr-defined]
    assert [k.node for k in found.kernels] == ["%y"]
    assert all(k.ms > 0 for k in found.kernels)
