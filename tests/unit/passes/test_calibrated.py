"""Files of calibration as passes read them, the scales of ranges, and digests of programs."""
from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from pipelink_ir.grammar import parse
from pipelink_ir.ir.diagnostics import ProgramError, Report
from pipelink_ir.ir.nodes import Module
from pipelink_ir.passes.manager import parse_passes, run_passes
from pipelink_ir.passes.precision.calibrated import Calibration, EdgeRange, check_calibration, policies_digest, program_digest, ranges_digest, scale_of
from pipelink_ir.passes.precision.calibration_file import calibration_text, parse_calibration, read_calibration

GOOD = """calibration: 1
pipeline: net
method: minmax
samples: 2
edges:
  x: {min: -2.0, max: 3.0, low: -1.5, high: 2.5, rms: 0.5, clipped: 0.01, nan: 1}
  no.h: {min: 0, max: 1e3, low: 0, high: 900}
errors:
  sm_75: {y: 0.003, z: .inf}
"""

BAD: list[tuple[str, str, int, int, str]] = [
    # text, replacement, line, column, part of the message
    ("calibration: 1", "calibration: 2", 1, 14, "the version of the format is 1"),
    ("pipeline: net\n", "", 1, 1, "'pipeline' is missing"),
    ("method: minmax", "method: minmx", 3, 9, "there is no method 'minmx'"),
    ("samples: 2", "samples: -2", 4, 10, "not negative"),
    ("edges:", "edge:", 5, 1, "no key 'edge'"),
    ("min: -2.0", "min: .nan", 6, 12, "finite number"),
    ("max: 3.0", "max: .inf", 6, 23, "finite number"),
    ("max: 3.0", "max: lots", 6, 23, "finite number"),
    ("min: -2.0", "min: 4.0", 6, 6, "'min' of '%x' is 4, which is above its 'max', 3"),
    ("low: -1.5", "low: 2.75", 6, 6, "above its 'high'"),
    ("rms: 0.5", "rms: -0.5", 6, 55, "cannot be negative"),
    ("nan: 1", "nan: some", 6, 80, "not negative"),
    ("high: 900", "hi: 900", 7, 36, "no key 'hi'"),
    ("  no.h: {min: 0, max: 1e3, low: 0, high: 900}", "  no.h: 3", 7, 9, "is a table"),
    ("  no.h: {", "  x: {", 7, 3, "written twice"),
    ("errors:\n", "declined: {sm_75: y}\nerrors:\n", 8, 19, "is a list"),
    ("sm_75", "turing", 9, 11, "no target 'turing'"),
    ("y: 0.003", "y: -1", 9, 14, "cannot be negative"),
    ("edges:\n", "edges: [1]\nsamples: 3\nx:\n", 5, 8, "is a table"),
    ("calibration: 1", "{", 3, 7, "not YAML"),
]


def test_a_file_is_read() -> None:
    found = parse_calibration(GOOD.encode(), "net.calibration.yaml")
    assert found.edges["x"] == EdgeRange(-2.0, 3.0, -1.5, 2.5, 0.5, 0.01, 1)
    assert found.edges["no.h"] == EdgeRange(0.0, 1000.0, 0.0, 900.0)
    assert (found.pipeline, found.method, found.samples, found.random) == ("net", "minmax", 2, False)
    assert found.errors == {"sm_75": {"y": 0.003, "z": math.inf}}
    assert (found.edges["no.h"].span.line, found.edges["no.h"].span.column) == (7, 9)


@pytest.mark.parametrize(("text", "other", "line", "column", "says"), BAD, ids=[b[4][:24] for b in BAD])
def test_what_is_wrong_is_told_at_its_place(text: str, other: str, line: int, column: int, says: str) -> None:
    assert text in GOOD
    with pytest.raises(ProgramError) as caught:
        parse_calibration(GOOD.replace(text, other, 1).encode(), "f.yaml")
    found = [d for d in caught.value.diagnostics if says in d.message]
    assert found, str(caught.value)
    if says != "not YAML":
        assert (found[0].code, found[0].span.line, found[0].span.column) == ("PL9104", line, column)


@pytest.mark.parametrize("data", [b"", b"# only a comment\n", b"\xff\xfe\x00", b"- 1\n", b"3\n", b"calibration\n", b"[" * 4000, b"a: &a [*a]\n", b"x: {y: 1\n"])
def test_files_that_are_none(data: bytes) -> None:
    with pytest.raises(ProgramError) as caught:
        parse_calibration(data, "f.yaml")
    assert {d.code for d in caught.value.diagnostics} == {"PL9104"}


def test_a_file_that_is_not_there(tmp_path: Any) -> None:
    with pytest.raises(ProgramError) as caught:
        read_calibration(str(tmp_path / "none.yaml"))
    assert caught.value.diagnostics[0].code == "PL9101"


