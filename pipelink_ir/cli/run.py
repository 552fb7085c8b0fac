"""Run a pipeline on arrays from files, and write its results to files.

Inputs are named as in the signature, without the %. --inputs takes .npz, .safetensors, or '-' for .npz on standard input; --in gives one input from .npy,
.png, .jpg, or from the array of its name in a .npz or .safetensors. Results go the same ways through --outputs and --out; without either, a
summary of them is printed. Arrays have the dtype of the signature and are never converted. NumPy files have no bf16 and f8: they hold bit patterns (u16, u8).

Images (.png, .jpg):
  An image is u8 (u16 for 16-bit grey, bool for one bit), rows by columns by channels, and nothing is converted silently. The signature decides the axes: its
  layout names them, without one two dimensions are HW, three HWC, four NHWC. A leading N is 1; the channel axis of a grey image is there or not as the
  signature says. After the file name may stand, for an input of a float dtype, ':unit' (0…255 becomes 0…1) or ':raw' (0…255 stays), and ':rgb', ':rgba' or
  ':gray' to convert the colours first: '--in img=photo.png:unit,rgb'. A result of a float dtype is written if its operator promises a range within
  [0, 1], or with ':unit' or ':raw'; it is rounded to nearest, saturates, and NaN is 0: '--out out=edges.png:unit'.
"""
from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pipelink_ir.cli import console
from pipelink_ir.cli.calibration_options import add_calibration_option
from pipelink_ir.cli.compiling import compiled_for, target_here
from pipelink_ir.cli.crash import crash_file
from pipelink_ir.cli.ledger_options import add_ledger_options, denied, explain
from pipelink_ir.cli.pass_options import add_pass_options, dump_backend
from pipelink_ir.cli.pipeline_options import add_pipeline_options, settings
from pipelink_ir.cli.tune_options import add_tune_options, check_tune
from pipelink_ir.ir.diagnostics import UsageError

if TYPE_CHECKING:
    from pipelink_ir.runtime.bind import Bound
    from pipelink_ir.runtime.compile import Compiled, Results
    from pipelink_ir.runtime.project import Project


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a .plir file, '-' for standard input")
    parser.add_argument("--inputs", metavar="FILE", action="append", default=[], help="arrays by name; may be given several times")
    parser.add_argument("--outputs", metavar="FILE", help="where all results go")
    parser.add_argument("--in", metavar="NAME=FILE", dest="one_in", action="append", default=[], help="one input, also from .npy or an image")
    parser.add_argument("--out", metavar="NAME=FILE", dest="one_out", action="append", default=[], help="one result, also to .npy or an image")
    parser.add_argument("--target", metavar="TARGET",
                        help="cuda, cuda:N, cpu, sm_XX (the code of that architecture, on a GPU that is as new or newer), or reference, which interprets the "
                             "program with NumPy; the default is the best device present")
    parser.add_argument("--float64", action="store_true", help="with the target reference: compute in f64 throughout")
    parser.add_argument("--copies", choices=("allow", "refuse"), help="whether an array that is not as contiguous as an operator asks is copied or refused")
    parser.add_argument("--check-values", action="store_true", help="check 'range' and 'finite' on the values of every edge while it runs")
    add_pipeline_options(parser)
    parser.add_argument("-v", "--verbose", action="store_true", help="say what was done and how long it took")
    add_ledger_options(parser)
    add_tune_options(parser)
    add_calibration_option(parser)
    add_pass_options(parser)


def execute(args: argparse.Namespace) -> int:
    from pipelink_ir.runtime.project import find_project
    project = find_project(args.file)
    with project.environment():
        return _execute(args, project)


