"""What Python collects while somebody captures a CUDA graph in the same thread: a program's modules, memory, graphs, events and streams go, the capture stays."""
from __future__ import annotations

import gc
import importlib
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pipelink_ir as pl
from tests.gpu.programs import SUM, diamonds

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def cupy() -> Any:
    return importlib.import_module("cupy")


def used(cupy: Any, text: str, on_host: bool) -> Callable[[], None]:
    """A program with a graph, an arena and modules, and how it goes. Its last run is on the default stream, unless arrays are of the host."""
    p = pl.compile(text, target="cuda")
    arrays = {o.name: np.ones(5000, np.float32) for o in p.inputs}
    for _ in range(6):
        p(**(arrays if on_host else {k: cupy.asarray(v) for k, v in arrays.items()}))
    cupy.cuda.runtime.deviceSynchronize()
    held = [p]
    del p

    def go() -> None:
        gone = weakref.ref(held.pop().executable)
        gc.collect()
        assert gone() is None
    return go


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("on_host", [False, True])
def test_while_cupy_captures(cupy: Any, on_host: bool, blocking: bool) -> None:
    go = used(cupy, SUM, on_host)
    x, y = cupy.arange(1000, dtype=cupy.float32), cupy.zeros(1000, cupy.float32)
    cupy.add(x, 1, out=y)  # compiled before
    stream = cupy.cuda.Stream(non_blocking=not blocking)
    with stream:
        stream.begin_capture(cupy.cuda.runtime.streamCaptureModeGlobal)
        cupy.add(x, 1, out=y)
        go()
        cupy.add(y, 1, out=y)
        graph = stream.end_capture()
    for k in range(3):
        x.fill(k)
        cupy.cuda.runtime.deviceSynchronize()
        graph.launch(stream)
        stream.synchronize()
        assert float(y.min()) == float(y.max()) == k + 2
    # What had to be put off is given back by now or by the next program; that one runs.
    assert float(pl.compile(SUM, target="cuda")(x=x, z=x).y[0]) == 6


@pytest.mark.parametrize("on_host", [False, True])
def test_while_torch_captures(cupy: Any, on_host: bool) -> None:
    torch = pytest.importorskip("torch")
    go = used(cupy, diamonds(3), on_host)
    x = torch.arange(1000, device="cuda", dtype=torch.float32)
    y = x + 1
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x + 1
        go()
        y = y * 2
    for k in range(3):
        x.fill_(k)
        graph.replay()
        assert torch.equal(y, torch.full_like(y, 2 * k + 2))
