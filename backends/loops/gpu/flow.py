"""Where queries, keys and values lie for the copy engine, and in which order tiles of queries are gone through (sm_90a)."""
from __future__ import annotations

from typing import TYPE_CHECKING

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.emit import TRUE, Atom, i64
from pipelink_ir.backends.loops.form_attend import AXES, Lines
from pipelink_ir.backends.loops.nests import Axis
from pipelink_ir.backends.loops.reads import extent, low
from pipelink_ir.ir.dtypes import I64
from pipelink_ir.ir.nodes import Read
from pipelink_ir.passes.scheduling.attention_flow import MOST, Lying
from pipelink_ir.passes.scheduling.views import Looker, View

if TYPE_CHECKING:
    from pipelink_ir.backends.loops.gpu.attention import Flash

GROUP, TOGETHER = 8, 1 << 22
"""So many heads, or terms of keys, are gone through together where tiles of queries see different numbers of keys: what they read stays in the L2, and a
multiprocessor gets long tiles and short ones."""
MAP_WORDS = 48
"""i64 that a block needs for what it tells the copy engine."""


def fit_to_flow(flash: Flash) -> Atom:
    """Whether the sizes and the memory of a call are fit for the copy engine."""
    lo, e, lying = flash.lo, flash.e, flash.way.lying
    assert not isinstance(lying, str), "it is known how the factors lie"
    conds: list[Atom] = [e.op("<=", e.op("max", flash.terms.n, flash.column.n), i64(MOST))] if flash.way.open else []
    for one in lying:
        t = lo.op.tensors[one.tensor]
        conds.append(e.op("==", e.op("mod", extent(lo, t, len(t.shape) - 1), i64(8)), i64(0)))
        conds.append(_aligned(flash, one.tensor))
    if traded(flash):
        t, k = flash.jobs[0][0], len(flash.axes) - 1
        conds += [e.op("==", e.op("mod", n, i64(8)), i64(0)) for n in (flash.column.n, extent(lo, t, k), e.op("-", flash.column.lo, low(lo, t, k)))]
        conds.append(_aligned(flash, t.name))
    out: Atom = TRUE
    for c in conds:
        if not isinstance(c, form.Const) or not c.value:
            out = c if out is TRUE else e.op("and", out, c)
    return out


def traded(flash: Flash) -> bool:
    """Whether results are traded between threads and stored eight at a time."""
    tensor, piece = flash.jobs[0]
    return tensor.dtype.is_float and tensor.dtype.bytes == 2 and not piece.holes and flash.found.column == len(flash.axes) - 1


def _aligned(flash: Flash, tensor: str) -> Atom:
    lo, e, key = flash.lo, flash.e, ("aligned", tensor)
    found = e.find(key)
    if found is None:
        found = e.bind("aligned", form.Aligned(lo.buffer(lo.op.tensors[tensor]), 16))
        e.remember(key, found)
    return found  # type: ignore[no-any-return]


def lines_of(flash: Flash, lying: Lying, inner: Axis) -> Lines:
    """A factor as it lies, without what stands behind its terms or columns."""
    lo, e = flash.lo, flash.e
    t = lo.op.tensors[lying.tensor]
    last = len(t.shape) - 1
    steps: list[Atom] = [i64(1)]
    for k in range(last, 0, -1):
        steps.append(e.op("*", steps[-1], extent(lo, t, k)))
    sizes: list[Atom] = [extent(lo, t, k) for k in range(last, -1, -1)]
    sizes[0] = e.op("+", e.op("-", inner.lo, low(lo, t, last)), inner.n)
    more = AXES - len(sizes)
    # An axis of one place may be anywhere; the engine wants steps of 16 bytes all the same.
    return Lines(t.name, (*sizes, *([i64(1)] * more)), (*steps, *([i64(8)] * more)), last - lying.row)


def place_of(flash: Flash, lying: Lying, view: View, inner: Axis, row: Atom) -> tuple[Atom, ...]:
    """The place in a factor where its line `row` begins."""
    lo, e, x = flash.lo, flash.e, view.expr
    assert isinstance(x, Read), "a factor is a read"
    t, look = lo.op.tensors[lying.tensor], Looker(lo.op, lo.plan.local)
    at: list[Atom] = []
    for k, index in enumerate(x.indices):
        seen = look.of(View(index, view.env))
        here = inner.lo if k == len(x.indices) - 1 else row if k == lying.row else flash.atom(seen, flash.fixed) if not isinstance(seen, View) else \
            lo.index(seen.expr, flash.env(seen, flash.fixed))
        at.append(e.op("-", here, low(lo, t, k)))
    return (*reversed(at), *([i64(0)] * (AXES - len(at))))


def words_of(flash: Flash) -> form.Expr:
    """Memory for the maps of all blocks there may be, as the size of a buffer: of symbols alone."""
    total: form.Expr = i64(1)
    for k in (*flash.found.batch, flash.found.row):
        n: form.Expr = form.Op("max", (plain(flash, flash.axes[k].n), i64(0)), I64)
        if k == flash.found.row:
            n = form.Op("floordiv", (form.Op("+", (n, i64(flash.cut.queries - 1)), I64), i64(flash.cut.queries)), I64)
        total = form.Op("*", (total, n), I64)
    # They begin at a multiple of 128 bytes.
    return form.Op("+", (form.Op("*", (total, i64(MAP_WORDS)), I64), i64(16)), I64)


def plain(flash: Flash, x: form.Expr) -> form.Expr:
    """An expression with the values of names put in."""
    if isinstance(x, form.Ref):
        value = next((s.value for s in flash.e.frames[0].stmts if isinstance(s, form.Let) and s.name == x.name), None)
        return x if value is None else plain(flash, value)
    return form.Op(x.fn, tuple(plain(flash, a) for a in x.args), x.dtype) if isinstance(x, form.Op) else x


def by_length(flash: Flash, p: Atom, down: Atom, heads: Atom) -> tuple[Atom, Atom]:
    """The head and the tile of queries of turn `p`, where tiles see different numbers of keys: groups of heads after each other, in each the tiles in order of
    what they see, first up and then down by turns, at last down. Neighbouring turns then take about as long, and the last ones are short."""
    e, lying = flash.e, flash.way.lying
    assert not isinstance(lying, str), "it is known how the factors lie"
    keys = extent(flash.lo, flash.lo.op.tensors[lying[1].tensor], lying[1].row)
    each = e.op("max", i64(GROUP), e.op("floordiv", i64(TOGETHER), e.op("*", e.op("max", keys, i64(1)), i64(flash.cut.terms))))
    whole = e.op("*", down, each)
    group, inside = e.op("quot", p, whole), e.op("rest", p, whole)
    first = e.op("*", group, each)
    wide = e.op("min", e.op("-", heads, first), each)
    number = e.op("quot", inside, wide)
    groups = e.op("floordiv", e.op("+", heads, e.op("-", each, i64(1))), each)
    up = e.op("==", e.op("rest", e.op("-", groups, group), i64(2)), i64(0))
    return e.op("+", first, e.op("rest", inside, wide)), e.choose(up, number, e.op("-", e.op("-", down, i64(1)), number))
