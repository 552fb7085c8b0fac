"""Programs whose plans are looked at: random graphs of a few launches, with all that makes memory hard: two results at once, edges of several sizes, joins that are
written in parts, second names, `after`, the same tensor twice, results that nobody reads."""
from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

from pipelink_ir.grammar import parse
from pipelink_ir.ir.diagnostics import Report
from pipelink_ir.ir.nodes import Alias, Expr, IntLit, Module, Node, Operand, Pipeline
from pipelink_ir.ir.walk import substitute
from pipelink_ir.passes.manager import parse_passes, run_passes

OPS = """op @plus(%a: tensor<...xf32>) -> (%y: tensor<...xf32>) { compute { %y[...] = %a[...] + 1 } }
op @sum(%a: tensor<...xf32>, %b: tensor<...xf32>) -> (%y: tensor<...xf32>) { compute { %y[...] = %a[...] + %b[...] } }
op @near(%a: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { memory { border = wrap } compute { %y[n] = %a[n - 1] * %a[n + 1] } }
op @both(%a: tensor<Nxf32>) -> (%y: tensor<Nxf32>, %z: tensor<Nxf32>) { compute { %y[n] = %a[n] * 2  %z[n] = %a[n] * 3 } }
op @wide(%a: tensor<40xf32>) -> (%y: tensor<100xf32>) { compute { %y[n] = %a[n mod 40] } }
op @narrow(%a: tensor<Nxf32>) -> (%y: tensor<40xf32>) { where N >= 40 compute { %y[n] = %a[n] } }
op @join(%a: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { compute { %y[n] = %a[n] } }
op @flag(%a: tensor<40xf32>) -> (%y: tensor<40xu8>) { compute { %y[n] = select(%a[n] > 0, 1, 0) } }
op @alone(%a: tensor<40xf32>) -> (%y: tensor<40xf32>) { execution { async = false } compute { %y[n] = %a[n] * 5 } }
op @pair(%a: tensor<40xf32>) -> (%y: tensor<40xf32>) { execution { max_streams = 2, event_sync = true } compute { %y[n] = %a[n] * 7 } }
"""


def program(seed: int, size: int) -> str:
    """A pipeline of `size` nodes."""
    rng = random.Random(seed)
    edges: list[tuple[str, int, str]] = [("x", 40, "f32"), ("z", 40, "f32")]
    lines: list[str] = []
    unread: set[str] = set()
    last = "plus"
    while sum("@" in line for line in lines) < size:
        made = [f"e{len(edges)}", f"e{len(edges) + 1}"]
        floats = [e for e in edges[-7:] if e[2] == "f32"] or [("x", 40, "f32")]
        a = rng.choice(floats)
        same = rng.choice([e for e in floats if e[1] == a[1]])
        op = rng.choice(("plus", "plus", "sum", "sum", "near", "both", "wide", "narrow", "join", "flag", "alone", "pair", "alias"))
        if (op in ("wide", "flag", "alone", "pair") and a[1] != 40) or (op == "narrow" and a[1] < 40) or (op == "alias" and last == "alias"):
            continue
        args, results = [a[0]], [(made[0], a[1], "f32")]
        if op == "sum":
            args.append(same[0])
        elif op == "both":
            results.append((made[1], a[1], "f32"))
        elif op == "wide":
            results = [(made[0], 100, "f32")]
        elif op == "narrow":
            results = [(made[0], 40, "f32")]
        elif op == "join":
            parts = [a, *(rng.choice(floats) for _ in range(rng.randint(1, 2)))]
            args, results = [p[0] for p in parts], [(made[0], sum(p[1] for p in parts), "f32")]
        elif op == "flag":
            results = [(made[0], 40, "u8")]
        call = f"%{a[0]}" if op == "alias" else f"@{op}([{', '.join('%' + x for x in args)}] along N)" if op == "join" else \
            f"@{op}({', '.join('%' + x for x in args)})"
        lines.append(", ".join("%" + r[0] for r in results) + f" = {call}")
        known = [e[0] for e in edges[2:]]
        if known and op != "alias" and rng.random() < 0.15:
            lines[-1] += f" after %{rng.choice(known)}"
        unread -= set(args)
        unread |= {r[0] for r in results}
        edges += results
        last = op
    # What nobody reads is a result of the pipeline, or by chance of nobody's; some that are read are results, too, and an input may be one.
    results_ = [e for e in edges[2:] if (e[0] in unread and rng.random() < 0.8) or rng.random() < 0.15] or edges[-1:]
    head = ", ".join(f"%{name}: tensor<{n}x{t}>" for name, n, t in results_)
    return OPS + f"pipeline @p(%x: tensor<40xf32>, %z: tensor<40xf32>) -> ({head}) on cuda:0 {{\n" + "\n".join("  " + line for line in lines) + "\n}\n"


def planned(text: str, streams: int, passes: str = "frontend,assign-streams{{max_streams={}}},alias-buffers") -> Module:
    """The program with a plan."""
    return run_passes(parse(text, "<plan>"), parse_passes(passes.format(streams)), Report())


def launches(p: Pipeline) -> int:
    """How many nodes a pipeline has."""
    return sum(isinstance(n, Node) for n in p.nodes)


def large(seed: int, size: int) -> str:
    """A graph of many nodes in several strands that meet now and then, all of one size, without contracts."""
    rng = random.Random(seed)
    strands = [f"x{k}" for k in range(5)]
    lines = [f"%x{k} = @plus(%x)" for k in range(5)]
    for i in range(size - 5):
        k = rng.randrange(5)
        other = strands[rng.randrange(5)]
        call = f"@plus(%{strands[k]})" if rng.random() < 0.6 or other == strands[k] else f"@sum(%{strands[k]}, %{other})" if rng.random() < 0.8 else \
            f"@near(%{strands[k]}) after %{other}"
        lines.append(f"%e{i} = {call}")
        strands[k] = f"e{i}"
    head = ", ".join(f"%{name}: tensor<40xf32>" for name in dict.fromkeys(strands))
    return OPS + f"pipeline @p(%x: tensor<40xf32>) -> ({head}) on cuda:0 {{\n" + "\n".join("  " + line for line in lines) + "\n}\n"


def sized(module: Module, sizes: Mapping[str, int]) -> Module:
    """The program for given sizes: with them, plans have offsets."""
    names: dict[str, Expr] = {name: IntLit(size) for name, size in sizes.items()}

    def typed(o: Operand) -> Operand:
        return replace(o, type=replace(o.type, dims=tuple(substitute(d, names) for d in o.type.dims)))

    def attributes(n: Node | Alias) -> Node | Alias:
        if isinstance(n, Alias):
            return n
        return replace(n, attrs=tuple(replace(s, value=substitute(s.value, names)) if isinstance(s.value, Expr) else s for s in n.attrs))

    def one(p: Pipeline) -> Pipeline:
        return replace(p, params=tuple(typed(o) if isinstance(o, Operand) else o for o in p.params), results=tuple(map(typed, p.results)),
                       where=tuple(substitute(w, names) for w in p.where), nodes=tuple(map(attributes, p.nodes)))

    return replace(module, items=tuple(one(i) if isinstance(i, Pipeline) else i for i in module.items))
