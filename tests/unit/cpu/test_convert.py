"""Casts and conversions: every dtype to every dtype, narrow formats exhaustively, against tables of all their values, Python integers and ml_dtypes."""
from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from pipelink_ir.backends.loops.form import Convert, Expr
from pipelink_ir.ir.dtypes import BF16, BOOL, DTYPES, F8E4M3, F8E5M2, F16, F32, F64, I32, I64, DType

NARROW = (F16, BF16, F8E4M3, F8E5M2)
WIDE = (BOOL, I32, I64, F32, F64)
INTEGERS = tuple(d for d in DTYPES.values() if d.is_int)

Array = np.ndarray[Any, Any]


def to(dtype: DType, saturate: bool = False) -> Callable[[Expr], Expr]:
    return lambda a: Convert(a, dtype, dtype.compute, saturate)


def identity(a: Expr) -> Expr:
    return a


def every(dtype: DType) -> Array:
    """All values of a dtype of at most 16 bits."""
    return np.arange(1 << dtype.bits, dtype=f"uint{dtype.bits}").view(dtype.numpy())


@pytest.fixture(scope="module", params=[False, True], ids=["host", "plain"])
def run(request: pytest.FixtureRequest, compile_maps: Callable[..., Any]) -> Any:
    """Every conversion: `s>d` a cast, `s>>d` a saturating one, `store d` of f32 and `store64 d` of f64, `load d`."""
    maps: dict[str, Any] = {}
    for source in WIDE:
        for target in DTYPES.values():
            maps[f"{source}>{target}"] = ((source,), target.compute, to(target))
            if target.is_int and source.is_int:
                maps[f"{source}>>{target}"] = ((source,), target.compute, to(target, True))
    for target in NARROW:
        maps[f"store {target}"] = ((F32,), target, identity)
        maps[f"store64 {target}"] = ((F64,), target, identity)
        maps[f"load {target}"] = ((target,), F32, identity)
    for dtype in DTYPES.values():
        maps[f"copy {dtype}"] = ((dtype,), dtype, identity)
    maps["store64 f32"] = ((F64,), F32, identity)
    return compile_maps(maps, plain=request.param)


