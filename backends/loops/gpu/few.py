"""Products of few rows (`passes/scheduling/few.py`): the bytes of the other factor pass once, straight to registers.

    block for column in … {
      each t {
        for step in 0..steps {                        a chunk of terms for each warp
          words: 16 bytes of some columns of a lane, and what it has of the rows there
          unroll for column { what is made of the codes    few: sums += rows * column }
        }
        the sums of a warp to shared memory
      }
      barrier
      thread: the sums of all warps are added in their order, and what is made of them is stored
    }
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.emit import TRUE, Atom, i64
from pipelink_ir.backends.loops.fold import must
from pipelink_ir.backends.loops.gpu.flat import unravel
from pipelink_ir.backends.loops.gpu.product import Tiled
from pipelink_ir.backends.loops.gpu.stream import aligned
from pipelink_ir.backends.loops.lower import Env, Lowering, Sites
from pipelink_ir.backends.loops.nests import Job
from pipelink_ir.backends.loops.reads import address
from pipelink_ir.ir.dtypes import F32, I32, DType
from pipelink_ir.ir.typed import TypedOperator
from pipelink_ir.passes.scheduling.costs import Plan
from pipelink_ir.passes.scheduling.few import CHUNK, TERMS, Few
from pipelink_ir.passes.scheduling.tensor_cores import plain_read

WARPS, UNEVEN = 4, 8
"""Warps of a block; where lines of columns begin anywhere, since more are on their way then."""
TILES = 2
"""Times eight columns of a block, where terms lie side by side."""
AHEAD = 4
"""Steps of a warp that are on their way at once, at most."""
FIT, COMPUTED, ACROSS = 6, 4, 2
"""Blocks that a multiprocessor should hold; where the factor is more than codes; where columns lie side by side."""


def few_body(op: TypedOperator, plan: Plan, sites: Sites, job: Job, way: Few, chosen: Mapping[str, int] | None = None) -> tuple[Lowering, int]:
    """The kernel, still open, and the number of threads that it needs."""
    lo = Lowering(op, plan, sites, frozenset((job[0].name,)), chosen)
    made = _Few(lo, [job], way)
    made.write()
    return lo, 32 * made.warps


class _Few(Tiled):
    """The loops of one kernel."""

    def __init__(self, lo: Lowering, jobs: list[Job], way: Few) -> None:
        super().__init__(lo, jobs, way.product)
        self.way = way
        self.warps = UNEVEN if way.uneven else WARPS
        self.stream = lo.op.tensors[way.stream]
        self.each = TERMS if way.across else CHUNK // self.stream.dtype.bytes * way.shared
        """Terms that a lane has of a step."""
        self.parts = TERMS if way.across else TILES
        """How many times 16 bytes these are."""
        self.tiles = CHUNK // self.stream.dtype.bytes if way.across else TILES
        """Times eight columns of a block."""
        self.halves = 1 if way.rows is not None and way.rows <= 8 else 2
        self.terms = int(self.depth.total.value)  # type: ignore[union-attr]
        self.term = self.depth.ranges[0][0]
        self.elements = CHUNK // self.stream.dtype.bytes
        self.last = self.terms // self.each - 1
        self.whole = self.terms % (4 * self.each * self.warps) == 0
        self.steps = -(-self.terms // (4 * self.each * self.warps))
        self.ahead = max(n for n in range(1, AHEAD + 1) if self.steps % n == 0)
        self.line: Atom = i64(0)
        self.quarter: Atom = i64(0)
        self.columns: list[Atom] = []
        self.wide = True
        # What is multiplied as it lies there, or after a conversion that the multiplication makes.
        self.as_it_is = way.coded is not None or (plain_read(self.product.right) is not None and self.stream.dtype is way.right)

    def write(self) -> None:
        """Writes the kernel."""
        e = self.e
        self.lo.fit = ACROSS if self.way.across else FIT if self.as_it_is else COMPUTED
        with e.loop("tile", i64(0), self._tiles(self.across, 8 * self.tiles), kind="block") as p:
            self.fixed = {}
            self._readable(lambda: self._tile(e.op("*", p, i64(8 * self.tiles))))

    def _tile(self, first: Atom) -> None:
        e, rows, columns = self.e, 8 * self.halves, 8 * self.tiles
        all_sums = e.memory("together")
        e.raw(form.Alloc(all_sums, self.kind.dtype, i64(self.warps * columns * rows), True))
        read = plain_read(self.way.product.left)
        assert read is not None
        if self.way.uneven:
            with self.team.each("t", 32 * self.warps) as t:
                self._warp(first, t, all_sums, None)
        else:
            wide = e.op("and", aligned(self.lo, self.stream.name, CHUNK), aligned(self.lo, read.tensor, CHUNK))
            ring = e.memory("ring")
            e.raw(form.Alloc(ring, self.stream.dtype, i64(self.ahead * self.parts * 32 * self.warps * self.elements), True))
            for cond, through in ((wide, ring), (e.op("not", wide), None)):
                with e.when(cond), self.team.each("t", 32 * self.warps) as t:
                    self._warp(first, t, all_sums, through)
        e.raw(form.Barrier())
        with self.team.loop("p", i64(0), i64(rows * columns), nonempty=True) as p:
            r, column = e.op("quot", p, i64(columns)), e.op("rest", p, i64(columns))
            c = e.op("+", first, column)
            with e.when(e.op("and", e.op("<", r, self.down.total), e.op("<", c, self.across.total))):
                self.result(r, c, lambda: self._all(all_sums, e.op("+", e.op("*", column, i64(rows)), r), rows * columns))

    def _warp(self, first: Atom, t: Atom, all_sums: str, ring: str | None) -> None:
        """What a lane has of the sums of its warp, where 16 bytes may be read at once through `ring`; else element by element."""
        e, rows, columns = self.e, 8 * self.halves, 8 * self.tiles
        lane, warp = e.op("rest", t, i64(32)), e.op("quot", t, i64(32))
        self.line, self.quarter = e.op("quot", lane, i64(4)), e.op("rest", lane, i64(4))
        sums = e.memory("sums")
        e.raw(form.Alloc(sums, self.kind.dtype, i64(4 * self.tiles)))
        for n in range(4 * self.tiles):
            e.raw(form.Store(sums, i64(n), must(0, self.kind.dtype), self.kind.dtype))
        total = self.across.total
        if self.way.across:
            self.columns = [e.op("min", e.op("+", first, e.op("*", self.line, i64(self.tiles))), e.op("-", total, i64(self.tiles)))]
        else:
            self.columns = [e.op("min", e.op("+", first, e.op("+", self.line, i64(8 * tile))), e.op("-", total, i64(1))) for tile in range(TILES)]
        self.wide = ring is not None
        if ring is None:
            with e.loop("step", i64(0), i64(self.steps), nonempty=True) as step:
                unit = self._unit(step, warp)
                self._multiply(unit, self._held(self.lo.buffer(self.stream), self._sources(unit), False), sums)
        else:
            self._flow(t, warp, ring, sums)
        for tile in range(self.tiles):
            for n in range(2 * self.halves):
                row, column = e.op("+", self.line, i64(8 * (n // 2))), e.op("+", e.op("*", self.quarter, i64(2)), i64(n % 2))
                inside: Atom = TRUE
                if self.way.uneven:
                    # The last lanes have columns that are those of others, too.
                    begin = e.op("*", column, i64(self.tiles))
                    column = e.op("-", e.op("+", e.op("min", e.op("+", first, begin), e.op("-", total, i64(self.tiles))), i64(tile)), first)
                    inside = e.op(">=", column, begin)
                else:
                    column = e.op("+", e.op("*", column, i64(8)), i64(tile)) if self.way.across else e.op("+", column, i64(8 * tile))
                place = e.op("+", e.op("*", e.op("+", e.op("*", warp, i64(columns)), column), i64(rows)), row)
                with e.when(inside):
                    e.raw(form.Store(all_sums, place, e.bind("sum", form.Load(sums, i64(4 * tile + n), self.kind.dtype, self.kind.dtype)), self.kind.dtype))

    def _flow(self, t: Atom, warp: Atom, ring: str, sums: str) -> None:
        """All steps: chunks of `ahead` of them are there or on their way to `ring`, where each lane reads what it asked for itself."""
        e, turns = self.e, self.steps // self.ahead

        def copy(step: Atom, slot: int, inside: Atom) -> None:
            unit = self._unit(step, warp)
            within = inside if self.whole else e.op("and", inside, e.op("<=", unit, i64(self.last)))
            for part, source in enumerate(self._sources(unit)):
                e.raw(form.CopyAsync(ring, self._slot(t, slot, part), self.lo.buffer(self.stream), source, within, self.stream.dtype))
            e.raw(form.Commit())

        for slot in range(self.ahead):
            copy(i64(slot), slot, TRUE)
        with e.loop("turn", i64(0), i64(turns), nonempty=True) as turn:
            begin = e.op("*", turn, i64(self.ahead))
            for slot in range(self.ahead):
                step = e.op("+", begin, i64(slot))
                e.raw(form.Await(self.ahead - 1 if turns > 1 else self.ahead - 1 - slot))
                self._multiply(self._unit(step, warp), self._held(ring, [self._slot(t, slot, part) for part in range(self.parts)], True), sums)
                if turns > 1:
                    copy(e.op("+", step, i64(self.ahead)), slot, e.op("<", turn, i64(turns - 1)))
        if turns > 1:
            e.raw(form.Await(0))  # of zeros, behind the end

    def _slot(self, t: Atom, slot: int, part: int) -> Atom:
        """Where in the ring a lane has 16 bytes."""
        e = self.e
        return e.op("+", e.op("*", t, i64(self.elements)), i64((slot * self.parts + part) * 32 * self.warps * self.elements))

    def _unit(self, step: Atom, warp: Atom) -> Atom:
        """The number of what a lane has of a step; each is 16 bytes of a column."""
        e = self.e
        return e.op("+", e.op("*", e.op("+", e.op("*", step, i64(self.warps)), warp), i64(4)), self.quarter)

    def _all(self, memory: str, at: Atom, step: int) -> Atom:
        """The sums of all warps."""
        e, dtype = self.e, self.kind.dtype
        parts = [e.bind("part", form.Load(memory, e.op("+", at, i64(n * step)), dtype, dtype)) for n in range(self.warps)]
        total = parts[0]
        for part in parts[1:]:
            total = e.bind("dot", form.Op("+", (total, part), dtype))
        return total

    def _multiply(self, unit: Atom, owns: list[str], sums: str) -> None:
        """Adds the products of a step. Where there are no terms any more the rows are zero."""
        e, way = self.e, self.way
        begin, inside = self._begin(unit), None if self.whole else e.op("<=", unit, i64(self.last))
        words = self._rows(begin, inside)
        # Zero times what is infinite is none: the other factor is zero there, too. What is copied there is, what is computed from that need not be.
        within = inside if way.right.is_float else None
        if self.as_it_is and not self.wide:
            for own in owns:
                self._zeros(own, CHUNK // 4 * (self.parts if way.across else 1), I32, within)
        if way.across:
            e.raw(form.FewMultiply(sums, 0, words, owns[0], way.left, way.right, self.halves, self.each, self.stream.dtype, across=True))
            return
        for tile, (column, own) in enumerate(zip(self.columns, owns, strict=True)):
            scale = tuple(x if within is None else e.choose(within, x, must(0, x.dtype)) for x in self._scale(begin, column))
            e.raw(form.FewMultiply(sums, 4 * tile, words, self._values(begin, column, own, within), way.left, way.right, self.halves, self.each,
                                   self.stream.dtype if self.as_it_is else None, way.coded is not None and way.coded.nibbles, scale))

    def _scale(self, begin: Atom, column: Atom) -> tuple[Atom, ...]:
        """What the codes of a lane are multiplied by."""
        coded = self.way.coded
        return () if coded is None or coded.scale is None else (self.lo.value(coded.scale, self._env(begin, column)),)

    def _begin(self, unit: Atom) -> Atom:
        """The first term of 16 bytes of a column; of the last ones behind the end."""
        return self.e.op("*", unit if self.whole else self.e.op("min", unit, i64(self.last)), i64(self.each))

    def _sources(self, unit: Atom) -> list[Atom]:
        """Where a lane's parts of a step lie: 16 bytes of each of its columns, or of each of its terms."""
        lo, e, begin = self.lo, self.e, self._begin(unit)
        at = [(e.op("+", begin, i64(k)), self.columns[0]) for k in range(self.parts)] if self.way.across else [(begin, c) for c in self.columns]
        return [address(lo, self.stream, tuple(lo.index(i, self._env(term, column)) for i in self.way.place)) for term, column in at]

    def _held(self, source: str, places: Sequence[Atom], wide: bool) -> list[str]:
        """Them in scratch of the lane: each by itself, or those of all terms together. Element by element, if they may not be read at once."""
        e, words = self.e, CHUNK // 4
        if not self.way.across:
            return [self._part(source, at, wide) for at in places]
        own = e.memory("own")
        e.raw(form.Alloc(own, I32, i64(words * len(places))))
        for k, at in enumerate(places):
            e.raw(form.Words(own, words * k, source, at, CHUNK, self.stream.dtype, wide))
        return [own]

    def _part(self, source: str, at: Atom, wide: bool) -> str:
        e, dtype = self.e, self.stream.dtype
        own = e.memory("own")
        if self.as_it_is:
            e.raw(form.Alloc(own, I32, i64(CHUNK // 4)))
            e.raw(form.Words(own, 0, source, at, CHUNK, dtype, wide))
            return own
        e.raw(form.Alloc(own, dtype, i64(self.elements)))
        each = self.elements if wide else 1
        for k in range(0, self.elements, each):
            e.raw(form.Move(own, i64(k), source, e.op("+", at, i64(k)), each))
        return own

    def _env(self, term: Atom, column: Atom) -> Env:
        names = {n: self._column(column) for n, axis in self.product.plain.items() if axis in self.product.columns}
        return Env({**names, self.term: self.e.op("+", self.depth.ranges[0][1], term)})

    def _column(self, column: Atom) -> Atom:
        return self.e.op("+", self.across.ranges[-1][1], column)

    def _rows(self, begin: Atom, inside: Atom | None) -> str:
        """What a lane has of the rows."""
        lo, e, way = self.lo, self.e, self.way
        read = plain_read(way.product.left)
        assert read is not None
        t, size = lo.op.tensors[read.tensor], self.each * way.left.bytes
        words = e.memory("words")
        e.raw(form.Alloc(words, I32, i64(self.halves * size // 4)))
        for half in range(self.halves):
            row = e.op("min", e.op("+", self.line, i64(8 * half)), e.op("-", self.down.total, i64(1)))
            at = dict(zip(self.row_axes, unravel(lo, self.down.ranges, row), strict=True))
            env = Env({**{n: at[axis] for n, axis in self.product.plain.items() if axis in at}, self.term: e.op("+", self.depth.ranges[0][1], begin)})
            source = address(lo, t, tuple(lo.index(i, env) for i in read.indices))
            e.raw(form.Words(words, half * size // 4, lo.buffer(t), source, size, t.dtype, self.wide))
        self._zeros(words, self.halves * size // 4, I32, inside)
        return words

    def _values(self, begin: Atom, column: Atom, own: str, inside: Atom | None) -> str:
        """What a lane has of a column, as tensor cores multiply it."""
        lo, e, right = self.lo, self.e, self.way.right
        if self.as_it_is:
            return own
        held = F32 if right.is_float else right
        values = e.memory("values")
        e.raw(form.Alloc(values, held, i64(self.each)))
        first = self._env(begin, column)
        base = e.form_of(lo.index(self.way.place[-1], first))[0]

        def place(at: tuple[Atom, ...]) -> tuple[str, Atom]:
            constant, _ = e.form_of(at[-1])
            return own, i64(constant - base)

        lo.staged[self.stream.name] = place
        for k in range(self.each):
            value = lo.value(self.product.right, self._env(e.op("+", begin, i64(k)), column))
            e.raw(form.Store(values, i64(k), self._unrounded(value) if held is F32 else e.convert(value, right.compute), held))
        del lo.staged[self.stream.name]
        self._zeros(values, self.each, held, inside)
        return values

    def _zeros(self, memory: str, count: int, dtype: DType, inside: Atom | None) -> None:
        """Zeros, where there are no terms any more."""
        if inside is not None:
            with self.e.when(self.e.op("not", inside)):
                for n in range(count):
                    self.e.raw(form.Store(memory, i64(n), must(0, dtype), dtype))

    def _unrounded(self, value: Atom) -> Atom:
        """A float that is rounded to the dtype of the factor anyway: without that, if it was already."""
        e, right = self.e, self.way.right
        made = e.values.get(value.name) if isinstance(value, form.Ref) else None
        if isinstance(made, form.Convert) and made.to is right and made.arg.dtype is F32:
            return made.arg if isinstance(made.arg, form.Ref | form.Const) else e.bind("v", made.arg)
        if isinstance(made, form.Convert) and made.to is right and isinstance(made.arg, form.Ref):
            code = e.values.get(made.arg.name)
            if isinstance(code, form.Load) and code.memory.is_int and code.memory.bytes == 1:
                return e.convert(made.arg, F32)  # a number of 8 bits is one of any float
        return e.convert(value, F32)
