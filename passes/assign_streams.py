"""Streams, and the fewest events that keep every dependency.

Before:  %a = @f(%x)                                 After:  %a = @f(%x) plan { stream = 0, record = 1 }
         %b = @g(%x)                                         %b = @g(%x) plan { stream = 1 }
         %c = @h(%a, %b)                                     %c = @h(%a, %b) plan { stream = 1, wait = [1] }

Nodes are taken in dependency order, those on the longest way to the end first. A node goes on behind a node that it needs and that is the last of its
stream; else on a stream whose last node it comes after anyway; else on a new one, as long as there may be more. A node waits only for what is not ordered
already: each stream remembers how far it knows every other (a vector clock), which is the transitive reduction of the dependencies. Devices have streams
of their own, numbered from 0.

`max_streams` of an operator bounds the streams on which its nodes run, `async = false` orders a node with everything before and behind it, `event_sync`
records an event behind every node of the operator. A plan that the user wrote is kept; a partial one is completed.

Requires: a flat pipeline in dependency order.
Keeps: the order of nodes, what they compute, plans that are complete.
Adds: `stream`, `wait`, `record` in each node's plan.
"""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from pipelink_ir.ir import contracts
from pipelink_ir.ir.diagnostics import Report
from pipelink_ir.ir.nodes import Alias, Edge, IntLit, Items, Module, Node, Operator, Pipeline, Section, Setting
from pipelink_ir.passes.manager import register_pass


@dataclass(frozen=True, slots=True)
class Options:
    """How much may run at once."""

    max_streams: int = 4
    """Most streams of one device; 1 gives a serial plan."""


@register_pass("assign-streams", "streams, and the fewest events that keep every dependency", Options)
def assign_streams(module: Module, options: Options, report: Report) -> Module:
    """Give every node a stream; see the page above."""
    operators = {o.name: o for o in module.operators}
    items = tuple(_Assignment(i, operators, options).run() if isinstance(i, Pipeline) else i for i in module.items)
    return module if all(a is b for a, b in zip(items, module.items, strict=True)) else replace(module, items=items)


@dataclass(slots=True)
class _Stream:
    """One stream of one device: its nodes in order, and for every stream how many of its nodes are known to be done before the next node here."""

    device: str
    number: int
    nodes: list[int] = field(default_factory=list)
    knows: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Placed:
    """Where a node went: the stream, its place there, and what was known when it began."""

    stream: int
    place: int
    order: int
    knows: dict[int, int]


