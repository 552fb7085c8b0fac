"""Convolutions whose left factor the copy engine of sm_90a reads off the picture: for each place of the window and some channels, a box of pixels.

What lies outside of the picture is zero, so a border of zeros costs nothing. A tile of a team has the pixels of one box of the result as rows; boxes are cut so
that as few as possible cover the result.
"""
from __future__ import annotations

from dataclasses import dataclass
from math import prod

from pipelink_ir.ir.nodes import Name
from pipelink_ir.ir.typed import Piece, Tensor
from pipelink_ir.passes.scheduling.convolutions import Slide, slides_of
from pipelink_ir.passes.scheduling.counts import count, known
from pipelink_ir.passes.scheduling.products import Product
from pipelink_ir.passes.scheduling.strips import lines_in_memory
from pipelink_ir.passes.scheduling.tensor_cores import plain_read

LINE = 128
"""Bytes of the channels that are brought at once."""
USUAL = (16, 8, 1)
"""Pixels across and down, and pictures, of a box where sizes are not known."""
STEP, SIDE = 2, 256
"""The largest step, and places of a picture that a box spans along an axis at most."""


@dataclass(frozen=True, slots=True)
class Boxes:
    """A picture as a factor: its slides down and across, the channels of a pixel, and pixels across, down and pictures of a box."""

    down: Slide
    across: Slide
    channels: int
    box: tuple[int, int, int]


def boxes_of(t: Tensor, p: Product, piece: Piece, rows: int) -> Boxes | None:
    """How the left factor of a convolution comes in boxes of at most so many pixels; None where it does not."""
    read = plain_read(p.left)
    if read is None or p.batch or len(p.rows) < 2 or p.rows != tuple(range(len(p.rows))) or not lines_in_memory(t, read, p):
        return None
    found = slides_of(t, read, p)
    if found is None:
        return None
    down, across, channel, channels = found
    outer = read.indices[:-3]
    whole = all(isinstance(i, Name) and p.plain.get(i.name) == k and t.shape[k][1] == piece.axes[k].hi for k, i in enumerate(outer))
    first = all(known(a.lo) == 0 for a in piece.axes) and all(known(low) == 0 for low, _ in t.shape)
    if (down.range, across.range, channel) != (0, 1, 2) or len(outer) != len(p.rows) - 2 or not whole or not first:
        return None
    if channels * t.dtype.bytes % LINE or down.taps * across.taps == 1 or max(down.step, across.step) > STEP:
        return None
    sizes = [count(piece.axes[k]) for k in p.rows]
    pictures = [n for n in sizes[:-2] if n is not None]
    box = _box(sizes[-1], sizes[-2], prod(pictures) if len(pictures) == len(sizes) - 2 else None, rows)
    return Boxes(down, across, channels, box)


def _box(wide: int | None, high: int | None, pictures: int | None, rows: int) -> tuple[int, int, int]:
    """The box of which the fewest cover a result; of those the widest, as neighbours share what they read."""
    if wide is None or high is None:
        return USUAL

    def parts(size: int, of: int) -> int:
        return -(-size // of)

    best, most = USUAL, 0.0
    for x in range(1, min(wide, rows, SIDE // STEP) + 1):
        for y in range(1, min(high, rows // x, SIDE // STEP) + 1):
            n = min(pictures or 1, rows // (x * y))
            share = wide * high * (pictures or 1) / (parts(wide, x) * parts(high, y) * parts(pictures or 1, n) * rows)
            if share >= most:
                best, most = (x, y, n), share
    return best
