"""Expressions as messages show them."""
from __future__ import annotations

from pipelink_ir.ir.nodes import Expr, TensorType


def show(e: Expr) -> str:
    """An expression in PLIR, shortened in the middle if it is long."""
    from pipelink_ir.grammar.printer import print_expr
    text = print_expr(e)
    return text if len(text) <= 60 else f"{text[:28]} … {text[-28:]}"


def show_type(t: TensorType) -> str:
    """A type in PLIR."""
    from pipelink_ir.grammar.printer import print_type
    return print_type(t)


def written(name: str) -> str:
    """The name of an operator as it is written: `std.nn.gelu` for `std.nn.gelu.1`, which inference made of it, and for `std.nn.gelu.1.2`, which a policy made
    of that."""
    while (parts := name.rpartition("."))[0] and parts[2].isdigit():
        name = parts[0]
    return name
