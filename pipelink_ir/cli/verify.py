"""Run each hand-written kernel of a program against the `compute` beside it, on random and on edge inputs, and report the first difference.

Needs a GPU, or plays one. Exit status: 0 all agree, 1 one differs, 2 wrong usage, unreadable files, or no GPU.
"""
from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from pipelink_ir.cli import console
from pipelink_ir.ir.diagnostics import Report, UsageError

if TYPE_CHECKING:
    from pipelink_ir.runtime.project import Project
    from pipelink_ir.runtime.targets import Target


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a .plir file, '-' for standard input")
    parser.add_argument("--op", metavar="NAME", action="append", default=[], help="this operator alone; may be given several times")
    parser.add_argument("--target", metavar="TARGET", default="cuda", help="cuda (the default), cuda:N, or cuda-emulated, which plays a GPU")
    parser.add_argument("--runs", metavar="N", type=int, default=20, help="runs for each way to call an operator (default 20)")
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="another seed gives other inputs")


def execute(args: argparse.Namespace) -> int:
    from pipelink_ir.runtime.project import find_project
    if args.runs < 1:
        raise UsageError("--runs is 1 or more")
    project = find_project(args.file)
    with project.environment():
        return _execute(args, project)


def _execute(args: argparse.Namespace, project: Project) -> int:
    from pipelink_ir.passes.manager import parse_passes, run_passes
    from pipelink_ir.runtime.sources import read_program
    from pipelink_ir.runtime.targets import parse_target
    from pipelink_ir.runtime.verification import Verification, chosen
    target = parse_target(args.target)
    if target.device is None and not target.played:
        raise UsageError(f"hand-written kernels run on a GPU: --target is cuda or cuda:N, not '{args.target}'")
    report = Report()
    module = run_passes(read_program(args.file), project.steps(parse_passes("resolve"), checked=True), report)
    report.stop_if_failed()
    module = chosen(module, args.op)
    if all(o.kernel is None for o in module.operators):
        print(f"{args.file}: no operator has a kernel")
        return 0
    work = Verification(module, _emulated(target) if target.played else _loader(target.device or 0), args.runs, args.seed)
    for done in work.all():
        if work.report.failed:
            break
        if done.skipped is not None:
            print(f"@{done.operator}: not compared: {done.skipped}")
        else:
            refused = f", {done.refused} inputs that 'compute' refuses" if done.refused else ""
            print(f"@{done.operator}: agrees in {done.runs} runs, largest error {100 * done.worst:.0f} % of what is allowed{refused}")
    console.report(work.report.diagnostics)
    return 1 if work.report.failed else 0


def _loader(device: int) -> Any:
    from pipelink_ir.backends.cuda.executable import load
    from pipelink_ir.backends.cuda.opened import driver
    driver()  # what is missing is told at once
    return lambda module, name: load(module, name, {"device": device})


def _emulated(target: Target) -> Any:
    from pipelink_ir.backends.cuda.emulate.executable import Options, load
    return lambda module, name: load(module, name, Options(arch=target.arch))
