"""Tests that are PLIR programs. A file says on its first lines what is run and what is expected, in its own text:

    // RUN: pipelinkc -p flatten %s | filecheck %s         the output holds the CHECK lines of the file
    // RUN: not pipelinkc -p nothing %s 2>&1 | filecheck %s    the command fails; what it says is checked
    %y = @f(%x)   // expected-error {{takes f32}}          `pipelinkc check` reports this here, and nothing that is not expected

`%s` is the file, `%t` a path in a fresh folder, which is also the current one. `expected-error` and `expected-warning` may say `@+1` or `@-2` for
another line. Commands run in this process.
"""
from __future__ import annotations

import io
import json
import os
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import pytest

_RUN = re.compile(r"^\s*// RUN: (.*)$", re.MULTILINE)
_EXPECTED = re.compile(r"// expected-(error|warning)(?:@([+-]\d+))? \{\{(.*?)\}\}")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    return Program.from_parent(parent, path=file_path) if file_path.suffix == ".plir" and "lib" not in file_path.parts else None


class Program(pytest.File):
    """One file: an item for every RUN line, one for the expected diagnostics."""

    def collect(self) -> Iterator[pytest.Item]:
        text = self.path.read_text(encoding="utf-8")
        runs = _RUN.findall(text)
        for i, line in enumerate(runs):
            yield Run.from_parent(self, name=f"run{i + 1}" if len(runs) > 1 else "run", line=line.strip())
        if _EXPECTED.search(text):
            yield Expected.from_parent(self, name="expected")
        if not runs and not _EXPECTED.search(text):
            raise self.CollectError(f"{self.path} has no RUN line and expects no diagnostic")


class Failed(Exception):
    """What the test says when it does not hold."""


class _Item(pytest.Item):
    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        return str(excinfo.value) if isinstance(excinfo.value, Failed) else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, f"{self.path.name}:{self.name}"


class Run(_Item):
    """One RUN line."""

    def __init__(self, *, line: str, **more: Any) -> None:
        super().__init__(**more)
        self.line = line

    def runtest(self) -> None:
        folder = self.session.config._tmp_path_factory.mktemp(self.path.stem)  # type: ignore[attr-defined]
        before = Path.cwd()
        os.chdir(folder)
        try:
            self._pipe(folder)
        finally:
            os.chdir(before)

    def _pipe(self, folder: Path) -> None:
        data = b""
        for part in self.line.split("|"):
            words = [w.replace("%s", str(self.path)).replace("%t", str(folder / "t")) for w in shlex.split(part)]
            fails, words = words[0] == "not", words[1:] if words[0] == "not" else words
            merged, words = "2>&1" in words, [w for w in words if w != "2>&1"]
            if words[0] == "filecheck":
                _filecheck(words[1], words[2:], data, folder)
                continue
            if words[0] != "pipelinkc":
                raise Failed(f"no command is called '{words[0]}' here: {self.line}")
            status, data, err = command(words[1:], data, merged)
            if (status != 0) != fails or status not in (0, 1, 2):
                raise Failed(f"{' '.join(words)}: exit {status}\n{err or data.decode()}")


def command(argv: list[str], data: bytes, merged: bool) -> tuple[int, bytes, str]:
    """`pipelinkc` in this process: status, standard output (with standard error in it if `merged`), standard error."""
    from pipelink_ir.cli.main import main
    out, err = io.BytesIO(), io.BytesIO()
    old = sys.stdin, sys.stdout, sys.stderr
    sys.stdin = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8")
    sys.stdout = io.TextIOWrapper(out, encoding="utf-8", write_through=True)
    sys.stderr = sys.stdout if merged else io.TextIOWrapper(err, encoding="utf-8", write_through=True)
    try:
        status = main(argv)
        sys.stdout.flush()
        sys.stderr.flush()
        return status, out.getvalue(), err.getvalue().decode()
    finally:
        sys.stdin, sys.stdout, sys.stderr = old


def _filecheck(pattern: str, more: list[str], data: bytes, folder: Path) -> None:
    """The CHECK lines of `pattern` against `data`."""
    from filecheck.matcher import Matcher
    from filecheck.options import Options
    if not data:
        raise Failed("nothing was printed")
    given = folder / "filecheck.input"
    given.write_bytes(data)
    options: dict[str, Any] = {"match_filename": pattern, "input_file": str(given)}
    for word in more:
        key, _, value = word.partition("=")
        if key != "--check-prefix":
            raise Failed(f"filecheck has no option {key} here")
        options["check_prefixes"] = value
    said = io.StringIO()
    with redirect_stderr(said):
        failed = Matcher.from_opts(Options(**options)).run()
    if failed:
        raise Failed(f"{said.getvalue()}\nthe output was:\n{data.decode()}")


class Expected(_Item):
    """`// expected-error {{…}}` comments against what `pipelinkc check` reports."""

    def runtest(self) -> None:
        wanted: list[tuple[str, int, str]] = []
        for number, line in enumerate(self.path.read_text(encoding="utf-8").splitlines(), 1):
            wanted += [(kind, number + int(offset or 0), text) for kind, offset, text in _EXPECTED.findall(line)]
        status, out, err = command(["check", str(self.path), "--format", "json"], b"", False)
        try:
            found = json.loads(out)
        except ValueError:
            raise Failed(f"check printed no JSON, exit {status}\n{out.decode()}\n{err}") from None
        problems = [f"not reported: {w}" for w in wanted if not any(_meets(d, *w) for d in found)]
        problems += [f"not expected: {d['severity']}, line {d['line']}: {d['field']}: {d['message']}" for d in found if not any(_meets(d, *w) for w in wanted)]
        if problems:
            raise Failed("\n".join(problems))


def _meets(found: dict[str, Any], kind: str, line: int, text: str) -> bool:
    said = f"[{found['code']}] {found['field']}: {found['message']}\n{found['help'] or ''}"
    return found["severity"] == kind and found["line"] == line and text in said
