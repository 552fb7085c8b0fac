"""Definitions rewritten so that a GPU has enough to do: plain index notation before and after, with a few more locals.

Long reductions that do not depend on all indices of their definition become locals, which may then be computed once:

    y[n, k] = x[n, k] / sum[j < K](x[n, j])        z[n] = sum[j < K](x[n, j])    y[n, k] = x[n, k] / z[n]

Reductions with few results, or along an axis that is slow in memory, are done in parts of at least some terms each:

    y = sum[n < N](x[n])                           part[p] = sum[n in p * c..min(p * c + c, N)](x[n])    y = sum[p < ceil(N / c)](part[p])
"""
from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf, prod

from pipelink_ir.ir.dtypes import BOOL, F64, I32, I64, DType
from pipelink_ir.ir.functions import REDUCTIONS
from pipelink_ir.ir.nodes import Apply, Cast, Const, Expr, FloatLit, IntLit, Name, Range, Read, Reduce
from pipelink_ir.ir.typed import Group, Piece, Tensor, TypedOperator
from pipelink_ir.ir.walk import rebuild
from pipelink_ir.passes.scheduling.attention import heads
from pipelink_ir.passes.scheduling.columns import columns_of
from pipelink_ir.passes.scheduling.counts import count, known, names, ranges_of, terms
from pipelink_ir.passes.scheduling.long_rows import long_rows
from pipelink_ir.passes.scheduling.risks import risky
from pipelink_ir.passes.scheduling.shape import last_of, long, long_reductions, reads_of, side_by_side, sized

FEW = 128
"""Up to so many results of a reduction are computed in parts."""
WORK = 4096
"""Reductions of at most so many terms are never cut."""
PARTS, LEAST = 1024, 1024
"""How many parts there are at most, and how many terms a part has at least, which lie side by side."""
COLUMNS = 262144
"""Reductions along a slow axis, but for those that blocks share out (`columns.py`), are cut until about so many threads have something to do …"""
COLUMN_PARTS, COLUMN_LEAST = 256, 32
"""… into at most so many parts, of at least so many terms."""
MOST = 3
"""Ranges that are cut, at most."""
SHORT = 16
"""Ranges of at most so many places stay whole, but for those before a longer one where results are few."""


def derived(op: TypedOperator) -> tuple[TypedOperator, frozenset[str]]:
    """The operator with more locals, and those of them that have to be stored."""
    return _Deriver(op).run()


