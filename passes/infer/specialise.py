"""One operator for one kind of call: type variables, `...`, words, dtypes and constant attributes replaced by what the call gives.

    op @gelu(%x: tensor<...xT>, k: f32 = 1.0)            with T = f16, `...` = two dimensions, k = 2
    op @gelu.1(%x: tensor<D0xD1xf16>) { compute { let k = f32(2.0)  %y[d0, d1] = … } }

A list of parts as an argument (`[%a, %b]`) becomes one operand a part and a local that is defined piece by piece, so that nothing is materialised.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pipelink_ir.ir import contracts
from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.evaluate import CannotEvaluate, evaluate_condition
from pipelink_ir.ir.nodes import (
    Alias,
    Apply,
    Attribute,
    Axis,
    Cast,
    Compute,
    Const,
    Define,
    Dots,
    Downgrade,
    Expr,
    Graph,
    IntLit,
    Items,
    Let,
    Name,
    Node,
    Operand,
    Operator,
    Position,
    Range,
    Read,
    Reduce,
    Scoped,
    Section,
    Setting,
    TensorType,
    Value,
)
from pipelink_ir.ir.walk import names_in, rebuild, substitute, walk


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of a packed operand: its extent along the packed axis in the operator's own symbols."""

    extent: Expr


@dataclass(frozen=True, slots=True)
class Packed:
    """A packed operand: `stack` adds the axis, `join` goes along `axis`."""

    axis: int
    stack: bool
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Binding:
    """What one call fixes. Equal bindings give the same operator."""

    dtypes: tuple[tuple[str, str], ...] = ()
    dots: tuple[Expr, ...] | None = None
    dims: tuple[tuple[str, Expr], ...] = ()
    words: tuple[tuple[str, str], ...] = ()
    scalars: tuple[tuple[str, Expr], ...] = ()
    packed: tuple[tuple[str, Packed], ...] = ()


@dataclass(slots=True)
class _Rewrite:
    dtypes: dict[str, str]
    dots: tuple[Expr, ...] | None
    dims: dict[str, Expr]
    words: dict[str, str]
    scalars: dict[str, Expr]
    dot_indices: tuple[str, ...] = ()
    bound: bool = False
    """Whether the left side, or a reduction around, has bound `dot_indices`."""
    used: set[str] = field(default_factory=set)


def names_of(op: Operator) -> set[str]:
    """Every bare name that an operator uses, so that new ones can keep clear of them."""
    out: set[str] = {p.name for p in op.params}
    for t in (*op.operands, *op.results):
        for d in t.type.dims:
            out |= {n.name for n in walk(d) if isinstance(n, Name)}
        out.add(t.type.dtype)
    for body in (op.compute, op.gradient):
        for item in body.body if body is not None else ():
            if isinstance(item, Let):
                out.add(item.name)
            else:
                out |= {a.index for a in item.axes if isinstance(a, Axis)}
            for n in walk(item.value):
                if isinstance(n, Name):
                    out.add(n.name)
                elif isinstance(n, Range):
                    out.add(n.index)
    return out


def fresh(stem: str, count: int, used: set[str]) -> tuple[str, ...]:
    """`count` new names `stem0`, `stem1`, … that are not in use."""
    while any(f"{stem}{i}" in used for i in range(count)):
        stem += stem[-1]
    return tuple(f"{stem}{i}" for i in range(count))


