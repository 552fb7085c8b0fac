"""Every dtype as operand, result and cast; what arithmetic makes of them, sentence by sentence of "Arithmetic"."""
from __future__ import annotations

from math import inf, nan, pi
from typing import Any

import numpy as np

from tests.constructs.case import Case, op, program
from tests.constructs.exact import FLOATS, INTEGERS, Number, cast, rounded, ties

ALL = ("bool", *INTEGERS, *FLOATS)
COMPUTED = {d: d for d in ("bool", "i32", "i64", "f32", "f64")} | dict.fromkeys(("u8", "i8", "u16", "i16"), "i32") | dict.fromkeys(("f16", "bf16", "f8e4m3", "f8e5m2"), "f32")
EDGES: list[Number] = [0, 1, 2, 3, 7, -1, -2, 100, 127, 128, 129, 255, 256, -127, -128, -129, 2047, 2049, 4097, 32767, 32768, -32768, -32769, 65503, 65504, 65519, 65520, 65535, 65536, 16777215,
                       16777217, 33554435, 2**31 - 1, 2**31, -2**31, -2**31 - 1, 2**32 - 1, 2**32, 2**53 + 1, 2**54 + 2, 2**54 + 6, 2**60 + 2**35 + 1, 2**63 - 1, -2**63, 2**62 + 2**38, 2**62 + 2**38 + 1,
                       2**62 + 2**54 + 1, 2**62 + 3 * 2**54 - 1, -2**62 - 2**54 - 1]
REALS = [0.0, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, 0.999, -0.999, 256.7, 3e9, -3e9, 1e10, 1e19, -1e19, 1e300, 1e-300, 5e-324, inf, -inf, nan, 2.0**31 - 1, 2.0**63]


def values(dtype: str) -> list[Number]:
    """Numbers that a dtype holds: its ends, and what rounds, saturates or wraps on the way to others."""
    if dtype == "bool":
        return [False, True]
    if dtype in INTEGERS:
        return [v for v in EDGES if INTEGERS[dtype][0] <= v <= INTEGERS[dtype][1]]
    exact = [float(v) for v in EDGES] + REALS + [t for d in FLOATS for t in ties(d)]
    kept = {repr(v): v for v in (rounded(x, dtype) for x in exact)}
    return list(kept.values())


def stored(dtype: str, data: list[Number]) -> Any:
    """As an array of that dtype: NumPy and ml_dtypes round from f64 by way of f32, which does nothing to what the dtype holds."""
    from pipelink_ir.ir.dtypes import DTYPES
    return np.asarray(data, object if dtype in INTEGERS else np.float64).astype(DTYPES[dtype].numpy())


def casts(source: str) -> Case:
    """One dtype cast to all others."""
    data = values(source)
    plain, sat = list(ALL), list(INTEGERS)
    results = ", ".join([f"%c_{d}: tensor<Nx{d}>" for d in plain] + [f"%s_{d}: tensor<Nx{d}>" for d in sat])
    body = "\n".join([f"%c_{d}[n] = {d}(%x[n])" for d in plain] + [f"%s_{d}[n] = sat_{d}(%x[n])" for d in sat])
    want: dict[str, Any] = {f"c_{d}": np.asarray([cast(v, d) for v in data], object if d in INTEGERS else None) for d in plain}
    want |= {f"s_{d}": np.asarray([cast(v, d, saturate=True) for v in data], object) for d in sat}
    covers = [f"operand of {source}", *(f"cast to {d}" for d in plain), *(f"sat_{d}" for d in sat), *(f"result of {d}" for d in plain)]
    return Case(f"casts of {source}", covers, op(f"%x: tensor<Nx{source}> -> {results}", body), {"x": stored(source, data)}, want)


def stores(source: str) -> Case:
    """What a store does by itself: to narrower floats."""
    data = values(source)
    narrower = [d for d in FLOATS if FLOATS[d][0] < FLOATS[source][0]]
    text = op(f"%x: tensor<Nx{source}> -> {', '.join(f'%{d}: tensor<Nx{d}>' for d in narrower)}", "\n".join(f"%{d}[n] = %x[n]" for d in narrower))
    return Case(f"stores of {source}", "a store rounds to a narrower float", text, {"x": stored(source, data)}, {d: [rounded(v, d) for v in data] for d in narrower})


