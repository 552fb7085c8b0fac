"""Evaluation of integer expressions and conditions over known dimensions and attributes, as the language defines them."""
from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Mapping
from dataclasses import replace

from pipelink_ir.ir.dtypes import DTYPES, F64, I64, DType
from pipelink_ir.ir.nodes import Apply, Cast, Const, Expr, FloatLit, IntLit, Name

Number = int | float | bool


class CannotEvaluate(Exception):
    """The expression needs data, a name that is not given, or a function that has no value here."""


def evaluate_int(expr: Expr, env: Mapping[str, int]) -> int:
    """The value of an integer expression."""
    value = _evaluate(expr, env)
    if isinstance(value, bool) or not isinstance(value, int):
        raise CannotEvaluate(f"not an integer: {value!r}")
    return value


def evaluate_condition(expr: Expr, env: Mapping[str, Number]) -> bool:
    """Whether a condition holds."""
    value = _evaluate(expr, env)
    if not isinstance(value, bool):
        raise CannotEvaluate(f"not a condition: {value!r}")
    return value


def leaves_i64(expr: Expr, env: Mapping[str, int]) -> bool:
    """Whether an integer expression has a part whose value is none of i64, where machine code wraps around. What is not taken in any case is not looked at."""
    if not isinstance(expr, Apply) or expr.fn in ("and", "or", "not", "select"):
        return False
    if any(leaves_i64(a, env) for a in expr.args):
        return True
    try:
        value = _evaluate(replace(expr, dtype=None), env)
    except CannotEvaluate as fault:
        return expr.fn == "**" and str(fault).startswith("exponent")
    return isinstance(value, int) and not I64.lowest <= value <= I64.highest


def _evaluate(expr: Expr, env: Mapping[str, Number]) -> Number:
    try:
        return evaluate(expr, env)
    except RecursionError:
        raise CannotEvaluate("nested too deeply") from None


def evaluate(expr: Expr, env: Mapping[str, Number]) -> Number:
    """The value of an expression; `select`, `and` and `or` evaluate what they need."""
    if isinstance(expr, IntLit):
        return expr.value
    if isinstance(expr, FloatLit):
        return _rounded(expr.value, expr.dtype)
    if isinstance(expr, Name):
        if expr.name not in env:
            raise CannotEvaluate(f"no value for {expr.name}")
        return env[expr.name]
    if isinstance(expr, Const):
        return _CONSTANTS[expr.name]
    if isinstance(expr, Cast):
        return _cast(expr, evaluate(expr.arg, env))
    if not isinstance(expr, Apply):
        raise CannotEvaluate(type(expr).__name__)
    if expr.fn in ("and", "or", "not", "select"):
        return _lazy(expr, env)
    if expr.fn in ("+", "-"):
        return _sum(expr, env)
    args = [evaluate(a, env) for a in expr.args]
    return _apply(expr, args)


def _lazy(expr: Apply, env: Mapping[str, Number]) -> Number:
    first = evaluate_condition(expr.args[0], env)
    if expr.fn == "not":
        return not first
    if expr.fn == "select":
        return evaluate(expr.args[1] if first else expr.args[2], env)
    if first is (expr.fn == "or"):
        return first
    return evaluate_condition(expr.args[1], env)


def _sum(expr: Apply, env: Mapping[str, Number]) -> Number:
    """Long sums lean to the left; they are walked without recursion."""
    spine: list[Apply] = []
    node: Expr = expr
    while isinstance(node, Apply) and node.fn in ("+", "-"):
        spine.append(node)
        node = node.args[0]
    total = evaluate(node, env)
    for part in reversed(spine):
        total = _apply(part, [total, evaluate(part.args[1], env)])
    return total


def _apply(expr: Apply, args: list[Number]) -> Number:
    function = _FUNCTIONS.get(expr.fn)
    if function is None:
        raise CannotEvaluate(expr.fn)
    if any(isinstance(a, bool) for a in args) and expr.fn not in ("==", "!="):
        raise CannotEvaluate(f"{expr.fn} of a condition")
    try:
        value = function(*args)
    except (ArithmeticError, ValueError) as fault:
        raise CannotEvaluate(f"{expr.fn}: {fault}") from None
    if expr.dtype is not None and expr.dtype.is_int and isinstance(value, int):
        return _wrap(value, expr.dtype.bits, expr.dtype.signed)
    return _rounded(value, expr.dtype) if isinstance(value, float) else value


def _rounded(value: float, dtype: DType | None) -> float:
    """The value in a float dtype; f64 where none is known."""
    if dtype is None or dtype is F64 or not math.isfinite(value):
        return value
    if dtype.name not in _PACKED:
        raise CannotEvaluate(f"rounding to {dtype}")
    try:
        return float(struct.unpack(_PACKED[dtype.name], struct.pack(_PACKED[dtype.name], value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _wrap(value: int, bits: int, signed: bool) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if signed and value >> (bits - 1) else value


def _cast(expr: Cast, value: Number) -> Number:
    to = DTYPES.get(expr.to)
    if to is None:
        raise CannotEvaluate(f"cast to {expr.to}")
    if to.kind == "bool":
        return value != 0
    if to.is_float:
        return _rounded(float(value), to)
    if isinstance(value, float):
        if math.isnan(value):
            return 0
        return max(to.lowest, min(to.highest, int(max(-1e300, min(1e300, value)))))
    if expr.saturate:
        return max(to.lowest, min(to.highest, int(value)))
    return _wrap(int(value), to.bits, to.signed)


def _floordiv(a: Number, b: Number) -> Number:
    if isinstance(a, int) and isinstance(b, int):
        return a // b if b else 0
    return math.floor(a / b)


def _mod(a: Number, b: Number) -> Number:
    if isinstance(a, int) and isinstance(b, int):
        return a % b if b else 0
    return a % b


def _power(a: Number, b: Number) -> Number:
    if isinstance(a, int) and isinstance(b, int):
        if b < 0 or b > 1024:
            raise CannotEvaluate(f"exponent {b}")
        return int(a ** b)
    return math.pow(a, b)


def _extremum(pick: Callable[..., Number]) -> Callable[[Number, Number], Number]:
    def extremum(a: Number, b: Number) -> Number:
        return a if a != a else b if b != b else pick(a, b)
    return extremum


def _divide(a: Number, b: Number) -> Number:
    if b != 0:
        return a / b
    return math.nan if a == 0 or a != a else math.copysign(math.inf, a) * math.copysign(1, b)


_PACKED = {"f16": "<e", "f32": "<f"}

_CONSTANTS: dict[str, Number] = {"inf": math.inf, "nan": math.nan, "pi": math.pi, "true": True, "false": False}

_min, _max = _extremum(min), _extremum(max)

_FUNCTIONS: dict[str, Callable[..., Number]] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": _divide, "neg": lambda a: -a, "**": _power, "pow": math.pow,
    "floordiv": _floordiv, "mod": _mod, "ceildiv": lambda a, b: -_floordiv(-a, b),
    "min": _min, "max": _max, "clamp": lambda a, lo, hi: _min(_max(a, lo), hi), "abs": abs, "sign": lambda a: (a > 0) - (a < 0),
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "floor": lambda a: a if isinstance(a, int) else float(math.floor(a)), "ceil": lambda a: a if isinstance(a, int) else float(math.ceil(a)),
    "round": lambda a: a if isinstance(a, int) else float(round(a)),
    "sqrt": math.sqrt, "exp": math.exp, "log": math.log, "isnan": math.isnan, "isinf": math.isinf,
}
