"""Operators on codes, against NumPy in f64 on the values that the codes stand for: what remains are roundings of f32."""
from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from pipelink_ir.grammar.printer import print_operator
from pipelink_ir.ir.nodes import Name, Operator
from pipelink_ir.passes.precision.code_sums import summer
from pipelink_ir.passes.precision.codes import Codes, dequantiser
from pipelink_ir.passes.precision.quantised import quantised
from pipelink_ir.runtime.compile import compile as compile_program
from tests.emulated import EMULATED, NEEDS_COMPILER
from tests.unit.precision.coding import arguments, called, conditions, in_memory, operator

RNG = np.random.default_rng(11)
Array = np.ndarray[Any, Any]


def normal(*shape: int) -> Array:
    return RNG.normal(size=shape)


@dataclass(frozen=True)
class Case:
    """An operator, how its operands are coded, arrays, and what it means in NumPy."""

    name: str
    text: str
    codes: Mapping[str, Codes]
    arrays: Mapping[str, Any]
    meaning: Callable[..., Array]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    digits: float = 1e-6


def run(c: Case, target: str) -> tuple[Array, Array, Operator]:
    """What the operator on codes gives, and what it should."""
    op = operator(c.text)
    made = quantised(op, c.codes, "op.1.q")
    assert not isinstance(made, str), made
    scales = {n: scale_for(np.asarray(c.arrays[n]), k) for n, k in c.codes.items()}
    zeros = dict.fromkeys(c.codes, -9)
    given, real = arguments(op, made, c.codes, c.arrays, scales, zeros)
    for k, o in enumerate(made.operands):
        if o.name.endswith(".sum"):
            given[k] = sums(op, o.name.removesuffix(".sum"), c, given[k], target)
    got = called(made, *given, target=target, **c.attributes)[0]
    return got, c.meaning(**real), made


def scale_for(x: Array, codes: Codes) -> Any:
    """Scales of reasonable sizes for random values."""
    top = 7 if codes.dtype == "i4" else 127
    if codes.scale == "tensor":
        return .05
    if codes.scale == "channel":
        return np.abs(x).max(tuple(k for k in range(x.ndim) if k != codes.axis)) / top
    if codes.scale == "block":
        assert codes.axis is not None
        assert codes.size is not None
        starts = range(0, x.shape[codes.axis], codes.size)
        parts = [np.take(x, range(b, min(b + codes.size, x.shape[codes.axis])), codes.axis) for b in starts]
        return np.stack([np.abs(p).max(codes.axis) for p in parts], codes.axis) / top
    return None


def sums(op: Operator, name: str, c: Case, q: Array, target: str) -> Array:
    """`%w.sum` as its own operator makes it. The bytes of i4 do not say how many there are: there the sizes are written."""
    if c.codes[name].dtype == "i4":
        text = print_operator(op)
        for o in op.operands:
            for d, n in zip(o.type.dims, np.shape(c.arrays[o.name]), strict=True):
                text = re.sub(rf"(?<![A-Z%.]){d.name}(?=x|\]|,| |\))", str(n), text) if isinstance(d, Name) else text
        op = operator(text)
    made = summer(op, name, c.codes[name], "w.sum")
    assert made is not None
    return called(made, in_memory(q, c.codes[name]), target=target)[0]


# --------------------------------------------------------------------------------------------------------------------------- cases


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
SYMMETRIC, AFFINE, FOUND, EIGHTH = Codes("i8", .05), Codes("u8", .05, 37), Codes("i8", "tensor", "tensor"), Codes("f8e4m3", .05)
KINDS = {"i8": SYMMETRIC, "u8": AFFINE, "found": FOUND, "f8": EIGHTH}
BORDERS = {"border = constant(0)": ("constant", 0.0), "border = replicate": ("edge", 0.0), "%x { border = constant(0.5) }": ("constant", .5),
           "%x { border = [none, constant(0), constant(0), none] }": ("constant", 0.0)}
MASK = np.tril(np.ones((9, 9), bool))


def weights(axis: int = 1, order: tuple[int, ...] = (), dtype: str = "i8", packed: int | None = None) -> Codes:
    return Codes(dtype, "channel", axis=axis, order=order, packed=packed, param=True)


