"""Kernels of one thread a place on a GPU, where a thread takes a few neighbouring places at once: what lies side by side in memory goes by wide accesses.

    grid for p in 0..turns {
      if wide { move %x_1[0] = %x[p * 4] x 4 ; unroll for d in 0..4 { … one place, from %x_1[d] to %y_1[d] … } ; move %y[p * 4] = %y_1[0] x 4 }
      else    { … the same places one by one … }
    }

`wide` is found out at run time: buffers begin and rows have lengths as wide accesses need them, and all places of the thread exist. Where they do not, but
places that follow each other are stored side by side (rows of an odd length, operands that begin in between), what is stored still goes by wide accesses, and
so does what is read at the same places; other reads go one by one. Else the thread takes places that are far apart, so that neighbouring threads still
touch neighbours.

A row of a table whose number is computed (`%table[%number[n], d]`) is read by wide accesses as well, behind the checks of its place.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.borders import inside
from pipelink_ir.backends.loops.emit import FALSE, TRUE, Atom, i64, key_of
from pipelink_ir.backends.loops.fold import must
from pipelink_ir.backends.loops.gpu.along import along
from pipelink_ir.backends.loops.gpu.nests import GpuNest, Turns
from pipelink_ir.backends.loops.lower import Env, Lowering, Sites
from pipelink_ir.backends.loops.nests import Job
from pipelink_ir.backends.loops.reads import address, extent, low
from pipelink_ir.ir.dtypes import BOOL, F64, I64, DType
from pipelink_ir.ir.nodes import Expr, Name, Read, Reduce
from pipelink_ir.ir.typed import Piece, Tensor, TypedOperator
from pipelink_ir.ir.walk import children
from pipelink_ir.passes.scheduling.costs import Plan
from pipelink_ir.passes.scheduling.knobs import NONE, Knobs
from pipelink_ir.passes.scheduling.uses import Use

BYTES = 16
"""Bytes of one access."""
MOST = 8
"""Places side by side that a thread takes."""
FLIGHT = 2
"""Wide accesses to each tensor that a thread has under way where there is much to compute: then each hides what the other waits for."""
MUCH = 15.0
"""What is much."""
LIGHT = 30.0
"""What so few registers are enough for that a multiprocessor is full of threads."""
THREADS, RESIDENT = 256, 2048
"""Threads of a block, unless a schedule says something else, and of a multiprocessor that is full."""
FEW = 1 << 15
"""Threads without which a device is not busy: where a few places each leave fewer, each has one."""
SCATTERED = 2
"""Reads of single elements that a kernel with wide accesses may have beside them."""


def grid_body(op: TypedOperator, plan: Plan, sites: Sites, jobs: list[Job], chosen: Mapping[str, int] | None = None,
              knobs: Knobs = NONE) -> Lowering:
    """The kernel that computes pieces over one box, one thread a place or a few neighbouring ones, still open."""
    lo = Lowering(op, plan, sites, frozenset(t.name for t, _ in jobs), chosen)
    lo.along = along
    nest = VectorNest(lo, jobs)
    nest.knobs = knobs
    nest.grid()
    return lo


@dataclass(frozen=True, slots=True)
class Wide:
    """A tensor that is read or written at neighbouring places, and where a thread has them. Of a read, how its indices follow from the result's `axes`."""

    tensor: Tensor
    own: str
    use: Use | None = None
    axes: tuple[str, ...] = ()
    wide: bool = False
    """Whether what is stored is an f64, which is rounded once: then a thread has it as it will lie in memory."""
    raw: bool = False
    """Whether what is read stays as it lies in memory until it is used, which takes half the registers."""

    @property
    def dtype(self) -> DType:
        """How a thread has it."""
        return self.tensor.dtype if self.wide or self.raw else self.tensor.dtype.compute

    def at(self, lo: Lowering, places: list[Atom]) -> tuple[Atom, ...]:
        """The indices where the axes of the result stand at some place."""
        return place_of(lo, self.use, dict(zip(self.axes, places, strict=True))) if self.use is not None else tuple(places)


