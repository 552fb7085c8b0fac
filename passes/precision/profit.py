"""Which nodes are lowered: those whose change pays, with everything that has to be converted for it.

A change is priced as a whole: the program without it and with it, each simplified and fused (`price.py`), since a code that is made where a value is computed
anyway costs next to nothing, and one that takes a kernel of its own often more than it saves. Nodes that are near each other are weighed together, in pieces of
a pipeline with their surroundings; then those are taken out one by one that cost more than they save. In the end the program as a whole must gain, too.

Only what is clearly faster is kept, since a model is a model: of the kernels that a change makes others of, the new ones have to take `MARGIN` of the time of
the old ones, less `UNSEEN` for each. So small programs, whose time is that of launches, stay as they are unless a change spares some.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from pipelink_ir.ir.nodes import Module, Node, Pipeline
from pipelink_ir.ir.targets import Arch
from pipelink_ir.passes.precision.cut import Web, with_pipeline
from pipelink_ir.passes.precision.price import Price, Pricer

Lower = Callable[[Module, frozenset[str]], Module]
"""Lowers some nodes of a module, by the names of their first results, and takes all policies off its operators."""

MARGIN = 0.92
"""What a change makes has to take less than so much of the time of what was there: the model is off by as much between kernels of codes and of floats
(`tests/unit/passes/test_price_measured.py`)."""
UNSEEN = 0.8e-6
"""Seconds of a kernel that the model does not see: how long its first and its last threads take."""
PIECE = 16
"""Nodes that are weighed together."""
AROUND = 2
"""What is so many edges away from them is looked at, too: it may be fused with them."""
EFFORT = 2500
"""Nodes that are priced in all, piece by piece. Pieces that look alike are priced once; what is left then is kept or not as one."""
WHOLE = 600
"""Pipelines of at most so many nodes are priced as a whole at the end."""


@dataclass(frozen=True, slots=True)
class Region:
    """Nodes that were weighed together, by their first results in the order of the program, and what came of it."""

    names: tuple[str, ...]
    kept: bool
    sums: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What is lowered, by the first results of nodes, and the sums of each region. `whole`: what the whole program costs as it is and with what is kept, if it
    was priced."""

    kept: frozenset[str] = frozenset()
    regions: tuple[Region, ...] = ()
    whole: tuple[Price, Price] | None = None


def profitable(module: Module, candidates: frozenset[str], lower: Lower, arch: Arch, forced: frozenset[str] = frozenset()) -> Decision:
    """What pays among the candidates of a flat module with one pipeline. What is `forced` is kept whatever it costs."""
    (p,) = module.pipelines
    return _Search(module, Web.of(p), candidates, lower, Pricer(arch), forced).run()


@dataclass(frozen=True, slots=True)
class _Verdict:
    """The candidates of a piece that are kept, and the sums, by their places among the nodes of the piece."""

    kept: frozenset[int]
    said: dict[int, str]


