"""A pipeline as two: what depends on `param` inputs alone, and the rest, which reads what the first one makes.

    pipeline @p(%x: …, param %w: …) -> (%y: …) {          pipeline @p.once(param %w: …) -> (%u: …) { %u = @dequantize(%w) }
      %u = @dequantize(%w)                        becomes pipeline @p(%x: …, param %w: …, param %once.u: …) -> (%y: …) {
      %y = @linear(%x, %u)                                  %y = @linear(%x, %once.u)
    }                                                     }

The rest keeps all inputs, so that its sizes, conditions and contracts are those of the whole. This is no pass of its own: it is asked for when parameters are
bound, on a module that is flat and not fused yet, so that no work of the parameters hides in a node that needs more.
"""
from __future__ import annotations

from dataclasses import dataclass, replace

from pipelink_ir.ir.nodes import Alias, Edge, Module, Node, Operand, Operator, Pipeline
from pipelink_ir.ir.walk import names_in
from pipelink_ir.passes.aliasing.once import frontier, known_sizes, once_nodes
from pipelink_ir.passes.aliasing.order import arguments, origins
from pipelink_ir.passes.verify import reachable


@dataclass(frozen=True, slots=True)
class Split:
    """`once` is None where nothing can be computed before the first call. `made` has the results of `once` with the inputs of `rest` that they become."""

    once: Module | None
    rest: Module
    made: dict[str, str]


def once_name(pipeline: str) -> str:
    """The name of the first of the two pipelines."""
    return f"{pipeline}.once"


def split(module: Module, name: str) -> Split:
    """The two pipelines of a module, each as a module."""
    p = next(q for q in module.pipelines if q.name == name)
    numbers = once_nodes(p)
    border = frontier(p, numbers)
    if not border:
        return Split(None, _alone(module, p), {})
    made = {e.name: f"once.{e.name}" for e, _ in border}
    return Split(_alone(module, _first(p, numbers, [o for _, o in border])), _alone(module, _rest(p, set(numbers), made, [o for _, o in border])), made)


def _alone(module: Module, p: Pipeline) -> Module:
    """A module of one pipeline and what it calls."""
    kept = replace(module, items=tuple(i for i in module.items if not isinstance(i, Pipeline)) + (p,))
    called = reachable(kept)
    return replace(kept, items=tuple(i for i in kept.items if not isinstance(i, Operator) or i.name in called))


def params_alone(p: Pipeline) -> Pipeline:
    """The signature of a pipeline as far as parameters go: these inputs, and the conditions that they decide."""
    sizes = known_sizes(p)
    params = tuple(x for x in p.params if not isinstance(x, Operand) or x.param)
    return replace(p, name=once_name(p.name), params=params, where=tuple(w for w in p.where if names_in(w) <= sizes))


def _first(p: Pipeline, numbers: list[int], results: list[Operand]) -> Pipeline:
    origin = origins(p)
    nodes = []
    for n in numbers:
        node = p.nodes[n]
        assert isinstance(node, Node)
        nodes.append(_reading(node, origin))
    return replace(params_alone(p), results=tuple(results), nodes=tuple(nodes))


def _rest(p: Pipeline, once: set[int], made: dict[str, str], border: list[Operand]) -> Pipeline:
    origin = origins(p)
    gone = {e.name for n in once for e in _node(p, n).results}
    names = made | {a: made[o] for a, o in origin.items() if o in made}
    nodes: list[Node | Alias] = []
    for n, node in enumerate(p.nodes):
        if n in once:
            continue
        if isinstance(node, Node):
            nodes.append(_reading(node, names, gone))
        elif node.of.name in names:
            nodes.append(replace(node, of=Edge(names[node.of.name], span=node.of.span)))
        else:
            nodes.append(node)
    nodes += [Alias(Edge(r.name, span=r.span), Edge(made[r.name], span=r.span), span=r.span) for r in p.results if r.name in made]
    inputs = tuple(replace(o, name=made[o.name], param=True) for o in border)
    return replace(p, params=(*p.params, *inputs), nodes=tuple(nodes))


def _node(p: Pipeline, n: int) -> Node:
    node = p.nodes[n]
    assert isinstance(node, Node)
    return node


def _reading(node: Node, names: dict[str, str], gone: set[str] | None = None) -> Node:
    """A node with other names of what it reads; what is `gone` is not waited for."""
    args = tuple(Edge(names.get(e.name, e.name), span=e.span) for e in arguments(node))
    after = tuple(e for e in node.after if e.name not in (gone or ()))
    return replace(node, args=args, after=after, plan=None) if args != node.args or after != node.after or node.plan is not None else node
