"""Launches of kernels that users wrote: what stands for them in a plan, their launch sizes, and the views and parameters that they are given.

Such a kernel is called as `(const TensorView*…, TensorView*…, const void* params)`: its operands, then its results, in the order of the signature. `params`
points to the operator's scalar attributes in the order of the signature, laid out as a C struct of `bool`, `int`, `long long`, `float` and `double` (f16, bf16
and f8 as `float`, narrow integers as `int`); it is null where there are none. Dimensions are read from the views.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from pipelink_ir.backends.cuda.driver import DeviceFacts, Driver, Function, Launch
from pipelink_ir.backends.cuda.user_kernel import CODE, UserKernel
from pipelink_ir.backends.loops import form
from pipelink_ir.ir.diagnostics import ExecutionError, Report
from pipelink_ir.ir.dtypes import DTYPES, DType
from pipelink_ir.ir.evaluate import CannotEvaluate, evaluate
from pipelink_ir.ir.nodes import Expr, Operand, Operator


class Kernels(Protocol):
    """What a launch asks of the kernels of a pipeline; see `loaded.py`."""

    driver: Driver
    device: int
    facts: DeviceFacts

    def function(self, op: str, kernel: int) -> Function: ...

    def allow_shared(self, function: Function, shared: int) -> None: ...

MOST_THREADS = 1024
MOST_BLOCKS = ((1 << 31) - 1, 65535, 65535)


def user_program(op: Operator, what: str = "user") -> form.Program:
    """The operator as a program of one kernel without statements, so that it is planned like any other. Its sizes have names."""
    from pipelink_ir.backends.loops.build import size_of

    def buffer(o: Operand, kind: str) -> form.Buffer:
        return form.Buffer(o.name, kind, DTYPES[o.type.dtype], tuple(size_of(d) for d in o.type.dims))

    operands, results = tuple(buffer(o, "operand") for o in op.operands), tuple(buffer(o, "result") for o in op.results)
    symbols = tuple(dict.fromkeys(s for b in (*operands, *results) for d in b.shape for s in _symbols(d)))
    scalars = tuple((a.name, DTYPES[a.type].compute) for a in op.attributes if a.type in DTYPES)
    kernel = form.Kernel(f"{op.name}.{what}", (*operands, *results), symbols, scalars, (), device="gpu")
    return form.Program(op.name, (kernel,), operands, results, (), symbols, scalars, ())


def _symbols(x: form.Expr) -> list[str]:
    if isinstance(x, form.Ref):
        return [x.name]
    return [s for a in x.args for s in _symbols(a)] if isinstance(x, form.Op) else []


def pack_params(scalars: Sequence[tuple[str, DType]], words: Sequence[int]) -> bytes:
    """The struct of attributes; `words` holds each value as it lies in a frame."""
    out, widest = b"", 1
    for (_, dtype), word in zip(scalars, words, strict=True):
        size = dtype.compute.bytes
        widest = max(widest, size)
        out += b"\0" * (-len(out) % size) + (word & ((1 << 64) - 1)).to_bytes(8, "little")[:size]
    return out + b"\0" * (-len(out) % widest)


def user_launch(kernels: Kernels, user: UserKernel, sizes: Mapping[str, int], scalars: Mapping[str, int | float | bool], elements: int) -> Launch | None:
    """The launch of a user's kernel: as its section says, and where that is silent by occupancy, with a thread for each of the `elements` of its first result.
    None where there is nothing to compute."""
    if elements == 0 and user.grid is None:
        return None
    function, facts = kernels.function(user.op.name, 0), kernels.facts
    report = Report()
    env = {**sizes, **scalars}
    shared = _size(user, "shared", user.shared, env, report) if user.shared is not None else 0
    _stop(report)
    _check_shared(user, function, shared, facts, report)
    kernels.allow_shared(function, shared)
    block = _triple(user, "block", user.block, env, report) if user.block is not None else \
        (max(1, kernels.driver.best_block(kernels.device, function, shared)), 1, 1)
    _stop(report)
    threads = block[0] * block[1] * block[2]
    grid = _triple(user, "grid", user.grid, env, report) if user.grid is not None else (-(-elements // threads), 1, 1)
    _check_launch(user, function, grid, block, report)
    _stop(report)
    return None if 0 in grid else Launch(function, grid, block, shared)


def _stop(report: Report) -> None:
    if report.failed:
        raise ExecutionError(report.diagnostics)


def _triple(user: UserKernel, key: str, values: Sequence[Expr], env: Mapping[str, int | float | bool], report: Report) -> tuple[int, int, int]:
    x, y, z = ([_size(user, key, v, env, report) for v in values] + [1, 1])[:3]
    return x, y, z


def _size(user: UserKernel, key: str, value: Expr, env: Mapping[str, int | float | bool], report: Report) -> int:
    try:
        size = evaluate(value, env)
        if isinstance(size, bool) or not isinstance(size, int):
            raise CannotEvaluate(f"{size!r} is no integer")
    except CannotEvaluate as fault:
        report.error(CODE, value.span, f"'{key}' of the kernel of '@{user.op.name}' cannot be computed: {fault}", (),
                     "sizes of a launch are made of the operator's dimensions and attributes")
        return 0
    if size < 0:
        report.error(CODE, value.span, f"'{key}' of the kernel of '@{user.op.name}' is {size}", (), "a size is not negative")
    return size


def _check_shared(user: UserKernel, function: Function, shared: int, facts: DeviceFacts, report: Report) -> None:
    if shared + function.shared > facts.shared_block and user.shared is not None:
        report.error(CODE, user.shared.span, f"the kernel of '@{user.op.name}' asks for {shared + function.shared} bytes of shared memory, and a block of "
                     f"{facts.name} has {facts.shared_block}", (), "take less, or work in several rounds")
        _stop(report)


def _check_launch(user: UserKernel, function: Function, grid: tuple[int, ...], block: tuple[int, ...], report: Report) -> None:
    threads = block[0] * block[1] * block[2]
    place = user.block[0].span if user.block is not None else user.place
    if not 1 <= threads <= min(MOST_THREADS, function.threads) or block[2] > 64:
        why = f": it takes {function.registers} registers a thread" if 1 <= threads <= MOST_THREADS else ""
        report.error(CODE, place, f"the kernel of '@{user.op.name}' is to be launched with blocks of {list(block)} threads, and 1 to {function.threads} are "
                     f"possible{why}", (), "a smaller block; without 'block' the occupancy decides")
    for axis, (n, most) in enumerate(zip(grid, MOST_BLOCKS, strict=True)):
        if n > most:
            report.error(CODE, user.grid[min(axis, len(user.grid) - 1)].span if user.grid else user.place,
                         f"the grid of the kernel of '@{user.op.name}' is {list(grid)}, and axis {axis} takes at most {most}", (),
                         "more work for a block, or the long axis first")
