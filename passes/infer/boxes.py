"""The box of every tensor and of every piece: what is written, what readers need, what constant positions take away.

A result has its declared shape. An axis of a local has the extent that its pieces write (`s < 2*L+1`), or else the hull of what its readers ask for;
readers are therefore looked at first. A local that somebody reads at an index without bounds (one that depends on data) has no box: it is put
into its readers instead (`Inline`).
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pipelink_ir.ir.affine import normal
from pipelink_ir.ir.contracts import border_of
from pipelink_ir.ir.diagnostics import Note
from pipelink_ir.ir.dtypes import BOOL, I64, DType
from pipelink_ir.ir.nodes import Apply, Expr, IntLit, Name, Range, Read
from pipelink_ir.ir.prover import Facts
from pipelink_ir.ir.typed import Border, Group, Piece, Tensor
from pipelink_ir.ir.walk import names_in, reads_in, substitute
from pipelink_ir.passes.infer.access import Bound, Context, Shape, Walker, both, comparison, depends_on_data, interval, plain_range, run_of, written
from pipelink_ir.passes.infer.cover import check_pieces
from pipelink_ir.passes.infer.drafts import Draft, DraftPiece, Drafts, as_index
from pipelink_ir.passes.infer.expressions import Faulty, Unknown, coerce, type_expr
from pipelink_ir.passes.infer.groups import offset
from pipelink_ir.passes.infer.text import show

ZERO = IntLit(0, dtype=I64)
FAR = 2**31 - 1
"""A bound this far out is no bound: it only says that the index is an i32."""


class Inline(Exception):
    """A local has no box and has to be put into its readers."""

    def __init__(self, name: str, read: Read) -> None:
        self.name, self.read = name, read
        super().__init__(name)


@dataclass(slots=True)
class Boxes:
    """Works out boxes and access, readers first."""

    drafts: Drafts
    groups: list[Group]
    generic: bool
    facts: Facts = field(init=False)
    free: bool = field(init=False)
    """Whether nothing is known of dimensions but that none is negative."""
    bounds: dict[str, list[Bound]] = field(default_factory=dict)
    wanted: dict[tuple[str, int], list[tuple[Expr, Expr]]] = field(default_factory=dict)
    asking: dict[tuple[str, int], Read] = field(default_factory=dict)
    """The first read of each axis of a local whose extent follows from its readers."""
    done: dict[str, Tensor] = field(default_factory=dict)
    ring: Mapping[str, int] = field(default_factory=dict)
    """The tensors of the present group if it is a recurrence, with the axis that runs in order."""
    reader: tuple[str, DraftPiece] | None = None
    borders: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Of the operands that were read."""

    def __post_init__(self) -> None:
        drafts = self.drafts
        facts = Facts(drafts.scope.dims, define=self._definition, interval=lambda r: interval(r, self._memory_dtype))
        shapes = [d for o in drafts.operands for d in o.type.dims] + [d for t in drafts.tensors.values() for d in t.dims or ()]
        for d in shapes:
            # A tensor exists, so none of its dimensions is negative.
            if not isinstance(d, Name | IntLit):
                facts = facts.with_condition(comparison(">=", as_index(d), ZERO))
        for w in drafts.conditions:
            if self.generic and facts.refuted(w) and not facts.contradictory():
                drafts.report.error("shape", w.span, f"'{show(w)}' never holds", (), "change the condition: as it is, the operator can never be called")
            facts = facts.with_condition(w)
        self.facts = facts
        conditioned = {n for w in drafts.conditions for n in names_in(w)}
        self.free = all(isinstance(d, Name | IntLit) for d in shapes) and not conditioned & set(drafts.scope.dims) and not facts.impossible()

    def _memory_dtype(self, name: str) -> str | None:
        info = self.drafts.scope.tensors.get(name)
        return info.dtype.name if info is not None and info.operand and info.dtype is not None else None

    def _definition(self, read: Read) -> Expr | None:
        """What a local says at the indices of a read: a guard holds through a definition."""
        t = self.drafts.tensors.get(read.tensor)
        if t is None or t.kind != "local" or len(t.pieces) != 1 or t.dtype is None or t.dtype.is_float or t.name in self.ring:
            return None
        piece = t.pieces[0]
        if any(a.position is not None for a in piece.axes) or any(r.tensor == t.name for r in reads_in(piece.value)):
            return None
        return substitute(piece.value, {a.index: i for a, i in zip(piece.axes, read.indices, strict=True)})

    # ------------------------------------------------------------------------------------------------------------ boxes

    def run(self) -> dict[str, Tensor]:
        """All results and locals with their boxes, pieces and annotated values."""
        for o in self.drafts.operands:
            self.bounds[o.name] = [(ZERO, as_index(d)) for d in o.type.dims]
        for t in self.drafts.tensors.values():
            self.bounds[t.name] = self._declared(t)
        for group in reversed(self.groups):
            self.ring = dict(zip(group.tensors, group.recurrence.axis, strict=True)) if group.recurrence is not None else {}
            left = list(group.tensors)
            while left:
                ready = [n for n in left if self._settle(n)]
                if not ready and self._unread(group):
                    for n in left:
                        self.bounds[n] = [b or (ZERO, ZERO) for b in self.bounds[n]]
                    continue
                if not ready:
                    self._need_extent(left[0])
                    return self.done
                for n in ready:
                    self._walk(self.drafts.tensors[n])
                    left.remove(n)
        return self.done

    def _declared(self, t: Draft) -> list[Bound]:
        if t.dims is not None:
            return [(ZERO, d) for d in t.dims]
        return [self._declared_axis(t, k) for k in range(t.rank)]

    def _declared_axis(self, t: Draft, axis: int) -> Bound:
        los: list[Expr] = []
        his: list[Expr] = []
        for p in t.pieces:
            a = p.axes[axis]
            if a.position is not None:
                los.append(IntLit(a.position, dtype=I64))
                his.append(IntLit(a.position + 1, dtype=I64))
            elif a.hi is not None:
                los.append(a.lo if a.lo is not None else ZERO)
                his.append(a.hi)
            elif t.border[axis][0] != "none":
                extent = self._extent_of_index(a.index)
                if extent is None:
                    return None
                los.append(ZERO)
                his.append(extent)
            else:
                return None
        if any(p.axes[axis].position is None for p in t.pieces):
            # Positions lie inside the ranges: where a range is empty, its base case is not there either.
            los, his = ([e for e, p in zip(ends, t.pieces, strict=True) if p.axes[axis].position is None] for ends in (los, his))
        if any(depends_on_data(e, frozenset()) for e in (*los, *his)):
            self.drafts.report.error("shape", t.span, f"the extent of '%{t.name}' depends on data", (), "give it the largest extent, and guard with 'select'")
            t.faulty = True
            return None
        return self._hull("min", los), self._hull("max", his)

    def _extent_of_index(self, index: str) -> Expr | None:
        """The extent of the result's axis that an index of this name runs along: what a local with a border extends over."""
        for t in self.drafts.tensors.values():
            for p in t.pieces if t.dims is not None else ():
                for k, a in enumerate(p.axes):
                    if a.index == index and a.position is None and t.dims is not None:
                        return t.dims[k]
        return None

    def _hull(self, fn: str, ends: list[Expr]) -> Expr:
        """The least or the greatest of several ends, without those that another one provably beats."""
        if all(isinstance(e, IntLit) for e in ends):
            return IntLit((min if fn == "min" else max)(e.value for e in ends if isinstance(e, IntLit)), dtype=I64)
        ends = list({str(e): e for e in map(normal, ends)}.values())
        order = "<=" if fn == "min" else ">="
        kept: list[Expr] = []
        for e in ends:
            if any(self.facts.prove(comparison(order, k, e)) for k in kept):
                continue
            kept = [k for k in kept if not self.facts.prove(comparison(order, e, k))] + [e]
        out = kept[0]
        for e in kept[1:]:
            out = Apply(fn, (out, e))
        return as_index(out)

    def _settle(self, name: str) -> bool:
        """Give a tensor the box that its readers ask for; False while some of them have not been looked at."""
        t = self.drafts.tensors[name]
        bounds = self.bounds[name]
        if all(b is not None for b in bounds):
            return True
        readers = [n for n in self.ring if n != name and n not in self.done
                   and any(r.tensor == name for p in self.drafts.tensors[n].pieces for r in reads_in(p.value))]
        if readers:
            return False
        for k, b in enumerate(bounds):
            if b is not None:
                continue
            asked = self.wanted.get((name, k), [])
            if not asked:
                if name in self.ring:
                    return False
                # Nobody reads it: an empty box.
                bounds[k] = (ZERO, ZERO)
                continue
            los, his = [a for a, _ in asked], [b for _, b in asked]
            for p in t.pieces:
                a = p.axes[k]
                if a.position is not None:
                    los.append(IntLit(a.position, dtype=I64))
                    his.append(IntLit(a.position + 1, dtype=I64))
            bounds[k] = (self._hull("min", los), self._hull("max", his))
        return True

    def _unread(self, group: Group) -> bool:
        """Whether nothing outside a ring reads any of it, results included: its boxes may be empty."""
        tensors = [self.drafts.tensors[n] for n in group.tensors]
        readers = [p for t in self.drafts.tensors.values() if t.name not in group.tensors for p in t.pieces]
        return all(t.kind == "local" for t in tensors) and not any(r.tensor in group.tensors for p in readers for r in reads_in(p.value))

    def _need_extent(self, name: str) -> None:
        t = self.drafts.tensors[name]
        axis = next(k for k, b in enumerate(self.bounds[name]) if b is None)
        index = next((p.axes[axis].index for p in t.pieces if p.axes[axis].position is None), "t")
        self.drafts.report.error("recurrence" if name in self.ring else "shape", t.pieces[0].target,
                                 f"the extent of axis {axis} of '%{name}' cannot be inferred", (), f"write it on the left side, as in '{index} < N'")

    def _want(self, name: str, axis: int, index: Expr, c: Context, read: Read) -> None:
        if self.reader is not None and name in self.ring and self.reader[0] == name:
            own = self.reader[1].axes[axis]
            if own.position is None and offset(index, own.index) == 0:
                return
            self._need_extent(name)
            return
        run = run_of(index, c, self.drafts.scope.dims) if c.held is c.base else None
        if run is not None:
            self.asking.setdefault((name, axis), read)
            self.wanted.setdefault((name, axis), []).append(run)
            return
        lo, hi = c.held.bounds(index, self.drafts.scope.dims)
        if lo is None or hi is None:
            lo, hi = written(index, c, self.drafts.scope.dims)
        if lo is None or hi is None or _far(lo) or _far(hi):
            if c.held.contradictory():
                return
            raise Inline(name, read)
        self.asking.setdefault((name, axis), read)
        self.wanted.setdefault((name, axis), []).append(self._clipped(lo, hi, *c.base.bounds(index, self.drafts.scope.dims)))

    def _why(self, index: Expr) -> list[Note]:
        """Where it comes from that an index of the local being defined runs so far: from the first who reads the local there."""
        if self.reader is None:
            return []
        name, piece = self.reader
        asking = {a.index: self.asking.get((name, k)) for k, a in enumerate(piece.axes) if a.position is None and a.hi is None}
        return [Note(f"'{n}' runs as far as '%{name}' is read here", read.span) for n in sorted(names_in(index)) if (read := asking.get(n)) is not None]

    def _clipped(self, lo: Expr, hi: Expr, first: Expr | None, last: Expr | None) -> tuple[Expr, Expr]:
        """What guards leave of an index, and no more than there is without them: behind `h == 0` it is 0 .. 1, but not of an empty axis."""
        if first is not None and not self.facts.prove(comparison(">=", lo, first)):
            lo = Apply("max", (lo, first))
        if last is not None and not self.facts.prove(comparison("<=", hi, last)):
            hi = Apply("min", (hi, last))
        return lo, hi

    # ----------------------------------------------------------------------------------------------------------- pieces

    def _walk(self, t: Draft) -> None:
        pieces: list[Piece] = []
        box = [b for b in self.bounds[t.name] if b is not None]
        for p in t.pieces:
            axes, holes = self._axes(t, p, box)
            facts = self.facts
            for k, r in enumerate(axes):
                assert r.lo is not None
                facts = facts.with_range(r.index, r.lo, r.hi)
                if p.axes[k].position is not None:
                    facts = facts.with_condition(comparison("<", IntLit(p.axes[k].position or 0, dtype=I64), box[k][1]))
                    facts = facts.with_condition(comparison("==", Name(r.index, dtype=I64), IntLit(p.axes[k].position or 0, dtype=I64)))
            for hole in holes:
                facts = facts.with_condition(_hole(axes, hole), holds=False)
            self.reader = (t.name, p)
            walker = Walker(self.drafts.report, self.generic, self._shape, self._want, self._why, frozenset(self.drafts.scope.dims),
                            self.ring)
            free = self.free and not holes and all(a.position is None for a in p.axes) and all(map(plain_range, axes))
            value = walker.walk(p.value, Context(facts, facts, runs={r.index: (r.lo or ZERO, r.hi) for r in axes}, free=free))
            pieces.append(Piece(tuple(axes), value, holes, p.span))
        self.reader = None
        if not t.faulty:
            check_pieces(t, box, pieces, self.facts, self.drafts.report)
        assert t.dtype is not None
        self.done[t.name] = Tensor(t.name, t.kind, t.dtype, tuple(box), self.typed_border(t.border, t.dtype.compute), tuple(pieces), t.span)

    def typed_border(self, border: tuple[tuple[str, Expr | None], ...], dtype: DType) -> tuple[Border | None, ...]:
        """Borders with typed constants."""
        out: list[Border | None] = []
        for mode, value in border:
            if mode == "none":
                out.append(None)
                continue
            typed = None
            if value is not None:
                try:
                    typed = type_expr(value, self.drafts.scope)
                    if typed.dtype is not None and typed.dtype.is_float and not dtype.is_float:
                        self.drafts.report.error("dtype", value.span, f"a float stands around values of {dtype.name}: only a written cast narrows", (),
                                                 f"write an integer, or a cast: {dtype.name}(…)" if dtype.is_int else "write true or false")
                        raise Faulty
                    typed = coerce(typed, dtype, self.drafts.scope)
                except (Faulty, Unknown):
                    typed = None
            out.append(Border(mode, typed))
        return tuple(out)

    def _shape(self, name: str) -> Shape:
        border: tuple[str, ...]
        t = self.drafts.tensors.get(name)
        if t is not None:
            border, span, kind = tuple(b[0] for b in t.border), t.span, t.kind
        else:
            o = next(o for o in self.drafts.operands if o.name == name)
            if name not in self.borders:
                modes = border_of(self.drafts.op, o.name, len(o.type.dims), True, self.drafts.report)
                self.borders[name] = tuple(mode for mode, _ in modes)
            border, span, kind = self.borders[name], o.span, "operand"
        return Shape(tuple(self.bounds[name]), border, span, kind)

    def _axes(self, t: Draft, p: DraftPiece, box: list[tuple[Expr, Expr]]) -> tuple[list[Range], tuple[tuple[tuple[int, int], ...], ...]]:
        """The ranges of one piece: what is written or the whole axis, inside the box, without the positions that win at its ends."""
        axes: list[Range] = []
        for k, a in enumerate(p.axes):
            lo, hi = box[k]
            if a.position is not None:
                at: Expr = IntLit(a.position, dtype=I64)
                end: Expr = IntLit(a.position + 1, dtype=I64)
                if not self.facts.prove(comparison("<=", end, hi)):
                    end = as_index(Apply("min", (end, hi)))
                if not self.facts.prove(comparison("<=", lo, at)):
                    at = as_index(Apply("max", (at, lo)))
                axes.append(Range(_unused(p, k), at, end, span=a.span, dtype=I64))
                continue
            if a.hi is not None:
                first, last = a.lo if a.lo is not None else ZERO, a.hi
                if t.kind == "result":
                    first, last = self._clip(first, last, hi)
                lo, hi = as_index(first), as_index(last)
            axes.append(Range(a.index, lo, hi, span=a.span, dtype=I64))
        return self._without_positions(t, p, axes)

    def _clip(self, lo: Expr, hi: Expr, extent: Expr) -> tuple[Expr, Expr]:
        """A range of a result, kept inside its shape: nothing is written elsewhere whatever the sizes are."""
        nonempty = self.facts.with_condition(comparison("<", lo, hi))
        if not nonempty.prove(comparison(">=", lo, ZERO)):
            lo = Apply("max", (lo, ZERO))
        if not nonempty.prove(comparison("<=", hi, extent)):
            hi = Apply("min", (hi, extent))
        return lo, hi

    def _without_positions(self, t: Draft, p: DraftPiece, axes: list[Range]) -> tuple[list[Range], tuple[tuple[tuple[int, int], ...], ...]]:
        holes: list[tuple[tuple[int, int], ...]] = []
        own = {(k, a.position) for k, a in enumerate(p.axes) if a.position is not None}
        for other in t.pieces:
            if other is p:
                continue
            positions = tuple((k, a.position) for k, a in enumerate(other.axes) if a.position is not None)
            # The piece with more positions is the more special one, and wins.
            if not positions or not own < set(positions):
                continue
            if all(a.position is not None or a.hi is None for a in other.axes) or self._whole(t, other):
                holes.append(tuple((k, v) for k, v in positions if (k, v) not in own))
        slabs = sorted({h[0] for h in holes if len(h) == 1})
        for axis, value in slabs:
            lo = normal(axes[axis].lo or ZERO)
            if isinstance(lo, IntLit) and lo.value == value:
                axes[axis] = replace(axes[axis], lo=IntLit(value + 1, dtype=I64))
        for axis, value in reversed(slabs):
            hi = normal(axes[axis].hi)
            if isinstance(hi, IntLit) and hi.value == value + 1:
                axes[axis] = replace(axes[axis], hi=IntLit(value, dtype=I64))
        rest = [h for h in holes if not self._missed(axes, h)]
        return axes, tuple(rest)

    def _whole(self, t: Draft, p: DraftPiece) -> bool:
        """Whether a piece with positions runs over the whole box in its other axes."""
        for k, a in enumerate(p.axes):
            bound = self.bounds[t.name][k]
            if a.position is None and a.hi is not None and bound is not None:
                lo = a.lo if a.lo is not None else ZERO
                if not self.facts.prove(both(comparison("<=", lo, bound[0]), comparison(">=", a.hi, bound[1]))):
                    return False
        return True

    def _missed(self, axes: list[Range], hole: tuple[tuple[int, int], ...]) -> bool:
        """Whether a constant position lies outside the ranges anyway."""
        for k, v in hole:
            lo, hi = axes[k].lo or ZERO, axes[k].hi
            at = IntLit(v, dtype=I64)
            if self.facts.prove(comparison("<", at, lo)) or self.facts.prove(comparison(">=", at, hi)):
                return True
        return False


def _unused(p: DraftPiece, axis: int) -> str:
    """A name for the index of a constant position: nothing reads it."""
    name = f"at{axis}"
    while any(a.index == name for a in p.axes):
        name += "_"
    return name


def _hole(axes: list[Range], hole: tuple[tuple[int, int], ...]) -> Expr:
    out: Expr | None = None
    for k, v in hole:
        here = Apply("==", (Name(axes[k].index, dtype=I64), IntLit(v, dtype=I64)), dtype=BOOL)
        out = here if out is None else both(out, here)
    assert out is not None
    return out


def _far(e: Expr) -> bool:
    return isinstance(e, IntLit) and not -FAR < e.value < FAR


