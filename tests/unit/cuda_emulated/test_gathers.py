"""Rows of a table by their numbers, and pixels at places that are computed: by wide accesses, and where these cannot be. Expected values are NumPy's."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pipelink_ir as pl
from pipelink_ir.ir.diagnostics import ExecutionError
from tests.emulated import NEEDS_COMPILER

pytestmark = NEEDS_COMPILER
TABLE = """op @rows(%t: tensor<VxDxf16>, %i: tensor<BxSxi32>, %b: tensor<Dxf16>) -> (%y: tensor<BxSxDxf16>) {
  schedule { target = cuda, %y { vector = 8 } }
  compute { %y[b, s, d] = %t[%i[b, s], d] + %b[d] }
}
pipeline @p(%t: tensor<VxDxf16>, %i: tensor<BxSxi32>, %b: tensor<Dxf16>) -> (%y: tensor<BxSxDxf16>) { %y = @rows(%t, %i, %b) }
"""
PIXELS = """op @pixels(%x: tensor<HxWx3xu8>, %r: tensor<Mxi32>, %q: tensor<Mxi32>) -> (%y: tensor<3xMxf32>) {
  memory { border = replicate }
  compute { %y[c, m] = f32(%x[%r[m], %q[m], c]) + 3 * f32(%x[%r[m], %q[m] + 1, c]) }
}
pipeline @p(%x: tensor<HxWx3xu8>, %r: tensor<Mxi32>, %q: tensor<Mxi32>) -> (%y: tensor<3xMxf32>) { %y = @pixels(%x, %r, %q) }
"""


@pytest.fixture(scope="module")
def table() -> pl.Compiled:
    return pl.compile(TABLE, target="cuda-emulated")


@pytest.mark.parametrize("width", [8, 40, 5, 12])
def test_rows_of_a_table(table: pl.Compiled, width: int) -> None:
    rng = np.random.default_rng(1)
    t, i = rng.integers(-99, 99, (9, width)).astype(np.float16), rng.integers(0, 9, (4, 7), dtype=np.int32)
    b = rng.integers(0, 99, width).astype(np.float16)
    np.testing.assert_array_equal(table(t=t, i=i, b=b).y, t[i] + b)


def test_a_row_that_is_not_there(table: pl.Compiled) -> None:
    t, i = np.ones((9, 16), np.float16), np.zeros((2, 3), np.int32)
    i[1, 2] = 9
    with pytest.raises(ExecutionError, match=r"index 9 of axis 0 of '%t' is outside 0\.\.9"):
        table(t=t, i=i, b=t[0])


def test_rows_move_at_once(table: pl.Compiled) -> None:
    assert table.as_text("cu").rpartition("__global__")[2].count("load_many<8>") == 2


@pytest.mark.parametrize("shape", [(5, 8), (4, 6), (3, 7), (1, 1), (8, 1)])
def test_pixels(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(2)
    x = rng.integers(0, 256, (*shape, 3), dtype=np.uint8)
    r, q = rng.integers(-2, shape[0] + 2, 50, dtype=np.int32), rng.integers(-2, shape[1] + 2, 50, dtype=np.int32)
    got: Any = pl.compile(PIXELS, target="cuda-emulated")(x=x, r=r, q=q).y
    rows, first, second = r.clip(0, shape[0] - 1), q.clip(0, shape[1] - 1), (q + 1).clip(0, shape[1] - 1)
    np.testing.assert_array_equal(got, (x[rows, first].astype(np.float64) + 3.0 * x[rows, second]).T)
