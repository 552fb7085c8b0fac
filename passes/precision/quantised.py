"""An operator on codes: the same body, in which coded operands are read as integers (or f8) and their scales stand outside of the sums.

With x = sx (qx - zx) and w = sw (qw - zw) a sum of K products is

    sum(x w) = sx sw (sum(qx qw) - zx sum(qw) - zw sum(qx) + K zx zw)

(B. Jacob et al., arXiv:1712.05877, equations 4 to 8; the sums of codes are taken in i32). The first sum is the product of two matrices of bytes; the sum of the
codes of a weight does not change from call to call and is an operand of its own, `%w.sum`. A scale for each channel of the result stays outside in the same
way; with blocks the sum is taken block by block, each with its scale (T. Dettmers et al., arXiv:2110.02861, section 2). Where the other factor is a float
the scale still stands outside, and the code is an exact f16 or bf16 if the operand was one. Everywhere else a code is turned into its value where it is read.

What is read outside of a coded operand with a constant border is the code of the constant: of 0.0 the zero point, which stands for it exactly.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from pipelink_ir.ir import contracts
from pipelink_ir.ir.affine import normal
from pipelink_ir.ir.diagnostics import ProgramError
from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.nodes import (
    Apply,
    Axis,
    Cast,
    Define,
    Expr,
    IntLit,
    Let,
    Name,
    Operand,
    Operator,
    Range,
    Read,
    Reduce,
    TensorType,
)
from pipelink_ir.ir.source import Span
from pipelink_ir.ir.walk import names_in, rebuild
from pipelink_ir.passes.infer.operator import typed_operator
from pipelink_ir.passes.infer.specialise import names_of
from pipelink_ir.passes.precision.codes import Codes, built, code_type, literal, ordered, over, scale_index, scale_type, unpacked, zero_type
from pipelink_ir.passes.precision.products import (
    SUMS,
    WIDE,
    Factor,
    bound_by,
    counted,
    factors,
    is_zero,
    multiplied,
    product,
    ranges_of,
)
from pipelink_ir.passes.precision.sections import NoCode, sections_on_codes
from pipelink_ir.passes.precision.sums import Blocks, Sums, blocks_of, sum_of

HALVES = ("f16", "bf16")
TOP = (1 << 31) - 1
"""The largest sum of codes."""


class Declined(Exception):
    """The operator cannot work on these codes; the text says why."""


def quantised(op: Operator, codes: Mapping[str, Codes], name: str) -> Operator | str:
    """`op` with some operands as codes: they keep their places, and behind the last parameter stand, in the order of the operands, `%x.scale`, `%x.zero` and
    `%x.sum` for those that need them. The results are what they were. A text says why that cannot be.

    Conditions under which the sums fit i32, where sizes are not known, are in the `where` of the new operator and not in that of the old one."""
    try:
        made = _Rewriter(op, dict(codes)).run(name)
        typed_operator(made)
    except (Declined, NoCode) as e:
        return str(e)
    except ProgramError as e:
        return f"on codes it could not be shown to be right: {e.diagnostics[0].message}"
    return made


@dataclass(frozen=True, slots=True)
class _Coded:
    """A factor that is a code: an integer (or f8) expression, what it is multiplied by, and the code of 0.0."""

    code: Expr
    scale: Expr
    zero: Expr
    read: Read

    def less_zero(self) -> Expr:
        return minus(self.code, self.zero)


@dataclass(frozen=True, slots=True)
class _Cut:
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
class _Rewriter:
    op: Operator
    codes: dict[str, Codes]
    types: dict[str, TensorType] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    body: list[Let | Define] = field(default_factory=list)
    extra: dict[str, set[str]] = field(default_factory=dict)
    """Operands that need `sum`."""
    sums: dict[str, Sums] = field(default_factory=dict)
    where: dict[Expr, None] = field(default_factory=dict)
    unpacked: set[str] = field(default_factory=set)
    dims: frozenset[str] = frozenset()
    governed: bool = False
    """Whether the operator says what a mean of nothing is."""

    def run(self, name: str) -> Operator:
        op = self.op
        if op.compute is None:
            raise Declined("it has no compute")
        if op.kernel is not None:
            raise Declined("it is computed by a kernel of its own")
        self.types = {o.name: o.type for o in op.operands}
        self.taken = names_of(op) | {t.tensor for t in op.compute.body if isinstance(t, Define)} | {o.name for o in (*op.operands, *op.results)}
        self._check()
        self.governed = contracts.empty(op) is not None
        attributes = {a.name for a in op.attributes if a.type == "dim"}
        self.dims = frozenset({n for o in op.operands for d in o.type.dims for n in names_in(d)} | attributes)
        for item in op.compute.body:
            if isinstance(item, Let):
                self.body.append(replace(item, value=self.value(item.value, ())))
            else:
                around = tuple(a.index for a in item.axes if isinstance(a, Axis))
                self.body.append(replace(item, value=self.value(item.value, around)))
        self._bound()
        params = [replace(p, type=code_type(p.type, self.codes[p.name])) if isinstance(p, Operand) and p.name in self.codes else p for p in op.params]
        sections = sections_on_codes(op, self.codes, {n: f"{n}.code" for n in self.unpacked})
        return replace(op, name=name, params=(*params, *self._operands()), where=(*op.where, *self.where), sections=sections,
                       compute=replace(op.compute, body=tuple(self.body)), gradient=None)

    def _check(self) -> None:
        defined = self.taken
        for n, c in self.codes.items():
            o = next((o for o in self.op.operands if o.name == n), None)
            if o is None or o.type.dtype not in DTYPES or not DTYPES[o.type.dtype].is_float:
                raise Declined(f"'%{n}' is no operand of floats")
            if any(f"{n}.{more}" in defined for more in ("scale", "zero", "sum", "code")):
                raise Declined(f"names such as '%{n}.scale' are in use")
            if isinstance(c.zero, int) and c.is_int and not c.info.lowest <= c.zero <= c.info.highest:
                raise Declined(f"the zero point {c.zero} of '%{n}' is no {c.dtype}")
            if c.shifted and not c.is_int:
                raise Declined(f"{c.dtype} has no zero point")
            if isinstance(c.scale, float | int) and not 0 < c.scale < float("inf"):
                raise Declined(f"the scale of '%{n}' is {c.scale}")
            if c.axis is not None and not 0 <= c.axis < len(o.type.dims):
                raise Declined(f"'%{n}' has no axis {c.axis}")

    def _bound(self) -> None:
        """An extent that two codes to a byte leave open must follow from another operand."""
        known = {n for o in self.op.operands for k, d in enumerate(o.type.dims) for n in names_in(d) if not self._packed(o, k)}
        known |= {a.name for a in self.op.attributes if a.type == "dim"}
        for o in self.op.operands:
            free = {n for k, d in enumerate(o.type.dims) if self._packed(o, k) for n in names_in(d)} - known
            if free:
                raise Declined(f"'{min(free)}' does not follow from the bytes of '%{o.name}', two codes in each")

    def _packed(self, o: Operand, axis: int) -> bool:
        pair = self.codes[o.name].pair if o.name in self.codes else None
        return pair is not None and pair % len(o.type.dims) == axis

    def _operands(self) -> list[Operand]:
        out: list[Operand] = []
        for o in self.op.operands:
            c = self.codes.get(o.name)
            if c is None:
                continue
            sums = self.sums.get(o.name)
            found = {"scale": scale_type(o.type, c), "zero": zero_type(c), "sum": sums.type(o.type, c) if sums is not None else None}
            out += [Operand(f"{o.name}.{n}", t, span=o.span) for n, t in found.items() if t is not None]
        return out

    # ---------------------------------------------------------------------------------------------------------------- expressions

    def value(self, e: Expr, around: tuple[str, ...]) -> Expr:
        """An expression with the values of coded operands."""
        if isinstance(e, Reduce):
            if e.kind in SUMS and (done := self._contraction(e, around)) is not None:
                return done
            inner = (*around, *(i for i in (r.index for r in ranges_of(e)) if i not in around))
            return rebuild(e, lambda x: self.value(x, inner))
        if isinstance(e, Read) and e.tensor in self.codes:
            return self._real(e, around)
        return rebuild(e, lambda x: self.value(x, around))

    def _real(self, e: Read, around: tuple[str, ...]) -> Expr:
        coded = self._coded_read(e, around)
        code = coded.less_zero()
        if self.codes[e.tensor].is_int:
            code = Cast("f32", code, span=e.span)
        return self._as(Apply("*", (code, coded.scale), span=e.span), e.tensor)

    def _as(self, e: Expr, tensor: str) -> Expr:
        return Cast("f64", e, span=e.span) if self.types[tensor].dtype == "f64" else e

    def _coded_read(self, e: Read, around: tuple[str, ...]) -> _Coded:
        c = self.codes[e.tensor]
        indices = tuple(self.value(i, around) for i in e.indices)
        if c.dtype == "i4":
            code: Read = replace(e, tensor=self._unpack(e.tensor), indices=indices)
        else:
            code = replace(e, indices=ordered(indices, c))
        scale: Expr = Read(f"{e.tensor}.scale", scale_index(indices, c), span=e.span) if isinstance(c.scale, str) else replace(literal(c.scale), span=e.span)
        zero: Expr = Read(f"{e.tensor}.zero", (), span=e.span) if isinstance(c.zero, str) else IntLit(c.zero, span=e.span)
        return _Coded(code, scale, zero, e)

    def _unpack(self, tensor: str) -> str:
        local = f"{tensor}.code"
        if tensor not in self.unpacked:
            self.unpacked.add(tensor)
            t, c = self.types[tensor], self.codes[tensor]
            names = [self._fresh("d") for _ in t.dims]
            text = built(f"op @unpack(%{tensor}: tensor<f32>) -> (%y: tensor<f32>) {{ compute {{\n{unpacked(tensor, local, t, c, names)}\n%y = 0\n}} }}")
            assert text.compute is not None
            self.body.append(text.compute.body[0])
        return local

    def _fresh(self, stem: str) -> str:
        name, k = stem, 0
        while name in self.taken or name in DTYPES:
            k += 1
            name = f"{stem}{k}" if "." not in stem and stem != "acc" else f"{stem}.{k}"
        self.taken.add(name)
        return name

    # ---------------------------------------------------------------------------------------------------------------------- codes

    def _code(self, e: Expr, around: tuple[str, ...]) -> _Coded | None:
        """An expression as a code: its value is a code's, for every choice that it makes."""
        if isinstance(e, Cast) and e.to in WIDE and not e.saturate:
            return self._code(e.arg, around)
        if isinstance(e, Read) and e.tensor in self.codes:
            return self._coded_read(e, around)
        if isinstance(e, Apply) and e.fn == "select":
            return self._choice(e, e.args[1:], (self.value(e.args[0], around),), around)
        if isinstance(e, Apply) and e.fn in ("max", "min") and any(map(is_zero, e.args)):
            return self._choice(e, e.args, (), around)
        return None

    def _choice(self, e: Apply, args: Sequence[Expr], before: tuple[Expr, ...], around: tuple[str, ...]) -> _Coded | None:
        """A choice between codes of one operand and scale, and zeros."""
        found = [None if is_zero(a) else self._code(a, around) for a in args]
        coded = [c for c in found if c is not None]
        if not coded or any(c is None and not is_zero(a) for c, a in zip(found, args, strict=True)):
            return None
        first = coded[0]
        if any(c.scale != first.scale or c.zero != first.zero or c.read.tensor != first.read.tensor for c in coded):
            return None
        return replace(first, code=replace(e, args=(*before, *(first.zero if c is None else c.code for c in found))))

    # --------------------------------------------------------------------------------------------------------------- contractions

    def _contraction(self, e: Reduce, around: tuple[str, ...]) -> Expr | None:
        """A sum of products with the scales outside of it; None if no factor of it is a code."""
        bound = bound_by(e)
        inner = (*around, *(r.index for r in ranges_of(e) if r.index not in around))
        parts, negative = factors(e.body)
        coded: list[_Coded] = []
        values: list[_Coded] = []
        floats: list[Factor] = []
        outside: list[Factor] = []
        for f in parts:
            c = None if f.below else self._code(f.value, inner)
            if c is not None and names_in(c.code) & bound:
                (coded if len(coded) < 2 and self._outside(c, bound, e, coded) else values).append(c)
            elif names_in(f.value) & bound:
                floats.append(Factor(self.value(f.value, inner), f.below))
            else:
                outside.append(Factor(self.value(f.value, around), f.below))
        if not coded and not values:
            return None
        if floats or values:
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
        whole_value = whole_value if wide is None else self._as(whole_value, wide)
        return Apply("neg", (whole_value,), span=e.span) if negative else whole_value

    def _outside(self, c: _Coded, bound: set[str], e: Reduce, coded: Sequence[_Coded]) -> bool:
        """Whether the scale of a factor can stand outside of a sum, perhaps of one over blocks."""
        if not names_in(c.scale) & bound:
            return True
        return self._block(c, e) is not None and not any(self._block(other, e) is not None for other in coded)

    def _block(self, c: _Coded, e: Reduce) -> Blocks | None:
        """How a sum is cut along the blocks of a factor."""
        name = c.read.tensor
        return blocks_of(e, c.read, self.codes[name], self.types[name]) if isinstance(c.code, Read) else None

    def _scales(self, coded: Sequence[_Coded], block: Name | None) -> Expr:
        """What a sum of codes is multiplied by; numbers are multiplied here."""
        numbers = [c for c in (self.codes[x.read.tensor].scale for x in coded) if not isinstance(c, str)]
        reads = [self._block_scale(x, block) for x in coded if isinstance(self.codes[x.read.tensor].scale, str)]
        out = multiplied([*([literal(prod(numbers))] if numbers else []), *reads])
        assert out is not None
        return out

    def _block_scale(self, c: _Coded, block: Name | None) -> Expr:
        codes = self.codes[c.read.tensor]
        if codes.scale != "block" or block is None or not isinstance(c.scale, Read):
            return c.scale
        assert codes.axis is not None
        return replace(c.scale, indices=tuple(block if k == codes.axis else i for k, i in enumerate(c.scale.indices)))

    def _cut(self, e: Reduce, coded: Sequence[_Coded]) -> _Cut | None:
        """A sum over one block; None without blocks."""
        for c in coded:
            codes, found = self.codes[c.read.tensor], self._block(c, e)
            if found is None:
                continue
            assert codes.size is not None
            b, size, k = Name(self._fresh("b")), codes.size, found.along.hi
            start: Expr = Apply("*", (b, IntLit(size)))
            end: Expr = Apply("+", (start, IntLit(size)))
            if not isinstance(k, IntLit) or k.value % size:
                end = Apply("min", (end, k))
            inner = found.inner(e, replace(found.along, lo=start, hi=end))
            return _Cut(inner, b, (*found.outer, Range(b.name, None, over(k, size))), found.inner(e, found.along))
        return None

    def _rounded(self, c: _Coded) -> Expr:
        """The value of a code as a factor: of the dtype that the operand had, so that tensor cores take it as they did."""
        name = c.read.tensor
        value = Apply("*", (Cast("f32", c.less_zero()) if self.codes[name].is_int else c.code, c.scale), span=c.read.span)
        dtype = self.types[name].dtype
        return Cast(dtype, value, span=c.read.span) if dtype in HALVES else self._as(value, name)

    def _mixed(self, e: Reduce, coded: Sequence[_Coded], floats: Sequence[Factor], inner: tuple[str, ...]) -> Expr:
        """A sum of products of codes with floats, added up in floats."""
        ranges = tuple(rebuild(r, lambda x: self.value(x, inner)) for r in e.ranges)
        where = None if e.where is None else self.value(e.where, inner)
        codes: list[Factor] = []
        for c in coded:
            dtype = self.types[c.read.tensor].dtype
            exact = self.codes[c.read.tensor].is_int and dtype in HALVES
            codes.append(Factor(Cast(dtype, c.less_zero(), span=c.read.span) if exact else c.less_zero()))
        body = product([*floats[:1], *codes, *floats[1:]])
        assert body is not None
        total: Expr = replace(e, ranges=ranges, where=where, body=body)
        return Apply("*", (total, self._scales(coded, None)), span=e.span) if coded else total

    def _codes(self, e: Reduce, coded: Sequence[_Coded], around: tuple[str, ...], inner: tuple[str, ...]) -> Expr | None:
        """A sum of products of codes alone, in a local of its own: of integers in i32, less what the zero points put into it; of f8 in f32."""
        ints = all(self.codes[c.read.tensor].is_int for c in coded)
        sizes = counted(e, self.dims)
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

    def _mean(self, e: Reduce, coded: Sequence[_Coded], inner: tuple[str, ...]) -> Expr:
        """A mean of which it is not known here how many terms it has."""
        ranges = tuple(rebuild(r, lambda x: self.value(x, inner)) for r in e.ranges)
        where = None if e.where is None else self.value(e.where, inner)
        body = multiplied([c.less_zero() for c in coded])
        assert body is not None
        return Apply("*", (replace(e, ranges=ranges, where=where, body=body), self._scales(coded, None)), span=e.span)

    def _fits(self, sizes: Sequence[Expr], coded: Sequence[_Coded]) -> None:
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

    def _sizes(self, e: Reduce, coded: Sequence[_Coded]) -> list[Expr]:
        """How many terms one sum of codes has: along blocks those of one."""
        cut: dict[str, int] = {}
        for c in coded:
            found = self._block(c, e)
            if found is not None:
                cut |= {r.index: 1 for r in found.outer} | {found.along.index: self.codes[c.read.tensor].size or 1}
        sizes = counted(e, self.dims)
        assert sizes is not None
        return [IntLit(cut[r.index]) if r.index in cut else s for r, s in zip(ranges_of(e), sizes, strict=True)]

    def _local(self, stem: str, e: Reduce, body: Expr | None, spots: tuple[str, ...], inner: tuple[str, ...]) -> Read:
        """A sum in a local of its own, with those of the indices around that it depends on."""
        assert body is not None
        ranges = tuple(rebuild(r, lambda x: self.value(x, inner)) for r in e.ranges)
        where = None if e.where is None else self.value(e.where, inner)
        total = replace(e, kind="sum", ranges=ranges, where=where, body=body)
        used = names_in(total) - bound_by(e)
        axes = tuple(i for i in spots if i in used)
        name = self._fresh(stem)
        self.body.append(Define(name, tuple(Axis(i) for i in axes), total, span=e.span, target=e.span))
        return Read(name, tuple(Name(i) for i in axes), span=e.span)

    def _corrected(self, acc: Expr, e: Reduce, coded: Sequence[_Coded], spots: tuple[str, ...], inner: tuple[str, ...], count: Expr | None,
                   cut: _Cut | None) -> Expr:
        """A sum of products of codes, less what the zero points put into it."""
        total = acc
        if len(coded) == 1:
            c = coded[0]
            return minus(total, _times(c.zero, self._count(e, count, spots, inner))) if c.zero != IntLit(0) else total
        for c, other in (coded, coded[::-1]):
            if c.zero != IntLit(0):
                total = minus(total, _times(c.zero, self._sum(e, other, spots, inner, cut)))
        a, b = coded
        if a.zero != IntLit(0) and b.zero != IntLit(0):
            terms = _times(_times(a.zero, b.zero), self._count(e, count, spots, inner))
            total = Apply("+", (total, terms))
        return total

    def _count(self, e: Reduce, count: Expr | None, spots: tuple[str, ...], inner: tuple[str, ...]) -> Expr:
        if count is not None:
            size = normal(count)
            return size if isinstance(size, IntLit) else Cast("i32", size)
        return self._local("count", e, Cast("i32", IntLit(1)), spots, inner)

    def _sum(self, e: Reduce, c: _Coded, spots: tuple[str, ...], inner: tuple[str, ...], cut: _Cut | None) -> Expr:
        """The sum of the codes of one factor: an operand if it is known beforehand, else a local."""
        name, codes = c.read.tensor, self.codes[c.read.tensor]
        found = sum_of(self.op, e if cut is None else cut.whole, c.read, codes) if codes.param and isinstance(c.code, Read) else None
        if cut is not None and codes.scale != "block":
            found = None
        if found is None or self.sums.setdefault(name, found) != found:
            return self._local(f"{name}.codes", e, c.code, spots, inner)
        indices = tuple(self.value(i, inner) for i in c.read.indices)
        return Read(f"{name}.sum", found.index(indices, None if cut is None else cut.block), span=c.read.span)


# ------------------------------------------------------------------------------------------------------------------------ integers


def minus(a: Expr, b: Expr) -> Expr:
    """a - b, of integers."""
    if isinstance(b, IntLit):
        if b.value == 0:
            return a
        if b.value < 0:
            return Apply("+", (a, IntLit(-b.value)), span=a.span)
    return Apply("-", (a, b), span=a.span)


def _times(a: Expr, b: Expr) -> Expr:
    if isinstance(a, IntLit) and isinstance(b, IntLit):
        return IntLit(a.value * b.value)
    return Apply("*", (a, b))
