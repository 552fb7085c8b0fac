"""`pipelinkc check` carries policies out: what they cannot be told without a device, for each target, and labels that nobody has."""
from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipelink_ir.cli.main import main

LINEAR = """op @linear(%x: tensor<NxKxT>, %w: tensor<KxMxT>) -> (%y: tensor<NxMxT>) {{
  memory    {{ dtypes = [f16, f32] }}
  {clauses}
  compute   {{ %y[n, m] = sum[k < K](%x[n, k] * %w[k, m]) }}
}}
"""
NET = """pipeline @net(%x: tensor<Bx256xf32>, param %w: tensor<256x512xf32>) -> (%y: tensor<Bx512xf32>) {
  %y = @linear(%x, %w) as up
}
"""
BIG = """op @big(%x: tensor<...xT>) -> (%y: tensor<...xT>) {
  memory    { dtypes = [f16, f32] }
  semantic  { %y { range = [0, 100000] } }
  downgrade sm_75 { dtype = f16 }
  downgrade sm_80 { dtype = bf16 }
  compute   { %y[...] = clamp(%x[...], 0, 100000) }
}
"""


def checked(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, list[dict[str, object]]]:
    status = main(["check", *args, "--format", "json"])
    found = json.loads(capsys.readouterr().out)
    return status, [{k: d[k] for k in ("severity", "field", "message", "line")} for d in found]


def write(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_what_a_dtype_cannot_hold_is_said_for_its_target(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """65,504 is the largest number of f16; bf16 goes to 3e38, so sm_80 is right."""
    path = write(tmp_path, "a.plir", BIG.replace("dtypes = [f16, f32]", "dtypes = [f16, bf16, f32]")
                 + "pipeline @p(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { %y = @big(%x) }\n")
    status, found = checked(capsys, path, "--target", "sm_75,sm_80")
    assert status == 1
    assert found == [{"severity": "error", "field": "range", "line": 4,
                      "message": "the policy takes '%y' to f16, which ends at 65504, but '@big' promises values up to 100000 (on sm_75)"}]
    assert checked(capsys, path, "--target", "sm_80") == (0, [])
    # No target is named: those of the clauses.
    assert checked(capsys, path)[1] == found


def test_ranges_that_nobody_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clause = "downgrade sm_75 { dtype = i8, ranges = calibrated }"
    path = write(tmp_path, "a.plir", LINEAR.format(clauses=clause) + NET)
    status, found = checked(capsys, path)
    assert (status, [d["field"] for d in found]) == (1, ["downgrade"])
    assert str(found[0]["message"]).endswith("there is no calibration for '%x' (on sm_75)")
    path = write(tmp_path, "b.plir", LINEAR.format(clauses=clause.replace("calibrated", "dynamic")) + NET)
    assert checked(capsys, path) == (0, [])


def test_a_calibration_beside_the_program_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, "a.plir", LINEAR.format(clauses="downgrade sm_75 { dtype = i8, ranges = calibrated }") + NET)
    assert main(["calibrate", path, "--random", "2", "--size", "B=4"]) == 0
    capsys.readouterr()
    assert checked(capsys, path) == (0, [])


@pytest.mark.parametrize(("force", "rows", "told"), [(", force = true", "B", "warning"), ("", "64", None)])
def test_budgets_are_those_of_what_pays(tmp_path: Path, capsys: pytest.CaptureFixture[str], force: str, rows: str, told: str | None) -> None:
    """Codes of i4 are off by more than 1/20 of the largest value: said where the change is made, and a small product is left as it is."""
    path = write(tmp_path, "a.plir", LINEAR.format(clauses=f"downgrade sm_75 {{ dtype = i8, weights = i4, ranges = dynamic, budget = 4e-2{force} }}")
                 + NET.replace("<Bx", f"<{rows}x"))
    _, found = checked(capsys, path)
    assert [d["severity"] for d in found] == ([told] if told else [])
    assert all(d["field"] == "budget" and "on sm_75" in str(d["message"]) for d in found)


def test_one_message_names_all_its_targets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project = "targets: [sm_80, sm_90]\nprecision: {sm_80: {dtype: f16}, sm_90: {dtype: f16}}\n"
    write(tmp_path, "pipelink.yaml", project)
    text = "".join(line for line in BIG.splitlines(True) if "downgrade" not in line)
    path = write(tmp_path, "a.plir", text + "pipeline @p(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { %y = @big(%x) }\n")
    _, found = checked(capsys, path)
    # They stand at different places of the project file.
    assert [(d["line"], str(d["message"]).rpartition(" (")[2]) for d in found] == [(2, "on sm_80)"), (2, "on sm_90)")]
    _, found = checked(capsys, path, "--target", "sm_80")
    assert len(found) == 1


def test_operators_of_a_folder_are_called_as_they_are_declared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "ops/big.plir", BIG.replace("dtypes = [f16, f32]", "dtypes = [f16, bf16, f32]"))
    # Weights that are none where the operator is called by inputs alone, ranges that only a program has: nothing is wrong with these.
    write(tmp_path, "ops/linear.plir", LINEAR.format(clauses="downgrade sm_75 { weights = i4 }\n  downgrade sm_80 { dtype = i8, ranges = calibrated, budget = 3e-2 }"))
    status, found = checked(capsys, "--op-dir", str(tmp_path / "ops"), "--target", "sm_75,sm_80")
    assert status == 1
    assert [(d["field"], d["line"]) for d in found] == [("range", 4)]


