"""Reductions accumulated for a whole stretch of a row at once: products of matrices, convolutions, sums over the first axis.

Where the terms of a reduction lie side by side along the row (the last axis of the result) but not along the axes that are reduced over, one accumulator
for each place of the row is kept in scratch and the row runs innermost:

    for j in row: acc[j] = 0
    for k: for j in row: acc[j] += x[k] * w[k, j]
    for j in row: y[j] = f(acc[j])

If something that the row reads does not depend on some outer axis (the matrix w on the rows of x), a few places of that axis share one pass over it. Terms are
added up in f32 over blocks as in `reduce.py`; a product is added by `fma` unless the operator is exact.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.emit import TRUE, Atom, i64
from pipelink_ir.backends.loops.fold import must
from pipelink_ir.backends.loops.lower import Env, Lowering, Ready
from pipelink_ir.backends.loops.reduce import BLOCK, Kind, filtered, kind_of
from pipelink_ir.backends.loops.split import split
from pipelink_ir.ir.dtypes import F64, DType
from pipelink_ir.ir.functions import REDUCTIONS
from pipelink_ir.ir.nodes import Apply, Expr, Name, Range, Read, Reduce
from pipelink_ir.ir.typed import Piece
from pipelink_ir.ir.walk import children
from pipelink_ir.passes.scheduling.counts import count, known, names, ranges_of, terms, unrolled
from pipelink_ir.passes.scheduling.uses import Use, uses_of

STRETCH = 256
"""Places of a row that are accumulated at once."""
SHARE = 4
"""Places of an outer axis that share one pass over what does not depend on it."""
AHEAD = 4
"""Terms that are added in one pass over the row."""


@dataclass(frozen=True, slots=True)
class Sum:
    """A reduction to accumulate: the positions of the result's axes by the names that they have around it, and what it reads along the row."""

    reduce: Reduce
    axes: dict[str, int]
    along: tuple[Use, ...]

    def free_axes(self, rank: int) -> set[int]:
        """Outer axes on which something that is read along the row does not depend, nor over what it is summed."""
        bounds = {n for r in ranges_of(self.reduce) for b in (r.lo, r.hi) if b is not None for n in names(b)}
        by_name = {k: n for n, k in self.axes.items() if n not in bounds}
        return {k for k in range(rank - 1) if k in by_name and any(all(by_name[k] not in lin.names for lin in u.at) for u in self.along)}


def sums_of(lo: Lowering, piece: Piece) -> list[Sum]:
    """The reductions in a piece that pay when they are accumulated along its last axis."""
    if not piece.axes:
        return []
    n = count(piece.axes[-1])
    if n is not None and n < 8:
        return []
    out: list[Sum] = []
    _find(lo, piece.value, {a.index: k for k, a in enumerate(piece.axes)}, len(piece.axes) - 1, out)
    return out


def _find(lo: Lowering, x: Expr, axes: dict[str, int], row: int, out: list[Sum]) -> None:
    if isinstance(x, Reduce):
        found = _sum(lo, x, axes, row)
        if found is not None and all(s.reduce is not x for s in out):
            out.append(found)
        return
    if isinstance(x, Read):
        t = lo.op.tensors[x.tensor]
        if lo.plan.inline(x.tensor) and len(t.pieces) == 1 and all(a in ("inside", "guarded") for a in x.access):
            at = [axes.get(i.name) if isinstance(i, Name) else None for i in x.indices]
            inner = {a.index: k for a, k in zip(t.pieces[0].axes, at, strict=True) if k is not None}
            # Seen through a definition only where its indices are the result's own.
            if len(inner) == len(at) and row in inner.values():
                _find(lo, t.pieces[0].value, inner, row, out)
        return
    for c in children(x):
        _find(lo, c, axes, row, out)


