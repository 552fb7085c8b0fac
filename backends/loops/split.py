"""A loop in two versions: the interior, where every border read is known to be inside, and the edges.

The body is written once into a block that is thrown away, to learn which indices ask for a border; from those that are sums with the loop's variable the
interior is computed. What the trial moved to outer blocks stays there and is found again. Both edges are one loop of two turns, so that their code exists once.
"""
from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.borders import inside
from pipelink_ir.backends.loops.emit import Affine, Atom, i64, key_of
from pipelink_ir.backends.loops.lower import Lowering, Need
from pipelink_ir.backends.loops.reads import RUNNING
from pipelink_ir.ir.dtypes import I64

if TYPE_CHECKING:
    from collections.abc import Iterator

Body = Callable[[Atom], None]


@contextmanager
def running(lo: Lowering, name: str | None, assured: set[tuple[Affine, str]], needs: list[Need] | None) -> Iterator[None]:
    """Makes a loop the one that is being split."""
    saved = lo.running, lo.assured, lo.needs
    lo.running, lo.assured, lo.needs = name, assured, needs
    try:
        yield
    finally:
        lo.running, lo.assured, lo.needs = saved


def trial(lo: Lowering, hint: str, body: Body) -> tuple[form.Ref, list[form.Stmt], list[Need]]:
    """The body written into a block of its own, and what it asks of the loop's variable."""
    e = lo.e
    needs: list[Need] = []
    name = e.fresh(hint)
    with e.frame("loop", nonempty=True) as f:
        e.depth[name] = len(e.frames) - 1
        with running(lo, name, set(), needs):
            body(form.Ref(name, I64))
    usable = [n for n in needs if all(t == RUNNING or e.depth.get(t, 0) < len(e.frames) for t, _ in n.index[1])]
    return form.Ref(name, I64), f.stmts, usable


def split(lo: Lowering, hint: str, begin: Atom, end: Atom, body: Body, vector: bool) -> None:
    """Loops over [begin, end), a part of an axis that has places, that together run `body` for each index."""
    e = lo.e
    lo.row_needs = []
    var, stmts, needs = trial(lo, hint, body)
    inner_row, row = _row(lo)
    if not needs and not row:
        e.raw(form.For(var.name, begin, end, i64(1), tuple(stmts), "serial", vector))
        return
    first, last, assured = interior(lo, begin, end, needs)

    def middle(known: set[tuple[Affine, str]]) -> None:
        with e.loop(hint, first, last, nonempty=True, vector=vector) as i, running(lo, i.name, known, None):
            body(i)

    if row:
        # Rows at the border choose between a value and the constant at every place; all others do not.
        with e.when(inner_row):
            middle(assured | row)
        with e.when(e.op("not", inner_row)):
            middle(assured)
    else:
        middle(assured)
    if needs:
        edges(lo, hint, begin, first, last, end, body)


def _row(lo: Lowering) -> tuple[Atom, set[tuple[Affine, str]]]:
    """The condition under which no outer index asks for a constant, and what holds then."""
    e = lo.e
    known: set[tuple[Affine, str]] = set()
    conds: list[Atom] = []
    for index, n in lo.row_needs:
        key = (e.form_of(index), str(key_of(n)))
        if e.depth[index.name] < len(e.frames) and all(e.depth.get(name, 0) < len(e.frames) for name, _ in key[0][1]) and key not in known:
            known.add(key)
            conds.append(inside(e, index, n))
    lo.row_needs = []
    return e.all_of(conds), known


def edges(lo: Lowering, hint: str, begin: Atom, first: Atom, last: Atom, end: Atom, body: Body) -> None:
    """What lies before and after the interior."""
    e = lo.e
    with e.loop(f"{hint}_edge", i64(0), i64(2), nonempty=True) as side:
        left = e.op("==", side, i64(0))
        with e.loop(hint, e.choose(left, begin, last), e.choose(left, first, end), nonempty=True) as i, running(lo, None, set(), None):
            body(i)


def interior(lo: Lowering, begin: Atom, end: Atom, needs: list[Need]) -> tuple[Atom, Atom, set[tuple[Affine, str]]]:
    """The part of [begin, end) where all needs are met, and what may be taken for granted there."""
    e = lo.e
    first, last = begin, end
    assured: set[tuple[Affine, str]] = set()
    for need in needs:
        key = (need.index, str(key_of(need.extent)))
        if key in assured:
            continue
        assured.add(key)
        constant, terms = need.index
        factor = dict(terms)[RUNNING]
        rest = e.index((constant, tuple(t for t in terms if t[0] != RUNNING)))
        low, high = _solve(lo, factor, rest, need.extent)
        first, last = e.op("max", first, low), e.op("min", last, high)
    first = e.op("min", first, end)
    return first, e.op("max", first, last), assured


def _solve(lo: Lowering, factor: int, rest: Atom, extent: Atom) -> tuple[Atom, Atom]:
    """[low, high): where 0 <= factor * i + rest < extent."""
    e = lo.e
    if factor < 0:
        # factor * i + rest >= 0 is i <= rest / -factor; … < extent is i > (rest - extent) / -factor.
        f = i64(-factor)
        return e.op("+", e.op("floordiv", e.op("-", rest, extent), f), i64(1)), e.op("+", e.op("floordiv", rest, f), i64(1))
    f = i64(factor)
    return e.op("neg", e.op("floordiv", rest, f)), e.op("neg", e.op("floordiv", e.op("-", rest, extent), f))
