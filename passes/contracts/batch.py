"""`batch = N`: whether calls may be merged along a dimension, so that places along it never meet."""
from __future__ import annotations

from collections.abc import Mapping

from pipelink_ir.ir import contracts
from pipelink_ir.ir.diagnostics import Note, Report, did_you_mean
from pipelink_ir.ir.nodes import Axis, Define, Dots, Name, Node, Operator, Range, Read, Reduce, Setting
from pipelink_ir.ir.source import Span
from pipelink_ir.ir.walk import names_in, walk
from pipelink_ir.passes.scopes import consumed


def check_batch(op: Operator, scope: str | None, s: Setting, report: Report) -> None:
    """Report a batch dimension that does not exist, is in no result, or over which the definitions reach."""
    name = contracts.word(s.value)
    declared = Note(f"'@{op.name}' is declared here", op.signature)
    dims = {d.name: None for o in op.operands for d in o.type.dims if isinstance(d, Name)}
    if name not in dims:
        report.error("batch", s.span, f"'@{op.name}' has no dimension '{contracts.describe(s.value)}'", [declared],
                     (did_you_mean(name, dims) if name else None) or f"its dimensions are {', '.join(dims)}: write 'batch = {next(iter(dims), 'N')}'")
        return
    culprit = mixes(op, name, {})
    if culprit is not None:
        _report(s, name, culprit, report)
        return
    without = next((r for r in op.results if not any(isinstance(d, Name) and d.name == name for d in r.type.dims)), None)
    if without is not None:
        report.error("batch", s.span, f"calls cannot be merged along '{name}': the result '%{without.name}' has no such dimension",
                     [Note("the result", without.span)], f"drop 'batch', or let every result keep '{name}'")


def check_graph_batch(op: Operator, operators: Mapping[str, Operator], report: Report) -> None:
    """The same of a graph whose nodes are typed and name operators in `operators`."""
    found = contracts.setting(op, "execution", "batch")
    name = contracts.word(found.setting.value) if found is not None else None
    culprit = mixes(op, name, operators) if name is not None else None
    if found is not None and name is not None and culprit is not None:
        _report(found.setting, name, culprit, report)


def _report(s: Setting, name: str, culprit: Span, report: Report) -> None:
    report.error("batch", s.span, f"calls cannot be merged along '{name}': what one caller gives would reach another's result",
                 [Note("it is mixed here", culprit)], f"drop 'batch', or let every result keep '{name}' and read it at its own index")


def mixes(op: Operator, batch: str, operators: Mapping[str, Operator]) -> Span | None:
    """Where places along the batch dimension meet: a reduction over it, a read at another index than the own one, a node that does so."""
    if op.graph is not None:
        return _graph_mixes(op, batch, operators)
    axes = _axes_of(op, batch)
    for item in op.compute.body if op.compute is not None else ():
        if not isinstance(item, Define):
            continue
        own = {a.index for a in item.axes if isinstance(a, Axis)}
        for e in walk(item.value):
            if isinstance(e, Reduce) and any(isinstance(r, Range) and batch in names_in(r.hi) for r in e.ranges):
                return item.span
            if isinstance(e, Read) and not any(isinstance(i, Dots) for i in e.indices):
                for k in axes.get(e.tensor, ()):
                    if k < len(e.indices) and not (isinstance(e.indices[k], Name) and getattr(e.indices[k], "name", "") in own):
                        return item.span
    return None


def _axes_of(op: Operator, batch: str) -> dict[str, set[int]]:
    """The axes that run along the batch dimension: those declared so, and those of locals whose index is used along one."""
    out = {o.name: {k for k, d in enumerate(o.type.dims) if isinstance(d, Name) and d.name == batch} for o in (*op.operands, *op.results)}
    items = [d for d in (op.compute.body if op.compute is not None else ()) if isinstance(d, Define)]
    changed = True
    while changed:
        changed = False
        for d in items:
            own = {a.index: k for k, a in enumerate(d.axes) if isinstance(a, Axis)}
            mine = out.setdefault(d.tensor, set())
            for e in walk(d.value):
                if isinstance(e, Read) and not any(isinstance(i, Dots) for i in e.indices):
                    along = {own[i.name] for k, i in enumerate(e.indices) if isinstance(i, Name) and i.name in own and k in out.get(e.tensor, ())}
                    changed |= not along <= mine
                    mine |= along
    return out


def _graph_mixes(op: Operator, batch: str, operators: Mapping[str, Operator]) -> Span | None:
    assert op.graph is not None
    types = {o.name: o.type for o in op.operands}
    for n in op.graph.nodes:
        if not isinstance(n, Node):
            if n.of.name in types:
                types[n.name.name] = types[n.of.name]
            continue
        callee = operators.get(n.op)
        for o, e in zip(callee.operands if callee is not None else (), consumed(n), strict=False):
            for k, d in enumerate(types[e.name].dims if e.name in types else ()):
                inner = o.type.dims[k] if k < len(o.type.dims) else None
                along = isinstance(d, Name) and d.name == batch and isinstance(inner, Name)
                if along and callee is not None and isinstance(inner, Name) and mixes(callee, inner.name, operators) is not None:
                    return n.span
        types |= {e.name: t for e, t in zip(n.results, n.types, strict=False)}
    return None