def convolutions() -> Iterator[Case]:
    x = normal(2, 5, 6, 4)
    for kind in ("i8", "u8", "found"):
        for border, (mode, value) in BORDERS.items():
            if kind == "found" and mode == "constant":
                continue
            for what, text, meaning, k, codes in (
                    ("depthwise", DEPTHWISE, depthwise, normal(3, 3, 4), weights(2)), ("convolution", CONVOLUTION, convolution, normal(3, 3, 4, 7), weights(3)),
                    ("convolution, channels first", CONVOLUTION, convolution, normal(3, 3, 4, 7), weights(3, (3, 0, 1, 2)))):
                yield Case(f"{what} {kind} {border}", text.replace("BORDER", border), {"x": KINDS[kind], "k": codes}, {"x": x, "k": k},
                           lambda x, k, f=meaning, m=mode, v=value: f(x, k, m, v))
    for size in (2, 3):
        for dtype in ("f16", "f32"):
            yield Case(f"convolution i4 blocks of {size} of {dtype}", CONVOLUTION.replace("BORDER", "border = constant(0)").replace("xf16>", f"x{dtype}>"),
                       {"x": AFFINE, "k": Codes("i4", "block", axis=2, size=size, param=True)}, {"x": normal(2, 5, 6, 5), "k": normal(3, 3, 5, 7)}, convolution,
                       digits=1e-3 if dtype == "f16" else 1e-6)


def products() -> Iterator[Case]:
    x, w, b = normal(9, 67), normal(67, 5) * np.exp2(normal(5) * 3), normal(5)
    for kind, codes in KINDS.items():
        for what, k in {
                "channels": weights(), "channels, columns first": weights(order=(1, 0)), "i4 blocks": Codes("i4", "block", axis=0, size=32, param=True),
                "i4 channels": weights(dtype="i4", packed=0), "f8": weights(dtype="f8e4m3"), "one scale": Codes("i8", "tensor"),
                "blocks": Codes("i8", "block", axis=0, size=16, param=True)}.items():
            for dtype in ("f16", "f32"):
                # With blocks a factor is a value of f16, rounded to that; of f32 there are sums of blocks.
                rounded = "blocks" in what and (dtype == "f16" or kind == "f8")
                yield Case(f"linear {kind} {what} of {dtype}", LINEAR.replace("xf16>", f"x{dtype}>"), {"x": codes, "w": k}, {"x": x, "w": w, "b": b},
                           lambda x, w, b: x @ w + b, digits=1e-3 if rounded else 1e-6)
    x, w = normal(9, 5), normal(5, 3)
    for what, k in {"channels": weights(), "i4 channels": weights(dtype="i4", packed=0), "u8": AFFINE, "f8": EIGHTH, "found": FOUND,
                    "i4 blocks": Codes("i4", "block", axis=0, size=2), "blocks of the other axis": Codes("i8", "block", axis=1, size=2)}.items():
        yield Case(f"weights only {what}", PLAIN, {"w": k}, {"x": x, "w": w}, lambda x, w: x @ w, digits=1e-3 if "blocks" in what else 1e-6)


