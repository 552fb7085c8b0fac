"""Transpositions on a GPU: where a definition reads along another axis than it writes, a square of it passes through shared memory.

    block for tile in … {
      thread: a square of x, neighbouring threads at neighbours in x, into shared memory
      barrier
      thread: the values of that square, neighbouring threads at neighbours in the result
    }
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.emit import Atom, i64, key_of
from pipelink_ir.backends.loops.gpu.flat import Flat, unravel
from pipelink_ir.backends.loops.gpu.team import Team
from pipelink_ir.backends.loops.lower import Lowering, Sites
from pipelink_ir.backends.loops.nests import Job, Nest
from pipelink_ir.backends.loops.reads import address
from pipelink_ir.ir.typed import TypedOperator
from pipelink_ir.passes.scheduling.costs import STORED, Costs, Plan
from pipelink_ir.passes.scheduling.turns import Turn
from pipelink_ir.passes.scheduling.uses import Use

SIDE = 64
"""Places along each side of a square …"""
ROOM = 24 << 10
"""… half as many, or a quarter, where its bytes are more than this."""
THREADS = 256
"""Threads of a block, if a square has as many places."""
PLAIN = 8.0
"""What the value of a place costs at most where those of a thread are written out."""


def turn_body(op: TypedOperator, plan: Plan, sites: Sites, job: Job, turn: Turn, chosen: Mapping[str, int] | None = None) -> tuple[Lowering, int]:
    """The kernel of a transposition, still open, and the number of threads that it needs."""
    lo = Lowering(op, plan, sites, frozenset((job[0].name,)), chosen)
    square = _Square(lo, [job], turn)
    square.write()
    return lo, square.threads


class _Square(Nest):
    """The loops of one kernel."""

    def __init__(self, lo: Lowering, jobs: list[Job], turn: Turn) -> None:
        super().__init__(lo, jobs)
        self.turn, self.team = turn, Team(lo)
        self.down, self.across = turn.along, len(self.axes) - 1
        others = [a for k, a in enumerate(self.axes) if k not in (self.down, self.across)]
        bytes_ = sum(lo.op.tensors[u.tensor].dtype.bytes for u in turn.reads)
        self.side = next((n for n in (SIDE, SIDE // 2) if n * n * bytes_ <= ROOM), max(1, SIDE // 4))
        self.threads = min(THREADS, self.side * self.side)
        self.plain = Costs(lo.op, lambda name: STORED).of(jobs[0][1].value) <= PLAIN
        self.others = Flat(tuple((a.name, a.lo, a.n) for a in others), self._total(others))

    def write(self) -> None:
        """Writes the kernel."""
        e = self.e
        across, down = self._squares(self.across), self._squares(self.down)
        with e.loop("square", i64(0), e.op("*", self.others.total, e.op("*", across, down)), kind="block") as p:
            above = e.op("quot", p, across)
            column, row = e.op("*", e.op("rest", p, across), i64(self.side)), e.op("*", e.op("rest", above, down), i64(self.side))
            fixed = dict(zip([k for k in range(len(self.axes)) if k not in (self.down, self.across)],
                             unravel(self.lo, self.others.ranges, e.op("quot", above, down)), strict=True))
            self._readable(lambda: self._square(fixed, row, column))

    def _squares(self, axis: int) -> Atom:
        n = self.e.op("max", self.axes[axis].n, i64(0))
        return self.e.op("floordiv", self.e.op("+", n, i64(self.side - 1)), i64(self.side))

    def _square(self, fixed: Mapping[int, Atom], row: Atom, column: Atom) -> None:
        e, lo, side = self.e, self.lo, self.side
        memory = []
        for u in self.turn.reads:
            memory.append(e.memory("square"))
            # One place more in each row keeps neighbouring threads off the same bank of memory.
            e.raw(form.Alloc(memory[-1], lo.op.tensors[u.tensor].dtype, i64(side * (side + 1)), True))
        turns = side * side // self.threads
        with self._each() as (fast, slow):
            last = [e.op("-", self.axes[k].n, i64(1)) for k in (self.down, self.across)]
            for u, name in zip(self.turn.reads, memory, strict=True):
                t = lo.op.tensors[u.tensor]
                kept = e.memory(u.tensor)
                e.raw(form.Alloc(kept, t.dtype, i64(turns)))
                # All are under way before the first is waited for. Beyond the end the last place is loaded again.
                with e.loop("k", i64(0), i64(turns), nonempty=True, unroll=True) as k:
                    i, j = e.op("min", e.op("+", row, fast), last[0]), e.op("min", e.op("+", column, self._further(slow, k)), last[1])
                    e.raw(form.Move(kept, k, lo.buffer(t), address(lo, t, self._at(u, self._places(fixed, i, j))), 1))
                with e.loop("k", i64(0), i64(turns), nonempty=True, unroll=True) as k:
                    e.raw(form.Move(name, self._spot(fast, self._further(slow, k)), kept, k, 1))
        e.raw(form.Barrier())
        with self._each() as (fast, slow), e.loop("k", i64(0), i64(turns), nonempty=True, unroll=self.plain) as k:
            down = self._further(slow, k)
            i, j = e.op("+", row, down), e.op("+", column, fast)
            with e.when(e.op("and", e.op("<", i, self.axes[self.down].n), e.op("<", j, self.axes[self.across].n))):
                places = self._places(fixed, i, j)
                for u, name in zip(self.turn.reads, memory, strict=True):
                    dtype = lo.op.tensors[u.tensor].dtype
                    value = e.bind(u.tensor, form.Load(name, self._spot(down, fast), dtype, dtype.compute))
                    e.remember(("read", u.tensor, u.access, tuple(map(key_of, self._at(u, places)))), value)
                self.element(places)

    @contextmanager
    def _each(self) -> Iterator[tuple[Atom, Atom]]:
        """The work of one thread, with its place along the side of a square that is fast in memory, and the first along the other."""
        e = self.e
        with self.team.each("t", self.threads) as t:
            yield e.op("rest", t, i64(self.side)), e.op("quot", t, i64(self.side))

    def _further(self, slow: Atom, k: Atom) -> Atom:
        return self.e.op("+", slow, self.e.op("*", k, i64(self.threads // self.side)))

    def _spot(self, i: Atom, j: Atom) -> Atom:
        return self.e.op("+", self.e.op("*", j, i64(self.side + 1)), i)

    def _places(self, fixed: Mapping[int, Atom], i: Atom, j: Atom) -> list[Atom]:
        e = self.e
        at = {**fixed, self.down: e.op("+", self.axes[self.down].lo, i), self.across: e.op("+", self.axes[self.across].lo, j)}
        return [at[k] for k in range(len(self.axes))]

    def _at(self, u: Use, places: list[Atom]) -> tuple[Atom, ...]:
        """The indices of a read at a place of the result."""
        by_name = {a.index: i for a, i in zip(self.jobs[0][1].axes, places, strict=True)}
        return tuple(by_name[next(iter(lin.names))] if lin.names else i64(lin.constant) for lin in u.at)
