"""What each statement of the loop form is made of: one table, which whatever looks at statements in general reads.

A statement that is missing here, or a field of one with expressions or statements in it that its entry does not name, is found when this module is imported.
Statements about sums that threads hold each for themselves tell the same by themselves (`form_own.py`).
"""
from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Any, get_args

from pipelink_ir.backends.loops import form
from pipelink_ir.ir.diagnostics import internal_error
from pipelink_ir.ir.dtypes import I64


@dataclass(frozen=True, slots=True)
class Contents:
    """The fields of one kind of statement, by name; `left.index` is a field of a field.

    Expressions are `places` (indices, sizes, bounds: none is larger than an array) or `data`. `makes`: what the statement changes, a name, memory (spelled
    `%x`) or a fragment of a matrix (`#x`); `reads` is what it reads of these besides what its expressions do. `together`: all threads of a block have to run
    it, as they run a barrier."""

    places: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    makes: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    blocks: tuple[str, ...] = ()
    together: bool = False


TABLE: Mapping[type, Contents] = {
    form.Let: Contents(data=("value",), makes=("name",)),
    form.Var: Contents(data=("init",), makes=("name",)),
    form.Assign: Contents(data=("value",), makes=("name",)),
    form.Store: Contents(places=("index",), data=("value",), makes=("%buffer",)),
    form.Move: Contents(places=("at", "index"), makes=("%to",), reads=("%source",)),
    form.TakeWords: Contents(places=("index", "at"), data=("outside",), makes=("%to",), reads=("%source",)),
    form.For: Contents(places=("lo", "hi", "step"), blocks=("body",)),
    form.If: Contents(data=("cond",), blocks=("then", "other")),
    form.Alloc: Contents(places=("size",), makes=("%name",)),
    form.Fail: Contents(data=("values",)),
    form.Barrier: Contents(together=True),
    form.Combine: Contents(places=("lanes",), data=("apart",), makes=("names",), reads=("names",), together=True),
    form.Signal: Contents(places=("index",), makes=("%buffer",), together=True),
    form.AwaitCount: Contents(places=("index", "count"), makes=("%buffer",), together=True),
    form.Fragment: Contents(makes=("#name",), together=True),
    form.Multiply: Contents(places=("left.index", "right.index"), makes=("#fragment",), reads=("%left.buffer", "%right.buffer"), together=True),
    form.StoreFragment: Contents(places=("part",), makes=("%buffer",), reads=("#fragment",), together=True),
    form.Trade: Contents(makes=("%target",), reads=("%source",)),
    form.StripLine: Contents(places=("index",), data=("inside",), makes=("%words",), reads=("%buffer",)),
    form.Words: Contents(places=("index",), makes=("%words",), reads=("%buffer",)),
    form.Pack: Contents(makes=("%words",), reads=("%source",)),
    form.FewMultiply: Contents(data=("scale",), makes=("%sums",), reads=("%words", "%values", "%sums")),
    form.StripMultiply: Contents(places=("index",), makes=("%sums",), reads=("%words", "%weights")),
    form.WindowMultiply: Contents(places=("at", "column", "index"), makes=("%sums",), reads=("%tile", "%weights")),
    form.CopyAsync: Contents(places=("index", "source"), data=("inside",), makes=("%buffer",), reads=("%origin",)),
    form.Commit: Contents(together=True),
    form.Await: Contents(together=True),
    form.Contract: Contents(places=("row", "column", "batch", "terms", "left.sizes", "left.steps", "right.sizes", "right.steps"),
                            data=("left.moved", "right.moved"), makes=("%sums",),
                            reads=("%left.buffer", "%left.other", "%right.buffer", "%right.other"), together=True),
}


def exprs(s: form.Stmt) -> tuple[form.Expr, ...]:
    """The expressions that a statement itself evaluates."""
    return _EXPRS[type(s)](s)


def places(s: form.Stmt) -> tuple[form.Expr, ...]:
    """Those of them of which indices, sizes and bounds are made."""
    if isinstance(s, form.Own):
        return tuple(x for x in s.exprs if x.dtype is I64)
    return tuple(x for path in TABLE[type(s)].places for x in _at(s, path))


