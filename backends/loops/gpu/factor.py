"""Factors of products on their way to shared memory: tiles of some lines (rows of the left factor, columns of the right one) by some terms.

A factor that is read as it lies in memory is copied 16 bytes at a time where its lines begin at multiples of 16 bytes, which is asked at run time, and where a
border of zeros is one of whole copies; any other factor is computed element by element. What lies outside of the matrices is zero. Lines in shared memory are
16 bytes longer than they need be, so that neighbouring ones lie in different banks.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.borders import inside as within
from pipelink_ir.backends.loops.emit import TRUE, Atom, i64
from pipelink_ir.backends.loops.fold import must
from pipelink_ir.backends.loops.gpu.flat import Flat, unravel
from pipelink_ir.backends.loops.lower import Env, Lowering
from pipelink_ir.backends.loops.reads import address, extent, low
from pipelink_ir.ir.dtypes import DType
from pipelink_ir.ir.nodes import Cast, Expr, FloatLit, IntLit, Name, Read
from pipelink_ir.ir.typed import Tensor
from pipelink_ir.passes.scheduling.cuts import CHUNK
from pipelink_ir.passes.scheduling.tensor_cores import plain_read

if TYPE_CHECKING:
    from pipelink_ir.backends.loops.gpu.product import Tiled

@dataclass(frozen=True, slots=True)
class Tiling:
    """Tiles that are `depth` terms deep; `stages` of them are in shared memory or on their way there. So many threads bring them."""

    depth: int
    stages: int
    threads: int


class Factor:
    """One factor: how its tiles lie in shared memory, from element `base` of `memory` on, and how they get there."""

    def __init__(self, nest: Tiled, expr: Expr, dtype: DType, axes: tuple[int, ...], side: Flat, lines: int, tiling: Tiling) -> None:
        self.nest, self.lo, self.e, self.expr, self.dtype, self.axes, self.side = nest, nest.lo, nest.e, expr, dtype, axes, side
        self.lines, self.tiling = lines, tiling
        self.along = nest.along_terms(expr)
        """Whether neighbours in memory are terms, also in shared memory."""
        self.pitch = (tiling.depth if self.along else lines) + CHUNK // dtype.bytes
        self.size = self.pitch * (lines if self.along else tiling.depth)
        self.memory, self.base = "", 0

    def place(self, slot: Atom, line: Atom, term: Atom) -> Atom:
        """Where an element lies in shared memory."""
        e = self.e
        outer, inner = (line, term) if self.along else (term, line)
        at = e.op("+", e.op("*", outer, i64(self.pitch)), inner)
        return e.op("+", e.op("+", e.op("*", slot, i64(self.size)), i64(self.base)), at)

    def stage(self, first: Atom, begin: Atom, slot: Atom) -> None:
        """Brings a tile from line `first` and term `begin` on, to its place in the ring."""
        cond = self._whole()
        if cond is None:
            self._each_element(first, begin, slot, True)
            return
        e = self.e
        with e.when(cond):
            self._chunks(first, begin, slot)
        with e.when(e.op("not", cond)):
            self._each_element(first, begin, slot)

    # --------------------------------------------------------------------------------------------------------------- 16 bytes

    def _whole(self) -> Atom | None:
        """The condition under which 16 bytes can be copied at a time; None if that is never so."""
        nest, lo, e = self.nest, self.lo, self.e
        read = plain_read(self.expr)
        if read is None or nest.x.where is not None:
            return None
        t = lo.op.tensors[read.tensor]
        if lo.plan.local(t.name) or t.name in lo.written or t.dtype is not self.dtype or not simple(t, read):
            return None
        last = read.indices[-1]
        name, first, n = self._fastest()
        if not isinstance(last, Name) or nest.axis_name(last.name) != name or any(name in nest.axis_names(i) for i in read.indices[:-1]):
            return None
        k, each = len(read.indices) - 1, i64(CHUNK // self.dtype.bytes)
        conds: list[Atom] = []
        # Axes that are taken as one lie whole in memory.
        line = n if not self.along and self.axes[-1] - 1 in nest.merged else extent(lo, t, k)
        for size in (line, n, e.op("-", first, low(lo, t, k))):
            cond = e.op("==", e.op("mod", size, each), i64(0))
            if isinstance(cond, form.Const) and not cond.value:
                return None
            conds.append(cond)
        aligned = e.find(("aligned", t.name, CHUNK))
        if aligned is None:
            aligned = e.bind("aligned", form.Aligned(lo.buffer(t), CHUNK))
            e.remember(("aligned", t.name, CHUNK), aligned)
        return e.all_of([*(c for c in conds if not isinstance(c, form.Const)), aligned])

    def _fastest(self) -> tuple[str, Atom, Atom]:
        """The index that changes fastest in memory: its name, its first value and its extent."""
        if self.along:
            return self.nest.depth.ranges[-1]
        _, first, n = self.side.ranges[-1]
        return f"axis {self.axes[-1]}", first, n

    def _chunks(self, first: Atom, begin: Atom, slot: Atom) -> None:
        nest, e, threads = self.nest, self.e, self.tiling.threads
        each = CHUNK // self.dtype.bytes
        in_line = (self.tiling.depth if self.along else self.lines) // each
        chunks = self.lines * self.tiling.depth // each
        with nest.team.loop("t", i64(0), i64(threads), nonempty=True) as thread:
            for c in range(0, chunks, threads):
                # Written out: all copies are begun one after the other, and what they have in common stands before the loop over tiles.
                number = e.op("+", thread, i64(c))
                with e.when(TRUE if c + threads <= chunks else e.op("<", number, i64(chunks))):
                    outer, inner = e.op("quot", number, i64(in_line)), e.op("*", e.op("rest", number, i64(in_line)), i64(each))
                    line, d = (outer, inner) if self.along else (inner, outer)
                    self._chunk(slot, line, d, e.op("+", first, line), e.op("+", begin, d))

    def _chunk(self, slot: Atom, line: Atom, d: Atom, row: Atom, term: Atom) -> None:
        """Begins one copy."""
        nest, lo, e = self.nest, self.lo, self.e
        read = plain_read(self.expr)
        assert read is not None
        t = lo.op.tensors[read.tensor]
        inside = e.op("and", e.op("<", row, self.side.total), e.op("<", term, nest.depth.total))
        env = self.env(row, term)
        source, inside = source_of(lo, t, read, tuple(lo.index(i, env) for i in read.indices), inside)
        e.raw(form.CopyAsync(self.memory, self.place(slot, line, d), lo.buffer(t), source, inside, self.dtype))

    # ------------------------------------------------------------------------------------------------------------ any element

    def _each_element(self, first: Atom, begin: Atom, slot: Atom, alone: bool = False) -> None:
        """Element by element. `alone`: this is the only way, so it is worth being written out."""
        e, threads, depth = self.e, self.tiling.threads, self.tiling.depth
        # Neighbouring threads read what lies side by side.
        inner, outer = (depth, self.lines) if self.along else (self.lines, depth)
        if alone and threads % inner == 0 and outer % (threads // inner) == 0:
            # A thread has one place along the inner axis, so what is made of that is computed once.
            with self.nest.team.loop("t", i64(0), i64(threads), nonempty=True) as t:
                fast, at = e.op("rest", t, i64(inner)), e.op("quot", t, i64(inner))
                with e.loop("r", i64(0), i64(outer // (threads // inner)), nonempty=True, unroll=True) as r:
                    self._element(first, begin, slot, e.op("+", at, e.op("*", r, i64(threads // inner))), fast)
            return
        with self.nest.team.loop("s", i64(0), i64(self.lines * depth), nonempty=True) as s:
            self._element(first, begin, slot, e.op("quot", s, i64(inner)), e.op("rest", s, i64(inner)))

    def _element(self, first: Atom, begin: Atom, slot: Atom, outer: Atom, fast: Atom) -> None:
        nest, lo, e, dtype = self.nest, self.lo, self.e, self.dtype
        zero = must(0, dtype.compute)
        line, d = (outer, fast) if self.along else (fast, outer)
        row, term = e.op("+", first, line), e.op("+", begin, d)
        inside = e.op("and", e.op("<", row, self.side.total), e.op("<", term, nest.depth.total))

        def value() -> Atom:
            env = self.env(row, term)
            passes = TRUE if nest.x.where is None else lo.value(nest.x.where, env)
            return e.branch(passes, lambda: e.convert(lo.value(self.expr, env), dtype.compute), lambda: zero, dtype.compute)

        out = e.branch(inside, value, lambda: zero, dtype.compute)
        e.raw(form.Store(self.memory, self.place(slot, line, d), out, dtype))

    def env(self, row: Atom, term: Atom) -> Env:
        """What the indices of the factor are."""
        nest, lo = self.nest, self.lo
        at = {**nest.fixed, **dict(zip(self.axes, unravel(lo, self.side.ranges, row), strict=True))}
        env = {n: at[axis] for n, axis in nest.product.plain.items() if axis in at}
        env.update({name: i for (name, _, _), i in zip(nest.depth.ranges, unravel(lo, nest.depth.ranges, term), strict=True)})
        return Env(env)


def _words(read: Read) -> tuple[str, ...]:
    return read.access or ("",) * len(read.indices)


def source_of(lo: Lowering, t: Tensor, read: Read, at: tuple[Atom, ...], inside: Atom) -> tuple[Atom, Atom]:
    """Where a copy of a read that is `simple` begins, and whether there is something to copy, not zeros around an axis."""
    e, source = lo.e, address(lo, t, at)
    edges = [k for k, word in enumerate(_words(read)) if word == "border"]
    if not edges:
        return source, inside
    inside = e.all_of([inside, *(within(e, e.op("-", at[k], low(lo, t, k)), extent(lo, t, k)) for k in edges)])
    return e.choose(inside, source, i64(0)), inside  # where nothing is copied it would be no place


def simple(t: Tensor, read: Read) -> bool:
    """Whether what a read finds is an element or, beyond the edges of an axis that is not the last, zero."""
    for k, word in enumerate(_words(read)):
        if word not in ("", "inside") and not (word == "border" and k < len(read.indices) - 1 and _zero(t, k)):
            return False
    return True


def _zero(t: Tensor, k: int) -> bool:
    """Whether there are zeros around an axis."""
    border = t.border[k]
    value = border.value if border is not None and border.mode == "constant" else None
    while isinstance(value, Cast) and value.implicit:
        value = value.arg
    return isinstance(value, IntLit | FloatLit) and value.value == 0
