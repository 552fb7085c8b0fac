"""A plain interpreter of the loop-level form for tests: programs run on small NumPy arrays, statement by statement, every load and store checked."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from pipelink_ir.backends.loops import form
from pipelink_ir.ir.dtypes import BOOL, F32, F64, I32, DType
from pipelink_ir.ir.functions import FUNCTIONS

UNSET = object()
ALIGNED = True
"""Whether buffers begin at a good alignment; else one element behind it."""


class Failed(Exception):
    """A run-time check did not hold: the site's message with its values."""


def run(program: form.Program, arrays: dict[str, Any], symbols: dict[str, int] | None = None, scalars: dict[str, Any] | None = None) -> dict[str, Any]:
    """Results by name. Symbols are bound from the shapes of the operands where the shape is a bare symbol."""
    sizes = dict(symbols or {})
    for b in program.operands:
        for x, n in zip(b.shape, arrays[b.name].shape, strict=True):
            if isinstance(x, form.Ref):
                assert sizes.setdefault(x.name, n) == n
    memory: dict[str, Any] = {}
    for b in (*program.operands, *program.results, *program.temporaries):
        shape = tuple(form.evaluate(x, sizes) for x in b.shape)
        if b.kind == "operand":
            a = np.asarray(arrays[b.name])
            assert a.shape == shape, (b.name, a.shape, shape)
            assert a.dtype == b.memory.numpy(), (b.name, a.dtype)
            memory[b.name] = list(a.reshape(-1))
        else:
            memory[b.name] = [UNSET] * math.prod(shape)
    given = {n: value_of((scalars or {})[n], d) for n, d in program.scalars}
    with np.errstate(all="ignore"):
        for k in program.kernels:
            machine(program, k, memory).run({**sizes, **given})
    out = {}
    for b in program.results:
        shape = tuple(form.evaluate(x, sizes) for x in b.shape)
        assert not any(v is UNSET for v in memory[b.name]), f"%{b.name} is not written everywhere"
        out[b.name] = np.array(memory[b.name], dtype=b.memory.numpy()).reshape(shape)
    return out


def value_of(v: Any, d: DType) -> Any:
    """A value as this interpreter holds one of a compute type."""
    if d is BOOL:
        return bool(v)
    if d.is_int:
        return int(v)
    return (np.float32 if d is F32 else np.float64)(v)


def wrap(v: int, d: DType) -> int:
    half = 1 << (d.bits - 1)
    return (v + half) % (2 * half) - half


def machine(program: form.Program, kernel: form.Kernel, memory: dict[str, Any]) -> Machine:
    """What runs a kernel, by its device."""
    from tests.unit.loops.gpu_machine import GpuMachine
    return (GpuMachine if kernel.device == "gpu" else Machine)(program, kernel, memory)


