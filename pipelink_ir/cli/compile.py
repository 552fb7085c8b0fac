"""Compile a PLIR program, or run some passes on it, and print the result.

Exit status: 0 nothing wrong or warnings only, 1 the program is at fault, 2 wrong usage or unreadable files, 70 an internal error.
Standard output carries the result, standard error what is said about it; --dump-dir writes files. Any .plir that is printed or dumped can be given
back, also in another folder. FILE may be '-' for standard input; a file called like a command is written './run'.
"""
from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from pipelink_ir.cli import console
from pipelink_ir.cli.calibration_options import add_calibration_option, calibrated_steps
from pipelink_ir.cli.crash import crash_file
from pipelink_ir.cli.ledger_options import add_ledger_options, denied, explain
from pipelink_ir.cli.pass_options import Watch, add_pass_options, dump_backend, steps_of, watch
from pipelink_ir.cli.pipeline_options import add_pipeline_options, attributes
from pipelink_ir.cli.tune_options import add_tune_options, check_tune, sizes_of, tune_now, tuned_steps
from pipelink_ir.ir.diagnostics import Report, UsageError, did_you_mean
from pipelink_ir.ir.source import NOWHERE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pipelink_ir.ir.nodes import Module
    from pipelink_ir.passes.manager import Step
    from pipelink_ir.runtime.compile import Artifacts
    from pipelink_ir.runtime.project import Project
    from pipelink_ir.runtime.targets import Target

BACKEND_TEXTS = {"llvm": "ll", "asm": "s", "cuda": "cu", "hip": "hip", "ptx": "ptx", "cubin": "cubin", "loops": "loops"}
"""What a backend makes, by the word of `--emit`: the extension among its artifacts."""

BINARY = frozenset({"cubin"})
"""Words of `--emit` that make no text."""

