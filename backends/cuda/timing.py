"""Times on a GPU: of each kernel of a pipeline, and of a whole call, by events of the device around them."""
from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from pipelink_ir.backends.cuda.driver import CALL, COPY, FILL, RECORD, WORDS, Commands
from pipelink_ir.backends.cuda.executable import CudaExecutable
from pipelink_ir.backends.timing import StepTimes, told

FLUSH = 256 << 20
"""Bytes that are written before a run, so that it finds nothing in the cache; at least twice the cache."""


class DeviceClock:
    """Times what is put on the caller's stream. Writing the flushed memory keeps the device busy while the calls are handed over."""

    def __init__(self, executable: CudaExecutable, flush: int = FLUSH) -> None:
        self.executable, self.driver, self.device = executable, executable.driver, executable.device
        self.stream = self.driver.callers_stream(self.device)
        self._table = (ctypes.c_void_p * 1)(self.stream)
        self._timers: list[int] = []
        size = max(flush, 2 * self.driver.facts(self.device).l2)
        self._flush = self.driver.allocate(self.device, size, self.stream)
        self._size = size

    def close(self) -> None:
        """Give everything back."""
        self.driver.free(self.device, self._flush, self.stream)
        for timer in self._timers:
            self.driver.close_event(self.device, timer)

    def timers(self, count: int) -> list[int]:
        while len(self._timers) < count:
            self._timers.append(self.driver.timer(self.device))
        return self._timers[:count]

    def issue(self, *commands: tuple[int, ...]) -> None:
        self.driver.issue(self.device, Commands(commands), ctypes.addressof(self._table))

    def flush(self) -> None:
        self.issue((FILL, self._flush, 1, self._size, 0))

    def call(self, call: Callable[[], Any]) -> float:
        """Seconds from before the call to the end of all that it put on the stream."""
        begin, end = self.timers(2)
        self.flush()
        self.issue((RECORD, begin, 0))
        result = call()
        self.issue((RECORD, end, 0))
        self.driver.wait(self.device, end)
        del result
        return self.driver.elapsed(self.device, begin, end)

    def copy_rate(self, size: int, runs: int) -> float:
        """Bytes a second of a copy on the device, reading and writing counted."""
        a, b = (self.driver.allocate(self.device, size, self.stream) for _ in range(2))
        begin, end = self.timers(2)
        best = []
        for _ in range(runs + 1):
            self.issue((RECORD, begin, 0), (COPY, b, a, size, 0), (RECORD, end, 0))
            self.driver.wait(self.device, end)
            best.append(self.driver.elapsed(self.device, begin, end))
        for address in (a, b):
            self.driver.free(self.device, address, self.stream)
        seconds = sorted(best[1:])
        return 2 * size / seconds[len(seconds) // 2]

    def array(self, values: Any, dtype: Any) -> Any:
        """A copy on the device of an array of NumPy, in the dtype that PLIR calls it by."""
        array, address = self.driver.array(self.device, values.shape, dtype, self.stream)
        if values.nbytes:
            self.issue((COPY, address, values.ctypes.data, values.nbytes, 0))
        return array


def step_times(clock: DeviceClock, call: Callable[[], Any], runs: int) -> list[StepTimes]:
    """Seconds of each kernel in each of `runs` runs on the arrays of `call`, which is called first so that every kernel has its arguments. Kernels run one
    behind the other, whatever streams the plan has; the first of them finds an empty cache, the others what those before them left."""
    call()
    held = call()
    executable, driver, device = clock.executable, clock.driver, clock.device
    lane = executable.lane_of_last()
    recipe, instance = next(reversed([(i.recipe, i) for i in lane.instances.values()]))
    # Whatever stream a launch names, its place in the table holds the caller's.
    table = (ctypes.c_void_p * max(1, recipe.streams))(*([clock.stream] * max(1, recipe.streams)))
    numbers = sorted(instance.steps)
    timers = clock.timers(len(numbers) + 1)
    commands = Commands([(RECORD, timers[0], 0)])
    for n, timer in zip(numbers, timers[1:], strict=True):
        commands.add(CALL, instance.body.address + 8 * WORDS * n, 1)
        commands.add(RECORD, timer, 0)
    spent = []
    for _ in range(runs + 1):
        clock.flush()
        driver.issue(device, commands, ctypes.addressof(table))
        driver.wait(device, timers[-1])
        found = [0.0] * len(recipe.plan.steps)
        for n, a, b in zip(numbers, timers, timers[1:], strict=False):
            found[instance.steps[n]] += driver.elapsed(device, a, b)
        spent.append(found)
    del held
    return told(recipe.plan, recipe.operators, spent[1:], frozenset(instance.steps.values()))
