"""The flags about data that edges are looked at on, shared by `calibrate` and `compare`."""
from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pipelink_ir.cli import console
from pipelink_ir.cli.pipeline_options import settings
from pipelink_ir.cli.tune_options import sizes_of
from pipelink_ir.ir.diagnostics import UsageError

if TYPE_CHECKING:
    from pipelink_ir.runtime.calibration.samples import Samples

RANDOM = 1_000_000
"""Samples of random numbers, at most."""


def add_data_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("data")
    group.add_argument("--data", metavar="PATH", nargs="+", action="extend", default=[],
                       help="samples: .npz or .safetensors files with arrays by input, images or .npy files for the only input, or a folder of such files")
    group.add_argument("--inputs", metavar="FILE", action="append", default=[], help="arrays that are the same in every sample (weights), by name")
    group.add_argument("--in", metavar="NAME=FILE", dest="one_in", action="append", default=[],
                       help="one input from .npy, .npz or an image as 'run' takes them; a pattern ('img=photos/*.png:unit') is a sample for each file")
    group.add_argument("--random", metavar="N", type=int, help="N samples of random numbers instead of data, to try things out; ranges mean nothing then")
    group.add_argument("--size", metavar="NAME=N", action="append", default=[], help="with --random: sizes that no array says, 'H=1080,W=1920'")
    group.add_argument("--seed", type=int, metavar="N", help="with --random: of the first sample (default 0)")


def samples_of(args: argparse.Namespace) -> Samples:
    """The samples that the flags name."""
    from pipelink_ir.runtime.calibration.samples import Files, Made
    from pipelink_ir.runtime.sources import STDIN_PATHS
    from pipelink_ir.runtime.transfer import Inputs
    one = settings(args.one_in, "--in")
    if args.random is None:
        if args.size or args.seed is not None:
            flag = "--size" if args.size else "--seed"
            raise UsageError(f"{flag} is for random numbers, which are no data: give --data or --in without it, or say so with --random N")
        found = Files(args.data, args.inputs, one)
        if not found.size:
            raise UsageError("there is no data: --data a.npz b.npz …, --data FOLDER or --in NAME=PATTERN; random numbers only with --random N")
        if any(p in STDIN_PATHS for p in found.paths):
            raise UsageError("data is read more than once, which standard input cannot be")
        return found
    if args.data:
        raise UsageError("--random stands for data: '--data' does not go with it")
    if not 1 <= args.random <= RANDOM:
        raise UsageError(f"--random is from 1 to {RANDOM}")
    seed = args.seed or 0
    if seed < 0:
        raise UsageError("--seed is 0 or more")
    return Made(args.random, sizes_of(args.size), seed, Inputs(args.inputs, one) if args.inputs or one else None)


def say_passed_over(samples: Samples) -> None:
    """Tell of arrays in the data that are no inputs."""
    passed: dict[str, str] = getattr(samples, "passed_over", {})
    for name, path in sorted(passed.items()):
        console.say(f"pipelinkc: '{name}' in '{path}' is no input, and was passed over")
