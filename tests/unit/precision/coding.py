"""Codes in NumPy, to compare with, and operators run as programs of their own: printed, read again, called."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from pipelink_ir.grammar import parse
from pipelink_ir.grammar.printer import print_expr, print_operator, print_type
from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.nodes import Operand, Operator
from pipelink_ir.passes.infer.operator import typed_operator
from pipelink_ir.passes.precision.codes import Codes
from pipelink_ir.runtime.compile import compile as compile_program

Array = np.ndarray[Any, Any]
F8 = {"f8e4m3": (ml_dtypes.float8_e4m3fn, 448.0), "f8e5m2": (ml_dtypes.float8_e5m2, 57344.0)}


def operator(text: str) -> Operator:
    return parse(text, "test.plir").operators[0]


def called(op: Operator, *arrays: Any, target: str = "reference", **attributes: Any) -> tuple[Array, ...]:
    """What an operator makes of arrays. It must print, read back as itself and be accepted by inference on the way."""
    text = print_operator(op)
    again = operator(text)
    assert again == op, text
    typed_operator(again)
    params = ", ".join(f"%{o.name}: {print_type(o.type)}" if isinstance(o, Operand) else f"{o.name}: {o.type}" for o in op.params)
    results = ", ".join(f"%{o.name}: {print_type(o.type)}" for o in op.results)
    attrs = ", ".join(f"{a.name} = {a.name}" for a in op.attributes)
    where = f"where {', '.join(w)}" if (w := conditions(op)) else ""
    program = f"{text}\npipeline @main({params}) -> ({results}) {{\n  {where}\n  {', '.join('%' + r.name for r in op.results)} = " \
              f"@{op.name}({', '.join('%' + o.name for o in op.operands)}){f' {{{attrs}}}' if attrs else ''}\n}}\n"
    dtypes = [DTYPES[o.type.dtype].numpy() for o in op.operands]
    given = {o.name: np.array(a, d, order="C") for o, a, d in zip(op.operands, arrays, dtypes, strict=True)}
    out = compile_program(program, target, **attributes).executable(given)
    return tuple(np.asarray(out[r.name]) for r in op.results)


def conditions(op: Operator) -> list[str]:
    return [print_expr(w) for w in op.where]


def scale_in_f32(codes: Codes, scale: Any) -> Array:
    return np.asarray(codes.scale if not isinstance(codes.scale, str) else scale, np.float32)


def spread(scale: Array, codes: Codes, shape: tuple[int, ...]) -> Array:
    """A scale for each element."""
    if codes.scale == "channel":
        assert codes.axis is not None
        return np.broadcast_to(scale.reshape([-1 if k == codes.axis else 1 for k in range(len(shape))]), shape)
    if codes.scale == "block":
        assert codes.axis is not None
        assert codes.size is not None
        return np.take(np.repeat(scale, codes.size, axis=codes.axis), range(shape[codes.axis]), axis=codes.axis)
    return np.broadcast_to(scale, shape)


def encode(x: Any, codes: Codes, scale: Any = None, zero: Any = None) -> Array:
    """Codes by the rule, a division in f32: `clip(rint(x / scale) + zero)`. i4 is not packed, axes are in their own order."""
    x = np.asarray(x, np.float32)
    s = spread(scale_in_f32(codes, scale), codes, x.shape)
    z = codes.zero if isinstance(codes.zero, int) else int(zero)
    with np.errstate(all="ignore"):
        if codes.dtype in F8:
            dtype, top = F8[codes.dtype]
            return np.asarray(np.clip(x / s, -top, top)).astype(dtype)
        low, high = (-7, 7) if codes.dtype == "i4" else (np.iinfo(DTYPES[codes.dtype].numpy()).min, np.iinfo(DTYPES[codes.dtype].numpy()).max)
        q = np.rint(x / s).astype(np.float64) + z
        return np.nan_to_num(np.clip(q, low, high), nan=0).astype(np.int64)


def decode(q: Array, codes: Codes, scale: Any = None, zero: Any = None) -> Array:
    """What codes stand for, in f64."""
    s = spread(scale_in_f32(codes, scale).astype(np.float64), codes, q.shape)
    z = codes.zero if isinstance(codes.zero, int) else int(zero)
    return np.asarray((q.astype(np.float64) - z) * s)


def in_memory(q: Array, codes: Codes) -> Array:
    """Codes as an operator takes them: i4 two to a byte, the first in the low bits, axes in the order of the codes."""
    if codes.dtype == "i4":
        assert codes.pair is not None
        axis = codes.pair % q.ndim
        q = np.moveaxis(q, axis, -1)
        if q.shape[-1] % 2:
            q = np.concatenate([q, np.zeros_like(q[..., :1])], axis=-1)
        q = np.moveaxis((q[..., 0::2] & 15) | ((q[..., 1::2] & 15) << 4), -1, axis)
    q = np.transpose(q, codes.order) if codes.order else q
    return np.array(q if codes.dtype in F8 else q.astype(DTYPES[codes.stored].numpy()), order="C")


def arguments(op: Operator, made: Operator, codes: Mapping[str, Codes], arrays: Mapping[str, Any], scales: Mapping[str, Any],
              zeros: Mapping[str, Any]) -> tuple[list[Array], dict[str, Array]]:
    """The arrays for an operator on codes, and the real values that they stand for."""
    given: dict[str, Any] = {}
    real: dict[str, Array] = {}
    for o in op.operands:
        x = np.asarray(arrays[o.name])
        c = codes.get(o.name)
        if c is None:
            given[o.name] = x
            real[o.name] = np.asarray(x, DTYPES[o.type.dtype].numpy())
            real[o.name] = real[o.name].astype(np.float64) if real[o.name].dtype.kind not in "biu" else real[o.name]
            continue
        q = encode(x, c, scales.get(o.name), zeros.get(o.name))
        given[o.name], real[o.name] = in_memory(q, c), decode(q, c, scales.get(o.name), zeros.get(o.name))
        given[f"{o.name}.scale"], given[f"{o.name}.zero"] = scales.get(o.name), zeros.get(o.name)
        given[f"{o.name}.sum"] = q
    return [given[o.name] for o in made.operands], real
