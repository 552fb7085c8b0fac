"""Where each local lives, and what is computed in one go: the default schedule.

A local is evaluated where it is read (`inline`) unless that means more work than computing it once and loading it: for a row of the one kernel that reads it,
into scratch (`row`), or as a whole into a buffer (`buffer`). Work is counted as cost times the number of evaluations, which takes into account that what does
not depend on inner loops is computed outside them. `schedule { %x { place = … } }` decides instead where it is written. What may fail at run time is always
inline: elsewhere a place that nobody reads could fail.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from pipelink_ir.ir.nodes import Apply, Expr, Name, Read, Reduce
from pipelink_ir.ir.typed import Tensor, TypedOperator
from pipelink_ir.ir.walk import children
from pipelink_ir.passes.scheduling.costs import STORED, Costs, Plan, looping
from pipelink_ir.passes.scheduling.counts import GUESS, count, guess, known, names, ranges_of, unrolled
from pipelink_ir.passes.scheduling.risks import may_fail
from pipelink_ir.passes.scheduling.steps import steps
from pipelink_ir.passes.scheduling.tiles import Tiled
from pipelink_ir.passes.scheduling.wishes import Wishes, wishes_of

DEEPEST = 256
"""Locals inside locals inside locals: beyond this a buffer. What fusion makes of its most nodes is not so deep."""
CONTEXTS = 64
"""Different places of evaluation that are told apart; more than that is more than inlining is worth."""
MOST_CONTEXTS = 256
"""… and more than this is refused even where it is asked for."""
_LAUNCH = 4000.0
"""Cost of one more kernel."""


@dataclass(frozen=True, slots=True)
class Context:
    """One place where a tensor is evaluated: the extents of the loops around it, how many of them are outer loops that run as one, and for each axis of the
    tensor the loops that its index depends on."""

    extents: tuple[float, ...]
    outer: int
    axes: tuple[frozenset[int], ...]
    depth: int
    keys: tuple[int, ...]
    """What tells reads at different indices apart, for each axis: equal reads share one evaluation."""
    root: str
    """The stored tensor whose kernel this is."""


@dataclass(slots=True)
class Planner:
    op: TypedOperator
    copies: frozenset[str]
    wishes: Wishes
    place: dict[str, str] = field(default_factory=dict)
    contexts: dict[str, dict[tuple[str, tuple[int, ...]], Context]] = field(default_factory=dict)
    roots: dict[str, str] = field(default_factory=dict)
    tiles: dict[str, Tiled] = field(default_factory=dict)
    staged: dict[str, str] = field(default_factory=dict)
    """For each local that a block keeps a tile of, the stored tensor that the tile is one of."""

    def run(self) -> Plan:
        for t in self.op.tensors.values():
            self.place[t.name] = "operand" if t.kind == "operand" else "buffer"
        ring = {n for g in self.op.order if g.recurrence for n in g.tensors}
        for t in self.op.tensors.values():
            if t.kind != "local" or t.name in ring or t.name in self.copies:
                self.wishes.stored(t, t.name in ring)
        costs = Costs(self.op, self.prices(ring))
        fails = self._failing(ring)
        for group in reversed(self.op.order):
            for name in reversed(group.tensors):
                t = self.op.tensors[name]
                if t.kind == "local" and name not in ring and name not in self.copies:
                    self.place[name] = self.best(t, costs, name in fails)
                self._spread(t)
        return Plan(self.place, steps(self.op, self.place, self.wishes, self.tiles), self.roots, self.tiles)

    # ------------------------------------------------------------------------------------------------------------------ costs

    def _failing(self, ring: set[str]) -> set[str]:
        """Locals whose evaluation may fail at run time."""
        out: set[str] = set()
        for group in self.op.order:
            for name in group.tensors:
                t = self.op.tensors[name]
                if t.kind == "local" and name not in ring and any(may_fail(p.value, out, self.op.empty is None) for p in t.pieces):
                    out.add(name)
        return out

    def best(self, t: Tensor, costs: Costs, fails: bool) -> str:
        contexts = list(self.contexts.get(t.name, {}).values())
        asked = self.asked(t, contexts, fails)
        if asked is not None:
            return asked
        if len(contexts) > CONTEXTS or max(c.depth for c in contexts) >= DEEPEST:
            return "buffer"
        cost = sum(costs.of(p.value) for p in t.pieces)
        loops = any(looping(p.value) for p in t.pieces)
        elements = prod(extent(t, k) for k in range(len(t.shape)))
        evaluations = sum(evaluations_in(c, loops) for c in contexts)
        # A buffer of the size of the results goes through memory; rows and tables stay in the cache.
        traffic = 20.0 if elements >= GUESS * GUESS else 2.0
        work = {"inline": cost * evaluations, "buffer": elements * (cost + traffic) + evaluations * STORED + _LAUNCH}
        root = self._row_of(t, contexts)
        if root is not None:
            work["row"] = elements * (cost + 2.0) + evaluations * STORED
        best = min(work, key=lambda w: work[w])
        if best == "row" and root is not None:
            self.roots[t.name] = root
        return best

    def _row_of(self, t: Tensor, contexts: list[Context]) -> str | None:
        """The stored tensor of whose rows this is a part: it is read in that kernel alone, always at the row that is being computed."""
        root = self.op.tensors[contexts[0].root]
        outer = len(root.shape) - 1
        last = count(root.pieces[0].axes[-1]) if outer >= 1 else 0
        if outer < 1 or len(t.shape) <= outer or len(root.pieces) != 1 or len(t.pieces) != 1 or (last is not None and last < 8):
            return None
        row = tuple(hash((root.name, k)) for k in range(outer))
        alike = all(c.root == root.name and c.keys[:outer] == row for c in contexts) and t.shape[:outer] == root.shape[:outer]
        return root.name if alike and not any(root.name in g.tensors for g in self.op.order if g.recurrence) else None

    def prices(self, ring: set[str]) -> Expanded:
        """What reads of locals cost."""
        return Expanded(self.op, ring)

    def asked(self, t: Tensor, contexts: list[Context], fails: bool) -> str | None:
        """The place that is written for a local, or that it must have; None if it is to be chosen."""
        word = self.wishes.place(t.name)
        if fails or not contexts:
            if fails and word not in (None, "inline"):
                self.wishes.refuse(t.name, "place", f"'%{t.name}' may fail at run time, so it is evaluated only where it is read", "write 'place = inline'")
            return "inline"
        if word == "inline" and (len(contexts) > MOST_CONTEXTS or max(c.depth for c in contexts) >= DEEPEST):
            self.wishes.refuse(t.name, "place", f"'%{t.name}' would be written out in {len(contexts)} places", "write 'place = buffer'")
            return None
        if word == "row":
            root = self._row_of(t, contexts)
            if root is None:
                self.wishes.refuse(t.name, "place", f"'%{t.name}' is not read by the rows of one definition, so that no row of it can be kept",
                                   "write 'place = inline' or 'place = buffer'")
                return None
            self.wishes.loop(t.name, self.op.tensors[root], len(self.op.tensors[root].shape) - 2)
            self.roots[t.name] = root
        return word

    # --------------------------------------------------------------------------------------------------------------- contexts

    def outer(self, t: Tensor) -> int:
        """How many loops over a stored tensor run as one, outside of which nothing is computed."""
        return max(1, len(t.shape) - 1) if t.shape else 0

    def _spread(self, t: Tensor) -> None:
        """Notes where the locals that `t` reads are evaluated."""
        rank = len(t.shape)
        if self.place[t.name] == "inline":
            around = list(self.contexts.get(t.name, {}).values())
        else:
            extents = tuple(extent(t, k) for k in range(rank))
            root = self.staged.get(t.name) or self.roots.get(t.name, t.name)
            outer = rank if t.name in self.staged else len(self.op.tensors[root].shape) - 1 if root != t.name else self.outer(t)
            keys = tuple(hash((root if k < outer else t.name, k)) for k in range(rank))
            around = [Context(extents, outer, tuple(frozenset((k,)) for k in range(rank)), 0, keys, root)]
        for piece in t.pieces:
            for c in around:
                extents = c.extents[:max(deepest(c) + 1, c.outer)] if self.place[t.name] == "inline" else c.extents
                inner = Context(extents, c.outer, c.axes, c.depth + 1, c.keys, c.root)
                self._walk(piece.value, inner, {a.index: (used, key) for a, used, key in zip(piece.axes, c.axes, c.keys, strict=True)})

    def _walk(self, x: Expr, c: Context, env: Names) -> None:
        if isinstance(x, Read) and self.op.tensors[x.tensor].kind == "local":
            axes = tuple(frozenset[int]().union(*(env[n][0] for n in names(i) if n in env)) for i in x.indices)
            at = Context(c.extents, c.outer, axes, c.depth, tuple(_key(i, env) for i in x.indices), c.root)
            self.contexts.setdefault(x.tensor, {}).setdefault((at.root, at.keys), at)
        if isinstance(x, Reduce):
            # A reduction stands outside the loops on whose indices it does not depend.
            used = [d for n in names(x) if n in env for d in env[n][0]]
            extents = c.extents[:max([c.outer - 1, *used]) + 1]
            inner = dict(env)
            for r in ranges_of(x):
                # Terms that are written out share what they read with other reductions, loops do not.
                key = hash((r.index, r.lo, r.hi)) if unrolled(x) else hash(id(r))
                inner[r.index] = (frozenset((len(extents),)), key)
                extents = (*extents, guess(r))
            c, env = Context(extents, c.outer, c.axes, c.depth, c.keys, c.root), inner
        for part in children(x):
            self._walk(part, c, env)


Names = dict[str, tuple[frozenset[int], int]]
"""Indices in sight: the loops that they depend on, and what tells them apart."""


def _key(x: Expr, env: Names) -> int:
    """What tells an index apart from others: its text with names replaced by what they stand for."""
    if isinstance(x, Name):
        return env[x.name][1] if x.name in env else hash(x.name)
    own: object = (x.fn if isinstance(x, Apply) else x.tensor if isinstance(x, Read) else x if not children(x) else type(x).__name__)
    return hash((own, *(_key(c, env) for c in children(x))))


class Expanded:
    """What a read of a local costs before it is known where it lives: what its value costs, but not more than a moderate function, or than `looped` if
    it loops."""

    def __init__(self, op: TypedOperator, ring: set[str], looped: float = 12.0) -> None:
        self.op, self.ring, self.looped = op, ring, looped
        self.memo: dict[str, float] = {}
        self.costs = Costs(op, self)

    def __call__(self, name: str) -> float:
        t = self.op.tensors[name]
        if t.kind != "local" or name in self.ring:
            return STORED
        if name not in self.memo:
            self.memo[name] = STORED
            most = self.looped if any(looping(p.value) for p in t.pieces) else 12.0
            self.memo[name] = max(STORED, min(most, sum(self.costs.of(p.value) for p in t.pieces)))
        return self.memo[name]


def plan(op: TypedOperator, copies: frozenset[str] = frozenset(), wishes: Wishes | None = None) -> Plan:
    """The schedule of an operator, by default where none is written. `copies` are locals that exist for their order in memory."""
    return Planner(op, copies, wishes or wishes_of(op.op, "cpu")).run()


def extent(t: Tensor, k: int) -> float:
    lo, hi = known(t.shape[k][0]), known(t.shape[k][1])
    return GUESS if lo is None or hi is None else float(max(0, hi - lo))


def deepest(c: Context) -> int:
    used = [d for a in c.axes for d in a]
    # Outer loops run as one: what depends on one of them is evaluated in each turn of all.
    return max([*used, *([c.outer - 1] if used and min(used) < c.outer else [])], default=-1)


def evaluations_in(c: Context, loops: bool) -> float:
    """How often a value is computed in a context; one that loops is never moved out of the parallel loop."""
    innermost = max(deepest(c), c.outer - 1 if loops else -1)
    return prod(c.extents[:innermost + 1])
