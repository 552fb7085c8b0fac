"""What a program can be compiled for, by the name that `--target` and `compile(target=…)` take."""
from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipelink_ir.ir.diagnostics import Diagnostic, ProgramError, UsageError, did_you_mean
from pipelink_ir.ir.nodes import Module
from pipelink_ir.ir.source import elsewhere

if TYPE_CHECKING:
    from pipelink_ir.backends.interface import Executable

ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_103", "sm_103a", "sm_110", "sm_110a",
                 "sm_120", "sm_120a", "sm_121", "sm_121a")
"""CUDA architectures that can be named."""

_CUDA = re.compile(r"cuda(:\d+)?")


@dataclass(frozen=True, slots=True)
class Target:
    """A target: its name, the passes that lead to it (a name of `passes/pipeline.py`), and the texts that its backend makes."""

    name: str
    passes: str
    texts: tuple[str, ...] = ()
    runs: bool = True


_HERE = {"cpu": Target("cpu", "cpu", ("loops", "ll", "s")), "reference": Target("reference", "reference")}


def parse_target(text: str) -> Target:
    """The target of that name; a `UsageError` lists what there is."""
    if text in _HERE:
        return _HERE[text]
    if text in ARCHITECTURES or _CUDA.fullmatch(text):
        return Target(text, "cpu", runs=False)
    known = [*_HERE, "cuda", *ARCHITECTURES]
    near = did_you_mean(text, known)
    raise UsageError(f"there is no target '{text}'; {near or 'there are ' + ', '.join(known)}")


def unsupported(what: str, help: str) -> ProgramError:
    """PL9001 for a request that names no place in a program."""
    return ProgramError([Diagnostic("PL9001", "error", what, elsewhere("<command>", 1, 1), (), help)])


def load(target: Target, module: Module, pipeline: str, options: Mapping[str, Any]) -> Executable:
    """Hand a module to the target's backend. `float64` is an option of the reference."""
    if not target.runs:
        raise unsupported(f"this version cannot compile for '{target.name}': it has no CUDA backend yet", "use the target 'cpu' or 'reference'")
    if options.get("float64") and target.name != "reference":
        raise UsageError(f"float64 is for the target 'reference', not '{target.name}'")
    if target.name == "reference":
        from pipelink_ir.backends.reference.executable import load as load_reference
        return load_reference(module, pipeline, float64=bool(options.get("float64")))
    from pipelink_ir.backends.cpu.executable import load as load_cpu
    return load_cpu(module, pipeline, None)
