"""Which convolutions a GPU computes from tiles of the picture in shared memory, on tensor cores: a few pixels around each result, channels side by side.

A tile is brought once, with its rim; each pixel of it is then a factor as often as it is in a window. Channels of 32 bytes or more are read by `ldmatrix`,
fewer are gathered. With few results a pixel, several rows of the picture share the columns of an instruction.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import gcd, prod

from pipelink_ir.ir.dtypes import DType
from pipelink_ir.ir.gpus import facts_of
from pipelink_ir.ir.nodes import Apply, Cast, Expr, IntLit, Name, Range, Read
from pipelink_ir.ir.targets import Arch
from pipelink_ir.ir.typed import Piece, Tensor, TypedOperator
from pipelink_ir.passes.scheduling.blocks import ANY
from pipelink_ir.passes.scheduling.counts import count, known, names, ranges_of
from pipelink_ir.passes.scheduling.products import Product, any_product_of
from pipelink_ir.passes.scheduling.strips import MANY
from pipelink_ir.passes.scheduling.tensor_cores import BYTES, HALVES, carriers, plain_read

CHUNK, LINE = 16, 32
"""Bytes that are copied at once, and those of the terms of one instruction."""
WIDE = 64
"""Pixels of the result that a tile is wide, at most."""
SHARED = 113 << 10
"""Bytes of shared memory of a block: two of them fit a multiprocessor."""
TERMS = 96
"""Terms of a pixel that are gathered, at most."""
FEW = 4
"""So few results a pixel share an instruction with other rows."""
ROWS = 8
"""Rows that are computed at once if there is one result a pixel."""
PARTS = 4
"""Times 16 pixels that a warp computes at once."""
WARPS = 8
"""Warps of a block."""
TALL = (16, 8, 4)
"""Rows of a tile, the best first."""
THREADS = 512
"""Threads that a multiprocessor should hold, so that each has 128 registers."""
PANES, APART = (1, 2, 4, 8), 32
"""Into how many panes columns may be cut, and how many each should have."""
STAGES = 2
"""Tiles in shared memory where several rows share an instruction."""
GROUPED = (64, 32)
"""Columns that four warps multiply together …"""
GROUPS, GROUPED_TILES, GROUPED_THREADS = 2, ((8, 2), (4, 2), (16, 1), (8, 1), (4, 1)), 768
"""… such groups of a block; rows of a tile and tiles in shared memory, the best first; threads that a multiprocessor should hold."""
PROCESSORS, ROOM = 132, 227 << 10
"""What is taken for a device that is not known: multiprocessors, and the shared memory that one has."""


@dataclass(frozen=True, slots=True)
class Slide:
    """An axis of the picture: place `step * axis + apart * tap + begin` is read, for `taps` places of a range."""

    axis: int
    step: int
    range: int
    taps: int
    apart: int
    begin: int

    def span(self, n: int) -> int:
        """Places that `n` neighbours read."""
        return self.step * (n - 1) + self.apart * (self.taps - 1) + 1


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution by tiles. A warp computes `parts` times 16 pixels by `tiles` times 8 columns, `rows` rows of the result at once; `warps` are those down,
    across, and beside each other, and each takes `turns` rows of a tile, one after the other."""

    product: Product
    left: DType
    right: DType
    down: Slide
    across: Slide
    channel: int
    """The range of the channels."""
    channels: int
    columns: int
    """Those of a pane."""
    rows: int
    parts: int
    tiles: int
    warps: tuple[int, int, int]
    turns: int
    gathered: bool
    blocks: int
    """Blocks that stay, each of which takes one tile after the other."""
    panes: int = 1
    """Blocks that share a tile, each of which has some of the columns."""
    fit: int = 0
    """Blocks that a multiprocessor should hold; 0 leaves that to the compiler."""
    grouped: bool = False
    """Whether four warps multiply together, by wgmma."""
    stages: int = 1
    """Tiles in shared memory: with two the next one is on its way while one is multiplied."""

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns of the result that a tile has."""
        return self.warps[0] * self.rows * self.turns, self.warps[1] * 16 * self.parts

    @property
    def pixel(self) -> int:
        """Bytes of a pixel."""
        return self.channels * self.left.bytes

    @property
    def lead(self) -> tuple[int, int]:
        """Elements before the first window of a row in a tile whose terms are gathered, so that rows begin at multiples of 16 bytes; how many of them are read
        with it."""
        each = CHUNK // self.left.bytes
        before = self.across.begin * self.channels % each
        return before, before % self.unit

    @property
    def unit(self) -> int:
        """Elements that are gathered at once."""
        return gcd(self.across.step * self.channels, 4 // self.left.bytes)

    @property
    def each(self) -> int:
        """Elements that are gathered of a row for a pixel."""
        return -(-(self.lead[1] + self.across.taps * self.channels) // self.unit) * self.unit

    @property
    def size(self) -> tuple[int, int]:
        """Rows of a tile in shared memory, and bytes from one to the next."""
        rows, columns = self.down.span(self.tile[0]), self.across.span(self.tile[1])
        if self.gathered:
            return rows, -(-(self.lead[0] + columns * self.channels + self.unit) * self.left.bytes // CHUNK) * CHUNK
        if self.grouped:
            return rows, columns * CHUNK
        return rows, (columns * (self.pixel // CHUNK) + (columns - 1) // (self.across.step * 2 * self.parts)) * CHUNK

    @property
    def steps(self) -> int:
        """Instructions for all terms of a tile of 16 x 8."""
        if self.gathered:
            return -(-self.down.taps * self.each * self.left.bytes // LINE)
        return (self.down.taps + self.rows - 1) * self.across.taps * (self.pixel // LINE)

    @property
    def shared(self) -> int:
        """Bytes of shared memory of a block."""
        return self.bytes * self.stages + self.steps * self.tiles * 256 * self.warps[2]

    @property
    def bytes(self) -> int:
        """Bytes of a tile."""
        rows, pitch = self.size
        return rows * pitch * (self.pixel // CHUNK if self.grouped else 1)

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * prod(self.warps)

    @property
    def instruction(self) -> str:
        """The instruction that does the work."""
        k = LINE // self.left.bytes
        return f"wgmma m64n{8 * self.tiles}k{k}" if self.grouped else f"mma.sync m16n8k{k}"


def convolution_of(op: TypedOperator, local: Callable[[str], bool], tensor: Tensor, piece: Piece, chosen: Mapping[str, int] | None = None,
                   arch: Arch | None = None) -> Convolution | None:
    """How tiles of a picture compute a piece; None where they do not."""
    p = any_product_of(op, local, piece, chosen)
    rank = len(piece.axes)
    if p is None or p.reduce.where is not None or p.batch or piece.holes or rank < 3 or p.columns != (rank - 1,) or p.rows != tuple(range(rank - 1)):
        return None
    held, read, n = carriers(op, local, p, arch), plain_read(p.left), count(piece.axes[-1])
    sizes = [count(piece.axes[k]) for k in p.rows]
    if isinstance(held, str) or read is None or local(read.tensor) or not n or not _whole(tensor, piece, n):
        return None
    first, second = held
    picture = op.tensors[read.tensor]
    if picture.dtype is not first or first.name not in (*BYTES, *HALVES) or second.bytes != first.bytes:
        return None
    if None not in sizes and prod(s for s in sizes if s is not None) < MANY:
        return None
    found = slides_of(picture, read, p)
    if found is None:
        return None
    down, across, *_ = found
    if down.taps * across.taps == 1 or not _answered(picture, read):
        return None
    for panes in PANES:
        if n % panes == 0 and (panes == 1 or n // panes >= APART):
            ways = [replace(c, panes=panes, blocks=c.blocks // panes * panes) for c in _ways(p, held, found, n // panes, sizes[-1], arch)]
            best = next((c for most in _room(arch) for c in ways if c.shared <= most), None)
            if best is not None:
                return best
    return None


def _room(arch: Arch | None) -> tuple[int, ...]:
    """Bytes of shared memory that a block should take, and those that it may."""
    facts = facts_of(arch) if arch is not None and arch.sm else None
    return (ANY,) if facts is None else (min(SHARED, facts.shared_block), facts.shared_block)


def _whole(t: Tensor, piece: Piece, n: int) -> bool:
    """Whether the columns are all of the last axis of the result."""
    low, high = t.shape[-1]
    return known(piece.axes[-1].lo) == known(low) == 0 and known(high) == n


def slides_of(t: Tensor, read: Read, p: Product) -> tuple[Slide, Slide, int, int] | None:
    """How the last axes of a picture are read: rows, columns, and which range has all of its channels."""
    ranges, rank = ranges_of(p.reduce), len(read.indices)
    if rank < 3 or len(ranges) != 3 or any(isinstance(i, Read) for i in read.indices):
        return None
    last = read.indices[-1]
    channel = next((k for k, r in enumerate(ranges) if isinstance(last, Name) and last.name == r.index), None)
    low, high = t.shape[-1]
    if channel is None or known(ranges[channel].lo) != 0 or known(low) != 0 or known(high) is None or known(high) != count(ranges[channel]):
        return None
    down, across = (_slide(i, ranges, p.plain) for i in read.indices[-3:-1])
    axes = len(p.rows)
    if down is None or across is None or {down.range, across.range, channel} != {0, 1, 2} or (down.axis, across.axis) != (axes - 2, axes - 1):
        return None
    before = frozenset[str]().union(*(names(i) for i in read.indices[:-3]))
    loose = {n for n, axis in p.plain.items() if axis < axes - 2}
    if not before <= loose:
        return None
    return down, across, channel, count(ranges[channel]) or 0


def _slide(x: Expr, ranges: tuple[Range, ...], plain: Mapping[str, int]) -> Slide | None:
    """One index: an axis of the result and a range, each times a number."""
    found = dict(_linear(x, 1))
    begin = found.pop("", 0)
    if None in found.values() or len(found) != 2:
        return None
    axis = next(((n, f) for n, f in found.items() if n in plain), None)
    tap = next(((k, found[r.index]) for k, r in enumerate(ranges) if r.index in found), None)
    if axis is None or tap is None:
        return None
    r = ranges[tap[0]]
    taps, lo, step, apart = count(r), known(r.lo), axis[1], tap[1]
    if not taps or lo is None or step is None or apart is None or step < 1 or apart < 1:
        return None
    return Slide(plain[axis[0]], step, tap[0], taps, apart, (begin or 0) + apart * lo)


def _linear(x: Expr, factor: int) -> Iterator[tuple[str, int | None]]:
    """The names in an index with their factors, each once; the constant belongs to no name. A factor None: there is more to it."""
    total: dict[str, int] = {"": 0}
    work = [(x, factor)]
    while work:
        x, f = work.pop()
        if isinstance(x, Cast) and x.implicit:
            work.append((x.arg, f))
        elif isinstance(x, Name):
            total[x.name] = total.get(x.name, 0) + f
        elif isinstance(x, IntLit):
            total[""] += f * x.value
        elif isinstance(x, Apply) and x.fn in ("+", "-", "neg"):
            work += [(a, -f if x.fn == "neg" or (x.fn == "-" and k) else f) for k, a in enumerate(x.args)]
        elif isinstance(x, Apply) and x.fn == "*" and any(isinstance(a, IntLit) for a in x.args):
            k = next(k for k, a in enumerate(x.args) if isinstance(a, IntLit))
            number = x.args[k]
            assert isinstance(number, IntLit)
            work.append((x.args[1 - k], f * number.value))
        else:
            yield "?", None
            return
    yield from total.items()


def _answered(t: Tensor, read: Read) -> bool:
    """Whether nothing is asked of an index but what a border answers, with one number around the picture."""
    words = read.access or ("",) * len(read.indices)
    slides = (len(words) - 3, len(words) - 2)
    around = [b.value for k in slides if words[k] == "border" and (b := t.border[k]) is not None and b.mode == "constant"]
    return all(x == around[0] for x in around) and all(w in ("", "inside") or (w == "border" and k in slides) for k, w in enumerate(words))


def _ways(p: Product, held: tuple[DType, DType], found: tuple[Slide, Slide, int, int], n: int, wide: int | None, arch: Arch | None) -> Iterator[Convolution]:
    """Tiles, the best first."""
    yield from _grouped(p, held, found, n, wide, arch)
    left, right = held
    down, across, channel, channels = found
    gathered = channels * left.bytes % LINE != 0
    facts = facts_of(arch) if arch is not None and arch.sm else None
    processors, room = (PROCESSORS, ROOM) if facts is None else (facts.processors, facts.shared_processor)
    several = n <= FEW and not gathered and down.step == down.apart == 1
    rows = 1 if not several else ROWS if n == 1 else 4
    # A lane has whole rows.
    width = 8 * -(-(rows // 4 * n) // 2) if several else next((c for c in (32, 24, 16, 8) if n % c == 0), min(32, -(-n // 8) * 8))
    beside = 1 if several else -(-n // width)
    across_pixels = WIDE if wide is None else next((c for c in (16, 32) if wide <= c), WIDE)
    parts = 2 if several or gathered else PARTS
    parts = min(parts, across_pixels // 16)
    side = across_pixels // 16 // parts
    for tall in TALL:
        high = tall // rows if several else min(tall, max(1, WARPS // (side * beside)))
        if high < 1 or tall % (high * rows) or (gathered and tall < TALL[0]):
            continue
        warps, turns = (high, side, beside), tall // (high * rows)
        c = Convolution(p, left, right, down, across, channel, channels, n, rows, parts, width // 8, warps, turns, gathered, 0, stages=STAGES if several else 1)
        if gathered and (across.apart > 1 or c.down.taps * c.each > TERMS):
            return  # what is gathered of a row lies side by side
        each = max(1, min(THREADS // c.threads, room // (c.shared + 1024)))
        yield replace(c, blocks=each * processors, fit=each)


def _grouped(p: Product, held: tuple[DType, DType], found: tuple[Slide, Slide, int, int], n: int, wide: int | None, arch: Arch | None) -> Iterator[Convolution]:
    """Those that four warps multiply together."""
    (left, right), (down, across, channel, channels) = held, found
    if arch is None or (arch.sm, arch.suffix) != (90, "a") or n % GROUPED[-1] or channels * left.bytes % LINE or across.step > 1 or (wide or WIDE) < WIDE:
        return
    facts = facts_of(arch)
    width = next(c for c in GROUPED if n % c == 0)
    beside = n // width
    for tall, stages in GROUPED_TILES:
        high = max(1, min(GROUPS // beside, tall))
        warps, turns = (high, 4, beside), tall // high
        c = Convolution(p, left, right, down, across, channel, channels, n, 1, 1, width // 8, warps, turns, False, 0, grouped=True, stages=stages)
        if stages > 1 and c.shared > SHARED:
            continue
        each = max(1, min(GROUPED_THREADS // c.threads, (ROOM if facts is None else facts.shared_processor) // (c.shared + 1024)))
        yield replace(c, blocks=each * (PROCESSORS if facts is None else facts.processors), fit=each)
