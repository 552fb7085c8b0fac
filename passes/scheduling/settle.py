"""Access words made sharper: a local's box is known once inference is done, so many reads that were noted as `guarded` are plainly `inside`.

Inference works out the box of a local from its readers, and notes their reads as guarded since there is nothing yet to prove them against. A read at an
index that runs over exactly the box of that axis needs no guard.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pipelink_ir.ir.dtypes import I64
from pipelink_ir.ir.nodes import Expr, IntLit, Name, Range, Read, Reduce
from pipelink_ir.ir.typed import Piece, Tensor, TypedOperator
from pipelink_ir.ir.walk import rebuild
from pipelink_ir.passes.scheduling.counts import ranges_of

_ZERO = IntLit(0, dtype=I64)
Runs = Mapping[str, tuple[Expr, Expr]]
"""What an index runs over."""


def settled(op: TypedOperator) -> TypedOperator:
    """The operator with sharper access words."""
    tensors = {n: replace(t, pieces=tuple(_piece(p, op.tensors) for p in t.pieces)) for n, t in op.tensors.items()}
    return replace(op, tensors=tensors)


def _piece(p: Piece, tensors: Mapping[str, Tensor]) -> Piece:
    return replace(p, value=_walk(p.value, dict(map(_run, p.axes)), tensors))


def _run(r: Range) -> tuple[str, tuple[Expr, Expr]]:
    return r.index, (r.lo or _ZERO, r.hi)


def _walk(x: Expr, runs: Runs, tensors: Mapping[str, Tensor]) -> Expr:
    if isinstance(x, Reduce):
        inner = {**runs, **dict(map(_run, ranges_of(x)))}
        ranges = tuple(_walk(r, inner, tensors) for r in x.ranges)
        where, rank = None if x.where is None else _walk(x.where, inner, tensors), None if x.rank is None else _walk(x.rank, runs, tensors)
        return replace(x, ranges=ranges, where=where, body=_walk(x.body, inner, tensors), rank=rank)
    x = rebuild(x, lambda c: _walk(c, runs, tensors))
    if isinstance(x, Read) and "guarded" in x.access:
        shape = tensors[x.tensor].shape
        access = tuple("inside" if word == "guarded" and isinstance(i, Name) and runs.get(i.name) == box else word
                       for word, i, box in zip(x.access, x.indices, shape, strict=True))
        return replace(x, access=access)
    return x
