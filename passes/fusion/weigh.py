"""Whether two groups should be one: the limits, the axes that would run together, how often values would be computed, and the sums of both choices."""
from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.passes.fusion.axes import Trial
from pipelink_ir.passes.fusion.cost import GUESS, NOTHING, PRODUCT_TILE, TILE, DeviceModel, Sums, compare
from pipelink_ir.passes.fusion.facts import Dims
from pipelink_ir.passes.fusion.groups import Call, Graph, Group
from pipelink_ir.passes.fusion.placed import Placed
from pipelink_ir.passes.fusion.terms import agree

ONCE = 1.01
"""Evaluations for each element up to which nothing counts as computed twice."""
SMALL = 1 << 14
"""So many elements may be computed by one block alone."""
SHOWN = 4
"""So many edges a text spells out."""
SECTOR = 8
"""A store of single values to places apart moves so many times its bytes."""


@dataclass(slots=True)
class Verdict:
    """What was found out: why not, or what a merge does."""

    refused: str | None = None
    text: str = ""
    trial: Trial | None = None
    sums: Sums | None = None
    saved: float = 0.0
    again: Sums = NOTHING
    halo: int = 0
    staged: list[str] = field(default_factory=list)
    waiting: int = 0
    placed: Placed | None = None
    burden: Sums = NOTHING

    @classmethod
    def no(cls, why: str) -> Verdict:
        return cls(refused=why)


@dataclass(frozen=True, slots=True)
class Crossing:
    """An edge from one group to a call of another."""

    edge: str
    call: Call


def crossings(p: Group, c: Group) -> list[Crossing]:
    """The edges that lead from one group to the other."""
    return [Crossing(e, call) for e in c.reads if e in p.made for call in c.calls if e in call.args and e not in c.clones]


def static(g: Graph, a: Group, b: Group) -> str | None:
    """What keeps two groups apart whatever they cost."""
    for group in (a, b):
        if group.terms.own is not None:
            return f"'@{stem(group.calls[0].op.name)}' {group.terms.own}"
    if a.terms.place != b.terms.place:
        return "they run on different devices"
    if a.terms.early != b.terms.early:
        return "it depends on parameters alone and is computed when they are bound"
    for x, y in ((a, b), (b, a)):
        if x.waits and any(call.number in x.waits for call in y.calls):
            return "'after' keeps them apart"
    return agree(a.terms.common, b.terms.common) or _limits(g, a, b)


def _limits(g: Graph, a: Group, b: Group) -> str | None:
    most = g.limits
    if len(a.calls) + len(b.calls) > most.nodes:
        return f"the operator would be made of more than {most.nodes}"
    if a.definitions + b.definitions > most.definitions:
        return f"the operator would have more than {most.definitions} definitions"
    if a.code + b.code > most.code:
        return f"its code would have more than {most.code} operations"
    if len(a.reads) + len(a.made) + len(b.reads) + len(b.made) > most.arguments and _arguments(g, a, b) > most.arguments:
        return f"it would read and write more than {most.arguments} arrays"
    if a.waiting + b.waiting > most.waiting:
        return f"more than {most.waiting} values would wait in registers"
    return None


def _arguments(g: Graph, a: Group, b: Group) -> int:
    """What two groups would read and write as one."""
    kept = sum(g.outside[e] > y.reads.get(e, 0) for x, y in ((a, b), (b, a)) for e in x.made)
    return len((a.reads.keys() | b.reads.keys()) - a.made.keys() - b.made.keys()) + kept


def stem(name: str) -> str:
    """The last word of an operator's name, without the number of its specialisation."""
    words = [w for w in name.split(".") if not w.isdigit()]
    return words[-1] if words else name


# ------------------------------------------------------------------------------------------------------------------- along edges


def weigh_edges(g: Graph, p: Group, c: Group, crossing: list[Crossing]) -> Verdict:
    """Producer `p` put into reader `c`."""
    why = static(g, p, c)
    if why is not None:
        return Verdict.no(why)
    for x in crossing:
        if x.edge in g.waited:
            return Verdict.no("'after' waits for it")
        maker = g.calls[g.maker[x.edge]]
        name = next(r.name for r, e in zip(maker.op.results, maker.results, strict=True) if e == x.edge)
        if name in maker.facts.recurrent:
            return Verdict.no("it is computed step by step, and stored as it is")
    v = _modes(g, p, c, crossing)
    if v.refused is not None:
        return v
    return _sums(g, p, c, crossing, v)


