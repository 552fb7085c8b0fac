"""Pictures and arrays for the programs of this folder, made from a seed: `python examples/precision/data.py denoiser out/pictures.npz` writes what
`pipelinkc calibrate` and `pipelinkc compare` read.

What training, calibration and tests see is drawn by the same functions from different seeds, so no two of them share a picture.
"""
from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

NOISE = 0.1
"""Standard deviation of the noise that the denoiser was trained for, of pictures from 0 to 1."""

CLASSES = ("none", "scratch", "crack", "spot", "stain", "pits", "dent", "chatter")
"""What the inspection net tells apart, in the order of its scores."""

SEEDS = {"training": 1, "calibration": 2, "test": 3}


def _grid(size: int) -> tuple[Array, Array]:
    y, x = np.mgrid[0:size, 0:size] / (size - 1)
    return y, x


def _soft(distance: Array, width: float) -> Array:
    """1 inside, 0 outside, and a ramp of some pixels between."""
    return np.clip(0.5 - distance / width, 0, 1)


def shapes(rng: np.random.Generator, count: int, size: int) -> Array:
    """Grey pictures without noise, f32 [N, H, W, 1] from 0 to 1: discs, boxes and waves before a slope."""
    y, x = _grid(size)
    pictures = np.empty((count, size, size, 1), np.float32)
    for picture in pictures:
        image = 0.5 + 0.4 * (rng.uniform(-1, 1) * (x - 0.5) + rng.uniform(-1, 1) * (y - 0.5))
        for _ in range(rng.integers(4, 9)):
            angle, value = rng.uniform(0, np.pi), rng.uniform(0, 1)
            u, v = x - rng.uniform(0, 1), y - rng.uniform(0, 1)
            u, v = u * np.cos(angle) + v * np.sin(angle), v * np.cos(angle) - u * np.sin(angle)
            a, b = rng.uniform(0.05, 0.35, 2)
            disc = np.hypot(u / a, v / b) - 1
            box = np.maximum(np.abs(u) / a, np.abs(v) / b) - 1
            inside = _soft(disc if rng.random() < 0.5 else box, 2 / (size * min(a, b)))
            wave = rng.uniform(0, 0.15) * np.sin(rng.uniform(5, 30) * u) if rng.random() < 0.5 else 0
            image = image * (1 - inside) + inside * (value + wave)
        picture[..., 0] = np.clip(image, 0, 1)
    return pictures


def noisy(rng: np.random.Generator, clean: Array) -> Array:
    """The same pictures with Gaussian noise, f16."""
    return (clean + NOISE * rng.standard_normal(clean.shape)).astype(np.float16)


def _line(y: Array, x: Array, start: Array, end: Array) -> Array:
    """How far each pixel is from a line between two points."""
    along = end - start
    t = np.clip(((y - start[0]) * along[0] + (x - start[1]) * along[1]) / (along @ along + 1e-9), 0, 1)
    return np.hypot(y - start[0] - t * along[0], x - start[1] - t * along[1])


def _walk(rng: np.random.Generator, steps: int, length: float) -> Array:
    """The corners of a crack: each stretch turns from the one before."""
    angles = rng.uniform(0, 2 * np.pi) + np.cumsum(rng.uniform(-1.1, 1.1, steps))
    points = np.cumsum(length * np.stack([np.sin(angles), np.cos(angles)], 1), 0)
    return points - points.mean(0) + rng.uniform(0.35, 0.65, 2)


def _scratch(rng: np.random.Generator, y: Array, x: Array) -> Array:
    middle, angle, half = rng.uniform(0.35, 0.65, 2), rng.uniform(0, np.pi), rng.uniform(0.25, 0.4)
    along = half * np.array([np.sin(angle), np.cos(angle)])
    return rng.uniform(0.12, 0.35) * _soft(_line(y, x, middle - along, middle + along) - 0.012, 0.03)


def _crack(rng: np.random.Generator, y: Array, x: Array) -> Array:
    points = _walk(rng, 7, rng.uniform(0.09, 0.13))
    distance = np.min([_line(y, x, a, b) for a, b in pairwise(points)], 0)
    return -rng.uniform(0.12, 0.35) * _soft(distance - 0.012, 0.03)


def _spot(rng: np.random.Generator, y: Array, x: Array) -> Array:
    middle, radius = rng.uniform(0.25, 0.75, 2), rng.uniform(0.06, 0.1)
    return -rng.uniform(0.12, 0.35) * _soft(np.hypot(y - middle[0], x - middle[1]) - radius, 0.03)


def _stain(rng: np.random.Generator, y: Array, x: Array) -> Array:
    total = np.zeros_like(x)
    middle = rng.uniform(0.35, 0.65, 2)
    for _ in range(5):
        at = middle + rng.uniform(-0.12, 0.12, 2)
        total += np.exp(-((y - at[0]) ** 2 + (x - at[1]) ** 2) / (2 * rng.uniform(0.08, 0.13) ** 2))
    return -rng.uniform(0.06, 0.14) * np.minimum(total, 2)


