"""The verifier's rules for the body of one operator: `results`, `axes`, `names`, `functions` (see `passes/verify.py`)."""
from __future__ import annotations

from collections.abc import Iterator

from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.functions import FUNCTIONS, REDUCTIONS
from pipelink_ir.ir.nodes import Apply, Attribute, Axis, Cast, Compute, Define, Dots, Expr, Let, Name, Operator, Range, Read, Reduce
from pipelink_ir.ir.source import Span
from pipelink_ir.ir.walk import children, walk

Broken = tuple[str, str, Span]


def verify_compute(op: Operator) -> Iterator[Broken]:
    """What does not hold of the `compute` and `gradient` of a monomorphic operator: rule, message, place."""
    if op.compute is not None:
        ranks = {o.name: len(o.type.dims) for o in (*op.operands, *op.results)}
        yield from _results(op, op.compute)
        yield from _body(op, op.compute, ranks)
    if op.gradient is not None:
        # The adjoint reads operands, results and what comes in for each result, and defines one adjoint for an operand.
        ranks = {o.name: len(o.type.dims) for o in (*op.operands, *op.results)}
        ranks |= {"d" + o.name: len(o.type.dims) for o in (*op.operands, *op.results)}
        yield from _body(op, op.gradient, ranks)


def _results(op: Operator, body: Compute) -> Iterator[Broken]:
    defined = {d.tensor for d in body.body if isinstance(d, Define)}
    for result in op.results:
        if result.name not in defined:
            yield "results", f"'%{result.name}' of '@{op.name}' is not assigned", result.span
    operands = {o.name for o in op.operands}
    for piece in body.body:
        if isinstance(piece, Define) and piece.tensor in operands:
            yield "results", f"the operand '%{piece.tensor}' of '@{op.name}' is assigned", piece.span


def _body(op: Operator, body: Compute, ranks: dict[str, int]) -> Iterator[Broken]:
    for piece in body.body:
        if isinstance(piece, Define):
            ranks.setdefault(piece.tensor, len(piece.axes))
            if len(piece.axes) != ranks[piece.tensor]:
                yield "axes", f"'%{piece.tensor}' of '@{op.name}' has {ranks[piece.tensor]} axes, a piece {len(piece.axes)}", piece.span
    known = _known(op, body)
    for piece in body.body:
        inner = known
        if isinstance(piece, Define):
            inner = known | {a.index for a in piece.axes if isinstance(a, Axis)}
            for axis in piece.axes:
                if isinstance(axis, Dots):
                    yield "monomorphic", f"'...' is left in '@{op.name}'", piece.span
                if isinstance(axis, Axis):
                    for bound in (axis.lo, axis.hi):
                        yield from () if bound is None else _expression(bound, known, ranks)
        yield from _expression(piece.value, inner, ranks)


def _known(op: Operator, body: Compute) -> frozenset[str]:
    """The names of dimensions, attributes and lets."""
    dims = {n.name for o in op.operands for d in o.type.dims for n in walk(d) if isinstance(n, Name)}
    attributes = {p.name for p in op.params if isinstance(p, Attribute)}
    lets = {d.name for d in body.body if isinstance(d, Let)}
    return frozenset(dims | attributes | lets)


def _expression(e: Expr, known: frozenset[str] | set[str], ranks: dict[str, int]) -> Iterator[Broken]:
    """Without recursion; the indices of a reduction are known in its filter, body and rank."""
    stack = [(e, frozenset(known))]
    while stack:
        node, names = stack.pop()
        if isinstance(node, Name) and node.name not in names:
            yield "names", f"nothing is called '{node.name}'", node.span
        if isinstance(node, Read):
            if node.tensor not in ranks:
                yield "names", f"there is no tensor '%{node.tensor}'", node.span
            elif len(node.indices) != ranks[node.tensor]:
                yield "axes", f"'%{node.tensor}' has {ranks[node.tensor]} axes and is read with {len(node.indices)}", node.span
        yield from _function(node)
        if isinstance(node, Reduce):
            inner = names
            for r in node.ranges:
                stack.append((r, inner))
                inner |= {r.index} if isinstance(r, Range) else set()
            stack += [(x, inner) for x in (node.where, node.body, node.rank) if x is not None]
        else:
            stack += [(c, names) for c in children(node)]


def _function(node: Expr) -> Iterator[Broken]:
    if isinstance(node, Apply) and (node.fn not in FUNCTIONS or FUNCTIONS[node.fn].arity != len(node.args)):
        yield "functions", f"there is no function '{node.fn}' of {len(node.args)} arguments", node.span
    if isinstance(node, Reduce) and (node.kind not in REDUCTIONS or (node.rank is not None) != REDUCTIONS[node.kind].ranked):
        yield "functions", f"there is no reduction '{node.kind}' of this form", node.span
    if isinstance(node, Cast) and node.to not in DTYPES:
        yield "functions", f"there is no dtype '{node.to}'", node.span
    if isinstance(node, Dots):
        yield "monomorphic", "'...' is left in an expression", node.span
