"""Sums of the codes of an operand along the axes that a contraction runs along: what a zero point of the other factor is multiplied by."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipelink_ir.grammar.printer import print_expr, print_type
from pipelink_ir.ir.nodes import Expr, Operator, Read, Reduce, TensorType
from pipelink_ir.ir.walk import names_in
from pipelink_ir.passes.precision.codes import Codes, built, code_type, ordered, over, own_symbols, size_asked, unpacked
from pipelink_ir.passes.precision.products import bound_by, uses_of, whole


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


def sum_of(op: Operator, e: Reduce, r: Read, codes: Codes) -> Sums | None:
    """The sums of codes that a contraction needs of an operand, if it runs over whole axes of it and over nothing else."""
    type = next(o.type for o in op.operands if o.name == r.tensor)
    bound = bound_by(e)
    summed = tuple(k for k, i in enumerate(r.indices) if names_in(i) & bound)
    if e.where is not None or e.kind != "sum" or len(summed) != len(e.ranges) or not all(whole(e, r, k, type.dims[k]) for k in summed):
        return None
    block = codes.axis if codes.scale == "block" else None
    return Sums(summed, block if block in summed else None)


def summer(op: Operator, operand: str, codes: Codes, name: str) -> Operator | None:
    """What makes the operand `%x.sum` of a quantised operator: the codes of `%x` -> `%s`. None where no sum of products runs over whole axes of it. An attribute `D0` as `dequantiser` says."""
    found = next((s for u in uses_of(op, operand) if (s := sum_of(op, u.reduce, u.read, codes)) is not None), None)
    type = next((o.type for o in op.operands if o.name == operand), None)
    if found is None or type is None or not codes.is_int:
        return None
    t = own_symbols(type)
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
