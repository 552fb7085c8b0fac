"""Operators in other float dtypes: what their contracts keep."""
from __future__ import annotations

from pipelink_ir.passes.precision.floats import lowered, taken_over
from tests.unit.precision.coding import operator

SCALED = """op @f(%x: tensor<NxKxf32>, %w: tensor<Lxf32>) -> (%y: tensor<NxKxf32>) {
  memory  { dtypes = [f8e4m3, f16, f32], %y { inplace = %x } }
  compute { %y[n, k] = sum[l < L](%x[n, k] * %w[l]) }
}
"""


def test_memory_is_taken_over_by_what_has_its_size() -> None:
    op = operator(SCALED)
    assert taken_over(op) == taken_over(lowered(op, "f16", "g")) == {"y": "x"}
    assert taken_over(lowered(op, "f8e4m3", "g", ("x", "w"))) == {}
