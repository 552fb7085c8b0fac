"""Scalar evaluation: functions, casts and folding against the language's tables, `struct`, exact fractions, ml_dtypes and SciPy."""
from __future__ import annotations

import struct
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import scipy.special

from pipelink_ir.ir.dtypes import BF16, BOOL, DTYPES, F8E4M3, F8E5M2, F16, F32, F64, I8, I16, I32, I64, U8, U16, DType
from pipelink_ir.ir.nodes import Apply, Cast, Const, Expr, FloatLit, IntLit, Name
from pipelink_ir.ir.scalar import apply, array_from_storage, array_to_storage, cast, fold, is_literal, literal

nan, inf = float("nan"), float("inf")
MIN32, MAX32, MIN64, MAX64 = -2**31, 2**31 - 1, -2**63, 2**63 - 1


def call(fn: str, dtype: DType, *args: Any, result: DType | None = None) -> np.ndarray[Any, Any]:
    return apply(fn, [np.asarray(a, dtype.numpy()) for a in args], result or dtype)


def same(got: Any, want: Any) -> None:
    """Equal with NaN equal to NaN and the signs of zeros told apart."""
    got, want = np.asarray(got), np.asarray(want)
    np.testing.assert_array_equal(got, want.astype(got.dtype))
    if got.dtype.kind == "f":
        number = ~np.isnan(got)
        np.testing.assert_array_equal(np.signbit(got[number]), np.signbit(np.broadcast_to(want, got.shape).astype(got.dtype)[number]))


# ------------------------------------------------------------------------------------------------------------------- integers


