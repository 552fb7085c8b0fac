"""`pipelink_ir.compile`: from a program's text to something that can be called with arrays."""
from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pipelink_ir.ir.diagnostics import Diagnostic, InternalError, ProgramError, Report, UsageError, did_you_mean, violation
from pipelink_ir.ir.nodes import Module, Operand, Pipeline
from pipelink_ir.passes.ledger import Entry, check_denied, ledger, parse_kinds
from pipelink_ir.passes.manager import INPUT, Hook, Step, describe_error, parse_passes, pipeline_text, run_passes, with_options
from pipelink_ir.runtime.attributes import require_values, with_attributes
from pipelink_ir.runtime.inside import Inside
from pipelink_ir.runtime.project import Project, find_project
from pipelink_ir.runtime.sources import read_program
from pipelink_ir.runtime.targets import Target, best_target, checked_for, completed, load, parse_target, placed_on

if TYPE_CHECKING:
    from pipelink_ir.backends.interface import Executable
    from pipelink_ir.runtime.bind import Binder, Bound
    from pipelink_ir.runtime.device_calls import Again, Pending
    from pipelink_ir.runtime.outputs import Given
    from pipelink_ir.runtime.parameters import BoundPipeline
    from pipelink_ir.runtime.values import Watched

R = TypeVar("R")


class Results:
    """The results of a call, by name and in the order of the signature.

    `out["edges"]`, `out.edges`, `out[0]`; `edges, mask = pipeline(…)` unpacks; `dict(out)` and `**out` work. A single result can be given to NumPy as it is."""

    __slots__ = ("_arrays",)

    def __init__(self, arrays: dict[str, Any]) -> None:
        self._arrays = arrays

    def __getitem__(self, name: str | int) -> Any:
        if isinstance(name, int):
            return list(self._arrays.values())[name]
        if name not in self._arrays:
            raise KeyError(f"there is no result {name!r}; there are {', '.join(self._arrays)}")
        return self._arrays[name]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._arrays:
            raise AttributeError(f"there is no result {name!r}")
        return self._arrays[name]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._arrays.values())

    def __len__(self) -> int:
        return len(self._arrays)

    def __contains__(self, name: object) -> bool:
        return name in self._arrays

    def keys(self) -> Any:
        return self._arrays.keys()

    def values(self) -> Any:
        return self._arrays.values()

    def items(self) -> Any:
        return self._arrays.items()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        import numpy as np
        if len(self) != 1:
            raise TypeError(f"there are {len(self)} results, not one: {', '.join(self._arrays)}")
        array = self[0]
        return np.array(array, dtype=dtype) if copy or (dtype is not None and array.dtype != dtype) else array

    def __repr__(self) -> str:
        return "Results(" + ", ".join(f"{name}: {array.dtype}{list(array.shape)}" for name, array in self.items()) + ")"


class Artifacts(Mapping[str, str | bytes]):
    """The texts that lead to an executable, by extension; each is made when it is asked for."""

    def __init__(self, module: Module, executable: Executable) -> None:
        self.module, self._executable = module, executable

    def __getitem__(self, extension: str) -> str | bytes:
        if extension == "plir":
            from pipelink_ir.grammar import print_module
            return print_module(self.module)
        if extension not in self:
            raise KeyError(f"there is no artifact {extension!r}; there are {', '.join(self)}")
        return _ours(f"while making '{extension}'", lambda: self._executable.artifacts[extension])

    def missing(self, extension: str) -> UsageError:
        """Why there is no such artifact."""
        why = getattr(self._executable, "missing", None)
        if why is not None:
            error: UsageError = _ours(f"while making '{extension}'", lambda: why(extension))
            return error
        return UsageError(f"there is no artifact '{extension}'; there are {', '.join(self)}")

    def __contains__(self, extension: object) -> bool:
        return extension == "plir" or extension in self._executable.artifacts

    def __iter__(self) -> Iterator[str]:
        return iter(["plir", *(k for k in self._executable.artifacts if k != "plir")])

    def __len__(self) -> int:
        return sum(1 for _ in self)


