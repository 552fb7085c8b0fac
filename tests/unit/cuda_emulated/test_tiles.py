"""Chains of stencils by tiles in shared memory, on the emulated GPU, which finds races and shared memory that nobody wrote: against SciPy and NumPy in f64."""
from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import scipy.ndimage

import pipelink_ir as pl
from pipelink_ir.backends.loops.gpu.build import build_gpu
from pipelink_ir.ir.diagnostics import ProgramError
from pipelink_ir.passes.infer.operator import typed_operator
from pipelink_ir.passes.scheduling.derivation import derivation
from pipelink_ir.passes.scheduling.gpu_place import gpu_plan
from pipelink_ir.passes.scheduling.tiles import Tiled

TARGET = "cuda-emulated"
MODES = {"replicate": "nearest", "reflect": "reflect", "reflect101": "mirror", "wrap": "wrap", "constant(2)": "constant"}

BLURS = """op @blur(%x: tensor<NxHxWxCxf32, NHWC>, %k: tensor<5x5xf32>) -> (%y: tensor<NxHxWxCxf32, NHWC>) {{
  memory  {{ border = {border} }}
  compute {{ %y[n, h, w, c] = sum[i < 5, j < 5](%x[n, h + i - 2, w + j - 2, c] * %k[i, j]) }}
}}
pipeline @blurs(%x: tensor<{shape}xf32, NHWC>, %k: tensor<5x5xf32>) -> (%y: tensor<{shape}xf32, NHWC>) {{
  %once  = @blur(%x, %k)
  %twice = @blur(%once, %k)
  %y     = @blur(%twice, %k)
}}
"""


def correlated(x: Any, k: Any, mode: str, times: int) -> Any:
    out = x.astype(np.float64)
    for _ in range(times):
        for n in range(x.shape[0]):
            for c in range(x.shape[3]):
                out[n, :, :, c] = scipy.ndimage.correlate(out[n, :, :, c], k.astype(np.float64), mode=mode, cval=2)
    return out


def tiles(p: Any) -> list[Tiled]:
    """How the kernels of all operators stage locals."""
    out: list[Tiled] = []
    for op in p.module.operators:
        typed, stored = derivation(typed_operator(op), "cuda")
        out += gpu_plan(typed, stored).tiles.values()
    return out


def kernels(p: Any) -> int:
    return sum(len(build_gpu(typed_operator(op)).kernels) for op in p.module.operators)


