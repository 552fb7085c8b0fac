"""What policies ask for: operators in other dtypes, and the casts and codes in between.

Before:  op @linear.1(%x: tensor<NxKxf32>, %w: tensor<KxMxf32>, %b: tensor<Mxf32>) -> (%y: tensor<NxMxf32>) {
           downgrade sm_75 { dtype = f16 }  … }
         pipeline @p(%x: tensor<BxIxf32>, param %w: …, param %b: …, param %v: …, param %c: …) -> (%y: tensor<BxOxf32>) {
           %h = @linear.1(%x, %w, %b) as up
           %y = @linear.1(%h, %v, %c) as down
         }
After:   (arch = sm_75)
           %x.f16 = @std.cast.1(%x) reason = "cast: …"
           %w.f16 = @std.cast.1(%w) reason = "cast: …"
           …
           %h.f16 = @linear_f16.1(%x.f16, %w.f16, %b.f16) as up reason = "lowered: …"
           %y.f16 = @linear_f16.1(%h.f16, %v.f16, %c.f16) as down reason = "lowered: …"
           %y     = @std.cast.3(%y.f16) reason = "cast: …"

Each node whose operator has a clause for the architecture is lowered as docs/precision.md says. Float dtypes: operands are cast, the operator computes in f32
as ever and stores the dtype, results are cast back. Whoever reads such a result in the same dtype reads it directly, which is exact; so a chain of lowered
operators has casts at its ends alone. What comes of parameters alone is computed once, when they are bound.

Requires: a flat pipeline, types inferred; policies stand at the operators that they speak of (`push-policies`).
Keeps: edges, labels, devices, `after`; operators without a clause.
Adds: casts, lowered operators, each with its reason; what was declined says why. No operator that a pipeline calls has a policy afterwards.
"""
from __future__ import annotations

from dataclasses import dataclass, field, replace

from pipelink_ir.ir import contracts
from pipelink_ir.ir.diagnostics import Note, Report, UsageError
from pipelink_ir.ir.nodes import Alias, Edge, Module, Node, Operand, Operator, Pipeline, TensorType
from pipelink_ir.ir.targets import Arch, arch_help, parse_arch
from pipelink_ir.ir.walk import deep
from pipelink_ir.passes.contracts.edges import declared_range
from pipelink_ir.passes.manager import register_pass
from pipelink_ir.passes.precision.edges import Line, Operators, spread, stem, with_operators
from pipelink_ir.passes.precision.floats import LARGEST, admitted, is_float, lowered, varying, with_clause
from pipelink_ir.passes.precision.policy import Policy, policy_of


@dataclass(frozen=True, slots=True)
class Options:
    """What is lowered, and by which numbers."""

    arch: str = ""
    """The architecture whose clauses count, `sm_75` or `cpu`; without one nothing is lowered."""
    calibration: str = ""
    """The file with the ranges of edges that `pipelinkc calibrate` wrote."""
    price: bool = True
    """Whether what does not pay is declined."""


@register_pass("lower-precision", "downgrade policies carried out: casts, codes, lowered operators", Options, typed=True)
def lower_precision(module: Module, options: Options, report: Report) -> Module:
    """Carry out the policies for an architecture; see the page above."""
    if not options.arch:
        return module
    arch = parse_arch(options.arch)
    if arch is None:
        raise UsageError(f"lower-precision: 'arch' is an architecture, not '{options.arch}'; {arch_help(options.arch)}")
    if not module.pipelines or not any(o.downgrades for o in module.operators):
        return module
    with deep():
        return _Lowering(module, options, arch, report).run()


