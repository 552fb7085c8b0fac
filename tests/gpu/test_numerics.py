"""The prelude on a GPU, with PTX and CUDA's own functions: every function within its accuracy, every cast to the bit."""
from __future__ import annotations

import pytest

from tests.unit.cuda import numerics
from tests.unit.cuda.maps import Run, on_gpu

FUNCTIONS, CASTS = numerics.function_maps(), numerics.cast_maps()
pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def functions() -> Run:
    return on_gpu(FUNCTIONS)


@pytest.fixture(scope="module")
def casts() -> Run:
    return on_gpu(CASTS)


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n.split()[0] in numerics.FLOATS])
def test_function(functions: Run, name: str) -> None:
    print(f"{name}: {numerics.check_function(functions, name):.2f} ulp")


@pytest.mark.parametrize("name", CASTS)
def test_cast(casts: Run, name: str) -> None:
    numerics.check_cast(casts, name)


def test_constants(functions: Run) -> None:
    numerics.check_constants(functions)


def test_exact_results(functions: Run) -> None:
    numerics.check_exact_results(functions)
