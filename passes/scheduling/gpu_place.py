"""Where each local lives on a GPU: evaluated where it is read, or in memory.

As in `place.py`, with other prices: a buffer goes through memory, a kernel more costs as much as some work on every element, and a loop that one thread runs
alone is slow beside one that a block shares.
"""
from __future__ import annotations

from collections.abc import Iterable
from math import prod

from pipelink_ir.ir.typed import Tensor, TypedOperator
from pipelink_ir.passes.scheduling.attention import heads
from pipelink_ir.passes.scheduling.costs import Costs, Plan, looping
from pipelink_ir.passes.scheduling.place import CONTEXTS, DEEPEST, Expanded, Planner, deepest, evaluations_in, extent
from pipelink_ir.passes.scheduling.products import product_of
from pipelink_ir.passes.scheduling.shape import shape_of
from pipelink_ir.passes.scheduling.wishes import Wishes, wishes_of

LAUNCH = 200_000.0
"""Cost of one more kernel."""
TRAFFIC = 40.0
"""Cost of writing an element; of tables that stay in the cache …"""
CACHED = 8.0
TABLE = 4096.0
"""… which have at most so many elements."""
AGAIN = 24.0
"""What an entry of such a table costs at most to be computed again wherever it is used, rather than by a kernel that all others wait for."""
LOADED = 4.0
"""Cost of reading an element."""
ALONE = 4.0
"""How much slower a loop is that each thread runs for itself."""


class GpuPlanner(Planner):
    """The planner with the prices of a GPU. `stored` are locals that have to lie in memory."""

    def __init__(self, op: TypedOperator, stored: Iterable[str], wishes: Wishes) -> None:
        super().__init__(op, frozenset(stored), wishes)
        self.ring = frozenset(n for g in op.order if g.recurrence for n in g.tensors)
        self.heads = heads(op)
        self.within = frozenset[str]().union(*self.heads.values())

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
        shape = shape_of(self.op, self.hopeful, t.pieces[0])
        first = shape.axes == tuple(range(len(shape.axes)))
        return len(shape.axes) if shape.kind == "block" and first else rank

    def prices(self, ring: set[str]) -> Expanded:
        """A local that loops is computed once for many reads, or loaded."""
        return Expanded(self.op, ring, LOADED)

    def best(self, t: Tensor, costs: Costs, fails: bool) -> str:
        """`inline` or `buffer`."""
        contexts = list(self.contexts.get(t.name, {}).values())
        asked = self.asked(t, contexts, fails)
        if asked is not None:
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
        times = [(evaluations_in(c, loops), loops and deepest(c) >= c.outer) for c in contexts]
        inline = sum(cost * n * (ALONE if alone else 1.0) for n, alone in times)
        traffic = TRAFFIC if elements > TABLE else CACHED
        stored = elements * (cost + traffic) + sum(n for n, _ in times) * LOADED + LAUNCH
        return "inline" if inline <= stored else "buffer"


def gpu_plan(op: TypedOperator, stored: Iterable[str], wishes: Wishes | None = None) -> Plan:
    """Places and steps of an operator on a GPU."""
    return GpuPlanner(op, stored, wishes or wishes_of(op.op, "cuda")).run()
