"""What carrying out the policies of a program says, for each target that it is for: nothing is run, no device is asked, and nothing is priced unless that
decides whether a budget is kept.

A file without pipelines, as in a folder of operators, has its operators called as they are declared: by arrays of the first dtype that they list, once all of
them given at each call and once all but the first bound before, as weights are. What both say is told.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from pipelink_ir.ir import contracts
from pipelink_ir.ir.diagnostics import Diagnostic, ProgramError, Report
from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.nodes import Dots, Edge, Expr, Module, Name, Node, Operand, Operator, Pipeline, TensorType
from pipelink_ir.ir.targets import Arch, parse_arch
from pipelink_ir.passes.devices import declared_archs
from pipelink_ir.passes.manager import parse_passes, run_passes
from pipelink_ir.passes.precision.policy import clause_of
from pipelink_ir.runtime.calibration.files import chosen, with_calibration
from pipelink_ir.runtime.project import Project
from pipelink_ir.runtime.targets import LOWER, Target

BY_PRICE = ("PL4302",)
"""Codes of what depends on which changes pay."""
RANK = 2
"""Axes that `...` stands for where an operator is called as it is declared."""


def lowering_faults(path: str, module: Module, project: Project, targets: Sequence[Target], known: Sequence[Diagnostic]) -> list[Diagnostic]:
    """What lowering a program reports: errors and warnings that are not `known`, each with the targets where it holds. `module` is the program as read."""
    found: dict[tuple[object, ...], tuple[Diagnostic, list[str]]] = {}
    before = {_key(d) for d in known}
    for arch in _archs(module, project, targets):
        for d in _of_target(path, module, project, arch):
            if _key(d) not in before:
                found.setdefault(_key(d), (d, []))[1].append(str(arch))
    return [_named(d, archs) for d, archs in found.values()]


def _key(d: Diagnostic) -> tuple[object, ...]:
    return d.code, d.severity, d.message, d.span.source.path, d.span.line, d.span.column


def _named(d: Diagnostic, archs: Sequence[str]) -> Diagnostic:
    """A message with its targets, unless it names them."""
    missing = [a for a in archs if a not in d.message]
    return replace(d, message=f"{d.message} (on {', '.join(archs)})") if missing else d


def _archs(module: Module, project: Project, targets: Sequence[Target]) -> list[Arch]:
    """The targets of the command, of the program, or of the project; where none of them names any, those of the clauses."""
    some = [t.arch for t in targets if t.arch is not None] if targets else list(declared_archs(module).values())
    some = some or [a for t in project.targets if (a := parse_arch(t)) is not None]
    some = some or [a for t in (*(d.target for o in module.operators for d in o.downgrades), *project.precision) if (a := parse_arch(t)) is not None]
    return [a for a in dict.fromkeys(some) if a.kind != "reference"]


def _of_target(path: str, module: Module, project: Project, arch: Arch) -> list[Diagnostic]:
    """What a target's lowering says."""
    if module.pipelines:
        return _lowered(path, module, project, arch, chosen(path, None))
    out: list[Diagnostic] = []
    for o in module.operators:
        if clause_of(o, arch) is not None:
            both = [_lowered(path, called, project, arch, None) for called in calls(module, o)]
            some = [{_key(d) for d in found} for found in both]
            out += [d for d in both[0] if all(_key(d) in keys for keys in some)] if both else []
    return out


def _lowered(path: str, module: Module, project: Project, arch: Arch, calibration: str | None) -> list[Diagnostic]:
    """What the passes up to lowering say, priced only if that matters."""
    found = _run(path, module, project, arch, calibration, False)
    return _run(path, module, project, arch, calibration, True) if any(d.code in BY_PRICE for d in found) else found