@dataclass(slots=True)
class _Lowering:
    module: Module
    options: Options
    arch: Arch
    report: Report
    operators: Operators = field(default_factory=lambda: Operators({}))
    policies: dict[str, Policy | None] = field(default_factory=dict)
    told: set[tuple[str, str]] = field(default_factory=set)
    """Operators and operands whose contracts were found to be at odds with the policy."""

    def run(self) -> Module:
        self.operators = Operators({o.name: o for o in self.module.operators})
        self.policies = {o.name: policy_of(o, self.arch) for o in self.module.operators}
        pipelines = {p.name: self._pipeline(p) for p in self.module.pipelines}
        self.report.stop_if_failed()
        for o in self.module.operators:
            if o.downgrades:
                self.operators.known[o.name] = with_clause(o, Policy())
        return with_operators(self.module, self.operators.known, pipelines)

    def _pipeline(self, p: Pipeline) -> Pipeline:
        if not any(isinstance(n, Node) and self.policies[n.op] is not None for n in p.nodes):
            return p
        line = Line(p, self.operators)
        for item in p.nodes:
            policy = self.policies[item.op] if isinstance(item, Node) else None
            if policy is None or isinstance(item, Alias):
                line.keep(item)
                continue
            at = len(line.out)
            refused = self._node(item, policy, line)
            if refused is not None:
                line.keep(self._as_it_is(item, policy, refused))
            elif item.plan is not None:
                line.out[at:] = spread(item, [n for n in line.out[at:] if isinstance(n, Node)])
        nodes = line.nodes()
        return replace(p, nodes=nodes)

    def _as_it_is(self, n: Node, policy: Policy, refused: str) -> Node:
        """A node that is not lowered, with why. Its block and library are still those of the policy."""
        op = self.operators.known[n.op]
        if policy.block is not None or policy.library is not None:
            new = self.operators.get(("as it is", n.op), _named(n.op, str(self.arch)), lambda name: replace(with_clause(op, policy), name=name))
            assert isinstance(new, Operator)
            n = replace(n, op=new.name)
        return replace(n, reason=_joined(n.reason, refused)) if refused else n

    def _node(self, n: Node, policy: Policy, line: Line) -> str | None:
        """Put out what a node becomes; or say why it stays as it is ("" where nothing was asked)."""
        if policy.dtype is None:
            return ""
        if is_float(policy.dtype):
            return self._float(n, policy, policy.dtype, line)
        return f"declined: {policy.dtype} is not lowered to yet"

    # --------------------------------------------------------------------------------------------------------------------- floats

    def _float(self, n: Node, policy: Policy, dtype: str, line: Line) -> str | None:
        op = self.operators.known[n.op]
        names = varying(op)
        if not admitted(op, dtype):
            return f"declined: {dtype} is not among the dtypes of '@{stem(n.op)}'"
        if not names:
            return f"declined: no operand of '@{stem(n.op)}' may have another dtype"
        if all(o.type.dtype == dtype for o in (*op.operands, *op.results) if o.name in names):
            return ""
        if not self._fits(op, policy, dtype, names):
            return ""
        new = self.operators.get(("float", n.op, dtype), _named(n.op, dtype), lambda name: with_clause(lowered(op, dtype, name), policy))
        assert isinstance(new, Operator)
        why = f"'@{stem(n.op)}' runs in {dtype} on {self.arch}, as its policy asks"
        args = [line.cast(e.name, dtype, n, f"cast: {why}") if o.name in names else e.name for o, e in zip(op.operands, _edges(n), strict=True)]
        results: list[Edge] = []
        types: list[TensorType] = []
        for r, e, t in zip(op.results, n.results, n.types, strict=True):
            if r.name not in names or t.dtype == dtype:
                results.append(e)
                types.append(t)
                continue
            name = line.fresh(f"{e.name}.{dtype}")
            results.append(Edge(name, span=e.span))
            types.append(replace(t, dtype=dtype))
        line.keep(replace(n, op=new.name, args=tuple(Edge(a, span=e.span) for a, e in zip(args, _edges(n), strict=True)), results=tuple(results),
                          types=tuple(types), plan=None, reason=_joined(n.reason, f"lowered: {why}")))
        for e, made, t in zip(n.results, results, n.types, strict=True):
            if made is not e:
                line.cast_back(made.name, e.name, t, n, f"cast: '%{e.name}' is {t.dtype} for those that read it otherwise")
        return None

    def _fits(self, op: Operator, policy: Policy, dtype: str, names: tuple[str, ...]) -> bool:
        """Whether the contract of an operator can be kept in a dtype: what it promises or takes must not lie beyond its largest number."""
        good = True
        for o in (*op.operands, *op.results):
            found = contracts.setting(op, "semantic", "range", o.name)
            have = declared_range(found.setting) if found is not None and o.name in names else None
            if found is None or have is None or max(abs(have.lo), abs(have.hi)) <= LARGEST[dtype] or max(abs(have.lo), abs(have.hi)) == float("inf"):
                continue
            good = False
            if (op.name, o.name) in self.told:
                continue
            self.told.add((op.name, o.name))
            span = policy.spans.get("dtype", policy.span)
            self.report.error("range", span, f"the policy takes '%{o.name}' to {dtype}, which ends at {LARGEST[dtype]:g}, but '@{stem(op.name)}' "
                              f"{'takes' if _is_operand(op, o) else 'promises'} values up to {max(abs(have.lo), abs(have.hi)):g}",
                              [Note("its range", found.setting.span)], "lower to bf16, or leave this operator as it is")
        return good


def _named(op: str, how: str) -> str:
    """A name for another form of an operator: `linear_f16.1` for `linear.1`."""
    return f"{stem(op)}_{how}.1"


def _is_operand(op: Operator, o: Operand) -> bool:
    return any(x is o for x in op.operands)


def _edges(n: Node) -> tuple[Edge, ...]:
    return tuple(a for a in n.args if isinstance(a, Edge))


def _joined(before: str | None, more: str) -> str:
    return f"{before}; {more}" if before else more
