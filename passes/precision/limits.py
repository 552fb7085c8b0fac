"""Values that the dtype of a policy cannot hold: above its largest number they would be infinite, or NaN in f8e4m3; below half of its smallest one all would
be 0.

What values there are say the contract of the operator, that of the operator that makes an edge (its promise, or what its definition attains), and what
calibration has seen. Codes have a scale, and no such limits.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from pipelink_ir.ir import contracts
from pipelink_ir.ir.diagnostics import About, Note, Report
from pipelink_ir.ir.dtypes import BF16, DTYPES
from pipelink_ir.ir.nodes import Alias, Edge, Node, Operand, Operator, Pipeline
from pipelink_ir.ir.source import Span
from pipelink_ir.passes.aliasing.order import arguments
from pipelink_ir.passes.contracts.edges import declared_range
from pipelink_ir.passes.contracts.ranges import UNKNOWN, Interval, of_dtype, result_ranges
from pipelink_ir.passes.infer.operator import typed_operator
from pipelink_ir.passes.infer.text import written
from pipelink_ir.passes.precision.calibrated import Calibration
from pipelink_ir.passes.precision.plans import Plan


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of an edge: its values, who says so in which words, and where."""

    range: Interval = UNKNOWN
    says: str = ""
    at: Span | None = None
    made: Span | None = None


def check_limits(p: Pipeline, operators: Mapping[str, Operator], plans: Mapping[str, Plan], seen: Calibration | None, report: Report) -> None:
    """Report values that do not fit the float dtypes of the plans of a pipeline."""
    if any(plan.dtype is not None for plan in plans.values()):
        _Limits(p, operators, plans, seen, report).run()


class _Limits:
    def __init__(self, p: Pipeline, operators: Mapping[str, Operator], plans: Mapping[str, Plan], seen: Calibration | None, report: Report) -> None:
        self.p, self.operators, self.plans, self.seen, self.report = p, operators, plans, seen, report
        self.edges: dict[str, _Known] = {i.name: _Known(of_dtype(DTYPES[i.type.dtype])) for i in p.inputs}
        self.ranges: dict[tuple[object, ...], dict[str, Interval]] = {}

    def run(self) -> None:
        for n in self.p.nodes:
            if isinstance(n, Alias):
                self.edges[n.name.name] = self.edges[n.of.name]
                continue
            op = self.operators[n.op]
            given = {o.name: self._taken(op, o, e) for o, e in zip(op.operands, arguments(n), strict=True)}
            made = self._made(op, n, given)
            plan = self.plans.get(n.results[0].name)
            if plan is not None and plan.dtype is not None:
                self._node(n, op, plan, {**given, **made})
            self.edges.update(zip((e.name for e in n.results), (made[r.name] for r in op.results), strict=True))

    def _taken(self, op: Operator, o: Operand, e: Edge) -> _Known:
        """What an operator may count on of an operand: what it asks for, or what is known of the edge."""
        found = contracts.setting(op, "semantic", "range", o.name)
        have = declared_range(found.setting) if found is not None else None
        return self.edges[e.name] if found is None or have is None else _Known(have, f"'@{written(op.name)}' takes", found.setting.span)

    def _made(self, op: Operator, n: Node, given: Mapping[str, _Known]) -> dict[str, _Known]:
        out: dict[str, _Known] = {}
        inferred = self._inferred(op, {name: k.range for name, k in given.items()})
        for r, e in zip(op.results, n.results, strict=True):
            found = contracts.setting(op, "semantic", "range", r.name)
            have = declared_range(found.setting) if found is not None else None
            out[r.name] = _Known(inferred.get(r.name, UNKNOWN), f"'@{written(op.name)}' makes", None, e.span) if found is None or have is None else \
                _Known(have, f"'@{written(op.name)}' promises", found.setting.span, e.span)
        return out

    def _inferred(self, op: Operator, given: Mapping[str, Interval]) -> dict[str, Interval]:
        if op.compute is None or all(v == UNKNOWN for v in given.values()):
            return {}
        key = (op.name, *given.values())
        if key not in self.ranges:
            self.ranges[key] = result_ranges(typed_operator(op), given)
        return self.ranges[key]

    def _node(self, n: Node, op: Operator, plan: Plan, known: Mapping[str, _Known]) -> None:
        edges = dict(zip((o.name for o in (*op.operands, *op.results)), (*arguments(n), *n.results), strict=True))
        for name in plan.names:
            if name not in plan.codes and (self._declared(n, op, plan, name, known[name]) or self._measured(n, op, plan, name, edges[name].name)):
                return

    def _declared(self, n: Node, op: Operator, plan: Plan, name: str, known: _Known) -> bool:
        have = known.range
        largest = max(abs(have.lo), abs(have.hi))
        if not (have.lo_hit if abs(have.lo) == largest else have.hi_hit) or largest in (0, inf):
            return False
        notes = [Note("its range", known.at)] if known.at is not None else []
        notes += [Note("it is made here", known.made)] if known.made is not None else []
        return self._tell(n, op, plan, name, largest, f"{known.says or 'its dtype has'} values up to {largest:.10g}", notes)

    def _measured(self, n: Node, op: Operator, plan: Plan, name: str, edge: str) -> bool:
        seen = self.seen.edges.get(edge) if self.seen is not None else None
        if seen is None:
            return False
        finite = contracts.setting(op, "semantic", "finite", name)
        notes = [Note("the node", n.loc or n.op_span), *([Note(f"'%{name}' is to be finite", finite.setting.span)] if finite is not None else [])]
        largest = max(abs(seen.min), abs(seen.max))
        more = "" if largest > DTYPES[plan.dtype or ""].largest else " at most"
        return self._tell(n, op, plan, edge, largest, f"calibration has seen {largest:.10g} there{more}", notes)

    def _tell(self, n: Node, op: Operator, plan: Plan, name: str, largest: float, what: str, notes: list[Note]) -> bool:
        """Report an edge whose values do not fit, if they do not."""
        dtype = DTYPES[plan.dtype or ""]
        above, below = largest > dtype.largest, 0 < largest <= dtype.smallest / 2
        if above or below:
            ends = f"which ends at {dtype.largest:g}" if above else f"which begins at {dtype.smallest:.3g}: all would be 0"
            got = f"the policy takes '%{name}' to {dtype}, {ends}"
            self.report.error("range", plan.policy.spans.get("dtype", plan.policy.span), f"{got}, but {what}", notes,
                              f"{'lower to bf16' if dtype is not BF16 else 'scale them'}, or leave this operator as it is",
                              About("range", written(op.name), n.results[0].name, what, got))
        return above or below
