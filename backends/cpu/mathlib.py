"""The primitive functions of `ir/functions.py` as LLVM IR.

f32 functions that images and networks lean on are polynomials without branches, so that loops over them become vectors; the others, and f64, call
the C library. Sources of the formulas stand with each; the tests hold every one to its accuracy.
"""
from __future__ import annotations

from collections.abc import Callable
from math import inf, nan

from pipelink_ir.backends.cpu.irtext import Body, Value, routine
from pipelink_ir.ir.diagnostics import internal_error

KINDS = {"i32": "i32", "i64": "i64", "float": "f32", "double": "f64"}

# --------------------------------------------------------------------------------------------------------------- integer division


def _floordiv_int(b: Body, x: Value, y: Value) -> Value:
    """Rounds down; by 0 it is 0, and the lowest integer by -1 wraps. The divisor is made harmless first, so that nothing traps."""
    quotient, _ = _floor_parts(b, x, y)
    return _by_special(b, y, quotient, b.neg(x))


def _mod_int(b: Body, x: Value, y: Value) -> Value:
    """The sign of the divisor; by 0 and by -1 it is 0."""
    _, rest = _floor_parts(b, x, y)
    return _by_special(b, y, rest, b.like(x, 0))


def _floor_parts(b: Body, x: Value, y: Value) -> tuple[Value, Value]:
    # y + 1 <= 1 unsigned: y is -1 or 0.
    special = b.compare("ule", b.add(y, b.like(y, 1)), b.like(y, 1))
    safe = b.select(special, b.like(y, 1), y)
    quotient, rest = b.binary("sdiv", x, safe), b.binary("srem", x, safe)
    opposite = b.compare("slt", b.bxor(rest, safe), b.like(y, 0))
    adjust = b.band(opposite, b.compare("ne", rest, b.like(y, 0)))
    return (b.select(adjust, b.sub(quotient, b.like(y, 1)), quotient), b.select(adjust, b.add(rest, safe), rest))


def _by_special(b: Body, y: Value, usual: Value, by_minus_one: Value) -> Value:
    out = b.select(b.compare("eq", y, b.like(y, -1)), by_minus_one, usual)
    return b.select(b.compare("eq", y, b.like(y, 0)), b.like(y, 0), out)


# ----------------------------------------------------------------------------------------------------------- float division, rounding


def _mod_float(b: Body, x: Value, y: Value) -> Value:
    """C's fmod moved to the sign of the divisor."""
    r = b.libm("fmodf" if x.type == "float" else "fmod", x, y)
    zero = b.like(x, 0.0)
    moved = b.compare("olt", b.mul(b.intrinsic("copysign", b.like(x, 1.0), r), b.intrinsic("copysign", b.like(x, 1.0), y)), zero)
    r = b.select(b.band(moved, b.compare("one", r, zero)), b.add(r, y), r)
    return b.select(b.compare("oeq", r, zero), b.intrinsic("copysign", r, y), r)


def _floordiv_float(b: Body, x: Value, y: Value) -> Value:
    """(x - x mod y) / y is an integer up to rounding; a zero has the sign of x / y."""
    q = b.div(b.sub(x, b.call(f"mod.{KINDS[x.type]}", x, y)), y)
    finite = b.compare("olt", b.fabs(q), b.like(q, inf))
    quotient, whole = b.div(x, y), b.rint(q)
    whole = b.select(b.compare("oeq", whole, b.like(q, 0.0)), b.intrinsic("copysign", whole, quotient), whole)
    return b.select(finite, whole, b.intrinsic("floor", quotient))


def _roundeven(b: Body, x: Value) -> Value:
    """Without the instruction: adding 2^52 (2^23) lets the adder round, larger numbers are integers already."""
    magic = b.like(x, 2.0 ** (23 if x.type == "float" else 52))
    small = b.fabs(x)
    rounded = b.intrinsic("copysign", b.sub(b.add(small, magic), magic), x)
    return b.select(b.compare("olt", small, magic), rounded, x)


def _sign_float(b: Body, x: Value) -> Value:
    """-1 or 1; zeros and NaN stay what they are."""
    zero = b.like(x, 0.0)
    return b.select(b.compare("ogt", x, zero), b.like(x, 1.0), b.select(b.compare("olt", x, zero), b.like(x, -1.0), x))


def _sign_int(b: Body, x: Value) -> Value:
    positive = b.convert("zext", b.compare("sgt", x, b.like(x, 0)), x.type)
    return b.sub(positive, b.convert("zext", b.compare("slt", x, b.like(x, 0)), x.type))


