"""Edges whose axes are put into another order in memory: which, and that nobody notices."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pipelink_ir.backends.cuda.emulate import kernels
from pipelink_ir.backends.cuda.emulate.executable import Options, load
from pipelink_ir.ir.diagnostics import Report
from pipelink_ir.ir.nodes import Edge, Module, Node
from pipelink_ir.ir.targets import Arch
from pipelink_ir.passes.manager import parse_passes, run_passes
from pipelink_ir.passes.scheduling import streams
from pipelink_ir.runtime.compile import read
from tests.emulated import NEEDS_COMPILER

Array = np.ndarray[Any, Any]
MERGE = """op @merge(%o: tensor<BxHxSxDxf16>, %w: tensor<HxDxExf16>) -> (%y: tensor<BxSxExf16>) {
  compute { %y[b, s, e] = sum[h < H, d < D](%o[b, h, s, d] * %w[h, d, e]) }
}
"""
BEFORE = """op @before(%x: tensor<BxHxSxDxf16>) -> (%o: tensor<BxHxSxDxf16>) { SECTIONS
  compute { %o[b, h, s, d] = sum[k < D](%x[b, h, s, k] * %x[b, h, s, (k + d) mod D]) }
}
"""
TURN = """op @turn(%x: tensor<BxHxSxDxf16, NCHW>) -> (%y: tensor<BxHxDxSxf16>) {
  compute { %y[b, h, d, s] = %x[b, h, s, d] }
}
"""
PIPELINE = """pipeline @main(%x: tensor<BxHxSx64xf16>, %w: tensor<Hx64xExf16>MORE) -> (RESULTS) {
  %o = @before(%x)
NODES
}
"""


def program(nodes: str, results: str = "%y: tensor<BxSxExf16>", sections: str = "", more: str = "", others: str = "") -> str:
    body = "\n".join(f"  {n}" for n in nodes.split("; "))
    return MERGE + BEFORE.replace("SECTIONS", sections) + others + PIPELINE.replace("RESULTS", results).replace("NODES", body).replace("MORE", more)


def laid(text: str) -> Module:
    return run_passes(read(text), parse_passes("frontend,flatten,lay-out"), Report())


def calls(module: Module) -> dict[str, str]:
    """The operator that makes each edge."""
    return {e.name: n.op for n in module.pipelines[0].nodes if isinstance(n, Node) for e in n.results}


def test_an_edge_that_a_product_reads_is_laid_out() -> None:
    module = laid(program("%y = @merge(%o, %w)"))
    assert calls(module) == {"o.laid": "before.1.laid", "y": "merge.1.laid"}
    assert {o.name for o in module.operators} == {"before.1.laid", "merge.1.laid"}
    node = module.pipelines[0].nodes[0]
    assert isinstance(node, Node)
    assert [str(getattr(d, "name", getattr(d, "value", d))) for d in node.types[0].dims] == ["B", "S", "H", "64"]


@pytest.mark.parametrize(("nodes", "more"), [
    ("%y = @merge(%o, %w)", {"results": "%y: tensor<BxSxExf16>, %o: tensor<BxHxSx64xf16>"}),
    ("%y = @merge(%o, %w)", {"sections": "memory { %o { align = 128 } }"}),
    ("%y = @merge(%o, %w)", {"sections": "schedule { %o { map = grid } }"}),
    ("%q = %o; %y = @merge(%q, %w)", {}),
    ("%y = @merge(%o, %w); %z = @turn(%o)", {"results": "%y: tensor<BxSxExf16>, %z: tensor<BxHx64xSxf16>", "others": TURN})])
def test_an_edge_that_others_know_stays(nodes: str, more: dict[str, str]) -> None:
    assert not any("laid" in name for e in calls(laid(program(nodes, **more))).items() for name in e)


@NEEDS_COMPILER
def test_what_would_only_be_copied_is_read_where_it_is() -> None:
    """A transposition before a product vanishes, and with it the memory that it took."""
    turn = "op @heads(%x: tensor<BxSxHxDxf16>) -> (%y: tensor<BxHxSxDxf16>) { compute { %y[b, h, s, d] = %x[b, s, h, d] } }\n"
    text = MERGE + turn + """pipeline @main(%x: tensor<BxSxHx64xf16>, %w: tensor<Hx64xExf16>) -> (%y: tensor<BxSxExf16>) {
  %o = @heads(%x)
  %y = @merge(%o, %w)
}
"""
    module = laid(text)
    assert calls(module) == {"y": "merge.1.laid"}
    node = module.pipelines[0].nodes[0]
    assert isinstance(node, Node)
    assert [a.name for a in node.args if isinstance(a, Edge)] == ["x", "w"]
    assert "'%o' is '%x' with its axes in another order" in (node.reason or "")
    rng = np.random.default_rng(4)
    x, w = rng.normal(size=(2, 9, 3, 64)).astype(np.float16), rng.normal(size=(3, 64, 40)).astype(np.float16)
    got = np.asarray(load(run_passes(read(text), parse_passes("cuda"), Report()), "main", Options())({"x": x, "w": w})["y"], np.float64)
    np.testing.assert_allclose(got, np.einsum("bshd,hde->bse", x.astype(np.float64), w.astype(np.float64)), rtol=2e-3, atol=2e-2)


def test_an_edge_that_lies_right_stays() -> None:
    text = """op @lin(%x: tensor<NxKxf16>, %w: tensor<KxMxf16>) -> (%y: tensor<NxMxf16>) { compute { %y[n, m] = sum[k < K](%x[n, k] * %w[k, m]) } }