def blocks(s: form.Stmt) -> tuple[form.Block, ...]:
    """The blocks inside a statement."""
    if isinstance(s, form.For):
        return (s.body,)
    if isinstance(s, form.If):
        return (s.then, s.other)
    return ()


def makes(s: form.Stmt) -> tuple[str, ...]:
    """What a statement changes: names, memory (`%x`), fragments (`#x`)."""
    if isinstance(s, form.Own):
        return tuple("%" + n for n in s.targets)
    return tuple(x for path in TABLE[type(s)].makes for x in _names(s, path))


def reads(s: form.Stmt) -> tuple[str, ...]:
    """What it reads of these, besides what its expressions do."""
    if isinstance(s, form.Own):
        return tuple("%" + n for n in s.sources)
    return tuple(x for path in TABLE[type(s)].reads for x in _names(s, path))


def together(s: form.Stmt) -> bool:
    """Whether all threads of a block have to run it."""
    return isinstance(s, form.Own) or TABLE[type(s)].together


def put(s: form.Stmt, f: Callable[[form.Expr], form.Expr]) -> form.Stmt:
    """A statement with other expressions; its blocks stay as they are."""
    if isinstance(s, form.Own):
        return s.put(f)
    found = TABLE[type(s)]
    out: form.Stmt = _with(s, (*found.places, *found.data), f)
    return out


def _at(s: Any, path: str) -> tuple[Any, ...]:
    """The values of a field: none, one, or several."""
    for name in path.split("."):
        s = getattr(s, name)
    return s if isinstance(s, tuple) else () if s is None else (s,)


def _names(s: form.Stmt, path: str) -> Iterator[str]:
    mark = path[0] if path[0] in "%#" else ""
    return (mark + n for n in _at(s, path.removeprefix(mark)))


def _with(s: Any, paths: Iterable[str], f: Callable[[form.Expr], form.Expr]) -> Any:
    new: dict[str, Any] = {}
    for path in paths:
        name, _, rest = path.partition(".")
        value = new.get(name, getattr(s, name))
        if value is not None:
            new[name] = _with(value, (rest,), f) if rest else tuple(map(f, value)) if isinstance(value, tuple) else f(value)
    return replace(s, **new) if new else s


def _getter(kind: Any) -> Callable[[Any], tuple[form.Expr, ...]]:
    """What finds the expressions of a kind of statement: this is asked for very often."""
    if kind in get_args(form.Own):
        return lambda s: s.exprs
    paths = (*TABLE[kind].places, *TABLE[kind].data)
    plain = [f.name for f in fields(kind) if f.type == "Expr"]
    if not set(paths) <= set(plain):
        return lambda s: tuple(x for path in paths for x in _at(s, path))
    if not paths:
        return lambda s: ()
    get: Callable[[Any], Any] = attrgetter(*paths)
    return get if len(paths) > 1 else lambda s: (get(s),)


# ----------------------------------------------------------------------------------------------------------------- nothing is left out


def _inner(kind: Any, before: str = "") -> Iterator[tuple[str, str]]:
    """The fields with expressions, and those with statements, each with which of them."""
    for f in fields(kind):
        words = re.findall(r"\w+", str(f.type))
        yield from ((before + f.name, word) for word in ("Expr", "Block", "Stmt") if word in words)
        for word in words:
            of = getattr(form, word, None)
            if of in (form.Factor, form.Panel):
                yield from _inner(of, f"{before}{f.name}.")


def forgotten(table: Mapping[type, Contents], kinds: tuple[Any, ...]) -> Iterator[str]:
    """Statements without an entry, and fields that their entries leave out."""
    for kind in kinds:
        if kind in get_args(form.Own):
            continue
        found = table.get(kind)
        if found is None:
            yield kind.__name__
            continue
        named = {*found.places, *found.data, *found.blocks}
        yield from (f"{kind.__name__}.{path}" for path, _ in _inner(kind) if path not in named)


_ALL = get_args(form.Stmt)
_forgotten = list(forgotten(TABLE, _ALL))
if _forgotten:
    internal_error(f"backends/loops/contents.py knows nothing of {', '.join(_forgotten)}")
_EXPRS = {kind: _getter(kind) for kind in _ALL}
