"""How long a compiled pipeline takes, whole and kernel by kernel, beside the time that moving its bytes takes: what `pipelinkc bench` tells.

The floor is the bytes of all inputs and results, each counted once, at the rate of a copy that is measured in the same run. A kernel's bytes are those of the
arrays that it touches, each once: one that reads a few elements of a large array seems to be faster than memory. On a GPU times are of the device and the
cache is emptied before each call; on the processor they are of the host.
"""
from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipelink_ir.backends.timing import StepTimes
from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.nodes import Node
from pipelink_ir.runtime.compile import Compiled
from pipelink_ir.runtime.runnable import Runnable
from pipelink_ir.runtime.samples import made_inputs

__all__ = ["KernelTime", "Measured", "made_inputs", "measure"]

COPY_BYTES = {"cpu": 64 << 20, "cuda": 512 << 20}
"""Bytes that are copied to find out how fast copies are."""


@dataclass(frozen=True, slots=True)
class KernelTime:
    """One kernel: the node that it belongs to, its operator, and the median of its times."""

    node: str
    operator: str
    kernel: str
    bytes: int
    ms: float
    least_ms: float

    @property
    def gb_s(self) -> float:
        return self.bytes / self.ms / 1e6 if self.ms else 0.0


@dataclass(frozen=True, slots=True)
class Measured:
    """Everything that was measured; `rate` is that of copies in bytes a second."""

    pipeline: str
    target: str
    sizes: Mapping[str, int]
    rate: float
    bytes: int
    call_ms: tuple[float, ...]
    host_us: float | None
    """What the call costs the host, where that is another time than the call's."""
    kernels: tuple[KernelTime, ...] = ()
    statistics: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ms(self) -> float:
        return statistics.median(self.call_ms)

    @property
    def floor_ms(self) -> float:
        return 1e3 * self.bytes / self.rate

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        kernels = [{"node": k.node, "operator": k.operator, "kernel": k.kernel, "bytes": k.bytes, "ms": k.ms, "least_ms": k.least_ms, "gb_s": k.gb_s,
                    "of_copy_rate": 1e9 * k.gb_s / self.rate} for k in self.kernels]
        return {"pipeline": self.pipeline, "target": self.target, "sizes": dict(self.sizes), "copy_gb_s": self.rate / 1e9, "bytes": self.bytes, "runs":
                len(self.call_ms), "ms": self.ms, "least_ms": min(self.call_ms), "most_ms": max(self.call_ms), "host_us": self.host_us,
                "floor_ms": self.floor_ms, "of_floor": self.floor_ms / self.ms, "kernels": kernels, "statistics": dict(self.statistics)}


def measure(whole: Compiled, arrays: Mapping[str, Any], runs: int) -> Measured:
    """Measure calls on arrays of the host. Parameters are bound before, as they are where a pipeline is called often."""
    bound = whole.check(arrays)
    sizes, size = dict(bound.sizes), sum(_bytes(a) for a in bound.arrays.values())
    size += sum(_bytes(a) for a in whole.run(bound).values())
    name, parameters = whole.pipeline.name, {o.name: arrays[o.name] for o in whole.inputs if o.param}
    compiled: Runnable = whole
    if parameters:
        held = whole.bind(**parameters)
        compiled, arrays = held.rest, {**arrays, **held.params, **held.kept}
    there = _on_cpu if compiled.target.name == "cpu" else _on_gpu
    rate, calls, host, steps = there(compiled, arrays, runs)
    found: Mapping[str, Any] = getattr(compiled.executable, "statistics", {})
    return Measured(name, compiled.target.name, sizes, rate, size, tuple(1e3 * s for s in calls), host, _kernels(compiled, steps), found)


def _bytes(array: Any) -> int:
    return int(array.nbytes)


def _kernels(compiled: Runnable, steps: Sequence[StepTimes]) -> tuple[KernelTime, ...]:
    out = []
    for s in steps:
        node = compiled.pipeline.nodes[s.node]
        assert isinstance(node, Node)
        name = node.label or ", ".join(f"%{e.name}" for e in node.results)
        out.append(KernelTime(name, node.op, s.name, s.bytes, 1e3 * statistics.median(s.seconds), 1e3 * min(s.seconds)))
    return tuple(out)


def _clocked(call: Callable[[], Any], runs: int) -> list[float]:
    call()
    out = []
    for _ in range(runs):
        begin = time.perf_counter()
        call()
        out.append(time.perf_counter() - begin)
    return out


_Found = tuple[float, list[float], float | None, list[StepTimes]]


def _on_cpu(compiled: Runnable, arrays: Mapping[str, Any], runs: int) -> _Found:
    from pipelink_ir.backends.cpu.timing import step_times
    executable: Any = compiled.executable
    bound = compiled.check(arrays)
    calls = _clocked(lambda: compiled(**arrays), runs)
    addresses, kept = bound.dense() if bound.packed else (bound.addresses, None)
    steps = step_times(executable, bound.shapes, addresses, runs)
    del kept
    return _copy_rate(COPY_BYTES["cpu"]), calls, None, steps


def _copy_rate(size: int) -> float:
    """Bytes a second of a copy by all threads that kernels run on, reading and writing counted; the best of some."""
    import ctypes
    from concurrent.futures import ThreadPoolExecutor

    import numpy as np

    from pipelink_ir.ir import environment
    threads = environment.num_threads()
    a, b = np.ones(size, np.uint8), np.zeros(size, np.uint8)
    part = size // threads

    def copy(n: int) -> None:
        ctypes.memmove(b.ctypes.data + n * part, a.ctypes.data + n * part, part)

    with ThreadPoolExecutor(threads) as pool:
        return 2 * part * threads / min(_clocked(lambda: list(pool.map(copy, range(threads))), 7))


def _on_gpu(compiled: Runnable, arrays: Mapping[str, Any], runs: int) -> _Found:
    import numpy as np

    from pipelink_ir.backends.cuda.timing import DeviceClock, step_times
    executable: Any = compiled.executable
    clock = DeviceClock(executable)
    try:
        dtypes = {o.name: DTYPES[o.type.dtype] for o in compiled.inputs}
        there = {name: clock.array(np.array(a, order="C"), dtypes[name]) if isinstance(a, np.ndarray) else a for name, a in arrays.items()}

        def call() -> Any:
            return compiled(**there)

        for _ in range(4):
            call()
        calls = [clock.call(call) for _ in range(runs)]
        host = 1e6 * statistics.median(_clocked(call, max(10, runs)))
        return clock.copy_rate(COPY_BYTES["cuda"], 7), calls, host, step_times(clock, call, runs)
    finally:
        clock.close()
