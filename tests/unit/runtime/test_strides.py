"""What is dense, pitched, overlapping: NumPy's own flags and brute force are the judges."""
from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelink_ir.runtime import strides
from pipelink_ir.runtime.forms import address_of


@pytest.mark.parametrize("shape", [(), (0,), (1,), (5,), (2, 3), (1, 3), (3, 1), (2, 0, 3), (2, 1, 3), (4, 3, 2)])
def test_dense_strides_are_those_of_numpy(shape: tuple[int, ...]) -> None:
    own, numpy_own = strides.dense(shape, 4), np.zeros(shape, np.float32).strides
    assert 0 in shape or [s for s, n in zip(own, shape, strict=True) if n > 1] == [s for s, n in zip(numpy_own, shape, strict=True) if n > 1]
    assert strides.contiguity(shape, own, 4) == "dense"


def _block(*shape: int) -> Any:
    return np.zeros(shape, np.uint8)


@pytest.mark.parametrize(("array", "kind", "pitch"), [
    (_block(2, 5, 3), "dense", 3), (_block(2, 32)[:, :15].reshape(2, 5, 3), "rows", 32),
    (np.lib.stride_tricks.as_strided(_block(64), (2, 5, 3), (32, 3, 1)), "rows", 32),           # HWC, rows of 32 bytes
    (np.lib.stride_tricks.as_strided(_block(192), (3, 2, 5), (64, 32, 1)), "rows", 32),          # CHW
    (np.lib.stride_tricks.as_strided(_block(192), (2, 3, 5, 2), (96, 32, 2, 1)), "rows", 32),    # NHWC
    (np.lib.stride_tricks.as_strided(_block(512), (2, 3, 5), (200, 32, 1)), "any", None),       # a gap behind rows and another behind images
    (_block(4, 8)[:, :5], "rows", 8), (_block(4, 8)[:, :1], "rows", 8), (_block(4, 8)[:, ::2], "any", None), (_block(4, 8).T, "any", None),
    (_block(4, 8)[::-1], "any", None), (_block(4, 8)[:, ::-1], "any", None), (_block(4, 8)[:1, ::-1], "any", None), (_block(8)[::2], "any", None),
    (np.broadcast_to(_block(1, 8), (4, 8)), "any", None), (np.broadcast_to(_block(1, 8), (1, 8)), "dense", 8), (_block(4, 8)[2:2, ::3], "dense", 3),
    (_block(4, 8)[::2], "rows", 16), (_block(1, 8)[::-1], "dense", 8), (_block(), "dense", None), (_block(5), "dense", None),
])
def test_contiguity_and_pitch(array: Any, kind: str, pitch: int | None) -> None:
    assert strides.contiguity(array.shape, array.strides, 1) == kind
    assert strides.pitch(array.shape, array.strides, 1) == pitch or kind == "dense"
    assert (kind == "dense") == bool(array.flags.c_contiguous)


_AXES = st.lists(st.tuples(st.integers(0, 4), st.integers(-9, 9)), max_size=3)


@settings(max_examples=300, deadline=None)
@given(_AXES, st.sampled_from([1, 2, 4]))
def test_overlap_is_what_brute_force_finds(axes: list[tuple[int, int]], itemsize: int) -> None:
    shape, steps = tuple(n for n, _ in axes), tuple(s for _, s in axes)
    bytes_of = [sum(i * s for i, s in zip(index, steps, strict=True)) + b for index in itertools.product(*map(range, shape)) for b in range(itemsize)]
    assert strides.overlaps_itself(shape, steps, itemsize) == (len(set(bytes_of)) != len(bytes_of))
    if bytes_of:
        assert strides.extent(shape, steps, itemsize) == (min(bytes_of), max(bytes_of) + 1)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4).flatmap(lambda dims: st.tuples(st.just(dims), st.permutations(range(len(dims))))))
def test_memory_order_undoes_a_permutation(case: tuple[list[int], list[int]]) -> None:
    dims, axes = case
    array = np.zeros(dims).transpose(axes)
    order = strides.memory_order(array.shape, array.strides)
    assert sorted(order) == list(range(array.ndim))
    assert array.transpose(order).flags.c_contiguous


@pytest.mark.parametrize(("address", "aligned"), [(1, 1), (6, 2), (64, 64), (4096, 4096), (8192, 4096), (0, 4096)])
def test_alignment(address: int, aligned: int) -> None:
    assert strides.alignment(address) == aligned


def test_pointers_are_read_right() -> None:
    from pipelink_ir.runtime.pointers import cell_of, pointer_reader
    base = np.zeros((8, 8), np.float32)
    for array in (base, base[3:, 2:], base[::-1], base.T[1:], np.zeros(()), np.zeros((0, 3))):
        assert pointer_reader()(array) == address_of(array) == cell_of(array).value
