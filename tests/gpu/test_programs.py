"""Random programs on a GPU, by the generators of `tests/fuzz`; `benchmarks/gpu_check.py` runs more of them."""
from __future__ import annotations

import random
from typing import Any

import pytest

from pipelink_ir.backends.cuda.executable import load
from tests.fuzz import gathers, graphs, pointwise, recurrences, reductions, stencils
from tests.fuzz.census import Census
from tests.fuzz.check import check_backend, lowered
from tests.fuzz.tape import LENGTH, Tape

pytestmark = pytest.mark.gpu
AREAS = {"pointwise": pointwise, "stencils": stencils, "reductions": reductions, "gathers": gathers, "recurrences": recurrences, "graphs": graphs}


def check(area: str, number: int) -> None:
    """One program: launches on the first sample, a graph on those of the same sizes."""
    build: Any = AREAS[area].program  # type: ignore[attr-defined]
    program = build(Tape(random.Random(f"{area}:{number}").randbytes(LENGTH)))
    front, module = lowered(program)
    check_backend("cuda", load(module, module.pipelines[0].name), program, front, Census())


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("area", AREAS)
def test_programs(area: str, number: int) -> None:
    check(area, number)


@pytest.mark.parametrize(("area", "number"), [("gathers", 190)])
def test_found(area: str, number: int) -> None:
    """Programs that a GPU has computed wrongly: a quotient by a constant lost the sign of zero."""
    check(area, number)
