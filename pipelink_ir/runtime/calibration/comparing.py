"""`pipelinkc compare`: two ways to run a program on the same data, edge by edge in the order of the graph, and where precision is lost first."""
from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pipelink_ir.ir.diagnostics import UsageError, did_you_mean
from pipelink_ir.ir.nodes import Module, Node
from pipelink_ir.ir.targets import EMULATED
from pipelink_ir.passes.aliasing.order import arguments
from pipelink_ir.passes.infer.text import written
from pipelink_ir.passes.manager import step
from pipelink_ir.runtime.attributes import require_texts
from pipelink_ir.runtime.calibration import files
from pipelink_ir.runtime.calibration.differences import Difference
from pipelink_ir.runtime.calibration.lowering import lowered, names_in
from pipelink_ir.runtime.calibration.measure import Watch
from pipelink_ir.runtime.calibration.samples import Given, Samples
from pipelink_ir.runtime.calibration.tapped import Flat, Tap, flattened, passes_of
from pipelink_ir.runtime.compile import Settings, path_of, project_of, read
from pipelink_ir.runtime.targets import PUSH, Target, checked_for, lowered_for, on_gpu, parse_target

THRESHOLD = 0.01
"""An error from which on precision counts as lost."""
KEYS = ("target", "on", "file", "lower", "calibration", "float64")


@dataclass(frozen=True, slots=True)
class Side:
    """One way to run a program: `target=sm_75` with, if it is said, where it runs (`on=cpu`), another program (`file=`), whether policies are carried out
    (`lower=off`), other ranges (`calibration=FILE`), and for the reference whether it computes in f64 (`float64=off`)."""

    target: str
    on: str | None = None
    file: str | None = None
    lower: bool = True
    calibration: str | None = None
    float64: bool = True

    def __str__(self) -> str:
        return ", ".join([self.target, *(f"{k}={v}" for k, v in (("on", self.on), ("file", self.file), ("calibration", self.calibration)) if v),
                          *(["lower=off"] if not self.lower else []), *(["float64=off"] if self.target == "reference" and not self.float64 else [])])


def parse_side(text: str, flag: str = "side") -> Side:
    """`target=sm_75,lower=off`, or a target alone."""
    values: dict[str, Any] = {}
    for part in (p.strip() for p in text.split(",")):
        key, equals, value = part.partition("=")
        if not equals:
            key, value = "target", part
        if key not in KEYS:
            raise UsageError(f"{flag}: there is no '{key}'; {did_you_mean(key, KEYS) or 'there are ' + ', '.join(KEYS)}")
        if key in values or not value:
            raise UsageError(f"{flag}: '{key}' is {'given twice' if key in values else 'empty'}")
        if key in ("lower", "float64"):
            if value not in ("on", "off"):
                raise UsageError(f"{flag}: '{key}' is on or off, not '{value}'")
            values[key] = value == "on"
        else:
            values[key] = value
    if "target" not in values:
        raise UsageError(f"{flag}: say which target, 'target=sm_75'")
    return Side(**values)


@dataclass(frozen=True, slots=True)
class EdgeApart:
    """One edge: who makes it, and how far the runs are apart there. `gain` is what its node adds to the largest error among what it reads."""

    edge: str
    operator: str
    label: str | None
    apart: Difference
    gain: float


@dataclass(frozen=True, slots=True)
class Compared:
    """All edges that both ways have, in the order of the graph. `first` is the first one whose error exceeds the threshold, `jump` that with the largest gain;
    None where nothing is lost. `alone` are edges of one way only (their codes aside)."""

    a: str
    b: str
    pipeline: str
    samples: int
    threshold: float
    edges: tuple[EdgeApart, ...]
    first: str | None
    jump: str | None
    alone: tuple[str, ...] = ()

    def __getitem__(self, edge: str) -> Difference:
        """The difference on an edge: `compared["y"].error`."""
        for e in self.edges:
            if e.edge == edge.removeprefix("%"):
                return e.apart
        raise KeyError(f"there is no edge '%{edge}' that both have; there are {', '.join('%' + e.edge for e in self.edges)}")


def compare(program: str | os.PathLike[str], a: str | Side, b: str | Side, data: Iterable[Mapping[str, Any]], *, pipeline: str | None = None,
            params: Mapping[str, Any] | None = None, threshold: float = THRESHOLD, **attributes: Any) -> Compared:
    """Run a program in two ways on the same data and measure how far each edge is apart.

    `a` and `b` are targets, or texts as `pipelinkc compare` takes them: "target=sm_75,calibration=off", "reference" (in float64). An architecture runs on the
    GPU of this machine if that can run its code, else the processor plays it. `data` and `params` are as for `calibrate`; `threshold` is the error from
    which on precision counts as lost.

        found = pipelink_ir.compare("net.plir", "reference", "sm_75", data=[{"img": a}])
        found.first, found["y"].error, found["y"].psnr
    """
    require_texts(pipeline=pipeline, **{side: text for side, text in (("a", a), ("b", b)) if not isinstance(text, Side)})
    project = project_of(program)
    path = path_of(program)
    with project.environment():
        settings = Settings(project.copies or "refuse", project=project)
        one, two = (s if isinstance(s, Side) else parse_side(s, n) for s, n in ((a, "a"), (b, "b")))
        return Comparison(read(program), path, pipeline, attributes, settings, one, two, threshold).run(Given(data, params or {}))


