"""Products of matrices on a GPU: tiles of both factors pass through shared memory, each thread keeps a few sums.

    block for tile in … {
      for step in 0..steps + stages - 1 {
        await stages - 2   barrier       the tiles of this step have arrived, and those before them have been read
        thread: begins to copy later tiles of both factors     commit
        each thread: sums[i, j] += x[i] * w[j] for its places and the terms of its group
      }
      each thread: its sums to shared memory     barrier
      thread for p in …: the sums of all groups are added in their order, and what is made of them is stored
    }

Any sum of products is one whose left factor does not depend on some axes of the result and whose right factor not on others: the axes of the left alone
are one flat axis of rows, those of the right one of columns, the ranges one flat sum; a convolution is one. `passes/scheduling/cuts.py` says how large tiles
are and into how many groups the terms are dealt. Sums of f32 are added up over blocks of at most 256 terms.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.emit import TRUE, Atom, i64, key_of
from pipelink_ir.backends.loops.gpu.factor import Factor, Tiling
from pipelink_ir.backends.loops.gpu.flat import Flat, flat, unravel
from pipelink_ir.backends.loops.gpu.team import Team
from pipelink_ir.backends.loops.lower import Lowering, Sites
from pipelink_ir.backends.loops.nests import Job, Nest
from pipelink_ir.backends.loops.reduce import finish, kind_of
from pipelink_ir.ir.dtypes import F32, DType
from pipelink_ir.ir.nodes import Expr, Reduce
from pipelink_ir.ir.typed import TypedOperator
from pipelink_ir.passes.scheduling.costs import Plan
from pipelink_ir.passes.scheduling.counts import known, names, ranges_of
from pipelink_ir.passes.scheduling.cuts import CHUNK
from pipelink_ir.passes.scheduling.products import Product
from pipelink_ir.passes.scheduling.shape import last_of, reads_of

TERMS = 256
"""Terms that are added up in f32 before they meet the sum of all."""

Spot = tuple[int, int]


def product_body(op: TypedOperator, plan: Plan, sites: Sites, job: Job, product: Product, chosen: Mapping[str, int] | None = None) -> tuple[Lowering, int]:
    """The kernel of a product, still open, and the number of threads that it needs."""
    lo = Lowering(op, plan, sites, frozenset((job[0].name,)), chosen)
    made = _Product(lo, [job], product)
    made.write()
    return lo, made.cut.threads


class Tiled(Nest):
    """What kernels of products have in common: the flat axes, and how factors lie in memory."""

    def __init__(self, lo: Lowering, jobs: list[Job], product: Product) -> None:
        super().__init__(lo, jobs)
        self.product, self.team, self.x = product, Team(lo), product.reduce
        self.kind = kind_of(self.x)
        self.down, self.across, self.batch = (self._axes(axes) for axes in (product.rows, product.columns, product.batch))
        self.depth = flat(lo, ranges_of(self.x), lo.root)
        self.fixed: dict[int, Atom] = {}
        self.row_axes, self.column_axes = product.rows, product.columns
        """The axes of which `down` and `across` are made."""
        self.merged: dict[int, Atom] = {}
        """Axes that stand at their first place, while the one behind them runs through all places of both."""

    def _axes(self, axes: tuple[int, ...]) -> Flat:
        found = [self.axes[k] for k in axes]
        return Flat(tuple((a.name, a.lo, a.n) for a in found), self._total(found))

    def _tiles(self, axis: Flat, size: int) -> Atom:
        return self.e.op("floordiv", self.e.op("+", axis.total, i64(size - 1)), i64(size))

    def along_terms(self, factor: Expr) -> bool:
        """Whether neighbours in the memory that a factor is read from are neighbouring terms, rather than rows or columns."""
        reads = reads_of(self.lo.op, self.lo.plan.local, Reduce("sum", self.x.ranges, None, factor, span=self.x.span), self.product.plain)
        return bool(reads) and any(n.startswith("#") for n in last_of(reads[0]).names)

    def as_one(self, axes: tuple[int, ...]) -> tuple[tuple[int, ...], Flat]:
        """Axes with those left out that no index tells from the one behind them: everything is read and stored as if both were one."""
        kept: list[int] = []
        sizes: dict[int, Atom] = {}
        for k in axes:
            size = self.e.op("max", self.axes[k].n, i64(0))
            if kept and kept[-1] == k - 1 and self._side_by_side(k - 1):
                self.merged[kept[-1]] = self.axes[kept[-1]].lo
                size = self.e.op("*", sizes[kept.pop()], size)
            kept.append(k)
            sizes[k] = size
        return tuple(kept), Flat(tuple((self.axes[k].name, self.axes[k].lo, sizes[k]) for k in kept), self._total([self.axes[k] for k in axes]))

    def _side_by_side(self, k: int) -> bool:
        """Whether axes `k` and `k + 1` are whole axes side by side in all that is read and stored."""
        tensor, piece = self.jobs[0]
        first, second = piece.axes[k], piece.axes[k + 1]
        uses, both = self.uses[0], {first.index, second.index}
        shapes = [(tensor.shape, k, ("", ""))]
        if uses.loose & both or uses.joined or piece.holes or any(bound is not None and both & names(bound) for a in piece.axes for bound in (a.lo, a.hi)):
            return False
        for u in uses.uses:
            at = next((q for q, lin in enumerate(u.at) if both & lin.names), None)
            if at is None:
                continue
            behind = u.at[at + 1:]
            if not (u.at[at].only(first.index) and behind and behind[0].only(second.index)) or any(both & lin.names for lin in behind[1:]):
                return False
            shapes.append((self.lo.op.tensors[u.tensor].shape, at, (u.access[at], u.access[at + 1])))
        ends = (first.hi, second.hi)
        return all(known(a.lo) == 0 for a in (first, second)) and all(
            known(shape[at + n][0]) == 0 and shape[at + n][1] == ends[n] and words[n] in ("", "inside") for shape, at, words in shapes for n in range(2))

    def axis_name(self, name: str) -> str:
        """One name for an index of the reduction or an axis of the result, whatever it is called."""
        return f"axis {self.product.plain[name]}" if name in self.product.plain else name

    def axis_names(self, x: Expr) -> frozenset[str]:
        """The names in an index."""
        return frozenset(map(self.axis_name, names(x)))

    def result(self, r: Atom, c: Atom, dot: Callable[[], Atom]) -> None:
        """Stores what is made of the sum of row `r` and column `c`."""
        lo, e, x = self.lo, self.e, self.x
        at = {**self.fixed, **dict(zip(self.row_axes, unravel(lo, self.down.ranges, r), strict=True)),
              **dict(zip(self.column_axes, unravel(lo, self.across.ranges, c), strict=True))}
        key = ("reduce", id(x), tuple((n, key_of(at[k])) for n, k in sorted(self.product.plain.items())))
        e.remember(key, finish(lo, x, self.kind, dot(), i64(0), TRUE))
        self.element([at[k] for k in range(len(self.axes))])


class _Product(Tiled):
    """The loops of one kernel."""

    def __init__(self, lo: Lowering, jobs: list[Job], product: Product) -> None:
        super().__init__(lo, jobs, product)
        self.cut, self.dtype = product.cut, self.kind.dtype
        self.quad = CHUNK // self.dtype.bytes
        """Elements that are moved at once."""
        cut = self.cut
        self.row_axes, self.down = self.as_one(product.rows)
        self.column_axes, self.across = self.as_one(product.columns)
        tiling = Tiling(cut.depth, cut.stages, cut.threads)
        self.left = Factor(self, product.left, self.dtype, self.row_axes, self.down, cut.rows, tiling)
        self.right = Factor(self, product.right, self.dtype, self.column_axes, self.across, cut.columns, tiling)
        self.spots = [(i, j) for i in range(cut.side[0]) for j in range(cut.side[1])]

    def write(self) -> None:
        """Writes the kernel."""
        e, cut = self.e, self.cut
        across, down = self._tiles(self.across, cut.columns), self._tiles(self.down, cut.rows)
        with e.loop("tile", i64(0), e.op("*", self.batch.total, e.op("*", across, down)), kind="block") as p:
            first_column = e.op("*", e.op("rest", p, across), i64(cut.columns))
            above = e.op("quot", p, across)
            first_row = e.op("*", e.op("rest", above, down), i64(cut.rows))
            batch = unravel(self.lo, self.batch.ranges, e.op("quot", above, down))
            self.fixed = {**self.merged, **dict(zip(self.product.batch, batch, strict=True))}
            self._readable(lambda: self._tile(first_row, first_column))

    # ------------------------------------------------------------------------------------------------------------------ tile

    def _tile(self, first_row: Atom, first_column: Atom) -> None:
        e, cut = self.e, self.cut
        self._memory()
        sums = {s: e.var("sum", self.kind.neutral) for s in self.spots}
        rounds = self._rounds()
        parts = sums if rounds is None else {s: e.var("part", self.kind.neutral) for s in self.spots}
        steps = e.op("floordiv", e.op("+", self.depth.total, i64(cut.depth - 1)), i64(cut.depth))
        behind = i64(cut.stages - 1)
        with e.loop("step", i64(0), e.op("+", steps, behind)) as s:
            e.raw(form.Await(cut.stages - 2))
            e.raw(form.Barrier())
            with e.when(e.op("<", s, steps)):
                slot, begin = e.op("rest", s, i64(cut.stages)), e.op("*", s, i64(cut.depth))
                self.left.stage(first_row, begin, slot)
                self.right.stage(first_column, begin, slot)
            e.raw(form.Commit())
            with e.when(e.op(">=", s, behind)):
                now = e.op("-", s, behind)
                self._terms(e.op("rest", now, i64(cut.stages)), parts)
                if rounds is not None:
                    with e.when(e.op("==", e.op("rest", now, i64(rounds)), i64(rounds - 1))):
                        self._gather(sums, parts)
        if rounds is not None:
            self._gather(sums, parts)
        self._together(sums)
        self._results(first_row, first_column)

    def _rounds(self) -> int | None:
        """After how many steps the sums of f32 meet the sum of all; None if there are so few terms that they never have to."""
        if self.dtype is not F32:
            return None
        total, rounds = self.depth.total, max(1, TERMS // self.cut.each)
        return None if isinstance(total, form.Const) and int(total.value) <= rounds * self.cut.depth else rounds

    def _gather(self, sums: dict[Spot, form.Ref], parts: dict[Spot, form.Ref]) -> None:
        for s in self.spots:
            self.e.assign(sums[s], form.Op("+", (sums[s], parts[s]), self.dtype))
            self.e.assign(parts[s], self.kind.neutral)

    def _memory(self) -> None:
        """One piece of shared memory: the ring of both factors, and after the last step the sums of all groups."""
        cut = self.cut
        memory = self.e.memory("tiles")
        self.pitch = cut.columns + self.quad
        """Elements from one row of sums to the next."""
        ring = cut.stages * (self.left.size + self.right.size)
        self.right.base = cut.stages * self.left.size
        self.left.memory = self.right.memory = self.tiles = memory
        self.e.raw(form.Alloc(memory, self.dtype, i64(max(ring, cut.groups * cut.rows * self.pitch)), True))

    # ----------------------------------------------------------------------------------------------------------------- terms

    @contextmanager
    def _each_thread(self) -> Iterator[tuple[Atom, Atom, Atom]]:
        """The work of each thread: its group, and where it stands in it."""
        e, cut = self.e, self.cut
        with self.team.loop("t", i64(0), i64(cut.threads), nonempty=True) as t:
            place, group = e.op("rest", t, i64(cut.down * cut.across)), e.op("quot", t, i64(cut.down * cut.across))
            yield group, e.op("quot", place, i64(cut.across)), e.op("rest", place, i64(cut.across))

    def _line(self, factor: Factor, at: Atom, n: int, threads: int) -> Atom:
        """Line `n` of a thread. Where terms lie side by side the lines of neighbouring threads do too, else lines are moved together, so a thread has
        neighbours."""
        if factor.along:
            return self.e.op("+", at, i64(n * threads))
        quad = self._wide(factor, threads)
        return self.e.op("+", self.e.op("*", at, i64(quad)), i64(n // quad * quad * threads + n % quad))

    def _wide(self, factor: Factor, threads: int) -> int:
        """How many lines of a thread are moved at once."""
        return min(self.quad, factor.lines // threads)

    def _terms(self, slot: Atom, sums: dict[Spot, form.Ref]) -> None:
        """Adds the terms of a tile to the sums of all threads."""
        e, cut = self.e, self.cut
        some = min(self.quad, cut.each)
        with self._each_thread() as (group, row, column):
            first = e.op("*", group, i64(cut.each))
            with e.loop("d", i64(0), i64(cut.each), i64(some), nonempty=True) as d:
                term = e.op("+", first, d)
                a = self._lines(self.left, slot, row, cut.side[0], cut.down, term, some)
                b = self._lines(self.right, slot, column, cut.side[1], cut.across, term, some)
                for k in range(some):
                    for (i, j), acc in sums.items():
                        e.assign(acc, self._plus(acc, a[i, k], b[j, k]))

    def _lines(self, factor: Factor, slot: Atom, at: Atom, count: int, threads: int, term: Atom, some: int) -> dict[tuple[int, int], Atom]:
        """The elements of the lines of a thread, for some terms."""
        out: dict[tuple[int, int], Atom] = {}
        each = self._wide(factor, threads)
        if factor.along:
            for n in range(count):
                found = self._moved(factor, factor.place(slot, self._line(factor, at, n, threads), term), some)
                out.update({(n, k): x for k, x in enumerate(found)})
            return out
        for k in range(some):
            for n in range(0, count, each):
                found = self._moved(factor, factor.place(slot, self._line(factor, at, n, threads), self.e.op("+", term, i64(k))), each)
                out.update({(n + m, k): x for m, x in enumerate(found)})
        return out

    def _moved(self, factor: Factor, place: Atom, count: int) -> list[Atom]:
        """Neighbours in shared memory."""
        e, dtype = self.e, self.dtype
        if count == 1:
            return [e.bind("f", form.Load(factor.memory, place, dtype, dtype))]
        own = e.memory("own")
        e.raw(form.Alloc(own, dtype, i64(count)))
        e.raw(form.Move(own, i64(0), factor.memory, place, count))
        return [e.bind("f", form.Load(own, i64(k), dtype, dtype)) for k in range(count)]

    def _plus(self, acc: form.Ref, a: Atom, b: Atom) -> form.Expr:
        dtype: DType = self.kind.dtype
        if dtype.is_float and not self.lo.op.exact:
            return form.Op("fma", (a, b, acc), dtype)
        return form.Op("+", (acc, form.Op("*", (a, b), dtype)), dtype)

    # --------------------------------------------------------------------------------------------------------------- results

    def _together(self, sums: dict[Spot, form.Ref]) -> None:
        """The sums of all threads into shared memory."""
        e, cut = self.e, self.cut
        e.raw(form.Barrier())
        with self._each_thread() as (group, row, column):
            for (i, j), acc in sums.items():
                r, c = self._line(self.left, row, i, cut.down), self._line(self.right, column, j, cut.across)
                e.raw(form.Store(self.tiles, self._sum_at(group, r, c), acc, self.dtype))
        e.raw(form.Barrier())
        self.kept = cut.groups
        places, apart = cut.rows * cut.columns, cut.threads // (cut.rows * cut.columns)
        if apart >= 2 and cut.groups >= 4 * apart and cut.groups % apart == 0:
            # There are threads enough to add up several parts of each sum beside each other.
            some = cut.groups // apart
            with self.team.loop("p", i64(0), i64(cut.threads), nonempty=True) as p:
                part, place = e.op("*", e.op("quot", p, i64(places)), i64(some)), e.op("rest", p, i64(places))
                r, c = e.op("quot", place, i64(cut.columns)), e.op("rest", place, i64(cut.columns))
                e.raw(form.Store(self.tiles, self._sum_at(part, r, c), self._added(part, r, c, range(some)), self.dtype))
            e.raw(form.Barrier())
            self.kept = some

    def _sum_at(self, group: Atom, row: Atom, column: Atom) -> Atom:
        e = self.e
        return e.op("+", e.op("*", e.op("+", e.op("*", group, i64(self.cut.rows)), row), i64(self.pitch)), column)

    def _added(self, first: Atom, row: Atom, column: Atom, groups: range) -> Atom:
        """The sum over some groups, in their order."""
        e, dtype = self.e, self.dtype
        values = [e.bind("part", form.Load(self.tiles, self._sum_at(e.op("+", first, i64(g)), row, column), dtype, dtype)) for g in groups]
        out = values[0]
        for value in values[1:]:
            out = e.bind("dot", form.Op("+", (out, value), dtype))
        return out

    def _results(self, first_row: Atom, first_column: Atom) -> None:
        """What is made of the sums, each place by one thread."""
        e, cut = self.e, self.cut
        groups = range(0, cut.groups, self.kept) if self.kept < cut.groups else range(cut.groups)
        with self.team.loop("p", i64(0), i64(cut.rows * cut.columns), nonempty=True) as p:
            row, column = e.op("quot", p, i64(cut.columns)), e.op("rest", p, i64(cut.columns))
            r, c = e.op("+", first_row, row), e.op("+", first_column, column)
            with e.when(e.op("and", e.op("<", r, self.down.total), e.op("<", c, self.across.total))):
                self.result(r, c, lambda: self._added(i64(0), row, column, groups))
