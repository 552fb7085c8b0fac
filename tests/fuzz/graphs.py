"""Pipelines of several operators: edges of any dtype read by several nodes, operators with type variables, `...`, words and dtypes, packs, aliases, graph
operators with attributes handed on, dimensions by attribute, standard casts and copies, nodes in any order, results that are inputs or one another."""
from __future__ import annotations

from dataclasses import dataclass, field, replace

from tests.fuzz import pointwise, reductions, stencils
from tests.fuzz.data import Program
from tests.fuzz.expressions import NARROW_INTS, Writer, kind_of
from tests.fuzz.operators import DTYPE_NAMES, INDEX, Op, Tensor, inputs_of, names, samples
from tests.fuzz.tape import Tape

FLOATS = ("f32", "f16", "f64", "bf16")
SHAPES = (("H", "W"), ("W",), ("H",))


@dataclass
class Graph:
    """A pipeline while it grows."""

    tape: Tape
    inputs: list[Tensor]
    edges: list[Tensor] = field(default_factory=list)
    operators: dict[str, str] = field(default_factory=dict)
    nodes: list[str] = field(default_factory=list)
    where: list[str] = field(default_factory=list)
    read: set[str] = field(default_factory=set)

    def pick(self, dims: tuple[str, ...] | None = None, dtypes: tuple[str, ...] = DTYPE_NAMES) -> Tensor | None:
        """An edge of this shape and one of these dtypes, the latest by preference."""
        found = [e for e in reversed(self.edges) if (e.dims == dims if dims is not None else "?" not in e.dims) and e.dtype in dtypes]
        if not found:
            return None
        edge = found[min(self.tape.below(4), len(found) - 1)]
        self.read.add(edge.name)
        return edge

    def fresh(self, dtype: str, dims: tuple[str, ...]) -> Tensor:
        edge = Tensor(f"e{len(self.edges)}", dtype, dims)
        self.edges.append(edge)
        return edge

    def node(self, op: str, arguments: list[str], results: list[tuple[str, tuple[str, ...]]], attrs: str = "", label: bool = False) -> None:
        made = [self.fresh(*r) for r in results]
        text = f"{', '.join('%' + m.name for m in made)} = @{op}({', '.join(arguments)})" + (f" {{{attrs}}}" if attrs else "")
        self.nodes.append(text + (f" as n{len(self.nodes)}" if label and self.tape.chance(3) else ""))


def program(tape: Tape) -> Program:
    """2 to 5 nodes over a few images and rows."""
    inputs = [Tensor("a", tape.choose(FLOATS), ("H", "W")), Tensor("b", tape.choose(DTYPE_NAMES), ("H", "W")), Tensor("r", tape.choose(FLOATS), ("W",))]
    if tape.chance(3):
        inputs.append(Tensor("q", tape.choose(DTYPE_NAMES), ("H",)))
    if tape.chance(3):
        # Of unknown length each: that they are equal is found at the call.
        inputs += [Tensor("v", tape.choose(FLOATS), ("?",)), Tensor("u", inputs[0].dtype, ("?",))]
    g = Graph(tape, inputs, list(inputs))
    for _ in range(tape.between(2, 5)):
        tape.choose((_pointwise, _generic, _window, _reduction, _stack, _join, _graph, _alias, _standard, _words, _dynamic, _again))(g)
    return _finish(g)


def _finish(g: Graph) -> Program:
    """Everything that nobody reads is a result, and by chance something that is read, too, or an input."""
    tape = g.tape
    results = [e for e in g.edges if e not in g.inputs and (e.name not in g.read or tape.chance(4))]
    if tape.chance(8) or not results:
        results.append(g.edges[0])
    renamed: list[Tensor] = []
    for e in results:
        if e in g.inputs:
            g.nodes.append(f"%copy_of_{e.name} = %{e.name}")
            renamed.append(Tensor(f"copy_of_{e.name}", e.dtype, e.dims))
        else:
            renamed.append(e)
    g.nodes = tape.shuffled(g.nodes) if tape.chance(2) else g.nodes
    inputs = [("param " if tape.chance(4) else "") + i.declared() for i in g.inputs]
    head = f"pipeline @p({', '.join(inputs)}, gain: f32 = 0.75, K: dim = 3) -> ({', '.join(r.declared() for r in renamed)}) {{"
    where = [f"  where {', '.join(g.where)}"] if g.where else []
    text = "\n".join([*g.operators.values(), head, *where, *(f"  {n}" for n in g.nodes), "}", ""])
    inputs_ = [replace(i, dims=tuple({"v": "V", "u": "U"}[i.name] if d == "?" else d for d in i.dims)) for i in inputs_of(g.inputs)]
    calls = samples(tape, ("H", "W"), wide=tape.chance(2))
    return Program(text, tuple(inputs_), tuple(replace(c, sizes={**c.sizes, "V": (v := tape.below(6)), "U": v if not tape.chance(4) else 3}) for c in calls))


