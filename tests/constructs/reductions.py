"""Reductions: every kind, ranges, filters, bounds from data, over nothing, ranks."""
from __future__ import annotations

from math import inf, nan

import numpy as np

from tests.constructs.case import Case, op
from tests.constructs.types import whole

X = whole(3, 7)
CUBE = whole(2, 3, 4)
ROW = np.array([3, 7, 7, 1, -2, 7, 0], np.float64)
LONG = (np.arange(5000) % 13 - 6.0).reshape(2, 2500)
OFFSETS, VALUES = [0, 2, 2, 7], np.array([5, 1, 4, 4, -1, 8, 2], np.float64)
KINDS = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min, "mean": np.mean, "argmax": np.argmax, "argmin": np.argmin, "any": np.any, "all": np.all}
INDEX = ("argmax", "argmin")


def dtype_of(kind: str, dtype: str) -> str:
    if kind in INDEX:
        return "i32"
    return "bool" if kind in ("any", "all") else "f32" if kind == "mean" and dtype != "f64" else dtype


def simple(kind: str, dtype: str) -> Case:
    """Along the last, the first, the middle axis and over all."""
    body = "{} > 2" if kind in ("any", "all") else "{}"
    x = np.where(CUBE > 0, 2, -1) if kind == "prod" else CUBE
    data = x > 2 if kind in ("any", "all") else x
    out = dtype_of(kind, dtype)
    text = op(f"%x: tensor<AxBxCx{dtype}> -> %a: tensor<AxBx{out}>, %b: tensor<BxCx{out}>, %c: tensor<AxCx{out}>, %d: tensor<{out}>",
              f"%a[a, b] = {kind}[c < C]({body.format('%x[a, b, c]')}) %b[b, c] = {kind}[a < A]({body.format('%x[a, b, c]')}) %c[a, c] = {kind}[b < B]({body.format('%x[a, b, c]')}) "
              f"%d = {kind}[a < A, b < B, c < C]({body.format('%x[a, b, c]')})")
    f = KINDS[kind]
    return Case(f"{kind} of {dtype}", kind, text, {"x": x}, {"a": f(data, 2), "b": f(data, 0), "c": f(data, 1), "d": f(data)}, ulp=2)


def nothing(kind: str, sections: str, want: object, dtype: str = "f32", covers: str | tuple[str, ...] = "a reduction over nothing") -> list[Case]:
    """An empty extent and a filter that nothing passes."""
    out = dtype_of(kind, dtype)
    body = "%x[n, k] > 0" if kind in ("any", "all") else "%x[n, k]"
    rank = ", 0" if kind == "nth" else ""
    fails = f"'{kind}'" if want == "error" else ""
    text = op(f"%x: tensor<NxKx{dtype}>, %m: tensor<NxKxbool> -> %y: tensor<Nx{out}>", f"%y[n] = {kind}[k < K where %m[n, k]]({body}{rank})", sections)
    plain = op(f"%x: tensor<NxKx{dtype}> -> %y: tensor<Nx{out}>", f"%y[n] = {kind}[k < K]({body}{rank})", sections)
    name = f"{kind} of {dtype} over nothing {sections}"
    return [Case(name + " (filter)", covers, text, {"x": [[5, 6]] * 2, "m": np.zeros((2, 2))}, {} if fails else {"y": [want] * 2}, fails=fails),
            Case(name + " (extent)", covers, plain, {"x": np.zeros((2, 0))}, {} if fails else {"y": [want] * 2}, fails=fails)]


EMPTY = {"sum": 0, "prod": 1, "max": -inf, "min": inf, "mean": nan, "any": False, "all": True, "argmax": "error", "argmin": "error", "nth": "error"}
ZERO, NAN = "semantic { empty = zero }", "semantic { empty = nan }"

