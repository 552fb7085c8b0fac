"""Code of one architecture on a GPU of another one: what runs, on which device, and what is refused."""
from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pipelink_ir as pl
from pipelink_ir.backends.cuda.driver import DeviceFacts
from pipelink_ir.ir.diagnostics import ProgramError
from tests.unit.device.emulated import COMPILED, EmulatingDriver

TEXT = """op @mm(%x: tensor<MxKxbf16>, param %w: tensor<KxNxbf16>) -> (%y: tensor<MxNxf32>) { compute { %y[i, j] = sum[k < K](%x[i, k] * %w[k, j]) } }
pipeline @m(%x: tensor<MxKxbf16>, param %w: tensor<KxNxbf16>) -> (%y: tensor<MxNxf32>) { %y = @mm(%x, %w) }
""".replace("@mm(%x: tensor<MxKxbf16>, param ", "@mm(%x: tensor<MxKxbf16>, ")


def arrays() -> dict[str, np.ndarray]:
    import ml_dtypes
    r = np.random.default_rng(1)
    return {"x": r.normal(size=(33, 40)).astype(ml_dtypes.bfloat16), "w": r.normal(size=(40, 20)).astype(ml_dtypes.bfloat16)}


def wanted(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return x.astype(np.float64) @ w.astype(np.float64)


def test_an_older_architecture_runs_as_ptx_on_a_newer_device(device: EmulatingDriver) -> None:
    given = arrays()
    found = pl.compile(TEXT, target="sm_75")(**given)
    assert COMPILED == [("sm_75", True)]
    np.testing.assert_allclose(found.y, wanted(**given), rtol=1e-4, atol=1e-4)
    # The same kernel as it is played: none for tensor cores, which sm_75 has not for bf16.
    np.testing.assert_array_equal(found.y, pl.compile(TEXT, target="cuda-emulated:sm_75")(**given).y)
    assert "mma" not in pl.compile(TEXT, target="sm_75").as_text("loops")


def test_parameters_are_bound_there(device: EmulatingDriver) -> None:
    given = arrays()
    compiled = pl.compile(TEXT, target="sm_80")
    bound = compiled.bind(w=given["w"])
    np.testing.assert_allclose(bound(x=given["x"]).y, wanted(**given), rtol=1e-4, atol=1e-4)
    assert {arch for arch, _ in COMPILED} == {"sm_80"}
    assert compiled.arena_bytes(x=(33, 40), w=(40, 20)) == 0


def test_its_own_architecture_is_compiled_as_ever(device: EmulatingDriver) -> None:
    given = arrays()
    for target in ("sm_90", "sm_90a", "cuda"):
        pl.compile(TEXT, target=target)(**given)
    assert COMPILED == [("sm_90", False), ("sm_90a", False), ("sm_90a", False)]


def test_the_device_that_suits_best_is_taken(device: EmulatingDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    def facts(n: int) -> DeviceFacts:
        return replace(EmulatingDriver.facts(device, n), sm=(90, 80)[n], name=("newer", "same")[n])
    monkeypatch.setattr(device, "facts", facts)
    given = arrays()
    compiled = pl.compile(TEXT, target="sm_80")
    compiled(**given)
    assert (compiled.on_gpu().target.device, COMPILED) == (1, [("sm_80", False)])
    assert compiled.target.device is None


@pytest.mark.parametrize("target", ["sm_100", "sm_120", "sm_89a"])
def test_what_no_device_here_runs_is_refused(device: EmulatingDriver, target: str) -> None:
    with pytest.raises(ProgramError, match=f"no GPU here runs code for {target}: there is a fake \\(sm_90\\)") as refused:
        pl.compile(TEXT, target=target)(**arrays())
    assert refused.value.diagnostics[0].code == "PL9001"
    assert refused.value.diagnostics[0].help == f"the target 'cuda-emulated:{target}' plays it on the processor"


def test_blocks_have_no_more_shared_memory_than_there(device: EmulatingDriver) -> None:
    from pipelink_ir.ir.gpus import GPUS
    compiled = pl.compile(TEXT, target="sm_75")
    compiled(**arrays())
    assert compiled.on_gpu().executable.kernels.facts.shared_block == GPUS[75].shared_block == 64 << 10  # type: ignore[attr-defined]


def test_a_program_from_a_file(device: EmulatingDriver, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from pipelink_ir.cli.main import main
    given = arrays()
    (tmp_path / "p.plir").write_text(TEXT)
    np.savez(tmp_path / "in.npz", **{k: a.view(np.uint16) for k, a in given.items()})
    assert main(["run", str(tmp_path / "p.plir"), "--inputs", str(tmp_path / "in.npz"), "--outputs", str(tmp_path / "out.npz"), "--target", "sm_75", "-v"]) == 0
    np.testing.assert_allclose(np.load(tmp_path / "out.npz")["y"], wanted(**given), rtol=1e-4, atol=1e-4)
    assert "for sm_75: " in capsys.readouterr().err
    assert COMPILED == [("sm_75", True)]
