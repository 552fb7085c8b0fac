"""One operator by itself: a pipeline of one of its nodes, for the sizes of one call, with the arrays that the node has there."""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pipelink_ir.ir.diagnostics import Report, internal_error
from pipelink_ir.ir.evaluate import evaluate_int
from pipelink_ir.ir.nodes import Edge, Expr, IntLit, Module, Node, Operand, Operator, Pipeline, TensorType
from pipelink_ir.ir.walk import substitute
from pipelink_ir.passes.manager import Step, run_passes
from pipelink_ir.passes.scheduling.tuned import edge_types
from pipelink_ir.runtime.runnable import Runnable, Settings
from pipelink_ir.runtime.targets import Target

NAME = "tune"
"""The pipelines that are made."""

Arrays = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Single:
    """A node by itself. `module` has its operator as it is before `schedule`; `arrays` are its operands."""

    module: Module
    op: str
    arrays: Arrays

    def with_operator(self, op: Operator) -> Module:
        """The module with another form of the operator."""
        return replace(self.module, items=tuple(op if isinstance(i, Operator) and i.name == self.op else i for i in self.module.items))

    @property
    def results(self) -> tuple[Operand, ...]:
        return self.module.pipelines[0].results


def planned(module: Module, steps: Sequence[Step], target: Target, name: str, settings: Settings) -> Runnable:
    """A module run through the passes from `schedule` on."""
    done = run_passes(module, steps, Report())
    pipeline = next(p for p in done.pipelines if p.name == name)
    return Runnable(done, pipeline, target, (), settings=replace(settings, copies="allow", check_values=False, deny=frozenset()))


def with_edges(module: Module, name: str) -> Module:
    """The module in which every value that a node reads is a result of the pipeline."""
    pipeline = next(p for p in module.pipelines if p.name == name)
    types = edge_types(pipeline)
    known = {o.name for o in (*pipeline.inputs, *pipeline.results)}
    read = dict.fromkeys(a.name for n in pipeline.nodes if isinstance(n, Node) for a in n.args if isinstance(a, Edge) and a.name not in known)
    more = tuple(Operand(e, types[e], span=pipeline.name_span) for e in read)
    wider = replace(pipeline, results=(*pipeline.results, *more))
    return replace(module, items=tuple(wider if i is pipeline else i for i in module.items))


def singles(module: Module, name: str, op: Operator, values: Arrays, sizes: Mapping[str, int]) -> Iterator[Single]:
    """One of the nodes that call an operator for each set of shapes; `values` are those of all edges."""
    pipeline = next(p for p in module.pipelines if p.name == name)
    types, seen = edge_types(pipeline), set()
    for node in pipeline.nodes:
        if not isinstance(node, Node) or node.op != op.name or not all(isinstance(a, Edge) for a in node.args):
            continue
        args = [a for a in node.args if isinstance(a, Edge)]
        shapes = tuple(tuple(values[a.name].shape) for a in args)
        if shapes not in seen:
            seen.add(shapes)
            yield _single(module, pipeline, node, op, args, types, values, sizes)


def _single(module: Module, pipeline: Pipeline, node: Node, op: Operator, args: Sequence[Edge], types: Mapping[str, TensorType], values: Arrays,
            sizes: Mapping[str, int]) -> Single:
    names: dict[str, Expr] = {n: IntLit(v) for n, v in sizes.items()}

    def fixed(t: TensorType) -> TensorType:
        return replace(t, dims=tuple(IntLit(evaluate_int(d, sizes)) for d in t.dims))

    inputs = tuple(Operand(a.name, fixed(types[a.name]), span=a.span) for a in dict.fromkeys(args))
    results = tuple(Operand(e.name, fixed(t), span=e.span) for e, t in zip(node.results, node.types, strict=True))
    attrs = tuple(replace(s, value=substitute(s.value, names)) if isinstance(s.value, Expr) else s for s in node.attrs)
    alone = replace(node, attrs=attrs, device=None, after=(), plan=None, reason=None, types=tuple(r.type for r in results))
    made = Pipeline(NAME, inputs, results, (alone,), span=pipeline.span, name_span=pipeline.name_span)
    items = [i for i in module.items if not isinstance(i, Operator | Pipeline)]
    return Single(replace(module, items=(*items, op, made)), op.name, {o.name: values[o.name] for o in inputs})


@dataclass(slots=True)
class Before:
    """Keeps the module as it is before `schedule`."""

    module: Module | None = None

    def __call__(self, step: Step, before: Module, after: Module | Exception | None) -> None:
        if step.name == "schedule" and after is None and self.module is None:
            self.module = before

    @property
    def found(self) -> Module:
        if self.module is None:
            internal_error("there was no pass 'schedule'")
        return self.module
