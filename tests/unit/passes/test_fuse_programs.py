"""Programs that people write as several operators: which become one, and what the ledger says of those that do not."""
from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import ndimage, special

from pipelink_ir.backends.cpu.executable import load as load_cpu
from pipelink_ir.backends.loops.gpu.build import build_gpu
from pipelink_ir.backends.loops.print import program_text
from pipelink_ir.backends.reference.executable import load as load_reference
from pipelink_ir.grammar import parse, print_module
from pipelink_ir.ir.diagnostics import Report
from pipelink_ir.ir.nodes import Module, Node, Scoped
from pipelink_ir.ir.targets import Arch
from pipelink_ir.passes.infer.operator import typed_operator
from pipelink_ir.passes.ledger import ledger
from pipelink_ir.passes.manager import parse_passes, run_passes
from pipelink_ir.passes.scheduling.derivation import derivation
from pipelink_ir.passes.scheduling.gpu_place import gpu_plan

ROOT = Path(__file__).resolve().parents[3]
CASES = ROOT / "tests" / "cases"
BEFORE = "resolve,infer-types,check-contracts,flatten,simplify"

OPERATORS = """
import std.nn
op @bias(%x: tensor<...xKxT>, %b: tensor<Kxf32>) -> (%y: tensor<...xKxT>) { memory { dtypes = [f16, f32] } compute { %y[..., k] = %x[..., k] + %b[k] } }
op @mm(%x: tensor<MxKxT>, %w: tensor<KxNxT>) -> (%y: tensor<MxNxf32>) { memory { dtypes = [f16, f32] } compute { %y[m, n] = sum[k < K](%x[m, k] * %w[k, n]) } }
op @row_mean(%x: tensor<NxKxf32>) -> (%m: tensor<Nxf32>) { compute { %m[n] = mean[k < K](%x[n, k]) } }
op @minus(%x: tensor<NxKxf32>, %m: tensor<Nxf32>) -> (%y: tensor<NxKxf32>) { compute { %y[n, k] = %x[n, k] - %m[n] } }
op @square(%x: tensor<...xf32>) -> (%y: tensor<...xf32>) { compute { %y[...] = %x[...] ** 2 } }
op @by_deviation(%x: tensor<NxKxf32>, %v: tensor<Nxf32>) -> (%y: tensor<NxKxf32>) { compute { %y[n, k] = %x[n, k] * rsqrt(%v[n] + 1e-5) } }
op @affine(%x: tensor<NxKxf32>, %g: tensor<Kxf32>, %b: tensor<Kxf32>) -> (%y: tensor<NxKxf32>) { compute { %y[n, k] = %x[n, k] * %g[k] + %b[k] } }
op @max0(%x: tensor<...xf32>) -> (%y: tensor<...xf32>) { compute { %y[...] = max(%x[...], 0) } }
op @min6(%x: tensor<...xf32>) -> (%y: tensor<...xf32>) { compute { %y[...] = min(%x[...], 6) } }
op @blur5(%x: tensor<HxWxf32>) -> (%y: tensor<HxWxf32>) { memory { border = reflect } compute { %y[h, w] = mean[i < 5, j < 5](%x[h + i - 2, w + j - 2]) } }
op @turn(%x: tensor<HxWxf32>) -> (%y: tensor<WxHxf32>) { compute { %y[w, h] = %x[h, w] } }
op @total(%x: tensor<HxWxf32>) -> (%y: tensor<f32>) { compute { %y = sum[h < H, w < W](%x[h, w]) } }
op @less(%x: tensor<HxWxf32>, %s: tensor<f32>) -> (%y: tensor<HxWxf32>) { compute { %y[h, w] = %x[h, w] - %s } }
op @columns(%x: tensor<HxWxf32>) -> (%y: tensor<HxWxf32>) { compute { %m[w] = max[h < H](%x[h, w])  %y[h, w] = exp(%x[h, w] - %m[w]) } }
op @costly(%x: tensor<...xf32>) -> (%y: tensor<...xf32>) { compute { %y[...] = sin(exp(tanh(%x[...]))) + cos(log(1 + abs(%x[...]))) } }
op @lookup(%x: tensor<NxKxf32>, %at: tensor<Jxi32>) -> (%y: tensor<JxKxf32>) { memory { border = replicate } compute { %y[j, k] = %x[%at[j], k] } }
"""


def passes(text: str, which: str) -> Module:
    return run_passes(parse(text, "<test>"), parse_passes(which), Report())


