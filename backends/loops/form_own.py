"""Statements of the loop form about sums that the threads of a block hold each for itself: products, and a softmax that goes on from tile to tile.

Each changes scratch of the uniform statements that is not shared (`form.Alloc`), which loops of kind `each` may read and store to between them; all threads
run it together. Thread and number of an element tell its place (`form.Tiles.place`), so `Tiles.warps` has one column: a row belongs to four neighbouring
threads of one warp. They stand here and not among the others of `form.py` since what looks at statements need not know them one by one: `target` is what is
changed, `sources` what is read besides, `exprs` and `put` are for whoever rewrites expressions.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pipelink_ir.backends.loops.form_attend import Attend
from pipelink_ir.backends.loops.form_expr import Expr
from pipelink_ir.backends.loops.form_tiles import Factor, Tiles


@dataclass(frozen=True, slots=True)
class Dot:
    """Adds to `target` the product of two factors of `depth` terms; `fresh`: it is that product, whatever was there. The left factor lies in shared memory,
    or is the scratch of an earlier product of the same rows, whose columns are the terms and are rounded to `tiles.left`."""

    target: str
    tiles: Tiles
    left: Factor | str
    right: Factor
    depth: int
    fresh: bool = False

    @property
    def targets(self) -> tuple[str, ...]:
        return (self.target,)

    @property
    def sources(self) -> tuple[str, ...]:
        return (self.left if isinstance(self.left, str) else self.left.buffer, self.right.buffer)

    @property
    def exprs(self) -> tuple[Expr, ...]:
        return (*(() if isinstance(self.left, str) else (self.left.index,)), self.right.index)

    def put(self, f: Callable[[Expr], Expr]) -> Dot:
        """The same with other expressions."""
        left = self.left if isinstance(self.left, str) else replace(self.left, index=f(self.left.index))
        return replace(self, left=left, right=replace(self.right, index=f(self.right.index)))

    def text(self, f: Callable[[Expr], str]) -> str:
        """As it is printed."""
        t = self.tiles
        sides = [f"%{s} as {t.left}" if isinstance(s, str) else f"%{s.buffer}[{f(s.index)}.. pitch {s.pitch}{'' if s.along else ' across'}]"
                 for s in (self.left, self.right)]
        return (f"own %{self.target} {'=' if self.fresh else '+='} {sides[0]} * {sides[1]} over {self.depth} terms, "
                f"warps {t.warps[0]}, tiles {t.tiles[0]}x{t.tiles[1]}")


@dataclass(frozen=True, slots=True)
class Online:
    """A softmax along rows goes on with more of them. Where `top` was the largest of a row so far, the largest of that and of its `scores` is from now on;
    scores become the exponentials of what they are above it; `total` and the `sums` of each thread are multiplied with the exponential of what the old top
    is above the new one; each thread adds its own scores to `total`. Where the top is -inf, exponentials are 0. A NaN wins. `scores` are `rows` by `columns`
    tiles, `sums` `rows` by `wide`; `top` and `total` have an element for each of two rows of a tile. Scores are taken `scale` times, which is positive; an
    exponential is within 2^-20 of itself, one common factor of a row aside, and below 2^-126 may be 0."""

    scores: str
    top: str
    total: str
    sums: str | None
    rows: int
    columns: int
    wide: int
    scale: Expr

    @property
    def targets(self) -> tuple[str, ...]:
        return (self.scores, self.top, self.total, *(() if self.sums is None else (self.sums,)))

    @property
    def sources(self) -> tuple[str, ...]:
        return self.targets

    @property
    def exprs(self) -> tuple[Expr, ...]:
        return (self.scale,)

    def put(self, f: Callable[[Expr], Expr]) -> Online:
        """The same with another scale."""
        return replace(self, scale=f(self.scale))

    def text(self, f: Callable[[Expr], str]) -> str:
        """As it is printed."""
        sums = "" if self.sums is None else f", %{self.sums}"
        tiles = f"{self.rows}x{self.columns}, {self.wide}"
        return f"own softmax %{self.scores} with %{self.top}, %{self.total}{sums}, tiles {tiles}, scale {f(self.scale)}"


@dataclass(frozen=True, slots=True)
class AcrossRow:
    """The four threads that a row belongs to combine each of `count` f32 that they hold: `sum` or `max`; afterwards all four hold the result."""

    target: str
    fn: str
    count: int

    @property
    def targets(self) -> tuple[str, ...]:
        return (self.target,)

    @property
    def sources(self) -> tuple[str, ...]:
        return (self.target,)

    @property
    def exprs(self) -> tuple[Expr, ...]:
        return ()

    def put(self, f: Callable[[Expr], Expr]) -> AcrossRow:
        """The same: it has no expressions."""
        return self

    def text(self, f: Callable[[Expr], str]) -> str:
        """As it is printed."""
        return f"own %{self.target} = {self.fn} across rows, {self.count}"


Own = Dot | Online | AcrossRow | Attend
"""All of them."""


def place(tiles: Tiles, thread: int, number: int) -> tuple[int, int]:
    """The row and the column of element `number` of the sums of a thread, where warps have whole rows."""
    lane, tile = thread % 32, number // 4
    down, across = tile // tiles.tiles[1], tile % tiles.tiles[1]
    return thread // 32 * tiles.tiles[0] * 16 + down * 16 + lane // 4 + number % 4 // 2 * 8, across * 8 + lane % 4 * 2 + number % 2
