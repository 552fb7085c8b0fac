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
    from pipelink_ir.ir.diagnostics import ContractViolationError, ExecutionError, InternalError, ProgramError, UsageError
    from pipelink_ir.runtime.builder import TensorBuilder, from_raw_ptr, from_torch
    from pipelink_ir.runtime.calibration.comparing import Compared, compare
    from pipelink_ir.runtime.calibration.measure import Calibrated, calibrate
    from pipelink_ir.runtime.compile import Compiled, Results, compile
    from pipelink_ir.runtime.inspection import inspect_tensor
    from pipelink_ir.runtime.readers import as_view
    from pipelink_ir.runtime.tensor import TensorView

_NAMES = {
    "runtime.compile": ("compile", "Compiled", "Results"),
    "runtime.calibration.measure": ("calibrate", "Calibrated"),
    "runtime.calibration.comparing": ("compare", "Compared"),
    "runtime.tensor": ("TensorView",),
    "runtime.builder": ("TensorBuilder", "from_torch", "from_raw_ptr"),
    "runtime.readers": ("as_view",),
    "runtime.inspection": ("inspect_tensor",),
    "ir.diagnostics": ("ProgramError", "ExecutionError", "ContractViolationError", "UsageError", "InternalError"),
}
"""Public names by the module that holds them."""

_WHERE = {name: f"pipelink_ir.{module}" for module, names in _NAMES.items() for name in names}

__all__ = [
    "Calibrated", "Compared",
    "Compiled", "ContractViolationError", "ExecutionError", "InternalError", "ProgramError", "Results", "TensorBuilder", "TensorView", "UsageError",
    "__version__",
    "as_view", "calibrate", "compare", "compile", "from_raw_ptr", "from_torch", "inspect_tensor",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'pipelink_ir' has no attribute {name!r}")
    return getattr(importlib.import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return __all__
