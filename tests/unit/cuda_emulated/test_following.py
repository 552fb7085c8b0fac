"""Narrow elements in rows of odd lengths and operands that begin in between: what a thread stores goes by one access over the ends of rows."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pipelink_ir as pl

Array = np.ndarray[Any, Any]

BIAS = """op @f(%x: tensor<NxKxf16>, %b: tensor<Kxf16>) -> (%y: tensor<NxKxf16>) { compute { %y[n, k] = tanh(%x[n, k] + %b[k]) } }
pipeline @p(%x: tensor<NxKxf16>, %b: tensor<Kxf16>) -> (%y: tensor<NxKxf16>) { %y = @f(%x, %b) }
"""
CUBE = """op @f(%x: tensor<AxBxCxf16>, %b: tensor<BxCxf16>, %c: tensor<Axf16>) -> (%y: tensor<AxBxCxf16>, %z: tensor<AxBxCxf16>) {
  compute { %y[a, b, c] = %x[a, b, c] * %b[b, c] + %c[a]
            %z[a, b, c] = exp(%x[a, b, c]) }
}
pipeline @p(%x: tensor<AxBxCxf16>, %b: tensor<BxCxf16>, %c: tensor<Axf16>) -> (%y: tensor<AxBxCxf16>, %z: tensor<AxBxCxf16>) { %y, %z = @f(%x, %b, %c) }
"""


def beginning(values: Array, skip: int) -> Array:
    """A copy that begins `skip` elements behind a multiple of 64 bytes."""
    room = np.empty(values.nbytes + 128, np.uint8)
    begin = (-room.ctypes.data) % 64 + skip * values.itemsize
    view = room[begin:begin + values.nbytes].view(values.dtype).reshape(values.shape)
    view[...] = values
    return view


@pytest.fixture(scope="module")
def bias() -> pl.Compiled:
    return pl.compile(BIAS, target="cuda-emulated")


@pytest.mark.parametrize("shape", [(3, 41), (5, 7), (1, 8), (4, 16), (2, 9), (7, 129), (1, 1)])
@pytest.mark.parametrize("skip", [0, 1, 4])
def test_rows(bias: pl.Compiled, shape: tuple[int, int], skip: int) -> None:
    rng = np.random.default_rng(1)
    x, b = beginning(rng.standard_normal(shape).astype(np.float16), skip), rng.standard_normal(shape[1]).astype(np.float16)
    np.testing.assert_allclose(bias(x=x, b=b).y, np.tanh(x.astype(np.float64) + b), rtol=1e-3, atol=1e-3)


@pytest.fixture(scope="module")
def cube() -> pl.Compiled:
    return pl.compile(CUBE, target="cuda-emulated")


@pytest.mark.parametrize("shape", [(3, 5, 7), (2, 3, 4), (1, 1, 13), (4, 9, 5), (3, 2, 8), (2, 2, 3), (3, 3, 9)])
@pytest.mark.parametrize("skip", [0, 1])
def test_two_results_over_three_axes(cube: pl.Compiled, shape: tuple[int, int, int], skip: int) -> None:
    rng = np.random.default_rng(2)
    x = beginning(rng.standard_normal(shape).astype(np.float16), skip)
    b, c = rng.standard_normal(shape[1:]).astype(np.float16), rng.standard_normal(shape[0]).astype(np.float16)
    out, wide = cube(x=x, b=b, c=c), x.astype(np.float64)
    np.testing.assert_allclose(out.y, wide * b + c[:, None, None], rtol=1e-3, atol=2e-3)
    np.testing.assert_allclose(out.z, np.exp(wide), rtol=1e-3)


def test_it_is_there(bias: pl.Compiled) -> None:
    """The kernel stores by wide accesses in two ways."""
    assert bias.as_text("cu").rpartition("__global__")[2].count("store_many<8>") == 2