def _sum(lo: Lowering, x: Reduce, axes: dict[str, int], row: int) -> Sum | None:
    name = next((n for n, k in axes.items() if k == row), None)
    free = names(x)
    if x.kind not in ("sum", "mean", "max", "min", "prod") or unrolled(x) or name is None or name not in free:
        return None
    outer = [b for r in ranges_of(x) for b in (r.lo, r.hi) if b is not None]
    if any(name in names(b) or _reads(b) for b in outer) or lo.quietness.cost(x.body) > 1e6:
        return None
    governed = x.kind == "mean" or (lo.op.empty is not None and REDUCTIONS[x.kind].governed)
    if x.where is not None and (governed or lo.quietness.cost(x.where) > 1e6):
        return None
    used = uses_of(Piece(tuple(Range(n, None, x.body) for n in axes), Reduce("sum", x.ranges, None, x.body), (), x.span), lo.op.tensors, lo.plan.inline)
    along = tuple(u for u in used.uses if any(name in lin.names for lin in u.at))
    side_by_side = all(not u.at[-1].opaque and dict(u.at[-1].terms).get(name) == 1 and all(name not in lin.names for lin in u.at[:-1])
                       and u.access[-1] != "check" for u in along)
    return Sum(x, axes, along) if along and side_by_side else None


def _reads(x: Expr) -> bool:
    return isinstance(x, Read) or any(map(_reads, children(x)))


# ----------------------------------------------------------------------------------------------------------------------- emission


@dataclass(frozen=True, slots=True)
class Lane:
    """One of the places of an outer axis that share a pass: the indices of the outer axes."""

    at: tuple[Atom, ...]


