"""Which attention flows through shared memory by the copy engine of sm_90a, the fastest way there is there.

Queries, keys and values must be read as they lie in memory: each an operand whose last axis has the terms (or the columns) and one of whose other axes has the
queries (or the keys), while the places along the rest depend on neither. Scores must be a positive multiple of their product, and which keys a query sees be
a matter of bounds, and of conditions on the key alone: a kernel before writes these as bits. That lines begin at multiples of 16 bytes is found out at run
time; where they do not, `mma.sync` does the work.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from pipelink_ir.ir.dtypes import DType
from pipelink_ir.ir.gpus import GPUS
from pipelink_ir.ir.nodes import Read
from pipelink_ir.ir.targets import Arch
from pipelink_ir.ir.typed import TypedOperator
from pipelink_ir.ir.walk import reads_in
from pipelink_ir.passes.scheduling.counts import known
from pipelink_ir.passes.scheduling.views import Leaf, Looker, View

if TYPE_CHECKING:
    from pipelink_ir.passes.scheduling.attention_search import Found

AXES = 5
"""Axes that the copy engine knows."""
MOST = 128
"""Most terms of a score, and most columns of the values."""
WIDTHS = (64, MOST)
"""Terms and columns of the kernels that there are."""
TILE = 128
"""Keys of a tile."""

PROCESSORS = GPUS[90].processors
"""Of an H100 or H200. Elsewhere the choice between two and three teams may be the worse one."""


@dataclass(frozen=True, slots=True)
class Lying:
    """How a factor lies in memory: along which axis of its tensor the queries or keys are."""

    tensor: str
    row: int


def flows(op: TypedOperator, local: Callable[[str], bool], f: Found, dtypes: tuple[DType, DType], arch: Arch | None, key: Leaf,
          term: Leaf) -> tuple[Lying, Lying, Lying] | str:
    """How queries, keys and values lie, or why attention cannot flow. `dtypes`: of the factors of scores, and of values."""
    if arch is None or (arch.sm, arch.suffix) != (90, "a"):
        return "it is for sm_90a"
    if f.rounded is not None:
        return "its weights are rounded once they are divided"
    if f.scale is None:
        return "scores are more than a positive multiple of a product"
    if f.counted or any(c.kind == "other" and c.by_row for c in f.conditions):
        return "which keys a query sees is no matter of bounds or of the key alone"
    sides = ((f.q, Leaf("axis", f.row), term, dtypes[0]), (f.k, key, term, dtypes[0]), (f.v, key, Leaf("axis", f.column), dtypes[1]))
    found = [_lying(op, local, view, row, last, dtype) for view, row, last, dtype in sides]
    q, k, v = found
    if q is None or k is None or v is None:
        word = ("queries", "keys", "values")[found.index(None)]
        return f"the {word} are not read as they lie in an operand"
    if masked(f) and not _from_zero(op, local, f, k):
        return "conditions on the key read through borders, or keys do not count from 0"
    return q, k, v


def masked(f: Found) -> bool:
    """Whether something else than bounds says which keys a query sees."""
    return any(c.kind == "other" for c in f.conditions)


def teams_of(heads: Sequence[int | None], queries: int | None, *deep: int | None) -> int:
    """How many teams share a block. Three hide each other's work better, which takes a tenth off (measured), but their registers hold no more than 64 terms and
    columns, and 192 queries have to fit the sizes: these must be known."""
    if queries is None or None in heads or any(n is None or n > WIDTHS[0] for n in deep):
        return 2

    def rounds(teams: int) -> int:
        return -(-prod(n or 0 for n in heads) * -(-queries // (64 * teams)) // PROCESSORS)

    return 3 if 9 * 3 * rounds(3) < 10 * 2 * rounds(2) else 2


def _from_zero(op: TypedOperator, local: Callable[[str], bool], f: Found, keys: Lying) -> bool:
    """Whether keys have numbers from 0 on, and what chooses among them can be computed for each key by itself."""
    look = Looker(op, local)
    reads = (v.expr for c in f.conditions if c.view is not None for v in look.walk(c.view) if isinstance(v.expr, Read))
    return known(op.tensors[keys.tensor].shape[keys.row][0]) == 0 and all(word in ("", "inside", "guarded") for x in reads for word in x.access)


def _lying(op: TypedOperator, local: Callable[[str], bool], view: View, row: Leaf, last: Leaf, dtype: DType) -> Lying | None:
    x = view.expr
    if not isinstance(x, Read) or any(word not in ("", "inside") for word in x.access):
        return None
    t = op.tensors[x.tensor]
    if local(t.name) or t.kind == "result" or t.dtype is not dtype or not 2 <= len(x.indices) <= AXES:
        return None
    look = Looker(op, local)
    views = [look.of(View(i, view.env)) for i in x.indices]
    rows = [n for n, v in enumerate(views) if v == row]
    if views[-1] != last or len(rows) != 1:
        return None
    others = [v for n, v in enumerate(views[:-1]) if n != rows[0]]
    below = {leaf for v in others for leaf in look.leaves(v)}
    if any(leaf.kind != "axis" or leaf in (row, last) for leaf in below) or any(isinstance(v, View) and any(reads_in(v.expr)) for v in others):
        return None
    return Lying(t.name, rows[0])
