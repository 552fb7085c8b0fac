"""`nth` and `argnth`: selection by rank, ascending, equal values by index, NaN last.

A short window with a constant rank becomes a network of comparisons (Batcher's odd-even merge; what the wanted place does not need is dropped as dead code).
Everything else gathers the candidates that pass the filter into scratch and sorts them there by merging, once for all ranks that are asked of them.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.emit import FALSE, TRUE, Atom, Emitter, i64, key_of
from pipelink_ir.backends.loops.fold import must
from pipelink_ir.backends.loops.lower import Env, Lowering
from pipelink_ir.backends.loops.reduce import Position, combinations, empty_value, nest, or_empty
from pipelink_ir.ir.diagnostics import internal_error
from pipelink_ir.ir.dtypes import BOOL, F64, I32, I64, DType
from pipelink_ir.ir.nodes import Reduce
from pipelink_ir.passes.scheduling.counts import known, names, ranges_of, unrolled

_LEVELS = 40
"""Merging doubles the length of sorted runs so often: enough for any array."""


def ranked(lo: Lowering, x: Reduce, env: Env) -> Atom:
    """The value of `nth` or `argnth`."""
    if x.rank is None:
        internal_error(f"'{x.kind}' without a rank")
    return _network(lo, x, env) if unrolled(x) else _sorted(lo, x, env)


# ---------------------------------------------------------------------------------------------------------------------- networks


def _network(lo: Lowering, x: Reduce, env: Env) -> Atom:
    e, rank = lo.e, known(x.rank) or 0
    terms = combinations(lo, x, env)
    place = rank if rank >= 0 else len(terms) + rank
    if not 0 <= place < len(terms):
        return or_empty(lo, x, must(0, x.dtype or I32), FALSE)
    values = [lo.value(x.body, inner) for inner, _ in terms]
    if x.kind == "nth":
        for i, j in exchanges(len(values)):
            values[i], values[j] = _ordered(e, values[i], values[j])
        return e.convert(values[place], x.dtype or values[place].dtype)
    places: list[Atom] = [must(at, I32) for _, at in terms]
    for i, j in exchanges(len(values)):
        a, b, p, q = values[i], values[j], places[i], places[j]
        swap = e.op("or", before(e, b, a), e.op("and", e.op("not", before(e, a, b)), e.op("<", q, p)))
        values[i], values[j] = e.choose(swap, b, a), e.choose(swap, a, b)
        places[i], places[j] = e.choose(swap, q, p), e.choose(swap, p, q)
    return places[place]


def exchanges(n: int) -> Iterator[tuple[int, int]]:
    """The pairs (i < j) that a sorting network of n places compares, in order (Knuth, 5.2.2, algorithm M)."""
    top = 1 << max(0, n - 1).bit_length() >> 1
    p = top
    while p:
        q, r, d = top, 0, p
        while True:
            for i in range(n - d):
                if i & p == r:
                    yield i, i + d
            if q == p:
                break
            d, q, r = q - p, q >> 1, p
        p >>= 1


def _ordered(e: Emitter, a: Atom, b: Atom) -> tuple[Atom, Atom]:
    if a.dtype.is_int:
        return e.op("min", a, b), e.op("max", a, b)
    swap = before(e, b, a)
    return e.choose(swap, b, a), e.choose(swap, a, b)


def before(e: Emitter, a: Atom, b: Atom) -> Atom:
    """Whether a stands strictly before b: smaller, or a number before a NaN."""
    less = e.op("<", a, b) if a.dtype is not BOOL else e.op("and", e.op("not", a), b)
    return e.op("or", less, e.op("and", e.op("==", a, a), e.op("!=", b, b))) if a.dtype.is_float else less


# ----------------------------------------------------------------------------------------------------------------------- sorting


@dataclass(frozen=True, slots=True)
class Sorted:
    """Candidates in order: memory with their values and their places, from the element `first` on, and how many there are."""

    keys: str
    places: str
    dtype: DType
    count: Atom
    first: Atom = field(default_factory=lambda: i64(0))


def _sorted(lo: Lowering, x: Reduce, env: Env) -> Atom:
    e = lo.e
    order = _order(lo, x, env)
    assert x.rank is not None
    rank = lo.index(x.rank, env)
    place = e.choose(e.op("<", rank, i64(0)), e.op("+", rank, order.count), rank)
    ok = e.op("and", e.op(">=", place, i64(0)), e.op("<", place, order.count))
    dtype = x.dtype or order.dtype

    def taken() -> Atom:
        at = e.op("+", order.first, place)
        if x.kind == "nth":
            return e.convert(e.bind("nth", form.Load(order.keys, at, order.dtype, order.dtype)), dtype)
        return e.bind("argnth", form.Load(order.places, at, I32, I32))

    def nothing() -> Atom:
        if lo.op.empty is not None:
            return empty_value(lo, dtype)
        lo.fail(x.span, f"'{x.kind}' of rank {{0}} among {{1}} candidates has no value", rank, order.count)
        return must(0, dtype)

    return e.branch(ok, taken, nothing, dtype)


def _order(lo: Lowering, x: Reduce, env: Env) -> Sorted:
    """The sorted candidates, found again where an equal set of them was sorted before, and sorted outside of loops over ranks alone."""
    e = lo.e
    free: set[str] = set(names(Reduce("sum", x.ranges, x.where, x.body)))
    bound = {n: env.names[n] for n in sorted(free) if n in env.names}
    key: Any = ("order", x.ranges, x.where, x.body, tuple((n, key_of(a)) for n, a in bound.items()))
    found = e.find(key)
    if found is None:
        with e.at_depth(e.outermost(e.depth_of(*bound.values()), loads=True)):
            found = (lo.team and lo.team(lo, x, env)) or _sort(e, _gather(lo, x, env))
            e.remember(key, found)
    return found  # type: ignore[no-any-return]


def _scratch(e: Emitter, hint: str, dtype: DType, size: Atom) -> str:
    name = e.memory(hint)
    e.raw(form.Alloc(name, dtype, size))
    return name


def _capacity(lo: Lowering, x: Reduce, env: Env) -> Atom:
    """How many candidates there may be."""
    e, ranges = lo.e, ranges_of(x)
    bound = {r.index for r in ranges}
    if any(names(b) & bound for r in ranges for b in (r.lo, r.hi) if b is not None):
        n = e.var("capacity", i64(0))
        nest(lo, ranges, env, lambda inner, at: e.assign(n, form.Op("+", (n, i64(1)), I64)))
        return n
    out: Atom = i64(1)
    for r in ranges:
        first = lo.index(r.lo, env) if r.lo is not None else i64(0)
        out = e.op("*", out, e.op("max", e.op("-", lo.index(r.hi, env), first), i64(0)))
    return out


def _gather(lo: Lowering, x: Reduce, env: Env) -> Sorted:
    e, dtype = lo.e, x.body.dtype or F64
    size = _capacity(lo, x, env)
    keys, places, n = _scratch(e, "keys", dtype, size), _scratch(e, "places", I32, size), e.var("n", i64(0))
    position = Position(lo, x, env)

    def turn(inner: Env, at: list[Atom]) -> None:
        with e.when(TRUE if x.where is None else lo.value(x.where, inner)):
            value = lo.value(x.body, inner)
            e.raw(form.Store(keys, n, value, dtype))
            e.raw(form.Store(places, n, e.convert(position.of(at), I32), I32))
            e.assign(n, form.Op("+", (n, i64(1)), I64))

    nest(lo, ranges_of(x), env, turn)
    return Sorted(keys, places, dtype, n)


def _sort(e: Emitter, s: Sorted) -> Sorted:
    """Bottom-up merging, stable: candidates were gathered in the order of their indices."""
    n = s.count
    keys, places = _scratch(e, "merged", s.dtype, n), _scratch(e, "merged_places", I32, n)
    width = e.var("width", i64(1))
    with e.loop("level", i64(0), i64(_LEVELS)), e.when(e.bind("more", form.Op("<", (width, n), BOOL))):
        twice = e.bind("twice", form.Op("*", (width, i64(2)), I64))
        with e.loop("start", i64(0), n, twice) as start:
            mid = e.bind("mid", form.Op("min", (form.Op("+", (start, width), I64), n), I64))
            end = e.bind("end", form.Op("min", (form.Op("+", (start, twice), I64), n), I64))
            _merge(e, s, (keys, places), start, mid, end)
        with e.loop("k", i64(0), n) as k:
            e.raw(form.Store(s.keys, k, form.Load(keys, k, s.dtype, s.dtype), s.dtype))
            e.raw(form.Store(s.places, k, form.Load(places, k, I32, I32), I32))
        e.assign(width, twice)
    return s


def _merge(e: Emitter, s: Sorted, to: tuple[str, str], start: Atom, mid: Atom, end: Atom) -> None:
    """Two neighbouring sorted runs into one; of equals the left one goes first."""
    i, j = e.var("i", start), e.var("j", mid)
    with e.loop("k", start, end) as k:
        left = e.var("left", FALSE)
        with e.when(e.bind("more", form.Op("<", (i, mid), BOOL))):
            e.assign(left, TRUE)
            with e.when(e.bind("both", form.Op("<", (j, end), BOOL))):
                a = e.bind("a", form.Load(s.keys, i, s.dtype, s.dtype))
                b = e.bind("b", form.Load(s.keys, j, s.dtype, s.dtype))
                e.assign(left, e.op("not", before(e, b, a)))
        source = e.bind("source", form.Choose(left, i, j, I64))
        e.raw(form.Store(to[0], k, form.Load(s.keys, source, s.dtype, s.dtype), s.dtype))
        e.raw(form.Store(to[1], k, form.Load(s.places, source, I32, I32), I32))
        step = e.bind("step", form.Convert(left, I64, I64))
        e.assign(i, form.Op("+", (i, step), I64))
        e.assign(j, form.Op("+", (j, form.Op("-", (i64(1), step), I64)), I64))
