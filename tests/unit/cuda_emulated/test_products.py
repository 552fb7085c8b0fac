"""Products on tensor cores, played lane by lane with tiles of full size, against NumPy in f64; and that NVRTC takes them for every architecture."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pipelink_ir.backends.cuda import nvrtc
from pipelink_ir.backends.cuda.emit import emit_program
from pipelink_ir.backends.cuda.emulate import kernels
from pipelink_ir.backends.cuda.emulate.executable import Options, load
from pipelink_ir.backends.cuda.emulate.library import EmulationFault, Text, compile_text
from pipelink_ir.backends.loops.gpu.build import build_gpu
from pipelink_ir.grammar import parse
from pipelink_ir.ir.targets import Arch, parse_arch
from pipelink_ir.ir.typed import TypedOperator
from pipelink_ir.passes.infer.operator import typed_operator
from pipelink_ir.passes.scheduling import streams
from pipelink_ir.passes.scheduling.costs import Plan
from pipelink_ir.passes.scheduling.gpu_place import gpu_plan
from pipelink_ir.passes.scheduling.kernels import kernels_of
from pipelink_ir.passes.scheduling.tensor_cores import TensorCores
from pipelink_ir.runtime.compile import read
from tests.emulated import lowered

RNG = np.random.default_rng(23)
HOPPER = Arch("cuda", 90, "a")
NAMES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "i8": np.int8, "u8": np.uint8, "f32": np.float32,
         "f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2}
Array = np.ndarray[Any, Any]


def array(dtype: str, *shape: int) -> Array:
    if dtype in ("i8", "u8"):
        info = np.iinfo(NAMES[dtype])
        return RNG.integers(info.min, info.max, shape, endpoint=True).astype(NAMES[dtype])
    return RNG.normal(size=shape).astype(NAMES[dtype])


def text_of(left: str, right: str, out: str, value: str, more: str = "", args: str = "%x, %w") -> str:
    signature = f"(%x: tensor<{left}>, %w: tensor<{right}>{more}) -> (%y: tensor<{out}>)"
    return f"op @mm{signature} {{ compute {{ {value} }} }}\npipeline @main{signature} {{\n  %y = @mm({args})\n}}\n"


def run(text: str, arch: Arch | None = None, **arrays: Array) -> Array:
    module = lowered(read(text))
    assert module is not None
    out: Array = np.asarray(load(module, "main", Options(arch=arch))(arrays)["y"])
    return out


def close(got: Array, want: Array, digits: float) -> None:
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=digits, atol=digits * np.abs(want[np.isfinite(want)]).max(initial=1.0))


# -------------------------------------------------------------------------------------------------------------------- mma.sync


@pytest.mark.parametrize(("left", "right"), [("f16", "f16"), ("bf16", "bf16"), ("i8", "i8"), ("u8", "i8"), ("i8", "u8"), ("u8", "u8")])
@pytest.mark.parametrize(("x", "w"), [("ik", "kj"), ("ki", "jk")])
def test_dtypes_and_transposes(left: str, right: str, x: str, w: str) -> None:
    sizes = {"i": ("M", 130), "j": ("N", 136), "k": ("K", 72)}
    a, b = array(left, *(sizes[c][1] for c in x)), array(right, *(sizes[c][1] for c in w))
    first, second = ("x".join(sizes[c][0] for c in names) for names in (x, w))
    out = "i32" if left in ("i8", "u8") else "f32"
    got = run(text_of(f"{first}x{left}", f"{second}x{right}", f"MxNx{out}", f"%y[i, j] = sum[k < K](%x[{', '.join(x)}] * %w[{', '.join(w)}])"), x=a, w=b)
    close(got, np.einsum(f"{x},{w}->ij", a.astype(np.float64), b.astype(np.float64)), 0 if out == "i32" else 1e-6)


@pytest.mark.parametrize("shape", [(1, 129, 17), (129, 17, 7), (17, 1, 129), (7, 7, 1), (1, 1, 1), (64, 256, 8), (0, 5, 3), (3, 0, 5)])
def test_odd_sizes(shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    x, w = array("f16", m, k), array("f16", k, n)
    got = run(text_of("MxKxf16", "KxNxf16", "MxNxf32", "%y[i, j] = sum[k < K](%x[i, k] * %w[k, j])"), x=x, w=w)
    close(got, x.astype(np.float64) @ w.astype(np.float64), 1e-6)


@pytest.mark.parametrize(("left", "right", "arch"), [("f8e4m3", "f8e4m3", "sm_75"), ("f8e4m3", "f8e5m2", "sm_89"), ("f8e5m2", "f8e4m3", "sm_86"),
                                                     ("f8e5m2", "f8e5m2", "sm_90"), ("f8e4m3", "f16", "sm_75"), ("bf16", "f8e5m2", "sm_89")])
@pytest.mark.parametrize(("x", "w"), [("ik", "kj"), ("ki", "jk")])
def test_products_of_f8(left: str, right: str, arch: str, x: str, w: str) -> None:
    sizes = {"i": ("M", 70), "j": ("N", 72), "k": ("K", 72)}
    a, b = array(left, *(sizes[c][1] for c in x)), array(right, *(sizes[c][1] for c in w))
    first, second = ("x".join(sizes[c][0] for c in names) for names in (x, w))
    text = text_of(f"{first}x{left}", f"{second}x{right}", "MxNxf32", f"%y[i, j] = sum[k < K](%x[{', '.join(x)}] * %w[{', '.join(w)}])")
    native = arch in ("sm_89", "sm_90") and left[:2] == right[:2]
    assert carriers(text, arch) == ((left, right) if native else ("bf16" if left == "bf16" else "f16",) * 2)
    close(run(text, parse_arch(arch), x=a, w=b), np.einsum(f"{x},{w}->ij", a.astype(np.float64), b.astype(np.float64)), 1e-6)


def test_f8_that_is_no_number_or_infinite() -> None:
    x, w = array("f8e5m2", 33, 40), array("f8e4m3", 40, 24)
    x[3, 5], w[7, 2], x[11, 0] = np.nan, np.nan, -np.inf
    want = x.astype(np.float64) @ w.astype(np.float64)
    assert np.isinf(want[11]).any()
    for arch in ("sm_80", "sm_90"):
        close(run(text_of("MxKxf8e5m2", "KxNxf8e4m3", "MxNxf32", "%y[i, j] = sum[k < K](%x[i, k] * %w[k, j])"), parse_arch(arch), x=x, w=w), want, 1e-5)


def carriers(text: str, arch: str | None = None) -> tuple[str, str]:
    """How the factors of the only product are held."""
    ways = [k.way for k in kernels_of(*planned(text), None if arch is None else parse_arch(arch))]
    assert len(ways) == 1
    assert isinstance(ways[0], TensorCores)
    return ways[0].left.name, ways[0].right.name


def planned(text: str) -> tuple[TypedOperator, Plan]:
    module = lowered(read(text))
    assert module is not None
    op = typed_operator(module.operators[0])
    return op, gpu_plan(op, ())


def tf32_of(x: Array, even: bool = False) -> Array:
    """f32 with 10 bits of fraction, halves away from zero or to the even one."""
    bits = x.view(np.uint32)
    more = np.uint32(0xfff) + (bits >> np.uint32(13) & np.uint32(1)) if even else np.uint32(0x1000)
    return np.where(np.isfinite(x), ((bits + more) & np.uint32(0xffffe000)).view(np.float32), x)


@pytest.mark.parametrize(("x", "w"), [("ik", "kj"), ("ki", "jk")])
@pytest.mark.parametrize("shape", [(130, 72, 136), (33, 41, 23)])
def test_tf32_on_request(x: str, w: str, shape: tuple[int, int, int]) -> None:
    sizes = dict(zip("ikj", zip("MKN", shape, strict=True), strict=True))
    a, b = array("f32", *(sizes[c][1] for c in x)), array("f32", *(sizes[c][1] for c in w))
    first, second = ("x".join(sizes[c][0] for c in names) for names in (x, w))
    text = text_of(f"{first}xf32", f"{second}xf32", "MxNxf32", f"%y[i, j] = sum[k < K](%x[{', '.join(x)}] * %w[{', '.join(w)}])")
    asked = text.replace("compute", "compile { accuracy = tf32 } compute", 1)
    assert carriers(asked) == ("f32", "f32")
    got = run(asked, x=a, w=b)
    close(got, np.einsum(f"{x},{w}->ij", tf32_of(a).astype(np.float64), tf32_of(b).astype(np.float64)), 2e-6)
    want = np.einsum(f"{x},{w}->ij", a.astype(np.float64), b.astype(np.float64))
    close(got, want, 1e-3)
    assert np.abs(got - want).max() > 1e-4  # it was tf32
    assert not any(isinstance(k.way, TensorCores) for k in kernels_of(*planned(text)))  # without being asked it is f32
    assert not any(isinstance(k.way, TensorCores) for k in kernels_of(*planned(asked), parse_arch("sm_75")))


@pytest.mark.parametrize(("x", "w"), [("ik", "kj"), ("ki", "jk"), ("ik", "jk")])
@pytest.mark.parametrize("shape", [(130, 72, 200), (133, 41, 197)])
def test_tf32_that_streams(monkeypatch: pytest.MonkeyPatch, x: str, w: str, shape: tuple[int, int, int]) -> None:
    monkeypatch.setattr(streams, "ENOUGH", 1)
    monkeypatch.setattr(streams, "DEEP", 1)
    sizes = dict(zip("ikj", zip("MKN", shape, strict=True), strict=True))
    a, b = array("f32", *(sizes[c][1] for c in x)), array("f32", *(sizes[c][1] for c in w))
    first, second = ("x".join(sizes[c][0] for c in names) for names in (x, w))
    text = text_of(f"{first}xf32", f"{second}xf32", "MxNxf32", f"%y[i, j] = sum[k < K](%x[{', '.join(x)}] * %w[{', '.join(w)}])")
    got = run(text.replace("compute", "compile { accuracy = tf32 } compute", 1), HOPPER, x=a, w=b)
    assert any(k.endswith(".otherwise") for k in kernels.COUNT.kernels)
    close(got, np.einsum(f"{x},{w}->ij", tf32_of(a, True).astype(np.float64), tf32_of(b, True).astype(np.float64)), 2e-6)


def test_tf32_of_what_is_computed_and_of_halves() -> None:
    x, w = array("f32", 40, 24), array("f16", 24, 32)
    text = text_of("MxKxf32", "KxNxf16", "MxNxf32", "%y[i, j] = sum[k < K](max(%x[i, k], 0) * %w[k, j])").replace(
        "compute", "compile { accuracy = tf32 } compute", 1)
    assert carriers(text) == ("f32", "f32")
    close(run(text, x=x, w=w), tf32_of(np.maximum(x, 0)).astype(np.float64) @ w.astype(np.float64), 2e-6)


def test_small_products_of_known_size_have_small_tiles() -> None:
    x, w = array("f16", 70, 100), array("f16", 100, 72)
    text = text_of("70x100xf16", "100x72xf16", "70x72xf16", "%y[i, j] = sum[k < 100](%x[i, k] * %w[k, j])")
    assert kernels.units_of([lowered(read(text)).operators[0]])[0].program.kernels[0].threads == 128  # type: ignore[union-attr]
    close(run(text, x=x, w=w), x.astype(np.float64) @ w.astype(np.float64), 1e-3)


def test_batches_biases_and_what_follows() -> None:
    x, w, b = array("bf16", 2, 130, 40), array("bf16", 2, 40, 24), array("bf16", 24)
    text = text_of("BxMxKxbf16", "BxKxNxbf16", "BxMxNxf32",
                   "%s[b, i, j] = sum[k < K](%x[b, i, k] * %w[b, k, j]) + %c[j]  %y[b, i, j] = 0.5 * %s[b, i, j] * (1 + erf(0.70710678 * %s[b, i, j]))",
                   ", %c: tensor<Nxbf16>", "%x, %w, %c")
    from math import erf
    s = np.einsum("bik,bkj->bij", x.astype(np.float64), w.astype(np.float64)) + b.astype(np.float64)
    close(run(text, x=x, w=w, c=b), 0.5 * s * (1 + np.vectorize(erf)(0.70710678 * s)), 1e-6)


def test_a_convolution() -> None:
    x, w = array("f16", 2, 6, 5, 16), array("f16", 3, 3, 16, 24)
    text = text_of("NxHxWxCxf16", "3x3xCxOxf16", "NxHxWxOxf32",
                   "%y[n, h, w, o] = sum[i < 3, j < 3, c < C](%x[n, h + i - 1, w + j - 1, c] * %w[i, j, c, o])").replace(
                       "compute", "memory { %x { border = [none, constant(0), constant(0), none] } } compute", 1)
    padded = np.pad(x.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    want = sum(np.einsum("nhwc,co->nhwo", padded[:, i:i + 6, j:j + 5], w[i, j].astype(np.float64)) for i in range(3) for j in range(3))
    close(run(text, x=x, w=w), np.asarray(want), 1e-6)


def test_not_a_number_and_infinity() -> None:
    x, w = array("f16", 33, 40), array("f16", 40, 24)
    x[3, 5], w[7, 2], x[11, 0] = np.nan, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        want = x.astype(np.float64) @ w.astype(np.float64)
    close(run(text_of("MxKxf16", "KxNxf16", "MxNxf32", "%y[i, j] = sum[k < K](%x[i, k] * %w[k, j])"), x=x, w=w), want, 1e-5)


# --------------------------------------------------------------------------------------------------------------------- streams


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Products stream however small they are."""
    for name in ("ENOUGH", "DEEP", "BESIDE"):
        monkeypatch.setattr(streams, name, 1)
    yield
    assert any(k.endswith(".otherwise") for k in kernels.COUNT.kernels)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(("left", "right", "out", "names", "shapes"), [
    ("MxKxf16", "KxNxf16", "MxNxf16", "ik,kj->ij", ((257, 40), (40, 200))), ("KxMxbf16", "NxKxbf16", "MxNxf32", "ki,jk->ij", ((24, 136), (200, 24))),
    ("BxMxKxf16", "BxKxNxf16", "BxMxNxf32", "bik,bkj->bij", ((2, 65, 24), (2, 24, 64))), ("BxMxKxf16", "KxNxf16", "BxMxNxf32", "bik,kj->bij", ((2, 65, 24), (24, 64))),
    ("MxBxKxf16", "BxNxKxf16", "MxBxNxf32", "ibk,bjk->ibj", ((65, 2, 24), (2, 64, 24))), ("MxKxi8", "NxKxu8", "MxNxi32", "ik,jk->ij", ((65, 48), (64, 48))), ("KxMxu8", "KxNxi8", "MxNxi32", "ki,kj->ij", ((80, 144), (80, 80))),
    ("BxMxKxi8", "BxKxNxi8", "BxMxNxi32", "bik,bkj->bij", ((2, 65, 48), (2, 48, 80))), ("MxKxf16", "KxNxf16", "MxNxf32", "ik,kj->ij", ((64, 9), (9, 65))),
    ("MxKxf16", "KxNxf16", "MxNxf16", "ik,kj->ij", ((130, 41), (41, 197))), ("KxMxbf16", "NxKxbf16", "MxNxbf16", "ki,jk->ij", ((21, 131), (195, 21))),
    ("MxBxKxf16", "BxNxKxf16", "MxBxNxf32", "ibk,bjk->ibj", ((65, 3, 9), (3, 63, 9))), ("MxKxi8", "NxKxu8", "MxNxi32", "ik,jk->ij", ((65, 47), (63, 47))),
    ("KxMxu8", "KxNxi8", "MxNxi32", "ki,kj->ij", ((79, 141), (79, 75))), ("BxMxKxi8", "BxKxNxi8", "BxMxNxi32", "bik,bkj->bij", ((2, 65, 33), (2, 33, 80))),
    ("MxKxf8e4m3", "KxNxf8e5m2", "MxNxf32", "ik,kj->ij", ((65, 48), (48, 64))), ("KxMxf8e4m3", "NxKxf8e4m3", "MxNxf16", "ki,jk->ij", ((47, 65), (63, 47))),
    ("MxKxf8e5m2", "KxNxbf16", "MxNxf32", "ik,kj->ij", ((65, 40), (40, 65))), ("BxMxKxf16", "BxKxNxf8e4m3", "BxMxNxf32", "bik,bkj->bij", ((2, 65, 24), (2, 24, 64)))])
