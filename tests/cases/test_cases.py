"""The programs of this folder on both backends, against the results beside them, and the faulty ones against their markers."""
from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipelink_ir
from pipelink_ir.runtime.compile import read
from tests.emulated import EMULATED
from tests.faulty.checker import faults

HERE = Path(__file__).resolve().parent
PROGRAMS = sorted(p.stem for p in HERE.glob("*.plir"))


def _load(name: str) -> Any:
    """A script beside the programs: what it says holds, holds."""
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_all_programs_are_here() -> None:
    assert len(PROGRAMS) == 14


@pytest.mark.parametrize("target", ["reference", "cpu", EMULATED])
@pytest.mark.parametrize("name", PROGRAMS)
def test_results(name: str, target: str) -> None:
    with np.load(HERE / f"{name}.npz") as data:
        arrays = {k: data[k] for k in data.files}
    inputs = {k[3:]: v for k, v in arrays.items() if k.startswith("in.")}
    expected = {k[4:]: v for k, v in arrays.items() if k.startswith("out.")}
    got = dict(pipelink_ir.compile(HERE / f"{name}.plir", target=target)(**inputs).items())
    assert sorted(got) == sorted(expected)
    compare = _load("check_run").compare
    wrong = [problem for k, want in expected.items() if (problem := compare(k, want, np.asarray(got[k]), arrays.get(f"tol.{k}"))[0])]
    assert not wrong


BAD = sorted((HERE / "bad").glob("*.plir"))


def test_faulty_programs_are_here() -> None:
    assert len(BAD) >= 50


@pytest.mark.parametrize("path", BAD, ids=lambda p: p.stem)
def test_faults_are_found(path: Path) -> None:
    assert not faults(path)


@pytest.mark.parametrize("path", sorted((HERE / "good").glob("*.plir")), ids=lambda p: p.stem)
def test_nothing_is_reported(path: Path) -> None:
    assert not faults(path, good=True)


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_stage_can_be_resumed_elsewhere(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is printed after each pass, alone in another folder, prints the same when it is read, and gives the same results."""
    from pipelink_ir.grammar import parse, print_module
    from pipelink_ir.ir.diagnostics import Report
    from pipelink_ir.passes.manager import parse_passes, run_passes, stop_after
    monkeypatch.chdir(tmp_path)
    with np.load(HERE / f"{name}.npz") as data:
        arrays = {k: data[k] for k in data.files}
    inputs = {k[3:]: v for k, v in arrays.items() if k.startswith("in.")}
    compare = _load("check_run").compare
    steps = parse_passes("cpu")
    seen: set[str] = set()
    for step in steps:
        module = run_passes(read(HERE / f"{name}.plir"), stop_after(steps, step.name), Report())
        text = print_module(module)
        assert print_module(parse(text, "stage.plir")) == text
        if text in seen:
            continue
        seen.add(text)
        (tmp_path / "stage.plir").write_text(text, encoding="utf-8")
        got = dict(pipelink_ir.compile(tmp_path / "stage.plir", target="reference")(**inputs).items())
        wrong = [problem for k, want in arrays.items() if k.startswith("out.")
                 and (problem := compare(k[4:], want, np.asarray(got[k[4:]]), arrays.get(f"tol.{k[4:]}"))[0])]
        assert not wrong, step.name
