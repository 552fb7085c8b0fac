"""The prelude's plain C++, run by the host: every function and every cast. `tests/gpu/test_numerics.py` asks the same of a GPU."""
from __future__ import annotations

import numpy as np
import pytest

from tests.unit.cuda import numerics
from tests.unit.cuda.maps import Run, compiler, on_host

FUNCTIONS, CASTS = numerics.function_maps(), numerics.cast_maps()
pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler here")


@pytest.fixture(scope="module")
def functions() -> Run:
    return on_host(FUNCTIONS)


@pytest.fixture(scope="module")
def casts() -> Run:
    return on_host(CASTS)


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n.split()[0] in numerics.FLOATS])
def test_function(functions: Run, name: str) -> None:
    numerics.check_function(functions, name)


@pytest.mark.parametrize("name", CASTS)
def test_cast(casts: Run, name: str) -> None:
    numerics.check_cast(casts, name)


def test_unsigned_division(functions: Run) -> None:
    a, b = np.array([0, 1, 7, 2**62, 2**63 - 1], np.int64), np.array([1, 2, 3, 5, 2**31], np.int64)
    assert functions("quot i64", a, b).tolist() == [x // y for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert functions("rest i64", a, b).tolist() == [x % y for x, y in zip(a.tolist(), b.tolist(), strict=True)]


def test_literals(functions: Run) -> None:
    assert functions("literals", np.array([0, 1], np.int32)).tolist() == [float(np.float32(1e-45)), float(np.float32(0.1))]


def test_constants(functions: Run) -> None:
    numerics.check_constants(functions)


def test_exact_results(functions: Run) -> None:
    numerics.check_exact_results(functions)
