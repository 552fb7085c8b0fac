"""What policies ask for: operators in other dtypes or on codes, and the casts and codes in between.

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
or with { dtype = i8 }, and ranges from `calibration`
           %x.q     = @quantize_i8.1(%x) reason = "quantize: '%x' as i8 codes of scale 0.0236, calibrated: …"
           %w.scale = @scale_i8.1(%w) reason = "quantize: …"
           %w.q     = @quantize_i8.2(%w, %w.scale) reason = "quantize: …"
           %h       = @linear_i8.1(%x.q, %w.q, %b, %w.scale) as up reason = "lowered: …"
           %h.q     = …

Each node whose operator has a clause for the architecture is lowered as docs/precision.md says. Float dtypes: operands are cast, the operator computes in f32
as ever and stores the dtype, results are cast back. Whoever reads such a result in the same dtype reads it directly, which is exact; so a chain of lowered
operators has casts at its ends alone. Codes: factors of sums of products become integers (or f8 with a scale), their sum is taken in i32, results are real.
What comes of parameters alone is computed once, when they are bound.

Requires: a flat pipeline, types inferred; policies stand at the operators that they speak of (`push-policies`).
Keeps: edges, labels, devices, `after`; operators without a clause.
Adds: casts, codes, lowered operators, each with its reason; what was declined says why; conditions under which sums of codes fit i32. No operator has a policy
afterwards.
"""
from __future__ import annotations

from dataclasses import dataclass, field, replace

from pipelink_ir.ir.diagnostics import Note, Report, UsageError
from pipelink_ir.ir.nodes import Alias, Expr, Module, Node, Operator, Pipeline
from pipelink_ir.ir.targets import Arch, arch_help, parse_arch
from pipelink_ir.ir.walk import deep
from pipelink_ir.passes.aliasing.order import arguments
from pipelink_ir.passes.infer.text import written
from pipelink_ir.passes.manager import register_pass
from pipelink_ir.passes.precision.calibrated import Calibration, check_calibration
from pipelink_ir.passes.precision.demands import check_demands, not_admitted
from pipelink_ir.passes.precision.edges import Line, Operators, form_name, reasons, spread, with_operators
from pipelink_ir.passes.precision.floats import lowered, with_clause
from pipelink_ir.passes.precision.insert import put_in, results_in
from pipelink_ir.passes.precision.limits import check_limits
from pipelink_ir.passes.precision.moved_codes import Pushing, given_codes, put_chosen
from pipelink_ir.passes.precision.own_kernels import runs_kernel, without_kernel
from pipelink_ir.passes.precision.plans import Plan
from pipelink_ir.passes.precision.policy import Policy, policy_of
from pipelink_ir.passes.precision.survey import plans_of, shared


