"""Sobel and gamma on a frame of 1920 x 1080 (tests/cases/edge_gamma.plir): the CPU backend beside NumPy, interleaved in one run on the same array."""
from __future__ import annotations

import statistics
import sys
import time
from typing import Any

import numpy as np
from common import ROOT, Row, report

import pipelink_ir

PAIRS = 20


def by_numpy(img: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What a careful user of NumPy would write, in f32: padded once, separable sums, powers in place."""
    p = np.pad(img, ((0, 0), (1, 1), (1, 1), (0, 0)), mode="edge")
    dx = p[:, :, 2:] - p[:, :, :-2]
    gx = dx[:, :-2] + 2 * dx[:, 1:-1] + dx[:, 2:]
    dy = p[:, 2:] - p[:, :-2]
    gy = dy[:, :, :-2] + 2 * dy[:, :, 1:-1] + dy[:, :, 2:]
    gx *= gx
    gy *= gy
    gx += gy
    edges = np.sqrt(gx, out=gx).mean(axis=3, keepdims=True)
    return np.power(np.clip(edges, 0, 1, out=edges), np.float32(1 / 2.2), out=edges)


def in_float64(img: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return by_numpy(img.astype(np.float64))


def main() -> int:
    img = (0.2 * np.random.default_rng(0).random((1, 1080, 1920, 3))).astype(np.float32)
    program = pipelink_ir.compile(ROOT / "tests" / "cases" / "edge_gamma.plir", target="cpu")
    exact = in_float64(img)
    error = {"cpu": float(np.abs(program(img=img).out - exact).max()), "NumPy": float(np.abs(by_numpy(img) - exact).max())}
    if error["cpu"] > 1e-5:
        sys.exit(f"wrong results: off by {error['cpu']}")

    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(PAIRS):
        for took, call in ((ours, lambda: program(img=img)), (theirs, lambda: by_numpy(img))):
            start = time.perf_counter()
            call()
            took.append(1000 * (time.perf_counter() - start))
    ratios = sorted(b / a for a, b in zip(ours, theirs, strict=True))
    report("edge_gamma", [
        Row("edge_gamma 1080p f32, pipelink cpu", ours, {"max error": f"{error['cpu']:.1e}"}),
        Row("edge_gamma 1080p f32, NumPy", theirs, {"max error": f"{error['NumPy']:.1e}"}),
    ])
    print(f"  NumPy takes {statistics.median(ratios):.1f} times as long (between {ratios[1]:.1f} and {ratios[-2]:.1f} in {PAIRS} pairs, extremes left out)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
