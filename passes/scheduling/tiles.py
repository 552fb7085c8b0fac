"""Chains of stencils on a GPU: a block computes a tile of the last one, and what that reads of the others, a tile and its rims, in shared memory.

    block for tile in … {
      thread: %once for the tile and 4 places around it into shared memory     barrier
      thread: %twice for the tile and 2 places around it                       barrier
      thread: %y for the tile
    }

A local can be had so if all that read it belong to one kernel and read it at constant distances along two axes of its result. What lies outside of the local
is answered by its border while it is staged, so that readers ask for no border: a place beside the tile that a border answers with is in the tile as well.

What is read of operands at places of the tile is brought to shared memory as well where that makes every stage `free`: then nothing that is evaluated at a
place beside a tensor can do harm, so that all tiles are computed by the same straight code, and what lies outside is written over by what the border answers.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import gcd, prod

from pipelink_ir.ir.dtypes import DType
from pipelink_ir.ir.nodes import Range
from pipelink_ir.ir.typed import Tensor, TypedOperator
from pipelink_ir.passes.scheduling.costs import STORED, Costs, heavy
from pipelink_ir.passes.scheduling.counts import bounds, count, known
from pipelink_ir.passes.scheduling.products import product_of
from pipelink_ir.passes.scheduling.reaches import MIRRORED, At, Declined, Reads, Seen, same_box
from pipelink_ir.passes.scheduling.risks import fails, risky
from pipelink_ir.passes.scheduling.shape import long_reductions
from pipelink_ir.passes.scheduling.uses import uses_of

SHARED = 48 << 10
"""Bytes of shared memory that every device has for a block."""
MULTIPROCESSOR = 200 << 10
"""Bytes that the blocks of a multiprocessor share, about."""
MULTIPROCESSORS = 132
"""How many there are, about."""
BUSY = 384
"""So many threads keep a multiprocessor busy."""
BLOCKS = 4
"""So many blocks of a multiprocessor have room for what they keep in registers."""
LOADED = 10.0
"""Cost of reading an element of an operand, …"""
BROUGHT = 6.0
"""… and of bringing it to shared memory."""
SHORT = 8
"""A row of a tile costs as much more as so many places: it is moved by itself."""
THREADS = 128
WARP = 32
WHOLE = 8
"""So many channels at most are computed together."""
WORK = 6000.0
"""Cost of what is written out for one thread at most."""
APART = 4
"""So many channels at most have blocks of their own if they can."""
PLACES = 32
"""Elements that a thread computes at once at most."""
DOWN, ACROSS, ALL = -1, -2, -3
"""What an axis of a local is: the tile's rows or columns, or one that is kept whole; numbers from 0 on are axes of the result that have a block each."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A local in shared memory. `low`, `high`: how many rows and columns beside the tile are read; `more` are computed beyond that, to make whole runs."""

    tensor: str
    axes: tuple[int, ...]
    low: tuple[int, int]
    high: tuple[int, int]
    more: tuple[int, int]
    alone: bool
    """Whether a thread computes its places one by one, since each takes a loop."""
    keep: int
    """Elements of each place."""
    asked: tuple[bool, ...]
    """Whether anybody reads it through its border, along each of its axes: else nothing outside is there to be read."""
    unit: int = 8
    """Rows are a multiple of so many elements."""

    def size(self, tile: tuple[int, int]) -> tuple[int, int]:
        """Rows and columns that it has for a tile."""
        rows, columns = (n + a + b + c for n, a, b, c in zip(tile, self.low, self.high, self.more, strict=True))
        return rows, columns

    def pitch(self, tile: tuple[int, int]) -> int:
        """Elements from one row to the next."""
        return -(-self.size(tile)[1] * self.keep // self.unit) * self.unit


@dataclass(frozen=True, slots=True)
class Ask:
    """A read through a border while a stage (by number, the result is the last) is computed: axis `k` of a tensor, from `low` to `high` places away from the
    place along an axis of the tile."""

    stage: int
    tensor: str
    k: int
    along: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Tiled:
    """The tile of a block. `down` (-1: there is none) and `across` are axes of the result, `whole` are computed whole by each thread; a thread computes `run`
    places at a time."""

    down: int
    across: int
    whole: tuple[int, ...]
    tile: tuple[int, int]
    run: tuple[int, int]
    stages: tuple[Stage, ...]
    asks: tuple[Ask, ...]
    reach: tuple[int, int]
    """How many rows and columns more than the tile has are read of operands."""
    alone: bool
    free: bool = False
    """Whether stages may be evaluated at any place of a tile and its rims, …"""
    ends_free: bool = False
    """… and the result, too."""
    brought: tuple[Stage, ...] = ()
    """What is brought of operands."""
    last: tuple[int, ...] = ()
    """For each that is brought, then for each stage, the last stage that reads it."""

    def slots(self, dtype_of: Callable[[str], DType]) -> tuple[tuple[tuple[DType, int], ...], tuple[int, ...]]:
        """The pieces of shared memory (dtype, elements), and which of them each has that is brought or staged; one after the other share one."""
        slots: list[tuple[DType, int, int]] = []
        chosen: list[int] = []
        for k, s in enumerate((*self.brought, *self.stages)):
            begin, dtype, n = max(-1, k - len(self.brought)), dtype_of(s.tensor), s.size(self.tile)[0] * s.pitch(self.tile)
            last = self.last[k] if self.last else len(self.stages)
            at = next((j for j, (d, _, end) in enumerate(slots) if d is dtype and end < begin), len(slots))
            slots[at:at + 1] = [(dtype, max(n, slots[at][1] if at < len(slots) else 0), last)]
            chosen.append(at)
        return tuple((d, n) for d, n, _ in slots), tuple(chosen)

    def rim(self, tensor: str) -> float:
        """How many places of a local are computed for each place of the tile."""
        s = next(s for s in self.stages if s.tensor == tensor)
        return prod(s.size(self.tile)) / prod(self.tile)

    @property
    def around(self) -> float:
        """How much of an operand is read for each place of the tile."""
        return prod(n + r for n, r in zip(self.tile, self.reach, strict=True)) / prod(self.tile)


# --------------------------------------------------------------------------------------------------------------------- finding


def tiled_of(op: TypedOperator, inline: Callable[[str], bool], root: Tensor, members: Iterable[str], asked: tuple[int, int] | None = None) -> Tiled | None:
    """How the kernel of `root` stages some locals; None if it cannot. `inline` are the locals that are evaluated where they are read."""
    names = frozenset(members)
    try:
        return _Finder(op, inline, root, [op.tensors[n] for g in op.order for n in g.tensors if n in names]).run(asked)
    except Declined:
        return None


def _ask(condition: bool) -> None:
    if not condition:
        raise Declined


class _Finder:
    def __init__(self, op: TypedOperator, inline: Callable[[str], bool], root: Tensor, members: list[Tensor]) -> None:
        self.op, self.inline, self.root, self.members = op, inline, root, members
        self.names = {m.name for m in members}
        _ask(len(root.pieces) == 1 and not root.pieces[0].holes and bool(root.pieces[0].axes))
        self.piece = root.pieces[0]
        self.axes: dict[str, tuple[int, ...]] = {}
        """For each local and each of its axes the axis of the result, or `ALL`."""
        self.read: dict[str, list[Seen]] = {m.name: [] for m in members}

    def local(self, name: str) -> bool:
        return name in self.names or self.inline(name)

    def run(self, asked: tuple[int, int] | None) -> Tiled:
        _ask(all(len(t.pieces) == 1 and not t.pieces[0].holes and all(map(_plain_box, range(len(t.shape)), [t] * len(t.shape))) for t in self.members))
        jobs = [*self.members, self.root]
        _ask(not any(product_of(self.op, self.local, t.pieces[0]) for t in jobs))
        _ask(not long_reductions(self.op, self.local, self.piece))
        found = uses_of(self.piece, self.op.tensors, self.local)
        _ask(not found.joined)
        reads = self._reads(jobs)
        self._full(reads, found.borders.keys())
        moved = {axis for name, seen in self.read.items() for s in seen for i, axis in zip(s.at, self.axes[name], strict=True)
                 if axis != ALL and i is not None and (i.low or i.high)}
        if not self.members:
            places = [i for s in reads[self.root.name] if not self.inline(s.tensor) for i in s.at if i is not None]
            moved = {i.axis for i in places if i.axis is not None and (i.low or i.high)}
        down, across, whole = self._layout(moved)
        costs = [self._cost(t) for t in jobs]
        alone = [heavy(self.op, self.inline, t.pieces[0]) for t in jobs]
        way = self._run_of(Tiled(down, across, whole, (1, 1), (1, 1), (), (), (0, 0), alone[-1]), reads, costs, alone)
        free = self._free(way, reads, jobs)
        sized = self._sized(free, costs, asked) if free is not None else None
        if not self.members:
            _ask(sized is not None and bool(sized.brought))
        elif sized is None:
            sized = self._sized(way, costs, asked)
        if sized is None:
            raise Declined
        return sized

    # ------------------------------------------------------------------------------------------------------------------ layout

    def _reads(self, jobs: list[Tensor]) -> dict[str, list[Seen]]:
        """What each stage reads, readers before what they read."""
        out: dict[str, list[Seen]] = {}
        look = Reads(self.op, self.inline, self.piece)
        for t in reversed(jobs):
            piece = t.pieces[0]
            if t is self.root:
                env: dict[str, At | None] = {a.index: At(k, 0, 0) for k, a in enumerate(piece.axes)}
            else:
                self.axes[t.name] = self._roles(t)
                env = {a.index: At(k, 0, 0) if k >= 0 else _all(a) for a, k in zip(piece.axes, self.axes[t.name], strict=True)}
            out[t.name] = look.of(piece, env)
            for s in out[t.name]:
                if s.tensor in self.names:
                    self.read[s.tensor].append(s)
        return out

    def _roles(self, t: Tensor) -> tuple[int, ...]:
        """Along which axis of the result each axis of a local is read; a short one that is read in any other way is kept whole."""
        _ask(bool(self.read[t.name]))
        axes = []
        for k, own in enumerate(t.pieces[0].axes):
            found = {None if (i := s.at[k]) is None else i.axis for s in self.read[t.name]}
            axis = found.pop() if len(found) == 1 else None
            if axis is None:
                n = count(own)
                _ask(n is not None and 1 <= n <= WHOLE and all(s.access[k] != "border" for s in self.read[t.name]))
            axes.append(ALL if axis is None else axis)
        return tuple(axes)

    def _full(self, reads: dict[str, list[Seen]], always: Iterable[tuple[str, int]]) -> None:
        """Nothing may be read through a border from an axis that may have no places, unless that is looked at before anything else."""
        sure = set(always)
        for seen in reads.values():
            for s in seen:
                t = self.op.tensors[s.tensor]
                for k, word in enumerate(s.access):
                    if word == "border" and t.border[k] is not None and (s.tensor, k) not in sure:
                        n = count(Range("", *t.shape[k]))
                        _ask((n is not None and n > 0) or any(same_box(t, k, a) for a in self.piece.axes))

    def _layout(self, moved: set[int]) -> tuple[int, int, tuple[int, ...]]:
        """The axes of the tile, and those that a thread computes whole."""
        _ask(0 < len(moved) <= 2)
        sizes = [count(a) for a in self.piece.axes]
        first = min(moved)
        whole = tuple(k for k, n in enumerate(sizes) if k > first and k not in moved and n is not None and 1 <= n <= WHOLE)
        # A few channels that have nothing to do with each other have blocks of their own: tiles are larger, and their rims matter less.
        apart = {k for k in whole if k > max(moved) and 1 < (sizes[k] or 1) <= APART and all(self.axes[t.name].count(k) == 1 for t in self.members)}
        apart = apart if len(moved) == 2 and self.members else set()
        whole = tuple(k for k in whole if k not in apart)
        _ask(prod(sizes[k] or 1 for k in whole) <= WHOLE)
        behind = [k for k in range(max(moved) + 1, len(sizes)) if k not in whole]
        if behind and len(moved) == 1:
            across, down = behind[-1], first
        else:
            # Channels of an unknown number have blocks of their own; many of them would be read and written far apart.
            _ask(all(sizes[k] is None or k in apart for k in behind))
            across = max(moved)
            before = [k for k in range(across) if k not in whole and sizes[k] != 1]
            down = first if len(moved) == 2 else before[-1] if before else -1
        for t in self.members:
            own = self.axes[t.name]
            _ask(all(own.count(k) == 1 for k in (down, across) if k >= 0))
            for k, axis in enumerate(own):
                if axis == ALL:
                    continue
                if axis in whole:
                    n = count(t.pieces[0].axes[k])
                    _ask(n is not None and 1 <= n <= WHOLE)
                elif axis not in (down, across):
                    _ask(same_box(t, k, self.piece.axes[axis]))
        return down, across, whole

    def _cost(self, t: Tensor) -> float:
        memo: dict[str, float] = {}

        def of(name: str) -> float:
            if not self.inline(name):
                return STORED
            if name not in memo:
                memo[name] = STORED
                memo[name] = sum(costs.of(p.value) for p in self.op.tensors[name].pieces)
            return memo[name]

        costs = Costs(self.op, of)
        return costs.of(t.pieces[0].value)

    # ------------------------------------------------------------------------------------------------------------------- sizes

    def _run_of(self, w: Tiled, reads: dict[str, list[Seen]], costs: list[float], alone: list[bool]) -> Tiled:
        """The places that a thread computes at once, and the stages that follow from it."""
        keep = prod(count(self.piece.axes[k]) or 1 for k in w.whole)
        run = (4 if w.down >= 0 else 1, 4)
        while prod(run) > 1 and (max(costs) * keep * prod(run) > WORK or keep * prod(run) > PLACES):
            run = (run[0] // 2, run[1]) if run[0] > 1 else (1, run[1] // 2)
        return self._staged(replace(w, run=run), reads, alone)

    def _sized(self, w: Tiled, costs: list[float], asked: tuple[int, int] | None) -> Tiled | None:
        """The tile that takes least time."""
        keep = prod(count(self.piece.axes[k]) or 1 for k in w.whole)
        most = max((n for s in w.stages for n in (*s.low, *s.high)), default=0)
        sizes = (asked,) if asked is not None else ((r, c) for r in ((8, 16, 24, 32, 48, 64) if w.down >= 0 else (1,)) for c in (32, 64, 96, 128, 256))
        best: tuple[float, Tiled] | None = None
        for tile in sizes:
            if tile[1] % w.run[1] or tile[0] % w.run[0] or (w.down < 0) is not (tile[0] == 1) or (tile[1] < most or (w.down >= 0 and tile[0] < most)):
                continue
            way = replace(w, tile=tile)
            bytes_ = sum(n * dtype.bytes for dtype, n in way.slots(lambda t: self.op.tensors[t].dtype)[0])
            if bytes_ > SHARED:
                continue
            time = self._time(way, costs, bytes_, keep)
            if best is None or time < best[0]:
                best = time, way
        return None if best is None else best[1]

    def _time(self, w: Tiled, costs: list[float], bytes_: int, keep: int) -> float:
        """About how long a place takes: what warps do for all runs, longer where too few of them are there at a time, what is read, and places of tiles outside
        of the result; the multiprocessor that has most tiles is done last."""
        resident = min(BLOCKS, max(1, MULTIPROCESSOR // (bytes_ + 1024)))
        jobs = [(s.size(w.tile), (1, 1) if s.alone else w.run, cost * s.keep) for s, cost in zip(w.stages, costs, strict=False)]
        jobs.append((w.tile, (1, 1) if w.alone else w.run, costs[-1] * keep))
        work = 0.0
        for (rows, columns), run, cost in jobs:
            warps = -(-(rows // run[0] * (columns // run[1])) // WARP)
            rounds = -(-warps * WARP // THREADS)
            work += warps * WARP * prod(run) * cost * max(1.0, BUSY * rounds / (resident * warps * WARP))
        for s in w.brought:
            work += prod(s.size(w.tile)) * s.keep * BROUGHT
        used, blocks = 1.0, 1.0
        sizes = [count(a) for a in self.piece.axes]
        for k, n in enumerate(sizes):
            tile = {w.down: w.tile[0], w.across: w.tile[1]}.get(k, 1)
            if n is not None and k not in w.whole:
                parts = -(-n // tile)
                used, blocks = used * max(1, n) / max(1, parts * tile), blocks * max(1, parts)
        most = -(-blocks // MULTIPROCESSORS) * MULTIPROCESSORS / blocks if None not in sizes else 1.0
        loaded = LOADED * w.around if not w.free else 0.0
        return (work / prod(w.tile) + loaded) / used * most * (1 + SHORT / w.tile[1])

    def _staged(self, w: Tiled, reads: dict[str, list[Seen]], alone: list[bool]) -> Tiled:
        """The rims of all locals and the borders that are asked for."""
        place = {w.down: 0, w.across: 1}
        numbers = {t.name: k for k, t in enumerate((*self.members, self.root))}
        need: dict[str, tuple[list[int], list[int]]] = {t.name: ([0, 0], [0, 0]) for t in self.members}
        has: dict[str, list[int]] = {t.name: [0, 0] for t in self.members}
        asks: dict[Ask, None] = {}
        least, most = [0, 0], [0, 0]
        stages: list[Stage] = []
        for name, seen in reads.items():
            low, high = need.get(name, ([0, 0], [0, 0]))
            wide = [0, 0]
            t = self.op.tensors[name]
            if name in self.names:
                self._mirrored(t, low, high, w, reads)
                own_run = (1, 1) if alone[numbers[name]] else w.run
                wide = [max(high[a], has[name][a]) for a in (0, 1)]
                for a in (0, 1):
                    if (w.down, w.across)[a] >= 0:
                        # Tiles are whole runs.
                        wide[a] += -(low[a] + wide[a]) % own_run[a]
                axes = tuple(DOWN if k == w.down else ACROSS if k == w.across else ALL if k in w.whole else k for k in self.axes[name])
                keep = prod(count(t.pieces[0].axes[j]) or 1 for j, k in enumerate(axes) if k == ALL)
                stages.append(Stage(name, axes, (low[0], low[1]), (high[0], high[1]), (wide[0] - high[0], wide[1] - high[1]), alone[numbers[name]], keep,
                                    self._asked(t, reads)))
            for s in seen:
                own = self.axes.get(s.tensor)
                for k, (i, word) in enumerate(zip(s.at, s.access, strict=True)):
                    if i is None or i.axis not in place or (own is not None and own[k] == ALL):
                        continue
                    a = place[i.axis]
                    if s.tensor in self.names:
                        lows, highs = need[s.tensor]
                        lows[a], highs[a] = max(lows[a], low[a] - i.low), max(highs[a], high[a] + i.high)
                        has[s.tensor][a] = max(has[s.tensor][a], wide[a] + i.high)
                        continue
                    least[a], most[a] = min(least[a], i.low - low[a]), max(most[a], wide[a] + i.high)
                    if word == "border" and self.op.tensors[s.tensor].border[k] is not None:
                        asks[Ask(numbers[name], s.tensor, k, (DOWN, ACROSS)[a], i.low, i.high)] = None
        return replace(w, stages=tuple(sorted(stages, key=lambda s: numbers[s.tensor])), asks=tuple(asks),
                       reach=(most[0] - least[0], most[1] - least[1]))

    # -------------------------------------------------------------------------------------------------------------------- free

    def _free(self, w: Tiled, reads: dict[str, list[Seen]], jobs: list[Tensor]) -> Tiled | None:
        """The same with what is read of operands in shared memory; None if a place outside may do harm all the same."""
        failing, strict = fails(self.op, self.inline), self.op.empty is None
        if any(risky(t.pieces[0].value, failing, strict) for t in jobs):
            return None
        numbers = {t.name: k for k, t in enumerate(jobs)}
        stages = {s.tensor: s for s in w.stages}
        own: dict[str, list[tuple[str, Seen]]] = {}
        last: dict[str, int] = {}
        for reader, seen in reads.items():
            for s in seen:
                last[s.tensor] = max(last.get(s.tensor, 0), numbers[reader])
                if None in s.at or (self.inline(s.tensor) and self._beyond(w, s)):
                    return None
                if not self.inline(s.tensor) and s.tensor not in stages and any(i is not None and i.axis in (w.down, w.across) and i.axis >= 0 for i in s.at):
                    own.setdefault(s.tensor, []).append((reader, s))
        brought: list[Stage] = []
        ends_free = True
        for tensor, found in own.items():
            if all(r == self.root.name and "border" not in s.access and all(i is not None and not i.low and not i.high for i in s.at) for r, s in found):
                ends_free = False
                continue
            stage = self._brought(w, tensor, found, stages)
            if stage is None:
                return None
            brought.append(stage)
        names = {s.tensor for s in brought}
        asks = tuple(a for a in w.asks if a.tensor not in names)
        return replace(w, free=True, ends_free=ends_free, brought=tuple(brought), asks=asks, last=tuple(last[s.tensor] for s in (*brought, *w.stages)))

    def _beyond(self, w: Tiled, s: Seen) -> bool:
        """Whether a local that is evaluated where it is read is read through a border that answers a place far outside with one far inside."""
        t = self.op.tensors[s.tensor]
        return any(word == "border" and (border := t.border[k]) is not None and border.mode not in ("replicate", "constant")
                   and i is not None and i.axis in (w.down, w.across) for k, (i, word) in enumerate(zip(s.at, s.access, strict=True)))

    def _brought(self, w: Tiled, tensor: str, found: list[tuple[str, Seen]], stages: Mapping[str, Stage]) -> Stage | None:
        """What a block brings of an operand; None if its axes do not go along the tile."""
        t, axes, keep = self.op.tensors[tensor], [], 1
        for k in range(len(t.shape)):
            along = {None if (i := s.at[k]) is None else i.axis for _, s in found}
            axis = along.pop() if len(along) == 1 else None
            if axis is not None and axis in (w.down, w.across):
                axes.append(DOWN if axis == w.down else ACROSS)
            elif axis is not None and axis not in w.whole:
                if any(i is not None and (i.low or i.high) for _, s in found for i in (s.at[k],)):
                    return None
                axes.append(axis)
            else:
                n = count(Range("", *t.shape[k]))
                if along or n is None or not 1 <= n <= WHOLE or any(s.access[k] == "border" for _, s in found):
                    return None
                axes.append(ALL)
                keep *= n
        if axes.count(ACROSS) != 1 or axes.count(DOWN) != (w.down >= 0) or keep > WHOLE:
            return None
        low, high = [0, 0], [0, 0]
        for reader, s in found:
            r = stages.get(reader)
            for k, i in enumerate(s.at):
                if i is not None and axes[k] in (DOWN, ACROSS):
                    a = 0 if axes[k] == DOWN else 1
                    low[a] = max(low[a], (r.low[a] if r is not None else 0) - i.low)
                    high[a] = max(high[a], (r.high[a] + r.more[a] if r is not None else 0) + i.high)
        # Rows begin and end at 16 bytes.
        unit = max(1, 16 // t.dtype.bytes)
        step = unit // gcd(unit, keep)
        low[1] += -low[1] % step
        asked = tuple(t.border[k] is not None and any(s.access[k] == "border" for _, s in found) for k in range(len(t.shape)))
        return Stage(tensor, tuple(axes), (low[0], low[1]), (high[0], high[1]), (0, -(low[1] + high[1]) % step), True, keep, asked, max(8, unit))

    # ------------------------------------------------------------------------------------------------------------------- borders

    def _asked(self, t: Tensor, reads: dict[str, list[Seen]]) -> tuple[bool, ...]:
        """Along which axes a local is read through its border."""
        return tuple(t.border[k] is not None and any(s.tensor == t.name and s.access[k] == "border" for seen in reads.values() for s in seen)
                     for k in range(len(t.shape)))

    def _mirrored(self, t: Tensor, low: list[int], high: list[int], w: Tiled, reads: dict[str, list[Seen]]) -> None:
        """Borders that the tile can answer: the result has the places of the local, and what a mirror shows is there."""
        for k, (axis, asked, border) in enumerate(zip(self.axes[t.name], self._asked(t, reads), t.border, strict=True)):
            if not asked or border is None:
                continue
            if axis not in (w.down, w.across) or border.mode == "wrap" or not same_box(t, k, self.piece.axes[axis]):
                raise Declined
            if border.mode in MIRRORED:
                a = 0 if axis == w.down else 1
                low[a] = high[a] = max(low[a], high[a])


def _plain_box(k: int, t: Tensor) -> bool:
    """Whether the piece of a local is the local, along one axis."""
    a = t.pieces[0].axes[k]
    return a.hi == t.shape[k][1] and (a.lo == t.shape[k][0] or known(a.lo) == known(t.shape[k][0]) is not None)


def _all(a: Range) -> At | None:
    b = bounds(a)
    return None if b is None else At(None, b[0], max(b[0], b[1] - 1))


def wholes(t: Tensor, s: Stage) -> Iterator[tuple[int, int]]:
    """The axes of what is staged or brought that are kept whole, and how many places each has."""
    for k, axis in enumerate(s.axes):
        if axis == ALL:
            yield k, count(Range("", *t.shape[k])) or 0
