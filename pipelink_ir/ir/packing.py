"""Packing of buffers into one arena: offsets such that buffers which may live at the same time do not overlap. Pure functions of sizes and lifetimes.

Buffers are placed one by one, each into a hole between those that it may live together with. Which order is best no rule knows, so several are tried (by time,
by size, by what a buffer conflicts with), with the smallest hole and with the lowest, until one meets the lower bound; few buffers that no order of these packs
well are tried in some hundred more orders, each of which moves what stands highest to the front.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MANY = 1500
"""Buffers beyond which only orders by time are tried, whose cost depends on how many live at once."""

ROUNDS = 300
"""Further orders that are tried where none meets the lower bound, fewer the more buffers there are."""


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A buffer of `size` bytes that is needed from step `first` to step `last` of the launches, both inclusive.

    Where steps run on several streams, `start` and `end` say what their order promises, a number for each stream: how many steps there are surely done before
    the buffer is first written, and how many have to be done until nobody touches it any more. Empty, the steps run one after another."""

    size: int
    first: int
    last: int
    start: tuple[int, ...] = ()
    end: tuple[int, ...] = ()
    align: int = 1
    """What its offset has to be a multiple of, beyond what holds for all."""

    def before(self, other: Lifetime) -> bool:
        """Whether nobody touches this buffer any more when the other one is first written."""
        if not self.start:
            return self.last < other.first
        return all(e <= s for e, s in zip(self.end, other.start, strict=True))

    def together(self, other: Lifetime) -> bool:
        """Whether the two may live at the same time."""
        return not (self.before(other) or other.before(self))


def rounded(size: int, align: int) -> int:
    """Bytes that a buffer takes up."""
    return (size + align - 1) // align * align


def pack(buffers: Sequence[Lifetime], align: int = 64, fixed: Mapping[int, int] | None = None, bound: int | None = None) -> tuple[list[int], int]:
    """(the offset of each buffer, the size of the arena). Offsets are multiples of `align`; those of `fixed` are given. `bound` is what no packing goes below:
    once it is met, no other is looked for."""
    if not buffers:
        return [], 0
    packing = _Packing(buffers, align, dict(fixed or {}))
    least = moment_bound(buffers, align) if bound is None else bound
    best: tuple[list[int], int] | None = None
    for order, smallest in packing.orders():
        found = packing.place(order, smallest)
        if best is None or found[1] < best[1]:
            best = found
        if best[1] <= least:
            break
    assert best is not None
    if best[1] > least and len(buffers) <= MANY:
        best = packing.improved(best, least)
    return best


def moment_bound(buffers: Sequence[Lifetime], align: int) -> int:
    """The most bytes that live at one moment when the steps run one by one in the order of their launches: no packing is smaller."""
    return sum(rounded(buffers[n].size, align) for n in busiest(buffers, align))


def busiest(buffers: Sequence[Lifetime], align: int) -> list[int]:
    """The buffers that live at the moment at which most bytes do, when the steps run in the order of their launches."""
    change: dict[int, int] = {}
    for b in buffers:
        change[b.first] = change.get(b.first, 0) + rounded(b.size, align)
        change[b.last + 1] = change.get(b.last + 1, 0) - rounded(b.size, align)
    most, now, at = 0, 0, 0
    for moment in sorted(change):
        now += change[moment]
        if now > most:
            most, at = now, moment
    return [n for n, b in enumerate(buffers) if b.size and b.first <= at <= b.last]


