"""Graph operators in `infer-types`: how much work they are, and whose fault it is when one does not fit a call."""
from __future__ import annotations

from typing import Any

import pytest

from pipelink_ir.grammar import parse
from pipelink_ir.ir.diagnostics import ProgramError, Report
from pipelink_ir.passes import infer_types
from pipelink_ir.passes.manager import parse_passes, run_passes


def _tower(levels: int, outer_first: bool) -> str:
    """Each graph calls the one below it twice: unfolded they would be 2 ** levels nodes."""
    ops = ["op @g0(%x: tensor<NxKxf32>) -> (%y: tensor<NxKxf32>) { compute { %y[n, k] = %x[n, k] + 1 } }"]
    ops += [f"op @g{i}(%x: tensor<NxKxf32>) -> (%y: tensor<NxKxf32>) {{ graph {{ %h = @g{i - 1}(%x)\n %y = @g{i - 1}(%h) }} }}" for i in range(1, levels + 1)]
    if outer_first:
        ops.reverse()
    return "\n".join(ops) + f"\npipeline @p(%x: tensor<8xKxf32>) -> (%y: tensor<8xKxf32>) {{ %y = @g{levels}(%x) }}\n"


def _inferences(levels: int, outer_first: bool, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many graphs are inferred for a tower of so many levels."""
    count = 0
    original = infer_types._Inference._graph

    def counted(self: Any, *what: Any) -> Any:
        nonlocal count
        count += 1
        return original(self, *what)

    with monkeypatch.context() as patch:
        patch.setattr(infer_types._Inference, "_graph", counted)
        run_passes(parse(_tower(levels, outer_first), "tower.plir"), parse_passes("validate"), Report())
    return count


@pytest.mark.parametrize("outer_first", [False, True])
def test_nested_graphs_are_linear_work(outer_first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _inferences(80, outer_first, monkeypatch) <= 2 * _inferences(40, outer_first, monkeypatch) + 4
    assert _inferences(40, outer_first, monkeypatch) <= 4 * 40


def test_a_graph_of_three_hundred_levels() -> None:
    report = Report()
    run_passes(parse(_tower(300, False), "tower.plir"), parse_passes("validate"), report)
    assert report.diagnostics == []


MISFIT = """op @even(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { where N mod 2 == 0 compute { %y[n] = %x[n] } }
op @inner(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { graph { %y = @even(%x) } }
op @outer(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { graph { %y = @inner(%x) } }
pipeline @p(%x: tensor<7xf32>) -> (%a: tensor<7xf32>, %b: tensor<7xf32>) {
  %a = @outer(%x)
  %b = @outer(%x)
}
"""


def test_what_does_not_fit_a_call_is_told_at_the_call_and_once() -> None:
    with pytest.raises(ProgramError) as caught:
        run_passes(parse(MISFIT, "misfit.plir"), parse_passes("validate"), Report())
    (error,) = caught.value.diagnostics
    assert (error.field, error.span.line) == ("shape", 5)
    assert [n.span.line for n in error.notes if n.message.startswith("inside ")] == [3, 2]
    assert {1, 4} <= {n.span.line for n in error.notes}
