"""Attributes of nodes that are expressions of sizes: every backend computes them in their declared type, each step rounded."""
from __future__ import annotations

import importlib

import numpy as np
import pytest

from pipelink_ir.grammar import parse, print_module
from pipelink_ir.ir.diagnostics import Report
from pipelink_ir.passes.manager import parse_passes, run_passes

GRAPH = """
op @scale(%x: tensor<Nxf32>, by: f32 = 2.0) -> (%y: tensor<Nxf32>) { compute { %y[n] = %x[n] * by } }
op @both(%x: tensor<Nxf32>, alpha: f32 = 0.25) -> (%y: tensor<Nxf32>, %z: tensor<Nxf32>) {
  graph { %y = @scale(%x) {by = 1 - alpha}
          %z = @scale(%x) {by = alpha} }
}
pipeline @p(%x: tensor<Hxf32>) -> (%y: tensor<Hxf32>, %z: tensor<Hxf32>) { %y, %z = @both(%x) {alpha = 1 / (1 + f32(H)) / 3} }
"""


@pytest.mark.parametrize(("backend", "passes"), [("reference", "frontend"), ("reference", "cpu"), ("cpu", "cpu")])
def test_an_expression_that_flatten_put_into_another(backend: str, passes: str) -> None:
    module = run_passes(parse(GRAPH, "attributes.plir"), parse_passes(passes), Report())
    run = importlib.import_module(f"pipelink_ir.backends.{backend}.executable").load(module, "p")
    x = np.array([1, 2, 3, 4, 5, 6], np.float32)
    alpha = np.float32(1) / (np.float32(1) + np.float32(6)) / np.float32(3)
    got = run({"x": x})
    np.testing.assert_array_equal(got["y"], x * (np.float32(1) - alpha))
    np.testing.assert_array_equal(got["z"], x * alpha)


NARROW = """
op @f(%x: tensor<Wxi32>, small: u8, half: f16, flag: bool) -> (%y: tensor<Wxu8>, %z: tensor<Wxi32>, %h: tensor<Wxf32>) {
  compute { %y[w] = small
            %z[w] = select(flag, small * small, -300) + %x[w]
            %h[w] = half * 3 + 100000 }
}
pipeline @p(%x: tensor<Wxi32>) -> (%y: tensor<Wxu8>, %z: tensor<Wxi32>, %h: tensor<Wxf32>) {
  %y, %z, %h = @f(%x) {small = u8(50 * W), half = f32(W) / 3, flag = W > 2}
}
"""


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_narrow_attributes_are_read_in_their_compute_types(backend: str) -> None:
    module = run_passes(parse(NARROW, "attributes.plir"), parse_passes("frontend"), Report())
    again = run_passes(parse(print_module(module), "again.plir"), parse_passes("resolve,infer-types"), Report())
    assert print_module(again) == print_module(module)
    run = importlib.import_module(f"pipelink_ir.backends.{backend}.executable").load(module, "p")
    got = run({"x": np.array([1, 2, 3], np.int32)})
    half = np.float32(np.float16(1.0))
    np.testing.assert_array_equal(got["y"], [150, 150, 150])
    np.testing.assert_array_equal(got["z"], [22501, 22502, 22503])
    np.testing.assert_array_equal(got["h"], [half * 3 + 100000] * 3)
    two = run({"x": np.array([0, 0], np.int32)})
    np.testing.assert_array_equal(two["z"], [-300, -300])
    np.testing.assert_array_equal(two["h"], [np.float32(np.float16(2 / 3)) * np.float32(3) + np.float32(100000)] * 2)
