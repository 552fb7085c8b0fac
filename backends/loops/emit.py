"""Writes blocks of the loop-level form: names every value once, finds it again, and puts it at the outermost place where it may stand.

Every operation becomes a `Let` on atoms (constants and names). The same operation on the same atoms is the same name wherever that is in sight (value
numbering), and a pure operation is put into the outermost loop body in which its arguments exist (invariant code motion); `tidy.py` afterwards melts
`Let`s that are used once into expressions. Sums of indices are kept as affine forms, so that `(w + 1) - 1` is `w` and addresses share their parts.

A frame is an open block: the kernel's own (`root`), a loop's, or a branch of an `If` (`lazy`). Nothing leaves a lazy frame but cheap integer arithmetic.
Loads leave a loop only if it is known to run (`nonempty`), and only if nothing in this kernel writes their buffer.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import frexp
from typing import Any, Union

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.fold import fold, holds, literal
from pipelink_ir.ir.diagnostics import internal_error
from pipelink_ir.ir.dtypes import BF16, BOOL, F16, F32, I32, I64, DType

Atom = Union[form.Const, form.Ref]
Key = Any

TRUE, FALSE = form.Const(True, BOOL), form.Const(False, BOOL)
_CHEAP = frozenset({"+", "-", "*", "neg", "min", "max", "==", "!=", "<", "<=", ">", ">=", "and", "or", "not"})


def i64(value: int) -> form.Const:
    """An index constant."""
    return form.Const(value, I64)


def key_of(atom: Atom) -> Key:
    """What makes two atoms the same value."""
    if isinstance(atom, form.Ref):
        return atom.name
    return (atom.dtype.name, atom.value.hex() if isinstance(atom.value, float) else int(atom.value))


@dataclass(slots=True)
class Frame:
    """An open block and what is known by value in it."""

    kind: str
    stmts: list[form.Stmt] = field(default_factory=list)
    memo: dict[Key, Any] = field(default_factory=dict)
    nonempty: bool = False


Affine = tuple[int, tuple[tuple[str, int], ...]]
"""A constant and (name, factor) for each name in it, sorted."""


class Emitter:
    """The blocks of one kernel while they are written."""

    def __init__(self) -> None:
        self.frames: list[Frame] = [Frame("root")]
        self.depth: dict[str, int] = {}
        self.affine: dict[str, Affine] = {}
        self.values: dict[str, form.Expr] = {}
        """What each `Let` is."""
        self.names: dict[str, int] = {}
        self.doubles = False
        """Whether a sum with 2, 4, 8 … times something is one fused multiply-add. The product is exact, so that the sum is the same."""
        self.inverses: dict[str, Atom] = {}
        """Divisors whose reciprocals are at hand, where a product with one is precise enough as a quotient."""
        self.taken: frozenset[str] = frozenset()
        """Names of memory that is there already."""

    # ------------------------------------------------------------------------------------------------------------ names and frames

    def fresh(self, hint: str) -> str:
        """A name that nothing in this kernel has, like `hint`."""
        n = self.names.get(hint, 0)
        self.names[hint] = n + 1
        if not n:
            return hint
        name = f"{hint}_{n}"
        return self.fresh(name) if name in self.names else self._claim(name)

    def memory(self, hint: str) -> str:
        """A name for scratch, which shares its name space with the tensors of the operator."""
        name = self.fresh(hint)
        return name if name not in self.taken else self.memory(hint)

    def _claim(self, name: str) -> str:
        self.names[name] = 1
        return name

    def given(self, name: str, dtype: DType) -> form.Ref:
        """A symbol or scalar of the kernel."""
        self.names[name] = 1
        self.depth[name] = 0
        return form.Ref(name, dtype)

    def depth_of(self, *atoms: Atom) -> int:
        """The index of the innermost frame that binds one of the atoms."""
        return max((self.depth[a.name] for a in atoms if isinstance(a, form.Ref)), default=0)

    @property
    def top(self) -> Frame:
        return self.frames[-1]

    def raw(self, stmt: form.Stmt) -> None:
        """Appends a statement to the innermost block as it is."""
        self.top.stmts.append(stmt)

    @contextmanager
    def frame(self, kind: str, nonempty: bool = False) -> Iterator[Frame]:
        """Opens a block; the caller puts its statements somewhere."""
        f = Frame(kind, nonempty=nonempty)
        self.frames.append(f)
        try:
            yield f
        finally:
            if self.frames.pop() is not f:
                internal_error("frames of a kernel do not nest")

    @contextmanager
    def at_depth(self, depth: int) -> Iterator[None]:
        """Writes to the end of an outer frame for a while, before the loop that is open in it."""
        saved = self.frames
        self.frames = saved[:depth + 1]
        try:
            yield
        finally:
            self.frames = saved

    def outermost(self, base: int, loads: bool) -> int:
        """The outermost frame, not outside `base`, that a computation may move to: out of loops, and with `loads` only of loops that surely run."""
        at = len(self.frames) - 1
        while at > base and self.frames[at].kind == "loop" and (self.frames[at].nonempty or not loads):
            at -= 1
        return at

    # ------------------------------------------------------------------------------------------------------------ memory of values

    def find(self, key: Key) -> Any:
        """What was remembered under `key` in a block that is in sight, or None."""
        for f in self.frames:
            if key in f.memo:
                return f.memo[key]
        return None

    def remember(self, key: Key, value: Any, depth: int | None = None) -> None:
        """Remembers a value in the frame where it was computed (the innermost by default)."""
        self.frames[len(self.frames) - 1 if depth is None else depth].memo[key] = value

    # ----------------------------------------------------------------------------------------------------------------- expressions

    def bind(self, hint: str, value: form.Expr, depth: int | None = None) -> form.Ref:
        """A `Let` of any expression, in the innermost frame or in an outer one."""
        at = len(self.frames) - 1 if depth is None else depth
        name = self.fresh(hint)
        self.frames[at].stmts.append(form.Let(name, value))
        self.values[name] = value
        self.depth[name] = at
        return form.Ref(name, value.dtype)

    def _value(self, key: Key, expr: form.Expr, args: tuple[Atom, ...], cheap: bool, hint: str) -> Atom:
        found = self.find(key)
        if found is not None:
            return found  # type: ignore[no-any-return]
        base = self.depth_of(*args)
        at = self.outermost(base, loads=False)
        while cheap and at > base:
            at -= 1
        ref = self.bind(hint, expr, at)
        self.remember(key, ref, at)
        return ref

    def op(self, fn: str, *args: Atom, hint: str = "v") -> Atom:
        """A primitive function of atoms."""
        if args[0].dtype is I64 and fn in ("+", "-", "neg", "*"):
            linear = self._linear(fn, args)
            if linear is not None:
                return linear
        if self.doubles and fn in ("+", "-") and args[0].dtype is F32:
            fused = self._doubled(fn, args)
            if fused is not None:
                return fused
        if fn == "/" and isinstance(args[1], form.Ref) and args[1].name in self.inverses:
            return self._op("*", (args[0], self.inverses[args[1].name]), hint)
        if args[0].dtype is I64 and fn in ("floordiv", "mod") and (folded := self._divided(fn, args)) is not None:
            return folded
        return self._op(fn, args, hint)

    def _divided(self, fn: str, args: tuple[Atom, ...]) -> Atom | None:
        """`(32 * i + 5) floordiv 16` and `mod 16`: multiples of a divisor stand by themselves."""
        divisor, (constant, terms) = args[1], self.form_of(args[0])
        if not isinstance(divisor, form.Const) or divisor.value <= 1 or not terms or any(c % int(divisor.value) for _, c in terms):
            return None
        by = int(divisor.value)
        return i64(constant % by) if fn == "mod" else self.index((constant // by, tuple((n, c // by) for n, c in terms)))

    def _doubled(self, fn: str, args: tuple[Atom, ...]) -> Atom | None:
        """`a + 2 * b`, `2 * b + a` and `a - 2 * b` at once."""
        for at in (1, 0) if fn == "+" else (1,):
            product = self.values.get(args[at].name) if isinstance(args[at], form.Ref) else None  # type: ignore[union-attr]
            if isinstance(product, form.Op) and product.fn == "*":
                for k in (0, 1):
                    factor, other = product.args[k], product.args[1 - k]
                    if isinstance(factor, form.Const) and isinstance(other, form.Ref) and abs(frexp(factor.value)[0]) == 0.5 and abs(factor.value) >= 1:
                        return self._op("fma", (form.Const(-factor.value if fn == "-" else factor.value, F32), other, args[1 - at]))
        return None

    def _op(self, fn: str, args: tuple[Atom, ...], hint: str = "v") -> Atom:
        known = fold(fn, args)
        if known is not None:
            return known
        dtype = BOOL if fn in ("==", "!=", "<", "<=", ">", ">=", "and", "or", "not", "isnan", "isinf") else args[0].dtype
        if fn in ("+", "*", "==", "!=", "and", "or") and str(key_of(args[0])) > str(key_of(args[1])):
            args = (args[1], args[0])
        cheap = fn in _CHEAP and (dtype in (I32, I64) or args[0].dtype is I64)
        return self._value((fn, *map(key_of, args)), form.Op(fn, args, dtype), args, cheap, hint)

    def convert(self, arg: Atom, to: DType, saturate: bool = False) -> Atom:
        """A cast: the value rounded to `to`, in the compute type of `to`."""
        if to is arg.dtype or (to in (F16, BF16) and self._already(arg, to)):
            return arg
        if isinstance(arg, form.Const) and (known := literal(arg.value, to)) is not None:
            return known
        key = ("cast", to.name, saturate, key_of(arg))
        return self._value(key, form.Convert(arg, to, to.compute, saturate), (arg,), arg.dtype.is_int and to in (I32, I64), "v")

    def unrounded(self, x: Atom, dtype: DType) -> Atom:
        """What becomes the same when it is stored as a narrow float: a value that was rounded to it, before that."""
        value = self.values.get(x.name) if isinstance(x, form.Ref) else None
        if not isinstance(value, form.Convert) or value.to is not dtype or dtype not in (F16, BF16) or value.arg.dtype is not F32:
            return x
        return value.arg if isinstance(value.arg, form.Ref | form.Const) else x

    def _already(self, x: form.Expr, dtype: DType, depth: int = 6) -> bool:
        """Whether a value was rounded to a narrow float already: what selects among such values makes no other."""
        if isinstance(x, form.Const):
            return x.dtype is F32 and holds(dtype, float(x.value))
        if isinstance(x, form.Ref):
            value = self.values.get(x.name)
            return value is not None and depth > 0 and self._already(value, dtype, depth - 1)
        if isinstance(x, form.Convert):
            return x.to is dtype
        if isinstance(x, form.Load):
            return x.memory is dtype
        if isinstance(x, form.Op):
            return x.fn in ("min", "max", "fmin", "fmax", "abs", "neg") and all(self._already(a, dtype, depth) for a in x.args)
        return isinstance(x, form.Choose) and all(self._already(a, dtype, depth) for a in (x.then, x.other))

    def choose(self, cond: Atom, then: Atom, other: Atom) -> Atom:
        """`then` or `other`, both at hand."""
        if isinstance(cond, form.Const):
            return then if cond.value else other
        if key_of(then) == key_of(other):
            return then
        args = (cond, then, other)
        return self._value(("choose", *map(key_of, args)), form.Choose(cond, then, other, then.dtype), args, then.dtype is I64, "v")

    def load(self, buffer: str, index: Atom, memory: DType, constant: bool, hint: str) -> Atom:
        """An element. `constant`: nothing in this kernel writes the buffer. Every place is written at most once, before it is read, so equal loads in
        sight of each other are equal values."""
        key = ("load", buffer, key_of(index))
        found = self.find(key)
        if found is not None:
            return found  # type: ignore[no-any-return]
        at = self.outermost(self.depth_of(index), loads=True) if constant else len(self.frames) - 1
        ref = self.bind(hint, form.Load(buffer, index, memory, memory.compute), at)
        self.remember(key, ref, at)
        return ref

    # --------------------------------------------------------------------------------------------------------------- affine indices

    def form_of(self, atom: Atom) -> Affine:
        """An i64 atom as a sum of names that are not sums themselves."""
        if isinstance(atom, form.Const):
            return int(atom.value), ()
        return self.affine.get(atom.name, (0, ((atom.name, 1),)))

    def _linear(self, fn: str, args: tuple[Atom, ...]) -> Atom | None:
        forms = [self.form_of(a) for a in args]
        if fn == "*":
            if not forms[0][1]:
                forms.reverse()
            if forms[1][1]:
                return None
            return self.index(_scale(forms[0], forms[1][0]))
        if fn == "neg":
            return self.index(_scale(forms[0], -1))
        return self.index(_add(forms[0], forms[1] if fn == "+" else _scale(forms[1], -1)))

    def index(self, value: Affine) -> Atom:
        """The name of an affine form; its parts are added from the outermost frame inwards, so that what is invariant stays outside."""
        constant, terms = value
        constant = (constant + (1 << 63)) % (1 << 64) - (1 << 63)
        if not terms:
            return i64(constant)
        if terms == ((terms[0][0], 1),) and not constant:
            return form.Ref(terms[0][0], I64)
        found = self.find(("affine", constant, terms))
        if found is not None:
            return found  # type: ignore[no-any-return]
        inner = max(terms, key=lambda t: (self.depth[t[0]], t[0]))
        rest = tuple(t for t in terms if t is not inner)
        # A constant beside one name belongs to that name; beside several it stays innermost, where loads fold it into their addresses.
        head: Atom | None = self.index((0, rest)) if rest else None
        tail = self._term(inner)
        total = tail if head is None else self._op("+", (head, tail), "i")
        if constant:
            total = self._op("+", (total, i64(constant)), "i")
        if isinstance(total, form.Ref):
            self.affine[total.name] = (constant, terms)
            self.remember(("affine", constant, terms), total, self.depth[total.name])
        return total

    def _term(self, term: tuple[str, int]) -> Atom:
        name, factor = term
        atom = form.Ref(name, I64)
        if factor == 1:
            return atom
        product = self._op("*", (atom, i64(factor)), "i")
        if isinstance(product, form.Ref):
            self.affine.setdefault(product.name, (0, (term,)))
        return product

    # ------------------------------------------------------------------------------------------------------------------- statements

    def var(self, hint: str, init: Atom) -> form.Ref:
        """A mutable scalar in the innermost frame. Its name may be an argument of `op` only once nothing assigns to it any more."""
        name = self.fresh(hint)
        self.raw(form.Var(name, init.dtype, init))
        self.depth[name] = len(self.frames) - 1
        return form.Ref(name, init.dtype)

    def assign(self, var: form.Ref, value: form.Expr) -> None:
        self.raw(form.Assign(var.name, value))

    @contextmanager
    def loop(self, hint: str, lo: Atom, hi: Atom, step: Atom | None = None, kind: str = "serial", nonempty: bool = False,
             vector: bool = False, unroll: bool = False) -> Iterator[form.Ref]:
        """A loop; the body is what is written inside."""
        name = self.fresh(hint)
        with self.frame("loop", nonempty) as f:
            self.depth[name] = len(self.frames) - 1
            yield form.Ref(name, I64)
        self.raw(form.For(name, lo, hi, step or i64(1), tuple(f.stmts), kind, vector, unroll))

    def branch(self, cond: Atom, then: Callable[[], Atom], other: Callable[[], Atom], dtype: DType) -> Atom:
        """The value of the branch that `cond` takes; the other is not evaluated."""
        if isinstance(cond, form.Const):
            return then() if cond.value else other()
        with self.frame("lazy") as f1:
            a = then()
        with self.frame("lazy") as f2:
            b = other()
        if not f1.stmts and not f2.stmts:
            return self.choose(cond, a, b)
        out = self.var("r", literal(0, dtype) or FALSE)
        f1.stmts.append(form.Assign(out.name, a))
        f2.stmts.append(form.Assign(out.name, b))
        self.raw(form.If(cond, tuple(f1.stmts), tuple(f2.stmts)))
        return out

    @contextmanager
    def when(self, cond: Atom) -> Iterator[None]:
        """An `If` without an else."""
        if isinstance(cond, form.Const) and cond.value:
            yield
            return
        with self.frame("lazy") as f:
            yield
        if f.stmts and not isinstance(cond, form.Const):
            self.raw(form.If(cond, tuple(f.stmts)))

    def all_of(self, conds: list[Atom]) -> Atom:
        """The conjunction of conditions that are all at hand."""
        out: Atom = TRUE
        for c in conds:
            out = c if out is TRUE else self.op("and", out, c)
        return out


def _scale(a: Affine, factor: int) -> Affine:
    if not factor:
        return 0, ()
    return a[0] * factor, tuple((n, c * factor) for n, c in a[1])


def _add(a: Affine, b: Affine) -> Affine:
    terms = dict(a[1])
    for name, c in b[1]:
        terms[name] = terms.get(name, 0) + c
    return a[0] + b[0], tuple(sorted((n, c) for n, c in terms.items() if c))
