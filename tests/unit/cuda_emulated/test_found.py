"""What the emulated GPU has found, each as a program of its own."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipelink_ir
from tests.emulated import EMULATED

TARGETS = pytest.mark.parametrize("target", ["reference", "cpu", EMULATED])


def _pointwise(operands: str, result: str, value: str) -> str:
    return (f"op @f({operands}) -> ({result}) {{ compute {{ %y[n] = {value} }} }}\n"
            f"pipeline @main({operands}) -> ({result}) {{\n  %y = @f({', '.join(o.partition(':')[0] for o in operands.split(', '))})\n}}\n")


@TARGETS
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_a_quotient_that_is_rounded_down_to_zero_keeps_its_sign(target: str, dtype: str) -> None:
    text = _pointwise(f"%a: tensor<Nx{dtype}>, %b: tensor<Nx{dtype}>", f"%y: tensor<Nx{dtype}>", "%a[n] floordiv %b[n]")
    kind: Any = np.float32 if dtype == "f32" else np.float64
    a, b = np.array([-0.0756, 0.0756, 0.0, -0.0, 0.5], kind), np.array([-1.5, 1.5, -1.5, 1.5, 1e30], kind)
    got = np.asarray(pipelink_ir.compile(text, target=target)(a=a, b=b).y)
    np.testing.assert_array_equal(got, np.floor_divide(a, b))
    np.testing.assert_array_equal(np.signbit(got), [False, False, True, True, False])


@TARGETS
@pytest.mark.parametrize("dtype", ["f16", "f32"])
@pytest.mark.parametrize("divisor", [1e6, 3.0, -3.0, -0.125])
def test_a_quotient_by_a_constant_keeps_the_sign_of_zero(target: str, dtype: str, divisor: float) -> None:
    operands, result = f"%x: tensor<Nx{dtype}>", "%y: tensor<Nxf32>"
    x = np.array([0.0, -0.0, 1.5, -1.5], np.float16 if dtype == "f16" else np.float32)
    wide, by = x.astype(np.float32), np.float32(divisor)
    for value, want in ((f"%x[n] / ({divisor})", wide / by), (f"max[k in 1..6](%x[n]) + %x[n] / ({divisor})", wide + wide / by),
                        (f"-(%x[n] / ({divisor}))", -(wide / by))):
        got = np.asarray(pipelink_ir.compile(_pointwise(operands, result, value), target=target)(x=x).y)
        np.testing.assert_allclose(got, want, 2e-7, 0, err_msg=value)
        np.testing.assert_array_equal(np.signbit(got), np.signbit(want), value)


@TARGETS
def test_indices_that_become_data_wrap(target: str) -> None:
    text = _pointwise("%x: tensor<Nxf32>", "%y: tensor<Nxi64>", "(N + n) ** 31")
    got = np.asarray(pipelink_ir.compile(text, target=target)(x=np.zeros(9, np.float32)).y)
    assert got.tolist() == [((9 + n) ** 31 + 2**63) % 2**64 - 2**63 for n in range(9)]


@pytest.mark.parametrize("target", [EMULATED])
def test_a_users_kernel_gets_attributes_that_are_constant_in_the_call(target: str, tmp_path: Path) -> None:
    """They had become constants of `compute`, and `params` was null."""
    (tmp_path / "k.cu").write_text('extern "C" __global__ void k(const pipelink::TensorView* x, pipelink::TensorView* y, const float* params) '
                                   "{ static_cast<float*>(y->data())[threadIdx.x] = params[0] * static_cast<const float*>(x->data())[threadIdx.x]; }\n")
    (tmp_path / "p.plir").write_text("""op @k(%x: tensor<Nxf32>, gain: f32 = 3.0) -> (%y: tensor<Nxf32>) {
  kernel cuda "k.cu" { block = [N], grid = [1] }
  compute { %y[n] = gain * %x[n] }
}
pipeline @main(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) {
  %y = @k(%x)
}
""")
    x = np.arange(5, dtype=np.float32)
    np.testing.assert_array_equal(np.asarray(pipelink_ir.compile(tmp_path / "p.plir", target=target)(x=x).y), 3 * x)


@TARGETS
@pytest.mark.parametrize(("dtype", "digits"), [("f16", 11), ("bf16", 8), ("f8e5m2", 3), ("f8e4m3", 4)])
def test_an_i64_becomes_a_narrow_float_in_one_rounding(target: str, dtype: str, digits: int) -> None:
    """Half a step and a little more: a double would keep the half alone, and round that to even."""
    text = _pointwise("%x: tensor<Nxi64>", f"%y: tensor<Nx{dtype}>", f"{dtype}(%x[n])")
    # Numbers that a double cannot hold are beyond the range of all but bf16; the others round the integers that they have.
    power = 62 if dtype == "bf16" else digits + 3 if dtype != "f8e4m3" else digits + 2
    step = 1 << (power - digits + 1)
    x = np.array([(1 << power) + step // 2 + d for d in (-1, 0, 1)], np.int64)
    got = np.asarray(pipelink_ir.compile(text, target=target)(x=x).y).astype(np.float64)
    assert got.tolist() == [float(1 << power), float(1 << power), float((1 << power) + step)]


# ------------------------------------------------------------------------------------------- what seeded faults showed to be untested


@TARGETS
@pytest.mark.parametrize(("dtype", "bits"), [("u8", 8), ("i8", 8), ("u16", 16), ("i16", 16)])
def test_an_integer_wraps_inside_an_expression(target: str, dtype: str, bits: int) -> None:
    text = _pointwise("%x: tensor<Nxi32>", "%y: tensor<Nxi32>", f"{dtype}(3 * %x[n]) + {dtype}(f32(%x[n])) * 100000")
    x = np.array([0, 1, -1, 100, 127, 128, 255, 256, 40_000, 65_535, 65_536, -70_000], np.int32)
    low, high = (0, 2**bits - 1) if dtype[0] == "u" else (-2**(bits - 1), 2**(bits - 1) - 1)

    def wrapped(v: int) -> int:
        return (v - low) % 2**bits + low

    want = [((wrapped(3 * v) + min(max(v, low), high) * 100_000) + 2**31) % 2**32 - 2**31 for v in x.tolist()]
    assert np.asarray(pipelink_ir.compile(text, target=target)(x=x).y).tolist() == want


@TARGETS
def test_more_operands_than_a_kernel_has_parameters(target: str) -> None:
    """Their addresses go through a table."""
    names = [f"a{n}" for n in range(520)]
    operands = ", ".join(f"%{n}: tensor<Nxf32>" for n in names)
    text = _pointwise(operands, "%y: tensor<Nxf32>", " + ".join(f"%{n}[n]" for n in names))
    arrays = {n: np.array([k, 2 * k, 1], np.float32) for k, n in enumerate(names)}
    got = np.asarray(pipelink_ir.compile(text, target=target)(**arrays).y)
    assert got.tolist() == [520 * 519 / 2, 520 * 519, 520]


# ----------------------------------------------------------------------------------------------------------- found by codes of weights


def _called(signature: str, result: str, body: str) -> str:
    operands = ", ".join(o.partition(":")[0] for o in signature.split(", "))
    return f"op @f({signature}) -> ({result}) {{ compute {{ {body} }} }}\npipeline @main({signature}) -> ({result}) {{\n  %y = @f({operands})\n}}\n"


@TARGETS
@pytest.mark.parametrize("columns", [9, 200, 600])
def test_sums_of_parts_of_columns(target: str, columns: int) -> None:
    """Their bounds depend on the place along the other axis of the result."""
    text = _called(f"%x: tensor<67x{columns}xi8>", f"%y: tensor<3x{columns}xi32>", "%y[b, j] = sum[k in b * 32..min(b * 32 + 32, 67)](%x[k, j])")
    x = np.random.default_rng(3).integers(-128, 128, (67, columns)).astype(np.int8)
    got = np.asarray(pipelink_ir.compile(text, target=target)(x=x).y)
    np.testing.assert_array_equal(got, [x[k:k + 32].sum(0, dtype=np.int64) for k in (0, 32, 64)])


@TARGETS
@pytest.mark.parametrize("columns", [8, 64])
def test_rows_that_are_computed_of_a_matrix_of_matrices(target: str, columns: int) -> None:
    """Their addresses are sums of several products."""
    text = _called("%x: tensor<3x5x((C + 1) floordiv 2)xOxu8>, %z: tensor<CxOxu8>", "%y: tensor<3x5xCxOxi32>", "%y[a, b, c, o] = %x[a, b, c floordiv 2, o] + 3")
    x = np.random.default_rng(4).integers(0, 256, (3, 5, 2, columns)).astype(np.uint8)
    got = np.asarray(pipelink_ir.compile(text, target=target)(x=x, z=np.zeros((3, columns), np.uint8)).y)
    np.testing.assert_array_equal(got, np.repeat(x.astype(np.int64), 2, axis=2)[:, :, :3] + 3)
