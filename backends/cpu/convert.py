"""Conversions between dtypes as LLVM IR: between memory and compute types, and the casts of the language.

Values are computed as bool (`i1`), i32, i64, f32 or f64; memory also holds u8 i8 u16 i16 f16 bf16 f8e4m3 f8e5m2. Narrow floats are rounded and
widened in integer arithmetic, which needs no library symbol and vectorises; f16 uses the processor where it can.
"""
from __future__ import annotations

from dataclasses import dataclass

from pipelink_ir.backends.cpu.irtext import BITS, Body, IRModule, Value, routine
from pipelink_ir.ir.diagnostics import internal_error
from pipelink_ir.ir.dtypes import BF16, BOOL, DTYPES, F8E4M3, F8E5M2, F16, F32, F64, DType

COMPUTE = {"bool": "i1", "i32": "i32", "i64": "i64", "f32": "float", "f64": "double"}
"""The LLVM type of a value by the name of its dtype."""


def compute_type(dtype: DType) -> str:
    """The LLVM type in which a value of `dtype` is computed."""
    return COMPUTE[dtype.compute.name]


def memory_type(dtype: DType, f16c: bool = True) -> str:
    """The LLVM type of `dtype` in memory."""
    if dtype.bits >= 32:
        return COMPUTE[dtype.name]
    if dtype is F16 and f16c:
        return "half"
    return f"i{dtype.bits}"


# ------------------------------------------------------------------------------------------------------------------ narrow floats


@dataclass(frozen=True, slots=True)
class Format:
    """A narrow float: bits of the fraction, exponent bias, and the patterns of its largest finite number, of infinity (or what stands for overflow) and
    of NaN, without the sign."""

    bits: int
    fraction: int
    bias: int
    highest: int
    overflow: int
    nan: int


FORMATS = {
    F16: Format(16, 10, 15, 0x7BFF, 0x7C00, 0x7E00),
    BF16: Format(16, 7, 127, 0x7F7F, 0x7F80, 0x7FC0),
    F8E4M3: Format(8, 3, 7, 0x7E, 0x7F, 0x7F),
    F8E5M2: Format(8, 2, 15, 0x7B, 0x7C, 0x7E),
}
_WIDE = {"float": (32, 23, 127), "double": (64, 52, 1023)}


def _narrow(b: Body, x: Value, form: Format) -> Value:
    """The pattern of `x` rounded once to `form`, half to even, in the low bits of an integer as wide as `x`."""
    width, fraction, bias = _WIDE[x.type]
    kind = f"i{width}"
    u = b.bits(x)
    magnitude = b.band(u, b.const(kind, (1 << (width - 1)) - 1))
    sign = b.lshr(b.band(u, b.const(kind, -1 << (width - 1))), width - form.bits)
    # Normal results: add just under half of the last kept bit, plus that bit, and cut; then shift the exponent to the other bias.
    drop = fraction - form.fraction
    odd = b.band(b.lshr(magnitude, drop), b.const(kind, 1))
    rounded = b.lshr(b.add(b.add(magnitude, b.const(kind, (1 << (drop - 1)) - 1)), odd), drop)
    normal = b.sub(rounded, b.const(kind, (bias - form.bias) << form.fraction))
    if form.bias == bias:
        pattern = normal
    else:
        # Results below the smallest normal number: adding a power of two whose last bit is the smallest step lets the adder round.
        step = 1 - form.bias - form.fraction
        magic = b.like(x, 2.0 ** (step + fraction))
        absolute = b.convert("bitcast", magnitude, x.type)
        small = b.sub(b.bits(b.define(x.type, f"fadd {b.type(x.type)} {absolute.text}, {magic.text}")), b.bits(magic))
        is_small = b.compare("ult", magnitude, b.const(kind, (1 - form.bias + bias) << fraction))
        pattern = b.select(is_small, small, normal)
    infinity = ((1 << (width - 1 - fraction)) - 1) << fraction
    too_big = b.bor(b.compare("ugt", rounded, b.const(kind, form.highest + ((bias - form.bias) << form.fraction))),
                    b.compare("uge", magnitude, b.const(kind, infinity)))
    pattern = b.select(too_big, b.const(kind, form.overflow), pattern)
    pattern = b.select(b.compare("ugt", magnitude, b.const(kind, infinity)), b.const(kind, form.nan), pattern)
    return b.bor(pattern, sign)


