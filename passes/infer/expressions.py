"""Types of expressions: every node gets the dtype of its value, literals take the type of what they stand beside, conversions become explicit.

A value's dtype is one of bool, i32, i64, f32, f64; narrower dtypes exist in memory and in written casts only. A literal without a typed
neighbour is *flexible*: `FLEX_INT` and `FLEX_FLOAT` are the dtypes of such expressions until `coerce` settles them.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NoReturn

from pipelink_ir.ir import functions
from pipelink_ir.ir.diagnostics import Note, Report, did_you_mean
from pipelink_ir.ir.dtypes import BOOL, DTYPES, F32, I32, I64, DType, join, real
from pipelink_ir.ir.nodes import Apply, Cast, Const, Dots, Dynamic, Expr, FloatLit, IntLit, Name, Range, Read, Reduce
from pipelink_ir.ir.source import Span
from pipelink_ir.ir.walk import rebuild
from pipelink_ir.passes.infer.foreign import call_help, dtype_help

FLEX_INT = DType("an integer literal", "int", 32)
FLEX_FLOAT = DType("a float literal", "float", 32)
_FLEX = (FLEX_INT, FLEX_FLOAT)


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """What typing needs of a tensor: its dtype in memory (None while a local is unknown), its rank, where it is declared."""

    dtype: DType | None
    rank: int
    span: Span
    operand: bool = False


@dataclass(slots=True)
class Scope:
    """Names that an expression may use."""

    tensors: dict[str, TensorInfo]
    dims: Mapping[str, Span]
    scalars: Mapping[str, DType]
    lets: Mapping[str, str]
    """`let` name -> the local of rank 0 that stands for it."""
    report: Report
    indices: dict[str, Span] = field(default_factory=dict)
    where: str = ""
    """The operator, as messages name it."""
    kept: Callable[[str], DType | None] = lambda name: None
    past: set[str] = field(default_factory=set)
    """Indices of reductions that were left: who uses one outside means to stand inside."""


class Unknown(Exception):
    """The type depends on a local, `name`, whose own type is not known yet."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(name)


class Faulty(Exception):
    """An error was reported; the expression has no type."""


def type_expr(e: Expr, scope: Scope) -> Expr:
    """`e` with a dtype in every node; the result may be flexible. Raises `Unknown` or `Faulty`."""
    if isinstance(e, IntLit):
        return replace(e, dtype=FLEX_INT)
    if isinstance(e, FloatLit):
        return replace(e, dtype=FLEX_FLOAT)
    if isinstance(e, Const):
        return replace(e, dtype=BOOL if e.name in ("true", "false") else FLEX_FLOAT)
    if isinstance(e, Name):
        return _type_name(e, scope)
    if isinstance(e, Read):
        return _type_read(e, scope)
    if isinstance(e, Cast):
        return _type_cast(e, scope)
    if isinstance(e, Apply):
        return _type_apply(e, scope)
    if isinstance(e, Reduce):
        return _type_reduce(e, scope)
    if isinstance(e, Dots | Dynamic):
        _fail(scope, "rank", e.span, f"'{'...' if isinstance(e, Dots) else '?'}' stands for dimensions and has no value here", (),
              "write a number or a name")
    _fail(scope, "attribute", e.span, "this is no value")


def _fail(scope: Scope, code: str, span: Span, message: str, notes: tuple[Note, ...] = (), help: str | None = None) -> NoReturn:
    scope.report.error(code, span, message, notes, help)
    raise Faulty


def _type_name(e: Name, scope: Scope) -> Expr:
    if e.name in scope.indices or e.name in scope.dims:
        return replace(e, dtype=I64)
    if e.name in scope.lets:
        info = scope.tensors[scope.lets[e.name]]
        if info.dtype is None:
            raise Unknown(scope.lets[e.name])
        return Read(scope.lets[e.name], (), span=e.span, dtype=info.dtype.compute)
    if e.name in scope.scalars:
        return replace(e, dtype=scope.scalars[e.name].compute)
    known = [*scope.indices, *scope.dims, *scope.lets, *scope.scalars]
    help = did_you_mean(e.name, known)
    if e.name in scope.tensors:
        help = f"a tensor is written '%{e.name}'"
    elif e.name in scope.past:
        help = f"'{e.name}' is the index of a reduction; what reads it stands inside its parentheses"
    _fail(scope, "name", e.span, f"nothing here is called '{e.name}'", (), help or f"known here: {', '.join(known)}" if known else help)


