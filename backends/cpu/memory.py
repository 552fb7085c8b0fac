"""Memory of results and arenas. Large blocks are kept when their owner has let go of them: fresh pages cost more than most kernels.

A result is an array over a block that returns to the shelf when the last view of it is gone, so that results belong to the caller and a later call
never writes to one that is still in use.
"""
from __future__ import annotations

import os
import sys
import threading
from typing import Any

import numpy as np

from pipelink_ir.ir.dtypes import DType

ALIGN = 64
LARGE = 1 << 18
"""Bytes from which a block is kept; smaller ones NumPy allocates fast enough."""

KEPT = 1 << 30
"""Most bytes kept for later."""

_shelf: dict[int, list[Any]] = {}
_kept = 0
_lock = threading.RLock()


class Lease:
    """A block of memory in use. Arrays over it keep it alive through the buffer protocol's owner."""

    __slots__ = ("__weakref__", "address", "block", "size")

    def __init__(self, size: int) -> None:
        self.size = _rounded(size)
        self.block = _take(self.size)
        self.address = -(-address_of(self.block) // ALIGN) * ALIGN

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """How NumPy sees the block: bytes that may be written."""
        return {"shape": (self.size,), "typestr": "|u1", "data": (self.address, False), "version": 3}

    def __del__(self) -> None:
        block = getattr(self, "block", None)
        if block is not None:
            _give_back(self.size, block)


def _rounded(size: int) -> int:
    """A little slack, so that sizes that are nearly equal share blocks."""
    step = 1 << max(12, size.bit_length() - 4)
    return max(ALIGN, (size + step - 1) // step * step)


def _take(size: int) -> Any:
    global _kept
    with _lock:
        blocks = _shelf.get(size)
        if blocks:
            _kept -= size
            return blocks.pop()
    if size > sys.maxsize - ALIGN:  # NumPy would speak of dimensions
        raise MemoryError(f"{size} bytes cannot be addressed")
    return np.empty(size + ALIGN, np.uint8)


def _give_back(size: int, block: Any) -> None:
    global _kept
    with _lock:
        if size >= LARGE and _kept + size <= KEPT:
            _shelf.setdefault(size, []).append(block)
            _kept += size


def _after_fork() -> None:
    """Another thread may have held the lock when the process was copied."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def clear() -> None:
    """Give back to the system what is kept."""
    global _kept
    with _lock:
        _shelf.clear()
        _kept = 0


def new_array(shape: tuple[int, ...], dtype: DType) -> tuple[Any, int]:
    """(a fresh array, its address)."""
    kind = dtype.numpy()
    size = kind.itemsize
    for extent in shape:
        size *= extent
    if size < LARGE:
        array = np.empty(shape, kind)
        return array, address_of(array)
    lease = Lease(size)
    return np.ndarray(shape, kind, buffer=np.asarray(lease)), lease.address


def address_of(array: Any) -> int:
    """Where the elements of an array begin."""
    return int(array.__array_interface__["data"][0])