class _Assignment:
    def __init__(self, pipeline: Pipeline, operators: dict[str, Operator], options: Options) -> None:
        self.pipeline, self.operators, self.options = pipeline, operators, options
        self.streams: list[_Stream] = []
        self.placed: dict[int, _Placed] = {}
        self.waits: dict[int, list[int]] = {}
        """Node -> the nodes whose events it waits for."""
        self.events: dict[int, int] = {}
        self.streams_of: dict[str, set[int]] = {}
        """Operator -> the streams on which nodes of it run."""
        self.barrier: int | None = None
        """The latest node that is ordered with everything."""
        self.needs = _needs(pipeline)

    def run(self) -> Pipeline:
        nodes = self.pipeline.nodes
        if not any(isinstance(n, Node) for n in nodes) or all(_complete(n) for n in nodes):
            return self.pipeline
        for i in self._order():
            n = nodes[i]
            assert isinstance(n, Node)
            self._place(i, n)
        return self._written()

    # ----------------------------------------------------------------------------------------------------------------- order

    def _order(self) -> list[int]:
        """Nodes in the order of the text among those that are ready, the longest way to the end first, so that the critical path is launched first."""
        import heapq
        users: dict[int, list[int]] = {}
        for i, before in self.needs.items():
            for j in before:
                users.setdefault(j, []).append(i)
        height: dict[int, int] = {}
        for i in sorted(self.needs, reverse=True):
            height[i] = 1 + max((height[u] for u in users.get(i, ())), default=0)
        missing = {i: len(before) for i, before in self.needs.items()}
        ready = [(-height[i], i) for i, n in missing.items() if n == 0]
        heapq.heapify(ready)
        out: list[int] = []
        while ready:
            _, i = heapq.heappop(ready)
            out.append(i)
            for u in users.get(i, ()):
                missing[u] -= 1
                if missing[u] == 0:
                    heapq.heappush(ready, (-height[u], u))
        return out

    # ----------------------------------------------------------------------------------------------------------------- place

    def _place(self, i: int, n: Node) -> None:
        serial = self._says(n, "async", "false")
        needs = set(self.needs[i]) | ({self.barrier} if self.barrier is not None else set())
        if serial:
            needs |= {s.nodes[-1] for s in self.streams if s.nodes}
        stream = self._choose(i, n, needs)
        s = self.streams[stream]
        # What was placed later may know of what was placed earlier: waiting for it may be all there is to wait for.
        for j in sorted(needs, key=lambda j: -self.placed[j].order):
            self._wait(i, s, j)
        self.placed[i] = _Placed(stream, len(s.nodes), len(self.placed), dict(s.knows))
        self.streams_of.setdefault(n.op, set()).add(stream)
        s.nodes.append(i)
        s.knows[stream] = len(s.nodes)
        if serial:
            self.barrier = i
        if self._says(n, "event_sync", "true"):
            self.events.setdefault(i, len(self.events) + 1)

    def _wait(self, i: int, s: _Stream, j: int) -> None:
        """Make node `i`, which goes on stream `s`, run behind node `j`, by an event unless it does anyway."""
        before = self.placed[j]
        if s.knows.get(before.stream, 0) > before.place:
            return
        self.waits.setdefault(i, []).append(j)
        self.events.setdefault(j, len(self.events) + 1)
        for k, place in before.knows.items():
            s.knows[k] = max(s.knows.get(k, 0), place)
        s.knows[before.stream] = max(s.knows.get(before.stream, 0), before.place + 1)

    def _choose(self, i: int, n: Node, needs: set[int]) -> int:
        device = _device(n, self.pipeline)
        asked = _plan_int(n, "stream")
        if asked is not None:
            return self._named(device, asked)
        mine = [k for k, s in enumerate(self.streams) if s.device == device]
        full = self._full(n)
        allowed = [k for k in mine if k in full] if full is not None else mine
        behind = [self.placed[j].stream for j in needs if self.streams[self.placed[j].stream].nodes[-1] == j]
        for k in sorted({b for b in behind if b in allowed}, key=lambda k: -len(self.streams[k].nodes)):
            return k
        known = self._known(needs)
        for k in allowed:
            if known.get(k, 0) >= len(self.streams[k].nodes):
                return k
        may_open = len(mine) < max(1, self.options.max_streams) and full is None
        if may_open or not allowed:
            self.streams.append(_Stream(device, len(mine)))
            return len(self.streams) - 1
        return min(allowed, key=lambda k: len(self.streams[k].nodes))

    def _known(self, needs: Iterable[int]) -> dict[int, int]:
        """How much of each stream is done once all of `needs` are."""
        out: dict[int, int] = {}
        for j in needs:
            before = self.placed[j]
            for k, place in (*before.knows.items(), (before.stream, before.place + 1)):
                out[k] = max(out.get(k, 0), place)
        return out

    def _full(self, n: Node) -> set[int] | None:
        """The streams that nodes of this operator use, if they are as many as its `max_streams` allows."""
        limit = self._limit(n)
        used = self.streams_of.get(n.op, set())
        return used if limit is not None and len(used) >= limit else None

    def _limit(self, n: Node) -> int | None:
        op = self.operators.get(n.op)
        found = contracts.setting(op, "execution", "max_streams") if op is not None else None
        return found.setting.value.value if found is not None and isinstance(found.setting.value, IntLit) else None

    def _says(self, n: Node, key: str, word: str) -> bool:
        op = self.operators.get(n.op)
        found = contracts.setting(op, "execution", key) if op is not None else None
        return found is not None and contracts.word(found.setting.value) == word

    def _named(self, device: str, number: int) -> int:
        for k, s in enumerate(self.streams):
            if s.device == device and s.number == number:
                return k
        self.streams.append(_Stream(device, number))
        return len(self.streams) - 1

    # ----------------------------------------------------------------------------------------------------------------- write

    def _written(self) -> Pipeline:
        rank = {i: k for k, i in enumerate(self._launch_order())}
        nodes: list[Node | Alias] = []
        for i, n in sorted(enumerate(self.pipeline.nodes), key=lambda x: rank[x[0]]):
            nodes.append(replace(n, plan=self._plan(i, n)) if isinstance(n, Node) else n)
        return replace(self.pipeline, nodes=tuple(nodes))

    def _launch_order(self) -> list[int]:
        """The order in which nodes were placed, with second names behind what they name."""
        out: list[int] = []
        made = {e.name: i for i, n in enumerate(self.pipeline.nodes) for e in ((n.name,) if isinstance(n, Alias) else n.results)}
        waiting: dict[int, list[int]] = {}
        first: list[int] = []
        for i, n in enumerate(self.pipeline.nodes):
            if isinstance(n, Alias):
                (waiting.setdefault(made[n.of.name], []) if n.of.name in made else first).append(i)
        stack = [*first, *self.placed]
        for i in stack:
            todo = [i]
            while todo:
                k = todo.pop(0)
                out.append(k)
                todo = [*waiting.get(k, []), *todo]
        return out

    def _plan(self, i: int, n: Node) -> Section:
        ours = [_int("stream", self.streams[self.placed[i].stream].number)]
        if i in self.waits:
            ours.append(Setting("wait", Items(tuple(IntLit(e) for e in sorted(self.events[j] for j in self.waits[i])))))
        if i in self.events:
            ours.append(_int("record", self.events[i]))
        kept = [e for e in (n.plan.entries if n.plan is not None else ()) if not (isinstance(e, Setting) and e.key in ("stream", "wait", "record"))]
        return Section("plan", (*ours, *kept))


def _int(key: str, value: int) -> Setting:
    return Setting(key, IntLit(value))


def _plan_int(n: Node, key: str) -> int | None:
    for e in n.plan.entries if n.plan is not None else ():
        if isinstance(e, Setting) and e.key == key and isinstance(e.value, IntLit):
            return e.value.value
    return None


def _complete(n: Node | Alias) -> bool:
    return isinstance(n, Alias) or _plan_int(n, "stream") is not None


def _device(n: Node, p: Pipeline) -> str:
    d = n.device or p.device
    return "" if d is None else f"{d.kind}:{d.index}:{d.name}"


def _needs(p: Pipeline) -> dict[int, set[int]]:
    """For each node the nodes that come before it by data or by `after`; second names are looked through."""
    made: dict[str, int] = {}
    origin: dict[str, str] = {}
    out: dict[int, set[int]] = {}
    for i, n in enumerate(p.nodes):
        if isinstance(n, Alias):
            origin[n.name.name] = origin.get(n.of.name, n.of.name)
            continue
        for e in n.results:
            made[e.name] = i
    for i, n in enumerate(p.nodes):
        if isinstance(n, Node):
            names = [origin.get(e.name, e.name) for e in (*n.args, *n.after) if isinstance(e, Edge)]
            out[i] = {made[name] for name in names if name in made}
    return out


