"""Kernels of definitions without a recurrence: a parallel loop over all outer axes as one, and inside it a row.

The row is the last axis; or the last axes as one flat loop, where no index tells them apart (element-wise work, stencils along the axis before channels); or
the axis before a last one of at most four places, which is then written out. A border along the row splits it into interior and edges.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import frexp, ldexp

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.emit import Atom, Emitter, i64, key_of
from pipelink_ir.backends.loops.lower import Env, Lowering, Sites
from pipelink_ir.backends.loops.reads import address, fail_empty, no_hole, row_address
from pipelink_ir.backends.loops.rows import SHARE, STRETCH, Lane, Sum, sums_of, write
from pipelink_ir.backends.loops.split import edges, interior, running, split, trial
from pipelink_ir.ir.dtypes import I64, DType
from pipelink_ir.ir.nodes import Expr, IntLit, Range
from pipelink_ir.ir.typed import Piece, Tensor, TypedOperator
from pipelink_ir.passes.scheduling.costs import Plan, heavy
from pipelink_ir.passes.scheduling.counts import known
from pipelink_ir.passes.scheduling.uses import Lin, Uses, uses_of

CHUNK = 16384
"""Elements of a flat loop that one turn of the parallel loop takes."""
SHORT = 4
"""A last axis of at most so many places is written out."""

Job = tuple[Tensor, Piece]


@dataclass(slots=True)
class Axis:
    """One axis of the box: its name, the first place and the size."""

    name: str
    lo: Atom
    n: Atom


def kernel_body(op: TypedOperator, plan: Plan, sites: Sites, jobs: list[Job], chosen: Mapping[str, int] | None = None) -> Lowering:
    """The kernel that computes pieces over one box, still open: its statements stand in the root frame."""
    lo = Lowering(op, plan, sites, frozenset(t.name for t, _ in jobs), chosen)
    Nest(lo, jobs).write()
    return lo


class Nest:
    """The loops of one kernel."""

    def __init__(self, lo: Lowering, jobs: list[Job]) -> None:
        self.lo, self.e = lo, lo.e
        self.jobs = [_without_first_holes(t, p) for t, p in jobs] if len(jobs) == 1 else jobs
        self.axes = [self._axis(a) for a in self.jobs[0][1].axes]
        self.heavy = any(heavy(lo.op, lo.plan.local, p) for _, p in self.jobs)
        self.uses = [uses_of(p, lo.op.tensors, lo.plan.local, lo.chosen) for _, p in self.jobs]
        written = {t.name for t, _ in self.jobs}
        self.rows = [lo.op.tensors[n] for g in lo.op.order for n in g.tensors if lo.plan.roots.get(n) in written]
        for tensor, p in self.jobs:
            for k, a in enumerate(p.axes):
                self._fill(lo.extent(a.lo or IntLit(0, dtype=I64), a.hi))
                self._fill(lo.extent(*tensor.shape[k]))

    def _axis(self, r: Range) -> Axis:
        first = self.lo.index(r.lo, self.lo.root) if r.lo is not None else i64(0)
        return Axis(r.index, first, self.e.op("-", self.lo.index(r.hi, self.lo.root), first))

    def _fill(self, n: Atom) -> None:
        if isinstance(n, form.Ref):
            self.lo.full.add(n.name)

    # ----------------------------------------------------------------------------------------------------------------- shape

    def write(self) -> None:
        """Writes the kernel."""
        axes, e = self.axes, self.e
        if not axes:
            self._readable(lambda: self.element([]))
            return
        # Sums for a whole stretch come before anything of it is stored: definitions that read each other cannot have them.
        written = {t.name for t, _ in self.jobs}
        apart = not any(use.tensor in written for found in self.uses for use in found.uses)
        sums = [s for _, p in self.jobs for s in sums_of(self.lo, p)] if self.heavy and apart else []
        if sums:
            self._accumulated(sums)
            return
        flat = 1 if self.heavy or self.rows else self._flat_suffix()
        short = not self.heavy and not self.rows and flat == 1 and len(axes) > 1 and isinstance(axes[-1].n, form.Const) and 1 <= int(axes[-1].n.value) <= SHORT
        inner = flat if flat > 1 else 2 if short else 1
        outer = axes[:-inner]
        if not outer and self.heavy:
            outer = axes
        row = self._flat if flat > 1 else self._short if short else self._row
        if outer:
            with e.loop(self._hint(outer), i64(0), self._turns(outer), kind="parallel") as p:
                at = self._unravel(outer, p)
                self._readable(lambda: self.element(at) if len(outer) == len(axes) else self._with_rows(at, lambda: row(at, axes[len(outer):], None)))
            return
        total = self._total(axes) if flat > 1 else axes[0].n
        chunks = e.op("floordiv", e.op("+", self._guarded(total, axes), i64(CHUNK - 1)), i64(CHUNK))
        with e.loop("chunk", i64(0), chunks, kind="parallel") as p:
            begin = e.op("*", p, i64(CHUNK))
            self._readable(lambda: row([], axes, (begin, e.op("min", e.op("+", begin, i64(CHUNK)), total))))

    def _readable(self, body: Callable[[], None]) -> None:
        """`body`, unless it would read through a border from an axis without places."""
        lo, e = self.lo, self.e
        asked = {key: span for u in self.uses for key, span in u.borders.items()}
        empty = [(lo.op.tensors[t], k, n, span) for (t, k), span in asked.items() if not lo.is_full(n := lo.extent(*lo.op.tensors[t].shape[k]))]
        if not empty:
            body()
            return
        ok = e.all_of([e.op(">=", n, i64(1)) for _, _, n, _ in empty])
        with e.when(e.op("not", ok)):
            for t, k, n, span in empty:
                fail_empty(lo, t, [(k, n)], span)
        with e.when(ok):
            for _, _, n, _ in empty:
                self._fill(n)
            body()

    def _hint(self, outer: list[Axis]) -> str:
        return outer[0].name if len(outer) == 1 else "_".join(a.name for a in outer)

    def _total(self, axes: list[Axis]) -> Atom:
        out: Atom = i64(1)
        for a in axes:
            out = self.e.op("*", out, self.e.op("max", a.n, i64(0)))
        return out

    def _guarded(self, turns: Atom, others: list[Axis]) -> Atom:
        """`turns`, or none at all if an axis is empty: what is proven inside is so only for axes that have places."""
        for a in others:
            turns = self.e.choose(self.e.op(">", a.n, i64(0)), turns, i64(0))
        return turns

    def _turns(self, outer: list[Axis]) -> Atom:
        return self._guarded(self._total(outer), self.axes[len(outer):])

    def _unravel(self, outer: list[Axis], p: Atom) -> list[Atom]:
        e, at, left = self.e, [], p
        for k, a in reversed(list(enumerate(outer))):
            place = left
            if k:
                place, left = e.op("rest", left, a.n, hint=a.name), e.op("quot", left, a.n)
            at.append(e.op("+", a.lo, place))
        return at[::-1]

    # ------------------------------------------------------------------------------------------------------------------ rows

    def _row(self, at: list[Atom], axes: list[Axis], part: tuple[Atom, Atom] | None) -> None:
        a, e = axes[0], self.e
        begin, end = part or (i64(0), a.n)
        split(self.lo, a.name, e.op("+", a.lo, begin), e.op("+", a.lo, end), lambda i: self.element([*at, i]), not self.heavy)

    def _short(self, at: list[Atom], axes: list[Axis], part: tuple[Atom, Atom] | None) -> None:
        a, last, e = axes[0], axes[1], self.e
        begin, end = part or (i64(0), a.n)

        def body(i: Atom) -> None:
            assert isinstance(last.n, form.Const)
            for c in range(int(last.n.value)):
                self.element([*at, i, e.op("+", last.lo, i64(c))])

        split(self.lo, a.name, e.op("+", a.lo, begin), e.op("+", a.lo, end), body, True)

    def _flat(self, at: list[Atom], axes: list[Axis], part: tuple[Atom, Atom] | None) -> None:
        """The axes as one loop: the others stand at 0 and the last runs through all of them."""
        lo, e, first, rest = self.lo, self.e, axes[0], axes[1:]
        size = self._total(rest)
        if part is not None:
            start = e.op("*", first.lo, size)
            with e.loop("i", e.op("+", start, part[0]), e.op("+", start, part[1]), nonempty=True, vector=True) as i:
                self.element([*(i64(0) for _ in axes[1:]), i])
            return
        nested = self._nested(at, rest)
        _, _, needs = trial(lo, first.name, nested)
        begin, end = first.lo, e.op("+", first.lo, first.n)
        inner, last, assured = interior(lo, begin, end, needs) if needs else (begin, end, set())
        origin: Atom = e.bind("origin", i64(0)) if needs else i64(0)
        with e.loop("i", e.op("*", inner, size), e.op("*", last, size), nonempty=True, vector=True) as i:
            with running(lo, origin.name if isinstance(origin, form.Ref) else None, assured, None):
                self.element([*at, origin, *(i64(0) for _ in rest[1:]), i])
        if needs:
            edges(lo, first.name, begin, inner, last, end, nested)

    def _nested(self, at: list[Atom], rest: list[Axis]) -> Callable[[Atom], None]:
        def body(i: Atom, k: int = 0, done: tuple[Atom, ...] = ()) -> None:
            if k == len(rest):
                self.element([*at, *done, i])
                return
            with self.e.loop(rest[k].name, i64(0), rest[k].n, nonempty=True) as j:
                body(j, k + 1, (*done, i))
        return body

    def _with_rows(self, at: list[Atom], body: Callable[[], None]) -> None:
        """`body` after the rows of locals that are kept a row at a time."""
        for t in self.rows:
            fill_row(self.lo, t, at)
        body()

    # ----------------------------------------------------------------------------------------------------- accumulated rows

    def _accumulated(self, sums: list[Sum]) -> None:
        """Rows whose reductions are accumulated for a whole stretch; see `rows.py`."""
        e, outer, row = self.e, self.axes[:-1], self.axes[-1]
        free = [k for k in range(len(outer)) if any(k in s.free_axes(len(self.axes)) for s in sums)]
        shared = free[-1] if free and not self.rows and all(s.reduce.where is None for s in sums) and known_size(outer[free[-1]].n) != 1 else None
        if not outer:
            turns = e.op("floordiv", e.op("+", e.op("max", row.n, i64(0)), i64(STRETCH - 1)), i64(STRETCH))
            with e.loop(f"{row.name}_stretch", i64(0), turns, kind="parallel") as p:
                begin = e.op("+", row.lo, e.op("*", p, i64(STRETCH)))
                end = e.op("min", e.op("+", begin, i64(STRETCH)), e.op("+", row.lo, row.n))
                self._readable(lambda: self._stretch(sums, [], None, begin, end))
            return
        blocked = list(outer)
        if shared is not None:
            a = outer[shared]
            blocked[shared] = Axis(a.name, i64(0), e.op("floordiv", e.op("+", e.op("max", a.n, i64(0)), i64(SHARE - 1)), i64(SHARE)))
        turns = self._guarded(self._total(blocked), [*outer, row])
        with e.loop(self._hint(outer), i64(0), turns, kind="parallel") as p:
            at = self._unravel(blocked, p)
            self._readable(lambda: self._with_rows(at, lambda: self._stretch(sums, at, shared, row.lo, e.op("+", row.lo, row.n))))

    def _stretch(self, sums: list[Sum], at: list[Atom], shared: int | None, begin: Atom, end: Atom) -> None:
        """One row, or the few rows that share a pass: `at` has the number of the block along the shared axis."""
        lo, e, row = self.lo, self.e, self.axes[-1].name
        if shared is None:
            write(lo, sums, row, begin, end, [Lane(tuple(at))],
                  lambda first, stop: split(lo, row, first, stop, lambda j: self._finished([*at, j], i64(0)), not self._more(sums)))
            return
        axis = self.axes[shared]
        first_lane, last = e.op("+", axis.lo, e.op("*", at[shared], i64(SHARE))), e.op("+", axis.lo, axis.n)
        # Behind the end of the axis the last place is computed again, and not stored.
        places = [e.op("min", e.op("+", first_lane, i64(d)), e.op("-", last, i64(1))) for d in range(SHARE)]
        lanes = [Lane((*at[:shared], place, *at[shared + 1:])) for place in places]

        def each(first: Atom, stop: Atom) -> None:
            with e.loop(axis.name, first_lane, e.op("min", e.op("+", first_lane, i64(SHARE)), last), nonempty=True) as i:
                offset = e.op("*", e.op("-", i, first_lane), i64(STRETCH))
                here = [*at[:shared], i, *at[shared + 1:]]
                split(lo, row, first, stop, lambda j: self._finished([*here, j], offset), not self._more(sums))

        write(lo, sums, row, begin, end, lanes, each)

    def _finished(self, at: list[Atom], offset: Atom) -> None:
        self.lo.here, self.lo.offset = at, offset
        self.element(at)

    def _more(self, sums: list[Sum]) -> bool:
        """Whether other reductions still loop inside the row."""
        return len(self.jobs) > len(sums)

    # --------------------------------------------------------------------------------------------------------------- element

    def element(self, at: list[Atom]) -> None:
        """Computes and stores what belongs to one place."""
        for t, piece in self.jobs:
            conds = no_hole(self.lo, piece, tuple(at))
            with self.e.when(self.e.all_of(conds)):
                store(self.lo, t, piece, at)

    # --------------------------------------------------------------------------------------------------------------- flatness

    def _flat_suffix(self) -> int:
        """How many of the last axes may run as one loop."""
        best = 1
        if any(p.holes for _, p in self.jobs):
            return best
        found = [(p, u) for (_, p), u in zip(self.jobs, self.uses, strict=True)]
        rank = len(self.axes)
        for m in range(2, rank + 1):
            if not all(self._whole(p, rank - m) and self._in_step(p, u, rank - m, m == rank) for p, u in found):
                break
            best = m
        return best

    def _whole(self, p: Piece, first: int) -> bool:
        """Whether the axes after `first` are whole axes of the tensors that are written."""
        return all((r.lo is None or known(r.lo) == 0) and all(t.shape[k][1] == r.hi and known(t.shape[k][0]) == 0 for t, _ in self.jobs)
                   for k, r in enumerate(p.axes) if k > first)

    def _in_step(self, p: Piece, u: Uses, first: int, alone: bool) -> bool:
        axes = p.axes[first:]
        names = [a.index for a in axes]
        if u.loose & set(names):
            return False
        return all(self._moves(use.at, self.lo.op.tensors[use.tensor], use.access, names, [a.hi for a in axes], alone) for use in u.uses)

    def _moves(self, at: tuple[Lin, ...], t: Tensor, access: tuple[str, ...], names: list[str], sizes: list[Expr], alone: bool) -> bool:
        """Whether a read goes through its tensor as the flat loop goes through the result, or stands still."""
        used = [k for k, lin in enumerate(at) if lin.names & set(names)]
        if not used:
            return True
        k = used[0]
        if used != list(range(k, k + len(names))):
            return False
        for j, (name, size) in enumerate(zip(names, sizes, strict=True)):
            lin, axis = at[k + j], k + j
            if j and not (lin.only(name) and t.shape[axis][1] == size and known(t.shape[axis][0]) == 0):
                return False
            if not j and (lin.opaque or dict(lin.terms).get(name) != 1 or lin.names & set(names) != {name} or access[axis] == "check"):
                return False
            if not j and alone and access[axis] == "border" and not lin.only(name):
                return False
        return all(access[a] in ("inside", "guarded", "border") for a in used)


def fill_row(lo: Lowering, t: Tensor, at: list[Atom]) -> None:
    """Computes the part of a local that belongs to a row into scratch."""
    e, piece = lo.e, t.pieces[0]
    rest = range(len(at), len(t.shape))
    size: Atom = i64(1)
    for k in rest:
        size = e.op("*", size, e.op("max", lo.extent(*t.shape[k]), i64(0)))
    name = e.fresh(t.name)
    e.raw(form.Alloc(name, t.dtype, size))
    plain, sums = not heavy(lo.op, lo.plan.local, piece), sums_of(lo, piece)

    def row(places: list[Atom], first: Atom, last: Atom) -> None:
        def done(i: Atom) -> None:
            lo.here, lo.offset = [*places, i], i64(0)
            loops([*places, i])

        name = piece.axes[-1].index
        if sums:
            write(lo, sums, name, first, last, [Lane(tuple(places))], lambda begin, end: split(lo, name, begin, end, done, plain))
        else:
            split(lo, name, first, last, lambda i: loops([*places, i]), plain)

    def loops(places: list[Atom]) -> None:
        k = len(places)
        if k == len(t.shape):
            env = Env({a.index: i for a, i in zip(piece.axes, places, strict=True)})
            e.raw(form.Store(name, row_address(lo, t, places[len(at):]), e.convert(lo.value(piece.value, env), t.dtype), t.dtype))
            return
        first, last = (lo.index(x, lo.root) for x in t.shape[k])
        if k + 1 == len(t.shape):
            row(places, first, last)
            return
        with e.loop(piece.axes[k].index, first, last, nonempty=True) as i:
            loops([*places, i])

    # Inside it is known that the row has places, so that what does not depend on them moves out of its loops.
    maybe = [n for k in rest if not lo.is_full(n := lo.extent(*t.shape[k]))]
    saved = set(lo.full)
    lo.full |= {n.name for n in maybe if isinstance(n, form.Ref)}
    with e.when(e.all_of([e.op(">=", n, i64(1)) for n in maybe])):
        loops(list(at))
    lo.full = saved
    e.remember(("row", t.name, tuple(map(key_of, at))), name)


def known_size(n: Atom) -> int | None:
    """A constant extent."""
    return int(n.value) if isinstance(n, form.Const) else None


def store(lo: Lowering, t: Tensor, piece: Piece, at: list[Atom]) -> None:
    """Evaluates a piece at a place and stores it."""
    e = lo.e
    value = lo.made(t, piece, at)
    value = _once_rounded(e, value, t.dtype)
    e.raw(form.Store(lo.buffer(t), address(lo, t, tuple(at)), value, t.dtype))
    if len(lo.written) > 1:
        e.remember(("stored", t.name, tuple(map(key_of, at))), e.convert(value, t.dtype))


def _once_rounded(e: Emitter, value: Atom, dtype: DType) -> Atom:
    """What is stored without a rounding that storing does again: rounding keeps the order of numbers, so it may as well come after `min` and `max` with numbers
    that it does not change."""
    limits: list[tuple[str, form.Const]] = []
    x: form.Expr | None = value
    while isinstance(x, form.Ref):
        x = e.values.get(x.name)
        if isinstance(x, form.Convert) and x.to is dtype and dtype.is_float and x.arg.dtype is dtype.compute and isinstance(x.arg, form.Ref | form.Const):
            out: Atom = x.arg
            for fn, limit in reversed(limits):
                out = e.op(fn, out, limit)
            return out
        if not isinstance(x, form.Op) or x.fn not in ("min", "max") or not isinstance(x.args[1], form.Const):
            return value
        limit = x.args[1]
        if not _held(float(limit.value), dtype):
            return value
        limits.append((x.fn, limit))
        x = x.args[0]
    return value


def _held(value: float, dtype: DType) -> bool:
    """Whether every float of so many digits holds a number; numbers that some formats are too small for are not looked at."""
    return value == 0 or (2.0**-6 <= abs(value) < 2.0**8 and ldexp(frexp(value)[0], dtype.digits).is_integer())


def _without_first_holes(t: Tensor, p: Piece) -> Job:
    """A piece that begins behind the constant positions at its beginning: `%a[t < T]` beside `%a[0]` runs from 1."""
    axes, holes = list(p.axes), list(p.holes)
    changed = True
    while changed:
        changed = False
        for hole in holes:
            if len(hole) == 1:
                axis, value = hole[0]
                r = axes[axis]
                if known(r.lo) == value:
                    axes[axis] = Range(r.index, IntLit(value + 1, dtype=I64), r.hi, span=r.span, dtype=r.dtype)
                    holes.remove(hole)
                    changed = True
                    break
    return t, Piece(tuple(axes), p.value, tuple(holes), p.span)
