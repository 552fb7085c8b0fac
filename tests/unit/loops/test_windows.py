"""Stencils and gathers in runs of neighbouring places: what their kernels look like, and what they compute at sizes that are whole runs and at those that are
not. Expected values are those of SciPy and NumPy in float64."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.ndimage

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.gpu.build import build_gpu
from pipelink_ir.backends.loops.print import program_text
from pipelink_ir.grammar import parse
from pipelink_ir.passes.infer.operator import typed_operator
from pipelink_ir.passes.scheduling.windows import window_of
from tests.unit.loops.programs import op, results

RNG = np.random.default_rng(7)
MODES = {"replicate": "nearest", "reflect": "reflect", "reflect101": "mirror", "wrap": "wrap", "constant(2)": "constant"}
SIZES = ((1, 1), (2, 5), (5, 8), (4, 16), (7, 13), (8, 4))


def built(text: str) -> form.Program:
    return build_gpu(typed_operator(parse(text, "test.plir").operators[0]))


def moves(program: form.Program) -> list[tuple[bool, int]]:
    """The wide accesses of a program: whether each loads, and how much."""
    found: list[tuple[bool, int]] = []

    def walk(block: form.Block) -> None:
        for s in block:
            if isinstance(s, form.Move):
                found.append((s.source in {"x", "k"}, s.count))
            elif isinstance(s, form.For):
                walk(s.body)
            elif isinstance(s, form.If):
                walk(s.then)
                walk(s.other)

    for k in program.kernels:
        walk(k.body)
    return found


def window(down: int, across: int) -> str:
    """A weighted sum over a window of so many places to each side."""
    terms = [f"{1 + (3 * i + 5 * j) % 7} * %x[{_at('h', i)}, {_at('w', j)}]" for i in range(-down, down + 1) for j in range(-across, across + 1)]
    return " + ".join(terms)


def _at(name: str, by: int) -> str:
    return f"{name} {'-' if by < 0 else '+'} {abs(by)}"


def weights(down: int, across: int) -> Any:
    return np.array([[1 + (3 * i + 5 * j) % 7 for j in range(-across, across + 1)] for i in range(-down, down + 1)], np.float64)


@pytest.mark.parametrize("border", MODES)
@pytest.mark.parametrize(("down", "across"), [(1, 1), (0, 2), (2, 0)])
def test_windows_with_borders(border: str, down: int, across: int) -> None:
    text = op("%x: tensor<HxWxf32> -> %y: tensor<HxWxf32>", f"%y[h, w] = {window(down, across)}", f"memory {{ border = {border} }}")
    for shape in SIZES:
        x = RNG.standard_normal(shape).astype(np.float32)
        # SciPy's modes repeat beyond small arrays as the language does, so one call does for every size.
        want = scipy.ndimage.correlate(x.astype(np.float64), weights(down, across), mode=MODES[border], cval=2.0)
        np.testing.assert_allclose(results(text, x=x)["y"], want, rtol=1e-4, atol=1e-4)


def test_neighbours_share_what_they_load() -> None:
    p = built(op("%x: tensor<HxWxf32> -> %y: tensor<HxWxf32>", f"%y[h, w] = {window(1, 1)}", "memory { border = replicate }"))
    found = moves(p)
    assert sorted(found) == [(False, 4)] * 8 + [(True, 4)] * 10          # eight rows of results from ten rows


def test_pixels_of_three_channels_move_in_whole_words() -> None:
    p = built(op("%x: tensor<HxWx3xf32> -> %y: tensor<HxWxf32>", "%y[h, w] = mean[c < 3](%x[h, w - 1, c] + %x[h, w + 1, c])", "memory { border = wrap }"))
    assert sorted(moves(p)) == [(False, 4)] + [(True, 4)] * 3


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 3, 5, 8), (1, 2, 9, 16), (1, 7, 3, 11)])
def test_depthwise(shape: tuple[int, int, int, int]) -> None:
    text = op("%x: tensor<NxCxHxWxf16>, %k: tensor<Cx3x3xf16> -> %y: tensor<NxCxHxWxf16>",
              "%y[n, c, h, w] = sum[i < 3, j < 3](%x[n, c, h + i - 1, w + j - 1] * %k[c, i, j])", "memory { border = constant(0) }")
    x, k = RNG.standard_normal(shape).astype(np.float16), RNG.standard_normal((shape[1], 3, 3)).astype(np.float16)
    p = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    want = sum(p[:, :, i:i + shape[2], j:j + shape[3]] * k[None, :, i, j, None, None].astype(np.float64) for i in range(3) for j in range(3))
    np.testing.assert_allclose(results(text, x=x, k=k)["y"].astype(np.float64), want, rtol=2e-3, atol=2e-3)


def test_the_names_and_the_order_of_definitions_do_not_matter() -> None:
    def texts(a: str, b: str, swap: bool) -> str:
        lines = [f"%{a}[h, w] = %x[h, w - 1] + %x[h, w + 1]", f"%{b}[h, w] = %x[h - 1, w] + %x[h + 1, w]"]
        both = "\n".join(lines[::-1] if swap else lines)
        return op("%x: tensor<HxWxf32> -> %y: tensor<HxWxf32>", f"{both}\n%y[h, w] = %{a}[h, w] * %{b}[h, w]", "memory { border = reflect }")

    plain = moves(built(texts("a", "b", False)))
    assert (True, 4) in plain
    for a, b, swap in (("z", "q", False), ("a", "b", True), ("b", "a", True)):
        assert moves(built(texts(a, b, swap))) == plain


def test_work_that_is_too_large_to_be_written_out_is_not() -> None:
    value = " + ".join(f"exp(sin(%x[h + {i}, w + {j}]) ** 3.5)" for i in range(6) for j in range(6))
    p = built(op("%x: tensor<HxWxf32> -> %y: tensor<HxWxf32>", f"%y[h, w] = {value}", "memory { border = wrap }"))
    assert len(program_text(p)) < 400_000


def test_a_gather_takes_all_channels_from_one_place() -> None:
    text = op("%x: tensor<HxWx3xu8>, %p: tensor<Mxi32>, %q: tensor<Mxi32> -> %y: tensor<3xMxf32>",
              "%y[c, m] = f32(%x[%p[m], %q[m], c]) / 255", "memory { border = replicate }")
    # Each index is loaded once, for three channels: by words, and where the image is no whole number of them.
    assert program_text(built(text)).count("%p[") == 2
    assert "x 3 anywhere" in program_text(built(text))
    for shape in ((5, 7, 3), (4, 6, 3), (1, 8, 3)):
        x = RNG.integers(0, 256, shape).astype(np.uint8)
        p, q = RNG.integers(-2, 8, 11).astype(np.int32), RNG.integers(-2, 9, 11).astype(np.int32)
        want = x[p.clip(0, shape[0] - 1), q.clip(0, shape[1] - 1)].T.astype(np.float64) / 255
        np.testing.assert_allclose(results(text, x=x, p=p, q=q)["y"], want, rtol=1e-6)


@pytest.mark.parametrize(("dtype", "channels", "parts"), [("u8", 3, {6, 3}), ("i8", 4, {8, 4}), ("u16", 2, {4, 2}), ("f16", 3, {3}), ("u8", 4, {8, 4})])
@pytest.mark.parametrize("border", ["replicate", "wrap"])
def test_two_places_that_may_follow_each_other(dtype: str, channels: int, parts: set[int], border: str) -> None:
    text = op(f"%x: tensor<Wx{channels}x{dtype}>, %p: tensor<Mxi32> -> %y: tensor<{channels}xMxf32>",
              "%y[c, m] = f32(%x[%p[m], c]) + 2 * f32(%x[%p[m] + 1, c])", f"memory {{ border = {border} }}")
    taken = {int(line.split(" x ")[1].split()[0]) for line in program_text(built(text)).splitlines() if line.endswith(" anywhere")}
    assert taken == (parts if border == "replicate" else {min(parts)})
    for n in (1, 2, 5, 8, 16):
        x = RNG.integers(0, 100, (n, channels)).astype({"f16": np.float16, "i8": np.int8, "u16": np.uint16}.get(dtype, np.uint8))
        p = np.arange(-3, n + 3, dtype=np.int32)
        first, second = (np.clip(q, 0, n - 1) if border == "replicate" else q % n for q in (p, p + 1))
        np.testing.assert_array_equal(results(text, x=x, p=p)["y"], x[first].T.astype(np.float64) + 2.0 * x[second].T)


def test_a_small_axis_beside_the_window_that_is_not_known() -> None:
    text = op("%x: tensor<HxWxCxf32> -> %y: tensor<HxWxCxf32>", "%y[h, w, c] = %x[h, w - 1, c] + 2 * %x[h, w, c] + %x[h, w + 1, c]", "memory { border = reflect }")
    for shape in ((3, 9, 3), (2, 8, 4), (1, 1, 1), (2, 11, 8), (2, 3, 7)):
        x = RNG.standard_normal(shape).astype(np.float32)
        want = scipy.ndimage.correlate1d(x.astype(np.float64), [1, 2, 1], 1, mode="reflect")
        np.testing.assert_allclose(results(text, x=x)["y"], want, rtol=1e-5, atol=1e-5)


def test_strides_and_valid_boxes() -> None:
    pool = op("%x: tensor<HxWxf32> -> %y: tensor<(H floordiv 2)x(W floordiv 2)xf32>", "%y[h, w] = max[i < 2, j < 2](%x[2 * h + i, 2 * w + j])")
    x = RNG.standard_normal((6, 16)).astype(np.float32)
    np.testing.assert_array_equal(results(pool, x=x)["y"], x.reshape(3, 2, 8, 2).max((1, 3)))


def test_an_axis_of_a_size_that_is_no_run() -> None:
    text = op("%x: tensor<HxWx7xu8> -> %y: tensor<HxWx7xf32>", "%y[h, w, c] = f32(%x[h - 1, w, c]) - f32(%x[h + 1, w - 2, c])", "memory { border = replicate }")
    for shape in ((1, 1, 7), (5, 9, 7), (8, 8, 7)):
        x = RNG.integers(0, 256, shape).astype(np.uint8)
        p = np.pad(x.astype(np.float64), ((1, 1), (2, 2), (0, 0)), mode="edge")
        np.testing.assert_array_equal(results(text, x=x)["y"], p[:-2, 2:-2] - p[2:, :-4])


@pytest.mark.parametrize("shape", [(4, 19, 24), (3, 17, 13), (4, 8, 7)])
def test_pictures_of_a_batch_are_computed_apart(shape: tuple[int, int, int]) -> None:
    """A first axis of few places counts pictures, which share nothing: each run belongs to one, whether rows are whole runs or not."""
    size = "x".join(map(str, shape))
    text = op(f"%x: tensor<{size}xf32> -> %y: tensor<{size}xf32>", f"%y[n, h, w] = {window(1, 2).replace('%x[', '%x[n, ')}", "memory { border = replicate }")
    typed = typed_operator(parse(text, "test.plir").operators[0])
    found = window_of(typed, lambda _: False, typed.tensors["y"].pieces[0])
    assert found is None or not found.whole
    x = RNG.standard_normal(shape).astype(np.float32)
    want = np.stack([scipy.ndimage.correlate(p.astype(np.float64), weights(1, 2), mode="nearest") for p in x])
    np.testing.assert_allclose(results(text, x=x)["y"], want, rtol=1e-4, atol=1e-4)


OF_BYTES = [("i8", "i8", "NHWC", (4, 8, 8)), ("u8", "i8", "NHWC", (5, 7, 16)), ("i8", "u8", "NHWC", (3, 16, 3)), ("u8", "u8", "NHWC", (4, 8, 8)),
            ("i8", "i8", "NCHW", (5, 7, 16)), ("u8", "i8", "NCHW", (3, 16, 3)), ("i8", "u8", "NCHW", (4, 8, 8)), ("u8", "u8", "NCHW", (5, 7, 16))]
"""All dtypes in each layout, and all sizes in each."""


@pytest.mark.parametrize(("x", "k", "layout", "size"), OF_BYTES, ids=str)
def test_products_of_bytes_are_added_by_fours(x: str, k: str, layout: str, size: tuple[int, int, int]) -> None:
    h, w, c = size
    at = ("1, h, w, c", "1, h + i - 1, w + j - 1, c", "HxWxC") if layout == "NHWC" else ("1, c, h, w", "1, c, h + i - 1, w + j - 1", "CxHxW")
    dims, place, read = f"2x{at[2]}", at[0].replace("1", "n", 1), at[1].replace("1", "n", 1)
    text = op(f"%x: tensor<{dims}x{x}>, %k: tensor<3x3xCx{k}> -> %y: tensor<{dims}xi32>", f"%y[{place}] = sum[i < 3, j < 3](%x[{read}] * %k[i, j, c]) + 5",
              "memory { border = constant(7) }")
    info = {"i8": np.int8, "u8": np.uint8}
    a, b = (RNG.integers(np.iinfo(info[d]).min, np.iinfo(info[d]).max + 1, n).astype(info[d]) for d, n in ((x, (2, h, w, c)), (k, (3, 3, c))))
    padded = np.pad(a.astype(np.int64), ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=7)
    want = sum(padded[:, i:i + h, j:j + w] * b[i, j].astype(np.int64) for i in range(3) for j in range(3)) + 5
    assert any(f"dot_{a}{b}(" in program_text(built(text)) for a, b in ((x, k), (k, x)) for a, b in ((a[0].replace("i", "s"), b[0].replace("i", "s")),))
    given = a if layout == "NHWC" else a.transpose(0, 3, 1, 2)
    got = results(text, x=given, k=b)["y"]
    assert np.array_equal(got if layout == "NHWC" else got.transpose(0, 2, 3, 1), want)
