"""Images, quantisation and casts as the tables of known faults have them."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

Op = Callable[..., Any]
nan, inf = float("nan"), float("inf")


def test_gain_saturates(run_op: Op) -> None:
    signature = "(%x: tensor<Nxu8>, %g: tensor<f32>) -> (%y: tensor<Nxu8>)"
    body = "%y[n] = sat_u8(round(%g * %x[n]))"
    np.testing.assert_array_equal(run_op(signature, body, x=[255], g=1.1), [255])
    np.testing.assert_array_equal(run_op(signature, body, x=[100, 128, 200], g=2), [200, 255, 255])
    np.testing.assert_array_equal(run_op(signature, body, x=[1, 200], g=-1), [0, 0])


def test_wrap_or_saturate(run_op: Op) -> None:
    signature = "(%a: tensor<Nxu8>, %b: tensor<Nxu8>) -> (%d: tensor<Nxu8>, %s: tensor<Nxu8>, %p: tensor<Nxu8>, %ds: tensor<Nxu8>, %ss: tensor<Nxu8>)"
    body = "%d[n] = u8(%a[n] - %b[n])\n%s[n] = u8(%a[n] + %b[n])\n%p[n] = u8(%a[n] * %b[n])\n%ds[n] = sat_u8(%a[n] - %b[n])\n%ss[n] = sat_u8(%a[n] + %b[n])"
    got = run_op(signature, body, a=[3, 250, 16], b=[4, 10, 17])
    assert [got["d"][0], got["s"][1], got["p"][2], got["ds"][0], got["ss"][1]] == [255, 4, 16, 0, 255]


def test_powers(run_op: Op) -> None:
    got = run_op("(%x: tensor<Nxf32>, %e: tensor<Nxf32>) -> (%y: tensor<Nxf32>)", "%y[n] = %x[n] ** %e[n]",
                 x=[-.25, 0, 0, -0.0, 0, -8, 1], e=[1.2, 0, -1, -1, .45, 3, nan])
    np.testing.assert_array_equal(got, [nan, 1, inf, -inf, 0, -512, 1])


@pytest.mark.parametrize(("gamma", "x", "want"), [("1.0", range(256), range(256)), ("2.2", [0, 1, 64, 128, 254, 255], [0, 0, 12, 56, 253, 255])])
def test_gamma_of_bytes(run_op: Op, gamma: str, x: Any, want: Any) -> None:
    got = run_op("(%x: tensor<Nxu8>) -> (%y: tensor<Nxu8>)", f"%y[n] = sat_u8(round(255 * (%x[n] / 255) ** {gamma}))", x=list(x))
    np.testing.assert_array_equal(got, list(want))


def test_unit_range_to_bytes(run_op: Op) -> None:
    got = run_op("(%x: tensor<Nxf32>) -> (%y: tensor<Nxu8>)", "%y[n] = sat_u8(round(255 * %x[n]))", x=[0, .5, .9999, 1, 1.2, -.1, nan])
    np.testing.assert_array_equal(got, [0, 128, 255, 255, 255, 0, 0])


@pytest.mark.parametrize(("dtype", "zero", "scale", "x", "want"), [
    ("i8", 0, 1, [-129, -128, -127, -126, 126, 127, 128, 129], [-128, -128, -127, -126, 126, 127, 127, 127]),
    ("u8", 0, .5, [.25, .75, 1.25, 1.75], [0, 2, 2, 4]), ("u8", 3, .5, [.25, .75, 1.25, 1.75], [3, 5, 5, 7]),
    ("i8", 0, 1, [2.5, -2.5, 3.5, -.5], [2, -2, 4, 0])])
def test_quantisation(run_op: Op, dtype: str, zero: int, scale: float, x: list[float], want: list[int]) -> None:
    got = run_op(f"(%x: tensor<Nxf32>, %s: tensor<f32>) -> (%q: tensor<Nx{dtype}>)", f"%q[n] = sat_{dtype}(round(%x[n] / %s) + {zero})",
                 sections="compile { accuracy = exact }", x=x, s=scale)
    np.testing.assert_array_equal(got, want)


def test_nearest_with_exact_coordinates(run: Callable[..., dict[str, Any]]) -> None:
    """Half-pixel centres at ((2 i + 1) H / OH - 1) / 2; a tie goes down or up. Four to eight reads no place before the first."""
    text = """op @down(%x: tensor<Hxf32>, OH: dim) -> (%y: tensor<OHxf32>) {
      where H >= 1, OH >= 1
      memory { border = replicate }
      compute { %y[i] = %x[ceildiv((2 * i + 1) * H - 2 * OH, 2 * OH)] }
    }
    op @up(%x: tensor<Hxf32>, OH: dim) -> (%y: tensor<OHxf32>) {
      where H >= 1, OH >= 1
      memory { border = replicate }
      compute { %y[i] = %x[floordiv((2 * i + 1) * H, 2 * OH)] }
    }
    op @floor(%x: tensor<Hxf32>, OH: dim) -> (%y: tensor<OHxf32>) {
      where H >= 1, OH >= 1
      memory { border = replicate }
      compute { %y[i] = %x[floordiv((2 * i + 1) * H - OH, 2 * OH)] }
    }
    pipeline @p(%x: tensor<20xf32>, %z: tensor<4xf32>) -> (%d: tensor<6xf32>, %u: tensor<6xf32>, %f: tensor<8xf32>) {
      %d = @down(%x) {OH = 6}
      %u = @up(%x) {OH = 6}
      %f = @floor(%z) {OH = 8}
    }"""
    got = run(text, x=np.arange(20), z=np.arange(4))
    np.testing.assert_array_equal(got["d"], [1, 4, 8, 11, 14, 18])
    np.testing.assert_array_equal(got["u"], [1, 5, 8, 11, 15, 18])
    np.testing.assert_array_equal(got["f"], [0, 0, 0, 1, 1, 2, 2, 3])


def test_fused_quotients_and_signed_zeros(run_op: Op) -> None:
    signature = "(%x: tensor<Nxf32>) -> (%a: tensor<Nxf32>, %b: tensor<Nxf32>, %c: tensor<Nxf32>, %d: tensor<Nxf32>)"
    got = run_op(signature, "%a[n] = 1 / (%x[n] + 0)\n%b[n] = 1 / (%x[n] * 1)\n%c[n] = %x[n] - %x[n]\n%d[n] = select(isnan(%x[n]), 0, %x[n])",
                 x=[-0.0, inf, nan])
    np.testing.assert_array_equal(got["a"], [inf, 0, nan])
    np.testing.assert_array_equal(got["b"], [-inf, 0, nan])
    np.testing.assert_array_equal(got["c"], [0, nan, nan])
    np.testing.assert_array_equal(got["d"], [0, inf, 0])


def test_negative_zero_literal(run_op: Op) -> None:
    got = run_op("(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>)", "%y[n] = %x[n] * -0.0", x=[1, -1])
    np.testing.assert_array_equal(np.signbit(got), [True, False])