@dataclass(frozen=True, slots=True)
class Settings:
    """How a compiled pipeline treats its calls: whether arrays may be copied that a contract refuses (`allow`, `refuse`), whether the values of every edge are
    checked, and which entries of the ledger are errors."""

    copies: str = "refuse"
    check_values: bool = False
    deny: frozenset[str] = frozenset()
    project: Project = field(default_factory=Project)

    def __post_init__(self) -> None:
        if self.copies not in ("allow", "refuse"):
            raise UsageError(f"copies is 'allow' or 'refuse', not {self.copies!r}")


class Compiled:
    """A pipeline that is ready to run: call it with one array for each input, by name.

    `module` is the program after all `passes`, `pipeline` its pipeline; `diagnostics` holds the warnings; `artifacts` every intermediate text by its
    extension (`plir`, `ll`, `s`, …); `ledger` what was inserted on the way, and why."""

    def __init__(self, module: Module, pipeline: Pipeline, target: Target, diagnostics: Sequence[Diagnostic], float64: bool = False, passes: str = "",
                 contracts: Module | None = None, settings: Settings | None = None) -> None:
        self.module, self.pipeline, self.target, self.diagnostics = module, pipeline, target, tuple(diagnostics)
        self.contracts, self.settings = contracts or module, settings or Settings()
        self._float64, self.passes = float64, passes
        self._executable: Executable | None = None
        self._binder: Binder | None = None
        self._watched: tuple[Watched, Executable] | None = None
        self._again: Again | None = None
        # An input may be called like an option of a call; then it is the input that is meant.
        self._taken = frozenset(o.name for o in pipeline.inputs) & {"out", "copies", "check_values", "asynchronous", "arena"}
        self.resident: frozenset[str] = frozenset()
        """Inputs that were moved to the device when parameters were bound: a call whose other arrays are on the host has its results there too."""

    @property
    def float64(self) -> bool:
        """Whether the reference computes in f64 throughout."""
        return self._float64

    @property
    def executable(self) -> Executable:
        """What the backend made."""
        if self._executable is None:
            with self.settings.project.environment():
                self._executable = load_module(self.target, self.module, self.pipeline.name, float64=self._float64)
        return self._executable

    @property
    def inputs(self) -> tuple[Operand, ...]:
        """The inputs as the signature has them."""
        return self.pipeline.inputs

    @property
    def results(self) -> tuple[Operand, ...]:
        """The results as the signature has them."""
        return self.pipeline.results

    @property
    def artifacts(self) -> Artifacts:
        """Every intermediate text or binary by its extension."""
        return Artifacts(self.module, self.executable)

    asm = artifacts

    def as_text(self, extension: str) -> str:
        """One of the artifacts as text."""
        value = self.artifacts[extension]
        return value if isinstance(value, str) else value.decode("utf-8")

    @property
    def ledger(self) -> tuple[Entry, ...]:
        """What was inserted or declined when the program was compiled. What a call copies is told by `check(…).entries`."""
        return ledger(self.module, self.target.name)

    @property
    def binder(self) -> Binder:
        """What checks arrays against the signature."""
        if self._binder is None:
            from pipelink_ir.runtime import log
            with self.settings.project.environment():
                look = log.tell if log.wanted() else None
            self._binder = self._new_binder(look)
        return self._binder

    def _new_binder(self, look: Any) -> Binder:
        driver = getattr(self._executable, "driver", None)
        if driver is None and self.target.device is not None:
            # Arrays are looked at before anything is compiled.
            from pipelink_ir.backends.cuda.opened import driver as opened
            driver = opened()
        if driver is None:
            from pipelink_ir.runtime.bind import Binder
            return Binder(self.contracts, self.pipeline, self.settings.copies, look)
        from pipelink_ir.runtime.device_bind import DeviceBinder
        return DeviceBinder(self.contracts, self.pipeline, self.settings.copies, look, driver, self.target.device or 0, self.resident)

    def bind(self, /, **params: Any) -> BoundPipeline:
        """Bind the parameters (`param` inputs), all of them: a pipeline that asks for the other inputs only. What depends on parameters alone is computed now
        and kept, on the device of the target. Raises `ExecutionError` for arrays that do not match.

            layer = pipelink_ir.compile("layer.plir").bind(w=weights)
            y = layer(x=x)
        """
        from pipelink_ir.runtime.parameters import bound_pipeline
        return bound_pipeline(self, params)

    def check(self, arrays: Mapping[str, Any], origins: Mapping[str, str] | None = None, copies: str | None = None) -> Bound:
        """Check arrays against the signature and the contracts behind it; `ExecutionError` (PL6001) says what does not match, as `ContractViolationError` where
        it is a contract. `origins` says which files arrays came from; `copies="allow"` copies what would be refused."""
        bound = (self._binder or self.binder).bind(arrays, origins, copies)
        if bound.entries and self.settings.deny:
            from pipelink_ir.runtime.matching import stop
            report = Report()
            check_denied(bound.entries, self.settings.deny, report, self.pipeline.name_span)
            stop(report)
        return bound

    def arena_bytes(self, /, **given: Any) -> int:
        """How many bytes an arena has to have that a call is given (`arena=`), for inputs of these shapes or for these arrays. Inputs whose shape the signature
        knows may be left out. 0 where nothing lives between nodes, or the target has no arena."""
        return self._need(given)[0]

    def _need(self, given: Mapping[str, Any]) -> tuple[int, int]:
        """Bytes of an arena, and what it has to begin at a multiple of."""
        from pipelink_ir.runtime.arena import shapes_of
        ask = getattr(self.executable, "arena", None)
        shapes = shapes_of(self.pipeline, given)
        return _ours("while planning memory", lambda: ask(shapes)) if ask is not None else (0, 1)

    def explain(self, /, **given: Any) -> str:
        """What was inserted or declined, and how memory is used: the peak, the lower bound, who shares with whom. For inputs of these shapes or for these
        arrays; without them for what is known when a program is compiled."""
        from pipelink_ir.runtime.memory import explained
        return explained(self, given)

    def _inside(self, arena: Any, bound: Bound, given: Mapping[str, Given] | None) -> int:
        """Where an arena of the caller's begins; 0 for none."""
        if arena is None:
            return 0
        from pipelink_ir.runtime.arena import check_arena
        device = "cpu" if self.target.device is None else f"cuda:{self.target.device}"
        return check_arena(self.binder, device, arena, self._need(dict(zip(bound.names, bound.shapes, strict=True))), bound, given)

    def run(self, bound: Bound, out: Any = None, arena: Any = None) -> Results:
        """Run on arrays that were checked. `out` gives arrays for results and `arena` memory to work in, as in a call."""
        from pipelink_ir.runtime.calls import run
        given, where = None, f"while running on '{self.target.name}'"
        if out is not None:
            from pipelink_ir.runtime.outputs import check_outputs
            given = check_outputs(self.binder, out, bound)
        inside = Inside(arena, self._inside(arena, bound, given)) if arena is not None else None
        if self.settings.check_values:
            watched, executable = self._watching()
            return Results(_ours(where, lambda: run(executable, self.pipeline.results, bound, given, watched)))
        executable = self._executable or self.executable
        return Results(_ours(where, lambda: run(executable, self.pipeline.results, bound, given, None, inside)))

    def start(self, bound: Bound, out: Any = None, arena: Any = None) -> Pending:
        """Run on arrays that were checked, and return before it is done; see `asynchronous` of a call."""
        executable = self._executable or self.executable
        if not hasattr(executable, "start"):
            raise UsageError(f"asynchronous calls are for a GPU, and this pipeline runs on '{self.target.name}'")
        if self.settings.check_values:
            raise UsageError("values are checked when a run is done: 'check_values' does not go with an asynchronous call")
        from pipelink_ir.runtime import device_calls
        given = None
        if out is not None:
            from pipelink_ir.runtime.outputs import check_outputs
            given = check_outputs(self.binder, out, bound)
        inside = Inside(arena, self._inside(arena, bound, given)) if arena is not None else None
        return _ours(f"while running on '{self.target.name}'",
                     lambda: device_calls.start(cast(Any, executable), self.pipeline.results, cast(Any, bound), given, Results, inside))

    def _watching(self) -> tuple[Watched, Executable]:
        """The pipeline in which every edge that a contract speaks of is a result."""
        if self._watched is None:
            from pipelink_ir.runtime.values import watched
            laid_out = run_passes(self.contracts, parse_passes("flatten")[-1:], Report())
            found = watched(self.contracts, laid_out, self.pipeline.name)
            with self.settings.project.environment():
                self._watched = found, load_module(self.target, found.module, self.pipeline.name, float64=self._float64)
        return self._watched

    def __call__(self, /, *unnamed: Any, out: Any = None, copies: str | None = None, asynchronous: bool | None = None, arena: Any = None, **arrays: Any) -> Any:
        """Check the arrays and run. They are read where they are and never written.

        Results are fresh arrays of the caller's, or go to the arrays that `out` gives: a table by name, a list in order, or one array for the only result.
        `copies="allow"` makes a copy of an array that is not as contiguous as an operator asks, instead of an error. On a GPU, `asynchronous=True` returns a
        `Pending` at once: its `results`, an `event`, `done()` and `wait()`. `arena` is memory of the caller's for what lives between nodes, as large as
        `arena_bytes` says, for this call alone until it is done."""
        again = self._again
        if again is not None and out is None and copies is None and not asynchronous and arena is None:
            results = again(arrays)
            if results is not None:
                return results
        if unnamed:
            raise UsageError(f"arrays are given by name: {', '.join(f'{o.name}=…' for o in self.inputs)}")
        return self._call(arrays, out, copies, asynchronous, arena)

    def _call(self, arrays: dict[str, Any], out: Any, copies: str | None, asynchronous: bool | None, arena: Any) -> Any:
        if self._taken:
            for name, value in (("out", out), ("copies", copies), ("asynchronous", asynchronous), ("arena", arena)):
                if name in self._taken and value is not None:
                    arrays[name] = value
            out, copies = (None if "out" in self._taken else out), (None if "copies" in self._taken else copies)
            asynchronous, arena = (None if "asynchronous" in self._taken else asynchronous), (None if "arena" in self._taken else arena)
        bound = self.check(arrays, None, copies)
        if asynchronous:
            return self.start(bound, out, arena)
        results = self.run(bound, out, arena)
        plain = out is None and copies is None and arena is None and not self._taken
        if plain and self.target.device is not None and not self.settings.check_values and not self.settings.deny:
            from pipelink_ir.runtime.device_calls import Again
            self._again = Again.of(self.executable, bound, self.binder, self.pipeline.results, Results)
        return results

    def __repr__(self) -> str:
        return f"<pipeline @{self.pipeline.name} for {self.target.name}: {', '.join(o.name for o in self.inputs)} -> {', '.join(o.name for o in self.results)}>"