def program(inputs: str, results: str, body: str) -> str:
    return f"{OPERATORS}pipeline @p({inputs}) -> ({results}) {{ {body} }}"


def fused(text: str, options: str = "") -> Module:
    return passes(text, f"{BEFORE},fuse{options}")


def nodes(module: Module) -> list[Node]:
    return [n for n in module.pipelines[0].nodes if isinstance(n, Node)]


def told(module: Module) -> list[str]:
    return [f"{e.kind}: {e.reason}" for e in ledger(module)]


LAYER = "%x: tensor<{n}x{k}xf32>, %g: tensor<{k}xf32>, %b: tensor<{k}xf32>"
ONE = {
    "relu6 of primitives": ("%x: tensor<{n}x{k}xf32>", "%y: tensor<{n}x{k}xf32>", "%a = @max0(%x)  %y = @min6(%a)"),
    "bias and gelu": ("%x: tensor<{n}x{k}xf32>, %b: tensor<{k}xf32>", "%y: tensor<{n}x{k}xf32>", "%a = @bias(%x, %b)  %y = @std.nn.gelu_erf(%a)"),
    "layer norm": (LAYER, "%y: tensor<{n}x{k}xf32>", "%y = @std.nn.layer_norm(%x, %g, %b)"),
    "layer norm of operators": (LAYER, "%y: tensor<{n}x{k}xf32>", """%m = @row_mean(%x)  %c = @minus(%x, %m)  %q = @square(%c)
        %v = @row_mean(%q)  %r = @by_deviation(%c, %v)  %y = @affine(%r, %g, %b)"""),
    "layer norm, then softmax": (LAYER, "%y: tensor<{n}x{k}xf32>", "%a = @std.nn.layer_norm(%x, %g, %b)  %y = @std.nn.softmax(%a)"),
    "product, bias, gelu": ("%x: tensor<{n}x64xf32>, %w: tensor<64x{k}xf32>, %b: tensor<{k}xf32>", "%y: tensor<{n}x{k}xf32>",
                            "%a = @mm(%x, %w)  %c = @bias(%a, %b)  %y = @std.nn.gelu_erf(%c)"),
    "product of f16, bias, gelu": ("%x: tensor<{n}x64xf16>, %w: tensor<64x{k}xf16>, %b: tensor<{k}xf32>", "%y: tensor<{n}x{k}xf32>",
                                   "%a = @mm(%x, %w)  %c = @bias(%a, %b)  %y = @std.nn.gelu_erf(%c)"),
    "pointwise, then a transposition": ("%x: tensor<{n}x{k}xf32>", "%y: tensor<{k}x{n}xf32>", "%a = @costly(%x)  %y = @turn(%a)"),
    "pointwise, then a sum of all": ("%x: tensor<{n}x{k}xf32>", "%y: tensor<f32>", "%a = @costly(%x)  %y = @total(%a)"),
}


@pytest.mark.parametrize("sizes", [("N", "K"), ("4096", "1024")], ids=["symbolic", "static"])
@pytest.mark.parametrize("name", ONE)
def test_is_one_operator(name: str, sizes: tuple[str, str]) -> None:
    text = program(*(t.replace("{n}", sizes[0]).replace("{k}", sizes[1]) for t in ONE[name]))
    module = fused(text)
    assert len(nodes(module)) == 1, told(module)
    printed = print_module(module)
    again = passes(printed, "resolve,infer-types")
    assert print_module(again) == printed
    assert told(again) == told(module)


@pytest.mark.parametrize(("name", "op"), [("edge_gamma", "sobel_3x3.gamma_correct"), ("preprocess", "resize_bilinear.normalize.to_tensor"),
                                          ("depthwise", "depthwise_conv3x3.relu6"), ("rows", "layer_norm.softmax.relu6")])
def test_case_is_one_operator(name: str, op: str) -> None:
    module = fused((CASES / f"{name}.plir").read_text(encoding="utf-8"))
    assert [n.op for n in nodes(module)] == [op]