@dataclass(slots=True)
class _Deriver:
    op: TypedOperator
    tensors: dict[str, Tensor] = field(default_factory=dict)
    order: list[Group] = field(default_factory=list)
    stored: set[str] = field(default_factory=set)
    failing: set[str] = field(default_factory=set)
    ring: set[str] = field(default_factory=set)
    whole: frozenset[str] = frozenset()
    """What makes up attention, which a kernel of its own computes as it stands."""

    def run(self) -> tuple[TypedOperator, frozenset[str]]:
        self.tensors = dict(self.op.tensors)
        self.ring = {n for g in self.op.order if g.recurrence for n in g.tensors}
        found = heads(self.op)
        self.whole = frozenset(found).union(*found.values())
        for group in self.op.order:
            if group.recurrence is None:
                for name in group.tensors:
                    self._tensor(self.tensors[name])
            self.order.append(group)
        return replace(self.op, tensors=self.tensors, order=tuple(self.order)), frozenset(self.stored)

    def _tensor(self, t: Tensor) -> None:
        if t.kind == "local" and any(risky(p.value, self.failing.__contains__, self.op.empty is None) for p in t.pieces):
            self.failing.add(t.name)
        if t.name in self.whole:
            return
        t = replace(t, pieces=tuple(replace(p, value=self._outlined(t, p)) for p in t.pieces))
        self.tensors[t.name] = t
        if len(t.pieces) == 1 and not t.pieces[0].holes and t.name not in self.failing:
            value = self._cut(t, t.pieces[0])
            if value is not None:
                self.tensors[t.name] = replace(t, pieces=(replace(t.pieces[0], value=value),))

    def local(self, near: Tensor, hint: str, dtype: DType, axes: tuple[Range, ...], value: Expr) -> Tensor:
        """A new local beside a tensor."""
        name, n = f"{near.name}.{hint}", 1
        while name in self.tensors:
            n += 1
            name = f"{near.name}.{hint}{n}"
        shape = tuple((r.lo or _int(0), r.hi) for r in axes)
        t = Tensor(name, "local", dtype, shape, (None,) * len(axes), (Piece(axes, value, (), value.span),), near.span)
        self.tensors[name] = t
        return t

    def part(self, near: Tensor, hint: str, dtype: DType, axes: tuple[Range, ...], value: Expr) -> Tensor:
        """A local that is stored, before what is being rewritten."""
        t = self.local(near, hint, dtype, axes, value)
        self.stored.add(t.name)
        self.order.append(Group((t.name,), None))
        return t

    # --------------------------------------------------------------------------------------------------------------- outlining

    def _outlined(self, t: Tensor, p: Piece) -> Expr:
        """The value with its long reductions of fewer indices as locals of their own."""
        axes = {a.index: a for a in p.axes}
        strict = self.op.empty is None

        def inside(x: Expr, bound: frozenset[str], root: bool) -> Expr:
            if isinstance(x, Reduce):
                free = names(x) & (set(axes) | bound)
                apart = free < set(axes) or (not free and not root)
                if long(x) and not REDUCTIONS[x.kind].ranked and not free & bound and apart and not risky(x, self.failing.__contains__, strict):
                    used = tuple(a for a in p.axes if a.index in free)
                    made = self.local(t, x.kind, x.dtype or F64, used, x)
                    self._tensor(made)
                    self.order.append(Group((made.name,), None))
                    return _read(made, tuple(Name(a.index, dtype=I64) for a in used), x)
                bound = bound | {r.index for r in ranges_of(x)}
            return rebuild(x, lambda c: inside(c, bound, False))

        return inside(p.value, frozenset(), True)

    # ----------------------------------------------------------------------------------------------------------------- cutting

    def _cut(self, t: Tensor, p: Piece) -> Expr | None:
        """The value of a definition that is one long reduction, computed in parts; None if it stays whole."""
        x = p.value
        while isinstance(x, Cast):
            # An edge inside a fused operator is rounded to its dtype by a written cast.
            x = x.arg
        if not isinstance(x, Reduce) or REDUCTIONS[x.kind].ranked or not long(x):
            return None
        if columns_of(replace(self.op, tensors=self.tensors), self._inside, p) is not None:
            return None
        n = terms(x)
        if (n is not None and n <= WORK) or not all(sized(b, self.op) for r in ranges_of(x) for b in (r.lo, r.hi) if b is not None):
            return None
        if x.kind in ("argmax", "argmin") and (x.where is not None or x.body.dtype is None or not (x.body.dtype.is_int or x.body.dtype.is_float)):
            return None
        free = {a.index: k for k, a in enumerate(p.axes)}
        few = _few(p.axes)
        reads = reads_of(replace(self.op, tensors=self.tensors), self._inside, x, free)
        # Where nothing is read that is as large as all terms of all results together, this is no column but a product of matrices.
        whole = any(set(free) <= frozenset[str]().union(*(lin.names for lin in u.at)) for u in reads)
        columns = whole and any(last_of(u).names & set(free) for u in reads)
        if (not few and not columns) or (few and self._in_rows(t, p, x)):
            return None
        parts = _Parts(x, p.axes, columns and not few)
        if not parts.cut:
            return None
        return _instead(p.value, _Cutter(self, t, parts, p.axes).value())

    def _in_rows(self, near: Tensor, p: Piece, x: Reduce) -> bool:
        """Whether a kernel that puts together what parts of long rows give computes a reduction, by itself or together with results along those rows."""
        if near.kind == "result" and x is p.value:
            alone = long_rows(self.op, self._early, [(near, p)], tuple(range(len(p.axes))))
            if alone is not None and all(side_by_side(self.op, self._early, r) for r in long_reductions(self.op, self._early, p)):
                return True
        for t in self.op.tensors.values():
            if t.kind == "result" and t.shape and len(t.pieces) == 1:
                found = long_rows(self.op, self._early, [(t, t.pieces[0])], tuple(range(len(t.shape) - 1)))
                if found is not None and any(x == y.reduce for of in found.rounds for y in of):
                    return True
        return False

    def _early(self, name: str) -> bool:
        """Not those that were made here: they are there before."""
        found = self.op.tensors.get(name)
        return found is not None and found.kind == "local" and name not in self.ring

    def _inside(self, name: str) -> bool:
        """Whether a tensor may be evaluated where it is read."""
        return self.tensors[name].kind == "local" and name not in self.ring and name not in self.stored


