"""The verifier: what must hold of a module after each stage. It finds faults of the compiler, never of the user, who hears from the passes in better words.

After parsing
  structure      tuples inside tuples, and only nodes of `ir/nodes.py`
  spans          lie within their text
After `resolve`, further
  imports        are gone
  unique         no two operators, pipelines or targets share a name
  callee         the operator of every node is in the module
After `infer-types`, further
  edges          of a pipeline or graph are defined once; arguments, `after` and results name defined edges, arguments are not packs
  order          a node stands after all that it reads or waits for (so there is no cycle)
  labels         are unique
  arity          a node has as many arguments and results as its operator
  attributes     are those of the operator, and none without a default is missing
  types          a node has the types of its results: rank, dtype, dimensions in symbols of the pipeline; arguments and the results of the pipeline fit
  monomorphic    no `...`, no dtype variable, no word or dtype attribute in an operator that a pipeline reaches
  meaning        an operator has a `compute`, `graph` or `kernel`
  results        are assigned, operands are not
  axes           every piece and every read has as many axes as its tensor
  names          in expressions are dimensions, attributes, lets or indices; tensors are operands, results or locals
  functions      and reductions exist and have their number of arguments; casts name a dtype
After `flatten`, further
  flat           no operator is a graph
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from pipelink_ir.ir import nodes as ir
from pipelink_ir.ir.diagnostics import internal_error
from pipelink_ir.ir.dtypes import DTYPES, DType
from pipelink_ir.ir.source import NOWHERE, Span
from pipelink_ir.passes.verify_compute import verify_compute

STAGES = ("parse", "resolve", "infer-types", "flatten")
"""The stages at which more begins to hold; passes between two of them keep what held."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that does not hold, what breaks it, and where."""

    rule: str
    message: str
    span: Span

    def __str__(self) -> str:
        return f"{self.span}: {self.rule}: {self.message}"


def verify(module: ir.Module, stage: str = "parse") -> list[Finding]:
    """Everything that does not hold of `module` after the pass `stage` (one of `STAGES`), in the order of the rules."""
    if stage not in STAGES:
        internal_error(f"there is no stage {stage!r}")
    level = STAGES.index(stage)
    found = list(_structure(module))
    if found or level == 0:
        return found
    found += [*_imports(module), *_unique(module), *_callees(module)]
    if found or level == 1:
        return found
    operators = {o.name: o for o in module.operators}
    reached = reachable(module)
    for pipeline in module.pipelines:
        found += _nodes(pipeline.nodes, pipeline.inputs, pipeline.results, operators)
        found += _types(pipeline, operators)
    for operator in module.operators if not module.pipelines else [o for o in module.operators if o.name in reached]:
        if operator.graph is not None:
            found += _nodes(operator.graph.nodes, operator.operands, operator.results, operators)
        if module.pipelines:
            found += _monomorphic(operator)
            found += [Finding(*f) for f in verify_compute(operator)]
        if operator.compute is None and operator.graph is None and operator.kernel is None:
            found.append(Finding("meaning", f"'@{operator.name}' has no compute, graph or kernel", operator.signature))
        if level >= 3 and operator.graph is not None:
            found.append(Finding("flat", f"'@{operator.name}' is still a graph", operator.signature))
    return found


# ------------------------------------------------------------------------------------------------------------------- structure

_CLASSES = frozenset(c for c in vars(ir).values() if isinstance(c, type) and c.__module__ == ir.__name__ and is_dataclass(c) and c is not ir.Expr)
_FIELDS: dict[type, tuple[str, ...]] = {c: tuple(f.name for f in fields(c) if f.name not in ("span", "dtype") or c is ir.TensorType) for c in _CLASSES}
_PLAIN = (str, int, float, bool, type(None), DType)


