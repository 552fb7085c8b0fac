"""Products of matrices on a GPU: tiles of both factors pass through shared memory, each thread keeps a few sums.

    block for tile in … {
      for k in 0..K step 16 {
        thread: a tile of x and a tile of w into shared memory     barrier
        thread t: sums[i, j] += x[i] * w[j] for its 4 times 4 places     barrier
      }
      thread t: what is made of its sums is stored
    }

Any sum of products is one whose left factor does not depend on some axes of the result and whose right factor not on others: the axes of the left alone
are one flat axis of rows, those of the right one of columns, the ranges one flat sum; a convolution is one. Sums of f32 are added up over blocks of 256 terms.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.emit import TRUE, Atom, i64, key_of
from pipelink_ir.backends.loops.fold import must
from pipelink_ir.backends.loops.gpu.flat import Flat, flat, unravel
from pipelink_ir.backends.loops.gpu.team import Team
from pipelink_ir.backends.loops.lower import Env, Lowering, Sites
from pipelink_ir.backends.loops.nests import Job, Nest
from pipelink_ir.backends.loops.reduce import finish, kind_of
from pipelink_ir.ir.dtypes import F32
from pipelink_ir.ir.nodes import Expr, Reduce
from pipelink_ir.ir.typed import TypedOperator
from pipelink_ir.passes.scheduling.costs import Plan
from pipelink_ir.passes.scheduling.counts import ranges_of
from pipelink_ir.passes.scheduling.products import Product
from pipelink_ir.passes.scheduling.shape import last_of, reads_of

TERMS = 256
"""Terms that are added up in f32 before they meet the sum of all."""


@dataclass(frozen=True, slots=True)
class Tile:
    """The part of the result that a block computes, how deep the tiles of the factors are, and the places (square) that a thread computes."""

    rows: int = 64
    columns: int = 64
    depth: int = 16
    side: int = 4

    @property
    def threads(self) -> int:
        return self.rows // self.side * (self.columns // self.side)


TILE = Tile()


def product_body(op: TypedOperator, plan: Plan, sites: Sites, job: Job, product: Product, chosen: Mapping[str, int] | None = None) -> tuple[Lowering, int]:
    """The kernel of a product, still open, and the number of threads that it needs."""
    lo = Lowering(op, plan, sites, frozenset((job[0].name,)), chosen)
    Tiled(lo, [job], product).write()
    return lo, TILE.threads


class Tiled(Nest):
    """The loops of one kernel."""

    def __init__(self, lo: Lowering, jobs: list[Job], product: Product) -> None:
        super().__init__(lo, jobs)
        self.product, self.tile, self.team, self.x = product, TILE, Team(lo), product.reduce
        self.kind = kind_of(self.x)
        self.down, self.across, self.batch = (self._axes(axes) for axes in (product.rows, product.columns, product.batch))
        self.depth = flat(lo, ranges_of(self.x), lo.root)

    def _axes(self, axes: tuple[int, ...]) -> Flat:
        found = [self.axes[k] for k in axes]
        return Flat(tuple((a.name, a.lo, a.n) for a in found), self._total(found))

    def write(self) -> None:
        """Writes the kernel."""
        e, tile = self.e, self.tile
        across, down = self._tiles(self.across, tile.columns), self._tiles(self.down, tile.rows)
        with e.loop("tile", i64(0), e.op("*", self.batch.total, e.op("*", across, down)), kind="block") as p:
            first_column = e.op("*", e.op("rest", p, across), i64(tile.columns))
            above = e.op("quot", p, across)
            first_row = e.op("*", e.op("rest", above, down), i64(tile.rows))
            batch = unravel(self.lo, self.batch.ranges, e.op("quot", above, down))
            self.fixed = dict(zip(self.product.batch, batch, strict=True))
            self._readable(lambda: self._tile(first_row, first_column))

    def _tiles(self, axis: Flat, size: int) -> Atom:
        return self.e.op("floordiv", self.e.op("+", axis.total, i64(size - 1)), i64(size))

    # ------------------------------------------------------------------------------------------------------------------ tile

    def _tile(self, first_row: Atom, first_column: Atom) -> None:
        e, tile, dtype = self.e, self.tile, self.kind.dtype
        # One place more than there are rows keeps neighbouring threads off the same bank of memory.
        self.lefts, self.rights = self._shared("left", tile.rows), self._shared("right", tile.columns)
        spots = [(i, j) for i in range(tile.side) for j in range(tile.side)]
        sums = {s: e.var("sum", self.kind.neutral) for s in spots}
        if dtype is not F32:
            self._terms(first_row, first_column, sums, i64(0), self.depth.total)
        else:
            parts = {s: e.var("part", self.kind.neutral) for s in spots}
            with e.loop("terms", i64(0), self.depth.total, i64(TERMS)) as begin:
                for s in spots:
                    e.assign(parts[s], self.kind.neutral)
                self._terms(first_row, first_column, parts, begin, e.op("min", e.op("+", begin, i64(TERMS)), self.depth.total))
                for s in spots:
                    e.assign(sums[s], form.Op("+", (sums[s], parts[s]), dtype))
        self._results(first_row, first_column, sums)

    def _shared(self, name: str, size: int) -> str:
        name = self.e.memory(name)
        self.e.raw(form.Alloc(name, self.kind.dtype, i64(self.tile.depth * (size + 1)), True))
        return name

    def _terms(self, first_row: Atom, first_column: Atom, sums: dict[tuple[int, int], form.Ref], begin: Atom, end: Atom) -> None:
        """Adds the terms [begin, end) to the sums of all threads."""
        e, tile = self.e, self.tile
        with e.loop("k", begin, end, i64(tile.depth)) as k:
            self._load(self.lefts, self.product.left, self.product.rows, self.down, first_row, tile.rows, k, end)
            self._load(self.rights, self.product.right, self.product.columns, self.across, first_column, tile.columns, k, end)
            e.raw(form.Barrier())
            with self._each_thread() as (row, column), e.loop("d", i64(0), i64(tile.depth), nonempty=True) as d:
                a = [self._from(self.lefts, tile.rows, d, e.op("+", row, i64(i))) for i in range(tile.side)]
                b = [self._from(self.rights, tile.columns, d, e.op("+", column, i64(j * (tile.columns // tile.side)))) for j in range(tile.side)]
                for (i, j), acc in sums.items():
                    e.assign(acc, self._plus(acc, a[i], b[j]))
            e.raw(form.Barrier())

    def _plus(self, acc: form.Ref, a: Atom, b: Atom) -> form.Expr:
        dtype = self.kind.dtype
        if dtype.is_float and not self.lo.op.exact:
            return form.Op("fma", (a, b, acc), dtype)
        return form.Op("+", (acc, form.Op("*", (a, b), dtype)), dtype)

    def _from(self, memory: str, size: int, d: Atom, at: Atom) -> Atom:
        place = self.e.op("+", self.e.op("*", d, i64(size + 1)), at)
        return self.e.bind("f", form.Load(memory, place, self.kind.dtype, self.kind.dtype))

    @contextmanager
    def _each_thread(self) -> Iterator[tuple[Atom, Atom]]:
        """A loop with one turn for each thread: its first row and its first column in the tile."""
        e, tile = self.e, self.tile
        across = i64(tile.columns // tile.side)
        with self.team.loop("t", i64(0), i64(tile.threads), nonempty=True) as t:
            yield e.op("*", e.op("quot", t, across), i64(tile.side)), e.op("rest", t, across)

    def _load(self, memory: str, factor: Expr, axes: tuple[int, ...], side: Flat, first: Atom, size: int, k: Atom, end: Atom) -> None:
        """A tile of a factor into shared memory, zeros behind its edges."""
        lo, e, tile = self.lo, self.e, self.tile
        along, zero = self._along_terms(factor), must(0, self.kind.dtype)
        with self.team.loop("s", i64(0), i64(size * tile.depth), nonempty=True) as s:
            fast, slow = e.op("rest", s, i64(tile.depth if along else size)), e.op("quot", s, i64(tile.depth if along else size))
            d, place = (fast, slow) if along else (slow, fast)
            row, term = e.op("+", first, place), e.op("+", k, d)
            inside = e.op("and", e.op("<", row, side.total), e.op("<", term, end))

            def value() -> Atom:
                at = {**self.fixed, **dict(zip(axes, unravel(lo, side.ranges, row), strict=True))}
                env = {n: at[axis] for n, axis in self.product.plain.items() if axis in at}
                env.update({name: i for (name, _, _), i in zip(self.depth.ranges, unravel(lo, self.depth.ranges, term), strict=True)})
                here = Env(env)
                passes = TRUE if self.x.where is None else lo.value(self.x.where, here)
                return e.branch(passes, lambda: e.convert(lo.value(factor, here), self.kind.dtype), lambda: zero, self.kind.dtype)

            out = e.branch(inside, value, lambda: zero, self.kind.dtype)
            e.raw(form.Store(memory, e.op("+", e.op("*", d, i64(size + 1)), place), out, self.kind.dtype))

    def _along_terms(self, factor: Expr) -> bool:
        """Whether neighbours in the memory that a factor is read from are neighbouring terms, rather than rows or columns."""
        reads = reads_of(self.lo.op, self.lo.plan.local, Reduce("sum", self.x.ranges, None, factor, span=self.x.span), self.product.plain)
        return bool(reads) and any(n.startswith("#") for n in last_of(reads[0]).names)

    # --------------------------------------------------------------------------------------------------------------- results

    def _results(self, first_row: Atom, first_column: Atom, sums: dict[tuple[int, int], form.Ref]) -> None:
        lo, e, tile, x = self.lo, self.e, self.tile, self.x
        with self._each_thread() as (row, column):
            for (i, j), acc in sums.items():
                r = e.op("+", first_row, e.op("+", row, i64(i)))
                c = e.op("+", first_column, e.op("+", column, i64(j * (tile.columns // tile.side))))
                with e.when(e.op("and", e.op("<", r, self.down.total), e.op("<", c, self.across.total))):
                    at = {**self.fixed, **dict(zip(self.product.rows, unravel(lo, self.down.ranges, r), strict=True)),
                          **dict(zip(self.product.columns, unravel(lo, self.across.ranges, c), strict=True))}
                    key = ("reduce", id(x), tuple((n, key_of(at[k])) for n, k in sorted(self.product.plain.items())))
                    e.remember(key, finish(lo, x, self.kind, e.bind("dot", acc), i64(0), TRUE))
                    self.element([at[k] for k in range(len(self.axes))])
