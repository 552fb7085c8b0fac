"""Attention whose tiles the copy engine brings (sm_90a), played lane by lane, against NumPy in f64."""
from __future__ import annotations

import numpy as np
import pytest

from pipelink_ir.backends.cuda import nvrtc
from pipelink_ir.backends.cuda.compile import compile_pipeline
from pipelink_ir.backends.cuda.emit import emit_program
from pipelink_ir.backends.cuda.target_facts import CUDA
from pipelink_ir.backends.loops.gpu import flow
from pipelink_ir.backends.loops.gpu.build import build_gpu
from pipelink_ir.grammar import parse
from pipelink_ir.ir.diagnostics import Report
from pipelink_ir.ir.targets import parse_arch
from pipelink_ir.passes.infer.operator import typed_operator
from pipelink_ir.passes.manager import parse_passes, run_passes
from pipelink_ir.passes.scheduling import attention_flow
from pipelink_ir.runtime.compile import read
from tests.emulated import NEEDS_COMPILER
from tests.unit.cuda_emulated.test_attention import RNG, by_hand, close, kernels_of, program, qkv, run, sized

pytestmark = NEEDS_COMPILER
HOPPER = parse_arch("sm_90a")


def flows(over: str = "j < L", dtype: str = "f16", sizes: tuple[int, ...] = (1, 2, 1, 65, 130, 16, 24), **more: str) -> str:
    """The program for fixed sizes, which does flow."""
    b, h, g, s, n, d, e = sizes
    text = sized(program(over, head=f"h floordiv {h // g}" if h > g else "h", dtype=dtype, **more), B=b, H=h, G=g, S=s, L=n, D=d, E=e)
    flow = [f"o.flow{64 if max(d, e) <= 64 else 128}", "o"]
    assert kernels_of(text, HOPPER) in (flow, ["o.chosen", *flow])
    return text


def chooses(over: str, sizes: tuple[int, ...], shape: str, **more: str) -> str:
    """The program with a mask, and that it flows with bits for its keys."""
    text = flows(over, sizes=sizes, more=f", %mask: tensor<{shape}xbool>", args=", %mask", **more)
    assert "o.chosen" in kernels_of(text, HOPPER)
    return text


@pytest.mark.parametrize("sizes", [(1, 1, 1, 2, 2, 8, 8), (1, 1, 1, 63, 65, 16, 16), (2, 2, 2, 65, 63, 24, 16), (1, 4, 2, 130, 257, 16, 72), (1, 1, 1, 3, 1000, 8, 8),
                                   (1, 1, 1, 1000, 63, 8, 16), (3, 2, 1, 40, 129, 128, 8)])
def test_any_length(sizes: tuple[int, ...]) -> None:
    q, k, v = qkv(*sizes)
    close(run(flows(sizes=sizes), HOPPER, q=q, k=k, v=v), by_hand(q, k, v))


@pytest.mark.parametrize(("over", "s", "n", "shift"), [("j < L where j <= i", 200, 200, 0), ("j < L where j <= i + 66", 74, 140, 66), ("j < L where j + 20 <= i", 150, 150, -20),
                                                       ("j in 0..i + 67", 74, 141, 66), ("j < min(L, i + 67)", 74, 140, 66), ("j < L where j <= i + 300", 70, 200, 300)])
def test_causal(over: str, s: int, n: int, shift: int) -> None:
    sizes = (1, 3, 1, s, n, 16, 16)
    q, k, v = qkv(*sizes)
    i, j = np.ogrid[:s, :n]
    close(run(flows(over, sizes=sizes), HOPPER, q=q, k=k, v=v), by_hand(q, k, v, j <= i + shift))


def test_many_heads_of_causal_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """More heads than go through the L2 together, and several tiles of each."""
    monkeypatch.setattr(flow, "TOGETHER", 1)
    sizes = (3, 6, 2, 140, 140, 8, 8)
    q, k, v = qkv(*sizes, "bf16")
    i, j = np.ogrid[:140, :140]
    close(run(flows("j < L where j <= i", "bf16", sizes), HOPPER, q=q, k=k, v=v), by_hand(q, k, v, j <= i), "bf16")