def _type_read(e: Read, scope: Scope) -> Expr:
    info = scope.tensors.get(e.tensor)
    if info is None:
        known = ", ".join(f"%{n}" for n in sorted(scope.tensors)[:8])
        _fail(scope, "name", e.span, f"there is no '%{e.tensor}' in {scope.where}", (), did_you_mean(e.tensor, scope.tensors, "%") or f"known here: {known}")
    if len(e.indices) != info.rank:
        _fail(scope, "rank", e.span, f"'%{e.tensor}' has {info.rank} dimension{'s' if info.rank != 1 else ''}, but is read with {len(e.indices)} "
              f"ind{'ices' if len(e.indices) != 1 else 'ex'}", (Note(f"'%{e.tensor}' is declared here", info.span),),
              f"write {info.rank} ind{'ices' if info.rank != 1 else 'ex'}")
    indices = tuple(type_index(i, scope) for i in e.indices)
    if info.dtype is None:
        raise Unknown(e.tensor)
    return replace(e, indices=indices, dtype=info.dtype.compute)


def type_index(e: Expr, scope: Scope) -> Expr:
    """An expression in an index, a range or a shape: an integer, as i64 if it is a literal."""
    typed = type_expr(e, scope)
    if typed.dtype is FLEX_INT:
        return coerce(typed, I64, scope)
    if typed.dtype is None or not typed.dtype.is_int:
        _fail(scope, "dtype", e.span, f"an index is an integer, this is {_says(typed.dtype)}", (),
              whole(typed) or "write 'i32(floor(…))' to make an integer of a float")
    return typed if typed.dtype is I64 else Cast("i64", typed, implicit=True, span=e.span, dtype=I64)


def whole(e: Expr) -> str | None:
    """The help for a quotient where an integer is wanted: `/` is a real quotient even of integers."""
    return "'/' is a real quotient; write 'floordiv' for a whole one" if isinstance(e, Apply) and e.fn == "/" else None


def _says(dtype: DType | None) -> str:
    return dtype.name if dtype is not None else "nothing"


def _type_cast(e: Cast, scope: Scope) -> Expr:
    to = DTYPES.get(e.to)
    if to is None:
        _fail(scope, "dtype", e.span, f"'{e.to}' is no dtype and no type variable of {scope.where}", (),
              dtype_help(e.to) or f"the dtypes are {', '.join(DTYPES)}")
    arg = type_expr(e.arg, scope)
    if arg.dtype in _FLEX:
        # A literal in a cast is a literal of that type: f64(0.1) is the f64 nearest to 0.1.
        wide = isinstance(arg, IntLit) and not I32.lowest <= arg.value <= I32.highest
        arg = coerce(arg, to.compute if to.is_float else I64 if wide else settle_type(arg.dtype), scope)
    return replace(e, arg=arg, dtype=to.compute)


def settle_type(dtype: DType) -> DType:
    """The type of a literal that stands beside nothing typed."""
    return I32 if dtype is FLEX_INT else F32 if dtype is FLEX_FLOAT else dtype


def settle(e: Expr, scope: Scope) -> Expr:
    """A flexible expression as i32 or f32, any other unchanged."""
    return coerce(e, settle_type(e.dtype), scope) if e.dtype in _FLEX else e


