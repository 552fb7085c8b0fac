"""The interpreter for kernels of a GPU: blocks of a few threads, run so that what depends on their order fails.

Threads run in reverse order, blocks too. Uniform statements are run once for all threads, and for each thread only where they compute with values that differ
between threads. Every load and store is noted with its block, its thread and the number of barriers before it; two threads that touch one element, one of them
writing, without a barrier between them, or two blocks that do so at all, are a race.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.tidy import THREAD, blocks, exprs, refs, written
from pipelink_ir.ir.dtypes import DType
from tests.unit.loops.coming_together import Player
from tests.unit.loops.interpreter import UNSET, Failed, Machine, stored, wrap
from tests.unit.loops.matrices import Matrices, Statement

THREADS = 32
"""Threads of a block where the kernel leaves it open."""
ALL, NOBODY, MANY = -1, -2, -3


@dataclass(slots=True)
class Varying:
    """The values that the threads of a block hold."""

    values: list[Any]


@dataclass(slots=True)
class Touched:
    """Who wrote an element last, and who has read it since: block, thread, barriers before."""

    written: tuple[int, int, int] | None = None
    read: tuple[int, int, int] | None = None


class GpuMachine(Machine):
    def __init__(self, program: form.Program, kernel: form.Kernel, memory: dict[str, Any]) -> None:
        super().__init__(program, kernel, memory)
        self.threads = kernel.threads or THREADS
        self.kept = kept(kernel.body, False)
        """Scratch that threads store to each for itself, and what each has there."""
        self.own: dict[str, dict[int, list[Any]]] = {}
        self.log: dict[tuple[str, int], Touched] = {}
        self.shared: dict[tuple[str, int], Touched] = {}
        self.shared_names: set[str] = set()
        self.private: set[str] = set()
        self.block_number, self.thread, self.epoch = 0, ALL, 0
        self.inner: set[str] = set()
        self.failed: str | None = None
        self.matrices = Matrices()
        self.traded: form.Trade | None = None
        self.types: dict[str, DType] = {}
        self.names: dict[int, tuple[form.Expr, tuple[str, ...]]] = {}
        self.players: dict[int, Player] = {}
        """Threads that trade, while they run beside one another."""

    def run(self, given: dict[str, Any]) -> None:
        if self.kernel.team is not None:
            self.threads = form.evaluate(self.kernel.team, given)
            assert 0 < self.threads <= self.kernel.threads
        super().run(given)
        if self.failed is not None:
            raise Failed(self.failed)

    # ------------------------------------------------------------------------------------------------------------ statements

    def stmt(self, s: form.Stmt) -> None:
        if isinstance(s, form.Var):
            self.types[s.name] = s.dtype
        if isinstance(s, form.For) and s.kind in ("grid", "block", "thread", "each"):
            {"grid": self.grid, "block": self.blocks, "thread": self.share, "each": self.each_thread}[s.kind](s, range(self.ev(s.lo), self.ev(s.hi), self.ev(s.step)))
        elif isinstance(s, form.Barrier):
            assert self.thread == ALL, "a barrier that not all threads reach"
            self.epoch += 1
        elif isinstance(s, form.Combine):
            self.combine(s)
        elif isinstance(s, form.Signal):
            assert self.thread == ALL, "a signal that not all threads reach"
            self.memory[s.buffer][self.ev(s.index)] += 1
            self.log.clear()
        elif isinstance(s, form.AwaitCount):
            assert self.memory[s.buffer][self.ev(s.index)] == self.ev(s.count), "a turn waits for one that is not before it"
            self.log.clear()
        elif isinstance(s, form.Trade):
            self.traded = s
            self.players[self.thread].pause()
        elif isinstance(s, Statement):
            assert (self.thread == ALL) is not isinstance(s, form.CopyAsync)
            self.matrices.run(self, s)
        elif isinstance(s, form.Fail):
            if self.failed is None:
                self.failed = self.program.sites[s.site].message.format(*map(self.ev, s.values))
        elif isinstance(s, form.Alloc):
            self.alloc(s)
        elif self.thread == ALL:
            self.uniform(s)
        elif isinstance(s, form.Assign) and s.name not in self.inner:
            self.set_own(s.name, self.ev(s.value))
        else:
            if isinstance(s, form.Let | form.Var):
                self.inner.add(s.name)
            if isinstance(s, form.Store | form.Move) and self.is_private_outside(written(s)) and written(s) not in self.kept:
                raise AssertionError(f"a thread stores to the scratch %{s.buffer} of the uniform statements")
            super().stmt(s)

    def is_private_outside(self, name: str) -> bool:
        return name in self.private and name not in self.inner

    def uniform(self, s: form.Stmt) -> None:
        """A statement that all threads run: for each of them where it computes with what differs between them."""
        if isinstance(s, form.Let | form.Var | form.Assign):
            if isinstance(s, form.Assign):
                assert s.name in self.env
            self.env[s.name] = self.each(s.init if isinstance(s, form.Var) else s.value)
            return
        for x in exprs(s):
            assert not self.varies(x), f"a uniform statement depends on what differs between threads: {x}"
        super().stmt(s)

    def alloc(self, s: form.Alloc) -> None:
        if s.shared:
            assert self.thread == ALL
            assert isinstance(s.size, form.Const)
            self.shared_names.add(s.name)
            self.wide.add(s.name)
            self.shared = {k: v for k, v in self.shared.items() if k[0] != s.name}
        else:
            self.private.add(s.name)
            if self.thread != ALL:
                self.inner.add(s.name)
        self.memory[s.name] = [UNSET] * self.ev(s.size)
        self.dtypes[s.name] = s.memory
        if s.name in self.kept and self.thread == ALL and not s.shared:
            self.own[s.name] = {t: list(self.memory[s.name]) for t in range(self.threads)}
            self.memory[s.name] = []

    def grid(self, s: form.For, turns: range) -> None:
        for i in reversed(turns):
            self.block_number, self.thread, self.inner = i, 0, {s.var}
            self.env[s.var] = i
            self.block(s.body)
        self.thread = ALL

    def blocks(self, s: form.For, turns: range) -> None:
        for i in turns if self.kernel.tickets else reversed(turns):
            self.block_number, self.epoch, self.thread = i, 0, ALL
            self.shared, self.matrices = {}, Matrices()
            self.env[s.var] = i
            self.block(s.body)
            self.matrices.done()

    def share(self, s: form.For, turns: range) -> None:
        """The turns of a loop over threads, dealt out in no special way unless there is exactly one for each thread."""
        assert self.thread == ALL, "loops over threads do not nest"
        exact = self.kernel.threads and turns == range(self.kernel.threads)
        dealt: dict[int, list[int]] = {}
        for number, i in enumerate(turns):
            dealt.setdefault(number if exact else (7 * number + 2) % self.threads, []).append(i)
        for thread in sorted(dealt, reverse=True):
            for i in dealt[thread]:
                self.thread, self.inner = thread, {s.var}
                self.env[s.var] = i
                self.block(s.body)
        self.thread = ALL

    def each_thread(self, s: form.For, turns: range) -> None:
        """One turn for each thread, which finds what it has kept for itself."""
        assert turns == range(self.threads), f"a loop for {self.threads} threads has the turns {turns}"
        assert self.thread == ALL, "loops over threads do not nest"
        if trades(s.body):
            for first in reversed(turns[::4]):
                self.side_by_side(s, range(first, first + 4))
        else:
            for t in reversed(turns):
                self.one_of_each(s, t)
        self.memory |= {name: [] for name in self.own}
        self.thread = ALL

    def one_of_each(self, s: form.For, t: int) -> None:
        self.thread, self.inner = t, {s.var}
        self.env[s.var] = t
        self.memory |= {name: held[t] for name, held in self.own.items()}
        self.block(s.body)

    def side_by_side(self, s: form.For, threads: range) -> None:
        """Four threads, each with what it has for itself, from one trade to the next."""
        env, memory = set(self.env) - {s.var}, set(self.memory) - set(self.own)
        held: dict[int, tuple[set[str], dict[str, Any], dict[str, Any]]] = {t: (set(), {}, {}) for t in threads}
        self.players = {t: Player(lambda t=t: self.one_of_each(s, t)) for t in threads}  # type: ignore[misc]
        while not all(p.ended for p in self.players.values()):
            for t in reversed(threads):
                self.thread, (self.inner, mine, scratch) = t, held[t]
                self.env.update(mine)
                self.memory.update(scratch)
                self.players[t].go_on()
                held[t] = self.inner, taken(self.env, env), taken(self.memory, memory)
            ended = {p.ended for p in self.players.values()}
            assert len(ended) == 1, "not all threads come together"
            if ended == {False}:
                self.trade([held[t][2] for t in threads])
        self.players = {}

    def trade(self, scratch: list[dict[str, list[Any]]]) -> None:
        """Pairs of each go to the one whose number they have."""
        s = self.traded
        assert s is not None
        given = [mine[s.source] for mine in scratch]
        assert all(isinstance(v, int | float | np.generic) for values in given for v in values[:8]), f"%{s.source} is traded before it is written"
        for q, mine in enumerate(scratch):
            mine[s.target][:8] = [stored(v, self.dtypes[s.target]) for values in given for v in values[2 * q:2 * q + 2]]

    # ---------------------------------------------------------------------------------------------------------------- values

    def set_own(self, name: str, value: Any) -> None:
        """A thread gives a variable of the uniform statements its own value."""
        old = self.env[name]
        if not isinstance(old, Varying):
            self.env[name] = old = Varying([old] * self.threads)
        old.values[self.thread] = value

    def refs(self, x: form.Expr) -> tuple[str, ...]:
        if id(x) not in self.names:
            self.names[id(x)] = x, tuple(n for n in refs(x) if not n.startswith("%"))
        return self.names[id(x)][1]

    def varies(self, x: form.Expr) -> bool:
        return any(n == THREAD or isinstance(self.env[n], Varying) for n in self.refs(x))

    def each(self, x: form.Expr) -> Any:
        """The value of an expression in a uniform statement."""
        if not self.varies(x):
            return self.ev(x)
        out = []
        for t in range(self.threads):
            self.thread = t
            out.append(self.ev(x))
        self.thread = ALL
        return Varying(out)

    def ev(self, x: form.Expr) -> Any:
        if isinstance(x, form.Ref):
            v = self.env[x.name]
            return v.values[self.thread] if isinstance(v, Varying) else v
        return super().ev(x)

    def combine(self, s: form.Combine) -> None:
        assert self.thread == ALL, "a combination that not all threads reach"
        if s.apart is not None and self.ev(s.apart):
            self.combine_apart(s)
            return
        self.epoch += 1
        held = []
        for n in s.names:
            v = self.env[n]
            held.append(v.values if isinstance(v, Varying) else [v] * self.threads)
        if s.fn in ("argmax", "argmin"):
            self.env[s.names[0]], self.env[s.names[1]] = winner(s.fn, list(zip(*held, strict=True)))
            return
        (values,) = held
        while len(values) > 1:
            pairs = [joined(s.fn, self.types[s.names[0]], *values[k:k + 2]) if k + 1 < len(values) else values[k] for k in range(0, len(values), 2)]
            values = pairs
        self.env[s.names[0]] = values[0]

    def combine_apart(self, s: form.Combine) -> None:
        """Groups of neighbouring threads, each for itself."""
        lanes = self.ev(s.lanes)
        assert self.threads % lanes == 0
        before = {n: self.env[n].values if isinstance(self.env[n], Varying) else [self.env[n]] * self.threads for n in s.names}
        after: dict[str, list[Any]] = {n: [] for n in s.names}
        whole = self.threads
        for k in range(0, whole, lanes):
            self.threads = lanes
            for n in s.names:
                self.env[n] = Varying(before[n][k:k + lanes])
            self.combine(form.Combine(s.fn, s.names))
            for n in s.names:
                after[n] += [self.env[n]] * lanes
        self.threads = whole
        for n in s.names:
            self.env[n] = Varying(after[n])

    # ----------------------------------------------------------------------------------------------------------------- races

    def touch(self, buffer: str, place: int, write: bool) -> None:
        if buffer in self.readonly or buffer in self.private:
            return
        log = self.shared if buffer in self.shared_names else self.log
        t = log.setdefault((buffer, place), Touched())
        # A store in uniform statements is done by one thread, a load by all.
        me = (self.block_number, 0 if write and self.thread == ALL else self.thread, self.epoch)
        for other in (t.written, t.read) if write else (t.written,):
            if other is not None:
                assert not collides(me, other), f"a race at %{buffer}[{place}]: (block, thread, barriers) {me} {'writes' if write else 'reads'}, {other} was there"
        if write:
            t.written = me
        elif t.read is None or (t.read[0] == me[0] and t.read[2] < me[2]):
            t.read = me
        elif t.read[0] != me[0]:
            t.read = (MANY, MANY, me[2])
        elif t.read[1] != me[1]:
            t.read = (me[0], MANY, me[2])


def taken(of: dict[str, Any], outside: set[str]) -> dict[str, Any]:
    """What is there beyond what was there before, which is no longer there."""
    return {n: of.pop(n) for n in list(of) if n not in outside}


def trades(body: form.Block) -> bool:
    """Whether threads trade in it."""
    return any(isinstance(s, form.Trade) or any(map(trades, blocks(s))) for s in body)


def kept(body: form.Block, each: bool) -> frozenset[str]:
    """The scratch of uniform statements that loops of kind `each` store to."""
    found: set[str] = set()
    inner = {s.name for s in body if isinstance(s, form.Alloc)} if each else set()
    for s in body:
        if each and isinstance(s, form.Store | form.Move):
            found.add(written(s))
        if isinstance(s, form.Contract):
            found.add(s.sums)
        if isinstance(s, form.Own):
            found.update(s.targets)
        for b in blocks(s):
            found |= kept(b, each or (isinstance(s, form.For) and s.kind == "each"))
    return frozenset(found - inner)


def collides(a: tuple[int, int, int], b: tuple[int, int, int]) -> bool:
    """Whether two accesses of which one writes may happen at the same time: in different blocks, or by different threads without a barrier between them."""
    return a[0] != b[0] or (a[2] == b[2] and a[1] != b[1])


def joined(fn: str, dtype: DType, a: Any, b: Any) -> Any:
    """Two values of a `Combine` as one."""
    if fn in ("max", "min"):
        return a if a != a else b if b != b else max(a, b) if fn == "max" else min(a, b)
    if fn in ("any", "all"):
        return (a or b) if fn == "any" else (a and b)
    value = a + b if fn == "sum" else a * b
    return wrap(value, dtype) if dtype.is_int else value


def winner(fn: str, held: list[tuple[Any, int]]) -> tuple[Any, int]:
    """The best value and its index among those of threads that have one."""
    found = [(v, i) for v, i in held if i >= 0]
    if not found:
        return held[0][0], -1
    nans = [(v, i) for v, i in found if v != v]
    if nans:
        return min(nans, key=lambda p: p[1])
    best = (max if fn == "argmax" else min)(v for v, _ in found)
    return best, min(i for v, i in found if v == best)
