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

from collections.abc import Mapping

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.emit import Atom, i64
from pipelink_ir.backends.loops.fold import must
from pipelink_ir.backends.loops.gpu.flat import unravel
from pipelink_ir.backends.loops.gpu.product import Tiled
from pipelink_ir.backends.loops.gpu.stream import aligned
from pipelink_ir.backends.loops.lower import Env, Lowering, Sites
from pipelink_ir.backends.loops.nests import Job
from pipelink_ir.backends.loops.reads import address
from pipelink_ir.ir.dtypes import F32, I32
from pipelink_ir.ir.typed import TypedOperator
from pipelink_ir.passes.scheduling.costs import Plan
from pipelink_ir.passes.scheduling.few import CHUNK, Few
from pipelink_ir.passes.scheduling.tensor_cores import plain_read

WARPS = 8
TILES = 2
"""Times eight columns of a block."""
AHEAD, VALUES = 8, 128
"""Chunks of a warp that are on their way at once, and terms of a lane in them, at most."""


def few_body(op: TypedOperator, plan: Plan, sites: Sites, job: Job, way: Few, chosen: Mapping[str, int] | None = None) -> tuple[Lowering, int]:
    """The kernel, still open, and the number of threads that it needs."""
    lo = Lowering(op, plan, sites, frozenset((job[0].name,)), chosen)
    _Few(lo, [job], way).write()
    return lo, 32 * WARPS


