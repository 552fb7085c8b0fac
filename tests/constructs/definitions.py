"""Definitions: pieces, positions, extents, lets, locals in any order and read anywhere, lazy choices, what is proven."""
from __future__ import annotations

from math import inf, nan

import numpy as np

from tests.constructs.case import Case, loops, op
from tests.constructs.types import whole

X, Z, SQ = whole(3, 4), whole(2, 4), whole(5, 5)
V = np.array([3.0, 1, 4, 1, 5, 9, 2])


def corners() -> np.ndarray:
    want = 2 * SQ
    want[0, :], want[:, 2], want[0, 2], want[4, 4] = -1, -2, -3, -4
    return want


CASES = [
    Case("let", "let", op("%x: tensor<NxKxf32> -> %y: tensor<NxKxf32>", "%y[n, k] = %x[n, k] * scale + half let half = scale / 2 let scale = 1 / sqrt(f32(K))"), {"x": X}, {"y": X / 2 + 0.25}),
    Case("let of an integer, a bool, a reduction", "let", op("%x: tensor<Nxf32> -> %y: tensor<Nxf32>", "let top = max[n < N](%x[n]) let big = top > 8 let m = i32(N) mod 3 %y[n] = select(big, %x[n] / top + m, 0)"), {"x": V}, {"y": V / 9 + 1}, ulp=2),
    Case("order of definitions", "a definition may be read before it is written", op("%x: tensor<Nxf32> -> %y: tensor<Nxf32>, %z: tensor<Nxf32>", "%z[n] = %y[n] + %b[n] %y[n] = %a[n] - 1 %b[n] = %a[n] * %a[n] %a[n] = 2 * %x[n]"),
         {"x": V}, {"y": 2 * V - 1, "z": 2 * V - 1 + 4 * V * V}),
    Case("a result read by another", "a result read in a definition", op("%x: tensor<Nxf32> -> %a: tensor<Nxf16>, %b: tensor<Nxf32>, %c: tensor<f32>", "%a[n] = %x[n] / 3 %b[n] = %a[n] + %a[N - 1 - n] %c = sum[n < N](%b[n])"), {"x": [1, 2, 4]},
         {"a": [1 / 3, 2 / 3, 4 / 3], "b": (lambda h: h + h[::-1])(np.float16(np.float32([1, 2, 4]) / np.float32(3)).astype(np.float64)), "c": 2 * np.float16(np.float32([1, 2, 4]) / np.float32(3)).astype(np.float64).sum()}, ulp=1),
    Case("pieces", "pieces over ranges", op("%a: tensor<AxWxf32>, %b: tensor<BxWxf32>, M: dim = 2 -> %y: tensor<(A + M + B)xWxf32>", "%y[i in A + M..A + M + B, j] = %b[i - A - M, j] %y[i in A..A + M, j] = i * 100 + j %y[i in 0..A, j] = %a[i, j]",
                                            pipeline="%a: tensor<AxWxf32>, %b: tensor<BxWxf32> -> %y: tensor<(A + B + 2)xWxf32>"), {"a": X, "b": Z}, {"y": np.concatenate([X, [[300, 301, 302, 303], [400, 401, 402, 403]], Z])}),
    Case("pieces of two axes", "pieces of several axes", op("%a: tensor<AxBxf32>, %b: tensor<AxCxf32>, %c: tensor<DxBxf32>, %d: tensor<DxCxf32> -> %y: tensor<(A + D)x(B + C)xf32>",
                                                           "%y[i in A..A + D, j in B..B + C] = %d[i - A, j - B] %y[i in 0..A, j in 0..B] = %a[i, j] %y[i in 0..A, j in B..B + C] = %b[i, j - B] %y[i in A..A + D, j in 0..B] = %c[i - A, j]"),
         {"a": SQ[:2, :3], "b": SQ[:2, 3:], "c": SQ[2:, :3], "d": SQ[2:, 3:]}, {"y": SQ}),
    Case("an empty piece", "pieces over ranges", op("%a: tensor<Axf32>, %b: tensor<Bxf32> -> %y: tensor<(A + B)xf32>", "%y[i in 0..A] = %a[i] %y[i in A..A + B] = %b[i - A]"), {"a": [], "b": V}, {"y": V}),
    Case("constant positions", ("an integer binds a constant position", "a constant position wins over a range", "a general definition beside constant positions"),
         op("%x: tensor<NxNxf32> -> %y: tensor<NxNxf32>", "%y[0, 2] = -3 %y[i, j] = 2 * %x[i, j] %y[0, j] = -1 %y[i, 2] = -2 %y[4, 4] = -4", "where N == 5"), {"x": SQ}, {"y": corners()}),
    Case("a general definition is not evaluated at constant positions", "a general definition beside constant positions", op("%x: tensor<Nxf32>, %i: tensor<Nxi32> -> %y: tensor<Nxf32>", "%y[n] = %x[%i[n]] + %x[n - 1] %y[0] = %x[0]", "where N >= 1"),
         {"x": [1, 2, 3], "i": [99, 0, 1]}, {"y": [1, 2, 4]}),
    Case("constant positions of every channel", "an integer binds a constant position", op("%x: tensor<HxWxf32> -> %y: tensor<HxWx3xf32>", "%y[h, w, 0] = %x[h, w] %y[h, w, 1] = -%x[h, w] %y[h, w, 2] = h + 10 * w"), {"x": X},
         {"y": np.stack([X, -X, loops((3, 4), lambda h, w: h + 10 * w)], -1)}),
    Case("positions in a range of pieces", "a constant position wins over a range", op("%a: tensor<Axf32>, %b: tensor<Bxf32> -> %y: tensor<(A + B)xf32>", "%y[i in 0..A] = %a[i] %y[i in A..A + B] = %b[i - A] %y[1] = 100 %y[4] = 200", "where A >= 1, A + B >= 5"), {"a": [1, 2, 3], "b": [4, 5, 6]},
         {"y": [1, 100, 3, 4, 200, 6]}),
    Case("a constant position where a joined local begins anew", "a general definition beside constant positions", op("%x: tensor<Nxf32> -> %y: tensor<Nxf32>", "%l[n in 0..3] = %x[n] %l[n in 3..N] = 10 * %x[n] %y[3] = 7 %y[n < N] = %l[n] + 1", "where N >= 5"),
         {"x": [1, 2, 3, 4, 5, 6]}, {"y": [2, 3, 4, 7, 51, 61]}),
    Case("an extent that is declared", "s < 2*L+1 gives an extent", op("%x: tensor<BxLxf32> -> %y: tensor<BxLxf32>", "%e[b, s < 2*L+1] = select(s mod 2 == 0, 0, %x[b, s floordiv 2]) %y[b, l] = %e[b, 2*l] + %e[b, 2*l + 1] + %e[b, 2*l + 2] + sum[s < 2*L+1](%e[b, s])"), {"x": X},
         {"y": X + X.sum(1, keepdims=True)}),
    Case("a value that looks at its indices", "a local is defined wherever it is read", op("%x: tensor<AxBxCxf32> -> %y: tensor<AxBxCxf32>, %z: tensor<AxBxCxf32>, %w: tensor<AxBxCxf32>", "%y[a, b, c] = %x[a, b, c] + b %z[a, b, c] = select(c == 1, -1, %x[a, b, c]) + 100 * a %w[a, b, c] = %x[a, b, c] * %l[b] %l[b] = 2 * b + 1"),
         {"x": whole(2, 3, 4) * 0 + 5}, {"y": loops((2, 3, 4), lambda a, b, c: 5 + b), "z": loops((2, 3, 4), lambda a, b, c: (-1 if c == 1 else 5) + 100 * a), "w": loops((2, 3, 4), lambda a, b, c: 5 * (2 * b + 1))}),
    Case("a stored local that begins below 0", "a local is defined wherever it is read", op("%x: tensor<HxWxf32> -> %y: tensor<HxWxf32>", "%l[h, w] = sum[j < W](%x[clamp(h, 0, H - 1), j]) * w %y[h, w] = %l[h - 2, w - 1] + 10 * %l[h + 1, w]", "where H >= 1 schedule { %l { place = buffer } }"), {"x": X},
         {"y": loops((3, 4), lambda h, w: X[max(h - 2, 0)].sum() * (w - 1) + 10 * X[min(h + 1, 2)].sum() * w)}),
    Case("rank 0 locals", "a local of rank 0", op("%x: tensor<Nxf32> -> %y: tensor<Nxf32>", "%y[n] = %x[n] - %m %m = %s / N %s = sum[n < N](%x[n])"), {"x": [1, 2, 6]}, {"y": [-2, -1, 3]}),
    Case("locals read at offsets", "a local is defined wherever it is read", op("%x: tensor<Nxf32> -> %y: tensor<Nxf32>", "%y[n] = %l[n - 2] + 10 * %l[n] + 100 * %l[n + 3] %l[n] = %x[clamp(n, 0, N - 1)] + n", "where N >= 1"), {"x": V},
         {"y": [(lambda l: l(n - 2) + 10 * l(n) + 100 * l(n + 3))(lambda k: V[min(max(k, 0), 6)] + k) for n in range(7)]}),
    Case("a local read at many offsets through another", "a local is defined wherever it is read", op("%x: tensor<HxWxf32> -> %y: tensor<HxWxf32>", "%y[h, w] = sum[i < 3](%r[h + i - 1, w]) %r[h, w] = sum[j < 3](%x[h, w + j - 1])", "memory { border = constant(0) }"), {"x": X},
         {"y": np.lib.stride_tricks.sliding_window_view(np.pad(X, 1), (3, 3)).sum((2, 3))}),
    Case("a local at an index from data", "a local at an index that depends on data", op("%x: tensor<Nxf32>, %i: tensor<Mxi32> -> %y: tensor<Mxf32>", "%l[n] = %x[n] * %x[n] + n %y[m] = %l[%i[m]]"), {"x": V, "i": [6, 0, 3, 3]}, {"y": [10, 9, 4, 4]}),
    Case("a local of a reduction at an index from data", "a local at an index that depends on data", op("%x: tensor<NxKxf32>, %i: tensor<Mxi32> -> %y: tensor<Mxf32>", "%s[n] = sum[k < K](%x[n, k]) %y[m] = %s[%i[m]] - %s[0 * m]", "where N >= 1"), {"x": X, "i": [2, 1, 0, 1]}, {"y": X.sum(1)[[2, 1, 0, 1]] - X.sum(1)[0]}),
    Case("a local of two axes turned", "a local is defined wherever it is read", op("%x: tensor<HxWxf32> -> %y: tensor<WxHxf32>", "%l[h, w] = %x[h, w] * 2 + h %y[w, h] = %l[H - 1 - h, w] - %l[h, W - 1 - w]"), {"x": X},
         {"y": (lambda l: (l[::-1] - l[:, ::-1]).T)(2 * X + np.arange(3)[:, None])}),
    # -------------------------------------------------------------------------------------------------------------- lazy choices
    Case("select guards a read", "select evaluates only the branch it takes", op("%x: tensor<Nxf32> -> %y: tensor<Nxf32>, %z: tensor<Nxf32>", "%y[n] = select(n >= 1, %x[n - 1], -1) %z[n] = select(n + 2 >= N, inf, %x[n + 2])"), {"x": V},
         {"y": [-1, *V[:-1]], "z": [*V[2:], inf, inf]}),
    Case("select guards an index from data", "select evaluates only the branch it takes", op("%x: tensor<Nxf32>, %i: tensor<Mxi32> -> %y: tensor<Mxf32>", "%y[m] = select(%i[m] < 0, 0, select(%i[m] >= N, 1000, %x[%i[m]]))"), {"x": V, "i": [0, -5, 7, 6, 2**31 - 1]}, {"y": [3, 0, 1000, 2, 1000]}),
    Case("the branch not taken is not computed", "select evaluates only the branch it takes", op("%x: tensor<MxNxf32>, %m: tensor<Mxbool> -> %y: tensor<Mxi32>", "%y[m] = select(%m[m], argmax[n < N where %x[m, n] > 0](%x[m, n]), -1)"),
         {"x": [[-1, -2], [1, 3], [-3, 0]], "m": [0, 1, 0]}, {"y": [-1, 1, -1]}),
    Case("and, or stop", "and, or stop at the first decision", op("%x: tensor<Nxf32> -> %y: tensor<Nxbool>, %z: tensor<Nxbool>", "%y[n] = n >= 2 and %x[n - 2] > 2 %z[n] = n == 0 or n == N - 1 or %x[n - 1] < %x[n + 1]"), {"x": V},
         {"y": [False, False, True, False, True, False, True], "z": [True, True, False, True, True, False, True]}),
    Case("and of data guards", "and, or stop at the first decision", op("%x: tensor<Nxf32>, %i: tensor<Mxi32> -> %y: tensor<Mxbool>", "%y[m] = %i[m] >= 0 and %i[m] < N and %x[%i[m]] == 1"), {"x": V, "i": [1, -1, 100, 3, 0]}, {"y": [True, False, False, True, False]}),
    Case("a guard through a local", "a guard holds through a local", op("%x: tensor<Nxf32> -> %y: tensor<Nxf32>, %z: tensor<Nxf32>", "%l[n] = %x[n - 1] * 2 %y[n] = select(n >= 1, %l[n], 0) %first[n] = n == 0 %z[n] = select(n >= 2, %l[n - 1] + %l[n], 0)"), {"x": V},
         {"y": [0, *(2 * V[:-1])], "z": [0, 0, *(2 * V[:-2] + 2 * V[1:-1])]}),
    Case("a local whose check a guard keeps away", "a guard holds through a local", op("%x: tensor<Nxf32>, %i: tensor<Mxi32> -> %y: tensor<Mxf32>", "%l[m] = %x[%i[m]] + %x[%i[m] + 1] %y[m] = select(%i[m] >= 0 and %i[m] + 1 < N, %l[m], -7)"), {"x": V, "i": [0, -1, 6, 5]}, {"y": [4, -7, -7, 11]}),
    # ------------------------------------------------------------------------------------------------------------------- proofs
    Case("where facts", "where facts prove indices", op("%x: tensor<Nxf32>, K: dim -> %y: tensor<Kxf32>", "%y[k] = %x[k + 2] + %x[N - 1 - k]", "where N >= K + 2", pipeline="%x: tensor<Nxf32> -> %y: tensor<3xf32>", call="{K = 3}"), {"x": V}, {"y": V[2:5] + V[::-1][:3]}),
    Case("mod guards", "parity from mod guards", op("%x: tensor<Nxf32> -> %y: tensor<(2 * N)xf32>", "%y[n] = select(n mod 2 == 1, %x[(n - 1) floordiv 2], -%x[n floordiv 2])"), {"x": [1, 2]}, {"y": [-1, 1, -2, 2]}),
    Case("quotients", ("q * (X floordiv q) <= X", "p floordiv W < H from p < H*W"), op("%x: tensor<HxWxf32> -> %y: tensor<(H * W)xf32>, %z: tensor<(H floordiv 2)xWxf32>", "%y[p] = %x[p floordiv W, p mod W] %z[h, w] = max[i < 2](%x[2 * h + i, w])"), {"x": X}, {"y": X.ravel(), "z": [np.maximum(X[0], X[1])]}),
    Case("min, max, mod keep inside", "min, max, mod keep an index inside", op("%x: tensor<Nxf32> -> %y: tensor<Nxf32>, %z: tensor<Nxf32>", "%y[n] = %x[max(n - 3, 0)] + %x[min(n + 2, N - 1)] %z[n] = %x[(n + 3) mod N] - %x[(n - 1) mod N]"), {"x": V},
         {"y": V[np.maximum(np.arange(7) - 3, 0)] + V[np.minimum(np.arange(7) + 2, 6)], "z": np.roll(V, -3) - np.roll(V, 1)}),
    # ---------------------------------------------------------------------------------------------------------- indices from data
    Case("an index from data, checked", "data-dependent indices are checked", op("%x: tensor<NxKxf32>, %i: tensor<Mxi64> -> %y: tensor<MxKxf32>", "%y[m, k] = %x[%i[m], k]"), {"x": X, "i": [2, 0, 0]}, {"y": X[[2, 0, 0]]}),
    *(Case(f"the index {bad} outside", "data-dependent indices are checked", op("%x: tensor<NxKxf32>, %i: tensor<Mxi32> -> %y: tensor<MxKxf32>", "%y[m, k] = %x[%i[m], k]"), {"x": X, "i": [0, bad, 1]}, fails=str(bad)) for bad in (3, -1, 2**31 - 1)),
    Case("an index from data with a border", "data-dependent indices follow border", op("%x: tensor<Nxf32>, %i: tensor<Mxi32> -> %y: tensor<Mxf32>, %z: tensor<Mxf32>", "%y[m] = %x[%i[m]] %z[m] = %x[%i[m] - 1]", "memory { %x { border = reflect101 } }"),
         {"x": [1, 2, 3, 4], "i": [0, -1, -3, 4, 6, 7]}, {"y": [1, 2, 4, 3, 1, 2], "z": [2, 3, 3, 4, 2, 1]}),
    Case("an index from a float", "data-dependent indices are checked", op("%x: tensor<Nxf32>, %i: tensor<Mxf32> -> %y: tensor<Mxf32>", "%y[m] = %x[i32(floor(%i[m]))]"), {"x": V, "i": [0.5, 5.999, 2]}, {"y": [3, 9, 4]}),
    Case("an index of an index", "data-dependent indices are checked", op("%x: tensor<Nxf32>, %i: tensor<Mxi32> -> %y: tensor<Mxf32>", "%y[m] = %x[%i[%i[m]]]"), {"x": V, "i": [2, 0, 1]}, {"y": [1, 4, 3]}),
    Case("an empty axis read into something", "reading an empty axis into something is an error at run time", op("%x: tensor<Nxf32>, %i: tensor<Mxi32> -> %y: tensor<Mxf32>", "%y[m] = %x[%i[m]]", "memory { %x { border = replicate } }"), {"x": [], "i": [0]}, fails="0"),
    Case("an empty axis read into nothing", "reading an empty axis into something is an error at run time", op("%x: tensor<Nxf32>, %i: tensor<Mxi32> -> %y: tensor<Mxf32>", "%y[m] = %x[%i[m]]", "memory { %x { border = replicate } }"), {"x": [], "i": []}, {"y": []}),
    Case("NaN as a condition's side", "select evaluates only the branch it takes", op("%x: tensor<Nxf32> -> %y: tensor<Nxf32>", "%y[n] = select(%x[n] > 0, 1, select(%x[n] <= 0, 2, 3))"), {"x": [1, 0, -1, nan]}, {"y": [1, 2, 2, 3]}),
]
