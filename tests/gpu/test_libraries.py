"""Products that cuBLASLt computes, against NumPy in f64: every epilogue, every dtype, factors turned either way, batches, odd places in memory, graphs."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pipelink_ir as pl
from pipelink_ir.backends.cuda import cublaslt

pytestmark = pytest.mark.gpu

PROGRAM = """op @mm(%x: tensor<XSHAPExIN>, %w: tensor<WSHAPExIN>, %b: tensor<NxOUT>) -> (%y: tensor<YSHAPExOUT>) {
  compile { library = cublaslt, fast_math = true MORE }
  compute { BODY }
}
pipeline @p(%x: tensor<XSHAPExIN>, %w: tensor<WSHAPExIN>, %b: tensor<NxOUT>) -> (%y: tensor<YSHAPExOUT>) { %y = @mm(%x, %w, %b) }
"""
SUM = "sum[k < K](%x[i, k] * %w[k, j])"
BODIES = {
    "plain": f"%y[i, j] = {SUM}", "bias": f"%y[i, j] = {SUM} + %b[j]", "scale": f"%y[i, j] = 0.5 * {SUM} + %b[j]",
    "gelu": f"%s[i, j] = {SUM} + %b[j] %y[i, j] = 0.5 * %s[i, j] * (1 + tanh(0.7978845608028654 * (%s[i, j] + 0.044715 * %s[i, j] ** 3)))",
}


@pytest.fixture(autouse=True)
def _there() -> None:
    try:
        cublaslt.opened()
    except cublaslt.Missing as missing:
        pytest.skip(f"{missing.why}: {missing.help}")


def program(body: str, given: str = "f16", made: str = "f16", x: str = "MxK", w: str = "KxN", y: str = "MxN", more: str = "") -> Any:
    text = PROGRAM.replace("BODY", body).replace("MORE", more)
    for word, by in (("XSHAPE", x), ("WSHAPE", w), ("YSHAPE", y), ("IN>", f"{given}>"), ("OUT>", f"{made}>")):
        text = text.replace(word, by)
    return pl.compile(text, target="cuda")


def numpy_of(dtype: str) -> Any:
    import ml_dtypes
    return {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}[dtype]


def numbers(shape: tuple[int, ...], dtype: str, scale: float = 1.0) -> Any:
    return (scale * np.random.default_rng(sum(shape)).standard_normal(shape)).astype(numpy_of(dtype))


def made(name: str, s: Any, b: Any) -> Any:
    if name == "gelu":
        s = s + b
        return 0.5 * s * (1 + np.tanh(np.sqrt(2 / np.pi) * (s + 0.044715 * s ** 3)))
    return {"plain": s, "bias": s + b, "scale": 0.5 * s + b}[name]


def wide(a: Any) -> Any:
    return np.asarray(a).astype(np.float64)


@pytest.mark.parametrize(("given", "made_of"), [("f16", "f16"), ("f16", "f32"), ("bf16", "bf16"), ("f32", "f32"), ("f64", "f64")])
@pytest.mark.parametrize("name", BODIES)
def test_epilogues(name: str, given: str, made_of: str) -> None:
    p = program(BODIES[name], given, made_of)
    eps = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-20, "f64": 2.0**-48}[made_of]
    for m, k, n in ((96, 64, 160), (33, 37, 35), (96, 64, 160)):
        x, w, b = numbers((m, k), given), numbers((k, n), given, k**-0.5), numbers((n,), made_of)
        out = wide(p(x=x, w=w, b=b).y)
        want = made(name, wide(x) @ wide(w), wide(b))
        # The library's gelu is an approximation: under `fast_math` alone it is asked for.
        slack = 2e-3 if name == "gelu" else 1e-6
        assert np.abs(out - want).max() <= 2 * eps * np.abs(want).max() + slack


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
def test_sums_that_are_no_numbers_stay(dtype: str) -> None:
    p = program(BODIES["bias"], dtype, dtype)
    for m, k, n in ((256, 64, 128), (33, 37, 35)):
        x, w, b = numbers((m, k), dtype), numbers((k, n), dtype), numbers((n,), dtype)
        x[1, 2], b[5], b[6], b[7] = np.nan, np.nan, np.inf, -np.inf
        out = wide(p(x=x, w=w, b=b).y)
        assert np.isnan(out[1]).all()
        assert np.isnan(out[:, 5]).all()
        assert (out[2:, 6] == np.inf).all()
        assert (out[2:, 7] == -np.inf).all()


def test_factors_that_are_turned_and_batches() -> None:
    p = program("%y[a, i, j] = sum[k < K](%x[a, k, i] * %w[a, j, k]) + %b[j]", "f16", "f32", "AxKxM", "AxNxK", "AxMxN")
    for a, m, k, n in ((3, 48, 64, 80), (1, 16, 16, 16), (2, 21, 19, 23)):
        x, w, b = numbers((a, k, m), "f16"), numbers((a, n, k), "f16", k**-0.5), numbers((n,), "f32")
        want = wide(x).transpose(0, 2, 1) @ wide(w).transpose(0, 2, 1) + wide(b)
        np.testing.assert_allclose(wide(p(x=x, w=w, b=b).y), want, atol=1e-4)


def test_tf32() -> None:
    p = program(BODIES["bias"], "f32", "f32", more=", accuracy = tf32")
    x, w, b = numbers((128, 256), "f32"), numbers((256, 64), "f32", 1 / 16), numbers((64,), "f32")
    np.testing.assert_allclose(wide(p(x=x, w=w, b=b).y), wide(x) @ wide(w) + wide(b), atol=1e-2)


def test_arrays_that_begin_anywhere_and_graphs() -> None:
    cupy = pytest.importorskip("cupy")
    text = PROGRAM.replace("BODY", BODIES["bias"]).replace("MORE", "").replace("XSHAPE", "MxK").replace("WSHAPE", "KxK").replace("YSHAPE", "MxK")
    text = text.replace("%b: tensor<NxOUT>", "%b: tensor<KxOUT>").replace("IN>", "f16>").replace("OUT>", "f16>")
    text = text.replace("{ %y = @mm(%x, %w, %b) }", "{ %a = @mm(%x, %w, %b)\n%y = @mm(%a, %w, %b) }")
    p = pl.compile(text, target="cuda")
    x, w, b = numbers((64, 64), "f16"), numbers((64, 64), "f16", 1 / 8), numbers((64,), "f16")
    held = []
    for n in range(9):
        shift = 1 if n in (4, 7) else 0
        scaled = (x * (1 + n / 16)).astype(np.float16)
        room = cupy.zeros(64 * 64 + 8, np.float16)
        given = room[shift:shift + 64 * 64].reshape(64, 64)
        given.set(scaled)
        held += [room]
        out = cupy.asnumpy(p(x=given, w=cupy.asarray(w), b=cupy.asarray(b)).y)
        a = (wide(scaled) @ wide(w) + wide(b)).astype(np.float16)
        want = wide(a) @ wide(w) + wide(b)
        np.testing.assert_allclose(wide(out), want, atol=2.0**-9 * np.abs(want).max())
    assert "kept" in str(p.executable.statistics["graphs"])


def test_what_the_library_does_not_do_for_some_sizes() -> None:
    p = program(BODIES["bias"])
    x, w, b = numbers((24, 0), "f16"), numbers((0, 32), "f16"), numbers((32,), "f16")
    with pytest.raises(pl.ExecutionError, match="takes no sums of no terms"):
        p(x=x, w=w, b=b)
    text = PROGRAM.replace("library = cublaslt", "library = [cublaslt, generated]").replace("BODY", BODIES["bias"]).replace("MORE", "")
    for word, by in (("XSHAPE", "MxK"), ("WSHAPE", "KxN"), ("YSHAPE", "MxN"), ("IN>", "f16>"), ("OUT>", "f16>")):
        text = text.replace(word, by)
    np.testing.assert_array_equal(pl.compile(text, target="cuda")(x=x, w=w, b=b).y, np.broadcast_to(b, (24, 32)))
