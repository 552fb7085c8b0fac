"""Rows that are much longer than the threads of a block can keep: several blocks share one, each reduces parts of it, and what the parts give is put together.

A reduction that looks at another is reduced once that is known, so there are as many rounds through a row as reductions wait for each other, and one for the
results. Blocks take parts in an order in which the rounds of a row follow each other soon, while it still lies in the cache.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pipelink_ir.ir.functions import REDUCTIONS
from pipelink_ir.ir.nodes import Expr, Range, Reduce
from pipelink_ir.ir.typed import Piece, TypedOperator
from pipelink_ir.passes.scheduling.counts import known, names, ranges_of
from pipelink_ir.passes.scheduling.risks import fails, risky
from pipelink_ir.passes.scheduling.rows import Job, row_length
from pipelink_ir.passes.scheduling.shape import Long, long_reductions
from pipelink_ir.passes.scheduling.uses import uses_of

ABOVE = 16384
"""Rows of more elements are long: 1024 threads have 16 of f32 each in registers."""
KINDS = frozenset(("sum", "mean", "max", "min"))
"""Reductions that are put together from those of parts."""


@dataclass(frozen=True, slots=True)
class LongRows:
    """Rows over the axes `outer`, `length` long. `rounds` are the reductions of each round, with the axis that each of their free names is; `open`: rows may
    turn out shorter. `begins`: the kernel that clears the counters by which blocks wait for each other."""

    outer: tuple[int, ...]
    length: Expr
    rounds: tuple[tuple[tuple[Reduce, tuple[tuple[str, int], ...]], ...], ...]
    open: bool
    begins: bool = False


def long_rows(op: TypedOperator, local: Callable[[str], bool], jobs: Sequence[Job], outer: tuple[int, ...]) -> LongRows | None:
    """How definitions over one box are computed by long rows; None if they are not, or are known to be shorter."""
    rank = len(jobs[0][1].axes)
    if outer not in (tuple(range(rank)), tuple(range(rank - 1))):
        return None
    longs = [r for _, p in jobs for r in long_reductions(op, local, p)]
    length = row_length(op, jobs, outer, longs)
    n = None if length is None else known(length)
    if length is None or (n is not None and n <= ABOVE):
        return None
    failing, strict = fails(op, local), op.empty is None
    if any(r.reduce.kind not in KINDS or r.reduce.where is not None or REDUCTIONS[r.reduce.kind].ranked or risky(r.reduce, failing, strict) for r in longs):
        return None
    written = {t.name for t, _ in jobs}
    uses = [uses_of(p, op.tensors, local) for _, p in jobs]
    if any(u.joined for u in uses) or any(u.tensor in written for found in uses for u in found.uses):
        return None
    rounds = _rounds(op, local, longs)
    return LongRows(outer, length, rounds, n is None)


def _rounds(op: TypedOperator, local: Callable[[str], bool], longs: Sequence[Long]) -> tuple[tuple[tuple[Reduce, tuple[tuple[str, int], ...]], ...], ...]:
    """The reductions, each in a round behind those that its terms look at."""
    at: dict[int, int] = {}
    out: list[list[tuple[Reduce, tuple[tuple[str, int], ...]]]] = []
    for r in longs:
        if id(r.reduce) in at:
            continue
        below = _below(op, local, r.reduce)
        at[id(r.reduce)] = k = 1 + max((at[i] for i in below if i in at), default=-1)
        if k == len(out):
            out.append([])
        out[k].append((r.reduce, tuple((r.plain or {}).items())))
    return tuple(map(tuple, out))


def _below(op: TypedOperator, local: Callable[[str], bool], x: Reduce) -> set[int]:
    """The reductions that the terms of one come to, by identity."""
    piece = Piece(tuple(Range(n, None, x.body) for n in sorted(names(x) | {r.index for r in ranges_of(x)})), x.body, (), x.span)
    return {id(r.reduce) for r in long_reductions(op, local, piece)}
