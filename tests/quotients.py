"""Quotients of a row by one number: programs, numbers of all kinds, and pairs whose quotients are hard to round."""
from __future__ import annotations

import numpy as np

from tests.unit.cuda_emulated.test_schedules import op

ROWS = op("%x: tensor<NxKxf32>, %d: tensor<Nxf32> -> %y: tensor<NxKxf32>", "%y[n, k] = %x[n, k] / %d[n]")
SHARE = op("%x: tensor<NxKxf32> -> %y: tensor<NxKxf32>", "%s[n] = sum[k < K](%x[n, k])\n%y[n, k] = %x[n, k] / %s[n]")
MOST = np.finfo(np.float32).max


def edges() -> np.ndarray:
    """Numbers of all kinds: zeros, below the normal ones, both sides of each border that the kernel looks at, integers, the largest, infinities, NaN."""
    rng = np.random.default_rng(4)
    borders = np.float32(2.0) ** np.array([-149, -140, -127, -126, -125, -102, -101, -100, -99, -50, -2, -1, 0, 1, 2, 24, 25, 26, 100, 126, 127], np.float32)
    near = np.concatenate([borders, np.nextafter(borders, np.float32(0)), np.nextafter(borders, np.float32(np.inf))])
    some = np.concatenate([near, np.float32([0.0, 3.0, 5.0, 6.0, 7.0, 1e9, 1 / 3, MOST, np.inf]), (rng.integers(1, 0x7F800000, 60, np.uint32)).view(np.float32)])
    return np.concatenate([some, -some, np.float32([np.nan])]).astype(np.float32)


def alike(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    return (got.view(np.uint32) == want.view(np.uint32)) | (np.isnan(got) & np.isnan(want))


def hard_to_round() -> tuple[np.ndarray, np.ndarray]:
    """Quotients next to the middle between two numbers. If X and D have 24 digits and N has 25 and is odd, X / D lies within 8 / 2D of N / 2 only where
    X 2^c = N D + k for a small k: N follows from D modulo 2^c."""
    rng = np.random.default_rng(7)
    d = rng.integers(1 << 23, 1 << 24, 1 << 15).astype(np.uint64) | np.uint64(1)
    inverse = np.ones_like(d)
    for _ in range(6):
        inverse *= np.uint64(2) - d * inverse
    xs = []
    for k in (-5, -3, -1, 1, 3, 5):
        for c in (24, 25):
            n = (inverse * np.uint64(-k % (1 << 64))) & np.uint64((1 << c) - 1)
            x = (n * d + np.uint64(k % (1 << 64))) >> np.uint64(c)
            fits = (n >> np.uint64(24) == 1) & (x >> np.uint64(23) == 1)
            xs.append(np.where(fits, x, d + np.uint64(k + 8)).astype(np.float32))
    return np.stack(xs, 1), d.astype(np.float32)


def shares(k: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows whose sums are exact whatever their order, and their quotients by those, known to the last bit."""
    rng = np.random.default_rng(k)
    x = rng.integers(0, 2000, (7, k)).astype(np.float32)
    x[2] *= np.float32(2.0 ** -120)
    x[3] = 0
    x[4, 1::2] *= np.float32(-1)
    x[5] *= np.float32(2.0 ** 100)
    with np.errstate(invalid="ignore"):
        return x, x / x.astype(np.float64).sum(1).astype(np.float32)[:, None]


def divided(x: np.ndarray, d: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        out: np.ndarray = x / d[:, None]
    return out
