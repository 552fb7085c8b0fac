"""Rows that are much longer than the threads of a block can keep: several blocks share one, each reduces parts of it, and what the parts give is put together.

A reduction that looks at another is reduced once that is known, so there are as many rounds through a row as reductions wait for each other, and one for the
results. Blocks take parts in an order in which the rounds of a row follow each other soon, while it still lies in the cache.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pipelink_ir.ir.functions import REDUCTIONS
from pipelink_ir.ir.nodes import Apply, Expr, IntLit, Range, Reduce
from pipelink_ir.ir.typed import Piece, TypedOperator
from pipelink_ir.passes.scheduling.counts import known, names, ranges_of
from pipelink_ir.passes.scheduling.risks import fails, risky
from pipelink_ir.passes.scheduling.rows import Job, row_length
from pipelink_ir.passes.scheduling.shape import Long, long_reductions
from pipelink_ir.passes.scheduling.uses import uses_of
from pipelink_ir.passes.scheduling.views import Leaf, Looker, TooLarge, View

ABOVE = 16384
"""Rows of more elements are long: 1024 threads have 16 of f32 each in registers."""
HALF = 8192
"""What half of those threads have."""
KEY = Leaf("key")
"""The place in a row."""
KINDS = frozenset(("sum", "mean", "max", "min"))
"""Reductions that are put together from those of parts."""


@dataclass(frozen=True, slots=True)
class Reduced:
    """A reduction, with the axis that each of its free names is. With a `rule`, its terms look at `base`, and those of a part may look at what that is of the
    part instead: `exp`, exponentials of what is above the largest; `square`, squares of the distance from the mean. What the parts give is then brought to what
    `base` is of the whole row when it is put together."""

    reduce: Reduce
    plain: tuple[tuple[str, int], ...]
    base: Reduce | None = None
    rule: str = ""


Rounds = tuple[tuple[Reduced, ...], ...]


@dataclass(frozen=True, slots=True)
class LongRows:
    """Rows over the axes `outer`, `length` long. `rounds` are the reductions of each round; `open`: rows may turn out shorter. `begins`: the kernel that clears
    the counters by which blocks wait for each other."""

    outer: tuple[int, ...]
    length: Expr
    rounds: Rounds
    open: bool
    begins: bool = False


def long_rows(op: TypedOperator, local: Callable[[str], bool], jobs: Sequence[Job], outer: tuple[int, ...]) -> LongRows | None:
    """How definitions over one box are computed by long rows; None if they are not, or are known to be shorter."""
    rank = len(jobs[0][1].axes)
    if outer not in (tuple(range(rank)), tuple(range(rank - 1))):
        return None
    longs = [r for _, p in jobs for r in long_reductions(op, local, p)]
    length = row_length(op, jobs, outer, longs)
    n = None if length is None else known(length)
    if length is None or (n is not None and n <= ABOVE):
        return None
    failing, strict = fails(op, local), op.empty is None
    if any(r.reduce.kind not in KINDS or r.reduce.where is not None or REDUCTIONS[r.reduce.kind].ranked or risky(r.reduce, failing, strict) for r in longs):
        return None
    written = {t.name for t, _ in jobs}
    uses = [uses_of(p, op.tensors, local) for _, p in jobs]
    if any(u.joined for u in uses) or any(u.tensor in written for found in uses for u in found.uses):
        return None
    rounds = _rounds(op, local, longs)
    return LongRows(outer, length, rounds, n is None)


def _rounds(op: TypedOperator, local: Callable[[str], bool], longs: Sequence[Long]) -> Rounds:
    """The reductions, each in a round behind those that its terms look at, or in theirs where there is a rule for that."""
    at: dict[int, int] = {}
    based: set[int] = set()
    out: list[list[Reduced]] = []
    for r in longs:
        if id(r.reduce) in at:
            continue
        plain = tuple((r.plain or {}).items())
        below = _below(op, local, r.reduce)
        bases = [b for b in longs if id(b.reduce) in below]
        rule = "" if op.exact or len(below) != 1 or not bases or below & based else _rule(op, local, r, bases[0])
        at[id(r.reduce)] = k = at[id(bases[0].reduce)] if rule else 1 + max((at[i] for i in below if i in at), default=-1)
        if k == len(out):
            out.append([])
        if rule:
            based.add(id(r.reduce))
        out[k].append(Reduced(r.reduce, plain, bases[0].reduce, rule) if rule else Reduced(r.reduce, plain))
    return tuple(map(tuple, out))


def _rule(op: TypedOperator, local: Callable[[str], bool], r: Long, base: Long) -> str:
    """The rule for the terms of one reduction that look at another one, if there is any."""
    look = Looker(op, local)
    try:
        body = look.of(look.opened(View(r.reduce, {n: Leaf("axis", k) for n, k in (r.plain or {}).items()}), KEY)[0])
        if not isinstance(body, View) or not isinstance(body.expr, Apply) or not _float(r.reduce) or not _float(base.reduce):
            return ""
        parts = [look.of(p) for p in look.parts(body)]
        rule, kind = ("exp", "max") if body.expr.fn == "exp" else ("square", "mean")
        if rule == "square":
            twice = body.expr.fn == "**" and isinstance(parts[1], View) and isinstance(parts[1].expr, IntLit) and parts[1].expr.value == 2
            if not twice and not (body.expr.fn == "*" and look.key(parts[0]) == look.key(parts[1])):
                return ""
        apart = parts[0]
        if base.reduce.kind != kind or r.reduce.kind not in ("sum", "mean") or not isinstance(apart, View) or not isinstance(apart.expr, Apply) \
                or apart.expr.fn != "-":
            return ""
        value, top = (look.of(p) for p in look.parts(apart))
        if not isinstance(top, View) or top.expr is not base.reduce:
            return ""
        return rule if look.key(look.opened(top, KEY)[0]) == look.key(value) else ""
    except TooLarge:
        return ""


def _float(x: Reduce) -> bool:
    return x.dtype is not None and x.dtype.is_float and x.body.dtype is not None and x.body.dtype.is_float


def _below(op: TypedOperator, local: Callable[[str], bool], x: Reduce) -> set[int]:
    """The reductions that the terms of one come to, by identity."""
    piece = Piece(tuple(Range(n, None, x.body) for n in sorted(names(x) | {r.index for r in ranges_of(x)})), x.body, (), x.span)
    return {id(r.reduce) for r in long_reductions(op, local, piece)}
