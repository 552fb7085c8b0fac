"""One launch for kernels that have nothing to do with each other: its threads are split among them, so each block does the work of one.

    grid for p in 0..(a + b) { if p < a { … turn p of the first … } ; if p >= a and p - a < turns of the second { … turn p - a of the second … } }

Each begins at a multiple of `BLOCK`, which no block of the device exceeds: the threads of a block, or of a warp, take one way together. A check that fails in
one of them stops none of the others; an empty one has no threads.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence

from pipelink_ir.backends.loops.emit import Atom, i64
from pipelink_ir.backends.loops.gpu.vector import VectorNest
from pipelink_ir.backends.loops.lower import Lowering, Sites
from pipelink_ir.backends.loops.nests import Job
from pipelink_ir.ir.typed import TypedOperator
from pipelink_ir.passes.scheduling.costs import Plan
from pipelink_ir.passes.scheduling.knobs import Knobs

BLOCK = 256
"""Threads that take one way together."""

Part = tuple[list[Job], Mapping[str, int], Knobs]
"""What one kernel computes, the pieces that it meets alone, and what is written of it."""


def ranges_body(op: TypedOperator, plan: Plan, sites: Sites, parts: Sequence[Part]) -> Lowering:
    """The kernel of several kernels, still open."""
    lo = Lowering(op, plan, sites, frozenset(t.name for jobs, _, _ in parts for t, _ in jobs))
    e, nests = lo.e, []
    total: Atom = i64(0)
    for jobs, chosen, knobs in parts:
        # Each has its own view of which axes have places.
        nest = VectorNest(lo.beside(chosen), jobs)
        nest.knobs, nest.beside = knobs, True
        nest.opened = nest.open()
        nests.append((nest, total))
        total = e.op("+", total, e.op("*", e.op("quot", e.op("+", e.op("max", nest.opened.turns, i64(0)), i64(BLOCK - 1)), i64(BLOCK)), i64(BLOCK)))
    with e.loop("turn", i64(0), total, kind="grid") as p:
        for nest, begin in nests:
            q = e.op("-", p, begin)
            with e.when(e.op("and", e.op(">=", q, i64(0)), e.op("<", q, nest.opened.turns))):
                nest.inside(q)
    return lo
