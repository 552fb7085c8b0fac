"""Less to do for the same bits: dead nodes, equal nodes, exact constants, arguments that do nothing.

Before:  op @tone.1(%x: tensor<NxMxf32>) -> (%y: tensor<NxMxf32>) {
           compute { let gamma = f32(2.5)
                     %raw[n, m] = %x[n, m] * 2.0
                     %y[n, m]   = select(true, %x[n, m] * 1.0, 0.0) ** (1 / gamma) }
         }
         pipeline @p(%a: tensor<HxWxf32>) -> (%c: tensor<HxWxf32>) {
           %b = @tone.1(%a)
           %d = @tone.1(%a)
           %e = @plus.1(%b, %d)
           %c = @plus.1(%b, %d)
         }
After:   op @tone.1(%x: tensor<NxMxf32>) -> (%y: tensor<NxMxf32>) {
           compute { %y[n, m] = %x[n, m] ** 0.4 }
         }
         pipeline @p(%a: tensor<HxWxf32>) -> (%c: tensor<HxWxf32>) {
           %b = @tone.1(%a)
           %c = @plus.1(%b, %b)
         }

In a pipeline: a node that no result needs, by data, by `after` or by an event, is dropped; of two nodes with the same operator, arguments,
attributes, device and `after` the first does for both (a node with a `plan` is left alone); a `@std.cast` to the dtype that its operand has, or
back to the dtype that its operand was cast from without loss, is dropped, and so is a `@std.quantize` of what a `@std.dequantize` made of codes by the same
scale and zero point; second names are read through. In an operator: functions of
constants are folded where every backend computes them to the same bits (`+ - * /`, `sqrt`, comparisons, integers, casts, rounding), arguments
that do nothing go (`x * 1`, `x - 0`, integer `x + 0`, `select(true, a, b)`), so do ranges of extent one and definitions that nobody reads;
dimensions take their normal form.

Whatever is not exactly equal is not done: `x + 0.0` turns -0.0 into 0.0 and stays, a cast that rounds stays, and so does what may fail.
Work that depends on `param` inputs alone is not moved here: that needs to know what a backend keeps between calls, and belongs to planning.

Requires: flat pipelines (`flatten`), types.
Keeps: the bits of every result, labels (of two equal nodes, the first one's), the order of nodes, `plan`.
Adds: nothing. Operators that nobody calls any more are dropped.
"""
from __future__ import annotations

from dataclasses import dataclass, replace

from pipelink_ir.ir.diagnostics import Report
from pipelink_ir.ir.nodes import Import, Module, Operator, Pipeline, Target
from pipelink_ir.ir.walk import deep
from pipelink_ir.passes.manager import register_pass
from pipelink_ir.passes.simplify.nodes import simplify_pipeline
from pipelink_ir.passes.simplify.operators import simplify_operator
from pipelink_ir.passes.verify import reachable


@dataclass(frozen=True, slots=True)
class Options:
    """What is simplified."""

    nodes: bool = True
    """Nodes of pipelines."""
    operators: bool = True
    """Bodies of operators."""


@register_pass("simplify", "dead nodes, equal nodes, exact constants", Options, typed=True)
def simplify(module: Module, options: Options, report: Report) -> Module:
    """Simplify every pipeline and every operator that one calls; a module without pipelines is a library and stays."""
    if not module.pipelines:
        return module
    operators = {o.name: o for o in module.operators}
    with deep():
        items: list[Import | Target | Operator | Pipeline] = [
            simplify_pipeline(i, operators) if isinstance(i, Pipeline) and options.nodes else i for i in module.items]
        used = reachable(replace(module, items=tuple(items)))
        items = [i for i in items if not isinstance(i, Operator) or i.name in used]
        if options.operators:
            items = [simplify_operator(i) if isinstance(i, Operator) else i for i in items]
    same = len(items) == len(module.items) and all(a is b for a, b in zip(items, module.items, strict=True))
    return module if same else replace(module, items=tuple(items))
