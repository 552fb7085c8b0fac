"""How long each pass takes, and how that grows: generated pipelines of 100, 1,000 and 10,000 nodes, as chains, diamonds, wide graphs, graphs of several
kinds of nodes, chains of rows and products and of residuals, with and without fusion (unfused, the passes behind `fuse` have all the nodes to plan).

    python benchmarks/passes.py                  # all of it, some minutes
    python benchmarks/passes.py --nodes 100 1000 --shapes chain

The growth exponent of a pass is the slope of its times over the numbers of nodes, both as logarithms; one pass that goes over every node once has 1. It is
fitted to the times above 5 ms, below which there is more noise than work, and has to be at most 1.2. Times are those of the processor (nothing runs in other
threads), the best of three runs, or of two for the largest pipelines.
"""
from __future__ import annotations

import argparse
import gc
import math
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path[:0] = [str(p) for p in (Path(__file__).resolve().parent, Path(__file__).resolve().parent.parent) if str(p) not in sys.path]
from common import save  # noqa: E402

from pipelink_ir.grammar import parse, print_module  # noqa: E402
from pipelink_ir.ir.diagnostics import Report  # noqa: E402
from pipelink_ir.ir.nodes import Module  # noqa: E402
from pipelink_ir.passes.manager import Step, parse_passes, run_passes, with_options  # noqa: E402
from pipelink_ir.passes.verify import verify  # noqa: E402

NODES = (100, 1000, 10000)
MOST = 1.2
LEAST_MS = 5.0

OPERATORS = """
op @scale(%x: tensor<HxWxf32>, by: f32 = 1.0) -> (%y: tensor<HxWxf32>) { compute { %y[h, w] = by * %x[h, w] + 1 } }
op @plus(%a: tensor<...xT>, %b: tensor<...xT>) -> (%y: tensor<...xT>) { memory { dtypes = [f16, f32] } compute { %y[...] = %a[...] + %b[...] } }
op @blur(%x: tensor<HxWxf32>) -> (%y: tensor<HxWxf32>) {
  memory  { border = replicate }
  compute { %y[h, w] = (%x[h, w - 1] + 2 * %x[h, w] + %x[h, w + 1]) / 4 }
}
op @matmul(%x: tensor<HxKxf32>, %w: tensor<KxMxf32>) -> (%y: tensor<HxMxf32>) { compute { %y[h, m] = sum[k < K](%x[h, k] * %w[k, m]) } }
op @twice(%x: tensor<HxWxf32>) -> (%y: tensor<HxWxf32>) { graph { %t = @scale(%x) {by = 0.5} %y = @blur(%t) } }
"""


def chain(nodes: int) -> Iterator[str]:
    """Each node reads the one before."""
    for i in range(nodes):
        yield f"%n{i} = @{('scale', 'blur')[i % 2]}(%{f'n{i - 1}' if i else 'x'})"


def diamonds(nodes: int) -> Iterator[str]:
    """One node, two that read it, one that reads both."""
    last = "x"
    for i in range(0, nodes - 3, 4):
        yield f"%n{i} = @scale(%{last})"
        yield f"%n{i + 1} = @blur(%n{i})"
        yield f"%n{i + 2} = @scale(%n{i}) {{by = 2.0}}"
        yield f"%n{i + 3} = @plus(%n{i + 1}, %n{i + 2})"
        last = f"n{i + 3}"


def wide(nodes: int) -> Iterator[str]:
    """Half of the nodes read the input, the others two of those."""
    half = nodes // 2
    for i in range(half):
        yield f"%n{i} = @{('blur', 'scale')[i % 2]}(%x)" + (f" {{by = {i}.5}}" if i % 2 else "")
    for i in range(half, nodes):
        yield f"%n{i} = @plus(%n{i - half}, %n{(i - half + 1) % half})"


def mixed(nodes: int) -> Iterator[str]:
    """Each node reads one or two of the last eight, some come after others, some are graphs, some second names."""
    rng = random.Random(nodes)
    last = ["x"]
    for i in range(nodes):
        a, b = rng.choice(last[-8:]), rng.choice(last[-8:])
        yield f"%n{i} = " + (f"@plus(%{a}, %{b})", f"@blur(%{a})", f"@scale(%{a}) {{by = {i % 7}.25}}", f"@twice(%{a})", f"@plus(%{a}, %{b}) after %{last[-1]}"
                             if len(last) > 1 else f"@plus(%{a}, %{b})", f"@blur(%{b})")[rng.randrange(6)]
        if i % 50 == 7:
            yield f"%m{i} = %n{i}"
        last.append(f"m{i}" if i % 50 == 7 else f"n{i}")


def rows(nodes: int) -> Iterator[str]:
    """A softmax, a layer_norm and a product of matrices by turns, each of what the one before makes."""
    for i in range(nodes):
        x = f"%n{i - 1}" if i else "%x"
        yield f"%n{i} = " + (f"@softmax({x})", f"@layer_norm({x}, %g, %b)", f"@matmul({x}, %w)")[i % 3]


def widths(nodes: int) -> Iterator[str]:
    """The same with another width behind each product."""
    for i in range(nodes):
        x = f"%n{i - 1}" if i else "%x"
        yield f"%n{i} = " + (f"@softmax({x})", f"@layer_norm({x}, %g{i // 3}, %b{i // 3})", f"@matmul({x}, %w{i // 3})")[i % 3]


def residuals(nodes: int) -> Iterator[str]:
    """A product, and what it read is added to it, which may be done in place."""
    for i in range(0, nodes - 1, 2):
        x = f"%n{i - 1}" if i else "%x"
        yield f"%n{i} = @matmul({x}, %w)"
        yield f"%n{i + 1} = @plus(%n{i}, {x})"


