"""Walking and rebuilding expressions. Trees are at most 1,000 levels deep (the parser sees to that), so that plain recursion is safe under `deep`."""
from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from pipelink_ir.ir.nodes import Apply, Cast, Expr, Name, Range, Read, Reduce

DEPTH = 20_000


@contextmanager
def deep() -> Iterator[None]:
    """Room for recursion over the deepest tree the parser lets through."""
    before = sys.getrecursionlimit()
    if before < DEPTH:
        sys.setrecursionlimit(DEPTH)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def children(e: Expr) -> tuple[Expr, ...]:
    """The direct subexpressions, in the order of the text."""
    if isinstance(e, Apply):
        return e.args
    if isinstance(e, Read):
        return e.indices
    if isinstance(e, Cast):
        return (e.arg,)
    if isinstance(e, Range):
        return (e.hi,) if e.lo is None else (e.lo, e.hi)
    if isinstance(e, Reduce):
        return (*e.ranges, *(() if e.where is None else (e.where,)), e.body, *(() if e.rank is None else (e.rank,)))
    return ()


def rebuild(e: Expr, f: Callable[[Expr], Expr]) -> Expr:
    """`e` with `f` applied to its direct subexpressions; `e` itself where nothing changed."""
    if isinstance(e, Apply):
        args = tuple(map(f, e.args))
        return e if _same(args, e.args) else replace(e, args=args)
    if isinstance(e, Read):
        indices = tuple(map(f, e.indices))
        return e if _same(indices, e.indices) else replace(e, indices=indices)
    if isinstance(e, Cast):
        arg = f(e.arg)
        return e if arg is e.arg else replace(e, arg=arg)
    if isinstance(e, Range):
        lo, hi = None if e.lo is None else f(e.lo), f(e.hi)
        return e if lo is e.lo and hi is e.hi else replace(e, lo=lo, hi=hi)
    if isinstance(e, Reduce):
        ranges = tuple(map(f, e.ranges))
        where, body, rank = None if e.where is None else f(e.where), f(e.body), None if e.rank is None else f(e.rank)
        if _same(ranges, e.ranges) and where is e.where and body is e.body and rank is e.rank:
            return e
        return replace(e, ranges=ranges, where=where, body=body, rank=rank)
    return e


def _same(a: tuple[Expr, ...], b: tuple[Expr, ...]) -> bool:
    return all(x is y for x, y in zip(a, b, strict=True))


def walk(e: Expr) -> Iterator[Expr]:
    """Every node of a tree, parents first."""
    stack = [e]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(children(node)))


def substitute(e: Expr, names: Mapping[str, Expr]) -> Expr:
    """`e` with bare names replaced. An index bound inside a reduction hides a name from outside; capture is avoided by renaming the bound index."""
    if not names:
        return e
    if isinstance(e, Name):
        return names.get(e.name, e)
    if isinstance(e, Reduce):
        return _substitute_reduce(e, names)
    return rebuild(e, lambda x: substitute(x, names))


def _substitute_reduce(e: Reduce, names: Mapping[str, Expr]) -> Expr:
    """A range sees the indices of the ranges before it, the filter and the body see all, the rank none."""
    values = {n.name for v in names.values() for n in walk(v) if isinstance(n, Name)}
    taken = values | {n.name for n in walk(e) if isinstance(n, Name)} | {r.index for r in e.ranges if isinstance(r, Range)}
    inner = dict(names)
    ranges: list[Expr] = []
    for r in e.ranges:
        if not isinstance(r, Range):
            ranges.append(r)
            continue
        lo, hi, index = None if r.lo is None else substitute(r.lo, inner), substitute(r.hi, inner), r.index
        inner.pop(index, None)
        if index in values:
            while index in taken:
                index += "_"
            taken.add(index)
            inner[r.index] = Name(index, dtype=r.dtype)
        same = lo is r.lo and hi is r.hi and index == r.index
        ranges.append(r if same else replace(r, index=index, lo=lo, hi=hi))
    where, body = None if e.where is None else substitute(e.where, inner), substitute(e.body, inner)
    rank = None if e.rank is None else substitute(e.rank, names)
    if _same(tuple(ranges), e.ranges) and where is e.where and body is e.body and rank is e.rank:
        return e
    return replace(e, ranges=tuple(ranges), where=where, body=body, rank=rank)


def names_in(e: Expr) -> set[str]:
    """Bare names that occur free or bound in `e`."""
    return {n.name for n in walk(e) if isinstance(n, Name)}


def reads_in(e: Expr) -> Iterator[Read]:
    """Every read of a tensor in `e`."""
    return (n for n in walk(e) if isinstance(n, Read))
