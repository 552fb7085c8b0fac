"""PipeLink IR: a compiler for tensor operators that compose. Importing the package is cheap: what a name needs is loaded when it is used."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipelink_ir.version import __version__

if TYPE_CHECKING:
    from pipelink_ir.ir.diagnostics import Diagnostic, ExecutionError, InternalError, ProgramError, UsageError
    from pipelink_ir.runtime.compile import Compiled, Results, compile

__all__ = ["Compiled", "Diagnostic", "ExecutionError", "InternalError", "ProgramError", "Results", "UsageError", "__version__", "compile"]

_HOMES = {
    "compile": "pipelink_ir.runtime.compile",
    "Compiled": "pipelink_ir.runtime.compile",
    "Results": "pipelink_ir.runtime.compile",
    "Diagnostic": "pipelink_ir.ir.diagnostics",
    "ExecutionError": "pipelink_ir.ir.diagnostics",
    "InternalError": "pipelink_ir.ir.diagnostics",
    "ProgramError": "pipelink_ir.ir.diagnostics",
    "UsageError": "pipelink_ir.ir.diagnostics",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'pipelink_ir' has no attribute {name!r}")
    import importlib
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
