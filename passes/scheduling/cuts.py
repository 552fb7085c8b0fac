"""How a product of matrices is cut into tiles for threads that multiply and add: chosen by what is known of its sizes.

A small product has few tiles, and a GPU that is not full waits. So tiles get smaller, and the threads of a block share the terms of a sum, in `groups`; each
group adds up its own and the groups' sums are added in their order.
"""
from __future__ import annotations

from dataclasses import dataclass

PROCESSORS = 132
"""Processors of the GPU that is reckoned with."""
CLOCKS = 1700.0
"""Clock cycles of a microsecond."""


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


USUAL = Cut(64, 64, (4, 4), 16)
"""Where nothing is known."""
CUTS = (
    Cut(128, 128, (8, 8), 16),
    USUAL,
    Cut(64, 32, (4, 4), 32, 2),
    Cut(32, 64, (4, 4), 32, 2),
    Cut(64, 16, (4, 4), 32, 2),
    Cut(32, 32, (4, 4), 64, 4),
    Cut(32, 16, (4, 4), 64, 8),
    Cut(16, 32, (4, 4), 64, 8),
    Cut(16, 16, (4, 4), 64, 16),
    Cut(8, 16, (4, 4), 128, 32),
    Cut(8, 8, (4, 4), 256, 64),
)
FEW = Cut(1, 16, (1, 4), 256, 64)
"""For rows that are too few for a matrix."""


def cut_of(rows: int | None, columns: int | None, batch: int | None, terms: int | None) -> Cut:
    """The cut of a product of so many rows, columns, products and terms; None is not known."""
    if rows is not None and rows < 4:
        return FEW
    if rows is None or columns is None or batch is None or terms is None:
        return USUAL
    return min(CUTS, key=lambda c: _time(c, rows, columns, batch, terms))


def _time(c: Cut, rows: int, columns: int, batch: int, terms: int) -> float:
    """About how many microseconds a cut takes."""
    blocks = -(-rows // c.rows) * -(-columns // c.columns) * batch
    # Registers and shared memory let a processor have so many blocks at once.
    together = max(1, min(1024 // c.threads, 8))
    full = -(-blocks // (PROCESSORS * together))
    at_once = min(together, -(-blocks // PROCESSORS))
    steps = -(-terms // c.depth)
    padded = steps * c.depth
    adding = c.rows * c.columns * padded / 128 * (1.5 if c.side == (4, 4) else 1.15)
    loading = (c.rows + c.columns) * padded * 4 / 48
    # A step of one block waits for memory and for its threads, which other blocks fill.
    waiting = 900 + steps * 250 + c.groups * 12
    return full * max(at_once * max(adding, loading), waiting) / CLOCKS
