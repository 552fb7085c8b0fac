"""Products of f8 whose sums may have the bits that tensor cores have for them (`accuracy = f8`): who may, how they stream, and that they are right where a
processor plays them, which adds up in f32."""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import pipelink_ir as pl
from pipelink_ir.backends.cuda import nvrtc
from pipelink_ir.backends.cuda.bounds import Bounds
from pipelink_ir.backends.cuda.emit import emit_program
from pipelink_ir.backends.cuda.emulate import kernels
from pipelink_ir.backends.cuda.geometry import geometry
from pipelink_ir.backends.loops.gpu.build import build_gpu
from pipelink_ir.grammar.printer import print_operator
from pipelink_ir.ir import contracts
from pipelink_ir.ir.diagnostics import ProgramError
from pipelink_ir.passes.infer.operator import typed_operator
from pipelink_ir.passes.precision import floats
from pipelink_ir.passes.precision.codes import Codes
from pipelink_ir.passes.precision.quantised import quantised
from pipelink_ir.passes.scheduling import streams
from pipelink_ir.passes.scheduling.kernels import kernels_of
from pipelink_ir.passes.scheduling.streams import Streamed
from pipelink_ir.runtime.compile import read
from tests.emulated import lowered
from tests.unit.cuda_emulated.test_products import HOPPER, array, close, planned, run, text_of

SHORT = "compile { accuracy = f8 } compute"


def asked(text: str, how: str = SHORT) -> str:
    return text.replace("compute", how, 1)


