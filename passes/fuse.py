"""Which nodes become one operator.

Before:  %edges = @sobel_3x3(%img)                   After:  %out = @sobel_3x3.gamma_correct(%img) reason = "fused: sobel_3x3, gamma_correct: '%edges' stays …"
         %out   = @gamma_correct.1(%edges)

Along edges a node goes together with what it reads, pointwise operators, stencils and rows of reductions alike; what reads the same edge over the same box goes
side by side, and so does what is small and independent. Results that nobody else reads become locals of the fused operator, which is index notation
again, prints, and reads back. An edge that is fused away still rounds to its dtype, so that fused equals unfused bit for bit. What is recomputed, kept in
registers or written to memory is the schedule's decision from then on.

`fusion/groups.py` says in which order groups grow, `fusion/weigh.py` weighs each step in bytes and operations of a device (`fusion/cost.py`), `fusion/order.py`
keeps cycles out, `fusion/compose.py` writes the operators.

Requires: a flat pipeline, types inferred.
Keeps: results, bit for bit; the order that `after` asks for; operators with a kernel, a library, a schedule or a downgrade policy of their own.
Adds: operators with joined names; `reason` on the nodes: what stays inside and what it saves, and for each edge between two nodes why it was not fused.
"""
from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field, replace

from pipelink_ir.ir.affine import normal
from pipelink_ir.ir.diagnostics import Report, UsageError
from pipelink_ir.ir.nodes import Alias, Edge, Expr, IntLit, Module, Name, Node, Operator, Pipeline, Setting
from pipelink_ir.ir.walk import deep
from pipelink_ir.passes.fusion.canonical import in_canonical_order
from pipelink_ir.passes.fusion.compose import Composed, Part, Refused, Side, compose
from pipelink_ir.passes.fusion.groups import Call, Group, read_graph
from pipelink_ir.passes.fusion.grow import grow
from pipelink_ir.passes.fusion.placed import Placed, placed
from pipelink_ir.passes.fusion.reasons import declined, fused, told_before
from pipelink_ir.passes.fusion.weigh import stem
from pipelink_ir.passes.infer.operator import infer_operator, keep_typed, typed_operator
from pipelink_ir.passes.manager import register_pass
from pipelink_ir.passes.scheduling.attention import heads
from pipelink_ir.passes.scheduling.settle import settled

NAMED = 6
"""So many operators a joined name spells out."""
ASKED = 24
"""Of so many calls together the schedule is asked where their edges live; larger groups are weighed by the model alone."""
EFFORT = 6000
"""How much the schedule is asked in one module: k calls together, in an arrangement that was not asked for before, count for k * (k + 8). What comes behind
is weighed by the model alone, so that pipelines of thousands of nodes are fused within seconds."""


@dataclass(frozen=True, slots=True)
class Options:
    """How large a fused operator may be, and what it is for."""

    nodes: int = 128
    """Most nodes in one fused operator; 1 switches fusion off."""
    definitions: int = 256
    """Most definitions in one fused operator, since types, places and code are found for each."""
    code: int = 8192
    """Most operations that its definitions write out."""
    arguments: int = 96
    """Most arrays that it reads and writes: a launch carries 4096 bytes of addresses, sizes and scalars."""
    waiting: int = 48
    """Most values that wait in registers until all that read them are done."""
    device: str = ""
    """`cpu` or `cuda`: whose numbers decide; otherwise those of the device that a node is placed on, and a GPU's where none is named."""


@register_pass("fuse", "which nodes become one operator", Options, typed=True)
def fuse(module: Module, options: Options, report: Report) -> Module:
    """Fuse each pipeline; see the page above."""
    if options.device not in ("", "cpu", "cuda"):
        raise UsageError(f"fuse: 'device' is cpu or cuda, not '{options.device}'")
    with deep():
        return Fusion(module, options).run()


