"""What policies lower compiles for every architecture: floats, codes of every scheme and granularity, codes of four bits, mixed graphs, and what makes codes."""
from __future__ import annotations

from functools import cache

import pytest

from pipelink_ir.backends.cuda.compile import compile_units, lowered
from pipelink_ir.backends.cuda.emit import emit_unit
from pipelink_ir.grammar import parse
from pipelink_ir.ir.diagnostics import Report
from pipelink_ir.ir.nodes import Module, Node
from pipelink_ir.ir.targets import parse_arch
from pipelink_ir.passes.manager import parse_passes, run_passes
from tests.unit.cuda.test_architectures import ARCHITECTURES

CLAUSES = {
    "f16": "dtype = f16", "bf16": "dtype = bf16", "plain": "dtype = f8e4m3, scheme = plain", "i8": "dtype = i8, ranges = dynamic",
    "affine": "dtype = u8, scheme = affine, ranges = dynamic", "tensor": "dtype = i8, granularity = tensor, ranges = dynamic",
    "block": "dtype = i8, granularity = block(32), ranges = dynamic", "f8": "dtype = f8e4m3, ranges = dynamic", "f8e5m2": "dtype = f8e5m2, ranges = dynamic",
    "i4": "dtype = f16, weights = i4", "i4i8": "dtype = i8, weights = i4, granularity = block(32), ranges = dynamic", "tile": "dtype = f16, block = [64, 64, 32]",
}
"""A policy for each operator of that name."""

OPERATORS = """op @linear_NAME(%x: tensor<MxKxT>, %w: tensor<KxNxT>, %b: tensor<NxT>) -> (%y: tensor<MxNxT>) {
  memory { dtypes = [f8e4m3, f16, bf16, f32] }
  downgrade ARCH { CLAUSE, force = true }
  compute { %y[m, n] = sum[k < K](%x[m, k] * %w[k, n]) + %b[n] }
}
op @relu_NAME(%x: tensor<MxNxT>) -> (%y: tensor<MxNxT>) { compute { %y[m, n] = max(%x[m, n], 0) } }
"""

NETS = """op @depthwise(%x: tensor<NxHxWxCxT, NHWC>, %k: tensor<3x3xCxT>) -> (%y: tensor<NxHxWxCxT, NHWC>) {
  memory { dtypes = [f16, f32], %x { border = constant(0) } }
  downgrade ARCH { dtype = i8, ranges = dynamic, force = true }
  compute { %y[n, h, w, c] = sum[i < 3, j < 3](%x[n, h + i - 1, w + j - 1, c] * %k[i, j, c]) }
}
op @point(%x: tensor<NxHxWxCxT, NHWC>, %k: tensor<CxOxT>) -> (%y: tensor<NxHxWxOxT, NHWC>) {
  memory { dtypes = [f16, f32] }
  downgrade ARCH { dtype = i8, ranges = dynamic, force = true }
  compute { %y[n, h, w, o] = sum[c < C](%x[n, h, w, c] * %k[c, o]) }
}
op @pool(%x: tensor<NxHxWxCxT, NHWC>) -> (%y: tensor<Nx(H floordiv 2)x(W floordiv 2)xCxT, NHWC>) {
  downgrade ARCH { dtype = i8, ranges = dynamic, force = true }
  compute { %y[n, h, w, c] = max(max(%x[n, 2*h, 2*w, c], %x[n, 2*h, 2*w + 1, c]), max(%x[n, 2*h + 1, 2*w, c], %x[n, 2*h + 1, 2*w + 1, c])) }
}
op @ffn(%x: tensor<MxKxT>, %w: tensor<KxLxT>, %v: tensor<LxKxT>) -> (%y: tensor<MxKxT>) {
  downgrade ARCH { precision = mixed, up = i8, down = f16, ranges = dynamic, force = true }
  graph { %h = @product(%x, %w) as up  %a = @relu(%h)  %y = @product(%a, %v) as down }
}
op @product(%x: tensor<MxKxT>, %w: tensor<KxNxT>) -> (%y: tensor<MxNxT>) { memory { dtypes = [f16, f32] } compute { %y[m, n] = sum[k < K](%x[m, k] * %w[k, n]) } }
op @relu(%x: tensor<MxNxT>) -> (%y: tensor<MxNxT>) { compute { %y[m, n] = max(%x[m, n], 0) } }
"""