def coerce(e: Expr, to: DType, scope: Scope) -> Expr:
    """`e` as a value of dtype `to` (a compute type): literals take it, anything else is converted. The conversion is one that the language makes
    by itself (int to wider int, int to float, f32 to f64); others are the caller's to refuse."""
    if e.dtype is to:
        return e
    if e.dtype not in _FLEX:
        return Cast(to.name, e, implicit=True, span=e.span, dtype=to)
    if isinstance(e, IntLit):
        if to.is_int and not to.lowest <= e.value <= to.highest:
            _fail(scope, "dtype", e.span, f"{e.value} does not fit in {to.name}", (), "write 'i64(…)' or a float")
        return replace(e, dtype=to)
    if isinstance(e, FloatLit | Const):
        return replace(e, dtype=to)
    if isinstance(e, Apply):
        start = 1 if e.fn == "select" else 0
        if functions.FUNCTIONS[e.fn].typing == "power" and e.args[1].dtype is I32:
            return replace(e, args=(coerce(e.args[0], to, scope), e.args[1]), dtype=to)
        if e.fn == "/" and to.is_int:
            to_args = F32
            return Cast(to.name, replace(e, args=tuple(coerce(a, to_args, scope) for a in e.args), dtype=F32), implicit=True, span=e.span, dtype=to)
        args = tuple(a if i < start else coerce(a, to, scope) for i, a in enumerate(e.args))
        return replace(e, args=args, dtype=to)
    if isinstance(e, Reduce):
        return replace(e, body=coerce(e.body, to, scope), dtype=to)
    return replace(rebuild(e, lambda x: coerce(x, to, scope)), dtype=to)


def _type_apply(e: Apply, scope: Scope) -> Expr:
    fn = functions.FUNCTIONS.get(e.fn)
    if fn is None:
        hint = call_help(e.fn) or did_you_mean(e.fn, [*functions.FUNCTIONS, *functions.REDUCTIONS, *DTYPES])
        if e.fn in functions.REDUCTIONS:
            hint = f"a reduction is written '{e.fn}[k < K](…)'"
        _fail(scope, "name", e.span, f"there is no function '{e.fn}'", (), hint)
    if len(e.args) != fn.arity:
        names = {"clamp": ("x", "lo", "hi"), "select": ("c", "a", "b")}.get(e.fn, ("a", "b", "c"))
        hint = f"write '{e.fn}({', '.join(names[:fn.arity])})'"
        if e.fn in ("min", "max") and len(e.args) == 1:
            hint = f"of two values it is '{e.fn}(a, b)', over an index '{e.fn}[k < K](…)'"
        elif e.fn in ("min", "max", "fmin", "fmax", "and", "or") and len(e.args) > 2:
            hint = f"nest them, '{e.fn}({e.fn}(a, b), c)'"
        _fail(scope, "arity", e.span, f"'{e.fn}' takes {fn.arity} argument{'s' if fn.arity != 1 else ''}, but is given {len(e.args)}", (), hint)
    args = [type_expr(a, scope) for a in e.args]
    match fn.typing:
        case "logic":
            for a in args:
                _need_bool(a, scope, f"'{e.fn}' takes bools")
            return replace(e, args=tuple(args), dtype=BOOL)
        case "select":
            _need_bool(args[0], scope, "the condition of 'select' is a bool")
            dtype = _common(args[1:], scope)
            if dtype in _FLEX:
                return replace(e, args=tuple(args), dtype=dtype)
            return replace(e, args=(args[0], *(coerce(a, dtype, scope) for a in args[1:])), dtype=dtype)
        case "compare":
            return _type_compare(e, args, scope)
        case "power":
            return _type_power(e, args, scope)
        case "test":
            dtype = _common(args, scope)
            dtype = F32 if dtype in _FLEX else real(dtype)
            return replace(e, args=tuple(coerce(a, dtype, scope) for a in args), dtype=BOOL)
        case "real":
            return _type_real(e, args, scope)
    dtype = _common(args, scope)
    if dtype is BOOL:
        _fail(scope, "dtype", e.span, f"'{e.fn}' takes numbers, not bools", (), "write 'f32(…)' or 'i32(…)' to count with a bool")
    _check_constants(e, args, dtype, scope)
    if dtype in _FLEX:
        return replace(e, args=tuple(args), dtype=dtype)
    return replace(e, args=tuple(coerce(a, dtype, scope) for a in args), dtype=dtype)


