"""Transpositions on a GPU: where a definition reads along another axis than it writes, a square of it passes through shared memory.

    block for tile in … {
      thread: a square of x, neighbouring threads at neighbours in x, into shared memory
      barrier
      thread: the values of that square, neighbouring threads at neighbours in the result
    }
"""
from __future__ import annotations

from collections.abc import Mapping

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.emit import Atom, i64, key_of
from pipelink_ir.backends.loops.gpu_flat import Flat, unravel
from pipelink_ir.backends.loops.gpu_team import Team
from pipelink_ir.backends.loops.lower import Lowering, Sites
from pipelink_ir.backends.loops.nests import Job, Nest
from pipelink_ir.backends.loops.reads import address
from pipelink_ir.ir.typed import TypedOperator
from pipelink_ir.passes.scheduling.costs import Plan
from pipelink_ir.passes.scheduling.turns import Turn
from pipelink_ir.passes.scheduling.uses import Use

SIDE = 32
"""Places along each side of a square."""


def turn_body(op: TypedOperator, plan: Plan, sites: Sites, job: Job, turn: Turn, chosen: Mapping[str, int] | None = None) -> Lowering:
    """The kernel of a transposition, still open."""
    lo = Lowering(op, plan, sites, frozenset((job[0].name,)), chosen)
    _Square(lo, [job], turn).write()
    return lo


class _Square(Nest):
    """The loops of one kernel."""

    def __init__(self, lo: Lowering, jobs: list[Job], turn: Turn) -> None:
        super().__init__(lo, jobs)
        self.turn, self.team = turn, Team(lo)
        self.down, self.across = turn.along, len(self.axes) - 1
        others = [a for k, a in enumerate(self.axes) if k not in (self.down, self.across)]
        self.others = Flat(tuple((a.name, a.lo, a.n) for a in others), self._total(others))

    def write(self) -> None:
        """Writes the kernel."""
        e = self.e
        across, down = self._squares(self.across), self._squares(self.down)
        with e.loop("square", i64(0), e.op("*", self.others.total, e.op("*", across, down)), kind="block") as p:
            above = e.op("quot", p, across)
            column, row = e.op("*", e.op("rest", p, across), i64(SIDE)), e.op("*", e.op("rest", above, down), i64(SIDE))
            fixed = dict(zip([k for k in range(len(self.axes)) if k not in (self.down, self.across)],
                             unravel(self.lo, self.others.ranges, e.op("quot", above, down)), strict=True))
            self._readable(lambda: self._square(fixed, row, column))

    def _squares(self, axis: int) -> Atom:
        n = self.e.op("max", self.axes[axis].n, i64(0))
        return self.e.op("floordiv", self.e.op("+", n, i64(SIDE - 1)), i64(SIDE))

    def _square(self, fixed: Mapping[int, Atom], row: Atom, column: Atom) -> None:
        e = self.e
        memory = []
        for u in self.turn.reads:
            memory.append(e.memory("square"))
            # One place more in each row keeps neighbouring threads off the same bank of memory.
            e.raw(form.Alloc(memory[-1], self.lo.op.tensors[u.tensor].dtype, i64(SIDE * (SIDE + 1)), True))
        with self.team.loop("s", i64(0), i64(SIDE * SIDE), nonempty=True) as s:
            i, j = e.op("rest", s, i64(SIDE)), e.op("quot", s, i64(SIDE))
            with e.when(self._inside(row, i, column, j)):
                for u, name in zip(self.turn.reads, memory, strict=True):
                    t = self.lo.op.tensors[u.tensor]
                    value = e.load(self.lo.buffer(t), address(self.lo, t, self._at(u, self._places(fixed, row, i, column, j))), t.dtype, True, t.name)
                    e.raw(form.Store(name, self._spot(i, j), value, t.dtype))
        e.raw(form.Barrier())
        with self.team.loop("s", i64(0), i64(SIDE * SIDE), nonempty=True) as s:
            i, j = e.op("quot", s, i64(SIDE)), e.op("rest", s, i64(SIDE))
            with e.when(self._inside(row, i, column, j)):
                places = self._places(fixed, row, i, column, j)
                for u, name in zip(self.turn.reads, memory, strict=True):
                    dtype = self.lo.op.tensors[u.tensor].dtype
                    value = e.bind(u.tensor, form.Load(name, self._spot(i, j), dtype, dtype.compute))
                    e.remember(("read", u.tensor, u.access, tuple(map(key_of, self._at(u, places)))), value)
                self.element(places)

    def _spot(self, i: Atom, j: Atom) -> Atom:
        return self.e.op("+", self.e.op("*", j, i64(SIDE + 1)), i)

    def _inside(self, row: Atom, i: Atom, column: Atom, j: Atom) -> Atom:
        """Whether place (i, j) of a square is in the result; i counts along the axis that is fast where it is read."""
        e = self.e
        return e.op("and", e.op("<", e.op("+", row, i), self.axes[self.down].n), e.op("<", e.op("+", column, j), self.axes[self.across].n))

    def _places(self, fixed: Mapping[int, Atom], row: Atom, i: Atom, column: Atom, j: Atom) -> list[Atom]:
        e = self.e
        down, across = self.axes[self.down].lo, self.axes[self.across].lo
        at = {**fixed, self.down: e.op("+", down, e.op("+", row, i)), self.across: e.op("+", across, e.op("+", column, j))}
        return [at[k] for k in range(len(self.axes))]

    def _at(self, u: Use, places: list[Atom]) -> tuple[Atom, ...]:
        """The indices of a read at a place of the result."""
        by_name = {a.index: i for a, i in zip(self.jobs[0][1].axes, places, strict=True)}
        return tuple(by_name[next(iter(lin.names))] if lin.names else i64(lin.constant) for lin in u.at)
