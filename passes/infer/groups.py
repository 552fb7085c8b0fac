"""The order in which definitions can be computed: strongly connected groups, and for each ring the axis along which it runs."""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pipelink_ir.ir.affine import normal
from pipelink_ir.ir.diagnostics import Note, Report
from pipelink_ir.ir.nodes import Apply, Expr, IntLit, Name, Read
from pipelink_ir.ir.typed import Group, Recurrence
from pipelink_ir.ir.walk import reads_in
from pipelink_ir.passes.infer.drafts import Draft, DraftPiece


@dataclass(frozen=True, slots=True)
class SelfRead:
    """A read between two tensors of one ring."""

    reader: str
    piece: DraftPiece
    read: Read


def order_groups(tensors: Mapping[str, Draft], report: Report) -> list[Group] | None:
    """All results and locals in an order in which each group reads only itself and what stands before; None after an error."""
    needs = {n: {r.tensor for p in t.pieces for r in _reads(p) if r.tensor in tensors} for n, t in tensors.items()}
    out: list[Group] = []
    failed = False
    for ring in components(list(tensors), needs):
        if len(ring) == 1 and ring[0] not in needs[ring[0]]:
            out.append(Group((ring[0],), None))
            continue
        group = _recurrence(sorted(ring, key=list(tensors).index), tensors, report)
        if group is None:
            failed = True
        else:
            out.append(group)
    return None if failed else out


def _reads(p: DraftPiece) -> Iterator[Read]:
    yield from reads_in(p.value)
    for a in p.axes:
        for e in (a.lo, a.hi):
            if e is not None:
                yield from reads_in(e)


