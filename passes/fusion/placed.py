"""What the schedule does with the edges inside a fused operator: the truth behind the sums of stencils.

Two groups are written as one operator, as they would be if they were merged, and its schedule is asked where each edge between members lives. What goes into a
buffer is written and read as before, by kernels of its own. What a block stages costs the rims of its tiles, in operations and in what is read around them.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from pipelink_ir.ir.diagnostics import Report
from pipelink_ir.ir.typed import Tensor, TypedOperator
from pipelink_ir.ir.walk import reads_in
from pipelink_ir.passes.fusion.compose import Composed, Part, Refused, compose
from pipelink_ir.passes.infer.operator import infer_operator
from pipelink_ir.passes.scheduling.costs import Plan
from pipelink_ir.passes.scheduling.counts import count
from pipelink_ir.passes.scheduling.derivation import derivation
from pipelink_ir.passes.scheduling.gpu_place import gpu_plan
from pipelink_ir.passes.scheduling.place import plan as cpu_plan
from pipelink_ir.passes.scheduling.tiles import BLOCKS, MULTIPROCESSORS, Tiled


@dataclass(frozen=True, slots=True)
class Placed:
    """The edges inside an operator. `stored`: how many kernels read each that goes into a buffer; `rims`: how many places of each that is staged by tiles are
    computed for one; `inline`: those that are evaluated where they are read. `kernels`: how many there are more than without buffers."""

    stored: Mapping[str, int]
    rims: Mapping[str, float]
    inline: frozenset[str]
    kernels: int
    around: float
    """How much of an operand is read for one place of a tile."""
    at_once: bool = False
    """Whether all tiles run at once, as far as sizes are known."""

    def renamed(self, names: Mapping[str, str]) -> Placed:
        """The same with other names of edges."""
        return Placed({names[e]: n for e, n in self.stored.items()}, {names[e]: r for e, r in self.rims.items()},
                      frozenset(names[e] for e in self.inline), self.kernels, self.around, self.at_once)


def placed(parts: tuple[Part, ...], device: str) -> Placed | None:
    """Where the edges inside an operator of these parts live; None if there is no such operator."""
    try:
        made = compose("trial", parts)
    except Refused:
        return None
    report = Report()
    typed = infer_operator(made.op, report)
    if typed is None or report.failed:
        return None
    op, stored = derivation(typed, device)
    plan = gpu_plan(op, stored) if device == "cuda" else cpu_plan(op, frozenset(stored))
    return _told(op, plan, parts, made)


def _told(op: TypedOperator, plan: Plan, parts: tuple[Part, ...], made: Composed) -> Placed:
    rims = {s.tensor: way.rim(s.tensor) for way in plan.tiles.values() for s in way.stages}
    inside = dict(_inside(parts, made))
    buffers = {t for t in inside if t in op.tensors and op.tensors[t].kind == "local" and plan.place.get(t) == "buffer"}
    readers: dict[str, int] = dict.fromkeys((t for t in inside if t in buffers), 0)
    more = 0
    for step in plan.steps:
        for t in _read(op, plan, step.tensors) & buffers:
            readers[t] += 1
        more += all(op.tensors[t].kind == "local" for t in step.tensors) and any(t in buffers for t in step.tensors)
    around = max((way.around for way in plan.tiles.values() if way.stages), default=1.0)
    at_once = any(_fit(op.tensors[root], way) for root, way in plan.tiles.items() if way.stages)
    return Placed({inside[t]: max(1, n) for t, n in readers.items()}, {inside[t]: r for t, r in rims.items() if t in inside},
                  frozenset(e for t, e in inside.items() if plan.place.get(t) in ("inline", "row")), more, around, at_once)


def _fit(root: Tensor, way: Tiled) -> bool:
    """Whether all tiles of a result have room on the device."""
    tiles = {way.down: way.tile[0], way.across: way.tile[1]}
    sizes = [count(a) for a in root.pieces[0].axes]
    blocks = prod(-(-n // tiles.get(k, 1)) for k, n in enumerate(sizes) if n is not None and k not in way.whole)
    return None not in sizes and blocks <= BLOCKS * MULTIPROCESSORS


def _inside(parts: tuple[Part, ...], made: Composed) -> Iterator[tuple[str, str]]:
    """The local that each edge between parts is."""
    for part, side in zip(parts, made.sides, strict=True):
        for r, e in zip(part.op.results, part.results, strict=True):
            if e not in part.kept and r.name in side.tensors:
                yield side.tensors[r.name], e


def _read(op: TypedOperator, plan: Plan, tensors: tuple[str, ...]) -> set[str]:
    """What the kernel of some tensors reads, through all that it computes itself."""
    seen: set[str] = set()
    left = list(tensors)
    while left:
        for p in op.tensors[left.pop()].pieces:
            for r in reads_in(p.value):
                if r.tensor not in seen:
                    seen.add(r.tensor)
                    if plan.local(r.tensor):
                        left.append(r.tensor)
    return seen
