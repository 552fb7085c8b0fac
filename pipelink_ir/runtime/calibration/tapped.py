"""Pipelines whose edges are seen: after `flatten` every float edge is made a result, so that its values can be had from any backend.

Edges round to their dtype whether or not they are fused away, so what is seen is what the plan that was not opened computes, but for operators that say
`edges = free`. The same is done after `lower-precision`: what lowering leaves real keeps its name and its dtype.
"""
from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pipelink_ir.ir.diagnostics import ExecutionError, Report
from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.evaluate import CannotEvaluate, evaluate_int
from pipelink_ir.ir.nodes import Module, Node, Operand, Pipeline, TensorType
from pipelink_ir.passes.aliasing.order import arguments
from pipelink_ir.passes.manager import Step, parse_passes, run_passes
from pipelink_ir.passes.scheduling.tuned import edge_types
from pipelink_ir.runtime.attributes import require_values, with_attributes
from pipelink_ir.runtime.bind import Bound
from pipelink_ir.runtime.calibration.samples import Sample
from pipelink_ir.runtime.compile import pick_pipeline
from pipelink_ir.runtime.runnable import Runnable, Settings
from pipelink_ir.runtime.targets import LOWER, PUSH, Target, check_kernels, completed, placed_on

LIMIT = 2 << 30
"""Bytes of edges that are kept at a time: larger pipelines run several times, for some of their edges each."""
LEFT_OUT = ("simplify", "fuse")
"""Passes that are of no use where every edge is a result."""
REFERENCE = f"resolve,infer-types,check-contracts,{PUSH},flatten"
"""The oracle enters graphs; here it is shown them laid out, so that edges inside have names."""


@dataclass(frozen=True, slots=True)
class Flat:
    """A program after `flatten`: the module, its pipeline, and the passes that are left for the target. `contracts` is the module as it was before."""

    module: Module
    name: str
    target: Target
    rest: tuple[Step, ...]
    contracts: Module
    settings: Settings
    report: Report
    float64: bool = False

    @property
    def pipeline(self) -> Pipeline:
        return next(p for p in self.module.pipelines if p.name == self.name)

    @property
    def floats(self) -> tuple[str, ...]:
        """Edges of a float dtype that nodes make, in the order of the graph."""
        inputs = {o.name for o in self.pipeline.inputs}
        return tuple(n for n, t in edge_types(self.pipeline).items() if n not in inputs and DTYPES[t.dtype].kind == "float")

    def signature(self) -> Runnable:
        """The pipeline as something that arrays are read and bound for; it is not run."""
        return Runnable(self.module, self.pipeline, self.target, (), self.float64, "", self.contracts, self.settings)


def passes_of(target: Target) -> tuple[Step, ...]:
    """The passes of a target, placed there."""
    return placed_on(parse_passes(REFERENCE if target.name == "reference" else target.passes), target)


def flattened(module: Module, target: Target, pipeline: str | None, attributes: Mapping[str, Any], steps: Sequence[Step], settings: Settings, *,
              arch: str = "", float64: bool = False) -> Flat:
    """Run the passes up to `flatten`, with the policies for an architecture handed down; nothing is lowered by them."""
    name = pick_pipeline(module, pipeline)
    module = with_attributes(module, name, attributes)
    require_values(module, name)
    steps = completed(steps, target) if target.name != "reference" else steps
    steps = [Step(s.of, replace(s.options, arch=arch)) if s.name == PUSH else s for s in steps if s.name != LOWER]
    cut = max((k + 1 for k, s in enumerate(steps) if s.name == "flatten"), default=len(steps))
    report, before = Report(), _Before()
    done = run_passes(module, steps[:cut], report, [before])
    check_kernels(done, name, target, report)
    report.stop_if_failed()
    return Flat(done, name, target, tuple(steps[cut:]), before.module or done, settings, report, float64)


@dataclass(slots=True)
class _Before:
    """Keeps the module as it is before `flatten`, where contracts of graph operators can still be read."""

    module: Module | None = None

    def __call__(self, step: Step, before: Module, after: Module | Exception | None) -> None:
        if step.name == "flatten" and after is None:
            self.module = before


