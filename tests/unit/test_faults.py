"""Faults that users of comparable tools reported: reductions, numerics, quantisation, images. Each program runs on both backends, as one operator whose
steps are locals, and as one operator for each step. Values come from the reports, from exact integers or from float64.
"""
from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pipelink_ir
from pipelink_ir.ir.diagnostics import ExecutionError, ProgramError
from pipelink_ir.ir.dtypes import DTYPES

Array = np.ndarray[Any, Any]
INF, NAN = float("inf"), float("nan")
MIN = -2**31


@dataclass(frozen=True)
class Case:
    """One report. `inputs` are name: (type, values), `steps` (left side, type, right side); the wanted results are those of `want`."""

    name: str
    inputs: Mapping[str, tuple[str, Any]]
    steps: Sequence[tuple[str, str, str]]
    want: Mapping[str, Any]
    rtol: float = 0
    sections: str = ""
    apart: Mapping[str, Any] | None = field(default=None)
    """What operators of their own give, where rounding their edges makes a difference."""


def _tensor(step: tuple[str, str, str]) -> tuple[str, str]:
    return step[0].partition("[")[0], step[1]


def _operator(name: str, operands: Mapping[str, str], results: Mapping[str, str], steps: Sequence[tuple[str, str, str]], sections: str) -> str:
    def listed(tensors: Mapping[str, str]) -> str:
        return ", ".join(f"%{n}: tensor<{t}>" for n, t in tensors.items())
    body = "\n".join(f"    %{left} = {right}" for left, _, right in steps)
    return f"op @{name}({listed(operands)}) -> ({listed(results)}) {{ {sections}\n  compute {{\n{body}\n  }}\n}}\n"


def program(case: Case, apart: bool) -> str:
    """The text of a case: everything in one operator, or an operator for each step."""
    operands = {n: t for n, (t, _) in case.inputs.items()}
    known = {**operands, **dict(map(_tensor, case.steps))}
    results = {n: known[n] for n in case.want}
    ops, nodes = "", ""
    if apart:
        for k, step in enumerate(case.steps):
            name, type_ = _tensor(step)
            read = {n: t for n, t in known.items() if f"%{n}[" in step[2] or f"%{n} " in f"{step[2]} ".replace(")", " ").replace(",", " ")}
            ops += _operator(f"f{k}", read, {name: type_}, [step], case.sections)
            nodes += f"  %{name} = @f{k}({', '.join('%' + n for n in read)})\n"
    else:
        ops = _operator("f", operands, results, case.steps, case.sections)
        nodes = f"  {', '.join('%' + n for n in results)} = @f({', '.join('%' + n for n in operands)})\n"
    params, outs = (", ".join(f"%{n}: tensor<{t}>" for n, t in ts.items()) for ts in (operands, results))
    return f"{ops}pipeline @p({params}) -> ({outs}) {{\n{nodes}}}\n"


@functools.cache
def _compiled(text: str, target: str) -> Any:
    return pipelink_ir.compile(text, target=target)


def _dtype(type_: str) -> np.dtype[Any]:
    return np.dtype(DTYPES[type_.rpartition("x")[2]].numpy())


def run(case: Case, target: str, apart: bool = False) -> dict[str, Array]:
    arrays = {n: np.asarray(v, _dtype(t)) for n, (t, v) in case.inputs.items()}
    return {n: np.asarray(a) for n, a in _compiled(program(case, apart), target)(**arrays).items()}


def check(got: Array, want: Any, rtol: float) -> None:
    wanted = np.asarray(want)
    assert got.shape == wanted.shape
    value, wanted = got.astype(np.float64), wanted.astype(np.float64)
    if rtol:
        np.testing.assert_allclose(value, wanted, rtol=rtol, atol=0, equal_nan=True)
        return
    np.testing.assert_array_equal(value, wanted)
    number = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(value)[number], np.signbit(wanted)[number])


def one(name: str, inputs: Mapping[str, tuple[str, Any]], right: str, type_: str, want: Any, rtol: float = 0, sections: str = "", left: str = "y[n]") -> Case:
    """A case of a single step."""
    return Case(name, inputs, [(left, type_, right)], {"y": want}, rtol, sections)


