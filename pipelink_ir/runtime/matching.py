"""Arrays against the signature of a pipeline and the contracts behind it: the thorough way, which finds everything that is wrong and says it well.

The primary place of an error is the operand in the signature; notes name the contract's line, and the line of Python that made the array (a `TensorView`) or
else made the call. `bind.py` comes here for arrays that it has not seen in this form before.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from pipelink_ir.ir.diagnostics import About, ContractViolationError, ExecutionError, Note, Report, contract_field, did_you_mean
from pipelink_ir.ir.dtypes import DTYPES, I64, DType
from pipelink_ir.ir.nodes import Dots, Name, Operand, Pipeline, TensorType
from pipelink_ir.ir.source import Span
from pipelink_ir.passes.ledger import Entry
from pipelink_ir.runtime.demands import STRICTNESS, Demand
from pipelink_ir.runtime.forms import describe
from pipelink_ir.runtime.origin import here
from pipelink_ir.runtime.readers import Unreadable, read
from pipelink_ir.runtime.strides import memory_order, repeats
from pipelink_ir.runtime.tensor import TensorView


@dataclass(frozen=True, slots=True)
class Decision:
    """What was found out about arrays of one form: the values of the symbols, and which inputs have to be packed for a kernel that takes dense memory."""

    shapes: tuple[tuple[int, ...], ...]
    sizes: dict[str, int]
    packed: tuple[int, ...]
    entries: tuple[Entry, ...]


@dataclass(slots=True)
class Matching:
    """One call being checked. `origins` says which file an array came from, if from a file."""

    pipeline: Pipeline
    demands: Mapping[str, Demand]
    given: Mapping[str, Any]
    origins: Mapping[str, str]
    copies: str
    devices: frozenset[str] = frozenset(("cpu",))
    """Where an array may be."""
    edges: Sequence[tuple[str, TensorType, Span]] = ()
    """Name, type and place of everything that the pipeline computes, in the symbols of the pipeline."""
    report: Report = field(default_factory=Report)
    views: dict[str, TensorView] = field(default_factory=dict)
    _caller: Span | None = None

    def run(self) -> Decision:
        """The decision; `views` has the arrays by name. Raises `ExecutionError` with everything that does not match."""
        origin = None if self.origins else here()
        self._caller = origin.span() if origin else None
        self._names()
        for operand in self.pipeline.inputs:
            if operand.name in self.given:
                view = self._view(operand)
                if view is not None and self._dtype_and_rank(view, operand) and self._device(view, operand) and self._layout(view, operand):
                    self.views[operand.name] = view
        stop(self.report)
        sizes = self._sizes()
        packed, entries = self._contiguity()
        stop(self.report)
        return Decision(tuple(self.views[o.name].shape for o in self.pipeline.inputs), sizes, packed, entries)

    # ------------------------------------------------------------------------------------------------------------------- messages

    def _error(self, field_name: str, operand: Operand, message: str, notes: Sequence[Note], help: str, expected: str = "", got: str = "",
               operator: str | None = None) -> None:
        about = About(field_name, operator or self.pipeline.name, operand.name, expected, got) if expected else None
        self.report.error("input", operand.span, message, [*notes, *self._where(operand.name)], help, about)

    def _where(self, name: str) -> list[Note]:
        """The line that made an array, if it remembers, else the line of the call."""
        value = self.given.get(name)
        if isinstance(value, TensorView) and value.made is not None:
            return [Note(f"the array '{name}' is made here", value.made.span())]
        return [Note(f"'{name}' is passed here", self._caller)] if self._caller else []

    def _call(self) -> list[Note]:
        return [Note("the call is here", self._caller)] if self._caller else []

    def _file(self, name: str) -> str:
        return f" ('{self.origins[name]}')" if name in self.origins else ""

    # -------------------------------------------------------------------------------------------------------------- array by array

    def _names(self) -> None:
        """Inputs that are missing, arrays that nothing asks for."""
        p, given = self.pipeline, self.given
        wanted = [o.name for o in p.inputs]
        for name in given:
            if name not in wanted:
                if any(name == a.name for a in p.attributes):
                    self.report.error("input", p.name_span, f"'{name}' is an attribute of '@{p.name}', not an input", self._where(name),
                                      f"give it when the program is compiled: compile(…, {name}=…)")
                    continue
                near = did_you_mean(name, [w for w in wanted if w not in given] or wanted, "%")
                self.report.error("input", p.name_span, f"'@{p.name}' has no input '%{name}'; {signature(p)}; {_got(given)}", self._where(name),
                                  near or f"leave '{name}' out")
        # One message for one misspelled name: with a near name among the unknown ones, the missing input is what was meant.
        unknown = [g for g in given if g not in wanted and all(g != a.name for a in p.attributes)]
        for operand in p.inputs:
            if operand.name not in given and did_you_mean(operand.name, unknown) is None:
                self.report.error("input", operand.span, f"the input '%{operand.name}' is missing; {signature(p)}; {_got(given)}", self._call(),
                                  f"give an array for '{operand.name}' (--in {operand.name}=FILE, {operand.name}=array)")

    def _view(self, operand: Operand) -> TensorView | None:
        try:
            return self._read(self.given[operand.name])
        except Unreadable as fault:
            said = type_text(operand)
            if fault.field == "dtype":
                wanted = DTYPES.get(operand.type.dtype)
                help = dtype_help(wanted, self.given[operand.name]) if wanted else fault.help
                self._error("dtype", operand, f"'%{operand.name}' is {said}, but {fault.message.split(', whose')[0]}{self._file(operand.name)}", (), help,
                            operand.type.dtype, fault.got)
            elif fault.field == "input":
                self._error("input", operand, f"'%{operand.name}' is {said}, but {fault.message}{self._file(operand.name)}", (), fault.help)
            else:
                self._error(fault.field, operand, f"'%{operand.name}' is {said}, but {fault.message}", (), fault.help, said, fault.got)
            return None

    def _read(self, array: Any) -> TensorView:
        return read(array)

    def _why_packed(self) -> str:
        """Why an array that no contract refuses is copied."""
        return "the CPU reads dense memory"

    def _dtype_and_rank(self, view: TensorView, operand: Operand) -> bool:
        what, here = f"'%{operand.name}' is {type_text(operand)}", self._file(operand.name)
        wanted, said = DTYPES.get(operand.type.dtype), describe(view.dtype, view.shape)
        if wanted is not None and view.dtype is not wanted:
            self._error("dtype", operand, f"{what}, but the array is {said}{here}", (), dtype_help(wanted, self.given[operand.name], view.dtype), wanted.name,
                        view.dtype.name)
            return False
        least = sum(not isinstance(d, Dots) for d in operand.type.dims)
        if view.ndim != least if least == len(operand.type.dims) else view.ndim < least:
            count = f"{least} dimension{'s' * (least != 1)}"
            self._error("rank", operand, f"{what} with {count}, but the array {said} has {view.ndim}{here}", (), "reshape the array, or change the signature",
                        count, f"{view.ndim} dimension{'s' * (view.ndim != 1)}")
            return False
        return True

    def _device(self, view: TensorView, operand: Operand) -> bool:
        if view.device not in self.devices:
            where = " or ".join(sorted(self.devices))
            self._error("device", operand, f"'%{operand.name}' is on {view.device}, but this pipeline takes arrays on {where}", (),
                        f"give a copy there ('.cpu()' of a torch tensor is one in the memory of the CPU), or compile for '{view.device}'", where, view.device)
            return False
        ask = self.demands[operand.name].align
        if view.device != "cpu" and ask is not None and view.address % int(ask.word) and 0 not in view.shape:
            # On the CPU, and for an array that is transferred in any case, alignment costs nothing and is nobody's business.
            self._error("align", operand, f"'%{operand.name}' lies at {view.address:#x}, which is a multiple of {view.alignment} bytes, but '@{ask.operator}' "
                        f"asks for {ask.word}", [Note(f"'@{ask.operator}' asks for it here", ask.span)],
                        "give an array that begins at such an address, as a fresh allocation does", ask.word, str(view.alignment), ask.operator)
            return False
        return True

    def _layout(self, view: TensorView, operand: Operand) -> bool:
        """The names of the axes, where both sides say them: the signature, or whoever reads the input."""
        if view.layout is None:
            return True
        if operand.type.layout is not None and operand.type.layout != view.layout:
            self._error("layout", operand, f"the array for '%{operand.name}' is {view.layout}, but the signature says {operand.type.layout}", (),
                        transpose_help(view.layout, operand.type.layout), operand.type.layout, view.layout)
            return False
        for ask in self.demands[operand.name].layouts:
            if ask.word != view.layout:
                self._error("layout", operand, f"the array for '%{operand.name}' is {view.layout}, but '@{ask.operator}' takes {ask.word} as '%{ask.operand}'",
                            [Note(f"'@{ask.operator}' declares {ask.word} here", ask.span)], transpose_help(view.layout, ask.word), ask.word, view.layout,
                            ask.operator)
                return False
        return True

    # ------------------------------------------------------------------------------------------------------------- arrays together

    def _sizes(self) -> dict[str, int]:
        """The value of every symbol; a shape that disagrees and conditions that do not hold are reported."""
        from pipelink_ir.ir.shapes import ArgumentMismatch, bind_shapes
        env: dict[str, int] = {}
        operands = [o for o in self.pipeline.inputs if not any(isinstance(d, Dots) for d in o.type.dims)]
        try:
            bind_shapes([(o.type, self.views[o.name].shape) for o in operands], env)
        except ArgumentMismatch as fault:
            operand = operands[fault.argument]
            shape = list(self.views[operand.name].shape)
            self._error("shape", operand, f"'%{operand.name}' is {type_text(operand)}, but the array has the shape {shape}{self._file(operand.name)}: "
                        f"{fault.message}", self._binders(operands, fault.argument, fault.axis), "give arrays whose sizes agree with the signature",
                        type_text(operand), str(shape))
            return env
        self._conditions(env)
        return env

    def _binders(self, operands: Sequence[Operand], at: int, axis: int | None) -> list[Note]:
        """Where the symbols of a dimension that disagrees had got their sizes: the first other inputs that have them."""
        from pipelink_ir.ir.walk import names_in
        notes = []
        for symbol in sorted(names_in(operands[at].type.dims[axis])) if axis is not None else ():
            for other in operands:
                if other is not operands[at] and any(isinstance(d, Name) and d.name == symbol for d in other.type.dims):
                    notes.append(Note(f"{symbol} comes from '%{other.name}', whose array has the shape {list(self.views[other.name].shape)}", other.span))
                    break
        return notes

    def _conditions(self, sizes: Mapping[str, int]) -> None:
        from pipelink_ir.grammar.printer import print_expr
        from pipelink_ir.ir.evaluate import CannotEvaluate, evaluate, evaluate_condition
        env: dict[str, Any] = dict(sizes)
        for attribute in self.pipeline.attributes:
            if attribute.default is not None:
                try:
                    env[attribute.name] = evaluate(attribute.default, {})
                except CannotEvaluate:
                    continue  # a word
        known = ", ".join(f"{name} = {value}" for name, value in env.items())
        self._addressable({name: value for name, value in env.items() if type(value) is int}, known)
        for condition in self.pipeline.where:
            try:
                if evaluate_condition(condition, env):
                    continue
                why = f"does not hold for {known}"
            except CannotEvaluate as fault:
                why = f"cannot be decided for {known}: {fault}"
            about = About("shape", self.pipeline.name, None, print_expr(condition), known)
            self.report.error("input", condition.span, f"'{print_expr(condition)}' {why}", self._call(), "give arrays of other sizes", about)

    def _addressable(self, env: Mapping[str, int], known: str) -> None:
        """Nothing is larger than addresses reach: beyond that, kernels would compute with sizes that have wrapped around."""
        from pipelink_ir.ir.evaluate import CannotEvaluate, evaluate_int, leaves_i64
        for name, type, span in self.edges:
            try:
                if not any(leaves_i64(d, env) for d in type.dims):
                    shape = [max(0, evaluate_int(d, env)) for d in type.dims]
                    if 0 in shape or prod(shape) * DTYPES[type.dtype].bytes <= I64.highest:
                        continue
            except CannotEvaluate:
                continue  # a size that only the data tell
            from pipelink_ir.grammar.printer import print_type
            about = About("shape", self.pipeline.name, name, "a size that can be addressed", known)
            self.report.error("input", span, f"'%{name}' would be larger than memory can be, {print_type(type)} for {known}", self._call(),
                              "give smaller arrays", about)
            return

    def _contiguity(self) -> tuple[tuple[int, ...], tuple[Entry, ...]]:
        """Which inputs a kernel that takes dense memory needs packed; refused where a contract asks for more than the array is, unless copies are allowed."""
        packed: list[int] = []
        entries: list[Entry] = []
        for number, operand in enumerate(self.pipeline.inputs):
            view = self.views[operand.name]
            kind, ask = view.contiguity, self.demands[operand.name].contiguity
            if kind == "dense":
                continue
            if ask is not None and STRICTNESS[kind] < STRICTNESS[ask.word] and self.copies != "allow":
                self._refuse(operand, view, ask.word, ask.operator, ask.span)
                continue
            packed.append(number)
            asked = f"'@{ask.operator}' asks for '{ask.word}'" if ask is not None and STRICTNESS[kind] < STRICTNESS[ask.word] else self._why_packed()
            entries.append(Entry("copy", f"'%{operand.name}' is copied", f"{asked}, and {_lies(view, operand)}", str(view.nbytes), operand.span))
        return tuple(packed), tuple(entries)

    def _refuse(self, operand: Operand, view: TensorView, asked: str, op: str, span: Span) -> None:
        self._error("contiguity", operand, f"'@{op}' reads '%{operand.name}' and takes '{asked}' memory, but {_lies(view, operand)}",
                    [Note(f"'@{op}' asks for '{asked}' here", span)], _contiguity_help(self.given[operand.name]), asked,
                    f"{view.contiguity}, strides {list(view.byte_strides)} bytes", op)


def stop(report: Report) -> None:
    """Raise what was found, as a violation if the first error is about a contract."""
    if not report.failed:
        return
    first = next(d for d in report.diagnostics if d.severity == "error")
    raise (ContractViolationError if contract_field(first) else ExecutionError)(report.diagnostics)


def signature(pipeline: Pipeline) -> str:
    """What a pipeline takes, for a message."""
    return f"'@{pipeline.name}' takes " + (", ".join(f"%{o.name}: {type_text(o)}" for o in pipeline.inputs) or "nothing")


def type_text(operand: Operand) -> str:
    """The type as the program has it."""
    from pipelink_ir.grammar.printer import print_type
    return print_type(operand.type)


def _got(given: Mapping[str, Any]) -> str:
    def one(name: str) -> str:
        try:
            view = read(given[name])
        except Unreadable as fault:
            return f"{name}: {fault.got}"
        return f"{name}: {describe(view.dtype, view.shape)}"
    return "given: " + (", ".join(map(one, given)) or "nothing")


def dtype_help(wanted: DType, array: Any, have: DType | None = None) -> str:
    """How to bring an array to the dtype that is asked for."""
    if hasattr(array, "is_sparse"):  # a tensor of PyTorch
        return f"convert it with '.to(torch.{wanted.array_name})', or let the signature say {have or array.dtype}"
    name = f"ml_dtypes.{wanted.array_name}" if wanted.foreign else None
    if name and have is not None and have.name in ("u8", "u16") and have.bytes == wanted.bytes:
        return f"bit patterns are seen as numbers with '.view({name})'"
    numpy_name = name or f"numpy.{wanted.array_name if wanted.name != 'bool' else 'bool_'}"
    if have is None:  # no dtype that a signature could say
        return f"convert it with '.astype({numpy_name})'" if hasattr(array, "astype") else f"give an array of '{numpy_name}'"
    return f"convert it with '.astype({numpy_name})', or let the signature say {have}"


def transpose_help(have: str, want: str) -> str:
    """How to bring one layout to another."""
    if sorted(have) == sorted(want):
        axes = ", ".join(str(have.index(c)) for c in want)
        return f"give it as {want}: '.transpose({axes})' in NumPy or '.permute({axes})' in PyTorch, and then a dense copy if one is asked for"
    return f"give an array that is {want}"


def _contiguity_help(array: Any) -> str:
    source = array.owner if isinstance(array, TensorView) else array
    how = "'.contiguous()'" if hasattr(source, "is_sparse") else "numpy.ascontiguousarray(…) of it"
    return f"give {how}, or allow copies (--copies allow, copies=\"allow\")"


def _lies(view: TensorView, operand: Operand) -> str:
    """How an array that is not dense lies in memory."""
    what = f"the array has the strides {list(view.byte_strides)} (bytes) for the shape {list(view.shape)}"
    axis = repeats(view.shape, view.byte_strides)
    if axis is not None:
        return f"{what}: axis {axis} repeats one element"
    order = memory_order(view.shape, view.byte_strides)
    if order == tuple(range(view.ndim)) or any(s < 0 for s in view.byte_strides):
        return what
    layout = view.layout or operand.type.layout
    return f"{what}: its memory, from the outermost, is {''.join(layout[k] for k in order) if layout else 'axes ' + ', '.join(map(str, order))}"
