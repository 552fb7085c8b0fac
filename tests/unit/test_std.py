"""Every operator of the library on both backends, against NumPy or SciPy in float64 and tables from published bug reports."""
from __future__ import annotations

import functools
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import scipy.ndimage
import scipy.special

import pipelink_ir
from pipelink_ir.ir.dtypes import DTYPES, from_numpy
from tests.emulated import EMULATED

Array = np.ndarray[Any, Any]
TARGETS = ["reference", "cpu", EMULATED]
pytestmark = pytest.mark.parametrize("target", TARGETS)


@functools.cache
def _compiled(text: str, target: str) -> Any:
    return pipelink_ir.compile(text, target=target)


def call(target: str, op: str, inputs: Mapping[str, Array], result: str, attrs: str = "", layout: str = "") -> Array:
    """Run one operator on arrays. `result` is the type of its result; inputs of the layout's rank are given that layout."""
    def type_of(a: Array) -> str:
        dtype = from_numpy(a.dtype)
        assert dtype is not None
        dims = "".join(f"{n}x" for n in a.shape)
        return f"tensor<{dims}{dtype.name}{f', {layout}' if layout and a.ndim == len(layout) else ''}>"

    module = op.rpartition(".")[0]
    imports = f"import {module}\n" if module != "std" else ""
    params = ", ".join(f"%{n}: {type_of(a)}" for n, a in inputs.items())
    text = f"{imports}pipeline @main({params}) -> (%result: {result}) {{\n  %result = @{op}({', '.join('%' + n for n in inputs)}) {{{attrs}}}\n}}\n"
    if not attrs:
        text = text.replace(" {}", "")
    return np.asarray(_compiled(text, target)(**inputs)["result"])


def image(call_target: str, op: str, x: Array, out: tuple[int, ...], dtype: str = "f32", attrs: str = "") -> Array:
    """One NHWC image through an operator of std.image."""
    dims = "".join(f"{n}x" for n in out)
    return call(call_target, f"std.image.{op}", {"x": x}, f"tensor<{dims}{dtype}, NHWC>", attrs, "NHWC")


