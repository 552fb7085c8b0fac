"""Kernels of short rows: a few lanes of a warp have one, as many as its length asks for, and a block has a run of rows.

    block for lot in 0..lots {
      if wide { each t { unroll for r in 0..4 { first = 4 * (lane + r * lanes) ; if first < K { move %x_row[4 * r] = %x[n, first] x 4 } } } … }
      else    { thread: %x_lot = the run of rows, 16 bytes at a time ; barrier
                each t { unroll for r in 0..16 { k = lane + r * lanes ; if k < K { %x_row[r] = %x_lot[place * K + k] } } } … }
    }

Rows whose length is a multiple of what an access moves are read and written where they lie. Others begin anywhere, but all rows of a block together are one run
of memory, which goes through shared memory by wide accesses; where they are no run, elements go one by one. Reductions are combined among the lanes of a row.
"""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.emit import FALSE, TRUE, Atom, i64
from pipelink_ir.backends.loops.gpu.nests import GpuNest
from pipelink_ir.backends.loops.gpu.row import ONE, Row
from pipelink_ir.backends.loops.gpu.rows import COSTLY
from pipelink_ir.backends.loops.gpu.team import Team
from pipelink_ir.backends.loops.gpu.vector import Wide, aligned, conditions, count_of, hold, keep, multiple, stored, unrolled
from pipelink_ir.backends.loops.lower import Lowering, Sites
from pipelink_ir.backends.loops.nests import Job
from pipelink_ir.backends.loops.reads import address
from pipelink_ir.ir.nodes import Reduce
from pipelink_ir.ir.typed import Piece, Tensor, TypedOperator
from pipelink_ir.ir.walk import walk
from pipelink_ir.passes.scheduling.costs import Costs, Plan
from pipelink_ir.passes.scheduling.rows import LANES, ROW, ShortRows, along_row, along_rows, is_run
from pipelink_ir.passes.scheduling.uses import Use

THREADS = 128
"""Threads of a block."""
FIT = 8
"""Blocks that a multiprocessor should hold."""
LOT = 16384
"""Bytes of shared memory for the runs of a block in one turn: the more is under way, the less matters that threads wait for each other in between."""


def short_rows_body(op: TypedOperator, plan: Plan, sites: Sites, jobs: list[Job], way: ShortRows) -> tuple[Lowering, int]:
    """The kernel, still open, and the threads of a block."""
    lo = Lowering(op, plan, sites, frozenset(t.name for t, _ in jobs))
    lo.shared_out = frozenset(id(r.reduce) for r in along_rows(op, plan.local, jobs))
    _ShortNest(lo, jobs, way).write()
    lo.fit = FIT
    return lo, THREADS


@dataclass(slots=True)
class Lot(Row):
    """The rows of a block in one turn: which of them a thread has a part of, and which part."""

    lanes: Atom = ONE
    lane: Atom = ONE
    place: Atom = ONE
    """The number of the thread's row in its block."""

    def covers(self, x: Reduce, total: Atom) -> bool:
        """Whether a reduction runs over the row."""
        return id(x) in self.lo.shared_out

    def combine(self, fn: str, names: tuple[str, ...]) -> form.Combine:
        """How the lanes of a row combine what they hold."""
        return form.Combine(fn, names, TRUE, self.lanes)

    def begin(self, p: Atom, places: Atom) -> Atom:
        """In turn `p`: the row of the thread. From here on those that have none find it empty."""
        e = self.lo.e
        thread = e.bind("thread", form.Thread())
        self.lane, self.place = e.op("rest", thread, self.lanes, hint="lane"), e.op("quot", thread, self.lanes, hint="place")
        row = e.op("+", e.op("*", p, self.rows), self.place)
        self.inside = e.op("<", row, places)
        self.whole = e.choose(self.inside, self.length, i64(0))
        return row

    @contextmanager
    def vector(self) -> Iterator[tuple[Atom, Atom]]:
        """In a loop over the threads: a loop over the vectors of one, where each begins in its own memory and in the row. Those behind the end are left out."""
        e = self.lo.e
        with self.each(), unrolled(self.lo, "r", self.vectors) as v:
            first = e.op("*", e.op("+", self.lane, e.op("*", v, self.lanes)), i64(self.count))
            cond = e.op("<", first, self.whole)
            with e.frame("loop") as f:
                yield e.op("*", v, i64(self.count)), first
            e.raw(form.If(cond, tuple(f.stmts)))

    @contextmanager
    def within(self, begin: Atom, first: Atom) -> Iterator[Atom]:
        """The places of one vector."""
        if self.count > 1:
            with Row.within(self, begin, first) as k:
                yield k
            return
        for w in self.kept:
            hold(self.lo, w, self.read_at(w, first), begin)
        self._recall(first, begin)
        yield first
        self._record(first, begin)


