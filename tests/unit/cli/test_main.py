"""Which command is meant, exit statuses, and the streams."""
from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pipelink_ir
from pipelink_ir.cli import main as entry
from pipelink_ir.ir.diagnostics import InternalError
from tests.unit.cli.command import BROKEN, ROOT, SCALE, UNKNOWN, Done, process

Command = Callable[..., Done]


@pytest.mark.parametrize("args", [["--help"], ["run", "--help"], ["check", "--help"], ["fmt", "--help"], ["explain", "--help"], ["--version"]])
def test_help_is_a_result(pipelinkc: Command, args: list[str]) -> None:
    done = pipelinkc(*args)
    assert done.status == 0
    assert done.out.startswith("pipelinkc" if args == ["--version"] else "usage: pipelinkc")
    assert done.err == ""


def test_version_is_one(pipelinkc: Command) -> None:
    assert pipelinkc("--version").out == f"pipelinkc {pipelink_ir.__version__}\n"


def test_help_names_every_command(pipelinkc: Command) -> None:
    out = pipelinkc("--help").out
    assert all(f"pipelinkc {name}" in out for name in entry.COMMANDS)


@pytest.mark.parametrize("args", [[], ["run"], ["check"], ["fmt"], ["--target", "gpu", "x.plir"], ["--emit", "pdf", "x.plir"], ["--nonsense", "x.plir"],
                                  ["explain", "PL0000"], ["run", "x.plir", "--in", "img"], ["x.plir", "-p", "fuze"], ["a.plir", "b.plir"],
                                  ["--help-passes=nothing"], ["x.plir", "--stop-after", "nothing"], ["run", "x.plir", "--set", "=3"]])
def test_wrong_usage(pipelinkc: Command, args: list[str]) -> None:
    done = pipelinkc(*args)
    assert done.status == 2
    assert done.out == ""
    assert "error" in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("word", entry.LATER)
def test_commands_of_later_versions(pipelinkc: Command, word: str) -> None:
    done = pipelinkc(word, "x")
    assert done.status == 2
    assert done.err.startswith("pipelinkc: error[PL9001]: ")
    assert f"'{word}'" in done.err
    assert f"'./{word}'" in done.err


def test_misspelled_commands(pipelinkc: Command) -> None:
    done = pipelinkc("chekc", "x.plir")
    assert done.status == 2
    assert done.err == "pipelinkc: error: there is no command or file 'chekc'; did you mean 'check'?\n"


@pytest.mark.parametrize("what", ["missing", "folder", "nul", "a link to itself", "in a file"])
def test_files_that_cannot_be_read(pipelinkc: Command, tmp_path: Path, what: str) -> None:
    path = str(tmp_path / "x.plir")
    if what == "folder":
        Path(path).mkdir()
    elif what == "nul":
        path += "\0"
    elif what == "a link to itself":
        Path(path).symlink_to(path)
    elif what == "in a file":
        Path(path).write_text(SCALE)
        path += "/y.plir"
    done = pipelinkc(path)
    assert done.status == 2
    assert done.out == ""
    assert done.err.startswith(f"{path}: error[PL9101]: file: ")
    assert done.err.count("\n") == 1


def test_programs_at_fault(pipelinkc: Command, tmp_path: Path) -> None:
    path = tmp_path / "x.plir"
    for text, place in ((BROKEN, f"{path}:2:"), (UNKNOWN, f"{path}:2:8: error[PL1101]")):
        path.write_text(text)
        done = pipelinkc(path)
        assert done.status == 1
        assert done.out == ""
        assert done.err.startswith(place)
        assert "^" in done.err


