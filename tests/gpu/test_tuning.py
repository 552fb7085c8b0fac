"""`tune` on a GPU: schedules are measured, what is kept belongs to its architecture, and results stay what they were."""
from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pipelink_ir as pl
from pipelink_ir.passes.scheduling.tuned_file import read_tuned

pytestmark = pytest.mark.gpu

TEXT = """op @f(%x: tensor<NxKxf32>, %b: tensor<Kxf32>) -> (%y: tensor<NxKxf32>) { compute { %y[n, k] = tanh(%x[n, k] + %b[k]) } }
pipeline @p(%x: tensor<NxKxf32>, %b: tensor<Kxf32>) -> (%y: tensor<NxKxf32>) { %y = @f(%x, %b) }
"""


def test_tuning_on_the_device(tmp_path: Path) -> None:
    program = tmp_path / "p.plir"
    program.write_text(TEXT)
    p = pl.compile(program, target="cuda", tune={"N": 64, "K": 96})
    entries = read_tuned(str(tmp_path / "p.tuned.yaml"))
    assert [(e.name, e.shapes) for e in entries] == [("f", "?x?, ?")]
    assert entries[0].arch.startswith("sm_")
    assert entries[0].ms <= entries[0].default_ms
    assert "(p.tuned.yaml)" in p.explain()
    rng = np.random.default_rng(0)
    x, b = rng.standard_normal((33, 7)).astype(np.float32), rng.standard_normal(7).astype(np.float32)
    np.testing.assert_allclose(p(x=x, b=b).y, np.tanh(x.astype(np.float64) + b), rtol=1e-5, atol=1e-6)
