"""Kernels that users wrote, under policies: called in the dtypes that their contract admits, with casts and codes around; what it does not admit is an error."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipelink_ir as pl

F32 = np.float32

FILE = """
template<class T> __device__ void twice_of(const pipelink::TensorView* x, pipelink::TensorView* y) {
  const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < y->num_elements()) static_cast<T*>(y->data())[i] = T(2.0f * float(static_cast<const T*>(x->data())[i]));
}
extern "C" __global__ void twice(const pipelink::TensorView* x, pipelink::TensorView* y, const void*) {
  if (x->dtype() != y->dtype()) return;
  if (x->dtype() == pipelink::DType::f32) twice_of<float>(x, y);
  if (x->dtype() == pipelink::DType::f16) twice_of<pipelink::f16>(x, y);
  if (x->dtype() == pipelink::DType::bf16) twice_of<pipelink::bf16>(x, y);
}
template<class T> __device__ void turn_of(const pipelink::TensorView* x, pipelink::TensorView* y) {
  const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x, n = y->shape()[1];
  if (i < y->num_elements())
    static_cast<T*>(y->data())[i] = static_cast<const T*>(x->data())[i % n * x->stride()[0] + i / n * x->stride()[1]];
}
extern "C" __global__ void turn(const pipelink::TensorView* x, pipelink::TensorView* y, const void*) {
  if (x->dtype() == pipelink::DType::f32) turn_of<float>(x, y);
  if (x->dtype() == pipelink::DType::i8) turn_of<signed char>(x, y);
}
"""

TWICE = """op @twice(%x: tensor<NxMxT>) -> (%y: tensor<NxMxT>) {
  memory { dtypes = [DTYPES] }
  CLAUSE
  kernel cuda "k.cu" { entry = "twice" }
  COMPUTE
}
"""
COMPUTE = "compute { %y[n, m] = 2 * %x[n, m] }"
ONE = TWICE + "pipeline @p(%x: tensor<NxMxf32>) -> (%y: tensor<NxMxf32>) { %a = @twice(%x) as first  %y = @twice(%a) as second }\n"


def program(folder: Path, text: str, clause: str = "", dtypes: str = "f16, bf16, f32", compute: str = COMPUTE) -> Path:
    (folder / "k.cu").write_text(FILE)
    path = folder / "k.plir"
    path.write_text(text.replace("CLAUSE", clause).replace("DTYPES", dtypes).replace("COMPUTE", compute))
    return path


def run(path: Path, target: str = "cuda-emulated:sm_75", **arrays: Any) -> Any:
    compiled = pl.compile(path, target=target, calibration="off")
    return compiled, compiled(**arrays).y


def drawn(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(F32)


@pytest.mark.parametrize("compute", [COMPUTE, ""])
@pytest.mark.parametrize("shape", [(5, 7), (0, 3), (1, 1), (1, 257)])
def test_a_float_that_the_contract_admits(tmp_path: Path, compute: str, shape: tuple[int, int]) -> None:
    """Doubling is exact, so that the one rounding is that of the first cast."""
    x = drawn(*shape)
    compiled, y = run(program(tmp_path, ONE, "downgrade sm_75 { dtype = f16, force = true }", compute=compute), x=x)
    assert y.dtype == F32
    np.testing.assert_array_equal(y, 4 * x.astype(np.float16).astype(F32))
    assert sum("'@twice' runs in f16" in e.text() for e in compiled.ledger if e.kind == "lowered") == 2
    casts = [e for e in compiled.ledger if e.kind == "cast"]
    assert len(casts) == 2, "one before the two, one behind them"


def test_large_ones_pay_by_themselves(tmp_path: Path) -> None:
    """Without `force`: two kernels that read and write f16, with a cast before and behind, move as much as two of f32; four move less."""
    four = TWICE + """pipeline @p(%x: tensor<NxMxf16>) -> (%y: tensor<NxMxf16>) { %f = @std.cast(%x) {U = f32}
      %a = @twice(%f)  %b = @twice(%a)  %c = @twice(%b)  %d = @twice(%c)  %y = @std.cast(%d) {U = f16} }\n"""
    x = drawn(4, 33).astype(np.float16)
    compiled, y = run(program(tmp_path, four, "downgrade sm_75 { dtype = f16 }"), x=x)
    np.testing.assert_array_equal(y, 16 * x)
    assert sum("'@twice' runs in f16" in e.text() for e in compiled.ledger if e.kind == "lowered") == 4


def test_a_label_lowers_one_of_two(tmp_path: Path) -> None:
    text = TWICE + """op @pair(%x: tensor<NxMxf32>) -> (%y: tensor<NxMxf32>) {
      downgrade sm_75 { precision = mixed, second = bf16, force = true }
      graph { %a = @twice(%x) as first  %y = @twice(%a) as second }
    }
    pipeline @p(%x: tensor<NxMxf32>) -> (%y: tensor<NxMxf32>) { %y = @pair(%x) }\n"""
    x = drawn(3, 50)
    compiled, y = run(program(tmp_path, text, compute=""), x=x)
    import ml_dtypes
    np.testing.assert_array_equal(y, 2 * (2 * x).astype(ml_dtypes.bfloat16).astype(F32))
    assert sum(e.kind == "lowered" for e in compiled.ledger) == 1


def test_the_processor_computes_what_it_means(tmp_path: Path) -> None:
    """On `cpu` the `compute` is what runs, so that any policy may be for it."""
    text = TWICE.replace("%y: tensor<NxMxT>", "%y: tensor<NxT>").replace("twice", "total") + \
        "pipeline @p(%x: tensor<NxMxf32>) -> (%y: tensor<Nxf32>) { %y = @total(%x) }\n"
    x = drawn(6, 40)
    _, y = run(program(tmp_path, text, "downgrade cpu { dtype = i8, force = true }", compute="compute { %y[n] = sum[m < M](%x[n, m]) }"), "cpu", x=x)
    exact = x.astype(np.float64).sum(1)
    scale = np.abs(x).max() / 127
    codes = np.clip(np.round((x / F32(scale)).astype(F32)), -128, 127)
    np.testing.assert_allclose(y, codes.sum(1) * scale, rtol=1e-5, atol=1e-5)
    assert np.abs(y - exact).max() > 1e-5


PRODUCT = """op @turn(%x: tensor<NxMxT>) -> (%y: tensor<MxNxT>) {
  memory { dtypes = [DTYPES] }
  kernel cuda "k.cu" { entry = "turn" }
  compute { %y[m, n] = %x[n, m] }
}
op @lin(%x: tensor<NxKxf32>, %w: tensor<KxMxf32>) -> (%y: tensor<NxMxf32>) {
  downgrade sm_75 { dtype = i8, force = true, ranges = dynamic CLAUSE }
  compute { %y[n, m] = sum[k < K](%x[n, k] * %w[k, m]) }
}
pipeline @p(%x: tensor<KxNxf32>, param %w: tensor<KxKxf32>) -> (%y: tensor<NxKxf32>) {
  %t = @turn(%x)
  %y = @lin(%t, %w)
}
"""


@pytest.mark.parametrize(("dtypes", "clause", "on_codes"), [("i8, f32", "", True), ("f16, f32", "", False), ("f32", "", False)])
def test_a_kernel_that_chooses_works_on_codes_that_it_admits(tmp_path: Path, dtypes: str, clause: str, on_codes: bool) -> None:
    x, w = drawn(24, 10), drawn(24, 24)
    compiled, y = run(program(tmp_path, PRODUCT, clause, dtypes), x=x, w=w)
    assert any("works on codes" in e.text() for e in compiled.ledger) == on_codes
    sx, sw = F32(np.abs(x).max() / F32(127)), (np.abs(w).max(0) / F32(127)).astype(F32)
    qx, qw = np.round((x / sx).astype(F32)).astype(int), np.round((w / sw).astype(F32)).astype(int)
    np.testing.assert_allclose(y, (qx.T @ qw) * (float(sx) * sw.astype(np.float64)), rtol=2e-6, atol=1e-5)


@pytest.mark.parametrize(("value", "on_codes"), [("3.0", False), ("0.0", True)])
def test_constants_of_a_kernel_are_values(tmp_path: Path, value: str, on_codes: bool) -> None:
    """A kernel that puts a number between its values would put it between codes, of which it is another one: it stays on values. 0 has the code 0."""
    text = PRODUCT.replace("%x[n, m] }", f"select(m == 0, {value}, %x[n, m]) }}").replace(", ranges = dynamic", "")
    path = program(tmp_path, text, "", "i8, f32")
    pl.calibrate(path, [{"x": drawn(24, 10), "w": drawn(24, 24)}], on="cpu")
    compiled = pl.compile(path, target="cuda-emulated:sm_75")
    assert any("works on codes" in e.text() for e in compiled.ledger) == on_codes


def test_generated_code_takes_the_place_of_a_kernel(tmp_path: Path) -> None:
    """The kernel of this one computes something else, which shows that it does not run."""
    text = ONE.replace('"twice" }', '"turn" }')
    x = drawn(3, 5)
    _, y = run(program(tmp_path, text, "downgrade sm_75 { library = generated }"), x=x)
    np.testing.assert_array_equal(y, 4 * x)


def test_a_graph_passes_by_what_does_not_admit_it(tmp_path: Path) -> None:
    text = TWICE + """op @lin(%x: tensor<NxKxf32>, %w: tensor<KxMxf32>) -> (%y: tensor<NxMxf32>) { compute { %y[n, m] = sum[k < K](%x[n, k] * %w[k, m]) } }
    op @both(%x: tensor<NxKxf32>, %w: tensor<KxMxf32>) -> (%y: tensor<NxMxf32>) {
      downgrade sm_75 { dtype = i8, force = true, ranges = dynamic }
      graph { %a = @twice(%x)  %y = @lin(%a, %w) }
    }
    pipeline @p(%x: tensor<NxKxf32>, param %w: tensor<KxMxf32>) -> (%y: tensor<NxMxf32>) { %y = @both(%x, %w) }\n"""
    x, w = drawn(4, 30), drawn(30, 8)
    compiled, y = run(program(tmp_path, text), x=x, w=w)
    exact = 2 * x.astype(np.float64) @ w
    assert np.abs(y - exact).max() < 2e-2 * np.abs(exact).max()
    assert any("the kernel of the user's own admits f16, bf16, f32 and no codes of i8" in e.text() for e in compiled.ledger if e.kind == "declined")


def test_the_clause_says_how_large_its_blocks_are(tmp_path: Path) -> None:
    """Where the kernel does not."""
    from pipelink_ir.backends.cuda.user_kernel import user_kernel
    compiled = pl.compile(program(tmp_path, ONE, "downgrade sm_75 { block = 64 }"), target="cuda-emulated:sm_75", calibration="off")
    assert all(len(sizes := user_kernel(o).block or ()) == 1 and getattr(sizes[0], "value", 0) == 64 for o in compiled.module.operators if o.kernel is not None)


# ------------------------------------------------------------------------------------------------------------------------- errors


def test_an_edge_of_a_contract_names_both_clauses(tmp_path: Path) -> None:
    with pytest.raises(pl.ContractViolationError) as caught:
        pl.compile(program(tmp_path, ONE, "downgrade sm_75 { dtype = i8 }"), target="cuda-emulated:sm_75")
    error = caught.value
    assert (error.field, error.operator, error.first.code) == ("downgrade", "twice", "PL4201")
    assert error.got == "the policy asks for i8"
    assert error.expected == "the kernel of '@twice' admits f16, bf16, f32 and no codes of i8"
    assert [n.span.line for n in error.locations] == [3, 2, 4], "the policy, the dtypes, the kernel"


SOFT = """op @soft(%x: tensor<NxMxf32>) -> (%y: tensor<NxMxf32>) {
  ARCH
  downgrade sm_75 { dtype = i8 KEYS }
  compute { %s[n] = sum[k < M](exp(%x[n, k]))  %y[n, m] = exp(%x[n, m]) / %s[n] }
}
pipeline @p(%x: tensor<NxMxf32>) -> (%y: tensor<NxMxf32>) { %y = @soft(%x) }
"""


@pytest.mark.parametrize("keys", ["", ", force = true"])
def test_the_only_way_to_an_architecture_that_is_none(keys: str) -> None:
    """Without the policy the operator is not for sm_75; with it nothing changes: it may not be built there in silence."""
    with pytest.raises(pl.ContractViolationError) as caught:
        pl.compile(SOFT.replace("ARCH", 'compile { arch = ">= sm_80" }').replace("KEYS", keys), target="cuda-emulated:sm_75")
    error = caught.value
    assert (error.field, error.operator, error.edge) == ("downgrade", "soft", "y")
    assert error.got == "sm_75"
    assert error.expected == "'@soft' needs >= sm_80 as it is"
    assert [n.span.line for n in error.locations] == [3, 2, 6]


def test_the_only_way_that_a_graph_passes_by(tmp_path: Path) -> None:
    text = TWICE.replace("CLAUSE", 'compile { arch = ">= sm_80" }') + """op @lin(%x: tensor<NxKxf32>, %w: tensor<KxMxf32>) -> (%y: tensor<NxMxf32>) {
      compute { %y[n, m] = sum[k < K](%x[n, k] * %w[k, m]) } }
    op @both(%x: tensor<NxKxf32>, %w: tensor<KxMxf32>) -> (%y: tensor<NxMxf32>) {
      downgrade sm_75 { dtype = i8 }
      graph { %a = @twice(%x)  %y = @lin(%a, %w) }
    }
    pipeline @p(%x: tensor<NxKxf32>, param %w: tensor<KxMxf32>) -> (%y: tensor<NxMxf32>) { %y = @both(%x, %w) }\n"""
    with pytest.raises(pl.ContractViolationError, match="'@twice' needs >= sm_80 as it is") as caught:
        pl.compile(program(tmp_path, text), target="cuda-emulated:sm_75")
    assert {n.span.line for n in caught.value.locations} >= {3, 11}


def test_a_clause_that_nothing_comes_of_is_told() -> None:
    compiled = pl.compile(SOFT.replace("ARCH", "").replace("KEYS", ""), target="cuda-emulated:sm_75")
    assert [(d.severity, d.code, d.span.line) for d in compiled.diagnostics] == [("warning", "PL4201", 3)]
    assert "nothing comes of this policy on sm_75" in compiled.diagnostics[0].message


ALONE = TWICE + "pipeline @p(%x: tensor<NxMxf32>) -> (%y: tensor<NxMxf32>) { %y = @twice(%x) }\n"


def test_a_kernel_without_a_meaning_needs_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that declares no targets runs on what there is; where that is a processor, it says so at the node."""
    monkeypatch.setattr("pipelink_ir.runtime.compile.best_target", lambda: "cpu")
    path = program(tmp_path, ALONE, "downgrade sm_75 { dtype = f16, force = true, budget = 1e-2 }", compute="")
    x = drawn(2, 3)
    for fails in (lambda: pl.compile(path), lambda: pl.calibrate(path, [{"x": x}], on="cpu", targets="sm_75")):
        with pytest.raises(pl.ProgramError, match="'@twice' is a CUDA kernel alone") as caught:
            fails()
        assert [(d.code, d.span.line) for d in caught.value.diagnostics] == [("PL4001", 7)]
    found = pl.calibrate(path, [{"x": x}], on="cuda-emulated", targets="sm_75")
    assert found.ok
    rounded = 2 * x.astype(np.float16).astype(F32)
    assert found.calibration.errors["sm_75"]["y"] == pytest.approx(np.abs(rounded - 2 * x).max() / np.abs(2 * x).max(), rel=1e-3)


