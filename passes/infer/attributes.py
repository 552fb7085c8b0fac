"""Values of attributes: what a node gives, or the default, as a constant where it is one."""
from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from pipelink_ir.ir.affine import normal
from pipelink_ir.ir.diagnostics import Note, Report, did_you_mean
from pipelink_ir.ir.dtypes import BOOL, DTYPES, I64, DType
from pipelink_ir.ir.nodes import (
    Apply,
    Attribute,
    Axis,
    Cast,
    Const,
    Expr,
    FloatLit,
    IntLit,
    Items,
    Name,
    Operator,
    Range,
    Read,
    Reduce,
    Text,
    Value,
)
from pipelink_ir.ir.scalar import fold, literal
from pipelink_ir.ir.source import Span
from pipelink_ir.ir.walk import rebuild, substitute, walk
from pipelink_ir.passes.infer.expressions import Faulty, Scope, Unknown, coerce, settle, type_expr, type_index, whole
from pipelink_ir.passes.infer.foreign import WORDS, dtype_help


@dataclass(frozen=True, slots=True)
class Values:
    """The attributes of one call: `word` and `dtype` ones by their names, `dim` ones as integer expressions, scalars as typed expressions; and which
    of the last two are constants."""

    words: dict[str, str]
    dtypes: dict[str, str]
    dims: dict[str, Expr]
    scalars: dict[str, Expr]


def constant(e: Expr) -> Expr:
    """`e` with everything folded that is exact; typed in, typed out."""
    e = rebuild(e, constant)
    folded = fold(e)
    return e if folded is None else folded


def is_constant(e: Expr) -> bool:
    return isinstance(e, IntLit | FloatLit | Const)


def check_types(attributes: Iterable[Attribute], report: Report) -> None:
    """Report attributes whose type is none, and words whose default is not in their list."""
    for a in attributes:
        if a.type == "word" and not a.words:
            report.error("attribute", a.span, f"'{a.name}' admits no word", (), f"write '{a.name}: word in [first, second]'")
        elif a.type not in (*DTYPES, "dim", "word", "dtype"):
            meant = WORDS.get(a.type.lower())
            report.error("attribute", a.span, f"'{a.type}' is no type of an attribute", (),
                         f"write '{a.name}: {meant}'" if meant else did_you_mean(a.type, [*DTYPES, "dim", "word", "dtype"])
                         or f"an attribute is a number ('{a.name}: f32'), a size ('dim'), a choice ('word in [a, b]') or a 'dtype'")
        elif a.type == "word" and isinstance(a.default, Name) and a.default.name not in a.words:
            report.error("attribute", a.default.span, f"'{a.default.name}' is not one of {', '.join(a.words)}", (), did_you_mean(a.default.name, a.words))


def check_defaults(op: Operator, report: Report) -> None:
    """Report defaults that do not fit their attribute. What has none is taken to have any value of its type."""
    out = Values({}, {}, {}, {})
    nowhere = Scope({}, {}, {}, {}, report, where=f"the defaults of '@{op.name}'")
    for a in op.attributes:
        if a.default is not None:
            try:
                _value(op, a, a.default, nowhere, {}, out, True)
            except (Faulty, Unknown):
                pass
        elif a.type == "dim":
            out.dims[a.name] = Name(a.name, dtype=I64)
        elif a.type in DTYPES:
            out.scalars[a.name] = Name(a.name, dtype=DTYPES[a.type].compute)


def check_words(op: Operator, report: Report) -> None:
    """A word is compared with one of its list and nothing else: a misspelled one would silently never be chosen."""
    words = {a.name: a for a in op.attributes if a.type == "word"}
    if not words:
        return
    declared = [Note(f"'@{op.name}' is declared here", op.signature)]
    bodies = [i for b in (op.compute, op.gradient) if b is not None for i in b.body]
    bound = {x.index for i in bodies for x in getattr(i, "axes", ()) if isinstance(x, Axis)}
    bound |= {r.index for i in bodies for r in walk(i.value) if isinstance(r, Range)}
    for e in (*op.where, *(i.value for i in bodies)):
        compared: set[int] = set()
        for n in walk(e):
            mine = next((x for x in n.args if isinstance(x, Name) and x.name in words), None) if isinstance(n, Apply) and n.fn in ("==", "!=") else None
            if mine is None or not isinstance(n, Apply):
                continue
            other = n.args[1] if n.args[0] is mine else n.args[0]
            listed = words[mine.name].words
            compared |= {id(x) for x in n.args}
            if not isinstance(other, Name) or (other.name not in listed and other.name not in words):
                said = f"'{other.name}'" if isinstance(other, Name) else "a value"
                report.error("attribute", other.span, f"'{mine.name}' is one of {', '.join(listed)}, and never {said}", declared,
                             (did_you_mean(other.name, listed) if isinstance(other, Name) else None) or f"compare it with one of {', '.join(listed)}")
        for n in walk(e):
            if isinstance(n, Name) and n.name in words and n.name not in bound and id(n) not in compared:
                report.error("attribute", n.span, f"'{n.name}' is a word and has no value", declared, f"compare it, '{n.name} == {words[n.name].words[0]}'")


def values_of(op: Operator, given: Mapping[str, Value], scope: Scope, known: Mapping[str, Expr], where: Span, report: Report) -> Values | None:
    """What each attribute of `op` is in one call. `scope` and `known` (attribute -> value) belong to the caller. None after an error."""
    out = Values({}, {}, {}, {})
    ok = True
    for a in op.attributes:
        value = given.get(a.name, a.default)
        if value is None:
            report.error("attribute", where, f"'@{op.name}' needs a value for '{a.name}: {a.type}'", [Note(f"'@{op.name}' is declared here", op.signature)],
                         f"write '{{{a.name} = …}}'")
            ok = False
            continue
        own = a.name not in given
        try:
            _value(op, a, value, scope, known, out, own)
        except Faulty:
            ok = False
        except Unknown:
            ok = False
    return out if ok else None


