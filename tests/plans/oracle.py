"""Whether a plan is harmful, by running it in every order that the device may take. This file shares no code with the passes: it knows the text of plans alone.

A launch of a stream begins when the one before it on its stream and those whose events it waits for are done. Every byte of an arena (and of memory of the
caller's) holds the name of the edge that was written last, and where in it. A plan is harmful if it can come to

- a wait that never ends: for an event that is recorded later, or by nobody; or two records of one event, so that nobody knows which is meant;
- two launches at a time of which one writes what the other reads or writes;
- a launch that reads something else than the edge it asks for: not written yet, written over, or another's; or that begins before what its `after` names;
- a launch that writes over what it reads (unless the plan says that the edge takes over those bytes, and it lies just there), or over another result of its own;
- a place outside the arena, or one that is not aligned;
- results that are not there when all is done.

An `elided` node is where what was written in parts has to be the whole: it reads that, and writes nothing; the
whole is not there before it.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pipelink_ir.ir import contracts
from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.nodes import Alias, Const, Edge, IntLit, Items, Node, Operator, Pipeline, Read, Scoped, Setting, Text, Value

ALIGN = 64

Token = tuple[str, int]
"""A byte of an edge: which, and how many bytes behind its beginning."""


@dataclass(frozen=True)
class Place:
    """Bytes `begin` to `end` of a memory."""

    memory: str
    begin: int
    end: int

    def overlaps(self, other: Place) -> bool:
        return self.memory == other.memory and self.begin < other.end and other.begin < self.end


@dataclass
class Launch:
    """A node as the device sees it."""

    number: int
    lane: tuple[str, int]
    waits: list[int]
    records: list[int]
    reads: list[str]
    after: list[int]
    writes: list[str]
    inplace: dict[str, str]
    elided: bool


@dataclass
class Plan:
    """A plan as it is written. `wrong` says why it means nothing at all."""

    launches: list[Launch] = field(default_factory=list)
    places: dict[str, Place] = field(default_factory=dict)
    parts: dict[str, list[str]] = field(default_factory=dict)
    """Of an edge that is joined from others: which, in order."""
    sizes: dict[str, int] = field(default_factory=dict)
    results: list[str] = field(default_factory=list)
    wrong: str = ""


def read_plan(p: Pipeline, operators: Iterable[Operator] = ()) -> Plan:
    """The plan of a pipeline whose nodes all have a stream. `operators` may ask for aligned operands, or promise aligned results."""
    nodes = [n for n in p.nodes if isinstance(n, Node)]
    origin: dict[str, str] = {}
    for a in p.nodes:
        if isinstance(a, Alias):
            origin[a.name.name] = origin.get(a.of.name, a.of.name)
    made = {e.name: i for i, n in enumerate(nodes) for e in n.results}
    out = Plan(results=list(dict.fromkeys(origin.get(r.name, r.name) for r in p.results if origin.get(r.name, r.name) in made)))
    for i, n in enumerate(nodes):
        keys = _keys(n)
        names = [origin.get(e.name, e.name) for e in n.args if isinstance(e, Edge)]
        after = [made[origin.get(e.name, e.name)] for e in n.after if origin.get(e.name, e.name) in made]
        out.sizes.update(_sizes(n))
        out.launches.append(Launch(i, (_device(n, p), _numbers(keys.get("stream"))[0]), _numbers(keys.get("wait")), _numbers(keys.get("record")),
                                   [x for x in names if x in made], after, [e.name for e in n.results], _inplace(n, origin), _word(keys.get("elided")) == "true"))
        if out.launches[-1].elided:
            out.parts[n.results[0].name] = names
            out.launches[-1].reads = [n.results[0].name]
    scoped = {s.tensor: {x.key: x.value for x in s.settings} for n in nodes for s in (n.plan.entries if n.plan is not None else ()) if isinstance(s, Scoped)}
    for x in out.launches:
        x.after += [made[e] for e in x.reads if e in out.parts and made[e] != x.number]
    aligned = _aligned(nodes, origin, {o.name: o for o in operators})
    for edge in made:
        out.places[edge] = _place(edge, scoped, out, aligned.get(edge, ALIGN))
    return out


def _aligned(nodes: Sequence[Node], origin: Mapping[str, str], operators: Mapping[str, Operator]) -> dict[str, int]:
    """What contracts ask of the places of edges."""
    out: dict[str, int] = {}
    for n in nodes:
        op = operators.get(n.op)
        pairs = [*zip(op.operands, n.args, strict=True), *zip(op.results, n.results, strict=True)] if op is not None else []
        for operand, e in pairs:
            found = contracts.setting(op, "memory", "align", operand.name) if op is not None else None
            if found is not None and isinstance(found.setting.value, IntLit) and isinstance(e, Edge):
                name = origin.get(e.name, e.name)
                out[name] = max(out.get(name, ALIGN), found.setting.value.value)
    return out


def _sizes(n: Node) -> Iterator[tuple[str, int]]:
    for e, t in zip(n.results, n.types, strict=True):
        size = DTYPES[t.dtype].bytes
        for d in t.dims:
            # What is known at the call only has memory of its own here: no plan gives it an offset.
            size *= d.value if isinstance(d, IntLit) else 16
        yield e.name, size


def _place(edge: str, scoped: Mapping[str, Mapping[str, Value]], plan: Plan, align: int) -> Place:
    size, keys, behind = plan.sizes[edge], scoped.get(edge, {}), 0
    for _ in range(len(scoped)):
        within = keys.get("within")
        if not isinstance(within, Read):
            break
        offset = keys.get("offset")
        behind += offset.value if isinstance(offset, IntLit) else 0
        edge, keys = within.tensor, scoped.get(within.tensor, {})
    arena, offset = keys.get("arena"), keys.get("offset")
    if isinstance(arena, Text) and isinstance(offset, IntLit):
        if offset.value + behind < 0 or offset.value < 0 or (offset.value + behind if align > ALIGN else offset.value) % align:
            plan.wrong = f"%{edge} begins at {offset.value} of its arena"
        return Place(arena.value, offset.value + behind, offset.value + behind + size)
    over = keys.get("inplace")
    if isinstance(arena, Text) and isinstance(over, Read):
        return Place(f"the bytes of %{_root(edge, scoped)}", behind, behind + size)
    return Place(f"the bytes of %{edge}", behind, behind + size)


def _root(edge: str, scoped: Mapping[str, Mapping[str, Value]]) -> str:
    """Whose bytes an edge takes over, where places are not known yet."""
    for _ in range(len(scoped)):
        over = scoped.get(edge, {}).get("inplace")
        if not isinstance(over, Read):
            break
        edge = over.tensor
    return edge


def _inplace(n: Node, origin: Mapping[str, str]) -> dict[str, str]:
    out = {}
    for s in n.plan.entries if n.plan is not None else ():
        if isinstance(s, Scoped):
            for x in s.settings:
                if x.key == "inplace" and isinstance(x.value, Read):
                    out[s.tensor] = origin.get(x.value.tensor, x.value.tensor)
    return out


def _keys(n: Node) -> dict[str, Value]:
    return {s.key: s.value for s in (n.plan.entries if n.plan is not None else ()) if isinstance(s, Setting)}


def _numbers(v: Value | None) -> list[int]:
    return [x.value for x in (v.items if isinstance(v, Items) else (v,)) if isinstance(x, IntLit)]


def _word(v: Value | None) -> str:
    return v.name if isinstance(v, Const) else ""


def _device(n: Node, p: Pipeline) -> str:
    d = n.device or p.device
    return "" if d is None else f"{d.kind}:{d.index}:{d.name}"


# ------------------------------------------------------------------------------------------------------------------------- running


class Bytes:
    """The memory of a plan, cut wherever a place begins or ends: each piece holds one token."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        cuts: dict[str, set[int]] = {}
        for edge, place in plan.places.items():
            cuts.setdefault(place.memory, set()).update((place.begin, place.end))
            # A whole is compared part by part, where the parts belong.
            for at, part in _parts(edge, plan):
                cuts[place.memory].update((place.begin + at, place.begin + at + plan.sizes[part]))
        self.pieces = {m: sorted(c) for m, c in cuts.items()}
        number = 0
        self.first: dict[tuple[str, int], int] = {}
        for m, c in self.pieces.items():
            for begin in c:
                self.first[m, begin] = number
                number += 1
        self.count = number
        self.tokens = {edge: self._written(edge) for edge in plan.places}
        self.wanted = {edge: self._whole(edge) for edge in plan.places}

    def _written(self, edge: str) -> list[tuple[int, Token]]:
        """What writing an edge puts into which piece."""
        place = self.plan.places[edge]
        inside = [b for b in self.pieces[place.memory] if place.begin <= b < place.end]
        return [(self.first[place.memory, b], (edge, b - place.begin)) for b in inside]

    def _whole(self, edge: str) -> list[tuple[int, Token]]:
        """What has to be where an edge is read: of one that is joined its parts, one behind the other."""
        parts = list(_parts(edge, self.plan))
        if not parts:
            return self.tokens[edge]
        place = self.plan.places[edge]
        out = []
        for at, part in parts:
            begin, end = place.begin + at, place.begin + at + self.plan.sizes[part]
            out += [(self.first[place.memory, b], (part, b - begin)) for b in self.pieces[place.memory] if begin <= b < end]
        return out


