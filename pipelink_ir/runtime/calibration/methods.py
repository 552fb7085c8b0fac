"""How the part of a range is chosen that codes are to cover. Each method gives `low` and `high` within the extremes that were seen.

minmax       everything that was seen.
percentile   as many values as asked lie within, 99.99 % by default; of the others half is cut off at either end.
mse          the least sum of squared differences between values and what their codes stand for, rounding and clipping together.
entropy      the least loss of information, as TensorRT chooses: S. Migacz, "8-bit Inference with TensorRT", GTC 2017. Magnitudes are counted in 2048 bins;
             for each number of bins from 128 on, the counts up to there, with all beyond added to the last one (P), are compared with themselves merged
             to 128 levels and spread again over the bins that were not empty (Q). The number whose KL divergence of Q from P is least gives the threshold,
             (number + 0.5) bins. Of one where Q is 0 and P is not the divergence is infinite. The first bin counts as often as the second, as in NVIDIA's
             pytorch-quantization: 0.0 has a code of its own, and the many zeros behind a relu would make every large threshold look bad.
"""
from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pipelink_ir.ir.diagnostics import UsageError
from pipelink_ir.passes.precision.calibrated import METHODS, EdgeRange, scale_of
from pipelink_ir.runtime.calibration.histograms import LINEAR_BINS, Linear, Seen, Spread

if TYPE_CHECKING:
    import numpy as np
    Array = np.ndarray[Any, Any]

PERCENTILE = 99.99
LEVELS = 128
"""Codes of a magnitude."""
STEPS = 32
"""Thresholds that `mse` tries in each factor of 2, down to OCTAVES of them below the largest magnitude."""
OCTAVES = 20
GIVE_UP = 8.0
"""Times the least error, beyond which smaller thresholds are not tried."""


def check_method(method: str, percentile: float | None) -> str:
    """The method as the file names it. A `UsageError` for what is none."""
    if method not in METHODS:
        from pipelink_ir.ir.diagnostics import did_you_mean
        raise UsageError(f"there is no method '{method}'; {did_you_mean(method, METHODS) or 'there are ' + ', '.join(METHODS)}")
    if method != "percentile":
        if percentile is not None:
            raise UsageError(f"a percentile is for the method 'percentile', not for '{method}'")
        return method
    share = PERCENTILE if percentile is None else percentile
    if not 50.0 <= share <= 100.0:
        raise UsageError(f"a percentile is from 50 to 100, not {share:g}")
    return f"percentile {share:g}"


def by_percentile(spread: Spread, seen: Seen, share: float) -> tuple[float, float]:
    """The ends between which at least `share` percent of the values lie, half of the others on either side. Of few values none is cut off."""
    import numpy as np
    if share >= 100.0:
        return seen.min, seen.max
    values, counts = spread.points(seen.min, seen.max)
    below = np.cumsum(counts)
    cut = (100.0 - share) / 200.0 * (seen.count - 1)

    def at(rank: float) -> float:
        return float(values[min(int(np.searchsorted(below, rank, side="right")), len(values) - 1)])
    return at(math.floor(cut)), at(math.ceil(seen.count - 1 - cut))


def by_error(spread: Spread, seen: Seen, dtype: str, scheme: str) -> tuple[float, float]:
    """The ends with the least squared error of the values' codes."""
    import numpy as np
    values, counts = spread.points(seen.min, seen.max)
    fractions = 2.0 ** (-np.arange(OCTAVES * STEPS + 1) / STEPS)

    def best(ends: Iterable[tuple[float, float]]) -> tuple[float, float]:
        found, least = (seen.min, seen.max), math.inf
        for e in ends:
            error = squared_error(values, counts, e, dtype, scheme)
            if error < least:
                found, least = e, error
            elif error > GIVE_UP * least:
                break  # more and more is clipped from here on
        return found
    if scheme != "affine" or seen.min >= 0.0 or seen.max <= 0.0:
        # One end decides: that of the larger magnitude.
        return best(within(seen, -t, t) for t in (seen.amax * fractions).tolist())
    low, high = seen.min, seen.max
    for _ in range(2):  # one end after the other; they hardly depend on each other
        low = best((t, high) for t in (seen.min * fractions).tolist())[0]
        high = best((low, t) for t in (seen.max * fractions).tolist())[1]
    return low, high


def within(seen: Seen, low: float, high: float) -> tuple[float, float]:
    """Ends that lie within the extremes."""
    return min(max(seen.min, low), seen.max), max(min(seen.max, high), seen.min)


def squared_error(values: Array, counts: Array, ends: tuple[float, float], dtype: str, scheme: str) -> float:
    """The sum of squared differences between values and what their codes stand for, with codes that cover `ends`."""
    import numpy as np
    scale, zero = scale_of(EdgeRange(*ends, *ends), dtype, scheme)
    if dtype.startswith("f8"):
        from pipelink_ir.ir.dtypes import DTYPES
        from pipelink_ir.passes.precision.calibrated import LARGEST
        top = LARGEST[dtype]
        known = np.clip(values / scale, -top, top).astype(DTYPES[dtype].numpy()).astype(np.float64) * scale
    else:
        first, last = {"u8": (0, 255), "i4": (-7, 7)}.get(dtype, (-128, 127))
        known = (np.clip(np.rint(values / scale) + zero, first, last) - zero) * scale
    with np.errstate(over="ignore"):
        return float((counts * (known - values) ** 2).sum())


def by_entropy(linear: Linear, seen: Seen) -> tuple[float, float]:
    """The ends of the least KL divergence."""
    threshold = (best_bins(linear.counts) + 0.5) * (linear.top / LINEAR_BINS)
    return within(seen, -threshold, threshold)


def best_bins(counts: Any) -> int:
    """The number of bins with the least divergence; the first of several."""
    import numpy as np
    counts = np.array(counts, np.float64)
    counts[0] = counts[1]
    total = counts.sum()
    beyond = total - np.cumsum(counts)
    best, least = len(counts), np.inf
    for bins in range(LEVELS, len(counts) + 1):
        divergence = _divergence(counts[:bins], float(beyond[bins - 1]))
        if divergence < least:
            best, least = bins, divergence
    return best


def _divergence(kept: Array, beyond: float) -> float:
    """Of a distribution merged to 128 levels from itself with what lies beyond added to its last bin."""
    import numpy as np
    if kept[-1] == 0.0 and beyond > 0.0:
        return float("inf")
    starts = np.arange(LEVELS) * len(kept) // LEVELS
    filled = kept > 0.0
    level = np.repeat(np.arange(LEVELS), np.diff(np.append(starts, len(kept))))
    sums, bins = np.add.reduceat(kept, starts), np.add.reduceat(filled.astype(np.float64), starts)
    q = (sums / np.maximum(bins, 1.0))[level][filled]
    p = kept[filled].copy()
    if not p.size:
        return float("inf")
    if filled[-1]:
        p[-1] += beyond
    p, q = p / p.sum(), q / q.sum()
    return float((p * np.log(p / q)).sum())
