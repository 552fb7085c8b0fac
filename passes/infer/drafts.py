"""What an operator defines, before its boxes are known: tensors, their pieces, and the types of all values."""
from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from pipelink_ir.ir import contracts
from pipelink_ir.ir.diagnostics import Note, Report, did_you_mean
from pipelink_ir.ir.dtypes import BOOL, DTYPES, I64, DType, join
from pipelink_ir.ir.nodes import Compute, Define, Dots, Dynamic, Expr, IntLit, Let, Name, Operand, Operator, Position
from pipelink_ir.ir.source import Span
from pipelink_ir.ir.walk import reads_in, rebuild, walk
from pipelink_ir.passes.infer.expressions import (
    FLEX_FLOAT,
    FLEX_INT,
    Faulty,
    Scope,
    TensorInfo,
    Unknown,
    kept_dtype,
    settle_type,
    store,
    type_expr,
    type_index,
)
from pipelink_ir.passes.scopes import find_cycle


@dataclass(slots=True)
class DraftAxis:
    """One axis of a left side: an index with the bounds that were written, or a constant position."""

    index: str
    lo: Expr | None
    hi: Expr | None
    position: int | None
    span: Span


@dataclass(slots=True)
class DraftPiece:
    """One definition. `value` is typed once `type_all` has run."""

    axes: list[DraftAxis]
    value: Expr
    span: Span
    target: Span


@dataclass(slots=True)
class Draft:
    """A result or a local. `dims` are a result's extents; a local has none but those that its pieces write."""

    name: str
    kind: str
    dtype: DType | None
    rank: int
    dims: tuple[Expr, ...] | None
    span: Span
    pieces: list[DraftPiece] = field(default_factory=list)
    border: tuple[tuple[str, Expr | None], ...] = ()
    faulty: bool = False


@dataclass(slots=True)
class Drafts:
    """Everything that one body defines, and the scope its expressions are typed in."""

    op: Operator
    operands: tuple[Operand, ...]
    tensors: dict[str, Draft]
    scope: Scope
    report: Report
    conditions: list[Expr] = field(default_factory=list)
    """The typed `where` conditions."""


def dims_of(op: Operator, operands: Iterable[Operand]) -> dict[str, Span]:
    """The dimensions that an operator may name: those in the types of its operands, and its `dim` attributes."""
    out: dict[str, Span] = {}
    for o in operands:
        for d in o.type.dims:
            for n in walk(d):
                if isinstance(n, Name):
                    out.setdefault(n.name, n.span)
    for a in op.attributes:
        if a.type == "dim":
            out[a.name] = a.span
    return out


def as_index(e: Expr) -> Expr:
    """An integer expression over dimensions with dtype i64 in every node."""
    if e.dtype is I64 and isinstance(e, IntLit | Name):
        return e
    return replace(rebuild(e, as_index), dtype=I64)


def draft(op: Operator, operands: tuple[Operand, ...], results: tuple[Operand, ...], body: Compute, report: Report) -> Drafts:
    """Collect and type the definitions of one body."""
    dims = dims_of(op, operands)
    scalars = {a.name: DTYPES[a.type] for a in op.attributes if a.type in DTYPES}
    infos: dict[str, TensorInfo] = {}
    for o in operands:
        infos[o.name] = TensorInfo(_dtype(o, report), len(o.type.dims), o.span, operand=True)
    scope = Scope(infos, dims, scalars, {}, report, where=f"'@{op.name}'")
    out = Drafts(op, operands, {}, scope, report)
    for r in results:
        _check_dims(r, dims, report)
        dtype = _dtype(r, report)
        out.tensors[r.name] = Draft(r.name, "result", dtype, len(r.type.dims), tuple(as_index(d) for d in r.type.dims), r.span, faulty=dtype is None)
        infos[r.name] = TensorInfo(dtype, len(r.type.dims), r.span)
    _collect(out, body)
    for o in operands:
        contracts.border_of(op, o.name, len(o.type.dims), True, report)
    for name, t in out.tensors.items():
        t.border = contracts.border_of(op, name, t.rank, False, report)
    for w in op.where:
        try:
            typed = type_expr(w, scope)
            if typed.dtype is not BOOL:
                report.error("dtype", w.span, "a condition of 'where' is a bool", (), "compare, as in 'where K mod 16 == 0'")
            out.conditions.append(typed)
        except (Faulty, Unknown):
            pass
    _type_all(out)
    return out


def _dtype(o: Operand, report: Report) -> DType | None:
    dtype = DTYPES.get(o.type.dtype)
    if dtype is None:
        report.error("dtype", o.type.span, f"'{o.type.dtype}' is no dtype", (), did_you_mean(o.type.dtype, DTYPES) or f"the dtypes are {', '.join(DTYPES)}")
    return dtype


