"""Which kernels compute a program depends on what it says, not on how: renaming everything, writing definitions and nodes in another order, or writing
attention as separate operators changes neither the kinds of kernels nor anything that was decided of them."""
from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipelink_ir as pl
from pipelink_ir.grammar import parse
from pipelink_ir.ir.diagnostics import Report
from pipelink_ir.ir.nodes import Module, Node
from pipelink_ir.ir.targets import Arch
from pipelink_ir.passes.infer.operator import typed_operator
from pipelink_ir.passes.manager import parse_passes, run_passes
from pipelink_ir.passes.scheduling.derivation import derivation
from pipelink_ir.passes.scheduling.gpu_place import gpu_plan
from pipelink_ir.passes.scheduling.kernels import kernels_of
from pipelink_ir.runtime.sources import read_program
from tests.unit.passes.renaming import Renamed, told

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "benchmarks"))

from gpu import odd, rows  # noqa: E402
from models import mobilenet_v2  # noqa: E402

ARCHS = (Arch("cuda", 90, "a"), Arch("cuda", 80))
Kernels = Counter[tuple[str, ...]]


def _programs() -> dict[str, Callable[[], Module]]:
    out: dict[str, Callable[[], Module]] = {}
    for source in (rows, odd):
        for name, text in vars(source).items():
            if name.isupper() and isinstance(text, str) and "pipeline @p" in text:
                out[f"row {name}"] = lambda text=text: parse(text, "row.plir")  # type: ignore[misc]
    out["row attention"] = lambda: parse(rows.attention(), "row.plir")
    out["row causal"] = lambda: parse(rows.attention(" where j <= i"), "row.plir")
    out["row small nodes"] = lambda: parse(rows.small_nodes(3, 4), "row.plir")
    out["row mobilenet"] = lambda: parse(mobilenet_v2.program(32, 0.25, classes=8), "row.plir")
    for path in (rows.MODELS / "blurs.plir", *sorted((ROOT / "tests" / "cases").glob("*.plir"))):
        out[f"case {path.stem}"] = lambda path=path: read_program(str(path))  # type: ignore[misc]
    return out


PROGRAMS = _programs()


@cache
def resolved(name: str) -> Module:
    return run_passes(PROGRAMS[name](), parse_passes("resolve"), Report())


def scheduled(module: Module) -> Module:
    steps = parse_passes("cuda")
    last = next(k for k, s in enumerate(steps) if s.name == "schedule")
    return run_passes(module, steps[:last + 1], Report())


def chosen(module: Module, arch: Arch, names: Renamed | None = None) -> Kernels:
    """The kernels of every node of a scheduled module, as often as there are."""
    operators = {o.name: o for o in module.operators}
    out: Kernels = Counter()
    for n in (n for p in module.pipelines for n in p.nodes if isinstance(n, Node)):
        op = operators.get(n.op)
        if op is not None and op.compute is not None and op.kernel is None:
            typed, stored = derivation(typed_operator(op), "cuda")
            found = kernels_of(typed, gpu_plan(typed, stored), arch)
            out[tuple(sorted(f"{k.kind} of {len(k.jobs)} by {told(k.way, names)} with {told(k.knobs, None)}" for k in found))] += 1
    return out


@pytest.mark.parametrize("name", PROGRAMS)
def test_names_and_order_do_not_matter(name: str) -> None:
    """Renamed and permuted together: what depended on either would differ."""
    plain, other = scheduled(resolved(name)), Renamed(resolved(name), True)
    made = scheduled(other.module)
    for arch in ARCHS:
        found = chosen(plain, arch)
        assert chosen(made, arch, other) == found, f"{name}, {arch}"
        assert found or name == "case extern_sobel"