class _Packing:
    """Buffers as arrays, so that one is compared with all others at once."""

    def __init__(self, buffers: Sequence[Lifetime], align: int, fixed: dict[int, int]) -> None:
        import numpy as np
        self.np = np
        self.buffers, self.align, self.fixed = buffers, align, fixed
        self.sizes = np.array([rounded(b.size, align) for b in buffers], np.int64)
        self.aligns = [max(align, b.align) for b in buffers]
        serial = not buffers[0].start
        # A row for each stream.
        self.start: Any = np.array([(b.first,) if serial else b.start for b in buffers], np.int64).T.copy()
        self.end: Any = np.array([(b.last + 1,) if serial else b.end for b in buffers], np.int64).T.copy()
        self.rows: dict[int, Any] = {}

    def conflicts(self, n: int, among: Any) -> Any:
        """Which of the buffers `among` may live together with buffer `n`."""
        return self._lives(n, among) & ~_everywhere(self.end[s, n] <= start[among] for s, start in enumerate(self.start))

    def _lives(self, n: int, among: Any) -> Any:
        """The same where nobody is launched later than `n`, so that `n` is not done before anybody begins."""
        return ~_everywhere(end[among] <= self.start[s, n] for s, end in enumerate(self.end))

    def orders(self) -> Iterator[tuple[Sequence[int], bool]]:
        """Orders of buffers, and whether each takes the smallest hole or the lowest."""
        buffers, sizes = self.buffers, self.sizes
        everything = range(len(buffers))
        by_time = sorted(everything, key=lambda n: (buffers[n].first, -sizes[n], n))
        yield by_time, True
        yield by_time, False
        if len(buffers) > MANY:
            return
        by_size = sorted(everything, key=lambda n: (-sizes[n], buffers[n].first, n))
        yield by_size, True
        yield by_size, False
        area = [int(sizes[n]) * (buffers[n].last - buffers[n].first + 1) for n in everything]
        yield sorted(everything, key=lambda n: (-area[n], n)), False
        weight = [int(sizes[self._row(n)].sum()) for n in everything]
        yield sorted(everything, key=lambda n: (-weight[n], -sizes[n], n)), False
        yield sorted(everything, key=lambda n: (-buffers[n].last, -sizes[n], n)), True

    def _row(self, n: int) -> Any:
        found = self.rows.get(n)
        if found is None:
            found = self.rows[n] = self.conflicts(n, slice(None))
        return found

    def place(self, order: Sequence[int], smallest: bool) -> tuple[list[int], int]:
        """Place buffers in this order, fixed ones first."""
        np = self.np
        offsets = np.zeros(len(self.buffers), np.int64)
        placed: list[int] = []
        open_ = _Open(np)
        for n, offset in self.fixed.items():
            offsets[n] = offset
            placed.append(n)
            open_.add(n, offset, offset + int(self.sizes[n]))
        gone = self._goes() if len(self.buffers) > MANY else None
        conflicts = self._lives if gone is not None and not self.fixed else self.conflicts
        for k, n in enumerate(order):
            if n in self.fixed or not self.sizes[n]:
                continue
            if gone is not None and k % 256 == 255:
                open_.keep(gone(open_.members, order[k]))
            members = open_.members
            hit = self.rows[n][members] if n in self.rows else conflicts(n, members) if gone is not None else self._row(n)[members]
            offset = _hole(np, open_.begin[hit], open_.end[hit], int(self.sizes[n]), self.aligns[n], smallest)
            offsets[n] = offset
            open_.add(n, offset, offset + int(self.sizes[n]))
        total = int((offsets + self.sizes).max())
        return [int(o) for o in offsets], total

    def _goes(self) -> Callable[[Any, int], Any]:
        """Which of the open buffers may still conflict with one that is placed later, in the order of time. A step's promises only grow along its stream, so
        what every later buffer comes after is known from the least of their starts."""
        np = self.np
        order = np.array(sorted(range(len(self.buffers)), key=lambda n: (self.buffers[n].first, -self.sizes[n], n)))
        least = np.minimum.accumulate(self.start[:, order[::-1]], axis=1)[:, ::-1]
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        return lambda members, n: ~_everywhere(end[members] <= least[s, place[n]] for s, end in enumerate(self.end))

    def improved(self, best: tuple[list[int], int], least: int) -> tuple[list[int], int]:
        """What stands highest is placed earlier, again and again, with a little chance in it (the same every time)."""
        import random
        chance = random.Random(len(self.buffers))
        order = sorted(range(len(self.buffers)), key=lambda n: (-int(self.sizes[n]), n))
        kept, reached = order, best[1]
        for turn in range(min(ROUNDS, 60_000 // len(self.buffers))):
            offsets, total = self.place(order, bool(turn % 2))
            if total < best[1]:
                best = offsets, total
            if best[1] <= least:
                break
            if total <= reached:
                kept, reached = order, total
            order = list(kept)
            high = [n for n in order if offsets[n] + int(self.sizes[n]) == total]
            moved = chance.choice(high) if high and chance.random() < 0.5 else chance.choice(order)
            order.remove(moved)
            order.insert(chance.randrange(max(1, len(order) // 2)), moved)
        return best


def _everywhere(streams: Iterator[Any]) -> Any:
    """Where all of them hold. Mostly the first ones tell."""
    out = next(streams)
    for more in streams:
        if not out.any():
            break
        out &= more
    return out


class _Open:
    """Buffers that have a place, sorted by it."""

    def __init__(self, np: Any) -> None:
        self.np = np
        self.members = np.empty(0, np.int64)
        self.begin = np.empty(0, np.int64)
        self.end = np.empty(0, np.int64)

    def add(self, n: int, begin: int, end: int) -> None:
        np = self.np
        at = int(np.searchsorted(self.begin, begin))
        self.members, self.begin, self.end = (np.concatenate((a[:at], (v,), a[at:])) for a, v in
                                              ((self.members, n), (self.begin, begin), (self.end, end)))

    def keep(self, these: Any) -> None:
        self.members, self.begin, self.end = self.members[these], self.begin[these], self.end[these]


def _hole(np: Any, begin: Any, end: Any, size: int, align: int, smallest: bool) -> int:
    """Where `size` bytes fit beside intervals that are sorted by their beginnings."""
    if not len(begin):
        return 0
    free_from = np.concatenate(((0,), np.maximum.accumulate(end)))
    free_from = (free_from + (align - 1)) // align * align
    room = begin - free_from[:-1]
    fits = np.flatnonzero(room >= size)
    if not len(fits):
        return int(free_from[-1])
    return int(free_from[fits[np.argmin(room[fits])] if smallest else fits[0]])
