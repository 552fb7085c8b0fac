"""Simplification of one operator: its expressions, the definitions that nobody reads, its dimensions.

Expressions are rewritten in typed form, where every conversion is visible, and written back without the conversions that inference puts in by itself.
The result is typed again, and kept only where that gives the very expression that was meant: so a literal cannot take another type from new neighbours.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from pipelink_ir.ir import contracts
from pipelink_ir.ir.diagnostics import Report
from pipelink_ir.ir.nodes import (
    Apply,
    Cast,
    Compute,
    Define,
    Expr,
    FloatLit,
    IntLit,
    Items,
    Let,
    Name,
    Operand,
    Operator,
    Range,
    Read,
    Scoped,
    Section,
    Setting,
    Value,
)
from pipelink_ir.ir.scalar import is_literal
from pipelink_ir.ir.walk import deep, rebuild, walk
from pipelink_ir.passes.infer.drafts import Drafts, draft
from pipelink_ir.passes.simplify.expressions import Rewriter, same, shorter

Item = Let | Define


def simplify_operator(op: Operator) -> Operator:
    """`op` with a simpler body of the same meaning; `op` itself where there is nothing to do."""
    if op.compute is None:
        return op
    with deep():
        body = _expressions(op, op.compute)
        return _without_unread(_dimensions(op if body is op.compute else replace(op, compute=body)))


def _dimensions(op: Operator) -> Operator:
    """Shapes of results in their normal form."""
    results = tuple(_result(r) for r in op.results)
    return op if all(a is b for a, b in zip(results, op.results, strict=True)) else replace(op, results=results)


def _result(r: Operand) -> Operand:
    dims = tuple(shorter(d) for d in r.type.dims)
    return r if all(a is b for a, b in zip(dims, r.type.dims, strict=True)) else replace(r, type=replace(r.type, dims=dims))


# ----------------------------------------------------------------------------------------------------------------- expressions


@dataclass(slots=True)
class _Candidate:
    """A body item whose value was rewritten: the typed form that is meant, and the ways to write it, best first."""

    at: int
    meant: Expr
    writings: list[Expr]


def _expressions(op: Operator, body: Compute) -> Compute:
    typed = _typed(op, body)
    if typed is None:
        return body
    rewriter = _rewriter(op, typed)
    names = {local: name for name, local in typed.drafts.scope.lets.items()}
    candidates: list[_Candidate] = []
    for i, value in enumerate(typed.values):
        meant = rewriter.simplify(value)
        if meant is not value and not (is_literal(meant) and isinstance(value, Cast) and is_literal(value.arg)):
            old = frozenset(id(n) for n in walk(value) if is_literal(n))
            candidates.append(_Candidate(i, meant, [write(meant, names, None), write(meant, names, old)]))
    return _settle(op, body, candidates) if candidates else body


def _settle(op: Operator, body: Compute, candidates: list[_Candidate]) -> Compute:
    """Write each candidate in the first way that is read back as what was meant; drop those that have none."""
    while candidates:
        items = list(body.body)
        for c in candidates:
            items[c.at] = replace(items[c.at], value=replace(c.writings[0], span=items[c.at].value.span))
        new = replace(body, body=tuple(items))
        typed = _typed(op, new)
        if typed is not None:
            rewriter = _rewriter(op, typed)
            wrong = [c for c in candidates if not same(rewriter.simplify(typed.values[c.at]), c.meant, rewriter.value)]
            if not wrong:
                return new
        else:
            wrong = candidates
        for c in wrong:
            del c.writings[0]
        candidates = [c for c in candidates if c.writings]
    return body


@dataclass(slots=True)
class _Typed:
    drafts: Drafts
    values: list[Expr]
    """The typed value of each item of the body."""


def _typed(op: Operator, body: Compute) -> _Typed | None:
    """The body typed, None if it has a fault, which is another pass's to report."""
    report = Report()
    drafts = draft(op, op.operands, op.results, body, report)
    if report.failed:
        return None
    pieces: dict[str, Iterator[Expr]] = {name: iter([p.value for p in t.pieces]) for name, t in drafts.tensors.items()}
    return _Typed(drafts, [next(pieces[drafts.scope.lets[i.name] if isinstance(i, Let) else i.tensor]) for i in body.body])


def _rewriter(op: Operator, typed: _Typed) -> Rewriter:
    """A rewriter that knows the `let`s that are constants; each is worked out when it is first asked for."""
    locals_ = set(typed.drafts.scope.lets.values())
    known: dict[str, Expr | None] = {}

    def constant(name: str) -> Expr | None:
        if name not in locals_:
            return None
        if name not in known:
            known[name] = None
            known[name] = rewriter.value(rewriter.simplify(typed.drafts.tensors[name].pieces[0].value))
        return known[name]

    rewriter = Rewriter(constant, {o.name: o.type.dtype for o in op.operands}, contracts.fast_math(op))
    return rewriter


