"""The flags about which pipeline of a file is meant and with which values, shared by the commands that take one; and `NAME=VALUE` texts as tables."""
from __future__ import annotations

import argparse

from pipelink_ir.ir.diagnostics import UsageError


def add_pipeline_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pipeline", metavar="NAME", help="the pipeline meant, where a file has several")
    parser.add_argument("--set", metavar="NAME=VALUE", action="append", default=[], help="a value for an attribute of the pipeline")


def attributes(args: argparse.Namespace) -> dict[str, str]:
    """The values that `--set` gives."""
    return settings(args.set, "--set")


def settings(texts: list[str], flag: str) -> dict[str, str]:
    """`name=value` texts as a table."""
    out: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip().removeprefix("%")
        if not equals or not name or not value:
            raise UsageError(f"{flag} takes NAME=VALUE, not '{text}'")
        if name in out:
            raise UsageError(f"{flag}: '{name}' is given twice")
        out[name] = value
    return out
