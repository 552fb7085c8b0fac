"""Policies as a program meets them: clauses that none of its targets comes to, and calls whose sizes the codes of a clause cannot have."""
from __future__ import annotations

from collections.abc import Collection, Mapping

from pipelink_ir.ir.diagnostics import Note, Report
from pipelink_ir.ir.nodes import Alias, Downgrade, Edge, Module, Operator, Pipeline, TensorType
from pipelink_ir.ir.targets import Arch, parse_arch
from pipelink_ir.passes.contracts.clauses import Clause
from pipelink_ir.passes.contracts.sums import check_sums
from pipelink_ir.passes.precision.policy import KEYS
from pipelink_ir.passes.scopes import consumed
from pipelink_ir.passes.shapes import bind_symbols


def check_unreached(module: Module, archs: Collection[Arch], declared: bool, report: Report) -> None:
    """Report clauses that are never used by a program that declares its targets, and sums of calls that are too long. `archs` are what it is built for."""
    operators = {o.name: o for o in module.operators if o.downgrades}
    if declared and archs and all(parse_arch(_arch(t.settings)) for t in module.targets):
        files = {t.span.source.path for t in module.targets}
        names = ", ".join(dict.fromkeys(str(a) for a in archs))
        for op in operators.values():
            for d in op.downgrades if op.span.source.path in files else ():
                arch = parse_arch(d.target)
                if d.settings and arch is not None and arch.kind == "cuda" and not any(_serves(arch, a) for a in archs):
                    report.warning("downgrade", d.span, f"no target of this program is {d.target}, so this clause is never used: they are {names}",
                                   [Note("a target", t.span) for t in module.targets],
                                   f"declare it, 'target @weaker {{ arch = {d.target} }}', or drop the clause")
    for p in module.pipelines:
        _check_calls(p, operators, archs, report)


def _arch(settings: Collection[object]) -> str:
    from pipelink_ir.ir import contracts
    from pipelink_ir.ir.nodes import Setting
    return next((contracts.describe(s.value).strip('"') for s in settings if isinstance(s, Setting) and s.key == "arch"), "")


def _serves(clause: Arch, arch: Arch) -> bool:
    """Whether a clause is for an architecture: that of sm_90 is for sm_90a too."""
    return clause == arch or (not clause.suffix and (clause.kind, clause.sm) == (arch.kind, arch.sm))


def _check_calls(p: Pipeline, operators: Mapping[str, Operator], archs: Collection[Arch], report: Report) -> None:
    types: dict[str, TensorType] = {o.name: o.type for o in p.inputs}
    for n in p.nodes:
        if isinstance(n, Alias):
            types[n.name.name] = types[n.of.name]
            continue
        types |= {e.name: t for e, t in zip(n.results, n.types, strict=False)}
        op = operators.get(n.op)
        if op is None or op.compute is None or not all(isinstance(a, Edge) for a in n.args):
            continue
        known = bind_symbols(op, [types[e.name] for e in consumed(n)])
        for d in op.downgrades:
            arch = parse_arch(d.target)
            if d.settings and arch is not None and (not archs or any(_serves(arch, a) for a in archs)):
                check_sums(op, _clause(d), known, n.op_span, report)


def _clause(d: Downgrade) -> Clause:
    return Clause({s.key: s for s in d.settings or () if s.key in KEYS}, ())
