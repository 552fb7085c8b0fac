"""Images as inputs and results, with Pillow making and reading the files."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pipelink_ir.ir.diagnostics import ProgramError, UsageError
from pipelink_ir.ir.nodes import Dots, Expr, IntLit, Name, Operand, TensorType
from pipelink_ir.runtime.images import ImageOptions, Misfit, check_image_result, encode_image, read_image, split_options

RGB = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3) * 10
GRAY = np.array([[0, 51, 255], [1, 2, 3]], np.uint8)
UNIT = ImageOptions(scale="unit")
NONE = ImageOptions()


def operand(dims: str, dtype: str = "u8", layout: str | None = None) -> Operand:
    def dim(text: str) -> Expr:
        return Dots() if text == "..." else IntLit(int(text)) if text.isdigit() else Name(text)
    return Operand("img", TensorType(tuple(map(dim, dims.split())), dtype, layout))


@pytest.fixture
def photo(tmp_path: Path) -> Any:
    def make(array: Any, name: str = "photo.png", mode: str | None = None) -> str:
        image = Image.fromarray(array)
        (image.convert(mode) if mode else image).save(tmp_path / name)
        return str(tmp_path / name)
    return make


@pytest.mark.parametrize(("dims", "layout", "expected"), [
    ("H W 3", None, RGB), ("N H W 3", "NHWC", RGB[None]), ("N H W C", None, RGB[None]), ("1 3 H W", "NCHW", RGB.transpose(2, 0, 1)[None]),
    ("C H W", None, RGB.transpose(2, 0, 1)), ("3 H W", "CHW", RGB.transpose(2, 0, 1)), ("...", None, RGB), ("... 3", None, RGB), ("A B C2", None, RGB),
    ("N C H W", None, RGB.transpose(2, 0, 1)[None]),
])
def test_colour_as_the_signature_wants_it(photo: Any, dims: str, layout: str | None, expected: Any) -> None:
    got = read_image(photo(RGB), operand(dims, "u8", layout), NONE)
    assert got.flags.c_contiguous
    np.testing.assert_array_equal(got, expected, strict=True)


@pytest.mark.parametrize(("dims", "layout", "expected"), [
    ("H W", None, GRAY), ("H W 1", None, GRAY[..., None]), ("H W C", None, GRAY[..., None]), ("N H W 1", "NHWC", GRAY[None, ..., None]),
    ("N H W", "NHW", GRAY[None]), ("N H W", None, GRAY[None]), ("N 1 H W", "NCHW", GRAY[None, None]), ("...", None, GRAY),
])
def test_grey_gets_and_loses_its_channel(photo: Any, dims: str, layout: str | None, expected: Any) -> None:
    np.testing.assert_array_equal(read_image(photo(GRAY), operand(dims, "u8", layout), NONE), expected, strict=True)


def test_values_are_scaled_only_when_asked(photo: Any) -> None:
    path = photo(GRAY)
    with pytest.raises(Misfit, match="not scaled silently") as caught:
        read_image(path, operand("H W", "f32"), NONE)
    assert ":unit" in caught.value.help
    unit = read_image(path, operand("H W", "f32"), UNIT)
    np.testing.assert_array_equal(unit, (GRAY / 255.0).astype(np.float32), strict=True)
    raw = read_image(path, operand("H W", "f16"), ImageOptions(scale="raw"))
    np.testing.assert_array_equal(raw, GRAY.astype(np.float16), strict=True)
    with pytest.raises(Misfit, match="float dtype"):
        read_image(path, operand("H W", "u8"), UNIT)


def test_sixteen_bits_and_one_bit(photo: Any) -> None:
    deep = np.array([[0, 65535, 258]], np.uint16)
    path = photo(deep, "deep.png")
    np.testing.assert_array_equal(read_image(path, operand("H W", "u16"), NONE), deep, strict=True)
    np.testing.assert_array_equal(read_image(path, operand("H W", "f32"), UNIT), (deep / 65535.0).astype(np.float32), strict=True)
    one = np.array([[True, False]])
    np.testing.assert_array_equal(read_image(photo(one, "one.png"), operand("H W", "bool"), NONE), one, strict=True)


def test_channels_are_converted_only_when_asked(photo: Any) -> None:
    rgba = np.dstack([RGB, np.full((2, 3), 7, np.uint8)])
    path = photo(rgba, "alpha.png")
    with pytest.raises(Misfit, match="has 4 channels, and '%img' has 3") as caught:
        read_image(path, operand("H W 3"), NONE)
    assert caught.value.help.endswith("alpha.png:rgb'")
    np.testing.assert_array_equal(read_image(path, operand("H W 3"), ImageOptions(mode="rgb")), RGB, strict=True)
    with pytest.raises(Misfit, match="has 1 channel, and '%img' has 3"):
        read_image(photo(GRAY), operand("H W 3"), NONE)
    same = read_image(photo(GRAY), operand("H W 3"), ImageOptions(mode="rgb"))
    np.testing.assert_array_equal(same, np.repeat(GRAY[..., None], 3, 2), strict=True)
    with pytest.raises(Misfit, match="no channel axis"):
        read_image(photo(RGB), operand("H W"), NONE)


def test_palettes_are_colours(photo: Any) -> None:
    flat = np.full((2, 2, 3), 204, np.uint8)     # a colour of the palette
    np.testing.assert_array_equal(read_image(photo(flat, "p.png", "P"), operand("H W 3"), NONE), flat, strict=True)


@pytest.mark.parametrize(("dims", "layout"), [("W", None), ("A B C D E", None), ("N D H W C", "NDHWC")])
def test_what_is_no_image(photo: Any, dims: str, layout: str | None) -> None:
    with pytest.raises(Misfit, match="not an image"):
        read_image(photo(GRAY), operand(dims, "u8", layout), NONE)


def test_a_file_that_is_no_image(tmp_path: Path) -> None:
    (tmp_path / "x.png").write_bytes(b"hello")
    with pytest.raises(ProgramError, match="not an image"):
        read_image(str(tmp_path / "x.png"), operand("H W"), NONE)
    whole = tmp_path / "y.png"
    Image.fromarray(np.zeros((64, 64), np.uint8)).save(whole)
    whole.write_bytes(whole.read_bytes()[:60])
    with pytest.raises(ProgramError, match="not an image"):
        read_image(str(whole), operand("H W"), NONE)


@pytest.mark.parametrize(("text", "path", "options"), [
    ("a.png", "a.png", NONE), ("a.png:unit", "a.png", UNIT), ("a:b.png", "a:b.png", NONE), ("C:/x/a.png:raw,rgb", "C:/x/a.png", ImageOptions("raw", "rgb")),
    ("a.png:unitt", "a.png:unitt", NONE), ("a.png:", "a.png:", NONE),
])
def test_options_after_the_path(text: str, path: str, options: ImageOptions) -> None:
    assert split_options(text) == (path, options)


def test_contradicting_options() -> None:
    with pytest.raises(UsageError):
        split_options("a.png:unit,raw")


def written(tmp_path: Path, array: Any, result: Operand, options: ImageOptions = NONE, name: str = "o.png") -> Any:
    (tmp_path / name).write_bytes(encode_image(name, array, result, options))
    return np.asarray(Image.open(tmp_path / name))


@pytest.mark.parametrize(("dims", "layout", "array", "expected"), [
    ("H W", None, GRAY, GRAY), ("H W 1", None, GRAY[..., None], GRAY), ("N H W C", "NHWC", RGB[None], RGB),
    ("N 3 H W", "NCHW", RGB.transpose(2, 0, 1)[None], RGB), ("...", None, RGB, RGB),
])
def test_results_as_images(tmp_path: Path, dims: str, layout: str | None, array: Any, expected: Any) -> None:
    np.testing.assert_array_equal(written(tmp_path, array, operand(dims, "u8", layout)), expected)


def test_float_results_round_and_saturate(tmp_path: Path) -> None:
    values = np.array([[0, 0.5, 0.9999, 1, 1.2, -0.1, np.nan, np.inf, -np.inf]], np.float32)
    assert written(tmp_path, values, operand("H W", "f32"), UNIT).tolist() == [[0, 128, 255, 255, 255, 0, 0, 255, 0]]
    raw = np.array([[0.5, 1.5, 254.6, 300]], np.float32)
    assert written(tmp_path, raw, operand("H W", "f32"), ImageOptions("raw")).tolist() == [[0, 2, 255, 255]]


def test_float_results_need_a_promise() -> None:
    with pytest.raises(Misfit, match=r"nothing promises that it lies in \[0, 1\]"):
        check_image_result("o.png", operand("H W", "f32"), "f32", NONE, unit=False)
    check_image_result("o.png", operand("H W", "f32"), "f32", NONE, unit=True)
    check_image_result("o.png", operand("H W", "f32"), "f32", UNIT, unit=False)
    with pytest.raises(Misfit, match="is i32"):
        check_image_result("o.png", operand("H W", "i32"), "i32", NONE, unit=False)
    with pytest.raises(Misfit, match="is u16"):
        check_image_result("o.jpg", operand("H W", "u16"), "u16", NONE, unit=False)


def test_results_that_are_no_single_image() -> None:
    with pytest.raises(Misfit, match="holds 2 images"):
        encode_image("o.png", np.zeros((2, 4, 4, 3), np.uint8), operand("N H W C"), NONE)
    with pytest.raises(Misfit, match="has 5 channels"):
        encode_image("o.png", np.zeros((4, 4, 5), np.uint8), operand("H W C"), NONE)
    with pytest.raises(Misfit, match="at least one pixel"):
        encode_image("o.png", np.zeros((0, 4), np.uint8), operand("H W"), NONE)


def test_deep_and_binary_results(tmp_path: Path) -> None:
    deep = np.array([[0, 65535, 258]], np.uint16)
    assert written(tmp_path, deep, operand("H W", "u16")).tolist() == deep.tolist()
    one = np.array([[True, False]])
    assert written(tmp_path, one, operand("H W", "bool")).tolist() == one.tolist()


def test_jpeg_is_near(tmp_path: Path) -> None:
    flat = np.full((16, 16, 3), 120, np.uint8)
    got = written(tmp_path, flat, operand("H W 3"), name="o.jpg")
    assert np.abs(got.astype(int) - 120).max() <= 2
