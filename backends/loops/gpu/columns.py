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
      while rows are left { barrier ; each thread of one half of them: %sums[j, t] = %sums[j, t] + %sums[j, t of the other half] }
      barrier ; thread for c in 0..columns { the place c, which has its sum }
    }

`columns` does so for all rows and writes results, unless these are so few that rows are cut into parts: then `parts` leaves what each part gives, and `join`
does the same with that. Each has turns where its time has come, and is not launched else.

Rows are counted over all ranges of the reduction; what a row is by its indices is kept up to date by additions. What lies behind the last row is the first
row of the thread, and counts for nothing. Sums of f32 meet an f64 in shared memory after 256 terms. The order is one that sizes alone decide.

Where rows are no whole number of accesses, or do not lie as those need them, threads have one column each, or several one after the other.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.build import extent_of
from pipelink_ir.backends.loops.emit import TRUE, Atom, Emitter, i64, key_of
from pipelink_ir.backends.loops.fold import must
from pipelink_ir.backends.loops.gpu.flat import flat, unravel
from pipelink_ir.backends.loops.gpu.pack import Packer
from pipelink_ir.backends.loops.gpu.team import Team
from pipelink_ir.backends.loops.gpu.vector import Wide, aligned, conditions, hold
from pipelink_ir.backends.loops.lower import Env, Lowering, Sites
from pipelink_ir.backends.loops.nests import Job, Nest
from pipelink_ir.backends.loops.reads import address
from pipelink_ir.backends.loops.reduce import BLOCK, Kind, Seen, finish, kind_of, reduced
from pipelink_ir.ir.dtypes import F32, F64, I8, I32, I64, U8
from pipelink_ir.ir.nodes import Apply, Expr
from pipelink_ir.ir.typed import TypedOperator
from pipelink_ir.passes.scheduling.columns import BLOCKS, BYTES, LANES, Columns, parts, streams
from pipelink_ir.passes.scheduling.costs import Plan
from pipelink_ir.passes.scheduling.counts import ranges_of, terms

THREADS = 256
"""Threads of a block."""
FIT = 4
"""Blocks that a multiprocessor should hold."""
FLIGHT, HELD = 8, 128
"""Rows that a thread loads at once, and their bytes, at most; …"""
SINGLES, FEW = 16, 4
"""… where each has one column, and where more is computed of a row than what lies there."""
SINGLE = 128
"""Threads side by side at most where each has one column."""
SECTOR = 32
"""Bytes that a block should read of a row at least."""


def columns_body(op: TypedOperator, plan: Plan, sites: Sites, job: Job, way: Columns, kind: str) -> tuple[Lowering, int]:
    """The kernel, still open, and the threads of a block."""
    lo = Lowering(op, plan, sites, frozenset((job[0].name,)))
    {"columns": _Blocks, "parts": _Parts, "join": _Join}[kind](lo, job, way).write()
    lo.fit = FIT
    return lo, THREADS


@dataclass(frozen=True, slots=True)
class _Run:
    """How a thread goes through rows: what it adds up and where it leaves that, its first row, how far the next one is, the next one, and how many at once."""

    envs: list[Env]
    acc: list[form.Ref]
    places: list[Atom]
    begin: list[Atom]
    step: list[Atom]
    at: list[form.Ref]
    flight: int