def test_a_window_of_keys() -> None:
    sizes = (1, 2, 2, 300, 300, 8, 8)
    q, k, v = qkv(*sizes)
    i, j = np.ogrid[:300, :300]
    close(run(flows("j < L where j <= i and i - j < 20", sizes=sizes), HOPPER, q=q, k=k, v=v), by_hand(q, k, v, (j <= i) & (i - j < 20)))


def test_lengths_and_rows_without_keys() -> None:
    sizes = (3, 2, 1, 70, 140, 16, 16)
    q, k, v = qkv(*sizes)
    length = np.array([77, 0, 140], np.int32)
    v[0, :, 77:], k[0, :, 100] = np.nan, np.inf
    text = flows("j < L where j < %length[b]", sizes=sizes, more=", %length: tensor<Bxi32>", args=", %length")
    seen = (np.arange(140) < length[:, None])[:, None, None]
    close(run(text, HOPPER, q=q, k=k, v=v, length=length), by_hand(q, k, v, seen))
    text = flows("j < L where j < %length[b]", sizes=sizes, more=", %length: tensor<Bxi32>", args=", %length", values="%p[b, h, i, j]",
                 out="select(%z[b, h, i] == 0, 0.25, %w[b, h, i, d] / %z[b, h, i])")
    close(run(text, HOPPER, q=q, k=k, v=v, length=length), by_hand(q, k, v, seen, empty=0.25))


@pytest.mark.parametrize("sizes", [(2, 2, 1, 65, 63, 24, 16), (1, 4, 2, 130, 257, 16, 72), (3, 2, 2, 3, 640, 8, 8)])
def test_keys_that_a_mask_chooses(sizes: tuple[int, ...]) -> None:
    q, k, v = qkv(*sizes)
    mask = RNG.random((sizes[0], sizes[4])) < 0.4
    close(run(chooses("j < L where %mask[b, j]", sizes, "BxL"), HOPPER, q=q, k=k, v=v, mask=mask), by_hand(q, k, v, mask[:, None, None]))


@pytest.mark.parametrize(("over", "shape", "places"), [
    ("j < L where %mask[j]", "L", np.s_[None, None, None]), ("j < L where %mask[h, j]", "HxL", np.s_[None, :, None]),
    ("j < L where not %mask[b, j] and %mask[b, j] != (j mod 5 == 3)", "BxL", np.s_[:, None, None])])
def test_what_conditions_on_the_key_may_read(over: str, shape: str, places: tuple[slice | None, ...]) -> None:
    sizes = (2, 3, 1, 70, 150, 16, 16)
    q, k, v = qkv(*sizes)
    mask = RNG.random({"L": (150,), "HxL": (3, 150), "BxL": (2, 150)}[shape]) < 0.5
    seen = ~mask & (mask != (np.arange(150) % 5 == 3)) if "mod" in over else mask
    close(run(chooses(over, sizes, shape), HOPPER, q=q, k=k, v=v, mask=mask), by_hand(q, k, v, seen[places]))


@pytest.mark.parametrize(("over", "first", "shift", "window"), [
    ("j < L where j <= i + 30 and %mask[b, j]", 0, 30, 1000), ("j < L where %mask[b, j] and j <= i + 200 and i + 200 - j < 40", 0, 200, 40),
    ("j in 130..L where %mask[b, j]", 130, 1000, 10000), ("j < L where j >= 133 and %mask[b, j] and j <= i + 150", 133, 150, 1000)])
def test_bounds_beside_a_mask(over: str, first: int, shift: int, window: int) -> None:
    sizes = (2, 2, 1, 140, 300, 16, 16)
    q, k, v = qkv(*sizes)
    mask = RNG.random((2, 300)) < 0.5
    mask[1, 140:180] = False
    i, j = np.ogrid[:140, :300]
    seen = mask[:, None, None] & (j <= i + shift) & (i + shift - j < window) & (j >= first)
    text = chooses(over, sizes, "BxL", out="select(%z[b, h, i] == 0, 0.25, %w[b, h, i, d] / %z[b, h, i])", empty="semantic { empty = zero }")
    close(run(text, HOPPER, q=q, k=k, v=v, mask=mask), by_hand(q, k, v, seen, empty=0.25))


