"""Explain a diagnostic: what it means, why it is an error, a wrong program and a right one.

Without a code all codes are listed.
"""
from __future__ import annotations

import argparse

from pipelink_ir.ir.codes import CODES
from pipelink_ir.ir.diagnostics import UsageError, did_you_mean


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("code", metavar="CODE|FIELD", nargs="?", help="a code (PL3001, 3001) or a field (layout)")


def execute(args: argparse.Namespace) -> int:
    if args.code is None:
        print("\n".join(f"{code}  {entry.field:<12} {entry.title}" for code, entry in CODES.items()))
        return 0
    print("\n\n".join(map(text, _codes(args.code))))
    return 0


def _codes(word: str) -> list[str]:
    """The codes that a word names; a field may have several."""
    upper = word.upper()
    for code in (upper, f"PL{upper}"):
        if code in CODES:
            return [code]
    found = [code for code, entry in CODES.items() if entry.field == word.lower()]
    if not found:
        known = [*CODES, *(entry.field for entry in CODES.values())]
        near = did_you_mean(upper if upper.startswith("PL") else word.lower(), known)
        raise UsageError(f"there is no code or field '{word}'; {near or '`pipelinkc explain` lists all'}")
    return found


def text(code: str) -> str:
    """What is printed about one code."""
    import textwrap
    entry = CODES[code]
    parts = [f"{code}: {entry.field}: {entry.title}", textwrap.fill(entry.why, 100)]
    for title, program in (("Wrong:", entry.wrong), ("Right:", entry.right)):
        if program:
            parts.append(f"{title}\n\n{textwrap.indent(program.rstrip(), '    ')}")
    return "\n\n".join(parts)