ROWS = [[0, 0], [-INF, -INF], [NAN, -INF], [1000, -1000], [INF, 0]]
SOFT = [[.5, .5], [NAN, NAN], [NAN, NAN], [1, 0], [NAN, NAN]]

REDUCTIONS = [
    Case("squares of f16 are summed in f32", {"x": ("Kxf16", [300, -300, 600, 8])},
         [("ms", "f32", "mean[k < K](%x[k] ** 2)"), ("y[k]", "Kxf16", "%x[k] * rsqrt(%ms + 1e-6)")],
         {"y": [0.8164, -0.8164, 1.633, 0.02177]}, 1e-3),
    Case("squares of f16 as edges of f16 are infinite", {"x": ("Kxf16", [300, -300, 600, 8])},
         [("sq[k]", "Kxf16", "%x[k] ** 2"), ("ms", "f32", "mean[k < K](%sq[k])"), ("y[k]", "Kxf16", "%x[k] * rsqrt(%ms + 1e-6)")],
         {"y": [0.8164, -0.8164, 1.633, 0.02177]}, 1e-3, apart={"y": [0, -0.0, 0, 0]}),
    one("squares beyond f32 are infinite, not 0", {"x": ("Kxf32", [1e25] * 8)}, "sum[k < K](%x[k] ** 2)", "f32", INF, left="y"),
    Case("the variance of a large mean", {"x": ("Kxf32", [10000, 10001, 10002, 10003])},
         [("mu", "f32", "mean[k < K](%x[k])"), ("v", "f32", "mean[k < K]((%x[k] - %mu) ** 2)")], {"mu": 10001.5, "v": 1.25}),
    Case("softmax of rows with infinities and NaN", {"x": ("NxKxf32", ROWS)},
         [("m[n]", "Nxf32", "max[k < K](%x[n, k])"), ("p[n, k]", "NxKxf32", "exp(%x[n, k] - %m[n])"), ("z[n]", "Nxf32", "sum[k < K](%p[n, k])"),
          ("y[n, k]", "NxKxf32", "%p[n, k] / %z[n]")], {"y": SOFT}),
    Case("softmax of a masked row", {"x": ("NxKxf32", [[1, 2], [3, 4], [NAN, 5]]), "keep": ("NxKxbool", [[0, 0], [1, 0], [1, 1]])},
         [("m[n]", "Nxf32", "max[k < K where %keep[n, k]](%x[n, k])"), ("z[n]", "Nxf32", "sum[k < K where %keep[n, k]](exp(%x[n, k] - %m[n]))"),
          ("y[n, k]", "NxKxf32", "select(%keep[n, k], exp(%x[n, k] - %m[n]) / %z[n], 0)")],
         {"y": [[0, 0], [1, 0], [NAN, NAN]]}, sections="semantic { empty = zero }"),
    Case("long sums along either axis", {"x": ("NxKxf32", np.full((3, 100_000), 0.1)), "t": ("KxNxf32", np.full((100_000, 3), 0.1))},
         [("a[n]", "Nxf32", "sum[k < K](%x[n, k])"), ("b[n]", "Nxf32", "sum[k < K](%t[k, n])")],
         {"a": [10000.000149] * 3, "b": [10000.000149] * 3}, 5e-6),
    Case("reductions over nothing", {"x": ("NxKxf32", np.zeros((0, 3)))},
         [("s[k]", "Kxf32", "sum[n < N](%x[n, k])"), ("q[k]", "Kxf32", "prod[n < N](%x[n, k])"), ("m[k]", "Kxf32", "mean[n < N](%x[n, k])"),
          ("a[k]", "Kxbool", "any[n < N](%x[n, k] > 0)"), ("e[k]", "Kxbool", "all[n < N](%x[n, k] > 0)"), ("hi[k]", "Kxf32", "max[n < N](%x[n, k])"),
          ("lo[k]", "Kxf32", "min[n < N](%x[n, k])")],
         {"s": [0] * 3, "q": [1] * 3, "m": [NAN] * 3, "a": [0] * 3, "e": [1] * 3, "hi": [-INF] * 3, "lo": [INF] * 3}),
    one("no columns, no results", {"x": ("NxKxf32", np.zeros((3, 0)))}, "sum[n < N](%x[n, k])", "Kxf32", np.zeros(0), left="y[k]"),
    Case("the first of equal winners", {"x": ("Kxf32", [3, 7, 7, 1]), "e": ("Mxf32", [5] * 1000)},
         [("a", "i32", "argmax[k < K](%x[k])"), ("b", "i32", "argmax[k < M](%e[k])"), ("c", "i32", "argmin[k < M](%e[k])")], {"a": 1, "b": 0, "c": 0}),
    Case("the first NaN wins", {"x": ("Kxf32", [1, NAN, 9, NAN]), "z": ("Mxf32", [NAN, -INF, 0])},
         [("a", "i32", "argmax[k < K](%x[k])"), ("b", "i32", "argmin[k < M](%z[k])")], {"a": 1, "b": 0}),
]

