"""Devices: what a program asks for and a target has not is folded onto the target's, and the ledger says so, whatever happens to the nodes later."""
from __future__ import annotations

import numpy as np
import pytest

import pipelink_ir as pl
from pipelink_ir.grammar import parse, print_module
from pipelink_ir.ir.diagnostics import Report
from pipelink_ir.ir.nodes import Module, Node
from pipelink_ir.passes.ledger import Entry, ledger
from pipelink_ir.passes.manager import parse_passes, run_passes, with_options

TEXT = """target @small { arch = sm_75 }
target @host { arch = cpu }
op @f(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { compute { %y[n] = %x[n] + 1 } }
op @two(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { graph {
  %t = @f(%x)
  %y = @f(%t) on cuda:1
} }
pipeline @p(%x: tensor<Nxf32>) -> (%e: tensor<Nxf32>) WHERE {
  %a = @f(%x) on cuda:0
  %b = @f(%a) on cuda:1
  %c = @f(%b) on cpu
  %d = @f(%c) on @small
  %g = @f(%d) on @host
  %e = @two(%g)
}
"""


def placed(where: str, target: str, *devices: str) -> Module:
    steps = parse_passes("frontend,place-devices,flatten")
    options = f'place-devices{{target="{target}"' + (f",map=[{','.join(chr(34) + d + chr(34) for d in devices)}]" if devices else "") + "}"
    return run_passes(parse(TEXT.replace("WHERE", where), "p.plir"), with_options(steps, options), Report())


def lines(entries: tuple[Entry, ...]) -> list[int]:
    assert {e.kind for e in entries} <= {"fallback"}
    return [e.span.line for e in entries if e.span is not None]


@pytest.mark.parametrize(("where", "target", "elsewhere"), [
    ("", "cpu", [9, 10, 12, 6]),
    ("", "cuda:0", [10, 11, 12, 13, 6]),
    ("", "cuda", [10, 11, 12, 13, 6]),
    ("", "cuda:1", [9, 11, 12, 13]),
    ("", "cuda-emulated", [10, 11, 12, 13, 6]),
    ("", "sm_75", [10, 11, 13, 6]),
    ("", "sm_90", [10, 11, 12, 13, 6]),
    ("on cuda:0", "cpu", [8, 9, 10, 12, 6]),
    ("on cuda:1", "cuda:0", [8, 10, 11, 12, 13, 6]),
    ("on @small", "sm_75", [10, 11, 13, 6]),
    ("on cpu", "cuda", [8, 10, 11, 12, 13, 6])])
def test_what_a_target_has_not_is_listed_with_its_line(where: str, target: str, elsewhere: list[int]) -> None:
    module = placed(where, target)
    assert lines(ledger(module, target)) == elsewhere
    assert all(n.device is None for p in module.pipelines for n in p.nodes if isinstance(n, Node))
    again = run_passes(parse(print_module(module), "dump.plir"), parse_passes("frontend"), Report())
    assert [str(e) for e in ledger(again, target)] == [str(e) for e in ledger(module, target)]


def test_a_map_puts_one_device_in_the_place_of_another() -> None:
    module = placed("on cuda:1", "cuda:0", "cuda:1=cuda:0", "@small=cuda:0", "@host=cpu")
    assert lines(ledger(module, "cuda:0")) == [11, 13]
    assert "asked for cpu, runs on cuda:0" in str(ledger(module, "cuda:0")[0])


def test_a_map_names_targets_that_are_declared() -> None:
    with pytest.raises(pl.ProgramError, match="the device map puts @hots in the place of cuda:1, and no such target is declared") as caught:
        placed("on cuda:1", "cuda:0", "cuda:1=@hots")
    assert {(d.code[:2], d.help) for d in caught.value.diagnostics} == {("PL", "did you mean '@host'?")}
    assert all(d.span.line > 1 for d in caught.value.diagnostics)


@pytest.mark.parametrize(("where", "devices", "said"), [
    ("", ["cuda:1=cuda:0", "@smal=cuda:0"], [("device", 8, "an entry for @smal, which nothing asks for", "did you mean '@small'?")]),
    ("on cpu", ["cuda:2=cuda:0"], [("device", 8, "an entry for cuda:2, which nothing asks for", "did you mean 'cuda:1' or 'cuda:0'?")]),
    ("", ["@small=cuda:0", "cuda:1=cuda:0", "cpu=cuda:0"], [])])
def test_an_entry_of_the_map_that_nothing_asks_for_is_told_of(where: str, devices: list[str], said: list[tuple[str, int, str, str]]) -> None:
    report = Report()
    options = f"place-devices{{target=\"cuda:0\",map=[{','.join(chr(34) + d + chr(34) for d in devices)}]}}"
    for key in ("map", "project_map"):
        module = parse(TEXT.replace("WHERE", where), "p.plir")
        placed_so = run_passes(module, with_options(parse_passes("frontend,place-devices,flatten"), options.replace("map=", f"{key}=")), report)
        assert lines(ledger(placed_so, "cuda:0")) == lines(ledger(placed(where, "cuda:0", *devices), "cuda:0"))
    found = [d for d in report.diagnostics if d.severity == "warning"]
    assert [(d.field, d.span.line, d.help) for d in found] == [(field, line, help) for field, line, _, help in said]
    assert all(d.code == "PL5201" and text in d.message for d, (*_, text, _) in zip(found, said, strict=True))


