"""Canonical integer expressions: what users, printed modules and comparisons of shapes see of the polynomials in `ir/polynomial.py`."""
from __future__ import annotations

from pipelink_ir.ir.nodes import Expr, IntLit, Name
from pipelink_ir.ir.polynomial import render
from pipelink_ir.ir.system import System

REPEATS = 3
"""A rewriting may show an interval that admits another one."""


def normal(expr: Expr) -> Expr:
    """The canonical form of an integer expression, the same for all that are equal as polynomials; anything else is returned as it is."""
    if isinstance(expr, Name) or (isinstance(expr, IntLit) and expr.value >= 0):
        return expr
    try:
        form = _once(expr)
        for _ in range(REPEATS):
            further = _once(form)
            if further == form:
                break
            form = further
        return form
    except RecursionError:
        return expr


def _once(expr: Expr) -> Expr:
    translate = System().translate
    p = translate.integer(expr)
    if p is None:
        return expr
    out = render(p, expr.dtype, translate.sources)
    # Data wraps: the canonical form must be shown not to, in its own order.
    return out if translate.width(expr) is None or System().translate.integer(out) == p else expr
