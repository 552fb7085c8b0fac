"""Stencils on a GPU: runs of threads that slide down rows, at sizes that are whole runs and at those that are not, and tiles whose operands are brought ahead; against
NumPy in f64."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pipelink_ir as pl

pytestmark = pytest.mark.gpu
SHAPES = ((1, 1, 1), (1, 17, 260), (4, 40, 256), (2, 61, 131), (5, 24, 64), (1, 203, 1919))
SOBEL = """op @edge(%x: tensor<NxHxWxCxf32, NHWC>) -> (%y: tensor<NxHxWx1xf32, NHWC>) {{
  memory {{ border = {border} }}
  {schedule}
  compute {{
    %gx[n, h, w, c] = (%x[n, h-1, w+1, c] + 2*%x[n, h, w+1, c] + %x[n, h+1, w+1, c]) - (%x[n, h-1, w-1, c] + 2*%x[n, h, w-1, c] + %x[n, h+1, w-1, c])
    %gy[n, h, w, c] = (%x[n, h+1, w-1, c] + 2*%x[n, h+1, w, c] + %x[n, h+1, w+1, c]) - (%x[n, h-1, w-1, c] + 2*%x[n, h-1, w, c] + %x[n, h-1, w+1, c])
    %e[n < N, h < H, w < W, 0] = mean[c < C](sqrt(%gx[n, h, w, c]**2 + %gy[n, h, w, c]**2))
    %y[n, h, w, d] = clamp(%e[n, h, w, d], 0, 1) ** 0.45454544
  }}
}}
pipeline @p(%x: tensor<{shape}x3xf32, NHWC>) -> (%y: tensor<{shape}x1xf32, NHWC>) {{ %y = @edge(%x) }}
"""


def wanted(x: Any, mode: str) -> Any:
    p = np.pad(x.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)), mode=mode)
    columns, rows = p[:, :-2] + 2 * p[:, 1:-1] + p[:, 2:], p[:, :, :-2] + 2 * p[:, :, 1:-1] + p[:, :, 2:]
    gx, gy = columns[:, :, 2:] - columns[:, :, :-2], rows[:, 2:] - rows[:, :-2]
    return np.clip(np.sqrt(gx ** 2 + gy ** 2).mean(3, keepdims=True), 0, 1) ** (1 / 2.2)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(("border", "mode", "schedule"), [("replicate", "edge", ""), ("reflect", "symmetric", ""),
                                                          ("replicate", "edge", "schedule { target = cuda, %y { map = tile(8, 128) } }"),
                                                          ("constant(0)", "constant", "schedule { target = cuda, %y { map = tile(8, 64) } }")])
def test_sobel(border: str, mode: str, schedule: str, known: bool) -> None:
    program = None
    for shape in SHAPES:
        if known or program is None:
            text = "x".join(map(str, shape)) if known else "NxHxW"
            program = pl.compile(SOBEL.format(border=border, schedule=schedule, shape=text), target="cuda")
        x = (np.random.default_rng(sum(shape)).random((*shape, 3)) * 0.3).astype(np.float32)
        np.testing.assert_allclose(np.asarray(program(x=x).y), wanted(x, mode), rtol=0, atol=1e-6)
