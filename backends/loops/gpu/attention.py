"""Attention on a GPU: a block goes through the keys for some queries once, and no score is ever in memory.

    block for tile in 0..heads * tiles of queries {
      shared alloc %q, %k, %v                          queries; two tiles of keys and of values
      own %top = -inf, %total = 0, %sums = 0
      for step in 0..steps {                           tiles of keys that any of the queries sees
        await   barrier                                this tile is there, the one before has been read
        thread: begins to copy the next tile     commit
        own %scores = %q * %k
        each: scores are scaled, biased, -inf where a query does not see a key
        own softmax of %scores with %top, %total, %sums
        own %sums += %scores * %v
      }
      each: what is made of its sums and totals is stored
    }

Tiles that no query of the block sees are left out, and what all of them see needs no test. A value that a query does not see must not count even if it is
infinite or NaN, which a weight of 0 would not keep out: values that no query sees are zeros here, and where it depends on the query, tiles are looked through
for such numbers and added up one key at a time if there are any. Weights that the program rounds once they are divided take two rounds: maxima and totals,
then the weights.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.emit import FALSE, TRUE, Atom, i64, key_of
from pipelink_ir.backends.loops.fold import must
from pipelink_ir.backends.loops.gpu.flow import fit_to_flow
from pipelink_ir.backends.loops.gpu.keys import Keys
from pipelink_ir.backends.loops.gpu.staged import Staged
from pipelink_ir.backends.loops.gpu.team import Team
from pipelink_ir.backends.loops.lower import Env, Lowering, Sites
from pipelink_ir.backends.loops.nests import Axis, Job, Nest
from pipelink_ir.backends.loops.reads import address
from pipelink_ir.backends.loops.reduce import finish, kind_of
from pipelink_ir.ir.dtypes import BOOL, F32
from pipelink_ir.ir.nodes import Reduce
from pipelink_ir.ir.typed import TypedOperator
from pipelink_ir.passes.scheduling.attention import DEEPEST, Attention
from pipelink_ir.passes.scheduling.attention_search import KEY, TERM
from pipelink_ir.passes.scheduling.costs import Plan
from pipelink_ir.passes.scheduling.counts import names, ranges_of
from pipelink_ir.passes.scheduling.views import Leaf, Seen, View

NONE = must(float("-inf"), F32)
ZERO, ONE = must(0, F32), must(1, F32)
Places = Mapping[Leaf, Atom]


def attention_body(op: TypedOperator, plan: Plan, sites: Sites, job: Job, way: Attention, chosen: Mapping[str, int] | None = None) -> tuple[Lowering, int]:
    """The kernel of attention, still open, and the number of threads that it needs."""
    lo = Lowering(op, plan, sites, frozenset((job[0].name,)), chosen)
    Flash(lo, [job], way).write()
    lo.fit = way.cut.blocks
    return lo, 32 * way.cut.warps


class Flash(Nest):
    """The loops of one kernel."""

    def __init__(self, lo: Lowering, jobs: list[Job], way: Attention) -> None:
        super().__init__(lo, jobs)
        self.way, self.found, self.cut, self.team = way, way.found, way.cut, Team(lo)
        cut = way.cut
        self.row, self.column = self.axes[self.found.row], self.axes[self.found.column]
        self.terms = self._range(self.found.term_range)
        self.scored = form.Tiles(way.factors, way.factors, F32, (cut.warps, 1), (cut.tiles, cut.keys // 8))
        self.summed = form.Tiles(way.values, way.values, F32, (cut.warps, 1), (cut.tiles, cut.columns // 8))
        self.threads = self.scored.threads
        self.even = isinstance(self.row.n, form.Const) and int(self.row.n.value) % cut.queries == 0
        """Whether each block has as many queries as any other."""
        self.paired = self._pairs()
        self.fixed: dict[Leaf, Atom] = {}
        self.divisor: Atom | None = None
        """The sum of the weights of the row whose results are made."""
        self.scale: Atom = ONE
        for x, below in self.found.scale or ():
            self.scale = self.e.op("/" if below else "*", self.scale, self.e.convert(self.atom(x, {}), F32))

    def _range(self, v: View) -> Axis:
        r = ranges_of(reduction(v))[0]
        first = self.lo.index(r.lo, self.lo.root) if r.lo is not None else i64(0)
        return Axis(r.index, first, self.e.op("-", self.lo.index(r.hi, self.lo.root), first))

    def key_reduction(self) -> Reduce:
        """The reduction over keys."""
        return reduction(self.found.key_range)

    # ------------------------------------------------------------------------------------------------------- values of views

    def atom(self, v: Seen, at: Places) -> Atom:
        """The value of a view where its leaves are `at`."""
        return at[v] if isinstance(v, Leaf) else self.lo.value(v.expr, self.env(v, at))

    def env(self, v: View, at: Places) -> Env:
        """What the names of a view are."""
        return Env({n: self._index(v.env[n], at) for n in sorted(names(v.expr)) if n in v.env})

    def _index(self, v: Seen, at: Places) -> Atom:
        return at[v] if isinstance(v, Leaf) else self.lo.index(v.expr, self.env(v, at))

    def remember(self, v: View, at: Places, value: Atom) -> None:
        """From here on a reduction has a value."""
        env = self.env(v, at)
        self.e.remember(("reduce", id(v.expr), tuple((n, key_of(a)) for n, a in env.names.items())), value)

    # ----------------------------------------------------------------------------------------------------------------- blocks

    def write(self) -> None:
        """Writes the kernel. The last tiles of queries, which may see the most keys, come first."""
        e = self.e
        down = e.op("floordiv", e.op("+", e.op("max", self.row.n, i64(0)), i64(self.cut.queries - 1)), i64(self.cut.queries))
        others = [self.axes[k] for k in self.found.batch]
        turns = e.op("*", self._total(others), down)
        turns = e.choose(self._fits(), self._guarded(turns, [self.column]), i64(0))
        with e.loop("tile", i64(0), turns, kind="block") as p:
            left, number = self._order(p, down, others)
            at = self._unravel(others, left)
            self.fixed = {Leaf("axis", k): a for k, a in zip(self.found.batch, at, strict=True)}
            self._readable(lambda: self._tile(e.op("*", number, i64(self.cut.queries))))

    def _order(self, p: Atom, down: Atom, others: list[Axis]) -> tuple[Atom, Atom]:
        """Which of the other places, and which tile of queries, turn `p` has."""
        e = self.e
        return e.op("quot", p, down), e.op("-", e.op("-", down, i64(1)), e.op("rest", p, down))

    def _fits(self) -> Atom:
        """Whether this kernel is the one for so many terms and columns, and for where the factors lie."""
        e = self.e
        mine: Atom = TRUE
        if self.way.open:
            deep = e.op("max", self.terms.n, self.column.n)
            mine = e.op("and", e.op(">", deep, i64(self.way.over)), e.op("<=", deep, i64(min(self.cut.terms, self.cut.columns))))
        if not self.way.flows:
            return mine
        fit = fit_to_flow(self)
        return self._both(mine, fit if self.way.flowing else e.op("not", fit))

    def _both(self, a: Atom, b: Atom) -> Atom:
        return b if a is TRUE else a if b is TRUE else self.e.op("and", a, b)

    def _tile(self, first: Atom) -> None:
        e, cut, f = self.e, self.cut, self.found
        self.first = first
        self.keys = Keys(self, first)
        q = Staged(self, "q", f.q, self.way.factors, Leaf("axis", f.row), TERM, cut.queries, cut.terms, 1)
        k = Staged(self, "k", f.k, self.way.factors, KEY, TERM, cut.keys, cut.terms, 2)
        v = Staged(self, "v", f.v, self.way.values, KEY, Leaf("axis", f.column), cut.keys, cut.columns, 2)
        tile = cut.tiles * 4
        self.scores, self.sums = self._own("scores", tile * cut.keys // 8), self._own("sums", tile * cut.columns // 8)
        self.top, self.total = self._own("top", 2 * cut.tiles), self._own("total", 2 * cut.tiles)
        self.seen = self._own("seen", 2 * cut.tiles) if self.keys.tested else None
        self._set(self.top, NONE, 2 * cut.tiles)
        self._set(self.total, ZERO, 2 * cut.tiles)
        self._set(self.sums, ZERO, tile * cut.columns // 8)
        if self.seen is not None:
            self._set(self.seen, ZERO, 2 * cut.tiles)
        q.stage(first, i64(0), None if self.even else self.row.n, self.terms)
        if f.rounded is None:
            self._round(q, k, v, self._whole_step)
        else:
            self._round(q, k, None, self._totals_step)
            e.raw(form.AcrossRow(self.total, "sum", 2 * cut.tiles))
            # The tiles of the last steps are still being read when those of the second round are begun.
            e.raw(form.Barrier())
            self._round(q, k, v, self._weights_step)
        if f.rounded is None:
            e.raw(form.AcrossRow(self.total, "sum", 2 * cut.tiles))
        if self.seen is not None:
            e.raw(form.AcrossRow(self.seen, "max", 2 * cut.tiles))
        self._results()

    def _own(self, hint: str, size: int) -> str:
        name = self.e.memory(hint)
        self.e.raw(form.Alloc(name, F32, i64(size)))
        return name

    def _set(self, name: str, value: Atom, count: int) -> None:
        """Gives all elements of own scratch a value."""
        e = self.e
        with self.team.each("t", self.threads), e.loop("n", i64(0), i64(count), nonempty=True, unroll=True) as n:
            e.raw(form.Store(name, n, value, F32))

    def _round(self, q: Staged, k: Staged, v: Staged | None, step: Callable[[Staged, Staged, Staged | None, Atom, Atom], None]) -> None:
        """Once through all tiles of keys."""
        e, cut, keys = self.e, self.cut, self.keys

        def bring(number: Atom, slot: Atom) -> None:
            begin = e.op("+", keys.begin, e.op("*", number, i64(cut.keys)))
            end = None if keys.even else keys.end
            k.stage(begin, slot, end, self.terms)
            if v is not None:
                v.stage(begin, slot, end, self.column)

        with e.when(e.op(">", keys.steps, i64(0))):
            bring(i64(0), i64(0))
        e.raw(form.Commit())
        with e.loop("step", i64(0), keys.steps) as s:
            e.raw(form.Await(0))
            e.raw(form.Barrier())
            after = e.op("+", s, i64(1))
            with e.when(e.op("<", after, keys.steps)):
                bring(after, e.op("rest", after, i64(2)))
            e.raw(form.Commit())
            step(q, k, v, e.op("rest", s, i64(2)), e.op("+", keys.begin, e.op("*", s, i64(cut.keys))))
        e.raw(form.Await(0))

    # ------------------------------------------------------------------------------------------------------------------ steps

    def _whole_step(self, q: Staged, k: Staged, v: Staged | None, slot: Atom, begin: Atom) -> None:
        assert v is not None
        cut = self.cut
        self._scores(q, k, slot, begin)
        self.e.raw(form.Online(self.scores, self.top, self.total, self.sums, cut.tiles, cut.keys // 8, cut.columns // 8, self.scale))
        self._add(v, slot, begin)

    def _totals_step(self, q: Staged, k: Staged, v: Staged | None, slot: Atom, begin: Atom) -> None:
        self._scores(q, k, slot, begin)
        self.e.raw(form.Online(self.scores, self.top, self.total, None, self.cut.tiles, self.cut.keys // 8, 0, self.scale))

    def _weights_step(self, q: Staged, k: Staged, v: Staged | None, slot: Atom, begin: Atom) -> None:
        assert v is not None
        e = self.e
        self._scores(q, k, slot, begin)
        with self.team.each("t", self.threads) as t:
            for r in range(2 * self.cut.tiles):
                at = self.at_row(self.line(t, r))
                top, total = self._load(self.top, r), self._load(self.total, r)
                for z in self.found.totals:
                    self.remember(z, at, total)
                factors = [(self.atom(f, at), below) for f, below in self.found.divided]
                with e.loop("j", i64(0), i64(self.cut.keys // 8), nonempty=True, unroll=True) as j:
                    for side in range(2):
                        place = self._number(r, j, side, self.cut.keys)
                        score = e.bind("score", form.Load(self.scores, place, F32, F32))
                        weight = e.op("exp", e.op("-", e.op("*", score, self.scale), e.op("*", top, self.scale)))
                        for f, below in factors:
                            weight = e.op("/" if below else "*", weight, f)
                        masked = e.op("==", score, NONE)
                        seen = e.op("and", masked, e.op("==", top, NONE))
                        # A score of -inf that is seen, and the largest, is no number less itself.
                        weight = e.choose(e.op("and", masked, e.op("not", seen)), ZERO, weight)
                        weight = e.choose(e.op("and", seen, e.op("not", self._any(r))), ZERO, weight)
                        e.raw(form.Store(self.scores, place, weight, F32))
        self._add(v, slot, begin)

    def _any(self, r: int) -> Atom:
        """Whether a row has seen a key."""
        return TRUE if self.seen is None else self.e.bind("any", form.Op(">", (form.Load(self.seen, i64(r), F32, F32), ZERO), BOOL))

    def _scores(self, q: Staged, k: Staged, slot: Atom, begin: Atom) -> None:
        """The scores of a tile, -inf where a key is not seen."""
        e = self.e
        e.raw(form.Dot(self.scores, self.scored, q.factor(i64(0)), k.factor(slot), self.cut.terms, True))
        whole = self.keys.whole(begin)
        with self.team.each("t", self.threads) as t:
            with e.when(whole):
                self._score_all(t, begin, False)
            with e.when(e.op("not", whole)):
                self._score_all(t, begin, True)

    def _score_all(self, t: Atom, begin: Atom, tested: bool) -> None:
        e, cut = self.e, self.cut
        if self.seen is not None and not tested:
            for r in range(2 * cut.tiles):
                e.raw(form.Store(self.seen, i64(r), ONE, F32))
        if self.found.scale is not None and not tested:
            return      # the softmax takes them as they are
        lines = [self.line(t, r) for r in range(2 * cut.tiles)]
        with e.loop("j", i64(0), i64(cut.keys // 8), nonempty=True, unroll=True) as j:
            for side in range(2):
                key = e.op("+", begin, self._across(t, j, side))
                for r, line in enumerate(lines):
                    self._score(r, self._number(r, j, side, cut.keys), {**self.at_row(line), KEY: key}, tested)

    def _score(self, r: int, place: Atom, at: Places, tested: bool) -> None:
        e = self.e
        raw = e.bind("dot", form.Load(self.scores, place, F32, F32))

        def value() -> Atom:
            dot: Atom = raw
            if self.found.scale is not None:
                return dot
            for f, below in self.found.scaled:
                dot = e.op("/" if below else "*", dot, e.convert(self.atom(f, at), F32))
            for d in self.found.dots:
                self.remember(d, at, dot)
            return e.convert(self.atom(self.found.score, at), F32)

        if not tested:
            e.raw(form.Store(self.scores, place, value(), F32))
            return
        passes = self.keys.passes(at)
        score = e.choose(passes, value(), NONE) if self.keys.plain_scores else e.branch(passes, value, lambda: NONE, F32)
        e.raw(form.Store(self.scores, place, score, F32))
        if self.seen is not None:
            e.raw(form.Store(self.seen, i64(r), form.Choose(passes, ONE, form.Load(self.seen, i64(r), F32, F32), F32), F32))

    def _add(self, v: Staged, slot: Atom, begin: Atom) -> None:
        """The values of a tile, weighted."""
        e = self.e
        product = form.Dot(self.sums, self.summed, self.scores, v.factor(slot), self.cut.keys)
        if not self.keys.by_row:
            e.raw(product)
            return
        bad = e.var("bad", FALSE)
        whole = self.keys.whole(begin)
        with e.when(e.op("not", whole)):
            v.odd(slot, bad)
            e.raw(form.Combine("any", (bad.name,)))
        odd = e.bind("odd", bad)
        e.raw(form.If(form.Op("not", (odd,), BOOL), (product,)))
        with e.when(odd):
            self._one_by_one(v, slot, begin)

    def _one_by_one(self, v: Staged, slot: Atom, begin: Atom) -> None:
        """The same one key after the other, and only where it is seen."""
        e, cut, threads = self.e, self.cut, self.threads
        column = e.memory("weights")
        e.raw(form.Alloc(column, F32, i64(cut.queries), True))
        with e.loop("one", i64(0), i64(cut.keys), nonempty=True) as one:
            e.raw(form.Barrier())
            tile, place = e.op("quot", one, i64(8)), e.op("rest", one, i64(8))
            with self.team.each("t", threads) as t:
                mine = e.op("==", e.op("quot", place, i64(2)), e.op("rest", t, i64(4)))
                second = e.op("==", e.op("rest", place, i64(2)), i64(1))
                with e.when(mine), e.loop("j", i64(0), i64(cut.keys // 8), nonempty=True, unroll=True) as j, e.when(e.op("==", j, tile)):
                    for r in range(2 * cut.tiles):
                        two = [e.bind("weight", form.Load(self.scores, self._number(r, j, side, cut.keys), F32, F32)) for side in range(2)]
                        e.raw(form.Store(column, self.line(t, r), e.choose(second, two[1], two[0]), F32))
            e.raw(form.Barrier())
            with self.team.each("t", threads) as t:
                for r in range(2 * cut.tiles):
                    line = self.line(t, r)
                    with e.when(self.keys.passes({**self.at_row(line), KEY: e.op("+", begin, one)})):
                        weight = e.convert(e.bind("weight", form.Load(column, line, F32, F32)), self.way.values)
                        with e.loop("j", i64(0), i64(cut.columns // 8), nonempty=True, unroll=True) as j:
                            for side in range(2):
                                n = self._number(r, j, side, cut.columns)
                                value = v.load(slot, one, self._across(t, j, side))
                                e.raw(form.Store(self.sums, n, form.Op("fma", (weight, value, form.Load(self.sums, n, F32, F32)), F32), F32))

    # ----------------------------------------------------------------------------------------------------------------- places

    def line(self, t: Atom, r: int) -> Atom:
        """The row of the block that is row `r` of those of a thread."""
        e = self.e
        top = e.op("+", e.op("*", e.op("quot", t, i64(32)), i64(16 * self.cut.tiles)), e.op("quot", e.op("rest", t, i64(32)), i64(4)))
        return e.op("+", top, i64(r // 2 * 16 + r % 2 * 8))

    def at_row(self, line: Atom) -> dict[Leaf, Atom]:
        """Where the leaves are for a row of the block: behind the last query it is that one."""
        e = self.e
        place = e.op("+", self.first, line)
        place = place if self.even else e.op("min", place, e.op("-", self.row.n, i64(1)))
        return {**self.fixed, Leaf("axis", self.found.row): e.op("+", self.row.lo, place)}

    def _across(self, t: Atom, j: Atom, side: int) -> Atom:
        e = self.e
        return e.op("+", e.op("*", j, i64(8)), e.op("+", e.op("*", e.op("rest", t, i64(4)), i64(2)), i64(side)))

    def _number(self, r: int, j: Atom, side: int, columns: int) -> Atom:
        """Which element of a thread's stands in row `r` of its own, tile `j`."""
        return self.e.op("+", self.e.op("*", j, i64(4)), i64(r // 2 * (columns // 2) + r % 2 * 2 + side))

    def _load(self, name: str, n: int) -> form.Ref:
        return self.e.bind(name, form.Load(name, i64(n), F32, F32))

    # ---------------------------------------------------------------------------------------------------------------- results

    def _results(self) -> None:
        e, cut = self.e, self.cut
        with self.team.each("t", self.threads) as t:
            for r in range(2 * cut.tiles):
                line = self.line(t, r)
                with e.when(TRUE if self.even else e.op("<", e.op("+", self.first, line), self.row.n)):
                    self._finished_row(t, r, {**self.fixed, Leaf("axis", self.found.row): e.op("+", self.row.lo, e.op("+", self.first, line))})

    def _sees(self, r: int, at: dict[Leaf, Atom]) -> Atom:
        """Whether a row has seen a key."""
        return self.e.op(">", self._load(self.seen, r), ZERO) if self.seen is not None else self.e.op(">", self.keys.count, i64(0))

    def _sum_of(self, r: int, seen: Atom) -> Atom:
        """The sum of the weights of a row."""
        return self._load(self.total, r)

    def _finished_row(self, t: Atom, r: int, at: dict[Leaf, Atom]) -> None:
        e, known = self.e, self._known(t, r, at)
        with e.loop("j", i64(0), i64(self.cut.columns // 8), nonempty=True, unroll=True) as j:
            for side in (0,) if self.paired else (0, 1):
                column = self._across(t, j, side)
                with e.when(TRUE if self.column.n == i64(self.cut.columns) else e.op("<", column, self.column.n)):
                    if self.paired:
                        self._two([known(0, j), known(1, j)])
                    else:
                        self.element(self._indices(known(side, j)))

    def _known(self, t: Atom, r: int, at: dict[Leaf, Atom], last: Atom | None = None) -> Callable[[int, Atom], dict[Leaf, Atom]]:
        """Remembers what is known of a row, and says how its sums are: of one side of a tile, whose place is returned. What lies behind `last` is that one."""
        lo, e, f = self.lo, self.e, self.found
        top: Atom = self._load(self.top, r)
        seen = self._sees(r, at)
        total = self._sum_of(r, seen)
        # All scores were -inf: none of them less the largest is a number.
        void = e.op("and", seen, e.op("==", top, NONE))
        nan = must(float("nan"), F32)
        total, top = e.choose(void, nan, total), e.op("*", top, self.scale)
        for view in f.tops:
            self.remember(view, at, finish(lo, reduction(view), kind_of(reduction(view)), top, i64(0), seen))
        self.divisor = None
        for view in f.totals:
            self.divisor = finish(lo, reduction(view), kind_of(reduction(view)), total, i64(0), seen)
            self.remember(view, at, self.divisor)
        divided = [(e.convert(self.atom(x, at), F32), below) for x, below in f.divided] if f.rounded is None else []

        def known(side: int, j: Atom) -> dict[Leaf, Atom]:
            """The place of a sum, where its value is known from then on."""
            column = self._across(t, j, side)
            column = column if last is None else e.op("min", column, last)
            value = e.choose(void, nan, e.bind("sum", form.Load(self.sums, self._number(r, j, side, self.cut.columns), F32, F32)))
            for x, below in divided:
                value = e.op("/" if below else "*", value, x)
            value = e.choose(seen, value, ZERO) if divided else value
            here = {**at, Leaf("axis", f.column): e.op("+", self.column.lo, column)}
            for view in f.weighted:
                self.remember(view, here, finish(lo, reduction(view), kind_of(reduction(view)), value, i64(0), seen))
            return here

        return known

    def _indices(self, here: Places) -> list[Atom]:
        return [here[Leaf("axis", k)] for k in range(len(self.axes))]

    def _pairs(self) -> bool:
        """Whether neighbouring columns can be stored together: the sizes are known to be even, and they lie side by side."""
        (tensor, piece), *others = self.jobs
        first, size = tensor.shape[-1]
        even = [self.column.n, self.lo.extent(first, size), self.e.op("-", self.column.lo, self.lo.index(first, self.lo.root))]
        return not others and not piece.holes and self.found.column == len(self.axes) - 1 and all(isinstance(n, form.Const) and n.value % 2 == 0 for n in even)

    def _two(self, here: list[dict[Leaf, Atom]]) -> None:
        """Two neighbouring elements, stored at once where the memory of the result allows it."""
        lo, e, (t, piece) = self.lo, self.e, self.jobs[0]
        pair = e.memory("pair")
        e.raw(form.Alloc(pair, t.dtype, i64(2)))
        places = [tuple(self._indices(h)) for h in here]
        for d, at in enumerate(places):
            e.raw(form.Store(pair, i64(d), lo.made(t, piece, at), t.dtype))
        buffer, key = lo.buffer(t), ("aligned", t.name, 2)
        aligned = e.find(key)
        if aligned is None:
            aligned = e.bind("aligned", form.Aligned(buffer, 2 * t.dtype.bytes), 0)
            e.remember(key, aligned, 0)
        with e.when(aligned):
            e.raw(form.Move(buffer, address(lo, t, places[0]), pair, i64(0), 2))
        with e.when(e.op("not", aligned)):
            for d, at in enumerate(places):
                e.raw(form.Store(buffer, address(lo, t, at), form.Load(pair, i64(d), t.dtype, t.dtype.compute), t.dtype))


def reduction(v: View) -> Reduce:
    """The reduction that a view is."""
    assert isinstance(v.expr, Reduce)
    return v.expr


# -------------------------------------------------------------------------------------------------------------- whatever the sizes


def plain_body(op: TypedOperator, plan: Plan, sites: Sites, job: Job, way: Attention, chosen: Mapping[str, int] | None = None) -> tuple[Lowering, int]:
    """Attention of more terms or columns than a block can keep, where that is known at run time alone: each element by itself, slowly."""
    lo = Lowering(op, plan, sites, frozenset((job[0].name,)), chosen)
    _Plain(lo, [job], way).write()
    return lo, 0


class _Plain(Flash):
    def write(self) -> None:
        e, self.lo.team = self.e, None
        beyond = e.op(">", e.op("max", self.terms.n, self.column.n), i64(DEEPEST))
        with e.loop("i", i64(0), e.choose(beyond, self._total(self.axes), i64(0)), kind="grid") as p:
            at = self._unravel(self.axes, p)
            self._readable(lambda: self.element(at))
