"""Which definitions are products of matrices.

Any sum of products is one whose left factor does not depend on some axes of the result and whose right factor not on others: the axes of the left alone
are one flat axis of rows, those of the right one of columns, the ranges one flat sum; a convolution is one.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pipelink_ir.ir.nodes import Apply, Expr, Reduce
from pipelink_ir.ir.typed import Piece, TypedOperator
from pipelink_ir.passes.scheduling.counts import count, names, ranges_of
from pipelink_ir.passes.scheduling.risks import fails, risky
from pipelink_ir.passes.scheduling.shape import long_reductions, sized

NARROW = 16
"""A matrix with fewer rows or columns than this, if that is known, is no matrix."""


@dataclass(frozen=True, slots=True)
class Product:
    """A reduction that is a product of matrices: its factors, and the axes of the result that belong to the left one, to the right one and to both."""

    reduce: Reduce
    plain: Mapping[str, int]
    left: Expr
    right: Expr
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    batch: tuple[int, ...]


def product_of(op: TypedOperator, local: Callable[[str], bool], piece: Piece, chosen: Mapping[str, int] | None = None, alone: bool = True) -> Product | None:
    """The product of matrices that a piece is, with whatever is made of each of its elements. `alone`: there is no other long reduction in it, not even one
    that could be computed before."""
    everything = frozenset(range(len(piece.axes)))
    found = long_reductions(op, local, piece, chosen)
    full = [r for r in found if r.deps == everything]
    if len(full) != 1 or (alone and len(found) != 1):
        return None
    x, plain = full[0].reduce, full[0].plain
    if plain is None or len(set(plain.values())) != len(plain) or x.kind != "sum" or not isinstance(x.body, Apply) or x.body.fn != "*":
        return None
    terms = (x.body, *(() if x.where is None else (x.where,)))
    if not all(sized(b, op) for r in ranges_of(x) for b in (r.lo, r.hi) if b is not None) or any(risky(y, fails(op, local), True) for y in terms):
        return None
    left, right = x.body.args
    a, b, c = ({plain[n] for n in names(y) if n in plain} for y in (left, right, x.where or left))
    if len(piece.axes) - 1 in a:
        left, right, a, b = right, left, b, a
    # A filter must be known to the loaders of both factors: it turns both into zeros.
    if x.where is not None and not c <= a & b:
        return None
    p = Product(x, plain, left, right, tuple(sorted(a - b)), tuple(sorted(b - a)), tuple(sorted(a & b)))
    return p if len(piece.axes) - 1 in p.columns and _wide(piece, p.rows) and _wide(piece, p.columns) else None


def _wide(piece: Piece, axes: tuple[int, ...]) -> bool:
    total = 1
    for k in axes:
        n = count(piece.axes[k])
        if n is None:
            return True
        total *= n
    return bool(axes) and total >= NARROW