PROJECT = "precision:\n  sm_75: {precision: mixed, up: f16, ffn.down: f16, %s: i8}\n"
GRAPH = LINEAR.format(clauses="") + """op @ffn(%x: tensor<NxKxT>, %w: tensor<KxKxT>) -> (%y: tensor<NxKxT>) {
  memory { dtypes = [f16, f32] }
  graph  { %h = @linear(%x, %w) as up
           %y = @linear(%h, %w) as down }
}
pipeline @p(%x: tensor<Nx64xf32>, param %w: tensor<64x64xf32>) -> (%y: tensor<Nx64xf32>) {
  %h = @linear(%x, %w) as up
  %y = @ffn(%h, %w) as ffn
}
"""


@pytest.mark.parametrize(("label", "known"), [("ffn.up", True), ("gone", False), ("ffn.gone", False), ("up.down", False)])
def test_labels_of_the_project_that_no_program_has(tmp_path: Path, capsys: pytest.CaptureFixture[str], label: str, known: bool) -> None:
    write(tmp_path, "home/pipelink.yaml", PROJECT % label)
    path = write(tmp_path, "home/nets/a.plir", GRAPH)
    write(tmp_path, "home/b.plir", NET.replace("@net", "@other").replace(" as up", "") + LINEAR.format(clauses=""))
    for folder in ("home", ""):
        status, found = checked(capsys, str(tmp_path / folder))
        assert status == 0
        assert [(d["severity"], d["field"], d["line"]) for d in found] == ([] if known else [("warning", "downgrade", 2)])
        assert known or f"'{label}'" in str(found[0]["message"])
    # One program of several says nothing of the others.
    assert checked(capsys, path) == (0, [])
    assert checked(capsys, str(tmp_path / "home" / "nets")) == (0, [])


def test_a_program_that_is_wrong_may_have_the_label(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "pipelink.yaml", PROJECT % "gone")
    write(tmp_path, "a.plir", GRAPH)
    write(tmp_path, "b.plir", "pipeline @broken(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { %y = @nobody(%x) as gone }\n")
    status, found = checked(capsys, str(tmp_path))
    assert (status, [d["field"] for d in found]) == (1, ["name"])


def test_several_pipelines_of_which_one_is_calibrated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = LINEAR.format(clauses="downgrade sm_75 { dtype = i8, ranges = calibrated }") + NET + NET.replace("@net", "@other").replace("%x", "%z")
    path = write(tmp_path, "a.plir", text)
    assert main(["calibrate", path, "--random", "2", "--size", "B=4", "--pipeline", "net"]) == 0
    capsys.readouterr()
    assert checked(capsys, path) == (0, [])


def test_graphs_of_operators_may_be_written_in_any_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, "ops.plir", """op @add(%a: tensor<...xf32>, %b: tensor<...xf32>) -> (%y: tensor<...xf32>) { compute { %y[...] = %a[...] + %b[...] } }
op @twice(%x: tensor<...xf32>) -> (%y: tensor<...xf32>) {
  graph { %y = @add(%p, %p)
          %p = @add(%x, %x) }
}
""")
    assert checked(capsys, path) == (0, [])


def test_what_a_pass_has_printed_says_no_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A graph's policy passes over the softmax inside, whose clause it is once `push-policies` is done."""
    text = LINEAR.format(clauses="") + """op @shares(%x: tensor<NxKxf32>) -> (%y: tensor<NxKxf32>) {
  compute { %s[n] = sum[k < K](exp(%x[n, k]))
            %y[n, k] = exp(%x[n, k]) / %s[n] }
}
op @block(%x: tensor<NxKxf32>, %w: tensor<KxMxf32>) -> (%y: tensor<NxMxf32>) {
  downgrade sm_75 { dtype = i8, ranges = dynamic }
  graph { %h = @linear(%x, %w)
          %y = @shares(%h) }
}
""" + NET.replace("@linear", "@block")
    path, dump = write(tmp_path, "a.plir", text), str(tmp_path / "dump.plir")
    assert checked(capsys, path) == (0, [])
    assert main([path, "--target", "sm_75", "--stop-after=push-policies", "-o", dump]) == 0
    assert main([dump, "--target", "sm_75", "-o", str(tmp_path / "out.plir")]) == 0
    assert capsys.readouterr().err == ""