def _value(op: Operator, a: Attribute, value: Value, scope: Scope, known: Mapping[str, Expr], out: Values, own: bool) -> None:
    report = scope.report
    note = [Note(f"'@{op.name}' is declared here", op.signature)]
    span = value.span
    if not isinstance(value, Expr):
        what = "list" if isinstance(value, Items) else "string"
        example = value.value if isinstance(value, Text) and value.value.isidentifier() else a.words[0] if a.words else "…"
        report.error("attribute", span, f"'{a.name}' is a {a.type}, this is a {what}", note, f"write '{a.name} = {example}'")
        raise Faulty
    if isinstance(value, Name) and value.name in known and a.type in ("word", "dtype"):
        value = known[value.name]
    if a.type in ("word", "dtype"):
        name = value.name if isinstance(value, Name | Const) else None
        allowed = list(a.words) if a.type == "word" else list(DTYPES)
        if name not in allowed:
            report.error("attribute", span, f"'{a.name}' is {'one of ' + ', '.join(allowed) if a.type == 'word' else 'a dtype'}, not '{name or '…'}'", note,
                         (dtype_help(name) if name and a.type == "dtype" else did_you_mean(name, allowed) if name else None)
                         or f"write one of {', '.join(allowed)}")
            raise Faulty
        assert name is not None
        (out.words if a.type == "word" else out.dtypes)[a.name] = name
        return
    read = next((n for n in walk(value) if isinstance(n, Read | Reduce)), None)
    if read is not None:
        what = f"'%{read.tensor}' is a tensor" if isinstance(read, Read) else "a reduction is not"
        report.error("attribute", read.span, f"'{a.name}' is a {a.type} that is known before the data are, {what}", note,
                     "give a constant, an attribute or a dimension; data are operands")
        raise Faulty
    inner = _own_scope(op, out, report) if own else scope
    if a.type == "dim":
        given = type_expr(value, inner)
        if given.dtype is None or not given.dtype.is_int:
            report.error("attribute", span, f"'{a.name}' is a dimension, this is {given.dtype}", note, whole(given) or "write an integer, or 'i64(…)'")
            raise Faulty
        typed = normal(substitute(type_index(value, inner), known if not own else {**out.dims}))
        if isinstance(typed, IntLit) and typed.value < 0:
            report.error("shape", span, f"the dimension '{a.name}' is {typed.value}", note, "a dimension is 0 or more; none is inferred from the others")
            raise Faulty
        out.dims[a.name] = typed
        return
    out.scalars[a.name] = _scalar(a, value, DTYPES[a.type], inner, known if not own else {**out.scalars, **out.dims}, note)


def _own_scope(op: Operator, out: Values, report: Report) -> Scope:
    """The scope of a default: the attributes that stand before it."""
    dims = {a.name: a.span for a in op.attributes if a.name in out.dims}
    scalars = {a.name: DTYPES[a.type] for a in op.attributes if a.name in out.scalars}
    return Scope({}, dims, scalars, {}, report, where=f"the defaults of '@{op.name}'")


def _scalar(a: Attribute, value: Expr, dtype: DType, scope: Scope, known: Mapping[str, Expr], note: list[Note]) -> Expr:
    report = scope.report
    typed = type_expr(value, scope)
    assert typed.dtype is not None
    if (typed.dtype is BOOL) != (dtype is BOOL):
        meant = {0: "false", 1: "true"}.get(value.value) if isinstance(value, IntLit) else None
        help = f"write '{a.name} = {meant or 'true'}'" + ("" if meant else f" or '{a.name} = false'") if dtype is BOOL else f"write a number, or '{dtype}(…)'"
        report.error("attribute", value.span, f"'{a.name}' is {dtype}, this is {typed.dtype}", note, help)
        raise Faulty
    if dtype.is_int and typed.dtype.is_float:
        report.error("attribute", value.span, f"'{a.name}' is {dtype}, this is a float", note, whole(typed) or f"write an integer, or '{dtype}(…)'")
        raise Faulty
    if isinstance(typed, IntLit) and dtype.is_int and not dtype.lowest <= typed.value <= dtype.highest:
        report.error("attribute", value.span, f"{typed.value} does not fit in '{a.name}: {dtype}'", note, f"{dtype} holds {dtype.lowest} to {dtype.highest}")
        raise Faulty
    typed = coerce(typed, dtype.compute, scope) if isinstance(typed, IntLit | FloatLit | Const) else settle(typed, scope)
    out = constant(substitute(typed, known))
    if (out.dtype is not dtype.compute or dtype is not dtype.compute) and not (isinstance(out, Cast) and out.to == dtype.name):
        out = constant(Cast(dtype.name, out, span=value.span, dtype=dtype.compute))
    if is_constant(out) and dtype.is_float and not _finite(out) and not (a.default is not None and any(isinstance(n, Const) for n in walk(a.default))):
        report.error("attribute", value.span, f"'{a.name}' would not be finite as {dtype}", note,
                     f"give a finite value; an attribute that may be infinite says so by its default, '{a.name}: {dtype} = -inf'")
        raise Faulty
    return out


def _finite(e: Expr) -> bool:
    """Whether a constant is finite once it is rounded to its dtype."""
    return math.isfinite(float(literal(e)))


def literal_of(e: Expr, dtype: str) -> Expr:
    """A constant as it is written in a `let`: `f32(2.2)`. `true` and `false` need no cast."""
    return replace(e, dtype=None) if dtype == "bool" else Cast(dtype, replace(e, dtype=None), span=e.span)




