"""Attention by its own kernel, played lane by lane, against NumPy in f64: softmax as it is written on paper, over the whole matrix of scores."""
from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pipelink_ir.backends.cuda.emulate.executable import Options, load
from pipelink_ir.backends.loops.gpu.build import build_gpu
from pipelink_ir.ir.diagnostics import Report
from pipelink_ir.ir.targets import Arch
from pipelink_ir.passes.infer.operator import typed_operator
from pipelink_ir.passes.manager import parse_passes, run_passes
from pipelink_ir.passes.scheduling import attention
from pipelink_ir.runtime.compile import read
from tests.emulated import NEEDS_COMPILER, operators_of

pytestmark = NEEDS_COMPILER
RNG = np.random.default_rng(7)
NAMES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}
Array = np.ndarray[Any, Any]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles of 64 queries and 32 keys: the same kernel, sooner compiled."""
    def cut_of(terms: int | None, columns: int | None, arch: Arch | None) -> attention.Cut:
        return attention.Cut(2, 2, 32, *(-(-(n or 32) // 16) * 16 for n in (terms, columns)), 1)

    monkeypatch.setattr(attention, "cut_of", cut_of)


SMALL = pytest.mark.usefixtures("small")


def program(over: str = "j < L", score: str = "scale * %s0[b, h, i, j]", more: str = "", args: str = "", head: str = "h", shapes: str = "", out: str = "",
            empty: str = "", dtype: str = "f16", values: str = "") -> str:
    """Attention of q[B, H, S, D] over k[B, G, L, D] and v[B, G, L, E]."""
    operands = f"%q: tensor<BxHxSxDx{dtype}>, %k: tensor<BxGxLxDx{dtype}>, %v: tensor<BxGxLxEx{dtype}>{more}"
    o = out or "%w[b, h, i, d] / %z[b, h, i]"
    return f"""op @attend({operands}) -> (%o: tensor<BxHxSxEx{dtype}>) {{
  where H mod G == 0, H >= G, G >= 1, S >= 1, B >= 1{shapes}
  {empty}
  compute {{
    let scale = 1 / sqrt(f32(D))
    %s0[b, h, i, j] = sum[t < D](%q[b, h, i, t] * %k[b, {head}, j, t])
    %s[b, h, i, j]  = {score}
    %m[b, h, i]     = max[{over}](%s[b, h, i, j])
    %p[b, h, i, j]  = exp(%s[b, h, i, j] - %m[b, h, i])
    %z[b, h, i]     = sum[{over}](%p[b, h, i, j])
    %w[b, h, i, d]  = sum[{over}]({values or "%p[b, h, i, j]"} * %v[b, {head}, j, d])
    %o[b, h, i, d]  = {o}
  }}
}}
pipeline @main({operands}) -> (%o: tensor<BxHxSxEx{dtype}>) {{
  %o = @attend(%q, %k, %v{args})
}}
"""


def sized(text: str, **sizes: int) -> str:
    """The program for fixed sizes."""
    import re
    for name, n in sizes.items():
        text = re.sub(rf"(?<=[<x]){name}(?=x)", str(n), text)
        text = re.sub(rf"\b{name}\b(?!:)", str(n), text)
    return text


def kernels_of(text: str, arch: Arch | None = None) -> list[str]:
    module = run_passes(read(text), parse_passes("cuda"), Report())
    return [k.name.split(".", 1)[1] for op in operators_of(module) for k in build_gpu(typed_operator(op), arch).kernels]


def run(text: str, arch: Arch | None = None, **arrays: Array) -> Array:
    module = run_passes(read(text), parse_passes("cuda"), Report())
    out: Array = np.asarray(load(module, "main", Options(arch=arch))(arrays)["o"])
    return out


def by_hand(q: Array, k: Array, v: Array, seen: Array | None = None, bias: Array | float = 0.0, scale: float | None = None, empty: float = np.nan) -> Array:
    """softmax(scale * q kᵀ + bias) v over the keys that are seen, in f64."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    out = np.empty((*q.shape[:3], v.shape[3]))
    with np.errstate(all="ignore"):
        scores = np.einsum("bhid,bhjd->bhij", q, k) * (1 / np.sqrt(q.shape[3]) if scale is None else scale) + bias
        for at in np.ndindex(*out.shape[:3]):
            row, these = scores[at], np.ones(k.shape[2], bool) if seen is None else np.broadcast_to(seen, scores.shape)[at]
            if not these.any():
                out[at] = empty
                continue
            p = np.exp(row[these] - row[these].max())
            out[at] = (p[:, None] * v[at[0], at[1], these]).sum(0) / p.sum()
    return out


