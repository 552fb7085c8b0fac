"""Schedules are measured on a device, and the file is for its architecture."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipelink_ir as pl
from pipelink_ir.passes.scheduling.tuned_file import read_tuned
from pipelink_ir.runtime.tuning.turns import GpuClock

TEXT = """op @f(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { compute { %y[n] = 2 * %x[n] + 1 } }
pipeline @p(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { %y = @f(%x) }
"""


def test_on_a_device(device: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What the played driver allocates is no array that a call takes.
    monkeypatch.setattr(GpuClock, "moved", lambda self, arrays, run: dict(arrays))
    program = tmp_path / "p.plir"
    program.write_text(TEXT)
    p = pl.compile(program, target="cuda", tune={"N": 100})
    entries = read_tuned(str(tmp_path / "p.tuned.yaml"))
    assert [e.name for e in entries] == ["f"]
    assert entries[0].arch.startswith("sm_")
    assert "(p.tuned.yaml)" in p.explain()
    x = np.arange(7, dtype=np.float32)
    assert (np.asarray(p(x=x).y) == 2 * x + 1).all()
