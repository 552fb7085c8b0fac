"""Codes: how real values are kept as small integers or 8-bit floats, and the operators that make codes of values and values of codes.

A real value r has the code q of `q = round(r / scale) + zero`, clamped to the range of the dtype, and a code stands for `r = scale * (q - zero)` (the affine
scheme of B. Jacob et al., arXiv:1712.05877, equation 1; with zero 0 the symmetric one). The rules are those of `@std.quantize` (language.md, C10): a true
division, ties to even, the zero point added after rounding, the full range of the dtype (i8 reaches -128), infinities saturate, a NaN gets the code 0 whatever
the zero point is. f8 has a NaN of its own and keeps it; what is out of its range saturates instead of becoming one.

A scale belongs to the whole tensor, to each place of one axis (a channel), or to each block of `size` neighbours along one axis and each place of all others
(the blocks of T. Dettmers et al., arXiv:2110.02861, section 2). It is the largest finite magnitude over the highest code, 1 where that is 0, so that a dead
channel has codes 0 and comes back as exact zeros.

i4 codes run from -7 to 7 and lie two to a byte along one axis, the first in the low four bits, as two's complement; an odd extent is filled up with a code 0.
"""
from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite, isnan
from typing import TypeVar

from pipelink_ir.grammar.parser import parse
from pipelink_ir.grammar.printer import print_expr, print_type
from pipelink_ir.ir.dtypes import DTYPES, F32, DType
from pipelink_ir.ir.nodes import Apply, Const, Expr, FloatLit, IntLit, Name, Operator, TensorType

T = TypeVar("T")
I4 = DType("i4", "int", 4)
"""Not a dtype of programs: two of them are one u8."""


@dataclass(frozen=True, slots=True)
class Codes:
    """How one tensor is coded. `dtype` is `i8`, `u8`, `i16`, `u16`, `i4`, `f8e4m3` or `f8e5m2`."""

    dtype: str
    scale: float | str
    """A number; or `tensor`, `channel`, `block`: an operand `%x.scale` of f32, with one for all, one for each place of `axis`, one for each block."""
    zero: int | str = 0
    """The code of 0.0; or `tensor`: an operand `%x.zero` of i32."""
    axis: int | None = None
    """The channel; or the axis that is divided in blocks."""
    size: int | None = None
    """Places of a block along `axis`."""
    packed: int | None = None
    """i4: the axis along which two codes share a byte; where it is not said, the axis of the blocks, or else the last."""
    order: tuple[int, ...] = ()
    """The axes in the order in which the codes lie in memory, outermost first; () leaves them as they are."""
    param: bool = False
    """Whether the tensor depends on parameters alone, so that sums of its codes may be an operand `%x.sum`, computed once."""

    @property
    def meaning(self) -> tuple[object, ...]:
        """What says which value a code stands for, wherever it lies."""
        return self.dtype, self.scale, self.zero

    @property
    def info(self) -> DType:
        return I4 if self.dtype == "i4" else DTYPES[self.dtype]

    @property
    def stored(self) -> str:
        """The dtype in memory."""
        return "u8" if self.dtype == "i4" else self.dtype

    @property
    def is_int(self) -> bool:
        return not self.info.is_float

    @property
    def magnitude(self) -> int:
        """The largest magnitude of an integer code."""
        return max(-self.info.lowest, self.info.highest)

    @property
    def span(self) -> int:
        """The largest magnitude of a code less the zero point."""
        if self.zero == "tensor":
            return self.info.highest - self.info.lowest
        assert isinstance(self.zero, int)
        return max(self.info.highest - self.zero, self.zero - self.info.lowest)

    @property
    def shifted(self) -> bool:
        """Whether 0.0 has another code than 0."""
        return self.zero != 0

    @property
    def pair(self) -> int | None:
        """The axis along which two codes share a byte."""
        if self.dtype != "i4":
            return None
        return self.packed if self.packed is not None else self.axis if self.scale == "block" and self.axis is not None else -1