def test_a_chain_of_blurs_says_what_both_choices_move() -> None:
    module = fused(program("%x: tensor<1080x1920xf32>", "%y: tensor<1080x1920xf32>", "%a = @blur5(%x)  %b = @blur5(%a)  %y = @blur5(%b)"))
    image = 1080 * 1920 * 4
    assert [n.op for n in nodes(module)] == ["blur5.blur5.blur5"]
    # Two pictures, and what tiles read around themselves: 12 rows and columns more than 32 and 128.
    around = 2 * image + image * ((32 + 12) * (128 + 12) / (32 * 128) - 1)
    assert any(f"{round(around)} bytes instead of {6 * image}" in t for t in told(module)), told(module)
    small = fused(program("%x: tensor<HxWxf32>", "%y: tensor<HxWxf32>", "%a = @blur5(%x)  %b = @blur5(%a)  %y = @blur5(%b)"))
    x = np.random.default_rng(3).random((9, 11))
    want = x
    for _ in range(3):
        want = ndimage.uniform_filter(want, 5, mode="reflect")
    for load in (load_reference, load_cpu):
        np.testing.assert_allclose(load(small, "p")({"x": x.astype(np.float32)})["y"], want, rtol=1e-5)


def test_blurs_by_tiles_are_one_operator_and_one_kernel() -> None:
    text = (ROOT / "benchmarks" / "models" / "blurs.plir").read_text(encoding="utf-8")
    head, _, body = text.partition("pipeline @blurs")
    module = run_passes(parse(head + "pipeline @blurs" + body.replace("NxHxWxC", "1x1080x1920x1"), "blurs"), parse_passes("cuda"), Report())
    node, = nodes(module)
    op = next(o for o in module.operators if o.name == node.op)
    assert len(build_gpu(typed_operator(op), Arch("cuda", 90)).kernels) == 1
    typed, stored = derivation(typed_operator(op), "cuda")
    way, = gpu_plan(typed, stored).tiles.values()
    # The picture is read once with what tiles read around themselves, and written once; the table is read once.
    image, (rows, columns) = 1080 * 1920 * 4, way.tile
    moved = image * (rows + 12) * (columns + 12) / (rows * columns) + image + 5 * 5 * 4
    assert node.reason is not None
    assert f"{round(moved)} bytes instead of {6 * image + 3 * 100}" in node.reason


def test_what_the_schedule_stores_saves_nothing() -> None:
    # A wrap reads far outside of a tile, and on a CPU there are no tiles: each picture goes to memory.
    chain = "%x: tensor<1080x1920xf32>", "%y: tensor<1080x1920xf32>", "%a = @around(%x)  %y = @around(%a)"
    ops = """op @around(%x: tensor<HxWxf32>) -> (%y: tensor<HxWxf32>) { memory { border = BORDER }
      compute { %y[h, w] = sum[i < 5, j < 5](%x[h + i - 2, w + j - 2]) } }
    """
    for border, device, count in (("wrap", "cuda", 2), ("reflect", "cuda", 1), ("reflect", "cpu", 2)):
        text = program(*chain).replace("pipeline @p", ops.replace("BORDER", border) + "pipeline @p")
        module = passes(text, f"resolve,infer-types,flatten,simplify,fuse{{device={device}}}")
        assert len(nodes(module)) == count, (border, device, told(module))
        if device == "cuda" and count == 2:
            assert any("'%a' would be stored all the same" in t for t in told(module))


def test_a_layer_norm_of_operators_is_right() -> None:
    inputs, results, body = (t.replace("{n}", "N").replace("{k}", "K") for t in ONE["layer norm of operators"])
    r = np.random.default_rng(4)
    x, g, b = r.normal(3, 2, (5, 33)), r.normal(1, 1, 33), r.normal(0, 1, 33)
    want = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * g + b
    for load in (load_reference, load_cpu):
        got = load(fused(program(inputs, results, body)), "p")({n: a.astype(np.float32) for n, a in (("x", x), ("g", g), ("b", b))})["y"]
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_a_product_with_its_epilogue_is_right() -> None:
    inputs, results, body = (t.replace("{n}", "N").replace("{k}", "K") for t in ONE["product, bias, gelu"])
    r = np.random.default_rng(5)
    x, w, b = r.normal(0, 1, (7, 64)), r.normal(0, 0.2, (64, 9)), r.normal(0, 1, 9)
    z = x @ w + b
    for load in (load_reference, load_cpu):
        got = load(fused(program(inputs, results, body)), "p")({n: a.astype(np.float32) for n, a in (("x", x), ("w", w), ("b", b))})["y"]
        np.testing.assert_allclose(got, 0.5 * z * (1 + special.erf(z / np.sqrt(2))), rtol=1e-4, atol=1e-5)


# ---------------------------------------------------------------------------------------------------------------------- many nodes