def test_the_test_sees_a_difference() -> None:
    a, b = (scheduled(run_passes(parse(t, "x"), parse_passes("resolve"), Report())) for t in (rows.SOFTMAX, rows.RELU6))
    assert chosen(a, ARCHS[0]) != chosen(b, ARCHS[0])
    new = Renamed(resolved("row GELU"), True)
    text = str(new.module.operators[0].operands[0].name)
    assert text.startswith("n")
    assert new.back(text) != text


# -------------------------------------------------------------------------------------------------------------------- attention in pieces


T, S, R = "tensor<BxHxLxDxf16>", "tensor<BxHxLxMxf32>", "tensor<BxHxLxf32>"
OPERATORS = f"""import std.nn
op @scores(%q: {T}, %k: tensor<BxHxMxDxf16>) -> (%s: {S}) {{
  compute {{ %s[b, h, i, j] = sum[d < D](%q[b, h, i, d] * %k[b, h, j, d]) / sqrt(f32(D)) }} }}
op @products(%q: {T}, %k: tensor<BxHxMxDxf16>) -> (%s: {S}) {{ compute {{ %s[b, h, i, j] = sum[d < D](%q[b, h, i, d] * %k[b, h, j, d]) }} }}
op @scale(%s: {S}) -> (%t: {S}) {{ compute {{ %t[b, h, i, j] = 0.25 * %s[b, h, i, j] }} }}
op @causal(%s: {S}) -> (%t: {S}) {{ compute {{ %t[b, h, i, j] = select(j <= i, %s[b, h, i, j], -inf) }} }}
op @values(%p: {S}, %v: tensor<BxHxMxDxf16>) -> (%o: {T}) {{ compute {{ %o[b, h, i, d] = sum[j < M](%p[b, h, i, j] * %v[b, h, j, d]) }} }}
op @sums_of(%p: {S}, %v: tensor<BxHxMxDxf16>) -> (%o: tensor<BxHxLxDxf32>) {{
  compute {{ %o[b, h, i, d] = sum[j < M](%p[b, h, i, j] * %v[b, h, j, d]) }} }}
op @maxima(%s: {S}) -> (%m: {R}) {{ compute {{ %m[b, h, i] = max[j < M](%s[b, h, i, j]) }} }}
op @sums(%e: {S}) -> (%z: {R}) {{ compute {{ %z[b, h, i] = sum[j < M](%e[b, h, i, j]) }} }}
op @minus(%s: {S}, %m: {R}) -> (%c: {S}) {{ compute {{ %c[b, h, i, j] = %s[b, h, i, j] - %m[b, h, i] }} }}
op @exps(%c: {S}) -> (%e: {S}) {{ compute {{ %e[b, h, i, j] = exp(%c[b, h, i, j]) }} }}
op @over(%e: {S}, %z: {R}) -> (%p: {S}) {{ compute {{ %p[b, h, i, j] = %e[b, h, i, j] / %z[b, h, i] }} }}
op @divide(%n: tensor<BxHxLxDxf32>, %z: {R}) -> (%o: {T}) {{ compute {{ %o[b, h, i, d] = %n[b, h, i, d] / %z[b, h, i] }} }}
"""
WRITTEN = {
    "three": "%s = @scores(%q, %k)\n %p = @softmax(%s)\n %o = @values(%p, %v)",
    "scaled apart": "%s = @products(%q, %k)\n %t = @scale(%s)\n %p = @softmax(%t)\n %o = @values(%p, %v)",
    "causal apart": "%s = @scores(%q, %k)\n %t = @causal(%s)\n %p = @softmax(%t)\n %o = @values(%p, %v)",
    "softmax in pieces": "%s = @scores(%q, %k)\n %m = @maxima(%s)\n %c = @minus(%s, %m)\n %e = @exps(%c)\n %z = @sums(%e)\n %p = @over(%e, %z)\n"
                         " %o = @values(%p, %v)",
    "divided last": "%s = @scores(%q, %k)\n %m = @maxima(%s)\n %c = @minus(%s, %m)\n %e = @exps(%c)\n %z = @sums(%e)\n %n = @sums_of(%e, %v)\n"
                    " %o = @divide(%n, %z)",
}


