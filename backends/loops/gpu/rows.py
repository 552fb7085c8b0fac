"""Kernels of blocks whose threads keep a row in registers: it is read once, by wide accesses, however many reductions over it there are.

    block for n in 0..N {
      each t { unroll for r in 0..4 { first = 8 * t + r * 256 ; if first < K { move %x_row[r * 8] = %x[n, first] x 8 } } }
      … reductions over %x_row, by all threads … ; … results, moved out in the same way …
    }

The number of threads follows from the length of the row (`Kernel.team`); where a warp is enough for one, a block has several rows. Rows that are too long for
all threads together, or lie where wide accesses may not, take the way of `gpu/nests.py`, which reads them once for each reduction: a branch that all threads
take alike. What is computed on the way for every place of a row, and is costly, is kept as well.

Where wide accesses may not be (rows of an odd length begin anywhere), a thread has as many places, each next to one of its neighbour's, one access each.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.build import size_of
from pipelink_ir.backends.loops.emit import TRUE, Atom, i64
from pipelink_ir.backends.loops.fold import must
from pipelink_ir.backends.loops.gpu.nests import GpuNest
from pipelink_ir.backends.loops.gpu.row import LANES, ONE, Row
from pipelink_ir.backends.loops.gpu.team import Team
from pipelink_ir.backends.loops.gpu.vector import Wide, aligned, conditions, count_of, hold, keep, multiple, plain, stored
from pipelink_ir.backends.loops.lower import Lowering, Sites
from pipelink_ir.backends.loops.nests import Job
from pipelink_ir.backends.loops.reads import address
from pipelink_ir.ir.dtypes import I64
from pipelink_ir.ir.functions import REDUCTIONS
from pipelink_ir.ir.nodes import Expr, Reduce
from pipelink_ir.ir.typed import Tensor, TypedOperator
from pipelink_ir.ir.walk import walk
from pipelink_ir.passes.scheduling.costs import Costs, Plan
from pipelink_ir.passes.scheduling.counts import known, ranges_of
from pipelink_ir.passes.scheduling.rows import Span
from pipelink_ir.passes.scheduling.shape import Long, Shape, long_reductions, reads_of, sized
from pipelink_ir.passes.scheduling.uses import Lin, Use

MOST = 1024
"""Most threads of a block."""
VECTORS = 4
"""Wide accesses by which a thread gets its part of a row: more of them leave room for fewer threads than hide the time that memory takes."""
FULL, RESIDENT = 16, 1536
"""Values of a thread that 40 registers are enough for: a multiprocessor then has so many threads."""
AHEAD = 8
"""Single accesses to a tensor that a thread has under way."""
KEPT = 2
"""Tensors whose rows are kept at once."""
COSTLY = 5.0
"""What is worth keeping if it costs so much."""
TOGETHER = 128
"""Threads of a block that has several rows."""
ROW = "row"
"""The name of the place in a row."""


def block_body(op: TypedOperator, plan: Plan, sites: Sites, jobs: list[Job], name: str, shape: Shape,
               chosen: Mapping[str, int] | None = None, span: Span | None = None) -> Lowering:
    """The kernel of a block for each place of some axes, still open. `span`: what lengths of a row there are."""
    lo = Lowering(op, plan, sites, frozenset(t.name for t, _ in jobs), chosen)
    nest = _RowNest(lo, jobs)
    nest.span = span
    nest.rows_or_not(shape.axes, name)
    return lo


@dataclass(frozen=True, slots=True)
class Way:
    """One way to keep a row: whether it is open, and what is loaded and stored for the results beside the row."""

    row: Row
    open: Atom
    beside: list[Wide]
    stores: list[Wide]


class _RowNest(GpuNest):
    """The loops of one kernel."""

    span: Span | None = None

    def rows_or_not(self, outer: tuple[int, ...], name: str) -> None:
        """Writes the kernel."""
        self.outer = outer
        self.ways = self._find(outer) if outer in (tuple(range(len(self.axes))), tuple(range(len(self.axes) - 1))) else []
        self.block(outer, name)

    # ---------------------------------------------------------------------------------------------------------------- what there is

    def _find(self, outer: tuple[int, ...]) -> list[Way]:
        """The ways to keep a row: by wide accesses, and by single ones."""
        lo = self.lo
        longs = [r for t, p in self.jobs for r in long_reductions(lo.op, lo.plan.local, p, lo.chosen)]
        length = self._length(outer, longs)
        # What a part of a join reads is there for the places of that part alone.
        if length is None or lo.chosen or any(u.joined for u in self.uses):
            return []
        inner = len(outer) < len(self.axes)
        kept, beside = self._reads(outer, longs, inner)
        if not kept or len(kept) > KEPT:
            return []
        stores = [t for t, _ in self.jobs] if inner else []
        count = count_of([*(w.tensor for w in (*kept, *beside)), *stores])
        vectors = VECTORS // len(kept)
        if count < 2:
            return []
        apart = self.span is None and self._apart(longs)
        # The longest row, if that is known, and threads for it.
        self.longest = self.span.most if self.span is not None else known(length)
        self.most = MOST if self.longest is None else max(1, min(MOST // LANES, -(-self.longest // (FULL // len(kept) * LANES)))) * LANES
        if apart:
            # A row that a warp is enough for shares its block with others.
            self.most = max(self.most, TOGETHER)
        team = self._team(size_of(length), count, count * vectors, min(FULL // len(kept), vectors * count), apart)
        self.threads, self.each = self.e.bind("threads", team, 0), count * vectors
        n = self.e.op("max", lo.index(length, lo.root), i64(0))
        ways = [self._way(outer, n, kept, beside, count, vectors, apart)]
        kept, beside = self._reads(outer, longs, inner)
        ways.append(self._way(outer, n, kept, beside, 1, min(FULL // len(kept), vectors * count), False))
        ways = [w for w in ways if not (isinstance(w.open, form.Const) and not w.open.value)]
        if ways:
            lo.team_size = self.most, team
            # What else the threads read of a row takes registers of its own.
            lo.fit = RESIDENT // self.most if count * vectors <= FULL and not beside else 0
        return ways

    def _way(self, outer: tuple[int, ...], n: Atom, kept: list[Wide], beside: list[Wide], count: int, vectors: int, apart: bool) -> Way:
        """A row of `n` places, `count` neighbours at a time."""
        lo, e = self.lo, self.e
        stores = [stored(lo, t, p) for t, p in self.jobs] if len(outer) < len(self.axes) else []
        row = Row(lo, n, self.threads, count, vectors, kept)
        if apart:
            row.apart = e.op("and", e.op("<=", n, i64(LANES * row.own)), multiple(lo, n, count))
            row.rows = e.choose(row.apart, e.op("quot", row.threads, i64(LANES)), ONE)
        fits: Atom = e.op("<=", n, e.op("*", row.threads, i64(row.own)))
        # There may be as few threads as wide accesses take, if those have more places each.
        if count == 1 and row.own == self.each and self.longest is not None and self.longest <= self.most * row.own:
            fits = TRUE
        wide = fits if count == 1 else self._wide(outer, row, [*kept, *beside, *stores], e.op("and", fits, multiple(lo, n, count)))
        if len(kept) == 1:
            row.computed = {t.name: None for t in lo.op.tensors.values() if len(t.shape) == len(outer) + 1 and self._costly(t)}
        return Way(row, wide, beside, stores)

    def _costly(self, t: Tensor) -> bool:
        """Whether a local that is evaluated where it is read is worth keeping."""
        if not self.lo.plan.inline(t.name) or len(t.pieces) != 1:
            return False
        value = t.pieces[0].value
        return not any(isinstance(x, Reduce) for x in walk(value)) and Costs(self.lo.op, lambda _: 0.0).of(value) >= COSTLY

    def _length(self, outer: tuple[int, ...], longs: list[Long]) -> Expr | None:
        """The length of the row: what all long reductions run over, and the last axis of the results if that is inside a block."""
        found: list[Expr] = []
        for r in longs:
            ranges = ranges_of(r.reduce)
            if len(ranges) != 1 or REDUCTIONS[r.reduce.kind].ranked or not (ranges[0].lo is None or known(ranges[0].lo) == 0):
                return None
            if r.plain is None or not set(r.plain.values()) <= set(outer):
                return None  # one thread has to do it for each place of the row
            found.append(ranges[0].hi)
        if len(outer) < len(self.axes):
            for _, piece in self.jobs:
                last = piece.axes[-1]
                if piece.holes or not (last.lo is None or known(last.lo) == 0):
                    return None
                found.append(last.hi)
        return found[0] if found and all(x == found[0] for x in found) and sized(found[0], self.lo.op) else None

    def _reads(self, outer: tuple[int, ...], longs: list[Long], inner: bool) -> tuple[list[Wide], list[Wide]]:
        """Reads along the row: those of reductions, and those of the results alone."""
        kept: dict[object, Wide] = {}
        beside: dict[object, Wide] = {}
        axes = {k: f"{k}" for k in outer}
        for r in longs:
            plain_names = r.plain or {}
            for u in reads_of(self.lo.op, self.lo.plan.local, r.reduce, plain_names):
                self._note(kept, u, {**{n: axes[k] for n, k in plain_names.items()}, "#1": ROW}, axes)
        if inner:
            for (_, piece), uses in zip(self.jobs, self.uses, strict=True):
                names = {a.index: axes.get(k, ROW) for k, a in enumerate(piece.axes)}
                for u in uses.uses:
                    self._note(beside, u, names, axes)
        return list(kept.values()), [w for key, w in beside.items() if key not in kept]

    def _note(self, found: dict[object, Wide], u: Use, names: Mapping[str, str], axes: Mapping[int, str]) -> None:
        """A read that may be wide: the row is its last index, and nothing else is."""
        if u.tensor in self.lo.written or not plain(u, set(names)):
            return
        at = tuple(Lin(lin.constant, tuple(sorted((names[n], c) for n, c in lin.terms))) for lin in u.at)
        if not at or not at[-1].only(ROW) or any(ROW in lin.names for lin in at[:-1]) or (u.tensor, at) in found:
            return
        t = self.lo.op.tensors[u.tensor]
        found[u.tensor, at] = Wide(t, self.e.memory(f"{t.name}_row"), Use(u.tensor, at, u.access), (*axes.values(), ROW))

    # ---------------------------------------------------------------------------------------------------------------- what must hold

    def _apart(self, longs: list[Long]) -> bool:
        """Whether a block may have several rows: nothing that all of its threads do together may look at what differs between rows."""
        checked = any(REDUCTIONS[r.reduce.kind].empty == "error" for r in longs)
        return not checked and not any(u.tensor in self.lo.written for uses in self.uses for u in uses.uses)

    def _team(self, size: form.Expr, count: int, each: int, single: int, apart: bool) -> form.Expr:
        """The threads of a block: as many as the row needs, where each has so many places by wide accesses or by single ones."""
        def op(fn: str, a: form.Expr, b: int | form.Expr) -> form.Expr:
            return form.Op(fn, (a, i64(b) if isinstance(b, int) else b), I64)

        def needed(each: int) -> form.Expr:
            return op("floordiv", op("+", size, each * LANES - 1), each * LANES)

        warps = needed(each)
        if single != each:
            # `single` where the length is no multiple of `count`.
            warps = op("max", warps, op("*", op("min", op("mod", size, count), 1), needed(single)))
        threads = op("*", op("max", op("min", warps, self.most // LANES), 1), LANES)
        if apart:
            # One warp is enough for a row: several rows make a block.
            threads = op("max", threads, op("*", op("max", op("-", i64(2), op("max", warps, 1)), 0), TOGETHER))
        return threads

    def _wide(self, outer: tuple[int, ...], row: Row, all_: list[Wide], wide: Atom) -> Atom:
        e = self.e
        firsts = [self.axes[k].lo for k in outer]
        row.fixed = {f"{k}": i for k, i in zip(outer, firsts, strict=True)}
        for w in all_:
            at = row.read_at(w, i64(0))
            moving = bool(outer) and (w.use is None or any(lin.names for lin in w.use.at[:-1]))
            for need in conditions(self.lo, w.tensor, at, moving, row.count):
                wide = need if wide is TRUE else e.op("and", wide, need)
        for t in {w.tensor.name: w.tensor for w in all_}.values():
            wide = e.op("and", wide, aligned(self.lo, t, row.count))
        return wide

    # ------------------------------------------------------------------------------------------------------------------ writing

    def turns(self, places: Atom) -> Atom:
        """How many turns the loop over blocks has for so many places."""
        if not self.ways or self.ways[0].row.apart is None:
            return places
        e, rows = self.e, self.ways[0].row.rows
        return e.op("quot", e.op("+", places, e.op("-", rows, ONE)), rows)

    def turn(self, team: Team, p: Atom, places: Atom, one: Callable[[Atom], None]) -> None:
        """What a block does in turn `p`: the rows in registers if that can be, else `one` for each."""
        if not self.ways:
            one(p)
            return
        e, (first, *others) = self.e, self.ways
        if first.row.apart is None:
            self._try(self.ways, team, p, places, one)
            return

        def each(p: Atom) -> None:
            begin = e.op("*", p, first.row.rows)
            with e.loop("place", begin, e.op("min", e.op("+", begin, first.row.rows), places)) as place:
                self._try(others, team, place, places, one)

        self._try([first], team, p, places, each)

    def _try(self, ways: list[Way], team: Team, p: Atom, places: Atom, one: Callable[[Atom], None]) -> None:
        """The first way that is open, else `one`."""
        if not ways:
            one(p)
            return
        e, (way, *others) = self.e, ways
        row = way.row
        row.alone = team.alone
        with e.frame("lazy") as then:
            ahead, team.ahead_loads, team.row = team.ahead_loads, False, row
            blocks = [self.axes[k] for k in self.outer]
            fixed = dict(zip(self.outer, self._places(blocks, row.begin(p, places)), strict=True))
            row.fixed = {f"{k}": i for k, i in fixed.items()}
            self._kept(team, row, fixed, way.beside, way.stores)
            team.ahead_loads, team.row = ahead, None
        with e.frame("lazy") as other:
            if way.open is not TRUE:
                self._try(others, team, p, places, one)
        if way.open is not TRUE:
            e.raw(form.If(way.open, (*row.allocs, *then.stmts), tuple(other.stmts)))
            return
        for s in (*row.allocs, *then.stmts):
            e.raw(s)

    def _kept(self, team: Team, row: Row, fixed: Mapping[int, Atom], beside: list[Wide], stores: list[Wide]) -> None:
        lo, e = self.lo, self.e
        for w in row.kept:
            e.raw(form.Alloc(w.own, w.dtype, i64(row.own)))
        with row.vector() as (begin, first):
            for w in row.kept:
                self._fetch(row, w, begin, first)
        if not stores:
            self._results(team, row, fixed)
            return
        for _, piece in self.jobs:
            team.ahead(piece, fixed)
        if row.count == 1 and beside:
            self._in_groups(row, fixed, beside, stores)
            return
        with row.vector() as (begin, first):
            for w in (*beside, *stores):
                e.raw(form.Alloc(w.own, w.dtype, i64(row.count)))
            for w in beside:
                self._fetch(row, w, i64(0), first)
            with row.within(begin, first) as k:
                place = e.op("-", k, first)
                for w in beside:
                    hold(lo, w, row.read_at(w, k), place)
                for (_, piece), w in zip(self.jobs, stores, strict=True):
                    keep(lo, w, piece, [*fixed.values(), k], place)
            for w in stores:
                self._put(row, w, first)

    def _in_groups(self, row: Row, fixed: Mapping[int, Atom], beside: list[Wide], stores: list[Wide]) -> None:
        """Results of single places: what is read for some of them comes before the first is computed."""
        e = self.e
        with row.each() as t:
            with e.frame("lazy") as then:
                self._groups(row, t, fixed, beside, stores, True)
            with e.frame("lazy") as other:
                self._groups(row, t, fixed, beside, stores, False)
            e.raw(form.If(row.all_inside(t), tuple(then.stmts), tuple(other.stmts)))

    def _groups(self, row: Row, t: Atom, fixed: Mapping[int, Atom], beside: list[Wide], stores: list[Wide], sure: bool) -> None:
        lo, e, most = self.lo, self.e, AHEAD if sure else max(1, AHEAD // len(beside))
        for at in range(0, row.vectors, most):
            size = min(most, row.vectors - at)
            here = [replace(w, own=e.memory(f"{w.tensor.name}_row")) for w in beside]
            for w in here:
                e.raw(form.Alloc(w.own, w.dtype, i64(size)))
            with row.vectors_of(t, at, size, sure) as (v, _, first, outside):
                for w in here:
                    self._fetch(row, w, v, first)
                    outside.append(form.Store(w.own, v, must(0, w.dtype.compute), w.dtype))
            with row.vectors_of(t, at, size, sure) as (v, begin, first, _):
                own = [replace(w, own=e.memory(f"{w.tensor.name}_own")) for w in stores]
                for w in own:
                    e.raw(form.Alloc(w.own, w.dtype, i64(1)))
                with row.within(begin, first) as k:
                    for w in here:
                        hold(lo, w, row.read_at(w, k), v)
                    for (_, piece), w in zip(self.jobs, own, strict=True):
                        keep(lo, w, piece, [*fixed.values(), k], i64(0))
                for w in own:
                    self._put(row, w, first)

    def _fetch(self, row: Row, w: Wide, at: Atom, first: Atom) -> None:
        """Loads what begins at a place of the row."""
        e, buffer, address_ = self.e, self.lo.buffer(w.tensor), self._address(row, w, first)
        if row.count > 1:
            e.raw(form.Move(w.own, at, buffer, address_, row.count))
            return
        value = e.bind(w.tensor.name.rsplit(".", 1)[-1], form.Load(buffer, address_, w.tensor.dtype, w.tensor.dtype.compute))
        e.raw(form.Store(w.own, at, value, w.dtype))

    def _put(self, row: Row, w: Wide, first: Atom) -> None:
        """Stores there what the thread has."""
        e, buffer, address_ = self.e, self.lo.buffer(w.tensor), self._address(row, w, first)
        if row.count > 1:
            e.raw(form.Move(buffer, address_, w.own, i64(0), row.count))
            return
        value = e.bind(w.tensor.name.rsplit(".", 1)[-1], form.Load(w.own, i64(0), w.dtype, w.dtype.compute))
        e.raw(form.Store(buffer, address_, value, w.tensor.dtype))

    def _results(self, team: Team, row: Row, fixed: Mapping[int, Atom]) -> None:
        """Results with one place for each row."""
        e = self.e
        if row.apart is None:
            self._alike(team, fixed)
            return
        for _, piece in self.jobs:
            team.ahead(piece, fixed)
        with row.each() as t, e.when(e.op("and", e.op("==", row.number(t), i64(0)), row.inside)):
            self.element([fixed[k] for k in range(len(self.axes))])

    def _address(self, row: Row, w: Wide, first: Atom) -> Atom:
        return address(self.lo, w.tensor, row.read_at(w, first))
