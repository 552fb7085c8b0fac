"""Statements about matrix fragments, copies under way and products that stream, for the interpreter of kernels of a GPU.

Copies happen when they are waited for, at the latest possible moment. Every element that a statement touches is noted for the thread that touches it.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.form_own import place

if TYPE_CHECKING:
    from tests.unit.loops.gpu_machine import GpuMachine

Array = np.ndarray[Any, Any]
Statement = form.Own | form.Fragment | form.Multiply | form.StoreFragment | form.CopyAsync | form.Commit | form.Await | form.Contract


@dataclass(slots=True)
class Matrices:
    """The fragments of a block, and the copies of each thread with their groups."""

    sums: dict[str, tuple[form.Tiles, Array]] = field(default_factory=dict)
    copies: dict[int, list[tuple[int, str, int, str, int, int]]] = field(default_factory=dict)
    group: int = 0

    def run(self, m: GpuMachine, s: Statement) -> None:
        if isinstance(s, form.Own):
            {form.Dot: dot, form.Online: online, form.AcrossRow: across_row, form.Attend: attend}[type(s)](self, m, s)  # type: ignore[operator]
            return
        {form.Fragment: self.fragment, form.Multiply: self.multiply, form.StoreFragment: self.store, form.CopyAsync: self.copy, form.Commit: self.commit,
         form.Await: self.wait, form.Contract: self.contract}[type(s)](m, s)  # type: ignore[operator]

    def fragment(self, m: GpuMachine, s: form.Fragment) -> None:
        self.sums[s.name] = s.tiles, np.zeros((s.tiles.rows, s.tiles.columns), np.int32 if s.tiles.sums.is_int else np.float32)

    def multiply(self, m: GpuMachine, s: form.Multiply) -> None:
        tiles, sums = self.sums[s.fragment]
        a, b = self.factor(m, s.left, tiles.rows, s.depth), self.factor(m, s.right, tiles.columns, s.depth)
        if sums.dtype == np.int32:
            sums[...] += (a.astype(np.int64) @ b.astype(np.int64).T).astype(np.int32)
        else:
            sums[...] += (a @ b.T).astype(np.float32)

    def factor(self, m: GpuMachine, f: form.Factor, lines: int, depth: int) -> Array:
        base, memory = m.ev(f.index), m.memory[f.buffer]
        out = np.empty((lines, depth))
        for line in range(lines):
            for k in range(depth):
                place = base + (line * f.pitch + k if f.along else k * f.pitch + line)
                value = memory[place]
                assert isinstance(value, int | float | np.generic), f"%{f.buffer}[{place}] is multiplied before it is written"
                m.touch(f.buffer, place, False)
                out[line, k] = float(value)
        return out

    def store(self, m: GpuMachine, s: form.StoreFragment) -> None:
        tiles, sums = self.sums[s.fragment]
        part = m.ev(s.part)
        assert 0 <= part < tiles.tiles[0]
        for r in range(tiles.slab):
            for c in range(tiles.columns):
                m.thread = 32 * (r // 16 * tiles.warps[1] + c // (8 * tiles.tiles[1])) + r % 8 * 4 + c % 8 // 2
                place = r * s.pitch + c
                m.touch(s.buffer, place, True)
                m.memory[s.buffer][place] = sums[tiles.row(part, r), c].item()
        m.thread = -1

    def copy(self, m: GpuMachine, s: form.CopyAsync) -> None:
        at, source = m.ev(s.index), m.ev(s.source)
        count = 16 // s.memory.bytes
        assert at % count == 0
        inside = m.ev(s.inside)
        assert not inside or (source + m.skew[s.origin]) % count == 0, f"a copy of %{s.origin}[{source}] is not aligned"
        self.copies.setdefault(m.thread, []).append((self.group, s.buffer, at, s.origin, source if inside else -1, count))

    def commit(self, m: GpuMachine, s: form.Commit) -> None:
        self.group += 1

    def wait(self, m: GpuMachine, s: form.Await) -> None:
        for thread in sorted(self.copies, reverse=True):
            m.thread, waiting = thread, []
            for one in self.copies[thread]:
                group, buffer, at, origin, source, count = one
                if group >= self.group - s.pending:
                    waiting.append(one)
                    continue
                for k in range(count):
                    if source >= 0:
                        m.touch(origin, source + k, False)
                    m.touch(buffer, at + k, True)
                    m.memory[buffer][at + k] = m.memory[origin][source + k] if source >= 0 else 0
            self.copies[thread] = waiting
        m.thread = -1

    def done(self) -> None:
        """At the end of a block."""
        assert not any(self.copies.values()), "copies are under way at the end"

    def contract(self, m: GpuMachine, s: form.Contract) -> None:
        terms, row, column, batch = map(m.ev, (s.terms, s.row, s.column, s.batch))
        a = panel(m, s.left, s.ring.along[0], range(row, row + s.ring.rows), terms, batch)
        b = panel(m, s.right, s.ring.along[1], range(column, column + s.ring.n), terms, batch)
        sums = (a @ b.T).astype(np.int64).astype(np.int32) if s.ring.sum.is_int else (a @ b.T).astype(np.float32)
        for t in range(128):
            m.own[s.sums][t] = [sums[s.ring.place(t, n)] for n in range(s.ring.sums)]


def panel(m: GpuMachine, p: form.Panel, along: bool, lines: range, terms: int, batch: int) -> Array:
    """Some lines of a factor, with zeros outside."""
    sizes, steps = [m.ev(n) for n in p.sizes], [m.ev(n) for n in p.steps]
    assert (sizes[0] if along else sizes[1]) == terms
    assert batch < sizes[2]
    buffer = p.other if m.ev(p.moved) else p.buffer
    memory = m.memory[buffer]
    out = np.zeros((len(lines), terms))
    for n, line in enumerate(lines):
        if line >= (sizes[1] if along else sizes[0]):
            break
        for k in range(terms):
            i, j = (k, line) if along else (line, k)
            place = i + j * steps[0] + batch * steps[1]
            m.touch(buffer, place, False)
            out[n, k] = float(memory[place])
    return out


# ---------------------------------------------------------------------------------------------- sums that threads hold each for itself


def whole(m: GpuMachine, name: str, tiles: form.Tiles) -> Array:
    """The matrix that the threads of a block hold together."""
    out = np.full((tiles.rows, tiles.columns), np.nan, np.float32)
    for t in range(tiles.threads):
        for n, value in enumerate(m.own[name][t]):
            assert isinstance(value, int | float | np.generic), f"%{name}[{n}] is used before it is written"
            out[place(tiles, t, n)] = value
    return out


def dot(_: Matrices, m: GpuMachine, s: form.Dot) -> None:
    tiles = s.tiles
    if isinstance(s.left, str):
        held = form.Tiles(tiles.left, tiles.right, tiles.sums, tiles.warps, (tiles.tiles[0], s.depth // 8))
        a = whole(m, s.left, held).astype(tiles.left.numpy()).astype(np.float64)
    else:
        a = Matrices.factor(_, m, s.left, tiles.rows, s.depth)
    product = a @ Matrices.factor(_, m, s.right, tiles.columns, s.depth).T
    sums = (product if s.fresh else whole(m, s.target, tiles) + product).astype(np.float32)
    for t in range(tiles.threads):
        m.own[s.target][t] = [sums[place(tiles, t, n)] for n in range(tiles.tiles[0] * tiles.tiles[1] * 4)]


def online(_: Matrices, m: GpuMachine, s: form.Online) -> None:
    tops = _rows(m, s.top)
    for t in range(m.threads):
        for r in range(2 * s.rows):
            def at(wide: int, n: int, r: int = r) -> int:
                return (r // 2 * wide + n // 2) * 4 + r % 2 * 2 + n % 2

            mates = range(t // 4 * 4, t // 4 * 4 + 4)
            everything = [tops[t][r], *(m.own[s.scores][u][at(s.columns, n)] for u in mates for n in range(2 * s.columns))] if t % 4 == 0 else []
            top = max_of(everything) if t % 4 == 0 else m.own[s.top][t // 4 * 4][r]
            off, scale = np.float64(0.0 if top == -np.inf else top), np.float64(m.ev(s.scale))
            keep = np.exp(scale * (tops[t][r] - off))
            for n in range(2 * s.columns if t % 4 == 0 else 0):
                for u in mates:
                    m.own[s.scores][u][at(s.columns, n)] = np.float32(np.exp(scale * (m.own[s.scores][u][at(s.columns, n)] - off)))
            mine = sum(float(m.own[s.scores][t][at(s.columns, n)]) for n in range(2 * s.columns))
            m.own[s.top][t][r] = np.float32(top)
            m.own[s.total][t][r] = np.float32(m.own[s.total][t][r] * keep + mine)
            for n in range(0 if s.sums is None else 2 * s.wide):
                m.own[s.sums][t][at(s.wide, n)] = np.float32(m.own[s.sums][t][at(s.wide, n)] * keep)


def _rows(m: GpuMachine, name: str) -> dict[int, list[Any]]:
    held = {t: [float(x) for x in values] for t, values in m.own[name].items()}
    assert all(np.array_equal(held[t], held[t // 4 * 4], equal_nan=True) for t in held), f"%{name} differs between the threads of a row"
    return held


def max_of(values: list[Any]) -> float:
    return float(np.max(np.array(values, np.float64)))


def across_row(_: Matrices, m: GpuMachine, s: form.AcrossRow) -> None:
    for t in range(0, m.threads, 4):
        for n in range(s.count):
            some = np.array([m.own[s.target][t + u][n] for u in range(4)], np.float32)
            value = some.max() if s.fn == "max" else np.float32(some.astype(np.float64).sum())
            for u in range(4):
                m.own[s.target][t + u][n] = value


def attend(_: Matrices, m: GpuMachine, s: form.Attend) -> None:
    flow, (begin, end, low, high) = s.flow, map(m.ev, (s.begin, s.end, s.low, s.high))
    count = max(end - begin, 0)
    q, k = lines(m, s.q, s.q_at, range(flow.rows), flow.terms), lines(m, s.k, s.k_at, range(begin, begin + count), flow.terms)
    v = lines(m, s.v, s.v_at, range(begin, begin + count), flow.columns)
    i, j = np.ogrid[:flow.rows, begin:begin + count]
    seen = (j >= low + i) & (j < high + i)
    with np.errstate(invalid="ignore"):
        scores = np.where(seen, q @ k.T, -np.inf)
        top = np.fmax.reduce(scores, 1, initial=-np.inf)
        off = np.where(top == -np.inf, 0, top)[:, None]
        weights = np.where(seen, np.exp((scores - off) * float(m.ev(s.scale))), 0)
        rounded = weights.astype(flow.values.numpy()).astype(np.float64)
        sums = np.stack([(rounded[r, seen[r], None] * v[seen[r]]).sum(0) for r in range(flow.rows)])
    for t in range(flow.threads):
        rows = [flow.place(t, n)[0] for n in (0, 2)]
        m.own[s.sums][t] = [sums[flow.place(t, n)].astype(np.float32) for n in range(flow.sums)]
        m.own[s.top][t] = [top[r].astype(np.float32) for r in rows]
        m.own[s.total][t] = [weights[r, t % 4::4].sum().astype(np.float32) for r in rows]


def lines(m: GpuMachine, p: form.Lines, at: tuple[form.Expr, ...], rows: range, wide: int) -> Array:
    """Some lines of a factor of attention, with zeros outside."""
    sizes, steps, first = ([m.ev(n) for n in x] for x in (p.sizes, p.steps, at))
    memory, out = m.memory[p.buffer], np.zeros((len(rows), wide))
    for n, row in enumerate(rows):
        for c in range(wide):
            place = [x + (c if a == 0 else row if a == p.row else 0) for a, x in enumerate(first)]
            if all(x < size for x, size in zip(place, sizes, strict=True)):
                number = sum(x * step for x, step in zip(place, steps, strict=True))
                m.touch(p.buffer, number, False)
                out[n, c] = float(memory[number])
    return out
