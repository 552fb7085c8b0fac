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
    """Counts by the leading bits of values."""

    counts: Any = None

    def add(self, array: Any) -> None:
        """Take the finite values of an array in."""
        import numpy as np
        for part in pieces(array):
            with np.errstate(over="ignore"):
                values = np.clip(part[np.isfinite(part)], -_LARGEST, _LARGEST).astype(np.float32)
            found = np.bincount(values.view(np.uint32) >> (32 - BITS), minlength=1 << BITS)
            self.counts = found if self.counts is None else self.counts + found

    def points(self, low: float, high: float) -> tuple[Array, Array]:
        """The values that stand for bins with something in them, ascending and within `low` to `high`, and how many there are of each."""
        import numpy as np
        order, centres = _bins()
        counts = (self.counts if self.counts is not None else np.zeros(1 << BITS, np.int64))[order]
        full = counts > 0
        return np.clip(centres[full], low, high), counts[full]


_LARGEST = 3.4028234663852886e38


@cache
def _bins() -> tuple[Array, Array]:
    """Numbers of the bins of finite values in ascending order of these, and a value in the middle of each; bins at zero stand for zero."""
    import numpy as np
    half = 1 << (BITS - 1)
    finite = np.arange(255 << (BITS - 9))
    lowest = (finite.astype(np.uint32) << (32 - BITS)).view(np.float32).astype(np.float64)
    next_up = np.append(lowest[1:], 2.0 ** 128)
    centres = (lowest + next_up) / 2
    centres[0] = 0.0
    return np.concatenate([half + finite[::-1], finite]), np.concatenate([-centres[::-1], centres])


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
