"""The flags about tuned schedules, shared by the commands that compile: `--tune` measures and writes a file, `--tuned` names one."""
from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pipelink_ir.cli import console
from pipelink_ir.cli.tables import progress, table
from pipelink_ir.ir.diagnostics import UsageError

if TYPE_CHECKING:
    from pipelink_ir.ir.nodes import Module
    from pipelink_ir.passes.manager import Step
    from pipelink_ir.runtime.compile import Settings
    from pipelink_ir.runtime.targets import Target
    from pipelink_ir.runtime.tuning.search import Outcome


def add_tune_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tune", action="store_true", help="measure schedules on the device, and keep those that are faster (docs/tuning.md)")
    parser.add_argument("--tuned", metavar="FILE", help="the file of tuned schedules, or 'off'; without it FILE.tuned.yaml beside the program and the cache's")


def check_tune(args: argparse.Namespace) -> None:
    """What cannot be tuned, told before anything is compiled."""
    from pipelink_ir.runtime.sources import STDIN_PATHS
    if args.tune and args.tuned == "off":
        raise UsageError("--tune keeps what it finds: '--tuned off' does not go with it")
    if args.tune and args.file in STDIN_PATHS:
        raise UsageError("--tune compiles a program several times: one on standard input cannot be read again")


def sizes_of(texts: list[str]) -> dict[str, int]:
    """`H=1080,W=1920`."""
    out: dict[str, int] = {}
    for part in (p.strip() for text in texts for p in text.split(",")):
        name, equals, value = part.partition("=")
        if not equals or not name or not value.isascii() or not value.isdigit():
            raise UsageError(f"--size takes NAME=N, with a number that is not negative, not '{part}'")
        if name in out:
            raise UsageError(f"--size: '{name}' is given twice")
        if len(value) > 19 or int(value) >= 1 << 63:
            raise UsageError(f"--size: {value} is too large for '{name}'; a size is below 2**63")
        out[name] = int(value)
    return out


def tuned_steps(args: argparse.Namespace, steps: Sequence[Step], target: Target, module: Module) -> tuple[Step, ...]:
    """The passes with the files of tuned schedules that there are."""
    from pipelink_ir.runtime.tuning.files import with_tuned
    return with_tuned(steps, target, module, args.file, args.tuned)


def tune_now(args: argparse.Namespace, module: Module, target: Target, attributes: Mapping[str, Any], steps: Sequence[Step], settings: Settings,
             given: Mapping[str, Any], sizes: Mapping[str, int]) -> None:
    """Measure, keep what is better, and tell of it on standard error."""
    from pipelink_ir.runtime.compile import tune
    from pipelink_ir.runtime.tuning.files import kept
    with progress("tuning") as watch:
        outcome = tune(module, target, args.pipeline, attributes, steps=steps, settings=settings, given=given, sizes=sizes, watch=watch)
    path = kept(outcome.entries, args.file, args.tuned, outcome.arch)
    show(outcome, path)


def show(outcome: Outcome, path: str) -> None:
    """What was tried, operator by operator."""
    for f in outcome.found:
        tried = [(t.what, "" if t.ms is None else f"{t.ms:.4f}", t.status) for t in sorted(f.tried, key=lambda t: (t.ms is None, t.ms or 0.0))]
        console.say(f"@{f.operator}: numbers compared with {f.checked}")
        table(("schedule", "ms", ""), [("default", f"{f.default_ms:.4f}", ""), *tried], 3, file=sys.stderr)
    better = sum(1 for f in outcome.found if f.schedule)
    console.say(f"{better} of {len(outcome.found)} operators have a better schedule now, for {outcome.arch} ({outcome.device}): {path}")