PAIRS = ([NAN, 1, NAN, 0], [1, NAN, NAN, -1])
LONG = tuple(np.resize(p, 17) for p in PAIRS)

NUMERICS = [
    *[Case(f"NaN wins in max and min of {len(p[0])}", {"a": ("Nxf32", p[0]), "b": ("Nxf32", p[1])},
           [("hi[n]", "Nxf32", "max(%a[n], %b[n])"), ("lo[n]", "Nxf32", "min(%a[n], %b[n])"), ("relu[n]", "Nxf32", "max(%a[n], 0)")],
           {"hi": np.resize([NAN, NAN, NAN, 0], len(p[0])), "lo": np.resize([NAN, NAN, NAN, -1], len(p[0])),
            "relu": np.resize([NAN, 1, NAN, 0], len(p[0]))}) for p in (PAIRS, LONG)],
    one("NaN goes through a clamp", {"x": ("Nxf32", [NAN, -1, .5, 2])}, "clamp(%x[n], 0, 1)", "Nxf32", [NAN, 0, .5, 1]),
    one("a NaN bound of run time makes everything NaN", {"x": ("Nxf32", [-1, .5, 2]), "hi": ("f32", NAN)}, "clamp(%x[n], 0, %hi)", "Nxf32", [NAN] * 3),
    one("a clamp is min(max(x, lo), hi)", {"x": ("Nxf32", [-1, .5, 2]), "lo": ("f32", 3)}, "clamp(%x[n], %lo, 1)", "Nxf32", [1, 1, 1]),
    one("half of the least normal number", {"x": ("Nxf32", [1.17549435e-38])}, "%x[n] / 2", "Nxf32", [float(np.float32(1.17549435e-38)) / 2]),
    one("powers of two below the normal numbers", {"e": ("Nxi32", [-149, -150])}, "2.0 ** %e[n]", "Nxf32", [2.0**-149, 0]),
    Case("signed zeros and infinities", {"x": ("Nxf32", [-0.0, INF])},
         [("a[n]", "Nxf32", "%x[n] + 0"), ("b[n]", "Nxf32", "%x[n] - 0"), ("c[n]", "Nxf32", "%x[n] * 1"), ("d[n]", "Nxf32", "sqrt(%x[n])"),
          ("e[n]", "Nxf32", "0 - %x[n]"), ("f[n]", "Nxf32", "-%x[n]"), ("g[n]", "Nxf32", "%x[n] * 0"), ("h[n]", "Nxf32", "%x[n] - %x[n]"),
          ("i[n]", "Nxf32", "1 / (%x[n] * 1)"), ("j[n]", "Nxf32", "1 / (%x[n] + 0)")],
         {"a": [0.0, INF], "b": [-0.0, INF], "c": [-0.0, INF], "d": [-0.0, INF], "e": [0.0, -INF], "f": [0.0, -INF], "g": [-0.0, NAN], "h": [0.0, NAN],
          "i": [-INF, 0.0], "j": [INF, 0.0]}),
    one("fast_math keeps tests for NaN", {"x": ("Nxf32", [NAN, 1, INF])}, "select(isnan(%x[n]), 0, %x[n])", "Nxf32", [0, 1, INF],
        sections="compile { fast_math = true }"),
    Case("no contraction under accuracy = exact", {"a": ("Nxf32", [1.000244140625]), "c": ("Nxf32", [1.00048828125])},
         [("p[n]", "Nxf32", "%a[n] * %a[n]"), ("y[n]", "Nxf32", "%p[n] - %c[n]")], {"y": [0]}, sections="compile { accuracy = exact }"),
    Case("a written cast rounds inside an operator", {"x": ("Nxf32", [0.1, 2049, 70000])},
         [("h[n]", "Nxf32", "f16(%x[n])"), ("y[n]", "Nxf32", "3 * %h[n]")], {"y": [3 * float(np.float16(0.1)), 3 * 2048, INF]}, 1e-7),
    Case("an edge rounds, a local does not", {"x": ("Nxf32", [2049])}, [("h[n]", "Nxf16", "%x[n] + 0"), ("y[n]", "Nxf32", "%h[n] - 2048")], {"y": [1]},
         apart={"y": [0]}),
    one("a literal above the range of f16", {"x": ("Nxf16", [0, 1])}, "%x[n] + 70000", "Nxf16", [INF, INF]),
    Case("i32 wraps", {"a": ("Nxi32", [2**31 - 1]), "b": ("Nxi32", [65536])},
         [("s[n]", "Nxi32", "%a[n] + 1"), ("q[n]", "Nxi32", "%b[n] * %b[n]"), ("t[n]", "Nxi32", "2147483647 + 1 + 0 * %a[n]"),
          ("u[n]", "Nxi32", "65536 * 65536 + 0 * %b[n]")], {"s": [MIN], "q": [0], "t": [MIN], "u": [0]}),
    Case("casts to u8 wrap, folded and run", {"a": ("Nxi32", [3, 255]), "b": ("Nxi32", [4, -1])},
         [("y[n]", "Nxu8", "u8(%a[n] - %b[n])"), ("z[n]", "Nxu8", "select(%a[n] > 0, u8(3 - 4), 0)"), ("w[n]", "Nxu8", "select(%a[n] > 0, u8(255 + 1), 1)")], {"y": [255, 0], "z": [255] * 2, "w": [0] * 2}),
    Case("floor division of negative numbers", {"a": ("Nxi32", [7, -7, 7, -7]), "b": ("Nxi32", [2, 2, -2, -2])},
         [("q[n]", "Nxi32", "%a[n] floordiv %b[n]"), ("r[n]", "Nxi32", "%a[n] mod %b[n]"), ("c[n]", "Nxi32", "%a[n] ceildiv %b[n]"),
          ("same[n]", "Nxbool", "%q[n] * %b[n] + %r[n] == %a[n]")],
         {"q": [3, -4, -4, 3], "r": [1, 1, -1, -1], "c": [4, -3, -3, 4], "same": [1] * 4}),
    Case("the least integer, and division by zero", {"a": ("Nxi32", [MIN, MIN, 5, -5]), "b": ("Nxi32", [-1, 1, 0, 0])},
         [("q[n]", "Nxi32", "%a[n] floordiv %b[n]"), ("r[n]", "Nxi32", "%a[n] mod %b[n]"), ("c[n]", "Nxi32", "%a[n] ceildiv %b[n]"),
          ("m[n]", "Nxi32", "abs(%a[n])")], {"q": [MIN, MIN, 0, 0], "r": [0] * 4, "c": [MIN, MIN, 0, 0], "m": [MIN, MIN, 5, 5]}),
    one("`/` of integers is a real quotient, and follows IEEE", {"a": ("Nxi32", [1, -1, 0, 7]), "b": ("Nxi32", [0, 0, 0, 2])}, "%a[n] / %b[n]", "Nxf32",
        [INF, -INF, NAN, 3.5]),
    Case("bytes are not signed", {"a": ("Nxu8", [200, 100]), "b": ("Nxu8", [100, 200])},
         [("r[n]", "Nxi32", "%a[n] mod 7"), ("more[n]", "Nxbool", "%a[n] > %b[n]")], {"r": [4, 2], "more": [1, 0]}),
    Case("floats out of range become integers", {"x": ("Nxf32", [NAN, INF, -INF, 3e9, -1.5, 256.7, -1])},
         [("i[n]", "Nxi32", "i32(%x[n])"), ("u[n]", "Nxu8", "u8(%x[n])"), ("s[n]", "Nxu8", "sat_u8(%x[n])")],
         {"i": [0, 2**31 - 1, MIN, 2**31 - 1, -1, 256, -1], "u": [0, 255, 0, 255, 0, 255, 0], "s": [0, 255, 0, 255, 0, 255, 0]}),
    one("bf16 rounds to nearest even, NaN stays NaN", {"x": ("Nxf32", [1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, NAN])}, "%x[n] + 0", "Nxbf16",
        [1, 1 + 2**-6, 1 + 2**-7, NAN]),
]

