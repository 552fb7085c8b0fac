"""Operators that only choose among the values that they read: max-pooling, transposition, gathering, joining, cutting out.

Coding is monotone, so that it may come before or after a choice: `q(max(a, b)) = max(q(a), q(b))`. Such an operator works on codes themselves, without a
scale, and its result has the codes of its operands. Constants among the choices become their codes. (A NaN has the code 0 and is not the largest any more.)
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pipelink_ir.ir import contracts
from pipelink_ir.ir.diagnostics import ProgramError
from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.nodes import Apply, Cast, Define, Expr, FloatLit, IntLit, Items, Let, Operand, Operator, Range, Read, Reduce
from pipelink_ir.ir.walk import children, rebuild, walk
from pipelink_ir.passes.contracts.values import number
from pipelink_ir.passes.infer.operator import typed_operator
from pipelink_ir.passes.precision.codes import Codes, code_type, constant_of
from pipelink_ir.passes.precision.products import WIDE
from pipelink_ir.passes.precision.sections import NoCode, sections_on_codes

CHOOSES = ("max", "min")
"""Functions and reductions that give one of their arguments."""


def selects(op: Operator) -> bool:
    """Whether each result is made of floats that it reads, chosen by their order, by indices or by other data."""
    if op.compute is None:
        return False
    floats = _floats(op)
    if not any(o.name in floats for o in op.operands) or not all(_is_float(r) for r in op.results):
        return False
    kept = {r.type.dtype for r in (*op.results, *(o for o in op.operands if o.name in floats))}
    # What is rounded to a narrower dtype on the way is another value.
    return len(kept) == 1 and all(isinstance(d, Define) and _chosen(d.value, floats) for d in op.compute.body)


def _is_float(o: Operand) -> bool:
    return o.type.dtype in DTYPES and DTYPES[o.type.dtype].is_float


def _floats(op: Operator) -> frozenset[str]:
    """Tensors of floats: operands, and everything that is defined."""
    defined = {d.tensor for d in op.compute.body if isinstance(d, Define)} if op.compute is not None else set()
    return frozenset({o.name for o in op.operands if _is_float(o)} | defined)


def _chosen(e: Expr, floats: frozenset[str]) -> bool:
    """Whether an expression is one of the floats that it reads, or a constant."""
    if isinstance(e, Read):
        return e.tensor in floats and not any(_reads(i, floats) for i in e.indices)
    if isinstance(e, IntLit | FloatLit) or number(e) is not None:
        return True
    if isinstance(e, Cast):
        return e.to in WIDE and not e.saturate and _chosen(e.arg, floats)
    if isinstance(e, Apply) and e.fn == "select":
        return not _reads(e.args[0], floats) and all(_chosen(a, floats) for a in e.args[1:])
    if isinstance(e, Apply):
        return e.fn in CHOOSES and all(_chosen(a, floats) for a in e.args)
    if isinstance(e, Reduce) and e.kind in (*CHOOSES, "nth"):
        beside = [b for r in e.ranges if isinstance(r, Range) for b in (r.lo, r.hi)] + [e.where, e.rank]
        return not any(b is not None and _reads(b, floats) for b in beside) and _chosen(e.body, floats)
    return False


def _reads(e: Expr, floats: frozenset[str]) -> bool:
    return (isinstance(e, Read) and e.tensor in floats) or any(_reads(c, floats) for c in children(e))


@dataclass(frozen=True, slots=True)
class _Same:
    """The codes that all operands of floats share."""

    codes: Codes
    names: frozenset[str]


def on_codes(op: Operator, codes: Mapping[str, Codes], name: str) -> Operator | str:
    """An operator that `selects`, on codes of all its operands of floats, which have one scale and zero point: its results are such codes, too. No operands
    are added. A text says why that cannot be."""
    floats = [o for o in op.operands if _is_float(o)]
    missing = next((o.name for o in floats if o.name not in codes), None)
    if missing is not None:
        return f"'%{missing}' is not coded"
    first = codes[floats[0].name]
    if any(codes[o.name].meaning != first.meaning for o in floats):
        return "its operands have other scales or zero points each"
    if contracts.empty(op) is not None and (first.shifted or contracts.empty(op) != "zero"):
        return "it says what a choice among nothing is, which is no code"
    if first.scale != "tensor" and isinstance(first.scale, str):
        return f"its operands have a scale for each {first.scale}"
    same = replace(first, order=(), packed=None, axis=None, size=None)
    try:
        made = _on_codes(op, _Same(same, frozenset(o.name for o in floats)), name)
        typed_operator(made)
    except NoCode as e:
        return str(e)
    except ProgramError as e:
        return f"on codes it could not be shown to be right: {e.diagnostics[0].message}"
    if op.kernel is not None and not _as_written(op, made):
        return "its kernel knows constants as values, which have other codes"
    return made


def _as_written(op: Operator, made: Operator) -> bool:
    """Whether the constants of an operator on codes, those of its borders too, are those that it has on values."""
    def constants(one: Operator) -> list[float]:
        borders = [f.setting.value for o in one.operands if (f := contracts.setting(one, "memory", "border", o.name)) is not None]
        flat = [v for b in borders for v in (b.items if isinstance(b, Items) else (b,)) if isinstance(v, Expr)]
        body = [d.value for d in (one.compute.body if one.compute is not None else ())]
        return [v for whole in (*body, *flat) for e in walk(whole) if (v := number(e)) is not None]
    return constants(op) == constants(made)


def _on_codes(op: Operator, same: _Same, name: str) -> Operator:
    assert op.compute is not None
    results = {r.name for r in op.results}
    body: list[Let | Define] = []
    for d in op.compute.body:
        assert isinstance(d, Define)
        value = _coded(d.value, same.codes)
        body.append(replace(d, value=_stored(value, same.codes) if d.tensor in results else value))
    params = [replace(p, type=code_type(p.type, same.codes)) if isinstance(p, Operand) and p.name in same.names else p for p in op.params]
    made = [replace(r, type=replace(r.type, dtype=same.codes.dtype)) for r in op.results]
    return replace(op, name=name, params=tuple(params), results=tuple(made), compute=replace(op.compute, body=tuple(body)), gradient=None,
                   sections=sections_on_codes(op, dict.fromkeys(same.names, same.codes), {}, frozenset(results)))


def _stored(e: Expr, codes: Codes) -> Expr:
    """A code as it is stored: what a maximum of nothing gives saturates, as it does when it is coded."""
    beyond = any(isinstance(x, Reduce) for x in walk(e))
    if codes.is_int:
        return Cast(codes.dtype, e, beyond, span=e.span)
    top = codes.info.largest
    return Apply("clamp", (e, FloatLit(-top), FloatLit(top)), span=e.span) if beyond else e


def _coded(e: Expr, codes: Codes) -> Expr:
    value = number(e) if not isinstance(e, Read | Reduce) else None
    if value is not None:
        code = constant_of(value, codes)
        if code is None:
            raise NoCode("it has a constant, which has no code before ranges are found at the call")
        return code
    if isinstance(e, Cast):
        return _coded(e.arg, codes)
    if isinstance(e, Read):
        return e
    if isinstance(e, Apply) and e.fn == "select":
        return replace(e, args=(e.args[0], *(_coded(a, codes) for a in e.args[1:])))
    if isinstance(e, Reduce):
        return replace(e, body=_coded(e.body, codes))
    return rebuild(e, lambda x: _coded(x, codes))
