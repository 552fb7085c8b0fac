"""`gradient { … }`: the adjoint of an operator, checked like a `compute` of its own whose results are the adjoints `%dx` of operands `%x`."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pipelink_ir.ir.affine import normal
from pipelink_ir.ir.diagnostics import Diagnostic, Note, Report, code_of, did_you_mean
from pipelink_ir.ir.nodes import Axis, Define, Expr, Name, Operand, Operator, Read
from pipelink_ir.ir.source import Span
from pipelink_ir.ir.walk import walk
from pipelink_ir.passes.infer.operator import infer_operator
from pipelink_ir.passes.infer.text import show


def check_gradient(op: Operator, example: Operator, report: Report) -> None:
    """Report what is wrong with the adjoint of `op`, whose specialised form is `example`. It defines `%dx` for operands `%x` alone and reads `%dy` for
    results `%y`."""
    if op.gradient is None or example.gradient is None:
        return
    operands = {f"d{o.name}": o for o in example.operands}
    defined = {d.tensor: d for d in reversed(op.gradient.body) if isinstance(d, Define)}
    read = {getattr(n, "tensor", None) for d in op.gradient.body for n in walk(d.value)}
    # A local of the adjoint is read by it; what nobody reads is meant as an adjoint, and so is what has the name of an incoming gradient.
    incoming = {f"d{r.name}" for r in example.results} - set(operands)
    strange = [d for n, d in defined.items() if n not in operands and (n not in read or n in incoming)]
    for d in sorted(strange, key=lambda d: d.span.start):
        why = "comes in, and is not defined" if d.tensor in incoming else f"is the adjoint of no operand of '@{op.name}'"
        near = None if d.tensor in incoming else did_you_mean(d.tensor, operands, "%")
        report.error("gradient", d.target, f"'%{d.tensor}' {why}", [_declared(op)], near or f"adjoints are {', '.join('%' + n for n in operands)}")
    if strange:
        return
    results = tuple(replace(o, name=n, span=defined[n].target) for n, o in operands.items() if n in defined)
    params = (*example.params, *(replace(r, name=f"d{r.name}") for r in example.results), *(r for r in example.results if r.name in read))
    adjoint = replace(example, params=params, results=results, compute=example.gradient, gradient=None)
    found = Report()
    infer_operator(adjoint, found)
    for said in found.diagnostics:
        report.add(_of_shape(said, op, adjoint, operands) or said)


def _declared(op: Operator) -> Note:
    return Note(f"'@{op.name}' is declared here", op.signature)


def _of_shape(d: Diagnostic, op: Operator, adjoint: Operator, operands: Mapping[str, Operand]) -> Diagnostic | None:
    """A finding that says that an adjoint has another shape than its operand; None for any other."""
    assert adjoint.compute is not None
    for item in adjoint.compute.body:
        if not isinstance(item, Define) or item.tensor not in operands:
            continue
        operand = operands[item.tensor]
        shape = "x".join(show(n) for n in operand.type.dims) or "rank 0"
        like = f"'%{item.tensor}' has the shape of '%{operand.name}', {shape}"
        if d.field in ("rank", "result") and d.span == item.target:
            said = f", but {len(item.axes)} indices stand here" if d.field == "rank" else ", but is not defined over the whole of it"
            return _gradient(d.span, like + said, op, d.notes if d.field == "result" else (), "define it for every place of the operand")
        if d.field == "bounds":
            why = _other_extent(item, operand, d, adjoint)
            if why is not None:
                return _gradient(item.target, f"{like}, so {why}", op, (Note("it is read here", d.span),), "let each index run along an axis of its own size")
    return None


def _gradient(span: Span, message: str, op: Operator, notes: tuple[Note, ...], help: str) -> Diagnostic:
    return Diagnostic(code_of("gradient"), "error", message, span, (_declared(op), *notes), help)


def _other_extent(item: Define, operand: Operand, d: Diagnostic, adjoint: Operator) -> str | None:
    """What is wrong with a read at an index of the left side that runs along an axis of another size."""
    extents: dict[str, Expr] = {a.index: e for a, e in zip(item.axes, operand.type.dims, strict=False) if isinstance(a, Axis) and a.hi is None}
    shapes = {o.name: o.type.dims for o in (*adjoint.operands, *adjoint.results)}
    for e in walk(item.value):
        if not isinstance(e, Read) or e.span != d.span or e.tensor not in shapes:
            continue
        for index, size in zip(e.indices, shapes[e.tensor], strict=False):
            if isinstance(index, Name) and index.name in extents and normal(extents[index.name]) != normal(size):
                return f"'{index.name}' runs to {show(extents[index.name])}, but along this axis of '%{e.tensor}' to {show(size)}"
    return None
