"""Writing LLVM IR: values, the lines of one function, and a module that collects functions and declarations.

`Body` is a linear builder. Every value has an element type; with `lanes` above one the same calls write vectors, so that one description of a
function serves scalar and vector code.
"""
from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pipelink_ir.ir.diagnostics import internal_error

BITS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "half": 16, "float": 32, "double": 64}
_SUFFIX = {"float": "f32", "double": "f64", "half": "f16", "i1": "i1", "i8": "i8", "i16": "i16", "i32": "i32", "i64": "i64", "ptr": "p0"}
FLOATS = ("half", "float", "double")


@dataclass(frozen=True, slots=True)
class Value:
    """The text of an operand and its element type."""

    text: str
    type: str


@dataclass(frozen=True, slots=True)
class Features:
    """What the emitter asks of the processor. Without a feature it writes code that needs no symbol a plain machine lacks."""

    f16c: bool = True
    """Conversions between half and float in hardware."""
    fma: bool = True
    """A fused multiply-add is one instruction; else polynomials multiply and add."""
    round: bool = True
    """floor, ceil and round are instructions (SSE 4.1)."""


def float_text(value: float, kind: str) -> str:
    """A float constant in LLVM's form, which reads back to the same bits: the pattern of the double that equals it."""
    if kind == "float":
        if value != value:
            return "0x7FF8000000000000"
        try:
            value = float(struct.unpack("<f", struct.pack("<f", value))[0])
        except OverflowError:
            value = float("inf") if value > 0 else float("-inf")
    elif value != value:
        return "0x7FF8000000000000"
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


@dataclass(slots=True)
class IRModule:
    """Functions and declarations by name, in the order in which they were first needed."""

    features: Features = Features()
    declarations: dict[str, str] = field(default_factory=dict)
    functions: dict[str, str] = field(default_factory=dict)
    externals: set[str] = field(default_factory=set)
    """Symbols of the C library that the code calls."""
    metadata: list[str] = field(default_factory=list)

    def text(self, triple: str, layout: str) -> str:
        """The whole module."""
        head = [f'target datalayout = "{layout}"', f'target triple = "{triple}"', ""]
        tail = [f"!{n} = {text}" for n, text in enumerate(self.metadata)]
        return "\n".join([*head, *self.functions.values(), *self.declarations.values(), "", *tail, ""])

    def node(self, text: str) -> str:
        """A metadata node, `!7`."""
        self.metadata.append(text)
        return f"!{len(self.metadata) - 1}"

    def unique(self, *operands: str) -> str:
        """A distinct node that holds itself and `operands`: an alias scope, a loop."""
        own = f"!{len(self.metadata)}"
        return self.node(f"distinct !{{{', '.join((own, *operands))}}}")