def compile(program: str | os.PathLike[str], target: str | None = None, pipeline: str | None = None, *, float64: bool = False, copies: str | None = None,
            check_values: bool = False, deny: str | Iterable[str] = (), passes: str | None = None, pass_options: str | None = None,
            **attributes: Any) -> Compiled:
    """Compile a program for a target and return a callable.

    `program` is the path of a `.plir` file, or the text of a program (a string of several lines). `target` is "cuda" or "cuda:1" (a GPU), "cpu", or
    "reference", which interprets the program with NumPy, with `float64` in f64 throughout; without one it is the best device present. `pipeline` names one
    where there are several. `attributes` are values for the attributes of the pipeline.

    `copies` is "refuse" (the default) or "allow": whether an array that is not as contiguous as an operator asks is copied instead of refused. With
    `check_values`, `range` and `finite` are checked on the values of every edge while it runs, which takes time. `deny` names kinds of ledger entries
    that are errors, "copy,cast". `passes` are the passes to run, as `--passes` takes them, and `pass_options` other options for some of those that run:
    "assign-streams{max_streams=8},fuse{nodes=1}" allows eight streams and fuses nothing. What is not said is taken from the `pipelink.yaml` beside the
    program or above it.

    Raises `ProgramError` with all diagnostics if the program is at fault, as `ContractViolationError` if the first is about a contract.

        edge = pipelink_ir.compile("edge_gamma.plir")
        out = edge(img=frame)          # frame: float32 [N, H, W, 3]; out.out: float32 [N, H, W, 1]
    """
    project = project_of(program)
    settings = Settings(copies or project.copies or "refuse", check_values, parse_kinds((deny,) if isinstance(deny, str) else deny, "deny"), project)
    chosen = parse_target(target or project.runs_on() or best_target())
    try:
        with project.environment():
            module = read(program)
            steps = placed_on(checked_for(parse_passes(chosen.passes if passes is None else passes), [chosen] if target else ()), chosen)
            steps = project.steps(with_options(steps, pass_options or ""), checked=bool(target or module.targets))
            compiled = compile_module(module, chosen, pipeline, attributes, float64=float64, steps=steps, settings=settings)
    except ProgramError as error:
        raise violation(error) from None
    _ = compiled.executable  # now, not at the first call
    return compiled


