"""Contracts along every edge, and against every target.

Before and after are the same module: this pass only reports. For each pipeline it follows the edges in dependency order, through graph operators too,
and compares what a producer promises with what a consumer asks for: alignment, contiguity, devices, range, colour, finiteness. For each target (those
that the program declares, or `--target`) every operator must be buildable, or have a downgrade clause for exactly that target.

Requires: types inferred, nodes in dependency order.
Keeps: everything.
Adds: nothing.
"""
from __future__ import annotations

from dataclasses import dataclass, field, replace

from pipelink_ir.ir import contracts
from pipelink_ir.ir.diagnostics import Note, Report
from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.nodes import Alias, Device, Edge, Module, Node, Operator, Pipeline, Setting, Target
from pipelink_ir.ir.source import Span
from pipelink_ir.ir.targets import CALLED, Arch, arch_help, lacks, parse_arch, requirements
from pipelink_ir.passes.contracts.edges import EdgeCheck, Fact, declared_range, device_name, promises_of
from pipelink_ir.passes.contracts.paths import NO_PATHS, Paths, inside, leads
from pipelink_ir.passes.contracts.plan import check_events
from pipelink_ir.passes.contracts.ranges import UNKNOWN, Interval, of_dtype, result_ranges
from pipelink_ir.passes.contracts.unreached import check_unreached
from pipelink_ir.passes.infer.operator import typed_operator
from pipelink_ir.passes.infer.text import written
from pipelink_ir.passes.manager import register_pass
from pipelink_ir.passes.scopes import consumed


@dataclass(frozen=True, slots=True)
class Options:
    """What the program is checked for."""

    targets: tuple[str, ...] = ()
    """Architectures that replace those that the program declares."""


@register_pass("check-contracts", "memory, execution, semantic and compile contracts, along edges and for targets", Options, typed=True)
def check_contracts(module: Module, options: Options, report: Report) -> Module:
    """Check all contracts; see the page above."""
    _Check(module, options, report).run()
    return module


@dataclass(frozen=True, slots=True)
class _Build:
    """One architecture that the program must build for, and the line that says so."""

    arch: Arch
    declared: Target | None