@dataclass(slots=True)
class Body:
    """The lines of a function that is being written."""

    module: IRModule
    lanes: int = 1
    lines: list[str] = field(default_factory=list)
    prefix: str = "v"
    count: int = 0
    flags: str = ""
    """Fast-math flags of float arithmetic, with a blank after them."""

    # ------------------------------------------------------------------------------------------------------------ text and types

    def type(self, kind: str) -> str:
        return kind if self.lanes == 1 else f"<{self.lanes} x {kind}>"

    def suffix(self, kind: str) -> str:
        return _SUFFIX[kind] if self.lanes == 1 else f"v{self.lanes}{_SUFFIX[kind]}"

    def fresh(self) -> str:
        self.count += 1
        return f"%{self.prefix}{self.count}"

    def define(self, kind: str, text: str) -> Value:
        """A new register of element type `kind`."""
        name = self.fresh()
        self.lines.append(f"  {name} = {text}")
        return Value(name, kind)

    def line(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")

    # ----------------------------------------------------------------------------------------------------------------- constants

    def const(self, kind: str, value: float | int | bool) -> Value:
        if kind in FLOATS:
            text = float_text(float(value), kind)
        elif kind == "i1":
            text = "true" if value else "false"
        else:
            text = str(int(value))
        return Value(text if self.lanes == 1 else f"splat ({kind} {text})", kind)

    def like(self, other: Value, value: float | int) -> Value:
        return self.const(other.type, value)

    # ---------------------------------------------------------------------------------------------------------------- arithmetic

    def binary(self, op: str, a: Value, b: Value) -> Value:
        if a.type != b.type:
            internal_error(f"{op} of {a.type} and {b.type}")
        flags = self.flags if op[0] == "f" else ""
        return self.define(a.type, f"{op} {flags}{self.type(a.type)} {a.text}, {b.text}")

    def add(self, a: Value, b: Value) -> Value:
        return self.binary("fadd" if a.type in FLOATS else "add", a, b)

    def sub(self, a: Value, b: Value) -> Value:
        return self.binary("fsub" if a.type in FLOATS else "sub", a, b)

    def mul(self, a: Value, b: Value) -> Value:
        return self.binary("fmul" if a.type in FLOATS else "mul", a, b)

    def div(self, a: Value, b: Value) -> Value:
        return self.binary("fdiv", a, b)

    def neg(self, a: Value) -> Value:
        if a.type in FLOATS:
            return self.define(a.type, f"fneg {self.flags}{self.type(a.type)} {a.text}")
        return self.sub(self.like(a, 0), a)

    def band(self, a: Value, b: Value) -> Value:
        return self.binary("and", a, b)

    def bor(self, a: Value, b: Value) -> Value:
        return self.binary("or", a, b)

    def bxor(self, a: Value, b: Value) -> Value:
        return self.binary("xor", a, b)

    def bnot(self, a: Value) -> Value:
        return self.bxor(a, self.like(a, 1 if a.type == "i1" else -1))

    def shl(self, a: Value, n: int) -> Value:
        return self.binary("shl", a, self.like(a, n))

    def lshr(self, a: Value, n: int) -> Value:
        return self.binary("lshr", a, self.like(a, n))

    def ashr(self, a: Value, n: int) -> Value:
        return self.binary("ashr", a, self.like(a, n))

    def compare(self, how: str, a: Value, b: Value) -> Value:
        """`how` is LLVM's predicate: `olt`, `une`, … for floats, `slt`, `eq`, … for integers."""
        op = "fcmp" if a.type in FLOATS else "icmp"
        return self.define("i1", f"{op} {how} {self.type(a.type)} {a.text}, {b.text}")

    def select(self, c: Value, a: Value, b: Value) -> Value:
        return self.define(a.type, f"select {self.type('i1')} {c.text}, {self.type(a.type)} {a.text}, {self.type(b.type)} {b.text}")

    def convert(self, op: str, a: Value, kind: str) -> Value:
        """`sext`, `zext`, `trunc`, `fpext`, `fptrunc`, `sitofp`, `uitofp`, `fptosi`, `bitcast`; nothing if the type is the same."""
        if a.type == kind:
            return a
        return self.define(kind, f"{op} {self.type(a.type)} {a.text} to {self.type(kind)}")

    def bits(self, a: Value) -> Value:
        return self.convert("bitcast", a, f"i{BITS[a.type]}")

    # --------------------------------------------------------------------------------------------------------------------- calls

    def intrinsic(self, name: str, *args: Value, kind: str | None = None, immediate: str | None = None) -> Value:
        """`llvm.NAME` overloaded on the type of its first argument."""
        result = kind or args[0].type
        full = f"llvm.{name}.{self.suffix(args[0].type)}"
        types = [self.type(a.type) for a in args] + ([immediate.split()[0]] if immediate else [])
        self.module.declarations.setdefault(full, f"declare {self.type(result)} @{full}({', '.join(types)})")
        given = [f"{self.type(a.type)} {a.text}" for a in args] + ([immediate] if immediate else [])
        flags = self.flags if result in FLOATS else ""
        return self.define(result, f"call {flags}{self.type(result)} @{full}({', '.join(given)})")

    def libm(self, name: str, *args: Value) -> Value:
        """A function of the C library, one call a lane. It reads no memory, so that calls may be merged and dropped."""
        kind = args[0].type
        self.module.externals.add(name)
        self.module.declarations.setdefault(name, f"declare {kind} @{name}({', '.join(a.type for a in args)}) memory(none) nounwind willreturn")
        return self.per_lane(kind, args, lambda lane: f"call {kind} @{name}({', '.join(f'{a.type} {a.text}' for a in lane)})")

    def per_lane(self, kind: str, args: Sequence[Value], text: Callable[[list[Value]], str]) -> Value:
        """A scalar instruction for each lane, put together again."""
        if self.lanes == 1:
            return self.define(kind, text(list(args)))
        whole = Value("poison", kind)
        for n in range(self.lanes):
            lane = [self.define(a.type, f"extractelement {self.type(a.type)} {a.text}, i32 {n}") for a in args]
            one = self.define(kind, text(lane))
            whole = self.define(kind, f"insertelement {self.type(kind)} {whole.text}, {kind} {one.text}, i32 {n}")
        return whole

    def call(self, name: str, *args: Value) -> Value:
        """A function of `mathlib` or `convert`, written into the module when it is first called."""
        routine = ROUTINES[name]
        full = f"pl.{name}" if self.lanes == 1 else f"pl.{name}.x{self.lanes}"
        if full not in self.module.functions:
            _write(self.module, full, routine, self.lanes)
        given = ", ".join(f"{self.type(a.type)} {a.text}" for a in args)
        return self.define(routine.result, f"call {self.type(routine.result)} @{full}({given})")

    # --------------------------------------------------------------------------------------------------------------- conveniences

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """a * b + c for polynomials, rounded once where the processor can; the language's `fma` is `intrinsic("fma", …)`."""
        if self.module.features.fma:
            return self.intrinsic("fma", a, b, c)
        return self.add(self.mul(a, b), c)

    def poly(self, x: Value, coefficients: Sequence[float]) -> Value:
        """Horner's rule, the highest coefficient first."""
        out = self.like(x, coefficients[0])
        for c in coefficients[1:]:
            out = self.fma(out, x, self.like(x, c))
        return out

    def fabs(self, x: Value) -> Value:
        return self.intrinsic("fabs", x)

    def isnan(self, x: Value) -> Value:
        return self.compare("uno", x, x)

    def rint(self, x: Value) -> Value:
        """To the nearest integer, half to even."""
        return self.intrinsic("roundeven", x) if self.module.features.round else self.call(f"roundeven.{_SUFFIX[x.type]}", x)


@dataclass(frozen=True, slots=True)
class Routine:
    """A function of our own: element types of the result and the parameters, and what writes its body."""

    result: str
    params: tuple[str, ...]
    write: Callable[..., Value]
    loops: bool = False
    """It has branches: vectors call the scalar function for each lane."""


ROUTINES: dict[str, Routine] = {}
"""Every routine by name, `exp.f32`."""


def routine(name: str, result: str, *params: str, loops: bool = False) -> Callable[[Callable[..., Value]], Callable[..., Value]]:
    """Enter a function `(body, *arguments) -> value` into the table."""
    def enter(write: Callable[..., Value]) -> Callable[..., Value]:
        ROUTINES[name] = Routine(result, params, write, loops)
        return write
    return enter


def _write(module: IRModule, full: str, routine: Routine, lanes: int) -> None:
    module.functions[full] = ""
    body = Body(module, lanes)
    args = [Value(f"%a{n}", kind) for n, kind in enumerate(routine.params)]
    if routine.loops and lanes > 1:
        scalar = full.rsplit(".x", 1)[0]
        if scalar not in module.functions:
            _write(module, scalar, routine, 1)
        value = body.per_lane(routine.result, args, lambda lane: f"call {routine.result} @{scalar}({', '.join(f'{a.type} {a.text}' for a in lane)})")
    else:
        value = routine.write(body, *args)
    params = ", ".join(f"{body.type(a.type)} {a.text}" for a in args)
    inline = "noinline" if routine.loops and lanes == 1 else "alwaysinline"
    head = f"define internal {body.type(routine.result)} @{full}({params}) {inline} nounwind willreturn memory(none) {{"
    module.functions[full] = "\n".join([head, *body.lines, f"  ret {body.type(routine.result)} {value.text}", "}", ""])
