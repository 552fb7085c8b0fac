"""The graph of MobileNetV2 (M. Sandler et al., arXiv:1801.04381, table 2) as a program of any size, width and dtype: 99 nodes, with static shapes.

Pixels lie with their channels side by side (NHWC), so a 1x1 convolution is the library's `@linear`. Batch normalisation is folded into the weights, as it is
when a network is deployed. `python benchmarks/models/mobilenet_v2.py [SIZE [WIDTH]] > mobilenet.plir` prints it.
"""
from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""Factor by which channels are expanded, channels, repetitions, stride of the first one."""

STEM, LAST, CLASSES = 32, 1280, 1000


@dataclass(frozen=True, slots=True)
class Layer:
    """One node: what it does, how many channels it takes and gives, its stride, and the layer whose result is added (`add`)."""

    kind: str
    name: str
    of: str
    c_in: int
    c_out: int
    stride: int = 1
    other: str = ""


def _channels(c: int, width: float) -> int:
    """A multiple of 8 that is no more than a tenth smaller, as the paper's own code has it."""
    if width == 1.0:
        return c
    scaled = max(8, int(c * width + 4) // 8 * 8)
    return scaled + 8 if scaled < 0.9 * c * width else scaled


def layers(width: float = 1.0, classes: int = CLASSES) -> Iterator[Layer]:
    """The network, node by node."""
    c, edge = _channels(STEM, width), "img"
    yield Layer("stem", "stem", edge, 3, c, 2)
    yield Layer("relu6", "stem_a", "stem", c, c)
    edge, number = "stem_a", 0
    for factor, channels, repeats, stride in STAGES:
        for n in range(repeats):
            number += 1
            out, step, hidden, begin = _channels(channels, width), stride if n == 0 else 1, c * factor, edge
            name = f"b{number}"
            if factor > 1:
                yield Layer("linear", f"{name}_up", edge, c, hidden)
                yield Layer("relu6", f"{name}_upa", f"{name}_up", hidden, hidden)
                edge = f"{name}_upa"
            yield Layer("depthwise", f"{name}_dw", edge, hidden, hidden, step)
            yield Layer("relu6", f"{name}_dwa", f"{name}_dw", hidden, hidden)
            yield Layer("linear", f"{name}_down", f"{name}_dwa", hidden, out)
            edge = f"{name}_down"
            if step == 1 and out == c:
                yield Layer("add", name, edge, out, out, other=begin)
                edge = name
            c = out
    last = max(LAST, _channels(LAST, width))
    yield Layer("linear", "last", edge, c, last)
    yield Layer("relu6", "last_a", "last", last, last)
    yield Layer("pool", "pooled", "last_a", last, last)
    yield Layer("linear", "scores", "pooled", last, classes)


OPERATORS = """/// A full 3x3 convolution with stride 2 over a picture with a ring of zeros.
op @stem(%x: tensor<NxHxWxCxT, NHWC>, %k: tensor<3x3xCxMxT>, %b: tensor<MxT>) -> (%y: tensor<Nx(ceildiv(H, 2))x(ceildiv(W, 2))xMxT, NHWC>) {
  memory  { dtypes = [f16, bf16, f32, f64], border = constant(0) }
  compute { %y[n, h, w, m] = sum[i < 3, j < 3, c < C](%x[n, 2*h + i - 1, 2*w + j - 1, c] * %k[i, j, c, m]) + %b[m] }
}

/// Each channel by a 3x3 kernel of its own.
op @depthwise1(%x: tensor<NxHxWxCxT, NHWC>, %k: tensor<3x3xCxT>, %b: tensor<CxT>) -> (%y: tensor<NxHxWxCxT, NHWC>) {
  memory  { dtypes = [f16, bf16, f32, f64], padding = same, border = constant(0) }
  compute { %y[n, h, w, c] = sum[i < 3, j < 3](%x[n, h + i - 1, w + j - 1, c] * %k[i, j, c]) + %b[c] }
}

/// The same with stride 2.
op @depthwise2(%x: tensor<NxHxWxCxT, NHWC>, %k: tensor<3x3xCxT>, %b: tensor<CxT>) -> (%y: tensor<Nx(ceildiv(H, 2))x(ceildiv(W, 2))xCxT, NHWC>) {
  memory  { dtypes = [f16, bf16, f32, f64], border = constant(0) }
  compute { %y[n, h, w, c] = sum[i < 3, j < 3](%x[n, 2*h + i - 1, 2*w + j - 1, c] * %k[i, j, c]) + %b[c] }
}

/// The mean of each channel.
op @pool(%x: tensor<NxHxWxCxT, NHWC>) -> (%y: tensor<NxCxT>) {
  memory  { dtypes = [f16, bf16, f32, f64] }
  compute { %y[n, c] = mean[h < H, w < W](%x[n, h, w, c]) }
}
"""


def shapes(width: float = 1.0, classes: int = CLASSES) -> dict[str, tuple[int, ...]]:
    """The weights: `<layer>_k` and `<layer>_b`."""
    out: dict[str, tuple[int, ...]] = {}
    for n in layers(width, classes):
        if n.kind in ("stem", "linear", "depthwise"):
            out[f"{n.name}_k"] = {"stem": (3, 3, n.c_in, n.c_out), "linear": (n.c_in, n.c_out), "depthwise": (3, 3, n.c_in)}[n.kind]
            out[f"{n.name}_b"] = (n.c_out,)
    return out


def multiplications(size: int = 224, width: float = 1.0, classes: int = CLASSES) -> int:
    """Products of two numbers that one picture takes."""
    side, total = {"img": size}, 0
    for n in layers(width, classes):
        here = -(-side[n.of] // n.stride) if n.kind != "pool" else 1
        side[n.name] = here
        each = {"stem": 27 * n.c_out, "linear": n.c_in * n.c_out, "depthwise": 9 * n.c_in}.get(n.kind, 0)
        total += here * here * each
    return total


def program(size: int = 224, width: float = 1.0, dtype: str = "f32", batch: int = 1, classes: int = CLASSES) -> str:
    """The pipeline `@mobilenet_v2(%img, weights…) -> (%scores)`."""
    operands = [f"%img: tensor<{batch}x{size}x{size}x3x{dtype}, NHWC>"]
    operands += [f"param %{name}: tensor<{'x'.join(map(str, shape))}x{dtype}>" for name, shape in shapes(width, classes).items()]
    calls = {"stem": "stem", "linear": "linear", "depthwise": "depthwise{stride}", "relu6": "relu6", "add": "add", "pool": "pool"}
    lines = []
    for n in layers(width, classes):
        weights = f", %{n.name}_k, %{n.name}_b" if n.kind in ("stem", "linear", "depthwise") else f", %{n.other}" if n.other else ""
        lines.append(f"  %{n.name} = @{calls[n.kind].format(stride=n.stride)}(%{n.of}{weights})")
    head = f"pipeline @mobilenet_v2({', '.join(operands)})\n    -> (%scores: tensor<{batch}x{classes}x{dtype}>) {{\n"
    return "import std.nn\n\n" + OPERATORS + "\n" + head + "\n".join(lines) + "\n}\n"


def arrays(rng: Any, size: int = 224, width: float = 1.0, batch: int = 1, classes: int = CLASSES) -> dict[str, Any]:
    """A picture and weights in f32, such that values keep their size from layer to layer."""
    import numpy as np
    out = {"img": rng.random((batch, size, size, 3), dtype=np.float32)}
    for name, shape in shapes(width, classes).items():
        fan = int(np.prod(shape[:-1])) if len(shape) != 3 else 9
        scale = 0.05 if name.endswith("_b") else (2 / fan) ** 0.5
        out[name] = np.float32(scale) * rng.standard_normal(shape, dtype=np.float32)
    return out


def by_numpy(given: Mapping[str, Any], width: float = 1.0, classes: int = CLASSES) -> Any:
    """The scores, in float64."""
    import numpy as np
    from numpy.lib.stride_tricks import sliding_window_view
    values = {"img": given["img"].astype(np.float64)}
    weights = {k: v.astype(np.float64) for k, v in given.items() if k != "img"}
    for n in layers(width, classes):
        x, k, b = values[n.of], weights.get(f"{n.name}_k"), weights.get(f"{n.name}_b")
        if n.kind == "relu6":
            y = np.clip(x, 0, 6)
        elif n.kind == "add":
            y = x + values[n.other]
        elif n.kind == "pool":
            y = x.mean((1, 2))
        elif n.kind == "linear":
            y = x @ k + b
        else:
            windows = sliding_window_view(np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))), (3, 3), (1, 2))[:, ::n.stride, ::n.stride]
            y = np.einsum("nhwcij,ijcm->nhwm" if n.kind == "stem" else "nhwcij,ijc->nhwc", windows, k, optimize=True) + b
        values[n.name] = y
    return values["scores"]


