"""Policies of graphs and of the project on their way to the operators inside: what `push-policies` does, and `check-contracts` asks about."""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from pipelink_ir.ir.nodes import Alias, Downgrade, Module, Node, Operator, Pipeline, Setting
from pipelink_ir.ir.source import NOWHERE, Span
from pipelink_ir.ir.targets import Arch
from pipelink_ir.passes.precision.labels import Labels, below, fitted, kept_out, labels_of, named, settings_of, tightest
from pipelink_ir.passes.precision.policy import clause_of
from pipelink_ir.passes.verify import reachable

Settings = tuple[Setting, ...]

FEW = 8
"""So many labels are looked through for each node."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a policy around says of the operators that it names: all keys but labels and budget. Equal ones are equal wherever they stand."""

    settings: Settings
    span: Span = field(default=NOWHERE, compare=False)
    place: Span | None = None
    """Where it stands, if that is to tell it from equal ones."""


@dataclass(frozen=True, slots=True)
class Around:
    """All that is around a node. Nodes of one operator with equal surroundings share what becomes of it."""

    labels: tuple[Labels[Wish], ...] = ()
    """Of the outermost graph first."""
    dtype: Wish | None = None
    """Of the innermost graph that says something of all its nodes."""
    budget: Setting | None = None
    closed: bool = False
    """Whether a graph around has a clause, which is what the project's policy gives way to."""
    project: Labels[Wish] = ()
    rest: Wish | None = None
    """What the project says of nodes that it does not name."""


