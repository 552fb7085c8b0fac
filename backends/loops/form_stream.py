"""The statement of the loop form that is a product streaming through shared memory, by the copy engine and the matrix instructions of warpgroups (sm_90a)."""
from __future__ import annotations

from dataclasses import dataclass

from pipelink_ir.backends.loops.form_expr import Expr
from pipelink_ir.ir.dtypes import DType


@dataclass(frozen=True, slots=True)
class Ring:
    """How a product streams through shared memory (sm_90a). The threads of a block are a team of 128, which computes `m` times 64 rows by `n` columns at a
    time; the emitter puts `teams` of them into one block of the device, which take turns to multiply, and threads that feed them: `stages` tiles of 128 bytes
    of terms of both factors are there or on their way. `along`: whether neighbours in the memory of a factor are terms. `short`: so many instructions (of four
    for 128 bytes) are added up with the few bits that they have for sums, and then in f32; the teams then take the tiles that follow each other, whose rows do
    as well, and all multiply at once. `beside`: so many blocks run beside each other on a processor."""

    left: DType
    right: DType
    sum: DType
    m: int
    n: int
    along: tuple[bool, bool]
    teams: int = 2
    stages: int = 5
    short: int = 0
    beside: int = 1

    @property
    def rows(self) -> int:
        return 64 * self.m

    @property
    def sums(self) -> int:
        """Sums of each thread."""
        return self.m * self.n // 2

    @property
    def shared(self) -> int:
        """Bytes of shared memory, as `prelude/stream.cuh` counts them."""
        return 1024 + self.stages * (self.rows * (self.teams if self.short else 1) + self.n) * 128 + 256 + 16 * self.stages + 8 * self.teams

    def place(self, thread: int, number: int) -> tuple[int, int]:
        """The row and the column of sum `number` of a thread."""
        n = number % (self.n // 2)
        lane = thread % 32
        return number // (self.n // 2) * 64 + thread // 32 * 16 + lane // 4 + n % 4 // 2 * 8, n // 4 * 8 + lane % 4 * 2 + n % 2


@dataclass(frozen=True, slots=True)
class Boxes:
    """How a picture is a factor: each tile has the pixels of a box of the result as lines, so many of them. Their
    terms are the `channels` of each of the pixels around `step` times a pixel plus `begin`, `apart` from each other, `taps` a row. Pairs: across and down."""

    channels: int
    pixels: int
    taps: int
    step: tuple[int, int]
    apart: tuple[int, int]
    begin: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Panel:
    """A factor as it lies in a buffer, from its first element on: elements along three axes, the fastest first, and how many lie from one place to the next
    along the second and the third, multiples of 16 bytes. What lies outside is zero. Of the first two axes one counts terms and one lines; the third is the
    batch. Where `moved` holds, it lies so in the buffer `other` instead. Of a picture in `boxes` the sizes are its pixels across and down, the pictures, the
    boxes across and down, and the pixels across and down and the pictures of a box; `steps` are elements from one row, and from one picture, to the next."""

    buffer: str
    sizes: tuple[Expr, ...]
    steps: tuple[Expr, Expr]
    other: str
    moved: Expr
    boxes: Boxes | None = None


@dataclass(frozen=True, slots=True)
class Contract:
    """Each thread of a team gets in its own scratch `sums`, which loops of kind `each` alone read, the sums of its places (`Ring.place`) of a tile: of all
    products of line `row + i` of the left factor and line `column + j` of the right one. `maps` are 32 i64 of memory for each block and 16 more. Stands once
    in a kernel, in the body of its `block` loop itself; what it says of the panels is known before that loop."""

    sums: str
    ring: Ring
    left: Panel
    right: Panel
    terms: Expr
    row: Expr
    column: Expr
    batch: Expr
    maps: str
