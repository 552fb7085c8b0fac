"""A pipeline that is ready to run: what checks the arrays of a call, loads the executable, and hands the one to the other."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pipelink_ir.ir.diagnostics import Diagnostic, InternalError, ProgramError, Report, UsageError
from pipelink_ir.ir.nodes import Module, Operand, Pipeline
from pipelink_ir.passes.ledger import Entry, check_denied, ledger
from pipelink_ir.passes.manager import describe_error, parse_passes, run_passes
from pipelink_ir.runtime.inside import Inside
from pipelink_ir.runtime.project import Project
from pipelink_ir.runtime.results import Results
from pipelink_ir.runtime.targets import Target, load, on_gpu

if TYPE_CHECKING:
    from pipelink_ir.backends.interface import Executable
    from pipelink_ir.runtime.bind import Binder, Bound
    from pipelink_ir.runtime.device_calls import Again, Pending
    from pipelink_ir.runtime.outputs import Given
    from pipelink_ir.runtime.values import Watched

R = TypeVar("R")
S = TypeVar("S", bound="Runnable")


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
        return ours(f"while making '{extension}'", lambda: self._executable.artifacts[extension])

    def missing(self, extension: str) -> UsageError:
        """Why there is no such artifact."""
        why = getattr(self._executable, "missing", None)
        if why is not None:
            error: UsageError = ours(f"while making '{extension}'", lambda: why(extension))
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


class Runnable:
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
        self._elsewhere: Runnable | None = None
        # An input may be called like an option of a call; then it is the input that is meant.
        self._taken = frozenset(o.name for o in pipeline.inputs) & {"out", "copies", "check_values", "asynchronous", "arena"}
        self.resident: frozenset[str] = frozenset()
        """Inputs that were moved to the device when parameters were bound: a call whose other arrays are on the host has its results there too."""

    def __getstate__(self) -> dict[str, Any]:
        """A copy, or what came out of a pickle in another process, makes machine code of its own when it first runs."""
        return self.__dict__ | dict.fromkeys(("_executable", "_binder", "_watched", "_again", "_elsewhere"))

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

    def on_gpu(self: S) -> S:
        """What runs: itself, or for an architecture the same pipeline on a GPU of this machine that runs its code; PL9001 where there is none."""
        if not self.target.no_device:
            return self
        if self._elsewhere is None:
            target = on_gpu(self.target)
            self._elsewhere = type(self)(self.module, self.pipeline, target, self.diagnostics, self._float64, self.passes, self.contracts, self.settings)
        return cast(S, self._elsewhere)

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
        declined: Mapping[str, str] = getattr(self._executable, "declined", {})
        return ledger(self.module, self.target.name, declined)

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

    def check(self, arrays: Mapping[str, Any], origins: Mapping[str, str] | None = None, copies: str | None = None) -> Bound:
        """Check arrays against the signature and the contracts behind it; `ExecutionError` (PL6001) says what does not match, as `ContractViolationError` where
        it is a contract. `origins` says which files arrays came from; `copies="allow"` copies what would be refused."""
        if self.target.no_device:
            return self.on_gpu().check(arrays, origins, copies)
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
        if self.target.no_device:
            return self.on_gpu()._need(given)
        ask = getattr(self.executable, "arena", None)
        shapes = shapes_of(self.pipeline, given)
        return ours("while planning memory", lambda: ask(shapes)) if ask is not None else (0, 1)

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
        if self.target.no_device:
            return self.on_gpu().run(bound, out, arena)
        given, where = None, f"while running on '{self.target.name}'"
        if out is not None:
            from pipelink_ir.runtime.outputs import check_outputs
            given = check_outputs(self.binder, out, bound)
        inside = Inside(arena, self._inside(arena, bound, given)) if arena is not None else None
        if self.settings.check_values:
            watched, executable = self._watching()
            return Results(ours(where, lambda: run(executable, self.pipeline.results, bound, given, watched)))
        executable = self._executable or self.executable
        return Results(ours(where, lambda: run(executable, self.pipeline.results, bound, given, None, inside)))

    def start(self, bound: Bound, out: Any = None, arena: Any = None) -> Pending:
        """Run on arrays that were checked, and return before it is done; see `asynchronous` of a call."""
        if self.target.no_device:
            return self.on_gpu().start(bound, out, arena)
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
        return ours(f"while running on '{self.target.name}'",
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
        if self.target.no_device:
            return self.on_gpu()(out=out, copies=copies, asynchronous=asynchronous, arena=arena, **arrays)
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


def load_module(target: Target, module: Module, pipeline: str, **options: Any) -> Executable:
    """Load a module that has been through its passes."""
    return ours(f"in the backend '{target.name}'", lambda: load(target, module, pipeline, options))


def ours(where: str, do: Callable[[], R]) -> R:
    """What a backend does; whatever it raises beyond what it should is told as a fault of ours."""
    try:
        return do()
    except (ProgramError, UsageError, MemoryError):
        raise
    except Exception as error:
        raise InternalError(f"{where}: {describe_error(error)}") from error