def test_what_is_written_is_read_back() -> None:
    names = ["y", "no", "1e3", "a.b.c", "null", "true", "x"]
    ranges = {n: EdgeRange(-1.0 * k, 2.5 ** k, -0.5 * k, 2.0 ** -k, 0.25, 0.125, k, 2 * k) for k, n in enumerate(names)}
    made = Calibration("p", "percentile 99.9", ranges, {"sm_75": {"y": 0.25, "no": math.inf}}, 7, True, "ab12", {"sm_75": "00e1"})
    text = calibration_text(made)
    assert parse_calibration(text.encode(), "f.yaml") == made
    assert "WARNING" in text
    assert "WARNING" not in calibration_text(Calibration("p", "mse", {}))


def test_f32_values_are_written_exactly() -> None:
    rng = np.random.default_rng(1)
    values = np.frombuffer(rng.bytes(4000), np.float32)
    values = values[np.isfinite(values)]
    made = Calibration("p", "minmax", {f"e{k}": EdgeRange(-abs(float(v)), abs(float(v)), 0.0, 0.0) for k, v in enumerate(values)})
    back = parse_calibration(calibration_text(made).encode(), "f.yaml")
    assert [np.float32(back.edges[f"e{k}"].max) for k in range(len(values))] == np.abs(values).tolist()


# -------------------------------------------------------------------------------------------------------------------------- scales


RANGES = [(-1.0, 3.0), (2.0, 3.0), (-3.0, -2.0), (0.0, 0.0), (-0.0, 0.0), (-1e-45, 1e-44), (-1e308, 1e308), (0.0, 6.0), (-128.0, 127.0), (-7.5, 0.001)]


@pytest.mark.parametrize("ends", RANGES, ids=str)
@pytest.mark.parametrize("scheme", ["symmetric", "affine"])
@pytest.mark.parametrize("dtype", ["i8", "u8"])
def test_scales_and_zero_points(dtype: str, scheme: str, ends: tuple[float, float]) -> None:
    scale, zero = scale_of(EdgeRange(*ends, *ends), dtype, scheme)
    first, last = (-128, 127) if dtype == "i8" else (0, 255)
    assert scale == float(np.float32(scale)) > 0.0
    assert first <= zero <= last
    assert isinstance(zero, int)
    if ends[0] == ends[1] == 0.0:
        assert scale == 1.0
    if scheme == "symmetric" and dtype == "i8":
        assert zero == 0
    # 0.0 is exactly a code, and what lies in the range is half a step from one, or, at an end where the zero point was rounded, one step.
    assert (zero - zero) * scale == 0.0
    if 1e-30 < max(map(abs, ends)) < 1e30:
        x = np.linspace(*ends, 1001)
        codes = np.clip(np.rint(x / scale) + zero, first, last)
        assert np.abs((codes - zero) * scale - x).max() <= (1.0 if scheme == "affine" else 0.5) * scale * 1.0001
        # No finer step would hold the range.
        width = (max(ends[1], 0.0) - min(ends[0], 0.0)) / 255 if scheme == "affine" else None
        if width is not None:
            assert scale == pytest.approx(width, rel=1e-6)


def test_a_range_of_relu_takes_all_codes_of_u8() -> None:
    assert scale_of(EdgeRange(0.0, 51.0, 0.0, 51.0), "u8", "affine") == (float(np.float32(0.2)), 0)
    assert scale_of(EdgeRange(0.0, 51.0, 0.0, 51.0), "u8", "symmetric") == (float(np.float32(0.2)), 0)
    assert scale_of(EdgeRange(-1.0, 1.0, -1.0, 1.0), "u8", "symmetric")[1] == 128


@pytest.mark.parametrize(("dtype", "top"), [("f8e4m3", 448.0), ("f8e5m2", 57344.0), ("i4", 7.0)])
def test_scales_of_other_codes(dtype: str, top: float) -> None:
    scale, zero = scale_of(EdgeRange(-14.0, 3.0, -14.0, 3.0), dtype)
    assert zero == 0
    assert scale == pytest.approx(14.0 / top, rel=1e-6)
    assert 14.0 / scale <= top


@pytest.mark.parametrize(("dtype", "top"), [("i8", 127.0), ("i4", 7.0), ("f8e4m3", 448.0), ("f8e5m2", 57344.0)])
def test_the_end_of_a_range_has_a_code(dtype: str, top: float) -> None:
    """A scale of f32 is never rounded to less than the range over the highest code: half of what is rounded to nearest would be."""
    highs = np.exp(np.random.default_rng(3).uniform(-20, 20, 200))
    scales = [scale_of(EdgeRange(-float(h), float(h), -float(h), float(h)), dtype)[0] for h in highs]
    assert all(s * top >= h for s, h in zip(scales, highs, strict=True))
    assert all(float(np.nextafter(np.float32(s), np.float32(0))) * top < h for s, h in zip(scales, highs, strict=True))


# ------------------------------------------------------------------------------------------------------------------------- programs

NET = """
op @double(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) {
  downgrade sm_75 { dtype = f16, budget = 0.01 }
  memory { dtypes = [f32, f16, bf16] }
  compute { %y[n] = 2.0 * %x[n] }
}
pipeline @net(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) {
  %h = @double(%x)
  %y = @double(%h)
}
"""


