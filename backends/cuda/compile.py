"""The operators of a pipeline as CUDA: what the emitter makes of them, what NVRTC makes of that, and all of it as texts for people.

Works on machines without a GPU; `executable.py` runs what is made here.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NoReturn

from pipelink_ir.backends.artifacts import Artifacts
from pipelink_ir.backends.cuda import nvrtc
from pipelink_ir.backends.cuda.emit import KernelCode, UnitCode, emit_unit
from pipelink_ir.backends.cuda.emit_own import has_own
from pipelink_ir.backends.cuda.target_facts import CUDA, HIP, TargetFacts
from pipelink_ir.backends.cuda.user_kernel import UserKernel, compile_user, user_kernel
from pipelink_ir.backends.loops.form import Program
from pipelink_ir.backends.planning import shared_buffers
from pipelink_ir.ir import environment
from pipelink_ir.ir.diagnostics import ProgramError, UsageError, internal_error
from pipelink_ir.ir.nodes import Module, Node, Operator, Pipeline
from pipelink_ir.ir.targets import Arch
from pipelink_ir.passes.aliasing.layout import overwritten
from pipelink_ir.passes.scheduling.libraries import product_of
from pipelink_ir.passes.scheduling.library_products import LibraryProduct

GROUP = 4
"""Kernels that are compiled as one text: enough to share its cost, few enough that several threads have work."""

Lowered = tuple[Program, Operator]


@dataclass(frozen=True, slots=True)
class OperatorCode:
    """One operator: its program in the loop form and the kernels that were emitted for it, or the kernel that a user wrote. `units` are the numbers of the
    texts that hold the kernels, among `PipelineCode.units`."""

    op: Operator
    program: Program | None
    kernels: tuple[KernelCode, ...]
    units: tuple[int, ...] = ()
    user: UserKernel | None = None
    library: LibraryProduct | None = None
    """What a library computes instead."""


class PipelineCode:
    """What a pipeline calls, for one architecture. Nothing is compiled before it is asked for; with `ahead` each text is as soon as it is there: other threads
    compile while this one writes the next."""

    def __init__(self, pipeline: Pipeline, operators: Sequence[Operator], arch: Arch, alone: bool = False, ahead: bool = False,
                 products: Mapping[str, LibraryProduct] | None = None, virtual: bool = False) -> None:
        """`products` are the operators that a library computes. `virtual`: it is made for a newer device, whose driver translates it."""
        self.pipeline, self.arch, self.virtual = pipeline, arch, virtual
        self.products = {op.name: (op, products[op.name]) for op in operators if op.name in products} if products else {}
        self._over = overwritten(pipeline)
        self.users: dict[str, UserKernel] = {}
        self._programs: list[Lowered] = []
        self._groups: list[list[Lowered]] = []
        self._units: list[UnitCode] = []
        self._begun: list[Future[list[nvrtc.Binary]]] | None = [] if ahead and nvrtc.available() else None
        own: list[Operator] = []
        for op in operators:
            if op.kernel is not None and op.kernel.language == "cuda" and not alone:
                self.users[op.name] = user_kernel(op)
            elif not products or op.name not in products:
                own.append(op)
        with ThreadPoolExecutor(max(1, environment.num_threads()), thread_name_prefix="nvrtc") as pool:
            for group in _groups(self._lowered(own)):
                self._groups.append(group)
                if self._begun is not None:
                    self._units.append(emit_unit(group, aliased=self._aliased(group)))
                    self._begun.append(pool.submit(compile_units, self._units[-1:], arch, virtual=virtual))

    def _lowered(self, operators: Iterable[Operator]) -> Iterator[Lowered]:
        for op in operators:
            self._programs.append((lowered(op, self.arch), op))
            yield self._programs[-1]

    @property
    def units(self) -> tuple[UnitCode, ...]:
        """The texts, each of some operators."""
        self._units += [emit_unit(group, aliased=self._aliased(group)) for group in self._groups[len(self._units):]]
        return tuple(self._units)

    def _aliased(self, group: Sequence[Lowered]) -> dict[str, frozenset[str]]:
        """By program the buffers that may lie where another one lies."""
        return {p.name: frozenset(shared_buffers(p, self._over[op.name])) for p, op in group if op.name in self._over}

    @cached_property
    def operators(self) -> dict[str, OperatorCode]:
        """Every operator by name."""
        out = {name: OperatorCode(user.op, None, (), (), user) for name, user in self.users.items()}
        out |= {op.name: OperatorCode(op, None, (), (), None, product) for op, product in self.products.values()}
        out |= {op.name: OperatorCode(op, program, ()) for program, op in self._programs}
        for number, (group, unit) in enumerate(zip(self._groups, self.units, strict=True)):
            for (_, op), kernels in zip(group, unit.programs, strict=True):
                code = out[op.name]
                out[op.name] = replace(code, kernels=(*code.kernels, *kernels), units=(*code.units, *(number for _ in kernels)))
        return out

    def binaries(self, wide: bool = False) -> list[nvrtc.Binary]:
        """All units compiled, with indices of 32 or of 64 bits."""
        if wide or self._begun is None:
            return compile_units(self.units, self.arch, wide, virtual=self.virtual)
        return [binary for begun in self._begun for binary in begun.result()]

    def user_binary(self, name: str) -> nvrtc.Binary:
        """The file of a user's kernel compiled."""
        return compile_user(self.users[name], self.arch, self.virtual)

    # ---------------------------------------------------------------------------------------------------------------------- texts

    def whole(self, facts: TargetFacts) -> UnitCode:
        """All emitted kernels as one text."""
        return emit_unit(self._programs, facts, aliased=self._aliased(self._programs))

    @property
    def artifacts(self) -> dict[str, Callable[[], str | bytes]]:
        """Makers of texts and binaries, by extension. `log` is what the compiler says of registers, shared memory and spills. What NVRTC makes is among them
        where NVRTC is; a cubin holds what is compiled of one text, so kernels of users have their own."""
        out: dict[str, Callable[[], str | bytes]] = {"loops": self._loops, "cu": lambda: self.source(CUDA), "hip": lambda: self.source(HIP)}
        if not nvrtc.available():
            return out
        out |= {"ptx": self._ptx, "log": self._log}
        if nvrtc.resolve(self.arch)[1] is None:
            names = [*([""] if self._programs or not self.users else []), *self.users]
            for n, name in enumerate(names):
                out["cubin" if len(names) == 1 else f"{name or 'kernels'}.cubin"] = lambda n=n: self._all[n][1].cubin  # type: ignore[misc]
        return out

    def missing(self, extension: str) -> UsageError:
        """Why there is no such artifact."""
        nvrtc.require()
        note = nvrtc.resolve(self.arch)[1]
        if note:
            return UsageError(f"there is no cubin for {self.arch}: {note}; '--emit ptx' prints it")
        several = ", ".join(f"'@{name}'" for name in self.users)
        return UsageError(f"a {extension} holds what is compiled of one text, and {several} are kernels in files of their own: '--dump-dir' writes all, "
                          "'--emit ptx' prints all")

    def source(self, facts: TargetFacts) -> str:
        """Prelude and kernels, then the files of users."""
        parts = [self.whole(facts).whole]
        parts = [*(f"// '@{name}' is computed by cuBLASLt." for name in self.products), *parts]
        if not self.products:
            parts = [*(f"// '@{op.name}' is computed by cuBLASLt; what is below for it runs where the library cannot." for _, op in self._programs
                       if product_of(op) is not None), *parts]
        for name, user in self.users.items():
            parts.append(f"// The kernel of '@{name}': {user.source.path}, which is compiled behind the prelude.\n{user.source.text}")
        return "\n".join(parts)

    def _loops(self) -> str:
        from pipelink_ir.backends.loops.print import program_text
        return "\n".join(program_text(p) for p, _ in self._programs)

    @cached_property
    def _all(self) -> list[tuple[str, nvrtc.Binary]]:
        """Everything compiled: the emitted kernels as one text, and each file."""
        users = [(name, self.user_binary(name)) for name in self.users]
        return [("", compile_units([self.whole(CUDA)], self.arch)[0]), *users] if self._programs or not users else users

    def _ptx(self) -> str:
        return "\n".join((f"// the kernel of '@{name}'\n" if name else "") + binary.ptx for name, binary in self._all) + "\n"

    def _log(self) -> str:
        lines = []
        for name, binary in self._all:
            lines += [binary.note] if binary.note else []
            lines += [f"{kernel}: {usage}" for kernel, usage in binary.usage.items()] or [f"{name or 'the kernels'}: PTX for {binary.arch}, not yet assembled"]
        return "\n".join([*lines, ""])