def test_rows_without_keys_and_values_that_a_mask_hides() -> None:
    """Rows that see nothing are told from rows whose scores are all -inf; what is hidden may be infinite."""
    sizes = (3, 2, 1, 70, 200, 16, 16)
    q, k, v = qkv(*sizes)
    mask = RNG.random((3, 200)) < 0.5
    mask[1], mask[2], mask[2, 7] = False, False, True
    mask[0, [3, 150]] = False
    v[0, :, 3], v[0, :, 150, 2], k[0, :, 150, 1] = np.nan, np.inf, np.nan
    q[2, 0, 5], k[2, 0, 7] = -np.inf, 1
    text = chooses("j < L where %mask[b, j]", sizes, "BxL", out="select(%z[b, h, i] == 0, 0.25, %w[b, h, i, d] / %z[b, h, i])", empty="semantic { empty = zero }")
    want = by_hand(q, k, v, mask[:, None, None], empty=0.25)
    got = run(text, HOPPER, q=q, k=k, v=v, mask=mask)
    close(got, want)
    assert (got[1] == 0.25).all()
    assert np.isnan(got[2, 0, 5].astype(np.float32)).all()


def test_nothing_that_is_not_seen_counts() -> None:
    """A weight of 0 times infinity is no number."""
    sizes = (2, 4, 2, 140, 140, 24, 16)
    q, k, v = qkv(*sizes)
    v[0, :, 100, 3], v[1, :, 70, 4], k[1, :, 120, 0] = np.inf, np.nan, np.nan
    i, j = np.ogrid[:140, :140]
    want = by_hand(q, k, v, j <= i)
    close(run(flows("j < L where j <= i", sizes=sizes), HOPPER, q=q, k=k, v=v), want)
    assert np.isfinite(want[1, :, :70]).all()
    assert np.isnan(want[1, :, 120:]).all()


def test_infinite_queries_and_large_scores() -> None:
    sizes = (1, 4, 2, 70, 140, 16, 16)
    q, k, v = qkv(*sizes, "bf16")
    q[0, 0, 3, 0], q[0, 1, 4, 1], q[0, 2, 5, 2] = np.inf, -np.inf, np.nan
    q[0, 3] *= 200
    q[0, 0, 9] *= 1e9
    q[0, 0, 10] *= 1e30
    close(run(flows(dtype="bf16", sizes=sizes), HOPPER, q=q, k=k, v=v), by_hand(q, k, v), "bf16")


def test_other_orders_of_axes() -> None:
    """Queries by rows of all heads, keys without heads."""
    text = """op @attend(%q: tensor<2x70x3x16xf16>, %k: tensor<2x90x16xf16>, %v: tensor<90x2x24xf16>) -> (%o: tensor<2x70x3x24xf16>) {
  compute {
    %s[b, i, h, j] = 0.25 * sum[t < 16](%q[b, i, h, t] * %k[b, j, t])
    %m[b, i, h]    = max[j < 90](%s[b, i, h, j])
    %p[b, i, h, j] = exp(%s[b, i, h, j] - %m[b, i, h])
    %z[b, i, h]    = sum[j < 90](%p[b, i, h, j])
    %o[b, i, h, d] = sum[j < 90](%p[b, i, h, j] * %v[j, b, d]) / %z[b, i, h]
  }
}
pipeline @main(%q: tensor<2x70x3x16xf16>, %k: tensor<2x90x16xf16>, %v: tensor<90x2x24xf16>) -> (%o: tensor<2x70x3x24xf16>) { %o = @attend(%q, %k, %v) }
"""
    assert kernels_of(text, HOPPER) == ["o.flow64", "o"]
    q, k, v = (RNG.normal(size=s).astype(np.float16) for s in ((2, 70, 3, 16), (2, 90, 16), (90, 2, 24)))
    want = by_hand(q.transpose(0, 2, 1, 3), k[:, None], v.transpose(1, 0, 2)[:, None], scale=0.25)
    close(run(text, HOPPER, q=q, k=k, v=v), want.transpose(0, 2, 1, 3))


def test_kernels_are_compiled_side_by_side() -> None:
    """One takes a second or more."""
    text = program().replace("BxGx", "BxHx").replace("where H mod G == 0, H >= G, G >= 1, S >= 1, B >= 1", "")
    assert HOPPER is not None
    code = compile_pipeline(run_passes(read(text), parse_passes("cuda"), Report()), "main", HOPPER)
    kernels = code.operators["attend"]
    assert len(code.units) == len(kernels.kernels) == len(set(kernels.units)) > 1
    assert all(f"{k.symbol}(" in code.units[n].text for k, n in zip(kernels.kernels, kernels.units, strict=True))
    assert all(f"{k.symbol}(" in code.whole(CUDA).text for k in kernels.kernels)


