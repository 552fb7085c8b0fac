"""Which products stream through shared memory by the copy engine of sm_90a, the fastest way there is there.

The copy engine reads boxes of a tensor, so each factor must be read as it lies in memory: its axes, in order, are those of the rows (or columns), those of the
sum and those of the batch, each kind in one piece, and it begins at its first element. It takes lines that follow each other at multiples of 16 bytes: whether
they do is found out at run time, unless the sizes are known, and where they do not a kernel before it copies the factor to memory where they do. The first
one has to begin at such a multiple as well, if it is not copied. A factor whose axes lie in another order (the heads of attention, merged) is gathered by such
a kernel. f8 is converted to f16 on such a way, which is exact: what the instruction for f8 adds up is cut off too soon, and is only used under `accuracy =
f8`, for 128 terms at a time. Where there are too few tiles for all
processors, or a factor begins elsewhere, `otherwise` computes the product.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import prod

from pipelink_ir.ir import contracts
from pipelink_ir.ir.dtypes import BOOL, F16, DType
from pipelink_ir.ir.gpus import GPUS
from pipelink_ir.ir.nodes import Apply, Cast, Expr, IntLit, Name, Range, Read
from pipelink_ir.ir.targets import Arch
from pipelink_ir.ir.typed import Piece, Tensor, TypedOperator
from pipelink_ir.ir.walk import children, substitute
from pipelink_ir.passes.scheduling.boxes import Boxes, boxes_of
from pipelink_ir.passes.scheduling.counts import count, known, names, ranges_of
from pipelink_ir.passes.scheduling.products import NARROW, Product
from pipelink_ir.passes.scheduling.tensor_cores import EIGHTHS, HALVES, TensorCores, plain_read, tensor_cores_of

ROWS, COLUMNS = 128, 192
"""The tile of a team."""
SMALL = (64, 64), (64, 128), (64, 192), (128, 128)
"""Small tiles: of the first a processor may have two."""
PROCESSORS = GPUS[90].processors
"""Of so many small tiles, or fewer, each has one for itself."""
WIDTHS = (192, 128, 96, 64)
"""Columns that a tile may have."""
ENOUGH = 64
"""Fewer tiles leave too many processors without work."""
AT_ONCE = 4
"""Instructions of f8, of 32 terms each, that are added up with few bits where that is allowed."""
DEEP = 256
"""Fewer terms are over before the copies are under way."""
BESIDE = 128
"""So many lines of the other factor make up for gathering one."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """A factor as it lies in memory. `along`: neighbours are terms. The axes of the tensor, slowest first, behind the place of the second of lines and terms
    (`inner`), and behind that of the batch, if there is one (`outer`). `turned`: it is turned over first, into memory of its own. `converted`: it is copied
    first, as another dtype. `uneven`: its lines may not follow each other at multiples of 16 bytes, then it is copied too. `gathered`: its axes lie in another
    order, so it is copied first, and `inner` and `outer` say nothing. `computed`: it is made of the codes of `tensor` first, so
    many of which share an element, and they say nothing either."""

    tensor: str
    along: bool
    inner: tuple[int, ...]
    outer: tuple[int, ...] | None
    turned: bool = False
    converted: bool = False
    uneven: bool = False
    gathered: bool = False
    computed: int = 0

    @property
    def moved(self) -> bool:
        """Whether it is read from other memory, whatever the sizes are."""
        return self.turned or self.converted or self.gathered or self.computed > 0


@dataclass(frozen=True, slots=True)
class Turning:
    """A factor of a product that streams is turned over, or copied."""

    of: Streamed
    left: bool


@dataclass(frozen=True, slots=True)
class Streamed:
    """A product that streams: its two factors, what they are held as, and how it is computed where it cannot."""

    otherwise: TensorCores
    left: Matrix
    right: Matrix
    dtypes: tuple[DType, DType]
    short: int = 0
    """So many instructions are added up with the few bits that tensor cores have for sums of f8, before they are added up in f32."""
    tile: tuple[int, int] = (ROWS, COLUMNS)
    """Rows and columns that a team computes at a time."""
    boxes: Boxes | None = None
    """How the left factor is read off a picture, if it is one; then rows are the pixels of boxes."""
    small: bool = False
    """Whether tiles are smaller than others: then a block has one team."""
    beside: int = 1
    """Blocks of a processor."""
    large: Streamed | None = None
    """The same in large tiles, which is taken where sizes, which are not known, give enough of them."""

    @property
    def enough(self) -> int:
        """Fewer tiles are left to another kernel."""
        return 1 if self.small or self.boxes is not None else ENOUGH


def streamed_of(op: TypedOperator, local: Callable[[str], bool], tensor: Tensor, piece: Piece, chosen: Mapping[str, int] | None = None,
                arch: Arch | None = None) -> Streamed | None:
    """How a piece streams; None where it does not."""
    if arch is None or (arch.sm, arch.suffix) != (90, "a"):
        return None
    found = tensor_cores_of(op, local, piece, chosen, arch, 1)
    if found is None or found.product.reduce.where is not None or piece.holes:
        return None
    product = found.product
    if product.batch and _total([piece.axes[k] for k in product.rows]) in range(NARROW):
        return None
    short = AT_ONCE if found.left.name in EIGHTHS and found.right.name in EIGHTHS and contracts.short_sums(op.op) else 0
    first, second = (F16 if d.name in EIGHTHS and not short else d for d in (found.left, found.right))
    left, boxes = _picture(op, local, found, first, piece)
    left = left or _matrix(op, local, found, product.left, first, product.rows, piece)
    right = _matrix(op, local, found, product.right, second, product.columns, piece)
    if left is None or right is None:
        return None
    if first.bytes != 2:
        # Others than halves cannot be transposed on the way.
        if any(m.gathered and not m.along for m in (left, right)):
            return None
        left, right = (replace(m, turned=not m.along) for m in (left, right))
    way: Streamed | None = None
    for tile in _tiles(piece, product, short) if boxes is None else ((ROWS, _width(piece, product, right), 1),):
        way = Streamed(found, left, right, (first, second), short, tile[:2], boxes, boxes is None and tile[:2] != (ROWS, COLUMNS), tile[2], way)
    if way is None:
        return None
    otherwise = replace(found, unless=way)
    return replace(way, otherwise=otherwise, large=None if way.large is None else replace(way.large, otherwise=otherwise))


Tile = tuple[int, int, int]
"""Rows, columns, and blocks of a processor."""


def _tiles(piece: Piece, p: Product, short: int) -> tuple[Tile, ...]:
    """The tiles of a team, large ones first where sizes decide that are not known; none where there is not enough to do."""
    rows, columns, batch = (_total([piece.axes[k] for k in axes]) for axes in (p.rows, p.columns, p.batch))
    depth = _total(ranges_of(p.reduce))
    if depth is not None and depth < DEEP:
        return ()
    large, small = (ROWS, COLUMNS, 1), None if short else small_tile(rows, columns, batch)
    if rows is None or columns is None or batch is None:
        there = all(n is None or n >= size for n, size in ((rows, ROWS // 2), (columns, COLUMNS // 2)))
        return tuple(tile for tile in (large if there else None, small) if tile is not None)
    if -(-rows // ROWS) * -(-columns // COLUMNS) * batch >= (PROCESSORS if small and rows <= ROWS else ENOUGH):
        return (large,)
    return () if small is None else (small,)


def small_tile(rows: int | None, columns: int | None, batch: int | None) -> Tile | None:
    """The tile where large ones would leave processors without work: the one of which a processor has the fewest bytes to bring."""
    first = SMALL[0]
    if rows is None or columns is None or batch is None:
        return *first, 2
    count = {tile: -(-rows // tile[0]) * -(-columns // tile[1]) * batch for tile in SMALL}

    def share(tile: tuple[int, int]) -> float:
        n = count[tile]
        return (n / PROCESSORS if tile == first and PROCESSORS < n <= 2 * PROCESSORS else -(-n // PROCESSORS)) * (min(rows, tile[0]) + tile[1])

    tile = min(SMALL, key=share)
    return *tile, 2 if tile == first and count[tile] > PROCESSORS else 1


def _width(piece: Piece, p: Product, right: Matrix) -> int:
    """The columns of a tile by which as few as possible are computed that are not there."""
    n = _total([piece.axes[k] for k in p.columns])
    return COLUMNS if n is None else min((c for c in WIDTHS if right.along or right.turned or c % 64 == 0), key=lambda c: (-(-n // c) * c, -c))


def _picture(op: TypedOperator, local: Callable[[str], bool], found: TensorCores, dtype: DType, piece: Piece) -> tuple[Matrix | None, Boxes | None]:
    """The left factor of a convolution, and how it is read."""
    read = plain_read(found.product.left)
    if read is None or local(read.tensor) or op.tensors[read.tensor].dtype is not dtype or dtype.bytes > 2:
        return None, None
    boxes = boxes_of(op.tensors[read.tensor], found.product, piece, ROWS)
    return (None if boxes is None else Matrix(read.tensor, True, (), None)), boxes


def _total(ranges: Sequence[Range]) -> int | None:
    counts = [count(r) for r in ranges]
    return prod(n for n in counts if n is not None) if None not in counts else None


def _apart(t: Tensor, axes: tuple[int, ...], bytes_: int) -> bool:
    """Whether what lies behind some axes is known to begin at multiples of 16 bytes."""
    sizes = [(known(t.shape[k][0]), known(t.shape[k][1])) for k in axes]
    return any(low is not None and high is not None and (high - low) * bytes_ % 16 == 0 for low, high in sizes)


def _matrix(op: TypedOperator, local: Callable[[str], bool], found: TensorCores, factor: Expr, dtype: DType, axes: tuple[int, ...],
            piece: Piece) -> Matrix | None:
    """A factor as a matrix of lines and terms, if it lies in memory as one."""
    read = plain_read(factor)
    if read is None or local(read.tensor) or any(word not in ("", "inside") for word in read.access):
        return _computed(op, local, found.product, factor, dtype, axes)
    t, product = op.tensors[read.tensor], found.product
    converted = t.dtype is not dtype
    if (converted and not (t.dtype.name in EIGHTHS and dtype.name in HALVES)) or not all(isinstance(i, Name) for i in read.indices):
        return None
    ranges = {r.index: ("terms", k, r) for k, r in enumerate(ranges_of(product.reduce))}
    ranges |= {n: ("lines" if a in axes else "batch", a, piece.axes[a]) for n, a in product.plain.items()}
    parts = [ranges[i.name] for i in read.indices if isinstance(i, Name) and i.name in ranges]
    whole = {"terms": tuple(range(len(ranges_of(product.reduce)))), "lines": axes, "batch": product.batch}
    if len(parts) != len(read.indices) or sorted(p[:2] for p in parts) != sorted((word, k) for word, all_ in whole.items() for k in all_):
        return None
    along = parts[-1][0] == "terms"
    runs = [(word, list(group)) for word, group in groupby(enumerate(parts), lambda p: p[1][0])]
    if len({word for word, _ in runs}) != len(runs) or runs[-1][0] == "batch" or any(
            tuple(k for _, (_, k, _) in run) != whole[word] or not _dense(t, [(axis, r) for axis, (_, _, r) in run]) for word, run in runs):
        return Matrix(read.tensor, along, (), None, converted=converted, gathered=True) if _worth_gathering(found, parts[-1][0], axes, piece) else None
    behind = {word: tuple(range(run[-1][0] + 1, len(parts))) for word, run in runs}
    inner, outer = behind["lines" if along else "terms"], behind.get("batch")
    uneven = not all(_apart(t, axes, dtype.bytes) for axes in (inner, outer) if axes is not None)
    return Matrix(read.tensor, along, inner, outer, converted=converted, uneven=uneven)


def _computed(op: TypedOperator, local: Callable[[str], bool], p: Product, factor: Expr, dtype: DType, axes: tuple[int, ...]) -> Matrix | None:
    """A factor of halves that is made of codes."""
    terms = {r.index for r in ranges_of(p.reduce)}
    if dtype.name not in HALVES or not names(factor) <= terms | {n for n, a in p.plain.items() if a in axes or a in p.batch}:
        return None
    codes = next(_codes(op, local, factor, {}), None)
    if codes is None:
        return None
    shared = max((shared_by(codes[1], term) or 1 for term in terms if term in names(codes[1])), default=1)
    return Matrix(codes[0], bool(names(codes[1]) & terms), (), None, computed=shared)


def _codes(op: TypedOperator, local: Callable[[str], bool], x: Expr, put: Mapping[str, Expr]) -> Iterator[tuple[str, Expr]]:
    """The operands of one byte that a value is made of, and the last index of each. `put` are the indices of a local as those of the sum."""
    if not isinstance(x, Read):
        for c in children(x):
            yield from _codes(op, local, c, put)
        return
    t, at = op.tensors[x.tensor], tuple(substitute(i, put) for i in x.indices)
    if not local(t.name):
        if t.dtype.bytes == 1 and t.dtype is not BOOL and at:
            yield t.name, at[-1]
        return
    for piece in t.pieces:
        yield from _codes(op, local, piece.value, {a.index: i for a, i in zip(piece.axes, at, strict=True)})


def shared_by(x: Expr, term: str) -> int | None:
    """How many terms an index is the same for: `k`, `k floordiv 2`."""
    while isinstance(x, Cast) and x.implicit:
        x = x.arg
    if isinstance(x, Name):
        return 1 if x.name == term else None
    if isinstance(x, Apply) and x.fn == "floordiv" and isinstance(x.args[1], IntLit) and x.args[1].value > 0:
        inner = shared_by(x.args[0], term)
        return None if inner is None else inner * x.args[1].value
    return None


def _worth_gathering(found: TensorCores, last: str, axes: tuple[int, ...], piece: Piece) -> bool:
    """Whether a factor is read often enough to be copied first, and by neighbours. `last`: what its last axis is."""
    p = found.product
    other = _total([piece.axes[k] for k in (p.columns if axes == p.rows else p.rows)])
    return last != "batch" and (other is None or other >= BESIDE)


def _dense(t: Tensor, run: list[tuple[int, Range]]) -> bool:
    """Whether the places of some axes, which begin at the first, follow each other evenly: all but the first axis are whole."""
    for n, (axis, r) in enumerate(run):
        low, high = t.shape[axis]
        if known(r.lo) != 0 or known(low) != 0 or (n > 0 and r.hi != high and not (isinstance(r.hi, IntLit) and known(high) == r.hi.value)):
            return False
    return True