class _ShortNest(GpuNest):
    """The loops of one kernel."""

    def __init__(self, lo: Lowering, jobs: list[Job], way: ShortRows) -> None:
        super().__init__(lo, jobs)
        self.way, self.team = way, Team(lo)
        self.team.ahead_loads = False
        e = self.e
        self.n = e.op("max", lo.index(way.length, lo.root), i64(0))
        self.lanes: Atom = i64(LANES)
        for lanes in (16, 8, 4, 2, 1):
            self.lanes = e.choose(e.op("<=", self.n, i64(lanes * way.each)), i64(lanes), self.lanes)
        at_once = e.op("quot", i64(THREADS), self.lanes, hint="rows")
        kept = [lo.op.tensors[u.tensor] for u in way.kept]
        size = max(t.dtype.bytes for t in (*kept, *(t for t, _ in jobs))) * len(kept)
        self.times = max(1, LOT // (THREADS * way.each * size))
        """How many rows a thread has in a turn, one after the other, where they go through shared memory: a run of so many begins where wide accesses may."""
        self.at_once = at_once
        self.inner = len(way.outer) < len(self.axes)
        self.wide, self.count, self.beside = self._wide()

    def write(self) -> None:
        """Writes the kernel."""
        e = self.e
        blocks = [self.axes[k] for k in self.way.outer]
        self.places = self._guarded(self._total(blocks), [self.axes[-1]] if self.inner else [])
        several = e.op("*", self.at_once, i64(self.times))
        lot = e.choose(self.wide, self.at_once, several)
        turns = e.op("quot", e.op("+", self.places, e.op("-", lot, i64(1))), lot)
        with e.loop("lot", i64(0), turns, kind="block") as p:
            self._readable(lambda: self._turn(p))

    def _turn(self, p: Atom) -> None:
        e, wide = self.e, self.wide
        branches = []
        for write in (self._in_place, self._through):
            with e.frame("lazy") as f:
                write(p)
            branches.append(tuple(f.stmts))
        if isinstance(wide, form.Const):
            self.e.top.stmts += branches[0 if wide.value else 1]
        else:
            e.raw(form.If(wide, *branches))

    # ---------------------------------------------------------------------------------------------------------------- what there is

    def _kept(self) -> list[Wide]:
        axes = (*(f"{k}" for k in self.way.outer), ROW)
        return [Wide(t, self.e.memory(f"{t.name}_row"), u, axes) for u in self.way.kept for t in [self.lo.op.tensors[u.tensor]]]

    def _beside(self) -> list[Wide]:
        """Reads along the row for the results alone."""
        found: dict[Use, Wide] = {}
        for (_, piece), uses in zip(self.jobs, self.uses, strict=True) if self.inner else ():
            for u in uses.uses:
                along = along_row(u, self._names(piece))
                if along is not None and along not in self.way.kept and along not in found:
                    t = self.lo.op.tensors[u.tensor]
                    found[along] = Wide(t, self.e.memory(f"{t.name}_row"), along, (*(f"{k}" for k in self.way.outer), ROW))
        return list(found.values())

    def _names(self, piece: Piece) -> dict[str, str]:
        return {a.index: f"{k}" if k in self.way.outer else ROW for k, a in enumerate(piece.axes)}

    def _wide(self) -> tuple[Atom, int, list[Wide]]:
        """Whether rows are read and written by wide accesses, what one moves, and what is read besides."""
        lo, e, beside = self.lo, self.e, self._beside()
        kept = [Wide(lo.op.tensors[u.tensor], "", u, (*(f"{k}" for k in self.way.outer), ROW)) for u in self.way.kept]
        all_ = [*kept, *beside, *((stored(lo, t, p) for t, p in self.jobs) if self.inner else ())]
        count = min(count_of([w.tensor for w in all_]), self.way.each)
        if count < 2:
            return FALSE, 1, beside
        first = [*(self.axes[k].lo for k in self.way.outer), i64(0)]
        wide = multiple(lo, self.n, count)
        for w in all_:
            moving = w.use is None or any(lin.names for lin in w.use.at[:-1])
            for need in conditions(lo, w.tensor, w.at(lo, list(first)), moving, count):
                wide = e.op("and", wide, need)
        for t in {w.tensor.name: w.tensor for w in all_}.values():
            wide = e.op("and", wide, aligned(lo, t, count))
        return wide, count, beside

    def _run(self, t: Tensor, use: Use | None) -> bool:
        return is_run(t, use, self.jobs[0][1], self.way)

    def _computed(self) -> dict[str, str | None]:
        """Locals worth keeping that are evaluated where they are read."""
        op = self.lo.op
        found: dict[str, str | None] = {}
        for t in op.tensors.values() if len(self.way.kept) == 1 else ():
            if len(t.shape) == len(self.way.outer) + 1 and self.lo.plan.inline(t.name) and len(t.pieces) == 1:
                value = t.pieces[0].value
                if not any(isinstance(x, Reduce) for x in walk(value)) and Costs(op, lambda _: 0.0).of(value) >= COSTLY:
                    found[t.name] = None
        return found

    # ------------------------------------------------------------------------------------------------------------------ writing

    def _in_place(self, p: Atom) -> None:
        """What a block does in turn `p` where rows are read and written as they lie."""
        if self.count > 1:
            self._one_each(p, i64(0), self.count, {}, {})

    def _through(self, p: Atom) -> None:
        """What it does where they may begin anywhere."""
        e = self.e
        self.lot = e.op("*", self.at_once, i64(self.times))
        # Where rows are known to have such a length, only memory that begins in between leads here: it is not worth shared memory for all.
        odd = not isinstance(self.n, form.Const) or isinstance(self.wide, form.Const)
        runs = [w.tensor for w in self._kept() if odd and self._run(w.tensor, w.use)]
        lots = [(t, self._alloc(t)) for t in dict.fromkeys(runs)]
        outs: list[tuple[Tensor, str]] = []
        free = list(lots)
        for t, piece in self.jobs if self.inner else ():
            if odd and self._run(t, None) and not piece.holes:
                # A thread alone touches what it read there.
                memory = next((m for s, m in free if s.dtype is t.dtype), None) or self._alloc(t)
                free = [(s, m) for s, m in free if m != memory]
                outs.append((t, memory))
        for t, memory in lots:
            self._copy(p, t, memory, True)
        if lots:
            e.raw(form.Barrier())
        left = e.op("-", self.places, e.op("*", p, self.lot))
        times = e.op("min", e.op("quot", e.op("+", left, e.op("-", self.at_once, i64(1))), self.at_once), i64(self.times))
        with e.loop("time", i64(0), times, nonempty=True) as time:
            self._one_each(e.op("*", p, i64(self.times)), time, 1, {t.name: m for t, m in lots}, {t.name: m for t, m in outs})
        if outs:
            e.raw(form.Barrier())
        for t, memory in outs:
            self._copy(p, t, memory, False)

    def _one_each(self, p: Atom, time: Atom, count: int, lots: dict[str, str], outs: dict[str, str]) -> None:
        """What a thread does for one of its rows, by accesses of so many elements."""
        lo, e, way = self.lo, self.e, self.way
        static = isinstance(self.n, form.Const) and isinstance(self.lanes, form.Const)
        vectors = -(-_value(self.n) // (_value(self.lanes) * count)) if static else way.each // count
        row = Lot(lo, self.n, i64(THREADS), count, vectors, self._kept(), TRUE, self.at_once, computed=self._computed(), alone=self.team.alone,
                  lanes=self.lanes)
        blocks = [self.axes[k] for k in way.outer]
        number = row.begin(e.op("+", p, time), self.places)
        row.place = e.op("+", e.op("*", time, self.at_once), row.place)
        fixed = dict(zip(way.outer, self._places(blocks, number), strict=True))
        row.fixed = {f"{k}": i for k, i in fixed.items()}
        self.team.row = row
        with e.frame("lazy") as f:
            self._load(row, lots)
            for _, piece in self.jobs:
                self.team.ahead(piece, fixed)
            if not self.inner:
                with row.each(), e.when(e.op("and", e.op("==", row.lane, i64(0)), row.inside)):
                    self.element([fixed[k] for k in range(len(self.axes))])
            elif count > 1:
                self._wide_results(row, self.beside)
            else:
                self._results(row, outs)
        self.team.row = None
        e.top.stmts += (*row.allocs, *f.stmts)

    def _load(self, row: Lot, lots: dict[str, str]) -> None:
        """Gets what the threads keep."""
        lo, e = self.lo, self.e
        for w in row.kept:
            e.raw(form.Alloc(w.own, w.dtype, i64(row.own)))
        with row.vector() as (begin, first):
            for w in row.kept:
                at = address(lo, w.tensor, row.read_at(w, first))
                if row.count > 1:
                    e.raw(form.Move(w.own, begin, lo.buffer(w.tensor), at, row.count))
                    continue
                memory = lots.get(w.tensor.name) if self._run(w.tensor, w.use) else None
                place = at if memory is None else self._in_lot(row, first)
                value = e.bind("x", form.Load(memory or lo.buffer(w.tensor), place, w.tensor.dtype, w.tensor.dtype.compute))
                e.raw(form.Store(w.own, begin, value, w.dtype))

    def _alloc(self, t: Tensor) -> str:
        memory = self.e.memory(f"{t.name}_lot")
        static = isinstance(self.n, form.Const) and isinstance(self.lot, form.Const)
        self.e.raw(form.Alloc(memory, t.dtype, i64(_value(self.lot) * _value(self.n) if static else THREADS * self.way.each * self.times), shared=True))
        return memory

    def _in_lot(self, row: Lot, k: Atom) -> Atom:
        return self.e.op("+", self.e.op("*", row.place, self.n), k)

    def _copy(self, p: Atom, t: Tensor, lot: str, bring: bool) -> None:
        """All threads bring the rows of turn `p` to shared memory, or back: by wide accesses, but for the last elements."""
        e, lo, buffer = self.e, self.lo, self.lo.buffer(t)
        count = count_of([t])
        first = e.op("*", p, self.lot)
        here = e.op("*", e.op("min", self.lot, e.op("-", self.places, first)), self.n)
        begin = e.op("*", first, self.n)
        end = e.choose(aligned(lo, t, count), e.op("-", here, e.op("rest", here, i64(count))), i64(0)) if count > 1 else i64(0)
        if count > 1:
            with self.team.loop("v", i64(0), e.op("quot", end, i64(count)), unroll=True) as v:
                at = e.op("*", v, i64(count))
                far = e.op("+", begin, at)
                e.raw(form.Move(lot, at, buffer, far, count) if bring else form.Move(buffer, far, lot, at, count))
        with self.team.loop("i", end, here) as i:
            to, at, source, index = (lot, i, buffer, e.op("+", begin, i)) if bring else (buffer, e.op("+", begin, i), lot, i)
            e.raw(form.Store(to, at, form.Load(source, index, t.dtype, t.dtype.compute), t.dtype))

    def _results(self, row: Lot, outs: dict[str, str]) -> None:
        """Results of rows that begin anywhere: to shared memory where they are a run."""
        lo, e, jobs = self.lo, self.e, self.jobs
        if len(outs) == len(jobs) and all(along_row(u, self._names(piece)) in self.way.kept for (_, piece), found in zip(jobs, self.uses, strict=True)
                                          for u in found.uses):
            # Nothing else is read, so places behind the end may be computed as well, which leaves the loop without branches.
            own = [Wide(t, e.memory(f"{t.name}_own")) for t, _ in jobs]
            for w in own:
                e.raw(form.Alloc(w.own, w.dtype, i64(row.own)))
            with row.each(), unrolled(lo, "r", row.vectors) as v, row.within(v, e.op("+", row.lane, e.op("*", v, row.lanes))) as k:
                for (_, piece), w in zip(jobs, own, strict=True):
                    keep(lo, w, piece, [*row.fixed.values(), k], v)
            with row.vector() as (begin, first):
                for w in own:
                    value = e.bind("y", form.Load(w.own, begin, w.dtype, w.dtype))
                    e.raw(form.Store(outs[w.tensor.name], self._in_lot(row, first), value, w.tensor.dtype))
            return
        with row.vector() as (begin, first), row.within(begin, first) as k:
            at = [*row.fixed.values(), k]
            for t, piece in jobs:
                if t.name in outs:
                    keep(lo, Wide(t, outs[t.name], wide=True), piece, at, self._in_lot(row, k))
                else:
                    self.jobs = [(t, piece)]
                    self.element(at)
        self.jobs = jobs

    def _wide_results(self, row: Lot, beside: list[Wide]) -> None:
        lo, e = self.lo, self.e
        stores = [stored(lo, t, p) for t, p in self.jobs]
        with row.vector() as (begin, first):
            for w in (*beside, *stores):
                e.raw(form.Alloc(w.own, w.dtype, i64(row.count)))
            for w in beside:
                e.raw(form.Move(w.own, i64(0), lo.buffer(w.tensor), address(lo, w.tensor, row.read_at(w, first)), row.count))
            with row.within(begin, first) as k:
                place = e.op("-", k, first)
                for w in beside:
                    hold(lo, w, row.read_at(w, k), place)
                for (_, piece), w in zip(self.jobs, stores, strict=True):
                    keep(lo, w, piece, [*row.fixed.values(), k], place)
            for w in stores:
                e.raw(form.Move(lo.buffer(w.tensor), address(lo, w.tensor, row.read_at(w, first)), w.own, i64(0), row.count))


def _value(x: Atom) -> int:
    assert isinstance(x, form.Const)
    return int(x.value)
