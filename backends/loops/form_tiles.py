"""Statements of the loop form about sums that the warps of a block hold together, tile by tile (tensor cores), and about copies that run beside them."""
from __future__ import annotations

from dataclasses import dataclass

from pipelink_ir.backends.loops.form_expr import Expr
from pipelink_ir.ir.dtypes import DType


@dataclass(frozen=True, slots=True)
class Tiles:
    """How the warps of a block share a matrix of sums: `warps` down and across, each with `tiles` of 16 rows by 8 columns down and across. The factors hold
    `left` and `right` in memory; their products, which are exact, are added up in `sums`."""

    left: DType
    right: DType
    sums: DType
    warps: tuple[int, int]
    tiles: tuple[int, int]

    @property
    def rows(self) -> int:
        return self.warps[0] * self.tiles[0] * 16

    @property
    def columns(self) -> int:
        return self.warps[1] * self.tiles[1] * 8

    @property
    def threads(self) -> int:
        return 32 * self.warps[0] * self.warps[1]

    @property
    def slab(self) -> int:
        """Rows that a `StoreFragment` stores."""
        return self.warps[0] * 16

    def row(self, part: int, at: int) -> int:
        """The row of the matrix that is row `at` of part `part`."""
        return at // 16 * self.tiles[0] * 16 + part * 16 + at % 16


@dataclass(frozen=True, slots=True)
class Fragment:
    """A matrix of sums in the registers of the threads of a block, all zero at first. There are `tiles.tiles[0]` parts of it, of `tiles.slab` rows each."""

    name: str
    tiles: Tiles


@dataclass(frozen=True, slots=True)
class Factor:
    """A matrix in shared memory, from element `index` on: rows of the left factor or columns of the right one by terms. `along`: neighbours in memory are
    terms, else rows or columns. `pitch` elements lie between the beginnings of neighbouring lines, an odd number of times 16 bytes."""

    buffer: str
    index: Expr
    along: bool
    pitch: int


@dataclass(frozen=True, slots=True)
class Multiply:
    """All threads add the product of two factors of `depth` terms to a fragment, the terms in any order (tensor cores)."""

    fragment: str
    left: Factor
    right: Factor
    depth: int


@dataclass(frozen=True, slots=True)
class StoreFragment:
    """All threads store part `part` of a fragment to shared memory, in rows of `pitch` elements: row `r` of it is row `Tiles.row(part, r)` of the matrix."""

    fragment: str
    part: Expr
    buffer: str
    pitch: int


@dataclass(frozen=True, slots=True)
class Trade:
    """Four neighbouring threads of a warp trade what they have in scratch of their own: thread `q` of them gets elements `2 * q` and `2 * q + 1` of `source` of
    all four, in their order, as the eight elements of `target`. Of sixteen bytes it gets the elements from `4 * q` on, two of all four and then two more. Float
    values are rounded to the dtype of `target`, one or two bytes, on the way. All threads of a warp come to it together: it stands in loops of kind `each`,
    under no `If`."""

    target: str
    source: str
    count: int = 8


@dataclass(frozen=True, slots=True)
class CopyAsync:
    """A thread begins to copy 16 bytes of a buffer, from element `source` on, to shared memory; zeros where `inside` does not hold, and nothing is read. Both
    addresses are multiples of 16 bytes. The elements must not be touched before an `Await` for the copy, and by other threads before a `Barrier` after it."""

    buffer: str
    index: Expr
    origin: str
    source: Expr
    inside: Expr
    memory: DType


@dataclass(frozen=True, slots=True)
class Commit:
    """Each thread closes a group of the copies that it began since the last one."""


@dataclass(frozen=True, slots=True)
class Await:
    """Each thread waits until at most its last `pending` groups of copies are under way. `shown`: what it has written to shared memory before the next barrier
    is seen by tensor cores that read there by themselves."""

    pending: int
    shown: bool = False