def test_without_a_target_the_first_device_that_is_asked_for_has_all() -> None:
    module = run_passes(parse(TEXT.replace("WHERE", ""), "p.plir"), parse_passes("frontend,place-devices"), Report())
    folded = [n for p in module.pipelines for n in p.nodes if isinstance(n, Node) and n.reason]
    assert [n.results[0].name for n in folded] == ["b", "c", "d", "g"]
    nothing = parse("op @f(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { compute { %y[n] = %x[n] } }\n"
                    "pipeline @p(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { %y = @f(%x) }", "p.plir")
    front = run_passes(nothing, parse_passes("frontend"), Report())
    assert run_passes(front, parse_passes("place-devices"), Report()) is front


@pytest.mark.parametrize("target", ["cpu", "cuda-emulated"])
def test_fallbacks_survive_fusion_and_can_be_denied(target: str) -> None:
    text = TEXT.replace("WHERE", "on cuda:0").replace("target @host { arch = cpu }", "target @host { arch = sm_90 }")
    compiled = pl.compile(text, target=target)
    reasons = " ".join(str(e) for e in compiled.ledger if e.kind == "fallback")
    assert "asked for cuda:1" in reasons
    assert ("asked for cuda:0" in reasons) == (target == "cpu")
    np.testing.assert_array_equal(compiled(x=np.arange(5, dtype=np.float32)).e, np.arange(5) + 7)
    with pytest.raises(pl.ProgramError, match="'fallback' is denied") as caught:
        pl.compile(text, target=target, deny="fallback")
    assert {d.code for d in caught.value.diagnostics} == {"PL5301"}


def test_a_place_on_another_device_is_dropped_with_a_warning() -> None:
    text = """op @f(%x: tensor<4xf32>) -> (%y: tensor<4xf32>) { compute { %y[n] = %x[n] + 1 } }
pipeline @p(%x: tensor<4xf32>) -> (%b: tensor<4xf32>) {
  %a = @f(%x) plan { stream = 0, %a { arena = "cuda:0", offset = 0, bytes = 16 } }
  %b = @f(%a) plan { stream = 0 }
}"""
    for target, kept in (("cpu", False), ("cuda:0", True), ("sm_90", True), ("cuda:1", False)):
        report = Report()
        module = run_passes(parse(text, "p.plir"), with_options(parse_passes("frontend,place-devices"), f'place-devices{{target="{target}"}}'), report)
        assert ('arena = "cuda:0"' in print_module(module)) == kept
        assert "stream = 0" in print_module(module)
        assert [(d.severity, d.span.line) for d in report.diagnostics] == ([] if kept else [("warning", 3)])


def test_options_for_some_of_the_passes() -> None:
    steps = with_options(parse_passes("cuda"), "assign-streams{max_streams=8},fuse{nodes=1}")
    assert [str(s) for s in steps if s.name in ("assign-streams", "fuse")] == ["fuse{nodes=1}", "assign-streams{max_streams=8}"]
    assert with_options(steps, "") == steps
    for text, message in (("nothing", "there is no pass 'nothing'"), ("resolve{x=1}", "no option 'x'"), ("verify-plan,simplify{nodes=perhaps}", "true or false")):
        with pytest.raises(pl.UsageError, match=f"--pass-options.*{message}"):
            with_options(steps, text)
    with pytest.raises(pl.UsageError, match="column 16: the options of 'fuse' are given twice"):
        with_options(steps, "fuse{nodes=1}, fuse{code=9}")
    with pytest.raises(pl.UsageError, match="'max_streams' is 1 or more, not 0"):
        pl.compile(TEXT.replace("WHERE", ""), target="cpu", pass_options="assign-streams{max_streams=0}")
    for options, message in (("fuse{device=gpu}", "fuse: 'device' is cpu or cuda, not 'gpu'"), ("alias-buffers{device=gpu}", "'device' is cpu, or left out")):
        with pytest.raises(pl.UsageError, match=message):
            pl.compile(TEXT.replace("WHERE", ""), target="cpu", pass_options=options)
    with pytest.raises(pl.UsageError, match="'fuse' is not among those that run"):
        with_options(parse_passes("frontend"), "fuse{nodes=1}")


def test_options_of_passes_at_compile() -> None:
    text = """op @f(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { compute { %y[n] = %x[n] + 1 } }
pipeline @p(%x: tensor<Nxf32>) -> (%a: tensor<Nxf32>, %b: tensor<Nxf32>) {
  %a = @f(%x)
  %b = @f(%a)
}"""
    fused, unfused = pl.compile(text, target="cpu"), pl.compile(text, target="cpu", pass_options="fuse{nodes=1}")
    assert (len(fused.pipeline.nodes), len(unfused.pipeline.nodes)) == (1, 2)
    assert len(pl.compile(text, target="cpu", passes="frontend,simplify").pipeline.nodes) == 2
    for compiled in (fused, unfused):
        np.testing.assert_array_equal(compiled(x=np.zeros(3, np.float32)).b, np.full(3, 2))
