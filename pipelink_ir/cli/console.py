"""The two streams of the command: UTF-8 whatever the locale, diagnostics, and what their presence means for the exit status."""
from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from pipelink_ir.ir.diagnostics import Diagnostic

_USAGE_CODES = ("PL9101", "PL9201")


def prepare() -> None:
    """Make both streams UTF-8 with plain line ends. Names of files that are not UTF-8 go through as they came."""
    for stream, errors in ((sys.stdout, "surrogateescape"), (sys.stderr, "backslashreplace")):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(encoding="utf-8", errors=errors, newline="\n")


def silence() -> None:
    """Nobody reads standard output any more: what is still in the buffer is dropped, and closing it at exit must not complain."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
    except (OSError, ValueError):
        pass


def say(text: str) -> None:
    """A line on standard error; nobody may be listening."""
    try:
        print(text, file=sys.stderr)
    except (OSError, ValueError):
        pass


def report(diagnostics: Iterable[Diagnostic]) -> None:
    """Diagnostics on standard error."""
    for d in diagnostics:
        say(d.text())


def status(diagnostics: Iterable[Diagnostic]) -> int:
    """2 where the command or a file is at fault, else 1 where the program is, else 0."""
    errors = [d for d in diagnostics if d.severity == "error"]
    if any(d.code in _USAGE_CODES or (d.code == "PL9001" and d.span.source.text is None) for d in errors):
        return 2
    return 1 if errors else 0
