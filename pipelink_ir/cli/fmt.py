"""Format programs in place.

Comments and blank lines between things stay, everything else is laid out in one way. A file that does not parse is left as it is and reported, and the
others are formatted all the same. '-' formats standard input to standard output.
"""
from __future__ import annotations

import argparse
import sys

from pipelink_ir.cli import console
from pipelink_ir.ir.diagnostics import ProgramError, UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", metavar="FILE|DIR", nargs="*", help="programs, or folders that are searched for .plir files; '-' is standard input")
    parser.add_argument("--check", action="store_true", help="write nothing; name the files that are not formatted, and exit with 1 if there are any")
    parser.add_argument("--diff", action="store_true", help="write nothing; print what would change")


def execute(args: argparse.Namespace) -> int:
    from pipelink_ir.runtime.programs import find_programs
    if not args.paths:
        raise UsageError("no FILE is given; `pipelinkc fmt --help` says what there is")
    files, problems = find_programs(args.paths)
    changed = 0
    for path in files:
        try:
            changed += _one(path, args)
        except ProgramError as error:
            problems += error.diagnostics
    console.report(problems)
    return console.status(problems) or int(args.check and changed > 0)


def _one(path: str, args: argparse.Namespace) -> bool:
    """Format one file; whether it was not formatted."""
    from pipelink_ir.grammar import format_text
    from pipelink_ir.runtime.output import write_output
    from pipelink_ir.runtime.sources import read_bytes, shown_path
    name = shown_path(path)
    data = read_bytes(path)
    new = format_text(data, name)
    changed: bool = new.encode("utf-8") != data
    if args.diff:
        sys.stdout.write(_diff(data.decode("utf-8"), new, name))
    if args.check:
        if changed:
            console.say(f"{name}: not formatted")
    elif name != path or path == "-":
        if not args.diff:
            sys.stdout.write(new)
    elif changed and not args.diff:
        write_output(path, new.encode("utf-8"))
    return changed


def _diff(old: str, new: str, name: str) -> str:
    import difflib
    lines = difflib.unified_diff(old.splitlines(keepends=True), new.splitlines(keepends=True), name, f"{name} (formatted)")
    return "".join(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in lines)

