"""Packing of buffers into one arena, and the lower bound of what they need."""
from __future__ import annotations

import itertools
import random

import pytest

from pipelink_ir.ir.antichain import heaviest, lower_bound
from pipelink_ir.ir.packing import MANY, Lifetime, moment_bound, pack


def serial(rng: random.Random, count: int, sizes: list[int], steps: int = 40) -> list[Lifetime]:
    return [Lifetime(rng.choice(sizes), first, first + rng.randrange(6)) for first in rng.choices(range(steps), k=count)]


def concurrent(rng: random.Random, count: int, streams: int = 3) -> list[Lifetime]:
    """Buffers between steps of a random schedule on several streams, with clocks that are worked out here."""
    known: list[list[int]] = []
    lanes: list[int] = []
    last = [[0] * streams for _ in range(streams)]
    done = [0] * streams
    for _ in range(count):
        lane = rng.randrange(streams)
        clock = list(last[lane])
        for j in rng.sample(range(len(known)), min(len(known), rng.randrange(3))):
            behind = [*known[j]]
            behind[lanes[j]] += 1
            clock = [max(a, b) for a, b in zip(clock, behind, strict=True)]
        clock[lane] = done[lane]
        known.append(clock)
        lanes.append(lane)
        done[lane] += 1
        last[lane] = [*clock[:lane], done[lane], *clock[lane + 1:]]
    place = [sum(lanes[k] == lanes[n] for k in range(n)) for n in range(count)]
    out = []
    for n in range(count):
        # Readers come after the writer, as data does.
        readers = [m for m in range(n + 1, count) if known[m][lanes[n]] > place[n] and rng.random() < 0.3][:3]
        end = [0] * streams
        for m in (n, *readers):
            end[lanes[m]] = max(end[lanes[m]], place[m] + 1)
        out.append(Lifetime(rng.randrange(1, 5000), n, max((n, *readers)), tuple(known[n]), tuple(end)))
    return out


def wrong(buffers: list[Lifetime], offsets: list[int], total: int) -> list[tuple[int, int]]:
    """Buffers that live together and meet, looked for two by two."""
    def done(a: Lifetime, b: Lifetime) -> bool:
        return a.last < b.first if not a.start else all(e <= s for e, s in zip(a.end, b.start, strict=True))

    out = [(n, n) for n, b in enumerate(buffers) if offsets[n] < 0 or offsets[n] + b.size > total]
    for (n, a), (m, b) in itertools.combinations(enumerate(buffers), 2):
        if not done(a, b) and not done(b, a) and offsets[n] < offsets[m] + b.size and offsets[m] < offsets[n] + a.size:
            out.append((n, m))
    return out


