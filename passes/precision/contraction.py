"""Sums of products of codes, with the scales outside of them: see `quantised.py` for what they are equal to."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod

from pipelink_ir.ir.affine import normal
from pipelink_ir.ir.nodes import Apply, Axis, Cast, Define, Expr, FloatLit, IntLit, Name, Range, Read, Reduce
from pipelink_ir.ir.source import Span
from pipelink_ir.ir.walk import names_in, rebuild
from pipelink_ir.passes.precision.code_sums import Blocks, Sums, blocks_of, made_once, sum_of
from pipelink_ir.passes.precision.codes import literal, over
from pipelink_ir.passes.precision.products import Factor, bound_by, counted, factors, multiplied, product, ranges_of
from pipelink_ir.passes.precision.reading import Coded, Declined, Reader, minus, times
from pipelink_ir.passes.precision.sections import read_outside

HALVES = ("f16", "bf16")
TOP = (1 << 31) - 1
"""The largest sum of codes."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A sum in one block, the index of the block, the ranges around it, and the same sum along the whole axis."""

    inner: Reduce
    block: Name
    around: tuple[Range, ...]
    whole: Reduce

    @property
    def spots(self) -> tuple[str, ...]:
        return tuple(r.index for r in self.around)

    def total(self, part: Expr, span: Span) -> Expr:
        """The sum of all blocks."""
        return Reduce("sum", self.around, None, part, span=span)


