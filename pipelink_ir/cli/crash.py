"""What a fault in a backend leaves behind, as `passes/hooks.py` does for one in a pass."""
from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pipelink_ir.ir.diagnostics import InternalError
from pipelink_ir.ir.nodes import Module


@contextmanager
def crash_file(module: Module, arguments: Sequence[str | None]) -> Iterator[None]:
    """Around what may fail by a fault of ours: leaves the program that the backend was given, and the command that reproduces it.

    None among the arguments stands for the file that is left."""
    from pipelink_ir.passes.hooks import CRASH_FILE, write_crash
    try:
        yield
    except InternalError as error:
        command = shlex.join(["pipelinkc", *(CRASH_FILE if a is None else a for a in arguments)])
        head = f"// pipelinkc failed {str(error).splitlines()[0]}. This is the program that the backend was given.\n// To reproduce: {command}\n"
        raise InternalError(f"{error}{write_crash(head, module)}") from error
