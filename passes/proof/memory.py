"""An independent proof that a plan's memory is right, from the text alone. It shares no code with the pass that wrote the plan.

- What a plan says of an edge has known keys, speaks of a result of its node, and does not speak of what the caller has memory for.
- A place begins inside its arena, at a multiple of 64 and of what contracts ask for, and is large enough for what lies there.
- `inplace = %x`: %x is an operand, lies in the same place, is not the caller's; the operator reads it at the index that it writes; everybody else who touches
  those bytes is done before.
- `within = %y, offset = K`: %y is made by a node that is `elided`, which puts the edge where K says. A node is `elided` only if it puts its operands one behind
  another, and all of them lie within its result.
- `once = true`: all operands come from parameters.
- Two edges that overlap are never live together: everything that touches the one comes before the node that writes the other (`extents.py` says which pairs it
  is enough to compare).
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pipelink_ir.ir.contracts import setting
from pipelink_ir.ir.diagnostics import Note, did_you_mean, internal_error
from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.nodes import Alias, Const, Edge, Expr, IntLit, Items, Node, Operator, Pipeline, Read, Scoped, Setting, TensorType, Text, Value
from pipelink_ir.ir.source import Span
from pipelink_ir.passes.contracts.inplace import hazard_of
from pipelink_ir.passes.proof.extents import Extents
from pipelink_ir.passes.proof.joins import joined_at
from pipelink_ir.passes.proof.order import HappensBefore, Late, Twice

KEYS = ("arena", "offset", "bytes", "inplace", "within")
_SHOWN = {"arena": '"cuda:0"', "inplace": "%x", "within": "%y", "offset": "4096", "bytes": "4096"}
LEAST_ALIGN = 64
"""What every place in an arena begins at a multiple of."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong, at which node, and where in its plan."""

    node: int
    message: str
    help: str
    span: Span | None = None
    notes: tuple[Note, ...] = ()


@dataclass(slots=True)
class _Entry:
    """What the plan of node `node` says of one of its results."""

    edge: str
    node: int
    keys: dict[str, Setting]
    scoped: Scoped

    def read(self, key: str) -> str | None:
        value = self.keys[key].value if key in self.keys else None
        return value.tensor if isinstance(value, Read) else None

    def number(self, key: str) -> int | None:
        value = self.keys[key].value if key in self.keys else None
        return value.value if isinstance(value, IntLit) else None

    @property
    def arena(self) -> str | None:
        value = self.keys["arena"].value if "arena" in self.keys else None
        return value.value if isinstance(value, Text) else None


@dataclass(frozen=True, slots=True)
class Item:
    """Bytes that a node writes first, and the nodes that touch them. `over`: the edge whose bytes are taken over."""

    name: str
    arena: str
    begin: int
    end: int
    maker: int
    touched: tuple[int, ...]
    over: str | None = None
    parts: tuple[str, ...] = ()
    """The names under which these bytes may be taken over."""
    kernels: tuple[int, int] | None = None
    """Of what a node needs for itself: the first and the last of its kernels that use it."""


@dataclass(frozen=True, slots=True)
class Scratch:
    """Bytes `begin` to `end` of an arena that kernels `first` to `last` of a node use for themselves."""

    node: int
    name: str
    arena: str
    begin: int
    end: int
    first: int
    last: int


