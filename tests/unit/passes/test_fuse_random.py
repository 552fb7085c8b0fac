"""Random graphs, fused and not: the same bits from the reference and the cpu, a module that verifies and reads back, and no operator that was to stay alone."""
from __future__ import annotations

import random

import numpy as np
import pytest

from pipelink_ir.backends.cpu.executable import load as load_cpu
from pipelink_ir.backends.reference.executable import load as load_reference
from pipelink_ir.grammar import parse, print_module
from pipelink_ir.ir.diagnostics import Report
from pipelink_ir.ir.nodes import Module, Node
from pipelink_ir.passes.manager import parse_passes, run_passes
from pipelink_ir.passes.verify import verify
from tests.fuzz import graphs
from tests.fuzz.data import arrays
from tests.fuzz.tape import LENGTH, Tape

BEFORE = "resolve,infer-types,check-contracts,flatten,simplify"

# Sums are of integers: those of floats may be taken in any order, and are, if an operator is fused.
LIBRARY = """
op @half(%x: tensor<...xT>) -> (%y: tensor<...xT>) { memory { dtypes = [f16, f32] } compute { %y[...] = %x[...] / 2 + 0.3 } }
op @bend(%x: tensor<...xT>, by: f32) -> (%y: tensor<...xT>) { memory { dtypes = [f16, f32] } compute { %y[...] = max(%x[...], 0.1) * by } }
op @join(%a: tensor<...xT>, %b: tensor<...xT>) -> (%y: tensor<...xT>) { memory { dtypes = [f16, f32] } compute { %y[...] = %a[...] - 0.5 * %b[...] } }
op @narrow(%x: tensor<...xf32>) -> (%y: tensor<...xf16>) { compute { %y[...] = %x[...] } }
op @widen(%x: tensor<...xf16>) -> (%y: tensor<...xf32>) { compute { %y[...] = %x[...] * 1.5 } }
op @both(%x: tensor<...xT>) -> (%s: tensor<...xT>, %d: tensor<...xT>) { memory { dtypes = [f16, f32] } compute { %s[...] = %x[...] + 1  %d[...] = %x[...] - 1 } }
op @blur(%x: tensor<HxWxf32>) -> (%y: tensor<HxWxf32>) { memory { border = reflect } compute { %y[h, w] = mean[i < 3, j < 3](%x[h + i - 1, w + j - 1]) } }
op @edge(%x: tensor<HxWxf32>) -> (%y: tensor<HxWxf32>) { memory { border = constant(0.25) } compute { %y[h, w] = %x[h, w + 1] - %x[h - 1, w] } }
op @wrap(%x: tensor<HxWxT>) -> (%y: tensor<HxWxT>) { memory { dtypes = [f16, f32], border = wrap } compute { %y[h, w] = %x[h - 2, w] + %x[h, w] } }
op @turn(%x: tensor<HxWxf32>) -> (%y: tensor<WxHxf32>) { compute { %y[w, h] = %x[h, w] } }
op @rows(%x: tensor<HxWxf32>) -> (%y: tensor<HxWxf32>) { compute { %m[h] = max[w < W](%x[h, w])  %y[h, w] = exp(%x[h, w] - %m[h]) } }
op @means(%x: tensor<HxWxf32>) -> (%m: tensor<Hxf32>) { compute { %m[h] = f32(sum[w < W](i32(16 * %x[h, w]))) / 64 } }
op @less(%x: tensor<HxWxf32>, %m: tensor<Hxf32>) -> (%y: tensor<HxWxf32>) { compute { %y[h, w] = %x[h, w] - %m[h] } }
op @total(%x: tensor<HxWxf32>) -> (%s: tensor<f32>) { compute { %s = f32(sum[h < H, w < W](i32(16 * %x[h, w]))) / 64 } }
op @shift(%x: tensor<HxWxf32>, %s: tensor<f32>) -> (%y: tensor<HxWxf32>) { compute { %y[h, w] = %x[h, w] + %s } }
op @product(%a: tensor<HxWxf32>, %b: tensor<HxWxf32>) -> (%y: tensor<HxWxf32>) { where H >= 1 compute {
  %y[h, w] = f32(sum[k < W](i32(16 * %a[h, k]) * i32(16 * %b[k mod H, w]))) / 1024 } }
op @scan(%x: tensor<HxWxf32>) -> (%y: tensor<HxWxf32>) { where H >= 1 compute { %y[0, w] = %x[0, w]  %y[h < H, w] = 0.5 * %y[h-1, w] + %x[h, w] } }
op @pick(%x: tensor<HxWxf32>) -> (%y: tensor<HxWxf32>) { compute { %y[h, w] = %x[h, i32(abs(%x[h, w])) mod W] } }
op @own(%x: tensor<HxWxf32>) -> (%y: tensor<HxWxf32>) { compile { accuracy = exact } compute { %y[h, w] = %x[h, w] / 3 } }
"""
ONE = ("half", "bend", "blur", "edge", "wrap", "rows", "scan", "pick", "own")


