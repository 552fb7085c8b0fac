"""Products of matrices that stream through shared memory (sm_90a): teams of threads take tiles in turn.

    resident block for tile in 0..fit ? tiles : 0 {
      contract %sums = %x * %w at row, column      copies and products run beside each other, and beside what other teams do
      each t in 0..128 {
        unroll for j, i { two neighbouring elements of the result are made of two sums, and stored together; of narrow ones eight, which four threads trade }
      }
    }

`fit` is found out at run time; where it does not hold, the kernel behind this one computes the product (`TensorCores.unless`).
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.emit import TRUE, Atom, i64, key_of
from pipelink_ir.backends.loops.gpu.flat import Flat, unravel
from pipelink_ir.backends.loops.gpu.product import Tiled
from pipelink_ir.backends.loops.lower import Env, Lowering, Sites
from pipelink_ir.backends.loops.nests import Job
from pipelink_ir.backends.loops.reads import address, extent, low
from pipelink_ir.backends.loops.reduce import finish
from pipelink_ir.ir.dtypes import F32, F64, I64, DType
from pipelink_ir.ir.typed import TypedOperator
from pipelink_ir.passes.scheduling import streams
from pipelink_ir.passes.scheduling.costs import Plan
from pipelink_ir.passes.scheduling.streams import COLUMNS, ROWS, Matrix, Streamed

GROUP = 16
"""Rows of tiles that neighbouring blocks go through together."""
MAP_WORDS = 32
"""i64 that a block needs for what it tells the copy engine."""
TEAM = 128
EIGHT = 8
"""Narrow elements that a thread stores together."""


def stream_body(op: TypedOperator, plan: Plan, sites: Sites, job: Job, way: Streamed, chosen: Mapping[str, int] | None = None) -> tuple[Lowering, int]:
    """The kernel of a product that streams, still open, and the number of threads of a team."""
    lo = Lowering(op, plan, sites, frozenset((job[0].name,)), chosen)
    _Stream(lo, [job], way).write()
    return lo, TEAM


def fit(nest: Tiled, way: Streamed, tiles: Atom) -> Atom:
    """Whether the sizes and the memory of a call are fit for streams."""
    lo, e = nest.lo, nest.e
    each = i64(16 // way.dtype.bytes)
    conds = [e.op(">=", tiles, i64(streams.ENOUGH)), e.op(">=", nest.depth.total, i64(streams.DEEP))]
    for m in (way.left, way.right):
        steps = [_behind(nest, m, m.inner), *([] if m.outer is None else [_behind(nest, m, m.outer)]), *([nest.depth.total] if m.turned else [])]
        conds += [e.op("==", e.op("mod", n, each), i64(0)) for n in steps]
        conds.append(_aligned(lo, m.tensor, 16))
    tensor, _ = nest.jobs[0]
    conds += [e.op("==", e.op("mod", n, i64(2)), i64(0)) for n in (nest.axes[-1].n, extent(lo, tensor, len(tensor.shape) - 1))]
    conds.append(_aligned(lo, tensor.name, 2 * tensor.dtype.bytes))
    out: Atom = TRUE
    for c in conds:
        if not isinstance(c, form.Const) or not c.value:
            out = c if out is TRUE else e.op("and", out, c)
    return out


def tiles_of(nest: Tiled) -> Atom:
    """How many tiles of a team there are."""
    e = nest.e
    return e.op("*", nest.batch.total, e.op("*", _parts(nest, nest.across, COLUMNS), _parts(nest, nest.down, ROWS)))


def _parts(nest: Tiled, axis: Flat, size: int) -> Atom:
    e = nest.e
    return e.op("floordiv", e.op("+", axis.total, i64(size - 1)), i64(size))


def _aligned(lo: Lowering, tensor: str, size: int) -> Atom:
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

    def turned(self, left: bool) -> form.Buffer:
        """The memory of a factor that is turned over: batch, lines and terms."""
        m, axes = (self.way.left, self.product.rows) if left else (self.way.right, self.product.columns)
        total = self.plain(self.depth.total)
        for k in (*self.product.batch, *axes):
            total = form.Op("*", (total, form.Op("max", (self.size(k), i64(0)), I64)), I64)
        return form.Buffer(f"{m.tensor}.{'left' if left else 'right'}.by_terms", "temporary", self.lo.op.tensors[m.tensor].dtype, (total,))

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
        self.ring = form.Ring(way.otherwise.left, way.otherwise.right, self.kind.dtype, ROWS // 64, COLUMNS, along)

    def write(self) -> None:
        """Writes the kernel."""
        lo, e = self.lo, self.e
        across, down = _parts(self, self.across, COLUMNS), _parts(self, self.down, ROWS)
        each, tiles = e.op("*", across, down), tiles_of(self)
        maps = e.memory("maps")
        lo.scratch.append(form.Buffer(maps, "temporary", I64, (self._words(),)))
        terms = self.depth.total
        panels = self._panel(self.way.left, self.down, True), self._panel(self.way.right, self.across, False)
        turns = e.choose(fit(self, self.way, tiles), tiles, i64(0))
        with e.loop("tile", i64(0), turns, kind="block") as p:
            number, group = e.op("rest", p, each), e.op("*", across, i64(GROUP))
            above = e.op("*", e.op("quot", number, group), i64(GROUP))
            inside, rows = e.op("rest", number, group), e.op("min", e.op("-", down, above), i64(GROUP))
            row = e.op("*", e.op("+", above, e.op("rest", inside, rows)), i64(ROWS))
            column = e.op("*", e.op("quot", inside, rows), i64(COLUMNS))
            batch = e.op("quot", p, each)
            self.fixed = dict(zip(self.product.batch, unravel(lo, self.batch.ranges, batch), strict=True))
            sums = e.memory("sums")
            e.raw(form.Alloc(sums, self.ring.sum, i64(self.ring.sums)))
            e.raw(form.Contract(sums, self.ring, panels[0], panels[1], terms, row, column, batch if self.product.batch else i64(0), maps))
            self._epilogue(sums, row, column)

    def _words(self) -> form.Expr:
        """Memory for the maps of all blocks there may be, as the size of a buffer: of symbols alone."""
        def part(axes: tuple[int, ...], size: int) -> form.Expr:
            total: form.Expr = i64(1)
            for k in axes:
                n = self.size(k)
                total = form.Op("*", (total, form.Op("max", (n, i64(0)), I64)), I64)
            return form.Op("floordiv", (form.Op("+", (total, i64(size - 1)), I64), i64(size)), I64)

        p = self.product
        blocks = form.Op("*", (part(p.batch, 1), form.Op("*", (part(p.rows, ROWS), part(p.columns, COLUMNS)), I64)), I64)
        # They begin at a multiple of 128 bytes.
        return form.Op("+", (form.Op("*", (blocks, i64(MAP_WORDS)), I64), i64(16)), I64)

    def _panel(self, m: Matrix, side: Flat, left: bool) -> form.Panel:
        terms, lines, batches = self.depth.total, side.total, self.batch.total
        if m.turned:
            made = self.turned(left)
            self.lo.scratch.append(made)
            return form.Panel(made.name, (terms, lines, batches), (terms, self.e.op("*", terms, lines)))
        return form.Panel(m.tensor, (terms, lines, batches) if m.along else (lines, terms, batches), self.steps(m, side))

    # --------------------------------------------------------------------------------------------------------------- results

    def _epilogue(self, sums: str, row: Atom, column: Atom) -> None:
        """Makes elements of the sums, two at a time. Behind the edges the last ones are made again and not stored, so that nothing waits for a condition."""
        e, ring, (t, _) = self.e, self.ring, self.jobs[0]
        narrow = t.dtype.bytes <= 2
        wide = self._wide() if narrow else TRUE
        with e.loop("t", i64(0), i64(TEAM), kind="each", nonempty=True) as thread:
            lane = e.op("rest", thread, i64(32))
            top = e.op("+", row, e.op("+", e.op("*", e.op("quot", thread, i64(32)), i64(16)), e.op("quot", lane, i64(4))))
            quarter = e.op("rest", lane, i64(4))
            each = 4 if narrow else 1
            with self._unrolled("j", ring.n // 8 // each) as j, self._unrolled("i", 2 * ring.m) as i:
                block = e.op("+", column, e.op("*", j, i64(8 * each)))
                r = e.op("+", top, e.op("+", e.op("*", e.op("quot", i, i64(2)), i64(64)), e.op("*", e.op("rest", i, i64(2)), i64(8))))
                number = e.op("+", e.op("*", e.op("quot", i, i64(2)), i64(ring.n // 2)), e.op("*", e.op("rest", i, i64(2)), i64(2)))
                number = e.op("+", number, e.op("*", j, i64(4 * each)))
                if narrow:
                    self._eight(sums, number, r, block, quarter, wide)
                else:
                    c = e.op("+", block, e.op("*", quarter, i64(2)))
                    pair = self._pairs(sums, number, r, [c], t.dtype)
                    self._stored(pair, 0, r, c, 2)

    def _unrolled(self, hint: str, count: int) -> AbstractContextManager[form.Ref]:
        return self.e.loop(hint, i64(0), i64(count), nonempty=True, unroll=True)

    def _wide(self) -> Atom:
        """Whether eight elements of the result may be stored together, found out at run time."""
        lo, e, (t, _) = self.lo, self.e, self.jobs[0]
        axis, k, each = self.axes[-1], len(t.shape) - 1, i64(EIGHT)
        conds = [e.op("==", e.op("mod", n, each), i64(0)) for n in (axis.n, extent(lo, t, k), e.op("-", axis.lo, low(lo, t, k)))]
        return e.all_of([*conds, _aligned(lo, t.name, EIGHT * t.dtype.bytes)])

    def _eight(self, sums: str, number: Atom, r: Atom, block: Atom, quarter: Atom, wide: Atom) -> None:
        """A line of 32 elements, eight of each of four neighbouring threads: made where the sums are, stored where they lie together."""
        e, (t, _) = self.e, self.jobs[0]
        first = e.op("+", block, e.op("*", quarter, i64(2)))
        made = self._pairs(sums, number, r, [e.op("+", first, i64(8 * w)) for w in range(4)], t.dtype)
        mine = e.memory("mine")
        e.raw(form.Alloc(mine, t.dtype, i64(EIGHT)))
        e.raw(form.Trade(mine, made))
        c = e.op("+", block, e.op("*", quarter, i64(EIGHT)))
        with e.when(wide):
            self._stored(mine, 0, r, c, EIGHT)
        with e.when(e.op("not", wide)):
            for k in range(0, EIGHT, 2):
                self._stored(mine, k, r, e.op("+", c, i64(k)), 2)

    def _stored(self, memory: str, first: int, r: Atom, c: Atom, count: int) -> None:
        """Neighbouring elements go to their place, if that is inside."""
        lo, e, (t, _) = self.lo, self.e, self.jobs[0]
        with e.when(e.op("and", e.op("<", r, self.down.total), e.op("<", c, self.across.total))):
            e.raw(form.Move(lo.buffer(t), address(lo, t, self._at(r, c)), memory, i64(first), count))

    def _pairs(self, sums: str, number: Atom, r: Atom, columns: Sequence[Atom], dtype: DType) -> str:
        """Pairs of neighbouring elements, made of neighbouring sums, in scratch: of f32 where they become halves, which are rounded two at a time."""
        lo, e, (t, piece) = self.lo, self.e, self.jobs[0]
        line = e.op("min", r, e.op("-", self.down.total, i64(1)))
        values: list[Atom] = []
        for w, column in enumerate(columns):
            place = e.op("min", column, e.op("-", self.across.total, i64(2)))
            for d in range(2):
                at = self._at(line, e.op("+", place, i64(d)))
                dot = e.bind("dot", form.Load(sums, e.op("+", number, i64(4 * w + d)), self.ring.sum, self.ring.sum))
                key = ("reduce", id(self.x), tuple((n, key_of(at[k])) for n, k in sorted(self.product.plain.items())))
                e.remember(key, finish(lo, self.x, self.kind, dot, i64(0), TRUE))
                value = lo.value(piece.value, Env({a.index: i for a, i in zip(piece.axes, at, strict=True)}))
                if value.dtype is not t.dtype.compute and not (value.dtype is F64 and t.dtype.is_float):
                    value = e.convert(value, t.dtype.compute)
                values.append(value)
        held = F32 if dtype.bytes == 2 and dtype.is_float and all(v.dtype is F32 for v in values) and len(columns) > 1 else dtype
        out = e.memory("pair" if len(columns) == 1 else "made")
        e.raw(form.Alloc(out, held, i64(len(values))))
        for k, value in enumerate(values):
            e.raw(form.Store(out, i64(k), value, held))
        return out

    def _at(self, r: Atom, c: Atom) -> tuple[Atom, ...]:
        lo = self.lo
        at = {**self.fixed, **dict(zip(self.product.rows, unravel(lo, self.down.ranges, r), strict=True)),
              **dict(zip(self.product.columns, unravel(lo, self.across.ranges, c), strict=True))}
        return tuple(at[k] for k in range(len(self.axes)))
