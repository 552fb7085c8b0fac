"""Primitive functions against wider arithmetic (float64 for f32, 80-bit or SciPy for f64), Python integers, and the special cases of the C standard."""
from __future__ import annotations

import math
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import scipy.special

from pipelink_ir.backends.cpu import jit
from pipelink_ir.backends.loops.form import Op
from pipelink_ir.ir.dtypes import BOOL, F32, F64, I32, I64, DType

Array = np.ndarray[Any, Any]
inf, nan = float("inf"), float("nan")
FLOATS, INTEGERS = (F32, F64), (I32, I64)

UNARY = "neg abs sign floor ceil round sqrt rsqrt exp exp2 expm1 log log2 log1p sin cos tan tanh erf".split()
BINARY = "+ - * / min max fmin fmax floordiv mod pow atan2".split()
COMPARISONS = "== != < <= > >=".split()
INTEGER_UNARY, INTEGER_BINARY = "neg abs sign".split(), "+ - * min max floordiv mod".split()

ULP = {"exp": 2, "exp2": 2, "log": 2, "log2": 2, "sqrt": 0.5, "rsqrt": 2, "expm1": 4, "log1p": 4, "pow": 4, "sin": 4, "cos": 4, "tan": 4, "tanh": 4, "erf": 4,
       "atan2": 4}
EXACT: dict[str, Callable[..., Any]] = {
    "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log1p": np.log1p,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "tanh": np.tanh, "erf": scipy.special.erf, "pow": np.power, "atan2": np.arctan2}


def op(fn: str, result: DType | None = None) -> Callable[..., Op]:
    return lambda *args: Op(fn, args, result or args[0].dtype)


@pytest.fixture(scope="module", params=[False, True], ids=["host", "plain"])
def run(request: pytest.FixtureRequest, compile_maps: Callable[..., Any]) -> Any:
    """Every primitive of every type: `exp.f32`."""
    maps: dict[str, Any] = {}
    for d in FLOATS:
        maps |= {f"{fn}.{d}": ((d,), d, op(fn)) for fn in UNARY}
        maps |= {f"{fn}.{d}": ((d, d), d, op(fn)) for fn in BINARY}
        maps |= {f"{fn}.{d}": ((d,), BOOL, op(fn, BOOL)) for fn in ("isnan", "isinf")}
        maps[f"fma.{d}"] = ((d, d, d), d, op("fma"))
    for d in INTEGERS:
        maps |= {f"{fn}.{d}": ((d,), d, op(fn)) for fn in INTEGER_UNARY}
        maps |= {f"{fn}.{d}": ((d, d), d, op(fn)) for fn in INTEGER_BINARY}
    for d in (*FLOATS, *INTEGERS):
        maps |= {f"{fn}.{d}": ((d, d), BOOL, op(fn, BOOL)) for fn in COMPARISONS}
    maps |= {f"{fn}.i64": ((I64, I64), I64, op(fn)) for fn in ("quot", "rest")}
    maps |= {f"{fn}.bool": ((BOOL, BOOL), BOOL, op(fn)) for fn in ("and", "or", "==", "!=")}
    maps["not.bool"] = ((BOOL,), BOOL, op("not"))
    return compile_maps(maps, plain=request.param)


def samples(dtype: DType, count: int = 25_000) -> Array:
    """Four mixtures: around 1, of moderate size, of all exponents, and of all patterns; and the special values."""
    rng = np.random.default_rng(5)
    kind, bits = (np.float32, np.uint32) if dtype is F32 else (np.float64, np.uint64)
    with np.errstate(all="ignore"):
        parts = [1 + 0.01 * rng.standard_normal(count), 3 * rng.standard_normal(count), 60 * rng.standard_normal(count),
                 rng.integers(0, 2**dtype.bits, count, dtype=np.uint64).astype(bits).view(kind)]
        special = [0.0, 1.0, 0.5, 2.0, 1.5, 1e-45, 1e-310, 1e-38, 1.17549435e-38, 3.4e38, 1e308, inf, 88.7, 88.73, 103.9, 104.1, 127.9, 128, 149, 149.5, 150,
                   151, 0.625, 0.9277, 0.9278, 709.7, 709.9, 745.2]
        return np.concatenate([*(p.astype(kind) for p in parts), np.asarray(special, kind), -np.asarray(special, kind), np.asarray([nan], kind)])


