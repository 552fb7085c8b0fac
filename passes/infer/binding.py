"""What one call fixes in the operator that it calls, and what it asks of sizes."""
from __future__ import annotations

from dataclasses import replace

from pipelink_ir.ir.affine import normal
from pipelink_ir.ir.dtypes import BOOL, I64
from pipelink_ir.ir.nodes import Apply, Dynamic, Expr, IntLit, Name, Operator, TensorType
from pipelink_ir.passes.infer.attributes import Values, is_constant, literal_of
from pipelink_ir.passes.infer.calls import Match
from pipelink_ir.passes.infer.drafts import as_index
from pipelink_ir.passes.infer.specialise import Binding, Packed, Part, fresh, names_of


def existence(op: Operator, types: tuple[TensorType, ...]) -> list[Expr]:
    """What a result asks of the sizes of a call to exist: no dimension may be negative."""
    return [Apply(">=", (as_index(d), IntLit(0, dtype=I64)), span=r.type.span, dtype=BOOL) for r, t in zip(op.results, types, strict=True) for d in t.dims
            if not isinstance(d, Name | IntLit | Dynamic)]


def binding_of(op: Operator, match: Match, values: Values) -> Binding:
    """What of a call is fixed in the operator: everything but symbols and what is computed from them."""
    own = {o.type.dtype for o in (*op.operands, *op.results)}
    dtypes = tuple(sorted((k, v) for k, v in match.dtypes.items() if k in own or k in values.dtypes))
    attributes = {a.name: a for a in op.attributes}
    dims: dict[str, Expr] = {k: v for k, v in match.dims.items() if isinstance(v, IntLit)}
    dots: tuple[Expr, ...] | None = None
    if match.dots is not None:
        names = fresh("D", len(match.dots), names_of(op))
        # Each dimension of `...` is a symbol of the operator, or the constant that it is.
        dots = tuple(d if isinstance(d, IntLit) else Name(n) for d, n in zip(match.dots, names, strict=True))
        for d, n in zip(match.dots, names, strict=True):
            match.dims.setdefault(n, d)
    # A kernel that a user wrote gets all its attributes as they are.
    constant = {} if op.kernel is not None else {k: v for k, v in values.scalars.items() if is_constant(v)}
    scalars = tuple(sorted((k, literal_of(v, attributes[k].type)) for k, v in constant.items()))
    own_packed = _in_own_symbols(op, match, dims)
    return Binding(dtypes, dots, tuple(sorted(dims.items(), key=lambda kv: kv[0])), tuple(sorted(values.words.items())), scalars, own_packed)


def _in_own_symbols(op: Operator, match: Match, dims: dict[str, Expr]) -> tuple[tuple[str, Packed], ...]:
    """Packed operands with the extents of joined parts as symbols of the operator; the joined dimension becomes their sum."""
    out: list[tuple[str, Packed]] = []
    used = names_of(op)
    operands = {o.name: o for o in op.operands}
    for name, p in sorted(match.packed.items()):
        if p.stack:
            out.append((name, p))
            continue
        names = fresh("P", len(p.parts), used)
        used |= set(names)
        parts: list[Part] = []
        for n, part in zip(names, p.parts, strict=True):
            match.dims[n] = part.extent
            parts.append(part if isinstance(part.extent, IntLit) else Part(Name(n)))
        joined = operands[name].type.dims[p.axis]
        if isinstance(joined, Name):
            total = parts[0].extent
            for part in parts[1:]:
                total = Apply("+", (total, part.extent))
            dims[joined.name] = normal(total)
        out.append((name, replace(p, parts=tuple(parts))))
    return tuple(out)