def _widths(nodes: int) -> list[int]:
    """The width that each product of `widths` reads, and in the end what is left."""
    rng = random.Random(nodes)
    return [48, *(rng.randrange(16, 512) for _ in range((nodes + 1) // 3))]


SHAPES: dict[str, Callable[[int], Iterator[str]]] = {"chain": chain, "diamonds": diamonds, "wide": wide, "mixed": mixed, "rows": rows, "widths": widths,
                                                       "residuals": residuals}
WAYS = {"fused": "", "unfused": "fuse{nodes=1}"}


def program(shape: str, nodes: int) -> str:
    """The text of a pipeline. What nobody reads is added up in the end, so that no node is dead."""
    lines = list(SHAPES[shape](nodes))
    made = [line.split(" = ")[0] for line in lines]
    read = {word.strip("%,()") for line in lines for word in line.split(" = ")[1].replace("(", " ").split()}
    left = [m for m in made if m[1:] not in read]
    while len(left) > 1:
        level = []
        for a, b in zip(left[::2], left[1::2], strict=False):
            level.append(f"%s{len(lines)}")
            lines.append(f"{level[-1]} = @plus({a}, {b})")
        left = level + (left[-1:] if len(left) % 2 else [])
    lines.append(f"%out = @scale({left[0]})")
    inputs, width = ["%x: tensor<64x48xf32>"], 48
    if shape == "residuals":
        inputs += ["param %w: tensor<48x48xf32>"]
    if shape == "rows":
        inputs += ["param %g: tensor<48xf32>", "param %b: tensor<48xf32>", "param %w: tensor<48x48xf32>"]
    if shape == "widths":
        sizes = _widths(nodes)
        width = sizes[nodes // 3]
        for k, (a, b) in enumerate(pairwise(sizes)):
            inputs += [f"param %g{k}: tensor<{a}xf32>", f"param %b{k}: tensor<{a}xf32>", f"param %w{k}: tensor<{a}x{b}xf32>"]
    return (("import std.nn\n" if shape in ("rows", "widths") else "") + OPERATORS
            + f"pipeline @main({', '.join(inputs)}) -> (%out: tensor<64x{width}xf32>) on cuda:0 {{\n  " + "\n  ".join(lines) + "\n}\n")


class Clock:
    """A hook that times passes."""

    def __init__(self) -> None:
        self.ms: dict[str, float] = {}
        self.begun = 0.0

    def __call__(self, step: Step, before: Module, after: Module | Exception | None) -> None:
        now = time.process_time()
        if after is not None and step.name != "input":
            self.ms[step.name] = self.ms.get(step.name, 0) + 1000 * (now - self.begun)
        self.begun = time.process_time()


def measure(shape: str, way: str, nodes: int) -> dict[str, float]:
    """Milliseconds of parsing, each pass, the verifier and printing."""
    text, clock = program(shape, nodes), Clock()
    out: dict[str, float] = {}

    def timed(what: str, call: Callable[[], Any]) -> Any:
        gc.collect()
        begin = time.process_time()
        made = call()
        out[what] = 1000 * (time.process_time() - begin)
        return made

    module = timed("parse", lambda: parse(text, "generated.plir"))
    steps = with_options(parse_passes("cuda"), WAYS[way])
    done = timed("all passes", lambda: run_passes(module, steps, Report(), [clock]))
    out |= clock.ms
    timed("verifier, once", lambda: verify(done, "flatten"))
    timed("print", lambda: print_module(done))
    return out


def best(runs: Sequence[dict[str, float]]) -> dict[str, float]:
    """The least time of each."""
    return {what: min(r[what] for r in runs) for what in runs[0]}


def exponent(nodes: Sequence[int], ms: Sequence[float]) -> float | None:
    """The slope of the times that are long enough; None with fewer than two."""
    points = [(math.log(n), math.log(t)) for n, t in zip(nodes, ms, strict=True) if t >= LEAST_MS]
    if len(points) < 2:
        return None
    x, y = (sum(p[k] for p in points) / len(points) for k in (0, 1))
    return sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--nodes", nargs="+", type=int, default=list(NODES))
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    args = parser.parse_args()
    measure(args.shapes[0], args.ways[0], 50)  # what is imported is not timed
    rows: list[dict[str, Any]] = []
    for shape in args.shapes:
        for way in args.ways:
            times = [best([measure(shape, way, n) for _ in range(3 if n < 5000 else 2)]) for n in args.nodes]
            print(f"{shape}, {way}: milliseconds at {', '.join(f'{n:,}' for n in args.nodes)} nodes, growth exponent", flush=True)
            for what in times[0]:
                ms = [t[what] for t in times]
                found = exponent(args.nodes, ms)
                rows.append({"shape": shape, "way": way, "what": what, "nodes": args.nodes, "ms": ms, "exponent": found})
                mark = f"{found:>6.2f}{'  more than ' + str(MOST) if found > MOST else ''}" if found is not None else "     -"
                print(f"  {what:<18}" + "".join(f"{t:>11.1f}" for t in ms) + mark, flush=True)
    over = [f"{r['what']} ({r['shape']}, {r['way']}: {r['exponent']:.2f})" for r in rows if r["exponent"] is not None and r["exponent"] > MOST]
    print(f"exponents above {MOST}: {', '.join(over) or 'none'}")
    if args.nodes == list(NODES) and len(args.shapes) == len(SHAPES):
        save("passes", {"rows": rows, "largest exponent": max(r["exponent"] for r in rows if r["exponent"] is not None)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
