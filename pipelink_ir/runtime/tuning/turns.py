"""Times of several ways to do one thing, in turns, and which is better by more than chance.

A way is better than another if the interval of the median ratio of their times in the same turns, by ranks at 95 %, lies beyond one, and the medians differ by
`LEAST` at least.
"""
from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.runtime.runnable import Runnable

TURNS = 15
FIRST = 4
"""Turns after which ways that are far behind are left out."""
FAR = 1.25
LEAST = 0.02
"""What a gain has to be at least."""
HOPELESS = 3.0
"""A way whose first timed call takes so many times the default's is tried no further; nor one whose very first call takes the square of that."""


class Clock(Protocol):
    """Seconds of one call; `what` says of which candidate, the empty text of the default."""

    def __call__(self, call: Callable[[], Any], what: str) -> float: ...


SHORT = 1e-3
"""Seconds below which calls are timed several together, so that the clock's own steps do not count."""


class HostClock:
    """Times of the host."""

    def __call__(self, call: Callable[[], Any], what: str) -> float:
        begin = time.perf_counter()
        call()
        took = time.perf_counter() - begin
        if took >= SHORT:
            return took
        count = min(100, int(SHORT / max(took, 1e-9)) + 1)
        begin = time.perf_counter()
        for _ in range(count):
            call()
        return (time.perf_counter() - begin) / count


class GpuClock:
    """Times of a GPU, the cache emptied before each call."""

    def __init__(self, executable: Any) -> None:
        from pipelink_ir.backends.cuda.timing import DeviceClock
        self._clock = DeviceClock(executable)

    def __call__(self, call: Callable[[], Any], what: str) -> float:
        return self._clock.call(call)

    def moved(self, arrays: Mapping[str, Any], run: Runnable) -> dict[str, Any]:
        """Copies on the device of arrays of NumPy; others as they are."""
        import numpy as np
        dtypes = {o.name: DTYPES[o.type.dtype] for o in run.inputs}
        return {n: self._clock.array(np.array(a, order="C"), dtypes[n]) if isinstance(a, np.ndarray) else a for n, a in arrays.items()}

    def close(self) -> None:
        """Give back what it holds on the device."""
        self._clock.close()


def in_turns(clock: Clock, calls: Mapping[str, Callable[[], Any]], turns: int = TURNS) -> dict[str, list[float]]:
    """Seconds of each call in each turn; of those that fall far behind of the first turns only. The first of `calls` is what others are held against."""
    default = next(iter(calls))
    warm = {name: clock(call, name) for name, call in calls.items()}
    took: dict[str, list[float]] = {name: [] for name in calls}
    left = [n for n in calls if warm[n] < HOPELESS ** 2 * warm[default]]
    took |= {n: [warm[n]] for n in calls if n not in left}
    for turn in range(turns):
        # Who comes first changes from turn to turn, so that nobody always follows the same one.
        for name in left[turn % len(left):] + left[:turn % len(left)]:
            took[name].append(clock(calls[name], name))
        if turn == 0:
            left = [n for n in left if n == default or took[n][0] < HOPELESS * took[default][0]]
        if turn + 1 == FIRST:
            best = min(statistics.median(took[n]) for n in left)
            left = [n for n in left if n == default or statistics.median(took[n]) < FAR * best]
    return took


def interval(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float]:
    """An interval of the median of `theirs / ours` turn by turn, by ranks: it holds with 95 % for 15 pairs and more."""
    ratios = sorted(b / a for a, b in zip(ours, theirs, strict=False))
    n = len(ratios)
    low = max(0, int((n - 1.96 * n ** 0.5) / 2)) if n >= 6 else 0
    return ratios[low], ratios[n - 1 - low]


def better(ours: Sequence[float], theirs: Sequence[float]) -> bool:
    """Whether `ours` takes less time than `theirs` by more than chance."""
    n = min(len(ours), len(theirs))
    if n < 6:
        return False
    return interval(ours, theirs)[0] > 1 and statistics.median(ours[:n]) <= (1 - LEAST) * statistics.median(theirs[:n])