def _groups(programs: Iterable[Lowered]) -> Iterator[list[Lowered]]:
    """What is compiled together. Kernels that take a second or more, as those of attention do, are compiled side by side where an operator has several."""
    group: list[Lowered] = []
    size = 0
    for item in programs:
        if sum(has_own(k.body) for k in item[0].kernels) > 1:
            yield from ([(replace(item[0], kernels=(k,)), item[1])] for k in item[0].kernels)
            continue
        if group and size + len(item[0].kernels) > GROUP:
            yield group
            group, size = [], 0
        group.append(item)
        size += len(item[0].kernels)
    if group:
        yield group


def lowered(op: Operator, arch: Arch | None = None) -> Program:
    """An operator in the loop form for a GPU: for any, if it is not said for which."""
    from pipelink_ir.backends.loops.gpu.build import build_gpu
    from pipelink_ir.passes.infer.generic import name_dynamic
    from pipelink_ir.passes.infer.operator import typed_operator
    params, names = name_dynamic(op.params, set())
    # A kernel knows sizes by name, those of `?` too.
    return build_gpu(typed_operator(replace(op, params=params) if names else op), arch)


def compile_pipeline(module: Module, pipeline_name: str, arch: Arch, ahead: bool = False, products: Mapping[str, LibraryProduct] | None = None,
                     virtual: bool = False) -> PipelineCode:
    """What a pipeline calls; with `ahead` its texts are compiled as they come. `products` are the operators that a library computes; `virtual`: the device is
    newer than the architecture. The module has been through `resolve`, `infer-types`, `flatten` and `simplify`."""
    pipeline = next((p for p in module.pipelines if p.name == pipeline_name), None)
    if pipeline is None:
        internal_error(f"the module has no pipeline '@{pipeline_name}'")
    operators = {o.name: o for o in module.operators}
    called = dict.fromkeys(node.op for node in pipeline.nodes if isinstance(node, Node))
    return PipelineCode(pipeline, [operators[name] for name in called], arch, ahead=ahead, products=products, virtual=virtual)


