"""The flags about the ledger, shared by the commands that compile: `--explain` prints it, `--deny` makes errors of entries."""
from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pipelink_ir.cli import console

if TYPE_CHECKING:
    from pipelink_ir.passes.ledger import Entry


def add_ledger_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--explain", action="store_true", help="print what was inserted or copied, and why (standard error)")
    parser.add_argument("--deny", metavar="LIST", action="append", default=[], help="kinds of such entries that are errors: 'copy,cast,fallback'")


def denied(args: argparse.Namespace) -> frozenset[str]:
    """The kinds that `--deny` names."""
    from pipelink_ir.passes.ledger import parse_kinds
    return parse_kinds(args.deny, "--deny")


def explain(args: argparse.Namespace, entries: Iterable[Entry], memory: Iterable[str] = ()) -> None:
    """Print the ledger, and what is known of memory, where it was asked for."""
    if not args.explain:
        return
    entries = list(entries)
    for e in entries:
        console.say(e.text())
    if not entries:
        console.say("ledger: nothing was inserted, copied or declined")
    for line in memory:
        console.say(line)