def streamed(text: str) -> list[Streamed]:
    return [k.way for k in kernels_of(*planned(text), HOPPER) if isinstance(k.way, Streamed)]


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Products stream however small they are."""
    for name in ("ENOUGH", "DEEP"):
        monkeypatch.setattr(streams, name, 1)
    yield
    assert any(k.endswith(".otherwise") for k in kernels.COUNT.kernels)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(("left", "right", "out", "names", "shapes"), [
    ("MxKxf8e4m3", "NxKxf8e4m3", "MxNxf16", "ik,jk->ij", ((261, 160), (200, 160))), ("MxKxf8e4m3", "KxNxf8e5m2", "MxNxf32", "ik,kj->ij", ((65, 48), (48, 64))),
    ("KxMxf8e5m2", "NxKxf8e4m3", "MxNxbf16", "ki,jk->ij", ((47, 129), (63, 47))), ("BxMxKxf8e5m2", "BxKxNxf8e5m2", "BxMxNxf32", "bik,bkj->bij", ((2, 65, 48), (2, 48, 80))),
    ("MxKxf8e4m3", "NxKxf8e4m3", "MxNxf8e4m3", "ik,jk->ij", ((130, 33), (195, 33)))])
def test_products_that_stream(left: str, right: str, out: str, names: str, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    dtypes = [t.rpartition("x")[2] for t in (left, right)]
    x, w = (array(d, *shape) for d, shape in zip(dtypes, shapes, strict=True))
    first, second = names.split("->")[0].split(",")
    value = f"%y[{', '.join(names.split('->')[1])}] = sum[k < K](%x[{', '.join(first)}] * %w[{', '.join(second)}])"
    text = asked(text_of(left, right, out, value))
    way, = streamed(text)
    assert [d.name for d in way.dtypes] == dtypes
    assert way.short == streams.AT_ONCE
    want = np.einsum(names, x.astype(np.float64), w.astype(np.float64))
    close(run(text, HOPPER, x=x, w=w), want, {"f16": 1e-3, "bf16": 4e-3, "f8e4m3": 0.07}.get(out.rpartition("x")[2], 1e-6))


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("n", [70, 200, 208])  # bytes are stored two, eight and 16 at a time
@pytest.mark.parametrize("kind", ["i8", "u8"])
def test_numbers_that_are_none_and_what_is_made_of_sums(n: int, kind: str) -> None:
    text = asked(text_of("MxKxf8e5m2", "NxKxf8e5m2", f"MxNx{kind}", f"%a[i, j] = sum[k < K](%x[i, k] * %w[j, k]) %y[i, j] = sat_{kind}(round(max(%a[i, j] * %s[j] + 1, 0)))",
                         ", %s: tensor<Nxf32>", "%x, %w, %s"), "compile { %a { accuracy = f8 } } compute")
    assert [w.short for w in streamed(text)] == [streams.AT_ONCE]
    x, w, s = array("f8e5m2", 133, 64), array("f8e5m2", n, 64), np.linspace(0.5, 4, n, dtype=np.float32)
    x[3, 5], x[7, 1] = np.nan, np.inf
    with np.errstate(invalid="ignore"):
        real = np.maximum(x.astype(np.float64) @ w.astype(np.float64).T * s + 1, 0)
    limits = np.iinfo(np.int8 if kind == "i8" else np.uint8)
    want = np.clip(np.rint(np.nan_to_num(real, nan=0, posinf=limits.max, neginf=0)), limits.min, limits.max)
    finite = np.where(np.isfinite(real), real, 0)
    near = np.abs(finite % 1 - 0.5) < 1e-3
    got = run(text, HOPPER, x=x, w=w, s=s)
    assert (got[3] == 0).all()
    assert ((got == want) | near).all()


@pytest.mark.parametrize(("left", "right", "how", "dtypes", "short"), [
    ("f8e4m3", "f8e4m3", "compute", ("f16", "f16"), 0), ("f8e4m3", "f8e5m2", SHORT, ("f8e4m3", "f8e5m2"), 4),
    ("f8e4m3", "f16", SHORT, ("f16", "f16"), 0)])
def test_sums_keep_the_bits_of_f32_unless_it_is_said(left: str, right: str, how: str, dtypes: tuple[str, str], short: int) -> None:
    ways = streamed(asked(text_of(f"MxKx{left}", f"NxKx{right}", "MxNxf32", "%y[i, j] = sum[k < K](%x[i, k] * %w[j, k])"), how))
    assert {(tuple(d.name for d in way.dtypes), way.short) for way in ways} == {(dtypes, short)}


def test_every_sum_has_to_say_it() -> None:
    """What stands in one operator may have become so by fusion: one sum's word is not another's."""
    value = "%a[i, j] = sum[k < K](%x[i, k] * %w[j, k]) %y[i, j] = sum[k < N](f8e4m3(%a[i, k]) * %v[j, k])"
    text = text_of("MxKxf8e4m3", "NxKxf8e4m3", "MxNxf32", value, ", %v: tensor<NxNxf8e4m3>", "%x, %w, %v")
    assert {w.short for w in streamed(asked(text, "compile { %a { accuracy = f8 } } compute"))} <= {0}
    assert {w.short for w in streamed(asked(text, "compile { %a { accuracy = f8 }, %y { accuracy = f8 } } compute"))} <= {4}


def test_fused_operators_keep_what_one_of_them_says() -> None:
    text = ("op @mm(%x: tensor<MxKxf8e4m3>, %w: tensor<NxKxf8e4m3>) -> (%y: tensor<MxNxf16>) {\n  compile { accuracy = f8 }\n"
            "  compute { %y[i, j] = sum[k < K](%x[i, k] * %w[j, k]) }\n}\n"
            "op @relu(%x: tensor<...xf16>) -> (%y: tensor<...xf16>) { compute { %y[...] = max(%x[...], 0) } }\n"
            "pipeline @main(%x: tensor<MxKxf8e4m3>, %w: tensor<NxKxf8e4m3>) -> (%y: tensor<MxNxf16>) {\n  %h = @mm(%x, %w)\n  %y = @relu(%h)\n}\n")
    module = lowered(read(text))
    assert module is not None
    assert "compile  { %h { accuracy = f8 } }" in print_operator(module.operators[0])
    assert [k.way.short for k in kernels_of(*planned(text), HOPPER) if isinstance(k.way, Streamed)] == [4]


@pytest.mark.parametrize(("operands", "value", "word", "message"), [
    ("%x: tensor<NxNxf16>", "%y[i, j] = sum[k < N](%x[i, k] * %x[k, j])", "f8", "speaks of f8, and no operand is: f16"),
    ("%x: tensor<NxNxf8e4m3>", "%y[i, j] = f32(%x[i, j]) + 1", "f8", "there is none here"),
    ("%x: tensor<NxNxf8e4m3>", "%y[i, j] = sum[k < N](%x[i, k] * %x[k, j])", "f9", "'accuracy' is")])
def test_where_it_says_nothing(tmp_path: Path, operands: str, value: str, word: str, message: str) -> None:
    text = (f"op @f({operands}) -> (%y: tensor<NxNxf32>) {{ compile {{ accuracy = {word} }} compute {{ {value} }} }}\n"
            f"pipeline @main({operands}) -> (%y: tensor<NxNxf32>) {{ %y = @f(%x) }}\n")
    path = tmp_path / "p.plir"
    path.write_text(text)
    with pytest.raises(ProgramError, match=message):
        pl.compile(path, target="cpu")


@pytest.mark.skipif(not nvrtc.available(), reason="NVRTC is not installed")
@pytest.mark.parametrize(("left", "right"), [("f8e4m3", "f8e4m3"), ("f8e5m2", "f8e4m3"), ("f8e4m3", "f8e5m2"), ("f8e5m2", "f8e5m2")])
def test_nvrtc_takes_them_without_spills(left: str, right: str) -> None:
    text = asked(text_of(f"MxKx{left}", f"NxKx{right}", "MxNxf16", "%y[i, j] = sum[k < K](%x[i, k] * %w[j, k])"))
    op = lowered(read(text)).operators[0]  # type: ignore[union-attr]
    code = emit_program(build_gpu(typed_operator(op), HOPPER), op)
    binary = nvrtc.compile_source(nvrtc.Source(code.text, "kernels.cu"), HOPPER)
    assert [u.spill_stores for u in binary.usage.values()] == [0] * len(code.kernels)
    assert "serialized" not in binary.log
    assert f"m64n192k32.f32.{left[2:]}.{right[2:]}" in binary.ptx


@pytest.mark.parametrize(("k", "copied"), [(1024, 0), (1000, 0), (1001, 1)])
def test_copies_that_are_not_needed_are_not_launched(k: int, copied: int) -> None:
    """Whether lines follow each other at multiples of 16 bytes is known at the launch, where sizes are."""
    text = text_of("MxKxf16", "NxKxf16", "MxNxf16", "%y[i, j] = sum[k < K](%x[i, k] * %w[j, k])")
    op = lowered(read(text)).operators[0]  # type: ignore[union-attr]
    code = emit_program(build_gpu(typed_operator(op), HOPPER), op)
    turns = {c.kernel.name.rpartition("mm.y")[2]: geometry(c, {"M": 4096, "N": 4096, "K": k}).turns for c in code.kernels}
    assert {name: bool(n) for name, n in turns.items() if ".copied" in name} == {".copied.left": bool(copied), ".copied.right": bool(copied)}
    assert turns[""] == 32 * 22


@pytest.mark.usefixtures("always")
def test_scales_may_lie_where_copies_do_that_are_not_made() -> None:
    """A temporary without bytes takes no place: what is read there is an operand."""
    signature = "(%x: tensor<MxKxf32>, %w: tensor<NxKxf32>, %b: tensor<Nxf32>, %r: tensor<MxNxf32>) -> (%y: tensor<MxNxf32>)"
    text = (f"op @lin{signature} {{ downgrade sm_90 {{ dtype = f8e4m3, ranges = dynamic, force = true }} memory {{ dtypes = [f8e4m3, f32] }} "
            f"compute {{ %y[m, n] = sum[k < K](%x[m, k] * %w[n, k]) + %b[n] + %r[m, n] }} }}\n"
            f"pipeline @main{signature} {{ %y = @lin(%x, %w, %b, %r) }}\n")
    x, w, b, r = (array("f32", *shape) for shape in ((16, 64), (200, 64), (200,), (16, 200)))
    got = pl.compile(text, target="cuda-emulated:sm_90a", pass_options="lower-precision{price=false}")(x=x, w=w, b=b, r=r).y
    close(np.asarray(got), x.astype(np.float64) @ w.T.astype(np.float64) + b + r, 0.1)


@pytest.mark.parametrize("how", ["compute", SHORT])
@pytest.mark.parametrize(("sizes", "blocks"), [({"M": 1100, "N": 1544, "K": 1040}, 81), ({"M": 1024, "N": 3072, "K": 1024}, 128), ({"M": 8192, "N": 8192, "K": 256}, 2752)])
def test_every_block_has_memory_for_what_it_tells_the_copy_engine(how: str, sizes: dict[str, int], blocks: int) -> None:
    """As many blocks may run as the loop over tiles has turns; of teams that share a tile each has a turn."""
    text = asked(text_of("MxKxf8e4m3", "NxKxf8e4m3", "MxNxf32", "%y[i, j] = sum[k < K](%x[i, k] * %w[j, k])"), how)
    op = lowered(read(text)).operators[0]  # type: ignore[union-attr]
    code = next(c for c in emit_program(build_gpu(typed_operator(op), HOPPER), op).kernels if c.kernel.name.endswith("mm.y"))
    turns = geometry(code, sizes).turns
    maps = next(b for b in code.kernel.buffers if b.name.startswith("maps"))
    (words,) = [Bounds({s: (n, n) for s, n in sizes.items()}).of(n)[1] for n in maps.shape]
    assert turns == blocks * (2 if how is SHORT else 1)
    assert words * 8 >= turns * 256 + 128


@pytest.mark.parametrize(("codes", "said"), [({"x": "f8e4m3", "w": "f8e4m3"}, True), ({"x": "f8e5m2", "w": "f8e4m3"}, True), ({"w": "f8e4m3"}, False), ({"x": "i8", "w": "i8"}, False)])
def test_policies_say_it_of_the_sums_that_they_make(codes: dict[str, str], said: bool) -> None:
    op = read(text_of("MxKxf16", "KxNxf16", "MxNxf16", "%y[i, j] = sum[k < K](%x[i, k] * %w[k, j]) + 1")).operators[0]
    made = quantised(op, {n: Codes(d, "tensor") for n, d in codes.items()}, "mm.coded")
    assert not isinstance(made, str)
    assert ("accuracy = f8" in print_operator(made)) == said == contracts.short_sums(made)


@pytest.mark.parametrize(("more", "said"), [("", "f8"), ("compile { accuracy = exact } ", "exact")])
def test_plain_f8_says_it_unless_the_operator_has_said_something(more: str, said: str) -> None:
    op = read(text_of("MxKxf16", "KxNxf16", "MxNxf16", "%y[i, j] = sum[k < K](%x[i, k] * %w[k, j])").replace("compute", f"{more}compute", 1)).operators[0]
    text = print_operator(floats.lowered(op, "f8e5m2", "mm.f8", ("x", "w")))
    assert f"accuracy = {said}" in text
    assert text.count("accuracy") == 1
