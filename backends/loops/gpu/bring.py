"""What tiles of stencils read, on its way to shared memory (`gpu/tile.py`): what lies outside of an operand, and of a local that is staged, is written there as
its border answers, so that nobody asks for it afterwards."""
from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import TYPE_CHECKING

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.borders import mapped, outside
from pipelink_ir.backends.loops.emit import TRUE, Atom, i64, key_of
from pipelink_ir.backends.loops.reads import address, extent, low
from pipelink_ir.passes.scheduling.tiles import ACROSS, ALL, DOWN, THREADS, Stage, wholes

if TYPE_CHECKING:
    from pipelink_ir.backends.loops.gpu.tile import Tiles
    from pipelink_ir.ir.typed import Tensor

Place = Callable[[tuple[Atom, ...]], tuple[str, Atom]]
"""Where an element is in shared memory."""
LANES = 32
"""Threads that read one row, side by side."""
CHUNK = 16
"""Bytes that are copied at once."""


def bring(tiles: Tiles, s: Stage, memory: str) -> None:
    """An operand at the places of a tile that are read: all threads take part."""
    _Bring(tiles, s, memory).write()
    tiles.lo.staged[s.tensor] = tiles.place(s, memory)


class _Bring:
    def __init__(self, tiles: Tiles, s: Stage, memory: str) -> None:
        self.tiles, self.s, self.memory = tiles, s, memory
        self.lo, self.e = tiles.lo, tiles.lo.e
        self.t: Tensor = tiles.lo.op.tensors[s.tensor]
        self.begin = tiles.corner(s)
        self.rows, self.columns = s.size(tiles.way.tile)
        self.pitch = s.pitch(tiles.way.tile)
        self.place = tiles.place(s, memory)

    def write(self) -> None:
        e, t, s = self.e, self.t, self.s
        cond = self._chunked()
        if cond is None:
            self._each()
            return
        inside = [cond] if cond is not TRUE else []
        for k, role in enumerate(s.axes):
            if role in (DOWN, ACROSS):
                a = 0 if role == DOWN else 1
                start = e.op("-", self.begin[a], low(self.lo, t, k))
                inside += self.tiles.between(start, (self.rows, self.columns)[a], extent(self.lo, t, k))
        fine = e.all_of(list({key_of(c): c for c in inside}.values()))
        with e.frame("lazy") as some:
            self._chunks()
        with e.frame("lazy") as other:
            self._each()
        e.raw(form.If(fine, tuple(some.stmts), tuple(other.stmts)))

    # ------------------------------------------------------------------------------------------------------------------ chunks

    def _chunked(self) -> Atom | None:
        """What has to hold so that 16 bytes at a time can be copied; None if that is never so."""
        lo, e, t, s = self.lo, self.e, self.t, self.s
        if t.dtype.bytes > CHUNK // 2 and s.keep == 1 and CHUNK % t.dtype.bytes:
            return None
        across = s.axes.index(ACROSS)
        behind = range(across + 1, len(s.axes))
        # Neighbours in a row are neighbours in memory: only axes that are kept whole stand behind it.
        if any(s.axes[k] != ALL for k in behind) or any(role == ALL for role in s.axes[:across]):
            return None
        each = CHUNK // t.dtype.bytes
        conds: list[Atom] = []
        offset = e.op("*", e.op("-", self.tiles.across.lo, low(lo, t, across)), i64(s.keep))
        row = e.op("*", extent(lo, t, across), i64(s.keep))
        for size in (offset, row) if across else (offset,):
            cond = e.op("==", e.op("rest", size, i64(each)), i64(0)) if isinstance(size, form.Const) or size is row else None
            if cond is None or (isinstance(cond, form.Const) and not cond.value):
                return None
            if not isinstance(cond, form.Const):
                conds.append(cond)
        conds.append(e.bind("aligned", form.Aligned(lo.buffer(t), CHUNK)))
        return e.all_of(conds)

    def _chunks(self) -> None:
        """The tile lies inside: 16 bytes at a time, all under way at once."""
        e, s = self.e, self.s
        each = CHUNK // self.t.dtype.bytes
        wide = self.columns * s.keep // each
        with self.tiles.team.loop("t", i64(0), i64(self.rows * wide), nonempty=True) as q:
            row, part = e.op("quot", q, i64(wide)), e.op("*", e.op("rest", q, i64(wide)), i64(each))
            first = self._at(e.op("+", self.begin[0], row), self.begin[1], tuple(0 for _ in wholes(self.t, s)))
            source = e.op("+", address(self.lo, self.t, first), part)
            target = e.op("+", e.op("*", row, i64(self.pitch)), part)
            e.raw(form.CopyAsync(self.memory, target, self.lo.buffer(self.t), source, TRUE, self.t.dtype))

    # --------------------------------------------------------------------------------------------------------------- one by one

    def _each(self) -> None:
        """Places outside get what the border answers; where nobody asks for it, anything."""
        e, s = self.e, self.s
        lines = THREADS // LANES
        wide = self.columns * s.keep
        kept = [n for _, n in wholes(self.t, s)]
        with self.tiles.team.loop("t", i64(0), i64(THREADS), nonempty=True) as thread:
            lane, warp = e.op("rest", thread, i64(LANES)), e.op("quot", thread, i64(LANES))
            with e.loop("row", warp, i64(self.rows), i64(lines)) as row:
                found: list[tuple[Atom, tuple[str, Atom], Atom]] = []
                for first in range(0, wide, LANES):
                    left = q = e.op("+", lane, i64(first))
                    some: list[Atom] = []
                    for n in reversed(kept):
                        some.append(e.op("rest", left, i64(n)) if n > 1 else i64(0))
                        left = e.op("quot", left, i64(n)) if n > 1 else left
                    at = self._at(e.op("+", self.begin[0], row), e.op("+", self.begin[1], left), tuple(reversed(some)))
                    # What borders answer is there for any place: loads need not wait until it is asked which are needed.
                    found.append((e.op("<", q, i64(wide)) if first + LANES > wide else TRUE, self.place(at), self._value(at)))
                for there, (memory, place), value in found:
                    with e.when(there):
                        e.raw(form.Store(memory, place, value, self.t.dtype))

    def _at(self, row: Atom, column: Atom, kept: tuple[int | Atom, ...]) -> tuple[Atom, ...]:
        """A place of the operand."""
        more = {k: self.e.op("+", low(self.lo, self.t, k), i64(i) if isinstance(i, int) else i) for (k, _), i in zip(wholes(self.t, self.s), kept, strict=True)}
        return tuple(row if role == DOWN else column if role == ACROSS else more[k] if k in more else self.tiles.fixed[role]
                     for k, role in enumerate(self.s.axes))

    def _value(self, at: tuple[Atom, ...]) -> Atom:
        lo, e, t = self.lo, self.e, self.t
        places, outs = list(at), []
        for k, role in enumerate(self.s.axes):
            if role in (DOWN, ACROSS):
                first, n = low(lo, t, k), extent(lo, t, k)
                index, border = e.op("-", at[k], first), t.border[k]
                mode = border.mode if border is not None and self.s.asked[k] else "replicate"
                if border is not None and mode == "constant" and border.value is not None:
                    outs.append((outside(e, index, n), e.convert(lo.value(border.value, lo.root), t.dtype.compute)))
                places[k] = e.op("+", first, mapped(e, mode, index, n))
        value: Atom = lo.e.load(lo.buffer(t), address(lo, t, tuple(places)), t.dtype, True, t.name.rsplit(".", 1)[-1])
        for out, constant in reversed(outs):
            value = e.choose(out, constant, value)
        return value