def qkv(b: int, h: int, g: int, s: int, n: int, d: int, e: int, dtype: str = "f16") -> tuple[Array, Array, Array]:
    return tuple(RNG.normal(size=shape).astype(NAMES[dtype]) for shape in ((b, h, s, d), (b, g, n, d), (b, g, n, e)))  # type: ignore[return-value]


def close(got: Array, want: Array, dtype: str = "f16") -> None:
    digits = 2e-3 if dtype == "f16" else 1.6e-2
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=digits, atol=digits)


@pytest.mark.parametrize("sizes", [(1, 1, 1, 64, 64, 64, 64), (2, 2, 2, 130, 70, 40, 24), (1, 2, 1, 1, 1, 8, 8), (1, 1, 1, 1, 200, 32, 33), (1, 1, 1, 17, 129, 128, 128)])
def test_plain(sizes: tuple[int, ...]) -> None:
    b, h, g, s, n, d, e = sizes
    q, k, v = qkv(b, h, g, s, n, d, e)
    text = sized(program(head="h floordiv 2" if h > g else "h"), B=b, H=h, G=g, S=s, L=n, D=d, E=e)
    assert kernels_of(text) == ["o"]
    close(run(text, q=q, k=k, v=v), by_hand(q, k, v))


SIZES = {"B": 2, "H": 4, "G": 2, "S": 60, "L": 140, "D": 24, "E": 20}
ORDER = ("B", "H", "G", "S", "L", "D", "E")


def some(dtype: str = "f16", **changed: int) -> tuple[dict[str, int], tuple[Array, Array, Array]]:
    sizes = {**SIZES, **changed}
    return sizes, qkv(*(sizes[n] for n in ORDER), dtype)


@SMALL
@pytest.mark.parametrize("over", ["j < L where j <= i + 66", "j < L where i + 67 > j", "j in 0..i + 67", "j < min(L, i + 67)"])
def test_causal(over: str) -> None:
    sizes, (q, k, v) = some(S=74)
    text = sized(program(over, head="h floordiv 2", shapes=", L >= S + 66" if "0..i" in over else ""), **sizes)
    i, j = np.ogrid[:74, :140]
    close(run(text, q=q, k=k, v=v), by_hand(q, k, v, j <= i + 66))


@SMALL
def test_a_window_of_keys() -> None:
    sizes, (q, k, v) = some(S=140, B=1)
    text = sized(program("j < L where j <= i and i - j < 20", head="h floordiv 2"), **sizes)
    i, j = np.ogrid[:140, :140]
    close(run(text, q=q, k=k, v=v), by_hand(q, k, v, (j <= i) & (i - j < 20)))


@SMALL
@pytest.mark.parametrize(("empty", "value"), [("", np.nan), ("semantic { empty = zero }", np.nan)])
def test_masks_and_lengths(empty: str, value: float) -> None:
    sizes, (q, k, v) = some()
    mask, length = RNG.random((2, 140)) < 0.4, np.array([77, 0], np.int32)
    text = sized(program("j < L where %mask[b, j] and j < %length[b]", more=", %mask: tensor<BxLxbool>, %length: tensor<Bxi32>", args=", %mask, %length",
                         head="h floordiv 2", empty=empty), **sizes)
    seen = (mask & (np.arange(140) < length[:, None]))[:, None, None]
    close(run(text, q=q, k=k, v=v, mask=mask, length=length), by_hand(q, k, v, seen, empty=value))


@SMALL
def test_rows_without_keys_are_what_the_program_says() -> None:
    sizes, (q, k, v) = some()
    mask = RNG.random((2, 60, 140)) < 0.02
    mask[:, 3], mask[:, 4] = False, True
    more = {"more": ", %mask: tensor<BxSxLxbool>", "args": ", %mask", "head": "h floordiv 2"}
    text = sized(program("j < L where %mask[b, i, j]", out="select(%z[b, h, i] == 0, 0.25, %w[b, h, i, d] / %z[b, h, i])", **more), **sizes)
    close(run(text, q=q, k=k, v=v, mask=mask), by_hand(q, k, v, mask[:, None], empty=0.25))
    text = sized(program("j < L where %mask[b, i, j]", values="%p[b, h, i, j] / %z[b, h, i]", out="%w[b, h, i, d]", **more), **sizes)
    close(run(text, q=q, k=k, v=v, mask=mask), by_hand(q, k, v, mask[:, None], empty=0.0))


