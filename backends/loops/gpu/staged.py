"""Tiles of queries, keys and values on their way to shared memory."""
from __future__ import annotations

from typing import TYPE_CHECKING

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.emit import TRUE, Atom, i64
from pipelink_ir.backends.loops.fold import must
from pipelink_ir.backends.loops.nests import Axis
from pipelink_ir.backends.loops.reads import address, extent, low
from pipelink_ir.ir.dtypes import BOOL, F32, DType
from pipelink_ir.ir.nodes import Read
from pipelink_ir.passes.scheduling.views import Leaf, Looker, View

if TYPE_CHECKING:
    from pipelink_ir.backends.loops.gpu.attention import Flash


class Staged:
    """One of the factors: lines along one leaf, neighbours along another. Each line is 16 bytes longer than it need be, so that eight neighbouring ones lie in
    different banks."""

    def __init__(self, flash: Flash, hint: str, view: View, dtype: DType, lines: Leaf, inner: Leaf, count: int, wide: int, slots: int) -> None:
        self.flash, self.lo, self.e, self.view, self.dtype, self.lines, self.inner = flash, flash.lo, flash.e, view, dtype, lines, inner
        self.count, self.wide, self.pitch = count, wide, wide + 16 // dtype.bytes
        self.size = count * self.pitch
        self.values = inner.kind == "axis"
        self.look = Looker(flash.lo.op, flash.lo.plan.local)
        self.name = self.e.memory(hint)
        self.e.raw(form.Alloc(self.name, dtype, i64(self.size * slots), True))

    def factor(self, slot: Atom) -> form.Factor:
        """The tile in a slot, as a factor."""
        return form.Factor(self.name, self.e.op("*", slot, i64(self.size)), not self.values, self.pitch)

    def load(self, slot: Atom, line: Atom, place: Atom) -> form.Expr:
        """One element."""
        return form.Load(self.name, self._place(slot, line, place), self.dtype, F32)

    def _place(self, slot: Atom, line: Atom, place: Atom) -> Atom:
        e = self.e
        return e.op("+", e.op("*", slot, i64(self.size)), e.op("+", e.op("*", line, i64(self.pitch)), place))

    def odd(self, slot: Atom, bad: form.Ref) -> None:
        """Whether a thread finds a number in a tile that is not finite."""
        e, threads = self.e, self.flash.threads
        each = 16 // self.dtype.bytes
        chunks = self.count * self.wide // each
        with self.flash.team.each("t", threads) as t:
            sum_ = e.var("nothing", must(0, F32))
            with e.loop("chunk", t, i64(chunks), i64(threads)) as c:
                line, place = e.op("quot", c, i64(self.wide // each)), e.op("*", e.op("rest", c, i64(self.wide // each)), i64(each))
                some = e.memory("some")
                e.raw(form.Alloc(some, F32, i64(each)))
                e.raw(form.Move(some, i64(0), self.name, self._place(slot, line, place), each))
                for n in range(each):
                    e.assign(sum_, form.Op("fma", (form.Load(some, i64(n), F32, F32), must(0, F32), sum_), F32))
            e.assign(bad, form.Op("!=", (sum_, sum_), BOOL))

    # ------------------------------------------------------------------------------------------------------------------ copies

    def stage(self, first: Atom, slot: Atom, end: Atom | None, inner: Axis) -> None:
        """Brings a tile from line `first` on to its slot; zeros from line `end` on, if there is one, and for keys that nobody sees."""
        cond = self._whole_chunks(inner)
        if cond is None:
            self._each_element(first, slot, end, inner)
        elif isinstance(cond, form.Const) and cond.value:
            self._chunks(first, slot, end, inner)
        else:
            e = self.e
            with e.when(cond):
                self._chunks(first, slot, end, inner)
            with e.when(e.op("not", cond)):
                self._each_element(first, slot, end, inner)

    def _read(self) -> Read | None:
        """The read that a factor is, if it is nothing else."""
        x = self.view.expr
        return x if isinstance(x, Read) and all(word in ("", "inside", "guarded") for word in x.access) else None

    def _whole_chunks(self, inner: Axis) -> Atom | None:
        """The condition under which 16 bytes at a time can be copied; None if that is never so."""
        lo, e, read = self.lo, self.e, self._read()
        if read is None:
            return None
        t = lo.op.tensors[read.tensor]
        views = [self.look.of(View(i, self.view.env)) for i in read.indices]
        if lo.plan.local(t.name) or t.name in lo.written or t.dtype is not self.dtype or not views or views[-1] != self.inner:
            return None
        if any(self.inner in self.look.leaves(v) for v in views[:-1]):
            return None
        k, each = len(views) - 1, i64(16 // self.dtype.bytes)
        conds: list[Atom] = []
        for size in (extent(lo, t, k), inner.n, e.op("-", inner.lo, low(lo, t, k))):
            cond = e.op("==", e.op("mod", size, each), i64(0))
            if isinstance(cond, form.Const) and not cond.value:
                return None
            conds.append(cond)
        aligned = e.find(("aligned", t.name))
        if aligned is None:
            aligned = e.bind("aligned", form.Aligned(lo.buffer(t), 16))
            e.remember(("aligned", t.name), aligned)
        return e.all_of([*(c for c in conds if not isinstance(c, form.Const)), aligned])

    def _at(self, line: Atom, place: Atom, inner: Axis) -> dict[Leaf, Atom]:
        e, flash = self.e, self.flash
        outer = line if self.lines.kind == "key" else e.op("+", flash.row.lo, line)
        return {**flash.fixed, self.lines: outer, self.inner: e.op("+", inner.lo, place)}

    def _seen(self, line: Atom) -> Atom:
        """Whether a line counts at all, which is asked for values."""
        return self.flash.keys.anybody(line) if self.values else TRUE

    def _chunks(self, first: Atom, slot: Atom, end: Atom | None, inner: Axis) -> None:
        lo, e, flash, read = self.lo, self.e, self.flash, self._read()
        assert read is not None
        t, each, threads = lo.op.tensors[read.tensor], 16 // self.dtype.bytes, flash.threads
        in_line = self.wide // each
        chunks = self.count * in_line

        def copy(step: Atom, place: Atom) -> None:
            line = e.op("+", first, step)
            inside = self._inside(line, place, end, inner)
            inside = e.branch(inside, lambda: self._seen(line), lambda: form.Const(False, BOOL), BOOL) if self.values and flash.keys.masks else inside
            env = flash.env(self.view, self._at(line, place, inner))
            source = address(lo, t, tuple(lo.index(i, env) for i in read.indices))
            e.raw(form.CopyAsync(self.name, self._place(slot, step, place), lo.buffer(t), source, inside, self.dtype))

        with flash.team.loop("t", i64(0), i64(threads), nonempty=True) as thread:
            for c in range(0, chunks, threads):
                number = e.op("+", thread, i64(c))
                with e.when(e.op("<", number, i64(chunks)) if c + threads > chunks else TRUE):
                    if threads % in_line == 0:
                        # A thread copies from lines that lie evenly apart: one address and constants.
                        copy(e.op("+", e.op("quot", thread, i64(in_line)), i64(c // in_line)), e.op("*", e.op("rest", thread, i64(in_line)), i64(each)))
                    else:
                        copy(e.op("quot", number, i64(in_line)), e.op("*", e.op("rest", number, i64(in_line)), i64(each)))

    def _inside(self, line: Atom, place: Atom, end: Atom | None, inner: Axis) -> Atom:
        """Whether an element is one of the factor's."""
        e = self.e
        one = TRUE if end is None else e.op("<", line, end)
        two = TRUE if inner.n == i64(self.wide) else e.op("<", place, inner.n)
        return two if one is TRUE else one if two is TRUE else e.op("and", one, two)

    def _each_element(self, first: Atom, slot: Atom, end: Atom | None, inner: Axis) -> None:
        e, flash, dtype = self.e, self.flash, self.dtype
        zero = must(0, dtype.compute)
        with flash.team.loop("s", i64(0), i64(self.count * self.wide), nonempty=True) as s:
            step, place = e.op("quot", s, i64(self.wide)), e.op("rest", s, i64(self.wide))
            line = e.op("+", first, step)
            inside = self._inside(line, place, end, inner)

            def value() -> Atom:
                at = self._at(line, place, inner)
                return e.branch(self._seen(line), lambda: e.convert(flash.atom(self.view, at), dtype.compute), lambda: zero, dtype.compute)

            out = e.branch(inside, value, lambda: zero, dtype.compute)
            e.raw(form.Store(self.name, self._place(slot, step, place), out, dtype))
