"""Expressions seen through the locals that they read: what a value is made of, whatever its parts are called and however they are cut into definitions.

A `View` is an expression and what its names stand for: other views, or leaves, which are the axes of the definition that is looked at and the indices of
reductions around. `Looker.key` is equal for two views exactly if they are the same arithmetic on the same leaves; the order of factors and terms aside.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Union

from pipelink_ir.ir.nodes import Apply, Cast, Const, Expr, FloatLit, IntLit, Name, Read, Reduce
from pipelink_ir.ir.typed import TypedOperator
from pipelink_ir.ir.walk import children
from pipelink_ir.passes.scheduling.counts import ranges_of

LARGE = 4000
"""So many parts of a value are looked at."""
_ANY_ORDER = frozenset({"+", "*", "min", "max", "fmin", "fmax", "and", "or", "==", "!="})


class TooLarge(Exception):
    """A value has more parts than are looked at."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """An axis by its number, or an index of a reduction around: `key`, `term`, or the depth of one that stands inside."""

    kind: str
    number: int = 0


Env = Mapping[str, Union["View", Leaf]]


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """An expression, and what its names stand for."""

    expr: Expr
    env: Env


Seen = Union[View, Leaf]


@dataclass(slots=True)
class Looker:
    """Looks at the values of one operator. `local` says through which tensors; `passed` are those that it came through."""

    op: TypedOperator
    local: Callable[[str], bool]
    passed: set[str] = field(default_factory=set)
    keys: dict[tuple[int, int], int] = field(default_factory=dict)
    """Numbers of views by the identity of what they are made of."""
    numbers: dict[tuple[object, ...], int] = field(default_factory=dict)
    """Numbers of values by their outermost operation and the numbers of its parts."""
    below: list[frozenset[Leaf]] = field(default_factory=list)
    """What each of these depends on."""
    inner: dict[tuple[str, tuple[int, ...]], View] = field(default_factory=dict)
    kept: list[object] = field(default_factory=list)

    def of(self, v: Seen) -> Seen:
        """What a view is: behind names, locals of one definition and casts that change nothing."""
        while isinstance(v, View):
            x = v.expr
            if isinstance(x, Name) and x.name in v.env:
                v = v.env[x.name]
            elif isinstance(x, Cast) and x.arg.dtype is not None and x.dtype is x.arg.dtype and (x.implicit or x.to == x.dtype.name):
                v = View(x.arg, v.env)
            elif isinstance(x, Read) and self._through(x):
                v = self._inside(x, v)
            else:
                break
        return v

    def _through(self, x: Read) -> bool:
        t = self.op.tensors[x.tensor]
        return (t.kind == "local" and self.local(x.tensor) and len(t.pieces) == 1 and not t.pieces[0].holes
                and all(word in ("", "inside", "guarded") for word in x.access))

    def _inside(self, x: Read, v: View) -> View:
        self.passed.add(x.tensor)
        key = (x.tensor, tuple(self.key(View(i, v.env)) for i in x.indices))
        if key not in self.inner:
            piece = self.op.tensors[x.tensor].pieces[0]
            self.inner[key] = View(piece.value, {a.index: View(i, v.env) for a, i in zip(piece.axes, x.indices, strict=True)})
        return self.inner[key]

    def parts(self, v: View) -> tuple[View, ...]:
        """The views of the direct parts; a reduction has none."""
        return () if isinstance(v.expr, Reduce) else tuple(View(c, v.env) for c in children(v.expr))

    def opened(self, v: View, leaf: Leaf) -> tuple[View, View | None]:
        """The body and the filter of a reduction over one range, whose index is `leaf`."""
        x = v.expr
        assert isinstance(x, Reduce)
        env = {**v.env, ranges_of(x)[0].index: leaf}
        self.kept.append(env)
        return View(x.body, env), None if x.where is None else View(x.where, env)

    # --------------------------------------------------------------------------------------------------------------------- keys

    def key(self, v: Seen, depth: int = 0) -> int:
        """A number, equal for equal values."""
        v = self.of(v)
        if isinstance(v, Leaf):
            return self._number(("leaf", v), (), frozenset((v,)))
        at = (id(v.expr), id(v.env))
        if at not in self.keys:
            self.kept += (v.expr, v.env)
            if len(self.keys) > LARGE:
                raise TooLarge
            self.keys[at] = self._key(v, depth)
        return self.keys[at]

    def _number(self, own: tuple[object, ...], parts: Sequence[int], leaves: frozenset[Leaf] = frozenset()) -> int:
        key = (*own, "of", *parts)
        if key not in self.numbers:
            self.numbers[key] = len(self.below)
            self.below.append(leaves.union(*(self.below[p] for p in parts)))
        return self.numbers[key]

    def _key(self, v: View, depth: int) -> int:
        x = v.expr
        dtype = x.dtype.name if x.dtype is not None else ""
        if isinstance(x, Reduce):
            return self._reduce(v, x, depth)
        parts = [self.key(p, depth) for p in self.parts(v)]
        if isinstance(x, Apply):
            return self._number((x.fn, dtype), sorted(parts) if x.fn in _ANY_ORDER else parts)
        if isinstance(x, Read):
            return self._number(("read", x.tensor), parts)
        if isinstance(x, Cast):
            return self._number(("cast", x.to, x.saturate), parts)
        if isinstance(x, Name | Const):
            return self._number(("name", x.name), ())
        if isinstance(x, IntLit | FloatLit):
            return self._number(("literal", dtype, repr(x.value)), ())
        return self._number(("other", id(x)), ())

    def _reduce(self, v: View, x: Reduce, depth: int) -> int:
        env = dict(v.env)
        self.kept.append(env)
        own: list[object] = ["reduce", x.kind]
        numbers: list[int] = []
        for k, r in enumerate(ranges_of(x)):
            bounds = [View(b, dict(env)) for b in (r.lo, r.hi) if b is not None]
            own.append(len(bounds))
            numbers += [self.key(b, depth) for b in bounds]
            env[r.index] = Leaf("inner", depth + k)
        parts = [View(p, env) for p in (x.where, x.body, x.rank) if p is not None]
        own += [x.where is None, x.rank is None]
        numbers += [self.key(p, depth + len(x.ranges)) for p in parts]
        return self._number(tuple(own), numbers)

    # -------------------------------------------------------------------------------------------------------------------- walks

    def walk(self, v: Seen, seen: set[tuple[int, int]] | None = None) -> Iterator[View]:
        """All parts of a value, each expression once for equal meanings, without what stands inside reductions."""
        seen = set() if seen is None else seen
        v = self.of(v)
        if isinstance(v, View) and (key := (id(v.expr), self.key(v))) not in seen:
            seen.add(key)
            yield v
            for p in self.parts(v):
                yield from self.walk(p, seen)

    def leaves(self, v: Seen) -> frozenset[Leaf]:
        """What a value depends on."""
        return frozenset(leaf for leaf in self.below[self.key(v)] if leaf.kind != "inner")

    def factors(self, v: Seen, below: bool = False) -> list[tuple[Seen, bool]]:
        """The factors of a product, and whether each is divided by."""
        v = self.of(v)
        if isinstance(v, View) and isinstance(v.expr, Apply) and v.expr.fn in ("*", "/") and v.expr.dtype is not None and v.expr.dtype.is_float:
            a, b = self.parts(v)
            return [*self.factors(a, below), *self.factors(b, below != (v.expr.fn == "/"))]
        return [(v, below)]
