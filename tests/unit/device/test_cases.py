"""The programs of tests/cases through the whole run time of the CUDA backend, on a device that is played."""
from __future__ import annotations

from typing import Any

import pytest

from pipelink_ir.backends.cuda.executable import CudaExecutable, load
from pipelink_ir.backends.cuda.run import Given
from pipelink_ir.ir.diagnostics import Report
from pipelink_ir.passes.manager import parse_passes, run_passes
from pipelink_ir.runtime.compile import pick_pipeline, read
from tests.cases.stored import HERE, PROGRAMS, stored
from tests.unit.device.emulated import EmulatingDriver, emulate


@pytest.mark.parametrize("name", PROGRAMS)
def test_results(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three calls: kernels issued one by one, captured, replayed; arrays of the host, then of the device."""
    emulate(monkeypatch)
    driver = EmulatingDriver()
    module = run_passes(read(HERE / f"{name}.plir"), parse_passes("cuda"), Report())
    executable = load(module, pick_pipeline(module, None), {"driver": driver})
    case = stored(name)
    for call in range(5):
        assert not case.wrong(executable(case.inputs) if call < 3 else _on_device(executable, driver, case.inputs)), call
    assert ("replay" in {entry[0] for entry in driver.log}) == (len(executable._recipes[next(iter(executable._recipes))].issued) > 1)


def _on_device(executable: CudaExecutable, driver: EmulatingDriver, inputs: dict[str, Any]) -> dict[str, Any]:
    stream = driver.handle()
    given = [driver.given(inputs[o.name], stream) for o in executable.pipeline.inputs]
    out = executable.run(Given(tuple(g.shape for g in given), [g.address for g in given], (), stream, to_host=False))
    return {k: driver.to_host(v) for k, v in out.items()}
