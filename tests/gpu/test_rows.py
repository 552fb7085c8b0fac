"""Rows of all lengths on a GPU, beside float64: short ones, which lanes of a warp share, and long ones, which blocks share."""
from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import pipelink_ir as pl
from tests.rows import NORM, REDUCED, SOFTMAX, norm, softmax

pytestmark = pytest.mark.gpu
LENGTHS = ((3001, 1), (3001, 5), (2000, 8), (1111, 33), (700, 64), (300, 200), (200, 256), (100, 257), (70, 1000), (5, 32769), (3, 100_003), (1, 1_000_003))


@pytest.fixture(scope="module")
def compiled() -> dict[str, Any]:
    return {text: pl.compile(text, target="cuda") for text in (SOFTMAX, NORM, REDUCED)}


def on_device(array: np.ndarray) -> Any:
    return importlib.import_module("cupy").asarray(array)


def back(value: Any) -> np.ndarray:
    cupy = importlib.import_module("cupy")
    out: np.ndarray = cupy.asnumpy(cupy.from_dlpack(value))
    return out


@pytest.mark.parametrize(("n", "k"), LENGTHS)
def test_softmax(compiled: dict[str, Any], n: int, k: int) -> None:
    x = np.random.default_rng(k).standard_normal((n, k), dtype=np.float32)
    given = on_device(x)
    first, second = (back(compiled[SOFTMAX](x=given).y) for _ in range(2))
    np.testing.assert_allclose(first, softmax(x), rtol=2e-6)
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize(("n", "k"), LENGTHS[1:])
def test_layer_norm(compiled: dict[str, Any], n: int, k: int) -> None:
    rng = np.random.default_rng(k)
    x, g, b = (rng.standard_normal(s, dtype=np.float32) for s in ((n, k), k, k))
    got = back(compiled[NORM](**{name: on_device(v) for name, v in (("x", x), ("g", g), ("b", b))}).y)
    np.testing.assert_allclose(got, norm(x, g, b), rtol=2e-5, atol=2e-3 if k < 16 else 2e-5)


@pytest.mark.parametrize(("n", "k"), LENGTHS)
def test_reductions(compiled: dict[str, Any], n: int, k: int) -> None:
    x = np.random.default_rng(k).standard_normal((n, k), dtype=np.float32)
    got = compiled[REDUCED](x=on_device(x))
    wide = x.astype(np.float64)
    np.testing.assert_allclose(back(got.total), wide.sum(1), atol=1e-6 * k + 1e-6)
    np.testing.assert_array_equal(back(got.top), x.max(1))
    np.testing.assert_allclose(back(got.middle), (wide * wide).mean(1), rtol=2e-6)


@pytest.mark.parametrize("k", [5, 36, 50_001])
def test_a_view_that_begins_in_between(compiled: dict[str, Any], k: int) -> None:
    x = np.random.default_rng(k).standard_normal(7 * k + 1, dtype=np.float32)
    got = back(compiled[SOFTMAX](x=on_device(x)[1:].reshape(7, k)).y)
    np.testing.assert_allclose(got, softmax(x[1:].reshape(7, k)), rtol=2e-6)


@pytest.mark.parametrize(("n", "k"), [(1000, 5), (300, 64), (3, 40_001)])
def test_lengths_that_are_written(n: int, k: int) -> None:
    x = np.random.default_rng(k).standard_normal((n, k), dtype=np.float32)
    text = SOFTMAX.replace("NxK", f"Nx{k}").replace("< K", f"< {k}")
    np.testing.assert_allclose(back(pl.compile(text, target="cuda")(x=on_device(x)).y), softmax(x), rtol=2e-6)
