"""Which programs are attention: however they are named, ordered and cut into definitions and operators, they get one kernel, and no other program does."""
from __future__ import annotations

import itertools
import random
import re

import pytest

from pipelink_ir.backends.cuda import nvrtc
from pipelink_ir.backends.cuda.emit import emit_program
from pipelink_ir.backends.loops.gpu.build import build_gpu
from pipelink_ir.backends.loops.print import kernel_text
from pipelink_ir.ir.diagnostics import Report
from pipelink_ir.ir.nodes import Module
from pipelink_ir.ir.targets import Arch, parse_arch
from pipelink_ir.passes.infer.operator import typed_operator
from pipelink_ir.passes.ledger import ledger
from pipelink_ir.passes.manager import parse_passes, run_passes
from pipelink_ir.runtime.compile import read
from tests.emulated import operators_of

DEFINITIONS = (
    "let scale = 1 / sqrt(f32(64))",
    "%s[b, h, i, j] = scale * sum[d < 64](%q[b, h, i, d] * %k[b, h, j, d])",
    "%m[b, h, i] = max[j < 128 where %mask[b, j]](%s[b, h, i, j])",
    "%p[b, h, i, j] = exp(%s[b, h, i, j] - %m[b, h, i])",
    "%z[b, h, i] = sum[j < 128 where %mask[b, j]](%p[b, h, i, j])",
    "%o[b, h, i, d] = sum[j < 128 where %mask[b, j]](%p[b, h, i, j] * %v[b, h, j, d]) / %z[b, h, i]",
)
SIGNATURE = "(%q: tensor<2x3x128x64xf16>, %k: tensor<2x3x128x64xf16>, %v: tensor<2x3x128x64xf16>, %mask: tensor<2x128xbool>) -> (%o: tensor<2x3x128x64xf16>)"


def program(definitions: tuple[str, ...] = DEFINITIONS, signature: str = SIGNATURE, sections: str = "") -> str:
    body = "\n    ".join(definitions)
    return f"op @attend{signature} {{\n  {sections}\n  compute {{\n    {body}\n  }}\n}}\npipeline @main{signature} {{ %o = @attend(%q, %k, %v, %mask) }}\n"


def lowered(text: str) -> Module:
    return run_passes(read(text), parse_passes("cuda"), Report())


def kernels(text: str, arch: Arch | None = None) -> list[str]:
    """The texts of all kernels, without the names that people gave."""
    out = []
    for op in operators_of(lowered(text)):
        for k in build_gpu(typed_operator(op), arch).kernels:
            lines = kernel_text(k).split("\n")
            out.append("\n".join(lines[1:]))
    return out


def is_attention(text: str) -> bool:
    found = kernels(text)
    return len(found) == 1 and "own softmax" in found[0]


def anonymous(text: str) -> str:
    """A kernel in which names are numbered in the order in which they occur."""
    names: dict[str, str] = {}
    return re.sub(r"%?[A-Za-z_]\w*(?:\.\w+)*", lambda m: names.setdefault(m[0], f"n{len(names)}"), text)


def test_the_order_of_definitions_changes_nothing() -> None:
    want = kernels(program())
    assert is_attention(program())
    orders = list(itertools.permutations(DEFINITIONS))
    for definitions in random.Random(3).sample(orders, 6):
        assert kernels(program(definitions)) == want


def test_names_change_nothing() -> None:
    names = {"s": "weights", "m": "x", "p": "exp1", "z": "softmax", "scale": "c1", "i": "head", "j": "b1", "d": "q", "b": "o", "h": "zz"}

    def renamed(line: str) -> str:
        line = re.sub(r"%([smpz])\b", lambda m: "%" + names[m[1]], line)
        line = re.sub(r"(?<![%\w])scale\b", names["scale"], line)
        return re.sub(r"(?<![%\w])([bhijd])\b(?!\()", lambda m: names[m[1]], line)

    changed = program(tuple(map(renamed, DEFINITIONS)))
    assert anonymous(kernels(changed)[0]) == anonymous(kernels(program())[0])


