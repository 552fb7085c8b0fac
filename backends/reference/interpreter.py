"""Interpretation of one typed operator with NumPy: the meaning of PLIR, as plainly as it can be written down.

Every local is materialised over its box, every definition is evaluated over its whole index grid at once (in parts where the grid is large). A mask goes
down with every evaluation: `select`, `and`, `or`, filters and holes narrow it, so that nothing is evaluated, checked or able to fail where it is not taken.

A read that the prover called `inside` or `guarded` and that leaves its tensor is an internal error: the oracle keeps the prover honest. What data
can do wrong (an index that is checked, a reduction over nothing) is an `ExecutionError`, raised once a result needs it: a place of a local that cannot be
computed is remembered as faulty, and whatever reads it is faulty too.

With `wide` every float is computed as float64, only narrower floats are rounded where the program rounds them: the same program with f32 exact.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import Any

import numpy as np

from pipelink_ir.backends.reference.borders import MAPS
from pipelink_ir.backends.reference.frame import Array, Frame, append_axis, at, extent
from pipelink_ir.backends.reference.reductions import reduce_last, select_last
from pipelink_ir.ir import scalar
from pipelink_ir.ir.diagnostics import Diagnostic, ExecutionError, internal_error
from pipelink_ir.ir.dtypes import DTYPES, F32, F64, DType
from pipelink_ir.ir.evaluate import evaluate_int
from pipelink_ir.ir.functions import REDUCTIONS
from pipelink_ir.ir.nodes import Apply, Cast, Const, Expr, FloatLit, IntLit, Name, Range, Read, Reduce
from pipelink_ir.ir.source import Span
from pipelink_ir.ir.typed import Border, Group, Piece, Recurrence, Tensor, TypedOperator
from pipelink_ir.ir.walk import deep, names_in

LIMIT = 1 << 22
"""So many elements are evaluated at once."""

Box = tuple[tuple[int, int], ...]
"""(lo, hi) of every axis."""


def run_operator(typed: TypedOperator, dims: Mapping[str, int], scalars: Mapping[str, Any], operands: Mapping[str, Array], *,
                 wide: bool = False) -> dict[str, Array]:
    """The results by name, in compute types and rounded to their dtypes, of operands in compute types. `wide` leaves f32 results as float64."""
    return Interpreter(typed, dims, scalars, operands, wide).run()


def evaluate_scalar(e: Expr, dims: Mapping[str, int], scalars: Mapping[str, Any], *, wide: bool = False) -> Array:
    """The value of a typed expression over dimensions and attributes alone."""
    with np.errstate(all="ignore"), deep():
        return Evaluator(dims, scalars, wide).eval(e, Frame((), {}))


class Evaluator:
    """Evaluates expressions in a frame. Tensors are what `Interpreter` adds."""

    def __init__(self, dims: Mapping[str, int], scalars: Mapping[str, Any], wide: bool) -> None:
        self.wide = wide
        self.dims = dims
        self.names: dict[str, Array] = {n: np.asarray(v, np.int64) for n, v in dims.items()} | {n: self._widened(np.asarray(v)) for n, v in scalars.items()}
        self._free: dict[int, frozenset[str]] = {}
        self._rules: dict[type[Expr], Callable[[Any, Frame], Array]] = {
            IntLit: self._literal, FloatLit: self._literal, Const: self._literal, Name: self._name, Cast: self._cast, Apply: self._apply,
            Read: self.read, Reduce: self.reduce}

    def eval(self, e: Expr, f: Frame) -> Array:
        """The value of `e` over the frame, in the compute type of its dtype; arbitrary where it is not wanted."""
        rule = self._rules.get(type(e))
        if rule is None:
            internal_error(f"the reference backend met a {type(e).__name__}")
        return rule(e, f)

    def eval_where(self, e: Expr, f: Frame, condition: Array) -> Array:
        """`eval` where the condition holds; nothing at all is evaluated if that is nowhere."""
        inner = f.where(condition)
        return self.eval(e, inner) if inner.wanted() else np.zeros((), self.kind(_dtype(e)))

    def kind(self, dtype: DType) -> np.dtype[Any]:
        """The NumPy dtype of values of a dtype."""
        return self.compute(dtype).numpy()

    def compute(self, dtype: DType) -> DType:
        """The type in which values of a dtype are held."""
        dtype = dtype.compute
        return F64 if self.wide and dtype is F32 else dtype

    def _widened(self, a: Array) -> Array:
        return a.astype(np.float64) if self.wide and a.dtype == np.float32 else a

    def read(self, e: Read, f: Frame) -> Array:
        """An element of a tensor."""
        internal_error(f"there is no '%{e.tensor}' here")

    def reduce(self, e: Reduce, f: Frame) -> Array:
        """A reduction."""
        internal_error(f"'{e.kind}' over tensors that are not here")

    def fault(self, f: Frame, positions: Array, span: Span, message: Callable[[tuple[int, ...]], str]) -> None:
        """Data that the program cannot be run on, met at some positions of the frame, if any of them is wanted."""
        positions = np.broadcast_to(f.among(positions), f.shape)
        if positions.any():
            raise execution_error(span, message(tuple(np.argwhere(positions)[0])))

    def _literal(self, e: IntLit | FloatLit | Const, f: Frame) -> Array:
        return self._widened(np.asarray(scalar.literal(e)))

    def _name(self, e: Name, f: Frame) -> Array:
        value = f.env.get(e.name)
        if value is None:
            value = self.names.get(e.name)
        if value is None:
            internal_error(f"nothing is called '{e.name}'")
        return value

    def _cast(self, e: Cast, f: Frame) -> Array:
        """In wide mode f32 is float64, and what is narrower is rounded from it."""
        to = DTYPES[e.to]
        value = self.eval(e.arg, f)
        return self._widened(scalar.cast(value, F64 if self.wide and to is F32 else to, self.compute(_dtype(e.arg)), e.saturate))

    def _apply(self, e: Apply, f: Frame) -> Array:
        match e.fn:
            case "select":
                return self._select(e, f)
            case "and" | "or":
                left = self.eval(e.args[0], f)
                right = self.eval_where(e.args[1], f, left if e.fn == "and" else ~left)
                return np.asarray(left & right if e.fn == "and" else left | right)
        args = [self.eval(a, f) for a in e.args]
        if e.fn == "fma" and self.wide and args[0].dtype == np.float64:
            return np.asarray(args[0] * args[1] + args[2])
        if e.fn == "**" and args[0].dtype.kind == "i":
            self.fault(f, args[1] < 0, e.span, lambda place: f"an integer to the power {at(args[1], place)} is no integer")
        return scalar.apply(e.fn, args, self.compute(_dtype(e)))

    def _select(self, e: Apply, f: Frame) -> Array:
        condition = self.eval(e.args[0], f)
        yes = self.eval_where(e.args[1], f, condition)
        no = self.eval_where(e.args[2], f, ~condition)
        return np.asarray(np.where(condition, yes, no), self.kind(_dtype(e)))

    def free_names(self, e: Expr) -> frozenset[str]:
        """Names in an expression, found once. Expressions outlive the evaluator."""
        if id(e) not in self._free:
            self._free[id(e)] = frozenset(names_in(e))
        return self._free[id(e)]


class Interpreter(Evaluator):
    """One call of one operator."""

    def __init__(self, typed: TypedOperator, dims: Mapping[str, int], scalars: Mapping[str, Any], operands: Mapping[str, Array], wide: bool) -> None:
        super().__init__(dims, scalars, wide)
        self.typed = typed
        self.values: dict[str, Array] = {t.name: self._widened(np.asarray(operands[t.name])) for t in typed.operands}
        self.boxes: dict[str, Box] = {n: self._box(t) for n, t in typed.tensors.items()}
        self.faults: list[ExecutionError] = []
        self.faulty: dict[str, Array] = {}
        """Of locals: 0, or one more than the place in `faults` of what went wrong there."""
        self.target: tuple[Tensor, tuple[slice, ...]] | None = None
        """The tensor that is being computed, and which part of it the outermost frame is."""

    def run(self) -> dict[str, Array]:
        with np.errstate(all="ignore"), deep():
            for group in self.typed.order:
                for name in group.tensors:
                    self.values[name] = np.zeros(_shape(self.boxes[name]), self.kind(self.typed.tensors[name].dtype))
                if group.recurrence is None:
                    self._plain(group)
                else:
                    self._recurrence(group, group.recurrence)
        return {t.name: self.values[t.name] for t in self.typed.results}

    # ------------------------------------------------------------------------------------------------------------ definitions

    def _box(self, t: Tensor) -> Box:
        if t.name in self.values:
            return tuple((0, n) for n in self.values[t.name].shape)        # a `?` has no name
        box = tuple((evaluate_int(lo, self.dims), evaluate_int(hi, self.dims)) for lo, hi in t.shape)
        if t.kind == "result" and any(hi < lo for lo, hi in box):
            raise execution_error(t.span, f"'%{t.name}' would have the shape {[hi - lo for lo, hi in box]}")
        return tuple((lo, max(lo, hi)) for lo, hi in box)

    def _pieces(self, t: Tensor) -> list[tuple[Piece, Box]]:
        """Pieces with their boxes, no larger than the tensor's."""
        out: list[tuple[Piece, Box]] = []
        for piece in t.pieces:
            box = [(0 if r.lo is None else evaluate_int(r.lo, self.dims), evaluate_int(r.hi, self.dims)) for r in piece.axes]
            out.append((piece, tuple((max(lo, a), min(hi, b)) for (lo, hi), (a, b) in zip(box, self.boxes[t.name], strict=True))))
        return out

    def _plain(self, group: Group) -> None:
        for name in group.tensors:
            for piece, box in self._pieces(self.typed.tensors[name]):
                self._define(self.typed.tensors[name], piece, box)

    def _recurrence(self, group: Group, recurrence: Recurrence) -> None:
        """One place after the other along the recurring axis, all tensors of the group at each."""
        pieces = [(self.typed.tensors[name], axis, piece, box) for name, axis in zip(group.tensors, recurrence.axis, strict=True)
                  for piece, box in self._pieces(self.typed.tensors[name])]
        places = range(min((box[axis][0] for _, axis, _, box in pieces), default=0), max((box[axis][1] for _, axis, _, box in pieces), default=0))
        for place in places if recurrence.step > 0 else reversed(places):
            for tensor, axis, piece, box in pieces:
                if box[axis][0] <= place < box[axis][1]:
                    self._define(tensor, piece, (*box[:axis], (place, place + 1), *box[axis + 1:]))

    def _define(self, t: Tensor, piece: Piece, box: Box) -> None:
        """Evaluate a piece over a box and store it."""
        if any(hi <= lo for lo, hi in box):
            return
        for part in _parts(box):
            frame = _root(piece, part)
            if not frame.wanted():
                continue
            region = tuple(slice(lo - a, hi - a) for (lo, hi), (a, _) in zip(part, self.boxes[t.name], strict=True))
            self.target = (t, region)
            value = self._stored(self.eval(piece.value, frame), _dtype(piece.value), t.dtype)
            goal = _view(self.values[t.name], region)
            np.copyto(goal, value, where=True if frame.mask is None else frame.mask)

    def _stored(self, value: Array, from_: DType, to: DType) -> Array:
        """A value as its tensor keeps it: rounded to the dtype in memory."""
        return self._widened(scalar.cast(value, F64 if self.wide and to is F32 else to, self.compute(from_)))

    def fault(self, f: Frame, positions: Array, span: Span, message: Callable[[tuple[int, ...]], str]) -> None:
        positions = np.broadcast_to(f.among(positions), f.shape)
        if positions.any():
            self._faulty(f, positions, execution_error(span, message(tuple(np.argwhere(positions)[0]))))

    def _faulty(self, f: Frame, positions: Array, error: ExecutionError) -> None:
        """A result cannot do without any of its places; of a local it shows when one is read."""
        assert self.target is not None
        tensor, region = self.target
        if tensor.kind != "local":
            raise error
        if tensor.name not in self.faulty:
            self.faulty[tensor.name] = np.zeros(_shape(self.boxes[tensor.name]), np.int32)
        self.faults.append(error)
        there = _view(self.faulty[tensor.name], region)
        np.copyto(there, len(self.faults), where=f.to_root(positions) & (there == 0))

    # ------------------------------------------------------------------------------------------------------------------ reads

    def read(self, e: Read, f: Frame) -> Array:
        tensor, data = self.typed.tensors[e.tensor], self.values[e.tensor]
        places: list[Array] = []
        constants: list[tuple[Array, Border]] = []
        for axis, index in enumerate(e.indices):
            lo, hi = self.boxes[e.tensor][axis]
            i = np.asarray(self.eval(index, f), np.int64)
            outside = np.asarray((i < lo) | (i >= hi))
            border = tensor.border[axis] if tensor.border else None
            if outside.any():
                self._outside(e, f, axis, i, outside, border)
            if border is not None and border.mode == "constant" and outside.any():
                constants.append((outside, border))
            elif border is not None and border.mode != "constant" and hi > lo and outside.any():
                i = MAPS[border.mode](i - lo, hi - lo) + lo
            places.append(np.clip(i - lo, 0, max(hi - lo - 1, 0)))
        if data.size == 0:
            return np.zeros((), data.dtype)
        value = np.asarray(data[tuple(places)])
        self._read_faulty(e.tensor, f, places)
        # Where two constants meet, the first axis wins.
        for outside, border in reversed(constants):
            assert border.value is not None
            value = np.asarray(np.where(outside, self.eval(border.value, f), value), data.dtype)
        return value

    def _outside(self, e: Read, f: Frame, axis: int, i: Array, outside: Array, border: Border | None) -> None:
        """Some index leaves the axis: whether that may be, where the read is wanted."""
        lo, hi = self.boxes[e.tensor][axis]
        wanted = np.broadcast_to(f.among(outside), f.shape)
        if not wanted.any():
            return
        access = e.access[axis] if e.access else "check" if border is None else "border"
        if access in ("inside", "guarded"):
            place = tuple(np.argwhere(wanted)[0])
            internal_error(f"{e.span}: '%{e.tensor}' is read at {at(i, place)} along axis {axis} of extent {lo}..{hi}, which was proven not to happen")
        if access == "border" and border is not None and hi > lo:
            return
        self.fault(f, outside, e.span, lambda place: _outside_text(e.tensor, axis, int(at(i, place)), lo, hi))

    def _read_faulty(self, name: str, f: Frame, places: list[Array]) -> None:
        """Hand on what went wrong where a local was computed."""
        if name not in self.faulty:
            return
        number = np.asarray(self.faulty[name][tuple(places)])
        bad = np.broadcast_to(f.among(number != 0), f.shape)
        if bad.any():
            first = int(at(number, tuple(np.argwhere(bad)[0])))
            self._faulty(f, bad, self.faults[first - 1])

    # ------------------------------------------------------------------------------------------------------------- reductions

    def reduce(self, e: Reduce, f: Frame) -> Array:
        return self._reduce_parts(e, f.collapse(self.free_names(e)))

    def _reduce_parts(self, e: Reduce, f: Frame) -> Array:
        """A grid that is too large is cut along its longest axis, and what comes out is put together."""
        ranges = [self._range(r, f) for r in e.ranges] if self._independent(e) else []
        size = f.size * prod(int(np.max(n, initial=0)) for _, n in ranges)
        axis = max(range(f.rank), key=lambda k: f.shape[k], default=None)
        if size <= LIMIT or axis is None or f.shape[axis] < 2:
            return self._reduce(e, f)
        step = max(1, f.shape[axis] * LIMIT // size)
        parts: list[Array] = []
        for start in range(0, f.shape[axis], step):
            part = f.part(axis, start, min(start + step, f.shape[axis]))
            value = self._reduce_parts(e, part) if part.wanted() else np.zeros((), self.kind(_dtype(e)))
            shape = list(value.shape if value.ndim else (1,) * f.rank)
            shape[axis] = part.shape[axis]
            parts.append(np.broadcast_to(value, shape))
        whole = tuple(max(p.shape[k] for p in parts) for k in range(f.rank))
        return np.concatenate([np.broadcast_to(p, (*whole[:axis], p.shape[axis], *whole[axis + 1:])) for p in parts], axis=axis)

    def _independent(self, e: Reduce) -> bool:
        """Whether no range depends on an index of the same reduction."""
        bound = {r.index for r in e.ranges if isinstance(r, Range)}
        return not any(bound & self.free_names(r) for r in e.ranges)

    def _range(self, r: Expr, f: Frame) -> tuple[Array, Array]:
        """Where a range begins and how long it is, 0 where nothing is wanted."""
        assert isinstance(r, Range)
        lo = np.zeros((), np.int64) if r.lo is None else np.asarray(self.eval(r.lo, f), np.int64)
        length = np.maximum(np.asarray(self.eval(r.hi, f), np.int64) - lo, 0)
        return lo, np.asarray(length if f.mask is None else np.where(f.mask, length, 0))

    def _reduce(self, e: Reduce, f: Frame) -> Array:
        """The frame with an axis for every range, a mask of what takes part in it, and the reduction along those axes."""
        inner = f
        axes: list[tuple[Array, Array]] = []
        for r in e.ranges:
            assert isinstance(r, Range)
            lo, length = self._range(r, inner)
            longest = int(np.max(length, initial=0))
            inner = inner.extend(r.index, lo, longest)
            axes = [(append_axis(a), append_axis(n)) for a, n in axes] + [(append_axis(lo), append_axis(length))]
            if (length != longest).any():
                inner = inner.where(inner.env[r.index] < append_axis(lo + length))
        if e.where is not None and inner.wanted():
            inner = inner.where(self.eval(e.where, inner))
        body = self.eval(e.body, inner) if inner.wanted() else np.zeros((), self.kind(_dtype(e.body)))
        return self._combine(e, f, inner, axes, body)

    def _combine(self, e: Reduce, f: Frame, inner: Frame, axes: list[tuple[Array, Array]], body: Array) -> Array:
        lead = tuple(max(extent(body, k), 1 if inner.mask is None else extent(inner.mask, k)) for k in range(f.rank))
        ranks = None if e.rank is None else np.asarray(self.eval(e.rank, f), np.int64)
        # The position counts from bounds that may depend on an index that nothing else does.
        place = _flat_position(e, inner, axes) if e.kind in ("argmax", "argmin", "argnth") else None
        for a in (ranks, place):
            if a is not None:
                lead = tuple(max(n, extent(a, k)) for k, n in enumerate(lead))

        def rows(a: Array) -> Array:
            """The reduced axes as one."""
            return np.broadcast_to(a, (*lead, *inner.shape[f.rank:])).reshape((*lead, prod(inner.shape[f.rank:])))

        values, candidates = rows(body), None if inner.mask is None else rows(inner.mask)
        dtype = self.kind(_dtype(e))
        if e.kind not in ("argmax", "argmin", "nth", "argnth"):
            empty = np.full(lead, values.shape[-1] == 0) if candidates is None else np.asarray(~candidates.any(axis=-1))
            return self._over_nothing(e, f, reduce_last(e.kind, values, candidates, dtype), empty)
        if ranks is not None and ranks.ndim:
            ranks = np.broadcast_to(ranks, lead)
        winner, empty = select_last(e.kind, values, candidates, ranks)
        if values.shape[-1] == 0:
            return self._over_nothing(e, f, np.zeros(lead, dtype), empty)
        source = values if place is None else rows(place)
        return self._over_nothing(e, f, np.take_along_axis(source, winner[..., None], axis=-1)[..., 0].astype(dtype), empty)

    def _over_nothing(self, e: Reduce, f: Frame, value: Array, empty: Array) -> Array:
        """What `semantic { empty = … }` says, or the table, where nothing took part."""
        rule = REDUCTIONS[e.kind]
        if not empty.any() or not rule.governed:
            return value
        if self.typed.empty is not None:
            nothing = np.nan if self.typed.empty == "nan" and value.dtype.kind == "f" else 0
            return np.asarray(np.where(empty, value.dtype.type(nothing), value))
        if rule.empty == "error":
            what = "over nothing" if e.rank is None else "of a rank that there is not"
            self.fault(f, empty, e.span, lambda place: f"'{e.kind}' {what} has no value")
        return value


def execution_error(span: Span, message: str) -> ExecutionError:
    """Data that the program cannot be run on."""
    return ExecutionError([Diagnostic("PL6101", "error", message, span)])


def _dtype(e: Expr) -> DType:
    if e.dtype is None:
        internal_error(f"{e.span}: an expression without a dtype")
    return e.dtype


def _shape(box: Box) -> tuple[int, ...]:
    return tuple(hi - lo for lo, hi in box)


def _view(a: Array, region: tuple[slice, ...]) -> Array:
    """A part of an array to write to; an array also where its rank is 0."""
    index: tuple[Any, ...] = (*region, ...)
    return np.asarray(a[index])


def _parts(box: Box) -> Iterator[Box]:
    """A box in parts that are not too large, cut along its longest axis."""
    size = prod(_shape(box))
    axis = max(range(len(box)), key=lambda k: box[k][1] - box[k][0], default=None)
    if size <= LIMIT or axis is None:
        yield box
        return
    lo, hi = box[axis]
    step = max(1, (hi - lo) * LIMIT // size)
    for start in range(lo, hi, step):
        part = (*box[:axis], (start, min(start + step, hi)), *box[axis + 1:])
        yield from _parts(part) if step == 1 and hi - lo > 1 else (part,)


def _root(piece: Piece, box: Box) -> Frame:
    """The frame of a piece over a box, wanted everywhere but in its holes."""
    env: dict[str, Array] = {}
    rank = len(box)
    counts = [np.arange(lo, hi, dtype=np.int64).reshape([-1 if k == axis else 1 for k in range(rank)]) for axis, (lo, hi) in enumerate(box)]
    for r, count in zip(piece.axes, counts, strict=True):
        env[r.index] = count
    frame = Frame(_shape(box), env)
    for hole in piece.holes:
        inside = np.ones((), np.bool_)
        for axis, value in hole:
            inside = np.asarray(inside & (counts[axis] == value))
        frame = frame.where(~inside)
    return frame


def _flat_position(e: Reduce, inner: Frame, axes: list[tuple[Array, Array]]) -> Array:
    """What an index reduction answers: the index itself, or the row-major position within the box of several ranges."""
    indices = [inner.env[r.index] for r in e.ranges if isinstance(r, Range)]
    if len(indices) == 1:
        return indices[0]
    flat = np.zeros((), np.int64)
    for index, (lo, length) in zip(indices, axes, strict=True):
        flat = np.asarray(flat * length + (index - lo))
    return flat


def _outside_text(name: str, axis: int, index: int, lo: int, hi: int) -> str:
    if hi <= lo:
        return f"'%{name}' is read along axis {axis}, which is empty"
    extent = f"its extent is {hi}" if lo == 0 else f"it goes from {lo} to {hi - 1}"
    return f"'%{name}' is read at index {index} along axis {axis}, but {extent}"
