"""Factors that are codes: bytes, or two integers of four bits in each, perhaps times a scale that many terms share.

A kernel that knows them makes numbers of them where it multiplies, by the bits of a float; any other arithmetic is computed as it is written.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pipelink_ir.ir.dtypes import F32, DType
from pipelink_ir.ir.nodes import Apply, Cast, Expr, IntLit, Name, Read
from pipelink_ir.ir.typed import TypedOperator
from pipelink_ir.ir.walk import children, names_in, substitute
from pipelink_ir.passes.scheduling.tensor_cores import BYTES, HALVES

EXACT = ("f16", "bf16", "f32")
"""Dtypes that have every number of eight bits."""


@dataclass(frozen=True, slots=True)
class Coded:
    """A factor made of the codes of a tensor. `nibbles`: there are two to a byte, the lower four bits first, with a sign each. `scale` is what they are
    multiplied by in f32, before they are rounded to the dtype of the factor; it is read with the indices of the sum."""

    nibbles: bool
    scale: Expr | None


def coded_of(op: TypedOperator, local: Callable[[str], bool], factor: Expr, right: DType, stream: str, term: str, terms: int) -> Coded | None:
    """The codes of `stream` that a factor, which is held as `right`, is made of; None if it is something else. `terms`: so many, from a multiple of their
    number on, must share a scale."""
    if op.tensors[stream].dtype.name not in BYTES or right.name not in HALVES:
        return None
    product, scale = _bare(_through(op, local, factor), ("f32", right.name)), None
    if isinstance(product, Apply) and product.fn == "*" and product.dtype is F32:
        sides = [_code(op, local, a, stream, term) for a in product.args]
        if (sides[0] is None) == (sides[1] is None):
            return None
        scale = product.args[0 if sides[0] is None else 1]
        code = sides[0] if sides[1] is None else sides[1]
        if scale.dtype is not F32 or not _shared(scale, stream, term, terms):
            return None
    else:
        code = _code(op, local, product, stream, term)
    return None if code is None else Coded(code == "nibbles", scale)


def _through(op: TypedOperator, local: Callable[[str], bool], x: Expr) -> Expr:
    """A local that is one expression as that."""
    while True:
        y = x
        while isinstance(y, Cast) and y.implicit:
            y = y.arg
        if not isinstance(y, Read) or not local(y.tensor):
            return x
        pieces = op.tensors[y.tensor].pieces
        if len(pieces) != 1 or pieces[0].holes:
            return x
        put: Mapping[str, Expr] = {a.index: i for a, i in zip(pieces[0].axes, y.indices, strict=True)}
        x = substitute(pieces[0].value, put)


def _bare(x: Expr, to: Sequence[str]) -> Expr:
    """An expression behind conversions to some dtypes."""
    while isinstance(x, Cast) and x.to in to:
        x = x.arg
    return x


def _code(op: TypedOperator, local: Callable[[str], bool], x: Expr, stream: str, term: str) -> str | None:
    """What kind of codes an expression is."""
    x = _through(op, local, _bare(_through(op, local, x), EXACT))
    while isinstance(x, Cast) and x.implicit:
        x = x.arg
    if isinstance(x, Read) and x.tensor == stream:
        return "bytes"
    signed = _args(x, "-", 8)
    wrapped = None if signed is None else _args(signed, "mod", 16)
    chosen = None if wrapped is None else _args(wrapped, "+", 8)
    if not isinstance(chosen, Apply) or chosen.fn != "select":
        return None
    which, low, high = chosen.args
    upper = _args(high, "floordiv", 16)
    odd = _args(which, "==", 0)
    place = None if odd is None else _args(odd, "mod", 2)
    reads = isinstance(_plain(low), Read) and upper is not None and _plain(low) == _plain(upper)
    first = _plain(low)
    if not reads or not isinstance(first, Read) or first.tensor != stream or place is None or _plain(place) != Name(term):
        return None
    return "nibbles" if op.tensors[stream].dtype.name == "u8" else None


def _plain(x: Expr) -> Expr:
    while isinstance(x, Cast) and x.implicit:
        x = x.arg
    return x


def _args(x: Expr, fn: str, number: int) -> Expr | None:
    """The other argument of a function of something and a number."""
    x = _plain(x)
    if not isinstance(x, Apply) or x.fn != fn or len(x.args) != 2:
        return None
    last = _plain(x.args[1])
    return x.args[0] if isinstance(last, IntLit) and last.value == number else None


def _shared(x: Expr, stream: str, term: str, terms: int) -> bool:
    """Whether an expression is the same for `terms` terms, of another tensor than the stream."""
    if isinstance(x, Read):
        return x.tensor != stream and all(term not in names_in(i) or _blocks(i, term) % terms == 0 for i in x.indices)
    return not isinstance(x, Name) and all(_shared(c, stream, term, terms) for c in children(x))


def _blocks(x: Expr, term: str) -> int:
    """How many terms an index is the same for: `k floordiv 32`; 1 where that is not known."""
    x = _plain(x)
    if isinstance(x, Apply) and x.fn == "floordiv" and isinstance(x.args[1], IntLit) and _plain(x.args[0]) == Name(term):
        return x.args[1].value
    return 1
