"""Convolutions from tiles of a picture in shared memory, on tensor cores (`passes/scheduling/convolutions.py`).

    block for p in … {
      thread: the right factor to shared memory, as the lanes of a warp want it
      for tile in p.. step blocks {
        barrier     thread: begins to copy the tile with its rim     commit     await     barrier
        each t { for turn in … { window: the sums of some pixels of a row     what is made of them, stored } }
      }
    }

What lies beyond the picture is written to the tile as its border answers. A lane has neighbouring columns of the result, or, where these are few, neighbouring
pixels of a row with all their columns, so that it stores what lies side by side.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.borders import inside as within
from pipelink_ir.backends.loops.borders import mapped
from pipelink_ir.backends.loops.emit import FALSE, TRUE, Atom, i64, key_of
from pipelink_ir.backends.loops.fold import must
from pipelink_ir.backends.loops.gpu.dots import SMALL
from pipelink_ir.backends.loops.gpu.flat import unravel
from pipelink_ir.backends.loops.gpu.product import Tiled
from pipelink_ir.backends.loops.gpu.stream import aligned
from pipelink_ir.backends.loops.lower import Env, Lowering, Sites
from pipelink_ir.backends.loops.nests import Job
from pipelink_ir.backends.loops.reads import address, extent, low
from pipelink_ir.backends.loops.reduce import finish
from pipelink_ir.ir.dtypes import F32, I32
from pipelink_ir.ir.nodes import Name, Read
from pipelink_ir.ir.typed import TypedOperator
from pipelink_ir.passes.scheduling.convolutions import CHUNK, Convolution
from pipelink_ir.passes.scheduling.costs import Plan
from pipelink_ir.passes.scheduling.counts import known
from pipelink_ir.passes.scheduling.strips import zero_around
from pipelink_ir.passes.scheduling.tensor_cores import plain_read


def convolution_body(op: TypedOperator, plan: Plan, sites: Sites, job: Job, way: Convolution,
                     chosen: Mapping[str, int] | None = None) -> tuple[Lowering, int]:
    """The kernel, still open, and the number of threads that it needs."""
    lo = Lowering(op, plan, sites, frozenset((job[0].name,)), chosen)
    lo.fit = way.fit
    _Convolution(lo, [job], way).write()
    return lo, way.threads


class _Convolution(Tiled):
    """The loops of one kernel."""

    def __init__(self, lo: Lowering, jobs: list[Job], way: Convolution) -> None:
        super().__init__(lo, jobs, way.product)
        self.way = way
        read = plain_read(way.product.left)
        assert read is not None
        self.read: Read = read
        self.t = lo.op.tensors[read.tensor]
        self.tall, self.wide = self.axes[way.down.axis], self.axes[way.across.axis]
        rows, pitch = way.size
        down = (way.down.taps, way.down.apart) if way.rows == 1 else (way.down.taps + way.rows - 1, 1)
        terms = way.down.taps * way.across.taps * way.channels
        start = form.MAGIC if self.kind.dtype is I32 and terms << 2 * way.left.bits - (way.left.name == way.right.name == "i8") * 2 < SMALL else 0
        more: dict[str, int] = {"start": start, "plane": rows * pitch if way.grouped else 0}
        if way.gathered:
            more |= {"run": way.across.taps * way.channels, "lead": way.lead[1], "unit": way.unit}
        step = way.across.step * way.channels if way.gathered else way.across.step
        self.window = form.Window(way.left, way.right, self.kind.dtype, way.parts, way.tiles, down, (way.across.taps, way.across.apart), step, pitch,
                                  0 if way.gathered else way.pixel, way.rows, way.columns, way.down.taps, **more)
        assert (self.window.steps, self.window.each if way.gathered else 0) == (way.steps, way.each if way.gathered else 0)
        self.height, self.pitch, self.size = rows, pitch // way.left.bytes, way.bytes // way.left.bytes
        self.group = _largest(self.window.own, CHUNK // self.jobs[0][0].dtype.bytes)
        """Columns side by side that a lane has: those of a lane are moved by 16 bytes, and those of four lanes lie side by side."""
        self.part = self.window.shared // way.right.bytes
        """Elements of the right factor that one warp of those beside each other needs."""

    def write(self) -> None:
        """Writes the kernel."""
        e, way = self.e, self.way
        high, wide = way.tile
        self.outer = self._axes(way.product.rows[:-2])
        self.tiles = [self._count(self.tall.n, high), self._count(self.wide.n, wide)]
        total = e.op("*", e.op("*", self.outer.total, e.op("*", *self.tiles)), i64(way.panes))
        blocks = e.op("min", total, i64(way.blocks))
        with e.loop("block", i64(0), blocks, kind="block") as p:
            self.fixed = {}
            self._readable(lambda: self._block(p, total))

    def _count(self, size: Atom, by: int) -> Atom:
        return self.e.op("floordiv", self.e.op("+", self.e.op("max", size, i64(0)), i64(by - 1)), i64(by))

    def _block(self, p: Atom, total: Atom) -> None:
        e, way = self.e, self.way
        # Blocks of neighbouring numbers have the same tile, and a block always has the same columns.
        self.pane = e.op("*", e.op("rest", p, i64(way.panes)), i64(way.columns)) if way.panes > 1 else i64(0)
        self.weights, self.tile = e.memory("weights"), e.memory("tile")
        e.raw(form.Alloc(self.weights, way.right, i64(self.part * way.warps[2]), True))
        e.raw(form.Alloc(self.tile, way.left, i64(way.stages * self.size), True))
        if way.stages > 1:
            self._bring(self._tile(p), i64(0))
            e.raw(form.Commit())
            self._stage()
        with e.loop("tile", p, total, i64(way.blocks), nonempty=True) as q:
            slot: Atom = i64(0)
            if way.stages > 1:
                turn = e.op("rest", e.op("quot", e.op("-", q, p), i64(way.blocks)), i64(2))
                slot = e.op("*", turn, i64(self.size))
                e.raw(form.Barrier())
                following = e.op("+", q, i64(way.blocks))
                with e.when(e.op("<", following, total)):
                    self._bring(self._tile(following), e.op("-", i64(self.size), slot))
                e.raw(form.Commit())
            first = self._tile(q)
            if way.stages == 1:
                e.raw(form.Barrier())
                self._bring(first, slot)
                e.raw(form.Commit())
                # The first tile is on its way while this happens.
                with e.when(e.op("==", q, p)):
                    self._stage()
            e.raw(form.Await(way.stages - 1, way.grouped))
            e.raw(form.Barrier())
            with self.team.each("t", way.threads) as t:
                self._multiply(t, first, slot)

    def _tile(self, number: Atom) -> tuple[Atom, Atom]:
        """Where a tile begins; the axes before are fixed."""
        e, way = self.e, self.way
        number = e.op("quot", number, i64(way.panes)) if way.panes > 1 else number
        above, x = e.op("quot", number, self.tiles[1]), e.op("rest", number, self.tiles[1])
        y, picture = e.op("rest", above, self.tiles[0]), e.op("quot", above, self.tiles[0])
        self.fixed = dict(zip(way.product.rows[:-2], unravel(self.lo, self.outer.ranges, picture), strict=True))
        return e.op("*", y, i64(way.tile[0])), e.op("*", x, i64(way.tile[1]))

    # --------------------------------------------------------------------------------------------------------------- right factor

    def _stage(self) -> None:
        """The right factor to shared memory: as it lies in memory, so that neighbouring threads read neighbours."""
        e, way, n = self.e, self.way, self.way.columns
        if way.rows > 1 or way.gathered or n % (4 * self.window.own):
            count = CHUNK // way.right.bytes
            with self.team.loop("z", i64(0), i64(self.part * way.warps[2] // count), nonempty=True) as z:
                zeros = e.memory("zeros")
                e.raw(form.Alloc(zeros, way.right, i64(count)))
                for k in range(count):
                    e.raw(form.Store(zeros, i64(k), must(0, way.right.compute), way.right))
                e.raw(form.Move(self.weights, e.op("*", z, i64(count)), zeros, i64(0), count))
            e.raw(form.Barrier())
        many = self._many()
        if many is None:
            self._stage_by(1)
            return
        with e.when(many):
            self._stage_by(CHUNK // way.right.bytes)
        with e.when(e.op("not", many)):
            self._stage_by(1)

    def _many(self) -> Atom | None:
        """The condition under which 16 bytes of the right factor are moved at a time; None if they never can be."""
        lo, read = self.lo, plain_read(self.product.right)
        if read is None or self.way.rows > 1 or self.way.gathered or lo.plan.local(read.tensor) or any(word not in ("", "inside") for word in read.access):
            return None
        t, last = lo.op.tensors[read.tensor], read.indices[-1]
        name = self.depth.ranges[self.way.channel][0] if self.along_terms(self.product.right) else f"axis {self.product.columns[0]}"
        alone = isinstance(last, Name) and self.axis_name(last.name) == name and not any(name in self.axis_names(i) for i in read.indices[:-1])
        high = known(t.shape[-1][1])
        if not alone or t.dtype is not self.way.right or high is None or known(t.shape[-1][0]) != 0 or high * t.dtype.bytes % CHUNK:
            return None
        return aligned(lo, t.name, CHUNK)

    def _stage_by(self, count: int) -> None:
        """So many neighbours at a time."""
        lo, e, way = self.lo, self.e, self.way
        along = self.along_terms(self.product.right)
        taps, terms = way.down.taps * way.across.taps, way.down.taps * way.across.taps * way.channels
        with self.team.loop("w", i64(0), i64(terms * way.columns // count), nonempty=True) as w:
            fast, slow = (way.channels, way.columns) if along else (way.columns, way.channels)
            unit, rest = e.op("rest", w, i64(fast // count)), e.op("quot", w, i64(fast // count))
            first = e.op("*", unit, i64(count))
            tap, other = (e.op(f, rest, i64(taps if along else slow)) for f in (("rest", "quot") if along else ("quot", "rest")))
            channel, column = (first, other) if along else (other, first)
            y, x = e.op("quot", tap, i64(way.across.taps)), e.op("rest", tap, i64(way.across.taps))
            if count == 1:
                value = e.convert(lo.value(self.product.right, self._term(y, x, channel, column)), way.right.compute)
                for r in range(way.rows):
                    e.raw(form.Store(self.weights, self._place(y, x, channel, column, r), value, way.right))
                return
            read = plain_read(self.product.right)
            assert read is not None
            t, env = lo.op.tensors[read.tensor], self._term(y, x, channel, column)
            own = e.memory("own")
            e.raw(form.Alloc(own, t.dtype, i64(count)))
            e.raw(form.Move(own, i64(0), lo.buffer(t), address(lo, t, tuple(lo.index(i, env) for i in read.indices)), count))
            each = 4 // way.right.bytes if along else 1
            for k in range(0, count, each):
                at = e.op("+", first, i64(k))
                place = self._place(y, x, at if along else channel, column if along else at, 0)
                e.raw(form.Move(self.weights, place, own, i64(k), each))

    def _term(self, y: Atom, x: Atom, channel: Atom, column: Atom) -> Env:
        """The indices of an element of the right factor."""
        way, at = self.way, {}
        for k, number in ((way.down.range, y), (way.across.range, x), (way.channel, channel)):
            name, first, _ = self.depth.ranges[k]
            at[name] = self.e.op("+", first, number)
        names = {n: self._column(column) for n, axis in self.product.plain.items() if axis in self.product.columns}
        return Env(names | at)

    def _column(self, column: Atom) -> Atom:
        """The place on the axis of a column of the pane."""
        return self.e.op("+", self.e.op("+", self.across.ranges[-1][1], self.pane), column)

    def _place(self, y: Atom, x: Atom, channel: Atom, column: Atom, row: int) -> Atom:
        """Where an element of the right factor lies in shared memory, for one of the rows that are computed at once."""
        e, way, w, side = self.e, self.way, self.window, max(1, self.way.rows // 4)
        if way.gathered:
            number = e.op("+", e.op("+", e.op("*", y, i64(w.each)), e.op("*", x, i64(way.channels))), e.op("+", channel, i64(w.lead)))
            before: Atom = i64(0)
            byte = e.op("*", number, i64(way.left.bytes))
        else:
            tap = e.op("+", e.op("*", e.op("+", y, i64(row)), i64(way.across.taps)), x)
            byte, before = e.op("*", channel, i64(way.left.bytes)), e.op("*", tap, i64(way.pixel // 32))
        step, inner = e.op("+", before, e.op("quot", byte, i64(32))), e.op("rest", byte, i64(32))
        half, inner = e.op("quot", inner, i64(16)), e.op("rest", inner, i64(16))
        quarter, small = e.op("quot", inner, i64(4)), e.op("quot", e.op("rest", inner, i64(4)), i64(way.right.bytes))
        number = e.op("+", column, i64(row // side * w.own + row % side * way.columns))
        beside, at = (e.op("quot", number, i64(4 * w.own)), e.op("rest", number, i64(4 * w.own))) if way.warps[2] > 1 else (i64(0), number)
        if way.rows > 1:
            lane, slot = e.op("quot", at, i64(w.own)), e.op("rest", at, i64(w.own))
        else:
            block, inner = e.op("quot", at, i64(4 * self.group)), e.op("rest", at, i64(4 * self.group))
            lane = e.op("quot", inner, i64(self.group))
            slot = e.op("+", e.op("*", block, i64(self.group)), e.op("rest", inner, i64(self.group)))
        tile, line = e.op("quot", slot, i64(2)), e.op("+", e.op("*", lane, i64(2)), e.op("rest", slot, i64(2)))
        if way.grouped:
            # Halves of steps after each other, of each the columns of the instruction, of each 16 bytes.
            chunk = e.op("+", e.op("*", e.op("+", e.op("*", step, i64(2)), half), i64(8 * w.tiles)), e.op("+", e.op("*", tile, i64(8)), line))
            place = e.op("+", e.op("*", chunk, i64(16 // way.right.bytes)), e.op("+", e.op("*", quarter, i64(4 // way.right.bytes)), small))
            return e.op("+", e.op("*", beside, i64(self.part)), place)
        words = e.op("+", e.op("*", e.op("+", e.op("*", step, i64(w.tiles)), tile), i64(64)),
                     e.op("+", e.op("*", e.op("+", e.op("*", line, i64(4)), quarter), i64(2)), half))
        place = e.op("+", e.op("*", words, i64(4 // way.right.bytes)), small)
        return e.op("+", e.op("*", beside, i64(self.part)), place)

    # ---------------------------------------------------------------------------------------------------------------------- tile

    def _bring(self, first: tuple[Atom, Atom], slot: Atom) -> None:
        """The tile with its rim: what the border answers for is written there."""
        e, way = self.e, self.way
        begins = [e.op("+", e.op("*", e.op("+", axis.lo, at), i64(s.step)), i64(s.begin))
                  for axis, at, s in zip((self.tall, self.wide), first, (way.down, way.across), strict=True)]
        wide = aligned(self.lo, self.t.name, CHUNK)
        if way.gathered:
            row = e.op("*", extent(self.lo, self.t, len(self.read.indices) - 2), i64(way.channels))
            wide = e.op("and", e.op("==", e.op("rest", row, i64(CHUNK // way.left.bytes)), i64(0)), wide)
            modes = {b.mode for b in self.t.border[-3:-1] if b is not None} if "border" in (self.read.access or ()) else set()
            if modes - {"constant"} or self.way.across.step * 16 * self.way.channels * self.way.left.bytes % CHUNK:
                wide = FALSE
        for cond, each in ((wide, CHUNK // way.left.bytes), (e.op("not", wide), 1)):
            if cond is not FALSE:
                with e.when(cond):
                    (self._elements if way.gathered else self._pixels)(begins, each, slot)

    def _pixels(self, begins: list[Atom], each: int, slot: Atom) -> None:
        """Pixels of whole chunks, `each` elements at a time."""
        e, way = self.e, self.way
        chunks, columns = way.channels // each, way.across.span(way.tile[1])
        chunk, apart = CHUNK // way.left.bytes, self.window.apart
        with self.team.loop("t", i64(0), i64(self.height * columns * chunks), nonempty=True) as t:
            part, pixel = e.op("*", e.op("rest", t, i64(chunks)), i64(each)), e.op("quot", t, i64(chunks))
            row, column = e.op("quot", pixel, i64(columns)), e.op("rest", pixel, i64(columns))
            if way.grouped:
                plane = e.op("+", e.op("*", e.op("quot", part, i64(chunk)), i64(self.size // (way.channels // chunk))), e.op("rest", part, i64(chunk)))
                place = e.op("+", e.op("+", e.op("*", row, i64(self.pitch)), e.op("*", column, i64(chunk))), plane)
            else:
                place = e.op("+", e.op("+", e.op("*", row, i64(self.pitch)), e.op("*", column, i64(way.channels))),
                             e.op("+", e.op("*", e.op("quot", column, i64(apart)), i64(chunk)), part))
            self._element_or(e.op("+", slot, place), [e.op("+", begins[0], row), e.op("+", begins[1], column)], part, each)

    def _elements(self, begins: list[Atom], each: int, slot: Atom) -> None:
        """Rows of pixels that are no whole chunks: a chunk has parts of some pixels, and lies in the picture or beyond it."""
        e, way = self.e, self.way
        lead, many = way.lead[0], self.pitch // each
        with self.team.loop("t", i64(0), i64(self.height * many), nonempty=True) as t:
            row, at = e.op("quot", t, i64(many)), e.op("*", e.op("rest", t, i64(many)), i64(each))
            place = e.op("+", e.op("*", row, i64(self.pitch)), at)
            # The element of the row, counted from the first pixel that is read.
            number = e.op("+", e.op("*", begins[1], i64(way.channels)), e.op("-", at, i64(lead)))
            column, part = e.op("floordiv", number, i64(way.channels)), e.op("mod", number, i64(way.channels))
            self._element_or(e.op("+", slot, place), [e.op("+", begins[0], row), column], part, each)

    def _element_or(self, place: Atom, at: list[Atom], part: Atom, each: int) -> None:
        """Neighbours of the picture, or what its borders answer instead, to a place of the tile."""
        lo, e, t = self.lo, self.e, self.t
        rank = len(self.read.indices)
        env = Env({n: self.fixed[axis] for n, axis in self.product.plain.items() if axis in self.fixed})
        outer = tuple(lo.index(i, env) for i in self.read.indices[:-3])
        words = self.read.access or ("",) * rank
        places: list[Atom] = []
        there: list[Atom] = []
        value: Atom | None = None
        for k, index in zip((rank - 3, rank - 2), at, strict=True):
            border, n = t.border[k] if words[k] == "border" else None, extent(lo, t, k)
            local = e.op("-", index, low(lo, t, k))
            if border is None or border.mode == "constant":
                there.append(within(e, local, n))
                if border is not None and border.value is not None and not zero_around(t, k):
                    value = e.convert(lo.value(border.value, lo.root), t.dtype.compute)
            else:
                local = mapped(e, border.mode, local, n)
            places.append(e.op("+", low(lo, t, k), local))
        inside = e.all_of(there)
        source = address(lo, t, (*outer, *places, part))
        if each > 1 and value is None:
            e.raw(form.CopyAsync(self.tile, place, lo.buffer(t), e.choose(inside, source, i64(0)), inside, t.dtype))
            return
        if each > 1 and value is not None:
            with e.when(inside):
                e.raw(form.CopyAsync(self.tile, place, lo.buffer(t), source, TRUE, t.dtype))
            with e.when(e.op("not", inside)):
                own = e.memory("own")
                e.raw(form.Alloc(own, t.dtype, i64(each)))
                for k in range(each):
                    e.raw(form.Store(own, i64(k), value, t.dtype))
                e.raw(form.Move(self.tile, place, own, i64(0), each))
            return
        found = e.branch(inside, lambda: e.bind("x", form.Load(lo.buffer(t), source, t.dtype, t.dtype.compute)),
                         lambda: must(0, t.dtype.compute) if value is None else value, t.dtype.compute)
        e.raw(form.Store(self.tile, place, found, t.dtype))

    # ------------------------------------------------------------------------------------------------------------------- results

    def _multiply(self, t: Atom, first: tuple[Atom, Atom], slot: Atom) -> None:
        """What a lane does with a tile."""
        e, way, w = self.e, self.way, self.window
        lane, warp = e.op("rest", t, i64(32)), e.op("quot", t, i64(32))
        self.line, self.quarter = e.op("quot", lane, i64(4)), e.op("rest", lane, i64(4))
        if way.grouped:
            x, above = e.op("rest", warp, i64(way.warps[1])), e.op("quot", warp, i64(way.warps[1]))
            beside, y = e.op("rest", above, i64(way.warps[2])), e.op("quot", above, i64(way.warps[2]))
        else:
            beside, above = e.op("rest", warp, i64(way.warps[2])), e.op("quot", warp, i64(way.warps[2]))
            x, y = e.op("rest", above, i64(way.warps[1])), e.op("quot", above, i64(way.warps[1]))
        columns = e.op("*", x, i64(16 * way.parts))
        sums = e.memory("sums")
        e.raw(form.Alloc(sums, w.sum, i64(w.sums)))
        with e.loop("turn", i64(0), i64(way.turns), nonempty=True) as turn:
            row = e.op("*", e.op("+", e.op("*", turn, i64(way.warps[0])), y), i64(way.rows))
            at, column = e.op("+", slot, e.op("*", row, i64(way.down.step * self.pitch))), e.op("*", columns, i64(way.across.step))
            if way.grouped:
                # Both are those of all four warps.
                at, column = e.op("*", e.op("+", e.op("*", turn, i64(way.warps[0])), y), i64(way.down.step * self.pitch)), i64(0)
                at = e.op("+", slot, at)
            if way.gathered:
                at, column = e.op("+", at, e.op("+", e.op("*", column, i64(way.channels)), i64(way.lead[0] - way.lead[1]))), i64(0)
            e.raw(form.WindowMultiply(sums, self.tile, at, column, self.weights, e.op("*", beside, i64(self.part)), w))
            where = e.op("+", first[0], row), e.op("+", first[1], columns)
            if way.rows == 1:
                self._by_columns(sums, where, e.op("*", beside, i64(4 * w.own)))
            else:
                self._by_pixels(sums, where)

    def _pixel(self, part: int, half: int) -> Atom:
        factor, constant = self.window.pixel_of(part, half)
        return self.e.op("+", self.e.op("*", self.line, i64(factor)), i64(constant))

    def _by_columns(self, sums: str, where: tuple[Atom, Atom], before: Atom) -> None:
        """A lane has neighbouring columns of each of its pixels."""
        e, way, w, t = self.e, self.way, self.window, self.jobs[0][0]
        some = _largest(w.own, CHUNK // t.dtype.bytes)
        first = e.op("+", before, e.op("*", self.quarter, i64(self.group)))
        mine = [e.op("+", first, i64(k // self.group * 4 * self.group + k % self.group)) for k in range(w.own)]
        whole = way.columns % (4 * w.own) == 0
        wide = aligned(self.lo, t.name, some * t.dtype.bytes) if way.columns % some == 0 and some > 1 else FALSE
        for part in range(way.parts):
            for half in range(2):
                column = e.op("+", where[1], self._pixel(part, half))
                made = self._made(w.own)
                for k in range(w.own):
                    c, number = mine[k], (part * w.tiles + k // 2) * 4 + 2 * half + k % 2
                    with self.lo.stored_where(lambda c=c: TRUE if whole else e.op("<", c, i64(way.columns))):  # type: ignore[misc]
                        self._element(sums, made, k, number, where[0], column, c if whole else e.op("min", c, i64(way.columns - 1)))
                with e.when(e.op("and", e.op("<", where[0], self.tall.n), e.op("<", column, self.wide.n))):
                    for k in range(0, w.own, some):
                        c = mine[k]
                        self._store(made, k, some, wide, lambda n, c=c, column=column: (where[0], column, e.op("+", c, i64(n))),  # type: ignore[misc]
                                    lambda n, c=c: TRUE if whole else e.op("<", e.op("+", c, i64(n)), i64(way.columns)))  # type: ignore[misc]

    def _by_pixels(self, sums: str, where: tuple[Atom, Atom]) -> None:
        """A lane has neighbouring pixels of each of its rows, with all their columns."""
        e, way, w, t = self.e, self.way, self.window, self.jobs[0][0]
        n, pixels = way.columns, 2 * way.parts
        some = _largest(pixels * n, CHUNK // t.dtype.bytes)
        first = e.op("+", where[1], e.op("*", self.line, i64(pixels)))
        even = e.op("==", e.op("rest", e.op("*", extent(self.lo, t, len(self.axes) - 2), i64(n)), i64(some)), i64(0))
        wide = e.op("and", even, aligned(self.lo, t.name, some * t.dtype.bytes)) if some > 1 else FALSE
        for r in range(way.rows // 4):
            row = e.op("+", where[0], e.op("+", e.op("*", self.quarter, i64(way.rows // 4)), i64(r)))
            made = self._made(pixels * n)
            for k in range(pixels):
                for c in range(n):
                    slot = r * n + c
                    number = (k // 2 * w.tiles + slot // 2) * 4 + 2 * (k % 2) + slot % 2
                    self._element(sums, made, k * n + c, number, row, e.op("+", first, i64(k)), i64(c))
            with e.when(e.op("<", row, self.tall.n)):
                for k in range(0, pixels * n, some):
                    self._store(made, k, some, wide, lambda m, k=k, row=row: (row, e.op("+", first, i64((k + m) // n)), i64((k + m) % n)),  # type: ignore[misc]
                                lambda m, k=k: e.op("<", e.op("+", first, i64((k + m) // n)), self.wide.n))  # type: ignore[misc]

    def _made(self, count: int) -> str:
        t, made = self.jobs[0][0], self.e.memory("made")
        self.e.raw(form.Alloc(made, t.dtype if t.dtype.bytes > 1 or t.dtype.is_float else I32, i64(count)))
        return made

    def _element(self, sums: str, made: str, k: int, number: int, row: Atom, column: Atom, c: Atom) -> None:
        """What is made of one sum. Behind the last row or pixel, that of the last one, which is not stored."""
        lo, e, (t, piece) = self.lo, self.e, self.jobs[0]
        last = [e.op("-", axis.n, i64(1)) for axis in (self.tall, self.wide)]
        at = self._at(e.op("min", row, last[0]), e.op("min", column, last[1]), c)
        dot: Atom = e.bind("dot", form.Load(sums, i64(number), self.window.sum, self.window.sum))
        if self.window.start:
            dot = self._digits(dot)
        key = ("reduce", id(self.x), tuple((n, key_of(at[axis])) for n, axis in sorted(self.product.plain.items())))
        e.remember(key, finish(lo, self.x, self.kind, dot, i64(0), TRUE))
        with lo.stored_where(lambda: e.all_of([e.op("<", row, self.tall.n), e.op("<", column, self.wide.n)])):
            value = lo.made(t, piece, at)
        e.raw(form.Store(made, i64(k), value, t.dtype if t.dtype.bytes > 1 or t.dtype.is_float else I32))

    def _digits(self, dot: Atom) -> Atom:
        """A sum that is the last digits of a float."""
        e = self.e
        number = e.bind("dot", form.Op("-", (dot, must(form.MAGIC, I32)), I32))
        e.remember(("cast", F32.name, False, key_of(number)), e.bind("digits", form.Op(form.DIGITS, (dot,), F32)))
        return number

    def _at(self, row: Atom, column: Atom, c: Atom) -> tuple[Atom, ...]:
        e = self.e
        at = {**self.fixed, self.way.down.axis: e.op("+", self.tall.lo, row), self.way.across.axis: e.op("+", self.wide.lo, column),
              self.product.columns[0]: self._column(c)}
        return tuple(at[k] for k in range(len(self.axes)))

    def _store(self, made: str, k: int, some: int, wide: Atom, place: Callable[[int], tuple[Atom, Atom, Atom]], there: Callable[[int], Atom]) -> None:
        """Some neighbours, together where they are all there and lie at such a place."""
        lo, e, t = self.lo, self.e, self.jobs[0][0]
        if wide is not FALSE:
            with e.when(e.op("and", wide, there(some - 1)) if there(some - 1) is not TRUE else wide):
                e.raw(form.Move(lo.buffer(t), address(lo, t, self._at(*place(0))), made, i64(k), some))
        if wide is TRUE and there(some - 1) is TRUE:
            return
        alone = TRUE if wide is FALSE else e.op("not", wide if there(some - 1) is TRUE else e.op("and", wide, there(some - 1)))
        with e.when(alone):
            for n in range(some):
                with e.when(there(n)):
                    e.raw(form.Move(lo.buffer(t), address(lo, t, self._at(*place(n))), made, i64(k + n), 1))


def _largest(count: int, most: int) -> int:
    """The largest power of two by which a number of neighbours is moved."""
    return next(n for n in (16, 8, 4, 2, 1) if n <= most and count % n == 0)
