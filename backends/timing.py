"""What the times of single kernels are told in, on any device."""
from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pipelink_ir.backends.loops.form import Program, evaluate
from pipelink_ir.backends.planning import Plan


@dataclass(frozen=True, slots=True)
class StepTimes:
    """One kernel of a plan: the node that it belongs to (its place in the pipeline), its name, the bytes of the arrays that it touches, each counted once, and
    the seconds of each run."""

    node: int
    name: str
    bytes: int
    seconds: tuple[float, ...]


class _Unit(Protocol):
    @property
    def program(self) -> Program: ...


def told(plan: Plan, units: Mapping[str, _Unit], seconds: Sequence[Sequence[float]], launched: Container[int] | None = None) -> list[StepTimes]:
    """The steps of a plan with their times, of each run. Those that are not `launched` are left out: kernels for other sizes than these."""
    out = []
    for k, step in enumerate(plan.steps):
        if launched is not None and k not in launched:
            continue
        kernel = units[step.op].program.kernels[step.kernel]
        size = 0
        for b in kernel.buffers:
            elements = 1
            for d in b.shape:
                elements *= max(0, evaluate(d, dict(step.sizes)))
            size += elements * b.memory.bytes
        out.append(StepTimes(step.node, kernel.name, size, tuple(run[k] for run in seconds)))
    return out
