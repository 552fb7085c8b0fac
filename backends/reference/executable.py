"""A pipeline run by the reference backend: any module after `infer-types`, node after node in the order written, graph operators entered.

Edges hold values in compute types that have been rounded to the dtype of the edge. With `float64` an edge of f32 is not rounded, narrower ones are; what
comes out is rounded once, at the end.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from pipelink_ir.backends.reference.frame import Array
from pipelink_ir.backends.reference.interpreter import Interpreter, evaluate_scalar
from pipelink_ir.grammar.printer import print_module
from pipelink_ir.ir import scalar
from pipelink_ir.ir.diagnostics import Diagnostic, ExecutionError, ProgramError, Report, internal_error
from pipelink_ir.ir.dtypes import BOOL, DTYPES, F32, F64, I64, DType
from pipelink_ir.ir.nodes import Alias, Attribute, Edge, Expr, Module, Node, Operand, Operator, Pipeline
from pipelink_ir.ir.shapes import ArgumentMismatch, bind_shapes
from pipelink_ir.ir.source import Span
from pipelink_ir.ir.typed import TypedOperator
from pipelink_ir.ir.walk import deep, walk


def load(module: Module, pipeline: str, *, float64: bool = False) -> ReferenceExecutable:
    """A pipeline of a module after `infer-types`, ready to run. `float64` computes every float in float64."""
    from pipelink_ir.passes.infer.operator import typed_operator
    return ReferenceExecutable(module, pipeline, typed_operator, float64)


@dataclass(slots=True)
class _Scope:
    """What expressions of a pipeline or a graph may name, and what its edges hold."""

    dims: dict[str, int] = field(default_factory=dict)
    scalars: dict[str, Array] = field(default_factory=dict)
    dtypes: dict[str, DType] = field(default_factory=dict)
    edges: dict[str, Array] = field(default_factory=dict)


class ReferenceExecutable:
    """Implements `backends.interface.Executable`. `typed` gives the typed form of a compute operator."""

    interpreter: ClassVar[type[Interpreter]] = Interpreter
    """What interprets an operator: tests put one in that computes with intervals."""

    def __init__(self, module: Module, pipeline: str, typed: Callable[[Operator], TypedOperator], float64: bool = False) -> None:
        found = next((p for p in module.pipelines if p.name == pipeline), None)
        if found is None:
            internal_error(f"there is no pipeline '@{pipeline}'")
        self.pipeline: Pipeline = found
        self.artifacts: dict[str, str | bytes] = {"plir": print_module(module)}
        self.float64 = float64
        self._operators = {o.name: o for o in module.operators}
        self._typed = typed
        self._check(self.pipeline.nodes, set())

    def __call__(self, arrays: Mapping[str, Any]) -> dict[str, Array]:
        """Run on arrays by input name, and values of the pipeline's attributes by theirs. Results are fresh arrays of the signature's dtypes."""
        values = self.evaluate(arrays)
        results: dict[str, Array] = {}
        for r in self.pipeline.results:
            dtype = DTYPES[r.type.dtype]
            results[r.name] = scalar.array_to_storage(values[r.name], dtype, self._held(dtype))
        return results

    def evaluate(self, arrays: Mapping[str, Any]) -> dict[str, Array]:
        """Results in compute types, before they are rounded to be stored: with `float64` those of f32 are float64."""
        scope = self._bind(arrays)
        self._run(self.pipeline.nodes, self.pipeline.results, scope)
        return {r.name: scope.edges[r.name] for r in self.pipeline.results}

    # ------------------------------------------------------------------------------------------------------------- binding

    def _bind(self, arrays: Mapping[str, Any]) -> _Scope:
        """Symbols from shapes, attributes from the call or their defaults, `where` checked."""
        scope = _Scope()
        p = self.pipeline
        for i in p.inputs:
            if i.name not in arrays:
                raise ExecutionError([Diagnostic("PL6001", "error", f"there is no array for '%{i.name}'", i.span)])
            scope.edges[i.name] = self._widened(scalar.array_from_storage(arrays[i.name], DTYPES[i.type.dtype]))
        self._bind_attributes(p.attributes, {}, {a.name: arrays[a.name] for a in p.attributes if a.name in arrays}, scope, scope)
        _bind_dims(p.inputs, [scope.edges[i.name].shape for i in p.inputs], scope.dims, "PL6001")
        self._bind_attributes(p.attributes, {a.name: a.default for a in p.attributes if a.default is not None and a.name not in arrays}, {}, scope, scope)
        for condition in p.where:
            if not self._scalar(condition, BOOL, scope):
                message = f"'@{p.name}' asks for this condition, which does not hold{_values(condition, scope)}"
                raise ExecutionError([Diagnostic("PL6001", "error", message, condition.span)])
        return scope

    def _bind_attributes(self, attributes: Sequence[Attribute], given: Mapping[str, Expr], known: Mapping[str, Any], outer: _Scope, scope: _Scope) -> None:
        """Attributes of `scope` from expressions over `outer`, or from values."""
        for a in attributes:
            if a.type in ("word", "dtype") or (a.name not in given and a.name not in known):
                continue
            dtype = I64 if a.type == "dim" else DTYPES[a.type]
            value = self._scalar(given[a.name], dtype, outer) if a.name in given else scalar.array_from_storage(known[a.name], dtype)
            if a.type == "dim":
                scope.dims[a.name] = int(value)
            else:
                scope.scalars[a.name], scope.dtypes[a.name] = value, dtype

    def _scalar(self, e: Expr, dtype: DType, scope: _Scope) -> Array:
        """The value of an expression over dimensions and attributes as `dtype`."""
        typed = _type_scalar(e, dtype, scope)
        assert typed.dtype is not None
        value = evaluate_scalar(typed, scope.dims, scope.scalars, wide=self.float64)
        return scalar.cast(value, self._held(dtype) if dtype is F32 else dtype, self._held(typed.dtype))

    def _held(self, dtype: DType) -> DType:
        """The type in which values of a dtype are held."""
        return F64 if self.float64 and dtype.compute is F32 else dtype.compute

    def _widened(self, a: Array) -> Array:
        return a.astype(np.float64) if self.float64 and a.dtype == np.float32 else a

    # --------------------------------------------------------------------------------------------------------------- nodes

    def _check(self, nodes: Sequence[Node | Alias], seen: set[str]) -> None:
        """Every operator can be interpreted; a kernel without a meaning cannot."""
        for n in nodes:
            if isinstance(n, Alias) or n.op in seen:
                continue
            seen.add(n.op)
            op = self._operator(n)
            if op.graph is not None:
                self._check(op.graph.nodes, seen)
            elif op.compute is None:
                raise ProgramError([Diagnostic("PL9001", "error", f"'@{op.name}' is a kernel without a 'compute', so it cannot run here", n.op_span,
                                               help="write its meaning as 'compute { … }' beside the kernel")])

    def _operator(self, node: Node) -> Operator:
        op = self._operators.get(node.op)
        if op is None:
            internal_error(f"there is no operator '@{node.op}'")
        return op

    def _run(self, nodes: Sequence[Node | Alias], results: Sequence[Operand], scope: _Scope) -> None:
        """Run the nodes; an edge that nobody reads any more is dropped."""
        last = {name: k for k, n in enumerate(nodes) for name in _reads(n)} | dict.fromkeys((r.name for r in results), len(nodes))
        for k, n in enumerate(nodes):
            if isinstance(n, Alias):
                scope.edges[n.name.name] = scope.edges[n.of.name]
            else:
                op = self._operator(n)
                values = self._call(n, op, [self._argument(a, n, scope) for a in n.args], scope)
                scope.edges.update(zip((r.name for r in n.results), (values[r.name] for r in op.results), strict=True))
            for name in _reads(n):
                if last[name] == k:
                    scope.edges.pop(name, None)

    def _argument(self, argument: object, node: Node, scope: _Scope) -> Array:
        if not isinstance(argument, Edge):
            internal_error(f"'@{node.op}' still has an argument made of several edges")
        return scope.edges[argument.name]

    def _call(self, node: Node, op: Operator, args: Sequence[Array], outer: _Scope) -> dict[str, Array]:
        """One node: its results by the operator's names for them."""
        inner = _Scope(edges={o.name: a for o, a in zip(op.operands, args, strict=True)})
        given = {s.key: s.value for s in node.attrs if isinstance(s.value, Expr)}
        self._bind_attributes(op.attributes, given, {}, outer, inner)
        _bind_dims(op.operands, [a.shape for a in args], inner.dims, "PL6101", node.op_span)
        self._bind_attributes(op.attributes, {a.name: a.default for a in op.attributes if a.default is not None and a.name not in given}, {}, inner, inner)
        if op.graph is None:
            return self.interpreter(self._typed(op), inner.dims, inner.scalars, inner.edges, self.float64).run()
        self._run(op.graph.nodes, op.results, inner)
        return inner.edges