@dataclass(slots=True)
class Fusion:
    """Fuses a module; and others after it, in which operators of one name are one operator: what became of calls that were seen before is known then."""

    module: Module
    options: Options
    operators: dict[str, Operator] = field(default_factory=dict)
    made: dict[tuple[object, ...], Composed | str] = field(default_factory=dict)
    """What calls of the same operators in the same arrangement became, edges by number; or why they became nothing."""
    places: dict[tuple[object, ...], Placed | None] = field(default_factory=dict)
    """Where the edges inside such calls live."""
    effort: int = EFFORT
    """What is left for asking."""
    attentions: dict[str, bool] = field(default_factory=dict)
    """Operators that were looked at, and whether they are attention."""

    def again(self, module: Module) -> Module:
        """Fuse another module."""
        self.module, self.effort = module, EFFORT
        return self.run()

    def run(self) -> Module:
        """Fuse each pipeline."""
        if self.options.nodes <= 1:
            return self.module
        self.operators |= {o.name: o for o in self.module.operators}
        pipelines = {p.name: _Pipeline(self, p).run() for p in self.module.pipelines}
        if all(pipelines[p.name] is p for p in self.module.pipelines):
            return self.module
        called = dict.fromkeys(n.op for p in pipelines.values() for n in p.nodes if isinstance(n, Node))
        items = [pipelines[i.name] if isinstance(i, Pipeline) else i for i in self.module.items if not isinstance(i, Operator)]
        at = next(k for k, i in enumerate(items) if isinstance(i, Pipeline))
        return replace(self.module, items=(*items[:at], *(self.operators[name] for name in called), *items[at:]))

    def placed(self, parts: tuple[Part, ...], edges: dict[str, int], device: str) -> Placed | None:
        """Where the edges inside some calls live on a device, by their names."""
        key = (device, *_arrangement(parts, edges))
        if key not in self.places:
            size = len(parts) * (len(parts) + 8)
            if size > self.effort:
                return None
            self.effort -= size
            self.places[key] = None if (made := placed(parts, device)) is None else made.renamed({e: str(k) for e, k in edges.items()})
        found = self.places[key]
        return None if found is None else found.renamed({str(k): e for e, k in edges.items()})

    def composed(self, parts: tuple[Part, ...], edges: dict[str, int]) -> Composed | str:
        """The operator of some calls. `edges` numbers what they read and make, so that equal arrangements are found."""
        key = _arrangement(parts, edges)
        found = self.made.get(key)
        if found is None:
            found = self._compose(parts)
            if isinstance(found, Composed):
                found = replace(found, args=tuple(str(edges[e]) for e in found.args), results=tuple(str(edges[e]) for e in found.results))
            self.made[key] = found
        if isinstance(found, str):
            return found
        names = {str(k): e for e, k in edges.items()}
        return replace(found, args=tuple(names[k] for k in found.args), results=tuple(names[k] for k in found.results))

    def _compose(self, parts: tuple[Part, ...]) -> Composed | str:
        try:
            made = compose(self._name([p.op.name for p in parts]), parts)
        except Refused as refused:
            return str(refused)
        report = Report()
        typed = infer_operator(made.op, report)
        if typed is None or report.failed:
            return "as one operator it could not be proven right"
        keep_typed(made.op, typed)
        self.operators[made.op.name] = made.op
        return made

    def _name(self, parts: list[str]) -> str:
        stems = list(map(stem, parts))
        text = ".".join(stems) if len(stems) <= NAMED else ".".join([*stems[:NAMED - 1], f"and_{len(stems) - NAMED + 1}_more"])
        k = 0
        while (name := text if k == 0 else f"{text}.{k}") in self.operators:
            k += 1
        return name


def _arrangement(parts: tuple[Part, ...], edges: dict[str, int]) -> tuple[object, ...]:
    """What tells calls of some operators apart."""
    return tuple((p.op.name, tuple(edges[e] for e in p.args), tuple(edges[e] for e in p.results), tuple(e in p.kept for e in p.results), p.sizes)
                 for p in parts)


class _Inseparable(Exception):
    """A group that cannot be composed, and not be taken apart either."""


@dataclass(frozen=True, slots=True)
class _Made:
    """A group with its operator; None where it is one node."""

    group: Group
    op: Composed | None


