"""The range that a pipeline's result is promised to lie in."""
from __future__ import annotations

from pipelink_ir.ir.contracts import setting
from pipelink_ir.ir.nodes import Alias, Module, Node, Pipeline
from pipelink_ir.passes.contracts.edges import declared_range


def promised_range(module: Module, pipeline: Pipeline, result: str) -> tuple[float, float] | None:
    """`range = [lo, hi]` of the operator that makes a result, None where it promises nothing."""
    aliases = {n.name.name: n.of.name for n in pipeline.nodes if isinstance(n, Alias)}
    for _ in aliases:
        result = aliases.get(result, result)
    for node in pipeline.nodes:
        if isinstance(node, Node) and result in (names := [r.name for r in node.results]):
            op = next((o for o in module.operators if o.name == node.op), None)
            if op is None or len(op.results) != len(names):
                return None
            found = setting(op, "semantic", "range", op.results[names.index(result)].name)
            promised = declared_range(found.setting) if found and found.scoped else None
            return (promised.lo, promised.hi) if promised else None
    return None
