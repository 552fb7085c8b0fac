"""Which nodes of a pipeline become one operator: groups that grow as long as that pays.

First along edges, in the order of the pipeline: a node and what it reads. Then what reads the same edge, over the same box; what is cheap and has several
readers that stay apart goes into each of them before. Last what is small and independent, over the same box, since a launch costs more than it computes.
Every step is weighed by `cost.py` and keeps the limits; why an edge stays inside or stays an edge is noted for the ledger.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Protocol

from pipelink_ir.ir.nodes import Alias, Edge, Name, Node, Operator, Pipeline, TensorType
from pipelink_ir.ir.walk import names_in
from pipelink_ir.passes.fusion.axes import Axes
from pipelink_ir.passes.fusion.cost import CPU, DEVICES, GPU, NOTHING, DeviceModel, NodeSums, Sizes, Sums
from pipelink_ir.passes.fusion.facts import Facts, facts_of
from pipelink_ir.passes.fusion.order import Order
from pipelink_ir.passes.fusion.placed import Placed
from pipelink_ir.passes.fusion.terms import Common, Terms, alone, own_terms, taken_over, terms_of


class Limits(Protocol):
    """How large a fused operator may be; see the options of the pass."""

    @property
    def nodes(self) -> int: ...

    @property
    def definitions(self) -> int: ...

    @property
    def code(self) -> int: ...

    @property
    def arguments(self) -> int: ...

    @property
    def waiting(self) -> int: ...

    @property
    def device(self) -> str: ...


@dataclass(slots=True)
class Call:
    """One node that may be fused: its operator, the edges that it reads (second names looked through) and makes, and its numbers."""

    number: int
    node: Node
    op: Operator
    facts: Facts
    args: tuple[str, ...]
    results: tuple[str, ...]
    sums: NodeSums

    def operands_of(self, edge: str) -> list[int]:
        return [k for k, a in enumerate(self.args) if a == edge]


@dataclass(slots=True)
class Group:
    """Calls that are one operator. `reads` are edges from outside with the number of members that read each; `parts` are the two groups it was made of."""

    calls: list[Call]
    terms: Terms
    """What all members must have in common."""
    device: DeviceModel
    reads: dict[str, int]
    made: dict[str, None]
    bytes: float
    work: float
    definitions: int
    code: int
    depth: float
    halo: int = 0
    waiting: int = 0
    """Values that are held while others are computed."""
    staged: list[str] = field(default_factory=list)
    """Edges of which a block keeps a part."""
    product: bool = False
    fails: bool = False
    loops: bool = False
    kept: tuple[str, ...] = ()
    """Edges that others read, or could."""
    launches: int = 1
    """Shapes of what it stores: each has a kernel of its own."""
    again: Sums = NOTHING
    """What is read and computed in more than one of its kernels."""
    inner: bool = False
    """Whether some axes are inside a block."""
    stored: frozenset[str] = frozenset()
    """Edges inside that the schedule puts into buffers all the same."""
    tiles: bool = False
    """Whether the schedule stages edges by tiles."""
    asked: bool = False
    """Whether it was asked."""
    burden: Sums = NOTHING
    """What buffers inside, their kernels and the rims of tiles add to the sums."""
    parts: tuple[Group, Group] | None = None
    notes: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    """Why edges stay inside: a text, and the edges."""
    waits: frozenset[int] = frozenset()
    """Calls that members wait for, by `after`."""
    clones: set[str] = field(default_factory=set)
    """Edges that are computed here although they are made elsewhere, too."""

    def sums(self) -> Sums:
        return Sums(self.bytes + self.again.bytes, self.work + self.again.work, self.launches).plus(self.burden)


@dataclass(slots=True)
class Graph:
    """A pipeline as calls and edges, and the groups as they stand."""

    pipeline: Pipeline
    limits: Limits
    sizes: Sizes
    calls: dict[int, Call] = field(default_factory=dict)
    groups: dict[int, Group] = field(default_factory=dict)
    group_of: dict[int, int] = field(default_factory=dict)
    """Call -> the number of its group."""
    maker: dict[str, int] = field(default_factory=dict)
    """Edge -> the node that makes it."""
    readers: dict[str, list[int]] = field(default_factory=dict)
    outside: dict[str, int] = field(default_factory=dict)
    """Edge -> how many calls outside of its maker's group read it; a result of the pipeline counts for one that never goes."""
    types: dict[str, TensorType] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)
    elements: dict[str, int] = field(default_factory=dict)
    box: dict[str, int] = field(default_factory=dict)
    """A number for the shape of each edge."""
    boxes: dict[object, int] = field(default_factory=dict)
    order: Order = field(default_factory=Order)
    axes: Axes = field(default_factory=Axes)
    first_axis: dict[str, int] = field(default_factory=dict)
    declined: dict[tuple[str, int], str] = field(default_factory=dict)
    """(edge, the call that reads it) -> why it stays an edge."""
    waited: set[str] = field(default_factory=set)
    """Edges that `after` names."""
    ask: Callable[[Sequence[Call], Set[str], Set[str], str], Placed | None] = lambda calls, kept, clones, device: None
    """Where the schedule of a device has the edges inside some calls that keep others and copy some; None if they are no operator."""
    known: dict[str, tuple[str | None, Facts, Common]] = field(default_factory=dict)
    """Of each operator: why it stays alone, what is known of it, and its terms."""

    def find(self, call: int) -> int:
        g = self.group_of[call]
        while g not in self.groups:
            g = self.group_of[g]
        self.group_of[call] = g
        return g

    def guessed(self, edges: Iterable[str]) -> bool:
        return any(self.sizes.guessed(self.types[e]) for e in edges)


