"""Small pipelines cut out of a large one: some nodes with what is around them, to be looked at by themselves.

Edges that come from outside become inputs, parameters where they depend on parameters alone; edges that somebody outside reads become results.
"""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from pipelink_ir.ir.nodes import Edge, Module, Node, Operand, Pipeline, TensorType
from pipelink_ir.passes.aliasing.once import once_nodes
from pipelink_ir.passes.aliasing.order import arguments, origins


@dataclass(slots=True)
class Web:
    """A pipeline as nodes and edges. Nodes are known by their numbers; second names are looked through."""

    pipeline: Pipeline
    nodes: dict[int, Node] = field(default_factory=dict)
    once: set[int] = field(default_factory=set)
    """Nodes that depend on parameters alone."""
    maker: dict[str, int] = field(default_factory=dict)
    readers: dict[str, list[int]] = field(default_factory=dict)
    args: dict[int, tuple[str, ...]] = field(default_factory=dict)
    types: dict[str, TensorType] = field(default_factory=dict)
    params: set[str] = field(default_factory=set)
    """Edges that depend on parameters alone."""
    outputs: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, p: Pipeline) -> Web:
        """The nodes and edges of a pipeline."""
        out, origin = cls(p), origins(p)
        out.once = set(once_nodes(p))
        out.types = {o.name: o.type for o in p.inputs}
        out.params = {o.name for o in p.inputs if o.param}
        out.outputs = {origin.get(r.name, r.name) for r in p.results}
        for k, n in enumerate(p.nodes):
            if not isinstance(n, Node):
                continue
            args = tuple(origin.get(e.name, e.name) for e in arguments(n))
            out.nodes[k], out.args[k] = n, args
            for e, t in zip(n.results, n.types, strict=True):
                out.maker[e.name], out.types[e.name] = k, t
            for a in dict.fromkeys(args):
                out.readers.setdefault(a, []).append(k)
            if k in out.once:
                out.params |= {e.name for e in n.results}
        return out

    def beside(self, k: int) -> set[int]:
        """The nodes that make what a node reads, and those that read what it makes or what it reads; none that depends on parameters alone."""
        out = {self.maker[a] for a in self.args[k] if a in self.maker}
        for e in (*(e.name for e in self.nodes[k].results), *(a for a in self.args[k] if a not in self.params)):
            out |= set(self.readers.get(e, ()))
        return out - self.once - {k}

    def around(self, some: Iterable[int], hops: int) -> set[int]:
        """Nodes and those up to so many edges away."""
        out = set(some)
        for _ in range(hops):
            out |= {m for k in out for m in self.beside(k)}
        return out

    def cut(self, some: Iterable[int]) -> Pipeline:
        """The pipeline of some nodes."""
        chosen = sorted(some)
        inside = set(chosen)
        made = {e.name for k in chosen for e in self.nodes[k].results}
        read = dict.fromkeys(a for k in chosen for a in self.args[k] if a not in made)
        inputs = tuple(Operand(a, self.types[a], a in self.params) for a in read)
        kept = [e for e in made if e in self.outputs or not inside.issuperset(self.readers.get(e, ())) or not self.readers.get(e)]
        nodes = tuple(replace(self.nodes[k], args=tuple(Edge(a) for a in self.args[k]), after=(), plan=None) for k in chosen)
        return replace(self.pipeline, params=(*inputs, *self.pipeline.attributes), results=tuple(Operand(e, self.types[e]) for e in sorted(kept)), nodes=nodes)


def with_pipeline(module: Module, p: Pipeline) -> Module:
    """A module with one pipeline alone, and all operators."""
    return replace(module, items=(*(i for i in module.items if not isinstance(i, Pipeline)), p))
