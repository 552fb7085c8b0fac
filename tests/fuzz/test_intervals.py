"""The intervals themselves: wide enough for what the language admits, and no wider; and a backend that is wrong is found."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pipelink_ir.ir.dtypes import BF16, BOOL, F8E4M3, F16, F32, F64, I32, U8, DType
from pipelink_ir.ir.functions import FUNCTIONS
from tests.fuzz import enclosure, intervals
from tests.fuzz.census import Census
from tests.fuzz.check import Differs, check, lowered
from tests.fuzz.data import Input, Program, Sample
from tests.fuzz.intervals import UNKNOWN, is_point, is_unknown, pack, points

Array = NDArray[Any]
FLOAT_FUNCTIONS = [n for n, f in FUNCTIONS.items() if f.typing in ("arith", "real", "round") and n != "fma"]


def _exact(fn: str, *args: Array) -> Array:
    """The value in float64."""
    with np.errstate(all="ignore"):
        return np.asarray(FUNCTIONS[fn].numpy(np, *(np.asarray(a, np.float64) for a in args)))


def _samples(arity: int, n: int = 4000) -> list[Array]:
    rng = np.random.default_rng(arity)
    return [np.where(rng.random(n) < 0.2, rng.integers(-3, 4, n), rng.normal(0, 3, n)).astype(np.float32).astype(np.float64) for _ in range(arity)]


@pytest.mark.parametrize("fn", FLOAT_FUNCTIONS)
@pytest.mark.parametrize("dtype", [F32, F64])
def test_a_point_becomes_the_value_within_its_ulps(fn: str, dtype: DType) -> None:
    args = _samples(FUNCTIONS[fn].arity)
    found = intervals.apply(fn, [points(a) for a in args], dtype, False)
    want = _exact(fn, *args)
    known = ~is_unknown(found) & np.isfinite(want)
    assert known.sum() > 1000
    near = want.astype(dtype.numpy()).astype(np.float64)[known]
    step = np.spacing(np.abs(near).astype(dtype.numpy())).astype(np.float64)
    low, high = found.real[known], found.imag[known]
    assert np.all((low <= near) & (near <= high))
    ulp = FUNCTIONS[fn].ulp
    slack = 0 if fn != "logaddexp" else 16 * np.ldexp(1 + np.maximum(*(np.abs(a) for a in args))[known], 1 - dtype.digits)
    assert np.all(high - low <= (2 * ulp + (6 if ulp else 0)) * step + slack)
    np.testing.assert_array_equal(np.isnan(want[~is_unknown(found)]), intervals.is_nan(found)[~is_unknown(found)])


@pytest.mark.parametrize("fn", FLOAT_FUNCTIONS)
def test_an_interval_holds_the_values_of_its_points(fn: str) -> None:
    rng = np.random.default_rng(7)
    lows = _samples(FUNCTIONS[fn].arity)
    widths = [np.abs(rng.normal(0, 0.2, low.size)) * (rng.random(low.size) < 0.7) for low in lows]
    found = intervals.apply(fn, [pack(low, low + w) for low, w in zip(lows, widths, strict=True)], F64, False)
    for _ in range(20):
        inside = [np.clip(low + w * rng.random(low.size), low, low + w) for low, w in zip(lows, widths, strict=True)]
        want = _exact(fn, *inside)
        known = ~is_unknown(found)
        held = np.isnan(want) & intervals.is_nan(found) | ((found.real <= want) & (want <= found.imag))
        assert held[known].all(), [a[known & ~held][:3] for a in (*lows, *widths, want, found)]
    assert (~is_unknown(found)).sum() > 100


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4])
def test_small_powers_are_products_rounded_one_by_one(n: int) -> None:
    x = _samples(1)[0]
    product = np.ones(x.size, np.float32)
    for _ in range(n):
        product = product * x.astype(np.float32)
    found = intervals.power(points(x), np.asarray(n), F32, False, True)
    assert is_point(found).all()
    np.testing.assert_array_equal(found.real, product)


@pytest.mark.parametrize("n", [-3, -1, 7, 12])
def test_other_powers_are_within_their_products(n: int) -> None:
    x = _samples(1)[0]
    x = x[np.abs(x) > 0.01]
    found = intervals.power(points(x), np.asarray(n), F32, False, True)
    want = x ** float(n)
    step = np.spacing(np.abs(want).astype(np.float32))
    assert (~is_unknown(found)).all()
    assert np.all((found.real <= want + step / 2) & (want - step / 2 <= found.imag))
    assert np.all(found.imag - found.real <= 2 * (max(4, abs(n)) + 3) * step)


def test_comparisons_are_decided_or_not() -> None:
    a, b = pack([1, 1, 1, 3, np.nan], [2, 2, 1, 4, np.nan]), pack([3, 1.5, 1, 1, 0], [4, 3, 1, 2, 1])
    for fn, want in (("<", [True, None, False, False, False]), (">=", [False, None, True, True, False]), ("==", [False, None, True, False, False]),
                     ("!=", [True, None, False, True, True])):
        value, open_ = intervals.compare(fn, a, b)
        assert [None if o else bool(v) for v, o in zip(value, open_, strict=True)] == want
    assert intervals.compare("<", np.full(1, UNKNOWN), points(np.zeros(1)))[1].all()


def test_casts() -> None:
    z = pack([1.0, 1.99, 2.1, np.nan, -0.5, 300.0], [1.0, 2.01, 2.9, np.nan, 0.5, 301.0])
    value, open_ = intervals.to_int(z, I32)
    assert [None if o else int(v) for v, o in zip(value, open_, strict=True)] == [1, None, 2, 0, 0, None]
    assert not intervals.to_int(z, U8)[1][-1]
    assert intervals.to_int(z, BOOL)[1].tolist() == [False, False, False, False, True, False]
    near = intervals.to_float(points(np.array([1 / 3, 1e6, -0.0])), F16, False)
    np.testing.assert_array_equal(near.real, np.array([1 / 3, np.inf, -0.0], np.float16))
    tie = pack(np.array([1 + 2.0**-9 - 1e-9]), np.array([1 + 2.0**-9 + 1e-9]))
    assert intervals.to_float(tie, BF16, False)[0] == complex(1.0, 1.0)
    assert intervals.to_float(pack(np.array([1 + 2.0**-8 - 1e-9]), np.array([1 + 2.0**-8 + 1e-9])), BF16, False)[0] == complex(1.0, 1 + 2.0**-7)
    assert is_unknown(intervals.to_float(pack(np.array([-1e4]), np.array([1e4])), F8E4M3, False)).all()


class _Wrong:
    """An executable whose results are moved up by some last places."""

    def __init__(self, inner: Any, places: int) -> None:
        self.inner, self.places = inner, places

    def __call__(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        out: dict[str, Array] = self.inner(arrays)
        for a in out.values():
            for _ in range(self.places):
                a[...] = np.nextafter(a, a.dtype.type(np.inf)) if a.dtype.kind == "f" else a + 1
        return out


@pytest.mark.parametrize(("value", "dtype", "places"), [
    ("%x[n] + 1", "f32", 1), ("%x[n] / 3", "f32", 5), ("exp(%x[n])", "f32", 6), ("sin(f64(%x[n]))", "f64", 9), ("sum[k < 3](%x[n] * k)", "f32", 20),
    ("i32(%x[n])", "i32", 1), ("%x[n]", "f16", 1)])
def test_a_wrong_backend_is_found(monkeypatch: pytest.MonkeyPatch, value: str, dtype: str, places: int) -> None:
    from pipelink_ir.backends.cpu import executable
    signature = f"(%x: tensor<Nxf32>) -> (%y: tensor<Nx{dtype}>)"
    text = f"op @f{signature} {{ compute {{ %y[n] = {value} }} }}\npipeline @p{signature} {{ %y = @f(%x) }}"
    program = Program(text, (Input("x", "f32", ("N",)),), (Sample({"N": 5}, 1),))
    check(program, Census())
    load = executable.load
    monkeypatch.setattr(executable, "load", lambda *a: _Wrong(load(*a), places))
    with pytest.raises(Differs, match=r"cpu: %y\[\d\] is"):
        check(program, Census())


@pytest.mark.parametrize("kind", ["sum", "mean"])
@pytest.mark.parametrize(("terms", "open_"), [((3e38, -np.inf, 3e38), True), ((1.0, -np.inf, 3e38), True), ((1.0, -np.inf, 1e38), False), ((3e38, 1.0, 3e38), True)])
def test_a_partial_sum_may_leave_the_range(kind: str, terms: tuple[float, ...], open_: bool) -> None:
    """Also beside an infinity: what is added up first is left to the backend."""
    signature = "(%x: tensor<Kxf32>) -> (%y: tensor<1xf32>)"
    text = f"op @f{signature} {{ where K >= 1 compute {{ %y[n] = {kind}[k < K](%x[k]) }} }}\npipeline @p{signature} {{ where K >= 1 %y = @f(%x) }}"
    front, _ = lowered(Program(text, (Input("x", "f32", ("K",)),), ()))
    out = enclosure.load(front, "p").enclose({"x": np.array(terms, np.float32)})
    assert is_unknown(out["y"]).all() == open_