def compile_units(units: Sequence[UnitCode], arch: Arch, wide: bool = False, quick: bool = False, virtual: bool = False) -> list[nvrtc.Binary]:
    """Emitted texts compiled, on several threads. A text that NVRTC refuses is a fault of ours; it is kept with its lines numbered."""
    sources = [nvrtc.Source(unit.text, f"kernels{n or ''}.cu", wide, quick=quick, virtual=virtual) for n, unit in enumerate(units)]
    try:
        return nvrtc.compile_sources(sources, arch)
    except nvrtc.CompileFailed as failed:
        _refused(sources, failed)


def _refused(sources: Sequence[nvrtc.Source], failed: nvrtc.CompileFailed) -> NoReturn:
    names = [s.name for s in sources]
    culprit = next((s for s in sources if f"{s.name}(" in failed.log), sources[0] if len(names) == 1 else None)
    text = culprit.text if culprit else "\n".join(s.text for s in sources)
    kept = nvrtc.keep_numbered(text, "refused")
    lines = [line.strip() for line in failed.log.splitlines() if line.strip()] or ["no message"]
    first = next((line for line in lines if "error" in line), lines[0])
    internal_error(f"NVRTC {nvrtc.version()} refuses the code made for it: {first} (the numbered source is in {kept})")


class CudaTexts:
    """A pipeline compiled for an architecture, on a machine that need not have it: texts and binaries, nothing that runs."""

    def __init__(self, code: PipelineCode) -> None:
        self.pipeline = code.pipeline
        self.code = code
        self.artifacts: dict[str, str | bytes] = Artifacts(code.artifacts)

    def missing(self, extension: str) -> UsageError:
        """Why there is no such artifact."""
        return self.code.missing(extension)

    def __call__(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """Refused: there are texts here, and no device."""
        from pipelink_ir.ir.diagnostics import Diagnostic
        from pipelink_ir.ir.source import elsewhere
        what = f"'{self.code.arch}' is an architecture to compile for; these are texts, not loaded on a device"
        raise ProgramError([Diagnostic("PL9001", "error", what, elsewhere("<command>", 1, 1), (), "call what `compile` returns: a GPU that is as new runs it")])


def load_texts(module: Module, pipeline_name: str, arch: Arch) -> CudaTexts:
    """For `--target sm_XX`."""
    return CudaTexts(compile_pipeline(module, pipeline_name, arch))
