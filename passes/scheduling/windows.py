"""Stencils and gathers on a GPU: definitions whose neighbouring places read the same elements, or elements side by side.

A thread then computes a run of neighbouring places across a few neighbouring rows, written out, so that what they share is loaded and computed once, and
neighbours in memory move by one access.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

from pipelink_ir.ir.typed import Piece, TypedOperator
from pipelink_ir.passes.scheduling.costs import STORED, Costs, heavy
from pipelink_ir.passes.scheduling.counts import count
from pipelink_ir.passes.scheduling.shape import long_reductions
from pipelink_ir.passes.scheduling.uses import Lin, Use, uses_of

SMALL = 4
"""An axis of at most so many places is computed whole by one thread."""
WIDE = 16
"""Bytes that one access moves at most."""
MOST = 8
"""Neighbours that a thread computes at most."""
ROWS = 4
"""Rows that a thread computes at most."""
WORK = 6000.0
"""Cost of what is written out for one thread at most."""


@dataclass(frozen=True, slots=True)
class Window:
    """A thread computes `many` neighbours along the axis `across`, in `rows` neighbours along the axis `down` (-1: there is none), and all places of the
    axes `whole`."""

    across: int
    many: int
    down: int = -1
    rows: int = 1
    whole: tuple[int, ...] = ()


def window_of(op: TypedOperator, local: Callable[[str], bool], piece: Piece, chosen: Mapping[str, int] | None = None) -> Window | None:
    """How a piece is computed in runs, if its neighbours share what they read."""
    if not piece.axes or piece.holes or long_reductions(op, local, piece, chosen) or heavy(op, local, piece):
        return None
    sizes = [count(a) for a in piece.axes]
    whole = tuple(k for k, n in enumerate(sizes) if n is not None and n <= SMALL)
    others = [k for k in range(len(sizes)) if k not in whole]
    if not others or 0 in sizes:
        return None
    names = [a.index for a in piece.axes]
    uses = uses_of(piece, op.tensors, local, chosen or {}).uses
    across = others[-1]
    shared = [k for k in others if _offsets(uses, names[k]) > 1]
    if not shared and not any(_gathers(u, [names[k] for k in whole if sizes[k] != 1]) for u in uses):
        return None
    down = next((k for k in reversed(shared) if k != across), -1)
    small = min((op.tensors[u.tensor].dtype.bytes for u in uses), default=4)
    many = min(MOST, WIDE // max(small, 1)) if shared else 1
    rows = ROWS if down >= 0 else 1
    one = _cost(op, local, piece) * prod(sizes[k] or 1 for k in whole)
    while rows * many > 1 and one * rows * many > WORK:
        rows, many = (rows // 2, many) if rows > 1 else (1, many // 2)
    if many * rows == 1 and shared and len(whole) == 0:
        return None
    return Window(across, many, down if rows > 1 else -1, rows, whole)


def _offsets(uses: list[Use], name: str) -> int:
    """At how many different distances along an axis one tensor is read."""
    found: dict[str, set[tuple[object, ...]]] = {}
    for u in uses:
        for lin in u.at:
            if not lin.opaque and name in lin.names:
                rest = tuple(t for t in lin.terms if t[0] != name)
                if all(n.startswith("#") for n, _ in rest):
                    own = found.setdefault(u.tensor, set())
                    own.add((lin.constant, rest))
                    if rest:
                        # An index of a reduction that is written out stands for several distances.
                        own.add((lin.constant, rest, 1))
    return max(map(len, found.values()), default=0)


def _gathers(u: Use, whole: list[str]) -> bool:
    """Whether a read at a place that is computed takes neighbours in memory along a small axis."""
    last = u.at[-1] if u.at else Lin()
    return any(last.only(n) and any(lin.opaque for lin in u.at) and not any(n in lin.names for lin in u.at[:-1]) for n in whole)


def _cost(op: TypedOperator, local: Callable[[str], bool], piece: Piece) -> float:
    """What one place costs, with everything that is evaluated in it."""
    memo: dict[str, float] = {}

    def of(name: str) -> float:
        if not local(name):
            return STORED
        if name not in memo:
            memo[name] = STORED
            memo[name] = sum(costs.of(p.value) for p in op.tensors[name].pieces)
        return memo[name]

    costs = Costs(op, of)
    return costs.of(piece.value)
