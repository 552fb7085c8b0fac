"""From a plan to commands: what a run with given sizes tells the device, made once for them and filled with addresses later.

A recipe has words (the arguments of all kernels, eight bytes each, in the frames of the plan with a few behind them), launches whose parameters point at words,
and the order in which launches, waits and records go to which stream. Every word that is an address is named by a `Patch`: of an input or result, of a place
in the arena, or of a place in the fixed block. The arena holds everything that lives during a run:

    what lives between nodes | scratch of each stream | a status for each kernel that checks | arrays of the host on their way

The fixed block holds what kernels read and the host writes once: tables of addresses for kernels with very many buffers, and the views and parameters of
kernels that users wrote.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipelink_ir.backends.cuda import prelude
from pipelink_ir.backends.cuda.cublaslt import Chosen
from pipelink_ir.backends.cuda.driver import Launch, carrier
from pipelink_ir.backends.cuda.emit import KernelCode
from pipelink_ir.backends.cuda.library_call import problem_of
from pipelink_ir.backends.cuda.loaded import Kernels, LoadedOperator
from pipelink_ir.backends.cuda.order import Order
from pipelink_ir.backends.cuda.user_launch import pack_params, user_launch
from pipelink_ir.backends.loops.form import Buffer, evaluate
from pipelink_ir.backends.planning import Patch, Plan, Step
from pipelink_ir.backends.scalars import Number
from pipelink_ir.ir.diagnostics import internal_error
from pipelink_ir.ir.dtypes import DType
from pipelink_ir.passes.scheduling.library_products import LibraryProduct

ALIGN = 256
"""What begins in the arena begins at a multiple of this."""

STATUS_BYTES = 8 * prelude.STATUS_WORDS


@dataclass(frozen=True, slots=True)
class Issued:
    """One launch among the commands, or one call of a library (`product`): the step of the plan, its words by place, its stream."""

    launch: Launch | None
    step: int
    arguments: tuple[int, ...]
    stream: int
    product: Chosen | None = None


@dataclass(frozen=True, slots=True)
class Pointer:
    """Eight bytes of the fixed block that hold an address: the patch of it, with the place instead of a word."""

    place: int
    of: Patch


@dataclass(slots=True)
class Recipe:
    """Everything about a run that sizes decide. `order` holds ("launch", number), ("wait", stream, event) and ("record", event, stream)."""

    plan: Plan
    words: list[int] = field(default_factory=list)
    patches: list[Patch] = field(default_factory=list)
    issued: list[Issued] = field(default_factory=list)
    order: list[tuple[str, int, int]] = field(default_factory=list)
    streams: int = 1
    events: int = 0
    fixed: bytearray = field(default_factory=bytearray)
    pointers: list[Pointer] = field(default_factory=list)
    status: int = 0
    """Where the statuses begin in the arena."""
    checked: list[int] = field(default_factory=list)
    """The steps that have a status, in order."""
    bytes: int = 0
    """The arena without arrays on their way."""
    inputs: tuple[int, ...] = ()
    """Bytes of each input."""
    runs: int = 0
    """Calls so far: from the second on it is worth a graph."""
    outputs: tuple[tuple[tuple[int, ...], Any, int], ...] = ()
    """Shape, NumPy's dtype and bytes of each result."""
    plain: bool = False
    """Whether a run is its kernels alone: nothing is checked, copied, or put into the fixed block."""
    refused: str | None = None
    """Why there is no graph of it, if one was tried."""
    operators: Mapping[str, LoadedOperator] = field(default_factory=dict)
    """Those that the steps of the plan speak of."""


