"""Which rows are meant: all of the table, by words in their names, those of odd shapes if they are asked for."""
from __future__ import annotations

from collections.abc import Sequence

from gpu.odd import ODD
from gpu.rows import ROWS, Row


def select(words: Sequence[str]) -> list[Row]:
    """The rows in whose names one of the words is, those of odd shapes if a word begins with `odd`; all but those without words."""
    low = [w.lower() for w in words]
    some = ODD if any(w.startswith("odd") for w in low) else ()
    return [r for r in ROWS if not low or any(w in r.name.lower() for w in low)] + [r for r in some if any(w in r.name.lower() for w in low)]


def named(name: str) -> Row:
    """The row of that name."""
    return next(r for r in (*ROWS, *ODD) if r.name == name)
