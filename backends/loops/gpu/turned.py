"""A factor of bytes turned over, so that its terms lie side by side as tensor cores want them: squares pass through shared memory, 16 bytes at a time.

    block for tile in 0..fit ? tiles : 0 {
      thread t: 16 neighbouring lines of one term into shared memory, each to a line of its own     barrier
      thread t: 16 neighbouring terms of one line to %w.by_terms
    }
"""
from __future__ import annotations

from collections.abc import Mapping

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.emit import Atom, i64
from pipelink_ir.backends.loops.fold import must
from pipelink_ir.backends.loops.gpu.stream import Streams, fit, tiles_of
from pipelink_ir.backends.loops.lower import Lowering, Sites
from pipelink_ir.backends.loops.nests import Job
from pipelink_ir.ir.typed import TypedOperator
from pipelink_ir.passes.scheduling.costs import Plan
from pipelink_ir.passes.scheduling.streams import Streamed

SIDE, CHUNK = 64, 16
"""Places along the side of a square, and bytes of one access."""
PITCH = SIDE + CHUNK
THREADS = SIDE * SIDE // CHUNK


def turned_body(op: TypedOperator, plan: Plan, sites: Sites, job: Job, way: Streamed, left: bool,
                chosen: Mapping[str, int] | None = None) -> tuple[Lowering, int]:
    """The kernel that turns a factor, still open, and the number of its threads."""
    lo = Lowering(op, plan, sites, frozenset((job[0].name,)), chosen)
    _Turned(lo, [job], way).turn(left)
    return lo, THREADS


class _Turned(Streams):
    """The loops of one kernel."""

    def turn(self, left: bool) -> None:
        """Writes the kernel."""
        lo, e = self.lo, self.e
        m, side = (self.way.left, self.down) if left else (self.way.right, self.across)
        source, target = lo.op.tensors[m.tensor], self.turned(left)
        lo.scratch.append(target)
        lines, terms = side.total, self.depth.total
        step, batch_step = self.steps(m, side)
        across, down = (e.op("floordiv", e.op("+", n, i64(SIDE - 1)), i64(SIDE)) for n in (lines, terms))
        squares = e.op("*", self.batch.total, e.op("*", across, down))
        with e.loop("square", i64(0), e.choose(fit(self, self.way, tiles_of(self)), squares, i64(0)), kind="block") as p:
            above = e.op("quot", p, across)
            line, term = e.op("*", e.op("rest", p, across), i64(SIDE)), e.op("*", e.op("rest", above, down), i64(SIDE))
            batch = e.op("quot", above, down)
            square = e.memory("square")
            e.raw(form.Alloc(square, source.dtype, i64(SIDE * PITCH), True))
            with self.team.loop("t", i64(0), i64(THREADS), nonempty=True) as t:
                d, first = self._split(t)
                at = e.op("+", e.op("*", batch, batch_step), e.op("+", e.op("*", e.op("+", term, d), step), e.op("+", line, first)))
                inside = e.op("and", e.op("<", e.op("+", term, d), terms), e.op("<", e.op("+", line, first), lines))
                own = e.memory("own")
                e.raw(form.Alloc(own, source.dtype, i64(CHUNK)))
                for k in range(CHUNK):
                    e.raw(form.Store(own, i64(k), must(0, source.dtype.compute), source.dtype))
                with e.when(inside):
                    e.raw(form.Move(own, i64(0), lo.buffer(source), at, CHUNK))
                for k in range(CHUNK):
                    value = form.Load(own, i64(k), source.dtype, source.dtype.compute)
                    e.raw(form.Store(square, e.op("+", e.op("*", e.op("+", first, i64(k)), i64(PITCH)), d), value, source.dtype))
            e.raw(form.Barrier())
            with self.team.loop("t", i64(0), i64(THREADS), nonempty=True) as t:
                n, first = self._split(t)
                row, column = e.op("+", line, n), e.op("+", term, first)
                at = e.op("+", e.op("*", e.op("+", e.op("*", batch, lines), row), terms), column)
                with e.when(e.op("and", e.op("<", row, lines), e.op("<", column, terms))):
                    e.raw(form.Move(target.name, at, square, e.op("+", e.op("*", n, i64(PITCH)), first), CHUNK))

    def _split(self, t: Atom) -> tuple[Atom, Atom]:
        """The line of a thread in the square, and where it begins there."""
        e = self.e
        return e.op("quot", t, i64(SIDE // CHUNK)), e.op("*", e.op("rest", t, i64(SIDE // CHUNK)), i64(CHUNK))
