"""Reductions of columns by one thread: a few neighbours at once, whose terms lie side by side in memory and move together.

    grid for p in … {
      if rows are whole runs and aligned {
        var sum[j] … ; for h in … { move own[…] = x[h, c..c + 8] ; sum[j] = sum[j] + own[j] … } ; the places c + j, which have their sums
      } else { as many places, or one where there are few, one by one }
    }
"""
from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.emit import Atom, i64
from pipelink_ir.backends.loops.fold import must
from pipelink_ir.backends.loops.gpu.nests import Turns
from pipelink_ir.backends.loops.gpu.pack import BYTES, Packer
from pipelink_ir.backends.loops.lower import Env
from pipelink_ir.backends.loops.reduce import BLOCK, Seen, add_term, finish, kind_of, nest, reduced
from pipelink_ir.ir.dtypes import F64
from pipelink_ir.ir.nodes import Read, Reduce
from pipelink_ir.ir.walk import walk
from pipelink_ir.passes.scheduling.counts import count, names, ranges_of, terms, unrolled

if TYPE_CHECKING:
    from collections.abc import Callable

    from pipelink_ir.backends.loops.gpu.vector import VectorNest

MOST = 8
"""Neighbours at most."""
FEW = 1 << 17
"""Fewer places have a thread each: else threads of the device would have nothing to do."""
KINDS = ("sum", "mean", "max", "min")


def columns(n: VectorNest) -> Turns | None:
    """How the places of a kernel are shared out so; None if they are no such reductions."""
    if len(n.jobs) != 1 or not n.axes or n.jobs[0][1].holes:
        return None
    piece = n.jobs[0][1]
    row = piece.axes[-1].index
    found = [x for x in walk(piece.value) if isinstance(x, Reduce)]
    if len(found) != 1 or found[0].kind not in KINDS or found[0].where is not None or unrolled(found[0]):
        return None
    x = found[0]
    bounds = [b for r in ranges_of(x) for b in (r.lo, r.hi) if b is not None]
    if any(row in names(b) for b in bounds) or any(n.lo.plan.local(r.tensor) for r in walk(x) if isinstance(r, Read)):
        return None
    uses = [u for u in n.uses[0].uses if u.at and u.at[-1].only(row) and not any(row in lin.names for lin in u.at[:-1])]
    sizes = [n.lo.op.tensors[u.tensor].dtype.bytes for u in uses]
    size = min(MOST, BYTES // min(sizes)) if sizes else 0
    known = count(piece.axes[-1])
    while size > 1 and known is not None and known % size:
        size //= 2
    return _Columns(n, x, size).turns() if size > 1 else None


def _several(stmts: list[form.Stmt]) -> list[form.Stmt]:
    """The statements, with the loads of several turns of innermost loops under way at once."""
    out: list[form.Stmt] = []
    for s in stmts:
        if isinstance(s, form.For):
            inner = any(isinstance(t, form.For) for t in s.body)
            s = replace(s, body=tuple(_several(list(s.body)))) if inner else replace(s, unroll=True)
        out.append(s)
    return out


class _Columns:
    def __init__(self, n: VectorNest, x: Reduce, size: int) -> None:
        self.n, self.lo, self.e, self.x, self.size = n, n.lo, n.lo.e, x, size
        self.last = n.axes[-1]

    def turns(self) -> Turns:
        """A thread for each run of neighbours."""
        e, width = self.e, self.e.op("max", self.last.n, i64(0))
        few = e.op("<", self.n._total(self.n.axes), i64(FEW))
        runs = e.choose(few, width, e.op("quot", e.op("+", width, i64(self.size - 1)), i64(self.size)))
        total = e.op("*", self.n._total(self.n.axes[:-1]), runs) if len(self.n.axes) > 1 else runs
        return Turns(total, lambda p: self._turn(p, runs, width, few))

    def _turn(self, p: Atom, runs: Atom, width: Atom, few: Atom) -> None:
        e, n, size = self.e, self.n, self.size
        run = e.op("rest", p, runs)
        others = n._places(n.axes[:-1], e.op("quot", p, runs))
        begin = e.op("*", run, i64(size))
        places = [[*others, e.op("+", self.last.lo, e.op("+", begin, i64(j)))] for j in range(size)]
        packers: list[Packer] = []
        with e.frame("lazy") as whole:
            self._reduced(places, packers)
            for at in places:
                n.element(at)
            packers.append(Packer(self.lo, {self.last.n: size}))
            whole.stmts[:] = _several(packers[-1].packed(whole.stmts))
        fine = e.all_of([e.op("not", few), e.op("==", e.op("rest", width, i64(size)), i64(0)), *(c for p in packers for c in p.conditions())])
        with e.frame("lazy") as apart, e.loop("place", run, width, runs) as c:
            n.element([*others, e.op("+", self.last.lo, c)])
        if isinstance(fine, form.Const):
            for s in whole.stmts if fine.value else apart.stmts:
                e.raw(s)
            return
        e.raw(form.If(fine, tuple(whole.stmts), tuple(apart.stmts)))

    def _reduced(self, places: list[list[Atom]], packers: list[Packer]) -> None:
        """The reduction at all places of a run, remembered for them."""
        lo, e, x = self.lo, self.e, self.x
        kind = kind_of(x)
        axes = [a.index for a in self.n.jobs[0][1].axes]
        envs = [Env(dict(zip(axes, at, strict=True))) for at in places]
        ranges, seen = ranges_of(x), Seen(lo, x, envs[0])
        found = terms(x)
        sums = kind.join == "+" and kind.dtype.is_float
        blocked = sums and (found is None or found > BLOCK)
        acc = [e.var(x.kind, must(0, F64) if blocked else kind.neutral) for _ in places]
        parts = acc

        def around(run: Callable[[], None]) -> None:
            nonlocal parts
            parts = [e.var("part", kind.neutral) for _ in places]
            run()
            for total, part in zip(acc, parts, strict=True):
                e.assign(total, form.Op("+", (total, form.Convert(part, F64, F64) if kind.dtype is not F64 else part), F64))

        def body(inner: Env, at: list[Atom]) -> None:
            for env, part in zip(envs, parts, strict=True):
                add_term(lo, x, env.plus({r.index: a for r, a in zip(ranges, at, strict=True)}), kind, part, seen, sums)
            packers.append(Packer(lo, {self.last.n: self.size}))
            e.top.stmts[:] = packers[-1].packed(e.top.stmts)

        before, lo.along = lo.along, None
        long = [k for k, r in enumerate(ranges) if (count(r) or BLOCK) > 16]
        if blocked:
            nest(lo, ranges, envs[0], body, long[-1] if long else 0, around)
        else:
            nest(lo, ranges, envs[0], body)
        lo.along = before
        for env, value in zip(envs, acc, strict=True):
            e.remember(reduced(x, env), finish(lo, x, kind, value, seen.count(), seen.any()))
