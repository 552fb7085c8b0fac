"""The statement of the loop form that is attention by the copy engine and the matrix instructions of warpgroups (sm_90a)."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pipelink_ir.backends.loops.form_expr import Expr
from pipelink_ir.ir.dtypes import DType

AXES = 5
"""Axes of a tensor that the copy engine knows."""


@dataclass(frozen=True, slots=True)
class Flow:
    """How a block computes attention: `teams` of 128 threads with 64 queries each, which are the threads of the block for all other statements; the emitter
    adds threads that feed them. `keys` at a time; `stages` tiles of keys, and of values, are there or on their way. Scores have at most `terms` terms, a
    multiple of 16, values at most `columns` columns, a multiple of 32."""

    factors: DType
    values: DType
    terms: int
    columns: int
    teams: int = 2
    keys: int = 128
    stages: int = 2

    @property
    def rows(self) -> int:
        return 64 * self.teams

    @property
    def threads(self) -> int:
        return 128 * self.teams

    @property
    def sums(self) -> int:
        """Sums of each thread."""
        return self.columns // 2

    @property
    def shared(self) -> int:
        """Bytes of shared memory, as `prelude/attend.cuh` counts them."""
        terms, columns = (-(-n // 64) * 64 for n in (self.terms, self.columns))
        tiles = 2 * self.rows * terms * 2 + self.stages * self.keys * 2 * (terms + columns)
        return 1024 + tiles + 384 + 8 * (4 * self.stages + 4) + 8

    def place(self, thread: int, number: int) -> tuple[int, int]:
        """The row and the column of sum `number` of a thread."""
        lane = thread % 32
        return thread // 32 * 16 + lane // 4 + number % 4 // 2 * 8, number // 4 * 8 + lane % 4 * 2 + number % 2


@dataclass(frozen=True, slots=True)
class Lines:
    """Queries, keys or values as they lie in a buffer, from its first element on: five axes, the fastest first, along which lie the terms (or columns); `row`
    is the axis along which lie the queries or keys. `steps` are elements from one place to the next. What lies outside is zero."""

    buffer: str
    sizes: tuple[Expr, ...]
    steps: tuple[Expr, ...]
    row: int

    def put(self, f: Callable[[Expr], Expr]) -> Lines:
        """The same with other expressions."""
        return replace(self, sizes=tuple(map(f, self.sizes)), steps=tuple(map(f, self.steps)))

    def text(self, at: tuple[Expr, ...], f: Callable[[Expr], str]) -> str:
        """As it is printed, with the place of a tile."""
        sizes, steps, place = (", ".join(map(f, x)) for x in (self.sizes, self.steps, at))
        return f"%{self.buffer}[{sizes} steps {steps} along {self.row}] at [{place}]"


@dataclass(frozen=True, slots=True)
class Attend:
    """Attention of one tile of queries. Each thread gets in its own scratch, which loops of kind `each` alone read, for its rows (`Flow.place`) in `sums` the
    values of the keys that the query sees, each times exp(scale * (its score - `top`)), in `top` the largest score (-inf where there is none; which, if one
    is NaN), and in `total` its part of the sum of the exponentials: the four threads that have a row hold parts of one sum. A key that a query does not see
    counts for nothing, whatever its score and value are. Exponentials are as precise as those of `Online`, and rounded to the dtype of the values where they
    are multiplied with them.

    The tile begins at `q_at`. Query `i` of it sees the keys from `begin` and from `low + i` on, below `end` and `high + i`; key 0 is at `k_at`, its value at
    `v_at`. If there is `chosen`, it sees those of them alone whose bits are set in its bytes from `chosen_at` on, where key 0 has the lowest one: `begin` is a
    multiple of 128 then and `chosen_at` one of 16, and for a row that sees no key each part of `total` is -1. `maps` are 48 i64 of memory for each block and 16
    more. Stands once in a kernel, in the body of its `block` loop itself; sizes, steps and scale
    are known before that loop."""

    sums: str
    top: str
    total: str
    flow: Flow
    q: Lines
    k: Lines
    v: Lines
    scale: Expr
    q_at: tuple[Expr, ...]
    k_at: tuple[Expr, ...]
    v_at: tuple[Expr, ...]
    begin: Expr
    end: Expr
    low: Expr
    high: Expr
    maps: str
    chosen: str | None = None
    chosen_at: Expr | None = None

    @property
    def targets(self) -> tuple[str, ...]:
        return self.sums, self.top, self.total

    @property
    def sources(self) -> tuple[str, ...]:
        """Scratch that is read: none is."""
        return ()

    @property
    def place(self) -> tuple[Expr, ...]:
        """What differs from tile to tile."""
        return (*self.q_at, *self.k_at, *self.v_at, self.begin, self.end, self.low, self.high, *(() if self.chosen_at is None else (self.chosen_at,)))

    @property
    def numbers(self) -> tuple[Expr, ...]:
        """All expressions that are places and sizes."""
        return (*(x for p in (self.q, self.k, self.v) for x in (*p.sizes, *p.steps)), *self.place)

    @property
    def exprs(self) -> tuple[Expr, ...]:
        return (*self.numbers, self.scale)

    def put(self, f: Callable[[Expr], Expr]) -> Attend:
        """The same with other expressions."""
        q_at, k_at, v_at = (tuple(map(f, x)) for x in (self.q_at, self.k_at, self.v_at))
        chosen_at = None if self.chosen_at is None else f(self.chosen_at)
        return replace(self, q=self.q.put(f), k=self.k.put(f), v=self.v.put(f), scale=f(self.scale), q_at=q_at, k_at=k_at, v_at=v_at,
                       begin=f(self.begin), end=f(self.end), low=f(self.low), high=f(self.high), chosen_at=chosen_at)

    def text(self, f: Callable[[Expr], str]) -> str:
        """As it is printed."""
        r, factors = self.flow, ", ".join(p.text(at, f) for p, at in ((self.q, self.q_at), (self.k, self.k_at), (self.v, self.v_at)))
        bits = "" if self.chosen is None or self.chosen_at is None else f" of %{self.chosen}[{f(self.chosen_at)}]"
        return (f"attend %{self.sums}, %{self.top}, %{self.total} = {factors}, scale {f(self.scale)}, keys {f(self.begin)}..{f(self.end)}{bits} "
                f"in {f(self.low)}..{f(self.high)} by query, {r.rows} by {r.keys}, {r.terms} terms, {r.columns} columns, {r.stages} stages, maps %{self.maps}")
