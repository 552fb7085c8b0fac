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
from pipelink_ir.passes.precision.codes import Codes
from pipelink_ir.passes.precision.quantised import quantised
from tests.emulated import NEEDS_COMPILER
from tests.unit.precision.bodies import (
    AFFINE,
    ATTENTION,
    CONVOLUTION,
    DEPTHWISE,
    EIGHTH,
    FOUND,
    JOINED,
    LINEAR,
    PLAIN,
    SYMMETRIC,
    Array,
    attended,
    convolution,
    depthwise,
    made,
    normal,
    op,
    recurrent,
    weights,
)
from tests.unit.precision.coding import arguments, called, in_memory, operator

KINDS = {"i8": SYMMETRIC, "u8": AFFINE, "found": FOUND, "f8": EIGHTH}
BORDERS = {"border = constant(0)": ("constant", 0.0), "border = replicate": ("edge", 0.0), "%x { border = constant(0.5) }": ("constant", .5),
           "%x { border = [none, constant(0), constant(0), none] }": ("constant", 0.0)}
MASK = np.tril(np.ones((9, 9), bool))
PARTS = np.triu(np.ones((9, 9)), 2)
"""The last two rows have nothing."""


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
        for what, range_, first, last in (("a sum", "d in 3..D", 3, 4), ("a sum to D - 3", "d < D - 3", 0, 1)):
            text = op("%x: tensor<HxDxf16>, %w: tensor<DxNxf16>", f"%y[i, j] = sum[{range_}](%x[i, d] * %w[d, j])")
            yield Case(f"{what} of one term {kind}", text, {"x": k, "w": AFFINE}, two, lambda x, w, a=first, b=last: x[:, a:b] @ w[a:b])
            yield Case(f"{what} that ends before it begins {kind}", text, {"x": k, "w": AFFINE}, {"x": normal(9, 2), "w": normal(2, 3)},
                       lambda x, w: np.zeros((9, 3)))
        yield Case(f"rows without a term, divided by nothing {kind}",
                   op("%p: tensor<LxLxf32>, %x: tensor<LxDxf16>, %z: tensor<Lxf32>, %mask: tensor<LxLxbool>",
                      "%y[i, d] = sum[j < L where %mask[i, j]](%p[i, j] * %x[j, d] / %z[i])", "LxDxf32"), {"x": k},
                   {"p": PARTS, "x": x, "z": PARTS.sum(1), "mask": PARTS > 0}, lambda p, x, z, mask: p @ x / np.maximum(z, 1)[:, None])
        yield Case(f"weights that two sums share {kind}",
                   op("%x: tensor<HxDxf16>, %u: tensor<HxDxf16>, %w: tensor<DxDxf16>",
                      "%h[i, j] = sum[d < D](%u[i, d] * %w[d, j])\n%y[i, d] = sum[j < D](%x[i, j] * %w[d, j]) + %h[i, d]", "HxDxf32"),
                   {"x": k, "u": SYMMETRIC, "w": Codes("i8", .02, param=True)}, {"x": x, "u": normal(9, 4), "w": normal(4, 4)}, lambda x, u, w: x @ w.T + u @ w)
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