def _check_constants(e: Apply, args: list[Expr], dtype: DType, scope: Scope) -> None:
    """Constants that make no sense where they stand."""
    if e.fn in ("floordiv", "ceildiv", "mod") and dtype.is_int and isinstance(args[1], IntLit) and args[1].value == 0:
        _fail(scope, "range", args[1].span, f"the divisor of '{e.fn}' is 0", (), "divide by something else; at run time an integer divided by 0 gives 0")
    if e.fn == "clamp":
        lo, hi = map(_number, args[1:])
        if (lo is not None and math.isnan(lo)) or (hi is not None and math.isnan(hi)):
            _fail(scope, "range", e.span, "a bound of 'clamp' is nan: every element would be", (), "write a number")
        if lo is not None and hi is not None and lo > hi:
            _fail(scope, "range", e.span, f"'clamp' has its bounds upside down: {lo:g} > {hi:g}", (), "write 'clamp(x, lo, hi)' with lo <= hi")


def _number(e: Expr) -> float | None:
    """The value of a literal."""
    if isinstance(e, IntLit | FloatLit):
        return e.value
    if isinstance(e, Apply) and e.fn == "neg":
        inner = _number(e.args[0])
        return None if inner is None else -inner
    return {"inf": math.inf, "nan": math.nan, "pi": math.pi}.get(e.name) if isinstance(e, Const) else None


def _type_compare(e: Apply, args: list[Expr], scope: Scope) -> Expr:
    dtype = settle_type(_common(args, scope))
    if dtype is BOOL and e.fn not in ("==", "!="):
        _fail(scope, "dtype", e.span, f"bools have no order, '{e.fn}' cannot compare them")
    return replace(e, args=tuple(coerce(a, dtype, scope) for a in args), dtype=BOOL)


def _type_real(e: Apply, args: list[Expr], scope: Scope) -> Expr:
    dtype = _common(args, scope)
    if dtype is BOOL:
        _fail(scope, "dtype", e.span, f"'{e.fn}' takes numbers, not bools", (), "write 'f32(…)' to count with a bool")
    if dtype in _FLEX:
        # Literals alone: a real function of them is a float literal's type, settled with its neighbours.
        return replace(e, args=tuple(args), dtype=FLEX_FLOAT)
    dtype = real(dtype)
    return replace(e, args=tuple(coerce(a, dtype, scope) for a in args), dtype=dtype)


def _type_power(e: Apply, args: list[Expr], scope: Scope) -> Expr:
    base, exponent = args
    for a in args:
        if a.dtype is BOOL:
            _fail(scope, "dtype", a.span, "'**' takes numbers, not bools", (), "write 'f32(…)' or 'i32(…)' to count with a bool")
    assert base.dtype is not None
    assert exponent.dtype is not None
    if not exponent.dtype.is_int:
        dtype = _common(args, scope)
        if dtype in _FLEX:
            return replace(e, args=tuple(args), dtype=FLEX_FLOAT)
        dtype = real(dtype)
        return replace(e, args=tuple(coerce(a, dtype, scope) for a in args), dtype=dtype)
    exponent = settle(exponent, scope)
    if isinstance(exponent, IntLit) and exponent.value < 0 and base.dtype.is_int:
        _fail(scope, "dtype", e.span, "an integer to a negative power is no integer", (), "write a float base, '2.0 ** -1'")
    return replace(e, args=(base, exponent), dtype=base.dtype)


def _need_bool(e: Expr, scope: Scope, why: str) -> None:
    if e.dtype is not BOOL:
        _fail(scope, "dtype", e.span, f"{why}, this is {_says(e.dtype)}", (), "compare it, '… != 0'")


def _common(args: list[Expr], scope: Scope) -> DType:
    """The type in which the arguments meet."""
    dtype: DType | None = None
    for a in args:
        assert a.dtype is not None
        met = a.dtype if dtype is None else _meet(dtype, a.dtype)
        if met is None:
            _fail(scope, "dtype", a.span, f"a bool and a number have no common type ({_says(dtype)} beside {_says(a.dtype)})", (),
                  "write 'i32(…)' or 'f32(…)' around the bool")
        dtype = met
    assert dtype is not None
    return dtype