def f32(value: float) -> float:
    """The f32 next to a number; beyond the range an infinity."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return inf if value > 0 else -inf


def literal(value: float) -> FloatLit:
    """A number of f32 as it is written shortest: the fewest digits that give the same f32."""
    exact = f32(value)
    for digits in range(1, 10):
        short = float(f"{exact:.{digits}g}")
        if f32(short) == exact:
            return FloatLit(short)
    return FloatLit(exact)


def code_of(value: float, codes: Codes) -> int | None:
    """The integer code of a number; None where the scale or the zero point is not known here, unless the number is 0.0 or an infinity."""
    low, high = codes.info.lowest, codes.info.highest
    if isnan(value):
        return 0
    if not isfinite(value):
        return high if value > 0 else low
    if isinstance(codes.zero, str):
        return None
    if value == 0:
        return codes.zero
    if isinstance(codes.scale, str):
        return None
    quotient = f32(f32(value) / f32(codes.scale))
    if not isfinite(quotient):
        return high if quotient > 0 else low
    return max(low, min(high, round(quotient) + codes.zero))


def constant_of(value: float, codes: Codes) -> Expr | None:
    """A number as it stands for itself among codes; None where that is not known here."""
    if codes.is_int:
        code = code_of(value, codes)
        return None if code is None else IntLit(code)
    if value == 0:
        return FloatLit(value)
    if isnan(value):
        return Const("nan")
    top = codes.info.largest
    if not isfinite(value):
        return FloatLit(top if value > 0 else -top)
    return None if isinstance(codes.scale, str) else FloatLit(max(-top, min(top, f32(f32(value) / f32(codes.scale)))))


# -------------------------------------------------------------------------------------------------------------------------- types


def over(dim: Expr, size: int, up: bool = True) -> Expr:
    """An extent in blocks of `size`."""
    if isinstance(dim, IntLit):
        return IntLit(-(-dim.value // size) if up else dim.value // size)
    return Apply("ceildiv", (dim, IntLit(size)))


def halves(dim: Expr) -> Expr:
    """The bytes of so many i4."""
    if isinstance(dim, IntLit):
        return IntLit((dim.value + 1) // 2)
    return Apply("floordiv", (Apply("+", (dim, IntLit(1))), IntLit(2)))


def ordered(items: Sequence[T], codes: Codes) -> tuple[T, ...]:
    """Things that there is one of for each axis, in the order of the memory of the codes."""
    return tuple(items[k] for k in codes.order) if codes.order else tuple(items)


def code_type(t: TensorType, codes: Codes) -> TensorType:
    """The type of the codes of a tensor."""
    dims = list(t.dims)
    if codes.pair is not None and dims:
        dims[codes.pair] = halves(dims[codes.pair])
    moved = codes.order not in ((), tuple(range(len(dims))))
    return replace(t, dims=ordered(dims, codes), dtype=codes.stored, layout=None if moved else t.layout)


def scale_type(t: TensorType, codes: Codes) -> TensorType | None:
    """The type of the operand `%x.scale`; None where the scale is a number."""
    if not isinstance(codes.scale, str):
        return None
    if codes.scale == "tensor":
        return TensorType((), "f32")
    assert codes.axis is not None
    if codes.scale == "channel":
        return TensorType((t.dims[codes.axis],), "f32")
    assert codes.size is not None
    return TensorType((*t.dims[:codes.axis], over(t.dims[codes.axis], codes.size), *t.dims[codes.axis + 1:]), "f32")


def zero_type(codes: Codes) -> TensorType | None:
    """The type of the operand `%x.zero`; None where the zero point is a number."""
    return TensorType((), "i32") if isinstance(codes.zero, str) else None


def scale_index(indices: Sequence[Expr], codes: Codes) -> tuple[Expr, ...]:
    """Where the scale of a place is."""
    if codes.scale == "tensor":
        return ()
    assert codes.axis is not None
    if codes.scale == "channel":
        return (indices[codes.axis],)
    assert codes.size is not None
    block = Apply("floordiv", (indices[codes.axis], IntLit(codes.size)))
    return (*indices[:codes.axis], block, *indices[codes.axis + 1:])


# ---------------------------------------------------------------------------------------------------------------------- operators


def built(text: str) -> Operator:
    """The operator that a text says."""
    return parse(text, "<generated>").operators[0]


def own_symbols(t: TensorType) -> TensorType:
    """A type in symbols that an operator of its own can bind."""
    return replace(t, dims=tuple(d if isinstance(d, IntLit) else Name(f"D{k}") for k, d in enumerate(t.dims)))


def _indices(t: TensorType) -> list[Expr]:
    return [Name(f"d{k}") for k in range(len(t.dims))]


def read(name: str, indices: Sequence[Expr] | Sequence[str]) -> str:
    """The text of a read, or of the left side of a definition."""
    inside = ", ".join(i if isinstance(i, str) else print_expr(i) for i in indices)
    return f"%{name}[{inside}]" if inside else f"%{name}"


def _scale(t: TensorType, codes: Codes) -> str:
    if isinstance(codes.scale, str):
        return read("scale", scale_index(_indices(t), codes))
    number = print_expr(literal(codes.scale))
    return f"f32({number})" if t.dtype == "f64" else number


def _operands(first: str, t: TensorType, codes: Codes) -> str:
    asked = {"scale": scale_type(t, codes), "zero": zero_type(codes)}
    return ", ".join([first, *(f"%{n}: {print_type(u)}" for n, u in asked.items() if u is not None)])


def _zero(codes: Codes) -> str:
    return "%zero" if isinstance(codes.zero, str) else str(codes.zero)


def quantiser(type: TensorType, codes: Codes, name: str) -> Operator:
    """`%x` of a type, `%scale` and `%zero` where they are no numbers -> `%q`, its codes."""
    t = own_symbols(type)
    at = _indices(t)
    quotient = f"{read('x', at)} / {_scale(t, codes)}"
    left = read("q", ordered(at, codes))
    if codes.dtype == "i4":
        body = _packed_body(t, codes, quotient)
    elif codes.is_int:
        body = f"{left} = {codes.dtype}(round({quotient}){f' + {_zero(codes)}' if codes.shifted else ''})".replace("+ -", "- ")
    else:
        top = codes.info.largest
        body = f"{left} = {codes.dtype}(clamp({quotient}, {-top}, {top}))"
    return built(f"op @{name}({_operands(f'%x: {print_type(t)}', t, codes)}) -> (%q: {print_type(code_type(t, codes))}) {{\n"
                 f"  compile {{ accuracy = exact }}\n  compute {{\n    {body}\n  }}\n}}\n")


def _packed_body(t: TensorType, codes: Codes, quotient: str) -> str:
    """Two codes to a byte, the first in the low four bits."""
    at, axis = _indices(t), (codes.pair or 0) % len(t.dims)
    size = print_expr(t.dims[axis])
    bounds = ", ".join(f"{print_expr(i)} < {print_expr(d)}" for i, d in zip(at, t.dims, strict=True))
    names = [print_expr(i) for i in at]
    first, second = ([*names[:axis], f"2 * {names[axis]}{more}", *names[axis + 1:]] for more in ("", " + 1"))
    return (f"%c[{bounds}] = i32(clamp(round({quotient}), -7, 7))\n"
            f"    {read('q', ordered(at, codes))} = u8({read('c', first)} mod 16 + 16 * (select({second[axis]} < {size}, {read('c', second)}, 0) mod 16))")


def size_asked(t: TensorType, codes: Codes) -> str:
    """The attribute for an extent that does not follow from its bytes, in the signature of what reads i4 alone: of a packed axis of unknown size."""
    axis = codes.pair
    if axis is None or not t.dims or isinstance(t.dims[axis], IntLit):
        return ""
    return f", {print_expr(t.dims[axis])}: dim"


def dequantiser(type: TensorType, codes: Codes, name: str) -> Operator:
    """`%q`, `%scale` and `%zero` where they are no numbers -> `%y` of a type. Of i4 with an axis of unknown size along which they are packed it has that
    size as an attribute `D0`, with the number of the axis."""
    t = own_symbols(type)
    at = _indices(t)
    code, more = read("q", ordered(at, codes)), ""
    if codes.dtype == "i4":
        code, more = read("c", at), f"{unpacked('q', 'c', t, codes)}\n    "
    if codes.is_int:
        code = f"f32({code} - {_zero(codes)})".replace("- -", "+ ") if codes.shifted else f"f32({code})"
    value = f"{code} * {_scale(t, codes)}"
    return built(f"op @{name}({_operands(f'%q: {print_type(code_type(t, codes))}', t, codes)}{size_asked(t, codes)}) -> (%y: {print_type(t)}) {{\n"
                 f"  compile {{ accuracy = exact }}\n  compute {{\n    {more}{read('y', at)} = {value}\n  }}\n}}\n")


def unpacked(source: str, name: str, t: TensorType, codes: Codes, indices: Sequence[str] = ()) -> str:
    """The definition of a local with one i4 a place. Bits are taken by `mod` and `floordiv`, which floor: (n + 8) mod 16 - 8 is the sign of four bits."""
    at: list[Expr] = [Name(i) for i in indices] if indices else _indices(t)
    axis = (codes.pair or 0) % len(t.dims)
    bounds = ", ".join(f"{print_expr(i)} < {print_expr(d)}" for i, d in zip(at, t.dims, strict=True))
    where = ordered([*at[:axis], Apply("floordiv", (at[axis], IntLit(2))), *at[axis + 1:]], codes)
    byte, k = read(source, where), print_expr(at[axis])
    return f"%{name}[{bounds}] = (select({k} mod 2 == 0, {byte}, {byte} floordiv 16) + 8) mod 16 - 8"


def scaler(type: TensorType, codes: Codes, name: str) -> Operator:
    """`%x` of a type -> `%scale`, and `%zero` where that is no number: of the finite values, so that one infinity does not flatten all others. Without any
    but zeros the scale is 1. An affine range takes in 0.0, which then has a code that stands for it exactly."""
    t = own_symbols(type)
    out = scale_type(t, codes)
    assert out is not None
    if isinstance(codes.zero, str):
        body = _affine_body(t, codes)
    else:
        value, top = _largest(codes)
        inner = value.format(read("x", _places(t, codes)))
        body = (f"{read('m', _own(t, codes))} = max[{_ranges(t, codes)} where abs({read('x', _places(t, codes))}) < inf]({inner})\n"
                f"    {read('scale', _own(t, codes))} = {_positive(read('m', _own(t, codes)), top, t)}")
        if not t.dims or not _ranges(t, codes):
            body = f"%scale = {_positive(f'select(abs(%x) < inf, {inner}, 0)', top, t)}"
    results = f"%scale: {print_type(out)}" + (", %zero: tensor<i32>" if isinstance(codes.zero, str) else "")
    return built(f"op @{name}(%x: {print_type(t)}) -> ({results}) {{\n  compile {{ accuracy = exact }}\n  compute {{\n    {body}\n  }}\n}}\n")


def _largest(codes: Codes) -> tuple[str, str]:
    """What is to be as large as the highest code may be, and that code."""
    if not codes.is_int:
        return "abs({})", f"{codes.info.largest}"
    high, low, zero = codes.info.highest, codes.info.lowest, codes.zero
    assert isinstance(zero, int)
    if zero - low <= 0:
        return "{}", str(high - zero)
    return "abs({})", str(min(high - zero, max(zero - low, 1)) if codes.dtype != "i4" else high)


def _positive(largest: str, top: str, t: TensorType) -> str:
    quotient = f"min({largest} / {top}, {F32.largest!r})" if t.dtype == "f64" else f"{largest} / {top}"
    narrow = f"f32({quotient})" if t.dtype == "f64" else quotient
    return f"select({narrow} > 0, {narrow}, 1.0)"


def _own(t: TensorType, codes: Codes) -> list[str]:
    """The indices of a scale."""
    if codes.scale == "tensor":
        return []
    if codes.scale == "channel":
        return [f"d{codes.axis}"]
    return [f"d{k}" for k in range(len(t.dims))]


def _ranges(t: TensorType, codes: Codes) -> str:
    """What a scale is taken over."""
    if codes.scale == "block":
        size = print_expr(t.dims[codes.axis or 0])
        end = f"d{codes.axis} * {codes.size} + {codes.size}"
        return f"t in d{codes.axis} * {codes.size}..min({end}, {size})"
    return ", ".join(f"d{k} < {print_expr(d)}" for k, d in enumerate(t.dims) if codes.scale != "channel" or k != codes.axis)


def _places(t: TensorType, codes: Codes) -> list[str]:
    return ["t" if codes.scale == "block" and k == codes.axis else f"d{k}" for k in range(len(t.dims))]


def _affine_body(t: TensorType, codes: Codes) -> str:
    """The range [lo, hi] around 0, divided in as many steps as there are codes (arXiv:1712.05877, section 3)."""
    low, high = codes.info.lowest, codes.info.highest
    x = read("x", _places(t, codes))
    ranges = _ranges(t, codes)

    def end(kind: str) -> str:
        of = f"{kind}[{ranges} where abs({x}) < inf]({x})" if ranges else f"select(abs({x}) < inf, {x}, 0)"
        clipped = f"clamp({of}, -{F32.largest!r}, {F32.largest!r})" if t.dtype == "f64" else of
        return f"{kind}({clipped}, 0)"
    return (f"%lo = {end('min')}\n    %hi = {end('max')}\n    %step = f32(%hi / {high - low} - %lo / {high - low})\n"
            f"    %unit = select(%step > 0, %step, 1.0)\n    %scale = %unit\n"
            f"    %zero = i32(clamp(round({low} - %lo / %unit), {low}, {high}))")

