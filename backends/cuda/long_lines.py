"""Long lines of C++, broken where a reader would."""
from __future__ import annotations

WIDTH = 120
"""Columns at which a long line is broken."""


def broken(line: str) -> list[str]:
    """A line, or several of at most `WIDTH` columns, the later ones further in: broken at the outermost spaces. A comment is left as it is."""
    if len(line) <= WIDTH or "//" in line:
        return [line]
    pad = " " * (len(line) - len(line.lstrip()) + 4)
    out, rest = [], line
    while len(rest) > WIDTH:
        at = _break(rest, len(pad))
        if at is None:
            break
        out.append(rest[:at])
        rest = pad + rest[at + 1:]
    return [*out, rest]


def _break(line: str, indent: int) -> int | None:
    """The space at which a long line is best broken: as far out of parentheses and as far to the right as can be, before an operator or behind a comma."""
    best: tuple[int, int, int] | None = None
    depth = 0
    for at, c in enumerate(line[:WIDTH]):
        depth += (c in "([") - (c in ")]")
        binary = line[at + 1:at + 2] in ("+", "-", "*", "/", "?", ":", "&", "|", "<", ">", "=")
        if c == " " and at > indent + 20 and (line[at - 1] in ",;" or (binary and line[at + 2:at + 3] in (" ", "&", "|", "="))):
            here = (depth, int(line[at - 1] != ";"), -at)
            best = min(best or here, here)
    return -best[2] if best else None
