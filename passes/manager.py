"""The registry of passes, the text of pipelines, and the loop that runs them.

A pass is a documented function, registered with its name, one line and a frozen class of options:

    @register_pass("simplify", "dead nodes, common nodes, exact constants", Options)
    def simplify(module: Module, options: Options, report: Report) -> Module: ...

It returns a new module, or the same object if there was nothing to do; it reports what is wrong with the user's program to `report`, and prints
nothing. Everything that happens between passes is a hook (see `Hook`, and `passes/hooks.py` for those we have).
"""
from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol, TypeVar

from pipelink_ir.ir.diagnostics import InternalError, ProgramError, Report, UsageError, did_you_mean, internal_error
from pipelink_ir.ir.nodes import Module
from pipelink_ir.ir.walk import deep
from pipelink_ir.passes.collector import collector_waits
from pipelink_ir.passes.options import OptionText, Scanner, convert, write_option
from pipelink_ir.passes.pipeline import ALIASES, PASSES, module_of


@dataclass(frozen=True, slots=True)
class NoOptions:
    """The options of a pass that has none."""


@dataclass(frozen=True, slots=True)
class Pass:
    """A registered pass. `typed` passes read `Node.types`, which text does not carry."""

    name: str
    description: str
    options: type[Any]
    function: Callable[[Module, Any, Report], Module]
    typed: bool


@dataclass(frozen=True, slots=True)
class Step:
    """A pass with its options: one entry of a pipeline. `str()` gives text that parses to it."""

    of: Pass
    options: Any

    @property
    def name(self) -> str:
        return self.of.name

    def __str__(self) -> str:
        default = self.of.options()
        given = [f"{f.name}={write_option(getattr(self.options, f.name))}" for f in fields(self.options)
                 if getattr(self.options, f.name) != getattr(default, f.name)]
        return self.name + ("{" + ",".join(given) + "}" if given else "")


class Hook(Protocol):
    """What is called between passes, the one way to look on.

    `hook(step, module, None)` before a pass runs, `hook(step, before, after)` when it has, `hook(step, before, error)` when it failed by a fault of ours.
    First of all comes `hook(INPUT, module, module)`. After a pass the hooks are called in the order of their list, before a pass in
    the reverse of it, so that the first in the list stands nearest to the pass. An `InternalError` that a hook raises counts as a failure of the pass."""

    def __call__(self, step: Step, before: Module, after: Module | Exception | None) -> None: ...


_REGISTRY: dict[str, Pass] = {}
P = TypeVar("P", bound=Callable[..., Module])

INPUT = Step(Pass("input", "what the passes were given", NoOptions, lambda module, options, report: module, False), NoOptions())
"""Stands for the text itself where a hook expects a pass."""


def register_pass(name: str, description: str, options: type[Any] = NoOptions, *, typed: bool = False) -> Callable[[P], P]:
    """Register a pass under the name that `passes/pipeline.py` lists."""
    def register(function: P) -> P:
        if name in _REGISTRY:
            internal_error(f"two passes are called {name!r}")
        _REGISTRY[name] = Pass(name, description, options, function, typed)
        return function
    return register


def find_pass(name: str, where: str = "", others: Iterable[str] = ()) -> Pass:
    """The pass of that name, imported now if it was not; `where` is put before the message of the `UsageError`, `others` are names that
    would be understood there, too."""
    if name not in PASSES:
        near = did_you_mean(name, (*PASSES, *others))
        raise UsageError(f"{where}there is no pass '{name}'" + (f"; {near}" if near else f"; the passes are {', '.join(PASSES)}"))
    if name not in _REGISTRY:
        importlib.import_module(module_of(name))
    if name not in _REGISTRY:
        internal_error(f"{module_of(name)} does not register a pass {name!r}")
    return _REGISTRY[name]


def parse_passes(text: str) -> tuple[Step, ...]:
    """The steps of a pipeline text such as `frontend,simplify{rounds=2,keep=[a,b]}`; a `UsageError` names the column of what is wrong.

    Where a pass reads types and nothing before it writes them, `resolve` and `infer-types` are put in: on a dump they find nothing
    to do but to write the types again."""
    return tuple(_with_types(_parse(text)))


def _parse(text: str) -> list[Step]:
    steps: list[Step] = []
    for entry in Scanner(text).pipeline():
        if entry.name in ALIASES:
            if entry.options:
                raise UsageError(f"{entry.place}'{entry.name}' is a name for several passes and takes no options")
            steps += _parse(ALIASES[entry.name])
            continue
        found = find_pass(entry.name, entry.place, ALIASES)
        steps.append(Step(found, _options(found, entry.options)))
    return steps


