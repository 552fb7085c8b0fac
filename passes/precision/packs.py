"""Operands that were given as a list: `@conv([%a, %b] along C, %k)`. Inference makes an operand of each part, and a local that is defined piece by piece.

    op @conv.1(%x.0: tensor<NxHx32xf16>, %x.1: tensor<NxHx32xf16>, …) { compute { %x[n < N, h < H, c in 0..32]  = %x.0[n, h, c]
                                                                                  %x[n < N, h < H, c in 32..64] = %x.1[n, h, c - 32]  … %x[n, h, k] * … } }

For codes the local is looked at as the operand that it stands for: `opened` makes it one, `closed` puts the parts back, which are codes of one scale then.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pipelink_ir.ir.diagnostics import ProgramError
from pipelink_ir.ir.nodes import Attribute, Axis, Compute, Define, Expr, IntLit, Operand, Operator, Position, Read, Scoped, Section, TensorType
from pipelink_ir.passes.infer.operator import typed_operator
from pipelink_ir.passes.precision.calibrated import EdgeRange
from pipelink_ir.passes.precision.codes import Codes, code_type
from pipelink_ir.passes.precision.floats import is_float

Packs = Mapping[str, tuple[str, ...]]
"""Locals with the operands that they are made of, in order."""


def packs_of(op: Operator) -> Packs:
    """The locals of an operator that stand for a list of floats."""
    operands = {o.name: o for o in op.operands if is_float(o.type.dtype)}
    out: dict[str, tuple[str, ...]] = {}
    for name in dict.fromkeys(o.rpartition(".")[0] for o in operands if o.rpartition(".")[2].isdigit()):
        pieces = _pieces(op, name)
        parts = tuple(d.value.tensor for d in pieces if isinstance(d.value, Read))
        whole = len(parts) == len(pieces) > 1 and all(p in operands and p.rpartition(".")[0] == name for p in parts) and len(set(parts)) == len(parts)
        if whole and len({operands[p].type.dtype for p in parts}) == 1 and _type(op, name, operands[parts[0]].type) is not None:
            out[name] = parts
    return out


def _pieces(op: Operator, name: str) -> list[Define]:
    return [d for d in op.compute.body if isinstance(d, Define) and d.tensor == name] if op.compute is not None else []


def _type(op: Operator, name: str, part: TensorType) -> TensorType | None:
    """The type of what the pieces make together; None where its extents are not written."""
    pieces = _pieces(op, name)
    last = pieces[-1]
    dims: list[Expr] = []
    for a in last.axes:
        if isinstance(a, Position):
            dims.append(IntLit(len(pieces)))
        elif isinstance(a, Axis) and a.hi is not None:
            dims.append(a.hi)
        else:
            return None
    return TensorType(tuple(dims), part.dtype)


def opened(op: Operator, packs: Packs) -> Operator:
    """The operator with each of these locals as an operand, in the place of its first part."""
    if not packs or op.compute is None:
        return op
    parts = {p: name for name, of in packs.items() for p in of}
    params: list[Operand | Attribute] = []
    for p in op.params:
        if p.name not in parts:
            params.append(p)
        elif packs[parts[p.name]][0] == p.name and isinstance(p, Operand):
            type = _type(op, parts[p.name], p.type)
            assert type is not None
            params.append(replace(p, name=parts[p.name], type=type))
    body = tuple(d for d in op.compute.body if not (isinstance(d, Define) and d.tensor in packs))
    sections = tuple(s for old in op.sections if (s := _without(old, parts)).entries)
    return replace(op, params=tuple(params), sections=sections, compute=replace(op.compute, body=body))


def _without(s: Section, parts: Mapping[str, str]) -> Section:
    return replace(s, entries=tuple(e for e in s.entries if not (isinstance(e, Scoped) and e.tensor in parts)))


def closed(made: Operator, op: Operator, packs: Packs, codes: Mapping[str, Codes]) -> Operator | str:
    """`made`, which came of `opened(op, …)` on codes, with the parts in the places of these operands; a text says why that cannot be."""
    if not packs or op.compute is None or made.compute is None:
        return made
    types = {o.name: o.type for o in op.operands}
    params: list[Operand | Attribute] = []
    for p in made.params:
        if p.name in packs:
            params += [Operand(part, code_type(types[part], codes[part])) for part in packs[p.name]]
        else:
            params.append(p)
    pieces = tuple(d for name in packs for d in _pieces(op, name))
    out = replace(made, params=tuple(params), compute=Compute((*pieces, *made.compute.body), span=made.compute.span))
    try:
        typed_operator(out)
    except ProgramError as e:
        return f"on codes it could not be shown to be right: {e.diagnostics[0].message}"
    return out


def together(seen: list[EdgeRange | None]) -> EdgeRange | None:
    """The range of all parts; None if that of one is not known."""
    known = [s for s in seen if s is not None]
    if not known or len(known) < len(seen):
        return None
    return EdgeRange(min(s.min for s in known), max(s.max for s in known), min(s.low for s in known), max(s.high for s in known))
