"""How a kernel is laid out, as a value of `map`, and back: `grid`, `block(n, h)` with the axes that have a block for each place, `product`, `window`, …"""
from __future__ import annotations

from pipelink_ir.ir import contracts
from pipelink_ir.ir.nodes import Apply, Expr, IntLit, Name, Value
from pipelink_ir.ir.typed import Group, Piece
from pipelink_ir.passes.scheduling.shape import Shape
from pipelink_ir.passes.scheduling.tiles import Tiled
from pipelink_ir.passes.scheduling.wishes import index_text


def map_value(word: str, way: object, piece: Piece | None) -> Expr:
    """The value that stands for a way. An axis without a name that can be written is called by its number."""
    if isinstance(way, Shape) and way.kind == "block" and piece is not None:
        return Apply("block", tuple(_axis(piece, k) for k in way.axes))
    if isinstance(way, Tiled):
        return Apply("tile", tuple(IntLit(n) for n in way.tile))
    return Name(word)


def scan_value(group: Group, piece: Piece) -> Expr:
    """The value of a recurrence: the axis that runs in order."""
    assert group.recurrence is not None
    return Apply("scan", (_axis(piece, group.recurrence.axis[0]),))


def _axis(piece: Piece, k: int) -> Expr:
    name = piece.axes[k].index
    return Name(name) if index_text(name) else IntLit(k)


def tile_of(value: Value | None) -> tuple[int, int] | None:
    """The rows and columns of a tile that are written."""
    if isinstance(value, Apply) and value.fn == "tile" and len(value.args) == 2:
        rows, columns = value.args
        if isinstance(rows, IntLit) and isinstance(columns, IntLit) and rows.value > 0 and columns.value > 0:
            return rows.value, columns.value
    return None


def word_of(value: Value) -> str | None:
    """The kind that a value names."""
    return value.fn if isinstance(value, Apply) else contracts.word(value)


def axes_of(value: Value, piece: Piece) -> tuple[int, ...] | None:
    """The axes in brackets, in their order; None if there are no brackets, or something else than axes stands in them."""
    if not isinstance(value, Apply):
        return None
    names = [a.index for a in piece.axes]
    out: set[int] = set()
    for x in value.args:
        k = names.index(x.name) if isinstance(x, Name) and x.name in names else x.value if isinstance(x, IntLit) else -1
        if not 0 <= k < len(names):
            return None
        out.add(k)
    return tuple(sorted(out))
