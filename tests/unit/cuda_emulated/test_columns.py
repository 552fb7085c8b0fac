"""Reductions of columns, several neighbours a thread where there are many: sums of whole numbers are exact, so they are NumPy's."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pipelink_ir
from pipelink_ir.backends.loops.gpu import columns
from tests.emulated import NEEDS_COMPILER

pytestmark = NEEDS_COMPILER


def text(dtype: str, value: str, result: str) -> str:
    operands = f"%x: tensor<NxHxWxCx{dtype}, NHWC>"
    return f"""op @columns({operands}) -> (%y: tensor<NxCx{result}>) {{ compute {{ %y[n, c] = {value} }} }}
    pipeline @p({operands}) -> (%y: tensor<NxCx{result}>) {{ %y = @columns(%x) }}
    """


def values(rng: Any, dtype: str, *size: int) -> Any:
    return rng.integers(-8, 9, size).astype({"f16": np.float16, "f32": np.float32, "i8": np.int8}[dtype])


@pytest.mark.parametrize("few", [False, True])
@pytest.mark.parametrize("dtype", ["f16", "f32", "i8"])
@pytest.mark.parametrize("shape", [(2, 5, 7, 16), (1, 20, 33, 24), (3, 4, 6, 7), (1, 3, 300, 8), (2, 1, 1, 32)], ids=str)
def test_sums_and_largest(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int, int, int], dtype: str, few: bool) -> None:
    if not few:
        monkeypatch.setattr(columns, "FEW", 1)
    x = values(np.random.default_rng(sum(shape)), dtype, *shape)
    wide = x.astype(np.float64)
    got = np.asarray(pipelink_ir.compile(text(dtype, "sum[h < H, w < W](f32(%x[n, h, w, c]))", "f32"), target="cuda-emulated")(x=x)["y"])
    assert np.array_equal(got, wide.sum((1, 2)))
    got = np.asarray(pipelink_ir.compile(text(dtype, "mean[h < H, w < W](f32(%x[n, h, w, c]) * 0.5)", "f32"), target="cuda-emulated")(x=x)["y"])
    np.testing.assert_allclose(got, (wide * 0.5).mean((1, 2)), rtol=1e-6, atol=1e-6)
    got = np.asarray(pipelink_ir.compile(text(dtype, "max[h < H, w < W](f32(%x[n, h, w, c]))", "f32"), target="cuda-emulated")(x=x)["y"])
    assert np.array_equal(got, wide.max((1, 2)))


@pytest.mark.parametrize("skip", [0, 1])
def test_arrays_that_begin_in_between(monkeypatch: pytest.MonkeyPatch, skip: int) -> None:
    monkeypatch.setattr(columns, "FEW", 1)
    x = values(np.random.default_rng(1), "f16", 2 * 40 * 64 + skip)[skip:].reshape(2, 40, 1, 64)
    got = np.asarray(pipelink_ir.compile(text("f16", "sum[h < H, w < W](f32(%x[n, h, w, c]))", "f32"), target="cuda-emulated")(x=x)["y"])
    assert np.array_equal(got, x.astype(np.float64).sum((1, 2)))