@dataclass(slots=True)
class Comparison:
    """One comparison."""

    module: Module
    path: str | None
    pipeline: str | None
    attributes: Mapping[str, Any]
    settings: Settings
    a: Side
    b: Side
    threshold: float = THRESHOLD
    watch: Watch | None = None

    def run(self, samples: Samples) -> Compared:
        """Compile both ways and go through the data once."""
        if not self.threshold >= 0.0:
            raise UsageError(f"a threshold is 0 or more, not {self.threshold:g}")
        (flat, first, first_names), (_, second, second_names) = self._side(self.a), self._side(self.b)
        edges = [e for e in flat.floats if e in first_names and e in second_names]
        if not edges:
            raise UsageError("the two have no edge of a float dtype with the same name: there is nothing to compare")
        alone = tuple(sorted((set(first_names) | set(second_names)) - set(edges)))
        apart = {e: Difference() for e in edges}
        one, two, count = Tap(first, edges, first_names), Tap(second, edges, second_names), 0
        for sample in samples.of(first.signature()):
            if self.watch is not None:
                self.watch("comparing", count, samples.size)
            for (e, x), (_, y) in zip(one.values(sample), two.values(sample), strict=True):
                apart[e].add(x, y)
            count += 1
        made = _rows(flat, apart)
        lost = next((e.edge for e in made if e.apart.error > self.threshold), None)
        most = max(made, key=lambda e: e.gain)
        jump = most.edge if most.gain > 0.0 else None
        return Compared(_shown(self.a, first), _shown(self.b, second), flat.name, count, self.threshold, made, lost, jump, alone)

    def _side(self, side: Side) -> tuple[Flat, Flat, Mapping[str, str]]:
        """A program before and after lowering, ready to be run where it is to run, and what its edges are called then."""
        target, where = parse_target(side.target), _where(side)
        module = self.module if side.file is None else read(side.file)
        project = self.settings.project
        steps = project.steps(checked_for(passes_of(where), [target]), checked=True)
        arch = next((str(s.options.arch) for s in lowered_for([step(PUSH)], target, module)), "")
        flat = flattened(module, where, self.pipeline, self.attributes, steps, self.settings, arch=arch, float64=where.name == "reference" and side.float64)
        if not side.lower or not arch:
            return flat, flat, {e: e for e in flat.floats}
        ranges = files.chosen(side.file or self.path, side.calibration)
        done = lowered(flat, arch, ranges)
        return flat, done, names_in(flat, done)


def _where(side: Side) -> Target:
    """What a side runs on: what it says, else its target; for an architecture a GPU that runs its code, or the processor that plays one, or without a C++
    compiler for that the CPU, which computes the same plan."""
    if side.on is not None:
        where = parse_target(side.on)
        if where.no_device:
            raise UsageError(f"'on' is where it runs, cuda, cpu, reference or {EMULATED}, not '{side.on}'")
        return where
    target = parse_target(side.target)
    if not target.no_device:
        return target
    from pipelink_ir.ir.diagnostics import ProgramError
    try:
        on_gpu(target)
        return target
    except (ProgramError, UsageError):
        from pipelink_ir.backends.cuda.emulate.toolchain import available
        return parse_target(f"{EMULATED}:{side.target}" if available() else "cpu")


def _shown(side: Side, ran: Flat) -> str:
    """A way as it was run."""
    return str(side) if side.on is not None or ran.target.name == side.target else str(replace(side, on=ran.target.name))


def _rows(flat: Flat, apart: Mapping[str, Difference]) -> tuple[EdgeApart, ...]:
    """The edges with what their nodes add to errors. An edge that is not among those compared has the errors of what it is made from."""
    reach: dict[str, float] = {}
    out = []
    for n in flat.pipeline.nodes:
        if not isinstance(n, Node):
            reach[n.name.name] = reach.get(n.of.name, 0.0)
            continue
        given = max((reach.get(e.name, 0.0) for e in arguments(n)), default=0.0)
        for e in n.results:
            found = apart.get(e.name)
            reach[e.name] = found.error if found is not None else given
            if found is not None:
                gain = 0.0 if math.isinf(found.error) and math.isinf(given) else found.error - given
                out.append(EdgeApart(e.name, written(n.op), n.label, found, gain))
    return tuple(out)
