"""What the tests of the command share: programs, and the command as a process of its own."""
from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipelink_ir.cli.main import main

ROOT = Path(__file__).resolve().parents[3]

SCALE = """\
/// Twice the values.
op @scale(%x: tensor<NxKxf32>, by: f32 = 2.0) -> (%y: tensor<NxKxf32>) {
  compute { %y[n, k] = by * %x[n, k] }
}

pipeline @main(%x: tensor<NxKxf32>, by: f32 = 2.0) -> (%y: tensor<NxKxf32>) {
  %y = @scale(%x) {by = by}
}
"""

BROKEN = "op @f(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) {\n  compute { %y[n] = %x[n] + }\n}\n"
"""Does not parse: the error is on line 2."""

UNKNOWN = """\
pipeline @main(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) {
  %y = @nothing(%x)
}
"""
"""Parses; the error is on line 2, column 8."""


@dataclass(frozen=True)
class Done:
    """What a command left: its exit status and both streams."""

    status: int
    out: str
    err: str


def in_process(capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """The command, run in this process."""
    def run(*args: Any) -> Done:
        capsys.readouterr()
        status = main([str(a) for a in args])
        streams = capsys.readouterr()
        return Done(status, streams.out, streams.err)
    return run


def process(*args: Any, **more: Any) -> subprocess.CompletedProcess[bytes]:
    """The command as a process of its own."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), **more.pop("env", {})}
    return subprocess.run([sys.executable, "-m", "pipelink_ir.cli", *map(str, args)], capture_output="stdout" not in more, env=env, timeout=60, **more)