def _parts(edge: str, plan: Plan) -> Iterator[tuple[int, str]]:
    """The parts of an edge and where they begin in it, those of parts in turn."""
    at = 0
    for part in plan.parts.get(edge, ()):
        inner = list(_parts(part, plan))
        yield from ((at + a, x) for a, x in inner)
        if not inner:
            yield at, part
        at += plan.sizes.get(part, 0)


def harmful(plan: Plan) -> str:
    """Why a plan is harmful; empty if it is not, whatever the device does first."""
    return plan.wrong or _endless(plan) or _alone(plan) or _Runs(plan).run()


def _endless(plan: Plan) -> str:
    recorded: dict[int, int] = {}
    for x in plan.launches:
        for e in x.waits:
            if e not in recorded:
                return f"launch {x.number} waits for event {e} for ever"
        for e in x.records:
            if e in recorded:
                return f"event {e} is recorded twice"
            recorded[e] = x.number
    return ""


def _alone(plan: Plan) -> str:
    """What a launch does to itself."""
    for x in plan.launches:
        for k, edge in enumerate(x.writes):
            if x.elided:
                continue
            mine, over = plan.places[edge], x.inplace.get(edge)
            if over is not None and (plan.places[over].memory, plan.places[over].begin) != (mine.memory, mine.begin):
                return f"%{edge} takes over the bytes of %{over}, and lies elsewhere"
            for other in x.writes[:k]:
                if mine.overlaps(plan.places[other]):
                    return f"%{edge} and %{other} are written at once"
            for read in x.reads:
                if mine.overlaps(plan.places[read]) and not (over is not None and plan.places[read] == plan.places[over]):
                    return f"%{edge} is written over %{read}, which is read"
    return ""


