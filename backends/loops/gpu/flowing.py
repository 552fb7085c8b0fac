"""Attention whose queries, keys and values the copy engine brings (sm_90a): `Flash` with its rounds through the keys as one statement.

    resident block for tile in 0..fit ? heads * tiles of queries : 0 {
      attend %sums, %top, %total = %q, %k, %v, keys begin..end
      own %total = sum across rows
      each: what is made of its sums and totals is stored
    }

`fit` is found out at run time; where it does not hold, the kernel behind this one does the work.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.emit import TRUE, Atom, i64
from pipelink_ir.backends.loops.form_attend import Attend, Flow
from pipelink_ir.backends.loops.gpu.attention import ONE, ZERO, Flash
from pipelink_ir.backends.loops.gpu.chosen_keys import bits_of
from pipelink_ir.backends.loops.gpu.flow import by_length, lines_of, place_of, traded, words_of
from pipelink_ir.backends.loops.gpu.keys import Keys
from pipelink_ir.backends.loops.lower import Env, Lowering, Sites
from pipelink_ir.backends.loops.nests import Axis, Job
from pipelink_ir.backends.loops.reads import address
from pipelink_ir.ir.dtypes import F32, I64
from pipelink_ir.ir.typed import TypedOperator
from pipelink_ir.passes.scheduling.attention import Attention
from pipelink_ir.passes.scheduling.attention_flow import TILE
from pipelink_ir.passes.scheduling.conditions import Condition
from pipelink_ir.passes.scheduling.costs import Plan
from pipelink_ir.passes.scheduling.views import Leaf

FAR = 1 << 60
"""Beyond all keys."""


def flowing_body(op: TypedOperator, plan: Plan, sites: Sites, job: Job, way: Attention, chosen: Mapping[str, int] | None = None) -> tuple[Lowering, int]:
    """The kernel of attention, still open, and the number of threads that have queries."""
    lo = Lowering(op, plan, sites, frozenset((job[0].name,)), chosen)
    _Flowing(lo, [job], way).write()
    return lo, 32 * way.cut.warps


class _Flowing(Flash):
    """The loops of one kernel."""

    def _order(self, p: Atom, down: Atom, others: list[Axis]) -> tuple[Atom, Atom]:
        if any(c.rows for c in self.found.conditions):
            return by_length(self, p, down, self._total(others))
        return super()._order(p, down, others)

    def _tile(self, first: Atom) -> None:
        e, cut, f, lying = self.e, self.cut, self.found, self.way.lying
        assert not isinstance(lying, str), "it is known how the factors lie"
        self.first, self.seen = first, None
        self.keys = keys = Keys(self, first)
        self.sums, self.top, self.total = self._own("sums", cut.columns // 2), self._own("top", 2), self._own("total", 2)
        maps = e.memory("maps")
        self.lo.scratch.append(form.Buffer(maps, "temporary", I64, (words_of(self),)))
        flow = Flow(self.way.factors, self.way.values, cut.terms, cut.columns, cut.warps // 4, stages=2 if max(cut.terms, cut.columns) > 64 else 4)
        (q_lies, k_lies, v_lies), terms, column = lying, self.terms, self.column
        q, k, v = lines_of(self, q_lies, terms), lines_of(self, k_lies, terms), lines_of(self, v_lies, column)
        q_at, k_at = place_of(self, q_lies, f.q, terms, keys.top), place_of(self, k_lies, f.k, terms, i64(0))
        v_at = place_of(self, v_lies, f.v, column, i64(0))
        self.low, self.high = self._edge("lower"), self._edge("upper")
        begin, chosen, chosen_at = keys.begin, None, None
        if self.way.masked:
            # Bits come by whole tiles; they know where the keys begin.
            begin = e.op("*", e.op("floordiv", begin, i64(TILE)), i64(TILE))
            bits, chosen_at = bits_of(self)
            chosen = bits.name
            self.lo.scratch.append(bits)
        e.raw(Attend(self.sums, self.top, self.total, flow, q, k, v, self.scale, q_at, k_at, v_at, begin, keys.end, self.low, self.high, maps,
                     chosen, chosen_at))
        e.raw(form.AcrossRow(self.total, "sum", 2))
        self._results()

    def _edge(self, kind: str) -> Atom:
        """Where the keys begin or end that the first query of the tile sees, by conditions on queries alone."""
        e = self.e
        out: Atom = i64(FAR if kind == "upper" else -FAR)
        for c in self._by_row(kind):
            bound = e.op("+", self.keys.sum_of(c.bound, self.fixed), self.keys.top)
            out = e.op("min" if kind == "upper" else "max", out, bound)
        return out

    def _by_row(self, kind: str) -> list[Condition]:
        return [c for c in self.found.conditions if c.kind == kind and c.rows]

    def _sees(self, r: int, at: dict[Leaf, Atom]) -> Atom:
        """Bounds say whether there is a key, or those that looked at the keys."""
        e, keys = self.e, self.keys
        if self.way.masked:
            return e.op("not", e.op("<", self._load(self.total, r), ZERO))
        row = e.op("-", at[keys.leaf], keys.top)
        begin, end = keys.begin, keys.end
        if self._by_row("lower"):
            begin = e.op("max", begin, e.op("+", self.low, row))
        if self._by_row("upper"):
            end = e.op("min", end, e.op("+", self.high, row))
        return e.op(">", end, begin)

    def _sum_of(self, r: int, seen: Atom) -> Atom:
        total = super()._sum_of(r, seen)
        return self.e.choose(seen, total, ZERO) if self.way.masked else total

    # ---------------------------------------------------------------------------------------------------------------- results

    def _results(self) -> None:
        """Halves are traded between the four threads of a row and stored eight at a time. Behind the edges the last ones are made again and not stored, so that
        nothing waits for a condition."""
        e = self.e
        if not traded(self):
            super()._results()
            return
        with self.team.each("t", self.threads) as t:
            for r in range(2):
                line = self.line(t, r)
                at = self.at_row(line)
                last = e.op("-", self.column.n, i64(1))
                known = self._known(t, r, at, None if self.column.n == i64(self.cut.columns) else last)
                self._invert()
                inside = TRUE if self.even else e.op("<", e.op("+", self.first, line), self.row.n)
                with e.loop("group", i64(0), i64(self.cut.columns // 32), nonempty=True, unroll=True) as group:
                    self._eight(t, group, at, known, inside)

    def _invert(self) -> None:
        """Quotients by the sum of the weights, which is 1 at least, become products: the sums are less precise than that, and so are halves. A division has a
        branch for each element."""
        by = self.divisor
        if isinstance(by, form.Ref):
            self.e.inverses = {by.name: self.e.op("/", ONE, by)}

    def _is_stored(self, t: Atom, group: Atom, k: int, inside: Atom) -> Atom:
        """Whether element `k` of a thread is none that is made again."""
        e = self.e
        if self.column.n == i64(self.cut.columns):
            return inside
        column = e.op("+", e.op("+", e.op("*", group, i64(32)), e.op("*", e.op("rest", t, i64(4)), i64(2))), i64(k // 2 * 8 + k % 2))
        return e.op("and", inside, e.op("<", column, self.column.n))

    def _eight(self, t: Atom, group: Atom, at: dict[Leaf, Atom], known: Callable[[int, Atom], dict[Leaf, Atom]], inside: Atom) -> None:
        """32 columns of a row, eight of each of four neighbouring threads: made where the sums are, stored where they lie together."""
        lo, e, (tensor, piece) = self.lo, self.e, self.jobs[0]
        made, mine = e.memory("made"), e.memory("mine")
        e.raw(form.Alloc(made, F32, i64(8)))
        for k in range(8):
            here = known(k % 2, e.op("+", e.op("*", group, i64(4)), i64(k // 2)))
            with lo.stored_where(lambda k=k: self._is_stored(t, group, k, inside)):  # type: ignore[misc]
                value = lo.value(piece.value, Env({a.index: i for a, i in zip(piece.axes, self._indices(here), strict=True)}))
            e.raw(form.Store(made, i64(k), value if value.dtype is F32 else e.convert(value, F32), F32))
        e.raw(form.Alloc(mine, tensor.dtype, i64(8)))
        e.raw(form.Trade(mine, made))
        column = e.op("+", e.op("*", group, i64(32)), e.op("*", e.op("rest", t, i64(4)), i64(8)))
        place = tuple(self._indices({**at, Leaf("axis", self.found.column): e.op("+", self.column.lo, column)}))
        if self.column.n != i64(self.cut.columns):
            inside = e.op("and", inside, e.op("<", column, self.column.n))
        with e.when(inside):
            e.raw(form.Move(lo.buffer(tensor), address(lo, tensor, place), mine, i64(0), 8))
