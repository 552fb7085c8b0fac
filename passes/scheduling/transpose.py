"""Operands of a contraction turned over once, so that its terms lie side by side along the row.

In `%s[i, j] = sum[d < D](%q[i, d] * %k[j, d])` neighbours along the row `j` are D apart in `%k`. Each of them is read for every `i`; so the operand is copied
once into a temporary with `j` last, `%k.along.0[d, j] = %k[j, d]`, and the sum is accumulated along the row (`rows.py`) instead of one dot product after the
other.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar

from pipelink_ir.ir.nodes import Expr, Name, Range, Read, Reduce
from pipelink_ir.ir.typed import Group, Piece, Tensor, TypedOperator
from pipelink_ir.ir.walk import children, reads_in, rebuild
from pipelink_ir.passes.scheduling.counts import count, names, ranges_of, unrolled

T = TypeVar("T")

_REUSED = 8
"""An axis that is known to be shorter does not make up for the copy."""


def turned(op: TypedOperator) -> tuple[TypedOperator, frozenset[str]]:
    """The operator with turned operands as locals, and the names of these, which belong into buffers."""
    if any(g.recurrence is not None for g in op.order):
        return op, frozenset()
    work = _Work(op)
    tensors = {n: replace(t, pieces=tuple(work.piece(p) for p in t.pieces)) for n, t in op.tensors.items()}
    if not work.made:
        return op, frozenset()
    order = (*(Group((n,), None) for n in work.made), *op.order)
    return replace(op, tensors={**work.made, **tensors}, order=order), frozenset(work.made)


@dataclass(slots=True)
class _Work:
    op: TypedOperator
    made: dict[str, Tensor] = field(default_factory=dict)
    known: dict[tuple[str, int], str] = field(default_factory=dict)

    def piece(self, p: Piece) -> Piece:
        if not p.axes:
            return p
        wanted = [x for x in _direct(p.value) if self._pays(x, p)]
        if not wanted:
            return p
        ids = {id(x) for x in wanted}

        def walk(x: Expr) -> Expr:
            if isinstance(x, Reduce) and id(x) in ids:
                return self._reduce(x, p.axes[-1].index)
            return rebuild(x, walk)

        return replace(p, value=walk(p.value))

    def _pays(self, x: Reduce, p: Piece) -> bool:
        """Whether some read of the body has to be turned, and none would still be out of step with the row."""
        row = p.axes[-1].index
        n = count(p.axes[-1])
        if x.kind not in ("sum", "mean") or unrolled(x) or x.where is not None or (n is not None and n < _REUSED):
            return False
        reads = [r for r in reads_in(x.body) if row in names(r)]
        others = [a for a in p.axes[:-1] if (count(a) or _REUSED) >= _REUSED]
        turning = [r for r in reads if self._position(r, x, row) is not None and any(a.index not in names(r) for a in others)]
        return bool(turning) and all(r in turning or _in_step(r, row) for r in reads)

    def _position(self, r: Read, x: Reduce, row: str) -> int | None:
        """Where the row's index stands in a read of an operand that runs along an index of the reduction."""
        bound = {q.index for q in ranges_of(x)}
        if self.op.tensors[r.tensor].kind != "operand" or not all(a in ("inside", "guarded") for a in r.access):
            return None
        if not isinstance(r.indices[-1], Name) or r.indices[-1].name not in bound:
            return None
        at = [k for k, i in enumerate(r.indices) if row in names(i)]
        return at[0] if len(at) == 1 and isinstance(r.indices[at[0]], Name) else None

    def _reduce(self, x: Reduce, row: str) -> Reduce:
        def walk(e: Expr) -> Expr:
            if isinstance(e, Read) and row in names(e) and (k := self._position(e, x, row)) is not None:
                t = self.op.tensors[e.tensor]
                return replace(e, tensor=self._turn(t, k), indices=_moved(e.indices, k), access=_moved(e.access, k))
            return rebuild(e, walk)

        return replace(x, body=walk(x.body))

    def _turn(self, t: Tensor, k: int) -> str:
        """The local that holds an operand with axis `k` last."""
        if (t.name, k) not in self.known:
            name = f"{t.name}.along.{k}"
            axes = tuple(Range(f"i.{j}", lo, hi, span=t.span, dtype=lo.dtype) for j, (lo, hi) in enumerate(t.shape))
            indices = tuple(Name(a.index, span=t.span, dtype=a.dtype) for a in axes)
            value = Read(t.name, indices, ("inside",) * len(axes), span=t.span, dtype=t.dtype.compute)
            self.made[name] = Tensor(name, "local", t.dtype.compute, _moved(t.shape, k), (None,) * len(axes),
                                     (Piece(_moved(axes, k), value, (), t.span),), t.span)
            self.known[t.name, k] = name
        return self.known[t.name, k]


def _moved(items: tuple[T, ...], k: int) -> tuple[T, ...]:
    """Number `k` at the end."""
    return (*items[:k], *items[k + 1:], items[k])


def _in_step(r: Read, row: str) -> bool:
    """Whether a read runs along its last axis with the row."""
    return not any(row in names(i) for i in r.indices[:-1])


def _direct(x: Expr) -> Iterator[Reduce]:
    """Reductions that are not inside others."""
    if isinstance(x, Reduce):
        yield x
        return
    for c in children(x):
        yield from _direct(c)