@dataclass(slots=True)
class _Check:
    module: Module
    options: Options
    report: Report
    operators: dict[str, Operator] = field(default_factory=dict)
    builds: list[_Build] = field(default_factory=list)
    graphs: dict[tuple[object, ...], tuple[Fact, ...]] = field(default_factory=dict)
    ranges: dict[tuple[object, ...], dict[str, Interval]] = field(default_factory=dict)
    built: set[tuple[str, Arch]] = field(default_factory=set)

    def run(self) -> None:
        self.operators = {o.name: o for o in self.module.operators}
        self._targets()
        for p in self.module.pipelines:
            self._pipeline(p)
        check_unreached(self.module, [b.arch for b in self.builds], not self.options.targets, self.report)
        if not self.module.pipelines:
            # A file of operators alone: each of them has to be there for every target. Beside a pipeline only those count that it uses.
            for op in self.module.operators:
                for b in self.builds:
                    self._build(op, b, None)

    def _targets(self) -> None:
        for t in self.module.targets:
            arch = self._arch(t)
            if arch is not None and not self.options.targets:
                self.builds.append(_Build(arch, t))
        for name in self.options.targets:
            arch = parse_arch(name)
            if arch is not None:
                self.builds.append(_Build(arch, None))

    def _arch(self, t: Target) -> Arch | None:
        found = next((s for s in t.settings if s.key == "arch"), None)
        for s in t.settings:
            if s.key != "arch":
                self.report.error("target", s.key_span, f"a target has no key '{s.key}'", (), f"write 'target @{t.name} {{ arch = … }}'")
        if found is None:
            if not t.settings:
                self.report.error("target", t.name_span, f"the target '@{t.name}' does not say its 'arch'", (),
                                  f"write 'target @{t.name} {{ arch = sm_90 }}'")
            return None
        name = contracts.describe(found.value).strip('"')
        arch = parse_arch(name)
        if arch is None:
            self.report.error("target", found.span, f"'{name}' is no architecture that can be compiled for", (), arch_help(name))
        return arch

    # --------------------------------------------------------------------------------------------------------- scopes

    def _pipeline(self, p: Pipeline) -> None:
        facts = {o.name: Fact(o.name, o.span, None, range=of_dtype(DTYPES[o.type.dtype]) if o.type.dtype in DTYPES else UNKNOWN) for o in p.inputs}
        self._device(p.device)
        self._nodes(p.nodes, facts, p.device)
        check_events(p.nodes, self.report)

    def _nodes(self, nodes: tuple[Node | Alias, ...], facts: dict[str, Fact], device: Device | None, paths: Paths = NO_PATHS) -> None:
        for n in nodes:
            if isinstance(n, Alias):
                facts[n.name.name] = replace(facts[n.of.name], name=n.name.name)
                continue
            op = self.operators[n.op]
            where = n.device or device
            self._device(n.device)
            edges = tuple(consumed(n))
            args = [facts[e.name] for e in edges]
            for operand, fact, e in zip(op.operands, args, edges, strict=True):
                EdgeCheck(op, operand.name, fact, e.span, where, self.report).run()
            self._buildable(op, n, where, paths)
            for e, fact in zip(n.results, self._results(op, args, edges, where, inside(op, n, paths)), strict=True):
                facts[e.name] = replace(fact, name=e.name, made=e.span, entered=())

    def _results(self, op: Operator, args: list[Fact], edges: tuple[Edge, ...], device: Device | None, paths: Paths) -> tuple[Fact, ...]:
        given = {o.name: declared_range(_scoped(op, o.name)) or f.range for o, f in zip(op.operands, args, strict=True)}
        if op.graph is not None:
            key = (op.name, tuple(given.values()), tuple((f.device, f.maker is None, *sorted((k, s.span.start) for k, s in f.promises.items())) for f in args),
                   device, paths)
            inner = self.graphs.get(key)
            if inner is None:
                facts = {o.name: replace(f, range=given[o.name], entered=(*f.entered, (e.span, op.name)))
                         for o, f, e in zip(op.operands, args, edges, strict=True)}
                self._nodes(op.graph.nodes, facts, device, paths)
                inner = self.graphs[key] = tuple(facts[r.name] for r in op.results)
            return tuple(self._own(op, r.name, f) for r, f in zip(op.results, inner, strict=True))
        call = (op.name, tuple(given.values()))
        ranges = self.ranges.get(call)
        if ranges is None:
            ranges = self.ranges[call] = result_ranges(typed_operator(op), given) if op.compute is not None else {}
        return tuple(self._own(op, r.name, Fact(r.name, r.span, op, range=ranges.get(r.name, UNKNOWN), device=device)) for r in op.results)

    @staticmethod
    def _own(op: Operator, result: str, fact: Fact) -> Fact:
        """A fact with the operator's own promises, which go before those of what it is made of."""
        promises = {**fact.promises, **promises_of(op, result)}
        declared = declared_range(promises.get("range"))
        tightest = fact.range if declared is None or fact.range.within(declared) else declared
        return replace(fact, maker=op, promises=promises, range=tightest)

    # -------------------------------------------------------------------------------------------------------- targets

    def _device(self, d: Device | None) -> None:
        """A device of a node has to be there on some target that the program declares; a target of the command line takes all nodes in."""
        if d is None or d.kind != "cuda" or self.options.targets or not self.builds or any(b.arch.kind == "cuda" for b in self.builds):
            return
        if any(s.severity == "error" and s.field == "target" for s in self.report.diagnostics):
            return
        self.report.error("device", d.span, f"no target of this program has {device_name(d)}",
                          [Note("a target", b.declared.span) for b in self.builds if b.declared is not None],
                          "place the node on 'cpu', or declare a target with a CUDA architecture")

    def _placed(self, b: _Build, device: Device | None) -> bool:
        """Whether a node with this device is built for a target: one on the CPU is not built for a GPU, one on a target for that alone."""
        if device is None or self.options.targets:
            return True
        if device.kind == "target":
            return b.declared is not None and b.declared.name == device.name
        return (b.arch.kind == "cuda") == (device.kind == "cuda")

    def _buildable(self, op: Operator, n: Node, device: Device | None, paths: Paths) -> None:
        """Whether every target can have this operator, by itself or through a downgrade clause, its own or that of a graph around."""
        for b in self.builds:
            if (op.name, b.arch) in self.built or not self._placed(b, device) or leads(paths, b.arch, n):
                continue
            self.built.add((op.name, b.arch))
            self._build(op, b, n.op_span)

    def _build(self, op: Operator, b: _Build, use: Span | None) -> None:
        """Report why a target cannot have an operator: where it is used, or where it says so if nobody uses it."""
        name = f"'@{written(op.name)}'"
        notes = [Note(f"the target '@{b.declared.name}'", b.declared.span)] if b.declared is not None else []
        policy = next((d for d in op.downgrades if parse_arch(d.target) == b.arch), None)
        if policy is not None:
            if policy.settings is None:
                self.report.error("downgrade", use or policy.span, f"{name} is unsupported on {b.arch}", [Note("it says so here", policy.span), *notes],
                                  f"drop the target, or say what to do there instead: 'downgrade {b.arch} {{ … }}'")
            return
        if b.arch.kind != "cuda" and op.compute is None and op.graph is None and op.kernel is not None:
            self.report.error("arch", use or op.kernel.span, f"{name} is a CUDA kernel alone, but is built for {b.arch}",
                              [Note("the kernel", op.kernel.span), *notes], f"add a 'compute' that says what it means to {name}, or drop the target")
            return
        found = contracts.setting(op, "compile", "arch")
        needs = requirements(found.setting.value) if found is not None else None
        if found is not None and needs is not None and not any(r.admits(b.arch) for r in needs):
            wanted = contracts.describe(found.setting.value).strip('"')
            self.report.error("arch", use or found.setting.span, f"{name} needs {wanted}, but is built for {b.arch}",
                              [Note("it asks for it here", found.setting.span), *notes],
                              f"add 'downgrade {b.arch} {{ dtype = … }}' to {name}, or drop the target")
            return
        listed = contracts.setting(op, "compile", "library")
        names = contracts.words(listed.setting.value) if listed is not None else []
        missing = [m for m in (lacks(b.arch, w) for w in names) if m is not None]
        if listed is not None and b.arch.kind == "cuda" and names and len(missing) == len(names):
            self.report.error("library", use or listed.setting.span, f"{name} runs on {', '.join(names)} alone, but is built for {b.arch}: {missing[0]}",
                              [Note("its libraries", listed.setting.span), *notes], "add 'generated' to the list, the compiler's own code, or drop the target")
        elif listed is not None and b.arch.kind == "cuda" and names and not {"generated", *CALLED} & set(names):
            self.report.error("library", use or listed.setting.span,
                              f"{name} runs on {', '.join(names)} alone, and this version calls {' and '.join(CALLED)} alone",
                              [Note("its libraries", listed.setting.span), *notes], "add 'generated' to the list, the compiler's own code")


def _scoped(op: Operator, operand: str) -> Setting | None:
    found = contracts.setting(op, "semantic", "range", operand)
    return found.setting if found is not None and found.scoped else None
