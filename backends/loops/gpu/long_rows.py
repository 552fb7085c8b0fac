"""Kernels of long rows: blocks reduce parts of a row, leave what they find, and put together what the parts gave, by rounds (`scheduling/long_rows.py`).

    block by tickets for turn in 0..steps * rounds * parts {
      step, round, part = turn ; row = step - round * LAG
      if round == 0 { thread: %max of the part ; combine ; %max_parts[row, part] = max ; signal }
      if round == 1 { await those of round 0 ; thread: %max_parts[row, 0..parts] ; combine ; … the sum of the part … ; signal }
      if round == 2 { await those of round 1 ; … ; thread: results of the part }
    }

A turn waits for such as begin before it alone, and turns begin in their order, so whichever blocks the device runs, somebody goes on. Parts are put together
in one order, so that results are the same in every run. Another kernel clears the counters before.
"""
from __future__ import annotations

from collections.abc import Callable

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.build import extent_of, size_of
from pipelink_ir.backends.loops.emit import TRUE, Atom, i64
from pipelink_ir.backends.loops.fold import must
from pipelink_ir.backends.loops.gpu.nests import GpuNest
from pipelink_ir.backends.loops.gpu.team import COMBINED, Team
from pipelink_ir.backends.loops.gpu.vector import Wide, aligned, count_of, hold, keep, stored, unrolled
from pipelink_ir.backends.loops.lower import Env, Lowering, Sites
from pipelink_ir.backends.loops.nests import Job
from pipelink_ir.backends.loops.reads import address
from pipelink_ir.backends.loops.reduce import Kind, Seen, add_term, finish, kind_of, reduced
from pipelink_ir.ir.dtypes import F64, I32, I64, DType
from pipelink_ir.ir.nodes import Reduce
from pipelink_ir.ir.typed import TypedOperator
from pipelink_ir.passes.scheduling.costs import Plan
from pipelink_ir.passes.scheduling.counts import ranges_of
from pipelink_ir.passes.scheduling.long_rows import ABOVE, LongRows, Reduced
from pipelink_ir.passes.scheduling.rows import ROW, along_row, is_run
from pipelink_ir.passes.scheduling.shape import reads_of
from pipelink_ir.passes.scheduling.uses import Use

THREADS = 512
"""Threads of a block: each adds up a few terms in their dtype, the sums of threads and of parts are added in f64."""
FIT = 3
"""Blocks that a multiprocessor should hold."""
PART = 4096
"""Elements of a part, …"""
MANY = ((1 << 21, 1), (1 << 23, 2))
"""… and by how many times as many it is larger where there are so many elements: then all blocks have parts, and fewer leave less to put together."""
LAG = 1
"""By how many rows a round is behind the one before it."""
ONE = i64(1)


def long_rows_body(op: TypedOperator, plan: Plan, sites: Sites, jobs: list[Job], way: LongRows) -> tuple[Lowering, int]:
    """The kernel, still open, and the threads of a block; or the one that clears its counters."""
    lo = Lowering(op, plan, sites, frozenset(t.name for t, _ in jobs))
    nest = _LongNest(lo, jobs, way)
    if way.begins:
        nest.clear()
        return lo, 0
    nest.write()
    lo.fit = FIT
    return lo, THREADS


