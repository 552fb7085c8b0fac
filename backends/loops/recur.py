"""Kernels of recurrences: the recurring axis in order; around it in parallel the axes along which every read inside the group stays where it is.

Parallel axes that lie inside the recurring one in memory run inside it, so that rows stay rows; if there is none outside, the first of them is cut into
chunks for the threads. Each tensor of the group has its own loops inside a step, in the order that inference found.
"""
from __future__ import annotations

from dataclasses import dataclass

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.emit import Atom, i64
from pipelink_ir.backends.loops.lower import Lowering, Sites
from pipelink_ir.backends.loops.nests import store
from pipelink_ir.backends.loops.reads import no_hole
from pipelink_ir.ir.dtypes import I64
from pipelink_ir.ir.nodes import IntLit, Name, Read
from pipelink_ir.ir.typed import Group, Piece, Tensor, TypedOperator
from pipelink_ir.ir.walk import reads_in
from pipelink_ir.passes.scheduling.costs import Plan

CHUNK = 128
"""Places of an inner axis that one turn of the parallel loop takes."""
ZERO = IntLit(0, dtype=I64)


def recurrence_body(op: TypedOperator, plan: Plan, sites: Sites, group: Group) -> Lowering:
    """The kernel of a recurrence, still open."""
    lo = Lowering(op, plan, sites, frozenset(group.tensors))
    Scan(lo, group).write()
    return lo


@dataclass(frozen=True, slots=True)
class Lane:
    """An axis along which the group falls apart into independent recurrences: its position in each tensor."""

    axis: dict[str, int]