def _widen(b: Body, raw: Value, form: Format) -> Value:
    """The f32 that equals the pattern `raw`."""
    u = b.convert("zext", raw, "i32")
    top = 32 - form.bits
    if form.bias == 127:
        return b.convert("bitcast", b.shl(u, top), "float")
    magnitude = b.band(u, b.const("i32", (1 << (form.bits - 1)) - 1))
    sign = b.shl(b.band(u, b.const("i32", 1 << (form.bits - 1))), top)
    # Read with the wrong bias it is too small by a power of two, subnormal numbers included.
    placed = b.convert("bitcast", b.shl(magnitude, 23 - form.fraction), "float")
    value = b.bits(b.define("float", f"fmul {b.type('float')} {placed.text}, {b.const('float', 2.0 ** (127 - form.bias)).text}"))
    special = b.bor(b.shl(magnitude, 23 - form.fraction), b.const("i32", 0x7F800000))
    value = b.select(b.compare("ugt", magnitude, b.const("i32", form.highest)), special, value)
    return b.convert("bitcast", b.bor(value, sign), "float")


def _enter_formats() -> None:
    for dtype, form in FORMATS.items():
        memory = f"i{dtype.bits}"

        def narrow(b: Body, x: Value, form: Format = form, memory: str = memory) -> Value:
            return b.convert("trunc", _narrow(b, x, form), memory)

        def widen(b: Body, raw: Value, form: Format = form) -> Value:
            return _widen(b, raw, form)

        routine(f"narrow.{dtype.name}.f32", memory, "float")(narrow)
        routine(f"narrow.{dtype.name}.f64", memory, "double")(narrow)
        routine(f"widen.{dtype.name}", "float", memory)(widen)


_enter_formats()


def narrow_float(b: Body, v: Value, to: DType) -> Value:
    """`v` (float or double) as the memory type of the narrow float dtype `to`."""
    if to is F16 and b.module.features.f16c:
        if v.type == "float":
            return b.convert("fptrunc", v, "half")
        return b.convert("bitcast", b.call("narrow.f16.f64", v), "half")
    return b.call(f"narrow.{to.name}.{'f32' if v.type == 'float' else 'f64'}", v)


LIBCALL = "__truncdfhf2"
"""What LLVM calls to turn an f64 into an f16, on a processor that has f16. We do not ask for it, but LLVM takes the sign of an f16 from the f64 that it comes
from where it can, and libraries of compilers, where this lives, are not at hand in every process."""


def libcall_text(triple: str, layout: str) -> str:
    """A module that defines `LIBCALL`."""
    module = IRModule()
    body = Body(module)
    pattern = body.call("narrow.f16.f64", Value("%x", "double"))
    half = body.convert("bitcast", pattern, "half")
    module.functions[LIBCALL] = "\n".join([f"define half @{LIBCALL}(double %x) nounwind {{", *body.lines, f"  ret half {half.text}", "}", ""])
    return module.text(triple, layout)


def widen_float(b: Body, raw: Value, dtype: DType) -> Value:
    """The float that a narrow float in memory stands for."""
    if raw.type == "half":
        return b.convert("fpext", raw, "float")
    return b.call(f"widen.{dtype.name}", raw)


# ----------------------------------------------------------------------------------------------------------------- floats to integers


def _saturate(b: Body, x: Value, to: DType) -> Value:
    """`x` without its fraction, kept within the range of `to`; NaN is 0. The value has the compute type of `to`."""
    kind = compute_type(to)
    x = b.select(b.compare("ord", x, x), x, b.like(x, 0.0))
    low, high = float(to.lowest), float(to.highest)
    x = b.select(b.compare("olt", x, b.like(x, low)), b.like(x, low), x)
    digits = 24 if x.type == "float" else 53
    if to.highest.bit_length() <= digits:
        x = b.select(b.compare("ogt", x, b.like(x, high)), b.like(x, high), x)
        return b.convert("fptosi", x, kind)
    # The largest integer is no float: what reaches the power of two above it is replaced afterwards.
    over = b.compare("oge", x, b.like(x, high))
    whole = b.convert("fptosi", b.select(over, b.like(x, 0.0), x), kind)
    return b.select(over, b.const(kind, to.highest), whole)


