"""What the streams and events of a plan promise about the order of nodes, as numbers: how many nodes of each stream are surely done when a node begins.

That is little to keep and quick to compare, however many nodes there are. Without a whole plan the nodes run one after another, as they stand in the text.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pipelink_ir.ir.nodes import Alias, Device, Edge, IntLit, Items, Node, Pipeline, Scoped, Section, Setting, Value
from pipelink_ir.ir.packing import Lifetime

STEPS = 1 << 12
"""Moments of one node: its kernels run one after another."""


@dataclass(slots=True)
class Clocks:
    """Nodes by their number in the text. `stream` and `place` say where a node runs, `before` how many nodes of every stream are done before it."""

    stream: dict[int, int] = field(default_factory=dict)
    place: dict[int, int] = field(default_factory=dict)
    before: dict[int, tuple[int, ...]] = field(default_factory=dict)
    launch: dict[int, int] = field(default_factory=dict)
    """The number of a node among those that are launched."""
    streams: int = 1

    @classmethod
    def of(cls, pipeline: Pipeline) -> Clocks:
        """The promises of the plans of a pipeline's nodes."""
        out = cls()
        nodes = [(n, node) for n, node in enumerate(pipeline.nodes) if isinstance(node, Node)]
        out.launch = {n: k for k, (n, _) in enumerate(nodes)}
        whole = all(numbers(node.plan, "stream") for _, node in nodes)
        lanes: dict[tuple[object, ...], int] = {}
        for n, node in nodes:
            key = (device_key(node.device or pipeline.device), numbers(node.plan, "stream")[0]) if whole else ()
            out.stream[n] = lanes.setdefault(key, len(lanes))
        out.streams = max(1, len(lanes))
        out._walk(nodes, whole)
        return out

    def _walk(self, nodes: list[tuple[int, Node]], whole: bool) -> None:
        done: list[tuple[int, ...]] = [(0,) * self.streams] * self.streams
        count = [0] * self.streams
        events: dict[int, tuple[int, ...]] = {}
        for n, node in nodes:
            lane = self.stream[n]
            known = done[lane]
            for e in numbers(node.plan, "wait") if whole else ():
                if e in events:
                    known = tuple(map(max, known, events[e]))
            self.before[n], self.place[n] = known, count[lane]
            count[lane] += 1
            after = (*known[:lane], count[lane], *known[lane + 1:])
            done[lane] = after
            for e in numbers(node.plan, "record") if whole else ():
                events[e] = after

    def behind(self, nodes: Iterable[int]) -> tuple[int, ...]:
        """The place on each stream behind the last of some nodes."""
        out = [0] * self.streams
        for n in nodes:
            out[self.stream[n]] = max(out[self.stream[n]], self.place[n] + 1)
        return tuple(out)

    def done_but(self, n: int, behind: tuple[int, ...]) -> bool:
        """Whether everybody up to these places is done before node `n` begins, but for `n` itself."""
        own = self.stream[n]
        return all(place <= done + (lane == own) for lane, (place, done) in enumerate(zip(behind, self.before[n], strict=True)))

    def lifetime(self, size: int, writers: Iterable[int], users: Iterable[int]) -> Lifetime:
        """The life of a buffer that some nodes write and others touch."""
        writers = list(writers)
        touched = [*writers, *users]
        first, last = min(self.launch[n] for n in writers), max(self.launch[n] for n in touched)
        first, last = STEPS * first, STEPS * last + STEPS - 1
        if self.streams == 1:
            return Lifetime(size, first, last)
        start = map(min, *(self.before[n] for n in writers)) if len(writers) > 1 else iter(self.before[writers[0]])
        end = [0] * self.streams
        for n in touched:
            end[self.stream[n]] = max(end[self.stream[n]], STEPS * (self.place[n] + 1))
        return Lifetime(size, first, last, tuple(STEPS * s for s in start), tuple(end))

    def moment(self, size: int, node: int, first: int, last: int) -> Lifetime:
        """The life of what one node needs from its kernel `first` to its kernel `last`."""
        first, last = (first, last) if last < STEPS else (0, STEPS - 1)
        begin, lane = STEPS * self.launch[node], self.stream[node]
        if self.streams == 1:
            return Lifetime(size, begin + first, begin + last)
        start, end = [STEPS * s for s in self.before[node]], [0] * self.streams
        start[lane], end[lane] = STEPS * self.place[node] + first, STEPS * self.place[node] + last + 1
        return Lifetime(size, begin + first, begin + last, tuple(start), tuple(end))


def numbers(plan: Section | None, key: str) -> list[int]:
    """`stream`, `wait` or `record` of a plan."""
    found = value(plan, key)
    return [v.value for v in (found.items if isinstance(found, Items) else (found,)) if isinstance(v, IntLit)]


def value(plan: Section | None, key: str) -> Value | None:
    """A setting of a plan."""
    return next((e.value for e in (plan.entries if plan is not None else ()) if isinstance(e, Setting) and e.key == key), None)


def places(plan: Section | None) -> Iterator[Scoped]:
    """What a plan says of edges."""
    return (e for e in (plan.entries if plan is not None else ()) if isinstance(e, Scoped))


def device_key(device: Device | None) -> tuple[object, ...]:
    """A device as something to compare."""
    return () if device is None else (device.kind, device.index, device.name)


def origins(pipeline: Pipeline) -> dict[str, str]:
    """What second names stand for."""
    out: dict[str, str] = {}
    for node in pipeline.nodes:
        if isinstance(node, Alias):
            out[node.name.name] = out.get(node.of.name, node.of.name)
    return out


def arguments(node: Node) -> list[Edge]:
    """The edges that a node reads, one for each operand (none is packed once types are inferred)."""
    return [e for a in node.args for e in ((a,) if isinstance(a, Edge) else a.items)]


def claimed(pipeline: Pipeline) -> dict[str, int]:
    """Edges that are computed straight into a result of the pipeline, with its number. Further names of them, and inputs, are copied at the end."""
    origin, inputs = origins(pipeline), {o.name for o in pipeline.inputs}
    out: dict[str, int] = {}
    for n, result in enumerate(pipeline.results):
        source = origin.get(result.name, result.name)
        if source not in inputs:
            out.setdefault(source, n)
    return out