def _pits(rng: np.random.Generator, y: Array, x: Array) -> Array:
    total = np.zeros_like(x)
    middle = rng.uniform(0.35, 0.65, 2)
    for at in middle + rng.uniform(-0.22, 0.22, (rng.integers(9, 15), 2)):
        total = np.maximum(total, _soft(np.hypot(y - at[0], x - at[1]) - 0.015, 0.03))
    return -rng.uniform(0.12, 0.35) * total


def _dent(rng: np.random.Generator, y: Array, x: Array) -> Array:
    middle, angle, radius = rng.uniform(0.35, 0.65, 2), rng.uniform(0, 2 * np.pi), rng.uniform(0.1, 0.15)
    u, v = (x - middle[1]) / radius, (y - middle[0]) / radius
    return rng.uniform(0.15, 0.4) * (u * np.cos(angle) + v * np.sin(angle)) * np.exp(0.5 - (u * u + v * v) / 2)


def _chatter(rng: np.random.Generator, y: Array, x: Array) -> Array:
    angle = rng.uniform(0, np.pi)
    return rng.uniform(0.04, 0.1) * np.sin(rng.uniform(45, 65) * (x * np.cos(angle) + y * np.sin(angle)) + rng.uniform(0, 6))


def defects(rng: np.random.Generator, count: int, size: int = 64) -> tuple[Array, Array]:
    """Pictures of brushed metal, f16 [N, H, W, 1], and the class of each, i64 [N]: as many of each class as come out even, in random order."""
    y, x = _grid(size)
    draw: dict[str, Callable[[np.random.Generator, Array, Array], Array]] = {
        "scratch": _scratch, "crack": _crack, "spot": _spot, "stain": _stain, "pits": _pits, "dent": _dent, "chatter": _chatter}
    labels = rng.permutation(np.arange(count) % len(CLASSES))
    pictures = np.empty((count, size, size, 1), np.float16)
    for picture, label in zip(pictures, labels, strict=True):
        grain = np.cumsum(rng.standard_normal((size, size + 16)), 1)
        brushed = 0.006 * (grain[:, 16:] - grain[:, :-16])
        surface = rng.uniform(0.45, 0.6) + 0.1 * (rng.uniform(-1, 1) * (x - 0.5) + rng.uniform(-1, 1) * (y - 0.5)) + brushed
        surface += 0.02 * rng.standard_normal((size, size))
        if CLASSES[label] in draw:
            surface += draw[CLASSES[label]](rng, y, x)
        picture[..., 0] = np.clip(surface, 0, 1)
    return pictures, labels


def transformer(rng: np.random.Generator, batch: int = 2, length: int = 12, channels: int = 1024, heads: int = 16) -> tuple[dict[str, Array], dict[str, Array]]:
    """Inputs of `transformer.plir` and its weights, f16; the last quarter of the second text is padding."""
    def weights(*shape: int, terms: int) -> Array:
        return (rng.standard_normal(shape) / np.sqrt(terms)).astype(np.float16)

    mask = np.ones((batch, length), bool)
    mask[1:2, -(length // 4):] = False
    depth, hidden = channels // heads, 4 * channels
    inputs = {"x": rng.standard_normal((batch, length, channels)).astype(np.float16), "mask": mask}
    params = {"g1": 1 + weights(channels, terms=100), "c1": weights(channels, terms=100),
              "g2": 1 + weights(channels, terms=100), "c2": weights(channels, terms=100),
              "wq": weights(channels, heads, depth, terms=channels), "wk": weights(channels, heads, depth, terms=channels),
              "wv": weights(channels, heads, depth, terms=channels), "wo": weights(heads, depth, channels, terms=channels),
              "w1": weights(channels, hidden, terms=channels), "b1": weights(hidden, terms=100),
              "w2": weights(hidden, channels, terms=hidden), "b2": weights(channels, terms=100)}
    return inputs, params


def arrays(program: str, use: str, count: int = 8, size: int = 64) -> dict[str, Array]:
    """What a program reads besides its weights, drawn for one of the uses of `SEEDS`."""
    rng = np.random.default_rng(SEEDS[use])
    if program == "denoiser":
        return {"noisy": noisy(rng, shapes(rng, count, size))}
    if program == "inspection":
        return {"part": defects(rng, 4 * count, size)[0]}
    return transformer(rng, 2, 32)[0]


def transformer_weights() -> dict[str, Array]:
    """The weights that the ranges of `transformer.plir` were measured with."""
    return transformer(np.random.default_rng(SEEDS["training"]))[1]


def main() -> int:
    programs = ("denoiser", "inspection", "transformer", "transformer-weights")
    if len(sys.argv) not in (3, 4) or sys.argv[1] not in programs or (len(sys.argv) == 4 and sys.argv[3] not in SEEDS):
        print(f"usage: python examples/precision/data.py {'|'.join(programs)} FILE.npz [{'|'.join(SEEDS)}]", file=sys.stderr)
        return 2
    data = transformer_weights() if sys.argv[1] == programs[-1] else arrays(sys.argv[1], sys.argv[3] if len(sys.argv) == 4 else "calibration")
    np.savez_compressed(Path(sys.argv[2]), **data)
    for name, array in data.items():
        print(f"%{name}: {array.dtype}{list(array.shape)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
