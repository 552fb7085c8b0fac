"""Graphs of many small nodes, for what plans have to get right: diamonds, operators that write over their operand, results that are inputs, the same tensor twice,
nodes that nobody reads, `after`, second names, parameters, joins, two results at once, graph operators. All is whole numbers, so every result is exact, and NumPy
computes it here, node by node, as the program is made."""
from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Call = Callable[..., Any]

OPS = """op @plus(%a: tensor<...xi32>) -> (%y: tensor<...xi32>) { compute { %y[...] = %a[...] + 1 } }
op @sum(%a: tensor<...xi32>, %b: tensor<...xi32>) -> (%y: tensor<...xi32>) { compute { %y[...] = %a[...] + 3 * %b[...] } }
op @over(%a: tensor<...xi32>) -> (%y: tensor<...xi32>) { memory { %y { inplace = %a } } compute { %y[...] = 5 * %a[...] - 2 } }
op @near(%a: tensor<Nxi32>) -> (%y: tensor<Nxi32>) { memory { border = wrap } compute { %y[n] = %a[n - 1] - 2 * %a[n + 1] } }
op @both(%a: tensor<...xi32>) -> (%y: tensor<...xi32>, %z: tensor<...xi32>) { compute { %y[...] = 2 * %a[...]  %z[...] = 7 - %a[...] } }
op @back(%a: tensor<Nxi32>) -> (%y: tensor<Nxi32>) { compute { %y[n] = %a[N - 1 - n] } }
op @total(%a: tensor<Nxi32>, %b: tensor<Mxi32>) -> (%y: tensor<Mxi32>) { compute { %y[m] = sum[n < N](%a[n]) + %b[m] } }
op @join(%a: tensor<Nxi32>) -> (%y: tensor<Nxi32>) { compute { %y[n] = %a[n] } }
op @low(%a: tensor<Nxi32>) -> (%y: tensor<Nxu8>) { compute { %y[n] = u8(%a[n]) } }
op @high(%a: tensor<Nxu8>) -> (%y: tensor<Nxi32>) { compute { %y[n] = i32(%a[n]) * 11 } }
op @alone(%a: tensor<...xi32>) -> (%y: tensor<...xi32>) { execution { async = false } compute { %y[...] = 9 - %a[...] } }
op @pair(%a: tensor<...xi32>) -> (%y: tensor<...xi32>) { execution { max_streams = 2, event_sync = true } compute { %y[...] = %a[...] * 13 } }
op @twice(%a: tensor<...xi32>) -> (%y: tensor<...xi32>) { graph { %t = @plus(%a)  %y = @sum(%t, %t) } }
"""

MEANING: dict[str, Call] = {
    "plus": lambda a: a + 1, "sum": lambda a, b: a + 3 * b, "over": lambda a: 5 * a - 2, "near": lambda a: np.roll(a, 1) - 2 * np.roll(a, -1),
    "both": lambda a: (2 * a, 7 - a), "back": lambda a: a[::-1], "total": lambda a, b: a.sum(dtype=a.dtype) + b, "join": lambda *a: np.concatenate(a),
    "low": lambda a: a.astype(np.uint8), "high": lambda a: a.astype(np.int32) * 11, "alone": lambda a: 9 - a, "pair": lambda a: a * 13,
    "twice": lambda a: 4 * (a + 1)}
"""What each operator means, in 32-bit integers that wrap."""

INPUTS = (("x", "N"), ("z", "N"), ("w", "N"), ("v", "M"))


@dataclass
class Mesh:
    """A program, and what it computes."""

    text: str
    nodes: list[tuple[tuple[str, ...], str, tuple[str, ...]]] = field(default_factory=list)
    results: dict[str, str] = field(default_factory=dict)

    def arrays(self, seed: int, n: int, m: int) -> dict[str, Array]:
        """Inputs of these sizes."""
        rng = np.random.default_rng(seed)
        sizes = {"N": n, "M": m}
        return {name: rng.integers(-50, 50, sizes[dim]).astype(np.int32) for name, dim in INPUTS}

    def expected(self, given: Mapping[str, Array]) -> dict[str, Array]:
        """The results, by NumPy."""
        values = dict(given)
        with np.errstate(over="ignore"):
            for results, op, args in self.nodes:
                made = values[args[0]] if op == "alias" else MEANING[op](*(values[a] for a in args))
                values.update(zip(results, made if op == "both" else (made,), strict=True))
        return {result: values[edge] for result, edge in self.results.items()}


