"""What comes out of lowered programs, beside NumPy: dtypes are rounded to and codes computed there in integers, not by the compiler."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pipelink_ir
from pipelink_ir.ir.diagnostics import ProgramError

TARGETS = ("cpu", "cuda-emulated")
F32 = np.float32

LINEAR = """op @linear(%x: tensor<NxKxT>, %w: tensor<KxMxT>, %b: tensor<MxT>) -> (%y: tensor<NxMxT>) {
  memory    { dtypes = [f16, bf16, f8e4m3, f32] }
  downgrade sm_90 { CLAUSE }
  compute   { %y[n, m] = sum[k < K](%x[n, k] * %w[k, m]) + %b[m] }
}
"""
ONE = LINEAR + """pipeline @p(%x: tensor<NxKxf32>, param %w: tensor<KxMxf32>, param %b: tensor<Mxf32>) -> (%y: tensor<NxMxf32>) {
  %y = @linear(%x, %w, %b) as only
}
"""
TWO = LINEAR + """op @relu(%x: tensor<NxMxT>) -> (%y: tensor<NxMxT>) { compute { %y[n, m] = max(%x[n, m], 0) } }
pipeline @p(%x: tensor<NxKxf32>, param %w: tensor<KxMxf32>, param %b: tensor<Mxf32>, param %v: tensor<MxKxf32>, param %c: tensor<Kxf32>)
    -> (%y: tensor<NxKxf32>) {
  %h = @linear(%x, %w, %b) as up
  %a = @relu(%h)
  %y = @linear(%a, %v, %c) as down
}
"""


def compiled(text: str, clause: str, target: str, more: str = "") -> Any:
    options = f"lower-precision{{arch=sm_90,price=false{more}}}"
    return pipelink_ir.compile(text.replace("CLAUSE", clause), target=target, pass_options=options)


def given(n: int = 9, k: int = 40, m: int = 24, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {"x": rng.normal(size=(n, k)).astype(F32), "w": rng.normal(size=(k, m)).astype(F32), "b": rng.normal(size=m).astype(F32),
            "v": rng.normal(size=(m, k)).astype(F32), "c": rng.normal(size=k).astype(F32)}


def some(arrays: dict[str, Any], names: str) -> dict[str, Any]:
    return {name: arrays[name] for name in names}


# -------------------------------------------------------------------------------------------------------------------------- floats


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("dtype", "numpy", "eps"), [("f16", np.float16, 2**-10), ("bf16", ml_dtypes.bfloat16, 2**-7)])
def test_floats_round_at_every_edge(target: str, dtype: str, numpy: Any, eps: float) -> None:
    a = given()

    def rounded(v: Any) -> Any:
        return v.astype(numpy).astype(np.float64)
    h = rounded(rounded(a["x"]) @ rounded(a["w"]) + rounded(a["b"]))
    y = rounded(np.maximum(h, 0) @ rounded(a["v"]) + rounded(a["c"]))
    found = compiled(TWO, f"dtype = {dtype}", target)(**a).y
    assert found.dtype == F32
    # a sum that lies beside the middle between two values of the dtype may be rounded the other way
    np.testing.assert_allclose(found, y, rtol=eps, atol=1e-4)
    assert np.mean(found == y) > 0.95


# --------------------------------------------------------------------------------------------------------------------------- codes


def scale_of(x: Any, axis: int | None = None, top: float = 127) -> Any:
    largest = np.max(np.abs(x), axis=axis).astype(F32)
    return np.where(largest > 0, (largest / F32(top)).astype(F32), F32(1))


def codes(x: Any, scale: Any, zero: int = 0, low: int = -128, high: int = 127) -> Any:
    return np.clip(np.round((x / scale).astype(F32)) + zero, low, high).astype(np.int64)


def integer_linear(x: Any, w: Any, b: Any) -> Any:
    sx, sw = scale_of(x), scale_of(w, axis=0)
    acc = codes(x, sx) @ codes(w, sw)
    return acc * (np.float64(sx) * np.float64(sw)) + b


@pytest.mark.parametrize("target", TARGETS)
def test_i8_is_a_product_of_integers(target: str) -> None:
    a = given()
    want = integer_linear(a["x"], a["w"], a["b"])
    found = compiled(ONE, "dtype = i8, ranges = dynamic", target)(**some(a, "xwb")).y
    np.testing.assert_allclose(found, want, rtol=2e-6, atol=1e-5)
    exact = a["x"].astype(np.float64) @ a["w"] + a["b"]
    assert 1e-4 < np.max(np.abs(found - exact)) / np.max(np.abs(exact)) < 2e-2


@pytest.mark.parametrize("target", TARGETS)
def test_i8_between_two_operators(target: str) -> None:
    a = given()
    h = integer_linear(a["x"], a["w"], a["b"])
    want = integer_linear(np.maximum(h, 0).astype(F32), a["v"], a["c"])
    found = compiled(TWO, "dtype = i8, ranges = dynamic", target)(**a).y
    # a code of the edge in between may be another one where the quotient lies at a tie
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=2 * float(scale_of(h)) * float(np.max(np.abs(a["v"]))))
    assert np.mean(np.abs(found - want) < 1e-4) > 0.9


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["i8", "u8"])
def test_affine_codes_have_a_zero_point(target: str, dtype: str) -> None:
    a = given()
    x = np.abs(a["x"]) + F32(0.5)  # all on one side: the range is [0, max]
    low, high = (-128, 127) if dtype == "i8" else (0, 255)
    sx = F32(np.max(x) / F32(255))
    zx = low
    sw = scale_of(a["w"], axis=0)
    acc = (codes(x, sx, zx, low, high) - zx) @ codes(a["w"], sw)
    want = acc * (np.float64(sx) * np.float64(sw)) + a["b"]
    found = compiled(ONE, f"dtype = {dtype}, scheme = affine, ranges = dynamic", target)(x=x, w=a["w"], b=a["b"]).y
    np.testing.assert_allclose(found, want, rtol=2e-6, atol=2e-5)


@pytest.mark.parametrize("target", TARGETS)
def test_symmetric_codes_of_u8_have_0_in_their_middle(target: str) -> None:
    a = given()
    sx, sw = scale_of(a["x"]), scale_of(a["w"], axis=0)
    assert a["x"].min() < -1
    want = (codes(a["x"], sx, 128, 0, 255) - 128) @ codes(a["w"], sw) * (np.float64(sx) * np.float64(sw)) + a["b"]
    found = compiled(ONE, "dtype = u8, ranges = dynamic", target)(x=a["x"], w=a["w"], b=a["b"]).y
    np.testing.assert_allclose(found, want, rtol=2e-6, atol=2e-5)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("k", [64, 40, 33])
def test_i4_weights_have_blocks(target: str, k: int) -> None:
    a = given(k=k)
    w = np.zeros_like(a["w"])
    for start in range(0, k, 32):
        part = a["w"][start:start + 32]
        scale = scale_of(part, axis=0, top=7)
        w[start:start + 32] = codes(part, scale, 0, -7, 7) * scale
    want = a["x"].astype(np.float64) @ w + a["b"]
    found = compiled(ONE, "weights = i4", target)(**some(a, "xwb")).y
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("target", TARGETS)
def test_f8_has_scales_and_saturates(target: str) -> None:
    a = given()
    sx, sw = scale_of(a["x"], top=448), scale_of(a["w"], axis=0, top=448)

    def f8(v: Any) -> Any:
        return np.clip(v.astype(F32), -448, 448).astype(ml_dtypes.float8_e4m3fn).astype(np.float64)
    want = (f8(a["x"] / sx) @ f8(a["w"] / sw)) * (np.float64(sx) * np.float64(sw)) + a["b"]
    found = compiled(ONE, "dtype = f8e4m3, ranges = dynamic", target)(**some(a, "xwb")).y
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("target", TARGETS)
def test_dead_channels_nan_and_infinities(target: str) -> None:
    a = given()
    a["w"][:, 3] = 0
    a["x"][0, 0], a["x"][1, 1], a["x"][2, 2] = np.inf, -np.inf, np.nan
    finite = np.where(np.isfinite(a["x"]), a["x"], 0)
    sx, sw = scale_of(finite), scale_of(a["w"], axis=0)
    qx = codes(finite, sx)
    qx[0, 0], qx[1, 1], qx[2, 2] = 127, -128, 0  # infinities saturate, a NaN is code 0
    want = (qx @ codes(a["w"], sw)) * (np.float64(sx) * np.float64(sw)) + a["b"]
    found = compiled(ONE, "dtype = i8, ranges = dynamic", target)(**some(a, "xwb")).y
    np.testing.assert_allclose(found, want, rtol=2e-6, atol=1e-5)
    np.testing.assert_array_equal(found[:, 3], np.broadcast_to(a["b"][3], len(found)))


CALIBRATION = """calibration: 1
pipeline: p
method: minmax
samples: 1
edges:
  x: {min: -2.0, max: 2.0, low: -2.0, high: 2.0}
  a: {min: 0.0, max: 10.0, low: 0.0, high: 10.0}
