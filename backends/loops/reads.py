"""Reads: addresses, borders, run-time checks, and locals that are evaluated where they are read."""
from __future__ import annotations

from collections.abc import Sequence

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.borders import inside, mapped, outside
from pipelink_ir.backends.loops.emit import FALSE, TRUE, Affine, Atom, i64, key_of
from pipelink_ir.backends.loops.fold import must
from pipelink_ir.backends.loops.lower import Env, Lowering, Need
from pipelink_ir.ir.diagnostics import internal_error
from pipelink_ir.ir.dtypes import I64
from pipelink_ir.ir.nodes import Read
from pipelink_ir.ir.source import Span
from pipelink_ir.ir.typed import Piece, Tensor
from pipelink_ir.ir.walk import reads_in

RUNNING = "*"
"""Stands in an affine form for the variable of the loop that is being split."""


def read(lo: Lowering, x: Read, env: Env) -> Atom:
    """The value that `x` reads."""
    t = lo.op.tensors[x.tensor]
    at = tuple(lo.index(i, env) for i in x.indices)
    access = x.access or ("inside",) * len(at)
    # A proof under guards holds where the guards do: such a value is not shared with a place where they may not hold, which lazy frames see to.
    key = ("read", t.name, access, tuple(map(key_of, at)))
    found = lo.e.find(key)
    if found is None:
        found = _guarded(lo, t, at, access, x.span)
        lo.e.remember(key, found)
    return found  # type: ignore[no-any-return]


def _guarded(lo: Lowering, t: Tensor, at: tuple[Atom, ...], access: tuple[str, ...], span: Span) -> Atom:
    """The read behind its run-time checks."""
    e = lo.e
    checked = [(k, e.op("-", at[k], low(lo, t, k)), extent(lo, t, k)) for k, word in enumerate(access) if word == "check"]
    if not checked:
        return _bordered(lo, t, at, access, span)
    oks = [inside(e, i, n) for _, i, n in checked]

    def failed() -> Atom:
        for (k, i, n), ok in zip(checked, oks, strict=True):
            with e.when(e.op("not", ok)):
                first = key_of(low(lo, t, k))
                text = f"index {{0}} of axis {k} of '%{t.name}' is outside 0..{{1}}" if first == key_of(i64(0)) else \
                    f"index {{0}} of axis {k} of '%{t.name}', counted from its first, is outside 0..{{1}}"
                lo.fail(span, text, i, n)
        return must(0, t.dtype.compute)

    return e.branch(e.all_of(oks), lambda: _bordered(lo, t, at, access, span), failed, t.dtype.compute)


def _bordered(lo: Lowering, t: Tensor, at: tuple[Atom, ...], access: tuple[str, ...], span: Span) -> Atom:
    """The read with what its borders answer."""
    e = lo.e
    if t.name in lo.staged:
        # Its border was asked when it was staged.
        return _at(lo, t, at)
    places, outs, empty = list(at), [], []
    for k, word in enumerate(access):
        border = t.border[k]
        if word != "border" or border is None:
            continue
        first, n = low(lo, t, k), extent(lo, t, k)
        index = e.op("-", at[k], first)
        if assured(lo, index, n):
            continue
        note(lo, index, n)
        if border.mode == "constant" and border.value is not None:
            outs.append((outside(e, index, n), e.convert(lo.value(border.value, lo.root), t.dtype.compute)))
            note_row(lo, index, n)
        if not lo.is_full(n):
            empty.append((k, n))
        places[k] = e.op("+", first, mapped(e, border.mode, index, n))
    inner = tuple(places)
    if empty:
        return _maybe_empty(lo, t, inner, outs, empty, span)
    if not outs:
        return _at(lo, t, inner)
    if lo.plan.place_of(t.name) == "inline" and not lo.quiet_tensor(t):
        return _lazily(lo, t, inner, outs)
    value = _at(lo, t, inner)
    for out, constant in reversed(outs):
        value = e.choose(out, constant, value)
    return value


def _lazily(lo: Lowering, t: Tensor, at: tuple[Atom, ...], outs: list[tuple[Atom, Atom]]) -> Atom:
    """Borders with constants around something that is evaluated only where it is needed."""
    if not outs:
        return _at(lo, t, at)
    out, constant = outs[0]
    return lo.e.branch(out, lambda: constant, lambda: _lazily(lo, t, at, outs[1:]), t.dtype.compute)


