"""In which stream each node runs, and which events it waits for and records: as the module's plan says, or one stream for all.

Stream 0 is where a run begins and ends: the caller's, if the caller's arrays are on the device. Every other stream waits for the beginning before its first
node, and the end waits for all of them. Streams of devices that are folded onto one stay apart.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pipelink_ir.ir.nodes import Device, Expr, IntLit, Items, Node, Pipeline, Section, Setting


@dataclass(slots=True)
class Order:
    """The nodes of a pipeline with their streams and events, numbered from 0. Events 0 to `streams` - 1 are the beginning and the ends of streams 1 …"""

    pipeline: Pipeline
    streams: int = 1
    events: int = 0
    _stream: dict[int, int] = field(default_factory=dict)
    _before: dict[int, list[int]] = field(default_factory=dict)
    _after: dict[int, list[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, pipeline: Pipeline) -> Order:
        """What the plans of the nodes say."""
        out = cls(pipeline)
        streams: dict[tuple[str, int], int] = {}
        events: dict[int, int] = {}
        nodes = [(n, node) for n, node in enumerate(pipeline.nodes) if isinstance(node, Node)]
        planned = {n: _plan(node.plan) for n, node in nodes}
        if not all("stream" in p for p in planned.values()):
            # Without a whole plan nothing says who waits for whom.
            return out
        for n, node in nodes:
            key = _device(node.device or pipeline.device), planned[n]["stream"][0]
            out._stream[n] = streams.setdefault(key, len(streams))
        out.streams = max(1, len(streams))
        if out.streams == 1:
            return out
        for n, _ in nodes:
            # An event is recorded before anybody waits for it: nodes stand in the order in which they are issued.
            out._before[n] = [events[e] for e in planned[n].get("wait", []) if e in events]
            out._after[n] = [events.setdefault(e, out.streams + len(events)) for e in planned[n].get("record", [])]
        out.events = out.streams + len(events)
        return out

    def stream(self, node: int) -> int:
        """The stream of a node."""
        return self._stream.get(node, 0)

    def nodes(self) -> Iterator[tuple[int, list[int], list[int]]]:
        """Each node, the events before it and after it; aliases do nothing."""
        for n, node in enumerate(self.pipeline.nodes):
            if isinstance(node, Node):
                yield n, self._before.get(n, []), self._after.get(n, [])


def _device(device: Device | None) -> str:
    return "" if device is None else f"{device.kind}:{device.index}:{device.name}"


def _plan(section: Section | None) -> dict[str, list[int]]:
    """`stream`, `wait` and `record` of a plan, as lists of numbers."""
    out: dict[str, list[int]] = {}
    for entry in section.entries if section is not None else ():
        if isinstance(entry, Setting) and entry.key in ("stream", "wait", "record"):
            values = entry.value.items if isinstance(entry.value, Items) else (entry.value,)
            out[entry.key] = [v.value for v in values if isinstance(v, Expr) and isinstance(v, IntLit)]
    return out
