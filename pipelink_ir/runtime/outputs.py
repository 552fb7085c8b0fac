"""Arrays of the caller's that results are written to: `out=`.

Each is checked before anything runs: dtype, shape, device, layout; that it may be written, that no two elements of it share memory, and that it overlaps
no input and no other result, unless the program says `inplace`. A dense one is written by the kernel itself, any other through its strides when the run
is over; nothing outside it changes.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipelink_ir.ir.diagnostics import About, Note, Report, UsageError, did_you_mean
from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.evaluate import CannotEvaluate, evaluate_int
from pipelink_ir.ir.nodes import Operand, Pipeline
from pipelink_ir.ir.source import Span
from pipelink_ir.runtime import strides as arithmetic
from pipelink_ir.runtime.bind import Binder, Bound
from pipelink_ir.runtime.forms import describe
from pipelink_ir.runtime.matching import dtype_help, stop, transpose_help, type_text
from pipelink_ir.runtime.origin import here
from pipelink_ir.runtime.readers import Unreadable, read
from pipelink_ir.runtime.tensor import TensorView

EFFORT = 100_000
"""Steps that NumPy may take to find out whether two interleaved arrays share an element; beyond that they count as overlapping."""


@dataclass(frozen=True, slots=True)
class Given:
    """Where one result goes: the caller's object, its memory, and whether a kernel may write there itself."""

    target: Any
    view: TensorView
    direct: bool

    def write(self, operand: Operand, result: Any) -> None:
        """Copy a result there, through the strides. Its shape may be known only now."""
        import numpy as np
        self.check_shape(operand, result.shape)
        np.copyto(self.view.numpy(), result, casting="no")

    def check_shape(self, operand: Operand, shape: tuple[int, ...]) -> None:
        """Refuse an array of another shape than the result's."""
        if shape != self.view.shape:
            report = Report()
            have, want = str(list(self.view.shape)), str(list(shape))
            report.error("input", operand.span, f"the result '%{operand.name}' has the shape {want}, but the array for it {have}", (),
                         f"give an array of the shape {want}", About("shape", None, operand.name, want, have))
            stop(report)


def by_name(pipeline: Pipeline, out: Any) -> dict[str, Any]:
    """`out=` as a table: a mapping by name, one array for the only result, or a list in the order of the signature."""
    names = [r.name for r in pipeline.results]
    if isinstance(out, Mapping):
        for name in out:
            if name not in names:
                near = did_you_mean(str(name), names, "%")
                raise UsageError(f"out: '@{pipeline.name}' has no result '%{name}'; {near or 'its results are ' + ', '.join(names)}")
        return dict(out)
    if isinstance(out, list | tuple):
        if len(out) != len(names):
            raise UsageError(f"out: there are {len(out)} arrays for the results {', '.join(names)}")
        return {name: array for name, array in zip(names, out, strict=True) if array is not None}
    if len(names) != 1:
        raise UsageError(f"out: name the results, out={{{', '.join(repr(n) + ': …' for n in names)}}}")
    return {names[0]: out}


def check_outputs(binder: Binder, out: Any, bound: Bound) -> dict[str, Given]:
    """The arrays for results, checked. Raises `ExecutionError` with everything that is wrong."""
    check = _Check(binder, bound, by_name(binder.pipeline, out), Report(), here_span())
    return check.run()


def here_span() -> Span | None:
    """The line of the call."""
    origin = here()
    return origin.span() if origin else None


