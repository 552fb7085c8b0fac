"""The programs of tests/cases through the whole run time of the CUDA backend, on a device that is played."""
from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelink_ir.backends.cuda.executable import CudaExecutable, load
from pipelink_ir.backends.cuda.run import Given
from pipelink_ir.ir.diagnostics import Report
from pipelink_ir.passes.manager import parse_passes, run_passes
from pipelink_ir.runtime.compile import pick_pipeline, read
from tests.unit.device.emulated import EmulatingDriver, emulate

CASES = Path(__file__).resolve().parents[2] / "cases"
PROGRAMS = sorted(p.stem for p in CASES.glob("*.plir"))


def _compare() -> Any:
    spec = importlib.util.spec_from_file_location("check_run", CASES / "check_run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.compare


@pytest.mark.parametrize("name", PROGRAMS)
def test_results(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three calls: kernels issued one by one, captured, replayed; arrays of the host, then of the device."""
    emulate(monkeypatch)
    driver = EmulatingDriver()
    module = run_passes(read(CASES / f"{name}.plir"), parse_passes("cuda"), Report())
    executable = load(module, pick_pipeline(module, None), {"driver": driver})
    with np.load(CASES / f"{name}.npz") as data:
        arrays = {k: data[k] for k in data.files}
    inputs = {k[3:]: v for k, v in arrays.items() if k.startswith("in.")}
    compare = _compare()
    for call in range(5):
        got = executable(inputs) if call < 3 else _on_device(executable, driver, inputs)
        wrong = [p for k, want in arrays.items() if k.startswith("out.") and (p := compare(k[4:], want, got[k[4:]], arrays.get(f"tol.{k[4:]}"))[0])]
        assert not wrong, call
    assert ("replay" in {entry[0] for entry in driver.log}) == (len(executable._recipes[next(iter(executable._recipes))].issued) > 1)


def _on_device(executable: CudaExecutable, driver: EmulatingDriver, inputs: dict[str, Any]) -> dict[str, Any]:
    stream = driver.handle()
    given = [driver.given(inputs[o.name], stream) for o in executable.pipeline.inputs]
    out = executable.run(Given(tuple(g.shape for g in given), [g.address for g in given], (), stream, to_host=False))
    return {k: driver.to_host(v) for k, v in out.items()}