@SMALL
def test_biases_scales_and_soft_masks() -> None:
    sizes, (q, k, v) = some()
    bias = RNG.normal(size=(4, 60, 140)).astype(np.float32)
    bias[0, 5] = -np.inf
    bias[1, 6, ::2] = -np.inf
    bias[2, 7] = np.finfo(np.float32).min
    bias[2, 7, 3] = -3e38
    text = sized(program(score="%s0[b, h, i, j] * 0.3 + %bias[h, i, j]", more=", %bias: tensor<HxSxLxf32>", args=", %bias", head="h floordiv 2"), **sizes)
    want = by_hand(q, k, v, bias=bias[None].astype(np.float64), scale=0.3)
    close(run(text, q=q, k=k, v=v, bias=bias), want)
    assert np.isnan(want[:, 0, 5]).all()
    text = sized(program(score="select(j <= i, -0.2 * %s0[b, h, i, j], -inf)", head="h floordiv 2"), **sizes)
    i, j = np.ogrid[:60, :140]
    close(run(text, q=q, k=k, v=v), by_hand(q, k, v, j <= i, scale=-0.2))


@SMALL
def test_rows_that_soft_masks_hide_as_a_whole() -> None:
    """All keys alike far below zero are all keys: -1e9 swallows the scores, and the softmax of equal numbers is even. Where one is not so far below, it wins."""
    sizes, (q, k, v) = some(G=4, S=40, L=70)
    bias = RNG.normal(size=(40, 70)).astype(np.float32)
    for row, value in enumerate((-1e9, -1e12, -3e38, -3e8, 2e9, -1e9)):
        bias[row] = value
    bias[5, 40:43] = 0.5
    text = sized(program(score="scale * %s0[b, h, i, j] + %bias[i, j]", more=", %bias: tensor<SxLxf32>", args=", %bias"), **sizes)
    got, want = run(text, q=q, k=k, v=v, bias=bias), by_hand(q, k, v, bias=bias)
    want[:, :, :5] = v.astype(np.float64).mean(2, keepdims=True)
    close(got, want)


def test_bf16_and_values_of_many_columns() -> None:
    sizes, (q, k, v) = some("bf16", D=136, E=256, H=2, G=1, B=1)
    close(run(sized(program(head="h floordiv 2", dtype="bf16"), **sizes), q=q, k=k, v=v), by_hand(q, k, v), "bf16")


@SMALL
def test_nothing_that_is_not_seen_counts() -> None:
    """A weight of 0 times infinity is no number."""
    sizes, (q, k, v) = some(S=140)
    v[0, :, 100, 3], v[1, :, 70, 4], k[1, :, 120, 0] = np.inf, np.nan, np.nan
    text = sized(program("j < L where j <= i", head="h floordiv 2"), **sizes)
    i, j = np.ogrid[:140, :140]
    want = by_hand(q, k, v, j <= i)
    close(run(text, q=q, k=k, v=v), want)
    assert np.isfinite(want[1, :, :70]).all()
    assert np.isnan(want[1, :, 120:]).all()
    mask = np.ones((2, 140), bool)
    mask[0, 100] = mask[1, 70] = mask[1, 120] = False
    text = sized(program("j < L where %mask[b, j]", more=", %mask: tensor<BxLxbool>", args=", %mask", head="h floordiv 2"), **sizes)
    want = by_hand(q, k, v, mask[:, None, None])
    close(run(text, q=q, k=k, v=v, mask=mask), want)
    assert np.isfinite(want).all()


@SMALL
def test_infinite_queries() -> None:
    sizes, (q, k, v) = some()
    q[0, 0, 3, 0], q[0, 1, 4, 1], q[1, 0, 5, 2] = np.inf, -np.inf, np.nan
    q[0, 3] *= 200
    close(run(sized(program(head="h floordiv 2"), **sizes), q=q, k=k, v=v), by_hand(q, k, v))


