"""Where each local lives on a GPU: evaluated where it is read, by tiles in shared memory (`tiles.py`), or in memory.

As in `place.py`, with other prices: a buffer goes through memory, a kernel more costs as much as some work on every element, and a loop that one thread runs
alone is slow beside one that a block shares.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from math import prod

from pipelink_ir.ir.typed import Tensor, TypedOperator
from pipelink_ir.passes.scheduling.attention import heads
from pipelink_ir.passes.scheduling.costs import Costs, Plan, looping
from pipelink_ir.passes.scheduling.maps import tile_of, word_of
from pipelink_ir.passes.scheduling.place import CONTEXTS, DEEPEST, Context, Expanded, Planner, deepest, evaluations_in, extent
from pipelink_ir.passes.scheduling.products import any_product_of, product_of
from pipelink_ir.passes.scheduling.rows import blocks_of
from pipelink_ir.passes.scheduling.tiles import Tiled, tiled_of
from pipelink_ir.passes.scheduling.wishes import Wishes, wishes_of

LAUNCH = 200_000.0
"""Cost of one more kernel."""
NEAR = 1.5
"""Cost of reading an element from shared memory."""
TRAFFIC = 40.0
"""Cost of writing an element; of tables that stay in the cache …"""
CACHED = 8.0
TABLE = 4096.0
"""… which have at most so many elements."""
AGAIN = 24.0
"""What an entry of such a table costs at most to be computed again wherever it is used, rather than by a kernel that all others wait for."""
LOADED = 4.0
"""Cost of reading an element."""
SHARED = 128.0
"""Places of a product that share what is made of a factor, at most."""
ALONE = 4.0
"""How much slower a loop is that each thread runs for itself."""


class GpuPlanner(Planner):
    """The planner with the prices of a GPU. `stored` are locals that have to lie in memory."""

    def __init__(self, op: TypedOperator, stored: Iterable[str], wishes: Wishes, barred: frozenset[str] = frozenset()) -> None:
        super().__init__(op, frozenset(stored), wishes)
        self.barred = barred
        """Definitions whose kernels stage nothing."""
        self.ring = frozenset(n for g in op.order if g.recurrence for n in g.tensors)
        self.heads = heads(op)
        self.within = frozenset[str]().union(*self.heads.values())

    def run(self) -> Plan:
        """The plan. Whether tiles are possible is sure once it is known where everything lives that they are made of."""
        plan = super().run()
        final = {r: tiled_of(self.op, plan.inline, self.op.tensors[r], (s.tensor for s in way.stages), tile_of(self.wishes.maps(r, 1)[0]))
                 for r, way in plan.tiles.items()}
        failed = {r for r, way in final.items() if way is None}
        if failed:
            return GpuPlanner(self.op, self.copies, self.wishes, self.barred | failed).run()
        plan = replace(plan, tiles={r: way for r, way in final.items() if way is not None})
        return replace(plan, tiles={**plan.tiles, **self._brought(plan)})

    def _brought(self, plan: Plan) -> dict[str, Tiled]:
        """Stencils that stage no local, and are asked to read from shared memory. Threads that keep a run in registers are faster by themselves: they need not
        wait for one another."""
        out: dict[str, Tiled] = {}
        for step in plan.steps:
            t = self.op.tensors[step.tensors[0]]
            wish = self.wishes.maps(t.name, 1)[0] if len(t.pieces) == 1 else None
            if wish is None or word_of(wish) != "tile" or step.recurrence or len(step.tensors) > 1 or t.name in {*plan.tiles, *self.barred, *self.heads}:
                continue
            found = tiled_of(self.op, plan.inline, t, (), tile_of(wish))
            if found is not None:
                out[t.name] = found
        return out

    def hopeful(self, name: str) -> bool:
        """Whether a tensor may turn out to be evaluated where it is read."""
        t = self.op.tensors[name]
        return t.kind == "local" and name not in self.ring and name not in self.copies and self.wishes.place(name) != "buffer"

    def outer(self, t: Tensor) -> int:
        """In a kernel of blocks the axes that have blocks, if they are the first ones; else all run as one. Products of matrices are worth reductions of rows
        that are stored before."""
        rank = len(t.shape)
        if t.name in self.ring or len(t.pieces) != 1:
            return rank
        if product_of(self.op, self.hopeful, t.pieces[0], alone=False) is not None:
            return rank
        shape = blocks_of(self.op, self.hopeful, (t, t.pieces[0]))
        first = shape is not None and shape.axes == tuple(range(len(shape.axes)))
        return len(shape.axes) if shape is not None and first else rank

    def prices(self, ring: set[str]) -> Expanded:
        """A local that loops is computed once for many reads, or loaded."""
        return Expanded(self.op, ring, LOADED)

    def best(self, t: Tensor, costs: Costs, fails: bool) -> str:
        """`inline` or `buffer`."""
        contexts = list(self.contexts.get(t.name, {}).values())
        asked = self.asked(t, contexts, fails)
        if asked == "tile" and not self.tile(t, contexts):
            self.wishes.refuse(t.name, "at", f"'%{t.name}' is not read at constant distances by one definition alone, with rims that shared memory holds",
                               "write 'place = buffer', or leave the line out")
        elif asked is not None:
            return asked
        if t.name in self.heads or t.name in self.within:
            return "buffer" if t.name in self.heads else "inline"
        if len(contexts) > CONTEXTS or max(c.depth for c in contexts) >= DEEPEST:
            return "buffer"
        cost = sum(costs.of(p.value) for p in t.pieces)
        loops = any(looping(p.value) for p in t.pieces)
        elements = prod(extent(t, k) for k in range(len(t.shape)))
        if not loops and elements <= TABLE and cost <= AGAIN:
            return "inline"
        shared = self._for_tiles if t.dtype.is_int and not loops else lambda c: 1.0
        times = [(evaluations_in(c, loops) / shared(c), loops and deepest(c) >= c.outer) for c in contexts]
        inline = sum(cost * n * (ALONE if alone else 1.0) for n, alone in times)
        traffic = TRAFFIC if elements > TABLE else CACHED
        stored = elements * (cost + traffic) + sum(n for n, _ in times) * LOADED + LAUNCH
        if inline <= stored:
            return "inline"
        return "tile" if self.tile(t, contexts, lambda rim: rim * cost + sum(n for n, _ in times) * NEAR < stored) else "buffer"

    def _for_tiles(self, c: Context) -> float:
        """How many places of a product share what one factor of it is made of, which goes to shared memory by tiles."""
        root, used = self.op.tensors[c.root], frozenset[int]().union(*c.axes)
        p = any_product_of(self.op, self.hopeful, root.pieces[0]) if len(root.pieces) == 1 and used and max(used) >= len(root.shape) else None
        for mine, others in ((p.rows, p.columns), (p.columns, p.rows)) if p is not None else ():
            if used.isdisjoint(mine) and not used.isdisjoint(others):
                return min(SHARED, prod(c.extents[k] for k in mine))
        return 1.0

    def tile(self, t: Tensor, contexts: list[Context], pays: Callable[[float], bool] = lambda _: True) -> bool:
        """Whether the one kernel that reads a local stages it by tiles; so noted if it does. `pays` is asked with how many places are computed."""
        roots = {c.root for c in contexts}
        root = self.op.tensors[next(iter(roots))] if len(roots) == 1 else None
        if root is None or root.name in self.ring or root.name in self.barred or root.name in self.heads or t.name in self.within:
            return False
        wish = self.wishes.maps(root.name, 1)[0]
        if wish is not None and word_of(wish) != "tile":
            return False
        members = [t.name, *(n for n, r in self.staged.items() if r == root.name)]
        found = tiled_of(self.op, lambda n: self.place[n] == "inline", root, members, tile_of(wish))
        if found is None:
            return False
        whole = prod(extent(root, k) for k in found.whole)
        keep = next(s.keep for s in found.stages if s.tensor == t.name)
        if wish is None and not pays(prod(extent(root, k) for k in range(len(root.shape))) / whole * keep * found.rim(t.name)):
            return False
        self.tiles[root.name] = found
        self.staged[t.name] = root.name
        return True


def gpu_plan(op: TypedOperator, stored: Iterable[str], wishes: Wishes | None = None) -> Plan:
    """Places and steps of an operator on a GPU."""
    return GpuPlanner(op, stored, wishes or wishes_of(op.op, "cuda")).run()
