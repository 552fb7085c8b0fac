"""A pipeline as something that runs: operators compiled once, plans by shape, calls from any thread."""
from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from pipelink_ir.backends.artifacts import Artifacts
from pipelink_ir.backends.cpu import emit, jit
from pipelink_ir.backends.cpu.convert import LIBCALL, libcall_text
from pipelink_ir.backends.cpu.cost import Sharing, sharing
from pipelink_ir.backends.cpu.irtext import IRModule
from pipelink_ir.backends.cpu.memory import ALIGN, Lease, address_of, new_array
from pipelink_ir.backends.cpu.pool import run_plan
from pipelink_ir.backends.cpu.statements import OUT_OF_MEMORY
from pipelink_ir.backends.loops.form import Program
from pipelink_ir.backends.planning import Plan, Planner, memory_statistics, shared_buffers
from pipelink_ir.ir.diagnostics import ExecutionError, Report, internal_error
from pipelink_ir.ir.nodes import Module, Node, Operator, Pipeline
from pipelink_ir.passes.aliasing.layout import Layout, overwritten
from pipelink_ir.passes.aliasing.report import Memory

PLANS = 64
"""Plans kept for different shapes."""

IDLE_BYTES = 256 << 20
"""Memory that plans of other shapes may keep while they are not used."""


@dataclass(frozen=True, slots=True)
class Unit:
    """An operator and its machine code: for each kernel the address of the function and of the one that counts (0 if none)."""

    op: Operator
    code: emit.ProgramCode
    addresses: tuple[tuple[int, int], ...]
    library: jit.Library
    """Kept as long as its functions may be called."""
    shared: Mapping[str, str] = field(default_factory=dict)
    """Buffers that may lie in one place."""

    @property
    def program(self) -> Program:
        return self.code.program


def load(module: Module, pipeline_name: str, options: Any = None) -> CpuExecutable:
    """Compile what a pipeline calls. The module has been through `resolve`, `infer-types`, `flatten` and `simplify`."""
    pipeline = next((p for p in module.pipelines if p.name == pipeline_name), None)
    if pipeline is None:
        internal_error(f"the module has no pipeline '@{pipeline_name}'")
    operators = {o.name: o for o in module.operators}
    called = dict.fromkeys(node.op for node in pipeline.nodes if isinstance(node, Node))
    return CpuExecutable(pipeline, compile_operators([operators[name] for name in called], overwritten(pipeline)))


def compile_operators(operators: list[Operator], over: Mapping[str, frozenset[tuple[int, int]]] = MappingProxyType({})) -> dict[str, Unit]:
    """Machine code of each operator, all in one library. `over`: results that may lie where operands lie, by number."""
    from pipelink_ir.backends.loops.build import build
    from pipelink_ir.passes.infer.operator import typed_operator
    target = jit.host()
    triple, layout = jit.layout(target)
    operators = [_with_named_sizes(op) for op in operators]
    programs = [build(typed_operator(op)) for op in operators]
    shared = [shared_buffers(p, over.get(op.name)) for p, op in zip(programs, operators, strict=True)]
    codes = [emit.emit_program(p, target.emitter, triple, layout, s) for p, s in zip(programs, shared, strict=True)]
    objects = [jit.compile_object(code.text, target) for code in codes]
    if not codes:
        return {}
    if any(LIBCALL.encode() in code for code in objects):
        objects.append(jit.compile_object(libcall_text(triple, layout), target))
    library = jit.Library(objects, [s for code in codes for s in code.symbols], sorted({e for code in codes for e in code.externals}))
    out: dict[str, Unit] = {}
    for op, code, one in zip(operators, codes, shared, strict=True):
        addresses = tuple((library.address(k.symbol), library.address(k.count) if k.count else 0) for k in code.kernels)
        out[op.name] = Unit(op, code, addresses, library, one)
    return out


def _with_named_sizes(op: Operator) -> Operator:
    """A kernel knows sizes by name, those of `?` too."""
    from pipelink_ir.passes.infer.generic import name_dynamic
    params, names = name_dynamic(op.params, set())
    return replace(op, params=params) if names else op


