"""Kernels for a GPU: what they look like, and what they compute where there is more than one block, round, part or tile of it.

That they compute what those for a CPU do is asserted for every program of this folder (`programs.results`)."""
from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.gpu.build import build_gpu
from pipelink_ir.backends.loops.print import kernel_text, program_text
from pipelink_ir.grammar import parse
from pipelink_ir.ir.diagnostics import Report
from pipelink_ir.passes import infer_types, resolve
from pipelink_ir.passes.infer.operator import typed_operator
from pipelink_ir.passes.scheduling import parts as parts_of
from tests.unit.loops.conftest import small_cut
from tests.unit.loops.gpu_pipeline import load
from tests.unit.loops.interpreter import Failed
from tests.unit.loops.programs import op, results

RNG = np.random.default_rng(13)
CASES = Path(__file__).parents[2] / "cases"


def built(text: str) -> form.Program:
    return build_gpu(typed_operator(parse(text, "test.plir").operators[0]))


def kernel_loop(kernel: form.Kernel) -> form.For:
    last = kernel.body[-1]
    assert isinstance(last, form.For)
    return last


def shapes(program: form.Program) -> list[str]:
    return [kernel_loop(k).kind for k in program.kernels]


# --------------------------------------------------------------------------------------------------------------------- shapes


def test_elements_are_one_flat_loop_without_divisions() -> None:
    p = built(op("%x: tensor<AxBxCxf32> -> %y: tensor<AxBxCxf32>", "%y[a, b, c] = 2 * %x[a, b, c] + 1"))
    assert shapes(p) == ["grid"]
    assert re.search(r"(quot|rest) [A-Z]", program_text(p)) is None


def test_a_stencil_takes_its_index_apart_once() -> None:
    p = built(op("%x: tensor<HxWxf32> -> %y: tensor<HxWxf32>", "%y[h, w] = sum[i < 3, j < 3](%x[h + i - 1, w + j - 1])", "memory { border = replicate }"))
    assert shapes(p) == ["grid"]
    text = program_text(p)
    inside = text.partition("grid for")[2]
    assert (inside.count(" quot "), inside.count(" rest ")) == (1, 2)          # the run and its row, in the version of any width too
    assert inside.count("for ") == 4          # nine terms written out, no interior and no edges; what is no whole run, and columns of any width


SOFTMAX = op("%x: tensor<NxKxf32> -> %y: tensor<NxKxf32>",
             "%m[n] = max[k < K](%x[n, k]) %e[n, k] = exp(%x[n, k] - %m[n]) %s[n] = sum[k < K](%e[n, k]) %y[n, k] = %e[n, k] / %s[n]")


