"""PipeLink IR: a compiler for tensor operators that compose.

    import pipelink_ir as pl
    edge = pl.compile("edge.plir")
    out = edge(photo=pixels)

Importing the package is cheap: what a name needs is loaded when it is used.
"""
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from pipelink_ir.version import __version__

if TYPE_CHECKING:
    from pipelink_ir.ir.diagnostics import ExecutionError, InternalError, ProgramError, UsageError
    from pipelink_ir.runtime.compile import Compiled, Results, compile

_WHERE = {
    "compile": "pipelink_ir.runtime.compile", "Compiled": "pipelink_ir.runtime.compile", "Results": "pipelink_ir.runtime.compile",
    "ProgramError": "pipelink_ir.ir.diagnostics", "ExecutionError": "pipelink_ir.ir.diagnostics", "UsageError": "pipelink_ir.ir.diagnostics",
    "InternalError": "pipelink_ir.ir.diagnostics",
}

__all__ = ["Compiled", "ExecutionError", "InternalError", "ProgramError", "Results", "UsageError", "__version__", "compile"]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'pipelink_ir' has no attribute {name!r}")
    return getattr(importlib.import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return __all__