class RecipeMaker:
    """Makes the recipe of one plan. `Unfit` names an operator that a library does not compute for these sizes."""

    def __init__(self, kernels: Kernels, operators: Mapping[str, LoadedOperator], plan: Plan, order: Order,
                 attributes: Callable[[Step], Mapping[str, Number]]) -> None:
        self.kernels, self.operators, self.plan, self.order, self.attributes = kernels, operators, plan, order, attributes
        self.out = Recipe(plan, list(plan.words), streams=order.streams, events=order.events, operators=operators)
        self.patch_of = {p.word: p for p in plan.patches}
        self.scratch: dict[int, int] = {}
        self.in_scratch: list[tuple[int, int]] = []
        self.in_status: list[tuple[int, int]] = []
        self._launches: dict[tuple[str, int, tuple[int, ...]], Launch | None] = {}

    def run(self) -> Recipe:
        out, at = self.out, 0
        for node, before, after in self.order.nodes():
            out.order += [("wait", self.order.stream(node), e) for e in before]
            while at < len(self.plan.steps) and self.plan.steps[at].node == node:
                self._step(at, self.plan.steps[at])
                at += 1
            out.order += [("record", e, self.order.stream(node)) for e in after]
        if at != len(self.plan.steps):
            internal_error("a step of the plan belongs to no node")
        out.patches += [p for p in self.plan.patches if p.kind != "status"]
        self._arena()
        return out

    def _arena(self) -> None:
        """Offsets of scratch and statuses."""
        out, end = self.out, _up(self.plan.arena)
        begins: dict[int, int] = {}
        for stream, size in sorted(self.scratch.items()):
            begins[stream] = end
            end += _up(size)
        out.patches += [Patch(word, "arena", 0, begins[stream]) for word, stream in self.in_scratch]
        out.status = end
        out.patches += [Patch(word, "arena", 0, end + STATUS_BYTES * number) for word, number in self.in_status]
        out.bytes = _up(end + STATUS_BYTES * len(out.checked))
        if out.bytes and self.plan.align > ALIGN:
            # Memory of the driver's begins at a multiple of 256: there is room to begin later.
            out.bytes += self.plan.align
        out.outputs = tuple((shape, carrier(dtype), dtype.bytes * _product(shape)) for shape, dtype in self.plan.results)
        out.plain = not out.checked and not out.fixed and not self.plan.copies

    # ------------------------------------------------------------------------------------------------------------------------ steps

    def _step(self, number: int, step: Step) -> None:
        operator = self.operators[step.op]
        stream = self.order.stream(step.node)
        if operator.code.library is not None:
            self._product(number, step, stream, operator.code.library)
            return
        if operator.code.user is not None:
            self._user(number, step, stream)
            return
        key = (step.op, step.kernel, tuple(step.sizes.values()))
        if key not in self._launches:
            self._launches[key] = self.kernels.launch(step.op, step.kernel, step.sizes)
        launch = self._launches[key]
        if launch is not None:
            code = operator.code.kernels[step.kernel]
            self._issue(launch, number, self._arguments(code, step, number, launch, stream), stream)

    def _issue(self, launch: Launch, step: int, arguments: tuple[int, ...], stream: int) -> None:
        self.out.order.append(("launch", len(self.out.issued), stream))
        self.out.issued.append(Issued(launch, step, arguments, stream))

    def _word(self, value: int = 0) -> int:
        self.out.words.append(value)
        return len(self.out.words) - 1

    def _arguments(self, code: KernelCode, step: Step, number: int, launch: Launch, stream: int) -> tuple[int, ...]:
        """The words of a kernel's parameters, in their order."""
        kernel = code.kernel
        place = {("buffer", b.name): step.frame + n for n, b in enumerate(kernel.buffers)}
        first = step.frame + len(kernel.buffers)
        place |= {("symbol", s): first + n for n, s in enumerate(kernel.symbols)}
        first += len(kernel.symbols)
        place |= {("scalar", s): first + n for n, (s, _) in enumerate(kernel.scalars)}
        status = first + len(kernel.scalars)
        out = []
        for p in code.parameters:
            if p.kind == "status" and not launch.checks:
                out.append(self._word())
            elif p.kind == "status":
                self.in_status.append((status, len(self.out.checked)))
                self.out.checked.append(number)
                out.append(status)
            elif p.kind == "buffers":
                out.append(self._table(step.frame, len(kernel.buffers)))
            elif p.kind == "scratch":
                word = self._word()
                if launch.scratch:
                    self.scratch[stream] = max(self.scratch.get(stream, 0), launch.scratch)
                    self.in_scratch.append((word, stream))
                out.append(word)
            elif p.kind in ("block_bytes", "thread_bytes"):
                out.append(self._word(launch.block_bytes if p.kind == "block_bytes" else launch.thread_bytes))
            else:
                out.append(place[p.kind, p.name])
        return tuple(out)

    def _table(self, frame: int, count: int) -> int:
        """A table of the addresses of all buffers; the word that holds its address."""
        begin = self._fixed(b"\0" * (8 * count))
        self.out.pointers += [Pointer(begin + 8 * n, self.patch_of[frame + n]) for n in range(count)]
        return self._to_fixed(begin)

    def _fixed(self, data: bytes) -> int:
        fixed = self.out.fixed
        fixed += b"\0" * (-len(fixed) % 16)
        begin = len(fixed)
        fixed += data
        return begin

    def _to_fixed(self, begin: int) -> int:
        word = self._word()
        self.out.patches.append(Patch(word, "fixed", 0, begin))
        return word

    def _product(self, number: int, step: Step, stream: int, product: LibraryProduct) -> None:
        """A call of a library."""
        program = self.operators[step.op].program
        shapes = {b.name: shape_of(b, step.sizes) for b in program.kernels[0].buffers}
        problem = problem_of(product, program, shapes, self.attributes(step))
        if problem.rows * problem.columns * problem.batch == 0:
            return
        chosen = self.kernels.product(step.op, problem)
        place = {b.name: step.frame + n for n, b in enumerate(program.kernels[0].buffers)}
        space = self._word()
        if chosen.workspace:
            self.scratch[stream] = max(self.scratch.get(stream, 0), chosen.workspace)
            self.in_scratch.append((space, stream))
        arguments = [place[product.left.tensor], place[product.right.tensor], place[product.result], space]
        arguments += [place[product.bias]] if product.bias is not None else []
        self.out.order.append(("launch", len(self.out.issued), stream))
        self.out.issued.append(Issued(None, number, tuple(arguments), stream, chosen))

    def _user(self, number: int, step: Step, stream: int) -> None:
        operator = self.operators[step.op]
        user, program = operator.code.user, operator.program
        assert user is not None
        buffers = program.kernels[0].buffers
        shapes = [shape_of(b, step.sizes) for b in buffers]
        first = len(program.operands)
        launch = user_launch(self.kernels, user, step.sizes, self.attributes(step), _product(shapes[first]) if len(shapes) > first else 1)
        if launch is None:
            return
        arguments = [self._view(step.frame + n, shape, b.memory) for n, (b, shape) in enumerate(zip(buffers, shapes, strict=True))]
        at = step.frame + len(buffers) + len(program.symbols)
        params = pack_params(program.scalars, self.plan.words[at:at + len(program.scalars)])
        arguments.append(self._to_fixed(self._fixed(params)) if params else self._word())
        self._issue(launch, number, tuple(arguments), stream)

    def _view(self, word: int, shape: tuple[int, ...], dtype: DType) -> int:
        strides, step = [], 1
        for n in reversed(shape):
            strides.append(step)
            step *= max(n, 1)
        begin = self._fixed(prelude.pack_view(0, shape, strides[::-1], dtype))
        self.out.pointers.append(Pointer(begin, self.patch_of[word]))
        return self._to_fixed(begin)


def shape_of(buffer: Buffer, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The extents of a buffer."""
    return tuple(max(0, evaluate(d, dict(sizes))) for d in buffer.shape)


def _product(shape: Sequence[int]) -> int:
    out = 1
    for n in shape:
        out *= n
    return out


def _up(size: int) -> int:
    return (size + ALIGN - 1) // ALIGN * ALIGN