class _Blocks(Nest):
    """The loops of the kernel of all rows."""

    cut = False
    """Whether rows are cut into parts."""

    def __init__(self, lo: Lowering, job: Job, way: Columns) -> None:
        super().__init__(lo, [job])
        self.x, self.way, self.team = way.reduce, way, Team(lo)
        self.names = {k: n for n, k in way.plain}
        self.column = self.axes[way.axis]
        self.others = [a for k, a in enumerate(self.axes) if k != way.axis]
        self.ranges = ranges_of(self.x)
        self.size = way.size
        kind, n = kind_of(self.x), terms(self.x)
        self.sums = kind.join == "+" and kind.dtype.is_float
        self.long = self.sums and kind.dtype is F32 and (n is None or n > BLOCK)
        """Whether a sum is long: then it is kept in f64, but for a few terms at a time."""
        self.grouped = self.long and (n is None or n > 2 * BLOCK)
        """Whether a thread may have more terms than that."""
        self.kind = kind
        self.kept = Kind("+", must(0, F64), F64) if self.long else kind
        self.factors = self._factors()
        uses = streams(lo.op, lo.plan.local, way)
        axes = (*(self.names[k] for k in range(len(self.axes))), *(f"#{k + 1}" for k in range(len(self.ranges))))
        self.streams = [Wide(lo.op.tensors[u.tensor], u.tensor, u, axes, raw=True) for u in uses]
        held = sum(way.size * w.tensor.dtype.bytes for w in self.streams)
        self.flight = min(FLIGHT, max(2, HELD // held)) if held else FEW
        self.singles = SINGLES if self.streams else FEW
        extents = list(map(extent_of, job[1].axes))
        self.results: form.Expr = i64(1)
        for x in extents:
            self.results = _do("*", self.results, x)
        width = extents.pop(way.axis)
        others: form.Expr = i64(1)
        for x in extents:
            others = _do("*", others, x)
        rows: form.Expr = i64(1)
        for r in self.ranges:
            rows = _do("*", rows, extent_of(r)) if way.cut else rows
        count = parts(_do, i64, rows, width, others, way.size)
        self.memory = form.Buffer(f"{job[0].name}.parts", "temporary", self.kept.dtype, (_do("*", count, self.results),))

    def _factors(self) -> tuple[Expr, Expr] | None:
        """The factors of terms that are added up as they are multiplied: one rounding less."""
        body = self.x.body
        if self.lo.op.exact or not self.sums or self.kind.dtype is not F32 or not isinstance(body, Apply) or body.fn != "*" or body.exact:
            return None
        a, b = body.args
        return (a, b) if a.dtype is F32 and b.dtype is F32 else None

    # ---------------------------------------------------------------------------------------------------------------- blocks

    def write(self) -> None:
        """Writes the kernel."""
        e, size = self.e, self.size
        self.width = e.op("max", self.column.n, i64(0))
        self.flat = flat(self.lo, self.ranges, self.lo.root)
        self.there = self._total(self.others)
        self.count: Atom = parts(e.op, i64, self.flat.total, self.width, self.there, self.way.size) if self.way.cut else i64(1)
        self.whole = e.op("==", e.op("rest", self.width, i64(size)), i64(0))
        """Whether rows are a whole number of accesses."""
        self.each = e.choose(self.whole, i64(size), i64(1))
        self.vectors = e.choose(self.whole, e.op("quot", self.width, i64(size)), self.width)
        self.lies = self._lies()
        fewest = e.choose(self.whole, _ceil(e, self.vectors, i64(LANES)), _ceil(e, self.vectors, i64(SINGLE)))
        tiles = e.op("max", self._tiles(fewest), i64(1))
        self.lanes = e.op("max", _ceil(e, self.vectors, tiles), i64(1), hint="lanes")
        self.tall = e.op("quot", i64(THREADS), self.lanes, hint="tall")
        """Rows that the threads of a block have at once."""
        if self.vectors == i64(1):
            tiles = i64(1)
        blocks = e.op("*", e.op("*", self.there, e.choose(e.op(">", self.vectors, i64(0)), tiles, i64(0))), self._share())
        hint = self._hint(self.others) if self.others else "tile"
        with e.loop(hint, i64(0), blocks, kind="block") as turn:
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
        wanted = e.op("quot", i64(BLOCKS // 2), e.op("max", self.there, i64(1)))
        most = e.choose(self.whole, _ceil(e, self.vectors, i64(SECTOR // BYTES)), _ceil(e, self.vectors, i64(max(1, SECTOR * self.size // BYTES))))
        return e.op("max", fewest, e.op("min", wanted, most))

    def _lies(self) -> Atom:
        """Whether what is loaded ahead lies as wide accesses need it."""
        lo, e, size, first = self.lo, self.e, self.size, [*(a.lo for a in self.axes), *(i64(0) for _ in self.ranges)]
        needs: list[Atom] = []
        for w in self.streams if size > 1 else ():
            needs += [*conditions(lo, w.tensor, w.at(lo, first), True, size), aligned(lo, w.tensor, min(size, BYTES // w.tensor.dtype.bytes))]
        return e.all_of(needs)

    def _places(self, column: Atom) -> list[Atom]:
        at = [*self.fixed]
        at.insert(self.way.axis, self.e.op("+", self.column.lo, column))
        return at

    def _env(self, column: Atom) -> Env:
        at = self._places(column)
        return Env({n: at[k] for n, k in self.way.plain})

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
            self._terms(t, vector, row)
        self._together()
        e.raw(form.Barrier())
        columns = e.op("*", e.op("min", self.lanes, e.op("-", self.vectors, self.first)), self.each)
        with self.team.loop(self.column.name, i64(0), columns) as c:
            place = e.op("+", e.op("*", e.op("rest", c, self.each), i64(THREADS)), e.op("quot", c, self.each)) if size > 1 else c
            value = e.bind(self.x.kind, form.Load(self.shared, place, self.kept.dtype, self.kept.dtype))
            self._result(e.op("+", e.op("*", self.first, self.each), c), part, value)

    def _result(self, column: Atom, part: Atom, value: Atom) -> None:
        """What is made of all terms of a column."""
        env = self._env(column)
        seen = Seen(self.lo, self.x, env)
        self.e.remember(reduced(self.x, env), finish(self.lo, self.x, kind_of(self.x), value, seen.count(), seen.any()))
        self.element(self._places(column))

    @contextmanager
    def _thread(self) -> Iterator[tuple[Atom, Atom, Atom]]:
        """What each thread does that has columns and rows: its number, which access of a row is its own, and its first row among those of the block."""
        e = self.e
        with self.team.each("t", THREADS) as t:
            row = e.op("quot", t, self.lanes)
            vector = e.op("+", self.first, e.op("rest", t, self.lanes))
            with e.when(e.all_of([e.op("<", row, self.height), e.op("<", vector, self.vectors)])):
                yield t, vector, row

    def _together(self) -> None:
        """The other half of the rows that are left is added to the first, until one is left."""
        e, kept = self.e, self.kept
        left = e.var("half", i64(THREADS // 2))
        with e.loop("step", i64(0), i64(THREADS.bit_length() - 1), nonempty=True):
            half = e.bind("half", form.Ref(left.name, I64))
            with e.when(e.op("<", half, self.height)):
                e.raw(form.Barrier())
                with self._thread() as (t, _, row), e.when(e.all_of([e.op("<", row, half), e.op("<", e.op("+", row, half), self.height)])):
                    other = e.op("+", t, e.op("*", half, self.lanes))
                    with e.loop("j", i64(0), i64(self.size), nonempty=True, unroll=True) as j, e.when(e.op("<", j, self.each)):
                        a, b = (e.op("+", e.op("*", j, i64(THREADS)), at) for at in (t, other))
                        loads = tuple(form.Load(self.shared, at, kept.dtype, kept.dtype) for at in (a, b))
                        e.raw(form.Store(self.shared, a, e.bind("a", form.Op(kept.join, loads, kept.dtype)), kept.dtype))
            e.assign(left, form.Op("quot", (half, i64(2)), I64))

    # ----------------------------------------------------------------------------------------------------------------- terms

    def _terms(self, t: Atom, vector: Atom, row: Atom) -> None:
        """The columns of one thread."""
        e, size = self.e, self.size
        if size == 1:
            self._columns(t, [vector], row)
            return
        packer = Packer(self.lo, {self.column.n: size})
        with e.frame("lazy") as wide:
            begin = e.op("*", vector, i64(size))
            self._columns(t, [e.op("+", begin, i64(j)) for j in range(size)], row)
            wide.stmts[:] = _packed(packer, wide.stmts)
        fine = e.all_of([self.whole, self.lies, *packer.conditions()])
        with e.frame("lazy") as apart, e.loop("j", i64(0), self.each, nonempty=True) as j:
            self._columns(e.op("+", t, e.op("*", j, i64(THREADS))), [e.op("+", e.op("*", vector, self.each), j)], row)
        if isinstance(fine, form.Const):
            for s in wide.stmts if fine.value else apart.stmts:
                e.raw(s)
            return
        e.raw(form.If(fine, tuple(wide.stmts), tuple(apart.stmts)))

    def _columns(self, t: Atom, columns: list[Atom], row: Atom) -> None:
        """The terms of some columns, from one row on, into the memory of thread `t`."""
        e = self.e
        places = [e.op("+", t, i64(j * THREADS)) for j in range(len(columns))]
        acc = [e.var(self.x.kind, self.kind.neutral) for _ in columns]
        if self.long:
            for at in places:
                e.raw(form.Store(self.shared, at, self.kept.neutral, self.kept.dtype))
        flight = self.flight if len(columns) > 1 or self.size == 1 else self.singles
        first = e.op("+", self.begin, row)
        with e.when(e.op("<", first, self.end)):
            ranges = tuple((name, i64(0), n) for name, _, n in self.flat.ranges)
            begin, step = self._unravelled(first), self._unravelled(self.tall)
            following = [e.var(name, i) for (name, _, _), i in zip(ranges, begin, strict=True)]
            run = _Run([self._env(c) for c in columns], acc, places, begin, step, following, flight)
            number = e.var("number", first)
            stride = e.op("*", self.tall, i64(flight))
            last = e.op("-", self.end, e.op("*", self.tall, i64(flight - 1)))
            self._chunks(run, number, stride, last)
            done = e.bind("number", form.Ref(number.name, I64))
            with e.when(e.op("<", done, self.end)):
                self._some(run, lambda u: e.op("<", e.op("+", done, e.op("*", self.tall, u)), self.end))
        for place, a in zip(places, acc, strict=True):
            self._keep(place, a)

    def _unravelled(self, row: Atom) -> list[Atom]:
        return unravel(self.lo, tuple((name, i64(0), n) for name, _, n in self.flat.ranges), row)

    def _keep(self, place: Atom, acc: form.Ref) -> None:
        """What a thread has found joins what it has in shared memory."""
        if not self.long:
            self.e.raw(form.Store(self.shared, place, acc, self.kept.dtype))
            return
        total = form.Load(self.shared, place, F64, F64)
        self.e.raw(form.Store(self.shared, place, self.e.bind("a", form.Op("+", (total, form.Convert(acc, F64, F64)), F64)), F64))

    def _chunks(self, run: _Run, number: form.Ref, stride: Atom, last: Atom) -> None:
        """The rows that come by as many as are loaded at once."""
        e = self.e

        def some(begin: Atom, end: Atom) -> None:
            with e.loop("row", begin, end, stride) as r:
                self._some(run, None)
                e.assign(number, form.Op("+", (r, stride), I64))

        begin = e.bind("number", form.Ref(number.name, I64))
        if not self.grouped:
            some(begin, last)
            return
        many = e.op("*", self.tall, i64(BLOCK))
        with e.loop("group", begin, last, many) as g:
            some(g, e.op("min", e.op("+", g, many), last))
            for place, a in zip(run.places, run.acc, strict=True):
                self._keep(place, a)
                e.assign(a, self.kind.neutral)

    def _some(self, run: _Run, inside: Callable[[Atom], Atom] | None) -> None:
        """Several rows at once. Behind the end, which `inside` tells, stands the first."""
        e = self.e
        if not self.streams:
            with e.loop("u", i64(0), i64(run.flight), nonempty=True, unroll=True) as u:
                there = TRUE if inside is None else inside(u)
                self._add(run, self._next(run, there), there)
            return
        size = len(run.envs)
        loads = [replace(w, own=e.memory(f"{w.tensor.name}_own")) for w in self.streams]
        words = {w.own for w in loads if w.tensor.dtype in (I8, U8) and size >= 4}
        for w in loads:
            e.raw(form.Alloc(w.own, I32, i64(run.flight * size // 4)) if w.own in words else form.Alloc(w.own, w.dtype, i64(run.flight * size)))
        with e.loop("u", i64(0), i64(run.flight), nonempty=True, unroll=True) as u:
            names = self._next(run, TRUE if inside is None else inside(u))
            for w in loads:
                at = address(self.lo, w.tensor, w.at(self.lo, self._indices(run.envs[0], names)))
                many = min(size, BYTES // w.tensor.dtype.bytes)
                if w.own in words:
                    e.raw(form.TakeWords(w.own, self.lo.buffer(w.tensor), at, size, at=e.op("*", u, i64(size // 4))))
                    continue
                for k in range(0, size, many):
                    to = e.op("+", e.op("*", u, i64(size)), i64(k))
                    e.raw(form.Move(w.own, to, self.lo.buffer(w.tensor), e.op("+", at, i64(k)), many))
        with e.loop("u", i64(0), i64(run.flight), nonempty=True, unroll=True) as u:
            # Nothing else depends on the row: each finds what was loaded of it where the first would be.
            names = {r.index: e.op("+", first, i) for r, (_, first, _), i in zip(self.ranges, self.flat.ranges, run.begin, strict=True)}
            for j, env in enumerate(run.envs):
                for w in loads:
                    if w.own in words:
                        self._byte(w, self._indices(env, names), u, j)
                        continue
                    hold(self.lo, w, w.at(self.lo, self._indices(env, names)), e.op("+", e.op("*", u, i64(size)), i64(j)))
            self._add(run, names, TRUE if inside is None else inside(u))

    def _byte(self, w: Wide, places: list[Atom], u: Atom, j: int) -> None:
        """A read finds a byte of what was loaded."""
        e, words = self.e, self.size // 4
        word = e.load(w.own, e.op("+", e.op("*", u, i64(words)), i64(j // 4)), I32, False, "word")
        value = e.bind("byte", form.Op(form.BYTE[w.tensor.dtype is I8], (word, form.Const(j % 4, I32)), I32))
        e.remember(("load", w.tensor.name, key_of(address(self.lo, w.tensor, w.at(self.lo, places)))), value)

    def _indices(self, env: Env, names: dict[str, Atom]) -> list[Atom]:
        return [*(env.names[self.names[k]] for k in range(len(self.axes))), *(names[r.index] for r in self.ranges)]

    def _next(self, run: _Run, inside: Atom) -> dict[str, Atom]:
        """The indices of the row that is next, and the one behind it is next."""
        e = self.e
        now: list[Atom] = [e.bind(a.name, form.Ref(a.name, I64)) for a in run.at]
        here = [e.choose(inside, i, b) for i, b in zip(now, run.begin, strict=True)]
        names = {r.index: e.op("+", first, i) for r, (_, first, _), i in zip(self.ranges, self.flat.ranges, here, strict=True)}
        carry: Atom = i64(0)
        for k in reversed(range(len(now))):
            value = e.op("+", e.op("+", now[k], run.step[k]), carry)
            if k:
                n = self.flat.ranges[k][2]
                over = e.op(">=", value, n)
                value, carry = e.choose(over, e.op("-", value, n), value), e.choose(over, i64(1), i64(0))
            e.assign(run.at[k], value)
        return names

    def _add(self, run: _Run, names: dict[str, Atom], inside: Atom) -> None:
        """The terms of a row, where it is there."""
        lo, e = self.lo, self.e
        for env, a in zip(run.envs, run.acc, strict=True):
            inner = env.plus(names)
            if self.factors is not None:
                x, y = (lo.value(f, inner) for f in self.factors)
                new: form.Expr = form.Op("fma", (x, y, a), F32)
            else:
                new = form.Op(self.kind.join, (a, e.convert(lo.value(self.x.body, inner), self.kind.dtype)), self.kind.dtype, self.sums)
            e.assign(a, new if inside is TRUE else form.Choose(inside, new, a, a.dtype))


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
        self.size, self.streams, self.flight = 1, [], SINGLES
        self.kind, self.long, self.grouped = self.kept, False, False

    def _share(self) -> Atom:
        e = self.e
        return e.choose(e.op("==", self.count, i64(1)), i64(0), i64(1))

    def _bounds(self, part: Atom) -> tuple[Atom, Atom]:
        return i64(0), self.count

    def _unravelled(self, row: Atom) -> list[Atom]:
        return [row]

    def _columns(self, t: Atom, columns: list[Atom], row: Atom) -> None:
        e = self.e
        acc = e.var(self.x.kind, self.kind.neutral)
        base = e.op("+", e.op("*", self.place, self.width), columns[0])
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


def _packed(packer: Packer, stmts: list[form.Stmt]) -> list[form.Stmt]:
    """The statements, with neighbours in memory moved at once in every block of them."""
    out: list[form.Stmt] = []
    for s in packer.packed(stmts):
        if isinstance(s, form.For):
            s = replace(s, body=tuple(_packed(packer, list(s.body))))
        elif isinstance(s, form.If):
            s = replace(s, then=tuple(_packed(packer, list(s.then))), other=tuple(_packed(packer, list(s.other))))
        out.append(s)
    return out
