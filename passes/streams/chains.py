"""The fewest chains that hold all nodes of a graph: in a chain each node comes after the one before it, so that a stream for each chain orders nothing anew.

By Dilworth's theorem there are as many as the largest set of nodes none of which comes after another. They are found as a maximal flow: a unit that goes from a
node along edges to a later one joins the two in a chain, whatever lies between. It begins with edges alone, the first free one of each node, which is often all
there is to do.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Chains:
    """For each member the number of its chain (-1 for others), and how many there are."""

    of: list[int]
    count: int


def fewest_chains(needs: Sequence[Sequence[int]], members: Sequence[int], limit: int) -> Chains | None:
    """Chains of `members`, of which there are at most `limit`; None if that cannot be. Nodes are numbered in an order in which they can run."""
    if widest_level(needs, members) > limit:
        return None
    cover = _Cover(needs, members)
    cover.run()
    chains = cover.chains()
    return chains if chains.count <= limit else None


def widest_level(needs: Sequence[Sequence[int]], members: Sequence[int]) -> int:
    """How many members are equally many steps from the beginning: none of them comes after another."""
    depth: list[int] = []
    for before in needs:
        depth.append(1 + max((depth[j] for j in before), default=-1))
    count: dict[int, int] = {}
    for i in members:
        count[depth[i]] = count.get(depth[i], 0) + 1
    return max(count.values(), default=0)


class _Cover:
    """The flow. Node `i` of the graph is two: `i` sends what begins there or passes through, `n + i` receives. A unit may leave where it is received."""

    def __init__(self, needs: Sequence[Sequence[int]], members: Sequence[int]) -> None:
        self.n, self.members = len(needs), members
        n = self.n
        self.heads: list[list[int]] = [[] for _ in range(2 * n + 2)]
        self.to: list[int] = []
        self.room: list[int] = []
        self.source, self.sink = 2 * n, 2 * n + 1
        self.starts = {i: self._edge(self.source, i, 1) for i in members}
        self.ends = {i: self._edge(n + i, self.sink, 1) for i in members}
        many = len(members)
        self.edges = [[self._edge(j, n + i, many) for j in before] for i, before in enumerate(needs)]
        for i in range(n):
            self._edge(n + i, i, many)
        self._begin(needs)

    def _edge(self, a: int, b: int, room: int) -> int:
        self.heads[a].append(len(self.to))
        self.heads[b].append(len(self.to) + 1)
        self.to += [b, a]
        self.room += [room, 0]
        return len(self.to) - 2

    def _begin(self, needs: Sequence[Sequence[int]]) -> None:
        """Every node behind one that it needs, if that has none behind it."""
        for i in self.members:
            for j, e in zip(needs[i], self.edges[i], strict=True):
                if j in self.starts and self.room[self.starts[j]]:
                    for each in (self.starts[j], e, self.ends[i]):
                        self._push(each)
                    break

    def _push(self, edge: int) -> None:
        self.room[edge] -= 1
        self.room[edge ^ 1] += 1

    def run(self) -> None:
        """Dinic's algorithm, a unit a path."""
        while (levels := self._levels())[self.sink] >= 0:
            at = [0] * len(self.heads)
            while path := self._path(levels, at):
                for edge in path:
                    self._push(edge)

    def _levels(self) -> list[int]:
        levels = [-1] * len(self.heads)
        levels[self.source] = 0
        todo = deque([self.source])
        while todo:
            a = todo.popleft()
            for e in self.heads[a]:
                b = self.to[e]
                if self.room[e] and levels[b] < 0:
                    levels[b] = levels[a] + 1
                    todo.append(b)
        return levels

    def _path(self, levels: list[int], at: list[int]) -> list[int]:
        """Edges from source to sink, each one level further; empty if there is no more."""
        path: list[int] = []
        a = self.source
        while a != self.sink:
            edges = self.heads[a]
            while at[a] < len(edges) and not (self.room[edges[at[a]]] and levels[self.to[edges[at[a]]]] == levels[a] + 1):
                at[a] += 1
            if at[a] < len(edges):
                path.append(edges[at[a]])
                a = self.to[path[-1]]
            elif not path:
                return []
            else:
                a = self.to[path.pop() ^ 1]
                at[a] += 1
        return path

    def chains(self) -> Chains:
        """What the units join."""
        behind: dict[int, int] = {}
        for i in self.members:
            if self.room[self.starts[i]] == 0:
                behind[i] = self._follow(i)
        out, count = [-1] * self.n, 0
        for i in self.members:
            if out[i] < 0:
                k: int | None = i
                while k is not None:
                    out[k] = count
                    k = behind.get(k)
                count += 1
        return Chains(out, count)

    def _follow(self, i: int) -> int:
        """The end of a unit that begins at node `i`; it is taken out of the flow on the way."""
        a = i
        while True:
            edge = next(e for e in self.heads[a] if not e & 1 and self.room[e ^ 1])
            self.room[edge ^ 1] -= 1
            if self.to[edge] == self.sink:
                return a - self.n
            a = self.to[edge]
