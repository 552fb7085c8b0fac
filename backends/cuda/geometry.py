"""What a launch of an emitted kernel looks like for given sizes: how many turns there are, whether 32-bit indices do, how much scratch it takes.

An index of the kernel (`kinds.py`) is bounded by interval arithmetic over the statements, from the values of the symbols. Where every one of them, and every
step beyond the end of a loop, fits in 32 bits, the kernel runs as compiled by default; else as compiled with `PIPELINK_WIDE`. Data need no look: what is made
of them is computed in 64 bits in either version.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pipelink_ir.backends.cuda.bounds import Bounds, Interval, exact
from pipelink_ir.backends.cuda.emit import KernelCode
from pipelink_ir.backends.cuda.emit_stmt import Space
from pipelink_ir.backends.cuda.kinds import Kinds
from pipelink_ir.backends.loops.contents import exprs
from pipelink_ir.backends.loops.form import (
    Alloc,
    Block,
    Choose,
    Const,
    Convert,
    Expr,
    Fail,
    For,
    If,
    Let,
    Load,
    Op,
    Stmt,
)
from pipelink_ir.ir.dtypes import I64

MAX_THREADS_IN_GRID = 1 << 24
"""No launch has more threads: with them a loop may step so far beyond its end."""

_I32 = (-(1 << 31), (1 << 31) - 1)


@dataclass(frozen=True, slots=True)
class Geometry:
    """One launch. `turns` of the outermost loop, for one thread or one block each as `KernelCode.per` says (None: only the data tell; 0: nothing to launch).
    `shared_bytes` are asked for at the launch; where the device has not so much, a block needs as many of `scratch` (parameter `block_bytes`, else 0).
    `thread_bytes` of `scratch` are needed for each thread of the grid. Scratch is laid out as: blocks x `block_bytes`, then threads x `thread_bytes`.
    `checks`: with these sizes the kernel may record a failure."""

    turns: int | None
    wide: bool
    shared_bytes: int
    thread_bytes: int
    checks: bool = False


def geometry(code: KernelCode, symbols: Mapping[str, int]) -> Geometry:
    """The launch of a kernel for given sizes."""
    walk = _Walk(code.kinds, Bounds({s: (symbols[s], symbols[s]) for s in code.kernel.symbols}))
    walk.fits = all(_I32[0] <= symbols[s] <= _I32[1] for s in code.kernel.symbols)
    walk.block(code.kernel.body)
    turns = 1 if code.per == "once" else walk.turns
    return Geometry(turns, not walk.fits, _total(code.shared, walk.bounds), _total(code.private, walk.bounds), walk.checks)


def _total(spaces: tuple[Space, ...], bounds: Bounds) -> int:
    """As `Arena` in the prelude cuts it: each piece a multiple of 16 bytes."""
    return sum((max(0, bounds.of(s.count)[1]) * s.bytes + 15) // 16 * 16 for s in spaces)


@dataclass(slots=True)
class _Walk:
    kinds: Kinds
    bounds: Bounds
    fits: bool = True
    turns: int | None = 0
    kind: str = ""
    checks: bool = False

    def block(self, body: Block) -> None:
        for s in body:
            self._statement(s)

    def _statement(self, s: Stmt) -> None:
        if isinstance(s, For):
            self._for(s)
        elif isinstance(s, If):
            self._check(s.cond)
            known = self.bounds.decided(s.cond)
            if known is not False:
                self.block(s.then)
            if known is not True:
                self.block(s.other)
        else:
            # Memory of a size that only the data tell may not be there.
            self.checks = self.checks or isinstance(s, Fail) or (isinstance(s, Alloc) and not isinstance(s.size, Const))
            for x in exprs(s):
                self._check(x)
            if isinstance(s, Let) and not s.value.dtype.is_float:
                self.bounds.names[s.name] = self.bounds.of(s.value)

    def _for(self, s: For) -> None:
        for x in (s.lo, s.hi, s.step):
            self._check(x)
        lo, hi, step = self.bounds.of(s.lo), self.bounds.of(s.hi), self.bounds.of(s.step)
        if s.kind in ("grid", "block", "parallel"):
            known = self.kinds.names[s.var] == "index"
            self.turns = max(0, -(-(hi[1] - lo[0]) // max(1, step[0]))) if known else None
        if hi[1] <= lo[0]:
            return
        stride = {"serial": 1, "thread": 1024, "each": 1}.get(s.kind, MAX_THREADS_IN_GRID)
        self._index(s.var, (lo[0], hi[1] + stride * step[1]))
        self.bounds.names[s.var] = (lo[0], hi[1] - 1)
        self.block(s.body)

    def _index(self, name: str, interval: Interval) -> None:
        if self.kinds.names[name] == "index":
            self._fit(interval)

    def _fit(self, interval: Interval) -> None:
        self.fits = self.fits and _I32[0] <= interval[0] and interval[1] <= _I32[1]

    def _check(self, x: Expr) -> None:
        """Looks at every index in an expression."""
        if not self.fits:
            return
        if isinstance(x, Op):
            for a in x.args:
                self._check(a)
            if x.dtype is I64 and self.kinds.is_index(x):
                # Before wrapping: what leaves 64 bits does not fit either.
                self._fit(exact(x.fn, [self.bounds.of(a) for a in x.args]) or self.bounds.of(x))
        elif isinstance(x, Choose):
            known = self.bounds.decided(x.cond)
            self._check(x.cond)
            if known is not False:
                self._check(x.then)
            if known is not True:
                self._check(x.other)
        elif isinstance(x, Convert):
            self._check(x.arg)
        elif isinstance(x, Load):
            self._check(x.index)
