"""How ranges are chosen from what was seen: percentile, mse and entropy beside plain computations on all values."""
from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from pipelink_ir.ir.diagnostics import UsageError
from pipelink_ir.runtime.calibration.histograms import LINEAR_BINS, Linear, Seen, Spread
from pipelink_ir.runtime.calibration.methods import best_bins, by_entropy, by_error, by_percentile, check_method

RNG = np.random.default_rng(7)
DATA: dict[str, Any] = {
    "normal": RNG.standard_normal(60_000).astype(np.float32),
    "outliers": np.concatenate([RNG.standard_normal(50_000), [400.0, -700.0]]).astype(np.float32),
    "relu": np.maximum(RNG.standard_normal(50_000), 0).astype(np.float32) * 3,
    "laplace": RNG.laplace(0, 2, 50_000).astype(np.float16),
    "shifted": (RNG.standard_normal(40_000) + 5).astype(np.float32),
    "negative": -RNG.random(30_000).astype(np.float32),
    "tiny": (RNG.standard_normal(20_000) * 1e-30).astype(np.float32),
}


def seen(x: Any, parts: int = 3) -> tuple[Seen, Spread]:
    """What is kept of an array that comes in parts."""
    s, spread = Seen(), Spread()
    for part in np.array_split(x, parts):
        s.add(part)
        spread.add(part)
    return s, spread


@pytest.mark.parametrize("name", DATA)
def test_extremes_and_sums(name: str) -> None:
    x, s = DATA[name].astype(np.float64), seen(DATA[name])[0]
    assert (s.min, s.max, s.count, s.nan, s.inf) == (x.min(), x.max(), x.size, 0, 0)
    assert s.rms == pytest.approx(np.sqrt(np.mean(x * x)), rel=1e-12)


def test_what_is_not_finite_is_counted_and_left_out() -> None:
    s, spread = seen(np.array([np.nan, 1.0, np.inf, -2.0, -np.inf, np.nan], np.float32), 2)
    assert (s.min, s.max, s.count, s.nan, s.inf) == (-2.0, 1.0, 2, 2, 2)
    values, counts = spread.points(s.min, s.max)
    assert values.tolist() == pytest.approx([-2.0, 1.0], rel=4e-3)
    assert counts.tolist() == [1, 1]


def test_nothing_and_all_nan() -> None:
    for x in (np.zeros((0, 3), np.float32), np.full(4, np.nan, np.float32)):
        s, spread = seen(x)
        assert s.count == 0
        assert s.rms == 0.0
        assert s.amax == 0.0
        assert spread.points(0.0, 0.0)[0].size == 0


@pytest.mark.parametrize("share", [99.99, 99.0, 90.0, 50.0])
@pytest.mark.parametrize("name", DATA)
def test_percentile_beside_numpy(name: str, share: float) -> None:
    s, spread = seen(DATA[name])
    low, high = by_percentile(spread, s, share)
    cut = (100 - share) / 2
    for got, q in ((low, cut), (high, 100 - cut)):
        # Values within a bin of 0.4 % are one; and between two values NumPy picks one by its rule.
        wanted = [np.percentile(DATA[name].astype(np.float64), q, method=m) for m in ("lower", "higher")]
        assert any(got == pytest.approx(w, rel=5e-3, abs=1e-38) for w in wanted)


def test_percentile_100_is_everything() -> None:
    s, spread = seen(DATA["outliers"])
    assert by_percentile(spread, s, 100.0) == (-700.0, 400.0)


def squared(x: Any, low: float, high: float, first: int, last: int, affine: bool) -> float:
    """The squared error of codes, computed plainly on all values."""
    low, high = min(low, 0.0), max(high, 0.0)
    if affine:
        scale = (high - low) / (last - first)
        zero = min(max(first + round(-low / scale), first), last)
    else:
        scale, zero = max(high, -low) / 127, 0
    codes = np.clip(np.round(x / scale) + zero, first, last)
    return float((((codes - zero) * scale - x) ** 2).sum())


@pytest.mark.parametrize("name", [n for n in DATA if n != "tiny"])
def test_mse_symmetric_beside_brute_force(name: str) -> None:
    x, (s, spread) = DATA[name].astype(np.float64), seen(DATA[name])
    low, high = by_error(spread, s, "i8", "symmetric")
    assert s.min <= low <= high <= s.max
    amax = np.abs(x).max()
    best = min(squared(x, -t, t, -128, 127, False) for t in amax * np.geomspace(1, 1e-3, 400))
    assert squared(x, low, high, -128, 127, False) <= 1.02 * best


