"""Products of few rows: what they cost is the bytes of the other factor, each of which is read once.

The warps of a block share the terms, and its columns are few: 16 bytes of a column at a time go to the registers of a lane, become what tensor cores multiply,
codes and scales or whatever it is, and meet the terms of at most 16 rows. So the right factor must have its terms side by side in memory: one of its reads has
an index that is the term, or the term divided by two, four or eight where as many codes share a byte. Halves may have their columns side by side instead: then
a lane reads 16 bytes of eight terms, wherever these begin.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pipelink_ir.ir.dtypes import DType
from pipelink_ir.ir.nodes import Expr, IntLit, Name, Read, Reduce
from pipelink_ir.ir.targets import Arch
from pipelink_ir.ir.typed import Piece, Tensor, TypedOperator
from pipelink_ir.ir.walk import children, substitute, walk
from pipelink_ir.passes.scheduling.coded import Coded, coded_of
from pipelink_ir.passes.scheduling.counts import count, known, names, ranges_of
from pipelink_ir.passes.scheduling.products import Product, any_product_of
from pipelink_ir.passes.scheduling.streams import Streamed, shared_by, streamed_of
from pipelink_ir.passes.scheduling.strips import lines_in_memory
from pipelink_ir.passes.scheduling.tensor_cores import BYTES, HALVES, TensorCores, carriers, plain_read, tensor_cores_of

MOST = 16
"""Rows that are few."""
LEAST = 64
"""Fewer terms are not worth warps that share them."""
MOST_SHARED = 8
"""Terms that may share an element of what is read once; of what more share, there is less."""
CHUNK = 16
"""Bytes that a lane reads of a column at a time."""
TERMS = 8
"""Terms that a lane reads at a time where columns lie side by side."""


@dataclass(frozen=True, slots=True)
class Few:
    """A product of few rows. `stream` is the tensor whose bytes are read once, at `place`, `shared` terms in one element. `rows` is their number, if that is
    known, else `length` says it, and `otherwise` computes more."""

    product: Product
    left: DType
    right: DType
    stream: str
    place: tuple[Expr, ...]
    shared: int
    rows: int | None
    length: Expr
    otherwise: Streamed | TensorCores | None = None
    coded: Coded | None = None
    """What the factor makes of the bytes, if they are codes."""
    across: bool = False
    """Whether columns lie side by side."""
    uneven: bool = False
    """Whether lines of columns do not follow each other at multiples of 16 bytes, so that they are read element by element."""

    @property
    def instruction(self) -> str:
        """The instruction that does the work."""
        return f"mma.sync m16n8k{32 // self.left.bytes}"


def few_of(op: TypedOperator, local: Callable[[str], bool], tensor: Tensor, piece: Piece, chosen: Mapping[str, int] | None = None,
           arch: Arch | None = None) -> Few | None:
    """How a product of few rows is computed; None if it is none, or cannot be."""
    p = any_product_of(op, local, piece, chosen)
    if p is None or p.reduce.where is not None or p.batch or piece.holes or p.columns != (len(piece.axes) - 1,) or len(p.rows) > 1:
        return None
    rows = count(piece.axes[p.rows[0]]) if p.rows else 1
    terms = [count(r) for r in ranges_of(p.reduce)]
    found = carriers(op, local, p, arch)
    if (rows is not None and not 0 < rows <= MOST) or len(terms) != 1 or terms[0] is None or terms[0] < LEAST or isinstance(found, str):
        return None
    left, right = found
    read = plain_read(p.left)
    if read is None or local(read.tensor) or op.tensors[read.tensor].dtype is not left or not lines_in_memory(op.tensors[read.tensor], read, p):
        return None
    if left.bytes != right.bytes or left.name not in (*BYTES, *HALVES) or (left.is_float and op.exact):
        return None
    seen = _Stream(op, local, ranges_of(p.reduce)[0].index, {})
    if not seen.look(p.right, {}) or len(seen.found) != 1:
        across = _across(op, local, p, piece) if rows is not None and right.name in HALVES and terms[0] % TERMS == 0 else None
        if across is None:
            return None
        uneven = count(piece.axes[p.columns[0]]) % (CHUNK // right.bytes) != 0  # type: ignore[operator]
        return Few(p, left, right, across.tensor, across.indices, 1, rows, IntLit(rows or 0), across=True, uneven=uneven)
    name, (place, shared) = next(iter(seen.found.items()))
    each = CHUNK // op.tensors[name].dtype.bytes * shared
    if terms[0] % each:
        return None
    length = piece.axes[p.rows[0]].hi if p.rows else None
    coded = coded_of(op, local, p.right, right, name, ranges_of(p.reduce)[0].index, each)
    if rows is not None:
        return Few(p, left, right, name, place, shared, rows, IntLit(rows), coded=coded)
    if length is None or plain_read(p.right) is not None or known(piece.axes[p.rows[0]].lo) != 0:
        return None
    otherwise = streamed_of(op, local, tensor, piece, chosen, arch) or tensor_cores_of(op, local, piece, chosen, arch)
    return None if otherwise is None else Few(p, left, right, name, place, shared, None, length, otherwise, coded)


def _across(op: TypedOperator, local: Callable[[str], bool], p: Product, piece: Piece) -> Read | None:
    """The read that a right factor is, if its columns lie side by side, all of them, and its terms elsewhere."""
    read = plain_read(p.right)
    if read is None or local(read.tensor) or any(w not in ("", "inside") for w in read.access):
        return None
    t, axis, term = op.tensors[read.tensor], p.columns[0], ranges_of(p.reduce)[0]
    *others, last = read.indices
    low, high = (known(bound) for bound in t.shape[-1])
    begin, end = known(piece.axes[axis].lo), known(piece.axes[axis].hi)
    whole = (low, begin) == (0, 0) and high is not None and high == end and high >= CHUNK // t.dtype.bytes
    at = [i for i in others if term.index in names(i)]
    plain = isinstance(last, Name) and p.plain.get(last.name) == axis and at == [Name(term.index)] and known(term.lo) == 0
    return read if whole and plain and not any(isinstance(y, Read) for i in others for y in walk(i)) else None


@dataclass(slots=True)
class _Stream:
    """Looks for the one tensor that a factor reads along lines of terms. `term` is the index of the sum; `found` has the places that are read and how many
    terms share an element."""

    op: TypedOperator
    local: Callable[[str], bool]
    term: str
    found: dict[str, tuple[tuple[Expr, ...], int]]

    def look(self, x: Expr, put: Mapping[str, Expr]) -> bool:
        """Whether nothing else than arithmetic stands there, and each such tensor is read in one way. `put` are the indices of a local as those of the sum."""
        if not isinstance(x, Read):
            return not isinstance(x, Reduce) and all(self.look(c, put) for c in children(x))
        t, at = self.op.tensors[x.tensor], tuple(substitute(i, put) for i in x.indices)
        if any(isinstance(y, Read) for i in at for y in walk(i)):
            return False
        if self.local(x.tensor):
            piece = t.pieces[0]
            return len(t.pieces) == 1 and not piece.holes and self.look(piece.value, {a.index: i for a, i in zip(piece.axes, at, strict=True)})
        if not at or self.term not in names(at[-1]):
            return True
        shared = shared_by(at[-1], self.term)
        if shared is None or shared > MOST_SHARED:
            return shared is not None
        alone = not any(self.term in names(i) for i in at[:-1]) and all(w in ("", "inside") for w in x.access)
        low, high = (known(bound) for bound in t.shape[-1])
        even = low == 0 and high is not None and high * t.dtype.bytes % CHUNK == 0 and t.dtype.bytes <= 2
        return alone and even and self.found.setdefault(x.tensor, (at, shared)) == (at, shared)
