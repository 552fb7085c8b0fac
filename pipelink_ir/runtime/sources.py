"""Program texts: reading them, and the errors of files that cannot be read."""
from __future__ import annotations

import os
import sys

from pipelink_ir.ir.diagnostics import Diagnostic, ProgramError
from pipelink_ir.ir.nodes import Module
from pipelink_ir.ir.source import Source, Span, elsewhere

STDIN = "<stdin>"
"""How messages speak of standard input."""

_STDIN_PATHS = ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")


def file_error(path: str, reason: str, help: str | None = None) -> ProgramError:
    """A file that cannot be used: one line, and exit status 2 in the command."""
    return ProgramError([Diagnostic("PL9101", "error", reason, elsewhere(path, 1, 1), (), help)])


def os_reason(error: OSError) -> str:
    """Why the system refused, without the path and the number."""
    return (error.strerror or str(error) or type(error).__name__).lower()


def shown_path(path: str) -> str:
    """The name under which messages speak of a program given to the command."""
    return STDIN if path in _STDIN_PATHS else path


def read_bytes(path: str) -> bytes:
    """The content of a file, or of standard input for `-`; `ProgramError` (PL9101) if it cannot be had."""
    try:
        if path in _STDIN_PATHS:
            return sys.stdin.buffer.read()
        with open(path, "rb") as file:
            return file.read()
    except IsADirectoryError:
        raise file_error(path, "this is a folder, not a file") from None
    except OSError as error:
        raise file_error(shown_path(path), f"cannot be read: {os_reason(error)}") from None
    except ValueError as error:  # a NUL in a path
        raise file_error(path, f"cannot be read: {error}") from None


def read_text(path: str) -> str:
    """A program's text. A byte that is not UTF-8 is an error at its line and column."""
    return decode(read_bytes(path), shown_path(path))


def decode(data: bytes, path: str) -> str:
    """UTF-8 bytes as text; `path` is for the message."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        good = data[:error.start].decode("utf-8")
        rest = data[error.start:].split(b"\n", 1)[0].decode("utf-8", errors="replace")
        source = Source(path, good + rest)
        message = f"the byte 0x{data[error.start]:02x} is not UTF-8, which programs are written in"
        raise ProgramError([Diagnostic("PL1001", "error", message, Span(source, len(good), len(good) + 1))]) from None


def read_program(path: str) -> Module:
    """Read and parse a program; `-` is standard input."""
    from pipelink_ir.grammar import parse
    return parse(read_text(path), shown_path(path))


def same_file(a: str, b: str) -> bool:
    """Whether two paths lead to one file, also through links; False where one does not exist."""
    try:
        return os.path.samefile(a, b)
    except (OSError, ValueError):
        return False