@dataclass(slots=True)
class _Check:
    binder: Binder
    bound: Bound
    given: Mapping[str, Any]
    report: Report
    caller: Span | None

    def run(self) -> dict[str, Given]:
        views: dict[str, TensorView] = {}
        for result in self.binder.pipeline.results:
            if result.name in self.given:
                view = self._view(result)
                if view is not None and self._fits(result, view) and self._may_be_written(result, view):
                    views[result.name] = view
        shared = {result.name for result in self.binder.pipeline.results if result.name in views and self._overlaps(result, views)}
        stop(self.report)
        known = {r.name for r in self.binder.pipeline.results if self.shape(r) is not None}
        return {name: Given(self.given[name], view, name in known - shared and view.contiguity == "dense" and view.address % view.dtype.bytes == 0)
                for name, view in views.items()}

    def _error(self, field: str, result: Operand, message: str, help: str, expected: str, got: str, notes: tuple[Note, ...] = ()) -> None:
        value = self.given[result.name]
        made = value.made if isinstance(value, TensorView) else None
        where = [Note(f"the array for '{result.name}' is made here", made.span())] if made else [Note("the call is here", self.caller)] if self.caller else []
        self.report.error("input", result.span, message, [*notes, *where], help, About(field, self.binder.pipeline.name, result.name, expected, got))

    def _view(self, result: Operand) -> TensorView | None:
        try:
            if isinstance(self.given[result.name], list | tuple | int | float):
                raise Unreadable("input", "it is no array", "give a NumPy array, a torch tensor or a TensorView", type(self.given[result.name]).__name__)
            return read(self.given[result.name])
        except Unreadable as fault:
            self._error(fault.field, result, f"'%{result.name}' cannot be written there: {fault.message}", fault.help, type_text(result), fault.got)
            return None

    def _fits(self, result: Operand, view: TensorView) -> bool:
        what, said = f"the result '%{result.name}' is {type_text(result)}", describe(view.dtype, view.shape)
        wanted = DTYPES[result.type.dtype]
        if view.dtype is not wanted:
            self._error("dtype", result, f"{what}, but the array for it is {said}", dtype_help(wanted, self.given[result.name], view.dtype), wanted.name,
                        view.dtype.name)
            return False
        if view.device not in self.binder.devices:
            where = " or ".join(sorted(self.binder.devices))
            self._error("device", result, f"the array for '%{result.name}' is on {view.device}, but this pipeline takes arrays on {where}",
                        f"give memory of {where}", where, view.device)
            return False
        shape = self.shape(result)
        if shape is not None and shape != view.shape:
            self._error("rank" if len(shape) != view.ndim else "shape", result, f"{what}, here {list(shape)}, but the array for it is {said}",
                        f"give an array of the shape {list(shape)}", str(list(shape)), str(list(view.shape)))
            return False
        layout = result.type.layout
        if view.layout is not None and layout is not None and view.layout != layout:
            self._error("layout", result, f"{what}, but the array for it is {view.layout}", transpose_help(view.layout, layout), layout, view.layout)
            return False
        return True

    def shape(self, result: Operand) -> tuple[int, ...] | None:
        """The shape of a result at this call; None where only the run tells."""
        try:
            return tuple(evaluate_int(d, self.bound.sizes) for d in result.type.dims)
        except CannotEvaluate:
            return None

    def _may_be_written(self, result: Operand, view: TensorView) -> bool:
        what = f"the array for the result '%{result.name}'"
        if view.readonly:
            self._error("inplace", result, f"{what} is read-only", "give an array that may be written", "memory that may be written", "read-only memory")
            return False
        axis = arithmetic.repeats(view.shape, view.byte_strides)
        if axis is not None:
            self._error("contiguity", result, f"{what} repeats one element along axis {axis} (stride 0): several values would go to one place",
                        "give an array that has its own memory for each element", "one place for each element", f"stride 0 along axis {axis}")
            return False
        if arithmetic.overlaps_itself(view.shape, view.byte_strides, view.dtype.bytes):
            steps = f"strides {list(view.byte_strides)} bytes"
            self._error("contiguity", result, f"{what} has elements that share memory ({steps} for the shape {list(view.shape)})",
                        "give an array that has its own memory for each element", "one place for each element", steps)
            return False
        return True

    def _overlaps(self, result: Operand, views: Mapping[str, TensorView]) -> bool:
        """Whether the memory of an input is written, as the program allows; where it does not, that is reported."""
        mine, inputs, shared = views[result.name], self.binder.pipeline.inputs, False
        for number, operand in enumerate(inputs):
            theirs = self.bound.view(number)
            if not share(mine, theirs):
                continue
            same = (mine.address, mine.byte_strides, mine.shape) == (theirs.address, theirs.byte_strides, theirs.shape)
            if same and operand.name in self.binder.in_place.get(result.name, ()):
                shared = True
                continue
            self._error("inplace", result, f"the array for the result '%{result.name}' overlaps the one for the input '%{operand.name}'",
                        "give it memory of its own, or let the operator say 'inplace'", "memory of its own", f"memory of '%{operand.name}'",
                        (Note(f"the input '%{operand.name}'", operand.span),))
        for other in self.binder.pipeline.results:
            if other.name in views and other.name < result.name and share(mine, views[other.name]):
                self._error("inplace", result, f"the arrays for the results '%{other.name}' and '%{result.name}' overlap", "give each memory of its own",
                            "memory of its own", f"memory of '%{other.name}'", (Note(f"the result '%{other.name}'", other.span),))
        return shared


def share(a: TensorView, b: TensorView) -> bool:
    """Whether two views have an element's memory in common; True where that would take long to find out."""
    low_a, high_a = arithmetic.extent(a.shape, a.byte_strides, a.dtype.bytes)
    low_b, high_b = arithmetic.extent(b.shape, b.byte_strides, b.dtype.bytes)
    if a.address + high_a <= b.address + low_b or b.address + high_b <= a.address + low_a or low_a == high_a or low_b == high_b:
        return False
    if a.device != "cpu" or b.device != "cpu":
        # Memory of a GPU is not looked at more closely.
        return a.device == b.device
    import numpy as np
    try:
        return bool(np.shares_memory(a.numpy(), b.numpy(), max_work=EFFORT))  # type: ignore[arg-type]  # the stubs know two of all numbers
    except np.exceptions.TooHardError:
        return True
