"""Streams, and the fewest events that keep every dependency.

Before:  %a = @f(%x)                                 After:  %a = @f(%x) plan { stream = 0, record = 1 }
         %b = @g(%x)                                         %b = @g(%x) plan { stream = 1 }
         %c = @h(%a, %b)                                     %c = @h(%a, %b) plan { stream = 1, wait = [1] }

Nodes are launched in dependency order, those on the longest way to the end first (counted in bytes); with one stream in the order of the text. There are as few
streams as can be without ordering two nodes that need not be ordered: the fewest chains that hold all nodes. Where that is more than `max_streams`, a node goes
where it can begin first, by the same estimate. A node waits only for what is not ordered already: each stream knows how far every other one is, so events are
the transitive reduction of the dependencies. Devices have streams of their own, numbered from 0.

`max_streams` of an operator: of so many of its nodes the next one waits until one is done, so that no more are in flight. `async = false` orders a node with
everything launched before and behind it, `event_sync` records an event behind every node of the operator. A plan that the user wrote is kept; a partial one is
completed: streams, waits and events that it names stay.

Requires: a flat pipeline in dependency order.
Keeps: what nodes compute, plans that are complete. Nodes may change places, as far as dependencies allow.
Adds: `stream`, `wait`, `record` in each node's plan.
"""
from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pipelink_ir.ir import contracts
from pipelink_ir.ir.diagnostics import Report, UsageError
from pipelink_ir.ir.nodes import Alias, IntLit, Items, Module, Node, Operator, Pipeline, Section, Setting
from pipelink_ir.ir.source import NOWHERE
from pipelink_ir.passes.manager import register_pass
from pipelink_ir.passes.streams.chains import fewest_chains
from pipelink_ir.passes.streams.graph import launch_order, needs_of, plan_numbers, weights_of
from pipelink_ir.passes.streams.limits import add_limits
from pipelink_ir.passes.streams.schedule import Placed, earliest


@dataclass(frozen=True, slots=True)
class Options:
    """How much may run at once."""

    max_streams: int = 4
    """Most streams of one device; 1 gives a serial plan."""


@register_pass("assign-streams", "streams, and the fewest events that keep every dependency", Options, typed=True)
def assign_streams(module: Module, options: Options, report: Report) -> Module:
    """Give every node a stream; see the page above."""
    if options.max_streams < 1:
        raise UsageError(f"assign-streams: 'max_streams' is 1 or more, not {options.max_streams}; 1 gives a serial plan")
    operators = {o.name: o for o in module.operators}
    items = tuple(_Assignment(i, operators, options.max_streams).run() if isinstance(i, Pipeline) else i for i in module.items)
    return module if all(a is b for a, b in zip(items, module.items, strict=True)) else replace(module, items=items)