def with_results(module: Module, name: str, edges: Sequence[str]) -> Module:
    """The module in which these edges are the pipeline's only results."""
    pipeline = next(p for p in module.pipelines if p.name == name)
    types = edge_types(pipeline)
    own = {r.name: r for r in pipeline.results}
    results = tuple(own.get(e) or Operand(e, types[e], span=pipeline.name_span) for e in edges)
    nodes = tuple(replace(n, plan=None) if isinstance(n, Node) and n.plan is not None else n for n in pipeline.nodes)
    wider = replace(pipeline, results=results, nodes=nodes)
    return replace(module, items=tuple(wider if i is pipeline else i for i in module.items))


@dataclass(slots=True)
class Tap:
    """Runs a flattened program and hands out the values of some of its edges, in their order. What it is called in its target stands in `names`, by edge."""

    flat: Flat
    edges: Sequence[str]
    names: Mapping[str, str] = field(default_factory=dict)
    _parts: list[tuple[list[str], Runnable]] = field(default_factory=list)

    def values(self, sample: Sample) -> Iterator[tuple[str, Any]]:
        """Edges with their arrays, as NumPy has them. Raises `ExecutionError` for arrays that do not match."""
        from pipelink_ir.runtime.tuning.search import host
        if not self._parts:
            self._parts = list(self._made(_bound(self.flat.signature(), sample).sizes))
        for edges, run in self._parts:
            bound = _bound(run, sample)
            results = host(dict(run.run(bound).items()))
            for e in edges:
                yield e, results.pop(self.names.get(e, e))

    def _made(self, sizes: Mapping[str, int]) -> Iterator[tuple[list[str], Runnable]]:
        types = edge_types(self.flat.pipeline)
        part: list[str] = []
        size = 0
        for e in self.edges:
            more = _bytes(types[self.names.get(e, e)], sizes)
            if part and size + more > LIMIT:
                yield part, self._compiled(part)
                part, size = [], 0
            part.append(e)
            size += more
        if part:
            yield part, self._compiled(part)

    def _compiled(self, edges: Sequence[str]) -> Runnable:
        flat = self.flat
        opened = with_results(flat.module, flat.name, list(dict.fromkeys(self.names.get(e, e) for e in edges)))
        done = run_passes(_without_unused(opened, flat.name), [s for s in flat.rest if s.name not in LEFT_OUT], Report())
        pipeline = next(p for p in done.pipelines if p.name == flat.name)
        settings = replace(flat.settings, check_values=False, deny=frozenset())
        return Runnable(done, pipeline, flat.target, (), flat.float64, "", flat.contracts, settings)


def _bound(run: Runnable, sample: Sample) -> Bound:
    """The arrays of a sample, checked; what is wrong with them names the sample."""
    try:
        return run.check(sample.arrays, sample.origins)
    except ExecutionError as error:
        where = f"in '{sample.name}': " if sample.name else ""
        raise type(error)([replace(d, message=where + d.message) for d in error.diagnostics]) from None


def _without_unused(module: Module, name: str) -> Module:
    """The module without nodes that no result needs: those of other parts."""
    pipeline = next(p for p in module.pipelines if p.name == name)
    wanted, kept = {r.name for r in pipeline.results}, []
    for n in reversed(pipeline.nodes):
        made = [e.name for e in n.results] if isinstance(n, Node) else [n.name.name]
        if wanted.isdisjoint(made):
            continue
        kept.append(n)
        if isinstance(n, Node):
            wanted.update(e.name for e in arguments(n))
            wanted.update(e.name for e in n.after)
        else:
            wanted.add(n.of.name)
    if len(kept) == len(pipeline.nodes):
        return module
    return replace(module, items=tuple(replace(pipeline, nodes=tuple(reversed(kept))) if i is pipeline else i for i in module.items))


def _bytes(type: TensorType, sizes: Mapping[str, int]) -> int:
    try:
        return math.prod(evaluate_int(d, sizes) for d in type.dims) * DTYPES[type.dtype].bytes
    except CannotEvaluate:
        return 0