QUANTISATION = [
    one("i8 reaches -128", {"x": ("Nxf32", [-129, -128, -127, -126, 126, 127, 128, 129])}, "i8(clamp(round(%x[n] / 1.0), -128, 127))", "Nxi8",
        [-128, -128, -127, -126, 126, 127, 127, 127]),
    Case("ties to even before the zero point", {"x": ("Nxf32", [.25, .75, 1.25, 1.75])},
         [("a[n]", "Nxu8", "sat_u8(round(%x[n] / 0.5))"), ("b[n]", "Nxu8", "sat_u8(round(%x[n] / 0.5) + 3)")], {"a": [0, 2, 2, 4], "b": [3, 5, 5, 7]}),
    one("ties of i8", {"x": ("Nxf32", [2.5, -2.5, 3.5, -.5])}, "sat_i8(round(%x[n]))", "Nxi8", [2, -2, 4, 0]),
    Case("a dead channel has the scale 0", {"w": ("NxKxf32", [[0, 0, 0, 0], [1, -2.1, 3, -4]])},
         [("s[n]", "Nxf32", "max[k < K](abs(%w[n, k])) / 127"), ("q[n, k]", "NxKxi8", "sat_i8(round(%w[n, k] / %s[n]))"),
          ("back[n, k]", "NxKxf32", "%q[n, k] * %s[n]")],
         {"q": [[0] * 4, [32, -67, 95, -127]], "back": [[0] * 4, [float(np.float32(c) * (np.float32(4) / np.float32(127))) for c in (32, -67, 95, -127)]]},
         1e-6),
    *[one(f"u8 times i8 over {k}", {"a": ("Kxu8", [255] * k), "b": ("Kxi8", [127] * k)}, "sum[k < K](%a[k] * %b[k])", "i32", 255 * 127 * k, left="y")
      for k in (2, 4, 64)],
]