def _check_dims(r: Operand, dims: Mapping[str, Span], report: Report) -> None:
    for d in r.type.dims:
        for n in walk(d):
            if isinstance(n, Name) and n.name not in dims:
                report.error("name", n.span, f"the dimension '{n.name}' of '%{r.name}' is in no operand and no 'dim' attribute", (),
                             did_you_mean(n.name, dims) or f"add an attribute '{n.name}: dim'")
            if isinstance(n, Dynamic):
                report.error("shape", n.span, f"'?' in the result '%{r.name}' has no size", (), "name the dimension, as in the operand that it comes from")


def _collect(out: Drafts, body: Compute) -> None:
    lets: dict[str, str] = {}
    first_let: dict[str, Let] = {}
    for item in body.body:
        if isinstance(item, Let):
            if item.name in first_let or item.name in out.scope.dims or item.name in out.scope.scalars:
                note = [Note("first here", first_let[item.name].span)] if item.name in first_let else []
                out.report.error("duplicate", item.span, f"'{item.name}' is defined twice", note, "give it another name")
                continue
            first_let[item.name] = item
            lets[item.name] = item.name if item.name not in out.scope.tensors and not any(
                isinstance(d, Define) and d.tensor == item.name for d in body.body) else f"let.{item.name}"
    out.scope.lets = lets
    for item in body.body:
        if isinstance(item, Let):
            if first_let.get(item.name) is item:
                _add_piece(out, lets[item.name], [], item.value, item.span, item.span)
        else:
            _define(out, item)


def _define(out: Drafts, item: Define) -> None:
    operand = next((o for o in out.operands if o.name == item.tensor), None)
    if operand is not None:
        out.report.error("duplicate", item.target, f"'%{item.tensor}' is an operand and cannot be defined", [Note("the operand", operand.span)],
                         "give the local another name")
        return
    axes = _left_side(out, item)
    if axes is not None:
        _add_piece(out, item.tensor, axes, item.value, item.span, item.target)
        return
    # What reads it, or misses it, is no mistake of its own.
    out.tensors.setdefault(item.tensor, Draft(item.tensor, "local", None, len(item.axes), None, item.target)).faulty = True
    out.scope.tensors.setdefault(item.tensor, TensorInfo(None, len(item.axes), item.target))


def _left_side(out: Drafts, item: Define) -> list[DraftAxis] | None:
    """The axes of a definition; None after an error."""
    report, op = out.report, out.op
    axes: list[DraftAxis] = []
    seen: dict[str, Span] = {}
    for a in item.axes:
        if isinstance(a, Dots):
            report.error("rank", a.span, f"'...' stands for no dimensions in '@{op.name}'", (), "write '...' in the signature too")
            return None
        if isinstance(a, Position):
            axes.append(DraftAxis("", None, None, a.value, a.span))
            continue
        if a.index in seen:
            report.error("duplicate", a.span, f"the index '{a.index}' stands twice on the left", [Note("first here", seen[a.index])],
                         "give it another name; one element of several is chosen with 'select(i == j, …, 0)'")
            return None
        if a.index in out.scope.dims or a.index in out.scope.scalars or a.index in out.scope.lets:
            report.error("duplicate", a.span, f"'{a.index}' is a dimension, an attribute or a 'let' of '@{op.name}'", (), "give the index another name")
            return None
        seen[a.index] = a.span
        try:
            lo = None if a.lo is None else type_index(a.lo, out.scope)
            hi = None if a.hi is None else type_index(a.hi, out.scope)
        except (Faulty, Unknown):
            return None
        axes.append(DraftAxis(a.index, lo if a.hi is None or lo is not None else IntLit(0, dtype=I64), hi, None, a.span))
    return axes


def _add_piece(out: Drafts, name: str, axes: list[DraftAxis], value: Expr, span: Span, target: Span) -> None:
    tensor = out.tensors.get(name)
    if tensor is not None and tensor.faulty and tensor.kind == "local":
        return
    if tensor is None:
        tensor = out.tensors[name] = Draft(name, "local", None, len(axes), None, target)
        out.scope.tensors[name] = TensorInfo(None, len(axes), target)
    elif tensor.rank != len(axes):
        out.report.error("rank", target, f"'%{name}' has {tensor.rank} dimension{'s' if tensor.rank != 1 else ''}, but {len(axes)} stand on the left",
                         [Note(f"'%{name}' is declared here", tensor.span)], f"write {tensor.rank} of them")
        tensor.faulty = True
        return
    tensor.pieces.append(DraftPiece(axes, value, span, target))


