"""What fusion pays: bytes that move, operations, launches, against what the device does in a second.

The time of an operator is a launch for each shape that it stores, and of two, its bytes over the rate of memory and its operations over the rate of
arithmetic, the longer and half of the shorter, since they overlap in part: all of both where all tiles run at once, since nobody computes while all load. What
one kernel leaves in the cache for the next moves at the rate of the cache.

One operator instead of two saves the reading of each edge between them, its writing too where nobody else reads it, one reading of what both read, and a
launch where both store one shape. It costs operations where values are computed more than once: a value that is read at k places and not staged is computed
k times; one that is staged by blocks is computed again at their rims; one that two kernels need in each of them, which then reads what it is made of.
What goes into a recurrence is computed by as few threads as that has. Sizes that are not known before the call are taken for `GUESS`.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.evaluate import CannotEvaluate, evaluate_int
from pipelink_ir.ir.nodes import Expr, IntLit, Name, Node, Operator, Pipeline, TensorType
from pipelink_ir.ir.shapes import ShapeMismatch, bind_shapes
from pipelink_ir.ir.walk import names_in
from pipelink_ir.passes.fusion.facts import Amount, Facts

GUESS = 256
"""What a size that is not known is taken for."""
TILE = 32
"""A block computes a tile of so many places a side: what is read around it is computed again by its neighbours."""
PRODUCT_TILE = 64
"""A product of matrices reads each factor once for so many rows or columns of the other."""


@dataclass(frozen=True, slots=True)
class DeviceModel:
    """A kind of device. The numbers are measured ones of an H200 and of a CPU with two cores; what decides is mostly their ratio."""

    name: str
    bandwidth: float
    """Bytes a second, to and from memory."""
    arithmetic: float
    """Operations a second, an addition of f32 being one."""
    launch: float
    """Seconds that one more kernel takes."""
    latency: float
    """Seconds until an operation that waits for the one before it is done."""
    shared: int
    """Bytes that a block keeps close to it."""
    blocks: int
    """So many blocks keep the device busy."""
    places: int
    """So many values computed at once keep its arithmetic busy."""
    cache: int
    """Bytes of an edge that are still there when the next kernel reads it."""
    near: float
    """Bytes a second, to and from there."""
    runs: tuple[int, int] | None = None
    """Rows and columns of places whose reads of one value a thread shares, if it does."""


GPU = DeviceModel("cuda", 4.2e12, 30e12, 3e-6, 2e-9, 160 << 10, 132, 1 << 14, 16 << 20, 7e12, (8, 4))
CPU = DeviceModel("cpu", 27e9, 35e9, 2e-6, 1e-9, 512 << 10, 2, 16, 0, 27e9)
DEVICES: Mapping[str, DeviceModel] = {"cuda": GPU, "cpu": CPU}


@dataclass(frozen=True, slots=True)
class Sums:
    """What one operator moves and computes, in how many kernels."""

    bytes: float
    work: float
    launches: int = 1
    near: float = 0.0
    """Bytes among them that the cache has."""
    waits: bool = False
    """Whether all blocks run at once."""

    def plus(self, other: Sums) -> Sums:
        """Both together."""
        return Sums(self.bytes + other.bytes, self.work + other.work, self.launches + other.launches, self.near + other.near, self.waits or other.waits)

    def seconds(self, device: DeviceModel) -> float:
        memory, arithmetic = (self.bytes - self.near) / device.bandwidth + self.near / device.near, self.work / device.arithmetic
        return self.launches * device.launch + max(memory, arithmetic) + min(memory, arithmetic) / (1 if self.waits else 2)


NOTHING = Sums(0.0, 0.0, 0)


def compare(apart: tuple[Sums, ...], one: Sums, device: DeviceModel, slow: bool = False) -> tuple[bool, str]:
    """Whether one kernel takes less time than several, and the sums as text. `slow`: not the operations are more, but how long they take."""
    before, after = sum(s.seconds(device) for s in apart), one.seconds(device)
    old, work = sum(s.bytes for s in apart), sum(s.work for s in apart)
    text = f"{microseconds(after)} instead of {microseconds(before)}, {round(one.bytes)} bytes instead of {round(old)}"
    if work and one.work > 1.005 * work:
        text += f", {one.work / work:.3g} times {'as long for arithmetic' if slow else 'the operations'}"
    return after < before, text


def microseconds(seconds: float) -> str:
    for unit, name in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds * 1e6:.3g} us"


# -------------------------------------------------------------------------------------------------------------------------- sizes


@dataclass(frozen=True, slots=True)
class NodeSums:
    """One call: operations, elements of each result, and how often each argument's elements are evaluated while all results are computed."""

    work: float
    elements: tuple[int, ...]
    evaluations: tuple[float, ...]
    """By argument."""


