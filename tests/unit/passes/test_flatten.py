"""Graph operators laid out: same results as the graphs give, unique names, bounded and fast."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelink_ir.backends.reference.executable import load
from pipelink_ir.grammar import parse, print_module
from pipelink_ir.ir.diagnostics import ProgramError, Report
from pipelink_ir.ir.nodes import Apply, IntLit, Module, Name, Node
from pipelink_ir.passes import flatten as flatten_pass
from pipelink_ir.passes.hooks import VerifyEach
from pipelink_ir.passes.manager import parse_passes, run_passes

CASES = Path(__file__).parents[2] / "cases"

GAIN = """op @gain(%x: tensor<...xf32>, by: f32 = 1.0) -> (%y: tensor<...xf32>) { compute { %y[...] = by * %x[...] } }
op @plus(%a: tensor<...xf32>, %b: tensor<...xf32>) -> (%y: tensor<...xf32>) { compute { %y[...] = %a[...] + %b[...] } }
"""


def run(text: str, passes: str, name: str = "t.plir") -> Module:
    return run_passes(parse(text.encode(), name), parse_passes(passes), Report(), [VerifyEach()])


def results(module: Module, arrays: dict[str, Any]) -> dict[str, Any]:
    return load(module, module.pipelines[0].name)(arrays)


def same_bits(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return a.keys() == b.keys() and all(a[k].dtype == b[k].dtype and np.array_equal(a[k], b[k], equal_nan=a[k].dtype.kind == "f") for k in a)


def nodes(module: Module) -> list[Node]:
    return [n for n in module.pipelines[0].nodes if isinstance(n, Node)]


NESTED = GAIN + """
op @crop(%x: tensor<HxWxf32>, TOP: dim) -> (%y: tensor<(H - TOP)xWxf32>) { where TOP < H compute { %y[h, w] = %x[h + TOP, w] } }
op @inner(%x: tensor<HxWxf32>, k: f32) -> (%y: tensor<HxWxf32>, %x2: tensor<HxWxf32>) {
  graph { %a = @gain(%x) {by = k * 3} as up  %y = @plus(%a, %x)  %x2 = %x }
}
op @outer(%x: tensor<WxHxf32>, amount: f32, C: dim) -> (%y: tensor<(W - C)xHxf32>, %z: tensor<WxHxf32>, %same: tensor<WxHxf32>) {
  where C < W
  graph {
    %t, %u = @inner(%x) {k = amount / 3}
    %y     = @crop(%t) {TOP = C}
    %z, %v = @inner(%u) {k = 0.1}
    %same  = %z
  }
}
pipeline @p(%img: tensor<AxBxf32>) -> (%out: tensor<(A - B floordiv 2)xBxf32>, %z: tensor<AxBxf32>, %w: tensor<AxBxf32>, %twice: tensor<AxBxf32>) {
  where B floordiv 2 < A
  %out, %z, %w       = @outer(%img) {amount = 0.7, C = B floordiv 2} as first
  %o2, %twice, %same = @outer(%w) {amount = 0.7, C = 1}
  %unread, %q        = @inner(%o2) {k = 2.0} as second
}
"""


def test_laid_out_graphs_give_the_bits_of_graphs() -> None:
    arrays = {"img": np.linspace(-3, 5, 35, dtype=np.float32).reshape(5, 7)}
    written, flat = run(NESTED, "frontend"), run(NESTED, "flatten")
    assert any(o.graph for o in written.operators)
    assert not any(o.graph for o in flat.operators)
    assert same_bits(results(written, arrays), results(flat, arrays))
    # hand-computed: %z of @outer is inner applied to its own operand with k = 0.1
    x = arrays["img"]
    k = np.float32(np.float32(0.1) * np.float32(3))
    assert np.array_equal(results(flat, arrays)["z"], k * x + x)


@pytest.mark.parametrize("name", ["attributes", "attention", "assemble", "video", "preprocess"])
def test_cases_give_the_same_bits(name: str) -> None:
    path = CASES / f"{name}.plir"
    data = np.load(path.with_suffix(".npz"))
    arrays = {k[3:]: data[k] for k in data.files if k.startswith("in.")}
    text = path.read_text()
    written, done = run(text, "frontend", str(path)), run(text, "cpu", str(path))
    assert same_bits(results(written, arrays), results(done, arrays))


def test_names_are_unique_and_cannot_be_written_by_a_user() -> None:
    flat = run(NESTED, "flatten")
    edges = [e.name for n in nodes(flat) for e in n.results]
    assert len(edges) == len(set(edges))
    user = {"out", "z", "w", "o2", "twice", "same", "unread", "q"}
    assert all("." in e for e in edges if e not in user)
    labels = [n.label for n in nodes(flat) if n.label is not None]
    assert len(labels) == len(set(labels))
    assert {"first.t.up", "first.y", "second.up"} <= set(labels)


def test_an_attribute_has_its_declared_type_inside() -> None:
    """N / 3 is an f64; the graph computes with the f32 nearest to it."""
    text = GAIN + """op @g(%x: tensor<Nxf32>, k: f32, D: dim) -> (%y: tensor<Nxf32>) { graph { %y = @gain(%x) {by = k * D} } }
    pipeline @p(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { %y = @g(%x) {k = N / 3, D = N + 1} }"""
    written, flat = run(text, "frontend"), run(text, "flatten")
    (node,) = nodes(flat)
    assert "{by = f32(N / 3) * (N + 1)}" in print_module(flat)
    assert isinstance(node.attrs[0].value, Apply)
    x = np.array([1, 0.1, -3, 7, 1e-3], np.float32)
    expected = x * (np.float32(5 / 3) * np.float32(6))
    assert np.array_equal(results(flat, {"x": x})["y"], expected)
    assert np.array_equal(results(written, {"x": x})["y"], expected)


def test_dimensions_of_the_call_replace_those_of_the_graph() -> None:
    text = """op @rows(%x: tensor<Nxf32>, K: dim) -> (%y: tensor<Kxf32>) { where N >= 1 compute { %y[k] = %x[0] } }
    op @g(%x: tensor<(2 * N + 2)xf32>) -> (%y: tensor<(N + 1)xf32>) { graph { %y = @rows(%x) {K = N + 1} } }
    pipeline @p(%x: tensor<(2 * M)xf32>) -> (%y: tensor<Mxf32>) { where M >= 1  %y = @g(%x) }"""
    flat = run(text, "flatten")
    (node,) = nodes(flat)
    assert node.attrs[0].value in (Name("M"), Apply("+", (Apply("-", (Name("M"), IntLit(1))), IntLit(1))))
    assert node.types[0].dims == (Name("M"),)
    x = np.arange(6, dtype=np.float32)
    assert np.array_equal(results(flat, {"x": x})["y"], np.zeros(3, np.float32))


def test_what_was_printed_is_read_back_as_the_same() -> None:
    flat = run(NESTED, "flatten")
    again = run(print_module(flat), "flatten")
    assert print_module(again) == print_module(flat)
    assert again == flat


def test_without_graphs_nothing_changes() -> None:
    typed = run(GAIN + "pipeline @p(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { %y = @gain(%x) }", "frontend")
    assert flatten_pass.flatten(typed, flatten_pass.NoOptions(), Report()) is typed


def test_after_a_graph_waits_for_all_that_it_does() -> None:
    text = GAIN + """op @two(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>, %z: tensor<Nxf32>) { graph { %y = @gain(%x) {by = 2.0}  %z = @gain(%x) {by = 3.0} } }
    op @outer(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>, %z: tensor<Nxf32>) { graph { %y, %z = @two(%x) } }
    pipeline @p(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>, %a: tensor<Nxf32>, %z: tensor<Nxf32>) {
      %y, %z = @outer(%x)   %b = %y   %a = @gain(%x) {by = 4.0} after %b }"""
    last = nodes(run(text, "flatten"))[-1]
    assert sorted(e.name for e in last.after) == ["y", "z"]


def test_graphs_that_double_with_every_level_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flatten_pass, "LIMIT", 500)
    levels = "".join(f"op @g{i}(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) {{ graph {{ %a = @{f'g{i - 1}' if i else 'gain'}(%x)  "
                     f"%y = @{f'g{i - 1}' if i else 'gain'}(%a) }} }}\n" for i in range(12))
    with pytest.raises(ProgramError, match="more than 500 nodes once its graphs are laid out"):
        run(GAIN + levels + "pipeline @p(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { %y = @g11(%x) }", "flatten")


def test_ten_thousand_nodes_and_deep_nesting() -> None:
    depth = 100
    levels = "".join(f"op @g{i}(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) {{ graph {{ %a = @{f'g{i - 1}' if i else 'gain'}(%x)  %y = @plus(%a, %x) }} }}\n"
                     for i in range(depth))
    calls = "".join(f"%v{i + 1} = @g{depth - 1}(%v{i})\n" for i in range(100))
    flat = run(GAIN + levels + f"pipeline @p(%v0: tensor<Nxf32>) -> (%v100: tensor<Nxf32>) {{ {calls} }}", "flatten")
    assert len(nodes(flat)) == 100 * (depth + 1)
    assert len({e.name for n in nodes(flat) for e in n.results}) == 100 * (depth + 1)
