"""Whole pipelines on the machine: with other launches, with wide indices, beyond 2^31 elements; and that nothing is left out."""
from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelink_ir.backends.cuda.emulate import kernels
from pipelink_ir.backends.cuda.emulate.executable import EmulatedExecutable, Options, load
from pipelink_ir.ir.diagnostics import ExecutionError
from pipelink_ir.ir.nodes import Module
from pipelink_ir.runtime.compile import read
from tests.cases.stored import stored
from tests.emulated import lowered, prepare

ROOT = Path(__file__).resolve().parents[3]
CASES = sorted((ROOT / "tests" / "cases").glob("*.plir"))
EXAMPLES = sorted((ROOT / "examples").glob("*.plir"))
Array = np.ndarray[Any, Any]


@cache
def _module(program: str | Path) -> Module | None:
    return lowered(read(program))


def executable(program: str | Path, options: Options | None = None) -> EmulatedExecutable:
    module = _module(program)
    assert module is not None
    return load(module, module.pipelines[0].name, options)


@pytest.fixture(scope="module")
def everything() -> int:
    """All programs of the repository, compiled together."""
    return prepare(map(_module, [*CASES, *EXAMPLES]))


def test_nothing_is_left_out(everything: int, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\nkernels for CUDA played on the processor: {everything}; not played: {len(kernels.COUNT.refused)}")
    assert everything > 100
    assert kernels.COUNT.refused == {}


def _compare(path: Path, options: Options) -> None:
    case = stored(path.stem)
    assert not case.wrong(executable(path, options)(case.inputs))


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_with_indices_of_64_bits(everything: int, path: Path) -> None:
    _compare(path, Options(wide=True))


@pytest.mark.parametrize("options", [Options(threads=32, blocks=7), Options(threads=256, blocks=2), Options(threads=1024, blocks=1), Options(shared_block=0)],
                         ids=["many small blocks", "two large ones", "one", "no shared memory"])
@pytest.mark.parametrize("path", [p for p in CASES if p.stem in ("rows", "broadcast", "assemble", "medians")], ids=lambda p: p.stem)
def test_with_other_launches(everything: int, path: Path, options: Options) -> None:
    _compare(path, options)


# --------------------------------------------------------------------------------------------------------------------------- sizes


PICK = """op @pick(%x: tensor<Nxu8>, %i: tensor<Kxi64>) -> (%y: tensor<Kxu8>) { compute { %y[k] = %x[%i[k]] } }
pipeline @main(%x: tensor<Nxu8>, %i: tensor<Kxi64>) -> (%y: tensor<Kxu8>) {
  %y = @pick(%x, %i)
}
"""
CORNERS = """op @corners(%x: tensor<HxWxu8>) -> (%y: tensor<4xi32>) { where H > 0 and W > 0
 compute {
  %y[0] = %x[0, 0]
  %y[1] = %x[0, W - 1]
  %y[2] = %x[H - 1, 0]
  %y[3] = %x[H - 1, W - 1]
} }
pipeline @main(%x: tensor<HxWxu8>) -> (%y: tensor<4xi32>) {
  %y = @corners(%x)
}
"""


def _huge(*shape: int) -> Array:
    """More than 2^31 elements; of their memory, what nobody touches is never there."""
    return np.zeros(shape, np.uint8)


def test_more_elements_than_32_bits_count_with_data_as_indices() -> None:
    n = (1 << 31) + 1000
    x = _huge(n)
    at = np.array([0, 5, (1 << 31) - 1, 1 << 31, n - 1])
    x[at] = [1, 2, 3, 4, 5]
    assert executable(PICK)({"x": x, "i": at})["y"].tolist() == [1, 2, 3, 4, 5]
    with pytest.raises(ExecutionError, match="outside"):
        executable(PICK)({"x": x, "i": np.array([n])})


def test_more_elements_than_32_bits_count_with_computed_indices() -> None:
    h, w = 50_000, 50_000
    x = _huge(h, w)
    x[0, 0], x[0, -1], x[-1, 0], x[-1, -1] = 1, 2, 3, 4
    run = executable(CORNERS)
    assert run({"x": x})["y"].tolist() == [1, 2, 3, 4]
    assert run({"x": x[:3, :4].copy()})["y"].tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 129, 500])