EMITS = ("plir", *BACKEND_TEXTS, "plan", "dot")
_BY_EXTENSION = {".plir": "plir", ".ll": "llvm", ".s": "asm", ".loops": "loops", ".plan.json": "plan", ".dot": "dot",
                 ".cu": "cuda", ".hip": "hip", ".ptx": "ptx", ".cubin": "cubin"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", nargs="?", help="a .plir file, '-' for standard input")
    parser.add_argument("-o", "--output", metavar="OUT", help="write here instead of to standard output; the extension says what, unless --emit does")
    parser.add_argument("--target", metavar="TARGET", help="cpu (the default), reference, or sm_XX")
    parser.add_argument("--emit", metavar="WHAT", help=f"what to print: {', '.join(EMITS)} (default plir)")
    add_pipeline_options(parser)
    parser.add_argument("-v", "--verbose", action="store_true", help="say what is done and how long it took")
    parser.add_argument("--size", metavar="NAME=N", action="append", default=[],
                        help="with --tune: sizes of the arrays that schedules are measured on, 'H=1080,W=1920'")
    add_ledger_options(parser)
    add_tune_options(parser)
    add_calibration_option(parser)
    add_pass_options(parser)
    parser.add_argument("--help-passes", metavar="NAME", nargs="?", const="", help="list the passes, or explain one, and exit")


def execute(args: argparse.Namespace) -> int:
    from pipelink_ir.runtime.targets import parse_target
    if args.help_passes is not None:
        from pipelink_ir.cli.help_passes import all_passes, one_pass
        print(one_pass(args.help_passes) if args.help_passes else all_passes())
        return 0
    if args.file is None and not args.print_pipeline:
        raise UsageError("no FILE is given; `pipelinkc --help` says what there is")
    from pipelink_ir.runtime.project import Project, find_project
    project = find_project(args.file) if args.file is not None else Project()
    target = parse_target(args.target or project.runs_on() or "cpu")
    emit = _what(args)
    steps = steps_of(args, target)
    if args.file is None:
        print(_pipeline_text(steps))
        return 0
    _check(args, target, emit)
    check_tune(args)
    sizes = sizes_of(args.size)
    if sizes and not args.tune:
        raise UsageError("--size is for the arrays that schedules are measured on, and without --tune none are")
    with project.environment():
        return _compile(args, target, emit, steps, project, sizes)


def _what(args: argparse.Namespace) -> str:
    """The word of `--emit`, or the one that the extension of OUT stands for."""
    if args.emit is None:
        name = (args.output or "").lower()
        return next((word for end, word in _BY_EXTENSION.items() if name.endswith(end)), "plir")
    if args.emit not in EMITS:
        near = did_you_mean(args.emit, EMITS)
        raise UsageError(f"--emit: there is no '{args.emit}'; {near or 'there are ' + ', '.join(EMITS)}")
    return str(args.emit)


def _check(args: argparse.Namespace, target: Target, emit: str) -> None:
    from pipelink_ir.runtime.output import STDOUT_PATHS
    from pipelink_ir.runtime.sources import same_file
    if emit in BACKEND_TEXTS and args.stop_after:
        raise UsageError(f"--stop-after prints the program, so it does not go with '--emit {emit}'")
    if emit in BACKEND_TEXTS and BACKEND_TEXTS[emit] not in target.texts:
        raise UsageError(f"the target '{target.name}' makes no '{emit}'; {'the target cpu' if emit in ('llvm', 'asm') else 'a target like sm_90'} does")
    if emit in BINARY and (args.output is None or args.output in STDOUT_PATHS) and sys.stdout.isatty():
        raise UsageError(f"a {emit} is no text for a terminal; -o FILE writes it")
    if args.output is not None and args.output != "-" and same_file(args.output, args.file):
        raise UsageError(f"'{args.output}' is the program itself, which is never overwritten")


def _pipeline_text(steps: tuple[Step, ...]) -> str:
    from pipelink_ir.passes.manager import pipeline_text
    return pipeline_text(steps)


def _compile(args: argparse.Namespace, target: Target, emit: str, steps: tuple[Step, ...], project: Project, sizes: Mapping[str, int]) -> int:
    from pipelink_ir.passes.ledger import check_denied, ledger
    from pipelink_ir.passes.manager import run_passes
    from pipelink_ir.runtime.attributes import with_attributes
    from pipelink_ir.runtime.compile import pick_pipeline
    from pipelink_ir.runtime.sources import read_program
    from pipelink_ir.runtime.targets import completed, lowered_for
    looking, kinds = watch(args), denied(args)
    module = read_program(args.file)
    steps = calibrated_steps(args, project.steps(steps, checked=bool(args.target or module.targets)))
    values = attributes(args)
    if args.tune:
        from pipelink_ir.runtime.compile import Settings
        tune_now(args, module, target, values, steps, Settings(project.copies or "refuse", project=project), {}, sizes)
    steps = tuned_steps(args, steps, target, module)
    if values:
        module = with_attributes(module, pick_pipeline(module, args.pipeline), values)
    steps = lowered_for(completed(steps, target) if emit in BACKEND_TEXTS else steps, target, module,
                        pick_pipeline(module, args.pipeline) if args.pipeline else None)
    if args.print_pipeline:
        console.say(_pipeline_text(steps))
    report = Report()
    try:
        module = run_passes(module, steps, report, looking.hooks)
    finally:
        looking.finish()
    entries = ledger(module, target.name)
    explain(args, entries, _memory(module, target))
    check_denied(entries, kinds, report, module.pipelines[0].name_span if module.pipelines else NOWHERE)
    report.stop_if_failed()
    console.report(report.diagnostics)
    data = _emit(module, args, target, emit)
    _dump(module, args, target, looking)
    _write(args.output, data)
    if args.verbose:
        console.say(f"pipelinkc: {args.file}: passes {_pipeline_text(steps)}; wrote {len(_bytes(data))} bytes of {emit}"
                    f" to {args.output or 'standard output'}")
    return 0


def _memory(module: Module, target: Target) -> Iterator[str]:
    """What is known of the memory of every pipeline, if it was planned."""
    from pipelink_ir.passes.aliasing.report import lines, planned_at_all
    for p in module.pipelines:
        if planned_at_all(p):
            yield from lines(p, "cpu" if target.name == "cpu" else "")


def _emit(module: Module, args: argparse.Namespace, target: Target, emit: str) -> str | bytes:
    """What was asked for."""
    from pipelink_ir.grammar import print_module
    from pipelink_ir.runtime.compile import Artifacts, load_module, pick_pipeline
    if emit == "plir":
        return print_module(module)
    name = pick_pipeline(module, args.pipeline)
    if emit in BACKEND_TEXTS:
        with crash_file(module, [None, "--emit", emit, "--pipeline", name]):
            return _artifact(Artifacts(module, load_module(target, module, name)), BACKEND_TEXTS[emit], args.verbose)
    from pipelink_ir.cli import plan
    return plan.dot(module, name) if emit == "dot" else plan.json_text(module, name)


def _artifact(artifacts: Artifacts, extension: str, verbose: bool) -> str | bytes:
    """One thing that the backend made; with -v also what the compiler below says of it."""
    if extension not in artifacts:
        raise artifacts.missing(extension)
    made = artifacts[extension]
    if verbose and extension in ("ptx", "cubin") and "log" in artifacts:
        console.say(_bytes(artifacts["log"]).decode("utf-8").rstrip())
    return made


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode("utf-8")


def _dump(module: Module, args: argparse.Namespace, target: Target, looking: Watch) -> None:
    """What the backend makes of every pipeline, after the numbered programs; not where only some passes were asked for."""
    if looking.dump is None or args.stop_after or args.passes is not None or not target.runs:
        return
    from pipelink_ir.runtime.compile import Artifacts, load_module, pick_pipeline
    for name in [pick_pipeline(module, args.pipeline)] if args.pipeline else [p.name for p in module.pipelines]:
        with crash_file(module, [None, "--emit", "asm", "--pipeline", name]):
            dump_backend(looking.dump, name, Artifacts(module, load_module(target, module, name)))


def _write(output: str | None, data: str | bytes) -> None:
    from pipelink_ir.runtime.output import STDOUT_PATHS, write_output
    if output is not None and output not in STDOUT_PATHS:
        write_output(output, _bytes(data))
    elif isinstance(data, bytes):
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    else:
        sys.stdout.write(data if data.endswith("\n") or not data else data + "\n")
