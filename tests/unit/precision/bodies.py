"""Operators that tests put on codes, what they mean in NumPy, and codes of several kinds."""
from __future__ import annotations

import re
from typing import Any

import numpy as np

from pipelink_ir.ir.nodes import Operator
from pipelink_ir.passes.precision.codes import Codes
from pipelink_ir.passes.precision.quantised import quantised
from tests.unit.precision.coding import operator

RNG = np.random.default_rng(11)
Array = np.ndarray[Any, Any]


def normal(*shape: int) -> Array:
    return RNG.normal(size=shape)


def made(text: str, **codes: Codes) -> Operator:
    """The operator of a text on codes."""
    out = quantised(operator(text), codes, "f.1.i8")
    assert not isinstance(out, str), out
    return out


def weights(axis: int = 1, order: tuple[int, ...] = (), dtype: str = "i8", packed: int | None = None) -> Codes:
    return Codes(dtype, "channel", axis=axis, order=order, packed=packed, param=True)


SYMMETRIC, AFFINE, FOUND, EIGHTH = Codes("i8", .05), Codes("u8", .05, 37), Codes("i8", "tensor", "tensor"), Codes("f8e4m3", .05)

# --------------------------------------------------------------------------------------------------------------------------- texts


def op(signature: str, body: str, result: str = "HxNxf32", more: str = "") -> str:
    name = re.match(r"\s*%(\w+)", body.split("\n")[-1].strip())
    return f"op @f({signature}) -> (%{name[1] if name else 'y'}: tensor<{result}>) {{ {more} compute {{ {body} }} }}"


LINEAR = op("%x: tensor<HxDxf16>, %w: tensor<DxNxf16>, %b: tensor<Nxf16>", "%y[i, j] = sum[d < D](%x[i, d] * %w[d, j]) + %b[j]", more="memory { dtypes = [f16, f32] }")
PLAIN = op("%x: tensor<HxDxf16>, %w: tensor<DxNxf16>", "%y[i, j] = sum[d < D](%x[i, d] * %w[d, j])")
DEPTHWISE = op("%x: tensor<BxHxWxCxf16>, %k: tensor<3x3xCxf16>", "%y[n, h, w, c] = sum[dy < 3, dx < 3](%x[n, h + dy - 1, w + dx - 1, c] * %k[dy, dx, c])",
               "BxHxWxCxf32", "memory { BORDER }")
CONVOLUTION = op("%x: tensor<BxHxWxCxf16>, %k: tensor<3x3xCxOxf16>",
                 "%y[n, h, w, o] = sum[dy < 3, dx < 3, c < C](%x[n, h + dy - 1, w + dx - 1, c] * %k[dy, dx, c, o])", "BxHxWxOxf32", "memory { BORDER }")
ATTENTION = """op @f(%q: tensor<BxLxDxf16>, %k: tensor<BxLxDxf16>, %v: tensor<BxLxDxf16>, %mask: tensor<LxLxbool>) -> (%y: tensor<BxLxDxf32>) {
  semantic { empty = zero }
  compute {
    let scale = 1 / sqrt(f32(D))
    %s[b, i, j] = scale * sum[d < D](%q[b, i, d] * %k[b, j, d])
    %m[b, i]    = max[j < L where %mask[i, j]](%s[b, i, j])
    %e[b, i, j] = exp(%s[b, i, j] - %m[b, i])
    %z[b, i]    = sum[j < L where %mask[i, j]](%e[b, i, j])
    %y[b, i, d] = sum[j < L where %mask[i, j]](%e[b, i, j] * %v[b, j, d]) / %z[b, i]
  }
}"""

JOINED = """op @f(%x.0: tensor<NxHxCxf16>, %x.1: tensor<NxHxDxf16>, %k: tensor<(C + D)xOxf16>) -> (%y: tensor<NxHxOxf32>) {
  memory { %x { border = constant(0) } }
  compute {
    %x[n, h, c in 0..C]     = %x.0[n, h, c]
    %x[n, h, c in C..C + D] = %x.1[n, h, c - C]
    %y[n, h, o]             = sum[t < 3, c < C + D](%x[n, h + t - 1, c] * %k[c, o]) + %x[n, h, 0]
  }
}"""
"""A convolution of a list of operands."""

# ------------------------------------------------------------------------------------------------------------------------ meanings


def padded(x: Array, mode: str, value: float = 0.0) -> Array:
    around = [(0, 0), (1, 1), (1, 1), (0, 0)]
    return np.pad(x, around, constant_values=value) if mode == "constant" else np.pad(x, around, mode="edge")


def depthwise(x: Array, k: Array, mode: str = "constant", value: float = 0.0) -> Array:
    h, w, p = x.shape[1], x.shape[2], padded(x, mode, value)
    return np.asarray(sum(p[:, a:a + h, b:b + w] * k[a, b] for a in range(3) for b in range(3)))


def convolution(x: Array, k: Array, mode: str = "constant", value: float = 0.0) -> Array:
    h, w, p = x.shape[1], x.shape[2], padded(x, mode, value)
    return np.asarray(sum(p[:, a:a + h, b:b + w] @ k[a, b] for a in range(3) for b in range(3)))


def attended(q: Array, k: Array, v: Array, mask: Array) -> Array:
    s = np.where(mask, np.einsum("bid,bjd->bij", q, k) / np.sqrt(q.shape[-1]), -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True) @ v)


def recurrent(x: Array, w: Array) -> Array:
    h = [np.tanh(x[0])]
    for t in range(1, len(x)):
        h.append(np.tanh(x[t] + h[-1] @ w))
    return np.stack(h)
