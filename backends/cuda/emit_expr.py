"""Expressions of the loop form as C++.

Integers of data wrap: where the bounds of the arguments do not show that a result fits, it is computed by a function of the prelude that wraps. Indices are
bounded by the host (`geometry.py`) and computed plainly.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from math import frexp

import numpy as np

from pipelink_ir.backends.cuda.bounds import LIMIT, Bounds, exact, full
from pipelink_ir.backends.cuda.kinds import C_TYPES, Kinds
from pipelink_ir.backends.cuda.literals import ATOM, UNARY, literal
from pipelink_ir.backends.loops.form import BYTE, FOUR, Aligned, Choose, Const, Convert, Expr, Kernel, Load, Op, Ref, Thread
from pipelink_ir.ir.diagnostics import internal_error
from pipelink_ir.ir.dtypes import BOOL, F16, F32, F64, I32, I64, DType

MEMORY = {"bool": "bool", "i32": "int", "i64": "i64", "f32": "float", "f64": "double"}
"""The C++ type of a dtype in memory, where it is not called as in the language."""

_INFIX = {"*": 13, "/": 13, "+": 12, "-": 12, "<": 9, "<=": 9, ">": 9, ">=": 9, "==": 8, "!=": 8, "and": 4, "or": 3}
_SPELLED = {"and": "&&", "or": "||"}
_TERNARY = 2
_WRAPPING = {"+": "add", "-": "sub", "*": "mul", "neg": "neg"}
_INEXACT = {"/": "div", "sqrt": "sqrt", "exp": "exp"}
"""What `exact` or `fast_math` spells otherwise."""

_SMALL_POWER = 0.8
_SMALL_INT = 1 << 22
_MODERATE = 1e30

Text = tuple[str, int]
"""C++ and its precedence."""


def memory_type(dtype: DType) -> str:
    """The C++ type of a dtype in memory."""
    return MEMORY.get(dtype.name, dtype.name)


@dataclass(slots=True)
class Place:
    """A buffer or scratch: its name in C++, its dtype, whether each thread has its own, and whether it is shared by a block."""

    name: str
    memory: DType
    private: bool = False


@dataclass(slots=True)
class Expressions:
    """What names stand for, and expressions over them as text."""

    kernel: Kernel
    kinds: Kinds
    names: dict[str, str] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)
    bounds: Bounds = field(default_factory=Bounds)
    wraps: bool = False
    """Whether what is being written only becomes data: then an index may leave 64 bits."""

    def bind(self, name: str, value: Expr) -> None:
        """Remembers between what a value lies."""
        if not value.dtype.is_float:
            self.bounds.names[name] = self.range_of(value)

    def range_of(self, x: Expr) -> tuple[int, int]:
        """The interval of an integer; an index has at most the size of an array."""
        low, high = self.bounds.of(x)
        return (max(low, -LIMIT), min(high, LIMIT)) if self.kinds.of(x) == "index" else (low, high)

    def address(self, x: Expr, around: int = 0) -> str:
        """An index, or a bound of a loop, as C++."""
        wraps, self.wraps = self.wraps, False
        text = self.text(x, around)
        self.wraps = wraps
        return text

    def data(self, x: Expr) -> str:
        """A value as C++."""
        wraps, self.wraps = self.wraps, True
        text = self.text(x)
        self.wraps = wraps
        return text

    def text(self, x: Expr, around: int = 0) -> str:
        """`x` as C++, in parentheses if it stands beside an operator that binds tighter."""
        text, own = self._expr(x)
        return f"({text})" if own < around else text

    def _expr(self, x: Expr) -> Text:
        if isinstance(x, Const):
            return literal(x)
        if isinstance(x, Ref):
            return self._ref(x)
        if isinstance(x, Op):
            return self._op(x)
        if isinstance(x, Convert):
            return self._convert(x)
        if isinstance(x, Choose):
            return f"{self.text(x.cond, _TERNARY + 1)} ? {self.text(x.then, _TERNARY + 1)} : {self.text(x.other, _TERNARY)}", _TERNARY
        if isinstance(x, Thread):
            return "pl::thread()", ATOM
        if isinstance(x, Aligned):
            return f"pl::aligned({self.places[x.buffer].name}, {x.bytes})", ATOM
        return self._load(x)

    def _ref(self, x: Ref) -> Text:
        if x.name not in self.names:
            internal_error(f"kernel {self.kernel.name}: '{x.name}' is not bound")
        return self.names[x.name], ATOM

    def place(self, buffer: str, memory: DType) -> Place:
        """Where a buffer lies."""
        place = self.places.get(buffer)
        if place is None:
            internal_error(f"kernel {self.kernel.name}: buffer '{buffer}' is not known")
        if place.memory is not memory:
            internal_error(f"kernel {self.kernel.name}: '{buffer}' holds {place.memory}, not {memory}")
        return place

    def _load(self, x: Load) -> Text:
        element = f"{self.place(x.buffer, x.memory).name}[{self.address(x.index)}]"
        if x.memory in (I32, I64, F32, F64, BOOL):
            return element, ATOM
        return f"{C_TYPES[x.dtype.name]}({element})", ATOM

    # ----------------------------------------------------------------------------------------------------------------- functions

    def _op(self, x: Op) -> Text:
        if x.fn == "not":
            return f"!{self.text(x.args[0], UNARY)}", UNARY
        if x.args[0].dtype.is_int and x.dtype is not BOOL:
            return self._integer(x)
        if x.fn == "neg":
            return self._minus(x.args[0])
        if x.fn in _INEXACT:
            return self._inexact(x)
        if x.fn == "pow" and _small_power(x.args[1]):
            return self._call(f"pl::pow_small<{str(self._is_unit(x.args[0])).lower()}>", x.args)
        if x.fn in _INFIX:
            return self._infix(x)
        if x.fn == "max" and x.dtype is F32 and isinstance(x.args[1], Const) and x.args[1].value == 0 and self._is_plus(x.args[0]):
            return self._expr(x.args[0])
        return self._call(f"pl::{x.fn}", x.args)

    def _is_plus(self, x: Expr, depth: int = 12) -> bool:
        """Whether a float is a NaN or a number from 0 on, and no -0: sums of roots of squares are."""
        if isinstance(x, Ref) and x.name in self.kinds.lets:
            x = self.kinds.lets[x.name]
        if isinstance(x, Const):
            return x.value > 0
        if not isinstance(x, Op) or depth == 0:
            return False
        if x.fn in ("*", "fma") and x.args[0] == x.args[1]:
            return x.fn == "*" or self._is_plus(x.args[2], depth - 1)
        if x.fn in ("+", "*", "/", "sqrt"):
            return all(self._is_plus(a, depth - 1) for a in x.args)
        return False

    def _call(self, name: str, args: tuple[Expr, ...]) -> Text:
        return f"{name}({', '.join(map(self.text, args))})", ATOM

    def _minus(self, arg: Expr) -> Text:
        text = self.text(arg, UNARY)
        return (f"-({text})" if text.startswith("-") else f"-{text}"), UNARY

    def _infix(self, x: Op) -> Text:
        own = _INFIX[x.fn]
        # `&&` inside `||`, a comparison inside `==`: clear to a compiler, less so to a reader.
        inner = own + 2 if x.fn in ("or", "==", "!=") else own
        if x.fn == "+" and x.dtype.is_int:
            if isinstance(x.args[1], Const):
                return self._offset(x.args[0], int(x.args[1].value)), own
            for this, other in (x.args, x.args[::-1]):
                if (taken := _negated(other)) is not None and _negated(this) is None:
                    return f"{self.text(this, own)} - {self.text(taken, own + 1)}", own
        if isinstance(x.args[0], Const) and not isinstance(x.args[1], Const):
            if x.fn == "+" and x.dtype.is_int:
                return self._offset(x.args[1], int(x.args[0].value)), own
            if x.fn in ("==", "!="):
                return f"{self.text(x.args[1], inner)} {x.fn} {self.text(x.args[0], inner)}", own
            if x.fn == "*" and x.dtype.is_int and x.args[0].value == -1:
                return self._minus(x.args[1])
        return f"{self.text(x.args[0], inner)} {_SPELLED.get(x.fn, x.fn)} {self.text(x.args[1], max(inner, own + 1))}", own

    def _offset(self, x: Expr, by: int) -> str:
        """`x + 1` for a sum with a number; the lowest of all numbers cannot change its sign."""
        minus = by < 0 and by != -(1 << 63) and by != -(1 << 31)
        return f"{self.text(x, 12)} {'-' if minus else '+'} {literal(Const(-by if minus else by, I64))[0]}"

    def _inexact(self, x: Op) -> Text:
        if self.kernel.exact and x.fn != "exp":
            return self._call(f"pl::exact_{_INEXACT[x.fn]}", x.args)
        if self.kernel.fast_math and x.fn != "sqrt":  # a root is within a unit as it is
            return self._call(f"pl::fast_{_INEXACT[x.fn]}", x.args)
        if x.fn == "/" and (inverse := _exact_inverse(x.args[1])) is not None:
            return self._infix(Op("*", (x.args[0], inverse), x.dtype))
        if x.fn == "/" and _plain_divisor(x.args[1]):
            return self._call("pl::div_by", x.args)
        return self._infix(x) if x.fn == "/" else self._call(f"pl::{x.fn}", x.args)

    def _is_unit(self, x: Expr) -> bool:
        """Whether a float was clamped to numbers from 0 to some moderate one."""
        limits: dict[str, float] = {}
        while True:
            if isinstance(x, Ref) and x.name in self.kinds.lets:
                x = self.kinds.lets[x.name]
            if not isinstance(x, Op) or x.fn not in ("min", "max") or not isinstance(x.args[1], Const):
                return limits.get("max", -1.0) >= 0.0 and limits.get("min", 1e31) <= _MODERATE and limits["min"] >= limits["max"]
            limits.setdefault(x.fn, float(x.args[1].value))
            x = x.args[0]

    def _integer(self, x: Op) -> Text:
        if self.kinds.of(x) == "index":
            return self._index(x)
        if x.fn == FOUR:
            return self._four(x.args[:4], x.args[4])
        if x.fn in BYTE.values():
            return self._byte(x, "")
        if x.fn not in _WRAPPING:
            return self._call(f"pl::{x.fn}", x.args)
        if not self._fits(x):
            return self._call(f"pl::{_WRAPPING[x.fn]}", x.args)
        return self._minus(x.args[0]) if x.fn == "neg" else self._infix(x)

    def _four(self, words: tuple[Expr, ...], at: Expr) -> Text:
        """Bytes of up to four words: of two words they are picked at once."""
        assert isinstance(at, Const)
        distinct = list(dict.fromkeys(words))
        if len(distinct) > 2:
            return self._call(f"pl::four<0x{int(at.value):04x}>", words)
        places = sum((4 * distinct.index(w) + (int(at.value) >> 4 * k & 3)) << 4 * k for k, w in enumerate(words))
        return self._call(f"pl::picked<0x{places:04x}>", (distinct[0], distinct[-1]))

    def _byte(self, x: Op, kind: str) -> Text:
        """A byte of a word as an integer, or (`kind`) as a float."""
        at = x.args[1]
        assert isinstance(at, Const)
        return f"pl::{kind}{x.fn}<{int(at.value)}>({self.text(x.args[0])})", ATOM

    def _fits(self, x: Op) -> bool:
        """Whether a sum, difference or product cannot leave its type."""
        found = exact(x.fn, [self.range_of(a) for a in x.args])
        least, most = full(x.dtype)
        return found is not None and least <= found[0] and found[1] <= most

    def _index(self, x: Op) -> Text:
        if self.wraps and x.fn in _WRAPPING and not self._fits(x):
            return self._call(f"pl::{_WRAPPING[x.fn]}", x.args)
        if x.fn == "neg":
            return self._minus(x.args[0])
        if x.fn in _INFIX:
            return self._infix(x)
        if all(map(self.kinds.is_index, x.args)):
            return self._call(f"pl::{x.fn}", x.args)
        return self._clamped(x) or (f"index_t({self._call(f'pl::{x.fn}', x.args)[0]})", ATOM)

    def _clamped(self, x: Op) -> Text | None:
        """What indices bound on both sides, where it is a number of 32 bits: no index has fewer."""
        for inner, limit in (x.args, x.args[::-1]):
            if self.kinds.is_index(limit) and isinstance(inner, Op) and inner.fn in ("min", "max") and x.fn in ("min", "max"):
                parts = [self._narrow(a) for a in inner.args]
                if None not in parts:
                    return f"pl::{x.fn}(pl::{inner.fn}({', '.join(map(str, parts))}), {self.text(limit)})", ATOM
        return None

    def _narrow(self, x: Expr) -> str | None:
        """An index, or data of at most 32 bits, as an index."""
        if self.kinds.is_index(x):
            return self.text(x)
        return f"index_t({self.text(x.arg)})" if isinstance(x, Convert) and x.to is I64 and x.arg.dtype is I32 else None

    # ----------------------------------------------------------------------------------------------------------------- conversions

    def _convert(self, x: Convert) -> Text:
        """The value in the range or precision of `to`, then in its compute type."""
        source, to, held = x.arg.dtype, x.to, C_TYPES[x.dtype.name]
        if to is BOOL:
            return self._expr(x.arg) if source is BOOL else (f"{self.text(x.arg, 9)} != 0", 8)
        if to is F32 and isinstance(value := self._value(x.arg), Op) and value.fn in BYTE.values():
            return self._byte(value, "float_")
        if to is F32 and source is I32 and (part := self._signed_part(x.arg)) is not None:
            return part
        text = self.text(x.arg)
        if to.is_int:
            return self._to_int(x, text)
        if to is F32 and source is I32 and max(map(abs, self.range_of(x.arg))) < _SMALL_INT:
            return f"pl::small_float({text})", ATOM
        if to in (F32, F64):
            return (text, self._expr(x.arg)[1]) if source is to else (f"{held}({text})", ATOM)
        return f"{held}({to.name}({text}))", ATOM

    def _signed_part(self, x: Expr) -> Text | None:
        """The last bits of an integer, the first of them its sign, as a float: `(x + 8) mod 16 - 8`."""
        outer = self._value(x)
        if not isinstance(outer, Op) or outer.fn not in ("-", "+") or not isinstance(outer.args[1], Const):
            return None
        half = int(outer.args[1].value) * (1 if outer.fn == "-" else -1)
        rest = self._value(outer.args[0])
        if half < 1 or half & (half - 1) or half > _SMALL_INT // 4 or not isinstance(rest, Op) or rest.fn != "mod" or rest.args[1] != Const(2 * half, I32):
            return None
        inner = self._value(rest.args[0])
        if not isinstance(inner, Op) or inner.fn != "+" or Const(half, I32) not in inner.args:
            return None
        return self._call(f"pl::signed_float<{half.bit_length()}>", (inner.args[1 if inner.args[0] == Const(half, I32) else 0],))

    def _to_int(self, x: Convert, text: str) -> Text:
        source, to, held = x.arg.dtype, x.to, C_TYPES[x.dtype.name]
        if source.is_float:
            return self._code(x) or (f"pl::to_{to.name}({text})", ATOM)
        if x.saturate and to.bits < 64:
            return f"pl::sat_{to.name}({text})", ATOM
        least, most = full(to)
        low, high = self.range_of(x.arg)
        fits = source is BOOL or (least <= low and high <= most)
        if to.bits < 32 and not fits:
            return f"{held}({to.name}({text}))", ATOM
        if source is I32 and x.dtype is I32:
            return self._expr(x.arg)
        return f"{held}({text})", ATOM

    def _code(self, x: Convert) -> Text | None:
        """What is rounded to the nearest integer, perhaps moved by a number, and becomes an integer of at most 16 bits."""
        value, zero = self._value(x.arg), 0
        if x.to.bits > 16 or value.dtype is not F32:
            return None
        if isinstance(value, Op) and value.fn == "+":
            for a, b in (value.args, value.args[::-1]):
                if isinstance(a, Const) and abs(a.value) <= 65536 and float(a.value).is_integer():
                    value, zero = self._value(b), int(a.value)
                    break
        if not isinstance(value, Op) or value.fn != "round":
            return None
        return f"pl::code_{x.to.name}<{zero}>({self._for_code(value.args[0], x.to, zero)})", ATOM

    def _for_code(self, x: Expr, to: DType, zero: int) -> str:
        """A value of which a code is made: the digits of a quotient matter only where they decide which."""
        named, x = x, self._value(x)
        if not isinstance(x, Op) or x.dtype is not F32 or not (x.fn == "exact_div" or (x.fn == "/" and self.kernel.exact)):
            return self.text(named)
        dividend, divisor = x.args
        if isinstance(divisor, Const) and divisor.value > 0:
            dividend = self._unbounded(dividend, float(divisor.value), to, zero)
        most = (1 << to.bits) + abs(zero)
        if isinstance(divisor, Const) and self._is_half(dividend) and (inverse := _code_inverse(float(divisor.value), most)) is not None:
            factor, rest = (Const(f, F32) for f in inverse)
            if rest.value == 0:
                return self._infix(Op("*", (dividend, factor), F32))[0]
            return self._call("pl::times", (dividend, factor, rest))[0]
        return self._call("pl::div_for_code", (dividend, divisor))[0]

    def _unbounded(self, x: Expr, divisor: float, to: DType, zero: int) -> Expr:
        """A number that is divided and made a code of, without bounds from which on it is the last code anyway."""
        while isinstance(x, Op) and x.fn in ("min", "max") and isinstance(x.args[1], Const):
            with np.errstate(over="ignore"):
                code = np.rint(np.float32(x.args[1].value) / np.float32(divisor)) + zero
            if not (code >= to.highest if x.fn == "min" else code <= to.lowest):
                break
            x = x.args[0]
        return x

    def _is_half(self, x: Expr, depth: int = 6) -> bool:
        """Whether a float is a number of f16: one that was rounded to it, or the largest or least of such."""
        x = self._value(x)
        if isinstance(x, Const):
            return float(np.float16(x.value)) == x.value
        if isinstance(x, Op):
            return depth > 0 and x.fn in ("min", "max", "fmin", "fmax", "abs", "neg") and all(self._is_half(a, depth - 1) for a in x.args)
        return (isinstance(x, Convert) and x.to is F16) or (isinstance(x, Load) and F16 in (x.memory, self.bounds.memories.get(x.buffer)))

    def _value(self, x: Expr) -> Expr:
        """What a name stands for, if that never changes."""
        return self.kinds.lets.get(x.name, x) if isinstance(x, Ref) else x

    def stored(self, value: Expr, memory: DType) -> str:
        """A value as it is assigned to an element of `memory`."""
        if value.dtype is memory or (memory is BOOL and value.dtype is BOOL):
            return self.data(value)
        return f"{memory_type(memory)}({self.data(value)})"


def _small_power(x: Expr) -> bool:
    """A constant exponent for which there is a function. Multiples of an eighth are left to one whose exact results are exact: 81 ** 0.75 is 27."""
    return isinstance(x, Const) and x.dtype is F32 and 0 < abs(x.value) <= _SMALL_POWER and (x.value in (0.5, 0.25) or not float(8 * x.value).is_integer())


def _plain_divisor(x: Expr) -> bool:
    """A number by which f32 are divided as by its reciprocal; by a power of two compilers do so themselves."""
    return isinstance(x, Const) and x.dtype is F32 and 1 / _MODERATE < abs(x.value) < _MODERATE and abs(frexp(x.value)[0]) != 0.5


def _exact_inverse(x: Expr) -> Const | None:
    """The reciprocal of a divisor in f32, where it is so near that quotients which are numbers of f32 come out exactly, and others within a unit: 1/3 is, 1/7
    is not. Such a quotient k, below 2 ** 24 units, becomes k (1 + d) before it is rounded, which is less than half a unit away if |d| is at most 2 ** -25."""
    if not _plain_divisor(x) or not isinstance(x, Const):
        return None
    inverse = float(np.float32(1 / x.value))
    return Const(inverse, F32) if abs(Fraction(inverse) * Fraction(x.value) - 1) <= Fraction(1, 1 << 25) else None


@cache
def _code_inverse(divisor: float, most: int) -> tuple[float, float] | None:
    """A factor, and what it lacks, or 0, that make the same integers, if they are no larger than `most`, of all numbers of f16 as the division does, each
    rounded to f32 first: found out by trying."""
    if divisor == 0 or not np.isfinite(divisor):
        return None
    with np.errstate(all="ignore"):
        every = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
        want = np.clip(np.rint(every / np.float32(divisor)), -most, most)
        near, none = np.float32(1 / divisor), np.float32(0)
        below = near if abs(float(near) * divisor) <= 1 else np.nextafter(near, none)
        # A product with a neighbour of the reciprocal mostly does where one with that itself does not.
        beside = [near, *(np.float32(float(near) + k * float(np.spacing(near))) for k in (1, -1, 2, -2, 3, -3))]
        for factor, rest in (*((f, none) for f in beside), (below, np.float32(1 / divisor - float(below)))):
            # As a fused step rounds, once; products of f16 and f32 are numbers of f64.
            made = every * factor if rest == 0 else (every.astype(np.float64) * float(factor) + every * rest).astype(np.float32)
            if np.array_equal(np.clip(np.rint(made), -most, most), want, equal_nan=True):
                return float(factor), float(rest)
    return None


def _negated(x: Expr) -> Expr | None:
    """`y` where `x` is minus `y`."""
    if not isinstance(x, Op):
        return None
    if x.fn == "*" and isinstance(x.args[0], Const) and x.args[0].value == -1 and not isinstance(x.args[1], Const):
        return x.args[1]
    return x.args[0] if x.fn == "neg" else None
