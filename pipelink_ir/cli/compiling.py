"""A program compiled to run here, as `run` and `bench` do it by the same flags."""
from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pipelink_ir.cli import console
from pipelink_ir.cli.calibration_options import calibrated_steps
from pipelink_ir.cli.pass_options import Watch, steps_of, watch
from pipelink_ir.cli.pipeline_options import attributes
from pipelink_ir.cli.tune_options import tune_now, tuned_steps
from pipelink_ir.ir.diagnostics import UsageError

if TYPE_CHECKING:
    from pipelink_ir.runtime.compile import Compiled, Settings
    from pipelink_ir.runtime.targets import Target


def target_here(args: argparse.Namespace, settings: Settings) -> Target:
    """What runs the program: the target of the command, of the project, or the best one, with a GPU of this machine where it takes one."""
    from pipelink_ir.runtime.targets import best_target, on_gpu, parse_target
    return on_gpu(parse_target(args.target or settings.project.runs_on() or best_target()))


def compiled_for(args: argparse.Namespace, target: Target, command: str, settings: Settings, *, float64: bool = False, tuned_on: dict[str, Any] | None = None,
                 lap: Callable[[str], None] = lambda what: None) -> tuple[Compiled, Watch]:
    """The program compiled, and what looked on. With `--tune` it is first compiled quietly, to find out what arrays it takes, and then with schedules that are
    measured on these arrays (`tuned_on`). `lap` is told what is done."""
    from pipelink_ir.passes.manager import pipeline_text
    from pipelink_ir.runtime.compile import compile_module
    from pipelink_ir.runtime.sources import read_program
    if args.stop_after:
        raise UsageError(f"--stop-after prints a program that is not finished; it does not go with '{command}'")
    first = args.tune and tuned_on is None
    steps, looking = steps_of(args, target), watch(args, quietly=first)
    module = read_program(args.file)
    steps = calibrated_steps(args, settings.project.steps(steps, checked=bool(args.target or module.targets)))
    lap("reading")
    if tuned_on is not None:
        tune_now(args, module, target, attributes(args), steps, settings, tuned_on, {})
        lap("tuning")
    steps = tuned_steps(args, steps, target, module)
    if args.print_pipeline and not first:
        console.say(pipeline_text(steps))
    try:
        compiled = compile_module(module, target, args.pipeline, attributes(args), float64=float64, steps=steps, hooks=looking.hooks, settings=settings)
    finally:
        looking.finish()
    lap("passes")
    return compiled, looking
