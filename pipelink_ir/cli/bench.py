"""Measure how long a pipeline takes, whole and kernel by kernel, beside what moving its bytes takes.

Inputs are arrays from files, as with 'run', or random ones: --size gives the sizes that no array says, '--size N=1,H=1080,W=1920'. Floats are between 0 and 1,
integers of 8 and 16 bits any code, wider ones 0 or 1. The floor is the time in which a copy moves as many bytes as all inputs and results have, at the rate
that copies reach in the same run. A kernel's bytes are those of the arrays that it touches, each counted once. On a GPU times are of the device, and its
cache is emptied before each call.
"""
from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from pipelink_ir.cli import console
from pipelink_ir.cli.calibration_options import add_calibration_option
from pipelink_ir.cli.compiling import compiled_for, target_here
from pipelink_ir.cli.pass_options import add_pass_options, dump_backend
from pipelink_ir.cli.pipeline_options import add_pipeline_options, settings
from pipelink_ir.cli.tables import add_format_option, table
from pipelink_ir.cli.tune_options import add_tune_options, check_tune, sizes_of
from pipelink_ir.ir.diagnostics import UsageError

if TYPE_CHECKING:
    from pipelink_ir.runtime.bench import Measured
    from pipelink_ir.runtime.project import Project

HEAD = ("node", "operator", "KiB", "ms", "GB/s", "of copy", "share")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a .plir file, '-' for standard input")
    parser.add_argument("--inputs", metavar="FILE", action="append", default=[], help="arrays by name, .npz or .safetensors; may be given several times")
    parser.add_argument("--in", metavar="NAME=FILE", dest="one_in", action="append", default=[], help="one input, also from .npy or an image")
    parser.add_argument("--size", metavar="NAME=N", action="append", default=[], help="sizes of random inputs, 'H=1080,W=1920'; may be given several times")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of random inputs (default 0)")
    parser.add_argument("--target", metavar="TARGET",
                        help="cuda, cuda:N, cpu, or sm_XX (the code of that architecture, on a newer GPU); the default is the best device present")
    parser.add_argument("--runs", type=int, default=20, metavar="N", help="calls that are measured, after some that are not (default 20)")
    add_format_option(parser)
    add_pipeline_options(parser)
    add_tune_options(parser)
    add_calibration_option(parser)
    add_pass_options(parser)


def execute(args: argparse.Namespace) -> int:
    from pipelink_ir.runtime.project import find_project
    project = find_project(args.file)
    with project.environment():
        return _execute(args, project)


def _execute(args: argparse.Namespace, project: Project) -> int:
    from pipelink_ir.runtime.bench import made_inputs, measure
    from pipelink_ir.runtime.compile import Settings
    from pipelink_ir.runtime.transfer import Inputs
    if args.runs < 1:
        raise UsageError("--runs is 1 or more")
    if args.seed < 0:
        raise UsageError("--seed is 0 or more")
    check_tune(args)
    sizes, files, chosen = sizes_of(args.size), Inputs(args.inputs, settings(args.one_in, "--in")), Settings(project.copies or "refuse", project=project)
    target = target_here(args, chosen)
    if target.name != "cpu" and target.device is None:
        raise UsageError(f"times are measured on 'cpu' and 'cuda', not on '{target.name}'")
    compiled, looking = compiled_for(args, target, "bench", chosen)
    console.report(compiled.diagnostics)
    arrays, origins = files.read(compiled)
    arrays = made_inputs(compiled, arrays, sizes, args.seed)
    compiled.check(arrays, origins)
    if args.tune:
        compiled, looking = compiled_for(args, target, "bench", chosen, tuned_on=arrays)
    found = measure(compiled, arrays, args.runs)
    if looking.dump is not None:
        dump_backend(looking.dump, compiled.pipeline.name, compiled.artifacts)
    if args.format == "json":
        print(json.dumps(found.as_json(), indent=1, default=str))
    else:
        show(found)
    return 0


def show(found: Measured) -> None:
    """The table."""
    sizes = f" with {', '.join(f'{k} = {v}' for k, v in found.sizes.items())}" if found.sizes else ""
    print(f"@{found.pipeline} on {found.target}{sizes}, {len(found.call_ms)} calls")
    host = f", {found.host_us:.1f} us of the host" if found.host_us is not None else ""
    print(f"  a call      {found.ms:.4f} ms (from {min(found.call_ms):.4f} to {max(found.call_ms):.4f}){host}")
    print(f"  the floor   {found.floor_ms:.4f} ms: {found.bytes / 2**20:.1f} MiB at {found.rate / 1e9:.1f} GB/s of a copy; the call reaches "
          f"{found.floor_ms / found.ms:.2f} of it")
    for what in ("arena bytes", "graphs"):
        if what in found.statistics:
            print(f"  {what:<11} {found.statistics[what]}")
    total = sum(k.ms for k in found.kernels) or 1.0
    rows = [(k.node, k.operator, f"{k.bytes / 1024:.1f}", f"{k.ms:.4f}", f"{k.gb_s:.1f}", f"{1e9 * k.gb_s / found.rate:.2f}", f"{100 * k.ms / total:.0f} %")
            for k in found.kernels]
    if rows:
        table(HEAD, rows, 2, 120)