class Machine:
    """Runs one kernel of a CPU."""

    def __init__(self, program: form.Program, kernel: form.Kernel, memory: dict[str, Any]) -> None:
        self.program, self.kernel = program, kernel
        self.memory = {b.name: memory[b.name] for b in kernel.buffers}
        self.readonly = {b.name for b in kernel.buffers if b.kind == "operand"}
        self.env: dict[str, Any] = {}
        self.thread = 0
        self.dtypes = {b.name: b.memory for b in kernel.buffers}
        self.wide = {b.name for b in kernel.buffers}
        """Memory of which several elements are touched at once: buffers, and what a block shares."""
        self.skew = dict.fromkeys(self.wide, 0) if ALIGNED else {b.name: 1 for b in kernel.buffers}
        """How many elements behind a good alignment a buffer begins."""

    def run(self, given: dict[str, Any]) -> None:
        self.env = {n: given[n] for n in (*self.kernel.symbols, *(n for n, _ in self.kernel.scalars))}
        self.block(self.kernel.body)

    def block(self, body: form.Block) -> None:
        for s in body:
            self.stmt(s)

    def stmt(self, s: form.Stmt) -> None:
        env, ev = self.env, self.ev
        if isinstance(s, form.Let):
            env[s.name] = ev(s.value)
        elif isinstance(s, form.Var):
            env[s.name] = ev(s.init)
        elif isinstance(s, form.Assign):
            assert s.name in env
            env[s.name] = ev(s.value)
        elif isinstance(s, form.Store):
            assert s.buffer not in self.readonly
            place, mem = ev(s.index), self.memory[s.buffer]
            assert 0 <= place < len(mem), f"store outside %{s.buffer}: {place} of {len(mem)}"
            value = stored(ev(s.value), s.memory)
            self.touch(s.buffer, place, True)
            mem[place] = value
        elif isinstance(s, form.Move):
            self.move(s, ev(s.at), ev(s.index))
        elif isinstance(s, form.TakeWords):
            self.words(s, ev(s.index), s.outside is not None and ev(s.outside), 0 if s.at is None else ev(s.at))
        elif isinstance(s, form.For):
            order: Any = range(ev(s.lo), ev(s.hi), ev(s.step))
            # Parallel iterations come in any order: backwards is the one that finds faults.
            for i in reversed(order) if s.kind == "parallel" else order:
                env[s.var] = i
                self.block(s.body)
        elif isinstance(s, form.If):
            self.block(s.then if ev(s.cond) else s.other)
        elif isinstance(s, form.Alloc):
            self.memory[s.name] = [UNSET] * ev(s.size)
            self.dtypes[s.name] = s.memory
        else:
            raise Failed(self.program.sites[s.site].message.format(*map(ev, s.values)))

    def move(self, s: form.Move, at: int, index: int) -> None:
        for name, place in ((s.to, at), (s.source, index)):
            if name in self.wide and s.anywhere:
                bytes_ = self.dtypes[name].bytes
                assert self.skew.get(name, 0) * bytes_ % form.WORD == len(self.memory[name]) * bytes_ % form.WORD == 0, f"%{name} is no whole number of words"
            elif name in self.wide:
                assert (self.skew.get(name, 0) + place) % s.count == 0, f"%{name}[{place}] is no place for {s.count} elements at once"
        for k in range(s.count):
            assert 0 <= index + k < len(self.memory[s.source]), f"load outside %{s.source}: {index + k} of {len(self.memory[s.source])}"
            assert 0 <= at + k < len(self.memory[s.to]), f"store outside %{s.to}: {at + k} of {len(self.memory[s.to])}"
            value = self.memory[s.source][index + k]
            assert value is not UNSET, f"load of %{s.source}[{index + k}], which is not written yet"
            self.touch(s.source, index + k, False)
            self.touch(s.to, at + k, True)
            self.memory[s.to][at + k] = stored(value, self.dtypes[s.to])

    def words(self, s: form.TakeWords, index: int, outside: bool, at: int) -> None:
        if not outside:
            assert s.source not in self.wide or (self.skew.get(s.source, 0) + index) % s.count == 0, f"%{s.source}[{index}] is no place for {s.count} bytes"
            assert 0 <= index <= len(self.memory[s.source]) - s.count, f"load outside %{s.source}: {index}"
            for k in range(s.count):
                self.touch(s.source, index + k, False)
        for k in range(s.count // 4):
            self.touch(s.to, at + k, True)
            taken = [int(b) & 255 for b in self.memory[s.source][index + 4 * k:index + 4 * k + 4]] if not outside else []
            self.memory[s.to][at + k] = s.other if outside else int.from_bytes(bytes(taken), "little", signed=True)

    def touch(self, buffer: str, place: int, write: bool) -> None:
        """Is told of every load and store."""

    def ev(self, x: form.Expr) -> Any:
        if isinstance(x, form.Const):
            return value_of(x.value, x.dtype)
        if isinstance(x, form.Ref):
            return self.env[x.name]
        if isinstance(x, form.Thread):
            return self.thread
        if isinstance(x, form.Aligned):
            return self.skew[x.buffer] * self.dtypes[x.buffer].bytes % x.bytes == 0
        if isinstance(x, form.Load):
            place, mem = self.ev(x.index), self.memory[x.buffer]
            assert 0 <= place < len(mem), f"load outside %{x.buffer}: {place} of {len(mem)}"
            assert mem[place] is not UNSET, f"load of %{x.buffer}[{place}], which is not written yet"
            self.touch(x.buffer, place, False)
            return value_of(mem[place], x.dtype)
        if isinstance(x, form.Choose):
            a, b = self.ev(x.then), self.ev(x.other)
            return a if self.ev(x.cond) else b
        if isinstance(x, form.Convert):
            return cast(self.ev(x.arg), x.arg.dtype, x.to, x.saturate)
        return self.op(x)

    def op(self, x: form.Op) -> Any:
        assert x.fn in form.PRIMITIVES | form.SHORT | form.STEPS | form.BYTES | set(form.EXACT.values()), x.fn
        if x.fn in form.EXACT.values():
            return self.op(form.Op(next(fn for fn, exact in form.EXACT.items() if exact == x.fn), x.args, x.dtype))
        args = [self.ev(a) for a in x.args]
        assert len({a.dtype for a in x.args}) == 1, x
        d = x.args[0].dtype
        if x.fn in ("quot", "rest"):
            assert args[0] >= 0, x
            assert args[1] > 0, x
            return args[0] // args[1] if x.fn == "quot" else args[0] % args[1]
        if d is BOOL:
            return {"and": lambda a, b: a and b, "or": lambda a, b: a or b, "not": lambda a: not a, "==": lambda a, b: a == b,
                    "!=": lambda a, b: a != b}[x.fn](*args)
        if d.is_int and x.fn in INTS:
            r = INTS[x.fn](*args)
            return r if x.dtype is BOOL else wrap(r, x.dtype)
        if x.fn in form.BYTES:
            return of_bytes(x.fn, *args)
        if x.fn == "fma":
            import fractions
            if all(map(math.isfinite, args)):
                exact = fractions.Fraction(float(args[0])) * fractions.Fraction(float(args[1])) + fractions.Fraction(float(args[2]))
                return value_of(exact.numerator / exact.denominator, d)
        if x.fn in form.STEPS:
            # A quotient is in doubt where a step may be inexact, and the wrong number there.
            if x.fn == "inverse":
                return np.float32(1) / args[0] if 2.0 ** -100 <= abs(args[0]) <= 2.0 ** 25 else np.float32(np.nan)
            if x.fn == "quotient":
                return args[0] / args[1] if np.isfinite(args[2]) and (args[0] == 0 or abs(args[0]) >= 2.0 ** -100) else np.float32(np.nan)
            return bool(np.isnan(args[1]))
        if x.fn in form.SHORT and "tanh" in x.fn:
            bent = 0.7978845608028654 * (np.float64(args[0]) + 0.044715 * np.float64(args[0]) ** 3)
            return value_of(np.float64(args[0]) * (0.5 + 0.5 * np.tanh(bent)), d)
        if x.fn in form.SHORT:
            half = FUNCTIONS["erf"].numpy(np, np.float64(args[0]) * 0.5 ** 0.5)
            return value_of(np.float64(args[0]) * (0.5 + 0.5 * half), d)
        kind = {"i32": np.int32, "i64": np.int64, "f32": np.float32, "f64": np.float64}[d.name]
        r = FUNCTIONS[x.fn].numpy(np, *(kind(a) for a in args))
        return value_of(r, x.dtype)


def of_bytes(fn: str, *args: int) -> Any:
    """Functions of bytes."""
    if fn == form.DIGITS:
        return np.float32(args[0] - form.MAGIC)
    taken = [[int(a) >> 8 * k & 255 for k in range(4)] for a in args]
    if fn in form.BYTE.values():
        byte = taken[0][args[1]]
        return byte - 256 if fn == form.BYTE[True] and byte > 127 else byte
    if fn == form.FOUR:
        return int.from_bytes(bytes(taken[k][args[4] >> 4 * k & 15] for k in range(4)), "little", signed=True)
    signs = next(signs for signs, name in form.DOTS.items() if name == fn)
    a, b = ([v - 256 if signed and v > 127 else v for v in bytes_] for signed, bytes_ in zip(signs, taken, strict=False))
    return wrap(args[2] + sum(x * y for x, y in zip(a, b, strict=True)), I32)


INTS: dict[str, Any] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "neg": lambda a: -a, "abs": abs, "min": min, "max": max,
    "floordiv": lambda a, b: a // b if b else 0, "mod": lambda a, b: a % b if b else 0, "sign": lambda a: (a > 0) - (a < 0),
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "<": lambda a, b: a < b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b}


def cast(v: Any, source: DType, to: DType, saturate: bool) -> Any:
    """`Convert`, written anew rather than with the compiler's own rounding."""
    if to is BOOL:
        return bool(v != 0)
    if to.is_int:
        if source.is_float:
            if math.isnan(v):
                return 0
            v = to.highest if v >= to.highest else to.lowest if v <= to.lowest else int(v)
        v = int(v)
        if saturate:
            return min(max(v, to.lowest), to.highest)
        v %= 1 << to.bits
        return v - (1 << to.bits) if to.signed and v >= 1 << (to.bits - 1) else v
    return value_of(stored(v, to), to.compute)


def stored(v: Any, d: DType) -> Any:
    """What memory holds of a value."""
    if d.is_float and isinstance(v, int | float | np.generic):
        if d in (F32, F64) or d.name == "f16":
            return d.numpy().type(v)
        return np.array(v, np.float64).astype(d.numpy())[()]
    if d.is_int:
        v = int(v) % (1 << d.bits)
        return v - (1 << d.bits) if d.signed and v >= 1 << (d.bits - 1) else v
    return bool(v)
