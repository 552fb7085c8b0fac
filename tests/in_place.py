"""Pipelines of one operator whose result lies where its operand `%x` does, and what they give."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import pipelink_ir as pl

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
ZEROS = "memory { border = constant(0) }"
ATTENTION = """%s[h, i, j] = sum[d < D](f32(%q[h, i, d]) * f32(%k[h, j, d]))
  %t[h, i] = max[j < S](%s[h, i, j])
  %e[h, i] = sum[j < S](exp(%s[h, i, j] - %t[h, i]))
  %y[h, i, d] = f16(f32(%x[h, i, d]) + sum[j < S](exp(%s[h, i, j] - %t[h, i]) / %e[h, i] * f32(%v[h, j, d])))"""


def windows(z: Any, taps: int = 3) -> Any:
    """The pictures of an NHWC array with zeros around it, one for each place of a window."""
    around = np.pad(z, ((0, 0), (1, 1), (1, 1), (0, 0)))
    return [[around[:, i:i + z.shape[1], j:j + z.shape[2]] for j in range(taps)] for i in range(taps)]


ROWS: dict[str, tuple[str, Callable[[Arrays], Any]]] = {
    "sum": ("%y[m] = %x[m] + sum[k < K](%z[m, k])", lambda a: a["x"] + a["z"].sum(1)),
    "choice": ("%y[m] = select(%x[m] > 0, max[k < K](%z[m, k]), 0.25) * %x[m]", lambda a: np.where(a["x"] > 0, a["z"].max(1), 0.25) * a["x"]),
}


def rows(kind: str, target: str, sizes: Sequence[tuple[int, int]]) -> None:
    """Reductions of rows with one result each."""
    body, expected = ROWS[kind]
    checked(text("M", "f32", body, {"z": "MxKxf32"}), target, expected, [numbers("f4", x=(m,), z=(m, k)) for m, k in sizes])


def depthwise(target: str, sizes: Sequence[tuple[int, int, int, int]]) -> None:
    """Windows whose rows a thread computes together."""
    body = "%y[n, h, w, c] = f16(f32(%x[n, h, w, c]) + sum[i < 3, j < 3](f32(%z[n, h + i - 1, w + j - 1, c]) * f32(%k[i, j, c])))"
    cases = [numbers("f2", x=s, z=s, k=(3, 3, s[3])) for s in sizes]
    checked(text("NxHxWxC", "f16", body, {"z": "NxHxWxCxf16", "k": "3x3xCxf16"}, ZEROS), target,
            lambda a: a["x"] + sum(p * a["k"][i, j] for i, row in enumerate(windows(a["z"])) for j, p in enumerate(row)), cases)


def strips(channels: int, columns: int, target: str, sizes: Sequence[tuple[int, int, int]]) -> None:
    """Convolutions of single pixels, of bytes."""
    body = f"%y[n, h, w, o] = i8(i32(%x[n, h, w, o]) + sum[c < {channels}](i32(%z[n, h, w, c]) * i32(%k[c, o])) floordiv 8)"
    cases = [numbers("i1", x=(*s, columns), z=(*s, channels), k=(channels, columns)) for s in sizes]
    checked(text(f"NxHxWx{columns}", "i8", body, {"z": f"NxHxWx{channels}xi8", "k": f"{channels}x{columns}xi8"}), target,
            lambda a: a["x"] + (a["z"] @ a["k"]) // 8, cases)


def convolution(target: str, sizes: Sequence[tuple[int, int, int]], channels: int = 32, columns: int = 32) -> None:
    """Convolutions by tiles or by boxes, of bytes."""
    read = f"sum[i < 3, j < 3, c < {channels}](i32(%z[n, h + i - 1, w + j - 1, c]) * i32(%k[i, j, c, o]))"
    body = f"%y[n, h, w, o] = i8(i32(%x[n, h, w, o]) + {read} floordiv {channels // 2})"
    cases = [numbers("i1", x=(*s, columns), z=(*s, channels), k=(3, 3, channels, columns)) for s in sizes]
    checked(text(f"NxHxWx{columns}", "i8", body, {"z": f"NxHxWx{channels}xi8", "k": f"3x3x{channels}x{columns}xi8"}, ZEROS), target,
            lambda a: a["x"] + sum(p @ a["k"][i, j] for i, row in enumerate(windows(a["z"])) for j, p in enumerate(row)) // (channels // 2), cases)


def attention(target: str, heads: int, places: int, columns: int) -> None:
    """Attention and what it is added to."""
    def expected(a: Arrays) -> Any:
        scores = np.exp(np.einsum("hid,hjd->hij", a["q"], a["k"]))
        return a["x"] + np.einsum("hij,hjd->hid", scores / scores.sum(2, keepdims=True), a["v"])

    shape, tensor = (heads, places, columns), f"HxSx{columns}"
    small = {n: a / np.float16(8) for n, a in numbers("f2", x=shape, q=shape, k=shape, v=shape).items()}
    checked(text(tensor, "f16", ATTENTION.replace("< D", f"< {columns}"), dict.fromkeys("qkv", f"{tensor}xf16")), target, expected, [small], 2e-3)


def one_place(target: str, sizes: Sequence[tuple[int, int]]) -> None:
    """An axis of one place, which is called 0 where it is read."""
    checked(text("Mx1", "f32", "%y[m, c] = %x[m, 0] + sum[k < K](%z[m, k])", {"z": "MxKxf32"}), target,
            lambda a: a["x"] + a["z"].sum(1, keepdims=True), [numbers("f4", x=(m, 1), z=(m, k)) for m, k in sizes])
