"""Values of attributes at a call, and how they lie in a frame."""
from __future__ import annotations

import struct
from collections.abc import Mapping

from pipelink_ir.ir.dtypes import BOOL, I64, DType
from pipelink_ir.ir.evaluate import evaluate
from pipelink_ir.ir.nodes import Cast, Const, Expr, IntLit
from pipelink_ir.ir.scalar import fold, is_literal, literal
from pipelink_ir.ir.walk import rebuild, substitute

Number = int | float | bool


def attribute_value(expr: Expr, env: Mapping[str, Number], dtype: DType | None) -> Number:
    """The value of an attribute for given sizes; with a dtype, as the language computes it: each step rounded to its type."""
    if dtype is not None and expr.dtype is not None:
        known: dict[str, Expr] = {k: IntLit(v, dtype=I64) for k, v in env.items() if isinstance(v, int) and not isinstance(v, bool)}
        known |= {k: Const("true" if v else "false", dtype=BOOL) for k, v in env.items() if isinstance(v, bool)}
        folded = _fold(Cast(dtype.name, substitute(expr, known), dtype=dtype.compute, implicit=True))
        if is_literal(folded):
            value: Number = literal(folded).item()
            return value
    return evaluate(expr, env)


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
