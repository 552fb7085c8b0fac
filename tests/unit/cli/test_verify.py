"""`pipelinkc verify`, with the kernels played on the processor."""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.emulated import NEEDS_COMPILER
from tests.unit.cli.command import Done

Command = Callable[..., Done]
pytestmark = NEEDS_COMPILER

PROGRAM = """op @blend(%a: tensor<NxMxT>, %b: tensor<NxMxT>, gain: f32 = 0.5) -> (%y: tensor<NxMxT>) {
  memory { dtypes = [f32, f16] }
  where N mod 4 == 0
  kernel cuda "blend.cu" { entry = "blend" }
  compute { %y[n, m] = T(gain * f32(%a[n, m]) + f32(%b[n, m])) }
}
pipeline @p(%a: tensor<4x2xf32>, %b: tensor<4x2xf32>) -> (%y: tensor<4x2xf32>) { %y = @blend(%a, %b) }
"""

KERNEL = """using namespace pipelink;
template <typename T> __device__ void run(const TensorView* a, const TensorView* b, TensorView* y, float gain) {
  const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i >= y->num_elements()) return;
  static_cast<T*>(y->data())[i] = T(gain * float(static_cast<const T*>(a->data())[i]) + float(static_cast<const T*>(b->data())[i]));
}
extern "C" __global__ void blend(const TensorView* a, const TensorView* b, TensorView* y, const void* params) {
  const float gain = *static_cast<const float*>(params);
  if (y->dtype() == DType::f32) run<float>(a, b, y, gain);
  else run<types::f16>(a, b, y, gain);
}
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "blend.cu").write_text(KERNEL)
    (tmp_path / "blend.plir").write_text(PROGRAM)
    return tmp_path / "blend.plir"


def test_a_right_kernel(pipelinkc: Command, program: Path) -> None:
    done = pipelinkc("verify", str(program), "--target", "cuda-emulated", "--runs", "6")
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith("@blend: agrees in 12 runs, ")


@pytest.mark.parametrize(("right", "wrong"), [
    ("i >= y->num_elements()", "i >= y->num_elements() - 1"), ("gain * float", "0.5f * float"), ("+ float(", "- float("),
    ("b->data())[i]", "b->data())[i < 1 ? i : i - 1]"),
])
def test_a_wrong_kernel(pipelinkc: Command, program: Path, right: str, wrong: str) -> None:
    assert right in KERNEL
    (program.parent / "blend.cu").write_text(KERNEL.replace(right, wrong))
    done = pipelinkc("verify", str(program), "--target", "cuda-emulated", "--runs", "9")
    assert done.status == 1
    assert "error[PL6301]: verify: the kernel of '@blend' gives another '%y' than its 'compute': at [" in done.err
    assert f"{program}:4:3" in done.err
    again = pipelinkc("verify", str(program), "--target", "cuda-emulated", "--runs", "9")
    assert again.err == done.err


def test_nothing_to_compare(pipelinkc: Command, program: Path) -> None:
    program.write_text("\n".join(line for line in PROGRAM.splitlines() if "compute" not in line) + "\n")
    done = pipelinkc("verify", str(program), "--target", "cuda-emulated")
    assert (done.status, done.out) == (0, "@blend: not compared: it has no 'compute' to compare with\n")


def test_usage(pipelinkc: Command, program: Path) -> None:
    for options, message in ((("--target", "cpu"), "hand-written kernels run on a GPU"), (("--op", "bland", "--target", "cuda-emulated"), "did you mean '@blend'"),
                             (("--runs", "0"), "--runs is 1 or more"), (("--target", "cuda:99"), "")):
        done = pipelinkc("verify", str(program), *options)
        assert done.status == 2
        assert message in done.err


def test_imports_are_found_where_the_project_says(pipelinkc: Command, program: Path) -> None:
    ops = program.parent / "ops"
    ops.mkdir()
    (ops / "half.plir").write_text("op @half(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { compute { %y[n] = 0.5 * %x[n] } }\n")
    (program.parent / "pipelink.yaml").write_text("search_paths: [ops]\n")
    program.write_text(f'import "half.plir"\n{PROGRAM}')
    done = pipelinkc("verify", str(program), "--target", "cuda-emulated", "--runs", "1")
    assert (done.status, done.err) == (0, "")
