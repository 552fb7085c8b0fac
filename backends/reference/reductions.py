"""Reductions of candidates along the last axis. Sums and products of f32 are formed in float64 and rounded once; integers wrap."""
from __future__ import annotations

from typing import Any

import numpy as np

from pipelink_ir.backends.reference.frame import Array
from pipelink_ir.ir.diagnostics import internal_error


def reduce_last(kind: str, values: Array, candidates: Array | None, dtype: np.dtype[Any]) -> Array:
    """sum, prod, max, min, mean, any or all as `dtype`. Over nothing: the neutral element, NaN for mean."""
    match kind:
        case "sum":
            return _total(np.add, values, candidates, 0).astype(dtype)
        case "prod":
            return _total(np.multiply, values, candidates, 1).astype(dtype)
        case "mean":
            return _mean(values, candidates).astype(dtype)
        case "max":
            return np.asarray(_masked(values, candidates, lowest(values.dtype)).max(axis=-1, initial=lowest(values.dtype)), dtype)
        case "min":
            return np.asarray(_masked(values, candidates, highest(values.dtype)).min(axis=-1, initial=highest(values.dtype)), dtype)
        case "any":
            return np.asarray(_masked(values, candidates, False).any(axis=-1))
        case "all":
            return np.asarray(_masked(values, candidates, True).all(axis=-1))
    internal_error(f"no reduction {kind!r}")


def select_last(kind: str, values: Array, candidates: Array | None, rank: Array | None) -> tuple[Array, Array]:
    """argmax, argmin, nth, argnth: the position of the winner along the last axis, and where there is none (its position is then 0)."""
    taken = np.ones(values.shape, np.bool_) if candidates is None else candidates
    count = taken.sum(axis=-1)
    if values.shape[-1] == 0:
        return np.zeros(values.shape[:-1], np.int64), np.ones(values.shape[:-1], np.bool_)
    if kind in ("argmax", "argmin"):
        return _winner(kind, values, taken), count == 0
    assert rank is not None
    place = np.where(rank < 0, rank + count, rank)
    outside = (place < 0) | (place >= count)
    return _ranked(values, taken, np.where(outside, 0, place)), outside


def lowest(dtype: np.dtype[Any]) -> Any:
    """The neutral element of max."""
    return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min


def highest(dtype: np.dtype[Any]) -> Any:
    """The neutral element of min."""
    return np.inf if dtype.kind == "f" else np.iinfo(dtype).max


def _masked(values: Array, candidates: Array | None, neutral: Any) -> Array:
    return values if candidates is None else np.where(candidates, values, values.dtype.type(neutral))


def _total(function: np.ufunc, values: Array, candidates: Array | None, neutral: int) -> Array:
    wide = np.float64 if values.dtype.kind == "f" else values.dtype
    return np.asarray(function.reduce(_masked(values, candidates, neutral), axis=-1, dtype=wide))


def _mean(values: Array, candidates: Array | None) -> Array:
    """Integers are summed in i64."""
    total = _total(np.add, values if values.dtype.kind == "f" else values.astype(np.int64), candidates, 0)
    count = values.shape[-1] if candidates is None else candidates.sum(axis=-1)
    return np.asarray(total / np.asarray(count, np.float64))


def _winner(kind: str, values: Array, taken: Array) -> Array:
    """The first NaN, else the first of the largest or smallest."""
    if kind == "argmax":
        best = _masked(values, taken, lowest(values.dtype)).max(axis=-1, keepdims=True)
    else:
        best = _masked(values, taken, highest(values.dtype)).min(axis=-1, keepdims=True)
    same = values == best
    if values.dtype.kind == "f":
        same |= np.isnan(values) & np.isnan(best)
    return np.asarray(np.argmax(same & taken, axis=-1))


def _ranked(values: Array, taken: Array, place: Array) -> Array:
    """Candidates first, ascending, equal ones in their order, NaN last: two stable sorts."""
    order = np.argsort(values, axis=-1, kind="stable")
    order = np.take_along_axis(order, np.argsort(~np.take_along_axis(taken, order, axis=-1), axis=-1, kind="stable"), axis=-1)
    return np.take_along_axis(order, np.asarray(place, np.int64)[..., None], axis=-1)[..., 0]
