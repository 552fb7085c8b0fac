"""The order of captured commands: which launches each launch has to wait for, from the streams and events that the commands name.

A graph is built from commands node by node, not recorded by a stream: nothing that happens meanwhile in the process (an allocation in another thread, a
garbage collection) can disturb it, the node of each launch is known, and building one does not touch the device.
"""
from __future__ import annotations

from dataclasses import dataclass

from pipelink_ir.backends.cuda.driver import FOREIGN, LAUNCH, RECORD, WAIT, Commands
from pipelink_ir.ir.diagnostics import internal_error


@dataclass(frozen=True, slots=True)
class Captured:
    """One launch, or a call of a library: the number of its command, the words of that, and the numbers of the commands of launches that come before it."""

    command: int
    words: tuple[int, ...]
    after: tuple[int, ...]
    foreign: bool = False


def captured(commands: Commands) -> list[Captured]:
    """The launches in order. Waiting for an event that no command before records is an error: outside of the graph nobody may be waited for inside."""
    streams: dict[int, tuple[int, ...]] = {}
    events: dict[int, tuple[int, ...]] = {}
    out: list[Captured] = []
    for n in range(len(commands)):
        kind, *rest = commands[n]
        if kind in (LAUNCH, FOREIGN):
            stream = rest[8] if kind == LAUNCH else rest[2]
            out.append(Captured(n, tuple(rest), streams.get(stream, ()), kind == FOREIGN))
            streams[stream] = (n,)
        elif kind == RECORD:
            events[rest[0]] = streams.get(rest[1], ())
        elif kind == WAIT:
            stream, event = rest[0], rest[1]
            if event not in events:
                internal_error(f"a graph waits for an event that it does not record (command {n})")
            streams[stream] = tuple(dict.fromkeys((*streams.get(stream, ()), *events[event])))
        else:
            internal_error(f"a command of kind {kind} in a graph")
    return out
