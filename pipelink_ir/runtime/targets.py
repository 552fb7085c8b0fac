"""What a program can be compiled for, by the name that `--target` and `compile(target=…)` take."""
from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pipelink_ir.ir.diagnostics import Diagnostic, ProgramError, UsageError, did_you_mean
from pipelink_ir.ir.nodes import Module
from pipelink_ir.ir.source import elsewhere
from pipelink_ir.ir.targets import CALLED, known_archs, parse_arch
from pipelink_ir.passes.manager import Step, step

if TYPE_CHECKING:
    from pipelink_ir.backends.interface import Executable

_CUDA = re.compile(r"cuda(:\d+)?")


@dataclass(frozen=True, slots=True)
class Target:
    """A target: its name, the passes that lead to it (a name of `passes/pipeline.py`), those that its backend cannot do without, and the texts that
    its backend makes."""

    name: str
    passes: str
    needs: tuple[str, ...] = ("resolve", "infer-types", "flatten", "verify-plan")
    """Also when other passes are asked for: nothing runs by a plan that was not proven."""
    texts: tuple[str, ...] = ()
    runs: bool = True
    device: int | None = None
    """The index of the GPU that it runs on, if on one."""


_HERE = {"cpu": Target("cpu", "cpu", texts=("loops", "ll", "s")), "reference": Target("reference", "reference", ("resolve", "infer-types")),
         "cuda-emulated": Target("cuda-emulated", "cuda", texts=("cu",))}


def parse_target(text: str) -> Target:
    """The target of that name; a `UsageError` lists what there is."""
    if text in _HERE:
        return _HERE[text]
    if parse_arch(text) is not None:
        return Target(text, "cuda", texts=("loops", "cu", "hip", "ptx", "cubin"))
    if _CUDA.fullmatch(text):
        return Target(text, "cuda", texts=("loops", "cu", "hip", "ptx", "cubin"), device=int(text.partition(":")[2] or 0))
    known = [*_HERE, "cuda", *known_archs()]
    near = did_you_mean(text, known)
    raise UsageError(f"there is no target '{text}'; {near or 'there are ' + ', '.join(dict.fromkeys(known))}")


def best_target() -> str:
    """`cuda` where there is a GPU and what is needed to use it, else `cpu`. A GPU that cannot be used after all is told of in a warning."""
    from pipelink_ir.backends.cuda.opened import driver, likely
    if not likely():
        return "cpu"
    try:
        driver()
    except UsageError as error:
        _warn_once(str(error))
        return "cpu"
    return "cuda"


_warned: set[str] = set()


def _warn_once(why: str) -> None:
    import warnings
    if why not in _warned:
        _warned.add(why)
        warnings.warn(f"running on the CPU, although there seems to be a GPU: {why}", RuntimeWarning, stacklevel=4)


def checked_for(steps: Sequence[Step], targets: Sequence[Target]) -> tuple[Step, ...]:
    """The steps in which contracts are checked for these targets instead of those that the program declares."""
    names = tuple(t.name for t in targets if parse_arch(t.name) is not None)
    return tuple(Step(s.of, replace(s.options, targets=names)) if names and s.name == "check-contracts" and not s.options.targets else s for s in steps)


def placed_on(steps: Sequence[Step], target: Target, device_map: Sequence[str] = ()) -> tuple[Step, ...]:
    """The steps in which nodes are placed on this target, with the devices that the command puts in place of others."""
    def one(s: Step) -> Step:
        if s.name != "place-devices":
            return s
        return Step(s.of, replace(s.options, target=s.options.target or target.name, map=tuple(device_map) or s.options.map))
    return tuple(map(one, steps))


def with_libraries(steps: Sequence[Step], target: Target, module: Module) -> tuple[Step, ...]:
    """The steps, for a device of this machine without the libraries that contracts list and that are not installed here."""
    from importlib.util import find_spec

    from pipelink_ir.ir.contracts import setting, words
    if target.device is None:
        return tuple(steps)
    lists = (setting(o, "compile", "library") for o in module.operators)
    names = {name for found in lists if found is not None for name in words(found.setting.value)}
    missing = tuple(name for name in CALLED if name in names and find_spec("nvmath") is None)
    return tuple(Step(s.of, replace(s.options, missing=missing)) if missing and s.name == "schedule" and not s.options.missing else s for s in steps)


def completed(steps: Sequence[Step], target: Target) -> tuple[Step, ...]:
    """The steps, and around them what the backend of a target cannot do without."""
    names = [s.name for s in steps]
    head: list[Step] = []
    tail: list[Step] = []
    for name in target.needs:
        if name not in names:
            (tail if name in ("flatten", "verify-plan") else head).append(step(name))
    return (*head, *steps, *tail)


def unsupported(what: str, help: str) -> ProgramError:
    """PL9001 for a request that names no place in a program."""
    return ProgramError([Diagnostic("PL9001", "error", what, elsewhere("<command>", 1, 1), (), help)])


def load(target: Target, module: Module, pipeline: str, options: Mapping[str, Any]) -> Executable:
    """Hand a module to the target's backend. `float64` is an option of the reference."""
    if options.get("float64") and target.name != "reference":
        raise UsageError(f"float64 is for the target 'reference', not '{target.name}'")
    if target.name == "reference":
        from pipelink_ir.backends.reference.executable import load as load_reference
        return load_reference(module, pipeline, float64=bool(options.get("float64")))
    arch = parse_arch(target.name)
    if arch is not None and arch.kind == "cuda":
        from pipelink_ir.backends.cuda.compile import load_texts
        return load_texts(module, pipeline, arch)
    if target.name == "cuda-emulated":
        from pipelink_ir.backends.cuda.emulate.executable import load as load_emulated
        return load_emulated(module, pipeline)
    if target.device is not None:
        from pipelink_ir.backends.cuda.executable import load as load_cuda
        return load_cuda(module, pipeline, {"device": target.device})
    from pipelink_ir.backends.cpu.executable import load as load_cpu
    return load_cpu(module, pipeline, None)
