"""Packing of buffers into one arena."""
from __future__ import annotations

import random

import pytest

from pipelink_ir.ir.packing import Lifetime, pack


def overlaps(a: Lifetime, b: Lifetime) -> bool:
    return a.first <= b.last and b.first <= a.last


@pytest.mark.parametrize("seed", range(20))
def test_buffers_that_live_together_do_not_meet(seed: int) -> None:
    rng = random.Random(seed)
    sizes = [0, 1, 63, 64, 65, 1000, 30_011, 99_999]
    buffers = [Lifetime(rng.choice(sizes), first, first + rng.randrange(6)) for first in rng.choices(range(40), k=60)]
    offsets, total = pack(buffers)
    assert all(o % 64 == 0 for o in offsets)
    for n, (a, start) in enumerate(zip(buffers, offsets, strict=True)):
        assert start + max(a.size, 1) <= total
        for b, other in zip(buffers[n + 1:], offsets[n + 1:], strict=True):
            if overlaps(a, b):
                assert start + max(a.size, 1) <= other or other + max(b.size, 1) <= start


def test_a_chain_needs_two_buffers() -> None:
    offsets, total = pack([Lifetime(1000, n, n + 1) for n in range(100)], align=8)
    assert total == 2000
    assert sorted(set(offsets)) == [0, 1000]


def test_a_hole_at_the_end_grows() -> None:
    offsets, total = pack([Lifetime(64, 0, 0), Lifetime(640, 1, 1)])
    assert (offsets, total) == ([0, 0], 640)


def test_nothing_to_pack() -> None:
    assert pack([]) == ([], 0)


def test_ten_thousand_buffers_take_a_moment() -> None:
    buffers = [Lifetime(64 * (1 + n % 7), n, n + n % 5) for n in range(10_000)]
    _, total = pack(buffers)
    most = max(sum(b.size for b in buffers if b.first <= n <= b.last) for n in range(0, 100))
    assert most <= total <= 2 * most
