"""Arrays against the signature of a pipeline: everything that does not match is reported before anything runs.

Nothing is converted. Arrays that are not C-contiguous are copied for the CPU, which is noted, unless an operator that reads them asks for
contiguous memory: then they are refused, except with `copies = "allow"`.
"""
from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelink_ir.ir.contracts import setting, word
from pipelink_ir.ir.diagnostics import ExecutionError, Note, Report, did_you_mean
from pipelink_ir.ir.dtypes import DTYPES, DType, from_numpy
from pipelink_ir.ir.nodes import Dots, Edge, Expr, Module, Name, Node, Operand, Operator, Pipeline
from pipelink_ir.ir.source import Span, elsewhere


@dataclass(frozen=True, slots=True)
class Bound:
    """Arrays that fit: C-contiguous, in the order of the signature. `sizes` has the symbols' values, `notes` what was copied and why."""

    arrays: dict[str, Any]
    sizes: dict[str, int]
    notes: tuple[str, ...]


def bind(module: Module, pipeline: Pipeline, given: Mapping[str, Any], origins: Mapping[str, str], copies: str | None = None) -> Bound:
    """Check `given` against the inputs of `pipeline`; `ExecutionError` with every mismatch. `origins` says where an array came from, if from a file."""
    report = Report()
    caller = None if origins else _caller()
    arrays: dict[str, Any] = {}
    _names(pipeline, given, report, caller)
    for operand in pipeline.inputs:
        if operand.name in given:
            origin = origins.get(operand.name)
            array = _array(given[operand.name], operand, report)
            if array is not None and _matches(array, operand, origin, report, caller):
                arrays[operand.name] = array
    _stop(report)
    sizes = _sizes(pipeline, arrays, origins, report, caller)
    notes = _contiguous(module, pipeline, arrays, copies, report, caller)
    _stop(report)
    return Bound(arrays, sizes, tuple(notes))


def _stop(report: Report) -> None:
    if report.failed:
        raise ExecutionError(report.diagnostics)


def signature(pipeline: Pipeline) -> str:
    """What a pipeline takes, for a message."""
    from pipelink_ir.grammar.printer import print_type
    return f"'@{pipeline.name}' takes " + (", ".join(f"%{o.name}: {print_type(o.type)}" for o in pipeline.inputs) or "nothing")


def _got(given: Mapping[str, Any]) -> str:
    def one(name: str) -> str:
        array = given[name]
        dtype = from_numpy(array.dtype) if hasattr(array, "dtype") else None
        return f"{name}: {dtype.name if dtype else getattr(array, 'dtype', type(array).__name__)}{list(getattr(array, 'shape', ()))}"
    return "given: " + (", ".join(map(one, given)) or "nothing")


def _caller() -> Span | None:
    """The line of Python outside this package that made the call."""
    frame = sys._getframe(1)
    while frame.f_globals.get("__name__", "").split(".")[0] == "pipelink_ir":
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return elsewhere(frame.f_code.co_filename, frame.f_lineno, 1)


def _from(caller: Span | None, name: str) -> list[Note]:
    return [Note(f"'{name}' is passed here", caller)] if caller else []


def _names(pipeline: Pipeline, given: Mapping[str, Any], report: Report, caller: Span | None) -> None:
    """Inputs that are missing, arrays that nothing asks for."""
    wanted = [o.name for o in pipeline.inputs]
    for name in given:
        if name not in wanted:
            near = did_you_mean(name, [w for w in wanted if w not in given] or wanted, "%")
            report.error("input", pipeline.name_span, f"'@{pipeline.name}' has no input '%{name}'; {signature(pipeline)}; {_got(given)}",
                         _from(caller, name), near or f"leave '{name}' out")
    # One message for one misspelled name: with a near name among the unknown ones, the missing input is what was meant.
    unknown = [g for g in given if g not in wanted]
    for operand in pipeline.inputs:
        if operand.name not in given and did_you_mean(operand.name, unknown) is None:
            report.error("input", operand.span, f"the input '%{operand.name}' is missing; {signature(pipeline)}; {_got(given)}", _from(caller, "the call"),
                         f"give an array for '{operand.name}'")


