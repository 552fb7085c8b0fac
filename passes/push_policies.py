"""Policies of graphs, and of the project, become clauses of the operators inside.

Before:  op @linear.1(%x: tensor<NxKxf16>, …) -> (%y: tensor<NxMxf16>) { compute { … } }
         op @ffn.1(%x: tensor<NxKxf16>, …) -> (%y: tensor<NxKxf16>) {
           downgrade sm_87 { precision = mixed, up = i8, budget = 1e-2 }
           graph { %h = @linear.1(%x, %w1, %b1) as up
                   %y = @linear.1(%h, %w2, %b2) as down }
         }
After:   op @linear.1.1(…) -> (…) { downgrade sm_87 { dtype = i8 } compute { … } }
         op @linear.1.2(…) -> (…) { downgrade sm_87 { budget = 1e-2 } compute { … } }
         op @ffn.1(%x: tensor<NxKxf16>, …) -> (%y: tensor<NxKxf16>) {
           graph { %h = @linear.1.1(%x, %w1, %b1) as up
                   %y = @linear.1.2(%h, %w2, %b2) as down }
         }

What counts for a node inside, first of all: a label of the outermost graph that names it, or a graph around it (of two labels the longer one); the
operator's own clause; `dtype` of the innermost graph around; the project's policy, a label of it before its `dtype`, if no graph around has a clause. A label
changes what the graph's clause says and leaves the rest of the operator's own clause. `dtype` of a graph or project passes over operators that cannot have
it (the ledger lists those) and over those that have nothing to lower. The `budget` of a graph goes to the nodes that make its results, the smallest of
several holds; a clause with a budget alone lowers nothing. Keys that say nothing of the dtype are left out (`scheme` of f16).

Without `arch`, and in a module without a pipeline, nothing is done.

Requires: types (`infer-types`); graph operators.
Keeps: nodes, edges, labels; clauses for other targets; what no policy reaches is the same object.
Adds: copies of operators, one for each operator and clause; takes the clauses for this target from graphs.
"""
from __future__ import annotations

from dataclasses import dataclass

from pipelink_ir.ir.diagnostics import Note, Report, UsageError
from pipelink_ir.ir.nodes import Module
from pipelink_ir.ir.targets import arch_help, parse_arch
from pipelink_ir.ir.walk import deep
from pipelink_ir.passes.infer.text import written
from pipelink_ir.passes.manager import register_pass
from pipelink_ir.passes.precision.clause_text import clauses_in
from pipelink_ir.passes.precision.policy import clause_of
from pipelink_ir.passes.precision.push import Push


@dataclass(frozen=True, slots=True)
class Options:
    """For which target, and what the project says."""

    arch: str = ""
    """The target whose clauses count, `sm_75` or `cpu`; without one nothing is done."""
    policies: tuple[str, ...] = ()
    """Policies of the project, `"sm_75 { dtype = f16 } pipelink.yaml:3:10"`: a clause, and where it stands. Those for other targets do not count."""


@register_pass("push-policies", "policies of graphs and of the project to the operators inside", Options, typed=True)
def push_policies(module: Module, options: Options, report: Report) -> Module:
    """Hand down all policies for one target; see the page above."""
    if not options.arch or not module.pipelines:
        return module
    arch = parse_arch(options.arch)
    if arch is None:
        raise UsageError(f"push-policies: '{options.arch}' is no target; {arch_help(options.arch)}")
    project = clauses_in(options.policies, arch)
    if project is None and not any(clause_of(o, arch) for o in module.operators if o.graph is not None):
        return module
    with deep():
        push = Push(module, arch)
        module = push.run(project)
    for (span, why), op in push.unmet.items():
        report.warning("downgrade", span, f"a label of this policy names '@{written(op.name)}', which cannot have it: {why}",
                       [Note(f"'@{written(op.name)}' is declared here", op.signature)], "give it a dtype that it admits, or leave the label out")
    return module