def _odd(b: Body, x: Value) -> Value:
    """An i64 to a double so that a second rounding to fewer digits is as one: bits that do not fit leave a mark in the last one that does."""
    low = b.band(x, b.like(x, 0x7FF))
    marked = b.bor(b.band(x, b.like(x, -0x800)), b.select(b.compare("ne", low, b.like(x, 0)), b.like(x, 0x800), b.like(x, 0)))
    big = b.compare("ugt", b.add(x, b.like(x, 1 << 53)), b.like(x, 1 << 54))
    return b.convert("sitofp", b.select(big, marked, x), "double")


def _enter_integers() -> None:
    for dtype in DTYPES.values():
        if not dtype.is_int:
            continue

        def saturate(b: Body, x: Value, dtype: DType = dtype) -> Value:
            return _saturate(b, x, dtype)

        routine(f"{dtype.name}.f32", compute_type(dtype), "float")(saturate)
        routine(f"{dtype.name}.f64", compute_type(dtype), "double")(saturate)
    routine("odd.f64.i64", "double", "i64")(_odd)


_enter_integers()


# -------------------------------------------------------------------------------------------------------------------------- the casts


def cast(b: Body, v: Value, to: DType, saturate: bool = False) -> Value:
    """The cast of the language: `v` (i1, i32, i64, float, double) in the values of `to`, in the compute type of `to`."""
    if to is BOOL:
        return _to_bool(b, v)
    if to.is_int:
        return _to_int(b, v, to, saturate)
    if to is F32 or to is F64:
        return _to_float(b, v, COMPUTE[to.name])
    return widen_float(b, _to_narrow(b, v, to), to)


def _to_bool(b: Body, v: Value) -> Value:
    if v.type == "i1":
        return v
    return b.compare("une" if v.type in ("float", "double") else "ne", v, b.like(v, 0))


def _to_int(b: Body, v: Value, to: DType, saturate: bool) -> Value:
    kind = compute_type(to)
    if v.type == "i1":
        return b.convert("zext", v, kind)
    if v.type in ("float", "double"):
        return b.call(f"{to.name}.{'f32' if v.type == 'float' else 'f64'}", v)
    if saturate and (to.bits < BITS[v.type] or (to.bits == BITS[v.type] and not to.signed)):
        v = b.intrinsic("smin", b.intrinsic("smax", v, b.like(v, to.lowest)), b.like(v, to.highest))
        return _resize(b, v, kind)
    if to.bits >= 32:
        return _resize(b, v, kind)
    return b.convert("sext" if to.signed else "zext", b.convert("trunc", v, f"i{to.bits}"), kind)


def _resize(b: Body, v: Value, kind: str) -> Value:
    return b.convert("sext" if BITS[kind] > BITS[v.type] else "trunc", v, kind)


def _to_float(b: Body, v: Value, kind: str) -> Value:
    if v.type == "i1":
        return b.convert("uitofp", v, kind)
    if v.type in ("i32", "i64"):
        return b.convert("sitofp", v, kind)
    return b.convert("fpext" if kind == "double" else "fptrunc", v, kind)


def _to_narrow(b: Body, v: Value, to: DType) -> Value:
    """In the memory type of the narrow float `to`, rounded once."""
    if v.type in ("float", "double"):
        return narrow_float(b, v, to)
    if v.type == "i1":
        return narrow_float(b, _to_float(b, v, "float"), to)
    if v.type == "i32" and to is not BF16:
        # What f32 cannot hold exactly is beyond the range of these types.
        return narrow_float(b, _to_float(b, v, "float"), to)
    if v.type == "i32":
        return narrow_float(b, _to_float(b, v, "double"), to)
    return narrow_float(b, b.call("odd.f64.i64", v), to)


def from_memory(b: Body, raw: Value, dtype: DType) -> Value:
    """A loaded value in its compute type."""
    if dtype is BOOL:
        return b.compare("ne", raw, b.like(raw, 0))
    if dtype.is_int:
        return b.convert("sext" if dtype.signed else "zext", raw, compute_type(dtype))
    if dtype.bits >= 32:
        return raw
    return widen_float(b, raw, dtype)


def to_memory(b: Body, v: Value, dtype: DType) -> Value:
    """A value of the compute type as it is stored: floats rounded once, integers (which fit) cut."""
    if dtype is BOOL:
        return b.convert("zext", v, "i8")
    if dtype.is_int:
        if v.type not in ("i32", "i64"):
            internal_error(f"a {v.type} stored as {dtype}")
        return b.convert("trunc", v, f"i{dtype.bits}")
    if dtype.bits >= 32:
        return _to_float(b, v, COMPUTE[dtype.name])
    return narrow_float(b, v, dtype)
