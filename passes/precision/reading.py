"""Reads of coded operands: as codes with their scale and zero point, or as the values that they stand for."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.nodes import Apply, Cast, Define, Expr, IntLit, Let, Operator, Read, Reduce, TensorType
from pipelink_ir.ir.walk import reads_in, rebuild
from pipelink_ir.passes.precision.codes import Codes, built, literal, ordered, scale_index, unpacked
from pipelink_ir.passes.precision.products import SUMS, WIDE, bare, is_zero, joined, ranges_of
from pipelink_ir.passes.precision.sections import read_outside


class Declined(Exception):
    """The operator cannot work on these codes; the text says why."""


@dataclass(frozen=True, slots=True)
class Coded:
    """A factor that is a code: an integer (or f8) expression, what it is multiplied by, and the code of 0.0."""

    code: Expr
    scale: Expr
    zero: Expr
    read: Read
    plain: bool = True
    """Whether it is what is read, without a choice."""

    def less_zero(self) -> Expr:
        return minus(self.code, self.zero)


@dataclass(slots=True)
class Reader:
    """The body of an operator while it is rewritten: what becomes of expressions, and the definitions that come to it."""

    op: Operator
    codes: dict[str, Codes]
    types: dict[str, TensorType] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    body: list[Let | Define] = field(default_factory=list)
    carriers: frozenset[str] = frozenset()
    """Locals that hold codes: they are made of coded operands alone, piece by piece, and stand among `codes` and `types` like them."""
    unpacked: set[str] = field(default_factory=set)
    """Operands of i4 that have a local with one code a place."""

    def contraction(self, e: Reduce, around: tuple[str, ...]) -> Expr | None:
        """A sum of products of codes; None if it is none."""
        raise NotImplementedError

    # ---------------------------------------------------------------------------------------------------------------- expressions

    def join(self) -> None:
        """Locals that are made of coded operands alone hold codes, if all have the same numbers for scale and zero point."""
        for name, parts in joined(self.op).items():
            first = self.codes.get(parts[0])
            if first is None or isinstance(first.scale, str) or isinstance(first.zero, str) or first.dtype == "i4":
                continue
            same = replace(first, order=(), axis=None, size=None, packed=None, param=False)
            if all(p in self.codes and self.codes[p].meaning == first.meaning and self.types[p].dtype == self.types[parts[0]].dtype for p in parts):
                self.carriers |= {name}
                self.codes[name] = same
                self.types[name] = self.types[parts[0]]

    def piece(self, d: Define, around: tuple[str, ...]) -> Expr:
        """What a definition becomes."""
        if d.tensor not in self.carriers:
            return self.value(d.value, around)
        read = bare(d.value)
        assert isinstance(read, Read)
        return self.coded_read(read, around).code

    def value(self, e: Expr, around: tuple[str, ...]) -> Expr:
        """An expression with the values of coded operands."""
        if isinstance(e, Reduce):
            if e.kind in SUMS and (done := self.contraction(e, around)) is not None:
                return done
            inner = (*around, *(i for i in (r.index for r in ranges_of(e)) if i not in around))
            return rebuild(e, lambda x: self.value(x, inner))
        if isinstance(e, Read) and e.tensor in self.codes:
            return self._real(e, around)
        return rebuild(e, lambda x: self.value(x, around))

    def _real(self, e: Read, around: tuple[str, ...]) -> Expr:
        coded = self.coded_read(e, around)
        code = coded.less_zero()
        if self.codes[e.tensor].is_int:
            code = Cast("f32", code, span=e.span)
        return self.in_dtype(Apply("*", (code, coded.scale), span=e.span), e.tensor)

    def in_dtype(self, e: Expr, tensor: str) -> Expr:
        return Cast("f64", e, span=e.span) if self.types[tensor].dtype == "f64" else e

    def coded_read(self, e: Read, around: tuple[str, ...]) -> Coded:
        c = self.codes[e.tensor]
        indices = tuple(self.value(i, around) for i in e.indices)
        code: Expr
        if c.dtype != "i4":
            code = replace(e, indices=ordered(indices, c))
        elif self._read_once(e.tensor):
            code = half_of_byte(e, indices, c)
        else:
            code = replace(e, tensor=self._unpack(e.tensor), indices=indices)
        scale: Expr = Read(f"{e.tensor}.scale", scale_index(indices, c), span=e.span) if isinstance(c.scale, str) else replace(literal(c.scale), span=e.span)
        zero: Expr = Read(f"{e.tensor}.zero", (), span=e.span) if isinstance(c.zero, str) else IntLit(c.zero, span=e.span)
        return Coded(code, scale, zero, e)

    def _read_once(self, tensor: str) -> bool:
        """Whether a byte may be taken apart where it is read: in one place, and never outside."""
        assert self.op.compute is not None
        reads = [r for d in self.op.compute.body for r in reads_in(d.value) if r.tensor == tensor]
        return len(reads) == 1 and not read_outside(self.op, tensor)

    def _unpack(self, tensor: str) -> str:
        """The local with the codes of an operand of i4."""
        local = f"{tensor}.code"
        if tensor not in self.unpacked:
            self.unpacked.add(tensor)
            t, c = self.types[tensor], self.codes[tensor]
            names = [self.fresh("d") for _ in t.dims]
            text = built(f"op @unpack(%{tensor}: tensor<f32>) -> (%y: tensor<f32>) {{ compute {{\n{unpacked(tensor, local, t, c, names)}\n%y = 0\n}} }}")
            assert text.compute is not None
            self.body.append(text.compute.body[0])
        return local

    def fresh(self, stem: str) -> str:
        name, k = stem, 0
        while name in self.taken or name in DTYPES:
            k += 1
            name = f"{stem}{k}" if "." not in stem and stem != "acc" else f"{stem}.{k}"
        self.taken.add(name)
        return name

    # ---------------------------------------------------------------------------------------------------------------------- codes

    def code(self, e: Expr, around: tuple[str, ...]) -> Coded | None:
        """An expression as a code: its value is a code's, for every choice that it makes."""
        if isinstance(e, Cast) and e.to in WIDE and not e.saturate:
            return self.code(e.arg, around)
        if isinstance(e, Read) and e.tensor in self.codes:
            return self.coded_read(e, around)
        if isinstance(e, Apply) and e.fn == "select":
            return self._choice(e, e.args[1:], (self.value(e.args[0], around),), around)
        if isinstance(e, Apply) and e.fn in ("max", "min") and any(map(is_zero, e.args)):
            return self._choice(e, e.args, (), around)
        return None

    def _choice(self, e: Apply, args: Sequence[Expr], before: tuple[Expr, ...], around: tuple[str, ...]) -> Coded | None:
        """A choice between codes of one operand and scale, and zeros."""
        found = [None if is_zero(a) else self.code(a, around) for a in args]
        coded = [c for c in found if c is not None]
        if not coded or any(c is None and not is_zero(a) for c, a in zip(found, args, strict=True)):
            return None
        first = coded[0]
        if any(c.scale != first.scale or c.zero != first.zero or c.read.tensor != first.read.tensor for c in coded):
            return None
        return replace(first, plain=False, code=replace(e, args=(*before, *(first.zero if c is None else c.code for c in found))))


# ------------------------------------------------------------------------------------------------------------------------ integers


def half_of_byte(e: Read, indices: Sequence[Expr], c: Codes) -> Expr:
    """An i4 of a byte; see `unpacked`."""
    axis = (c.pair or 0) % len(indices)
    k = indices[axis]
    byte = replace(e, indices=ordered([*indices[:axis], Apply("floordiv", (k, IntLit(2))), *indices[axis + 1:]], c))
    even = Apply("==", (Apply("mod", (k, IntLit(2))), IntLit(0)))
    half = Apply("select", (even, byte, Apply("floordiv", (byte, IntLit(16)))))
    return Apply("-", (Apply("mod", (Apply("+", (half, IntLit(8))), IntLit(16))), IntLit(8)), span=e.span)


def minus(a: Expr, b: Expr) -> Expr:
    """a - b, of integers."""
    if isinstance(b, IntLit):
        if b.value == 0:
            return a
        if b.value < 0:
            return Apply("+", (a, IntLit(-b.value)), span=a.span)
    return Apply("-", (a, b), span=a.span)


def times(a: Expr, b: Expr) -> Expr:
    if isinstance(a, IntLit) and isinstance(b, IntLit):
        return IntLit(a.value * b.value)
    return Apply("*", (a, b))