"""


@pytest.mark.parametrize("target", TARGETS)
def test_calibrated_ranges_are_numbers_in_the_program(target: str, tmp_path: Path) -> None:
    path = tmp_path / "p.calibration.yaml"
    path.write_text(CALIBRATION)
    a = given()
    c = compiled(TWO, "dtype = i8", target, f",calibration=\"{path}\"")
    sx, sa, sw, sv = F32(2 / 127), F32(10 / 127), scale_of(a["w"], axis=0), scale_of(a["v"], axis=0)
    h = (codes(a["x"], sx) @ codes(a["w"], sw)) * (np.float64(sx) * np.float64(sw)) + a["b"]
    want = (codes(np.maximum(h, 0).astype(F32), sa) @ codes(a["v"], sv)) * (np.float64(sa) * np.float64(sv)) + a["c"]
    found = c(**a).y
    assert np.mean(np.abs(found - want) < 1e-4) > 0.9
    np.testing.assert_allclose(found, want, atol=2 * 10 / 127 * float(np.max(np.abs(a["v"]))))
    assert not any(o.name.startswith("scale_i8") and not o.results[0].type.dims for o in c.module.operators)


# --------------------------------------------------------------------------------------------------------------- bound parameters


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("clause", ["dtype = f16", "dtype = i8, ranges = dynamic", "dtype = f16, weights = i4", "dtype = i8, scheme = affine, ranges = dynamic"])
def test_what_comes_of_parameters_is_computed_once(target: str, clause: str) -> None:
    a = given()
    c = compiled(TWO, clause, target)
    bound = c.bind(**some(a, "wbvc"))
    np.testing.assert_array_equal(bound(x=a["x"]).y, c(**a).y)
    # Nothing that runs at a call reads a parameter that was cast or coded: it reads what was made of it when it was bound.
    read = {e.name for p in bound.rest.module.pipelines for n in p.nodes for e in getattr(n, "args", ())}
    assert (not read & {"w", "v"} and {"once.w.q", "once.v.q"} & read) or {"once.w.f16", "once.v.f16"} <= read
    # ... so what is in the parameters' arrays later changes nothing.
    before = bound(x=a["x"]).y.copy()
    a["w"][:] = 0
    np.testing.assert_array_equal(bound(x=a["x"]).y, before)


# --------------------------------------------------------------------------------------------------------------------- conditions


def test_sums_that_could_leave_i32_are_a_condition_of_the_call_or_declined() -> None:
    c = compiled(ONE, "dtype = i8, ranges = dynamic", "cpu")
    (where,) = c.pipeline.where
    from pipelink_ir.grammar.printer import print_expr
    limit = 131071
    assert print_expr(where) == f"K <= {limit}"
    assert 128 * 128 * limit < 2 ** 31 <= 128 * 128 * (limit + 1)
    rng = np.random.default_rng(0)
    too_long = {"x": rng.normal(size=(1, limit + 1)).astype(F32), "w": rng.normal(size=(limit + 1, 1)).astype(F32), "b": np.zeros(1, F32)}
    with pytest.raises(ProgramError, match="K <= 131071"):
        c(**too_long)
    static = ONE.replace("xKxf32>, param", "x200000xf32>, param").replace("%w: tensor<Kx", "%w: tensor<200000x", 2).replace("op @linear(%x: tensor<NxKxT>, %w: "
                         "tensor<200000xMxT>", "op @linear(%x: tensor<NxKxT>, %w: tensor<KxMxT>")
    declined = compiled(static, "dtype = i8, ranges = dynamic", "cpu")
    assert [e.kind for e in declined.ledger if "i8" in e.reason or "i32" in e.reason] == ["declined"]


# ------------------------------------------------------------------------------------------------------------------------ errors


def failed(text: str, clause: str, more: str = "") -> str:
    with pytest.raises(ProgramError) as caught:
        compiled(text, clause, "cpu", more)
    return str(caught.value)


def test_ranges_that_a_clause_wants_calibrated_and_nobody_measured() -> None:
    said = failed(ONE, "dtype = i8, ranges = calibrated")
    assert "PL4201" in said
    assert "there is no calibration for '%x'" in said
    assert "ranges = dynamic" in said
    assert "<text>:3:" in said


def test_a_file_without_an_edge_is_an_error_unless_ranges_are_dynamic(tmp_path: Path) -> None:
    path = tmp_path / "p.calibration.yaml"
    path.write_text(CALIBRATION.replace("  a: {min: 0.0, max: 10.0, low: 0.0, high: 10.0}\n", ""))
    said = failed(TWO, "dtype = i8", f",calibration=\"{path}\"")
    assert "has no range of '%a'" in said
    assert "p.calibration.yaml" in said
    compiled(TWO, "dtype = i8, ranges = dynamic", "cpu", f",calibration=\"{path}\"")


def test_a_range_beyond_the_dtype_names_both_clauses() -> None:
    ranged = ONE.replace("downgrade sm_90", "semantic  { %y { range = [0, 100000] } }\n  downgrade sm_90")
    said = failed(ranged, "dtype = f16")
    assert "ends at 65504" in said
    assert "promises values up to 100000" in said
    assert "its range" in said
    compiled(ranged, "dtype = bf16", "cpu")


def test_values_beyond_the_dtype_that_calibration_has_seen(tmp_path: Path) -> None:
    path = tmp_path / "p.calibration.yaml"
    path.write_text(CALIBRATION.replace("max: 10.0, low", "max: 70000.0, low"))
    said = failed(TWO, "dtype = f16", f",calibration=\"{path}\"")
    assert "takes '%a' to f16, which ends at 65504, but calibration has seen 70000 there" in said
    compiled(TWO, "dtype = bf16", "cpu", f",calibration=\"{path}\"")


def test_without_a_calibration_the_ledger_says_how_ranges_are_found() -> None:
    c = compiled(ONE, "dtype = i8", "cpu")
    assert any("since there is no calibration" in e.reason for e in c.ledger)


@pytest.mark.parametrize("target", TARGETS)
def test_plain_f8_rounds_the_factors_alone(target: str) -> None:
    a = given()

    def f8(v: Any) -> Any:
        return v.astype(ml_dtypes.float8_e4m3fn).astype(np.float64)
    want = f8(a["x"]) @ f8(a["w"]) + a["b"]
    found = compiled(ONE, "dtype = f8e4m3, scheme = plain", target)(**some(a, "xwb")).y
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("clause", ["dtype = i8, granularity = tensor, ranges = dynamic", "dtype = i8, granularity = block(8), ranges = dynamic"])
def test_other_grains_of_weights(target: str, clause: str) -> None:
    a = given()
    w = np.zeros_like(a["w"], dtype=np.float64)
    blocks = range(0, 40, 8) if "block" in clause else (0,)
    for start in blocks:
        part = a["w"][start:start + 8] if "block" in clause else a["w"]
        scale = scale_of(part, axis=0) if "block" in clause else scale_of(part)
        w[start:start + len(part)] = codes(part, scale) * np.float64(scale)
    sx = scale_of(a["x"])
    want = (codes(a["x"], sx) * np.float64(sx)) @ w + a["b"]
    found = compiled(ONE, clause, target)(**some(a, "xwb")).y
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=2e-5)


def test_weights_alone_in_f16() -> None:
    a = given()
    want = a["x"].astype(np.float64) @ a["w"].astype(np.float16).astype(np.float64) + a["b"]
    found = compiled(ONE, "weights = f16", "cpu")(**some(a, "xwb")).y
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)
    assert not np.allclose(found, a["x"] @ a["w"] + a["b"], rtol=1e-5, atol=1e-5)


LISTED = """op @conv(%x: tensor<NxHxCxf16>, %k: tensor<CxOxf16>) -> (%y: tensor<NxHxOxf32>) {
  memory { border = constant(0.5) }
  downgrade sm_90 { CLAUSE, budget = 2e-1 }
  compute { %y[n, h, o] = sum[c < C, d < 3](%x[n, h + d - 1, c] * %k[c, o]) }
}
pipeline @p(%a: tensor<NxHxPxf16>, %b: tensor<NxHxQxf16>, param %k: tensor<(P + Q)x5xf16>) -> (%y: tensor<NxHx5xf32>) {
  %y = @conv([%a, %b] along C, %k)
}
"""


@pytest.mark.parametrize("target", TARGETS)
def test_parts_of_a_list_have_one_scale(target: str, tmp_path: Path) -> None:
    path = tmp_path / "p.calibration.yaml"
    path.write_text("calibration: 1\npipeline: p\nmethod: minmax\nsamples: 1\nedges:\n  a: {min: -4.0, max: 3.0, low: -4.0, high: 3.0}\n"
                    "  b: {min: -1.0, max: 2.0, low: -1.0, high: 2.0}\n")
    rng = np.random.default_rng(0)
    a, b, k = (rng.normal(size=s).astype(np.float16) for s in ((2, 5, 6), (2, 5, 3), (9, 5)))
    c = compiled(LISTED, "dtype = i8", target, f",calibration=\"{path}\"")
    sx, sk = F32(4 / 127), scale_of(k.astype(F32), axis=0)
    x = np.pad(np.concatenate([codes(a.astype(F32), sx), codes(b.astype(F32), sx)], 2), ((0, 0), (1, 1), (0, 0)),
               constant_values=int(np.round(F32(0.5) / sx)))
    want = sum(x[:, d:d + 5] @ codes(k.astype(F32), sk) for d in range(3)) * (np.float64(sx) * sk)
    np.testing.assert_allclose(c(a=a, b=b, k=k).y, want, rtol=2e-6, atol=1e-5)
    dynamic = compiled(LISTED, "dtype = i8, ranges = dynamic", target)
    assert {o.type.dtype for op in dynamic.module.operators if op.name.startswith("conv") for o in op.operands} >= {"f16", "i8"}
    missing = tmp_path / "q.calibration.yaml"
    missing.write_text(path.read_text().partition("  b:")[0])
    assert "has no range of '%b'" in failed(LISTED, "dtype = i8", f",calibration=\"{missing}\"")