def chains(count: int, length: int, shape: str) -> str:
    ops = ("max0", "min6", "square", "costly")
    body = "\n".join(f"%e{c}_{k + 1} = @{ops[(c + k) % 4]}(%e{c}_{k})" for c in range(count) for k in range(length))
    return program(", ".join(f"%e{c}_0: tensor<{shape}xf32>" for c in range(count)),
                   ", ".join(f"%e{c}_{length}: tensor<{shape}xf32>" for c in range(count)), body)


def test_eight_chains_of_eight_are_one_operator() -> None:
    module = fused(chains(8, 8, "256x256"))
    assert len(nodes(module)) == 1
    node = nodes(module)[0]
    assert len(node.args) == 8
    assert sorted(e.name for e in node.results) == [f"e{c}_8" for c in range(8)]
    inside = [f"e{c}_{k}" for c in range(8) for k in range(1, 8)]
    assert node.reason is not None
    assert all(f"'%{e}'" in node.reason for e in inside)


def test_large_chains_stay_apart_and_small_ones_share_a_launch() -> None:
    assert len(nodes(fused(chains(4, 2, "8192x8192")))) == 4
    assert len(nodes(fused(chains(4, 2, "64x64")))) == 1
    # Of another shape there is no launch to share.
    mixed = program("%a: tensor<64x64xf32>, %b: tensor<64x65xf32>", "%c: tensor<64x64xf32>, %d: tensor<64x65xf32>", "%c = @max0(%a)  %d = @max0(%b)")
    assert len(nodes(fused(mixed))) == 2


def test_what_waits_for_another_shares_no_launch_with_it() -> None:
    # %d needs %c by way of a product, which goes with neither.
    text = program("%a: tensor<64x64xf32>, %w: tensor<64x64xf32>", "%d: tensor<64x64xf32>", """%c = @columns(%a)  %m = @mm(%c, %w)  %r = @columns(%m)
        %n = @mm(%r, %w)  %d = @columns(%n)""")
    module = fused(text)
    assert [n.op.split(".")[0] for n in nodes(module)] == ["columns", "mm", "columns", "mm", "columns"]
    assert all("product of matrices" in t for t in told(module))


def test_a_graph_of_many_nodes_is_fused_to_its_limits() -> None:
    module = fused(chains(16, 125, "256x256"))
    count = [n.reason.count("'%e") for n in nodes(module) if n.reason is not None]
    assert len(nodes(module)) <= 2000 / 100
    assert sum(count) >= 16 * 120


# ------------------------------------------------------------------------------------------------------------------ several readers


def test_readers_of_one_edge_over_one_box_are_one_operator() -> None:
    module = fused(program("%x: tensor<4096x4096xf32>", "%y: tensor<4096x4096xf32>, %z: tensor<4096x4096xf32>", "%y = @max0(%x)  %z = @square(%x)"))
    assert len(nodes(module)) == 1
    assert len(nodes(module)[0].args) == 1
    assert any("'%x' is read once for @max0 and @square" in t for t in told(module))


def test_a_cheap_producer_is_computed_in_each_of_readers_that_stay_apart() -> None:
    text = program("%x: tensor<4096x1024xf32>", "%y: tensor<1024x4096xf32>, %z: tensor<f32>", "%a = @max0(%x)  %y = @turn(%a)  %z = @total(%a)")
    module = fused(text)
    assert sorted(n.op for n in nodes(module)) == ["max0.total", "max0.turn"]
    assert any("'%a' stays inside: computed in each of its 2 readers" in t for t in told(module))
    x = np.random.default_rng(6).integers(-9, 9, (5, 7)).astype(np.float32)
    small = fused(program("%x: tensor<NxKxf32>", "%y: tensor<KxNxf32>, %z: tensor<f32>", "%a = @max0(%x)  %y = @turn(%a)  %z = @total(%a)"))
    for load in (load_reference, load_cpu):
        out = load(small, "p")({"x": x})
        assert (out["y"] == np.maximum(x, 0).T).all()
        assert out["z"] == np.maximum(x, 0).sum()


