"""Which definitions are transpositions: they read along another axis than they write."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pipelink_ir.ir.typed import Piece, TypedOperator
from pipelink_ir.passes.scheduling.counts import count
from pipelink_ir.passes.scheduling.shape import last_of, long_reductions
from pipelink_ir.passes.scheduling.uses import Use, uses_of

NARROW = 16
"""An axis with fewer places than this, if that is known, is not worth a square."""
MOST = 4
"""Tensors that pass through shared memory at once."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Reads that run along the axis `along` of the result in memory, while the result runs along its last one."""

    along: int
    reads: tuple[Use, ...]


def turn_of(op: TypedOperator, local: Callable[[str], bool], piece: Piece, chosen: Mapping[str, int] | None = None) -> Turn | None:
    """The transposition that a piece is, whatever else it computes."""
    rank = len(piece.axes)
    if rank < 2 or piece.holes or _narrow(piece, rank - 1) or long_reductions(op, local, piece, chosen):
        return None
    names = {a.index: k for k, a in enumerate(piece.axes)}
    found: dict[int, dict[tuple[object, ...], Use]] = {}
    for u in uses_of(piece, op.tensors, local, chosen or {}).uses:
        along = names.get(next(iter(last_of(u).names), ""), rank - 1)
        if along != rank - 1 and not _narrow(piece, along) and _plain(u, piece) and any(lin.only(piece.axes[-1].index) for lin in u.at):
            found.setdefault(along, {})[(u.tensor, u.at, u.access)] = u
    if not found:
        return None
    along = max(found, key=lambda k: len(found[k]))
    return Turn(along, tuple(found[along].values())[:MOST])


def _narrow(piece: Piece, k: int) -> bool:
    n = count(piece.axes[k])
    return n is not None and n < NARROW


def _plain(u: Use, piece: Piece) -> bool:
    """Whether each index of a read is an axis of its own, or a number, and always inside."""
    axes = [next(iter(lin.names)) for lin in u.at if lin.names]
    return (set(u.access) <= {"inside"} and len(set(axes)) == len(axes) and set(axes) <= {a.index for a in piece.axes}
            and all(not lin.opaque and (not lin.names or lin.only(next(iter(lin.names)))) for lin in u.at))