def mesh(seed: int, size: int, sizes: tuple[int, int] | None = None) -> Mesh:
    """A graph of `size` nodes; with `sizes` for these alone, so that plans have offsets."""
    rng = random.Random(seed)
    shown = {"N": "N", "M": "M"} if sizes is None else {"N": str(sizes[0]), "M": str(sizes[1])}
    edges: list[tuple[str, str, str]] = [(name, dim, "i32") for name, dim in INPUTS]
    out, lines, unread = Mesh(""), [], set[str]()
    while len(out.nodes) < size:
        name, again = f"e{len(edges)}", f"e{len(edges) + 1}"
        near = edges[-rng.choice((2, 5, 40)):]
        a = rng.choice(near)
        if a[2] == "u8":
            op = "high"
        else:
            op = rng.choice(("plus", "plus", "sum", "sum", "sum", "over", "over", "near", "both", "both", "back", "total", "join", "low", "alone", "pair", "twice", "alias"))
        same = [e for e in near if e[1:] == a[1:]]
        args, results = (a[0],), [(name, a[1], "i32")]
        if op == "sum":
            args = (a[0], rng.choice(same)[0])
        elif op == "total":
            b = rng.choice([e for e in edges if e[2] == "i32"])
            args, results = (a[0], b[0]), [(name, b[1], "i32")]
        elif op == "both":
            results.append((again, a[1], "i32"))
        elif op == "join":
            if a[1].count("+") > 2:
                continue
            parts = [a, *(rng.choice([e for e in edges if e[2] == "i32" and e[1].count("+") < 2]) for _ in range(rng.randint(1, 2)))]
            args, results = tuple(p[0] for p in parts), [(name, " + ".join(p[1] for p in parts), "i32")]
        elif op == "low":
            results = [(name, a[1], "u8")]
        call = f"%{a[0]}" if op == "alias" else f"@{op}([{', '.join('%' + x for x in args)}] along N)" if op == "join" else \
            f"@{op}({', '.join('%' + x for x in args)})"
        behind = [e[0] for e in edges[len(INPUTS):]]
        after = f" after %{rng.choice(behind)}" if behind and op != "alias" and rng.random() < 0.12 else ""
        lines.append(f"{', '.join('%' + r[0] for r in results)} = {call}{after}")
        out.nodes.append((tuple(r[0] for r in results), op, args))
        unread -= set(args)
        unread |= {r[0] for r in results}
        edges += results
    made = edges[len(INPUTS):]
    chosen = [e for e in made if (e[0] in unread and rng.random() < 0.8) or rng.random() < 0.1] or made[-1:]
    if rng.random() < 0.3:
        # A result that is an input, and one that is another result.
        for k, of in enumerate((edges[0], chosen[0])):
            lines.append(f"%copy{k} = %{of[0]}")
            out.results[f"copy{k}"] = of[0]
            chosen.append((f"copy{k}", of[1], of[2]))
    out.results |= {e[0]: e[0] for e in chosen if e[0] not in out.results}

    def typed(e: tuple[str, str, str]) -> str:
        dim = e[1].replace("N", shown["N"]).replace("M", shown["M"])
        return f"%{e[0]}: tensor<{f'({dim})' if '+' in dim else dim}x{e[2]}>"

    if rng.random() < 0.5:
        rng.shuffle(lines)
    inputs = ", ".join(("param " if name == "w" and seed % 3 == 0 else "") + typed((name, dim, "i32")) for name, dim in INPUTS)
    out.text = OPS + f"pipeline @p({inputs}) -> ({', '.join(map(typed, chosen))}) {{\n" + "\n".join("  " + line for line in lines) + "\n}\n"
    return out
