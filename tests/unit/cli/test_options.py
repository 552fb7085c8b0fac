"""Every option of every command is read by it, whatever else is given: none does nothing."""
from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelink_ir.cli.main import COMMANDS

PROGRAM = """op @twice(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { compute { %y[n] = 2.0 * %x[n] } }
pipeline @main(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { %y = @twice(%x) }
"""

KERNEL = """op @twice(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { kernel cuda "k.cu" { entry = "twice" } }
pipeline @main(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { %y = @twice(%x) }
"""

CALLS = {
    "compile": ["p.plir", "-o", "out.plir"], "run": ["p.plir", "--in", "x=x.npy", "--target", "cpu"], "check": ["p.plir"], "fmt": ["p.plir"],
    "explain": ["PL3001"], "verify": ["k.plir", "--target", "cuda-emulated"], "bench": ["p.plir", "--in", "x=x.npy", "--target", "cpu", "--runs", "1"],
    "calibrate": ["p.plir", "--in", "x=x.npy", "--on", "cpu"], "compare": ["p.plir", "--b", "cpu", "--in", "x=x.npy"], "inspect": ["x"],
}
"""A plain call of each."""


class Read(argparse.Namespace):
    """Arguments that remember which of them were asked for."""

    def __getattribute__(self, name: str) -> Any:
        if name in object.__getattribute__(self, "__dict__"):
            object.__getattribute__(self, "__dict__").setdefault("_read", set()).add(name)
        return object.__getattribute__(self, name)


@pytest.mark.parametrize("command", ["compile", *COMMANDS])
def test_every_option_is_read(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pipelink_ir as pl
    monkeypatch.chdir(tmp_path)
    for name, text in (("p.plir", PROGRAM), ("k.plir", KERNEL), ("k.cu", "")):
        Path(name).write_text(text)
    np.save("x.npy", np.ones(5, np.float32))
    pl.as_view(np.ones(5, np.float32)).debug_dump("x")
    module = importlib.import_module(f"pipelink_ir.cli.{command}")
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    parser.add_argument("--debug", action="store_true")
    args = parser.parse_args(CALLS[command], Read())
    vars(args)["_read"] = {"_read", "debug"}  # that is read by what all commands share
    assert module.execute(args) == 0
    assert set(vars(args)) - vars(args)["_read"] == set()