def others() -> Iterator[Case]:
    x, w = normal(9, 4), normal(4, 3)
    two = {"x": x, "w": w}
    for kind, k in KINDS.items():
        both = {"x": k, "w": weights()}
        yield Case(f"attention {kind}", ATTENTION, {"q": k, "k": k, "v": k}, {"q": normal(2, 9, 6), "k": normal(2, 9, 6), "v": normal(2, 9, 6), "mask": MASK}, attended)
        yield Case(f"global mean {kind}", op("%x: tensor<BxHxWxCxf16>", "%y[b, c] = mean[h < H, w < W](%x[b, h, w, c])", "BxCxf32"), {"x": k},
                   {"x": normal(2, 5, 6, 4)}, lambda x: x.mean((1, 2)))
        for what, divisor in (("mean", True), ("sum", False)):
            yield Case(f"{what} behind a filter {kind}", op("%x: tensor<LxDxf16>, %mask: tensor<LxLxbool>", f"%y[i, d] = {what}[j < L where %mask[i, j]](%x[j, d])", "LxDxf32"),
                       {"x": k}, {"x": x, "mask": MASK}, lambda x, mask, n=divisor: mask @ x / (mask.sum(1)[:, None] if n else 1))
        yield Case(f"mean of two {kind}", op("%x: tensor<HxDxf16>", "%y[i, d] = 0.5 * sum[t < 2](%x[2 * i + t, d])", "(H floordiv 2)xDxf32"), {"x": k}, {"x": x},
                   lambda x: (x[0:8:2] + x[1:8:2]) / 2)
        yield Case(f"largest of two {kind}", op("%x: tensor<HxDxf16>", "%y[i, d] = max[t < 2](%x[2 * i + t, d])", "(H floordiv 2)xDxf32"), {"x": k}, {"x": x},
                   lambda x: np.maximum(x[0:8:2], x[1:8:2]))
        yield Case(f"silu {kind}", op("%x: tensor<HxDxf16>, g: f32", "%y[i, d] = %x[i, d] * sigmoid(g * %x[i, d])", "HxDxf32"), {"x": k}, {"x": x},
                   lambda x: x / (1 + np.exp(-1.5 * x)), {"g": 1.5})
        yield Case(f"norm {kind}", op("%x: tensor<HxDxf16>", "%mu[i] = mean[d < D](%x[i, d])\n%v[i] = mean[d < D]((%x[i, d] - %mu[i]) ** 2)\n"
                                      "%y[i, d] = (%x[i, d] - %mu[i]) / sqrt(%v[i] + 0.00001)", "HxDxf32"), {"x": k}, {"x": x},
                   lambda x: (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5))
        yield Case(f"squares {kind}", op("%x: tensor<HxDxf16>", "%y[i] = sum[d < D](%x[i, d] * %x[i, d])", "Hxf32"), {"x": k}, {"x": x}, lambda x: (x * x).sum(1))
        yield Case(f"mean of negated squares {kind}", op("%x: tensor<HxDxf16>", "%y[i] = mean[d < D](%x[i, d] * -%x[i, d])", "Hxf32"), {"x": k}, {"x": x},
                   lambda x: -(x * x).mean(1))
        yield Case(f"factors from outside, and read elsewhere {kind}",
                   op("%x: tensor<Hx(D + 1)xf16>, %g: tensor<Hxf16>", "%y[i] = sum[d < D + 1](%x[i, d] * %g[i] / 3 * -%x[i, d]) + %x[i, 0]", "Hxf32"), {"x": k},
                   {"x": x, "g": normal(9)}, lambda x, g: -(x * x).sum(1) * g / 3 + x[:, 0])
        yield Case(f"recurrence {kind}", op("%x: tensor<TxDxf16>, %w: tensor<DxDxf16>", "%y[0, j] = tanh(%x[0, j])\n"
                                            "%y[t < T, j] = tanh(%x[t, j] + sum[k < D](%y[t - 1, k] * %w[k, j]))", "TxDxf32", "where T >= 1"), both,
                   {"x": x, "w": normal(4, 4)}, recurrent, digits=3e-6)
        yield Case(f"rank 0 {kind}", op("%x: tensor<f16>, %v: tensor<Nxf16>", "%y[i] = %x * %v[i]", "Nxf32"), {"x": k, "v": k}, {"x": 1.3, "v": normal(5)},
                   lambda x, v: x * v)
        yield Case(f"f64 {kind}", op("%x: tensor<Hx(D + 1)xf64>, %w: tensor<(D + 1)xNxf64>", "%y[i, j] = sum[d < D + 1](%x[i, d] * %w[d, j]) + %x[i, 0]", "HxNxf64"),
                   both, two, lambda x, w: x @ w + x[:, :1])
        yield Case(f"zeros around by hand {kind}",
                   op("%x: tensor<Hxf16>, %w: tensor<3xf16>", "%y[i] = sum[d < 3](select(i + d >= 1 and i + d - 1 < H, %x[i + d - 1], 0) * %w[d])", "Hxf32"),
                   {"x": k, "w": Codes("i8", .02)}, {"x": normal(9), "w": normal(3)}, lambda x, w: sum(np.pad(x, 1)[d:d + 9] * w[d] for d in range(3)))
        yield Case(f"relu before {kind}", op("%x: tensor<HxDxf16>, %w: tensor<DxNxf16>", "%y[i, j] = sum[d < D](max(%x[i, d], 0) * f32(%w[d, j]))"), both, two,
                   lambda x, w: np.maximum(x, 0) @ w)
        yield Case(f"so far {kind}", op("%x: tensor<HxDxf16>, %w: tensor<HxDxf16>", "%y[i, j] = sum[t < i + 1](%x[t, j] * %w[t, j])", "HxDxf32"), {"x": k, "w": k},
                   {"x": x, "w": normal(9, 4)}, lambda x, w: np.cumsum(x * w, 0))
        yield Case(f"ragged {kind}", op("%x: tensor<HxDxf16>, %o: tensor<(B + 1)xi32>", "%y[b, j] = sum[t in %o[b]..%o[b + 1]](%x[t, j])", "BxDxf32"), {"x": k},
                   {"x": x, "o": [0, 2, 2, 9]}, lambda x, o: np.stack([x[a:b].sum(0) for a, b in pairwise(o)]))
        yield Case(f"pieces {kind}", op("%x: tensor<HxDxf16>, %w: tensor<DxNxf16>", "%y[i in 0..H, j] = sum[d < D](%x[i, d] * %w[d, j])\n"
                                        "%y[i in H..2 * H, j] = 2 * sum[d < D](%x[i - H, d] * %w[d, j])", "(2 * H)xNxf32"), both, two,
                   lambda x, w: np.concatenate([x @ w, 2 * x @ w]))
        yield Case(f"gathered {kind}", op("%x: tensor<HxDxf16>, %at: tensor<Mxi32>, %w: tensor<DxNxf16>", "%y[i, j] = sum[d < D](%x[%at[i], d] * %w[d, j])", "MxNxf32"),
                   both, {**two, "at": [3, 0, 8]}, lambda x, at, w: x[at] @ w)
        yield Case(f"scales along the sum {kind}", PLAIN, {"x": k, "w": weights(0)}, two, lambda x, w: x @ w, digits=1e-3)
        yield Case(f"two zero points {kind}", PLAIN, {"x": k, "w": Codes("u8", .03, 99)}, two, lambda x, w: x @ w)
        yield Case(f"three factors {kind}", op("%x: tensor<HxDxf16>, %w: tensor<DxNxf16>, %v: tensor<Dxf16>", "%y[i, j] = sum[d < D](%x[i, d] * %w[d, j] * %v[d])"),
                   {"x": k, "w": Codes("u8", .03, 99), "v": k}, {**two, "v": normal(4)}, lambda x, w, v: (x * v) @ w, digits=1e-3)