IMAGES = [
    Case("a gain saturates", {"x": ("Nxu8", [100, 128, 200, 255]), "g": ("f32", 1.1)},
         [("a[n]", "Nxu8", "sat_u8(round(%g * %x[n]))"), ("b[n]", "Nxu8", "sat_u8(round(f32(2 * %x[n])))"), ("c[n]", "Nxu8", "sat_u8(round(2.0 * %x[n]))"),
          ("d[n]", "Nxu8", "sat_u8(-1 * %x[n])")],
         {"a": [110, 141, 220, 255], "b": [200, 255, 255, 255], "c": [200, 255, 255, 255], "d": [0] * 4}),
    Case("wrap or saturate, as it is written", {"a": ("Nxu8", [3, 250, 16]), "b": ("Nxu8", [4, 10, 17])},
         [("d[n]", "Nxu8", "u8(%a[n] - %b[n])"), ("s[n]", "Nxu8", "u8(%a[n] + %b[n])"), ("p[n]", "Nxu8", "u8(%a[n] * %b[n])"),
          ("sd[n]", "Nxu8", "sat_u8(%a[n] - %b[n])"), ("ss[n]", "Nxu8", "sat_u8(%a[n] + %b[n])"), ("sp[n]", "Nxu8", "sat_u8(%a[n] * %b[n])")],
         {"d": [255, 240, 255], "s": [7, 4, 33], "p": [12, 196, 16], "sd": [0, 240, 0], "ss": [7, 255, 33], "sp": [12, 255, 255]}),
    one("the mean is not cast to the image's type", {"x": ("Nxu8", [0, 1, 255]), "m": ("f32", 0.5)}, "(%x[n] - %m) * 1.5", "Nxf32", [-.75, .75, 381.75]),
    Case("powers outside the domain", {"x": ("Nxf32", [-.25, 0, 0, -0.0, 0, -8, 1]), "e": ("Nxf32", [1.2, 0, -1, -1, .45, 3, NAN])},
         [("y[n]", "Nxf32", "pow(%x[n], %e[n])"), ("z[n]", "Nxf32", "%x[n] ** %e[n]")],
         {"y": [NAN, 1, INF, -INF, 0, -512, 1], "z": [NAN, 1, INF, -INF, 0, -512, 1]}),
    one("identity gamma is the identity", {"x": ("Nxu8", np.arange(256))}, "sat_u8(round(255 * (%x[n] / 255) ** 1.0))", "Nxu8", np.arange(256)),
    one("gamma of bytes", {"x": ("Nxu8", [0, 1, 64, 128, 254, 255])}, "sat_u8(round(255 * (%x[n] / 255) ** 2.2))", "Nxu8", [0, 0, 12, 56, 253, 255]),
    one("grey of grey is grey", {"x": ("Nxu8", np.arange(256))}, "sat_u8(round(0.299 * %x[n] + 0.587 * %x[n] + 0.114 * %x[n]))", "Nxu8", np.arange(256)),
    one("floats become bytes to nearest", {"x": ("Nxf32", [0, .5, .9999, 1, 1.2, -.1, NAN])}, "sat_u8(round(255 * %x[n]))", "Nxu8",
        [0, 128, 255, 255, 255, 0, 0]),
    *[one(f"the mean of three with {border}", {"x": ("Nxf32", [1, 2, 3, 4])}, "mean[i < 3](%x[n + i - 1])", "Nxf32", want, 1e-6, f"memory {{ border = {border} }}")
      for border, want in (("reflect101", [5 / 3, 2, 3, 10 / 3]), ("reflect", [4 / 3, 2, 3, 11 / 3]), ("replicate", [4 / 3, 2, 3, 11 / 3]),
                           ("constant(0)", [1, 2, 3, 7 / 3]))],
    *[one(f"a single pixel under {border}", {"x": ("Nxf32", [7])}, "%x[n - 5] + 10 * %x[n + 9]", "Nxf32", [77], 0, f"memory {{ border = {border} }}")
      for border in ("replicate", "reflect", "reflect101", "wrap")],
    one("a border wider than the image", {"x": ("Nxf32", [1, 2, 3])}, "%x[n - 5] + 10 * %x[n + 7]", "Nxf32", [22, 11, 22], 0,
        "memory { border = reflect101 }"),
]