# ------------------------------------------------------------------------------------------------------------------------- nodes


def _operands(g: Graph, axes: tuple[str, ...]) -> list[Tensor]:
    """Edges to read, under the names that an operator has for them; the first has all axes."""
    shapes = [s for s in SHAPES if set(s) <= set(axes)]
    first = g.pick(axes)
    others = [g.pick(g.tape.choose(shapes)) for _ in range(g.tape.below(3))]
    return [e for e in (first, *others) if e is not None]


def _local_names(edges: list[Tensor]) -> list[Tensor]:
    return [Tensor(f"x{i}", e.dtype, e.dims) for i, e in enumerate(edges)]


def _pointwise(g: Graph) -> None:
    axes = ("H", "W")
    edges = _operands(g, axes)
    op = Op(f"op{len(g.operators)}", _local_names(edges), attrs=[("gain", "f32", "1.5", g.tape.choose(("", "0.25", "gain", "2 * gain", "f32(H)")))])
    pointwise.write(g.tape, op, axes)
    _called(g, op, edges)


def _called(g: Graph, op: Op, edges: list[Tensor]) -> None:
    g.operators[op.name] = op.text()
    attrs = ", ".join(f"{n} = {v}" for n, _, _, v in op.attrs if v)
    g.node(op.name, [f"%{e.name}" for e in edges], [(r.dtype, r.dims) for r in op.results], attrs, label=True)


def _generic(g: Graph) -> None:
    """A type variable and `...`: called for any shape, and more than once."""
    variant = g.tape.below(3)
    name = f"gen{variant}"
    body = ("%y[...] = T(max(%x[...], 0) * f32(k))", "%y[...] = T(f32(%x[...]) * k + 0.5)", "%y[...] = T(select(%x[...] > 0, f32(%x[...]), k))")[variant]
    g.operators[name] = f"op @{name}(%x: tensor<...xT>, k: f32 = 2.0) -> (%y: tensor<...xT>) {{\n  compute {{ {body} }}\n}}"
    for _ in range(g.tape.between(1, 2)):
        e = g.pick(None, FLOATS + NARROW_INTS + ("i32", "i64", "f8e4m3", "f8e5m2"))
        if e is not None:
            g.node(name, [f"%{e.name}"], [(e.dtype, e.dims)], g.tape.choose(("", "k = 0.5", "k = gain", "k = f32(W) / 4")), label=True)


def _window(g: Graph) -> None:
    """A separable window with a border."""
    e = g.pick(("H", "W"))
    assert e is not None
    axes = ("H", "W")
    op = Op(f"op{len(g.operators)}", [Tensor("x0", e.dtype, axes)])
    op.memory.append(f"%x0 {{ border = {stencils.borders(g.tape, 2, kind_of(e.dtype), [])} }}")
    reads = [f"%x0[{stencils.offset(g.tape, 'h')}, {stencils.offset(g.tape, 'w')}]" for _ in range(3)]
    r = Tensor("y0", g.tape.choose(DTYPE_NAMES), axes)
    op.results.append(r)
    leaves = {"i64": ["h", "w"]}
    leaves.setdefault(kind_of(e.dtype), []).extend(reads)
    op.lines.append(f"%y0[h, w] = {Writer(g.tape, leaves, names()).stored(r.dtype, 2)}")
    _called(g, op, [e])


def _reduction(g: Graph) -> None:
    e = g.pick(("H", "W"))
    assert e is not None
    axis = g.tape.choose(("W", "H"))
    kept = "H" if axis == "W" else "W"
    op = Op(f"op{len(g.operators)}", [Tensor("x0", e.dtype, ("H", "W"))])
    op.semantic.append(f"empty = {g.tape.choose(('zero', 'nan'))}")
    kind, value = g.tape.choose(reductions.KINDS), g.tape.choose(("f32", "i32"))
    r = Tensor("y0", reductions.result_dtype(g.tape, kind, value), (kept,))
    op.results.append(r)
    writer = op.writer(g.tape, names(), {"H": "h", "W": "w"}, dims=False)
    op.lines.append(f"%y0[{INDEX[kept]}] = {reductions.reduction(g.tape, kind, [f'{INDEX[axis]} < {axis}'], writer, value)}")
    _called(g, op, [e])


