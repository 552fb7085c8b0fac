"""Every function on f32 and f64, against NumPy and SciPy in f64, with the values of IEEE 754 and C by hand."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, nan
from typing import Any

import numpy as np
import scipy.special

from tests.constructs.case import Case, op

Fn = Callable[..., Any]
COMMON = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -3.0, 1e-3, -1e-8, 0.7071, 1.4999, 2.5, -2.5, 7.25, 30.0, -30.0, inf, -inf, nan]


def real(name: str, fn: Fn, ulp: float, *points: Sequence[float], text: str = "") -> list[Case]:
    """`fn` in f64 at the given points, as f32 and as f64. The arguments are rounded to the dtype first."""
    out = []
    for dtype, kind in (("f32", np.float32), ("f64", np.float64)):
        with np.errstate(all="ignore"):
            args = [np.asarray(p).astype(kind).astype(np.float64) for p in points]
            want = fn(*args)
        operands = ", ".join(f"%{v}: tensor<Nx{dtype}>" for v in "abc"[:len(args)])
        call = text or f"{name}({', '.join(f'%{v}[n]' for v in 'abc'[:len(args)])})"
        result = "bool" if np.asarray(want).dtype == bool else dtype
        out.append(Case(f"{name} of {dtype}", name, op(f"{operands} -> %y: tensor<Nx{result}>", f"%y[n] = {call}"), dict(zip("abc", args, strict=False)), {"y": want}, ulp=ulp,
                        atol=(4e-45 if kind is np.float32 else 1e-323) if ulp else 0.0))
    return out


def pairs(a: Sequence[float], b: Sequence[float]) -> tuple[list[float], list[float]]:
    """Every value with every other."""
    return [x for x in a for _ in b], [y for _ in a for y in b]


def integers(name: str, text: str, want: Fn) -> Case:
    """A function of integers, which stay what they are."""
    a, b = [-2**31 + 1, -7, -1, 0, 1, 5, 2**31 - 1], [3, -9, -1, 0, 4, 5, -2**31]
    return Case(f"{name} of integers", name, op("%a: tensor<Nxi32>, %b: tensor<Nxi32>, %l: tensor<Nxi64> -> %y: tensor<Nxi32>, %z: tensor<Nxi64>", f"%y[n] = {text} %z[n] = {text.replace('%a[n]', '%l[n]')}"),
                {"a": a, "b": b, "l": [2**40 * (x % 3 - 1) + x for x in a]}, {"y": [want(x, y) for x, y in zip(a, b, strict=True)], "z": [want(2**40 * (x % 3 - 1) + x, y) for x, y in zip(a, b, strict=True)]})


SEVENTEEN = [nan if k % 5 == 3 else k - 8.0 for k in range(17)]
OTHER = [nan if k % 7 == 2 else 5.0 - k for k in range(17)]
P2 = pairs([1.0, -2.5, 0.5, inf, nan], [2.0, -2.5, -inf, nan, 0.25])
ANGLES = [*COMMON[:-3], 3.14159, 100.0, -1000.0, 12345.678, inf, nan]
NOT_MINUS_ZERO = [v for v in COMMON if not (v == 0 and np.signbit(v))]

CASES = [
    *real("select", lambda a, b, c: np.where(a > 0, b, c), 0, [1, -1, nan, 0], [1, 2, 3, 4], [-1, -2, -3, nan], text="select(%a[n] > 0, %b[n], %c[n])"),
    *real("min", np.minimum, 0, SEVENTEEN, OTHER), *real("max", np.maximum, 0, SEVENTEEN, OTHER), *real("fmin", np.fmin, 0, SEVENTEEN, OTHER), *real("fmax", np.fmax, 0, SEVENTEEN, OTHER),
    *real("min", lambda a, b, c: np.minimum(a, np.maximum(b, c)), 0, [1, nan, 2, 3, inf], [2, 1, nan, 3, -inf], [0, 5, 1, nan, 2], text="min(%a[n], max(%b[n], %c[n]))"),
    *real("clamp", lambda a, b, c: np.minimum(np.maximum(a, b), c), 0, [-1, 0.5, 9, nan, 2, 2, 5, inf], [0, 0, 0, 0, nan, 0, 3, -inf], [1, 1, 1, 1, 1, nan, 1, inf]),
    *real("abs", np.abs, 0, COMMON), *real("sign", lambda a: np.where(np.isnan(a), nan, np.where(a == 0, 0, np.sign(a))), 0, NOT_MINUS_ZERO), *real("floor", np.floor, 0, COMMON), *real("ceil", np.ceil, 0, COMMON),
    *real("round", np.rint, 0, [*COMMON, 3.5, 4.5, -3.5, 0.49999997, 8388609.0, 4503599627370497.0, 0.5000001]),
    *real("sqrt", np.sqrt, 2, [0.0, 1, 4, 2, 1e-40, 1e38, 9.5, inf, nan, -1, 5e-324, 1e300]), *real("rsqrt", lambda a: 1 / np.sqrt(a), 2, [1, 4, 2, 1e-38, 1e38, 9.5, inf, nan, -1, 0.0]),
    *real("exp", np.exp, 2, [*COMMON, 88.7, -87.0, -103.0, 709.0, -745.0, 100.0, -150.0]), *real("exp2", np.exp2, 2, [*COMMON, 127.5, -126.5, -149.0, -150.5, 1023.5, 128.0, 10.0]),
    *real("expm1", np.expm1, 4, [*COMMON, 1e-20, -1e-12, 88.7, -87.0, 0.3]), *real("log", np.log, 2, [*COMMON, 1e-40, 1e38, 1.0000001, 0.9999999, 1e-300, 3e300]),
    *real("log2", np.log2, 2, [*COMMON, 8, 1e-40, 1e38, 1.0000001, 0.25]), *real("log1p", np.log1p, 4, [*COMMON, 1e-20, -0.999, 1e30, 0.3]),
    *real("logaddexp", np.logaddexp, 4, *pairs([0.0, 1, -5, 1000, -1000, 0.3], [0.0, 0.7, 1000, -1000, -inf])), *real("logaddexp", np.logaddexp, 4, [-inf, inf, nan, inf, 2], [-inf, inf, 1, -inf, nan]),
    *real("pow", np.power, 4, *pairs([0.5, 2, 1, 10, 0.1, 3.7], [0.0, 1, -1, 2.5, 10, -3.3, 20.5])), *real("pow", np.power, 4, [-2, -2, -8, 0, 0, -0.0, 1, nan, inf, inf, -inf, -inf, 2, 0.5, -1], [3, 2, 1 / 3, 2, -1, 3, nan, 0, -1, 2, 3, 2, inf, inf, inf]),
    *real("sin", np.sin, 4, ANGLES), *real("cos", np.cos, 4, ANGLES), *real("tan", np.tan, 4, ANGLES), *real("tanh", np.tanh, 4, [*COMMON, 0.62, 0.63, 9.5, -1e-20]),
    *real("sigmoid", scipy.special.expit, 4, [*COMMON, 90.0, -87.0, -20.0, 17.0]), *real("erf", scipy.special.erf, 4, [*COMMON, 0.92, 0.93, 1.5, 3.9, -1e-20, 5.9, 6.1]),
    *real("atan2", np.arctan2, 4, *pairs([0.0, 1, -1, 0.3, -7, inf], [1.0, -1, 0.5, -20, inf, -inf])), *real("atan2", np.arctan2, 4, [0.0, -0.0, 0, -0.0, 1, -1, nan], [0.0, 0, -0.0, -1, 0, -0.0, 1]),
    *real("isnan", np.isnan, 0, COMMON), *real("isinf", np.isinf, 0, COMMON),
    *[c for n, f in (("==", np.equal), ("!=", np.not_equal), ("<", np.less), ("<=", np.less_equal), (">", np.greater), (">=", np.greater_equal)) for c in real(n, f, 0, *P2, text=f"%a[n] {n} %b[n]")],
    *[c for n, f in (("+", np.add), ("-", np.subtract), ("*", np.multiply)) for c in real(n, f, 0.51, *P2, text=f"%a[n] {n} %b[n]")],
    *real("/", np.divide, 2, *pairs([1.0, -2.5, 0, 7, inf, nan], [3.0, -2.5, 0.0, -0.0, inf]), text="%a[n] / %b[n]"),
    *real("neg", np.negative, 0, COMMON, text="-%a[n]"),
    *(integers(n, t, w) for n, t, w in (("min", "min(%a[n], %b[n])", min), ("max", "max(%a[n], %b[n])", max), ("fmin", "fmin(%a[n], %b[n])", min), ("fmax", "fmax(%a[n], %b[n])", max), ("clamp", "clamp(%a[n], -3, 4)", lambda a, b: min(max(a, -3), 4)),
                                        ("abs", "abs(%a[n])", lambda a, b: abs(a)), ("sign", "sign(%a[n])", lambda a, b: (a > 0) - (a < 0)), ("floor", "floor(%a[n])", lambda a, b: a), ("ceil", "ceil(%a[n])", lambda a, b: a), ("round", "round(%a[n])", lambda a, b: a),
                                        ("select", "select(%b[n] < 0, %a[n], 7)", lambda a, b: a if b < 0 else 7))),
    Case("real functions of integers", ("sqrt", "exp", "atan2"), op("%i: tensor<Nxi32>, %l: tensor<Nxi64>, %h: tensor<Nxf16> -> %y: tensor<Nxf32>, %z: tensor<Nxf32>, %w: tensor<Nxf16>, %v: tensor<Nxf32>",
                                                                    "%y[n] = sqrt(%i[n]) %z[n] = exp(%i[n] - 4) %w[n] = exp(%h[n]) %v[n] = atan2(%i[n], 2)"),
         {"i": [4, 9, 2], "l": [1, 2, 3], "h": [0, 1, 2]}, {"y": [2, 3, 2**0.5], "z": [1, np.exp(5), np.exp(-2)], "w": [1, np.exp(1), np.exp(2)], "v": np.arctan2([4, 9, 2], 2)}, ulp=4),
    Case("logic", ("and", "or", "not"), op("%a: tensor<Nxbool>, %b: tensor<Nxbool> -> %y: tensor<Nxbool>, %z: tensor<Nxbool>, %w: tensor<Nxbool>, %e: tensor<Nxbool>, %d: tensor<Nxbool>",
                                           "%y[n] = %a[n] and %b[n] %z[n] = %a[n] or %b[n] %w[n] = not %a[n] %e[n] = %a[n] == %b[n] %d[n] = %a[n] != %b[n]"),
         {"a": [0, 0, 1, 1], "b": [0, 1, 0, 1]}, {"y": [False, False, False, True], "z": [False, True, True, True], "w": [True, True, False, False], "e": [True, False, False, True], "d": [False, True, True, False]}),
]
