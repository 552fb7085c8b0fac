"""Statements of the loop form about strips: 16 rows of a product that one warp computes, its factor straight from a buffer in registers (tensor cores).

A line is what one row has of the terms that lie side by side: `bytes` of them, a multiple of 16. Four neighbouring lanes share it, 16 bytes each of every
64, 8 of what is left of 32, 4 of what is left of 16: so a line is read by whole accesses, and which terms a lane has does not matter as long as the right
factor is dealt out alike (`Strip.spot`). Columns are dealt out so that a lane has `2 * Strip.group` neighbours of each row (`Strip.column`).
"""
from __future__ import annotations

from dataclasses import dataclass

from pipelink_ir.backends.loops.form_expr import Expr
from pipelink_ir.ir.dtypes import DType


@dataclass(frozen=True, slots=True)
class Strip:
    """How a warp multiplies: `parts` times 16 rows, by `columns` at a time, over `lines` lines of `bytes` of terms each. A lane has rows `lane / 4` and 8 below
    of each part."""

    left: DType
    right: DType
    sum: DType
    parts: int
    columns: int
    group: int
    lines: int
    bytes: int

    @property
    def words(self) -> int:
        """Words of 4 bytes that a lane has of a line."""
        return 4 * (self.bytes // 64) + 2 * (self.bytes % 64 // 32) + 2 * (self.bytes % 32 // 16)

    @property
    def steps(self) -> int:
        """Instructions that it takes for all terms of a tile of 16 x 8: 32 bytes of terms each."""
        return self.lines * self.words // 2

    @property
    def sums(self) -> int:
        """Sums of each lane: of part `i`, tile `j`, row `h` of two and column `e` of two the number `4 * (i * columns / 8 + j) + 2 * h + e`."""
        return self.parts * self.columns // 2

    @property
    def held(self) -> int:
        """Words that a lane has of all its lines: of row `h` of part `i` and line `n` from `((2 * i + h) * lines + n) * words` on."""
        return 2 * self.parts * self.lines * self.words

    def column(self, lane: int, tile: int, e: int) -> int:
        """The column of a sum among those that are computed at a time."""
        wide = 8 * self.group
        return tile // self.group * wide + lane % 4 * 2 * self.group + tile % self.group * 2 + e

    def shared(self, columns: int) -> int:
        """Bytes of shared memory that the right factor takes."""
        return columns // 8 * self.steps * 256


@dataclass(frozen=True, slots=True)
class StripLine:
    """The lanes of a warp take their parts of a line each, of the row that each of them has: from element `index` of `buffer` on, zeros where `inside` does not
    hold. They are words of `words` from `at` on, a constant. `wide`: lines begin at multiples of 16 bytes."""

    words: str
    at: int
    buffer: str
    index: Expr
    inside: Expr
    strip: Strip
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Words:
    """A thread takes `bytes` bytes, a multiple of 16, of a buffer, from element `index` on, wherever they begin or, if they are `wide`, at a multiple of 16.
    They are words of its scratch `words` from `at` on, a constant."""

    words: str
    at: int
    buffer: str
    index: Expr
    bytes: int
    memory: DType
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Pack:
    """Elements of a thread's own scratch `source`, `bytes` bytes, as words of its scratch `words` from `at` on, a constant."""

    words: str
    at: int
    source: str
    bytes: int


@dataclass(frozen=True, slots=True)
class FewMultiply:
    """The lanes of a warp add products of at most 16 rows and 8 columns to `sums`, from number `at` on, four for each: of rows `lane / 4` and, if there are
    two `halves`, 8 below, with columns `2 * (lane % 4)` and one beside. A lane has `terms` terms of its rows, in `words`, and as many of column `lane / 4`,
    in `values`: those of four neighbouring lanes are all. Those of the column are of its dtype, or f32 that are rounded to it; or words of `packed`
    elements, as they are or bytes whose numbers the dtype has, or two integers of four bits in each (`nibbles`), which are multiplied by `scale` in f32, if
    there is one. `across`: a lane has 16 bytes of columns from `(lane / 4) * 8` on for each of its terms, and there are 64 columns: those of number `j` in the
    eight of each lane have sums from `4 * j` on. All lanes of a warp come to it together, as to a `StripMultiply`."""

    sums: str
    at: int
    words: str
    values: str
    left: DType
    right: DType
    halves: int
    terms: int
    packed: DType | None = None
    nibbles: bool = False
    scale: tuple[Expr, ...] = ()
    across: bool = False


@dataclass(frozen=True, slots=True)
class StripMultiply:
    """The lanes of a warp make `sums` the products of what they hold in `words` with `Strip.columns` columns of the right factor, which lies in shared memory
    from element `index` on, as `Strip` says. All lanes of a warp come to it together: it stands in loops of kind `each`, under no `If`."""

    sums: str
    words: str
    weights: str
    index: Expr
    strip: Strip
