"""Random networks with random policies hold their budgets: calibrated on their data, compiled with what was measured, run, and compared with the float64
reference of the same network without policies. A compiler that refuses has to be right: without budgets, one of them is not kept.

`--fuzz-programs=N` takes N other networks for each target.
"""
from __future__ import annotations

import random
import time
from pathlib import Path

import numpy as np
import pytest

import pipelink_ir as pl
from pipelink_ir.ir.diagnostics import ProgramError
from tests.emulated import NEEDS_COMPILER
from tests.fuzz.census import Census
from tests.fuzz.policies import Case, network
from tests.fuzz.tape import LENGTH, Tape

ARCHS = ("sm_75", "sm_80", "sm_87", "sm_90")
TIES = 1.05
"""Sums are formed in another order elsewhere, so that some values fall on the other side of a tie: errors differ a little from those that were measured."""
NOISE = {"f32": 1e-5, "f16": 4e-3}
"""The error of a network without policies: f16 rounds at every edge, and the budget speaks of what comes on top."""


@pytest.mark.parametrize("usual", [40])
def test_on_the_cpu(usual: int, census: Census, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    _check(usual, ("cpu",), census, tmp_path, request)


@NEEDS_COMPILER
@pytest.mark.parametrize("usual", [16])
def test_emulated(usual: int, census: Census, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    _check(usual, tuple(f"cuda-emulated:{a}" for a in ARCHS), census, tmp_path, request)


def _check(usual: int, targets: tuple[str, ...], census: Census, folder: Path, request: pytest.FixtureRequest) -> None:
    asked = request.config.getoption("--fuzz-programs")
    first = f"policies{time.time_ns() if asked else ''}"
    for n in range(asked or usual):
        seed, target = f"{first}:{n}", targets[n % len(targets)]
        case = network(Tape(random.Random(seed).randbytes(LENGTH)), target.rpartition(":")[2])
        census.add("outcome", _outcome(case, target, folder / f"{n}.yaml", f"{seed!r} on {target}"))
        for name, count in case.counts.items():
            census.add("policies", name, count)


def _outcome(case: Case, target: str, file: Path, which: str) -> str:
    """`programs` if the network ran within its budgets, `refused` if it was refused and a budget is indeed not kept."""
    arch = target.rpartition(":")[2]
    pl.calibrate(case.text, [case.arrays], targets=[arch], on="cpu", output=file)
    reference = pl.compile(case.without_policies, target="reference", float64=True)(**case.arrays)
    try:
        run = pl.compile(case.text, target=target, calibration=file)
    except ProgramError as error:
        assert any(d.code == "PL4302" for d in error.diagnostics), f"{which}: {error}"
        errors = _errors(case, pl.compile(case.without_budgets, target=target, calibration=file)(**case.arrays), reference)
        kept = {e: x for e, x in errors.items() if x * TIES + NOISE[case.dtype] <= case.budgets[e]}
        assert len(kept) < len(errors), f"{which} was refused, but keeps its budgets: {errors} of {case.budgets}\n{case.text}\n{error}"
        return "refused"
    errors = _errors(case, run(**case.arrays), reference)
    over = {e: (x, case.budgets[e]) for e, x in errors.items() if not x <= TIES * case.budgets[e] + NOISE[case.dtype]}
    assert not over, f"{which} is over its budgets: {over}\n{case.text}"
    return "programs"


def _errors(case: Case, results: object, reference: object) -> dict[str, float]:
    """The largest error of each result with a budget, over its largest magnitude."""
    out = {}
    for e in case.budgets:
        exact = np.asarray(reference[e], np.float64)  # type: ignore[index]
        found = np.asarray(results[e], np.float64)  # type: ignore[index]
        out[e] = float(np.abs(found - exact).max() / (np.abs(exact).max() or 1.0))
    return out