def _meet(a: DType, b: DType) -> DType | None:
    if a in _FLEX and b in _FLEX:
        return FLEX_FLOAT if FLEX_FLOAT in (a, b) else FLEX_INT
    if a in _FLEX or b in _FLEX:
        flex, other = (a, b) if a in _FLEX else (b, a)
        if other is BOOL:
            return None
        # 0.5 beside an integer makes both f32; 2 beside anything takes its type.
        return F32 if flex is FLEX_FLOAT and other.is_int else other
    return join(a, b)


def _type_reduce(e: Reduce, scope: Scope) -> Expr:
    rule = functions.REDUCTIONS.get(e.kind)
    if rule is None:
        _fail(scope, "name", e.span, f"there is no reduction '{e.kind}'", (), did_you_mean(e.kind, functions.REDUCTIONS))
    if rule.ranked != (e.rank is not None):
        _fail(scope, "arity", e.span, f"'{e.kind}' takes " + ("an expression and a rank" if rule.ranked else "one expression"), (),
              f"write '{e.kind}[k < K](x, 0)'" if rule.ranked else None)
    outer = dict(scope.indices)
    try:
        ranges: list[Expr] = []
        for r in e.ranges:
            if not isinstance(r, Range):
                _fail(scope, "rank", r.span, f"'...' stands for no dimensions here: the signature of {scope.where} has none", (),
                      "name what is reduced over, as in '[h < H, w < W]', or write '...' in the signature too")
            if r.index in scope.indices:
                _fail(scope, "duplicate", r.span, f"the index '{r.index}' is in use already", (Note("bound here", scope.indices[r.index]),),
                      "give it another name")
            if r.index in scope.dims or r.index in scope.scalars or r.index in scope.lets:
                _fail(scope, "duplicate", r.span, f"'{r.index}' is a dimension, an attribute or a 'let' here", (), "give the index another name")
            lo = None if r.lo is None else type_index(r.lo, scope)
            ranges.append(replace(r, lo=lo if lo is not None else IntLit(0, dtype=I64, span=r.span), hi=type_index(r.hi, scope), dtype=I64))
            scope.indices[r.index] = r.span
        where = None
        if e.where is not None:
            where = type_expr(e.where, scope)
            _need_bool(where, scope, "a filter is a bool")
        body = type_expr(e.body, scope)
        rank = None
    finally:
        scope.past |= set(scope.indices) - set(outer)
        scope.indices = outer
    if e.rank is not None:
        rank = type_index(e.rank, scope)
    return _reduce_type(replace(e, ranges=tuple(ranges), where=where, body=body, rank=rank), rule, scope)


def _reduce_type(e: Reduce, rule: functions.Reduction, scope: Scope) -> Expr:
    body = e.body
    if rule.typing == "logic":
        _need_bool(body, scope, f"'{e.kind}' takes a bool")
        return replace(e, dtype=BOOL)
    if body.dtype is BOOL:
        _fail(scope, "dtype", body.span, f"'{e.kind}' takes numbers, not bools", (), "write 'i32(…)' to count, 'f32(…)' to average")
    if rule.typing == "index":
        return replace(e, body=settle(body, scope), dtype=I32)
    if rule.typing == "mean":
        body = settle(body, scope)
        assert body.dtype is not None
        return replace(e, body=body, dtype=body.dtype if body.dtype.is_float else F32)
    return replace(e, body=body, dtype=body.dtype)


