"""What a call with given shapes needs, on any device: sizes, one arena for everything that lives between nodes, and the steps with their frames.

Shapes alone decide a plan, so it is made once for them. What changes from call to call are addresses: of inputs, of results, of the arena. Where edges lie is
what the text of the plan says (`memory.py`); without one they are packed here.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from pipelink_ir.backends.loops.form import Buffer, Kernel, Program, evaluate
from pipelink_ir.backends.memory import Arenas
from pipelink_ir.backends.scalars import Number, attribute_value, slot_bits
from pipelink_ir.ir.diagnostics import ExecutionError, Report, internal_error
from pipelink_ir.ir.dtypes import DTYPES, DType
from pipelink_ir.ir.evaluate import CannotEvaluate, evaluate_condition, evaluate_int
from pipelink_ir.ir.nodes import Alias, Edge, Expr, Node, Operator, Pipeline, Setting
from pipelink_ir.ir.shapes import ShapeMismatch, bind_shapes
from pipelink_ir.passes.aliasing.layout import Layout
from pipelink_ir.passes.aliasing.report import Memory


class Unit(Protocol):
    """An operator as kernels, as far as planning looks at it."""

    @property
    def op(self) -> Operator: ...

    @property
    def program(self) -> Program: ...


U = TypeVar("U", bound=Unit)


@dataclass(frozen=True, slots=True)
class Patch:
    """Word `word` of the frames is the address of input, result or arena (`kind`) number `number`, plus `offset`."""

    word: int
    kind: str
    number: int
    offset: int


@dataclass(frozen=True, slots=True)
class Step:
    """One kernel of one node, and where its frame begins. `sizes` are the values of its symbols."""

    node: int
    op: str
    kernel: int
    frame: int
    sizes: Mapping[str, int]


@dataclass(slots=True)
class Plan:
    """Everything that shapes decide. `results` are shape and dtype; `copies` say which result is a copy of an input or of another result."""

    words: list[int] = field(default_factory=list)
    patches: list[Patch] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    results: list[tuple[tuple[int, ...], DType]] = field(default_factory=list)
    copies: list[tuple[str, int, int]] = field(default_factory=list)
    arena: int = 0
    align: int = 1
    """What the arena begins at a multiple of."""
    memory: Memory = field(default_factory=lambda: Memory((), {}))
    """Who lies where in the arena."""
    sizes: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Value:
    """An edge: shape, dtype, and where it lives: in an input, a result, or a stretch of the arena, `offset` bytes behind its beginning."""

    shape: tuple[int, ...]
    dtype: DType
    kind: str
    number: int
    offset: int = 0

    @property
    def bytes(self) -> int:
        size = self.dtype.bytes
        for extent in self.shape:
            size *= extent
        return size


class Planner(Generic[U]):
    """Makes the plan of one pipeline for one set of shapes. A frame holds, a word each, what a kernel is called with: the addresses of its buffers, its
    symbols, its scalars (see `scalars.slot_bits`), the address of the status block."""

    def __init__(self, pipeline: Pipeline, units: Mapping[str, U], layout: Layout | None = None) -> None:
        self.pipeline, self.units = pipeline, units
        self.layout = layout or Layout.of(pipeline, "", {name: u.op for name, u in units.items()})
        self.plan = Plan()
        self.env: dict[str, int | float | bool] = {}
        self.edges: dict[str, _Value] = {}
        self.arenas = Arenas(pipeline, self.layout)
        self.users: dict[tuple[str, str], tuple[int, int]] = {}

    def run(self, shapes: Sequence[tuple[int, ...]]) -> Plan:
        self._bind(shapes)
        for number, node in enumerate(self.pipeline.nodes):
            if isinstance(node, Alias):
                self.edges[node.name.name] = self.edges[node.of.name]
            else:
                self._node(number, node)
        placed = self.arenas.place()
        plan = self.plan
        plan.arena, plan.align, plan.memory = placed.bytes, placed.align, placed.memory
        plan.patches = [Patch(p.word, p.kind, 0, placed.offsets[p.number] + p.offset) if p.kind == "arena" else p for p in plan.patches]
        self._finish_results()
        return plan

    # -------------------------------------------------------------------------------------------------------- sizes and conditions

    def _bind(self, shapes: Sequence[tuple[int, ...]]) -> None:
        env, inputs = self.plan.sizes, self.pipeline.inputs
        try:
            bind_shapes([(o.type, s) for o, s in zip(inputs, shapes, strict=True)], env)
        except ShapeMismatch as fault:
            operand = inputs[getattr(fault, "argument", 0)]
            report = Report()
            report.error("input", operand.span, f"'%{operand.name}' does not match its array: {fault.message}")
            raise ExecutionError(report.diagnostics) from None
        for n, (operand, shape) in enumerate(zip(inputs, shapes, strict=True)):
            self.edges[operand.name] = _Value(tuple(shape), DTYPES[operand.type.dtype], "input", n)
        self._check_where()

    def _check_where(self) -> None:
        env: dict[str, int | float | bool] = {**self.plan.sizes}
        for attribute in self.pipeline.attributes:
            if attribute.default is not None and attribute.type in ("dim", *DTYPES):
                value = attribute_value(attribute.default, env, None if attribute.type == "dim" else DTYPES[attribute.type])
                env[attribute.name] = value
                if attribute.type == "dim":
                    self.plan.sizes[attribute.name] = int(value)
        self.env = env
        report = Report()
        for condition in self.pipeline.where:
            try:
                holds = evaluate_condition(condition, env)
            except CannotEvaluate:
                holds = True   # words and dtypes were decided when the program was compiled
            if not holds:
                sizes = ", ".join(f"{k} = {v}" for k, v in self.plan.sizes.items())
                report.error("input", condition.span, f"'@{self.pipeline.name}' asks for this condition, which does not hold for {sizes or 'this call'}")
        if report.failed:
            raise ExecutionError(report.diagnostics)

    # ------------------------------------------------------------------------------------------------------------------------ results

    def _finish_results(self) -> None:
        for n, result in enumerate(self.pipeline.results):
            value = self.edges.get(result.name)
            if value is None:
                internal_error(f"the result '%{result.name}' of '@{self.pipeline.name}' is not computed")
            self.plan.results.append((value.shape, value.dtype))
            if value.kind == "input" or value.number != n:
                self.plan.copies.append((value.kind, value.number, n))

    # ------------------------------------------------------------------------------------------------------------------------ nodes

    def _node(self, number: int, node: Node) -> None:
        unit = self.units[node.op]
        program = unit.program
        values = [self.edges[e] for e in edges_of(node)]
        env = self._operator_sizes(unit.op, node, values)
        places: dict[str, _Value] = {b.name: v for b, v in zip(program.operands, values, strict=True)}
        for buffer, edge in zip(program.results, node.results, strict=True):
            self.edges[edge.name] = places[buffer.name] = self._edge(edge.name, _shape(buffer, env), buffer.memory)
        if number in self.layout.elided:
            return
        for buffer in program.temporaries:
            value = places[buffer.name] = _Value(_shape(buffer, env), buffer.memory, "arena", 0)
            value.number = self.arenas.temporary(number, f"%{buffer.name} of '@{node.op}'", value.bytes, self._users(unit, buffer.name))
        scalars = self._scalars(unit, node, env)
        for k, kernel in enumerate(program.kernels):
            self._frame(number, unit.op.name, k, kernel, places, env, scalars)

    def _users(self, unit: U, buffer: str) -> tuple[int, int]:
        """The first and the last kernel of an operator that use a temporary."""
        key = unit.op.name, buffer
        if key not in self.users:
            found = [k for k, kernel in enumerate(unit.program.kernels) if any(b.name == buffer for b in kernel.buffers)]
            self.users[key] = (found[0], found[-1]) if found else (0, max(0, len(unit.program.kernels) - 1))
        return self.users[key]

    def _edge(self, name: str, shape: tuple[int, ...], dtype: DType) -> _Value:
        """An edge in the place that the plan gives it."""
        spot = self.layout.spots[name]
        root = self.layout.roots[spot.root]
        value = _Value(shape, dtype, "result", root.result or 0, sum(evaluate_int(o, self.plan.sizes) for o in spot.offsets))
        if root.result is None:
            value.kind, value.number = "arena", self.arenas.edge(name, root, value.offset, value.bytes)
        return value

    def _frame(self, number: int, op: str, k: int, kernel: Kernel, places: Mapping[str, _Value], env: dict[str, int], scalars: dict[str, int]) -> None:
        frame = len(self.plan.words)
        for n, buffer in enumerate(kernel.buffers):
            place = places[buffer.name]
            self.plan.patches.append(Patch(frame + n, place.kind, place.number, place.offset))
            self.plan.words.append(0)
        self.plan.words += [env[s] for s in kernel.symbols]
        self.plan.words += [scalars[name] for name, _ in kernel.scalars]
        self.plan.patches.append(Patch(len(self.plan.words), "status", 0, 0))
        self.plan.words.append(0)
        self.plan.steps.append(Step(number, op, k, frame, env))

    def _operator_sizes(self, op: Operator, node: Node, values: Sequence[_Value]) -> dict[str, int]:
        """The operator's own dimensions: from its operands, and from `dim` attributes."""
        env: dict[str, int] = {}
        given = {s.key: s for s in node.attrs}
        for attribute in op.attributes:
            expr = _attribute(attribute.name, given, attribute.default)
            if attribute.type == "dim" and expr is not None:
                env[attribute.name] = int(attribute_value(expr, self.env if attribute.name in given else env, None))
        try:
            bind_shapes([(o.type, v.shape) for o, v in zip(op.operands, values, strict=True)], env)
        except ShapeMismatch as fault:
            internal_error(f"'@{op.name}' at {node.span}: {fault.message}, which inference should have found")
        return env

    def _scalars(self, unit: U, node: Node, env: dict[str, int]) -> dict[str, int]:
        """The attributes that are run-time parameters, as words of a frame."""
        values = self.attribute_values(unit, node, env)
        return {name: slot_bits(values[name], dtype) for name, dtype in unit.program.scalars}

    def attribute_values(self, unit: U, node: Node, env: Mapping[str, int]) -> dict[str, Number]:
        """The values of the attributes that are run-time parameters, at a node whose operator has the sizes `env`."""
        out: dict[str, Number] = {}
        given = {s.key: s for s in node.attrs}
        defaults = {a.name: a.default for a in unit.op.attributes}
        for name, dtype in unit.program.scalars:
            expr = _attribute(name, given, defaults.get(name))
            if expr is None:
                internal_error(f"'@{unit.op.name}' has no value for its attribute '{name}'")
            out[name] = attribute_value(expr, self.env if name in given else env, dtype)
        return out


