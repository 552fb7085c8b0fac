"""Reductions with few results are done in parts also where the edge that they were rounds to a narrow dtype inside a fused operator."""
from __future__ import annotations

import numpy as np
import pytest

import pipelink_ir as pl
from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.gpu.build import build_gpu
from pipelink_ir.ir.dtypes import I64
from pipelink_ir.ir.nodes import Node
from pipelink_ir.passes.infer.operator import typed_operator
from tests.emulated import NEEDS_COMPILER

TEXT = """op @pool(%x: tensor<NxHxWxCxT>) -> (%y: tensor<Nx(H floordiv 2)x(W floordiv 2)xCxT>) {
  compute { %y[n, h, w, c] = max(max(%x[n, 2*h, 2*w, c], %x[n, 2*h, 2*w + 1, c]), max(%x[n, 2*h + 1, 2*w, c], %x[n, 2*h + 1, 2*w + 1, c])) }
}
op @mean(%x: tensor<NxHxWxCxT>) -> (%y: tensor<NxCxT>) { semantic { empty = zero } compute { %y[n, c] = mean[h < H, w < W](%x[n, h, w, c]) } }
op @linear(%x: tensor<NxKxT>, %w: tensor<KxMxT>) -> (%y: tensor<NxMxT>) { compute { %y[n, j] = sum[k < K](%x[n, k] * %w[k, j]) } }
pipeline @p(%x: tensor<NxHxWx64xf16>, %w: tensor<64x8xf16>) -> (%y: tensor<Nx8xf16>) {
  %a = @pool(%x)
  %m = @mean(%a)
  %y = @linear(%m, %w)
}
"""


def test_a_mean_of_pictures_inside_an_operator_has_parts() -> None:
    compiled = pl.compile(TEXT, target="sm_90")
    called = {n.op for n in compiled.pipeline.nodes if isinstance(n, Node)}
    kernels = {k.name.partition(".")[2] for o in compiled.module.operators if o.name in called for k in build_gpu(typed_operator(o)).kernels}
    assert any(name.endswith("m.parts") for name in kernels), kernels


@NEEDS_COMPILER
@pytest.mark.parametrize("shape", [(2, 80, 96), (3, 7, 200), (1, 2, 2), (1, 1, 1)])
def test_its_values(shape: tuple[int, int, int]) -> None:
    r = np.random.default_rng(4)
    n, h, w = shape
    x, k = r.normal(size=(n, h, w, 64)).astype(np.float16), r.normal(size=(64, 8)).astype(np.float16)
    pooled = x[:, :h // 2 * 2, :w // 2 * 2].reshape(n, h // 2, 2, w // 2, 2, 64).max((2, 4))
    mean = pooled.astype(np.float64).mean((1, 2)).astype(np.float16) if pooled.size else np.zeros((n, 64), np.float16)
    want = mean.astype(np.float64) @ k.astype(np.float64)
    np.testing.assert_allclose(pl.compile(TEXT, target="cuda-emulated")(x=x, w=k).y, want, rtol=4e-3, atol=4e-3)


@NEEDS_COMPILER
@pytest.mark.parametrize(("shape", "blocks"), [((16, 4096), 64), ((2, 2, 2, 8192), 32), ((5000, 12), 59), ((3, 1000, 70), 1002)])
@pytest.mark.parametrize("kind", ["max", "mean", "argmax"])
def test_all_of_few_rows_has_many_blocks(shape: tuple[int, ...], blocks: int, kind: str) -> None:
    """A range of few places before a long one is cut as well, and what a part has is counted in terms."""
    sizes, names = "x".join(map(str, shape)), "abcd"[:len(shape)]
    ranges, out = ", ".join(f"{n} < {k}" for n, k in zip(names, shape, strict=True)), "i32" if kind == "argmax" else "f32"
    signature = f"(%x: tensor<{sizes}xf16>) -> (%y: tensor<{out}>)"
    text = (f"op @all{signature} {{ compute {{ %y = {kind}[{ranges}](%x[{', '.join(names)}]) }} }}\n"
            f"pipeline @main{signature} {{ %y = @all(%x) }}\n")
    compiled = pl.compile(text, target="cuda-emulated")
    kernel = build_gpu(typed_operator(compiled.module.operators[0])).kernels[0]
    if kind != "argmax":
        assert next(s.hi for s in kernel.body if isinstance(s, form.For)) == form.Const(blocks, I64)
    x = np.random.default_rng(7).normal(size=shape).astype(np.float16)
    want = getattr(x.astype(np.float64), kind)()
    np.testing.assert_allclose(float(compiled(x=x).y), float(want), rtol=0 if kind == "argmax" else 1e-6, atol=0 if kind == "argmax" else 1e-6)


TRACK = """op @track(%f: tensor<HxWx2xf32>, %box: tensor<2xf32>) -> (%y: tensor<2xf32>) {
  compute {
    %in[h, w] = f32(h) >= %box[0] and f32(w) < %box[1]
    %area     = sum[h < H, w < W](select(%in[h, w], 1.0, 0))
    %y[k]     = sum[h < H, w < W](select(%in[h, w], %f[h, w, k], 0)) / max(%area, 1)
  }
}
pipeline @p(%f: tensor<HxWx2xf32>, %box: tensor<2xf32>) -> (%y: tensor<2xf32>) { %y = @track(%f, %box) }
"""


def test_what_is_read_over_parts_is_read_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its extents are those that it had: nothing is looked for from how far the parts reach."""
    from pipelink_ir.grammar import parse, print_module
    from pipelink_ir.ir import prover
    from pipelink_ir.ir.diagnostics import Report
    from pipelink_ir.passes.manager import parse_passes, run_passes
    module = run_passes(parse(TRACK, "track.plir"), parse_passes("frontend,place-devices,flatten"), Report())
    asked, found = [], prover.bounds
    monkeypatch.setattr(prover, "bounds", lambda *a: asked.append(a) or found(*a))
    text = print_module(run_passes(module, parse_passes("derive"), Report()))
    assert "h.part <" in text
    assert "%in[h < H, w < W]" in " ".join(text.split())
    assert not asked