CASES = [*REDUCTIONS, *NUMERICS, *QUANTISATION, *IMAGES]


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize("apart", [False, True], ids=["fused", "apart"])
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name.replace(" ", "-"))
def test_reported_fault(case: Case, apart: bool, target: str) -> None:
    got = run(case, target, apart)
    want = case.apart if apart and case.apart is not None else case.want
    assert sorted(got) == sorted(want)
    for name, value in want.items():
        check(got[name], value, 0 if want is case.apart else case.rtol)


# ------------------------------------------------------------------------------------------------------- folded and run, body and tail


FOLDED = ["{a} / {b}", "{a} + {b} * {c}", "exp({a}) - {b}", "{a} ** {c}", "{a} ** {b}", "f16({a}) * 3", "bf16({b} / {a})", "sqrt({b}) + rsqrt({a})", "log({a}) * tanh({b})",
          "({a} - {c}) mod {b}", "({c} - {a}) floordiv {b}", "round({a} * {c})", "sin({a}) + cos({b})", "atan2({c}, {a})", "erf({a})", "select({a} < {b}, {a}, {c})"]


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize("expression", FOLDED)
def test_folding_gives_the_bits_of_running(expression: str, target: str) -> None:
    values = {"a": 0.1, "b": 2.7182817, "c": 3.0}
    literal = expression.format(**values)
    loaded = expression.format(**{n: f"%{n}[n]" for n in values})
    case = Case("fold", {n: ("Nxf32", [v]) for n, v in values.items()}, [("y[n]", "Nxf32", literal), ("z[n]", "Nxf32", loaded)], {"y": [0], "z": [0]})
    got = run(case, target)
    assert got["y"].tobytes() == got["z"].tobytes()


