"""The loop-level form: what a scheduled operator is made of, once for all emitters.

A `Program` holds the kernels of one operator in the order in which they run. A kernel is a list of statements over dense row-major buffers; borders,
tails, interior and edge versions, reductions, recurrences and the order of evaluation are decided here, so an emitter only spells nodes.

Rules that hold for every kernel (`check.py` proves them):
- A name is bound once in a kernel (by `Let`, `Var`, `For` or `Alloc`, or as a symbol or scalar of the kernel), and is visible in the rest of the block that
  binds it and in the blocks inside. Names are for people: any text; an emitter mangles them (buffers live in a name space of their own).
- Expressions are small trees without side effects: what is used twice is bound by a `Let`. Depth is at most 40.
- Every expression has one of the types bool, i32, i64, f32, f64. Memory dtypes appear in `Load`, `Store`, `Buffer`, `Alloc` and `Convert.to` alone.
- `body` begins with any number of `Let`s. Then comes either exactly one `For` of kind `parallel`, as the last statement, whose iterations any number of
  threads may share (each evaluates the `Let`s before it for itself), or statements that one thread runs.
- Loads never leave their buffer; indices are i64, counted in elements, not negative. A loop whose range is empty does nothing.
- No float operation may be contracted, reassociated or approximated beyond `Op.reorder` and the accuracy in `ir/functions.py`; `fma` is an operation.

A kernel for a GPU (`Kernel.device` is `gpu`) is built by `gpu/build.py` for a grid of blocks of threads, and differs in this:
- `body` is any number of `Let`s and then exactly one `For` of kind `grid` or `block`.
- `grid`: iterations are independent; each is run by one thread, any thread of the grid.
- `block`: iterations are independent; each is run by all threads of one block together. What stands in its body is run by every thread alike ("uniform"),
  except inside a `For` of kind `thread`, whose iterations are independent and shared out among the threads of the block; each thread runs its own in
  ascending order.
- `Barrier`, `Combine` and shared `Alloc`s stand in the body of a `block` loop, in uniform statements only: never inside a `thread` loop, never under an `If`
  or in a loop whose condition or bounds differ between threads. A `Store` in uniform statements is done by one thread; others see it after a `Barrier`.
- Each thread has its own copy of every `Var`. What a `thread` loop assigns to a `Var` of the uniform statements around it differs between threads
  ("varying") until a `Combine`, and so does what is computed from it. Uniform `Let`s, `Var`s and `Assign`s may compute with varying values (each thread
  does so for itself); conditions, bounds, indices and stored values of uniform statements may not depend on them.
- `Kernel.threads`, if not 0, is the exact number of threads of a block, and a `thread` loop from 0 to that number in steps of 1 runs iteration i on
  thread i. All other `thread` loops may be shared out in any way.
- `Kernel.team` says instead of it how many threads a block has for given sizes. A loop of kind `each` runs from 0 to the number of threads, turn t on thread t.
- An `Alloc` in uniform statements that is not shared is each thread's own. Either all threads do the `Store`s to it, in uniform statements, or loops of
  kind `each` store to it and they alone read it: what a thread stored there it finds again in the next such loop.
- `Fragment`, `Multiply`, `StoreFragment`, `Commit` and `Await` stand where a `Barrier` may, `CopyAsync` inside a `thread` loop. A kernel with fragments has
  exactly `Tiles.threads` threads.
- A shared `Alloc` has a constant size. Between two barriers no element of a buffer or of shared memory is written by one thread and touched by another.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Union

from pipelink_ir.backends.loops.form_attend import Attend as Attend
from pipelink_ir.backends.loops.form_attend import Lines as Lines
from pipelink_ir.backends.loops.form_expr import Aligned as Aligned
from pipelink_ir.backends.loops.form_expr import Choose as Choose
from pipelink_ir.backends.loops.form_expr import Const as Const
from pipelink_ir.backends.loops.form_expr import Convert as Convert
from pipelink_ir.backends.loops.form_expr import Expr as Expr
from pipelink_ir.backends.loops.form_expr import Load as Load
from pipelink_ir.backends.loops.form_expr import Op as Op
from pipelink_ir.backends.loops.form_expr import Ref as Ref
from pipelink_ir.backends.loops.form_expr import Thread as Thread
from pipelink_ir.backends.loops.form_own import AcrossRow as AcrossRow
from pipelink_ir.backends.loops.form_own import Dot as Dot
from pipelink_ir.backends.loops.form_own import Online as Online
from pipelink_ir.backends.loops.form_own import Own as Own
from pipelink_ir.backends.loops.form_stream import Boxes as Boxes
from pipelink_ir.backends.loops.form_stream import Contract as Contract
from pipelink_ir.backends.loops.form_stream import Panel as Panel
from pipelink_ir.backends.loops.form_stream import Ring as Ring
from pipelink_ir.backends.loops.form_strip import FewMultiply as FewMultiply
from pipelink_ir.backends.loops.form_strip import Pack as Pack
from pipelink_ir.backends.loops.form_strip import Strip as Strip
from pipelink_ir.backends.loops.form_strip import StripLine as StripLine
from pipelink_ir.backends.loops.form_strip import StripMultiply as StripMultiply
from pipelink_ir.backends.loops.form_strip import Words as Words
from pipelink_ir.backends.loops.form_tiles import Await as Await
from pipelink_ir.backends.loops.form_tiles import Commit as Commit
from pipelink_ir.backends.loops.form_tiles import CopyAsync as CopyAsync
from pipelink_ir.backends.loops.form_tiles import Factor as Factor
from pipelink_ir.backends.loops.form_tiles import Fragment as Fragment
from pipelink_ir.backends.loops.form_tiles import Multiply as Multiply
from pipelink_ir.backends.loops.form_tiles import StoreFragment as StoreFragment
from pipelink_ir.backends.loops.form_tiles import Tiles as Tiles
from pipelink_ir.backends.loops.form_tiles import Trade as Trade
from pipelink_ir.backends.loops.form_window import Window as Window
from pipelink_ir.backends.loops.form_window import WindowMultiply as WindowMultiply
from pipelink_ir.backends.loops.form_words import BYTE as BYTE
from pipelink_ir.backends.loops.form_words import BYTES as BYTES
from pipelink_ir.backends.loops.form_words import DIGITS as DIGITS
from pipelink_ir.backends.loops.form_words import DOTS as DOTS
from pipelink_ir.backends.loops.form_words import FOUR as FOUR
from pipelink_ir.backends.loops.form_words import MAGIC as MAGIC
from pipelink_ir.backends.loops.form_words import TakeWords as TakeWords
from pipelink_ir.ir.dtypes import I64, DType
from pipelink_ir.ir.source import Span

# -------------------------------------------------------------------------------------------------------------------- statements

WORD = 8
"""Bytes of the words that hold what lies anywhere."""

WARP = Const(32, I64)
"""Threads that combine together, if nothing else is said."""


@dataclass(frozen=True, slots=True)
class Let:
    """Binds a name to a value, once."""

    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Var:
    """A mutable scalar: an accumulator, or what an `If` leaves behind."""

    name: str
    dtype: DType
    init: Expr


@dataclass(frozen=True, slots=True)
class Assign:
    """Gives a `Var` of this or an outer block a new value. Never crosses the boundary of a parallel loop."""

    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Store:
    """Writes `value` (of the compute type of `memory`, or f64 for any float) to element `index`, rounded to `memory`: floats to nearest even, integers keep
    their low bits (their values fit or were cast), bool as a byte 0 or 1."""

    buffer: str
    index: Expr
    value: Expr
    memory: DType


@dataclass(frozen=True, slots=True)
class Move:
    """Copies `count` neighbouring elements, from element `index` of `source` on, to `to` from element `at` on, on a GPU.

    A buffer or shared memory is touched by one access: there the place is a multiple of `count`, `count` elements are 1, 2, 4, 8 or 16 bytes, and the first
    element is aligned to as many, which scratch always is, and a buffer where `Aligned` says so. At least one side is an `Alloc`. Both hold one dtype, or a
    thread's own scratch holds the compute type of the other side's, and elements are converted as `Load` and `Store` do.

    `anywhere`: they come from a buffer that begins at a multiple of `WORD` bytes and has a multiple of as many, are at most as many bytes together, and lie
    anywhere in it: the words that hold them are read."""

    to: str
    at: Expr
    source: str
    index: Expr
    count: int
    anywhere: bool = False


@dataclass(frozen=True, slots=True)
class For:
    """`var` (i64) from `lo` while below `hi` in steps of `step` > 0. Bounds are evaluated once, before the loop.

    kind `serial`: in order. kind `parallel`: iterations are independent, in any order, on any thread. `grid`, `block`, `thread`, `each`: see the head of this
    page. `vector`: a wish: iterations are independent and the body is straight, so this loop should become vectors. `unroll`: a wish: the bounds are constant
    and the body should be written out for each turn, so that scratch is indexed by constants and becomes registers; of a `thread` loop,
    or one whose bounds are not constant: the loads of some turns should come before what is done with them."""

    var: str
    lo: Expr
    hi: Expr
    step: Expr
    body: Block
    kind: str = "serial"
    vector: bool = False
    unroll: bool = False


@dataclass(frozen=True, slots=True)
class If:
    """Runs one of two blocks."""

    cond: Expr
    then: Block
    other: Block = ()


@dataclass(frozen=True, slots=True)
class Alloc:
    """Scratch of `size` elements (i64, >= 0) that lives to the end of the block it stands in and belongs to the thread; its contents begin undefined.
    `size` may be a `Const` (stack) or known at run time only (heap, or an arena of the thread). `shared`: one for all threads of a block."""

    name: str
    memory: DType
    size: Expr
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Fail:
    """Records in the status block, unless something is recorded there already, the number of a site and up to four i64 values for its message. Execution
    goes on, with harmless values; the host reads the status block after the last kernel and raises. Rare: emit it out of the way."""

    site: int
    values: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Barrier:
    """All threads of the block arrive before any goes on; what they stored in buffers and shared memory before is seen after."""


@dataclass(frozen=True, slots=True)
class Signal:
    """All threads of the block are done with what they stored before: element `index` of the counters, i32, becomes one more. In kernels with `tickets`."""

    buffer: str
    index: Expr


@dataclass(frozen=True, slots=True)
class AwaitCount:
    """All threads of the block wait until element `index` of the counters is `count`: they see what was stored before the signals that made it so. Only turns
    before this one may be waited for."""

    buffer: str
    index: Expr
    count: Expr


@dataclass(frozen=True, slots=True)
class Combine:
    """Combines the values that the threads of a block hold in the `Var`s `names`; afterwards every thread holds the result. Contains its own barriers.
    Where `apart` holds, which is the same for all threads, each group of `lanes` neighbouring threads combines for itself: the results differ between groups.
    `lanes` is a power of two, at most 32, and the same for all threads as well.

    `fn` with one name: `sum`, `prod`, `max`, `min` (a NaN wins), `any`, `all`. With two, (value, index): `argmax`, `argmin`: the best value and its index,
    the lowest index among equals, the first NaN wins; a thread that has no candidate holds the index -1. Sums are combined pairwise in the order of the
    threads."""

    fn: str
    names: tuple[str, ...]
    apart: Expr | None = None
    lanes: Expr = WARP


Stmt = Union[Own, Contract, Let, Var, Assign, Store, Move, For, If, Alloc, Fail, Barrier, Combine, Fragment, Multiply, StoreFragment, CopyAsync, Commit, Await,
             Trade, Signal, AwaitCount, StripLine, StripMultiply, Words, Pack, FewMultiply, TakeWords,
             WindowMultiply]
Block = tuple[Stmt, ...]

# ---------------------------------------------------------------------------------------------------------------- kernels, programs


@dataclass(frozen=True, slots=True)
class Buffer:
    """Dense row-major memory. `kind`: `operand` (only read), `result` (written, and read once written), `temporary` (the same; owned by the program).
    `shape` are i64 expressions over symbols (nothing but `Ref`, `Const`, `Op`); temporaries start at the first element of their box."""

    name: str
    kind: str
    memory: DType
    shape: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Site:
    """A place where a run-time check may fail: where it stands in the program, and the message with `{0}`, `{1}` … for the values of `Fail`."""

    span: Span
    message: str


@dataclass(frozen=True, slots=True)
class Kernel:
    """One function: pointers to `buffers` in order, `symbols` (i64), `scalars` (name, compute type), the status block, and for a parallel kernel the part
    of the parallel range that this call runs."""

    name: str
    buffers: tuple[Buffer, ...]
    symbols: tuple[str, ...]
    scalars: tuple[tuple[str, DType], ...]
    body: Block
    exact: bool = False
    """`accuracy = exact`: `/` and `sqrt` are correctly rounded."""
    fast_math: bool = False
    """Reassociation, flushing and approximate functions are allowed; NaN and infinities are not assumed away."""
    device: str = "cpu"
    """`cpu` or `gpu`: which of the two rules for `body` holds."""
    threads: int = 0
    """How many threads a block must have; 0 leaves that to the emitter."""
    team: Expr | None = None
    """Of a `block` kernel: how many threads a block has, from the symbols (`evaluate`): a multiple of 32, and at most `threads`."""
    resident: bool = False
    """A launch has no more blocks than the device runs at once, and each takes many turns."""
    fit: int = 0
    """A wish: registers are kept so few that a multiprocessor holds so many blocks; 0 leaves that to the compiler."""
    tickets: str = ""
    """Counters, i32, which are zero: blocks begin turns in their order, by element 0, so that a turn may wait for those before it."""
    once: bool = False
    """Of a `grid` kernel without scratch of sizes that are not constant: there are as many threads as turns, whose number follows from the symbols."""

    @property
    def loop(self) -> For | None:
        """The parallel loop, if there is one."""
        last = self.body[-1] if self.body else None
        return last if isinstance(last, For) and last.kind == "parallel" else None


@dataclass(frozen=True, slots=True)
class Program:
    """An operator as kernels. A kernel sees everything that the kernels before it wrote. `sites` is indexed by `Fail.site`."""

    name: str
    kernels: tuple[Kernel, ...]
    operands: tuple[Buffer, ...]
    results: tuple[Buffer, ...]
    temporaries: tuple[Buffer, ...]
    symbols: tuple[str, ...]
    scalars: tuple[tuple[str, DType], ...]
    sites: tuple[Site, ...]


PRIMITIVES = frozenset(
    ("and", "or", "not", "==", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "neg", "min", "max", "fmin", "fmax", "abs", "sign", "floordiv", "mod",
     "quot", "rest", "floor", "ceil", "round", "fma", "sqrt", "rsqrt", "exp", "exp2", "expm1", "log", "log2", "log1p", "pow", "sin", "cos", "tan", "tanh",
     "erf", "atan2", "isnan", "isinf"))
"""Every `Op.fn` that an emitter has to know."""

EXACT = {"/": "exact_div", "sqrt": "exact_sqrt"}
"""Primitives that have a twin which rounds correctly, in kernels that are not `exact` as a whole."""

SHORT = frozenset(("gelu_f16", "gelu_bf16", "gelu_tanh_f16", "gelu_tanh_bf16"))
"""Functions of f32 that only an emitter for a GPU knows: x times the normal distribution, and its approximation by a hyperbolic tangent, within a sixteenth
of a unit of the dtype that it is rounded to."""

STEPS = frozenset(("inverse", "quotient", "doubtful"))
"""Quotients of f32 by a number that many have in common, on a GPU alone: `inverse(d)` is 1 / d, or a NaN where d is very small or large;
`quotient(x, d, inverse(d))` is x / d unless `doubtful(x, quotient, inverse)`, a bool."""


def evaluate(expr: Expr, symbols: dict[str, int]) -> int:
    """The value of a size expression for given symbols, as Python integers (sizes do not wrap)."""
    if isinstance(expr, Const):
        return int(expr.value)
    if isinstance(expr, Ref):
        return symbols[expr.name]
    if not isinstance(expr, Op):  # no assertion: callers rely on it, also under `python -O`
        raise TypeError(f"no size: {expr}")
    a, *rest = (evaluate(x, symbols) for x in expr.args)
    return _SIZES[expr.fn](a, *rest)


_SIZES: dict[str, Callable[..., int]] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "neg": lambda a: -a, "min": min, "max": max, "abs": abs,
    "floordiv": lambda a, b: a // b if b else 0, "mod": lambda a, b: a % b if b else 0}
