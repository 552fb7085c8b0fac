"""Values of attributes at a call, and how they lie in a frame."""
from __future__ import annotations

import struct
from collections.abc import Mapping

from pipelink_ir.ir.diagnostics import Report
from pipelink_ir.ir.dtypes import BOOL, I64, DType
from pipelink_ir.ir.evaluate import evaluate
from pipelink_ir.ir.nodes import Cast, Const, Expr, IntLit
from pipelink_ir.ir.scalar import fold, is_literal, literal
from pipelink_ir.ir.walk import rebuild, substitute

Number = int | float | bool


def attribute_value(expr: Expr, env: Mapping[str, Number], dtype: DType | None) -> Number:
    """The value of an attribute for given sizes; with a dtype, as the language computes it: each step rounded to its type."""
    if dtype is not None:
        sizes = [k for k, v in env.items() if isinstance(v, int) and not isinstance(v, bool)]
        known: dict[str, Expr] = {k: IntLit(int(env[k]), dtype=I64) for k in sizes}
        known |= {k: Const("true" if v else "false", dtype=BOOL) for k, v in env.items() if isinstance(v, bool)}
        typed = _typed(substitute(expr, {k: v for k, v in known.items() if k not in sizes}), sizes, dtype)
        folded = typed and _fold(Cast(dtype.name, substitute(typed, known), dtype=dtype.compute, implicit=True))
        if folded is not None and is_literal(folded):
            value: Number = literal(folded).item()
            return value
    return evaluate(expr, env)


def _typed(expr: Expr, sizes: list[str], dtype: DType) -> Expr | None:
    """The expression with types in all nodes: `flatten` puts one that has them around one that has not. None if it names more than sizes."""
    from pipelink_ir.passes.infer.expressions import Faulty, Scope, coerce, type_expr
    scope = Scope({}, dict.fromkeys(sizes, expr.span), {}, {}, Report())
    try:
        return coerce(type_expr(expr, scope), dtype.compute, scope)
    except Faulty:
        return None


def _fold(e: Expr) -> Expr:
    e = rebuild(e, _fold)
    folded = fold(e)
    return e if folded is None else folded


def slot_bits(value: Number, dtype: DType) -> int:
    """The eight bytes of a frame that hold a scalar of `dtype`, as a signed integer."""
    kind = dtype.compute
    if kind.is_float:
        data = struct.pack("<f" if kind.bits == 32 else "<d", float(value))
    else:
        data = (int(value) & ((1 << kind.bits) - 1)).to_bytes(kind.bytes, "little")
    return int.from_bytes(data.ljust(8, b"\0"), "little", signed=True)
