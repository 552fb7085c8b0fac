"""Stencils and gathers on a GPU: definitions whose neighbouring places read the same elements, or elements side by side.

A thread then computes a run of neighbouring places across a few neighbouring rows, written out, so that what they share is loaded and computed once, and
neighbours in memory move by one access.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

from pipelink_ir.ir.dtypes import I8, U8
from pipelink_ir.ir.nodes import Apply, Read, Reduce
from pipelink_ir.ir.typed import Piece, TypedOperator
from pipelink_ir.ir.walk import walk
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
ROWS = 8
"""Rows that a thread computes at most."""
WORK = 6000.0
"""Cost of what is written out for one thread at most."""
THREADS = 128
"""Threads of a block that slide runs down rows: where one is done another begins, so smaller blocks leave less of a multiprocessor without work."""
FIT = 4
"""So many such blocks should fit a multiprocessor. It is told so that each thread takes the registers that are its own: loads begin earlier in them."""
KEPT = 96
"""Values that a thread may keep from row to row for that."""
FIT_PAIRS = 3
"""The same where a thread has pairs of neighbours, whose sums are of products of bytes."""
BY_FOURS = 0.4
"""What sums of products of bytes cost of what is counted for them: four are one operation."""
NARROW, TALL = 2, 16
"""Bytes of numbers at most, of which a thread computes so many rows."""
LYING = 4
"""Channels of a thread at most, if those of a place lie side by side: each needs the values of all columns."""
BUSY = 32768
"""So many threads keep a GPU busy: a thread that computes several rows must leave enough for others to do."""


@dataclass(frozen=True, slots=True)
class Window:
    """A thread computes `many` neighbours along the axis `across`, in `rows` neighbours along the axis `down` (-1: there is none), each of `pair` neighbours
    along the axis `beside` (-1: there is none), and all places of the axes `whole`."""

    across: int
    many: int
    down: int = -1
    rows: int = 1
    whole: tuple[int, ...] = ()
    threads: int = 0
    """Threads of a block, and …"""
    fit: int = 0
    """… how many blocks a multiprocessor should hold; 0 leaves it open."""
    beside: int = -1
    pair: int = 1


def window_of(op: TypedOperator, local: Callable[[str], bool], piece: Piece, chosen: Mapping[str, int] | None = None) -> Window | None:
    """How a piece is computed in runs, if its neighbours share what they read."""
    if not piece.axes or piece.holes or long_reductions(op, local, piece, chosen) or heavy(op, local, piece):
        return None
    sizes = [count(a) for a in piece.axes]
    names = [a.index for a in piece.axes]
    uses = uses_of(piece, op.tensors, local, chosen or {}).uses
    whole = tuple(k for k, n in enumerate(sizes) if n is not None and n <= SMALL and (n == 1 or not _pictures(uses, names, k)))
    others = [k for k in range(len(sizes)) if k not in whole]
    if not others or 0 in sizes:
        return None
    across = others[-1]
    shared = [k for k in others if _distances(uses, names[k]) > 1]
    channels = [k for k in whole if sizes[k] != 1]
    if not shared and not any(_gathers(u, names[k]) or _turns(u, names, k, across) for u in uses for k in channels):
        return None
    coded = _of_bytes(op, local, piece)
    downs = [k for k in shared if k != across]
    # Where channels run across, pictures have two axes more: rows of a thread share what they read in its registers, neighbours in a row through the cache.
    lying = len(downs) > 1 and across not in shared
    down = -1 if not downs else downs[-2] if lying else downs[-1]
    beside = downs[-1] if lying and coded else -1
    small = min((op.tensors[u.tensor].dtype.bytes for u in uses), default=4)
    many = min(WIDE if coded and not lying else MOST, WIDE // max(small, 1)) if shared or not any(_gathers(u, names[k]) for u in uses for k in channels) else 1
    if lying and (not coded or sizes[across] is not None):
        many = min(many, LYING)
    known = sizes[across]
    while known is not None and known % many:
        many //= 2
    # Weights of narrow numbers are loaded and converted for a column: that is worth more rows, if the thread has the registers.
    tall = lying and many == LYING and small <= NARROW
    rows = TALL if tall else ROWS if down >= 0 else 1
    if None not in sizes:
        runs = prod(n for k, n in enumerate(sizes) if n is not None and k not in whole) // many
        while rows > 1 and runs // rows < BUSY:
            rows //= 2
    one = _cost(op, local, piece) * prod(sizes[k] or 1 for k in whole) * (2 if beside >= 0 else 1) * (BY_FOURS if coded else 1)
    while rows * many > 1 and one * rows * many > WORK:
        rows, many = (rows // 2, many) if rows > 1 else (1, many // 2)
    if many * rows == 1 and not channels:
        return None
    if rows == 1 or many == 1:
        return Window(across, many, down if rows > 1 else -1, rows, whole)
    if beside >= 0:
        return Window(across, many, down, rows, whole, THREADS, FIT if many <= LYING else FIT_PAIRS, beside, 2)
    kept = _kept(uses, {names[k]: sizes[k] or 1 for k in whole}, names[across], many, names[down])
    return Window(across, many, down, rows, whole, THREADS, FIT if kept <= KEPT else 0)


def _of_bytes(op: TypedOperator, local: Callable[[str], bool], piece: Piece) -> bool:
    """Whether there are sums of products of bytes, four of which are one operation where neighbours are put together."""
    values, seen = [piece.value], set[str]()
    while values:
        for x in walk(values.pop()):
            if isinstance(x, Reduce) and x.kind == "sum" and isinstance(x.body, Apply) and x.body.fn == "*":
                reads = [a for a in x.body.args if isinstance(a, Read) and op.tensors[a.tensor].dtype in (I8, U8)]
                if len(reads) == 2 and reads[0].tensor != reads[1].tensor:
                    return True
            if isinstance(x, Read) and local(x.tensor) and x.tensor not in seen:
                seen.add(x.tensor)
                values += [p.value for p in op.tensors[x.tensor].pieces]
    return False


def slides(op: TypedOperator, local: Callable[[str], bool], piece: Piece, chosen: Mapping[str, int] | None = None) -> bool:
    """Whether neighbours along some axis read the same elements: places of a tensor at several distances from their own."""
    uses = uses_of(piece, op.tensors, local, chosen or {}).uses
    return any(_distances(uses, a.index) > 1 for a in piece.axes)


def _at(u: Use, name: str) -> set[tuple[object, ...]]:
    """The distances along an axis at which a read is; an index of a reduction that is written out stands for several."""
    out: set[tuple[object, ...]] = set()
    for lin in u.at:
        if not lin.opaque and name in lin.names:
            rest = tuple(t for t in lin.terms if t[0] != name)
            if all(n.startswith("#") for n, _ in rest):
                out |= {(lin.constant, rest, k) for k in range(3 if rest else 1)}
    return out


def _pictures(uses: list[Use], names: list[str], k: int) -> bool:
    """Whether an axis counts pictures, which share nothing but weights: it is the first of the result and of all that is read along its axes."""
    own = [u for u in uses if any(n in lin.names for lin in u.at for n in names)]
    return k == 0 and bool(own) and all(u.at[0].only(names[k]) for u in own)


def _distances(uses: list[Use], name: str) -> int:
    """At how many different distances along an axis one tensor is read."""
    found: dict[str, set[tuple[object, ...]]] = {}
    for u in uses:
        found.setdefault(u.tensor, set()).update(_at(u, name))
    return max(map(len, found.values()), default=0)


def _kept(uses: list[Use], whole: Mapping[str, int], across: str, many: int, down: str) -> int:
    """About how many values a thread has to keep from row to row."""
    total = 0
    for tensor in {u.tensor for u in uses}:
        own = [u for u in uses if u.tensor == tensor]
        deep = len(set().union(*(_at(u, down) for u in own))) if down else 0
        if deep > 1:
            wide = many + max(1, len(set().union(*(_at(u, across) for u in own)))) - 1
            inner = {n for u in own for lin in u.at for n in lin.names}
            # Channels are an axis of the result, or a reduction that is written out.
            channels = prod(size for n, size in whole.items() if n in inner) * len({u.at[-1] for u in own if across not in u.at[-1].names} or {0})
            total += wide * deep * channels
    return total


def _turns(u: Use, names: list[str], k: int, across: int) -> bool:
    """Whether a read has a small axis and the one along which neighbours lie in another order than the result."""
    at = {n: p for p, lin in enumerate(u.at) for n in lin.names}
    return names[k] in at and names[across] in at and (at[names[k]] < at[names[across]]) is not (k < across)


def _gathers(u: Use, name: str) -> bool:
    """Whether a read at a place that is computed takes neighbours in memory along a small axis."""
    last = u.at[-1] if u.at else Lin()
    return last.only(name) and any(lin.opaque for lin in u.at) and not any(name in lin.names for lin in u.at[:-1])


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
