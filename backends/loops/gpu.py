"""`build_gpu`: a typed operator as a program of the loop-level form for a GPU, by the default schedule.

`passes/scheduling` says what is to be done: `parts.py` rewrites definitions so that there is enough to do at once, `gpu_place.py` says where each local
lives, `shape.py` how a definition is laid over blocks and threads. Here `gpu_nests.py` and `gpu_recur.py` write the loops, `gpu_team.py` what the threads of a block do together. Values are lowered as
for the CPU.

A kernel has one buffer for each tensor that it touches, however many those are; joins of tensors become one kernel for each. Where all parameters of a
kernel take more than a launch may carry (4096 bytes), the emitter hands them over in a table.
"""
from __future__ import annotations

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.build import buffer_of, scalars_of
from pipelink_ir.backends.loops.check import check_program
from pipelink_ir.backends.loops.gpu_nests import gpu_body
from pipelink_ir.backends.loops.gpu_product import product_body
from pipelink_ir.backends.loops.gpu_recur import gpu_recurrence
from pipelink_ir.backends.loops.gpu_turn import turn_body
from pipelink_ir.backends.loops.lower import Lowering, Sites
from pipelink_ir.backends.loops.nests import Job
from pipelink_ir.backends.loops.tidy import tidy
from pipelink_ir.ir.typed import Tensor, TypedOperator
from pipelink_ir.ir.walk import deep
from pipelink_ir.passes.scheduling.gpu_place import gpu_plan
from pipelink_ir.passes.scheduling.parts import derived
from pipelink_ir.passes.scheduling.products import product_of
from pipelink_ir.passes.scheduling.settle import settled
from pipelink_ir.passes.scheduling.shape import shape_of
from pipelink_ir.passes.scheduling.steps import distributed
from pipelink_ir.passes.scheduling.turns import turn_of


def build_gpu(op: TypedOperator) -> form.Program:
    """The kernels that compute all results of an operator from its operands, for a GPU."""
    with deep():
        program = _GpuBuilder(op).run()
        check_program(program)
    return program


class _GpuBuilder:
    def __init__(self, op: TypedOperator) -> None:
        op, stored = derived(settled(op))
        self.op, self.plan, self.sites = op, gpu_plan(op, stored), Sites()
        self.kernels: list[form.Kernel] = []
        self.scratch: list[form.Buffer] = []

    def run(self) -> form.Program:
        op = self.op
        groups = {n: g for g in op.order for n in g.tensors}
        for step in self.plan.steps:
            if step.recurrence:
                self._close(gpu_recurrence(op, self.plan, self.sites, groups[step.tensors[0]]), step.tensors[0])
            elif len(step.tensors) > 1:
                self._joint([op.tensors[n] for n in step.tensors])
            else:
                self._pieces(op.tensors[step.tensors[0]])
        stored = [t for t in op.tensors.values() if t.kind == "local" and self.plan.place[t.name] == "buffer"]
        temporaries = (*map(buffer_of, stored), *self.scratch)
        return form.Program(op.op.name, tuple(self.kernels), tuple(map(buffer_of, op.operands)), tuple(map(buffer_of, op.results)),
                            temporaries, op.symbols, scalars_of(op), tuple(self.sites.list))

    def _joint(self, tensors: list[Tensor]) -> None:
        """Tensors over one box: neighbours of one shape share a kernel."""
        run: list[Job] = []
        before: object = None
        for t in tensors:
            alone = product_of(self.op, self.plan.local, t.pieces[0]) or turn_of(self.op, self.plan.local, t.pieces[0])
            shape = alone or shape_of(self.op, self.plan.local, t.pieces[0])
            if run and (shape != before or alone is not None):
                self._kernel(run, run[0][0].name)
                run = []
            run.append((t, t.pieces[0]))
            before = shape
        self._kernel(run, run[0][0].name)

    def _pieces(self, t: Tensor) -> None:
        """A kernel for each piece, and for each part of what it joins."""
        jobs = [job for piece in t.pieces for job in distributed(self.op, self.plan.place, piece)]
        for k, (piece, chosen) in enumerate(jobs):
            self._kernel([(t, piece)], t.name if len(jobs) == 1 else f"{t.name}.{k}", chosen)

    def _kernel(self, jobs: list[Job], name: str, chosen: dict[str, int] | None = None) -> None:
        op, plan, piece = self.op, self.plan, jobs[0][1]
        product = product_of(op, plan.local, piece, chosen)
        if product is not None:
            lo, threads = product_body(op, plan, self.sites, jobs[0], product, chosen)
            self._close(lo, name, threads)
            return
        turn = turn_of(op, plan.local, piece, chosen) if len(jobs) == 1 else None
        if turn is not None:
            self._close(turn_body(op, plan, self.sites, jobs[0], turn, chosen), name)
            return
        self._close(gpu_body(op, plan, self.sites, jobs, name, shape_of(op, plan.local, piece, chosen), chosen), name)

    def _close(self, lo: Lowering, name: str, threads: int = 0) -> None:
        """The finished kernel of what was written."""
        op = self.op
        body = tidy(tuple(lo.e.frames[0].stmts))
        buffers = (*(buffer_of(t) for t in op.tensors.values() if t.name in lo.used), *lo.scratch)
        self.scratch += lo.scratch
        self.kernels.append(form.Kernel(f"{op.op.name}.{name}", buffers, op.symbols, scalars_of(op), body, op.exact, op.fast_math, "gpu", threads))
