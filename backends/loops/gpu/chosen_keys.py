"""Which keys are seen, as bits: what conditions on the key alone say, written before the attention that the copy engine feeds.

    grid for i in 0..fit ? heads * bytes : 0 {
      %k.chosen[i] = eight keys, the first in the lowest bit
    }

`heads` are the places of those axes of the result on which the conditions depend; each has whole tiles of keys. Ends of the range that are the same for all
queries are part of it, so a tile may begin before the first key.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.emit import FALSE, TRUE, Atom, i64
from pipelink_ir.backends.loops.fold import must
from pipelink_ir.backends.loops.gpu.attention import Flash
from pipelink_ir.backends.loops.gpu.flat import unravel
from pipelink_ir.backends.loops.gpu.flow import fit_to_flow, plain
from pipelink_ir.backends.loops.gpu.keys import Keys
from pipelink_ir.backends.loops.lower import Lowering, Sites
from pipelink_ir.backends.loops.nests import Axis, Job
from pipelink_ir.backends.loops.reads import extent
from pipelink_ir.ir.dtypes import BOOL, DTYPES, I64
from pipelink_ir.passes.scheduling.attention_flow import TILE
from pipelink_ir.passes.scheduling.conditions import Condition
from pipelink_ir.passes.scheduling.views import Leaf, Looker, Seen

if TYPE_CHECKING:
    from pipelink_ir.ir.typed import TypedOperator
    from pipelink_ir.passes.scheduling.attention import Attention
    from pipelink_ir.passes.scheduling.costs import Plan

U8 = DTYPES["u8"]


def chosen_body(op: TypedOperator, plan: Plan, sites: Sites, job: Job, way: Attention, chosen: Mapping[str, int] | None = None) -> tuple[Lowering, int]:
    """The kernel that writes the bits, still open; how many threads a block has is left to the emitter."""
    lo = Lowering(op, plan, sites, frozenset((job[0].name,)), chosen)
    _Chosen(lo, [job], way).write()
    return lo, 0


def bits_of(flash: Flash) -> tuple[form.Buffer, Atom]:
    """The memory of the bits, and the first byte of the head that `flash.fixed` has."""
    e, axes = flash.e, _axes(flash)
    total: form.Expr = plain(flash, _pitch(flash))
    row: Atom = i64(0)
    for k in axes:
        axis = flash.axes[k]
        total = form.Op("*", (total, form.Op("max", (plain(flash, axis.n), i64(0)), I64)), I64)
        row = e.op("+", e.op("*", row, axis.n), e.op("-", flash.fixed[Leaf("axis", k)], axis.lo))
    return form.Buffer(f"{_keys(flash)[0]}.chosen", "temporary", U8, (total,)), e.op("*", row, _pitch(flash))


def _keys(flash: Flash) -> tuple[str, int]:
    """The tensor of the keys, and its axis along which they are."""
    lying = flash.way.lying
    assert not isinstance(lying, str), "it is known how the factors lie"
    return lying[1].tensor, lying[1].row


def _pitch(flash: Flash) -> Atom:
    """Bytes of a head: whole tiles of keys."""
    e, (tensor, row) = flash.e, _keys(flash)
    tiles = e.op("floordiv", e.op("+", extent(flash.lo, flash.lo.op.tensors[tensor], row), i64(TILE - 1)), i64(TILE))
    return e.op("*", tiles, i64(TILE // 8))


def _ends(flash: Flash) -> Iterator[Condition]:
    """The ends that hold for all queries alike. A key is only asked about if it lies in the range; what else ends it above is known to the tiles."""
    yield from (c for c in flash.found.conditions if not c.rows and (c.kind == "lower" or (c.kind == "upper" and c.own)))


def _axes(flash: Flash) -> list[int]:
    """The axes of the result on which the bits depend."""
    look = Looker(flash.lo.op, flash.lo.plan.local)
    views: list[Seen] = [c.view for c in flash.found.conditions if c.kind == "other" and c.view is not None]
    views += [t for c in _ends(flash) for _, t in c.bound.terms]
    return sorted({leaf.number for v in views for leaf in look.leaves(v) if leaf.kind == "axis"})


class _Chosen(Flash):
    """The loops of the kernel."""

    def write(self) -> None:
        lo, e = self.lo, self.e
        lo.team = None
        axes, pitch = _axes(self), _pitch(self)
        ranges = tuple((self.axes[k].name, self.axes[k].lo, self.axes[k].n) for k in axes)
        total = e.op("*", self._total([Axis(*r) for r in ranges]) if ranges else i64(1), pitch)
        with e.loop("i", i64(0), e.choose(fit_to_flow(self), total, i64(0)), kind="grid") as p:
            places = unravel(lo, ranges, e.op("quot", p, pitch)) if ranges else []
            self.fixed = {Leaf("axis", k): self.axes[k].lo for k in self.found.batch} | {Leaf("axis", k): a for k, a in zip(axes, places, strict=True)}
            keys, first = Keys(self, i64(0)), e.op("*", e.op("rest", p, pitch), i64(8))
            byte: Atom = must(0, U8.compute)
            for k in range(8):
                seen = self._seen(keys, e.op("+", first, i64(k)))
                byte = e.op("+", byte, e.choose(seen, must(1 << k, U8.compute), must(0, U8.compute)))
            buffer, _ = bits_of(self)
            lo.scratch.append(buffer)
            e.raw(form.Store(buffer.name, p, byte, U8))

    def _seen(self, keys: Keys, key: Atom) -> Atom:
        """Whether a key is seen, as far as that is the same for all queries."""
        e, (tensor, row) = self.e, _keys(self)
        inside: Atom = e.op("<", key, extent(self.lo, self.lo.op.tensors[tensor], row))
        for c in _ends(self):
            bound = keys.sum_of(c.bound, self.fixed)
            inside = e.op("and", inside, e.op("<" if c.kind == "upper" else ">=", key, bound))
        return e.branch(inside, lambda: keys.anybody(key), lambda: FALSE, BOOL) if inside is not TRUE else keys.anybody(key)
