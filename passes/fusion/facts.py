"""What fusion looks at in one operator: how each result reads each operand, how much is computed, and what its kernels are shaped by. Found once for each
operator, for all sizes.

`Dim` says how one axis of an operand is walked through while a result is computed: along an axis of the result with an interval of constant offsets (`h - 1`,
`h`, `h + 1` are axis h with -1..1), as a whole (an index of a long sum, or one that depends on data), or by an index that depends on axes in some other way.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from pipelink_ir.ir.nodes import Apply, Cast, Expr, IntLit, Name, Operator, Range, Read, Reduce
from pipelink_ir.ir.typed import Piece, Tensor, TypedOperator
from pipelink_ir.ir.walk import children, deep, walk
from pipelink_ir.passes.infer.operator import KEPT, typed_operator
from pipelink_ir.passes.scheduling.costs import cost_of
from pipelink_ir.passes.scheduling.counts import bounds, count, names, ranges_of, terms, unrolled
from pipelink_ir.passes.scheduling.risks import may_fail
from pipelink_ir.passes.scheduling.shape import long_reductions

WINDOW = 64
"""A reduction of at most so many terms is a window that moves with its axis; a longer one reads the whole axis."""


MATRIX = 16
"""What has fewer rows, columns or terms is not computed as a product of matrices."""


@dataclass(frozen=True, slots=True)
class Dim:
    """How one axis of an operand is walked through. With an `axis` (of the result): `step` times its index plus low..high. Without: one place, or, as a
    `whole`, many. `depends` are the axes that an index which is no such sum depends on. `tag` tells constant offsets of unknown size apart."""

    axis: int | None = None
    step: int = 1
    low: int = 0
    high: int = 0
    tag: str = ""
    whole: bool = False
    depends: frozenset[int] = frozenset()

    @property
    def plain(self) -> bool:
        """Whether each place is read by one place of the result."""
        return self.axis is not None and self.low == self.high and self.step in (1, -1)


Dims = tuple[Dim, ...]
WHOLE = Dim(None, whole=True)


@dataclass(frozen=True, slots=True)
class Amount:
    """A number that depends on sizes: `each` for every turn of the ranges."""

    ranges: tuple[Range, ...]
    each: float


@dataclass(slots=True)
class Facts:
    """One operator. `access` has (result, operand); `inside` says for each result which of its axes the threads of a block share."""

    access: dict[tuple[str, str], Dims] = field(default_factory=dict)
    evaluations: dict[str, list[Amount]] = field(default_factory=dict)
    work: list[Amount] = field(default_factory=list)
    inside: dict[str, frozenset[int]] = field(default_factory=dict)
    product: bool = False
    """Whether it is a product of matrices."""
    maximum: bool = False
    """Whether there is a maximum over anything in it."""
    recurrent: dict[str, int] = field(default_factory=dict)
    """Results that are computed step by step, and along which axis."""
    loops: bool = False
    """Whether an element takes a loop."""
    fails: bool = False
    """Whether it may fail at run time: it is then evaluated wherever it is read."""
    definitions: int = 0
    code: int = 0
    """Operations that are written out."""
    depth: float = 0.0
    """Operations for one element, one after the other."""


_FACTS: dict[int, tuple[Operator, Facts]] = {}


def facts_of(op: Operator) -> Facts:
    """What is known of an operator with a compute."""
    found = _FACTS.get(id(op))
    if found is None or found[0] is not op:
        if len(_FACTS) > KEPT:
            _FACTS.clear()
        with deep():
            found = _FACTS[id(op)] = (op, _Finder(typed_operator(op)).run())
    return found[1]


@dataclass(slots=True)
class _Finder:
    op: TypedOperator
    out: Facts = field(default_factory=Facts)
    seen: set[object] = field(default_factory=set)
    through: dict[str, dict[str, Dims]] = field(default_factory=dict)
    """For each result and local, how it reads each operand, locals looked through."""

    def run(self) -> Facts:
        op, out = self.op, self.out
        recurrent: dict[str, int] = {}
        for group in op.order:
            for name in group.tensors:
                self.through[name] = self._tensor(op.tensors[name], frozenset(group.tensors))
            if group.recurrence is not None:
                recurrent |= dict(zip(group.tensors, group.recurrence.axis, strict=True))
        for r in op.results:
            for operand, dims in self.through[r.name].items():
                out.access[r.name, operand] = dims
            out.inside[r.name] = self._inside(r)
        out.recurrent = {r.name: recurrent[r.name] for r in op.results if r.name in recurrent}
        failing: set[str] = set()
        for name in self.through:
            if any(may_fail(p.value, failing, op.empty is None) for p in op.tensors[name].pieces):
                failing.add(name)
        out.fails = any(r.name in failing for r in op.results)
        pieces = [p for t in op.tensors.values() for p in t.pieces]
        out.product = any(map(_is_product, pieces))
        out.maximum = any(isinstance(x, Reduce) and x.kind == "max" for p in pieces for x in walk(p.value))
        return out

    def _inside(self, r: Tensor) -> frozenset[int]:
        """The axes along which a long reduction over what the operator reads is shared."""
        out: frozenset[int] = frozenset()
        for piece in r.pieces:
            found = long_reductions(self.op, lambda n: self.op.tensors[n].kind == "local", piece)
            every = frozenset(range(len(r.shape)))
            shared = [x.shared for x in found if x.shared < every and self._reads(x.reduce)]
            out |= every - max(shared, key=len) if shared else frozenset()
        return out

    def _reads(self, x: Reduce) -> bool:
        """Whether a reduction comes to an operand."""
        return any(isinstance(y, Read) and (self.op.tensors[y.tensor].kind == "operand" or self.through.get(y.tensor)) for y in walk(x))

    # ------------------------------------------------------------------------------------------------------------------- reads

    def _tensor(self, t: Tensor, group: frozenset[str]) -> dict[str, Dims]:
        found: dict[tuple[str, Dims, tuple[Range, ...]], None] = {}
        self.out.definitions += len(t.pieces)
        depth = 0.0
        for piece in t.pieces:
            walker = _Walker({n for n, reads in self.through.items() if not reads})
            walker.walk(piece.value, {a.index: Dim(k) for k, a in enumerate(piece.axes)}, (), 1)
            place = {b[0]: k for k, a in enumerate(piece.axes) if (b := bounds(a)) is not None and b[1] - b[0] == 1}
            found |= {(name, tuple(_position(d, place) for d in dims), (*piece.axes, *ranges)): None for name, dims, ranges in walker.reads}
            self.out.work += [Amount((*piece.axes, *ranges), cost) for ranges, cost in walker.work.items()]
            self.out.code += walker.code
            self.out.loops |= walker.loops
            depth = max(depth, sum(cost * prod(_terms(r) for r in ranges) for ranges, cost in walker.work.items()))
        self.out.depth += depth
        out: dict[str, Dims] = {}
        for name, dims, ranges in found:
            if name in group:
                continue
            if self.op.tensors[name].kind == "operand":
                # Tensors over one box that read the same places share what they read.
                key = (name, dims, tuple((r.lo, r.hi) for r in ranges))
                if key not in self.seen:
                    self.seen.add(key)
                    self.out.evaluations.setdefault(name, []).append(Amount(ranges, 1.0))
                parts = {name: dims}
            else:
                parts = {o: tuple(_compose(d, dims) for d in inner) for o, inner in self.through[name].items()}
            for operand, at in parts.items():
                out[operand] = tuple(map(_hull, out[operand], at)) if operand in out else at
        return out


def _is_product(piece: Piece) -> bool:
    """Whether a definition has a sum of products of matrices: of two factors, each of which does without axes that the other depends on."""
    axes = {a.index: count(a) for a in piece.axes}

    def wide(some: frozenset[str]) -> bool:
        return bool(some) and prod(MATRIX if n is None else n for n in (axes[a] for a in some)) >= MATRIX

    for x in walk(piece.value):
        if isinstance(x, Reduce) and x.kind == "sum" and isinstance(x.body, Apply) and x.body.fn == "*" and ((n := terms(x)) is None or n >= MATRIX):
            left, right = (names(y) & axes.keys() for y in x.body.args)
            if wide(left - right) and wide(right - left):
                return True
    return False


def _position(d: Dim, at: Mapping[int, int]) -> Dim:
    """A constant place, where the definition is one of that place alone: the axis itself."""
    constant = d.axis is None and d.low == d.high and not (d.tag or d.whole or d.depends)
    return Dim(at[d.low]) if constant and d.low in at else d


def _terms(r: Range) -> float:
    b = bounds(r)
    return 256.0 if b is None else float(max(0, b[1] - b[0]))


class _Walker:
    """Reads and operations of one value. `turns` are the ranges around, `copies` how often what is written out stands there, `sizes` the locals that
    depend on sizes alone."""

    def __init__(self, sizes: set[str]) -> None:
        self.sizes = sizes
        self.reads: dict[tuple[str, Dims, tuple[Range, ...]], None] = {}
        self.work: dict[tuple[Range, ...], float] = {}
        self.code = 0
        self.loops = False

    def walk(self, x: Expr, env: Mapping[str, Dim], turns: tuple[Range, ...], copies: int) -> None:
        stack = [x]
        while stack:
            x = stack.pop()
            if isinstance(x, Reduce):
                self._reduce(x, env, turns, copies)
                continue
            if isinstance(x, Read):
                self.reads[x.tensor, tuple(_index(i, env, self.sizes) for i in x.indices), turns] = None
                stack += [i for i in x.indices if any(isinstance(c, Read | Reduce) for c in walk(i))]
                continue
            if isinstance(x, Apply):
                self.work[turns] = self.work.get(turns, 0.0) + cost_of(x.fn)
                self.code += copies
            stack += children(x)

    def _reduce(self, x: Reduce, env: Mapping[str, Dim], turns: tuple[Range, ...], copies: int) -> None:
        inner = dict(env)
        n = terms(x)
        for r in ranges_of(x):
            for b in (r.lo, r.hi):
                if b is not None:
                    self.walk(b, inner, turns, copies)
            at = bounds(r)
            inner[r.index] = Dim(None, low=at[0], high=max(at[0], at[1] - 1)) if at is not None and at[1] - at[0] <= WINDOW else WHOLE
        if unrolled(x):
            copies *= max(1, n or 1)
        else:
            self.loops = True
        around = (*turns, *ranges_of(x))
        self.work[around] = self.work.get(around, 0.0) + 1.0
        self.code += copies
        for part in (x.where, x.body):
            if part is not None:
                self.walk(part, inner, around, copies)
        if x.rank is not None:
            self.walk(x.rank, env, turns, copies)


# ------------------------------------------------------------------------------------------------------------------------- indices


def _index(x: Expr, env: Mapping[str, Dim], sizes: set[str]) -> Dim:
    """How an index walks, by what its names stand for."""
    if isinstance(x, IntLit):
        return Dim(None, low=x.value, high=x.value)
    if isinstance(x, Name):
        return env.get(x.name) or Dim(None, tag=x.name)
    if isinstance(x, Cast) and x.implicit:
        return _index(x.arg, env, sizes)
    if isinstance(x, Apply) and x.fn in ("+", "-") and len(x.args) == 2:
        a, b = (_index(y, env, sizes) for y in x.args)
        return _sum(a, b if x.fn == "+" else _times(b, -1))
    if isinstance(x, Apply) and x.fn == "neg":
        return _times(_index(x.args[0], env, sizes), -1)
    if isinstance(x, Apply) and x.fn == "*":
        for factor, of in (x.args, reversed(x.args)):
            if isinstance(factor, IntLit):
                return _times(_index(of, env, sizes), factor.value)
    used = [env[n] for n in names(x) if n in env]
    data = any(isinstance(y, Reduce) or (isinstance(y, Read) and y.tensor not in sizes) for y in walk(x))
    if data or any(d.whole for d in used):
        return Dim(None, whole=True, depends=frozenset[int]().union(*map(_axes, used)))
    return Dim(None, depends=frozenset[int]().union(*map(_axes, used)), tag=repr(x))


def _axes(d: Dim) -> frozenset[int]:
    return d.depends if d.axis is None else d.depends | {d.axis}


def _loose(a: Dim, b: Dim) -> Dim:
    return Dim(None, whole=a.whole or b.whole, depends=_axes(a) | _axes(b), tag=f"{a.tag}~{b.tag}")


def _sum(a: Dim, b: Dim) -> Dim:
    if a.axis is None and b.axis is not None:
        a, b = b, a
    if a.whole or b.whole or a.depends or b.depends or b.axis is not None:
        return _loose(a, b)
    return Dim(a.axis, a.step, a.low + b.low, a.high + b.high, a.tag + (f"+{b.tag}" if a.tag and b.tag else b.tag))


def _times(d: Dim, k: int) -> Dim:
    low, high = sorted((d.low * k, d.high * k))
    return Dim(d.axis, d.step * k, low, high, f"{k}*{d.tag}" if d.tag else "", d.whole, d.depends)


def _compose(d: Dim, at: Dims) -> Dim:
    """A walk along the axes of a local, which is itself read at `at`."""
    if d.axis is None:
        if not d.depends:
            return d
        parts = [at[k] for k in d.depends]
        return Dim(None, whole=d.whole or any(p.whole for p in parts), depends=frozenset[int]().union(*map(_axes, parts)), tag=d.tag)
    outer = _times(at[d.axis], d.step)
    return _sum(outer, Dim(None, low=d.low, high=d.high, tag=d.tag))


def _hull(a: Dim, b: Dim) -> Dim:
    """Both walks as one."""
    if a == b:
        return a
    if a.axis is not None and a.axis == b.axis and a.step == b.step and a.tag == b.tag:
        return Dim(a.axis, a.step, min(a.low, b.low), max(a.high, b.high), a.tag)
    if a.axis is None and b.axis is None and not (a.whole or b.whole or a.depends or b.depends) and a.tag == b.tag:
        return Dim(None, low=min(a.low, b.low), high=max(a.high, b.high), tag=a.tag)
    both = _axes(a) | _axes(b)
    return Dim(None, whole=True, depends=frozenset() if a.whole and b.whole else both)