def close(got: Array, want: Any, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    np.testing.assert_allclose(np.asarray(got, np.float64), np.asarray(want, np.float64), rtol=rtol, atol=atol)


def flat(x: Any, dtype: Any = np.float32) -> Array:
    return np.asarray(x, dtype)


# ----------------------------------------------------------------------------------------------------------------- built-ins


@pytest.mark.parametrize("name", sorted(DTYPES))
def test_copy_keeps_every_value(target: str, name: str) -> None:
    dtype = DTYPES[name].numpy()
    values = np.arange(256, dtype=np.uint8).view(dtype) if DTYPES[name].bits == 8 and name != "bool" else np.array([0, 1, 1, 0, 1], dtype)
    got = call(target, "std.copy", {"x": values}, f"tensor<{values.size}x{name}>")
    assert got.dtype == dtype
    np.testing.assert_array_equal(got.astype(np.float64), values.astype(np.float64))


def test_cast_from_float_to_integers(target: str) -> None:
    x = flat([np.nan, np.inf, -np.inf, 3e9, -1.5, 256.7, -1])
    assert call(target, "std.cast", {"x": x}, "tensor<7xi32>", "U = i32").tolist() == [0, 2147483647, -2147483648, 2147483647, -1, 256, -1]
    assert call(target, "std.cast", {"x": x}, "tensor<7xu8>", "U = u8").tolist() == [0, 255, 0, 255, 0, 255, 0]


def test_cast_between_integers_wraps(target: str) -> None:
    x = flat([-1, 0, 255, 256, 1000], np.int32)
    assert call(target, "std.cast", {"x": x}, "tensor<5xu8>", "U = u8").tolist() == [255, 0, 255, 0, 232]
    assert call(target, "std.cast", {"x": x}, "tensor<5xi8>", "U = i8").tolist() == [-1, 0, -1, 0, -24]


def test_cast_to_bf16_rounds_to_even_and_keeps_nan(target: str) -> None:
    x = flat([1.0, 1.00390625, 1.01171875, 3.4e38, np.nan, -0.0])
    got = call(target, "std.cast", {"x": x}, "tensor<6xbf16>", "U = bf16")
    assert got.astype(np.float64).tolist()[:3] == [1.0, 1.0, 1.015625]
    assert np.isinf(got[3].astype(np.float64))
    assert np.isnan(got[4].astype(np.float64))
    assert np.signbit(got[5].astype(np.float64))


@pytest.mark.parametrize(("values", "attrs", "want"), [
    ([-129, -128, -127, -126, 126, 127, 128, 129], "scale = 1.0, U = i8", [-128, -128, -127, -126, 126, 127, 127, 127]),
    ([.25, .75, 1.25, 1.75], "scale = 0.5, U = u8", [0, 2, 2, 4]),
    ([.25, .75, 1.25, 1.75], "scale = 0.5, zero = 3, U = u8", [3, 5, 5, 7]),
    ([2.5, -2.5, 3.5, -.5], "scale = 1.0", [2, -2, 4, 0]),
    ([np.inf, -np.inf, np.nan, 1e30], "scale = 0.1, zero = 10, U = u8", [255, 0, 0, 255]),
])
def test_quantize_table(target: str, values: list[float], attrs: str, want: list[int]) -> None:
    dtype = "u8" if "u8" in attrs else "i8"
    assert call(target, "std.quantize", {"x": flat(values)}, f"tensor<{len(values)}x{dtype}>", attrs).tolist() == want


@pytest.mark.parametrize("size", [1, 7, 8, 9, 31, 64, 100])
def test_quantize_divides(target: str, size: int) -> None:
    """`x * (1 / scale)` would put these across a tie: the quotient is exact, in the vector body and in the tail alike."""
    scale = np.float32(0.1)
    x = ((np.arange(size) % 40 + np.float32(0.5)).astype(np.float32) * scale).astype(np.float32)
    want = np.clip(np.rint((x / scale).astype(np.float32)), -128, 127)
    got = call(target, "std.quantize", {"x": x}, f"tensor<{size}xi8>", "scale = 0.1")
    np.testing.assert_array_equal(got, want.astype(np.int8))


def test_quantize_refuses_a_scale_that_is_not_positive(target: str) -> None:
    with pytest.raises(pipelink_ir.ProgramError, match="scale"):
        call(target, "std.quantize", {"x": flat([1, 2])}, "tensor<2xi8>", "scale = 0.0")


def test_dequantize(target: str) -> None:
    codes = flat([-128, -1, 0, 3, 127], np.int8)
    close(call(target, "std.dequantize", {"x": codes}, "tensor<5xf32>", "scale = 0.5, zero = 3"), (codes.astype(np.float64) - 3) * 0.5, 1e-7, 0)


# -------------------------------------------------------------------------------------------------------------------- values


def test_u8_to_unit_and_back_is_identity(target: str) -> None:
    codes = np.arange(256, dtype=np.uint8)
    unit = call(target, "std.image.u8_to_unit", {"x": codes}, "tensor<256xf32>")
    close(unit, codes / 255, 3e-7, 0)
    assert unit[0] == 0
    assert unit[255] == 1
    np.testing.assert_array_equal(call(target, "std.image.unit_to_u8", {"x": unit}, "tensor<256xu8>"), codes)


def test_unit_to_u8_table(target: str) -> None:
    x = flat([0, .5, .9999, 1, 1.2, -.1, np.nan])
    assert call(target, "std.image.unit_to_u8", {"x": x}, "tensor<7xu8>").tolist() == [0, 128, 255, 255, 255, 0, 0]


def _through_gamma(target: str, op: str, gamma: float) -> Array:
    unit = call(target, "std.image.u8_to_unit", {"x": np.arange(256, dtype=np.uint8)}, "tensor<256xf32>")
    bent = call(target, f"std.image.{op}", {"x": unit}, "tensor<256xf32>", f"gamma = {gamma}")
    return call(target, "std.image.unit_to_u8", {"x": bent}, "tensor<256xu8>")


def test_identity_gamma_is_identity(target: str) -> None:
    np.testing.assert_array_equal(_through_gamma(target, "gamma_decode", 1.0), np.arange(256))
    np.testing.assert_array_equal(_through_gamma(target, "gamma_encode", 1.0), np.arange(256))


def test_gamma_decode_table(target: str) -> None:
    assert _through_gamma(target, "gamma_decode", 2.2)[[0, 1, 64, 128, 254, 255]].tolist() == [0, 0, 12, 56, 253, 255]


@pytest.mark.parametrize("op", ["gamma_encode", "gamma_decode"])
def test_gamma(target: str, op: str) -> None:
    x = flat([-1, -0.0, 0, 1e-6, 0.2, 0.5, 0.999, 1, 3, np.inf, np.nan])
    want = np.clip(x.astype(np.float64), 0, 1) ** (2.2 if op == "gamma_decode" else 1 / 2.2)
    close(call(target, f"std.image.{op}", {"x": x}, "tensor<11xf32>"), want)


@pytest.mark.parametrize("value", ["0.0", "-2.2"])
def test_gamma_must_be_positive(target: str, value: str) -> None:
    with pytest.raises(pipelink_ir.ProgramError, match="gamma"):
        call(target, "std.image.gamma_encode", {"x": flat([0.5])}, "tensor<1xf32>", f"gamma = {value}")


def test_srgb(target: str) -> None:
    x = flat([0, 0.02, 0.04045, 0.0405, 0.2, 0.5, 1, 1.5, -0.5])
    u = np.clip(x.astype(np.float64), 0, 1)
    light = np.where(u <= 0.04045, u / 12.92, ((u + 0.055) / 1.055) ** 2.4)
    close(call(target, "std.image.srgb_to_linear", {"x": x}, "tensor<9xf32>"), light)
    shown = np.where(u <= 0.0031308, 12.92 * u, 1.055 * u ** (1 / 2.4) - 0.055)
    close(call(target, "std.image.linear_to_srgb", {"x": x}, "tensor<9xf32>"), shown)


@pytest.mark.parametrize(("attrs", "weights"), [("", (0.299, 0.587, 0.114)), ("weights = bt601", (0.299, 0.587, 0.114)),
                                                ("weights = bt709", (0.2126, 0.7152, 0.0722))])
def test_gray(target: str, attrs: str, weights: tuple[float, ...]) -> None:
    x = np.random.default_rng(1).random((2, 3, 5, 3), np.float32)
    close(image(target, "gray", x, (2, 3, 5, 1), attrs=attrs), (x.astype(np.float64) @ np.array(weights))[..., None])


def test_gray_keeps_gray_pixels_exactly(target: str) -> None:
    levels = np.arange(256, dtype=np.float32) / np.float32(255)
    x = np.repeat(levels[:, None], 3, 1).reshape(1, 16, 16, 3)
    np.testing.assert_array_equal(image(target, "gray", x, (1, 16, 16, 1))[..., 0], x[..., 0])


def test_normalise(target: str) -> None:
    x = np.random.default_rng(2).random((2, 3, 4, 3), np.float32)
    mean, std = flat([0.485, 0.456, 0.406]), flat([0.229, 0.224, 0.225])
    got = call(target, "std.image.normalise", {"x": x, "mean": mean, "std": std}, "tensor<2x3x4x3xf32, NHWC>", layout="NHWC")
    close(got, (x.astype(np.float64) - mean) / std)


# -------------------------------------------------------------------------------------------------------------------- layout


@pytest.mark.parametrize("name", ["u8", "f16", "bf16", "i64", "bool", "f8e4m3"])
def test_layout_there_and_back(target: str, name: str) -> None:
    x = (np.arange(2 * 3 * 5 * 4) % 7).reshape(2, 3, 5, 4).astype(DTYPES[name].numpy())
    planes = call(target, "std.image.nhwc_to_nchw", {"x": x}, f"tensor<2x4x3x5x{name}, NCHW>", layout="NHWC")
    np.testing.assert_array_equal(planes.astype(np.float64), x.transpose(0, 3, 1, 2).astype(np.float64))
    back = call(target, "std.image.nchw_to_nhwc", {"x": planes}, f"tensor<2x3x5x4x{name}, NHWC>", layout="NCHW")
    np.testing.assert_array_equal(back.astype(np.float64), x.astype(np.float64))


@pytest.mark.parametrize(("name", "dtype"), [("f16", np.float16), ("bf16", ml_dtypes.bfloat16), ("f32", np.float32)])
def test_to_tensor(target: str, name: str, dtype: Any) -> None:
    x = np.random.default_rng(3).standard_normal((2, 3, 5, 4)).astype(np.float32)
    got = call(target, "std.image.to_tensor", {"x": x}, f"tensor<2x4x3x5x{name}, NCHW>", f"U = {name}", layout="NHWC")
    np.testing.assert_array_equal(got.astype(np.float64), x.transpose(0, 3, 1, 2).astype(dtype).astype(np.float64))


# --------------------------------------------------------------------------------------------------------------------- sobel

_SCIPY_MODE = {"replicate": "nearest", "reflect": "reflect", "reflect101": "mirror", "wrap": "wrap"}


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (1, 1, 7, 2), (2, 5, 1, 1), (2, 9, 17, 3), (1, 33, 40, 1)])
@pytest.mark.parametrize("edge", sorted(_SCIPY_MODE))
def test_sobel_magnitude(target: str, edge: str, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(4).random(shape, np.float32)
    # SciPy's own `mirror` and `wrap` on an axis of size 1 repeat the pixel, as ours do.
    wide = x.astype(np.float64)
    gx = scipy.ndimage.sobel(wide, axis=2, mode="constant") * 0
    gy = gx.copy()
    for n in range(shape[0]):
        for c in range(shape[3]):
            gx[n, :, :, c] = scipy.ndimage.sobel(wide[n, :, :, c], axis=1, mode=_SCIPY_MODE[edge])
            gy[n, :, :, c] = scipy.ndimage.sobel(wide[n, :, :, c], axis=0, mode=_SCIPY_MODE[edge])
    close(image(target, "sobel_magnitude", x, shape, attrs=f"edge = {edge}"), np.hypot(gx, gy), 1e-5, 3e-6)


def test_sobel_of_a_step(target: str) -> None:
    x = np.zeros((1, 4, 6, 1), np.float32)
    x[:, :, 3:] = 1
    got = image(target, "sobel_magnitude", x, (1, 4, 6, 1), attrs="scale = 0.25")
    assert got[0, :, :, 0].tolist() == [[0, 0, 1, 1, 0, 0]] * 4


# ------------------------------------------------------------------------------------------------------------------ resizing


def _positions(size: int, out: int, coordinates: str) -> list[Fraction]:
    if coordinates == "half_pixel":
        return [Fraction((2 * i + 1) * size - out, 2 * out) for i in range(out)]
    return [Fraction(i * (size - 1), max(out - 1, 1)) for i in range(out)]


def _bilinear_matrix(size: int, out: int, coordinates: str) -> Array:
    """out x size weights; beyond the edge the nearest pixel counts."""
    m = np.zeros((out, size))
    for i, p in enumerate(_positions(size, out, coordinates)):
        low = p.numerator // p.denominator
        t = float(p - low)
        m[i, min(max(low, 0), size - 1)] += 1 - t
        m[i, min(max(low + 1, 0), size - 1)] += t
    return m


SIZES = [((4, 5), (8, 10)), ((9, 7), (4, 3)), ((1, 1), (3, 2)), ((5, 6), (1, 1)), ((3, 3), (3, 3)), ((17, 16), (224, 5)), ((20, 33), (6, 32))]


@pytest.mark.parametrize("coordinates", ["half_pixel", "aligned"])
@pytest.mark.parametrize(("size", "out"), SIZES)
def test_resize_bilinear(target: str, size: tuple[int, int], out: tuple[int, int], coordinates: str) -> None:
    x = np.random.default_rng(5).integers(0, 256, (2, *size, 3)).astype(np.uint8)
    got = image(target, "resize_bilinear", x, (2, *out, 3), attrs=f"OH = {out[0]}, OW = {out[1]}, coordinates = {coordinates}")
    rows, cols = (_bilinear_matrix(s, o, coordinates) for s, o in zip(size, out, strict=True))
    close(got, np.einsum("ih,jw,nhwc->nijc", rows, cols, x.astype(np.float64)), 1e-5, 3e-5)


def test_resize_bilinear_table(target: str) -> None:
    x = flat([[1, 2, 0], [3, 4, 0], [0, 0, 0]]).reshape(1, 3, 3, 1)
    got = image(target, "resize_bilinear", x, (1, 6, 6, 1), attrs="OH = 6, OW = 6")[0, :, :, 0]
    close(got[0], [1, 1.25, 1.75, 1.5, .5, 0])
    close(got[1], [1.5, 1.75, 2.25, 1.875, .625, 0])
    line = flat(range(5)).reshape(1, 1, 5, 1)
    close(image(target, "resize_bilinear", line, (1, 1, 3, 1), attrs="OH = 1, OW = 3").ravel(), [1 / 3, 2, 11 / 3])
    close(image(target, "resize_bilinear", line[:, :, 1:4], (1, 1, 1, 1), attrs="OH = 1, OW = 1").ravel(), [2])
    dots = flat([0, 255, 0, 0]).reshape(1, 1, 4, 1)
    close(image(target, "resize_bilinear", dots, (1, 1, 2, 1), attrs="OH = 1, OW = 2").ravel(), [127.5, 0])


@pytest.mark.parametrize(("size", "out", "rounding", "want"), [
    (20, 6, "ties_up", [1, 5, 8, 11, 15, 18]),
    (20, 6, "ties_down", [1, 4, 8, 11, 14, 18]),
    (4, 8, "floor", [0, 0, 0, 1, 1, 2, 2, 3]),
])
def test_resize_nearest_table(target: str, size: int, out: int, rounding: str, want: list[int]) -> None:
    x = np.arange(size, dtype=np.uint8).reshape(1, 1, size, 1)
    got = image(target, "resize_nearest", x, (1, 1, out, 1), "u8", f"OH = 1, OW = {out}, rounding = {rounding}")
    assert got.ravel().tolist() == want


@pytest.mark.parametrize("coordinates", ["half_pixel", "aligned"])
@pytest.mark.parametrize("rounding", ["ties_down", "ties_up", "floor"])
@pytest.mark.parametrize(("size", "out"), SIZES)
def test_resize_nearest(target: str, size: tuple[int, int], out: tuple[int, int], rounding: str, coordinates: str) -> None:
    def index(p: Fraction, n: int) -> int:
        half = Fraction(1, 2)
        i = {"ties_down": -((half - p).__floor__()), "ties_up": (p + half).__floor__(), "floor": p.__floor__()}[rounding]
        return min(max(i, 0), n - 1)

    x = np.random.default_rng(6).integers(-99, 99, (1, *size, 2)).astype(np.int16)
    got = image(target, "resize_nearest", x, (1, *out, 2), "i16", f"OH = {out[0]}, OW = {out[1]}, rounding = {rounding}, coordinates = {coordinates}")
    rows, cols = ([index(p, s) for p in _positions(s, o, coordinates)] for s, o in zip(size, out, strict=True))
    np.testing.assert_array_equal(got, x[:, rows][:, :, cols])


def _triangle_matrix(size: int, out: int) -> Array:
    scale = size / out
    reach = max(scale, 1.0)
    centre = (np.arange(out) + 0.5) * scale - 0.5
    m = np.maximum(1 - np.abs(np.arange(size) - centre[:, None]) / reach, 0)
    return m / m.sum(1, keepdims=True)


@pytest.mark.parametrize(("size", "out"), SIZES)
def test_resize_triangle(target: str, size: tuple[int, int], out: tuple[int, int]) -> None:
    x = np.random.default_rng(7).random((2, *size, 3), np.float32)
    got = image(target, "resize_triangle", x, (2, *out, 3), attrs=f"OH = {out[0]}, OW = {out[1]}")
    rows, cols = (_triangle_matrix(s, o) for s, o in zip(size, out, strict=True))
    close(got, np.einsum("ih,jw,nhwc->nijc", rows, cols, x.astype(np.float64)), 2e-5, 2e-6)


def test_resize_triangle_table(target: str) -> None:
    dots = flat([0, 255, 0, 0]).reshape(1, 1, 4, 1)
    close(image(target, "resize_triangle", dots, (1, 1, 2, 1), attrs="OH = 1, OW = 2").ravel(), [109.285714, 36.428571])


# -------------------------------------------------------------------------------------------------------------------- layers

LAYER_DTYPES = [("f32", np.float32, 1e-5, 1e-6), ("f16", np.float16, 2e-3, 1e-3), ("bf16", ml_dtypes.bfloat16, 1e-2, 1e-2), ("f64", np.float64, 1e-9, 1e-9)]
POINTS = [-np.inf, -1e30, -10, -6, -3.5, -1, -1e-3, -0.0, 0, 1e-3, 0.5, 1, 3, 5.999, 6, 7, 100, np.inf, np.nan]


@pytest.mark.parametrize(("name", "dtype", "rtol", "atol"), LAYER_DTYPES)
@pytest.mark.parametrize(("op", "formula"), [
    ("relu", lambda x: np.maximum(x, 0)),
    ("relu6", lambda x: np.minimum(np.maximum(x, 0), 6)),
    ("gelu_erf", lambda x: 0.5 * x * (1 + scipy.special.erf(x / np.sqrt(2)))),
    ("gelu_tanh", lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3)))),
])
@np.errstate(all="ignore")
def test_pointwise(target: str, op: str, formula: Any, name: str, dtype: Any, rtol: float, atol: float) -> None:
    x = np.array(POINTS).astype(dtype)
    close(call(target, f"std.nn.{op}", {"x": x}, f"tensor<{x.size}x{name}>"), formula(x.astype(np.float64)), rtol, atol)


