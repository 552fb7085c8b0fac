"""Values of contract keys: constants, and how messages show them."""
from __future__ import annotations

from pipelink_ir.ir import contracts
from pipelink_ir.ir.affine import normal
from pipelink_ir.ir.nodes import Expr, FloatLit, IntLit, Value


def integer(value: Value) -> int | None:
    """A constant integer."""
    folded = normal(value) if isinstance(value, Expr) else None
    return folded.value if isinstance(folded, IntLit) else None


def number(v: Value) -> float | None:
    """A constant number."""
    if isinstance(v, IntLit | FloatLit):
        return float(v.value)
    from pipelink_ir.ir.evaluate import CannotEvaluate, evaluate
    try:
        return float(evaluate(v, {})) if isinstance(v, Expr) else None
    except CannotEvaluate:
        return None


def show_value(v: Value) -> str:
    """A value in PLIR."""
    from pipelink_ir.passes.infer.text import show
    return show(v) if isinstance(v, Expr) else contracts.describe(v)
