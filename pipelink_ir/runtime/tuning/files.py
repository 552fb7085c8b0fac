"""Where tuned schedules are kept: in the file that is named, else beside the program (`edge.tuned.yaml` beside `edge.plir`), else in the folder of the cache,
one file for each architecture."""
from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from pipelink_ir.ir import environment
from pipelink_ir.ir.diagnostics import UsageError
from pipelink_ir.ir.nodes import Module
from pipelink_ir.ir.targets import Arch, parse_arch
from pipelink_ir.passes.manager import Step
from pipelink_ir.passes.scheduling.tuned import Entry
from pipelink_ir.passes.scheduling.tuned_file import read_tuned, tuned_text
from pipelink_ir.runtime.sources import STDIN_PATHS
from pipelink_ir.runtime.targets import Target

OFF = "off"
"""Stands for no file at all."""
ENDING = ".tuned.yaml"


def beside(program: str | None) -> str | None:
    """The file of a program, whether it is there or not; None for a text and for standard input."""
    return None if program is None or program in STDIN_PATHS else str(Path(program).with_suffix(ENDING))


def in_cache(arch: str) -> str | None:
    """The file of an architecture in the cache."""
    return None if environment.cache_is_off() else str(environment.cache_dir() / "tuned" / f"{arch}.yaml")


def arch_name(target: Target, module: Module) -> str:
    """What schedules are kept for: the architecture that a GPU is compiled for, else the target. Asks the driver where a GPU is meant."""
    if target.arch is not None or target.device is None:
        return target.name if target.arch is None else str(target.arch)
    from pipelink_ir.backends.cuda.executable import arch_of
    from pipelink_ir.backends.cuda.opened import driver
    return str(arch_of(module, driver().facts(target.device).sm))


def known_arch(name: str) -> Arch | None:
    """The architecture of that name, if it is one of CUDA."""
    found = parse_arch(name)
    return found if found is not None and found.kind == "cuda" else None


def with_tuned(steps: Sequence[Step], target: Target, module: Module, program: str | None, given: str | None) -> tuple[Step, ...]:
    """The passes, `schedule` with the files that there are. A file that is named has to be there."""
    if given == OFF or target.name == "reference" or not any(s.name == "schedule" for s in steps):
        return tuple(steps)
    if given is not None and not os.path.exists(given):
        raise UsageError(f"--tuned: there is no file '{given}'")
    own = given if given is not None else beside(program)
    files = (own,) if own is not None and os.path.isfile(own) else ()
    # Which architecture it is is asked of a device only if there is anything to be read.
    folder = environment.cache_dir() / "tuned"
    if not files and (environment.cache_is_off() or not folder.is_dir()):
        return tuple(steps)
    arch = arch_name(target, module)
    common = in_cache(arch)
    shared = (common,) if given is None and common is not None and os.path.isfile(common) else ()
    if not files and not shared:
        return tuple(steps)
    return tuple(Step(s.of, replace(s.options, tuned=files, tuned_shared=shared, arch=arch)) if s.name == "schedule" and not s.options.tuned else s
                 for s in steps)


def kept(entries: Iterable[Entry], program: str | None, given: str | None, arch: str) -> str:
    """Put entries into the file that is theirs, in place of older ones with the same keys; the path. PL9101 where it cannot be
    written."""
    from pipelink_ir.runtime.output import write_output
    new = list(entries)
    named = given if given is not None and given != OFF else None
    path = named or beside(program) or in_cache(arch)
    if path is None:
        raise UsageError("the cache is off and the program has no name: say where schedules go, --tuned FILE")
    if named is None and path == beside(program) and not os.access(os.path.dirname(os.path.abspath(path)), os.W_OK):
        path = in_cache(arch) or path
    if path == in_cache(arch):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    old = [] if not os.path.exists(path) else list(read_tuned(path))
    keys = {e.key for e in new}
    write_output(path, tuned_text([*(e for e in old if e.key not in keys), *new]).encode())
    return path