def test_products_that_stream(left: str, right: str, out: str, names: str, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    x, w = (array(t.rpartition("x")[2], *shape) for t, shape in zip((left, right), shapes, strict=True))
    first, second = names.split("->")[0].split(",")
    value = f"%y[{', '.join(names.split('->')[1])}] = sum[k < K](%x[{', '.join(first)}] * %w[{', '.join(second)}])"
    want = np.einsum(names, x.astype(np.float64), w.astype(np.float64))
    close(run(text_of(left, right, out, value), HOPPER, x=x, w=w), want, {"f16": 1e-3, "bf16": 4e-3}.get(out.rpartition("x")[2], 1e-6))


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(("dtypes", "names", "sizes"), [
    (("f16", "f16", "f16"), "bhsd,hde->bse", {"b": 2, "h": 3, "s": 70, "d": 16, "e": 200}), (("bf16", "bf16", "f32"), "bhsd,hde->bse", {"b": 3, "h": 2, "s": 21, "d": 20, "e": 40}),
    (("f16", "f16", "f32"), "bhsd,hde->bse", {"b": 1, "h": 2, "s": 33, "d": 9, "e": 64}), (("i8", "i8", "i32"), "bhsd,ehd->bse", {"b": 2, "h": 3, "s": 40, "d": 16, "e": 72}),
    (("f16", "f16", "f32"), "sbk,kn->bsn", {"s": 30, "b": 3, "k": 24, "n": 64}), (("f16", "f16", "f32"), "akbm,nk->abmn", {"a": 2, "k": 24, "b": 3, "m": 16, "n": 65}),
    (("f16", "f8e4m3", "f32"), "mhd,dhn->mn", {"m": 65, "h": 3, "d": 8, "n": 64}), (("f16", "f16", "f32"), "gbhsd,ghde->gbse", {"g": 2, "b": 2, "h": 2, "s": 20, "d": 16, "e": 32})])
def test_factors_whose_axes_lie_in_another_order(dtypes: tuple[str, str, str], names: str, sizes: dict[str, int]) -> None:
    """They are gathered first."""
    (first, second), out = names.split("->")[0].split(","), names.split("->")[1]
    x, w = (array(t, *(sizes[n] for n in axes)) for t, axes in zip(dtypes, (first, second), strict=False))
    summed = [n for n in dict.fromkeys(first + second) if n not in out]
    value = f"%y[{', '.join(out)}] = sum[{', '.join(f'{n} < {n.upper()}' for n in summed)}](%x[{', '.join(first)}] * %w[{', '.join(second)}])"
    left, right, result = ("x".join([*(n.upper() for n in axes), t]) for axes, t in zip((first, second, out), dtypes, strict=True))
    want = np.einsum(names, x.astype(np.float64), w.astype(np.float64))
    close(run(text_of(left, right, result, value), HOPPER, x=x, w=w), want, 1e-3 if dtypes[2] == "f16" else 1e-6)
    assert any(".copied." in k for k in kernels.COUNT.kernels)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("columns", [70, 71, 72, 200])
@pytest.mark.parametrize("out", ["f16", "bf16", "i8", "u16"])
def test_narrow_results_that_four_threads_trade(out: str, columns: int) -> None:
    x, w, b = array("f16", 130, 40), array("f16", columns, 40), array("f16", columns)
    rounded = {"i8": "sat_i8(round(4 * {}))", "u16": "sat_u16(round(900 * {} + 20000))"}.get(out, "{}")
    value = "sum[k < K](%x[i, k] * %w[j, k]) + %c[j]"
    got = run(text_of("MxKxf16", "NxKxf16", f"MxNx{out}", f"%y[i, j] = {rounded.format(f'({value})')}", ", %c: tensor<Nxf16>", "%x, %w, %c"), HOPPER, x=x, w=w, c=b)
    want = x.astype(np.float64) @ w.astype(np.float64).T + b.astype(np.float64)
    if out == "i8":
        assert np.abs(got.astype(np.float64) - np.clip(4 * want, -128, 127)).max() <= 0.5 + 1e-3
    elif out == "u16":
        assert np.abs(got.astype(np.float64) - np.clip(900 * want + 20000, 0, 65535)).max() <= 0.5 + 1e-1
    else:
        close(got, want, 5e-4 if out == "f16" else 4e-3)


# ------------------------------------------------------------------------------------------------------------------- the machine


COPIES = """#define PIPELINK_FRAGMENTS 1
#include "pipelink.cuh"
extern "C" __global__ void late(const int* x, int* y) {
  alignas(16) __shared__ int s[128];
  pipelink::copy_async(&s[4 * threadIdx.x], &x[4 * threadIdx.x], true);
  pipelink::copies_commit();
  %s
  y[threadIdx.x] = s[4 * threadIdx.x];
}
"""


@pytest.mark.parametrize(("between", "why"), [("pipelink::copies_await<0>();", None), ("", "nobody has written"), ("pipelink::copies_await<1>();", "nobody has")])
def test_copies_arrive_when_they_are_waited_for(between: str, why: str | None) -> None:
    from pipelink_ir.backends.cuda.emulate.library import Region
    library = compile_text(Text(COPIES % between, ("late",)))
    x, y = np.arange(128, dtype=np.int32), np.zeros(32, np.int32)
    slots = np.array([x.ctypes.data, y.ctypes.data], np.uint64)
    places = [slots.ctypes.data + 8 * n for n in range(2)]
    regions = [Region("x", x.ctypes.data, x.nbytes, 4, False), Region("y", y.ctypes.data, y.nbytes, 4)]
    if why is None:
        library.launch("late", (1,), (32,), 0, places, regions)
        np.testing.assert_array_equal(y, x[::4])
    else:
        with pytest.raises(EmulationFault, match=why):
            library.launch("late", (1,), (32,), 0, places, regions)


# ----------------------------------------------------------------------------------------------------------------------- NVRTC


@pytest.mark.skipif(not nvrtc.available(), reason="NVRTC is not installed")
@pytest.mark.parametrize(("dtype", "arch"), [("f16", "sm_75"), ("f16", "sm_80"), ("bf16", "sm_86"), ("i8", "sm_89"), ("i8", "sm_75"), ("f16", "sm_90"), ("f16", "sm_90a"),
                                             ("bf16", "sm_90a"), ("i8", "sm_90a"), ("bf16", "sm_100"), ("f16", "sm_120"), ("bf16", "sm_75"),
                                             *((d, f"sm_{n}") for d in ("f8e4m3", "f8e5m2", "tf32") for n in (75, 80, 89, "90a", 100, 120))])
def test_nvrtc_takes_them_without_spills(dtype: str, arch: str) -> None:
    out = "i32" if dtype == "i8" else "f32"
    streams_there = arch == "sm_90a"
    on_cores = arch != "sm_75" or dtype in ("f16", "i8", "f8e4m3", "f8e5m2")
    dtype, more = ("f32", "compile { accuracy = tf32 } ") if dtype == "tf32" else (dtype, "")
    text = f"op @mm(%x: tensor<MxKx{dtype}>, %w: tensor<KxNx{dtype}>) -> (%y: tensor<MxNx{out}>) {{ {more}compute {{ %y[i, j] = sum[k < K](%x[i, k] * %w[k, j]) }} }}"
    op = parse(text, "test.plir").operators[0]
    target = parse_arch(arch)
    assert target is not None
    code = emit_program(build_gpu(typed_operator(op), target), op)
    binary = nvrtc.compile_source(nvrtc.Source(code.text, "kernels.cu"), target)
    assert [u.spill_stores for u in binary.usage.values()] == [0] * len(code.kernels)
    assert "serialized" not in binary.log
    for word, there in (("mma.sync", on_cores), ("cp.async.c", arch != "sm_75"), ("wgmma", streams_there)):
        assert (word in binary.ptx) == there, word
