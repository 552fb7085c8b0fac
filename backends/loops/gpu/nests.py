"""Kernels of definitions without a recurrence on a GPU: one flat loop over the places of a box, or a block for each place of some axes.

    grid for n_k in 0..N * K { … one place … }
    block for n in 0..N { … what the row shares, by all threads … ; thread for k in 0..K { … one place … } }
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.build import extent_of
from pipelink_ir.backends.loops.emit import Atom, i64
from pipelink_ir.backends.loops.gpu.flat import unravel
from pipelink_ir.backends.loops.gpu.sort import Rows
from pipelink_ir.backends.loops.gpu.team import Team
from pipelink_ir.backends.loops.nests import Axis, Nest
from pipelink_ir.ir.dtypes import I64
from pipelink_ir.passes.scheduling.shape import sized


@dataclass(frozen=True, slots=True)
class Turns:
    """How many threads a kernel asks for, and what is written for the one with a number."""

    turns: Atom
    turn: Callable[[Atom], None]


class GpuNest(Nest):
    """The loops of one kernel for a GPU."""

    opened: Turns

    def grid(self) -> None:
        """One thread a place, or a few."""
        self.opened = self.open()
        with self.e.loop(self._hint(self.axes) if self.axes else "once", i64(0), self.opened.turns, kind="grid") as p:
            self.inside(p)

    def inside(self, p: Atom) -> None:
        """What thread `p` of those that are asked for does."""
        self._readable(lambda: self.opened.turn(p))

    def open(self) -> Turns:
        """How many threads are asked for, and what each does."""
        flat = len(self.axes) if len(self.axes) > 1 and self._all_in_step() else 1
        zeros: list[Atom] = [i64(0)] * (len(self.axes) - 1)
        return Turns(self._total(self.axes) if self.axes else i64(1), lambda p: self.element([*zeros, p] if flat > 1 else self._places(self.axes, p)))

    def _all_in_step(self) -> bool:
        """Whether the number of a place is its address in all that is read and written: nothing then has to be taken apart."""
        if any(p.holes for _, p in self.jobs) or self.heavy:
            return False
        return all(self._whole(p, -1) and self._in_step(p, u, 0, True) for (_, p), u in zip(self.jobs, self.uses, strict=True))

    def _places(self, axes: list[Axis], p: Atom) -> list[Atom]:
        return unravel(self.lo, tuple((a.name, a.lo, a.n) for a in axes), p) if axes else []

    def block(self, outer: tuple[int, ...], name: str) -> None:
        """One block for each place of the axes `outer`; its threads share the places of the others."""
        e, team = self.e, Team(self.lo)
        blocks = [self.axes[k] for k in outer]
        inner = [k for k in range(len(self.axes)) if k not in outer]
        threads = [self.axes[k] for k in inner]
        turns = self._guarded(self._total(blocks), threads)

        def one(p: Atom) -> None:
            team.rows = self._rows(name, outer, p)
            fixed = dict(zip(outer, self._places(blocks, p), strict=True))
            if not threads:
                self._alike(team, fixed)
                return
            for _, piece in self.jobs:
                team.ahead(piece, fixed)
            with team.loop(self._hint(threads), i64(0), self._total(threads), nonempty=True) as q:
                at = {**fixed, **dict(zip(inner, self._places(threads, q), strict=True))}
                self.element([at[k] for k in range(len(self.axes))])

        with e.loop(self._hint(blocks) if blocks else "once", i64(0), self.turns(turns), kind="block") as p:
            self._readable(lambda: self.turn(team, p, turns, one))

    def turns(self, places: Atom) -> Atom:
        """How many turns the loop over blocks has for so many places."""
        return places

    def turn(self, team: Team, p: Atom, places: Atom, one: Callable[[Atom], None]) -> None:
        """What a block does in turn `p`; `one` writes what it does for one place."""
        one(p)

    def _rows(self, name: str, outer: tuple[int, ...], p: Atom) -> Rows | None:
        """The blocks by number, if how many there are is known from sizes."""
        piece = self.jobs[0][1]
        axes = [piece.axes[k] for k in outer]
        if not all(sized(b, self.lo.op) for r in axes for b in (r.lo, r.hi) if b is not None):
            return None
        count: form.Expr = i64(1)
        for r in axes:
            count = form.Op("*", (count, extent_of(r)), I64)
        return Rows(name, p, count)

    def _alike(self, team: Team, fixed: Mapping[int, Atom]) -> None:
        """The one place of a block. Definitions may read those before them there."""
        jobs = self.jobs
        for job in jobs:
            team.ahead(job[1], fixed)
            self.jobs = [job]
            self.element([fixed[k] for k in range(len(self.axes))])
        self.jobs = jobs
