"""What one operator moves and computes on a device, in which kernels: for all sizes, found once for each operator.

Work is counted in additions of f32, as `fusion/cost.py` counts it, and conversions beside it, of which codes have many: a code has to become a number before it
is computed with, and a number a code. What tensor cores multiply and add is counted apart, by the dtype of its factors; the scheduler says what they do, and in
which kind of kernel. What is particular to a kind (lines, taps, steps that wait for each other) was measured on an H200: `docs/decisions/prices.md`.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import ceil, prod

from pipelink_ir.ir.dtypes import DTYPES, F32, DType
from pipelink_ir.ir.nodes import Apply, Cast, Expr, FloatLit, IntLit, Name, Operator, Range, Read, Reduce
from pipelink_ir.ir.targets import Arch
from pipelink_ir.ir.typed import Group, Piece, Tensor, TypedOperator
from pipelink_ir.ir.walk import children, names_in, reads_in, walk
from pipelink_ir.passes.fusion.cost import value_of
from pipelink_ir.passes.fusion.facts import Amount
from pipelink_ir.passes.infer.operator import KEPT, typed_operator
from pipelink_ir.passes.scheduling.attention import Attention, Choosing
from pipelink_ir.passes.scheduling.columns import Columns
from pipelink_ir.passes.scheduling.convolutions import Convolution
from pipelink_ir.passes.scheduling.costs import Plan, cost_of
from pipelink_ir.passes.scheduling.counts import count, known, ranges_of, terms, unrolled
from pipelink_ir.passes.scheduling.derivation import derivation
from pipelink_ir.passes.scheduling.few import Few
from pipelink_ir.passes.scheduling.gpu_place import gpu_plan
from pipelink_ir.passes.scheduling.kernels import KernelPlan, launches_of
from pipelink_ir.passes.scheduling.place import plan as cpu_plan
from pipelink_ir.passes.scheduling.products import Product
from pipelink_ir.passes.scheduling.rows import Span
from pipelink_ir.passes.scheduling.shape import Shape
from pipelink_ir.passes.scheduling.streams import Streamed, Turning
from pipelink_ir.passes.scheduling.strips import Strips, zero_around
from pipelink_ir.passes.scheduling.tensor_cores import BYTES, TensorCores, plain_read

READ = {"i8": 1.0, "u8": 1.0, "f16": 0.5, "bf16": 0.5, "f8e4m3": 2.0, "f8e5m2": 2.0}
"""What an element costs that has to be made wider before it is computed with."""
CONVERSION = 3.0
"""An integer made of a float, or a float of an integer."""
STORE = {"f16": 0.5, "bf16": 0.5, "f8e4m3": 2.0, "f8e5m2": 2.0}
"""What an element costs that is made narrower when it is stored."""
DIVISION = 4.0
"""What a quotient costs more that has to be correctly rounded."""
BY_NUMBER = 2.0
"""A quotient by a number that is known, correctly rounded: a product and its correction."""
TILED = 64
"""A kernel with tiles makes an element of a factor once for so many of the other one."""
TAKEN = {1: 8.0, 2: 15.0}
"""What an element of the factor costs that a kernel for few rows reads once, as it is, by its bytes …"""
TAKEN_ACROSS = 30.0
"""… where columns lie side by side, not terms …"""
CONVERTED = {4: 12.0, 8: 11.0}
"""… as codes of which it makes numbers, by their bits …"""
ROW = 0.08
"""… and more for each row (4096 x 11008)."""
FEW = 16
"""So many rows a kernel for few has at most."""
LINE, GATHERED_LINE = 220.0, 90.0
"""What a line of a row costs in strips, and an element of one that is put together of single elements."""
TAP = 1.6
"""What a byte costs that a convolution by tiles takes from shared memory, once for each place of the window."""
COLUMN, COLUMN_OF_BYTES = 15.0, 5.0
"""What an element costs that is summed with those above and below it."""
STEP = 0.55e-6
"""Seconds of a step of a kernel with tiles of 64 bytes of terms, from one tile of the factors to the next …"""
DEEP_STEP = 0.77e-6
"""… of one with 128 bytes …"""
ELEMENT = 0.2e-6
"""… more for each element that a thread brings by itself, since it cannot be copied by 16 bytes …"""
SPLIT = 0.7e-6
"""… and for each further index of lines or terms, by which the place of a copy is found."""
TURN = 0.4e-6
"""Seconds of a turn of a block, whose threads then have added up an element each."""
THREADS = 256
"""Threads of such a block."""
NARROW = 3.0
"""How many times as long a product of few rows takes that threads multiply, not tensor cores."""
MANY = 1 << 20
"""What a size that is not known is taken for here."""
PRODUCT = 16
"""A sum of products of fewer terms is left to plain arithmetic by all kernels."""
ON_CORES = frozenset(("few", "mma", "wgmma", "strips", "convolution", "attention"))
"""Kinds of kernels that multiply on tensor cores."""
BESIDE = {"mma": 3.0, "wgmma": 1.6, "strips": 0.5, "convolution": 0.6, "attention": 2.0}
"""Kinds of kernels in which everything beside the products takes so many times as long: few warps have all registers (H200, measured)."""
FLOWING = 1.3
"""The same in attention that the copy engine feeds."""
CODE_TAP = 0.5
"""A product of two codes with its addition in a window: four of them are one instruction."""
APART = {1: 150.0, 2: 60.0}
"""What a load costs more, by bytes of the element, in a loop whose threads read places apart from each other (H200, measured: a convolution to one channel)."""
TOGETHER = {1: 8.0, 2: 6.0}
"""The same where a thread moves several neighbours at once (measured for f16; codes are taken for no better)."""
LOOPS = frozenset(("grid", "window"))
"""Kinds of kernels in which a thread loops by itself."""


def turns(ranges: Iterable[Range], env: Mapping[str, int]) -> tuple[float, Mapping[str, int]]:
    """How many turns ranges have together, and sizes with an index of the middle of each: others may depend on it."""
    total, known = 1.0, dict(env)
    for r in ranges:
        low, high = 0 if r.lo is None else value_of(r.lo, known), value_of(r.hi, known)
        total *= max(0, high - low)
        known[r.index] = (low + high) // 2
    return total, known


def amount(a: Amount, env: Mapping[str, int]) -> float:
    """An amount for given sizes."""
    return a.each * turns(a.ranges, env)[0]


@dataclass(frozen=True, slots=True)
class Tiles:
    """The tiles of a product that streams: axes of its rows, columns and batch, and its terms; rows and columns of one, and how many there have to be."""

    rows: tuple[Range, ...]
    columns: tuple[Range, ...]
    batch: tuple[Range, ...]
    terms: tuple[Range, ...]
    size: tuple[int, int]
    enough: int
    small: bool

    def count(self, env: Mapping[str, int]) -> int:
        """How many there are."""
        rows, columns, batch = (turns(r, env)[0] for r in (self.rows, self.columns, self.batch))
        return ceil(rows / self.size[0]) * ceil(columns / self.size[1]) * int(batch)

    def brought(self, env: Mapping[str, int], processors: int) -> float:
        """Elements of factors that a processor brings."""
        rows = turns(self.rows, env)[0]
        return ceil(self.count(env) / processors) * (min(rows, self.size[0]) + self.size[1]) * turns(self.terms, env)[0]

    def work(self, env: Mapping[str, int]) -> float:
        """Multiplications of one."""
        return prod(self.size) * turns(self.terms, env)[0]


@dataclass(frozen=True, slots=True)
class Chain:
    """Steps of a block that wait for each other: one for so many terms, each of some seconds, in blocks of so many places."""

    terms: tuple[Range, ...]
    each: float
    step: int
    axes: tuple[tuple[Range, ...], ...]
    tile: tuple[int, ...]
    beside: int
    """Blocks on a processor."""

    def seconds(self, env: Mapping[str, int], processors: int) -> float:
        """Of all blocks, as many at a time as there is room for."""
        blocks = prod(ceil(turns(r, env)[0] / n) for r, n in zip(self.axes, self.tile, strict=True))
        _, inside = turns((r for some in self.axes for r in some), env)
        return ceil(blocks / (self.beside * processors)) * ceil(turns(self.terms, inside)[0] / self.step) * self.each


@dataclass(slots=True)
class Kernel:
    """One launch. `reads` are the operands and locals in memory that it reads, `writes` what it stores."""

    kind: str = ""
    """What the scheduler calls it; "" on the processor."""
    plain: list[Amount] = field(default_factory=list)
    cores: list[tuple[str, Amount]] = field(default_factory=list)
    """Multiplications with their additions, by dtype of the factors."""
    reads: set[str] = field(default_factory=set)
    writes: set[str] = field(default_factory=set)
    tiles: Tiles | None = None
    """Those of factors that stream (wgmma): what follows the sums runs beside the next ones."""
    flows: bool = False
    """Whether the copy engine feeds it (attention)."""
    copied: dict[str, float] = field(default_factory=dict)
    """Factors that are copied before, turned over or put in order: bytes written for each that is read."""
    computed: set[str] = field(default_factory=set)
    """Those of them that are made of codes."""
    jobs: frozenset[tuple[str, int]] = frozenset()
    """What it computes: of several that compute the same, a call runs the first that fits."""
    span: Span | None = None
    launches: int = 1
    """With those that only put its parts together."""
    chain: Chain | None = None
    """What it waits for in order."""
    slow: float = 1.0
    """How many times as long it takes as its bytes and operations say."""

    def fits(self, env: Mapping[str, int]) -> bool:
        """Whether it is the one for these sizes."""
        if self.tiles is not None and self.tiles.count(env) < self.tiles.enough:
            return False
        n = 0 if self.span is None else value_of(self.span.length, env)
        return self.span is None or (n > self.span.above and (self.span.most is None or n <= self.span.most))


@dataclass(frozen=True, slots=True)
class Work:
    """One operator, in the order of its kernels. `tensors` has the types of what lies in memory."""

    op: TypedOperator
    kernels: tuple[Kernel, ...]

    def called(self, env: Mapping[str, int]) -> list[Kernel]:
        """The kernels that a call of some sizes runs."""
        chosen, done = set[int](), set[tuple[str, int]]()
        # Where none fits, the first is taken.
        for fitting in (True, False):
            for n, k in enumerate(self.kernels):
                if not (k.jobs and k.jobs <= done) and (not fitting or k.fits(env)):
                    chosen.add(n)
                    done |= k.jobs
        return [self.kernels[n] for n in sorted(chosen)]


_KNOWN: dict[tuple[int, str], tuple[Operator, Work | None]] = {}


def work_of(op: Operator, arch: Arch) -> Work | None:
    """What is known of an operator on an architecture; None of one that is no `compute`: a kernel of a user, of which only the arrays are known."""
    key = id(op), str(arch)
    found = _KNOWN.get(key)
    if found is None or found[0] is not op:
        if len(_KNOWN) > KEPT:
            _KNOWN.clear()
        found = _KNOWN[key] = op, None if op.compute is None or op.kernel is not None else _work(typed_operator(op), arch)
    return found[1]


def _work(op: TypedOperator, arch: Arch) -> Work:
    if arch.kind != "cuda":
        plan = cpu_plan(op, frozenset(), None)
        return Work(op, tuple(_one(op, plan, s.tensors) for s in plan.steps))
    op, stored = derivation(op, "cuda")
    plan = gpu_plan(op, stored)
    return Work(op, tuple(k for launch in launches_of(op, plan, arch) for k in _launch(op, plan, launch)))


def _launch(op: TypedOperator, plan: Plan, launch: tuple[KernelPlan, ...]) -> Iterator[Kernel]:
    """The kernel of a launch. Those that only prepare another are part of that."""
    out = Kernel()
    for k in launch:
        if isinstance(k.way, Turning | Choosing) or k.kind == "begin":
            continue
        names = k.way.tensors if isinstance(k.way, Group) else tuple(t.name for t, _ in k.jobs)
        one = _one(op, plan, names, k)
        flows = isinstance(k.way, Attention) and k.way.flowing
        beside = FLOWING if flows else BESIDE.get(k.kind, 1.0)
        out.plain += [Amount(a.ranges, a.each * beside) for a in one.plain] + _lines(k)
        out.cores += one.cores
        out.reads |= one.reads
        out.writes |= one.writes
        out.kind, out.span, out.launches = k.kind, k.span, 2 if k.kind == "parts" else 1
        out.jobs |= {(t.name, id(p)) for t, p in k.jobs}
        if isinstance(k.way, Streamed):
            p, axes = k.way.otherwise.product, k.jobs[0][1].axes
            rows, columns, batch = (tuple(axes[n] for n in some) for some in (p.rows, p.columns, p.batch))
            out.tiles = Tiles(rows, columns, batch, tuple(ranges_of(p.reduce)), k.way.tile, k.way.enough, k.way.small)
            out.copied |= {m.tensor: max(m.computed, 1) * d.bytes / op.tensors[m.tensor].dtype.bytes
                           for m, d in zip((k.way.left, k.way.right), k.way.dtypes, strict=True) if m.moved}
            out.computed |= {m.tensor for m in (k.way.left, k.way.right) if m.computed}
        out.flows |= flows
        out.chain = _chain(op, plan, k) or out.chain
        if isinstance(k.way, Product) and (prod(count(k.jobs[0][1].axes[n]) or MANY for n in k.way.rows) < FEW):
            out.slow = NARROW
    if out.writes:
        yield out


def _lines(k: KernelPlan) -> list[Amount]:
    """What strips and convolutions do for the lines of a row."""
    if not isinstance(k.way, Strips | Convolution):
        return []
    p, axes = k.way.product, k.jobs[0][1].axes
    terms = prod(count(r) or 1 for r in ranges_of(p.reduce))
    if isinstance(k.way, Convolution):
        each = TAP * terms * k.way.left.bytes
    else:
        each = GATHERED_LINE * terms if k.way.gathered else LINE * k.way.lines
    return [Amount(tuple(axes[n] for n in p.rows), each)]


def _chain(op: TypedOperator, plan: Plan, k: KernelPlan) -> Chain | None:
    """Steps of a kernel that follow each other."""
    if isinstance(k.way, TensorCores):
        p, axes = k.way.product, k.jobs[0][1].axes
        some = tuple(tuple(axes[n] for n in of) for of in (p.rows, p.columns, p.batch))
        threads = 32 * prod(k.way.warps)
        each = DEEP_STEP if k.way.depth * k.way.left.bytes > 64 else STEP
        each += sum(_staged(op, plan, k.way, f) * lines * k.way.depth / threads for f, lines in ((p.left, k.way.rows), (p.right, k.way.columns)))
        each += SPLIT * (2 * max(0, len(ranges_of(p.reduce)) - 1) + max(0, len(p.rows) - 1) + max(0, len(p.columns) - 1))
        return Chain(tuple(ranges_of(p.reduce)), each, k.way.depth, some, (k.way.rows, k.way.columns, 1), 2)
    if isinstance(k.way, Shape) and k.kind == "block":
        of = k.jobs[0][1]
        long = [x for x in _reductions(op, plan, of.value) if not unrolled(x)]
        outer = tuple(of.axes[n] for n in k.way.axes)
        return Chain(tuple(ranges_of(long[0])), TURN, THREADS, (outer,), (1,), 8) if long else None
    return None


def _reductions(op: TypedOperator, plan: Plan, x: Expr) -> Iterator[Reduce]:
    """The reductions that a value is made of."""
    if isinstance(x, Reduce):
        yield x
    if isinstance(x, Read) and plan.local(x.tensor):
        for p in op.tensors[x.tensor].pieces:
            yield from _reductions(op, plan, p.value)
    for c in children(x):
        yield from _reductions(op, plan, c)


def _factors(op: TypedOperator, k: KernelPlan) -> str:
    """The dtype that tensor cores multiply."""
    found: DType = k.way.dtypes[0] if isinstance(k.way, Streamed) else getattr(k.way, "factors" if k.kind == "attention" else "left")
    return "tf32" if found is F32 else found.name


def _taken(op: TypedOperator, way: Few) -> float:
    """What a kernel for few rows makes of each element of the factor that it reads once."""
    stored = op.tensors[way.stream].dtype
    if way.across:
        return TAKEN_ACROSS
    return TAKEN[stored.bytes] if stored is way.right else CONVERTED[4 if way.shared > 1 else 8]


def _staged(op: TypedOperator, plan: Plan, way: TensorCores, factor: Expr) -> float:
    """What bringing an element of a factor costs a thread."""
    left = factor is way.product.left
    return 0.0 if _by_lines(op, plan, way.product, factor, way.left if left else way.right) else ELEMENT


def _by_lines(op: TypedOperator, plan: Plan, p: Product, factor: Expr, dtype: DType) -> bool:
    """Whether a factor is copied by 16 bytes (where its memory is fit for that)."""
    read = plain_read(factor)
    if read is None or p.reduce.where is not None or plan.local(read.tensor):
        return False
    t, last = op.tensors[read.tensor], read.indices[-1]
    if not all(w in ("", "inside") or (w == "border" and k < len(t.shape) - 1 and zero_around(t, k)) for k, w in enumerate(read.access)):
        return False
    low, high = (known(b) for b in t.shape[-1])
    if t.dtype is not dtype or not isinstance(last, Name) or any(last.name in names_in(i) for i in read.indices[:-1]):
        return False
    return low is None or high is None or (high - low) * dtype.bytes % 16 == 0


def _one(op: TypedOperator, plan: Plan, names: tuple[str, ...], k: KernelPlan | None = None) -> Kernel:
    """What a kernel does that stores some tensors: these, and what is evaluated for them."""
    out = Kernel()
    walker = _Walker(op, out, k)
    pieces = [p for _, p in k.jobs] if k is not None and k.jobs else None
    todo, seen = list(names), set(names)
    for name in names:
        out.writes.add(name)
    while todo:
        t = op.tensors[todo.pop()]
        own = [p for p in t.pieces if pieces is None or t.name not in names or p in pieces]
        for p in own:
            if walker.stream is None or not any(r.tensor == walker.stream for r in reads_in(p.value)) or t.name in names:
                walker.piece(t, p, t.name in names)
            for r in reads_in(p.value):
                if r.tensor in seen:
                    continue
                seen.add(r.tensor)
                if op.tensors[r.tensor].kind == "operand" or not plan.local(r.tensor):
                    out.reads.add(r.tensor)
                else:
                    todo.append(r.tensor)
    return out


class _Walker:
    """Adds the work of definitions to a kernel; `k` says of which kind it is."""

    def __init__(self, op: TypedOperator, out: Kernel, k: KernelPlan | None) -> None:
        self.op, self.out = op, out
        self.factors = _factors(op, k) if k is not None and k.kind in ON_CORES else None
        self.tiled = (getattr(k.way, "rows", None) or FEW) if k is not None and k.kind == "few" else TILED
        self.taken = _taken(op, k.way) if k is not None and isinstance(k.way, Few) else None
        self.stream = k.way.stream if k is not None and isinstance(k.way, Few) else None
        """What few rows read once: what is made of it on the way is part of `taken`."""
        streamed = k.way if k is not None and isinstance(k.way, Streamed) else None
        factors = [] if streamed is None else [(streamed.left, streamed.otherwise.product.left), (streamed.right, streamed.otherwise.product.right)]
        self.ready = [f for m, f in factors if m.computed]
        """Factors that were made before."""
        self.columns = k is not None and isinstance(k.way, Columns)
        self.loops = k is not None and k.kind in LOOPS
        self.across = ""
        """The index by which neighbouring threads differ."""

    def piece(self, t: Tensor, p: Piece, stored: bool) -> None:
        work: dict[tuple[Range, ...], float] = {}
        wide = [a.index for a in p.axes if count(a) != 1]
        self.across = wide[-1] if wide else ""
        self._walk(p.value, tuple(p.axes), 1.0, work)
        if stored:
            work[tuple(p.axes)] = work.get(tuple(p.axes), 0.0) + STORE.get(t.dtype.name, 0.0)
        self.out.plain += [Amount(ranges, each) for ranges, each in work.items() if each]

    def _walk(self, x: Expr, turns: tuple[Range, ...], share: float, work: dict[tuple[Range, ...], float]) -> None:
        stack: list[Expr] = [x]
        while stack:
            x = stack.pop()
            if isinstance(x, Reduce):
                self._reduce(x, turns, share, work)
                continue
            cost = self._cost(x)
            if cost:
                work[turns] = work.get(turns, 0.0) + share * cost
            stack += [] if isinstance(x, Read) else children(x)
            if isinstance(x, Read):
                stack += [i for i in x.indices if any(isinstance(c, Read) for c in walk(i))]

    def _cost(self, x: Expr) -> float:
        if isinstance(x, Read):
            return READ.get(self.op.tensors[x.tensor].dtype.name, 0.0) if self.op.tensors[x.tensor].kind == "operand" else 0.0
        if isinstance(x, Cast):
            kind = x.arg.dtype
            return CONVERSION if not x.implicit and kind is not None and kind.is_float != DTYPES[x.to].is_float else 0.0
        if isinstance(x, Apply):
            exact = x.fn == "/" and (x.exact or self.op.exact)
            return BY_NUMBER if exact and _is_number(x.args[1]) else cost_of(x.fn) + (DIVISION if exact else 0.0)
        return 0.0

    def _reduce(self, x: Reduce, turns: tuple[Range, ...], share: float, work: dict[tuple[Range, ...], float]) -> None:
        around = (*turns, *ranges_of(x))
        n = terms(x)
        product = x.kind == "sum" and isinstance(x.body, Apply) and x.body.fn == "*" and (n is None or n >= PRODUCT)
        if self.factors is not None and product:
            assert isinstance(x.body, Apply)
            self.out.cores.append((self.factors, Amount(around, 1.0)))
            if self.taken is not None:
                work[around] = work.get(around, 0.0) + share * (self.taken / self.tiled + ROW)
                return
            for f in x.body.args:
                if plain_read(f) is None and not any(f is g for g in self.ready):
                    self._walk(f, around, share / self.tiled, work)
            return
        if n is not None and unrolled(x) and isinstance(x.body, Apply) and x.body.fn == "*" and x.kind == "sum" and all(map(self._is_code, x.body.args)):
            work[around] = work.get(around, 0.0) + share * CODE_TAP
            return
        work[around] = work.get(around, 0.0) + share
        if self.columns:
            narrow = all(self.op.tensors[r.tensor].dtype.bytes == 1 for r in reads_in(x.body))
            work[around] += share * (COLUMN_OF_BYTES if narrow else COLUMN)
        if self.loops and not unrolled(x):
            work[around] += share * sum(self._apart(r, x) for r in reads_in(x.body) if self._is_apart(r))
        for part in (x.where, x.body):
            if part is not None:
                self._walk(part, around, share, work)

    def _is_code(self, factor: Expr) -> bool:
        """Whether a factor is a byte that is read."""
        read = plain_read(factor)
        return read is not None and self.op.tensors[read.tensor].dtype.name in BYTES

    def _apart(self, r: Read, x: Reduce) -> float:
        """What a load of the innermost loop costs more; neighbours in memory are moved together."""
        size, last = self.op.tensors[r.tensor].dtype.bytes, r.indices[-1]
        costs = TOGETHER if isinstance(last, Name) and last.name == ranges_of(x)[-1].index else APART
        return costs.get(size, costs[2])

    def _is_apart(self, r: Read) -> bool:
        """Whether neighbouring threads read an operand at places that are apart."""
        if self.op.tensors[r.tensor].kind != "operand" or not r.indices or not self.across:
            return False
        return self.across not in names_in(r.indices[-1]) and any(self.across in names_in(i) for i in r.indices[:-1])


def _is_number(x: Expr) -> bool:
    while isinstance(x, Cast):
        x = x.arg
    return isinstance(x, FloatLit | IntLit)
