"""Random networks in which codes pass through operators that only choose among values, through lists, second names and `after`: each is still a program, stays
as it is when it is lowered again, gives the same when its parameters are bound, and is near the float64 reference of the network without policies."""
from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path

import numpy as np

import pipelink_ir as pl
from pipelink_ir.grammar import parse, print_module
from pipelink_ir.ir.diagnostics import Report
from pipelink_ir.passes.manager import parse_passes, run_passes
from pipelink_ir.passes.verify import verify

IMAGE = "%x: tensor<NxHxWxCxT>"
BODIES = {
    "conv": f"op @conv({IMAGE}, %k: tensor<CxOxT>) -> (%y: tensor<NxHxWxOxT>) {{ memory {{ dtypes = [f16, f32] }} CLAUSE"
            " compute { %y[n, h, w, o] = sum[c < C](%x[n, h, w, c] * %k[c, o]) } }",
    "dw": f"op @dw({IMAGE}, %k: tensor<3x3xCxT>) -> (%y: tensor<NxHxWxCxT>) {{ memory {{ dtypes = [f16, f32], border = BORDER }} CLAUSE"
          " compute { %y[n, h, w, c] = sum[i < 3, j < 3](%x[n, h + i - 1, w + j - 1, c] * %k[i, j, c]) } }",
    "relu": "op @relu(%x: tensor<...xT>) -> (%y: tensor<...xT>) { memory { dtypes = [f16, f32] } compute { %y[...] = max(%x[...], 0) } }",
    "pool": f"op @pool({IMAGE}) -> (%y: tensor<NxHxWxCxT>) {{ memory {{ dtypes = [f16, f32], border = replicate }} POOL"
            " compute { %y[n, h, w, c] = max[i < 3, j < 3](%x[n, h + i - 1, w + j - 1, c]) } }",
    "turn": f"op @turn({IMAGE}) -> (%y: tensor<NxWxHxCxT>) {{ memory {{ dtypes = [f16, f32] }} compute {{ %y[n, w, h, c] = %x[n, h, w, c] }} }}",
    "join": f"op @join({IMAGE}) -> (%y: tensor<NxHxWxCxT>) {{ memory {{ dtypes = [f16, f32] }} compute {{ %y[n, h, w, c] = %x[n, h, w, c] }} }}",
    "half": f"op @half({IMAGE}) -> (%y: tensor<NxHxWx(C floordiv 2)xT>) {{ where C >= 2 memory {{ dtypes = [f16, f32] }}"
            " compute { %y[n, h, w, c] = %x[n, h, w, c + 1] } }",
    "add": "op @add(%a: tensor<...xT>, %x: tensor<...xT>) -> (%y: tensor<...xT>) { memory { dtypes = [f16, f32] } ADD"
           " compute { %y[...] = %a[...] + %x[...] } }",
}
CLAUSES = {"dtype = i8": 0.06, "dtype = i8, scheme = affine": 0.06, "dtype = u8": 0.06, "dtype = u8, scheme = affine": 0.06, "dtype = f8e4m3": 0.15,
           "dtype = f16": 0.01}
"""Policies, and how far a result may be off, relative to its largest value: eight bits, three bits, eleven bits through up to eight operators."""
INPUT = (2, 4, 4, 8)


