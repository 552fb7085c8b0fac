"""The lower bound of an arena: the heaviest set of buffers that are pairwise live together.

"Is done before the other begins" is a partial order of buffers, and buffers that are pairwise live together are an antichain of it. In a serial plan the
heaviest one is the largest sum at one moment. In a concurrent plan it is the sum of all weights less a maximal flow (Dilworth's theorem with weights): every
buffer is once a source and once a sink of as much as it weighs, and a buffer flows into those that come after it. That is exact, and costs more the more
buffers there are. Of more than `EXACT` buffers on several streams a set that is found greedily is a bound too, if not always the best one (`Bound.exact` says
so, `--explain` writes "at least"): what lives at the fullest moment, and then, heavy ones first, whatever lives together with all of it.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from pipelink_ir.ir.packing import Lifetime, busiest, rounded

EXACT = 250
"""Buffers up to which the bound of a concurrent plan is exact."""


@dataclass(frozen=True, slots=True)
class Bound:
    """No arena has fewer `bytes`. `exact`: some set of buffers that are pairwise live together weighs as much, and none more."""

    bytes: int
    exact: bool


def lower_bound(buffers: Sequence[Lifetime], align: int, peak: int | None = None) -> Bound:
    """The bound of these buffers. With `peak`, a size that a packing reached, no more is done than to show that it is the least."""
    members = busiest(buffers, align)
    found = sum(rounded(buffers[n].size, align) for n in members)
    if not buffers or not buffers[0].start or len(buffers[0].start) == 1 or found == peak:
        return Bound(found, True)
    members = _extended(buffers, members)
    found = sum(rounded(buffers[n].size, align) for n in members)
    if found == peak:
        return Bound(found, True)
    if len(buffers) > EXACT:
        return Bound(found, False)
    return Bound(heaviest([rounded(b.size, align) for b in buffers], [[b.before(c) for c in buffers] for b in buffers]), True)


def _extended(buffers: Sequence[Lifetime], members: list[int]) -> list[int]:
    """The set with whatever else is live together with all of it, heavy ones first."""
    out, inside, set_ = list(members), set(members), _Set(len(buffers[0].start))
    for n in members:
        set_.add(buffers[n])
    for n in sorted(range(len(buffers)), key=lambda n: -buffers[n].size):
        if n not in inside and buffers[n].size and set_.live_with_all(buffers[n]):
            out.append(n)
            set_.add(buffers[n])
    return out


class _Set:
    """Buffers that are pairwise live together. Who is done before another buffer begins, or begins when that is done, is asked of few of them: one that ends
    nowhere earlier than another, and begins nowhere later, has nothing to add."""

    def __init__(self, streams: int) -> None:
        import numpy as np
        self.np = np
        self.ends = np.empty((0, streams), np.int64)
        self.starts = np.empty((0, streams), np.int64)

    def add(self, b: Lifetime) -> None:
        np = self.np
        start, end = np.array(b.start), np.array(b.end)
        if not (self.ends <= end).all(axis=1).any():
            self.ends = np.concatenate((self.ends[~(end <= self.ends).all(axis=1)], end[None]))
        if not (start <= self.starts).all(axis=1).any():
            self.starts = np.concatenate((self.starts[~(self.starts <= start).all(axis=1)], start[None]))

    def live_with_all(self, b: Lifetime) -> bool:
        """Whether nobody in the set is done before `b` begins, and `b` not before anybody does."""
        if (self.ends <= self.np.array(b.start)).all(axis=1).any():
            return False
        return not (self.np.array(b.end) <= self.starts).all(axis=1).any()


def heaviest(weights: Sequence[int], before: Sequence[Sequence[bool]]) -> int:
    """The weight of the heaviest antichain of a partial order: all weights less the maximal flow from each element to those that come after it."""
    count = len(weights)
    flow = _Flow(2 * count + 2)
    source, sink = 2 * count, 2 * count + 1
    for n, weight in enumerate(weights):
        flow.edge(source, n, weight)
        flow.edge(count + n, sink, weight)
        for m in range(count):
            if before[n][m]:
                flow.edge(n, count + m, min(weight, weights[m]))
    return sum(weights) - flow.most(source, sink)


class _Flow:
    """Dinic's algorithm."""

    def __init__(self, nodes: int) -> None:
        self.heads: list[list[int]] = [[] for _ in range(nodes)]
        self.to: list[int] = []
        self.room: list[int] = []

    def edge(self, a: int, b: int, room: int) -> None:
        if room > 0:
            self.heads[a].append(len(self.to))
            self.heads[b].append(len(self.to) + 1)
            self.to += [b, a]
            self.room += [room, 0]

    def most(self, source: int, sink: int) -> int:
        total = 0
        while (levels := self._levels(source))[sink] >= 0:
            at = [0] * len(self.heads)
            while pushed := self._push(source, sink, levels, at):
                total += pushed
        return total

    def _levels(self, source: int) -> list[int]:
        levels = [-1] * len(self.heads)
        levels[source] = 0
        todo = deque([source])
        while todo:
            a = todo.popleft()
            for e in self.heads[a]:
                if self.room[e] and levels[self.to[e]] < 0:
                    levels[self.to[e]] = levels[a] + 1
                    todo.append(self.to[e])
        return levels

    def _push(self, source: int, sink: int, levels: list[int], at: list[int]) -> int:
        """Along one path of the levels, as much as it holds."""
        path: list[int] = []
        a = source
        while a != sink:
            while at[a] < len(self.heads[a]):
                e = self.heads[a][at[a]]
                if self.room[e] and levels[self.to[e]] == levels[a] + 1:
                    break
                at[a] += 1
            else:
                if a == source:
                    return 0
                a = self.to[path.pop() ^ 1]
                at[a] += 1
                continue
            path.append(e)
            a = self.to[e]
        pushed = min(self.room[e] for e in path)
        for e in path:
            self.room[e] -= pushed
            self.room[e ^ 1] += pushed
        return pushed