for _kind, _name in KINDS.items():
    _float = _kind in ("float", "double")
    routine(f"mod.{_name}", _kind, _kind, _kind)(_mod_float if _float else _mod_int)
    routine(f"floordiv.{_name}", _kind, _kind, _kind)(_floordiv_float if _float else _floordiv_int)
    routine(f"sign.{_name}", _kind, _kind)(_sign_float if _float else _sign_int)
    if _float:
        routine(f"roundeven.{_name}", _kind, _kind)(_roundeven)

# ------------------------------------------------------------------------------------------------------------------- exponentials

LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440e-4
"""ln 2 in two parts; the first has few digits, so that n times it is exact."""

EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
"""(exp(r) - 1 - r) / r^2 on |r| <= ln 2 / 2 (Cephes, expf)."""

EXP2 = (1.5461470670924933e-4, 1.3390890322006977e-3, 9.618056611854192e-3, 5.55035706117449e-2, 2.402265092261484e-1, 6.931471880383192e-1)
"""(2^t - 1) / t on |t| <= 1/2 (Chebyshev fit, relative error 2^-26)."""


def _clamp(b: Body, x: Value, low: float, high: float) -> Value:
    """Within bounds; a NaN becomes the lower one."""
    x = b.select(b.compare("ogt", x, b.like(x, low)), x, b.like(x, low))
    return b.select(b.compare("olt", x, b.like(x, high)), x, b.like(x, high))


def _scale(b: Body, x: Value, n: Value) -> Value:
    """x * 2^n for a float x near 1 and -252 <= n <= 254, rounded once: two factors, of which the first is exact."""
    half = b.ashr(n, 1)
    for part in (half, b.sub(n, half)):
        x = b.mul(x, _power_of_two(b, part))
    return x


def _power_of_two(b: Body, n: Value) -> Value:
    return b.convert("bitcast", b.shl(b.add(n, b.like(n, 127)), 23), "float")


def _reduce_exp(b: Body, x: Value) -> tuple[Value, Value]:
    """(n, r) with x = n * ln 2 + r."""
    n = b.rint(b.mul(x, b.like(x, 1.4426950408889634)))
    r = b.fma(n, b.like(x, -LN2_HIGH), x)
    return b.convert("fptosi", n, "i32"), b.fma(n, b.like(x, -LN2_LOW), r)


@routine("exp.f32", "float", "float")
def _exp(b: Body, x: Value) -> Value:
    n, r = _reduce_exp(b, _clamp(b, x, -104.5, 89.0))
    tail = b.fma(b.mul(r, r), b.poly(r, EXP), r)
    return b.select(b.isnan(x), x, _scale(b, b.add(tail, b.like(x, 1.0)), n))


@routine("exp2.f32", "float", "float")
def _exp2(b: Body, x: Value) -> Value:
    inside = _clamp(b, x, -151.0, 129.0)
    n = b.rint(inside)
    t = b.sub(inside, n)
    y = b.fma(t, b.poly(t, EXP2), b.like(x, 1.0))
    return b.select(b.isnan(x), x, _scale(b, y, b.convert("fptosi", n, "i32")))


@routine("expm1.f32", "float", "float")
def _expm1(b: Body, x: Value) -> Value:
    """2^n * expm1(r) + (2^n - 1); beyond 2^60 it is exp(x)."""
    n, r = _reduce_exp(b, _clamp(b, x, -26.0, 44.0))
    p = b.fma(b.mul(r, r), b.poly(r, EXP), r)
    scale = _power_of_two(b, n)
    y = b.fma(p, scale, b.sub(scale, b.like(x, 1.0)))
    y = b.select(b.compare("oeq", x, b.like(x, 0.0)), x, y)
    return b.select(b.compare("ult", x, b.like(x, 40.0)), b.select(b.isnan(x), x, y), b.call("exp.f32", x))


# --------------------------------------------------------------------------------------------------------------------- logarithms

LOG = (7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1,
       3.3333331174e-1)
"""(log(1 + f) - f + f^2 / 2) / f^3 for sqrt(1/2) <= 1 + f < sqrt(2) (Cephes, logf)."""

LOG2_ATANH = (0.3407273199650881, 0.41167288297868554, 0.5770835819516645, 0.961796673359497, 2.8853900817900713)
"""log2((1 + s) / (1 - s)) / s in s^2 for |s| <= 0.1716 (Chebyshev fit, relative error 2^-37)."""

LOG2_FACTOR = (2.885390043258667, 3.85192597818218e-08)
"""2 / ln 2 in two floats; the last coefficient above is the same number."""