class _LongNest(GpuNest):
    """The loops of one kernel."""

    def __init__(self, lo: Lowering, jobs: list[Job], way: LongRows) -> None:
        super().__init__(lo, jobs)
        self.way, self.rounds = way, len(way.rounds)
        self.blocks = [self.axes[k] for k in way.outer]
        name = jobs[0][0].name
        length = size_of(way.length)
        rows: form.Expr = i64(1)
        for k in way.outer:
            rows = _op("*", rows, _op("max", extent_of(jobs[0][1].axes[k]), i64(0)))
        # Of rows that are not long there are none.
        there = _op("min", _op("max", _op("-", length, i64(ABOVE)), i64(0)), ONE)
        self.counters = form.Buffer(f"{name}.counters", "temporary", I32, (_op("*", _op("+", _op("*", rows, i64(self.rounds)), ONE), there),))
        size: form.Expr = ONE
        for many, times in MANY:
            size = _op("+", size, _op("*", _op("min", _op("floordiv", _op("*", rows, length), i64(many)), ONE), i64(times)))
        size = _op("*", size, i64(PART))
        parts = _op("*", _op("floordiv", _op("+", length, _op("-", size, ONE)), size), there)
        self.parts = {id(x): form.Buffer(f"{name}.parts.{k}", "temporary", _kept(x), (rows, parts))
                      for k, x in enumerate(r.reduce for found in way.rounds for r in found)}

    def clear(self) -> None:
        """All counters are zero from now on."""
        e = self.e
        self.lo.scratch.append(self.counters)
        with e.loop("i", i64(0), e.op("+", e.op("*", self._total(self.blocks), i64(self.rounds)), ONE), kind="grid") as i:
            e.raw(form.Store(self.counters.name, i, must(0, I32), I32))

    def write(self) -> None:
        """Writes the kernel."""
        lo, e = self.lo, self.e
        lo.scratch += [self.counters, *self.parts.values()]
        lo.tickets = self.counters.name
        self.team = Team(lo)
        self.n = e.op("max", lo.index(self.way.length, lo.root), i64(0))
        self.total = self._total(self.blocks)
        elements = e.op("*", self.total, self.n)
        self.size: Atom = i64(PART)
        for many, times in MANY:
            self.size = e.op("+", self.size, e.choose(e.op("<", elements, i64(many)), i64(0), i64(times * PART)))
        self.count = e.op("quot", e.op("+", self.n, e.op("-", self.size, ONE)), self.size, hint="parts")
        runs = [w.tensor for found in self.way.rounds for r in found for w in self._loads(r)]
        self.wide = count_of([*runs, *(t for t, _ in self.jobs if len(self.way.outer) < len(self.axes))]) if runs else 1
        last = self.rounds
        steps = e.op("+", self.total, i64(last * LAG))
        turns = e.choose(e.op(">", self.total, i64(0)), e.op("*", e.op("*", steps, i64(last + 1)), self.count), i64(0))
        with e.loop("turn", i64(0), turns, kind="block") as turn:
            slot, part = e.op("quot", turn, self.count, hint="slot"), e.op("rest", turn, self.count, hint="part")
            step, number = e.op("quot", slot, i64(last + 1), hint="step"), e.op("rest", slot, i64(last + 1), hint="round")
            row = e.op("-", step, e.op("*", number, i64(LAG)))
            inside = e.op("and", e.op(">=", row, i64(0)), e.op("<", row, self.total))
            with e.when(inside):
                self._readable(lambda: self._by_round(number, row, part))

    def _by_round(self, number: Atom, row: Atom, part: Atom) -> None:
        e = self.e
        for k in range(self.rounds + 1):
            now = e.op("==", number, i64(k))
            if k == self.rounds and len(self.way.outer) == len(self.axes):
                now = e.op("and", now, e.op("==", part, i64(0)))  # one block is enough for one result
            with e.when(now):
                self._round(k, row, part)

    def _round(self, k: int, row: Atom, part: Atom) -> None:
        e = self.e
        fixed = dict(zip(self.way.outer, self._places(self.blocks, row), strict=True))
        self.fixed = fixed
        # All parts but the first of a row begin where wide accesses may.
        self.off = e.op("rest", e.op("*", row, self.n), i64(self.wide), hint="off")
        first, end = self._bounds(part)
        counter = e.op("+", e.op("*", row, i64(self.rounds)), i64(k))
        begin = e.op("*", row, self.count)
        if k:
            e.raw(form.AwaitCount(self.counters.name, counter, self.count))
        for found in self.way.rounds[:k]:
            for r in found:
                self._gather(r, begin)
        if k < self.rounds:
            bases = {id(r.base) for r in self.way.rounds[k] if r.base is not None}
            for r in self.way.rounds[k]:
                acc = self._reduce(r, first, end, e.op("+", begin, part))
                if id(r.reduce) in bases:
                    # What else is reduced of this part looks at what this is of the part.
                    e.remember(reduced(r.reduce, self._env(r)), finish(self.lo, r.reduce, self._kind(r.reduce), acc, e.op("-", end, first), TRUE))
            e.raw(form.Signal(self.counters.name, e.op("+", counter, ONE)))
        elif len(self.way.outer) < len(self.axes):
            self._results(first, end)
        else:
            self.element([fixed[axis] for axis in range(len(self.axes))])

    def _bounds(self, part: Atom) -> tuple[Atom, Atom]:
        """Where a part begins and ends."""
        e = self.e
        first = e.op("max", e.op("-", e.op("*", part, self.size), self.off), i64(0))
        last = e.op("==", part, e.op("-", self.count, ONE))
        return first, e.choose(last, self.n, e.op("-", e.op("*", e.op("+", part, ONE), self.size), self.off))

    def _env(self, r: Reduced) -> Env:
        return Env({n: self.fixed[axis] for n, axis in r.plain})

    def _reduce(self, r: Reduced, first: Atom, end: Atom, place: Atom) -> Atom:
        """A reduction over the places from `first` on."""
        lo, e, x, env = self.lo, self.e, r.reduce, self._env(r)
        kind = kind_of(x)
        acc, index = e.var(x.kind, kind.neutral), ranges_of(x)[0].index

        def term(k: Atom) -> None:
            add_term(lo, x, env.plus({index: k}), kind, acc, Seen(lo, x, env), kind.join == "+")

        self._places_between(first, end, self._loads(r), [], term)
        memory = self.parts[id(x)]
        out = acc
        if memory.memory is not kind.dtype:
            out = e.var("wide", must(0, memory.memory))
            e.assign(out, form.Convert(acc, memory.memory, memory.memory))
        e.raw(form.Combine(COMBINED[kind.join], (out.name,)))
        e.raw(form.Store(memory.name, place, out, memory.memory))
        return out

    def _results(self, first: Atom, end: Atom) -> None:
        """The results at the places from `first` on."""
        jobs = self.jobs
        wide = [t for t, piece in jobs if not piece.holes and is_run(t, None, jobs[0][1], self.way)]
        stores = [stored(self.lo, t, piece) for t, piece in jobs] if len(wide) == len(jobs) else []
        at: list[Use] = []
        for (_, piece), uses in zip(jobs, self.uses, strict=True):
            names = {a.index: f"{k}" if k in self.way.outer else ROW for k, a in enumerate(piece.axes)}
            at += [u for u in (along_row(u, names) for u in uses.uses) if u is not None]
        self._places_between(first, end, self._runs(at), stores, lambda k: self.element([*self.fixed.values(), k]))

    def _loads(self, r: Reduced) -> list[Wide]:
        x, plain = r.reduce, dict(r.plain)
        names = {**{n: f"{k}" for n, k in plain.items()}, "#1": ROW}
        return self._runs([u for u in (along_row(u, names) for u in reads_of(self.lo.op, self.lo.plan.local, x, plain)) if u is not None])

    def _runs(self, uses: list[Use]) -> list[Wide]:
        """Reads of rows that follow each other in memory: they begin at odd places where the results do."""
        lo, axes = self.lo, (*(f"{k}" for k in self.way.outer), ROW)
        found = {u: lo.op.tensors[u.tensor] for u in uses}
        return [Wide(t, self.e.memory(f"{t.name}_own"), u, axes) for u, t in found.items() if is_run(t, u, self.jobs[0][1], self.way)]

    def _places_between(self, first: Atom, end: Atom, loads: list[Wide], stores: list[Wide], one: Callable[[Atom], None]) -> None:
        """`one` for all places of a part, shared out among the threads: by wide accesses as far as they go, then one by one."""
        lo, e, count = self.lo, self.e, self.wide
        begin: Atom = end
        if count > 1 and loads:
            wide = e.all_of([aligned(lo, t, count) for t in {w.tensor.name: w.tensor for w in (*loads, *stores)}.values()])
            off = e.op("rest", e.op("+", first, self.off), i64(count))
            begin = e.choose(wide, e.op("min", e.op("+", first, e.op("rest", e.op("-", i64(count), off), i64(count))), end), end)
            vectors = e.op("quot", e.op("-", end, begin), i64(count))
            with self.team.loop("v", i64(0), vectors, unroll=True) as v:
                self._vector(e.op("+", begin, e.op("*", v, i64(count))), loads, stores, one)
            behind = e.op("+", begin, e.op("*", vectors, i64(count)))
        else:
            behind = end
        before = e.op("-", begin, first)
        with self.team.loop("i", i64(0), e.op("+", before, e.op("-", end, behind)), unroll=count < 2 or not loads) as i:
            one(e.choose(e.op("<", i, before), e.op("+", first, i), e.op("+", behind, e.op("-", i, before))))

    def _vector(self, k: Atom, loads: list[Wide], stores: list[Wide], one: Callable[[Atom], None]) -> None:
        lo, e = self.lo, self.e
        at = [*self.fixed.values(), k]
        for w in (*loads, *stores):
            e.raw(form.Alloc(w.own, w.dtype, i64(self.wide)))
        for w in loads:
            e.raw(form.Move(w.own, i64(0), lo.buffer(w.tensor), address(lo, w.tensor, w.at(lo, at)), self.wide))
        with unrolled(lo, "d", self.wide) as d:
            here = [*at[:-1], e.op("+", k, d)]
            for w in loads:
                hold(lo, w, w.at(lo, here), d)
            if not stores:
                one(here[-1])
            for (_, piece), w in zip(self.jobs, stores, strict=False):
                keep(lo, w, piece, here, d)
        for w in stores:
            e.raw(form.Move(lo.buffer(w.tensor), address(lo, w.tensor, w.at(lo, at)), w.own, i64(0), self.wide))

    def _kind(self, x: Reduce) -> Kind:
        """How what parts give is joined."""
        kind, kept = kind_of(x), self.parts[id(x)].memory
        return Kind(kind.join, kind.neutral if kept is kind.dtype else must(0, kept), kept)

    def _gather(self, r: Reduced, begin: Atom) -> None:
        """What all parts give, from now on the value of the reduction."""
        lo, e, x, env, kind = self.lo, self.e, r.reduce, self._env(r), self._kind(r.reduce)
        base: Atom = ONE if r.base is None else e.find(reduced(r.base, env))
        acc = e.var(x.kind, kind.neutral)
        with self.team.loop("p", i64(0), self.count) as p:
            value = self._part(x, e.op("+", begin, p))
            if r.base is not None:
                value = (self._raised if r.rule == "exp" else self._moved)(value, self._part(r.base, e.op("+", begin, p)), base, p)
            e.assign(acc, form.Op(kind.join, (acc, value), kind.dtype))
        e.raw(form.Combine(COMBINED[kind.join], (acc.name,)))
        seen = Seen(lo, x, env)
        e.remember(reduced(x, env), finish(lo, x, kind, acc, seen.count(), seen.any()))

    def _part(self, x: Reduce, place: Atom) -> Atom:
        memory = self.parts[id(x)]
        return self.e.bind("part", form.Load(memory.name, place, memory.memory, memory.memory))

    def _raised(self, total: Atom, own: Atom, top: Atom, p: Atom) -> Atom:
        """The sum of exponentials of what is above the largest of the part, `own`, as one of what is above the largest of all."""
        e = self.e
        factor = e.op("exp", e.op("-", e.convert(own, F64), e.convert(top, F64)))
        none = e.op("==", own, must(float("-inf"), own.dtype))
        return e.choose(e.op("==", own, top), total, e.choose(none, must(0, F64), e.op("*", total, factor)))

    def _moved(self, total: Atom, own: Atom, mean: Atom, p: Atom) -> Atom:
        """The sum of squares of distances from the mean of the part, whose sum is `own`, as one of distances from the mean of all."""
        e = self.e
        first, end = self._bounds(p)
        count = e.convert(e.op("-", end, first), F64)
        centre = e.convert(e.convert(e.op("/", own, count), mean.dtype), F64)
        off = e.op("-", centre, e.convert(mean, F64))
        rest = e.op("-", own, e.op("*", count, centre))  # the mean of the part was rounded
        return e.op("+", total, e.op("*", off, e.op("+", e.op("*", must(2, F64), rest), e.op("*", count, off))))


def _kept(x: Reduce) -> DType:
    """How what a part gives is kept."""
    kind = kind_of(x)
    return F64 if kind.join == "+" and kind.dtype.is_float else kind.dtype


def _op(fn: str, a: form.Expr, b: form.Expr) -> form.Expr:
    return form.Op(fn, (a, b), I64)
