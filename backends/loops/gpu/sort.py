"""Sorting by all threads of a block: the candidates of one row lie in temporary memory, and runs are merged level after level.

    thread for p in 0..n { its place is its own in its run, and that which halving finds for it in the run beside: it is stored where both together say }
    barrier

Each level reads one half of the memory and writes the other. Equal candidates keep their order; those that a filter stops stand behind all others.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.build import extent_of
from pipelink_ir.backends.loops.emit import TRUE, Atom, i64
from pipelink_ir.backends.loops.fold import must
from pipelink_ir.backends.loops.gpu.flat import flat, unravel
from pipelink_ir.backends.loops.lower import Env
from pipelink_ir.backends.loops.rank import Sorted, before
from pipelink_ir.backends.loops.reduce import Position
from pipelink_ir.ir.dtypes import BOOL, F64, I32, I64
from pipelink_ir.ir.nodes import Reduce
from pipelink_ir.passes.scheduling.counts import ranges_of

if TYPE_CHECKING:
    from pipelink_ir.backends.loops.gpu.team import Team

LEVELS = 40
"""Merging doubles the length of sorted runs so often: enough for any array."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The blocks of a kernel: its name, the number of the present one, and how many there are."""

    kernel: str
    number: Atom
    count: form.Expr


def team_sort(team: Team, rows: Rows, x: Reduce, env: Env) -> Sorted:
    """The candidates of `x` in order."""
    return _Sort(team, rows, x, env).write()


class _Sort:
    def __init__(self, team: Team, rows: Rows, x: Reduce, env: Env) -> None:
        self.team, self.lo, self.e, self.x, self.env = team, team.lo, team.lo.e, x, env
        self.dtype = x.body.dtype or F64
        self.flat = flat(self.lo, ranges_of(x), env)
        self.n = self.flat.total
        size: form.Expr = form.Op("*", (rows.count, i64(2)), I64)
        for r in ranges_of(x):
            size = form.Op("*", (size, extent_of(r)), I64)
        number = len(self.lo.scratch) // 2
        self.keys, self.places = (f"{rows.kernel}.{what}{number or ''}" for what in ("keys", "places"))
        self.lo.scratch += [form.Buffer(self.keys, "temporary", self.dtype, (size,)), form.Buffer(self.places, "temporary", I32, (size,))]
        self.base = self.e.op("*", rows.number, self.e.op("*", self.n, i64(2)))

    def write(self) -> Sorted:
        e, n = self.e, self.n
        count = self._gather()
        half, width = e.var("half", self.base), e.var("width", i64(1))
        both = e.op("+", self.base, e.op("+", self.base, n))
        with e.loop("level", i64(0), i64(LEVELS)) as level:
            with e.when(e.bind("more", form.Op("<", (width, n), BOOL))):
                begin, run = e.bind("begin", half), e.bind("run", width)
                to = e.op("-", both, begin)
                twice = e.op("*", run, i64(2))
                with self.team.loop("p", i64(0), n) as p:
                    self._merge(p, run, twice, begin, to, level)
                e.raw(form.Barrier())
                e.assign(half, to)
                e.assign(width, twice)
        return Sorted(self.keys, self.places, self.dtype, count, e.bind("sorted", half))

    def _gather(self) -> Atom:
        """Stores all candidates in the first half; how many pass the filter."""
        lo, e, x = self.lo, self.e, self.x
        place = Position(lo, x, self.env)
        count = e.var("count", i64(0)) if x.where is not None else None
        with self.team.loop("p", i64(0), self.n) as p:
            at = unravel(lo, self.flat.ranges, p)
            inner = self.env.plus({name: i for (name, _, _), i in zip(self.flat.ranges, at, strict=True)})
            to = e.op("+", self.base, p)
            passes = TRUE if x.where is None else lo.value(x.where, inner)
            if count is not None:
                e.raw(form.Store(self.keys, to, must(0, self.dtype), self.dtype))
                e.raw(form.Store(self.places, to, must(-1, I32), I32))
            with e.when(passes):
                value, position = lo.value(x.body, inner), e.convert(place.of(at), I32)
                e.raw(form.Store(self.keys, to, value, self.dtype))
                e.raw(form.Store(self.places, to, position, I32))
                if count is not None:
                    e.assign(count, form.Op("+", (count, i64(1)), I64))
        e.raw(form.Barrier())
        if count is None:
            return self.n
        e.raw(form.Combine("sum", (count.name,)))
        return count

    def _merge(self, p: Atom, run: Atom, twice: Atom, begin: Atom, to: Atom, level: Atom) -> None:
        """Stores the candidate at `p` of two neighbouring runs where it belongs in the merged one."""
        e, n = self.e, self.n
        first = e.op("*", e.op("quot", p, twice), twice)
        mid = e.op("min", e.op("+", first, run), n)
        end = e.op("min", e.op("+", first, twice), n)
        left = e.op("<", p, mid)
        key, place = self._at(e.op("+", begin, p))
        low, high = e.var("low", e.choose(left, mid, first)), e.var("high", e.choose(left, end, mid))
        with e.loop("step", i64(0), e.op("+", level, i64(1))), e.when(e.bind("open", form.Op("<", (low, high), BOOL))):
            middle = e.bind("middle", form.Op("quot", (form.Op("+", (low, high), I64), i64(2)), I64))
            key2, place2 = self._at(e.bind("there", form.Op("+", (begin, middle), I64)))
            # Of equals those of the left run go first.
            further = e.choose(left, self._before(key2, place2, key, place), e.op("not", self._before(key, place, key2, place2)))
            with e.when(further):
                e.assign(low, form.Op("+", (middle, i64(1)), I64))
            with e.when(e.op("not", further)):
                e.assign(high, middle)
        found = e.bind("found", low)
        at = e.op("+", to, e.op("+", e.op("-", p, mid), found))
        e.raw(form.Store(self.keys, at, key, self.dtype))
        e.raw(form.Store(self.places, at, place, I32))

    def _at(self, at: Atom) -> tuple[Atom, Atom]:
        e = self.e
        return (e.bind("key", form.Load(self.keys, at, self.dtype, self.dtype.compute)), e.bind("place", form.Load(self.places, at, I32, I32)))

    def _before(self, a: Atom, p: Atom, b: Atom, q: Atom) -> Atom:
        """Whether candidate a at place p stands strictly before b at q."""
        e = self.e
        less = before(e, a, b)
        if self.x.where is None:
            return less
        there, other = e.op(">=", p, must(0, I32)), e.op(">=", q, must(0, I32))
        return e.op("and", there, e.op("or", e.op("not", other), less))
