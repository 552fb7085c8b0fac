"""How a definition is laid over a GPU: which of its reductions are long, what they depend on, and whether a thread or a block computes a place.

    grid     one thread a place, neighbouring threads at neighbouring places
    block    one block for each place of some axes; its threads share long reductions that depend on those axes alone, and the places of the other axes
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pipelink_ir.ir.functions import REDUCTIONS
from pipelink_ir.ir.nodes import Apply, Cast, Expr, IntLit, Name, Range, Read, Reduce
from pipelink_ir.ir.typed import Piece, TypedOperator
from pipelink_ir.ir.walk import children
from pipelink_ir.passes.scheduling.counts import names, ranges_of, terms
from pipelink_ir.passes.scheduling.uses import Lin, Use, uses_of

SERIAL = 64
"""A reduction of at most so many terms is done by one thread."""
_INNER = -1
"""Stands among the axes for the index of a reduction around."""


@dataclass(frozen=True, slots=True)
class Long:
    """A long reduction that evaluating a piece comes to: the axes of the piece on which it depends (-1: an index of a reduction around it), and the axis that
    each of its free names is, if each is one."""

    reduce: Reduce
    deps: frozenset[int]
    plain: Mapping[str, int] | None
    shared: frozenset[int]
    """The axes on which the work depends that evaluations at other places can share: of a ranked one the order of its candidates, else `deps`."""


@dataclass(frozen=True, slots=True)
class Shape:
    """`grid`, or `block` with the axes that have a block for each place."""

    kind: str
    axes: tuple[int, ...] = ()


def long(x: Reduce, most: int = SERIAL) -> bool:
    """Whether a reduction is worth more than one thread."""
    n = terms(x)
    return n is None or n > most


def shape_of(op: TypedOperator, local: Callable[[str], bool], piece: Piece, chosen: Mapping[str, int] | None = None) -> Shape:
    """The shape of the kernel of one piece; `local` says which tensors it evaluates itself."""
    found = [r for r in long_reductions(op, local, piece, chosen) if _INNER not in r.shared]
    rank = len(piece.axes)
    partial = [r.shared for r in found if len(r.shared) < rank]
    if partial:
        return Shape("block", max((tuple(sorted(axes)) for axes in partial), key=len))
    if any(side_by_side(op, local, r) for r in found):
        return Shape("block", tuple(range(rank)))
    return Shape("grid")


def side_by_side(op: TypedOperator, local: Callable[[str], bool], r: Long) -> bool:
    """Whether the terms of a reduction lie side by side in memory, rather than those of neighbouring places."""
    if r.plain is None:
        return False
    return not any(last_of(u).names & set(r.plain) for u in reads_of(op, local, r.reduce, r.plain))


def reads_of(op: TypedOperator, local: Callable[[str], bool], x: Reduce, free: Mapping[str, int]) -> tuple[Use, ...]:
    """What the terms of a reduction read that depends on its indices; `free` are the names that belong to the piece."""
    where = () if x.where is None else uses_of(_around(x, x.where, free), op.tensors, local).uses
    found = [*uses_of(_around(x, x.body, free), op.tensors, local).uses, *where]
    return tuple(u for u in found if any(n.startswith("#") for lin in u.at for n in lin.names))


def _around(x: Reduce, body: Expr, free: Mapping[str, int]) -> Piece:
    """A definition whose value is a plain reduction over `body`."""
    return Piece(tuple(Range(n, None, body) for n in free), Reduce("sum", x.ranges, None, body), (), x.span)


def last_of(u: Use) -> Lin:
    """The index along which neighbours in memory differ: the last that moves at all."""
    return next((lin for lin in reversed(u.at) if lin.names or lin.opaque), Lin())


# ------------------------------------------------------------------------------------------------------------------- walking


def long_reductions(op: TypedOperator, local: Callable[[str], bool], piece: Piece, chosen: Mapping[str, int] | None = None,
                    most: int = SERIAL) -> list[Long]:
    """All long reductions, those of more than `most` terms, that evaluating a piece comes to, each after those that its terms come to."""
    if not op.reduces:
        return []
    walker = _Walker(op, local, chosen or {}, most)
    walker.walk(piece.value, {a.index: _Index(frozenset((k,)), k) for k, a in enumerate(piece.axes)})
    return walker.found


@dataclass(frozen=True, slots=True)
class _Index:
    """What a name stands for: the axes it depends on, and the axis that it is."""

    deps: frozenset[int]
    axis: int | None


@dataclass(slots=True)
class _Walker:
    op: TypedOperator
    local: Callable[[str], bool]
    chosen: Mapping[str, int]
    most: int = SERIAL
    found: list[Long] = field(default_factory=list)
    seen: set[tuple[str, tuple[_Index, ...]]] = field(default_factory=set)

    def walk(self, x: Expr, env: dict[str, _Index]) -> None:
        stack = [x]
        while stack:
            x = stack.pop()
            if isinstance(x, Reduce):
                self._reduce(x, env)
            else:
                if isinstance(x, Read) and self.local(x.tensor):
                    self._read(x, env)
                stack += children(x)

    def _reduce(self, x: Reduce, env: dict[str, _Index]) -> None:
        inner = dict(env)
        for r in ranges_of(x):
            for c in children(r):
                self.walk(c, inner)
            inner[r.index] = _Index(frozenset((_INNER,)), None)
        for part in (x.where, x.body):
            if part is not None:
                self.walk(part, inner)
        if x.rank is not None:
            self.walk(x.rank, env)
        if long(x, self.most):
            self._note(x, env)

    def _note(self, x: Reduce, env: dict[str, _Index]) -> None:
        free = names(x) & set(env)
        axes = {n: env[n].axis for n in free}
        plain = {n: k for n, k in axes.items() if k is not None}
        work = names(Reduce("sum", x.ranges, x.where, x.body)) & set(env) if REDUCTIONS[x.kind].ranked else free
        deps, shared = (frozenset[int]().union(*(env[n].deps for n in some)) for some in (free, work))
        self.found.append(Long(x, deps, plain if len(plain) == len(axes) else None, shared))

    def _read(self, x: Read, env: dict[str, _Index]) -> None:
        at = tuple(self._index(i, env) for i in x.indices)
        if (x.tensor, at) in self.seen:
            return
        self.seen.add((x.tensor, at))
        t = self.op.tensors[x.tensor]
        for p in t.pieces if x.tensor not in self.chosen else (t.pieces[self.chosen[x.tensor]],):
            self.walk(p.value, {a.index: i for a, i in zip(p.axes, at, strict=True)})

    def _index(self, x: Expr, env: dict[str, _Index]) -> _Index:
        if isinstance(x, Name):
            return env.get(x.name, _Index(frozenset(), None))
        return _Index(frozenset[int]().union(*(env[n].deps for n in names(x) if n in env)), None)


def sized(x: Expr, op: TypedOperator) -> bool:
    """Whether a bound is known from sizes alone."""
    if isinstance(x, Apply):
        return x.fn in ("+", "-", "*", "floordiv", "mod", "neg", "min", "max", "abs", "ceildiv") and all(sized(a, op) for a in x.args)
    if isinstance(x, Cast):
        return x.implicit and sized(x.arg, op)
    return isinstance(x, IntLit) or (isinstance(x, Name) and x.name in op.symbols)
