"""The table of scalar functions and reductions. Parser, printer, inference, interpreter, both emitters and the documentation read it.

A function has a typing rule (see `TYPING`), a reference implementation on NumPy values that already have the common type, its accuracy in
units in the last place, its derivative by each argument, and either an expansion into other functions or, if it has none, a lowering in each
emitter. Expansions and derivatives are PLIR text in the arguments `a`, `b`, `c` and the result `y`.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

TYPING = {
    "arith": "the arguments' common type: i32, i64, f32 or f64; a bool is refused",
    "real": "the arguments' common type if it is a float; integers become f32, i64 becomes f64",
    "power": "as `arith` when the exponent is an integer, else as `real`",
    "round": "a float stays what it is, an integer is returned as it is",
    "compare": "bool, of arguments that have a common type",
    "logic": "bool, of bools",
    "select": "bool first; the other two meet in a common type, or keep a dtype that both have",
    "test": "bool, of a float",
}


@dataclass(frozen=True, slots=True)
class Function:
    """One row of the table. `numpy` takes the NumPy module and the arguments; `ulp` 0 means correctly rounded or exact."""

    name: str
    arity: int
    typing: str
    numpy: Callable[..., Any]
    ulp: float = 0
    infix: int = 0
    """Precedence when written between its operands, 0 if it is called by name; larger binds tighter."""
    expand: str | None = None
    derivative: tuple[str | None, ...] = ()
    doc: str = ""
    commutes: bool = False


def _wide(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn` of f32 computed in float64 and rounded once, so that its error in f32 is half an ulp; f64 is computed as it is."""
    def wide(np: Any, *args: Any) -> Any:
        arrays = [np.asarray(a) for a in args]
        return np.asarray(fn(np, *(a.astype(np.float64) for a in arrays))).astype(arrays[0].dtype)
    return wide


def _pow(np: Any, a: Any, b: Any) -> Any:
    """C's pow. (`np.power` takes the square root for the one exponent 0.5, which is wrong for -0.0 and -inf.)"""
    return np.float_power(a, b)


def _power(np: Any, a: Any, b: Any) -> Any:
    """C's pow of two floats; with an integer exponent repeated multiplication, of integers with wrap-around."""
    a, b = np.asarray(a), np.asarray(b)
    if b.dtype.kind == "f":
        return _wide(_pow)(np, a, b)
    size = np.abs(b.astype(np.int64)).astype(np.uint64)
    product = _product(np, a, size)
    if a.dtype.kind == "i":
        return product
    # 2.0 ** -149 is a subnormal although 2.0 ** 149 overflows: there the reciprocal is multiplied.
    inverse = np.where(np.isinf(product) & np.isfinite(a), _product(np, 1 / a, size), 1 / product)
    return np.where(b < 0, inverse, product).astype(a.dtype)


def _product(np: Any, a: Any, n: Any) -> Any:
    """`a` multiplied `n` times, in the dtype of `a`: from left to right for an exponent up to 4, by squaring beyond."""
    if n.ndim == 0 and n <= 4:
        out = np.ones_like(a)
        for _ in range(int(n)):
            out = out * a
        return out
    a, n = np.broadcast_arrays(a, n)
    out = np.ones_like(a)
    while np.any(n > 0):
        out = np.where(n & np.uint64(1), out * a, out)
        a, n = a * a, n >> np.uint64(1)
    return out


