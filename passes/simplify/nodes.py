"""Simplification of one pipeline: second names, equal nodes, casts that do nothing, nodes whose results nobody needs."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pipelink_ir.ir.dtypes import DTYPES, DType
from pipelink_ir.ir.nodes import Alias, Cast, Define, Device, Edge, Expr, FloatLit, IntLit, Items, Let, Name, Node, Operator, Pack, Pipeline, Read, Setting
from pipelink_ir.passes.simplify.expressions import shorter

_FORMATS = {"f64": (53, -1074, 1024), "f32": (24, -149, 128), "bf16": (8, -133, 128), "f16": (11, -24, 16), "f8e5m2": (3, -16, 16), "f8e4m3": (4, -9, 9)}
"""Of each float: significand digits, exponent of the smallest positive number, exponent that no number reaches."""


def simplify_pipeline(pipeline: Pipeline, operators: Mapping[str, Operator]) -> Pipeline:
    """`pipeline` with fewer nodes and the same results; the same object where there is nothing to do."""
    merged = _Merger(pipeline, operators).nodes()
    nodes = _live(pipeline, merged)
    same = len(nodes) == len(pipeline.nodes) and all(a is b for a, b in zip(nodes, pipeline.nodes, strict=True))
    return pipeline if same else replace(pipeline, nodes=nodes)


@dataclass(slots=True)
class _Merger:
    """One walk over the nodes, which stand in the order of their dependencies."""

    of: Pipeline
    operators: Mapping[str, Operator]
    stands_for: dict[str, str] = field(default_factory=dict)
    """Edge -> the edge that has its values. Only edges that are dropped or second names have an entry."""
    made: dict[str, int] = field(default_factory=dict)
    """Edge -> position of the node that makes it."""
    out: list[Node | Alias] = field(default_factory=list)
    known: dict[Any, int] = field(default_factory=dict)

    def nodes(self) -> tuple[Node | Alias, ...]:
        results = {r.name for r in self.of.results}
        for item in self.of.nodes:
            if isinstance(item, Alias):
                self._second_name(item.name, item.of, results, item)
                continue
            node = _settled(self._mapped(item), self.operators[item.op])
            through = self._through(node)
            if through is not None and (through.name in self.made or node.results[0].name not in results):
                self._second_name(node.results[0], through, results, None)
                continue  # (an input that is a result has to be copied in any case)
            key = _key(node)
            before = None if key is None else self.known.get(key)
            if before is not None:
                self._merge(node, before, results)
                continue
            if key is not None:
                self.known[key] = len(self.out)
            for edge in node.results:
                self.made[edge.name] = len(self.out)
            self.out.append(node)
        return tuple(self.out)

    def _merge(self, node: Node, before: int, results: set[str]) -> None:
        first = self.out[before]
        assert isinstance(first, Node)
        if first.label is None and node.label is not None:
            self.out[before] = first = replace(first, label=node.label)
        for edge, same in zip(node.results, first.results, strict=True):
            self._second_name(edge, same, results, None)

    def _second_name(self, name: Edge, of: Edge, results: set[str], item: Alias | None) -> None:
        """Everybody reads `of` instead; the name stays where it is a result."""
        origin = self._origin(of)
        self.stands_for[name.name] = origin.name
        if name.name in results:
            self.out.append(item if item is not None and origin.name == item.of.name else Alias(name, Edge(origin.name, span=of.span), span=name.span))

    def _origin(self, edge: Edge) -> Edge:
        name = self.stands_for.get(edge.name)
        return edge if name is None else Edge(name, span=edge.span)

    def _mapped(self, node: Node) -> Node:
        args = tuple(replace(a, items=tuple(map(self._origin, a.items))) if isinstance(a, Pack) else self._origin(a) for a in node.args)
        after = tuple({e.name: e for e in map(self._origin, node.after)}.values())
        return node if args == node.args and after == node.after else replace(node, args=args, after=after)

    # --------------------------------------------------------------------------------------------------------------- casts

    def _through(self, node: Node) -> Edge | None:
        """The edge that already has the values of a cast: its argument, or what its argument was cast from without loss."""
        coded = self._coded_before(node)
        if coded is not None:
            return coded
        cast = _cast(node, self.operators)
        if cast is None or not isinstance(node.args[0], Edge) or node.after or node.plan is not None or node.label is not None:
            return None
        source, to = node.args[0], cast[1]
        if not self._same_device(node, source):
            return None
        if cast[0] is to:
            return source
        before = self.out[self.made[source.name]] if source.name in self.made else None
        wide = _cast(before, self.operators) if isinstance(before, Node) else None
        if wide is None or not isinstance(before, Node) or not isinstance(before.args[0], Edge) or wide[0] is not to or not holds(to, wide[1]):
            return None
        return before.args[0] if self._same_device(node, before.args[0]) and self._same_device(before, before.args[0]) else None

    def _coded_before(self, node: Node) -> Edge | None:
        """The codes that a `@std.quantize` makes of what a `@std.dequantize` has made of them, by the same scale and zero point in f32: exactly those."""
        new = _codes(node, self.operators, "std.quantize")
        if new is None or not isinstance(node.args[0], Edge) or node.after or node.plan is not None or node.label is not None:
            return None
        source = node.args[0]
        before = self.out[self.made[source.name]] if source.name in self.made else None
        if not isinstance(before, Node) or not isinstance(before.args[0], Edge) or _codes(before, self.operators, "std.dequantize") != new:
            return None
        return before.args[0] if self._same_device(node, before.args[0]) and self._same_device(before, before.args[0]) else None

    def _same_device(self, node: Node, edge: Edge) -> bool:
        """A node on another device than its operand is a transfer too."""
        maker = self.out[self.made[edge.name]] if edge.name in self.made else None
        return _device(node.device or self.of.device) == _device((maker.device if isinstance(maker, Node) else None) or self.of.device)


def _device(device: Device | None) -> tuple[object, ...] | None:
    return None if device is None else (device.kind, device.index, device.name)


def _key(node: Node) -> Any:
    """Equal for nodes that compute equal values at the same place and under the same order. None: the node is left alone."""
    if node.plan is not None:
        return None
    attrs = tuple(sorted(((s.key, s.value) for s in node.attrs), key=lambda kv: kv[0]))
    return node.op, node.args, attrs, _device(node.device), frozenset(e.name for e in node.after)


def _settled(node: Node, op: Operator) -> Node:
    """The node with its dimension attributes in normal form."""
    if not node.attrs:
        return node
    dims = {a.name for a in op.attributes if a.type == "dim"}
    attrs = tuple(_normal(s) if s.key in dims else s for s in node.attrs)
    return node if all(a is b for a, b in zip(attrs, node.attrs, strict=True)) else replace(node, attrs=attrs)


def _normal(s: Setting) -> Setting:
    if not isinstance(s.value, Expr):
        return s
    value = shorter(s.value)
    return s if value is s.value else replace(s, value=value)


def _cast(node: Node | Alias | None, operators: Mapping[str, Operator]) -> tuple[DType, DType] | None:
    """(from, to) of a node of the built-in `@std.cast`, told by its body as well as by its name."""
    if not isinstance(node, Node) or not (node.op == "std.cast" or node.op.startswith("std.cast.")):
        return None
    op = operators[node.op]
    if len(op.operands) != 1 or len(op.results) != 1 or op.compute is None or len(op.compute.body) != 1 or node.attrs:
        return None
    item, x, y = op.compute.body[0], op.operands[0], op.results[0]
    if not isinstance(item, Define) or item.tensor != y.name:
        return None
    read, to = (item.value.arg, item.value.to) if isinstance(item.value, Cast) and not item.value.saturate else (item.value, x.type.dtype)
    indices = tuple(getattr(a, "index", None) for a in item.axes)
    if not isinstance(read, Read) or read.tensor != x.name or tuple(i.name if isinstance(i, Name) else "" for i in read.indices) != indices:
        return None
    if to != y.type.dtype or x.type.layout != y.type.layout:
        return None
    return DTYPES[x.type.dtype], DTYPES[y.type.dtype]


def _codes(node: Node, operators: Mapping[str, Operator], name: str) -> tuple[str, tuple[Expr, ...]] | None:
    """The dtype of the codes and the constants of a node of `@std.quantize` or `@std.dequantize` between bytes and f32, told by its body as well."""
    if not node.op.startswith(f"{name}."):
        return None
    op = operators[node.op]
    if len(op.operands) != 1 or op.attributes or op.compute is None:
        return None
    codes, values = (o.type.dtype for o in ((op.results[0], op.operands[0]) if name == "std.quantize" else (op.operands[0], op.results[0])))
    lets = {i.name: i.value for i in op.compute.body if isinstance(i, Let)}
    if values != "f32" or codes not in ("i8", "u8") or lets.keys() != {"scale", "zero"} or not all(isinstance(v, Cast) for v in lets.values()):
        return None
    scale = lets["scale"]
    number = scale.arg.value if isinstance(scale, Cast) and isinstance(scale.arg, IntLit | FloatLit) else 0
    # Between these no product or quotient with a code overflows or is subnormal.
    return (codes, (scale, lets["zero"])) if 1e-30 < number < 1e30 else None


def holds(narrow: DType, wide: DType) -> bool:
    """Whether every value of `narrow` is a value of `wide`, so that a cast there and back gives it again."""
    if narrow is wide or narrow.kind == "bool":
        return True
    if wide.kind == "bool" or (narrow.is_float and wide.is_int):
        return False
    if narrow.is_int and wide.is_int:
        return wide.lowest <= narrow.lowest and narrow.highest <= wide.highest
    if narrow.is_int:
        digits, _, beyond = _FORMATS[wide.name]
        bits = narrow.bits - 1 if narrow.signed else narrow.bits
        return bits <= digits and bits < beyond
    a, b = _FORMATS[narrow.name], _FORMATS[wide.name]
    infinite = narrow.name == "f8e4m3" or wide.name != "f8e4m3"
    return infinite and a[0] <= b[0] and a[1] >= b[1] and a[2] <= b[2]


# ------------------------------------------------------------------------------------------------------------------ dead nodes


def _live(pipeline: Pipeline, nodes: tuple[Node | Alias, ...]) -> tuple[Node | Alias, ...]:
    """The nodes that a result needs: by data, by `after`, or by an event that one of them waits for."""
    maker = {e.name: i for i, n in enumerate(nodes) for e in (n.results if isinstance(n, Node) else (n.name,))}
    records = {event: i for i, n in enumerate(nodes) if isinstance(n, Node) for event in _events(n, "record")}
    live: set[int] = set()
    todo = [maker[r.name] for r in pipeline.results if r.name in maker]
    while todo:
        i = todo.pop()
        if i in live:
            continue
        live.add(i)
        node = nodes[i]
        if isinstance(node, Alias):
            todo += [maker[node.of.name]] if node.of.name in maker else []
            continue
        edges = [e for a in node.args for e in (a.items if isinstance(a, Pack) else (a,))] + list(node.after)
        todo += [maker[e.name] for e in edges if e.name in maker]
        todo += [records[event] for event in _events(node, "wait") if event in records]
    return nodes if len(live) == len(nodes) else tuple(n for i, n in enumerate(nodes) if i in live)


def _events(node: Node, key: str) -> list[int]:
    """The numbers of the events that a plan records or waits for."""
    out: list[int] = []
    for entry in node.plan.entries if node.plan is not None else ():
        if isinstance(entry, Setting) and entry.key == key:
            values = entry.value.items if isinstance(entry.value, Items) else (entry.value,)
            out += [v.value for v in values if isinstance(v, IntLit)]
    return out
