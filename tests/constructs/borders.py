"""Reading outside: every mode, near and far, per axis, of one operand, of a local, of a pack, with values from `numpy.pad` and index maps by hand."""
from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.constructs.case import Case, loops, op, program
from tests.constructs.types import whole

X, W1, ONE = whole(4, 5), np.array([1.0, 2, 3, 4]), np.array([[6.0]])
LETTERS = {"replicate": "aaaabcdddd", "reflect": "dcbaabcddcba", "reflect101": "cbdcbabcdcb", "wrap": "bcdabcdabcd"}
NUMPY = {"replicate": "edge", "reflect": "symmetric", "reflect101": "reflect", "wrap": "wrap"}
MAPS: dict[str, Callable[[int, int], int]] = {
    "replicate": lambda i, n: min(max(i, 0), n - 1),
    "reflect": lambda i, n: (lambda p: p if p < n else 2 * n - 1 - p)(i % (2 * n)),
    "reflect101": lambda i, n: 0 if n == 1 else (lambda p: p if p < n else 2 * n - 2 - p)(i % (2 * n - 2)),
    "wrap": lambda i, n: i % n,
}
TAPS = " ".join(f"%y[h, w, {k}] = %x[h + {a}, w + {b}]".replace("+ -", "- ") for k, (a, b) in enumerate([(-1, 0), (1, 0), (0, -1), (0, 1), (-1, -1), (1, 1), (-1, 1), (3, -3)]))
OFFSETS = [(-1, 0), (1, 0), (0, -1), (0, 1), (-1, -1), (1, 1), (-1, 1), (3, -3)]


def taps(mode: str, x: np.ndarray) -> np.ndarray:
    p = np.pad(x, 3, NUMPY[mode]) if mode in NUMPY else np.pad(x, 3, constant_values=float(mode))
    return np.stack([p[3 + a:3 + a + x.shape[0], 3 + b:3 + b + x.shape[1]] for a, b in OFFSETS], -1)


def read(x: np.ndarray, modes: tuple[str, str], h: int, w: int) -> float:
    """One element by index maps; a number instead of a mode is a constant. The first axis wins."""
    at = []
    for mode, i, n in zip(modes, (h, w), x.shape, strict=True):
        if mode not in MAPS and not 0 <= i < n:
            return float(mode)
        at.append(MAPS[mode](i, n) if mode in MAPS else i)
    return float(x[tuple(at)])


def per_axis(a: str, b: str) -> Case:
    """A mode an axis, far outside both."""
    sections = "memory { border = [" + ", ".join(m if m in MAPS else f"constant({m})" for m in (a, b)) + "] }"
    return Case(f"border = [{a}, {b}]", "a border an axis", op("%x: tensor<HxWxf32> -> %y: tensor<(H + 9)x(W + 9)xf32>", "%y[h, w] = %x[h - 5, w - 4]", sections), {"x": X},
                {"y": loops((13, 14), lambda h, w: read(X, (a, b), h - 5, w - 4))})