def _split(b: Body, x: Value) -> tuple[Value, Value]:
    """(e, f) with x = 2^e * (1 + f), 1 + f around 1, for positive finite x, subnormal numbers included."""
    tiny = b.compare("olt", x, b.like(x, 2.0 ** -126))
    bits = b.bits(b.select(tiny, b.mul(x, b.like(x, 2.0 ** 23)), x))
    e = b.ashr(b.sub(bits, b.like(bits, 0x3F3504F3)), 23)
    m = b.convert("bitcast", b.sub(bits, b.shl(e, 23)), "float")
    e = b.select(tiny, b.sub(e, b.like(e, 23)), e)
    return b.convert("sitofp", e, "float"), b.sub(m, b.like(m, 1.0))


def _log_special(b: Body, x: Value, usual: Value) -> Value:
    y = b.select(b.compare("oeq", x, b.like(x, 0.0)), b.like(x, -inf), usual)
    y = b.select(b.compare("olt", x, b.like(x, 0.0)), b.like(x, nan), y)
    return b.select(b.compare("ult", x, b.like(x, inf)), b.select(b.isnan(x), x, y), x)


@routine("log.f32", "float", "float")
def _log(b: Body, x: Value) -> Value:
    e, f = _split(b, x)
    z = b.mul(f, f)
    y = b.mul(b.mul(b.poly(f, LOG), f), z)
    y = b.fma(e, b.like(x, LN2_LOW), y)
    y = b.fma(z, b.like(x, -0.5), y)
    return _log_special(b, x, b.fma(e, b.like(x, LN2_HIGH), b.add(f, y)))


@routine("log2.f32", "float", "float")
def _log2(b: Body, x: Value) -> Value:
    """log(1 + f) times log2(e) = 1 + 0.4427, the one added apart (Cephes, log2f)."""
    e, f = _split(b, x)
    z = b.mul(f, f)
    y = b.fma(z, b.like(x, -0.5), b.mul(b.mul(b.poly(f, LOG), f), z))
    rest = b.like(x, 0.44269504088896340736)
    s = b.fma(f, rest, b.mul(y, rest))
    return _log_special(b, x, b.add(b.add(b.add(s, y), f), e))


@routine("log1p.f32", "float", "float")
def _log1p(b: Body, x: Value) -> Value:
    """log(u) for u = 1 + x as rounded, plus what the rounding lost, over u."""
    one = b.like(x, 1.0)
    u = b.add(x, one)
    lost = b.select(b.compare("ogt", x, one), b.sub(one, b.sub(u, x)), b.sub(x, b.sub(u, one)))
    y = b.call("log.f32", u)
    usual = b.add(y, b.div(lost, u))
    plain = b.band(b.compare("ogt", u, b.like(x, 0.0)), b.compare("olt", u, b.like(x, inf)))
    y = b.select(plain, usual, y)
    return b.select(b.compare("oeq", x, b.like(x, 0.0)), x, y)


# -------------------------------------------------------------------------------------------------------------------------- powers


@routine("pow.f32", "float", "float", "float")
def _pow(b: Body, x: Value, y: Value) -> Value:
    """2^(y * log2 |x|), the exponent to some 30 bits beyond its point's place, so that exact results stay exact; the rules of C's pow by selection."""
    value = _pow_in_pairs(b, x, y) if b.module.features.fma else _pow_in_double(b, x, y)
    return _pow_special(b, x, y, value)


def _pow_in_pairs(b: Body, x: Value, y: Value) -> Value:
    """In pairs of floats, high and low; a fused multiply-add gives the low part of a product."""
    ax = b.fabs(x)
    e, f = _split(b, ax)
    # s = f / (2 + f)
    two = b.like(x, 2.0)
    d_high = b.add(f, two)
    d_low = b.sub(f, b.sub(d_high, two))
    inverse = b.div(b.like(x, 1.0), d_high)
    s = b.mul(f, inverse)
    s_low = b.mul(b.fma(b.neg(s), d_low, b.fma(b.neg(s), d_high, f)), inverse)
    # log2 |x| = e + c * s + s^3 * (…)
    c_high, c_low = b.like(x, LOG2_FACTOR[0]), b.like(x, LOG2_FACTOR[1])
    z = b.mul(s, s)
    high = b.mul(c_high, s)
    low = b.fma(c_high, s, b.neg(high))
    low = b.fma(c_low, s, b.fma(c_high, s_low, low))
    low = b.fma(b.mul(s, z), b.poly(z, LOG2_ATANH[:-1]), low)
    total = b.add(e, high)
    low = b.add(low, b.sub(high, b.sub(total, e)))
    log_high = b.add(total, low)
    log_low = b.sub(low, b.sub(log_high, total))
    zero, infinite = b.like(x, 0.0), b.like(x, inf)
    usual = b.band(b.compare("one", ax, zero), b.compare("olt", ax, infinite))
    log_high = b.select(usual, log_high, b.select(b.compare("oeq", ax, zero), b.like(x, -inf), ax))
    log_low = b.select(usual, log_low, zero)
    # y * log2 |x| = n + t
    power = b.mul(y, log_high)
    rest = b.fma(y, log_low, b.fma(y, log_high, b.neg(power)))
    n = b.rint(_clamp(b, power, -151.0, 129.0))
    t = b.add(b.sub(_clamp(b, power, -151.0, 129.0), n), b.select(b.compare("olt", b.fabs(power), b.like(x, 151.0)), rest, zero))
    value = _scale(b, b.fma(t, b.poly(t, EXP2), b.like(x, 1.0)), b.convert("fptosi", n, "i32"))
    return b.select(b.isnan(power), b.like(x, nan), value)


