"""What can be computed before the first call: nodes that depend on `param` inputs alone.

Their sizes must be known from the parameters too: a node that is given the height of an image waits for the image.
"""
from __future__ import annotations

from pipelink_ir.ir.nodes import Edge, Expr, Node, Operand, Pipeline, TensorType
from pipelink_ir.ir.walk import names_in
from pipelink_ir.passes.aliasing.order import arguments, origins


def once_nodes(pipeline: Pipeline) -> list[int]:
    """The numbers of these nodes; none where there are no parameters."""
    params = [o for o in pipeline.inputs if o.param]
    if not params:
        return []
    sizes = known_sizes(pipeline)
    origin = origins(pipeline)
    ready = {o.name for o in params}
    out = []
    for n, node in enumerate(pipeline.nodes):
        if not isinstance(node, Node):
            continue
        needs = [origin.get(e.name, e.name) for e in (*arguments(node), *node.after)]
        exprs: list[Expr] = [d for t in node.types for d in t.dims]
        exprs += [s.value for s in node.attrs if isinstance(s.value, Expr)]
        if all(e in ready for e in needs) and all(names_in(x) <= sizes for x in exprs):
            out.append(n)
            ready |= {e.name for e in node.results}
    return out


def known_sizes(pipeline: Pipeline) -> set[str]:
    """Symbols that the shapes of parameters bind, and attributes, whose values are fixed when the program is compiled."""
    return {n for o in pipeline.inputs if o.param for d in o.type.dims for n in names_in(d)} | {a.name for a in pipeline.attributes}


def frontier(pipeline: Pipeline, once: list[int]) -> list[tuple[Edge, Operand]]:
    """The edges that these nodes make and others, or the caller, need; as operands with their types."""
    inside = set(once)
    made = {e.name: (e, Operand(e.name, t)) for n in once for e, t in _results(pipeline, n)}
    origin = origins(pipeline)
    needed: dict[str, None] = {}
    for n, node in enumerate(pipeline.nodes):
        if isinstance(node, Node) and n not in inside:
            needed |= dict.fromkeys(origin.get(e.name, e.name) for e in arguments(node))
    needed |= dict.fromkeys(origin.get(r.name, r.name) for r in pipeline.results)
    return [made[name] for name in needed if name in made]


def _results(pipeline: Pipeline, n: int) -> list[tuple[Edge, TensorType]]:
    node = pipeline.nodes[n]
    assert isinstance(node, Node)
    return list(zip(node.results, node.types, strict=True))
