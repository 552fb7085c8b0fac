"""Memory of the host that devices copy from and to: blocks are kept for later, because pinning one takes longer than most runs.

A result for NumPy is an array over a block, which comes back when the last view of it is gone: results belong to the caller. Where a program holds on to very
many of them they are ordinary memory, which the driver copies to in pieces of its own: slower, and nothing that a machine runs out of.
"""
from __future__ import annotations

import threading
import weakref
from typing import Any

import numpy as np

from pipelink_ir.backends.cuda.driver import Driver, OutOfDeviceMemory, quietly
from pipelink_ir.ir.dtypes import DType

KEPT = 256 << 20
"""Most bytes kept for later."""

LENT = 2 << 30
"""Bytes in use from which on arrays of callers are ordinary memory."""


class PinnedPool:
    """Pinned blocks by size. May be used by several threads."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self._shelf: dict[int, list[int]] = {}
        self._lock = threading.RLock()
        self.kept = self.lent = self.pinned = 0
        """Bytes on the shelf; in use; both together."""

    def take(self, size: int) -> Block:
        """A block of at least `size` bytes, which comes back when nobody holds it any more."""
        size = _rounded(size)
        with self._lock:
            self.lent += size
            blocks = self._shelf.get(size)
            if blocks:
                self.kept -= size
                return Block(self, blocks.pop(), size)
        try:
            address = self.driver.pin(size)
        except BaseException:
            with self._lock:
                self.lent -= size
            raise
        with self._lock:
            self.pinned += size
        return Block(self, address, size)

    def give(self, address: int, size: int) -> None:
        """Take a block back."""
        with self._lock:
            self.lent -= size
            if self.kept + size <= KEPT:
                self._shelf.setdefault(size, []).append(address)
                self.kept += size
                return
            self.pinned -= size
        quietly(lambda: self.driver.unpin(address))

    def clear(self) -> None:
        """Unpin what lies on the shelf."""
        with self._lock:
            blocks = [(address, size) for size, found in self._shelf.items() for address in found]
            self._shelf.clear()
            self.kept = 0
            self.pinned -= sum(size for _, size in blocks)
        for address, _ in blocks:
            quietly(lambda address=address: self.driver.unpin(address))  # type: ignore[misc]

    def array(self, shape: tuple[int, ...], dtype: DType) -> tuple[Any, int, int]:
        """A fresh array of the caller's, its address and its bytes."""
        kind, size = dtype.numpy(), dtype.bytes
        for n in shape:
            size *= n
        if size == 0 or self.lent + size > LENT:
            return _ordinary(shape, kind, size)
        try:
            block = self.take(size)
        except OutOfDeviceMemory:
            return _ordinary(shape, kind, size)
        return np.ndarray(shape, kind, buffer=np.asarray(block)), block.address, size


_pools: weakref.WeakKeyDictionary[Driver, PinnedPool] = weakref.WeakKeyDictionary()


def pinned_pool(driver: Driver) -> PinnedPool:
    """The pool that all pipelines of a driver share."""
    return _pools.setdefault(driver, PinnedPool(driver))


def _ordinary(shape: tuple[int, ...], kind: Any, size: int) -> tuple[Any, int, int]:
    array = np.empty(shape, kind)
    return array, int(array.__array_interface__["data"][0]), size


class Block:
    """Pinned memory in use. Arrays over it keep it alive through the buffer protocol's owner."""

    __slots__ = ("__weakref__", "address", "pool", "size")

    def __init__(self, pool: PinnedPool, address: int, size: int) -> None:
        self.pool, self.address, self.size = pool, address, size

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """How NumPy sees the block: bytes that may be written."""
        return {"shape": (self.size,), "typestr": "|u1", "data": (self.address, False), "version": 3}

    def __del__(self) -> None:
        self.pool.give(self.address, self.size)


def _rounded(size: int) -> int:
    """A little slack, so that sizes that are nearly equal share blocks."""
    step = 1 << max(12, size.bit_length() - 4)
    return max(4096, (size + step - 1) // step * step)
