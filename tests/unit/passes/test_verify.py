"""The verifier: a right program has no findings, and each rule finds what breaks it."""
from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipelink_ir.grammar import parse
from pipelink_ir.ir.diagnostics import InternalError, Report
from pipelink_ir.ir.nodes import Alias, Apply, Attribute, Cast, Define, Dots, Edge, Import, IntLit, Module, Name, Pack, Read, Setting
from pipelink_ir.ir.source import Span
from pipelink_ir.passes.manager import parse_passes, run_passes
from pipelink_ir.passes.verify import STAGES, verify

CASES = Path(__file__).parents[2] / "cases"

TEXT = """op @f(%x: tensor<NxMxf32>, %v: tensor<Mxf32>, s: f32) -> (%y: tensor<NxMxf32>) {
  compute { let k = 2 * s  %p[n, m] = %x[n, m] * k  %y[n, m] = sum[j < M where %v[j] > 0](%p[n, j]) }
}
pipeline @p(%a: tensor<HxWxf32>, %w: tensor<Wxf32>) -> (%c: tensor<HxWxf32>) {
  %b = @f(%a, %w) {s = H / 4} as one
  %c = @f(%b, %w) {s = W / 4} as two
}
"""


@pytest.fixture(scope="module")
def right() -> Module:
    return run_passes(parse(TEXT.encode(), "t.plir"), parse_passes("flatten"), Report())


def operator(module: Module, **changes: Any) -> Module:
    op = module.operators[0]
    return replace(module, items=tuple(replace(op, **changes) if i is op else i for i in module.items))


def node(module: Module, at: int, **changes: Any) -> Module:
    p = module.pipelines[0]
    nodes = tuple(replace(n, **changes) if i == at else n for i, n in enumerate(p.nodes))
    return replace(module, items=tuple(replace(p, nodes=nodes) if i is p else i for i in module.items))


def body(module: Module, at: int, **changes: Any) -> Module:
    compute = module.operators[0].compute
    assert compute is not None
    return operator(module, compute=replace(compute, body=tuple(replace(d, **changes) if i == at else d for i, d in enumerate(compute.body))))


def rules(module: Module, stage: str = "flatten") -> set[str]:
    return {f.rule for f in verify(module, stage)}


def test_a_right_program_has_no_findings(right: Module) -> None:
    for stage in STAGES:
        assert not verify(right, stage)


@pytest.mark.parametrize("path", sorted([*CASES.glob("*.plir"), *CASES.glob("good/*.plir")]), ids=lambda p: p.stem)
def test_all_programs_verify_after_every_pass(path: Path) -> None:
    module = parse(path.read_bytes(), str(path))
    stage = "parse"
    assert not verify(module, stage)
    for step in parse_passes("cpu"):
        module, stage = run_passes(module, [step], Report()), step.name if step.name in STAGES else stage
        assert not verify(module, stage)
    assert stage == STAGES[-1]


def test_unknown_stage(right: Module) -> None:
    with pytest.raises(InternalError):
        verify(right, "simplify")


def test_structure_and_spans(right: Module) -> None:
    assert rules(replace(right, items=(*right.items, [])), "parse") == {"structure"}  # type: ignore[arg-type]
    assert rules(node(right, 0, args=[Edge("a"), Edge("w")])) == {"structure"}
    span = right.pipelines[0].span
    assert rules(node(right, 0, span=Span(span.source, 5, len(TEXT) + 50)), "parse") == {"spans"}
    assert rules(node(right, 0, span=None), "parse") == {"spans"}


def test_names(right: Module) -> None:
    assert rules(replace(right, items=(Import(module="std.image"), *right.items)), "resolve") == {"imports"}
    assert rules(replace(right, items=(*right.items, right.items[0]))) == {"unique"}
    assert rules(node(right, 0, op="g")) == {"callee"}
    assert rules(node(right, 0, op="g"), "parse") == set()


