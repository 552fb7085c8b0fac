"""Kernels that users wrote: views, attributes, launch sizes, and what is told when they do not fit."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipelink_ir as pl
from tests.unit.device.emulated import EmulatingDriver

PROGRAM = """
op @scale(%x: tensor<Nxf32>, gain: f32 = 2.0, n: i32 = 3, use: bool = true) -> (%y: tensor<Nxf32>) {
  kernel cuda "k.cu" { entry = "scale" }
}
op @alone(%x: tensor<Nx?xf32>, gain: f32 = 2.0) -> (%y: tensor<Nxf32>) {
  kernel cuda "k.cu" { entry = "alone", block = [BLOCK], grid = [ceildiv(N, 64)], shared = 128 }
}
pipeline @p(%x: tensor<Nxf32>, %m: tensor<Nx?xf32>, g: f32 = 5.0) -> (%y: tensor<Nxf32>, %z: tensor<Nxf32>, %w: tensor<Nxf32>) {
  %y = @scale(%x) {gain = 3.0}
  %z = @scale(%x) {gain = g * f32(N), n = 7, use = false}
  %w = @alone(%m) {gain = 4}
}
"""

KERNELS = """
struct Params { float gain; int n; bool use; };
extern "C" __global__ void scale(const pipelink::TensorView* x, pipelink::TensorView* y, const void* params) {
  const Params& p = *static_cast<const Params*>(params);
  const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i >= y->num_elements()) return;
  const float v = static_cast<const float*>(x->data())[i];
  static_cast<float*>(y->data())[i] = p.use ? p.gain * v + p.n : p.gain + p.n;
}
extern "C" __global__ void alone(const pipelink::TensorView* x, pipelink::TensorView* y, const void* params) {
  const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i >= x->shape()[0]) return;
  float sum = 0;
  for (long long k = 0; k < x->shape()[1]; k++) sum += static_cast<const float*>(x->data())[i * x->stride()[0] + k];
  static_cast<float*>(y->data())[i] = *static_cast<const float*>(params) * sum;
}
"""


def program(folder: Path, block: str = "64") -> Path:
    (folder / "k.cu").write_text(KERNELS)
    (folder / "k.plir").write_text(PROGRAM.replace("BLOCK", block))
    return folder / "k.plir"


def test_views_and_attributes(device: EmulatingDriver, tmp_path: Path) -> None:
    p = pl.compile(program(tmp_path), target="cuda")
    for n in (300, 5, 300, 5, 300):
        x, m = np.arange(n, dtype=np.float32), np.arange(3 * n, dtype=np.float32).reshape(n, 3)
        out = p(x=x, m=m)
        np.testing.assert_array_equal(out.y, 3 * x + 3)
        np.testing.assert_array_equal(out.z, np.full(n, 5 * n + 7, np.float32))
        np.testing.assert_array_equal(out.w, 4 * m.sum(1))


def test_views_are_pointed_anew(device: EmulatingDriver, cupy: Any, tmp_path: Path) -> None:
    """Arrays at other addresses, with and without a graph; nothing but the views is told."""
    p = pl.compile(program(tmp_path), target="cuda")
    x, m = np.arange(70, dtype=np.float32), np.ones((70, 2), np.float32)
    kept = []
    for k in range(5):
        a, b = cupy.ndarray(device, x + k), cupy.ndarray(device, m + k)
        kept.append((a, b))
        out = p(x=a, m=b)
        np.testing.assert_array_equal(device.to_host(out.y), 3 * (x + k) + 3)
        np.testing.assert_array_equal(device.to_host(out.w), np.full(70, 8 * (k + 1), np.float32))
    assert any(e[0] == "replay" for e in device.log)
    assert not any(e[0] == "repoint" for e in device.log)


def test_launch_sizes(device: EmulatingDriver, tmp_path: Path) -> None:
    p = pl.compile(program(tmp_path), target="cuda")
    p(x=np.ones(300, np.float32), m=np.ones((300, 1), np.float32))
    recipe = next(iter(p.executable._recipes.values()))
    # The three do not depend on each other: which of them goes first is the planner's choice.
    assert sorted((i.launch.grid, i.launch.block, i.launch.shared) for i in recipe.issued) == [
        ((3, 1, 1), (128, 1, 1), 0), ((3, 1, 1), (128, 1, 1), 0), ((5, 1, 1), (64, 1, 1), 128)]


def test_nothing_to_compute(device: EmulatingDriver, tmp_path: Path) -> None:
    out = pl.compile(program(tmp_path), target="cuda")(x=np.ones(0, np.float32), m=np.ones((0, 4), np.float32))
    assert [a.shape for a in out] == [(0,)] * 3
    assert not any(e[0] == "launch" for e in device.log)


@pytest.mark.parametrize(("block", "message"), [("2048", "1 to 1024 are possible"), ("0", "1 to 1024 are possible"), ("N - 400", "is -100")])
def test_a_launch_that_cannot_be(device: EmulatingDriver, tmp_path: Path, block: str, message: str) -> None:
    p = pl.compile(program(tmp_path, block), target="cuda")
    for _ in range(2):
        with pytest.raises(pl.ExecutionError, match=message) as caught:
            p(x=np.ones(300, np.float32), m=np.ones((300, 1), np.float32))
        assert caught.value.diagnostics[0].code == "PL4501"
        assert caught.value.diagnostics[0].span.line == 6
