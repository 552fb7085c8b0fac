"""Neighbours in memory at a place that is computed: they are read by words, wherever they begin.

    let r = f32(x[i]) ; let g = f32(x[i + 1]) ; let b = f32(x[i + 2])
becomes
    alloc some[3] ; move some[0] = x[i] x 3 anywhere ; let r = f32(some[0]) ; …

A pixel of three bytes is then one access, mostly, instead of three, and all accesses of a place are under way before the first is waited for. Where a place
reads at `i` and at another that may be the next one, as it is unless a border clamps it, both are one:

    if j == i + 1 { move some[0] = x[3 * i] x 6 anywhere } else { move some[0] = x[3 * i] x 3 anywhere ; move some[3] = x[3 * j] x 3 anywhere }
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.contents import blocks, exprs, makes
from pipelink_ir.backends.loops.emit import Atom, Emitter, i64, key_of
from pipelink_ir.backends.loops.gpu.pack import Terms, groups
from pipelink_ir.backends.loops.lower import Lowering
from pipelink_ir.backends.loops.reads import extent
from pipelink_ir.backends.loops.tidy import refs
from pipelink_ir.ir.dtypes import BOOL, I64, DType

NARROW = 2
"""Bytes of an element at most."""
Near = tuple[str, str]
"""Two places by name, the second of which may be the next one."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Loads of neighbours, by the numbers of their statements: from where, what their places have in common, the first place, and how a thread has them."""

    buffer: str
    terms: Terms
    index: form.Expr
    loads: tuple[int, ...]
    dtype: DType