@dataclass(slots=True)
class Contractions(Reader):
    """Rewrites sums, and keeps what they need besides: sums of codes, conditions on sizes."""

    sums: dict[str, Sums] = field(default_factory=dict)
    """Operands whose sums of codes become operands."""
    where: dict[Expr, None] = field(default_factory=dict)
    dims: frozenset[str] = frozenset()
    """The names of sizes of operands …"""
    attributes: frozenset[str] = frozenset()
    """… and those that a call gives, which may be negative."""
    governed: bool = False
    """Whether the operator says what a mean of nothing is."""

    def contraction(self, e: Reduce, around: tuple[str, ...]) -> Expr | None:
        """A sum of products with the scales outside of it; None if no factor of it is a code."""
        bound = bound_by(e)
        inner = (*around, *(r.index for r in ranges_of(e) if r.index not in around))
        parts, negative = factors(e.body)
        coded: list[Coded] = []
        values: list[Coded] = []
        floats: list[Factor] = []
        outside: list[Factor] = []
        # What the same factor does to each term it may do to their sum, unless there is none: of a row without a term x / 0 is no term, and 0 / 0 is NaN.
        apart = e.where is None and counted(e, self.dims, self.attributes) is not None
        for f in parts:
            c = None if f.below else self.code(f.value, inner)
            if c is not None and names_in(c.code) & bound:
                (coded if len(coded) < 2 and self._outside(c, bound, e, coded) else values).append(c)
            elif names_in(f.value) & bound or not (apart or isinstance(f.value, IntLit | FloatLit)):
                floats.append(Factor(self.value(f.value, inner), f.below))
            else:
                outside.append(Factor(self.value(f.value, around), f.below))
        if not coded and not values:
            return None
        if floats or values or any(self._as_half(c, bound) for c in coded):
            # Beside floats blocks gain nothing: a code is multiplied by its scale where it is read.
            values += [c for c in coded if names_in(c.scale) & bound]
            coded = [c for c in coded if not names_in(c.scale) & bound]
            done: Expr | None = self._mixed(e, coded, [*floats, *(Factor(self._rounded(c)) for c in values)], inner)
        else:
            done = self._codes(e, coded, around, inner)
        if done is None:
            return None
        whole_value = product([Factor(done), *outside])
        assert whole_value is not None
        wide = next((c.read.tensor for c in (*coded, *values) if self.types[c.read.tensor].dtype == "f64"), None)
        whole_value = whole_value if wide is None else self.in_dtype(whole_value, wide)
        return Apply("neg", (whole_value,), span=e.span) if negative else whole_value

    def _as_half(self, c: Coded, bound: set[str]) -> bool:
        """Whether tensor cores take a factor as f16 or bf16 only: they know no sums of blocks, and no two codes to a byte."""
        return self.types[c.read.tensor].dtype in HALVES and (bool(names_in(c.scale) & bound) or self.codes[c.read.tensor].dtype == "i4")

    def _outside(self, c: Coded, bound: set[str], e: Reduce, coded: Sequence[Coded]) -> bool:
        """Whether the scale of a factor can stand outside of a sum, perhaps of one over blocks."""
        if not names_in(c.scale) & bound:
            return True
        return self._block(c, e) is not None and not any(self._block(other, e) is not None for other in coded)

    def _block(self, c: Coded, e: Reduce) -> Blocks | None:
        """How a sum is cut along the blocks of a factor."""
        name = c.read.tensor
        return blocks_of(e, c.read, self.codes[name], self.types[name]) if c.plain else None

    def _scales(self, coded: Sequence[Coded], block: Name | None) -> Expr:
        """What a sum of codes is multiplied by; numbers are multiplied here."""
        numbers = [c for c in (self.codes[x.read.tensor].scale for x in coded) if not isinstance(c, str)]
        reads = [self._block_scale(x, block) for x in coded if isinstance(self.codes[x.read.tensor].scale, str)]
        out = multiplied([*([literal(prod(numbers))] if numbers else []), *reads])
        assert out is not None
        return out

    def _block_scale(self, c: Coded, block: Name | None) -> Expr:
        codes = self.codes[c.read.tensor]
        if codes.scale != "block" or block is None or not isinstance(c.scale, Read):
            return c.scale
        assert codes.axis is not None
        return replace(c.scale, indices=tuple(block if k == codes.axis else i for k, i in enumerate(c.scale.indices)))

    def _cut(self, e: Reduce, coded: Sequence[Coded]) -> Cut | None:
        """A sum over one block; None without blocks."""
        for c in coded:
            codes, found = self.codes[c.read.tensor], self._block(c, e)
            if found is None:
                continue
            assert codes.size is not None
            b, size, k = Name(self.fresh("b")), codes.size, found.along.hi
            start: Expr = Apply("*", (b, IntLit(size)))
            end: Expr = Apply("+", (start, IntLit(size)))
            if not isinstance(k, IntLit) or k.value % size:
                end = Apply("min", (end, k))
            inner = found.inner(e, replace(found.along, lo=start, hi=end))
            return Cut(inner, b, (*found.outer, Range(b.name, None, over(k, size))), found.inner(e, found.along))
        return None

    def _rounded(self, c: Coded) -> Expr:
        """The value of a code as a factor: of the dtype that the operand had, so that tensor cores take it as they did."""
        name = c.read.tensor
        value = Apply("*", (Cast("f32", c.less_zero()) if self.codes[name].is_int else c.code, c.scale), span=c.read.span)
        dtype = self.types[name].dtype
        return Cast(dtype, value, span=c.read.span) if dtype in HALVES else self.in_dtype(value, name)

    def _mixed(self, e: Reduce, coded: Sequence[Coded], floats: Sequence[Factor], inner: tuple[str, ...]) -> Expr:
        """A sum of products of codes with floats, added up in floats."""
        codes: list[Factor] = []
        for c in coded:
            dtype = self.types[c.read.tensor].dtype
            exact = self.codes[c.read.tensor].is_int and dtype in HALVES
            codes.append(Factor(Cast(dtype, c.less_zero(), span=c.read.span) if exact else c.less_zero()))
        body = product([*floats[:1], *codes, *floats[1:]])
        assert body is not None
        total = self._over(e, body, inner)
        return Apply("*", (total, self._scales(coded, None)), span=e.span) if coded else total

    def _over(self, e: Reduce, body: Expr, inner: tuple[str, ...]) -> Reduce:
        """A reduction with another body; what its ranges and its filter read are values."""
        ranges = tuple(rebuild(r, lambda x: self.value(x, inner)) for r in e.ranges)
        return replace(e, ranges=ranges, where=None if e.where is None else self.value(e.where, inner), body=body)

    def _codes(self, e: Reduce, coded: Sequence[Coded], around: tuple[str, ...], inner: tuple[str, ...]) -> Expr | None:
        """A sum of products of codes alone, in a local of its own: of integers in i32, less what the zero points put into it; of f8 in f32."""
        ints = all(self.codes[c.read.tensor].is_int for c in coded)
        sizes = counted(e, self.dims, self.attributes)
        if ints and sizes is None:
            return None
        if e.kind == "mean" and (sizes is None or e.where is not None or self.governed):
            return self._mean(e, coded, inner)
        cut = self._cut(e, coded)
        part, spots = (e, around) if cut is None else (cut.inner, (*around, *cut.spots))
        count = multiplied(sizes) if sizes is not None else None
        total: Expr = self._local("acc", part, multiplied([c.code if ints else c.less_zero() for c in coded]), spots, inner)
        if ints:
            self._fits(self._sizes(e, coded), coded)
            total = Cast("f32", self._corrected(total, part, coded, spots, inner, count if e.where is None and cut is None else None, cut), span=e.span)
        scales = self._scales(coded, None if cut is None else cut.block)
        if cut is not None:
            return cut.total(Apply("*", (total, scales)), e.span)
        if e.kind == "mean":
            assert count is not None
            total = Apply("/", (total, Cast("f32", normal(count))), span=e.span)
        return Apply("*", (total, scales), span=e.span)

    def _mean(self, e: Reduce, coded: Sequence[Coded], inner: tuple[str, ...]) -> Expr:
        """A mean of which it is not known here how many terms it has."""
        body = multiplied([c.less_zero() for c in coded])
        assert body is not None
        return Apply("*", (self._over(e, body, inner), self._scales(coded, None)), span=e.span)

    def _fits(self, sizes: Sequence[Expr], coded: Sequence[Coded]) -> None:
        """Sums of codes, less their zero points or not, must fit i32: by numbers here, by a condition where sizes are symbols."""
        most = prod(max(self.codes[c.read.tensor].magnitude, self.codes[c.read.tensor].span) for c in coded)
        known = prod(s.value for s in sizes if isinstance(s, IntLit))
        unknown = [s for s in sizes if not isinstance(s, IntLit)]
        if known * most > TOP and (known or not unknown):
            raise Declined(f"a sum of {known} products of codes up to {most} may not fit i32")
        if unknown:
            terms = multiplied(unknown)
            assert terms is not None
            self.where[Apply("<=", (normal(terms), IntLit(TOP // (most * max(known, 1)))))] = None

    def _sizes(self, e: Reduce, coded: Sequence[Coded]) -> list[Expr]:
        """How many terms one sum of codes has: along blocks those of one."""
        cut: dict[str, int] = {}
        for c in coded:
            found = self._block(c, e)
            if found is not None:
                cut |= {r.index: 1 for r in found.outer} | {found.along.index: self.codes[c.read.tensor].size or 1}
        sizes = counted(e, self.dims, self.attributes)
        assert sizes is not None
        return [IntLit(cut[r.index]) if r.index in cut else s for r, s in zip(ranges_of(e), sizes, strict=True)]

    def _local(self, stem: str, e: Reduce, body: Expr | None, spots: tuple[str, ...], inner: tuple[str, ...]) -> Read:
        """A sum in a local of its own, with those of the indices around that it depends on."""
        assert body is not None
        total = replace(self._over(e, body, inner), kind="sum")
        used = names_in(total) - bound_by(e)
        axes = tuple(i for i in spots if i in used)
        name = self.fresh(stem)
        self.body.append(Define(name, tuple(Axis(i) for i in axes), total, span=e.span, target=e.span))
        return Read(name, tuple(Name(i) for i in axes), span=e.span)

    def _corrected(self, acc: Expr, e: Reduce, coded: Sequence[Coded], spots: tuple[str, ...], inner: tuple[str, ...], count: Expr | None,
                   cut: Cut | None) -> Expr:
        """A sum of products of codes, less what the zero points put into it."""
        total = acc
        if len(coded) == 1:
            c = coded[0]
            return minus(total, times(c.zero, self._count(e, count, spots, inner))) if c.zero != IntLit(0) else total
        for c, other in (coded, coded[::-1]):
            if c.zero != IntLit(0):
                total = minus(total, times(c.zero, self._sum(e, other, spots, inner, cut)))
        a, b = coded
        if a.zero != IntLit(0) and b.zero != IntLit(0):
            terms = times(times(a.zero, b.zero), self._count(e, count, spots, inner))
            total = Apply("+", (total, terms))
        return total

    def _count(self, e: Reduce, count: Expr | None, spots: tuple[str, ...], inner: tuple[str, ...]) -> Expr:
        if count is not None:
            size = normal(count)
            return size if isinstance(size, IntLit) else Cast("i32", size)
        return self._local("count", e, Cast("i32", IntLit(1)), spots, inner)

    def _sum(self, e: Reduce, c: Coded, spots: tuple[str, ...], inner: tuple[str, ...], cut: Cut | None) -> Expr:
        """The sum of the codes of one factor: an operand if it is known beforehand, else a local."""
        name, codes = c.read.tensor, self.codes[c.read.tensor]
        found = sum_of(self.op, e if cut is None else cut.whole, c.read, codes) if codes.param and c.plain else None
        if (cut is not None and codes.scale != "block") or (found is not None and read_outside(self.op, name)):
            found = None
        if found is None or found != made_once(self.op, name, codes):
            return self._local(f"{name}.codes", e, c.code, spots, inner)
        self.sums[name] = found
        indices = tuple(self.value(i, inner) for i in c.read.indices)
        return Read(f"{name}.sum", found.index(indices, None if cut is None else cut.block), span=c.read.span)