class Sketch:
    """A pipeline while it grows: edges by kind (`f32`, `f16`, `turned`, `column`, `scalar`)."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.edges: dict[str, list[str]] = {"f32": ["a", "b"], "f16": ["c"], "turned": [], "column": [], "scalar": []}
        self.nodes: list[str] = []
        self.count = 0

    def pick(self, kind: str) -> str:
        """An edge, mostly one of the last."""
        found = self.edges[kind]
        return f"%{found[max(0, len(found) - 1 - int(self.random.expovariate(0.5)))]}"

    def add(self, call: str, *kinds: str) -> None:
        wait = self.pick("f32") if self.random.random() < 0.06 else ""
        names = [f"e{self.count + k}" for k in range(len(kinds))]
        self.count += len(kinds)
        for name, kind in zip(names, kinds, strict=True):
            self.edges[kind].append(name)
        # An input is there anyway: only what a node makes can be waited for.
        after = f" after {wait}" if wait.startswith("%e") and wait not in call else ""
        self.nodes.append(f"  {', '.join('%' + n for n in names)} = @{call}{after}")

    def step(self) -> None:
        x, y, h = self.pick("f32"), self.pick("f32"), self.pick("f16")
        column, scalar = (self.pick(k) if self.edges[k] else "" for k in ("column", "scalar"))
        calls: list[tuple[str, tuple[str, ...]]] = [
            (f"join({x}, {y})", ("f32",)), (f"narrow({x})", ("f16",)), (f"widen({h})", ("f32",)), (f"both({x})", ("f32", "f32")), (f"turn({x})", ("turned",)),
            (f"means({x})", ("column",)), (f"total({x})", ("scalar",)), (f"product({x}, {y})", ("f32",)), (f"join({h}, {self.pick('f16')})", ("f16",))]
        calls += [(f"less({x}, {column})", ("f32",))] if column else []
        calls += [(f"shift({x}, {scalar})", ("f32",))] if scalar else []
        one = self.random.choice(ONE)
        by = f" {{by = {self.random.choice(('1.25', 'gain', 'H'))}}}" if one == "bend" else ""
        calls += [(f"{one}({x}){by}", ("f32",))] * 4
        call, kinds = self.random.choice(calls)
        self.add(call, *kinds)

    def text(self) -> str:
        shapes = self.random.choice((("H", "W"), ("6", "7"), ("H", "8")))
        h, w = shapes
        types = {"f32": f"{h}x{w}xf32", "f16": f"{h}x{w}xf16", "turned": f"{w}x{h}xf32", "column": f"{h}xf32", "scalar": "f32"}
        body = "\n".join(self.nodes)
        if h != "H":
            body = body.replace("by = H", "by = 3.5")
        made = [(e, k) for k, edges in self.edges.items() for e in edges if e not in "abc"]
        last = [(e, k) for e, k in made if body.count(f"%{e}") == sum(body.count(f"%{e}{d}") for d in "0123456789") + 1 or self.random.random() < 0.15]
        inputs = ", ".join(f"%{n}: tensor<{h}x{w}x{t}>" for n, t in (("a", "f32"), ("b", "f32"), ("c", "f16")))
        results = ", ".join(f"%{e}: tensor<{types[k]}>" for e, k in last)
        return f"{LIBRARY}\npipeline @p({inputs}, gain: f32 = 0.75) -> ({results}) {{\n  where H >= 1, W >= 1\n{body}\n}}\n".replace(
            "  where H >= 1, W >= 1\n", "" if (h, w) == ("6", "7") else "  where H >= 1\n" if w != "W" else "  where H >= 1, W >= 1\n")


def sketch(seed: int) -> str:
    s = Sketch(seed)
    for _ in range(s.random.randint(3, 14)):
        s.step()
    return s.text()


def passes(text: str, which: str) -> Module:
    return run_passes(parse(text, "<test>"), parse_passes(which), Report())


def nodes(module: Module) -> list[Node]:
    return [n for n in module.pipelines[0].nodes if isinstance(n, Node)]


def same(text: str, given: dict[str, np.ndarray], options: str) -> int:
    """Checks everything; how many nodes are gone."""
    plain, one = passes(text, BEFORE), passes(text, f"{BEFORE},fuse{options}")
    assert not verify(one, "flatten")
    printed = print_module(one)
    assert print_module(passes(printed, "resolve,infer-types")) == printed
    for load in (load_reference, load_cpu):
        try:
            want = load(plain, "p")(given)
        except Exception as error:
            with pytest.raises(type(error)):
                load(one, "p")(given)
            continue
        got = load(one, "p")(given)
        assert got.keys() == want.keys()
        for key in want:
            assert got[key].dtype == want[key].dtype
            assert got[key].tobytes() == want[key].tobytes(), (load.__module__, key, text, printed)
    return len(nodes(plain)) - len(nodes(one))


@pytest.mark.parametrize("seed", range(24))
def test_random_graphs_of_a_library(seed: int) -> None:
    text = sketch(seed)
    rng = np.random.default_rng(seed)
    size = (6, 7) if "tensor<6x7" in text else (5, 8)
    given = {n: rng.uniform(-2, 2, size).astype(t) for n, t in (("a", np.float32), ("b", np.float32), ("c", np.float16))}
    options = ("", "{device=cpu}", "{nodes=4}")[seed % 3]
    same(text, given, options)


@pytest.mark.parametrize("seed", range(12))
def test_random_graphs_of_random_operators(seed: int) -> None:
    program = graphs.program(Tape(random.Random(seed).randbytes(LENGTH)))
    for sample in program.samples[:1]:
        same(program.text, arrays(program, sample), "")
