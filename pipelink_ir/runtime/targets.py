"""What a program can be compiled for, by the name that `--target` and `compile(target=…)` take."""
from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pipelink_ir.ir.diagnostics import Diagnostic, Note, ProgramError, Report, UsageError, did_you_mean
from pipelink_ir.ir.nodes import Module, Node
from pipelink_ir.ir.source import elsewhere
from pipelink_ir.ir.targets import CALLED, EMULATED, Arch, arch_of_target, known_archs
from pipelink_ir.passes.infer.text import written
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
    arch: Arch | None = None
    """What it is compiled for, where its name says that: a GPU says it itself, and kernels that `cuda-emulated` plays are for any."""
    played: bool = False
    """Whether the processor plays a GPU."""

    @property
    def no_device(self) -> bool:
        """Whether it is an architecture alone: what is compiled for it runs on a GPU that is looked for when it is called."""
        return self.device is None and not self.played and self.arch is not None and self.arch.kind == "cuda"


_TEXTS = ("loops", "cu", "hip", "ptx", "cubin")
_HERE = {"cpu": Target("cpu", "cpu", texts=("loops", "ll", "s"), arch=Arch("cpu")),
         "reference": Target("reference", "reference", ("resolve", "infer-types"), arch=Arch("reference")),
         EMULATED: Target(EMULATED, "cuda", texts=("cu",), played=True)}


def parse_target(text: str) -> Target:
    """The target of that name; a `UsageError` lists what there is."""
    if text in _HERE:
        return _HERE[text]
    arch = arch_of_target(text)
    if arch is not None:
        played = text.startswith(EMULATED)
        return Target(text, "cuda", texts=("cu",) if played else _TEXTS, arch=arch, played=played)
    if _CUDA.fullmatch(text):
        return Target(text, "cuda", texts=_TEXTS, device=int(text.partition(":")[2] or 0))
    if text.startswith(f"{EMULATED}:"):
        named = text.partition(":")[2]
        listed = ", ".join(n for n in known_archs() if n.startswith("sm_"))
        raise UsageError(f"there is no target '{text}': '{named}' is no architecture of a GPU; known are {listed}")
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
    names = tuple(str(t.arch) for t in targets if t.arch is not None)
    return tuple(Step(s.of, replace(s.options, targets=names)) if names and s.name == "check-contracts" and not s.options.targets else s for s in steps)


def placed_on(steps: Sequence[Step], target: Target, device_map: Sequence[str] = ()) -> tuple[Step, ...]:
    """The steps in which nodes are placed on this target, with the devices that the command puts in place of others."""
    def one(s: Step) -> Step:
        if s.name != "place-devices":
            return s
        return Step(s.of, replace(s.options, target=s.options.target or target.name, map=tuple(device_map) or s.options.map))
    return tuple(map(one, steps))


PUSH, LOWER = LOWERING = ("push-policies", "lower-precision")
"""The passes that look at what they lower for."""


def lowered_for(steps: Sequence[Step], target: Target, module: Module, pipeline: str | None = None) -> tuple[Step, ...]:
    """The steps in which precision is lowered for the architecture of this target. A GPU is asked for its own, where anything may depend on it. `pipeline`: the
    one that is compiled, if that is said."""
    if pipeline is not None and len(module.pipelines) > 1:
        steps = [Step(s.of, replace(s.options, pipeline=pipeline)) if s.name == LOWER and not getattr(s.options, "pipeline", "") else s for s in steps]
    if not any(map(_asks, steps)):
        return tuple(steps)
    if target.arch is not None:
        arch = "" if target.arch.kind == "reference" else str(target.arch)
    else:
        arch = _capability(target) if target.device is not None and _may_lower(steps, module) else ""
    return tuple(Step(s.of, replace(s.options, arch=arch)) if arch and _asks(s) else s for s in steps)


def _asks(s: Step) -> bool:
    """Whether a pass is to be told what is lowered for."""
    return s.name in LOWERING and getattr(s.options, "arch", None) == ""


def _may_lower(steps: Sequence[Step], module: Module) -> bool:
    """Whether there are policies, or files from which some may come."""
    return (any(o.downgrades for o in module.operators) or any(i.file is not None for i in module.imports)
            or any(s.options != type(s.options)() for s in steps if s.name == LOWERING[0]))


def _capability(target: Target) -> str:
    """The architecture of the GPU of a target."""
    from pipelink_ir.backends.cuda.opened import driver
    assert target.device is not None
    try:
        gpu = driver()
    except UsageError as error:
        raise UsageError(f"what is lowered depends on the GPU, and there is none to ask ({error}): name its architecture, --target sm_90") from error
    return f"sm_{gpu.facts(target.device).sm}"


def on_gpu(target: Target) -> Target:
    """The target with a GPU of this machine that runs it: one of its architecture, else a newer one, which translates its code. PL9001 where there is none."""
    arch = target.arch
    if arch is None or not target.no_device:
        return target
    from pipelink_ir.backends.cuda.opened import driver
    help = f"the target '{EMULATED}:{arch}' plays it on the processor"
    try:
        gpu = driver()
    except UsageError as error:
        raise unsupported(f"'{arch}' is an architecture to compile for, and there is no GPU to run it on: {error}", help) from error
    there = [gpu.facts(n) for n in range(gpu.devices())]
    # What is made for sm_90a runs on sm_90 alone.
    able = [f for f in there if f.sm == arch.sm or (f.sm > arch.sm and not arch.suffix)]
    if not able:
        raise unsupported(f"no GPU here runs code for {arch}: there is {', '.join(f'{f.name} (sm_{f.sm})' for f in there)}", help)
    return replace(target, device=min(able, key=lambda f: (f.sm, f.index)).index)


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


def check_kernels(module: Module, pipeline: str, target: Target, report: Report) -> None:
    """Whether what is to run there can: kernels of users that have no other meaning need a GPU, or one that is played. A program that declares no targets is
    asked this only here, since it runs on whatever there is."""
    if target.device is not None or target.played or target.no_device:
        return
    operators = {o.name: o for o in module.operators}
    todo = [n for p in module.pipelines if p.name == pipeline for n in reversed(p.nodes)]
    seen: set[str] = set()
    while todo:
        n = todo.pop()
        op = operators.get(n.op) if isinstance(n, Node) else None
        if not isinstance(n, Node) or op is None or op.name in seen:
            continue
        seen.add(op.name)
        todo += reversed(op.graph.nodes) if op.graph is not None else ()
        if op.compute is None and op.kernel is not None:
            report.error("arch", n.op_span, f"'@{written(op.name)}' is a CUDA kernel alone, but is run on {target.name}", [Note("the kernel", op.kernel.span)],
                         f"run it on a GPU, 'cuda', or on one that the processor plays, 'cuda-emulated'; or add a 'compute' to '@{written(op.name)}'")


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
    if target.played:
        from pipelink_ir.backends.cuda.emulate.executable import Options
        from pipelink_ir.backends.cuda.emulate.executable import load as load_emulated
        return load_emulated(module, pipeline, Options(arch=target.arch))
    if target.device is not None:
        from pipelink_ir.backends.cuda.executable import load as load_cuda
        return load_cuda(module, pipeline, {"device": target.device, "arch": target.arch})
    if target.arch is not None and target.no_device:
        from pipelink_ir.backends.cuda.compile import load_texts
        return load_texts(module, pipeline, target.arch)
    from pipelink_ir.backends.cpu.executable import load as load_cpu
    return load_cpu(module, pipeline, None)
