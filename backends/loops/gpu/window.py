"""Runs of neighbouring places on a GPU: what `passes/scheduling/windows.py` decided.

    grid for p in … {
      if neighbours lie so that they can move together {
        if all places are there { the places of a run, row by row, written out: what they share is loaded and computed once }
        else { those that are there, as loops }
      } else {
        as many places as a loop, each with those below it written out; neighbouring threads take neighbouring places
      }
    }

In the first version borders are asked for only at the ends of the run. Neighbours in memory are moved by one access (`gpu/pack.py`) where divisors of sizes
and addresses, which are looked at once in a kernel, allow it.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import product

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.contents import blocks, makes
from pipelink_ir.backends.loops.emit import TRUE, Affine, Atom, i64, key_of
from pipelink_ir.backends.loops.gpu.dots import dotted
from pipelink_ir.backends.loops.gpu.flat import Flat, unravel
from pipelink_ir.backends.loops.gpu.pack import Packer
from pipelink_ir.backends.loops.gpu.take import Taker
from pipelink_ir.backends.loops.lower import Lowering, Sites
from pipelink_ir.backends.loops.nests import Axis, Job, Nest
from pipelink_ir.backends.loops.split import running
from pipelink_ir.ir.typed import TypedOperator
from pipelink_ir.passes.scheduling.costs import Plan
from pipelink_ir.passes.scheduling.windows import MOST, Window


def window_body(op: TypedOperator, plan: Plan, sites: Sites, job: Job, window: Window, chosen: Mapping[str, int] | None = None) -> Lowering:
    """The kernel of runs, still open."""
    lo = Lowering(op, plan, sites, frozenset((job[0].name,)), chosen)
    lo.e.doubles = not op.exact
    _Runs(lo, [job], window).write()
    # A loop over turns costs these registers; the others were faster with it (`docs/decisions/stencils.md`).
    lo.fit, lo.once = window.fit, window.many > MOST or any(k > window.down >= 0 for k in range(len(job[1].axes)) if k not in (window.across, *window.whole))
    return lo


class _Runs(Nest):
    """The loops of one kernel."""

    def __init__(self, lo: Lowering, jobs: list[Job], window: Window) -> None:
        super().__init__(lo, jobs)
        self.window = window
        self.across = self.axes[window.across]
        self.down = self.axes[window.down] if window.down >= 0 else None
        self.beside = self.axes[window.beside] if window.beside >= 0 else None
        taken = {window.across, window.down, window.beside, *window.whole}
        self.outer = [k for k in range(len(self.axes)) if k not in taken]
        self.plane = [k for k in range(len(self.axes)) if k not in window.whole and k > window.down] if window.down >= 0 else [window.across]

    def write(self) -> None:
        """Writes the kernel."""
        e, w = self.e, self.window
        runs = self._parts(self.across.n, w.many)
        rows = self._parts(self.down.n, w.rows) if self.down is not None else i64(1)
        pairs = self._parts(self.beside.n, w.pair) if self.beside is not None else i64(1)
        # What lies between the rows and what runs across belongs to neighbouring threads, which read the same lines.
        near = [k for k in self.outer if self.down is not None and k > w.down]
        far = [k for k in self.outer if k not in near]
        others = self._ranges(far)
        inner = self._ranges(near)
        turns = e.op("*", others.total, e.op("*", rows, runs))
        turns = e.op("*", turns, e.op("*", inner.total, pairs)) if near or self.beside is not None else turns
        with e.loop("run", i64(0), turns, kind="grid") as p:
            run, above = e.op("rest", p, runs), e.op("quot", p, runs)
            pair, above = (e.op("rest", above, pairs), e.op("quot", above, pairs)) if self.beside is not None else (i64(0), above)
            beside = e.op("*", pair, i64(w.pair))
            fixed: dict[int, Atom] = {}
            if near:
                fixed |= zip(near, unravel(self.lo, inner.ranges, e.op("rest", above, inner.total)), strict=True)
                above = e.op("quot", above, inner.total)
            row, beyond = (e.op("rest", above, rows), e.op("quot", above, rows)) if self.down is not None else (i64(0), above)
            fixed |= zip(far, unravel(self.lo, others.ranges, beyond), strict=True)
            place = e.op("rest", p, e.op("*", e.op("*", inner.total, pairs), runs)) if near or self.beside is not None else run
            self._readable(lambda: self._run(fixed, (run, runs, pairs, place), row, beside))

    def _ranges(self, axes: list[int]) -> Flat:
        chosen = [self.axes[k] for k in axes]
        return Flat(tuple((a.name, a.lo, a.n) for a in chosen), self._total(chosen))

    def _parts(self, n: Atom, size: int) -> Atom:
        e = self.e
        n = e.op("max", n, i64(0))
        return n if size == 1 else e.op("floordiv", e.op("+", n, i64(size - 1)), i64(size))

    def _run(self, fixed: dict[int, Atom], number: tuple[Atom, Atom, Atom, Atom], row: Atom, beside: Atom) -> None:
        """All versions of a run. `number`: which run it is of how many, how many pairs there are, and which of all runs between the rows it is."""
        e, w = self.e, self.window
        run, runs, pairs, place = number
        first = e.op("*", row, i64(w.rows))
        begin = e.op("*", run, i64(w.many))
        if len(self.plane) > 1 and not self.lo.overwritten and self._moved(fixed, number, first, begin, beside):
            return
        with e.frame("lazy") as whole:
            packer = Packer(self.lo, {self.across.n: w.many})
            with running(self.lo, None, self._inside(begin, first, beside), None):
                self._written_out(fixed, begin, first, beside)
            taker = Taker(self.lo)
            whole.stmts[:] = dotted(self.lo, packer.packed(whole.stmts)) if w.many > 1 else taker.taken(whole.stmts)
        fine = e.all_of([*packer.conditions(), *taker.conditions(), *([self._divides(self.across.n, w.many)] if w.many > 1 else [])])
        full = rows = e.op("<=", e.op("+", first, i64(w.rows)), self.down.n) if self.down is not None and w.rows > 1 else TRUE
        if self.beside is not None:
            full = e.all_of([rows, e.op("<=", e.op("+", beside, i64(w.pair)), self.beside.n)])
        block = tuple(whole.stmts)
        if full is not TRUE:
            with e.frame("lazy") as some:
                self._there(fixed, begin, first, beside)
            block = (form.If(full, block, tuple(some.stmts)),)
        if isinstance(fine, form.Const) and fine.value:
            for s in block:
                e.raw(s)
            return
        with e.frame("lazy") as apart:
            self._dealt(fixed, run, runs, first, rows) if len(self.plane) == 1 else self._dealt_in_planes(fixed, place, runs, pairs, first, rows)
        if isinstance(fine, form.Const):
            for s in apart.stmts:
                e.raw(s)
            return
        e.raw(form.If(fine, block, tuple(apart.stmts)))

    def _moved(self, fixed: dict[int, Atom], number: tuple[Atom, Atom, Atom, Atom], first: Atom, begin: Atom, beside: Atom) -> bool:
        """The same with runs that always are in the result: the last rows begin so early that all are there, and those that belong to the run before are not
        stored. So nothing may be read where a place is stored. Whether it could be done."""
        e, w, down = self.e, self.window, self.down
        assert down is not None
        _, runs, pairs, place = number
        last = self._last(down, first, w.rows)
        near = self._last(self.beside, beside, w.pair) if self.beside is not None else beside
        own = [e.all_of([self._own(last, r, first), self._own(near, k, beside)])
               for r in range(w.rows) for k in range(w.pair if self.beside is not None else 1)]
        with e.frame("lazy") as whole:
            packer = Packer(self.lo, {self.across.n: w.many})
            with running(self.lo, None, self._inside(begin, last, near), None):
                self._written_out(fixed, begin, last, near)
            stmts = packer.packed(whole.stmts)
            whole.stmts[:] = dotted(self.lo, stmts) if w.many > 1 else stmts
        guarded = self._stored_once(whole.stmts, own)
        if guarded is None:
            return False
        fits = [e.op(">=", self.beside.n, i64(w.pair))] if self.beside is not None else []
        fine = e.all_of([*packer.conditions(), self._divides(self.across.n, w.many), *fits])
        tall = e.op(">=", down.n, i64(w.rows))
        if tall is not TRUE:
            few, more = self._row_by_row(fixed, first, begin, near, beside)
            fine = e.all_of([fine, *(more if few else [tall])])
            guarded = [form.If(tall, tuple(guarded), tuple(few))] if few else guarded
        with e.frame("lazy") as apart:
            rows = e.op("<=", e.op("+", first, i64(w.rows)), down.n) if w.rows > 1 else TRUE
            self._dealt_in_planes(fixed, place, runs, pairs, first, rows)
        if isinstance(fine, form.Const):
            for one in guarded if fine.value else apart.stmts:
                e.raw(one)
        else:
            e.raw(form.If(fine, tuple(guarded), tuple(apart.stmts)))
        return True

    def _row_by_row(self, fixed: dict[int, Atom], first: Atom, begin: Atom, near: Atom, beside: Atom) -> tuple[list[form.Stmt], list[Atom]]:
        """The rows that are there as a loop, neighbours written out as before, and what has to hold for that. Nothing if it cannot be done."""
        e, w, down = self.e, self.window, self.down
        assert down is not None
        end = e.op("min", e.op("+", first, i64(w.rows)), down.n)
        stores: list[form.Stmt] | None = None
        with e.frame("lazy") as some, e.loop(down.name, e.op("+", down.lo, first), e.op("+", down.lo, end)) as i:
            inside = self._known(self.across, begin, w.many) | self._known(down, e.op("-", i, down.lo), 1)
            with running(self.lo, None, inside | (self._known(self.beside, near, w.pair) if self.beside is not None else set()), None):
                for k in range(w.pair if self.beside is not None else 1):
                    at = {**fixed, w.down: i} | ({w.beside: e.op("+", self.beside.lo, e.op("+", near, i64(k)))} if self.beside is not None else {})
                    for j in range(w.many):
                        self._everything({**at, w.across: e.op("+", self.across.lo, e.op("+", begin, i64(j)))})
            packer = Packer(self.lo, {self.across.n: w.many})
            packed = packer.packed(e.top.stmts)
            packed = dotted(self.lo, packed) if w.many > 1 else packed
            stores = self._stored_once(packed, [self._own(near, k, beside) for k in range(w.pair if self.beside is not None else 1)])
            e.top.stmts[:] = stores or packed
        return ([], []) if stores is None else (some.stmts, packer.conditions())

    def _last(self, axis: Axis, start: Atom, size: int) -> Atom:
        """Where a run along an axis begins that ends inside."""
        e, n = self.e, axis.n
        if size == 1 or (isinstance(n, form.Const) and int(n.value) % size == 0):
            return start
        return e.op("min", start, e.op("-", n, i64(size)))

    def _own(self, begins: Atom, by: int, start: Atom) -> Atom:
        """Whether the place that is so far behind the beginning of a run is none of the run before."""
        return TRUE if begins == start else self.e.op(">=", self.e.op("+", begins, i64(by)), start)

    def _stored_once(self, stmts: list[form.Stmt], own: list[Atom]) -> list[form.Stmt] | None:
        """The statements, with what they store under the conditions of its places, which follow each other; None where it is not plain to see what belongs to
        which."""
        def stores(s: form.Stmt) -> bool:
            return any(n.startswith("%") and n[1:] in self.lo.written for n in makes(s)) or any(map(stores, (t for b in blocks(s) for t in b)))

        found = [k for k, s in enumerate(stmts) if stores(s)]
        if len(found) % len(own) or any(not isinstance(stmts[k], form.Store | form.Move) for k in found):
            return None
        out = list(stmts)
        for n, k in enumerate(found):
            cond = own[n * len(own) // len(found)]
            if cond is not TRUE:
                out[k] = form.If(cond, (stmts[k],))
        return out

    def _divides(self, n: Atom, many: int) -> Atom:
        """Whether an axis is a whole number of runs."""
        e = self.e
        return e.op("==", e.op("rest", e.op("max", n, i64(0)), i64(many)), i64(0))

    def _inside(self, begin: Atom, first: Atom, beside: Atom) -> set[tuple[Affine, str]]:
        """The places of the run, of which no border needs to be asked."""
        return self._known(self.across, begin, self.window.many) | self._rows_inside(first, beside)

    def _rows_inside(self, first: Atom, beside: Atom) -> set[tuple[Affine, str]]:
        out = self._known(self.down, first, self.window.rows) if self.down is not None else set()
        return out | self._known(self.beside, beside, self.window.pair) if self.beside is not None else out

    def _known(self, axis: Axis, start: Atom, size: int) -> set[tuple[Affine, str]]:
        if key_of(axis.lo) != key_of(i64(0)):
            return set()
        return {(self.e.form_of(self.e.op("+", start, i64(k))), str(key_of(axis.n))) for k in range(size)}

    def _places(self) -> Iterator[dict[int, Atom]]:
        """The places along the axes that a thread computes whole."""
        e, whole = self.e, self.window.whole
        sizes = [int(n.value) for k in whole if isinstance(n := self.axes[k].n, form.Const)]
        assert len(sizes) == len(whole)
        for at in product(*map(range, sizes)):
            yield {k: e.op("+", self.axes[k].lo, i64(i)) for k, i in zip(whole, at, strict=True)}

    def _written_out(self, fixed: dict[int, Atom], begin: Atom, first: Atom, beside: Atom) -> None:
        e, w = self.e, self.window
        for at in self._rows_of(first, beside):
            for j in range(w.many):
                self._everything({**fixed, **at, w.across: e.op("+", self.across.lo, e.op("+", begin, i64(j)))})

    def _rows_of(self, first: Atom, beside: Atom) -> Iterator[dict[int, Atom]]:
        """The rows of a thread, written out, and in each of them its neighbours."""
        e, w = self.e, self.window
        for r in range(w.rows if self.down is not None else 1):
            at = {w.down: e.op("+", self.down.lo, e.op("+", first, i64(r)))} if self.down is not None else {}
            for k in range(w.pair if self.beside is not None else 1):
                yield {**at, w.beside: e.op("+", self.beside.lo, e.op("+", beside, i64(k)))} if self.beside is not None else at

    @contextmanager
    def _some(self, first: Atom, beside: Atom) -> Iterator[dict[int, Atom]]:
        """Loops over those rows, and neighbours in them, that are in the result."""
        e, w, down = self.e, self.window, self.down
        at: dict[int, Atom] = {}
        with ExitStack() as stack:
            if down is not None:
                end = e.op("min", e.op("+", first, i64(w.rows)), down.n)
                at[w.down] = stack.enter_context(e.loop(down.name, e.op("+", down.lo, first), e.op("+", down.lo, end)))
            if self.beside is not None:
                end = e.op("min", e.op("+", beside, i64(w.pair)), self.beside.n)
                at[w.beside] = stack.enter_context(e.loop(self.beside.name, e.op("+", self.beside.lo, beside), e.op("+", self.beside.lo, end)))
            yield at

    def _everything(self, at: dict[int, Atom]) -> None:
        for more in self._places():
            every = {**at, **more}
            self.element([every[k] for k in range(len(self.axes))])

    def _there(self, fixed: dict[int, Atom], begin: Atom, first: Atom, beside: Atom) -> None:
        """The places of a run that are in the result: not all rows are."""
        e, w = self.e, self.window
        with self._some(first, beside) as at:
            start = e.op("+", self.across.lo, begin)
            with e.loop(self.across.name, start, e.op("+", start, i64(w.many))) as j:
                self._everything({**fixed, **at, w.across: j})

    def _dealt(self, fixed: dict[int, Atom], run: Atom, runs: Atom, first: Atom, full: Atom) -> None:
        """As many places across, `runs` apart, so that neighbouring threads have neighbours; the rows below each written out as before."""
        e, w = self.e, self.window
        with e.loop("place", run, self.across.n, runs) as j:
            self._column({**fixed, w.across: e.op("+", self.across.lo, j)}, first, full)

    def _dealt_in_planes(self, fixed: dict[int, Atom], place: Atom, runs: Atom, pairs: Atom, first: Atom, full: Atom) -> None:
        """The same where there are other axes between the rows and what runs across: neighbours along all of them follow each other in memory."""
        e, w = self.e, self.window
        plane = self._ranges(self.plane)
        threads = e.op("*", e.op("*", self._total([self.axes[k] for k in self.plane if k not in (w.beside, w.across)]), pairs), runs)
        with e.loop("place", place, plane.total, threads) as j:
            self._column({**fixed, **dict(zip(self.plane, unravel(self.lo, plane.ranges, j), strict=True))}, first, full)

    def _column(self, at: dict[int, Atom], first: Atom, full: Atom) -> None:
        """The rows of one place, written out if all are there."""
        e, w, down = self.e, self.window, self.down
        if down is None:
            self._everything(at)
            return
        with e.frame("lazy") as whole, running(self.lo, None, self._known(down, first, w.rows), None):
            for r in range(w.rows):
                self._everything({**at, w.down: e.op("+", down.lo, e.op("+", first, i64(r)))})
        if full is TRUE:
            for s in whole.stmts:
                e.raw(s)
            return
        with e.frame("lazy") as some:
            end = e.op("min", e.op("+", first, i64(w.rows)), down.n)
            with e.loop(down.name, e.op("+", down.lo, first), e.op("+", down.lo, end)) as i:
                self._everything({**at, w.down: i})
        e.raw(form.If(full, tuple(whole.stmts), tuple(some.stmts)))