def kept_dtype(e: Expr, scope: Scope) -> DType | None:
    """The narrow dtype that a value is known to fit: of a read, an attribute, a written cast, of a choice between such. Arithmetic widens and keeps none."""
    if isinstance(e, Read):
        info = scope.tensors.get(e.tensor)
        if info is None:
            return None
        return info.dtype if info.operand else scope.kept(e.tensor) or info.dtype
    if isinstance(e, Cast):
        return DTYPES[e.to] if not e.implicit else kept_dtype(e.arg, scope)
    if isinstance(e, Apply) and e.fn in ("select", "min", "max", "clamp"):
        kinds = [kept_dtype(a, scope) for a in (e.args[1:] if e.fn == "select" else e.args) if not isinstance(a, IntLit)]
        literals = [a.value for a in e.args if isinstance(a, IntLit)]
        if kinds and all(k is not None and k is kinds[0] for k in kinds) and kinds[0] is not None and kinds[0].is_int \
                and all(kinds[0].lowest <= v <= kinds[0].highest for v in literals):
            return kinds[0]
        return None
    return scope.scalars.get(e.name, e.dtype) if isinstance(e, Name) and e.name not in scope.indices else e.dtype


def store(e: Expr, to: DType, scope: Scope, name: str) -> Expr:
    """A value as it is stored in a tensor of dtype `to`: in the compute type of `to`. A narrowing that only a written cast may make is an error."""
    if e.dtype in _FLEX:
        if to is BOOL or (e.dtype is FLEX_FLOAT and to.is_int):
            _refuse(e, to, scope, name)
        if isinstance(e, IntLit) and to.is_int and not to.lowest <= e.value <= to.highest:
            _fail(scope, "dtype", e.span, f"{e.value} does not fit in {to.name}, the dtype of '%{name}'", (), f"write '{to.name}({e.value})' to wrap it")
        return coerce(e, to.compute, scope)
    assert e.dtype is not None
    if (e.dtype is BOOL) != (to is BOOL) or (e.dtype.is_float and to.is_int):
        _refuse(e, to, scope, name)
    if to.is_int:
        kept = kept_dtype(e, scope) or e.dtype
        if not (kept.is_int and to.lowest <= kept.lowest and kept.highest <= to.highest) and kept is not BOOL:
            _refuse(e, to, scope, name)
    if to.is_float and e.dtype is not to.compute and to is not to.compute:
        return Cast(to.name, e, implicit=True, span=e.span, dtype=to.compute)   # rounded once, not by way of f32
    return coerce(e, to.compute, scope)


def _refuse(e: Expr, to: DType, scope: Scope, name: str) -> None:
    beyond = _beyond(e, to)
    if beyond is not None:
        _fail(scope, "dtype", beyond.span, f"{beyond.value} does not fit in {to.name}, the dtype of '%{name}'", (),
              f"{to.name} holds {to.lowest} to {to.highest}")
    given = settle_type(e.dtype) if e.dtype else None
    note = (Note(f"'%{name}' is declared here", scope.tensors[name].span),) if name in scope.tensors else ()
    _fail(scope, "dtype", e.span, f"'%{name}' holds {to.name}, this is {_says(given)}: only a written cast narrows", note, _narrowed(e, given, to))


def _beyond(e: Expr, to: DType) -> IntLit | None:
    """The literal for which alone a choice between values of `to` does not fit in it."""
    if not (isinstance(e, Apply) and e.fn in ("select", "min", "max", "clamp") and to.is_int):
        return None
    return next((a for a in e.args if isinstance(a, IntLit) and not to.lowest <= a.value <= to.highest), None)


def _narrowed(e: Expr, given: DType | None, to: DType) -> str:
    """How a value is stored in a narrower dtype: what rounds, what saturates, what wraps."""
    if to is BOOL:
        return "compare it, '… != 0'"
    if given is BOOL:
        return f"write '{to.name}(…)', which is 1 where it is true"
    if not to.is_int or given is None or not given.is_float:
        return f"write 'sat_{to.name}(…)', which saturates, or '{to.name}(…)', which wraps"
    rounds = isinstance(e, Apply) and e.fn in ("round", "floor", "ceil")
    # A float saturates under either cast.
    cast = f"sat_{to.name}" if to.bits < 32 else to.name
    nearest = f"write '{cast}(…)'" if rounds else f"write '{cast}(round(…))' for the nearest, '{cast}(…)' to drop the fraction"
    quotient = whole(e)
    return f"{quotient}; or {nearest}" if quotient else nearest
