"""Shapes, layouts, type variables, attributes: what a signature says."""
from __future__ import annotations

import numpy as np

from tests.constructs.case import Case, op, program

RNG = np.random.default_rng(21)


def whole(*shape: int) -> np.ndarray:
    """Small integers: their sums and products are exact in every float from f16 up."""
    return RNG.integers(-9, 10, shape).astype(np.float64)


X23, X32, X345, V4, V5 = whole(2, 3), whole(3, 2), whole(3, 4, 5), whole(4), whole(5)
IMAGE = np.arange(2 * 3 * 4 * 3).reshape(2, 3, 4, 3)
DOUBLE = "op @double(%x: tensor<...xT>) -> (%y: tensor<...xT>) { memory { dtypes = [f16, bf16, f32, f64] } compute { %y[...] = 2 * %x[...] } }\n"

CASES = [
    # ---------------------------------------------------------------------------------------------------------------- dimensions
    Case("integer dimensions", "integer dimension", op("%x: tensor<2x3xf32> -> %y: tensor<3x2xf32>", "%y[i, j] = %x[j, i]"), {"x": X23}, {"y": X23.T}),
    Case("symbols", ("symbol", "a symbol that recurs"), op("%a: tensor<MxKxf32>, %b: tensor<KxMxf32> -> %y: tensor<MxMxf32>", "%y[i, j] = sum[k < K](%a[i, k] * %b[k, j])"),
         {"a": X23, "b": X32}, {"y": X23 @ X32}),
    Case("a symbol in indices and values", "symbol", op("%x: tensor<NxKxf32> -> %y: tensor<NxKxf32>", "%y[n, k] = %x[N - 1 - n, K - 1 - k] + N * 10 + K"),
         {"x": X23}, {"y": X23[::-1, ::-1] + 23}),
    Case("an operator's own symbols", "symbol",
         program("op @turn(%x: tensor<HxWxf32>) -> (%y: tensor<WxHxf32>) { compute { %y[w, h] = %x[h, w] + 10 * H + W } }",
                 "%x: tensor<WxHxf32> -> %y: tensor<HxWxf32>, %z: tensor<WxHxf32>", "%y = @turn(%x)\n%z = @turn(%y)"),
         {"x": X23}, {"y": X23.T + 23, "z": X23 + 23 + 32}),
    Case("dynamic dimensions", "? dimension", op("%x: tensor<?x?xf32>, %i: tensor<Mxi32> -> %y: tensor<Mxf32>", "%y[m] = %x[%i[m], 1 - %i[m]]"),
         {"x": X23, "i": [0, 1, 1]}, {"y": [X23[0, 1], X23[1, 0], X23[1, 0]]}),
    Case("a dynamic dimension against a symbol", ("? dimension", "? against anything is checked at the call"),
         op("%x: tensor<?xf32>, %z: tensor<Nxf32> -> %y: tensor<Nxf32>", "%y[n] = %a[n] + %z[n] %a[n] = %x[n]", "memory { %x { border = constant(7) } }"),
         {"x": [1, 2], "z": [10, 20, 30]}, {"y": [11, 22, 37]}),
    Case("a dynamic dimension given where a symbol is asked", "? against anything is checked at the call",
         op("%a: tensor<Nxf32>, %b: tensor<Nxf32> -> %y: tensor<Nxf32>", "%y[n] = %a[n] + %b[n]", pipeline="%a: tensor<?xf32>, %b: tensor<Nxf32> -> %y: tensor<Nxf32>"),
         {"a": [1, 2], "b": [3, 4]}, {"y": [4, 6]}),
    Case("a dynamic dimension that differs", "? against anything is checked at the call",
         op("%a: tensor<Nxf32>, %b: tensor<Nxf32> -> %y: tensor<Nxf32>", "%y[n] = %a[n] + %b[n]", pipeline="%a: tensor<?xf32>, %b: tensor<Nxf32> -> %y: tensor<Nxf32>"),
         {"a": [1, 2, 3], "b": [3, 4]}, fails="3"),
    Case("expressions of symbols", "expression dimension",
         op("%x: tensor<HxWxf32> -> %y: tensor<(H floordiv 2)x(2 * W - 1)xf32>, %z: tensor<(H ceildiv 2)x(W mod 2 + 1)xf32>",
            "%y[h, w] = %x[2 * h + 1, w floordiv 2] %z[h, w] = %x[min(2 * h, H - 1), 0] + w", "where W >= 1"),
         {"x": np.arange(15).reshape(5, 3)}, {"y": [[3, 3, 4, 4, 5], [9, 9, 10, 10, 11]], "z": [[0, 1], [6, 7], [12, 13]]}),
    Case("(B + 1) binds B", "(B + 1) binds", op("%o: tensor<(B + 1)xi32> -> %y: tensor<Bxi32>", "%y[b] = %o[b + 1] - %o[b] + 0 * i32(B)"), {"o": [0, 3, 3, 7]}, {"y": [3, 0, 4]}),
    Case("(G * 4) and (2 * K - 1) bind", "(G * 4) binds",
         op("%x: tensor<(G * 4)xf32>, %z: tensor<(2 * K - 1)xf32> -> %y: tensor<Gxf32>, %w: tensor<Kxf32>", "%y[g] = %x[4 * g + 3] %w[k] = %z[2 * k]", "where K >= 1"),
         {"x": np.arange(8), "z": [1, 2, 3, 4, 5]}, {"y": [3, 7], "w": [1, 3, 5]}),
    Case("what does not divide", "what does not divide is a shape error", op("%x: tensor<(G * 4)xf32> -> %y: tensor<Gxf32>", "%y[g] = %x[4 * g]"), {"x": np.arange(6)}, fails="6"),
    Case("sizes 0 and 1", "a symbol may be 0", op("%x: tensor<HxWxf32> -> %y: tensor<WxHxf32>, %s: tensor<Hxf32>", "%y[w, h] = %x[h, w] %s[h] = sum[w < W](%x[h, w])"),
         {"x": np.zeros((3, 0))}, {"y": np.zeros((0, 3)), "s": np.zeros(3)}),
    Case("rank 0", "rank 0", op("%a: tensor<f32>, %b: tensor<i32> -> %y: tensor<f32>, %z: tensor<i32>", "%y = %a * 2 %t = %b + 1 %z = %t * %t"), {"a": 1.5, "b": 3}, {"y": 3.0, "z": 16}),
    # ----------------------------------------------------------------------------------------------------------------------- dots
    Case("dots first", "... first", op("%x: tensor<...xKxf32>, %g: tensor<Kxf32> -> %y: tensor<...xKxf32>", "%y[..., k] = %x[..., k] * %g[k]",
                                       pipeline="%x: tensor<AxBxKxf32>, %g: tensor<Kxf32> -> %y: tensor<AxBxKxf32>"), {"x": X345, "g": V5}, {"y": X345 * V5}),
    Case("dots in the middle", "... in the middle", op("%x: tensor<Ax...xKxf32> -> %y: tensor<Kx...xAxf32>", "%y[k, ..., a] = %x[a, ..., k]",
                                                       pipeline="%x: tensor<AxBxKxf32> -> %y: tensor<KxBxAxf32>"), {"x": X345}, {"y": X345.transpose(2, 1, 0)}),
    Case("dots last", "... last", op("%x: tensor<Nx...xf32> -> %y: tensor<...xf32>", "%y[...] = max[n < N](%x[n, ...])", pipeline="%x: tensor<NxBxKxf32> -> %y: tensor<BxKxf32>"),
         {"x": X345}, {"y": X345.max(0)}),
    Case("dots for nothing", "... for no dimension", op("%x: tensor<...xKxf32> -> %y: tensor<...xf32>", "%y[...] = sum[k < K](%x[..., k])", pipeline="%x: tensor<Kxf32> -> %y: tensor<f32>"),
         {"x": V4}, {"y": V4.sum()}),
    Case("dots for a rank of 0", "... for no dimension", program(DOUBLE, "%x: tensor<f32> -> %y: tensor<f32>", "%y = @double(%x)"), {"x": 3}, {"y": 6}),
    Case("dots alone, for several ranks", "... alone", program(DOUBLE, "%a: tensor<Nxf32>, %b: tensor<HxWxf64> -> %c: tensor<Nxf32>, %d: tensor<HxWxf64>", "%c = @double(%a)\n%d = @double(%b)"),
         {"a": V4, "b": X23}, {"c": 2 * V4, "d": 2 * X23}),
    Case("dots of two operands are the same", "... the same for every operand",
         op("%x: tensor<...xKxf32>, %w: tensor<...xf32>, %z: tensor<Lx...xf32> -> %y: tensor<...xf32>", "%y[...] = %w[...] * sum[k < K](%x[..., k]) + sum[l < L](%z[l, ...])",
            pipeline="%x: tensor<3x4xKxf32>, %w: tensor<3x4xf32>, %z: tensor<Lx3x4xf32> -> %y: tensor<3x4xf32>"),
         {"x": X345, "w": X345[:, :, 1], "z": X345.transpose(2, 0, 1)}, {"y": X345[:, :, 1] * X345.sum(2) + X345.sum(2)}),
    Case("dots reduced", "[...] reduced", op("%x: tensor<...xf32> -> %y: tensor<f32>, %z: tensor<...xf32>, %a: tensor<i32>", "%y = sum[...](%x[...]) %z[...] = %x[...] - max[...](%x[...]) %a = argmax[...](%x[...])",
                                                     pipeline="%x: tensor<AxBxf32> -> %y: tensor<f32>, %z: tensor<AxBxf32>, %a: tensor<i32>"),
         {"x": X23}, {"y": X23.sum(), "z": X23 - X23.max(), "a": X23.argmax()}),
    Case("dots of a reduction in one", "[...] reduced",
         op("%x: tensor<...xf32> -> %y: tensor<f32>, %z: tensor<...xf32>", "%y = sum[...](%x[...] * max[... where %x[...] < min[...](%x[...]) + 6](%x[...])) %z[...] = nth[...](%x[...], i64(%x[...] > 0))",
            pipeline="%x: tensor<AxBxf32> -> %y: tensor<f32>, %z: tensor<AxBxf32>"),
         {"x": [[1, 5, 9], [2, 0, -1]]}, {"y": 16 * 2, "z": [[0, 0, 0], [0, -1, -1]]}),
    Case("dots beside a range", "[...] reduced", op("%x: tensor<Nx...xf32> -> %y: tensor<Nxf32>, %m: tensor<f32>", "%y[n] = sum[...](%x[n, ...]) %m = max[n < N, ...](%x[n, ...])",
                                                    pipeline="%x: tensor<3x4x5xf32> -> %y: tensor<3xf32>, %m: tensor<f32>"), {"x": X345}, {"y": X345.sum((1, 2)), "m": X345.max()}),
    Case("dots of an index tensor", "... first", op("%t: tensor<VxFxf32>, %i: tensor<...xi32> -> %y: tensor<...xFxf32>", "%y[..., f] = %t[%i[...], f]",
                                                    pipeline="%t: tensor<VxFxf32>, %i: tensor<PxQxi32> -> %y: tensor<PxQxFxf32>"),
         {"t": X23, "i": [[0, 1, 1], [1, 0, 0]]}, {"y": X23[[[0, 1, 1], [1, 0, 0]]]}),
    # -------------------------------------------------------------------------------------------------------------------- layouts
    Case("layouts transpose", ("layout", "NHWC to NCHW is a transposition"),
         op("%x: tensor<NxHxWxCxT, NHWC> -> %y: tensor<NxCxHxWxT, NCHW>", "%y[n, c, h, w] = T(%x[n, h, w, c])", pipeline="%x: tensor<NxHxWx3xf16, NHWC> -> %y: tensor<Nx3xHxWxf16, NCHW>"),
         {"x": IMAGE}, {"y": IMAGE.transpose(0, 3, 1, 2)}),
    Case("no layout accepts any and hands it on", "without a layout any is accepted and handed on",
         program(DOUBLE + "op @rows(%x: tensor<HxWxCxf32, HWC>) -> (%y: tensor<HxCxf32>) { compute { %y[h, c] = sum[w < W](%x[h, w, c]) } }",
                 "%x: tensor<3x4x5xf32, HWC>, %z: tensor<3x4x5xf32, CHW> -> %y: tensor<3x5xf32>, %w: tensor<3x4x5xf32, CHW>",
                 "%d = @double(%x)\n%y = @rows(%d)\n%w = @double(%z)"), {"x": X345, "z": X345}, {"y": 2 * X345.sum(1), "w": 2 * X345}),
    Case("a layout of five letters", "layout", op("%x: tensor<NxCxDxHxWxf32, NCDHW> -> %y: tensor<NxDxHxWxCxf32, NDHWC>", "%y[n, d, h, w, c] = %x[n, c, d, h, w]"),
         {"x": np.arange(120).reshape(1, 2, 3, 4, 5)}, {"y": np.arange(120).reshape(1, 2, 3, 4, 5).transpose(0, 2, 3, 4, 1)}),
    # ------------------------------------------------------------------------------------------------------------- type variables
    Case("type variables", ("type variable", "dtypes constrains type variables"),
         program("op @mix(%a: tensor<NxT>, %b: tensor<NxU>) -> (%y: tensor<NxT>, %z: tensor<NxU>) { memory { dtypes = [f16, bf16, f32] } compute { %y[n] = %a[n] + %b[n] %z[n] = U(T(%a[n] / 3)) } }",
                 "%a: tensor<Nxf16>, %b: tensor<Nxbf16> -> %y: tensor<Nxf16>, %z: tensor<Nxbf16>, %u: tensor<Nxf32>, %v: tensor<Nxf16>",
                 "%y, %z = @mix(%a, %b)\n%f = @std.cast(%b) {U = f32}\n%u, %v = @mix(%f, %a)"),
         {"a": [1, 100], "b": [0.5, 3]}, {"y": [1.5, 103], "z": [0.333984375, 33.25], "u": [1.5, 103], "v": np.float16(np.float32(np.array([0.5, 3])) / np.float32(3))}),
    # ----------------------------------------------------------------------------------------------------------------- attributes
    Case("a number with a default", ("number attribute", "default of an attribute"), op("%x: tensor<Nxf32>, by: f32 = 2.5 -> %y: tensor<Nxf32>", "%y[n] = by * %x[n]"), {"x": V4}, {"y": 2.5 * V4}),
    Case("a number given", "number attribute", op("%x: tensor<Nxf32>, by: f32 -> %y: tensor<Nxf32>", "%y[n] = by * %x[n]", call="{by = -3}"), {"x": V4}, {"y": -3 * V4}),
    *(Case(f"an attribute of {d}", "attribute of every dtype", op(f"%x: tensor<Nxf64>, a: {d} = {v} -> %y: tensor<Nxf64>", f"%y[n] = %x[n] + {'select(a, 10, 20)' if d == 'bool' else 'a'}", call=call), {"x": V4}, {"y": V4 + w})
      for d, v, call, w in [("bool", "true", "", 10), ("bool", "true", "{a = false}", 20), ("u8", "200", "", 200), ("i8", "-128", "", -128), ("u16", "65535", "", 65535), ("i16", "-300", "", -300),
                            ("i32", "2147483647", "", 2147483647), ("i64", "3", "{a = 4294967296}", 4294967296), ("f16", "0.1", "", float(np.float16(0.1))), ("bf16", "0.1", "", 0.10009765625),
                            ("f32", "0.1", "", float(np.float32(0.1))), ("f64", "0.1", "", 0.1), ("f64", "1", "{a = 1.0 / f64(3)}", 1 / 3), ("f8e4m3", "0.1", "", 0.1015625), ("f8e5m2", "0.1", "", 0.09375)]),
    Case("attributes known at the call", ("attributes are expressions", "attribute of every dtype"),
         op("%x: tensor<Nxf64>, a: f64, b: i64, c: bool, d: f32, e: u8, f: f16, g: i32 -> %y: tensor<Nxf64>, %z: tensor<Nxi64>, %w: tensor<Nxf32>, %v: tensor<Nxi32>", "%y[n] = %x[n] + a %z[n] = b + n %w[n] = select(c, d, 0) + f %v[n] = e * g",
            call="{a = 1.0 / f64(N), b = N * 4294967296 - 1, c = N > 2, d = 1 / f32(N), e = 250 + N, f = 1 / f32(N), g = -N}"), {"x": [0, 1, 2]},
         {"y": [1 / 3, 4 / 3, 7 / 3], "z": [3 * 2**32 - 1, 3 * 2**32, 3 * 2**32 + 1], "w": [np.float32(1 / 3) + np.float32(np.float16(1 / 3))] * 3, "v": [-3 * 253] * 3}),
    Case("a dim attribute", ("dim attribute", "a dim attribute as a dimension"), op("%x: tensor<Nxf32>, K: dim = 2 -> %y: tensor<KxNxf32>", "%y[k, n] = %x[n] + k * K", pipeline="%x: tensor<Nxf32> -> %y: tensor<2xNxf32>"),
         {"x": V4}, {"y": [V4, V4 + 2]}),
    Case("a dim attribute given by an expression", ("dim attribute", "attributes are expressions"),
         op("%x: tensor<NxMxf32>, K: dim -> %y: tensor<NxKxf32>", "%y[n, k] = %x[n, k]", "where K <= M", pipeline="%x: tensor<NxMxf32> -> %y: tensor<Nx(M - M floordiv 3)xf32>", call="{K = M - M floordiv 3}"),
         {"x": X345[0]}, {"y": X345[0, :, :4]}),
    Case("a word attribute", ("word attribute", "a word compared"),
         program("op @f(%x: tensor<Nxf32>, how: word in [up, down, f16] = up) -> (%y: tensor<Nxf32>) { compute { %y[n] = select(how == up, %x[n] + 1, select(how != down, 7, %x[n] - 1)) } }",
                 "%x: tensor<Nxf32> -> %a: tensor<Nxf32>, %b: tensor<Nxf32>, %c: tensor<Nxf32>", "%a = @f(%x)\n%b = @f(%x) {how = down}\n%c = @f(%x) {how = f16}"),
         {"x": V4}, {"a": V4 + 1, "b": V4 - 1, "c": [7] * 4}),
    Case("a word as a border", "a word as a contract value",
         program("op @f(%x: tensor<Nxf32>, edge: word in [replicate, wrap] = replicate) -> (%y: tensor<Nxf32>) { memory { border = edge } compute { %y[n] = %x[n - 2] } }",
                 "%x: tensor<Nxf32> -> %a: tensor<Nxf32>, %b: tensor<Nxf32>", "%a = @f(%x)\n%b = @f(%x) {edge = wrap}"), {"x": [1, 2, 3, 4]}, {"a": [1, 1, 1, 2], "b": [3, 4, 1, 2]}),
    Case("a dtype attribute", ("dtype attribute", "a dtype attribute as a cast"),
         program("op @f(%x: tensor<Nxf32>, U: dtype = f32) -> (%y: tensor<NxU>, %z: tensor<Nxf32>) { compute { %y[n] = U(%x[n] * 2) %z[n] = U(%x[n] / 4) } }",
                 "%x: tensor<Nxf32> -> %a: tensor<Nxf32>, %b: tensor<Nxf32>, %c: tensor<Nxu8>, %d: tensor<Nxf32>", "%a, %b = @f(%x)\n%c, %d = @f(%x) {U = u8}"),
         {"x": [1, 2, 6, 300]}, {"a": [2, 4, 12, 600], "b": [0.25, 0.5, 1.5, 75], "c": [2, 4, 12, 255], "d": [0, 0, 1, 75]}),
    Case("attributes in a where", "where over attributes", op("%x: tensor<Nxf32>, gamma: f32 = 2.0 -> %y: tensor<Nxf32>", "%y[n] = %x[n] ** gamma", "where gamma > 0, gamma <= 4"), {"x": [1, 3]}, {"y": [1, 9]}, ulp=4),
    Case("several results", "results are named and assigned", op("%x: tensor<Nxf32> -> %a: tensor<Nxf32>, %b: tensor<i32>", "%b = i32(N) %a[n] = -%x[n]"), {"x": [1, 2]}, {"a": [-1, -2], "b": 2}),
    Case("where at the call", ("where over dimensions", "what cannot be decided is checked at the call"), op("%x: tensor<Nxf32> -> %y: tensor<(N floordiv 2)xf32>", "%y[n] = %x[2 * n + 1]", "where N mod 2 == 0"), {"x": V4}, {"y": V4[1::2]}),
    Case("where that does not hold", "what cannot be decided is checked at the call", op("%x: tensor<Nxf32> -> %y: tensor<(N floordiv 2)xf32>", "%y[n] = %x[2 * n + 1]", "where N mod 2 == 0"), {"x": V5}, fails="N = 5"),
]