def borders() -> Iterator[Case]:
    """Scales for each place of an axis that is read outside: the border answers for them, too."""
    x = normal(7) * np.exp2(normal(7))
    for mode, pad in {"replicate": "edge", "reflect": "symmetric", "reflect101": "reflect", "wrap": "wrap", "constant(0)": "constant"}.items():
        for what, text, codes in (
                ("differences", "%y[i] = %x[i + 1] - 2 * %x[i - 1]", {"x": Codes("i8", "channel", axis=0)}),
                ("a window", "%y[i] = sum[t < 3](%x[i + t - 1] * %w[t])", {"x": Codes("i8", "channel", axis=0), "w": AFFINE}),
                ("a window of blocks", "%y[i] = sum[t < 3](%x[i + t - 1] * %w[t])", {"x": Codes("i8", "block", axis=0, size=2), "w": AFFINE})):
            if "blocks" in what and mode not in ("replicate", "constant(0)"):
                continue

            def meaning(x: Array, w: Array, pad: Any = pad, what: str = what) -> Array:
                p = np.pad(x, 1, mode=pad)
                return p[2:] - 2 * p[:-2] if what == "differences" else np.convolve(p, w[::-1], "valid")
            yield Case(f"{what} under {mode}", op("%x: tensor<Hxf16>, %w: tensor<3xf16>", text, "Hxf32", f"where H >= 2 memory {{ %x {{ border = {mode} }} }}"), codes,
                       {"x": x, "w": normal(3)}, meaning, digits=1e-6 if what == "differences" else 1e-3)


JOINED = """op @f(%x.0: tensor<NxHxCxf16>, %x.1: tensor<NxHxDxf16>, %k: tensor<(C + D)xOxf16>) -> (%y: tensor<NxHxOxf32>) {
  memory { %x { border = constant(0) } }
  compute {
    %x[n, h, c in 0..C]     = %x.0[n, h, c]
    %x[n, h, c in C..C + D] = %x.1[n, h, c - C]
    %y[n, h, o]             = sum[t < 3, c < C + D](%x[n, h + t - 1, c] * %k[c, o]) + %x[n, h, 0]
  }
}"""
"""A convolution of a list of operands."""