@pytest.mark.parametrize("expression", ["{a} + {b}", "{a} * {a}", "{b} - {a}", "{a} floordiv {b}", "{a} mod {b}", "u8({a})", "i8({a} + 200)", "sat_u8({b})", "f32({a}) / 3", "abs({b}) ** 3"])
@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_folding_of_integers_wraps_as_running_does(expression: str, target: str) -> None:
    values = {"a": 2147483647, "b": -7}
    type_ = "Nxu8" if expression.startswith(("u8", "sat_u8")) else "Nxi8" if expression.startswith("i8") else "Nxf32" if "f32" in expression else "Nxi32"
    literal, loaded = expression.format(**values), expression.format(**{n: f"%{n}[n]" for n in values})
    case = Case("fold", {n: ("Nxi32", [v]) for n, v in values.items()}, [("y[n]", type_, literal), ("z[n]", type_, loaded)], {"y": [0], "z": [0]})
    got = run(case, target)
    assert got["y"].tobytes() == got["z"].tobytes()


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_body_and_tail_round_alike_at_every_length(target: str) -> None:
    pattern = np.resize(np.array([.25, .75, -1.25, 1.75, 2.5, -2.5, 126.75, 300, NAN], np.float32), 70)
    want = np.clip(np.nan_to_num(np.rint(pattern / np.float32(0.5)), nan=0), -128, 127).astype(np.int8)
    for size in (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 70):
        case = one("tail", {"x": ("Nxf32", pattern[:size])}, "sat_i8(round(%x[n] / 0.5))", "Nxi8", want[:size])
        np.testing.assert_array_equal(run(case, target)["y"], want[:size])


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_a_quotient_is_not_a_product_with_the_reciprocal(target: str) -> None:
    x = np.arange(1, 4097, dtype=np.float32)
    case = one("quotient", {"x": ("Nxf32", x), "s": ("f32", 0.3)}, "%x[n] / %s", "Nxf32", x, sections="compile { accuracy = exact }")
    got = run(case, target)["y"]
    assert got.tobytes() == (x / np.float32(0.3)).tobytes()
    assert (got != x * (np.float32(1) / np.float32(0.3))).any()


# ------------------------------------------------------------------------------------------------------------------- memory, sizes


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize("width", [1, 2, 5, 10, 31, 33])
def test_a_pitch_between_rows_is_neither_read_nor_written(target: str, width: int) -> None:
    pitch = (3 * width + 31) // 32 * 32 + 32
    memory = np.full((2, pitch), 99, np.uint8)
    view = np.lib.stride_tricks.as_strided(memory, (2, width, 3), (pitch, 3, 1))
    view[...] = (np.arange(6 * width) % 90).reshape(2, width, 3)
    text = ("op @keep(%x: tensor<HxWxCxu8, HWC>) -> (%y: tensor<HxWxCxu8, HWC>) { memory { %x { contiguity = rows } } compute { %y[h, w, c] = %x[h, w, c] } }\n"
            "pipeline @p(%x: tensor<HxWxCxu8, HWC>) -> (%y: tensor<HxWxCxu8, HWC>) { %y = @keep(%x) }\n")
    got = np.asarray(_compiled(text, target)(x=view)["y"])
    np.testing.assert_array_equal(got.reshape(-1), np.arange(6 * width) % 90)
    assert (memory[:, 3 * width:] == 99).all()


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize("border", ["replicate", "reflect", "reflect101", "wrap"])
def test_nothing_is_read_of_an_axis_without_elements(target: str, border: str) -> None:
    text = (f"op @f(%x: tensor<Nxf32>, M: dim) -> (%y: tensor<Mxf32>) {{ memory {{ border = {border} }} compute {{ %y[m] = %x[m - 1] }} }}\n"
            "pipeline @p(%x: tensor<Nxf32>) -> (%y: tensor<3xf32>) { %y = @f(%x) {M = 3} }\n")
    with pytest.raises(ExecutionError):
        _compiled(text, target)(x=np.zeros(0, np.float32))


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_results_share_memory_with_nothing(target: str) -> None:
    text = "pipeline @p(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>, %z: tensor<Nxf32>) { %y = @std.copy(%x)\n %z = %y }\n"
    x = np.array([2.3], np.float32)
    first = _compiled(text, target)(x=x)
    y, z = np.asarray(first["y"]), np.asarray(first["z"])
    y[0] = 7
    again = _compiled(text, target)(x=x)
    assert (float(x[0]), float(z[0]), float(np.asarray(again["y"])[0]), float(y[0])) == (x[0], x[0], x[0], 7)


