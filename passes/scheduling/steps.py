"""What is computed in one go: stored tensors over one box share a kernel where each reads the others at its own place at most."""
from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from pipelink_ir.ir.nodes import Apply, Expr, Range
from pipelink_ir.ir.typed import Piece, Tensor, TypedOperator
from pipelink_ir.passes.scheduling.costs import Step, heavy
from pipelink_ir.passes.scheduling.shape import long_reductions
from pipelink_ir.passes.scheduling.together import joint_pays, work_of
from pipelink_ir.passes.scheduling.uses import Uses, uses_of
from pipelink_ir.passes.scheduling.wishes import Wishes

_MOST = 16
"""Tensors that one kernel computes side by side."""
_PIECES = 64
"""Pieces of a joined local that get kernels of their own."""


@dataclass(slots=True)
class _Draft:
    tensors: list[Tensor]
    recurrence: bool
    heavy: bool
    joins: bool
    reads: set[str] = field(default_factory=set)
    work: float = 0.0
    """Of a place, on a GPU."""
    shares: bool = False
    """Whether threads of a block share what a place takes: then definitions side by side do not take threads from each other."""


def steps(op: TypedOperator, place: Mapping[str, str], wishes: Wishes, alone: Container[str] = ()) -> tuple[Step, ...]:
    """The steps of an operator, each tensor in the earliest one that it may join, or beside the one that is written; `alone` have steps of their own."""
    drafts: list[_Draft] = []
    where: dict[str, int] = {}

    def inline(name: str) -> bool:
        return place[name] in ("inline", "row", "tile")

    for group in op.order:
        stored = [op.tensors[n] for n in group.tensors if place[n] == "buffer"]
        if not stored:
            continue
        found = [uses_of(p, op.tensors, inline) for t in stored for p in t.pieces]
        first = max((where[u.tensor] for f in found for u in f.uses if u.tensor in where), default=0)
        if group.recurrence is not None:
            drafts.append(_Draft(stored, True, True, True))
            where.update({t.name: len(drafts) - 1 for t in stored})
            continue
        t = stored[0]
        own = _Draft([t], False, any(heavy(op, inline, p) for p in t.pieces), t.name in alone or any(f.joined for f in found))
        if wishes.target == "cuda":
            own.reads = {u.tensor for f in found for u in f.uses}
            own.work = work_of(op, inline, t)
            own.shares = own.heavy and any(long_reductions(op, inline, p) for p in t.pieces)
        fits = [i for i in range(first, len(drafts)) if _joins(drafts[i], own, found)]
        likely = [i for i in fits if wishes.target != "cuda" or _pays(op, drafts[i], own)]
        at = wishes.step(t.name, where, fits, len(drafts), likely)
        if at == len(drafts):
            drafts.append(own)
        else:
            drafts[at].tensors.append(t)
            drafts[at].reads |= own.reads
            drafts[at].work += own.work
        where[t.name] = at
    return tuple(Step(tuple(t.name for t in d.tensors), d.recurrence) for d in drafts)


def _joins(step: _Draft, own: _Draft, found: list[Uses]) -> bool:
    """Whether a tensor may be computed beside those of a step that stands after all that it reads, or among them."""
    t, other = own.tensors[0], step.tensors[0]
    if step.recurrence or step.joins or own.joins or step.heavy is not own.heavy or len(step.tensors) >= _MOST or t.shape != other.shape:
        return False
    if len(t.pieces) != 1 or len(other.pieces) != 1 or t.pieces[0].holes or other.pieces[0].holes:
        return False
    inside = {u.name for u in step.tensors}
    axes = [a.index for a in t.pieces[0].axes]
    return all(lin.only(a) for f in found for use in f.uses if use.tensor in inside for lin, a in zip(use.at, axes, strict=True))


def _pays(op: TypedOperator, step: _Draft, own: _Draft) -> bool:
    """Whether a tensor that may be computed beside those of a step is, on a GPU: if it reads what they make, or shares enough of what they read."""
    if own.shares or step.shares or any(t.name in own.reads for t in step.tensors):
        return True
    return joint_pays(op, own.tensors[0], own.reads & step.reads, own.work, step.work)


# ------------------------------------------------------------------------------------------------------------- joined locals


def distributed(op: TypedOperator, place: Mapping[str, str], piece: Piece, chosen: dict[str, int] | None = None) -> list[tuple[Piece, dict[str, int]]]:
    """A piece cut along the pieces of the locals that it reads at its own place: a join of tensors becomes one plain kernel for each of them."""
    chosen = chosen or {}
    uses = uses_of(piece, op.tensors, lambda n: place[n] == "inline", chosen)
    for name in dict.fromkeys(n for n, _ in uses.joined):
        t = op.tensors[name]
        ats = {at for n, at in uses.joined if n == name}
        axes = _cut_axes(t)
        names = [a.index for a in piece.axes]
        at = next(iter(ats))
        if len(t.pieces) > _PIECES or len(ats) != 1 or any(p.holes for p in t.pieces) or not all(any(at[k].only(n) for n in names) for k in axes):
            continue
        out: list[tuple[Piece, dict[str, int]]] = []
        for i, part in enumerate(t.pieces):
            box = list(piece.axes)
            for k in axes:
                own = next(j for j, n in enumerate(names) if at[k].only(n))
                box[own] = _meet(box[own], part.axes[k], t, k)
            out += distributed(op, place, Piece(tuple(box), piece.value, piece.holes, piece.span), {**chosen, name: i})
        return out
    return [(piece, chosen)]


def _cut_axes(t: Tensor) -> list[int]:
    """The axes along which the pieces of a tensor differ."""
    return [k for k in range(len(t.shape)) if any((p.axes[k].lo, p.axes[k].hi) != (t.pieces[0].axes[k].lo, t.pieces[0].axes[k].hi) for p in t.pieces)]


def _meet(own: Range, part: Range, t: Tensor, k: int) -> Range:
    """The places of an axis that lie in a piece too."""
    low, high = t.shape[k]
    own_lo = own.lo or low
    lo = part.lo if own_lo == low or part.lo is None else _limit("max", own_lo, part.lo)
    hi = part.hi if own.hi == high else _limit("min", own.hi, part.hi)
    return Range(own.index, lo, hi, span=own.span, dtype=own.dtype)


def _limit(fn: str, a: Expr, b: Expr) -> Expr:
    return Apply(fn, (a, b), span=a.span, dtype=a.dtype)
