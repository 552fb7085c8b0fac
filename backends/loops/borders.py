"""What answers a read outside: index maps of the borders, all periodic without limit, in i64 arithmetic."""
from __future__ import annotations

from pipelink_ir.backends.loops.emit import Atom, Emitter, i64
from pipelink_ir.ir.diagnostics import internal_error


def mapped(e: Emitter, mode: str, index: Atom, extent: Atom) -> Atom:
    """The index inside [0, extent) at which a read at `index` is answered. The extent is at least 1. `constant` clamps: its value is chosen elsewhere."""
    if mode in ("replicate", "constant"):
        return e.op("min", e.op("max", index, i64(0)), e.op("-", extent, i64(1)))
    if mode == "wrap":
        return e.op("mod", index, extent)
    if mode == "reflect":
        twice = e.op("+", extent, extent)
        inner = e.op("mod", index, twice)
        return e.choose(e.op("<", inner, extent), inner, e.op("-", e.op("-", twice, i64(1)), inner))
    if mode == "reflect101":
        # An axis of one pixel has the period 0: take 1, and every index falls on that pixel.
        twice = e.op("-", e.op("+", extent, extent), i64(2))
        inner = e.op("mod", index, e.op("max", twice, i64(1)))
        return e.choose(e.op("<", inner, extent), inner, e.op("-", twice, inner))
    internal_error(f"no border is called '{mode}'")


def outside(e: Emitter, index: Atom, extent: Atom) -> Atom:
    """Whether an index is not in [0, extent)."""
    return e.op("or", e.op("<", index, i64(0)), e.op(">=", index, extent))


def inside(e: Emitter, index: Atom, extent: Atom) -> Atom:
    """Whether an index is in [0, extent)."""
    return e.op("and", e.op(">=", index, i64(0)), e.op("<", index, extent))