def _modes(g: Graph, p: Group, c: Group, crossing: list[Crossing]) -> Verdict:
    """How the values would be had: computed where they are read if that is no more work, else once for a block, else again for each read."""
    ratios = [ratio_of(g, x) for x in crossing]
    most = max(ratios)
    if any(x.call.facts.product and (p.product or _as_it_lies(g, p, x.edge)) for x in crossing):
        return Verdict.no("a product of matrices takes its factors as they lie in memory")
    if most <= ONCE and not p.inner and not p.product and not (p.loops and any(x.call.facts.product for x in crossing)):
        free = Trial(g.axes)
        for x in crossing:
            for a, b, _ in _pairs(g, x):
                free.unite(a, b)
        if not free.conflict and _shaped(g, p, c, free, []) is None:
            return Verdict(trial=free, sums=Sums(0, p.work * (min(most, 1.0) - 1)))
    trial, halo, staged, stuck = _once(g, crossing, ratios)
    if p.fails and most > ONCE:
        return Verdict.no(f"it may fail at run time, so it would be computed at each of its {most:.3g} reads")
    why = stuck or ("a product of matrices would have to be computed otherwise than in tiles" if trial.conflict or (p.product and halo) else None)
    why = why or ("the one runs by blocks, the other step by step" if trial.shapes and any(x.call.facts.recurrent for x in crossing) else None)
    why = why or _shaped(g, p, c, trial, [x.edge for x in staged])
    rim = _rim(halo + c.halo, trial.shapes) - 1 if halo else 0.0
    if why is None:
        return Verdict(trial=trial, halo=halo, staged=[x.edge for x in staged], sums=Sums(0, p.work * rim))
    if p.inner or p.product or p.loops:
        return Verdict.no(why)
    if any(x.call.facts.product and _narrow(g, x.edge) for x in crossing):
        return Verdict.no("a product of matrices takes its factors as they lie in memory")
    pinned = Trial(g.axes)
    return Verdict(trial=pinned, text=f"computed at each of {most:.3g} reads, since {why}", sums=Sums(0, p.work * (most - 1)))


def _as_it_lies(g: Graph, p: Group, edge: str) -> bool:
    """Whether tensor cores take an edge from memory alone: bytes, and what is made of neighbours, which is stored in f32 if it is not stored as an edge."""
    size = DTYPES[g.types[edge].dtype].bytes
    return size == 1 or (size == 2 and not all(d.plain for call in p.calls for dims in call.facts.access.values() for d in dims))


def _narrow(g: Graph, edge: str) -> bool:
    return DTYPES[g.types[edge].dtype].bytes <= 2


def ratio_of(g: Graph, x: Crossing) -> float:
    """How often an element would be evaluated if it were computed wherever it is read."""
    elements = max(1, g.elements[x.edge])
    total = sum(x.call.sums.evaluations[k] for k in x.call.operands_of(x.edge))
    ratio = total / elements
    return max(1.0, ratio / PRODUCT_TILE) if x.call.facts.product else ratio


def _axes_of(g: Graph, edge: str) -> range:
    first = g.first_axis[edge]
    return range(first, first + len(g.types[edge].dims))


def _dims(x: Crossing) -> list[tuple[str, Dims]]:
    """How the call's results read the edge: (result, walk)."""
    names = [x.call.op.operands[k].name for k in x.call.operands_of(x.edge)]
    return [(e, x.call.facts.access[r.name, o]) for r, e in zip(x.call.op.results, x.call.results, strict=True) for o in names
            if (r.name, o) in x.call.facts.access]


def _pairs(g: Graph, x: Crossing) -> list[tuple[int, int, int]]:
    """Axes of the edge and of what reads it that run in step, and how far the reads reach."""
    out = []
    for result, dims in _dims(x):
        for j, d in enumerate(dims):
            if d.axis is not None:
                out.append((g.first_axis[x.edge] + j, g.first_axis[result] + d.axis, d.high - d.low))
    return out


