"""The one interface of all backends: a module in, an executable out."""
from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from pipelink_ir.ir.nodes import Pipeline

if TYPE_CHECKING:
    import numpy as np


class Executable(Protocol):
    """A pipeline that is ready to run.

    `artifacts` has every intermediate text or binary by its extension (`plir`, `ll`, `s`, `o`)."""

    pipeline: Pipeline
    artifacts: dict[str, str | bytes]

    def __call__(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
        """Run on C-contiguous arrays by input name (dtypes and shapes already checked); results by name, fresh arrays of the caller's.

        Raises `ExecutionError` when the data cannot be run on (an index outside, a reduction over nothing that has no value)."""
        ...
