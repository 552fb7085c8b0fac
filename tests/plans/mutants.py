"""Changes of a plan, each of one thing: an event dropped, an offset shifted, two launches swapped, a launch on another stream."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pipelink_ir.ir.nodes import Alias, IntLit, Items, Node, Pipeline, Scoped, Section, Setting, Value
from pipelink_ir.ir.source import Source, Span

HERE = Span(Source("<plan>", "plan"), 0, 4)
"""Where a plan stands that a user is told about: a pass's own has no place."""

ORDER = ("stream", "wait", "record")


@dataclass(frozen=True)
class Mutant:
    """What was changed, and the pipeline with it."""

    kind: str
    what: str
    pipeline: Pipeline


def as_user(p: Pipeline) -> Pipeline:
    """The pipeline as if its plans were written by hand."""
    return replace(p, nodes=tuple(replace(n, plan=replace(n.plan, span=HERE)) if isinstance(n, Node) and n.plan is not None else n for n in p.nodes))


def mutants(p: Pipeline) -> Iterator[Mutant]:
    """All of them."""
    yield Mutant("nothing", "nothing", as_user(p))
    p = as_user(p)
    at = [k for k, n in enumerate(p.nodes) if isinstance(n, Node)]
    yield from _events(p, at)
    yield from _streams(p, at)
    yield from _swaps(p, at)
    yield from _offsets(p, at)


def _node(p: Pipeline, k: int) -> Node:
    n = p.nodes[k]
    assert isinstance(n, Node)
    return n


def _with(p: Pipeline, k: int, n: Node) -> Pipeline:
    return replace(p, nodes=(*p.nodes[:k], n, *p.nodes[k + 1:]))


def _section(entries: Sequence[Setting | Scoped]) -> Section:
    return Section("plan", tuple(entries), span=HERE)


def _entries(n: Node) -> tuple[Setting | Scoped, ...]:
    assert n.plan is not None
    return n.plan.entries


def _numbers(v: Value) -> list[int]:
    return [x.value for x in (v.items if isinstance(v, Items) else (v,)) if isinstance(x, IntLit)]


def without(n: Node, key: str, event: int) -> Node:
    """The node without one event among those of a key."""
    out: list[Setting | Scoped] = []
    for e in _entries(n):
        if isinstance(e, Setting) and e.key == key:
            left = [x for x in _numbers(e.value) if x != event]
            if left:
                out.append(Setting(key, Items(tuple(map(IntLit, left)))))
        else:
            out.append(e)
    return replace(n, plan=_section(out))


def _events(p: Pipeline, at: Sequence[int]) -> Iterator[Mutant]:
    events: dict[int, Pipeline] = {}
    for k in at:
        for e in _entries(_node(p, k)):
            if isinstance(e, Setting) and e.key in ("wait", "record"):
                for event in _numbers(e.value):
                    yield Mutant("event dropped", f"{e.key} of event {event} at node {k}", _with(p, k, without(_node(p, k), e.key, event)))
                    events[event] = _with(events.get(event, p), k, without(_node(p, k), e.key, event))
    for event, q in events.items():
        yield Mutant("event dropped", f"event {event}", q)


def on_stream(n: Node, stream: int) -> Node:
    """The node on another stream."""
    return replace(n, plan=_section([Setting("stream", IntLit(stream)) if isinstance(e, Setting) and e.key == "stream" else e for e in _entries(n)]))


def stream_of(n: Node) -> int:
    """The stream of a node."""
    return next(_numbers(e.value)[0] for e in _entries(n) if isinstance(e, Setting) and e.key == "stream")


def _streams(p: Pipeline, at: Sequence[int]) -> Iterator[Mutant]:
    streams = {stream_of(_node(p, k)) for k in at}
    for k in at:
        for stream in sorted(streams | {max(streams) + 1}):
            if stream != stream_of(_node(p, k)):
                yield Mutant("moved", f"node {k} to stream {stream}", _with(p, k, on_stream(_node(p, k), stream)))


def _swaps(p: Pipeline, at: Sequence[int]) -> Iterator[Mutant]:
    for i, k in enumerate(at):
        for j in at[:i]:
            yield Mutant("swapped", f"nodes {j} and {k}", swapped(p, j, k))
            # The launches alone change places: each goes where the other was, on its stream and between its events.
            a, b = _node(p, j), _node(p, k)
            yield Mutant("swapped", f"nodes {j} and {k} within their streams", _with(_with(p, j, _in_place_of(b, a)), k, _in_place_of(a, b)))


def swapped(p: Pipeline, j: int, k: int) -> Pipeline:
    """Two nodes launched in each other's turn, with their plans."""
    return _with(_with(p, j, _node(p, k)), k, _node(p, j))


def _in_place_of(n: Node, other: Node) -> Node:
    mine = [e for e in _entries(n) if not (isinstance(e, Setting) and e.key in ORDER)]
    theirs = [e for e in _entries(other) if isinstance(e, Setting) and e.key in ORDER]
    return replace(n, plan=_section([*theirs, *mine]))


def placed(p: Pipeline) -> list[tuple[int, Scoped, int, int]]:
    """The edges that have an offset in an arena: node, entry, offset, bytes."""
    out = []
    for k, n in enumerate(p.nodes):
        if isinstance(n, Alias) or n.plan is None:
            continue
        for e in n.plan.entries:
            keys = {s.key: s.value for s in e.settings} if isinstance(e, Scoped) else {}
            offset, size = keys.get("offset"), keys.get("bytes")
            if isinstance(e, Scoped) and isinstance(offset, IntLit):
                out.append((k, e, offset.value, size.value if isinstance(size, IntLit) else 0))
    return out


def shifted(p: Pipeline, k: int, e: Scoped, offset: int) -> Pipeline:
    """The pipeline with one edge at another offset."""
    new = replace(e, settings=tuple(Setting("offset", IntLit(offset)) if s.key == "offset" else s for s in e.settings))
    n = _node(p, k)
    return _with(p, k, replace(n, plan=_section([new if x is e else x for x in _entries(n)])))


def _offsets(p: Pipeline, at: Sequence[int]) -> Iterator[Mutant]:
    """By steps of the alignment, by a few bytes, to where each other edge lies, and out of the arena."""
    found = placed(p)
    ends = {offset + size for _, _, offset, size in found}
    for k, e, offset, size in found:
        targets = {offset + d for d in (-size, size, -64, 64, -256, 256, 4, -4, 1)} | {o for _, x, o, _ in found if x is not e} | {-256, max(ends, default=0)}
        targets |= {o + s - 64 for _, x, o, s in found if x is not e}
        for to in sorted(targets - {offset}):
            yield Mutant("shifted", f"%{e.tensor} from {offset} to {to}", shifted(p, k, e, to))
