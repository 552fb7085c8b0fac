"""Products on tensor cores: which there are, what their kernels look like, and what they compute (tiles are small here, see `conftest.py`)."""
from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.gpu.build import build_gpu
from pipelink_ir.backends.loops.print import program_text
from pipelink_ir.grammar import parse
from pipelink_ir.ir.diagnostics import InternalError
from pipelink_ir.ir.targets import Arch, parse_arch
from pipelink_ir.passes.infer.operator import typed_operator
from pipelink_ir.passes.scheduling import streams
from pipelink_ir.passes.scheduling.products import product_of
from pipelink_ir.passes.scheduling.tensor_cores import why_not
from tests.unit.loops.interpreter import run
from tests.unit.loops.programs import op, results

RNG = np.random.default_rng(19)
HOPPER = Arch("cuda", 90, "a")
NAMES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "i8": np.int8, "u8": np.uint8}


def array(dtype: str, *shape: int) -> Any:
    if dtype in ("i8", "u8"):
        return RNG.integers(np.iinfo(NAMES[dtype]).min, np.iinfo(NAMES[dtype]).max, shape, endpoint=True).astype(NAMES[dtype])
    return RNG.normal(size=shape).astype(NAMES[dtype])


def built(text: str, arch: Arch | None = None) -> form.Program:
    return build_gpu(typed_operator(parse(text, "test.plir").operators[0]), arch)


def plain(left: str = "f16", right: str = "f16", out: str = "f32", value: str = "%x[i, k] * %w[k, j]", sections: str = "") -> str:
    return op(f"%x: tensor<MxKx{left}>, %w: tensor<KxNx{right}> -> %y: tensor<MxNx{out}>", f"%y[i, j] = sum[k < K]({value})", sections)


def on_tensor_cores(text: str, arch: Arch | None = None) -> bool:
    return "fragment" in program_text(built(text, arch))


# ------------------------------------------------------------------------------------------------------------------- which


@pytest.mark.parametrize(("text", "is_one"), [
    (plain(), True), (plain("bf16", "bf16"), True), (plain("i8", "i8", "i32"), True), (plain("u8", "i8", "i32"), True),
    (plain("f32", "f32"), False), (plain("f16", "bf16"), False), (plain("f16", "f32"), False), (plain("i16", "i16", "i32"), False),
    (plain("i8", "i8", "i32", "(%x[i, k] - 3) * %w[k, j]"), False),
    (plain(value="max(%x[i, k], 0) * %w[k, j]"), True), (plain(value="(2.5 * %x[i, k]) * f16(exp(%w[k, j]))"), True),
    (plain(value="f16(f32(k) * %x[i, k]) * %w[k, j]"), True), (plain(value="(f32(k) * %x[i, k]) * %w[k, j]"), False),
    (plain(sections="compile { accuracy = exact }"), False), (plain("i8", "i8", "i32", sections="compile { accuracy = exact }"), True)])
def test_which_products(text: str, is_one: bool) -> None:
    assert on_tensor_cores(text) == is_one


@pytest.mark.parametrize(("dtype", "out", "arch", "is_one"), [("f16", "f32", "sm_75", True), ("bf16", "f32", "sm_75", False), ("i8", "i32", "sm_75", True),
                                                              ("bf16", "f32", "sm_80", True), ("i8", "i32", "sm_120", True)])
def test_which_architectures(dtype: str, out: str, arch: str, is_one: bool) -> None:
    assert on_tensor_cores(plain(dtype, dtype, out), parse_arch(arch)) == is_one


@pytest.mark.parametrize(("text", "why"), [(plain("f16", "bf16"), "one factor is made of f16, the other of bf16"),
                                           (plain("f32", "f32"), "its factors are not made of operands"),
                                           (plain(sections="compile { accuracy = exact }"), "accuracy = exact"), (plain(), None)])
def test_why_not(text: str, why: str | None) -> None:
    typed = typed_operator(parse(text, "test.plir").operators[0])
    product = product_of(typed, lambda name: False, typed.tensors["y"].pieces[0])
    assert product is not None
    found = why_not(typed, lambda name: False, product)
    assert found is why if why is None else why in str(found)


# ---------------------------------------------------------------------------------------------------------------- what they make


@pytest.mark.parametrize("shape", [(1, 1, 1), (40, 40, 24), (33, 70, 17), (32, 32, 16), (3, 0, 2), (0, 3, 2), (2, 3, 0)])
@pytest.mark.parametrize("dtype", ["f16", "i8"])
def test_sizes(shape: tuple[int, int, int], dtype: str) -> None:
    n, k, m = shape
    x, w = array(dtype, n, k), array(dtype, k, m)
    text = plain(dtype, dtype, "f32" if dtype == "f16" else "i32")
    assert on_tensor_cores(text)
    np.testing.assert_allclose(results(text, x=x, w=w)["y"], x.astype(np.float64) @ w.astype(np.float64), rtol=1e-5, atol=1e-4)


