"""Everything that policies lower to, by the code of sm_75 and others, on the GPU that is here: near the program as it is written, and the numbers of the same
plan on the processor."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pipelink_ir as pl
from tests.unit.cuda.test_lowered import CLAUSES, text

ARCHS = ("sm_75", "sm_80", "sm_89", "sm_90")
ALLOWED = {"f16": 2e-3, "bf16": 2e-2, "plain": 0.15, "i8": 0.03, "affine": 0.03, "tensor": 0.04, "block": 0.03, "f8": 0.1, "f8e5m2": 0.2, "i4": 0.25, "i4i8": 0.25, "tile": 2e-3}
"""Largest errors beside the largest magnitude, of two products with what lies between."""


def arrays() -> dict[str, Any]:
    r = np.random.default_rng(11)
    return {"x": r.normal(size=(70, 128)).astype(np.float32), "w": (r.normal(size=(128, 128)) / 11).astype(np.float32), "b": r.normal(size=128).astype(np.float32),
            "img": r.normal(size=(2, 9, 10, 32)).astype(np.float16), "dk": r.normal(size=(3, 3, 32)).astype(np.float16),
            "dl": r.normal(size=(3, 3, 64)).astype(np.float16), "pk": (r.normal(size=(32, 64)) / 6).astype(np.float16)}


def wanted(given: dict[str, Any]) -> dict[str, Any]:
    """By NumPy in f64."""
    a = {k: v.astype(np.float64) for k, v in given.items()}

    def depthwise(x: Any, k: Any) -> Any:
        p = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        return sum(p[:, i:i + x.shape[1], j:j + x.shape[2]] * k[i, j] for i in range(3) for j in range(3))
    linear = np.maximum(a["x"] @ a["w"] + a["b"], 0) @ a["w"] + a["b"]
    point = depthwise(a["img"], a["dk"]) @ a["pk"]
    pooled = point[:, :8, :10].reshape(2, 4, 2, 5, 2, 64).max((2, 4))
    return {**{f"y_{name}": linear for name in CLAUSES}, "q": depthwise(pooled, a["dl"]), "f": np.maximum(a["x"] @ a["w"], 0) @ a["w"]}


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    return wanted(arrays())


def check(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert sorted(found) == sorted(expected)
    for name, want in expected.items():
        error = np.abs(np.asarray(found[name]).astype(np.float64) - want).max() / np.abs(want).max()
        allowed = ALLOWED.get(name.removeprefix("y_"), 0.06)
        assert error <= allowed, f"{name}: {error:.3g} of {allowed}"


@pytest.mark.gpu
@pytest.mark.parametrize("arch", ARCHS)
def test_lowered_programs_run(arch: str, expected: dict[str, Any]) -> None:
    compiled = pl.compile(text(arch), target=arch, pass_options="lower-precision{price=false}")
    for _ in range(2):
        check(dict(compiled(**arrays()).items()), expected)
    bound = compiled.bind(**{k: v for k, v in arrays().items() if k not in ("x", "img")})
    check(dict(bound(x=arrays()["x"], img=arrays()["img"]).items()), expected)
