"""An operator checked for itself, for all its sizes, whether somebody calls it or not."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice, product

from pipelink_ir.ir import contracts
from pipelink_ir.ir.diagnostics import Report, did_you_mean
from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.nodes import Attribute, Dots, Dynamic, Expr, IntLit, Name, Operand, Operator, TensorType
from pipelink_ir.ir.walk import walk
from pipelink_ir.passes.contracts.declaration import check_declaration
from pipelink_ir.passes.contracts.promises import check_promises
from pipelink_ir.passes.infer.adjoint import check_gradient
from pipelink_ir.passes.infer.attributes import check_defaults, check_types, check_words
from pipelink_ir.passes.infer.foreign import dtype_help
from pipelink_ir.passes.infer.operator import infer_operator, keep_typed
from pipelink_ir.passes.infer.specialise import Binding, fresh, names_of, specialise

SAMPLES = 16
"""In how many ways an operator is tried before it is said to be at fault."""


def check_operator(op: Operator, operators: Mapping[str, Operator], report: Report) -> None:
    """Report everything that is wrong with an operator whatever the call; `operators` are all there are. Those of the standard library are checked by its
    tests."""
    if op.span.source.path.startswith("std/"):
        return
    before = len(report.diagnostics)
    _check_signature(op, report)
    if op.compute is None and op.graph is None and op.kernel is None:
        report.error("result", op.name_span, f"'@{op.name}' says nothing of what its results are", (),
                     "add 'compute { … }', 'graph { … }' or 'kernel cuda \"file.cu\" { … }'")
    check_declaration(op, operators, report)
    if any(d.severity == "error" for d in report.diagnostics[before:]) or op.compute is None:
        return
    binding = next(samples(op))
    if binding == Binding() and not any(isinstance(d, Dynamic) for o in op.operands for d in o.type.dims):
        # The operator is what calls will use: its typed form is kept for them.
        # One that a pass wrote has the sizes of a call, and its index may be inside for none of them.
        typed = infer_operator(op, report, generic=not _of_a_pass(op))
        if typed is not None:
            keep_typed(op, typed)
            check_promises(typed, report)
            check_gradient(op, op, report)
        return
    try_samples(op, report, _check_sample)


def _of_a_pass(op: Operator) -> bool:
    """Whether a name is declared with a point, `op @crop.1`, which users do not write."""
    return "." in (op.name_span.source.text or "")[op.name_span.start:op.name_span.end]


def _check_sample(op: Operator, example: Operator, report: Report) -> None:
    typed = infer_operator(example, report, generic=True)
    if typed is not None:
        check_promises(typed, report)
        check_gradient(op, example, report)


def try_samples(op: Operator, report: Report, check: Callable[[Operator, Operator, Report], None]) -> None:
    """Check `op` as it would be called. It is at fault only if every kind of call is: an operator may be for bools, or for f16, without saying so."""
    first: Report | None = None
    for binding in islice(samples(op), SAMPLES):
        found = Report()
        check(op, specialise(op, binding, op.name), found)
        if not found.failed:
            first = found
            break
        first = first or found
    for d in first.diagnostics if first is not None else ():
        report.add(d)


def sample(op: Operator) -> Binding:
    """One way to call an operator."""
    return next(samples(op))


def samples(op: Operator) -> Iterator[Binding]:
    """Ways to call an operator: each type variable one of its dtypes, `...` one dimension, words their defaults; dimensions stay symbols."""
    allowed = contracts.dtypes(op)
    names = [n for n in contracts.words(allowed.value) if n in DTYPES] if allowed is not None else []
    variables = dict.fromkeys(t.type.dtype for t in (*op.operands, *op.results) if t.type.dtype not in DTYPES)
    choices: dict[str, tuple[str, ...]] = dict.fromkeys(variables, tuple(names) or ("f32", "i32", "bool", "f16", "u8", "f64"))
    words: dict[str, str] = {}
    for a in op.attributes:
        default = a.default.name if isinstance(a.default, Name) else None
        if a.type == "dtype":
            choices[a.name] = (default,) if default else ("f32", "i32", "u8", "f16", "bool")
        elif a.type == "word":
            words[a.name] = default or a.words[0]
    dotted = any(isinstance(d, Dots) for o in op.operands for d in o.type.dims)
    dots: tuple[Expr, ...] | None = (Name(fresh("D", 1, names_of(op))[0]),) if dotted else None
    alike = sorted(product(*choices.values()), key=lambda c: len(set(c)))
    for chosen in alike:
        yield Binding(tuple(sorted(zip(choices, chosen, strict=True))), dots, (), tuple(sorted(words.items())))


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
    for t in (*op.operands, *op.results):
        if t.type.dtype not in DTYPES and not t.type.dtype[:1].isupper():
            report.error("dtype", t.type.span, f"'{t.type.dtype}' of '%{t.name}' is no dtype; a variable for one is upper case", (),
                         dtype_help(t.type.dtype) or f"the dtypes are {', '.join(DTYPES)}")
    for r in op.results:
        if r.type.dtype[:1].isupper() and r.type.dtype not in bound:
            report.error("dtype", r.type.span, f"'{r.type.dtype}' of '%{r.name}' is no dtype, and no operand binds it", (),
                         did_you_mean(r.type.dtype, bound) or f"use it in an operand, or write '{r.type.dtype}: dtype' as an attribute")
        dotted = any(isinstance(d, Dots) for d in r.type.dims)
        if dotted and not any(isinstance(d, Dots) for o in op.operands for d in o.type.dims):
            report.error("rank", r.type.span, f"'...' of '%{r.name}' is in no operand", (), "write the dimensions of the result out")
    check_types(op.attributes, report)
    if all(a.type in (*DTYPES, "dim", "word", "dtype") and (a.words or a.type != "word") for a in op.attributes):
        check_defaults(op, report)
        check_words(op, report)


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
