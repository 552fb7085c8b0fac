"""Statements about matrix fragments, copies under way and products that stream, for the interpreter of kernels of a GPU.

Copies happen when they are waited for, at the latest possible moment. Every element that a statement touches is noted for the thread that touches it.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelink_ir.backends.loops import form

if TYPE_CHECKING:
    from tests.unit.loops.gpu_machine import GpuMachine

Array = np.ndarray[Any, Any]
Statement = form.Fragment | form.Multiply | form.StoreFragment | form.CopyAsync | form.Commit | form.Await | form.Contract


@dataclass(slots=True)
class Matrices:
    """The fragments of a block, and the copies of each thread with their groups."""

    sums: dict[str, tuple[form.Tiles, Array]] = field(default_factory=dict)
    copies: dict[int, list[tuple[int, str, int, str, int, int]]] = field(default_factory=dict)
    group: int = 0

    def run(self, m: GpuMachine, s: Statement) -> None:
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
    memory = m.memory[p.buffer]
    out = np.zeros((len(lines), terms))
    for n, line in enumerate(lines):
        if line >= (sizes[1] if along else sizes[0]):
            break
        for k in range(terms):
            i, j = (k, line) if along else (line, k)
            place = i + j * steps[0] + batch * steps[1]
            m.touch(p.buffer, place, False)
            out[n, k] = float(memory[place])
    return out
