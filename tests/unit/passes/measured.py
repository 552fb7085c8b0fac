"""What programs take on an NVIDIA H200, measured with its caches emptied before each call: what the prices of `passes/precision` are held against.

Programs are what `lower-precision` makes of layers, written out, with the epilogue that follows them in networks.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

RELU6 = "op @relu6(%x: tensor<...xf16>) -> (%y: tensor<...xf16>) { compute { %y[...] = clamp(%x[...], 0, 6) } }\n"
GELU = ("op @gelu(%x: tensor<...xf16>) -> (%y: tensor<...xf16>) { compute { %y[...] = 0.5 * %x[...] * (1 + tanh(0.7978845608 * (%x[...] + 0.044715 * %x[...] ** 3))) } }\n")
OUT = {"i8": "%z = @std.quantize(%g) {scale = 0.047}", "f16": "%z = @std.copy(%g)"}


def _signature(operands: str, result: str) -> str:
    return f"({operands}) -> ({result})"


def linear(m: int, k: int, n: int, read: str, made: str, act: str = "gelu") -> str:
    """A layer of a network, %x of `read`, stored as `made`, weights turned."""
    code = read == "i8"
    operands = f"%x: tensor<{m}x{k}x{read}>, PARAM%w: tensor<{n}x{k}x{read}>, PARAM%b: tensor<{n}xf32>, PARAM%s: tensor<{n}xf32>"
    value = "f32(%acc[i, j]) * (0.0123 * %s[j])" if code else "%acc[i, j]"
    return (f"op @linear({operands.replace('PARAM', '')}) -> (%y: tensor<{m}x{n}xf16>) {{ compute {{ %acc[i, j] = sum[k < {k}](%x[i, k] * %w[j, k])\n"
            f"  %y[i, j] = {value} + %b[j] }} }}\n{GELU}{RELU6}"
            f"pipeline @p({operands.replace('PARAM', 'param ')}) -> (%z: tensor<{m}x{n}x{made}>) {{ %h = @linear(%x, %w, %b, %s)  %g = @{act}(%h)  {OUT[made]} }}\n")


def feed_forward(read: str) -> str:
    """Two layers, 4096 rows of 1024 by 4096 channels."""
    made = {"i8": "%c = @std.quantize(%g) {scale = 0.047}", "f16": "%c = @std.copy(%g)"}[read]
    head = linear(4096, 1024, 4096, read, read).partition("pipeline")[0].replace("4096x1024x", "IxKx").replace("4096x4096x", "IxJx").replace("4096xf32", "Jxf32")
    head = head.replace("4096x", "Jx").replace("k < 1024", "k < K")
    operands = (f"%x: tensor<4096x1024x{read}>, param %w1: tensor<4096x1024x{read}>, param %b1: tensor<4096xf32>, param %s1: tensor<4096xf32>, "
                f"param %w2: tensor<1024x4096x{read}>, param %b2: tensor<1024xf32>, param %s2: tensor<1024xf32>")
    head = head.replace("%w: tensor<IxKx", "%w: tensor<JxKx")
    return (f"{head}pipeline @p({operands}) -> (%z: tensor<4096x1024xf16>) {{ %h = @linear(%x, %w1, %b1, %s1)  %g = @gelu(%h)  {made}\n"
            "  %z = @linear(%c, %w2, %b2, %s2) }\n")


def weights_alone(m: int, dtype: str, k: int = 4096, n: int = 11008) -> str:
    """Products of few rows, whose time is that of reading weights: f16, codes of 8 bits, of 4 bits with a scale for each 32."""
    packed = {"f16": f"{n}x{k}xf16", "i8": f"{n}x{k}xi8", "i4": f"{n}x{k // 2}xu8", "both": f"{n}x{k}xi8"}[dtype]
    x, y = ("i8", "i32") if dtype == "both" else ("f16", "f16")
    scales = {"i8": f", PARAM%s: tensor<{n}xf32>", "i4": f", PARAM%s: tensor<{k // 32}x{n}xf32>"}.get(dtype, "")
    bias = f", PARAM%b: tensor<{n}xf16>" if dtype in ("i8", "i4") else ""
    operands = f"%x: tensor<{m}x{k}x{x}>, PARAM%w: tensor<{packed}>{bias}{scales}"
    body = {"f16": "%y[i, j] = sum[k < K](%x[i, k] * %w[j, k])", "both": "%y[i, j] = sum[k < K](%x[i, k] * %w[j, k])",
            "i8": "%y[i, j] = sum[k < K](%x[i, k] * f16(%w[j, k])) * %s[j] + %b[j]",
            "i4": f"%code[d < {k}, e < {n}] = (select(d mod 2 == 0, %w[e, d floordiv 2], %w[e, d floordiv 2] floordiv 16) + 8) mod 16 - 8\n"
                  "  %y[i, j] = sum[k < K](%x[i, k] * f16(f32(%code[k, j]) * %s[k floordiv 32, j])) + %b[j]"}[dtype].replace("K", str(k))
    names = ", ".join(f"%{name}" for name in ("x", "w", *("bs" if dtype in ("i8", "i4") else "")))
    result = f"%y: tensor<{m}x{n}x{y}>"
    return (f"op @f({operands.replace('PARAM', '')}) -> ({result}) {{ compute {{ {body} }} }}\n"
            f"pipeline @p({operands.replace('PARAM', 'param ')}) -> ({result}) {{ %y = @f({names}) }}\n")


def conv_1x1(c: int, read: str, made: str, pictures: int = 32, size: int = 256) -> str:
    """As many channels out as in, relu6."""
    return _conv(f"{c}x{c}", "sum[c < C](%x[n, h, w, c] * %w[o, c])".replace("C", str(c)), (pictures, size, size, c), c, read, made)


def conv_3x3(c: int, o: int, read: str, made: str, pictures: int, size: int = 256, stride: int = 1) -> str:
    at = f"{stride} * h + dy - 1, {stride} * w + dx - 1" if stride > 1 else "h + dy - 1, w + dx - 1"
    return _conv(f"3x3x{c}x{o}", f"sum[dy < 3, dx < 3, c < {c}](%x[n, {at}, c] * %w[dy, dx, c, o])", (pictures, size, size, c), o, read, made, stride)


def _conv(weights: str, value: str, shape: tuple[int, ...], o: int, read: str, made: str, stride: int = 1) -> str:
    n, h, w, c = shape
    operands = f"%x: tensor<{n}x{h}x{w}x{c}x{read}>, PARAM%w: tensor<{weights}x{read}>, PARAM%b: tensor<{o}xf32>, PARAM%s: tensor<{o}xf32>"
    out = f"{n}x{h // stride}x{w // stride}x{o}"
    scaled = "f32(%acc[n, h, w, o]) * (0.0123 * %s[o]) + %b[o]" if read == "i8" else "%acc[n, h, w, o] + %b[o]"
    return (f"op @conv({operands.replace('PARAM', '')}) -> (%y: tensor<{out}xf16>) {{ memory {{ border = constant(0) }}\n"
            f"  compute {{ %acc[n, h, w, o] = {value}\n  %y[n, h, w, o] = {scaled} }} }}\n{RELU6}"
            f"pipeline @p({operands.replace('PARAM', 'param ')}) -> (%z: tensor<{out}x{made}>) {{ %h = @conv(%x, %w, %b, %s)  %g = @relu6(%h)  {OUT[made]} }}\n")


def depthwise(shape: tuple[int, int, int, int], read: str) -> str:
    """3x3, each channel by itself, NHWC, relu6; codes give codes."""
    n, h, w, c = shape
    code = read == "i8"
    operands = f"%x: tensor<{n}x{h}x{w}x{c}x{read}>, PARAM%k: tensor<3x3x{c}x{read}>, PARAM%b: tensor<{c}xf16>, PARAM%s: tensor<{c}xf32>"
    scaled = "f32(%acc[n, h, w, c]) * %s[c] + %b[c]" if code else "%acc[n, h, w, c] + %b[c]"
    return (f"op @depth({operands.replace('PARAM', '')}) -> (%y: tensor<{n}x{h}x{w}x{c}xf16>) {{ memory {{ border = constant(0) }}\n"
            f"  compute {{ %acc[n, h, w, c] = sum[dy < 3, dx < 3](%x[n, h + dy - 1, w + dx - 1, c] * %k[dy, dx, c])\n  %y[n, h, w, c] = {scaled} }} }}\n{RELU6}"
            f"pipeline @p({operands.replace('PARAM', 'param ')}) -> (%z: tensor<{n}x{h}x{w}x{c}x{read}>) {{ %h = @depth(%x, %k, %b, %s)  %g = @relu6(%h)  {OUT[read]} }}\n")


def global_mean(read: str) -> str:
    """Over the pixels of 32 pictures of 128 x 128 of 64 channels."""
    value = "f32(%x[n, h, w, c]) * 0.05" if read == "i8" else "f32(%x[n, h, w, c])"
    shape = f"%x: tensor<32x128x128x64x{read}>"
    return (f"op @mean({shape}) -> (%y: tensor<32x64xf16>) {{ compute {{ %y[n, c] = mean[h < 128, w < 128]({value}) }} }}\n"
            f"pipeline @p({shape}) -> (%y: tensor<32x64xf16>) {{ %y = @mean(%x) }}\n")


@dataclass(frozen=True, slots=True)
class Measured:
    """A program, and the milliseconds that a call of it took."""

    text: Callable[[], str]
    ms: float


def _small(shape: tuple[int, int, int, int], codes: float, floats: float) -> dict[str, Measured]:
    name = "depthwise {}x{}x{}x{}".format(*shape)
    return {f"{name} i8": Measured(lambda: depthwise(shape, "i8"), codes), f"{name} f16": Measured(lambda: depthwise(shape, "f16"), floats)}


H200: Mapping[str, Measured] = {
    **{f"rows {m} {d}": Measured(lambda m=m, d=d: weights_alone(m, d), ms)  # type: ignore[misc]
       for m, row in ((1, {"i4": .031, "i8": .044, "f16": .048, "both": .035}), (16, {"i4": .037, "i8": .047, "f16": .065, "both": .039})) for d, ms in row.items()},
    **{f"1x1 {c} {d}": Measured(lambda c=c, d=d: conv_1x1(c, d, d), ms)  # type: ignore[misc]
       for c, row in ((32, {"i8": .058, "f16": .084}), (64, {"i8": .098, "f16": .146}), (128, {"i8": .204, "f16": .326})) for d, ms in row.items()},
    "3x3 3 to 32 stride 2 i8": Measured(lambda: conv_3x3(3, 32, "i8", "i8", 32, stride=2), .0547),
    "3x3 3 to 32 stride 2 f16": Measured(lambda: conv_3x3(3, 32, "f16", "f16", 32, stride=2), .0538),
    "3x3 32 to 64 i8": Measured(lambda: conv_3x3(32, 64, "i8", "i8", 8), .0897),
    "3x3 32 to 64 f16": Measured(lambda: conv_3x3(32, 64, "f16", "f16", 8), .1324),
    "3x3 32 to 3 i8": Measured(lambda: conv_3x3(32, 3, "i8", "f16", 8), .0477),
    "3x3 32 to 3 f16": Measured(lambda: conv_3x3(32, 3, "f16", "f16", 8), .046),
    "3x3 32 to 1 i8": Measured(lambda: conv_3x3(32, 1, "i8", "f16", 8), .0434),
    "3x3 32 to 1 f16": Measured(lambda: conv_3x3(32, 1, "f16", "f16", 8), .0432),
    **_small((32, 256, 256, 32), .0600, .0929),
    **_small((32, 14, 14, 512), .0094, .0143),
    **_small((64, 7, 7, 512), .0105, .0094),
    **_small((64, 7, 7, 1024), .0119, .0144),
    **_small((256, 7, 7, 512), .0187, .0241),
    **_small((1, 7, 7, 512), .0093, .0073),
    **_small((8, 28, 28, 256), .0083, .0077),
    **_small((1, 56, 56, 64), .0076, .0065),
    "global mean i8": Measured(lambda: global_mean("i8"), .0784),
    "global mean f16": Measured(lambda: global_mean("f16"), .1086),
    "linear 8192x4096x16384 i8 to i8": Measured(lambda: linear(8192, 4096, 16384, "i8", "i8"), .705),
    "linear 8192x4096x16384 i8 to f16": Measured(lambda: linear(8192, 4096, 16384, "i8", "f16"), .704),
    "linear 8192x4096x16384 f16": Measured(lambda: linear(8192, 4096, 16384, "f16", "f16"), 1.48),
    "feed-forward i8": Measured(lambda: feed_forward("i8"), .1233),
    "feed-forward f16": Measured(lambda: feed_forward("f16"), .1558),
}

RIVALS = [(n, n.removesuffix(" i8") + " f16") for n in H200 if n.endswith(" i8") and n.removesuffix(" i8") + " f16" in H200]
RIVALS += [("rows 1 i4", "rows 1 f16"), ("rows 16 i4", "rows 16 f16"), ("linear 8192x4096x16384 i8 to i8", "linear 8192x4096x16384 f16")]
"""The same layer on codes and on floats."""