def lists() -> Iterator[Case]:
    arrays = {"x.0": normal(2, 5, 3), "x.1": normal(2, 5, 2), "k": normal(5, 4)}

    def meaning(k: Array, **parts: Array) -> Array:
        x = np.concatenate([parts["x.0"], parts["x.1"]], -1)
        p = np.pad(x, ((0, 0), (1, 1), (0, 0)))
        return np.asarray(sum(p[:, t:t + 5] @ k for t in range(3)) + x[:, :, :1])
    for kind in ("i8", "u8", "f8"):
        yield Case(f"a list {kind}", JOINED, {"x.0": KINDS[kind], "x.1": KINDS[kind], "k": weights()}, arrays, meaning)
        yield Case(f"a list of two scales {kind}", JOINED, {"x.0": KINDS[kind], "x.1": Codes("i8", .07), "k": weights()}, arrays, meaning)
        yield Case(f"a list half of codes {kind}", JOINED, {"x.0": KINDS[kind], "k": weights()}, arrays, meaning)


CASES = {c.name: c for c in (*convolutions(), *products(), *others(), *borders(), *lists())}
EMULATED_TOO = ["depthwise u8 border = constant(0)", "convolution, channels first u8 border = constant(0)", "convolution i4 blocks of 3 of f16", "convolution i4 blocks of 3 of f32", "linear u8 i4 blocks of f16", "linear u8 i4 blocks of f32", "linear i8 i4 channels of f16",
                "linear i8 channels, columns first of f16", "linear f8 f8 of f16", "linear found channels of f16", "weights only i4 blocks", "weights only channels", "attention u8",
                "global mean u8", "recurrence i8", "zeros around by hand u8", "ragged i8", "gathered found"]


@pytest.mark.parametrize(("name", "target"), [
    *((n, t) for n in CASES for t in ("reference", "cpu")), *(pytest.param(n, "cuda-emulated", marks=NEEDS_COMPILER) for n in EMULATED_TOO)])
def test_an_operator_on_codes(name: str, target: str) -> None:
    got, want, _ = run(CASES[name], target)
    assert np.abs(got - want).max() <= CASES[name].digits * np.abs(want).max()


# --------------------------------------------------------------------------------------------------------------------------- texts


def made(text: str, **codes: Codes) -> Operator:
    out = quantised(operator(text), codes, "f.1.i8")
    assert not isinstance(out, str), out
    return out


def body(op: Operator) -> str:
    text = print_operator(op)
    return re.sub(r" +", " ", text[text.index("compute"):])


def test_a_linear_layer_is_a_plain_product_of_bytes() -> None:
    """The form that kernels of products know: two reads of bytes, a sum of its own."""
    assert print_operator(made(LINEAR, x=AFFINE, w=weights(order=(1, 0)))) == """op @f.1.i8(%x: tensor<HxDxu8>, %w: tensor<NxDxi8>, %b: tensor<Nxf16>, %w.scale: tensor<Nxf32>, %w.sum: tensor<Nxi32>)
    -> (%y: tensor<HxNxf32>) {
  where D <= 65793
  compute {
    %acc[i, j] = sum[d < D](%x[i, d] * %w[j, d])
    %y[i, j]   = f32(%acc[i, j] - 37 * %w.sum[j]) * (0.05 * %w.scale[j]) + %b[j]
  }
}"""


def test_scales_found_at_the_call() -> None:
    out = made(LINEAR, x=FOUND, w=weights())
    assert [o.name for o in out.operands] == ["x", "w", "b", "x.scale", "x.zero", "w.scale", "w.sum"]
    assert "f32(%acc[i, j] - %x.zero * %w.sum[j]) * (%x.scale * %w.scale[j]) + %b[j]" in body(out)


def test_a_weight_that_is_no_parameter_is_summed_in_place() -> None:
    out = made(LINEAR, x=AFFINE, w=Codes("i8", "channel", axis=1))
    assert "%w.codes[j] = sum[d < D](%w[d, j])" in body(out)