pipeline @main(%x: tensor<NxKxf16>, %w: tensor<KxKxf16>) -> (%y: tensor<NxKxf16>) {
  %h = @lin(%x, %w)
  %y = @lin(%h, %w)
}
"""
    module = read(text)
    before = run_passes(module, parse_passes("frontend,flatten"), Report())
    assert run_passes(before, parse_passes("lay-out"), Report()) is before


@NEEDS_COMPILER
@pytest.mark.parametrize("readers", [1, 2])
def test_results_are_the_same(monkeypatch: pytest.MonkeyPatch, readers: int) -> None:
    """Also where somebody else reads the edge, one place after the other."""
    for name in ("ENOUGH", "DEEP", "BESIDE"):
        monkeypatch.setattr(streams, name, 1)
    twice = "op @twice(%x: tensor<BxHxSxDxf16>) -> (%y: tensor<BxHxSxDxf16>) { compute { %y[b, h, s, d] = 2 * %x[b, h, s, d] } }\n"
    nodes, results = "%y = @merge(%o, %w)", "%y: tensor<BxSxExf16>"
    if readers == 2:
        nodes, results = f"{nodes}; %z = @twice(%o)", f"{results}, %z: tensor<BxHxSx64xf16>"
    text = program(nodes, results, others=twice)
    module = run_passes(read(text), parse_passes("cuda"), Report())
    assert "o.laid" in calls(module)
    rng = np.random.default_rng(3)
    x, w = rng.normal(size=(2, 3, 20, 64)).astype(np.float16), (0.1 * rng.normal(size=(3, 64, 72))).astype(np.float16)
    got = load(module, "main", Options(arch=Arch("cuda", 90, "a")))({"x": x, "w": w})
    x64 = x.astype(np.float64)
    o = np.stack([(x64 * np.roll(x64, -d, 3)).sum(3) for d in range(64)], 3).astype(np.float16).astype(np.float64)
    np.testing.assert_allclose(np.asarray(got["y"], np.float64), np.einsum("bhsd,hde->bse", o, w.astype(np.float64)), rtol=2e-3, atol=0.1)
    if readers == 2:
        np.testing.assert_allclose(np.asarray(got["z"], np.float64), 2 * o, rtol=2e-3, atol=0.1)
    assert any(k.endswith(".otherwise") for k in kernels.COUNT.kernels)
