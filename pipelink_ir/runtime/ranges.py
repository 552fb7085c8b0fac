"""The range that a pipeline's result is promised to lie in."""
from __future__ import annotations

from pipelink_ir.ir.contracts import setting
from pipelink_ir.ir.nodes import Alias, Apply, Const, Expr, FloatLit, IntLit, Items, Module, Node, Pipeline


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
            return _bounds(found.setting.value) if found and found.scoped else None
    return None


def _bounds(value: object) -> tuple[float, float] | None:
    if not isinstance(value, Items) or len(value.items) != 2:
        return None
    lo, hi = (_number(i) if isinstance(i, Expr) else None for i in value.items)
    return None if lo is None or hi is None else (lo, hi)


def _number(value: Expr) -> float | None:
    if isinstance(value, IntLit | FloatLit):
        return float(value.value)
    if isinstance(value, Apply) and value.fn == "neg":
        inner = _number(value.args[0])
        return None if inner is None else -inner
    if isinstance(value, Const):
        return {"inf": float("inf"), "nan": None, "pi": 3.141592653589793}.get(value.name)
    return None