def by_torch(torch: Any, width: float = 1.0, classes: int = CLASSES) -> Any:
    """A function of the same arrays as tensors, in the order of the signature: PyTorch's own operators, channels last."""
    nn, plan = torch.nn.functional, list(layers(width, classes))
    names = list(shapes(width, classes))

    def run(img: Any, *weights: Any) -> Any:
        given, values = dict(zip(names, weights, strict=True)), {"img": img.permute(0, 3, 1, 2)}
        uses = {e: max(i for i, n in enumerate(plan) if e in (n.of, n.other)) for e in ("img", *(n.name for n in plan[:-1]))}
        for i, n in enumerate(plan):
            x, k, b = values[n.of], given.get(f"{n.name}_k"), given.get(f"{n.name}_b")
            if n.kind == "relu6":
                y = nn.relu6(x)
            elif n.kind == "add":
                y = x + values[n.other]
            elif n.kind == "pool":
                y = x.mean((2, 3))
            elif n.kind == "linear":
                y = x @ k + b if x.ndim == 2 else nn.conv2d(x, k.t()[:, :, None, None], b)
            elif n.kind == "stem":
                y = nn.conv2d(x, k.permute(3, 2, 0, 1), b, stride=2, padding=1)
            else:
                y = nn.conv2d(x, k.permute(2, 0, 1)[:, None], b, stride=n.stride, padding=1, groups=n.c_in)
            values[n.name] = y
            for e in [e for e in values if uses.get(e) == i]:
                del values[e]
            del x, y
        return values["scores"]
    return run


if __name__ == "__main__":
    print(program(*(int(a) if n == 0 else float(a) for n, a in enumerate(sys.argv[1:3]))), end="")
