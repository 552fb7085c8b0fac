"""Arrays for generated programs: from a seed, so that a failing sample is a small thing to report.

A palette says what floats and integers look like. `tame` values keep most functions in their domain, `whole` ones are small integers (many equal values,
exact sums), `halves` sit on the ties of rounding, `wild` ones are NaN, infinities, signed zeros, subnormals and the ends of each dtype.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelink_ir.ir.dtypes import DTYPES, DType

Array = NDArray[Any]

PALETTES = ("tame", "whole", "halves", "wild")


@dataclass(frozen=True)
class Input:
    """An input of a pipeline. `dims` are Python expressions over the sizes. `fill`: `any`, `index` (mostly within 0…`within`) or `offsets` (ascending)."""

    name: str
    dtype: str
    dims: tuple[str, ...]
    fill: str = "any"
    within: str = "1"


@dataclass(frozen=True)
class Sample:
    """One call: sizes of the dimensions, and what fills the arrays."""

    sizes: Mapping[str, int]
    seed: int
    palette: str = "tame"
    stray: bool = False
    """Whether indices leave their range."""


@dataclass(frozen=True)
class Program:
    """A text with one pipeline, what it is called with, and which calls are made. `tags` are counted beside what the text holds."""

    text: str
    inputs: tuple[Input, ...]
    samples: tuple[Sample, ...]
    tags: tuple[str, ...] = field(default=())

    def __repr__(self) -> str:
        return f"Program(\n{self.text}\n{self.inputs}\n{self.samples})"


def arrays(program: Program, sample: Sample) -> dict[str, Array]:
    """The arrays of one call."""
    rng = np.random.default_rng(sample.seed)
    return {i.name: _array(i, sample, rng) for i in program.inputs}


def size(text: str, sizes: Mapping[str, int]) -> int:
    """A dimension, which is written by the generator in Python's syntax."""
    return int(eval(text, {"__builtins__": {}}, dict(sizes)))


def _array(i: Input, sample: Sample, rng: np.random.Generator) -> Array:
    shape = tuple(max(0, size(d, sample.sizes)) for d in i.dims)
    dtype = DTYPES[i.dtype]
    if i.fill == "index":
        return _index(shape, size(i.within, sample.sizes), sample.stray, rng).astype(dtype.numpy())
    if i.fill == "offsets":
        top = size(i.within, sample.sizes)
        ends = np.sort(rng.integers(0, top + 1, shape), axis=-1)
        return (ends + (rng.integers(-2, 3, shape) if sample.stray else 0)).astype(dtype.numpy())
    return _values(shape, dtype, sample.palette, rng)


def _index(shape: tuple[int, ...], top: int, stray: bool, rng: np.random.Generator) -> Array:
    if stray:
        return rng.integers(-top - 2, 2 * top + 3, shape)
    return rng.integers(0, max(top, 1), shape)


def _values(shape: tuple[int, ...], dtype: DType, palette: str, rng: np.random.Generator) -> Array:
    if dtype.kind == "bool":
        return rng.random(shape) < 0.6
    if dtype.is_int:
        return _integers(shape, dtype, palette, rng)
    if palette == "whole":
        values = rng.integers(-4, 5, shape).astype(np.float64)
    elif palette == "halves":
        values = rng.integers(-9, 10, shape) / 2
    else:
        values = rng.normal(0, 2, shape)
    if palette == "wild":
        values = np.where(rng.random(shape) < 0.4, rng.choice(_special(dtype), shape), values)
    with np.errstate(all="ignore"):
        return np.asarray(values).astype(dtype.numpy())


def _special(dtype: DType) -> Array:
    largest = {"f8e4m3": 448.0, "f8e5m2": 57344.0, "f16": 65504.0}.get(dtype.name, 3.0e38)
    least = {"f8e4m3": 2.0**-9, "f8e5m2": 2.0**-16, "f16": 2.0**-24}.get(dtype.name, 1e-45)
    infinity = np.nan if dtype.name == "f8e4m3" else np.inf
    return np.array([np.nan, infinity, -infinity, 0.0, -0.0, 1.0, -1.0, largest, -largest, least, -least, 0.5, -2.5, 3e9, -3e9, 1e-40 if largest > 1e38 else least])


def _integers(shape: tuple[int, ...], dtype: DType, palette: str, rng: np.random.Generator) -> Array:
    low = max(dtype.lowest, -9)
    values = rng.integers(low, 10, shape)
    if palette in ("wild", "tame"):
        share = 0.3 if palette == "wild" else 0.1
        ends = np.array([dtype.lowest, dtype.highest, dtype.lowest + 1, dtype.highest - 1, 0, 1, max(dtype.lowest, -1), dtype.highest // 2], object)
        values = np.where(rng.random(shape) < share, ends[rng.integers(0, len(ends), shape)], values)
    return np.asarray(values).astype(dtype.numpy())