def _pow_in_double(b: Body, x: Value, y: Value) -> Value:
    """The same in double, where there is no fused multiply-add."""
    ax, dy = b.fabs(x), b.convert("fpext", y, "double")
    e, f = _split(b, ax)
    df = b.convert("fpext", f, "double")
    s = b.div(df, b.add(df, b.like(df, 2.0)))
    log_x = b.fma(s, b.poly(b.mul(s, s), LOG2_ATANH), b.convert("fpext", e, "double"))
    dax = b.convert("fpext", ax, "double")
    log_x = b.select(b.compare("oeq", dax, b.like(dy, 0.0)), b.like(dy, -inf), log_x)
    log_x = b.select(b.compare("ult", dax, b.like(dy, inf)), log_x, dax)
    log_x = b.select(b.isnan(dax), dax, log_x)
    power = b.mul(dy, log_x)
    inside = _clamp(b, power, -160.0, 130.0)
    n = b.rint(inside)
    t = b.sub(inside, n)
    p = b.fma(t, b.poly(t, EXP2), b.like(dy, 1.0))
    exponent = b.convert("sext", b.add(b.convert("fptosi", n, "i32"), b.const("i32", 1023)), "i64")
    value = b.convert("fptrunc", b.mul(p, b.convert("bitcast", b.shl(exponent, 52), "double")), "float")
    return b.select(b.isnan(power), b.like(x, nan), value)


def _pow_special(b: Body, x: Value, y: Value, value: Value) -> Value:
    whole = b.compare("oeq", b.rint(y), y)
    half = b.mul(y, b.like(y, 0.5))
    odd = b.band(whole, b.compare("one", b.rint(half), half))
    negative = b.compare("slt", b.bits(x), b.const("i32", 0))
    value = b.select(b.band(negative, odd), b.neg(value), value)
    # A negative number to a fraction: not for zero and infinity, whose sign does not matter then.
    below = b.band(b.compare("olt", x, b.like(x, 0.0)), b.compare("ogt", x, b.like(x, -inf)))
    value = b.select(b.band(below, b.bnot(whole)), b.like(x, nan), value)
    y_infinite = b.compare("oeq", b.fabs(y), b.like(y, inf))
    value = b.select(b.band(y_infinite, b.compare("oeq", x, b.like(x, -1.0))), b.like(x, 1.0), value)
    trivial = b.bor(b.compare("oeq", x, b.like(x, 1.0)), b.compare("oeq", y, b.like(y, 0.0)))
    return b.select(trivial, b.like(x, 1.0), value)


# ------------------------------------------------------------------------------------------------------------- tanh and erf

TANH = (-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1)
"""(tanh(x) - x) / x^3 in x^2 for |x| < 0.625 (Cephes, tanhf)."""


@routine("tanh.f32", "float", "float")
def _tanh(b: Body, x: Value) -> Value:
    a = b.fabs(x)
    z = b.mul(x, x)
    small = b.fma(b.mul(b.poly(z, TANH), z), a, a)
    e = b.call("exp.f32", b.add(a, a))
    large = b.sub(b.like(x, 1.0), b.div(b.like(x, 2.0), b.add(e, b.like(x, 1.0))))
    y = b.intrinsic("copysign", b.select(b.compare("olt", a, b.like(x, 0.625)), small, large), x)
    return b.select(b.isnan(x), x, y)


_ERF_LARGE = ("-0x1.220000p-16", "0x1.91cfb2p-12", "-0x1.fd1438p-9", "0x1.8d6342p-6", "-0x1.b55cb8p-4", "-0x1.450aa0p-1", "-0x1.079d0cp-3")
_ERF_SMALL = ("-0x1.38e000p-11", "0x1.471a58p-8", "-0x1.b691b2p-6", "0x1.ce1c44p-4", "-0x1.812700p-2", "0x1.06eba8p-3")