def test_dependent_row_reductions_share_a_block() -> None:
    p = built(SOFTMAX)
    assert [k.name for k in p.kernels] == ["f.y.short", "f.y.long.begin", "f.y.long", "f.y.longer", "f.y"]
    assert shapes(p) == ["block", "grid", "block", "block", "block"]
    # Of rows that are not long there are no parts.
    assert {b.name: form.evaluate(b.shape[-1], {"N": 7, "K": 16384}) for b in p.temporaries if b.name != "y.counters"} == {"y.parts.0": 0, "y.parts.1": 0}
    text = kernel_text(p.kernels[-1])
    kept, *_, otherwise = text.split("} else {")    # by wide accesses; one by one; not kept
    assert kept.count("combine") == otherwise.count("combine") == 2
    assert kept.count("each for") == 4
    assert otherwise.count("thread unroll for") + otherwise.count("thread for") == 3
    assert kept.count("exp(") == 1                              # the row is read once, and so is what is computed of it
    assert text.index("combine max") < text.index("combine sum")


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (2, 100), (0, 4), (4, 0)])
def test_softmax_and_layer_norm(shape: tuple[int, int]) -> None:
    x = RNG.normal(size=shape).astype(np.float32) * 3
    wide = x.astype(np.float64)
    e = np.exp(wide - wide.max(1, keepdims=True, initial=-np.inf))
    np.testing.assert_allclose(results(SOFTMAX, x=x)["y"], e / e.sum(1, keepdims=True), rtol=1e-5)
    text = op("%x: tensor<NxKxf32>, %g: tensor<Kxf32> -> %y: tensor<NxKxf32>, %v: tensor<Nxf32>",
              "%mu[n] = mean[k < K](%x[n, k]) %var[n] = mean[k < K]((%x[n, k] - %mu[n]) ** 2) %v[n] = %var[n] "
              "%y[n, k] = (%x[n, k] - %mu[n]) * rsqrt(%var[n] + 1e-5) * %g[k]")
    g = RNG.random(shape[1], dtype=np.float32)
    if shape[1]:
        want = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5) * g
        out = results(text, x=x, g=g)
        np.testing.assert_allclose(out["y"], want, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(out["v"], wide.var(1), rtol=1e-5, atol=1e-7)


def test_a_reduction_behind_a_condition_is_still_shared() -> None:
    text = op("%x: tensor<NxKxf32>, %m: tensor<NxKxbool> -> %y: tensor<NxKxf32>", "%y[n, k] = select(%m[n, k], %x[n, k] / sum[j < K](exp(%x[n, j])), 0)")
    assert kernel_text(built(text).kernels[-1]).count("combine sum") == 3  # the row in registers by wide accesses or one by one, and without
    x, m = RNG.normal(size=(3, 40)).astype(np.float32), RNG.random((3, 40)) < 0.5
    np.testing.assert_allclose(results(text, x=x, m=m)["y"], np.where(m, x / np.exp(x.astype(np.float64)).sum(1, keepdims=True), 0), rtol=1e-5)


@pytest.mark.parametrize(("size", "kernels"), [("NxK", ["y", "y.parts", "y.join"]), ("40x8", ["y"]), ("900000x64", ["y.parts", "y.join"])])
def test_columns_are_shared_out_among_blocks(size: str, kernels: list[str]) -> None:
    n, k = size.split("x")
    p = built(op(f"%x: tensor<{size}xf32> -> %y: tensor<{k}xf32>", f"%y[k] = max[n < {n}](%x[n, k])"))
    assert [kernel.name.partition(".")[2] for kernel in p.kernels] == kernels
    assert set(shapes(p)) == {"block"}


def test_few_terms_have_a_thread() -> None:
    assert shapes(built(op("%x: tensor<20xKxf32> -> %y: tensor<Kxf32>", "%y[k] = max[n < 20](%x[n, k])"))) == ["grid"]


def test_everything_in_one_number_takes_two_kernels() -> None:
    p = built(op("%x: tensor<HxWxf32> -> %y: tensor<f32>", "%y = sqrt(sum[h < H, w < W](%x[h, w] ** 2))"))
    assert shapes(p) == ["block", "block"]
    assert len(p.temporaries) == 1
    for h, w in ((1, 9000), (9000, 1), (500, 700)):
        parts = [form.evaluate(n, {"H": h, "W": w}) for n in p.temporaries[0].shape]
        assert 1 < parts[0] * parts[1] <= 2 * parts_of.PARTS


# --------------------------------------------------------------------------------------------------------------------- parts


@pytest.mark.parametrize("shape", [(1, 1), (7, 5), (40, 3), (3, 40), (0, 4), (4, 0), (17, 23)])
@pytest.mark.parametrize("empty", ["", "semantic { empty = zero }"])
def test_parts_of_reductions(shape: tuple[int, int], empty: str) -> None:
    x, m = RNG.normal(size=shape).astype(np.float32), RNG.random(shape) < 0.4
    i = RNG.integers(-5, 5, shape).astype(np.int32)
    body = ("%s = sum[n < N, k < K](%x[n, k]) %a = mean[n < N, k < K where %m[n, k]](%x[n, k]) %h = max[n < N, k < K where %m[n, k]](%x[n, k]) "
            "%c[k] = mean[n < N](%x[n, k]) %l[k] = min[n < N](%i[n, k]) %p[k] = prod[n < N](%i[n, k]) %o = any[n < N, k < K](%i[n, k] > 3) "
            "%w[k] = mean[n < N](%i[n, k])")
    out = results(op("%x: tensor<NxKxf32>, %m: tensor<NxKxbool>, %i: tensor<NxKxi32> -> %s: tensor<f32>, %a: tensor<f32>, %h: tensor<f32>, "
                     "%c: tensor<Kxf32>, %l: tensor<Kxi32>, %p: tensor<Kxi32>, %o: tensor<bool>, %w: tensor<Kxf32>", body, empty), x=x, m=m, i=i)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(out["s"], wide.sum(), rtol=1e-5, atol=1e-5)
    nothing: Any = (0.0, 0.0, np.zeros(shape[1])) if empty else (np.nan, -np.inf, np.full(shape[1], np.nan))
    np.testing.assert_allclose(out["a"], wide[m].mean() if m.any() else nothing[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(out["h"], x[m].max() if m.any() else nothing[1])
    np.testing.assert_allclose(out["c"], wide.mean(0) if shape[0] else nothing[2], rtol=1e-5, atol=1e-6)
    lowest = 0 if empty else 2147483647
    assert out["l"].tolist() == (i.min(0).tolist() if shape[0] else [lowest] * shape[1])
    np.testing.assert_array_equal(out["p"].astype(np.int64) & 0xffffffff, np.multiply.reduce(i.astype(np.int64), 0) & 0xffffffff)
    assert out["o"] == (i > 3).any()
    np.testing.assert_allclose(out["w"], i.mean(0) if shape[0] else nothing[2], rtol=1e-6)


@pytest.mark.parametrize("shape", [(1, 1), (9, 4), (40, 3), (3, 30)])
def test_parts_of_winners(shape: tuple[int, int]) -> None:
    x = RNG.integers(0, 6, shape).astype(np.float32)
    text = op("%x: tensor<NxKxf32> -> %a: tensor<i32>, %b: tensor<i32>, %c: tensor<Kxi32>, %d: tensor<i32>",
              "%a = argmax[n < N, k < K](%x[n, k]) %b = argmin[n < N, k < K](%x[n, k]) %c[k] = argmax[n < N](%x[n, k]) %d = argmax[n in 0..N](%x[n, 0])",
              "where K >= 1")
    for spoil in (False, True):
        if spoil:
            x[-1, -1] = x[0, -1] = np.nan
        out = results(text, x=x)
        assert out["a"] == x.argmax()
        assert out["b"] == x.argmin()
        assert out["c"].tolist() == x.argmax(0).tolist()
        assert out["d"] == x[:, 0].argmax()


@pytest.mark.parametrize("text", ["%a = argmax[n < N, k < K](%x[n, k])", "%a = argmin[n < N, k < K](%x[n, k])"])
def test_a_winner_among_nothing(text: str) -> None:
    for shape in ((0, 3), (3, 0)):
        x = np.zeros(shape, np.float32)
        with pytest.raises(Failed, match="over nothing has no value"):
            results(op("%x: tensor<NxKxf32> -> %a: tensor<i32>", text), x=x)
        assert results(op("%x: tensor<NxKxf32> -> %a: tensor<i32>", text, "semantic { empty = zero }"), x=x)["a"] == 0


def test_a_winner_that_no_candidate_can_be() -> None:
    text = op("%x: tensor<HxWxu8> -> %y: tensor<Wxf32>", "%y[w] = argmax[h < H where false](%x[h, w])", "semantic { empty = zero }")
    assert results(text, x=np.ones((3, 2), np.uint8))["y"].tolist() == [0, 0]


def test_channel_statistics_of_images() -> None:
    x = RNG.random((2, 5, 4, 3), dtype=np.float32)
    text = op("%x: tensor<NxHxWxCxf32> -> %y: tensor<NxHxWxCxf32>",
              "%mu[c] = mean[n < N, h < H, w < W](%x[n, h, w, c]) %sd[c] = sqrt(mean[n < N, h < H, w < W]((%x[n, h, w, c] - %mu[c]) ** 2)) "
              "%y[n, h, w, c] = (%x[n, h, w, c] - %mu[c]) / %sd[c]")
    assert shapes(built(text)) == ["block"] * 6 + ["grid"]  # each of the two for all rows, for parts of them, and for what the parts give
    wide = x.astype(np.float64)
    np.testing.assert_allclose(results(text, x=x)["y"], (wide - wide.mean((0, 1, 2))) / wide.std((0, 1, 2)), rtol=1e-4, atol=1e-5)


# ------------------------------------------------------------------------------------------------------------------ products


@pytest.mark.parametrize("shape", [(1, 1, 1), (9, 7, 5), (17, 33, 18), (8, 8, 4), (3, 0, 2), (0, 3, 2), (2, 3, 0)])
def test_products(shape: tuple[int, int, int]) -> None:
    n, k, m = shape
    x, w, b = RNG.normal(size=(n, k)).astype(np.float32), RNG.normal(size=(k, m)).astype(np.float32), RNG.normal(size=m).astype(np.float32)
    text = op("%x: tensor<NxKxf32>, %w: tensor<KxMxf32>, %b: tensor<Mxf32> -> %y: tensor<NxMxf32>",
              "%z[n, m] = sum[k < K](%x[n, k] * %w[k, m]) %y[n, m] = max(%z[n, m] + %b[m], 0)")
    assert [k.threads for k in built(text).kernels] == [small_cut(None, None, None, None).threads]
    want = np.maximum(x.astype(np.float64) @ w.astype(np.float64) + b, 0)
    np.testing.assert_allclose(results(text, x=x, w=w, b=b)["y"], want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("left", "right", "body"), [
    ((3, 6, 10), (3, 10, 5), "sum[k < K](%x[b, i, k] * %w[b, k, j])"), ((3, 6, 10), (3, 5, 10), "sum[k < K](%w[b, j, k] * %x[b, i, k])"),
    ((10, 3, 6), (3, 10, 5), "sum[k < K](%x[k, b, i] * %w[b, k, j])")])
def test_products_in_batches(left: tuple[int, ...], right: tuple[int, ...], body: str) -> None:
    x, w = RNG.integers(-9, 9, left).astype(np.int8), RNG.integers(-9, 9, right).astype(np.int8)
    types = {(3, 6, 10): "BxIxK", (10, 3, 6): "KxBxI", (3, 10, 5): "BxKxJ", (3, 5, 10): "BxJxK"}
    text = op(f"%x: tensor<{types[left]}xi8>, %w: tensor<{types[right]}xi8> -> %y: tensor<BxIxJxi32>", f"%y[b, i, j] = {body}")
    assert built(text).kernels[0].threads
    a = np.moveaxis(x, 0, -1) if left == (10, 3, 6) else x
    b = np.moveaxis(w, 1, 2) if right == (3, 5, 10) else w
    np.testing.assert_array_equal(results(text, x=x, w=w)["y"], a.astype(np.int32) @ b.astype(np.int32))


def test_a_convolution_is_a_product() -> None:
    x, w = RNG.normal(size=(2, 4, 3, 2)).astype(np.float32), RNG.normal(size=(3, 3, 2, 5)).astype(np.float32)
    text = op("%x: tensor<NxHxWxCxf32>, %w: tensor<3x3xCxOxf32> -> %y: tensor<NxHxWxOxf32>",
              "%y[n, h, w, o] = sum[i < 3, j < 3, c < C](%x[n, h + i - 1, w + j - 1, c] * %w[i, j, c, o])",
              "memory { %x { border = [none, constant(0), constant(0), none] } }")
    assert built(text).kernels[0].threads
    p = np.pad(x.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    want = sum(p[:, i:i + 4, j:j + 3] @ w[i, j].astype(np.float64) for i in range(3) for j in range(3))
    np.testing.assert_allclose(results(text, x=x, w=w)["y"], want, rtol=1e-4, atol=1e-5)


def test_exact_products_are_not_fused() -> None:
    text = op("%x: tensor<NxKxf32>, %w: tensor<KxMxf32> -> %y: tensor<NxMxf32>", "%y[n, m] = sum[k < K](%x[n, k] * %w[k, m])", "compile { accuracy = exact }")
    assert "fma" not in program_text(built(text))


# -------------------------------------------------------------------------------------------------------------- transpositions


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 5, 9), (1, 4, 4), (0, 3, 3), (2, 0, 3)])
def test_transpositions_pass_through_shared_memory(shape: tuple[int, int, int]) -> None:
    x, g = RNG.random(shape).astype(np.float16), RNG.random(shape[1:], dtype=np.float32)
    text = op("%x: tensor<NxHxCxf16>, %g: tensor<HxCxf32> -> %y: tensor<NxCxHxf32>", "%y[n, c, h] = 2 * %x[n, h, c] + %g[h, c]")
    p = built(text)
    assert program_text(p).count("shared alloc") == 2
    np.testing.assert_array_equal(results(text, x=x, g=g)["y"], np.moveaxis(2 * x.astype(np.float32) + g, 1, 2))


def test_few_channels_are_read_as_they_lie() -> None:
    p = built(op("%x: tensor<NxHxWx3xf32> -> %y: tensor<Nx3xHxWxf32>", "%y[n, c, h, w] = %x[n, h, w, c]"))
    assert shapes(p) == ["grid"]


# ----------------------------------------------------------------------------------------------------------------- recurrences


def test_a_thread_a_sequence_or_a_block_a_sequence() -> None:
    text = op("%x: tensor<TxCxf64> -> %y: tensor<TxCxf64>", "%y[0, c] = %x[0, c] %y[t < T, c] = %y[t - 1, c] + %x[t, c]", "where T >= 1")
    assert shapes(built(text)) == ["grid"]
    text = op("%x: tensor<TxBxSxf64> -> %y: tensor<TxBxSxf64>",
              "%y[0, b, s] = %x[0, b, s] %y[t < T, b, s] = %x[t, b, s] + max(%y[t - 1, b, s], select(s >= 1, %y[t - 1, b, s - 1], -inf))", "where T >= 1")
    p = built(text)
    assert shapes(p) == ["block"]
    assert program_text(p).count("barrier") == 1
    x = RNG.random((4, 2, 5))
    want = x.copy()
    for t in range(1, 4):
        want[t] += np.maximum(want[t - 1], np.concatenate([np.full((2, 1), -np.inf), want[t - 1, :, :-1]], 1))
    np.testing.assert_array_equal(results(text, x=x)["y"], want)


def test_a_step_with_reductions_over_the_state() -> None:
    x, w = RNG.normal(size=(2, 4, 70)) * 0.1, RNG.normal(size=(70, 70)) * 0.1
    text = op("%x: tensor<NxTxKxf64>, %w: tensor<KxKxf64> -> %h: tensor<NxTxKxf64>, %e: tensor<NxTxf64>",
              "%h[n, 0, k] = %x[n, 0, k] %e[n, 0] = 1 "
              "%h[n, t < T, k] = tanh(sum[j < K](%w[k, j] * %h[n, t - 1, j]) + %x[n, t, k]) / %e[n, t - 1] "
              "%e[n, t < T] = sqrt(sum[j < K](%h[n, t, j] ** 2) + 1)", "where T >= 1")
    h, e = np.zeros((2, 4, 70)), np.ones((2, 4))
    h[:, 0] = x[:, 0]
    for t in range(1, 4):
        h[:, t] = np.tanh(h[:, t - 1] @ w.T + x[:, t]) / e[:, t - 1, None]
        e[:, t] = np.sqrt((h[:, t] ** 2).sum(1) + 1)
    out = results(text, x=x, w=w)
    np.testing.assert_allclose(out["h"], h, rtol=1e-12)
    np.testing.assert_allclose(out["e"], e, rtol=1e-12)
    assert "combine sum" in program_text(built(text))


# ---------------------------------------------------------------------------------------------------------------------- ranks


@pytest.mark.parametrize("size", [1, 2, 3, 65, 130])
def test_rows_are_sorted_by_a_block(size: int) -> None:
    x, m = RNG.integers(0, 9, (2, size)).astype(np.float32), RNG.random((2, size)) < 0.5
    x[0, size // 2] = np.nan
    m[:, 0] = True
    text = op("%x: tensor<NxKxf32>, %m: tensor<NxKxbool> -> %y: tensor<NxKxf32>, %a: tensor<NxKxi32>, %l: tensor<Nxf32>, %at: tensor<Nxi32>",
              "%y[n, r] = nth[k < K](%x[n, k], r) %a[n, r] = argnth[k < K](%x[n, k], r) "
              "%l[n] = nth[k < K where %m[n, k]](%x[n, k], -1) %at[n] = argnth[k < K where %m[n, k]](%x[n, k], 0)")
    p = built(text)
    assert set(shapes(p)) == {"block"}
    assert all("Alloc" not in repr(k) for k in p.kernels)
    out = results(text, x=x, m=m)
    np.testing.assert_array_equal(out["y"], np.sort(x, 1))
    np.testing.assert_array_equal(out["a"], np.argsort(x, 1, kind="stable"))
    for n in range(2):
        chosen = np.flatnonzero(m[n])
        order = chosen[np.argsort(x[n][chosen], kind="stable")]
        assert out["at"][n] == order[0]
        np.testing.assert_array_equal(out["l"][n], x[n][order[-1]])


def test_windows_are_sorted_by_their_thread() -> None:
    p = built(op("%x: tensor<HxWxf32> -> %y: tensor<HxWxf32>", "%y[h, w] = nth[i < 9, j < 9](%x[h + i - 4, w + j - 4], 40)", "memory { border = wrap }"))
    assert shapes(p) == ["grid"]
    assert "alloc %keys: f32[81]" in program_text(p)


# --------------------------------------------------------------------------------------------------------------- many operands


def test_hundreds_of_operands() -> None:
    names = [f"x{i}" for i in range(600)]
    signature = ", ".join(f"%{n}: tensor<2xf32>" for n in names)
    total = built(op(f"{signature} -> %y: tensor<2xf32>", f"%y[i] = {' + '.join(f'%{n}[i]' for n in names)}"))
    assert len(total.kernels[0].buffers) == 601
    joined = built(op(f"{signature} -> %y: tensor<1200xf32>", " ".join(f"%y[i in {2 * k}..{2 * k + 2}] = %{n}[i - {2 * k}]" for k, n in enumerate(names))))
    assert len(joined.kernels) == 10      # many parts in one launch
    assert sum(len(k.buffers) for k in joined.kernels) == 600 + len(joined.kernels)


# ----------------------------------------------------------------------------------------------------------------------- cases


def _case(name: str) -> tuple[Any, dict[str, Any]]:
    report = Report()
    path = CASES / f"{name}.plir"
    module = resolve.resolve(parse(path.read_text(), str(path)), resolve.Options(), report)
    report.stop_if_failed()
    module = infer_types.infer_types(module, infer_types.Options(), report)
    report.stop_if_failed()
    with np.load(CASES / f"{name}.npz") as data:
        return load(module, module.pipelines[0].name), dict(data)


@pytest.mark.parametrize("name", sorted(p.stem for p in CASES.glob("*.plir") if p.stem != "preprocess"))
def test_cases(name: str) -> None:
    pipeline, data = _case(name)
    out = pipeline({n[3:]: v for n, v in data.items() if n.startswith("in.")})
    assert out
    for result, got in out.items():
        want = data[f"out.{result}"]
        if want.dtype.kind == "f":
            usual = {2: (2e-3, 1e-3), 4: (2e-5, 1e-6), 8: (1e-12, 1e-14)}[want.dtype.itemsize]
            rtol, atol = data.get(f"tol.{result}", usual)
            np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=rtol, atol=atol, err_msg=result)
        else:
            np.testing.assert_array_equal(got, want, err_msg=result)


def test_a_resize_with_normalisation_has_a_thread_for_each_place() -> None:
    pipeline, _ = _case("preprocess")          # 150,528 results are too many for an interpreter
    operators = {n.op for n in pipeline.pipeline.nodes}
    programs = [build_gpu(typed_operator(o)) for name, o in pipeline._operators.items() if name in operators and o.compute is not None]
    assert programs
    assert {kind for p in programs for kind in shapes(p)} == {"grid"}