class _Assignment:
    """One pipeline. From `_order` on nodes are numbered in the order of their launch."""

    def __init__(self, pipeline: Pipeline, operators: Mapping[str, Operator], limit: int) -> None:
        self.pipeline, self.operators, self.limit = pipeline, operators, limit
        self.nodes: list[Node] = [n for n in pipeline.nodes if isinstance(n, Node)]
        self.needs: list[list[int]] = []
        self.weights: list[int] = []

    def run(self) -> Pipeline:
        if not self.nodes or all(plan_numbers(n, "stream") for n in self.nodes):
            return self.pipeline
        self._order()
        add_limits(self.needs, [self._limit(n) for n in self.nodes], [self._says(n, "async", "false") for n in self.nodes], self._whose())
        streams = self._streams()
        waits = self._waits(streams)
        return self._written(streams, waits, self._events(waits))

    def _order(self) -> None:
        needs, weights = needs_of(self.pipeline, self.nodes), weights_of(self.pipeline, self.nodes)
        order = launch_order(needs, weights if self.limit > 1 else None)
        rank = [0] * len(order)
        for k, i in enumerate(order):
            rank[i] = k
        self.needs = [sorted(rank[j] for j in needs[i]) for i in order]
        self.nodes, self.weights = [self.nodes[i] for i in order], [weights[i] for i in order]

    # --------------------------------------------------------------------------------------------------------------- streams

    def _streams(self) -> list[tuple[str, int]]:
        """The stream of each node: its device, and a number there."""
        devices: dict[str, list[int]] = {}
        for i, n in enumerate(self.nodes):
            devices.setdefault(_device(n, self.pipeline), []).append(i)
        placed = [Placed(device, None) for device in (_device(n, self.pipeline) for n in self.nodes)]
        for i, n in enumerate(self.nodes):
            placed[i].number = next(iter(plan_numbers(n, "stream")), None)
        for members in devices.values():
            if all(placed[i].number is None for i in members):
                chains = fewest_chains(self.needs, members, self.limit)
                if chains is not None:
                    for i in members:
                        placed[i].number = chains.of[i]
        earliest(placed, self.needs, self.weights, self.limit)
        return [(p.device, p.number or 0) for p in placed]

    def _waits(self, streams: Sequence[tuple[str, int]]) -> list[list[int]]:
        """For each node those whose events it waits for: what it needs and its stream does not know of."""
        place: list[int] = []
        knows: list[dict[tuple[str, int], int]] = []
        last: dict[tuple[str, int], int] = {}
        out: list[list[int]] = []
        for i, stream in enumerate(streams):
            before = last.get(stream)
            known = dict(knows[before]) if before is not None else {}
            place.append(place[before] + 1 if before is not None else 0)
            known[stream] = place[i]
            waits: list[int] = []
            # What was launched later may know of what was launched earlier: waiting for it may be all there is to wait for.
            for j in reversed(self.needs[i]):
                if known.get(streams[j], 0) <= place[j]:
                    waits.append(j)
                    for s, count in knows[j].items():
                        known[s] = max(known.get(s, 0), count)
                    known[streams[j]] = max(known.get(streams[j], 0), place[j] + 1)
            knows.append(known)
            last[stream] = i
            out.append(waits)
        return out

    def _events(self, waits: Sequence[Sequence[int]]) -> dict[int, list[int]]:
        """The events that each node records: the user's, and one for those that somebody waits for or asks."""
        out = {i: plan_numbers(n, "record") for i, n in enumerate(self.nodes)}
        taken = {e for events in out.values() for e in events}
        wanted = {j for w in waits for j in w} | {i for i, n in enumerate(self.nodes) if self._says(n, "event_sync", "true")}
        number = 0
        for i in sorted(wanted):
            if not out[i]:
                number += 1
                while number in taken:
                    number += 1
                out[i] = [number]
        return out

    # ----------------------------------------------------------------------------------------------------------------- write

    def _written(self, streams: Sequence[tuple[str, int]], waits: Sequence[Sequence[int]], events: Mapping[int, list[int]]) -> Pipeline:
        aliases = [a for a in self.pipeline.nodes if isinstance(a, Alias)]
        waiting: dict[str, list[Alias]] = {}
        for a in aliases:
            waiting.setdefault(a.of.name, []).append(a)
        made = {e.name for n in self.nodes for e in n.results} | {a.name.name for a in aliases}
        # Second names of inputs stand first, others behind the node that makes what they name.
        nodes: list[Node | Alias] = [x for a in aliases if a.of.name not in made for x in _with_names(a, waiting)]
        for i, n in enumerate(self.nodes):
            nodes.append(replace(n, plan=self._plan(n, streams[i][1], [events[j][0] for j in waits[i]], events[i])))
            for e in n.results:
                for a in waiting.get(e.name, ()):
                    nodes += _with_names(a, waiting)
        return replace(self.pipeline, nodes=tuple(nodes))

    @staticmethod
    def _plan(n: Node, stream: int, waits: Iterable[int], records: Sequence[int]) -> Section:
        ours = [Setting("stream", IntLit(stream))]
        waited = sorted({*waits, *plan_numbers(n, "wait")})
        if waited:
            ours.append(Setting("wait", Items(tuple(map(IntLit, waited)))))
        if records:
            ours.append(Setting("record", IntLit(records[0]) if len(records) == 1 else Items(tuple(map(IntLit, records)))))
        old = n.plan.entries if n.plan is not None else ()
        kept = [e for e in old if not (isinstance(e, Setting) and e.key in ("stream", "wait", "record"))]
        return Section("plan", (*ours, *kept), **({"span": n.plan.span} if n.plan is not None else {}))

    # -------------------------------------------------------------------------------------------------------------- contracts

    def _whose(self) -> list[str]:
        """Whose nodes are counted together: those of one name (`gelu.1` and `gelu.2` are one operator, specialised to two calls), and those whose limit stands
        at one place of the text, as what policies and fusion have made of an operator."""
        names = [re.sub(r"(\.\d+)+$", "", n.op) for n in self.nodes]
        first: dict[object, str] = {}
        same: dict[str, str] = {}

        def root(name: str) -> str:
            while name in same:
                name = same[name]
            return name
        for n, name in zip(self.nodes, names, strict=True):
            op = self.operators.get(n.op)
            found = contracts.setting(op, "execution", "max_streams") if op is not None else None
            if found is None or found.setting.span == NOWHERE:
                continue
            other, mine = root(first.setdefault((found.setting.span.source.path, found.setting.span.start), name)), root(name)
            if other != mine:
                same[mine] = other
        return [root(name) for name in names]

    def _limit(self, n: Node) -> int | None:
        op = self.operators.get(n.op)
        found = contracts.setting(op, "execution", "max_streams") if op is not None else None
        return found.setting.value.value if found is not None and isinstance(found.setting.value, IntLit) else None

    def _says(self, n: Node, key: str, word: str) -> bool:
        op = self.operators.get(n.op)
        found = contracts.setting(op, "execution", key) if op is not None else None
        return found is not None and contracts.word(found.setting.value) == word


def _with_names(a: Alias, waiting: Mapping[str, Sequence[Alias]]) -> list[Node | Alias]:
    """A second name, and the further names that are given to it."""
    out: list[Node | Alias] = []
    stack = [a]
    while stack:
        top = stack.pop()
        out.append(top)
        stack += reversed(waiting.get(top.name.name, ()))
    return out


def _device(n: Node, p: Pipeline) -> str:
    d = n.device or p.device
    return "" if d is None else f"{d.kind}:{d.index}:{d.name}"
