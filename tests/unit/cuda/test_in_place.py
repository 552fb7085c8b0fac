"""Results that lie where an operand does, by kernels of each kind: a thread may read a place of such an operand only if it stores that place itself, or before
any other does. The emulated device finds who reads what another has stored; expected values are NumPy's."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pipelink_ir as pl
from tests.emulated import NEEDS_COMPILER

Arrays = dict[str, Any]
ALONE = "fuse{nodes=1}"


def text(dims: str, dtype: str, body: str, others: dict[str, str], memory: str = "") -> str:
    """A pipeline whose operator `@f` reads `%x`, which nobody needs afterwards, and `others`."""
    at = ", ".join("abcd"[:len(dims.split("x"))])
    operands = "".join(f", %{n}: tensor<{t}>" for n, t in others.items())
    given = "".join(f", %{n}" for n in others)
    tensor = f"tensor<{dims}x{dtype}>"
    return f"""op @less(%x: {tensor}) -> (%y: {tensor}) {{ compute {{ %y[{at}] = {dtype}(%x[{at}] - 1) }} }}
op @f(%x: {tensor}{operands}) -> (%y: {tensor}) {{ {memory} compute {{ {body} }} }}
pipeline @p(%x: {tensor}{operands}) -> (%y: {tensor}) {{ %t = @less(%x)  %u = @f(%t{given})  %y = @less(%u) }}
"""


def checked(program: str, target: str, expected: Callable[[Arrays], Any], cases: list[Arrays], tolerance: float = 0.0) -> None:
    """Runs a pipeline of `text`: what `@f` gives is `expected` of its operands."""
    compiled = pl.compile(program, target=target, pass_options=ALONE)
    assert "inplace = %t" in str(compiled.artifacts["plir"])
    for arrays in cases:
        whole = {n: a.astype(np.float64) for n, a in arrays.items()}
        want = expected({**whole, "x": whole["x"] - 1}) - 1
        np.testing.assert_allclose(np.asarray(compiled(**arrays).y).astype(np.float64), want, rtol=tolerance, atol=tolerance)


def numbers(dtype: str, **shapes: tuple[int, ...]) -> Arrays:
    """Small whole numbers: sums of them are exact."""
    rng = np.random.default_rng(sum(map(sum, shapes.values())))
    return {n: rng.integers(-3, 4, shape).astype(dtype) for n, shape in shapes.items()}


@NEEDS_COMPILER
@pytest.mark.parametrize(("body", "expected"), [
    ("%y[m] = %x[m] + sum[k < K](%z[m, k])", lambda a: a["x"] + a["z"].sum(1)),
    ("%y[m] = select(%x[m] > 0, max[k < K](%z[m, k]), 0.25) * %x[m]", lambda a: np.where(a["x"] > 0, a["z"].max(1), 0.25) * a["x"]),
], ids=["sum", "choice"])
def test_rows_with_one_result(body: str, expected: Callable[[Arrays], Any]) -> None:
    cases = [numbers("f4", x=(m,), z=(m, k)) for m, k in ((3, 5), (4, 300), (2, 1001))]
    checked(text("M", "f32", body, {"z": "MxKxf32"}), "cuda-emulated:sm_80", expected, cases)


def windows(z: Any, taps: int = 3) -> Any:
    """The pictures of an NHWC array with zeros around it, one for each place of a window."""
    around = np.pad(z, ((0, 0), (1, 1), (1, 1), (0, 0)))
    return [[around[:, i:i + z.shape[1], j:j + z.shape[2]] for j in range(taps)] for i in range(taps)]


ZEROS = "memory { border = constant(0) }"


@NEEDS_COMPILER
def test_windows_down_rows() -> None:
    body = "%y[n, h, w, c] = f16(f32(%x[n, h, w, c]) + sum[i < 3, j < 3](f32(%z[n, h + i - 1, w + j - 1, c]) * f32(%k[i, j, c])))"
    cases = [numbers("f2", x=(n, h, w, c), z=(n, h, w, c), k=(3, 3, c)) for n, h, w, c in ((1, 9, 16, 3), (2, 19, 7, 16), (1, 17, 5, 8))]
    checked(text("NxHxWxC", "f16", body, {"z": "NxHxWxCxf16", "k": "3x3xCxf16"}, ZEROS), "cuda-emulated:sm_80",
            lambda a: a["x"] + sum(p * a["k"][i, j] for i, row in enumerate(windows(a["z"])) for j, p in enumerate(row)), cases)


SHAPES = ((1, 1, 1), (2, 5, 7), (1, 33, 17))


@NEEDS_COMPILER
@pytest.mark.parametrize("target", ["cuda-emulated:sm_75", "cuda-emulated:sm_90a"])
@pytest.mark.parametrize(("channels", "columns"), [(16, 16), (64, 24)])
def test_strips(channels: int, columns: int, target: str) -> None:
    body = f"%y[n, h, w, o] = i8(i32(%x[n, h, w, o]) + sum[c < {channels}](i32(%z[n, h, w, c]) * i32(%k[c, o])) floordiv 8)"
    cases = [numbers("i1", x=(*s, columns), z=(*s, channels), k=(channels, columns)) for s in SHAPES]
    checked(text(f"NxHxWx{columns}", "i8", body, {"z": f"NxHxWx{channels}xi8", "k": f"{channels}x{columns}xi8"}), target,
            lambda a: a["x"] + (a["z"] @ a["k"]) // 8, cases)


@NEEDS_COMPILER
@pytest.mark.parametrize("target", ["cuda-emulated:sm_75", "cuda-emulated:sm_90a"])
def test_convolutions_by_tiles(target: str) -> None:
    body = "%y[n, h, w, o] = i8(i32(%x[n, h, w, o]) + sum[i < 3, j < 3, c < 32](i32(%z[n, h + i - 1, w + j - 1, c]) * i32(%k[i, j, c, o])) floordiv 16)"
    cases = [numbers("i1", x=(*s, 32), z=(*s, 32), k=(3, 3, 32, 32)) for s in SHAPES]
    checked(text("NxHxWx32", "i8", body, {"z": "NxHxWx32xi8", "k": "3x3x32x32xi8"}, ZEROS), target,
            lambda a: a["x"] + sum(p @ a["k"][i, j] for i, row in enumerate(windows(a["z"])) for j, p in enumerate(row)) // 16, cases)


ATTENTION = """%s[h, i, j] = sum[d < D](f32(%q[h, i, d]) * f32(%k[h, j, d]))
  %t[h, i] = max[j < S](%s[h, i, j])
  %e[h, i] = sum[j < S](exp(%s[h, i, j] - %t[h, i]))
  %y[h, i, d] = f16(f32(%x[h, i, d]) + sum[j < S](exp(%s[h, i, j] - %t[h, i]) / %e[h, i] * f32(%v[h, j, d])))"""


@NEEDS_COMPILER
@pytest.mark.parametrize("columns", [64, 40])
@pytest.mark.parametrize("target", ["cuda-emulated:sm_80", "cuda-emulated:sm_90a"])
def test_attention(target: str, columns: int) -> None:
    def expected(a: Arrays) -> Any:
        scores = np.exp(np.einsum("hid,hjd->hij", a["q"], a["k"]))
        return a["x"] + np.einsum("hij,hjd->hid", scores / scores.sum(2, keepdims=True), a["v"])

    shape = 2, 33, columns
    small = {n: a / np.float16(8) for n, a in numbers("f2", x=shape, q=shape, k=shape, v=shape).items()}
    tensor = f"HxSx{columns}"
    checked(text(tensor, "f16", ATTENTION.replace("< D", f"< {columns}"), dict.fromkeys("qkv", f"{tensor}xf16")), target, expected, [small], 2e-3)


@NEEDS_COMPILER
def test_an_axis_of_one_place_by_number() -> None:
    cases = [numbers("f4", x=(m, 1), z=(m, k)) for m, k in ((3, 5), (2, 1001))]
    checked(text("Mx1", "f32", "%y[m, c] = %x[m, 0] + sum[k < K](%z[m, k])", {"z": "MxKxf32"}), "cuda-emulated:sm_80",
            lambda a: a["x"] + a["z"].sum(1, keepdims=True), cases)
