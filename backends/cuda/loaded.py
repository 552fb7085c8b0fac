"""The kernels of a pipeline on one device: loaded, with the launch that suits each for given sizes."""
from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NoReturn

from pipelink_ir.backends.cuda import cublaslt, nvrtc
from pipelink_ir.backends.cuda.compile import OperatorCode, PipelineCode
from pipelink_ir.backends.cuda.cublaslt import Chosen, Problem
from pipelink_ir.backends.cuda.driver import DeviceFacts, Driver, Function, Launch, quietly
from pipelink_ir.backends.cuda.emit import COPIES, KernelCode
from pipelink_ir.backends.cuda.geometry import MAX_THREADS_IN_GRID, Geometry, geometry
from pipelink_ir.backends.cuda.library_call import Unfit
from pipelink_ir.backends.cuda.user_launch import user_program
from pipelink_ir.backends.loops.form import Program
from pipelink_ir.ir.diagnostics import UsageError, internal_error
from pipelink_ir.ir.gpus import facts_of
from pipelink_ir.ir.nodes import Operator

WARP = 32
LEAST_THREADS = 64
"""Threads of a block where there is too little to do for larger ones on all processors."""

FREE_SHARED = 48 << 10
"""Bytes of shared memory that every kernel may ask for at its launch."""

SCRATCH = 1 << 30
"""Bytes of scratch beyond which a launch takes fewer blocks."""


@dataclass(frozen=True, slots=True)
class LoadedOperator:
    """An operator, as planning and launching look at it."""

    op: Operator
    code: OperatorCode
    program: Program

    @classmethod
    def of(cls, code: OperatorCode) -> LoadedOperator:
        """A kernel knows sizes by name, those of `?` too."""
        from pipelink_ir.passes.infer.generic import name_dynamic
        params, names = name_dynamic(code.op.params, set())
        op = replace(code.op, params=params) if names else code.op
        return cls(op, code, code.program if code.program is not None else user_program(op, "user" if code.user is not None else "cublaslt"))


