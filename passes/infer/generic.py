"""An operator checked for itself, for all its sizes, whether somebody calls it or not."""
from __future__ import annotations

from dataclasses import replace

from pipelink_ir.ir import contracts
from pipelink_ir.ir.diagnostics import Note, Report, did_you_mean
from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.nodes import Attribute, Define, Dots, Dynamic, Expr, IntLit, Name, Operand, Operator, TensorType
from pipelink_ir.ir.walk import walk
from pipelink_ir.passes.contracts.declaration import check_declaration
from pipelink_ir.passes.infer.operator import infer_operator, keep_typed
from pipelink_ir.passes.infer.specialise import Binding, fresh, names_of, specialise


def check_operator(op: Operator, report: Report) -> None:
    """Report everything that is wrong with an operator whatever the call. Operators of the standard library are checked by its tests."""
    if op.span.source.path.startswith("std/"):
        return
    before = len(report.diagnostics)
    _check_signature(op, report)
    if op.compute is None and op.graph is None and op.kernel is None:
        report.error("result", op.name_span, f"'@{op.name}' says nothing of what its results are", (),
                     "add 'compute { … }', 'graph { … }' or 'kernel cuda \"file.cu\" { … }'")
    check_declaration(op, report)
    if any(d.severity == "error" for d in report.diagnostics[before:]) or op.compute is None:
        return
    binding = sample(op)
    if binding == Binding() and not any(isinstance(d, Dynamic) for o in op.operands for d in o.type.dims):
        # The operator is what calls will use: its typed form is kept for them.
        typed = infer_operator(op, report, generic=True)
        if typed is not None:
            keep_typed(op, typed)
        example = op
    else:
        example = specialise(op, binding, op.name)
        infer_operator(example, report, generic=True)
    if not any(d.severity == "error" for d in report.diagnostics[before:]):
        _check_gradient(op, example, report)


def sample(op: Operator) -> Binding:
    """One way to call an operator: each type variable the first of its dtypes, `...` one dimension, words their defaults; dimensions stay symbols."""
    allowed = contracts.dtypes(op)
    names = [n for n in contracts.words(allowed.value) if n in DTYPES] if allowed is not None else []
    variables = {t.type.dtype for t in (*op.operands, *op.results) if t.type.dtype not in DTYPES}
    dtypes = dict.fromkeys(variables, names[0] if names else "f32")
    words: dict[str, str] = {}
    for a in op.attributes:
        default = a.default.name if isinstance(a.default, Name) else None
        if a.type == "dtype":
            dtypes[a.name] = default or "f32"
        elif a.type == "word":
            words[a.name] = default or a.words[0]
    dotted = any(isinstance(d, Dots) for o in op.operands for d in o.type.dims)
    used = names_of(op)
    dots: tuple[Expr, ...] | None = (Name(fresh("D", 1, used)[0]),) if dotted else None
    return Binding(tuple(sorted(dtypes.items())), dots, (), tuple(sorted(words.items())))


def name_dynamic(params: tuple[Operand | Attribute, ...], used: set[str]) -> tuple[tuple[Operand | Attribute, ...], set[str]]:
    """Give every `?` of the operands a name of its own."""
    taken = set(used) | {p.name for p in params}
    for p in params:
        if isinstance(p, Operand):
            taken |= {n.name for d in p.type.dims for n in walk(d) if isinstance(n, Name)} | {p.type.dtype}
    count = sum(isinstance(d, Dynamic) for p in params if isinstance(p, Operand) for d in p.type.dims)
    if count == 0:
        return params, set()
    names = fresh("Q", count, taken)
    left = iter(names)
    out: list[Operand | Attribute] = []
    for p in params:
        if isinstance(p, Operand) and any(isinstance(d, Dynamic) for d in p.type.dims):
            dims = tuple(Name(next(left), span=d.span) if isinstance(d, Dynamic) else d for d in p.type.dims)
            p = replace(p, type=replace(p.type, dims=dims))
        out.append(p)
    return tuple(out), set(names)