def flat(text: str) -> Module:
    return run_passes(parse(text, "net.plir"), parse_passes("resolve,infer-types,check-contracts,push-policies{arch=sm_75},flatten"), Report())


def digests(text: str) -> tuple[str, str]:
    module = flat(text)
    return program_digest(module, "net"), policies_digest(module, "net", "sm_75")


def test_digests_change_with_what_matters() -> None:
    program, policies = digests(NET)
    assert digests(NET.replace("budget = 0.01", "budget = 0.02")) == (program, policies)
    assert digests(NET.replace("@double", "@twice")) == (program, policies)
    assert digests("// a comment\n" + NET) == (program, policies)
    assert digests(NET.replace("2.0", "3.0"))[0] != program
    assert digests(NET.replace("%h", "%k"))[0] != program
    assert digests(NET.replace("@double(%h)", "@double(%x)"))[0] != program
    assert digests(NET.replace("dtype = f16", "dtype = bf16"))[0] == program
    assert digests(NET.replace("dtype = f16", "dtype = bf16"))[1] != policies


def made(**more: Any) -> Calibration:
    ranges = {n: EdgeRange(-1.0, 1.0, -1.0, 1.0) for n in ("x", "h", "y")}
    program, policies = digests(NET)
    values: dict[str, Any] = {"pipeline": "net", "method": "minmax", "edges": ranges, "errors": {"sm_75": {"y": 0.5}}, "program": program,
                              "policies": {"sm_75": policies}, **more}
    return Calibration(**values)


def test_a_file_of_this_program() -> None:
    report = Report()
    assert check_calibration(made(), flat(NET), report)
    assert report.diagnostics == []
    assert made().measured(flat(NET), "net", "sm_75") == {"y": 0.5}
    assert made().measured(flat(NET), "net", "sm_80") == {}


def test_a_file_of_another_pipeline() -> None:
    report = Report()
    assert not check_calibration(made(pipeline="nett"), flat(NET), report)
    assert [d.code for d in report.diagnostics] == ["PL9104"]
    assert "'@nett'" in report.diagnostics[0].message
    assert "did you mean '@net'?" in (report.diagnostics[0].help or "")


def test_an_edge_that_is_not_there() -> None:
    report = Report()
    assert not check_calibration(made(edges={"hh": EdgeRange(0.0, 1.0, 0.0, 1.0)}), flat(NET), report)
    assert "no edge '%hh'" in report.diagnostics[0].message


def test_a_program_that_has_changed_is_a_warning() -> None:
    report, module = Report(), flat(NET.replace("2.0", "3.0"))
    assert check_calibration(made(), module, report)
    assert [d.severity for d in report.diagnostics] == ["warning"]
    assert "calibrate again" in (report.diagnostics[0].help or "")
    assert made().measured(module, "net", "sm_75") == {}


def test_errors_of_an_architecture_count_for_its_variants() -> None:
    text = NET.replace("sm_75", "sm_90")
    program, policies = program_digest(flat(text), "net"), policies_digest(flat(text), "net", "sm_90")
    found = made(errors={"sm_90": {"y": 0.5}}, program=program, policies={"sm_90": policies})
    assert found.measured(flat(text), "net", "sm_90a") == {"y": 0.5}
    own = text.replace("downgrade sm_90 {", "downgrade sm_90a { dtype = bf16 } downgrade sm_90 {")
    assert found.measured(flat(own), "net", "sm_90a") == {}
    assert found.measured(flat(own), "net", "sm_90") == {"y": 0.5}


def test_errors_of_a_plan_that_left_a_node_as_it_is_do_not_count_where_it_is_lowered() -> None:
    found = made(declined={"sm_75": ("h",)})
    assert found.measured(flat(NET), "net", "sm_75", ["y"]) == {"y": 0.5}
    assert found.measured(flat(NET), "net", "sm_75", ["h", "y"]) == {}
    assert parse_calibration(calibration_text(found).encode(), "a.yaml").declined == {"sm_75": ("h",)}


def test_errors_of_another_policy_do_not_count() -> None:
    assert made().measured(flat(NET.replace("dtype = f16", "dtype = bf16")), "net", "sm_75") == {}


def test_errors_of_other_ranges_do_not_count() -> None:
    """Whoever edits a range has other codes than those whose errors were measured."""
    thirds = {n: EdgeRange(-1 / 3, 2 / 3, -1 / 3, 2 / 3) for n in ("x", "h", "y")}
    text = calibration_text(made(edges=thirds, ranges=ranges_digest(thirds)))
    assert parse_calibration(text.encode(), "a.yaml").measured(flat(NET), "net", "sm_75") == {"y": 0.5}
    narrow = text.replace("high: 0.666666667", "high: 0.5", 1)
    assert narrow != text
    assert parse_calibration(narrow.encode(), "a.yaml").measured(flat(NET), "net", "sm_75") == {}