class _Instance:
    """The memory of one running call: frames, steps, arena and status, with the addresses among them filled in."""

    def __init__(self, plan: Plan, calls: list[tuple[int, int, int, Sharing]], arena: int = 0) -> None:
        """`arena` is where a caller's arena begins; without one there is one of our own."""
        self.plan = plan
        self.frames = (ctypes.c_int64 * max(1, len(plan.words)))(*plan.words)
        self.status = (ctypes.c_int64 * emit.STATUS_WORDS)()
        status = ctypes.addressof(self.status)
        self.given: list[tuple[int, str, int, int]] = []
        self.inside: list[tuple[int, int]] = []
        for p in plan.patches:
            if p.kind == "arena":
                self.inside.append((p.word, p.offset))
            elif p.kind == "status":
                self.frames[p.word] = status
            else:
                self.given.append((p.word, p.kind, p.number, p.offset))
        base = ctypes.addressof(self.frames)
        words = [w for function, count, frame, share in calls for w in (function, count, base + 8 * frame, share.least, int(share.worth))]
        self.steps = (ctypes.c_int64 * max(1, len(words)))(*words)
        self.own: Lease | None = None
        self.base = 0
        self.place(arena)

    def place(self, arena: int = 0) -> None:
        """Let the arena begin at the caller's address, or in memory of our own."""
        if not self.plan.arena:
            return
        if not arena:
            if self.own is None:
                self.own = Lease(self.plan.arena + (self.plan.align if self.plan.align > ALIGN else 0))
            arena = -(-self.own.address // self.plan.align) * self.plan.align
        if arena != self.base:
            self.base = arena
            for word, offset in self.inside:
                self.frames[word] = arena + offset

    def give(self, addresses: Mapping[str, Sequence[int]]) -> None:
        """The addresses of inputs and results."""
        frames = self.frames
        for word, kind, number, offset in self.given:
            frames[word] = addresses[kind][number] + offset


class CpuExecutable:
    """A loaded pipeline. Calls may come from several threads at once."""

    def __init__(self, pipeline: Pipeline, units: dict[str, Unit]) -> None:
        self.pipeline = pipeline
        self.units = units
        self._layout = Layout.of(pipeline, "cpu", {name: u.op for name, u in units.items()})
        self.artifacts: dict[str, str | bytes] = Artifacts({"loops": self._loops, "ll": self._llvm, "s": self._assembly})
        self._inputs = tuple(o.name for o in pipeline.inputs)
        self._results = tuple(o.name for o in pipeline.results)
        self._plans: dict[tuple[tuple[int, ...], ...], tuple[Plan, list[_Instance]]] = {}
        self._lock = threading.Lock()

    def __call__(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
        """Run on C-contiguous arrays; see `backends/interface.py`."""
        given = [_aligned(arrays[name]) for name in self._inputs]
        return self.run_dense(tuple([a.shape for a in given]), [address_of(a) for a in given])

    def run_dense(self, shapes: tuple[tuple[int, ...], ...], given: list[int],
                  into: Mapping[int, tuple[np.ndarray[Any, Any], int]] = MappingProxyType({}), arena: int = 0) -> dict[str, np.ndarray[Any, Any]]:
        """Run on dense, aligned memory: the shapes and addresses of all inputs in order, which the caller keeps alive. `into` gives arrays and their
        addresses that results of these numbers are written to; the others are fresh. `arena` is where a caller's arena begins, 0 for one of our own."""
        plan, idle = self._plans.get(shapes) or self._plan(shapes)
        results = [into[n] if n in into else new_array(shape, dtype) for n, (shape, dtype) in enumerate(plan.results)]
        addresses = {"input": given, "result": [address for _, address in results]}
        try:
            instance = idle.pop()
            instance.place(arena)
        except IndexError:
            instance = _Instance(plan, self._calls(plan), arena)
        instance.give(addresses)
        failed = run_plan(ctypes.addressof(instance.steps), len(plan.steps), ctypes.addressof(instance.status))
        if failed >= 0:
            raise self._error(plan, failed, instance)
        for kind, number, result in plan.copies:
            array = results[result][0]
            ctypes.memmove(results[result][1], addresses[kind][number], array.nbytes)
        idle.append(instance)
        return {name: array for name, (array, _) in zip(self._results, results, strict=True)}

    def prepared(self, shapes: tuple[tuple[int, ...], ...]) -> tuple[Plan, _Instance]:
        """The plan for some shapes and memory to run it in, for who runs its steps one by one."""
        plan, _ = self._plans.get(shapes) or self._plan(shapes)
        return plan, _Instance(plan, self._calls(plan))

    def arena(self, shapes: tuple[tuple[int, ...], ...]) -> tuple[int, int]:
        """How large an arena has to be for calls with these shapes, and what it has to begin at a multiple of."""
        plan, _ = self._plans.get(shapes) or self._plan(shapes)
        return plan.arena, max(ALIGN, plan.align)

    def memory(self, shapes: tuple[tuple[int, ...], ...]) -> Memory:
        """Who lies where in the arena in calls with these shapes."""
        return (self._plans.get(shapes) or self._plan(shapes))[0].memory

    @property
    def statistics(self) -> dict[str, int | str]:
        """What the plan of the latest new shapes has: kernels run, buffers between them, bytes of the arena that holds these."""
        with self._lock:
            plan = next(reversed(self._plans.values()))[0] if self._plans else None
        return {"kernels": len(plan.steps), **memory_statistics(plan)} if plan else {}

    def _plan(self, key: tuple[tuple[int, ...], ...]) -> tuple[Plan, list[_Instance]]:
        plan = Planner(self.pipeline, self.units, self._layout).run(key)
        with self._lock:
            while len(self._plans) >= PLANS:
                del self._plans[next(iter(self._plans))]
            idle = sum(p.arena * len(instances) for p, instances in self._plans.values())
            for old, instances in self._plans.values():
                if idle <= IDLE_BYTES:
                    break
                idle -= old.arena * len(instances)
                instances.clear()
            return self._plans.setdefault(key, (plan, []))

    def _calls(self, plan: Plan) -> list[tuple[int, int, int, Sharing]]:
        """For each step its functions, its frame, and how its loop is shared; thousands of nodes may be alike."""
        shares: dict[tuple[str, int, tuple[int, ...]], Sharing] = {}
        out = []
        for s in plan.steps:
            unit = self.units[s.op]
            key = (s.op, s.kernel, tuple(s.sizes.values()))
            if key not in shares:
                shares[key] = sharing(unit.program.kernels[s.kernel], dict(s.sizes))
            out.append((*unit.addresses[s.kernel], s.frame, shares[key]))
        return out

    def _error(self, plan: Plan, step: int, instance: _Instance) -> Exception:
        """What the status block says; the instance is given up with it."""
        node = self.pipeline.nodes[plan.steps[step].node]
        assert isinstance(node, Node)
        _, number, *values = list(instance.status)
        if number == OUT_OF_MEMORY:
            return MemoryError(f"scratch memory of '@{node.op}'")
        site = self.units[node.op].code.program.sites[number]
        report = Report()
        report.error("execution", site.span, site.message.format(*values))
        return ExecutionError(report.diagnostics)

    # ---------------------------------------------------------------------------------------------------------------------- texts

    def _programs(self) -> list[Program]:
        return [unit.code.program for unit in self.units.values()]

    def _loops(self) -> str:
        from pipelink_ir.backends.loops.print import program_text
        return "\n".join(program_text(p) for p in self._programs())

    def _llvm(self) -> str:
        """All operators as one module."""
        target = jit.host()
        module = IRModule(target.emitter)
        for unit in self.units.values():
            emit.emit_into(module, unit.program, unit.shared)
        return module.text(*jit.layout(target))

    def _assembly(self) -> str:
        return jit.assembly(str(self.artifacts["ll"]), jit.host())


def _aligned(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array itself unless its elements lie at odd addresses, or apart."""
    array = np.asarray(array)  # a NumPy scalar has no memory of its own
    if array.flags.c_contiguous and array.flags.aligned:
        return array
    copy = np.empty(array.shape, array.dtype)
    copy[...] = array
    return copy