CASES = [
    *(simple(k, d) for k in KINDS for d in ("f32", "f64", "i32", "i64") if not (k in ("mean",) and d == "i64")),
    *(simple(k, d) for k in ("max", "argmin", "sum", "mean") for d in ("f16", "bf16", "i8") if not (k == "sum" and d == "i8") and not (k == "max" and d == "i8") and not (k in ("sum", "mean") and d == "bf16")),
    Case("sums of many", "sum", op("%x: tensor<NxKxf32> -> %y: tensor<Nxf32>, %z: tensor<Kxf32>, %a: tensor<f32>", "%y[n] = sum[k < K](%x[n, k]) %z[k] = sum[n < N](%x[n, k]) %a = sum[n < N, k < K](%x[n, k])"), {"x": LONG}, {"y": LONG.sum(1), "z": LONG.sum(0), "a": LONG.sum()}),
    Case("long sums stay accurate", "sum", op("%x: tensor<Kxf32> -> %y: tensor<f32>, %m: tensor<f32>", "%y = sum[k < K](%x[k]) %m = mean[k < K](%x[k])"), {"x": [0.1] * 60000}, {"y": 60000 * float(np.float32(0.1)), "m": float(np.float32(0.1))}, ulp=20),
    # -------------------------------------------------------------------------------------------------------------------- ranges
    Case("one range", "[k < K]", op("%x: tensor<NxKxf32> -> %y: tensor<Nxf32>", "%y[n] = sum[k < K](%x[n, k])"), {"x": X}, {"y": X.sum(1)}),
    Case("several ranges", "several ranges", op("%x: tensor<AxBxCxf32> -> %y: tensor<Axf32>, %z: tensor<Axi32>, %w: tensor<Axi32>", "%y[a] = max[b < B, c < C](%x[a, b, c]) %z[a] = argmax[b < B, c < C](%x[a, b, c]) %w[a] = argmin[c < C, b < B](%x[a, b, c])"), {"x": CUBE},
         {"y": CUBE.max((1, 2)), "z": CUBE.reshape(2, 12).argmax(1), "w": CUBE.transpose(0, 2, 1).reshape(2, 12).argmin(1)}),
    Case("a half-open range", "[j in a..b]", op("%x: tensor<Kxf32> -> %y: tensor<f32>, %z: tensor<f32>, %e: tensor<f32>", "%y = sum[k in 2..5](%x[k]) %z = min[k in 1..K - 1](%x[k]) %e = sum[k in 3..3](%x[k])", "where K >= 5"), {"x": ROW}, {"y": 6, "z": -2, "e": 0}),
    Case("a range that depends on an index", "[j in a..b]", op("%x: tensor<NxNxf32> -> %y: tensor<Nxf32>, %z: tensor<f32>", "%y[n] = sum[m in n..N](%x[n, m]) %z = sum[i < N, j in 0..i + 1](%x[i, j])"), {"x": X[:, :3]}, {"y": np.triu(X[:, :3]).sum(1), "z": np.tril(X[:, :3]).sum()}),
    Case("a window", "several ranges", op("%x: tensor<HxWxf32> -> %y: tensor<(H - 2)x(W - 2)xf32>", "%y[h, w] = max[dy < 3, dx < 3](%x[h + dy, w + dx])", "where H >= 3, W >= 3 memory { padding = valid }"), {"x": X}, {"y": np.lib.stride_tricks.sliding_window_view(X, (3, 3)).max((2, 3))}),
    Case("bounds from data", "bounds from data", op("%v: tensor<Nxf32>, %o: tensor<(B + 1)xi32> -> %s: tensor<Bxf32>, %m: tensor<Bxf32>, %a: tensor<Bxi32>, %c: tensor<Bxi32>, %t: tensor<Bxf32>",
                                                    "%s[b] = sum[n in %o[b]..%o[b + 1]](%v[n]) %m[b] = max[n in %o[b]..%o[b + 1]](%v[n]) %a[b] = argmax[n in %o[b]..%o[b + 1]](%v[n]) %c[b] = sum[n in %o[b]..%o[b + 1]](1) %t[b] = nth[n in %o[b]..%o[b + 1]](%v[n], -1)", ZERO),
         {"v": VALUES, "o": OFFSETS}, {"s": [6, 0, 17], "m": [5, 0, 8], "a": [0, 0, 5], "c": [2, 0, 5], "t": [5, 0, 8]}),
    Case("bounds from data outside", "bounds from data", op("%v: tensor<Nxf32>, %o: tensor<(B + 1)xi32> -> %s: tensor<Bxf32>", "%s[b] = sum[n in %o[b]..%o[b + 1]](%v[n])"), {"v": VALUES, "o": [0, 3, 9]}, fails="7"),
    Case("a bound given by another reduction's index", "bounds from data", op("%o: tensor<(B + 1)xi32> -> %c: tensor<Bxi32>", "%c[b] = sum[n in %o[b]..%o[b + 1], m in %o[b]..n](1)"), {"o": [0, 4, 4, 10]}, {"c": [6, 0, 15]}),
    # ------------------------------------------------------------------------------------------------------------------- filters
    Case("filters", "a filter", op("%x: tensor<NxKxf32>, %m: tensor<NxKxbool> -> %s: tensor<Nxf32>, %p: tensor<Nxf32>, %h: tensor<Nxf32>, %l: tensor<Nxf32>, %a: tensor<Nxf32>, %e: tensor<Nxbool>, %f: tensor<Nxbool>, %i: tensor<Nxi32>, %c: tensor<Nxi32>",
                                   "%s[n] = sum[k < K where %m[n, k]](%x[n, k]) %p[n] = prod[k < K where %m[n, k] and k < 3](%x[n, k]) %h[n] = max[k < K where not %m[n, k]](%x[n, k]) %l[n] = min[k < K where %m[n, k]](%x[n, k]) %a[n] = mean[k < K where %m[n, k]](%x[n, k]) "
                                   "%e[n] = any[k < K where %m[n, k]](%x[n, k] > 6) %f[n] = all[k < K where %m[n, k]](%x[n, k] > 0) %i[n] = argmax[k < K where %m[n, k]](%x[n, k]) %c[n] = sum[k < K where %m[n, k]](1)"),
         {"x": [ROW, -ROW], "m": [[0, 1, 1, 0, 1, 1, 0], [1, 0, 0, 1, 0, 0, 1]]}, {"s": [19, -4], "p": [49, -3], "h": [3, 2], "l": [-2, -3], "a": [4.75, -4 / 3], "e": [True, False], "f": [False, False], "i": [1, 6], "c": [4, 3]}, ulp=1),
    Case("a filter over two indices", "a filter", op("%x: tensor<HxWxf32> -> %y: tensor<f32>, %i: tensor<i32>", "%y = sum[h < H, w < W where (h + w) mod 2 == 0](%x[h, w]) %i = argmin[h < H, w < W where %x[h, w] > 0](%x[h, w])"), {"x": X[:2, :3]},
         {"y": X[0, 0] + X[0, 2] + X[1, 1], "i": np.where(X[:2, :3] > 0, X[:2, :3], 99).argmin()}),
    Case("a filter keeps checks away", "a filter", op("%x: tensor<Kxf32>, %i: tensor<Kxi32> -> %y: tensor<f32>, %z: tensor<f32>", "%y = sum[k < K where %i[k] >= 0 and %i[k] < K](%x[%i[k]]) %z = max[k < K where k >= 1](%x[k - 1])"), {"x": [1, nan, 3], "i": [0, 77, 2]}, {"y": 4, "z": nan}),
    Case("what a filter drops may be NaN", "a filter", op("%x: tensor<Kxf32> -> %y: tensor<f32>, %z: tensor<f32>, %p: tensor<f32>, %a: tensor<f32>", "%y = sum[k < K where not isnan(%x[k])](%x[k]) %z = max[k < K where not isnan(%x[k])](%x[k]) %p = prod[k < K where %x[k] < 100](%x[k]) %a = mean[k < K where not isnan(%x[k]) and not isinf(%x[k])](%x[k])"),
         {"x": [1, nan, inf, 3]}, {"y": inf, "z": inf, "p": 3, "a": 2}),
    # ------------------------------------------------------------------------------------------------------- what wins, which index
    Case("NaN wins, the first of equals", ("argmax", "argmin", "max", "min"), op("%x: tensor<NxKxf32> -> %a: tensor<Nxi32>, %b: tensor<Nxi32>, %c: tensor<Nxf32>, %d: tensor<Nxf32>", "%a[n] = argmax[k < K](%x[n, k]) %b[n] = argmin[k < K](%x[n, k]) %c[n] = max[k < K](%x[n, k]) %d[n] = min[k < K](%x[n, k])"),
         {"x": [[1, nan, 9, nan], [3, 7, 7, 1], [nan, -inf, 0, 0], [5, 5, 5, 5], [inf, -inf, inf, -inf]]}, {"a": [1, 1, 0, 0, 0], "b": [1, 3, 0, 0, 1], "c": [nan, 7, nan, 5, inf], "d": [nan, 1, nan, 5, -inf]}),
    Case("the first of a thousand equals", "argmax", op("%x: tensor<Nxf32> -> %a: tensor<i32>, %b: tensor<i32>, %c: tensor<i32>", "%a = argmax[n < N](%x[n]) %b = argmin[n < N](%x[n]) %c = argmax[n in 3..N](-%x[n])", "where N >= 4"), {"x": [4.0] * 1000}, {"a": 0, "b": 0, "c": 3}),
    Case("the index of one range", "argmax over one index gives the index", op("%x: tensor<Nxf32> -> %a: tensor<i32>, %b: tensor<i32>", "%a = argmax[n in 2..N](%x[n]) %b = argmin[n in 1..4](%x[n])", "where N >= 4"), {"x": [9, 8, 1, 3, 3]}, {"a": 3, "b": 2}),
    Case("the flat position in several ranges", "argmax over several indices gives the flat position", op("%x: tensor<HxWxf32> -> %a: tensor<i32>, %b: tensor<i32>", "%a = argmax[h in 1..H, w in 2..5](%x[h, w]) %b = argmin[h in 1..3, w < W where w != 3](%x[h, w])", "where H >= 3, W >= 5"), {"x": X},
         {"a": X[1:, 2:5].argmax(), "b": np.where(np.arange(7) == 3, 99, X[1:3]).argmin()}),
    Case("a filter does not renumber", "a filter does not renumber", op("%x: tensor<Nxf32> -> %a: tensor<i32>, %b: tensor<i32>", "%a = argmax[n < N where %x[n] < 7](%x[n]) %b = argnth[n < N where %x[n] < 7](%x[n], 0)"), {"x": ROW}, {"a": 0, "b": 4}),
    # -------------------------------------------------------------------------------------------------------------- over nothing
    *(c for k, w in EMPTY.items() for c in nothing(k, "", w)),
    *(c for k in EMPTY for c in nothing(k, ZERO, EMPTY[k] if k in ("sum", "prod", "any", "all") else 0, covers=("a reduction over nothing", "empty = zero"))),
    *(c for k in EMPTY if k not in (*INDEX, "nth") for c in nothing(k, NAN, EMPTY[k] if k in ("sum", "prod", "any", "all") else nan, covers=("a reduction over nothing", "empty = nan"))),
    *(c for k, w in (("max", -2**31), ("min", 2**31 - 1), ("sum", 0), ("prod", 1), ("nth", "error")) for c in nothing(k, "", w, "i32")),
    *(c for k, w in (("max", -2**63), ("min", 2**63 - 1)) for c in nothing(k, "", w, "i64")),
    Case("lowest and highest of narrow integers", "lowest and highest are those of i32", op("%x: tensor<Nxu8> -> %a: tensor<i32>, %b: tensor<i32>", "%a = max[n < N](%x[n]) %b = min[n < N](%x[n])"), {"x": []}, {"a": -2**31, "b": 2**31 - 1}),
    Case("a masked softmax", "empty = zero", op("%x: tensor<NxKxf32>, %m: tensor<NxKxbool> -> %y: tensor<NxKxf32>", "%t[n] = max[k < K where %m[n, k]](%x[n, k]) %s[n] = sum[k < K where %m[n, k]](exp(%x[n, k] - %t[n])) %y[n, k] = select(%m[n, k], exp(%x[n, k] - %t[n]) / %s[n], 0)", ZERO),
         {"x": [[0, 0, 9], [1000, -1000, 5], [1, 2, 3]], "m": [[1, 1, 0], [1, 1, 0], [0, 0, 0]]}, {"y": [[0.5, 0.5, 0], [1, 0, 0], [0, 0, 0]]}),
    # --------------------------------------------------------------------------------------------------------------------- ranks
    Case("ranks", ("nth", "argnth", "a negative rank"), op("%x: tensor<NxKxf32> -> %a: tensor<Nxf32>, %b: tensor<Nxf32>, %c: tensor<Nxf32>, %d: tensor<Nxi32>, %e: tensor<Nxi32>", "%a[n] = nth[k < K](%x[n, k], 0) %b[n] = nth[k < K](%x[n, k], -1) %c[n] = nth[k < K](%x[n, k], K floordiv 2) %d[n] = argnth[k < K](%x[n, k], 1) %e[n] = argnth[k < K](%x[n, k], -2)", "where K >= 2"),
         {"x": X}, {"a": X.min(1), "b": X.max(1), "c": np.sort(X, 1)[:, 3], "d": np.argsort(X, 1, kind="stable")[:, 1], "e": np.argsort(X, 1, kind="stable")[:, -2]}),
    Case("constant negative ranks of a short window", "a negative rank", op("%x: tensor<NxKxf32> -> %a: tensor<Nxf32>, %b: tensor<Nxf32>, %c: tensor<Nxi32>, %d: tensor<Nxi32>", "%a[n] = nth[k < 7](%x[n, k], -1) %b[n] = nth[k < 7](%x[n, k], -3) %c[n] = argnth[k < 7](%x[n, k], -7) %d[n] = argnth[k < 7](%x[n, k], -2)", "where K == 7"),
         {"x": X}, {"a": X.max(1), "b": np.sort(X, 1)[:, -3], "c": np.argsort(X, 1, kind="stable")[:, 0], "d": np.argsort(X, 1, kind="stable")[:, -2]}),
    Case("a median of nine", "nth", op("%x: tensor<HxWxf32> -> %y: tensor<HxWxf32>, %z: tensor<HxWxi32>", "%y[h, w] = nth[i < 3, j < 3](%x[h + i - 1, w + j - 1], 4) %z[h, w] = argnth[i < 3, j < 3](%x[h + i - 1, w + j - 1], 4)", "memory { border = replicate }"), {"x": X},
         {"y": np.median(np.lib.stride_tricks.sliding_window_view(np.pad(X, 1, "edge"), (3, 3)).reshape(3, 7, 9), -1), "z": np.argsort(np.lib.stride_tricks.sliding_window_view(np.pad(X, 1, "edge"), (3, 3)).reshape(3, 7, 9), -1, kind="stable")[..., 4]}),
    Case("NaN last, ties by index", "NaN last, ties by index", op("%x: tensor<NxKxf32> -> %y: tensor<NxKxf32>, %a: tensor<NxKxi32>, %s: tensor<Nx5xi32>, %t: tensor<Nx5xf32>",
                                                                   "%y[n, r] = nth[k < K](%x[n, k], r) %a[n, r] = argnth[k < K](%x[n, k], r) " + " ".join(f"%s[n, {r}] = argnth[k < 5](%x[n, k], {r}) %t[n, {r}] = nth[k < 5](%x[n, k], {r})" for r in range(5)), "where K == 5"),
         {"x": [[2, nan, 1, 2, nan], [nan, nan, inf, -inf, 0], [3, 3, 3, 3, 3]]}, {k: v for y, a in [([[1, 2, 2, nan, nan], [-inf, 0, inf, nan, nan], [3] * 5], [[2, 0, 3, 1, 4], [3, 4, 2, 0, 1], [0, 1, 2, 3, 4]])] for k, v in (("y", y), ("a", a), ("s", a), ("t", y))}),
    Case("a rank from data, one among the filtered", "a rank counts what passes the filter", op("%x: tensor<Kxi32>, %r: tensor<Rxi32> -> %y: tensor<Rxi32>, %z: tensor<Rxi32>", "%y[r] = nth[k < K where %x[k] > 0](%x[k], %r[r]) %z[r] = argnth[k < K where %x[k] > 0](%x[k], %r[r])"), {"x": [3, -1, 2, 2, -5], "r": [0, 1, 2, -1, -3]}, {"y": [2, 2, 3, 3, 2], "z": [2, 3, 0, 0, 2]}),
    *(Case(f"the rank {r} of three", "a rank beyond the count is a reduction over nothing", op("%x: tensor<Kxf32>, %r: tensor<Rxi32> -> %y: tensor<Rxf32>, %z: tensor<Rxi32>", "%y[r] = nth[k < K](%x[k], %r[r]) %z[r] = argnth[k < K](%x[k], %r[r])"), {"x": [3, 1, 2], "r": [0, r]}, fails="nth") for r in (3, -4)),
    Case("a rank beyond the count, empty = zero", "a rank beyond the count is a reduction over nothing", op("%x: tensor<Kxf32>, %r: tensor<Rxi32> -> %y: tensor<Rxf32>, %z: tensor<Rxi32>", "%y[r] = nth[k < K](%x[k], %r[r]) %z[r] = argnth[k < K](%x[k], %r[r])", ZERO), {"x": [3, 1, 2], "r": [2, 3, -3, -4]}, {"y": [3, 0, 1, 0], "z": [0, 0, 1, 0]}),
    Case("ranks of integers", "nth", op("%x: tensor<Kxu8>, %l: tensor<Kxi64> -> %y: tensor<i32>, %z: tensor<i64>", "%y = nth[k < K](%x[k], 2) %z = nth[k < 4](%l[k], 1)", "where K == 4"),
         {"x": [200, 7, 255, 100], "l": [2**40, -2**40, 5, 6]}, {"y": 200, "z": 5}),
    Case("a reduction in a reduction", "a reduction within one", op("%x: tensor<AxBxCxf32> -> %y: tensor<Axf32>, %z: tensor<f32>", "%y[a] = sum[b < B](%x[a, b, 0] * max[c < C](%x[a, b, c])) %z = max[a < A](sum[b < B where %x[a, b, 0] > min[c < C](%x[a, b, c])](1.0))", "where C >= 1"), {"x": CUBE},
         {"y": (CUBE[:, :, 0] * CUBE.max(2)).sum(1), "z": (CUBE[:, :, 0] > CUBE.min(2)).sum(1).max()}),
    Case("a contraction", "several ranges", op("%a: tensor<MxKxf32>, %b: tensor<KxNxf32>, %c: tensor<Nxf32> -> %y: tensor<MxNxf32>", "%y[m, n] = sum[k < K](%a[m, k] * %b[k, n]) + %c[n]"), {"a": X, "b": X.T, "c": [1, 2, 3]}, {"y": X @ X.T + [1, 2, 3]}),
]
