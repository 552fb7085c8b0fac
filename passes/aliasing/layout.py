"""What the text of a plan says of memory: where each edge lies, and which edges lie in the same place.

An edge that a plan places in an arena (`%e { arena = "cuda:0", offset = 4096, bytes = 1024 }`) is a root. One with `inplace = %x` lies where %x lies, one with
`within = %y, offset = 512` that many bytes behind the beginning of %y. An edge that is computed straight into a result of the pipeline is a root too, in memory
of the caller's. Backends, `--explain` and the pass itself read this, so that all see the same memory.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pipelink_ir.ir import contracts
from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.nodes import Const, Device, Expr, IntLit, Node, Operator, Pipeline, Read, Scoped, TensorType, Text, Value
from pipelink_ir.ir.packing import Lifetime
from pipelink_ir.passes.aliasing.order import Clocks, arguments, claimed, origins, places, value

ALIGN = 256
"""What begins in an arena begins at a multiple of this, unless its text says otherwise: a transaction of a GPU is never split."""

HOST_ALIGN = 64
"""The same in memory of the host: a line of the cache, and the widest vector."""


@dataclass(slots=True)
class Spot:
    """Where an edge lies: in the memory of `root`, behind `offsets` (expressions of the pipeline's symbols)."""

    root: str
    offsets: tuple[Expr, ...] = ()


@dataclass(slots=True)
class Root:
    """Memory of its own. `result`: which result of the pipeline it is, None in an arena. `offset` and `bytes` as the text has them, None where it has none."""

    name: str
    arena: str
    result: int | None = None
    offset: int | None = None
    bytes: Expr | None = None
    members: list[str] = field(default_factory=list)
    writers: list[int] = field(default_factory=list)
    users: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Layout:
    """The memory of one pipeline."""

    clocks: Clocks
    spots: dict[str, Spot] = field(default_factory=dict)
    roots: dict[str, Root] = field(default_factory=dict)
    elided: frozenset[int] = frozenset()
    """Nodes that are not run: what they join is written where they would put it."""
    align: Mapping[str, int] = field(default_factory=dict)
    """What contracts ask of edges."""
    device: str = ""

    @classmethod
    def of(cls, pipeline: Pipeline, device: str = "", operators: Mapping[str, Operator] | None = None) -> Layout:
        """As the plans of the nodes say. `device` names the arena of edges of which they say nothing; `operators` are asked for alignment."""
        out = _Reading(pipeline, device).run()
        out.device = device
        out.align = asked_align(pipeline, operators) if operators is not None else {}
        return out

    def lifetime(self, root: Root, size: int) -> Lifetime:
        """How long the memory of a root is in use."""
        align = max((self.align.get(m, 1) for m in root.members), default=1)
        life = self.clocks.lifetime(size, root.writers, root.users)
        return replace(life, align=align) if align > 1 else life

    @property
    def in_arena(self) -> list[Root]:
        """The roots that have to be packed, in the order of the text."""
        return [r for r in self.roots.values() if r.result is None]


class _Reading:
    def __init__(self, pipeline: Pipeline, device: str) -> None:
        self.pipeline, self.device = pipeline, device
        self.said: dict[str, Mapping[str, Value]] = {}
        self.maker: dict[str, int] = {}
        self.found: dict[str, Spot] = {}

    def run(self) -> Layout:
        p = self.pipeline
        out = Layout(Clocks.of(p), elided=frozenset(n for n, node in enumerate(p.nodes) if isinstance(node, Node) and is_true(node, "elided")))
        for n, node in enumerate(p.nodes):
            if isinstance(node, Node):
                self.said.update((s.tensor, settings(s)) for s in places(node.plan))
                self.maker.update((e.name, n) for e in node.results)
        straight = claimed(p)
        for edge, n in self.maker.items():
            spot = self._spot(edge)
            out.spots[edge] = spot
            root = out.roots.get(spot.root)
            if root is None:
                root = out.roots[spot.root] = self._root(spot.root, straight)
            root.members.append(edge)
            root.writers.append(n)
        origin = origins(p)
        for n, node in enumerate(p.nodes):
            for e in arguments(node) if isinstance(node, Node) else ():
                spot_ = out.spots.get(origin.get(e.name, e.name))
                if spot_ is not None:
                    out.roots[spot_.root].users.append(n)
        return out

    def _spot(self, edge: str) -> Spot:
        """Where an edge lies. What is found of edges on the way is remembered, so that a long chain is gone through once."""
        way: list[tuple[str, tuple[Expr, ...]]] = []
        while edge not in self.found and len(way) < len(self.maker):
            keys = self.said.get(edge, {})
            of = keys.get("within", keys.get("inplace"))
            if not isinstance(of, Read) or of.tensor not in self.maker:
                break
            offset = keys.get("offset")
            way.append((edge, (offset,) if "within" in keys and isinstance(offset, Expr) else ()))
            edge = of.tensor
        spot = self.found.setdefault(edge, Spot(edge))
        for name, offsets in reversed(way):
            spot = self.found[name] = Spot(spot.root, (*offsets, *spot.offsets))
        return spot

    def _root(self, name: str, straight: Mapping[str, int]) -> Root:
        node = self.pipeline.nodes[self.maker[name]]
        assert isinstance(node, Node)
        keys = self.said.get(name, {})
        arena, offset, size = keys.get("arena"), keys.get("offset"), keys.get("bytes")
        named = arena.value if isinstance(arena, Text) else arena_of(node.device or self.pipeline.device, self.device)
        return Root(name, named, straight.get(name), offset.value if isinstance(offset, IntLit) else None, size if isinstance(size, Expr) else None)


def settings(scoped: Scoped) -> dict[str, Value]:
    """What a plan says of one edge, by key."""
    return {s.key: s.value for s in scoped.settings}


def is_true(node: Node, key: str) -> bool:
    """Whether a node's plan says `key = true`."""
    found = value(node.plan, key)
    return isinstance(found, Const) and found.name == "true"


def arena_of(device: Device | None, given: str = "") -> str:
    """The arena of a device, by name; `given` stands for all."""
    if given:
        return given
    if device is None or device.kind == "target":
        return "cuda:0"
    return f"cuda:{device.index}" if device.kind == "cuda" else device.kind


def align_of(arena: str) -> int:
    """What everything in an arena is aligned to."""
    return HOST_ALIGN if arena == "cpu" else ALIGN


def types_of(pipeline: Pipeline) -> dict[str, TensorType]:
    """The types of all edges, in symbols of the pipeline."""
    out = {o.name: o.type for o in pipeline.inputs}
    for node in pipeline.nodes:
        if isinstance(node, Node):
            out.update((e.name, t) for e, t in zip(node.results, node.types, strict=False))
        elif node.of.name in out:
            out[node.name.name] = out[node.of.name]
    return out


def product(factors: Sequence[Expr]) -> Expr:
    """A product in its normal form."""
    from pipelink_ir.ir.affine import normal
    from pipelink_ir.ir.nodes import Apply
    number = 1
    out: Expr | None = None
    for f in factors:
        if isinstance(f, IntLit):
            number *= f.value
        else:
            out = f if out is None else Apply("*", (out, f))
    return IntLit(number) if out is None else normal(Apply("*", (IntLit(number), out)) if number != 1 else out)


def bytes_of(type: TensorType) -> Expr:
    """The bytes of a dense tensor."""
    return product((IntLit(DTYPES[type.dtype].bytes), *type.dims))


def asked_align(pipeline: Pipeline, operators: Mapping[str, Operator]) -> dict[str, int]:
    """What contracts say of the alignment of edges: operators that read them, operators that make them. Edges of which nothing is said are missing."""
    origin = origins(pipeline)
    out: dict[str, int] = {}
    for node in pipeline.nodes:
        if isinstance(node, Node):
            op = operators[node.op]
            pairs = [(origin.get(a.name, a.name), o.name) for a, o in zip(arguments(node), op.operands, strict=True)]
            pairs += [(e.name, r.name) for e, r in zip(node.results, op.results, strict=True)]
            for edge, name in pairs:
                found = contracts.setting(op, "memory", "align", name)
                value_ = found.setting.value if found is not None else None
                if isinstance(value_, IntLit):
                    out[edge] = max(out.get(edge, 1), value_.value)
    return out


def overwritten(pipeline: Pipeline) -> dict[str, frozenset[tuple[int, int]]]:
    """The operators that are called somewhere with a result in the place of an operand: (result, operand) by number. A kernel of such an operator may not be
    told that the two are apart."""
    origin = origins(pipeline)
    out: dict[str, frozenset[tuple[int, int]]] = {}
    for node in pipeline.nodes:
        if isinstance(node, Node):
            taken = {s.tensor: of.tensor for s in places(node.plan) if isinstance(of := settings(s).get("inplace"), Read)}
            names = [origin.get(a.name, a.name) for a in arguments(node)]
            pairs = [(r, o) for r, e in enumerate(node.results) for o, name in enumerate(names) if name == taken.get(e.name)]
            if pairs:
                out[node.op] = out.get(node.op, frozenset()) | frozenset(pairs)
    return out
