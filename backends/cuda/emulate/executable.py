"""A pipeline whose kernels for CUDA run on the processor, step by step, with every access looked at.

Blocks are small and few, so that arrays of some hundred elements are spread over several blocks, and the last one is not full.
"""
from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from pipelink_ir.backends.artifacts import Artifacts
from pipelink_ir.backends.cuda import prelude
from pipelink_ir.backends.cuda.emit import COPIES, KernelCode, emit_unit
from pipelink_ir.backends.cuda.emulate.kernels import Unit, units_of
from pipelink_ir.backends.cuda.emulate.library import EmulationFault, Region
from pipelink_ir.backends.cuda.geometry import Geometry, geometry
from pipelink_ir.backends.cuda.user_kernel import CODE
from pipelink_ir.backends.cuda.user_launch import pack_params, user_launch
from pipelink_ir.backends.loops.form import Buffer, evaluate
from pipelink_ir.backends.planning import Plan, Planner, Step
from pipelink_ir.ir.diagnostics import ExecutionError, Report, internal_error
from pipelink_ir.ir.gpus import facts_of
from pipelink_ir.ir.nodes import Module, Node, Pipeline
from pipelink_ir.ir.targets import Arch
from pipelink_ir.passes.aliasing.layout import Layout, overwritten
from pipelink_ir.passes.aliasing.report import Memory

ALIGN = 256
"""What begins in memory begins at a multiple of this."""

UNSET = 0xFF
"""Fills memory that nobody has written: NaN as a float, no bool."""


@dataclass(frozen=True, slots=True)
class Options:
    """How kernels are launched: threads of a block where the kernel leaves that open, most blocks; `wide`: all index arithmetic in 64 bits."""

    threads: int = 64
    blocks: int = 3
    wide: bool = False
    arch: Arch | None = None
    """The architecture whose kernels are played; if none is named, those that are for any."""
    shared_block: int | None = None
    """Bytes of shared memory that a block has; what takes more gets scratch in memory. None: as many as one of the architecture has."""

    @property
    def room(self) -> int:
        """The bytes of shared memory of a block."""
        facts = None if self.arch is None else facts_of(self.arch)
        return self.shared_block if self.shared_block is not None else 48 << 10 if facts is None else facts.shared_block


def load(module: Module, pipeline_name: str, options: Options | None = None) -> EmulatedExecutable:
    """Compile what a pipeline calls. The module has been through `resolve`, `infer-types`, `flatten` and `simplify`."""
    pipeline = next((p for p in module.pipelines if p.name == pipeline_name), None)
    if pipeline is None:
        internal_error(f"the module has no pipeline '@{pipeline_name}'")
    operators = {o.name: o for o in module.operators}
    called = dict.fromkeys(node.op for node in pipeline.nodes if isinstance(node, Node))
    return EmulatedExecutable(pipeline, units_of([operators[name] for name in called], overwritten(pipeline), (options or Options()).arch),
                              options or Options())


