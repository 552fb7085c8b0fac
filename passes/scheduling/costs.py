"""What evaluating an expression costs, in units of about one vectorised addition, and whether it may be evaluated unasked."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf, prod
from typing import TYPE_CHECKING

from pipelink_ir.ir.functions import REDUCTIONS
from pipelink_ir.ir.nodes import Apply, Expr, Read, Reduce
from pipelink_ir.ir.typed import Piece, Tensor, TypedOperator
from pipelink_ir.ir.walk import children, reads_in
from pipelink_ir.passes.scheduling.counts import guess, ranges_of, terms, unrolled
from pipelink_ir.passes.scheduling.risks import power_may_fail

if TYPE_CHECKING:
    from pipelink_ir.passes.scheduling.tiles import Tiled

_COST = {"/": 3.0, "sqrt": 4.0, "rsqrt": 5.0, "exp": 10.0, "exp2": 10.0, "expm1": 15.0, "log": 10.0, "log2": 10.0, "log1p": 15.0,
         "logaddexp": 30.0, "pow": 25.0, "sin": 20.0, "cos": 20.0, "tan": 25.0, "tanh": 15.0, "sigmoid": 15.0, "erf": 20.0, "atan2": 30.0,
         "gelu_f16": 17.0, "gelu_bf16": 19.0, "gelu_tanh_f16": 9.0, "gelu_tanh_bf16": 12.0, "mod": 4.0, "floordiv": 4.0, "ceildiv": 5.0, "**": 4.0}
STORED = 1.0
"""Cost of a load."""


def cost_of(fn: str) -> float:
    """What a function costs, without its arguments."""
    return _COST.get(fn, 1.0)


@dataclass(frozen=True, slots=True)
class Step:
    """What one set of kernels computes: tensors over one box whose elements are computed side by side, or a group with a recurrence."""

    tensors: tuple[str, ...]
    recurrence: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """The default schedule of one operator: where each tensor lives (`operand`, `buffer`, `row`, `tile`, `inline`), and the steps in order."""

    place: dict[str, str]
    steps: tuple[Step, ...]
    roots: dict[str, str]
    """For each tensor that is kept a row at a time, the stored tensor of whose rows it is a part."""
    tiles: Mapping[str, Tiled] = field(default_factory=dict)
    """For each stored tensor whose kernel stages locals by tiles how it does."""

    def place_of(self, tensor: str) -> str:
        return self.place[tensor]

    def inline(self, tensor: str) -> bool:
        """Whether a tensor is evaluated where it is read."""
        return self.place[tensor] == "inline"

    def local(self, tensor: str) -> bool:
        """Whether the kernel that reads a tensor computes it itself: what it reads in turn is read by that kernel."""
        return self.place[tensor] in ("inline", "row", "tile")


class Costs:
    """Costs of values. `expanded` is what a read of a local costs."""

    def __init__(self, op: TypedOperator, expanded: Callable[[str], float]) -> None:
        self.op, self.expanded = op, expanded
        self.memo: dict[int, float] = {}

    def of(self, x: Expr) -> float:
        found = self.memo.get(id(x))
        if found is None:
            found = self.memo[id(x)] = self._of(x)
        return found

    def _of(self, x: Expr) -> float:
        if isinstance(x, Read):
            index = 0.1 * sum(map(self.of, x.indices)) + sum(0.5 for a in x.access if a in ("border", "check"))
            return index + self.expanded(x.tensor)
        if isinstance(x, Reduce):
            one = self.of(x.body) + (self.of(x.where) if x.where is not None else 0.0) + (10.0 if REDUCTIONS[x.kind].ranked else 1.0)
            return one * prod(map(guess, ranges_of(x)))
        own = _COST.get(x.fn, 1.0) if isinstance(x, Apply) else 0.0
        return own + sum(map(self.of, children(x)))


def looping(x: Expr) -> bool:
    """Whether an expression itself contains a reduction that becomes a loop or is long."""
    if isinstance(x, Reduce) and not unrolled(x):
        return True
    return any(map(looping, children(x)))


def heavy(op: TypedOperator, inline: Callable[[str], bool], p: Piece) -> bool:
    """Whether an element takes a loop of its own, in the piece or in a local that is evaluated in it."""
    memo: dict[str, bool] = {}

    def loops(x: Expr) -> bool:
        return looping(x) or any(local(r.tensor) for r in reads_in(x) if inline(r.tensor))

    def local(name: str) -> bool:
        if name not in memo:
            memo[name] = False
            memo[name] = any(loops(q.value) for q in op.tensors[name].pieces)
        return memo[name]

    return loops(p.value)


class Quietness:
    """The cost of what may be evaluated unasked, infinite for what may not: loops, and reads that might fault."""

    def __init__(self, op: TypedOperator, plan: Plan, full: Callable[[Expr, Expr], bool]) -> None:
        self.op, self.plan, self.full = op, plan, full
        self.memo: dict[int, float] = {}
        self.tensors: dict[str, float] = {}
        self.memory: dict[str, bool] = {}

    def cost(self, x: Expr) -> float:
        found = self.memo.get(id(x))
        if found is None:
            found = self.memo[id(x)] = self._cost(x)
        return found

    def tensor(self, t: Tensor) -> float:
        """The cost of a local that is evaluated where it is read."""
        if t.name not in self.tensors:
            self.tensors[t.name] = inf
            if len(t.pieces) == 1 or not any(self._reads_memory(p.value) for p in t.pieces):
                self.tensors[t.name] = sum(self.cost(p.value) for p in t.pieces)
        return self.tensors[t.name]

    def _reads_memory(self, x: Expr) -> bool:
        """Whether a piece loads anything: what it reads is inside only where the piece is."""
        if isinstance(x, Read):
            if not self.plan.inline(x.tensor):
                return True
            if x.tensor not in self.memory:
                self.memory[x.tensor] = any(self._reads_memory(p.value) for p in self.op.tensors[x.tensor].pieces)
            if self.memory[x.tensor]:
                return True
        return any(map(self._reads_memory, children(x)))

    def _cost(self, x: Expr) -> float:
        if isinstance(x, Reduce):
            n = terms(x)
            if not unrolled(x) or n is None or (n == 0 and REDUCTIONS[x.kind].empty == "error"):
                return inf
            part = 0.0 if x.where is None else self.cost(x.where)
            return n * (self.cost(x.body) + part + 1.0)
        own = _COST.get(x.fn, 1.0) if isinstance(x, Apply) else 0.0
        if power_may_fail(x):
            return inf
        if isinstance(x, Read):
            own = self._read(x)
        return own + sum(map(self.cost, children(x)))

    def _read(self, x: Read) -> float:
        t = self.op.tensors[x.tensor]
        for k, word in enumerate(x.access):
            if word in ("guarded", "check"):
                return inf
            if word == "border" and not self.full(*t.shape[k]):
                return inf
        return self.tensor(t) if self.plan.inline(t.name) else STORED