def with_options(steps: Iterable[Step], text: str) -> tuple[Step, ...]:
    """The steps with other options for some of them, `assign-streams{max_streams=8},fuse{nodes=1}`; what is not named stays as it is."""
    out = list(steps)
    seen: set[str] = set()
    for entry in Scanner(text, "--pass-options").pipeline():
        found = find_pass(entry.name, entry.place)
        if entry.name in seen:
            raise UsageError(f"{entry.place}the options of '{entry.name}' are given twice; write them together, '{entry.name}{{a=1,b=2}}'")
        seen.add(entry.name)
        at = [k for k, s in enumerate(out) if s.of is found]
        if not at:
            raise UsageError(f"{entry.place}the pass '{entry.name}' is not among those that run: {pipeline_text(out)}")
        for k in at:
            out[k] = Step(found, _options(found, entry.options, out[k].options))
    return tuple(out)


def _options(of: Pass, given: Sequence[OptionText], start: Any = None) -> Any:
    """The options class filled from text; what is not given is as in `start`, or has its default."""
    import typing
    types = typing.get_type_hints(of.options)
    names = {f.name for f in fields(of.options)}
    values: dict[str, Any] = {}
    for option in given:
        key = option.key.replace("-", "_")
        if key not in names:
            near = did_you_mean(key, names)
            known = f"; its options are {', '.join(sorted(names))}" if names else "; it has none"
            raise UsageError(f"{option.place}the pass '{of.name}' has no option '{option.key}'" + (f"; {near}" if near else known))
        if key in values:
            raise UsageError(f"{option.place}the option '{option.key}' is given twice")
        values[key] = convert(option, types[key])
    return of.options(**values) if start is None else replace(start, **values)


def _with_types(steps: list[Step]) -> list[Step]:
    written = [s.name for s in steps].index("infer-types") if any(s.name == "infer-types" for s in steps) else len(steps)
    first = next((i for i, s in enumerate(steps) if s.of.typed), len(steps))
    if first >= written or first == len(steps):
        return steps
    missing = [n for n in ("resolve", "infer-types") if n not in [s.name for s in steps[:first]]]
    return steps[:first] + [step(n) for n in missing] + steps[first:]


def step(name: str, **options: Any) -> Step:
    """One step from Python: `step("simplify", rounds=2)`."""
    found = find_pass(name)
    return Step(found, found.options(**options))


def pipeline_text(steps: Iterable[Step]) -> str:
    """The text of a pipeline, as `--print-pipeline` shows it and `--passes` takes it."""
    return ",".join(map(str, steps)) or "none"


def stop_after(steps: Sequence[Step], name: str) -> tuple[Step, ...]:
    """The steps up to the last one called `name`; a `UsageError` if there is none."""
    find_pass(name, "--stop-after: ")
    last = max((i for i, s in enumerate(steps) if s.name == name), default=None)
    if last is None:
        raise UsageError(f"--stop-after: the pass '{name}' is not among those that run: {pipeline_text(steps)}")
    return tuple(steps[:last + 1])


def run_passes(module: Module, passes: Sequence[Step], report: Report, hooks: Sequence[Hook] = ()) -> Module:
    """Run the passes in order and return what the last one made.

    Raises `ProgramError` after a pass that reported errors, `InternalError` naming the pass when a pass or the verifier failed."""
    with deep(), collector_waits():
        for hook in hooks:
            hook(INPUT, module, module)
        for one in passes:
            for hook in reversed(hooks):
                hook(one, module, None)
            module = _run(one, module, report, hooks)
    return module


def _run(one: Step, before: Module, report: Report, hooks: Sequence[Hook]) -> Module:
    try:
        after = one.of.function(before, one.options, report)
        report.stop_if_failed()
    except (ProgramError, UsageError):
        raise
    except Exception as error:  # whatever a pass raises beyond those is a fault of ours
        _failed(one, before, error, hooks)
        raise InternalError(f"in the pass '{one.name}': {describe_error(error)}") from error
    try:
        for hook in hooks:
            hook(one, before, after)
    except InternalError as error:
        _failed(one, before, error, hooks)
        raise InternalError(f"after the pass '{one.name}': {error}") from error
    return after


def _failed(one: Step, before: Module, error: Exception, hooks: Sequence[Hook]) -> None:
    for hook in hooks:
        hook(one, before, error)


def describe_error(error: Exception) -> str:
    """An exception in one line: its class unless it is our own, its message, and the line of ours that raised it."""
    text = str(error) or "no message"
    if isinstance(error, InternalError):
        return text
    place, trace = "", error.__traceback__
    while trace is not None:
        place, trace = f" ({trace.tb_frame.f_code.co_filename}:{trace.tb_lineno})", trace.tb_next
    return f"{type(error).__name__}: {text}{place}"
