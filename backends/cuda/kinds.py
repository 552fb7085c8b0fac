"""What C++ type an i64 of the loop form needs: an index that the host has bounded, or 64 bits.

Most i64 of the form count elements. They are made of loop variables, symbols and constants alone, so for given sizes the host can bound every one of them
(`geometry.py`), and where all fit in 32 bits the kernel computes them in 32: they are of kind `index`, typed `index_t`. What is made of data is of kind `i64`,
unless an index bounds it from both sides, as a border does.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from pipelink_ir.backends.loops.contents import blocks, exprs, makes, places
from pipelink_ir.backends.loops.form import (
    Aligned,
    Alloc,
    Block,
    Choose,
    Const,
    Convert,
    Expr,
    For,
    If,
    Kernel,
    Let,
    Load,
    Move,
    Op,
    Ref,
    Thread,
    Var,
)
from pipelink_ir.ir.dtypes import BOOL, F32, F64, I32, I64, DType

C_TYPES = {"bool": "bool", "i32": "int", "i64": "i64", "index": "index_t", "f32": "float", "f64": "double"}
"""The C++ type of each kind of value."""

_SAME = frozenset(("+", "-", "*", "neg", "abs", "sign", "floordiv", "mod", "quot", "rest", "min", "max"))
_BOUND_BY_DIVISOR = frozenset(("mod", "rest"))


def kind_of_dtype(dtype: DType) -> str:
    """The kind of a value of a compute type, where nothing more is known of it."""
    return {BOOL.name: "bool", I32.name: "i32", I64.name: "i64", F32.name: "f32", F64.name: "f64"}[dtype.name]


@dataclass(slots=True)
class Kinds:
    """The kinds of a kernel's names. `lets` has the values of the names that have one for good."""

    names: dict[str, str] = field(default_factory=dict)
    lets: dict[str, Expr] = field(default_factory=dict)
    known: dict[int, tuple[Op, bool]] = field(default_factory=dict)
    """Answers by the identity of the expression, which is kept alive with them: what is asked again and again is found out once."""

    def of(self, x: Expr) -> str:
        """The kind of an expression."""
        if x.dtype is not I64:
            return kind_of_dtype(x.dtype)
        return "index" if self.is_index(x) else "i64"

    def is_index(self, x: Expr) -> bool:
        """Whether an i64 is an index."""
        if isinstance(x, Const | Thread):
            return True
        if isinstance(x, Ref):
            return self.names.get(x.name) == "index"
        if isinstance(x, Choose):
            return self.is_index(x.then) and self.is_index(x.other)
        if not isinstance(x, Op):
            return False
        found = self.known.get(id(x))
        if found is None:
            found = self.known[id(x)] = (x, self._op(x))
        return found[1]

    def _op(self, x: Op) -> bool:
        if x.fn not in _SAME:
            return False
        if all(map(self.is_index, x.args)):
            return True
        if x.fn in _BOUND_BY_DIVISOR:
            return self.is_index(x.args[1])
        if x.fn in ("min", "max"):
            # One side is an index, the other is bounded from the other side by an index.
            a, b = x.args
            other = "max" if x.fn == "min" else "min"
            return (self.is_index(b) and self._limited(a, other)) or (self.is_index(a) and self._limited(b, other))
        return False

    def _limited(self, x: Expr, fn: str) -> bool:
        if isinstance(x, Ref) and x.name in self.lets:
            x = self.lets[x.name]
        return isinstance(x, Op) and x.fn == fn and any(map(self.is_index, x.args))


def kinds_of(kernel: Kernel) -> Kinds:
    """The kinds of every name that a kernel binds."""
    out = Kinds()
    for symbol in kernel.symbols:
        out.names[symbol] = "index"
    for name, dtype in kernel.scalars:
        out.names[name] = kind_of_dtype(dtype)
    _block(out, kernel.body)
    return out


