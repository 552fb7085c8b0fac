"""`pipelink_ir.compile`: from a program's text to something that can be called with arrays."""
from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pipelink_ir.ir.diagnostics import Diagnostic, InternalError, ProgramError, Report, UsageError, did_you_mean
from pipelink_ir.ir.nodes import Module, Operand, Pipeline
from pipelink_ir.passes.manager import Hook, Step, describe_error, parse_passes, pipeline_text, run_passes
from pipelink_ir.runtime.attributes import require_values, with_attributes
from pipelink_ir.runtime.bind import Bound, bind
from pipelink_ir.runtime.sources import read_program
from pipelink_ir.runtime.targets import Target, checked_for, completed, load, parse_target

if TYPE_CHECKING:
    from pipelink_ir.backends.interface import Executable

R = TypeVar("R")


class Results:
    """The results of a call, by name and in the order of the signature.

    `out["edges"]`, `out.edges`, `out[0]`; `edges, mask = pipeline(…)` unpacks; `dict(out)` and `**out` work. A single result can be given to NumPy as it is."""

    __slots__ = ("_arrays",)

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        self._arrays = dict(arrays)

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

    def __contains__(self, extension: object) -> bool:
        return extension == "plir" or extension in self._executable.artifacts

    def __iter__(self) -> Iterator[str]:
        return iter(["plir", *(k for k in self._executable.artifacts if k != "plir")])

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Compiled:
    """A pipeline that is ready to run: call it with one array for each input, by name.

    `module` is the program after all `passes`, `pipeline` its pipeline; `diagnostics` holds the warnings; `artifacts` every intermediate text by its
    extension (`plir`, `ll`, `s`, …)."""

    def __init__(self, module: Module, pipeline: Pipeline, target: Target, diagnostics: Sequence[Diagnostic], float64: bool = False,
                 passes: str = "") -> None:
        self.module, self.pipeline, self.target, self.diagnostics = module, pipeline, target, tuple(diagnostics)
        self._float64, self._executable, self.passes = float64, None, passes

    _executable: Executable | None

    @property
    def executable(self) -> Executable:
        """What the backend made."""
        if self._executable is None:
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

    def bind(self, arrays: Mapping[str, Any], origins: Mapping[str, str] | None = None, copies: str | None = None) -> Bound:
        """Check arrays against the signature; `ExecutionError` (PL6001) says what does not match. `origins` says where each came from."""
        return bind(self.module, self.pipeline, arrays, origins or {}, copies)

    def run(self, bound: Bound) -> Results:
        """Run on arrays that were checked."""
        executable = self.executable
        return Results(_ours(f"while running on '{self.target.name}'", lambda: executable(bound.arrays)))

    def __call__(self, /, **arrays: Any) -> Results:
        """Check the arrays and run. They are read where they are and never written; the results are fresh arrays of the caller's."""
        return self.run(self.bind(arrays))

    def __repr__(self) -> str:
        return f"<pipeline @{self.pipeline.name} for {self.target.name}: {', '.join(o.name for o in self.inputs)} -> {', '.join(o.name for o in self.results)}>"


def compile(program: str | os.PathLike[str], target: str | None = None, pipeline: str | None = None, *, float64: bool = False, **attributes: Any) -> Compiled:
    """Compile a program for a target and return a callable.

    `program` is the path of a `.plir` file, or the text of a program (a string of several lines). `target` is "cpu" (the default) or "reference", which
    interprets the program with NumPy, with `float64` in f64 throughout. `pipeline` names one where there are several. `attributes` are values for the
    attributes of the pipeline. Raises `ProgramError` with all diagnostics if the program is at fault.

        edge = pipelink_ir.compile("edge_gamma.plir")
        out = edge(img=frame)          # frame: float32 [N, H, W, 3]; out.out: float32 [N, H, W, 1]
    """
    chosen = parse_target(target or "cpu")
    steps = checked_for(parse_passes(chosen.passes), [chosen] if target else ())
    compiled = compile_module(read(program), chosen, pipeline, attributes, float64=float64, steps=steps)
    _ = compiled.executable  # now, not at the first call
    return compiled


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
                   steps: Sequence[Step] | None = None, hooks: Sequence[Hook] = ()) -> Compiled:
    """Run the passes on a parsed program. The backend gets the result when it is first needed."""
    name = pick_pipeline(module, pipeline)
    module = with_attributes(module, name, attributes or {})
    require_values(module, name)
    report = Report()
    steps = completed(parse_passes(target.passes) if steps is None else steps, target)
    module = run_passes(module, steps, report, hooks)
    return Compiled(module, next(p for p in module.pipelines if p.name == name), target, report.diagnostics, float64, pipeline_text(steps))


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
