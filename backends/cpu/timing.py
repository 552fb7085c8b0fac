"""The time of each kernel of a pipeline on the processor: the steps of a plan are run one by one, in the order of the plan, with a clock between them."""
from __future__ import annotations

import ctypes
import time

from pipelink_ir.backends.cpu.executable import CpuExecutable
from pipelink_ir.backends.cpu.memory import new_array
from pipelink_ir.backends.cpu.pool import run_plan
from pipelink_ir.backends.timing import StepTimes, told

STEP_WORDS = 5
"""Words of one step in the table that `driver.py` walks."""


def step_times(executable: CpuExecutable, shapes: tuple[tuple[int, ...], ...], given: list[int], runs: int) -> list[StepTimes]:
    """Seconds of each kernel in each of `runs` runs, after one that is not counted. `given` are the addresses of the inputs, dense and aligned."""
    plan, instance = executable.prepared(shapes)
    results = [new_array(shape, dtype) for shape, dtype in plan.results]
    addresses = {"input": given, "result": [address for _, address in results]}
    instance.give(addresses)
    first, status = ctypes.addressof(instance.steps), ctypes.addressof(instance.status)
    seconds = []
    for _ in range(runs + 1):
        run = []
        for k in range(len(plan.steps)):
            begin = time.perf_counter()
            run_plan(first + 8 * STEP_WORDS * k, 1, status)
            run.append(time.perf_counter() - begin)
        seconds.append(run)
    return told(plan, executable.units, seconds[1:])