PARTS = """import std.nn
op @scores(%q: tensor<BxHxSxDxf16>, %k: tensor<BxGxLxDxf16>) -> (%s: tensor<BxHxSxLxEDGE>) {
  where H mod G == 0, H >= G, G >= 1
  compute { %s[b, h, i, j] = sum[d < D](%q[b, h, i, d] * %k[b, h floordiv 2, j, d]) }
}
op @scaled(%s: tensor<BxHxSxLxEDGE>, c: f32) -> (%t: tensor<BxHxSxLxEDGE>) { compute { %t[b, h, i, j] = %s[b, h, i, j] * c } }
op @sums(%p: tensor<BxHxSxLxEDGE>, %v: tensor<BxGxLxExf16>) -> (%o: tensor<BxHxSxExf16>) {
  where H mod G == 0, H >= G, G >= 1
  compute { %o[b, h, i, d] = sum[j < L](%p[b, h, i, j] * %v[b, h floordiv 2, j, d]) }
}
pipeline @main(%q: tensor<BxHxSxDxf16>, %k: tensor<BxGxLxDxf16>, %v: tensor<BxGxLxExf16>MORE) -> (%o: tensor<BxHxSxExf16>) {
  %s = @scores(%q, %k)
  %t = @scaled(%s) {c = 0.2}
  %p = SOFTMAX
  %o = @sums(%p, %v)
}
"""


@SMALL
@pytest.mark.parametrize("edge", ["f32", "f16"])
def test_operators_that_are_attention_together(edge: str) -> None:
    sizes, (q, k, v) = some()
    text = sized(PARTS.replace("EDGE", edge).replace("MORE", "").replace("SOFTMAX", "@softmax(%t)"), **sizes)
    assert len(kernels_of(text)) == 1
    got = run(text, q=q, k=k, v=v)
    if edge == "f32":
        close(got, by_hand(q, k, v, scale=0.2))
        return
    # Each edge is rounded: the scores twice, the weights once they are divided.
    scores = np.einsum("bhid,bhjd->bhij", q.astype(np.float64), np.repeat(k, 2, 1).astype(np.float64)).astype(np.float16)
    scores = (scores.astype(np.float64) * np.float32(0.2)).astype(np.float16).astype(np.float64)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p = (p / p.sum(-1, keepdims=True)).astype(np.float16).astype(np.float64)
    close(got, np.einsum("bhij,bhjd->bhid", p, np.repeat(v, 2, 1).astype(np.float64)))


@SMALL
@pytest.mark.parametrize("edge", ["f32", "f16"])
def test_a_masked_softmax_between_two_products(edge: str) -> None:
    sizes, (q, k, v) = some()
    mask = RNG.random((2, 4, 60, 140)) < 0.3
    mask[0, 0, 3] = False
    v[1, 1, 7, 5] = np.inf
    text = PARTS.replace("EDGE", edge).replace("MORE", ", %mask: tensor<BxHxSxLxbool>").replace("SOFTMAX", "@softmax_masked(%t, %mask)")
    text = sized(text, **sizes)
    assert len(kernels_of(text)) == 1
    want = by_hand(q, k, v, mask, scale=0.2, empty=0.0)
    want[1, 2:, ~mask[1, 2:, :, 7].any(0), 5] = np.nan
    want[1, 2:, :, 5] = np.where(mask[1, 2:, :, 7], want[1, 2:, :, 5], np.nan)      # 0 times infinity
    with np.errstate(invalid="ignore"):
        close(run(text, q=q, k=k, v=v, mask=mask), want)


@pytest.mark.parametrize("depth", [100, 264])
def test_sizes_that_are_known_at_the_call(depth: int) -> None:
    """One of several kernels does the work."""
    text = program("j < L where j <= i", head="h floordiv (H floordiv G)").replace("h floordiv (H floordiv G)", "h")
    q, k, v = qkv(1, 1, 1, 9, 40, depth, 24)
    text = text.replace("BxGx", "BxHx").replace(" where H mod G == 0, H >= G, G >= 1, S >= 1, B >= 1", "")
    assert kernels_of(text) == ["o.64", "o.128", "o.256", "o.beyond"]
    i, j = np.ogrid[:9, :40]
    close(run(text, q=q, k=k, v=v), by_hand(q, k, v, j <= i))


@SMALL
def test_nothing_at_all() -> None:
    text = program().replace("BxGx", "BxHx").replace(" where H mod G == 0, H >= G, G >= 1, S >= 1, B >= 1", "")
    q, k, v = qkv(1, 1, 1, 3, 0, 16, 16)
    assert np.isnan(run(text, q=q, k=k, v=v)).all()
    assert run(text, q=q[:, :, :0], k=k, v=v).shape == (1, 1, 0, 16)
