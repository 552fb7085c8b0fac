"""What answers a read outside an axis: the index is mapped until it is inside, periodically and without limit."""
from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pipelink_ir.backends.reference.frame import Array


def _replicate(i: Array, n: int) -> Array:
    """a a|a b c|c c"""
    return np.clip(i, 0, n - 1)


def _reflect(i: Array, n: int) -> Array:
    """b a|a b c|c b"""
    i = np.mod(i, 2 * n)
    return np.where(i < n, i, 2 * n - 1 - i)


def _reflect101(i: Array, n: int) -> Array:
    """c b|a b c|b a; an axis of one place repeats it."""
    if n == 1:
        return np.zeros_like(i)
    i = np.mod(i, 2 * n - 2)
    return np.where(i < n, i, 2 * n - 2 - i)


def _wrap(i: Array, n: int) -> Array:
    """b c|a b c|a b"""
    return np.mod(i, n)


MAPS: dict[str, Callable[[Array, int], Array]] = {"replicate": _replicate, "reflect": _reflect, "reflect101": _reflect101, "wrap": _wrap}
"""The inside index for any index, of an axis with n > 0 places. `constant` has none: the value takes the place of the read."""
