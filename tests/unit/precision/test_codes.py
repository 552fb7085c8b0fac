"""Rules of quantisation, each with values from NumPy: what codes values get, what scales they have, and what codes stand for."""
from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pipelink_ir.grammar.printer import print_operator
from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.nodes import TensorType
from pipelink_ir.passes.precision.codes import Codes, code_of, code_type, dequantiser, literal, quantiser, scaler
from tests.emulated import EMULATED
from tests.unit.precision.coding import called, decode, encode, in_memory, operator

TARGETS = pytest.mark.parametrize("target", ["reference", "cpu", EMULATED])
RNG = np.random.default_rng(7)
inf, nan = np.inf, np.nan


def typed(shape: str) -> TensorType:
    """`Nx3xf32` as a type."""
    return operator(f"op @f(%x: tensor<{shape}>) -> (%y: tensor<f32>) {{ compute {{ %y = 0 }} }}").operands[0].type


def quantised(x: Any, codes: Codes, *more: Any, dtype: str = "f32", target: str = "reference") -> Any:
    x = np.asarray(x)
    shape = "x".join([*"NMKL"[:x.ndim], dtype])
    return called(quantiser(typed(shape), codes, "x.q"), x, *more, target=target)[0]


# ----------------------------------------------------------------------------------------------------------------- codes of values


@TARGETS
@pytest.mark.parametrize(("codes", "x", "want"), [
    (Codes("i8", 1.0), [-129, -128, -127, -126, 126, 127, 128, 129], [-128, -128, -127, -126, 126, 127, 127, 127]),
    (Codes("u8", .5), [.25, .75, 1.25, 1.75], [0, 2, 2, 4]),
    (Codes("u8", .5, 3), [.25, .75, 1.25, 1.75], [3, 5, 5, 7]),
    (Codes("i8", 1.0), [2.5, -2.5, 3.5, -.5], [2, -2, 4, 0]),
    (Codes("u8", 1.0), [-1, 0, 254.5, 255.5, 256, inf, -inf], [0, 0, 254, 255, 255, 255, 0]),
    (Codes("i8", .25, -128), [0, .25, 63.75, 64, -1], [-128, -127, 127, 127, -128]),
    (Codes("i16", 1.0), [-40000, 32767.5, 0.5, 1.5], [-32768, 32767, 0, 2])])
def test_ties_saturation_and_zero_points(target: str, codes: Codes, x: list[float], want: list[int]) -> None:
    np.testing.assert_array_equal(quantised(x, codes, target=target), want)
    assert [code_of(v, codes) for v in x] == want


@TARGETS
@pytest.mark.parametrize("codes", [Codes("i8", .1), Codes("u8", .1, 128), Codes("i8", "tensor", "tensor")])
def test_nan_is_code_0_and_infinities_saturate(target: str, codes: Codes) -> None:
    """As `@std.quantize` has it: the cast of a NaN is 0, wherever 0.0 lies."""
    more = [] if codes.zero != "tensor" else [.1, -5]
    got = quantised([nan, inf, -inf, 0.0, -0.0], codes, *more, target=target)
    info = np.iinfo(DTYPES[codes.dtype].numpy())
    zero = codes.zero if isinstance(codes.zero, int) else -5
    np.testing.assert_array_equal(got, [0, info.max, info.min, zero, zero])
    assert code_of(nan, codes) == 0


@TARGETS
def test_a_true_division_not_a_product_with_the_inverse(target: str) -> None:
    """Of numbers next to ties some get another code by `x * (1 / scale)`."""
    scale = np.float32(0.1)
    ties = (np.arange(-120, 120) + 0.5).astype(np.float32) * scale
    x = np.concatenate([np.nextafter(ties, np.float32(s)) for s in (-1000, 1000)] + [ties])
    want, other = np.rint(x / scale), np.rint(x * (np.float32(1) / scale))
    assert (want != other).any()
    np.testing.assert_array_equal(quantised(x, Codes("i8", .1), target=target), want)
    np.testing.assert_array_equal(quantised(x, Codes("i8", "tensor"), scale, target=target), want)


@TARGETS
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
def test_body_and_tail_round_alike(target: str, dtype: str) -> None:
    codes = Codes("u8", .0371, 77)
    x = (RNG.normal(size=(41, 67)) * 4).astype(DTYPES[dtype].numpy())
    scale = np.float64(np.float32(.0371)) if dtype == "f64" else np.float32(.0371)
    wide = x.astype(np.float64 if dtype == "f64" else np.float32)
    want = np.clip(np.rint(wide / scale) + 77, 0, 255)
    for width in (1, 2, 3, 7, 16, 17, 33, 67):
        got = quantised(x[:, :width], codes, dtype=dtype, target=target)
        np.testing.assert_array_equal(got, want[:, :width])