def specialise(op: Operator, binding: Binding, name: str) -> Operator:
    """`op` with everything in `binding` put in, under a new name."""
    used = names_of(op)
    indices = fresh("d", len(binding.dots) or 1, used) if binding.dots is not None else ()
    rw = _Rewrite(dict(binding.dtypes), binding.dots, dict(binding.dims), dict(binding.words), dict(binding.scalars), indices, used=used)
    gone = set(rw.dtypes) | set(rw.words) | set(rw.scalars) | set(rw.dims)
    params: list[Operand | Attribute] = []
    pieces: list[Define] = []
    packed = dict(binding.packed)
    for p in op.params:
        if isinstance(p, Attribute):
            if p.name not in gone:
                params.append(replace(p, default=None))
        elif p.name in packed:
            operands, defines = _unpack(replace(p, type=_type(p.type, rw)), packed[p.name], used)
            params += operands
            pieces += defines
        else:
            params.append(replace(p, type=_type(p.type, rw)))
    sections = tuple(_section(s, rw, packed) for s in op.sections)
    if packed:
        sections = (*sections, *_scope_borders(op, packed, rw))
    results = tuple(replace(r, type=_type(r.type, rw)) for r in op.results)
    sections = _varying(op, rw, packed, (*(p for p in params if isinstance(p, Operand)), *results), sections)
    return replace(
        op, name=name, params=tuple(params), results=results, where=_where(op, rw), sections=sections,
        downgrades=tuple(_downgrade(d, rw) for d in op.downgrades), compute=_compute(op.compute, rw, pieces), gradient=_compute(op.gradient, rw, []),
        graph=_graph(op.graph, rw), kernel=None if op.kernel is None else replace(op.kernel, settings=_settings(op.kernel.settings, rw)))


def _varying(op: Operator, rw: _Rewrite, packed: Mapping[str, Packed], tensors: tuple[Operand, ...], sections: tuple[Section, ...]) -> tuple[Section, ...]:
    """The sections, with `varies` where the list of `dtypes` does not tell any more whose dtype was a variable: with a list all floats count as such, without
    one none does. Operators without a meaning in numbers (graphs, `@std.copy`, `@std.cast`) have nothing to vary."""
    free = {o.name for o in (*op.operands, *op.results) if o.type.dtype in rw.dtypes}
    if not free or op.graph is not None or op.name in ("std.copy", "std.cast"):
        return sections
    floats = [o.name for o in tensors if o.type.dtype in DTYPES and DTYPES[o.type.dtype].is_float]
    varies = [name for name in floats if name in free or name.rpartition(".")[0] in free & packed.keys()]
    listed = contracts.dtypes(op) is not None
    if not floats or varies == (floats if listed else []):
        return sections
    entry = Setting("varies", Items(tuple(Read(name) for name in varies)))
    at = next((k for k, s in enumerate(sections) if s.name == "memory"), None)
    if at is None:
        return (Section("memory", (entry,)), *sections)
    return (*sections[:at], replace(sections[at], entries=(*sections[at].entries, entry)), *sections[at + 1:])


def closed(condition: Expr) -> bool | None:
    """The value of a condition that names nothing; None if it does, or has no value here."""
    if names_in(condition):
        return None
    try:
        return evaluate_condition(condition, {})
    except CannotEvaluate:
        return None


def _where(op: Operator, rw: _Rewrite) -> tuple[Expr, ...]:
    """The conditions that still say something: what holds for the constants of this call is dropped."""
    conditions = (substitute(_expr(w, rw), rw.scalars) for w in op.where)
    return tuple(c for c in conditions if not closed(c))


def _type(t: TensorType, rw: _Rewrite) -> TensorType:
    dims: list[Expr] = []
    for d in t.dims:
        if isinstance(d, Dots):
            dims += rw.dots or ()
        else:
            dims.append(_expr(d, rw))
    layout = t.layout if t.layout is None or len(t.layout) == len(dims) else None
    return replace(t, dims=tuple(dims), dtype=rw.dtypes.get(t.dtype, t.dtype), layout=layout)


def _expr(e: Expr, rw: _Rewrite) -> Expr:
    return substitute(_rewrite(e, rw), rw.dims)