@pytest.mark.parametrize(("depth", "columns"), [(16, 24), (100, 24), (128, 72), (20, 20), (136, 8)])
def test_sizes_that_are_known_at_the_call(depth: int, columns: int) -> None:
    """One of several kernels does the work: two flow, others take what cannot."""
    text = program("j < L where j <= i").replace("BxGx", "BxHx").replace("where H mod G == 0, H >= G, G >= 1, S >= 1, B >= 1", "")
    q, k, v = qkv(1, 1, 1, 9, 40, depth, columns)
    assert kernels_of(text, HOPPER) == ["o.flow64", "o.flow128", "o.256", "o.beyond"]
    i, j = np.ogrid[:9, :40]
    close(run(text, HOPPER, q=q, k=k, v=v), by_hand(q, k, v, j <= i))


def test_memory_that_lies_oddly() -> None:
    """An array that begins at no multiple of 16 bytes is for the kernel behind."""
    sizes = (1, 2, 1, 65, 130, 16, 24)
    q, k, v = qkv(*sizes)
    odd = np.empty(k.size + 1, np.float16)[1:].reshape(k.shape)
    odd[...] = k
    close(run(flows(sizes=sizes), HOPPER, q=q, k=odd, v=v), by_hand(q, k, v))


@pytest.mark.parametrize(("score", "over", "why"), [
    ("%s0[b, h, i, j] + 0.5", "j < L", "multiple"), ("scale * %s0[b, h, i, j]", "j < L where (i + j) mod 3 == 0", "bounds")])
def test_what_does_not_flow(score: str, over: str, why: str) -> None:
    sizes = {"B": 1, "H": 1, "G": 1, "S": 8, "L": 40, "D": 16, "E": 16}
    assert kernels_of(sized(program(over, score=score), **sizes), HOPPER) == ["o"]


@pytest.mark.skipif(not nvrtc.available(), reason="NVRTC is not installed")
@pytest.mark.parametrize(("dtype", "mask"), [("f16", False), ("bf16", False), ("f16", True)])
def test_nvrtc_takes_them_without_spills(dtype: str, mask: bool) -> None:
    over, more = ("j < L where j <= i and %mask[b, j]", ", %mask: tensor<BxLxbool>") if mask else ("j < L where j <= i", "")
    text = program(over, more=more, args=", %mask" if mask else "", dtype=dtype).replace("BxGx", "BxHx").replace("where H mod G == 0, H >= G, G >= 1, S >= 1, B >= 1", "")
    op = parse(text, "test.plir").operators[0]
    assert HOPPER is not None
    code = emit_program(build_gpu(typed_operator(op), HOPPER), op)
    binary = nvrtc.compile_source(nvrtc.Source(code.text, "kernels.cu"), HOPPER)
    assert [u.spill_stores for name, u in binary.usage.items() if "flow" in name] == [0, 0]
    assert "serialized" not in binary.log
    assert "wgmma" in binary.ptx


@pytest.mark.parametrize(("s", "n", "d", "e"), [(192, 130, 64, 40), (370, 65, 24, 64)])
def test_three_teams(monkeypatch: pytest.MonkeyPatch, s: int, n: int, d: int, e: int) -> None:
    """Where sizes are known and suit them: 192 queries instead of 128 in a block."""
    monkeypatch.setattr(attention_flow, "PROCESSORS", 1)
    assert attention_flow.teams_of([1, 2], s, d, e) == 3
    sizes = (1, 2, 1, s, n, d, e)
    q, k, v = qkv(*sizes)
    close(run(flows(sizes=sizes), HOPPER, q=q, k=k, v=v), by_hand(q, k, v))


def test_how_many_teams() -> None:
    """Three take nine tenths of the time for as many queries: where less than a tenth of their rows is in vain, and no processor has one turn more."""
    assert attention_flow.teams_of([8, 16], 2048, 64, 64) == 3
    assert attention_flow.teams_of([8, 16], 2048, 64, 80) == attention_flow.teams_of([8, None], 2048, 64, 64) == attention_flow.teams_of([8, 16], None, 64, 64) == 2
    assert attention_flow.teams_of([64, 12], 197, 64, 64) == attention_flow.teams_of([1, 16], 2048, 64, 64) == 2