def test_what_is_read_with_two_borders_keeps_both() -> None:
    text = OPERATORS + """
    op @left(%x: tensor<HxWxf32>) -> (%y: tensor<HxWxf32>) { memory { border = wrap } compute { %y[h, w] = %x[h, w - 1] } }
    op @right(%x: tensor<HxWxf32>) -> (%y: tensor<HxWxf32>) { memory { border = constant(7) } compute { %y[h, w] = %x[h, w + 1] } }
    op @sum3(%a: tensor<HxWxf32>, %b: tensor<HxWxf32>, %c: tensor<HxWxf32>) -> (%y: tensor<HxWxf32>) { compute { %y[h, w] = %a[h, w] + 10 * %b[h, w] + 100 * %c[h, w] } }
    pipeline @p(%x: tensor<HxWxf32>) -> (%y: tensor<HxWxf32>) { %m = @square(%x)  %l = @left(%m)  %r = @right(%m)  %y = @sum3(%m, %l, %r) }"""
    module = fused(text)
    assert len(nodes(module)) == 1
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    q = x ** 2
    want = q + 10 * np.roll(q, 1, 1) + 100 * np.pad(q[:, 1:], ((0, 0), (0, 1)), constant_values=7)
    for load in (load_reference, load_cpu):
        assert (load(module, "p")({"x": x})["y"] == want).all()


# ---------------------------------------------------------------------------------------------------------------------- not fused


@pytest.mark.parametrize(("inputs", "results", "body", "why"), [
    ("%x: tensor<512x64xf32>, %w: tensor<64x512xf32>", "%y: tensor<512x512xf32>", "%a = @mm(%x, %w)  %y = @std.nn.softmax(%a)", "product of matrices"),
    ("%x: tensor<512x64xf32>, %w: tensor<64x512xf32>, %v: tensor<512x64xf32>", "%y: tensor<512x64xf32>", "%a = @mm(%x, %w)  %y = @mm(%a, %v)", "product"),
    ("%x: tensor<512x512xf32>", "%y: tensor<512x512xf32>", "%a = @std.nn.softmax(%x)  %y = @columns(%a)", "blocks that share what is read would be only 1"),
    ("%x: tensor<512x512xf32>", "%y: tensor<512x512xf32>", "%s = @total(%x)  %y = @less(%x, %s)", "blocks that share what is read would be only 1"),
    ("%x: tensor<4096x4096xf32>", "%y: tensor<4096x4096xf32>", "%a = @std.nn.softmax(%x)  %y = @turn(%a)", "it would not pay"),
    ("%x: tensor<1024x64xf32>, %at: tensor<65536xi32>", "%y: tensor<65536x64xf32>", "%a = @costly(%x)  %y = @lookup(%a, %at)", "times the operations"),
])
def test_stays_apart_and_says_why(inputs: str, results: str, body: str, why: str) -> None:
    module = fused(program(inputs, results, body))
    assert len(nodes(module)) == 2, told(module)
    entries = [t for t in told(module) if t.startswith("declined: ")]
    assert len(entries) == 1
    assert why in entries[0]
    again = passes(print_module(module), "resolve,infer-types")
    assert told(again) == told(module)


def test_what_depends_on_parameters_alone_stays_alone() -> None:
    text = program("%x: tensor<NxKxf32>, param %b: tensor<Kxf32>", "%y: tensor<NxKxf32>", "%c = @costly(%b)  %y = @bias(%x, %c)")
    module = fused(text)
    assert len(nodes(module)) == 2
    assert any("parameters alone" in t for t in told(module))


def test_what_writes_into_an_array_of_the_caller_comes_after_all_that_read_it() -> None:
    text = OPERATORS + """op @over(%x: tensor<HxWxf32>) -> (%y: tensor<HxWxf32>) { memory { %y { inplace = %x } } compute { %y[h, w] = %x[h, w] + 1 } }
    pipeline @p(%x: tensor<HxWxf32>) -> (%y: tensor<HxWxf32>, %z: tensor<HxWxf32>) { %b = @blur5(%x)  %y = @over(%x)  %t = @max0(%y)  %z = @square(%b) }"""
    module = passes(text, f"{BEFORE},fuse")
    at = {e.name: k for k, n in enumerate(nodes(module)) for e in n.results}
    assert at["z"] < at["y"]
    assert [n.op for n in nodes(module)] == ["blur5.square", "over"]


@pytest.mark.parametrize(("a", "b", "same"), [
    ("compile { accuracy = exact }", "", True), ("compile { accuracy = exact }", "compile { accuracy = exact }", True),
    ("compile { edges = free }", "", True), ("compile { edges = free }", "compile { edges = free }", True), ("compile { fast_math = true }", "", False)])
