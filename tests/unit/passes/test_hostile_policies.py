"""Policies where programs are odd: what else contracts say still holds of what they make of operators."""
from __future__ import annotations

import pipelink_ir as pl
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
