"""Sums of the codes of an operand along the axes that a contraction runs along: what a zero point of the other factor is multiplied by."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pipelink_ir.grammar.printer import print_expr, print_type
from pipelink_ir.ir.nodes import Expr, Name, Operator, Range, Read, Reduce, TensorType
from pipelink_ir.ir.walk import names_in
from pipelink_ir.passes.precision.codes import Codes, built, code_type, ordered, over, own_symbols, size_asked, unpacked
from pipelink_ir.passes.precision.products import bound_by, ranges_of, uses_of, whole


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums of codes along some axes, one of which may be cut in blocks."""

    summed: tuple[int, ...]
    block: int | None

    def type(self, t: TensorType, codes: Codes) -> TensorType:
        dims = [over(d, codes.size or 1) if k == self.block else d for k, d in enumerate(t.dims) if k not in self.summed or k == self.block]
        return TensorType(tuple(dims), "i32")

    def index(self, indices: Sequence[Expr], block: Expr | None) -> tuple[Expr, ...]:
        return tuple(block if k == self.block and block is not None else i for k, i in enumerate(indices) if k not in self.summed or k == self.block)


@dataclass(frozen=True, slots=True)
class Blocks:
    """A contraction cut along the blocks of a factor: `along` runs in a block, `outer` are the ranges on which its scale depends besides."""

    along: Range
    outer: tuple[Range, ...]

    def inner(self, e: Reduce, along: Range) -> Reduce:
        """The sum in one block, with another range along it."""
        return replace(e, ranges=tuple(along if r is self.along else r for r in e.ranges if r not in self.outer))


def blocks_of(e: Reduce, r: Read, codes: Codes, type: TensorType) -> Blocks | None:
    """How a contraction is cut along the blocks of what it reads: it must run along all of their axis."""
    if codes.scale != "block" or codes.axis is None or e.kind != "sum" or not whole(e, r, codes.axis, type.dims[codes.axis]):
        return None
    index = r.indices[codes.axis]
    along = next(x for x in ranges_of(e) if isinstance(index, Name) and x.index == index.name)
    others = set().union(*(names_in(i) for k, i in enumerate(r.indices) if k != codes.axis))
    outer = tuple(x for x in ranges_of(e) if x is not along and x.index in others)
    if any(along.index in names_in(b) for x in ranges_of(e) for b in (x.lo, x.hi) if b is not None):
        return None
    inner = {x.index for x in ranges_of(e) if x not in outer}
    return None if any(names_in(b) & inner for x in outer for b in (x.lo, x.hi) if b is not None) else Blocks(along, outer)


def sum_of(op: Operator, e: Reduce, r: Read, codes: Codes) -> Sums | None:
    """The sums of codes that a contraction needs of an operand, if it runs over whole axes of it and over nothing else."""
    type = next(o.type for o in op.operands if o.name == r.tensor)
    bound = bound_by(e)
    summed = tuple(k for k, i in enumerate(r.indices) if names_in(i) & bound)
    if e.where is not None or e.kind != "sum" or len(summed) != len(e.ranges) or not all(whole(e, r, k, type.dims[k]) for k in summed):
        return None
    block = codes.axis if codes.scale == "block" else None
    return Sums(summed, block if block in summed else None)


def made_once(op: Operator, operand: str, codes: Codes) -> Sums | None:
    """The sums of an operand's codes that are made beforehand: those of the first contraction that runs over whole axes of it. (One that multiplies it along
    other axes, as both do of weights that an encoder and its decoder share, sums by itself.)"""
    type = next((o.type for o in op.operands if o.name == operand), None)
    if type is None or not codes.is_int:
        return None
    for u in uses_of(op, operand):
        blocks = blocks_of(u.reduce, u.read, codes, type)
        found = sum_of(op, u.reduce if blocks is None else blocks.inner(u.reduce, blocks.along), u.read, codes)
        if found is not None:
            return found
    return None


def summer(op: Operator, operand: str, codes: Codes, name: str) -> Operator | None:
    """What makes the operand `%x.sum` of a quantised operator: the codes of `%x` -> `%s`. None where no sum of products runs over whole axes of it. An
    attribute `D0` as `dequantiser` says."""
    found = made_once(op, operand, codes)
    if found is None:
        return None
    t = own_symbols(next(o.type for o in op.operands if o.name == operand))
    at = [f"d{k}" for k in range(len(t.dims))]
    ranges = []
    for k in found.summed:
        size = print_expr(t.dims[k])
        if k == found.block:
            end = f"d{k} * {codes.size} + {codes.size}"
            ranges.append(f"t in d{k} * {codes.size}..min({end}, {size})")
        else:
            ranges.append(f"d{k} < {size}")
    left = [at[k] for k in range(len(at)) if k not in found.summed or k == found.block]
    inside = ["t" if k == found.block else i for k, i in enumerate(at)]
    out = print_type(found.type(t, codes))
    code, more = f"%q[{', '.join(ordered(inside, codes))}]", ""
    if codes.dtype == "i4":
        code, more = f"%c[{', '.join(inside)}]", unpacked("q", "c", t, codes) + "\n    "
    target = f"%s[{', '.join(left)}]" if left else "%s"
    return built(f"op @{name}(%q: {print_type(code_type(t, codes))}{size_asked(t, codes)}) -> (%s: {out}) {{\n"
                 f"  compute {{\n    {more}{target} = sum[{', '.join(ranges)}]({code})\n  }}\n}}\n")
