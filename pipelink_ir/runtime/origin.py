"""Lines of the user's Python: where an array was made, where a call was made.

A `TensorView` remembers its maker as two words, a code object and a position in it, which costs a fraction of a microsecond; the line number is worked out
when a message needs it.
"""
from __future__ import annotations

import sys
from dataclasses import dataclass
from types import CodeType, FrameType

from pipelink_ir.ir.source import Source, Span

_OWN = "pipelink_ir"


@dataclass(frozen=True, slots=True)
class Origin:
    """A place in running Python code."""

    code: CodeType
    instruction: int

    @property
    def path(self) -> str:
        return self.code.co_filename

    @property
    def line(self) -> int:
        for start, end, line in self.code.co_lines():
            if start <= self.instruction < end and line is not None:
                return line
        return self.code.co_firstlineno

    def span(self) -> Span:
        """The whole line, with its text where the file can be read."""
        return line_span(self.path, self.line)

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"

    def __reduce__(self) -> str | tuple[object, ...]:
        return _Told, (self.path, self.line)


@dataclass(frozen=True, slots=True)
class _Told:
    """An origin that came out of a pickle: code objects do not travel."""

    path: str
    line: int

    def span(self) -> Span:
        return line_span(self.path, self.line)

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


def line_span(path: str, line: int) -> Span:
    """A line of a Python file as a place that messages can show."""
    import linecache
    text = linecache.getline(path, line).rstrip("\n")
    indent = len(text) - len(text.lstrip())
    if not text.strip():
        return Span(Source(path, None), 0, 0, (line, 1))
    # A source with this line alone, at its place: the rest of the file is nobody's business here.
    source = Source(path, "\n" * (line - 1) + text)
    start = line - 1 + indent
    return Span(source, start, line - 1 + len(text))


def user_frame() -> FrameType | None:
    """The innermost frame that is not of this package; None where the command calls, whose user wrote no Python."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name.startswith("pipelink_ir.cli."):
            return None
        if name != _OWN and not name.startswith("pipelink_ir."):
            return frame
        frame = frame.f_back
    return None


def here() -> Origin | None:
    """The line of the user's that is being executed."""
    frame = user_frame()
    return None if frame is None else Origin(frame.f_code, frame.f_lasti)
