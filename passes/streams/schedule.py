"""Streams for nodes that have none yet, by a guess of when each can begin: where more could run at once than there may be streams, and beside streams of the
user's."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class Placed:
    """Where a node goes: its device, and the number of the stream there, None while that is open."""

    device: str
    number: int | None


@dataclass(slots=True)
class _Lane:
    number: int
    free: int = 0
    """When its last node is done."""
    last: int | None = None


def earliest(placed: Sequence[Placed], needs: Sequence[Sequence[int]], weights: Sequence[int], limit: int) -> None:
    """Give every node of `placed` a number. Nodes come in the order of launch; each goes on the stream where it begins first, behind a node that it needs if
    there is a choice, so that there is less to wait for, and else on a new one while there may be more."""
    lanes: dict[str, list[_Lane]] = {}
    done: list[int] = []
    for i, p in enumerate(placed):
        mine = lanes.setdefault(p.device, [])
        ready = max((done[j] for j in needs[i]), default=0)
        lane = _named(mine, p.number) if p.number is not None else _best(mine, set(needs[i]), ready, limit)
        p.number = lane.number
        done.append(max(ready, lane.free) + weights[i])
        lane.free, lane.last = done[i], i


def _named(lanes: list[_Lane], number: int) -> _Lane:
    found = next((lane for lane in lanes if lane.number == number), None)
    if found is None:
        found = _Lane(number)
        lanes.append(found)
    return found


def _best(lanes: list[_Lane], needs: set[int], ready: int, limit: int) -> _Lane:
    best = min(lanes, key=lambda lane: (max(lane.free, ready), lane.last not in needs, -lane.free, lane.number), default=None)
    if best is not None and (best.last in needs or len(lanes) >= limit):
        return best
    taken = {lane.number for lane in lanes}
    new = _Lane(next(k for k in range(len(lanes) + 1) if k not in taken))
    lanes.append(new)
    return new
