"""The statement of the loop form about windows of a picture: the sums that a warp computes of a tile of it, which lies in shared memory (tensor cores).

A tile has rows of pixels, a pixel has its channels side by side. A warp computes some pixels of one row of the result, or of `rows` rows at once: then each of
them has columns of its own, and what a row of the tile adds is kept apart, so that no row of the result has a part in what lies outside of its window.

Pixels that have channels in whole 32 bytes (`pixel`) are read 16 bytes at a time, by `ldmatrix`; behind each `apart` pixels of a row 16 bytes are left free, so
that what is read at a time lies in different banks. Others (`run`) are gathered: what the window of a pixel has of a row lies side by side, and is read `unit`
elements at a time; `lead` elements before it belong to others.

On sm_90a four warps let their tensor cores read both factors from shared memory (`plane`).
"""
from __future__ import annotations

from dataclasses import dataclass

from pipelink_ir.backends.loops.form_expr import Expr
from pipelink_ir.ir.dtypes import DType

CHUNK, WORD, LINE = 16, 4, 32
"""Bytes of a chunk, of a word, and of the terms of one instruction."""


@dataclass(frozen=True, slots=True)
class Window:
    """How a warp multiplies: `parts` times 16 pixels side by side, `tiles` times 8 columns. The rows of the tile that it reads are `down[1]` apart, `down[0]`
    of them; of each the pixels `across` likewise; pixels of the result are `step` pixels of the tile apart (elements, where terms are gathered). `pitch` bytes
    lie between the beginnings of rows."""

    left: DType
    right: DType
    sum: DType
    parts: int
    tiles: int
    down: tuple[int, int]
    across: tuple[int, int]
    step: int
    pitch: int
    pixel: int = 0
    rows: int = 1
    columns: int = 1
    taps: int = 1
    run: int = 0
    lead: int = 0
    unit: int = 1
    start: int = 0
    """What sums begin with."""
    plane: int = 0
    """Four warps beside each other compute 64 pixels together (wgmma), if it is not 0: then a tile has planes of 16 bytes of each pixel, so many bytes
    apart."""

    @property
    def gathered(self) -> bool:
        """Whether terms are gathered."""
        return self.run > 0

    @property
    def apart(self) -> int:
        """Pixels behind which 16 bytes are free."""
        return self.step * 2 * self.parts

    @property
    def each(self) -> int:
        """Elements that a row of the tile adds to the terms of a pixel, with those that belong to others."""
        return -(-(self.lead + self.run) // self.unit) * self.unit

    @property
    def steps(self) -> int:
        """Instructions that it takes for all terms of a tile of 16 x 8."""
        if self.gathered:
            return -(-self.down[0] * self.each * self.left.bytes // LINE)
        return self.down[0] * self.across[0] * (self.pixel // LINE)

    @property
    def sums(self) -> int:
        """Sums of each lane: of part `i`, tile `j`, half `h` of 16 pixels and column `e` of two the number `4 * (i * tiles + j) + 2 * h + e`."""
        return 4 * self.parts * self.tiles

    @property
    def own(self) -> int:
        """Columns of each lane: side by side, `own` times a quarter of the lane and so many; those of `rows / 4` rows where there are several."""
        return 2 * self.tiles

    @property
    def shared(self) -> int:
        """Bytes of shared memory that the right factor takes."""
        return self.steps * self.tiles * 256

    def chunks(self, columns: int) -> int:
        """Chunks of so many pixels of a row, with those that are free."""
        return columns * (self.pixel // CHUNK) + (columns - 1) // self.apart

    def pixel_of(self, part: int, half: int) -> tuple[int, int]:
        """The pixel that a lane has in half `half` of part `part`: (factor of a quarter of the lane, constant)."""
        return (1, 16 * part + 8 * half) if self.gathered or self.plane else (2 * self.parts, 2 * part + half)


@dataclass(frozen=True, slots=True)
class WindowMultiply:
    """The lanes of a warp make `sums` the products of pixels of `tile` with the right factor, which lies in shared memory from element `index` of `weights` on,
    as `Window` says. The first row that they read begins at element `at` of the tile, the first pixel is pixel `column` of it. All lanes of a warp come to it
    together, as to a `StripMultiply`."""

    sums: str
    tile: str
    at: Expr
    column: Expr
    weights: str
    index: Expr
    window: Window
