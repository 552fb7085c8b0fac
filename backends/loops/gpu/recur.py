"""Kernels of recurrences on a GPU: the recurring axis in order, inside a thread or inside a block.

    grid for lane in 0..N { for t in 0..T { … } }                                                  every other axis only carries on: a thread a sequence
    block for lane in 0..N { for t in 0..T { thread for s in 0..S { … } barrier } }                places look at each other: a block a sequence
"""
from __future__ import annotations

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.emit import Atom, i64
from pipelink_ir.backends.loops.gpu.flat import unravel
from pipelink_ir.backends.loops.gpu.team import Team
from pipelink_ir.backends.loops.lower import Lowering, Sites
from pipelink_ir.backends.loops.nests import store
from pipelink_ir.backends.loops.reads import no_hole
from pipelink_ir.backends.loops.recur import ZERO, Scan
from pipelink_ir.ir.typed import Group, Piece, Tensor, TypedOperator
from pipelink_ir.passes.scheduling.costs import Plan


def gpu_recurrence(op: TypedOperator, plan: Plan, sites: Sites, group: Group) -> Lowering:
    """The kernel of a recurrence, still open."""
    lo = Lowering(op, plan, sites, frozenset(group.tensors))
    _GpuScan(lo, group).write()
    return lo


class _GpuScan(Scan):
    """The loops of one group."""

    def __init__(self, lo: Lowering, group: Group) -> None:
        super().__init__(lo, group)
        first = self.tensors[0].name
        self.outer = sorted([*self.outer, *self.inner], key=lambda lane: lane.axis[first])
        self.inner = []
        self.single = all(len(t.shape) == len(self.outer) + 1 for t in self.tensors)
        """Whether a thread can run a sequence: there are no other axes inside a step."""
        self.team = None if self.single else Team(lo)

    def write(self) -> None:
        e = self.e
        lanes: list[tuple[str, Atom, Atom]] = []
        for number, lane in enumerate(self.outer):
            a, b = self.bounds(lane.axis)
            lanes.append((f"lane{number}", a, e.op("max", e.op("-", b, a), i64(0))))
        turns: Atom = i64(1)
        for _, _, n in lanes:
            turns = e.op("*", turns, n)
        with e.loop("lane", i64(0), turns, kind="grid" if self.single else "block") as p:
            self._steps(unravel(self.lo, tuple(lanes), p) if lanes else [])

    def _steps(self, at: list[Atom], chunk: tuple[Atom, Atom] | None = None) -> None:
        e = self.e
        a, b = self.bounds(self.rec)
        name = self.tensors[0].pieces[-1].axes[self.rec[self.tensors[0].name]].index
        with e.loop("step" if self.down else name, i64(0) if self.down else a, e.op("-", b, a) if self.down else b) as i:
            step = e.op("-", e.op("-", b, i64(1)), i) if self.down else i
            for t in self.tensors:
                for p in t.pieces:
                    self.piece(t, p, step, at, chunk)
                if self.team is not None:
                    e.raw(form.Barrier())

    def loops(self, t: Tensor, p: Piece, fixed: dict[int, Atom], chunk: tuple[Atom, Atom] | None, k: int) -> None:
        """The places of one step: by one thread, or shared out."""
        lo, e = self.lo, self.e
        free = [axis for axis in range(len(p.axes)) if axis not in fixed]
        if self.team is None or not free:
            super().loops(t, p, fixed, chunk, k)
            return
        ranges: list[tuple[str, Atom, Atom]] = []
        for axis in free:
            first = lo.index(p.axes[axis].lo or ZERO, lo.root)
            ranges.append((p.axes[axis].index, first, e.op("max", e.op("-", lo.index(p.axes[axis].hi, lo.root), first), i64(0))))
        total: Atom = i64(1)
        for _, _, n in ranges:
            total = e.op("*", total, n)
        with self.team.loop(ranges[0][0] if len(ranges) == 1 else "place", i64(0), total) as q:
            at = {**fixed, **dict(zip(free, unravel(lo, tuple(ranges), q), strict=True))}
            places = [at[axis] for axis in range(len(p.axes))]
            with e.when(e.all_of(no_hole(lo, p, tuple(places)))):
                store(lo, t, p, places)
