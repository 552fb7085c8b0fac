"""`derive` and `schedule`: decisions that print, read back, are followed, and change no result."""
from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from pipelink_ir.backends.loops.build import build
from pipelink_ir.backends.loops.form import Program
from pipelink_ir.backends.loops.gpu.build import build_gpu
from pipelink_ir.backends.loops.print import program_text
from pipelink_ir.grammar import parse, print_module
from pipelink_ir.ir.diagnostics import ProgramError, Report
from pipelink_ir.ir.nodes import Module, Operator
from pipelink_ir.passes.infer.generic import name_dynamic
from pipelink_ir.passes.infer.operator import typed_operator
from pipelink_ir.passes.ledger import ledger
from pipelink_ir.passes.manager import parse_passes, run_passes
from pipelink_ir.passes.scheduling.derivation import derived_operator

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
    assert again == scheduled
    assert texts(again, device) == expected
    assert passed(again, f"derive{{device={device}}},schedule{{device={device}}}") == again
    assert all(any(s.name == "schedule" for s in o.sections) for o in again.operators if o.compute is not None and o.kernel is None)


# ------------------------------------------------------------------------------------------------------------------ what a user writes

BODY = """
  %l[n, k] = %x[n, k] * 2 + n
  %y[n, k] = %l[n, k] - %l[n, K - 1 - k]
  %c[n, 0] = %x[n, 0]
  %c[n, k < K] = %c[n, k - 1] + %x[n, k]
  %i[n, k] = %x[%at[n], k]
  %z[n, k] = %c[n, k] + %i[n, k]
  %t[k, n] = %x[n, k]
"""


def program(schedule: str) -> str:
    return ("op @f(%x: tensor<NxKxf32>, %at: tensor<Nxi32>) -> (%y: tensor<NxKxf32>, %z: tensor<NxKxf32>, %t: tensor<KxNxf32>) {\n  where K >= 1\n"
            f"  schedule {{ {schedule} }}\n  compute {{{BODY}}}\n}}\n"
            "pipeline @p(%x: tensor<NxKxf32>, %at: tensor<Nxi32>) -> (%y: tensor<NxKxf32>, %z: tensor<NxKxf32>, %t: tensor<KxNxf32>) {\n"
            "  where K >= 1\n  %y, %z, %t = @f(%x, %at)\n}\n")


def faults_of(schedule: str, device: str) -> list[str]:
    """The errors, each with the text that it points at."""
    text = program(schedule)
    report = Report()
    try:
        run_passes(parse(text, "user.plir"), parse_passes(f"resolve,infer-types,check-contracts,flatten,derive{{device={device}}},schedule{{device={device}}}"), report)
    except ProgramError:
        pass
    return [f"{d.code} {text[d.span.start:d.span.end]}: {d.message}" for d in report.diagnostics if d.severity == "error"]


