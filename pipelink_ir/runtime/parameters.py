"""Parameters bound once: `p.bind(w=…)`.

What depends on parameters alone is computed then and kept, on the device of the target; each call computes the rest. The arrays of the parameters are kept too,
and are read by every call: they are the caller's and may not change.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pipelink_ir.ir.diagnostics import Note, Report, did_you_mean
from pipelink_ir.ir.dtypes import DTYPES, DType, from_numpy
from pipelink_ir.ir.nodes import Module, Operand, Pipeline
from pipelink_ir.passes.manager import parse_passes, run_passes
from pipelink_ir.passes.parameters import Split, once_name, params_alone, split
from pipelink_ir.runtime.matching import stop
from pipelink_ir.runtime.tensor import TensorView

if TYPE_CHECKING:
    from pipelink_ir.passes.ledger import Entry
    from pipelink_ir.runtime.results import Results
    from pipelink_ir.runtime.runnable import Runnable

LAST_BEFORE = ("simplify", "lower-precision", "flatten", "place-devices", "check-contracts", "infer-types", "resolve")
"""The pipeline is taken apart after the first of these that runs: when it is flat and simple, and not fused yet."""


class BoundPipeline:
    """A pipeline whose parameters are bound: it is called with the other inputs. Calls may come from several threads."""

    def __init__(self, whole: Runnable, rest: Runnable, held: Mapping[str, Any], kept: Mapping[str, Any]) -> None:
        self.whole, self.rest = whole, rest
        self.params, self.kept = dict(held), dict(kept)
        self._held = {**held, **kept}
        self._asked = tuple(o for o in whole.inputs if o.name not in held)
        self._names = frozenset(o.name for o in self._asked)

    @property
    def inputs(self) -> tuple[Operand, ...]:
        """The inputs that a call has to give."""
        return self._asked

    @property
    def results(self) -> tuple[Operand, ...]:
        """The results as the signature has them."""
        return self.whole.results

    @property
    def kept_bytes(self) -> int:
        """Bytes of what was computed from the parameters."""
        return sum(int(a.nbytes) for a in self.kept.values())

    @property
    def ledger(self) -> tuple[Entry, ...]:
        """What was inserted or declined in what runs at each call."""
        return self.rest.ledger

    def __call__(self, /, *, out: Any = None, copies: str | None = None, asynchronous: bool | None = None, arena: Any = None, **arrays: Any) -> Results:
        """Run; see the call of a compiled pipeline."""
        options = {"out": out, "copies": copies, "asynchronous": asynchronous, "arena": arena}
        for name in options.keys() & (self._names | self.params.keys()):
            # An input may be called like an option; then it is the input that is meant.
            value = options.pop(name)
            if value is not None:
                arrays[name] = value
        if arrays.keys() != self._names:
            self._refuse(arrays)
        results: Results = self.rest(**options, **self._held, **arrays)
        return results

    def arena_bytes(self, /, **given: Any) -> int:
        """How large an arena has to be that a call is given; see `Compiled.arena_bytes`."""
        self._refuse(given, missing=False)
        return self.rest.arena_bytes(**self._held, **given)

    def explain(self, /, **given: Any) -> str:
        """What was inserted, and how memory is used; see `Compiled.explain`."""
        self._refuse(given, missing=False)
        return self.rest.explain(**(self._held | given if given else {}))

    def _refuse(self, arrays: Mapping[str, Any], missing: bool = True) -> None:
        report, p = Report(), self.whole.pipeline
        for name in arrays:
            if name in self.params:
                operand = next(o for o in p.inputs if o.name == name)
                report.error("input", operand.span, f"the parameter '%{name}' is bound already", (), "leave it out, or bind anew")
            elif name not in self._names:
                report.error("input", p.name_span, f"'@{p.name}' has no input '%{name}'; it asks for {self._listed()}", (),
                             did_you_mean(name, self._names, "%") or f"leave '{name}' out")
        for o in self._asked:
            if missing and o.name not in arrays:
                report.error("input", o.span, f"the input '%{o.name}' is missing; '@{p.name}' asks for {self._listed()}", (), f"give an array for '{o.name}'")
        stop(report)

    def _listed(self) -> str:
        return ", ".join(f"%{o.name}" for o in self._asked) or "nothing"

    def __repr__(self) -> str:
        return f"<pipeline @{self.whole.pipeline.name} for {self.whole.target.name}: {self._listed()}, with {', '.join('%' + n for n in self.params)} bound>"


def bound_pipeline(whole: Runnable, params: Mapping[str, Any], copies: str | None = None) -> BoundPipeline:
    """The pipeline with its parameters bound. Raises `ExecutionError` for arrays that do not match."""
    _check_names(whole, params)
    parts = _parts(whole)
    checked = _asking(whole).check(dict(params), None, copies)
    host = getattr(checked, "host", ()) if whole.target.device is not None else ()
    held = {n: _resident(whole, checked, k) if k in host else checked.sources[k] for k, n in enumerate(checked.names)}
    kept = _computed(whole, parts.once, held, parts.made) if parts.once is not None else {}
    contracts = _pipeline(whole.contracts, whole.pipeline.name)
    made = [o for o in _pipeline(parts.rest, whole.pipeline.name).inputs if o.name in kept]
    rest = _compiled(whole, parts.rest, whole.pipeline.name, _with(whole.contracts, replace(contracts, params=(*contracts.params, *made))))
    if len(host) == len(held):
        # Results go where the arrays of the call are: those that were moved here do not count.
        rest.resident = frozenset((*held, *kept)) if whole.target.device is not None else frozenset()
    _ = rest.executable
    return BoundPipeline(whole, rest, held, kept)


def _pipeline(module: Module, name: str) -> Pipeline:
    return next(p for p in module.pipelines if p.name == name)


def _check_names(whole: Runnable, params: Mapping[str, Any]) -> None:
    report, p = Report(), whole.pipeline
    known = {o.name: o for o in p.inputs}
    wanted = [o for o in p.inputs if o.param]
    for name in params:
        o = known.get(name)
        if o is None:
            help = did_you_mean(name, [w.name for w in wanted], "%") or f"its parameters are {', '.join('%' + w.name for w in wanted) or 'none'}"
            report.error("input", p.name_span, f"'@{p.name}' has no parameter '%{name}'", (), help)
        elif not o.param:
            report.error("input", o.span, f"'%{name}' is no parameter, but an input of every call", (), f"write 'param %{name}', or give it when you call")
    for o in wanted:
        if o.name not in params:
            report.error("input", o.span, f"the parameter '%{o.name}' is missing", [Note("all parameters are bound together", p.name_span)],
                         f"give an array for '{o.name}'")
    if not wanted and not params:
        report.error("input", p.name_span, f"'@{p.name}' has no parameters to bind", (), "mark what is bound once with 'param'")
    stop(report)


def _parts(whole: Runnable) -> Split:
    """The module taken apart, from where its types and contracts were last seen."""
    steps = parse_passes(whole.passes)
    names = [s.name for s in steps]
    seen = max((k for k, n in enumerate(names) if n in ("infer-types", "check-contracts")), default=-1)
    at = next((names.index(n) for n in LAST_BEFORE if n in names), -1)
    middle = steps[seen + 1:at + 1]
    module = run_passes(whole.contracts, middle, Report())
    if whole.float64:
        # There values have more digits than an array of an input can hold.
        return Split(None, module, {})
    if "flatten" not in names:
        module = run_passes(module, parse_passes("flatten")[-1:], Report())
    return split(module, whole.pipeline.name)


def _with(module: Module, p: Pipeline) -> Module:
    """A module with this pipeline alone."""
    return replace(module, items=(*(i for i in module.items if not isinstance(i, Pipeline)), p))


def _asking(whole: Runnable) -> Runnable:
    """What checks the arrays of parameters: the contracts of the whole program, as far as they speak of these."""
    p = params_alone(_pipeline(whole.contracts, whole.pipeline.name))
    contracts = _with(whole.contracts, p)
    return type(whole)(contracts, p, whole.target, (), False, whole.passes, contracts, whole.settings)


def _compiled(whole: Runnable, module: Module, name: str, contracts: Module) -> Runnable:
    """One of the two pipelines, through the passes that are left."""
    steps = parse_passes(whole.passes)
    names = [s.name for s in steps]
    at = next((names.index(n) for n in LAST_BEFORE if n in names), -1)
    report = Report()
    module = run_passes(module, [s for s in steps[at + 1:] if s.name not in ("resolve", "infer-types", "check-contracts", "flatten")], report)
    return type(whole)(module, _pipeline(module, name), whole.target, report.diagnostics, whole.float64, whole.passes, contracts, whole.settings)


def _computed(whole: Runnable, module: Module, held: Mapping[str, Any], made: Mapping[str, str]) -> dict[str, Any]:
    """What depends on parameters alone, by the names of the inputs that it becomes."""
    first = _compiled(whole, module, once_name(whole.pipeline.name), module)
    bound = first.check(held)
    device = first.target.device is not None and not first.settings.check_values
    results = first.start(bound).wait() if device else first.run(bound)
    return {made[n]: _usable(first, a) for n, a in results.items()}


def _resident(whole: Runnable, checked: Any, number: int) -> Any:
    """An array of the host on the device of the target, where calls will read it."""
    import numpy as np
    executable: Any = whole.executable
    array = executable.driver.to_device(executable.device, np.ascontiguousarray(checked.array(number)).reshape(checked.shapes[number]))
    return _usable(whole, array, DTYPES[whole.pipeline.inputs[[o.name for o in whole.pipeline.inputs].index(checked.names[number])].type.dtype])


def _usable(compiled: Runnable, array: Any, dtype: DType | None = None) -> Any:
    """An array of the driver's as one that a call takes: itself if it is CuPy's, else a view of its memory."""
    import sys

    import numpy as np
    cupy = sys.modules.get("cupy")
    plain = isinstance(array, np.ndarray | TensorView) or (cupy is not None and isinstance(array, cupy.ndarray))
    if plain and (dtype is None or array.dtype == dtype.numpy()):
        return array
    found = dtype or from_numpy(array.dtype)
    assert found is not None
    from pipelink_ir.runtime.device_calls import view_of
    assert compiled.target.device is not None
    return view_of(array, found, compiled.target.device)
