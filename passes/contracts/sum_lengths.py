"""Sums of products that a policy lowers: their integers must fit 32 bits, and blocks of weights must divide them, where their lengths are known."""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pipelink_ir.ir.affine import normal
from pipelink_ir.ir.diagnostics import Note, Report
from pipelink_ir.ir.nodes import Apply, Expr, IntLit, Operator, Range, Read, Reduce
from pipelink_ir.ir.source import Span
from pipelink_ir.ir.walk import substitute, walk
from pipelink_ir.passes.contracts.clause_words import Clause
from pipelink_ir.passes.precision.policy import granularity_of


@dataclass(frozen=True, slots=True)
class Sum:
    """A sum of products and its known extents; None for one that is not known."""

    of: Reduce
    extents: tuple[int | None, ...]

    @property
    def length(self) -> int | None:
        out = 1
        for n in self.extents:
            if n is None:
                return None
            out *= n
        return out


def sums(op: Operator, known: Mapping[str, Expr]) -> Iterator[Sum]:
    """The sums over products of two operands, with extents in which `known` dimensions are put in."""
    operands = {o.name for o in op.operands}
    for item in op.compute.body if op.compute is not None else ():
        for e in walk(item.value):
            if isinstance(e, Reduce) and e.kind == "sum" and any(_product(x, operands) for x in walk(e.body)):
                yield Sum(e, tuple(_extent(r, known) for r in e.ranges))


def _product(e: Expr, operands: set[str]) -> bool:
    return isinstance(e, Apply) and e.fn == "*" and all(any(isinstance(x, Read) and x.tensor in operands for x in walk(a)) for a in e.args)


def _extent(r: Expr, known: Mapping[str, Expr]) -> int | None:
    if not isinstance(r, Range):
        return None
    ends = [normal(substitute(x, known)) for x in ((r.hi,) if r.lo is None else (r.lo, r.hi))]
    values = [x.value for x in ends if isinstance(x, IntLit)]
    return values[-1] - (values[0] if r.lo is not None else 0) if len(values) == len(ends) else None


def longest(clause: Clause) -> int | None:
    """Most products of codes whose sum can fit an i32, whatever the values and their zero points turn out to be; None where nothing is summed in i32."""
    if clause.word("dtype") not in ("i8", "u8"):
        return None
    activations = 255 if clause.word("scheme") == "affine" and clause.word("ranges") == "dynamic" else 128
    weights = 8 if clause.word("weights") == "i4" else 128
    return (2**31 - 1) // (activations * weights)


def check_sums(op: Operator, clause: Clause, known: Mapping[str, Expr], use: Span | None, report: Report) -> None:
    """Report sums that the codes of a clause cannot have: at the clause, or at the node whose sizes make them so."""
    most = longest(clause)
    granularity = clause.of.get("granularity")
    size = granularity_of(granularity.value)[1] if granularity is not None else None
    for s in sums(op, known):
        length = s.length
        where = Note("the sum", s.of.span)
        if most is not None and length is not None and length > most:
            at = clause.of["dtype"].span
            report.error("downgrade", use or at, f"the sum of {length:,} products of {clause.word('dtype')} may not fit an i32: it holds {most:,}",
                         [where, *([Note("the policy", at)] if use is not None else [])], "write 'dtype = f16', or sum in parts")
            return
        last = s.extents[-1] if s.extents else None
        if granularity is None or size is None or last is None or size == 0 or length is None:
            continue
        at = granularity.span
        notes = [where, *([Note("the policy", at)] if use is not None else [])]
        if size > length:
            report.error("downgrade", use or at, f"a block of {size} weights is longer than the sum, {length}", notes,
                         "write 'granularity = channel': one scale for the whole sum")
            return
        if last % size and size % last:
            report.error("downgrade", use or at, f"blocks of {size} weights do not divide the sum over {last}", notes,
                         _smaller(last, size, 2 if clause.word("weights") == "i4" else 1))
            return


def _smaller(extent: int, size: int, step: int) -> str:
    """What to write instead of blocks that do not divide a sum: the largest that do, of a number of codes that fills bytes; none of a few weights each."""
    fits = next((n for n in range(min(size, extent), 3, -1) if extent % n == 0 and n % step == 0), None)
    return f"write 'granularity = block({fits})'" if fits is not None else "write 'granularity = channel': one scale for the whole sum"
