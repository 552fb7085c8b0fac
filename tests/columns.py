"""Programs that reduce columns, and arrays for them whose sums are whole numbers."""
from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

DTYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64, "i8": np.int8, "f8e4m3": ml_dtypes.float8_e4m3fn}
ROWS = """op @rows(%x: tensor<MxKxi8>) -> (%y: tensor<Kxi32>) { compute { %y[k] = sum[m < M](i32(%x[m, k])) } }
pipeline @p(%x: tensor<MxKxi8>) -> (%y: tensor<Kxi32>) { %y = @rows(%x) }
"""
NORM = """op @norm(%x: tensor<NxHxWxCxf32>) -> (%y: tensor<NxHxWxCxf32>) { compute {
  %mu[c] = mean[n < N, h < H, w < W](%x[n, h, w, c])
  %var[c] = mean[n < N, h < H, w < W]((%x[n, h, w, c] - %mu[c]) ** 2)
  %y[n, h, w, c] = (%x[n, h, w, c] - %mu[c]) * rsqrt(%var[c] + 1e-5)
} }
pipeline @p(%x: tensor<NxHxWxCxf32>) -> (%y: tensor<NxHxWxCxf32>) { %y = @norm(%x) }
"""


def text(dtype: str, value: str, result: str, settings: str = "", places: str = "n, c", type_: str = "NxC") -> str:
    operands = f"%x: tensor<NxHxWxCx{dtype}, NHWC>"
    return f"""op @columns({operands}) -> (%y: tensor<{type_}x{result}>) {{ {settings} compute {{ %y[{places}] = {value} }} }}
    pipeline @p({operands}) -> (%y: tensor<{type_}x{result}>) {{ %y = @columns(%x) }}
    """


def values(rng: Any, dtype: str, *size: int) -> Any:
    return rng.integers(-8, 9, size).astype(DTYPES[dtype])


def normed(x: Any) -> Any:
    """What `NORM` gives."""
    wide = x.astype(np.float64)
    return (wide - wide.mean((0, 1, 2))) / np.sqrt(wide.var((0, 1, 2)) + 1e-5)