def test_the_two_forms_of_gelu_differ_as_documented(target: str) -> None:
    x = np.linspace(-6, 6, 2001).astype(np.float32)
    a, b = (call(target, f"std.nn.gelu_{form}", {"x": x}, "tensor<2001xf32>") for form in ("erf", "tanh"))
    assert 1e-4 < np.abs(a - b).max() < 5e-4


def test_add(target: str) -> None:
    a, b = flat([[1, 2.5], [np.inf, -3]]), flat([[0.25, -2.5], [-np.inf, 1e10]])
    close(call(target, "std.nn.add", {"a": a, "b": b}, "tensor<2x2xf32>"), [[1.25, 0], [np.nan, 1e10]])
    top = flat([2147483647, -5], np.int32)
    assert call(target, "std.nn.add", {"a": top, "b": flat([1, 7], np.int32)}, "tensor<2xi32>").tolist() == [-2147483648, 2]


@pytest.mark.parametrize(("row", "want"), [([0, 0], [.5, .5]), ([-np.inf, -np.inf], [np.nan, np.nan]), ([np.nan, -np.inf], [np.nan, np.nan]),
                                           ([1000, -1000], [1, 0]), ([np.inf, 0], [np.nan, np.nan])])
def test_softmax_table(target: str, row: list[float], want: list[float]) -> None:
    close(call(target, "std.nn.softmax", {"x": flat([row])}, "tensor<1x2xf32>")[0], want)