@pytest.mark.parametrize("change", [
    {5: "%o[b, h, i, d] = sum[j < 128 where %mask[b, j]](%v[b, h, j, d] * (%p[b, h, i, j] / %z[b, h, i]))"},
    {5: "%o[b, h, i, d] = select(%z[b, h, i] == 0, 0, sum[j < 128 where %mask[b, j]](%p[b, h, i, j] * %v[b, h, j, d]) * (1 / %z[b, h, i]))"},
    {1: "%s[b, h, i, j] = sum[d < 64](%k[b, h, j, d] * scale * %q[b, h, i, d])"},
    {1: "%t[b, h, i, j] = sum[e < 64](%q[b, h, i, e] * %k[b, h, j, e])  %s[b, h, i, j] = %t[b, h, i, j] * scale"},
    {3: "%n[b, h, i, j] = %s[b, h, i, j] - %m[b, h, i]  %p[b, h, i, j] = exp(%n[b, h, i, j])"},
    {5: "%w[b, h, i, d] = sum[j < 128 where %mask[b, j]](%p[b, h, i, j] * %v[b, h, j, d])  %o[b, h, i, d] = %w[b, h, i, d] / %z[b, h, i]"},
    {5: "%o[b, h, i, d] = 0.5 * f32(%q[b, h, i, d]) + sum[c < 128 where %mask[b, c]](%p[b, h, i, c] * %v[b, h, c, d]) / %z[b, h, i]"},
])
def test_what_is_equivalent_as_written_has_the_same_kind_of_kernel(change: dict[int, str]) -> None:
    assert is_attention(program(tuple(change.get(k, d) for k, d in enumerate(DEFINITIONS))))


SEPARATE = """import std.nn
op @a(%q: tensor<2x3x128x64xf16>, %k: tensor<2x3x128x64xf16>) -> (%s: tensor<2x3x128x128xEDGE>) {
  compute { %s[b, h, i, j] = sum[d < 64](%q[b, h, i, d] * %k[b, h, j, d]) / 8 }
}
op @b(%p: tensor<2x3x128x128xEDGE>, %v: tensor<2x3x128x64xf16>) -> (%o: tensor<2x3x128x64xf16>) {
  compute { %o[b, h, i, d] = sum[j < 128](%p[b, h, i, j] * %v[b, h, j, d]) }
}
pipeline @main(%q: tensor<2x3x128x64xf16>, %k: tensor<2x3x128x64xf16>, %v: tensor<2x3x128x64xf16>) -> (%o: tensor<2x3x128x64xf16>) {
  %s = @a(%q, %k)
  %p = @softmax(%s)
  %o = @b(%p, %v)
}
"""


@pytest.mark.parametrize("edge", ["f32", "f16"])
def test_separate_operators_change_nothing(edge: str) -> None:
    module = lowered(SEPARATE.replace("EDGE", edge))
    assert is_attention(SEPARATE.replace("EDGE", edge))
    assert sum(n for r in re.findall(r"bytes = (\d+)", str(module)) for n in [int(r)]) == 0
    if edge == "f32":
        one = "%q: tensor<2x3x128x64xf16>, %k: tensor<2x3x128x64xf16>, %v: tensor<2x3x128x64xf16>"
        whole = program(tuple(d.replace(" where %mask[b, j]", "").replace("scale * sum[d < 64](%q[b, h, i, d] * %k[b, h, j, d])",
                                                                          "sum[d < 64](%q[b, h, i, d] * %k[b, h, j, d]) / 8") for d in DEFINITIONS[1:]),
                        f"({one}) -> (%o: tensor<2x3x128x64xf16>)").replace("%v, %mask", "%v")
        steps = [[re.sub(r"\d+", "", line.strip().split(" ")[0]) for line in kernels(t)[0].split("\n") if "own" in line]
                 for t in (whole, SEPARATE.replace("EDGE", edge))]
        assert steps[0] == steps[1]


@pytest.mark.parametrize(("change", "sections"), [
    ({2: "%m[b, h, i] = max[j < 128](%s[b, h, i, j])"}, ""),                                          # another range of keys
    ({3: "%p[b, h, i, j] = exp(%s[b, h, i, j])"}, ""),                                                # nothing is taken off
    ({4: "%z[b, h, i] = sum[j < 128 where %mask[b, j]](%p[b, h, i, j] * %p[b, h, i, j])"}, ""),       # another sum
    ({}, "compile { accuracy = exact }"),
    ({}, "schedule { %s { place = buffer } }"),
])
def test_what_is_something_else_has_another_kernel(change: dict[int, str], sections: str) -> None:
    assert not is_attention(program(tuple(change.get(k, d) for k, d in enumerate(DEFINITIONS)), sections=sections))


def told(text: str, target: str = "sm_90") -> str:
    return "\n".join(f"{e.kind}: {e.reason}" for e in ledger(run_passes(read(text), parse_passes("cuda"), Report()), target))