def _once(g: Graph, crossing: list[Crossing], ratios: list[float]) -> tuple[Trial, int, list[Crossing], str | None]:
    """The axes if each value is computed once for a block, how far reads reach, which edges a block keeps a part of, and what forbids it."""
    trial, halo, staged, stuck = Trial(g.axes), 0, [], None
    for x, ratio in zip(crossing, ratios, strict=True):
        for a, b, reach in _pairs(g, x):
            trial.unite(a, b)
            halo = max(halo, reach)
        for result, dims in _dims(x):
            covered = {d.axis for d in dims}
            for j, d in enumerate(dims):
                if d.whole:
                    trial.put_inside(g.first_axis[x.edge] + j)
                elif d.depends:
                    stuck = "its places are computed"
            for k in range(len(g.types[result].dims)):
                if k not in covered and g.sizes.shape(g.types[result])[k] > 1:
                    trial.put_inside(g.first_axis[result] + k)
        if ratio > ONCE or halo:
            staged.append(x)
    return trial, halo, staged, stuck


def _shaped(g: Graph, p: Group, c: Group, trial: Trial, staged: list[str]) -> str | None:
    """What forbids a kernel of blocks with these axes inside: too few blocks, or more to keep than there is room for."""
    if not (trial.shapes or p.inner or c.inner):
        return None
    for e in (*p.made, *c.made):
        axes = _axes_of(g, e)
        if all(trial.is_inside(a) == g.axes.is_inside(a) for a in axes):
            continue
        sizes = [(g.axes.extent[a], trial.is_inside(a)) for a in axes]
        blocks = prod(n for n, inside in sizes if not inside)
        if blocks < c.device.blocks and prod(n for n, _ in sizes) > SMALL:
            return f"blocks that share what is read would be only {blocks}"
    room = sum(_part(g, e, trial) for e in {*staged, *p.staged, *c.staged})
    if room > c.device.shared:
        return f"a block would keep {room} bytes, and has room for {c.device.shared}"
    return None


def _part(g: Graph, edge: str, trial: Trial) -> int:
    """Bytes of an edge that a block keeps."""
    return prod(g.axes.extent[a] for a in _axes_of(g, edge) if trial.is_inside(a)) * DTYPES[g.types[edge].dtype].bytes


def _rim(halo: int, blocks: bool) -> float:
    """How much is computed for each place of a tile with its rims."""
    tile = 1 if blocks else TILE
    return ((tile + halo) / tile) ** (1 if blocks else 2)


def _sums(g: Graph, p: Group, c: Group, crossing: list[Crossing], v: Verdict) -> Verdict:
    slow = _slowed(g, c, crossing)
    extra = (v.sums.work if v.sums is not None else 0.0) + p.work * slow
    v.saved = saved(g, p, c)
    trial = v.trial or Trial(g.axes)
    launches = kernels(g, p, c)
    # What two kernels need is computed in each of them.
    twice = launches == p.launches + c.launches
    more_bytes, more_work = (float(sum(g.bytes[e] for e in p.reads if e not in c.reads)), p.work) if twice else (0.0, 0.0)
    if launches > 1:
        v.again = Sums(p.again.bytes + c.again.bytes + more_bytes, p.again.work + c.again.work + more_work, 0)
    one = Sums(p.bytes + c.bytes - v.saved + _scattered(g, c, trial), p.work + c.work + extra, launches)
    v.burden = p.burden.plus(c.burden)
    apart = p.sums().plus(_near(g, c, crossing)), c.sums().plus(_near(g, c, crossing))
    pays, sums = compare(apart, one.plus(v.again).plus(v.burden), c.device, slow > 0)
    if pays and _is_placed(g, p, c, crossing, trial):
        v.placed = placed_of(g, p, c)
    if v.placed is not None:
        # What the schedule does, instead of what it might do.
        v.burden = burden_of(g, p, c, v.placed)
        one = Sums(one.bytes, p.work + c.work + p.work * slow, launches)
        pays, sums = compare(apart, one.plus(v.again).plus(v.burden), c.device, slow > 0)
        extra = v.burden.work - p.burden.work - c.burden.work
        between = [f"'%{e}'" for e in v.placed.stored]
        if between and not pays:
            v.text = f"{', '.join(between[:SHOWN])} would be stored all the same"
    if not pays:
        return Verdict.no(f"it would not pay: {sums}{f', {v.text}' if v.text else ''}{guess_text(g, [x.edge for x in crossing])}")
    more = extra / (p.work + c.work) if p.work + c.work and not slow else 0.0
    v.text = ", ".join([*([f"{more:.0%} more operations"] if more > 0.005 else []), *([v.text] if v.text else [])])
    v.sums = one
    v.waiting = sum(len(g.readers.get(e, ())) > 1 for e in {x.edge for x in crossing}) + len(v.staged)
    return v