def _like(g: Graph) -> list[Tensor]:
    """Two or three edges of one shape and dtype, the same one by chance."""
    first = g.pick(None, FLOATS + ("i32", "u8"))
    assert first is not None
    same = [e for e in g.edges if (e.dims, e.dtype) == (first.dims, first.dtype)]
    picked = [first, *(g.tape.choose(same) for _ in range(g.tape.between(1, 2)))]
    g.read.update(e.name for e in picked)
    return picked


def _stack(g: Graph) -> None:
    """Several edges along a new first dimension, whose number the operator is told by its type."""
    edges = _like(g)
    dtype = edges[0].dtype
    total = "f32" if dtype in ("u8", "i32") else dtype
    name = f"stack_{dtype}"
    g.operators[name] = f"""op @{name}(%x: tensor<Kx...x{dtype}>, s: f32 = 1.0) -> (%y: tensor<...x{total}>, %n: tensor<...xi32>) {{
  compute {{
    %y[...] = sum[k < K](f32(k + 1) * s * f32(%x[k, ...]))
    %n[...] = argmax[k < K](%x[k, ...])
  }}
}}"""
    g.node(name, [f"[{', '.join('%' + e.name for e in edges)}]"], [(total, edges[0].dims), ("i32", edges[0].dims)], g.tape.choose(("", "s = 2.0")))


def _join(g: Graph) -> None:
    """Several images joined along their rows or columns, and cut back to the size of one."""
    first = g.pick(("H", "W"), FLOATS + ("i32", "u8"))
    if first is None:
        return
    same = [e for e in g.edges if (e.dims, e.dtype) == (first.dims, first.dtype)]
    edges = [first, *(g.tape.choose(same) for _ in range(g.tape.between(1, 2)))]
    g.read.update(e.name for e in edges)
    along, other = g.tape.choose((("A", "B"), ("B", "A")))
    dim = "H" if along == "A" else "W"
    name = f"join_{along}_{first.dtype}_{len(edges)}"
    n = len(edges)
    sums = f"{'max' if g.tape.chance(2) else 'min'}[{along.lower()} < {along}](%x[a, b])"
    index = f"{n} * a, b" if along == "A" else f"a, {n} * b + {n - 1}"
    g.operators[name] = f"""op @{name}(%x: tensor<AxBx{first.dtype}>) -> (%y: tensor<{f'(A floordiv {n})xB' if along == 'A' else f'Ax(B floordiv {n})'}x{first.dtype}>,
    %m: tensor<{other}x{first.dtype}>) {{
  semantic {{ empty = zero }}
  compute {{
    %y[a, b] = %x[{index}]
    %m[{other.lower()}] = {first.dtype}({sums})
  }}
}}"""
    g.node(name, [f"[{', '.join('%' + e.name for e in edges)}] along {along}"], [(first.dtype, first.dims), (first.dtype, ("W" if dim == "H" else "H",))])


def _graph(g: Graph) -> None:
    """A graph operator of two or three nodes, one of them called twice, attributes handed on."""
    g.operators["scale"] = "op @scale(%x: tensor<...xT>, by: f32 = 2.0) -> (%y: tensor<...xT>) { compute { %y[...] = T(f32(%x[...]) * by) } }"
    g.operators["plus"] = "op @plus(%a: tensor<...xT>, %b: tensor<...xT>) -> (%y: tensor<...xT>) { compute { %y[...] = T(f32(%a[...]) + f32(%b[...])) } }"
    g.operators["blend"] = """op @blend(%x: tensor<...xT>, %z: tensor<...xT>, alpha: f32 = 0.25) -> (%y: tensor<...xT>, %w: tensor<...xT>) {
  graph {
    %y = @plus(%u, %v) as both
    %u = @scale(%x) {by = alpha} as one
    %v = @scale(%z) {by = 1 - alpha}
    %w = %u
  }
}"""
    first = g.pick(None, FLOATS)
    assert first is not None
    second = g.tape.choose([e for e in g.edges if (e.dims, e.dtype) == (first.dims, first.dtype)])
    g.read.add(second.name)
    attrs = g.tape.choose(("", "alpha = 0.5", "alpha = gain / 2", "alpha = 1 / (1 + f32(H))"))
    g.node("blend", [f"%{first.name}", f"%{second.name}"], [(first.dtype, first.dims)] * 2, attrs, label=True)


