"""The grid over which an expression is evaluated at once.

A frame has an axis for every index in scope. Values are arrays that broadcast to its shape: of its rank, with size 1 along the axes that they do not
depend on, or of rank 0. The mask says where the value is wanted; nothing outside it may fail.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """`parent` is the frame that this one was made of by `extend`, `collapse` or `part`; `slices` is its place in the parent for a part."""

    shape: tuple[int, ...]
    env: Mapping[str, Array]
    mask: Array | None = None
    parent: Frame | None = None
    slices: tuple[slice, ...] | None = None

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return prod(self.shape)

    def where(self, condition: Array) -> Frame:
        """This frame, wanted only where the condition holds as well."""
        return replace(self, mask=condition if self.mask is None else self.mask & condition)

    def wanted(self) -> bool:
        """Whether a value is wanted anywhere."""
        return self.size > 0 and (self.mask is None or bool(self.mask.any()))

    def among(self, positions: Array) -> Array:
        """`positions` without those where nothing is wanted."""
        return positions if self.mask is None else positions & self.mask

    def extend(self, index: str, lo: Array, length: int) -> Frame:
        """One axis more, at the end, along which `index` counts from `lo`."""
        env = {name: append_axis(a) for name, a in self.env.items()}
        count = np.arange(length, dtype=np.int64).reshape((1,) * self.rank + (length,))
        env[index] = append_axis(lo) + count
        return Frame((*self.shape, length), env, None if self.mask is None else append_axis(self.mask), self)

    def collapse(self, names: Iterable[str]) -> Frame:
        """The same with size 1 along every axis that none of these indices varies over: what depends on them alone is evaluated once."""
        env = {n: self.env[n] for n in names if n in self.env}
        shape = tuple(max((a.shape[k] for a in env.values()), default=1) for k in range(self.rank))
        if self.mask is None or self.mask.ndim == 0:
            return Frame(shape, env, self.mask, self)
        gone = tuple(k for k in range(self.rank) if shape[k] == 1 and self.mask.shape[k] > 1)
        return Frame(shape, env, np.asarray(self.mask.any(axis=gone, keepdims=True)) if gone else self.mask, self)

    def part(self, axis: int, start: int, stop: int) -> Frame:
        """The places `start` to `stop` along one axis."""
        def cut(a: Array) -> Array:
            return a[(slice(None),) * axis + (slice(start, stop),)] if a.ndim and a.shape[axis] > 1 else a
        shape = (*self.shape[:axis], stop - start, *self.shape[axis + 1:])
        slices = tuple(slice(start, stop) if k == axis else slice(None) for k in range(self.rank))
        return Frame(shape, {n: cut(a) for n, a in self.env.items()}, None if self.mask is None else cut(self.mask), self, slices)

    def to_root(self, positions: Array) -> Array:
        """Positions of this frame as the positions of the outermost frame that want them."""
        frame = self
        positions = np.broadcast_to(positions, frame.shape)
        while (parent := frame.parent) is not None:
            if frame.slices is not None:
                whole = np.zeros(parent.shape, np.bool_)
                whole[frame.slices] = positions
                positions = whole
            elif frame.rank > parent.rank:
                positions = np.asarray(positions.any(axis=tuple(range(parent.rank, frame.rank))))
            positions = np.broadcast_to(parent.among(positions), parent.shape)
            frame = parent
        return positions


def append_axis(a: Array) -> Array:
    """An array of a frame as one of a frame with one more axis."""
    return a if a.ndim == 0 else a[..., None]


def extent(a: Array, axis: int) -> int:
    """Its size along an axis of the frame."""
    return 1 if a.ndim == 0 else int(a.shape[axis])


def at(a: Array, place: tuple[int, ...]) -> Any:
    """The value at one place of the frame."""
    return a[()] if a.ndim == 0 else a[tuple(0 if n == 1 else p for n, p in zip(a.shape, place, strict=True))]