def answer(tiles: Tiles, s: Stage, memory: str) -> None:
    """What the border of a local answers is written over what was computed beside it, if the tile is at a rim."""
    lo, e, t = tiles.lo, tiles.lo.e, tiles.lo.op.tensors[s.tensor]
    begin, place = tiles.corner(s), tiles.place(s, memory)
    size = [n + a + b for n, a, b in zip(tiles.way.tile, s.low, s.high, strict=True)]
    conds: list[Atom] = []
    for k, role in enumerate(s.axes):
        if role in (DOWN, ACROSS) and s.asked[k]:
            a = 0 if role == DOWN else 1
            conds += tiles.between(e.op("-", begin[a], low(lo, t, k)), size[a], extent(lo, t, k))
    inside = e.all_of(list({key_of(c): c for c in conds}.values()))
    if isinstance(inside, form.Const) and inside.value:
        return
    with e.when(e.op("not", inside)):
        _answer(tiles, s, [e.op("min", e.op("+", begin[a], i64(size[a])), e.op("+", tiles.end[a], i64(s.high[a]))) for a in (0, 1)], place)
        e.raw(form.Barrier())


def _answer(tiles: Tiles, s: Stage, end: list[Atom], place: Place) -> None:
    lo, e, t = tiles.lo, tiles.lo.e, tiles.lo.op.tensors[s.tensor]
    begin = tiles.corner(s)
    kept = list(wholes(t, s))
    with tiles.team.loop("t", i64(0), i64(THREADS), nonempty=True) as thread:
        lane, warp = e.op("rest", thread, i64(LANES)), e.op("quot", thread, i64(LANES))
        rows = e.loop("row", e.op("+", begin[0], warp), end[0], i64(THREADS // LANES))
        with rows as row, e.loop("column", e.op("+", begin[1], lane), end[1], i64(LANES)) as column:
            beside: list[Atom] = []
            for k, role in enumerate(s.axes):
                if role in (DOWN, ACROSS) and s.asked[k]:
                    beside.append(outside(e, e.op("-", row if role == DOWN else column, low(lo, t, k)), extent(lo, t, k)))
            out = beside[0] if len(beside) == 1 else e.op("or", *beside)
            with e.when(out):
                for some in product(*(range(n) for _, n in kept)):
                    more = {k: e.op("+", low(lo, t, k), i64(i)) for (k, _), i in zip(kept, some, strict=True)}
                    at = tuple(row if role == DOWN else column if role == ACROSS else more[k] if k in more else tiles.fixed[role]
                               for k, role in enumerate(s.axes))
                    e.raw(form.Store(*place(at), _answered(tiles, s, at, place), t.dtype))


def _answered(tiles: Tiles, s: Stage, at: tuple[Atom, ...], place: Place) -> Atom:
    """What the borders answer at a place, of what is staged already."""
    lo, e, t = tiles.lo, tiles.lo.e, tiles.lo.op.tensors[s.tensor]
    places, outs = list(at), []
    for k, role in enumerate(s.axes):
        border = t.border[k] if s.asked[k] else None
        if role in (DOWN, ACROSS) and border is not None:
            first, n = low(lo, t, k), extent(lo, t, k)
            index = e.op("-", at[k], first)
            if border.mode == "constant" and border.value is not None:
                outs.append((outside(e, index, n), e.convert(lo.value(border.value, lo.root), t.dtype.compute)))
            places[k] = e.op("+", first, mapped(e, border.mode, index, n))
    memory, index = place(tuple(places))
    value: Atom = e.bind("kept", form.Load(memory, index, t.dtype, t.dtype.compute))
    for out, constant in reversed(outs):
        value = e.choose(out, constant, value)
    return value
