"""`pipelink_ir.compile`: from a program's text to something that can be called with arrays."""
from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipelink_ir.ir.diagnostics import ProgramError, Report, UsageError, did_you_mean, violation
from pipelink_ir.ir.nodes import Module
from pipelink_ir.passes.ledger import check_denied, parse_kinds
from pipelink_ir.passes.manager import INPUT, Hook, Step, parse_passes, pipeline_text, run_passes, with_options
from pipelink_ir.runtime.attributes import require_texts, require_values, with_attributes
from pipelink_ir.runtime.calibration.files import with_calibration
from pipelink_ir.runtime.parameters import BoundPipeline, bound_pipeline
from pipelink_ir.runtime.project import Project, find_project
from pipelink_ir.runtime.results import Results
from pipelink_ir.runtime.runnable import Artifacts, Runnable, Settings, load_module
from pipelink_ir.runtime.sources import read_program
from pipelink_ir.runtime.targets import Target, best_target, check_kernels, checked_for, completed, lowered_for, parse_target, placed_on, with_libraries
from pipelink_ir.runtime.tuning.files import with_tuned

if TYPE_CHECKING:
    from pipelink_ir.runtime.tuning.search import Outcome, Watch
    from pipelink_ir.runtime.tuning.turns import Clock

__all__ = ["Artifacts", "BoundPipeline", "Compiled", "Results", "Settings", "compile", "compile_module", "load_module", "path_of", "pick_pipeline",
           "project_of", "read", "tune"]


class Compiled(Runnable):
    """A compiled pipeline: run it with one array for each input, by name, or bind its parameters first."""

    def bind(self, /, **params: Any) -> BoundPipeline:
        """Bind the parameters (`param` inputs), all of them: a pipeline that asks for the other inputs only. What depends on parameters alone is computed now
        and kept, on the device of the target. Raises `ExecutionError` for arrays that do not match.

            layer = pipelink_ir.compile("layer.plir").bind(w=weights)
            y = layer(x=x)
        """
        return bound_pipeline(self.on_gpu(), params)


def compile(program: str | os.PathLike[str], target: str | None = None, pipeline: str | None = None, *, float64: bool = False, copies: str | None = None,
            check_values: bool = False, deny: str | Iterable[str] = (), passes: str | None = None, pass_options: str | None = None,
            tune: Mapping[str, Any] | None = None, tuned: str | os.PathLike[str] | None = None,
            calibration: str | os.PathLike[str] | None = None, **attributes: Any) -> Compiled:
    """Compile a program for a target and return a callable.

    `program` is the path of a `.plir` file, or the text of a program (a string of several lines). `target` is "cuda" or "cuda:1" (a GPU), "cpu", "sm_75"
    (what a GPU of that architecture runs, texts that a newer GPU runs too), or "reference", which interprets the program with NumPy, with `float64` in f64
    throughout; without one it is the best device present. `pipeline` names one
    where there are several. `attributes` are values for the attributes of the pipeline.

    `copies` is "refuse" (the default) or "allow": whether an array that is not as contiguous as an operator asks is copied instead of refused. With
    `check_values`, `range` and `finite` are checked on the values of every edge while it runs, which takes time. `deny` names kinds of ledger entries
    that are errors, "copy,cast". `passes` are the passes to run, as `--passes` takes them, and `pass_options` other options for some of those that run:
    "assign-streams{max_streams=8},fuse{nodes=1}" allows eight streams and fuses nothing. What is not said is taken from the `pipelink.yaml` beside the
    program or above it.

    `tune` has an array for each input, or sizes by name (the arrays are made then): schedules are measured on them, and those that are faster are kept in the
    file `tuned`, by default `edge.tuned.yaml` beside `edge.plir`, of a text in the folder of the cache. That file is read whenever the program is compiled;
    `tuned="off"` reads none.

    `calibration` is the file with the ranges that values are quantised by, which `pipelink_ir.calibrate` writes; without it that beside the program, and none
    for "off".

    Raises `ProgramError` with all diagnostics if the program is at fault, as `ContractViolationError` if the first is about a contract.

        edge = pipelink_ir.compile("edge_gamma.plir")
        out = edge(img=frame)          # frame: float32 [N, H, W, 3]; out.out: float32 [N, H, W, 1]
    """
    require_texts(target=target, pipeline=pipeline, copies=copies, passes=passes, pass_options=pass_options)
    project = project_of(program)
    settings = Settings(copies or project.copies or "refuse", check_values, parse_kinds((deny,) if isinstance(deny, str) else deny, "deny"), project)
    chosen = parse_target(target or project.runs_on() or best_target())
    try:
        with project.environment():
            module = read(program)
            steps = placed_on(checked_for(parse_passes(chosen.passes if passes is None else passes), [chosen] if target else ()), chosen)
            steps = project.steps(with_options(steps, pass_options or ""), checked=bool(target or module.targets))
            path, kept_in = path_of(program), None if tuned is None else os.fsdecode(tuned)
            steps = with_calibration(steps, path, None if calibration is None else os.fsdecode(calibration))
            if tune is not None:
                _tune(module, chosen, pipeline, attributes, steps, settings, tune, path, kept_in)
            steps = with_tuned(steps, chosen, module, path, kept_in)
            compiled = compile_module(module, chosen, pipeline, attributes, float64=float64, steps=steps, settings=settings)
    except ProgramError as error:
        raise violation(error) from None
    _ = compiled.executable  # now, not at the first call
    return compiled


