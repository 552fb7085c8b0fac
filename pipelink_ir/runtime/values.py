"""Values checked while a pipeline runs: `range` and `finite` on every edge, with the first value that breaks one (`--check-values`, `check_values=True`).

What operators ask of their operands and promise of their results is collected from the program before graph operators are laid out. For the run all edges that
somebody speaks of become results, so every backend can be asked; a run with checks is for finding a fault and not for speed.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pipelink_ir.ir.contracts import setting, word
from pipelink_ir.ir.diagnostics import About, ContractViolationError, Note, Report
from pipelink_ir.ir.nodes import Alias, Edge, Module, Node, Operand, Operator, Pipeline
from pipelink_ir.ir.source import Span
from pipelink_ir.ir.walk import deep
from pipelink_ir.passes.contracts.edges import declared_range
from pipelink_ir.passes.contracts.ranges import Interval
from pipelink_ir.runtime.tensor import TensorView


@dataclass(frozen=True, slots=True)
class Watch:
    """One contract of one edge: `lo` and `hi`, or finite values. `at` is the use or the maker, `said` the line of the contract."""

    edge: str
    field: str
    lo: float
    hi: float
    operator: str
    value: str
    """The operand or result by the operator's name for it."""
    asked: bool
    """Asked of an operand; else promised of a result."""
    at: Span
    said: Span


@dataclass(frozen=True, slots=True)
class Watched:
    """A pipeline whose edges are seen: the module in which they are results, and what is to hold."""

    module: Module
    pipeline: Pipeline
    watches: tuple[Watch, ...]


def watched(contracts: Module, laid_out: Module, name: str) -> Watched:
    """`laid_out` is the module after `flatten`; `contracts` the same before it."""
    pipeline = next(p for p in laid_out.pipelines if p.name == name)
    before = next((p for p in contracts.pipelines if p.name == name), pipeline)
    operators = {o.name: o for o in (*laid_out.operators, *contracts.operators)}
    with deep():
        found = tuple(dict.fromkeys(_scope(before.nodes, {}, "", operators)))
    types = {e.name: t for n in pipeline.nodes if isinstance(n, Node) for e, t in zip(n.results, n.types, strict=True)}
    for n in pipeline.nodes:
        if isinstance(n, Alias) and n.of.name in types:
            types[n.name.name] = types[n.of.name]
    inputs, results = {o.name for o in pipeline.inputs}, {r.name for r in pipeline.results}
    # In the order in which values come about, so that the first fault told is the first that happened; whoever made it is told before who asks.
    order = {name: k for k, name in enumerate([*sorted(inputs), *types])}
    watches = tuple(sorted((w for w in found if w.edge in order), key=lambda w: (order[w.edge], w.asked)))
    more = tuple(Operand(e, types[e], span=pipeline.name_span) for e in dict.fromkeys(w.edge for w in watches) if e not in inputs and e not in results)
    # A plan says where edges lie that are results now: without one everything runs in the order of the text.
    nodes = tuple(replace(n, plan=None) if isinstance(n, Node) and n.plan is not None else n for n in pipeline.nodes)
    wider = replace(pipeline, results=(*pipeline.results, *more), nodes=nodes)
    module = replace(laid_out, items=tuple(wider if i is pipeline else i for i in laid_out.items))
    return Watched(module, wider, watches)


def _scope(nodes: tuple[Node | Alias, ...], names: Mapping[str, str], prefix: str, operators: Mapping[str, Operator]) -> Iterator[Watch]:
    """The contracts of a pipeline or of a graph within it; `names` says what the graph's operands and results are called outside."""
    def edge(name: str) -> str:
        return names.get(name) or prefix + name

    for n in nodes:
        op = operators.get(n.op) if isinstance(n, Node) else None
        if op is None or not isinstance(n, Node):
            continue
        inner: dict[str, str] = {}
        for operand, arg in zip(op.operands, n.args, strict=False):
            if isinstance(arg, Edge):
                inner[operand.name] = edge(arg.name)
                yield from _watches(op, operand.name, inner[operand.name], True, arg.span)
        for result, made in zip(op.results, n.results, strict=False):
            inner[result.name] = edge(made.name)
            yield from _watches(op, result.name, inner[result.name], False, made.span)
        if op.graph is not None:
            # As `flatten` names what is inside: after the first result of the node.
            yield from _scope(op.graph.nodes, inner, f"{edge(n.results[0].name)}.", operators)


def _watches(op: Operator, value: str, edge: str, asked: bool, at: Span) -> Iterator[Watch]:
    for field in ("range", "finite"):
        found = setting(op, "semantic", field, value)
        if found is None or (not asked and not found.scoped):
            continue
        s = found.setting
        bounds = declared_range(s) if field == "range" else Interval(0.0, 0.0) if word(s.value) == "true" else None
        if bounds is not None:
            yield Watch(edge, field, bounds.lo, bounds.hi, op.name, value, asked, at, s.span)


def check(watched: Watched, values: Mapping[str, Any], sources: Mapping[str, Any]) -> None:
    """Raise a `ContractViolationError` with every contract that a value breaks. `values` has arrays by edge, `sources` the caller's objects by input."""
    report = Report()
    made = {e.name: n for n in watched.pipeline.nodes if isinstance(n, Node) for e in n.results}
    for w in watched.watches:
        broken = _first(w, values[w.edge])
        if broken is None:
            continue
        place, value, count = broken
        want = f"values in [{w.lo:g}, {w.hi:g}]" if w.field == "range" else "finite values"
        notes = [*_origin(w, made, sources), Note(f"'@{w.operator}' {'asks for' if w.asked else 'promises'} it here", w.said)]
        more = f" ({count} such values)" if count > 1 else ""
        says = f"'@{w.operator}' asks for {want} as '%{w.value}'" if w.asked else f"'@{w.operator}' promises {want}"
        help = "bring the values there first ('clamp', a scale, a filter), or ask for less" if w.asked else "compute what is promised, or promise less"
        report.error(w.field, w.at, f"'%{w.edge}' is {value} at {place}{more}, but {says}", notes, help,
                     About(w.field, w.operator, w.edge, want, f"{value} at {place}"))
    if report.failed:
        raise ContractViolationError(report.diagnostics)


def _first(w: Watch, array: Any) -> tuple[list[int], str, int] | None:
    """The first place, in the order of indices, whose value breaks a contract; its value, and how many there are. NaN is no matter of `range`."""
    import numpy as np
    if array.size == 0 or (w.field == "finite" and array.dtype.kind in "biu"):
        return None
    wide = array if array.dtype.kind in "biu" else array.astype(np.float64)
    with np.errstate(invalid="ignore"):
        broken = ((wide < w.lo) | (wide > w.hi)) if w.field == "range" else ~np.isfinite(wide)
    if not broken.any():
        return None
    at = int(broken.reshape(-1).argmax())
    place = [int(i) for i in np.unravel_index(at, array.shape)]
    return place, str(array.reshape(-1)[at]), int(broken.sum())


def _origin(w: Watch, made: Mapping[str, Node], sources: Mapping[str, Any]) -> list[Note]:
    node = made.get(w.edge)
    if node is not None:
        return [Note(f"'%{w.edge}' is made here, by '@{node.op}'", node.op_span)]
    source = sources.get(w.edge)
    if isinstance(source, TensorView) and source.made is not None:
        return [Note(f"the array '{w.edge}' is made here", source.made.span())]
    from pipelink_ir.runtime.origin import here
    origin = here()
    return [Note(f"'{w.edge}' is passed here", origin.span())] if origin else []
