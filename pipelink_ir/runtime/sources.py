"""Program texts: reading them, and the errors of files that cannot be read."""
from __future__ import annotations

import os
import sys

from pipelink_ir.ir.diagnostics import Diagnostic, ProgramError
from pipelink_ir.ir.nodes import Module
from pipelink_ir.ir.source import elsewhere

STDIN = "<stdin>"
"""How messages speak of standard input."""

STDIN_PATHS = ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")


def file_error(path: str, reason: str, help: str | None = None) -> ProgramError:
    """A file that cannot be used: one line, and exit status 2 in the command."""
    return ProgramError([Diagnostic("PL9101", "error", reason, elsewhere(path, 1, 1), (), help)])


def os_reason(error: OSError) -> str:
    """Why the system refused, without the path and the number."""
    return (error.strerror or str(error) or type(error).__name__).lower()


def shown_path(path: str) -> str:
    """The name under which messages speak of a program given to the command."""
    return STDIN if path in STDIN_PATHS else path


def read_bytes(path: str) -> bytes:
    """The content of a file, or of standard input for `-`; `ProgramError` (PL9101) if it cannot be had."""
    try:
        if path in STDIN_PATHS and sys.stdin is None:
            raise file_error(STDIN, "standard input is closed")
        if path in STDIN_PATHS:
            return sys.stdin.buffer.read()
        with open(path, "rb") as file:
            return file.read()
    except IsADirectoryError:
        raise file_error(path, "this is a folder, not a file") from None
    except OSError as error:
        if "{" in path:
            raise file_error(path if len(path) <= 40 else path[:39] + "…", "there is no file of that name",
                             "is it the text of a program? A text has a line break, at its end at least") from None
        raise file_error(shown_path(path), f"cannot be read: {os_reason(error)}") from None
    except ValueError as error:  # a NUL in a path
        raise file_error(path, f"cannot be read: {error}") from None


def read_program(path: str) -> Module:
    """Read and parse a program; `-` is standard input."""
    from pipelink_ir.grammar import parse
    return parse(read_bytes(path), shown_path(path))


def same_file(a: str, b: str) -> bool:
    """Whether two paths lead to one file, also through links; False where one does not exist."""
    try:
        return os.path.samefile(a, b)
    except (OSError, ValueError):
        return False
