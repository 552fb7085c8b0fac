"""The flag about ranges of edges, shared by the commands that compile: `--calibration` names the file, which is found beside the program otherwise."""
from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipelink_ir.passes.manager import Step


def add_calibration_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--calibration", metavar="FILE",
                        help="the ranges that values are quantised by, from 'pipelinkc calibrate', or 'off'; by default FILE.calibration.yaml")


def calibrated_steps(args: argparse.Namespace, steps: Sequence[Step]) -> tuple[Step, ...]:
    """The passes with the file of ranges that there is."""
    from pipelink_ir.runtime.calibration.files import with_calibration
    return with_calibration(steps, args.file, args.calibration)
