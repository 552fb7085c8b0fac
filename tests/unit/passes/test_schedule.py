"""`derive` and `schedule`: decisions that print, read back, are followed, and change no result."""
from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from pipelink_ir.backends.loops.build import build
from pipelink_ir.backends.loops.form import Program
from pipelink_ir.backends.loops.gpu import build_gpu
from pipelink_ir.backends.loops.print import program_text
from pipelink_ir.grammar import parse, print_module
from pipelink_ir.ir.diagnostics import Report
from pipelink_ir.ir.nodes import Module, Operator
from pipelink_ir.passes.infer.generic import name_dynamic
from pipelink_ir.passes.infer.operator import typed_operator
from pipelink_ir.passes.manager import parse_passes, run_passes

CASES = sorted((Path(__file__).resolve().parents[2] / "cases").glob("*.plir"))
BEFORE = "resolve,infer-types,flatten,simplify,fuse{device=DEVICE}"
BUILD = {"cpu": build, "cuda": build_gpu}


def passed(module: Module, passes: str) -> Module:
    return run_passes(module, parse_passes(passes), Report())


def texts(module: Module, device: str) -> dict[str, str]:
    """The loop-level program of every operator, without the places that error messages name."""
    return {op.name: _unplaced(BUILD[device](typed_operator(_sized(op)))) for op in module.operators if op.compute is not None}


def _unplaced(program: Program) -> str:
    lines = program_text(program).split("\n")
    return re.sub(r"fail \d+", "fail", "\n".join(line for line in lines if not line.startswith("  site ")))


def _sized(op: Operator) -> Operator:
    params, names = name_dynamic(op.params, set())
    return dataclasses.replace(op, params=params) if names else op


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_a_schedule_that_was_read_back_gives_the_same_kernels(path: Path, device: str) -> None:
    fused = passed(parse(path.read_text(), str(path)), BEFORE.replace("DEVICE", device))
    derived = passed(fused, f"derive{{device={device}}}")
    scheduled = passed(derived, f"schedule{{device={device}}}")
    printed = print_module(scheduled)
    again = passed(parse(printed, str(path)), "resolve,infer-types")
    assert print_module(again) == printed
    expected = texts(derived, device)
    assert texts(again, device) == expected
    assert texts(scheduled, device) == expected
    assert passed(again, f"derive{{device={device}}},schedule{{device={device}}}") == again
    assert all(any(s.name == "schedule" for s in o.sections) for o in again.operators if o.compute is not None and o.kernel is None)
