"""Products of factors that tensor cores do not take, in every cut, played lane by lane, against NumPy in f64."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pipelink_ir.backends.cuda.emulate.executable import Options, load
from pipelink_ir.grammar import parse
from pipelink_ir.passes.infer.operator import typed_operator
from pipelink_ir.passes.scheduling import cuts
from pipelink_ir.passes.scheduling.gpu_place import gpu_plan
from pipelink_ir.passes.scheduling.kernels import kernels_of
from pipelink_ir.passes.scheduling.products import Product
from pipelink_ir.runtime.compile import read
from tests.emulated import NEEDS_COMPILER, lowered

pytestmark = NEEDS_COMPILER
RNG = np.random.default_rng(31)
Array = np.ndarray[Any, Any]


def text_of(operands: str, out: str, body: str, memory: str = "") -> str:
    signature = f"({operands}) -> ({out})"
    names = ", ".join(p.split(":")[0].strip() for p in operands.split(", ") if p.startswith("%"))
    return f"op @mm{signature} {{ {memory} compute {{ {body} }} }}\npipeline @main{signature} {{ {out.split(':')[0]} = @mm({names}) }}\n"


def cut(text: str) -> cuts.Cut:
    op = typed_operator(parse(text, "test.plir").operators[0])
    way = kernels_of(op, gpu_plan(op, ()))[0].way
    assert isinstance(way, Product)
    return way.cut


def run(text: str, **arrays: Array) -> Array:
    module = lowered(read(text))
    assert module is not None
    out: Array = np.asarray(load(module, "main", Options())(arrays)["y"])
    return out


def array(dtype: str, *shape: int) -> Array:
    return RNG.integers(-99, 99, shape).astype(np.int32) if dtype == "i32" else RNG.normal(size=shape).astype({"f32": np.float32, "f64": np.float64}[dtype])


def product(rows: int, columns: int, terms: int, dtype: str = "f32", x: str = "ik", w: str = "kj") -> tuple[str, Array, Array, Array]:
    """A program, its factors and their product in f64 (i64 for integers)."""
    size = {"i": rows, "j": columns, "k": terms}
    a, b = array(dtype, *(size[c] for c in x)), array(dtype, *(size[c] for c in w))
    types = ["x".join(str(size[c]) for c in name) + f"x{dtype}" for name in (x, w, "ij")]
    text = text_of(f"%x: tensor<{types[0]}>, %w: tensor<{types[1]}>", f"%y: tensor<{types[2]}>",
                   f"%y[i, j] = sum[k < {terms}](%x[{', '.join(x)}] * %w[{', '.join(w)}])")
    wide = np.int64 if dtype == "i32" else np.float64
    return text, a, b, np.einsum(f"{x},{w}->ij", a.astype(wide), b.astype(wide))


def close(got: Array, want: Array, digits: float = 2e-6) -> None:
    np.testing.assert_allclose(got.astype(want.dtype), want, rtol=digits, atol=digits * np.abs(want).max())


# -------------------------------------------------------------------------------------------------------------------- matrices


@pytest.mark.parametrize(("sizes", "tile"), [
    ((8460, 16, 20), (64, 16)), ((4300, 90, 16), (64, 32)), ((900, 900, 24), (64, 64)), ((260, 250, 70), (32, 32)), ((250, 250, 170), (32, 32)), ((49, 516, 68), (16, 32)),
    ((160, 150, 131), (16, 16)), ((49, 100, 260), (8, 16)), ((17, 33, 18), (8, 16)), ((3, 100, 600), (1, 16))])
def test_every_cut(sizes: tuple[int, int, int], tile: tuple[int, int]) -> None:
    text, x, w, want = product(*sizes)
    found = cut(text)
    assert (found.rows, found.columns) == tile
    close(run(text, x=x, w=w), want)


@pytest.mark.parametrize("dtype", ["f32", "f64", "i32"])
@pytest.mark.parametrize(("x", "w"), [("ik", "kj"), ("ki", "kj"), ("ik", "jk"), ("ki", "jk")])
def test_every_layout(dtype: str, x: str, w: str) -> None:
    for sizes in ((52, 72, 96), (51, 71, 97)):
        text, a, b, want = product(*sizes, dtype, x, w)
        got = run(text, x=a, w=b)
        if dtype == "i32":
            np.testing.assert_array_equal(got, want)
        else:
            close(got, want, 2e-6 if dtype == "f32" else 1e-14)


def test_arrays_that_begin_anywhere() -> None:
    text, x, w, want = product(52, 72, 96)

    def moved(a: Array) -> Array:
        out = np.empty(a.size + 1, a.dtype)[1:].reshape(a.shape)
        out[...] = a
        return out

    close(run(text, x=moved(x), w=moved(w)), want)


def test_sizes_that_are_not_known() -> None:
    text = text_of("%x: tensor<MxKxf32>, %w: tensor<KxNxf32>", "%y: tensor<MxNxf32>", "%y[i, j] = sum[k < K](%x[i, k] * %w[k, j])")
    assert cut(text) == cuts.USUAL
    for rows, columns, terms in ((70, 68, 300), (1, 1, 1), (3, 2, 0), (65, 129, 17)):
        x, w = array("f32", rows, terms), array("f32", terms, columns)
        close(run(text, x=x, w=w), x.astype(np.float64) @ w)


def test_long_sums_stay_accurate() -> None:
    x, w = np.full((2, 300_000), 0.1, np.float32), np.ones((300_000, 16), np.float32)
    text = text_of("%x: tensor<2x300000xf32>, %w: tensor<300000x16xf32>", "%y: tensor<2x16xf32>", "%y[i, j] = sum[k < 300000](%x[i, k] * %w[k, j])")
    assert cut(text) == cuts.FEW
    close(run(text, x=x, w=w), x.astype(np.float64) @ w, 1e-5)
    text, x, w, want = product(32, 32, 40_000)
    close(run(text, x=np.abs(x), w=np.abs(w)), np.abs(x).astype(np.float64) @ np.abs(w), 1e-6)
    assert want.shape == (32, 32)


# ----------------------------------------------------------------------------------------------------------------- convolutions


@pytest.mark.parametrize("layout", ["n h v c", "n c h v", "h c v n", "c n v h"])
def test_convolutions_of_single_pixels(layout: str) -> None:
    """Axes that lie side by side everywhere are one."""
    order = layout.split()
    size = {"n": 2, "h": 6, "v": 14, "c": 40, "o": 24}
    x, w, r = array("f32", *(size[k] for k in order)), array("f32", 24, 40), array("f32", *(24 if k == "c" else size[k] for k in order))
    read, out = ", ".join(order), ", ".join(order).replace("c", "o")
    types = ["x".join(str(24 if out and k == "c" else size[k]) for k in order) for out in (False, True)]
    text = text_of(f"%x: tensor<{types[0]}xf32>, %w: tensor<24x40xf32>, %r: tensor<{types[1]}xf32>", f"%y: tensor<{types[1]}xf32>",
                   f"%y[{out}] = sum[c < 40](%x[{read}] * %w[o, c]) + 2 * %r[{out}]")
    letters = "".join(order)
    want = np.einsum(f"{letters},oc->{letters.replace('c', 'o')}", x.astype(np.float64), w.astype(np.float64)) + 2 * r.astype(np.float64)
    close(run(text, x=x, w=w, r=r), want)


def test_pixels_that_are_told_apart() -> None:
    x, w = array("f32", 6, 14, 40), array("f32", 40, 24)
    text = text_of("%x: tensor<6x14x40xf32>, %w: tensor<40x24xf32>", "%y: tensor<6x14x24xf32>", "%y[h, v, o] = sum[c < 40](%x[h, v, c] * %w[c, o]) + f32(h)")
    close(run(text, x=x, w=w), x.astype(np.float64) @ w + np.arange(6)[:, None, None])
    text = text_of("%x: tensor<7x14x40xf32>, %w: tensor<40x24xf32>", "%y: tensor<6x14x24xf32>", "%y[h, v, o] = sum[c < 40](%x[h + 1, v, c] * %w[c, o])")
    x = array("f32", 7, 14, 40)
    close(run(text, x=x, w=w), x[1:].astype(np.float64) @ w)
    text = text_of("%x: tensor<14x6x40xf32>, %w: tensor<40x24xf32>", "%y: tensor<6x14x24xf32>", "%y[h, v, o] = sum[c < 40](%x[v, h, c] * %w[c, o])")
    x = array("f32", 14, 6, 40)
    close(run(text, x=x, w=w), x.transpose(1, 0, 2).astype(np.float64) @ w)


@pytest.mark.parametrize("channels", [3, 8])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("border", ["constant(0)", "replicate"])
def test_convolutions(channels: int, stride: int, border: str) -> None:
    x, w = array("f32", 2, 9, 10, channels), array("f32", 3, 3, channels, 20)
    rows, columns = -(-9 // stride), -(-10 // stride)
    text = text_of(f"%x: tensor<2x9x10x{channels}xf32>, %w: tensor<3x3x{channels}x20xf32>", f"%y: tensor<2x{rows}x{columns}x20xf32>",
                   f"%y[n, h, v, o] = max(sum[i < 3, j < 3, c < {channels}](%x[n, {stride} * h + i - 1, {stride} * v + j - 1, c] * %w[i, j, c, o]), 0)",
                   f"memory {{ %x {{ border = [none, {border}, {border}, none] }} }}")
    assert cut(text).groups > 1
    p = np.pad(x.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)), mode="constant" if border == "constant(0)" else "edge")
    want = sum(p[:, i:i + 9:stride, j:j + 10:stride] @ w[i, j].astype(np.float64) for i in range(3) for j in range(3))
    close(run(text, x=x, w=w), np.maximum(want, 0))


def test_zeros_around_a_picture_are_copied() -> None:
    from pipelink_ir.backends.loops.gpu.build import build_gpu
    from pipelink_ir.backends.loops.print import program_text

    def copies(border: str) -> int:
        text = text_of("%x: tensor<9x10x8xf32>, %w: tensor<3x3x8x20xf32>", "%y: tensor<9x10x20xf32>",
                       "%y[h, v, o] = sum[i < 3, j < 3, c < 8](%x[h + i - 1, v + j - 1, c] * %w[i, j, c, o])",
                       f"memory {{ %x {{ border = [{border}, {border}, none] }} }}")
        return program_text(build_gpu(typed_operator(parse(text, "test.plir").operators[0]))).count("copy")

    assert copies("constant(0)") > copies("constant(1)")
