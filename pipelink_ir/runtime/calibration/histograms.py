"""What is kept of the values of an edge while data streams by: extremes, sums, and histograms whose size does not depend on the data.

Two histograms are known. `Spread` has a bin for the leading bits of a value as f32 holds it, sign and exponent and 8 bits of the fraction: bins of equal
relative width (0.4 %), wherever the values lie, so that ranges need not be known before. `Linear` has 2048 equal bins of magnitudes up to a largest one that
is known, which is what the entropy method is defined on.
"""
from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from pipelink_ir.ir.dtypes import F32

if TYPE_CHECKING:
    import numpy as np
    Array = np.ndarray[Any, Any]

BITS = 17
"""Leading bits of an f32 that choose a bin: 1 of sign, 8 of exponent, 8 of fraction."""
LINEAR_BINS = 2048
PIECE = 1 << 22
"""Elements that are looked at at a time, so that wide copies stay small."""


def pieces(array: Any) -> Iterator[Array]:
    """The elements of an array as float64, some at a time, in the order of memory."""
    import numpy as np
    flat = np.ascontiguousarray(array).reshape(-1)
    for start in range(0, flat.size, PIECE):
        yield flat[start:start + PIECE].astype(np.float64)


@dataclass(slots=True)
class Seen:
    """Extremes, sum of squares and counts of the values of one edge. Only finite ones count for all but `nan` and `inf`."""

    min: float = math.inf
    max: float = -math.inf
    squares: float = 0.0
    count: int = 0
    nan: int = 0
    inf: int = 0

    def add(self, array: Any) -> None:
        """Take the values of an array in."""
        import numpy as np
        for part in pieces(array):
            finite = np.isfinite(part)
            if not finite.all():
                nan = int(np.isnan(part).sum())
                self.nan += nan
                self.inf += int(part.size - finite.sum()) - nan
                part = part[finite]
            if not part.size:
                continue
            self.min, self.max = min(self.min, float(part.min())), max(self.max, float(part.max()))
            with np.errstate(over="ignore"):
                self.squares += float(np.dot(part, part))
            self.count += part.size

    @property
    def rms(self) -> float:
        """The root mean square; of values whose squares no float64 holds the largest magnitude stands for it."""
        if not self.count:
            return 0.0
        return math.sqrt(self.squares / self.count) if math.isfinite(self.squares) else self.amax

    @property
    def amax(self) -> float:
        """The largest magnitude."""
        return max(abs(self.min), abs(self.max)) if self.count else 0.0


@dataclass(slots=True)
class Spread:
    """Counts by the leading bits of values: of the bins that have any, their numbers and their counts."""

    bins: Any = None
    counts: Any = None

    def add(self, array: Any) -> None:
        """Take the finite values of an array in."""
        import numpy as np
        for part in pieces(array):
            with np.errstate(over="ignore"):
                values = np.clip(part[np.isfinite(part)], -F32.largest, F32.largest).astype(np.float32)
            found = np.bincount(values.view(np.uint32) >> (32 - BITS))
            if self.bins is not None:
                found = np.pad(found, (0, max(0, int(self.bins.max(initial=-1)) + 1 - found.size)))
                found[self.bins] += self.counts
            self.bins = np.flatnonzero(found)
            self.counts = found[self.bins]

    def points(self, low: float, high: float) -> tuple[Array, Array]:
        """The values that stand for bins with something in them, ascending and within `low` to `high`, and how many there are of each."""
        import numpy as np
        if self.bins is None:
            return np.zeros(0), np.zeros(0, np.int64)
        centres = _centres()[self.bins]
        order = np.argsort(centres, kind="stable")
        return np.clip(centres[order], low, high), self.counts[order]


@cache
def _centres() -> Array:
    """A value in the middle of each bin, by its number; the bins at zero stand for zero, those beyond all finite values for nothing."""
    import numpy as np
    lowest = (np.arange(255 << (BITS - 9), dtype=np.uint32) << (32 - BITS)).view(np.float32).astype(np.float64)
    centres = (lowest + np.append(lowest[1:], 2.0 ** 128)) / 2
    centres[0] = 0.0
    half = np.concatenate([centres, np.full((1 << (BITS - 1)) - centres.size, np.nan)])
    return np.concatenate([half, -half])


@dataclass(slots=True)
class Linear:
    """Counts of magnitudes in equal bins from 0 to `top`."""

    top: float
    counts: Any = field(default=None)

    def add(self, array: Any) -> None:
        """Take the finite values of an array in."""
        import numpy as np
        for part in pieces(array):
            sizes = np.abs(part[np.isfinite(part)])
            if self.top > 0.0:
                # NumPy's own histogram overflows where the range is near the largest float.
                place = np.minimum((sizes / self.top * LINEAR_BINS).astype(np.int64), LINEAR_BINS - 1)
            else:
                place = np.zeros(sizes.size, np.int64)
            found = np.bincount(place, minlength=LINEAR_BINS)
            self.counts = found if self.counts is None else self.counts + found