class Push:
    def __init__(self, module: Module, arch: Arch, counting: bool = False) -> None:
        """`counting`: whether `counted` is wanted, for which equal wishes are different ones if they stand at different places."""
        self.module, self.arch, self.counting, self.start = module, arch, counting, Around()
        self.operators = {o.name: o for o in module.operators}
        self.names = set(self.operators)
        self.made: dict[str, list[Operator]] = {}
        """New operators, after the one that each was made of."""
        self.done: dict[tuple[str, Around], tuple[str, str | None]] = {}
        self.copies: dict[tuple[str, object], str] = {}
        self.changed: dict[str, Operator] = {}
        """Graphs that keep their names, since every call that nothing is around comes to them."""
        self.heads: dict[int, dict[str, Labels[Wish]]] = {}
        self.counted: set[Span] = set()
        """Where the clauses, labels and settings stand that decided something."""
        self.unmet: dict[tuple[Span, str], Operator] = {}
        """What labels of the project ask of operators that cannot have it: where that stands, and why not."""
        self.kept: list[Labels[Wish]] = []
        """What the keys of `heads` are the addresses of."""

    def run(self, project: Downgrade | None) -> Module:
        if project is not None:
            labels, rest = self._wishes(project, with_budget=True)
            self.start = Around(project=labels, rest=rest)
        pipelines = {p.name: self._pipeline(p) for p in self.module.pipelines}
        if not self.made and not self.changed and all(pipelines[p.name] is p for p in self.module.pipelines):
            return self.module
        items: list[object] = []
        for item in self.module.items:
            items.append(pipelines[item.name] if isinstance(item, Pipeline) else self.changed.get(item.name, item) if isinstance(item, Operator) else item)
            items += self.made.get(item.name, ()) if isinstance(item, Operator) else ()
        new = replace(self.module, items=tuple(items))  # type: ignore[arg-type]
        used = reachable(new)
        return replace(new, items=tuple(i for i in new.items if not isinstance(i, Operator) or i.name in used))

    def _pipeline(self, p: Pipeline) -> Pipeline:
        nodes = tuple(self._node(n, self.start) if isinstance(n, Node) else n for n in p.nodes)
        return p if _same(nodes, p.nodes) else replace(p, nodes=nodes)

    def _node(self, n: Node, around: Around, budget: Setting | None = None) -> Node:
        """A node that calls what its surroundings make of its operator."""
        label = n.label
        labels = tuple(x for x in (below(self._about(s, label), label) for s in around.labels) if x)
        here = replace(around, labels=labels, project=below(self._about(around.project, label), label), budget=budget)
        key = (n.op, here)
        if key not in self.done:
            op = self.operators[n.op]
            self.done[key] = self._graph(op, here) if op.graph is not None else self._leaf(op, here)
        name, reason = self.done[key]
        if reason is not None and reason in (n.reason or ""):
            reason = None
        if name == n.op and reason is None:
            return n
        return replace(n, op=name, reason=n.reason if reason is None else f"{n.reason}; {reason}" if n.reason else reason)

    # -------------------------------------------------------------------------------------------------------------- operators

    def _about(self, labels: Labels[Wish], label: str | None) -> Labels[Wish]:
        """Those of many labels that a node can be meant by, found without looking at all of them for each node."""
        if len(labels) < FEW:
            return labels
        heads = self.heads.get(id(labels))
        if heads is None:
            found: dict[str, list[tuple[str, Wish]]] = {}
            for path, wish in labels:
                found.setdefault(path.partition(".")[0], []).append((path, wish))
            heads = self.heads[id(labels)] = {k: tuple(v) for k, v in found.items()}
            self.kept.append(labels)
        return (*heads.get("", ()), *heads.get(label.partition(".")[0], ())) if label else heads.get("", ())

    def _graph(self, op: Operator, around: Around) -> tuple[str, str | None]:
        assert op.graph is not None
        clause, inside = clause_of(op, self.arch), around
        if clause is not None and clause.settings is not None:
            labels, rest = self._wishes(clause, with_budget=False)
            own = next((s for s in clause.settings if s.key == "budget"), None)
            inside = replace(around, labels=(*around.labels, *([labels] if labels else [])), dtype=rest or around.dtype,
                             budget=tightest(around.budget, own), closed=True)
        results = _makers(op)
        nodes = tuple(self._node(n, replace(inside, budget=None), inside.budget if k in results else None) if isinstance(n, Node) else n
                      for k, n in enumerate(op.graph.nodes))
        pushed = clause is not None and clause.settings is not None
        if not pushed and _same(nodes, op.graph.nodes):
            return op.name, None
        left = tuple(d for d in op.downgrades if d is not clause) if pushed else op.downgrades
        new = replace(op, downgrades=left, graph=replace(op.graph, nodes=nodes))
        if around == Around(rest=self.start.rest):
            self.changed[op.name] = new
            return op.name, None
        return self._copy(op, new, nodes), None

    def _leaf(self, op: Operator, around: Around) -> tuple[str, str | None]:
        clause, by_label = clause_of(op, self.arch), named_at(around.labels)
        own = clause.settings if clause is not None else None
        if clause is not None and by_label is None:
            self.counted.add(clause.span)
        settings, span, reason = own, clause.span if clause is not None else NOWHERE, None
        wish = by_label
        if wish is None and clause is None:
            wish = around.dtype if around.dtype is not None or around.closed else named(around.project) or around.rest
        if wish is not None:
            self.counted |= {s.span for s in wish.settings if s.key in ("dtype", "weights")} | {wish.span}
            asked = fitted(op, settings_of(wish.settings, own or ()))
            reason = kept_out(op, asked, wish.span, self.arch)
            if reason is not None and by_label is None and wish is named(around.project):
                self.unmet.setdefault((wish.span, reason.removeprefix("declined: ")), op)
            if reason is None and asked:
                settings, span = asked, wish.span
        if around.budget is not None and (clause is None or own is not None):
            settings = tightest_in(settings or (), around.budget)
            span = around.budget.span if span is NOWHERE else span
        elif settings is None and clause is None and around.closed and (around.project or around.rest):
            settings = ()  # Says that the graph's clause leaves it alone, so that the project's does not come to it when this text is read back.
        if settings == own:
            return op.name, reason
        new = Downgrade(str(Arch(self.arch.kind, self.arch.sm)) if clause is None else clause.target, settings, span=span)
        others = tuple(d for d in op.downgrades if d is not clause)
        return self._copy(op, replace(op, downgrades=(*others, new)), new), reason

    def _wishes(self, clause: Downgrade, *, with_budget: bool) -> tuple[Labels[Wish], Wish | None]:
        """What a clause says of the nodes that it names, and of all nodes. Under `precision = mixed` only those that are named are spoken of."""
        given = labels_of(clause)

        def wish(settings: Settings) -> Wish:
            left = settings if with_budget else tuple(s for s in settings if s.key != "budget")
            return Wish(left, clause.span, next((s.span for s in left if s.key == "dtype"), None) if self.counting else None)
        rest = wish(() if given.mixed else given.rest)
        return tuple((path, wish(s)) for path, s in given.labels), rest if rest.settings else None

    def _copy(self, op: Operator, new: Operator, what: object) -> str:
        """The name of an operator that was changed; equal changes of one operator are one operator."""
        name = self.copies.get((op.name, what))
        if name is None:
            number = 1
            while f"{op.name}.{number}" in self.names:
                number += 1
            name = self.copies[op.name, what] = f"{op.name}.{number}"
            self.names.add(name)
            self.made.setdefault(op.name, []).append(replace(new, name=name))
        return name


def named_at(labels: tuple[Labels[Wish], ...]) -> Wish | None:
    """What the outermost label says that has led to a node."""
    return next((w for w in map(named, labels) if w is not None), None)


def tightest_in(settings: Settings, budget: Setting) -> Settings:
    """The settings with a budget, the smaller one where they have one."""
    own = next((s for s in settings if s.key == "budget"), None)
    best = tightest(own, budget)
    return settings if best is own or best is None else (*(s for s in settings if s.key != "budget"), best)


def _makers(op: Operator) -> frozenset[int]:
    """The nodes of a graph, by number, that make its results."""
    assert op.graph is not None
    alias = {n.name.name: n.of.name for n in op.graph.nodes if isinstance(n, Alias)}
    wanted = {_origin(r.name, alias) for r in op.results}
    return frozenset(k for k, n in enumerate(op.graph.nodes) if isinstance(n, Node) and any(e.name in wanted for e in n.results))


def _origin(name: str, alias: Mapping[str, str]) -> str:
    while name in alias:
        name = alias[name]
    return name


def _same(a: Iterable[object], b: Iterable[object]) -> bool:
    return all(x is y for x, y in zip(a, b, strict=True))
