"""Gathers on a GPU: rows of a table by their numbers, and pixels at places that are computed, against NumPy in float64."""
from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipelink_ir as pl
from pipelink_ir.ir.diagnostics import ExecutionError

pytestmark = pytest.mark.gpu
CASES = Path(__file__).resolve().parents[1] / "cases"
ROWS = """op @rows(%t: tensor<VxDxf16>, %i: tensor<MxSxi32>) -> (%y: tensor<MxSxDxf16>) { compute { %y[m, s, d] = %t[%i[m, s], d] } }
pipeline @p(%t: tensor<VxDxf16>, %i: tensor<MxSxi32>) -> (%y: tensor<MxSxDxf16>) { %y = @rows(%t, %i) }
"""


@pytest.fixture(scope="module")
def cupy() -> Any:
    return importlib.import_module("cupy")


def resized(img: Any, mean: Any, std: Any) -> Any:
    """What the case `preprocess` computes: to 224 x 224, normalised, channels first."""
    def along(n: int) -> tuple[Any, Any, Any]:
        # Places are f32, as in the program; all else is float64.
        place = (np.arange(224, dtype=np.float32) + np.float32(0.5)) * (np.float32(n) / np.float32(224)) - np.float32(0.5)
        first = np.floor(place)
        return np.clip(first.astype(int), 0, n - 1), np.clip(first.astype(int) + 1, 0, n - 1), (place - first).astype(np.float64)

    x, (above, below, down), (left, right, across) = img.astype(np.float64), along(img.shape[1]), along(img.shape[2])
    across = across[:, None]
    rows = [x[:, k][:, :, left] * (1 - across) + x[:, k][:, :, right] * across for k in (above, below)]
    value = rows[0] * (1 - down[:, None, None]) + rows[1] * down[:, None, None]
    return ((value / 255 - mean) / std).transpose(0, 3, 1, 2)


@pytest.mark.parametrize("shape", [(2, 1080, 1920), (1, 37, 41), (1, 1, 1), (3, 100, 8), (1, 500, 333), (2, 224, 224), (1, 63, 5)])
def test_pixels(cupy: Any, shape: tuple[int, int, int]) -> None:
    img = np.random.default_rng(1).integers(0, 256, (*shape, 3), dtype=np.uint8)
    mean, std = np.array([0.485, 0.456, 0.406], np.float32), np.array([0.229, 0.224, 0.225], np.float32)
    p = pl.compile(CASES / "preprocess.plir", target="cuda")
    got = cupy.asnumpy(p(img=cupy.asarray(img), mean=cupy.asarray(mean), std=cupy.asarray(std))["out"])
    np.testing.assert_allclose(got.astype(np.float64), resized(img, mean, std), rtol=1e-3, atol=2e-3)


@pytest.mark.parametrize("skip", [0, 1, 3])
def test_pixels_of_a_view(cupy: Any, skip: int) -> None:
    """An image that begins anywhere."""
    room = cupy.asarray(np.random.default_rng(2).integers(0, 256, 64 * 48 * 3 + 8, dtype=np.uint8))
    img = room[skip:skip + 64 * 48 * 3].reshape(1, 64, 48, 3)
    mean, std = np.zeros(3, np.float32), np.ones(3, np.float32)
    got = pl.compile(CASES / "preprocess.plir", target="cuda")(img=img, mean=cupy.asarray(mean), std=cupy.asarray(std))["out"]
    np.testing.assert_allclose(cupy.asnumpy(got).astype(np.float64), resized(cupy.asnumpy(img), mean, std), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("width", [1024, 1023, 1025, 8, 7])
def test_rows(cupy: Any, width: int) -> None:
    """So many that a thread has several places."""
    rng = np.random.default_rng(3)
    t, i = rng.standard_normal((500, width)).astype(np.float16), rng.integers(0, 500, (700_000 // width, 2), dtype=np.int32)
    p = pl.compile(ROWS, target="cuda")
    np.testing.assert_array_equal(cupy.asnumpy(p(t=cupy.asarray(t), i=cupy.asarray(i))["y"]), t[i])
    i[-1, -1] = 500
    with pytest.raises(ExecutionError, match=r"index 500 of axis 0 of '%t' is outside 0\.\.500"):
        p(t=cupy.asarray(t), i=cupy.asarray(i))
