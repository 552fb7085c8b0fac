"""Reductions by one thread along neighbours in memory: they are moved by accesses of 16 bytes, where sizes and addresses allow it.

    for c in 0..32 { part = part + k[c + j] * x[c + i] }
becomes
    if x and k are aligned and i and j are multiples of 8 {
      for c in 0..32 step 8 { move … = x[c + i] x 8 ; move … = k[c + j] x 8 ; part = part + … ; … }
    } else { … as before … }
"""
from __future__ import annotations

from collections.abc import Callable

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.emit import Atom, i64
from pipelink_ir.backends.loops.gpu.pack import BYTES, Packer
from pipelink_ir.backends.loops.lower import Lowering
from pipelink_ir.ir.nodes import Range

LEAST = 4
"""Neighbours that are worth it."""


def along(lo: Lowering, r: Range, begin: Atom, stop: Atom, turn: Callable[[Atom], None]) -> bool:
    """Writes the loop over a range of a known size so, if that moves anything at once."""
    e = lo.e
    if not isinstance(begin, form.Const) or not isinstance(stop, form.Const) or begin.value != 0:
        return False
    n = int(stop.value)
    size = next((s for s in (BYTES // 2, BYTES // 4) if n % s == 0), 0)
    if size < LEAST or n <= size:
        return False
    with e.frame("lazy") as wide, e.loop(r.index, begin, stop, i64(size), nonempty=True) as i:
        for k in range(size):
            turn(e.op("+", i, i64(k)))
        packer = Packer(lo, {i: size})
        packed = packer.packed(e.top.stmts)
        moved = sum(isinstance(s, form.Move) for s in packed) - sum(isinstance(s, form.Move) for s in e.top.stmts)
        e.top.stmts[:] = packed
    if not moved:
        return False
    fine = e.all_of(packer.conditions())
    with e.frame("lazy") as plain, e.loop(r.index, begin, stop, nonempty=True) as i:
        turn(i)
    e.raw(form.If(fine, tuple(wide.stmts), tuple(plain.stmts)))
    return True