def _near(g: Graph, c: Group, crossing: list[Crossing]) -> Sums:
    """What the cache keeps of edges that one kernel writes and the next one reads."""
    return Sums(0.0, 0.0, 0, float(sum(g.bytes[e] for e in {x.edge for x in crossing} if g.bytes[e] <= c.device.cache)))


def _is_placed(g: Graph, p: Group, c: Group, crossing: list[Crossing], trial: Trial) -> bool:
    """Whether the schedule is asked: for stencils, and what they are already part of. Rows that a block shares are in its registers."""
    if trial.shapes or p.inner or c.inner or p.product or c.product:
        return False
    if any(call.facts.recurrent for group in (p, c) for call in group.calls):
        return False
    return p.asked or c.asked or any(far > 0 for x in crossing for _, _, far in _pairs(g, x))


def placed_of(g: Graph, p: Group, c: Group) -> Placed | None:
    """Where the schedule has the edges inside two groups as one."""
    calls = sorted({call.number: call for call in (*p.calls, *c.calls)}.values(), key=lambda call: call.number)
    return g.ask(calls, frozenset(kept_of(g, p, c)), p.clones | c.clones, c.device.name)


def burden_of(g: Graph, p: Group, c: Group, at: Placed) -> Sums:
    """What buffers, their kernels, rims, and values that are computed again cost two groups as one."""
    calls = sorted({call.number: call for call in (*p.calls, *c.calls)}.values(), key=lambda call: call.number)
    work = 0.0
    times: dict[int, float] = {}
    for call in reversed(calls):
        most = 1.0
        for e in call.results:
            if e in at.rims:
                most = max(most, at.rims[e])
            elif e in at.inline:
                readers = [r for r in calls if e in r.args]
                most = max([most, *(times[r.number] * _shared(g, Crossing(e, r), c.device) for r in readers if r.number in times)])
        times[call.number] = most
        work += call.sums.work * (most - 1)
    outside = [e for e in p.reads.keys() | c.reads.keys() if e not in p.made and e not in c.made]
    size = max(g.elements[e] for e in (*p.made, *c.made))
    rims = sum(g.bytes[e] for e in outside if 2 * g.elements[e] >= size) * (at.around - 1)
    return Sums(rims + sum(_held(g, e) * (1 + n * at.around) for e, n in at.stored.items()), work, at.kernels, 0.0, at.at_once)


def _held(g: Graph, edge: str) -> int:
    """Bytes of an edge in a buffer inside an operator, which holds values as they are computed with."""
    return g.elements[edge] * max(DTYPES[g.types[edge].dtype].bytes, DTYPES[g.types[edge].dtype].compute.bytes)


def _shared(g: Graph, x: Crossing, device: DeviceModel) -> float:
    """How often a value is computed that is evaluated where it is read: threads of a GPU share those of a run of places."""
    ratio = ratio_of(g, x)
    if ratio <= ONCE or device.runs is None:
        return max(1.0, ratio)
    reach = max((far for _, _, far in _pairs(g, x)), default=0)
    return min(ratio, prod((n + reach) / n for n in device.runs))