@dataclass(slots=True)
class MemoryProof:
    """The proof for one pipeline, whose nodes are ordered as `order` says."""

    pipeline: Pipeline
    nodes: Sequence[Node]
    order: HappensBefore
    operators: Mapping[str, Operator]
    faults: list[Fault] = field(default_factory=list)
    entries: dict[str, _Entry] = field(default_factory=dict)
    maker: dict[str, int] = field(default_factory=dict)
    types: dict[str, TensorType] = field(default_factory=dict)
    touched: dict[str, list[int]] = field(default_factory=dict)
    """For each edge the nodes that write or read it."""
    origin: dict[str, str] = field(default_factory=dict)
    """What second names stand for."""

    def run(self) -> list[Fault]:
        """Everything that is wrong with the text."""
        self._gather()
        for e in self.entries.values():
            self._entry(e)
        if not self.faults:
            for i, n in enumerate(self.nodes):
                self._flags(i, n)
            for e in self.entries.values():
                self._relations(e)
        if not self.faults:
            self._overlaps(self._items())
        return self.faults

    def check(self, places: Mapping[str, tuple[str, int, int]], more: Iterable[Scratch], sizes: Mapping[str, int]) -> list[Fault]:
        """The same for numbers that were found for given sizes: `places` of edges (arena, begin, end) and of what nodes need for themselves, in arenas of these
        `sizes`."""
        self._gather()
        items = [self._item(name, *where) for name, where in places.items() if not self._is_whole(name)]
        items += [Item(s.name, s.arena, s.begin, s.end, s.node, (s.node,), kernels=(s.first, s.last)) for s in more]
        for x in items:
            if x.begin < 0 or x.end > sizes.get(x.arena, 0):
                self._fault(x.maker, f"'{x.name}' lies at {x.begin} to {x.end} of {x.arena}, which has {sizes.get(x.arena, 0)} bytes", "")
        self._overlaps(items)
        return self.faults

    def _fault(self, node: int, message: str, help: str, span: Span | None = None, notes: tuple[Note, ...] = ()) -> None:
        self.faults.append(Fault(node, message, help, span, notes))

    # ------------------------------------------------------------------------------------------------------------------- the text

    def _gather(self) -> None:
        self.types = {o.name: o.type for o in self.pipeline.inputs}
        origin: dict[str, str] = {}
        for a in self.pipeline.nodes:
            if isinstance(a, Alias):
                origin[a.name.name] = origin.get(a.of.name, a.of.name)
        for i, n in enumerate(self.nodes):
            self.types.update((e.name, t) for e, t in zip(n.results, n.types, strict=False))
            self.maker.update((e.name, i) for e in n.results)
            self.touched.update((e.name, [i]) for e in n.results)
            for e in _reads(n):
                name = origin.get(e.name, e.name)
                self.touched.setdefault(name, []).append(i)
            for s in n.plan.entries if n.plan is not None else ():
                if isinstance(s, Scoped):
                    if s.tensor in self.entries:
                        self._fault(i, f"the place of '%{s.tensor}' is written twice", "keep one of the two", s.span)
                    self.entries[s.tensor] = _Entry(s.tensor, i, {x.key: x for x in s.settings}, s)
        self.types.update((name, self.types[of]) for name, of in origin.items() if of in self.types)
        self.origin = origin

    def _callers(self, edge: str) -> bool:
        """Whether an edge is computed into the caller's memory."""
        return any(self.origin.get(r.name, r.name) == edge for r in self.pipeline.results)

    def _entry(self, e: _Entry) -> None:
        for key, s in e.keys.items():
            wanted = {"arena": Text, "inplace": Read, "within": Read, "offset": Expr, "bytes": Expr}.get(key)
            if wanted is None:
                self._fault(e.node, f"a place has no '{key}'", did_you_mean(key, KEYS) or f"there are {', '.join(KEYS)}", s.key_span)
            elif not isinstance(s.value, wanted):
                self._fault(e.node, f"'{key}' is written otherwise", f"write '{key} = {_SHOWN[key]}'", s.span)
        if e.edge not in {x.name for x in self.nodes[e.node].results}:
            self._fault(e.node, f"the plan speaks of '%{e.edge}', which is no result of this node", "write it at the node that makes it", e.scoped.span)
            return
        if self._callers(e.edge):
            self._fault(e.node, f"'%{e.edge}' is a result of the pipeline and is computed into the caller's memory", "drop its place", e.scoped.span)
        if ("within" in e.keys) == ("arena" in e.keys):
            self._fault(e.node, f"'%{e.edge}' lies either in an arena or within another edge", "write 'arena' or 'within'", e.scoped.span)
        if "within" in e.keys and ("offset" not in e.keys or "inplace" in e.keys):
            self._fault(e.node, f"'%{e.edge}' lies within '%{e.read('within')}', at an offset, and takes over nobody's bytes", "write 'within' and 'offset'",
                        e.scoped.span)
        if not self.faults:
            self._borders(e)

    def _borders(self, e: _Entry) -> None:
        """Where it begins, and whether it is large enough."""
        offset, size, least = e.number("offset"), e.number("bytes"), self._least(e.edge)
        if "arena" in e.keys:
            if "offset" in e.keys and offset is None:
                self._fault(e.node, f"the offset of '%{e.edge}' is no number", "an offset for sizes that are not known is found at the call: leave it out",
                            e.keys["offset"].span)
            if offset is not None and offset < 0:
                self._fault(e.node, f"'%{e.edge}' begins before its arena, at {offset}", "an offset is not negative", e.keys["offset"].span)
            align = max(LEAST_ALIGN, self._align(e.edge))
            if offset is not None and offset % align:
                self._fault(e.node, f"'%{e.edge}' begins at {offset}, which is no multiple of {align}", f"write {-(-offset // align) * align}",
                            e.keys["offset"].span)
            if offset is not None and "bytes" not in e.keys:
                self._fault(e.node, f"'%{e.edge}' has an offset, but no size", "write 'bytes'", e.scoped.span)
        if size is not None and least is not None and size < least:
            self._fault(e.node, f"'%{e.edge}' has {least} bytes, and its place has {size}", f"write 'bytes = {least}'", e.keys["bytes"].span)

    def _least(self, edge: str) -> int | None:
        """The bytes of an edge, if they are known."""
        t = self.types.get(edge)
        if t is None or t.dtype not in DTYPES:
            return None
        size = DTYPES[t.dtype].bytes
        for d in t.dims:
            if not isinstance(d, IntLit):
                return None
            size *= d.value
        return size

    def _align(self, edge: str) -> int:
        """What contracts say of an edge: of the operand that reads it, of the result that it is."""
        asked = []
        i = self.maker[edge]
        for k in dict.fromkeys((i, *self.touched[edge])):
            op = self.operators.get(self.nodes[k].op)
            if op is None:
                continue
            pairs = [(o.name, self.origin.get(a.name, a.name)) for o, a in zip(op.operands, _reads(self.nodes[k]), strict=False)]
            pairs += [(r.name, x.name) for r, x in zip(op.results, self.nodes[k].results, strict=False)]
            for name, of in pairs:
                found = setting(op, "memory", "align", name) if of == edge else None
                if found is not None and isinstance(found.setting.value, IntLit):
                    asked.append(found.setting.value.value)
        return max(asked, default=1)

    # ------------------------------------------------------------------------------------------------------------------ relations

    def _flags(self, i: int, n: Node) -> None:
        if _says(n, "once"):
            ready = {o.name for o in self.pipeline.inputs if o.param}
            for e in _reads(n):
                name = self.origin.get(e.name, e.name)
                made = self.maker.get(name)
                if name not in ready and not (made is not None and _says(self.nodes[made], "once")):
                    self._fault(i, f"'@{n.op}' cannot run once: '%{e.name}' is no parameter", "drop 'once'", None, (Note("read here", e.span),))
        if _says(n, "elided"):
            op = self.operators.get(n.op)
            outside = [e.name for e in _reads(n) if self._within(self.origin.get(e.name, e.name)) != n.results[0].name]
            if op is None or len(n.results) != 1 or outside:
                what = f"'%{outside[0]}' does not lie within '%{n.results[0].name}'" if outside else "it has several results"
                self._fault(i, f"'@{n.op}' cannot be left out: {what}", "drop 'elided'")

    def _within(self, edge: str) -> str | None:
        e = self.entries.get(edge)
        return e.read("within") if e is not None else None

    def _relations(self, e: _Entry) -> None:
        over, whole = e.read("inplace"), e.read("within")
        if over is not None:
            self._in_place(e, self.origin.get(over, over))
        if whole is not None:
            self._slice(e, whole)

    def _in_place(self, e: _Entry, x: str) -> None:
        n, span = self.nodes[e.node], e.keys["inplace"].span
        op, below = self.operators.get(n.op), self.entries.get(x)
        operands = [k for k, a in enumerate(_reads(n)) if self.origin.get(a.name, a.name) == x]
        if not operands or op is None:
            self._fault(e.node, f"'%{x}' is no operand of '@{n.op}'", "name an operand", span)
        elif below is None or "arena" not in below.keys:
            whose = "the caller's" if self._callers(x) or x not in self.maker else "part of another edge" if below is not None else "in no known place"
            self._fault(e.node, f"'%{e.edge}' cannot take over the bytes of '%{x}', which is {whose}", "drop 'inplace'", span)
        elif (below.arena, below.number("offset")) != (e.arena, e.number("offset")):
            self._fault(e.node, f"'%{e.edge}' and '%{x}' do not begin at one place", "give them one offset", e.scoped.span)
        else:
            result = op.results[[r.name for r in n.results].index(e.edge)]
            why = next((w for w in (hazard_of(op, result, op.operands[k]) for k in operands) if w is not None), None)
            if why is not None:
                self._fault(e.node, f"'%{e.edge}' cannot take over the bytes of '%{x}': {why}", "drop 'inplace'", span)
            self._alone(e, x, span)

    def _alone(self, e: _Entry, x: str, span: Span) -> None:
        """Everybody else who touches the bytes is done."""
        other = next((k for k in self._all_touching(x) if k != e.node and not self.order.before(k, e.node)), None)
        if other is not None:
            self._fault(e.node, f"'%{e.edge}' takes over the bytes of '%{x}' while '@{self.nodes[other].op}' may still use them",
                        "drop 'inplace', or order the nodes", span, (Note("used here", self.nodes[other].span),))

    def _all_touching(self, edge: str) -> list[int]:
        """Who touches the bytes of an edge, as itself, or as part of it."""
        parts = [a.name for a in _reads(self.nodes[self.maker[edge]])] if self._is_whole(edge) else []
        return [*self.touched[edge], *(k for p in parts for k in self.touched.get(self.origin.get(p, p), ()))]

    def _slice(self, e: _Entry, whole: str) -> None:
        span = e.keys["within"].span
        made = self.maker.get(whole)
        if made is None or not _says(self.nodes[made], "elided"):
            self._fault(e.node, f"'%{e.edge}' cannot lie within '%{whole}', which no elided node makes", "write 'elided = true' at the node that joins", span)
            return
        if self._callers(e.edge) or self._within(whole) is not None or e.edge not in self.maker:
            self._fault(e.node, f"'%{e.edge}' cannot lie within '%{whole}'", "drop 'within'", span)
            return
        join = self.nodes[made]
        places = [k for k, a in enumerate(_reads(join)) if self.origin.get(a.name, a.name) == e.edge]
        offset = e.keys["offset"].value
        why = "it is joined there more than once, or not at all" if len(places) != 1 else None
        if why is None and isinstance(offset, Expr):
            why = joined_at(self.operators[join.op], join, places[0], offset, self.types)
        if why is not None:
            self._fault(e.node, f"'%{e.edge}' cannot lie within '%{whole}': {why}", "drop 'within' and 'elided'", span, (Note("joined here", join.span),))
        if whole not in self.entries and not self._callers(whole):
            self._fault(e.node, f"'%{whole}' itself has no place", "give it one", span)

    # ------------------------------------------------------------------------------------------------------------------- overlaps

    def _is_whole(self, edge: str) -> bool:
        """Whether all bytes of an edge are those of its parts."""
        made = self.maker.get(edge)
        return made is not None and _says(self.nodes[made], "elided")

    def _item(self, name: str, arena: str, begin: int, end: int) -> Item:
        e = self.entries.get(name)
        over = e.read("inplace") if e is not None else None
        whole = self._within(name)
        touched = (*self.touched[name], *(self.touched.get(whole, ()) if whole is not None else ()))
        return Item(f"%{name}", arena, begin, end, self.maker[name], touched, self.origin.get(over, over) if over is not None else None,
                    (name, *((whole,) if whole is not None else ())))

    def _items(self) -> list[Item]:
        """The places of the text that have numbers."""
        out = []
        for e in self.entries.values():
            below, shift = e, 0
            whole = e.read("within")
            if whole is not None and whole in self.entries:
                below, shift = self.entries[whole], e.number("offset") or 0
            offset, size = below.number("offset"), e.number("bytes")
            if offset is not None and size and below.arena is not None and not self._is_whole(e.edge):
                out.append(self._item(e.edge, below.arena, offset + shift, offset + shift + size))
        return out

    def _overlaps(self, items: list[Item]) -> None:
        """In the order of launch each one with those whose bytes it takes over."""
        arenas: dict[str, Extents] = {}
        items = sorted((x for x in items if x.end > x.begin), key=lambda x: (x.maker, x.kernels or (0, 0)))
        for k, x in enumerate(items):
            for other in arenas.setdefault(x.arena, Extents()).take(x.begin, x.end, k):
                self._behind(items[other], x)

    def _behind(self, a: Item, b: Item) -> None:
        """Whether everything that touches `a` comes before `b` is written; where `b` takes over the bytes of `a`, but for the node that does."""
        if a.maker == b.maker and a.kernels is not None and b.kernels is not None and a.kernels[1] < b.kernels[0]:
            return
        over = b.over is not None and b.over in a.parts and a.maker != b.maker
        if any(not self.order.before(k, b.maker) for k in a.touched if not (over and k == b.maker)):
            self._fault(b.maker, f"'{b.name}' and '{a.name}' share bytes of {a.arena} and may be live together", "move one of them, or order their nodes", None,
                        (Note(f"'{a.name}' is made here", self.nodes[a.maker].span),))


