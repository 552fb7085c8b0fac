"""Kernels that keep rows in registers, and pointwise ones over narrow floats, on a GPU: quotients to the bit, lengths and addresses that suit wide accesses
and others."""
from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import pipelink_ir as pl
from tests.quotients import ROWS, SHARE, alike, divided, edges, hard_to_round, shares
from tests.rows import NORM, SOFTMAX, norm, softmax

pytestmark = pytest.mark.gpu
HALVES = NORM.replace("f32", "f16")
GELU = """import std.nn
op @bias(%x: tensor<NxKxf16>, %b: tensor<Kxf16>) -> (%y: tensor<NxKxf16>) { compute { %y[n, k] = %x[n, k] + %b[k] } }
pipeline @p(%x: tensor<NxKxf16>, %b: tensor<Kxf16>) -> (%y: tensor<NxKxf16>) {
  %s = @bias(%x, %b)
  %y = @gelu_erf(%s)
}
"""


@pytest.fixture(scope="module")
def compiled() -> dict[str, Any]:
    return {text: pl.compile(text, target="cuda") for text in (ROWS, SHARE, SOFTMAX, NORM, HALVES, GELU)}


def run(program: Any, skip: int = 0, **arrays: np.ndarray) -> np.ndarray:
    """What a program makes of arrays on the device, those of more than one axis `skip` elements behind the beginning of their memory."""
    cupy = importlib.import_module("cupy")

    def put(a: np.ndarray) -> Any:
        if a.ndim == 1 or not skip:
            return cupy.asarray(a)
        memory = cupy.empty(a.size + skip, a.dtype)
        memory[skip:] = cupy.asarray(a).ravel()
        return memory[skip:].reshape(a.shape)

    out: np.ndarray = cupy.asnumpy(cupy.from_dlpack(program(**{n: put(a) for n, a in arrays.items()}).y))
    return out


def test_every_size_by_every_size(compiled: dict[str, Any]) -> None:
    d = edges()
    x = np.tile(np.resize(d, -(-len(d) // 8) * 8), (len(d), 1))
    assert alike(run(compiled[ROWS], x=x, d=d), divided(x, d)).all()


def test_digits_that_are_hard_to_round(compiled: dict[str, Any]) -> None:
    x, d = hard_to_round()
    assert alike(run(compiled[ROWS], x=x, d=d), divided(x, d)).all()


@pytest.mark.parametrize("k", [64, 1000, 1001, 8191, 8192])
def test_shares(compiled: dict[str, Any], k: int) -> None:
    x, want = shares(k)
    assert alike(run(compiled[SHARE], x=x), want).all()


@pytest.mark.parametrize("skip", [0, 1])
@pytest.mark.parametrize("k", [257, 515, 600, 4096, 8191, 8192, 16_383, 16_384, 16_385])
def test_rows(compiled: dict[str, Any], k: int, skip: int) -> None:
    rng = np.random.default_rng(k)
    x, g, b = (rng.standard_normal(s, dtype=np.float32) for s in ((9, k), k, k))
    np.testing.assert_allclose(run(compiled[SOFTMAX], skip, x=x), softmax(x), rtol=2e-6)
    np.testing.assert_allclose(run(compiled[NORM], skip, x=x, g=g, b=b), norm(x, g, b), rtol=2e-5, atol=2e-5)
    x, g, b = (v.astype(np.float16) for v in (x, g, b))
    np.testing.assert_allclose(run(compiled[HALVES], skip, x=x, g=g, b=b), norm(x, g, b), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("skip", [0, 1])
@pytest.mark.parametrize(("n", "k"), [(3, 5), (130, 8191), (130, 8192)])
def test_gelu(compiled: dict[str, Any], n: int, k: int, skip: int) -> None:
    special = importlib.import_module("scipy.special")
    rng = np.random.default_rng(k)
    x, b = (rng.standard_normal(s, dtype=np.float32).astype(np.float16) for s in ((n, k), k))
    s = (x + b).astype(np.float64)
    np.testing.assert_allclose(run(compiled[GELU], skip, x=x, b=b), s * special.ndtr(s), rtol=6e-4, atol=1e-7)