@TARGETS
@pytest.mark.parametrize(("dtype", "top"), [("f8e4m3", 448.0), ("f8e5m2", 57344.0)])
def test_f8_saturates_and_keeps_nan(target: str, dtype: str, top: float) -> None:
    kind = {"f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2}[dtype]
    x = np.array([1.0, -0.3, 1e6, -1e6, inf, -inf, nan, 0.0], np.float32)
    got = quantised(x, Codes(dtype, .01), target=target)
    want = np.clip(x / np.float32(.01), -top, top).astype(kind)
    np.testing.assert_array_equal(got.astype(np.float32), want.astype(np.float32))
    assert got.astype(np.float32)[2:6].tolist() == [top, -top, top, -top]


@TARGETS
@pytest.mark.parametrize("size", [1, 2, 5, 6, 33])
def test_i4_lie_two_to_a_byte_the_first_in_the_low_bits(target: str, size: int) -> None:
    codes = Codes("i4", 1.0, packed=0)
    x = RNG.integers(-9, 10, (size, 3)).astype(np.float32)
    got = quantised(x, codes, target=target)
    padded = np.zeros((size + size % 2, 3), np.int64)
    padded[:size] = np.clip(x, -7, 7)
    assert got.dtype == np.uint8
    assert got.shape == ((size + 1) // 2, 3)
    np.testing.assert_array_equal(got & 15, padded[0::2] & 15)
    np.testing.assert_array_equal(got >> 4, padded[1::2] & 15)
    assert quantised([[-7], [7]], codes).tolist() == [[0x79]]


def test_i4_of_no_number_is_0() -> None:
    assert quantised([[nan], [inf], [-inf]], Codes("i4", 1.0, packed=0)).tolist() == [[0x70], [0x09]]


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize(("codes", "shape"), [
    (Codes("i8", .05), (5, 9)), (Codes("u8", .05, 31), (5, 9)), (Codes("i8", "channel", axis=1), (5, 9)), (Codes("i8", "block", axis=0, size=4), (10, 3)),
    (Codes("i4", "block", axis=0, size=4), (11, 3)), (Codes("i4", "channel", axis=1, packed=0), (6, 3)), (Codes("i8", "channel", axis=2, order=(2, 0, 1)), (3, 4, 5)),
    (Codes("f8e4m3", "tensor"), (5, 9)), (Codes("i8", "tensor", "tensor"), (7,)), (Codes("i8", "tensor"), ())])
def test_codes_of_all_kinds_and_back(target: str, codes: Codes, shape: tuple[int, ...]) -> None:
    """Scale, codes and values by generated operators, against NumPy."""
    x = (RNG.normal(size=shape) * np.exp2(RNG.integers(-3, 4, shape))).astype(np.float32)
    t = typed("x".join([*map(str, shape), "f32"]))
    more = list(called(scaler(t, codes, "x.s"), x, target=target)) if isinstance(codes.scale, str) else []
    scale, zero = more[0] if more else None, more[1] if len(more) > 1 else None
    q = encode(x, codes, scale, zero)
    got = called(quantiser(t, codes, "x.q"), x, *more, target=target)[0]
    np.testing.assert_array_equal(got, in_memory(q, codes))
    back = called(dequantiser(t, codes, "x.r"), got, *more, target=target)[0]
    np.testing.assert_allclose(back, decode(q, codes, scale, zero), 1e-6)
    # A code is the nearest there is: half a step away at most, of f8 a sixteenth of the value.
    bound = np.abs(x) / 16 if codes.dtype == "f8e4m3" else 0.5001 * np.asarray(_steps(codes, scale, shape))
    if isinstance(codes.scale, str):
        assert (np.abs(back - x) <= bound + 1e-9).all()


def _steps(codes: Codes, scale: Any, shape: tuple[int, ...]) -> Any:
    from tests.unit.precision.coding import scale_in_f32, spread
    return spread(scale_in_f32(codes, scale), codes, shape)


# ------------------------------------------------------------------------------------------------------------------------- scales


@TARGETS
def test_a_dead_channel_comes_back_as_zeros(target: str) -> None:
    w = np.array([[0, 0, 0, 0], [1, -2.1, 3, -4]], np.float32)
    codes, t = Codes("i8", "channel", axis=0), typed("2x4xf32")
    scale, = called(scaler(t, codes, "w.s"), w, target=target)
    np.testing.assert_array_equal(scale, np.array([1, np.float32(4) / np.float32(127)], np.float32))
    got, = called(quantiser(t, codes, "w.q"), w, scale, target=target)
    np.testing.assert_array_equal(got, [[0, 0, 0, 0], [32, -67, 95, -127]])
    back, = called(dequantiser(t, codes, "w.r"), got, scale, target=target)
    np.testing.assert_array_equal(back[0], np.zeros(4))


@TARGETS
@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_scales_come_from_finite_values(target: str, dtype: str) -> None:
    w = np.array([[1, nan, -8, inf], [nan, nan, inf, -inf], [-2, .5, 0, 1]], DTYPES[dtype].numpy())
    codes, t = Codes("i8", "channel", axis=0), typed(f"Nx4x{dtype}")
    scale, = called(scaler(t, codes, "w.s"), w, target=target)
    np.testing.assert_array_equal(scale, (np.array([8, 127, 2], np.float32) / np.float32(127)).astype(np.float32))
    got, = called(quantiser(t, codes, "w.q"), w, scale, target=target)
    np.testing.assert_array_equal(got, [[16, 0, -127, 127], [0, 0, 127, -128], [-127, 32, 0, 64]])


@TARGETS
def test_an_affine_range_takes_in_zero(target: str) -> None:
    """From 2 to 12: steps of 12 / 255, and 0.0 has a code of its own."""
    x = np.array([2, 12, inf, nan, 7], np.float32)
    scale, zero = called(scaler(typed("Nxf32"), Codes("u8", "tensor", "tensor"), "x.s"), x, target=target)
    assert zero == 0
    assert scale == pytest.approx(12 / 255, rel=1e-6)
    scale, zero = called(scaler(typed("Nxf32"), Codes("i8", "tensor", "tensor"), "x.s"), np.array([-1, 4], np.float32), target=target)
    assert scale == pytest.approx(5 / 255, rel=1e-6)
    assert zero == round(-128 + 1 / (5 / 255))
    got = quantised([-1, 0, 4], Codes("i8", "tensor", "tensor"), scale, zero, target=target)
    np.testing.assert_array_equal(got, [-128, zero, 127])
    for nothing in ([0.0, 0.0], [nan, inf], []):
        scale, zero = called(scaler(typed("Nxf32"), Codes("i8", "tensor", "tensor"), "x.s"), np.array(nothing, np.float32), target=target)
        assert (scale, zero) == (1, -128)


@TARGETS
@pytest.mark.parametrize("largest", [1e-45, 1e-43, 1e-38])
def test_scales_of_tiny_values_are_no_zeros(target: str, largest: float) -> None:
    x = np.array([largest, -largest / 2], np.float32)
    scale, = called(scaler(typed("Nxf32"), Codes("i8", "tensor"), "x.s"), x, target=target)
    want = x[0] / np.float32(127)
    assert scale == (want if want > 0 else 1)


def test_bytes_of_values_above_zero() -> None:
    """u8 with the zero point 0 has all its codes above 0.0."""
    x = np.array([-3, .1, 5.1], np.float32)
    scale, = called(scaler(typed("Nxf32"), Codes("u8", "tensor"), "x.s"), x)
    assert scale == np.float32(5.1) / np.float32(255)
    np.testing.assert_array_equal(quantised(x, Codes("u8", "tensor"), scale), [0, 5, 255])


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_blocks_keep_an_outlier_to_themselves(target: str) -> None:
    w = RNG.normal(size=(70, 4)).astype(np.float32)
    w[3] = 1000
    t, errors = typed("70x4xf32"), {}
    for codes in (Codes("i8", "channel", axis=1), Codes("i8", "block", axis=0, size=32)):
        scale, = called(scaler(t, codes, "w.s"), w, target=target)
        q, = called(quantiser(t, codes, "w.q"), w, scale, target=target)
        back, = called(dequantiser(t, codes, "w.r"), q, scale, target=target)
        errors[codes.scale] = np.abs(back - w)[32:].max()
        assert scale.shape == ((3, 4) if codes.scale == "block" else (4,))
    assert errors["channel"] > 100 * errors["block"]


# --------------------------------------------------------------------------------------------------------------------------- texts


@pytest.mark.parametrize("value", [0.05, 1 / 3, 1e-8, 3.4e38, 1.401298464324817e-45, 1.0, 0.007874015748031496])
def test_numbers_are_written_short_and_stay_the_same(value: float) -> None:
    written = literal(value)
    assert np.float32(written.value) == np.float32(value)
    assert len(repr(written.value)) <= 13


def test_the_text_of_a_quantiser() -> None:
    assert print_operator(quantiser(typed("Nx8xf16"), Codes("u8", .05, 3), "x.q")) == """op @x.q(%x: tensor<D0x8xf16>) -> (%q: tensor<D0x8xu8>) {
  compile { accuracy = exact }
  compute { %q[d0, d1] = u8(round(%x[d0, d1] / 0.05) + 3) }
}"""


@pytest.mark.parametrize(("codes", "shape", "want"), [
    (Codes("i4", 1.0, packed=0), "Kx8xf16", "tensor<((K + 1) floordiv 2)x8xu8>"), (Codes("i4", "block", axis=0, size=32, order=(1, 0)), "65x8xf16", "tensor<8x33xu8>"),
    (Codes("i8", 1.0, order=(2, 0, 1)), "3x4x5xf16, HWC", "tensor<5x3x4xi8>"), (Codes("i8", 1.0), "3x4x5xf16, HWC", "tensor<3x4x5xi8, HWC>")])
def test_types_of_codes(codes: Codes, shape: str, want: str) -> None:
    from pipelink_ir.grammar.printer import print_type
    assert print_type(code_type(typed(shape), codes)) == want