def happens_before(pipeline: Pipeline, nodes: Sequence[Node]) -> HappensBefore:
    """The order of a plan that was verified before; without a whole one, that of the text."""
    whole = all(_numbers(n, "stream") for n in nodes)
    lanes = [(_device(n, pipeline), _numbers(n, "stream")[0]) if whole else ("", 0) for n in nodes]
    found = HappensBefore.of(lanes, [_numbers(n, "wait") if whole else [] for n in nodes], [_numbers(n, "record") if whole else [] for n in nodes])
    if isinstance(found, Late | Twice):
        internal_error(f"the plan of '@{pipeline.name}' cannot run")
    return found


def _device(n: Node, p: Pipeline) -> str:
    d = n.device or p.device
    return "" if d is None else f"{d.kind}:{d.index}:{d.name}"


def _numbers(n: Node, key: str) -> list[int]:
    for s in n.plan.entries if n.plan is not None else ():
        if isinstance(s, Setting) and s.key == key:
            values: Sequence[Value] = s.value.items if isinstance(s.value, Items) else (s.value,)
            return [v.value for v in values if isinstance(v, IntLit)]
    return []


def _says(n: Node, key: str) -> bool:
    return any(isinstance(s, Setting) and s.key == key and s.value == Const("true") for s in (n.plan.entries if n.plan is not None else ()))


def _reads(n: Node) -> list[Edge]:
    return [e for a in n.args for e in ((a,) if isinstance(a, Edge) else a.items)]
