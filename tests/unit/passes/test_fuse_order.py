"""The order of groups: merges are refused exactly where they would close a cycle, and the order holds after each."""
from __future__ import annotations

import random

import pytest

from pipelink_ir.passes.fusion import order as orders
from pipelink_ir.passes.fusion.order import Order


def _leads(order: Order, a: int, b: int) -> bool:
    """Whether a way leads from `a` to `b` through a third group, by brute force."""
    seen: set[int] = set()
    stack = [g for g in order.behind[a] if g != b]
    while stack:
        g = stack.pop()
        if g == b:
            return True
        if g not in seen:
            seen.add(g)
            stack += order.behind[g]
    return False


def _labels(order: Order) -> list[int]:
    return [order.label[g] for g in order.sequence()]


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("gap", [1 << 64, 40])
def test_random_merges(seed: int, gap: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders, "_GAP", gap)   # a small one runs out of room between two labels
    r = random.Random(seed)
    order, edges = Order(), {}
    for n in range(r.randint(3, 25)):
        edges[n] = [k for k in range(n) if r.random() < 2 / n]
        order.add(n, edges[n])
    group = {n: n for n in edges}
    for _ in range(40):
        if len(order.label) < 2:
            break
        a, b = r.sample(list(order.label), 2)
        between = order.between(a, b)
        assert (between is None) == (_leads(order, a, b) or _leads(order, b, a))
        if between is not None:
            kept = order.merge(a, b, between)
            group = {n: kept if g in (a, b) else g for n, g in group.items()}
        place = {g: k for k, g in enumerate(order.sequence())}
        assert len(set(_labels(order))) == len(place)
        assert all(group[k] == group[n] or place[group[k]] < place[group[n]] for n, before in edges.items() for k in before)


def test_a_search_that_finds_too_much_gives_up() -> None:
    order = Order()
    order.add(0, [])
    for n in range(1, orders.WINDOW + 10):
        order.add(n, [0])
    order.add(1000, [])
    assert order.between(0, 1000) is None
    assert order.between(5, 1000) == []


def test_a_group_that_is_taken_away_leaves_no_edges() -> None:
    order = Order()
    order.add(0, [])
    order.add(1, [0])
    order.add(2, [1])
    order.remove(1)
    order.need(2, 0)
    assert order.sequence() == [0, 2]
    assert order.between(0, 2) == []
