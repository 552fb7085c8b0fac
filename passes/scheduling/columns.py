"""Reductions of columns on a GPU: those whose terms lie a row apart in memory, while the terms of neighbouring results lie side by side.

    y[n, c] = mean[h < H, w < W](x[n, h, w, c])        s[j] = sum[i < M](a[i, j])

A block has a few neighbouring columns; its threads share out the rows, and what they find is put together in shared memory (`backends/loops/gpu/columns.py`).
Where results are too few to keep a device busy, blocks have parts of the rows, and other blocks put together what the parts give. That depends on sizes
alone, so results are the same in every run.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import gcd, prod
from typing import TypeVar

from pipelink_ir.ir.functions import REDUCTIONS
from pipelink_ir.ir.nodes import Range, Reduce
from pipelink_ir.ir.typed import Piece, TypedOperator
from pipelink_ir.passes.scheduling.counts import UNROLL, count, known, names, ranges_of, terms
from pipelink_ir.passes.scheduling.shape import last_of, long_reductions, reads_of, sized
from pipelink_ir.passes.scheduling.uses import Use, uses_of

KINDS = ("sum", "mean", "max", "min", "prod")
BYTES = 16
"""Bytes that one access moves."""
LANES = 128
"""Threads side by side at most, each with the columns of one access: what a block reads of a row."""
PROCESSORS = 132
"""Multiprocessors of a large device: all columns of all parts should have as many blocks as fit on them."""
FIT, FIT_WIDE, WIDE = 3, 2, 8
"""Blocks that a multiprocessor should hold, fewer where a thread has more columns than so many."""
MOST = 512
"""Parts of a column at most: what they give has to be put together."""
LEAST = 2048
"""Accesses that a part has at least: eight for each thread."""
NARROW, ALONE, FEW = 2, 128, 4096
"""Accesses side by side that a block has of a row at least; so many such blocks do without parts, if none has more rows than that."""
STREAMS = 3
"""Tensors of which a thread has several rows at once."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Columns:
    """A reduction, the axis of the result that each name around it is, the `axis` along which neighbours lie side by side, and how many of them one access
    moves."""

    reduce: Reduce
    plain: tuple[tuple[str, int], ...]
    axis: int
    size: int
    cut: bool
    """Whether how many rows there are follows from sizes, so that they can be cut into parts."""
    run: bool = False
    """Whether all rows of a result are one run of memory: then few columns, whatever their number, come by wide accesses to several rows."""