def run_blurs(p: Any, shape: tuple[int, ...], border: str) -> None:
    rng = np.random.default_rng(sum(shape))
    x, k = rng.standard_normal(shape).astype(np.float32), (rng.standard_normal((5, 5)) / 5).astype(np.float32)
    np.testing.assert_allclose(p(x=x, k=k).y, correlated(x, k, MODES[border], 3), rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("border", MODES)
def test_three_blurs_of_any_size(border: str) -> None:
    p = pl.compile(BLURS.format(border=border, shape="NxHxWxC"), target=TARGET)
    # A wrap reads at the other end of the picture, which is in another tile.
    assert (len(p.pipeline.nodes) == 1 and kernels(p) == 1) is (border != "wrap")
    for shape in ((1, 1, 1, 1), (1, 5, 37, 1), (2, 37, 130, 1), (1, 130, 5, 3), (1, 3, 300, 1), (1, 40, 2, 7), (1, 100, 260, 1)):
        run_blurs(p, shape, border)


@pytest.mark.parametrize("shape", [(1, 5, 37, 1), (1, 37, 130, 3), (2, 96, 64, 4), (1, 1, 130, 7)])
@pytest.mark.parametrize("border", ["replicate", "reflect101", "constant(2)"])
def test_three_blurs_of_known_sizes(border: str, shape: tuple[int, ...]) -> None:
    run_blurs(pl.compile(BLURS.format(border=border, shape="x".join(map(str, shape))), target=TARGET), shape, border)


# ----------------------------------------------------------------------------------------------------------------------- operators

OPERATORS = {
    # One local that two stages read.
    "differences": ("%x: tensor<HxWxf32>, %k: tensor<3x3xf32>", "%y: tensor<HxWxf32>", "%x, %a, %b", """
    %a[h < H, w < W] = sum[i < 3, j < 3](%x[h + i - 1, w + j - 1] * %k[i, j])
    %b[h < H, w < W] = sum[i < 3, j < 3](%a[h + i - 1, w + j - 1] * %k[i, j])
    %y[h, w] = sum[i < 3, j < 3](%b[h + i - 1, w + j - 1] * %k[i, j]) - sum[i < 5](%a[h, w + i - 2])"""),
    # Locals between that are evaluated where they are read.
    "edges": ("%x: tensor<HxWxu8>, %k: tensor<3x3xf32>", "%y: tensor<HxWxf32>", "%x, %b", """
    %b[h < H, w < W] = sum[i < 3, j < 3](f32(%x[h + i - 1, w + j - 1]) * %k[i, j])
    %gx[h < H, w < W] = %b[h - 1, w + 1] + 2 * %b[h, w + 1] + %b[h + 1, w + 1] - %b[h - 1, w - 1] - 2 * %b[h, w - 1] - %b[h + 1, w - 1]
    %gy[h < H, w < W] = %b[h + 1, w - 1] + 2 * %b[h + 1, w] + %b[h + 1, w + 1] - %b[h - 1, w - 1] - 2 * %b[h - 1, w] - %b[h - 1, w + 1]
    %y[h, w] = sqrt(%gx[h, w] * %gx[h, w] + %gy[h, w] * %gy[h, w])"""),
    "channels": ("%x: tensor<HxWx3xf32>, %k: tensor<3x3xf32>", "%y: tensor<HxWx3xf32>", "%x, %a", """
    %a[h < H, w < W, c < 3] = sum[i < 3, j < 3](%x[h + i - 1, w + j - 1, c] * %k[i, j])
    %y[h, w, c] = sum[i < 3, j < 3](%a[h + i - 1, w + j - 1, 2 - c] * %k[i, j]) + %a[h, w, 0]"""),
    "planes, one axis each": ("%x: tensor<NxCxHxWxf16>, %k: tensor<9xf32>", "%y: tensor<NxCxHxWxf16>", "%x, %a", """
    %a[n < N, c < C, h < H, w < W] = sum[i < 9](%x[n, c, h + i - 4, w] * %k[i])
    %y[n, c, h, w] = sum[i < 9](%a[n, c, h, w + i - 4] * %k[i])"""),
    # To one side, so that a mirror shows what is farther away than anything that is read directly.
    "lines": ("%x: tensor<Kx?xf32>, %k: tensor<9xf32>", "%y: tensor<Kx?xf32>", "%x, %a, %b", """
    %a[m < K, n < D0] = sum[i < 9](%x[m, n + i] * %k[i])
    %b[m < K, n < D0] = sum[i < 9](%a[m, n - i] * %k[i])
    %y[m, n] = sum[i < 9](%b[m, n + i] * %k[i])"""),
    # Every place takes a loop of its own.
    "loops": ("%x: tensor<HxWxf32>, %k: tensor<7x7xf32>", "%y: tensor<HxWxf32>", "%x, %a", """
    %a[h < H, w < W] = sum[i < 7, j < 7](%x[h + i - 3, w + j - 3] * %k[i, j])
    %y[h, w] = sum[i < 7, j < 7](%a[h + i - 3, w + j - 3] * %k[i, j])"""),
}
SIZES: dict[str, list[tuple[int, ...]]] = {
    "channels": [(1, 1, 3), (5, 37, 3), (37, 130, 3), (70, 140, 3)], "planes, one axis each": [(1, 1, 5, 37), (2, 3, 37, 130), (1, 1, 80, 3)],
    "lines": [(1, 1), (3, 37), (2, 700)]}


def operator(name: str, border: str, schedule: str = "", rename: dict[str, str] | None = None, reverse: bool = False) -> str:
    inputs, results, bordered, body = (t.replace("Kx?", "KxM").replace("D0", "M") for t in OPERATORS[name])
    lines = body.strip().splitlines()
    if reverse:
        lines.reverse()
    memory = ", ".join(f"{b} {{ border = {border} }}" for b in bordered.split(", "))
    args = ", ".join(re.findall(r"%\w+", inputs))
    text = (f"op @f({inputs}) -> ({results}) {{\n  memory {{ {memory} }}\n{schedule}  compute {{\n" + "\n".join(lines) + "\n  }\n}\n"
            + f"pipeline @p({inputs}) -> ({results}) {{ %y = @f({args}) }}\n")
    for old, new in (rename or {}).items():
        text = re.sub(rf"%{old}\b", f"%{new}", text)
    return text


def arrays(name: str, shape: tuple[int, ...]) -> dict[str, Any]:
    rng = np.random.default_rng(sum(shape))
    dtype = {"edges": np.uint8, "planes, one axis each": np.float16}.get(name, np.float32)
    taps = {"loops": (7, 7), "lines": (9,), "planes, one axis each": (9,)}.get(name, (3, 3))
    return {"x": (rng.random(shape) * 255).astype(dtype) if name == "edges" else rng.standard_normal(shape).astype(dtype),
            "k": (rng.standard_normal(taps) / np.sqrt(np.prod(taps))).astype(np.float32)}


def weighted(x: Any, k: Any, mode: str, axes: tuple[int, ...], origin: int = 0) -> Any:
    shape = [1] * x.ndim
    for a, n in zip(axes, k.shape, strict=True):
        shape[a] = n
    where = [origin if a in axes else 0 for a in range(x.ndim)]
    return scipy.ndimage.correlate(x.astype(np.float64), k.astype(np.float64).reshape(shape), mode=mode, cval=2, origin=where)


def expected(name: str, mode: str, x: Any, k: Any) -> Any:
    if name == "differences":
        a = weighted(x, k, mode, (0, 1))
        return weighted(weighted(a, k, mode, (0, 1)), k, mode, (0, 1)) - weighted(a, np.ones(5), mode, (1,))
    if name == "edges":
        b = weighted(x, k, mode, (0, 1))
        sobel = np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]])
        return np.hypot(weighted(b, sobel, mode, (0, 1)), weighted(b, sobel.T, mode, (0, 1)))
    if name == "channels":
        a = weighted(x, k, mode, (0, 1))
        return weighted(a[..., ::-1], k, mode, (0, 1)) + a[..., :1]
    if name == "loops":
        return weighted(weighted(x, k, mode, (0, 1)), k, mode, (0, 1))
    if name == "lines":
        return weighted(weighted(weighted(x, k, mode, (1,), -4), k[::-1], mode, (1,), 4), k, mode, (1,), -4)
    # The local has the dtype of its values, which is f32 here.
    return weighted(weighted(x, k, mode, (2,)), k, mode, (3,))