def project_of(program: str | os.PathLike[str]) -> Project:
    """The project file that is in force for a program; that of a text is none."""
    return Project() if isinstance(program, str) and "\n" in program else find_project(os.fsdecode(program))


def read(program: str | os.PathLike[str]) -> Module:
    """Parse a file, or a text of several lines."""
    if isinstance(program, str) and "\n" in program:
        from pipelink_ir.grammar import parse
        return parse(program, "<text>")
    return read_program(os.fsdecode(program))


def pick_pipeline(module: Module, name: str | None) -> str:
    """The pipeline of that name, or the only one."""
    known = [p.name for p in module.pipelines]
    if name is None:
        if len(known) == 1:
            return known[0]
        how = "has no pipeline" if not known else f"has several pipelines, {', '.join('@' + n for n in known)}: say which (--pipeline NAME, pipeline=\"NAME\")"
        raise UsageError(f"{module.path} {how}")
    name = name.removeprefix("@")
    if name not in known:
        near = did_you_mean(name, known, "@")
        raise UsageError(f"{module.path} has no pipeline '@{name}'; {near or 'it has ' + (', '.join('@' + n for n in known) or 'none')}")
    return name


def compile_module(module: Module, target: Target, pipeline: str | None = None, attributes: Mapping[str, Any] | None = None, *, float64: bool = False,
                   steps: Sequence[Step] | None = None, hooks: Sequence[Hook] = (), settings: Settings | None = None) -> Compiled:
    """Run the passes on a parsed program. The backend gets the result when it is first needed."""
    settings = settings or Settings()
    name = pick_pipeline(module, pipeline)
    module = with_attributes(module, name, attributes or {})
    require_values(module, name)
    report, typed = Report(), _Typed()
    steps = completed(parse_passes(target.passes) if steps is None else steps, target)
    module = run_passes(module, steps, report, [*hooks, typed])
    made = next(p for p in module.pipelines if p.name == name)
    compiled = Compiled(module, made, target, report.diagnostics, float64, pipeline_text(steps), typed.module, settings)
    check_denied(compiled.ledger if settings.deny else (), settings.deny, report, compiled.pipeline.name_span)
    report.stop_if_failed()
    return compiled


@dataclass(slots=True)
class _Typed:
    """Keeps the module as it is once its types are known: there the contracts of graph operators can still be read."""

    module: Module | None = None

    def __call__(self, step: Step, before: Module, after: Module | Exception | None) -> None:
        if step is not INPUT and step.name in ("infer-types", "check-contracts") and isinstance(after, Module):
            self.module = after


def load_module(target: Target, module: Module, pipeline: str, **options: Any) -> Executable:
    """Load a module that has been through its passes."""
    return _ours(f"in the backend '{target.name}'", lambda: load(target, module, pipeline, options))


def _ours(where: str, do: Callable[[], R]) -> R:
    """What a backend does; whatever it raises beyond what it should is told as a fault of ours."""
    try:
        return do()
    except (ProgramError, UsageError, MemoryError):
        raise
    except Exception as error:
        raise InternalError(f"{where}: {describe_error(error)}") from error
