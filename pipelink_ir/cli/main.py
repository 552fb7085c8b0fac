"""`pipelinkc`: which command is meant, and how each of its ends is told.

A command is a module of this folder with `add_arguments(parser)` and `execute(args) -> int`; it is imported when it is asked for. What is not the name of a
command is a file to compile. Exit status: 0 nothing wrong or warnings only, 1 the program is at fault, 2 wrong usage or unreadable files, 70 a fault of
this compiler. Standard output carries results, standard error what is said about them.
"""
from __future__ import annotations

import argparse
import importlib
import os
import sys

from pipelink_ir.cli import console
from pipelink_ir.ir.diagnostics import ProgramError, UsageError, did_you_mean
from pipelink_ir.version import __version__

COMMANDS = {
    "run": "run a pipeline on arrays from files",
    "check": "report everything that is wrong with programs, without running them",
    "fmt": "format programs",
    "explain": "what a diagnostic code means, with a wrong and a right program",
    "verify": "run hand-written kernels against what they are to compute",
    "bench": "measure a pipeline, whole and kernel by kernel",
    "calibrate": "measure the ranges of a pipeline's edges on data, for quantising, and errors of lowered plans",
    "compare": "run a pipeline in two ways and tell where precision is lost",
    "inspect": "show a dump of a tensor, or where two dumps differ",
}
"""The commands and what the help says of them."""

LATER = ("build", "profile", "view", "lsp")
"""Words that later versions will understand. A file of such a name is written `./build`."""


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit status. Never raises, except for a fault of ours under `--debug`."""
    args = list(sys.argv[1:] if argv is None else argv)
    console.prepare()
    try:
        status = _run(args)
        sys.stdout.flush()
    except BrokenPipeError:
        console.silence()
        return 141
    except OSError as error:
        if error.filename is not None:
            raise
        # Writing to standard output failed: a full disk, /dev/full.
        console.silence()
        console.say(f"pipelinkc: error: cannot write to standard output: {(error.strerror or str(error)).lower()}")
        return 2
    return status


def _run(args: list[str]) -> int:
    debug = "--debug" in args[:args.index("--")] if "--" in args else "--debug" in args
    try:
        return _dispatch(args)
    except SystemExit as stop:  # argparse: help is 0, wrong usage 2
        return stop.code if isinstance(stop.code, int) else 2
    except UsageError as error:
        console.say(f"pipelinkc: error: {error}")
        return 2
    except ProgramError as error:
        console.report(error.diagnostics)
        return console.status(error.diagnostics)
    except KeyboardInterrupt:
        console.say("pipelinkc: interrupted")
        return 130
    except MemoryError as error:
        console.say(f"pipelinkc: error: there is not enough memory: {' '.join(str(error).split()) or 'allocation failed'}")
        return 1
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.filename is None:
            raise
        return console.internal(error, debug)
    except Exception as error:  # a fault of ours, whatever it is
        return console.internal(error, debug)


def _dispatch(args: list[str]) -> int:
    name = args[0] if args else ""
    if name in LATER:
        from pipelink_ir.cli import later
        return later.execute(name)
    if name and "." not in name and not name.startswith("-") and name not in COMMANDS and not os.path.exists(name):
        near = did_you_mean(name, (*COMMANDS, *LATER))
        if near:
            raise UsageError(f"there is no command or file '{name}'; {near}")
    command = name if name in COMMANDS else "compile"
    module = importlib.import_module(f"pipelink_ir.cli.{command}")
    parser = _parser(command, module.__doc__ or "")
    module.add_arguments(parser)
    return int(module.execute(parser.parse_args(args[1:] if name in COMMANDS else args)))


def _parser(command: str, doc: str) -> argparse.ArgumentParser:
    """The first paragraph of a command's docstring is its description, the others stand below its options."""
    head, _, tail = doc.partition("\n\n")
    if command == "compile":
        width = max(map(len, COMMANDS))
        listing = "\n".join(f"  pipelinkc {name:<{width}} …  {says}" for name, says in COMMANDS.items())
        tail = f"Commands, each with its own --help:\n{listing}\n\n{tail}"
    parser = argparse.ArgumentParser(prog="pipelinkc" if command == "compile" else f"pipelinkc {command}", description=head, epilog=tail.strip(),
                                     formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.add_argument("--debug", action="store_true", help="show where an internal error happened")
    if command == "compile":
        parser.add_argument("--version", action="version", version=f"pipelinkc {__version__}")
    return parser

