"""The networks of `examples/precision`: as they are written, against NumPy in f64."""
from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipelink_ir as pl
from pipelink_ir.passes.pipeline import ALIASES
from tests.emulated import EMULATED, NEEDS_COMPILER
from tests.examples import nets

sys.path.insert(0, str(nets.FOLDER))

import data

PROGRAMS = ("denoiser", "inspection", "transformer")


def _as_written(target: str) -> str:
    """The passes of a target but for those that carry policies out."""
    name = "cuda" if target.startswith("cuda") else target
    return ",".join(p for p in ALIASES[name].split(",") if p.partition("{")[0] not in ("push-policies", "lower-precision"))


def _narrow(folder: Path, arch: str) -> Path:
    """The transformer with 64 channels, its policy carried out whether it pays or not, ranges found at each call."""
    text = (nets.FOLDER / "transformer.plir").read_text(encoding="utf-8")
    for wide, narrow in (("4096", "256"), ("1024", "64"), ("x16x64x", "x2x32x"), ("<16x64x", "<2x32x"), ("x16x64x", "x2x32x"), ("64x16x64", "64x2x32")):
        text = text.replace(wide, narrow)
    text = re.sub(rf"(downgrade {arch} {{.*), budget = [0-9.e-]+", r"\1, ranges = dynamic, force = true", text)
    (folder / "narrow.plir").write_text(text, encoding="utf-8")
    return folder / "narrow.plir"


def _expected(program: str) -> tuple[dict[str, nets.Array], nets.Array, float]:
    """Inputs, what comes out, and how much f16 may be off, of the largest magnitude."""
    rng = np.random.default_rng(21)
    if program == "denoiser":
        noisy = data.noisy(rng, data.shapes(rng, 2, 23))
        p = nets.weights(program)
        return {"noisy": noisy} | p, nets.denoise(noisy, p), 4e-3
    if program == "inspection":
        part, _ = data.defects(rng, 2, 35)
        p = nets.weights(program)
        return {"part": part} | p, nets.inspect(part, p), 4e-3
    inputs, p = data.transformer(rng, 2, 7, 64, 2)
    return inputs | p, nets.transformer(**inputs, p=p), 4e-3


def test_every_program_is_tested() -> None:
    assert {p.stem for p in nets.FOLDER.glob("*.plir")} == set(PROGRAMS)


@pytest.mark.parametrize("target", ["reference", "cpu", EMULATED])
@pytest.mark.parametrize("program", PROGRAMS)
def test_as_written(program: str, target: str, tmp_path: Path) -> None:
    inputs, expected, allowed = _expected(program)
    path = _narrow(tmp_path, "sm_90") if program == "transformer" else nets.FOLDER / f"{program}.plir"
    (result,) = pl.compile(path, target=target, passes=_as_written(target))(**inputs).values()
    assert result.dtype == np.float16
    assert result.shape == expected.shape
    assert nets.relative(result, expected) < allowed


# ------------------------------------------------------------------------------------------------------------------------ policies

ARCHS = {"denoiser": ("sm_80", "sm_87", "sm_90"), "inspection": ("sm_75", "sm_87", "sm_90", "cpu"), "transformer": ("sm_75", "sm_87", "sm_90")}
BYTES = {"denoiser": "one.depth one.point two.depth two.point three.depth three.point four.depth four.point head",
         "inspection": "one.depth one.point one.pool two.depth two.point two.pool three.depth three.point three.pool"}
"""What is computed in bytes where it is asked for whether it pays or not."""


KEPT = {("denoiser", "sm_90"): 9, ("inspection", "sm_90"): 6, ("denoiser", "sm_87"): 9, ("inspection", "sm_87"): 6}
"""Nodes that are lowered because it pays: on an H200 .83 and .59 ms for the denoiser, .41 and .30 for the inspection net."""


def _pictures(count: int = 4, size: int = 48) -> tuple[nets.Array, nets.Array]:
    """Pictures without and with noise."""
    rng = np.random.default_rng(data.SEEDS["test"])
    clean = data.shapes(rng, count, size)
    return clean, data.noisy(rng, clean)


def _inputs(program: str) -> tuple[dict[str, nets.Array], nets.Array]:
    """Data that nothing was trained or calibrated on, weights among them, and the result in f64."""
    rng = np.random.default_rng(data.SEEDS["test"])
    if program == "denoiser":
        _, noisy = _pictures()
        p = nets.weights(program)
        return {"noisy": noisy} | p, nets.denoise(noisy, p)
    if program == "inspection":
        part, _ = data.defects(rng, 16)
        p = nets.weights(program)
        return {"part": part} | p, nets.inspect(part, p)
    inputs, p = data.transformer(rng, 2, 9)[0], data.transformer_weights()
    return inputs | p, nets.transformer(**inputs, p=p)


