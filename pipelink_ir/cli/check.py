"""Report everything that is wrong with programs: names, types, shapes, bounds, contracts, and whether policies can be carried out. Nothing is run and no device
is needed. Policies are carried out for each target that --target names, else those of the program, else those of the project.

Diagnostics are printed to standard output: as text; with --format json, as one list of objects
{"code", "severity", "field", "message", "file", "line", "column", "notes": [{"message", "file", "line", "column"}], "help"};
with --format github, as annotations that GitHub shows beside the lines of a pull request.
A bad or missing file does not hide what is wrong with the others. Exit status: 0 nothing or warnings only, 1 errors in programs,
2 a file that cannot be read, 70 an internal error.
"""
from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipelink_ir.cli import console
from pipelink_ir.ir.diagnostics import Diagnostic, ProgramError, Report, UsageError

if TYPE_CHECKING:
    from pipelink_ir.ir.nodes import Module
    from pipelink_ir.runtime.project import Project
    from pipelink_ir.runtime.targets import Target


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", metavar="FILE|DIR", nargs="*", help="programs, or folders that are searched for .plir files; '-' is standard input")
    parser.add_argument("--op-dir", metavar="DIR", action="append", default=[], help="a further folder of operators to check")
    parser.add_argument("--target", metavar="LIST", help="check for these targets, 'sm_75,sm_90', instead of those that programs declare")
    parser.add_argument("--format", metavar="FORMAT", choices=("text", "json", "github"), default="text", help="text (the default), json or github")


def execute(args: argparse.Namespace) -> int:
    from pipelink_ir.runtime.programs import find_programs
    paths = [*args.paths, *args.op_dir]
    if not paths:
        raise UsageError("no FILE or DIR is given; `pipelinkc check --help` says what there is")
    targets = _targets(args.target)
    files, found = find_programs(paths)
    fault = 0
    checked: list[Checked] = []
    for path in files:
        try:
            checked.append(look_at(path, targets))
            found += checked[-1].found
        except UsageError:
            raise
        except Exception as error:  # a fault of ours must not hide what is wrong with the other files
            fault = console.internal(error, args.debug, f"{path}: ")
    if not fault:
        found += _labels(paths, checked)
    found = _once(found)
    _show(found, args.format, len(files))
    return fault or console.status(found)


def _targets(text: str | None) -> tuple[Target, ...]:
    from pipelink_ir.runtime.targets import parse_target
    targets = tuple(parse_target(name.strip()) for name in text.split(",")) if text is not None else ()
    for target in targets:
        if target.arch is None:
            raise UsageError(f"--target: what is right depends on the architecture, and '{target.name}' names none; write 'sm_90'")
    return targets


@dataclass(frozen=True, slots=True)
class Checked:
    """What is wrong with one program, the program with types where they are right, and its project."""

    found: list[Diagnostic]
    module: Module | None = None
    project: Project | None = None


def look_at(path: str, targets: Sequence[Target] = ()) -> Checked:
    """Everything that is wrong with one program, for these targets or those that it declares."""
    from pipelink_ir.passes.hooks import VerifyEach
    from pipelink_ir.passes.manager import parse_passes, run_passes
    from pipelink_ir.runtime.policies import lowering_faults
    from pipelink_ir.runtime.project import find_project
    from pipelink_ir.runtime.sources import read_program
    from pipelink_ir.runtime.targets import checked_for
    report, project = Report(), None
    try:
        module, project = read_program(path), find_project(path)
        steps = project.steps(checked_for(parse_passes("validate"), targets), checked=bool(targets or module.targets))
        typed = run_passes(module, steps, report, [VerifyEach()])
    except ProgramError as error:
        return Checked(list(error.diagnostics), None, project)
    found = report.diagnostics
    return Checked([*found, *lowering_faults(path, module, project, targets, found)], typed, project)


def check_file(path: str, targets: Sequence[Target] = ()) -> list[Diagnostic]:
    """What is wrong with one program."""
    return look_at(path, targets).found


def _labels(paths: Sequence[str], checked: Sequence[Checked]) -> list[Diagnostic]:
    """Labels in the policies of projects that no program has, of each project that is checked as a whole: its folder, or one above, is among the paths."""
    from pipelink_ir.runtime.policies import unused_labels
    folders = [os.path.realpath(p) for p in paths if os.path.isdir(p)]
    out: list[Diagnostic] = []
    for project in {c.project.path: c.project for c in checked if c.project is not None}.values():
        mine = [c for c in checked if c.project is not None and c.project.path == project.path]
        home = os.path.realpath(os.path.dirname(project.path or ""))
        # A program that is wrong may have the label.
        if project.path and any(os.path.commonpath((f, home)) == f for f in folders) and all(c.module is not None for c in mine):
            out += unused_labels(project, [c.module for c in mine if c.module is not None])
    return out


def _once(found: Iterable[Diagnostic]) -> list[Diagnostic]:
    """What an imported file gets wrong is told once, not by everyone who imports it."""
    return list({(d.code, d.severity, d.message, d.span.source.path, d.span.line, d.span.column): d for d in found}.values())


def _show(found: Sequence[Diagnostic], format: str, files: int) -> None:
    if format == "json":
        import json
        sys.stdout.write(json.dumps([d.json() for d in found], indent=2, ensure_ascii=False) + "\n")
        return
    if format == "github":
        for d in found:
            print(_annotation(d))
    for d in found if format == "text" else ():
        # A file that cannot be read is no finding about a program.
        if d.code == "PL9101":
            console.report([d])
        else:
            print(d.text())
    errors = sum(d.severity == "error" for d in found)
    console.say(f"checked {_count(files, 'file')}: " + (", ".join(
        [_count(n, word) for n, word in ((errors, "error"), (len(found) - errors, "warning")) if n]) or "ok"))


def _annotation(d: Diagnostic) -> str:
    """A workflow command of GitHub Actions. Notes and help stand in its message, since an annotation has one place only."""
    notes = [f"{n.span}: {n.message}" for n in d.notes]
    message = "\n".join([f"{d.field}: {d.message}", *notes, *([f"help: {d.help}"] if d.help else [])])
    place = {"file": d.span.source.path, "line": d.span.line, "col": d.span.column, "title": d.code}
    return f"::{d.severity} {','.join(f'{k}={_escaped(str(v), property=True)}' for k, v in place.items())}::{_escaped(message)}"


def _escaped(text: str, property: bool = False) -> str:
    """Text as a workflow command carries it: one line, and no separators in a property."""
    for c in "%\r\n" + (":," if property else ""):
        text = text.replace(c, f"%{ord(c):02X}")
    return text


def _count(n: int, word: str) -> str:
    return f"{n} {word}{'s' * (n != 1)}"
