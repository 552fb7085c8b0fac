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
Box = tuple[int, int, int]
"""Pixels across and down, and pictures."""
SOME = ((16, 8, 1), (8, 8, 2), (4, 4, 8), (2, 2, 32))
"""The boxes of which those are taken that suit a call, where sizes are not known."""
STEP, SIDE = 2, 256
"""The largest step, and places of a picture that a box spans along an axis at most."""


@dataclass(frozen=True, slots=True)
class Boxes:
    """A picture as a factor: its slides down and across, the channels of a pixel, and boxes, all of as many pixels, of which a call takes the best ones."""

    down: Slide
    across: Slide
    channels: int
    some: tuple[Box, ...]

    @property
    def pixels(self) -> int:
        """Of a box."""
        return prod(self.some[0])


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
    if len(pictures) < len(sizes) - 2 or sizes[-1] is None or sizes[-2] is None:
        return Boxes(down, across, channels, SOME)
    return Boxes(down, across, channels, (best_box(sizes[-1], sizes[-2], prod(pictures), rows),))


def best_box(wide: int, high: int, pictures: int, rows: int) -> Box:
    """The box of at most so many pixels of which the fewest cover a result; of those the widest, as neighbours share what they read."""

    def parts(size: int, of: int) -> int:
        return -(-size // of)

    best, fewest = SOME[0], wide * high * pictures + 1
    for x in range(1, min(wide, rows, SIDE // STEP) + 1):
        for y in range(1, min(high, rows // x, SIDE // STEP) + 1):
            n = max(1, min(pictures, rows // (x * y)))
            count = parts(wide, x) * parts(high, y) * parts(pictures, n)
            if count <= fewest:
                best, fewest = (x, y, n), count
    return best