def columns_of(op: TypedOperator, local: Callable[[str], bool], piece: Piece, chosen: Mapping[str, int] | None = None) -> Columns | None:
    """How a piece is a reduction of columns; None if it is none."""
    if not op.reduces or chosen or not piece.axes or piece.holes:
        return None
    found = long_reductions(op, local, piece, None, UNROLL)
    if len(found) != 1 or found[0].plain is None or found[0].reduce.kind not in KINDS or found[0].reduce.where is not None:
        return None
    x, plain = found[0].reduce, found[0].plain
    if set(plain.values()) != set(range(len(piece.axes))) or len(plain) != len(piece.axes) or REDUCTIONS[x.kind].ranked:
        return None
    if any(names(b) & {*plain, *(r.index for r in ranges_of(x))} for r in ranges_of(x) for b in (r.lo, r.hi) if b is not None):
        return None
    reads = reads_of(op, local, x, plain)
    # Where nothing is read that is as large as all terms of all results together, this is no column but a product of matrices.
    whole = [u for u in reads if set(plain) <= frozenset[str]().union(*(lin.names for lin in u.at))]
    columns = {n for u in whole for n in plain if last_of(u).only(n)}
    if len(columns) != 1:
        return None
    column = columns.pop()
    size = BYTES // min(op.tensors[u.tensor].dtype.bytes for u in reads if last_of(u).only(column))
    n = count(piece.axes[plain[column]])
    cut = all(sized(b, op) for r in (*ranges_of(x), *piece.axes) for b in (r.lo, r.hi) if b is not None)
    way = Columns(x, tuple(sorted(plain.items(), key=lambda named: named[1])), plain[column], size, cut)
    way = replace(way, run=_is_run(op, way, streams(op, local, way), piece.axes[plain[column]]))
    while size > 1 and n is not None and n % size and not (way.run and n // gcd(n, size) <= LANES):
        size //= 2
    return replace(way, size=size)


def streams(op: TypedOperator, local: Callable[[str], bool], way: Columns) -> tuple[Use, ...]:
    """What is read of each row, if all of it lies along the columns and nothing else of a term depends on its row: then it can be loaded before any of it is
    used. The ranges are called #1, #2, …"""
    x, plain = way.reduce, dict(way.plain)
    column = next(n for n, k in way.plain if k == way.axis)
    around = Piece(tuple(Range(n, None, x.body) for n in plain), Reduce("sum", x.ranges, None, x.body), (), x.span)
    found = uses_of(around, op.tensors, local)
    rows = {f"#{k + 1}" for k in range(len(ranges_of(x)))}
    moving = tuple(u for u in found.uses if any(n.startswith("#") for lin in u.at for n in lin.names))
    if found.loose & rows or found.joined or len(moving) > STREAMS:
        return ()
    plainly = all(set(u.access) <= {"inside"} and u.at[-1].only(column) and not any(lin.opaque or column in lin.names or not lin.names <= rows | set(plain)
                                                                                    for lin in u.at[:-1]) for u in moving)
    return moving if plainly else ()


def _is_run(op: TypedOperator, way: Columns, reads: tuple[Use, ...], column: Range) -> bool:
    """Whether the rows that are read of each tensor follow each other in memory."""
    ranges = ranges_of(way.reduce)
    ends = [*(r.hi for r in ranges), column.hi]
    first = len(ranges) + 1

    def follows(u: Use) -> bool:
        shape = op.tensors[u.tensor].shape[-first:]
        return len(u.at) >= first and all(lin.only(f"#{k + 1}") for k, lin in enumerate(u.at[-first:-1])) and all(
            known(low) == 0 and (hi == end or not k) for k, ((low, hi), end) in enumerate(zip(shape, ends, strict=True)))

    return bool(reads) and all(known(r.lo) == 0 for r in (*ranges, column)) and all(map(follows, reads))


def blocks(size: int) -> int:
    """Blocks that fit on a multiprocessor, by the columns of a thread."""
    return FIT_WIDE if size > WIDE else FIT


def parts(do: Callable[[str, T, T], T], number: Callable[[int], T], rows: T, width: T, others: T, size: int) -> T:
    """Into how many parts the rows are cut. `others` are the results a column has. The arithmetic is the caller's: of numbers, or of what a kernel computes."""
    vectors = do("quot", do("+", width, number(size - 1)), number(size))
    tiles = do("quot", do("+", vectors, number(LANES - 1)), number(LANES))
    wanted = do("quot", number(PROCESSORS * blocks(size)), do("max", do("*", others, tiles), number(1)))
    enough = do("quot", do("*", rows, do("min", vectors, number(LANES))), number(LEAST))
    # Where blocks of few columns are enough of them and have few rows they are done sooner than a second kernel begins.
    narrow = do("*", others, do("quot", do("+", vectors, number(NARROW - 1)), number(NARROW)))
    alone = do("*", do("min", do("quot", narrow, number(ALONE)), number(1)), do("min", do("quot", number(FEW), do("max", rows, number(1))), number(1)))
    count = do("min", do("min", wanted, enough), number(MOST))
    return do("max", do("quot", count, do("+", do("*", alone, number(MOST)), number(1))), number(1))


def known_parts(way: Columns, piece: Piece) -> int | None:
    """How many parts there are, if that is known from the program."""
    if not way.cut:
        return 1
    rows, sizes = terms(way.reduce), [count(a) for a in piece.axes]
    width = sizes[way.axis]
    if rows is None or width is None or None in sizes:
        return None
    others = prod(n for k, n in enumerate(sizes) if k != way.axis and n is not None)
    calculate: Mapping[str, Callable[[int, int], int]] = {
        "+": lambda a, b: a + b, "*": lambda a, b: a * b, "quot": lambda a, b: a // b, "max": max, "min": min}
    return parts(lambda fn, a, b: calculate[fn](a, b), lambda n: n, rows, width, others, way.size)