def test_tails(n: int) -> None:
    """Sizes around those of blocks: nothing is written twice, or behind the end."""
    text = """op @twice(%x: tensor<Nxi16>) -> (%y: tensor<Nxi16>, %z: tensor<Nxf16>) { compute { %y[n] = i16(2 * %x[N - 1 - n])
 %z[n] = f32(%x[n]) / 3 } }
pipeline @main(%x: tensor<Nxi16>) -> (%y: tensor<Nxi16>, %z: tensor<Nxf16>) {
  %y, %z = @twice(%x)
}
"""
    x = np.arange(n).astype(np.int16)
    got = executable(text)({"x": x})
    np.testing.assert_array_equal(got["y"], 2 * x[::-1])
    np.testing.assert_array_equal(got["z"], (x.astype(np.float32) / np.float32(3)).astype(np.float16))


# ------------------------------------------------------------------------------------------------------------------- kernels of users

SCALE = """op @scale(%x: tensor<HxWxf32>, invert: bool = false, k: f64 = 1.0, shift: i32 = 0) -> (%y: tensor<WxHxf32>, %n: tensor<1xi64>) {
  kernel cuda "scale.cu" { entry = "scale"BLOCK GRID }
  compute { %y[w, h] = f32(select(invert, -1, 1) * (k * %x[h, w] + shift))
            %n[i] = i64(H * W) }
}
pipeline @main(%x: tensor<HxWxf32>) -> (%y: tensor<WxHxf32>, %n: tensor<1xi64>) {
  %y, %n = @scale(%x) {k = 2.5, shift = 3, invert = true}
}
"""
SCALE_CU = """#include "pipelink.cuh"
#include "own.h"
struct Params { bool invert; double k; int shift; };
extern "C" __global__ void scale(const pipelink::TensorView* x, pipelink::TensorView* y, pipelink::TensorView* n, const Params* params) {
  const long long H = x->shape()[0], W = x->shape()[1];
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < x->num_elements(); i += (long long)gridDim.x * blockDim.x) {
    const long long h = i / W, w = i % W;
    const float value = params->k * static_cast<const float*>(x->data())[h * x->stride()[0] + w] + params->shift;
    static_cast<float*>(y->data())[w * y->stride()[0] + h] = params->invert ? NEGATED(value) : value;
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) *static_cast<long long*>(n->data()) = H * W;
}
"""


def _user(folder: Path, source: str = SCALE_CU, launch: str = "block = [32], grid = [ceildiv(H*W, 64)]") -> EmulatedExecutable:
    (folder / "scale.cu").write_text(source)
    (folder / "own.h").write_text("#define NEGATED(x) (-(x))\n")
    (folder / "scale.plir").write_text(SCALE.replace("BLOCK GRID", f", {launch}" if launch else ""))
    return executable(folder / "scale.plir")


@pytest.mark.parametrize("launch", ["block = [32], grid = [ceildiv(H*W, 64)]", "block = [64]", ""])
def test_a_kernel_of_a_user_with_attributes_and_a_header(tmp_path: Path, launch: str) -> None:
    x = np.arange(77).reshape(7, 11).astype(np.float32)
    got = _user(tmp_path, launch=launch)({"x": x})
    np.testing.assert_array_equal(got["y"], -(2.5 * x.T + 3))
    assert got["n"].tolist() == [77]


@pytest.mark.parametrize(("old", "new", "message"), [
    ("i < x->num_elements()", "i <= x->num_elements()", "reads 4 bytes at element 77 of 'x', which has 77"),
    ("blockIdx.x == 0 && threadIdx.x == 0", "threadIdx.x == 0", r"\[scale.cu:11\] race at 'n'\[0\]"),
    ("static_cast<float*>(y->data())[w", "const_cast<float*>(static_cast<const float*>(x->data()))[w", "writes 'x'.*may only be read"),
])
def test_a_kernel_of_a_user_that_is_wrong(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in SCALE_CU
    with pytest.raises(ExecutionError, match=message):
        _user(tmp_path, SCALE_CU.replace(old, new))({"x": np.ones((7, 11), np.float32)})


def test_a_kernel_of_a_user_that_cannot_be_played(tmp_path: Path) -> None:
    from pipelink_ir.ir.diagnostics import ProgramError
    before = dict(kernels.COUNT.refused)
    with pytest.raises(ProgramError, match=r"cannot be played on the processor.*cuda_fp16"):
        _user(tmp_path, "#include <cuda_fp16.h>\n" + SCALE_CU)
    assert set(kernels.COUNT.refused) - set(before) == {"scale"}
    kernels.COUNT.refused.clear()