class _Few(Tiled):
    """The loops of one kernel."""

    def __init__(self, lo: Lowering, jobs: list[Job], way: Few) -> None:
        super().__init__(lo, jobs, way.product)
        self.way = way
        self.stream = lo.op.tensors[way.stream]
        self.each = CHUNK // self.stream.dtype.bytes * way.shared
        """Terms that a lane has of 16 bytes."""
        self.halves = 1 if way.rows is not None and way.rows <= 8 else 2
        self.terms = int(self.depth.total.value)  # type: ignore[union-attr]
        self.term = self.depth.ranges[0][0]

    def write(self) -> None:
        """Writes the kernel."""
        e = self.e
        with e.loop("tile", i64(0), self._tiles(self.across, 8 * TILES), kind="block") as p:
            self.fixed = {}
            self._readable(lambda: self._tile(e.op("*", p, i64(8 * TILES))))

    def _tile(self, first: Atom) -> None:
        e, rows, columns = self.e, 8 * self.halves, 8 * TILES
        all_sums = e.memory("together")
        e.raw(form.Alloc(all_sums, self.kind.dtype, i64(WARPS * columns * rows), True))
        with self.team.each("t", 32 * WARPS) as t:
            lane, warp = e.op("rest", t, i64(32)), e.op("quot", t, i64(32))
            line, quarter = e.op("quot", lane, i64(4)), e.op("rest", lane, i64(4))
            sums = e.memory("sums")
            e.raw(form.Alloc(sums, self.kind.dtype, i64(4 * TILES)))
            for n in range(4 * TILES):
                e.raw(form.Store(sums, i64(n), must(0, self.kind.dtype), self.kind.dtype))
            chunks = -(-self.terms // (4 * self.each))
            steps = -(-chunks // WARPS)
            ahead = max(n for n in range(1, AHEAD + 1) if steps % n == 0 and (n == 1 or n * TILES * self.each <= VALUES))
            with e.loop("step", i64(0), i64(steps // ahead), nonempty=True) as step:
                begin = e.op("+", e.op("*", step, i64(ahead * WARPS)), warp)
                units = [e.op("+", e.op("*", e.op("+", begin, i64(n * WARPS)), i64(4)), quarter) for n in range(ahead)]
                self._chunks(first, line, units, sums)
            for tile in range(TILES):
                for n in range(2 * self.halves):
                    row, column = e.op("+", line, i64(8 * (n // 2))), e.op("+", e.op("*", quarter, i64(2)), i64(8 * tile + n % 2))
                    place = e.op("+", e.op("*", e.op("+", e.op("*", warp, i64(columns)), column), i64(rows)), row)
                    e.raw(form.Store(all_sums, place, e.bind("sum", form.Load(sums, i64(4 * tile + n), self.kind.dtype, self.kind.dtype)), self.kind.dtype))
        e.raw(form.Barrier())
        with self.team.loop("p", i64(0), i64(rows * columns), nonempty=True) as p:
            r, column = e.op("quot", p, i64(columns)), e.op("rest", p, i64(columns))
            c = e.op("+", first, column)
            with e.when(e.op("and", e.op("<", r, self.down.total), e.op("<", c, self.across.total))):
                self.result(r, c, lambda: self._all(all_sums, e.op("+", e.op("*", column, i64(rows)), r), rows * columns))

    def _all(self, memory: str, at: Atom, step: int) -> Atom:
        """The sums of all warps."""
        e, dtype = self.e, self.kind.dtype
        parts = [e.bind("part", form.Load(memory, e.op("+", at, i64(n * step)), dtype, dtype)) for n in range(WARPS)]
        total = parts[0]
        for part in parts[1:]:
            total = e.bind("dot", form.Op("+", (total, part), dtype))
        return total

    def _chunks(self, first: Atom, line: Atom, units: list[Atom], sums: str) -> None:
        """Some chunks, of each of them the terms of a lane from `each` times its unit on. Where there are none the last ones are read again, and the rows are
        zero."""
        e, way = self.e, self.way
        last = self.terms // self.each - 1
        whole = self.terms % (4 * self.each * WARPS) == 0
        columns = [e.op("min", e.op("+", first, e.op("+", line, i64(8 * tile))), e.op("-", self.across.total, i64(1))) for tile in range(TILES)]
        begins = [e.op("*", unit if whole else e.op("min", unit, i64(last)), i64(self.each)) for unit in units]
        owns = [[self._own(begin, column) for column in columns] for begin in begins]
        for unit, begin, some in zip(units, begins, owns, strict=True):
            words = self._rows(begin, line, None if whole else e.op("<=", unit, i64(last)))
            for tile, (column, own) in enumerate(zip(columns, some, strict=True)):
                e.raw(form.FewMultiply(sums, 4 * tile, words, self._values(begin, column, own), way.left, way.right, self.halves, self.each))

    def _own(self, begin: Atom, column: Atom) -> str:
        """16 bytes of a column."""
        lo, e, t = self.lo, self.e, self.stream
        own, count = e.memory("own"), CHUNK // t.dtype.bytes
        e.raw(form.Alloc(own, t.dtype, i64(count)))
        env = self._env(begin, column)
        source = address(lo, t, tuple(lo.index(i, env) for i in self.way.place))
        wide = aligned(lo, t.name, CHUNK)
        with e.when(wide):
            e.raw(form.Move(own, i64(0), lo.buffer(t), source, count))
        with e.when(e.op("not", wide)):
            for k in range(count):
                e.raw(form.Move(own, i64(k), lo.buffer(t), e.op("+", source, i64(k)), 1))
        return own

    def _env(self, term: Atom, column: Atom) -> Env:
        names = {n: self._column(column) for n, axis in self.product.plain.items() if axis in self.product.columns}
        return Env({**names, self.term: self.e.op("+", self.depth.ranges[0][1], term)})

    def _column(self, column: Atom) -> Atom:
        return self.e.op("+", self.across.ranges[-1][1], column)

    def _rows(self, begin: Atom, line: Atom, inside: Atom | None) -> str:
        """What a lane has of the rows."""
        lo, e, way = self.lo, self.e, self.way
        read = plain_read(way.product.left)
        assert read is not None
        t, size = lo.op.tensors[read.tensor], self.each * way.left.bytes
        words = e.memory("words")
        e.raw(form.Alloc(words, I32, i64(self.halves * size // 4)))
        sources: list[Atom] = []
        for half in range(self.halves):
            row = e.op("min", e.op("+", line, i64(8 * half)), e.op("-", self.down.total, i64(1)))
            at = dict(zip(self.row_axes, unravel(lo, self.down.ranges, row), strict=True))
            env = Env({**{n: at[axis] for n, axis in self.product.plain.items() if axis in at}, self.term: e.op("+", self.depth.ranges[0][1], begin)})
            source = address(lo, t, tuple(lo.index(i, env) for i in read.indices))
            sources.append(source)
        wide = aligned(lo, t.name, CHUNK)
        for cond, whole in ((wide, True), (e.op("not", wide), False)):
            with e.when(cond):
                for half, source in enumerate(sources):
                    e.raw(form.Words(words, half * size // 4, lo.buffer(t), source, size, t.dtype, whole))
        if inside is not None:
            with e.when(e.op("not", inside)):
                for n in range(self.halves * size // 4):
                    e.raw(form.Store(words, i64(n), must(0, I32), I32))
        return words

    def _values(self, begin: Atom, column: Atom, own: str) -> str:
        """What a lane has of a column, as tensor cores multiply it."""
        lo, e, right = self.lo, self.e, self.way.right
        if plain_read(self.product.right) is not None and self.stream.dtype is right:
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
        return values

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