def test_the_ledger_says_why() -> None:
    assert "'%o' is attention on tensor cores, mma.sync m16n8k16 of f16, its scores never in memory; it goes through the keys once" in told(program())
    assert "through the keys twice, since its weights are rounded once they are divided" in told(SEPARATE.replace("EDGE", "f16"))
    f32 = program(signature=SIGNATURE.replace("f16", "f32"))
    assert "declined: no kernel of its own computes the attention '%o': queries, keys and values are not made of operands of f16 or of bf16" in told(f32)
    bf16 = program(signature=SIGNATURE.replace("f16", "bf16"))
    assert "'%o': the schedule wants something in it to lie in memory" in told(program(sections="schedule { %s { place = buffer } }"))
    both = program((*DEFINITIONS, "%w[b, h, i, j] = %p[b, h, i, j]"), SIGNATURE + ")").replace("xf16>))", "xf16>, %w: tensor<2x3x128x128xf32>)").replace("{ %o =", "{ %o, %w =")
    assert "'%o': something else reads its scores or weights" in told(both)
    assert "the attention '%o': sm_75 has no tensor cores for it" in told(bf16, "sm_75")


@pytest.mark.skipif(not nvrtc.available(), reason="NVRTC is not installed")
@pytest.mark.parametrize(("dtype", "arch"), [("f16", "sm_75"), ("f16", "sm_80"), ("bf16", "sm_86"), ("f16", "sm_89"), ("bf16", "sm_90"), ("f16", "sm_90a"),
                                             ("bf16", "sm_100"), ("f16", "sm_120")])
@pytest.mark.parametrize("wide", [64, 256])
def test_nvrtc_takes_it_for_every_architecture(dtype: str, arch: str, wide: int) -> None:
    text = program(signature=SIGNATURE.replace("f16", dtype).replace("x64x", f"x{wide}x"))
    text = text.replace("d < 64", f"d < {wide}")
    target = parse_arch(arch)
    assert target is not None
    op = operators_of(lowered(text))[0]
    code = emit_program(build_gpu(typed_operator(op), target), op)
    binary = nvrtc.compile_source(nvrtc.Source(code.text, "kernels.cu"), target)
    assert all(u.spill_stores <= 64 for u in binary.usage.values())


PROJECT = """op @project(%x: tensor<BxSxExf16>, %w: tensor<ExHxDxf16>) -> (%y: tensor<BxHxSxDxf16>) { compute { %y[b, h, s, d] = sum[e < E](%x[b, s, e] * %w[e, h, d]) } }
op @split(%x: tensor<BxSx192xf16>) -> (%y: tensor<Bx3xSx64xf16>) { compute { %y[b, h, s, d] = %x[b, s, h * 64 + d] } }
op @turn(%x: tensor<BxSxHxDxf16>) -> (%y: tensor<BxHxSxDxf16>) { compute { %y[b, h, s, d] = %x[b, s, h, d] } }
"""


@pytest.mark.parametrize(("maker", "types"), [
    ("project", "%x: tensor<2x128x256xf16>, %wq: tensor<256x3x64xf16>, %wk: tensor<256x3x64xf16>, %wv: tensor<256x3x64xf16>"),
    ("split", "%xq: tensor<2x128x192xf16>, %xk: tensor<2x128x192xf16>, %xv: tensor<2x128x192xf16>"),
    ("turn", "%xq: tensor<2x128x3x64xf16>, %xk: tensor<2x128x3x64xf16>, %xv: tensor<2x128x3x64xf16>")])
def test_what_makes_queries_keys_and_values_does_not_take_the_kernel_away(maker: str, types: str) -> None:
    """Projections and splits into heads stay operators of their own, or the kernel reads through them."""
    text = program().partition("pipeline @main")[0] + PROJECT
    nodes = "  ".join(f"%{n} = @project(%x, %w{n})" if maker == "project" else f"%{n} = @{maker}(%x{n})" for n in "qkv")
    text += f"pipeline @main({types}, %mask: tensor<2x128xbool>) -> (%o: tensor<2x3x128x64xf16>) {{ {nodes}  %o = @attend(%q, %k, %v, %mask) }}\n"
    found = kernels(text)
    assert sum("own softmax" in k for k in found) == 1
    assert maker != "project" or sum("mma" in k or "Tiles" in k or "fragment" in k for k in found) >= 1
