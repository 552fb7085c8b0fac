"""Kernels that users wrote, under policies. Nobody can write their text anew, so what a policy may make of one is what its contract admits:

- another float dtype, if it is among its `dtypes`: the kernel is called as it is, its views say the dtype;
- codes, if their dtype is among its `dtypes` and its `compute` only chooses among values, so that codes go in and the same codes come out. Any other kernel
  would need to be told the scale;
- whatever its `compute` may become, where that is what runs: on a processor, and under `library = generated` of the clause.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pipelink_ir.ir import contracts
from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.nodes import Operator
from pipelink_ir.ir.targets import Arch
from pipelink_ir.passes.precision.policy import CODES

GENERATED = "generated"


def runs_kernel(op: Operator, arch: Arch, library: Sequence[str] | None) -> bool:
    """Whether the user's kernel is what runs on an architecture, under a clause with this `library`."""
    return op.kernel is not None and (op.compute is None or (arch.kind == "cuda" and GENERATED not in (library or ())))


def without_kernel(op: Operator) -> Operator:
    """The operator as its `compute` says."""
    return replace(op, kernel=None)


def takes_codes(op: Operator, dtype: str) -> bool:
    """Whether an operator can be handed codes in place of the values that it only chooses among. A kernel has to say that it reads such a dtype."""
    if op.kernel is None:
        return True
    listed = contracts.dtypes(op)
    return listed is not None and dtype in contracts.words(listed.value)


def why_not(op: Operator, dtype: str | None, weights: str | None, plain: bool) -> str | None:
    """Why a policy cannot have what it asks of an operator whose kernel runs; None if it can, or if float dtypes that are not admitted are what is wrong, which
    others say of all operators alike."""
    if op.kernel is None:
        return None
    if weights is not None and weights != dtype:
        return f"reads its weights as its signature says, not as {weights}"
    if dtype not in CODES or (plain and DTYPES[dtype].is_float):
        return None
    if not takes_codes(op, dtype):
        listed = contracts.dtypes(op)
        reads = ", ".join(contracts.words(listed.value)) if listed is not None else ", ".join(dict.fromkeys(o.type.dtype for o in op.operands))
        return f"admits {reads} and no codes of {dtype}"
    return None if op.compute is not None and _chooses(op) else f"would get codes of {dtype} without their scale, since it does more than choose among values"


def _chooses(op: Operator) -> bool:
    """Whether the `compute` beside a kernel only chooses among values, whatever floats its type variables stand for."""
    from pipelink_ir.passes.infer.specialise import Binding, specialise
    from pipelink_ir.passes.precision.selecting import selects
    free = dict.fromkeys(o.type.dtype for o in (*op.operands, *op.results) if o.type.dtype not in DTYPES)
    return selects(specialise(op, Binding(dtypes=tuple((name, "f32") for name in free)), op.name))
