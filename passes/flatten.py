"""Graph operators become part of the pipelines that call them.

Before:  op @ffn.1(%x: tensor<NxKxf16>, …, g: f32) -> (%y: tensor<NxKxf16>) {
           graph { %h = @linear.1(%x, %w, %b) as up
                   %y = @gain.1(%h) {by = g + 1} }
         }
         pipeline @p(%a: tensor<BxDxf16>, …, s: f32) -> (%z: tensor<BxDxf16>) {
           %z = @ffn.1(%a, …) {g = s} on cuda:1 as ffn after %e
         }
After:   pipeline @p(…) {
           %z.h = @linear.1(%a, …) on cuda:1 as ffn.up after %e loc("ffn.plir":3:20)
           %z   = @gain.1(%z.h) {by = f32(s) + 1} on cuda:1 as ffn.z loc("ffn.plir":4:20)
         }

A node inside gets the label `outer.inner` (of one without a label, the name of its first result stands for it), an edge inside the name
`%result.inner` after the first result of the node it came from; a dot cannot be written in a user's edge. An attribute is cast to its declared type where
it is substituted, so that it has the value that the graph operator would have been given. What comes `after` the node comes after all of it, `on` is
handed down to nodes that say nothing else, and of a `plan` the stream goes to every node, `wait` to the first, `record` to the last.

Requires: types (`infer-types`); graph operators are specialised.
Keeps: compute operators, the order of nodes, the meaning bit for bit.
Adds: `loc`; no graph operator is left in a module that has a pipeline.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pipelink_ir.ir.diagnostics import Note, Report, internal_error
from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.nodes import (
    Alias,
    Cast,
    Edge,
    Expr,
    Graph,
    IntLit,
    Items,
    Module,
    Name,
    Node,
    Operator,
    Pack,
    Pipeline,
    Section,
    Setting,
    TensorType,
    Text,
    Value,
)
from pipelink_ir.ir.prover import normal
from pipelink_ir.ir.walk import deep, substitute
from pipelink_ir.passes.manager import NoOptions, register_pass
from pipelink_ir.passes.shapes import bind_symbols

LIMIT = 1_000_000
"""Nodes that one pipeline may have: graphs that call graphs twice each double with every level."""


@register_pass("flatten", "graph operators into the pipeline, labels kept", typed=True)
def flatten(module: Module, options: NoOptions, report: Report) -> Module:
    """Inline all graph operators into the pipelines of `module`; a module without pipelines is a library and stays."""
    operators = {o.name: o for o in module.operators}
    if not module.pipelines or not any(o.graph for o in module.operators):
        return module
    with deep():
        done = {p.name: _Flattener(p, operators, report).pipeline() for p in module.pipelines}
    items = tuple(done[i.name] if isinstance(i, Pipeline) else i for i in module.items if not (isinstance(i, Operator) and i.graph is not None))
    return replace(module, items=items)


@dataclass(slots=True)
class _Frame:
    """One graph that is being laid out: its remaining nodes, and what its names mean in the pipeline."""

    nodes: Iterator[Node | Alias]
    call: Node
    """The node that is replaced, in terms of the pipeline."""
    edges: dict[str, Edge]
    names: Mapping[str, Expr]
    """Dimensions and attributes of the graph operator, in names of the pipeline."""
    sinks: tuple[str, ...]
    """Edges inside that nothing inside reads, first results of nodes."""
    operands: frozenset[str]
    last: int
    """Index of the last node that is no alias."""
    inside: set[str] = field(default_factory=set)
    """Edges made by nodes of this graph (through aliases too)."""
    count: int = 0
    waited: bool = False


class _Flattener:
    """Lays out one pipeline. Graphs within graphs are a stack of frames, not recursion."""

    def __init__(self, pipeline: Pipeline, operators: Mapping[str, Operator], report: Report) -> None:
        self.of, self.operators, self.report = pipeline, operators, report
        self.out: list[Node | Alias] = []
        self.types: dict[str, TensorType] = {i.name: i.type for i in pipeline.inputs}
        self.edges = {e.name for n in pipeline.nodes for e in (n.results if isinstance(n, Node) else (n.name,))} | set(self.types)
        self.labels = {n.label for n in pipeline.nodes if isinstance(n, Node) and n.label is not None}
        self.ends: dict[str, tuple[str, ...]] = {}
        """What stands for `after %e` where %e was made by a graph: the edges that are made last in it."""

    def pipeline(self) -> Pipeline:
        """The pipeline without graph operators; the same object if it had none."""
        if not any(isinstance(n, Node) and self.operators[n.op].graph is not None for n in self.of.nodes):
            return self.of
        stack: list[_Frame] = []
        for item in self.of.nodes:
            self._item(item, stack)
            while stack:
                inner = next(stack[-1].nodes, None)
                if inner is None:
                    self._close(stack.pop())
                else:
                    self._item(self._mapped(inner, stack[-1]), stack)
                if len(self.out) > LIMIT:
                    self.report.error("unsupported", item.span, f"this pipeline has more than {LIMIT:,} nodes once its graphs are laid out",
                                      [Note("at this node", item.span)])
                    return self.of
        return replace(self.of, nodes=tuple(self.out))

    def _item(self, item: Node | Alias, stack: list[_Frame]) -> None:
        """Put out one item in terms of the pipeline, or open the graph that it calls."""
        if isinstance(item, Alias):
            self.out.append(item)
            self.types[item.name.name] = self.types[item.of.name]
            if item.of.name in self.ends:
                self.ends[item.name.name] = self.ends[item.of.name]
            return
        operator = self.operators[item.op]
        if len(item.types) != len(item.results):
            internal_error(f"the node of '@{item.op}' has no types")
        self.types.update(zip((e.name for e in item.results), item.types, strict=True))
        item = self._after(item)
        if operator.graph is None:
            self.out.append(item)
            return
        if any(f.call.op == item.op for f in stack):
            internal_error(f"the graph operator '@{item.op}' calls itself")
        stack.append(self._open(item, operator, operator.graph))

    def _after(self, node: Node) -> Node:
        """`after` names edges of laid out graphs by all edges that end them."""
        if not any(e.name in self.ends for e in node.after):
            return node
        names = {end: Edge(end, span=edge.span) for edge in node.after for end in self.ends.get(edge.name, (edge.name,))}
        return replace(node, after=tuple(names.values()))

    # ------------------------------------------------------------------------------------------------------------- one graph

    def _open(self, call: Node, operator: Operator, graph: Graph) -> _Frame:
        arguments = [a for a in call.args if isinstance(a, Edge)]
        if len(arguments) != len(operator.operands):
            internal_error(f"the node of '@{call.op}' has a pack or the wrong number of arguments")
        edges = {o.name: a for o, a in zip(operator.operands, arguments, strict=True)}
        edges |= {r.name: e for r, e in zip(operator.results, call.results, strict=True)}
        names = bind_symbols(operator, [self.types[a.name] for a in arguments]) | self._attributes(call, operator)
        nodes = graph.nodes
        real = [i for i, n in enumerate(nodes) if isinstance(n, Node)]
        return _Frame(iter(nodes), call, edges, names, _sinks(nodes), frozenset(o.name for o in operator.operands), real[-1] if real else -1)

    def _attributes(self, call: Node, operator: Operator) -> dict[str, Expr]:
        given = {s.key: s.value for s in call.attrs}
        out: dict[str, Expr] = {}
        for attribute in operator.attributes:
            value = given.get(attribute.name, attribute.default)
            if not isinstance(value, Expr):
                internal_error(f"the attribute '{attribute.name}' of '@{call.op}' has no value")
            out[attribute.name] = self._as(value, attribute.type)
        return out

    def _as(self, value: Expr, wanted: str) -> Expr:
        """The value as an attribute of type `wanted` would hold it."""
        if wanted in ("dim", "bool"):
            return value
        if isinstance(value, Cast) and value.to == wanted:
            return replace(value, implicit=False) if value.implicit else value
        own = {a.name: a.type for a in self.of.attributes}
        if isinstance(value, Name) and own.get(value.name) == wanted:
            return value
        return Cast(wanted, value, span=value.span, dtype=DTYPES[wanted].compute)

    def _mapped(self, item: Node | Alias, frame: _Frame) -> Node | Alias:
        """An item of a graph in terms of the pipeline."""
        here, frame.count = frame.count, frame.count + 1
        if isinstance(item, Alias):
            if item.of.name in frame.inside:
                frame.inside.add(item.name.name)
            return Alias(self._edge(item.name, frame), _at(frame.edges[item.of.name], item.of), span=item.span)
        args = tuple(self._argument(a, frame) for a in item.args)
        root = not any(e.name in frame.inside for a in item.args for e in _edges(a)) and not any(e.name in frame.inside for e in item.after)
        frame.inside |= {e.name for e in item.results}
        results = tuple(self._edge(e, frame) for e in item.results)
        after = tuple(_at(frame.edges[e.name], e) for e in item.after) + (frame.call.after if root else ())
        return replace(
            item, results=results, args=args, after=tuple({e.name: e for e in after}.values()),
            attrs=tuple(_substituted(s, frame.names) for s in item.attrs), device=item.device or frame.call.device,
            label=self._label(item, frame), plan=self._plan(item, here, frame), reason=item.reason or frame.call.reason, loc=item.loc or item.span,
            types=tuple(self.types.get(e.name) or _type(t, frame.names) for e, t in zip(results, item.types, strict=True)))

    def _argument(self, argument: Edge | Pack, frame: _Frame) -> Edge | Pack:
        if isinstance(argument, Pack):
            return replace(argument, items=tuple(_at(frame.edges[e.name], e) for e in argument.items))
        return _at(frame.edges[argument.name], argument)

    def _edge(self, edge: Edge, frame: _Frame) -> Edge:
        """The edge of the pipeline for one that the graph makes: a result of the call, or a new one."""
        if edge.name not in frame.edges:
            name = _unused(f"{frame.call.results[0].name}.{edge.name}", self.edges)
            self.edges.add(name)
            frame.edges[edge.name] = Edge(name, span=edge.span)
        return frame.edges[edge.name]

    def _label(self, node: Node, frame: _Frame) -> str | None:
        outer = frame.call.label
        if outer is None and node.label is None:
            return None
        label = node.label or node.results[0].name
        if outer is not None:
            label = f"{outer}.{label}"
        elif label in self.labels:
            label = f"{frame.call.results[0].name}.{label}"
        label = _unused(label, self.labels)
        self.labels.add(label)
        return label

    def _plan(self, node: Node, here: int, frame: _Frame) -> Section | None:
        """The node's own plan, completed by what the call's plan says of the whole."""
        whole = frame.call.plan
        if whole is None:
            return node.plan
        own = {e.key for e in node.plan.entries if isinstance(e, Setting)} if node.plan else set()
        made = {self._edge(e, frame).name for e in node.results}
        first, frame.waited = not frame.waited, True
        kept = [e for e in whole.entries if (e.tensor in made if not isinstance(e, Setting) else e.key not in own and (
            e.key not in ("wait", "record") or (e.key == "wait" and first) or (e.key == "record" and here == frame.last)))]
        entries = (*(node.plan.entries if node.plan else ()), *kept)
        return Section("plan", entries, span=whole.span) if entries else None

    def _close(self, frame: _Frame) -> None:
        """Graphs inside have been closed before, so their ends are known."""
        inner = (frame.edges[s].name for s in frame.sinks)
        ends = tuple({end: None for edge in inner for end in self.ends.get(edge, (edge,))})
        for result in frame.call.results:
            self.ends[result.name] = ends



def _sinks(nodes: Sequence[Node | Alias]) -> tuple[str, ...]:
    """First results of the nodes none of whose results another node of the graph reads or waits for."""
    alias = {n.name.name: n.of.name for n in nodes if isinstance(n, Alias)}
    read: set[str] = set()
    for node in nodes:
        if isinstance(node, Node):
            read |= {_origin(e.name, alias) for a in (*node.args, *node.after) for e in _edges(a)}
    return tuple(n.results[0].name for n in nodes if isinstance(n, Node) and not any(e.name in read for e in n.results))


def _origin(name: str, alias: Mapping[str, str]) -> str:
    while name in alias:
        name = alias[name]
    return name


def _edges(argument: Edge | Pack) -> tuple[Edge, ...]:
    return argument.items if isinstance(argument, Pack) else (argument,)


def _at(edge: Edge, place: Edge) -> Edge:
    """The edge with the span of the text that names it."""
    return Edge(edge.name, span=place.span)


def _unused(name: str, used: set[str]) -> str:
    """`name`, or with the first number that makes it new."""
    if name not in used:
        return name
    number = 2
    while f"{name}.{number}" in used:
        number += 1
    return f"{name}.{number}"


def _type(t: TensorType, names: Mapping[str, Expr]) -> TensorType:
    return replace(t, dims=tuple(normal(substitute(d, names)) if not isinstance(d, Name | IntLit) else substitute(d, names) for d in t.dims))


def _substituted(setting: Setting, names: Mapping[str, Expr]) -> Setting:
    value = _value(setting.value, names)
    return setting if value is setting.value else replace(setting, value=value)


def _value(value: Value, names: Mapping[str, Expr]) -> Value:
    if isinstance(value, Text):
        return value
    if isinstance(value, Items):
        return replace(value, items=tuple(_value(i, names) for i in value.items))
    return substitute(value, names)