def stored(lo: Lowering, t: Tensor, piece: Piece) -> Wide:
    """What is written of a tensor."""
    return Wide(t, lo.e.memory(f"{t.name}_own"), wide=piece.value.dtype is F64 and t.dtype is not F64)


@dataclass(frozen=True, slots=True)
class Gathered:
    """A read along the row of the result, of a row that is computed, and the names of the axes around it."""

    wide: Wide
    read: Read

    def at(self, lo: Lowering, places: list[Atom]) -> tuple[Atom, ...]:
        """The indices where the axes of the result stand at some place."""
        env = Env(dict(zip(self.wide.axes, places, strict=True)))
        return tuple(lo.index(i, env) for i in self.read.indices)

    def inside(self, lo: Lowering, at: tuple[Atom, ...]) -> Atom:
        """Whether all that is checked at run time holds."""
        t, e = self.wide.tensor, lo.e
        return e.all_of([inside(e, e.op("-", at[k], low(lo, t, k)), extent(lo, t, k)) for k, word in enumerate(self.read.access or ()) if word == "check"])


def gathers_row(u: Use, row: str) -> bool:
    """Whether a read takes neighbours along the row, of a row that is computed, and nothing but checks is asked on the way."""
    last, others = u.at[-1], u.at[:-1]
    return last.only(row) and any(lin.opaque for lin in others) and not any(row in lin.names for lin in others) and set(u.access) <= {"inside", "check"} \
        and u.access[-1] == "inside"


def reads_of_rows(x: Expr, row: str) -> Iterator[Read]:
    """The reads in a value, those in reductions aside, that are along a row."""
    if isinstance(x, Read) and x.indices and isinstance(x.indices[-1], Name) and x.indices[-1].name == row:
        yield x
    if not isinstance(x, Reduce):
        for c in children(x):
            yield from reads_of_rows(c, row)


