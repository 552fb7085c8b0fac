"""A row that the threads of a block, or some of them, keep in registers: who has which part of it, and loops over that."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.emit import TRUE, Atom, Frame, i64, key_of
from pipelink_ir.backends.loops.gpu.vector import Wide, hold, unrolled
from pipelink_ir.backends.loops.lower import Lowering
from pipelink_ir.ir.nodes import Reduce
from pipelink_ir.passes.scheduling.counts import known, ranges_of

LANES = 32
"""Threads that run together: a block has a multiple of them."""
ONE = i64(1)


@dataclass(slots=True)
class Row:
    """The rows of one kernel: their length, who has which part, and what is kept of them."""

    lo: Lowering
    length: Atom
    threads: Atom
    count: int
    vectors: int
    kept: list[Wide]
    apart: Atom | None = None
    """Whether a row belongs to `LANES` threads, so that a block has several; None: never."""
    rows: Atom = ONE
    """The rows of a block."""
    fixed: dict[str, Atom] = field(default_factory=dict)
    """What the outer axes are, by number."""
    computed: dict[str, str | None] = field(default_factory=dict)
    """Locals worth keeping, and where they are kept once they are."""
    allocs: list[form.Alloc] = field(default_factory=list)
    """Where that is, to be declared before the first loop."""
    alone: list[Frame] = field(default_factory=list)
    """The frames in which threads go their own ways."""
    whole: Atom = ONE
    """The length of the row of a thread, 0 if it has none, …"""
    inside: Atom = TRUE
    """… and whether it has one."""

    @property
    def own(self) -> int:
        return self.vectors * self.count

    def covers(self, x: Reduce, total: Atom) -> bool:
        """Whether a reduction runs over the row."""
        ranges = ranges_of(x)
        return len(ranges) == 1 and (ranges[0].lo is None or known(ranges[0].lo) == 0) and key_of(total) == key_of(self.length)

    def combine(self, fn: str, names: tuple[str, ...]) -> form.Combine:
        """How the threads of a row combine what they hold."""
        return form.Combine(fn, names, self.apart, i64(LANES))

    def number(self, t: Atom) -> Atom:
        """The number of a thread among those that have the same row."""
        e = self.lo.e
        return t if self.apart is None else e.choose(self.apart, e.op("rest", t, i64(LANES)), t)

    def begin(self, p: Atom, places: Atom) -> Atom:
        """In turn `p` of a block: the row of the thread, which may differ between them. From here on those that have none find it empty."""
        e = self.lo.e
        self.whole = self.length
        if self.apart is None:
            return p
        place = e.choose(self.apart, e.op("quot", e.bind("thread", form.Thread()), i64(LANES)), i64(0))
        row = e.op("+", e.op("*", p, self.rows), place)
        self.inside = e.op("<", row, places)
        self.whole = e.choose(self.inside, self.length, i64(0))
        return row

    def read_at(self, w: Wide, k: Atom) -> tuple[Atom, ...]:
        """The indices of a read at a place of the row."""
        return w.at(self.lo, [*self.fixed.values(), k])

    @contextmanager
    def vector(self) -> Iterator[tuple[Atom, Atom]]:
        """In a loop over the threads: a loop over the vectors of one, where each begins in its own memory and in the row. Those behind the end are left out."""
        with self.each() as t, self.vectors_of(t, 0, self.vectors) as (_, begin, first, _):
            yield begin, first

    @contextmanager
    def vectors_of(self, t: Atom, at: int, size: int, sure: bool = False) -> Iterator[tuple[Atom, Atom, Atom, list[form.Stmt]]]:
        """A loop over `size` vectors of thread `t` from number `at` on: the number among them, where each begins in the thread's own memory and in the row,
        and statements for those behind the end. `sure`: there are none."""
        e, outside = self.lo.e, list[form.Stmt]()
        with unrolled(self.lo, "r", size) as one:
            v = e.op("+", one, i64(at))
            begin, beyond, start = e.op("*", v, i64(self.count)), e.op("*", v, i64(LANES * self.count)), self._start(t)
            first = e.op("+", start, beyond)
            # Compared with a constant: that takes no register of its own.
            cond = e.op("<", beyond, e.op("-", self.whole, start))
            # Nothing but loads and stores must stay inside: what else does not depend on the place may leave the loops.
            with e.frame("loop") as f:
                yield one, begin, first, outside
            for s in f.stmts if sure else (form.If(cond, tuple(f.stmts), tuple(outside)),):
                e.raw(s)

    def all_inside(self, t: Atom) -> Atom:
        """Whether thread `t` has all of its vectors."""
        e = self.lo.e
        return e.op("<", i64((self.vectors - 1) * LANES * self.count), e.op("-", self.whole, self._start(t)))

    def _start(self, t: Atom) -> Atom:
        """Where the first vector of thread `t` begins in the row. The others lie at constant distances: one address serves them all."""
        e, number, lanes = self.lo.e, self.number(t), i64(LANES)
        own = e.op("+", e.op("*", e.op("quot", number, lanes), i64(LANES * self.vectors)), e.op("rest", number, lanes))
        return e.op("*", own, i64(self.count))

    @contextmanager
    def each(self) -> Iterator[Atom]:
        """A loop with a turn for each thread."""
        e = self.lo.e
        with e.loop("t", i64(0), self.threads, kind="each", nonempty=True) as t:
            self.alone.append(e.frames[-1])
            yield t

    @contextmanager
    def places(self) -> Iterator[Atom]:
        """All places of the row, shared out among the threads: in their own memory what is kept, from now on also what is computed for each."""
        with self.vector() as (begin, first), self.within(begin, first) as k:
            yield k

    @contextmanager
    def within(self, begin: Atom, first: Atom) -> Iterator[Atom]:
        """The places of one vector."""
        e = self.lo.e
        with unrolled(self.lo, "d", self.count) if self.count > 1 else nullcontext(i64(0)) as d:
            k, own = e.op("+", first, d), e.op("+", begin, d)
            for w in self.kept:
                hold(self.lo, w, self.read_at(w, k), own)
            self._recall(k, own)
            yield k
            self._record(k, own)

    def _key(self, name: str, k: Atom) -> tuple[object, ...]:
        return ("inline", name, tuple(map(key_of, (*self.fixed.values(), k))))

    def _recall(self, k: Atom, own: Atom) -> None:
        for name, memory in self.computed.items():
            if memory is not None:
                dtype = self.lo.op.tensors[name].dtype.compute
                self.lo.e.remember(self._key(name, k), self.lo.e.bind(name.rsplit(".", 1)[-1], form.Load(memory, own, dtype, dtype)))

    def _record(self, k: Atom, own: Atom) -> None:
        e = self.lo.e
        for name, memory in self.computed.items():
            value = e.top.memo.get(self._key(name, k))
            if memory is None and value is not None:
                self.computed[name] = memory = e.memory(f"{name.rsplit('.', 1)[-1]}_row")
                self.allocs.append(form.Alloc(memory, value.dtype, i64(self.own)))
                e.raw(form.Store(memory, own, value, value.dtype))
