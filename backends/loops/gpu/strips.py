"""Products of many rows with few terms and few columns, in strips of 16 rows that a warp computes (`passes/scheduling/strips.py`).

    block for turn in … {
      thread: the right factor to shared memory, as the lanes of a warp want it     barrier
      each t {
        line: the lines of the first strip of this warp, to registers
        for strip in 0..TURNS {
          unroll for some columns { strip: their sums;   each lane makes neighbouring elements of the result of its sums, and stores them together }
          line: the lines of the next one, before what is made of the sums of the last columns
        }
      }
    }

Lanes have their lines straight from memory, each 16 bytes, and their elements of the result lie side by side: no row passes through shared memory. Which terms
meet in a lane does not matter, and the columns are dealt out as the result wants them: the right factor is laid out to suit both (`form_strip.py`).
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.borders import inside as within
from pipelink_ir.backends.loops.emit import FALSE, TRUE, Atom, i64, key_of
from pipelink_ir.backends.loops.fold import must
from pipelink_ir.backends.loops.gpu.flat import unravel
from pipelink_ir.backends.loops.gpu.product import Tiled
from pipelink_ir.backends.loops.gpu.stream import aligned
from pipelink_ir.backends.loops.lower import Env, Lowering, Sites
from pipelink_ir.backends.loops.nests import Job
from pipelink_ir.backends.loops.reads import address, extent, low
from pipelink_ir.backends.loops.reduce import finish
from pipelink_ir.ir.dtypes import I32, I64
from pipelink_ir.ir.nodes import Name, Read
from pipelink_ir.ir.typed import TypedOperator
from pipelink_ir.ir.walk import walk
from pipelink_ir.passes.scheduling.costs import Plan
from pipelink_ir.passes.scheduling.counts import known
from pipelink_ir.passes.scheduling.strips import Strips, zero_around
from pipelink_ir.passes.scheduling.tensor_cores import plain_read

WARPS = 8
"""At most: those that share the rows of a strip each have some of the columns."""
TURNS = 64
"""Strips of a warp, one after the other, at most …"""
BLOCKS, FEWER, LIGHT = 1584, 528, 4096
"""… and so many that there are about as many blocks, which 132 processors take in whole rounds whether each has room for one or for four; fewer where the right
factor has more bytes than is quickly brought."""
FIT = 2
"""Blocks that a multiprocessor should hold; 0 leaves that to the compiler."""
KEPT = 16
"""Words of lines beside which a lane has registers for what depends on columns."""


def strips_body(op: TypedOperator, plan: Plan, sites: Sites, job: Job, way: Strips, chosen: Mapping[str, int] | None = None) -> tuple[Lowering, int]:
    """The kernel, still open, and the number of threads that it needs."""
    lo = Lowering(op, plan, sites, frozenset((job[0].name,)), chosen)
    lo.fit = FIT
    made = _Strips(lo, [job], way)
    made.write()
    return lo, 32 * made.warps


class _Strips(Tiled):
    """The loops of one kernel."""

    def __init__(self, lo: Lowering, jobs: list[Job], way: Strips) -> None:
        super().__init__(lo, jobs, way.product)
        self.way = way
        self.strip = form.Strip(way.left, way.right, self.kind.dtype, way.parts, way.columns, way.group, way.lines, way.bytes)
        self.row_axes, self.down = self.as_one(way.product.rows)
        read = plain_read(way.product.left)
        assert read is not None
        self.read: Read = read
        self.terms = int(self.depth.total.value)  # type: ignore[union-attr]
        self.size = self.terms // way.lines
        """Terms of a line."""
        self.n = int(self.across.total.value)  # type: ignore[union-attr]
        self.blocks = -(-self.n // way.columns)
        """Warps that share a strip, each with its columns."""
        self.beside = max(1, WARPS // self.blocks)
        """Strips that a block computes side by side."""
        self.warps = self.beside * self.blocks

    def write(self) -> None:
        """Writes the kernel."""
        e = self.e
        rows = 16 * self.way.parts * self.beside
        some = rows * (BLOCKS if self.strip.shared(self.blocks * self.strip.columns) <= LIGHT else FEWER)
        turns = e.op("floordiv", e.op("+", self.down.total, i64(some - 1)), i64(some))
        self.turns = e.op("max", e.op("min", turns, i64(TURNS)), i64(1))
        each = e.op("*", self.turns, i64(rows))
        blocks = e.op("floordiv", e.op("+", self.down.total, e.op("-", each, i64(1))), each)
        with e.loop("turn", i64(0), blocks, kind="block") as p:
            self.fixed = dict(self.merged)
            self._readable(lambda: self._turn(e.op("*", p, each)))

    def _turn(self, first: Atom) -> None:
        e, strip = self.e, self.strip
        self.weights = e.memory("weights")
        e.raw(form.Alloc(self.weights, strip.right, i64(strip.shared(self.blocks * strip.columns) // strip.right.bytes), True))
        self._stage()
        e.raw(form.Barrier())
        each = 16 * self.way.parts
        with self.team.each("t", 32 * self.warps) as t:
            lane, warp = e.op("rest", t, i64(32)), e.op("quot", t, i64(32))
            self.lane_row, self.quarter = e.op("quot", lane, i64(4)), e.op("rest", lane, i64(4))
            block = e.op("rest", warp, i64(self.blocks))
            mine = e.op("+", first, e.op("*", e.op("quot", warp, i64(self.blocks)), i64(each)))
            self.words, self.sums = e.memory("words"), e.memory("sums")
            e.raw(form.Alloc(self.words, I32, i64(strip.held)))
            e.raw(form.Alloc(self.sums, strip.sum, i64(strip.sums)))
            self._lines(mine)
            columns = e.op("*", block, i64(strip.columns))
            self._by_column(columns)
            at = e.op("*", block, i64(strip.columns * strip.steps * 32 // strip.right.bytes))
            with e.loop("strip", i64(0), self.turns, nonempty=True) as s:
                row = e.op("+", mine, e.op("*", s, i64(each * self.beside)))
                e.raw(form.StripMultiply(self.sums, self.words, self.weights, at, strip))
                self._lines(e.op("+", row, i64(each * self.beside)))
                self._results(row, columns)

    def _by_column(self, block: Atom) -> None:
        """Reads what depends on columns alone, once for all strips: scales, a bias."""
        lo, strip = self.lo, self.strip
        if strip.held > KEPT:
            return
        names = {a.index: k for k, a in enumerate(self.jobs[0][1].axes)}
        for x in self._reads_of_columns(names):
            for q in range(strip.columns // 8 // strip.group):
                for k in range(2 * strip.group):
                    column = self._place_of(block, q, k)
                    lo.value(x, Env({n: self._column(column) for n, axis in names.items() if axis in self.product.columns}))

    # --------------------------------------------------------------------------------------------------------------- factors

    def _stage(self) -> None:
        """The right factor to shared memory: as it lies in memory, so that neighbouring threads read neighbours."""
        e, strip = self.e, self.strip
        if strip.bytes % 32 or self.way.gathered or self.n % strip.columns:
            with self.team.loop("z", i64(0), i64(strip.shared(self.blocks * strip.columns) // strip.right.bytes), nonempty=True) as z:
                e.raw(form.Store(self.weights, z, must(0, strip.right.compute), strip.right))
            e.raw(form.Barrier())
        word = self._word()
        if word is None:
            self._stage_by(1)
            return
        with e.when(word):
            self._stage_by(4 // strip.right.bytes)
        with e.when(e.op("not", word)):
            self._stage_by(1)

    def _word(self) -> Atom | None:
        """The condition under which four bytes of the right factor are moved at a time; None if they never can be."""
        lo, read = self.lo, plain_read(self.product.right)
        if read is None or self.way.gathered or lo.plan.local(read.tensor) or any(word not in ("", "inside") for word in read.access):
            return None
        t, last, name = lo.op.tensors[read.tensor], read.indices[-1], self.depth.ranges[-1][0]
        alone = isinstance(last, Name) and self.axis_name(last.name) == name and not any(name in self.axis_names(i) for i in read.indices[:-1])
        high = known(t.shape[-1][1])
        if not alone or t.dtype is not self.strip.right or high is None or known(t.shape[-1][0]) != 0 or high * t.dtype.bytes % 4:
            return None
        return aligned(lo, t.name, 4)

    def _stage_by(self, count: int) -> None:
        """So many neighbouring terms at a time."""
        lo, e, strip = self.lo, self.e, self.strip
        along = count > 1 or self.along_terms(self.product.right)
        # Terms of a line by 64 bytes, then what is left.
        begin = 0
        for wide in (64, 32, 16):
            part = strip.bytes // 64 * 64 if wide == 64 else wide if (strip.bytes - begin) // wide else 0
            if not part:
                continue
            terms = min(part // strip.right.bytes, self.size - begin // strip.right.bytes) // count
            total = terms * strip.lines
            with self.team.loop("w", i64(0), i64(total * self.n), nonempty=True) as w:
                inner = i64(total if along else self.n)
                fast, slow = e.op("rest", w, inner), e.op("quot", w, inner)
                unit, column = (fast, slow) if along else (slow, fast)
                line, k = (e.op("quot", unit, i64(terms)), e.op("rest", unit, i64(terms))) if strip.lines > 1 else (i64(0), unit)
                k = e.op("*", k, i64(count))
                place = self._place(line, e.op("*", k, i64(strip.right.bytes)), begin, wide, column)
                number = e.op("+", e.op("*", line, i64(self.size)), e.op("+", k, i64(begin // strip.right.bytes)))
                names = {n: self._column(column) for n, axis in self.product.plain.items() if axis in self.product.columns}
                env = Env(names | {name: i for (name, _, _), i in zip(self.depth.ranges, unravel(lo, self.depth.ranges, number), strict=True)})
                if count > 1:
                    read = plain_read(self.product.right)
                    assert read is not None
                    t = lo.op.tensors[read.tensor]
                    e.raw(form.Move(self.weights, place, lo.buffer(t), address(lo, t, tuple(lo.index(i, env) for i in read.indices)), count))
                else:
                    e.raw(form.Store(self.weights, place, e.convert(lo.value(self.product.right, env), strip.right.compute), strip.right))
            begin += part
        assert begin == strip.bytes, "a line is whole parts"

    def _column(self, column: Atom) -> Atom:
        return self.e.op("+", self.across.ranges[-1][1], column)

    def _place(self, line: Atom, byte: Atom, begin: int, wide: int, column: Atom) -> Atom:
        """Where an element lies that is `byte` bytes behind the beginning of such parts of a line."""
        e, strip = self.e, self.strip
        own, inside = i64(wide // 4), e.op("rest", byte, i64(wide))
        quarter, rest = e.op("quot", inside, own), e.op("rest", inside, own)
        word, low_byte = e.op("quot", rest, i64(4)), e.op("rest", rest, i64(4))
        step = e.op("+", e.op("*", line, i64(strip.words // 2)), i64(begin // 32))
        if wide == 64:
            step = e.op("+", step, e.op("+", e.op("*", e.op("quot", byte, i64(64)), i64(2)), e.op("quot", word, i64(2))))
            word = e.op("rest", word, i64(2))
        group = strip.group
        block, at = e.op("quot", column, i64(8 * group)), e.op("rest", column, i64(8 * group))
        four, at = e.op("quot", at, i64(2 * group)), e.op("rest", at, i64(2 * group))
        tile = e.op("+", e.op("*", block, i64(group)), e.op("quot", at, i64(2)))
        lane = e.op("+", e.op("*", e.op("+", e.op("*", four, i64(2)), e.op("rest", at, i64(2))), i64(4)), quarter)
        words = e.op("+", e.op("+", e.op("*", e.op("quot", step, i64(2)), i64(128)), e.op("*", lane, i64(4))),
                     e.op("+", e.op("*", e.op("rest", step, i64(2)), i64(2)), word))
        if strip.steps % 2:
            alone = e.op("+", i64(64 * (strip.steps - 1)), e.op("+", e.op("*", lane, i64(2)), word))
            words = e.choose(e.op("==", step, i64(strip.steps - 1)), alone, words)
        words = e.op("+", e.op("*", tile, i64(64 * strip.steps)), words)
        return e.op("+", e.op("*", words, i64(4 // strip.right.bytes)), e.op("quot", low_byte, i64(strip.right.bytes)))

    def _lines(self, row: Atom) -> None:
        """Each lane takes its parts of the lines of its rows. Behind the last row the last one is read again."""
        if self.way.gathered:
            self._gathered(row)
            return
        lo, e, strip = self.lo, self.e, self.strip
        t = lo.op.tensors[self.read.tensor]
        words = self.read.access or ("",) * len(self.read.indices)
        borders = [k for k, word in enumerate(words) if word == "border"]
        last = e.op("-", self.down.total, i64(1))
        found: list[tuple[int, Atom, Atom]] = []
        for part in range(2 * strip.parts):
            r = e.op("min", e.op("+", row, e.op("+", self.lane_row, i64(8 * part))), last)
            at = {**self.fixed, **dict(zip(self.row_axes, unravel(lo, self.down.ranges, r), strict=True))}
            env = {n: at[axis] for n, axis in self.product.plain.items() if axis in at}
            for line in range(strip.lines):
                terms = unravel(lo, self.depth.ranges, i64(line * self.size))
                index = Env({**env, **{name: i for (name, _, _), i in zip(self.depth.ranges, terms, strict=True)}})
                place = tuple(lo.index(i, index) for i in self.read.indices)
                inside = e.all_of([within(e, e.op("-", place[k], low(lo, t, k)), extent(lo, t, k)) for k in borders])
                source = address(lo, t, place)
                if borders:
                    source = e.choose(inside, source, i64(0))
                found.append(((part * strip.lines + line) * strip.words, source, inside))
        wide = aligned(lo, t.name, 16)
        for cond, whole in ((wide, True), (e.op("not", wide), False)):
            with e.when(cond):
                for at_word, source, inside in found:
                    e.raw(form.StripLine(self.words, at_word, lo.buffer(t), source, inside, strip, whole))

    def _gathered(self, row: Atom) -> None:
        """The same of single elements: each lane has neighbouring terms."""
        lo, e, strip = self.lo, self.e, self.strip
        last, zero = e.op("-", self.down.total, i64(1)), must(0, strip.left.compute)
        segments = [(64 * n, 16) for n in range(strip.bytes // 64)] + [(strip.bytes // 64 * 64, 8)] * (strip.bytes % 64 // 32)
        for part in range(2 * strip.parts):
            r = e.op("min", e.op("+", row, e.op("+", self.lane_row, i64(8 * part))), last)
            at = {**self.fixed, **dict(zip(self.row_axes, unravel(lo, self.down.ranges, r), strict=True))}
            env = {n: at[axis] for n, axis in self.product.plain.items() if axis in at}
            held = e.memory("held")
            e.raw(form.Alloc(held, strip.left, i64(strip.words * 4 // strip.left.bytes)))
            # All loads are begun before anything is made of one.
            inside: list[Atom] = []
            for begin, own in segments:
                for k in range(own // strip.left.bytes):
                    term = e.op("+", e.op("*", self.quarter, i64(own // strip.left.bytes)), i64(begin // strip.left.bytes + k))
                    value, there = self._term(env, e.op("min", term, i64(self.terms - 1)))
                    e.raw(form.Store(held, i64(len(inside)), value, strip.left))
                    inside.append(e.op("and", there, e.op("<", term, i64(self.terms))))
            for number, there in enumerate(inside):
                value = e.bind("held", form.Load(held, i64(number), strip.left, strip.left.compute))
                e.raw(form.Store(held, i64(number), e.choose(there, value, zero), strip.left))
            e.raw(form.Pack(self.words, part * strip.words, held, strip.words * 4))

    def _term(self, env: Mapping[str, Atom], term: Atom) -> tuple[Atom, Atom]:
        """An element, and whether it is one: beyond the edges of a picture with zeros around it another one is read."""
        lo, e = self.lo, self.e
        t, words = lo.op.tensors[self.read.tensor], self.read.access or ("",) * len(self.read.indices)
        borders = [k for k, word in enumerate(words) if word == "border"]
        names = {name: i for (name, _, _), i in zip(self.depth.ranges, unravel(lo, self.depth.ranges, term), strict=True)}
        index = Env({**env, **names})
        if not all(zero_around(t, k) for k in borders):
            return e.convert(lo.value(self.product.left, index), self.strip.left.compute), TRUE
        place = tuple(lo.index(i, index) for i in self.read.indices)
        inside = e.all_of([within(e, e.op("-", place[k], low(lo, t, k)), extent(lo, t, k)) for k in borders])
        source = address(lo, t, place) if not borders else e.choose(inside, address(lo, t, place), i64(0))
        return e.load(lo.buffer(t), source, t.dtype, False, "x"), inside

    # --------------------------------------------------------------------------------------------------------------- results

    def _reads_of_columns(self, names: Mapping[str, int]) -> list[Read]:
        """The reads of operands in what is stored whose only index is the column."""
        op, (_, piece) = self.lo.op, self.jobs[0]
        found: list[Read] = []
        work = [(piece.value, dict(names))]
        column = Name(piece.axes[-1].index, span=piece.span, dtype=I64)
        seen: set[str] = set()
        while work:
            value, axes = work.pop()
            for x in walk(value):
                if not isinstance(x, Read) or (x.tensor in seen and self.lo.plan.local(x.tensor)):
                    continue
                places = [axes.get(i.name) if isinstance(i, Name) else None for i in x.indices]
                if self.lo.plan.local(x.tensor):
                    seen.add(x.tensor)
                    inner = op.tensors[x.tensor].pieces
                    if len(inner) == 1 and None not in places:
                        work.append((inner[0].value, {a.index: k for a, k in zip(inner[0].axes, places, strict=True) if k is not None}))
                elif len(places) == 1 and places[0] in self.product.columns and all(w in ("", "inside") for w in x.access):
                    if x.indices != (column,):
                        x = replace(x, indices=(column,))
                    found.append(x)
        return found

    def _place_of(self, block: Atom, q: int, k: int) -> Atom:
        """The column of element `k` of the neighbours that a lane has in group `q`."""
        e, strip = self.e, self.strip
        return e.op("+", e.op("+", block, i64(8 * strip.group * q)), e.op("+", e.op("*", self.quarter, i64(2 * strip.group)), i64(k)))

    def _results(self, row: Atom, block: Atom) -> None:
        """What is made of the sums of a lane."""
        e, strip, t = self.e, self.strip, self.jobs[0][0]
        count = 2 * strip.group
        wide = self._together(count)
        for part in range(strip.parts):
            for half in range(2):
                r = e.op("+", row, e.op("+", self.lane_row, i64(16 * part + 8 * half)))
                line = e.op("min", r, e.op("-", self.down.total, i64(1)))
                for q in range(strip.columns // 8 // strip.group):
                    made = e.memory("made")
                    e.raw(form.Alloc(made, t.dtype if t.dtype.bytes > 1 or t.dtype.is_float else I32, i64(count)))
                    for k in range(count):
                        number = (part * strip.columns // 8 + q * strip.group + k // 2) * 4 + 2 * half + k % 2
                        column = self._place_of(block, q, k)
                        with self.lo.stored_where(lambda r=r, c=column: e.all_of([e.op("<", r, self.down.total), *self._there(c)])):  # type: ignore[misc]
                            self._element(made, k, number, line, self._inside(column))
                    with e.when(e.op("<", r, self.down.total)):
                        self._store(made, r, self._place_of(block, q, 0), count, wide)

    def _inside(self, column: Atom) -> Atom:
        """A column that there is."""
        return column if self.n % self.strip.columns == 0 else self.e.op("min", column, i64(self.n - 1))

    def _there(self, column: Atom) -> list[Atom]:
        """What has to hold so that there is a column."""
        return [] if self.n % self.strip.columns == 0 else [self.e.op("<", column, i64(self.n))]

    def _together(self, count: int) -> Atom:
        """Whether neighbours may be stored together."""
        t, _ = self.jobs[0]
        nbytes = count * t.dtype.bytes
        if self.n % count:
            return FALSE
        return TRUE if nbytes == t.dtype.bytes else aligned(self.lo, t.name, nbytes)

    def _element(self, made: str, k: int, number: int, r: Atom, c: Atom) -> None:
        lo, e, (t, piece) = self.lo, self.e, self.jobs[0]
        at = self._at(r, c)
        dot = e.bind("dot", form.Load(self.sums, i64(number), self.strip.sum, self.strip.sum))
        key = ("reduce", id(self.x), tuple((n, key_of(at[axis])) for n, axis in sorted(self.product.plain.items())))
        e.remember(key, finish(lo, self.x, self.kind, dot, i64(0), TRUE))
        value = lo.made(t, piece, at)
        e.raw(form.Store(made, i64(k), value, t.dtype if t.dtype.bytes > 1 or t.dtype.is_float else I32))

    def _at(self, r: Atom, c: Atom) -> tuple[Atom, ...]:
        lo = self.lo
        at = {**self.fixed, **dict(zip(self.row_axes, unravel(lo, self.down.ranges, r), strict=True)),
              **dict(zip(self.product.columns, unravel(lo, self.across.ranges, c), strict=True))}
        return tuple(at[k] for k in range(len(self.axes)))

    def _store(self, made: str, r: Atom, c: Atom, count: int, wide: Atom) -> None:
        lo, e, (t, _) = self.lo, self.e, self.jobs[0]
        if wide is not FALSE:
            with e.when(wide if self.n % self.strip.columns == 0 else e.op("and", wide, e.op("<", c, i64(self.n)))):
                e.raw(form.Move(lo.buffer(t), address(lo, t, self._at(r, c)), made, i64(0), count))
        if wide is TRUE:
            return
        with e.when(e.op("not", wide)):
            for k in range(count):
                column = e.op("+", c, i64(k))
                with e.when(TRUE if self.n % self.strip.columns == 0 else e.op("<", column, i64(self.n))):
                    e.raw(form.Move(lo.buffer(t), address(lo, t, self._at(r, column)), made, i64(k), 1))
