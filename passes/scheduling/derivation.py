"""What is derived for which target, as plain PLIR that inference has checked again."""
from __future__ import annotations

from pipelink_ir.ir.diagnostics import Report
from pipelink_ir.ir.nodes import Operator
from pipelink_ir.ir.typed import TypedOperator
from pipelink_ir.passes.infer.operator import KEPT, infer_operator, keep_typed, typed_operator
from pipelink_ir.passes.scheduling.asked import asked, with_derived
from pipelink_ir.passes.scheduling.parts import derived
from pipelink_ir.passes.scheduling.retell import retold
from pipelink_ir.passes.scheduling.settle import settled
from pipelink_ir.passes.scheduling.transpose import turned

_KNOWN: dict[tuple[int, str], tuple[Operator, Operator]] = {}
"""What became of an operator, by its identity and the target; the operator is kept alive with it."""


def derived_operator(op: Operator, target: str) -> Operator:
    """The operator as it is best defined for `cpu` or `cuda`; itself where nothing is better, or where it is not to be touched. Found once for each object:
    proving that the new form reads nothing outside takes longer than all else."""
    found = _KNOWN.get((id(op), target))
    if found is None or found[0] is not op:
        if len(_KNOWN) > KEPT:
            _KNOWN.clear()
        found = _KNOWN[id(op), target] = op, _derived(op, target)
    return found[1]


def _derived(op: Operator, target: str) -> Operator:
    if op.kernel is not None or asked(op, target).derived is not None:
        return op
    typed = typed_operator(op)
    after, stored = _rewritten(typed, target)
    if all(n in typed.tensors for n in after.tensors):
        return op
    for extents in (True, False):
        new = with_derived(retold(typed, after, extents), target, stored)
        report = Report()
        again = infer_operator(new, report)
        if again is not None and not report.failed:
            keep_typed(new, again)
            return new
    return op


def derivation(op: TypedOperator, target: str) -> tuple[TypedOperator, frozenset[str]]:
    """The operator as a backend builds it: with sharp access words, derived if it has not been, and the new locals that have to be stored."""
    new = derived_operator(op.op, target)
    found = asked(new, target).derived
    if found is not None:
        return settled(op if new is op.op else typed_operator(new)), frozenset(found)
    return _rewritten(op, target)


def _rewritten(op: TypedOperator, target: str) -> tuple[TypedOperator, frozenset[str]]:
    op = settled(op)
    return derived(op) if target == "cuda" else turned(op)
