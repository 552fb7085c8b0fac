"""A flattened program lowered for an architecture, to be seen edge by edge on whatever device there is."""
from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pipelink_ir.ir.diagnostics import Report, UsageError
from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.nodes import Module, Node, Operator
from pipelink_ir.ir.source import Span
from pipelink_ir.ir.targets import Arch, known_archs, parse_arch
from pipelink_ir.passes.aliasing.order import arguments
from pipelink_ir.passes.infer.text import written
from pipelink_ir.passes.manager import run_passes, step
from pipelink_ir.passes.precision.policy import CODES, Policy, policy_of
from pipelink_ir.passes.scheduling.tuned import edge_types
from pipelink_ir.runtime.calibration.dequantised import with_values
from pipelink_ir.runtime.calibration.tapped import Flat
from pipelink_ir.runtime.targets import LOWER


def arch_of(text: str) -> Arch:
    """The architecture of that name."""
    found = parse_arch(text)
    if found is None:
        from pipelink_ir.ir.targets import arch_help
        raise UsageError(f"there is no architecture '{text}' to lower for; {arch_help(text, 'reference')}")
    if found.kind == "reference":
        raise UsageError(f"nothing is lowered for '{text}'; there are {', '.join(a for a in known_archs() if a != text)}")
    return found


def lowered(flat: Flat, arch: str, calibration: str | None) -> Flat:
    """The program with its policies for an architecture carried out, codes shown as values. What budgets say is left aside: it is what will be measured."""
    before = without_budgets(flat.module)
    report = Report()
    done = run_passes(before, [step(LOWER, arch=arch, pipeline=flat.name, **({"calibration": calibration} if calibration else {}))], report)
    return replace(flat, module=with_values(flat.pipeline, done, flat.name), report=report)


def without_budgets(module: Module) -> Module:
    """The module whose clauses have no budgets, by which nothing is refused."""
    changed = {}
    for o in module.operators:
        if any(s.key == "budget" for d in o.downgrades for s in d.settings or ()):
            clauses = tuple(d if d.settings is None else replace(d, settings=tuple(s for s in d.settings if s.key != "budget")) for d in o.downgrades)
            changed[o.name] = replace(o, downgrades=clauses)
    if not changed:
        return module
    return replace(module, items=tuple(changed.get(i.name, i) if isinstance(i, Operator) else i for i in module.items))


def names_in(flat: Flat, done: Flat) -> dict[str, str]:
    """What edges of a program are called after lowering: by their own names, or, where only the form in another float dtype is left, by that of the form.
    Those of which nothing is left are not among them."""
    types, out = edge_types(done.pipeline), {}
    for name in flat.floats:
        if name in types:
            out[name] = name
            continue
        form = next((f"{name}.{d}" for d in ("f16", "bf16", "f32", "f64") if f"{name}.{d}" in types), None)
        if form is not None and DTYPES[types[form].dtype].kind == "float":
            out[name] = form
    return out


def declined(done: Flat, names: Mapping[str, str]) -> dict[str, str]:
    """Why nodes were left as they are, by the edges that they make. (What is declined of a lowered node is something else, its `inplace` for one.)"""
    reasons = {e.name: n.reason for n in done.pipeline.nodes if isinstance(n, Node) and n.reason for e in n.results}
    parts = [part for text in dict.fromkeys(reasons.values()) for part in text.split("; ")]
    # Nodes that were weighed together name their region, whose sums stand with one of them.
    regions = {m[1]: m[2] for part in parts if (m := re.match(r"priced: (region \d+), .*?\): (.*)", part))}
    out = {}
    for edge, name in names.items():
        text = reasons.get(name, "")
        for part in text.split("; ") if not text.startswith("lowered: ") else ():
            if part.startswith("declined: "):
                out[edge] = re.sub(r"region \d+$", lambda m: regions.get(m[0], m[0]), part.removeprefix("declined: "))
    return out


@dataclass(frozen=True, slots=True)
class Asked:
    """A node whose operator has a clause for an architecture, and its results of float dtypes."""

    operator: str
    """As it was written."""
    label: str | None
    results: tuple[str, ...]
    policy: Policy
    span: Span
    """Of the budget, else of the clause."""


def asked(flat: Flat, arch: Arch) -> list[Asked]:
    """The nodes with a policy, in the order of the graph."""
    operators, floats = {o.name: o for o in flat.module.operators}, set(flat.floats)
    out = []
    for n in flat.pipeline.nodes:
        policy = policy_of(operators[n.op], arch) if isinstance(n, Node) and n.op in operators else None
        if policy is not None and isinstance(n, Node):
            made = tuple(e.name for e in n.results if e.name in floats)
            out.append(Asked(written(n.op), n.label, made, policy, policy.spans.get("budget", policy.span)))
    return out


def schemes(flat: Flat, archs: Sequence[Arch]) -> Mapping[str, tuple[str, str]]:
    """The codes that edges are to become, as far as clauses say: the dtype and the scheme of the first node that reads an edge as codes."""
    operators = {o.name: o for o in flat.module.operators}
    out: dict[str, tuple[str, str]] = {}
    for arch in archs:
        for n in flat.pipeline.nodes:
            policy = policy_of(operators[n.op], arch) if isinstance(n, Node) and n.op in operators else None
            if policy is None or policy.dtype not in CODES or not isinstance(n, Node):
                continue
            for e in arguments(n):
                out.setdefault(e.name, (policy.dtype, policy.scheme))
    return out
