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


def test_a_folder_without_programs(pipelinkc: Command, tmp_path: Path) -> None:
    done = pipelinkc("check", tmp_path)
    assert done.status == 2
    assert "no .plir file" in done.err


def test_a_file_named_twice_is_checked_once(pipelinkc: Command, folder: Path) -> None:
    done = pipelinkc("check", folder / "a.plir", folder / "sub" / ".." / "a.plir")
    assert "checked 1 file: 2 errors" in done.err