class Sizes:
    """Sizes of the edges of one pipeline, with guesses for what is not known."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.env: dict[str, int] = {}
        for a in pipeline.attributes:
            if a.type == "dim" and isinstance(a.default, IntLit):
                self.env[a.name] = a.default.value
        self._shapes: dict[TensorType, tuple[tuple[int, ...], int, bool, TensorType]] = {}
        self._nodes: dict[tuple[object, ...], NodeSums] = {}

    def _of(self, t: TensorType) -> tuple[tuple[int, ...], int, bool, TensorType]:
        """Sizes, their product, whether one is guessed, and one object for all equal types."""
        found = self._shapes.get(t)
        if found is None:
            shape = tuple(self.number(d) for d in t.dims)
            found = self._shapes[t] = shape, prod(shape), any(not isinstance(d, IntLit) for d in t.dims), t
        return found

    def one(self, t: TensorType) -> TensorType:
        """The same object for equal types."""
        return self._of(t)[3]

    def shape(self, t: TensorType) -> tuple[int, ...]:
        return self._of(t)[0]

    def guessed(self, t: TensorType) -> bool:
        """Whether a size of it is not known."""
        return self._of(t)[2]

    def elements(self, t: TensorType) -> int:
        return self._of(t)[1]

    def bytes(self, t: TensorType) -> int:
        return self._of(t)[1] * DTYPES[t.dtype].bytes

    def number(self, dim: Expr) -> int:
        if isinstance(dim, IntLit):
            return dim.value
        for n in names_in(dim):
            self.env.setdefault(n, GUESS)
        try:
            return max(1, evaluate_int(dim, self.env))
        except CannotEvaluate:
            return GUESS

    def node(self, n: Node, op: Operator, facts: Facts, args: tuple[TensorType, ...]) -> NodeSums:
        """The sums of one call; calls of one operator with the same sizes share them."""
        dims = {a.name for a in op.attributes if a.type == "dim"}
        key = (op.name, *map(id, args), *(id(self.one(t)) for t in n.types), *(s.value for s in n.attrs if s.key in dims))
        found = self._nodes.get(key)
        if found is None:
            env = self.bind(n, op, args)
            work = sum(amount(a, env) for a in facts.work)
            evaluations = tuple(sum(amount(a, env) for a in facts.evaluations.get(o.name, ())) for o in op.operands)
            found = self._nodes[key] = NodeSums(work, tuple(self.elements(t) for t in n.types), evaluations)
        return found

    def bind(self, n: Node, op: Operator, args: tuple[TensorType, ...]) -> dict[str, int]:
        """The sizes of an operator at a node."""
        env: dict[str, int] = {}
        dims = {a.name for a in op.attributes if a.type == "dim"}
        for s in n.attrs:
            if s.key in dims and isinstance(s.value, Expr):
                env[s.key] = self.number(s.value)
        try:
            bind_shapes([(o.type, self.shape(t)) for o, t in zip(op.operands, args, strict=True)], env)
        except ShapeMismatch:
            pass    # guesses that do not fit each other: what is left is guessed as well
        return env


def amount(a: Amount, env: Mapping[str, int]) -> float:
    """An amount for given sizes."""
    total = a.each
    for r in a.ranges:
        total *= max(0, value_of(r.hi, env) - (0 if r.lo is None else value_of(r.lo, env)))
    return total


def value_of(x: Expr, env: Mapping[str, int]) -> int:
    """A size, guessed where it is not known."""
    if isinstance(x, IntLit):
        return x.value
    if isinstance(x, Name) and x.name in env:
        return env[x.name]
    try:
        return evaluate_int(x, env)
    except CannotEvaluate:
        return GUESS if isinstance(x, Name) or not names_in(x) else _guessed(x, env)


def _guessed(x: Expr, env: Mapping[str, int]) -> int:
    try:
        return evaluate_int(x, {**dict.fromkeys(names_in(x), GUESS), **env})
    except CannotEvaluate:
        return GUESS
