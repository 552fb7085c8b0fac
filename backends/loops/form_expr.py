"""Expressions of the loop form: small trees without side effects (the rules are at the head of `form.py`)."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from pipelink_ir.ir.dtypes import BOOL, I64, DType


@dataclass(frozen=True, slots=True)
class Const:
    """A literal: an int for i32 and i64 (in range), a bool for bool, a float for f32 (already rounded to f32) and f64; inf, nan and -0.0 occur."""

    value: int | float | bool
    dtype: DType


@dataclass(frozen=True, slots=True)
class Ref:
    """The value of a name: a `Let`, the present value of a `Var`, a loop variable (i64), a symbol (i64) or a scalar of the kernel."""

    name: str
    dtype: DType


@dataclass(frozen=True, slots=True)
class Op:
    """A primitive function by its name in `ir/functions.py`, on arguments of one type (those of `select` and of the logic aside).

    Names that occur, with the types of their arguments -> result:
      bool -> bool          and or not == != (both arguments of `and`, `or` are evaluated: they are pure and cheap)
      number -> bool        == != < <= > >= (with a NaN false, but `!=` true); isnan isinf (floats)
      number -> same        + - * neg min max abs sign floordiv mod; floor ceil round fmin fmax fma (floats alone)
      float -> same         / sqrt rsqrt exp exp2 expm1 log log2 log1p pow sin cos tan tanh erf atan2
      i64 -> i64            quot rest: quotient and rest of a number >= 0 by one > 0 (an unsigned division, nothing to guard)
    Integers wrap; `floordiv` and `mod` round down, by zero they give 0. `min`, `max`: a NaN wins; `fmin`, `fmax`: a number wins. `round`: half to even.
    `reorder`: this `+` belongs to a sum whose order the emitter may change (LLVM: reassoc nsz)."""

    fn: str
    args: tuple[Expr, ...]
    dtype: DType
    reorder: bool = False


@dataclass(frozen=True, slots=True)
class Convert:
    """`arg` as a value of `to`, held in `dtype`, the compute type of `to`. From any type to any type, narrow ones included.

    float -> int: drops the fraction, saturates to the range of `to`, NaN is 0. int -> int: wraps, or saturates where `saturate` says so. int -> float and
    float -> narrower float: one rounding, to nearest even (f64 -> f16 too; f8e4m3 has no inf: beyond its range NaN). bool -> number: 0 or 1.
    number -> bool: x != 0, NaN is true."""

    arg: Expr
    to: DType
    dtype: DType
    saturate: bool = False


@dataclass(frozen=True, slots=True)
class Choose:
    """`then` where `cond` is true, else `other`. Both are evaluated: they are pure and cheap and cannot fault."""

    cond: Expr
    then: Expr
    other: Expr
    dtype: DType


@dataclass(frozen=True, slots=True)
class Load:
    """Element `index` of a buffer or an `Alloc`, converted from its memory dtype to `dtype`, the compute type."""

    buffer: str
    index: Expr
    memory: DType
    dtype: DType


@dataclass(frozen=True, slots=True)
class Aligned:
    """Whether a buffer begins at an address that is a multiple of `bytes`: the same for all threads, known at run time alone."""

    buffer: str
    bytes: int
    dtype: DType = BOOL


@dataclass(frozen=True, slots=True)
class Thread:
    """The number of the thread in its block, as i64; in uniform statements it is a value that differs between threads."""

    dtype: DType = I64


Expr = Union[Const, Ref, Op, Convert, Choose, Load, Aligned, Thread]