@pytest.mark.parametrize("dtype", [I32, I64])
def test_integers_wrap(dtype: DType) -> None:
    low, high = dtype.lowest, dtype.highest
    assert call("+", dtype, high, 1) == low
    assert call("-", dtype, low, 1) == high
    assert call("neg", dtype, low) == low
    assert call("abs", dtype, low) == low
    assert call("floordiv", dtype, low, -1) == low
    assert call("mod", dtype, low, -1) == 0
    assert call("ceildiv", dtype, low, -1) == low
    assert call("ceildiv", dtype, low, 2) == low // 2
    assert call("ceildiv", dtype, low, 3) == -(-low // 3)


def test_products_wrap() -> None:
    assert call("*", I32, 65536, 65536) == 0
    assert call("**", I32, 65536, 2) == 0
    assert call("**", I32, 3, 20) == (3**20 + 2**31) % 2**32 - 2**31
    assert call("**", I64, -7, 21) == -7**21
    assert call("**", I32, 0, 0) == 1


@pytest.mark.parametrize("dtype", [I32, I64])
def test_floor_division(dtype: DType) -> None:
    numbers = [dtype.lowest, dtype.lowest + 1, -17, -7, -1, 0, 1, 5, 7, 17, dtype.highest - 1, dtype.highest]
    a, b = (x.ravel() for x in np.meshgrid(np.array(numbers, dtype.numpy()), np.array(numbers, dtype.numpy())))
    q, c, r = (apply(f, [a, b], dtype) for f in ("floordiv", "ceildiv", "mod"))
    for x, y, quotient, up, rest in zip(*(v.tolist() for v in (a, b, q, c, r)), strict=True):
        wrapped = x == dtype.lowest and y == -1
        assert quotient == (0 if y == 0 else x if wrapped else x // y)
        assert up == (0 if y == 0 else x if wrapped else -(-x // y))
        assert rest == (0 if y == 0 else x % y)
        assert y == 0 or wrapped or x == quotient * y + rest


def test_unsigned_bytes_are_not_signed() -> None:
    image = array_from_storage(np.array([200, 100], np.uint8), U8)
    assert image.dtype == np.int32
    same(apply("mod", [image, np.int32(7)], I32), [4, 2])
    assert apply(">", [image[0], image[1]], BOOL)


# --------------------------------------------------------------------------------------------------------------------- floats


@pytest.mark.parametrize("dtype", [F32, F64])
def test_nan_wins_in_min_and_max(dtype: DType) -> None:
    a, b = [nan, 1, nan, 0] * 5, [1, nan, nan, -1] * 5
    same(call("max", dtype, a, b), [nan, nan, nan, 0] * 5)
    same(call("min", dtype, a, b), [nan, nan, nan, -1] * 5)
    same(call("fmax", dtype, a, b), [1, 1, nan, 0] * 5)
    same(call("fmin", dtype, a, b), [1, 1, nan, -1] * 5)
    same(call("clamp", dtype, [nan, -1, 2, .5], 0, 1), [nan, 0, 1, .5])
    same(call("clamp", dtype, [-1, 2, .5], nan, 1), [nan] * 3)
    same(call("clamp", dtype, [-1, 2, .5], 0, nan), [nan] * 3)


@pytest.mark.parametrize("dtype", [F32, F64])
def test_powers_outside_the_domain(dtype: DType) -> None:
    base, exponent = [-.25, 0, 0, -0.0, 0, -8, 1, nan, -inf, 2], [1.2, 0, -1, -1, .45, 3, nan, 0, 3, -inf]
    want = [nan, 1, inf, -inf, 0, -512, 1, 1, -inf, 0]
    same(call("**", dtype, base, exponent), want)
    same(call("pow", dtype, base, exponent), want)
    # One exponent for all: no square root.
    same(call("**", dtype, [-0.0, -inf, 4, -1], .5), [0, inf, 2, nan])
    same(call("pow", dtype, [-0.0, -inf, 4, -1], .5), [0, inf, 2, nan])


def test_integer_powers_of_floats() -> None:
    x = np.float32(1.1)
    assert apply("**", [x, np.int32(3)], F32) == x * x * x
    assert apply("**", [x, np.int32(4)], F32) == x * x * x * x
    assert apply("**", [x, np.int32(0)], F32) == 1
    same(apply("**", [np.array([-8, 0, -0.0, nan, inf], np.float32), np.int32(3)], F32), [-512, 0, -0.0, nan, inf])
    same(apply("**", [np.array([-8, 0, -0.0], np.float32), np.int32(-1)], F32), [-.125, inf, -inf])
    assert apply("**", [np.float32(2), np.int32(-149)], F32) == np.float32(1.4012985e-45)
    assert apply("**", [np.float32(2), np.int32(-150)], F32) == 0
    assert apply("**", [np.float64(2), np.int32(-1074)], F64) == 5e-324
    # An exponent for each element, larger than four among them: powers of two are exact.
    exponents = np.array([-3, 0, 1, 5, 10, 31], np.int32)
    same(apply("**", [np.float32(2), exponents], F32), [2.0**int(n) for n in exponents])


def test_subnormals_are_kept() -> None:
    assert call("/", F32, 1.17549435e-38, 2) == np.float32(5.877472e-39)
    assert call("pow", F32, 2, -149) == np.float32(1.4012985e-45)
    assert call("exp2", F32, -149) == np.float32(1.4012985e-45)
    assert call("pow", F32, 2, -150) == 0
    assert call("sigmoid", F32, -100) == np.float32(np.exp(np.float64(-100)))
    assert call("sigmoid", F64, -740) == np.exp(-740.0)


def test_signed_zeros() -> None:
    x = np.float32(-0.0)
    same(apply("+", [x, np.float32(0)], F32), 0.0)
    same(apply("-", [x, np.float32(0)], F32), -0.0)
    same(apply("*", [x, np.float32(1)], F32), -0.0)
    same(apply("sqrt", [x], F32), -0.0)
    same(apply("neg", [np.float32(0)], F32), -0.0)
    same(call("sign", F32, [-0.0, 0.0, -2, 3, nan, -inf]), [-0.0, 0.0, -1, 1, nan, -1])
    same(call("round", F32, [.5, 1.5, -.5, -2.5, nan, -inf]), [0, 2, -0.0, -2, nan, -inf])
    same(call("floor", F64, [-.5, .5, -0.0]), [-1, 0, -0.0])
    same(call("ceil", F64, [-.5, .5]), [-0.0, 1])


def exact_floor(a: float, b: float) -> int:
    return int(Fraction(a) / Fraction(b) // 1)


@pytest.mark.parametrize("dtype", [F32, F64])
def test_floor_division_of_floats_is_the_floor_of_the_true_quotient(dtype: DType) -> None:
    rng = np.random.default_rng(5)
    kind = dtype.numpy()
    a = (rng.standard_normal(4000) * 10.0**rng.integers(-8, 9, 4000)).astype(kind)
    b = (rng.standard_normal(4000) * 10.0**rng.integers(-4, 5, 4000)).astype(kind)
    multiple = (b[:1000] * rng.integers(-1000, 1000, 1000)).astype(kind)       # quotients that are integers, or nearly
    a = np.concatenate([a, multiple, np.nextafter(multiple, kind.type(inf))])
    b = np.concatenate([b, b[:1000], b[:1000]])
    got = apply("floordiv", [a, b], dtype)
    want = np.array([float(exact_floor(x, y)) for x, y in zip(a.tolist(), b.tolist(), strict=True)]).astype(kind)
    near = np.abs(want) < 2.0**50
    np.testing.assert_array_equal(got[near], want[near])
    rest = apply("mod", [a, b], dtype)
    exact = np.array([float(Fraction(x) - exact_floor(x, y) * Fraction(y)) for x, y in zip(a.tolist(), b.tolist(), strict=True)]).astype(kind)
    np.testing.assert_array_equal(rest, exact)


def test_floor_division_by_zero_and_infinity() -> None:
    same(call("floordiv", F32, [1, -1, 0, inf, 7, -1e-30], [0, 0, 0, 2, inf, 1e30]), [inf, -inf, nan, inf, 0, -1])
    same(call("mod", F32, [1, inf, 7, -7, -6, 6], [0, 2, inf, inf, 3, -3]), [nan, nan, 7, inf, 0, -0.0])
    same(call("ceildiv", F64, [7, -7, 6, -6.5], [2, 2, 3, 1]), [4, -3, 2, -6])


UNARY = {"exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log1p": np.log1p, "sin": np.sin, "cos": np.cos,
         "tan": np.tan, "tanh": np.tanh, "sigmoid": scipy.special.expit, "erf": scipy.special.erf, "rsqrt": lambda x: x ** -.5, "sqrt": np.sqrt}


@pytest.mark.parametrize("fn", UNARY)
def test_real_functions_of_f32_are_rounded_once(fn: str) -> None:
    x = np.concatenate([np.linspace(.01, 80, 3001), np.logspace(-30, 1, 500)]).astype(np.float32)
    if fn not in ("log", "log2", "log1p", "sqrt", "rsqrt"):
        x = np.concatenate([x, -x])
    got, want = apply(fn, [x], F32), UNARY[fn](x.astype(np.float64))
    assert got.dtype == np.float32
    with np.errstate(over="ignore"):
        ulp = np.spacing(np.abs(want).astype(np.float32)).astype(np.float64)
        np.testing.assert_array_less(np.abs(got - want)[np.isfinite(got)], .51 * ulp[np.isfinite(got)])


@pytest.mark.parametrize("fn", ["sigmoid", "erf", "rsqrt"])
def test_real_functions_of_f64(fn: str) -> None:
    x = np.concatenate([np.linspace(.01, 30, 501), np.logspace(-30, 1, 100)])
    if fn != "rsqrt":
        x = np.concatenate([x, -x])
    got, want = apply(fn, [x], F64), UNARY[fn](x)
    np.testing.assert_array_less(np.abs(got - want), 4 * np.spacing(np.abs(want)) + 1e-320)


def test_special_values_of_real_functions() -> None:
    same(call("logaddexp", F32, [-inf, inf, 0, -inf, nan], [-inf, inf, -inf, 1, 0]), [-inf, inf, 0, 1, nan])
    same(call("erf", F32, [inf, -inf, nan, -0.0]), [1, -1, nan, -0.0])
    same(call("sigmoid", F32, [inf, -inf, nan, 0]), [1, 0, nan, .5])
    same(call("rsqrt", F32, [0, inf, -1, 4]), [inf, 0, nan, .5])
    same(call("log", F32, [0, -1]), [-inf, nan])
    same(call("atan2", F64, [0, -0.0], [-1, -1]), [np.pi, -np.pi])
    same(call("isnan", F32, [nan, inf, 0], result=BOOL), [True, False, False])
    same(call("isinf", F32, [nan, -inf, 0], result=BOOL), [False, True, False])


def test_exact_results_stay_exact() -> None:
    assert call("/", F32, 6, 3) == 2
    assert call("sqrt", F32, 4) == 2
    a, c = np.float32(1.000244140625), np.float32(1.00048828125)
    assert apply("-", [apply("*", [a, a], F32), c], F32) == 0
    assert apply("fma", [a, a, -c], F32) == np.float32(2.0**-24)


@pytest.mark.parametrize("dtype", [F32, F64])
def test_fma_rounds_once(dtype: DType) -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(3000).astype(dtype.numpy()) for _ in "ab")
    c = (-a * b * (1 + rng.standard_normal(3000) * 2.0**-rng.integers(1, 60, 3000))).astype(dtype.numpy())
    got = apply("fma", [a, b, c], dtype)
    exact = [Fraction(x) * Fraction(y) + Fraction(z) for x, y, z in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)]
    want = np.array([round_fraction(x, dtype.digits, -1074 if dtype is F64 else -149) for x in exact])
    np.testing.assert_array_equal(got.astype(np.float64), want)


# ---------------------------------------------------------------------------------------------------------------------- casts


def round_fraction(x: Fraction, digits: int, least: int) -> float:
    """Nearest even by exact arithmetic; `least` is the exponent of the smallest subnormal. Without overflow."""
    if x == 0:
        return 0.0
    size = abs(x)
    exponent = size.numerator.bit_length() - size.denominator.bit_length() - 1
    while size >= Fraction(2) ** (exponent + 1):
        exponent += 1
    step = Fraction(2) ** max(exponent - digits + 1, least)
    out = float(round(size / step) * step)              # round() of a Fraction is half to even
    return out if x > 0 else -out


NARROW = {"f16": (F16, -24, 65504.0), "bf16": (BF16, -133, float.fromhex("0x1.fep127")), "f8e4m3": (F8E4M3, -9, 448.0), "f8e5m2": (F8E5M2, -16, 57344.0)}


def narrow_fraction(x: float, name: str) -> float:
    dtype, least, largest = NARROW[name]
    if not np.isfinite(x):
        return nan if name == "f8e4m3" else x
    out = round_fraction(Fraction(x), dtype.digits, least)
    if abs(out) > largest:
        return nan if name == "f8e4m3" else inf if x > 0 else -inf
    return float(np.copysign(out, x))


def all_values(dtype: DType) -> np.ndarray[Any, Any]:
    bits = np.arange(2**dtype.bits, dtype=np.uint16 if dtype.bits == 16 else np.uint8)
    with np.errstate(invalid="ignore"):
        return bits.view(dtype.numpy()).astype(np.float64)


@pytest.mark.parametrize("name", NARROW)
def test_casts_to_narrow_floats(name: str) -> None:
    """Every value, every midpoint between neighbours and the f32 and f64 next to it, random numbers, the special ones."""
    dtype = NARROW[name][0]
    values = all_values(dtype)
    finite = np.unique(values[np.isfinite(values)])
    middle = (finite[1:] + finite[:-1]) / 2
    largest = finite[-1] + (finite[-1] - finite[-2]) / 2
    rng = np.random.default_rng(1)
    sample = rng.choice(middle, min(len(middle), 3000), replace=False)
    x = np.concatenate([finite, sample, np.nextafter(sample, inf), np.nextafter(sample, -inf), [largest, np.nextafter(largest, 0), np.nextafter(largest, inf)],
                        rng.standard_normal(2000) * 2.0**rng.integers(-30, 30, 2000), [nan, inf, -inf, -0.0, 1e300, -1e-300, 5e-324]])
    got = cast(x, dtype, F64)
    assert got.dtype == np.float32
    some = rng.choice(len(x), min(len(x), 12000), replace=False)
    same(got[some], [narrow_fraction(v, name) for v in x[some].tolist()])
    same(cast(finite, dtype, F64), finite)
    # From f32, which ml_dtypes and NumPy round once as well.
    with np.errstate(all="ignore"):
        y = np.concatenate([x, [1e38, 3.3e38, 65519.996, 65520, 57343, 61440, 464, 464.1, 480]]).astype(np.float32)
        same(cast(y, dtype, F32), y.astype(dtype.numpy()).astype(np.float32))


@pytest.mark.parametrize(("name", "code"), [("f16", "e")])
def test_f16_agrees_with_struct(name: str, code: str) -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal(5000) * 10.0**rng.integers(-9, 4, 5000)
    x = x[np.abs(x) < 65000]
    same(cast(x, DTYPES[name], F64), [struct.unpack(code, struct.pack(code, v))[0] for v in x.tolist()])


def test_f64_to_narrow_is_one_rounding() -> None:
    # The tail is lost in f32, which would leave a tie.
    assert cast(np.float64(1 + 2**-8 + 2**-40), BF16, F64) == 1 + 2**-7
    assert cast(np.float64(1 + 2**-11 + 2**-40), F16, F64) == 1 + 2**-10
    assert cast(np.int64(2**62 + 2**54 + 1), BF16, I64) == 2.0**62 + 2.0**55
    assert cast(np.int64(-(2**62 + 2**54 + 1)), BF16, I64) == -(2.0**62 + 2.0**55)
    assert cast(np.int64(2**62 + 2**54), BF16, I64) == 2.0**62
    assert cast(np.int64(MIN64), BF16, I64) == -2.0**63
    assert cast(np.int32(2049), F16, I32) == 2048
    assert cast(np.int32(70000), F16, I32) == inf
    assert cast(np.int32(16777217), F32, I32) == 16777216
    assert cast(np.int64(2**62 + 2**38 + 1), F32, I64) == 2.0**62 + 2.0**39


def test_sat_casts_to_floats_stay_finite() -> None:
    same(cast(np.array([1e6, inf, -inf, nan], np.float32), F16, F32, saturate=True), [65504, 65504, -65504, nan])
    same(cast(np.array([1e6, -1e6]), F8E4M3, F64, saturate=True), [448, -448])


def test_float_to_integer_saturates() -> None:
    x = np.array([nan, inf, -inf, 3e9, -1.5, 256.7, -1], np.float32)
    same(cast(x, I32, F32), [0, MAX32, MIN32, MAX32, -1, 256, -1])
    same(cast(x, U8, F32), [0, 255, 0, 255, 0, 255, 0])
    same(cast(x, U8, F32, saturate=True), [0, 255, 0, 255, 0, 255, 0])
    same(cast(x, I8, F32), [0, 127, -128, 127, -1, 127, -1])
    same(cast(np.array([9.3e18, -9.3e18, 2.0**63, 2.0**62, -2.0**63, nan, .99]), I64, F64), [MAX64, MIN64, MAX64, 2**62, MIN64, 0, 0])
    same(cast(np.array([2147483647.5, -2147483648.5]), I32, F64), [MAX32, MIN32])


def test_integer_casts_wrap_or_saturate() -> None:
    x = np.array([3 - 4, 255 + 1, 250 + 10, 16 * 17, MIN32], np.int32)
    same(cast(x, U8, I32), [255, 0, 4, 16, 0])
    same(cast(x, U8, I32, saturate=True), [0, 255, 255, 255, 0])
    same(cast(np.array([127, 128, -129, 300], np.int32), I8, I32), [127, -128, 127, 44])
    same(cast(np.array([127, 128, -129, 300], np.int32), I8, I32, saturate=True), [127, 127, -128, 127])
    same(cast(np.array([70000, -1], np.int32), U16, I32), [4464, 65535])
    same(cast(np.array([40000, -40000], np.int32), I16, I32), [-25536, 25536])
    same(cast(np.array([2**32 + 5, MAX64, -1], np.int64), I32, I64), [5, -1, -1])
    same(cast(np.array([2**32 + 5, MIN64], np.int64), I32, I64, saturate=True), [MAX32, MIN32])
    assert cast(np.array([1], np.int32), I64, I32).dtype == np.int64
    assert cast(np.int32(5), U8, I32).dtype == np.int32


def test_casts_to_and_from_bool() -> None:
    same(cast(np.array([0.0, -0.0, nan, 2.0]), BOOL, F64), [False, False, True, True])
    same(cast(np.array([True, False]), U8, BOOL), [1, 0])
    same(cast(np.array([True, False]), F16, BOOL), [1, 0])
    assert cast(np.array([True]), F64, BOOL).dtype == np.float64


def test_storage() -> None:
    stored = array_to_storage(np.array([1 + 2.0**-8, nan, 3e38]), BF16)
    assert stored.dtype == ml_dtypes.bfloat16
    same(array_from_storage(stored, BF16), [1, nan, float(np.float32(3e38).astype(ml_dtypes.bfloat16))])
    fresh = np.array([1.0, 2.0], np.float32)
    assert not np.shares_memory(array_to_storage(fresh, F32), fresh)
    assert array_to_storage(np.int32(300), U8) == 44


# -------------------------------------------------------------------------------------------------------------------- folding


def i32(value: int) -> IntLit:
    return IntLit(value, dtype=I32)


def f32(value: float) -> Expr:
    return FloatLit(float(value), dtype=F32)


def value_of(e: Expr | None) -> Any:
    assert e is not None
    return literal(e)


def test_folding_has_the_bits_of_running() -> None:
    assert fold(Apply("+", (i32(MAX32), i32(1)), dtype=I32)) == i32(MIN32)
    assert fold(Apply("*", (i32(65536), i32(65536)), dtype=I32)) == i32(0)
    assert fold(Cast("u8", i32(-1), dtype=I32)) == i32(255)
    assert fold(Cast("u8", i32(-1), saturate=True, dtype=I32)) == i32(0)
    assert fold(Apply("floordiv", (i32(MIN32), i32(-1)), dtype=I32)) == i32(MIN32)
    assert fold(Apply("mod", (i32(-7), i32(0)), dtype=I32)) == i32(0)
    assert value_of(fold(Apply("*", (f32(1.1), f32(1.1)), dtype=F32))) == np.float32(1.1) * np.float32(1.1)
    assert value_of(fold(Apply("/", (f32(1), f32(3)), dtype=F32))) == np.float32(1) / np.float32(3)
    assert value_of(fold(Cast("f16", f32(.1), dtype=F32))) == np.float32(np.float16(np.float32(.1)))
    assert value_of(fold(Apply("**", (f32(1.1), i32(3)), dtype=F32))) == np.float32(1.1) * np.float32(1.1) * np.float32(1.1)
    assert value_of(fold(Apply("+", (f32(3e38), f32(3e38)), dtype=F32))) == inf
    folded = fold(Apply("neg", (f32(0.0),), dtype=F32))
    assert folded is not None
    assert folded == FloatLit(-0.0)
    assert folded.dtype is F32


def test_folding_of_infinities_and_nan_gives_the_words() -> None:
    assert fold(Apply("/", (f32(1), f32(0)), dtype=F32)) == Const("inf")
    minus = fold(Apply("/", (f32(-1), f32(0)), dtype=F32))
    assert minus == Apply("neg", (Const("inf"),))
    assert minus is not None
    assert is_literal(minus)
    assert value_of(minus) == -inf
    assert fold(minus) is None
    assert fold(Apply("-", (Const("inf", dtype=F32), Const("inf", dtype=F32)), dtype=F32)) == Const("nan")
    assert fold(Apply("<", (f32(1), Const("inf", dtype=F32)), dtype=BOOL)) == Const("true")


def test_what_is_not_folded() -> None:
    x = Name("x", dtype=F32)
    assert fold(Apply("exp", (f32(1),), dtype=F32)) is None
    assert fold(Apply("**", (f32(1.1), f32(.5)), dtype=F32)) is None
    assert fold(Apply("**", (f32(1.1), i32(7)), dtype=F32)) is None
    assert fold(Apply("+", (x, f32(0)), dtype=F32)) is None
    assert fold(Cast("f64", f32(1), dtype=F64)) is None
    assert fold(x) is None
    assert fold(f32(1)) is None


def test_folding_of_lazy_functions() -> None:
    x, b = Name("x", dtype=F32), Name("b", dtype=BOOL)
    true, false = Const("true", dtype=BOOL), Const("false", dtype=BOOL)
    assert fold(Apply("select", (true, x, f32(1)), dtype=F32)) is x
    assert fold(Apply("select", (false, x, f32(1)), dtype=F32)) == f32(1)
    assert fold(Apply("and", (false, b), dtype=BOOL)) == false
    assert fold(Apply("and", (true, b), dtype=BOOL)) is b
    assert fold(Apply("or", (true, b), dtype=BOOL)) == true
    assert fold(Apply("or", (false, b), dtype=BOOL)) is b
    assert fold(Apply("select", (b, f32(1), f32(1)), dtype=F32)) is None