def _array(value: Any, operand: Operand, report: Report) -> Any:
    """A NumPy array that shares the memory of `value`."""
    import numpy as np
    if isinstance(value, np.ndarray):
        return value
    try:
        if hasattr(value, "__dlpack__") and not isinstance(value, np.generic):
            return np.from_dlpack(value)
        return np.asarray(value)
    except Exception as error:  # whatever a foreign array raises, it is not one that we can read
        report.error("input", operand.span, f"'%{operand.name}' is a {type(value).__name__} that is no array here: {' '.join(str(error).split())}", (),
                     "give a NumPy array, or one in the memory of the CPU that DLPack can hand over")
        return None


def _matches(array: Any, operand: Operand, origin: str | None, report: Report, caller: Span | None) -> bool:
    """Whether dtype and rank are those of the signature."""
    from pipelink_ir.grammar.printer import print_type
    what = f"'%{operand.name}' is {print_type(operand.type)}"
    here = f" ('{origin}')" if origin else ""
    wanted = DTYPES.get(operand.type.dtype)
    have = from_numpy(array.dtype)
    if wanted is not None and (have is not wanted or not array.dtype.isnative):
        said = have.name if have and array.dtype.isnative else str(array.dtype)
        report.error("input", operand.span, f"{what}, but the array is {said}{list(array.shape)}{here}", _from(caller, operand.name),
                     _dtype_help(wanted, array))
        return False
    dims = operand.type.dims
    least = sum(not isinstance(d, Dots) for d in dims)
    if array.ndim != len(dims) if least == len(dims) else array.ndim < least:
        said = have.name if have else str(array.dtype)
        count = f"{least} dimension{'s' * (least != 1)}"
        report.error("input", operand.span, f"{what} with {count}, but the array {said}{list(array.shape)} has {array.ndim}{here}", _from(caller, operand.name),
                     "reshape the array, or change the signature")
        return False
    return True


def _dtype_help(wanted: DType, array: Any) -> str:
    name = {"bf16": "ml_dtypes.bfloat16", "f8e4m3": "ml_dtypes.float8_e4m3fn", "f8e5m2": "ml_dtypes.float8_e5m2"}.get(wanted.name)
    if name and array.dtype.kind == "u" and array.dtype.itemsize == wanted.bytes:
        return f"bit patterns are seen as numbers with '.view({name})'"
    numpy_name = name or f"numpy.{wanted.numpy().name if wanted.name != 'bool' else 'bool_'}"
    return f"convert it with '.astype({numpy_name})', or let the signature say {(from_numpy(array.dtype) or array.dtype)!s}"


def _sizes(pipeline: Pipeline, arrays: Mapping[str, Any], origins: Mapping[str, str], report: Report, caller: Span | None) -> dict[str, int]:
    """The value of every symbol; a shape that disagrees and conditions that do not hold are reported."""
    from pipelink_ir.grammar.printer import print_type
    from pipelink_ir.ir.shapes import ArgumentMismatch, bind_shapes
    env: dict[str, int] = {}
    operands = [o for o in pipeline.inputs if not any(isinstance(d, Dots) for d in o.type.dims)]
    try:
        bind_shapes([(o.type, arrays[o.name].shape) for o in operands], env)
    except ArgumentMismatch as fault:
        operand = operands[fault.argument]
        here = f" ('{origins[operand.name]}')" if operand.name in origins else ""
        report.error("input", operand.span, f"'%{operand.name}' is {print_type(operand.type)}, but the array has the shape "
                     f"{list(arrays[operand.name].shape)}{here}: {fault.message}", [*_binders(operands, fault.argument, fault.axis, arrays),
                                                                                     *_from(caller, operand.name)],
                     "give arrays whose sizes agree with the signature")
        return env
    _conditions(pipeline, env, report, caller)
    return env


def _binders(operands: Sequence[Operand], at: int, axis: int | None, arrays: Mapping[str, Any]) -> list[Note]:
    """Where the symbols of a dimension that disagrees had got their sizes: the first other inputs that have them."""
    from pipelink_ir.ir.walk import names_in
    notes = []
    for symbol in sorted(names_in(operands[at].type.dims[axis])) if axis is not None else ():
        for other in operands:
            if other is not operands[at] and any(isinstance(d, Name) and d.name == symbol for d in other.type.dims):
                notes.append(Note(f"{symbol} comes from '%{other.name}', whose array has the shape {list(arrays[other.name].shape)}", other.span))
                break
    return notes


