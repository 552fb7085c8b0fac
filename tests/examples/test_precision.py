"""The networks of `examples/precision`: as they are written, against NumPy in f64."""
from __future__ import annotations

import sys

import numpy as np
import pytest

import pipelink_ir as pl
from pipelink_ir.passes.pipeline import ALIASES
from tests.emulated import EMULATED
from tests.examples import nets

sys.path.insert(0, str(nets.FOLDER))

import data

PROGRAMS = ("denoiser", "inspection", "transformer")


def _as_written(target: str) -> str:
    """The passes of a target but for those that carry policies out."""
    name = "cuda" if target.startswith("cuda") else target
    return ",".join(p for p in ALIASES[name].split(",") if p.partition("{")[0] not in ("push-policies", "lower-precision"))


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
    inputs, p = data.transformer(rng, 2, 7)
    return inputs | p, nets.transformer(**inputs, p=p), 4e-3


def test_every_program_is_tested() -> None:
    assert {p.stem for p in nets.FOLDER.glob("*.plir")} == set(PROGRAMS)


@pytest.mark.parametrize("target", ["reference", "cpu", EMULATED])
@pytest.mark.parametrize("program", PROGRAMS)
def test_as_written(program: str, target: str) -> None:
    inputs, expected, allowed = _expected(program)
    (result,) = pl.compile(nets.FOLDER / f"{program}.plir", target=target, passes=_as_written(target))(**inputs).values()
    assert result.dtype == np.float16
    assert result.shape == expected.shape
    assert nets.relative(result, expected) < allowed
