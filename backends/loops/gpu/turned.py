"""Factors of products that stream, made over before: their lines then follow each other at multiples of 16 bytes, as the copy engine wants them.

Bytes and f32 are turned, so that their terms lie side by side as tensor cores want them: squares pass through shared memory, 16 bytes at a time where they lie
so.

    block for square in 0..fit ? squares : 0 {
      thread t: 16 bytes of neighbouring lines of one term into shared memory, each element to a line of its own     barrier
      thread t: 16 bytes of neighbouring terms of one line to %w.by_terms
    }

What lies right but for the distance of its lines is copied, where that is found out at run time, and f8 is converted:

    block for piece in 0..fit and uneven ? pieces : 0 {
      thread t: one column of a few lines to registers, then to %w.even
    }

What lies in another order of axes is gathered: its last axis stays the last one.

    block for piece in 0..fit ? pieces : 0 {
      thread t: 16 bytes of some lines to registers, together where they lie so; then to %w.even
    }

What is made of codes is computed, 16 bytes of a line by each thread.
"""
from __future__ import annotations

from collections.abc import Mapping

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.emit import TRUE, Atom, i64
from pipelink_ir.backends.loops.fold import must
from pipelink_ir.backends.loops.gpu.flat import Flat, unravel
from pipelink_ir.backends.loops.gpu.stream import Streams, aligned, fit, tiles_of
from pipelink_ir.backends.loops.lower import Env, Lowering, Sites
from pipelink_ir.backends.loops.nests import Job
from pipelink_ir.backends.loops.reads import address, extent, low
from pipelink_ir.ir.nodes import Expr, Name
from pipelink_ir.ir.typed import TypedOperator
from pipelink_ir.passes.scheduling.costs import Plan
from pipelink_ir.passes.scheduling.streams import Matrix, Streamed
from pipelink_ir.passes.scheduling.tensor_cores import plain_read

CHUNK = 16
"""Bytes of one access."""
THREADS = 256
ROUNDS = 4
"""Chunks that a thread gathers."""
FLIGHT = 16
"""Bytes of each thread that are on their way at once where a factor is copied."""


def turned_body(op: TypedOperator, plan: Plan, sites: Sites, job: Job, way: Streamed, left: bool,
                chosen: Mapping[str, int] | None = None) -> tuple[Lowering, int]:
    """The kernel that turns a factor, still open, and the number of its threads."""
    lo = Lowering(op, plan, sites, frozenset((job[0].name,)), chosen)
    _Made(lo, [job], way).turn(left)
    return lo, THREADS


def copied_body(op: TypedOperator, plan: Plan, sites: Sites, job: Job, way: Streamed, left: bool,
                chosen: Mapping[str, int] | None = None) -> tuple[Lowering, int]:
    """The kernel that copies a factor, still open, and the number of its threads."""
    lo = Lowering(op, plan, sites, frozenset((job[0].name,)), chosen)
    made = _Made(lo, [job], way)
    m = way.left if left else way.right
    (made.compute if m.computed else made.gather if m.gathered else made.copy)(left)
    return lo, THREADS


