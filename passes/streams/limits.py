"""What contracts of execution order beyond the data: edges are added to what nodes need."""
from __future__ import annotations

from collections.abc import Sequence

from pipelink_ir.passes.streams.chains import fewest_chains


def add_limits(needs: list[list[int]], limits: Sequence[int | None], serial: Sequence[bool], operators: Sequence[str]) -> None:
    """Nodes are numbered in the order of launch; `limits` are how many nodes of a node's operator may be in flight, `serial` ones run with no other."""
    if any(serial):
        _alone(needs, serial)
    for name in dict.fromkeys(o for o, limit in zip(operators, limits, strict=True) if limit is not None):
        members = [i for i, o in enumerate(operators) if o == name]
        _at_most(needs, members, max(1, limits[members[0]] or 1))


def _alone(needs: list[list[int]], serial: Sequence[bool]) -> None:
    """A serial node comes after everything launched before it, and everything launched behind it after it."""
    barrier: int | None = None
    open_: set[int] = set()
    for i in range(len(needs)):
        before = set(needs[i])
        if barrier is not None:
            before.add(barrier)
        if serial[i]:
            before |= open_
            open_, barrier = set(), i
        else:
            open_ = (open_ - before) | {i}
        needs[i] = sorted(before)


def _at_most(needs: list[list[int]], members: Sequence[int], limit: int) -> None:
    """At most `limit` members at once. If they are never more anyway, nothing is added; else each goes behind another one, one that it comes after if there is
    such, else the one that was launched first."""
    if fewest_chains(needs, members, limit) is not None:
        return
    lanes: list[list[int]] = [[] for _ in range(limit)]
    inside = set(members)
    place: dict[int, tuple[int, int]] = {}
    knows: list[list[int]] = []
    for i, before in enumerate(needs):
        known = [0] * limit
        for j in before:
            known = [max(a, b) for a, b in zip(known, knows[j], strict=True)]
            if j in place:
                lane, at = place[j]
                known[lane] = max(known[lane], at + 1)
        if i in inside:
            free = [k for k, lane in enumerate(lanes) if known[k] >= len(lane)]
            lane = max(free, key=lambda k: lanes[k][-1] if lanes[k] else -1) if free else min(range(limit), key=lambda k: lanes[k][-1])
            if lanes[lane] and lane not in free:
                needs[i] = sorted({*before, lanes[lane][-1]})
            if lanes[lane]:
                known = [max(a, b) for a, b in zip(known, knows[lanes[lane][-1]], strict=True)]
            known[lane] = len(lanes[lane])
            place[i] = lane, len(lanes[lane])
            lanes[lane].append(i)
        knows.append(known)
