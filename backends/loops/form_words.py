"""Bytes of the loop-level form, four at a time: how a thread takes them from memory, and sums of products of them."""
from __future__ import annotations

from dataclasses import dataclass

from pipelink_ir.backends.loops.form_expr import Expr


@dataclass(frozen=True, slots=True)
class TakeWords:
    """Takes `count` neighbouring bytes of a buffer of bytes, from element `index` on, by one access as a `Move` does, and puts them as they lie into the i32 of
    a thread's own scratch `to`, four to each, the first the lowest, from `at` on. Where `outside` holds nothing is read, and each of them is `other`."""

    to: str
    source: str
    index: Expr
    count: int
    outside: Expr | None = None
    other: int = 0
    at: Expr | None = None


FOUR = "four"
"""`four(a, b, c, d, places)` of i32: the i32 whose lowest byte is one of a, the next one of b, …: which, `places` says, a constant with four bits for each."""

DOTS = {(True, True): "dot_ss", (False, True): "dot_us", (True, False): "dot_su", (False, False): "dot_uu"}
"""`dot_ss(a, b, c)` of i32: c and the products of the four bytes of a and b, which have signs (`s`) or none (`u`)."""

BYTE = {True: "byte_s", False: "byte_u"}
"""`byte_s(a, place)` of i32: that byte of a, with a sign (`s`) or none (`u`); the place is a constant."""

DIGITS = "last_digits"
"""`last_digits(i)`: the f32 that is i - MAGIC, for an i32 that is less than 2 ** 22 away from that."""

MAGIC = 0x4b400000
"""The bits of 1.5 times 2 ** 23 as f32: what is added to them is added to the number."""

BYTES = frozenset((FOUR, DIGITS, *BYTE.values(), *DOTS.values()))
"""Functions of bytes, in kernels for a GPU alone."""
