"""Edges of which a lowered program has codes alone, shown as values: operators that only choose among values (pooling, transposition) work on codes, so that
`%p` is there as `%p.q` only. A node that brings such codes back is put in for each, to be looked at and for nothing else.
"""
from __future__ import annotations

from dataclasses import replace

from pipelink_ir.ir.nodes import Apply, Cast, Define, Edge, Expr, FloatLit, IntLit, Module, Node, Operator, Pipeline, Read
from pipelink_ir.passes.precision.codes import Codes, dequantiser
from pipelink_ir.passes.scheduling.tuned import edge_types

QUANTISER = "quantize_"
"""How operators that make codes are called."""


def with_values(plain: Pipeline, module: Module, name: str) -> Module:
    """The lowered module with the edges of `plain`, the same pipeline before, of which it has codes alone. Those that cannot be told stay away."""
    pipeline = next(p for p in module.pipelines if p.name == name)
    before, after = edge_types(plain), edge_types(pipeline)
    operators = {o.name: o for o in module.operators}
    makers = {e.name: n for n in pipeline.nodes if isinstance(n, Node) for e in n.results}
    nodes: list[Node] = []
    made: list[Operator] = []
    for edge, t in before.items():
        q = f"{edge}.q"
        if edge in after or q not in after or after[q].dims != t.dims:
            continue
        quantiser = _quantiser(q, makers)
        codes = _codes(operators[quantiser.op]) if quantiser is not None else None
        if quantiser is None or codes is None or codes.stored != after[q].dtype:
            continue
        op = dequantiser(t, codes, f"shown.{len(made)}")
        made.append(op)
        nodes.append(Node((Edge(edge),), op.name, (Edge(q), *(a for a in quantiser.args[1:] if isinstance(a, Edge))), device=quantiser.device, types=(t,)))
    if not nodes:
        return module
    wider = replace(pipeline, nodes=(*pipeline.nodes, *nodes))
    return replace(module, items=(*made, *(wider if i is pipeline else i for i in module.items)))


def _quantiser(edge: str, makers: dict[str, Node]) -> Node | None:
    """The node that made the codes which an edge is chosen from."""
    for _ in range(len(makers)):
        n = makers.get(edge)
        if n is None or n.op.startswith(QUANTISER):
            return n
        edge = next((a.name for a in n.args if isinstance(a, Edge) and a.name.endswith(".q")), "")
    return None


def _codes(op: Operator) -> Codes | None:
    """How an operator codes, if one scale holds for all of the tensor: `i8(round(%x[…] / SCALE) + ZERO)`, or f8 of a clamped quotient."""
    define = op.compute.body[0] if op.compute is not None and len(op.compute.body) == 1 else None
    if not isinstance(define, Define) or not isinstance(define.value, Cast):
        return None
    inner, zero = define.value.arg, _number(IntLit(0))
    if isinstance(inner, Apply) and inner.fn in ("+", "-") and len(inner.args) == 2:
        zero = _number(inner.args[1])
        zero = -zero if inner.fn == "-" and isinstance(zero, int) else zero
        inner = inner.args[0]
    quotient = inner.args[0] if isinstance(inner, Apply) and inner.fn in ("round", "clamp") else None
    if not isinstance(quotient, Apply) or quotient.fn != "/":
        return None
    scale = _number(quotient.args[1])
    if scale is None or isinstance(zero, float) or zero is None:
        return None
    return Codes(define.value.to, float(scale) if isinstance(scale, int) else scale, zero)


def _number(e: Expr) -> float | int | str | None:
    """A number, or `tensor` for an operand with one."""
    e = e.arg if isinstance(e, Cast) else e
    if isinstance(e, FloatLit | IntLit):
        return e.value
    if isinstance(e, Apply) and e.fn == "neg":
        value = _number(e.args[0])
        return -value if isinstance(value, int | float) else None
    return "tensor" if isinstance(e, Read) and not e.indices else None
