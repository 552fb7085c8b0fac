"""`pipelinkc calibrate`: the ranges of all edges on data, and how far lowered plans are from the program as it is.

The data is gone through once for the ranges and what `percentile` and `mse` look at, a second time for the histograms of `entropy`, and once more for errors of
targets. Each sample is read, run and let go, so data need not fit into memory.
"""
from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pipelink_ir.ir.diagnostics import Diagnostic, ProgramError, Report, UsageError
from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.nodes import Module
from pipelink_ir.passes.manager import run_passes, step
from pipelink_ir.passes.precision.calibrated import Calibration, EdgeRange, policies_digest, program_digest, ranges_digest
from pipelink_ir.passes.precision.calibration_file import calibration_text
from pipelink_ir.runtime.attributes import require_texts
from pipelink_ir.runtime.calibration import files, methods
from pipelink_ir.runtime.calibration.differences import Difference
from pipelink_ir.runtime.calibration.histograms import Linear, Seen, Spread
from pipelink_ir.runtime.calibration.lowering import Asked, arch_of, asked, declined, lowered, names_in, schemes
from pipelink_ir.runtime.calibration.samples import Given, Sample, Samples
from pipelink_ir.runtime.calibration.tapped import Flat, Tap, flattened, passes_of
from pipelink_ir.runtime.compile import Settings, path_of, project_of, read
from pipelink_ir.runtime.output import STDOUT_PATHS
from pipelink_ir.runtime.targets import LOWER, Target, best_target, parse_target

Watch = Callable[[str, int, int], None]
"""Told of progress: what is done, samples done, samples in all (-1 if that is not known)."""


@dataclass(frozen=True, slots=True)
class Checked:
    """The measured error of one result of a node with a policy, beside the budget of its clause, if it has one."""

    arch: str
    edge: str
    node: Asked
    error: float
    declined: str | None = None
    """Why the node was left as it is, if it was."""

    @property
    def budget(self) -> float | None:
        return self.node.policy.budget

    @property
    def breached(self) -> bool:
        return self.budget is not None and not self.error <= self.budget


