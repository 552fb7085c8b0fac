"""Programs over rows, and what they compute in float64."""
from __future__ import annotations

import numpy as np

SOFTMAX = """op @soft(%x: tensor<NxKxf32>) -> (%y: tensor<NxKxf32>) {
  compute {
    %m[n] = max[k < K](%x[n, k])
    %e[n, k] = exp(%x[n, k] - %m[n])
    %s[n] = sum[k < K](%e[n, k])
    %y[n, k] = %e[n, k] / %s[n]
  }
}
pipeline @p(%x: tensor<NxKxf32>) -> (%y: tensor<NxKxf32>) { %y = @soft(%x) }
"""
NORM = """import std.nn
pipeline @p(%x: tensor<NxKxf32>, %g: tensor<Kxf32>, %b: tensor<Kxf32>) -> (%y: tensor<NxKxf32>) { %y = @layer_norm(%x, %g, %b) }
"""
REDUCED = """op @reduced(%x: tensor<NxKxf32>) -> (%total: tensor<Nxf32>, %top: tensor<Nxf32>, %middle: tensor<Nxf32>) {
  compute {
    %total[n] = sum[k < K](%x[n, k])
    %top[n] = max[k < K](%x[n, k])
    %middle[n] = mean[k < K](%x[n, k] * %x[n, k])
  }
}
pipeline @p(%x: tensor<NxKxf32>) -> (%total: tensor<Nxf32>, %top: tensor<Nxf32>, %middle: tensor<Nxf32>) { %total, %top, %middle = @reduced(%x) }
"""


def softmax(x: np.ndarray) -> np.ndarray:
    """Of each row."""
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    out: np.ndarray = e / e.sum(1, keepdims=True)
    return out


def norm(x: np.ndarray, g: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Rows less their mean, by their deviation, times `g` and with `b`."""
    d = x - x.astype(np.float64).mean(1, keepdims=True)
    out: np.ndarray = d / np.sqrt((d * d).mean(1, keepdims=True) + 1e-5) * g.astype(np.float64) + b
    return out
