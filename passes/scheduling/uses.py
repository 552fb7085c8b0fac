"""Which tensors a definition reads and at which places, through the locals that are evaluated in it.

`Lin` is an index as a sum of names with factors; the names of the definition's own axes stand for themselves, those of reductions get a number. What no sum
describes is `opaque`. `loose` are the axes that something other than such an index looks at. `always` says that a read happens in every evaluation.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from pipelink_ir.ir.nodes import Apply, Cast, Expr, IntLit, Name, Read, Reduce
from pipelink_ir.ir.source import Span
from pipelink_ir.ir.typed import Piece, Tensor
from pipelink_ir.ir.walk import children
from pipelink_ir.passes.scheduling.counts import ranges_of, terms

_NONE: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Lin:
    """constant + sum of factor * name; `opaque` if that is not all, and then `names` still has every name that it depends on."""

    constant: int = 0
    terms: tuple[tuple[str, int], ...] = ()
    opaque: bool = False

    @property
    def names(self) -> frozenset[str]:
        return frozenset(n for n, _ in self.terms)

    def only(self, name: str) -> bool:
        """Whether it is that name and nothing else."""
        return not self.opaque and not self.constant and self.terms == ((name, 1),)


@dataclass(frozen=True, slots=True)
class Use:
    """One read of a tensor that lies in memory."""

    tensor: str
    at: tuple[Lin, ...]
    access: tuple[str, ...]


@dataclass(slots=True)
class Uses:
    """What a definition reads, and which names its arithmetic looks at."""

    uses: list[Use] = field(default_factory=list)
    loose: set[str] = field(default_factory=set)
    joined: list[tuple[str, tuple[Lin, ...]]] = field(default_factory=list)
    """Reads of locals of several pieces that are evaluated where they are read."""
    borders: dict[tuple[str, int], Span] = field(default_factory=dict)
    """Tensors and axes that every evaluation reads through a border which has no value of its own, and where."""


def uses_of(piece: Piece, tensors: dict[str, Tensor], inline: Callable[[str], bool], chosen: Mapping[str, int] = _NONE) -> Uses:
    """The uses of one piece. `inline` says which locals are evaluated where they are read, `chosen` which piece of them alone is meant."""
    walker = _Walker(tensors, inline, chosen)
    walker.walk(piece.value, {a.index: Lin(0, ((a.index, 1),)) for a in piece.axes}, True)
    return walker.found


class _Walker:
    def __init__(self, tensors: dict[str, Tensor], inline: Callable[[str], bool], chosen: Mapping[str, int]) -> None:
        self.tensors, self.inline, self.chosen = tensors, inline, chosen
        self.found = Uses()
        self.seen: set[tuple[object, ...]] = set()
        self.count = 0

    def walk(self, x: Expr, env: dict[str, Lin], always: bool) -> None:
        stack = [(x, always)]
        while stack:
            x, now = stack.pop()
            if isinstance(x, Name):
                if x.name in env:
                    self.found.loose |= env[x.name].names
            elif isinstance(x, Read):
                self._read(x, env, now)
            elif isinstance(x, Reduce):
                self._reduce(x, env, now)
            else:
                lazy = isinstance(x, Apply) and x.fn in ("select", "and", "or")
                stack += [(c, now and not (lazy and k)) for k, c in enumerate(children(x))]

    def _reduce(self, x: Reduce, env: dict[str, Lin], always: bool) -> None:
        inner = dict(env)
        for r in ranges_of(x):
            for bound in (r.lo, r.hi):
                if bound is not None:
                    self.walk(bound, inner, always)
            self.count += 1
            inner[r.index] = Lin(0, ((f"#{self.count}", 1),))
        always = always and bool(terms(x))
        if x.where is not None:
            self.walk(x.where, inner, always)
        self.walk(x.body, inner, always and x.where is None)
        if x.rank is not None:
            self.walk(x.rank, env, always)

    def _read(self, x: Read, env: dict[str, Lin], always: bool) -> None:
        at = tuple(self.lin(i, env) for i in x.indices)
        for i, lin in zip(x.indices, at, strict=True):
            if lin.opaque:
                self.walk(i, env, always)
        t, access = self.tensors[x.tensor], x.access or ("inside",) * len(at)
        for k, (word, border) in enumerate(zip(access, t.border, strict=True)):
            if always and word == "border" and border is not None:
                self.found.borders.setdefault((x.tensor, k), x.span)
        if not self.inline(x.tensor):
            self.found.uses.append(Use(x.tensor, at, access))
            return
        key = (x.tensor, at, access, always)
        if key in self.seen:
            return
        self.seen.add(key)
        pieces = t.pieces if x.tensor not in self.chosen else (t.pieces[self.chosen[x.tensor]],)
        if len(pieces) > 1:
            self.found.joined.append((x.tensor, at))
        if len(pieces) > 1 or not all(a in ("inside", "guarded") for a in access):
            # A border or a choice of pieces looks at the index itself.
            self.found.loose |= frozenset[str]().union(*(lin.names for lin in at))
        for p in pieces:
            self.walk(p.value, {a.index: lin for a, lin in zip(p.axes, at, strict=True)}, always and len(pieces) == 1)

    def lin(self, x: Expr, env: dict[str, Lin]) -> Lin:
        """An index as a sum."""
        if isinstance(x, IntLit):
            return Lin(x.value)
        if isinstance(x, Name):
            return env.get(x.name) or Lin(0, ((x.name, 1),))
        if isinstance(x, Cast) and x.implicit:
            return self.lin(x.arg, env)
        if isinstance(x, Apply) and x.fn in ("+", "-", "neg"):
            parts = [self.lin(a, env) for a in x.args]
            if not any(p.opaque for p in parts):
                return _sum(parts[0], parts[1], -1 if x.fn == "-" else 1) if len(parts) == 2 else _sum(Lin(), parts[0], -1)
        if isinstance(x, Apply) and x.fn == "*":
            a, b = (self.lin(y, env) for y in x.args)
            for one, two in ((a, b), (b, a)):
                if not one.terms and not one.opaque and not two.opaque:
                    return _sum(Lin(), two, one.constant)
        names: set[str] = set()
        _names(x, env, names)
        return Lin(0, tuple((n, 1) for n in sorted(names)), True)


def _names(x: Expr, env: dict[str, Lin], out: set[str]) -> None:
    if isinstance(x, Name) and x.name in env:
        out |= env[x.name].names
    for c in children(x):
        _names(c, env, out)


def _sum(a: Lin, b: Lin, factor: int) -> Lin:
    terms = dict(a.terms)
    for n, c in b.terms:
        terms[n] = terms.get(n, 0) + factor * c
    return Lin(a.constant + factor * b.constant, tuple(sorted((n, c) for n, c in terms.items() if c)))
