"""An independent proof that no two conflicting accesses of a plan are unordered.

Before and after are the same module. From the final text alone, without asking the passes that wrote it, this works out what happens before what: a node
comes after the node before it on its stream, and after every node whose event it waits for. Then

- each node has one stream, an event is recorded by one node, and a node waits only for events of nodes that are launched before it (else it would wait for
  ever);
- a node comes after everything that makes what it reads, and after everything that its `after` names;
- memory is right (`proof/memory.py`): places lie inside their arena and are aligned, results take over bytes that nobody needs any more, parts of a join
  lie where it would put them, and two edges that overlap are never live together: everything that touches the one comes before the node that writes the other.

A plan that a user wrote and that fails is the user's error, with the nodes that are not ordered; one that a pass wrote is ours.

Requires: a pipeline in launch order whose nodes all have a stream, or none.
Keeps: everything.
Adds: nothing.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pipelink_ir.ir.diagnostics import Note, Report, internal_error
from pipelink_ir.ir.nodes import Alias, Edge, IntLit, Items, Module, Node, Operator, Pipeline, Setting
from pipelink_ir.ir.source import NOWHERE
from pipelink_ir.passes.manager import NoOptions, register_pass
from pipelink_ir.passes.proof.memory import MemoryProof, happens_before
from pipelink_ir.passes.proof.order import HappensBefore, Late, Twice


@register_pass("verify-plan", "a proof that no two conflicting accesses are unordered", NoOptions)
def verify_plan(module: Module, options: NoOptions, report: Report) -> Module:
    """Verify the plan of every pipeline; see the page above."""
    operators = {o.name: o for o in module.operators}
    for p in module.pipelines:
        _Proof(p, operators, report).run()
    return module


@dataclass(slots=True)
class _Proof:
    pipeline: Pipeline
    operators: Mapping[str, Operator]
    report: Report
    nodes: list[Node] = field(default_factory=list)
    order: HappensBefore = field(default_factory=HappensBefore)

    def run(self) -> None:
        self.nodes = [n for n in self.pipeline.nodes if isinstance(n, Node)]
        streams = [_numbers(n, "stream") for n in self.nodes]
        if not any(streams):
            self.order = happens_before(self.pipeline, self.nodes)
            self._memory()
            return
        for n, s in zip(self.nodes, streams, strict=True):
            if len(s) != 1:
                self._fail(n, f"'{_name(n)}' has {len(s)} streams, although others have one", [], "write 'plan { stream = 0 }', or none at all")
                return
        if self._order([s[0] for s in streams]):
            self._dependencies()
            self._memory()

    def _fail(self, n: Node, message: str, notes: list[Note], help: str) -> None:
        # A node without a plan stands among plans that somebody wrote, or a pass left it out.
        written = n.plan.span if n.plan is not None else n.span if any(m.plan is not None and m.plan.span is not NOWHERE for m in self.nodes) else NOWHERE
        if written is NOWHERE:
            internal_error(f"the plan of '@{self.pipeline.name}': {message}")
        self.report.error("dependency", written, message, notes, help)

    def _order(self, streams: list[int]) -> bool:
        """Happens-before from streams and events; False if the plan cannot run at all."""
        lanes = [(_device(n, self.pipeline), s) for n, s in zip(self.nodes, streams, strict=True)]
        found = HappensBefore.of(lanes, [_numbers(n, "wait") for n in self.nodes], [_numbers(n, "record") for n in self.nodes])
        if isinstance(found, Late):
            n = self.nodes[found.node]
            notes = [Note("recorded here", self.nodes[found.recorder].span)] if found.recorder is not None else []
            self._fail(n, f"'{_name(n)}' waits for event {found.event}, which " + ("is recorded only later" if notes else "nobody records"), notes,
                       f"record event {found.event} in a node that is launched before")
            return False
        if isinstance(found, Twice):
            self._fail(self.nodes[found.second], f"event {found.event} is recorded twice", [Note("first here", self.nodes[found.first].span)],
                       "give each event one node")
            return False
        self.order = found
        return True

    def _dependencies(self) -> None:
        made = {e.name: i for i, n in enumerate(self.nodes) for e in n.results}
        origin = _origins(self.pipeline)
        for i, n in enumerate(self.nodes):
            for e in (*_reads(n), *n.after):
                j = made.get(origin.get(e.name, e.name))
                if j is not None and not self.order.before(j, i):
                    self._fail(n, f"'{_name(n)}' may begin before '%{e.name}' is there: nothing orders stream {_numbers(n, 'stream')[0]} behind stream "
                               f"{_numbers(self.nodes[j], 'stream')[0]}", [Note(f"'%{e.name}' is made here", self.nodes[j].span)],
                               "record an event where it is made, and wait for it here")

    def _memory(self) -> None:
        """What plans say of edges."""
        for fault in MemoryProof(self.pipeline, self.nodes, self.order, self.operators).run():
            n = self.nodes[fault.node]
            if n.plan is None or n.plan.span is NOWHERE:
                internal_error(f"the plan of '@{self.pipeline.name}': {fault.message}")
            place = fault.span if fault.span is not None and fault.span is not NOWHERE else n.plan.span
            self.report.error("arena", place, fault.message, list(fault.notes), fault.help)


def _numbers(n: Node, key: str) -> list[int]:
    found = [s.value for s in (n.plan.entries if n.plan is not None else ()) if isinstance(s, Setting) and s.key == key]
    return [v.value for value in found for v in (value.items if isinstance(value, Items) else (value,)) if isinstance(v, IntLit)]


def _reads(n: Node) -> Iterator[Edge]:
    for a in n.args:
        if isinstance(a, Edge):
            yield a
        else:
            yield from a.items


def _origins(p: Pipeline) -> dict[str, str]:
    out: dict[str, str] = {}
    for n in p.nodes:
        if isinstance(n, Alias):
            out[n.name.name] = out.get(n.of.name, n.of.name)
    return out


def _device(n: Node, p: Pipeline) -> str:
    d = n.device or p.device
    return "" if d is None else f"{d.kind}:{d.index}:{d.name}"


def _name(n: Node) -> str:
    return f"%{n.results[0].name}" if n.results else f"@{n.op}"