@pytest.mark.parametrize("name", ["normal", "outliers", "relu", "shifted", "negative"])
def test_mse_affine_beside_brute_force(name: str) -> None:
    x, (s, spread) = DATA[name][:8000].astype(np.float64), seen(DATA[name][:8000])
    low, high = by_error(spread, s, "u8", "affine")
    steps = np.geomspace(1, 0.02, 40)
    lows = min(x.min(), 0.0) * steps if x.min() < 0 else [0.0]
    highs = max(x.max(), 0.0) * steps if x.max() > 0 else [0.0]
    best = min(squared(x, a, b, 0, 255, True) for a in lows for b in highs)
    assert squared(x, low, high, 0, 255, True) <= 1.03 * best


def divergences(x: Any) -> list[float]:
    """The divergence for each number of bins from 128 on, in the words of the slides: "8-bit Inference with TensorRT", GTC 2017. Zeros do not count."""
    sizes = np.abs(x.astype(np.float64))
    counts = np.histogram(sizes, bins=LINEAR_BINS, range=(0.0, sizes.max()))[0].astype(float)
    counts[0] = counts[1]
    out = []
    for i in range(128, LINEAR_BINS + 1):
        p = counts[:i].copy()
        p[i - 1] += counts[i:].sum()
        q = np.zeros(i)
        for level in range(128):
            a, b = level * i // 128, (level + 1) * i // 128
            full = [k for k in range(a, b) if counts[k] > 0]
            for k in full:
                q[k] = counts[a:b].sum() / len(full)
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = np.where(p > 0, p / p.sum() * np.log((p / p.sum()) / (q / q.sum())), 0.0)
        out.append(float(terms.sum()))
    return out


@pytest.mark.parametrize("name", ["normal", "outliers", "relu"])
def test_entropy_beside_the_slides(name: str) -> None:
    x = DATA[name][:6000] if name != "outliers" else DATA[name][-6000:]
    s = seen(x)[0]
    linear = Linear(s.amax)
    for part in np.array_split(x, 2):
        linear.add(part)
    sizes = np.abs(x.astype(np.float64))
    assert np.abs(linear.counts - np.histogram(sizes, bins=LINEAR_BINS, range=(0.0, sizes.max()))[0]).sum() <= 4  # at the edges of bins
    low, high = by_entropy(linear, s)
    table = divergences(x)
    best = 128 + int(np.argmin(table))
    assert table[best_bins(linear.counts) - 128] <= table[best - 128] + 1e-6
    threshold = (best_bins(linear.counts) + 0.5) * s.amax / LINEAR_BINS
    assert (low, high) == (max(s.min, -threshold), min(s.max, threshold))


def test_zeros_behind_a_relu_do_not_move_the_threshold() -> None:
    """Half of the values are 0 and cost nothing, so what is clipped is as little as without them."""
    x = np.maximum(np.random.default_rng(0).standard_normal(131_072), 0).astype(np.float32)
    s = seen(x)[0]
    linear = Linear(s.amax)
    linear.add(x)
    low, high = by_entropy(linear, s)
    assert low == 0.0
    assert (x > high).mean() < 1e-3


@pytest.mark.parametrize("x", [np.zeros(50, np.float32), np.full(50, 2.5, np.float32), np.full(50, -3.0, np.float16), np.array([3.0e38, -3.0e38], np.float32),
                               np.array([1.7e308, -1.0], np.float64), np.array([1e-45], np.float32)], ids=["zeros", "one", "minus", "huge", "f64", "least"])
def test_odd_values_have_ends_within_what_was_seen(x: Any) -> None:
    s, spread = seen(x, 1)
    linear = Linear(s.amax)
    linear.add(x)
    for low, high in (by_percentile(spread, s, 99.9), by_error(spread, s, "i8", "symmetric"), by_error(spread, s, "u8", "affine"),
                      by_error(spread, s, "f8e4m3", "symmetric"), by_entropy(linear, s)):
        assert s.min <= low <= high <= s.max
        assert math.isfinite(low)
        assert math.isfinite(high)


@pytest.mark.parametrize(("method", "percentile"), [("mean", None), ("mse", 99.0), ("percentile", 30.0), ("percentile", 100.5), ("percentile", math.nan)])
def test_methods_that_are_none(method: str, percentile: float | None) -> None:
    with pytest.raises(UsageError):
        check_method(method, percentile)


def test_names_of_methods() -> None:
    assert [check_method(m, None) for m in ("minmax", "percentile", "mse")] == ["minmax", "percentile 99.99", "mse"]
    assert check_method("percentile", 99.9) == "percentile 99.9"