def test_edges_and_labels(right: Module) -> None:
    assert "edges" in rules(node(right, 0, args=(Edge("zz"), Edge("w"))))
    assert "edges" in rules(node(right, 0, results=(Edge("c"),)))
    assert "order" in rules(node(right, 0, args=(Edge("c"), Edge("w"))))
    assert "order" in rules(node(right, 0, after=(Edge("c"),)))
    assert "edges" in rules(node(right, 0, args=(Pack((Edge("a"),)), Edge("w"))))
    assert "labels" in rules(node(right, 0, label="two"))
    p = right.pipelines[0]
    alias = replace(p, nodes=(*p.nodes, Alias(Edge("c"), Edge("b"))))
    assert "edges" in rules(replace(right, items=(right.items[0], alias)))
    assert "edges" in rules(replace(right, items=(right.items[0], replace(p, results=(replace(p.results[0], name="q"),)))))


def test_calls(right: Module) -> None:
    assert "arity" in rules(node(right, 0, args=(Edge("a"),)))
    assert "attributes" in rules(node(right, 0, attrs=()))
    assert "attributes" in rules(node(right, 0, attrs=(Setting("s", Name("t")), Setting("q", Name("t")))))


def test_types(right: Module) -> None:
    good = right.pipelines[0].nodes[0].types[0]  # type: ignore[union-attr]
    assert rules(node(right, 0, types=())) == {"types"}
    assert rules(node(right, 0, types=(replace(good, dtype="f16"),))) == {"types"}
    assert rules(node(right, 0, types=(replace(good, dims=(Name("H"),)),))) == {"types"}
    assert rules(node(right, 0, types=(replace(good, dims=(Name("H"), Name("Q"))),))) == {"types"}
    assert rules(node(right, 0, types=()), "resolve") == set()


def test_operators(right: Module) -> None:
    op = right.operators[0]
    x, y = op.operands[0], op.results[0]
    assert "monomorphic" in rules(operator(right, results=(replace(y, type=replace(y.type, dtype="T")),)))
    assert "monomorphic" in rules(operator(right, params=(replace(x, type=replace(x.type, dims=(Dots(),))), *op.params[1:])))
    assert "monomorphic" in rules(operator(right, params=(*op.params, Attribute("mode", "word", ("a", "b"), Name("a")))))
    assert "meaning" in rules(operator(right, compute=None))


def test_bodies(right: Module) -> None:
    compute = right.operators[0].compute
    assert compute is not None
    assert "results" in rules(operator(right, compute=replace(compute, body=compute.body[:2])))
    assert "results" in rules(operator(right, compute=replace(compute, body=(*compute.body, Define("x", compute.body[1].axes, Name("k"))))))  # type: ignore[union-attr]
    assert "axes" in rules(body(right, 1, axes=()))
    for value, rule in [
        (Read("x", (Name("n"),)), "axes"), (Read("q", (Name("n"),)), "names"), (Name("j"), "names"), (Apply("foo", (Name("k"),)), "functions"),
        (Apply("+", (Name("k"),)), "functions"), (Cast("f33", Name("k")), "functions"), (Read("x", (Dots(),)), "monomorphic"),
    ]:
        assert rule in rules(body(right, 2, value=value)), value
    assert rules(body(right, 2, value=Apply("+", (Name("k"), Apply("*", (Name("M"), IntLit(3))))))) == set()


def test_flat(right: Module) -> None:
    text = TEXT + "op @g(%x: tensor<NxMxf32>, %v: tensor<Mxf32>) -> (%y: tensor<NxMxf32>) { graph { %y = @f(%x, %v) {s = 1.0} } }\n"
    module = run_passes(parse(text.replace("%c = @f(%b, %w) {s = W / 4}", "%c = @g(%b, %w)").encode(), "t.plir"), parse_passes("frontend"), Report())
    assert rules(module, "infer-types") == set()
    assert rules(module, "flatten") == {"flat"}