@pytest.mark.parametrize("fn", [f for f in UNARY if f in ULP])
def test_f32_functions_keep_their_accuracy(run: Any, ulps: Any, fn: str) -> None:
    x = samples(F32)
    with np.errstate(all="ignore"):
        want = EXACT[fn](x.astype(np.float64))
    assert ulps(run(f"{fn}.f32", x), want) <= ULP[fn]


@pytest.mark.parametrize("fn", [f for f in UNARY if f in ULP])
def test_f64_functions_keep_their_accuracy(run: Any, ulps: Any, fn: str) -> None:
    x = samples(F64, 5000)
    with np.errstate(all="ignore"):
        if fn == "erf":
            # SciPy's own value is off by an ulp at most.
            return _check_erf64(run("erf.f64", x), x)
        want = EXACT[fn](x.astype(np.longdouble))
    if np.finfo(np.longdouble).nmant < 60:
        pytest.skip("no wider float on this machine")
    assert ulps(run(f"{fn}.f64", x), want) <= ULP[fn]


def _check_erf64(got: Array, x: Array) -> None:
    want = np.asarray([math.erf(v) for v in x])
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    finite = ~np.isnan(want)
    assert np.all(np.abs(got - want)[finite] <= 5 * np.spacing(np.abs(want[finite])))


@pytest.mark.parametrize("fn", ["pow", "atan2"])
def test_f32_functions_of_two(run: Any, ulps: Any, fn: str) -> None:
    rng = np.random.default_rng(6)
    base = np.exp(rng.standard_normal(40_000) * 3).astype(np.float32)
    exponent = (rng.standard_normal(40_000) * 6).astype(np.float32)
    anything = samples(F32, 10_000)
    whole = rng.integers(-9, 10, len(anything)).astype(np.float32)
    for a, b in ((base, exponent), (anything, np.roll(anything, 1)), (anything, whole), (anything, np.roll(anything, 777)), (-base, np.rint(exponent))):
        with np.errstate(all="ignore"):
            want = EXACT[fn](a.astype(np.float64), b.astype(np.float64))
        assert ulps(run(f"{fn}.f32", a, b), want) <= 4


@pytest.mark.parametrize("fn", ["pow", "atan2"])
def test_f64_functions_of_two(run: Any, ulps: Any, fn: str) -> None:
    rng = np.random.default_rng(6)
    a, b = np.exp(rng.standard_normal(5000) * 3), rng.standard_normal(5000) * 6
    if np.finfo(np.longdouble).nmant < 60:
        pytest.skip("no wider float on this machine")
    assert ulps(run(f"{fn}.f64", a, b), EXACT[fn](a.astype(np.longdouble), b.astype(np.longdouble))) <= 4


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_special_cases_of_pow(run: Any, same: Any, dtype: DType) -> None:
    table = [
        (1, nan, 1), (nan, 0, 1), (nan, -0.0, 1), (0, 0, 1), (inf, 0, 1), (nan, 1, nan), (2, nan, nan), (-8, 3, -512), (-8, 2, 64), (-8, -1, -0.125),
        (-0.25, 1.2, nan), (0, -1, inf), (-0.0, -1, -inf), (0, -2, inf), (-0.0, -2, inf), (-0.0, -1.5, inf), (0, -inf, inf), (-0.0, -inf, inf),
        (0, 3, 0.0), (-0.0, 3, -0.0), (0, 0.45, 0.0), (-0.0, 0.5, 0.0), (0, inf, 0.0), (-1, inf, 1), (-1, -inf, 1), (0.5, inf, 0.0), (0.5, -inf, inf),
        (2, inf, inf), (2, -inf, 0.0), (-2, inf, inf), (inf, -1, 0.0), (inf, 2, inf), (-inf, -3, -0.0), (-inf, -2, 0.0), (-inf, -1.5, 0.0),
        (-inf, 3, -inf), (-inf, 2, inf), (-inf, 2.5, inf), (inf, inf, inf), (inf, -inf, 0.0), (-inf, inf, inf), (-inf, -inf, 0.0), (2, 10, 1024),
        (4, 0.5, 2), (9, 1.5, 27), (10, 3, 1000), (10, -2, 0.01), (3, 5, 243)]
    a, b, want = zip(*table, strict=True)
    got = run(f"pow.{dtype}", a, b)
    same(got, np.asarray(want, dtype.numpy()))


