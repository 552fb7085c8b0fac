"""Reductions by all threads of a block: each thread takes terms of its own, then their partial results are combined.

    var sum = 0
    thread for k in 0..K { sum = sum + x[n, k] }
    combine sum sum

The ranges whose bounds are known before the loop are one flat loop over the threads, ranges that depend on them run inside. Long sums of floats are added up
in rounds, each thread a few hundred terms in f32 a round, and the rounds in f64. Only uniform statements can do this: inside a `thread` loop, and for few
terms, a thread does all for itself.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.emit import TRUE, Atom, Frame, i64
from pipelink_ir.backends.loops.fold import must
from pipelink_ir.backends.loops.gpu.flat import flat, independent, nested, unravel
from pipelink_ir.backends.loops.gpu.sort import Rows, team_sort
from pipelink_ir.backends.loops.lower import Env, Lowering
from pipelink_ir.backends.loops.rank import Sorted
from pipelink_ir.backends.loops.reduce import Kind, Position, Seen, add_term, finish, kind_of
from pipelink_ir.ir.dtypes import BOOL, F64, I32
from pipelink_ir.ir.functions import REDUCTIONS
from pipelink_ir.ir.nodes import Range, Reduce
from pipelink_ir.ir.typed import Piece
from pipelink_ir.passes.scheduling.counts import ranges_of, terms
from pipelink_ir.passes.scheduling.risks import fails, risky
from pipelink_ir.passes.scheduling.shape import SERIAL, long, long_reductions, sized

ROUND = 8192
"""Terms that all threads together add up in f32 before they meet an f64: 256 a thread if there are no more than 32."""
COMBINED = {"+": "sum", "*": "prod", "max": "max", "min": "min", "or": "any", "and": "all"}


class Kept(Protocol):
    """A row of which every thread keeps a part."""

    def covers(self, x: Reduce, total: Atom) -> bool:
        """Whether a reduction runs over the row."""

    def places(self) -> AbstractContextManager[Atom]:
        """All places of the row, each by the thread that keeps it."""

    def combine(self, fn: str, names: tuple[str, ...]) -> form.Combine:
        """How the threads of a row combine what they hold."""


class Team:
    """The threads of a block in a kernel that is being written: what they share out, and where that is possible."""

    def __init__(self, lo: Lowering) -> None:
        self.lo, self.e = lo, lo.e
        self.alone: list[Frame] = []
        self.rows: Rows | None = None
        """The blocks by number, where each may have memory of its own."""
        self.ahead_loads = True
        """Whether the loads of some terms come before what is done with them: it takes registers."""
        self.row: Kept | None = None
        """The row that the threads keep in registers."""
        self.fails = fails(lo.op, lo.plan.local)
        lo.team = self

    @contextmanager
    def loop(self, hint: str, first: Atom, end: Atom, nonempty: bool = False, unroll: bool = False) -> Iterator[form.Ref]:
        """A loop whose turns are shared out among the threads."""
        with self.e.loop(hint, first, end, kind="thread", nonempty=nonempty, unroll=unroll) as i:
            self.alone.append(self.e.frames[-1])
            yield i

    @contextmanager
    def each(self, hint: str, threads: int) -> Iterator[form.Ref]:
        """The work of each thread of a block that has exactly so many."""
        with self.e.loop(hint, i64(0), i64(threads), kind="each", nonempty=True) as i:
            self.alone.append(self.e.frames[-1])
            yield i

    def uniform(self) -> bool:
        """Whether what is written now is run by all threads alike."""
        return not any(f is g for f in self.e.frames for g in self.alone)

    def __call__(self, lo: Lowering, x: Reduce, env: Env) -> object:
        """Writes a reduction by all threads; None if one thread has to do it."""
        if not self.uniform() or not (long(x) or id(x) in lo.shared_out):
            return None
        around = Piece(tuple(Range(n, None, x.body) for n in env.names), x, (), x.span)
        self.ahead(around, dict(enumerate(env.names.values())), x)
        if REDUCTIONS[x.kind].ranked:
            return self.sort(x, env)
        return _Shared(self, x, env).write()

    def ahead(self, piece: Piece, fixed: Mapping[int, Atom], but: Reduce | None = None) -> None:
        """Evaluates the reductions in a piece that its `fixed` axes determine, before the threads go apart: behind a condition inside a loop over threads, or
        in one over terms, each thread would have to do it for itself."""
        lo = self.lo
        few = lo.shared_out
        for r in long_reductions(lo.op, lo.plan.local, piece, lo.chosen, 1 if few else SERIAL):
            if few and not long(r.reduce) and id(r.reduce) not in few:
                continue
            if r.reduce is but or r.plain is None or not set(r.plain.values()) <= set(fixed) or REDUCTIONS[r.reduce.kind].ranked:
                continue
            if not risky(r.reduce, self.fails, lo.op.empty is None):
                lo.value(r.reduce, Env({n: fixed[k] for n, k in r.plain.items()}))

    def sort(self, x: Reduce, env: Env) -> Sorted | None:
        """Writes the sorted candidates of a ranked reduction, where memory for them can be set aside before the kernel runs."""
        ranges = ranges_of(x)
        if self.rows is None or not all(sized(b, self.lo.op) for r in ranges for b in (r.lo, r.hi) if b is not None):
            return None
        return team_sort(self, self.rows, x, env)


class _Shared:
    """One reduction."""

    def __init__(self, team: Team, x: Reduce, env: Env) -> None:
        self.team, self.lo, self.e, self.x, self.env = team, team.lo, team.lo.e, x, env
        ranges = ranges_of(x)
        count = independent(ranges)
        self.inner = ranges[count:]
        self.flat = flat(self.lo, ranges[:count], env)
        self.kept = team.row if team.row is not None and team.row.covers(x, self.flat.total) else None

    def write(self) -> Atom:
        if self.x.kind in ("argmax", "argmin"):
            return self._winner()
        lo, e, x = self.lo, self.e, self.x
        kind, seen = kind_of(x), Seen(lo, x, self.env)
        if kind.join == "+" and kind.dtype.is_float:
            acc = self._sum(kind, seen)
        else:
            acc = e.var(x.kind, kind.neutral)
            with self._terms() as (inner, _):
                add_term(lo, x, inner, kind, acc, seen, False)
        e.raw(self._combine(COMBINED[kind.join], acc.name))
        if seen.var is not None:
            e.raw(self._combine("sum", seen.var.name))
        return finish(lo, x, kind, acc, seen.count(), seen.any())

    def _combine(self, fn: str, *names: str) -> form.Combine:
        return form.Combine(fn, names) if self.kept is None else self.kept.combine(fn, names)

    # ----------------------------------------------------------------------------------------------------------------- terms

    @contextmanager
    def _terms(self, begin: Atom | None = None, end: Atom | None = None) -> Iterator[tuple[Env, list[Atom]]]:
        """The loops over all terms, or over those whose flat number lies in [begin, end): an environment and the indices of one term."""
        ranges = self.flat.ranges
        if self.kept is not None:
            with self.kept.places() as k:
                yield self.env.plus({ranges[0][0]: k}), [k]
            return
        hint = ranges[0][0] if len(ranges) == 1 else "term"
        with self.team.loop(hint, begin or i64(0), end or self.flat.total, unroll=not self.inner and self.team.ahead_loads) as p:
            at = unravel(self.lo, ranges, p)
            env = self.env.plus({name: i for (name, _, _), i in zip(ranges, at, strict=True)})
            if not self.inner:
                yield env, at
                return
            with nested(self.lo, self.inner, env, at) as found:
                yield found

    def _sum(self, kind: Kind, seen: Seen) -> form.Ref:
        lo, e, x, n = self.lo, self.e, self.x, terms(self.x)
        # Of a row that is kept each thread has a few terms, and the threads' sums are added pairwise.
        if kind.dtype is F64 or self.inner or self.kept is not None or (n is not None and n <= ROUND):
            # A thread that runs through loops of unknown length adds up in f64.
            kept = F64 if self.inner else kind.dtype
            acc = e.var("sum", must(0, kept))
            with self._terms() as (inner, _):
                add_term(lo, x, inner, Kind("+", must(0, kept), kept), acc, seen, True)
            return acc
        total = e.var("sum", must(0, F64))
        with e.loop("round", i64(0), self.flat.total, i64(ROUND)) as b:
            part = e.var("part", kind.neutral)
            with self._terms(b, e.op("min", e.op("+", b, i64(ROUND)), self.flat.total)) as (inner, _):
                add_term(lo, x, inner, kind, part, seen, True)
            e.assign(total, form.Op("+", (total, form.Convert(part, F64, F64)), F64))
        return total

    # ---------------------------------------------------------------------------------------------------------------- winners

    def _winner(self) -> Atom:
        lo, e, x = self.lo, self.e, self.x
        dtype = x.body.dtype or F64
        best, at = e.var("best", must(0, dtype)), e.var("at", must(-1, I32))
        place = Position(lo, x, self.env)
        with self._terms() as (inner, indices), e.when(TRUE if x.where is None else lo.value(x.where, inner)):
            value = lo.value(x.body, inner)
            position = e.convert(place.of(indices), I32)
            with e.when(self._wins(value, best, at)):
                e.assign(best, value)
                e.assign(at, position)
        e.raw(self._combine(x.kind, best.name, at.name))
        found = e.bind("found", form.Op(">=", (at, must(0, I32)), BOOL))
        out = e.bind(x.kind, form.Op("max", (at, must(0, I32)), I32))
        return finish(lo, x, Kind("", must(0, I32), I32), out, i64(0), found)

    def _wins(self, value: Atom, best: form.Ref, at: form.Ref) -> Atom:
        """Whether a value replaces the best one that this thread has found: the first, a better one, a NaN where there was none."""
        e = self.e

        def now(fn: str, *args: form.Expr) -> form.Ref:
            return e.bind("a", form.Op(fn, args, BOOL))

        wins = now("or", now("<", at, must(0, I32)), now(">" if self.x.kind == "argmax" else "<", value, best))
        if value.dtype.is_float:
            wins = now("or", wins, now("and", now("!=", value, value), now("==", best, best)))
        return wins
