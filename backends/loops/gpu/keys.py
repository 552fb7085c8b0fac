"""Which keys the queries of a block see: the tiles that there are, those that all see, and what is asked of each element of the others."""
from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.emit import FALSE, TRUE, Atom, i64
from pipelink_ir.ir.dtypes import BOOL
from pipelink_ir.ir.nodes import Read
from pipelink_ir.passes.scheduling.attention_search import KEY
from pipelink_ir.passes.scheduling.conditions import Condition, Sum
from pipelink_ir.passes.scheduling.counts import ranges_of
from pipelink_ir.passes.scheduling.views import Leaf, Looker

if TYPE_CHECKING:
    from pipelink_ir.backends.loops.gpu.attention import Flash


class Keys:
    """The keys of one block, whose first query is number `first`."""

    def __init__(self, flash: Flash, first: Atom) -> None:
        self.flash, self.e, self.found = flash, flash.e, flash.found
        e, conds = self.e, self.found.conditions
        self.bounds = [c for c in conds if c.kind != "other"]
        """Conditions that are bounds; the others are asked of each element."""
        self.limits = [c for c in self.bounds if c.own or not self.found.counted]
        """The bounds outside of which no key counts."""
        self.others = [c for c in conds if c.kind == "other"]
        self.masks = [] if self.found.counted else [c for c in self.others if not c.by_row]
        self.by_row = any(c.by_row for c in conds) and not self.found.counted
        """Whether keys count for some queries of a block and not for others."""
        self.tested = bool(self.others) or any(c.by_row for c in conds) or flash.key_reduction().where is not None or not all(map(self._sized, conds))
        """Whether it has to be found out which queries see a key at all."""
        self.leaf = Leaf("axis", self.found.row)
        row = flash.row
        self.top = e.op("+", row.lo, first)
        self.bottom = e.op("-", e.op("+", row.lo, e.op("min", e.op("+", first, i64(flash.cut.queries)), row.n)), i64(1))
        self.begin = self._most([self._bound(c, self.top) for c in self.limits if c.kind == "lower"], "max", i64(0) if self._from_zero() else None)
        self.end = self._most([self._bound(c, self.bottom) for c in self.limits if c.kind == "upper"], "min", None)
        self.count = e.op("max", e.op("-", self.end, self.begin), i64(0))
        self.steps = e.op("floordiv", e.op("+", self.count, i64(flash.cut.keys - 1)), i64(flash.cut.keys))

    @property
    def plain_scores(self) -> bool:
        """Whether a score may be computed where its key is not seen: it reads nothing but the product."""
        look = Looker(self.flash.lo.op, self.flash.lo.plan.local)
        return not any(isinstance(v.expr, Read) for v in look.walk(self.found.score))

    def _sized(self, c: Condition) -> bool:
        look = Looker(self.flash.lo.op, self.flash.lo.plan.local)
        return not any(isinstance(t, Leaf) or any(isinstance(v.expr, Read) for v in look.walk(t)) or look.leaves(t) for _, t in c.bound.terms)

    def _from_zero(self) -> bool:
        return ranges_of(self.flash.key_reduction())[0].lo is None

    def sum_of(self, s: Sum, at: Mapping[Leaf, Atom]) -> Atom:
        """The value of a sum."""
        e = self.e
        out: Atom = i64(s.constant)
        for factor, t in s.terms:
            value = at[t] if isinstance(t, Leaf) else self.flash.lo.index(t.expr, self.flash.env(t, at))
            out = e.op("+", out, e.op("*", value, i64(factor)))
        return out

    def _bound(self, c: Condition, row: Atom) -> Atom:
        """Where the keys of a row begin or end by one condition."""
        total = self.sum_of(c.bound, self.flash.fixed)
        return self.e.op("+", total, row) if c.rows else total

    def _most(self, bounds: list[Atom], fn: str, least: Atom | None) -> Atom:
        out = least
        for b in bounds:
            out = b if out is None else self.e.op(fn, out, b)
        assert out is not None, "a range of keys has an end"
        return out

    def whole(self, begin: Atom) -> Atom:
        """Whether all queries of the block see all keys of a tile."""
        e, keys = self.e, self.flash.cut.keys
        if self.others:
            return FALSE
        end, conds = e.op("+", begin, i64(keys)), []
        for c in self.bounds:
            by = [self._bound(c, self.top if c.kind == "upper" else self.bottom)]
            if c.kind == "upper" and not self._ends_even(by[0]):
                conds.append(e.op("<=", end, by[0]))
            elif c.kind == "lower" and (c.rows or c not in self.limits):
                conds.append(e.op(">=", begin, by[0]))
        return e.all_of([c for c in conds if not (isinstance(c, form.Const) and c.value)])

    @property
    def even(self) -> bool:
        """Whether there is no last tile that has fewer keys than others."""
        return self._ends_even(self.end)

    def _ends_even(self, bound: Atom) -> bool:
        """Whether tiles that begin at constant places end at a constant one."""
        first, end = self.begin, bound
        return isinstance(first, form.Const) and isinstance(end, form.Const) and (int(end.value) - int(first.value)) % self.flash.cut.keys == 0 \
            and end == self.end

    def passes(self, at: Mapping[Leaf, Atom]) -> Atom:
        """Whether a query sees a key that lies in a tile."""
        e, key, row = self.e, at[KEY], at[self.leaf]
        out: Atom = TRUE
        for c in self.bounds:
            if c.kind == "lower" and not c.rows and c in self.limits:
                continue    # no tile begins before it
            bound = self._bound(c, row)
            cond = e.op("<", key, bound) if c.kind == "upper" else e.op(">=", key, bound)
            out = cond if out is TRUE else e.op("and", out, cond)
        for c in self.others:
            out = self._both(out, c, at)
        return out

    def _both(self, before: Atom, c: Condition, at: Mapping[Leaf, Atom]) -> Atom:
        e = self.e
        return e.branch(before, lambda: self._asked(c, at), lambda: FALSE, BOOL)

    def _asked(self, c: Condition, at: Mapping[Leaf, Atom]) -> Atom:
        assert c.view is not None, "what is asked of each element is an expression"
        return self.flash.atom(c.view, at)

    def anybody(self, key: Atom) -> Atom:
        """Whether a key passes what does not depend on the query."""
        out: Atom = TRUE
        for c in self.masks:
            out = self._asked(c, {**self.flash.fixed, KEY: key}) if out is TRUE else self._both(out, c, {**self.flash.fixed, KEY: key})
        return out
