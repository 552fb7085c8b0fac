"""Products of matrices that stream through shared memory (sm_90a): teams of threads take tiles in turn.

    resident block for tile in 0..fit ? tiles : 0 {
      contract %sums = %x * %w at row, column      copies and products run beside each other, and beside what other teams do
      each t in 0..128 {
        unroll for j, i { two neighbouring elements of the result are made of two sums, and stored together; of narrow ones 16 bytes, which four threads trade;
                          one by one where they do not lie so that they can be stored together }
      }
    }

`fit` is found out at run time; where it does not hold, the kernel behind this one computes the product (`TensorCores.unless`). A factor whose lines do not
follow each other at multiples of 16 bytes is read from a copy in which they do (`turned.py`), and one whose axes lie in another order from a copy as well.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.emit import FALSE, TRUE, Atom, i64, key_of
from pipelink_ir.backends.loops.gpu.flat import Flat, unravel
from pipelink_ir.backends.loops.gpu.pictures import Three, grid_of, pixel_of, pixels_of
from pipelink_ir.backends.loops.gpu.product import Tiled
from pipelink_ir.backends.loops.lower import Lowering, Sites
from pipelink_ir.backends.loops.nests import Job
from pipelink_ir.backends.loops.reads import address, extent, low
from pipelink_ir.backends.loops.reduce import finish
from pipelink_ir.ir.dtypes import F32, I32, I64, DType
from pipelink_ir.ir.typed import TypedOperator
from pipelink_ir.passes.scheduling import streams
from pipelink_ir.passes.scheduling.boxes import Boxes
from pipelink_ir.passes.scheduling.costs import Plan
from pipelink_ir.passes.scheduling.streams import Matrix, Streamed


def _times(a: form.Expr, b: form.Expr) -> form.Expr:
    return form.Op("*", (a, b), I64)


def _rounded(n: form.Expr, each: int) -> form.Expr:
    return _times(form.Op("floordiv", (form.Op("+", (n, i64(each - 1)), I64), i64(each)), I64), i64(each))


GROUP = 16
"""Rows of tiles that neighbouring blocks go through together."""
MAP_WORDS = 32
"""i64 that a block needs for what it tells the copy engine."""
TEAM, TEAMS = 128, 2
SHARED = {1: 231424, 2: 115712}
"""Bytes of shared memory of a block with small tiles, by the number of blocks of a processor."""
BYTES = 8
"""Pairs of bytes that a thread makes and stores together."""


def stream_body(op: TypedOperator, plan: Plan, sites: Sites, job: Job, way: Streamed, chosen: Mapping[str, int] | None = None) -> tuple[Lowering, int]:
    """The kernel of a product that streams, still open, and the number of threads of a team."""
    lo = Lowering(op, plan, sites, frozenset((job[0].name,)), chosen)
    _Stream(lo, [job], way).write()
    return lo, TEAM


def fit(nest: Tiled, way: Streamed, tiles: Atom) -> Atom:
    """Whether the sizes and the memory of a call are fit for streams: what is read where it lies begins at a multiple of 16 bytes."""
    e = nest.e
    out = e.op("and", e.op(">=", tiles, i64(way.enough)), e.op(">=", nest.depth.total, i64(streams.DEEP)))
    for m, dtype, other in zip((way.left, way.right), way.dtypes, (nest.across, nest.down), strict=True):
        if m.gathered:
            out = e.op("and", out, e.op(">=", other.total, i64(streams.BESIDE)))
        if not m.moved:
            out = e.op("and", out, e.op("or", uneven(nest, m, dtype), aligned(nest.lo, m.tensor, 16)))
    return out


def uneven(nest: Tiled, m: Matrix, dtype: DType) -> Atom:
    """Whether what is behind a line, or behind a matrix of a batch, does not begin at a multiple of 16 bytes."""
    if not m.uneven:
        return FALSE
    e, each = nest.e, i64(16 // dtype.bytes)
    found = [e.op("!=", e.op("mod", _behind(nest, m, some), each), i64(0)) for some in (m.inner, m.outer) if some is not None]
    return found[0] if len(found) == 1 else e.op("or", *found)


def tiles_of(nest: Tiled, way: Streamed) -> Atom:
    """How many tiles of a team there are."""
    e, (_, columns) = nest.e, way.tile
    return e.op("*", nest.batch.total, e.op("*", _ceil(nest, nest.across.total, columns), _down(nest, way)))


def _ceil(nest: Tiled, n: Atom, size: int) -> Atom:
    return nest.e.op("floordiv", nest.e.op("+", n, i64(size - 1)), i64(size))


def _down(nest: Tiled, way: Streamed) -> Atom:
    """How many tiles lie below each other."""
    if way.boxes is None:
        return _ceil(nest, nest.down.total, way.tile[0])
    return grid_of(nest, way.boxes).total


def aligned(lo: Lowering, tensor: str, size: int) -> Atom:
    """Whether a tensor begins at a multiple of so many bytes."""
    e, key = lo.e, ("aligned", tensor, size)
    found = e.find(key)
    if found is None:
        found = e.bind("aligned", form.Aligned(lo.buffer(lo.op.tensors[tensor]), size))
        e.remember(key, found)
    return found  # type: ignore[no-any-return]


def _behind(nest: Tiled, m: Matrix, axes: tuple[int, ...]) -> Atom:
    """How many elements the places of some axes have."""
    lo, e = nest.lo, nest.e
    out: Atom = i64(1)
    for k in axes:
        out = e.op("*", out, extent(lo, lo.op.tensors[m.tensor], k))
    return out


class Streams(Tiled):
    """What the kernels of a product that streams have in common."""

    def __init__(self, lo: Lowering, jobs: list[Job], way: Streamed) -> None:
        super().__init__(lo, jobs, way.otherwise.product)
        self.way = way

    def made(self, left: bool) -> form.Buffer:
        """The memory of a factor that is turned over, or copied if it has to be: batch, lines and terms, or terms and lines, the last one rounded up."""
        m, axes = (self.way.left, self.product.rows) if left else (self.way.right, self.product.columns)
        sizes = {"terms": self.plain(self.depth.total), "lines": self._all(axes)}
        fast, slow = ("terms", "lines") if m.along or m.turned else ("lines", "terms")
        total = _times(self._all(self.product.batch), _times(sizes[slow], _rounded(sizes[fast], self.each)))
        if not m.moved:
            apart = [form.Op("mod", (self.plain(_behind(self, m, some)), i64(self.each)), I64) for some in (m.inner, m.outer) if some is not None]
            total = _times(total, form.Op("min", (apart[0] if len(apart) == 1 else form.Op("+", (apart[0], apart[1]), I64), i64(1)), I64))
        word = "by_terms" if m.turned else "even"
        return form.Buffer(f"{m.tensor}.{'left' if left else 'right'}.{word}", "temporary", self.way.dtypes[0 if left else 1], (total,))

    @property
    def each(self) -> int:
        """Elements of 16 bytes."""
        return 16 // self.way.dtypes[0].bytes

    def pitch(self, fast: Atom) -> Atom:
        """Elements from one line to the next in such memory."""
        e, each = self.e, i64(self.each)
        return e.op("*", e.op("floordiv", e.op("+", fast, i64(self.each - 1)), each), each)

    def uneven(self, m: Matrix) -> Atom:
        """Whether the lines of a factor do not follow each other at multiples of 16 bytes."""
        return uneven(self, m, self.way.dtypes[0])

    def _all(self, axes: tuple[int, ...]) -> form.Expr:
        total: form.Expr = i64(1)
        for k in axes:
            total = _times(total, form.Op("max", (self.size(k), i64(0)), I64))
        return total

    def steps(self, m: Matrix, side: Flat) -> tuple[Atom, Atom]:
        """Elements from one place to the next along the second axis and along the batch, as a factor lies in its tensor."""
        inner = _behind(self, m, m.inner)
        return inner, self.e.op("*", inner, side.total if m.along else self.depth.total) if m.outer is None else _behind(self, m, m.outer)

    def size(self, axis: int) -> form.Expr:
        """The extent of an axis of the result over symbols alone."""
        return self.plain(self.axes[axis].n)

    def plain(self, x: form.Expr) -> form.Expr:
        """An expression with the values of names put in."""
        if isinstance(x, form.Ref):
            value = next((s.value for s in self.e.frames[0].stmts if isinstance(s, form.Let) and s.name == x.name), None)
            return x if value is None else self.plain(value)
        return form.Op(x.fn, tuple(map(self.plain, x.args)), x.dtype) if isinstance(x, form.Op) else x


class _Stream(Streams):
    """The loops of one kernel."""

    def __init__(self, lo: Lowering, jobs: list[Job], way: Streamed) -> None:
        super().__init__(lo, jobs, way)
        along = (way.left.along or way.left.turned, way.right.along or way.right.turned)
        self.tall, self.wide = way.tile
        teams = 1 if way.small else TEAMS
        self.ring = form.Ring(*way.dtypes, self.kind.dtype, self.tall // 64 // (teams if way.short else 1), self.wide, along, teams, short=way.short)
        if way.small:
            stages = (SHARED[way.beside] - self.ring.shared) // (128 * (self.tall + self.wide)) + self.ring.stages
            self.ring = replace(self.ring, stages=stages, beside=way.beside)

    def write(self) -> None:
        """Writes the kernel."""
        lo, e = self.lo, self.e
        across, down = _ceil(self, self.across.total, self.wide), _down(self, self.way)
        each, tiles = e.op("*", across, down), tiles_of(self, self.way)
        maps = e.memory("maps" if self.way.large is None else "maps_of_small_tiles")
        lo.scratch.append(form.Buffer(maps, "temporary", I64, (self._words(),)))
        terms = self.depth.total
        left = self._panel(self.way.left, self.down, True) if self.way.boxes is None else self._picture(self.way.boxes)
        panels = left, self._panel(self.way.right, self.across, False)
        there = fit(self, self.way, tiles)
        if self.way.large is not None:
            there = e.op("and", there, e.op("not", fit(self, self.way.large, tiles_of(self, self.way.large))))
        turns = e.choose(there, tiles, i64(0))
        # Teams that share a tile have its rows in order.
        sharing = self.tall // self.ring.rows
        if sharing > 1:
            turns = e.op("*", turns, i64(sharing))
        with e.loop("tile", i64(0), turns, kind="block") as turn:
            p = e.op("quot", turn, i64(sharing)) if sharing > 1 else turn
            number, group = e.op("rest", p, each), e.op("*", across, i64(GROUP))
            above = e.op("*", e.op("quot", number, group), i64(GROUP))
            inside, rows = e.op("rest", number, group), e.op("min", e.op("-", down, above), i64(GROUP))
            row = e.op("*", e.op("+", above, e.op("rest", inside, rows)), i64(self.tall))
            if sharing > 1:
                row = e.op("+", row, e.op("*", e.op("rest", turn, i64(sharing)), i64(self.ring.rows)))
            column = e.op("*", e.op("quot", inside, rows), i64(self.wide))
            batch = e.op("quot", p, each)
            self.fixed = dict(zip(self.product.batch, unravel(lo, self.batch.ranges, batch), strict=True))
            sums = e.memory("sums")
            e.raw(form.Alloc(sums, self.ring.sum, i64(self.ring.sums)))
            e.raw(form.Contract(sums, self.ring, panels[0], panels[1], terms, row, column, batch if self.product.batch else i64(0), maps))
            self.box = e.op("quot", row, i64(self.tall))
            self._epilogue(sums, row, column)

    def _words(self) -> form.Expr:
        """Memory for the maps of all blocks there may be, one for each turn of the kernel's loop, as the size of a buffer: of symbols alone."""
        def part(axes: tuple[int, ...], size: int) -> form.Expr:
            return form.Op("floordiv", (form.Op("+", (self._all(axes), i64(size - 1)), I64), i64(size)), I64)

        p, boxes = self.product, self.way.boxes
        down = part(p.rows, self.tall)
        for n, (across, high, pictures) in enumerate(boxes.some if boxes is not None else ()):
            some = _times(_times(part(p.rows[-1:], across), part(p.rows[-2:-1], high)), part(p.rows[:-2], pictures))
            down = form.Op("min", (down, some), I64) if n else some
        blocks = form.Op("*", (part(p.batch, 1), form.Op("*", (down, part(p.columns, self.wide)), I64)), I64)
        # They begin at a multiple of 128 bytes.
        return form.Op("+", (form.Op("*", (blocks, i64(self.tall // self.ring.rows * MAP_WORDS)), I64), i64(16)), I64)

    def _panel(self, m: Matrix, side: Flat, left: bool) -> form.Panel:
        e, terms, lines, batches = self.e, self.depth.total, side.total, self.batch.total
        sizes = (terms, lines, batches) if m.along or m.turned else (lines, terms, batches)
        moved = TRUE if m.moved else self.uneven(m)
        if isinstance(moved, form.Const) and not moved.value:
            return form.Panel(self._source(m), sizes, self.steps(m, side), m.tensor, FALSE)
        made, pitch = self.made(left), self.pitch(sizes[0])
        self.lo.scratch.append(made)
        theirs = pitch, e.op("*", pitch, sizes[1])
        if isinstance(moved, form.Const):
            return form.Panel(made.name, sizes, theirs, made.name, TRUE)
        first, second = (e.choose(moved, a, b) for a, b in zip(theirs, self.steps(m, side), strict=True))
        return form.Panel(self._source(m), sizes, (first, second), made.name, moved)

    def _picture(self, b: Boxes) -> form.Panel:
        """The picture that is the left factor."""
        lo, e, t = self.lo, self.e, self.lo.op.tensors[self.way.left.tensor]
        *before, high, wide, _ = [extent(lo, t, k) for k in range(len(t.shape))]
        pictures: Atom = i64(1)
        for n in before:
            pictures = e.op("*", pictures, n)
        grid = self.grid = grid_of(self, b)
        row = e.op("*", wide, i64(b.channels))
        x, y = b.across, b.down
        boxes = form.Boxes(b.channels, b.pixels, x.taps, (x.step, y.step), (x.apart, y.apart), (x.begin, y.begin))
        source = self._source(self.way.left)
        return form.Panel(source, (wide, high, pictures, *grid.counts[:2], *grid.box), (row, e.op("*", row, high)), source, FALSE, boxes)

    def _source(self, m: Matrix) -> str:
        return self.lo.buffer(self.lo.op.tensors[m.tensor])

    # --------------------------------------------------------------------------------------------------------------- results

    def _epilogue(self, sums: str, row: Atom, column: Atom) -> None:
        """Makes elements of the sums, two at a time. A tile that lies inside is stored by wide accesses and asks nothing. In others the last elements are made
        again behind the edges and not stored, so that nothing waits for a condition but the stores."""
        e, ring, (t, _) = self.e, self.ring, self.jobs[0]
        each = {1: BYTES, 2: 4}.get(t.dtype.bytes, 1)
        pairs, wide = self._together(2), self._together(2 * each)
        group = i64(8 * each)
        # Of a box each row asks by itself whether it is there.
        rows = TRUE if self.way.boxes is not None else e.op("<=", e.op("+", row, i64(ring.rows)), self.down.total)
        fast, total = e.op("and", wide, rows), self.across.total
        columns = e.op("<=", e.op("+", column, i64(ring.n)), total)

        def together(j: Atom, quarter: Atom, top: Atom) -> None:
            block = e.op("+", column, e.op("*", j, group))
            with self._unrolled("i", 2 * ring.m) as i:
                if each > 1:
                    self._many(sums, self._number(i, j, each), self._row_of(top, i), block, quarter, 2 * each)
                else:
                    self._two(sums, self._number(i, j, each), self._row_of(top, i), block, quarter)

        with e.when(e.op("and", fast, columns)), self._threads(row) as (top, quarter), self._unrolled("j", ring.n // 8 // each) as j:
            together(j, quarter, top)
        if isinstance(total, form.Const) and int(total.value) % ring.n == 0:
            with e.when(e.op("not", fast)):
                self._edges(sums, row, column, pairs)
            return
        with e.when(e.op("not", e.op("and", fast, columns))):
            # Of a tile that lies across the right edge groups of columns lie inside all the same.
            even = e.op("and", fast, e.op("==", e.op("mod", total, group), i64(0)))
            with e.when(even), self._unrolled("j", ring.n // 8 // each) as j, e.when(e.op("<", e.op("+", column, e.op("*", j, group)), total)):
                with self._threads(row) as (top, quarter):
                    together(j, quarter, top)
            with e.when(e.op("not", even)):
                self._edges(sums, row, column, pairs)

    def _edges(self, sums: str, row: Atom, column: Atom, pairs: Atom) -> None:
        """Stores a tile that does not lie inside, by pairs or one by one."""
        e, ring = self.e, self.ring
        with self._threads(row) as (top, quarter), self._unrolled("j", ring.n // 8) as j, self._unrolled("i", 2 * ring.m) as i:
            c = e.op("+", e.op("+", column, e.op("*", j, i64(8))), e.op("*", quarter, i64(2)))
            self._at_edges(sums, self._number(i, j, 1), self._row_of(top, i), c, pairs)

    @contextmanager
    def _threads(self, row: Atom) -> Iterator[tuple[Atom, Atom]]:
        """The work of each thread of a team: its first row, and its place among the four that have it."""
        e = self.e
        with e.loop("t", i64(0), i64(TEAM), kind="each", nonempty=True) as thread:
            lane = e.op("rest", thread, i64(32))
            top = e.op("+", row, e.op("+", e.op("*", e.op("quot", thread, i64(32)), i64(16)), e.op("quot", lane, i64(4))))
            yield top, e.op("rest", lane, i64(4))

    def _row_of(self, top: Atom, i: Atom) -> Atom:
        """The row of a thread in part `i` of its sums."""
        e = self.e
        return e.op("+", top, e.op("+", e.op("*", e.op("quot", i, i64(2)), i64(64)), e.op("*", e.op("rest", i, i64(2)), i64(8))))

    def _number(self, i: Atom, j: Atom, each: int) -> Atom:
        """The number of the first sum there, in `each` times eight columns with the number `j`."""
        e = self.e
        number = e.op("+", e.op("*", e.op("quot", i, i64(2)), i64(self.ring.n // 2)), e.op("*", e.op("rest", i, i64(2)), i64(2)))
        return e.op("+", number, e.op("*", j, i64(4 * each)))

    def _unrolled(self, hint: str, count: int) -> AbstractContextManager[form.Ref]:
        return self.e.loop(hint, i64(0), i64(count), nonempty=True, unroll=True)

    def _together(self, count: int) -> Atom:
        """Whether so many elements of the result may be stored together, found out at run time."""
        lo, e, (t, _) = self.lo, self.e, self.jobs[0]
        axis, k, each = self.axes[-1], len(t.shape) - 1, i64(count)
        conds = [e.op("==", e.op("mod", n, each), i64(0)) for n in (axis.n, extent(lo, t, k), e.op("-", axis.lo, low(lo, t, k)))]
        return e.all_of([*conds, aligned(lo, t.name, count * t.dtype.bytes)])

    def _many(self, sums: str, number: Atom, r: Atom, block: Atom, quarter: Atom, count: int) -> None:
        """A line of 64 bytes, 16 of each of four neighbouring threads: made where the sums are, stored where they lie together."""
        e, (t, _) = self.e, self.jobs[0]
        first = e.op("+", block, e.op("*", quarter, i64(2)))
        made = self._pairs(sums, number, r, [(e.op("+", first, i64(8 * w)), e.op("+", first, i64(8 * w + 1))) for w in range(count // 2)], t.dtype)
        mine = e.memory("mine")
        e.raw(form.Alloc(mine, t.dtype, i64(count)))
        e.raw(form.Trade(mine, made, count))
        self._store(mine, 0, r, e.op("+", block, e.op("*", quarter, i64(count))), count)

    def _two(self, sums: str, number: Atom, r: Atom, block: Atom, quarter: Atom) -> None:
        """A pair of neighbouring elements."""
        e = self.e
        c = e.op("+", block, e.op("*", quarter, i64(2)))
        self._store(self._pairs(sums, number, r, [(c, e.op("+", c, i64(1)))], self.jobs[0][0].dtype), 0, r, c, 2)

    def _at_edges(self, sums: str, number: Atom, r: Atom, c: Atom, pairs: Atom) -> None:
        """A pair of neighbouring elements of a tile that does not lie inside, or whose elements cannot be stored by wide accesses."""
        e, down, across = self.e, self.down.total, self.across.total
        second, last = e.op("+", c, i64(1)), e.op("-", across, i64(1))
        boxed = self.way.boxes is not None
        line = r if boxed else e.op("min", r, e.op("-", down, i64(1)))
        there = e.op("<", c, across) if boxed else e.op("and", e.op("<", r, down), e.op("<", c, across))
        with self.lo.stored_where(lambda: there):
            made = self._pairs(sums, number, line, [(e.op("min", c, last), e.op("min", second, last))], self.jobs[0][0].dtype)
        with e.when(there):
            with e.when(pairs):
                self._store(made, 0, r, c, 2)
            alone = e.op("not", pairs)
            with e.when(alone):
                self._store(made, 0, r, c, 1)
            with e.when(e.op("and", alone, e.op("<", second, across))):
                self._store(made, 1, r, second, 1)

    def _store(self, memory: str, first: int, r: Atom, c: Atom, count: int) -> None:
        """Neighbouring elements go to their place."""
        lo, (t, _) = self.lo, self.jobs[0]
        with self.e.when(self._there(r)):
            self.e.raw(form.Move(lo.buffer(t), address(lo, t, self._at(r, c)), memory, i64(first), count))

    def _pairs(self, sums: str, number: Atom, r: Atom, columns: Sequence[tuple[Atom, Atom]], dtype: DType) -> str:
        """Pairs of neighbouring elements, made of neighbouring sums, in scratch."""
        lo, e, (t, piece) = self.lo, self.e, self.jobs[0]
        values: list[Atom] = []
        for w, pair in enumerate(columns):
            for d, column in enumerate(pair):
                at = self._at(r, column)
                dot = e.bind("dot", form.Load(sums, e.op("+", number, i64(4 * w + d)), self.ring.sum, self.ring.sum))
                key = ("reduce", id(self.x), tuple((n, key_of(at[k])) for n, k in sorted(self.product.plain.items())))
                e.remember(key, finish(lo, self.x, self.kind, dot, i64(0), TRUE))
                with lo.stored_where(lambda: self._there(r)):
                    value = lo.made(t, piece, at)
                values.append(e.unrounded(value, t.dtype))
        # What is traded becomes narrow on the way, two or four at a time.
        wide = {2: F32, 1: I32}.get(dtype.bytes) if dtype.is_float == (dtype.bytes == 2) and len(columns) > 1 else None
        held = dtype if wide is None or any(v.dtype is not wide for v in values) else wide
        out = e.memory("pair" if len(columns) == 1 else "made")
        e.raw(form.Alloc(out, held, i64(len(values))))
        for k, value in enumerate(values):
            e.raw(form.Store(out, i64(k), value, held))
        return out

    def _there(self, r: Atom) -> Atom:
        """Whether a row of a box is a pixel of the result."""
        e, boxes = self.e, self.way.boxes
        if boxes is None:
            return TRUE
        inside = [e.op("<", at, n) for at, n in zip(self._pixel(r), pixels_of(self), strict=True)]
        return e.all_of([*([] if boxes.pixels == self.tall else [e.op("<", self._line(r), i64(boxes.pixels))]), *inside])

    def _line(self, r: Atom) -> Atom:
        return self.e.op("-", r, self.e.op("*", self.box, i64(self.tall)))

    def _pixel(self, r: Atom) -> Three:
        """Where a row of a box lies."""
        return pixel_of(self, self.grid, self.box, self._line(r))

    def _places(self, r: Atom) -> list[Atom]:
        """Where a row lies along its axes; for one that is no pixel, where another does."""
        lo, e = self.lo, self.e
        if self.way.boxes is None:
            return unravel(lo, self.down.ranges, r)
        x, y, picture = (e.op("min", at, e.op("-", n, i64(1))) for at, n in zip(self._pixel(r), pixels_of(self), strict=True))
        return [*unravel(lo, self.down.ranges[:-2], picture), y, x]

    def _at(self, r: Atom, c: Atom) -> tuple[Atom, ...]:
        lo = self.lo
        at = {**self.fixed, **dict(zip(self.product.rows, self._places(r), strict=True)),
              **dict(zip(self.product.columns, unravel(lo, self.across.ranges, c), strict=True))}
        return tuple(at[k] for k in range(len(self.axes)))