def write(e: Expr, lets: Mapping[str, str], old: frozenset[int] | None) -> Expr:
    """A typed expression as source: without implicit conversions and with the names of lets. With `old`, the literals that were there (by identity), a new
    one of 64 bits has its type written."""
    if is_literal(e) and e.dtype is not None:
        plain = _literal(e)
        return Cast(e.dtype.name, plain, span=e.span) if old is not None and id(e) not in old and e.dtype.bits == 64 else plain
    if isinstance(e, Cast) and e.implicit:
        return write(e.arg, lets, old)
    if isinstance(e, Cast) and is_literal(e.arg):
        return replace(e, arg=_literal(e.arg), dtype=None)
    if isinstance(e, Read) and not e.indices and e.tensor in lets:
        return Name(lets[e.tensor], span=e.span)
    if isinstance(e, Apply) and e.fn == "**":
        return replace(e, args=(write(e.args[0], lets, old), write(e.args[1], lets, None)), dtype=None)
    if isinstance(e, Range):
        lo = None if e.lo is None or (isinstance(e.lo, IntLit) and e.lo.value == 0) else write(e.lo, lets, None)
        return replace(e, lo=lo, hi=write(e.hi, lets, None), dtype=None)
    return replace(rebuild(e, lambda x: write(x, lets, None if isinstance(e, Read) else old)), dtype=None)


def _literal(e: Expr) -> Expr:
    """A literal without its type, in the fewest digits that give its bits in that type."""
    if isinstance(e, FloatLit) and e.dtype is not None and e.dtype.bits == 32:
        import numpy as np
        short = float(str(np.float32(e.value)))
        return FloatLit(short, span=e.span)
    return replace(rebuild(e, _literal), dtype=None)


# -------------------------------------------------------------------------------------------------------- what nobody reads


def _without_unread(op: Operator) -> Operator:
    """Drop lets and locals that no result needs, and what contracts and schedules say of them."""
    assert op.compute is not None
    body = op.compute.body
    live = _live(op, body)
    kept = tuple(i for i in body if _key(i) in live)
    if len(kept) == len(body):
        return op
    gone = {i.tensor for i in body if isinstance(i, Define)} - {i.tensor for i in kept if isinstance(i, Define)}
    sections = tuple(replace(s, entries=entries) if len(entries := tuple(
        e for e in s.entries if not (isinstance(e, Scoped) and e.tensor in gone))) != len(s.entries) else s for s in op.sections)
    return replace(op, compute=replace(op.compute, body=kept), sections=tuple(s for s in sections if s.entries))


def _key(item: Item) -> str:
    return item.name if isinstance(item, Let) else "%" + item.tensor


def _live(op: Operator, body: tuple[Item, ...]) -> set[str]:
    """Names of lets, and of tensors with their sigil, that results, the adjoint or a contract need."""
    needs: dict[str, set[str]] = {}
    for item in body:
        needs.setdefault(_key(item), set()).update(_mentioned(item))
    todo = ["%" + r.name for r in op.results]
    if op.gradient is not None:
        todo += [name for item in op.gradient.body for name in _mentioned(item)]
    for section in op.sections:
        todo += [name for value in _values(section) for name in _names(value)]
    live: set[str] = set()
    while todo:
        name = todo.pop()
        if name not in live:
            live.add(name)
            todo += needs.get(name, ())
    return live


def _mentioned(item: Item) -> set[str]:
    bounds = [b for a in item.axes for b in (getattr(a, "lo", None), getattr(a, "hi", None)) if b is not None] if isinstance(item, Define) else []
    return {name for e in (item.value, *bounds) for name in _names(e)}


def _names(e: Expr) -> Iterator[str]:
    for n in walk(e):
        if isinstance(n, Name):
            yield n.name
        elif isinstance(n, Read):
            yield "%" + n.tensor


def _values(section: Section) -> Iterator[Expr]:
    """The expressions of a section, those that speak of one value included."""
    def expressions(value: Value) -> Iterator[Expr]:
        if isinstance(value, Items):
            for item in value.items:
                yield from expressions(item)
        elif isinstance(value, Expr):
            yield value

    for entry in section.entries:
        for setting in (entry,) if isinstance(entry, Setting) else entry.settings:
            yield from expressions(setting.value)