@dataclass(frozen=True, slots=True)
class Calibrated:
    """What was measured: what the file holds, where it is, errors beside budgets, and what is to be said of it."""

    calibration: Calibration
    path: str | None
    checked: tuple[Checked, ...] = ()
    warnings: tuple[str, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = field(default=(), repr=False)
    """What the compiler refuses with these measurements: budgets that are breached, at their clauses."""

    @property
    def ok(self) -> bool:
        """Whether every budget is kept."""
        return not self.diagnostics and not any(c.breached for c in self.checked)


def calibrate(program: str | os.PathLike[str], data: Iterable[Mapping[str, Any]], *, method: str = "minmax", percentile: float | None = None,
              targets: Sequence[str] | str = (), pipeline: str | None = None, on: str | None = None, params: Mapping[str, Any] | None = None,
              output: str | os.PathLike[str] | None = None, **attributes: Any) -> Calibrated:
    """Measure the ranges of a program's edges on data, and write them to `FILE.calibration.yaml` beside it, where `compile` finds them.

    `data` is a list of samples, each a table with an array for each input, or any object that can be gone through several times; `params` are arrays that are
    the same in all. `method` is "minmax", "percentile" (with `percentile`, by default 99.99), "mse" or "entropy". `targets` are architectures whose lowered
    plans are measured too, "sm_75" or several; `on` is where all of it is run, by default the best device present. `output` names another file, or "off" for
    none; `attributes` are values for attributes of the pipeline.

    Raises `ProgramError` if the program is at fault, `ExecutionError` for data that does not fit.

        found = pipelink_ir.calibrate("net.plir", data=[{"img": a}, {"img": b}], method="percentile", targets="sm_75")
        found.ok, found.calibration.edges["y"].high
    """
    targets = (targets,) if isinstance(targets, str) else tuple(targets)
    require_texts(method=method, pipeline=pipeline, on=on, **{f"targets[{n}]": text for n, text in enumerate(targets)})
    project = project_of(program)
    path = path_of(program)
    asked_for = None if output is None else os.fsdecode(output)
    with project.environment():
        settings, where = Settings(project.copies or "refuse", project=project), parse_target(on or project.runs_on() or best_target())
        job = Job(read(program), where, pipeline, attributes, settings, method, percentile, targets)
        goes_to = None if asked_for == files.OFF or (asked_for is None and path is None) else files.goes_to(path, asked_for)
        return job.run(Given(data, params or {}), goes_to)


@dataclass(slots=True)
class Job:
    """One calibration."""

    module: Module
    target: Target
    pipeline: str | None
    attributes: Mapping[str, Any]
    settings: Settings
    method: str = "minmax"
    percentile: float | None = None
    archs: Sequence[str] = ()
    watch: Watch | None = None
    flats: dict[str, Flat] = field(default_factory=dict)

    def flat(self, arch: str = "") -> Flat:
        """The program laid out, with the policies for an architecture handed down."""
        if arch not in self.flats:
            steps = self.settings.project.steps(passes_of(self.target), checked=False)
            self.flats[arch] = flattened(self.module, self.target, self.pipeline, self.attributes, steps, self.settings, arch=arch)
        return self.flats[arch]

    def run(self, samples: Samples, output: str | None) -> Calibrated:
        """Measure, and write the file if there is to be one."""
        method = methods.check_method(self.method, self.percentile)
        archs = [str(arch_of(a)) for a in dict.fromkeys(self.archs)]
        flat = self.flat()
        if output is not None and output not in STDOUT_PATHS:
            files.check_free(output, flat.name)
            _writable(output)
        ranges, warnings, count = self._ranges(flat, samples, archs)
        found = Calibration(flat.name, method, ranges, {}, count, samples.random, program_digest(flat.module, flat.name))
        if not ranges:
            raise UsageError(f"no edge of '@{flat.name}' had a finite value: there is nothing to calibrate by" + "".join(f"; {w}" for w in warnings))
        errors, checked, refused = self._errors(found, samples, archs, output)
        digests = {a: policies_digest(self.flat(a).module, flat.name, a) for a in errors}
        left = {a: tuple(k.edge for k in checked if k.arch == a and k.declined) for a in errors}
        found = replace(found, errors=errors, policies=digests, declined=left, ranges=ranges_digest(ranges) if errors else "")
        if output is not None:
            files.kept(found, output)
        refused += [d for a in errors for d in refusals(self.flat(a), a, found, checked, output)]
        return Calibrated(found, output, checked, tuple(warnings), tuple(refused))

    # --------------------------------------------------------------------------------------------------------------------- ranges

    def _ranges(self, flat: Flat, samples: Samples, archs: Sequence[str]) -> tuple[dict[str, EdgeRange], list[str], int]:
        tap, inputs = Tap(flat, flat.floats), [o for o in flat.pipeline.inputs if DTYPES[o.type.dtype].kind == "float"]
        order = [*(o.name for o in inputs), *flat.floats]
        if not order:
            raise UsageError(f"'@{flat.name}' has no edge of a float dtype: there is nothing to calibrate")
        seen = {name: Seen() for name in order}
        spread = {name: Spread() for name in order} if self.method in ("percentile", "mse") else {}
        count = 0
        for name, array in self._values(tap, samples, [o.name for o in inputs], "ranges"):
            if name is None:
                count += 1
                continue
            seen[name].add(array)
            if spread:
                spread[name].add(array)
        linear = {name: Linear(s.amax) for name, s in seen.items() if s.count} if self.method == "entropy" else {}
        if linear:
            for name, array in self._values(tap, samples, [o.name for o in inputs], "histograms"):
                if name in linear:
                    linear[name].add(array)
        codes = self._codes(flat, archs) if self.method == "mse" else {}
        out, warnings = {}, []
        for name in order:
            s = seen[name]
            if s.nan or s.inf:
                what = " and ".join(t for t in (f"{s.nan} NaN" * bool(s.nan), f"{s.inf} infinite" * bool(s.inf)) if t)
                warnings.append(f"'%{name}' had {what} of {s.count + s.nan + s.inf} values; they are left out")
            if not s.count:
                warnings.append(f"'%{name}' had no finite value: it gets no range")
                continue
            low, high = self._ends(name, s, spread, linear, codes.get(name, ("i8", "symmetric")))
            out[name] = EdgeRange(s.min, s.max, low, high, s.rms, _clipped(s, low, high, spread.get(name), linear.get(name)), s.nan, s.inf)
        return out, warnings, count

    def _values(self, tap: Tap, samples: Samples, inputs: Sequence[str], what: str) -> Iterator[tuple[str | None, Any]]:
        """Names of edges with their values, sample after sample; a name that is None ends a sample."""
        before: Mapping[str, Any] = {}
        for sample in self._told(samples, tap.flat, what):
            yield from tap.values(sample)
            # They are read after the run, which has checked them. Weights are the same object in every sample: once is enough.
            for name in inputs:
                if name in sample.arrays and sample.arrays[name] is not before.get(name):
                    yield name, _host(sample.arrays[name])
            before = sample.arrays
            yield None, None

    def _told(self, samples: Samples, flat: Flat, what: str) -> Iterator[Sample]:
        done = 0
        for sample in samples.of(flat.signature()):
            if self.watch is not None:
                self.watch(what, done, samples.size)
            yield sample
            done += 1

    def _ends(self, name: str, seen: Seen, spread: Mapping[str, Spread], linear: Mapping[str, Linear], codes: tuple[str, str]) -> tuple[float, float]:
        if self.method == "percentile":
            return methods.by_percentile(spread[name], seen, methods.PERCENTILE if self.percentile is None else self.percentile)
        if self.method == "mse":
            return methods.by_error(spread[name], seen, *codes)
        if self.method == "entropy":
            return methods.by_entropy(linear[name], seen)
        return seen.min, seen.max

    def _codes(self, flat: Flat, archs: Sequence[str]) -> Mapping[str, tuple[str, str]]:
        """The codes that edges are to have, by the clauses for the targets asked for, else by all clauses."""
        named = {d.target for o in flat.module.operators for d in o.downgrades}
        all_archs = [arch_of(a) for a in archs] or [arch_of(a) for a in sorted(named) if a != "reference"]
        out: dict[str, tuple[str, str]] = {}
        for a in all_archs:
            for name, codes in schemes(self.flat(str(a)), [a]).items():
                out.setdefault(name, codes)
        return out

    # --------------------------------------------------------------------------------------------------------------------- errors

    def _errors(self, found: Calibration, samples: Samples, archs: Sequence[str],
                output: str | None) -> tuple[dict[str, dict[str, float]], tuple[Checked, ...], list[Diagnostic]]:
        """The errors of each target's plan, those that a clause has something to say of, and why there is no plan where there is none."""
        errors: dict[str, dict[str, float]] = {}
        checked: list[Checked] = []
        refused: list[Diagnostic] = []
        for arch in archs:
            flat = self.flat(arch)
            wanted = asked(flat, arch_of(arch))
            try:
                with written(found) as path:
                    done = lowered(flat, arch, path)
            except ProgramError as error:
                refused += [_of_file(d, path, output) for d in error.diagnostics]
                continue
            names = names_in(flat, done)
            edges = [e for e in flat.floats if e in names]
            apart = {e: Difference() for e in edges}
            plain, low = Tap(flat, edges), Tap(done, edges, names)
            for sample in self._told(samples, flat, f"errors of {arch}"):
                for (e, a), (_, b) in zip(plain.values(sample), low.values(sample), strict=True):
                    apart[e].add(a, b)
            of_node = {e for n in wanted for e in n.results}
            ends = {r.name for r in flat.pipeline.results}
            errors[arch] = {e: apart[e].error for e in edges if e in of_node or e in ends}
            why = declined(done, names)
            checked += [Checked(arch, e, n, apart[e].error, why.get(e)) for n in wanted for e in n.results if e in apart]
        return errors, tuple(checked), refused


def _host(array: Any) -> Any:
    """An array that was bound, as NumPy has it."""
    from pipelink_ir.runtime.readers import read as view_of
    get = getattr(array, "get", None)
    return get() if callable(get) else view_of(array).numpy()


def _clipped(seen: Seen, low: float, high: float, spread: Spread | None, linear: Linear | None) -> float:
    """The share of values outside of the kept part, as far as histograms tell."""
    if low <= seen.min and high >= seen.max:
        return 0.0
    if spread is not None:
        values, counts = spread.points(seen.min, seen.max)
        return float(counts[(values < low) | (values > high)].sum() / seen.count)
    if linear is not None and linear.top:
        first = int(max(-low if low > seen.min else 0.0, high if high < seen.max else 0.0) / linear.top * len(linear.counts)) + 1
        return float(linear.counts[first:].sum() / seen.count)
    return 0.0


def _writable(path: str) -> None:
    """Tell now, and not when all is measured, that a file cannot be written."""
    folder = os.path.dirname(os.path.abspath(path))
    if not os.access(path if os.path.exists(path) else folder, os.W_OK):
        from pipelink_ir.runtime.sources import file_error
        raise file_error(path, "cannot be written: " + ("permission denied" if os.path.isdir(folder) else "there is no such folder"))


# ----------------------------------------------------------------------------------------------------------------------- budgets


def refusals(flat: Flat, arch: str, found: Calibration, checked: Sequence[Checked], output: str | None = None) -> list[Diagnostic]:
    """What the compiler will say of the budgets of a program's clauses, with these measurements; what it does not say of those breached is added."""
    budgets = {e for n in asked(flat, arch_of(arch)) if n.policy.budget is not None for e in n.results}
    if budgets <= {c.edge for c in checked if c.arch == arch and not c.breached}:
        return []  # all of them are measured and kept, so the compiler, which weighs every plan, need not be asked
    said: list[Diagnostic] = []
    with written(found) as path:
        try:
            run_passes(flat.module, [step(LOWER, arch=arch, calibration=path, pipeline=flat.name)], Report())
        except ProgramError as error:
            said = [_of_file(d, path, output) for d in error.diagnostics if d.severity == "error"]
    report = Report()
    for c in checked:
        n = c.node
        if c.arch == arch and c.breached and not any((d.span.source.path, d.span.start) == (n.span.source.path, n.span.start) for d in said):
            report.error("PL4302", n.span, f"'%{c.edge}' of '{n.label or '@' + n.operator}' is measured to be off by {c.error:.2g} of its largest value on "
                         f"{arch}, and its budget is {c.budget:g}", (), "what would mend it: another method of calibration; f16 for that node; a larger budget")
    return [*said, *report.diagnostics]


def _of_file(d: Diagnostic, path: str, output: str | None) -> Diagnostic:
    """What is said of the file that was written for a while, said of the one that is to be kept."""
    notes = tuple(n for n in d.notes if n.span.source.path != path)
    return replace(d, message=d.message.replace(path, output if output is not None and output not in STDOUT_PATHS else "the calibration"), notes=notes)


@contextmanager
def written(found: Calibration) -> Iterator[str]:
    """A file with what was found, for a while."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{found.pipeline}{files.ENDING}"
        path.write_text(calibration_text(found), encoding="utf-8")
        yield str(path)


__all__ = ["Calibrated", "Checked", "Job", "calibrate"]