class Taker:
    """Puts the loads of a block together, and those of the blocks inside."""

    def __init__(self, lo: Lowering) -> None:
        self.lo, self.e = lo, lo.e
        self.buffers: set[str] = set()

    def conditions(self) -> list[Atom]:
        """What has to hold for the block: buffers are whole words."""
        e: Emitter = self.e
        out: list[Atom] = []
        for name in sorted(self.buffers):
            t = self.lo.op.tensors[name]
            out.append(e.bind("aligned", form.Aligned(name, form.WORD), 0))
            total: Atom = i64(1)
            for k in range(len(t.shape)):
                total = e.op("*", total, extent(self.lo, t, k))
            out.append(e.op("==", e.op("rest", e.op("max", total, i64(0)), i64(form.WORD // t.dtype.bytes)), i64(0)))
        return out

    def taken(self, stmts: Sequence[form.Stmt]) -> list[form.Stmt]:
        """The statements of a block with its loads put together."""
        out = [form.If(s.cond, tuple(self.taken(s.then)), tuple(self.taken(s.other))) if isinstance(s, form.If) else s for s in stmts]
        found = self._stretches(out)
        before = {k for s in found for k in needed(out, (s.index,)) or ()}
        found = [s for s in found if not before & set(s.loads) and needed(out, (s.index,)) is not None]
        moves: list[form.Stmt] = []
        for near, some in self._by_distance(found).items():
            together: list[form.Stmt] = []
            apart: list[form.Stmt] = []
            for parts in some:
                name = self.e.memory(parts[0].buffer.rsplit(".", 1)[-1] + "_some")
                loads = [k for s in parts for k in s.loads]
                moves.append(form.Alloc(name, parts[0].dtype, i64(len(loads))))
                together.append(form.Move(name, i64(0), parts[0].buffer, parts[0].index, len(loads), True))
                apart += [form.Move(name, i64(k * len(s.loads)), s.buffer, s.index, len(s.loads), True) for k, s in enumerate(parts)]
                for n, k in enumerate(loads):
                    old = out[k]
                    assert isinstance(old, form.Let)
                    out[k] = form.Let(old.name, form.Load(name, i64(n), parts[0].dtype, parts[0].dtype))
                self.buffers.add(parts[0].buffer)
            if near is None:
                moves += together
                continue
            first, second = (form.Ref(n, I64) for n in near)
            word = self.e.fresh("near")
            moves.append(form.Let(word, form.Op("==", (second, form.Op("+", (first, i64(1)), I64)), BOOL)))
            moves.append(form.If(form.Ref(word, BOOL), tuple(together), tuple(apart)))
        early = needed(out, [x for s in moves for x in _all(s)]) or ()
        return [*(out[k] for k in early), *moves, *(s for k, s in enumerate(out) if k not in early)] if moves else out

    def _stretches(self, stmts: list[form.Stmt]) -> list[Stretch]:
        """What lies side by side, a word's worth at a time."""
        out = []
        for (buffer, terms), places in groups(self.e, stmts, self._loaded).items():
            most = form.WORD // self.lo.op.tensors[buffer].dtype.bytes
            left = sorted(places)
            while left:
                n = next((k for k in range(1, min(len(left), most)) if left[k] != left[0] + k), min(len(left), most))
                if n > 1:
                    first = _load(stmts[places[left[0]]])
                    out.append(Stretch(buffer, terms, first.index, tuple(places[c] for c in left[:n]), first.dtype))
                left = left[n:]
        return out

    def _loaded(self, s: form.Stmt) -> tuple[str, form.Expr] | None:
        """The operand and the index that a statement loads narrow elements from."""
        if not isinstance(s, form.Let) or not isinstance(s.value, form.Load) or s.value.memory.bytes > NARROW:
            return None
        buffer = s.value.buffer
        return (buffer, s.value.index) if buffer in self.lo.used and buffer not in self.lo.written else None

    # ------------------------------------------------------------------------------------------------------------------- pairs

    def _by_distance(self, found: Sequence[Stretch]) -> dict[Near | None, list[tuple[Stretch, ...]]]:
        """The stretches alone, or by twos of which the second may follow the first, under what has to be the next place for that."""
        out: dict[Near | None, list[tuple[Stretch, ...]]] = {}
        left = list(found)
        while left:
            a = left.pop(0)
            for b in left:
                near = self._near(a, b)
                if near is not None:
                    left.remove(b)
                    out.setdefault(near, []).append((a, b))
                    break
            else:
                out.setdefault(None, []).append((a,))
        return out

    def _near(self, a: Stretch, b: Stretch) -> Near | None:
        """The places that have to follow each other for two stretches to do so."""
        n = len(a.loads)
        if a.buffer != b.buffer or len(b.loads) != n or 2 * n * self.lo.op.tensors[a.buffer].dtype.bytes > form.WORD:
            return None
        if self.e.form_of(_atom(a.index))[0] != self.e.form_of(_atom(b.index))[0]:
            return None
        one, two = set(a.terms) - set(b.terms), set(b.terms) - set(a.terms)
        if len(one) != 1 or len(two) != 1:
            return None
        (first, factor), (second, other) = *one, *two
        return (first, second) if factor == other == n and self._follows(form.Ref(first, I64), form.Ref(second, I64)) else None

    def _follows(self, a: form.Expr, b: form.Expr) -> bool:
        """Whether a value is another one and 1, or becomes that and is clamped like it."""
        if isinstance(a, form.Ref) and isinstance(b, form.Ref):
            (c, terms), (d, others) = self.e.form_of(a), self.e.form_of(b)
            if a.dtype is I64 and terms == others:
                return d == c + 1
            value = self.e.values.get(b.name)
            if isinstance(value, form.Op) and value.fn == "+" and any(_is_one(x) for x in value.args) and a in value.args:
                return True
            before = self.e.values.get(a.name)
            return before is not None and value is not None and self._follows(before, value)
        if isinstance(a, form.Convert) and isinstance(b, form.Convert):
            return a.to is b.to and self._follows(a.arg, b.arg)
        if isinstance(a, form.Op) and isinstance(b, form.Op) and a.fn == b.fn and a.fn in ("min", "max"):
            same = {key_of(_atom(x)) for x in a.args} & {key_of(_atom(x)) for x in b.args}
            mine, theirs = ([x for x in y.args if key_of(_atom(x)) not in same] for y in (a, b))
            return len(mine) == len(theirs) == 1 and self._follows(mine[0], theirs[0])
        return False


def _atom(x: form.Expr) -> Atom:
    assert isinstance(x, form.Ref | form.Const)
    return x


def _is_one(x: form.Expr) -> bool:
    return isinstance(x, form.Const) and x.value == 1


def _load(s: form.Stmt) -> form.Load:
    assert isinstance(s, form.Let)
    assert isinstance(s.value, form.Load)
    return s.value


def _all(s: form.Stmt) -> Iterable[form.Expr]:
    """The expressions of a statement and of those inside."""
    yield from exprs(s)
    for b in blocks(s):
        for inner in b:
            yield from _all(inner)


def needed(stmts: Sequence[form.Stmt], some: Iterable[form.Expr]) -> list[int] | None:
    """The statements of a block that have to come before expressions can be evaluated; None where these are not all of them pure."""
    lets: Mapping[str, int] = {s.name: k for k, s in enumerate(stmts) if isinstance(s, form.Let)}
    others = {n for s in stmts if not isinstance(s, form.Let) for n in makes(s)}
    found: set[int] = set()
    todo = [n for x in some for n in refs(x)]
    while todo:
        n = todo.pop()
        if n in others:
            return None
        if n in lets and lets[n] not in found:
            found.add(lets[n])
            todo += [m for x in exprs(stmts[lets[n]]) for m in refs(x)]
    return sorted(found)
