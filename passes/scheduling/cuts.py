"""How a product of matrices is cut into tiles for threads that multiply and add: chosen by what is known of its sizes.

A small product has few tiles, and a GPU that is not full waits. So tiles get smaller, and the threads of a block share the terms of a sum, in `groups`; each
group adds up its own and the groups' sums are added in their order.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

CHUNK = 16
"""Bytes that a copy moves, by which lines in shared memory are longer than they need be."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The part of the result that a block computes; the places of it (rows, columns) that a thread computes; how deep the tiles of the factors are; how many
    groups of threads share the terms; tiles that are in shared memory or on their way there."""

    rows: int
    columns: int
    side: tuple[int, int]
    depth: int
    groups: int = 1
    stages: int = 2

    @property
    def across(self) -> int:
        """Threads of a group side by side."""
        return self.columns // self.side[1]

    @property
    def down(self) -> int:
        """Threads of a group below each other."""
        return self.rows // self.side[0]

    @property
    def threads(self) -> int:
        return self.down * self.across * self.groups

    @property
    def each(self) -> int:
        """Terms of a tile that one group adds up."""
        return self.depth // self.groups

    def shared(self, size: int) -> int:
        """Bytes of shared memory that it takes at most, for elements of `size` bytes: the ring of both factors, then the sums of all groups."""
        more = CHUNK // size
        ring = self.stages * sum(max(n * (self.depth + more), self.depth * (n + more)) for n in (self.rows, self.columns))
        return size * max(ring, self.groups * self.rows * (self.columns + more))


USUAL = Cut(64, 64, (8, 4), 32, 2)
"""Where nothing is known."""
FEW = Cut(1, 16, (1, 4), 256, 64, 3)
"""For rows that are too few for a matrix."""
LEAST = Cut(8, 16, (4, 4), 128, 16, 3)
"""Where even small tiles leave processors without work."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """A cut, and what a product must be for it: so many blocks, and so many columns and terms at most."""

    cut: Cut
    blocks: int
    columns: int | None = None
    terms: int | None = None


_RULES = (
    _Rule(Cut(64, 16, (4, 4), 32, 2), 132, columns=16),
    _Rule(Cut(64, 32, (4, 4), 16), 132, terms=16),
    _Rule(USUAL, 192),
    _Rule(Cut(32, 32, (4, 4), 32, 4, 3), 64, terms=160),
    _Rule(Cut(32, 32, (4, 4), 64, 4), 64),
    _Rule(Cut(16, 32, (4, 4), 64, 8, 3), 64),
    _Rule(Cut(16, 16, (4, 4), 64, 16, 4), 90),
)
"""The first that fits is taken. Measured on an H200, 132 processors, for products of 49 to 12544 rows (`docs/decisions/small-products.md`)."""


EVERY = (*dict.fromkeys(r.cut for r in _RULES), LEAST)
"""The cuts of matrices that there are."""


def cut_of(rows: int | None, columns: int | None, batch: int | None, terms: int | None) -> Cut:
    """The cut of a product of so many rows, columns, products and terms; None is not known."""
    if rows is not None and rows < 4:
        return FEW
    if rows is None or columns is None or batch is None or terms is None:
        return USUAL
    for rule in _RULES:
        c = rule.cut
        fits = c.rows < 2 * rows and c.columns < 2 * columns and _most(columns, rule.columns) and _most(terms, rule.terms)
        if fits and -(-rows // c.rows) * -(-columns // c.columns) * batch >= rule.blocks:
            return c
    return LEAST


def within(cut: Cut, fits: Callable[[Cut], bool]) -> Cut:
    """A cut that fits: with fewer tiles or less deep ones, else another one."""
    less = cut
    while not fits(less) and (less.stages > 2 or less.each > 1):
        less = replace(less, stages=less.stages - 1) if less.stages > 2 else replace(less, depth=less.depth // 2)
    return less if fits(less) else next((c for c in EVERY if fits(c)), cut)


def _most(n: int, most: int | None) -> bool:
    return most is None or n <= most