def test_pow_leaves_pixels_alone(run: Any) -> None:
    pixels = np.arange(256, dtype=np.float32)
    np.testing.assert_array_equal(run("pow.f32", pixels, np.ones(256)), pixels)
    np.testing.assert_array_equal(run("pow.f32", pixels, np.full(256, 2.0)), pixels * pixels)


def test_exact_results_stay_exact(run: Any, same: Any) -> None:
    same(run("exp2.f32", np.arange(-149, 129)), np.asarray([2.0**k if k < 128 else inf for k in range(-149, 129)], np.float32))
    same(run("log2.f32", [2.0**k for k in range(-149, 128)]), np.arange(-149, 128, dtype=np.float32))
    same(run("exp.f32", [0.0, -0.0]), np.ones(2, np.float32))
    same(run("log.f32", [1.0]), np.zeros(1, np.float32))
    same(run("sqrt.f32", [4, -0.0, 2.25]), np.asarray([2, -0.0, 1.5], np.float32))
    same(run("rsqrt.f32", [4, 0, -0.0, inf, -1]), np.asarray([0.5, inf, -inf, 0, nan], np.float32))
    same(run("/.f32", [6, 1.17549435e-38, 1, -1, 0], [3, 2, 0, 0, 0]), np.asarray([2, 5.877472e-39, inf, -inf, nan], np.float32))
    same(run("exp2.f32", [-149, -150]), np.asarray([1e-45, 0], np.float32))


@pytest.mark.parametrize("fn", ["expm1", "log1p", "tanh", "erf", "sin", "tan"])
def test_small_arguments_keep_their_sign_and_value(run: Any, fn: str) -> None:
    x = np.asarray([1e-30, -1e-30, 1e-45, -1e-45, 0.0, -0.0], np.float32)
    got = run(f"{fn}.f32", x)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(x))
    want = x.astype(np.float64) * (2 / math.sqrt(math.pi) if fn == "erf" else 1)
    assert np.all(np.abs(got - want) <= 1e-45 + 2e-7 * np.abs(want))


