"""Which definitions are products of matrices.

Any sum of products is one whose left factor does not depend on some axes of the result and whose right factor not on others: the axes of the left alone
are one flat axis of rows, those of the right one of columns, the ranges one flat sum; a convolution is one.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod

from pipelink_ir.ir.nodes import Apply, Expr, Reduce
from pipelink_ir.ir.typed import Piece, TypedOperator
from pipelink_ir.passes.scheduling.counts import count, names, ranges_of, terms
from pipelink_ir.passes.scheduling.cuts import USUAL, Cut, cut_of
from pipelink_ir.passes.scheduling.risks import fails, risky
from pipelink_ir.passes.scheduling.shape import SERIAL, last_of, long_reductions, reads_of, sized
from pipelink_ir.passes.scheduling.windows import slides

NARROW = 16
"""A matrix with fewer rows or columns than this, if that is known, is no matrix."""
MANY = 4
"""So many rows are no longer few."""
SHALLOW = 16
"""A product of fewer terms, if that is known, is not worth tiles."""


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
    cut: Cut = USUAL
    """How threads that multiply and add share it."""


def product_of(op: TypedOperator, local: Callable[[str], bool], piece: Piece, chosen: Mapping[str, int] | None = None, alone: bool = True,
               rows: int = NARROW) -> Product | None:
    """The product of matrices that a piece is, with whatever is made of each of its elements. `alone`: there is no other long reduction in it, not even one
    that could be computed before. `rows`: how many there have to be."""
    p = _product(op, local, piece, chosen, alone)
    return p if p is not None and _wide(piece, p.rows, rows) else None


def tiled_product_of(op: TypedOperator, local: Callable[[str], bool], piece: Piece, chosen: Mapping[str, int] | None = None) -> Product | None:
    """The same for threads that multiply and add, with its cut. There may be one row or a few, where the columns lie side by side in memory."""
    p = _product(op, local, piece, chosen, True)
    if p is None:
        return None
    rows, columns, batch = (_places(piece, axes) for axes in (p.rows, p.columns, p.batch))
    if rows is not None and rows < NARROW and (batch != 1 or rows >= MANY or not _side_by_side(op, local, p)):
        return None
    if rows is not None and rows < NARROW and slides(op, local, piece, chosen):
        # A stencil: neighbours share what they read.
        return None
    depth = terms(p.reduce)
    if batch != 1 and depth is not None and depth <= SERIAL:
        return None  # many small products: a thread for each place is as good
    return replace(p, cut=cut_of(rows, columns, batch, depth))


def any_product_of(op: TypedOperator, local: Callable[[str], bool], piece: Piece, chosen: Mapping[str, int] | None = None) -> Product | None:
    """The same with any number of rows, even none at all, and of columns."""
    return _product(op, local, piece, chosen, True, 1)


def _product(op: TypedOperator, local: Callable[[str], bool], piece: Piece, chosen: Mapping[str, int] | None, alone: bool,
             columns: int = NARROW) -> Product | None:
    everything = frozenset(range(len(piece.axes)))
    found = long_reductions(op, local, piece, chosen, SHALLOW - 1)
    full = [r for r in found if r.deps == everything]
    if len(full) != 1 or (alone and len(found) != 1):
        return None
    x, plain = full[0].reduce, full[0].plain
    if plain is None or len(set(plain.values())) != len(plain) or x.kind != "sum" or not isinstance(x.body, Apply) or x.body.fn != "*":
        return None
    asked = (x.body, *(() if x.where is None else (x.where,)))
    if not all(sized(b, op) for r in ranges_of(x) for b in (r.lo, r.hi) if b is not None) or any(risky(y, fails(op, local), True) for y in asked):
        return None
    left, right = x.body.args
    a, b, c = ({plain[n] for n in names(y) if n in plain} for y in (left, right, x.where or left))
    if len(piece.axes) - 1 in a:
        left, right, a, b = right, left, b, a
    # A filter must be known to the loaders of both factors: it turns both into zeros.
    if x.where is not None and not c <= a & b:
        return None
    p = Product(x, plain, left, right, tuple(sorted(a - b)), tuple(sorted(b - a)), tuple(sorted(a & b)))
    return p if len(piece.axes) - 1 in p.columns and _wide(piece, p.columns, columns) else None


def _places(piece: Piece, axes: tuple[int, ...]) -> int | None:
    """How many places some axes have together, if that is known."""
    sizes = [count(piece.axes[k]) for k in axes]
    return None if None in sizes else prod(n for n in sizes if n is not None)


def _wide(piece: Piece, axes: tuple[int, ...], least: int = NARROW) -> bool:
    n = _places(piece, axes)
    return bool(axes) and (n is None or n >= least)


def _side_by_side(op: TypedOperator, local: Callable[[str], bool], p: Product) -> bool:
    """Whether neighbours in the memory of the right factor are columns."""
    reads = reads_of(op, local, replace(p.reduce, body=p.right), p.plain)
    return bool(reads) and any(p.plain.get(n) in p.columns for n in last_of(reads[0]).names)