@routine("erf.f32", "float", "float")
def _erf(b: Body, x: Value) -> Value:
    """Two minimax polynomials: x + x * p(x^2) near 0, 1 - exp(q(|x|)) beyond 0.928 (N. Juffa, 0.995 ulp)."""
    a = b.fabs(x)
    tail = b.call("exp.f32", b.fma(b.poly(a, [float.fromhex(c) for c in _ERF_LARGE]), a, b.neg(a)))
    large = b.intrinsic("copysign", b.sub(b.like(x, 1.0), tail), x)
    small = b.fma(b.poly(b.mul(x, x), [float.fromhex(c) for c in _ERF_SMALL]), x, x)
    y = b.select(b.compare("ogt", a, b.like(x, 0.927734375)), large, small)
    y = b.select(b.compare("ogt", a, b.like(x, 6.0)), b.intrinsic("copysign", b.like(x, 1.0), x), y)
    return b.select(b.isnan(x), x, y)


# ------------------------------------------------------------------------------------------------------ everything by its name

_FROM_C = {"exp": "exp", "exp2": "exp2", "expm1": "expm1", "log": "log", "log2": "log2", "log1p": "log1p", "pow": "pow", "sin": "sin", "cos": "cos",
           "tan": "tan", "tanh": "tanh", "erf": "erf", "atan2": "atan2"}
_OWN_F32 = frozenset("exp exp2 expm1 log log2 log1p pow tanh erf".split())
_COMPARE = {"==": ("oeq", "eq"), "!=": ("une", "ne"), "<": ("olt", "slt"), "<=": ("ole", "sle"), ">": ("ogt", "sgt"), ">=": ("oge", "sge")}
_INTRINSIC_FLOAT = {"min": "minimum", "max": "maximum", "fmin": "minnum", "fmax": "maxnum", "abs": "fabs", "floor": "floor", "ceil": "ceil",
                    "sqrt": "sqrt", "exact_sqrt": "sqrt", "fma": "fma"}
_INTRINSIC_INT = {"min": "smin", "max": "smax", "fmin": "smin", "fmax": "smax"}
_SIMPLE: dict[str, Callable[..., Value]] = {"+": Body.add, "-": Body.sub, "*": Body.mul, "/": Body.div, "exact_div": Body.div, "neg": Body.neg,
                                            "and": Body.band, "or": Body.bor,
                                            "not": Body.bnot}


def apply(b: Body, fn: str, *args: Value) -> Value:
    """The primitive `fn` on arguments of one type."""
    a, kind = args[0], args[0].type
    is_float = kind in ("float", "double")
    if fn in _SIMPLE:
        return _SIMPLE[fn](b, *args)
    if fn in _COMPARE:
        return b.compare(_COMPARE[fn][0 if is_float else 1], *args)
    if is_float:
        return _apply_float(b, fn, *args)
    if fn in _INTRINSIC_INT:
        return b.intrinsic(_INTRINSIC_INT[fn], *args)
    if fn in ("floor", "ceil", "round"):
        return a
    if fn == "abs":
        return b.intrinsic("abs", a, immediate="i1 false")
    if fn == "fma":
        return b.add(b.mul(a, args[1]), args[2])
    if fn in ("quot", "rest"):
        return b.binary("udiv" if fn == "quot" else "urem", *args)
    if fn in ("floordiv", "mod", "sign") and kind in KINDS:
        return b.call(f"{fn}.{KINDS[kind]}", *args)
    internal_error(f"no LLVM code for {fn} of {kind}")


def _apply_float(b: Body, fn: str, *args: Value) -> Value:
    a = args[0]
    suffix = KINDS[a.type]
    if fn in _INTRINSIC_FLOAT:
        return b.intrinsic(_INTRINSIC_FLOAT[fn], *args)
    if fn == "round":
        return b.rint(a)
    if fn == "isnan":
        return b.isnan(a)
    if fn == "isinf":
        return b.compare("oeq", b.fabs(a), b.like(a, inf))
    if fn == "rsqrt":
        return b.div(b.like(a, 1.0), b.intrinsic("sqrt", a))
    if fn in ("floordiv", "mod", "sign") or (a.type == "float" and fn in _OWN_F32):
        return b.call(f"{fn}.{suffix}", *args)
    if fn in _FROM_C:
        return b.libm(_FROM_C[fn] + ("f" if a.type == "float" else ""), *args)
    internal_error(f"no LLVM code for {fn} of {a.type}")