# ---------------------------------------------------------------------------------------------------- order, rounding, comparisons


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("length", [1, 17, 40])
def test_minimum_and_maximum(run: Any, same: Any, dtype: DType, length: int) -> None:
    a = np.resize(np.asarray([nan, 1, nan, 0, -inf, 5, 2.5], dtype.numpy()), length)
    b = np.resize(np.asarray([1, nan, nan, -1, inf, 5, -3], dtype.numpy()), length)
    same(run(f"max.{dtype}", a, b), np.resize([nan, nan, nan, 0, inf, 5, 2.5], length))
    same(run(f"min.{dtype}", a, b), np.resize([nan, nan, nan, -1, -inf, 5, -3], length))
    same(run(f"fmax.{dtype}", a, b), np.resize([1, 1, nan, 0, inf, 5, 2.5], length))
    same(run(f"fmin.{dtype}", a, b), np.resize([1, 1, nan, -1, -inf, 5, -3], length))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_rounding(run: Any, same: Any, dtype: DType) -> None:
    x = np.asarray([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.49999997, -0.2, 1e10, -1e30, inf, -inf, nan, -0.0, 8388607.5, 4194303.5, 3.7, -3.7], dtype.numpy())
    python = [v if not math.isfinite(v) else math.copysign(float(round(Fraction(v))), v) for v in x.tolist()]
    same(run(f"round.{dtype}", x), np.asarray(python, dtype.numpy()))
    same(run(f"floor.{dtype}", x), np.asarray([v if not math.isfinite(v) else math.copysign(float(math.floor(v)), v) for v in x.tolist()], dtype.numpy()))
    same(run(f"ceil.{dtype}", x), np.asarray([v if not math.isfinite(v) else math.copysign(float(math.ceil(v)), v) for v in x.tolist()], dtype.numpy()))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_sign_abs_neg_and_tests(run: Any, same: Any, dtype: DType) -> None:
    x = [3.5, -2, 0.0, -0.0, inf, -inf, nan, 1e-45]
    tiny = 1.0 if dtype is F64 or np.float32(1e-45) > 0 else 0.0
    same(run(f"sign.{dtype}", x), np.asarray([1, -1, 0.0, -0.0, 1, -1, nan, tiny], dtype.numpy()))
    same(run(f"abs.{dtype}", x), np.abs(np.asarray(x, dtype.numpy())))
    same(run(f"neg.{dtype}", x), np.asarray([-v for v in x], dtype.numpy()))
    np.testing.assert_array_equal(run(f"isnan.{dtype}", x), [v != v for v in x])
    np.testing.assert_array_equal(run(f"isinf.{dtype}", x), [abs(v) == inf for v in x])


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
def test_comparisons(run: Any, dtype: DType) -> None:
    values = [-2, 0, 3, dtype.lowest if dtype.is_int else inf, dtype.highest if dtype.is_int else nan]
    a, b = [v for v in values for _ in values], values * len(values)
    for fn in COMPARISONS:
        want = [eval(f"x {fn} y", {"x": x, "y": y}) for x, y in zip(a, b, strict=True)]
        np.testing.assert_array_equal(run(f"{fn}.{dtype}", a, b), want, err_msg=fn)


def test_logic(run: Any) -> None:
    a, b = [False, False, True, True], [False, True, False, True]
    np.testing.assert_array_equal(run("and.bool", a, b), [False, False, False, True])
    np.testing.assert_array_equal(run("or.bool", a, b), [False, True, True, True])
    np.testing.assert_array_equal(run("==.bool", a, b), [True, False, False, True])
    np.testing.assert_array_equal(run("!=.bool", a, b), [False, True, True, False])
    np.testing.assert_array_equal(run("not.bool", a), [True, True, False, False])


# ------------------------------------------------------------------------------------------------------------------ integers


