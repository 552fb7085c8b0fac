"""Tiles of stencils whose operands are brought to shared memory, with what their borders answer: odd sizes, borders, channels and dtypes, on the emulated GPU,
which finds shared memory that nobody wrote; against SciPy and NumPy in f64."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.ndimage

import pipelink_ir as pl
from pipelink_ir.ir.diagnostics import ProgramError
from pipelink_ir.ir.dtypes import F32
from tests.unit.cuda_emulated.test_tiles import tiles

TARGET = "cuda-emulated"
MODES = {"replicate": "nearest", "reflect": "reflect", "reflect101": "mirror", "wrap": "wrap", "constant(2)": "constant"}
SIZES = ((1, 1), (3, 5), (7, 33), (66, 68), (9, 1021))
TYPES = {"u8": np.uint8, "f16": np.float16, "f32": np.float32}


def correlated(x: Any, k: Any, border: str) -> Any:
    """Each channel by itself."""
    planes = [scipy.ndimage.correlate(x[..., c].astype(np.float64), k.astype(np.float64), mode=MODES[border], cval=2) for c in range(x.shape[-1])]
    return np.stack(planes, -1)


def picture(shape: tuple[int, ...], dtype: str) -> Any:
    x = np.random.default_rng(sum(shape)).random(shape)
    return (x * (255 if dtype == "u8" else 1)).astype(TYPES[dtype])


def near(got: Any, want: Any, tolerance: float = 3e-6) -> None:
    np.testing.assert_allclose(np.asarray(got).astype(np.float64), want, rtol=0, atol=tolerance * max(1.0, float(np.abs(want).max())))


# ---------------------------------------------------------------------------------------------------------------- two in a chain


def chain(border: str, shape: str, dtype: str, out: str) -> str:
    return "".join(f"""op @blur{number}(%x: tensor<{shape}x{own}>, %k: tensor<3x5xf32>) -> (%y: tensor<{shape}xf32>) {{
      memory {{ border = {border} }}
      compute {{ %y[h, w, c] = sum[i < 3, j < 5](f32(%x[h + i - 1, w + j - 2, c]) * %k[i, j]) }} }}
    """ for number, own in ((1, dtype), (2, "f32"))) + f"""pipeline @p(%x: tensor<{out}x{dtype}>, %k: tensor<3x5xf32>) -> (%y: tensor<{out}xf32>) {{
      %a = @blur1(%x, %k)
      %y = @blur2(%a, %k) }}"""


CASES = [(border, channels, dtype) for b, border in enumerate(MODES) for channels, dtype in
         ((1, ("f32", "u8", "f16")[b % 3]), (2, ("u8", "f16", "f32")[b % 3]), (3, ("f32", "u8", "f16")[b % 3]), (4, ("f16", "f32", "u8")[b % 3]))]


@pytest.mark.parametrize(("border", "channels", "dtype"), CASES)
def test_chains_of_any_size(border: str, channels: int, dtype: str) -> None:
    p = pl.compile(chain(border, f"HxWx{channels}", dtype, f"HxWx{channels}"), target=TARGET)
    if border != "wrap":
        assert [(len(t.brought), len(t.stages), t.free) for t in tiles(p)] == [(1, 1, True)]
    k = np.random.default_rng(5).random((3, 5)).astype(np.float32)
    k /= k.sum()
    for size in SIZES:
        x = picture((*size, channels), dtype)
        near(p(x=x, k=k).y, correlated(correlated(x, k, border), k, border))


@pytest.mark.parametrize("channels", [1, 3])
def test_an_unknown_number_of_channels(channels: int) -> None:
    p = pl.compile(chain("reflect101", "HxWxC", "f32", "HxWxC"), target=TARGET)
    assert [t.free for t in tiles(p)] == [True]
    k = np.random.default_rng(6).random((3, 5)).astype(np.float32)
    for size in SIZES:
        x = picture((*size, channels), "f32")
        near(p(x=x, k=k).y, correlated(correlated(x, k, "reflect101"), k, "reflect101"))


def test_memory_is_used_again() -> None:
    """Three blurs have the memory of two pictures: the second one is written where the first operand was."""
    text = chain("replicate", "HxWx1", "f32", "HxWx1").replace("%y = @blur2(%a, %k) }", "%b = @blur2(%a, %k)\n      %y = @blur2(%b, %k) }")
    p = pl.compile(text, target=TARGET)
    (way,) = tiles(p)
    pieces, chosen = way.slots(lambda _: F32)
    assert (len(way.brought), len(way.stages), len(pieces)) == (1, 2, 2)
    assert chosen == (0, 1, 0)
    k = np.random.default_rng(7).random((3, 5)).astype(np.float32)
    k /= k.sum()
    x = picture((200, 300, 1), "f32")
    near(p(x=x, k=k).y, correlated(correlated(correlated(x, k, "replicate"), k, "replicate"), k, "replicate"))


# -------------------------------------------------------------------------------------------------------------- what is read beside

BESIDE = {
    # The first operand again, and another one that is read at its own place alone.
    "sharper": ("%x[h, w] + 0.5 * (%x[h, w] - sum[i < 3, j < 3](%a[h + i - 1, w + j - 1]) / 9) * %m[h, w]", True),
    # A local that is evaluated where it is read, through a border that answers places near by.
    "between": ("sum[i < 3, j < 3](%a[h + i - 1, w + j - 1]) / 9 + %m[h, w]", True),
    # Something is asked before it is read.
    "guarded": ("select(h > 0, %a[max(h - 1, 0), w], 0) + %a[h, w] + %a[h, w + 1] + %m[h, w]", None),
}


@pytest.mark.parametrize("border", ["replicate", "reflect101", "constant(2)"])
@pytest.mark.parametrize("name", BESIDE)
def test_what_is_read_beside(name: str, border: str) -> None:
    value, free = BESIDE[name]
    text = f"""op @f(%x: tensor<HxWxf32>, %m: tensor<HxWxf32>) -> (%y: tensor<HxWxf32>) {{
      memory {{ %x {{ border = {border} }}, %a {{ border = {border} }}, %l {{ border = {border} }} }}
      compute {{
        %l[h < H, w < W] = %x[h, w] * 2
        %a[h < H, w < W] = sum[i < 5, j < 5](%l[h + i - 2, w + j - 2]) / 25
        %y[h, w] = {value} }} }}
    pipeline @p(%x: tensor<HxWxf32>, %m: tensor<HxWxf32>) -> (%y: tensor<HxWxf32>) {{ %y = @f(%x, %m) }}"""
    p = pl.compile(text, target=TARGET)
    if free is not None and border != "reflect101":
        assert [t.free for t in tiles(p)] == [free]
    for size in SIZES:
        x, m = picture(size, "f32"), picture((size[0], size[1] + 1), "f32")[:, 1:].copy()
        wide = np.full((5, 5), 1 / 25)
        a = correlated(2 * x[..., None].astype(np.float64), wide, border)[..., 0]
        around = correlated(a[..., None], np.full((3, 3), 1 / 9), border)[..., 0]
        if name == "sharper":
            want = x + 0.5 * (x - around) * m
        elif name == "between":
            want = around + m
        else:
            right = correlated(a[..., None], np.array([[0, 0, 1.0]]), border)[..., 0]
            above = np.concatenate([np.zeros((1, size[1])), a[:-1]])
            want = above + a + right + m
        near(p(x=x, m=m).y, want)


# ----------------------------------------------------------------------------------------------------------------- one stencil alone

SOBEL = """op @sobel(%x: tensor<HxWx3x{t}>) -> (%y: tensor<HxWx{out}xf32>) {{
  memory {{ border = {border} }}
  schedule {{ %y {{ map = tile }} }}
  compute {{
    %gx[h < H, w < W, c < 3] = f32(%x[h - 1, w + 1, c]) + 2 * f32(%x[h, w + 1, c]) + f32(%x[h + 1, w + 1, c])
      - f32(%x[h - 1, w - 1, c]) - 2 * f32(%x[h, w - 1, c]) - f32(%x[h + 1, w - 1, c])
    %gy[h < H, w < W, c < 3] = f32(%x[h + 1, w - 1, c]) + 2 * f32(%x[h + 1, w, c]) + f32(%x[h + 1, w + 1, c])
      - f32(%x[h - 1, w - 1, c]) - 2 * f32(%x[h - 1, w, c]) - f32(%x[h - 1, w + 1, c])
    {result} }} }}