def in_pieces(how: str, result: str = "%o: " + T) -> str:
    return f"{OPERATORS}pipeline @p(%q: {T}, %k: {T}, %v: {T}) -> ({result}) {{\n {WRITTEN[how]}\n}}\n"


def kinds(text: str, arch: Arch) -> list[list[str]]:
    made = scheduled(run_passes(parse(text, "x"), parse_passes("resolve"), Report()))
    return [sorted(k.split()[0] for k in node) for node in chosen(made, arch).elements()]


@pytest.mark.parametrize("how", WRITTEN)
@pytest.mark.parametrize("arch", ARCHS)
def test_attention_in_pieces_has_the_kernels_of_one(how: str, arch: Arch) -> None:
    whole = kinds(rows.attention(" where j <= i" if "causal" in how else ""), arch)
    assert len(whole) == 1
    assert set(whole[0]) == {"attention", "beyond"}
    assert kinds(in_pieces(how), arch) == whole


@pytest.mark.parametrize("how", ["three", "softmax in pieces", "divided last"])
def test_scores_that_somebody_else_reads_are_stored(how: str) -> None:
    found = kinds(in_pieces(how, f"%o: {T}, %s: tensor<BxHxLxLxf32>"), ARCHS[0])
    assert len(found) > 1
    assert not any("attention" in kernels for kernels in found)


@pytest.mark.parametrize("how", WRITTEN)
def test_numbers_of_attention_in_pieces(how: str) -> None:
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, 2, 19, 16)).astype(np.float16) for _ in range(3))
    p = pl.compile(in_pieces(how), target="cuda-emulated")
    assert len(p.pipeline.nodes) == 1
    s: Any = np.einsum("bhid,bhjd->bhij", q.astype(np.float64), k.astype(np.float64)) / 4
    if "causal" in how:
        s = np.where(np.tri(19, dtype=bool), s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    np.testing.assert_allclose(p(q=q, k=k, v=v).o, np.einsum("bhij,bhjd->bhid", e / e.sum(-1, keepdims=True), v), rtol=2e-3, atol=1.5e-3)


CAST = {
    "product": "%a: tensor<2048x512xDTYPE>, %b: tensor<512x2048xDTYPE>) -> (%y: tensor<2048x2048xf32> | %y[m, n] = sum[k < 512](%a[m, k] * %b[k, n])",
    "few rows": "%a: tensor<4x512xDTYPE>, %b: tensor<2048x512xDTYPE>) -> (%y: tensor<4x2048xf32> | %y[m, n] = sum[k < 512](%a[m, k] * %b[n, k])",
    "convolution": "%a: tensor<4x64x64x32xDTYPE>, %b: tensor<3x3x32x64xDTYPE>) -> (%y: tensor<4x62x62x64xf32> | "
                   "%y[n, h, w, o] = sum[i < 3, j < 3, c < 32](%a[n, h + i, w + j, c] * %b[i, j, c, o])"}


@pytest.mark.parametrize("arch", ARCHS, ids=str)
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f8e4m3"])
@pytest.mark.parametrize("name", CAST)
def test_casts_of_operands_to_what_they_are_computed_as(name: str, dtype: str, arch: Arch) -> None:
    signature, body = CAST[name].replace("DTYPE", dtype).split(" | ")
    written = re.sub(r"(%[ab]\[.*?\])", r"f32(\1)", body)
    assert written.count("f32(") == 2
    kinds = []
    for text in (body, written):
        program = f"op @f({signature}) {{ compute {{ {text} }} }}\npipeline @p({signature}) {{ %y = @f(%a, %b) }}"
        kinds.append(chosen(scheduled(parse(program, "cast.plir")), arch))
    assert kinds[0] == kinds[1]
    assert "product" not in str(kinds[1]), "tensor cores compute it"