class Scan:
    """The loops of one group."""

    def __init__(self, lo: Lowering, group: Group) -> None:
        assert group.recurrence is not None
        self.lo, self.e = lo, lo.e
        self.tensors = [lo.op.tensors[n] for n in group.tensors]
        self.rec = dict(zip(group.tensors, group.recurrence.axis, strict=True))
        self.down = group.recurrence.step < 0
        self.reads = [(t, p, x) for t in self.tensors for p in t.pieces for x in reads_in(p.value) if x.tensor in self.rec]
        first = self.tensors[0]
        lanes = [lane for k in range(len(first.shape)) if k != self.rec[first.name] and (lane := self._lane(first, k)) is not None]
        self.outer = [lane for lane in lanes if lane.axis[first.name] < self.rec[first.name]]
        self.inner = [lane for lane in lanes if lane not in self.outer]

    # ----------------------------------------------------------------------------------------------------------------- lanes

    def _lane(self, first: Tensor, k: int) -> Lane | None:
        """The lane through axis `k` of the first tensor, if every read inside the group stays in it."""
        axis = {first.name: k}
        grown = True
        while grown:
            before = len(axis)
            for t, p, x in self.reads:
                if not self._follow(axis, t, p, x):
                    return None
            grown = len(axis) > before
        return Lane(axis) if len(axis) == len(self.tensors) else None

    def _follow(self, axis: dict[str, int], t: Tensor, p: Piece, x: Read) -> bool:
        names = [i.name if isinstance(i, Name) else None for i in x.indices]
        if t.name in axis:
            here = p.axes[axis[t.name]].index
            if x.tensor in axis:
                return names[axis[x.tensor]] == here
            found = [k for k, n in enumerate(names) if n == here and k != self.rec[x.tensor]]
            if len(found) != 1:
                return False
            axis[x.tensor] = found[0]
        elif x.tensor in axis:
            there = names[axis[x.tensor]]
            found = [k for k, a in enumerate(p.axes) if a.index == there and k != self.rec[t.name]]
            if len(found) != 1:
                return False
            axis[t.name] = found[0]
        return True

    def bounds(self, axis: dict[str, int]) -> tuple[Atom, Atom]:
        """The hull of an axis over all tensors of the group."""
        first, last = None, None
        for t in self.tensors:
            a, b = (self.lo.index(x, self.lo.root) for x in t.shape[axis[t.name]])
            first = a if first is None else self.e.op("min", first, a)
            last = b if last is None else self.e.op("max", last, b)
        assert first is not None
        assert last is not None
        return first, last

    # ----------------------------------------------------------------------------------------------------------------- loops

    def write(self) -> None:
        e = self.e
        if self.outer:
            bounds = [self.bounds(lane.axis) for lane in self.outer]
            turns: Atom = i64(1)
            for a, b in bounds:
                turns = e.op("*", turns, e.op("max", e.op("-", b, a), i64(0)))
            with e.loop("lane", i64(0), turns, kind="parallel") as p:
                at: list[Atom] = []
                left: Atom = p
                for k, (a, b) in reversed(list(enumerate(bounds))):
                    n = e.op("-", b, a)
                    place: Atom = left
                    if k:
                        place, left = e.op("rest", left, n), e.op("quot", left, n)
                    at.append(e.op("+", a, place))
                self._steps(at[::-1], None)
            return
        if self.inner:
            a, b = self.bounds(self.inner[0].axis)
            n = e.op("max", e.op("-", b, a), i64(0))
            with e.loop("chunk", i64(0), e.op("floordiv", e.op("+", n, i64(CHUNK - 1)), i64(CHUNK)), kind="parallel") as p:
                begin = e.op("+", a, e.op("*", p, i64(CHUNK)))
                self._steps([], (begin, e.op("min", e.op("+", begin, i64(CHUNK)), b)))
            return
        self._steps([], None)

    def _steps(self, at: list[Atom], chunk: tuple[Atom, Atom] | None) -> None:
        """The recurring axis in order."""
        e = self.e
        a, b = self.bounds(self.rec)
        name = self.tensors[0].pieces[-1].axes[self.rec[self.tensors[0].name]].index
        with e.loop("step" if self.down else name, i64(0) if self.down else a, e.op("-", b, a) if self.down else b) as i:
            step = e.op("-", e.op("-", b, i64(1)), i) if self.down else i
            for t in self.tensors:
                for p in t.pieces:
                    self.piece(t, p, step, at, chunk)

    def piece(self, t: Tensor, p: Piece, step: Atom, at: list[Atom], chunk: tuple[Atom, Atom] | None) -> None:
        """One piece at one step: its conditions on axes that run outside, then loops over the others."""
        lo, e = self.lo, self.e
        fixed: dict[int, Atom] = {self.rec[t.name]: step, **{lane.axis[t.name]: i for lane, i in zip(self.outer, at, strict=True)}}
        conds: list[Atom] = []
        for k, i in fixed.items():
            lane = next((lane.axis for lane in self.outer if lane.axis[t.name] == k), self.rec)
            alike = all(self._same_box(t, k, u, lane[u.name]) for u in self.tensors)
            r = p.axes[k]
            if not alike or (r.lo or ZERO) != t.shape[k][0]:
                conds.append(e.op(">=", i, lo.index(r.lo or ZERO, lo.root)))
            if not alike or r.hi != t.shape[k][1]:
                conds.append(e.op("<", i, lo.index(r.hi, lo.root)))
        early = [h for h in p.holes if all(k in fixed for k, _ in h)]
        probe = Piece(p.axes, p.value, tuple(early), p.span)
        late = Piece(p.axes, p.value, tuple(h for h in p.holes if h not in early), p.span)
        places = tuple(fixed.get(k, i64(0)) for k in range(len(p.axes)))
        with e.when(e.all_of([*conds, *no_hole(lo, probe, places)])):
            saved = set(lo.full)
            for k in range(len(p.axes)):
                n = lo.extent(*t.shape[k])
                if isinstance(n, form.Ref):
                    lo.full.add(n.name)
            self.loops(t, late, fixed, chunk, 0)
            lo.full = saved

    def _same_box(self, t: Tensor, k: int, u: Tensor, j: int) -> bool:
        return t.shape[k] == u.shape[j]

    def loops(self, t: Tensor, p: Piece, fixed: dict[int, Atom], chunk: tuple[Atom, Atom] | None, k: int) -> None:
        lo, e = self.lo, self.e
        if k == len(p.axes):
            at = [fixed[a] for a in range(k)]
            with e.when(e.all_of(no_hole(lo, p, tuple(at)))):
                store(lo, t, p, at)
            return
        if k in fixed:
            self.loops(t, p, fixed, chunk, k + 1)
            return
        first, last = lo.index(p.axes[k].lo or ZERO, lo.root), lo.index(p.axes[k].hi, lo.root)
        if chunk is not None and self.inner[0].axis[t.name] == k:
            first, last = e.op("max", first, chunk[0]), e.op("min", last, chunk[1])
        with e.loop(p.axes[k].index, first, last) as i:
            self.loops(t, p, {**fixed, k: i}, chunk, k + 1)
