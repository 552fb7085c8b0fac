"""Which products a warp computes in strips of rows: many rows of few terms by few columns, as a 1x1 convolution has them. What they cost is their bytes.

A row is read once, 16 bytes at a time, straight to the registers that tensor cores multiply from, and stored so; the other factor lies in shared memory for
as long as a block lives. So the left factor must be read as it lies in memory, with terms side by side in whole lines of 16 bytes: a row has one line, or,
as a convolution of k x k pixels, one for each turn of the ranges before the last.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

from pipelink_ir.ir.dtypes import DType
from pipelink_ir.ir.nodes import Cast, FloatLit, IntLit, Name, Read
from pipelink_ir.ir.targets import Arch
from pipelink_ir.ir.typed import Piece, Tensor, TypedOperator
from pipelink_ir.passes.scheduling.counts import count, known, names, ranges_of
from pipelink_ir.passes.scheduling.products import Product, any_product_of
from pipelink_ir.passes.scheduling.tensor_cores import BYTES, HALVES, carriers, plain_read

MANY = 4096
"""Fewer rows than this, if that is known, are no strips."""
WEIGHTS = 40960
"""Bytes of the right factor that a block has room for."""
HELD = 80
"""Words that a lane may hold of all lines of its rows."""
GATHERED = 40
"""Terms of a row that may be put together of single elements."""
AT_A_TIME = 64
"""Columns that are computed at a time: more take registers."""


@dataclass(frozen=True, slots=True)
class Strips:
    """A product in strips. `columns` are computed at a time, so that a lane has `2 * group` neighbours; a row has `lines` lines of `bytes` bytes."""

    product: Product
    left: DType
    right: DType
    columns: int
    group: int
    lines: int
    bytes: int
    parts: int = 1
    gathered: bool = False
    """A row has one line, which is put together of single elements: its terms do not lie side by side, or are no whole lines."""

    @property
    def instruction(self) -> str:
        """The instruction that does the work."""
        return f"mma.sync m16n8k{32 // self.left.bytes}"


def strips_of(op: TypedOperator, local: Callable[[str], bool], tensor: Tensor, piece: Piece, chosen: Mapping[str, int] | None = None,
              arch: Arch | None = None) -> Strips | None:
    """How strips compute a piece; None where they do not."""
    p = any_product_of(op, local, piece, chosen)
    if p is None or not p.rows or p.reduce.where is not None or p.batch or piece.holes or p.columns != (len(piece.axes) - 1,):
        return None
    held = carriers(op, local, p, arch)
    read, ranges, n = plain_read(p.left), ranges_of(p.reduce), count(piece.axes[-1])
    if isinstance(held, str) or read is None or local(read.tensor) or n is None or n < 1 or not _whole(tensor, piece, n):
        return None
    first, second = held
    rows = [count(piece.axes[k]) for k in p.rows]
    if None not in rows and prod(r for r in rows if r is not None) < MANY:
        return None
    left, turns = op.tensors[read.tensor], [count(r) for r in ranges]
    if left.dtype is not first or first.name not in (*BYTES, *HALVES) or any(t is None for t in turns):
        return None
    size, lines = (turns[-1] or 0) * left.dtype.bytes, prod(t for t in turns[:-1] if t is not None)
    gathered = size % 16 != 0 or not lines_in_memory(left, read, p)
    if gathered:
        terms, lines = prod(t for t in turns if t is not None), 1
        size = -(-terms * left.dtype.bytes // 32) * 32
        if terms > GATHERED or not all(w in ("", "inside", "border") for w in read.access):
            return None
    columns = next((c for c in (AT_A_TIME, 48, 32, 24, 16, 8) if n % c == 0), min(AT_A_TIME, -(-n // 8) * 8))
    together = max(1, 8 // tensor.dtype.bytes)
    group = next(g for g in (8, 4, 2, 1) if g <= together and columns % (8 * g) == 0)
    words = 4 * (size // 64) + 2 * (size % 64 // 32) + 2 * (size % 32 // 16)
    if size == 0 or size % 16 or lines * words * 16 * (-(-n // columns) * columns) > WEIGHTS or 2 * lines * words > HELD:
        return None
    return Strips(p, first, second, columns, group, lines, size, gathered=gathered)


def _whole(t: Tensor, piece: Piece, n: int) -> bool:
    """Whether the columns are all of the last axis of the result."""
    low, high = t.shape[-1]
    return known(piece.axes[-1].lo) == known(low) == 0 and known(high) == n


def lines_in_memory(t: Tensor, read: Read, p: Product) -> bool:
    """Whether the last index of a read is the last range of the sum, from 0 on, and all of that axis; elsewhere it may be outside where there are zeros."""
    last, r = read.indices[-1], ranges_of(p.reduce)[-1]
    low, high = t.shape[-1]
    if not (isinstance(last, Name) and last.name == r.index and known(r.lo) == known(low) == 0 and known(high) == known(r.hi) is not None):
        return False
    words = read.access or ("",) * len(read.indices)
    if any(r.index in names(i) for i in read.indices[:-1]) or any(isinstance(i, Read) for i in read.indices):
        return False
    return all(w in ("", "inside") or (w == "border" and k < len(words) - 1 and zero_around(t, k)) for k, w in enumerate(words))


def zero_around(t: Tensor, k: int) -> bool:
    """Whether there are zeros around an axis."""
    border = t.border[k]
    value = border.value if border is not None and border.mode == "constant" else None
    while isinstance(value, Cast) and value.implicit:
        value = value.arg
    return isinstance(value, IntLit | FloatLit) and value.value == 0