def _slowed(g: Graph, c: Group, crossing: list[Crossing]) -> float:
    """How much longer operations take in a recurrence, whose steps compute few values at once; 0 where they do not."""
    most = 0.0
    for x in crossing:
        for r, e in zip(x.call.op.results, x.call.results, strict=True):
            axis = x.call.facts.recurrent.get(r.name)
            if axis is not None:
                at_once = max(1, g.elements[e] // max(1, g.sizes.shape(g.types[e])[axis]))
                most = max(most, c.device.places / at_once - 1)
    return most


def kept_of(g: Graph, p: Group, c: Group) -> tuple[str, ...]:
    """The edges of two groups that they store as one."""
    stored = [e for x, y in ((p, c), (c, p)) for e in x.kept if not (0 < y.reads.get(e, 0) >= g.outside[e])]
    return tuple(dict.fromkeys(stored))


def kernels(g: Graph, p: Group, c: Group) -> int:
    """How many kernels two groups take as one."""
    return max(1, len({g.box[e] for e in kept_of(g, p, c)}))


def guess_text(g: Graph, edges: list[str]) -> str:
    """Says so where sizes were guessed."""
    return f" (unknown sizes taken for {GUESS})" if g.guessed(edges) else ""


def saved(g: Graph, a: Group, b: Group) -> float:
    """Bytes that one kernel need not move: what both read once instead of twice, what one makes and the other reads, what nobody else reads at all."""
    total = 0.0
    for e in a.reads:
        if e in b.reads:
            total += g.bytes[e]
    for x, y in ((a, b), (b, a)):
        for e in x.made:
            if e in y.reads and e not in y.clones:
                total += g.bytes[e] * (1 + (g.outside[e] <= y.reads[e]))
    return total


def _scattered(g: Graph, c: Group, trial: Trial) -> float:
    """More bytes because a block that keeps rows writes them across the rows of a result."""
    total = 0.0
    for e in c.made:
        axes = _axes_of(g, e)
        if g.outside[e] and len(axes) > 1 and any(trial.is_inside(a) for a in axes) and not trial.is_inside(axes[-1]) and g.axes.extent[axes[-1]] > 1:
            total += (SECTOR - 1) * g.bytes[e]
    return total


# --------------------------------------------------------------------------------------------------------------------- side by side


def weigh_siblings(g: Graph, a: Group, b: Group) -> Verdict:
    """Two groups that read some of the same edges, over one box."""
    why = static(g, a, b)
    if why is not None:
        return Verdict.no(why)
    if a.product or b.product or _steps(a) or _steps(b):
        return Verdict.no("products and recurrences have kernels of their own")
    if a.tiles or b.tiles:
        return Verdict.no("what is staged by tiles has a kernel of its own")
    trial = Trial(g.axes)
    for e in a.reads.keys() & b.reads.keys():
        first = [_walks(g, group, e) for group in (a, b)]
        for j in range(len(g.types[e].dims)):
            axes = [w[j] for walks in first for w in walks if w[j] is not None]
            for other in axes[1:]:
                trial.unite(axes[0], other)  # type: ignore[arg-type]
    if trial.conflict or _shaped(g, a, b, trial, []) is not None or _mixed(g, a, b, trial):
        return Verdict.no("they are shaped differently")
    v = Verdict(trial=trial, saved=saved(g, a, b), again=_together(a, b), burden=a.burden.plus(b.burden))
    v.sums = Sums(a.bytes + b.bytes - v.saved, a.work + b.work, kernels(g, a, b))
    pays, sums = compare((a.sums(), b.sums()), v.sums.plus(v.burden), b.device)
    v.text = f"{round(v.saved)} bytes fewer to move"
    if not pays:
        v.refused = f"it would not pay: {sums}"
    return v


def _together(a: Group, b: Group) -> Sums:
    return Sums(a.again.bytes + b.again.bytes, a.again.work + b.again.work, 0)


def _steps(group: Group) -> bool:
    return any(call.facts.recurrent for call in group.calls)


def _mixed(g: Graph, a: Group, b: Group, trial: Trial) -> bool:
    """Whether the one shares rows by block and the other does not."""
    if not (trial.shapes or a.inner or b.inner):
        return False
    inner = [any(trial.is_inside(x) for e in group.made for x in _axes_of(g, e)) for group in (a, b)]
    return inner[0] != inner[1]


def _walks(g: Graph, group: Group, edge: str) -> list[list[int | None]]:
    out: list[list[int | None]] = []
    for call in group.calls:
        if edge in call.args:
            for result, dims in _dims(Crossing(edge, call)):
                out.append([None if d.axis is None else g.first_axis[result] + d.axis for d in dims])
    return out


def weigh_apart(g: Graph, a: Group, b: Group) -> Verdict:
    """Two groups that have nothing to do with each other but a launch."""
    why = static(g, a, b)
    if why is not None:
        return Verdict.no(why)
    if not (small(a) and small(b)) or a.tiles or b.tiles or _mixed(g, a, b, Trial(g.axes)):
        return Verdict.no("they are not small")
    v = Verdict(trial=Trial(g.axes), saved=saved(g, a, b), again=_together(a, b), burden=a.burden.plus(b.burden))
    v.sums = Sums(a.bytes + b.bytes - v.saved, a.work + b.work, kernels(g, a, b))
    v.text = "each takes less time than its launch, side by side too"
    return v


def small(group: Group) -> bool:
    """Whether a group takes less time than its launch, on every path: bytes, operations, and operations one after the other."""
    d = group.device
    if group.product or _steps(group):
        return False
    return max(group.bytes / d.bandwidth, group.work / d.arithmetic, group.depth * d.latency) < d.launch