def test_lines_that_are_not_aligned_are_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = array("f16", 40, 40), array("f16", 40, 24)
    monkeypatch.setattr("tests.unit.loops.interpreter.ALIGNED", False)
    np.testing.assert_allclose(results(plain(), x=x, w=w)["y"], x.astype(np.float64) @ w.astype(np.float64), rtol=1e-5, atol=1e-4)


def test_factors_are_computed_on_the_way() -> None:
    x, w = array("f16", 20, 36), array("f16", 36, 24)
    got = results(plain(value="max(%x[i, k], 0) * f16(exp(%w[k, j]))"), x=x, w=w)["y"]
    right = np.exp(w.astype(np.float64)).astype(np.float16).astype(np.float64)
    np.testing.assert_allclose(got, np.maximum(x.astype(np.float64), 0) @ right, rtol=1e-3)


def test_a_filter_and_a_batch() -> None:
    x, w, on = array("f16", 3, 20, 40), array("f16", 3, 24, 40), np.array([True, False, True])
    text = op("%x: tensor<BxMxKxf16>, %w: tensor<BxNxKxf16>, %on: tensor<Bxbool> -> %y: tensor<BxMxNxf32>",
              "%y[b, i, j] = sum[k < K where %on[b]](%x[b, i, k] * %w[b, j, k])")
    assert on_tensor_cores(text)
    want = np.einsum("bik,bjk->bij", x.astype(np.float64), w.astype(np.float64)) * on[:, None, None]
    np.testing.assert_allclose(results(text, x=x, w=w, on=on)["y"], want, rtol=1e-5, atol=1e-4)


def test_what_is_not_a_number_stays_where_it_is() -> None:
    x, w = array("f16", 20, 40), array("f16", 40, 24)
    x[3, 5], w[7, 2], x[11, 0] = np.nan, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        want = (x.astype(np.float64) @ w.astype(np.float64))
    np.testing.assert_allclose(results(plain(), x=x, w=w)["y"], want, rtol=1e-5, atol=1e-4)


# ------------------------------------------------------------------------------------------------------------------- streams


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products that stream, of small tiles, however small they are."""
    for module, name, value in ((streams, "ENOUGH", 1), (streams, "DEEP", 1), (streams, "ROWS", 64), (streams, "COLUMNS", 16), (streams, "small_tile", lambda *_: None)):
        monkeypatch.setattr(module, name, value)


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles are large."""
    monkeypatch.setattr(streams, "small_tile", lambda *_: None)


@pytest.mark.usefixtures("little")
@pytest.mark.parametrize(("left", "right", "body", "einsum"), [
    ((70, 40), (40, 24), "sum[k < K](%x[i, k] * %w[k, j])", "ik,kj->ij"), ((40, 72), (24, 40), "sum[k < K](%x[k, i] * %w[j, k])", "ki,jk->ij"),
    ((70, 20), (20, 23), "sum[k < K](%x[i, k] * %w[k, j])", "ik,kj->ij"), ((70, 21), (21, 24), "sum[k < K](%x[i, k] * %w[k, j])", "ik,kj->ij"),
    ((21, 67), (22, 21), "sum[k < K](%x[k, i] * %w[j, k])", "ki,jk->ij")])