def _plan(program: str | Path, arch: str, target: str = "cpu", calibration: Path | None = None) -> Any:
    """The program as its policy for an architecture leaves it, compiled for the processor."""
    path = nets.FOLDER / f"{program}.plir" if isinstance(program, str) else program
    return pl.compile(path, target=target, passes=ALIASES["cpu"].replace("arch=cpu", f"arch={arch}"), calibration=calibration)


def _forced(folder: Path, program: str, arch: str, keys: str = "") -> Path:
    """The program with all of `BYTES` computed in bytes, whatever it costs; further keys for the clause."""
    text = (nets.FOLDER / f"{program}.plir").read_text(encoding="utf-8")
    labels = ", ".join(f"{label} = i8" for label in BYTES[program].split())
    changed, count = re.subn(rf"downgrade {arch} *\{{[^}}]*\}}", f"downgrade {arch} {{ precision = mixed, {labels}, {keys}force = true }}", text)
    assert count == 1
    shutil.copytree(nets.FOLDER / "ops", folder / "ops", dirs_exist_ok=True)
    shutil.copy(nets.FOLDER / f"{program}.calibration.yaml", folder)
    (folder / f"{program}.plir").write_text(changed, encoding="utf-8")
    return folder / f"{program}.plir"


@pytest.mark.parametrize(("program", "arch"), [(p, a) for p, archs in ARCHS.items() for a in archs])
def test_budgets_hold(program: str, arch: str) -> None:
    """What a clause allows is kept on data. The denoiser's budget speaks of the noise that it finds, which is what the network gives."""
    text = (nets.FOLDER / f"{program}.plir").read_text(encoding="utf-8")
    found = re.search(rf"downgrade {arch} *\{{[^}}]*budget = ([0-9.e-]+)", text)
    assert found is not None
    inputs, expected = _inputs(program)
    plan = _plan(program, arch)
    (result,) = plan(**inputs).values()
    said = [e.reason for e in plan.ledger if e.kind == "lowered" and "as its policy asks" in e.reason]
    assert len(said) >= KEPT.get((program, arch), 1)
    # Where what pays has changed, the file of calibration has to be made anew: errors are those of other plans then, and count for nothing.
    assert all("measured to be off by" in reason for reason in said)
    noise = inputs["noisy"].astype(np.float64) if program == "denoiser" else 0
    assert nets.relative(noise - result.astype(np.float64), noise - expected) < float(found[1])


def test_the_denoiser_takes_noise_off(tmp_path: Path) -> None:
    """More than 10 dB in f64; in bytes less than half a decibel of it is lost, for a scale for each channel."""
    clean, noisy = _pictures()
    p = nets.weights("denoiser")
    exact = nets.psnr(nets.denoise(noisy, p), clean)
    assert exact > nets.psnr(noisy, clean) + 10
    written = pl.compile(nets.FOLDER / "denoiser.plir", target="cpu", passes=_as_written("cpu"))(noisy=noisy, **p).clean
    assert abs(nets.psnr(written, clean) - exact) < 0.02
    for arch in ARCHS["denoiser"]:
        assert nets.psnr(_plan("denoiser", arch)(noisy=noisy, **p).clean, clean) > exact - 0.5
    for keys in ("", "scheme = affine, "):
        lowered = _plan(_forced(tmp_path, "denoiser", "sm_87", keys), "sm_87")
        assert len([e for e in lowered.ledger if e.kind == "lowered"]) >= 9
        assert nets.psnr(lowered(noisy=noisy, **p).clean, clean) > exact - 0.5


def test_the_inspection_net_agrees(tmp_path: Path) -> None:
    """120 parts: bytes and f64 name the same class for 99 % at least, with a margin: the largest error of any score is less than what lies between the best class
    and the second for 99 % of the parts."""
    parts, labels = data.defects(np.random.default_rng(data.SEEDS["test"]), 120)
    p = nets.weights("inspection")
    exact = nets.inspect(parts, p)
    assert (exact.argmax(1) == labels).mean() > 0.99
    ordered = np.sort(exact, 1)
    margin = ordered[:, -1] - ordered[:, -2]
    program = nets.FOLDER / "inspection.plir"
    for arch, path in (("sm_87", program), ("sm_75", program), ("sm_87", _forced(tmp_path, "inspection", "sm_87"))):
        scores = _plan(path, arch)(part=parts, **p).scores.astype(np.float64)
        assert (scores.argmax(1) == exact.argmax(1)).mean() >= 0.99
        assert np.abs(scores - exact).max() < np.quantile(margin, 0.01)