@pytest.mark.parametrize("seed", range(20))
def test_buffers_that_live_together_do_not_meet(seed: int) -> None:
    rng = random.Random(seed)
    buffers = serial(rng, 60, [0, 1, 63, 64, 65, 1000, 30_011, 99_999])
    offsets, total = pack(buffers)
    assert all(o % 64 == 0 for o in offsets)
    assert not wrong(buffers, offsets, total)
    assert total >= max(sum(-(-b.size // 64) * 64 for b in buffers if b.first <= n <= b.last) for n in range(50))


@pytest.mark.parametrize("seed", range(20))
def test_what_runs_at_the_same_time_does_not_meet(seed: int) -> None:
    buffers = concurrent(random.Random(seed), 40)
    offsets, total = pack(buffers, 256)
    assert all(o % 256 == 0 for o in offsets)
    assert not wrong(buffers, offsets, total)


def smallest(buffers: list[Lifetime]) -> int:
    """The smallest arena of units, by trying every placement in every order of bytes: each buffer rests on the ground or on one that it lives with."""
    best = sum(b.size for b in buffers)
    for order in itertools.permutations(range(len(buffers))):
        offsets: dict[int, int] = {}
        for n in order:
            tops = sorted({0, *(offsets[m] + buffers[m].size for m in offsets if buffers[m].together(buffers[n]))})
            for at in tops:
                if all(not buffers[m].together(buffers[n]) or at + buffers[n].size <= offsets[m] or offsets[m] + buffers[m].size <= at for m in offsets):
                    offsets[n] = at
                    break
        best = min(best, max(offsets[n] + buffers[n].size for n in offsets))
    return best


@pytest.mark.parametrize("seed", range(25))
def test_few_buffers_are_packed_as_well_as_can_be(seed: int) -> None:
    rng = random.Random(seed)
    buffers = serial(rng, 6, [1, 2, 3, 5, 8], 8) if seed % 2 else [Lifetime(b.size % 9 + 1, b.first, b.last, b.start, b.end) for b in concurrent(rng, 6, 2)]
    assert pack(buffers, 1)[1] == smallest(buffers)


def clique(buffers: list[Lifetime], align: int) -> int:
    """The heaviest set that is pairwise live together, by trying every set."""
    best = 0
    for bits in range(1 << len(buffers)):
        chosen = [b for n, b in enumerate(buffers) if bits >> n & 1]
        if all(a.together(b) for a, b in itertools.combinations(chosen, 2)):
            best = max(best, sum(-(-b.size // align) * align for b in chosen))
    return best


@pytest.mark.parametrize("seed", range(30))
def test_the_bound_is_the_heaviest_set_that_is_live_together(seed: int) -> None:
    rng = random.Random(seed)
    buffers = concurrent(rng, 10, 1 + seed % 4) if seed % 3 else serial(rng, 10, [1, 100, 5000], 12)
    bound = lower_bound(buffers, 64)
    assert bound.exact
    assert bound.bytes == clique(buffers, 64)
    assert moment_bound(buffers, 64) <= bound.bytes <= pack(buffers, 64)[1]


def test_the_heaviest_antichain_of_a_grid() -> None:
    # Points of a 4 x 4 grid, each before what lies to the right of it and above: antichains go down a diagonal.
    points = list(itertools.product(range(4), range(4)))
    before = [[a != b and a[0] <= b[0] and a[1] <= b[1] for b in points] for a in points]
    assert heaviest([1] * 16, before) == 4
    assert heaviest([10 if p == (0, 0) else 1 for p in points], before) == 10


@pytest.mark.parametrize("seed", range(4))
def test_a_bound_of_very_many_is_the_weight_of_some_set_that_is_live_together(seed: int) -> None:
    buffers = concurrent(random.Random(seed), 400, 1 + 2 * seed)
    bound = lower_bound(buffers, 64)
    least, reached = moment_bound(buffers, 64), pack(buffers, 64)[1]
    assert bound.exact == (seed == 0)
    assert least <= bound.bytes <= reached
    if not bound.exact:
        assert bound.bytes == bound_found_two_by_two(buffers)
        assert bound.bytes <= heaviest([-(-b.size // 64) * 64 for b in buffers], [[a.before(b) for b in buffers] for a in buffers])


def bound_found_two_by_two(buffers: list[Lifetime]) -> int:
    """Those that live at the fullest moment, and whatever else lives together with each of them, large ones first."""
    at = max({b.first for b in buffers}, key=lambda n: (sum(-(-b.size // 64) * 64 for b in buffers if b.first <= n <= b.last), -n))
    chosen = [b for b in buffers if b.first <= at <= b.last]
    for b in sorted(buffers, key=lambda b: -b.size):
        if not any(b is c for c in chosen) and all(b.together(c) for c in chosen):
            chosen.append(b)
    return sum(-(-b.size // 64) * 64 for b in chosen)


@pytest.mark.parametrize("seed", range(3))
def test_very_many_do_not_meet(seed: int) -> None:
    """Beyond the number of buffers that are compared two by two, only those that are placed earlier are looked at."""
    rng = random.Random(seed)
    buffers = concurrent(rng, MANY + 100, 1 + seed) if seed else serial(rng, MANY + 100, [64, 1000, 30_011], 400)
    for fixed in ({}, {7: 1 << 20}):
        offsets, total = pack(buffers, 64, fixed)
        assert not wrong(buffers, offsets, total)
        assert all(offsets[n] == at for n, at in fixed.items())


def test_a_chain_needs_two_buffers() -> None:
    offsets, total = pack([Lifetime(1000, n, n + 1) for n in range(100)], align=8)
    assert total == 2000
    assert sorted(set(offsets)) == [0, 1000]


def test_larger_alignments_are_kept() -> None:
    buffers = [Lifetime(100, 0, 9), Lifetime(100, 0, 9, align=1024), Lifetime(100, 0, 9), Lifetime(5000, 3, 4, align=4096)]
    offsets, total = pack(buffers, 64)
    assert [offsets[1] % 1024, offsets[3] % 4096] == [0, 0]
    assert not wrong(buffers, offsets, total)


def test_given_places_are_kept() -> None:
    buffers = [Lifetime(64, 0, 3), Lifetime(64, 1, 2), Lifetime(64, 4, 5)]
    offsets, total = pack(buffers, 64, {0: 640})
    assert offsets[0] == 640
    assert not wrong(buffers, offsets, total)
    assert total == 704


def test_nothing_to_pack() -> None:
    assert pack([]) == ([], 0)
    assert lower_bound([], 64).bytes == 0


def test_ten_thousand_buffers() -> None:
    buffers = [Lifetime(64 * (1 + n % 7), n, n + n % 5) for n in range(10_000)]
    _, total = pack(buffers)
    most = max(sum(b.size for b in buffers if b.first <= n <= b.last) for n in range(0, 100))
    assert most <= total <= 2 * most
