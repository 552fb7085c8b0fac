"""Operators with the axes of an operand or of a result in another order: same values, other places in memory."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from pipelink_ir.ir import contracts
from pipelink_ir.ir.diagnostics import Report
from pipelink_ir.ir.nodes import Attribute, Axis, Define, Dots, Expr, Name, Operand, Operator, Read, Scoped, TensorType
from pipelink_ir.ir.walk import rebuild
from pipelink_ir.passes.infer.operator import infer_operator, keep_typed

T = TypeVar("T")
OF_AXES = ("border", "padding", "varies", "inplace")
"""What a memory contract says of axes, or of memory that two tensors have in common."""
Order = tuple[int, ...]
"""Which of the old axes each of the new ones is."""


def in_order(items: Sequence[T], order: Order) -> tuple[T, ...]:
    """Items of the old axes as those of the new ones."""
    return tuple(items[k] for k in order)


def reordered(t: TensorType, order: Order) -> TensorType:
    """A type with its axes in another order."""
    return replace(t, dims=in_order(t.dims, order))


def free_to_move(op: Operator, tensor: str) -> bool:
    """Whether nothing that an operator says of one of its tensors speaks of axes, and nobody but the compiler has its code."""
    if op.compute is None or op.kernel is not None or op.downgrades:
        return False
    spoken = any(isinstance(e, Scoped) and (e.tensor == tensor or any(s.key == "inplace" for s in e.settings)) for s in op.sections for e in s.entries)
    kept = any(contracts.sections(op, "schedule")) or contracts.setting(op, "compile", "library") is not None
    axes = any(contracts.setting(op, "memory", key, tensor) is not None for key in OF_AXES)
    types = [o.type for o in (*op.operands, *op.results) if o.name == tensor]
    return not (spoken or kept or axes or any(t.layout is not None or any(isinstance(d, Dots) for d in t.dims) for t in types))


def copied(op: Operator) -> str | None:
    """The operand that an operator gives out as it is, and nothing else."""
    if op.compute is None or len(op.operands) != 1 or len(op.results) != 1 or len(op.compute.body) != 1:
        return None
    (operand,), (result,), item = op.operands, op.results, op.compute.body[0]
    if not isinstance(item, Define) or not isinstance(item.value, Read) or operand.type != result.type:
        return None
    names = [Name(a.index) if isinstance(a, Axis) and a.lo is None and a.hi is None else None for a in item.axes]
    return operand.name if list(item.value.indices) == names else None


def permuted(op: Operator, orders: Mapping[str, Order], name: str) -> Operator | None:
    """An operator whose operands and results have their axes in other orders; None where inference does not prove it right."""
    def param(p: Operand | Attribute) -> Operand | Attribute:
        return replace(p, type=reordered(p.type, orders[p.name])) if isinstance(p, Operand) and p.name in orders else p

    def expr(x: Expr) -> Expr:
        x = rebuild(x, expr)
        return replace(x, indices=in_order(x.indices, orders[x.tensor])) if isinstance(x, Read) and x.tensor in orders else x

    assert op.compute is not None
    body = []
    for item in op.compute.body:
        item = replace(item, value=expr(item.value))
        body.append(replace(item, axes=in_order(item.axes, orders[item.tensor])) if isinstance(item, Define) and item.tensor in orders else item)
    results = tuple(replace(r, type=reordered(r.type, orders[r.name])) if r.name in orders else r for r in op.results)
    new = replace(op, name=name, params=tuple(map(param, op.params)), results=results, compute=replace(op.compute, body=tuple(body)), gradient=None)
    report = Report()
    typed = infer_operator(new, report)
    if typed is None or report.failed:
        return None
    keep_typed(new, typed)
    return new
