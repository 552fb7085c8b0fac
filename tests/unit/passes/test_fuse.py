"""Fusion: which nodes become one operator, and that nothing but the number of kernels changes."""
from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipelink_ir.backends.cpu.executable import load as load_cpu
from pipelink_ir.backends.reference.executable import load as load_reference
from pipelink_ir.grammar import parse, print_module
from pipelink_ir.ir.diagnostics import Report
from pipelink_ir.ir.nodes import Module, Node
from pipelink_ir.passes.manager import parse_passes, run_passes

CASES = Path(__file__).resolve().parents[2] / "cases"
BEFORE = "resolve,infer-types,check-contracts,flatten,simplify"


def passes(text: str, which: str) -> Module:
    return run_passes(parse(text, "<test>"), parse_passes(which), Report())


def fused(text: str) -> Module:
    return passes(text, BEFORE + ",fuse")


def calls(module: Module) -> list[str]:
    return [n.op for n in module.pipelines[0].nodes if isinstance(n, Node)]


ELEMENTWISE = """
op @scale(%x: tensor<...xT>, by: f32 = 2.0) -> (%y: tensor<...xT>) { memory { dtypes = [f16, f32] } compute { %y[...] = by * %x[...] } }
op @add(%a: tensor<...xT>, %b: tensor<...xT>) -> (%y: tensor<...xT>) { memory { dtypes = [f16, f32] } compute { %y[...] = %a[...] + %b[...] } }
op @max0(%x: tensor<...xf32>) -> (%y: tensor<...xf32>) { compute { %y[...] = max(%x[...], 0) } }
op @min6(%x: tensor<...xf32>) -> (%y: tensor<...xf32>) { compute { %y[...] = min(%x[...], 6) } }
op @blur(%x: tensor<HxWxf32>) -> (%y: tensor<HxWxf32>) { memory { border = reflect } compute { %y[h, w] = mean[i < 3, j < 3](%x[h + i - 1, w + j - 1]) } }
"""


def test_three_primitives_become_one_operator() -> None:
    module = fused(ELEMENTWISE + "pipeline @p(%x: tensor<HxWxf32>) -> (%y: tensor<HxWxf32>) { %a = @max0(%x)  %b = @min6(%a)  %y = @scale(%b) }")
    assert calls(module) == ["max0.min6.scale"]


def test_case_programs_are_one_operator_each() -> None:
    for name, op in (("edge_gamma", "sobel_3x3.gamma_correct"), ("preprocess", "resize_bilinear.normalize.to_tensor"), ("depthwise", "depthwise_conv3x3.relu6")):
        assert calls(fused((CASES / f"{name}.plir").read_text(encoding="utf-8"))) == [op]


@pytest.mark.parametrize("name", sorted(p.stem for p in CASES.glob("*.plir") if p.stem != "assemble"))
def test_fused_equals_unfused_bit_for_bit(name: str) -> None:
    source = (CASES / f"{name}.plir").read_text(encoding="utf-8")
    with np.load(CASES / f"{name}.npz") as z:
        arrays = {k[3:]: z[k] for k in z.files if k.startswith("in.")}
    plain, one = passes(source, BEFORE), fused(source)
    for load in (load_reference, load_cpu):
        a, b = (load(m, m.pipelines[0].name)(arrays) for m in (plain, one))
        assert a.keys() == b.keys()
        for key in a:
            assert a[key].dtype == b[key].dtype
            assert a[key].tobytes() == b[key].tobytes(), (load.__module__, key)


def test_an_edge_of_f16_rounds_although_it_is_fused_away() -> None:
    # 1 + 2^-11 is no f16: the edge drops it, so that the difference to 1 is 0. Kept in f32 it would be 2^-11.
    text = ELEMENTWISE + """op @less(%x: tensor<...xf16>) -> (%y: tensor<...xf32>) { compute { %y[...] = %x[...] - 1 } }
    pipeline @p(%x: tensor<Nxf16>, %d: tensor<Nxf16>) -> (%y: tensor<Nxf32>) { %s = @add(%x, %d)  %y = @less(%s) }"""
    module = fused(text)
    assert calls(module) == ["add.less"]
    arrays = {"x": np.ones(3, np.float16), "d": np.full(3, 2.0**-11, np.float16)}
    for load in (load_reference, load_cpu):
        assert load(module, "p")(arrays)["y"].tolist() == [0.0, 0.0, 0.0]


def test_a_border_holds_at_the_edge_of_what_was_fused_away() -> None:
    text = ELEMENTWISE + "pipeline @p(%x: tensor<HxWxf32>) -> (%y: tensor<HxWxf32>) { %a = @blur(%x)  %y = @blur(%a) }"
    module = fused(text)
    assert calls(module) == ["blur.blur"]
    x = np.random.default_rng(7).random((5, 4), np.float32)

    def blur(a: np.ndarray) -> np.ndarray:
        p = np.pad(a.astype(np.float64), 1, mode="symmetric")
        return sum(p[i:i + a.shape[0], j:j + a.shape[1]] for i in range(3) for j in range(3)) / 9

    for load in (load_reference, load_cpu):
        np.testing.assert_allclose(load(module, "p")({"x": x})["y"], blur(blur(x)), rtol=1e-6)


