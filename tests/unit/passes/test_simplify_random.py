"""Random operators give the same bits before and after `simplify`, and simplifying twice changes nothing more."""
from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from pipelink_ir.backends.reference.executable import load
from pipelink_ir.grammar import parse, print_module
from pipelink_ir.ir.diagnostics import ProgramError, Report
from pipelink_ir.ir.nodes import Module
from pipelink_ir.passes.manager import parse_passes, run_passes

ARGUMENTS = {"x": "f32", "d": "f64", "i": "i32", "l": "i64", "h": "f16", "u": "u8", "b": "bool"}
INPUTS = ", ".join(f"%{name}: tensor<NxMx{dtype}>" for name, dtype in ARGUMENTS.items())
LEAVES = {"f32": ["%x[n, m]", "%h[n, m]"], "f64": ["%d[n, m]"], "i32": ["%i[n, m]", "%u[n, m]"], "i64": ["%l[n, m]", "n", "m", "N"], "bool": ["%b[n, m]"]}
INTEGERS = [0, 1, -1, 2, 3, 7, -5, 255, 2147483647, -2147483648, 100]
FLOATS = ["0.0", "-0.0", "1.0", "1", "0", "2.5", "-1.5", "0.1", "1e-40", "3e38", "inf", "nan", "pi", "-inf", "1e-10", "3", "2"]
SPECIAL = [0.0, -0.0, 1.0, -1.0, 1.5, 0.1, np.nan, np.inf, -np.inf, 1e-45, -1.1754944e-38, 3.4e38, 6.1e-5, 65504.0, 7.25, 2.5]


class Maker:
    """Expressions of a wanted dtype, by a seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def literal(self, dtype: str) -> str:
        return str(self.random.choice(["true", "false"] if dtype == "bool" else INTEGERS if dtype in ("i32", "i64") else FLOATS))

    def make(self, dtype: str, depth: int) -> str:
        pick = self.random.choice
        if depth <= 0 or self.random.random() < 0.12:
            return self.literal(dtype) if self.random.random() < 0.6 else pick(LEAVES[dtype])

        def sub(other: str = dtype) -> str:
            return self.make(other, depth - 1)

        if dtype == "bool":
            other = pick(["f32", "f64", "i32", "i64"])
            return pick([lambda: f"({sub()} {pick(['and', 'or'])} {sub()})", lambda: f"(not {sub()})",
                         lambda: f"({sub(other)} {pick(['<', '<=', '==', '!=', '>', '>='])} {sub(other)})", lambda: f"select({sub()}, {sub()}, {sub()})"])()
        forms = [lambda: f"select({sub('bool')}, {sub()}, {sub()})", lambda: f"{pick(['min', 'max'])}({sub()}, {sub()})", lambda: f"(-{sub()})",
                 lambda: f"abs({sub()})", lambda: f"{pick(['sum', 'prod', 'max', 'min'])}[j < {pick(['1', '2', 'M - 1', '(3 - 2)'])}]({sub()})",
                 lambda: f"{dtype}({sub(pick(list(LEAVES)))})", lambda: f"({sub()} {pick(['+', '-', '*'])} {sub()})",
                 lambda: f"({sub()} {pick(['+', '-', '*'])} {self.literal(dtype)})"]
        if dtype == "i32":
            forms.append(lambda: f"{pick(['u8', 'i8', 'sat_u8', 'i16', 'sat_i16'])}({sub(pick(['i32', 'f32', 'i64']))})")
        if dtype == "f32":
            forms.append(lambda: f"{pick(['f16', 'bf16', 'f8e4m3', 'f8e5m2'])}({sub(pick(['f32', 'f64', 'i32']))})")
        if dtype in ("f32", "f64"):
            forms += [lambda: f"({sub()} / {sub()})", lambda: f"{pick(['sqrt', 'floor', 'ceil', 'round', 'exp'])}({sub()})",
                      lambda: f"({sub()} ** {pick(['2', '3', '1', '(1 + 1)', '0.3', '(1 / 3)'])})"]
        else:
            forms.append(lambda: f"({sub()} {pick(['floordiv', 'mod', 'ceildiv'])} {sub()})")
        return pick(forms)()


def program(seed: int, count: int) -> tuple[str, list[str]]:
    """A program of `count` operators that pass all checks, and their bodies."""
    maker = Maker(seed)
    operators: list[str] = []
    nodes: list[str] = []
    results: list[str] = []
    bodies: list[str] = []
    while len(bodies) < count:
        dtype = maker.random.choice(list(LEAVES))
        body = f"%y[n, m] = {maker.make(dtype, maker.random.choice([2, 3, 4]))}"
        if maker.random.random() < 0.3 and dtype != "bool":
            body = f"let c = {dtype}({maker.literal(dtype)})  let e = {maker.literal(dtype)} * c  {body} * e + c"
        k = len(bodies)
        op = f"op @f{k}({INPUTS}) -> (%y: tensor<NxMx{dtype}>) {{ where N >= 3, M >= 4 compute {{ {body} }} }}"
        node = f"%y{k} = @f{k}({', '.join('%' + a for a in ARGUMENTS)})"
        try:
            typed(f"{op}\npipeline @p({INPUTS}) -> (%y{k}: tensor<NxMx{dtype}>) {{ {node} }}")
        except ProgramError:  # a literal that does not fit, a zero divisor
            continue
        operators.append(op)
        nodes.append(node)
        results.append(f"%y{k}: tensor<NxMx{dtype}>")
        bodies.append(body)
    return "\n".join([*operators, f"pipeline @p({INPUTS}) -> ({', '.join(results)}) {{", *nodes, "}"]), bodies


def typed(text: str) -> Module:
    return run_passes(parse(text.encode(), "random.plir"), parse_passes("resolve,infer-types"), Report())


def arrays() -> dict[str, Any]:
    floats = np.array([np.roll(SPECIAL, k) for k in range(3)])
    integers = np.array([np.roll([*INTEGERS, 8, -100, 77, 256, -2], k) for k in range(3)], np.int64)
    with np.errstate(all="ignore"):
        return {"x": floats.astype(np.float32), "d": floats, "h": floats.astype(np.float16), "i": integers.astype(np.int32), "l": integers * 3,
                "u": integers.astype(np.uint8), "b": integers > 2}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_random_operators_keep_every_bit(seed: int) -> None:
    text, bodies = program(seed, 60)
    written = typed(text)
    simplified = run_passes(written, parse_passes("simplify"), Report())
    assert sum(a is not b for a, b in zip(written.operators, simplified.operators, strict=True)) > 20
    again = run_passes(parse(print_module(simplified).encode(), "random.plir"), parse_passes("simplify"), Report())
    assert print_module(again) == print_module(simplified)
    one, two = load(written, "p")(arrays()), load(simplified, "p")(arrays())
    for k, body in enumerate(bodies):
        a, b = one[f"y{k}"], two[f"y{k}"]
        same = (a.view(f"u{a.itemsize}") == b.view(f"u{b.itemsize}")) | ((a != a) & (b != b))
        assert same.all(), f"{body}\n{a[~same]}\n{b[~same]}"
