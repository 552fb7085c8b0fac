"""What a kernel costs, roughly, for given sizes: enough to tell whether its loop is worth more than one thread."""
from __future__ import annotations

from dataclasses import dataclass

from pipelink_ir.backends.loops.form import (
    Assign,
    Block,
    Choose,
    Convert,
    Expr,
    For,
    If,
    Kernel,
    Let,
    Load,
    Op,
    Stmt,
    Store,
    Var,
    evaluate,
)

SHARE = 20_000
"""Operations that make it worth waking a second thread: some microseconds."""

UNKNOWN = 16
"""Turns of a loop whose bounds only the data tells."""

_OPS = {"/": 4, "sqrt": 4, "rsqrt": 8, "exp": 16, "exp2": 14, "expm1": 20, "log": 18, "log2": 18, "log1p": 26, "pow": 60, "tanh": 24, "erf": 24, "sin": 60,
        "cos": 60, "tan": 80, "atan2": 120, "floordiv": 12, "mod": 12, "quot": 8, "rest": 8}


@dataclass(frozen=True, slots=True)
class Sharing:
    """Whether threads may share a parallel loop, and the fewest iterations worth handing over."""

    worth: bool
    least: int


def sharing(kernel: Kernel, symbols: dict[str, int]) -> Sharing:
    """How the parallel loop of `kernel` is shared for these sizes."""
    loop = kernel.loop
    if loop is None:
        return Sharing(False, 1)
    env = dict(symbols)
    _block(kernel.body[:-1], env)
    turns = _turns(loop, env)
    one = max(1.0, _body(loop, env))
    return Sharing(turns * one >= 2 * SHARE, max(1, int(SHARE // one)))


def _number(x: Expr, env: dict[str, int]) -> int | None:
    try:
        return evaluate(x, env)
    except (KeyError, ValueError, TypeError):
        return None


def _turns(loop: For, env: dict[str, int]) -> int:
    lo, hi, step = (_number(x, env) for x in (loop.lo, loop.hi, loop.step))
    if lo is None or hi is None or not step:
        return UNKNOWN
    return max(0, -(-(hi - lo) // step))


def _body(loop: For, env: dict[str, int]) -> float:
    """One iteration in the middle of the range."""
    lo = _number(loop.lo, env)
    inner = dict(env)
    if lo is not None:
        inner[loop.var] = lo + _turns(loop, env) // 2 * (_number(loop.step, env) or 1)
    return _block(loop.body, inner)


def _block(block: Block, env: dict[str, int]) -> float:
    return sum(_stmt(s, env) for s in block)


def _stmt(s: Stmt, env: dict[str, int]) -> float:
    if isinstance(s, Let):
        value = _number(s.value, env) if s.value.dtype.name == "i64" else None
        if value is not None:
            env[s.name] = value
        return _expr(s.value)
    if isinstance(s, For):
        return 2 + _turns(s, env) * (1 + _body(s, env))
    if isinstance(s, If):
        return 1 + _expr(s.cond) + max(_block(s.then, dict(env)), _block(s.other, dict(env)))
    if isinstance(s, Store):
        return 1 + _expr(s.index) + _expr(s.value)
    if isinstance(s, Var):
        return _expr(s.init)
    if isinstance(s, Assign):
        return _expr(s.value)
    return 1


def _expr(x: Expr) -> float:
    if isinstance(x, Op):
        return _OPS.get(x.fn, 1) + sum(map(_expr, x.args))
    if isinstance(x, Convert):
        return 1 + _expr(x.arg)
    if isinstance(x, Choose):
        return 1 + _expr(x.cond) + _expr(x.then) + _expr(x.other)
    if isinstance(x, Load):
        return 1 + _expr(x.index)
    return 0
