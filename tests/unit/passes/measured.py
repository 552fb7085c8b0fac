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


def product(m: int, k: int, n: int, turned: bool = True, dtype: str = "f16", more: str = "") -> str:
    """A product of f16 (or f8), its right factor with terms as neighbours or with columns."""
    w, at = (f"{n}x{k}", "j, k") if turned else (f"{k}x{n}", "k, j")
    operands, result = f"%x: tensor<{m}x{k}x{dtype}>, PARAM%w: tensor<{w}x{dtype}>", f"%y: tensor<{m}x{n}xf16>"
    return (f"op @f({operands.replace('PARAM', '')}) -> ({result}) {{ {more} compute {{ %y[i, j] = sum[k < {k}](%x[i, k] * %w[{at}]) }} }}\n"
            f"pipeline @p({operands.replace('PARAM', 'param ')}) -> ({result}) {{ %y = @f(%x, %w) }}\n")


def codes_by_four_bits(m: int, k: int = 4096, n: int = 11008) -> str:
    """Codes of 8 bits times codes of 4 bits with a scale for each 32."""
    operands, result = f"%x: tensor<{m}x{k}xi8>, PARAM%w: tensor<{n}x{k // 2}xu8>, PARAM%s: tensor<{k // 32}x{n}xf32>", f"%y: tensor<{m}x{n}xf16>"
    code = "(select(k mod 2 == 0, %w[j, k floordiv 2], %w[j, k floordiv 2] floordiv 16) + 8) mod 16 - 8"
    body = f"%y[i, j] = sum[k < {k}](f16(f32({code}) * %s[k floordiv 32, j]) * f16(%x[i, k])) * 0.0123"
    return (f"op @f({operands.replace('PARAM', '')}) -> ({result}) {{ compute {{ {body} }} }}\n"
            f"pipeline @p({operands.replace('PARAM', 'param ')}) -> ({result}) {{ %y = @f(%x, %w, %s) }}\n")


