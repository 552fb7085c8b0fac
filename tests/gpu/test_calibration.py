"""Ranges and errors measured on the GPU, and plans of older architectures that run there, edge by edge."""
from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pipelink_ir as pl
from tests.unit.runtime.test_calibrate import DATA, NET, PARAMS, edges

pytestmark = pytest.mark.gpu


@pytest.fixture
def net(tmp_path: Path) -> Path:
    path = tmp_path / "net.plir"
    path.write_text(NET)
    return path


@pytest.mark.parametrize("method", ["minmax", "percentile", "mse", "entropy"])
def test_ranges(net: Path, method: str) -> None:
    here = pl.calibrate(net, DATA, params=PARAMS, on="cuda", method=method, output="off").calibration
    there = pl.calibrate(net, DATA, params=PARAMS, on="cpu", method=method, output="off").calibration
    for name in ("x", "a.h", "a", "y"):
        whole = np.concatenate([edges(s["x"])[name] for s in DATA])
        assert (here.edges[name].min, here.edges[name].max) == pytest.approx((whole.min(), whole.max()), rel=1e-5, abs=1e-6)
        assert (here.edges[name].low, here.edges[name].high) == pytest.approx((there.edges[name].low, there.edges[name].high), rel=5e-2)


@pytest.mark.parametrize("arch", ["sm_75", "sm_87"])
def test_the_plan_of_an_architecture(net: Path, arch: str) -> None:
    found = pl.calibrate(net, DATA, params=PARAMS, on="cuda", targets=arch)
    error = found.calibration.errors[arch]["y"]
    assert 0.0 < error < 0.1
    same = pl.compare(net, f"{arch},on=cpu", arch, DATA, params=PARAMS)
    assert same["y"].error < max(2e-3, error / 4)
    apart = pl.compare(net, "reference", arch, DATA, params=PARAMS)
    assert apart["y"].error == pytest.approx(error, rel=0.3)