def test_one_scale_for_a_depthwise_tensor_collapses(tmp_path: Path) -> None:
    """Channels differ by a factor of hundreds, so one scale leaves most of them no codes; it is not the default."""
    parts, _ = data.defects(np.random.default_rng(data.SEEDS["test"]), 64)
    p = nets.weights("inspection")
    exact = nets.inspect(parts, p).argmax(1)
    largest = np.abs(p["dk3"].astype(np.float64)).max((0, 1))
    assert largest.max() > 50 * np.median(largest)

    def agreement(keys: str) -> float:
        return float((_plan(_forced(tmp_path, "inspection", "sm_87", keys), "sm_87")(part=parts, **p).scores.argmax(1) == exact).mean())
    assert agreement("granularity = tensor, ") < 0.75
    assert agreement("granularity = channel, ") == agreement("") >= 0.98

    clean, noisy = _pictures()
    p = nets.weights("denoiser")
    collapsed = _plan(_forced(tmp_path, "denoiser", "sm_87", "granularity = tensor, "), "sm_87")(noisy=noisy, **p).clean
    assert nets.psnr(collapsed, clean) < nets.psnr(nets.denoise(noisy, p), clean) - 5


@NEEDS_COMPILER
@pytest.mark.parametrize(("program", "arch"), [("denoiser", "sm_87"), ("inspection", "sm_75"), ("transformer", "sm_90")])
def test_on_a_gpu_that_is_played(program: str, arch: str, tmp_path: Path) -> None:
    """The lowered plan of an architecture gives the same on its kernels as on the processor, up to what another order of sums may do to a rounding."""
    rng = np.random.default_rng(5)
    if program == "denoiser":
        path, inputs = _forced(tmp_path, program, arch), {"noisy": data.noisy(rng, data.shapes(rng, 1, 13))} | nets.weights(program)
    elif program == "inspection":
        path, inputs = _forced(tmp_path, program, arch), {"part": data.defects(rng, 1)[0][:, 20:42, 20:43]} | nets.weights(program)
    else:
        arrays, p = data.transformer(rng, 2, 9, 64, 2)
        path, inputs = _narrow(tmp_path, arch), arrays | p
    ours = _plan(path, arch)
    assert any(e.kind == "lowered" for e in ours.ledger)
    (here,), (played,) = ours(**inputs).values(), pl.compile(path, target=f"cuda-emulated:{arch}")(**inputs).values()
    assert nets.relative(played, here) < 1e-2


def test_commands_of_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They draw pictures, measure ranges and errors within the budgets, and write results."""
    from pipelink_ir.cli.main import main
    commands = [c.split() for c in re.findall(r"^    (\S.*)$", (nets.FOLDER.parent / "README.md").read_text(encoding="utf-8"), re.MULTILINE)]
    # What takes long is left out: what it does is tested above on less.
    commands = [c for c in commands if "transformer" not in " ".join(c) and "cuda-emulated:sm_87" not in c]
    assert [c[:2] for c in commands] == [["python", "examples/precision/data.py"], ["pipelinkc", "calibrate"], ["pipelinkc", "run"],
                                         ["python", "examples/precision/data.py"], ["pipelinkc", "calibrate"]]
    shutil.copytree(nets.FOLDER, tmp_path / "examples" / "precision")
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path)
    for command in commands:
        monkeypatch.setattr(sys, "argv", command[1:])
        assert (data.main() if command[0] == "python" else main(command[1:])) == 0
    with np.load("out/clean.npz") as clean, np.load("out/pictures.npz") as pictures:
        assert clean["clean"].shape == pictures["noisy"].shape


@pytest.mark.parametrize(("program", "arch"), [("denoiser", "sm_80"), ("inspection", "sm_75"), ("inspection", "sm_90"), ("transformer", "sm_87")])
def test_kernels_compile(program: str, arch: str, tmp_path: Path) -> None:
    """What policies leave is compiled for the device by NVRTC."""
    from pipelink_ir.backends.cuda.nvrtc import available
    from pipelink_ir.cli.main import main
    if not available():
        pytest.skip("needs NVRTC: the extra cuda13")
    assert main([str(nets.FOLDER / f"{program}.plir"), "--target", arch, "--emit", "ptx", "-o", str(tmp_path / "out.ptx")]) == 0
    text = (tmp_path / "out.ptx").read_text(encoding="utf-8")
    assert f".target {arch}" in text
    assert ".s8" in text or "dp4a" in text
