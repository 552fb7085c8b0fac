"""Statements about sums that threads hold each for itself, as C++: calls of what `prelude/own.cuh` offers."""
from __future__ import annotations

from pipelink_ir.backends.cuda.emit_expr import Expressions, memory_type
from pipelink_ir.backends.loops.form import AcrossRow, Attend, Block, Dot, Expr, Factor, For, If, Own
from pipelink_ir.backends.loops.form_attend import Lines
from pipelink_ir.ir.diagnostics import internal_error
from pipelink_ir.ir.dtypes import DType

OWN = "PIPELINK_OWN"
"""Is defined before the prelude by a text that uses them."""


def has_own(body: Block) -> bool:
    """Whether such statements occur in a block or in those inside."""
    return any(isinstance(s, Own) or (isinstance(s, For) and has_own(s.body)) or (isinstance(s, If) and (has_own(s.then) or has_own(s.other))) for s in body)


def own_line(s: Own, e: Expressions) -> str:
    """One statement."""
    if isinstance(s, Dot):
        return _dot(s, e)
    if isinstance(s, Attend):
        internal_error("attention that flows is written with the loop around it")
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


# ------------------------------------------------------------------------------------------------------- attention that flows


def attend_lines(s: Attend, e: Expressions, name: str, shared: str) -> list[str]:
    """The declaration of what does it, before the loop over blocks."""
    r = s.flow
    numbers = (*map(str, (r.teams, r.keys, r.terms, r.columns, r.stages)), *(() if s.chosen is None else ("true",)))
    words = ", ".join((memory_type(r.factors), memory_type(r.values), *numbers))
    lines = ", ".join(_lines(p, dtype, e) for p, dtype in ((s.q, r.factors), (s.k, r.factors), (s.v, r.values)))
    maps = f"reinterpret_cast<u8*>({e.places[s.maps].name})"
    return [f"using Stream = pl::Attend<{words}>;", f'static_assert(Stream::SHARED == {r.shared}, "shared memory");',
            f"Stream {name}({shared}, {maps}, {lines}, {e.data(s.scale)});"]


def seen_text(s: Attend, e: Expressions) -> str:
    """Where a tile of queries is, and which keys it sees."""
    def numbers(places: tuple[Expr, ...]) -> str:
        return ", ".join(f"i64({e.address(x)})" for x in places)

    places = ", ".join(f"{{{numbers(at)}}}" for at in (s.q_at, s.k_at, s.v_at))
    bits = "" if s.chosen is None or s.chosen_at is None else f", &{e.places[s.chosen].name}[{e.address(s.chosen_at)}]"
    return f"pl::Seen{{{places}, {numbers((s.begin, s.end, s.low, s.high))}{bits}}}"


def _lines(p: Lines, dtype: DType, e: Expressions) -> str:
    sizes, steps = (", ".join(f"i64({e.address(x)})" for x in numbers) for numbers in (p.sizes, p.steps))
    return f"pl::Lines<{memory_type(dtype)}>{{{e.places[p.buffer].name}, {{{sizes}}}, {{{steps}}}, {p.row}}}"