def _maybe_empty(lo: Lowering, t: Tensor, at: tuple[Atom, ...], outs: list[tuple[Atom, Atom]], empty: list[tuple[int, Atom]], span: Span) -> Atom:
    """A border read along axes that may have the size 0 at run time: no index is inside, which is an error under any border."""
    e = lo.e

    def failed() -> Atom:
        fail_empty(lo, t, empty, span)
        return must(0, t.dtype.compute)

    return e.branch(e.all_of([e.op(">=", n, i64(1)) for _, n in empty]), lambda: _lazily(lo, t, at, outs), failed, t.dtype.compute)


def fail_empty(lo: Lowering, t: Tensor, axes: list[tuple[int, Atom]], span: Span) -> None:
    """The error of a border on the first of these axes that has no places. A local that is stored has places beside an empty axis, too, which nobody asks for:
    in its kernel this is an error only if a result that depends on it has elements."""
    e = lo.e
    with e.when(_asked_for(lo)):
        for k, n in axes:
            with e.when(e.op("<", n, i64(1))):
                lo.fail(span, f"axis {k} of '%{t.name}' has size 0: there is nothing to read")


def _asked_for(lo: Lowering) -> Atom:
    """Whether a result that depends on what this kernel writes has elements."""
    e, names = lo.e, set(lo.written)
    out: Atom = FALSE
    for group in lo.op.order:
        tensors = [lo.op.tensors[n] for n in group.tensors]
        if any(r.tensor in names for t in tensors for p in t.pieces for r in reads_in(p.value)):
            names.update(group.tensors)
    for t in lo.op.results:
        if t.name in lo.written:
            return TRUE
        if t.name in names:
            some = e.all_of([e.op(">=", extent(lo, t, k), i64(1)) for k in range(len(t.shape))])
            out = some if out is FALSE else e.op("or", out, some)
    return out


# --------------------------------------------------------------------------------------------------------- interior and edges


def starred(lo: Lowering, index: Atom) -> Affine:
    """An index as a sum of names, with the running variable under a name that all versions of a loop share."""
    constant, terms = lo.e.form_of(index)
    return constant, tuple(sorted((RUNNING if n == lo.running else n, c) for n, c in terms))


def assured(lo: Lowering, index: Atom, n: Atom) -> bool:
    """Whether the loop that is being written runs only where this index is inside."""
    if isinstance(index, form.Const) and isinstance(n, form.Const):
        return 0 <= int(index.value) < int(n.value)
    return bool(lo.assured) and (starred(lo, index), str(key_of(n))) in lo.assured


def note(lo: Lowering, index: Atom, n: Atom) -> None:
    """Asks the loop that is being split to keep this index inside in its interior."""
    if lo.needs is not None and any(name == lo.running for name, _ in lo.e.form_of(index)[1]):
        lo.needs.append(Need(starred(lo, index), n))


def note_row(lo: Lowering, index: Atom, n: Atom) -> None:
    """Notes a `constant` border that does not depend on the running variable: rows for which it is inside need no choice."""
    if lo.needs is not None and isinstance(index, form.Ref) and all(name != lo.running for name, _ in lo.e.form_of(index)[1]):
        lo.row_needs.append((index, n))


# ------------------------------------------------------------------------------------------------------------------- values


def _at(lo: Lowering, t: Tensor, at: tuple[Atom, ...]) -> Atom:
    """The value at a place that exists."""
    if lo.plan.place_of(t.name) == "inline":
        return evaluate(lo, t, at)
    found = lo.e.find(("stored", t.name, tuple(map(key_of, at))))
    if found is not None:
        return found  # type: ignore[no-any-return]
    if t.name in lo.staged:
        memory, place = lo.staged[t.name](at)
        return lo.e.load(memory, place, t.dtype, False, t.name.rsplit(".", 1)[-1])
    if lo.plan.place_of(t.name) == "row":
        outer = len(lo.op.tensors[lo.plan.roots[t.name]].shape) - 1
        scratch = lo.e.find(("row", t.name, tuple(map(key_of, at[:outer]))))
        if scratch is None:
            internal_error(f"the row of '%{t.name}' that is read is not the one that was computed")
        return lo.e.load(scratch, row_address(lo, t, at[outer:]), t.dtype, False, t.name.rsplit(".", 1)[-1])
    index = address(lo, t, at)

    def load() -> Atom:
        return lo.e.load(lo.buffer(t), index, t.dtype, t.name not in lo.written, t.name.rsplit(".", 1)[-1])

    if lo.there is not TRUE and t.name in lo.overwritten:
        return lo.e.branch(lo.there, load, lambda: must(0, t.dtype.compute), t.dtype.compute)
    return load()


