"""Where ranges are kept: in the file that is named, else beside the program (`edge.calibration.yaml` beside `edge.plir`)."""
from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pipelink_ir.ir.diagnostics import ProgramError, UsageError
from pipelink_ir.passes.manager import Step
from pipelink_ir.passes.precision.calibrated import Calibration
from pipelink_ir.passes.precision.calibration_file import calibration_text, read_calibration
from pipelink_ir.runtime.sources import STDIN_PATHS
from pipelink_ir.runtime.targets import LOWER

OFF = "off"
"""Stands for no file at all."""
ENDING = ".calibration.yaml"


def beside(program: str | None) -> str | None:
    """The file of a program, whether it is there or not; None for a text and for standard input."""
    return None if program is None or program in STDIN_PATHS else str(Path(program).with_suffix(ENDING))


def chosen(program: str | None, given: str | None) -> str | None:
    """The file that is in force; None if there is none. A file that is named has to be there."""
    if given == OFF:
        return None
    if given is not None:
        if not os.path.exists(given):
            raise UsageError(f"--calibration: there is no file '{given}'")
        return given
    own = beside(program)
    return own if own is not None and os.path.isfile(own) else None


def with_calibration(steps: Sequence[Step], program: str | None, given: str | None) -> tuple[Step, ...]:
    """The passes, `lower-precision` with the file of ranges that there is."""
    if not any(s.name == LOWER for s in steps):
        return tuple(steps)
    path = chosen(program, given)
    if path is None:
        return tuple(steps)
    return tuple(Step(s.of, replace(s.options, calibration=path)) if s.name == LOWER and not s.options.calibration else s for s in steps)


def goes_to(program: str | None, given: str | None) -> str:
    """Where a new file is written."""
    path = given if given is not None else beside(program)
    if path is None or path == OFF:
        raise UsageError("a text and standard input have no file beside them: say where ranges go, -o FILE (output=\"FILE\")")
    return path


def check_free(path: str, pipeline: str) -> None:
    """Refuse to write over what was measured of another pipeline, and over what is no such file."""
    if not os.path.exists(path):
        return
    if os.path.isdir(path):
        raise UsageError(f"'{path}' is a folder")
    try:
        old = read_calibration(path)
    except ProgramError as error:
        if any(d.code == "PL9101" for d in error.diagnostics):
            raise
        with open(path, "rb") as file:
            if b"calibration:" in file.read(4096):
                return  # one that was spoilt, or of another version
        raise UsageError(f"'{path}' is no calibration file, and is not written over") from None
    if old.pipeline != pipeline:
        raise UsageError(f"'{path}' holds the ranges of '@{old.pipeline}': -o FILE says where those of '@{pipeline}' go")


def kept(found: Calibration, path: str) -> None:
    """Write a file as a whole or not at all. PL9101 where it cannot be written."""
    from pipelink_ir.runtime.output import write_output
    write_output(path, calibration_text(found).encode())
