"""What every function and cast of the prelude must give: the checks that hold on the host and on a GPU alike. Expected values come from NumPy in float64 and
from ml_dtypes, the accuracy from the table of functions."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np

from pipelink_ir.backends.loops.form import PRIMITIVES, Choose, Const, Convert, Expr, Op
from pipelink_ir.ir.dtypes import BOOL, DTYPES, F32, F64, I32, I64, DType
from pipelink_ir.ir.functions import FUNCTIONS
from pipelink_ir.ir.scalar import cast
from tests.unit.cuda.maps import Array, Map, Run

EXACT = ("+", "-", "*", "neg", "abs", "sign", "min", "max", "fmin", "fmax", "floor", "ceil", "round", "fma", "floordiv", "mod", "isnan", "isinf",
         "==", "!=", "<", "<=", ">", ">=")
"""Functions without an error."""

ULPS = {"/": 0.5, "sqrt": 1, "rsqrt": 2, "exp": 2, "exp2": 2, "log": 2, "log2": 2}
"""Allowed errors; all others 4. `/` is correctly rounded here although 2 would do."""

POWERS = (0.45454544, 0.7, -0.8, 0.33333334, 0.5, 0.25, 0.01)
DIVISORS = (3.0, 255.0, 0.1, -1.7, 7.0)
"""Constants, for which there are functions of their own."""

FLOATS = [f for f in sorted(PRIMITIVES) if f not in ("and", "or", "not", "quot", "rest")]
INTEGERS = ("+", "-", "*", "neg", "abs", "sign", "min", "max", "floordiv", "mod", "==", "!=", "<", "<=", ">", ">=")
TESTS = ("isnan", "isinf", "==", "!=", "<", "<=", ">", ">=")
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 3.0, 7.0, -7.0, 1e-3, 1e30, -1e30, np.inf, -np.inf, np.nan, 1.1754944e-38, 1e-45, -1e-45, 5.877472e-39, 3.4028235e38,
           88.7, 89.0, -87.3, -103.9, -104.1, 127.0, 128.0, -149.0, -150.0, 16777216.0, 8388608.5, 0.99999994, 1.0000001, 1e-7, 0.1, 0.7853982, 1.5707964, 3.1415927]


def _arity(fn: str) -> int:
    return 3 if fn == "fma" else FUNCTIONS[fn].arity


def function_maps() -> dict[str, Map]:
    """One map for each function and type."""
    out = {}
    for dtype in (F32, F64, I32, I64):
        for fn in FLOATS if dtype.is_float else INTEGERS:
            n, result = _arity(fn), BOOL if fn in TESTS else dtype
            out[f"{fn} {dtype}"] = Map((dtype,) * n, result, lambda *args, fn=fn, r=result: Op(fn, args, r))  # type: ignore[misc]
    out["quot i64"] = Map((I64, I64), I64, lambda a, b: Op("quot", (a, b), I64))
    out["rest i64"] = Map((I64, I64), I64, lambda a, b: Op("rest", (a, b), I64))
    for fn in ("/", "sqrt"):
        out[f"exact {fn}"] = Map((F32,) * _arity(fn), F32, lambda *args, fn=fn: Op(fn, args, F32), exact=True)  # type: ignore[misc]
    for fn in ("/", "sqrt", "exp"):
        out[f"fast {fn}"] = Map((F32,) * _arity(fn), F32, lambda *args, fn=fn: Op(fn, args, F32), fast=True)  # type: ignore[misc]
    for c in POWERS:
        number = Const(float(np.float32(c)), F32)
        out[f"to the {c}"] = Map((F32,), F32, lambda a, n=number: Op("pow", (a, n), F32))  # type: ignore[misc]
        out[f"clamped to the {c}"] = Map((F32,), F32, lambda a, n=number: Op("pow", (_clamped(a), n), F32))  # type: ignore[misc]
    for c in DIVISORS:
        number = Const(float(np.float32(c)), F32)
        out[f"by {c}"] = Map((F32,), F32, lambda a, n=number: Op("/", (a, n), F32))  # type: ignore[misc]
    out["literals"] = Map((I32,), F32, lambda a: Choose(Op("<", (a, Const(1, I32)), BOOL), Const(float(np.float32(1e-45)), F32), Const(float(np.float32(0.1)), F32), F32))
    return out


def _clamped(a: Expr) -> Expr:
    return Op("min", (Op("max", (a, Const(0.0, F32)), F32), Const(1.0, F32)), F32)


def cast_maps() -> dict[str, Map]:
    """One map for each cast, saturating ones too."""
    out = {}
    for source in DTYPES.values():
        for to in DTYPES.values():
            out[f"{source} {to}"] = Map((source,), to, lambda a, to=to: Convert(a, to, to.compute))  # type: ignore[misc]
            if source.is_int and to.is_int:
                out[f"{source} sat {to}"] = Map((source,), to, lambda a, to=to: Convert(a, to, to.compute, True))  # type: ignore[misc]
            if source is F64 and to.is_float:
                out[f"store {to}"] = Map((F64,), to, lambda a: a)
    return out


def inputs(dtype: DType, count: int, seed: int) -> list[Array]:
    """Arrays of special and random values, each special value beside each other one."""
    chance = np.random.default_rng(seed)
    if dtype.is_int:
        special = np.array([0, 1, -1, 2, -2, 3, 7, -7, 200, 255, 256, 65536, dtype.lowest, dtype.highest, dtype.lowest + 1, dtype.highest - 1]).clip(dtype.lowest, dtype.highest)
        draw: Callable[[int], Any] = lambda n: np.where(chance.random(n) < 0.5, chance.integers(-100, 100, n), chance.integers(dtype.lowest, dtype.highest, n, endpoint=True))  # noqa: E731
    else:
        special = np.array(SPECIAL)
        draw = lambda n: np.where(chance.random(n) < 0.7, chance.normal(0, 5, n), chance.normal(0, 1, n) * 2.0 ** chance.integers(-140, 120, n))  # noqa: E731
    grids = np.meshgrid(*[special] * min(count, 2), indexing="ij")
    heads = [g.reshape(-1) for g in grids]
    heads += [np.resize(special[::-1], heads[0].size) for _ in range(count - len(heads))]
    return [np.concatenate([h, draw(4000)]).astype(dtype.numpy()) for h in heads]


def same(got: Array, want: Array, what: str) -> None:
    """Equal, NaN to NaN, with the signs of zeros."""
    np.testing.assert_array_equal(got, want, what)
    if got.dtype.kind == "f":
        number = ~np.isnan(got)
        np.testing.assert_array_equal(np.signbit(got[number]), np.signbit(want[number]), what)


def ulps(got: Array, want: Array) -> float:
    """The largest distance from `want`, which is exact in a wider type; NaN, infinities and the signs of zeros agree."""
    with np.errstate(all="ignore"):
        rounded = want.astype(got.dtype)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(rounded))
        zero = (rounded == 0) & (got == 0)
        np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(rounded[zero]), "signs of zeros")
        finite = np.isfinite(rounded) & np.isfinite(got)
        np.testing.assert_array_equal(got[~finite & ~np.isnan(got)], rounded[~finite & ~np.isnan(got)])
        distance = np.abs(got[finite].astype(want.dtype) - want[finite]) / np.spacing(np.abs(rounded[finite]))
    return float(distance.max()) if distance.size else 0.0


def check_function(run: Run, name: str) -> float:
    """One function in one type; its error in ulp."""
    fn, _, dtype_name = name.partition(" ")
    dtype = DTYPES[dtype_name]
    args = inputs(dtype, _arity(fn), len(name))
    if fn in ("min", "max", "fmin", "fmax"):
        # Which zero wins is open.
        args = [np.where(a == 0, 0, a).astype(a.dtype) for a in args]
    if fn in ("sin", "cos", "tan"):
        args = [np.where(np.abs(a) < 1e5, a, 1).astype(a.dtype) for a in args]
    got = run(name, *args)
    with np.errstate(all="ignore"):
        if fn in EXACT:
            same(got, np.asarray(FUNCTIONS[fn].numpy(np, *args)).astype(got.dtype), name)
            return 0.0
        wide = [a.astype(np.float64 if dtype is F32 else np.longdouble) for a in args]
        want = _exact(fn, wide)
    error = ulps(got, want)
    assert error <= ULPS.get(fn, 4) + 1e-3, (name, error)
    return error


def _exact(fn: str, args: list[Array]) -> Array:
    """In a wider type than what is tested."""
    if fn == "rsqrt":
        return np.asarray(1 / np.sqrt(args[0]))
    if fn == "erf":
        from scipy.special import erf
        return np.asarray(erf(args[0].astype(np.float64)), args[0].dtype)
    simple: Mapping[str, Callable[..., Any]] = {"/": np.divide, "pow": np.power, "atan2": np.arctan2}
    return np.asarray(simple.get(fn, getattr(np, fn, None))(*args))  # type: ignore[misc]


def check_constants(run: Run) -> None:
    """Powers and quotients by constants: special values, and accuracy. Whole quotients are whole."""
    (values,) = inputs(F32, 1, 5)
    wide = values.astype(np.float64)
    with np.errstate(all="ignore"):
        for c in POWERS:
            exponent = float(np.float32(c))
            assert ulps(run(f"to the {c}", values), np.float_power(wide, exponent)) <= 3, c
            unit = np.where(np.isnan(wide), wide, wide.clip(0, 1))
            assert ulps(run(f"clamped to the {c}", values), np.float_power(unit, exponent)) <= 3, c
        for c in DIVISORS:
            assert ulps(run(f"by {c}", values), wide / float(np.float32(c))) <= 1, c
    whole = np.arange(4000).astype(np.float32)
    same(run("to the 0.5", whole * whole), whole, "square roots")
    few = np.arange(64).astype(np.float32)
    same(run("to the 0.25", few**4), few, "fourth roots")
    for c in (3.0, 7.0, 255.0):
        same(run(f"by {c}", whole * np.float32(c)), whole, f"by {c}")


def check_cast(run: Run, name: str) -> None:
    """One cast on every value of small dtypes, on special and random ones of others."""
    source_name, _, rest = name.partition(" ")
    if source_name == "store":
        source, to, saturate = F64, DTYPES[rest], False
    else:
        source, to, saturate = DTYPES[source_name], DTYPES[rest.removeprefix("sat ")], rest.startswith("sat ")
    values = values_of(source)
    got = run(name, values)
    wide = values.astype(source.compute.numpy())
    want = cast(wide, to, source.compute, saturate)
    same(got.astype(to.compute.numpy()), want, name)
    if source is F32 and to.name in ("f16", "bf16", "f8e5m2", "f8e4m3"):
        with np.errstate(all="ignore"):
            same(got.astype(np.float32), wide.astype(to.numpy()).astype(np.float32), f"{name} by ml_dtypes {ml_dtypes.__version__}")


def values_of(dtype: DType) -> Array:
    """Every value, or many."""
    if dtype is BOOL:
        return np.array([False, True])
    if dtype.bits <= 16:
        return np.arange(1 << dtype.bits, dtype=f"u{dtype.bytes}").view(dtype.numpy())
    if dtype.is_int:
        return np.concatenate([inputs(dtype, 1, 3)[0], np.arange(-70000, 70000, 7, dtype=dtype.numpy()), near_ties_of_integers(dtype)])
    return np.concatenate([inputs(dtype, 1, 4)[0], ties(dtype)])


def near_ties_of_integers(dtype: DType) -> Array:
    """Around the places where rounding to fewer digits changes."""
    out = [s * ((1 << k) + m * (1 << max(0, k - 9)) + d) for k in range(2, dtype.bits - 1) for m in (0, 1, 2, 3) for d in (-1, 0, 1) for s in (1, -1)]
    return np.array([v for v in out if dtype.lowest <= v <= dtype.highest], dtype.numpy())


def ties(dtype: DType) -> Array:
    """Halfway between neighbours of the narrow types, and a little beside."""
    out = []
    with np.errstate(all="ignore"):
        for narrow in (np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn):
            bits = np.dtype(narrow).itemsize * 8
            every = np.sort(np.arange(1 << (bits - 1), dtype=f"u{bits // 8}").view(narrow).astype(np.float64))
            every = every[np.isfinite(every)]
            half = ((every[1:] + every[:-1]) / 2).astype(dtype.numpy())[::7 if bits == 16 else 1]
            out += [half, np.nextafter(half, np.inf, dtype=half.dtype), np.nextafter(half, -np.inf, dtype=half.dtype)]
        edges = np.array([2**31 - 1, 2**31, 2**31 + 1, 2**63, -(2**31), -(2**31) - 1, -(2**63), 65519, 65520, 448, 464, 465, 57344, 61440, 255.5, 256, -0.5, -1.5], dtype.numpy())
    both = np.concatenate([*out, edges])
    return np.concatenate([both, -both])


def check_exact_results(run: Run) -> None:
    """What has an exact answer gives it."""
    unit = (np.arange(256) / 255).astype(np.float32)
    one = np.ones(256, np.float32)
    same(run("pow f32", unit, one), unit, "x ** 1")
    same(run("pow f32", np.arange(256, dtype=np.float32), 2 * one), np.arange(256, dtype=np.float32) ** 2, "x ** 2")
    n = np.arange(-149, 128, dtype=np.float32)
    powers = np.ldexp(np.float32(1), n.astype(int)).astype(np.float32)
    same(run("pow f32", np.full_like(n, 2), n), powers, "2 ** n")
    same(run("exp2 f32", n), powers, "exp2(n)")
    same(run("log2 f32", powers), n, "log2(2 ** n)")
    wide = np.arange(-1074, 1024, dtype=np.float64)
    same(run("exp2 f64", wide), np.ldexp(1.0, wide.astype(int)), "exp2(n) in f64")
    whole = np.arange(1, 256, dtype=np.float32)
    same(run("/ f32", whole * 3, 3 * np.ones_like(whole)), whole, "3 x / 3")
    same(run("sqrt f32", whole * whole), whole, "sqrt(x * x)")
    same(run("rsqrt f32", powers[149 % 2::2]), np.ldexp(np.float32(1), -(n[149 % 2::2].astype(int) // 2)).astype(np.float32), "rsqrt(4 ** n)")
    for name, x, want in (("exp", 0, 1), ("log", 1, 0), ("expm1", 0, 0), ("log1p", 0, 0), ("sin", 0, 0), ("cos", 0, 1), ("tanh", 0, 0), ("erf", 0, 0)):
        for dtype in (F32, F64):
            assert run(f"{name} {dtype}", np.array([x], dtype.numpy())).tolist() == [want], name