def test_codes_of_four_bits_are_taken_apart_where_they_are_read() -> None:
    out = made(PLAIN, w=Codes("i4", "block", axis=0, size=32, order=(1, 0), param=True))
    assert ("sum[d < D](%x[i, d] * f16(f32((select(d mod 2 == 0, %w[j, d floordiv 2], %w[j, d floordiv 2] floordiv 16) + 8) mod 16 - 8) * "
            "%w.scale[d floordiv 32, j]))") in body(out)
    assert [o.type.dtype for o in out.operands] == ["f16", "u8", "f32"]


def test_a_list_of_operands_is_joined_as_codes() -> None:
    text = body(made(JOINED, **{"x.0": AFFINE, "x.1": AFFINE, "k": weights()}))
    assert "%x[n, h, c in 0..C] = %x.0[n, h, c]" in text
    assert "%acc[n, h, o] = sum[t < 3, c < C + D](%x[n, h + t - 1, c] * %k[c, o])" in text


def test_sums_of_blocks() -> None:
    text = body(made(PLAIN.replace("xf16>", "xf32>"), x=AFFINE, w=Codes("i8", "block", axis=0, size=32, param=True)))
    assert "%acc[i, j, b] = sum[d in b * 32..min(b * 32 + 32, D)](%x[i, d] * %w[d, j])" in text
    assert "%y[i, j] = sum[b < D ceildiv 32](f32(%acc[i, j, b] - 37 * %w.sum[b, j]) * (0.05 * %w.scale[b, j]))" in text


@pytest.mark.parametrize(("terms", "end"), [(64, "b * 32 + 32"), (67, "min(b * 32 + 32, 67)")])
def test_the_last_block_ends_with_its_axis(terms: int, end: str) -> None:
    text = body(made(re.sub(r"\bD\b|D(?=x)|(?<=x)D", str(terms), PLAIN).replace("xf16>", "xf32>"), x=AFFINE, w=Codes("i8", "block", axis=0, size=32, param=True)))
    assert f"sum[d in b * 32..{end}](%x[i, d] * %w[d, j])" in text


def test_scores_of_attention_keep_their_scale_outside() -> None:
    text = body(made(ATTENTION, q=SYMMETRIC, k=SYMMETRIC, v=SYMMETRIC))
    assert "%acc[b, i, j] = sum[d < D](%q[b, i, d] * %k[b, j, d])" in text
    assert "%s[b, i, j] = scale * (f32(%acc[b, i, j]) * 0.0025)" in text
    assert "(%e[b, i, j] * f16(%v[b, j, d])) * 0.05 / %z[b, i]" in text


def test_what_a_contract_keeps_and_loses() -> None:
    op = operator("""
      /// Says what it does.
      op @f(%x: tensor<HxDxf16>, %w: tensor<DxNxf16>, %i: tensor<Hxi32>, eps: f32 = 0.5) -> (%y: tensor<HxNxf16>, %z: tensor<HxDxf16>) {
        where D mod 2 == 0
        memory { dtypes = [f16, f32], border = replicate, align = 16, %w { contiguity = dense }, %z { inplace = %x } }
        semantic { %x { range = [0, 1] }, %y { range = [0, 9] } }
        execution { max_streams = 2 }
        compile { fast_math = true }
        downgrade sm_75 { dtype = i8, budget = 0.01 }
        schedule { %y { map = grid } }
        compute {
          %y[i, j] = sum[d < D](%x[i, d + %i[i]] * %w[d, j]) + eps
          %z[i, d] = 1
        }
        gradient { %dx[i, d] = 0 }
      }""")
    out = quantised(op, {"x": SYMMETRIC, "w": weights()}, "f.1")
    assert not isinstance(out, str), out
    text = print_operator(out)
    assert out.doc == op.doc
    assert conditions(out) == ["D mod 2 == 0", "D <= 131071"]
    assert out.downgrades == op.downgrades
    assert out.gradient is None
    assert "memory { align = 16, %w { contiguity = dense }, %x { border = replicate }, %i { border = replicate } }" in re.sub(r"\s+", " ", text)
    assert "%y { range = [0, 9] }" in text
    assert "max_streams = 2" in text
    assert "fast_math = true" in text
    for gone in ("dtypes", "inplace", "[0, 1]", "schedule"):
        assert gone not in text
    assert [p.name for p in out.params] == ["x", "w", "i", "eps", "w.scale"]


# ------------------------------------------------------------------------------------------------------------- sums that fit i32


