"""Definitions that a device runs better, with the same meaning: plain index notation before and after, typed and checked again.

Before:  op @total(%x: tensor<Nxf32>) -> (%y: tensor<f32>) {
           compute { %y = sum[n < N](%x[n]) }
         }
After:   op @total(%x: tensor<Nxf32>) -> (%y: tensor<f32>) {
           schedule { target = cuda, derived = [%y.sum] }
           compute {
             %y.sum[n.part < …] = sum[n in n.part * c..min(n.part * c + c, N)](%x[n])
             %y                 = sum[n.part < …](%y.sum[n.part])
           }
         }

For a GPU long reductions that do not depend on all indices of their definition become locals, and those with few results, or along an axis that is slow in
memory, are done in parts (`scheduling/parts.py`). For the CPU operands of a contraction are turned over once, so that its terms lie side by side
(`scheduling/transpose.py`). What was made for it to lie in memory stands in
`derived`; an operator that has the key is left as it is, so `derived = []` keeps a user's definitions.

Requires: types inferred.
Keeps: signatures, contracts, what a user scheduled; operators with a kernel of their own; operators of which inference could not prove the new form.
Adds: locals whose names have a dot, `derived` in `schedule { target = … }`.
"""
from __future__ import annotations

from dataclasses import dataclass, replace

from pipelink_ir.ir.diagnostics import Report, UsageError
from pipelink_ir.ir.nodes import Module, Operator
from pipelink_ir.ir.walk import deep
from pipelink_ir.passes.manager import register_pass
from pipelink_ir.passes.scheduling.asked import TARGETS
from pipelink_ir.passes.scheduling.derivation import derived_operator


@dataclass(frozen=True, slots=True)
class Options:
    """For which device."""

    device: str = "cuda"
    """`cpu` or `cuda`."""


@register_pass("derive", "equivalent definitions that a device runs better", Options, typed=True)
def derive(module: Module, options: Options, report: Report) -> Module:
    """Rewrite each operator; see the page above."""
    if options.device not in TARGETS:
        raise UsageError(f"derive: 'device' is one of {', '.join(TARGETS)}, not '{options.device}'")
    with deep():
        items = tuple(derived_operator(i, options.device) if isinstance(i, Operator) and i.compute is not None else i for i in module.items)
    return module if all(a is b for a, b in zip(items, module.items, strict=True)) else replace(module, items=items)

