"""Writing files so that nobody ever sees half of one."""
from __future__ import annotations

import os
import stat
import sys

from pipelink_ir.runtime.sources import file_error, os_reason

STDOUT_PATHS = ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")
"""Standard output; replacing the file behind it would take it away from whoever opened it."""


def write_output(path: str, data: bytes) -> None:
    """Write a file as a whole or not at all; `-` is standard output. Devices and pipes are written directly.

    An old file is replaced only when the new content is complete, and hands on its permissions; a link is followed. Raises `ProgramError` (PL9101)."""
    if path in STDOUT_PATHS:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    try:
        _write(path, data)
    except OSError as error:
        raise file_error(path, f"cannot be written: {os_reason(error)}") from None
    except ValueError as error:
        raise file_error(path, f"cannot be written: {error}") from None


def _write(path: str, data: bytes) -> None:
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        mode = None
    if mode is not None and not stat.S_ISREG(mode):
        with open(path, "wb") as file:
            file.write(data)
        return
    if mode is not None and not os.access(path, os.W_OK):
        raise PermissionError(13, "permission denied")
    path = os.path.realpath(path)
    folder, name = os.path.split(path)
    # Of this writer alone: other threads, and processes with the same number in other containers, write to the folder, too.
    temporary = os.path.join(folder, f".{name[:100]}.{os.getpid()}.{os.urandom(6).hex()}.tmp")
    try:
        # 0o666 under the umask, as any new file.
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        with os.fdopen(descriptor, "wb") as file:
            if mode is not None:
                os.fchmod(descriptor, stat.S_IMODE(mode))
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        if os.path.lexists(temporary):
            os.unlink(temporary)
        raise
