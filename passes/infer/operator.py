"""Inference of one operator: `Operator` in, `TypedOperator` out."""
from __future__ import annotations

from dataclasses import replace

from pipelink_ir.ir import contracts
from pipelink_ir.ir.diagnostics import Report, internal_error
from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.nodes import Apply, Compute, Define, Expr, Let, Operand, Operator, Read, Reduce
from pipelink_ir.ir.typed import Tensor, TypedOperator
from pipelink_ir.ir.walk import deep, rebuild, substitute, walk
from pipelink_ir.passes.infer.boxes import ZERO, Boxes, Inline
from pipelink_ir.passes.infer.drafts import Drafts, as_index, draft
from pipelink_ir.passes.infer.groups import order_groups

KEPT = 1 << 15
"""So many typed operators are remembered: more than the largest pipelines have, since each pass asks for all of them."""
_CACHE: dict[int, tuple[Operator, TypedOperator]] = {}
"""Typed operators by the identity of the operator, which is kept alive with it."""


def typed_operator(op: Operator) -> TypedOperator:
    """The typed form of an operator with a `compute` that is free of type variables, `...` and words. Computed once for each object.

    Raises `ProgramError` if the operator is at fault; after `infer-types` it never is."""
    found = _CACHE.get(id(op))
    if found is not None and found[0] is op:
        return found[1]
    report = Report()
    typed = infer_operator(op, report)
    report.stop_if_failed()
    if typed is None:
        internal_error(f"'@{op.name}' has no typed form, and nothing was reported")
    keep_typed(op, typed)
    return typed


def keep_typed(op: Operator, typed: TypedOperator) -> None:
    """Remember the typed form of an operator, so that nobody infers it again."""
    if len(_CACHE) > KEPT:
        _CACHE.clear()
    _CACHE[id(op)] = (op, typed)


def infer_operator(op: Operator, report: Report, *, generic: bool = False) -> TypedOperator | None:
    """Type and check one operator; None after an error. `generic`: sizes are symbols as the user wrote them, so that an index which is never inside is
    his fault and not that of a call with a small image."""
    if op.compute is None:
        internal_error(f"'@{op.name}' has no compute")
    with deep():
        return _infer_body(op, op.compute, report, generic)


def _infer_body(op: Operator, body: Compute, report: Report, generic: bool) -> TypedOperator | None:
    operands, results = op.operands, op.results
    before = len(report.diagnostics)

    def failed() -> bool:
        return any(d.severity == "error" for d in report.diagnostics[before:])

    while True:
        drafts = draft(op, operands, results, body, report)
        _check_results(drafts, report)
        if failed():
            return None
        groups = order_groups(drafts.tensors, report)
        if groups is None or failed():
            return None
        boxes = Boxes(drafts, groups, generic)
        try:
            tensors = boxes.run()
        except Inline as inline:
            body = _inline(body, drafts, inline, report)
            if failed():
                return None
            continue
        if failed():
            return None
        break
    every = {o.name: _operand(o, op, boxes, report) for o in operands} | {n: tensors[n] for n in drafts.tensors}
    if failed():
        return None
    exact, exactly = contracts.exact(op), contracts.exact_definitions(op)
    if any(isinstance(x, Reduce) for n in exactly if n in every for p in every[n].pieces for x in walk(p.value)):
        exact = True
    exactly = frozenset() if exact else exactly & every.keys()
    every |= {n: replace(every[n], pieces=tuple(replace(p, value=_exactly(p.value)) for p in every[n].pieces)) for n in exactly}
    return TypedOperator(
        op=op, tensors=every, symbols=tuple(drafts.scope.dims), scalars=tuple(drafts.scope.scalars.items()), order=tuple(groups),
        empty=contracts.empty(op), exact=exact, fast_math=contracts.fast_math(op), exactly=exactly)


def _exactly(x: Expr) -> Expr:
    """An expression whose functions round correctly."""
    x = rebuild(x, _exactly)
    return replace(x, exact=True) if isinstance(x, Apply) and x.dtype is not None and x.dtype.is_float else x


def _check_results(drafts: Drafts, report: Report) -> None:
    for t in drafts.tensors.values():
        if t.kind == "result" and not t.pieces and not t.faulty:
            report.error("result", t.span, f"'@{drafts.op.name}' never defines its result '%{t.name}'", (), f"write '%{t.name}[…] = …' in compute")


def _operand(o: Operand, op: Operator, boxes: Boxes, report: Report) -> Tensor:
    dtype = DTYPES[o.type.dtype]
    border = contracts.border_of(op, o.name, len(o.type.dims), True, report)
    return Tensor(o.name, "operand", dtype, tuple((ZERO, as_index(d)) for d in o.type.dims), boxes.typed_border(border, dtype.compute), (), o.span)


def _inline(body: Compute, drafts: Drafts, inline: Inline, report: Report) -> Compute:
    """Put a local that has no box into its readers."""
    t = drafts.tensors[inline.name]
    simple = len(t.pieces) == 1 and all(a.position is None and a.hi is None for a in t.pieces[0].axes)
    defines = [d for d in body.body if isinstance(d, Define) and d.tensor == inline.name]
    if not simple or len(defines) != 1 or any(b[0] != "none" for b in t.border):
        report.error("shape", t.span, f"'%{inline.name}' is read at an index that depends on data, so its extent cannot be inferred", (),
                     "write the extents on the left side, as in 'n < N'")
        return body
    define = defines[0]
    names = [a.index for a in t.pieces[0].axes]

    def put(e: Expr) -> Expr:
        e = rebuild(e, put)
        if isinstance(e, Read) and e.tensor == inline.name:
            return substitute(define.value, dict(zip(names, e.indices, strict=True)))
        return e

    items: list[Let | Define] = [replace(i, value=put(i.value)) for i in body.body if i is not define]
    return replace(body, body=tuple(items))