def _rewrite(e: Expr, rw: _Rewrite) -> Expr:
    """Words, dtypes and `...` in an expression; dimensions follow by substitution, which knows about bound indices."""
    if isinstance(e, Apply) and e.fn in ("==", "!=") and any(isinstance(a, Name) and a.name in rw.words for a in e.args):
        left, right = (rw.words.get(a.name, a.name) if isinstance(a, Name) else None for a in e.args)
        return Const("true" if (left == right) == (e.fn == "==") else "false", span=e.span)
    if isinstance(e, Name) and e.name in rw.words:
        return replace(e, name=rw.words[e.name])
    if isinstance(e, Cast):
        return replace(e, to=rw.dtypes.get(e.to, e.to), arg=_rewrite(e.arg, rw))
    if rw.dots is not None and isinstance(e, Read) and any(isinstance(i, Dots) for i in e.indices):
        e = replace(e, indices=_indices(e.indices, rw))
    if rw.dots is not None and isinstance(e, Reduce) and any(isinstance(r, Dots) for r in e.ranges):
        return _over_dots(e, rw)
    return rebuild(e, lambda x: _rewrite(x, rw))


def put_words(e: Expr, dtypes: Mapping[str, str], words: Mapping[str, str]) -> Expr:
    """An expression with the dtypes and words of a call in place of their names."""
    return _rewrite(e, _Rewrite(dict(dtypes), None, {}, dict(words), {}))


def _over_dots(e: Reduce, rw: _Rewrite) -> Reduce:
    """A reduction over `[...]`: in it `...` means its own indices, also where `...` is bound around it."""
    inner = replace(rw, bound=True)
    if rw.bound:
        inner.used = rw.used | set(rw.dot_indices)
        inner.dot_indices = fresh("d", len(rw.dot_indices), inner.used)
    ranges = tuple(_rewrite(r, rw) for r in _ranges(e.ranges, inner))
    where, rank = (None if x is None else _rewrite(x, y) for x, y in ((e.where, inner), (e.rank, rw)))
    return replace(e, ranges=ranges, where=where, body=_rewrite(e.body, inner), rank=rank)


def _indices(indices: tuple[Expr, ...], rw: _Rewrite) -> tuple[Expr, ...]:
    out: list[Expr] = []
    for i in indices:
        out += [Name(n, span=i.span) for n in rw.dot_indices[:len(rw.dots or ())]] if isinstance(i, Dots) else [i]
    return tuple(out)


def _ranges(ranges: tuple[Expr, ...], rw: _Rewrite) -> tuple[Expr, ...]:
    """`[...]` over no dimensions is one turn: a range of extent one that nothing reads."""
    out: list[Expr] = []
    for r in ranges:
        if isinstance(r, Dots):
            out += [Range(n, None, d, span=r.span) for n, d in zip(rw.dot_indices, rw.dots or (IntLit(1, span=r.span),), strict=False)]
        else:
            out.append(r)
    return tuple(out)


def _value(v: Value, rw: _Rewrite) -> Value:
    if isinstance(v, Items):
        return replace(v, items=tuple(_value(i, rw) for i in v.items))
    if isinstance(v, Expr):
        if isinstance(v, Name) and v.name in rw.dtypes:
            return replace(v, name=rw.dtypes[v.name])
        return substitute(_expr(v, rw), rw.scalars)
    return v


def _settings(settings: tuple[Setting, ...], rw: _Rewrite) -> tuple[Setting, ...]:
    return tuple(replace(s, value=_value(s.value, rw)) for s in settings)


def _section(section: Section, rw: _Rewrite, packed: dict[str, Packed]) -> Section:
    entries: list[Setting | Scoped] = []
    for e in section.entries:
        if not isinstance(e, Scoped):
            entries.append(replace(e, value=_value(e.value, rw)))
            continue
        settings = tuple(s for s in _settings(e.settings, rw) if not (isinstance(s.value, Read) and s.value.tensor in packed))
        if e.tensor in packed:
            # What is asked of a packed operand is asked of each part; its border is that of the local which stands for it.
            asked = tuple(s for s in settings if s.key != "border")
            entries += [replace(e, tensor=f"{e.tensor}.{k}", settings=asked) for k in range(len(packed[e.tensor].parts)) if asked]
            settings = tuple(s for s in settings if s.key == "border")
        if settings:
            entries.append(replace(e, settings=settings))
    return replace(section, entries=tuple(entries))


def _downgrade(d: Downgrade, rw: _Rewrite) -> Downgrade:
    return d if d.settings is None else replace(d, settings=_settings(d.settings, rw))


