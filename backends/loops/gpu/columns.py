"""Reductions of columns by blocks: neighbouring threads have neighbouring columns, as many as one access moves each, and the others the rows between.

    block for turn in 0..parts * other results * tiles of columns {
      each thread t {
        lane, row = t rest lanes, t quot lanes
        if the thread has columns and rows {
          while there are as many rows as a thread takes at once {
            move own[u, …] = x[n, h, w, c..c + 8] for each ; sum[j] = sum[j] + own[u, j] for each
          }
          the same for those that are left ; %sums[j, t] = sum[j] …
        }
      }
      barrier ; each thread t { some of the rows of one column: %sums[j, t] = %sums[j, t] + %sums[j, t of another row] … }
      barrier ; thread for c in 0..columns { sum of what these found ; the place c, which has its sum }
    }

`columns` does so for all rows and writes results, unless these are so few that rows are cut into parts: then `parts` leaves what each part gives, and `join`
does the same with that. Each has turns where its time has come, and is not launched else. What a thread adds up is written by `column_terms.py`. The order is
one that sizes alone decide.
"""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.build import extent_of
from pipelink_ir.backends.loops.emit import FALSE, Atom, Emitter, i64
from pipelink_ir.backends.loops.gpu.column_terms import SINGLES, THREADS, Terms
from pipelink_ir.backends.loops.gpu.flat import flat, unravel
from pipelink_ir.backends.loops.gpu.pack import BYTES
from pipelink_ir.backends.loops.gpu.team import Team
from pipelink_ir.backends.loops.lower import Lowering, Sites
from pipelink_ir.backends.loops.nests import Job
from pipelink_ir.backends.loops.reduce import Seen, finish, kind_of, reduced
from pipelink_ir.ir.dtypes import F64, I64
from pipelink_ir.ir.typed import TypedOperator
from pipelink_ir.passes.scheduling.columns import LANES, PROCESSORS, Columns, blocks, parts
from pipelink_ir.passes.scheduling.costs import Plan

ROWS = 8
"""Rows of what threads have found that one thread adds up, if there are so many."""
SECTOR = 32
"""Bytes that a block should read of a row at least."""


def columns_body(op: TypedOperator, plan: Plan, sites: Sites, job: Job, way: Columns, kind: str) -> tuple[Lowering, int]:
    """The kernel, still open, and the threads of a block."""
    lo = Lowering(op, plan, sites, frozenset((job[0].name,)))
    {"columns": _Blocks, "parts": _Parts, "join": _Join}[kind](lo, job, way).write()
    lo.fit = blocks(way.size)
    return lo, THREADS


