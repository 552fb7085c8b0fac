"""Convolutions from tiles of a picture, on a GPU: any channels and results, borders, steps; against NumPy."""
from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.gpu.test_codes import call
from tests.unit.cuda_emulated.test_convolutions import convolution, drawn, wanted

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(("c", "o", "dtype", "border", "taps", "step", "apart", "shape"), [
    (32, 1, "i8", "constant(0)", 3, 1, 1, (3, 100, 256)), (32, 1, "f16", "constant(0)", 3, 1, 1, (3, 101, 131)), (32, 3, "f16", "reflect", 3, 1, 1, (2, 70, 192)),
    (32, 2, "i8", "constant(-7)", 3, 1, 2, (2, 70, 190)), (64, 4, "u8", "constant(128)", 3, 1, 1, (1, 90, 96)), (3, 32, "i8", "constant(0)", 3, 2, 1, (4, 256, 256)),
    (3, 32, "f16", "constant(0)", 3, 2, 1, (2, 130, 134)), (3, 16, "u8", "replicate", 3, 1, 1, (2, 65, 129)), (32, 64, "i8", "constant(3)", 3, 1, 1, (2, 60, 256)),
    (32, 64, "f16", "wrap", 3, 1, 1, (2, 61, 130)), (64, 24, "i8", "constant(0)", 3, 2, 1, (2, 64, 128)), (32, 1, "bf16", "constant(0)", 5, 1, 1, (1, 70, 130)),
    (64, 64, "f16", "constant(0)", 3, 1, 1, (1, 70, 130)), (64, 128, "i8", "constant(0)", 3, 1, 1, (1, 70, 130)), (128, 128, "f16", "constant(0)", 3, 1, 1, (1, 70, 70)),
    (64, 128, "bf16", "constant(0)", 3, 2, 1, (16, 30, 30)), (128, 192, "i8", "constant(0)", 3, 1, 1, (40, 7, 9)), (64, 160, "f16", "constant(0)", 3, 1, 2, (2, 33, 20)),
    (256, 256, "f16", "constant(0)", 5, 1, 1, (8, 14, 14)), (256, 256, "u8", "constant(0)", 3, 2, 1, (40, 8, 6)), (256, 40, "f16", "constant(0)", 3, 1, 1, (3, 5, 7))])
def test_sums(tmp_path: Path, c: int, o: int, dtype: str, border: str, taps: int, step: int, apart: int, shape: tuple[int, int, int]) -> None:
    x, w = drawn((*shape, c), dtype), drawn((taps, taps, c, o), dtype)
    got = call(tmp_path, convolution(c, o, dtype, border, taps, step, apart), x=x, w=w).astype(np.float64)
    exact = x.dtype.kind in "iu"
    # Sums of f32, of numbers of the size of 1.
    near = max(1e-3, 5e-5 * (taps * taps * c) ** 0.5)
    np.testing.assert_allclose(got, wanted(x, w, border, step, apart), rtol=0 if exact else 1e-4, atol=0 if exact else near)


def test_what_is_infinite_stays_in_its_windows(tmp_path: Path) -> None:
    x, w = drawn((2, 80, 130, 32), "f16"), np.abs(drawn((3, 3, 32, 1), "f16"))
    x[1, 37, 64, 5] = np.inf
    got = call(tmp_path, convolution(32, 1, "f16"), x=x, w=w)
    there = np.zeros((2, 80, 130), bool)
    there[1, 36:39, 63:66] = True
    assert (np.isposinf(got[..., 0]) == there).all()
    assert np.isfinite(got[..., 0][~there]).all()