class _Pipeline:
    """One pipeline: its groups, and the nodes that they become."""

    def __init__(self, fusion: Fusion, pipeline: Pipeline) -> None:
        self.fusion, self.written = fusion, pipeline
        self.pipeline = replace(pipeline, nodes=in_canonical_order(pipeline, fusion.operators))
        self.outputs = {r.name for r in pipeline.results} | {n.of.name for n in pipeline.nodes if isinstance(n, Alias)}
        self.needed: set[str] = set()
        self.sizes: dict[Expr, int] = {}

    def run(self) -> Pipeline:
        try:
            made = self._groups(copies=True)
        except _Inseparable:
            made = self._groups(copies=False)
        if not any(m.op for m in made) and not any(self.graph.declined):
            return self.written
        return replace(self.pipeline, nodes=tuple(self._nodes(made)))

    def _groups(self, copies: bool) -> list[_Made]:
        g = self.graph = read_graph(self.pipeline, self.fusion.operators, self.fusion.options)
        self.needed = self.outputs | g.waited
        g.ask = self._placed
        grow(g, copies, self._attention)
        groups = [g.groups[k] for k in g.order.sequence()]
        self.needed = self.outputs | g.waited | {e for group in groups for e in group.reads}
        return [m for group in groups for m in self._made(group)]

    def _attention(self, calls: list[Call]) -> bool:
        """Whether some calls are attention together."""
        own = {c.number for c in calls}
        stay = {e for c in calls for e in c.results if e in self.needed or not own.issuperset(self.graph.readers.get(e, ()))}
        made = self.fusion.composed(*self._arranged(calls, stay, frozenset()))
        if not isinstance(made, Composed):
            return False
        known = self.fusion.attentions
        if made.op.name not in known:
            known[made.op.name] = bool(heads(settled(typed_operator(made.op))))
        return known[made.op.name]

    def _made(self, group: Group) -> list[_Made]:
        """The operator of a group; if it cannot be written, those of the groups that it was made of."""
        if len(group.calls) == 1:
            return [_Made(group, None)]
        made = self.fusion.composed(*self._parts(group))
        if isinstance(made, Composed):
            return [_Made(group, made)]
        if group.parts is None:
            raise _Inseparable
        a, b = group.parts
        for e in b.reads.keys() & a.made.keys():
            self.graph.declined |= {(e, call.number): made for call in b.calls if e in call.args}
        self.needed |= a.reads.keys() | b.reads.keys()
        return [*self._made(a), *self._made(b)]

    def _placed(self, calls: Sequence[Call], kept: Set[str], clones: Set[str], device: str) -> Placed | None:
        return self.fusion.placed(*self._arranged(calls, kept, clones), device) if len(calls) <= ASKED else None

    def _parts(self, group: Group) -> tuple[tuple[Part, ...], dict[str, int]]:
        return self._arranged(group.calls, self.needed, group.clones)

    def _arranged(self, calls: Sequence[Call], needed: Set[str], clones: Set[str]) -> tuple[tuple[Part, ...], dict[str, int]]:
        """Calls as parts of one operator, and the edges that they read and make by number."""
        edges: dict[str, int] = {}
        sizes: dict[int, int] = {}
        read = {a for call in calls for a in call.args}
        parts = []
        for call in calls:
            for e in (*call.args, *call.results):
                edges.setdefault(e, len(edges))
            kept = frozenset(e for e in call.results if e not in clones and (e in needed or e not in read))
            own = tuple(tuple(sizes.setdefault(self._size(d), len(sizes)) for d in t.dims) for t in call.node.types)
            parts.append(Part(call.op, call.args, call.results, kept, own))
        return tuple(parts), edges

    def _size(self, d: Expr) -> int:
        """A number for each size: equal sizes have equal ones."""
        key = d if isinstance(d, IntLit | Name) else normal(d)
        return self.sizes.setdefault(key, len(self.sizes))

    # ------------------------------------------------------------------------------------------------------------------------ nodes

    def _nodes(self, made: list[_Made]) -> list[Node | Alias]:
        """The nodes in order; a second name stands right behind what it is a name of."""
        names: dict[str, list[Alias]] = {}
        out: list[Node | Alias] = []
        for n in self.pipeline.nodes:
            if isinstance(n, Alias):
                names.setdefault(n.of.name, []).append(n)
        for o in self.pipeline.inputs:
            self._named(o.name, names, out)
        for m in made:
            node = self._node(m)
            out.append(node)
            for e in node.results:
                self._named(e.name, names, out)
        return out

    def _named(self, edge: str, names: dict[str, list[Alias]], out: list[Node | Alias]) -> None:
        for n in names.get(edge, ()):
            out.append(n)
            self._named(n.name.name, names, out)

    def _node(self, m: _Made) -> Node:
        group, last = m.group, m.group.calls[-1].node
        reasons = [*fused(self.graph, group)] if m.op is not None else []
        reasons += [part for c in group.calls for part in told_before(c.node.reason)]
        reasons += declined(self.graph, group)
        reason = "; ".join(dict.fromkeys(reasons)) or None
        if m.op is None:
            return last if reason == last.reason else replace(last, reason=reason)
        edges = {e.name: e for c in group.calls for e in c.node.results} | {x.name: x for c in group.calls for x in c.node.args if isinstance(x, Edge)}
        types = {e: t for c in group.calls for e, t in zip(c.results, c.node.types, strict=True)}
        attrs = tuple(s for c, side in zip(group.calls, m.op.sides, strict=True) for s in _attrs(c.node, side))
        after = tuple({e.name: e for c in group.calls for e in c.node.after}.values())
        return replace(last, results=tuple(edges[e] for e in m.op.results), types=tuple(types[e] for e in m.op.results), op=m.op.op.name,
                       args=tuple(edges.get(e) or Edge(e, span=last.span) for e in m.op.args), attrs=attrs, after=after, reason=reason)


def _attrs(n: Node, side: Side) -> list[Setting]:
    """The attributes of one node under their new names; what the sizes of operands tell is not said twice."""
    return [replace(s, key=side.names[s.key]) for s in n.attrs if s.key in side.names]
