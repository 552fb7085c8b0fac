"""The reference backend on intervals: for each element of a result, everything that the accuracy rules of the language admit.

The meaning comes from `backends/reference/interpreter.py` unchanged: what is read, guarded, filtered, in which order a recurrence runs. Only what happens to
a float is replaced, by `intervals.py`. Reductions of floats add what any order of their terms may do: a sum of n terms is within n units of rounding of
the sum of their magnitudes, a product within n of itself; where terms are short numbers, so that no order rounds, they stay points.

What is discrete (a comparison, a float cast to an integer, the place of a maximum) has no interval: where its arguments do not decide it, `Undecided` is
raised, and the sample counts as excluded. `floor`, `round` and casts to narrow floats stay intervals.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pipelink_ir.backends.reference.executable import ReferenceExecutable
from pipelink_ir.backends.reference.frame import Array, Frame
from pipelink_ir.backends.reference.interpreter import Interpreter
from pipelink_ir.backends.reference.reductions import select_last
from pipelink_ir.ir import scalar
from pipelink_ir.ir.dtypes import DTYPES, F32, DType
from pipelink_ir.ir.functions import FUNCTIONS
from pipelink_ir.ir.nodes import Apply, Cast, Const, FloatLit, IntLit, Module, Reduce
from pipelink_ir.ir.typed import TypedOperator
from pipelink_ir.passes.infer.operator import typed_operator
from tests.fuzz import intervals
from tests.fuzz.intervals import UNKNOWN, pack, points

COMPLEX = np.dtype(np.complex128)


class Undecided(Exception):
    """A decision of the program depends on how its floats are rounded."""


class Enclosure(Interpreter):
    """One call of one operator. Floats are intervals; integers and bools are themselves."""

    loose = False

    def __init__(self, typed: TypedOperator, dims: Mapping[str, int], scalars: Mapping[str, Any], operands: Mapping[str, Array], wide: bool) -> None:
        super().__init__(typed, dims, scalars, operands, wide)
        self.names = {n: self._scalar(_as_interval(a)) for n, a in self.names.items()}
        self.values = {n: _as_interval(a) for n, a in self.values.items()}

    def _scalar(self, value: Array) -> Array:
        """An attribute. What expressions of a pipeline come to was rounded to f32 here, and is not in the float64 mode."""
        if not self.loose or value.dtype != COMPLEX:
            return value
        return intervals.settled(value.real, value.imag, F32, True, np.where(_multiple(value.real), 0.0, 8.0))

    def kind(self, dtype: DType) -> np.dtype[Any]:
        return COMPLEX if dtype.is_float else super().kind(dtype)

    def _decide(self, value: Array, open_: Array, f: Frame, what: str) -> Array:
        if f.among(np.asarray(open_)).any():
            raise Undecided(what)
        return np.asarray(value)

    # ------------------------------------------------------------------------------------------------------------ values

    def _literal(self, e: IntLit | FloatLit | Const, f: Frame) -> Array:
        return _as_interval(super()._literal(e, f))

    def _cast(self, e: Cast, f: Frame) -> Array:
        assert e.arg.dtype is not None
        return self._converted(self.eval(e.arg, f), e.arg.dtype, DTYPES[e.to], e.saturate, f)

    def _stored(self, value: Array, from_: DType, to: DType) -> Array:
        if from_.is_float and to.is_float:
            return intervals.to_float(value, to, self.loose)
        return super()._stored(value, from_, to)

    def _converted(self, value: Array, from_: DType, to: DType, saturate: bool, f: Frame) -> Array:
        if from_.is_float and to.is_float:
            return intervals.to_float(value, to, self.loose)
        if from_.is_float:
            return self._decide(*intervals.to_int(value, to), f, f"a cast to {to}")
        if to.is_float:
            return intervals.from_number(value, from_, to, self.loose)
        return scalar.cast(value, to, from_.compute, saturate)

    def _apply(self, e: Apply, f: Frame) -> Array:
        if e.fn in ("select", "and", "or") or not any(a.dtype is not None and a.dtype.is_float for a in e.args):
            return self._from_integers(e, f)
        args = [self.eval(a, f) for a in e.args]
        typing = FUNCTIONS[e.fn].typing
        if typing == "compare":
            return self._decide(*intervals.compare(e.fn, *args), f, e.fn)
        if typing == "test":
            return self._decide(*intervals.tests(e.fn, *args), f, e.fn)
        assert e.dtype is not None
        if e.fn == "**" and args[1].dtype.kind == "i":
            return intervals.power(args[0], args[1], e.dtype.compute, self.loose, isinstance(e.args[1], IntLit))
        return intervals.apply(e.fn, args, e.dtype.compute, self.loose, self.typed.exact)

    def _from_integers(self, e: Apply, f: Frame) -> Array:
        return super()._apply(e, f)

    # ------------------------------------------------------------------------------------------------------------ reductions

    def _combine(self, e: Reduce, f: Frame, inner: Frame, axes: list[tuple[Array, Array]], body: Array) -> Array:
        def plain(kind: str, values: Array) -> Array:
            """The reduction of one end, or of something else about the terms, over the same places."""
            return np.asarray(super(Enclosure, self)._combine(replace(e, kind=kind), f, inner, axes, values))

        if body.dtype != COMPLEX:
            out = plain(e.kind, body)
            return _mean_of_integers(out.real, self.loose) if out.dtype == COMPLEX else out
        if e.kind in ("argmax", "argmin", "argnth"):
            return self._place(e, f, inner, body, plain(e.kind, body.real))
        low, high = plain(e.kind, body.real).real, plain(e.kind, body.imag).real
        size = np.where(np.isnan(body.real), 0.0, np.maximum(np.abs(body.real), np.abs(body.imag)))
        count = plain("sum", np.ones(body.shape)).real
        assert e.dtype is not None
        if e.kind in ("sum", "mean"):
            total, finite = (plain("sum", part).real for part in (size, np.where(np.isfinite(size), size, 0.0)))
            terms = _Terms(low, high, count, total, finite, self._every(plain, intervals.is_point(body) & _multiple(body.real)))
            out = _sum(terms, e.kind == "mean", e.dtype, self.loose)
        elif e.kind == "prod":
            out = self._product(plain, body, count, e.dtype)
        else:
            out = pack(low, high)
            if e.kind in ("max", "min"):
                # Of zeros of both signs either may be found first.
                negative, positive = (plain("any", (body.real <= 0) & (body.imag >= 0) & sign) for sign in (np.signbit(body.real), ~np.signbit(body.imag)))
                out = np.where((low == 0) & (high == 0) & negative & positive, pack(-0.0, 0.0), out)
        unknown = plain("any", intervals.is_unknown(body)) if intervals.is_unknown(body).any() else np.zeros((), np.bool_)
        return np.where(unknown, UNKNOWN, out)

    def _over_nothing(self, e: Reduce, f: Frame, value: Array, empty: Array) -> Array:
        if value.dtype == COMPLEX:
            return points(super()._over_nothing(e, f, value.real, empty))
        return super()._over_nothing(e, f, value, empty)

    @staticmethod
    def _every(plain: Any, condition: Array) -> Array:
        return np.asarray(plain("all", np.asarray(condition)))

    def _product(self, plain: Any, body: Array, count: Array, dtype: DType) -> Array:
        """Ends of a product of n intervals: the product of the centres, within the sum of the relative widths."""
        exact = self._every(plain, intervals.is_point(body) & (np.rint(body.real) == body.real))
        middle = np.where(intervals.is_nan(body), np.nan, (body.real + body.imag) / 2)
        with np.errstate(all="ignore"):
            value = plain("prod", middle).real
            width = np.where(intervals.is_point(body), 0.0, (body.imag - body.real) / 2 / np.abs(middle))
            spread = plain("sum", np.nan_to_num(width, nan=np.inf)).real + count * 2.0 ** -dtype.digits
            large = plain("prod", np.maximum(np.abs(np.nan_to_num(middle, nan=1.0, posinf=1.0, neginf=1.0)), 1.0)).real
            small = plain("prod", np.minimum(np.where((middle == 0) | np.isnan(middle), 1.0, np.abs(middle)), 1.0)).real
        exact &= large < 2.0 ** dtype.digits
        far = ~exact & (np.isfinite(value)) & ((large > 1e30) | (small < 1e-30) | (spread > 0.1))
        margin = np.where(exact | (value == 0) | ~np.isfinite(value), 0.0, np.abs(value) * spread * 1.1)
        out = intervals.settled(value - margin, value + margin, dtype, self.loose)
        # Zero times an infinity that comes late may have been a finite number before.
        mixed = ~exact & ~np.isfinite(value) & ((large > 1e30) | (small < 1e-30))
        return np.where(far | mixed, UNKNOWN, out)

    def _place(self, e: Reduce, f: Frame, inner: Frame, body: Array, place: Array) -> Array:
        """The place of a winner is decided if nothing else overlaps with the winner, but for points that equal it."""
        lead = f.shape
        values = np.broadcast_to(body, (*lead, *inner.shape[f.rank:])).reshape((*lead, -1))
        taken = np.ones(values.shape, np.bool_) if inner.mask is None else np.broadcast_to(inner.mask, (*lead, *inner.shape[f.rank:])).reshape(values.shape)
        if values.shape[-1] == 0:
            return place
        rank = None if e.rank is None else np.broadcast_to(np.asarray(self.eval(e.rank, f), np.int64), lead)
        winner, empty = select_last(e.kind, values.real, taken, rank)
        won = np.take_along_axis(values, np.asarray(winner)[..., None], axis=-1)
        apart = (values.imag < won.real) | (values.real > won.imag) | (intervals.is_nan(values) != intervals.is_nan(won))
        equal = intervals.is_point(values) & intervals.is_point(won)
        itself = np.arange(values.shape[-1]) == np.asarray(winner)[..., None]
        open_ = (taken & (~(apart | equal | itself) | intervals.is_unknown(values))).any(axis=-1) & ~empty
        return self._decide(place, open_, f, e.kind)


class LooseEnclosure(Enclosure):
    """For the float64 mode: an f32 value may also keep more digits."""

    loose = True


class EnclosureExecutable(ReferenceExecutable):
    """A pipeline on intervals. `evaluate` gives complex arrays for floats."""

    interpreter = Enclosure

    def enclose(self, arrays: Mapping[str, Any]) -> dict[str, Array]:
        """The intervals of all results; integers and bools as they are."""
        return {n: _as_interval(a) for n, a in self.evaluate(arrays).items()}


class LooseExecutable(EnclosureExecutable):
    interpreter = LooseEnclosure


def load(module: Module, pipeline: str, loose: bool = False) -> EnclosureExecutable:
    """A pipeline of a module after `infer-types`."""
    return (LooseExecutable if loose else EnclosureExecutable)(module, pipeline, typed_operator)


def _as_interval(a: Array) -> Array:
    return points(a.astype(np.float64)) if a.dtype.kind == "f" else a


# ------------------------------------------------------------------------------------------------------------------------- sums


@dataclass(frozen=True, eq=False)
class _Terms:
    """What is known of the terms of a sum: the sums (or means) of both ends, how many terms there are, the sum of their magnitudes, whether all are short."""

    low: Array
    high: Array
    count: Array
    total: Array
    finite: Array
    """The sum of the magnitudes of those that are finite."""
    short: Array


def _multiple(x: Array) -> Array:
    """Numbers whose sums are exact while they are small."""
    return np.asarray(np.rint(x * 1024) == x * 1024)


def _sum(t: _Terms, mean: bool, dtype: DType, loose: bool) -> Array:
    """Any order of n terms is within n roundings of the sum of their magnitudes."""
    count = np.maximum(t.count, 1.0)
    exact = t.short & (t.total < 2.0 ** (dtype.digits - 11))
    with np.errstate(all="ignore"):
        # float64 terms in float64: numpy's own order rounds too.
        margin = np.where(exact | (count <= 1) | ~np.isfinite(t.total), 0.0, t.total * count * 2.0 ** (1 - dtype.digits))
    if mean:
        margin, value = margin / count, t.low
        short = exact & _rounded_short(value)
        out = intervals.settled(t.low - margin, t.high + margin, dtype, loose, np.where(short | ~np.isfinite(value), 0.0, 2.0))
    else:
        out = intervals.settled(t.low - margin, t.high + margin, dtype, loose)
    # The sign of a zero depends on where the sum begins; a partial sum may leave the range of the dtype, also beside an infinity of the other sign.
    out = np.where((out.real == 0) & (out.imag == 0), pack(-0.0, 0.0), out)
    largest = float(np.finfo(dtype.numpy()).max)
    return np.where(t.finite > largest / 2, UNKNOWN, out)


def _rounded_short(x: Array) -> Array:
    return np.asarray((np.rint(x * 1024) == x * 1024) & (np.abs(x) < 2.0**12))


def _mean_of_integers(value: Array, loose: bool) -> Array:
    return intervals.settled(value, value, F32, loose, np.where(_rounded_short(value) | np.isnan(value), 0.0, 3.0))

