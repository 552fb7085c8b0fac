"""Edges that a lowered plan has as codes alone, shown as values."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipelink_ir as pl
from pipelink_ir.grammar import parse
from pipelink_ir.ir.diagnostics import Report
from pipelink_ir.ir.nodes import Node, TensorType
from pipelink_ir.passes.manager import parse_passes, run_passes
from pipelink_ir.passes.precision.codes import Codes, quantiser
from pipelink_ir.runtime.calibration.dequantised import _codes
from pipelink_ir.runtime.sources import read_program

NET = """
op @linear(%x: tensor<NxKxf32>, %w: tensor<KxMxf32>) -> (%y: tensor<NxMxf32>) {
  downgrade sm_87 { dtype = i8, scheme = affine, force = true, ranges = RANGES }
  compute { %y[n, m] = sum[k < K](%x[n, k] * %w[k, m]) }
}
op @pool(%x: tensor<NxKxf32>) -> (%y: tensor<(N floordiv 2)xKxf32>) {
  compute { %y[n, k] = max[j < 2](%x[2 * n + j, k]) }
}
pipeline @net(%x: tensor<Nx24xf32>, param %w: tensor<24x32xf32>, param %v: tensor<32x8xf32>) -> (%y: tensor<(N floordiv 2)x8xf32>) {
  %h = @linear(%x, %w) as up
  %p = @pool(%h) as pool
  %y = @linear(%p, %v) as down
}
"""
RNG = np.random.default_rng(11)
PARAMS = {"w": RNG.standard_normal((24, 32)).astype(np.float32) / 5, "v": RNG.standard_normal((32, 8)).astype(np.float32) / 5}
DATA = [{"x": (RNG.standard_normal((n, 24)) + 0.5).astype(np.float32)} for n in (6, 16)]


@pytest.mark.parametrize("codes", [Codes("i8", 0.25), Codes("i8", 0.03125, -7), Codes("u8", 0.5, 128), Codes("i8", "tensor"), Codes("u8", "tensor", "tensor"),
                                   Codes("f8e4m3", 0.125), Codes("f8e5m2", "tensor")], ids=str)
def test_codes_are_read_from_what_makes_them(codes: Codes) -> None:
    text = "op @f(%x: tensor<AxBx4xf32, NHC>) -> (%y: tensor<f32>) { compute { %y = sum[a < A, b < B, c < 4](%x[a, b, c]) } }"
    t: TensorType = parse(text, "t").operators[0].operands[0].type
    found: Any = _codes(quantiser(t, codes, "quantize_x.1"))
    assert found is not None
    assert (found.dtype, found.scale, found.zero) == (codes.dtype, codes.scale, codes.zero)


def test_scales_for_channels_are_not_told() -> None:
    t = parse("op @f(%x: tensor<AxBxf32>) -> (%y: tensor<f32>) { compute { %y = sum[a < A, b < B](%x[a, b]) } }", "t").operators[0].operands[0].type
    assert _codes(quantiser(t, Codes("i8", "channel", axis=1), "quantize_x.1")) is None


@pytest.mark.parametrize("ranges", ["calibrated", "dynamic"])
def test_a_pooled_edge_is_shown(tmp_path: Path, ranges: str) -> None:
    net = tmp_path / "net.plir"
    net.write_text(NET.replace("RANGES", ranges))
    found = pl.calibrate(net, DATA, params=PARAMS, on="cpu", targets="sm_87")
    lower = f"lower-precision{{arch=sm_87,calibration={found.path}}}"
    plan = run_passes(read_program(str(net)), parse_passes(f"resolve,infer-types,push-policies{{arch=sm_87}},flatten,{lower}"), Report())
    made = [e.name for n in plan.pipelines[0].nodes if isinstance(n, Node) for e in n.results]
    assert "p.q" in made
    assert "p" not in made
    apart = pl.compare(net, "cpu", "sm_87,on=cpu", DATA, params=PARAMS)
    assert [e.edge for e in apart.edges] == ["h", "p", "y"]
    # Codes of an edge are half a step from its values; the largest is all of them for whole samples at once.
    h = np.concatenate([s["x"].astype(np.float64) @ PARAMS["w"] for s in DATA])
    step = (max(h.max(), 0) - min(h.min(), 0)) / 255
    assert apart["p"].worst <= apart["h"].worst + 1.01 * step
    assert apart["p"].worst >= 0.2 * step
    assert found.calibration.errors["sm_87"]["y"] == pytest.approx(apart["y"].error, rel=0.05)
