"""Groups made one, step by step; see `groups.py` for the order of steps and `weigh.py` for what decides."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pipelink_ir.passes.fusion.attend import attentions
from pipelink_ir.passes.fusion.cost import Sums
from pipelink_ir.passes.fusion.groups import Call, Graph, Group
from pipelink_ir.passes.fusion.terms import both
from pipelink_ir.passes.fusion.weigh import (
    Crossing,
    Verdict,
    crossings,
    kept_of,
    ratio_of,
    saved,
    small,
    static,
    stem,
    weigh_apart,
    weigh_edges,
    weigh_siblings,
)

AROUND = "a way leads from the one to the other through an operator that stays outside, or so many lie between that it cannot be told"


def grow(g: Graph, copies: bool = True, attention: Callable[[list[Call]], bool] | None = None) -> None:
    """All steps; without `copies` nothing is computed in several readers. `attention` says whether some calls are that together."""
    for numbers in attentions(g, attention) if attention is not None else ():
        _attention(g, numbers)
    for call in list(g.calls.values()):
        _upwards(g, call)
    for number in g.order.sequence() if copies else ():
        _into_readers(g, number)
    for edge in list(g.readers):
        _siblings(g, edge)
    _small(g)


def _attention(g: Graph, numbers: list[int]) -> None:
    """Calls that are attention become one group, from the last one upwards."""
    for number in reversed(numbers[:-1]):
        a, b = g.find(number), g.find(numbers[-1])
        p, c = g.groups[a], g.groups[b]
        why = static(g, p, c)
        if why is None:
            _join(g, a, b, Verdict(saved=saved(g, p, c)), "attention, whose scores are never in memory", crossings(p, c))


# -------------------------------------------------------------------------------------------------------------------- along edges


def _upwards(g: Graph, call: Call) -> None:
    """What a call reads, put into its group."""
    for edge in dict.fromkeys(call.args):
        if edge not in g.maker:
            continue
        a, b = g.find(g.maker[edge]), g.find(call.number)
        if a != b and (edge, call.number) not in g.declined:
            _try(g, a, b)


def _try(g: Graph, a: int, b: int) -> None:
    p, c = g.groups[a], g.groups[b]
    crossing = crossings(p, c)
    v = weigh_edges(g, p, c, crossing)
    why = v.refused if v.refused is not None else _join(g, a, b, v, v.text, crossing)
    if why is not None:
        for x in crossing:
            g.declined[x.edge, x.call.number] = why


def _join(g: Graph, a: int, b: int, v: Verdict, text: str, crossing: list[Crossing]) -> str | None:
    """Make two groups one; a text if the order of nodes forbids it."""
    between = g.order.between(a, b)
    if between is None:
        return AROUND
    p, c = g.groups[a], g.groups[b]
    number = g.order.merge(a, b, between)
    other = a if number == b else b
    new = _united(g, p, c, v)
    if crossing:
        new.notes.append((text, tuple(dict.fromkeys(x.edge for x in crossing))))
    elif text:
        new.notes.append((text, ()))
    del g.groups[other]
    g.groups[number] = new
    g.group_of[other] = number
    if v.trial is not None:
        v.trial.keep()
    return None


def _united(g: Graph, p: Group, c: Group, v: Verdict) -> Group:
    reads, kept = dict(p.reads), kept_of(g, p, c)
    for e, n in c.reads.items():
        reads[e] = reads.get(e, 0) + n
    for x, y in ((p, c), (c, p)):
        for e in x.made:
            if e in y.reads:
                g.outside[e] -= y.reads[e]
                del reads[e]
    calls = sorted({call.number: call for call in (*p.calls, *c.calls)}.values(), key=lambda call: call.number)
    sums = v.sums or Sums(p.bytes + c.bytes - v.saved, p.work + c.work)
    return Group(
        calls, both(p.terms, c.terms), c.device, reads, {**p.made, **c.made}, sums.bytes, sums.work, p.definitions + c.definitions, p.code + c.code,
        p.depth + c.depth, max(p.halo, c.halo, p.halo + v.halo + c.halo if v.halo else 0), p.waiting + c.waiting + v.waiting,
        [*p.staged, *c.staged, *v.staged], p.product or c.product, p.fails or c.fails, p.loops or c.loops, kept, sums.launches, v.again,
        p.inner or c.inner or (v.trial is not None and v.trial.shapes),
        frozenset(v.placed.stored) if v.placed is not None else p.stored | c.stored,
        bool(v.placed.rims) if v.placed is not None else p.tiles or c.tiles, p.asked or c.asked or v.placed is not None,
        v.burden if v.placed is not None else p.burden.plus(c.burden), (p, c), [*p.notes, *c.notes], p.waits | c.waits, p.clones | c.clones)


# ------------------------------------------------------------------------------------------------------------ into several readers


def _into_readers(g: Graph, number: int) -> None:
    """A cheap call whose readers stay apart, computed again in each of them."""
    p = g.groups.get(number)
    if p is None or len(p.calls) != 1 or p.product or p.loops or p.fails or p.inner:
        return
    call = p.calls[0]
    if call.facts.recurrent or any(g.outside[e] != len(g.readers.get(e, ())) or e in g.waited for e in call.results):
        return
    readers = list(dict.fromkeys(g.find(r) for e in call.results for r in g.readers.get(e, ())))
    if len(readers) < 2 or any(static(g, p, g.groups[r]) is not None for r in readers):
        return
    after = []
    for r in readers:
        c = g.groups[r]
        ratio = max(ratio_of(g, x) for x in crossings(p, c))
        gone = sum(g.bytes[e] for e in call.results if e in c.reads)
        more = sum(g.bytes[e] for e in p.reads if e not in c.reads and e not in c.made)
        after.append(Sums(c.bytes - gone + more, c.work + p.work * ratio, c.launches))
    device = p.device
    before = (p.sums(), *(g.groups[r].sums() for r in readers))
    old, new = sum(s.seconds(device) for s in before), sum(s.plus(g.groups[r].burden).seconds(device) for r, s in zip(readers, after, strict=True))
    if new >= old:
        return
    bytes_old, bytes_new = sum(s.bytes for s in before), sum(s.bytes for s in after)
    text = f"computed in each of its {len(readers)} readers, {round(bytes_new)} bytes instead of {round(bytes_old)}"
    _copy_into(g, number, readers, after, text)


def _copy_into(g: Graph, number: int, readers: list[int], after: list[Sums], text: str) -> None:
    p = g.groups[number]
    call = p.calls[0]
    for e in p.reads:
        if e in g.outside:
            g.outside[e] -= 1
    for r, sums in zip(readers, after, strict=True):
        c = g.groups[r]
        edges = tuple(e for e in call.results if e in c.reads)
        reads = {e: n for e, n in c.reads.items() if e not in edges}
        for e in p.reads:
            if e in c.made:
                continue
            reads[e] = reads.get(e, 0) + 1
            if e in g.outside:
                g.outside[e] += 1
                g.order.need(r, g.find(g.maker[e]))
        calls = sorted([*c.calls, call], key=lambda x: x.number)
        g.groups[r] = replace(
            c, calls=calls, terms=both(p.terms, c.terms), reads=reads, made={**c.made, **p.made}, bytes=sums.bytes, work=sums.work,
            definitions=c.definitions + p.definitions, code=c.code + p.code, depth=c.depth + p.depth, waiting=c.waiting + 1, parts=None,
            notes=[*c.notes, (text, edges)], waits=c.waits | p.waits, clones=c.clones | set(edges))
        for x in c.calls:
            for e in edges:
                g.declined.pop((e, x.number), None)
    for e in call.results:
        g.outside[e] = 0
    g.order.remove(number)
    del g.groups[number]
    g.group_of[number] = readers[-1]


# --------------------------------------------------------------------------------------------------------------------- side by side


def _box(g: Graph, group: Group) -> object:
    """The shape of everything that a group stores; None if that is not one."""
    shapes = {g.box[e] for e in group.kept}
    return shapes.pop() if len(shapes) == 1 else None


def _siblings(g: Graph, edge: str) -> None:
    """What reads one edge, made one operator."""
    numbers = list(dict.fromkeys(g.find(r) for r in g.readers[edge]))
    if len(numbers) < 2:
        return
    last: dict[object, int] = {}
    for b in numbers:
        if b not in g.groups or edge not in g.groups[b].reads:
            continue
        box = _box(g, g.groups[b])
        a = last.get(box) if box is not None else None
        if a is None or not _beside(g, a, b, edge):
            last[box] = b
        else:
            last[box] = g.find(b)


def _beside(g: Graph, a: int, b: int, edge: str) -> bool:
    p, c = g.groups[a], g.groups[b]
    if _depend(p, c):
        return False
    v = weigh_siblings(g, p, c)
    return v.refused is None and _join(g, a, b, v, f"'%{edge}' is read once for {_names(p)} and {_names(c)}: {v.text}", []) is None


def _depend(p: Group, c: Group) -> bool:
    return any(e in p.made for e in c.reads) or any(e in c.made for e in p.reads)


def _names(group: Group) -> str:
    names = list(dict.fromkeys(stem(call.op.name) for call in group.calls))
    return "@" + ".".join(names[:3]) + ("…" if len(names) > 3 else "")


def _small(g: Graph) -> None:
    """What is independent and takes less than its launch, over one box: one launch."""
    last: dict[object, int] = {}
    for b in g.order.sequence():
        group = g.groups.get(b)
        if group is None or not small(group):
            continue
        box = _box(g, group)
        key = (group.terms.early, group.terms.place, box)
        if box is None:
            continue
        a = last.get(key)
        if a is not None and not _depend(g.groups[a], group):
            p = g.groups[a]
            v = weigh_apart(g, p, group)
            if v.refused is None and _join(g, a, b, v, f"{_names(p)} and {_names(group)} share a launch: {v.text}", []) is None:
                last[key] = g.find(b)
                continue
        last[key] = b

