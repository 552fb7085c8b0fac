"""The nodes of a pipeline as a graph: what each needs, about how long it takes, and in which order they are launched."""
from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.nodes import Alias, Edge, IntLit, Items, Node, Pipeline, Setting, TensorType

EXTENT = 256
"""What an extent counts for that is known only at the call."""


def plan_numbers(n: Node, key: str) -> list[int]:
    """The numbers of one key of a node's plan."""
    found = [s.value for s in (n.plan.entries if n.plan is not None else ()) if isinstance(s, Setting) and s.key == key]
    return [v.value for value in found for v in (value.items if isinstance(value, Items) else (value,)) if isinstance(v, IntLit)]


def needs_of(p: Pipeline, nodes: Sequence[Node]) -> list[set[int]]:
    """For each node those that come before it: by data, by `after`, by an event that the user's plan waits for. Second names are looked through."""
    made = {e.name: i for i, n in enumerate(nodes) for e in n.results}
    recorded = {e: i for i, n in enumerate(nodes) for e in plan_numbers(n, "record")}
    origin: dict[str, str] = {}
    for a in p.nodes:
        if isinstance(a, Alias):
            origin[a.name.name] = origin.get(a.of.name, a.of.name)
    out = []
    for n in nodes:
        names = [origin.get(e.name, e.name) for e in (*n.args, *n.after) if isinstance(e, Edge)]
        out.append({made[name] for name in names if name in made} | {recorded[e] for e in plan_numbers(n, "wait") if e in recorded})
    return out


def weights_of(p: Pipeline, nodes: Sequence[Node]) -> list[int]:
    """About how long each node takes: the bytes that it reads and writes, and at the least as much as a launch costs."""
    types = {o.name: o.type for o in p.inputs}
    for n in p.nodes:
        if isinstance(n, Node):
            types.update(zip((e.name for e in n.results), n.types, strict=False))
        elif n.of.name in types:
            types[n.name.name] = types[n.of.name]
    return [LAUNCH + sum(_bytes(types, e) for e in (*n.args, *n.results) if isinstance(e, Edge)) for n in nodes]


LAUNCH = 1 << 20
"""The bytes that a GPU moves while it begins a kernel."""


def _bytes(types: Mapping[str, TensorType], e: Edge) -> int:
    t = types.get(e.name)
    if t is None or t.dtype not in DTYPES:
        return 0
    size = DTYPES[t.dtype].bytes
    for d in t.dims:
        size *= d.value if isinstance(d, IntLit) else EXTENT
    return size


def launch_order(needs: Sequence[set[int]], weights: Sequence[int] | None) -> list[int]:
    """Of the nodes that are ready the one with the longest way to the end goes first, so that the critical path does not wait; without weights the one that
    stands first, which keeps the order of the text."""
    users: list[list[int]] = [[] for _ in needs]
    for i, before in enumerate(needs):
        for j in before:
            users[j].append(i)
    missing = [len(before) for before in needs]
    key = [-h for h in _heights(users, missing, weights)] if weights is not None else [0] * len(needs)
    ready = [(key[i], i) for i, count in enumerate(missing) if count == 0]
    heapq.heapify(ready)
    left, out = list(missing), []
    while ready:
        _, i = heapq.heappop(ready)
        out.append(i)
        for u in users[i]:
            left[u] -= 1
            if left[u] == 0:
                heapq.heappush(ready, (key[u], u))
    return out


def _heights(users: Sequence[Sequence[int]], missing: Sequence[int], weights: Sequence[int]) -> list[int]:
    """The weight of the longest way from each node to the end, itself included."""
    order = [i for i, count in enumerate(missing) if count == 0]
    left = list(missing)
    for i in order:
        for u in users[i]:
            left[u] -= 1
            if left[u] == 0:
                order.append(u)
    height = [0] * len(users)
    for i in reversed(order):
        height[i] = weights[i] + max((height[u] for u in users[i]), default=0)
    return height
