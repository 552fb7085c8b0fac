"""Statements about sums that threads hold each for itself, as C++: calls of what `prelude/own.cuh` offers."""
from __future__ import annotations

from pipelink_ir.backends.cuda.emit_expr import Expressions, memory_type
from pipelink_ir.backends.loops.form import AcrossRow, Block, Dot, Factor, For, If, Own

OWN = "PIPELINK_OWN"
"""Is defined before the prelude by a text that uses them."""


def has_own(body: Block) -> bool:
    """Whether such statements occur in a block or in those inside."""
    return any(isinstance(s, Own) or (isinstance(s, For) and has_own(s.body)) or (isinstance(s, If) and (has_own(s.then) or has_own(s.other))) for s in body)


def own_line(s: Own, e: Expressions) -> str:
    """One statement."""
    if isinstance(s, Dot):
        return _dot(s, e)
    if isinstance(s, AcrossRow):
        return f"pl::across_rows<pl::Row{s.fn.capitalize()}>({e.places[s.target].name});"
    names = [e.places[n].name for n in s.targets]
    sizes = [s.rows, s.columns, *([] if s.sums is None else [s.wide])]
    return f"pl::online<{', '.join(map(str, sizes))}>({', '.join(names)}, {e.data(s.scale)});"


def _dot(s: Dot, e: Expressions) -> str:
    t = s.tiles
    types = ", ".join(map(memory_type, (t.left, t.right)))
    fresh = "true" if s.fresh else "false"
    sums, right = e.places[s.target].name, _place(s.right, e)
    if isinstance(s.left, str):
        words = f"{types}, {t.tiles[0]}, {t.tiles[1]}, {s.depth}, {fresh}, {_layout(s.right)}"
        return f"pl::dot_own<{words}>({sums}, {e.places[s.left].name}, {right});"
    words = f"{types}, {t.tiles[0]}, {t.tiles[1]}, {s.depth}, {fresh}, {_layout(s.left)}, {_layout(s.right)}"
    return f"pl::dot<{words}>({sums}, {_place(s.left, e)}, {right});"


def _layout(f: Factor) -> str:
    return f"{'true' if f.along else 'false'}, {f.pitch}"


def _place(f: Factor, e: Expressions) -> str:
    return f"&{e.places[f.buffer].name}[{e.address(f.index)}]"