class _Made(Streams):
    """The loops of one kernel."""

    def copy(self, left: bool) -> None:
        """Writes the kernel that copies a factor."""
        lo, e = self.lo, self.e
        m, side = (self.way.left, self.down) if left else (self.way.right, self.across)
        source, target = lo.op.tensors[m.tensor], self.made(left)
        lo.scratch.append(target)
        fast, slow = (self.depth.total, side.total) if m.along else (side.total, self.depth.total)
        (step, batch_step), pitch, lines = self.steps(m, side), self.pitch(fast), FLIGHT // source.dtype.bytes
        across = e.op("floordiv", e.op("+", fast, i64(THREADS - 1)), i64(THREADS))
        down = e.op("floordiv", e.op("+", slow, i64(lines - 1)), i64(lines))
        pieces = e.op("*", self.batch.total, e.op("*", across, down))
        wanted = e.op("and", fit(self, self.way, tiles_of(self, self.way)), TRUE if m.moved else self.uneven(m))
        with e.loop("piece", i64(0), e.choose(wanted, pieces, i64(0)), kind="block") as p:
            above = e.op("quot", p, across)
            column, line = e.op("*", e.op("rest", p, across), i64(THREADS)), e.op("*", e.op("rest", above, down), i64(lines))
            batch = e.op("quot", above, down)
            with self.team.loop("t", i64(0), i64(THREADS), nonempty=True) as t:
                own, place = e.memory("own"), e.op("+", column, t)
                e.raw(form.Alloc(own, source.dtype, i64(lines)))
                # Beyond the end the last ones are read again: so all loads are under way at once.
                inside = e.op("min", place, e.op("-", fast, i64(1)))
                for k in range(lines):
                    at = e.op("*", e.op("min", e.op("+", line, i64(k)), e.op("-", slow, i64(1))), step)
                    e.raw(form.Move(own, i64(k), lo.buffer(source), e.op("+", e.op("*", batch, batch_step), e.op("+", at, inside)), 1))
                for k in range(lines):
                    row = e.op("+", line, i64(k))
                    with e.when(e.op("and", e.op("<", place, fast), e.op("<", row, slow))):
                        at = e.op("*", e.op("+", e.op("*", batch, slow), row), pitch)
                        if m.converted:
                            value = e.bind("x", form.Load(own, i64(k), source.dtype, source.dtype.compute))
                            e.raw(form.Store(target.name, e.op("+", at, place), value, target.memory))
                        else:
                            e.raw(form.Move(target.name, e.op("+", at, place), own, i64(k), 1))

    def gather(self, left: bool) -> None:
        """Writes the kernel that brings the axes of a factor into order. Chunks go to threads in the order in which they are stored."""
        lo, e = self.lo, self.e
        m, side, factor = (self.way.left, self.down, self.product.left) if left else (self.way.right, self.across, self.product.right)
        source, target, each = lo.op.tensors[m.tensor], self.made(left), self.each
        lo.scratch.append(target)
        fast, slow = (self.depth, side) if m.along else (side, self.depth)
        chunks = e.op("floordiv", e.op("+", fast.total, i64(each - 1)), i64(each))
        total = e.op("*", self.batch.total, e.op("*", slow.total, chunks))
        pieces = e.op("floordiv", e.op("+", total, i64(THREADS * ROUNDS - 1)), i64(THREADS * ROUNDS))
        first, size = fast.ranges[-1][1:]
        last = len(source.shape) - 1
        even = [e.op("==", e.op("mod", n, i64(each)), i64(0)) for n in (size, extent(lo, source, last), e.op("-", first, low(lo, source, last)))]
        together = e.all_of([*even, aligned(lo, m.tensor, each * source.dtype.bytes)])
        with e.loop("piece", i64(0), e.choose(fit(self, self.way, tiles_of(self, self.way)), pieces, i64(0)), kind="block") as p:
            with self.team.loop("t", i64(0), i64(THREADS), nonempty=True) as t:
                own = e.memory("own")
                e.raw(form.Alloc(own, source.dtype, i64(ROUNDS * each)))
                begin = e.op("+", e.op("*", p, i64(THREADS * ROUNDS)), t)
                numbers = [e.op("+", begin, i64(THREADS * k)) for k in range(ROUNDS)]
                for k, number in enumerate(numbers):
                    # Beyond the end the last one is read again: so all loads are under way at once.
                    inside = e.op("min", number, e.op("-", total, i64(1)))
                    line, place = e.op("quot", inside, chunks), e.op("*", e.op("rest", inside, chunks), i64(each))
                    with e.when(together):
                        e.raw(form.Move(own, i64(k * each), lo.buffer(source), self._address(factor, fast, slow, line, place), each))
                    with e.when(e.op("not", together)):
                        for d in range(each):
                            at = e.op("min", e.op("+", place, i64(d)), e.op("-", fast.total, i64(1)))
                            e.raw(form.Move(own, i64(k * each + d), lo.buffer(source), self._address(factor, fast, slow, line, at), 1))
                for k, number in enumerate(numbers):
                    with e.when(e.op("<", number, total)):
                        self._put(m, target, own, k * each, e.op("*", number, i64(each)))

    def compute(self, left: bool) -> None:
        """Writes the kernel that makes a factor of its codes."""
        lo, e = self.lo, self.e
        m, side, axes, factor = (self.way.left, self.down, self.product.rows, self.product.left) if left else \
            (self.way.right, self.across, self.product.columns, self.product.right)
        target, each = self.made(left), self.each
        lo.scratch.append(target)
        fast, slow = (self.depth, side) if m.along else (side, self.depth)
        chunks = e.op("floordiv", e.op("+", fast.total, i64(each - 1)), i64(each))
        total = e.op("*", self.batch.total, e.op("*", slow.total, chunks))
        pieces = e.op("floordiv", e.op("+", total, i64(THREADS - 1)), i64(THREADS))

        whole = isinstance(fast.total, form.Const) and int(fast.total.value) % each == 0

        def element(batch: Atom, line: Atom, place: Atom) -> Atom:
            row, term = (line, place) if m.along else (place, line)
            at = dict(zip(self.product.batch, unravel(lo, self.batch.ranges, batch), strict=True)) | dict(zip(axes, unravel(lo, side.ranges, row), strict=True))
            env = {n: at[axis] for n, axis in self.product.plain.items() if axis in at}
            env |= zip((name for name, _, _ in self.depth.ranges), unravel(lo, self.depth.ranges, term), strict=True)
            return e.convert(lo.value(factor, Env(env)), target.memory.compute)

        with e.loop("piece", i64(0), e.choose(fit(self, self.way, tiles_of(self, self.way)), pieces, i64(0)), kind="block") as p:
            with self.team.loop("t", i64(0), i64(THREADS), nonempty=True) as t:
                number = e.op("+", e.op("*", p, i64(THREADS)), t)
                with e.when(e.op("<", number, total)):
                    line, place = e.op("quot", number, chunks), e.op("*", e.op("rest", number, chunks), i64(each))
                    batch, inside = e.op("quot", line, slow.total), e.op("rest", line, slow.total)
                    own = e.memory("own")
                    e.raw(form.Alloc(own, target.memory, i64(each)))
                    for d in range(each):
                        # Behind the end of a line stands what nobody reads.
                        at = e.op("+", place, i64(d))
                        value = element(batch, inside, at if whole else e.op("min", at, e.op("-", fast.total, i64(1))))
                        e.raw(form.Store(own, i64(d), value, target.memory))
                    e.raw(form.Move(target.name, e.op("*", number, i64(each)), own, i64(0), each))

    def _put(self, m: Matrix, target: form.Buffer, own: str, first: int, at: Atom) -> None:
        """Stores a chunk of own elements; behind the end of a line stands what nobody reads."""
        e, source = self.e, self.lo.op.tensors[m.tensor]
        if not m.converted:
            e.raw(form.Move(target.name, at, own, i64(first), self.each))
            return
        for d in range(self.each):
            value = e.bind("x", form.Load(own, i64(first + d), source.dtype, source.dtype.compute))
            e.raw(form.Store(target.name, e.op("+", at, i64(d)), value, target.memory))

    def _address(self, factor: Expr, fast: Flat, slow: Flat, line: Atom, place: Atom) -> Atom:
        """Where a factor has an element: `line` counts the lines of all matrices of the batch."""
        lo, e, read = self.lo, self.e, plain_read(factor)
        assert read is not None, "what is gathered is a read"
        at: dict[str, Atom] = {}
        batch, inside = e.op("quot", line, slow.total), e.op("rest", line, slow.total)
        for ranges, number in ((self.batch.ranges, batch), (slow.ranges, inside), (fast.ranges, place)):
            at |= zip((name for name, _, _ in ranges), unravel(lo, ranges, number), strict=True)
        axes = {n: self.axes[k].name for n, k in self.product.plain.items()}
        return address(lo, lo.op.tensors[read.tensor], tuple(at[axes.get(i.name, i.name)] for i in read.indices if isinstance(i, Name)))

    def turn(self, left: bool) -> None:
        """Writes the kernel that turns a factor."""
        lo, e = self.lo, self.e
        m, side = (self.way.left, self.down) if left else (self.way.right, self.across)
        source, target = lo.op.tensors[m.tensor], self.made(left)
        lo.scratch.append(target)
        chunk, whole = CHUNK // source.dtype.bytes, {1: 64, 4: 32}[source.dtype.bytes]
        assert whole * whole // chunk == THREADS, "each thread brings one chunk of a square"
        lines, terms = side.total, self.depth.total
        (step, batch_step), pitch = self.steps(m, side), self.pitch(terms)
        across, down = (e.op("floordiv", e.op("+", n, i64(whole - 1)), i64(whole)) for n in (lines, terms))
        squares = e.op("*", self.batch.total, e.op("*", across, down))
        together = e.op("and", aligned(lo, m.tensor, CHUNK), e.op("not", self.uneven(m)))
        with e.loop("square", i64(0), e.choose(fit(self, self.way, tiles_of(self, self.way)), squares, i64(0)), kind="block") as p:
            above = e.op("quot", p, across)
            line, term = e.op("*", e.op("rest", p, across), i64(whole)), e.op("*", e.op("rest", above, down), i64(whole))
            batch = e.op("quot", above, down)
            square = e.memory("square")
            e.raw(form.Alloc(square, source.dtype, i64(whole * (whole + chunk)), True))
            with self.team.loop("t", i64(0), i64(THREADS), nonempty=True) as t:
                d, first = self._split(t, whole // chunk, chunk)
                row = e.op("+", line, first)
                at = e.op("+", e.op("*", batch, batch_step), e.op("+", e.op("*", e.op("+", term, d), step), row))
                own = e.memory("own")
                e.raw(form.Alloc(own, source.dtype, i64(chunk)))
                for k in range(chunk):
                    e.raw(form.Store(own, i64(k), must(0, source.dtype.compute), source.dtype))
                inside = e.op("<", e.op("+", term, d), terms)
                with e.when(e.op("and", together, e.op("and", inside, e.op("<", row, lines)))):
                    e.raw(form.Move(own, i64(0), lo.buffer(source), at, chunk))
                with e.when(e.op("not", together)):
                    for k in range(chunk):
                        with e.when(e.op("and", inside, e.op("<", e.op("+", row, i64(k)), lines))):
                            e.raw(form.Move(own, i64(k), lo.buffer(source), e.op("+", at, i64(k)), 1))
                for k in range(chunk):
                    value = form.Load(own, i64(k), source.dtype, source.dtype.compute)
                    e.raw(form.Store(square, e.op("+", e.op("*", e.op("+", first, i64(k)), i64(whole + chunk)), d), value, source.dtype))
            e.raw(form.Barrier())
            with self.team.loop("t", i64(0), i64(THREADS), nonempty=True) as t:
                n, first = self._split(t, whole // chunk, chunk)
                row, column = e.op("+", line, n), e.op("+", term, first)
                at = e.op("+", e.op("*", e.op("+", e.op("*", batch, lines), row), pitch), column)
                with e.when(e.op("and", e.op("<", row, lines), e.op("<", column, terms))):
                    e.raw(form.Move(target.name, at, square, e.op("+", e.op("*", n, i64(whole + chunk)), first), chunk))

    def _split(self, t: Atom, chunks: int, chunk: int) -> tuple[Atom, Atom]:
        """The line of a thread in the square, and where it begins there."""
        e = self.e
        return e.op("quot", t, i64(chunks)), e.op("*", e.op("rest", t, i64(chunks)), i64(chunk))