def _attribute(name: str, given: Mapping[str, Setting], default: Expr | None) -> Expr | None:
    value = given[name].value if name in given else default
    if value is not None and not isinstance(value, Expr):
        internal_error(f"the attribute '{name}' is no expression")
    return value


def memory_statistics(plan: Plan) -> dict[str, int | str]:
    """What a plan's arena holds, for people."""
    memory = plan.memory
    return {"buffers": len(memory.stretches), "arena bytes": memory.peak, "lower bound bytes": memory.lower_bound, "of lower bound": f"{memory.ratio:.3f}"}


def shared_buffers(program: Program, over: Iterable[tuple[int, int]] | None) -> dict[str, str]:
    """The operands and results of a program that may lie in one place, each with a name for the place; `over` has result and operand by number."""
    out: dict[str, str] = {}
    for r, o in sorted(over or ()):
        names = program.results[r].name, program.operands[o].name
        known = [out[n] for n in names if n in out]
        place = known[0] if known else names[0]
        out.update(dict.fromkeys(names, place))
        out.update({n: place for n, p in out.items() if p in known})
    return out


def edges_of(node: Node) -> list[str]:
    """The edges that a node reads, one for each operand: packed arguments are gone by now."""
    out = []
    for arg in node.args:
        if not isinstance(arg, Edge):
            internal_error(f"a packed argument of '@{node.op}' has come as far as the backend")
        out.append(arg.name)
    return out


def _shape(buffer: Buffer, env: dict[str, int]) -> tuple[int, ...]:
    return tuple(max(0, evaluate(d, env)) for d in buffer.shape)