def attention(b: int, h: int, s: int, d: int, masked: bool) -> str:
    """Softmax of scaled products, times values; with a mask on keys."""
    t = f"tensor<{b}x{h}x{s}x{d}xf16>"
    where, mask, of = (" where %mask[b, j]", f", %mask: tensor<{b}x{s}xbool>", ", %mask") if masked else ("", "", "")
    signature = f"(%q: {t}, %k: {t}, %v: {t}{mask}) -> (%o: {t})"
    total = f"sum[j < {s}{where}](%p[b, h, i, j] * %v[b, h, j, d]) / %z[b, h, i]"
    last = f"select(%z[b, h, i] == 0, 0, {total})" if masked else total
    return (f"op @attention{signature} {{ semantic {{ empty = zero }} compute {{ %s[b, h, i, j] = {d ** -0.5} * sum[d < {d}](%q[b, h, i, d] * %k[b, h, j, d])\n"
            f"  %m[b, h, i] = max[j < {s}{where}](%s[b, h, i, j])\n  %p[b, h, i, j] = exp(%s[b, h, i, j] - %m[b, h, i])\n"
            f"  %z[b, h, i] = sum[j < {s}{where}](%p[b, h, i, j])\n  %o[b, h, i, d] = {last} }} }}\n"
            f"pipeline @p{signature} {{ %o = @attention(%q, %k, %v{of}) }}\n")


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
       for m, row in ((1, {"i4": .0254, "i8": .0252, "f16": .0347, "both": .0223}), (16, {"i4": .0304, "i8": .0293, "f16": .0349, "both": .0224})) for d, ms in row.items()},
    **{f"1x1 {c} {d}": Measured(lambda c=c, d=d: conv_1x1(c, d, d), ms)  # type: ignore[misc]
       for c, row in ((32, {"i8": .058, "f16": .084}), (64, {"i8": .098, "f16": .146}), (128, {"i8": .204, "f16": .326})) for d, ms in row.items()},
    **{f"product {m}x{k}x{n}{'' if turned else ' by columns'}": Measured(lambda m=m, k=k, n=n, turned=turned: product(m, k, n, turned), ms)  # type: ignore[misc]
       for m, k, n, turned, ms in ((1, 4096, 11008, False, .0338), (8, 4096, 11008, False, .0349), (16, 4096, 11008, False, .0341), (64, 4096, 11008, False, .0346), (64, 4096, 11008, True, .0349),
                                   (128, 4096, 11008, True, .0356), (16, 4096, 4096, False, .0177), (64, 4096, 4096, True, .0182), (64, 4096, 1024, True, .0152), (64, 4096, 256, True, .0148),
                                   (128, 4096, 4096, True, .0191), (256, 4096, 4096, True, .0218), (512, 4096, 1024, True, .017),
                                   (256, 4096, 11008, True, .0426), (4096, 4096, 11008, True, .4785), (16384, 1024, 1024, True, .0701),
                                   (16384, 1024, 4096, True, .2056), (16384, 4096, 1024, False, .2383), (16384, 1024, 3072, False, .1554))},
    **{f"rows {m} {d}": Measured(lambda m=m, d=d: weights_alone(m, d), ms)  # type: ignore[misc]
       for m, d, ms in ((64, "i4", .0766), (64, "i8", .079), (64, "both", .0219), (256, "i4", .0798), (256, "i8", .0808), (256, "both", .0293))},
    **{f"rows {m} {d} 4096": Measured(lambda m=m, d=d: weights_alone(m, d, 4096, 4096), ms)  # type: ignore[misc]
       for m, row in ((1, {"i4": .0134, "i8": .0131, "f16": .0212}), (16, {"i4": .0153, "i8": .0149, "f16": .0203})) for d, ms in row.items()},
    **{f"rows {m} i8 by i4": Measured(lambda m=m: codes_by_four_bits(m), ms)  # type: ignore[misc]
       for m, ms in ((1, .0685), (16, .0693), (64, .0704), (256, .0786))},
    **{f"attention {b}x{h}x{s}x{d}{' masked' if masked else ''}": Measured(lambda b=b, h=h, s=s, d=d, masked=masked: attention(b, h, s, d, masked), ms)  # type: ignore[misc]
       for b, h, s, d, masked, ms in ((32, 16, 512, 64, False, .1258), (32, 16, 512, 64, True, .1439), (64, 16, 128, 64, False, .0433), (8, 16, 2048, 64, False, .3413),
                                      (8, 16, 2048, 64, True, .383), (32, 16, 512, 128, False, .1862), (4, 16, 4096, 128, False, .8566))},
    "3x3 3 to 32 stride 2 i8": Measured(lambda: conv_3x3(3, 32, "i8", "i8", 32, stride=2), .0183),
    "3x3 3 to 32 stride 2 f16": Measured(lambda: conv_3x3(3, 32, "f16", "f16", 32, stride=2), .0200),
    "3x3 32 to 64 i8": Measured(lambda: conv_3x3(32, 64, "i8", "i8", 8), .043),
    "3x3 32 to 64 f16": Measured(lambda: conv_3x3(32, 64, "f16", "f16", 8), .061),
    "3x3 64 to 64 i8": Measured(lambda: conv_3x3(64, 64, "i8", "i8", 8), .056),
    "3x3 64 to 64 f16": Measured(lambda: conv_3x3(64, 64, "f16", "f16", 8), .108),
    "3x3 32 to 3 i8": Measured(lambda: conv_3x3(32, 3, "i8", "f16", 8), .0152),
    "3x3 32 to 3 f16": Measured(lambda: conv_3x3(32, 3, "f16", "f16", 8), .025),
    "3x3 32 to 1 i8": Measured(lambda: conv_3x3(32, 1, "i8", "f16", 8), .0135),
    "3x3 32 to 1 f16": Measured(lambda: conv_3x3(32, 1, "f16", "f16", 8), .0216),
    **{f"3x3 {c} to {c} {n}x{size} {d}": Measured(lambda c=c, n=n, size=size, d=d: conv_3x3(c, c, d, d, n, size), ms)  # type: ignore[misc]
       for c, n, size, d, ms in ((256, 32, 56, "i8", .0908), (256, 32, 56, "f16", .1702), (256, 64, 14, "f16", .035), (128, 32, 56, "i8", .0342), (128, 32, 56, "f16", .0507))},
    **_small((32, 256, 256, 32), .0600, .0929),
    **_small((32, 14, 14, 512), .0094, .0143),
    **_small((64, 7, 7, 512), .0105, .0094),
    **_small((64, 7, 7, 1024), .0119, .0144),
    **_small((256, 7, 7, 512), .0187, .0241),
    **_small((1, 7, 7, 512), .0093, .0073),
    **_small((8, 28, 28, 256), .0083, .0077),
    **_small((1, 56, 56, 64), .0076, .0065),
    "global mean i8": Measured(lambda: global_mean("i8"), .0210),
    "global mean f16": Measured(lambda: global_mean("f16"), .0307),
    "product of f8 8192x4096x16384": Measured(lambda: product(8192, 4096, 16384, dtype="f8e4m3", more="compile { accuracy = f8 }"), .811),
    "product of f8 as f16 8192x4096x16384": Measured(lambda: product(8192, 4096, 16384, dtype="f8e4m3"), 1.389),
    "linear 8192x4096x16384 i8 to i8": Measured(lambda: linear(8192, 4096, 16384, "i8", "i8"), .705),
    "linear 8192x4096x16384 i8 to f16": Measured(lambda: linear(8192, 4096, 16384, "i8", "f16"), .704),
    "linear 8192x4096x16384 f16": Measured(lambda: linear(8192, 4096, 16384, "f16", "f16"), 1.48),
    **{f"linear 16384x1024x4096 {read} to {made} {act}": Measured(lambda read=read, made=made, act=act: linear(16384, 1024, 4096, read, made, act), ms)  # type: ignore[misc]
       for read, made, act, ms in (("f16", "i8", "gelu", .2192), ("f16", "f16", "gelu", .2202), ("i8", "i8", "gelu", .1777), ("i8", "f16", "gelu", .1464))},
    "feed-forward i8": Measured(lambda: feed_forward("i8"), .1233),
    "feed-forward f16": Measured(lambda: feed_forward("f16"), .1558),
}

RIVALS = [(n, n.removesuffix(" i8") + " f16") for n in H200 if n.endswith(" i8") and n.removesuffix(" i8") + " f16" in H200]
RIVALS += [(f"rows {m} {d}", f"rows {m} f16") for m in (1, 16) for d in ("i4", "both")] + [(f"rows {m} {d} 4096", f"rows {m} f16 4096") for m in (1, 16) for d in ("i4", "i8")]
RIVALS += [(f"rows {m} {d}", f"product {m}x4096x11008{of}") for m, of in ((64, " by columns"), (256, "")) for d in ("i4", "i8", "both", "i8 by i4")]
RIVALS += [(f"rows {m} i8 by i4", f"rows {m} f16") for m in (1, 16)] + [("linear 8192x4096x16384 i8 to i8", "linear 8192x4096x16384 f16"),
           ("linear 16384x1024x4096 i8 to i8 gelu", "linear 16384x1024x4096 f16 to i8 gelu"), ("linear 16384x1024x4096 i8 to f16 gelu", "linear 16384x1024x4096 f16 to f16 gelu")]
"""The same layer on codes and on floats."""
