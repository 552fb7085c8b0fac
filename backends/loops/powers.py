"""`**` with an integer exponent: repeated multiplication."""
from __future__ import annotations

from collections.abc import Callable

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.emit import Atom, Emitter, i64
from pipelink_ir.backends.loops.fold import must
from pipelink_ir.ir.dtypes import BOOL, I64


def power(e: Emitter, base: Atom, exponent: Atom) -> Atom:
    """`base ** exponent`. A float exponent is `pow`."""
    if exponent.dtype.is_float:
        return e.op("pow", base, exponent)
    one = must(1, base.dtype)
    if isinstance(exponent, form.Const):
        n = int(exponent.value)
        if n < 0 and base.dtype.is_float:
            if n == -1:
                return e.op("/", one, base)
            product = _constant(e, base, -n)
            return _inverse(e, base, product, one, lambda reciprocal: _constant(e, reciprocal, -n))
        return _constant(e, base, n) if n > 0 else one
    return _variable(e, base, exponent, one)


def _constant(e: Emitter, base: Atom, n: int) -> Atom:
    """Left to right up to 4, then by squaring."""
    if n <= 4:
        out = base
        for _ in range(n - 1):
            out = e.op("*", out, base)
        return out
    half = _constant(e, base, n // 2)
    square = e.op("*", half, half)
    return e.op("*", square, base) if n % 2 else square


def _variable(e: Emitter, base: Atom, exponent: Atom, one: form.Const) -> Atom:
    """By squaring over the bits of the exponent. A negative one of an integer has been refused by then, and gives 1."""
    n = e.convert(exponent, I64)
    steps = e.op("abs", n) if base.dtype.is_float else e.op("max", n, i64(0))
    bits = exponent.dtype.bits
    out = _by_squaring(e, base, steps, bits, one)
    if not base.dtype.is_float:
        return out
    inverse = _inverse(e, base, out, one, lambda reciprocal: _by_squaring(e, reciprocal, steps, bits, one))
    return e.choose(e.op("<", n, i64(0)), inverse, out)


def _by_squaring(e: Emitter, base: Atom, steps: Atom, bits: int, one: form.Const) -> Atom:
    out, square, left = e.var("power", one), e.var("square", base), e.var("left", steps)
    with e.loop("bit", i64(0), i64(bits)):
        odd = e.bind("odd", form.Op("==", (form.Op("rest", (left, i64(2)), I64), i64(1)), BOOL))
        e.assign(out, form.Choose(odd, form.Op("*", (out, square), base.dtype), out, base.dtype))
        e.assign(square, form.Op("*", (square, square), base.dtype))
        e.assign(left, form.Op("quot", (left, i64(2)), I64))
    return out


def _inverse(e: Emitter, base: Atom, product: Atom, one: form.Const, again: Callable[[Atom], Atom]) -> Atom:
    """1 / product. 2.0 ** -149 is a subnormal although 2.0 ** 149 overflows: there the reciprocal is multiplied."""
    overflow = e.op("and", e.op("isinf", product), e.op("not", e.op("isinf", base)))
    return e.choose(overflow, again(e.op("/", one, base)), e.op("/", one, product))