class Kernels:
    """What a pipeline calls, on one device. The version with 64-bit indices is compiled when the first array comes that needs it."""

    def __init__(self, driver: Driver, device: int, code: PipelineCode) -> None:
        self.driver, self.device, self.code, self.facts = driver, device, code, _as_old_as(driver.facts(device), code)
        self.operators = {name: LoadedOperator.of(c) for name, c in code.operators.items()}
        self.binaries: list[nvrtc.Binary] = []
        self._modules: dict[tuple[str, bool], list[int]] = {}
        self._functions: dict[tuple[str, int, bool], Function] = {}
        self._shared: dict[int, int] = {}
        self._occupancy: dict[tuple[int, int, int], int] = {}
        self._products: weakref.WeakValueDictionary[Problem, Chosen] = weakref.WeakValueDictionary()
        self._late: dict[str, PipelineCode] = {}
        self._own: dict[str, LoadedOperator] = {}
        self._lock = threading.RLock()
        weakref.finalize(self, _unload, driver, device, self._modules).atexit = False
        self._load(False)
        for name in code.users:
            binary = code.user_binary(name)
            self.binaries.append(binary)
            self._modules[name, False] = [driver.load(device, binary.image)]

    def _load(self, wide: bool) -> list[int]:
        """The modules of emitted kernels, one for each text."""
        with self._lock:
            if ("", wide) not in self._modules:
                binaries = self.code.binaries(wide) if self.code.units else []
                self.binaries += binaries
                self._modules["", wide] = [self.driver.load(self.device, b.image) for b in binaries]
            return self._modules["", wide]

    def product(self, op: str, problem: Problem) -> Chosen:
        """What a library does for a product; `Unfit` if it has nothing for it."""
        with self._lock:
            if problem.terms == 0:
                raise Unfit(op, "it takes no sums of no terms")
            found = self._products.get(problem)
            if found is None:
                with self.driver.on(self.device):
                    found = self._products[problem] = cublaslt.opened().choose(self.device, problem)
            if not found.able:
                raise Unfit(op, f"it has no kernel for {problem.rows} rows, {problem.columns} columns and {problem.terms} terms")
            return found

    def own(self, op: str) -> LoadedOperator:
        """An operator by the compiler's own code, where a library does not compute it for all sizes: compiled when it is first needed."""
        with self._lock:
            if op not in self._own:
                self._late[op] = PipelineCode(self.code.pipeline, [self.operators[op].op], self.code.arch, virtual=self.code.virtual)
                self._own[op] = LoadedOperator.of(self._late[op].operators[op])
            return self._own[op]

    def _loaded_late(self, op: str, wide: bool) -> list[int]:
        with self._lock:
            if (op, wide) not in self._modules:
                binaries = self._late[op].binaries(wide)
                self.binaries += binaries
                self._modules[op, wide] = [self.driver.load(self.device, b.image) for b in binaries]
            return self._modules[op, wide]

    def function(self, op: str, kernel: int, wide: bool = False) -> Function:
        """A kernel of an operator."""
        key = (op, kernel, wide)
        found = self._functions.get(key)
        if found is None:
            code = self._code(op)
            if op in self._late:
                module, name = self._loaded_late(op, wide)[code.units[kernel]], code.kernels[kernel].symbol
            elif code.user is not None:
                module, name = self._modules[op, False][0], code.user.entry
            else:
                module, name = self._load(wide)[code.units[kernel]], code.kernels[kernel].symbol
            found = self._functions[key] = self.driver.function(self.device, module, name)
        return found

    def _code(self, op: str) -> OperatorCode:
        """What is compiled of an operator."""
        return (self._own.get(op) or self.operators[op]).code

    def occupancy(self, function: Function, threads: int, shared: int) -> int:
        """How many blocks of this kind a processor runs at once; at least 1."""
        key = (function.handle, threads, shared)
        if key not in self._occupancy:
            self._occupancy[key] = max(1, self.driver.occupancy(self.device, function, threads, shared))
        return self._occupancy[key]

    def allow_shared(self, function: Function, shared: int) -> None:
        """Ask for more shared memory than every kernel may have, where a launch takes so much."""
        if shared + function.shared > FREE_SHARED and self._shared.get(function.handle, 0) < shared:
            self.driver.allow_shared(self.device, function, shared)
            self._shared[function.handle] = shared

    def launch(self, op: str, kernel: int, sizes: Mapping[str, int]) -> Launch | None:
        """How an emitted kernel is launched for given sizes; None where there is nothing to do."""
        code = self._code(op).kernels[kernel]
        shape = geometry(code, sizes)
        if shape.turns == 0:
            return None
        function = self.function(op, kernel, shape.wide)
        if function.threads < WARP:
            internal_error(f"the kernel '{function.name}' takes so many registers that no warp can run it")
        return self._sized(code, shape, function, sizes)

    def _sized(self, code: KernelCode, shape: Geometry, function: Function, sizes: Mapping[str, int]) -> Launch:
        shared, block_bytes = shape.shared_bytes, 0
        if shared + function.shared > self.facts.shared_block:
            if code.near and self.facts.sm >= COPIES:
                self._too_near(function.name, shared + function.shared)
            shared, block_bytes = 0, shape.shared_bytes
        self.allow_shared(function, shared)
        threads = threads_of(code, shape, function, self.facts, sizes)
        blocks = blocks_of(code, shape, threads)
        if not code.kernel.once:
            blocks = min(blocks, MAX_THREADS_IN_GRID // threads)
        elif shape.turns is None:
            internal_error(f"how many threads the kernel '{function.name}' asks for is not known")
        if shape.turns is None or block_bytes or shape.thread_bytes or code.kernel.resident:
            blocks = min(blocks, self.facts.processors * self.occupancy(function, threads, shared))
        each = block_bytes + threads * shape.thread_bytes
        if each and blocks * each > SCRATCH:
            blocks = max(1, SCRATCH // each)
        return Launch(function, (max(1, blocks), 1, 1), (threads, 1, 1), shared, block_bytes, shape.thread_bytes, shape.checks)


    def _too_near(self, kernel: str, needed: int) -> NoReturn:
        """A kernel does not fit: an older architecture may have more shared memory than the device."""
        what = f"the kernel '{kernel}' needs {needed} bytes of shared memory; a block of {self.facts.name} has {self.facts.shared_block}"
        if self.code.virtual:
            raise UsageError(f"{what}: it is compiled for {self.code.arch}, which has more; compile for 'cuda', the device as it is")
        internal_error(what)


def _as_old_as(facts: DeviceFacts, code: PipelineCode) -> DeviceFacts:
    """What a device has, for code of an older architecture: no more shared memory than that one, so that a launch takes the same decisions as there."""
    older = facts_of(code.arch) if code.virtual else None
    return facts if older is None else replace(facts, shared_block=min(facts.shared_block, older.shared_block))


def threads_of(code: KernelCode, shape: Geometry, function: Function, facts: DeviceFacts, sizes: Mapping[str, int]) -> int:
    """The threads of a block: as many as the kernel was made for, fewer where that leaves processors without work."""
    if code.exact:
        return code.team(sizes)
    if code.per == "once":
        return WARP
    most = max(WARP, min(code.threads, function.threads) // WARP * WARP)
    if code.per == "thread" and shape.turns is not None:
        share = -(-shape.turns // facts.processors)
        return min(most, max(LEAST_THREADS, -(-share // WARP) * WARP))
    return most


def blocks_of(code: KernelCode, shape: Geometry, threads: int) -> int:
    """Blocks for one turn each."""
    if shape.turns is None:
        return MAX_THREADS_IN_GRID
    return -(-shape.turns // threads) if code.per == "thread" else shape.turns


def _unload(driver: Driver, device: int, modules: Mapping[tuple[str, bool], list[int]]) -> None:
    for loaded in modules.values():
        for module in loaded:
            quietly(lambda module=module: driver.unload(device, module))  # type: ignore[misc]
