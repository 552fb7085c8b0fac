"""The networks of `examples/precision` in NumPy, f64, with no roundings: what their results are measured against."""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
FOLDER = Path(__file__).resolve().parents[2] / "examples" / "precision"


def weights(program: str) -> dict[str, Array]:
    """The stored weights of a program."""
    with np.load(FOLDER / f"{program}.npz") as file:
        return {name: file[name] for name in file.files}


def _window(x: Array) -> Iterator[tuple[int, int, Array]]:
    """The pixel at each of nine distances from every pixel, zeros beyond the picture."""
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    height, width = x.shape[1:3]
    for dy in range(3):
        for dx in range(3):
            yield dy, dx, padded[:, dy:dy + height, dx:dx + width]


def conv(x: Array, k: Array, b: Array) -> Array:
    return sum((near @ k[dy, dx] for dy, dx, near in _window(x)), b)


def depthwise(x: Array, k: Array, b: Array) -> Array:
    return sum((near * k[dy, dx] for dy, dx, near in _window(x)), b)


def relu(x: Array) -> Array:
    return np.maximum(x, 0)


def pool(x: Array) -> Array:
    n, h, w, c = x.shape
    return x[:, :h // 2 * 2, :w // 2 * 2].reshape(n, h // 2, 2, w // 2, 2, c).max((2, 4))


def denoise(noisy: Array, p: dict[str, Array]) -> Array:
    """The picture without its noise."""
    p = {name: a.astype(np.float64) for name, a in p.items()}
    picture = noisy.astype(np.float64)
    x = relu(conv(picture, p["k0"], p["b0"]))
    for i in range(1, 5):
        x = relu(depthwise(x, p[f"dk{i}"], p[f"db{i}"]))
        x = relu(x @ p[f"pk{i}"] + p[f"pb{i}"])
    return picture - conv(x, p["k5"], p["b5"])


def inspect(part: Array, p: dict[str, Array]) -> Array:
    """The scores of the classes."""
    p = {name: a.astype(np.float64) for name, a in p.items()}
    x = relu(conv(part.astype(np.float64), p["k0"], p["b0"]))
    for i in range(1, 4):
        x = relu(depthwise(x, p[f"dk{i}"], p[f"db{i}"]))
        x = pool(relu(x @ p[f"pk{i}"] + p[f"pb{i}"]))
    return x.mean((1, 2)) @ p["w"] + p["b"]


def _norm(x: Array, g: Array, b: Array) -> Array:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * g + b


def transformer(x: Array, mask: Array, p: dict[str, Array]) -> Array:
    """The block's result."""
    p = {name: a.astype(np.float64) for name, a in p.items()}
    x = x.astype(np.float64)
    n = _norm(x, p["g1"], p["c1"])
    q, k, v = (np.einsum("bse,ehd->bhsd", n, p[w]) for w in ("wq", "wk", "wv"))
    s = np.where(mask[:, None, None, :], np.einsum("bhid,bhjd->bhij", q, k) / np.sqrt(q.shape[-1]), -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    mid = x + np.einsum("bhsd,hde->bse", (e / e.sum(-1, keepdims=True)) @ v, p["wo"])
    up = _norm(mid, p["g2"], p["c2"]) @ p["w1"] + p["b1"]
    act = 0.5 * up * (1 + np.tanh(np.sqrt(2 / np.pi) * (up + 0.044715 * up ** 3)))
    return mid + act @ p["w2"] + p["b2"]


def psnr(picture: Array, clean: Array) -> float:
    """Of pictures from 0 to 1, in decibels."""
    return float(-10 * np.log10(np.mean((picture.astype(np.float64) - clean) ** 2)))


def relative(result: Array, reference: Array) -> float:
    """What a budget speaks of: the largest error over the largest magnitude."""
    return float(np.abs(result.astype(np.float64) - reference).max() / np.abs(reference).max())