def text(arch: str) -> str:
    """All operators with policies for an architecture, and a pipeline that calls them."""
    operators = "".join(OPERATORS.replace("NAME", name).replace("CLAUSE", clause) for name, clause in CLAUSES.items()) + NETS
    nodes, results = [], []
    for name in CLAUSES:
        nodes += [f"  %h_{name} = @linear_{name}(%x, %w, %b)", f"  %r_{name} = @relu_{name}(%h_{name})", f"  %y_{name} = @linear_{name}(%r_{name}, %w, %b)"]
        results.append(f"%y_{name}: tensor<Mx128xf32>")
    nodes += ["  %d = @depthwise(%img, %dk)", "  %p = @point(%d, %pk)", "  %t = @pool(%p)", "  %q = @depthwise(%t, %dl)", "  %f = @ffn(%x, %w, %w)"]
    results += ["%q: tensor<Nx(H floordiv 2)x(W floordiv 2)x64xf16, NHWC>", "%f: tensor<Mx128xf32>"]
    signature = ("%x: tensor<Mx128xf32>, param %w: tensor<128x128xf32>, param %b: tensor<128xf32>, %img: tensor<NxHxWx32xf16, NHWC>, "
                 "param %dk: tensor<3x3x32xf16>, param %dl: tensor<3x3x64xf16>, param %pk: tensor<32x64xf16>")
    return operators.replace("ARCH", arch) + f"pipeline @all({signature}) -> ({', '.join(results)}) {{\n" + "\n".join(nodes) + "\n}\n"


@cache
def module(sm: int) -> Module:
    arch = f"sm_{sm}"
    passes = f"resolve,infer-types,check-contracts,place-devices,push-policies{{arch={arch}}},flatten,lower-precision{{arch={arch},price=false}},simplify,fuse,derive,schedule"
    return run_passes(parse(text(arch), "lowered.plir"), parse_passes(passes), Report())


def test_every_policy_is_carried_out() -> None:
    reasons = [n.reason or "" for n in module(80).pipelines[0].nodes if isinstance(n, Node)]
    declined = [r for r in reasons if "declined: " in r and "lowered:" not in r and "into" not in r]
    assert not declined
    called = " ".join(n.op for n in module(80).pipelines[0].nodes if isinstance(n, Node))
    for name in CLAUSES:
        assert sum("lowered:" in r and f"linear_{name}'" in r for r in reasons) >= 1, (name, called)
    for word in ("depthwise_i8", "point_i8", "pool_i8", "product_i8", "product_f16", "quantize", "scale"):
        assert word in called, word


@pytest.mark.usefixtures("nvrtc")
@pytest.mark.parametrize("sm", ARCHITECTURES)
def test_everything_lowered_compiles(sm: int) -> None:
    m, arch = module(sm), parse_arch(f"sm_{sm}")
    operators = {o.name: o for o in m.operators}
    programs = [(lowered(operators[name], arch), operators[name]) for name in dict.fromkeys(n.op for n in m.pipelines[0].nodes if isinstance(n, Node))]
    unit = emit_unit(programs)
    assert arch is not None
    binary, = compile_units([unit], arch, quick=True)
    assert sorted(binary.usage) == sorted(k.symbol for k in unit.kernels)
    assert "warning" not in binary.log
    words = {"mma.sync.aligned.m8n8k16" if sm < 80 else "m16n8k32.row.col.s32", "m16n8k8.row.col.f32.f16" if sm < 80 else "m16n8k16.row.col.f32.f16"}
    assert all(w in binary.ptx for w in words)
