"""Code of older architectures on the GPU that is here: translated by its driver, it gives the numbers that it gives there."""
from __future__ import annotations

import random
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pipelink_ir as pl
from pipelink_ir.backends.cuda.executable import load
from pipelink_ir.ir.targets import parse_arch
from tests.cases.stored import HERE, PROGRAMS, stored
from tests.fuzz import graphs, pointwise, reductions, stencils
from tests.fuzz.census import Census
from tests.fuzz.check import check_backend, lowered
from tests.fuzz.tape import LENGTH, Tape

pytestmark = pytest.mark.gpu
ARCHS = ("sm_75", "sm_80", "sm_86", "sm_89")
NAMES: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "i8": np.int8, "f8e4m3": ml_dtypes.float8_e4m3fn}
DIGITS = {"f16": 1e-3, "bf16": 8e-3, "f32": 1e-5, "i32": 0.0}
OWN_POLICY = {("attention", "sm_75")}
"""Programs that say what is to become of them there, which needs ranges."""


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_cases(name: str, arch: str) -> None:
    if (name, arch) in OWN_POLICY:
        pytest.skip("its policy for this architecture needs a calibration")
    case, compiled = stored(name), pl.compile(HERE / f"{name}.plir", target=arch)
    for _ in range(3):      # launches, then a graph that is replayed
        assert not case.wrong(dict(compiled(**case.inputs).items()))
    assert all(b.arch.startswith("compute_") and not b.cubin for b in compiled.on_gpu().executable.kernels.binaries)  # type: ignore[attr-defined]


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize(("left", "right", "out"), [("f16", "f16", "f16"), ("bf16", "bf16", "f32"), ("i8", "i8", "i32"), ("f8e4m3", "f8e4m3", "f32"), ("f32", "f32", "f32")])
@pytest.mark.parametrize("sizes", [(300, 320, 200), (70, 41, 90)])
def test_products(arch: str, left: str, right: str, out: str, sizes: tuple[int, int, int]) -> None:
    m, k, n = sizes
    r = np.random.default_rng(m)
    x, w = ((r.integers(-128, 128, s) if t == "i8" else r.normal(size=s)).astype(NAMES[t]) for t, s in ((left, (m, k)), (right, (k, n))))
    signature = f"(%x: tensor<MxKx{left}>, %w: tensor<KxNx{right}>) -> (%y: tensor<MxNx{out}>)"
    text = f"op @mm{signature} {{ compute {{ %y[i, j] = sum[k < K](%x[i, k] * %w[k, j]) }} }}\npipeline @main{signature} {{\n  %y = @mm(%x, %w)\n}}\n"
    got = np.asarray(pl.compile(text, target=arch)(x=x, w=w).y).astype(np.float64)
    want = x.astype(np.float64) @ w.astype(np.float64)
    np.testing.assert_allclose(got, want, rtol=DIGITS[out], atol=DIGITS[out] * np.abs(want).max())


@pytest.mark.parametrize("arch", ["sm_75", "sm_80"])
@pytest.mark.parametrize("area", [pointwise, stencils, reductions, graphs], ids=lambda a: a.__name__.rpartition(".")[2])
@pytest.mark.parametrize("number", range(3))
def test_random_programs(area: Any, arch: str, number: int) -> None:
    program = area.program(Tape(random.Random(f"{area.__name__}:{arch}:{number}").randbytes(LENGTH)))
    front, module = lowered(program)
    check_backend("cuda", load(module, module.pipelines[0].name, {"arch": parse_arch(arch)}), program, front, Census())
