"""Happens-before of a plan: which nodes are surely done before another one begins.

A node comes after the node before it on its stream, and after every node whose event it waits for. Each node has a clock: how many nodes of every stream are
done before it begins. So the question is answered by one comparison, and what all is known costs nodes times streams.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

Lane = tuple[str, int]
"""A stream of a device."""


@dataclass(frozen=True, slots=True)
class Late:
    """A wait that cannot end: node `node` waits for event `event`, which `recorder` records later, or nobody (None)."""

    node: int
    event: int
    recorder: int | None


@dataclass(frozen=True, slots=True)
class Twice:
    """An event that two nodes record."""

    event: int
    first: int
    second: int


@dataclass(slots=True)
class HappensBefore:
    """The order of the nodes of one pipeline, numbered in the order of launch."""

    lanes: list[int] = field(default_factory=list)
    """The lane of each node, numbered as they come."""
    places: list[int] = field(default_factory=list)
    """How many nodes of its lane stand before it."""
    clocks: list[list[int]] = field(default_factory=list)
    """For each node how many nodes of each lane are done before it begins. Lanes that were not there yet are missing."""

    @classmethod
    def of(cls, lanes: Sequence[Lane], waits: Sequence[Sequence[int]], records: Sequence[Sequence[int]]) -> HappensBefore | Late | Twice:
        """The order, or why there is none: then some node would wait for ever."""
        out = cls()
        numbers: dict[Lane, int] = {}
        last: dict[int, int] = {}
        recorder: dict[int, int] = {}
        for i, lane in enumerate(lanes):
            k = numbers.setdefault(lane, len(numbers))
            direct = [last[k]] if k in last else []
            for e in waits[i]:
                if e not in recorder:
                    return Late(i, e, next((j for j in range(i, len(lanes)) if e in records[j]), None))
                direct.append(recorder[e])
            out._add(k, direct)
            last[k] = i
            for e in records[i]:
                if e in recorder:
                    return Twice(e, recorder[e], i)
                recorder[e] = i
        return out

    def _add(self, lane: int, direct: Sequence[int]) -> None:
        """One more node, behind those of `direct`; the first of them is the last of its lane, if there is one."""
        clock: list[int] = []
        for j in direct:
            theirs = self.clocks[j]
            if len(theirs) > len(clock):
                clock, theirs = theirs, clock
            clock = [max(a, b) for a, b in zip(clock, theirs, strict=False)] + clock[len(theirs):] if theirs else list(clock)
            if len(clock) <= self.lanes[j]:
                clock += [0] * (self.lanes[j] + 1 - len(clock))
            clock[self.lanes[j]] = max(clock[self.lanes[j]], self.places[j] + 1)
        self.places.append(self.places[direct[0]] + 1 if direct and self.lanes[direct[0]] == lane else 0)
        self.lanes.append(lane)
        self.clocks.append(clock)

    def before(self, a: int, b: int) -> bool:
        """Whether node `a` is surely done before node `b` begins."""
        clock, lane = self.clocks[b], self.lanes[a]
        return lane < len(clock) and clock[lane] > self.places[a]