CASES = [
    *(Case(f"border = {m}", f"border = {m}", op("%x: tensor<HxWxf32> -> %y: tensor<HxWx8xf32>", TAPS, f"memory {{ border = {m} }}"), {"x": x}, {"y": taps(m, x)}) for m in NUMPY for x in (X,)),
    *(Case(f"border = {m} of one pixel", f"border = {m}", op("%x: tensor<HxWxf32> -> %y: tensor<HxWx8xf32>", TAPS, f"memory {{ border = {m} }}"), {"x": ONE}, {"y": np.full((1, 1, 8), 6)}) for m in NUMPY),
    *(Case(f"border = constant({v})", "border = constant(v)", op("%x: tensor<HxWxf32> -> %y: tensor<HxWx8xf32>", TAPS, f"memory {{ border = constant({v}) }}"), {"x": x}, {"y": taps(v, x)}) for v, x in (("0", X), ("-2.5", X), ("7", ONE), ("inf", X))),
    *(Case(f"border = {m}, without limit", ("borders are periodic without limit", f"border = {m}"), op("%x: tensor<Nxf32> -> %y: tensor<(N + 40)xf32>", "%y[n] = %x[n - 20]", f"memory {{ border = {m} }}"), {"x": x},
           {"y": [x[MAPS[m](i - 20, len(x))] for i in range(len(x) + 40)]}) for m in MAPS for x in ([1, 2, 3, 4], [5], [8, 9], [1, 2, 3])),
    Case("the letters of the OpenCV page", tuple(f"border = {m}" for m in LETTERS if m in ("reflect", "wrap")), program("".join(f"op @{m}(%x: tensor<Nxf32>) -> (%y: tensor<(N + 4)xf32>) {{ memory {{ border = {m} }} compute {{ %y[n] = %x[n - 2] }} }}\n" for m in MAPS),
         "%x: tensor<Nxf32> -> " + ", ".join(f"%{m}: tensor<(N + 4)xf32>" for m in MAPS), "\n".join(f"%{m} = @{m}(%x)" for m in MAPS)), {"x": W1},
         {"replicate": [1, 1, 1, 2, 3, 4, 4, 4], "reflect": [2, 1, 1, 2, 3, 4, 4, 3], "reflect101": [3, 2, 1, 2, 3, 4, 3, 2], "wrap": [3, 4, 1, 2, 3, 4, 1, 2]}),
    *(per_axis(a, b) for a in (*MAPS, "7") for b in (*MAPS, "-3") if a != b),
    Case("border = none on one axis", "border = none", op("%x: tensor<HxWx3xf32> -> %y: tensor<HxWxf32>", "%y[h, w] = %x[h - 1, w, 0] + %x[h, w + 1, 2]", "memory { border = [wrap, replicate, none] }"), {"x": np.arange(24).reshape(2, 4, 3)},
         {"y": (lambda x: np.roll(x, 1, 0)[:, :, 0] + x[:, [1, 2, 3, 3], 2])(np.arange(24).reshape(2, 4, 3))}),
    Case("borders of single operands", "a border of one operand", op("%a: tensor<Nxf32>, %b: tensor<Nxf32>, %c: tensor<Nxf32> -> %y: tensor<Nxf32>", "%y[n] = %a[n - 1] + 10 * %b[n - 1] + 100 * %c[n - 1]", "memory { border = replicate, %b { border = wrap }, %c { border = constant(7) } }"),
         {"a": W1, "b": W1, "c": W1}, {"y": [1 + 40 + 700, 1 + 10 + 100, 2 + 20 + 200, 3 + 30 + 300]}),
    Case("a border of a local", "a border of a local", op("%x: tensor<HxWxf32> -> %y: tensor<HxWxf32>", "%l[h, w] = %x[h, w] * %x[h, w] + h %y[h, w] = %l[h - 1, w] + %l[h, w + 2]", "memory { %l { border = [constant(-1), reflect101] } }"), {"x": X},
         {"y": (lambda l: np.concatenate([[[-1] * 5], l[:-1]]) + l[:, [2, 3, 4, 3, 2]])(X * X + np.arange(4)[:, None])}),
    Case("a border of a local is not that of its operand", "a border of a local", op("%x: tensor<Nxf32> -> %y: tensor<Nxf32>", "%l[n] = %x[n + 1] %y[n] = %l[n + 1]", "memory { %x { border = constant(100) }, %l { border = replicate } }"), {"x": W1}, {"y": [3, 4, 100, 100]}),
    Case("a local with declared extents and a border", "a border of a local", op("%x: tensor<Nxf32> -> %y: tensor<Nxf32>", "%l[m < 2] = %x[m] %y[n] = %l[n]", "where N >= 2 memory { %l { border = wrap } }"), {"x": W1}, {"y": [1, 2, 1, 2]}),
    Case("a border of a local of a reduction", "a border of a local", op("%x: tensor<HxWxf32> -> %y: tensor<HxWxf32>", "%r[h, w] = sum[j < 3](%x[h, w + j - 1]) %y[h, w] = max[i < 3](%r[h + i - 1, w])", "memory { %x { border = constant(0) }, %r { border = reflect } }"), {"x": X},
         {"y": (lambda r: np.lib.stride_tricks.sliding_window_view(np.pad(r, ((1, 1), (0, 0)), "symmetric"), 3, 0).max(-1))(np.lib.stride_tricks.sliding_window_view(np.pad(X, ((0, 0), (1, 1))), 3, 1).sum(-1))}),
    Case("a border of a recurrence", "a border of a local", op("%x: tensor<TxSxf32> -> %y: tensor<TxSxf32>", "%a[0, s] = %x[0, s] %a[t < T, s] = %x[t, s] + %a[t-1, s-1] %y[t, s] = %a[t, s]", "where T >= 1 memory { %a { border = [none, wrap] } }"), {"x": X},
         {"y": (lambda a: [a.__setitem__(t, X[t] + np.roll(a[t - 1], 1)) for t in range(1, 4)] and a)(X.copy())}),
    Case("a border of a wide recurrence", "a border of a local", op("%x: tensor<TxSxf32> -> %y: tensor<TxSxf32>", "%y[0, s] = %x[0, s] %y[t < T, s] = %x[t, s] + %y[t-1, s+1] - %y[t-1, s]", "where T >= 1 memory { %y { border = [none, wrap] } }"), {"x": np.arange(12000).reshape(3, 4000) % 7},
         {"y": (lambda a: [a.__setitem__(t, a[t] + np.roll(a[t - 1], -1) - a[t - 1]) for t in range(1, 3)] and a)(np.arange(12000).reshape(3, 4000) % 7)}),
    Case("padding = same", "padding = same", op("%x: tensor<HxWxf32> -> %y: tensor<HxWxf32>", "%y[h, w] = sum[i < 3, j < 3](%x[h + i - 1, w + j - 1])", "memory { padding = same, border = constant(0) }"), {"x": X}, {"y": np.lib.stride_tricks.sliding_window_view(np.pad(X, 1), (3, 3)).sum((2, 3))}),
    Case("padding = valid", "padding = valid", op("%x: tensor<HxWxf32> -> %y: tensor<(H - 2)x(W - 1)xf32>", "%y[h, w] = sum[i < 3, j < 2](%x[h + i, w + j])", "where H >= 3, W >= 2 memory { padding = valid }"), {"x": X}, {"y": np.lib.stride_tricks.sliding_window_view(X, (3, 2)).sum((2, 3))}),
    Case("narrow dtypes and a constant", "border = constant(v)", op("%x: tensor<Nxu8>, %h: tensor<Nxbf16>, %b: tensor<Nxbool> -> %y: tensor<Nxi32>, %z: tensor<Nxbf16>, %w: tensor<Nxbool>", "%y[n] = %x[n - 1] + %x[n + 1] %z[n] = %h[n + 1] %w[n] = %b[n - 1]", "memory { border = constant(1) }"),
         {"x": [200, 255, 3], "h": [0.5, 1.5, 2.5], "b": [0, 0, 0]}, {"y": [256, 203, 256], "z": [1.5, 2.5, 1], "w": [True, False, False]}),
    Case("a long row", "border = replicate", op("%x: tensor<Nxf32> -> %y: tensor<Nxf32>", "%y[n] = %x[n - 3] + 2 * %x[n + 2]", "memory { border = replicate }"), {"x": np.arange(1003) % 101}, {"y": (lambda p: p[:-5] + 2 * p[5:])(np.pad(np.arange(1003) % 101, (3, 2), "edge"))}),
    Case("a filter beside a border", "border = reflect", op("%x: tensor<HxWxf32> -> %y: tensor<HxWxf32>", "%y[h, w] = sum[j < 5 where j != 2 and %x[h, w + j - 2] > 0](%x[h, w + j - 2])", "memory { border = reflect }"), {"x": X},
         {"y": (lambda p: np.where((p > 0) & (np.arange(5) != 2), p, 0).sum(-1))(np.lib.stride_tricks.sliding_window_view(np.pad(X, ((0, 0), (2, 2)), "symmetric"), 5, 1))}),
    Case("a stride beside a border", "border = reflect101", op("%x: tensor<HxWxf32> -> %y: tensor<(H ceildiv 2)x(W ceildiv 2)xf32>", "%y[h, w] = max[i < 3, j < 3](%x[2 * h + i - 1, 2 * w + j - 1])", "memory { border = reflect101 }"), {"x": X},
         {"y": np.lib.stride_tricks.sliding_window_view(np.pad(X, 1, "reflect"), (3, 3)).max((2, 3))[::2, ::2]}),
]
