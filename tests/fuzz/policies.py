"""Small networks with random policies: layers of products, windows, activations and norms, each with a clause of its own or inside a graph whose policy names it.

Everything that a clause may say occurs: float dtypes, codes of eight bits with and without a zero point, f8, weights of four bits, one scale or many, ranges
found at the call or before, budgets from generous to hopeless. Results with a budget are results of the pipeline, so that they can be looked at.
"""
from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np

from tests.fuzz.tape import Tape

LAYERS = {
    "linear": "op @{0}(%x: tensor<...xKxT>, %w: tensor<KxMxT>, %b: tensor<MxT>) -> (%y: tensor<...xMxT>) {{\n  memory {{ dtypes = [f8e5m2, f8e4m3, f16, bf16, f32] }}\n{1}"
              "  compute {{ %y[..., j] = sum[k < K](%x[..., k] * %w[k, j]) + %b[j] }}\n}}",
    "depth": "op @{0}(%x: tensor<NxHxWxCxT>, %k: tensor<3x3xCxT>) -> (%y: tensor<NxHxWxCxT>) {{\n"
             "  memory {{ dtypes = [f8e5m2, f8e4m3, f16, bf16, f32], border = constant(0) }}\n{1}"
             "  compute {{ %y[n, h, w, c] = sum[i < 3, j < 3](%x[n, h + i - 1, w + j - 1, c] * %k[i, j, c]) }}\n}}",
    "conv": "op @{0}(%x: tensor<NxHxWxCxT>, %k: tensor<3x3xCxOxT>) -> (%y: tensor<NxHxWxOxT>) {{\n"
            "  memory {{ dtypes = [f8e5m2, f8e4m3, f16, bf16, f32], border = constant(0) }}\n{1}"
            "  compute {{ %y[n, h, w, o] = sum[i < 3, j < 3, c < C](%x[n, h + i - 1, w + j - 1, c] * %k[i, j, c, o]) }}\n}}",
    "relu": "op @{0}(%x: tensor<...xT>) -> (%y: tensor<...xT>) {{\n  memory {{ dtypes = [f16, bf16, f32] }}\n{1}  compute {{ %y[...] = max(%x[...], 0) }}\n}}",
    "gelu": "op @{0}(%x: tensor<...xT>) -> (%y: tensor<...xT>) {{\n  memory {{ dtypes = [f16, bf16, f32] }}\n{1}"
            "  compute {{ %y[...] = 0.5 * %x[...] * (1 + erf(%x[...] * 0.7071067811865476)) }}\n}}",
    "pool": "op @{0}(%x: tensor<NxHxWxCxT>) -> (%y: tensor<Nx(H floordiv 2)x(W floordiv 2)xCxT>) {{\n  memory {{ dtypes = [f16, bf16, f32] }}\n{1}"
            "  compute {{ %y[n, h, w, c] = max[i < 2, j < 2](%x[n, 2 * h + i, 2 * w + j, c]) }}\n}}",
    "mean": "op @{0}(%x: tensor<NxHxWxCxT>) -> (%y: tensor<NxCxT>) {{\n  memory {{ dtypes = [f16, bf16, f32] }}\n{1}"
            "  compute {{ %y[n, c] = mean[h < H, w < W](%x[n, h, w, c]) }}\n}}",
    "plus": "op @{0}(%a: tensor<...xT>, %x: tensor<...xT>) -> (%y: tensor<...xT>) {{\n  memory {{ dtypes = [f16, bf16, f32] }}\n{1}"
            "  compute {{ %y[...] = %a[...] + %x[...] }}\n}}",
}
"""Operators by kind, with places for a name and for clauses."""

BUDGETS = ("3e-1", "1e-1", "5e-2", "1e-2")
"""What any dtype can keep somewhere; of f16 there may be a finer one. A budget below half a step of the dtype is refused before anything runs."""


@dataclass
class Net:
    """A pipeline while it grows: its last edge has `shape` and is read by the next layer."""

    tape: Tape
    dtype: str
    target: str
    shape: tuple[int, ...]
    last: str = "x"
    operators: list[str] = field(default_factory=list)
    params: dict[str, tuple[int, ...]] = field(default_factory=dict)
    nodes: list[str] = field(default_factory=list)
    results: dict[str, tuple[int, ...]] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    budgets: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """A program, its arrays, and the budgets of its results."""

    text: str
    arrays: dict[str, np.ndarray]
    params: frozenset[str]
    budgets: dict[str, float]
    dtype: str
    counts: dict[str, int]

    @property
    def without_budgets(self) -> str:
        return re.sub(r", budget = [0-9.e-]+", "", self.text)

    @property
    def without_policies(self) -> str:
        return re.sub(r"\n  downgrade [^\n]*", "", self.text)


def network(tape: Tape, target: str) -> Case:
    """Two to five layers, and what they compute on."""
    image = not tape.chance(3)
    size = (tape.between(1, 2), 2 * tape.between(2, 4), 2 * tape.between(2, 5), 4 * tape.between(1, 4)) if image else (tape.between(1, 9), 4 * tape.between(1, 9))
    g = Net(tape, tape.choose(("f32", "f32", "f16")), target, size)
    for _ in range(tape.between(2, 5)):
        _layer(g)
    g.results[g.last] = g.shape
    return _case(g, size)


