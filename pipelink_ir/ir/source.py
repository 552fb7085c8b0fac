"""Source texts and places in them.

A `Source` owns one text; a `Span` is a half-open range of character offsets in it. Lines and columns are counted from 1, columns in characters.
A span of another file that is known only by name (`loc("edge.plir":12:3)` in a dump) is a `Span` of a `Source` without text.
"""
from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """One text and the name under which messages speak of it (`<stdin>` for standard input)."""

    path: str
    text: str | None
    _starts: list[int] = field(default_factory=list, repr=False)

    def starts(self) -> list[int]:
        """Offsets at which the lines begin, found on first use."""
        if not self._starts:
            self._starts.append(0)
            at = -1
            text = self.text or ""
            while (at := text.find("\n", at + 1)) >= 0:
                self._starts.append(at + 1)
        return self._starts

    def position(self, offset: int) -> tuple[int, int]:
        """(line, column) of an offset, both from 1."""
        starts = self.starts()
        line = bisect_right(starts, offset)
        return line, offset - starts[line - 1] + 1

    def line(self, number: int) -> str | None:
        """The text of line `number` (from 1) without its end, None where there is no text."""
        if self.text is None or not 1 <= number <= len(self.starts()):
            return None
        starts = self.starts()
        end = starts[number] - 1 if number < len(starts) else len(self.text)
        return self.text[starts[number - 1]:end].rstrip("\r")


@dataclass(frozen=True, slots=True)
class Span:
    """The characters `start` (inclusive) to `end` (exclusive) of `source`."""

    source: Source
    start: int
    end: int
    known: tuple[int, int] | None = None
    """(line, column) where it was given in words and `source` has no text."""

    @property
    def line(self) -> int:
        return self.known[0] if self.known else self.source.position(self.start)[0]

    @property
    def column(self) -> int:
        return self.known[1] if self.known else self.source.position(self.start)[1]

    def to(self, other: Span) -> Span:
        """From the beginning of this span to the end of `other`."""
        return Span(self.source, self.start, max(self.end, other.end)) if other.source is self.source else self

    def __str__(self) -> str:
        return f"{self.source.path}:{self.line}:{self.column}"


NOWHERE = Span(Source("<generated>", None), 0, 0, (1, 1))
"""The place of what no text stands for (built from Python)."""


def elsewhere(path: str, line: int, column: int) -> Span:
    """A place in a file that is known by name only."""
    return Span(Source(path, None), 0, 0, (line, column))
