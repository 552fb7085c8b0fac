"""`check`: all diagnostics of all files."""
from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.cli.command import BROKEN, SCALE, UNKNOWN, Done

Command = Callable[..., Done]
TWO = UNKNOWN + UNKNOWN.replace("main", "more").replace("nothing", "neither")
UNUSED = SCALE.replace("pipeline @main(", "pipeline @main(%unused: tensor<Mxf32>, ")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in {"a.plir": TWO, "good.plir": SCALE, "sub/b.plir": BROKEN, ".hidden/c.plir": BROKEN, "notes.txt": "no program"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_clean_file(pipelinkc: Command, scale: Path) -> None:
    done = pipelinkc("check", scale)
    assert (done.status, done.out, done.err) == (0, "", "checked 1 file: ok\n")
    done = pipelinkc("check", scale, "--format", "json")
    assert (done.status, json.loads(done.out), done.err) == (0, [], "")


def test_everything_in_a_folder(pipelinkc: Command, folder: Path) -> None:
    done = pipelinkc("check", folder, "--format=json")
    assert done.status == 1
    found = json.loads(done.out)
    assert [(d["code"], Path(d["file"]).relative_to(folder).as_posix(), d["line"]) for d in found[:2]] == [("PL1101", "a.plir", 2), ("PL1101", "a.plir", 5)]
    assert {Path(d["file"]).name for d in found} == {"a.plir", "b.plir"}
    text = pipelinkc("check", folder)
    assert text.status == 1
    assert text.out.startswith(f"{folder}/a.plir:2:8: error[PL1101]: name: ")
    assert "checked 3 files: " in text.err


def test_the_form_of_json(pipelinkc: Command, folder: Path) -> None:
    path = str(folder / "a.plir")
    first = json.loads(pipelinkc("check", path, "--format", "json").out)[0]
    assert list(first) == ["code", "severity", "field", "message", "file", "line", "column", "notes", "help"]
    assert (first["code"], first["severity"], first["field"], first["file"], first["line"], first["column"]) == ("PL1101", "error", "name", path, 2, 8)
    assert "@nothing" in first["message"]


def test_one_bad_file_does_not_hide_the_others(pipelinkc: Command, folder: Path) -> None:
    missing = folder / "missing.plir"
    done = pipelinkc("check", missing, folder / "sub" / "b.plir", folder / "good.plir", folder / "a.plir")
    assert done.status == 2
    assert done.err.startswith(f"{missing}: error[PL9101]: ")
    assert f"{folder}/sub/b.plir:2:" in done.out
    assert f"{folder}/a.plir:5:8" in done.out
    found = json.loads(pipelinkc("check", missing, folder / "a.plir", "--format", "json").out)
    assert [d["code"] for d in found] == ["PL9101", "PL1101", "PL1101"]
    assert all(d["line"] >= 1 and d["column"] >= 1 for d in found)


def test_an_internal_error_does_not_hide_the_others(pipelinkc: Command, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pipelink_ir.runtime import sources
    whole = sources.read_program
    monkeypatch.setattr(sources, "read_program", lambda path: 1 / 0 if path.endswith("good.plir") else whole(path))
    done = pipelinkc("check", folder / "good.plir", folder / "a.plir")
    assert done.status == 70
    assert "internal error" in done.err
    assert "Traceback" not in done.err
    assert "a.plir:2:8" in done.out


def test_warnings_are_no_errors(pipelinkc: Command, tmp_path: Path) -> None:
    path = tmp_path / "x.plir"
    path.write_text(UNUSED)
    done = pipelinkc("check", path)
    assert done.status == 0
    assert ": warning[PL1101]: name: " in done.out
    assert done.err == "checked 1 file: 1 warning\n"
    assert [d["severity"] for d in json.loads(pipelinkc("check", path, "--format", "json").out)] == ["warning"]


def test_an_imported_file_is_told_once(pipelinkc: Command, tmp_path: Path) -> None:
    (tmp_path / "lib.plir").write_text(BROKEN)
    for name in ("one", "two"):
        (tmp_path / f"{name}.plir").write_text('import "lib.plir"\n' + SCALE)
    found = json.loads(pipelinkc("check", tmp_path, "--format", "json").out)
    assert len([d for d in found if Path(d["file"]).name == "lib.plir"]) == 1


def test_op_dir_and_targets(pipelinkc: Command, folder: Path) -> None:
    assert pipelinkc("check", "--op-dir", folder / "sub").status == 1
    assert pipelinkc("check", folder / "good.plir", "--target", "sm_75,sm_90").status == 0
    done = pipelinkc("check", folder / "good.plir", "--target", "sm_75,sm_1")
    assert done.status == 2
    assert "there is no target 'sm_1'" in done.err
    for device in ("cuda", "cuda:1", "cuda-emulated"):
        done = pipelinkc("check", folder / "good.plir", "--target", f"sm_75,{device}")
        assert done.status == 2
        assert f"'{device}' names none; write 'sm_90'" in done.err


def test_a_folder_without_programs(pipelinkc: Command, tmp_path: Path) -> None:
    done = pipelinkc("check", tmp_path)
    assert done.status == 2
    assert "no .plir file" in done.err


def test_a_file_named_twice_is_checked_once(pipelinkc: Command, folder: Path) -> None:
    done = pipelinkc("check", folder / "a.plir", folder / "sub" / ".." / "a.plir")
    assert "checked 1 file: 2 errors" in done.err


def test_annotations_for_github(pipelinkc: Command, tmp_path: Path) -> None:
    path = tmp_path / "a,b: 100%.plir"
    path.write_text(UNKNOWN)
    done = pipelinkc("check", path, "--format", "github")
    assert done.status == 1
    lines = done.out.splitlines()
    place = str(path).replace("%", "%25").replace(":", "%3A").replace(",", "%2C")
    assert lines[0].startswith(f"::error file={place},line=2,col=8,title=PL1101::name: there is no operator '@nothing'")
    assert len(lines) == 1
    assert "checked 1 file: 1 error" in done.err


def test_annotations_carry_notes_and_help_in_one_line(pipelinkc: Command, tmp_path: Path) -> None:
    path = tmp_path / "edge.plir"
    path.write_text("op @f(%x: tensor<Nxf16>) -> (%y: tensor<Nxf16>) { compute { %y[n] = %x[n] } }\n"
                    "pipeline @p(%x: tensor<Nxf32>, %unused: tensor<Nxf32>) -> (%y: tensor<Nxf16>) {\n  %y = @f(%x)\n}\n")
    done = pipelinkc("check", path, "--format", "github")
    warning, error = done.out.splitlines()
    assert warning.startswith(f"::warning file={path},line=2,col=32,title=PL1101::name: nothing reads the input '%25unused'%0A")
    assert error.startswith(f"::error file={path},line=3,col=11,title=PL2201::dtype: '%25x' holds f32, but '@f' takes f16 as '%25x'%0A{path}:2:13: ")
    assert error.endswith("%0Ahelp: insert '%25t = @std.cast(%25x) {U = f16}'")


def test_nothing_to_annotate(pipelinkc: Command, scale: Path) -> None:
    done = pipelinkc("check", scale, "--format", "github")
    assert (done.status, done.out) == (0, "")


def test_every_target_of_the_list_is_checked(pipelinkc: Command, tmp_path: Path) -> None:
    """Targets of the command replace those of the programs: an operator is buildable, has a policy, or is an error, for each."""
    ops = tmp_path / "ops"
    ops.mkdir()
    (ops / "matmul.plir").write_text(
        "op @f(%x: tensor<MxKxf16>, %w: tensor<KxNxf16>) -> (%y: tensor<MxNxf16>) {\n  compile { arch = \">= sm_80\" }\n"
        "  downgrade sm_75 { dtype = i8, budget = 2e-2 }\n  compute { %y[i, j] = sum[k < K](%x[i, k] * %w[k, j]) }\n}\n"
        "target @host { arch = cpu }\n"
        "pipeline @p(%x: tensor<MxKxf16>, %w: tensor<KxNxf16>) -> (%y: tensor<MxNxf16>) { %y = @f(%x, %w) }\n")
    assert pipelinkc("check", "--op-dir", ops).status == 0
    assert pipelinkc("check", "--op-dir", ops, "--target", "sm_75,sm_87,sm_90").status == 0
    done = pipelinkc("check", "--op-dir", ops, "--target", "sm_70,sm_75,cpu", "--format", "json")
    assert done.status == 1
    assert [(d["field"], d["line"]) for d in json.loads(done.out)] == [("arch", 7)]
    assert "sm_70" in json.loads(done.out)[0]["message"]


OPERATORS = """op @needs(%x: tensor<Nxf16>) -> (%y: tensor<Nxf16>) {
  compile { arch = ">= sm_80" }
  compute { %y[n] = %x[n] }
}

op @refuses(%x: tensor<Nxf16>) -> (%y: tensor<Nxf16>) {
  downgrade sm_75 unsupported
  compute { %y[n] = %x[n] }
}

op @kernel(%x: tensor<Nxf16>) -> (%y: tensor<Nxf16>) {
  kernel cuda "kernel.cu" { entry = "k", block = [256], grid = [N] }
}
"""


def test_operators_alone_are_checked_for_each_target(pipelinkc: Command, tmp_path: Path) -> None:
    """A folder of operators has no pipeline that uses them: each has to be there for every target that is asked for."""
    (tmp_path / "ops.plir").write_text(OPERATORS)
    (tmp_path / "kernel.cu").write_text('extern "C" __global__ void k(const void*, void*, const void*) {}\n')

    def found(targets: str) -> list[tuple[str, int, str]]:
        out = json.loads(pipelinkc("check", "--op-dir", tmp_path, "--target", targets, "--format", "json").out)
        return [(d["field"], d["line"], d["message"].rpartition(" ")[2]) for d in out]

    assert found("sm_87,sm_90") == []
    assert found("sm_75,sm_87,sm_90") == [("arch", 2, "sm_75"), ("downgrade", 7, "sm_75")]
    assert found("cpu") == [("arch", 12, "cpu")]
    assert json.loads(pipelinkc("check", "--op-dir", tmp_path, "--format", "json").out) == []


def test_a_value_that_is_none_is_named(pipelinkc: Command, tmp_path: Path) -> None:
    """What looks like a call, too."""
    (tmp_path / "p.plir").write_text("op @f(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) {\n  memory { contiguity = rows(1) }\n"
                                     "  compute { %y[n] = %x[n] }\n}\n")
    done = pipelinkc("check", tmp_path / "p.plir")
    assert done.status == 1
    assert "not rows(…)" in done.out
