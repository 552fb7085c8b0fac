"""Shorter ways to compute what is only ever rounded to a narrow float, which may be off by a sixteenth of its last digit.

    f16(0.5 * x * (1 + erf(x * 0.70710678)))                          is   f16(gelu_f16(x))
    f16(0.5 * x * (1 + tanh(0.79788456 * (x + 0.044715 * x ** 3))))   is   f16(gelu_tanh_f16(x))

The normal distribution is 2 to the minus polynomial of |x| on its lower side, and 1 minus that on the other: half the operations of the error function, and
without what is lost by adding 1 to numbers near -1. `docs/decisions/rows.md` has the fits and what was measured. What is rounded is recognized by the cast, or
by the dtype of the result that it is stored in: alike, so that an edge that is fused away rounds to the same number.
"""
from __future__ import annotations

from dataclasses import replace

from pipelink_ir.ir.nodes import Apply, Cast, Expr, FloatLit, IntLit
from pipelink_ir.ir.typed import Piece, Tensor, TypedOperator
from pipelink_ir.ir.walk import rebuild

NARROW = ("f16", "bf16")
ROOT_HALF, ROOT_PART = 0.7071067811865476, 0.7978845608028654
"""The roots of 1/2 and of 2 / pi."""
CUBIC = 0.044715


def shortened(op: TypedOperator) -> TypedOperator:
    """The operator with shorter ways where there are some."""
    if op.exact:
        return op
    tensors = {n: replace(t, pieces=tuple(_piece(t, p) for p in t.pieces)) for n, t in op.tensors.items()}
    return replace(op, tensors=tensors)


def _piece(t: Tensor, p: Piece) -> Piece:
    value = _walk(p.value)
    if t.kind == "result" and t.dtype.name in NARROW:
        value = _short(value, t.dtype.name)
    return p if value is p.value else replace(p, value=value)


def _walk(x: Expr) -> Expr:
    x = rebuild(x, _walk)
    if isinstance(x, Cast) and x.to in NARROW:
        arg = _short(x.arg, x.to)
        return x if arg is x.arg else replace(x, arg=arg)
    return x


def _short(x: Expr, dtype: str) -> Expr:
    """`x` by a shorter way, or as it is."""
    factors = _factors(x)
    if len(factors) != 3 or (isinstance(x, Apply) and x.exact) or x.dtype is None or x.dtype.name != "f32":
        return x
    halves = [f for f in factors if _number(f) == 0.5]
    sums = [f for f in factors if isinstance(f, Apply) and f.fn == "+"]
    if len(halves) != 1 or len(sums) != 1:
        return x
    own = next(f for f in factors if f is not halves[0] and f is not sums[0])
    curves = [a for a in sums[0].args if isinstance(a, Apply) and a.fn in ("erf", "tanh")]
    ones = [a for a in sums[0].args if _number(a) == 1.0]
    if len(curves) != 1 or len(ones) != 1:
        return x
    inner, curve = curves[0].args[0], curves[0].fn
    if curve == "erf" and _times(inner, ROOT_HALF, own):
        return Apply(f"gelu_{dtype}", (own,), span=x.span, dtype=x.dtype)
    if curve == "tanh" and _bent(inner, own):
        return Apply(f"gelu_tanh_{dtype}", (own,), span=x.span, dtype=x.dtype)
    return x


def _times(x: Expr, factor: float, other: Expr) -> bool:
    """Whether an expression is a number times another."""
    return isinstance(x, Apply) and x.fn == "*" and any(_near(_number(a), factor) and b == other for a, b in (x.args, x.args[::-1]))


def _bent(x: Expr, own: Expr) -> bool:
    """Whether an expression is 0.79788456 (x + 0.044715 x ** 3)."""
    if not isinstance(x, Apply) or x.fn != "*":
        return False
    bent = next((b for a, b in (x.args, x.args[::-1]) if _near(_number(a), ROOT_PART)), None)
    if not isinstance(bent, Apply) or bent.fn != "+":
        return False
    return any(a == own and _cubed(b, own) for a, b in (bent.args, bent.args[::-1]))


def _cubed(x: Expr, own: Expr) -> bool:
    """Whether an expression is 0.044715 x ** 3, or x * x * x."""
    parts: list[Expr] = []
    work = [x]
    while work:
        part = work.pop()
        if isinstance(part, Apply) and part.fn == "*":
            work += part.args
        elif isinstance(part, Apply) and part.fn == "**" and _number(part.args[1]) == 3:
            parts += [part.args[0]] * 3
        else:
            parts.append(part)
    numbers = [p for p in parts if _number(p) is not None]
    return len(parts) == 4 and len(numbers) == 1 and _near(_number(numbers[0]), CUBIC) and all(p == own for p in parts if p is not numbers[0])


def _factors(x: Expr) -> list[Expr]:
    """The factors of a product of three."""
    if not isinstance(x, Apply) or x.fn != "*":
        return [x]
    return [f for a in x.args for f in (a.args if isinstance(a, Apply) and a.fn == "*" else (a,))]


def _number(x: Expr) -> float | None:
    if isinstance(x, Cast) and x.implicit:
        x = x.arg
    return float(x.value) if isinstance(x, IntLit | FloatLit) else None


def _near(x: float | None, to: float) -> bool:
    return x is not None and abs(x - to) < 1e-7