def evaluate(lo: Lowering, t: Tensor, at: tuple[Atom, ...]) -> Atom:
    """A local's value from its definition, its indices replaced."""
    key = ("inline", t.name, tuple(map(key_of, at)))
    found = lo.e.find(key)
    if found is None:
        found = _pieces(lo, t, at, t.pieces if t.name not in lo.chosen else (t.pieces[lo.chosen[t.name]],))
        lo.e.remember(key, found)
    return found  # type: ignore[no-any-return]


def _pieces(lo: Lowering, t: Tensor, at: tuple[Atom, ...], pieces: tuple[Piece, ...]) -> Atom:
    """The value from the piece that holds the place. The last needs no test: pieces cover their tensor."""
    piece, rest = pieces[0], pieces[1:]

    def here() -> Atom:
        env = Env({a.index: i for a, i in zip(piece.axes, at, strict=True)})
        return lo.e.convert(lo.value(piece.value, env), t.dtype.compute)

    if not rest:
        return here()
    cond = holds(lo, t, piece, at)
    if isinstance(cond, form.Const):
        return here() if cond.value else _pieces(lo, t, at, rest)
    if lo.quiet_tensor(t):
        return lo.e.choose(cond, here(), _pieces(lo, t, at, rest))
    return lo.e.branch(cond, here, lambda: _pieces(lo, t, at, rest), t.dtype.compute)


def holds(lo: Lowering, t: Tensor, piece: Piece, at: tuple[Atom, ...]) -> Atom:
    """Whether a place of the tensor belongs to a piece."""
    e, conds = lo.e, []
    for k, (axis, i) in enumerate(zip(piece.axes, at, strict=True)):
        if axis.lo is not None and axis.lo != t.shape[k][0]:
            conds.append(e.op(">=", i, lo.index(axis.lo, lo.root)))
        if axis.hi != t.shape[k][1]:
            conds.append(e.op("<", i, lo.index(axis.hi, lo.root)))
    return e.all_of([*conds, *(no_hole(lo, piece, at))])


def no_hole(lo: Lowering, piece: Piece, at: tuple[Atom, ...]) -> list[Atom]:
    """For each hole of a piece, that the place is not in it."""
    e = lo.e
    return [e.op("not", e.all_of([e.op("==", at[axis], i64(value)) for axis, value in hole])) for hole in piece.holes]


# ---------------------------------------------------------------------------------------------------------------- addresses


def low(lo: Lowering, t: Tensor, k: int) -> Atom:
    """The first place of axis `k`."""
    return lo.index(t.shape[k][0], lo.root)


def extent(lo: Lowering, t: Tensor, k: int) -> Atom:
    """The size of axis `k`."""
    return lo.extent(*t.shape[k])


def address(lo: Lowering, t: Tensor, at: tuple[Atom, ...]) -> Atom:
    """The element of a dense row-major buffer at a place, as a sum whose outer parts are outermost."""
    e = lo.e
    total: Atom = i64(0)
    stride: Atom = i64(1)
    for k in reversed(range(len(at))):
        total = e.op("+", total, times(lo, e.op("-", at[k], low(lo, t, k)), stride))
        if k:
            stride = e.op("*", stride, extent(lo, t, k), hint="stride")
    return total


def row_address(lo: Lowering, t: Tensor, at: Sequence[Atom]) -> Atom:
    """The element of scratch that holds the last axes of a tensor."""
    e = lo.e
    total: Atom = i64(0)
    stride: Atom = i64(1)
    for k in reversed(range(len(t.shape) - len(at), len(t.shape))):
        total = e.op("+", total, times(lo, e.op("-", at[k - len(t.shape)], low(lo, t, k)), stride))
        stride = e.op("*", stride, extent(lo, t, k), hint="stride")
    return total


def times(lo: Lowering, index: Atom, stride: Atom) -> Atom:
    """index * stride, distributed over the names of the index, so that neighbours' addresses differ by constants and share their products."""
    e = lo.e
    constant, terms = e.form_of(index)
    if isinstance(stride, form.Const) or (len(terms) == 1 and not constant) or len(terms) > 3:
        return e.op("*", index, stride)
    total = e.op("*", stride, i64(constant))
    for name, factor in terms:
        total = e.op("+", total, e.op("*", e.op("*", form.Ref(name, I64), stride), i64(factor)))
    return total
