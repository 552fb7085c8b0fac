"""Scalar expressions as loop-level values: names, functions, lazy choices; reads are in `reads.py`, reductions in `reduce.py` and `rank.py`.

`Lowering.value(e, env)` gives the atom that holds the value of a typed expression where `env` says what its indices are. What cannot fault and costs little
is evaluated without asking (a `Choose`); the rest of `select`, `and`, `or` becomes an `If`, so that nothing in a branch not taken is read or checked.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.emit import FALSE, TRUE, Affine, Atom, Emitter, i64
from pipelink_ir.backends.loops.expand import expand
from pipelink_ir.backends.loops.fold import must
from pipelink_ir.backends.loops.powers import power
from pipelink_ir.ir.diagnostics import internal_error
from pipelink_ir.ir.dtypes import BOOL, DTYPES, F32, F64, I64, DType
from pipelink_ir.ir.functions import FUNCTIONS
from pipelink_ir.ir.nodes import Apply, Cast, Const, Expr, FloatLit, IntLit, Name, Range, Read, Reduce
from pipelink_ir.ir.source import Span
from pipelink_ir.ir.typed import Piece, Tensor, TypedOperator
from pipelink_ir.passes.aliasing.access import overwritable
from pipelink_ir.passes.scheduling.costs import Plan, Quietness
from pipelink_ir.passes.scheduling.risks import power_may_fail

QUIET_LIMIT = 60
"""Cost up to which both branches of a `select` are evaluated."""
_VALUES = {"inf": float("inf"), "nan": float("nan"), "pi": 3.141592653589793, "true": True, "false": False}


class Env:
    """What the indices of one definition are. Its identity stands for its contents in remembered values."""

    __slots__ = ("names",)

    def __init__(self, names: dict[str, Atom] | None = None) -> None:
        self.names: dict[str, Atom] = names or {}

    def plus(self, names: dict[str, Atom]) -> Env:
        """This and more names, or other meanings of some."""
        return Env({**self.names, **names})


@dataclass(slots=True)
class Sites:
    """The places of one operator where a run-time check may fail, by number."""

    list: list[form.Site] = field(default_factory=list)
    known: dict[tuple[int, int, int, str], int] = field(default_factory=dict)

    def number(self, span: Span, message: str) -> int:
        key = (id(span.source), span.start, span.end, message)
        if key not in self.known:
            self.known[key] = len(self.list)
            self.list.append(form.Site(span, message))
        return self.known[key]


@dataclass(slots=True)
class Need:
    """A border read along an axis: the index as a sum of names, and the extent that it must stay below to need no border."""

    index: Affine
    extent: Atom


RULES: dict[str, Callable[[Lowering, Any, Env], Atom]] = {}
"""`read`, `reduce` and `rank`, entered by `build.py`: their modules need `Lowering` and call back into it, so this one does not import them."""


@dataclass(slots=True)
class Ready:
    """A reduction that was accumulated for a stretch of the row: scratch that begins at the place `begin` of the row, and the positions of the result's
    axes by the names that they have around the reduction."""

    scratch: str
    dtype: DType
    begin: Atom
    axes: dict[str, int]


class Lowering:
    """Values of one kernel. `written` are the buffers that this kernel writes, `assured` the border reads known to be inside in the loop being written."""

    def __init__(self, op: TypedOperator, plan: Plan, sites: Sites, written: frozenset[str], chosen: Mapping[str, int] | None = None) -> None:
        self.op, self.plan, self.sites, self.written = op, plan, sites, written
        self.chosen: Mapping[str, int] = chosen or {}
        """Locals of which this kernel meets one piece alone."""
        self.e = Emitter()
        self.e.taken = frozenset(op.tensors)
        self.root = Env({**{s: self.e.given(s, I64) for s in op.symbols}, **{s: self.e.given(s, d.compute) for s, d in op.scalars}})
        self.used: dict[str, Tensor] = {}
        self.scratch: list[form.Buffer] = []
        """Temporary memory of this kernel alone."""
        self.assured: set[tuple[Affine, str]] = set()
        self.running: str | None = None
        """The variable of the loop that is split into interior and edges."""
        self.needs: list[Need] | None = None
        self.row_needs: list[tuple[form.Ref, Atom]] = []
        self.ready: dict[int, Ready] = {}
        """Accumulated reductions by identity; they hold at the place `here`, in the lane that begins `offset` places into the scratch."""
        self.here: list[Atom] = []
        self.offset: Atom = i64(0)
        self.full: set[str] = set()
        """Keys of extents that are at least 1 wherever this kernel's loops run."""
        self.team: Callable[[Lowering, Reduce, Env], Any] | None = None
        """In a kernel of blocks: writes a reduction, or sorts candidates, with all threads of the block; None where it cannot."""
        self.tickets = ""
        """The counters, in a kernel whose blocks take turns by tickets."""
        self.shared_out = frozenset[int]()
        """Reductions, by identity, that threads share out although they have few terms."""
        self.staged: dict[str, Callable[[tuple[Atom, ...]], tuple[str, Atom]]] = {}
        """Locals, and operands, of which a block keeps a tile: the memory and the place in it of an element."""
        self.team_size: tuple[int, form.Expr] | None = None
        """How many threads a block has at most, and for given sizes, where it is not left to the emitter."""
        self.fit = 0
        """How many blocks a multiprocessor should hold; 0 leaves that to the compiler."""
        self.along: Callable[[Lowering, Range, Atom, Atom, Callable[[Atom], None]], bool] | None = None
        """Writes the innermost loop of a reduction so that neighbours move together, where it can; given are its range, its bounds and what writes a turn."""
        self.once = False
        """Whether a thread takes one turn: much is written out for it."""
        self.quietness = Quietness(op, plan, lambda lo, hi: self.is_full(self.extent(lo, hi)))
        self.there: Atom = TRUE
        """Whether what is being written is stored: `stored_where`."""
        self._keep: list[object] = []

    @cached_property
    def overwritten(self) -> frozenset[str]:
        """Operands in whose place results lie that this kernel writes, where that is possible."""
        op = self.op
        return frozenset(op.operands[o].name for r, o in overwritable(op) if op.results[r].name in self.written)

    @contextmanager
    def stored_where(self, there: Callable[[], Atom]) -> Iterator[None]:
        """For a thread that makes a value whether it is its own or, behind an end, that of the last place: elsewhere than `there` it is not stored, and is
        not read where another thread stores it."""
        before = self.there
        if self.overwritten:
            self.there = self.e.all_of([before, there()]) if before is not TRUE else there()
        yield
        self.there = before

    def beside(self, chosen: Mapping[str, int]) -> Lowering:
        """Values of another part of the same kernel: what is known where its loops run is known there alone."""
        out = Lowering(self.op, self.plan, self.sites, self.written, chosen)
        out.e, out.root, out.used, out.scratch = self.e, self.root, self.used, self.scratch
        return out

    # ---------------------------------------------------------------------------------------------------------------------- values

    def made(self, t: Tensor, piece: Piece, at: Sequence[Atom]) -> Atom:
        """The value of a piece at a place as it is stored: in the compute type of its tensor, or as an f64, which is then rounded once."""
        value = self.value(piece.value, Env({a.index: i for a, i in zip(piece.axes, at, strict=True)}))
        stays = value.dtype is t.dtype.compute or (value.dtype is F64 and t.dtype.is_float)
        return value if stays else self.e.convert(value, t.dtype.compute)

    def value(self, x: Expr, env: Env) -> Atom:
        """The atom that holds the value of `x`."""
        chain: list[Apply] = []
        out: Atom | None = None
        # A sum of thousands of terms is a chain of first arguments: walked, not recursed into.
        while isinstance(x, Apply) and x.fn not in ("select", "and", "or"):
            out = self.e.find(("expr", id(x), id(env)))
            if out is not None:
                break
            chain.append(x)
            x = x.args[0]
        if out is None:
            out = self._other(x, env)
        for node in reversed(chain):
            out = self._apply(node, (out, *(self.value(a, env) for a in node.args[1:])))
            self._remember(node, env, out)
        return out

    def _remember(self, x: Expr, env: Env, out: Atom) -> None:
        self._keep += (x, env)
        self.e.remember(("expr", id(x), id(env)), out)

    def index(self, x: Expr, env: Env) -> Atom:
        """An index, a bound or a rank, as i64."""
        return self.e.convert(self.value(x, env), I64)

    def _other(self, x: Expr, env: Env) -> Atom:
        if isinstance(x, IntLit | FloatLit):
            return must(x.value, self._dtype(x))
        if isinstance(x, Const):
            return must(_VALUES[x.name], self._dtype(x))
        if isinstance(x, Name):
            found = env.names.get(x.name) or self.root.names.get(x.name)
            return found if found is not None else internal_error(f"'{x.name}' is no index of this definition")
        found = self.e.find(("expr", id(x), id(env)))
        if found is not None:
            return found  # type: ignore[no-any-return]
        if isinstance(x, Cast):
            out = self.e.convert(self.value(x.arg, env), DTYPES[x.to], x.saturate)
        elif isinstance(x, Read):
            out = RULES["read"](self, x, env)
        elif isinstance(x, Reduce):
            out = RULES["reduce"](self, x, env)
        elif isinstance(x, Apply):
            out = self._lazy(x, env)
        else:
            internal_error(f"{type(x).__name__} has no value")
        self._remember(x, env, out)
        return out

    def _dtype(self, x: Expr) -> DType:
        return x.dtype if x.dtype is not None else internal_error(f"an expression without a type: {x}")

    # ------------------------------------------------------------------------------------------------------------------- functions

    def _apply(self, x: Apply, args: tuple[Atom, ...]) -> Atom:
        if power_may_fail(x):
            with self.e.when(self.e.op("<", args[1], must(0, args[1].dtype))):
                self.fail(x.span, "an integer to the power {0} is no integer", self.e.convert(args[1], I64))
        if x.exact and x.fn in form.EXACT and args[0].dtype.is_float:
            return self.e.op(form.EXACT[x.fn], *args)
        if x.fn == "+" and x.dtype is F32 and not self.op.exact and not x.exact and all(map(_squared, x.args)):
            product = self.e.values.get(args[0].name) if isinstance(args[0], form.Ref) else None
            if isinstance(product, form.Op) and product.fn == "*" and product.args[0] == product.args[1]:
                return self.e.op("fma", product.args[0], product.args[1], args[1])  # type: ignore[arg-type]
        return apply(self.e, x.fn, args)

    def _lazy(self, x: Apply, env: Env) -> Atom:
        cond = self.value(x.args[0], env)
        if x.fn == "select":
            return self.either(cond, x.args[1], x.args[2], env)
        stops = x.fn == "or"
        if isinstance(cond, form.Const):
            return cond if cond.value is stops else self.value(x.args[1], env)
        if self.quiet(x.args[1]):
            return self.e.op(x.fn, cond, self.value(x.args[1], env))
        if stops:
            return self.e.branch(cond, lambda: TRUE, lambda: self.value(x.args[1], env), BOOL)
        return self.e.branch(cond, lambda: self.value(x.args[1], env), lambda: FALSE, BOOL)

    def either(self, cond: Atom, then: Expr, other: Expr, env: Env) -> Atom:
        """`select`: both values where that is harmless, else one."""
        if isinstance(cond, form.Const):
            return self.value(then if cond.value else other, env)
        if self.quiet(then) and self.quiet(other):
            return self.e.choose(cond, self.value(then, env), self.value(other, env))
        return self.e.branch(cond, lambda: self.value(then, env), lambda: self.value(other, env), self._dtype(then))

    def quiet(self, x: Expr) -> bool:
        """Whether `x` may be evaluated where it is not asked for: it cannot fault and costs little."""
        return self.quietness.cost(x) <= QUIET_LIMIT

    def quiet_tensor(self, t: Tensor) -> bool:
        """The same of an element of a local that is evaluated where it is read."""
        return self.quietness.tensor(t) <= QUIET_LIMIT

    # ---------------------------------------------------------------------------------------------------------------------- checks

    def fail(self, span: Span, message: str, *values: Atom) -> None:
        """A check that did not hold."""
        self.e.raw(form.Fail(self.sites.number(span, message), values))

    def extent(self, lo: Expr, hi: Expr) -> Atom:
        """How many places lie in [lo, hi), which may be negative where the range is empty."""
        return self.e.op("-", self.index(hi, self.root), self.index(lo, self.root))

    def is_full(self, n: Atom) -> bool:
        """Whether an extent is at least 1 wherever the loops of this kernel run."""
        return int(n.value) > 0 if isinstance(n, form.Const) else n.name in self.full

    def buffer(self, t: Tensor) -> str:
        """The name of a tensor's memory, which this kernel then uses."""
        self.used[t.name] = t
        return t.name


def _squared(x: Expr) -> bool:
    """Whether a square is written there: a sum of two is rounded once less, on all backends."""
    return isinstance(x, Apply) and x.fn == "**" and isinstance(x.args[1], IntLit) and x.args[1].value == 2


def apply(e: Emitter, fn: str, args: tuple[Atom, ...]) -> Atom:
    """A function of the table on values of its common type."""
    integer = args[0].dtype.is_int
    if fn in ("floor", "ceil", "round") and integer:
        return args[0]
    if fn == "**":
        return power(e, args[0], args[1])
    if fn in ("fmin", "fmax") and integer:
        return e.op(fn[1:], *args)
    if fn == "fma" and integer:
        return e.op("+", e.op("*", args[0], args[1]), args[2])
    if fn == "select":
        return e.choose(*args)
    if fn in form.SHORT:
        return e.op(fn, *args)
    text = FUNCTIONS[fn].expand
    if text is not None:
        return expand(e, text, dict(zip("abc", args, strict=False)), args[0].dtype, apply)
    return e.op(fn, *args)
