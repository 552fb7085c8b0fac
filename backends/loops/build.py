"""`build`: a typed operator as a program of the loop-level form, by the default schedule.

`passes/scheduling/place.py` says where each local lives and what is computed together; `nests.py` and `recur.py` write the loops; `lower.py`, `reads.py`,
`reduce.py` and `rank.py` the values; `tidy.py` cleans up.
"""
from __future__ import annotations

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.check import check_program
from pipelink_ir.backends.loops.emit import i64
from pipelink_ir.backends.loops.lower import RULES, Lowering, Sites
from pipelink_ir.backends.loops.nests import kernel_body
from pipelink_ir.backends.loops.rank import ranked
from pipelink_ir.backends.loops.reads import read
from pipelink_ir.backends.loops.recur import recurrence_body
from pipelink_ir.backends.loops.reduce import reduce
from pipelink_ir.backends.loops.tidy import tidy
from pipelink_ir.ir.diagnostics import internal_error
from pipelink_ir.ir.dtypes import I64, DType
from pipelink_ir.ir.nodes import Apply, Cast, Expr, IntLit, Name, Range
from pipelink_ir.ir.typed import Tensor, TypedOperator
from pipelink_ir.ir.walk import deep
from pipelink_ir.passes.scheduling.derivation import derivation
from pipelink_ir.passes.scheduling.place import plan
from pipelink_ir.passes.scheduling.steps import distributed

RULES.update({"read": read, "reduce": reduce, "rank": ranked})


def build(op: TypedOperator) -> form.Program:
    """The kernels that compute all results of an operator from its operands."""
    with deep():
        program = _Builder(op).run()
        check_program(program)
    return program


class _Builder:
    def __init__(self, op: TypedOperator) -> None:
        op, copies = derivation(op, "cpu")
        self.op, self.plan, self.sites = op, plan(op, copies), Sites()
        self.kernels: list[form.Kernel] = []

    def run(self) -> form.Program:
        op = self.op
        groups = {n: g for g in op.order for n in g.tensors}
        for step in self.plan.steps:
            if step.recurrence:
                self._close(recurrence_body(op, self.plan, self.sites, groups[step.tensors[0]]), step.tensors[0])
                continue
            tensors = [op.tensors[n] for n in step.tensors]
            if len(tensors) > 1:
                self._close(kernel_body(op, self.plan, self.sites, [(t, t.pieces[0]) for t in tensors]), tensors[0].name)
                continue
            t = tensors[0]
            jobs = [job for piece in t.pieces for job in distributed(op, self.plan.place, piece)]
            for k, (piece, chosen) in enumerate(jobs):
                self._close(kernel_body(op, self.plan, self.sites, [(t, piece)], chosen), t.name if len(jobs) == 1 else f"{t.name}.{k}")
        temporaries = [t for t in op.tensors.values() if t.kind == "local" and self.plan.place[t.name] == "buffer"]
        return form.Program(op.op.name, tuple(self.kernels), tuple(map(buffer_of, op.operands)), tuple(map(buffer_of, op.results)),
                            tuple(map(buffer_of, temporaries)), op.symbols, scalars_of(op), tuple(self.sites.list))

    def _close(self, lo: Lowering, name: str) -> None:
        """The finished kernel of what was written."""
        body = tidy(tuple(lo.e.frames[0].stmts))
        buffers = tuple(buffer_of(t) for t in self.op.tensors.values() if t.name in lo.used)
        self.kernels.append(form.Kernel(f"{self.op.op.name}.{name}", buffers, self.op.symbols, scalars_of(self.op), body, self.op.exact, self.op.fast_math))


def scalars_of(op: TypedOperator) -> tuple[tuple[str, DType], ...]:
    """The scalar parameters of a kernel, in compute types."""
    return tuple((n, d.compute) for n, d in op.scalars)


def buffer_of(t: Tensor) -> form.Buffer:
    """The memory of a tensor."""
    kind = {"operand": "operand", "result": "result", "local": "temporary"}[t.kind]
    return form.Buffer(t.name, kind, t.dtype, tuple(_minus(size_of(hi), size_of(lo)) for lo, hi in t.shape))


def extent_of(r: Range) -> form.Expr:
    """How many places a range over symbols has."""
    return _minus(size_of(r.hi), i64(0) if r.lo is None else size_of(r.lo))


def _minus(a: form.Expr, b: form.Expr) -> form.Expr:
    return a if b == i64(0) else form.Op("max", (form.Op("-", (a, b), I64), i64(0)), I64)


def size_of(x: Expr) -> form.Expr:
    """A size expression over symbols."""
    if isinstance(x, IntLit):
        return i64(x.value)
    if isinstance(x, Name):
        return form.Ref(x.name, I64)
    if isinstance(x, Cast):
        return size_of(x.arg)
    if isinstance(x, Apply):
        args = tuple(map(size_of, x.args))
        if x.fn == "ceildiv":
            return form.Op("neg", (form.Op("floordiv", (form.Op("neg", (args[0],), I64), args[1]), I64),), I64)
        if x.fn in ("+", "-", "*", "floordiv", "mod", "neg", "min", "max", "abs"):
            return form.Op(x.fn, args, I64)
    internal_error(f"a size that no emitter knows: {x}")
