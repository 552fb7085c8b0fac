"""What one thread adds up of the columns of a block (`columns.py`): which of them are its own, and how it goes through their rows.

Of rows that are a whole number of accesses each thread has the columns of one access. Where several narrow rows follow each other in memory, and are together
a whole number of accesses, a thread has what one access finds at the same columns again and again: of rows of 3 elements by accesses of 8 those of numbers
0 1 2 0 1 2 0 1, 2 0 1 2 0 1 2 0 or 1 2 0 1 2 0 1 2. Otherwise it has one column, or several one after the other.

Rows are counted over all ranges of the reduction. Where they follow each other in memory the number of one says where it lies; else its indices are kept up
to date by additions. All loads of some rows come before what is done with them; for what lies behind the last row the first one of the thread is loaded, and
not used. Sums of f32 meet an f64 in shared memory after 256 terms.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import isfinite

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.emit import FALSE, Atom, i64, key_of
from pipelink_ir.backends.loops.fold import must
from pipelink_ir.backends.loops.gpu.flat import Flat, unravel
from pipelink_ir.backends.loops.gpu.pack import BYTES, Packer
from pipelink_ir.backends.loops.gpu.vector import Wide, aligned, conditions, hold
from pipelink_ir.backends.loops.lower import Env, Lowering
from pipelink_ir.backends.loops.nests import Job, Nest
from pipelink_ir.backends.loops.reads import address
from pipelink_ir.backends.loops.reduce import BLOCK, Kind, kind_of
from pipelink_ir.ir.dtypes import F32, F64, I8, I32, I64, U8
from pipelink_ir.ir.nodes import Apply, Cast, Expr, FloatLit, Read, Reduce
from pipelink_ir.ir.typed import TypedOperator
from pipelink_ir.passes.scheduling.columns import Columns, streams
from pipelink_ir.passes.scheduling.counts import ranges_of, terms

THREADS = 256
"""Threads of a block."""
FLIGHT, HELD = 8, 128
"""Rows that a thread loads at once, and their bytes, at most; …"""
SINGLES, FEW = 16, 4
"""… where each has one column, and where more is computed of a row than what lies there."""


@dataclass(frozen=True, slots=True)
class _Run:
    """How a thread goes through rows: its columns, which row stands for all where nothing else depends on it, the first and what is behind the last, and how
    many come at once. What is asked for is the next one, by its number and whether it is there: where it begins in a tensor, and its indices."""

    envs: list[Env]
    stands: dict[str, Atom]
    first: Atom
    end: Atom
    flight: int
    follow: Callable[[Atom, Atom], tuple[Callable[[Wide], Atom], dict[str, Atom]]]


class Terms(Nest):
    """The work of one thread. The loops around say what is in a block."""

    flat: Flat
    whole: Atom
    """Whether rows are a whole number of accesses; …"""
    lie: Atom
    """whether what is loaded of them lies so; …"""
    runs: Atom
    """… else, whether they are so together, …"""
    unit: Atom
    """… and how many are."""
    width: Atom
    vectors: Atom
    """Accesses of a row, or of rows that are a whole number of them together."""
    each: Atom
    """Columns that an access finds."""
    tall: Atom
    """Rows that the threads of a block have at once."""
    begin: Atom
    end: Atom
    """The rows of a block."""
    fixed: list[Atom]
    """The other indices of its results."""
    shared: str
    """Its memory: for each thread its columns, `THREADS` places apart."""

    def __init__(self, lo: Lowering, job: Job, way: Columns) -> None:
        super().__init__(lo, [job])
        self.x, self.way = way.reduce, way
        self.names = {k: n for n, k in way.plain}
        self.column = self.axes[way.axis]
        self.ranges = ranges_of(self.x)
        self.size = way.size
        kind, n = kind_of(self.x), terms(self.x)
        self.sums = kind.join == "+" and kind.dtype.is_float
        self.long = self.sums and kind.dtype is F32 and (n is None or n > BLOCK)
        """Whether a sum is long: then it is kept in f64, but for a few terms at a time."""
        self.grouped = self.long and (n is None or n > 2 * BLOCK)
        """Whether a thread may have more terms than that."""
        self.kind, self.body = kind, self.x.body
        self.scale: Expr | None = None
        """What the sum is multiplied by, where terms are codes by a scale that is one number: codes are added up as they are, which is exact."""
        if (found := codes_of(lo.op, self.x)) is not None and self.sums and kind.dtype is F32 and not lo.op.exact:
            self.kind, self.long = Kind("+", must(0, I32), I32), True
            self.body, self.scale = found
        self.kept = Kind("+", must(0, F64), F64) if self.long else kind
        self.factors = self._factors()
        uses = streams(lo.op, lo.plan.local, way)
        axes = (*(self.names[k] for k in range(len(self.axes))), *(f"#{k + 1}" for k in range(len(self.ranges))))
        self.streams = [Wide(lo.op.tensors[u.tensor], u.tensor, u, axes, raw=True) for u in uses]
        self.linear = way.run and bool(self.streams)
        """Whether the number of a row says where it lies."""
        held = sum(way.size * w.tensor.dtype.bytes for w in self.streams)
        self.flight = min(FLIGHT, max(2, HELD // held)) if held else FEW
        self.singles = SINGLES if self.streams else FEW

    def _factors(self) -> tuple[Expr, Expr] | None:
        """The factors of terms that are added up as they are multiplied: one rounding less."""
        body = self.body
        if self.lo.op.exact or not self.sums or self.kind.dtype is not F32 or not isinstance(body, Apply) or body.fn != "*" or body.exact:
            return None
        a, b = body.args
        return (a, b) if a.dtype is F32 and b.dtype is F32 else None

    def lies(self) -> Atom:
        """Whether what is loaded ahead lies as wide accesses need it."""
        lo, e, size, first = self.lo, self.e, self.size, [*(a.lo for a in self.axes), *(i64(0) for _ in self.ranges)]
        needs: list[Atom] = []
        for w in self.streams if size > 1 else ():
            needs.append(aligned(lo, w.tensor, min(size, BYTES // w.tensor.dtype.bytes)))
            needs += self._begins(w, first) if self.linear else conditions(lo, w.tensor, w.at(lo, first), True, size)
        return e.all_of(needs)

    def _begins(self, w: Wide, first: list[Atom]) -> list[Atom]:
        """What has to hold so that the rows of each result begin where an access may: those of the first one do, and others lie whole accesses apart."""
        e, size = self.e, i64(self.size)

        def base(places: list[Atom]) -> Atom:
            return address(self.lo, w.tensor, w.at(self.lo, places))

        needs = [e.op("==", e.op("rest", base(first), size), i64(0))]
        for k, a in enumerate(self.axes):
            if k != self.way.axis:
                step = e.op("-", base([*first[:k], e.op("+", first[k], i64(1)), *first[k + 1:]]), base(first))
                needs.append(e.op("or", e.op("==", e.op("rest", step, size), i64(0)), e.op("<=", a.n, i64(1))))
        return needs

    def places_of(self, column: Atom) -> list[Atom]:
        """The indices of the result of a column."""
        at = [*self.fixed]
        at.insert(self.way.axis, self.e.op("+", self.column.lo, column))
        return at

    def env_of(self, column: Atom) -> Env:
        """What the names around the reduction are there."""
        at = self.places_of(column)
        return Env({n: at[k] for n, k in self.way.plain})

    def terms(self, t: Atom, vector: Atom, row: Atom) -> None:
        """What thread `t` has of a block: the columns of one access, by its number, from one row on."""
        e, size = self.e, self.size
        if size == 1:
            self._columns(t, [vector], row, self.flight)
            return
        packer = Packer(self.lo, {self.column.n: size})
        with e.frame("lazy") as wide:
            if self.linear:
                self._again(t, vector, row)
            else:
                begin = e.op("*", vector, i64(size))
                self._columns(t, [e.op("+", begin, i64(j)) for j in range(size)], row, self.flight)
            wide.stmts[:] = _packed(packer, wide.stmts)
        fine = e.all_of([e.op("or", self.whole, self.runs), self.lie, *packer.conditions()])
        with e.frame("lazy") as apart, e.loop("j", i64(0), self.each, nonempty=True) as j:
            self._columns(e.op("+", t, e.op("*", j, i64(THREADS))), [e.op("+", e.op("*", vector, self.each), j)], row, self.singles)
        if isinstance(fine, form.Const):
            for one in wide.stmts if fine.value else apart.stmts:
                e.raw(one)
            return
        e.raw(form.If(fine, tuple(wide.stmts), tuple(apart.stmts)))

    # ------------------------------------------------------------------------------------------------------------------ rows

    def _columns(self, t: Atom, columns: list[Atom], row: Atom, flight: int) -> None:
        """The terms of neighbouring columns, from one row on, into the memory of thread `t`."""
        e = self.e
        first, envs = e.op("+", self.begin, row), [self.env_of(c) for c in columns]

        def begin() -> _Run:
            if self.linear:
                def find(number: Atom, inside: Atom) -> tuple[Callable[[Wide], Atom], dict[str, Atom]]:
                    at = e.op("+", e.op("*", e.choose(inside, number, first), self.width), columns[0])
                    return lambda w: e.op("+", self._base(w), at), {}

                return _Run(envs, self._named([i64(0)] * len(self.ranges)), first, self.end, flight, find)
            begins, step = self.indices_of(first), self.indices_of(self.tall)
            following = [e.var(name, i) for (name, _, _), i in zip(self.flat.ranges, begins, strict=True)]

            def follow(number: Atom, inside: Atom) -> tuple[Callable[[Wide], Atom], dict[str, Atom]]:
                names = self._next(following, step, begins, inside)
                return lambda w: address(self.lo, w.tensor, w.at(self.lo, self._all(envs[0], names))), names

            return _Run(envs, self._named(begins), first, self.end, flight, follow)

        self._through(t, len(columns), e.op("<", first, self.end), begin)

    def _again(self, t: Atom, vector: Atom, row: Atom) -> None:
        """What the accesses of one thread find of rows that follow each other: the numbers of columns are the same each time. Rows that are no whole number
        of accesses are counted by as many as are together."""
        e, size = self.e, self.size
        begin = e.op("*", vector, i64(size))
        column = e.choose(self.whole, begin, e.op("rest", begin, e.op("max", self.width, i64(1))))
        columns = [column]
        for _ in range(size - 1):
            following = e.op("+", columns[-1], i64(1))
            following = e.choose(e.op("<", following, self.width), following, i64(0)) if self.runs is not FALSE else following
            if any(key_of(following) == key_of(c) for c in columns):
                # The same column of another row: what is read there is not what was read here, so it goes by a name of its own.
                following = e.var("column", following)
            columns.append(following)
        first, end = (e.op("+", e.choose(self.whole, n, e.op("quot", n, self.unit)), more) for n, more in ((self.begin, row), (self.end, i64(0))))
        envs = [self.env_of(c) for c in columns]

        def run() -> _Run:
            def find(number: Atom, inside: Atom) -> tuple[Callable[[Wide], Atom], dict[str, Atom]]:
                access = e.op("+", e.op("*", e.choose(inside, number, first), self.vectors), vector)
                return lambda w: e.op("+", self._base(w), e.op("*", access, i64(size))), {}

            return _Run(envs, self._named([i64(0)] * len(self.ranges)), first, end, self.flight, find)

        self._through(t, size, e.op("<", first, end), run)

    def _base(self, w: Wide) -> Atom:
        """Where the rows of a result begin that follow each other."""
        return address(self.lo, w.tensor, w.at(self.lo, self._all(self.env_of(i64(0)), self._named([i64(0)] * len(self.ranges)))))

    def _named(self, indices: list[Atom]) -> dict[str, Atom]:
        return {r.index: self.e.op("+", low, i) for r, (_, low, _), i in zip(self.ranges, self.flat.ranges, indices, strict=True)}

    def left_over(self, column: Atom, value: Atom) -> Atom:
        """The sum of a column, with the rows at the end that are no whole number of accesses."""
        e, lo = self.e, self.lo
        acc = e.var(self.x.kind, value)
        begin = e.op("max", e.op("*", e.op("quot", self.end, self.unit), self.unit), self.begin)
        with e.when(self.runs), e.loop("row", begin, self.end) as r:
            term = e.convert(lo.value(self.body, self.env_of(column).plus(self._named(self.indices_of(r)))), self.kind.dtype)
            e.assign(acc, form.Op(self.kept.join, (acc, e.convert(term, self.kept.dtype)), self.kept.dtype, self.sums))
        return e.bind(self.x.kind, acc)

    def _through(self, t: Atom, size: int, some: Atom, begin: Callable[[], _Run]) -> None:
        """All rows of a thread, if it has `some`, as many at once as there are loads under way."""
        e = self.e
        places = [e.op("+", t, i64(j * THREADS)) for j in range(size)]
        acc = [] if self.grouped else [e.var(self.x.kind, self.kind.neutral) for _ in range(size)]
        for at in places if self.grouped else ():
            e.raw(form.Store(self.shared, at, self.kept.neutral, self.kept.dtype))
        with e.when(some):
            run = begin()
            if self.grouped:
                many = e.op("*", self.tall, i64(BLOCK))
                with e.loop("group", run.first, run.end, many) as g:
                    acc = [e.var(self.x.kind, self.kind.neutral) for _ in range(size)]
                    self._rows(run, acc, g, e.op("min", e.op("+", g, many), run.end))
                    for at, a in zip(places, acc, strict=True):
                        total = form.Load(self.shared, at, F64, F64)
                        e.raw(form.Store(self.shared, at, e.bind("a", form.Op("+", (total, form.Convert(a, F64, F64)), F64)), F64))
            else:
                self._rows(run, acc, run.first, run.end)
        if not self.grouped:
            for at, a in zip(places, acc, strict=True):
                e.raw(form.Store(self.shared, at, form.Convert(a, F64, F64) if self.long else a, self.kept.dtype))

    def _rows(self, run: _Run, acc: list[form.Ref], begin: Atom, end: Atom) -> None:
        """The rows from one on, `tall` apart. All loads of some come before what is done with them."""
        e, size = self.e, len(run.envs)
        with e.loop("row", begin, end, e.op("*", self.tall, i64(run.flight))) as r:

            def next_of(u: Atom) -> tuple[Atom, Atom]:
                number = e.op("+", r, e.op("*", self.tall, u))
                return number, e.op("<", number, end)

            if not self.streams:
                with e.loop("u", i64(0), i64(run.flight), nonempty=True, unroll=True) as u:
                    number, inside = next_of(u)
                    # No condition stands around the loads, so that those of all rows may be under way.
                    self._add(run, acc, run.follow(number, inside)[1], inside)
                return
            loads = [replace(w, own=e.memory(f"{w.tensor.name}_own")) for w in self.streams]
            words = {w.own for w in loads if w.tensor.dtype in (I8, U8) and size >= 4}
            for w in loads:
                e.raw(form.Alloc(w.own, I32, i64(run.flight * size // 4)) if w.own in words else form.Alloc(w.own, w.dtype, i64(run.flight * size)))
            with e.loop("u", i64(0), i64(run.flight), nonempty=True, unroll=True) as u:
                begins, _ = run.follow(*next_of(u))
                for w in loads:
                    self._load(w, begins(w), u, size, w.own in words)
            with e.loop("u", i64(0), i64(run.flight), nonempty=True, unroll=True) as u, e.when(next_of(u)[1]):
                for j, env in enumerate(run.envs):
                    for w in loads:
                        at = w.at(self.lo, self._all(env, run.stands))
                        if w.own in words:
                            self._byte(w, at, u, j)
                        else:
                            hold(self.lo, w, at, e.op("+", e.op("*", u, i64(size)), i64(j)))
                self._add(run, acc, run.stands)

    def indices_of(self, row: Atom) -> list[Atom]:
        """A row by its indices, each counted from the first."""
        return unravel(self.lo, tuple((name, i64(0), n) for name, _, n in self.flat.ranges), row)

    def _load(self, w: Wide, begin: Atom, u: Atom, size: int, words: bool) -> None:
        """What a thread has of row `u`, as it lies in memory."""
        e = self.e
        if words:
            e.raw(form.TakeWords(w.own, self.lo.buffer(w.tensor), begin, size, at=e.op("*", u, i64(size // 4))))
            return
        many = min(size, BYTES // w.tensor.dtype.bytes)
        for k in range(0, size, many):
            to = e.op("+", e.op("*", u, i64(size)), i64(k))
            e.raw(form.Move(w.own, to, self.lo.buffer(w.tensor), e.op("+", begin, i64(k)), many))

    def _byte(self, w: Wide, at: tuple[Atom, ...], u: Atom, j: int) -> None:
        """A read finds a byte of what was loaded."""
        e, words = self.e, self.size // 4
        word = e.load(w.own, e.op("+", e.op("*", u, i64(words)), i64(j // 4)), I32, False, "word")
        value = e.bind("byte", form.Op(form.BYTE[w.tensor.dtype is I8], (word, form.Const(j % 4, I32)), I32))
        e.remember(("load", w.tensor.name, key_of(address(self.lo, w.tensor, at))), value)

    def _all(self, env: Env, names: dict[str, Atom]) -> list[Atom]:
        return [*(env.names[self.names[k]] for k in range(len(self.axes))), *(names[r.index] for r in self.ranges)]

    def _next(self, following: list[form.Ref], step: list[Atom], first: list[Atom], inside: Atom) -> dict[str, Atom]:
        """The indices of the row that is next, and the one behind it is next."""
        e = self.e
        now: list[Atom] = [e.bind(a.name, form.Ref(a.name, I64)) for a in following]
        here = [e.choose(inside, i, b) for i, b in zip(now, first, strict=True)]
        carry: Atom = i64(0)
        for k in reversed(range(len(now))):
            value = e.op("+", e.op("+", now[k], step[k]), carry)
            if k:
                n = self.flat.ranges[k][2]
                over = e.op(">=", value, n)
                value, carry = e.choose(over, e.op("-", value, n), value), e.choose(over, i64(1), i64(0))
            e.assign(following[k], value)
        return self._named(here)

    def _add(self, run: _Run, acc: list[form.Ref], names: dict[str, Atom], inside: Atom | None = None) -> None:
        """The terms of a row, which count if it is `inside`."""
        lo, e = self.lo, self.e
        for env, a in zip(run.envs, acc, strict=True):
            inner = env.plus(names)
            if self.factors is not None:
                x, y = (lo.value(f, inner) for f in self.factors)
                new: form.Expr = form.Op("fma", (x, y, a), F32)
            else:
                value = e.convert(lo.value(self.body, inner), self.kind.dtype)
                new = form.Op(self.kind.join, (a, value), self.kind.dtype, self.sums)
            e.assign(a, new if inside is None else form.Choose(inside, new, a, a.dtype))


def codes_of(op: TypedOperator, x: Reduce) -> tuple[Expr, Expr | None] | None:
    """The codes of terms that are codes by a number, and that number, if any."""
    body, scale = x.body, None
    if isinstance(body, Apply) and body.fn == "*" and any(isinstance(a, FloatLit) and isfinite(a.value) for a in body.args):
        body, scale = body.args if isinstance(body.args[1], FloatLit) else body.args[::-1]
    if not isinstance(body, Cast) or body.to != "f32":
        return None
    code = body.arg
    return (code, scale) if isinstance(code, Read) and code.dtype is I32 and op.tensors[code.tensor].dtype.bytes <= 2 else None


def _packed(packer: Packer, stmts: list[form.Stmt]) -> list[form.Stmt]:
    """The statements, with neighbours in memory moved at once in every block of them."""
    out: list[form.Stmt] = []
    for s in packer.packed(stmts):
        if isinstance(s, form.For):
            s = replace(s, body=tuple(_packed(packer, list(s.body))))
        elif isinstance(s, form.If):
            s = replace(s, then=tuple(_packed(packer, list(s.then))), other=tuple(_packed(packer, list(s.other))))
        out.append(s)
    return out