def _floordiv(np: Any, a: Any, b: Any) -> Any:
    """The floor of the true quotient. Integers: by zero 0, INT_MIN by -1 wraps to INT_MIN."""
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype.kind == "i":
        safe = np.where((b == 0) | (b == -1), b.dtype.type(1), b)
        return np.where(b == 0, a.dtype.type(0), np.where(b == -1, -a, a // safe))
    if a.dtype == np.float32:
        # A quotient of two f32 is either an integer or further from one than float64 rounds.
        return np.floor(a.astype(np.float64) / b.astype(np.float64)).astype(np.float32)
    # a - mod(a, b) is a multiple of b: its quotient is an integer up to rounding, unless it is so large that every float is one.
    quotient = a / b
    whole = np.round((a - _mod(np, a, b)) / b)
    whole = np.where(whole == 0, np.copysign(whole, quotient), whole)
    return np.where(np.isfinite(whole) & (np.abs(quotient) < 2.0**52), whole, np.floor(quotient))


def _mod(np: Any, a: Any, b: Any) -> Any:
    """Floor modulo, the sign of the divisor. Integers: by zero 0."""
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype.kind != "i":
        r = np.fmod(a, b)
        r = np.where((r != 0) & ((r < 0) != (b < 0)), r + b, r)
        return np.where(r == 0, np.copysign(r, b), r)
    safe = np.where((b == 0) | (b == -1), b.dtype.type(1), b)
    return np.where((b == 0) | (b == -1), a.dtype.type(0), a % safe)


def _ceildiv(np: Any, a: Any, b: Any) -> Any:
    """As `expand` says: negating the dividend would go wrong for INT_MIN."""
    a = np.asarray(a)
    return _floordiv(np, a, b) + np.where(_mod(np, a, b) == 0, a.dtype.type(0), a.dtype.type(1))


def _divide(np: Any, a: Any, b: Any) -> Any:
    return np.true_divide(a, b)


def _sign(np: Any, a: Any) -> Any:
    """-1, 0 or 1; a NaN stays NaN and a signed zero stays itself."""
    a = np.asarray(a)
    if a.dtype.kind != "f":
        return np.sign(a)
    return np.where(a == 0, a, np.sign(a))


def _fma(np: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c rounded once. Integers wrap."""
    if a.dtype.kind == "i":
        return a * b + c
    if a.dtype == np.float32:
        product, c = a.astype(np.float64) * b.astype(np.float64), np.asarray(c, np.float64)
        return _round_to_odd_sum(np, product, c).astype(np.float32)
    return np.asarray(np.frompyfunc(_fma_exact, 3, 1)(a, b, c), np.float64)


def _round_to_odd_sum(np: Any, a: Any, b: Any) -> Any:
    """a + b in float64, rounded so that rounding it again to f32 gives what rounding the exact sum gives."""
    s = np.asarray(a + b)
    t = s - a
    error = (a - (s - t)) + (b - t)
    inexact = np.isfinite(s) & (error != 0) & (s.view(np.int64) & 1 == 0)
    return np.where(inexact, np.nextafter(s, np.copysign(np.inf, error)), s)


def _fma_exact(a: float, b: float, c: float) -> float:
    from fractions import Fraction
    from math import inf, isfinite
    if not (isfinite(a) and isfinite(b) and isfinite(c)):
        return a * b + c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return a * b + c        # the product is exactly -c, and the sign of zero is IEEE's
    try:
        return float(exact)
    except OverflowError:
        return inf if exact > 0 else -inf


def _erf(np: Any, a: Any) -> Any:
    from math import erf
    return np.asarray(np.frompyfunc(erf, 1, 1)(a), np.float64)


def _sigmoid(np: Any, a: Any) -> Any:
    """exp of a negative number only, so that a small result is not lost to an overflow."""
    e = np.exp(-np.abs(a))
    return np.where(a < 0, e, 1.0) / (1.0 + e)


def _f(name: str, arity: int, typing: str, fn: Callable[..., Any], **more: Any) -> tuple[str, Function]:
    return name, Function(name, arity, typing, fn, **more)


FUNCTIONS: dict[str, Function] = dict([
    # Infix operators, loosest first. Comparisons do not chain.
    _f("or", 2, "logic", lambda np, a, b: a | b, infix=1, doc="stops at the first decision"),
    _f("and", 2, "logic", lambda np, a, b: a & b, infix=2, doc="stops at the first decision"),
    _f("not", 1, "logic", lambda np, a: ~a, infix=3),
    _f("==", 2, "compare", lambda np, a, b: a == b, infix=4, commutes=True),
    _f("!=", 2, "compare", lambda np, a, b: a != b, infix=4, commutes=True),
    _f("<", 2, "compare", lambda np, a, b: a < b, infix=4),
    _f("<=", 2, "compare", lambda np, a, b: a <= b, infix=4),
    _f(">", 2, "compare", lambda np, a, b: a > b, infix=4),
    _f(">=", 2, "compare", lambda np, a, b: a >= b, infix=4),
    _f("+", 2, "arith", lambda np, a, b: a + b, infix=5, derivative=("1", "1"), commutes=True),
    _f("-", 2, "arith", lambda np, a, b: a - b, infix=5, derivative=("1", "-1")),
    _f("*", 2, "arith", lambda np, a, b: a * b, infix=6, derivative=("b", "a"), commutes=True),
    _f("/", 2, "real", _divide, ulp=2, infix=6, derivative=("1 / b", "-y / b"), doc="a real quotient, also of two integers"),
    _f("floordiv", 2, "arith", _floordiv, infix=6, doc="rounds down; an integer divided by 0 gives 0"),
    _f("ceildiv", 2, "arith", _ceildiv, infix=6, expand="a floordiv b + select(a mod b == 0, 0, 1)", doc="rounds up"),
    _f("mod", 2, "arith", _mod, infix=6, derivative=("1", None), doc="has the sign of the divisor; an integer mod 0 is 0"),
    _f("neg", 1, "arith", lambda np, a: -a, infix=7, derivative=("-1",)),
    _f("**", 2, "power", _power, ulp=4, infix=8, derivative=("b * a ** (b - 1)", "y * log(a)"),
       doc="repeated multiplication when the exponent is an integer"),
    # Selection and order
    _f("select", 3, "select", lambda np, c, a, b: np.where(c, a, b), derivative=(None, "select(a, 1, 0)", "select(a, 0, 1)"),
       doc="evaluates only the branch that it takes"),
    _f("min", 2, "arith", lambda np, a, b: np.minimum(a, b), derivative=("select(a <= b, 1, 0)", "select(a <= b, 0, 1)"), commutes=True, doc="a NaN wins"),
    _f("max", 2, "arith", lambda np, a, b: np.maximum(a, b), derivative=("select(a >= b, 1, 0)", "select(a >= b, 0, 1)"), commutes=True, doc="a NaN wins"),
    _f("fmin", 2, "arith", lambda np, a, b: np.fmin(a, b), commutes=True, doc="a number wins over a NaN"),
    _f("fmax", 2, "arith", lambda np, a, b: np.fmax(a, b), commutes=True, doc="a number wins over a NaN"),
    _f("clamp", 3, "arith", lambda np, a, b, c: np.minimum(np.maximum(a, b), c), expand="min(max(a, b), c)",
       derivative=("select(a >= b and a <= c, 1, 0)", None, None), doc="min(max(x, lo), hi)"),
    _f("abs", 1, "arith", lambda np, a: np.abs(a), derivative=("sign(a)",)),
    _f("sign", 1, "arith", _sign, derivative=("0",)),
    # Rounding to integers
    _f("floor", 1, "round", lambda np, a: np.floor(a) if a.dtype.kind == "f" else a, derivative=("0",)),
    _f("ceil", 1, "round", lambda np, a: np.ceil(a) if a.dtype.kind == "f" else a, derivative=("0",)),
    _f("round", 1, "round", lambda np, a: np.rint(a) if a.dtype.kind == "f" else a, derivative=("0",), doc="half to even"),
    # Real functions
    _f("fma", 3, "arith", _fma, doc="a * b + c, rounded once; written by `simplify`"),
    _f("sqrt", 1, "real", lambda np, a: np.sqrt(a), ulp=2, derivative=("0.5 / y",)),
    _f("rsqrt", 1, "real", _wide(lambda np, a: 1 / np.sqrt(a)), ulp=2, derivative=("-0.5 * y / a",), doc="1 / sqrt(x)"),
    _f("exp", 1, "real", _wide(lambda np, a: np.exp(a)), ulp=2, derivative=("y",)),
    _f("exp2", 1, "real", _wide(lambda np, a: np.exp2(a)), ulp=2, derivative=("0.6931471805599453 * y",)),
    _f("expm1", 1, "real", _wide(lambda np, a: np.expm1(a)), ulp=4, derivative=("y + 1",)),
    _f("log", 1, "real", _wide(lambda np, a: np.log(a)), ulp=2, derivative=("1 / a",)),
    _f("log2", 1, "real", _wide(lambda np, a: np.log2(a)), ulp=2, derivative=("1.4426950408889634 / a",)),
    _f("log1p", 1, "real", _wide(lambda np, a: np.log1p(a)), ulp=4, derivative=("1 / (1 + a)",)),
    _f("logaddexp", 2, "real", _wide(lambda np, a, b: np.logaddexp(a, b)), ulp=4,
       expand="select(a == b, a + 0.6931471805599453, max(a, b) + log1p(exp(-abs(a - b))))",
       derivative=("exp(a - y)", "exp(b - y)"), commutes=True, doc="log(exp(a) + exp(b)) without overflow"),
    _f("pow", 2, "real", _wide(_pow), ulp=4, derivative=("b * pow(a, b - 1)", "y * log(a)")),
    _f("sin", 1, "real", _wide(lambda np, a: np.sin(a)), ulp=4, derivative=("cos(a)",)),
    _f("cos", 1, "real", _wide(lambda np, a: np.cos(a)), ulp=4, derivative=("-sin(a)",)),
    _f("tan", 1, "real", _wide(lambda np, a: np.tan(a)), ulp=4, derivative=("1 + y * y",)),
    _f("tanh", 1, "real", _wide(lambda np, a: np.tanh(a)), ulp=4, derivative=("1 - y * y",)),
    _f("sigmoid", 1, "real", _wide(_sigmoid), ulp=4, expand="exp(min(a, 0)) / (1 + exp(-abs(a)))", derivative=("y * (1 - y)",)),
    _f("erf", 1, "real", _wide(_erf), ulp=4, derivative=("1.1283791670955126 * exp(-a * a)",)),
    _f("atan2", 2, "real", _wide(lambda np, a, b: np.arctan2(a, b)), ulp=4, derivative=("b / (a * a + b * b)", "-a / (a * a + b * b)")),
    _f("isnan", 1, "test", lambda np, a: np.isnan(a)),
    _f("isinf", 1, "test", lambda np, a: np.isinf(a)),
])
"""Every function by name. `select`, `and`, `or` and `not` are functions like any other except that they may leave arguments unevaluated."""

CONSTANTS = ("inf", "nan", "pi", "true", "false")
"""Names of values; reserved nowhere else."""


@dataclass(frozen=True, slots=True)
class Reduction:
    """One row of the table of reductions.

    `typing`: `sum` (i32, i64, f32, f64), `order` (the operand's compute type), `mean` (a float), `logic` (bool), `index` (i32).
    `empty`: the value over nothing, before `empty = zero | nan` (`lowest`, `highest` are the type's own, -inf and inf for floats)."""

    name: str
    typing: str
    empty: str
    governed: bool
    """Whether `semantic { empty = … }` decides what it is over nothing."""
    ranked: bool = False
    doc: str = ""


REDUCTIONS: dict[str, Reduction] = {r.name: r for r in (
    Reduction("sum", "sum", "zero", False, doc="integers wrap; floats are summed in blocks"),
    Reduction("prod", "sum", "one", False),
    Reduction("max", "order", "lowest", True, doc="a NaN wins"),
    Reduction("min", "order", "highest", True, doc="a NaN wins"),
    Reduction("mean", "mean", "nan", True, doc="f32 of integers, which are summed in i64"),
    Reduction("any", "logic", "false", False),
    Reduction("all", "logic", "true", False),
    Reduction("argmax", "index", "error", True, doc="the lowest index among equals; the first NaN wins"),
    Reduction("argmin", "index", "error", True, doc="the lowest index among equals; the first NaN wins"),
    Reduction("nth", "order", "error", True, ranked=True, doc="the r-th smallest, equal values by index, NaN last; negative r counts from the largest"),
    Reduction("argnth", "index", "error", True, ranked=True, doc="the index of the r-th smallest"),
)}
"""Every reduction by name."""

RESERVED = frozenset("and or not in mod floordiv ceildiv let where select param on as after plan schedule".split())
"""Words that cannot name anything; the dtypes are reserved too."""
