"""Run one of the programs that take arrays, from Python: `python examples/arrays.py rows` or `… attention_block`."""
from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import pipelink_ir as pl

HERE = Path(__file__).resolve().parent


def rows(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Inputs of `rows.plir`: x f32 [M, K], g and b f32 [K]."""
    return {"x": rng.standard_normal((4, 16), np.float32), "g": np.ones(16, np.float32), "b": np.zeros(16, np.float32)}


def attention_block(rng: np.random.Generator, batch: int = 2, length: int = 12, channels: int = 32, heads: int = 4) -> dict[str, np.ndarray]:
    """Inputs of `attention_block.plir`: x f32 [B, S, E], mask bool [B, S], and the weights; the last three positions of the second text are padding."""
    def weights(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, np.float32) / np.float32(np.sqrt(shape[0]))

    mask = np.ones((batch, length), bool)
    mask[-1, -3:] = False
    depth, hidden = channels // heads, 4 * channels
    return {"x": rng.standard_normal((batch, length, channels), np.float32), "mask": mask,
            "g1": 1 + 0.1 * weights(channels), "c1": 0.1 * weights(channels), "g2": 1 + 0.1 * weights(channels), "c2": 0.1 * weights(channels),
            "wq": weights(channels, heads, depth), "wk": weights(channels, heads, depth), "wv": weights(channels, heads, depth),
            "wo": weights(heads, depth, channels), "w1": weights(channels, hidden), "b1": 0.1 * weights(hidden),
            "w2": weights(hidden, channels), "b2": 0.1 * weights(channels)}


def main() -> int:
    inputs = {"rows": rows, "attention_block": attention_block}
    if len(sys.argv) != 2 or sys.argv[1] not in inputs:
        print(f"usage: python examples/arrays.py {'|'.join(inputs)}", file=sys.stderr)
        return 2
    name = sys.argv[1]
    program = pl.compile(HERE / f"{name}.plir")
    results = program(**inputs[name](np.random.default_rng(0)))
    for result, array in results.items():
        print(f"%{result}: {array.dtype}{list(array.shape)}, mean {array.mean():.4f}, from {array.min():.4f} to {array.max():.4f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
