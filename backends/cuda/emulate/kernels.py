"""Compiled operators, kept for the process: many are compiled as one text, which costs a few milliseconds a kernel instead of some hundred.

`units_of` makes operators ready to run; `prepare` compiles ahead what is to be needed.
"""
from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from pipelink_ir.backends.cuda.compile import lowered
from pipelink_ir.backends.cuda.emit import KernelCode, emit_unit
from pipelink_ir.backends.cuda.emulate.library import Library, Text, compile_text
from pipelink_ir.backends.cuda.emulate.toolchain import CompileFailed
from pipelink_ir.backends.cuda.user_kernel import CODE, UserKernel, user_kernel
from pipelink_ir.backends.cuda.user_launch import user_program
from pipelink_ir.backends.disk_cache import digest
from pipelink_ir.backends.loops.form import Program
from pipelink_ir.backends.planning import shared_buffers
from pipelink_ir.ir import environment
from pipelink_ir.ir.diagnostics import Report, internal_error
from pipelink_ir.ir.nodes import Operator
from pipelink_ir.ir.targets import Arch

GROUP = 40
"""Kernels from which on a text is cut in two, to be compiled side by side."""


@dataclass(slots=True)
class Unit:
    """An operator whose kernels can be launched. `codes` are its kernels as emitted alone, empty for a kernel that a user wrote."""

    op: Operator
    program: Program
    codes: tuple[KernelCode, ...]
    text: str = ""
    user: UserKernel | None = None
    user_library: Library | None = None
    aliased: frozenset[str] = frozenset()
    """Buffers that may lie where another one lies."""

    def kernel(self, number: int, wide: bool) -> tuple[Library, str]:
        """Where a kernel is: a library and a name in it."""
        if self.user is not None:
            assert self.user_library is not None
            return self.user_library, self.user.entry
        library, symbols = _compiled(self, wide)
        return library, symbols[number]


@dataclass(slots=True)
class Count:
    """What was played, and what could not be, with the reason."""

    kernels: set[str] = field(default_factory=set)
    refused: dict[str, str] = field(default_factory=dict)


COUNT = Count()
_LIBRARIES: dict[tuple[str, bool], tuple[Library, tuple[str, ...]]] = {}
_lock = threading.RLock()


def units_of(operators: Sequence[Operator], over: Mapping[str, frozenset[tuple[int, int]]] = MappingProxyType({}), arch: Arch | None = None) -> list[Unit]:
    """Operators ready to run; those that are not compiled yet are compiled together. `over`: results that may lie where operands lie, by number; `arch`: whose
    kernels are played."""
    named = [_with_named_sizes(op) for op in operators]
    units = [_user_unit(op) if _is_user(op) else _emitted(op, over.get(op.name), arch) for op in named]
    prepare(units)
    return units


def _with_named_sizes(op: Operator) -> Operator:
    """A kernel knows sizes by name, those of `?` too."""
    from pipelink_ir.passes.infer.generic import name_dynamic
    params, names = name_dynamic(op.params, set())
    return replace(op, params=params) if names else op


def _is_user(op: Operator) -> bool:
    return op.kernel is not None and op.kernel.language == "cuda"


def _emitted(op: Operator, over: frozenset[tuple[int, int]] | None = None, arch: Arch | None = None) -> Unit:
    program = lowered(op, arch)
    aliased = frozenset(shared_buffers(program, over))
    code = emit_unit([(program, op)], aliased={program.name: aliased})
    text = "\n".join("" if line.startswith("//") else line for line in code.text.split("\n"))
    return Unit(op, program, code.kernels, text, aliased=aliased)


def prepare(units: Iterable[Unit], wide: bool = False) -> None:
    """Compiles what is not compiled yet, in as few texts as keep all processors busy."""
    with _lock:
        missing = list({u.text: u for u in units if u.user is None and u.codes and (u.text, wide) not in _LIBRARIES}.values())
        groups = _groups(missing, environment.num_threads())
        if len(groups) == 1:
            _compile(groups[0], wide)
        elif groups:
            with ThreadPoolExecutor(len(groups), thread_name_prefix="emulate") as pool:
                list(pool.map(lambda group: _compile(group, wide), groups))


def _groups(units: list[Unit], most: int) -> list[list[Unit]]:
    kernels = sum(len(u.codes) for u in units)
    groups: list[list[Unit]] = [[] for _ in range(max(1, min(most, kernels // GROUP)))]
    sizes = [0] * len(groups)
    for u in units:
        n = sizes.index(min(sizes))
        groups[n].append(u)
        sizes[n] += len(u.codes)
    return [g for g in groups if g]


def _compile(units: list[Unit], wide: bool) -> None:
    code = emit_unit([(u.program, u.op) for u in units], aliased={u.program.name: u.aliased for u in units if u.aliased})
    names = tuple(k.symbol for k in code.kernels)
    try:
        library = compile_text(Text(code.text, names, "kernels.cu", wide))
    except CompileFailed as failed:
        COUNT.refused |= dict.fromkeys(names, failed.first)
        internal_error(f"the host's compiler refuses the code made for it: {failed.first}")
    COUNT.kernels |= {k.kernel.name for k in code.kernels}
    for u, kernels in zip(units, code.programs, strict=True):
        _LIBRARIES[u.text, wide] = library, tuple(k.symbol for k in kernels)


def _compiled(unit: Unit, wide: bool) -> tuple[Library, tuple[str, ...]]:
    if (unit.text, wide) not in _LIBRARIES:
        prepare([unit], wide)
    return _LIBRARIES[unit.text, wide]


def _user_unit(op: Operator) -> Unit:
    """A kernel that a user wrote: its file, compiled by itself."""
    user = user_kernel(op)
    key = digest(user.source.path, user.text, user.entry)
    with _lock:
        if key not in _USERS:
            _USERS[key] = _compile_user(user)
    return Unit(op, user_program(op), (), user=user, user_library=_USERS[key])


_USERS: dict[str, Library] = {}


def _compile_user(user: UserKernel) -> Library:
    include = (str(Path(user.source.path).resolve().parent),) if "#include" in (user.source.text or "") else ()
    try:
        library = compile_text(Text(user.text, (user.entry,), Path(user.source.path).name, include=include))
    except CompileFailed as failed:
        COUNT.refused[user.entry] = failed.first
        report = Report()
        report.error(CODE, user.place, f"'{user.source.path}' cannot be played on the processor: {failed.first}", (),
                     "inline PTX and the toolkit's headers are not played")
        report.stop_if_failed()
        raise
    COUNT.kernels.add(user.entry)
    return library
