"""Symbols of an operator against the types that it is called with."""
from __future__ import annotations

from collections.abc import Sequence

from pipelink_ir.ir.affine import solve
from pipelink_ir.ir.diagnostics import internal_error
from pipelink_ir.ir.nodes import Expr, Name, Operator, TensorType
from pipelink_ir.ir.walk import substitute, walk


def bind_symbols(operator: Operator, types: Sequence[TensorType]) -> dict[str, Expr]:
    """What each dimension symbol of a monomorphic operator is, for arguments of these types. Types that do not fit are an internal error."""