def _type_all(out: Drafts) -> None:
    """Type every value. Locals get their dtype from their pieces; a piece that reads a local of unknown dtype waits for it, since they may read each other."""
    scope = out.scope
    typed: dict[int, Expr] = {}
    scope.kept = lambda name: _kept(out, typed, name)
    ready = deque((t, p) for t in out.tensors.values() for p in t.pieces)
    waiting: dict[str, list[tuple[Draft, DraftPiece]]] = {}
    while True:
        while ready:
            t, p = ready.popleft()
            try:
                typed[id(p)] = _type_piece(out, p)
            except Unknown as unknown:
                waiting.setdefault(unknown.name, []).append((t, p))
            except Faulty:
                t.faulty = True
            if all(id(q) in typed for q in t.pieces) and _settle_local(out, t, typed, force=False):
                ready += waiting.pop(t.name, [])
        if not waiting:
            break
        for force in (False, True):
            settled = [t for t in map(out.tensors.__getitem__, list(waiting)) if _settle_local(out, t, typed, force)]
            if settled:
                break
        for t in settled:
            ready += waiting.pop(t.name)
        if not settled:
            _report_untyped(out, [w for ws in waiting.values() for w in ws])
            break
    for t in out.tensors.values():
        for p in t.pieces:
            if id(p) in typed and t.dtype is not None:
                try:
                    p.value = store(typed[id(p)], t.dtype, scope, t.name)
                except Faulty:
                    t.faulty = True


def _type_piece(out: Drafts, p: DraftPiece) -> Expr:
    scope = out.scope
    scope.indices = {a.index: a.span for a in p.axes if a.position is None}
    try:
        return type_expr(p.value, scope)
    finally:
        scope.indices = {}


def _settle_local(out: Drafts, t: Draft, typed: dict[int, Expr], force: bool) -> bool:
    """Fix a local's dtype once a piece tells it: at once if every piece is typed, from those that are if the others wait for it."""
    if t.dtype is not None or t.faulty:
        return False
    known = [typed[id(p)].dtype for p in t.pieces if id(p) in typed]
    firm = [d for d in known if d not in (FLEX_INT, FLEX_FLOAT)]
    if not known or (len(known) < len(t.pieces) and not firm and not force):
        return False
    dtype: DType | None = None
    for d in known:
        assert d is not None
        flexible = d in (FLEX_INT, FLEX_FLOAT)
        if dtype is None:
            dtype = d
        elif dtype in (FLEX_INT, FLEX_FLOAT):
            dtype = (FLEX_FLOAT if FLEX_FLOAT in (d, dtype) else d) if flexible else d
        elif not flexible:
            met = join(dtype, d)
            if met is None:
                out.report.error("dtype", t.pieces[-1].target, f"one piece of '%{t.name}' is a bool, another a number",
                                 [Note("the first piece", t.pieces[0].target)], "give all pieces one type")
                t.faulty = True
                return True
            dtype = met
    assert dtype is not None
    t.dtype = settle_type(dtype)
    out.scope.tensors[t.name] = replace(out.scope.tensors[t.name], dtype=t.dtype)
    return True


def _report_untyped(out: Drafts, rest: list[tuple[Draft, DraftPiece]]) -> None:
    """What is left reads only itself: a ring without a base case. Silent where an error has been reported that explains it."""
    if out.report.failed or not rest:
        return
    # What only reads the ring waits for it too, and is no part of it.
    place = {t.name: k for k, t in reversed(list(enumerate(t for t, _ in rest)))}
    needs = [{place[r.tensor] for r in reads_in(p.value) if r.tensor in place} for _, p in rest]
    ring = [rest[k] for k in find_cycle(range(len(rest)), needs)] or rest
    first = min(ring, key=lambda x: x[1].span.start)
    others = [Note(f"and '%{t.name}' here", p.target) for t, p in ring if t is not first[0]]
    said = f"'%{first[0].name}' is defined by itself" if not others else \
        " and ".join(f"'%{t.name}'" for t, _ in sorted(ring, key=lambda x: x[1].span.start)) + " need each other at the same place"
    out.report.error("cycle", first[1].target, said, others, "give it a base case, or break the ring")


def _kept(out: Drafts, typed: dict[int, Expr], name: str) -> DType | None:
    """The narrow dtype that all pieces of a local keep."""
    t = out.tensors.get(name)
    if t is None or t.kind != "local":
        return None
    kinds = set()
    for p in t.pieces:
        value = typed.get(id(p))
        if value is None or any(getattr(n, "tensor", None) == name for n in walk(value)):
            return None
        kinds.add(kept_dtype(value, out.scope))
    return kinds.pop() if len(kinds) == 1 else None


