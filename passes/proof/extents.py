"""Who was the last to have each byte of an arena: a map from stretches of bytes to what holds them.

With it edges are compared in the order of launch with those alone whose bytes they take over. That is enough: if each of them is done before the next one on
the same byte begins, all are. So a byte that serves a thousand edges costs a thousand comparisons, not half a million.
"""
from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class Extents:
    """Stretches that do not overlap, in the order of bytes: `starts[k]` to `ends[k]` belongs to `owners[k]`."""

    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    owners: list[int] = field(default_factory=list)

    def take(self, start: int, end: int, owner: int) -> Iterator[int]:
        """Give bytes `start` to `end` to `owner`; yields those that had any of them, each once."""
        first = bisect_right(self.starts, start) - 1
        if first < 0 or self.ends[first] <= start:
            first += 1
        last = first
        while last < len(self.starts) and self.starts[last] < end:
            last += 1
        had = dict.fromkeys(self.owners[first:last])
        kept: list[tuple[int, int, int]] = []
        if first < last and self.starts[first] < start:
            kept.append((self.starts[first], start, self.owners[first]))
        kept.append((start, end, owner))
        if first < last and self.ends[last - 1] > end:
            kept.append((end, self.ends[last - 1], self.owners[last - 1]))
        self.starts[first:last] = [k[0] for k in kept]
        self.ends[first:last] = [k[1] for k in kept]
        self.owners[first:last] = [k[2] for k in kept]
        yield from had