def _structure(module: ir.Module) -> Iterator[Finding]:
    """Nodes and tuples only, and spans within their text; without recursion, trees may be deep."""
    stack: list[tuple[Any, Span]] = [(module, NOWHERE)]
    while stack:
        value, at = stack.pop()
        kind = type(value)
        if kind is tuple:
            stack += [(v, at) for v in value]
        elif kind in _FIELDS:
            at = getattr(value, "span", at)
            if not _span_holds(at):
                yield Finding("spans", f"a {kind.__name__} has a span outside its text", at)
            stack += [(getattr(value, f), at) for f in _FIELDS[kind]]
        elif kind is Span:
            if not _span_holds(value):
                yield Finding("spans", "a span lies outside its text", at)
        elif not isinstance(value, _PLAIN):
            yield Finding("structure", f"a {kind.__name__} is no part of a program", at)


def _span_holds(span: Any) -> bool:
    if type(span) is not Span:
        return False
    return span.source.text is None or 0 <= span.start <= span.end <= len(span.source.text)


# ----------------------------------------------------------------------------------------------------------------------- names


def _imports(module: ir.Module) -> Iterator[Finding]:
    for item in module.imports:
        yield Finding("imports", f"an import of '{item.module or item.file}' is left", item.span)


def _unique(module: ir.Module) -> Iterator[Finding]:
    for kind, items in (("operators", module.operators), ("pipelines", module.pipelines), ("targets", module.targets)):
        seen: set[str] = set()
        for item in items:
            if item.name in seen:
                yield Finding("unique", f"two {kind} are called '@{item.name}'", item.span)
            seen.add(item.name)


def _graphs(module: ir.Module) -> Iterator[tuple[ir.Node | ir.Alias, ...]]:
    yield from (p.nodes for p in module.pipelines)
    yield from (o.graph.nodes for o in module.operators if o.graph is not None)


def _callees(module: ir.Module) -> Iterator[Finding]:
    known = {o.name for o in module.operators}
    for nodes in _graphs(module):
        for node in nodes:
            if isinstance(node, ir.Node) and node.op not in known:
                yield Finding("callee", f"'@{node.op}' is not in the module", node.op_span)


def reachable(module: ir.Module) -> set[str]:
    """The operators that the pipelines call, directly or through graphs."""
    graphs = {o.name: o.graph.nodes for o in module.operators if o.graph is not None}
    todo = [n.op for p in module.pipelines for n in p.nodes if isinstance(n, ir.Node)]
    seen: set[str] = set()
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += [n.op for n in graphs.get(name, ()) if isinstance(n, ir.Node)]
    return seen


# ----------------------------------------------------------------------------------------------------------------------- nodes


def _nodes(nodes: tuple[ir.Node | ir.Alias, ...], inputs: tuple[ir.Operand, ...], results: tuple[ir.Operand, ...],
           operators: Mapping[str, ir.Operator]) -> Iterator[Finding]:
    """`edges`, `order`, `labels`, `arity` and `attributes` of a pipeline or graph."""
    defined = {e.name for n in nodes for e in made_by(n)} | {i.name for i in inputs}
    known: set[str] = set()
    labels: set[str] = set()
    for operand in inputs:
        if operand.name in known:
            yield Finding("edges", f"two inputs are called '%{operand.name}'", operand.span)
        known.add(operand.name)
    for node in nodes:
        for edge in read_by(node):
            if edge.name not in known:
                rule, what = ("order", "stands below") if edge.name in defined else ("edges", "is not defined for")
                yield Finding(rule, f"'%{edge.name}' {what} a node that needs it", edge.span)
        for edge in made_by(node):
            if edge.name in known:
                yield Finding("edges", f"'%{edge.name}' is defined twice", edge.span)
            known.add(edge.name)
        if isinstance(node, ir.Node):
            yield from _call(node, operators[node.op])
            if node.label is not None and node.label in labels:
                yield Finding("labels", f"two nodes have the label '{node.label}'", node.span)
            labels.add(node.label or "")
    for result in results:
        if result.name not in known:
            yield Finding("edges", f"the result '%{result.name}' is not defined", result.span)


def made_by(node: ir.Node | ir.Alias) -> tuple[ir.Edge, ...]:
    """The edges that a node defines."""
    return node.results if isinstance(node, ir.Node) else (node.name,)


