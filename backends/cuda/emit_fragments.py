"""Statements about matrix fragments, and about copies under way, as C++: calls of what `prelude/fragments.cuh` offers."""
from __future__ import annotations

from typing import assert_never

from pipelink_ir.backends.cuda.emit_expr import Expressions, memory_type
from pipelink_ir.backends.cuda.emit_own import attend_lines, own_line, seen_text
from pipelink_ir.backends.loops.form import (
    Attend,
    Await,
    Block,
    Boxes,
    Commit,
    Contract,
    CopyAsync,
    Expr,
    Factor,
    FewMultiply,
    For,
    Fragment,
    If,
    Let,
    Multiply,
    Own,
    Pack,
    Panel,
    StoreFragment,
    StripLine,
    StripMultiply,
    Trade,
    WindowMultiply,
    Words,
)
from pipelink_ir.backends.loops.tidy import exprs, refs
from pipelink_ir.ir.dtypes import DType

FRAGMENTS, STREAM, ATTEND, WINDOW = "PIPELINK_FRAGMENTS", "PIPELINK_STREAM", "PIPELINK_ATTEND", "PIPELINK_WINDOW"
"""Are defined before the prelude by a text that uses what they bring."""

Streamed = Contract | Attend
"""Statements whose factors are brought by threads that do nothing else."""
Statement = Own | Fragment | Multiply | StoreFragment | CopyAsync | Commit | Await | Trade | StripLine | StripMultiply | Words | Pack | FewMultiply | \
    WindowMultiply


def has_fragments(body: Block) -> bool:
    """Whether fragments occur in a block or in those inside."""
    return any(isinstance(s, Statement) or (isinstance(s, For) and has_fragments(s.body))
               or (isinstance(s, If) and (has_fragments(s.then) or has_fragments(s.other))) for s in body)


def has_windows(body: Block) -> bool:
    """Whether windows of pictures do."""
    return any(isinstance(s, WindowMultiply) or (isinstance(s, For) and has_windows(s.body))
               or (isinstance(s, If) and (has_windows(s.then) or has_windows(s.other))) for s in body)


