"""What commands that measure print: a table for people or JSON, and how far the work is."""
from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO


def add_format_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=("table", "json"), default="table", help="a table for people or JSON (default table)")


def table(head: Sequence[str], rows: Sequence[Sequence[str]], left: int, least: int = 80, file: TextIO | None = None) -> None:
    """A table on standard output, or on another stream, as wide as what is in it but not narrower than `least`; the first `left` columns begin at the left."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    out = Table(*head[:left], box=box.SIMPLE_HEAD)
    for name in head[left:]:
        out.add_column(name, justify="right")
    for row in rows:
        out.add_row(*row)
    wide = sum(max(len(r[k]) for r in (head, *rows)) + 3 for k in range(len(head))) + 4
    Console(file=file, width=max(least, wide), markup=False, highlight=False).print(out)


def count(samples: int) -> str:
    return "1 sample" if samples == 1 else f"{samples} samples"


def finite(x: float) -> float | None:
    """A number as JSON has it."""
    return x if math.isfinite(x) else None


@contextmanager
def progress(first: str) -> Iterator[Callable[[str, int, int], None]]:
    """Shows on standard error how far the work inside is, if that is a terminal: what is given is told what is done, how much of it, and of how much in all (-1
    where nobody knows). `first` stands there before."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    err = Console(file=sys.stderr, markup=False, highlight=False)
    with Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=err, transient=True,
                  disable=not err.is_terminal) as bar:
        task = bar.add_task(first, total=None)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total if total >= 0 else None)
