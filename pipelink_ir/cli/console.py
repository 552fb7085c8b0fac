"""The two streams of the command: UTF-8 whatever the locale, diagnostics, and what their presence means for the exit status."""
from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from pipelink_ir.ir.diagnostics import Diagnostic, InternalError

_USAGE_CODES = ("PL9101", "PL9201")
_FILES = ("PL9102", "PL9103", "PL9104")
COMMAND = "<command>"
"""The place of what is about the command itself."""


def prepare() -> None:
    """Make both streams UTF-8 with plain line ends. Names of files that are not UTF-8 go through as they came; a stream that is closed swallows all."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # it lives as long as the process
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
        say(text(d))


def text(d: Diagnostic) -> str:
    """A diagnostic as the command prints it: what is about a file as a whole, or about the command, has no line."""
    if d.code not in _USAGE_CODES and not _about_command(d):
        return d.text()
    place = "pipelinkc" if d.span.source.path == COMMAND else d.span.source.path
    return f"{place}: {d.severity}[{d.code}]: {d.field}: {d.message}" + (f"\n   = help: {d.help}" if d.help else "")


def internal(error: Exception, debug: bool, about: str = "") -> int:
    """Tell of a fault of ours, and return its exit status."""
    if debug:
        import traceback
        say("".join(traceback.format_exception(error)).rstrip())
    message = str(error) if isinstance(error, InternalError) else f"{type(error).__name__}: {error}"
    say(f"pipelinkc: internal error: {about}{message}")
    say("This is a fault of the compiler, not of the program" + ("." if debug else "; --debug shows where it happened."))
    return 70


def _about_command(d: Diagnostic) -> bool:
    return d.code == "PL9001" and d.span.source.path == COMMAND


def status(diagnostics: Iterable[Diagnostic]) -> int:
    """2 where the command or a file is at fault, else 1 where the program is, else 0."""
    errors = [d for d in diagnostics if d.severity == "error"]
    if any(d.code in (*_USAGE_CODES, *_FILES) or _about_command(d) for d in errors):
        return 2
    return 1 if errors else 0