class _Net:
    """A pipeline while it grows."""

    def __init__(self, seed: str) -> None:
        self.r = random.Random(seed)
        self.dtype, self.clause = self.r.choice(["f16", "f32"]), self.r.choice(list(CLAUSES))
        self.edges: dict[str, tuple[int, ...]] = {"x": INPUT}
        self.params: dict[str, tuple[int, ...]] = {}
        self.nodes: list[str] = []
        for k in range(self.r.randint(3, 8)):
            self._grow(k)
        last = list(self.edges)[-1]
        self.results = list(dict.fromkeys([last, *([self.r.choice(list(self.edges)[1:])] if self.r.random() < 0.4 else [])]))

    def _grow(self, k: int) -> None:
        r, edges = self.r, self.edges
        kind, e, new, p = r.choice(list(BODIES)), r.choice(list(edges)[-3:]), f"e{k}", f"p{k}"
        shape = edges[e]
        beside = r.choice([f for f in edges if edges[f][:3] == shape[:3]])
        out, args = shape, f"%{e}"
        if kind == "join" or (kind == "conv" and r.random() < 0.35):
            out, args = (*shape[:3], shape[3] + edges[beside][3]), f"[%{e}, %{beside}] along C"
        if kind == "conv":
            self.params[p] = (out[3], r.choice([4, 6, 8]))
            out, args = (*shape[:3], self.params[p][1]), f"{args}, %{p}"
        elif kind == "dw":
            self.params[p], args = (3, 3, shape[3]), f"{args}, %{p}"
        elif kind == "turn":
            out = (shape[0], shape[2], shape[1], shape[3])
        elif kind == "half":
            out = (*shape[:3], shape[3] // 2)
        elif kind == "add":
            args = f"{args}, %{r.choice([f for f in edges if edges[f] == shape])}"
        label = f" as n{k}" if r.random() < 0.4 else ""
        after = f" after %{r.choice(list(edges)[1:])}" if r.random() < 0.15 and len(edges) > 1 else ""
        self.nodes.append(f"  %{new} = @{kind}({args}){label}{after}\n")
        edges[new] = out
        if r.random() < 0.15:
            self.nodes.append(f"  %a{k} = %{new}\n")
            edges[f"a{k}"] = out

    def text(self, results: list[str]) -> str:
        policy = f"downgrade sm_90 {{ {self.clause} }}"
        at = random.Random(len(self.nodes))
        operators = "\n".join(BODIES.values()).replace("CLAUSE", policy).replace("BORDER", at.choice(["constant(0)", "replicate", "constant(1)", "reflect101"]))
        for word, share in (("POOL", 0.4), ("ADD", 0.5)):
            operators = operators.replace(word, policy if at.random() < share else "")
        params = "".join(f", param %{p}: {self._type(s)}" for p, s in self.params.items())
        made = ", ".join(f"%{e}: {self._type(self.edges[e])}" for e in results)
        return f"{operators}\npipeline @p(%x: {self._type(INPUT)}{params}) -> ({made}) {{\n{''.join(self.nodes)}}}\n"

    def _type(self, shape: tuple[int, ...]) -> str:
        return f"tensor<{'x'.join(map(str, shape))}x{self.dtype}>"


def test_networks_of_choices(tmp_path: Path) -> None:
    seen: Counter[str] = Counter()
    for n in range(24):
        net = _Net(f"choices:{n}")
        rng = np.random.default_rng(n)
        dtype = np.float16 if net.dtype == "f16" else np.float32
        params = {p: (rng.normal(size=s) / np.sqrt(np.prod(s[:-1]))).astype(dtype) for p, s in net.params.items()}
        x = rng.normal(size=INPUT).astype(dtype)
        names = [e for e in net.edges if e != "x"]
        # Every edge as a result: their values are what calibration would see, and the last of them what is expected.
        values = pl.compile(net.text(names), target="reference", float64=True)(x=x, **params)
        path = tmp_path / f"{n}.yaml"
        ranges = {"x": x.astype(float)} | {e: values[e].astype(float) for e in names}
        path.write_text("calibration: 1\npipeline: p\nmethod: minmax\nsamples: 1\nedges:\n" + "".join(
            f"  {e}: {{min: {v.min()}, max: {v.max()}, low: {v.min()}, high: {v.max()}}}\n" for e, v in ranges.items()))
        lower = f'lower-precision{{arch=sm_90,price=false,calibration="{path}"}}'
        text = net.text(net.results)
        module = run_passes(parse(text.encode(), "test.plir"), parse_passes(f"frontend,flatten,{lower}"), Report())
        dump = print_module(module)
        assert verify(module, "flatten") == [], text
        assert print_module(run_passes(parse(dump.encode(), "test.plir"), parse_passes(f"frontend,flatten,{lower}"), Report())) == dump, text
        compiled = pl.compile(text, target="cpu", pass_options=lower)
        got = compiled(x=x, **params)
        bound = compiled.bind(**params)(x=x) if params else got
        for e in net.results:
            np.testing.assert_array_equal(bound[e], got[e])
            want = values[e].astype(float)
            assert np.max(np.abs(got[e].astype(float) - want)) <= CLAUSES[net.clause] * np.max(np.abs(want)), (text, e)
        seen.update(re.findall("chooses among|as made, in|op @conv_\\w+[.]\\d+[(]%x[.]0: \\S+[iuf]8>", dump))
        seen["ran"] += 1
    assert seen["ran"] == 24
    assert seen["chooses among"] > 10
    assert sum(count for what, count in seen.items() if what.startswith("op @conv")) >= 3
