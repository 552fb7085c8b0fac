"""An operator whose definitions were rewritten in the typed form, as an operator that prints and reads back: conversions that inference makes by itself
are left out, a `let` is called by its name again, and what did not change stays as it was written."""
from __future__ import annotations

from dataclasses import replace

from pipelink_ir.ir.nodes import Axis, Cast, Compute, Define, Expr, FloatLit, IntLit, Let, Name, Operator, Range, Read
from pipelink_ir.ir.source import Span
from pipelink_ir.ir.typed import Tensor, TypedOperator
from pipelink_ir.ir.walk import reads_in, rebuild


def retold(before: TypedOperator, after: TypedOperator, extents: bool = False) -> Operator:
    """The operator of `before` with the definitions of `after`: new locals stand before the definition that they were made for. With `extents`, locals that
    these read have the extents written out that they had: what is read over parts is read as a whole, which inference would have to find out again."""
    op = before.op
    assert op.compute is not None
    lets = _lets(op.compute, before)
    places = {t: k for k, t in enumerate(n for g in after.order for n in g.tensors)}
    made = sorted((t for t in after.tensors.values() if t.name not in before.tensors), key=lambda t: places[t.name])
    seen: dict[str, int] = {}
    items: list[Let | Define] = []
    for item in op.compute.body:
        if isinstance(item, Let):
            name = next(tensor for tensor, let in lets.items() if let == item.name)
            items.append(_changed(item, before, after, name, 0, lets))
        elif item.tensor in after.tensors:
            k = seen.get(item.tensor, 0)
            seen[item.tensor] = k + 1
            items.append(_changed(item, before, after, item.tensor, k, lets))
    if extents:
        read = {r.tensor for t in made for p in t.pieces for r in reads_in(p.value)}
        items = [_with_extents(i, before.tensors[i.tensor], lets) if isinstance(i, Define) and i.tensor in read else i for i in items]
    items = _placed(items, [_define(t, lets) for t in made])
    return replace(op, compute=replace(op.compute, body=tuple(items)))


def _lets(body: Compute, typed: TypedOperator) -> dict[str, str]:
    """The locals that stand for `let`s, and what these are called."""
    names = [item.name for item in body.body if isinstance(item, Let)]
    return {(f"let.{n}" if f"let.{n}" in typed.tensors else n): n for n in names}


def _changed(item: Let | Define, before: TypedOperator, after: TypedOperator, tensor: str, piece: int, lets: dict[str, str]) -> Let | Define:
    """A definition with its new value; itself if that is the old one."""
    value = after.tensors[tensor].pieces[piece].value
    if value is before.tensors[tensor].pieces[piece].value:
        return item
    return replace(item, value=plain(value, lets))


def _define(t: Tensor, lets: dict[str, str]) -> Define:
    """A new local, with its extents."""
    piece = t.pieces[0]
    axes = tuple(_axis(a.index, a.lo, a.hi, a.span, lets) for a in piece.axes)
    return Define(t.name, axes, plain(piece.value, lets), span=piece.span, target=piece.span)


def _axis(index: str, lo: Expr | None, hi: Expr, span: Span, lets: dict[str, str]) -> Axis:
    return Axis(index, None if lo in (None, IntLit(0)) else plain(lo, lets), plain(hi, lets), span=span)


def _with_extents(item: Define, t: Tensor, lets: dict[str, str]) -> Define:
    """A local of one piece with the extents that were inferred."""
    if t.kind != "local" or len(t.pieces) != 1 or not all(isinstance(a, Axis) for a in item.axes):
        return item
    axes = tuple(_axis(a.index, lo, hi, a.span, lets) if isinstance(a, Axis) and a.hi is None else a for a, (lo, hi) in zip(item.axes, t.shape, strict=True))
    return replace(item, axes=axes)


def _placed(items: list[Let | Define], made: list[Define]) -> list[Let | Define]:
    """The definitions with each new one before the first that reads it."""
    out = list(items)
    for d in reversed(made):
        at = next((k for k, item in enumerate(out) if any(r.tensor == d.tensor for r in reads_in(item.value))), len(out))
        out.insert(at, d)
    return out


def plain(x: Expr, lets: dict[str, str]) -> Expr:
    """A typed expression as it would be written."""
    if isinstance(x, Cast) and x.implicit:
        return plain(x.arg, lets)
    if isinstance(x, Read) and x.tensor in lets:
        return Name(lets[x.tensor], span=x.span)
    x = rebuild(x, lambda c: plain(c, lets))
    if isinstance(x, Read):
        return replace(x, access=(), dtype=None)
    if isinstance(x, Range):
        return replace(x, lo=None if x.lo == IntLit(0) else x.lo)
    if isinstance(x, IntLit | FloatLit) or x.dtype is None:
        return x
    return replace(x, dtype=None)