def _run(path: str, module: Module, project: Project, arch: Arch, calibration: str | None, priced: bool) -> list[Diagnostic]:
    options = f"arch={arch},price={str(priced).lower()}"
    steps = project.steps(parse_passes(f"validate,push-policies{{arch={arch}}},flatten,lower-precision{{{options}}}"), checked=True)
    report = Report()
    try:
        if calibration is not None:
            steps = with_calibration(steps, path, None)
            name = _calibrated(calibration, module)
            steps = tuple(replace(s, options=replace(s.options, pipeline=name)) if s.name == LOWER else s for s in steps)
        run_passes(module, steps, report)
    except ProgramError as error:
        return list(error.diagnostics)
    return report.diagnostics


def _calibrated(path: str, module: Module) -> str:
    """The pipeline whose ranges a file has, where there are several."""
    from pipelink_ir.passes.precision.calibration_file import read_calibration
    name = read_calibration(path).pipeline
    return name if len(module.pipelines) > 1 and any(p.name == name for p in module.pipelines) else ""


# ------------------------------------------------------------------------------------------------------------------------ operators


def calls(module: Module, o: Operator) -> list[Module]:
    """The module with a pipeline that calls an operator as it is declared: with inputs alone, and with parameters; none where that cannot be written."""
    allowed = contracts.dtypes(o)
    listed = [d for d in (contracts.words(allowed.value) if allowed is not None else ()) if d in DTYPES]
    widest = max(listed, key=lambda d: DTYPES[d].bytes, default="f32")
    if any(a.default is None for a in o.attributes):
        return []
    # Ranges are a program's: what an operator alone becomes, it becomes with those of each call.
    o = replace(o, downgrades=tuple(replace(d, settings=tuple(s for s in d.settings if s.key != "ranges")) if d.settings else d for d in o.downgrades))
    items = tuple(o if isinstance(i, Operator) and i.name == o.name else i for i in module.items)
    made = [replace(p, type=_plain(p.type, widest)) for p in o.operands]
    results = tuple(replace(r, type=_plain(r.type, widest)) for r in o.results)
    out = []
    for weights in (False, True):
        inputs = tuple(Operand(x.name, x.type, weights and k > 0) for k, x in enumerate(made))
        node = Node(tuple(Edge(r.name) for r in results), o.name, tuple(Edge(x.name) for x in inputs), loc=o.name_span)
        p = Pipeline(f"{o.name}_called", inputs, results, (node,), where=o.where, span=o.span, name_span=o.name_span, signature=o.signature)
        out.append(replace(module, items=(*items, p)))
    return out


def _plain(t: TensorType, dtype: str) -> TensorType:
    """A type without variables: `T` is a dtype, `...` are two axes."""
    dims: list[Expr] = []
    for d in t.dims:
        dims += [Name(f"D{k}") for k in range(RANK)] if isinstance(d, Dots) else [d]
    return replace(t, dims=tuple(dims), dtype=t.dtype if t.dtype in DTYPES else dtype)


# --------------------------------------------------------------------------------------------------------------------------- labels


def unused_labels(project: Project, programs: Iterable[Module]) -> list[Diagnostic]:
    """Labels of the project's policies that no node of its programs has."""
    some = list(programs)
    report = Report()
    for target, labels in project.labels.items():
        for label, span in labels.items():
            if not any(_has(m, label) for m in some):
                report.warning("downgrade", span, f"the policy for {target} names '{label}', and no program under the project has a node with that label", (),
                               "give the node the label, '… as " + label.rpartition(".")[2] + "', or leave it out")
    return report.diagnostics


def _has(module: Module, label: str) -> bool:
    """Whether a node of a pipeline, or inside a labelled graph, has a label."""
    operators: Mapping[str, Operator] = {o.name: o for o in module.operators}
    return any(_inside(p.nodes, label.split("."), operators) for p in module.pipelines)


def _inside(nodes: Iterable[object], path: Sequence[str], operators: Mapping[str, Operator]) -> bool:
    for n in nodes:
        if isinstance(n, Node) and n.label == path[0]:
            op = operators.get(n.op)
            if len(path) == 1 or (op is not None and op.graph is not None and _inside(op.graph.nodes, path[1:], operators)):
                return True
    return False
