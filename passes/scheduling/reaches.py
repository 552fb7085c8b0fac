"""What a definition reads, and how far away from its own place: the indices of reads as distances along the axes of a kernel's result."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pipelink_ir.ir.nodes import Apply, Cast, Expr, IntLit, Name, Range, Read, Reduce
from pipelink_ir.ir.typed import Piece, Tensor, TypedOperator
from pipelink_ir.ir.walk import children
from pipelink_ir.passes.scheduling.counts import bounds, known, ranges_of

MIRRORED = ("reflect", "reflect101")


@dataclass(frozen=True, slots=True)
class At:
    """An index: low..high places from the place along an axis of the result, or constants."""

    axis: int | None
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Seen:
    tensor: str
    at: tuple[At | None, ...]
    access: tuple[str, ...]


class Declined(Exception):
    """This is no chain of stencils."""


class Reads:
    """What evaluating a value reads, through locals that are evaluated where they are read."""

    def __init__(self, op: TypedOperator, inline: Callable[[str], bool], root: Piece) -> None:
        self.op, self.inline, self.root = op, inline, root
        self.found: dict[Seen, None] = {}

    def of(self, piece: Piece, env: Mapping[str, At | None]) -> list[Seen]:
        self.found = {}
        self._walk(piece.value, env)
        return list(self.found)

    def _walk(self, x: Expr, env: Mapping[str, At | None]) -> None:
        if isinstance(x, Reduce):
            inner = dict(env)
            for r in ranges_of(x):
                for c in children(r):
                    self._walk(c, inner)
                b = bounds(r)
                inner[r.index] = None if b is None else At(None, b[0], max(b[0], b[1] - 1))
            for part in (x.where, x.body):
                if part is not None:
                    self._walk(part, inner)
            if x.rank is not None:
                self._walk(x.rank, env)
            return
        if isinstance(x, Read):
            self._read(x, env)
        for c in children(x):
            self._walk(c, env)

    def _read(self, x: Read, env: Mapping[str, At | None]) -> None:
        t, access = self.op.tensors[x.tensor], x.access or ("inside",) * len(x.indices)
        seen = Seen(x.tensor, tuple(_index(i, env) for i in x.indices), access)
        if seen in self.found:
            return
        self.found[seen] = None
        if self.inline(x.tensor):
            if len(t.pieces) != 1 or t.pieces[0].holes:
                raise Declined
            at = [self._mapped(t, k, i, word) for k, (i, word) in enumerate(zip(seen.at, access, strict=True))]
            self._walk(t.pieces[0].value, {a.index: i for a, i in zip(t.pieces[0].axes, at, strict=True)})

    def _mapped(self, t: Tensor, k: int, at: At | None, word: str) -> At | None:
        """Where a local is evaluated that is read through a border."""
        border = t.border[k]
        if word != "border" or border is None or at is None:
            return at
        if at.axis is None or not same_box(t, k, self.root.axes[at.axis]) or border.mode == "wrap":
            return None
        if border.mode in MIRRORED:
            most = max(-at.low, at.high, 0)
            return At(at.axis, -most, most)
        return At(at.axis, min(at.low, 0), max(at.high, 0))


def _index(x: Expr, env: Mapping[str, At | None]) -> At | None:
    if isinstance(x, IntLit):
        return At(None, x.value, x.value)
    if isinstance(x, Name):
        return env.get(x.name)
    if isinstance(x, Cast) and x.implicit:
        return _index(x.arg, env)
    if isinstance(x, Apply) and x.fn in ("+", "-", "*") and len(x.args) == 2:
        a, b = (_index(y, env) for y in x.args)
        if a is None or b is None:
            return None
        if x.fn == "*":
            return _times(a, b)
        return _plus(a, b if x.fn == "+" else _negative(b))
    if isinstance(x, Apply) and x.fn == "neg":
        a = _index(x.args[0], env)
        return None if a is None else _plus(At(None, 0, 0), _negative(a))
    return None


def _negative(a: At) -> At | None:
    return At(None, -a.high, -a.low) if a.axis is None else None


def _plus(a: At, b: At | None) -> At | None:
    if b is None or (a.axis is not None and b.axis is not None):
        return None
    return At(a.axis if b.axis is None else b.axis, a.low + b.low, a.high + b.high)


def _times(a: At, b: At) -> At | None:
    if a.axis is not None or b.axis is not None:
        return None
    ends = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
    return At(None, min(ends), max(ends))


def same_box(t: Tensor, k: int, axis: Range) -> bool:
    """Whether axis `k` of a tensor has the places of an axis of the result."""
    low = axis.lo
    return t.shape[k][1] == axis.hi and (t.shape[k][0] == low or known(t.shape[k][0]) == known(low) is not None)