pipeline @p(%x: tensor<HxWx3x{t}>) -> (%y: tensor<HxWx{out}xf32>) {{ %y = @sobel(%x) }}
"""
EACH = "%y[h, w, c] = sqrt(%gx[h, w, c] ** 2 + %gy[h, w, c] ** 2)"
MEAN = "%y[h, w, 0] = mean[c < 3](sqrt(%gx[h, w, c] ** 2 + %gy[h, w, c] ** 2))"


def sobel(x: Any, border: str) -> Any:
    gx = np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]])
    return np.hypot(correlated(x, gx, border), correlated(x, gx.T, border))


@pytest.mark.parametrize("border", MODES)
@pytest.mark.parametrize(("dtype", "result"), [("f32", MEAN), ("f32", EACH), ("f16", EACH), ("u8", MEAN)])
def test_one_stencil_over_channels_side_by_side(dtype: str, result: str, border: str) -> None:
    out = 1 if result is MEAN else 3
    p = pl.compile(SOBEL.format(t=dtype, out=out, border=border, result=result), target=TARGET)
    assert [(len(t.brought), len(t.stages), t.free) for t in tiles(p)] == [(1, 0, True)]
    for size in SIZES:
        x = picture((*size, 3), dtype)
        want = sobel(x, border)
        near(p(x=x).y, want.mean(-1, keepdims=True) if out == 1 else want)


def test_a_tile_that_is_asked_for_stages_operands_alone() -> None:
    text = SOBEL.format(t="u8", out=3, border="replicate", result=EACH).replace("map = tile ", "map = tile(16, 32) ")
    p = pl.compile(text, target=TARGET)
    assert [(t.tile, len(t.brought), len(t.stages)) for t in tiles(p)] == [((16, 32), 1, 0)]
    x = picture((37, 130, 3), "u8")
    near(p(x=x).y, sobel(x, "replicate"))


def test_what_reads_nothing_beside_its_place_has_no_tiles() -> None:
    text = """op @f(%x: tensor<HxWxf32>) -> (%y: tensor<HxWxf32>) { schedule { %y { map = tile } } compute { %y[h, w] = %x[h, w] * 2 } }
    pipeline @p(%x: tensor<HxWxf32>) -> (%y: tensor<HxWxf32>) { %y = @f(%x) }"""
    with pytest.raises(ProgramError, match="nothing that a kernel of the kind 'tile' computes"):
        pl.compile(text, target=TARGET)