def test_terms_of_compilation(a: str, b: str, same: bool) -> None:
    text = f"""op @f(%x: tensor<Nxf16>) -> (%y: tensor<Nxf16>) {{ {a} compute {{ %y[n] = %x[n] / 3 }} }}
    op @g(%x: tensor<Nxf16>) -> (%y: tensor<Nxf32>) {{ {b} compute {{ %y[n] = %x[n] * 3 }} }}
    pipeline @p(%x: tensor<Nxf16>) -> (%y: tensor<Nxf32>) {{ %m = @f(%x)  %y = @g(%m) }}"""
    module = fused(text)
    assert (len(nodes(module)) == 1) is same
    x = np.array([1, 2, 5], np.float16)
    wanted = (x / np.float32(3)) * 3 if "edges" in a else (x / np.float16(3)).astype(np.float32) * 3
    assert load_cpu(module, "p")({"x": x})["y"].tolist() == wanted.tolist()
    assert any("'%m' may keep more" in t for t in told(module)) is ("edges" in a)
    written = [s for o in module.operators for s in o.sections if s.name == "compile"]
    assert bool(written) is bool(a and (b or "edges" not in a))
    if "exact" in a:
        # For the whole operator where both ask for it, else for the definition of the one that does.
        assert [isinstance(e, Scoped) for s in written for e in s.entries] == [not b]
        assert typed_operator(module.operators[0]).exact is bool(b)


def test_exact_definitions_stay_exact_beside_others() -> None:
    """A sum of products that is added by fused multiply-adds, then rounded codes of it: neither takes on the accuracy of the other."""
    text = """op @sum3(%x: tensor<NxKxf32>, %w: tensor<Kxf32>) -> (%y: tensor<Nxf32>) { compute { %y[n] = sum[k < K](%x[n, k] * %w[k]) } }
    pipeline @p(%x: tensor<NxKxf32>, %w: tensor<Kxf32>) -> (%q: tensor<Nxi8>) { %s = @sum3(%x, %w)  %q = @std.quantize(%s) {scale = 0.1} }"""
    module = passes(text, f"{BEFORE},fuse")
    assert len(nodes(module)) == 1
    op = typed_operator(module.operators[0])
    assert (op.exact, set(op.exactly)) == (False, {"y"})
    again = passes(print_module(module), "resolve,infer-types")
    assert typed_operator(again.operators[0]).exactly == op.exactly
    assert "exact_div(" in program_text(build_gpu(op))
    x, w = np.float32([[0.35, 1, -3], [0.25, 0, 12.65]]), np.float32([1, 0.3, 1])
    wanted = [np.clip(np.round((x[n].astype(np.float64) @ w.astype(np.float64)).astype(np.float32) / np.float32(0.1)), -128, 127) for n in (0, 1)]
    for load in (load_reference, load_cpu):
        assert load(module, "p")({"x": x, "w": w})["q"].tolist() == wanted


@pytest.mark.parametrize(("text", "whole"), [("%y[n] = %x[n] / 3", False), ("%y[n] = sum[k < 2](%x[n] / (k + 3))", True)])
def test_a_definition_with_a_reduction_makes_its_whole_operator_exact(text: str, whole: bool) -> None:
    op = typed_operator(passes(f"""op @f(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) {{ compile {{ %y {{ accuracy = exact }} }} compute {{ {text} }} }}
    pipeline @p(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) {{ %y = @f(%x) }}""", "resolve,infer-types").operators[0])
    assert op.exact is whole
    assert bool(op.exactly) is not whole


def test_an_answer_to_nothing_is_kept_beside_operators_without_one() -> None:
    # What the first says of reductions over nothing must not become true of the second.
    text = """op @f(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { semantic { empty = zero } compute { %y[n] = %x[n] + 1 } }
    op @g(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { compute { %y[n] = max[i < 3 where %x[n] > i](%x[n] * i) } }
    pipeline @p(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { %m = @f(%x)  %y = @g(%m) }"""
    for which in (BEFORE, f"{BEFORE},fuse"):
        for load in (load_reference, load_cpu):
            assert load(passes(text, which), "p")({"x": np.array([-5, 1], np.float32)})["y"].tolist() == [-np.inf, 2]


def test_cpu_and_gpu_decide_by_numbers_of_their_own() -> None:
    # 4 MB go through a GPU faster than it launches; a CPU takes long for them.
    text = chains(2, 1, "512x512")
    assert len(nodes(fused(text))) == 1
    assert len(nodes(fused(text, "{device=cpu}"))) == 2
    assert len(nodes(fused(text, "{device=cuda}"))) == 1
    head, pipeline = text.split("pipeline")
    placed = head + "pipeline" + pipeline.replace("{", "on cpu {", 1)
    assert len(nodes(fused(placed))) == 2