@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (2, 3, 33), (5,)])
@pytest.mark.parametrize(("name", "dtype", "rtol", "atol"), LAYER_DTYPES)
def test_softmax(target: str, name: str, dtype: Any, rtol: float, atol: float, shape: tuple[int, ...]) -> None:
    x = (4 * np.random.default_rng(8).standard_normal(shape)).astype(dtype)
    dims = "".join(f"{n}x" for n in shape)
    close(call(target, "std.nn.softmax", {"x": x}, f"tensor<{dims}{name}>"), scipy.special.softmax(x.astype(np.float64), axis=-1), rtol, atol)


def test_softmax_masked(target: str) -> None:
    rng = np.random.default_rng(9)
    x, mask = rng.standard_normal((4, 9)).astype(np.float32), rng.random((4, 9)) < 0.6
    mask[1] = False
    x[0, 0], mask[0, 0] = np.nan, False
    got = call(target, "std.nn.softmax_masked", {"x": x, "mask": mask}, "tensor<4x9xf32>")
    for i in range(4):
        want = np.zeros(9)
        if mask[i].any():
            want[mask[i]] = scipy.special.softmax(x[i, mask[i]].astype(np.float64))
        close(got[i], want)


@pytest.mark.parametrize("shape", [(3, 8), (2, 3, 33), (1, 1)])
@pytest.mark.parametrize(("name", "dtype", "rtol", "atol"), LAYER_DTYPES)
def test_layer_norm(target: str, name: str, dtype: Any, rtol: float, atol: float, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(10)
    x, g, b = (rng.standard_normal(s).astype(dtype) for s in (shape, shape[-1:], shape[-1:]))
    w = [a.astype(np.float64) for a in (x, g, b)]
    want = (w[0] - w[0].mean(-1, keepdims=True)) / np.sqrt(w[0].var(-1, keepdims=True) + 1e-5) * w[1] + w[2]
    dims = "".join(f"{n}x" for n in shape)
    close(call(target, "std.nn.layer_norm", {"x": x, "g": g, "b": b}, f"tensor<{dims}{name}>"), want, max(rtol, 3e-5), max(atol, 3e-6))


def test_layer_norm_of_a_large_mean(target: str) -> None:
    """`E[x**2] - E[x]**2` would cancel here."""
    x = flat([[10000.0, 10001.0, 10002.0, 10003.0]])
    one, zero = np.ones(4, np.float32), np.zeros(4, np.float32)
    got = call(target, "std.nn.layer_norm", {"x": x, "g": one, "b": zero}, "tensor<1x4xf32>")[0]
    close(got, np.array([-1.5, -.5, .5, 1.5]) / np.sqrt(1.25 + 1e-5), 1e-5, 0)


@pytest.mark.parametrize(("name", "dtype", "rtol", "atol"), LAYER_DTYPES)
def test_linear(target: str, name: str, dtype: Any, rtol: float, atol: float) -> None:
    rng = np.random.default_rng(11)
    x, w, b = (rng.standard_normal(s).astype(dtype) for s in ((2, 3, 17), (17, 5), (5,)))
    want = x.astype(np.float64) @ w.astype(np.float64) + b.astype(np.float64)
    close(call(target, "std.nn.linear", {"x": x, "w": w, "b": b}, f"tensor<2x3x5x{name}>"), want, max(rtol, 2e-5), max(atol, 5e-6))