def _reads(node: Node | Alias) -> list[str]:
    """The edges that a node reads."""
    return [node.of.name] if isinstance(node, Alias) else [a.name for a in node.args if isinstance(a, Edge)]


def _bind_dims(operands: Sequence[Operand], shapes: Sequence[Sequence[int]], dims: dict[str, int], code: str, span: Span | None = None) -> None:
    try:
        bind_shapes([(o.type, s) for o, s in zip(operands, shapes, strict=True)], dims)
    except ArgumentMismatch as fault:
        at = operands[fault.argument]
        message = f"'%{at.name}' has the shape {list(shapes[fault.argument])}: {fault.message}"
        raise ExecutionError([Diagnostic(code, "error", message, span or at.span)]) from None


def _type_scalar(e: Expr, dtype: DType, scope: _Scope) -> Expr:
    """The expression with types, in the compute type of `dtype` where it is untyped as yet."""
    if all(n.dtype is not None for n in walk(e)):
        return e
    from pipelink_ir.passes.infer.expressions import Scope, coerce, type_expr
    report = Report()
    names = Scope(tensors={}, dims=dict.fromkeys(scope.dims, e.span), scalars=scope.dtypes, lets={}, report=report)
    with deep():
        typed = coerce(type_expr(e, names), dtype.compute, names)
    report.stop_if_failed()
    return typed


def _values(condition: Expr, scope: _Scope) -> str:
    """The names in a condition with their values, as messages show them."""
    from pipelink_ir.ir.walk import names_in
    known: dict[str, Any] = {**scope.dims, **{n: v[()] for n, v in scope.scalars.items()}}
    text = ", ".join(f"{n} = {known[n]}" for n in sorted(names_in(condition)) if n in known)
    return f": {text}" if text else ""
