"""Products of matrices on the tensor cores of a GPU.

    block for tile in … {
      shared alloc %left, %right         a ring of tiles of both factors
      fragment sums                      in the registers of all threads
      for step in 0..steps + 2 {
        await 1   barrier                the copies of the step before the last have arrived, and the tile before them has been read
        thread: begins to copy tile `step` of both factors     commit
        sums += left * right             tile `step - 2`
      }
      for part in … { a part of the sums to shared memory   barrier   thread: what is made of them is stored }
    }

A factor that is read as it lies in memory is copied 16 bytes at a time where its lines begin at multiples of 16 bytes, which is asked at run time; bytes
and f32 whose terms are not neighbours are turned in squares of four by four; any other factor is computed element by element on the way to shared memory,
rounded to its dtype. What lies outside of the matrices is zero. Lines in shared memory are 16 bytes longer than they need be, so that eight neighbouring ones
lie in different banks.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.emit import TRUE, Atom, i64, key_of
from pipelink_ir.backends.loops.fold import must
from pipelink_ir.backends.loops.gpu.factor import simple, source_of
from pipelink_ir.backends.loops.gpu.flat import Flat, unravel
from pipelink_ir.backends.loops.gpu.product import Tiled
from pipelink_ir.backends.loops.gpu.stream import fit, tiles_of
from pipelink_ir.backends.loops.lower import Env, Lowering, Sites
from pipelink_ir.backends.loops.nests import Job
from pipelink_ir.backends.loops.reads import address, extent, low
from pipelink_ir.backends.loops.reduce import finish
from pipelink_ir.ir.dtypes import DType
from pipelink_ir.ir.nodes import Expr, Name
from pipelink_ir.ir.typed import TypedOperator
from pipelink_ir.passes.scheduling.costs import Plan
from pipelink_ir.passes.scheduling.tensor_cores import TensorCores, plain_read

GROUP = 8
"""Rows of tiles that neighbouring blocks go through together: what they read stays in the cache."""
QUAD = 4
"""Elements side by side that are read at once where terms are not neighbours and cannot be turned on the way to registers."""
FLIGHT = 16
"""Elements that a thread has on their way to shared memory at once, where they are read one by one."""
SLACK = 8
"""Elements by which rows of sums in shared memory are longer than they need be."""


def mma_body(op: TypedOperator, plan: Plan, sites: Sites, job: Job, way: TensorCores, chosen: Mapping[str, int] | None = None) -> tuple[Lowering, int]:
    """The kernel of a product on tensor cores, still open, and the number of threads that it needs."""
    lo = Lowering(op, plan, sites, frozenset((job[0].name,)), chosen)
    made = _OnTensorCores(lo, [job], way)
    made.write()
    return lo, made.tiles.threads


class _Factor:
    """One factor: how its tiles lie in shared memory, and how they get there."""

    def __init__(self, nest: _OnTensorCores, name: str, expr: Expr, dtype: DType, axes: tuple[int, ...], side: Flat, lines: int) -> None:
        self.nest, self.lo, self.e, self.expr, self.dtype, self.axes, self.side = nest, nest.lo, nest.e, expr, dtype, axes, side
        way = nest.way
        self.across_memory = not nest.along_terms(expr)
        self.along = dtype.bytes != 2 or not self.across_memory
        self.lines, self.depth = lines, way.depth
        self.pitch = (way.depth if self.along else lines) + 16 // dtype.bytes
        self.size = self.pitch * (lines if self.along else way.depth)
        self.name = self.e.memory(name)
        self.e.raw(form.Alloc(self.name, dtype, i64(self.size * way.stages), True))

    def place(self, slot: Atom, line: Atom, term: Atom) -> Atom:
        """Where an element lies in shared memory."""
        e = self.e
        outer, inner = (line, term) if self.along else (term, line)
        return e.op("+", e.op("*", slot, i64(self.size)), e.op("+", e.op("*", outer, i64(self.pitch)), inner))

    def factor(self, slot: Atom) -> form.Factor:
        """The tile in a slot of the ring."""
        return form.Factor(self.name, self.e.op("*", slot, i64(self.size)), self.along, self.pitch)

    def stage(self, first: Atom, begin: Atom, slot: Atom) -> None:
        """Brings a tile from line `first` and term `begin` on, to its place in the ring."""
        apart = self.along and self.across_memory
        cond = self._whole(QUAD if apart else 16 // self.dtype.bytes, not apart)
        if cond is None:
            self._each_element(first, begin, slot)
            return
        e = self.e
        with e.when(cond):
            (self._quads if apart else self._chunks)(first, begin, slot)
        with e.when(e.op("not", cond)):
            self._each_element(first, begin, slot)

    # --------------------------------------------------------------------------------------------------------------- 16 bytes

    def _whole(self, count: int, edges: bool) -> Atom | None:
        """The condition under which so many neighbours at a time can be read; None if never. `edges`: there may be zeros around an axis before them."""
        nest, lo, e = self.nest, self.lo, self.e
        read = plain_read(self.expr)
        if read is None or nest.x.where is not None:
            return None
        t = lo.op.tensors[read.tensor]
        if lo.plan.local(t.name) or t.name in lo.written or t.dtype is not self.dtype or not simple(t, read) or (not edges and "border" in read.access):
            return None
        last = read.indices[-1]
        name, first, n = self._fastest()
        if not isinstance(last, Name) or nest.axis_name(last.name) != name or any(name in nest.axis_names(i) for i in read.indices[:-1]):
            return None
        k, each = len(read.indices) - 1, i64(count)
        conds: list[Atom] = []
        for size in (extent(lo, t, k), n, e.op("-", first, low(lo, t, k))):
            cond = e.op("==", e.op("mod", size, each), i64(0))
            if isinstance(cond, form.Const) and not cond.value:
                return None
            conds.append(cond)
        nbytes = count * self.dtype.bytes
        aligned = e.find(("aligned", t.name, nbytes))
        if aligned is None:
            aligned = e.bind("aligned", form.Aligned(lo.buffer(t), nbytes))
            e.remember(("aligned", t.name, nbytes), aligned)
        return e.all_of([*(c for c in conds if not isinstance(c, form.Const)), aligned])

    def _fastest(self) -> tuple[str, Atom, Atom]:
        """The index that changes fastest in memory: its name, its first value and its extent."""
        if not self.across_memory:
            return self.nest.depth.ranges[-1]
        _, first, n = self.side.ranges[-1]
        return f"axis {self.axes[-1]}", first, n

    def _chunks(self, first: Atom, begin: Atom, slot: Atom) -> None:
        nest, lo, e = self.nest, self.lo, self.e
        read = plain_read(self.expr)
        assert read is not None
        t, each, threads = lo.op.tensors[read.tensor], 16 // self.dtype.bytes, nest.tiles.threads
        in_line = (self.depth if self.along else self.lines) // each
        chunks = self.lines * self.depth // each
        assert chunks % threads == 0, "tiles are cut so that all threads copy alike"
        with nest.team.loop("t", i64(0), i64(threads), nonempty=True) as thread:
            for c in range(0, chunks, threads):
                # Written out: all copies are begun one after the other, and what they have in common stands before the loop over tiles.
                number = e.op("+", thread, i64(c))
                outer, inner = e.op("quot", number, i64(in_line)), e.op("*", e.op("rest", number, i64(in_line)), i64(each))
                line, d = (outer, inner) if self.along else (inner, outer)
                row, term = e.op("+", first, line), e.op("+", begin, d)
                inside = e.op("and", e.op("<", row, self.side.total), e.op("<", term, nest.depth.total))
                env = self._env(row, term)
                source, inside = source_of(lo, t, read, tuple(lo.index(i, env) for i in read.indices), inside)
                e.raw(form.CopyAsync(self.name, self.place(slot, line, d), lo.buffer(t), source, inside, self.dtype))

    def _quads(self, first: Atom, begin: Atom, slot: Atom) -> None:
        """Squares of four by four bytes are turned over by one thread each."""
        nest, lo, e, dtype = self.nest, self.lo, self.e, self.dtype
        read = plain_read(self.expr)
        assert read is not None
        t, zero = lo.op.tensors[read.tensor], must(0, dtype.compute)
        across = self.lines // QUAD
        with nest.team.loop("q", i64(0), i64(across * (self.depth // QUAD)), nonempty=True) as q:
            line, d = e.op("*", e.op("rest", q, i64(across)), i64(QUAD)), e.op("*", e.op("quot", q, i64(across)), i64(QUAD))
            row = e.op("+", first, line)
            own, turned = e.memory("own"), e.memory("turned")
            e.raw(form.Alloc(own, dtype, i64(QUAD * QUAD)))
            e.raw(form.Alloc(turned, dtype, i64(QUAD * QUAD)))
            for k in range(QUAD):
                term = e.op("+", begin, e.op("+", d, i64(k)))
                for n in range(QUAD):
                    e.raw(form.Store(own, i64(QUAD * k + n), zero, dtype))
                with e.when(e.op("and", e.op("<", row, self.side.total), e.op("<", term, nest.depth.total))):
                    env = self._env(row, term)
                    e.raw(form.Move(own, i64(QUAD * k), lo.buffer(t), address(lo, t, tuple(lo.index(i, env) for i in read.indices)), QUAD))
            for n in range(QUAD):
                for k in range(QUAD):
                    if dtype.is_float:
                        e.raw(form.Move(turned, i64(QUAD * n + k), own, i64(QUAD * k + n), 1))
                    else:
                        e.raw(form.Store(turned, i64(QUAD * n + k), form.Load(own, i64(QUAD * k + n), dtype, dtype.compute), dtype))
                e.raw(form.Move(self.name, self.place(slot, e.op("+", line, i64(n)), d), turned, i64(QUAD * n), QUAD))

    # ------------------------------------------------------------------------------------------------------------ any element

    def _each_element(self, first: Atom, begin: Atom, slot: Atom) -> None:
        nest, lo, e, dtype = self.nest, self.lo, self.e, self.dtype
        zero = must(0, dtype.compute)
        # Neighbouring threads read what lies side by side.
        inner, outer = (self.lines, self.depth) if self.across_memory else (self.depth, self.lines)

        def element(other: Atom, fast: Atom) -> tuple[Atom, Atom]:
            line, d = (fast, other) if self.across_memory else (other, fast)
            row, term = e.op("+", first, line), e.op("+", begin, d)
            inside = e.op("and", e.op("<", row, self.side.total), e.op("<", term, nest.depth.total))

            def value() -> Atom:
                env = self._env(row, term)
                passes = TRUE if nest.x.where is None else lo.value(nest.x.where, env)
                return e.branch(passes, lambda: e.convert(lo.value(self.expr, env), dtype.compute), lambda: zero, dtype.compute)

            return self.place(slot, line, d), e.branch(inside, value, lambda: zero, dtype.compute)

        threads = nest.tiles.threads
        each, turns = threads // inner, outer * inner // threads
        if plain_read(self.expr) is None or nest.x.where is not None or threads % inner or turns % FLIGHT:
            with nest.team.loop("s", i64(0), i64(self.lines * self.depth), nonempty=True) as s:
                at, out = element(e.op("quot", s, i64(inner)), e.op("rest", s, i64(inner)))
                e.raw(form.Store(self.name, at, out, dtype))
            return
        # Some are on their way at once.
        with nest.team.loop("t", i64(0), i64(threads), nonempty=True) as t, e.loop("part", i64(0), i64(turns // FLIGHT), nonempty=True) as part:
            fast, begins = e.op("rest", t, i64(inner)), e.op("+", e.op("quot", t, i64(inner)), e.op("*", part, i64(each * FLIGHT)))
            found = [element(e.op("+", begins, i64(k * each)), fast) for k in range(FLIGHT)]
            for at, out in found:
                e.raw(form.Store(self.name, at, out, dtype))

    def _env(self, row: Atom, term: Atom) -> Env:
        """What the indices of the factor are."""
        nest, lo = self.nest, self.lo
        at = {**nest.fixed, **dict(zip(self.axes, unravel(lo, self.side.ranges, row), strict=True))}
        env = {n: at[axis] for n, axis in nest.product.plain.items() if axis in at}
        env.update({name: i for (name, _, _), i in zip(nest.depth.ranges, unravel(lo, nest.depth.ranges, term), strict=True)})
        return Env(env)


class _OnTensorCores(Tiled):
    """The loops of one kernel."""

    def __init__(self, lo: Lowering, jobs: list[Job], way: TensorCores) -> None:
        super().__init__(lo, jobs, way.product)
        self.way = way
        self.tiles = form.Tiles(way.left, way.right, self.kind.dtype, way.warps, way.tiles)

    def write(self) -> None:
        """Writes the kernel. Blocks of neighbouring numbers share rows and columns of tiles."""
        e = self.e
        across, down = self._tiles(self.across, self.way.columns), self._tiles(self.down, self.way.rows)
        each = e.op("*", across, down)
        turns = e.op("*", self.batch.total, each)
        better = self.way.unless
        if better is not None:
            turns = e.choose(fit(self, better, tiles_of(self, better)), i64(0), turns)
        with e.loop("tile", i64(0), turns, kind="block") as p:
            number = e.op("rest", p, each)
            group = e.op("*", across, i64(GROUP))
            above = e.op("*", e.op("quot", number, group), i64(GROUP))
            inside, rows = e.op("rest", number, group), e.op("min", e.op("-", down, above), i64(GROUP))
            first_row = e.op("*", e.op("+", above, e.op("rest", inside, rows)), i64(self.way.rows))
            first_column = e.op("*", e.op("quot", inside, rows), i64(self.way.columns))
            batch = unravel(self.lo, self.batch.ranges, e.op("quot", p, each))
            self.fixed = dict(zip(self.product.batch, batch, strict=True))
            self._readable(lambda: self._tile(first_row, first_column))

    def _tile(self, first_row: Atom, first_column: Atom) -> None:
        e, way, product = self.e, self.way, self.product
        left = _Factor(self, "left", product.left, way.left, product.rows, self.down, way.rows)
        right = _Factor(self, "right", product.right, way.right, product.columns, self.across, way.columns)
        sums = e.fresh("sums")
        e.raw(form.Fragment(sums, self.tiles))
        behind = i64(way.stages - 1)
        steps = e.op("floordiv", e.op("+", self.depth.total, i64(way.depth - 1)), i64(way.depth))
        with e.loop("step", i64(0), e.op("+", steps, behind)) as s:
            e.raw(form.Await(way.stages - 2))
            e.raw(form.Barrier())
            with e.when(e.op("<", s, steps)):
                slot, begin = e.op("rest", s, i64(way.stages)), e.op("*", s, i64(way.depth))
                left.stage(first_row, begin, slot)
                right.stage(first_column, begin, slot)
            e.raw(form.Commit())
            with e.when(e.op(">=", s, behind)):
                slot = e.op("rest", e.op("-", s, behind), i64(way.stages))
                e.raw(form.Multiply(sums, left.factor(slot), right.factor(slot), way.depth))
        self._parts(first_row, first_column, sums)

    def _parts(self, first_row: Atom, first_column: Atom, sums: str) -> None:
        """What is made of the sums, a part of them at a time."""
        e, way, tiles, x = self.e, self.way, self.tiles, self.x
        pitch = tiles.columns + SLACK
        assert tiles.threads % tiles.columns == 0, "tiles are cut so that each thread has a column"
        slab = e.memory("slab")
        e.raw(form.Alloc(slab, tiles.sums, i64(tiles.slab * pitch), True))
        with e.loop("part", i64(0), i64(tiles.tiles[0]), nonempty=True) as part:
            e.raw(form.Barrier())
            e.raw(form.StoreFragment(sums, part, slab, pitch))
            e.raw(form.Barrier())
            with self.team.loop("t", i64(0), i64(tiles.threads), nonempty=True) as t:
                column = e.op("rest", t, i64(tiles.columns))
                c = e.op("+", first_column, column)
                begin, step = e.op("quot", t, i64(tiles.columns)), i64(tiles.threads // tiles.columns)
                with e.when(e.op("<", c, self.across.total)), e.loop("line", begin, i64(tiles.slab), step) as line:
                    warp = e.op("*", e.op("quot", line, i64(16)), i64(16 * way.tiles[0]))
                    row = e.op("+", warp, e.op("+", e.op("*", part, i64(16)), e.op("rest", line, i64(16))))
                    r = e.op("+", first_row, row)
                    with e.when(e.op("<", r, self.down.total)):
                        dot = form.Load(slab, e.op("+", e.op("*", line, i64(pitch)), column), tiles.sums, tiles.sums)
                        self._result(r, c, lambda d=dot: e.bind("dot", d), x)  # type: ignore[misc]

    def _result(self, r: Atom, c: Atom, dot: Callable[[], Atom], x: object) -> None:
        lo, e = self.lo, self.e
        at = {**self.fixed, **dict(zip(self.product.rows, unravel(lo, self.down.ranges, r), strict=True)),
              **dict(zip(self.product.columns, unravel(lo, self.across.ranges, c), strict=True))}
        key = ("reduce", id(x), tuple((n, key_of(at[k])) for n, k in sorted(self.product.plain.items())))
        e.remember(key, finish(lo, self.x, self.kind, dot(), i64(0), TRUE))
        self.element([at[k] for k in range(len(self.axes))])
