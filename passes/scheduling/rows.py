"""Rows that a few lanes of a warp are enough for: reductions along the last axis of what is read, none of more than some hundred terms.

Where their length is not known, one of two kernels has something to do, by the length of a call: that of short rows, or that whose blocks have a row each.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipelink_ir.ir.functions import REDUCTIONS
from pipelink_ir.ir.nodes import Expr
from pipelink_ir.ir.typed import Piece, Tensor, TypedOperator
from pipelink_ir.passes.scheduling.counts import known, ranges_of
from pipelink_ir.passes.scheduling.shape import SERIAL, Long, Shape, long_reductions, reads_of, shape_of, sized
from pipelink_ir.passes.scheduling.uses import Lin, Use, uses_of

if TYPE_CHECKING:
    from pipelink_ir.passes.scheduling.long_rows import LongRows

LANES = 32
"""Threads that a short row has at most."""
EACH = 8
"""Elements of rows that a thread holds."""
KEPT = 2
"""Tensors whose rows are held at once."""
LEAST = 4
"""Reductions of so few terms are no rows."""
ROW = "row"
"""The name of the place in a row."""
Job = tuple[Tensor, Piece]


@dataclass(frozen=True, slots=True)
class Span:
    """Lengths above one and up to another."""

    length: Expr
    above: int
    most: int | None = None


@dataclass(frozen=True, slots=True)
class ShortRows:
    """Rows over the axes `outer`, `length` long. A thread has up to `each` elements of one in `kept` reads; `open`: rows may turn out longer."""

    outer: tuple[int, ...]
    length: Expr
    kept: tuple[Use, ...]
    each: int
    open: bool

    @property
    def most(self) -> int:
        """The longest row."""
        return LANES * self.each


def short_rows(op: TypedOperator, local: Callable[[str], bool], jobs: Sequence[Job], outer: tuple[int, ...],
               chosen: Mapping[str, int] | None = None) -> ShortRows | None:
    """How definitions over one box are computed by short rows, one for each place of their axes `outer`; None if they are not."""
    rank = len(jobs[0][1].axes)
    if chosen or outer not in (tuple(range(rank)), tuple(range(rank - 1))):
        return None
    longs = along_rows(op, local, jobs)
    length = row_length(op, jobs, outer, longs)
    uses = [uses_of(p, op.tensors, local) for _, p in jobs]
    written = {t.name for t, _ in jobs}
    if length is None or any(u.joined for u in uses) or any(u.tensor in written for found in uses for u in found.uses):
        return None
    found: dict[Use, None] = {}
    for r in longs:
        axes = {**{n: f"{k}" for n, k in (r.plain or {}).items()}, "#1": ROW}
        for u in reads_of(op, local, r.reduce, r.plain or {}):
            along = along_row(u, axes)
            if along is not None and op.tensors[u.tensor].kind != "result":
                found[along] = None
    if not 1 <= len(found) <= KEPT:
        return None
    each = EACH // len(found)
    n = known(length)
    if n is not None and not 0 < n <= LANES * each:
        return None
    return ShortRows(outer, length, tuple(found), each, n is None)


def alone(op: TypedOperator, local: Callable[[str], bool], jobs: Sequence[Job], rows: ShortRows) -> bool:
    """Whether nothing is read but the rows, of elements of 4 bytes."""
    kept = {u.tensor for u in rows.kept}
    return all(op.tensors[n].dtype.bytes == 4 for n in kept) and all(u.tensor in kept for _, p in jobs for u in uses_of(p, op.tensors, local).uses)


def along_rows(op: TypedOperator, local: Callable[[str], bool], jobs: Sequence[Job]) -> list[Long]:
    """The reductions that rows are for: long ones, or where there are none those that are not very short."""
    for most in (SERIAL, LEAST - 1):
        found = [r for _, p in jobs for r in long_reductions(op, local, p, None, most)]
        if found:
            return found
    return []


def row_length(op: TypedOperator, jobs: Sequence[Job], outer: tuple[int, ...], longs: Sequence[Long]) -> Expr | None:
    """What all reductions run over, and the last axis of the results if that is inside a row."""
    found: list[Expr] = []
    for r in longs:
        rule, ranges = REDUCTIONS[r.reduce.kind], ranges_of(r.reduce)
        if rule.ranked or rule.empty == "error" or len(ranges) != 1 or known(ranges[0].lo) != 0 or r.plain is None or not set(r.plain.values()) <= set(outer):
            return None
        found.append(ranges[0].hi)
    for _, piece in jobs if len(outer) < len(jobs[0][1].axes) else ():
        if piece.holes or known(piece.axes[-1].lo) != 0:
            return None
        found.append(piece.axes[-1].hi)
    return found[0] if found and all(x == found[0] for x in found) and sized(found[0], op) else None


def along_row(u: Use, axes: Mapping[str, str]) -> Use | None:
    """A read of neighbours in memory along the row, by the numbers of axes: the row is its last index, and nothing else is."""
    if not u.at or not set(u.access) <= {"inside"} or any(lin.opaque or not lin.names <= set(axes) for lin in u.at):
        return None
    at = tuple(Lin(lin.constant, tuple(sorted((axes[n], c) for n, c in lin.terms))) for lin in u.at)
    return Use(u.tensor, at, u.access) if at[-1].only(ROW) and not any(ROW in lin.names for lin in at[:-1]) else None


def is_run(t: Tensor, use: Use | None, piece: Piece, way: ShortRows | LongRows) -> bool:
    """Whether rows that follow each other are one run of a tensor's memory, where it is read or, without a `use`, written."""
    if use is not None and not (len(use.at) == len(way.outer) + 1 and all(lin.only(f"{k}") for k, lin in enumerate(use.at[:-1]))):
        return False
    ends = [*(piece.axes[k].hi for k in way.outer), way.length]
    return all(known(piece.axes[k].lo) == 0 for k in way.outer) and all(known(lo) == 0 and hi == end for (lo, hi), end in zip(t.shape, ends, strict=True))


def blocks_of(op: TypedOperator, local: Callable[[str], bool], job: Job, chosen: Mapping[str, int] | None = None) -> Shape | None:
    """The axes of a definition that have a block, or rows of one, for each place; None if a thread computes one by itself. Reductions too short for a block are
    worth it where all places along a row have them in common."""
    shape, rank = shape_of(op, local, job[1], chosen), len(job[1].axes)
    if shape.kind == "block":
        return shape
    few = Shape("block", tuple(range(rank - 1)))
    return few if op.reduces and rank > 1 and short_rows(op, local, [job], few.axes, chosen) is not None else None
