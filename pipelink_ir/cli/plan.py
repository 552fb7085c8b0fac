"""A pipeline as data: `--emit plan` (JSON for tools) and `--emit dot` (a drawing for Graphviz)."""
from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pipelink_ir.ir.nodes import Alias, Device, Edge, Module, Node, Operand, Pack, Pipeline, Scoped, Section, TensorType, Value


def _pipeline(module: Module, name: str) -> Pipeline:
    return next(p for p in module.pipelines if p.name == name)


def _type(type: TensorType) -> str:
    from pipelink_ir.grammar.printer import print_type
    return print_type(type)


def _value(value: Value) -> str:
    from pipelink_ir.grammar.printer import print_expr
    return print_expr(value)


def json_text(module: Module, name: str) -> str:
    """The nodes of a pipeline in order, with types, devices and plans."""
    p = _pipeline(module, name)
    out = {"pipeline": p.name, "device": _device(p.device), "inputs": _operands(p.inputs), "results": _operands(p.results),
           "nodes": [_node(n) for n in p.nodes], **_memory(p)}
    return json.dumps(out, indent=2, ensure_ascii=False) + "\n"


def _memory(p: Pipeline) -> dict[str, Any]:
    """The arenas with their peak and its lower bound, and who lies where; sizes that the call decides are expressions."""
    from pipelink_ir.passes.aliasing.report import described, planned, planned_at_all
    if not planned_at_all(p):
        return {}
    found = planned(p)
    if found is None:
        from pipelink_ir.passes.aliasing.layout import Layout
        layout = Layout.of(p)
        return {"memory": {"buffers": [{"name": described(layout, r), "arena": r.arena, **({"bytes": _value(r.bytes)} if r.bytes is not None else {})}
                                       for r in layout.in_arena]}}
    bounds, shared = found.bounds(), found.shared()
    arenas = [{"name": a, "peak": peak, "lower_bound": bounds[a].bytes, "exact": bounds[a].exact} for a, peak in found.arenas.items()]
    buffers = [{"name": s.name, "arena": s.arena, "offset": s.offset, "bytes": s.life.size, **({"shares": shared[s.name]} if shared[s.name] else {})}
               for s in found.stretches]
    return {"memory": {"arenas": arenas, "buffers": buffers}}


def _operands(operands: Sequence[Operand]) -> list[dict[str, Any]]:
    return [{"name": o.name, "type": _type(o.type), **({"param": True} if o.param else {})} for o in operands]


def _device(device: Device | None) -> str | None:
    if device is None:
        return None
    return f"@{device.name}" if device.kind == "target" else f"cuda:{device.index}" if device.kind == "cuda" else device.kind


def _argument(arg: Edge | Pack) -> Any:
    return arg.name if isinstance(arg, Edge) else {"along": arg.along, "items": [i.name for i in arg.items]}


def _node(node: Node | Alias) -> dict[str, Any]:
    if isinstance(node, Alias):
        return {"alias": node.name.name, "of": node.of.name}
    out: dict[str, Any] = {"op": node.op, "args": [_argument(a) for a in node.args],
                           "results": [{"name": r.name, **({"type": _type(t)} if t else {})} for r, t in zip(node.results, _types(node), strict=True)]}
    more = {"attributes": {s.key: _value(s.value) for s in node.attrs}, "device": _device(node.device), "label": node.label,
            "after": [e.name for e in node.after], "plan": _section(node.plan), "reason": node.reason}
    return out | {k: v for k, v in more.items() if v}


def _types(node: Node) -> Sequence[TensorType | None]:
    return node.types if len(node.types) == len(node.results) else (None,) * len(node.results)


def _section(section: Section | None) -> dict[str, Any]:
    def entry(e: Any) -> tuple[str, Any]:
        return (f"%{e.tensor}", {s.key: _value(s.value) for s in e.settings}) if isinstance(e, Scoped) else (e.key, _value(e.value))
    return dict(map(entry, section.entries)) if section else {}


def dot(module: Module, name: str) -> str:
    """The graph of a pipeline: boxes are nodes, ellipses inputs and results."""
    p = _pipeline(module, name)
    source = {o.name: f"in {o.name}" for o in p.inputs}
    lines = [f"digraph {_quote(p.name)} {{", "  node [shape=box];"]
    lines += [f"  {_quote(f'in {o.name}')} [shape=ellipse, label={_quote(f'%{o.name}: {_type(o.type)}')}];" for o in p.inputs]
    edges: list[tuple[str, str, str]] = []
    for i, node in enumerate(p.nodes):
        if isinstance(node, Alias):
            continue
        source.update({r.name: f"node {i}" for r in node.results})
        label = f"@{node.op}" + (f" as {node.label}" if node.label else "") + (f"\n{_device(node.device)}" if node.device else "")
        lines.append(f"  {_quote(f'node {i}')} [label={_quote(label)}];")
        used = [e for a in node.args for e in ((a,) if isinstance(a, Edge) else a.items)]
        edges += [(e.name, f"node {i}", "") for e in used] + [(e.name, f"node {i}", " style=dashed") for e in node.after]
    aliases = {n.name.name: n.of.name for n in p.nodes if isinstance(n, Alias)}
    for o in p.results:
        lines.append(f"  {_quote(f'out {o.name}')} [shape=ellipse, label={_quote(f'%{o.name}: {_type(o.type)}')}];")
        edges.append((o.name, f"out {o.name}", ""))
    for edge, to, style in edges:
        name, seen = edge, set[str]()
        while name not in source and name in aliases and name not in seen:  # an unchecked program may name in circles
            seen.add(name)
            name = aliases[name]
        lines.append(f"  {_quote(source.get(name, name))} -> {_quote(to)} [label={_quote('%' + edge)}{style}];")
    return "\n".join([*lines, "}"]) + "\n"


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
