"""`build_gpu`: a typed operator as a program of the loop-level form for a GPU, by the default schedule.

`passes/scheduling` says what is to be done: `parts.py` rewrites definitions so that there is enough to do at once, `gpu_place.py` says where each local
lives, `kernels.py` which kernels there are and of which kind. `BODIES` has what writes each kind: `gpu/nests.py` and `gpu/recur.py` the loops, `gpu/team.py`
what the threads of a block do together. Values are lowered as for the CPU.

A kernel has one buffer for each tensor that it touches, however many those are; joins of tensors become one kernel for each. Where all parameters of a
kernel take more than a launch may carry (4096 bytes), the emitter hands them over in a table.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.build import buffer_of, scalars_of, size_of
from pipelink_ir.backends.loops.check import check_program
from pipelink_ir.backends.loops.contents import blocks
from pipelink_ir.backends.loops.gpu.attention import attention_body, plain_body
from pipelink_ir.backends.loops.gpu.chosen_keys import chosen_body
from pipelink_ir.backends.loops.gpu.columns import columns_body
from pipelink_ir.backends.loops.gpu.convolution import convolution_body
from pipelink_ir.backends.loops.gpu.few import few_body
from pipelink_ir.backends.loops.gpu.flowing import flowing_body
from pipelink_ir.backends.loops.gpu.long_rows import long_rows_body
from pipelink_ir.backends.loops.gpu.mma import mma_body
from pipelink_ir.backends.loops.gpu.narrow_floats import shortened
from pipelink_ir.backends.loops.gpu.product import product_body
from pipelink_ir.backends.loops.gpu.quotients import by_reciprocals
from pipelink_ir.backends.loops.gpu.ranges import ranges_body
from pipelink_ir.backends.loops.gpu.recur import gpu_recurrence
from pipelink_ir.backends.loops.gpu.rows import block_body
from pipelink_ir.backends.loops.gpu.short_rows import short_rows_body
from pipelink_ir.backends.loops.gpu.stream import stream_body
from pipelink_ir.backends.loops.gpu.strips import strips_body
from pipelink_ir.backends.loops.gpu.tile import tile_body
from pipelink_ir.backends.loops.gpu.turn import turn_body
from pipelink_ir.backends.loops.gpu.turned import copied_body, turned_body
from pipelink_ir.backends.loops.gpu.vector import grid_body
from pipelink_ir.backends.loops.gpu.window import window_body
from pipelink_ir.backends.loops.lower import Lowering, Sites
from pipelink_ir.backends.loops.tidy import tidy
from pipelink_ir.ir.dtypes import BOOL, I64
from pipelink_ir.ir.targets import Arch
from pipelink_ir.ir.typed import Group, TypedOperator
from pipelink_ir.ir.walk import deep
from pipelink_ir.passes.scheduling.attention import Attention, Choosing
from pipelink_ir.passes.scheduling.columns import Columns
from pipelink_ir.passes.scheduling.convolutions import Convolution
from pipelink_ir.passes.scheduling.costs import Plan
from pipelink_ir.passes.scheduling.derivation import derivation
from pipelink_ir.passes.scheduling.few import Few
from pipelink_ir.passes.scheduling.gpu_place import gpu_plan
from pipelink_ir.passes.scheduling.kernels import KernelPlan, launches_of
from pipelink_ir.passes.scheduling.long_rows import LongRows
from pipelink_ir.passes.scheduling.products import Product
from pipelink_ir.passes.scheduling.rows import ShortRows, Span
from pipelink_ir.passes.scheduling.shape import Shape
from pipelink_ir.passes.scheduling.streams import Streamed, Turning
from pipelink_ir.passes.scheduling.strips import Strips
from pipelink_ir.passes.scheduling.tensor_cores import TensorCores
from pipelink_ir.passes.scheduling.tiles import Tiled
from pipelink_ir.passes.scheduling.turns import Turn
from pipelink_ir.passes.scheduling.windows import Window


def build_gpu(op: TypedOperator, arch: Arch | None = None) -> form.Program:
    """The kernels that compute all results of an operator from its operands, for a GPU: for any, if it is not said for which."""
    with deep():
        program = _GpuBuilder(op).run(arch)
        check_program(program)
    return program


Body = tuple[Lowering, int]
"""A kernel that is still open, and how many threads a block of it must have; 0 leaves that to the emitter."""


def _product(op: TypedOperator, plan: Plan, sites: Sites, k: KernelPlan) -> Body:
    assert isinstance(k.way, Product)
    return product_body(op, plan, sites, k.jobs[0], k.way, k.chosen)


def _attention(op: TypedOperator, plan: Plan, sites: Sites, k: KernelPlan) -> Body:
    assert isinstance(k.way, Attention)
    return (flowing_body if k.way.flowing else attention_body)(op, plan, sites, k.jobs[0], k.way, k.chosen)


def _beyond(op: TypedOperator, plan: Plan, sites: Sites, k: KernelPlan) -> Body:
    assert isinstance(k.way, Attention)
    return plain_body(op, plan, sites, k.jobs[0], k.way, k.chosen)


def _chosen(op: TypedOperator, plan: Plan, sites: Sites, k: KernelPlan) -> Body:
    assert isinstance(k.way, Choosing)
    return chosen_body(op, plan, sites, k.jobs[0], k.way.of, k.chosen)


def _wgmma(op: TypedOperator, plan: Plan, sites: Sites, k: KernelPlan) -> Body:
    assert isinstance(k.way, Streamed)
    return stream_body(op, plan, sites, k.jobs[0], k.way, k.chosen)


def _few(op: TypedOperator, plan: Plan, sites: Sites, k: KernelPlan) -> Body:
    assert isinstance(k.way, Few)
    return few_body(op, plan, sites, k.jobs[0], k.way, k.chosen)


def _convolution(op: TypedOperator, plan: Plan, sites: Sites, k: KernelPlan) -> Body:
    assert isinstance(k.way, Convolution)
    return convolution_body(op, plan, sites, k.jobs[0], k.way, k.chosen)


def _strips(op: TypedOperator, plan: Plan, sites: Sites, k: KernelPlan) -> Body:
    assert isinstance(k.way, Strips)
    return strips_body(op, plan, sites, k.jobs[0], k.way, k.chosen)


def _turned(op: TypedOperator, plan: Plan, sites: Sites, k: KernelPlan) -> Body:
    assert isinstance(k.way, Turning)
    return turned_body(op, plan, sites, k.jobs[0], k.way.of, k.way.left, k.chosen)


def _copied(op: TypedOperator, plan: Plan, sites: Sites, k: KernelPlan) -> Body:
    assert isinstance(k.way, Turning)
    return copied_body(op, plan, sites, k.jobs[0], k.way.of, k.way.left, k.chosen)


def _mma(op: TypedOperator, plan: Plan, sites: Sites, k: KernelPlan) -> Body:
    assert isinstance(k.way, TensorCores)
    return mma_body(op, plan, sites, k.jobs[0], k.way, k.chosen)


def _columns(op: TypedOperator, plan: Plan, sites: Sites, k: KernelPlan) -> Body:
    assert isinstance(k.way, Columns)
    return columns_body(op, plan, sites, k.jobs[0], k.way, k.kind)


def _turn(op: TypedOperator, plan: Plan, sites: Sites, k: KernelPlan) -> Body:
    assert isinstance(k.way, Turn)
    return turn_body(op, plan, sites, k.jobs[0], k.way, k.chosen)


def _nest(op: TypedOperator, plan: Plan, sites: Sites, k: KernelPlan) -> Body:
    assert isinstance(k.way, Shape)
    return block_body(op, plan, sites, list(k.jobs), k.name, k.way, k.chosen, k.span), 0


def _short(op: TypedOperator, plan: Plan, sites: Sites, k: KernelPlan) -> Body:
    assert isinstance(k.way, ShortRows)
    return short_rows_body(op, plan, sites, list(k.jobs), k.way)


def _long(op: TypedOperator, plan: Plan, sites: Sites, k: KernelPlan) -> Body:
    assert isinstance(k.way, LongRows)
    return long_rows_body(op, plan, sites, list(k.jobs), k.way)


def _grid(op: TypedOperator, plan: Plan, sites: Sites, k: KernelPlan) -> Body:
    return grid_body(op, plan, sites, list(k.jobs), k.chosen, k.knobs), k.knobs.threads


def _window(op: TypedOperator, plan: Plan, sites: Sites, k: KernelPlan) -> Body:
    assert isinstance(k.way, Window)
    return window_body(op, plan, sites, k.jobs[0], k.way, k.chosen), k.knobs.threads or k.way.threads


def _tile(op: TypedOperator, plan: Plan, sites: Sites, k: KernelPlan) -> Body:
    assert isinstance(k.way, Tiled)
    return tile_body(op, plan, sites, k.jobs[0], k.way, k.chosen)


def _scan(op: TypedOperator, plan: Plan, sites: Sites, k: KernelPlan) -> Body:
    assert isinstance(k.way, Group)
    return gpu_recurrence(op, plan, sites, k.way), 0


BODIES: dict[str, Callable[[TypedOperator, Plan, Sites, KernelPlan], Body]] = {
    "attention": _attention, "beyond": _beyond, "convolution": _convolution, "chosen": _chosen,
    "few": _few, "strips": _strips, "wgmma": _wgmma, "turned": _turned, "copied": _copied, "mma": _mma, "product": _product, "turn": _turn,
    "columns": _columns, "parts": _columns, "join": _columns,
    "window": _window, "tile": _tile, "block": _nest, "short": _short, "begin": _long, "long": _long, "grid": _grid, "scan": _scan}
"""What writes each kind of kernel; `passes/scheduling/kernels.py` says which kind that is."""


class _GpuBuilder:
    def __init__(self, op: TypedOperator) -> None:
        op, stored = derivation(op, "cuda")
        self.op, self.plan, self.sites = shortened(op), gpu_plan(op, stored), Sites()
        self.kernels: list[form.Kernel] = []
        self.scratch: list[form.Buffer] = []

    def run(self, arch: Arch | None) -> form.Program:
        op = self.op
        for k, *others in launches_of(op, self.plan, arch):
            if others:
                parts = [(list(part.jobs), part.chosen, part.knobs) for part in (k, *others)]
                lo, threads = ranges_body(op, self.plan, self.sites, parts), k.knobs.threads
            else:
                lo, threads = BODIES[k.kind](op, self.plan, self.sites, k)
            self._close(lo, k.name, threads, _rare(k), k.span)
        stored = [t for t in op.tensors.values() if t.kind == "local" and self.plan.place[t.name] == "buffer"]
        temporaries = (*map(buffer_of, stored), *self.scratch)
        return form.Program(op.op.name, tuple(self.kernels), tuple(map(buffer_of, op.operands)), tuple(map(buffer_of, op.results)),
                            temporaries, op.symbols, scalars_of(op), tuple(self.sites.list))

    def _close(self, lo: Lowering, name: str, threads: int, rare: bool, span: Span | None) -> None:
        """The finished kernel of what was written. `rare`: mostly there is nothing to do, which few blocks find out soonest."""
        op = self.op
        threads, team = lo.team_size or (threads, None)
        body = tuple(lo.e.frames[0].stmts) if span is None else _within(span, tuple(lo.e.frames[0].stmts))
        if not op.exact and not op.fast_math:
            body = by_reciprocals(body, [n for n, _ in scalars_of(op)], lo.e.fresh)
        body = tidy(body)
        buffers = (*(buffer_of(t) for t in op.tensors.values() if t.name in lo.used), *lo.scratch)
        self.scratch += [b for b in lo.scratch if b not in self.scratch]
        self.kernels.append(form.Kernel(f"{op.op.name}.{name}", buffers, op.symbols, scalars_of(op), body, op.exact, op.fast_math, "gpu",
                                        threads, team, rare or bool(lo.tickets) or _takes_turns(body), lo.fit, lo.tickets, lo.once and _small(body)))


def _within(span: Span, body: form.Block) -> form.Block:
    """A kernel that has nothing to do for rows of other lengths."""
    *lets, loop = body
    assert isinstance(loop, form.For)
    size = size_of(span.length)
    cond: form.Expr = form.Op(">", (size, form.Const(span.above, I64)), BOOL)
    if span.most is not None:
        less = form.Op("<=", (size, form.Const(span.most, I64)), BOOL)
        cond = form.Op("and", (cond, less), BOOL) if span.above >= 0 else less
    return (*lets, replace(loop, hi=form.Choose(cond, loop.hi, form.Const(0, I64), I64)))


def _rare(k: KernelPlan) -> bool:
    """Whether a kernel is there for what another one is not fit for."""
    return (isinstance(k.way, TensorCores) and k.way.unless is not None) or (isinstance(k.way, Attention) and k.way.flows and not k.way.flowing)


def _small(body: form.Block) -> bool:
    """Whether all scratch has a constant size."""
    return all((not isinstance(s, form.Alloc) or isinstance(s.size, form.Const)) and all(map(_small, blocks(s))) for s in body)


def _takes_turns(body: form.Block) -> bool:
    """Whether blocks stay and take one turn after the other: what they set up once serves all."""
    last = body[-1] if body else None
    return isinstance(last, form.For) and any(isinstance(s, form.Contract | form.Attend) for s in last.body)
