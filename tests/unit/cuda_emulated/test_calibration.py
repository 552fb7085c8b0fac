"""Edges of plans seen where a GPU runs them: ranges, and the plan of an architecture beside the same plan on the CPU."""
from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pipelink_ir as pl
from tests.unit.runtime.test_calibrate import DATA, NET, PARAMS, edges


@pytest.fixture
def net(tmp_path: Path) -> Path:
    path = tmp_path / "net.plir"
    path.write_text(NET)
    return path


def test_ranges(net: Path) -> None:
    found = pl.calibrate(net, DATA, params=PARAMS, on="cuda-emulated", output="off").calibration
    for name in ("x", "a.h", "a", "y"):
        whole = np.concatenate([edges(s["x"])[name] for s in DATA])
        assert (found.edges[name].min, found.edges[name].max) == pytest.approx((whole.min(), whole.max()), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("arch", ["sm_75", "sm_87"])
def test_the_plan_of_an_architecture(net: Path, arch: str) -> None:
    found = pl.calibrate(net, DATA, params=PARAMS, on="cuda-emulated", targets=arch)
    error = found.calibration.errors[arch]["y"]
    assert 0.0 < error < 0.1
    # The same codes and the same sums, but for the order of sums in f32.
    same = pl.compare(net, f"{arch},on=cpu", f"cuda-emulated:{arch}", DATA, params=PARAMS)
    assert [e.edge for e in same.edges] == ["a.h", "a", "y"]
    assert same["y"].error < max(2e-3, error / 4)
    apart = pl.compare(net, "cpu", f"cuda-emulated:{arch}", DATA, params=PARAMS)
    assert apart["y"].error == pytest.approx(error, rel=0.3)