def arith(name: str, covers: str, signature: str, body: str, inputs: dict[str, Any], want: dict[str, Any], sections: str = "", ulp: float = 0.0, call: str = "") -> Case:
    return Case(name, covers, op(signature, body, sections, call=call), inputs, want, ulp=ulp)


F32 = np.float32
A3 = [F32(0.1), F32(1.7), F32(-3.3)]

CASES = [
    *map(casts, ALL),
    *map(stores, ("f64", "f32", "f16", "bf16")),
    Case("a cast inside an expression rounds", "a written cast rounds where it stands",
         op("%x: tensor<Nxf64> -> %y: tensor<Nxf64>, %h: tensor<Nxf64>, %b: tensor<Nxf32>", "%y[n] = f32(%x[n]) + 1 %h[n] = f64(f16(%x[n])) + %x[n] %b[n] = bf16(%x[n]) * 3"), {"x": [0.1, 1 / 3, 70000.0]},
         {"y": [float(F32(v) + F32(1)) for v in (0.1, 1 / 3, 70000.0)], "h": [rounded(v, "f16") + v for v in (0.1, 1 / 3, 70000.0)], "b": [rounded(3 * rounded(v, "bf16"), "f32") for v in (0.1, 1 / 3, 70000.0)]}),
    Case("f64 to f16 is one rounding", "f64 to f16 is one rounding", op("%x: tensor<Nxf64> -> %y: tensor<Nxf16>, %z: tensor<Nxbf16>", "%y[n] = %x[n] %z[n] = bf16(%x[n])"),
         {"x": [1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-11 - 2.0**-40, 1 + 2.0**-8 + 2.0**-40]}, {"y": [1 + 2.0**-10, 1, 1 + 2.0**-8], "z": [1, 1, 1 + 2.0**-7]}),
    # ------------------------------------------------------------------------------------------------- in which type things are computed
    arith("f16 is computed in f32", "narrow floats are computed in f32 and rounded once", "%a: tensor<Nxf16>, %b: tensor<Nxf16> -> %y: tensor<Nxf16>, %s: tensor<Nxf16>", "%y[n] = %a[n] * %b[n] / 2000 %s[n] = (%a[n] + %b[n]) - %a[n]",
          {"a": [300, 2048, 60000], "b": [300, 1, 60000]}, {"y": [45, 1.0240234375, rounded(60000 * 60000 / 2000, "f16")], "s": [300, 1, 60000]}),
    *(arith(f"{d} is computed in f32", "narrow floats are computed in f32 and rounded once", f"%a: tensor<Nx{d}>, %b: tensor<Nx{d}> -> %y: tensor<Nx{d}>, %w: tensor<Nxf32>", "%y[n] = (%a[n] + %b[n]) - %a[n] %w[n] = %a[n] * %b[n]",
            {"a": [256, 1.5, 1], "b": [1, 0.125, 0.0625]}, {"y": [1, 0.125, 0.0625], "w": [256, 0.1875, 0.0625]}) for d in ("bf16", "f8e4m3", "f8e5m2")),
    arith("f64 stays f64", "f64 stays f64", "%a: tensor<Nxf64> -> %y: tensor<Nxf64>, %s: tensor<f64>", "%y[n] = (%a[n] + 1) - 1 %s = sum[n < N](%a[n])", {"a": [2.0**-40, 2.0**-50, 1]}, {"y": [2.0**-40, 2.0**-50, 1], "s": 1 + 2.0**-40 + 2.0**-50}),
    arith("narrow integers are read as i32", "narrow integers are read as i32", "%a: tensor<Nxu8>, %b: tensor<Nxi8>, %c: tensor<Nxu16>, %d: tensor<Nxi16> -> %s: tensor<Nxi32>, %p: tensor<Nxi32>, %q: tensor<Nxi32>, %m: tensor<Nxi32>, %g: tensor<Nxbool>",
          "%s[n] = %a[n] + %a[n] + %b[n] %p[n] = %c[n] * %c[n] %q[n] = %d[n] * %d[n] - %c[n] %m[n] = %a[n] mod 7 - (%b[n] floordiv 3) %g[n] = %a[n] > %b[n] and %c[n] > %d[n]",
          {"a": [255, 200, 0], "b": [-128, 127, -1], "c": [65535, 300, 0], "d": [-32768, 32767, 5]}, {"s": [382, 527, -1], "p": [65535**2 - 2**32, 90000, 0], "q": [2**30 - 65535, 32767**2 - 300, 25], "m": [3 + 43, 4 - 42, 0 + 1], "g": [True, False, False]}),
    arith("integers wrap", "i32 and i64 wrap", "%i: tensor<Nxi32>, %l: tensor<Nxi64> -> %a: tensor<Nxi32>, %b: tensor<Nxi32>, %c: tensor<Nxi64>, %d: tensor<Nxi64>, %e: tensor<Nxi32>, %f: tensor<Nxi32>",
          "%a[n] = %i[n] + 1 %b[n] = %i[n] * %i[n] %c[n] = %l[n] - 1 %d[n] = %l[n] * 3 %e[n] = abs(%i[n]) %f[n] = -%i[n]", {"i": [2**31 - 1, -2**31, 65536], "l": [-2**63, 2**63 - 1, 5]},
          {"a": [-2**31, -2**31 + 1, 65537], "b": [1, 0, 0], "c": [2**63 - 1, 2**63 - 2, 4], "d": [-2**63, 2**63 - 3, 15], "e": [2**31 - 1, -2**31, 65536], "f": [1 - 2**31, -2**31, -65536]}),
    arith("constants wrap as they would at run time", "i32 and i64 wrap", "%i: tensor<i32> -> %a: tensor<i32>, %b: tensor<u8>, %c: tensor<u8>, %d: tensor<i32>", "%a = 2147483647 + 1 + 0 * %i %b = u8(3 - 4) %c = u8(255 + 1) %d = 65536 * 65536", {"i": 1},
          {"a": -2**31, "b": 255, "c": 0, "d": 0}),
    arith("sums of integers", "sums of integers are i32, or i64", "%u: tensor<Nxu8>, %i: tensor<Nxi32>, %l: tensor<Nxi64> -> %a: tensor<i32>, %b: tensor<i32>, %c: tensor<i64>, %p: tensor<i32>",
          "%a = sum[n < N](%u[n]) %b = sum[n < N](%i[n]) %c = sum[n < N](%l[n]) %p = prod[n < N](%u[n])", {"u": [255, 255, 255], "i": [2**31 - 1, 1, 1], "l": [2**31 - 1, 1, 2**40]}, {"a": 765, "b": -2**31 + 1, "c": 2**31 + 2**40, "p": 255**3}),
    arith("mean of integers", "mean of integers is f32, summed in i64", "%i: tensor<Nxi32>, %u: tensor<Nxu8> -> %a: tensor<f32>, %b: tensor<f32>", "%a = mean[n < N](%i[n]) %b = mean[n < N](%u[n])", {"i": [2**31 - 1, 2**31 - 1, 2], "u": [1, 2, 2]},
          {"a": 2**32 / 3, "b": 5 / 3}, ulp=1),
    arith("indices and dimensions", "indices and dimensions are i64", "%x: tensor<NxMxf32> -> %y: tensor<NxMxi64>, %z: tensor<Nxi64>", "%y[n, m] = n * 3000000000 + m %z[n] = N * 4294967296 + M", {"x": np.zeros((2, 3))},
          {"y": [[0, 1, 2], [3000000000, 3000000001, 3000000002]], "z": [2 * 2**32 + 3] * 2}),
    arith("an integer beside a float", "an integer beside f32 is f32, beside f64 f64", "%i: tensor<Nxi32>, %l: tensor<Nxi64>, %x: tensor<Nxf32>, %d: tensor<Nxf64>, %h: tensor<Nxf16> -> %a: tensor<Nxf32>, %b: tensor<Nxf64>, %c: tensor<Nxf32>, %e: tensor<Nxf64>, %f: tensor<Nxf32>",
          "%a[n] = %i[n] + %x[n] %b[n] = %i[n] + %d[n] %c[n] = %l[n] * %x[n] %e[n] = %l[n] * %d[n] %f[n] = %i[n] + %h[n]", {"i": [16777217, 3], "l": [2**40 + 1, 2], "x": [1, 0.5], "d": [1, 0.5], "h": [0, 0.5]},
          {"a": [16777216.0 + 1.0, 3.5], "b": [16777218.0, 3.5], "c": [2.0**40, 1], "e": [2.0**40 + 1, 1], "f": [16777216, 3.5]}),
    arith("f32 beside f64, i32 beside i64", "i32 beside i64 is i64, f32 beside f64 f64", "%i: tensor<Nxi32>, %l: tensor<Nxi64>, %x: tensor<Nxf32>, %d: tensor<Nxf64> -> %a: tensor<Nxi64>, %b: tensor<Nxf64>", "%a[n] = %i[n] * %l[n] %b[n] = %x[n] + %d[n]",
          {"i": [2**31 - 1], "l": [4], "x": [1], "d": [2.0**-40]}, {"a": [4 * (2**31 - 1)], "b": [1 + 2.0**-40]}),
    arith("literals", "a literal takes the type of the other side", "%x: tensor<Nxf32>, %d: tensor<Nxf64>, %l: tensor<Nxi64>, %u: tensor<Nxu8> -> %a: tensor<Nxf32>, %b: tensor<Nxf64>, %c: tensor<Nxf64>, %e: tensor<Nxi64>, %f: tensor<Nxf32>, %g: tensor<Nxi32>",
          "%a[n] = %x[n] + 16777217 %b[n] = %d[n] * 0.1 %c[n] = %d[n] + 16777217 %e[n] = %l[n] + 4294967296 %f[n] = %x[n] * 0.1 %g[n] = %u[n] + 1000", {"x": [0, 3], "d": [3, 1], "l": [1, 2], "u": [255, 0]},
          {"a": [16777216, rounded(16777216.0 + 3, "f32")], "b": [3 * 0.1, 0.1], "c": [16777220, 16777218], "e": [2**32 + 1, 2**32 + 2], "f": [0, rounded(float(F32(0.1)) * 3, "f32")], "g": [1255, 1000]}),
    arith("literals beside nothing", "a literal beside nothing typed is f32 or i32", "%x: tensor<f64> -> %a: tensor<f64>, %b: tensor<f64>, %c: tensor<i32>, %e: tensor<f64>, %f: tensor<f64>",
          "let third = 1 / 3 let tenth = 0.1 let big = 65536 * 65536 %a = third + 0 * %x %b = tenth * %x %c = 7 floordiv 2 %e = 0.1 + 0.2 %f = big * %x", {"x": 1},
          {"a": float(F32(1) / F32(3)), "b": float(F32(0.1)), "c": 3, "e": 0.1 + 0.2, "f": 0}),
    arith("constants by name", "pi, inf, nan take the type of the other side", "%x: tensor<Nxf32>, %d: tensor<Nxf64> -> %a: tensor<Nxf32>, %b: tensor<Nxf64>, %c: tensor<Nxf64>, %e: tensor<Nxbool>, %f: tensor<Nxf16>", "%a[n] = %x[n] + pi %b[n] = %d[n] + pi %c[n] = select(%d[n] > 0, -inf, nan) %e[n] = true and not false %f[n] = select(%x[n] > 0, inf, pi)",
          {"x": [0, 1], "d": [0, 1]}, {"a": [F32(pi), F32(1) + F32(pi)], "b": [pi, 1 + pi], "c": [nan, -inf], "e": [True, True], "f": [3.140625, inf]}),
    arith("an f64 attribute", "an f64 attribute is f64", "%x: tensor<Nxf32>, a: f64 = 0.1 -> %y: tensor<Nxf64>", "%y[n] = a * %x[n]", {"x": [1, 3]}, {"y": [0.1, 3 * 0.1]}),
    # ------------------------------------------------------------------------------------------------------------ quotients and powers
    arith("quotients are real", "/ of integers is a real quotient", "%i: tensor<Nxi32>, %l: tensor<Nxi64>, %u: tensor<Nxu8> -> %a: tensor<Nxf32>, %b: tensor<Nxf64>, %c: tensor<Nxf32>", "%a[n] = %i[n] / 4 %b[n] = %l[n] / 3 %c[n] = %u[n] / 0",
          {"i": [-7, 6, 0], "l": [1, -9, 2**60], "u": [0, 1, 255]}, {"a": [-1.75, 1.5, 0], "b": [1 / 3, -3, 2.0**60 / 3], "c": [nan, inf, inf]}, ulp=2),
    arith("floor quotients and rests of integers", "floor semantics of integers", "%a: tensor<Nxi32>, %b: tensor<Nxi32> -> %q: tensor<Nxi32>, %r: tensor<Nxi32>, %c: tensor<Nxi32>", "%q[n] = %a[n] floordiv %b[n] %r[n] = %a[n] mod %b[n] %c[n] = %a[n] ceildiv %b[n]",
          {"a": [7, -7, 7, -7, 6, -6, -2**31, 2**31 - 1], "b": [2, 2, -2, -2, 3, -3, 3, -5]}, {"q": [3, -4, -4, 3, 2, 2, -715827883, -429496730], "r": [1, 1, -1, -1, 0, 0, 1, -3], "c": [4, -3, -3, 4, 2, 2, -715827882, -429496729]}),
    arith("by zero and by -1", "integers by zero give 0", "%a: tensor<Nxi32>, %l: tensor<Nxi64>, %z: tensor<Nxi32> -> %q: tensor<Nxi32>, %r: tensor<Nxi32>, %c: tensor<Nxi32>, %m: tensor<Nxi32>, %s: tensor<Nxi32>, %lq: tensor<Nxi64>, %lr: tensor<Nxi64>",
          "%q[n] = %a[n] floordiv %z[n] %r[n] = %a[n] mod %z[n] %c[n] = %a[n] ceildiv %z[n] %m[n] = %a[n] floordiv (%z[n] - 1) %s[n] = %a[n] mod (%z[n] - 1) %lq[n] = %l[n] floordiv (%z[n] - 1) %lr[n] = %l[n] mod %z[n]", {"a": [5, -5, -2**31], "l": [-2**63, 3, -4], "z": [0, 0, 0]},
          {"q": [0] * 3, "r": [0] * 3, "c": [0] * 3, "m": [-5, 5, -2**31], "s": [0] * 3, "lq": [-2**63, -3, 4], "lr": [0] * 3}),
    arith("floor quotients and rests of i64", "floor semantics of integers", "%a: tensor<Nxi64>, %b: tensor<Nxi64> -> %q: tensor<Nxi64>, %r: tensor<Nxi64>, %c: tensor<Nxi64>", "%q[n] = %a[n] floordiv %b[n] %r[n] = %a[n] mod %b[n] %c[n] = %a[n] ceildiv %b[n]",
          {"a": [2**62, -2**62, -7], "b": [-7, 10**9, 2**40]}, {"q": [2**62 // -7, -2**62 // 10**9, -1], "r": [2**62 % -7, -2**62 % 10**9, 2**40 - 7], "c": [-(2**62 // 7), -(2**62 // 10**9), 0]}),
    arith("floor quotients and rests of floats", "floor semantics of floats", "%a: tensor<Nxf32>, %b: tensor<Nxf32>, %d: tensor<Nxf64> -> %q: tensor<Nxf32>, %r: tensor<Nxf32>, %e: tensor<Nxf64>, %c: tensor<Nxf32>", "%q[n] = %a[n] floordiv %b[n] %r[n] = %a[n] mod %b[n] %e[n] = %d[n] mod 1.5 %c[n] = %a[n] ceildiv %b[n]",
          {"a": [7.5, -7.5, 7.5, -7.5, 4, -1e-3, -0.5, -0.0, 0.0, -0.0], "b": [2, 2, -2, -2, 2, 1, -1.5, 2, -2, -2], "d": [-0.5, 3, 3.25, -4, 1e6, 0, 0, 0, 0, 0]},
          {"q": [3, -4, -4, 3, 2, -1, 0.0, -0.0, -0.0, 0.0], "r": [1.5, 0.5, -0.5, -1.5, 0, F32(1) - F32(1e-3), -0.5, 0.0, -0.0, -0.0], "e": [1, 0, 0.25, 0.5, 1, 0, 0, 0, 0, 0], "c": [4, -3, -3, 4, 2, 0, 1, 0, 0, 0]}),
    arith("integer powers", "** with an integer exponent is repeated multiplication", "%i: tensor<Nxi32>, %k: tensor<Nxi32>, %x: tensor<Nxf32> -> %a: tensor<Nxi32>, %b: tensor<Nxf32>, %c: tensor<Nxf32>, %d: tensor<Nxi32>, %e: tensor<Nxf32>, %f: tensor<Nxf32>",
          "%a[n] = %i[n] ** 5 %b[n] = %x[n] ** 3 %c[n] = %x[n] ** -2 %d[n] = %i[n] ** %k[n] %e[n] = %x[n] ** 0 %f[n] = %x[n] ** %k[n]", {"i": [3, -2, 100], "k": [4, 3, 5], "x": A3},
          {"a": [243, -32, 100**5 % 2**32 - (2**32 if 100**5 % 2**32 >= 2**31 else 0)], "b": [x * x * x for x in A3], "c": [F32(1) / (x * x) for x in A3], "d": [81, -8, 100**5 % 2**32 - (2**32 if 100**5 % 2**32 >= 2**31 else 0)], "e": [1, 1, 1],
           "f": [x.astype(float) ** k for x, k in zip(np.array(A3), (4, 3, 5), strict=True)]}, ulp=2),
    arith("real powers", "** with a real exponent", "%x: tensor<Nxf32>, %d: tensor<Nxf64> -> %a: tensor<Nxf32>, %b: tensor<Nxf64>, %c: tensor<Nxf32>", "%a[n] = %x[n] ** 2.5 %b[n] = %d[n] ** 0.5 %c[n] = 2.0 ** %x[n]", {"x": [4, 0.25, -1], "d": [2, 9, 0]}, {"a": [32, 0.03125, nan], "b": [2**0.5, 3, 0], "c": [16, 2**0.25, 0.5]}, ulp=4),
    # --------------------------------------------------------------------------------------------------------------- IEEE and accuracy
    arith("denormals", "denormals are kept", "%x: tensor<Nxf32>, %d: tensor<Nxf64>, %h: tensor<Nxf16> -> %a: tensor<Nxf32>, %b: tensor<Nxf64>, %c: tensor<Nxf16>", "%a[n] = %x[n] / 2 %b[n] = %d[n] * 3 %c[n] = %h[n] * 3", {"x": [1.17549435e-38, 1e-45, 2.8e-45], "d": [5e-324, 1e-310, 1], "h": [2.0**-24, 2.0**-20, 0]},
          {"a": [5.877472e-39, 0, 1.4e-45], "b": [1.5e-323, 3e-310, 3], "c": [3 * 2.0**-24, 3 * 2.0**-20, 0]}),
    arith("NaN, infinities, zeros", "NaN, infinities and signed zeros follow IEEE", "%x: tensor<Nxf32> -> %a: tensor<Nxf32>, %b: tensor<Nxf32>, %c: tensor<Nxf32>, %d: tensor<Nxf32>, %e: tensor<Nxbool>, %f: tensor<Nxbool>, %g: tensor<Nxf32>, %h: tensor<Nxf32>, %i: tensor<Nxf32>",
          "%a[n] = %x[n] - %x[n] %b[n] = %x[n] * 0 %c[n] = 1 / %x[n] %d[n] = sqrt(%x[n]) %e[n] = %x[n] == %x[n] %f[n] = %x[n] != %x[n] %g[n] = %x[n] + 0 %h[n] = 0 - %x[n] %i[n] = -%x[n]", {"x": [0.0, -0.0, inf, -inf, nan, -4]},
          {"a": [0, 0, nan, nan, nan, 0], "b": [0, -0.0, nan, nan, nan, -0.0], "c": [inf, -inf, 0, -0.0, nan, -0.25], "d": [0, -0.0, inf, nan, nan, nan], "e": [True, True, True, True, False, True], "f": [False] * 4 + [True, False], "g": [0, 0, inf, -inf, nan, -4],
           "h": [0, 0, -inf, inf, nan, 4], "i": [-0.0, 0, -inf, inf, nan, 4]}),
    arith("zeros of both signs in one expression", "NaN, infinities and signed zeros follow IEEE", "%x: tensor<Nxf32>, %d: tensor<Nxf64> -> %a: tensor<Nxf32>, %b: tensor<Nxf64>, %c: tensor<Nxf32>", "%a[n] = select(%x[n] > 0, 0.0, -0.0) %b[n] = select(%d[n] > 0, -0.0, 0.0) %c[n] = 1 / select(%x[n] > 0, -0.0, %x[n] * 0)",
          {"x": [1, -1], "d": [1, -1]}, {"a": [0.0, -0.0], "b": [-0.0, 0.0], "c": [-inf, -inf]}),
    arith("exact results stay exact", "exact results stay exact", "%x: tensor<Nxf32>, %d: tensor<Nxf64> -> %a: tensor<Nxf32>, %b: tensor<Nxf32>, %c: tensor<Nxf64>, %e: tensor<Nxf32>, %f: tensor<Nxf32>", "%a[n] = 6 / %x[n] %b[n] = sqrt(%x[n] * %x[n]) %c[n] = %d[n] / 7 %e[n] = exp2(%x[n]) %f[n] = log2(exp2(%x[n]))",
          {"x": [3, 2, 1], "d": [49, 7, 21]}, {"a": [2, 3, 6], "b": [3, 2, 1], "c": [7, 1, 3], "e": [8, 4, 2], "f": [3, 2, 1]}),
    arith("accuracy = exact", "accuracy = exact", "%a: tensor<Nxf32>, %c: tensor<Nxf32> -> %z: tensor<Nxf32>, %q: tensor<Nxf32>, %r: tensor<Nxf32>", "%z[n] = %a[n] * %a[n] - %c[n] %q[n] = %a[n] / %c[n] %r[n] = sqrt(%a[n])", {"a": [1.000244140625] * 9, "c": [1.00048828125] * 9},
          {"z": [0] * 9, "q": [F32(1.000244140625) / F32(1.00048828125)] * 9, "r": [np.sqrt(F32(1.000244140625))] * 9}, "compile { accuracy = exact }"),
    arith("accuracy = exact in a product of matrices", "accuracy = exact", "%x: tensor<MxKxf32>, %w: tensor<KxNxf32> -> %y: tensor<MxNxf32>", "%y[m, n] = sum[k < K](%x[m, k] * %w[k, n])", {"x": [[1, 1.000244140625]], "w": [[-1.00048828125] * 20, [1.000244140625] * 20]}, {"y": [[0] * 20]},
          "compile { accuracy = exact }"),
    arith("fast_math", "fast_math", "%a: tensor<Nxf32> -> %y: tensor<Nxf32>, %z: tensor<Nxf32>", "%y[n] = select(isnan(%a[n]), 0, %a[n] / 3) %z[n] = exp(%a[n])", {"a": [nan, 1, 9]}, {"y": [0, 1 / 3, 3], "z": [nan, np.exp(1.0), np.exp(9.0)]}, "compile { fast_math = true }", ulp=40),
    Case("edges round to their dtype", "edges round to their dtype",
         program("op @square(%x: tensor<NxT>) -> (%y: tensor<NxT>) { compute { %y[n] = %x[n] * %x[n] } }\nop @third(%x: tensor<NxT>) -> (%y: tensor<Nxf32>) { compute { %y[n] = %x[n] / 4 } }",
                 "%x: tensor<Nxf16>, %z: tensor<Nxbf16> -> %y: tensor<Nxf32>, %w: tensor<Nxf32>", "%s = @square(%x)\n%y = @third(%s)\n%r = @square(%z)\n%w = @third(%r)"), {"x": [300, 1.0009765625], "z": [257, 3]}, {"y": [inf, 0.25048828125], "w": [rounded(256.0 * 256, "bf16") / 4, 2.25]}),
    Case("edges = free", "edges = free",
         program("op @dot(%x: tensor<NxKxf16>) -> (%y: tensor<Nxf16>) { compile { edges = free } compute { %y[n] = sum[k < K](%x[n, k]) } }\nop @up(%x: tensor<Nxf16>) -> (%y: tensor<Nxf32>) { compute { %y[n] = %x[n] * 2 } }",
                 "%x: tensor<NxKxf16> -> %y: tensor<Nxf32>", "%s = @dot(%x)\n%y = @up(%s)"), {"x": [[1, 2, 0.5], [3, 4, 5]]}, {"y": [7, 24]}),
]
