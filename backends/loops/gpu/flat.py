"""Several ranges as one flat loop: the number of a combination of indices, and the indices of a number."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pipelink_ir.backends.loops.emit import Atom, i64
from pipelink_ir.backends.loops.lower import Env, Lowering
from pipelink_ir.ir.nodes import Range
from pipelink_ir.passes.scheduling.counts import names


@dataclass(frozen=True, slots=True)
class Flat:
    """Ranges (name, first place, extent), and how many combinations of indices they have."""

    ranges: tuple[tuple[str, Atom, Atom], ...]
    total: Atom


def flat(lo: Lowering, ranges: tuple[Range, ...], env: Env) -> Flat:
    """Ranges whose bounds are known where they are written."""
    out: list[tuple[str, Atom, Atom]] = []
    total: Atom = i64(1)
    for r in ranges:
        first: Atom = lo.index(r.lo, env) if r.lo is not None else i64(0)
        n = lo.e.op("max", lo.e.op("-", lo.index(r.hi, env), first), i64(0))
        out.append((r.index, first, n))
        total = lo.e.op("*", total, n)
    return Flat(tuple(out), total)


def unravel(lo: Lowering, ranges: tuple[tuple[str, Atom, Atom], ...], p: Atom) -> list[Atom]:
    """The indices of which `p` is the number, the last one fastest."""
    e, at, left = lo.e, [], p
    for k, (name, first, n) in reversed(list(enumerate(ranges))):
        place = left
        if k:
            place, left = e.op("rest", left, n, hint=name), e.op("quot", left, n)
        at.append(e.op("+", first, place))
    return at[::-1]


def independent(ranges: tuple[Range, ...]) -> int:
    """How many ranges there are before the first whose bounds depend on an index of one before it."""
    bound: set[str] = set()
    for k, r in enumerate(ranges):
        if any(names(b) & bound for b in (r.lo, r.hi) if b is not None):
            return k
        bound.add(r.index)
    return len(ranges)


@contextmanager
def nested(lo: Lowering, ranges: tuple[Range, ...], env: Env, at: list[Atom]) -> Iterator[tuple[Env, list[Atom]]]:
    """Serial loops over ranges, one in the other."""
    if not ranges:
        yield env, at
        return
    r = ranges[0]
    first: Atom = lo.index(r.lo, env) if r.lo is not None else i64(0)
    with lo.e.loop(r.index, first, lo.index(r.hi, env)) as i, nested(lo, ranges[1:], env.plus({r.index: i}), [*at, i]) as found:
        yield found
