"""Random programs on the emulated GPU, with every access looked at: the generators of `test_fuzz.py`, many programs compiled as one text.

Each area has as many programs as the table says, always the same; `--fuzz-programs=N` takes N others. One that fails is named by its seed; `test_fuzz.py` minimises
those that fail on the CPU, too.
"""
from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator

import pytest

from pipelink_ir.backends.cuda.emulate.executable import Options, load
from tests.emulated import NEEDS_COMPILER, prepare
from tests.fuzz import gathers, graphs, pointwise, recurrences, reductions, stencils
from tests.fuzz.census import Census
from tests.fuzz.check import Differs, check_backend, lowered
from tests.fuzz.data import Program
from tests.fuzz.tape import LENGTH, Tape

pytestmark = NEEDS_COMPILER

BATCH = 60
"""Programs that are compiled together."""

AREAS = ((pointwise, 60), (stencils, 50), (reductions, 60), (gathers, 40), (recurrences, 50), (graphs, 40))

WIDE = 5
"""One program in so many runs with indices of 64 bits."""


def _programs(build: Callable[[Tape], Program], first: str, count: int) -> Iterator[list[tuple[str, Program]]]:
    """Programs and their seeds, a batch at a time."""
    for begin in range(0, count, BATCH):
        seeds = [f"{first}:{n}" for n in range(begin, min(count, begin + BATCH))]
        yield [(seed, build(Tape(random.Random(seed).randbytes(LENGTH)))) for seed in seeds]


@pytest.mark.parametrize(("area", "usual"), AREAS, ids=lambda a: a.__name__.rpartition(".")[2] if hasattr(a, "__name__") else "")
def test_programs(area: object, usual: int, census: Census, request: pytest.FixtureRequest) -> None:
    asked = request.config.getoption("--fuzz-programs")
    first = f"{area.__name__}{time.time_ns() if asked else ''}"  # type: ignore[attr-defined]
    for batch in _programs(area.program, first, asked or usual):  # type: ignore[attr-defined]
        modules = [lowered(program) for _, program in batch]
        prepare(module for _, module in modules)
        for n, ((seed, program), (front, module)) in enumerate(zip(batch, modules, strict=True)):
            census.add("outcome", "programs")
            run = load(module, module.pipelines[0].name, Options(wide=n % WIDE == 0))
            try:
                check_backend("cuda-emulated", run, program, front, census)
            except Differs as fault:
                raise Differs(f"{fault}\nthe tape of {seed!r}") from None
    elements = census.counts["elements"]
    assert elements["anything"] <= 0.1 * elements.total()
    assert elements["exact"] > 0