def read_graph(p: Pipeline, operators: Mapping[str, Operator], limits: Limits) -> Graph:
    """The calls of a pipeline, each a group of its own."""
    g = Graph(p, limits, Sizes(p))
    origin: dict[str, str] = {}
    once = {o.name for o in p.inputs if o.param}
    outputs = {r.name for r in p.results}
    for o in p.inputs:
        _type(g, o.name, o.type)
    for n in p.nodes:
        if isinstance(n, Alias):
            origin[n.name.name] = source = origin.get(n.of.name, n.of.name)
            outputs.add(source)
        else:
            g.waited |= {origin.get(e.name, e.name) for e in n.after}
    for k, n in enumerate(p.nodes):
        if isinstance(n, Node):
            _add(g, k, n, operators[n.op], origin, once, outputs)
    return g


def _type(g: Graph, edge: str, t: TensorType) -> None:
    g.types[edge] = t = g.sizes.one(t)
    g.bytes[edge] = g.sizes.bytes(t)
    g.elements[edge] = g.sizes.elements(t)
    g.box[edge] = g.boxes.setdefault(t.dims, len(g.boxes))


def _add(g: Graph, k: int, n: Node, op: Operator, origin: Mapping[str, str], once: set[str], outputs: set[str]) -> None:
    args = tuple(origin.get(a.name, a.name) for a in n.args if isinstance(a, Edge))
    results = tuple(e.name for e in n.results)
    for e, t in zip(results, n.types, strict=True):
        _type(g, e, t)
        g.maker[e] = k
        g.outside[e] = int(e in outputs)
    waits = {origin.get(e.name, e.name) for e in n.after}
    over = {args[o] for o in taken_over(op) if args[o] not in g.maker}
    # What reads an array of the caller that a node may write into runs before it.
    g.order.add(k, {g.find(g.maker[e]) for e in (*args, *waits) if e in g.maker} | {g.find(r) for e in over for r in g.readers.get(e, ())})
    g.group_of[k] = k
    for e in dict.fromkeys(args):
        g.readers.setdefault(e, []).append(k)
        if e in g.outside:
            g.outside[e] += 1
    early = bool(args) and once.issuperset(args) and not any(isinstance(s.value, Name) or names_in_value(s.value) for s in n.attrs)
    if early:
        once.update(results)
    if op.name not in g.known:
        why = own_terms(op)
        facts = Facts() if why is not None else facts_of(op)
        g.known[op.name] = why, facts, terms_of(op)
    own, facts, common = g.known[op.name]
    own = own or alone(n) or ("may take over memory of the caller" if over else None)
    sums = NodeSums(0.0, (), ()) if own is not None else g.sizes.node(n, op, facts, tuple(g.types[a] for a in args))
    call = g.calls[k] = Call(k, n, op, facts, args, results, sums)
    device = DEVICES.get(g.limits.device) or _device(n, g.pipeline)
    place = n.device or g.pipeline.device
    terms = Terms(own, early, None if place is None else (place.kind, place.index, place.name), common)
    g.groups[k] = Group([call], terms, device, dict.fromkeys(args, 1), dict.fromkeys(results), float(sum(g.bytes[e] for e in {*args, *results})), sums.work,
                        facts.definitions, facts.code, facts.depth, 0, 0, [], facts.product, facts.fails, facts.loops, results,
                        len({g.box[e] for e in results}), inner=any(facts.inside.values()),
                        waits=frozenset(g.maker[e] for e in waits if e in g.maker))
    _axes(g, call)


def names_in_value(value: object) -> bool:
    """Whether the value of an attribute depends on sizes or on attributes of the pipeline."""
    from pipelink_ir.ir.nodes import Expr
    return isinstance(value, Expr) and bool(names_in(value))


def _device(n: Node, p: Pipeline) -> DeviceModel:
    place = n.device or p.device
    return CPU if place is not None and place.kind == "cpu" else GPU


def _axes(g: Graph, call: Call) -> None:
    inner = any(call.facts.inside.values())
    for r, e in zip(call.op.results, call.results, strict=True):
        inside = call.facts.inside.get(r.name, frozenset())
        for k, n in enumerate(g.sizes.shape(g.types[e])):
            a = g.axes.add(n, k in inside, call.facts.product and not inner)
            g.first_axis.setdefault(e, a)
        g.first_axis.setdefault(e, 0)
