"""What users of comparable tools reported about quantisation, in programs that a policy lowers: each rule on the processor and on the kernels of several
architectures, with values from exact integers or from the reports. The same of programs that write their codes themselves: tests/unit/test_faults.py."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipelink_ir as pl
from pipelink_ir.ir.diagnostics import ProgramError

F32 = np.float32
TARGETS = ["cpu", "cuda-emulated:sm_75", "cuda-emulated:sm_90"]
PRODUCTS = [*TARGETS, "cuda-emulated:sm_80", "cuda-emulated:sm_89"]
"""Where products of codes have instructions of their own."""

LINEAR = """op @linear(%x: tensor<NxKxf32>, %w: tensor<MxKxf32>) -> (%y: tensor<NxMxf32>) {
  downgrade ARCH { CLAUSE, force = true }
  compute { %y[n, m] = sum[k < K](%x[n, k] * %w[m, k]) }
}
pipeline @p(%x: tensor<SHAPExf32>, param %w: tensor<MxKxf32>) -> (%y: tensor<RESULTxf32>) { %y = @linear(%x, %w) }
"""


def lowered(folder: Path, target: str, clause: str, x: Any, w: Any, seen: list[float], known: bool = False) -> Any:
    """`x` times the transposed `w` on codes, the range of `x` calibrated on the values `seen`; `known`: whether sizes are written."""
    n, k, m = x.shape[0], x.shape[1], len(w)
    text = LINEAR.replace("ARCH", target.rpartition(":")[2]).replace("CLAUSE", clause).replace("SHAPE", f"{n}x{k}" if known else "NxK")
    text = text.replace("RESULT", f"{n}x{m}" if known else "NxM")
    if known:
        text = text.replace("param %w: tensor<MxKxf32>", f"param %w: tensor<{m}x{k}xf32>")
    sample = np.resize(np.array(seen, F32), x.shape)
    file = folder / "ranges.yaml"
    pl.calibrate(text, [{"x": sample, "w": w}], on="cpu", output=file)
    return pl.compile(text, target=target, calibration=file)(x=x, w=w).y


def identity(k: int) -> Any:
    """Weights whose codes are 127 and 0."""
    return np.eye(k, dtype=F32)


@pytest.mark.parametrize("target", TARGETS)
def test_i8_reaches_minus_128(target: str, tmp_path: Path) -> None:
    """A range of 127 on either side has the scale 1."""
    x = np.array([[-129, -128, -127, -126, 126, 127, 128, 129]], F32)
    y = lowered(tmp_path, target, "dtype = i8", x, identity(8), [-127, 127])
    np.testing.assert_allclose(y, [[-128, -128, -127, -126, 126, 127, 127, 127]], rtol=1e-6)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("clause", "seen", "want"), [
    ("dtype = i8", [-63.5, 63.5], [0, 2, 2, 4]),
    ("dtype = u8, scheme = affine, weights = i8", [0, 127.5], [0, 2, 2, 4]),
    ("dtype = u8, scheme = affine, weights = i8", [-1.5, 126], [0, 2, 2, 4]),
])
def test_ties_are_even_before_the_zero_point(target: str, clause: str, seen: list[float], want: list[int], tmp_path: Path) -> None:
    """Scale .5. With the zero point 3 the codes are 3, 5, 5, 7; were it added first, .25 would become 4 or 2."""
    x = np.array([[.25, .75, 1.25, 1.75]], F32)
    y = lowered(tmp_path, target, clause, x, identity(4), seen)
    np.testing.assert_allclose(y, np.array([want], F32) / 2, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("target", TARGETS)
def test_a_quotient_is_not_a_product_with_the_inverse(target: str, tmp_path: Path) -> None:
    """Values beside ties of x / scale, for a scale whose inverse is rounded: each has the code of the true quotient."""
    scale = F32(0.1)
    half = (np.arange(-126, 126, dtype=np.float64) + 0.5) * np.float64(scale)
    near = half.astype(F32)
    x = np.stack([np.nextafter(near, F32(-np.inf)), near, np.nextafter(near, F32(np.inf))])
    y = lowered(tmp_path, target, "dtype = i8", x, identity(x.shape[1]), [-12.7, 12.7])
    want = np.round((x / scale).astype(F32))
    np.testing.assert_array_equal(np.round(y / scale), want)
    assert np.any(want != np.round(x * (F32(1) / scale))), "some value shows the difference"


@pytest.mark.parametrize("target", PRODUCTS)
@pytest.mark.parametrize("known", [False, True])
def test_u8_times_i8_does_not_saturate_in_16_bits(target: str, known: bool, tmp_path: Path) -> None:
    """255 * 127 over K: 64770, 129540, 2072640; and over what kernels cut into tiles."""
    for k in (2, 4, 64, 516):
        x, w = np.full((17, k), 255, F32), np.full((16, k), 127, F32)
        y = lowered(tmp_path, target, "dtype = u8, scheme = affine, weights = i8", x, w, [0, 255], known)
        np.testing.assert_array_equal(y, np.full((17, 16), 255 * 127 * k, F32))
    assert (255 * 127 * 2, 255 * 127 * 4, 255 * 127 * 64) == (64770, 129540, 2072640)


@pytest.mark.parametrize("target", TARGETS)
def test_a_dead_channel_comes_back_as_zeros(target: str, tmp_path: Path) -> None:
    """Weights `[[0,0,0,0],[1,-2.1,3,-4]]`, a scale for each row: zeros, and the codes 32, -67, 95, -127. Neither 0 / 0 nor a number beside 0."""
    w = np.array([[0, 0, 0, 0], [1, -2.1, 3, -4]], F32)
    y = lowered(tmp_path, target, "dtype = i8", 127 * identity(4), w, [-127, 127])
    np.testing.assert_array_equal(y[:, 0], np.zeros(4, F32))
    np.testing.assert_array_equal(np.round(y[:, 1] / (4 / 127)), np.array([32, -67, 95, -127]) * 127)
    # A quotient by 0 is a NaN, which i8 forgives and f8 keeps.
    y = lowered(tmp_path, target, "dtype = f8e4m3", identity(4), w, [-1, 1])
    np.testing.assert_array_equal(y[:, 0], np.zeros(4, F32))
    np.testing.assert_allclose(y[:, 1], w[1], rtol=2**-4)


@pytest.mark.parametrize("target", TARGETS)
def test_dead_activations_are_zeros(target: str, tmp_path: Path) -> None:
    """A range of zeros has the scale 1: calibrated on zeros, and found in zeros."""
    x, w = np.zeros((3, 5), F32), np.ones((2, 5), F32)
    for clause in ("dtype = i8", "dtype = i8, ranges = dynamic", "dtype = u8, scheme = affine, weights = i8, ranges = dynamic"):
        np.testing.assert_array_equal(lowered(tmp_path, target, clause, x, w, [0.0]), np.zeros((3, 2), F32))


@pytest.mark.parametrize("target", TARGETS)
def test_body_and_tail_round_alike(target: str, tmp_path: Path) -> None:
    """Quantising at the end of the kernel that makes the values: places of every remainder modulo the vectors have the same codes."""
    text = """op @add(%x: tensor<NxKxf32>, %b: tensor<Kxf32>) -> (%y: tensor<NxKxf32>) { compute { %y[n, k] = %x[n, k] + %b[k] } }
    op @linear(%x: tensor<NxKxf32>, %w: tensor<MxKxf32>) -> (%y: tensor<NxMxf32>) {
      downgrade ARCH { dtype = i8, force = true }
      compute { %y[n, m] = sum[k < K](%x[n, k] * %w[m, k]) }
    }
    pipeline @p(%x: tensor<NxKxf32>, %b: tensor<Kxf32>, param %w: tensor<MxKxf32>) -> (%y: tensor<NxMxf32>) {
      %h = @add(%x, %b)
      %y = @linear(%h, %w)
    }
    """.replace("ARCH", target.rpartition(":")[2])
    pattern = np.array([.25, .75, 1.25, -2.5, 3.4999, -63.9, 64, .2500001, -0.0, 31.749], F32)
    file = tmp_path / "ranges.yaml"
    pl.calibrate(text, [{"x": np.array([[-63.5, 63.5]], F32), "b": np.zeros(2, F32), "w": identity(2)}], on="cpu", output=file)
    run = pl.compile(text, target=target, calibration=file)
    want = np.clip(np.round(pattern / F32(.5)), -128, 127) / 2
    for k in (*range(1, 20), 31, 32, 33, 127, 130):
        x = np.resize(pattern, (1, k))
        np.testing.assert_allclose(run(x=x, b=np.zeros(k, F32), w=identity(k)).y, np.resize(want, (1, k)), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("scale", ["0", "0.0", "-1", "nan", "inf", "-inf", "1e-60"])
@pytest.mark.parametrize("node", ["%y = @std.quantize(%x) {scale = SCALE}", "%q = @std.quantize(%x) {scale = 1}\n %y = @std.dequantize(%q) {scale = SCALE}"])
def test_a_scale_that_is_none_is_an_error_of_the_contract(scale: str, node: str) -> None:
    text = f"pipeline @p(%x: tensor<Nxf32>) -> (%y: tensor<Nx{'f32' if 'dequantize' in node else 'i8'}>) {{\n {node.replace('SCALE', scale)} }}"
    with pytest.raises(ProgramError) as caught:
        pl.compile(text, target="cpu")
    assert caught.value.diagnostics[0].code in ("PL2101", "PL2401")
    assert "scale" in caught.value.diagnostics[0].message


@pytest.mark.parametrize(("dtype", "inside", "beyond"), [("u8", (0, 255), (-1, 256)), ("i8", (-128, 127), (-129, 128))])
def test_a_zero_point_is_a_code(dtype: str, inside: tuple[int, int], beyond: tuple[int, int]) -> None:
    def compiled(zero: int) -> Any:
        return pl.compile(f"pipeline @p(%x: tensor<Nxf32>) -> (%y: tensor<Nx{dtype}>) {{ %y = @std.quantize(%x) {{U = {dtype}, scale = 1, zero = {zero}}} }}\n",
                          target="cpu")
    for zero in inside:
        assert compiled(zero)(x=np.zeros(2, F32)).y.tolist() == [zero] * 2
    for zero in beyond:
        with pytest.raises(pl.ContractViolationError, match=f"zero = {zero}"):
            compiled(zero)