def test_every_nan_stays_one_in_bf16() -> None:
    bits = np.array([0x7F800001, 0xFF800001, 0x7FC00000, 0x7FFFFFFF], np.uint32)
    case = one("nan", {"x": ("Nxf32", bits.view(np.float32))}, "%x[n]", "Nxbf16", [NAN] * 4)
    for target in ("reference", "cpu"):
        assert np.isnan(run(case, target)["y"].view(ml_dtypes.bfloat16).astype(np.float32)).all()


# ---------------------------------------------------------------------------------------------------------------- refused, with a place


REFUSED = [
    ("clamp(%x[n], 1, 0)", "upside down", "clamp"), ("clamp(%x[n], nan, 1)", "nan", "clamp"), ("f32(i32(%x[n]) floordiv 0)", "divisor", "0"),
    ("f32(i32(%x[n]) mod 0)", "divisor", "0"), ("f32(min(i32(%x[n]), 3000000000))", "does not fit", "3000000000"), ("f32(i32(%x[n]) ** -1)", "negative power", "i32"),
]


@pytest.mark.parametrize(("right", "said", "at"), REFUSED, ids=[r for r, _, _ in REFUSED])
def test_constants_that_make_no_sense_are_refused(right: str, said: str, at: str) -> None:
    text = program(one("refused", {"x": ("Nxf32", [1])}, right, "Nxf32", [0]), False)
    with pytest.raises(ProgramError) as caught:
        pipelink_ir.compile(text, target="reference")
    error = caught.value.diagnostics[0]
    assert said in error.message
    assert text.splitlines()[error.span.line - 1][error.span.column - 1:].startswith(at)


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "1 / 0", "1e40"])
def test_an_attribute_outside_its_domain_is_refused(value: str) -> None:
    text = ("op @g(%x: tensor<Nxf32>, gamma: f32 = 2.2) -> (%y: tensor<Nxf32>) { where gamma > 0 compute { %y[n] = %x[n] ** gamma } }\n"
            f"pipeline @p(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) {{ %y = @g(%x) {{gamma = {value}}} }}\n")
    with pytest.raises(ProgramError) as caught:
        pipelink_ir.compile(text, target="reference")
    assert [d.span.line for d in caught.value.diagnostics] == [2]
    assert "gamma" in caught.value.diagnostics[0].message


def test_a_test_for_nan_beside_fast_math_is_a_warning() -> None:
    from pipelink_ir.grammar import parse
    from pipelink_ir.ir.diagnostics import Report
    from pipelink_ir.passes.manager import parse_passes, run_passes
    case = one("warned", {"x": ("Nxf32", [1])}, "select(isnan(%x[n]), 0, %x[n])", "Nxf32", [0], sections="compile { fast_math = true }")
    report = Report()
    run_passes(parse(program(case, False), "t.plir"), parse_passes("validate"), report)
    assert [(d.severity, d.span.line) for d in report.diagnostics] == [("warning", 3)]
