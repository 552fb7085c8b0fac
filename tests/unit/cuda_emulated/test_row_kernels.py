"""Rows of narrow floats in registers: lengths that suit wide accesses in memory that does not, and others, beside float64."""
from __future__ import annotations

import numpy as np
import pytest

import pipelink_ir
from tests.emulated import NEEDS_COMPILER
from tests.rows import NORM, norm

pytestmark = NEEDS_COMPILER
HALVES = NORM.replace("f32", "f16")


@pytest.fixture(scope="module")
def halves() -> object:
    return pipelink_ir.compile(HALVES, target="cuda-emulated")


@pytest.mark.parametrize("skip", [0, 1])
@pytest.mark.parametrize("k", [515, 600, 1000, 1024, 3001])
def test_halves(halves: object, k: int, skip: int) -> None:
    rng = np.random.default_rng(k)
    memory, g, b = (rng.standard_normal(s, dtype=np.float32).astype(np.float16) for s in (3 * k + skip, k, k))
    x = memory[skip:].reshape(3, k)
    got = np.asarray(halves(x=x, g=g, b=b)["y"]).astype(np.float64)  # type: ignore[operator]
    np.testing.assert_allclose(got, norm(x, g, b), rtol=1e-3, atol=1e-3)
