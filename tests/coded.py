"""Convolutions of codes, each channel for itself, as precision lowering writes them, and what NumPy makes of them."""
from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SCALE = 0.047244094
Arrays = dict[str, NDArray[np.generic]]


def depthwise(layout: str, dtype: str, weights: str, zero: int, sizes: tuple[int, int, int, int] | None = None, step: int = 1) -> str:
    """The program: an integer sum, its scale and bias in f16, relu6, codes of the result. `zero` is the code of 0 in `%x`. `sizes`: those of an NHWC array."""
    names = dict(zip("NHWC", sizes, strict=True)) if sizes else {}
    x = "x".join(str(names.get(a, a)) for a in layout)
    c = names.get("C", "C")
    y = x if step == 1 else x.replace("H", f"(H floordiv {step})", 1).replace("W", f"(W floordiv {step})", 1)
    nhwc = layout == "NHWC"
    k = f"3x3x{c}x{weights}" if nhwc else f"{c}x3x3x{weights}"
    at = "%x[n, H + dy - 1, W + dx - 1, c]" if nhwc else "%x[n, c, H + dy - 1, W + dx - 1]"
    at = at.replace("H", "h" if step == 1 else f"{step} * h").replace("W", "w" if step == 1 else f"{step} * w")
    of = "%k[dy, dx, c]" if nhwc else "%k[c, dy, dx]"
    less = "" if zero == 0 else f" - {zero} * %ksum[c]"
    place = "n, h, w, c" if nhwc else "n, c, h, w"
    operands = f"%x: tensor<{x}x{dtype}, {layout}>, %k: tensor<{k}>, %s: tensor<{c}xf32>, %b: tensor<{c}xf16>" + (f", %ksum: tensor<{c}xi32>" if zero else "")
    return f"""op @dw({operands}) -> (%y: tensor<{y}xf16, {layout}>) {{
  memory {{ padding = same, %x {{ border = constant({zero}) }} }}
  compute {{
    %acc[{place}] = sum[dy < 3, dx < 3]({at} * {of})
    %y[{place}] = f32(%acc[{place}]{less}) * %s[c] + %b[c]
  }}
}}
op @relu6(%x: tensor<...xf16>) -> (%y: tensor<...xf16>) {{ compute {{ %y[...] = min(max(%x[...], 0), 6) }} }}
pipeline @p({operands}) -> (%y: tensor<{y}xi8, {layout}>) {{
  %c = @dw(%x, %k, %s, %b{', %ksum' if zero else ''})
  %r = @relu6(%c)
  %y = @std.quantize(%r) {{scale = {SCALE}}}
}}
"""


def inputs(shape: tuple[int, int, int, int], layout: str, dtype: str, weights: str, zero: int = 0, seed: int = 1) -> Arrays:
    """Codes of all sizes, scales that make results of all sizes."""
    n, h, w, c = shape
    rng = np.random.default_rng(seed)

    def codes(of: str, *size: int) -> NDArray[np.generic]:
        info = np.iinfo({"i8": np.int8, "u8": np.uint8}[of])
        return rng.integers(info.min, info.max + 1, size).astype(info.dtype)
    x, k = codes(dtype, n, h, w, c), codes(weights, 3, 3, c)
    s = rng.uniform(2e-5, 2e-4, c).astype(np.float32)
    b = rng.standard_normal(c).astype(np.float16)
    ksum = k.astype(np.int32).sum((0, 1), dtype=np.int32)
    if layout == "NCHW":
        x, k = x.transpose(0, 3, 1, 2).copy(), k.transpose(2, 0, 1).copy()
    return {"x": x, "k": k, "s": s, "b": b} | ({"ksum": ksum} if zero else {})