class Stretch:
    """Accumulators of one stretch [begin, end) of the row, for some lanes."""

    def __init__(self, lo: Lowering, row: str, begin: Atom, end: Atom, lanes: list[Lane]) -> None:
        self.lo, self.e = lo, lo.e
        self.row, self.begin, self.end, self.lanes = row, begin, end, lanes

    def fill(self, s: Sum) -> Ready:
        """Accumulates one reduction; what came of it."""
        x, kind = s.reduce, kind_of(s.reduce)
        n = terms(x)
        # Lanes differ in an axis on which no bound depends.
        around = Env({name: self.lanes[0].at[k] for name, k in s.axes.items() if k < len(self.lanes[0].at)})
        if not (kind.join == "+" and kind.dtype.is_float and kind.dtype is not F64) or (n is not None and n <= BLOCK):
            acc = self._scratch("acc", kind.dtype, kind.neutral)
            self._nest(s, kind, acc, 0, around, None)
            return Ready(acc, kind.dtype, self.begin, s.axes)
        total = self._scratch("total", F64, must(0, F64))
        part = self.e.memory("part")
        self.e.raw(form.Alloc(part, kind.dtype, i64(STRETCH * len(self.lanes))))
        ranges = ranges_of(x)
        long = [k for k, r in enumerate(ranges) if (count(r) or BLOCK) > 16]

        def block(run: Callable[[], None]) -> None:
            self._each(lambda i: self.e.raw(form.Store(part, i, kind.neutral, kind.dtype)))
            run()
            self._each(lambda i: self.e.raw(form.Store(total, i, form.Op("+", (
                form.Load(total, i, F64, F64), form.Convert(form.Load(part, i, kind.dtype, kind.dtype), F64, F64)), F64), F64)))

        self._nest(s, kind, part, 0, around, (long[-1] if long else 0, block))
        return Ready(total, F64, self.begin, s.axes)

    def _scratch(self, hint: str, dtype: DType, init: form.Const) -> str:
        name = self.e.memory(hint)
        self.e.raw(form.Alloc(name, dtype, i64(STRETCH * len(self.lanes))))
        self._each(lambda i: self.e.raw(form.Store(name, i, init, dtype)))
        return name

    def _each(self, body: Callable[[Atom], None]) -> None:
        size = i64(STRETCH * len(self.lanes)) if len(self.lanes) > 1 else self.e.op("-", self.end, self.begin)
        with self.e.loop("i", i64(0), size, nonempty=True, vector=True) as i:
            body(i)

    # -------------------------------------------------------------------------------------------------------------- loops

    def _nest(self, s: Sum, kind: Kind, acc: str, k: int, env: Env, block: tuple[int, Callable[[Callable[[], None]], None]] | None) -> None:
        """The ranges one in the other; `block` is the range that runs in blocks, and what is done around each. `env` holds their indices."""
        lo, e, ranges = self.lo, self.e, ranges_of(s.reduce)
        r = ranges[k]
        first, end = lo.index(r.lo, env) if r.lo is not None else i64(0), lo.index(r.hi, env)
        if block is not None and block[0] == k:
            with e.loop(f"{r.index}_block", first, end, i64(BLOCK)) as b:
                stop = e.op("min", e.op("+", b, i64(BLOCK)), end)
                block[1](lambda: self._range(s, kind, acc, k, env, b, stop, None))
            return
        self._range(s, kind, acc, k, env, first, end, block)

    def _range(self, s: Sum, kind: Kind, acc: str, k: int, env: Env, first: Atom, end: Atom,
               block: tuple[int, Callable[[Callable[[], None]], None]] | None) -> None:
        e, ranges = self.e, ranges_of(s.reduce)
        r = ranges[k]
        if k + 1 < len(ranges):
            with e.loop(r.index, first, end) as i:
                self._nest(s, kind, acc, k + 1, env.plus({r.index: i}), block)
            return
        if s.reduce.where is not None:
            with e.loop(r.index, first, end) as i:
                self._pass(s, kind, acc, [env.plus({r.index: i})])
            return
        n = count(r)
        if n is not None and n <= AHEAD and known(r.lo) is not None:
            self._pass(s, kind, acc, [env.plus({r.index: i64((known(r.lo) or 0) + d)}) for d in range(n)])
            return
        turns = e.op("*", e.op("floordiv", e.op("max", e.op("-", end, first), i64(0)), i64(AHEAD)), i64(AHEAD))
        middle = e.op("+", first, turns)
        with e.loop(r.index, first, middle, i64(AHEAD)) as i:
            self._pass(s, kind, acc, [env.plus({r.index: e.op("+", i, i64(d))}) for d in range(AHEAD)])
        with e.loop(r.index, middle, end) as i:
            self._pass(s, kind, acc, [env.plus({r.index: i})])

    # --------------------------------------------------------------------------------------------------------------- terms

    def _pass(self, s: Sum, kind: Kind, acc: str, envs: list[Env]) -> None:
        """One pass over the stretch, which adds a few terms for every lane."""
        lo, e, x = self.lo, self.e, s.reduce
        row = len(self.lanes[0].at)
        by_axis = {k: n for n, k in s.axes.items()}

        def full(lane: Lane, env: Env, j: Atom | None) -> Env:
            at = {n: lane.at[k] for k, n in by_axis.items() if k < row}
            return Env({**env.names, **at, **({by_axis[row]: j} if j is not None else {})})

        by_row = x.where is not None and by_axis[row] in names(x.where)

        def body(j: Atom) -> None:
            for number, lane in enumerate(self.lanes):
                place = e.op("+", e.op("-", j, self.begin), i64(number * STRETCH))
                value: form.Expr = e.bind("acc", form.Load(acc, place, kind.dtype, kind.dtype))
                for env in envs:
                    value = e.bind("acc", self._joined(kind, value, x, full(lane, env, j), by_row))
                e.raw(form.Store(acc, place, value, kind.dtype))

        with e.when(lo.value(x.where, full(self.lanes[0], envs[0], None)) if x.where is not None and not by_row else TRUE):
            split(lo, self.row, self.begin, self.end, body, True)

    def _joined(self, kind: Kind, value: form.Expr, x: Reduce, env: Env, by_row: bool) -> form.Expr:
        """The accumulator and one term; `by_row`: behind a filter that looks at the place in the row."""
        lo, e = self.lo, self.e
        if not by_row and kind.join == "+" and kind.dtype.is_float and not lo.op.exact and isinstance(x.body, Apply) and x.body.fn == "*":
            a, b = (e.convert(lo.value(y, env), kind.dtype) for y in x.body.args)
            return form.Op("fma", (a, b, value), kind.dtype)
        passes = lo.value(x.where, env) if x.where is not None and by_row else TRUE
        return form.Op(kind.join, (value, filtered(lo, x, env, passes, kind)), kind.dtype)


def write(lo: Lowering, sums: list[Sum], axis: str, begin: Atom, end: Atom, lanes: list[Lane], each: Callable[[Atom, Atom], None]) -> None:
    """The row [begin, end) of all lanes, a stretch at a time. `each` is handed the bounds of a stretch when its accumulators are ready."""
    e = lo.e
    with e.loop(f"{axis}_stretch", begin, end, i64(STRETCH), nonempty=True) as first:
        stop = e.op("min", e.op("+", first, i64(STRETCH)), end)
        stretch = Stretch(lo, axis, first, stop, lanes)
        lo.ready = {id(s.reduce): stretch.fill(s) for s in sums}
        each(first, stop)
        lo.ready = {}