@pytest.mark.parametrize("target", ["reference", "cpu", EMULATED])
@pytest.mark.parametrize("terms", [2, 4, 64, 1000])
def test_sums_of_bytes_do_not_saturate(target: str, terms: int) -> None:
    """255 * 127 a term: pairs of them are beyond 16 bits."""
    op = made(op_of("1x2"), x=Codes("u8", 1.0), w=Codes("i8", 1.0))
    x, w = np.full((1, terms), 255, np.uint8), np.full((terms, 2), 127, np.int8)
    w[:, 1] = -128
    got, = called(op, x, w, target=target)
    assert got.tolist() == [[255 * 127 * terms, -255 * 128 * terms]]


def op_of(result: str) -> str:
    h, n = result.split("x")
    return op(f"%x: tensor<{h}xDxf16>, %w: tensor<Dx{n}xf16>", "%y[i, j] = sum[d < D](%x[i, d] * %w[d, j])", f"{result}xf32")


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_the_largest_sum_that_fits(target: str) -> None:
    terms = (2**31 - 1) // (255 * 128)
    op = made(PLAIN.replace("D", str(terms)), x=Codes("u8", 1.0), w=Codes("i8", 1.0))
    got, = called(op, np.full((1, terms), 255), np.full((terms, 1), -128), target=target)
    assert got.tolist() == [[np.float32(-255 * 128 * terms)]]
    why = quantised(operator(PLAIN.replace("D", str(terms + 1))), {"x": Codes("u8", 1.0), "w": Codes("i8", 1.0)}, "f.1")
    assert why == f"a sum of {terms + 1} products of codes up to 32640 may not fit i32"


@pytest.mark.parametrize(("text", "codes", "want"), [
    (PLAIN, {"x": SYMMETRIC, "w": weights()}, ["D <= 131071"]), (PLAIN, {"x": AFFINE, "w": weights()}, ["D <= 65793"]),
    (PLAIN, {"x": SYMMETRIC, "w": Codes("i4", "block", axis=0, size=32)}, []), (PLAIN, {"w": weights()}, []), (PLAIN, {"x": EIGHTH, "w": EIGHTH}, []),
    (CONVOLUTION.replace("BORDER", "border = constant(0)"), {"x": SYMMETRIC, "k": weights(3)}, ["C <= 14563"]),
    (op("%x: tensor<BxHxWxCxf16>", "%y[b, c] = mean[h < H, w < W](%x[b, h, w, c])", "BxCxf32"), {"x": AFFINE}, ["H * W <= 8421504"])])
def test_conditions_on_sizes(text: str, codes: Mapping[str, Codes], want: list[str]) -> None:
    """A sum of products of codes up to 128 * 128 or 255 * 128, or of codes up to 255, below 2 ** 31."""
    assert conditions(made(text, **codes)) == want


# ------------------------------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(("text", "codes", "why"), [
    (PLAIN, {"x": Codes("u8", .05, 256)}, "the zero point 256 of '%x' is no u8"), (PLAIN, {"x": Codes("i8", .05, -129)}, "the zero point -129 of '%x' is no i8"),
    (PLAIN, {"x": Codes("f8e4m3", .05, 1)}, "f8e4m3 has no zero point"), (PLAIN, {"x": Codes("i8", 0.0)}, "the scale of '%x' is 0.0"),
    (PLAIN, {"x": Codes("i8", float("nan"))}, "the scale of '%x' is nan"), (PLAIN, {"x": Codes("i8", float("inf"))}, "the scale of '%x' is inf"),
    (PLAIN, {"z": SYMMETRIC}, "'%z' is no operand of floats"), (PLAIN.replace("DxNxf16", "DxNxi8"), {"w": SYMMETRIC}, "'%w' is no operand of floats"),
    (PLAIN, {"w": Codes("i4", "channel", axis=0, packed=1)}, "'N' does not follow from the bytes of '%w', two codes in each"),
    (DEPTHWISE.replace("BORDER", "border = constant(0)"), {"x": FOUND}, "its border is a constant, and the scale or the zero point is not known before the call"),
    (DEPTHWISE.replace("BORDER", "border = constant(1.5)"), {"x": Codes("i8", "tensor")}, "its border is a constant, and the scale or the zero point is not known before the call"),
    (DEPTHWISE.replace("BORDER", "border = constant(9)"), {"x": SYMMETRIC}, "its border, 9, is beyond what its codes stand for"),
    (DEPTHWISE.replace("BORDER", "border = reflect"), {"x": Codes("i8", "block", axis=2, size=2)}, "its border along the blocks of '%x' is reflect"),
    (DEPTHWISE.replace("BORDER", "border = constant(-inf)"), {"x": SYMMETRIC}, "its border is no finite number"),
    ('op @f(%x: tensor<Nxf16>) -> (%y: tensor<Nxf16>) { compute { %y[i] = %x[i] } kernel cuda "f.cu" { entry = "f" } }', {"x": SYMMETRIC},
     "it is computed by a kernel of its own")])
