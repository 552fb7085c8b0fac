"""Policies where programs are odd: what else contracts say still holds of what they make of operators."""
from __future__ import annotations

import numpy as np
import pytest

import pipelink_ir as pl
from pipelink_ir.grammar.printer import print_module
from pipelink_ir.ir.nodes import Node
from pipelink_ir.passes.streams.graph import plan_numbers

MATMUL = """op @lin(%x: tensor<NxKxT>, %w: tensor<KxMxT>) -> (%y: tensor<NxMxT>) {
  memory { dtypes = [f16, bf16, f32, f64] }
  execution { EXECUTION }
  CLAUSE
  compute { %y[n, m] = sum[k < K](%x[n, k] * %w[k, m]) }
}
"""


def test_an_operator_and_what_a_label_makes_of_it_are_in_flight_together() -> None:
    """`max_streams = 1` speaks of the operator, whatever dtype its nodes run in: the second one waits for the first."""
    text = MATMUL.replace("EXECUTION", "max_streams = 1").replace("CLAUSE", "") + """
    op @both(%x: tensor<NxNxf32>, %z: tensor<NxNxf32>, %w: tensor<NxNxf32>) -> (%y: tensor<NxNxf32>, %u: tensor<NxNxf32>) {
      downgrade sm_75 { precision = mixed, a = f16, force = true }
      graph { %y = @lin(%x, %w) as a
              %u = @lin(%z, %w) as b }
    }
    pipeline @p(%x: tensor<512x512xf32>, %z: tensor<512x512xf32>, %w: tensor<512x512xf32>) -> (%y: tensor<512x512xf32>, %u: tensor<512x512xf32>) {
      %y, %u = @both(%x, %z, %w)
    }
    """
    compiled = pl.compile(text, target="cuda-emulated:sm_75", calibration="off")
    products = [n for n in compiled.pipeline.nodes if isinstance(n, Node) and n.op.startswith("lin")]
    assert len(products) == 2
    assert any("lowered" in (n.reason or "") for n in products)
    first, second = products
    assert plan_numbers(first, "stream") == plan_numbers(second, "stream") or set(plan_numbers(first, "record")) & set(plan_numbers(second, "wait"))


# ------------------------------------------------------------------------------------------------- edges that a dtype cannot carry


EDGE = """op @prod(%x: tensor<NxMxFROM>) -> (%y: tensor<NxMxf32>) {
  CONTRACT
  compute { %y[n, m] = BODY }
}
op @half(%x: tensor<NxMxT>) -> (%y: tensor<NxMxT>) {
  memory { dtypes = [f16, bf16, f32] }
  downgrade sm_80 { dtype = DTYPE, force = true }
  compute { %y[n, m] = %x[n, m] * FACTOR }
}
pipeline @p(%x: tensor<NxMxFROM>) -> (%y: tensor<NxMxf32>) {
  %a = @prod(%x)
  %y = @half(%a)
}
"""


def edge(contract: str = "", body: str = "f32(%x[n, m])", source: str = "f32", dtype: str = "f16", factor: str = "0.5") -> str:
    return EDGE.replace("FROM", source).replace("CONTRACT", contract).replace("BODY", body).replace("DTYPE", dtype).replace("FACTOR", factor)


@pytest.mark.parametrize(("text", "got", "expected", "lines"), [
    (edge("semantic { %y { range = [-100000, 1] } }"), "the policy takes '%x' to f16, which ends at 65504", "'@prod' promises values up to 100000", [7, 2, 11]),
    (edge("semantic { %y { range = [-1e-9, 1e-9] } }"), "the policy takes '%x' to f16, which begins at 5.96e-08: all would be 0",
     "'@prod' promises values up to 1e-09", [7, 2, 11]),
    (edge(source="u16"), "the policy takes '%x' to f16, which ends at 65504", "'@prod' makes values up to 65535", [7, 11]),
    (edge(source="u8", factor="300"), "the policy takes '%y' to f16, which ends at 65504", "'@half' makes values up to 76500", [7, 12]),
])
def test_an_edge_that_a_dtype_cannot_carry_names_both_sides(text: str, got: str, expected: str, lines: list[int]) -> None:
    """The policy of the one who reads it, and the contract or definition of the one who makes it."""
    with pytest.raises(pl.ContractViolationError) as caught:
        pl.compile(text, target="cuda-emulated:sm_80")
    error = caught.value
    assert (error.field, error.got, error.expected) == ("range", got, expected)
    assert [n.span.line for n in error.locations] == lines