def _layer(g: Net) -> None:
    kinds = ["linear", "relu", "gelu"]
    if len(g.shape) == 4:
        kinds += ["depth", "depth", "conv", "mean"] + (["pool"] if g.shape[1] % 2 == 0 and g.shape[2] % 2 == 0 else [])
    earlier = [e for e, s in g.shapes.items() if s == g.shape and e != g.last]
    kind = g.tape.choose([*kinds, *(["plus"] if earlier else [])])
    shape, made = _made(g, kind)
    name, edge = f"{kind}{len(g.operators)}", f"e{len(g.nodes)}"
    clause = _clause(g, kind, edge)
    if clause and g.tape.chance(3):
        g.operators.append(LAYERS[kind].format(name, ""))
        name = _around(g, g.operators[-1], name, clause)
    else:
        g.operators.append(LAYERS[kind].format(name, clause))
    others = [f"%{g.tape.choose(earlier)}"] if kind == "plus" else []
    g.nodes.append(f"%{edge} = @{name}({', '.join([*others, f'%{g.last}', *(f'%{p}' for p in made)])})")
    g.counts[kind] = g.counts.get(kind, 0) + 1
    if edge in g.budgets:
        g.results[edge] = shape
    g.last, g.shape, g.shapes[edge] = edge, shape, shape


def _made(g: Net, kind: str) -> tuple[tuple[int, ...], list[str]]:
    """The shape of a layer's result, and its parameters."""
    *outer, c = g.shape
    n, wide = len(g.nodes), 4 * g.tape.between(1, 5)
    needs: dict[str, dict[str, tuple[int, ...]]] = {
        "linear": {f"w{n}": (c, wide), f"b{n}": (wide,)}, "depth": {f"k{n}": (3, 3, c)}, "conv": {f"k{n}": (3, 3, c, wide)}}
    params = needs.get(kind, {})
    g.params |= params
    if kind == "pool":
        return (outer[0], outer[1] // 2, outer[2] // 2, c), []
    if kind == "mean":
        return (outer[0], c), []
    return (*outer, wide if kind in ("linear", "conv") else c), list(params)


def _around(g: Net, layer: str, name: str, clause: str) -> str:
    """A graph around a layer, whose policy speaks of all nodes inside or names the one by its label."""
    signature = layer.partition(" {\n")[0]
    inside = ", ".join(re.findall(r"%[a-z]+(?=: )", signature.partition("->")[0]))
    if g.tape.chance(2) and "dtype = " in clause:
        clause = clause.replace("dtype = ", "precision = mixed, one = ")
        g.counts["mixed"] = g.counts.get("mixed", 0) + 1
    g.operators.append(f"{signature.replace(f'@{name}', f'@{name}g')} {{\n{clause}  graph {{ %y = @{name}({inside}) as one }}\n}}")
    return f"{name}g"


def _clause(g: Net, kind: str, edge: str) -> str:
    """A clause for this layer, or none."""
    tape = g.tape
    if tape.chance(4):
        return ""
    product = kind in ("linear", "depth", "conv")
    dtype = tape.choose(("f16", "bf16", "i8", "i8", "u8", "f8e4m3", "f8e5m2") if product else ("f16", "bf16"))
    keys = [f"dtype = {dtype}"]
    if kind == "linear" and dtype == "f16" and tape.chance(2):
        keys.append(f"weights = {tape.choose(('i4', 'i8'))}, granularity = {tape.choose(('channel', 'block(4)'))}")
    if dtype.startswith("f8") and tape.chance(3):
        keys.append("scheme = plain")
    if dtype in ("i8", "u8"):
        if dtype == "u8" or tape.chance(2):
            keys.append("scheme = affine")
        keys.append(f"ranges = {tape.choose(('calibrated', 'dynamic'))}")
    if product and dtype in ("i8", "u8"):
        # u8 is for activations: weights are as often below zero as above.
        if kind == "linear" and tape.chance(4):
            keys.append("weights = i4")
            keys.append(tape.choose(("granularity = channel", "granularity = block(4)")))
        else:
            keys += ["weights = i8"] if dtype == "u8" else []
            keys.append(f"granularity = {tape.choose(('channel', 'tensor', 'channel'))}")
    g.counts[dtype] = g.counts.get(dtype, 0) + 1
    if not tape.chance(3):
        budget = tape.choose((*BUDGETS, "1e-3") if dtype == "f16" else BUDGETS[:2 if dtype == "f8e5m2" else 3] if dtype.startswith("f8") else BUDGETS)
        keys.append(f"budget = {budget}")
        g.budgets[edge] = float(budget)
    if not tape.chance(4):
        keys.append("force = true")
    return f"  downgrade {g.target} {{ {', '.join(keys)} }}\n"


def _case(g: Net, size: tuple[int, ...]) -> Case:
    rng = np.random.default_rng(g.tape.below(1 << 16))
    kind = np.float16 if g.dtype == "f16" else np.float32
    arrays = {"x": (rng.standard_normal(size) * g.tape.choose((1.0, 0.05, 8.0)) + g.tape.choose((0.0, 0.0, 1.0))).astype(kind)}
    for name, shape in g.params.items():
        terms = int(np.prod(shape[:-1])) if name[0] != "b" else 4
        # Channels of very different magnitude are what scales by channel are for.
        spread = np.exp2(rng.integers(-3, 1, shape[-1])) if g.tape.chance(3) else 1.0
        arrays[name] = (rng.standard_normal(shape) / np.sqrt(terms) * spread).astype(kind)
    declared = [f"%x: {_type(size, g.dtype)}", *(f"param %{p}: {_type(s, g.dtype)}" for p, s in g.params.items())]
    results = [f"%{r}: {_type(s, g.dtype)}" for r, s in g.results.items()]
    text = "\n".join([*g.operators, f"pipeline @p({', '.join(declared)}) -> ({', '.join(results)}) {{", *(f"  {n}" for n in g.nodes), "}", ""])
    return Case(text, arrays, frozenset(g.params), g.budgets, g.dtype, g.counts)


def _type(shape: tuple[int, ...], dtype: str) -> str:
    return f"tensor<{'x'.join(map(str, shape))}x{dtype}>"