def fragment_line(s: Statement, e: Expressions, fragments: dict[str, str]) -> str:
    """One statement; `fragments` has the names of declared ones in C++."""
    if isinstance(s, Own):
        return own_line(s, e)
    if isinstance(s, Fragment):
        t = s.tiles
        types = ", ".join(memory_type(d) for d in (t.left, t.right, t.sums))
        return f"pl::Fragment<{types}, {t.warps[0]}, {t.warps[1]}, {t.tiles[0]}, {t.tiles[1]}> {fragments[s.name]};"
    if isinstance(s, Multiply):
        words = ", ".join((str(s.depth), *_layout(s.left), *_layout(s.right)))
        return f"{fragments[s.fragment]}.multiply<{words}>({_place(s.left, e)}, {_place(s.right, e)});"
    if isinstance(s, StoreFragment):
        return f"{fragments[s.fragment]}.store<{s.pitch}>({e.address(s.part)}, {e.places[s.buffer].name});"
    if isinstance(s, Trade):
        return f"pl::trade<{s.count}>({e.places[s.target].name}, {e.places[s.source].name});"
    if isinstance(s, StripLine):
        source = f"&{e.place(s.buffer, s.strip.left).name}[{e.address(s.index)}]"
        return f"pl::strip_line<{s.strip.bytes}, {str(s.wide).lower()}>(&{e.places[s.words].name}[{s.at}], {source}, {e.data(s.inside)});"
    if isinstance(s, Words):
        source = f"&{e.place(s.buffer, s.memory).name}[{e.address(s.index)}]"
        return f"pl::words_at<{s.bytes}, {str(s.wide).lower()}>(&{e.places[s.words].name}[{s.at}], {source});"
    if isinstance(s, Pack):
        return f"pl::pack_words<{s.bytes}>(&{e.places[s.words].name}[{s.at}], {e.places[s.source].name});"
    if isinstance(s, FewMultiply):
        words = ", ".join((memory_type(s.left), memory_type(s.right), str(s.halves), str(s.terms * s.left.bytes // 8)))
        values = e.places[s.values].name
        if s.across:
            return f"pl::few_multiply_across<{words}>(&{e.places[s.sums].name}[{s.at}], {e.places[s.words].name}, {values});"
        if s.packed is not None:
            kind = f"pl::Packed<{memory_type(s.packed)}, {str(s.nibbles).lower()}, {str(bool(s.scale)).lower()}>"
            values = f"{kind}{{{values}, {e.data(s.scale[0]) if s.scale else '1.0f'}}}"
        return f"pl::few_multiply<{words}>(&{e.places[s.sums].name}[{s.at}], {e.places[s.words].name}, {values});"
    if isinstance(s, StripMultiply):
        r = s.strip
        words = ", ".join((*map(memory_type, (r.left, r.right, r.sum)), str(r.parts), str(r.columns // 8), str(r.steps)))
        weights = f"&{e.places[s.weights].name}[{e.address(s.index)}]"
        return f"pl::strip_multiply<{words}>({e.places[s.sums].name}, {e.places[s.words].name}, {weights});"
    if isinstance(s, WindowMultiply):
        return _window(s, e)
    if isinstance(s, CopyAsync):
        to, source = e.place(s.buffer, s.memory).name, e.place(s.origin, s.memory).name
        return f"pl::copy_async(&{to}[{e.address(s.index)}], &{source}[{e.address(s.source)}], {e.data(s.inside)});"
    if isinstance(s, Await):
        return f"pl::copies_await<{s.pending}>();{' pl::copies_shown();' if s.shown else ''}"
    if isinstance(s, Commit):
        return "pl::copies_commit();"
    assert_never(s)


def _window(s: WindowMultiply, e: Expressions) -> str:
    w = s.window
    sums, tile, factor = e.places[s.sums].name, f"&{e.places[s.tile].name}[{e.address(s.at)}]", f"&{e.places[s.weights].name}[{e.address(s.index)}]"
    types = (*map(memory_type, (w.left, w.right, w.sum)), str(w.parts), str(w.tiles))
    if w.gathered:
        words = ", ".join((*types, *map(str, (*w.down, w.run, w.lead, w.unit, w.step, w.pitch, w.start))))
        return f"pl::window_gather<{words}>({sums}, {tile}, {factor});"
    if w.plane:
        words = ", ".join((*types[:3], types[4], *map(str, (*w.down, *w.across, w.pitch, w.plane, w.pixel, w.start))))
        return f"pl::window_group<{words}>({sums}, {tile}, {factor});"
    words = ", ".join((*types, *map(str, (*w.down, *w.across, w.step, w.pitch, w.pixel, w.rows, w.columns, w.taps, w.start))))
    return f"pl::window_multiply<{words}>({sums}, {tile}, {e.address(s.column)}, {factor});"


def _layout(f: Factor) -> tuple[str, str]:
    return "true" if f.along else "false", str(f.pitch)


def _place(f: Factor, e: Expressions) -> str:
    return f"&{e.places[f.buffer].name}[{e.address(f.index)}]"


# ------------------------------------------------------------------------------------------------------------------- streams


def streamed_in(body: Block) -> Streamed | None:
    """The product or the attention whose factors stream in the body of a loop over blocks."""
    return next((s for s in body if isinstance(s, Contract | Attend)), None)


def feeding(body: Block) -> tuple[Let, ...]:
    """The values in the body of a loop over blocks that the threads which feed need: what the place of the tile is made of."""
    at = streamed_in(body)
    assert at is not None
    wanted: set[str] = {n for x in ((at.row, at.column, at.batch) if isinstance(at, Contract) else at.place) for n in refs(x)}
    out: list[Let] = []
    for s in reversed(body[:body.index(at)]):
        if isinstance(s, Let) and s.name in wanted:
            wanted.update(n for x in exprs(s) for n in refs(x))
            out.append(s)
    return tuple(reversed(out))


def stream_lines(s: Streamed, e: Expressions, name: str, shared: str) -> list[str]:
    """The declaration of a stream, before the loop over blocks."""
    if isinstance(s, Attend):
        return attend_lines(s, e, name, shared)
    r = s.ring
    types = map(memory_type, (r.left, r.right, r.sum))
    words = ", ".join((*types, *map(str, (r.teams, r.m, r.n, r.stages)), *("true" if a else "false" for a in r.along), *((str(r.short),) if r.short else ())))
    if s.left.boxes is not None:
        words += f", 0, {_picture(s.left.boxes, r.left)}"
    panels = ", ".join(_panel(p, dtype, e) for p, dtype in ((s.left, r.left), (s.right, r.right)))
    maps = f"reinterpret_cast<u8*>({e.places[s.maps].name})"
    return [f"using Stream = pl::Stream<{words}>;", f'static_assert(Stream::SHARED == {r.shared}, "shared memory");',
            f"Stream {name}({shared}, {maps}, {panels}, {e.address(s.terms)});"]


def _panel(p: Panel, dtype: DType, e: Expressions) -> str:
    numbers: tuple[Expr, ...] = (*p.sizes, *p.steps)
    at = e.places[p.buffer].name
    if p.other != p.buffer:
        at = f"{e.data(p.moved)} ? {e.places[p.other].name} : {at}"
    kind = f"pl::Panel<{memory_type(dtype)}>" if p.boxes is None else _picture(p.boxes, dtype)
    return f"{kind}{{{', '.join((at, *map(e.address, numbers)))}}}"


def _picture(b: Boxes, dtype: DType) -> str:
    return f"pl::Picture<{', '.join((memory_type(dtype), *map(str, (b.channels, b.pixels, b.taps, *b.step, *b.apart, *b.begin))))}>"


def tile_text(s: Streamed, e: Expressions) -> str:
    """Where a tile is, as the functions of a stream take it."""
    if isinstance(s, Attend):
        return seen_text(s, e)
    batch = e.address(s.batch)
    return f"{e.address(s.row)}, {batch}, {e.address(s.column)}, {batch}"