@pytest.mark.parametrize("text", [
    edge("semantic { %y { range = [-100000, 1] } }", dtype="bf16"), edge("semantic { %y { range = [-1e-9, 1e-9] } }", dtype="bf16"),
    edge(source="u16", body="min(f32(%x[n, m]), 65504)"), edge(source="u16", dtype="bf16"), edge(source="u8", factor="256"), edge(),
    edge(source="u8", body="300.0 * f32(%x[n, m]) - 299.0 * f32(%x[n, m])"),
])
def test_an_edge_that_it_can_carry(text: str) -> None:
    pl.compile(text, target="cuda-emulated:sm_80")


def test_codes_where_libraries_alone_may_compute() -> None:
    text = MATMUL.replace("EXECUTION", "deterministic = true").replace("CLAUSE", "compile { library = [cublaslt] }\n  downgrade sm_80 { dtype = i8, force = true }") + \
        "pipeline @p(%x: tensor<NxKxf32>, param %w: tensor<KxMxf32>) -> (%y: tensor<NxMxf32>) { %y = @lin(%x, %w) }\n"
    with pytest.raises(pl.ContractViolationError) as caught:
        pl.compile(text, target="cuda-emulated:sm_80")
    error = caught.value
    assert (error.field, error.operator, error.edge) == ("downgrade", "lin", "y")
    assert error.got == "the policy quantises to i8"
    assert error.expected == "'@lin' runs on cublaslt alone, which is not called for codes"
    assert [n.span.line for n in error.locations] == [5, 4, 8]
    pl.compile(text.replace("force = true", "force = true, library = generated"), target="cuda-emulated:sm_80")


def test_what_is_never_inside_for_the_sizes_of_a_call_reads_back() -> None:
    """An index that is outside for this size alone is the border's business, in the program and in its dump."""
    text = """op @above(%x: tensor<HxWxf32>) -> (%y: tensor<HxWxf32>) { memory { border = constant(7) } compute { %y[h, w] = %x[h - 1, w] } }
    pipeline @p(%x: tensor<1xWxf32>) -> (%y: tensor<1xWxf32>) { %y = @above(%x) }\n"""
    compiled = pl.compile(text, target="cpu")
    again = pl.compile(print_module(compiled.module), target="cpu")
    for c in (compiled, again):
        np.testing.assert_array_equal(c(x=np.ones((1, 3), np.float32)).y, [[7, 7, 7]])
    with pytest.raises(pl.ProgramError, match="never inside"):
        pl.compile(text.replace("HxW", "1xW"), target="cpu")


def test_a_warning_does_not_stand_for_an_error_at_its_place() -> None:
    """bf16 is slow on sm_75, which is a warning, and the operator does not have it, which is an error: both are told."""
    text = MATMUL.replace("EXECUTION", "deterministic = true").replace("bf16, ", "").replace("CLAUSE", "downgrade sm_75 { dtype = bf16 }") + \
        "pipeline @p(%x: tensor<NxKxf32>, param %w: tensor<KxMxf32>) -> (%y: tensor<NxMxf32>) { %y = @lin(%x, %w) }\n"
    with pytest.raises(pl.ContractViolationError, match="not among the dtypes of '@lin': f16, f32, f64") as caught:
        pl.compile(text, target="cuda-emulated:sm_75")
    assert [(d.severity, d.span.line) for d in caught.value.diagnostics] == [("warning", 4), ("error", 4)]
