"""One look at a pipeline before anything is put in: what comes from parameters, which codes are there already, and what each policy comes to."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pipelink_ir.ir.nodes import Alias, Node, Operator, Pipeline
from pipelink_ir.passes.aliasing.order import arguments, origins
from pipelink_ir.passes.precision.calibrated import Calibration, EdgeRange
from pipelink_ir.passes.precision.codes import Codes
from pipelink_ir.passes.precision.moved_codes import given_codes
from pipelink_ir.passes.precision.plans import Plan, plan
from pipelink_ir.passes.precision.policy import Policy


def plans_of(p: Pipeline, operators: Mapping[str, Operator], policies: Mapping[str, Policy], calibration: Calibration | None) -> dict[str, Plan]:
    """The plan of each node whose operator has a policy, by its first result."""
    return _Survey(p, operators, policies, calibration).run()


def shared(p: Pipeline, operators: Mapping[str, Operator], plans: Mapping[str, Plan], again: bool = False) -> dict[str, Plan]:
    """Plans in which operators that gain nothing by codes of their own keep those that others have made of the same edges. `again`: some of the others have
    turned out to be left as they are."""
    first = origins(p)
    nodes = {n.results[0].name: n for n in p.nodes if isinstance(n, Node)}

    def edge(n: Node, operand: str) -> str:
        name = next(e.name for o, e in zip(operators[n.op].operands, arguments(n), strict=True) if o.name == operand)
        return first.get(name, name)
    made = {(edge(nodes[name], o), c) for name, found in plans.items() if found.lowers and not found.shares for o, c in found.codes.items()}
    out = dict(plans)
    for name, found in plans.items():
        if found.lowers and found.shares:
            kept = {o: c for o, c in found.codes.items() if (edge(nodes[name], o), c) in made}
            why = "declined: it is computed element by element where its operands are made; codes of its own would save nothing"
            # What is called alone is looked at for programs that may have codes, as in a folder of operators.
            never = not made and len(p.nodes) > 1 and not again
            out[name] = replace(found, codes=kept, missing=(), refused=None if kept else why, never=never)
    return out


@dataclass(slots=True)
class _Survey:
    p: Pipeline
    operators: Mapping[str, Operator]
    policies: Mapping[str, Policy]
    calibration: Calibration | None
    origin: dict[str, str] = field(default_factory=dict)
    params: set[str] = field(default_factory=set)
    plans: dict[str, Plan] = field(default_factory=dict)
    ready: dict[str, Codes] = field(default_factory=dict)
    """Edges whose codes the program itself has, since it made values of them."""
    known: dict[tuple[object, ...], Plan] = field(default_factory=dict)

    def run(self) -> dict[str, Plan]:
        self.origin = origins(self.p)
        self.params = {i.name for i in self.p.inputs if i.param}
        for item in self.p.nodes:
            if isinstance(item, Alias):
                continue
            codes = given_codes(self.operators[item.op]) if item.op.startswith("std.dequantize") else None
            if codes is not None:
                self.ready[item.results[0].name] = codes
            made = self._plan(item)
            if made is not None:
                self.plans[item.results[0].name] = made
            if item.args and all(self._first(e.name) in self.params for e in (*arguments(item), *item.after)):
                self.params |= {e.name for e in item.results}
        return shared(self.p, self.operators, self.plans)

    def _first(self, edge: str) -> str:
        return self.origin.get(edge, edge)

    def _plan(self, n: Node) -> Plan | None:
        policy = self.policies.get(n.op)
        if policy is None:
            return None
        op = self.operators[n.op]
        edges = {o.name: self._first(e.name) for o, e in zip(op.operands, arguments(n), strict=True)}
        weights = frozenset(o for o, e in edges.items() if e in self.params)
        ranges = {o: self._range(e, n, o) for o, e in edges.items() if o not in weights}
        ready = {o: self.ready[e] for o, e in edges.items() if e in self.ready}
        key = (op.name, weights, tuple(ranges.items()), tuple(ready.items()))
        if key not in self.known:
            self.known[key] = plan(op, policy, weights, ranges, self.calibration is not None, ready)
        return self.known[key]

    def _range(self, edge: str, n: Node, operand: str) -> EdgeRange | None:
        if self.calibration is None:
            return None
        names = {e.name for o, e in zip(self.operators[n.op].operands, arguments(n), strict=True) if o.name == operand} | {edge}
        return next((self.calibration.edges[name] for name in sorted(names) if name in self.calibration.edges), None)