def _instead(x: Expr, value: Expr) -> Expr:
    """Another value behind the same casts."""
    return replace(x, arg=_instead(x.arg, value)) if isinstance(x, Cast) else value


def _few(axes: tuple[Range, ...]) -> bool:
    counts = [count(a) for a in axes]
    return None not in counts and prod(c for c in counts if c is not None) <= FEW


# --------------------------------------------------------------------------------------------------------------------- parts


class _Parts:
    """How a reduction is cut: new indices that number the parts of some of its ranges, and the ranges inside a part."""

    def __init__(self, x: Reduce, axes: tuple[Range, ...], columns: bool) -> None:
        self.x = x
        ranges = list(ranges_of(x))
        sizes = [SHORT + 1 if (places := count(r)) is None else places for r in ranges]
        index = x.kind in ("argmax", "argmin")
        self.cut = [k for k, n in enumerate(sizes) if n > SHORT][:MOST]
        if self.cut and not columns:
            # Where one block had several short rows, there would be few blocks.
            before = [k for k, n in enumerate(sizes) if 1 < n <= SHORT and k < self.cut[-1]]
            self.cut = sorted(self.cut + before[::-1][:MOST - len(self.cut)])
        if index:
            # The flat place of a winner can be put together again only if the first range alone is cut.
            self.cut = self.cut[:1] if self.cut[:1] == [0] else []
        self.numbers: list[Range] = []
        self.sizes: list[Expr] = []
        budget = _columns(axes) if columns else _int(PARTS)
        for k in self.cut:
            r = ranges[k]
            lo = r.lo or _int(0)
            n = _do("max", _do("-", r.hi, lo), _int(0))
            least = 1 if any(n > SHORT for n in sizes[k + 1:]) else COLUMN_LEAST if columns else max(1, LEAST // max(1, prod(sizes[k + 1:])))
            size = _do("max", _do("ceildiv", n, budget), _int(least))
            number = f"{r.index}.part"
            parts = _do("ceildiv", n, size)
            budget = _do("max", _do("floordiv", budget, _do("max", parts, _int(1))), _int(1))
            # A winner is asked for even among nothing: the only part then says what there is to say.
            self.numbers.append(Range(number, None, _do("max", parts, _int(1)) if index else parts, span=r.span, dtype=r.dtype))
            begin = _do("+", lo, _do("*", Name(number, dtype=I64), size))
            end, whole, each = _do("+", begin, size), known(n), known(size)
            even = each == 1 or (whole is not None and each is not None and whole % each == 0)
            ranges[k] = replace(r, lo=begin, hi=end if even else _do("min", end, r.hi))
            self.sizes.append(size)
        self.inner = tuple(ranges)


def _columns(axes: tuple[Range, ...]) -> Expr:
    """Into how many parts the reductions of a result are cut if each part is done by one thread."""
    results: Expr = _int(1)
    for a in axes:
        results = _do("*", results, _do("-", a.hi, a.lo) if a.lo is not None else a.hi)
    return _do("min", _do("max", _do("floordiv", _int(COLUMNS), _do("max", results, _int(1))), _int(1)), _int(COLUMN_PARTS))


@dataclass(slots=True)
class _Cutter:
    """Writes one reduction in parts."""

    made: _Deriver
    near: Tensor
    parts: _Parts
    axes: tuple[Range, ...]

    def value(self) -> Expr:
        x = self.parts.x
        if x.kind in ("argmax", "argmin"):
            return self._winner()
        if x.kind == "mean":
            return self._mean()
        part = self._part(x.kind, x.body, x.dtype or F64)
        governed = REDUCTIONS[x.kind].governed and self.made.op.empty is not None
        where = _do(">", self._of(self._count()), _int(0)) if governed and x.where is not None else None
        return self._over(x.kind, self._of(part), x.dtype or F64, where)

    def _part(self, kind: str, body: Expr, dtype: DType) -> Tensor:
        x, parts = self.parts.x, self.parts
        value = Reduce(kind, parts.inner, x.where, body, span=x.span, dtype=dtype)
        return self.made.part(self.near, kind, dtype, (*parts.numbers, *self.axes), value)

    def _count(self) -> Tensor:
        return self._part("sum", Cast("i64", IntLit(1, dtype=I32), dtype=I64), I64)

    def _of(self, t: Tensor) -> Expr:
        """What a part holds, at the indices of its number and of the result."""
        return _read(t, tuple(Name(r.index, dtype=I64) for r in (*self.parts.numbers, *self.axes)), self.parts.x)

    def _over(self, kind: str, body: Expr, dtype: DType, where: Expr | None = None) -> Expr:
        """A reduction over all parts."""
        return Reduce(kind, tuple(self.parts.numbers), where, body, span=self.parts.x.span, dtype=dtype)

    def _mean(self) -> Expr:
        x, op = self.parts.x, self.made.op
        body = x.body if x.body.dtype is not None and x.body.dtype.is_float else _as(x.body, I64)
        kept = body.dtype or F64
        total = self._over("sum", _as(self._of(self._part("sum", body, kept)), I64 if kept is I64 else F64), I64 if kept is I64 else F64)
        n: Expr = _int(1)
        if x.where is not None:
            n = self._over("sum", self._of(self._count()), I64)
        else:
            for r in ranges_of(x):
                n = _do("*", n, _do("max", _do("-", r.hi, r.lo) if r.lo is not None else r.hi, _int(0)))
        out = _as(Apply("/", (_as(total, F64), _as(n, F64)), span=x.span, dtype=F64), x.dtype or F64)
        if op.empty is None:
            return out
        nothing: Expr = Const("nan", dtype=out.dtype) if op.empty == "nan" else FloatLit(0.0, dtype=out.dtype)
        return Apply("select", (_do(">", n, _int(0)), out, nothing), span=x.span, dtype=out.dtype)

    def _winner(self) -> Expr:
        """The best of the parts' best values, and where its part found it."""
        x, parts = self.parts.x, self.parts
        place = self._part(x.kind, x.body, x.dtype or I64)
        best = self._part(x.kind[3:], x.body, x.body.dtype or F64)
        winner = self._over(x.kind, self._of(best), x.dtype or I64)
        # Said once more for the proof that it is inside.
        at = Apply("clamp", (_as(winner, I64), _int(0), _do("-", parts.numbers[0].hi, _int(1))), dtype=I64)
        found: Expr = Read(place.name, (at, *(Name(a.index, dtype=I64) for a in self.axes)), ("inside",) * len(place.shape), span=x.span, dtype=x.dtype)
        if len(parts.inner) > 1:
            rest: Expr = parts.sizes[0]
            for r in ranges_of(x)[1:]:
                rest = _do("*", rest, _do("-", r.hi, r.lo) if r.lo is not None else r.hi)
            found = Apply("+", (found, _as(_do("*", at, rest), x.dtype or I64)), span=x.span, dtype=x.dtype)
        return found


# ----------------------------------------------------------------------------------------------------------------- typed nodes


def _int(value: int) -> IntLit:
    return IntLit(value, dtype=I64)


def _do(fn: str, a: Expr, b: Expr) -> Expr:
    """A function of two i64 values."""
    x, y = known(a), known(b)
    if (fn in ("+", "-") and y == 0) or (fn == "*" and y == 1):
        return a
    if (fn == "+" and x == 0) or (fn == "*" and x == 1):
        return b
    if fn == "max" and y is not None and x is None and _least(a) >= y:
        return a
    if x is not None and y is not None and fn != ">":
        return _int({"+": x + y, "-": x - y, "*": x * y, "max": max(x, y), "min": min(x, y), "floordiv": x // y if y else 0,
                     "ceildiv": -(-x // y) if y else 0}[fn])
    return Apply(fn, (a, b), dtype=BOOL if fn == ">" else I64)


def _least(x: Expr) -> float:
    """What a size is no less than."""
    value = known(x)
    if value is not None:
        return value
    if isinstance(x, Name):
        return 0
    if isinstance(x, Apply) and x.fn in ("max", "min"):
        return (max if x.fn == "max" else min)(map(_least, x.args))
    nonnegative = isinstance(x, Apply) and x.fn in ("+", "*", "ceildiv", "floordiv") and all(_least(a) >= 0 for a in x.args)
    return 0 if nonnegative else -inf


def _as(x: Expr, dtype: DType) -> Expr:
    return x if x.dtype is dtype else Cast(dtype.name, x, span=x.span, dtype=dtype)


def _read(t: Tensor, indices: tuple[Expr, ...], at: Expr) -> Read:
    return Read(t.name, indices, ("inside",) * len(indices), span=at.span, dtype=t.dtype)