def _block(kinds: Kinds, block: Block) -> None:
    for s in block:
        if isinstance(s, Let):
            kinds.names[s.name] = kinds.of(s.value)
            kinds.lets[s.name] = s.value
        elif isinstance(s, Var):
            kinds.names[s.name] = kind_of_dtype(s.dtype)
        elif isinstance(s, For):
            kinds.names[s.var] = "index" if all(map(kinds.is_index, (s.lo, s.hi, s.step))) else "i64"
            _block(kinds, s.body)
        elif isinstance(s, If):
            _block(kinds, s.then)
            _block(kinds, s.other)


def addressing(kernel: Kernel, kinds: Kinds) -> frozenset[str]:
    """The names of which indices, sizes of scratch and bounds of loops are made. They lie below the size of an array, so they cannot leave 64 bits; what only
    becomes data may, and wraps."""
    found: set[str] = set()
    todo = list(_addresses(kernel.body))
    while todo:
        x = todo.pop()
        if isinstance(x, Ref):
            if x.name not in found:
                found.add(x.name)
                todo += [kinds.lets[x.name]] if x.name in kinds.lets else []
        elif isinstance(x, Op):
            todo += x.args
        elif isinstance(x, Choose):
            todo += (x.cond, x.then, x.other)
        elif isinstance(x, Convert):
            todo.append(x.arg)
    return frozenset(found)


def _addresses(block: Block) -> Iterator[Expr]:
    for s in block:
        yield from places(s)
        for x in exprs(s):
            yield from _indices(x)
        for b in blocks(s):
            yield from _addresses(b)


def _indices(x: Expr) -> Iterator[Expr]:
    """The indices of all loads in an expression."""
    todo = [x]
    while todo:
        x = todo.pop()
        if isinstance(x, Load):
            yield x.index
            todo.append(x.index)
        elif isinstance(x, Op):
            todo += x.args
        elif isinstance(x, Choose):
            todo += (x.cond, x.then, x.other)
        elif isinstance(x, Convert):
            todo.append(x.arg)


def filled(kernel: Kernel) -> dict[str, DType]:
    """The memories of threads that are only ever filled with what was moved from memory of one dtype, and which that is."""
    memory = {b.name: b.memory for b in kernel.buffers}
    found: dict[str, DType | None] = {}
    todo = list(kernel.body)
    while todo:
        s = todo.pop()
        if not isinstance(s, Alloc):
            dtype = memory.get(s.source) if isinstance(s, Move) else None
            found.update((n[1:], dtype if found.get(n[1:], dtype) is dtype else None) for n in makes(s) if n.startswith("%"))
        todo += [inner for b in blocks(s) for inner in b]
    return {n: dtype for n, dtype in found.items() if dtype is not None}


def over_symbols(x: Expr, kernel: Kernel, kinds: Kinds) -> Expr | None:
    """`x` with the values of names put in, until it speaks of symbols alone; None where it depends on anything else."""
    if isinstance(x, Const):
        return x
    if isinstance(x, Ref):
        if x.name in kernel.symbols:
            return x
        value = kinds.lets.get(x.name)
        return None if value is None else over_symbols(value, kernel, kinds)

    def all_of(parts: tuple[Expr, ...], make: Callable[[list[Expr]], Expr]) -> Expr | None:
        done = [over_symbols(p, kernel, kinds) for p in parts]
        return make([p for p in done if p is not None]) if None not in done else None

    if isinstance(x, Op):
        return all_of(x.args, lambda p: Op(x.fn, tuple(p), x.dtype))
    if isinstance(x, Choose):
        return all_of((x.cond, x.then, x.other), lambda p: Choose(p[0], p[1], p[2], x.dtype))
    if isinstance(x, Convert) and x.to is I64:
        return all_of((x.arg,), lambda p: Convert(p[0], x.to, x.dtype))
    assert isinstance(x, Convert | Load | Aligned | Thread)
    return None