def components(nodes: Sequence[str], needs: Mapping[str, set[str]]) -> list[list[str]]:
    """Strongly connected components, what is needed first (Tarjan, without recursion)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    out: list[list[str]] = []
    for root in nodes:
        if root in index:
            continue
        work: list[tuple[str, Iterator[str]]] = [(root, iter(sorted(needs[root])))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, rest = work[-1]
            for n in rest:
                if n not in index:
                    index[n] = low[n] = len(index)
                    stack.append(n)
                    on_stack.add(n)
                    work.append((n, iter(sorted(needs[n]))))
                    break
                if n in on_stack:
                    low[node] = min(low[node], index[n])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    ring: list[str] = []
                    while True:
                        n = stack.pop()
                        on_stack.discard(n)
                        ring.append(n)
                        if n == node:
                            break
                    out.append(ring)
    return out


def _recurrence(ring: Sequence[str], tensors: Mapping[str, Draft], report: Report) -> Group | None:
    reads = [SelfRead(n, p, r) for n in ring for p in tensors[n].pieces for r in reads_in(p.value) if r.tensor in ring]
    best: list[tuple[SelfRead, int]] = []
    for first in range(tensors[ring[0]].rank):
        axes = _axes(ring, reads, tensors, first)
        if axes is None:
            continue
        lags = [(s, _lag(s, axes[s.reader], axes[s.read.tensor])) for s in reads]
        known = [(s, lag) for s, lag in lags if lag is not None]
        if len(known) < len(lags):
            continue
        step = _direction(tensors, axes, [lag for _, lag in known])
        wrong = [(s, lag) for s, lag in known if lag * step > 0]
        inner = _step_order(ring, [(s.reader, s.read.tensor) for s, lag in known if lag == 0])
        if not wrong and inner is not None and any(lag for _, lag in known):
            return Group(tuple(inner), Recurrence(tuple(axes[n] for n in inner), step))
        best = best or wrong
    _report(ring, reads, best, tensors, report)
    return None


def _axes(ring: Sequence[str], reads: Sequence[SelfRead], tensors: Mapping[str, Draft], first: int) -> dict[str, int] | None:
    """For each tensor of the ring the axis that corresponds to axis `first` of the first one."""
    axes = {ring[0]: first}
    changed = True
    while changed and len(axes) < len(ring):
        changed = False
        for s in reads:
            a, b = s.reader, s.read.tensor
            if a in axes and b not in axes:
                found = [q for q in range(tensors[b].rank) if _lag(s, axes[a], q) is not None]
            elif b in axes and a not in axes:
                found = [q for q in range(tensors[a].rank) if _lag(s, q, axes[b]) is not None]
            else:
                continue
            if found:
                axes[b if a in axes else a] = found[0]
                changed = True
    return axes if len(axes) == len(ring) else None


def _lag(s: SelfRead, axis: int, read_axis: int) -> int | None:
    """How many places further than the place being computed the read lies along the axis; None if that is no constant."""
    own = s.piece.axes[axis]
    index = s.read.indices[read_axis]
    if own.position is not None:
        constant = normal(index)
        return constant.value - own.position if isinstance(constant, IntLit) else None
    return offset(index, own.index)


def offset(index: Expr, name: str) -> int | None:
    """c if `index` is `name + c`."""
    if isinstance(index, Name) and index.name == name:
        return 0
    difference = normal(Apply("-", (index, Name(name))))
    return difference.value if isinstance(difference, IntLit) else None


def _direction(tensors: Mapping[str, Draft], axes: Mapping[str, int], lags: Sequence[int]) -> int:
    """1 if the axis runs upwards. The base case tells: at 0 upwards, at the far end downwards; without one, the reads do."""
    if any(p.axes[axes[n]].position == 0 for n in axes for p in tensors[n].pieces):
        return 1
    return 1 if sum(lag < 0 for lag in lags) >= sum(lag > 0 for lag in lags) else -1


def _step_order(ring: Sequence[str], edges: Sequence[tuple[str, str]]) -> list[str] | None:
    """The order within one step: what is read at the same place comes first; None if tensors need each other there."""
    needs: dict[str, set[str]] = {n: set() for n in ring}
    for reader, read in edges:
        needs[reader].add(read)
    if any(n in needs[n] for n in ring):
        return None
    parts = components(ring, needs)
    return [p[0] for p in parts] if all(len(p) == 1 for p in parts) else None


def _report(ring: Sequence[str], reads: Sequence[SelfRead], wrong: Sequence[tuple[SelfRead, int]], tensors: Mapping[str, Draft], report: Report) -> None:
    if wrong:
        s, lag = wrong[0]
        up = lag > 0
        report.error("recurrence", s.read.span, f"this axis runs {'upwards' if up else 'downwards'}, so a step cannot read the one {abs(lag)} "
                     f"{'ahead' if up else 'before it'}", [Note(f"'%{s.read.tensor}' is defined here", tensors[s.read.tensor].pieces[0].target)],
                     "read an earlier step, or turn the axis round with a base case at the other end")
        return
    first = min((p for n in ring for p in tensors[n].pieces if any(s.piece is p for s in reads)), key=lambda p: p.span.start)
    culprit = next((s for s in reads if not _at_the_same_place(s)), None)
    if culprit is None:
        others = [Note(f"and '%{n}' here", tensors[n].pieces[0].target) for n in ring if first not in tensors[n].pieces]
        report.error("cycle", first.target, "this definition needs itself at the same place" if len(ring) == 1 else
                     f"{' and '.join(f'%{n}' for n in ring)} need each other at the same place", others,
                     "read an earlier step, or break the ring; a definition is no assignment, and a sum is written 'sum[k < K](…)'")
        return
    report.error("recurrence", culprit.read.span, "a recurrence reads itself a constant number of steps earlier along one axis, this read does not",
                 [Note(f"'%{culprit.reader}' is computed here", culprit.piece.target)], "write the index as 't - 1' with the index of the left side")


def _at_the_same_place(s: SelfRead) -> bool:
    """Whether every index of the read is an index of the left side as it is."""
    return all(any(_lag(s, a, b) == 0 for a in range(len(s.piece.axes))) for b in range(len(s.read.indices)))