class _Blocks(Terms):
    """The loops of the kernel of all rows."""

    cut = False
    """Whether rows are cut into parts."""

    def __init__(self, lo: Lowering, job: Job, way: Columns) -> None:
        super().__init__(lo, job, way)
        self.team = Team(lo)
        self.others = [a for k, a in enumerate(self.axes) if k != way.axis]
        extents = list(map(extent_of, job[1].axes))
        self.results: form.Expr = i64(1)
        for n in extents:
            self.results = _do("*", self.results, n)
        width = extents.pop(way.axis)
        others: form.Expr = i64(1)
        for x in extents:
            others = _do("*", others, x)
        rows: form.Expr = i64(1)
        for r in self.ranges:
            rows = _do("*", rows, extent_of(r)) if way.cut else rows
        count = parts(_do, i64, rows, width, others, way.size)
        self.memory = form.Buffer(f"{job[0].name}.parts", "temporary", self.kept.dtype, (_do("*", count, self.results),))

    def write(self) -> None:
        """Writes the kernel."""
        e, size = self.e, self.size
        self.width = e.op("max", self.column.n, i64(0))
        self.flat = flat(self.lo, self.ranges, self.lo.root)
        self.there = self._total(self.others)
        self.count: Atom = parts(e.op, i64, self.flat.total, self.width, self.there, self.way.size) if self.way.cut else i64(1)
        self.whole = e.op("==", e.op("rest", self.width, i64(size)), i64(0))
        self.lie = self.lies()
        self.together, self.unit = self._several()
        self.runs = self._runs()
        self.each = e.choose(self.whole, i64(size), i64(1))
        self.vectors = e.choose(self.whole, e.op("quot", self.width, i64(size)), e.choose(self.runs, self.together, self.width))
        tiles: Atom = e.choose(self.runs, i64(1), e.op("max", self._tiles(_ceil(e, self.vectors, i64(LANES))), i64(1)))
        self.lanes = e.op("max", _ceil(e, self.vectors, tiles), i64(1), hint="lanes")
        self.tall = e.op("quot", i64(THREADS), self.lanes, hint="tall")
        """Rows that the threads of a block have at once."""
        turns = e.op("*", e.op("*", self.there, e.choose(e.op(">", self.vectors, i64(0)), tiles, i64(0))), self._share())
        hint = self._hint(self.others) if self.others else "tile"
        with e.loop(hint, i64(0), turns, kind="block") as turn:
            tile, place = e.op("rest", turn, tiles, hint="tile"), e.op("quot", turn, tiles)
            part: Atom = i64(0)
            if self.cut:
                place, part = e.op("rest", place, self.there), e.op("quot", place, self.there, hint="part")
            self.place = place
            self.fixed = unravel(self.lo, tuple((a.name, a.lo, a.n) for a in self.others), place) if self.others else []
            self._readable(lambda: self._block(tile, part))

    def _share(self) -> Atom:
        """How many blocks there are for each tile: one if rows are not cut."""
        e = self.e
        return e.choose(e.op("==", self.count, i64(1)), i64(1), i64(0))

    def _tiles(self, fewest: Atom) -> Atom:
        """Tiles of columns. Where columns are few blocks have fewer of them each, as long as they read enough of a row."""
        e = self.e
        wanted = e.op("quot", i64(PROCESSORS * 2), e.op("max", self.there, i64(1)))
        most = e.choose(self.whole, _ceil(e, self.vectors, i64(SECTOR // BYTES)), _ceil(e, self.vectors, i64(max(1, SECTOR * self.size // BYTES))))
        return e.op("max", fewest, e.op("min", wanted, most))

    def _runs(self) -> Atom:
        """Whether rows that are no whole number of accesses are so together: the rows of a result follow each other in memory, and those of the next one begin
        where an access may."""
        e = self.e
        if not self.linear:
            return FALSE
        return e.all_of([e.op("not", self.whole), e.op("<=", self.together, i64(LANES)), self.lie])

    def _several(self) -> tuple[Atom, Atom]:
        """Accesses of as many rows as are a whole number of them together, and how many rows these are."""
        together: Atom = self.width
        unit: Atom = i64(self.size)
        by = 2
        while self.linear and by < self.size:
            divides = self.e.op("==", self.e.op("rest", self.width, i64(by)), i64(0))
            together = self.e.choose(divides, self.e.op("quot", self.width, i64(by)), together)
            unit = self.e.choose(divides, i64(self.size // by), unit)
            by *= 2
        return together, unit

    def _bounds(self, part: Atom) -> tuple[Atom, Atom]:
        """The rows of a block: where they begin and end."""
        return i64(0), self.flat.total

    def _block(self, tile: Atom, part: Atom) -> None:
        e, size = self.e, self.size
        self.first = e.op("*", tile, self.lanes)
        self.begin, self.end = self._bounds(part)
        self.height = e.op("max", e.op("min", self.tall, e.op("-", self.end, self.begin)), i64(1), hint="height")
        """Rows that are added up by different threads."""
        self.shared = e.memory(f"{self.x.kind}s")
        e.raw(form.Alloc(self.shared, self.kept.dtype, i64(size * THREADS), True))
        with self._thread() as (t, vector, row):
            self.terms(t, vector, row)
        self.found = e.choose(self.runs, i64(size), self.each)
        several = e.op("quot", self.tall, i64(max(size, ROWS)))
        self.shares = e.op("max", e.choose(e.op("or", self.whole, self.runs), several, e.op("quot", self.tall, i64(ROWS))), i64(1))
        """By how many threads what was found of a column is added up first."""
        self._together()
        columns = e.choose(self.runs, self.width, e.op("*", e.op("min", self.lanes, e.op("-", self.vectors, self.first)), self.each))
        with self.team.loop(self.column.name, i64(0), columns) as c:
            column = e.op("+", e.op("*", self.first, self.each), c)
            self._result(column, part, self._sum_of(c))

    def _together(self) -> None:
        """Each thread adds up what some threads have found of one column."""
        e = self.e
        e.raw(form.Barrier())
        with self.team.each("t", THREADS) as t:
            lane, row = e.op("rest", t, self.lanes), e.op("quot", t, self.lanes)
            share, column = self._of_each(row)
            some = e.op("<", share, e.op("min", self.shares, self.height))
            with e.when(e.all_of([e.op("<", e.op("+", self.first, lane), self.vectors), e.op("<", row, self.tall), some])):
                with e.loop("j", column, self.found, self.tall) as j:
                    at = e.op("+", lane, e.op("*", j, i64(THREADS)))
                    first = e.op("+", at, e.op("*", share, self.lanes))
                    acc = e.var(self.x.kind, self._found_at(first))
                    with e.loop("row", e.op("+", share, self.shares), self.height, self.shares, unroll=True) as r:
                        self._join(acc, self._found_at(e.op("+", at, e.op("*", r, self.lanes))))
                    e.raw(form.Store(self.shared, first, acc, self.kept.dtype))
        e.raw(form.Barrier())

    def _of_each(self, n: Atom) -> tuple[Atom, Atom]:
        """Quotient and rest by the columns that an access finds."""
        e = self.e
        if self.size == 1:
            return n, i64(0)
        several = e.op("or", self.whole, self.runs)
        return e.choose(several, e.op("quot", n, i64(self.size)), n), e.choose(several, e.op("rest", n, i64(self.size)), i64(0))

    def _found_at(self, place: Atom) -> form.Ref:
        return self.e.bind(self.x.kind, form.Load(self.shared, place, self.kept.dtype, self.kept.dtype))

    def _join(self, acc: form.Ref, value: Atom) -> None:
        self.e.assign(acc, form.Op(self.kept.join, (acc, value), self.kept.dtype))

    def _sum_of(self, c: Atom) -> Atom:
        """What all threads have found of column `c` of the block."""
        e = self.e
        acc = e.var(self.x.kind, self.kept.neutral)

        def some(at: Atom) -> None:
            vector, j = self._of_each(at)
            place = e.op("+", vector, e.op("*", j, i64(THREADS)))
            with e.loop("share", i64(0), e.op("min", self.shares, self.height), unroll=True) as s:
                self._join(acc, self._found_at(e.op("+", place, e.op("*", s, self.lanes))))

        if self.runs is FALSE:
            some(c)
            return e.bind(self.x.kind, acc)
        # Where accesses go across rows a column is found as often as there are elements in one.
        with e.loop("k", i64(0), e.choose(self.runs, self.unit, i64(1)), nonempty=True) as k:
            some(e.op("+", c, e.op("*", k, self.width)))
        return self.left_over(c, e.bind(self.x.kind, acc))

    def _result(self, column: Atom, part: Atom, value: Atom) -> None:
        """What is made of all terms of a column."""
        env = self.env_of(column)
        if self.scale is not None:
            value = self.e.op("*", value, self.e.convert(self.lo.value(self.scale, env), F64))
        seen = Seen(self.lo, self.x, env)
        self.e.remember(reduced(self.x, env), finish(self.lo, self.x, kind_of(self.x), value, seen.count(), seen.any()))
        self.element(self.places_of(column))

    @contextmanager
    def _thread(self) -> Iterator[tuple[Atom, Atom, Atom]]:
        """What each thread does that has columns and rows: its number, which access of a row is its own, and its first row among those of the block."""
        e = self.e
        with self.team.each("t", THREADS) as t:
            row = e.op("quot", t, self.lanes)
            vector = e.op("+", self.first, e.op("rest", t, self.lanes))
            with e.when(e.all_of([e.op("<", row, self.height), e.op("<", vector, self.vectors)])):
                yield t, vector, row


class _Parts(_Blocks):
    """The loops of the kernel that leaves what each part of the rows gives."""

    cut = True

    def __init__(self, lo: Lowering, job: Job, way: Columns) -> None:
        super().__init__(lo, job, way)
        lo.scratch.append(self.memory)

    def _share(self) -> Atom:
        e = self.e
        return e.choose(e.op("==", self.count, i64(1)), i64(0), self.count)

    def _tiles(self, fewest: Atom) -> Atom:
        return fewest

    def _bounds(self, part: Atom) -> tuple[Atom, Atom]:
        e = self.e
        size = _ceil(e, self.flat.total, self.count)
        if self.runs is not FALSE:
            # Parts begin where accesses may.
            size = e.op("*", _ceil(e, size, i64(self.size)), i64(self.size))
        begin = e.op("*", part, size)
        return begin, e.op("min", e.op("+", begin, size), self.flat.total)

    def _result(self, column: Atom, part: Atom, value: Atom) -> None:
        e = self.e
        row = e.op("+", e.op("*", part, self.there), self.place)
        e.raw(form.Store(self.memory.name, e.op("+", e.op("*", row, self.width), column), value, self.kept.dtype))


class _Join(_Blocks):
    """The loops of the kernel that puts together what parts give: it has them for rows."""

    def __init__(self, lo: Lowering, job: Job, way: Columns) -> None:
        super().__init__(lo, job, way)
        lo.scratch.append(self.memory)
        self.size, self.streams, self.linear, self.flight = 1, [], False, SINGLES
        self.kind, self.long, self.grouped = self.kept, False, False

    def _share(self) -> Atom:
        e = self.e
        return e.choose(e.op("==", self.count, i64(1)), i64(0), i64(1))

    def _bounds(self, part: Atom) -> tuple[Atom, Atom]:
        return i64(0), self.count

    def terms(self, t: Atom, vector: Atom, row: Atom) -> None:
        e = self.e
        acc = e.var(self.x.kind, self.kind.neutral)
        base = e.op("+", e.op("*", self.place, self.width), vector)
        results = e.op("*", self.there, self.width)
        stride = e.op("*", self.tall, i64(self.flight))
        with e.loop("part", row, self.count, stride) as p:
            own = e.memory("part_own")
            e.raw(form.Alloc(own, self.kept.dtype, i64(self.flight)))
            with e.loop("u", i64(0), i64(self.flight), nonempty=True, unroll=True) as u:
                number = e.op("+", p, e.op("*", u, self.tall))
                at = e.choose(e.op("<", number, self.count), number, row)
                e.raw(form.Move(own, u, self.memory.name, e.op("+", base, e.op("*", at, results)), 1))
            with e.loop("u", i64(0), i64(self.flight), nonempty=True, unroll=True) as u:
                inside = e.op("<", e.op("+", p, e.op("*", u, self.tall)), self.count)
                value = e.bind("part", form.Load(own, u, self.kept.dtype, self.kept.dtype))
                e.assign(acc, form.Choose(inside, form.Op(self.kind.join, (acc, value), acc.dtype), acc, acc.dtype))
        e.raw(form.Store(self.shared, t, acc, acc.dtype))


def _do(fn: str, a: form.Expr, b: form.Expr) -> form.Expr:
    return form.Op("floordiv" if fn == "quot" else fn, (a, b), I64)


def _ceil(e: Emitter, n: Atom, by: Atom) -> Atom:
    return e.op("quot", e.op("+", n, e.op("-", by, i64(1))), by)
