"""Odd programs with random policies: sizes of 0, 1 and primes, pictures and channels whose number the call decides, a value that is no number, borders of all
kinds, lists as operands, windows with steps, choices, gates and norms, edges that several read, results in the middle, `after`, every dtype of a clause. Whether their errors are small is not asked here, but whether all that becomes of a
program is the same: fused or not, printed and read again, and beside the reference."""
from __future__ import annotations

from dataclasses import dataclass, field

import ml_dtypes
import numpy as np

from tests.fuzz.tape import Tape

SAME = "tensor<NxHxWxCxT>"
HALF = "tensor<Nx(H ceildiv 2)x(W ceildiv 2)xCxT>"
MADE = "tensor<NxHxWxOxT>"
BORDERS = ("constant(0)", "replicate", "reflect", "reflect101", "wrap", "constant(-0.5)")

LAYERS: dict[str, tuple[str, str, str]] = {
    "conv": (", %k: tensor<3x3xCxOxT>", MADE, "%y[n, h, w, o] = sum[i < 3, j < 3, c < C](%x[n, h + i - 1, w + j - 1, c] * %k[i, j, c, o])"),
    "strided": (", %k: tensor<Ox3x3xCxT>", HALF.replace("xCx", "xOx"),
                "%y[n, h, w, o] = sum[i < 3, j < 3, c < C](%x[n, 2 * h + i - 1, 2 * w + j - 1, c] * %k[o, i, j, c])"),
    "depth": (", %k: tensor<3x3xCxT>", SAME, "%y[n, h, w, c] = max(sum[i < 3, j < 3](%x[n, h + i - 1, w + j - 1, c] * %k[i, j, c]), 0)"),
    "point": (", %k: tensor<CxOxT>, %b: tensor<OxT>", MADE, "%y[n, h, w, o] = sum[c < C](%x[n, h, w, c] * %k[c, o]) + %b[o]"),
    "listed": (", %k: tensor<CxOxT>", MADE, "%y[n, h, w, o] = sum[c < C](%x[n, h, w, c] * %k[c, o])"),
    "quotient": (", %k: tensor<CxOxT>", MADE,
                 "%a[n, h, w, o] = sum[c < C](%x[n, h, w, c] * %k[c, o])\n    %y[n, h, w, o] = %a[n, h, w, o] / (1 + abs(%a[n, h, w, o]))"),
    "pool": ("", HALF, "%y[n, h, w, c] = max[i < 2, j < 2](%x[n, 2 * h + i, 2 * w + j, c])"),
    "relu": ("", SAME, "%y[n, h, w, c] = max(%x[n, h, w, c], 0)"),
    "silu": ("", SAME, "%y[n, h, w, c] = %x[n, h, w, c] * sigmoid(%x[n, h, w, c])"),
    "add": (", %z: tensor<NxHxWxCxT>", SAME, "%y[n, h, w, c] = %x[n, h, w, c] + %z[n, h, w, c]"),
    "turn": ("", "tensor<NxWxHxCxT>", "%y[n, w, h, c] = %x[n, h, w, c]"),
    "larger": ("", "tensor<Nx(2*H)x(2*W)xCxT>", "%y[n, h, w, c] = %x[n, h floordiv 2, w floordiv 2, c]"),
    "shift": ("", SAME, "%y[n, h, w, c] = %x[n, h - 1, w + 1, c]"),
    "scale": (", %b: tensor<CxT>", SAME, "%y[n, h, w, c] = %x[n, h, w, c] * %b[c]"),
    "gate": ("", SAME, "%m[n, c] = mean[h < H, w < W](%x[n, h, w, c])\n    %y[n, h, w, c] = %x[n, h, w, c] * sigmoid(%m[n, c])"),
    "norm": ("", SAME, "%m[n, h, w] = mean[c < C](%x[n, h, w, c])\n    %v[n, h, w] = mean[c < C]((%x[n, h, w, c] - %m[n, h, w]) ** 2)\n"
             "    %y[n, h, w, c] = (%x[n, h, w, c] - %m[n, h, w]) * rsqrt(%v[n, h, w] + 0.1)"),
}
"""By kind: operands beside `%x`, the type of the result, what is computed."""
WINDOWS = ("conv", "strided", "depth", "shift")
DTYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
Shape = tuple[int, ...]


@dataclass
class Odd:
    """A program while it grows, and when it is done."""

    tape: Tape
    arch: str
    dtype: str
    symbol: bool
    """Whether the number of pictures is a symbol."""
    deep: int
    """A number of channels that is a symbol, as no other size is; 0 if there is none."""
    edges: dict[str, Shape]
    last: str = "x"
    params: dict[str, Shape] = field(default_factory=dict)
    operators: list[str] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    text: str = ""


def program(tape: Tape, arch: str) -> Odd:
    """Two to five layers, and what they compute on."""
    symbol = not tape.chance(3)
    deep = tape.choose((11, 33)) if tape.chance(4) else 0
    size = (tape.choose((1, 2, 3, 0) if symbol else (1, 2, 3)), tape.choose((2, 1, 3, 5, 7, 8)), tape.choose((4, 1, 2, 5, 9)),
            deep or tape.choose((4, 1, 2, 3, 5, 8, 12, 16, 17, 32)))
    g = Odd(tape, arch, tape.choose(("f32", "f32", "f16", "bf16")), symbol, deep, {"x": size})
    for _ in range(tape.between(2, 5)):
        _layer(g)
    _finish(g, size)
    return g