def _compute(body: Compute | None, rw: _Rewrite, pieces: list[Define]) -> Compute | None:
    if body is None:
        return None
    out: list[Let | Define] = [Let(n, v, span=v.span) for n, v in rw.scalars.items()]
    out += pieces
    for item in body.body:
        if isinstance(item, Let):
            out.append(replace(item, value=_expr(item.value, rw)))
            continue
        axes: list[Axis | Position | Dots] = []
        hidden = {a.index for a in item.axes if isinstance(a, Axis)}
        for a in item.axes:
            if isinstance(a, Dots) and rw.dots is not None:
                axes += [Axis(n, span=a.span) for n in rw.dot_indices[:len(rw.dots)]]
            elif isinstance(a, Axis):
                axes.append(replace(a, lo=None if a.lo is None else _expr(a.lo, rw), hi=None if a.hi is None else _expr(a.hi, rw)))
            else:
                axes.append(a)
        # An index of the left side hides a dimension of its name.
        visible = {k: v for k, v in rw.dims.items() if k not in hidden}
        inside = replace(rw, bound=any(isinstance(a, Dots) for a in item.axes))
        out.append(replace(item, axes=tuple(axes), value=substitute(_rewrite(item.value, inside), visible)))
    return replace(body, body=tuple(out))


def _graph(graph: Graph | None, rw: _Rewrite) -> Graph | None:
    if graph is None:
        return None
    nodes: list[Node | Alias] = []
    for n in graph.nodes:
        nodes.append(replace(n, attrs=_settings(n.attrs, rw)) if isinstance(n, Node) and n.attrs else n)
    return replace(graph, nodes=tuple(nodes))


def _unpack(operand: Operand, packed: Packed, used: set[str]) -> tuple[list[Operand], list[Define]]:
    """The operands that stand for a packed one, and the pieces of the local that takes its name."""
    t = operand.type
    names = fresh("i", len(t.dims), used)
    operands: list[Operand] = []
    defines: list[Define] = []
    start: Expr = IntLit(0)
    for k, part in enumerate(packed.parts):
        dims = [d for i, d in enumerate(t.dims) if not (packed.stack and i == packed.axis)]
        if not packed.stack:
            dims[packed.axis] = part.extent
        name = f"{operand.name}.{k}"
        operands.append(replace(operand, name=name, type=replace(t, dims=tuple(dims), layout=t.layout if len(dims) == len(t.dims) else None)))
        axes: list[Axis | Position] = [Axis(n, None, d, span=operand.span) for n, d in zip(names, t.dims, strict=True)]
        indices: list[Expr] = [Name(n, span=operand.span) for n in names]
        if packed.stack:
            axes[packed.axis] = Position(k, span=operand.span)
            del indices[packed.axis]
        else:
            end = _add(start, part.extent)
            axes[packed.axis] = Axis(names[packed.axis], start, end, span=operand.span)
            if not (isinstance(start, IntLit) and start.value == 0):
                indices[packed.axis] = Apply("-", (indices[packed.axis], start), span=operand.span)
            start = end
        defines.append(Define(operand.name, tuple(axes), Read(name, tuple(indices), span=operand.span), span=operand.span, target=operand.span))
    return operands, defines


def _add(a: Expr, b: Expr) -> Expr:
    if isinstance(a, IntLit):
        return b if a.value == 0 else IntLit(a.value + b.value) if isinstance(b, IntLit) else Apply("+", (a, b))
    return Apply("+", (a, b))


def _scope_borders(op: Operator, packed: dict[str, Packed], rw: _Rewrite) -> list[Section]:
    """A general border speaks of operands; the local that stands for a packed operand needs it written for itself."""
    out: list[Section] = []
    for section in op.sections:
        for entry in section.entries:
            if section.name == "memory" and isinstance(entry, Setting) and entry.key == "border":
                border = replace(entry, value=_value(entry.value, rw))
                out += [Section("memory", (Scoped(name, (border,), span=entry.span),), span=entry.span) for name in packed]
    return out


