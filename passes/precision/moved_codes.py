"""Codes through operators that only choose among values: quantising before or after a choice gives the same codes, so max-pooling, transposition, joining and
cutting out between coded edges work on codes, which are smaller, and need no scale.

    %p = @maxpool(%h)                            %h.q = @quantize_i8.1(%h)
    %p.q = @quantize_i8.1(%p)         becomes    %p.q = @maxpool_i8.1(%h.q)
    %y = @linear_i8.1(%p.q, …)                   %y   = @linear_i8.1(%p.q, …)

That is done where everybody who reads the result reads it as the same codes. Of one operand the result takes over codes that are made of it anyway; several
operands are coded as the result is. Elementwise choices (relu) stay as they are: they are computed where their operand is made. Kernels of users are called
with codes if their contract admits the dtype.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.nodes import Cast, Edge, Expr, FloatLit, IntLit, Let, Node, Operator, Pipeline
from pipelink_ir.passes.aliasing.order import arguments, origins
from pipelink_ir.passes.infer.text import written
from pipelink_ir.passes.precision.codes import Codes
from pipelink_ir.passes.precision.edges import Line, Operators, form_name, place, reasons
from pipelink_ir.passes.precision.floats import with_clause
from pipelink_ir.passes.precision.insert import coded
from pipelink_ir.passes.precision.own_kernels import takes_codes
from pipelink_ir.passes.precision.plans import Plan, elementwise
from pipelink_ir.passes.precision.policy import Policy
from pipelink_ir.passes.precision.selecting import on_codes, selects


@dataclass(frozen=True, slots=True)
class Chosen:
    """A node that works on codes of its operands."""

    codes: Codes
    op: Operator


@dataclass(slots=True)
class Pushing:
    """Which nodes of a pipeline work on codes, given which are lowered."""

    p: Pipeline
    operators: Operators
    plans: dict[str, Plan]
    """Of the nodes that are lowered; codes are changed to those that are there already."""
    suits: dict[str, bool]
    """Operators that were looked at, and whether they choose."""
    origin: dict[str, str] = field(default_factory=dict)
    readers: dict[str, list[Node]] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)
    """Edges that somebody needs as they are: the caller, or who waits."""
    found: dict[str, Chosen] = field(default_factory=dict)

    def run(self) -> dict[str, Chosen]:
        """The nodes, by their results."""
        nodes = [n for n in self.p.nodes if isinstance(n, Node)]
        mine = [n for n in nodes if len(n.results) == 1 and self._suits(n.op)]
        if not mine or not any(plan.codes for plan in self.plans.values()):
            return {}
        self.origin = origins(self.p)
        for n in nodes:
            for e in dict.fromkeys(map(self._first, arguments(n))):
                self.readers.setdefault(e, []).append(n)
            self.kept |= {self._first(e) for e in n.after}
        self.kept |= {self.origin.get(r.name, r.name) for r in self.p.results}
        for n in reversed(mine):
            self._look(n)
        for group in self._groups([n for n in mine if n.results[0].name in self.found]):
            self._take_over(group)
        return self.found

    def _first(self, e: Edge) -> str:
        return self.origin.get(e.name, e.name)

    def _suits(self, name: str) -> bool:
        if name not in self.suits:
            op = self.operators.known[name]
            self.suits[name] = selects(op) and (op.kernel is not None or not elementwise(op))
        return self.suits[name]

    def _look(self, n: Node) -> None:
        """Whether everybody reads the result of a node as the same codes, and the node can work on such."""
        edge = n.results[0].name
        readers = self.readers.get(edge, [])
        if edge in self.kept or not readers or n.plan is not None or n.results[0].name in self.plans:
            return
        asked = [self._asked(r, edge, n) for r in readers]
        codes = asked[0]
        if codes is None or any(c != codes for c in asked) or codes.param or codes.axis is not None or codes.order:
            return
        floats = self._floats(n)
        if isinstance(codes.scale, str) and len(floats) > 1:
            return
        made = self._made(n.op, floats, codes)
        if isinstance(made, Operator) and takes_codes(self.operators.known[n.op], codes.dtype):
            self.found[edge] = Chosen(codes, made)

    def _made(self, name: str, floats: list[str], codes: Codes) -> Operator | str:
        op = self.operators.known[name]
        return self.operators.get(("on codes", name, codes), form_name(name, codes.dtype),
                                  lambda new: with_policies_off(on_codes(op, dict.fromkeys(floats, codes), new)))

    def _asked(self, reader: Node, edge: str, maker: Node) -> Codes | None:
        """The codes as which a node reads an edge; None if it reads the values."""
        if place(reader.device) != place(maker.device):
            return None
        name = reader.results[0].name
        if name in self.found and len(reader.results) == 1:
            return self.found[name].codes
        plan = self.plans.get(name)
        if plan is None:
            return None
        operands = [o.name for o, e in zip(self.operators.known[reader.op].operands, arguments(reader), strict=True) if self._first(e) == edge]
        codes = {plan.codes.get(o) for o in operands}
        return codes.pop() if len(codes) == 1 else None

    def _groups(self, nodes: list[Node]) -> list[list[Node]]:
        """The nodes that hand codes on to each other, and so have the same."""
        of: dict[str, list[Node]] = {}
        for n in nodes:
            first, *others = _each_once(g for o in self._floats(n) if (g := of.get(self._source(n, o))) is not None) or [[]]
            for other in (*others, [n]):
                first += other
                of |= {m.results[0].name: first for m in other}
        return _each_once(of.values())

    def _floats(self, n: Node) -> list[str]:
        return [o.name for o in self.operators.known[n.op].operands if DTYPES[o.type.dtype].is_float]

    def _source(self, n: Node, operand: str) -> str:
        return next(self._first(e) for o, e in zip(self.operators.known[n.op].operands, arguments(n), strict=True) if o.name == operand)

    def _take_over(self, group: list[Node]) -> None:
        """Let nodes that choose from one edge have the codes that it has anyway."""
        if any(len(self._floats(n)) != 1 for n in group):
            return
        made = {n.results[0].name for n in group}
        (source, *more) = dict.fromkeys(s for n in group if (s := self._source(n, self._floats(n)[0])) not in made)
        codes = self.found[group[0].results[0].name].codes
        others = {c for r in self.readers[source] if r not in group and (c := self._asked(r, source, group[0])) is not None}
        other = next(iter(others)) if len(others) == 1 else codes
        if more or other == codes or other.dtype != codes.dtype or isinstance(codes.scale, str) or isinstance(other.scale, str) or other.axis is not None \
                or other.order:
            return
        forms = {n.results[0].name: self._made(n.op, self._floats(n), other) for n in group}
        chosen = {name: Chosen(other, op) for name, op in forms.items() if isinstance(op, Operator)}
        if len(chosen) < len(group):
            return
        self.found |= chosen
        for n in group:
            for r in self.readers[n.results[0].name]:
                self._reads(r, n.results[0].name, other)

    def _reads(self, reader: Node, edge: str, codes: Codes) -> None:
        """Let a lowered node read an edge as other codes."""
        plan = self.plans.get(reader.results[0].name)
        if plan is not None:
            operands = {o.name for o, e in zip(self.operators.known[reader.op].operands, arguments(reader), strict=True) if self._first(e) == edge}
            self.plans[reader.results[0].name] = replace(plan, codes={o: codes if o in operands else c for o, c in plan.codes.items()})


def _each_once(groups: Iterable[list[Node]]) -> list[list[Node]]:
    return list({id(g): g for g in groups}.values())


def with_policies_off(made: Operator | str) -> Operator | str:
    return made if isinstance(made, str) else with_clause(made, Policy())


def put_chosen(line: Line, n: Node, chosen: Chosen, arch: str) -> None:
    """A node that works on codes."""
    edge, codes = n.results[0], chosen.codes
    op = line.operators.known[n.op]
    args: list[Edge] = []
    for o, e in zip(op.operands, arguments(n), strict=True):
        if not DTYPES[o.type.dtype].is_float:
            args.append(e)
            continue
        made = coded(line, e.name, codes, n, f": '@{written(n.op)}' only chooses among values, and what it makes is read as codes on {arch}")
        args.append(Edge(made.codes, span=e.span))
        plain = replace(codes, order=(), packed=None)
        for kind, name in (("scale", made.scale), ("zero", made.zero)):
            if name is not None:
                line.remember(edge.name, (kind, plain), n.device, name)
    result = Edge(line.fresh(f"{edge.name}.q"), span=edge.span)
    line.types[edge.name] = n.types[0]
    line.coded_only.add(edge.name)
    types = (replace(n.types[0], dtype=codes.stored),)
    line.keep(replace(n, op=chosen.op.name, args=tuple(args), results=(result,), types=types,
                      reason=reasons(n.reason, f"lowered: '@{written(n.op)}' only chooses among values, so it works on codes")))
    line.remember(edge.name, ("codes", codes), n.device, result.name)


def given_codes(op: Operator) -> Codes | None:
    """The codes that the operand of a `@std.dequantize` is, if scale and zero point are numbers."""
    if written(op.name) != "std.dequantize" or op.compute is None or op.attributes or len(op.operands) != 1 or not op.operands[0].type.dtype.endswith("8"):
        return None

    def number(e: Expr) -> float | int | None:
        e = e.arg if isinstance(e, Cast) else e
        return e.value if isinstance(e, IntLit | FloatLit) else None
    lets: Mapping[str, float | int | None] = {i.name: number(i.value) for i in op.compute.body if isinstance(i, Let)}
    scale, zero = lets.get("scale"), lets.get("zero", 0)
    if scale is None or not isinstance(zero, int):
        return None
    return Codes(op.operands[0].type.dtype, float(scale), zero)
