"""Chains of stencils on a GPU: a block computes a tile of the last one, and before it the tiles of the others, each with its rim, in shared memory.

    block for tile in … {
      thread for t in … { what is read of %x, with what its border answers: 16 bytes at a time where the tile lies inside, else one by one }
      barrier
      thread for t in … { a run of places of %once, side by side and one below the other, written out }
      barrier
      if the tile is at a rim { thread for t in … { places outside of %once get what its border answers }   barrier }
      thread for t in … { the same of %y, but places outside are not stored }
    }

Where a place outside may do harm (`Tiled.free` does not hold), a tile that lies in all tensors, rims included, is computed like that from memory, and others by
loops that ask borders: there a local is staged as it is read through its border. Either way readers never ask. Values are computed as everywhere else, in the
same order.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import product

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.borders import mapped, outside
from pipelink_ir.backends.loops.emit import TRUE, Affine, Atom, i64, key_of
from pipelink_ir.backends.loops.gpu.bring import answer, bring
from pipelink_ir.backends.loops.gpu.flat import unravel
from pipelink_ir.backends.loops.gpu.pack import Packer
from pipelink_ir.backends.loops.gpu.team import Team
from pipelink_ir.backends.loops.lower import Env, Lowering, Sites
from pipelink_ir.backends.loops.nests import Axis, Job, Nest
from pipelink_ir.backends.loops.reads import assured, evaluate, extent, low
from pipelink_ir.backends.loops.split import running
from pipelink_ir.ir.dtypes import DType
from pipelink_ir.ir.typed import Tensor, TypedOperator
from pipelink_ir.passes.scheduling.costs import Plan
from pipelink_ir.passes.scheduling.tiles import ACROSS, DOWN, THREADS, Ask, Stage, Tiled, wholes

FIT = 4
"""Blocks that a multiprocessor should hold at least."""


def tile_body(op: TypedOperator, plan: Plan, sites: Sites, job: Job, way: Tiled, chosen: Mapping[str, int] | None = None) -> tuple[Lowering, int]:
    """The kernel of tiles, still open, and the number of threads that it needs."""
    lo = Lowering(op, plan, sites, frozenset((job[0].name,)), chosen)
    lo.e.doubles = not op.exact
    Tiles(lo, [job], way).write()
    lo.fit = FIT
    return lo, THREADS


class _Run:
    """What a thread computes in one turn: from which row and column on, and what is known where it lies inside."""

    def __init__(self, row: Atom, column: Atom, rows: int, columns: int) -> None:
        self.first, self.size = (row, column), (rows, columns)


class Tiles(Nest):
    """The loops of one kernel."""

    def __init__(self, lo: Lowering, jobs: list[Job], way: Tiled) -> None:
        super().__init__(lo, jobs)
        self.way, self.team = way, Team(lo)
        self.down = self.axes[way.down] if way.down >= 0 else Axis("row", i64(0), i64(1))
        self.across = self.axes[way.across]
        self.shared: dict[str, DType] = {}
        self.memories: tuple[str, ...] = ()
        """The shared memory of what is brought, then of each stage."""

    def write(self) -> None:
        """Writes the kernel."""
        e, way = self.e, self.way
        ranges: list[tuple[int, str, Atom, Atom]] = []
        for k, a in enumerate(self.axes):
            if k == way.across:
                if way.down < 0:
                    ranges.append((DOWN, "row", i64(0), i64(1)))
                ranges.append((ACROSS, f"{a.name}_tile", i64(0), self._tiles(a, way.tile[1])))
            elif k == way.down:
                ranges.append((DOWN, f"{a.name}_tile", i64(0), self._tiles(a, way.tile[0])))
            elif k not in way.whole:
                ranges.append((k, a.name, a.lo, e.op("max", a.n, i64(0))))
        total: Atom = i64(1)
        for _, _, _, n in ranges:
            total = e.op("*", total, n)
        with e.loop("tile", i64(0), total, kind="block") as p:
            at = dict(zip((k for k, *_ in ranges), unravel(self.lo, tuple((name, first, n) for _, name, first, n in ranges), p), strict=True))
            self.fixed = {k: i for k, i in at.items() if k >= 0}
            self.begin = (e.op("+", self.down.lo, e.op("*", at[DOWN], i64(way.tile[0]))), e.op("+", self.across.lo, e.op("*", at[ACROSS], i64(way.tile[1]))))
            self._readable(self._tile)

    def _tiles(self, a: Axis, size: int) -> Atom:
        return self.e.op("floordiv", self.e.op("+", self.e.op("max", a.n, i64(0)), i64(size - 1)), i64(size))

    def _tile(self) -> None:
        e, way = self.e, self.way
        axes = zip(self.begin, way.tile, (self.down, self.across), strict=True)
        self.end = [e.op("min", e.op("+", first, i64(n)), e.op("+", a.lo, a.n)) for first, n, a in axes]
        self.inside = TRUE if way.free else self._inside()
        self._alloc()
        for s, memory in zip(way.brought, self.memories, strict=False):
            bring(self, s, memory)
        if way.brought:
            e.raw(form.Commit())
            e.raw(form.Await(0))
            e.raw(form.Barrier())
        for k, s in enumerate(way.stages):
            self._stage(k, s)
            e.raw(form.Barrier())
            if way.free and any(s.asked):
                answer(self, s, self.memories[len(way.brought) + k])
        run = (1, 1) if way.alone else way.run
        if way.free:
            self._free_runs(len(way.stages), way.tile, self.begin, run, "", self._result)
        else:
            self._runs(len(way.stages), way.tile, self.begin, run, "", self._result, self._result_edge)

    def _alloc(self) -> None:
        e, tensors = self.e, self.lo.op.tensors
        sizes, chosen = self.way.slots(lambda t: tensors[t].dtype)
        names: dict[int, str] = {}
        for s, slot in zip((*self.way.brought, *self.way.stages), chosen, strict=True):
            if slot not in names:
                names[slot] = e.memory(s.tensor.rsplit(".", 1)[-1])
                dtype, n = sizes[slot]
                e.raw(form.Alloc(names[slot], dtype, i64(n), True))
                self.shared[names[slot]] = dtype
        self.memories = tuple(names[slot] for slot in chosen)

    # --------------------------------------------------------------------------------------------------------------- inside

    def _inside(self) -> Atom:
        """Whether no border is asked for anywhere in the tile, and all of it is there."""
        e, way, conds = self.e, self.way, []
        for first, n, axis in zip(self.begin, way.tile, (self.down, self.across), strict=True):
            conds.append(e.op("<=", e.op("+", first, i64(n)), e.op("+", axis.lo, axis.n)))
        for s in way.stages:
            t = self.lo.op.tensors[s.tensor]
            for k, role in enumerate(s.axes):
                if role in (DOWN, ACROSS):
                    a = 0 if role == DOWN else 1
                    start = e.op("-", e.op("-", self.begin[a], i64(s.low[a])), low(self.lo, t, k))
                    conds += self.between(start, s.size(way.tile)[a], extent(self.lo, t, k))
        return self._all([*conds, *self._asked(way.asks)])

    def _asked(self, asks: Iterable[Ask]) -> list[Atom]:
        """Whether no border of these is asked for in the tile."""
        e, way, conds = self.e, self.way, []
        for ask in asks:
            a = 0 if ask.along == DOWN else 1
            t = self.lo.op.tensors[ask.tensor]
            stage = way.stages[ask.stage] if ask.stage < len(way.stages) else None
            before, size = (stage.low[a], stage.size(way.tile)[a]) if stage is not None else (0, way.tile[a])
            start = e.op("-", e.op("+", self.begin[a], i64(ask.low - before)), low(self.lo, t, ask.k))
            conds += self.between(start, size + ask.high - ask.low, extent(self.lo, t, ask.k))
        return conds

    def _all(self, conds: list[Atom]) -> Atom:
        return self.e.all_of(list({key_of(c): c for c in conds}.values()))

    def between(self, start: Atom, size: int, n: Atom) -> list[Atom]:
        """Whether a stretch lies in an axis."""
        e = self.e
        return [e.op(">=", start, i64(0)), e.op("<=", e.op("+", start, i64(size)), n)]

    def _assured(self, stage: int, run: _Run) -> set[tuple[Affine, str]]:
        """The indices of which no border needs to be asked inside."""
        out: set[tuple[Affine, str]] = set()
        for ask in self.way.asks:
            if ask.stage == stage:
                a = 0 if ask.along == DOWN else 1
                t = self.lo.op.tensors[ask.tensor]
                self._sure(out, self.e.op("-", run.first[a], low(self.lo, t, ask.k)), ask.low, run.size[a] + ask.high, extent(self.lo, t, ask.k))
        if stage < len(self.way.stages):
            s = self.way.stages[stage]
            t = self.lo.op.tensors[s.tensor]
            for k, role in enumerate(s.axes):
                if role in (DOWN, ACROSS):
                    a = 0 if role == DOWN else 1
                    self._sure(out, self.e.op("-", run.first[a], low(self.lo, t, k)), 0, run.size[a], extent(self.lo, t, k))
        return out

    def _sure(self, out: set[tuple[Affine, str]], index: Atom, first: int, end: int, n: Atom) -> None:
        constant, terms = self.e.form_of(index)
        out |= {((constant + c, terms), str(key_of(n))) for c in range(first, end)}

    # --------------------------------------------------------------------------------------------------------------- stages

    def place(self, s: Stage, memory: str) -> Callable[[tuple[Atom, ...]], tuple[str, Atom]]:
        """Where the element at a place is in shared memory."""
        e, t, pitch = self.e, self.lo.op.tensors[s.tensor], s.pitch(self.way.tile)
        begin = self.corner(s)

        def place(at: tuple[Atom, ...]) -> tuple[str, Atom]:
            total, inner = i64(0), i64(0)
            out: Atom = total
            rest: Atom = inner
            for k, role in enumerate(s.axes):
                if role == DOWN:
                    out = e.op("+", out, e.op("*", e.op("-", at[k], begin[0]), i64(pitch)))
                elif role == ACROSS:
                    out = e.op("+", out, e.op("*", e.op("-", at[k], begin[1]), i64(s.keep)))
            step = s.keep
            for k, n in wholes(t, s):
                step //= n
                rest = e.op("+", rest, e.op("*", e.op("-", at[k], low(self.lo, t, k)), i64(step)))
            return memory, e.op("+", out, rest)

        return place

    def corner(self, s: Stage) -> tuple[Atom, Atom]:
        """The first row and column of a stage."""
        return self.e.op("-", self.begin[0], i64(s.low[0])), self.e.op("-", self.begin[1], i64(s.low[1]))

    def _stage(self, number: int, s: Stage) -> None:
        e, way, t = self.e, self.way, self.lo.op.tensors[s.tensor]
        memory = self.memories[len(way.brought) + number]
        place = self.place(s, memory)

        def one(row: Atom, column: Atom) -> None:
            for at in self._places(t, s, row, column):
                value = e.convert(self._value(t, s, at), t.dtype.compute)
                name, index = place(at)
                e.raw(form.Store(name, index, value, t.dtype))

        run = (1, 1) if s.alone else way.run
        if way.free:
            self._free_runs(number, s.size(way.tile), self.corner(s), run, memory, one)
        else:
            self._runs(number, s.size(way.tile), self.corner(s), run, memory, one, lambda run: self._edge(t, s, run, one))
        self.lo.staged[t.name] = place

    def _places(self, t: Tensor, s: Stage, row: Atom, column: Atom) -> Iterator[tuple[Atom, ...]]:
        """The places of a local at a row and a column of the tile: all of those axes that are kept whole."""
        kept = list(wholes(t, s))
        for some in product(*(range(n) for _, n in kept)):
            more = {k: self.e.op("+", low(self.lo, t, k), i64(i)) for (k, _), i in zip(kept, some, strict=True)}
            yield tuple(row if role == DOWN else column if role == ACROSS else more[k] if k in more else self.fixed[role] for k, role in enumerate(s.axes))

    def _value(self, t: Tensor, s: Stage, at: tuple[Atom, ...]) -> Atom:
        """The value of a local at a place, or what its border answers there."""
        lo, e = self.lo, self.e
        places, outs = list(at), []
        for k, role in enumerate(s.axes):
            border = t.border[k] if s.asked[k] and not self.way.free else None
            if role not in (DOWN, ACROSS) or border is None:
                continue
            first, n = low(lo, t, k), extent(lo, t, k)
            index = e.op("-", at[k], first)
            if assured(lo, index, n):
                continue
            if border.mode == "constant" and border.value is not None:
                outs.append((outside(e, index, n), e.convert(lo.value(border.value, lo.root), t.dtype.compute)))
            places[k] = e.op("+", first, mapped(e, border.mode, index, n))

        def value(k: int) -> Atom:
            if k == len(outs):
                return evaluate(lo, t, tuple(places))
            return e.branch(outs[k][0], lambda: outs[k][1], lambda: value(k + 1), t.dtype.compute)

        return value(0)

    def _edge(self, t: Tensor, s: Stage, run: _Run, one: Callable[[Atom, Atom], None]) -> None:
        """The places of a run that somebody reads, and that exist or have a border."""
        e, ends = self.e, []
        starts = list(run.first)
        for a in (0, 1):
            ends.append(e.op("min", e.op("+", run.first[a], i64(run.size[a])), e.op("+", self.end[a], i64(s.high[a]))))
        for k, role in enumerate(s.axes):
            if role in (DOWN, ACROSS) and not s.asked[k]:
                a = 0 if role == DOWN else 1
                first = low(self.lo, t, k)
                starts[a] = e.op("max", starts[a], first)
                ends[a] = e.op("min", ends[a], e.op("+", first, extent(self.lo, t, k)))
        with e.loop(self.down.name, starts[0], ends[0]) as i, e.loop(self.across.name, starts[1], ends[1]) as j:
            one(i, j)

    # --------------------------------------------------------------------------------------------------------------- result

    def _places_of(self, row: Atom, column: Atom) -> Iterator[list[Atom]]:
        """The places of the result at a row and a column."""
        sizes = [int(n.value) for k in self.way.whole if isinstance(n := self.axes[k].n, form.Const)]
        for some in product(*map(range, sizes)):
            at = {**self.fixed, **{k: self.e.op("+", self.axes[k].lo, i64(i)) for k, i in zip(self.way.whole, some, strict=True)}, self.way.across: column}
            if self.way.down >= 0:
                at[self.way.down] = row
            yield [at[k] for k in range(len(self.axes))]

    def _result(self, row: Atom, column: Atom) -> None:
        for at in self._places_of(row, column):
            self.element(at)

    def _result_edge(self, run: _Run) -> None:
        e = self.e
        ends = [e.op("min", e.op("+", run.first[a], i64(run.size[a])), self.end[a]) for a in (0, 1)]
        with e.loop(self.down.name, run.first[0], ends[0]) as i, e.loop(self.across.name, run.first[1], ends[1]) as j:
            self._result(i, j)

    # ----------------------------------------------------------------------------------------------------------------- runs

    def _runs(self, stage: int, size: tuple[int, int], begin: tuple[Atom, Atom], run: tuple[int, int], writes: str,
              one: Callable[[Atom, Atom], None], edge: Callable[[_Run], None]) -> None:
        """All runs of a stage, shared out among the threads."""
        e = self.e
        rows, columns = size[0] // run[0], size[1] // run[1]
        with self.team.loop("t", i64(0), i64(rows * columns), nonempty=True) as q:
            row, column = e.op("quot", q, i64(columns)), e.op("rest", q, i64(columns))
            here = _Run(e.op("+", begin[0], e.op("*", row, i64(run[0]))), e.op("+", begin[1], e.op("*", column, i64(run[1]))), *run)
            with e.frame("lazy") as out:
                edge(here)
            block, fine = self._written_out(stage, here, writes, one, True)
            if fine is not TRUE:
                plain, _ = self._written_out(stage, here, writes, one, False)
                block = (form.If(fine, block, plain),)
            e.raw(form.If(self.inside, block, tuple(out.stmts)))

    def _free_runs(self, stage: int, size: tuple[int, int], begin: tuple[Atom, Atom], run: tuple[int, int], writes: str,
                   one: Callable[[Atom, Atom], None]) -> None:
        """The same where places outside do no harm: only the result must not be stored there."""
        e, way = self.e, self.way
        final = stage == len(way.stages)
        asks = [a for a in way.asks if a.stage == stage]
        near = self._all(self._asked(asks))
        rows, columns = size[0] // run[0], size[1] // run[1]
        with self.team.loop("t", i64(0), i64(rows * columns), nonempty=True) as q:
            row, column = e.op("quot", q, i64(columns)), e.op("rest", q, i64(columns))
            here = _Run(e.op("+", begin[0], e.op("*", row, i64(run[0]))), e.op("+", begin[1], e.op("*", column, i64(run[1]))), *run)
            block, fine = self._written_out(stage, here, writes, one, True)
            conds = [near] if near is not TRUE else []
            if final:
                conds += [e.op("<=", e.op("+", here.first[a], i64(run[a])), self.end[a]) for a in (0, 1)]
            if final and way.ends_free:
                conds += [fine] if fine is not TRUE else []
            elif fine is not TRUE:
                plain, _ = self._written_out(stage, here, writes, one, False)
                block = (form.If(fine, block, plain),)
            cond = e.all_of(conds)
            if isinstance(cond, form.Const):
                for s in block:
                    e.raw(s)
                return
            with e.frame("lazy") as out:
                if not final:
                    for i, j in product(*map(range, run)):
                        one(e.op("+", here.first[0], i64(i)), e.op("+", here.first[1], i64(j)))
                elif way.ends_free:
                    self._some(here)
                else:
                    self._result_edge(here)
            e.raw(form.If(cond, block, tuple(out.stmts)))

    def _some(self, run: _Run) -> None:
        """All places of a run of the result, of which those are stored that there are."""
        e, piece = self.e, self.jobs[0][1]
        places = [(e.op("+", run.first[0], i64(i)), e.op("+", run.first[1], i64(j))) for i, j in product(*map(range, run.size))]
        for row, column in places:
            for at in self._places_of(row, column):
                # What the places share is computed once, before it is asked which there are.
                self.lo.value(piece.value, Env({a.index: i for a, i in zip(piece.axes, at, strict=True)}))
        for row, column in places:
            with e.when(e.all_of([e.op("<", row, self.end[0]), e.op("<", column, self.end[1])])):
                self._result(row, column)

    def _written_out(self, stage: int, run: _Run, writes: str, one: Callable[[Atom, Atom], None], tensors: bool) -> tuple[form.Block, Atom]:
        """A run that is inside, and what has to hold so that its neighbours move together."""
        e = self.e
        known = self._assured(stage, run)
        with e.frame("lazy") as f:
            packer = Packer(self.lo, {}, self.shared, writes, tensors)
            with running(self.lo, None, known, None):
                for i, j in product(range(run.size[0]), range(run.size[1])):
                    one(e.op("+", run.first[0], i64(i)), e.op("+", run.first[1], i64(j)))
            if run.size[1] > 1:
                f.stmts[:] = packer.packed(f.stmts)
        return tuple(f.stmts), e.all_of(packer.conditions())
