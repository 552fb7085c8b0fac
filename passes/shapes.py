"""Symbols of an operator against the types that it is called with."""
from __future__ import annotations

from collections.abc import Sequence

from pipelink_ir.ir.diagnostics import internal_error
from pipelink_ir.ir.nodes import Apply, Expr, IntLit, Name, Operator, TensorType
from pipelink_ir.ir.prover import normal, solve
from pipelink_ir.ir.walk import substitute, walk


def bind_symbols(operator: Operator, types: Sequence[TensorType]) -> dict[str, Expr]:
    """What each dimension of a monomorphic operator is for arguments of these types, which have been checked to fit."""
    pairs = [(d, a) for o, t in zip(operator.operands, types, strict=True) for d, a in zip(o.type.dims, t.dims, strict=True)]
    bound: dict[str, Expr] = {}
    for dim, actual in pairs:
        if isinstance(dim, Name):
            bound.setdefault(dim.name, actual)
    waiting = [(d, a) for d, a in pairs if not isinstance(d, Name | IntLit)]
    attributes = {a.name for a in operator.attributes}
    while waiting:
        left: list[tuple[Expr, Expr]] = []
        for dim, actual in waiting:
            unknown = {n.name for n in walk(dim) if isinstance(n, Name)} - bound.keys() - attributes
            if len(unknown) == 1:
                name = unknown.pop()
                bound[name] = _solved(dim, actual, name, bound)
            elif unknown:
                left.append((dim, actual))
        if len(left) == len(waiting):
            internal_error(f"the dimensions of '@{operator.name}' cannot be told from its arguments")
        waiting = left
    return bound


def _solved(dim: Expr, actual: Expr, name: str, bound: dict[str, Expr]) -> Expr:
    """The value of `name` in dim == actual. The name belongs to the operator, so it gets a spelling that no name of the caller has."""
    own = "." + name
    pattern = substitute(dim, {**bound, name: Name(own)})
    found = solve(pattern, actual, own)
    if found is not None:
        return found
    # That it divides is checked at the call.
    offset = substitute(pattern, {own: IntLit(0)})
    factor = Apply("-", (substitute(pattern, {own: IntLit(1)}), offset))
    return normal(Apply("floordiv", (Apply("-", (actual, offset)), factor)))