def expected(given: Arrays, layout: str, zero: int, step: int = 1) -> NDArray[np.int8]:
    """What NumPy makes of them, rounding where the program does."""
    nhwc = layout == "NHWC"
    x, k = (given["x"], given["k"]) if nhwc else (given["x"].transpose(0, 2, 3, 1), given["k"].transpose(1, 2, 0))
    padded = np.pad(x.astype(np.int32), ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=zero)
    h, w = x.shape[1:3]
    acc = sum(padded[:, dy:dy + h, dx:dx + w] * k[dy, dx].astype(np.int32) for dy in range(3) for dx in range(3))
    acc = np.asarray(acc)[:, ::step, ::step][:, :h // step, :w // step]
    acc = acc - zero * given["ksum"] if zero else acc
    v = (acc.astype(np.float32) * given["s"] + given["b"].astype(np.float32)).astype(np.float16)
    y = codes(np.minimum(np.maximum(v, np.float16(0)), np.float16(6)), SCALE)
    return y if nhwc else y.transpose(0, 3, 1, 2)


def codes(x: NDArray[np.generic], scale: float, zero: int = 0) -> NDArray[np.int8]:
    """Codes of numbers: a true division, ties to even, saturation, 0 for what is no number."""
    with np.errstate(invalid="ignore", over="ignore"):
        q = np.round(x.astype(np.float32) / np.float32(scale)) + zero
        return np.where(np.isnan(q), 0, np.clip(q, -128, 127)).astype(np.int8)


def pooled(kind: str, size: int, border: int, layout: str) -> str:
    """Pooling of codes by two in each direction: the largest, or the mean of what they stand for."""
    y = "Nx(H floordiv 2)x(W floordiv 2)xC" if layout == "NHWC" else "NxCx(H floordiv 2)x(W floordiv 2)"
    back = size // 2 if size % 2 else 0
    at = f"2 * h + dy - {back}, 2 * w + dx - {back}"
    read = f"%x[n, {at}, c]" if layout == "NHWC" else f"%x[n, c, {at}]"
    place = "n, h, w, c" if layout == "NHWC" else "n, c, h, w"
    value = f"i8(max[dy < {size}, dx < {size}]({read}))" if kind == "max" else f"mean[dy < {size}, dx < {size}](f32({read}) * 0.05)"
    dims, dtype = ("NxHxWxC" if layout == "NHWC" else "NxCxHxW"), ("i8" if kind == "max" else "f32")
    return f"""op @pool(%x: tensor<{dims}xi8, {layout}>) -> (%y: tensor<{y}x{dtype}, {layout}>) {{
  memory {{ border = constant({border}) }}
  compute {{ %y[{place}] = {value} }}
}}
pipeline @p(%x: tensor<{dims}xi8, {layout}>) -> (%y: tensor<{y}x{dtype}, {layout}>) {{ %y = @pool(%x) }}
"""


def pools(x: NDArray[np.int8], kind: str, size: int, border: int) -> tuple[NDArray[np.generic], float]:
    """What NumPy makes of NHWC, and how far off a result may be."""
    back = size // 2 if size % 2 else 0
    padded = np.pad(x.astype(np.int32), ((0, 0), (back, 2), (back, 2), (0, 0)), constant_values=border)
    h, w = x.shape[1] // 2, x.shape[2] // 2
    taps = np.stack([padded[:, dy:dy + 2 * h:2, dx:dx + 2 * w:2] for dy in range(size) for dx in range(size)])
    return (taps.max(0), 0) if kind == "max" else ((taps.astype(np.float64) * np.float32(0.05)).mean(0), 1e-5)


ADDED = f"""op @add(%a: tensor<...xf16>, %b: tensor<...xf16>) -> (%y: tensor<...xf16>) {{ compute {{ %y[...] = %a[...] + %b[...] }} }}
pipeline @p(%a: tensor<NxHxWxCxi8, NHWC>, %b: tensor<NxHxWxCxi8, NHWC>) -> (%y: tensor<NxHxWxCxi8, NHWC>) {{
  %x = @std.dequantize(%a) {{scale = 0.05, U = f16}}
  %z = @std.dequantize(%b) {{scale = 0.03, zero = 4, U = f16}}
  %s = @add(%x, %z)
  %y = @std.quantize(%s) {{scale = {SCALE}, zero = -7}}
}}
"""
"""Two coded tensors, added as f16, and codes of the sum."""


def added(a: NDArray[np.int8], b: NDArray[np.int8]) -> NDArray[np.int8]:
    """What NumPy makes of it."""
    x, z = ((v.astype(np.float32) - np.float32(zero)) * np.float32(s) for v, s, zero in ((a, 0.05, 0), (b, 0.03, 4)))
    return codes((x.astype(np.float16).astype(np.float32) + z.astype(np.float16).astype(np.float32)).astype(np.float16), SCALE, -7)
