"""Odd programs under random policies: what is fused is what is not, a dump is the program, lowering it again changes nothing, and the reference computes of the
lowered text what the targets do. What comes out has the shapes of the program without policies, and is finite where that is.

`--fuzz-programs=N` takes N other programs for each target.
"""
from __future__ import annotations

import random
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipelink_ir as pl
from pipelink_ir.grammar import parse, print_module
from pipelink_ir.ir.diagnostics import Report
from pipelink_ir.passes.manager import parse_passes, run_passes
from tests.emulated import NEEDS_COMPILER
from tests.fuzz.census import Census
from tests.fuzz.odd import Odd, program
from tests.fuzz.tape import LENGTH, Tape

ORDER = 1e-5
"""Sums in another order: of f32, beside the largest value."""
TIE = {"f32": 3e-2, "f16": 3e-2, "bf16": 6e-2}
"""One code, or one step of a float, on the other side of a tie: the reference has other functions, and sums in another order."""


@pytest.mark.parametrize("usual", [12])
def test_on_the_cpu(usual: int, census: Census, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    _check(usual, ("cpu",), census, tmp_path, request)


@NEEDS_COMPILER
@pytest.mark.parametrize("usual", [4])
def test_emulated(usual: int, census: Census, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    _check(usual, tuple(f"cuda-emulated:{a}" for a in ("sm_75", "sm_80", "sm_89", "sm_90a")), census, tmp_path, request)


def _check(usual: int, targets: tuple[str, ...], census: Census, folder: Path, request: pytest.FixtureRequest) -> None:
    asked = request.config.getoption("--fuzz-programs")
    first = f"odd{time.time_ns() if asked else ''}"
    for n in range(asked or usual):
        seed, target = f"{first}:{n}", targets[n % len(targets)]
        case = program(Tape(random.Random(seed).randbytes(LENGTH)), target.rpartition(":")[2])
        file = str(folder / f"{n}.yaml") if n % 3 else ""
        if file and case.arrays["x"].size:
            pl.calibrate(case.text, [case.arrays], on="cpu", output=file, method=("minmax", "percentile", "mse", "entropy")[n % 4])
        else:
            file = ""
        faults = _faults(case, target, file)
        assert not faults, f"{seed!r} on {target}: {'; '.join(faults)}\n{case.text}"
        census.add("outcome", "programs")
        for name, count in case.counts.items():
            census.add("policies", name, count)


def _faults(case: Odd, target: str, file: str) -> list[str]:
    """What is not the same."""
    arch = target.rpartition(":")[2]
    plain = re.sub(r"\n  downgrade [^\n]*", "", case.text)
    exact = _run(pl.compile(plain, target="reference", float64=True), case)
    found = _run(pl.compile(case.text, target=target, calibration=file or "off"), case)
    text = _lowered(case.text, arch, file)
    others = [("unfused", ORDER, _run(pl.compile(case.text, target=target, calibration=file or "off", pass_options="fuse{nodes=1}"), case)),
              ("read again", ORDER, _run(pl.compile(text, target=target, calibration="off"), case)),
              ("by the reference", TIE[case.dtype], _run(pl.compile(text, target="reference", calibration="off"), case))]
    out = [] if _lowered(text, arch, "") == text else ["lowering it again changes it"]
    for name, whole in exact.items():
        got, top = found[name], np.abs(whole[np.isfinite(whole)]).max(initial=0.0) or 1.0
        if got.shape != whole.shape or (np.isfinite(whole) & ~np.isfinite(got)).any():
            out.append(f"'%{name}' is {got.shape}, {np.isfinite(got).mean():.0%} finite, instead of {whole.shape}")
            continue
        for what, tolerance, other in others:
            error = _apart(other[name], got) / top
            if not error <= tolerance:
                out.append(f"'%{name}' is off by {error:.2g} {what}")
    return out


def _apart(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> float:
    """The largest difference; infinity where one is no number, or infinite, and the other is not."""
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0.0, np.nan_to_num(np.abs(a - b), nan=np.inf, posinf=np.inf))
    return float(apart.max(initial=0.0))


def _run(compiled: Any, case: Odd) -> dict[str, Any]:
    made = compiled(**case.arrays)
    return {r.name: np.asarray(made[r.name]).astype(np.float64) for r in compiled.pipeline.results}


def _lowered(text: str, arch: str, file: str) -> str:
    ranges = f',calibration="{file}"' if file else ""
    passes = f"frontend,place-devices,push-policies{{arch={arch}}},flatten,lower-precision{{arch={arch}{ranges}}}"
    return print_module(run_passes(parse(text, "<text>"), parse_passes(passes), Report()))
