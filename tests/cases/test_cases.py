"""The programs of this folder on both backends, against the results beside them, and the faulty ones against their markers."""
from __future__ import annotations

from pathlib import Path

import pytest

import pipelink_ir
from pipelink_ir.runtime.compile import read
from tests.cases.stored import HERE, PROGRAMS, stored
from tests.emulated import EMULATED
from tests.faulty.checker import faults


def test_all_programs_are_here() -> None:
    assert len(PROGRAMS) == 14


@pytest.mark.parametrize("target", ["reference", "cpu", EMULATED])
@pytest.mark.parametrize("name", PROGRAMS)
def test_results(name: str, target: str) -> None:
    case = stored(name)
    assert not case.wrong(dict(pipelink_ir.compile(HERE / f"{name}.plir", target=target)(**case.inputs).items()))


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
    from pipelink_ir.ir.nodes import Module
    from pipelink_ir.passes.manager import INPUT, Step, parse_passes, run_passes
    monkeypatch.chdir(tmp_path)
    case = stored(name)
    stages: dict[str, str] = {}

    def keep(step: Step, before: Module, after: Module | Exception | None) -> None:
        if isinstance(after, Module) and step is not INPUT:
            stages.setdefault(print_module(after), step.name)
    run_passes(read(HERE / f"{name}.plir"), parse_passes("cpu"), Report(), [keep])
    for text, step in stages.items():
        assert print_module(parse(text, "stage.plir")) == text
        (tmp_path / "stage.plir").write_text(text, encoding="utf-8")
        assert not case.wrong(dict(pipelink_ir.compile(tmp_path / "stage.plir", target="reference")(**case.inputs).items())), step