def read_by(node: ir.Node | ir.Alias) -> tuple[ir.Edge, ...]:
    """The edges that a node needs: its arguments and what it comes after."""
    if isinstance(node, ir.Alias):
        return (node.of,)
    return (*(e for a in node.args for e in (a.items if isinstance(a, ir.Pack) else (a,))), *node.after)


def _call(node: ir.Node, operator: ir.Operator) -> Iterator[Finding]:
    if len(node.args) != len(operator.operands) or len(node.results) != len(operator.results):
        yield Finding("arity", f"'@{node.op}' has {len(operator.operands)} operands and {len(operator.results)} results, "
                               f"the node {len(node.args)} and {len(node.results)}", node.span)
    for argument in node.args:
        if isinstance(argument, ir.Pack):
            yield Finding("edges", "a pack is left as an argument", argument.span)
    given = [s.key for s in node.attrs]
    known = {a.name: a for a in operator.attributes}
    for setting in node.attrs:
        if setting.key not in known or given.count(setting.key) > 1:
            yield Finding("attributes", f"'@{node.op}' has no attribute '{setting.key}', or it is given twice", setting.span)
    for name, attribute in known.items():
        if attribute.default is None and name not in given:
            yield Finding("attributes", f"'@{node.op}' is not given its attribute '{name}'", node.span)


# ----------------------------------------------------------------------------------------------------------------------- types


def _types(pipeline: ir.Pipeline, operators: Mapping[str, ir.Operator]) -> Iterator[Finding]:
    types = {i.name: i.type for i in pipeline.inputs}
    symbols = {n.name for i in pipeline.inputs for d in i.type.dims for n in ir_names(d)} | {a.name for a in pipeline.attributes}
    for node in pipeline.nodes:
        if isinstance(node, ir.Alias):
            if node.of.name in types:
                types[node.name.name] = types[node.of.name]
            continue
        operator = operators[node.op]
        if len(node.types) != len(node.results):
            yield Finding("types", f"the node of '@{node.op}' has {len(node.types)} types for {len(node.results)} results", node.span)
            continue
        types.update(zip((e.name for e in node.results), node.types, strict=True))
        for argument, operand in zip(node.args, operator.operands, strict=False):
            if isinstance(argument, ir.Edge) and argument.name in types and not _fits(types[argument.name], operand.type):
                yield Finding("types", f"'%{argument.name}' does not fit the operand '%{operand.name}' of '@{node.op}'", argument.span)
        for edge, type_, result in zip(node.results, node.types, operator.results, strict=False):
            if not _fits(type_, result.type):
                yield Finding("types", f"the type of '%{edge.name}' is not that of the result '%{result.name}' of '@{node.op}'", edge.span)
            for name in (n for d in type_.dims for n in ir_names(d)):
                if name.name not in symbols:
                    yield Finding("types", f"the type of '%{edge.name}' has a dimension '{name.name}' that the pipeline does not", edge.span)
    for result in pipeline.results:
        if result.name in types and not _fits(types[result.name], result.type):
            yield Finding("types", f"the result '%{result.name}' has another rank or dtype than its edge", result.span)


def ir_names(e: ir.Expr) -> Iterator[ir.Name]:
    """The bare names in an expression."""
    from pipelink_ir.ir.walk import walk
    return (n for n in walk(e) if isinstance(n, ir.Name))


def _fits(a: ir.TensorType, b: ir.TensorType) -> bool:
    return len(a.dims) == len(b.dims) and a.dtype == b.dtype


def _monomorphic(operator: ir.Operator) -> Iterator[Finding]:
    for operand in (*operator.operands, *operator.results):
        if operand.type.dtype not in DTYPES:
            yield Finding("monomorphic", f"'%{operand.name}' of '@{operator.name}' has the dtype variable '{operand.type.dtype}'", operand.span)
        if any(isinstance(d, ir.Dots) for d in operand.type.dims):
            yield Finding("monomorphic", f"'%{operand.name}' of '@{operator.name}' has '...' in its shape", operand.span)
    for attribute in operator.attributes:
        if attribute.type in ("word", "dtype"):
            yield Finding("monomorphic", f"'@{operator.name}' has the {attribute.type} attribute '{attribute.name}'", attribute.span)
