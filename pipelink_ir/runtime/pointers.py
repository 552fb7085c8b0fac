"""Where a NumPy array's elements begin, without the microsecond that `__array_interface__` and `ctypes.data` cost.

The pointer is the first field behind an object's head in the C structure that NumPy gives to extensions and keeps stable (`PyArrayObject_fields`). That this
is so in this interpreter is tried once on an array whose pointer is known; where it is not, the slow way is taken.
"""
from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

from pipelink_ir.runtime.forms import address_of

_HEAD = object.__basicsize__


class _Slow:
    """The pointer of an array, read the slow way."""

    __slots__ = ("array",)

    def __init__(self, array: Any) -> None:
        import weakref
        self.array = weakref.ref(array)

    @property
    def value(self) -> int:
        array = self.array()
        return -1 if array is None else address_of(array)  # nobody's address: it is looked at anew


def _fast_pointer(array: Any, _from: Callable[[int], Any] = ctypes.c_ssize_t.from_address) -> int:
    value: int = _from(id(array) + _HEAD).value
    return value


def _cell(array: Any) -> Any:
    return ctypes.c_ssize_t.from_address(id(array) + _HEAD)


@cache
def _is_fast() -> bool:
    import numpy as np
    base = np.zeros(64, np.uint8)
    return all(_fast_pointer(a) == address_of(a) for a in (base, base[3:], base[::-1], base.view(np.uint32).reshape(4, 4).T[1:], np.zeros((), np.float64)))


def pointer_reader() -> Callable[[Any], int]:
    """A function that tells where the elements of a `numpy.ndarray` begin. It must be given nothing else."""
    return _fast_pointer if _is_fast() else address_of


def cell_of(array: Any) -> Any:
    """An object whose `value` is where the elements of an array begin now. To be read only while the array is alive."""
    return _cell(array) if _is_fast() else _Slow(array)