@dataclass(slots=True)
class _Search:
    module: Module
    web: Web
    candidates: frozenset[str]
    lower: Lower
    pricer: Pricer
    forced: frozenset[str]
    effort: int = EFFORT
    known: dict[object, _Verdict] = field(default_factory=dict)
    numbers: list[int] = field(default_factory=list)
    """The candidates by number."""

    def run(self) -> Decision:
        self.numbers = [k for k, n in self.web.nodes.items() if n.results[0].name in self.candidates]
        kept: set[int] = set()
        regions: list[Region] = []
        left: list[int] = []
        for piece in self._pieces():
            found = self._piece(piece)
            if found is None:
                left += piece
            else:
                kept |= {piece[k] for k in found.kept}
                regions += self._regions(piece, found)
        if left:
            # As one, by what some of them gain together.
            part = self.web.cut(self.web.around(left[:WHOLE], 1))
            base, after = self._price(part, self.forced), self._price(part, frozenset(map(self._name, left[:WHOLE])) | self.forced)
            kept |= set(left) if pays(base, after) else set()
            regions.append(Region(tuple(map(self._name, left)), pays(base, after), after.instead_of(base)))
        named = frozenset(map(self._name, kept)) | (self.forced & self.candidates)
        if len(self.web.nodes) > WHOLE:
            return Decision(named, tuple(regions))
        base = after = self._price(self.web.pipeline, frozenset())
        if named - self.forced:
            after = self._price(self.web.pipeline, named)
            alone = self._price(self.web.pipeline, self.forced) if self.forced else base
            if not pays(alone, after):
                named = self.forced & self.candidates
                regions = [Region(tuple(map(self._name, self.numbers)), False, f"the whole program: {after.instead_of(alone)}")]
        return Decision(named, tuple(regions), (base, self._price(self.web.pipeline, named) if named else base))

    def _regions(self, piece: Sequence[int], found: _Verdict) -> list[Region]:
        """The nodes of a piece by what was said of them."""
        some: dict[tuple[str, bool], list[str]] = {}
        for k, n in enumerate(piece):
            some.setdefault((found.said[k], k in found.kept), []).append(self._name(n))
        return [Region(tuple(names), kept, sums) for (sums, kept), names in some.items()]

    def _name(self, k: int) -> str:
        return self.web.nodes[k].results[0].name

    # -------------------------------------------------------------------------------------------------------------------- pieces

    def _pieces(self) -> list[list[int]]:
        """The candidates, in pieces of such as are beside each other, or have one other node between them."""
        mine, near = set(self.numbers), {}
        for k in self.numbers:
            near[k] = {m for j in (k, *(j for j in self.web.beside(k) if j not in mine)) for m in self.web.beside(j)} & mine - {k}
        out: list[list[int]] = []
        seen: set[int] = set()
        for first in self.numbers:
            if first in seen:
                continue
            region, todo = [], [first]
            seen.add(first)
            while todo:
                k = todo.pop()
                region.append(k)
                fresh = near[k] - seen
                seen |= fresh
                todo += sorted(fresh)
            region.sort()
            out += [region[at:at + PIECE] for at in range(0, len(region), PIECE)]
        return out

    def _piece(self, piece: Sequence[int]) -> _Verdict | None:
        """What of a piece pays, with what is around it lowered as well; None if no effort is left."""
        mine = {k for k in self.numbers if self._name(k) in self.candidates}
        around = self.web.around(piece, AROUND)
        context = sorted((around & mine) - set(piece))
        cut = sorted(around)
        key = self._form(cut, piece, context)
        if key not in self.known:
            if len(cut) * 2 > self.effort:
                return None
            self.known[key] = self._weigh(self.web.cut(cut), list(piece), frozenset(map(self._name, context)), len(cut))
        return self.known[key]

    def _form(self, cut: Sequence[int], piece: Sequence[int], context: Sequence[int]) -> object:
        """What tells pieces apart: operators, types, and which edge is read where, by number."""
        web, edges = self.web, dict[str, int]()
        here, beside = set(piece), set(context)
        out: list[object] = []
        for k in cut:
            n = web.nodes[k]
            args = tuple((edges.setdefault(a, len(edges)), a in web.params) for a in web.args[k])
            results = tuple((edges.setdefault(e.name, len(edges)), e.name in web.outputs, len(web.readers.get(e.name, ()))) for e in n.results)
            types = (*(web.types[a] for a in web.args[k]), *n.types)
            out.append((n.op, args, results, types, n.attrs, k in here, k in beside, self._name(k) in self.forced))
        return tuple(out)

    def _weigh(self, p: Pipeline, piece: list[int], context: frozenset[str], size: int) -> _Verdict:
        names = [self._name(k) for k in piece]
        must = frozenset(n for n in names if n in self.forced)
        prices: dict[frozenset[str], Price] = {}

        def cost(kept: Iterable[str]) -> Price:
            key = frozenset(kept) | must
            if key not in prices:
                self.effort -= size
                prices[key] = self._price(p, key | context)
            return prices[key]

        base, best = cost(()), frozenset(names)
        said = {n: cost(names).instead_of(base) for n in names}
        while len(best) > len(must) and (len(best) > 1 or not pays(base, cost(best))):
            if size * len(best) > self.effort:
                best = best if pays(base, cost(best)) else must
                break
            less = min((best - {n} for n in sorted(best - must)), key=lambda some: cost(some).seconds)
            # What is not worth it yet is made smaller in any case; else each has to be worth it by itself.
            if pays(base, cost(best)) and pays(cost(less), cost(best)):
                break
            for n in best - less:
                said[n] = cost(best).instead_of(cost(less)) if pays(base, cost(best)) else said[n]
            best = less
        if best - must and not pays(base, cost(best)):
            best = must
        for n in best:
            said[n] = cost(best).instead_of(base)
        place = {n: k for k, n in enumerate(names)}
        return _Verdict(frozenset(place[n] for n in best), {place[n]: text for n, text in said.items()})

    # -------------------------------------------------------------------------------------------------------------------- prices

    def _price(self, p: Pipeline, kept: frozenset[str]) -> Price:
        """What a pipeline costs with some nodes lowered."""
        lowered = self.lower(with_pipeline(self.module, p), kept)
        return self.pricer.price(lowered, frozenset(n.op for q in lowered.pipelines for n in q.nodes if isinstance(n, Node) and is_inserted(n)))


def is_inserted(n: Node) -> bool:
    """Whether a node makes codes or casts, and nothing else."""
    return n.reason is not None and n.reason.startswith(("cast:", "quantize:"))


def pays(base: Price, after: Price) -> bool:
    """Whether a change is clearly faster."""
    gone, new = base.without(after), after.without(base)
    return sum(new) + UNSEEN * len(new) < MARGIN * sum(gone)