class _Runs:
    """All runs, state by state: how far each stream is. Without a race memory depends on the state alone."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.bytes = plan, Bytes(plan)
        self.lanes: list[list[Launch]] = []
        numbers: dict[tuple[str, int], int] = {}
        self.recorder: dict[int, int] = {}
        for x in plan.launches:
            if x.lane not in numbers:
                numbers[x.lane] = len(self.lanes)
                self.lanes.append([])
            self.lanes[numbers[x.lane]].append(x)
            self.recorder.update(dict.fromkeys(x.records, x.number))
        self.reads = [frozenset(k for e in x.reads for k, _ in self.bytes.wanted[e]) for x in plan.launches]
        self.writes = [frozenset(k for e in x.writes for k, _ in self.bytes.tokens[e]) if not x.elided else frozenset() for x in plan.launches]

    def run(self) -> str:
        start = (tuple(0 for _ in self.lanes), frozenset[int](), (None,) * self.bytes.count)
        seen: set[tuple[int, ...]] = set()
        todo: list[tuple[tuple[int, ...], frozenset[int], tuple[Token | None, ...]]] = [start]
        while todo:
            at, done, memory = todo.pop()
            if at in seen:
                continue
            seen.add(at)
            ready = [(k, lane[n]) for k, (lane, n) in enumerate(zip(self.lanes, at, strict=True))
                     if n < len(lane) and all(self.recorder[e] in done for e in lane[n].waits)]
            why = self._race([x for _, x in ready])
            if why:
                return why
            for k, x in ready:
                why, after = self._launch(x, done, memory)
                if why:
                    return why
                todo.append(((*at[:k], at[k] + 1, *at[k + 1:]), done | {x.number}, after))
            if not ready:
                for e in self.plan.results:
                    if any(memory[k] != token for k, token in self.bytes.wanted[e]):
                        return f"the result %{e} is not there in the end"
        return ""

    def _race(self, ready: Sequence[Launch]) -> str:
        for i, x in enumerate(ready):
            for y in ready[:i]:
                a, b = x.number, y.number
                if self.writes[a] & (self.writes[b] | self.reads[b]) or self.writes[b] & self.reads[a]:
                    return f"launches {b} and {a} race"
        return ""

    def _launch(self, x: Launch, done: frozenset[int], memory: tuple[Token | None, ...]) -> tuple[str, tuple[Token | None, ...]]:
        if not done.issuperset(x.after):
            return f"launch {x.number} begins before what it comes after", memory
        for e in x.reads:
            for k, token in self.bytes.wanted[e]:
                if memory[k] != token:
                    return f"launch {x.number} reads {memory[k]} for %{e}", memory
        if x.elided:
            return "", memory
        now = list(memory)
        for e in x.writes:
            for k, token in self.bytes.tokens[e]:
                now[k] = token
        return "", tuple(now)


def states(plan: Plan) -> int:
    """How many states there are at most: how far each stream may be."""
    lanes: dict[tuple[str, int], int] = {}
    for x in plan.launches:
        lanes[x.lane] = lanes.get(x.lane, 1) + 1
    out = 1
    for n in lanes.values():
        out *= n
    return out


def surely_harmful(plan: Plan) -> bool:
    """The same for plans that are too large for all runs, if a look at the order alone tells: something is read, or comes after something, that nothing
    orders before it."""
    if _endless(plan):
        return True
    made = {e: x.number for x in plan.launches for e in x.writes}
    recorder = {e: x.number for x in plan.launches for e in x.records}
    last: dict[tuple[str, int], int] = {}
    before: list[int] = []
    for x in plan.launches:
        # A bit for each launch that is done.
        bits = 0
        for j in (*([last[x.lane]] if x.lane in last else []), *(recorder[e] for e in x.waits)):
            bits |= before[j] | 1 << j
        before.append(bits)
        last[x.lane] = x.number
    return any(not before[x.number] >> j & 1 for x in plan.launches for j in (*(made[e] for e in x.reads if made[e] != x.number), *x.after))
