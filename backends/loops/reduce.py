"""Reductions: written out when they are short, loops with accumulators otherwise, placed at the outermost loop where all that they need exists.

Sums of f32 are added up in f32 over blocks of 256 terms, which may be reordered and become vectors, and the blocks in f64: long sums stay accurate. Filters
that cost little become a choice of the neutral element, others an `If`.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.emit import FALSE, TRUE, Atom, Emitter, i64, key_of
from pipelink_ir.backends.loops.fold import must
from pipelink_ir.backends.loops.lower import RULES, Env, Lowering
from pipelink_ir.ir.dtypes import BOOL, F8E4M3, F8E5M2, F16, F32, F64, I32, I64, DType
from pipelink_ir.ir.functions import REDUCTIONS
from pipelink_ir.ir.nodes import Apply, Expr, Range, Read, Reduce
from pipelink_ir.passes.scheduling.counts import count, names, ranges_of, terms, unrolled

BLOCK = 256
"""Terms of a float sum that are added up before they meet the f64 accumulator."""


def reduce(lo: Lowering, x: Reduce, env: Env) -> Atom:
    """The value of a reduction."""
    if id(x) in lo.ready and (accumulated := _accumulated(lo, x, env)) is not None:
        return accumulated
    free = {n: env.names[n] for n in sorted(names(x)) if n in env.names}
    key = reduced(x, env)
    found = lo.e.find(key)
    if found is not None:
        return found  # type: ignore[no-any-return]
    depth = lo.e.outermost(lo.e.depth_of(*free.values()), loads=True)
    with lo.e.at_depth(depth):
        if REDUCTIONS[x.kind].ranked:
            out = RULES["rank"](lo, x, env)
        else:
            out = _unrolled(lo, x, env) if unrolled(x) and id(x) not in lo.shared_out else (lo.team and lo.team(lo, x, env)) or _looped(lo, x, env)
        lo.e.remember(key, out)
    return out


def reduced(x: Reduce, env: Env) -> tuple[object, ...]:
    """Under which the value of a reduction is remembered."""
    return ("reduce", id(x), tuple((n, key_of(env.names[n])) for n in sorted(names(x)) if n in env.names))


def _accumulated(lo: Lowering, x: Reduce, env: Env) -> Atom | None:
    """What was accumulated for the place that is being computed, if that is the place which is asked for."""
    ready, e = lo.ready[id(x)], lo.e
    if any(key_of(env.names[n]) != key_of(lo.here[k]) for n, k in ready.axes.items()):
        return None
    place = e.op("+", e.op("-", lo.here[-1], ready.begin), lo.offset)
    seen = Seen(lo, x, env)
    return finish(lo, x, kind_of(x), e.load(ready.scratch, place, ready.dtype, False, x.kind), seen.count(), seen.any())


# ------------------------------------------------------------------------------------------------------------------ accumulators


@dataclass(frozen=True, slots=True)
class Kind:
    """How one kind of reduction goes on from a value: the function that joins two, its neutral element, the type it is kept in."""

    join: str
    neutral: form.Const
    dtype: DType


def kind_of(x: Reduce) -> Kind:
    """The accumulator of all kinds but argmax and argmin."""
    body = x.body.dtype or F64
    if x.kind in ("any", "all"):
        return Kind("or", FALSE, BOOL) if x.kind == "any" else Kind("and", TRUE, BOOL)
    if x.kind in ("max", "min"):
        low = x.kind == "max"
        limit: int | float = (body.lowest if low else body.highest) if body.is_int else float("-inf" if low else "inf")
        return Kind(x.kind, must(limit, body), body)
    if x.kind == "prod":
        dtype = F64 if body.is_float else (x.dtype or body)
        return Kind("*", must(1, dtype), dtype)
    dtype = (I64 if not body.is_float else body) if x.kind == "mean" else (x.dtype or body)
    return Kind("+", must(0, dtype), dtype)


def _now(e: Emitter, fn: str, *args: form.Expr, reorder: bool = False) -> form.Ref:
    """An operation on what a mutable scalar is at this moment: neither shared nor moved."""
    dtype = BOOL if fn in ("<", ">", "==", "!=", "and", "or", "not") else args[0].dtype
    return e.bind("a", form.Op(fn, tuple(args), dtype, reorder))


# ---------------------------------------------------------------------------------------------------------------------- unrolled


def combinations(lo: Lowering, x: Reduce, env: Env) -> list[tuple[Env, int]]:
    """The environments of all terms of an unrolled reduction, with their flat positions."""
    axes = []
    for r in ranges_of(x):
        first = lo.index(r.lo, env) if r.lo is not None else i64(0)
        assert isinstance(first, form.Const)
        axes.append([(r.index, int(first.value) + k) for k in range(count(r) or 0)])
    out = []
    for position, indices in enumerate(product(*axes)):
        at = indices[0][1] if len(indices) == 1 else position
        out.append((env.plus({n: i64(v) for n, v in indices}), at))
    return out


def _unrolled(lo: Lowering, x: Reduce, env: Env) -> Atom:
    if x.kind in ("argmax", "argmin"):
        return _unrolled_arg(lo, x, env)
    e, kind, acc, n = lo.e, kind_of(x), None, None
    seen: Atom = FALSE
    factors = factors_of(lo, x, kind)
    for inner, _ in combinations(lo, x, env):
        if factors is not None and acc is not None:
            a, b = (lo.value(f, inner) for f in factors)
            acc = e.op("fma", a, b, acc)
            continue
        passes = TRUE if x.where is None else lo.value(x.where, inner)
        value = filtered(lo, x, inner, passes, kind)
        acc = value if acc is None else e.op(kind.join, acc, value)
        one = e.convert(passes, I64)
        n = one if n is None else e.op("+", n, one)
        seen = e.op("or", seen, passes)
    return finish(lo, x, kind, acc or kind.neutral, n or i64(0), seen)


def factors_of(lo: Lowering, x: Reduce, kind: Kind) -> tuple[Expr, Expr] | None:
    """The factors of the terms of a sum whose products are added as they are formed: always if f32 holds every one of them, for the sum is the same then, else
    unless the operator is exact."""
    if x.where is not None or x.kind != "sum" or kind.dtype is not F32 or not isinstance(x.body, Apply) or x.body.fn != "*":
        return None
    a, b = x.body.args
    if a.dtype is not F32 or b.dtype is not F32:
        return None
    narrow = all(isinstance(f, Read) and lo.op.tensors[f.tensor].dtype in (F16, F8E4M3, F8E5M2) for f in (a, b))
    return (a, b) if narrow or not lo.op.exact else None


def filtered(lo: Lowering, x: Reduce, env: Env, passes: Atom, kind: Kind) -> Atom:
    """The value of a term, or the neutral element where the filter stops it."""
    def value() -> Atom:
        return lo.e.convert(lo.value(x.body, env), kind.dtype)

    if isinstance(passes, form.Const):
        return value() if passes.value else kind.neutral
    if lo.quiet(x.body):
        return lo.e.choose(passes, value(), kind.neutral)
    return lo.e.branch(passes, value, lambda: kind.neutral, kind.dtype)


def _unrolled_arg(lo: Lowering, x: Reduce, env: Env) -> Atom:
    e = lo.e
    better = ">" if x.kind == "argmax" else "<"
    dtype = x.body.dtype or F64
    best, at, seen = _zero(dtype), must(0, I32), FALSE
    state: tuple[Atom, Atom, Atom] = (best, at, seen)
    for inner, position in combinations(lo, x, env):
        passes = TRUE if x.where is None else lo.value(x.where, inner)
        value = filtered(lo, x, inner, passes, Kind("", best, dtype))
        wins = _wins(e.op, better, value, state[0], state[2])
        wins = e.op("and", passes, wins)
        state = (e.choose(wins, value, state[0]), e.choose(wins, must(position, I32), state[1]), e.op("or", state[2], passes))
    return finish(lo, x, Kind("", must(0, I32), I32), state[1], i64(0), state[2])


def _zero(dtype: DType) -> form.Const:
    return must(0, dtype)


def _wins(op: Callable[..., Atom], better: str, value: Atom, best: Atom, seen: Atom) -> Atom:
    """Whether a value replaces the best one so far: the first, a better one, a NaN where there was none."""
    first = op("not", seen)
    wins = op(better, value, best)
    if value.dtype.is_float:
        wins = op("or", wins, op("and", op("!=", value, value), op("==", best, best)))
    return op("or", first, wins)


# ------------------------------------------------------------------------------------------------------------------------- loops


def nest(lo: Lowering, ranges: tuple[Range, ...], env: Env, body: Callable[[Env, list[Atom]], None], block: int | None = None,
         around: Callable[[Callable[[], None]], None] | None = None, at: list[Atom] | None = None, k: int = 0) -> None:
    """Loops over ranges, one in the other. Range number `block` runs in blocks; `around` is handed what runs one block. `body` gets the indices."""
    done = at or []
    if k == len(ranges):
        body(env, done)
        return
    r, e = ranges[k], lo.e
    first = lo.index(r.lo, env) if r.lo is not None else i64(0)
    end = lo.index(r.hi, env)
    surely = bool(count(r))

    def inner(begin: Atom, stop: Atom) -> None:
        if k == len(ranges) - 1 and lo.along is not None and lo.along(lo, r, begin, stop, lambda at: body(env.plus({r.index: at}), [*done, at])):
            return
        with e.loop(r.index, begin, stop, nonempty=surely) as i:
            nest(lo, ranges, env.plus({r.index: i}), body, None if k == block else block, around, [*done, i], k + 1)

    if k != block or around is None:
        inner(first, end)
        return
    if (count(r) or BLOCK + 1) <= BLOCK:
        around(lambda: inner(first, end))
        return
    with e.loop(f"{r.index}_block", first, end, i64(BLOCK), nonempty=surely) as b:
        stop = e.op("min", e.op("+", b, i64(BLOCK)), end)
        around(lambda: inner(b, stop))


def _looped(lo: Lowering, x: Reduce, env: Env) -> Atom:
    if x.kind in ("argmax", "argmin"):
        return _looped_arg(lo, x, env)
    kind, seen = kind_of(x), Seen(lo, x, env)
    if kind.join == "+" and kind.dtype.is_float:
        acc = _blocked_sum(lo, x, env, kind, seen)
    else:
        acc = lo.e.var(x.kind, kind.neutral)
        nest(lo, ranges_of(x), env, lambda inner, at: add_term(lo, x, inner, kind, acc, seen, False))
    return finish(lo, x, kind, acc, seen.count(), seen.any())


def _blocked_sum(lo: Lowering, x: Reduce, env: Env, kind: Kind, seen: Seen) -> form.Ref:
    e, ranges = lo.e, ranges_of(x)
    n = terms(x)
    if n is not None and n <= BLOCK:
        acc = e.var("sum", kind.neutral)
        nest(lo, ranges, env, lambda inner, at: add_term(lo, x, inner, kind, acc, seen, True))
        return acc
    total = e.var("sum", must(0, F64))
    # The innermost range that is not short is cut into blocks; short ones inside it (channels, taps) stay whole.
    long = [k for k, r in enumerate(ranges) if (count(r) or BLOCK) > 16]
    part: list[form.Ref] = []

    def around(run: Callable[[], None]) -> None:
        part.append(e.var("part", kind.neutral))
        run()
        wide = part.pop()
        e.assign(total, form.Op("+", (total, form.Convert(wide, F64, F64) if kind.dtype is not F64 else wide), F64))

    nest(lo, ranges, env, lambda inner, at: add_term(lo, x, inner, kind, part[-1], seen, True), long[-1] if long else 0, around)
    return total


def add_term(lo: Lowering, x: Reduce, env: Env, kind: Kind, acc: form.Ref, seen: Seen, reorder: bool) -> None:
    """One turn of the innermost loop."""
    e = lo.e
    passes = TRUE if x.where is None else lo.value(x.where, env)
    if x.where is None or lo.quiet(x.body):
        e.assign(acc, form.Op(kind.join, (acc, filtered(lo, x, env, passes, kind)), kind.dtype, reorder))
        seen.note(passes)
        return
    with e.when(passes):
        e.assign(acc, form.Op(kind.join, (acc, e.convert(lo.value(x.body, env), kind.dtype)), kind.dtype, reorder))
        seen.note(TRUE)


def _looped_arg(lo: Lowering, x: Reduce, env: Env) -> Atom:
    e, dtype = lo.e, x.body.dtype or F64
    better = ">" if x.kind == "argmax" else "<"
    best, at, seen = e.var("best", _zero(dtype)), e.var("at", must(0, I32)), e.var("seen", FALSE)
    place = Position(lo, x, env)

    def op(fn: str, *args: Atom) -> Atom:
        return _now(e, fn, *args)

    def turn(inner: Env, indices: list[Atom]) -> None:
        with e.when(TRUE if x.where is None else lo.value(x.where, inner)):
            value = lo.value(x.body, inner)
            position = e.convert(place.of(indices), I32)
            with e.when(_wins(op, better, value, best, seen)):
                e.assign(best, value)
                e.assign(at, position)
            e.assign(seen, TRUE)

    nest(lo, ranges_of(x), env, turn)
    return finish(lo, x, Kind("", must(0, I32), I32), at, i64(0), seen)


class Position:
    """The flat position of an index tuple within the box of the ranges; of a single range the index itself."""

    def __init__(self, lo: Lowering, x: Reduce, env: Env) -> None:
        self.lo, self.x, self.env = lo, x, env

    def of(self, indices: list[Atom]) -> Atom:
        if len(indices) == 1:
            return indices[0]
        e, flat = self.lo.e, i64(0)
        out: Atom = flat
        for r, i in zip(ranges_of(self.x), indices, strict=True):
            first = self.lo.index(r.lo, self.env) if r.lo is not None else i64(0)
            extent = e.op("-", self.lo.index(r.hi, self.env), first)
            out = e.op("+", e.op("*", out, extent), e.op("-", i, first))
        return out


# ------------------------------------------------------------------------------------------------------------------ over nothing


class Seen:
    """How many terms there were, kept only where the kind asks for it and the ranges do not tell."""

    def __init__(self, lo: Lowering, x: Reduce, env: Env) -> None:
        self.lo, self.x, self.env = lo, x, env
        governed = lo.op.empty is not None and REDUCTIONS[x.kind].governed
        self.asked = x.kind == "mean" or governed
        ranges = ranges_of(x)
        bound = {r.index for r in ranges}
        depends = any(names(b) & bound for r in ranges for b in (r.lo, r.hi) if b is not None)
        self.var = lo.e.var("count", i64(0)) if self.asked and (x.where is not None or depends) else None

    def note(self, passes: Atom) -> None:
        if self.var is None:
            return
        one: form.Expr = self.lo.e.convert(passes, I64)
        self.lo.e.assign(self.var, form.Op("+", (self.var, one), I64))

    def count(self) -> Atom:
        if self.var is not None:
            return self.var
        e, total = self.lo.e, i64(1)
        out: Atom = total
        if not self.asked:
            return out
        for r in ranges_of(self.x):
            first: Atom = self.lo.index(r.lo, self.env) if r.lo is not None else i64(0)
            out = e.op("*", out, e.op("max", e.op("-", self.lo.index(r.hi, self.env), first), i64(0)))
        return out

    def any(self) -> Atom:
        return self.lo.e.op(">", self.count(), i64(0)) if self.asked else TRUE


def finish(lo: Lowering, x: Reduce, kind: Kind, acc: Atom, n: Atom, seen: Atom) -> Atom:
    """The result: the quotient of a mean, the type of the result, and what stands for a reduction over nothing."""
    e, dtype = lo.e, x.dtype or kind.dtype
    out = acc
    if x.kind == "mean":
        wide = acc.dtype if acc.dtype.is_float else F64
        out = e.convert(e.op("/", e.convert(acc, wide), e.convert(n, wide)), dtype)
    return or_empty(lo, x, e.convert(out, dtype), seen)


def empty_value(lo: Lowering, dtype: DType) -> form.Const:
    """What `empty = zero | nan` says."""
    nan = lo.op.empty == "nan" and dtype.is_float
    return must(float("nan") if nan else 0, dtype)


def or_empty(lo: Lowering, x: Reduce, out: Atom, seen: Atom) -> Atom:
    """`out`, unless there was no term and the kind or the operator says what then."""
    row = REDUCTIONS[x.kind]
    if isinstance(seen, form.Const) and seen.value:
        return out
    if row.governed and lo.op.empty is not None:
        return lo.e.choose(seen, out, empty_value(lo, out.dtype))
    if row.empty == "error":
        with lo.e.when(lo.e.op("not", seen)):
            lo.fail(x.span, f"'{x.kind}' over nothing has no value")
    return out
