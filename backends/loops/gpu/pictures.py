"""Boxes of a picture as rows of a product that streams (`passes/scheduling/boxes.py`): which ones cover a result, and where the pixels of one lie."""
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipelink_ir.backends.loops.emit import Atom, i64
from pipelink_ir.passes.scheduling.boxes import Box, Boxes

if TYPE_CHECKING:
    from pipelink_ir.backends.loops.gpu.product import Tiled

Three = tuple[Atom, Atom, Atom]
"""Something across, down, and of pictures."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The pixels of one box, the boxes that cover a result, and how many these are together."""

    box: Three
    counts: Three
    total: Atom


def pixels_of(nest: Tiled) -> Three:
    """The pixels of a result across and down, and its pictures."""
    sizes = [nest.e.op("max", nest.axes[k].n, i64(0)) for k in nest.product.rows]
    pictures: Atom = i64(1)
    for n in sizes[:-2]:
        pictures = nest.e.op("*", pictures, n)
    return sizes[-1], sizes[-2], pictures


def grid_of(nest: Tiled, boxes: Boxes) -> Grid:
    """Of some boxes those of which the fewest cover a result."""
    e, best = nest.e, _covered(nest, boxes.some[0])
    for box in boxes.some[1:]:
        other = _covered(nest, box)
        fewer = e.op("<", other.total, best.total)
        sides, counts = ([e.choose(fewer, a, b) for a, b in zip(x, y, strict=True)] for x, y in ((other.box, best.box), (other.counts, best.counts)))
        best = Grid((sides[0], sides[1], sides[2]), (counts[0], counts[1], counts[2]), e.op("min", other.total, best.total))
    return best


def _covered(nest: Tiled, box: Box) -> Grid:
    e = nest.e
    across, down, behind = (e.op("floordiv", e.op("+", n, i64(side - 1)), i64(side)) for n, side in zip(pixels_of(nest), box, strict=True))
    return Grid((i64(box[0]), i64(box[1]), i64(box[2])), (across, down, behind), e.op("*", e.op("*", across, down), behind))


def pixel_of(nest: Tiled, grid: Grid, number: Atom, line: Atom) -> Three:
    """Where pixel `line` of box `number` lies."""
    e, (wide, high, pictures), (across, down, _) = nest.e, grid.box, grid.counts
    above, below = e.op("quot", number, across), e.op("quot", line, wide)
    x = e.op("+", e.op("*", e.op("rest", number, across), wide), e.op("rest", line, wide))
    y = e.op("+", e.op("*", e.op("rest", above, down), high), e.op("rest", below, high))
    return x, y, e.op("+", e.op("*", e.op("quot", above, down), pictures), e.op("quot", below, high))
