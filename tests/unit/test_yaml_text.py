"""What the three files that people edit - of a project, of tuned schedules, of calibration - have in common: the same mistake is the same fault in each."""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pipelink_ir.ir.diagnostics import Diagnostic, ProgramError
from pipelink_ir.passes.precision.calibration_file import parse_calibration
from pipelink_ir.passes.scheduling.tuned_file import parse_tuned
from pipelink_ir.runtime.project import read_project


def project(data: bytes, folder: Path) -> object:
    path = folder / "pipelink.yaml"
    path.write_bytes(data)
    return read_project(str(path))


READERS: dict[str, tuple[str, str, Callable[[bytes, Path], object]]] = {
    "project": ("PL9102", "copies: allow\n", project),
    "tuned": ("PL9103", "tuned: 1\nentries: []\n", lambda data, folder: parse_tuned(data, "x.yaml")),
    "calibration": ("PL9104", "calibration: 1\npipeline: p\nmethod: minmax\nedges: {}\n", lambda data, folder: parse_calibration(data, "x.yaml")),
}


def found(reader: str, data: bytes, folder: Path) -> list[Diagnostic]:
    """The faults of a text."""
    code, _, read = READERS[reader]
    with pytest.raises(ProgramError) as caught:
        read(data, folder)
    assert {d.code for d in caught.value.diagnostics} == {code}
    return list(caught.value.diagnostics)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(("more", "column", "said"), [
    ("copeis: 1", 1, "has no key 'copeis'"), ("'': 1", 1, "a key is a word"), ("[a, b]: 1", 1, "a key is a word"), ("{a: 1}: 1", 1, "a key is a word")])
def test_keys(reader: str, more: str, column: int, said: str, tmp_path: Path) -> None:
    good = READERS[reader][1]
    first = found(reader, f"{good}{more}\n".encode(), tmp_path)[0]
    assert (first.span.line, first.span.column) == (good.count("\n") + 1, column)
    assert said in first.message


@pytest.mark.parametrize("reader", READERS)
def test_a_key_that_is_written_twice_names_the_first(reader: str, tmp_path: Path) -> None:
    good = READERS[reader][1]
    key = good.splitlines()[0]
    first = found(reader, f"{good}{key}\n".encode(), tmp_path)[0]
    assert "is written twice" in first.message
    assert (first.span.line, first.notes[0].span.line) == (good.count("\n") + 1, 1)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(("data", "said"), [
    (b"- 1\n", "is a table ('key: value'), not a list"), (b"3\n", "is a table ('key: value'), not one value"), (b"a: [1\n", "this is not YAML"),
    (b"[" * 5000, "this is"), (b"# \xff\n", "this is not UTF-8"), (b"a: 1\n---\nb: 1\n", "this is not YAML")])
def test_texts_that_are_no_table(reader: str, data: bytes, said: str, tmp_path: Path) -> None:
    assert said in found(reader, data, tmp_path)[0].message


@pytest.mark.parametrize("data", [b"", b"# nothing\n", b"~\n", b"null\n", b"---\n"])
def test_files_without_anything_in_them(data: bytes, tmp_path: Path) -> None:
    project(data, tmp_path)                                                    # a project may say nothing
    for reader in ("tuned", "calibration"):
        assert found(reader, data, tmp_path)[0].message == "the file is empty"