def _execute(args: argparse.Namespace, project: Project) -> int:
    from pipelink_ir.runtime.compile import Settings
    from pipelink_ir.runtime.memory import memory_lines
    from pipelink_ir.runtime.sources import STDIN_PATHS
    from pipelink_ir.runtime.transfer import Inputs, Outputs
    inputs, outputs = Inputs(args.inputs, settings(args.one_in, "--in")), Outputs(args.outputs, settings(args.one_out, "--out"))
    check_tune(args)
    if sum(path in STDIN_PATHS for path in (args.file, *inputs.paths)) > 1:
        raise UsageError("standard input is asked for twice")
    outputs.check_paths([args.file, *inputs.paths])
    clock = Clock()
    chosen = Settings(args.copies or project.copies or "refuse", args.check_values, denied(args), project)
    target = target_here(args, chosen)
    compiled, looking = compiled_for(args, target, "run", chosen, float64=args.float64, lap=clock.lap)
    # What the arrays get wrong is told before the backend begins, which takes longer.
    outputs.check(compiled)
    arrays, origins = inputs.read(compiled)
    if args.tune:
        compiled.check(arrays, origins, args.copies)
        compiled, looking = compiled_for(args, target, "run", chosen, float64=args.float64, tuned_on=arrays, lap=clock.lap)
    console.report(compiled.diagnostics)
    bound = compiled.check(arrays, origins, args.copies)
    clock.lap("arrays")
    with crash_file(compiled.module, _again(args)):
        _ = compiled.executable
        clock.lap("backend")
        explain(args, (*compiled.ledger, *bound.entries), memory_lines(compiled, dict(zip(bound.names, bound.shapes, strict=True))))
        if looking.dump is not None:
            dump_backend(looking.dump, compiled.pipeline.name, compiled.artifacts)
        results = compiled.run(bound)
    clock.lap("run")
    if outputs.wanted:
        outputs.write(results, compiled)
    else:
        _summary(results)
    clock.lap("results")
    if args.verbose:
        _tell(compiled, bound, clock)
    return 0


@dataclass(slots=True)
class Clock:
    """Milliseconds of each part of the work."""

    times: dict[str, float] = field(default_factory=dict)
    _last: float = field(default_factory=time.perf_counter)

    def lap(self, what: str) -> None:
        now = time.perf_counter()
        self.times[what], self._last = 1000 * (now - self._last), now


def _again(args: argparse.Namespace) -> list[str | None]:
    """The command that runs the file of a crash on the same arrays."""
    flags = [("--target", args.target), ("--pipeline", args.pipeline), *(("--inputs", p) for p in args.inputs), *(("--in", p) for p in args.one_in)]
    return ["run", None, *(text for flag, value in flags if value for text in (flag, value)), *(["--float64"] if args.float64 else [])]


def _summary(results: Results) -> None:
    """A line for each result: name, dtype, shape, extremes and mean."""
    from pipelink_ir.runtime.transfer import describe_array
    for name, array in results.items():
        print(f"%{name}: {describe_array(array)}{_figures(array)}")


def _figures(array: Any) -> str:
    import numpy as np
    if array.size == 0:
        return ""
    if array.size == 1:
        return f" = {array.reshape(())}"
    wide = array.astype(np.float64)
    nans = int(np.isnan(wide).sum())
    with np.errstate(all="ignore"):
        finite = wide[~np.isnan(wide)]
        said = f"  min {finite.min():.6g}  max {finite.max():.6g}  mean {finite.mean():.6g}" if finite.size else ""
    return said + (f"  NaN {nans}" if nans else "")


def _tell(compiled: Compiled, bound: Bound, clock: Clock) -> None:
    say = console.say
    say(f"pipelinkc: @{compiled.pipeline.name} for {compiled.target.name}: " + ", ".join(f"{what} {ms:.1f} ms" for what, ms in clock.times.items()))
    say(f"  passes: {compiled.passes}")
    say(f"  nodes: {len(compiled.pipeline.nodes)}, operators: {len(compiled.module.operators)}")
    if bound.sizes:
        say("  sizes: " + ", ".join(f"{name} = {size}" for name, size in bound.sizes.items()))
    for what, value in getattr(compiled.executable, "statistics", {}).items():
        say(f"  {what}: {value}")
    for note in bound.notes:
        say(f"  {note}")
    sys.stderr.flush()
