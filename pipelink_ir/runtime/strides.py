"""Arithmetic of shapes and strides: what is dense, what is pitched, what overlaps. Strides are in bytes here, and nothing touches memory.

Strides of axes of size 1, and all strides of an array without elements, mean nothing.
"""
from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

BRUTE = 1 << 20
"""Up to so many elements, overlap inside one array is decided by looking at every element."""


def dense(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Row-major strides without gaps."""
    out, step = [], itemsize
    for size in reversed(shape):
        out.append(step)
        step *= max(size, 1)
    return tuple(reversed(out))


def contiguity(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> str:
    """`dense`, `rows` (row-major with a gap behind the rows of one axis), or `any`."""
    if 0 in shape:
        return "dense"
    step, gaps = itemsize, 0
    for axis in range(len(shape) - 1, -1, -1):
        size, stride = shape[axis], strides[axis]
        if size == 1:
            continue
        if stride != step:
            # One axis may lie further apart than what is inside it needs; not the last, whose elements are neighbours in a row.
            if stride < step or gaps or axis == len(shape) - 1:
                return "any"
            gaps, step = 1, stride
        step *= size
    return "rows" if gaps else "dense"


def pitch(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> int | None:
    """Bytes from row to row of pitched memory: the stride at which its gap lies. Of dense memory the length of a row, of strided memory None."""
    step = itemsize
    kind = contiguity(shape, strides, itemsize)
    if kind == "any" or len(shape) < 2:
        return None
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != step:
            return stride
        step *= size
    return itemsize * shape[-1]


def extent(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> tuple[int, int]:
    """First and one past the last byte, relative to the first element; (0, 0) without elements."""
    if 0 in shape:
        return 0, 0
    low = sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if s < 0)
    high = sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if s > 0)
    return low, high + itemsize


def memory_order(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """The axes from the outermost in memory to the innermost; axes of size 1 keep their place among the others."""
    return tuple(sorted(range(len(shape)), key=lambda k: (-abs(strides[k]) if shape[k] != 1 else -_around(shape, strides, k), k)))


def _around(shape: Sequence[int], strides: Sequence[int], axis: int) -> int:
    """The stride that an axis of size 1 would have beside the next axis that has elements."""
    for k in range(axis + 1, len(shape)):
        if shape[k] != 1:
            return abs(strides[k]) * shape[k]
    return 0


def repeats(shape: Sequence[int], strides: Sequence[int]) -> int | None:
    """The axis along which one element stands for many (stride 0), None if there is none."""
    if 0 in shape:
        return None
    return next((k for k, (n, s) in enumerate(zip(shape, strides, strict=True)) if n > 1 and s == 0), None)


def overlaps_itself(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> bool:
    """Whether two elements share memory; True where that cannot be decided with little effort."""
    if 0 in shape:
        return False
    axes = sorted((abs(s), n) for n, s in zip(shape, strides, strict=True) if n > 1)
    span = itemsize
    for stride, size in axes:
        if stride < span:
            break
        span += stride * (size - 1)
    else:
        return False
    if prod(shape) > BRUTE:
        return True
    places = {0}
    for stride, size in axes:
        places = {p + stride * k for p in places for k in range(size)}
    if len(places) != prod(shape):
        return True
    ordered = sorted(places)
    return any(b - a < itemsize for a, b in pairwise(ordered))


def alignment(address: int, most: int = 4096) -> int:
    """The largest power of two, up to `most`, that divides an address."""
    return most if address == 0 else min(address & -address, most)
