"""What a program asks of the arrays at its ends: the contracts of whoever reads an input, through second names and graph operators, and which results may
take over the memory of an input.

Worked out once, when a pipeline is compiled, from the module as it is before graph operators are laid out: their own contracts count too.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pipelink_ir.ir.contracts import setting, word
from pipelink_ir.ir.nodes import Alias, Edge, IntLit, Module, Node, Operator, Pack, Pipeline, Read, TensorType
from pipelink_ir.ir.source import Span
from pipelink_ir.ir.walk import deep

STRICTNESS = {"any": 0, "rows": 1, "dense": 2}


@dataclass(frozen=True, slots=True)
class Ask:
    """One thing that an operator asks of an operand: the word, who asks, and the line that says so."""

    word: str
    operator: str
    operand: str
    span: Span


@dataclass(slots=True)
class Demand:
    """What all readers of one input ask together: the strictest contiguity and alignment, and every layout."""

    contiguity: Ask | None = None
    align: Ask | None = None
    """Of arrays that are used where they are, on a GPU."""
    layouts: list[Ask] = field(default_factory=list)

    def add(self, op: Operator, operand: int) -> None:
        """What `op` asks of its operand of that number."""
        o = op.operands[operand]
        found = setting(op, "memory", "contiguity", o.name)
        asked = word(found.setting.value) if found else None
        if found and asked in STRICTNESS and STRICTNESS[asked] > STRICTNESS[self.contiguity.word if self.contiguity else "any"]:
            self.contiguity = Ask(asked, op.name, o.name, found.setting.span)
        found = setting(op, "memory", "align", o.name)
        if found and isinstance(found.setting.value, IntLit) and found.setting.value.value > (int(self.align.word) if self.align else 1):
            self.align = Ask(str(found.setting.value.value), op.name, o.name, found.setting.span)
        if o.type.layout is not None:
            self.layouts.append(Ask(o.type.layout, op.name, o.name, o.span))


class Reads:
    """Who reads what, through second names and graph operators. Each graph is looked at once."""

    def __init__(self, operators: Mapping[str, Operator]) -> None:
        self.operators = operators
        self._inside: dict[str, dict[str, dict[tuple[str, int], None]]] = {}

    def of(self, nodes: tuple[Node | Alias, ...], inputs: Iterable[str]) -> dict[str, dict[tuple[str, int], None]]:
        """For each of these names (operator, number of its operand) of every read, each once, in order."""
        names = {name: name for name in inputs}
        out: dict[str, dict[tuple[str, int], None]] = {name: {} for name in names}
        for n in nodes:
            if isinstance(n, Alias):
                if n.of.name in names:
                    names[n.name.name] = names[n.of.name]
                continue
            op = self.operators.get(n.op)
            for number, arg in enumerate(n.args if op is not None else ()):
                for edge in (arg.items if isinstance(arg, Pack) else (arg,)):
                    if op is not None and edge.name in names and number < len(op.operands):
                        out[names[edge.name]] |= {(op.name, number): None} | self._graph(op).get(op.operands[number].name, {})
        return out

    def _graph(self, op: Operator) -> dict[str, dict[tuple[str, int], None]]:
        if op.graph is None:
            return {}
        if op.name not in self._inside:
            self._inside[op.name] = {}  # an unchecked program may call in circles
            self._inside[op.name] = self.of(op.graph.nodes, [o.name for o in op.operands])
        return self._inside[op.name]


def demands(module: Module, pipeline: Pipeline) -> dict[str, Demand]:
    """What is asked of each input."""
    operators = {o.name: o for o in module.operators}
    out = {o.name: Demand() for o in pipeline.inputs}
    with deep():
        found = Reads(operators).of(pipeline.nodes, out)
    for name, reads in found.items():
        for op, number in reads:
            out[name].add(operators[op], number)
    return out


def in_place(module: Module, pipeline: Pipeline) -> dict[str, frozenset[str]]:
    """For each result the inputs whose memory it may take over: it is made by an operator that says `%y { inplace = %x }` of an operand that is the input."""
    operators = {o.name: o for o in module.operators}
    alias = {n.name.name: n.of.name for n in pipeline.nodes if isinstance(n, Alias)}

    def origin(name: str) -> str:
        while name in alias:
            name = alias[name]
        return name

    inputs = {o.name for o in pipeline.inputs}
    allowed: dict[str, set[str]] = {}
    for n in pipeline.nodes:
        op = operators.get(n.op) if isinstance(n, Node) else None
        if op is None or not isinstance(n, Node):
            continue
        arguments = dict(zip((o.name for o in op.operands), n.args, strict=False))
        for edge, result in zip(n.results, op.results, strict=False):
            found = setting(op, "memory", "inplace", result.name)
            taken = arguments.get(found.setting.value.tensor) if found and found.scoped and isinstance(found.setting.value, Read) else None
            if isinstance(taken, Edge) and origin(taken.name) in inputs:
                allowed.setdefault(edge.name, set()).add(origin(taken.name))
    return {r.name: frozenset(allowed.get(origin(r.name), ())) for r in pipeline.results}


def computed(pipeline: Pipeline) -> tuple[tuple[str, TensorType, Span], ...]:
    """Name, type and place of what a pipeline computes: one of each shape, in its symbols, leaving out what is always small or as large as an input."""
    given = {o.type.dims for o in pipeline.inputs}
    found: dict[tuple[object, ...], tuple[str, TensorType, Span]] = {}
    for node in pipeline.nodes:
        if isinstance(node, Node):
            for edge, type in zip(node.results, node.types, strict=False):
                if type.dims not in given:
                    found.setdefault((type.dims, type.dtype), (edge.name, type, edge.span))
    return tuple(found.values())
