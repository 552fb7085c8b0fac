"""Sums of products in a body as it is written: which operands they multiply, over what they run, and which axes are left to the result.

A contraction is a `sum` or `mean` whose body is a product; quotients and signs are taken apart with it. What a code can stand for is a factor: a read of a
coded operand, a choice between such reads and zero, and conversions to a wider float around them.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.nodes import Apply, Axis, Cast, Define, Expr, FloatLit, IntLit, Name, Operator, Range, Read, Reduce
from pipelink_ir.ir.walk import children, names_in, reads_in, walk

SUMS = ("sum", "mean")
WIDE = ("f32", "f64")


@dataclass(frozen=True, slots=True)
class Factor:
    """A factor of a product; `below`: it divides."""

    value: Expr
    below: bool = False


def factors(e: Expr) -> tuple[list[Factor], bool]:
    """What an expression is a product of, and whether its sign is changed."""
    if isinstance(e, Apply) and e.fn == "neg":
        parts, negative = factors(e.args[0])
        return parts, not negative
    if isinstance(e, Apply) and e.fn in ("*", "/"):
        (left, a), (right, b) = factors(e.args[0]), factors(e.args[1])
        return [*left, *(Factor(f.value, f.below != (e.fn == "/")) for f in right)], a != b
    return [Factor(e)], False


def multiplied(values: Sequence[Expr]) -> Expr | None:
    """A product; None of nothing."""
    out: Expr | None = None
    for v in values:
        out = v if out is None else Apply("*", (out, v))
    return out


def product(parts: Sequence[Factor]) -> Expr | None:
    """A product of factors, some of which may divide; None of nothing."""
    above, below = ([f.value for f in parts if f.below is side] for side in (False, True))
    out = multiplied(above)
    for v in below:
        out = Apply("/", (out if out is not None else FloatLit(1.0), v))
    return out


def is_zero(e: Expr) -> bool:
    return isinstance(e, IntLit | FloatLit) and e.value == 0


def ranges_of(e: Reduce) -> list[Range]:
    return [r for r in e.ranges if isinstance(r, Range)]


def bound_by(e: Reduce) -> set[str]:
    return {r.index for r in ranges_of(e)}


def extent(r: Range, sizes: frozenset[str]) -> Expr:
    """How many places a range has: none where it ends before it begins, as `3..D` does for a D of 2. `sizes`: names of extents, which are never negative."""
    if r.lo is not None and isinstance(r.lo, IntLit) and isinstance(r.hi, IntLit):
        return IntLit(max(r.hi.value - r.lo.value, 0))
    length = r.hi if r.lo is None or is_zero(r.lo) else Apply("-", (r.hi, r.lo))
    return length if _never_negative(length, sizes) else Apply("max", (length, IntLit(0)))


def _never_negative(e: Expr, sizes: frozenset[str]) -> bool:
    """Whether a number is made of sizes by sums, products and quotients alone."""
    return not any((isinstance(x, Apply) and x.fn in ("-", "neg")) or (isinstance(x, IntLit) and x.value < 0) or (isinstance(x, Name) and x.name not in sizes)
                   for x in walk(e))


@dataclass(frozen=True, slots=True)
class Use:
    """A contraction that multiplies an operand with something: the read of it, the definition and the indices around, and whether another factor is data."""

    define: Define
    reduce: Reduce
    read: Read
    around: tuple[str, ...]
    with_data: bool


def uses_of(op: Operator, operand: str) -> Iterator[Use]:
    """Every sum of products in which an operand is a factor."""
    floats = _floats(op)
    for d in op.compute.body if op.compute is not None else ():
        if isinstance(d, Define):
            yield from _uses(d, d.value, tuple(a.index for a in d.axes if isinstance(a, Axis)), operand, floats)


def _uses(d: Define, e: Expr, around: tuple[str, ...], operand: str, floats: frozenset[str]) -> Iterator[Use]:
    if isinstance(e, Reduce):
        if e.kind in SUMS:
            parts = [f.value for f in factors(e.body)[0]]
            for k, p in enumerate(parts):
                for r in _plain_reads(p):
                    if r.tensor == operand:
                        others = [q for i, q in enumerate(parts) if i != k]
                        data = any(x.tensor in floats and names_in(q) & bound_by(e) for q in others for x in reads_in(q))
                        yield Use(d, e, r, around, data)
        around = (*around, *bound_by(e))
    for c in children(e):
        yield from _uses(d, c, around, operand, floats)


def _plain_reads(e: Expr) -> Iterator[Read]:
    """The reads that a factor chooses from."""
    if isinstance(e, Cast) and e.to in WIDE:
        yield from _plain_reads(e.arg)
    elif isinstance(e, Apply) and e.fn == "select":
        yield from _plain_reads(e.args[1])
        yield from _plain_reads(e.args[2])
    elif isinstance(e, Apply) and e.fn in ("max", "min") and any(map(is_zero, e.args)):
        for a in e.args:
            yield from _plain_reads(a)
    elif isinstance(e, Read):
        yield e


def _floats(op: Operator) -> frozenset[str]:
    """Operands of floats, and locals: what may be data of a product."""
    ints = {o.name for o in op.operands if o.type.dtype in DTYPES and not DTYPES[o.type.dtype].is_float}
    defined = {d.tensor for d in op.compute.body if isinstance(d, Define)} if op.compute is not None else set()
    return frozenset(({o.name for o in op.operands} | defined) - ints)


def joined(op: Operator) -> dict[str, tuple[str, ...]]:
    """Locals that are nothing but operands, piece by piece, as a list of operands is: their names, and of which operands each is made."""
    found: dict[str, list[str]] = {}
    other = {r.name for r in op.results}
    operands = {o.name for o in op.operands}
    for d in op.compute.body if op.compute is not None else ():
        if isinstance(d, Define):
            value = bare(d.value)
            if isinstance(value, Read) and value.tensor in operands:
                found.setdefault(d.tensor, []).append(value.tensor)
            else:
                other.add(d.tensor)
    return {name: tuple(parts) for name, parts in found.items() if name not in other}


def bare(e: Expr) -> Expr:
    """An expression without conversions to wider floats around it."""
    while isinstance(e, Cast) and e.to in WIDE and not e.saturate:
        e = e.arg
    return e


def carried(op: Operator, operand: str) -> tuple[str, ...]:
    """An operand, and the locals that it is a piece of."""
    return (operand, *(name for name, parts in joined(op).items() if operand in parts))


# ------------------------------------------------------------------------------------------------------------------------ answers


def contracted(op: Operator, operand: str) -> bool:
    """Whether an operand is a factor of a sum of products with other data: what codes are worth most for."""
    return any(u.with_data for name in carried(op, operand) for u in uses_of(op, name))


def summed_axes(u: Use) -> frozenset[int]:
    """The axes of an operand along which a contraction runs."""
    bound = bound_by(u.reduce)
    return frozenset(k for k, i in enumerate(u.read.indices) if names_in(i) & bound)


def channel_axis(op: Operator, operand: str) -> int | None:
    """The axis that may have a scale for each place: one that no sum of products runs along, indexed by an index of the result. Of several the longest, if
    sizes are known, else the last. None if there is none."""
    type = next((o.type for o in op.operands if o.name == operand), None)
    uses = list(uses_of(op, operand))
    if type is None or not uses:
        return None
    axes = set(range(len(type.dims)))
    for u in uses:
        free = {k for k, i in enumerate(u.read.indices) if isinstance(i, Name) and i.name in u.around}
        axes &= free - summed_axes(u)
    sizes = {k: d.value for k in axes if isinstance(d := type.dims[k], IntLit)}
    if len(sizes) == len(axes):
        return max(axes, key=lambda k: (sizes[k], k), default=None)
    return max(axes, default=None)


def block_axis(op: Operator, operand: str) -> int | None:
    """The axis that may be divided in blocks: the last that the sums of products run along, each by an index of its own from 0 to its end; None if there is
    none. i4 codes lie two to a byte along it."""
    type = next((o.type for o in op.operands if o.name == operand), None)
    uses = list(uses_of(op, operand))
    if type is None or not uses:
        return None
    axes = set(range(len(type.dims)))
    for u in uses:
        axes &= {k for k in axes if whole(u.reduce, u.read, k, type.dims[k])}
    return max(axes, default=None)


def whole(e: Reduce, r: Read, axis: int, dim: Expr) -> bool:
    """Whether a reduction runs along all of an axis of what it reads, by an index that stands nowhere else in the read."""
    i = r.indices[axis]
    if not isinstance(i, Name) or sum(i.name in names_in(x) for x in r.indices) != 1:
        return False
    return any(x.index == i.name and (x.lo is None or is_zero(x.lo)) and x.hi == dim for x in ranges_of(e))


def memory_order(op: Operator, operand: str) -> tuple[int, ...]:
    """The order of axes that suits a product of matrices: what is summed last. () where an axis of the result is shared with the other factor, as in a
    depthwise convolution: there neighbours in memory stay channels."""
    orders: set[tuple[int, ...]] = set()
    for u in uses_of(op, operand):
        parts = [f.value for f in factors(u.reduce.body)[0]]
        others = {n for p in parts if u.read not in set(_plain_reads(p)) for n in names_in(p)}
        summed = summed_axes(u)
        own = [k for k, i in enumerate(u.read.indices) if k not in summed]
        if not u.with_data or not own or any(names_in(u.read.indices[k]) & others for k in own):
            return ()
        orders.add((*own, *sorted(summed)))
    found = next(iter(orders)) if len(orders) == 1 else ()
    return () if found == tuple(range(len(found))) else found


def counted(e: Reduce, sizes: frozenset[str], attributes: frozenset[str]) -> list[Expr] | None:
    """The extents of a reduction in the sizes of operands, and attributes, alone; None where they depend on indices or data."""
    found = [extent(r, sizes) for r in ranges_of(e)]
    known = sizes | attributes
    if len(found) != len(e.ranges) or any(isinstance(x, Read) or (isinstance(x, Name) and x.name not in known) for s in found for x in walk(s)):
        return None
    return found