def _layer(g: Odd) -> None:
    kind = g.tape.choose(tuple(LAYERS))
    n, h, w, c = g.edges[g.last]
    if (kind == "larger" and h * w > 200) or (kind == "listed" and g.deep):
        kind = "relu"
    number, wide = len(g.nodes), g.tape.choose((4, 1, 2, 3, 8, 16, 20))
    args, shape = [f"%{g.last}"], (n, h, w, c)
    needs: dict[str, dict[str, Shape]] = {
        "conv": {"k": (3, 3, c, wide)}, "strided": {"k": (wide, 3, 3, c)}, "depth": {"k": (3, 3, c)}, "point": {"k": (c, wide), "b": (wide,)},
        "quotient": {"k": (c, wide)}, "scale": {"b": (c,)}}
    if kind == "listed":
        parts = [g.tape.choose([e for e, s in g.edges.items() if s[:3] == (n, h, w)]) for _ in range(g.tape.between(2, 3))]
        args = [f"[{', '.join(f'%{p}' for p in parts)}] along C"]
        needs["listed"] = {"k": (sum(g.edges[p][3] for p in parts), wide)}
    elif kind == "add":
        args.append(f"%{g.tape.choose([e for e, s in g.edges.items() if s == shape])}")
    for name, size in needs.get(kind, {}).items():
        g.params[f"{name}{number}"] = size
        args.append(f"%{name}{number}")
    shape = {"conv": (n, h, w, wide), "point": (n, h, w, wide), "listed": (n, h, w, wide), "quotient": (n, h, w, wide), "turn": (n, w, h, c),
             "strided": (n, -(-h // 2), -(-w // 2), wide), "pool": (n, -(-h // 2), -(-w // 2), c), "larger": (n, 2 * h, 2 * w, c)}.get(kind, shape)
    memory = ["dtypes = [f16, bf16, f32]"]
    if kind in WINDOWS:
        memory.append(f"border = {g.tape.choose(BORDERS)}")
    elif kind == "pool":
        memory.append(f"border = {g.tape.choose(('replicate', 'constant(-inf)', 'constant(0)'))}")
    operands, result, body = LAYERS[kind]
    clause = "" if g.tape.chance(4) else f"  downgrade {g.arch} {{ {_clause(g)} }}\n"
    g.operators.append(f"op @{kind}{number}(%x: tensor<NxHxWxCxT>{operands}) -> (%y: {result}) {{\n  memory {{ {', '.join(memory)} }}\n{clause}  compute {{\n"
                       f"    {body}\n  }}\n}}")
    earlier = [e for e in g.edges if e != "x"]
    after = f" after %{g.tape.choose(earlier)}" if earlier and g.tape.chance(8) else ""
    g.last = f"e{number}"
    g.nodes.append(f"%{g.last} = @{kind}{number}({', '.join(args)}) as l{number}{after}")
    g.edges[g.last] = shape
    g.counts[kind] = g.counts.get(kind, 0) + 1


def _clause(g: Odd) -> str:
    tape = g.tape
    dtype = tape.choose(("i8", "f16", "bf16", "i8", "u8", "f8e4m3"))
    keys = [f"dtype = {dtype}"]
    if dtype in ("i8", "u8"):
        keys += ["scheme = affine"] if dtype == "u8" or tape.chance(3) else []
        keys += ["ranges = dynamic"] if tape.chance(2) else []
    if dtype == "u8":
        keys.append("weights = i8")
    elif dtype == "i8" and tape.chance(5):
        keys += ["weights = i4", "granularity = channel"]
    elif dtype in ("i8", "f8e4m3") and tape.chance(4):
        keys.append("granularity = tensor")
    keys += [] if tape.chance(5) else ["force = true"]
    g.counts[dtype] = g.counts.get(dtype, 0) + 1
    return ", ".join(keys)


def _finish(g: Odd, size: Shape) -> None:
    rng, kind = np.random.default_rng(g.tape.below(1 << 16)), DTYPES[g.dtype]
    g.arrays["x"] = np.asarray(rng.standard_normal(size) * g.tape.choose((1.0, 0.05, 5.0)) + g.tape.choose((0.0, 0.0, 1.0))).astype(kind)
    if g.tape.chance(6) and g.arrays["x"].size:
        g.arrays["x"].flat[g.tape.below(g.arrays["x"].size)] = g.tape.choose((np.nan, np.inf, -np.inf))
    for name, shape in g.params.items():
        g.arrays[name] = np.asarray(rng.standard_normal(shape) / np.sqrt(max(1, int(np.prod(shape[:-1]))) if len(shape) > 1 else 1)).astype(kind)
    inputs = [f"%x: {_type(g, size, True)}", *(f"{'' if g.tape.chance(6) else 'param '}%{p}: {_type(g, s, False)}" for p, s in g.params.items())]
    results = [e for e in g.edges if e == g.last or (e != "x" and g.tape.chance(4))]
    g.text = "\n".join([*g.operators, f"pipeline @p({', '.join(inputs)}) -> ({', '.join(f'%{e}: {_type(g, g.edges[e], True)}' for e in results)}) {{",
                        *(f"  {n}" for n in g.nodes), "}", ""])


def _type(g: Odd, shape: Shape, picture: bool) -> str:
    dims = ["B" if g.symbol and picture and k == 0 else "C" if n and n == g.deep else str(n) for k, n in enumerate(shape)]
    return f"tensor<{'x'.join([*dims, g.dtype])}>"