def test_products_that_stream(left: tuple[int, int], right: tuple[int, int], body: str, einsum: str) -> None:
    x, w, b = array("f16", *left), array("f16", *right), array("f16", right[einsum.split("->")[0].split(",")[1].index("j")])
    names = {"i": "M", "j": "N", "k": "K"}
    first, second = ("x".join(names[c] for c in part) for part in einsum.split("->")[0].split(","))
    text = op(f"%x: tensor<{first}xf16>, %w: tensor<{second}xf16>, %b: tensor<Nxf16> -> %y: tensor<MxNxf32>", f"%y[i, j] = max({body} + %b[j], 0)")
    program = built(text, HOPPER)
    assert [k.name for k in program.kernels] == ["f.y.copied.left", "f.y.copied.right", "f.y", "f.y.otherwise"]
    assert [k.resident for k in program.kernels] == [False, False, True, True]
    assert "contract %sums" in program_text(program)
    want = np.maximum(np.einsum(einsum, x.astype(np.float64), w.astype(np.float64)) + b, 0)
    np.testing.assert_allclose(run(program, {"x": x, "w": w, "b": b})["y"].astype(np.float64), want, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize(("result", "columns"), [("f16", 40), ("bf16", 37)])
@pytest.mark.usefixtures("little")
def test_narrow_results_that_threads_trade(monkeypatch: pytest.MonkeyPatch, result: str, columns: int) -> None:
    """Eight at a time where lines are multiples of that, else two."""
    monkeypatch.setattr(streams, "COLUMNS", 32)
    x, w = array("f16", 70, 40), array("f16", 40, columns)
    program = built(op(f"%x: tensor<MxKxf16>, %w: tensor<KxNxf16> -> %y: tensor<MxNx{result}>", "%y[i, j] = sum[k < K](%x[i, k] * %w[k, j])"), HOPPER)
    assert "trade %" in program_text(program)
    want = x.astype(np.float64) @ w.astype(np.float64)
    np.testing.assert_allclose(run(program, {"x": x, "w": w})["y"].astype(np.float64), want, rtol=2e-2 if result == "bf16" else 2e-3, atol=1e-2)


@pytest.mark.parametrize(("text", "arch"), [
    (plain(), Arch("cuda", 90)), (plain(), Arch("cuda", 100, "a")), (plain("f32", "f32"), HOPPER), (plain(value="(2 * %x[i, k]) * %w[k, j]"), HOPPER),
    (op("%x: tensor<40x40xf16>, %w: tensor<40x24xf16> -> %y: tensor<40x24xf32>", "%y[i, j] = sum[k < 40](%x[i, k] * %w[k, j])"), HOPPER),
    (op("%x: tensor<MxKx2xf16>, %w: tensor<KxNxf16> -> %y: tensor<MxNxf32>", "%y[i, j] = sum[k < K](%x[i, k, 0] * %w[k, j])"), HOPPER),
    (op("%x: tensor<Mx2xKxf16>, %w: tensor<KxNxf16> -> %y: tensor<MxNxf32>", "%y[i, j] = sum[k < K](%x[i, 1, k] * %w[k, j])"), HOPPER),
    (op("%x: tensor<Mx(N + 1)xf16>, %w: tensor<MxNxf16> -> %y: tensor<NxNxf32>", "%y[i, j] = sum[k < M](%x[k, i + 1] * %w[k, j])"), HOPPER)])
def test_products_that_do_not_stream(text: str, arch: Arch) -> None:
    assert "contract" not in program_text(built(text, arch))


@pytest.mark.usefixtures("large")
def test_bytes_are_turned_so_that_their_terms_lie_side_by_side() -> None:
    program = built(plain("i8", "u8", "i32"), HOPPER)
    assert [k.name for k in program.kernels] == ["f.y.copied.left", "f.y.turned.right", "f.y", "f.y.otherwise"]
    sizes = {b.name: form.evaluate(b.shape[0], {"M": 1000, "N": 500, "K": 64}) for b in program.temporaries}
    assert sizes == {"x.left.even": 0, "w.right.by_terms": 64 * 500, "maps": 8 * 3 * 32 + 16}


@pytest.mark.usefixtures("large")
def test_lines_that_do_not_follow_each_other_at_16_bytes_are_copied_so_that_they_do() -> None:
    program = built(plain(), HOPPER)
    for sizes, left, right in (((1000, 500, 64), 0, 64 * 504), ((1000, 504, 63), 1000 * 64, 0), ((1000, 501, 63), 1000 * 64, 63 * 504)):
        found = {b.name: form.evaluate(b.shape[0], dict(zip("MNK", sizes, strict=True))) for b in program.temporaries}
        assert (found["x.left.even"], found["w.right.even"]) == (left, right)
    known = built(plain().replace("KxN", "Kx512").replace("MxN", "Mx512"), HOPPER)
    assert [k.name for k in known.kernels] == ["f.y.copied.left", "f.y", "f.y.otherwise"]


def test_the_maps_of_all_blocks_have_room() -> None:
    maps = next(b for b in built(plain(), HOPPER).temporaries if b.name == "maps")
    assert form.evaluate(maps.shape[0], {"M": 1000, "N": 500, "K": 64}) == 8 * 3 * 32 + 16


# --------------------------------------------------------------------------------------------------------------------- rules


def test_a_fragment_needs_its_threads() -> None:
    from pipelink_ir.backends.loops.check import check_program
    program = built(plain())
    kernel = program.kernels[0]
    fewer = form.Kernel(kernel.name, kernel.buffers, kernel.symbols, kernel.scalars, kernel.body, device="gpu", threads=kernel.threads - 32 or 64)
    with pytest.raises(InternalError, match="does not fit"):
        check_program(form.Program(program.name, (fewer,), program.operands, program.results, program.temporaries, program.symbols, program.scalars, ()))
