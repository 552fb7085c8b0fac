"""An arena of the caller's: how large it has to be, and whether the one that is given will do.

The arena holds everything that lives between nodes. Who has memory to spare at the time of a call, or wants to have all of it in hand, asks for its size
(`arena_bytes`) and supplies it (`arena=`); its contents are not kept, and one arena serves one call at a time.
"""
from __future__ import annotations

from collections.abc import Mapping
from operator import index
from typing import TYPE_CHECKING, Any

from pipelink_ir.ir.diagnostics import About, Note, Report
from pipelink_ir.ir.evaluate import CannotEvaluate, evaluate_int
from pipelink_ir.ir.nodes import Operand, Pipeline
from pipelink_ir.ir.shapes import ShapeMismatch, bind_shapes
from pipelink_ir.runtime.matching import stop
from pipelink_ir.runtime.origin import here
from pipelink_ir.runtime.outputs import Given, share
from pipelink_ir.runtime.readers import Unreadable, read

if TYPE_CHECKING:
    from pipelink_ir.runtime.bind import Binder, Bound
    from pipelink_ir.runtime.tensor import TensorView


def shapes_of(pipeline: Pipeline, given: Mapping[str, Any]) -> tuple[tuple[int, ...], ...]:
    """The shapes of all inputs: of arrays, or as they are given; one that the signature knows may be left out."""
    report = Report()
    known = {o.name for o in pipeline.inputs}
    for name in given:
        if name not in known:
            report.error("input", pipeline.name_span, f"'@{pipeline.name}' has no input '%{name}'", (), f"its inputs are {', '.join(sorted(known))}")
    out = [_shape(o, given, report) for o in pipeline.inputs]
    stop(report)
    try:
        bind_shapes([(o.type, s) for o, s in zip(pipeline.inputs, out, strict=True)], {})
    except ShapeMismatch as fault:
        number = getattr(fault, "argument", 0)
        operand = pipeline.inputs[number]
        report.error("input", operand.span, f"'%{operand.name}' cannot have the shape {list(out[number])}: {fault.message}", (),
                     "give the shapes that the arrays of the call will have")
    stop(report)
    return tuple(out)


def _shape(operand: Operand, given: Mapping[str, Any], report: Report) -> tuple[int, ...]:
    value = given.get(operand.name)
    if value is not None:
        shape = getattr(value, "shape", value)
        try:
            sizes = tuple(index(n) for n in shape)
        except TypeError:
            report.error("input", operand.span, f"'%{operand.name}' is neither an array nor a shape", (), f"write {operand.name}=(2, 3), or give an array")
            return ()
        if any(n < 0 for n in sizes):
            report.error("input", operand.span, f"'%{operand.name}' cannot have the shape {list(sizes)}: a size is negative", (), "sizes are 0 or more")
        return sizes
    try:
        return tuple(evaluate_int(d, {}) for d in operand.type.dims)
    except CannotEvaluate:
        report.error("input", operand.span, f"the shape of '%{operand.name}' decides how large the arena is, and is missing", (),
                     f"write {operand.name}=(2, 3), or give an array")
        return ()


def check_arena(binder: Binder, device: str, arena: Any, need: tuple[int, int], bound: Bound, given: Mapping[str, Given] | None) -> int:
    """Where the arena begins. `need` is how many bytes it has to have, and what it has to begin at a multiple of. Raises `ExecutionError`."""
    check = _Check(binder, arena, Report())
    view = check.view(device, *need)
    if view is not None:
        for number, operand in enumerate(binder.pipeline.inputs):
            check.apart(view, bound.view(number), f"the input '%{operand.name}'", operand)
        for result in binder.pipeline.results:
            if given and result.name in given:
                check.apart(view, given[result.name].view, f"the array for the result '%{result.name}'", result)
    stop(check.report)
    assert view is not None
    return view.address


class _Check:
    def __init__(self, binder: Binder, arena: Any, report: Report) -> None:
        self.binder, self.pipeline, self.arena, self.report = binder, binder.pipeline, arena, report

    def _error(self, message: str, help: str, expected: str, got: str, notes: tuple[Note, ...] = ()) -> None:
        origin = here()
        where = (Note("the call is here", origin.span()),) if origin else ()
        self.report.error("arena", self.pipeline.name_span, message, (*notes, *where), help, About("arena", self.pipeline.name, "arena", expected, got))

    def view(self, device: str, size: int, align: int) -> TensorView | None:
        """The arena as memory; None after an error."""
        try:
            if isinstance(self.arena, list | tuple | int | float):
                raise Unreadable("input", "it is no array", "", type(self.arena).__name__)
            view = self._read()
        except Unreadable as fault:
            self._error(f"the arena is no memory that can be used: {fault.message}", f"give an array of {size} bytes", "an array", fault.got)
            return None
        have = view.dtype.bytes
        for n in view.shape:
            have *= n
        if view.device != device:
            self._error(f"the arena is on {view.device}, but '@{self.pipeline.name}' runs on {device}", f"give memory of {device}", device,
                        view.device)
        elif view.readonly:
            self._error("the arena is read-only", "give an array that may be written", "memory that may be written", "read-only memory")
        elif view.contiguity != "dense":
            self._error("the arena has gaps", "give a dense array", "dense", view.contiguity)
        elif have < size:
            self._error(f"the arena has {have} bytes, and {size} are needed", "ask 'arena_bytes' with the shapes of the call", str(size), str(have))
        elif size and view.address % align:
            self._error(f"the arena begins at {view.address:#x}, which is no multiple of {align}", f"begin at a multiple of {align}", str(align),
                        str(view.address & -view.address))
        else:
            return view
        return None

    def _read(self) -> TensorView:
        driver = getattr(self.binder, "driver", None)
        if driver is not None:
            from pipelink_ir.runtime.device_bind import read_device
            found = read_device(self.arena, driver, self.binder.index, {})  # type: ignore[attr-defined]
            if found is not None:
                return found
        return read(self.arena)

    def apart(self, arena: TensorView, other: TensorView, what: str, operand: Operand) -> None:
        """Refuse memory that somebody else uses."""
        if arena.device == other.device and share(arena, other):
            self._error(f"the arena overlaps {what}", "give it memory of its own", "memory of its own", f"memory of '%{operand.name}'",
                        (Note(f"'%{operand.name}'", operand.span),))
