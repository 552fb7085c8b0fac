"""What is known of every index: proven inside, inside under its guards, answered by a border, or checked at run time.

The walk goes through a value with two sets of facts: `base` holds for every evaluation (the box of the piece, the ranges of reductions, `where`), `held` adds
what the guards around an expression say (`select`, `and`, `or`, filters).
"""
from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, replace

from pipelink_ir.ir.affine import normal
from pipelink_ir.ir.diagnostics import Note, Report
from pipelink_ir.ir.dtypes import BOOL, DTYPES, I64
from pipelink_ir.ir.nodes import Apply, Cast, Expr, IntLit, Name, Range, Read, Reduce
from pipelink_ir.ir.prover import Facts
from pipelink_ir.ir.source import Span
from pipelink_ir.ir.walk import names_in, rebuild, walk

Bound = tuple[Expr, Expr] | None
"""(lo, hi) of an axis, half open; None where the extent of a local follows from what is read."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The known extents of a tensor, for the reads of it."""

    bounds: tuple[Bound, ...]
    border: tuple[str, ...]
    span: Span
    kind: str


@dataclass(frozen=True, slots=True)
class Context:
    """Facts at one place, the indices whose ranges depend on data, and the ranges of all indices."""

    base: Facts
    held: Facts
    data: frozenset[str] = frozenset()
    runs: Mapping[str, tuple[Expr, Expr]] = field(default_factory=dict)
    free: bool = False
    """Whether `base` says nothing about indices but that each runs from a number to a number above it, or from 0 to a dimension."""

    def guard(self, condition: Expr, holds: bool) -> Context:
        return replace(self, held=self.held.with_condition(condition, holds))

    def inside(self, r: Range) -> Context:
        assert r.lo is not None
        data = self.data | {r.index} if depends_on_data(r.lo, self.data) or depends_on_data(r.hi, self.data) else self.data
        runs = {**self.runs, r.index: (r.lo, r.hi)}
        base = self.base.with_range(r.index, r.lo, r.hi)
        return Context(base, base if self.held is self.base else self.held.with_range(r.index, r.lo, r.hi), data, runs, self.free and plain_range(r))


NEAR = 1 << 30
"""Numbers of so many places are no extents; what they bound is left to the prover."""


def plain_range(r: Range) -> bool:
    """Whether a range goes from a number to a number above it, or from 0 to a name, which can only be a dimension."""
    lo, hi = r.lo, r.hi
    if not isinstance(lo, IntLit) or not -NEAR < lo.value < NEAR:
        return False
    return lo.value < hi.value < NEAR if isinstance(hi, IntLit) else isinstance(hi, Name) and lo.value == 0


def run_of(index: Expr, c: Context, dims: Container[str]) -> tuple[Expr, Expr] | None:
    """What an index lies between, where that can be read off: an index whose range is written in numbers or dimensions, or one in numbers plus a number."""
    if not c.free:
        return None
    if isinstance(index, Name):
        found = c.runs.get(index.name)
        return found if found is not None and (isinstance(found[1], IntLit) or (isinstance(found[1], Name) and found[1].name in dims)) else None
    if not isinstance(index, Apply) or index.fn not in ("+", "-") or len(index.args) != 2:
        return None
    name, by = index.args
    found = c.runs.get(name.name) if isinstance(name, Name) else None
    if found is None or not isinstance(by, IntLit) or not -NEAR < by.value < NEAR:
        return None
    lo, hi = found
    if not isinstance(lo, IntLit) or not isinstance(hi, IntLit):
        return None
    step = by.value if index.fn == "+" else -by.value
    return IntLit(lo.value + step, dtype=I64), IntLit(hi.value + step, dtype=I64)


def natural(x: Expr, c: Context, dims: Container[str]) -> bool:
    """Whether an expression is seen to be no less than 0."""
    if isinstance(x, IntLit):
        return x.value >= 0
    if isinstance(x, Name):
        return x.name in dims if x.name not in c.runs else natural(c.runs[x.name][0], c, dims)
    if isinstance(x, Apply) and x.fn == "max":
        return any(natural(a, c, dims) for a in x.args)
    return isinstance(x, Apply) and x.fn in ("+", "*", "min", "floordiv", "ceildiv") and all(natural(a, c, dims) for a in x.args)