@dataclass(frozen=True, slots=True)
class Options:
    """What is lowered, and by which numbers."""

    arch: str = ""
    """The architecture whose clauses count, `sm_75` or `cpu`; without one nothing is lowered."""
    calibration: str = ""
    """The file with the ranges of edges that `pipelinkc calibrate` wrote."""
    price: bool = True
    """Whether what does not pay is declined."""
    pipeline: str = ""
    """The pipeline that is compiled, where there are several: a file of calibration is of one, and what the others lack is no error then."""


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
    policies: dict[str, Policy] = field(default_factory=dict)
    calibration: Calibration | None = None
    plans: dict[str, dict[str, Plan]] = field(default_factory=dict)
    """By pipeline and by the first result of a node."""
    refusals: list[tuple[str, str, str]] = field(default_factory=list)
    """Pipeline, first result, why: what was tried and cannot be."""
    plain: dict[str, Operator] = field(default_factory=dict)
    """Operators without policies."""
    suits: dict[str, bool] = field(default_factory=dict)
    """Operators that were looked at, and whether they only choose among values."""

    def run(self) -> Module:
        self.operators = Operators({o.name: o for o in self.module.operators})
        self.policies = {o.name: p for o in self.module.operators if (p := policy_of(o, self.arch)) is not None}
        for name, policy in self.policies.items():
            op = self.operators.known[name]
            if op.kernel is not None and not runs_kernel(op, self.arch, policy.library):
                self.operators.known[name] = without_kernel(op)
        if self.options.calibration and self.policies:
            from pipelink_ir.passes.precision.calibration_file import read_calibration
            self.calibration = read_calibration(self.options.calibration)
            check_calibration(self.calibration, self.module, self.report)
            self.report.stop_if_failed()
        self._decide()
        self.report.stop_if_failed()
        tried = self._try()
        if self.options.price:
            self._weigh()
        check_demands(self.module, self.operators.known, self.plans, self.arch, self.report)
        self._check_budgets()
        self.report.stop_if_failed()
        return tried if tried is not None and not self.options.price else self.lower(self.module)

    def _decide(self) -> None:
        """Plan every node, and report what the program's contracts have against it."""
        for p in self.module.pipelines:
            ranges = self.calibration if self.calibration is not None and self.calibration.pipeline == p.name else None
            self.plans[p.name] = plans_of(p, self.operators.known, self.policies, ranges)
            check_limits(p, self.operators.known, self.plans[p.name], ranges, self.report)
            for n in p.nodes:
                plan = self.plans[p.name].get(n.results[0].name) if isinstance(n, Node) else None
                if plan is not None and isinstance(n, Node) and self.options.pipeline in ("", p.name):
                    _check_missing(n, p.name, self.operators.known[n.op], plan, self.calibration, self.report)

    def _try(self) -> Module | None:
        """Lower everything once, to see what cannot be; None if there is such."""
        out = self.lower(self.module)
        refused, self.refusals = self.refusals, []
        for p, name, why in refused:
            self.plans[p][name] = replace(self.plans[p][name], refused=why, never=True)
        self._share()
        return None if refused else out

    def _share(self) -> None:
        """What reads the codes of others alone goes without those that are not made after all."""
        for p in self.module.pipelines:
            self.plans[p.name] = shared(p, self.operators.known, self.plans[p.name], again=True)

    def _weigh(self) -> None:
        """Keep what pays, and what has to be; say the sums."""
        from pipelink_ir.passes.precision.profit import profitable
        from pipelink_ir.passes.precision.weighed import weighed
        for p in self.module.pipelines:
            plans = self.plans[p.name]
            names = frozenset(name for name, plan in plans.items() if plan.lowers)
            if not names:
                continue
            ops = {n.results[0].name: n.op for n in p.nodes if isinstance(n, Node) and n.results[0].name in names}
            must = frozenset(name for name in names if plans[name].policy.force or not_admitted(self.operators.known[ops[name]], self.arch) is not None)
            alone = replace(self.module, items=tuple(i for i in self.module.items if not isinstance(i, Pipeline) or i is p))
            plans |= weighed(p, plans, profitable(alone, names, self.lower, self.arch, must), must, self.arch)
        self._share()

    def _check_budgets(self) -> None:
        """Whether what is kept holds the budgets, and how far off it is."""
        from pipelink_ir.passes.precision.estimate import check_budgets, said_errors
        seen = self.calibration
        for p in self.module.pipelines:
            mine = seen is not None and seen.pipeline == p.name
            ranges = seen.edges if seen is not None and mine else {}
            lowered = [name for name, plan in self.plans[p.name].items() if plan.lowers]
            measured = seen.measured(self.module, p.name, str(self.arch), lowered) if seen is not None and mine else {}
            plans = self.plans[p.name]
            check_budgets(p, self.operators.known, plans, ranges, measured, str(self.arch), self.report)
            plans |= {name: replace(plans[name], off=off) for name, off in said_errors(p, self.operators.known, plans, ranges, measured).items()}

    def lower(self, module: Module, kept: frozenset[str] | None = None) -> Module:
        """A module with pipelines of this one, or parts of them, as planned; of what is planned only the nodes `kept`, if that is said."""
        pipelines = {p.name: self._pipeline(p, self.plans[p.name], kept) for p in module.pipelines}
        for name in dict.fromkeys(n.op for p in pipelines.values() for n in p.nodes if isinstance(n, Node)):
            if name not in self.plain:
                op = self.operators.known[name]
                self.plain[name] = with_clause(op, Policy()) if op.downgrades else op
        return with_operators(module, self.plain, pipelines)

    def _pipeline(self, p: Pipeline, plans: dict[str, Plan], kept: frozenset[str] | None) -> Pipeline:
        if not plans:
            return p
        line = Line(p, self.operators)
        conditions: list[Expr] = []
        carried_out = {name: plan for name, plan in plans.items() if plan.lowers and (kept is None or name in kept)}
        chosen = Pushing(p, self.operators, carried_out, self.suits).run()
        for n in p.nodes:
            if isinstance(n, Alias):
                line.keep(n)
                continue
            name = n.results[0].name
            if name in chosen:
                put_chosen(line, n, chosen[name], str(self.arch))
                continue
            plan = carried_out.get(name)
            n = line.adapted(n, (*plan.names, *plan.codes) if plan is not None else ())
            if plan is not None:
                conditions += self._carry_out(n, plan, line)
            elif name in plans:
                line.keep(self._as_it_is(n, plans[name].policy, plans[name].refused))
            else:
                line.keep(n)
                self._given(n, line)
        where = (*p.where, *(c for c in dict.fromkeys(conditions) if c not in p.where))
        return replace(p, nodes=line.nodes(), where=where)

    def _given(self, n: Node, line: Line) -> None:
        """Remember the codes that the program itself brings back to values."""
        codes = given_codes(self.operators.known[n.op]) if n.op.startswith("std.dequantize") else None
        if codes is not None:
            line.remember(n.results[0].name, ("codes", codes), n.device, line.first(arguments(n)[0].name))

    def _carry_out(self, n: Node, plan: Plan, line: Line) -> tuple[Expr, ...]:
        """Put out what a node becomes, or the node where that cannot be: conditions on sizes."""
        at = len(line.out)
        conditions, refused = self._lowered(n, plan, line)
        if refused is not None:
            self.refusals.append((line.of.name, n.results[0].name, refused))
            line.keep(self._as_it_is(n, plan.policy, refused))
        elif n.plan is not None:
            line.out[at:] = spread(n, [x for x in line.out[at:] if isinstance(x, Node)])
        return conditions

    def _as_it_is(self, n: Node, policy: Policy, refused: str | None) -> Node:
        """A node that is not lowered, with why. Its block and library are still those of the policy."""
        op = self.operators.known[n.op]
        if policy.block is not None or policy.library is not None:
            new = self.operators.make(("as it is", n.op), form_name(n.op, str(self.arch)), lambda name: replace(with_clause(op, policy), name=name))
            n = replace(n, op=new.name)
        return replace(n, reason=reasons(n.reason, refused)) if refused else n

    def _lowered(self, n: Node, plan: Plan, line: Line) -> tuple[tuple[Expr, ...], str | None]:
        """Put out what a node becomes: conditions on sizes, or why it stays as it is."""
        if plan.codes:
            return put_in(line, n, plan, str(self.arch))
        op, dtype = self.operators.known[n.op], plan.dtype
        assert dtype is not None
        new = self.operators.make(("float", n.op, dtype, plan.names), form_name(n.op, dtype),
                                  lambda name: with_clause(lowered(op, dtype, name, plan.names), plan.policy))
        why = f"'@{written(n.op)}' runs in {dtype} on {self.arch}, as its policy asks"
        args = [line.cast(e.name, dtype, n, f"cast: {why}") if o.name in plan.names else e.name for o, e in zip(op.operands, arguments(n), strict=True)]
        results_in(line, n, new, args, plan, f"lowered: {why}{plan.said}")
        return (), None


def _check_missing(n: Node, pipeline: str, op: Operator, plan: Plan, calibration: Calibration | None, report: Report) -> None:
    """Ranges that a policy wants calibrated and that nobody has measured."""
    if not plan.missing or plan.refused is not None:
        return
    edges = {o.name: e for o, e in zip(op.operands, arguments(n), strict=True)}
    names = ", ".join(f"'%{edges[m].name}'" for m in plan.missing)
    policy = plan.policy
    where = f"there is no calibration for {names}"
    if calibration is not None:
        other = f", which is of '@{calibration.pipeline}'," if calibration.pipeline != pipeline else ""
        where = f"{calibration.path or 'the calibration'}{other} has no range of {names}"
    report.error("downgrade", policy.spans.get("ranges", policy.span), f"'@{written(op.name)}' is to run on codes of calibrated ranges, and {where}",
                 [Note("it is read here", n.loc or n.op_span)], "measure it, pipelinkc calibrate FILE --data …, or write 'ranges = dynamic' into the clause")