def _conditions(pipeline: Pipeline, sizes: Mapping[str, int], report: Report, caller: Span | None) -> None:
    from pipelink_ir.ir.evaluate import CannotEvaluate, evaluate, evaluate_condition
    env: dict[str, Any] = dict(sizes)
    for attribute in pipeline.attributes:
        if attribute.default is not None:
            try:
                env[attribute.name] = evaluate(attribute.default, {})
            except CannotEvaluate:
                continue  # a word
    known = ", ".join(f"{name} = {value}" for name, value in env.items())
    for condition in pipeline.where:
        try:
            if evaluate_condition(condition, env):
                continue
            why = f"does not hold for {known}"
        except CannotEvaluate as fault:
            why = f"cannot be decided for {known}: {fault}"
        report.error("input", condition.span, f"'{_text(condition)}' {why}", _from(caller, "the call"), "give arrays of other sizes")


def _text(condition: Expr) -> str:
    from pipelink_ir.grammar.printer import print_expr
    return print_expr(condition)


# ---------------------------------------------------------------------------------------------------------------- contiguity

_ORDER = {"any": 0, "rows": 1, "dense": 2}


def _contiguous(module: Module, pipeline: Pipeline, arrays: dict[str, Any], copies: str | None, report: Report, caller: Span | None) -> list[str]:
    """Make every array C-contiguous, as the CPU backend reads them, and say so."""
    import numpy as np
    notes: list[str] = []
    asked = _asked(module, pipeline) if any(not a.flags.c_contiguous for a in arrays.values()) else {}
    for operand in pipeline.inputs:
        array = arrays.get(operand.name)
        if array is None or array.flags.c_contiguous:
            continue
        contract, op, place = asked.get(operand.name, ("any", None, None))
        if copies != "allow" and op is not None and not (contract == "rows" and _pitched(array)):
            notes_ = [Note(f"'@{op.name}' asks for '{contract}' here", place)] if place else []
            report.error("input", operand.span, f"'@{op.name}' reads '%{operand.name}' and takes '{contract}' memory, but the array has the strides "
                         f"{list(array.strides)} (bytes) for the shape {list(array.shape)}", [*notes_, *_from(caller, operand.name)],
                         "give numpy.ascontiguousarray(…) of it, or allow copies (--copies allow)")
            continue
        arrays[operand.name] = np.ascontiguousarray(array).reshape(array.shape)
        notes.append(f"'%{operand.name}' is copied, {array.nbytes} bytes: the array is not contiguous (strides {list(array.strides)})")
    return notes


def _pitched(array: Any) -> bool:
    """Rows without gaps inside, at a constant distance."""
    if array.ndim == 0 or array.strides[-1] != array.itemsize:
        return False
    inner = array.strides[-2] if array.ndim > 1 else 0
    for size, stride in zip(reversed(array.shape[1:-1]), reversed(array.strides[:-2]), strict=True):
        if stride != inner * size:
            return False
        inner = stride
    return array.ndim < 2 or bool(array.strides[-2] >= array.shape[-1] * array.itemsize)


def _asked(module: Module, pipeline: Pipeline) -> dict[str, tuple[str, Operator | None, Span | None]]:
    """The strictest `contiguity` that a consumer of each input declares."""
    operators = {o.name: o for o in module.operators}
    out: dict[str, tuple[str, Operator | None, Span | None]] = {}
    for node in pipeline.nodes:
        op = operators.get(node.op) if isinstance(node, Node) else None
        if op is None or not isinstance(node, Node):
            continue
        for arg, operand in zip(node.args, op.operands, strict=False):
            found = setting(op, "memory", "contiguity", operand.name)
            contract = word(found.setting.value) if found else None
            if isinstance(arg, Edge) and found and contract and _ORDER.get(contract, 0) > _ORDER[out.get(arg.name, ("any", None, None))[0]]:
                out[arg.name] = (contract, op, found.setting.span)
    return out
