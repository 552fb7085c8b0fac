"""What inference asks of sizes, and boxes of what nobody reads."""
from __future__ import annotations

import numpy as np
import pytest

from pipelink_ir.grammar import parse
from pipelink_ir.ir.diagnostics import ExecutionError, Report
from pipelink_ir.ir.nodes import Module
from pipelink_ir.passes.manager import parse_passes, run_passes

SHRINK = """
op @shrink(%x: tensor<Nxf32>) -> (%y: tensor<(N - 2)xf32>) { compute { %y[n] = %x[n + 1] } }
pipeline @p(%x: tensor<Wxf32>) -> (%y: tensor<(W - 2)xf32>) { %y = @shrink(%x) }
"""


def _frontend(text: str) -> Module:
    report = Report()
    return run_passes(parse(text, "sizes.plir"), parse_passes("resolve,infer-types"), report)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_a_result_of_negative_size_is_refused_at_the_call(backend: str) -> None:
    import importlib
    module = _frontend(SHRINK)
    run = importlib.import_module(f"pipelink_ir.backends.{backend}.executable").load(module, "p")
    np.testing.assert_array_equal(run({"x": np.arange(4, dtype=np.float32)})["y"], [1, 2])
    assert run({"x": np.zeros(2, np.float32)})["y"].shape == (0,)
    with pytest.raises(ExecutionError) as caught:
        run({"x": np.zeros(1, np.float32)})
    assert [d.code for d in caught.value.diagnostics] == ["PL6001"]


def test_no_condition_where_the_size_is_proven() -> None:
    proven = SHRINK.replace("{ %y = @shrink", "{ where W >= 2 %y = @shrink")
    assert len(_frontend(proven).pipelines[0].where) == 1
    half = "op @h(%x: tensor<Nxf32>) -> (%y: tensor<(N - N floordiv 2)xf32>) { compute { %y[n] = %x[n] } }\n" \
           "pipeline @p(%x: tensor<Wxf32>) -> (%y: tensor<(W - W floordiv 2)xf32>) { %y = @h(%x) }"
    assert _frontend(half).pipelines[0].where == ()


def test_a_recurrence_that_nobody_reads() -> None:
    """Its extents follow from nothing; it is not computed either."""
    text = """op @f(%x: tensor<TxCxf32>) -> (%y: tensor<TxCxf32>) {
      where T >= 1
      compute { %y[t, c]     = %x[t, c]
                %a[0, c]     = %x[0, c]
                %b[0, c]     = 1.0
                %a[t < T, c] = %b[t-1, c] + %x[t, c]
                %b[t < T, c] = %a[t-1, c] } }
    pipeline @p(%x: tensor<TxCxf32>) -> (%y: tensor<TxCxf32>) { %y = @f(%x) }"""
    from pipelink_ir.backends.reference.executable import load
    x = np.ones((3, 2), np.float32)
    np.testing.assert_array_equal(load(_frontend(text), "p")({"x": x})["y"], x)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_a_guard_does_not_make_places_of_an_empty_axis(backend: str) -> None:
    """Behind the guard %t is read at one place, which is there only if the axis has it."""
    import importlib
    text = """op @f(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) {
      compute { %t[n] = 2 * %x[n]
                %y[n] = select(n == 0, %t[n], select(n == 2, %t[n - 1], %x[n])) } }
    pipeline @p(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { %y = @f(%x) }"""
    run = importlib.import_module(f"pipelink_ir.backends.{backend}.executable").load(_frontend(text), "p")
    for n, want in ((0, []), (1, [2]), (2, [2, 2]), (4, [2, 2, 4, 4])):
        np.testing.assert_array_equal(run({"x": np.arange(1, n + 1, dtype=np.float32)})["y"], want)