def test_a_file_called_like_a_command(pipelinkc: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("run", "bench", "-x"):
        Path(name).write_text(SCALE)
    assert pipelinkc("-p", "none", "./run").out == SCALE
    assert pipelinkc("-p", "none", "./bench").out == SCALE
    assert pipelinkc("-p", "none", "--", "-x").out == SCALE


@pytest.mark.parametrize("error", [InternalError("in the pass 'fuse': a fault"), ZeroDivisionError("division by zero")])
def test_internal_errors(pipelinkc: Command, scale: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*args: Any) -> None:
        raise error
    monkeypatch.setattr("pipelink_ir.runtime.sources.read_program", fail)
    done = pipelinkc(scale)
    assert done.status == 70
    assert done.out == ""
    assert done.err.startswith("pipelinkc: internal error: ")
    assert str(error) in done.err
    assert "Traceback" not in done.err
    assert "Traceback" in pipelinkc(scale, "--debug").err


def test_interrupted(pipelinkc: Command, scale: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*args: Any) -> None:
        raise KeyboardInterrupt
    monkeypatch.setattr("pipelink_ir.runtime.sources.read_program", stop)
    done = pipelinkc(scale)
    assert done.status == 130
    assert "Traceback" not in done.err


def test_as_a_module(scale: Path) -> None:
    done = process("-p", "none", scale)
    assert done.returncode == 0
    assert done.stdout.decode() == SCALE
    assert done.stderr == b""


@pytest.mark.parametrize("path", ["-", "/dev/stdin"])
def test_standard_input(path: str) -> None:
    done = process("-p", "none", path, input=SCALE.encode())
    assert (done.returncode, done.stdout.decode()) == (0, SCALE)
    done = process("-p", "none", path, input=UNKNOWN.replace("{", "").encode())
    assert done.returncode == 1
    assert done.stderr.startswith(b"<stdin>:2:")


def test_process_substitution(scale: Path) -> None:
    line = f'{sys.executable} -m pipelink_ir.cli -p none <(cat "{scale}")'
    done = subprocess.run(["bash", "-c", line], capture_output=True, cwd=ROOT, timeout=60)
    assert (done.returncode, done.stdout.decode()) == (0, SCALE)


def test_a_pipe_that_nobody_reads(tmp_path: Path) -> None:
    path = tmp_path / "long.plir"
    path.write_text("\n".join(SCALE.replace("@scale", f"@scale{i}").replace("@main", f"@main{i}") for i in range(1500)))
    line = f'{sys.executable} -m pipelink_ir.cli -p none "{path}" | head -1; exit ${{PIPESTATUS[0]}}'
    done = subprocess.run(["bash", "-c", line], capture_output=True, cwd=ROOT, timeout=60)
    assert done.returncode in (0, 141)
    assert done.stdout == b"/// Twice the values.\n"
    assert done.stderr == b""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_full_disk(scale: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = process("-p", "none", scale, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 2
    assert done.stderr == b"pipelinkc: error: cannot write to standard output: no space left on device\n"


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_streams_that_are_closed(scale: Path, closed: str) -> None:
    done = subprocess.run(["bash", "-c", f'{sys.executable} -m pipelink_ir.cli -p none "{scale}" {closed}'], capture_output=True, cwd=ROOT, timeout=60)
    assert done.returncode == 0
    assert done.stderr == b""
    assert done.stdout.decode() == ("" if ">&-" in closed.split() else SCALE)


@pytest.mark.parametrize("locale", ["C", "POSIX", "de_DE.ISO-8859-1"])
def test_utf8_whatever_the_locale(tmp_path: Path, locale: str) -> None:
    text = SCALE.replace("Twice the values.", "Zweimal größer: 二倍 😀")
    path = tmp_path / "größe 二.plir"
    path.write_text(text, encoding="utf-8")
    done = process("-p", "none", path, env={"LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"})
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode("utf-8") == text


def test_a_byte_that_is_not_utf8(pipelinkc: Command, tmp_path: Path) -> None:
    path = tmp_path / "x.plir"
    path.write_bytes("// größe\n".encode() + b"// ab\xff\n" + SCALE.encode())
    done = pipelinkc(path)
    assert done.status == 1
    assert done.err.startswith(f"{path}:2:6: error[PL1001]: syntax: ")
    path.write_bytes(SCALE.encode() + b"\0")
    done = pipelinkc(path)
    assert done.status == 1
    assert "NUL" in done.err


def test_nothing_heavy_is_imported_for_help() -> None:
    code = ("import sys; from pipelink_ir.cli.main import main; main(['--help']); "
            "heavy = {'numpy', 'lark', 'llvmlite', 'PIL', 'ml_dtypes', 'importlib.metadata', 'asyncio'} & set(sys.modules); "
            "sys.exit(', '.join(heavy) or 0)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=ROOT, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")


def test_importing_the_package_is_cheap() -> None:
    code = "import sys, pipelink_ir; sys.exit(', '.join({'numpy', 'lark', 'llvmlite', 'argparse'} & set(sys.modules)) or 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=ROOT, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
