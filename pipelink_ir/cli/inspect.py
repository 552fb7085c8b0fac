"""Show a dump of a tensor, or where two dumps differ first and how much.

`TensorView.debug_dump("blurred")` in Python writes 'blurred.bin' and 'blurred.json'; any of the three names means the dump. With two dumps, values, dtype,
shape and layout are compared. Exit status: 0 shown, or equal; 1 different; 2 a file that cannot be read.
"""
from __future__ import annotations

import argparse

from pipelink_ir.ir.diagnostics import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dumps", metavar="DUMP", nargs="+", help="one dump, or two to compare")


def execute(args: argparse.Namespace) -> int:
    from pipelink_ir.runtime.dump import compare, describe_dump, read_dump
    if len(args.dumps) > 2:
        raise UsageError(f"'inspect' takes one dump, or two to compare, not {len(args.dumps)}")
    dumps = [read_dump(path) for path in args.dumps]
    if len(dumps) == 1:
        print(describe_dump(dumps[0]))
        return 0
    equal, text = compare(dumps[0], dumps[1])
    print(text)
    return 0 if equal else 1
