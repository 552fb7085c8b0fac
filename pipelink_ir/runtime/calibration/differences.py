"""How far two runs are apart, edge by edge, gathered while samples stream by.

The error of an edge is as budgets define it: the largest difference over the largest magnitude that the first run has there, over all samples. What is NaN,
or the same infinity, in both runs counts as equal; NaN or an infinity in one of them only makes the error infinite.
"""
from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from pipelink_ir.runtime.calibration.histograms import pieces


@dataclass(slots=True)
class Difference:
    """The values of one edge in a first run beside those in a second one."""

    worst: float = 0.0
    """The largest absolute difference."""
    amax: float = 0.0
    """The largest magnitude of the first run."""
    low: float = math.inf
    high: float = -math.inf
    squares: float = 0.0
    """Of differences."""
    first: float = 0.0
    second: float = 0.0
    both: float = 0.0
    """Sums of squares of either, and of products: for the cosine."""
    count: int = 0
    lost: int = 0
    """Elements that are finite in one run only, or different infinities."""

    def add(self, a: Any, b: Any) -> None:
        """Take a sample in."""
        import numpy as np
        if np.shape(a) != np.shape(b):
            self.lost += max(np.size(a), np.size(b))
            return
        with np.errstate(over="ignore", invalid="ignore"):
            for x, y in zip(pieces(a), pieces(b), strict=True):
                fine = np.isfinite(x) & np.isfinite(y)
                if not fine.all():
                    same = (np.isnan(x) & np.isnan(y)) | (x == y)
                    self.lost += int((~fine & ~same).sum())
                    x, y = x[fine], y[fine]
                if not x.size:
                    continue
                apart = y - x
                self.worst = max(self.worst, float(np.abs(apart).max()))
                self.amax = max(self.amax, float(np.abs(x).max()))
                self.low, self.high = min(self.low, float(x.min())), max(self.high, float(x.max()))
                self.squares += float(np.dot(apart, apart))
                self.first += float(np.dot(x, x))
                self.second += float(np.dot(y, y))
                self.both += float(np.dot(x, y))
                self.count += x.size

    @property
    def error(self) -> float:
        """The largest difference over the largest magnitude."""
        if self.lost:
            return math.inf
        if self.worst == 0.0:
            return 0.0
        return self.worst / self.amax if self.amax else math.inf

    @property
    def rms(self) -> float:
        """Root mean square of differences."""
        return math.sqrt(self.squares / self.count) if self.count else 0.0

    @property
    def psnr(self) -> float:
        """Peak signal to noise in dB; the peak is the range of the first run. Infinite where the runs are equal."""
        if self.lost:
            return -math.inf
        if self.squares == 0.0:
            return math.inf
        span = self.high - self.low
        return 20.0 * math.log10(span / self.rms) if span > 0.0 and 0.0 < self.rms < math.inf else -math.inf

    @property
    def cosine(self) -> float:
        """Of the angle between the runs as vectors; 1 where they are equal, 0 where only one of them is 0."""
        if self.lost:
            return math.nan
        if self.squares == 0.0:
            return 1.0
        length = math.sqrt(self.first) * math.sqrt(self.second)
        if not math.isfinite(length) or not math.isfinite(self.both):
            return math.nan
        return max(-1.0, min(1.0, self.both / length)) if length else 0.0
