"""Policies that ask for what cannot be: the only way to an architecture that an operator's own contract does not admit, which is an error, and a clause of an
operator that nothing ever comes of, a warning.

Whether a change pays is the compiler's business, and it says so in the ledger; what is told here no price decides, nor `force = true`.
"""
from __future__ import annotations

from collections.abc import Mapping

from pipelink_ir.ir import contracts
from pipelink_ir.ir.diagnostics import About, Note, Report
from pipelink_ir.ir.nodes import Module, Node, Operator, Setting
from pipelink_ir.ir.source import Span
from pipelink_ir.ir.targets import Arch, requirements
from pipelink_ir.passes.infer.text import written
from pipelink_ir.passes.precision.floats import halves
from pipelink_ir.passes.precision.own_kernels import GENERATED
from pipelink_ir.passes.precision.plans import Plan
from pipelink_ir.passes.precision.policy import Policy

Plans = Mapping[str, Mapping[str, Plan]]


def not_admitted(op: Operator, arch: Arch) -> Setting | None:
    """The `arch` of an operator, if it leaves an architecture out: there its policy is the only way."""
    found = contracts.setting(op, "compile", "arch")
    needs = requirements(found.setting.value) if found is not None else None
    return found.setting if found is not None and needs is not None and arch.kind == "cuda" and not any(r.admits(arch) for r in needs) else None


def check_demands(module: Module, operators: Mapping[str, Operator], plans: Plans, arch: Arch, report: Report) -> None:
    """Report what policies ask for and nothing can be made of. `plans`: of each pipeline, by the first results of nodes, when it is decided what is kept."""
    # One call may have weights where another one of the same operator has none. What is told of a graph is told once.
    carried = {plan.policy.span for of in plans.values() for plan in of.values() if plan.lowers or not plan.never}
    for p in module.pipelines:
        told: set[str] = set()
        for n in p.nodes:
            if isinstance(n, Node) and n.op not in told:
                told.add(n.op)
                _check(n, operators[n.op], plans[p.name].get(n.results[0].name), arch, carried, report)


def _check(n: Node, op: Operator, plan: Plan | None, arch: Arch, carried: set[Span], report: Report) -> None:
    asked = plan is not None and (plan.policy.dtype is not None or plan.policy.weights is not None)
    admits = not_admitted(op, arch)
    if plan is None or not asked:
        # A clause that asks for no dtype, `{ block = 64 }`, says how the operator is compiled there; one of a graph around may have passed it by.
        if admits is not None and plan is None and n.reason is not None and "declined: the policy at" in n.reason:
            _only_way(n, op, n.op_span, admits, n.reason.partition("declined: ")[2], arch, report)
        return
    why = (plan.refused or "").removeprefix("declined: ")
    policy = plan.policy
    at = policy.spans.get("dtype", policy.spans.get("weights", policy.span))
    if plan.lowers:
        _check_library(n, op, plan, at, arch, report)
    if plan.lowers or not why:
        return
    if admits is not None:
        _only_way(n, op, at, admits, why, arch, report)
    elif plan.never and policy.span not in carried and not _dumped(op):
        other = f", or lower '@{written(op.name)}' to {' or '.join(halves(op))}" if halves(op) else ""
        if _meant(op, policy):
            report.warning("downgrade", at, f"nothing comes of this policy on {arch}: {why}", [Note("the node", n.loc or n.op_span)], "leave it out" + other)
        elif not at.source.path.endswith((".yaml", ".yml")):
            carried.add(policy.span)
            report.warning("downgrade", at, f"nothing comes of this policy on {arch} for any node inside: {why}", [Note("one of them", n.loc or n.op_span)],
                           "leave it out" + other)


def _only_way(n: Node, op: Operator, at: Span, admits: Setting, why: str, arch: Arch, report: Report) -> None:
    wanted = contracts.describe(admits.value).strip('"')
    expected = f"'@{written(op.name)}' needs {wanted} as it is"
    report.error("downgrade", at, f"the policy is the only way to {arch} and cannot be carried out ({why}), but {expected}",
                 [Note("it asks for it here", admits.span), Note("the node", n.loc or n.op_span)], "lower it to a dtype that it admits, or drop the target",
                 About("downgrade", written(op.name), n.results[0].name, expected, str(arch)))


def _check_library(n: Node, op: Operator, plan: Plan, at: Span, arch: Arch, report: Report) -> None:
    """No library is called for codes, so an operator that runs on libraries alone cannot have them."""
    found = contracts.setting(op, "compile", "library")
    names = contracts.words(found.setting.value) if found is not None else []
    if found is None or not plan.codes or arch.kind != "cuda" or plan.policy.library is not None or not names or GENERATED in names:
        return
    expected = f"'@{written(op.name)}' runs on {', '.join(names)} alone, which is not called for codes"
    got = f"the policy quantises to {plan.policy.dtype or plan.policy.weights}"
    report.error("downgrade", at, f"{got}, but {expected}", [Note("its libraries", found.setting.span), Note("the node", n.loc or n.op_span)],
                 "add 'generated' to the list, or 'library = generated' to the clause", About("downgrade", written(op.name), n.results[0].name, expected, got))


def _dumped(op: Operator) -> bool:
    """Whether an operator was read as a pass has printed it, `@soft.1`: then its clause may be that of a graph around."""
    at = op.name_span
    return (at.source.text or "")[at.start:at.end].rpartition(".")[2].isdigit()


def _meant(op: Operator, policy: Policy) -> bool:
    """Whether a clause speaks of this very operator: it stands in it, or names the node by its label. One of a graph means whatever can be lowered inside."""
    at = policy.spans.get("dtype", policy.spans.get("weights"))
    if at is None:
        return False
    inside = at.source.path == op.span.source.path and op.span.start <= at.start < op.span.end
    word = at.source.text[at.start:at.end].partition("=")[0].strip() if at.source.text else ""
    return inside or word not in ("", "dtype", "weights")
