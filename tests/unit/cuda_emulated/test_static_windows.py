"""Windows over sizes that are known when the program is compiled and are no whole number of the runs that a thread takes."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.ndimage

import pipelink_ir as pl
from tests.emulated import EMULATED

PROGRAM = """op @depthwise(%x: tensor<NxHxWxCxf32, NHWC>, %k: tensor<3x3xCxf32>) -> (%y: tensor<NxHxWxCxf32, NHWC>) {{
  memory  {{ padding = same, border = constant(0) }}
  compute {{ %y[n, h, w, c] = sum[i < 3, j < 3](%x[n, h + i - 1, w + j - 1, c] * %k[i, j, c]) }}
}}
pipeline @p(%x: tensor<{shape}xf32, NHWC>, %k: tensor<3x3x{channels}xf32>) -> (%y: tensor<{shape}xf32, NHWC>) {{ %y = @depthwise(%x, %k) }}
"""


@pytest.mark.parametrize("target", [EMULATED])
@pytest.mark.parametrize("shape", [(1, 5, 5, 8), (2, 3, 9, 4), (1, 9, 7, 3), (1, 8, 8, 4), (1, 4, 1, 16), (1, 1, 13, 2)])
def test_depthwise(target: str, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(sum(shape))
    x, k = rng.standard_normal(shape).astype(np.float32), rng.standard_normal((3, 3, shape[-1])).astype(np.float32)
    want: Any = np.stack([scipy.ndimage.correlate(x[..., c].astype(np.float64), k[None, ..., c].astype(np.float64), mode="constant") for c in range(shape[-1])], -1)
    p = pl.compile(PROGRAM.format(shape="x".join(map(str, shape)), channels=shape[-1]), target=target)
    np.testing.assert_allclose(p(x=x, k=k).y, want, rtol=1e-5, atol=1e-5)
