"""Fusion of large pipelines: how much is written as one operator, typed and planned does not grow with the number of nodes, counted and not timed."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pipelink_ir.grammar import parse
from pipelink_ir.ir.diagnostics import Report
from pipelink_ir.ir.nodes import Node
from pipelink_ir.passes import fuse
from pipelink_ir.passes.manager import parse_passes, run_passes

BEFORE = "resolve,infer-types,check-contracts,flatten,simplify,fuse"
ROWS = """
import std.nn
op @matmul(%x: tensor<HxKxf32>, %w: tensor<KxMxf32>) -> (%y: tensor<HxMxf32>) { compute { %y[h, m] = sum[k < K](%x[h, k] * %w[k, m]) } }
"""
STENCILS = """
op @blur(%x: tensor<HxWxf32>) -> (%y: tensor<HxWxf32>) { memory { border = replicate } compute { %y[h, w] = (%x[h, w - 1] + %x[h, w] + %x[h, w + 1]) / 3 } }
op @half(%x: tensor<HxWxf32>) -> (%y: tensor<HxWxf32>) { compute { %y[h, w] = %x[h, w] / 2 } }
"""


def run(text: str) -> list[Node]:
    module = run_passes(parse(text, "<test>"), parse_passes(BEFORE), Report())
    return [n for n in module.pipelines[0].nodes if isinstance(n, Node)]


def rows(turns: int, width: Callable[[int], int]) -> str:
    """A softmax, a layer norm and a product by turns; the widths behind the products are given."""
    inputs, lines, x = [f"%x: tensor<64x{width(0)}xf32>"], [], "%x"
    for k in range(turns):
        inputs += [f"%g{k}: tensor<{width(k)}xf32>", f"%b{k}: tensor<{width(k)}xf32>", f"%w{k}: tensor<{width(k)}x{width(k + 1)}xf32>"]
        last = f"%m{k}" if k < turns - 1 else "%y"
        lines.append(f"%s{k} = @softmax({x})  %l{k} = @layer_norm(%s{k}, %g{k}, %b{k})  {last} = @matmul(%l{k}, %w{k})")
        x = last
    return ROWS + f"pipeline @p({', '.join(inputs)}) -> (%y: tensor<64x{width(turns)}xf32>) {{ {' '.join(lines)} }}"


def counted(monkeypatch: pytest.MonkeyPatch, name: str) -> list[int]:
    """How many parts each call of a function of the pass has."""
    sizes: list[int] = []
    real = getattr(fuse, name)

    def call(*args: Any) -> Any:
        sizes.append(len(args[-1] if name == "compose" else args[0]))
        return real(*args)
    monkeypatch.setattr(fuse, name, call)
    return sizes


def test_what_is_no_attention_is_not_written_as_one_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    written = counted(monkeypatch, "compose")
    nodes = run(rows(12, lambda k: 48))
    assert [n.op.split(".")[0] for n in nodes] == ["softmax", "matmul"] * 12
    assert written == [2]


def test_each_width_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    written = counted(monkeypatch, "compose")
    run(rows(12, lambda k: 32 + 16 * (k % 3)))
    assert written == [2, 2, 2]


def test_the_schedule_is_asked_a_bounded_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = counted(monkeypatch, "placed")
    lines = [f"%n{k} = @{('half', 'blur')[k % 2]}(%{f'n{k - 1}' if k else 'x'})" for k in range(60)]
    nodes = run(STENCILS + f"pipeline @p(%x: tensor<64x48xf32>) -> (%n59: tensor<64x48xf32>) {{ {' '.join(lines)} }}")
    assert max(asked) <= fuse.ASKED
    assert sum(k * (k + 8) for k in asked) <= fuse.EFFORT
    assert len(nodes) < 60


def test_a_node_that_only_records_an_event_stays() -> None:
    text = """
op @f(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { compute { %y[n] = sqrt(%x[n]) } }
pipeline @p(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) {
  %a = @f(%x) plan { stream = 1, record = 1 }
  %y = @f(%x) plan { stream = 0, wait = [1] }
}
"""
    assert [n.results[0].name for n in run(text)] == ["a", "y"]
