"""A device for each node. For now there is one: that of the target.

Before:  pipeline @p(…) on cuda:0 {                     After:  pipeline @p(…) on cuda:0 {
           %a = @f(%x) on cuda:0                                  %a = @f(%x)
           %y = @g(%a) on cuda:1                                  %y = @g(%a) reason = "fallback: asked for cuda:1, runs on cuda:0: …"

`on` of a node, of the node of a graph that it stands in, or of the pipeline says where it belongs, a number, `cpu` or a declared target; a device map puts
other devices in their place. What the target has is where it belongs. What it has not runs on the target's device all the same, which is the same result
elsewhere: so it is listed in the ledger, and `--deny fallback` makes it an error. The word of a pipeline stays, with the map applied: the ledger compares it
with the target. No copies are inserted, since with one device no edge leads to another.

A place in an arena of another device than the target's is dropped from a plan, with a warning: the plan was made for another command.

Requires: names resolved.
Keeps: nodes, edges, plans for this device.
Adds: `reason` on nodes that run elsewhere; takes `on` from nodes.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pipelink_ir.ir.diagnostics import Report, did_you_mean
from pipelink_ir.ir.nodes import Alias, Device, Module, Node, Operator, Pipeline, Scoped, Section, Text
from pipelink_ir.ir.source import NOWHERE
from pipelink_ir.ir.targets import Arch
from pipelink_ir.passes.devices import declared_archs, device_of, device_text, folded, has, mapped, parse_map
from pipelink_ir.passes.manager import register_pass


@dataclass(frozen=True, slots=True)
class Options:
    """What there is to run on."""

    target: str = ""
    """The target, `cpu`, `cuda:1`, `sm_90`; without one the device of the pipeline, or the first that a node asks for."""
    map: tuple[str, ...] = ()
    """Which device stands for which, `[cuda:1=cuda:0]`. One that nothing asks for is told of."""
    project_map: tuple[str, ...] = ()
    """The same where `map` is empty, for several programs: not all of them ask for all devices."""


@register_pass("place-devices", "a device for each node, one for all so far", Options)
def place_devices(module: Module, options: Options, report: Report) -> Module:
    """Place every node; see the page above."""
    graphs = {o.name: o for o in module.operators if o.graph is not None}
    items = []
    asked: dict[str, None] = {}
    for item in module.items:
        if isinstance(item, Pipeline):
            item = _Placement(_target(item, options, graphs), module, options, report, asked).pipeline(item)
        elif isinstance(item, Operator) and item.graph is not None:
            target = options.target or next((t for p in module.pipelines if (t := _target(p, options, graphs))), "")
            nodes = _Placement(target, module, options, report, asked).nodes(item.graph.nodes)
            item = item if nodes is item.graph.nodes else replace(item, graph=replace(item.graph, nodes=nodes))
        items.append(item)
    _check_map(module, options, tuple(asked), report)
    return module if all(a is b for a, b in zip(items, module.items, strict=True)) else replace(module, items=tuple(items))


def _check_map(module: Module, options: Options, asked: tuple[str, ...], report: Report) -> None:
    """A word for each entry of the map that changes nothing: its device is misspelled, or the program is another one."""
    pipeline = next(iter(module.pipelines), None)
    for device in parse_map(options.map) if pipeline is not None else ():
        if device not in asked and pipeline is not None:
            span = pipeline.device.span if pipeline.device is not None else pipeline.name_span if pipeline.name_span is not NOWHERE else pipeline.span
            there = f"this program asks for {', '.join(asked)}" if asked else "no node of this program asks for a device"
            report.warning("device", span, f"the device map has an entry for {device}, which nothing asks for", (), did_you_mean(device, asked) or there)


def _target(p: Pipeline, options: Options, graphs: Mapping[str, Operator]) -> str:
    """The target of a pipeline: the command's, else what the pipeline itself says."""
    if options.target:
        return options.target
    if p.device is not None:
        return device_text(p.device)
    todo = [n for n in reversed(p.nodes) if isinstance(n, Node)]
    seen: set[str] = set()
    while todo:
        n = todo.pop()
        if n.device is not None:
            return device_text(n.device)
        graph = graphs[n.op].graph if n.op in graphs and n.op not in seen else None
        if graph is not None:
            seen.add(n.op)
            todo += [m for m in reversed(graph.nodes) if isinstance(m, Node)]
    return ""


@dataclass(slots=True)
class _Placement:
    target: str
    module: Module
    options: Options
    report: Report
    asked: dict[str, None]
    """Filled with the devices that the program asks for."""
    archs: dict[str, Arch] = field(default_factory=dict)
    map: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.archs, self.map = declared_archs(self.module), parse_map(self.options.map or self.options.project_map)

    def pipeline(self, p: Pipeline) -> Pipeline:
        nodes = self.nodes(p.nodes)
        device = self._mapped(p.device) if p.device is not None else None
        return p if nodes is p.nodes and device is p.device else replace(p, nodes=nodes, device=device)

    def nodes(self, nodes: tuple[Node | Alias, ...]) -> tuple[Node | Alias, ...]:
        """The nodes of a pipeline or graph, the same tuple if there was nothing to do."""
        if not self.target:
            return nodes
        out = tuple(self._node(n) if isinstance(n, Node) else n for n in nodes)
        return nodes if all(a is b for a, b in zip(out, nodes, strict=True)) else out

    def _node(self, n: Node) -> Node:
        plan = self._plan(n)
        if n.device is None:
            return n if plan is n.plan else replace(n, plan=plan)
        device = self._mapped(n.device)
        here = device_text(device) == self.target or has(self.target, device, self.archs)
        return replace(n, device=None, plan=plan, reason=n.reason if here else _joined(f"fallback: {folded(n.device, self.target)}", n.reason))

    def _mapped(self, asked: Device) -> Device:
        """The device that stands for one; a target that a map names is declared, as one that a node names."""
        self.asked[device_text(asked)] = None
        device, declared = mapped(asked, self.map), [t.name for t in self.module.targets]
        if device is not asked and device.kind == "target" and device.name not in declared:
            message = f"the device map puts {device_text(device)} in the place of {device_text(asked)}, and no such target is declared"
            help = did_you_mean(device.name or "", declared, "@") or f"declare it: target {device_text(device)} {{ arch = sm_90 }}"
            self.report.error("device", asked.span, message, (), help)
        return device

    def _plan(self, n: Node) -> Section | None:
        """The plan of a node without places on other devices."""
        if n.plan is None or not self.options.target:
            return n.plan
        wanted = device_of(self.target)
        kept = tuple(e for e in n.plan.entries if not isinstance(e, Scoped) or _arena(e) in (None, wanted))
        if len(kept) == len(n.plan.entries):
            return n.plan
        away = next(e for e in n.plan.entries if e not in kept and isinstance(e, Scoped))
        self.report.warning("device", away.span if away.span is not NOWHERE else n.span,
                            f"'%{away.tensor}' has a place on {_arena(away)}, but the target '{self.target}' runs on {wanted}: the place is dropped")
        return replace(n.plan, entries=kept) if kept else None


def _arena(e: Scoped) -> str | None:
    return next((s.value.value for s in e.settings if s.key == "arena" and isinstance(s.value, Text)), None)


def _joined(reason: str, more: str | None) -> str:
    return f"{reason}; {more}" if more else reason