class EmulatedExecutable:
    """A loaded pipeline; see `backends/interface.py`. Whatever an emitted kernel does that no kernel may is an `EmulationFault`; of one that a user wrote it is
    an `ExecutionError`."""

    def __init__(self, pipeline: Pipeline, units: Sequence[Unit], options: Options) -> None:
        self.pipeline, self.options = pipeline, options
        self.units = {u.op.name: u for u in units}
        self._layout = Layout.of(pipeline, "", {u.op.name: u.op for u in units})
        self.artifacts: dict[str, str | bytes] = Artifacts({"cu": self._text})
        self._plans: dict[tuple[tuple[int, ...], ...], Plan] = {}
        self._geometries: dict[tuple[str, int, tuple[int, ...]], Geometry] = {}

    def _text(self) -> str:
        return emit_unit([(u.program, u.op) for u in self.units.values() if u.user is None]).whole

    def __call__(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
        """Run on C-contiguous arrays."""
        return self.run_in(arrays, None)

    def run_in(self, arrays: Mapping[str, np.ndarray[Any, Any]], arena: np.ndarray[Any, Any] | None) -> dict[str, np.ndarray[Any, Any]]:
        """Run on C-contiguous arrays, in an arena of the caller's if one is given."""
        given = [np.ascontiguousarray(arrays[o.name]).reshape(np.shape(arrays[o.name])) for o in self.pipeline.inputs]
        return _Run(self, self._plan(tuple(a.shape for a in given)), given, arena).run()

    def _plan(self, shapes: tuple[tuple[int, ...], ...]) -> Plan:
        plan = self._plans.get(shapes)
        if plan is None:
            plan = self._plans[shapes] = Planner(self.pipeline, self.units, self._layout).run(shapes)
        return plan

    def arena(self, shapes: tuple[tuple[int, ...], ...]) -> tuple[int, int]:
        """How large an arena has to be for calls with these shapes, and what it has to begin at a multiple of."""
        plan = self._plan(shapes)
        return plan.arena, max(ALIGN, plan.align)

    def memory(self, shapes: tuple[tuple[int, ...], ...]) -> Memory:
        """Who lies where in the arena in calls with these shapes."""
        return self._plan(shapes).memory

    def geometry(self, step: Step, code: KernelCode) -> Geometry:
        """The launch of a step."""
        key = (step.op, step.kernel, tuple(step.sizes.values()))
        if key not in self._geometries:
            self._geometries[key] = geometry(code, step.sizes)
        return self._geometries[key]


class _Run:
    """One call: its memory, its frames."""

    def __init__(self, executable: EmulatedExecutable, plan: Plan, given: list[np.ndarray[Any, Any]], arena: np.ndarray[Any, Any] | None = None) -> None:
        self.executable, self.plan, self.given = executable, plan, given
        self.options = executable.options
        self.arena = _memory(plan.arena, max(ALIGN, plan.align)) if arena is None else arena.reshape(-1).view(np.uint8)[:plan.arena]
        self.arena[...] = UNSET
        self.results = [_memory(_bytes(shape, dtype.bytes)) for shape, dtype in plan.results]
        self.status = (ctypes.c_int64 * prelude.STATUS_WORDS)()
        self.frames = (ctypes.c_int64 * max(1, len(plan.words)))(*plan.words)
        self.base = ctypes.addressof(self.frames)
        addresses = {"input": [_address(a) for a in given], "result": [_address(a) for a in self.results], "arena": [_address(self.arena)],
                     "status": [ctypes.addressof(self.status)]}
        for p in plan.patches:
            self.frames[p.word] = addresses[p.kind][p.number] + p.offset

    def run(self) -> dict[str, np.ndarray[Any, Any]]:
        plan = self.plan
        for step in plan.steps:
            unit = self.executable.units[step.op]
            if unit.user is not None:
                self._user(unit, step)
            else:
                self._kernel(unit, step)
            if self.status[0]:
                raise self._error(step)
        sources = {"input": [a.reshape(-1).view(np.uint8) if a.size else np.empty(0, np.uint8) for a in self.given], "result": self.results}
        for kind, number, result in plan.copies:
            self.results[result][...] = sources[kind][number]
        out = {}
        for operand, memory, (shape, dtype) in zip(self.executable.pipeline.results, self.results, plan.results, strict=True):
            out[operand.name] = memory.view(dtype.numpy()).reshape(shape).copy()
        return out

    # --------------------------------------------------------------------------------------------------------------------- emitted

    def _kernel(self, unit: Unit, step: Step) -> None:
        code = unit.codes[step.kernel]
        found = self.executable.geometry(step, code)
        if found.turns == 0:
            return
        threads = code.team(step.sizes) if code.exact else min(self.options.threads, code.threads)
        if threads > code.threads:
            internal_error(f"the kernel '{code.symbol}' is launched with {threads} threads, and was compiled for {code.threads}")
        blocks = self._blocks(code, found, threads)
        in_shared = found.shared_bytes + code.static_shared <= self.options.room
        if code.near and not in_shared and self.options.arch is not None and self.options.arch.sm >= COPIES and self.options.shared_block is None:
            internal_error(f"the kernel '{code.symbol}' needs {found.shared_bytes + code.static_shared} bytes of shared memory; a block of "
                           f"{self.options.arch} has {self.options.room}")
        block_bytes = 0 if in_shared else found.shared_bytes
        scratch = _memory(blocks * (block_bytes + threads * found.thread_bytes))
        own = (ctypes.c_int64 * 4)(self.base + 8 * step.frame, _address(scratch), block_bytes, found.thread_bytes)
        regions = [*self._regions(unit, step), Region("scratch", _address(scratch), scratch.nbytes), self._status_region(),
                   Region("the table of buffers", self.base + 8 * step.frame, 8 * len(code.kernel.buffers), 8, False, False)]
        library, symbol = unit.kernel(step.kernel, self.options.wide or found.wide)
        library.launch(symbol, (blocks,), (threads,), found.shared_bytes if in_shared else 0, self._slots(code, step, own), regions)

    def _blocks(self, code: KernelCode, found: Geometry, threads: int) -> int:
        """At least two, so that one that has nothing to do is right too, and too few for every block to have but one turn."""
        if found.turns is None or code.per == "once":
            return 2
        turns = found.turns if code.per == "block" else -(-found.turns // threads)
        return max(2, min(self.options.blocks, turns))

    def _slots(self, code: KernelCode, step: Step, own: Any) -> list[int]:
        """The addresses of the arguments: most are words of the frame."""
        kernel, first = code.kernel, self.base + 8 * step.frame
        names = [*(("buffer", b.name) for b in kernel.buffers), *(("symbol", s) for s in kernel.symbols), *(("scalar", s) for s, _ in kernel.scalars)]
        slots = {name: first + 8 * n for n, name in enumerate([*names, ("status", "status")])}
        begin = ctypes.addressof(own)
        slots |= {("buffers", "buffers"): begin, ("scratch", "scratch"): begin + 8, ("block_bytes", "block_bytes"): begin + 16,
                  ("thread_bytes", "thread_bytes"): begin + 24}
        return [slots[p.kind, p.name] for p in code.parameters]

    def _regions(self, unit: Unit, step: Step) -> list[Region]:
        """The buffers of a kernel. Operands may not be written, and what is read alone cannot race. An operand whose memory a result takes over is that
        result; one that lies where an empty buffer does is itself."""
        buffers = unit.program.kernels[step.kernel].buffers
        all_ = [Region(b.name, self.frames[step.frame + n], _bytes(_shape(b, step.sizes), b.memory.bytes), b.memory.bytes, b.kind != "operand",
                       b.kind != "operand") for n, b in enumerate(buffers)]
        written = {r.address for r in all_ if r.writable and r.bytes}
        return [r for r in all_ if r.writable or r.address not in written]

    def _status_region(self) -> Region:
        return Region("the status", ctypes.addressof(self.status), 8 * prelude.STATUS_WORDS, 8)

    # ----------------------------------------------------------------------------------------------------------------------- users

    def _user(self, unit: Unit, step: Step) -> None:
        """A kernel that a user wrote gets views, and its attributes as a struct."""
        assert unit.user is not None
        kernel = unit.program.kernels[0]
        shapes = [_shape(b, step.sizes) for b in kernel.buffers]
        first = step.frame + len(kernel.buffers) + len(kernel.symbols)
        words = list(self.frames[first:first + len(kernel.scalars)])
        scalars = {name: _value(word, dtype.compute.is_float, dtype.compute.bits) for (name, dtype), word in zip(kernel.scalars, words, strict=True)}
        launch = user_launch(cast(Any, _Device()), unit.user, step.sizes, scalars, _bytes(shapes[len(unit.program.operands)], 1))
        if launch is None:
            return
        views = [prelude.pack_view(self.frames[step.frame + n], shape, _strides(shape), b.memory)
                 for n, (b, shape) in enumerate(zip(kernel.buffers, shapes, strict=True))]
        params = pack_params(kernel.scalars, words)
        blocks = [_filled(data) for data in (*views, params)]
        arguments = (ctypes.c_int64 * (len(views) + 1))(*(_address(b) for b in blocks[:-1]), _address(blocks[-1]) if params else 0)
        regions = [*self._regions(unit, step), *(Region("a view", _address(b), b.nbytes, 8, False, False) for b in blocks[:-1]),
                   Region("params", _address(blocks[-1]), len(params), 1, False, False)]
        library, symbol = unit.kernel(0, False)
        slots = [ctypes.addressof(arguments) + 8 * n for n in range(len(arguments))]
        try:
            library.launch(symbol, launch.grid, launch.block, launch.shared, slots, regions)
        except EmulationFault as fault:
            report = Report()
            report.error(CODE, unit.user.place, str(fault))
            raise ExecutionError(report.diagnostics) from None

    # ---------------------------------------------------------------------------------------------------------------------- faults

    def _error(self, step: Step) -> Exception:
        """What the status says."""
        _, number, *values = list(self.status)
        if number == prelude.OUT_OF_MEMORY:
            return MemoryError(f"scratch memory of '@{step.op}'")
        site = self.executable.units[step.op].program.sites[number]
        report = Report()
        report.error("execution", site.span, site.message.format(*values))
        return ExecutionError(report.diagnostics)


class _Device:
    """What `user_launch` asks of a device."""

    device = 0

    class facts:
        shared_block = 227 << 10
        name = "the processor"

    class driver:
        @staticmethod
        def best_block(device: int, function: Any, shared: int) -> int:
            return 128

    @staticmethod
    def function(name: str, kernel: int) -> Any:
        from pipelink_ir.backends.cuda.driver import Function
        return Function(0, name, 0, 0, 1024)

    @staticmethod
    def allow_shared(function: Any, size: int) -> None:
        return None


# ------------------------------------------------------------------------------------------------------------------------- memory


def _memory(size: int, align: int = ALIGN) -> np.ndarray[Any, Any]:
    """Bytes that nobody has written."""
    block = np.full(size + align, UNSET, np.uint8)
    begin = -_address(block) % align
    return block[begin:begin + size]


def _filled(data: bytes) -> np.ndarray[Any, Any]:
    block = _memory(len(data))
    block[...] = np.frombuffer(data, np.uint8)
    return block


def _address(array: np.ndarray[Any, Any]) -> int:
    return int(array.__array_interface__["data"][0])


def _bytes(shape: Sequence[int], size: int) -> int:
    for extent in shape:
        size *= extent
    return size


def _shape(buffer: Buffer, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(max(0, evaluate(d, dict(sizes))) for d in buffer.shape)


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    out, stride = [], 1
    for extent in reversed(shape):
        out.append(stride)
        stride *= extent
    return tuple(reversed(out))


def _value(word: int, is_float: bool, bits: int) -> int | float:
    """A scalar from the word of a frame."""
    data = (word & ((1 << 64) - 1)).to_bytes(8, "little")
    value: int | float = struct.unpack_from({(True, 32): "<f", (True, 64): "<d", (False, 32): "<i", (False, 64): "<q"}.get((is_float, bits), "<?"), data)[0]
    return value
