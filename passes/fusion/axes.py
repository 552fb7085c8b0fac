"""Axes of edges, and which of them run together: two axes are one class where a reader walks along both in step.

A kernel of blocks has a block for each place of some classes; the others are `inside` a block, whose threads share what is computed along them (a row of a
softmax, its sum). A class may be `pinned`: it must stay one of many blocks, as the rows and columns of a product of matrices, which is computed in tiles.
A trial says what one more step would make of the classes, without making it.
"""
from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Axes:
    """All axes of all edges by number."""

    parent: list[int] = field(default_factory=list)
    inside: list[bool] = field(default_factory=list)
    pinned: list[bool] = field(default_factory=list)
    extent: list[int] = field(default_factory=list)

    def add(self, extent: int, inside: bool, pinned: bool) -> int:
        self.parent.append(len(self.parent))
        self.inside.append(inside)
        self.pinned.append(pinned)
        self.extent.append(extent)
        return len(self.parent) - 1

    def root(self, a: int) -> int:
        while self.parent[a] != a:
            self.parent[a] = a = self.parent[self.parent[a]]
        return a

    def is_inside(self, a: int) -> bool:
        return self.inside[self.root(a)]


@dataclass(slots=True)
class Trial:
    """Classes made one and axes put inside, tentatively."""

    axes: Axes
    parent: dict[int, int] = field(default_factory=dict)
    inner: set[int] = field(default_factory=set)
    outer: set[int] = field(default_factory=set)

    def root(self, a: int) -> int:
        a = self.axes.root(a)
        while a in self.parent:
            a = self.parent[a]
        return a

    def unite(self, a: int, b: int) -> None:
        a, b = self.root(a), self.root(b)
        if a == b:
            return
        inside, pinned = self.is_inside(a) or self.is_inside(b), self.is_pinned(a) or self.is_pinned(b)
        self.parent[a] = b
        if inside:
            self.inner.add(b)
        if pinned:
            self.outer.add(b)

    def put_inside(self, a: int) -> None:
        self.inner.add(self.root(a))

    def is_inside(self, a: int) -> bool:
        a = self.root(a)
        return a in self.inner or self.axes.inside[a]

    def is_pinned(self, a: int) -> bool:
        a = self.root(a)
        return a in self.outer or self.axes.pinned[a]

    @property
    def conflict(self) -> bool:
        """Whether a class would have to be both."""
        return any(self.is_pinned(a) for a in self.inner) or any(self.is_inside(a) for a in self.outer)

    @property
    def shapes(self) -> bool:
        """Whether anything is inside a block, so that the axes of all edges have to be looked at."""
        return bool(self.inner)

    def keep(self) -> None:
        """Make it so."""
        for a, b in self.parent.items():
            self.axes.parent[a] = b
        for a in self.inner:
            self.axes.inside[self.axes.root(a)] = True
        for a in self.outer:
            self.axes.pinned[self.axes.root(a)] = True