def test_results_that_others_read_stay_results() -> None:
    text = ELEMENTWISE + "pipeline @p(%x: tensor<Nxf32>) -> (%a: tensor<Nxf32>, %b: tensor<Nxf32>) { %a = @max0(%x)  %b = @scale(%a) }"
    module = fused(text)
    assert calls(module) == ["max0.scale"]
    out = load_cpu(module, "p")({"x": np.array([-1, 2], np.float32)})
    assert out["a"].tolist() == [0, 2]
    assert out["b"].tolist() == [0, 4]


def test_a_producer_with_two_readers_makes_one_operator_of_all() -> None:
    text = ELEMENTWISE + """pipeline @p(%x: tensor<Nxf32>) -> (%a: tensor<Nxf32>, %b: tensor<Nxf32>) {
      %m = @max0(%x)  %a = @scale(%m)  %b = @min6(%m) }"""
    module = fused(text)
    assert calls(module) == ["max0.scale.min6"]
    x = np.array([-1, 2, 9], np.float32)
    for load in (load_reference, load_cpu):
        out = load(module, "p")({"x": x})
        assert out["a"].tolist() == [0, 4, 18]
        assert out["b"].tolist() == [0, 2, 6]


def test_the_same_edge_is_one_operand() -> None:
    text = ELEMENTWISE + "pipeline @p(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { %m = @max0(%x)  %y = @add(%x, %m) }"
    module = fused(text)
    assert calls(module) == ["max0.add"]
    op = next(o for o in module.operators if o.name == "max0.add")
    assert [o.name for o in op.operands] == ["x"]
    assert load_cpu(module, "p")({"x": np.array([-1, 2], np.float32)})["y"].tolist() == [-1, 4]


@pytest.mark.parametrize(("clause", "why"), [
    ("compile { fast_math = true }", "other functions"), ("compile { library = [cublaslt, generated] }", "a library"),
    ("downgrade sm_75 unsupported", "a policy of its own"), ("schedule { %y { place = buffer } }", "a schedule of its own")])
def test_operators_with_terms_of_their_own_stay_alone(clause: str, why: str) -> None:
    text = ELEMENTWISE + f"""op @own(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) {{ {clause} compute {{ %y[n] = %x[n] / 3 }} }}
    pipeline @p(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) {{ %m = @max0(%x)  %y = @own(%m) }}"""
    assert len(calls(fused(text))) == 2, why


def test_after_keeps_nodes_apart() -> None:
    text = ELEMENTWISE + """pipeline @p(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>, %z: tensor<Nxf32>) {
      %m = @max0(%x)  %y = @scale(%m)  %z = @min6(%x) after %m }"""
    module = fused(text)
    # What waits for %m may go together with what reads it, not with what makes it.
    assert calls(module) == ["max0.1", "scale.min6"]
    made, waits = (n for n in module.pipelines[0].nodes if isinstance(n, Node))
    assert [e.name for e in made.results] == [e.name for e in waits.after] == ["m"]


def test_run_time_attributes_and_dimensions_of_both_survive() -> None:
    text = """op @take(%x: tensor<Nxf32>, M: dim, by: f32) -> (%y: tensor<Mxf32>) { where M <= N compute { %y[m] = by * %x[m] } }
    op @shift(%x: tensor<Nxf32>, by: f32) -> (%y: tensor<Nxf32>) { compute { %y[n] = %x[n] + by } }
    pipeline @p(%x: tensor<Kxf32>) -> (%y: tensor<(K floordiv 2)xf32>) { %h = @take(%x) {M = K floordiv 2, by = K}  %y = @shift(%h) {by = K + 1} }"""
    module = fused(text)
    assert len(calls(module)) == 1
    x = np.arange(5, dtype=np.float32)
    for load in (load_reference, load_cpu):
        assert load(module, "p")({"x": x})["y"].tolist() == [6, 11]


def test_a_fused_module_prints_and_reads_back() -> None:
    for name in ("edge_gamma", "preprocess", "video", "broadcast"):
        module = fused((CASES / f"{name}.plir").read_text(encoding="utf-8"))
        text = print_module(module)
        again = passes(text, "resolve,infer-types")
        assert print_module(again) == text


def test_a_long_chain_is_one_operator_and_options_bound_it() -> None:
    chain = "".join(f"  %e{i + 1} = @scale(%e{i}) {{by = {i}.5}}\n" for i in range(40))
    text = ELEMENTWISE + f"pipeline @p(%e0: tensor<Nxf32>) -> (%e40: tensor<Nxf32>) {{\n{chain}}}"
    assert calls(fused(text)) == ["scale.scale.scale.scale.scale.and_35_more"]
    for option, count in (("nodes=10", 4), ("definitions=20", 4), ("code=8", 5), ("nodes=1", 40)):
        assert len(calls(passes(text, BEFORE + f",fuse{{{option}}}"))) == count, option
