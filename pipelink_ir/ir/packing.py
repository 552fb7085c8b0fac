"""Packing of buffers into one arena: offsets such that buffers which live at the same time do not overlap. A pure function of sizes and lifetimes."""
from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A buffer of `size` bytes that is needed from step `first` to step `last`, both inclusive."""

    size: int
    first: int
    last: int


def pack(buffers: Sequence[Lifetime], align: int = 64) -> tuple[list[int], int]:
    """(the offset of each buffer, the size of the arena). Offsets are multiples of `align`.

    Buffers are placed in order of time, larger ones first, each into the smallest hole that holds it."""
    order = sorted(range(len(buffers)), key=lambda n: (buffers[n].first, -buffers[n].size, n))
    ends = sorted(range(len(buffers)), key=lambda n: (buffers[n].last, n))
    offsets, holes, total, gone = [0] * len(buffers), _Holes(), 0, 0
    for n in order:
        while gone < len(ends) and buffers[ends[gone]].last < buffers[n].first:
            old = ends[gone]
            holes.free(offsets[old], _rounded(buffers[old].size, align))
            gone += 1
        size = _rounded(buffers[n].size, align)
        offset = holes.take(size)
        if offset is None:
            offset, size = holes.at_end(total, size)
            total = offset + size
        offsets[n] = offset
    return offsets, total


def _rounded(size: int, align: int) -> int:
    return max(align, (size + align - 1) // align * align)


class _Holes:
    """Free stretches, sorted by place; neighbours are one."""

    def __init__(self) -> None:
        self.spans: list[tuple[int, int]] = []

    def free(self, offset: int, size: int) -> None:
        at = bisect_left(self.spans, (offset, 0))
        if at < len(self.spans) and self.spans[at][0] == offset + size:
            size += self.spans.pop(at)[1]
        if at and sum(self.spans[at - 1]) == offset:
            before = self.spans.pop(at - 1)
            offset, size = before[0], before[1] + size
        insort(self.spans, (offset, size))

    def take(self, size: int) -> int | None:
        """The smallest hole that is large enough."""
        best = min((s for s in self.spans if s[1] >= size), key=lambda s: s[1], default=None)
        if best is None:
            return None
        self.spans.remove(best)
        if best[1] > size:
            insort(self.spans, (best[0] + size, best[1] - size))
        return best[0]

    def at_end(self, total: int, size: int) -> tuple[int, int]:
        """A place that begins in the hole at the end of the arena, if there is one, and goes beyond it."""
        if self.spans and sum(self.spans[-1]) == total:
            offset, _ = self.spans.pop()
            return offset, size
        return total, size
