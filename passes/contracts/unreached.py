"""Policies as a program meets them: clauses that none of its targets comes to, and calls whose sizes the codes of a clause cannot have."""
from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from pipelink_ir.ir import contracts
from pipelink_ir.ir.diagnostics import Note, Report
from pipelink_ir.ir.nodes import Alias, Edge, Expr, Module, Node, Operator, Setting, TensorType
from pipelink_ir.ir.prover import normal
from pipelink_ir.ir.source import Span
from pipelink_ir.ir.targets import Arch, parse_arch
from pipelink_ir.ir.walk import substitute
from pipelink_ir.passes.contracts.clause_words import Clause
from pipelink_ir.passes.contracts.sum_lengths import check_sums
from pipelink_ir.passes.infer.text import written
from pipelink_ir.passes.precision.policy import KEYS, clause_of
from pipelink_ir.passes.precision.push import Push
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
    if operators:
        calls = _Calls({o.name: o for o in module.operators}, archs, report)
        for p in module.pipelines:
            calls.nodes(p.nodes, {o.name: o.type for o in p.inputs}, {o.name for o in p.inputs if o.param}, {})
        calls.tell()
    if not any(d.severity == "error" for d in report.diagnostics):
        check_overruled(module, archs, report)


def check_overruled(module: Module, archs: Collection[Arch], report: Report) -> None:
    """Report clauses and labels that never count, since for all that they speak of another policy goes before."""
    graphs = [o for o in module.operators if o.graph is not None and o.downgrades]
    said = {arch: None for o in graphs for d in o.downgrades if d.settings and (arch := parse_arch(d.target)) is not None and arch.kind != "reference"}
    for arch in archs or said:
        if module.pipelines and any(_serves(a, arch) for a in said):
            push = Push(module, arch, counting=True)
            push.run(None)
            for op in module.operators:
                clause = clause_of(op, arch)
                if clause is not None and clause.settings:
                    _check_overruled(op, clause.settings, clause.span, push.counted, arch, report)


def _check_overruled(op: Operator, settings: Sequence[Setting], span: Span, counted: Collection[Span], arch: Arch, report: Report) -> None:
    keys = {s.key for s in settings}
    if op.graph is None:
        silent = [span] if span not in counted and keys & {"dtype", "weights"} else []
    else:
        silent = [s.span for s in settings if s.span not in counted and (s.key not in (*KEYS, "precision") or (s.key in ("dtype", "weights") and
                                                                                                                 "precision" not in keys))]
    for one in silent[:1 if op.graph is None or "precision" not in keys else None]:
        report.warning("downgrade", one, f"this never counts on {arch}: another policy goes before wherever '@{written(op.name)}' is used",
                       [Note(f"'@{written(op.name)}' is declared here", op.signature)],
                       "drop it, or change what goes before: a label of a graph around comes first, then an operator's own clause, then 'dtype' of a graph")


def _arch(settings: Collection[Setting]) -> str:
    return next((contracts.describe(s.value).strip('"') for s in settings if s.key == "arch"), "")


def _serves(clause: Arch, arch: Arch) -> bool:
    """Whether a clause is for an architecture: that of sm_90 is for sm_90a too."""
    return clause == arch or (not clause.suffix and (clause.kind, clause.sm) == (arch.kind, arch.sm))


class _Calls:
    """The calls of a module's pipelines, into graphs as well: sizes as far as they are known, and which edges come from parameters alone."""

    def __init__(self, operators: Mapping[str, Operator], archs: Collection[Arch], report: Report) -> None:
        self.operators, self.archs, self.report = operators, archs, report
        self.asked: dict[Span, tuple[Setting, list[Node]]] = {}
        """For each `weights` of a clause the calls that have none."""
        self.met: set[Span] = set()
        self.around: list[Setting] = []
        """The `weights` of graphs around a call."""
        self.seen: set[tuple[object, ...]] = set()

    def nodes(self, nodes: Sequence[Node | Alias], types: dict[str, TensorType], constant: set[str], known: Mapping[str, Expr]) -> None:
        """Look at nodes in order. `known`: what the symbols of their types are."""
        for n in nodes:
            if isinstance(n, Alias):
                types[n.name.name] = types[n.of.name]
                constant |= {n.name.name} if n.of.name in constant else set()
                continue
            types |= {e.name: _with(t, known) for e, t in zip(n.results, n.types, strict=False)}
            edges = [e.name for e in consumed(n)]
            op = self.operators.get(n.op)
            if edges and constant.issuperset(edges):
                constant |= {e.name for e in n.results}
            if op is not None and len(edges) == len(op.operands) and all(isinstance(a, Edge) for a in n.args):
                self._call(op, n, [types[e] for e in edges], [e in constant for e in edges])

    def _call(self, op: Operator, n: Node, types: list[TensorType], constant: list[bool]) -> None:
        known = bind_symbols(op, types)
        if op.graph is not None:
            key = (op.name, *types, *constant)
            if key not in self.seen:
                self.seen.add(key)
                names, outer = [o.name for o in op.operands], self.around
                self.around = [*outer, *(s for of in self._clauses(op) for s in of if s.key == "weights")]
                self.nodes(op.graph.nodes, dict(zip(names, types, strict=True)), {o for o, c in zip(names, constant, strict=True) if c}, known)
                self.around = outer
            return
        weights = [*self.around]
        for settings in self._clauses(op) if op.compute is not None else ():
            clause = Clause({s.key: s for s in settings if s.key in KEYS}, ())
            check_sums(op, clause, known, n.op_span, self.report)
            weights += [clause.of["weights"]] if "weights" in clause.of else []
        for s in weights:
            if any(constant):
                self.met.add(s.span)
            else:
                self.asked.setdefault(s.span, (s, []))[1].append(n)

    def _clauses(self, op: Operator) -> Iterator[Sequence[Setting]]:
        """The settings of each clause that is for one of the targets."""
        for d in op.downgrades:
            arch = parse_arch(d.target)
            if d.settings and arch is not None and (not self.archs or any(_serves(arch, a) for a in self.archs)):
                yield d.settings

    def tell(self) -> None:
        """Report weights that there are none of."""
        for span, (s, nodes) in self.asked.items():
            if span not in self.met:
                self.report.warning("downgrade", span, f"'{contracts.describe(s.value)}' is for weights, and no call that it speaks of has any",
                                    [Note("this one has no operand that comes from parameters alone", n.op_span) for n in nodes[:3]],
                                    "mark the weights of the pipeline, 'param %w: …', or leave 'weights' out")


def _with(t: TensorType, known: Mapping[str, Expr]) -> TensorType:
    return replace(t, dims=tuple(normal(substitute(d, known)) for d in t.dims)) if known else t
