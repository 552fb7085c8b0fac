"""From the loop form to LLVM IR: a program as one module, a kernel as one function.

A kernel is `void @k0.NAME(ptr frame, i64 begin, i64 end)`. The frame holds eight bytes for each of: the kernel's buffers (addresses), its symbols, its
scalars, and the address of the status block. A kernel with a parallel loop runs iterations `begin` to `end` of it, counted from 0, and has a
companion `i64 @n0.NAME(ptr frame)` that says how many there are.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pipelink_ir.backends.cpu.function import finish, sanitise, start
from pipelink_ir.backends.cpu.irtext import Features, IRModule
from pipelink_ir.backends.cpu.statements import index_value, parallel_loop, statement
from pipelink_ir.backends.loops.form import Kernel, Program

STATUS_WORDS = 6
"""i64 words of the status block: taken (0 or 1), the number of the site, four values."""


@dataclass(frozen=True, slots=True)
class KernelCode:
    """The symbols of one kernel; `count` is None where there is no parallel loop."""

    kernel: Kernel
    symbol: str
    count: str | None


@dataclass(frozen=True, slots=True)
class ProgramCode:
    """A program as LLVM IR."""

    program: Program
    text: str
    kernels: tuple[KernelCode, ...]
    externals: frozenset[str]

    @property
    def symbols(self) -> list[str]:
        return [s for k in self.kernels for s in (k.symbol, k.count) if s]


def emit_program(program: Program, features: Features, triple: str, layout: str, shared: Mapping[str, str] = MappingProxyType({})) -> ProgramCode:
    """One module for `program`. `shared`: buffers that may lie in one place, each with a name for the place."""
    module = IRModule(features)
    kernels = emit_into(module, program, shared)
    return ProgramCode(program, module.text(triple, layout), kernels, frozenset(module.externals))


def emit_into(module: IRModule, program: Program, shared: Mapping[str, str] = MappingProxyType({})) -> tuple[KernelCode, ...]:
    """The kernels of `program` as further functions of `module`."""
    out = []
    for n, kernel in enumerate(program.kernels):
        symbol = f"k{n}.{sanitise(program.name)}"
        count = f"n{n}.{sanitise(program.name)}" if kernel.loop else None
        _emit_kernel(module, kernel, symbol, shared)
        if count:
            _emit_count(module, kernel, count)
        out.append(KernelCode(kernel, symbol, count))
    return tuple(out)


def _emit_kernel(module: IRModule, kernel: Kernel, symbol: str, shared: Mapping[str, str]) -> None:
    function = start(module, kernel, shared)
    loop = kernel.loop
    for stmt in kernel.body[:-1] if loop else kernel.body:
        statement(function, stmt)
    if loop:
        parallel_loop(function, loop)
    finish(function, f"define void @{symbol}(ptr noundef nonnull %frame, i64 noundef %begin, i64 noundef %end) nounwind", "void")


def _emit_count(module: IRModule, kernel: Kernel, symbol: str) -> None:
    """max(0, ceil((hi - lo) / step))."""
    function, loop = start(module, kernel), kernel.loop
    assert loop is not None
    for stmt in kernel.body[:-1]:
        statement(function, stmt)
    b = function.body
    lo, hi, step = (index_value(function, e) for e in (loop.lo, loop.hi, loop.step))
    one = b.const("i64", 1)
    length = b.sub(b.intrinsic("smax", hi, lo), lo)
    count = b.binary("udiv", b.sub(b.add(length, step), one), step)
    finish(function, f"define i64 @{symbol}(ptr noundef nonnull %frame) nounwind", f"i64 {count.text}")
