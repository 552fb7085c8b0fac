"""`--emit hip`: a whole file each, which hipcc compiles where there is one (`apt install hipcc`, or HIPCC names it)."""
from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

import pipelink_ir as pl
from tests.unit.cuda.forms import ROOT
from tests.unit.cuda.test_lowered import text

HIPCC = os.environ.get("HIPCC") or shutil.which("hipcc")
ARCHITECTURES = ("gfx1030", "gfx90a")
"""Waves of 32 and of 64 threads."""
CASES = sorted(p.stem for p in (ROOT / "tests/cases").glob("*.plir"))


@cache
def hip(name: str) -> str:
    """The text for a program; `lowered` stands for all forms that policies lower to."""
    if name == "lowered":
        return pl.compile(text("sm_80"), target="sm_80", pass_options="lower-precision{price=false}").as_text("hip")
    return pl.compile(ROOT / f"tests/cases/{name}.plir", target="sm_80").as_text("hip")


@pytest.mark.parametrize("name", CASES)
def test_a_text_is_a_whole_file(name: str) -> None:
    found = hip(name)
    assert found.startswith("// The target: HIP") or "#include <hip/hip_runtime.h>" in found
    assert "__global__" in found
    assert "namespace pipelink" in found
    assert "asm volatile" not in found.partition("PIPELINK_PTX")[0]


@pytest.mark.skipif(HIPCC is None, reason="hipcc is not installed: apt install hipcc")
@pytest.mark.parametrize("name", [*CASES, "lowered"])
def test_hipcc_compiles_it(name: str, tmp_path: Path) -> None:
    (tmp_path / "p.hip").write_text(hip(name))
    assert HIPCC is not None
    # Where nvcc is installed, too, hipcc would hand the file on to it.
    done = subprocess.run([HIPCC, *(f"--offload-arch={arch}" for arch in ARCHITECTURES), "-std=c++17", "-O1", "-c", "-o", str(tmp_path / "p.o"), "-x", "hip", str(tmp_path / "p.hip")],
                          env=os.environ | {"HIP_PLATFORM": "amd"}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:2000]
    assert (tmp_path / "p.o").stat().st_size > 0