def _alias(g: Graph) -> None:
    e = g.pick()
    assert e is not None
    made = g.fresh(e.dtype, e.dims)
    g.nodes.append(f"%{made.name} = %{e.name}")


def _again(g: Graph) -> None:
    """A node that computes what another one does."""
    if not g.nodes or "=" not in g.nodes[-1] or "@" not in g.nodes[-1]:
        return
    left, _, call = g.nodes[-1].partition(" = ")
    before = [e for e in g.edges if f"%{e.name}" in left.split(", ")]
    made = [g.fresh(e.dtype, e.dims) for e in before]
    g.nodes.append(f"{', '.join('%' + e.name for e in made)} = {call.partition(' as ')[0]}")


def _dynamic(g: Graph) -> None:
    """Tensors of unknown length: read through a border, reduced over, added to one another."""
    known = {e.name: e for e in g.inputs if e.dims == ("?",)}
    if not known:
        return
    v, u, row = known["v"], known["u"], g.pick(("W",))
    assert row is not None
    g.operators["lookup"] = """op @lookup(%t: tensor<?xT>, %x: tensor<NxU>) -> (%y: tensor<NxT>) {
  memory { %t { border = wrap } }
  compute { %y[n] = %t[n + 1] }
}"""
    g.operators["total"] = """op @total(%t: tensor<...xKxT>, s: f32 = 0.5) -> (%y: tensor<...xf32>, %n: tensor<...xi32>) {
  semantic { empty = zero }
  compute {
    %y[...] = s * sum[k < K](f32(%t[..., k]))
    %n[...] = argmin[k < K](%t[..., k])
  }
}"""
    g.read.update((v.name, u.name))
    form = g.tape.choose(("lookup", "total", "dot"))
    if form == "lookup":
        g.node("lookup", [f"%{v.name}", f"%{row.name}"], [(v.dtype, ("W",))])
    elif form == "total":
        e = g.tape.choose((v, u, g.edges[0]))
        g.node("total", [f"%{e.name}"], [("f32", e.dims[:-1]), ("i32", e.dims[:-1])], g.tape.choose(("", "s = gain")))
    else:
        g.operators["dot"] = """op @dot(%a: tensor<KxT>, %b: tensor<KxU>) -> (%y: tensor<f64>) { compute { %y = sum[k < K](f64(%a[k]) * f64(%b[k])) } }"""
        g.node("dot", [f"%{v.name}", f"%{u.name}"], [("f64", ())])


def _standard(g: Graph) -> None:
    """`@std.cast`, `@std.copy`."""
    e = g.pick(None, FLOATS)
    assert e is not None
    if g.tape.chance(3):
        g.node("std.copy", [f"%{e.name}"], [(e.dtype, e.dims)])
        return
    to = g.tape.choose(FLOATS)
    g.node("std.cast", [f"%{e.name}"], [(to, e.dims)], f"U = {to}")


def _words(g: Graph) -> None:
    """Words that choose a border and a formula, a dtype, and a dimension that the call gives."""
    e = g.pick(("W",), FLOATS)
    if e is None:
        return
    g.operators["tap"] = """op @tap(%x: tensor<NxT>, mode: word in [replicate, wrap, reflect, reflect101] = wrap, take: word in [mean, peak] = mean,
    U: dtype = f32, R: dim = 3, c: f64 = 0.5) -> (%y: tensor<NxRxU>) {
  memory { border = mode }
  compute { %y[n, r] = U(select(take == mean, mean[k < R](f64(%x[n + k + r - 1])), f64(max[k < R](%x[n + k - 1]))) * c) }
}"""
    mode, take, to, width = g.tape.choose(("", "mode = reflect", "mode = replicate")), g.tape.choose(("", "take = peak")), g.tape.choose(FLOATS), g.tape.choose(("2", "K"))
    attrs = ", ".join(a for a in (mode, take, f"U = {to}", f"R = {width}", g.tape.choose(("", "c = 0.1"))) if a)
    extent = "K" if width == "K" else width
    g.node("tap", [f"%{e.name}"], [(to, ("W", extent))], attrs)
