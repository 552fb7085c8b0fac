"""Commands that this version does not have yet: they say so."""
from __future__ import annotations

from pipelink_ir.cli import console
from pipelink_ir.ir.diagnostics import Diagnostic
from pipelink_ir.ir.source import elsewhere


def execute(name: str) -> int:
    """Tell that there is no such command yet."""
    help = f"if a file is meant, write './{name}'"
    console.report([Diagnostic("PL9001", "error", f"this version does not have the command '{name}'", elsewhere(console.COMMAND, 1, 1), (), help)])
    return 2
