"""Operators that only choose among values, one behind the other, between operators on codes."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipelink_ir as pl

OPERATORS = """op @linear(%x: tensor<NxKxf32>, %w: tensor<KxMxf32>) -> (%y: tensor<NxMxf32>) {
  downgrade cpu { dtype = i8, force = true }
  compute { %y[n, m] = sum[k < K](%x[n, k] * %w[k, m]) }
}
op @pool(%x: tensor<NxKxf32>) -> (%y: tensor<(N floordiv 2)xKxf32>) { compute { %y[n, k] = max[t < 2](%x[2 * n + t, k]) } }
op @join(%a: tensor<NxKxf32>, %b: tensor<NxKxf32>) -> (%y: tensor<(2 * N)xKxf32>) {
  compute { %y[n in 0..N, k]     = %a[n, k]
            %y[n in N..2 * N, k] = %b[n - N, k] }
}
"""
TWO_POOLS = OPERATORS + """pipeline @p(%x: tensor<8x16xf32>, %z: tensor<2x16xf32>, param %w: tensor<16x16xf32>)
    -> (%u: tensor<8x16xf32>, %y: tensor<LASTx16xf32>) {
  %h = @linear(%x, %w)
  %p = @pool(%h)
  %q = @pool(%p)
  %u = @linear(%h, %w)
"""
ALONE = TWO_POOLS.replace("LAST", "2") + "  %y = @linear(%q, %w)\n}\n"
JOINED = TWO_POOLS.replace("LAST", "4") + "  %c = @join(%q, %z)\n  %y = @linear(%c, %w)\n}\n"
RANGES = {"x": 4.0, "z": 40.0, "h": 20.0, "p": 19.0, "q": 18.0, "c": 40.0}
"""The largest magnitude of each edge, by a file: the codes of `%h` are not those of what is joined."""


def codes(v: Any, edge: str) -> Any:
    """The values that codes of the range of an edge stand for."""
    scale = np.float32(RANGES[edge] / 127)
    return np.clip(np.rint(v.astype(np.float32) / scale), -128, 127) * np.float64(scale)


def pooled(v: Any) -> Any:
    return v.reshape(len(v) // 2, 2, -1).max(1)


@pytest.mark.parametrize(("text", "of_pool"), [(ALONE, "h"), (JOINED, "c")])
def test_codes_go_through_several_choices(text: str, of_pool: str, tmp_path: Path) -> None:
    """Alone they take over the codes that `%h` has for its other reader; what is joined has one scale, which all that leads there has then."""
    rng = np.random.default_rng(0)
    x, z, w = (rng.normal(size=s).astype(np.float32) for s in ((8, 16), (2, 16), (16, 16)))
    z *= 10
    file = tmp_path / "p.calibration.yaml"
    file.write_text("calibration: 1\npipeline: p\nmethod: minmax\nsamples: 1\nedges:\n" + "".join(
        f"  {e}: {{min: {-top}, max: {top}, low: {-top}, high: {top}}}\n" for e, top in RANGES.items() if f"%{e} = " in text or f"%{e}: " in text))
    step = np.abs(w).max(0) / np.float32(127)
    of_w = np.rint(w / step) * step.astype(np.float64)
    h = codes(x, "x") @ of_w
    last = pooled(pooled(codes(h, of_pool)))
    want = {"u": codes(h, "h") @ of_w, "y": (np.concatenate([last, codes(z, "c")]) if text is JOINED else last) @ of_w}
    compiled = pl.compile(text, target="cpu", calibration=file)
    for name, value in compiled(x=x, z=z, w=w).items():
        # A code is another one where a quotient lies at a tie.
        np.testing.assert_allclose(value, want[name], atol=0.02 * np.abs(want[name]).max())
        assert np.mean(np.abs(value - want[name]) < 1e-4 * np.abs(want[name]).max()) > 0.9
    said = " ".join(e.reason for e in compiled.ledger)
    assert "so it works on codes" in said
    assert said.count("'%h' as i8 codes of scale") == (2 if text is JOINED else 1)