def written(index: Expr, c: Context, dims: Container[str]) -> tuple[Expr | None, Expr | None]:
    """Bounds of an index as its range is written: 0, and a dimension or a number that its end is the `min` of."""
    if not isinstance(index, Name) or index.name not in c.runs:
        return None, None
    first, end = c.runs[index.name]
    ends = end.args if isinstance(end, Apply) and end.fn == "min" else (end,)
    hi = next((x for x in ends if isinstance(x, IntLit) or (isinstance(x, Name) and x.name in dims)), None)
    return IntLit(0, dtype=I64) if natural(first, c, dims) else None, hi


def depends_on_data(e: Expr, data: frozenset[str]) -> bool:
    """Whether an index depends on values, not on indices and dimensions alone."""
    for n in walk(e):
        if isinstance(n, Read | Reduce) or (isinstance(n, Name) and n.name in data):
            return True
        if isinstance(n, Cast) and n.arg.dtype is not None and n.arg.dtype.is_float:
            return True
    return False


def comparison(fn: str, a: Expr, b: Expr) -> Expr:
    return Apply(fn, (a, b), dtype=BOOL)


def both(a: Expr, b: Expr) -> Expr:
    return Apply("and", (a, b), dtype=BOOL)


@dataclass(slots=True)
class Walker:
    """Annotates the reads of one operator."""

    report: Report
    generic: bool
    shape_of: Callable[[str], Shape]
    need: Callable[[str, int, Expr, Context, Read], None]
    """Called for each index into an axis whose extent is not known yet."""
    why: Callable[[Expr], list[Note]] = lambda index: []
    """Notes on why an index runs as far as it does."""
    dims: frozenset[str] = frozenset()
    """The dimensions of the operator."""
    ring: Mapping[str, int] = field(default_factory=dict)
    """The tensors that are computed together with the one being walked, with the axis that runs in order: reads among them want a base case."""

    def walk(self, e: Expr, c: Context) -> Expr:
        """`e` with `access` in every read."""
        if isinstance(e, Read):
            return self._read(e, c)
        if isinstance(e, Apply) and e.fn == "select":
            cond = self.walk(e.args[0], c)
            taken = self.walk(e.args[1], c.guard(e.args[0], True))
            return self._same(e, (cond, taken, self.walk(e.args[2], c.guard(e.args[0], False))))
        if isinstance(e, Apply) and e.fn in ("and", "or"):
            left = self.walk(e.args[0], c)
            return self._same(e, (left, self.walk(e.args[1], c.guard(e.args[0], e.fn == "and"))))
        if isinstance(e, Reduce):
            return self._reduce(e, c)
        return rebuild(e, lambda x: self.walk(x, c))

    @staticmethod
    def _same(e: Apply, args: tuple[Expr, ...]) -> Expr:
        return e if all(a is b for a, b in zip(args, e.args, strict=True)) else replace(e, args=args)

    def _reduce(self, e: Reduce, c: Context) -> Expr:
        inner = c
        ranges: list[Expr] = []
        for r in e.ranges:
            assert isinstance(r, Range)
            ranges.append(rebuild(r, lambda x, inner=inner: self.walk(x, inner)))  # type: ignore[misc]
            inner = inner.inside(r)
        where = None
        if e.where is not None:
            where = self.walk(e.where, inner)
            inner = inner.guard(e.where, True)
        body = self.walk(e.body, inner)
        rank = None if e.rank is None else self._rank(e, self.walk(e.rank, c), c)
        return replace(e, ranges=tuple(ranges), where=where, body=body, rank=rank)

    def _rank(self, e: Reduce, rank: Expr, c: Context) -> Expr:
        """A rank that no count admits is an error; one that may be beyond the count is a reduction over nothing."""
        count: Expr = IntLit(1, dtype=I64)
        for r in e.ranges:
            assert isinstance(r, Range)
            assert r.lo is not None
            extent = r.hi if isinstance(r.lo, IntLit) and r.lo.value == 0 else Apply("-", (r.hi, r.lo), dtype=I64)
            count = extent if isinstance(count, IntLit) and count.value == 1 else Apply("*", (count, extent), dtype=I64)
        fits = both(comparison("<", rank, count), comparison(">=", rank, Apply("neg", (count,), dtype=I64)))
        if self.generic and not depends_on_data(rank, c.data) and c.held.refuted(fits) and not c.held.contradictory():
            from pipelink_ir.passes.infer.text import show
            assert e.rank is not None
            self.report.error("bounds", e.rank.span, f"'{e.kind}' over {show(normal(count))} values has no rank {show(e.rank)}", (),
                              "ranks run from 0, or from -1 downwards")
        return rank

    def _read(self, e: Read, c: Context) -> Expr:
        shape = self.shape_of(e.tensor)
        indices = tuple(self.walk(i, c) for i in e.indices)
        access = tuple(self._axis(e, k, i, shape, c) for k, i in enumerate(e.indices))
        return replace(e, indices=indices, access=access)

    def _axis(self, e: Read, axis: int, index: Expr, shape: Shape, c: Context) -> str:
        bound = shape.bounds[axis]
        border = shape.border[axis]
        if bound is None:
            self.need(e.tensor, axis, index, c, e)
            # The extent becomes what is asked for; where no guard stands around, that is every place the index comes to.
            return "inside" if c.held is c.base and self.ring.get(e.tensor) is None else "guarded"
        lo, hi = bound
        if isinstance(index, Name) and index.name in c.runs and self.ring.get(e.tensor) != axis and self._within(c, *c.runs[index.name], lo, hi):
            return "inside"
        known = self._known(c, index, lo, hi)
        if known and self.ring.get(e.tensor) != axis:
            return "inside"
        inside = both(comparison("<=", lo, index), comparison("<", index, hi))
        if self.ring.get(e.tensor) == axis:
            # A read of an earlier step may count on nothing but its guards: where it would leave the extents, a base case is missing.
            border = "none"
        if known or (known is None and c.base.prove(inside)):
            return "inside"
        if c.held is not c.base and c.held.prove(inside):
            return "guarded"
        data = depends_on_data(index, c.data)
        if not data and (self.generic or border == "none") and c.held.refuted(inside) and not c.held.contradictory():
            # What could be inside, but for the guards, stands behind guards that are the wrong way round.
            guarded = c.held is not c.base and not c.base.refuted(inside)
            self._outside(e, axis, index, bound, shape, c, "is, behind its guards, never inside" if guarded else "is never inside")
            return "check"
        if border != "none":
            return "border"
        if not data:
            self._outside(e, axis, index, bound, shape, c, "is not proven inside")
        return "check"

    def _known(self, c: Context, index: Expr, lo: Expr, hi: Expr) -> bool | None:
        """Whether an index in numbers lies in [lo, hi) without any guard; None where that is not seen at once."""
        run = run_of(index, c, self.dims)
        ends = None if run is None else [x.value for x in (*run, lo, hi) if isinstance(x, IntLit)]
        return None if ends is None or len(ends) < 4 else ends[2] <= ends[0] and ends[1] <= ends[3]

    def _within(self, c: Context, first: Expr, end: Expr, lo: Expr, hi: Expr) -> bool:
        """Whether [first, end) is seen to lie in [lo, hi) as it is written: it begins at 0 or later, and `end` is `hi` or a `min` of it and others."""
        if first != lo and not (lo == IntLit(0) and natural(first, c, self.dims)):
            return False
        ends = end.args if isinstance(end, Apply) and end.fn == "min" else (end,)
        return any(x == hi or normal(x) == hi for x in ends)

    def _outside(self, e: Read, axis: int, index: Expr, bound: tuple[Expr, Expr], shape: Shape, c: Context, how: str) -> None:
        from pipelink_ir.passes.infer.text import show
        lo, hi = map(show, bound)
        note = [Note(f"'%{e.tensor}' is declared here", shape.span)]
        if self.ring.get(e.tensor) == axis:
            self.report.error("recurrence", e.span, f"the first steps have nothing to read: index {axis}, '{show(index)}', of '%{e.tensor}' {how}", note,
                              f"write a base case, such as '%{e.tensor}[0, …] = …'")
            return
        least, most = c.held.bounds(index, names_in(bound[1]) | self.dims)
        runs = f"; it runs over '{show(least)} .. {show(most)}'" if least is not None and most is not None and not isinstance(index, IntLit) else ""
        help = f"the axis has indices {lo} to {hi} - 1"
        if how == "is not proven inside":
            help = f"declare a border ('memory {{ %{e.tensor} {{ border = replicate }} }}'), guard the read with 'select', or add a fact to 'where'"
        elif "guards" in how:
            runs, help = "", "turn the guard round: it has to hold where the read stands"
        elif isinstance(index, IntLit) and index.value < 0:
            help = f"indices count from {lo}; the last one is '{hi} - 1'"
        self.report.error("bounds", e.span, f"index {axis}, '{show(index)}', of '%{e.tensor}' {how} '{lo} .. {hi}'{runs}", [*note, *self.why(index)], help)


def interval(e: Read, dtype_of: Callable[[str], str | None]) -> tuple[int, int] | None:
    """The values that a read can have, from the dtype in memory."""
    name = dtype_of(e.tensor)
    if name is None or not DTYPES[name].is_int:
        return None
    return DTYPES[name].lowest, DTYPES[name].highest