def test_the_rounding_of_a_kernel_counts_in_estimates(tmp_path: Path) -> None:
    """Twice rounded to f16, by 2^-12 of the largest value at most each: more than 3e-4 may be, less than 1e-3 is."""
    for budget, told in (("3e-4", ["PL4302"]), ("1e-3", [])):
        path = program(tmp_path, ALONE, f"downgrade sm_75 {{ dtype = f16, force = true, budget = {budget} }}", compute="")
        compiled = pl.compile(path, target="cuda-emulated:sm_75", calibration="off")
        assert [d.code for d in compiled.diagnostics] == told


@pytest.mark.parametrize(("dtype", "said"), [("i8", "admits f16, bf16, f32 and no codes of i8"), ("f64", "not among its dtypes"), ("f16", None)])
def test_a_label_of_the_project_that_a_kernel_cannot_have(tmp_path: Path, dtype: str, said: str | None) -> None:
    """The project's policy is for several programs, so that it is a warning, at the line of the project file; `dtype` for all passes by in silence."""
    path = program(tmp_path, ONE, compute="")
    (tmp_path / "pipelink.yaml").write_text(f"precision:\n  sm_75: {{precision: mixed, first: {dtype}, force: true}}\n")
    compiled = pl.compile(path, target="cuda-emulated:sm_75", calibration="off")
    assert [(d.severity, d.code, d.span.line) for d in compiled.diagnostics] == ([("warning", "PL4201", 2)] if said else [])
    assert said is None or said in compiled.diagnostics[0].message
    assert any(e.kind == "lowered" for e in compiled.ledger) == (said is None)
    (tmp_path / "pipelink.yaml").write_text(f"precision:\n  sm_75: {{dtype: {dtype}, force: true}}\n")
    assert not pl.compile(path, target="cuda-emulated:sm_75", calibration="off").diagnostics