def tune(module: Module, target: Target, pipeline: str | None = None, attributes: Mapping[str, Any] | None = None, *, steps: Sequence[Step],
         settings: Settings | None = None, given: Mapping[str, Any] | None = None, sizes: Mapping[str, int] | None = None, clock: Clock | None = None,
         watch: Watch | None = None) -> Outcome:
    """Measure schedules for every operator of a pipeline, on arrays that are given or made for `sizes`. Nothing is kept: that is for `tuning/files.py`."""
    from pipelink_ir.runtime.samples import made_inputs
    from pipelink_ir.runtime.tuning.search import measurable, search, without_files
    from pipelink_ir.runtime.tuning.single import Before
    at, before, plain = measurable(target, steps), Before(), [without_files(s) for s in steps]
    compiled = compile_module(module, target, pipeline, attributes, steps=plain, hooks=[before], settings=settings)
    return search(compiled, before.found, made_inputs(compiled, given or {}, sizes or {}), plain[at:], clock, watch)


def _tune(module: Module, target: Target, pipeline: str | None, attributes: Mapping[str, Any], steps: Sequence[Step], settings: Settings,
          on: Mapping[str, Any], path: str | None, tuned: str | None) -> None:
    """Measure schedules and keep the better ones."""
    from pipelink_ir.runtime.tuning.files import OFF, kept
    if tuned == OFF:
        raise UsageError("'tune' keeps what it finds: tuned=\"off\" does not go with it")
    sizes = {name: n for name, n in on.items() if isinstance(n, int)}
    arrays = {name: a for name, a in on.items() if name not in sizes}
    found = tune(module, target, pipeline, attributes, steps=steps, settings=settings, given=arrays, sizes=sizes)
    kept(found.entries, path, tuned, found.arch)


def project_of(program: str | os.PathLike[str]) -> Project:
    """The project file that is in force for a program; that of a text is none."""
    path = path_of(program)
    return Project() if path is None else find_project(path)


def path_of(program: str | os.PathLike[str]) -> str | None:
    """The file of a program; None for a text, which has several lines. `UsageError` for what is neither."""
    if not isinstance(program, (str, bytes, os.PathLike)):
        raise UsageError(f"a program is the path of a file or a text, not {program!r} ({type(program).__name__})")
    return None if isinstance(program, str) and "\n" in program else os.fsdecode(program)


def read(program: str | os.PathLike[str]) -> Module:
    """Parse a file, or a text of several lines."""
    path = path_of(program)
    if path is None:
        from pipelink_ir.grammar import parse
        return parse(os.fsdecode(program), "<text>")
    return read_program(path)


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
    steps = lowered_for(with_libraries(completed(parse_passes(target.passes) if steps is None else steps, target), target, module), target, module, name)
    module = run_passes(module, steps, report, [*hooks, typed])
    check_kernels(module, name, target, report)
    report.stop_if_failed()
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