def test_what_cannot_be(text: str, codes: Mapping[str, Codes], why: str) -> None:
    assert quantised(operator(text), codes, "f.1") == why


# --------------------------------------------------------------------------------------------------------------- what scales are for


def test_one_scale_for_a_depthwise_convolution_collapses() -> None:
    """Channels of very different magnitudes: with one scale the small ones lose all their digits, with one each none is worse than half a step of 127."""
    x = normal(1, 8, 8, 6)
    k = normal(3, 3, 6) * np.array([1, 1e-1, 1e-2, 1e-3, 1e-4, 30])
    text = DEPTHWISE.replace("BORDER", "border = constant(0)")
    errors = {}
    for scale in ("tensor", "channel"):
        codes = Codes("i8", scale, axis=2 if scale == "channel" else None, param=True)
        op = made(text, x=Codes("i8", .03), k=codes)
        step = np.abs(k).max() / 127 if scale == "tensor" else np.abs(k).max((0, 1)) / 127
        q = np.rint(k / np.asarray(step, np.float32)).astype(np.int8)
        codes_of_x = np.clip(np.rint(x / np.float32(.03)), -128, 127).astype(np.int8)
        got, = called(op, codes_of_x, q, np.asarray(step, np.float32), target="cpu")
        want = depthwise(codes_of_x * .03, k)
        errors[scale] = (np.abs(got - want).max((0, 1, 2)) / np.abs(want).max((0, 1, 2)))
    assert errors["channel"].max() < 0.01
    assert errors["tensor"][2:5].min() > 0.3
    assert errors["tensor"].max() > 50 * errors["channel"].max()
    # The channels that collapse come out as nothing but zeros.
    assert errors["tensor"][3:5] == pytest.approx([1, 1])


# ------------------------------------------------------------------------------------------------- sizes that bytes do not say


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize("terms", [6, 7])
def test_sums_and_values_of_four_bits_whose_number_is_open(target: str, terms: int) -> None:
    """It is an attribute, which the pipeline gives as one of its own sizes."""
    codes = Codes("i4", "block", axis=0, size=4, param=True)
    op = operator(PLAIN)
    total, back = summer(op, "w", codes, "w.sum"), dequantiser(op.operands[1].type, codes, "w.real")
    assert total is not None
    assert [a.name for a in total.attributes] == [a.name for a in back.attributes] == ["D0"]
    text = f"""{print_operator(total)}
{print_operator(back)}
pipeline @main(%x: tensor<KxNxf16>, %q: tensor<((K + 1) floordiv 2)xNxu8>, %scale: tensor<(K ceildiv 4)xNxf32>) -> (%s: tensor<(K ceildiv 4)xNxi32>, %y: tensor<KxNxf16>) {{
  %s = @w.sum(%q) {{D0 = K}}
  %r = @w.real(%q, %scale) {{D0 = K}}
  %y = @add(%r, %x)
}}
op @add(%a: tensor<HxWxf16>, %b: tensor<HxWxf16>) -> (%c: tensor<HxWxf16>) {{ compute {{ %c[h, w] = %a[h, w] + %b[h, w] }} }}
"""
    q = RNG.integers(-7, 8, (terms, 3))
    scale = np.full((2, 3), 0.5, np.float32)
    given = {"x": np.zeros((terms, 3), np.float16), "q": in_memory(q, codes), "scale": scale}
    out = compile_program(text, target).executable(given)
    np.testing.assert_array_equal(out["s"], [q[:4].sum(0), q[4:].sum(0)])
    np.testing.assert_array_equal(out["y"], q / 2)