def count_of(tensors: list[Tensor]) -> int:
    """How many neighbours one access moves of the widest of them; of bytes alone as many as it can."""
    widest = max(t.dtype.bytes for t in tensors)
    return min(MOST if widest > 1 else BYTES, BYTES // widest)


def place_of(lo: Lowering, use: Use, names: Mapping[str, Atom]) -> tuple[Atom, ...]:
    """The indices of a read where the axes of the result stand at some place."""
    e, out = lo.e, []
    for lin in use.at:
        total: Atom = i64(lin.constant)
        for name, factor in lin.terms:
            total = e.op("+", total, e.op("*", names[name], i64(factor)))
        out.append(total)
    return tuple(out)


def plain(use: Use, axes: set[str]) -> bool:
    """Whether a read is always inside, at sums of axes."""
    return set(use.access) <= {"inside"} and all(not lin.opaque and lin.names <= axes for lin in use.at)


def conditions(lo: Lowering, t: Tensor, first: tuple[Atom, ...], moving: bool, count: int) -> list[Atom]:
    """What has to hold for wide accesses at `first` and, where `moving`, at every place that differs from it along other axes than the last."""
    e = lo.e
    last = e.op("-", first[-1], lo.index(t.shape[-1][0], lo.root))
    needs = [e.op("==", e.op("mod", last, i64(count)), i64(0))]
    return [*needs, multiple(lo, lo.extent(*t.shape[-1]), count)] if moving else needs


def multiple(lo: Lowering, n: Atom, count: int) -> Atom:
    """Whether an extent is a multiple of a number of places."""
    e = lo.e
    return e.op("==", e.op("rest", e.op("max", n, i64(0)), i64(count)), i64(0))


def aligned(lo: Lowering, t: Tensor, count: int) -> Atom:
    """Whether the memory of a tensor begins where wide accesses may."""
    e, key = lo.e, ("aligned", t.name, count)
    found = e.find(key)
    if found is None:
        found = e.bind("aligned", form.Aligned(lo.buffer(t), count * t.dtype.bytes, BOOL), 0)
        e.remember(key, found, 0)
    return found  # type: ignore[no-any-return]


class VectorNest(GpuNest):
    """The loops of one kernel."""

    knobs: Knobs = NONE
    gathers: list[Gathered]
    beside = False
    """Whether others share the launch."""

    def open(self) -> Turns:
        """By wide accesses, if there is something to move by them."""
        wide = self._vectors()
        return super().open() if wide is None else self._several(wide)

    def _vectors(self) -> Atom | None:
        """Where accesses may be wide; None if they never are."""
        # What a part of a join reads is there for the places of that part alone.
        if not self.axes or self.heavy or any(p.holes for _, p in self.jobs) or any(u.joined for u in self.uses):
            return None
        self.flat = len(self.axes) == 1 or self._all_in_step()
        reads = self._reads()
        if reads is None:
            return None
        tensors = [t for t, _ in self.jobs]
        self.count = count_of([*tensors, *(self.lo.op.tensors[u.tensor] for u, _ in reads), *(g.wide.tensor for g in self.gathers)])
        if self.knobs.vector:
            self.count = min(self.count, self.knobs.vector)
        if self.count < 2:
            return None
        self.loads = [Wide(t, self.e.memory(f"{t.name}_own"), u, axes) for u, axes in reads for t in [self.lo.op.tensors[u.tensor]]]
        self.stores = {t.name: stored(self.lo, t, p) for t, p in self.jobs}
        self.follow = self._following()
        return self._wide()

    def _reads(self) -> list[tuple[Use, tuple[str, ...]]] | None:
        """Reads that go by wide accesses, with the axes in their indices; None where too much would still be read element by element."""
        found: dict[object, tuple[Use, tuple[str, ...]]] = {}
        scattered: set[object] = set()
        self.gathers = []
        gathered: set[object] = set()
        for (_, piece), uses in zip(self.jobs, self.uses, strict=True):
            axes = tuple(a.index for a in piece.axes)
            row = axes[-1]
            for u in uses.uses:
                if u.tensor in self.lo.written or not any(row in lin.names for lin in u.at):
                    continue
                last, others = u.at[-1], u.at[:-1]
                if "border" in u.access or any(n not in axes for lin in u.at for n in lin.names):
                    return None
                good = plain(u, set(axes)) and dict(last.terms) == {row: 1} and all(row not in lin.names for lin in others)
                if good and last.constant % 2 == 0:
                    found[u.tensor, u.at] = u, axes
                elif (u.tensor, u.at) in gathered:
                    continue
                elif gathers_row(u, row) and (own := self._gathered(u, piece, axes)):
                    gathered.add((u.tensor, u.at))
                    self.gathers += own
                else:
                    scattered.add((u.tensor, u.at, u.access))
        return list(found.values()) if len(scattered) <= SCATTERED else None

    def _gathered(self, u: Use, piece: Piece, axes: tuple[str, ...]) -> list[Gathered]:
        """The reads that a use of a row stands for; none if one is in a local that is evaluated on the way."""
        t = self.lo.op.tensors[u.tensor]
        reads = {r.indices: r for r in reads_of_rows(piece.value, axes[-1]) if r.tensor == u.tensor}
        return [Gathered(Wide(t, self.e.memory(f"{t.name}_own"), None, axes), r) for r in reads.values()]

    def _following(self) -> list[Wide] | None:
        """Reads at the same place as what is stored, where the number of a place is its address in everything stored; None where it is not, or where elements
        are so wide that memory, not work, is waited for when places are far apart."""
        if self.count * 4 <= BYTES or not all(self._whole(p, -1) for _, p in self.jobs):
            return None
        found = {}
        for (_, piece), uses in zip(self.jobs, self.uses, strict=True):
            axes, sizes = tuple(a.index for a in piece.axes), [a.hi for a in piece.axes]
            for u in uses.uses:
                t, moving = self.lo.op.tensors[u.tensor], any(lin.names for lin in u.at)
                if moving and u.tensor not in self.lo.written and plain(u, set(axes)) and self._moves(u.at, t, u.access, list(axes), sizes, True):
                    found[u.tensor, u.at] = Wide(t, self.e.memory(f"{t.name}_own"), u, axes)
        return list(found.values())

    # ----------------------------------------------------------------------------------------------------------- what must hold

    def _wide(self) -> Atom | None:
        """Whether all accesses may be wide, as far as that is the same for all places; None if it never is."""
        e, first = self.e, [a.lo for a in self.axes]
        alone = self.flat
        needs: list[Atom] = []
        for w in self.stores.values():
            needs += conditions(self.lo, w.tensor, tuple(first), not alone, self.count)
        if not alone:
            needs.append(multiple(self.lo, self.axes[-1].n, self.count))
        kept = []
        for w in self.loads:
            assert w.use is not None
            moving = not alone and any(lin.names for lin in w.use.at[:-1])
            more = conditions(self.lo, w.tensor, w.at(self.lo, first), moving, self.count)
            if any(isinstance(n, form.Const) and not n.value for n in more):
                continue
            kept.append(w)
            needs += more
        self.loads = kept
        for g in self.gathers:
            needs += conditions(self.lo, g.wide.tensor, tuple(first), True, self.count)
        read = [*kept, *(g.wide for g in self.gathers)]
        needs += [aligned(self.lo, t, self.count) for t in {w.tensor.name: w.tensor for w in (*self.stores.values(), *read)}.values()]
        wide: Atom = TRUE
        for n in needs:
            if isinstance(n, form.Const) and not n.value:
                return None
            wide = n if wide is TRUE else e.op("and", wide, n)
        return wide

    # ------------------------------------------------------------------------------------------------------------------ writing

    def _cost(self) -> float:
        return sum(self.lo.quietness.cost(p.value) for _, p in self.jobs)

    def _several(self, wide: Atom) -> Turns:
        """A few places a thread, but one alone where there are so few that threads of the device would have nothing to do."""
        e = self.e
        flight = self.knobs.flight or (FLIGHT if self._cost() >= MUCH and not self.beside else 1)
        if flight > 1:
            self._in_few_registers()
        total, many = self._total(self.axes), self.count * flight
        few = FALSE if self.knobs.vector else e.op("<", total, i64(many * FEW))
        turns = e.choose(few, total, e.op("quot", e.op("+", total, i64(many - 1)), i64(many)))
        return Turns(turns, lambda p: self._turn(wide, few, p, turns, total, flight))

    def _in_few_registers(self) -> None:
        """Loads of narrow floats are converted late, and where that leaves little else to keep, a multiprocessor is to be full of threads."""
        loads = [replace(w, raw=_narrow(w.tensor)) for w in self.loads]
        if self.follow is not None:
            self.follow = [replace(w, raw=_narrow(w.tensor)) for w in self.follow]
        self.loads = loads
        if not self.gathers and len(loads) <= 2 and len(self.stores) == 1 and all(w.raw for w in loads) and self._cost() <= LIGHT:
            self.lo.fit = RESIDENT // (self.knobs.threads or THREADS)

    def _turn(self, wide: Atom, few: Atom, p: Atom, turns: Atom, total: Atom, flight: int) -> None:
        e, many = self.e, self.count * flight
        several = e.op("not", few)
        wide = e.all_of([several, wide])
        last = e.op("*", e.op("+", p, e.op("*", turns, i64(flight - 1))), i64(self.count))
        inside = e.op("<=", e.op("+", last, i64(self.count)), total)
        with e.frame("lazy") as then:
            self._together(p, turns, flight)
        even: Atom | None = None
        if self.follow is not None:
            long = [] if self.flat else [e.op(">=", self.axes[-1].n, i64(self.count))]
            even = e.all_of([several, *(aligned(self.lo, t, self.count) for t, _ in self.jobs), *long])
        near = wide if even is None else e.op("or", wide, even)
        with e.frame("lazy") as other, e.loop("m", i64(0), e.choose(few, i64(1), i64(many)), nonempty=True) as m:
            place = e.choose(near, self._near(p, turns, m, flight), e.op("+", p, e.op("*", m, turns)))
            with e.when(e.op("<", place, total)):
                self.element(self._at(place))
        rest = tuple(other.stmts)
        if even is not None:
            with e.frame("lazy") as following:
                self._in_order(p, turns, flight)
            rest = (form.If(e.op("and", even, inside), tuple(following.stmts), rest),)
        e.raw(form.If(e.op("and", wide, inside), tuple(then.stmts), rest))

    def _near(self, p: Atom, turns: Atom, m: Atom, flight: int) -> Atom:
        """Place number `m` of a thread, where its places are side by side."""
        e, count = self.e, i64(self.count)
        if flight == 1:
            return e.op("+", e.op("*", p, count), m)
        return e.op("+", e.op("*", e.op("+", p, e.op("*", e.op("quot", m, count), turns)), count), e.op("rest", m, count))

    def _at(self, place: Atom) -> list[Atom]:
        """The indices of the place with a number."""
        if len(self.axes) > 1 and self.flat:
            return [*(i64(0) for _ in self.axes[1:]), place]
        return self._places(self.axes, place)

    @contextmanager
    def _vector(self, p: Atom, turns: Atom, flight: int) -> Iterator[tuple[Atom, list[Atom], Atom]]:
        """A loop over the vectors of a thread: where each begins in its own memory, its first place, and the number of that."""
        e = self.e
        if flight == 1:
            number = e.op("*", p, i64(self.count))
            yield i64(0), self._at(number), number
            return
        with unrolled(self.lo, "r", flight) as v:
            number = e.op("*", e.op("+", p, e.op("*", turns, v)), i64(self.count))
            yield e.op("*", v, i64(self.count)), self._at(number), number

    def _address(self, w: Wide, at: list[Atom], number: Atom) -> Atom:
        """Where a tensor has a place: mostly the number of the place."""
        follows = self.follow is not None and len(w.tensor.shape) == len(self.axes)
        if follows and w.use is not None:
            same = len(w.use.at) == len(w.axes) and all(lin.only(a) for lin, a in zip(w.use.at, w.axes, strict=True))
            follows = same and any((f.tensor, f.use) == (w.tensor, w.use) for f in self.follow or ())
        return number if follows else address(self.lo, w.tensor, w.at(self.lo, at))

    def _together(self, p: Atom, turns: Atom, flight: int) -> None:
        """The places of a thread side by side: all loads first."""
        lo, e = self.lo, self.e
        for w in (*self.loads, *(g.wide for g in self.gathers), *self.stores.values()):
            e.raw(form.Alloc(w.own, w.dtype, i64(self.count * flight)))
        if self.loads or self.gathers:
            with self._vector(p, turns, flight) as (begin, at, number):
                for g in self.gathers:
                    self._gather(g, begin, at)
                for w in self.loads:
                    e.raw(form.Move(w.own, begin, lo.buffer(w.tensor), self._address(w, at, number), self.count))
        with self._vector(p, turns, flight) as (begin, at, number):
            with unrolled(lo, "d", self.count) as d:
                here = [*at[:-1], e.op("+", at[-1], d)]
                for w in self.loads:
                    hold(lo, w, w.at(lo, here), e.op("+", begin, d))
                for g in self.gathers:
                    hold(lo, g.wide, g.at(lo, here), e.op("+", begin, d))
                for t, piece in self.jobs:
                    keep(lo, self.stores[t.name], piece, here, e.op("+", begin, d))
            for w in self.stores.values():
                e.raw(form.Move(lo.buffer(w.tensor), self._address(w, at, number), w.own, begin, self.count))


    def _gather(self, g: Gathered, begin: Atom, at: list[Atom]) -> None:
        """A vector of a row that is computed. Where that is no row, zeros, which nobody asks for."""
        lo, e, w = self.lo, self.e, g.wide
        places = g.at(lo, at)
        there = g.inside(lo, places)
        if there is TRUE:
            e.raw(form.Move(w.own, begin, lo.buffer(w.tensor), address(lo, w.tensor, places), self.count))
            return
        with e.frame("lazy") as some:
            e.raw(form.Move(w.own, begin, lo.buffer(w.tensor), address(lo, w.tensor, places), self.count))
        with e.frame("lazy") as none, unrolled(lo, "d", self.count) as d:
            e.raw(form.Store(w.own, e.op("+", begin, d), must(0, w.dtype), w.dtype))
        e.raw(form.If(there, tuple(some.stmts), tuple(none.stmts)))

    def _in_order(self, p: Atom, turns: Atom, flight: int) -> None:
        """Places of a thread that follow each other, over the ends of rows: what is stored by wide accesses, what is read there by such where it can be."""
        lo, e = self.lo, self.e
        assert self.follow is not None
        stores = {t.name: stored(lo, t, piece) for t, piece in self.jobs}
        for w in (*self.follow, *stores.values()):
            e.raw(form.Alloc(w.own, w.dtype, i64(self.count * flight)))
        with self._vector(p, turns, flight) as (begin, at, number):
            for w in self.follow:
                with e.frame("lazy") as one:
                    e.raw(form.Move(w.own, begin, lo.buffer(w.tensor), self._address(w, at, number), self.count))
                with e.frame("lazy") as each, unrolled(lo, "d", self.count) as d:
                    index = e.op("+", self._address(w, at, number), d)
                    if w.raw:
                        e.raw(form.Move(w.own, e.op("+", begin, d), lo.buffer(w.tensor), index, 1))
                    else:
                        value = e.bind("x", form.Load(lo.buffer(w.tensor), index, w.tensor.dtype, w.tensor.dtype.compute))
                        e.raw(form.Store(w.own, e.op("+", begin, d), e.convert(value, w.dtype), w.dtype))
                e.raw(form.If(aligned(lo, w.tensor, self.count), tuple(one.stmts), tuple(each.stmts)))
        with self._vector(p, turns, flight) as (begin, at, number):
            with unrolled(lo, "d", self.count) as d:
                here = self._after(at, d)
                for w in self.follow:
                    hold(lo, w, w.at(lo, here), e.op("+", begin, d))
                for t, piece in self.jobs:
                    keep(lo, stores[t.name], piece, here, e.op("+", begin, d))
            for w in stores.values():
                e.raw(form.Move(lo.buffer(w.tensor), self._address(w, at, number), w.own, begin, self.count))

    def _after(self, at: list[Atom], d: Atom) -> list[Atom]:
        """The place `d` places behind another one, `d` being less than a row has."""
        e = self.e
        last = e.op("+", at[-1], d)
        if self.flat:
            return [*at[:-1], last]
        out: list[Atom] = []
        carry: Atom = i64(0)
        for k in reversed(range(len(at))):
            here = last if k == len(at) - 1 else e.op("+", at[k], carry)
            if k == 0:
                out.append(here)
                break
            over = e.op(">=", here, self.axes[k].n)
            out.append(e.choose(over, e.op("-", here, self.axes[k].n), here))
            carry = e.choose(over, i64(1), i64(0))
        return out[::-1]


def _narrow(t: Tensor) -> bool:
    return t.dtype.is_float and t.dtype.bytes == 2


@contextmanager
def unrolled(lo: Lowering, hint: str, count: int) -> Iterator[Atom]:
    """A loop over a few numbers that is to be written out."""
    e = lo.e
    name = e.fresh(hint)
    with e.frame("loop", True) as f:
        e.depth[name] = len(e.frames) - 1
        yield form.Ref(name, I64)
    e.raw(form.For(name, i64(0), i64(count), i64(1), tuple(f.stmts), unroll=True))


def hold(lo: Lowering, w: Wide, at: tuple[Atom, ...], own: Atom) -> None:
    """From now on a read at a place finds what was moved to the thread's own memory."""
    value = lo.e.bind(w.tensor.name.rsplit(".", 1)[-1], form.Load(w.own, own, w.dtype, w.tensor.dtype.compute))
    lo.e.remember(("load", w.tensor.name, key_of(address(lo, w.tensor, at))), value)


def keep(lo: Lowering, w: Wide, piece: Piece, at: list[Atom], own: Atom) -> None:
    """Evaluates a piece at a place and puts the value into the thread's own memory."""
    e, t = lo.e, w.tensor
    value = lo.made(t, piece, at)
    e.raw(form.Store(w.own, own, value if w.wide else e.convert(value, w.dtype), w.dtype))
    if len(lo.written) > 1:
        e.remember(("stored", t.name, tuple(map(key_of, at))), e.convert(value, t.dtype))