def random_floats(kind: str, count: int, seed: int = 7) -> Array:
    """Random patterns, so that all magnitudes occur, and the corners of all formats with what lies next to them."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 2**64, count, dtype=np.uint64)
    out = bits.view(np.float64) if kind == "f64" else bits.astype(np.uint32).view(np.float32)
    corners = [0.0, 0.5, 1, 1.5, 2.5, 127, 127.5, 128, 255, 255.5, 256, 448, 464, 465, 480, 57344, 61440, 65504, 65519.99, 65520, 65535.5, 65536, 2.0**31,
               2.0**31 - 1, 2.0**32, 2.0**63, 2.0**64, 3.3895e38, 3.4028235e38, np.inf, 5.960464477539063e-08, 2.98e-8, 2.9802322387695312e-08, 6.1e-5,
               2.0**-16, 2.0**-17, 2.0**-10, 2.0**-9, 2.0**-6, 2.0**-133, 2.0**-134, 2.0**-126, 1e-45]
    near = np.asarray(corners, kind_of(kind))
    with np.errstate(all="ignore"):
        near = np.concatenate([near, np.nextafter(near, np.asarray(np.inf, near.dtype)), np.nextafter(near, np.asarray(-np.inf, near.dtype))])
        moderate = (rng.standard_normal(count) * 2.0 ** rng.integers(-20, 20, count)).astype(near.dtype)
    return np.concatenate([out, moderate, near, -near, np.asarray([np.nan, -np.nan], near.dtype)])


def kind_of(name: str) -> Any:
    return np.float64 if name == "f64" else np.float32


def rounded_by_table(x: Array, dtype: DType) -> Array:
    """Patterns of `x` (f64) in a narrow format: the nearest of all its values, of two equally near ones the even pattern."""
    patterns = np.arange(1 << (dtype.bits - 1), dtype=f"uint{dtype.bits}")
    values = patterns.view(dtype.numpy()).astype(np.float64)
    finite = np.isfinite(values)
    values, patterns = values[finite], patterns[finite]
    size = np.abs(x)
    above = np.searchsorted(values, size)
    high, low = np.minimum(above, len(values) - 1), np.maximum(above - 1, 0)
    middle = (values[high] + values[low]) / 2
    up = (size > middle) | ((size == middle) & (patterns[low] % 2 == 1))
    out = np.where(up, patterns[high], patterns[low])
    # One more step beyond the largest number is where infinity (or NaN) begins.
    limit = values[-1] + (values[-1] - values[-2]) / 2
    beyond = np.asarray([np.inf], np.float64).astype(dtype.numpy()).view(patterns.dtype)[0]
    over = (size > limit) | ((size == limit) & (patterns[-1] % 2 == 1))
    out = np.where(over, beyond, out)
    sign = np.where(np.signbit(x), 1 << (dtype.bits - 1), 0).astype(patterns.dtype)
    return (out | sign).view(dtype.numpy())


def same_narrow(got: Array, want: Array) -> None:
    """Equal patterns, but for NaN, which only has to be NaN."""
    kind = f"uint{got.dtype.itemsize * 8}"
    nan = np.isnan(want.astype(np.float32))
    np.testing.assert_array_equal(np.isnan(got.astype(np.float32)), nan)
    np.testing.assert_array_equal(got.view(kind)[~nan], want.view(kind)[~nan])


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_narrow_floats_are_widened(run: Any, same: Any, dtype: DType) -> None:
    values = every(dtype)
    same(run(f"load {dtype}", values), values.astype(np.float32))


@pytest.mark.parametrize("dtype", [d for d in DTYPES.values() if d.bits <= 16], ids=str)
def test_narrow_values_survive_load_and_store(run: Any, dtype: DType) -> None:
    if dtype is BOOL:
        np.testing.assert_array_equal(run("copy bool", [True, False]), [True, False])
    elif dtype.is_float:
        same_narrow(run(f"copy {dtype}", every(dtype)), every(dtype))
    else:
        np.testing.assert_array_equal(run(f"copy {dtype}", every(dtype)), every(dtype))


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_floats_are_narrowed_with_one_rounding(run: Any, same: Any, dtype: DType, kind: str) -> None:
    x = random_floats(kind, 20_000)
    with np.errstate(all="ignore"):
        # Halfway between two values of the format, and next to that: where a second rounding would show.
        steps = every(dtype)[:(1 << (dtype.bits - 1)) - 1].astype(np.float64)
        steps = steps[np.isfinite(steps)]
        halves = ((steps[1:] + steps[:-1]) / 2).astype(kind_of(kind))
        x = np.concatenate([x, halves, -halves, np.nextafter(halves, np.inf, dtype=halves.dtype), np.nextafter(halves, -np.inf, dtype=halves.dtype)])
        want = rounded_by_table(x.astype(np.float64), dtype)
        want[np.isnan(x)] = np.nan
    same_narrow(run(f"store{'64' if kind == 'f64' else ''} {dtype}", x), want)
    same(run(f"{kind}>{dtype}", x), want.astype(np.float32))


def test_narrowing_agrees_with_other_libraries(run: Any) -> None:
    x = random_floats("f32", 20_000, seed=11)
    with np.errstate(all="ignore"):
        for dtype in NARROW:
            same_narrow(run(f"store {dtype}", x), x.astype(dtype.numpy()))
        wide = random_floats("f64", 20_000, seed=12)
        same_narrow(run("store64 f16", wide), wide.astype(np.float16))


def test_f64_to_f16_is_one_rounding(run: Any) -> None:
    # 1 + 2^-11 is a tie; 2^-40 more decides it, and is lost on the way through f32.
    assert run("store64 f16", [1 + 2.0**-11 + 2.0**-40])[0] == np.float16(1 + 2.0**-10)
    assert run("store64 f16", [1 + 2.0**-11])[0] == np.float16(1)


def test_halves_of_the_fault_list(run: Any) -> None:
    assert run("f32>f16", [6e-8])[0] == np.float32(5.9604645e-8)
    assert np.isnan(run("f32>f16", [np.nan])[0])
    assert np.isnan(run("store bf16", np.asarray([0x7F800001], np.uint32).view(np.float32)).astype(np.float32)[0])


@pytest.mark.parametrize("target", INTEGERS, ids=str)
@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_floats_become_integers(run: Any, target: DType, kind: str) -> None:
    x = random_floats(kind, 2000)

    def one(v: float) -> int:
        if v != v:
            return 0
        return max(target.lowest, min(target.highest, target.highest if v == np.inf else target.lowest if v == -np.inf else int(v)))

    np.testing.assert_array_equal(run(f"{kind}>{target}", x), [one(float(v)) for v in x])


def test_floats_of_the_fault_list(run: Any) -> None:
    x = [np.nan, np.inf, -np.inf, 3e9, -1.5, 256.7, -1]
    np.testing.assert_array_equal(run("f32>i32", x), [0, 2147483647, -2147483648, 2147483647, -1, 256, -1])
    np.testing.assert_array_equal(run("f32>u8", x), [0, 255, 0, 255, 0, 255, 0])


def integers(dtype: DType) -> list[int]:
    rng = np.random.default_rng(3)
    edges = {s * (1 << k) + d for k in range(dtype.bits) for s in (1, -1) for d in (-1, 0, 1)}
    ties = {s * ((1 << k) + (1 << max(0, k - 24)) + d) for k in range(25, dtype.bits - 1) for s in (1, -1) for d in (-1, 0, 1)}
    inside = [v for v in sorted(edges | ties) if dtype.lowest <= v <= dtype.highest]
    return [*inside, *rng.integers(dtype.lowest, dtype.highest, 1000, dtype=np.int64, endpoint=True).tolist()]


@pytest.mark.parametrize("target", INTEGERS, ids=str)
@pytest.mark.parametrize("source", [I32, I64], ids=str)
def test_integers_wrap_or_saturate(run: Any, source: DType, target: DType) -> None:
    values = integers(source)
    span = 1 << target.bits
    wrapped = [(v - target.lowest) % span + target.lowest for v in values]
    np.testing.assert_array_equal(run(f"{source}>{target}", values), wrapped)
    np.testing.assert_array_equal(run(f"{source}>>{target}", values), [max(target.lowest, min(target.highest, v)) for v in values])


@pytest.mark.parametrize("target", [d for d in DTYPES.values() if d.is_float], ids=str)
@pytest.mark.parametrize("source", [I32, I64], ids=str)
def test_integers_become_floats_with_one_rounding(run: Any, source: DType, target: DType) -> None:
    values = integers(source)
    got = run(f"{source}>{target}", values).astype(np.float64)
    limit = {"f16": 65520, "f8e4m3": 465, "f8e5m2": 61440}.get(target.name)
    for value, result in zip(values, got.tolist(), strict=True):
        if limit is not None and abs(value) >= limit:
            assert np.isinf(result) if target is not F8E4M3 else np.isnan(result), value
            continue
        step = 1 << max(0, abs(value).bit_length() - target.digits)
        assert abs(Fraction(result) - value) <= Fraction(step, 2), (value, result)
        if abs(Fraction(result) - value) == Fraction(step, 2):
            assert int(result) % (2 * step) == 0, (value, result)


@pytest.mark.parametrize("target", DTYPES.values(), ids=str)
def test_bools_become_numbers(run: Any, target: DType) -> None:
    np.testing.assert_array_equal(run(f"bool>{target}", [False, True]), [0, 1])


@pytest.mark.parametrize("source", WIDE[1:], ids=str)
def test_numbers_become_bools(run: Any, source: DType) -> None:
    values = [0, 1, -1, 2, 256, 65536]
    np.testing.assert_array_equal(run(f"{source}>bool", values), [v != 0 for v in values])
    if source.is_float:
        np.testing.assert_array_equal(run(f"{source}>bool", [np.nan, -0.0, 1e-45, np.inf]), [True, False, True, True])


def test_f64_to_f32(run: Any, same: Any) -> None:
    x = random_floats("f64", 20_000)
    with np.errstate(all="ignore"):
        same(run("f64>f32", x), x.astype(np.float32))
        same(run("store64 f32", x), x.astype(np.float32))


@pytest.mark.parametrize("source", [F32, F64], ids=str)
def test_body_and_tail_of_a_loop_agree(run: Any, source: DType) -> None:
    x = random_floats(source.name, 40)
    for target in NARROW:
        whole = run(f"{source}>{target}", x)
        for length in (1, 2, 3, 7, 8, 15, 16, 17, 31, 33):
            np.testing.assert_array_equal(run(f"{source}>{target}", x[:length]), whole[:length])
