"""Random integer expressions and their values over a grid, computed by NumPy from the language's definitions: what tests of the prover compare with."""
from __future__ import annotations

from random import Random
from typing import Any

import numpy as np

from pipelink_ir.ir.nodes import Apply, Const, Expr, IntLit, Name

DIMS, INDICES = ("H", "W"), ("i", "j")

GRID = {n: np.asarray(v, np.int64).reshape([-1 if k == axis else 1 for k in range(4)])
        for axis, (n, v) in enumerate(zip(DIMS + INDICES, (range(9), range(9), range(-3, 18), range(-3, 18)), strict=True))}
"""Every dimension from 0 to 8, every index from -3 to 17 (beyond 2 * 8)."""

SHAPE = (9, 9, 21, 21)


def values(e: Expr, env: dict[str, Any] = GRID) -> Any:
    """The value of an expression at every point of the grid."""
    if isinstance(e, IntLit):
        return np.full((1, 1, 1, 1), e.value, np.int64)
    if isinstance(e, Name):
        return env[e.name]
    if isinstance(e, Const):
        return np.full((1, 1, 1, 1), e.name == "true")
    assert isinstance(e, Apply), e
    return _FUNCTIONS[e.fn](*(values(a, env) for a in e.args))


def everywhere(e: Expr, env: dict[str, Any] = GRID) -> Any:
    """The same, of the grid's full shape."""
    return np.broadcast_to(values(e, env), SHAPE)


def _floordiv(a: Any, b: Any) -> Any:
    return np.where(b == 0, 0, np.floor_divide(a, np.where(b == 0, 1, b)))


_FUNCTIONS: dict[str, Any] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "neg": np.negative, "abs": np.abs, "min": np.minimum, "max": np.maximum, "**": np.power,
    "floordiv": _floordiv, "ceildiv": lambda a, b: -_floordiv(-a, b), "mod": lambda a, b: np.where(b == 0, 0, a - b * _floordiv(a, b)),
    "clamp": lambda a, lo, hi: np.minimum(np.maximum(a, lo), hi), "select": np.where, "and": np.logical_and, "or": np.logical_or, "not": np.logical_not,
    "==": np.equal, "!=": np.not_equal, "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal,
}

_BINARY = ("+", "+", "+", "-", "-", "-", "*", "floordiv", "mod", "ceildiv", "min", "max")


def integer(r: Random, depth: int, names: tuple[str, ...]) -> Expr:
    """A random integer expression."""
    if depth == 0 or r.random() < 0.15:
        return Name(r.choice(names)) if r.random() < 0.7 else IntLit(r.choice((0, 1, 2, 3, -1, -2, 4)))

    def sub() -> Expr:
        return integer(r, depth - 1, names)

    kind = r.randrange(10)
    if kind < 5:
        return Apply(r.choice(_BINARY), (sub(), sub()))
    if kind == 5:
        return Apply("*", (IntLit(r.choice((2, 3, -1, -2))), sub()))
    if kind in (6, 7):
        return Apply(r.choice(("floordiv", "mod")), (sub(), IntLit(r.choice((2, 2, 3, 4, -2, 0)))))
    if kind == 8:
        return Apply(r.choice(("abs", "neg")), (sub(),)) if r.random() < 0.8 else Apply("**", (sub(), IntLit(2)))
    return Apply("clamp", (sub(), sub(), sub())) if r.random() < 0.4 else Apply("select", (condition(r, depth - 1, names), sub(), sub()))


def condition(r: Random, depth: int, names: tuple[str, ...]) -> Expr:
    """A random condition on integers."""
    kind = r.random()
    if depth > 0 and kind < 0.25:
        return Apply(r.choice(("and", "or")), (condition(r, depth - 1, names), condition(r, depth - 1, names)))
    if depth > 0 and kind < 0.32:
        return Apply("not", (condition(r, depth - 1, names),))
    return Apply(r.choice(("<", "<=", ">", ">=", "==", "!=")), (integer(r, depth, names), integer(r, depth, names)))