@pytest.mark.parametrize(("name", "border"), [(name, border) for k, name in enumerate(OPERATORS) for border in MODES
                                              if border != "wrap" and (name == "lines" or border == ("reflect", "constant(2)", "replicate", "reflect101")[k % 4])])
def test_operators(name: str, border: str) -> None:
    p = pl.compile(operator(name, border), target=TARGET)
    stored = "  schedule { " + ", ".join(f"{t} {{ place = buffer }}" for t in OPERATORS[name][2].split(", ")[1:]) + " }\n"
    apart = pl.compile(operator(name, border, stored), target=TARGET)
    assert len(tiles(p)) == 1
    assert not tiles(apart)
    assert kernels(p) == 1 < kernels(apart)
    tolerance = 2e-3 if name.startswith("planes") else 1e-4
    for shape in SIZES.get(name, [(1, 1), (5, 37), (37, 130), (70, 280), (90, 2)]):
        given = arrays(name, shape)
        got = np.asarray(p(**given).y)
        want = expected(name, MODES[border], **given)
        np.testing.assert_allclose(got.astype(np.float64), want, rtol=tolerance, atol=tolerance * max(1.0, float(np.abs(want).max())))
        assert got.tobytes() == np.asarray(apart(**given).y).tobytes()


def test_what_reads_inside_alone_needs_no_border() -> None:
    text = """op @f(%x: tensor<(P + 4)x(Q + 4)xf32>, %k: tensor<3x3xf32>) -> (%y: tensor<PxQxf32>) {
      compute {
        %a[h < P + 2, w < Q + 2] = sum[i < 3, j < 3](%x[h + i, w + j] * %k[i, j])
        %y[h, w] = sum[i < 3, j < 3](%a[h + i, w + j] * %k[i, j]) } }
    pipeline @p(%x: tensor<(P + 4)x(Q + 4)xf32>, %k: tensor<3x3xf32>) -> (%y: tensor<PxQxf32>) { %y = @f(%x, %k) }"""
    p = pl.compile(text, target=TARGET)
    assert kernels(p) == 1 == len(tiles(p))
    for shape in ((5, 5), (41, 134), (84, 204)):
        x, k = (np.random.default_rng(1).standard_normal(s).astype(np.float32) for s in (shape, (3, 3)))
        want = weighted(weighted(x, k, "nearest", (0, 1)), k, "nearest", (0, 1))[2:-2, 2:-2]
        np.testing.assert_allclose(p(x=x, k=k).y, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode", ["wrap", "reflect101", "replicate"])
def test_a_border_that_nobody_asks_for(mode: str) -> None:
    """%b is read where %c is, which lies inside through its own border: beside the array there is nothing of %b in the tile, and nothing to compute it from."""
    text = f"""op @f(%x: tensor<HxWxf32>) -> (%y: tensor<HxWxf32>) {{
      memory {{ %x {{ border = constant(1.5) }}, %a {{ border = reflect101 }}, %b {{ border = {mode} }}, %c {{ border = reflect101 }} }}
      schedule {{ target = cuda, %a {{ place = shared, at = %y }}, %b {{ place = shared, at = %y }}, %c {{ place = inline }}, %y {{ map = tile }} }}
      compute {{
        %a[h, w] = (%x[h - 1, w + 1] + %x[h, w]) / 2
        %b[h, w] = (%a[h - 1, w + 2] + %a[h + 1, w]) / 2
        %c[h, w] = %a[h - 1, w + 1] + %a[h + 1, w] - %b[h, w] / 3
        %y[h, w] = sum[i < 3, j < 3](%c[h + i - 1, w + j - 1]) / 9 }} }}
    pipeline @p(%x: tensor<HxWxf32>) -> (%y: tensor<HxWxf32>) {{ %y = @f(%x) }}"""
    p = pl.compile(text, target=TARGET)
    assert kernels(p) == 1 == len(tiles(p))
    for shape in ((1, 1), (2, 64), (49, 97), (64, 64), (97, 5)):
        x = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
        around = np.pad(x.astype(np.float64), 1, constant_values=1.5)
        a = (around[:-2, 2:] + x) / 2

        def moved(v: Any, dy: int, dx: int) -> Any:
            rows, columns = (_mirrored(np.arange(n) + d, n) for n, d in zip(v.shape, (dy, dx), strict=True))
            return v[np.ix_(rows, columns)]

        c = moved(a, -1, 1) + moved(a, 1, 0) - (moved(a, -1, 2) + moved(a, 1, 0)) / 2 / 3
        want = sum(moved(c, i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)) / 9
        np.testing.assert_allclose(p(x=x).y, want, rtol=1e-4, atol=1e-5)


def _mirrored(i: Any, n: int) -> Any:
    """Indices through a mirror that does not repeat the ends."""
    i = np.mod(i, max(2 * n - 2, 1))
    return np.where(i < n, i, 2 * n - 2 - i)


def test_names_and_order_change_nothing() -> None:
    one = pl.compile(operator("differences", "reflect"), target=TARGET)
    other = pl.compile(operator("differences", "reflect", rename={"a": "z", "b": "alpha"}, reverse=True), target=TARGET)
    given = arrays("differences", (37, 130))
    assert np.asarray(one(**given).y).tobytes() == np.asarray(other(**given).y).tobytes()
    (a,), (b,) = tiles(one), tiles(other)
    assert (a.tile, a.run, a.reach, len(a.asks)) == (b.tile, b.run, b.reach, len(b.asks))
    assert [(s.low, s.high) for s in a.stages] == [(s.low, s.high) for s in b.stages]


# ---------------------------------------------------------------------------------------------------------------- what is declined

DECLINED = {
    "far": "%a[h, w + 300] + %a[h, w - 300] + %a[h + 1, w]",
    "by data": "%a[h + %at[h, w], w] + %a[h + 1, w] + %a[h, w + 1]",
    "twice as far": "%a[2 * h, w] + %a[h + 1, w] + %a[h, w + 1]",
    "turned": "%a[H - 1 - h, w] + %a[h + 1, w] + %a[h, w + 1]",
}


@pytest.mark.parametrize("name", DECLINED)
def test_is_declined(name: str) -> None:
    text = f"""op @f(%x: tensor<HxWxf32>, %at: tensor<HxWxi32>) -> (%y: tensor<HxWxf32>) {{
      memory {{ %x {{ border = replicate }}, %a {{ border = replicate }} }}
      compute {{
        %a[h < H, w < W] = sum[i < 5, j < 5](exp(%x[h + i - 2, w + j - 2]))
        %y[h, w] = {DECLINED[name]} + f32(%at[h, w]) }} }}
    pipeline @p(%x: tensor<HxWxf32>, %at: tensor<HxWxi32>) -> (%y: tensor<HxWxf32>) {{ %y = @f(%x, %at) }}"""
    p = pl.compile(text, target=TARGET)
    assert not tiles(p)
    x, at = np.random.default_rng(2).standard_normal((9, 11)).astype(np.float32), np.ones((9, 11), np.int32)
    a = weighted(np.pad(np.exp(x.astype(np.float64)), 2, mode="edge"), np.ones((5, 5)), "constant", (0, 1))[2:-2, 2:-2]
    rows, columns = np.mgrid[:9, :11]

    def read(dh: Any, dw: Any) -> Any:
        return a[np.clip(dh, 0, 8), np.clip(dw, 0, 10)]

    near = read(rows + 1, columns) + read(rows, columns + 1)
    want = {"far": read(rows, columns + 300) + read(rows, columns - 300) + read(rows + 1, columns), "by data": read(rows + 1, columns) + near,
            "twice as far": read(2 * rows, columns) + near, "turned": read(8 - rows, columns) + near}[name]
    np.testing.assert_allclose(p(x=x, at=at).y, want + 1, rtol=1e-4)


# ------------------------------------------------------------------------------------------------------------------- what is asked


def test_a_tile_of_another_size_is_followed() -> None:
    p = pl.compile(operator("differences", "replicate", "  schedule { %y { map = tile(8, 32) } }\n"), target=TARGET)
    assert [t.tile for t in tiles(p)] == [(8, 32)]
    given = arrays("differences", (37, 130))
    np.testing.assert_allclose(p(**given).y, expected("differences", "nearest", **given), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("schedule", "why"), [
    ("%a { place = shared, at = %y }, %b { place = buffer }", "not read at constant distances by one definition alone"),
    ("%a { place = buffer }, %b { place = buffer }, %y { map = tile(3, 30) }", "nothing that a kernel of the kind 'tile' computes")])
def test_what_cannot_be_followed_is_an_error(schedule: str, why: str) -> None:
    with pytest.raises(ProgramError, match=why):
        pl.compile(operator("differences", "replicate", f"  schedule {{ {schedule} }}\n"), target=TARGET)