def _check_signature(op: Operator, report: Report) -> None:
    bound = {o.type.dtype for o in op.operands} | {a.name for a in op.attributes if a.type == "dtype"}
    for t in (*op.operands, *op.results):
        _check_type(t.type, t.name, report)
    for r in op.results:
        if r.type.dtype not in DTYPES and r.type.dtype not in bound:
            report.error("dtype", r.type.span, f"'{r.type.dtype}' of '%{r.name}' is no dtype, and no operand binds it", (),
                         did_you_mean(r.type.dtype, [*DTYPES, *bound]) or f"use it in an operand, or write '{r.type.dtype}: dtype' as an attribute")
        dotted = any(isinstance(d, Dots) for d in r.type.dims)
        if dotted and not any(isinstance(d, Dots) for o in op.operands for d in o.type.dims):
            report.error("rank", r.type.span, f"'...' of '%{r.name}' is in no operand", (), "write the dimensions of the result out")
    for a in op.attributes:
        if a.type == "word" and not a.words:
            report.error("attribute", a.span, f"'{a.name}' admits no word", (), f"write '{a.name}: word in [first, second]'")
        elif a.type not in (*DTYPES, "dim", "word", "dtype"):
            report.error("attribute", a.span, f"'{a.type}' is no type of an attribute", (), did_you_mean(a.type, [*DTYPES, "dim", "word", "dtype"])
                         or "attributes are dtypes, 'dim', 'word in […]' or 'dtype'")
        elif a.type == "word" and isinstance(a.default, Name) and a.default.name not in a.words:
            report.error("attribute", a.default.span, f"'{a.default.name}' is not one of {', '.join(a.words)}", (), did_you_mean(a.default.name, a.words))


def _check_type(t: TensorType, name: str, report: Report) -> None:
    if sum(isinstance(d, Dots) for d in t.dims) > 1:
        report.error("rank", t.span, f"'...' stands twice in the type of '%{name}'", (), "write it once")
    for d in t.dims:
        if isinstance(d, IntLit) and d.value <= 0:
            report.error("shape", d.span, f"'%{name}' has a dimension of {d.value}", (), "a dimension that is written out is 1 or more; name one that may be 0")
    if t.layout is not None and not any(isinstance(d, Dots) for d in t.dims) and len(t.layout) != len(t.dims):
        report.error("layout", t.span, f"the layout {t.layout} has {len(t.layout)} axes, '%{name}' has {len(t.dims)}", (), "name each axis with one letter")
    if t.layout is not None and len(set(t.layout)) != len(t.layout):
        report.error("layout", t.span, f"the layout {t.layout} names an axis twice", (), "name each axis with one letter")


def _check_gradient(op: Operator, example: Operator, report: Report) -> None:
    """The adjoint defines `%dx` for operands `%x` alone, and reads `%dy` for results `%y`."""
    if op.gradient is None or example.gradient is None:
        return
    operands = {f"d{o.name}": o for o in example.operands}
    ok = True
    defined = {d.tensor for d in op.gradient.body if isinstance(d, Define)}
    read = {getattr(n, "tensor", None) for d in op.gradient.body for n in walk(d.value)}
    for d in op.gradient.body:
        # A local of the adjoint is read by it; what nobody reads is meant as an adjoint.
        if isinstance(d, Define) and d.tensor not in operands and d.tensor not in read:
            near = did_you_mean(d.tensor, operands, "%")
            report.error("gradient", d.target, f"'%{d.tensor}' is the adjoint of no operand of '@{op.name}'",
                         [Note(f"'@{op.name}' is declared here", op.signature)], near or f"adjoints are {', '.join('%' + n for n in operands)}")
            ok = False
    if not ok:
        return
    results = tuple(replace(o, name=n, span=next(d.target for d in op.gradient.body if isinstance(d, Define) and d.tensor == n))
                    for n, o in operands.items() if n in defined)
    incoming = tuple(replace(r, name=f"d{r.name}") for r in example.results)
    forward = tuple(r for r in example.results if r.name in read)
    infer_operator(replace(example, params=(*example.params, *incoming, *forward), results=results, compute=example.gradient, gradient=None), report)


