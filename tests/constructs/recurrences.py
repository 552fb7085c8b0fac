"""Recurrences: directions, base cases, lags, through locals, mutual, across the other axes."""
from __future__ import annotations

import numpy as np

from tests.constructs.case import Case, op
from tests.constructs.types import whole

X, S = whole(6, 3), np.clip(whole(5), -2, 2)


def run(shape: tuple[int, ...], base: dict[int, object], step: object, order: range, x: np.ndarray) -> np.ndarray:
    """A table filled in order."""
    out = np.zeros(shape)
    for t in order:
        out[t] = base[t] if t in base else step(out, x, t)  # type: ignore[operator]
    return out


def holt() -> tuple[np.ndarray, np.ndarray]:
    level, trend = X.copy(), np.zeros_like(X)
    for t in range(1, 6):
        guess = level[t - 1] + trend[t - 1]
        level[t] = 0.5 * X[t] + 0.5 * guess
        trend[t] = level[t] - level[t - 1]
    return level, trend


def across() -> np.ndarray:
    out = X.copy()
    for t in range(1, 6):
        out[t] = X[t] + np.maximum(out[t - 1], np.concatenate([[-100], out[t - 1, :-1]]))
    return out


UP = "%y[0, c] = %x[0, c] %y[t < T, c] = {} "
W = "where T >= 1"
FIB = [1, 1, 2, 3, 5, 8, 13, 21]
CASES = [
    Case("upwards", "a recurrence upwards", op("%x: tensor<TxCxf32> -> %y: tensor<TxCxf32>", UP.format("%y[t-1, c] + %x[t, c]"), W), {"x": X}, {"y": X.cumsum(0)}),
    Case("downwards", "a recurrence downwards", op("%x: tensor<TxCxf32> -> %y: tensor<TxCxf32>", "%y[t in 0..T-1, c] = %x[t, c] - %y[t+1, c] %y[t in T-1..T, c] = %x[t, c]", W), {"x": X},
         {"y": run((6, 3), {5: X[5]}, lambda y, x, t: x[t] - y[t + 1], range(5, -1, -1), X)}),
    Case("along the last axis", "a recurrence upwards", op("%x: tensor<CxTxf32> -> %y: tensor<CxTxf32>", "%y[c, 0] = 2 * %x[c, 0] %y[c, t < T] = %x[c, t] + 0.5 * %y[c, t-1]", W), {"x": X.T}, {"y": run((6, 3), {0: 2 * X[0]}, lambda y, x, t: x[t] + 0.5 * y[t - 1], range(6), X).T}),
    Case("along the middle axis", "a recurrence upwards", op("%x: tensor<AxTxCxf32> -> %y: tensor<AxTxCxf32>", "%y[a, 0, c] = %x[a, 0, c] %y[a, t < T, c] = %y[a, t-1, c] * 2 - %x[a, t, c]", W), {"x": np.stack([X, X + 1])},
         {"y": np.stack([run((6, 3), {0: x[0]}, lambda y, x, t: 2 * y[t - 1] - x[t], range(6), x) for x in (X, X + 1)])}),
    Case("of one axis", "a recurrence upwards", op("%x: tensor<Txf32> -> %y: tensor<Txf32>, %l: tensor<f32>", "%y[0] = %x[0] %y[t < T] = max(%y[t-1], %x[t]) %l = %y[T-1]", W), {"x": S}, {"y": np.maximum.accumulate(S), "l": S.max()}),
    Case("of length one", "a recurrence upwards", op("%x: tensor<TxCxf32> -> %y: tensor<TxCxf32>", UP.format("%y[t-1, c] + %x[t, c]"), W), {"x": X[:1]}, {"y": X[:1]}),
    Case("a range on the left side", "a recurrence upwards", op("%x: tensor<Txf32> -> %y: tensor<Txf32>", "%y[t in 1..T] = %y[t-1] + %x[t] %y[t in 0..1] = %x[t]", W), {"x": S}, {"y": S.cumsum()}),
    Case("two base cases", ("two base cases", "several lags"), op("%n: tensor<Tx1xf32> -> %f: tensor<Txi32>, %g: tensor<Txf64>", "%f[0] = 1 %f[1] = 1 %f[t < T] = %f[t-1] + %f[t-2] %g[t < T] = %g[t-2] * 2 + %n[t, 0] %g[0] = 1 %g[1] = -1", "where T >= 2"), {"n": np.zeros((8, 1))}, {"f": FIB, "g": [1, -1, 2, -2, 4, -4, 8, -8]}),
    Case("lags of one and three", "several lags", op("%x: tensor<Txf32> -> %y: tensor<Txf32>", "%y[0] = 1 %y[1] = 2 %y[2] = 3 %y[t < T] = %y[t-3] - %y[t-1] + %x[t]", "where T >= 3"), {"x": np.arange(7)}, {"y": (lambda y: [y.append(y[t - 3] - y[t - 1] + t) for t in range(3, 7)] and y)([1, 2, 3])}),
    Case("through a local", ("through locals", "mutual recurrences"), op("%x: tensor<TxCxf32> -> %l: tensor<TxCxf32>, %b: tensor<TxCxf32>", "%l[0, c] = %x[0, c] %b[0, c] = 0 %g[t, c] = %l[t-1, c] + %b[t-1, c] %l[t < T, c] = 0.5 * %x[t, c] + 0.5 * %g[t, c] %b[t < T, c] = %l[t, c] - %l[t-1, c]", W), {"x": X},
         dict(zip("lb", holt(), strict=True))),
    Case("a local after another", "through locals", op("%x: tensor<Txf32> -> %y: tensor<Txf32>", "%y[0] = %x[0] %p[t] = %q[t] * 2 %q[t] = %y[t-1] + 1 %y[t < T] = %p[t] - %x[t]", W), {"x": S}, {"y": run((5,), {0: S[0]}, lambda y, x, t: 2 * (y[t - 1] + 1) - x[t], range(5), S)}),
    Case("mutual, over different extents", "mutual recurrences", op("%x: tensor<TxCxf32>, %s: tensor<TxDxf32> -> %y: tensor<TxCxf32>, %z: tensor<TxDxf32>", "%y[0, c] = %x[0, c] %z[0, d] = %s[0, d] %y[t < T, c] = %x[t, c] + sum[d < D](%z[t-1, d]) %z[t < T, d] = %s[t, d] - max[c < C](%y[t-1, c])", W),
         {"x": X[:4], "s": X[:4, :2]}, (lambda r: {"y": r[0], "z": r[1]})((lambda y, z: ([(y.__setitem__(t, X[t] + z[t - 1].sum()), z.__setitem__(t, X[t, :2] - y[t - 1].max())) for t in range(1, 4)] and (y, z)))(X[:4].copy(), X[:4, :2].copy()))),
    Case("one reads the other's present step", "mutual recurrences", op("%x: tensor<Txf32> -> %b: tensor<Txf32>, %a: tensor<Txf32>", "%b[0] = 0 %b[t < T] = %b[t-1] + %a[t] %a[0] = %x[0] %a[t < T] = %x[t] - %a[t-1]", W), {"x": S},
         (lambda a: {"a": a, "b": np.concatenate([[0], a[1:].cumsum()])})(run((5,), {0: S[0]}, lambda y, x, t: x[t] - y[t - 1], range(5), S))),
    Case("across the row", "a wavefront lag", op("%x: tensor<TxSxf32> -> %y: tensor<TxSxf32>", "%y[0, s] = %x[0, s] %y[t < T, s] = %x[t, s] + max(%y[t-1, s], select(s >= 1, %y[t-1, s-1], -100))", W), {"x": X}, {"y": across()}),
    Case("along a diagonal", "a wavefront lag", op("%x: tensor<TxSxf32> -> %a: tensor<TxSxf32>", "%a[0, s] = %x[0, s] %a[0, 0] = %x[0, 0] %a[t < T, 0] = 7 %a[t < T, s] = %a[t-1, s-1] + %x[t, s]", "where T >= 1, S >= 1"), {"x": X},
         {"a": (lambda a: [a.__setitem__((t, s), 7 if s == 0 else a[t - 1, s - 1] + X[t, s]) for t in range(1, 6) for s in range(3)] and a)(X.copy())}),
    Case("time warping", "a wavefront lag", op("%x: tensor<TxSxf32> -> %a: tensor<TxSxf32>", "%a[0, 0] = %x[0, 0] %a[0, s] = %r[s] %r[0] = %x[0, 0] %r[s < S] = %r[s-1] + %x[0, s] %a[t < T, s] = %x[t, s] + min(%a[t-1, s], select(s >= 1, %a[t-1, s-1], inf))", "where T >= 1, S >= 1"), {"x": X},
         {"a": (lambda a: [a.__setitem__(t, X[t] + np.minimum(a[t - 1], np.concatenate([[np.inf], a[t - 1, :-1]]))) for t in range(1, 6)] and a)(np.concatenate([[X[0].cumsum()], X[1:]]))}),
    Case("bounds of a state from data", "a wavefront lag", op("%x: tensor<TxSxf32>, %k: tensor<Txi32> -> %y: tensor<TxSxf32>", "%y[0, s] = %x[0, s] %y[t < T, s] = %x[t, s] + %y[t-1, clamp(s + %k[t], 0, S - 1)]", "where T >= 1, S >= 1"), {"x": X, "k": [0, 1, -1, 2, 0, -2]},
         {"y": run((6, 3), {0: X[0]}, lambda y, x, t: x[t] + y[t - 1, np.clip(np.arange(3) + [0, 1, -1, 2, 0, -2][t], 0, 2)], range(6), X)}),
    Case("a local recurrence, read at its end and from data", "a recurrence in a local", op("%x: tensor<TxCxf32>, %i: tensor<Mxi32> -> %y: tensor<Cxf32>, %z: tensor<Mxf32>", "%s[0, c] = %x[0, c] %s[t < T, c] = %s[t-1, c] + %x[t, c] %y[c] = %s[T-1, c] %z[m] = %s[%i[m], 0]", "where T >= 1, C >= 1"), {"x": X, "i": [5, 0, 2]}, {"y": X.sum(0), "z": X.cumsum(0)[[5, 0, 2], 0]}),
    Case("resets from data", "a recurrence upwards", op("%x: tensor<TxCxf32>, %r: tensor<Txbool> -> %y: tensor<TxCxf32>, %n: tensor<Txi32>", UP.format("%x[t, c] + select(%r[t], 0, %y[t-1, c])") + "%n[0] = 0 %n[t < T] = select(%r[t], 0, %n[t-1] + 1)", W), {"x": X, "r": [0, 0, 1, 0, 1, 0]},
         {"y": np.concatenate([X[:2].cumsum(0), X[2:4].cumsum(0), X[4:].cumsum(0)]), "n": [0, 1, 0, 1, 0, 1]}),
    Case("an f16 step is rounded each time", "a recurrence upwards", op("%x: tensor<Txf32> -> %y: tensor<Txf16>", "%y[0] = %x[0] %y[t < T] = %y[t-1] + %x[t]", W), {"x": [2048, 1, 1, 1]}, {"y": [2048, 2048, 2048, 2048]}),
    Case("two directions, one after the other", ("a recurrence downwards", "a recurrence in a local"), op("%x: tensor<Txf32> -> %y: tensor<Txf32>", "%f[0] = %x[0] %f[t < T] = %f[t-1] + %x[t] %y[t in 0..T-1] = %f[t] + 2 * %y[t+1] %y[t in T-1..T] = %f[t]", W), {"x": S},
         {"y": run((5,), {4: S.sum()}, lambda y, x, t: x[: t + 1].sum() + 2 * y[t + 1], range(4, -1, -1), S)}),
    Case("a recurrence with an early piece", "two base cases", op("%x: tensor<Txf32> -> %y: tensor<Txf32>", "%y[t in 0..3] = -%x[t] %y[t in 3..T] = %y[t-1] + %y[t-3]", "where T >= 3"), {"x": S}, {"y": run((5,), {0: -S[0], 1: -S[1], 2: -S[2]}, lambda y, x, t: y[t - 1] + y[t - 3], range(5), S)}),
    Case("filter and reduction within a step", "a recurrence upwards", op("%x: tensor<TxCxf32> -> %y: tensor<TxCxf32>", UP.format("%x[t, c] - max[d < C where d != c](%y[t-1, d])"), "where T >= 1, C >= 2"), {"x": X},
         {"y": run((6, 3), {0: X[0]}, lambda y, x, t: x[t] - np.array([max(y[t - 1][d] for d in range(3) if d != c) for c in range(3)]), range(6), X)}),
]