def wrap(value: int, dtype: DType) -> int:
    return (value - dtype.lowest) % (1 << dtype.bits) + dtype.lowest


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_arithmetic(run: Any, dtype: DType) -> None:
    rng = np.random.default_rng(8)
    edges = [dtype.lowest, dtype.lowest + 1, -7, -3, -2, -1, 0, 1, 2, 3, 7, 200, dtype.highest - 1, dtype.highest]
    random = rng.integers(dtype.lowest, dtype.highest, 400, dtype=np.int64).tolist()
    small = rng.integers(-20, 20, 400).tolist()
    a = [v for v in edges for _ in edges] + random + random
    b = edges * len(edges) + small + random[::-1]
    python: dict[str, Callable[[int, int], int]] = {
        "+": lambda x, y: wrap(x + y, dtype), "-": lambda x, y: wrap(x - y, dtype), "*": lambda x, y: wrap(x * y, dtype), "min": min, "max": max,
        "floordiv": lambda x, y: wrap(x // y, dtype) if y else 0, "mod": lambda x, y: x % y if y else 0}
    for fn, exact in python.items():
        np.testing.assert_array_equal(run(f"{fn}.{dtype}", a, b), [exact(x, y) for x, y in zip(a, b, strict=True)], err_msg=fn)
    np.testing.assert_array_equal(run(f"abs.{dtype}", a), [wrap(abs(x), dtype) for x in a])
    np.testing.assert_array_equal(run(f"neg.{dtype}", a), [wrap(-x, dtype) for x in a])
    np.testing.assert_array_equal(run(f"sign.{dtype}", a), [(x > 0) - (x < 0) for x in a])


def test_unsigned_quotients(run: Any) -> None:
    a, b = [0, 1, 7, 2**62, 2**63 - 1, 100], [1, 1, 3, 7, 2, 1000]
    np.testing.assert_array_equal(run("quot.i64", a, b), [x // y for x, y in zip(a, b, strict=True)])
    np.testing.assert_array_equal(run("rest.i64", a, b), [x % y for x, y in zip(a, b, strict=True)])


# ------------------------------------------------------------------------------------------------------------- floor division


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_float_modulo_floors(run: Any, same: Any, dtype: DType) -> None:
    rng = np.random.default_rng(9)
    a = (rng.standard_normal(3000) * 2.0 ** rng.integers(-20, 20, 3000)).astype(dtype.numpy())
    b = (rng.standard_normal(3000) * 2.0 ** rng.integers(-5, 5, 3000)).astype(dtype.numpy())
    got = run(f"mod.{dtype}", a, b)
    # fmod is exact, and so is what follows unless the signs differ, where one addition rounds.
    want = []
    for x, y in zip(a.tolist(), b.tolist(), strict=True):
        r = math.fmod(x, y)
        r = float(np.asarray(r, dtype.numpy()) + np.asarray(y, dtype.numpy())) if r and (r < 0) != (y < 0) else math.copysign(r, y) if r == 0 else r
        want.append(r)
    same(got, np.asarray(want, dtype.numpy()))
    assert np.all((got == 0) | (np.signbit(got) == np.signbit(b)))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_float_floordiv(run: Any, dtype: DType) -> None:
    a = np.asarray([7, -7, 7, -7, 7.5, -0.0, 1, -1, 1, 1e6, 0.5, inf, nan, 1, 6.000001], dtype.numpy())
    b = np.asarray([2, 2, -2, -2, 2.5, 3, inf, inf, 0, 0.1, 0.25, 2, 2, nan, 3], dtype.numpy())
    got = run(f"floordiv.{dtype}", a, b).tolist()
    exact = [math.floor(Fraction(x) / Fraction(y)) if math.isfinite(x) and math.isfinite(y) and y else None
             for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    for g, e, x, y in zip(got, exact, a.tolist(), b.tolist(), strict=True):
        if e is not None:
            assert g == e, (x, y)
    np.testing.assert_array_equal([got[6], got[8], got[12], got[13]], [0, inf, nan, nan])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_fma_rounds_once(run: Any, dtype: DType) -> None:
    a = np.asarray([1.000244140625, 0.1, 1 / 3], dtype.numpy())
    c = np.asarray([-1.00048828125, -0.01, -1 / 9], dtype.numpy())
    want = [float(Fraction(x) * Fraction(x) + Fraction(z)) for x, z in zip(a.tolist(), c.tolist(), strict=True)]
    np.testing.assert_array_equal(run(f"fma.{dtype}", a, a, c), np.asarray(want, dtype.numpy()))


def test_products_and_sums_are_not_contracted(compile_maps: Any) -> None:
    two = compile_maps({"aac": ((F32, F32), F32, lambda a, c: Op("-", (Op("*", (a, a), F32), c), F32))})
    assert two("aac", [1.000244140625] * 20, [1.00048828125] * 20).tolist() == [0] * 20


# --------------------------------------------------------------------------------------------------------------- vectorisation


def test_loops_over_polynomials_become_vectors(compile_maps: Any) -> None:
    functions = "exp exp2 expm1 log log2 log1p tanh erf sqrt rsqrt floor ceil sign pow min max".split()
    run = compile_maps({fn: ((F32,) * (2 if fn in BINARY else 1), F32, op(fn)) for fn in functions})
    text = jit.optimised(run.code.text, jit.host())
    bodies = {m.group(1): m.group(2) for m in re.finditer(r"define void @(k\d+)\.maps\(.*?\{(.*?)\n\}", text, re.S)}
    for n, fn in enumerate(functions):
        assert re.search(r"store <\d+ x float>", bodies[f"k{n}"]), fn