@pytest.mark.parametrize(("schedule", "device", "expected"), [
    ("%none { place = inline }", "cpu", "PL1101 %none { place = inline }: '@f' has no operand, result or local '%none'"),
    ("%l { plaec = inline }", "cpu", "PL2101 plaec: 'schedule' has no key 'plaec'"),
    ("place = inline", "cpu", "PL2101 place: 'place' speaks of one definition"),
    ("%l { kernel = cublaslt }", "cpu", "PL2101 kernel: 'kernel' speaks of the whole operator, not of '%l'"),
    ("%l { place = cellar }", "cpu", "PL2101 place = cellar: 'place' is one of inline, register, shared, row, buffer, not cellar"),
    ("%l { keep = 0 }", "cpu", "PL5501 keep = 0: 'keep' is a number of rows, at least 1, not 0"),
    ("%l { at = 3 }", "cpu", "PL5501 at = 3: 'at' is an index, or the definition that is read by rows, not 3"),
    ("%y { beside = 3 }", "cpu", "PL5501 beside = 3: 'beside' is a definition, or 'none', not 3"),
    ("%y { map = 3 }", "cuda", "PL5501 map = 3: 'map' is a kind of kernel, or a list of them, not 3"),
    ("derived = 3", "cuda", "PL5501 derived = 3: 'derived' is a list of locals, not 3"),
    ("target = tpu", "cuda", "PL2101 target = tpu: 'target' is one of cpu, cuda, not tpu"),
    ("%c { place = inline }", "cpu", "PL5501 place = inline: '%c' is a recurrence, which lies in memory as a whole"),
    ("%c { place = shared }", "cuda", "PL5501 place = shared: '%c' is a recurrence, which lies in memory as a whole"),
    ("%y { place = inline }", "cpu", "PL5501 place = inline: '%y' is a result, which lies in memory as a whole"),
    ("%i { place = buffer }", "cuda", "PL5501 place = buffer: '%i' may fail at run time, so it is evaluated only where it is read"),
    ("%c { place = row }", "cpu", "PL5501 place = row: '%c' is a recurrence, which lies in memory as a whole"),
    ("%l { place = row, at = k }", "cpu", "PL5501 at = k: a row of '%l' is kept at the loop over 'n' of '%y', not elsewhere"),
    ("target = cpu, %l { place = shared }", "cpu", "PL5501 place = shared: there is no place 'shared' on the target 'cpu'"),
    ("target = cuda, %l { place = row }", "cuda", "PL5501 place = row: there is no place 'row' on the target 'cuda'"),
    ("%l { place = register, at = q }", "cuda", "PL5501 at = q: no definition has a loop over 'q'"),
    ("target = cpu, %l { keep = 3 }", "cpu", "PL5501 keep = 3: no kernel on the target 'cpu' keeps several rows of a definition here"),
    ("%t { beside = %y }", "cpu", "PL5501 beside = %y: '%t' cannot be computed beside '%y'"),
    ("%y { map = product }", "cuda", "PL5501 map = product: '%y' is nothing that a kernel of the kind 'product' computes"),
    ("%y { map = carpet }", "cuda", "PL5501 map = carpet: there is no kind of kernel 'carpet'"),
    ("%y { map = block(q) }", "cuda", "PL5501 map = block(q): '%y' has no such axis"),
    ("%y { map = [grid, grid] }", "cuda", "PL5501 map = [grid, grid]: '%y' has 1 kernel, not 2"),
    ("%c { map = grid }", "cuda", "PL5501 map = grid: '%c' is a recurrence, whose steps run in order"),
])
def test_what_cannot_be_followed_is_an_error_at_its_place(schedule: str, device: str, expected: str) -> None:
    assert faults_of(schedule, device) == [expected]


@pytest.mark.parametrize("schedule", ["%l { place = row, at = n }", "%l { place = row, at = %y }", "%l { place = buffer }", "%l { place = register, at = n, keep = 2 }",
                                      "%y { map = block(n) }", "%y { map = grid, beside = none }", "target = cpu, %l { place = row }", "derived = []"])
def test_what_can_be_followed_is_no_error_on_either_target(schedule: str) -> None:
    assert [faults_of(schedule, device) for device in ("cpu", "cuda")] == [[], []]


def test_what_a_target_does_not_have_is_in_the_ledger() -> None:
    module = passed(parse(program("%l { place = row, at = n }"), "user.plir"), "resolve,infer-types,flatten,schedule")
    entries = [str(e) for e in ledger(module)]
    assert len(entries) == 1
    assert entries[0].startswith("declined: '%y', '%z', '%t' = '@f'")
    assert entries[0].endswith("there is no place 'row' on the target 'cuda', for '%l'")
    again = passed(parse(print_module(module), "again.plir"), "resolve,infer-types,flatten,schedule")
    assert print_module(again) == print_module(module)


@pytest.mark.parametrize(("schedule", "device", "place"), [("%l { place = buffer }", "cpu", "buffer"), ("%l { place = inline }", "cuda", "inline"),
                                                          ("target = cuda, %l { place = buffer }", "cuda", "buffer")])
def test_a_user_goes_first(schedule: str, device: str, place: str) -> None:
    module = passed(parse(program(schedule), "user.plir"), "resolve,infer-types,flatten")
    plain = texts(module, device)["f"]
    assert ("temporary %l" in plain) == (place == "buffer")
    assert texts(passed(module, f"derive{{device={device}}},schedule{{device={device}}}"), device)["f"] == plain


# ------------------------------------------------------------------------------------------------------------------- asked again


def test_what_is_derived_of_an_operator_is_found_once() -> None:
    module = passed(parse((Path(__file__).resolve().parents[2] / "cases" / "broadcast.plir").read_text(), "broadcast.plir"), "resolve,infer-types,flatten")
    some = [o for o in module.operators if o.compute is not None]
    first = [derived_operator(o, "cuda") for o in some]
    assert all(derived_operator(o, "cuda") is d for o, d in zip(some, first, strict=True))
    assert any(o is not d for o, d in zip(some, first, strict=True))
