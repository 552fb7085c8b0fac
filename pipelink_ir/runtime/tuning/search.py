"""The search for better schedules, operator by operator: candidates are completed by the pass `schedule`, run, held against the default schedule and the
reference, and only then timed, in turns with the default.

A schedule is kept if it is better by more than chance (`turns.py`); of several such the changes are also tried together.
"""
from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pipelink_ir.ir.diagnostics import InternalError, ProgramError, UsageError
from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.nodes import Module, Node, Operand, Operator
from pipelink_ir.ir.typed import TypedOperator
from pipelink_ir.passes.manager import Step
from pipelink_ir.passes.scheduling.identity import Identity, identity
from pipelink_ir.passes.scheduling.printed import scheduled
from pipelink_ir.passes.scheduling.tuned import Entry, NotThere, shapes_by_operator
from pipelink_ir.passes.scheduling.tuned_lookup import tried, typed_for
from pipelink_ir.runtime.runnable import Runnable, Settings
from pipelink_ir.runtime.targets import Target
from pipelink_ir.runtime.tuning.candidates import Candidate, candidates, joined
from pipelink_ir.runtime.tuning.files import arch_name, known_arch
from pipelink_ir.runtime.tuning.single import NAME, Single, planned, singles, with_edges
from pipelink_ir.runtime.tuning.turns import TURNS, Clock, GpuClock, HostClock, better, in_turns
from pipelink_ir.version import __version__

REFERENCE = 1 << 20
"""Elements of operands and results of a node beyond which only the default schedule is compared with, for the reference would take too long."""
JOINED = 4
"""Changes that are tried together with the best one."""

Watch = Callable[[str, int, int], None]
"""Told what is being done, and how many operators of how many are done."""


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of a candidate: `best`, `better`, `not better`, `slower`, or why it was not timed."""

    what: str
    status: str
    ms: float | None = None


@dataclass(slots=True)
class Found:
    """What came of an operator."""

    operator: str
    default_ms: float
    ms: float
    schedule: Mapping[str, Mapping[str, str]]
    tried: list[Tried] = field(default_factory=list)
    checked: str = ""
    """What the numbers were compared with."""


@dataclass(slots=True)
class Outcome:
    """What came of a pipeline."""

    arch: str
    device: str
    found: list[Found] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)


def search(compiled: Runnable, before: Module, arrays: Mapping[str, Any], steps: Sequence[Step], clock: Clock | None = None, watch: Watch | None = None,
           turns: int = TURNS) -> Outcome:
    """Measure schedules for every operator of a pipeline. `before` is its module before the pass `schedule`, `steps` are the passes from that one on."""
    target = compiled.target
    sizes = dict(compiled.check(arrays, copies="allow").sizes)
    return _Search(target, steps, compiled.settings, arch_name(target, before), before, compiled.pipeline.name, sizes, clock, watch, turns).run(arrays)


def measurable(target: Target, steps: Sequence[Step]) -> int:
    """Where the pass `schedule` stands; a `UsageError` where there is nothing to measure."""
    if target.name != "cpu" and (target.arch is not None or (target.device is None and not target.played)):
        raise UsageError(f"schedules are measured where they run, on 'cpu' or 'cuda', not on '{target.name}'")
    at = next((k for k, s in enumerate(steps) if s.name == "schedule"), None)
    if at is None:
        raise UsageError("there is nothing to tune without the pass 'schedule'")
    return at


def without_files(s: Step) -> Step:
    """A pass without tuned schedules."""
    return Step(s.of, replace(s.options, tuned=(), tuned_shared=(), arch="")) if s.name == "schedule" else s


@dataclass(slots=True)
class _Search:
    target: Target
    steps: Sequence[Step]
    settings: Settings
    arch: str
    module: Module
    pipeline: str
    sizes: Mapping[str, int]
    clock: Clock | None
    watch: Watch | None
    turns: int
    values: Mapping[str, Any] = field(default_factory=dict)

    def run(self, arrays: Mapping[str, Any]) -> Outcome:
        whole = planned(with_edges(self.module, self.pipeline), self.steps, self.target, self.pipeline, self.settings)
        device = GpuClock(whole.executable) if self.target.device is not None else None
        try:
            # On a GPU arrays stay there, so that no copy is timed.
            there = device.moved(arrays, whole) if device is not None else arrays
            self.values = {**there, **whole(**there)}
            return self._all(self.clock or device or HostClock())
        finally:
            if device is not None:
                device.close()

    def _all(self, clock: Clock) -> Outcome:
        out = Outcome(self.arch, device_of(self.target))
        pipeline = next(p for p in self.module.pipelines if p.name == self.pipeline)
        called = {n.op for n in pipeline.nodes if isinstance(n, Node)}
        operators = [o for o in self.module.operators if o.name in called and o.compute is not None and o.kernel is None]
        shapes = shapes_by_operator(self.module)
        known: dict[str, Found] = {}
        for k, op in enumerate(operators):
            typed = typed_for(op)
            who = identity(typed)
            one = _One(self, op, typed, who, clock, k, len(operators))
            alone = list(singles(self.module, self.pipeline, op, self.values, self.sizes))
            # Operators that are the same but for their names are measured once.
            key = f"{who.digest} {[tuple(a.shape for a in s.arrays.values()) for s in alone]}"
            found = known.get(key)
            if found is None:
                found = known[key] = one.run(alone)
                out.found.append(found)
            text = ", ".join(f"{n}={v}" for n, v in self.sizes.items())
            out.entries += [Entry(who.digest, s, self.arch, __version__, found.schedule, op.name, text, out.device, found.default_ms, found.ms)
                            for s in shapes[op.name]]
        return out


@dataclass(slots=True)
class _One:
    """The search for one operator."""

    search: _Search
    op: Operator
    typed: TypedOperator
    who: Identity
    clock: Clock
    number: int
    count: int
    tried: list[Tried] = field(default_factory=list)
    wanted: list[list[dict[str, Any]]] = field(default_factory=list)
    """For each node what its results are compared with."""

    def say(self, what: str) -> None:
        if self.search.watch is not None:
            self.search.watch(f"@{self.op.name}: {what}", self.number, self.count)

    def run(self, alone: Sequence[Single]) -> Found:
        device = self.device
        self.say("the default schedule")
        default = [planned(s.module, self.search.steps, self.search.target, NAME, self.search.settings) for s in alone]
        checked = self._expect(alone, default)
        ready: dict[str, tuple[Candidate, Callable[[], Any]]] = {}
        calls: dict[str, Callable[[], Any]] = {"": self._call(default, alone)}
        some = candidates(self.op, self.typed, self.who, device, known_arch(self.search.arch))
        for k, c in enumerate(some):
            self.say(f"candidate {k + 1} of {len(some)}")
            call = self._made(c, alone)
            if call is not None:
                ready[c.what], calls[c.what] = (c, call), call
        self.say(f"times of {len(ready)} schedules")
        took = in_turns(self.clock, calls, self.search.turns)
        chosen, times = self._best(took, {n: c for n, (c, _) in ready.items()}, alone, calls)
        if chosen is not None:
            # The best of many is also the luckiest: it has to be better once more.
            again = in_turns(self.clock, {"": calls[""], chosen.what: calls[chosen.what]}, self.search.turns)
            times = {**times, **again}
            chosen = chosen if better(again[chosen.what], again[""]) else None
        ms = {n: 1e3 * statistics.median(t) for n, t in times.items()}
        default_ms, best = ms[""], chosen.what if chosen is not None else ""
        for name, t in times.items():
            if name:
                status = "best" if name == best else "better" if better(t, times[""]) else "slower" if ms[name] > default_ms else "not better"
                self.tried.append(Tried(name, status, ms[name]))
        return Found(self.op.name, default_ms, ms[best], chosen.schedule if chosen is not None else {}, self.tried, checked)

    @property
    def device(self) -> str:
        return "cpu" if self.search.target.name == "cpu" else "cuda"

    # -------------------------------------------------------------------------------------------------------------------- numbers

    def _expect(self, alone: Sequence[Single], default: Sequence[Runnable]) -> str:
        """What candidates have to agree with; the default schedule has to agree with the reference."""
        both = True
        for s, d in zip(alone, default, strict=True):
            made = host(d(**s.arrays))
            size = sum(a.size for a in made.values()) + sum(a.size for a in s.arrays.values())
            wanted = [made]
            if size <= REFERENCE:
                from pipelink_ir.backends.reference.executable import load
                given = host(s.arrays)
                wanted += [load(s.module, NAME, float64=wide)(given) for wide in (False, True)]
                fault = differs(made, wanted[1:], s.results)
                if fault is not None:
                    raise InternalError(f"the default schedule of '@{self.op.name}' differs from the reference: {fault}")
            else:
                both = False
            self.wanted.append(wanted)
        return "the reference and the default schedule" if both else "the default schedule, for the arrays are large"

    def _made(self, c: Candidate, alone: Sequence[Single]) -> Callable[[], Any] | None:
        """The call of a candidate whose numbers are right; None, and why in `tried`, if there is none."""
        try:
            found = tried(self.op, self.typed, self.who, c.schedule, self.device, self.search.arch)
            if found is None or found.op.sections == scheduled(self.op, self.device, known_arch(self.search.arch)).op.sections:
                return None
            made = [planned(s.with_operator(found.op), self.search.steps, self.search.target, NAME, self.search.settings) for s in alone]
            for s, run, wanted in zip(alone, made, self.wanted, strict=True):
                got = host(run(**s.arrays))
                fault = differs(got, wanted[:1], s.results)
                if fault is None and len(wanted) > 1:
                    fault = differs(got, wanted[1:], s.results)
                if fault is not None:
                    self.tried.append(Tried(c.what, f"wrong: {fault}"))
                    return None
        except NotThere as fault:
            self.tried.append(Tried(c.what, f"refused: {fault}"))
            return None
        except (ProgramError, InternalError) as fault:
            self.tried.append(Tried(c.what, f"it does not run: {str(fault).splitlines()[0]}"))
            return None
        return self._call(made, alone)

    @staticmethod
    def _call(made: Sequence[Runnable], alone: Sequence[Single]) -> Callable[[], Any]:
        pairs = list(zip(made, [dict(s.arrays) for s in alone], strict=True))

        def call() -> Any:
            return [run(**arrays) for run, arrays in pairs]
        return call

    # ---------------------------------------------------------------------------------------------------------------------- times

    def _best(self, took: dict[str, list[float]], known: Mapping[str, Candidate], alone: Sequence[Single],
              calls: dict[str, Callable[[], Any]]) -> tuple[Candidate | None, dict[str, list[float]]]:
        """The best schedule, if one is better than the default; the changes that are better each by itself are tried together too."""
        good = sorted((n for n in known if better(took[n], took[""])), key=lambda n: statistics.median(took[n]))
        if not good:
            return None, took
        best = known[good[0]]
        more = [j for n in good[1:1 + JOINED] if (j := joined(best, known[n])) is not None]
        ready = {c.what: (c, call) for c in more if (call := self._made(c, alone)) is not None}
        if ready:
            calls.update((n, call) for n, (_, call) in ready.items())
            self.say(f"times of {len(ready)} schedules of several changes")
            again = in_turns(self.clock, {best.what: calls[best.what], **{n: call for n, (_, call) in ready.items()}}, self.search.turns)
            base = statistics.median(took[best.what]) / statistics.median(again[best.what])
            found = min((n for n in ready if better(again[n], again[best.what])), key=lambda n: statistics.median(again[n]), default=None)
            # Those of the second round as if they had been measured in the first.
            took = {**took, **{n: [base * t for t in again[n]] for n in ready}}
            if found is not None:
                best = ready[found][0]
        return best, took


def host(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays as NumPy has them."""
    import numpy as np
    out = {}
    for name, a in arrays.items():
        get = getattr(a, "get", None)
        out[name] = get() if callable(get) else np.asarray(a)
    return out


def differs(got: Mapping[str, Any], wanted: Sequence[Mapping[str, Any]], results: Sequence[Operand]) -> str | None:
    """How results differ from what they are near to one of."""
    import numpy as np

    from pipelink_ir.runtime.verification import compare
    for r in results:
        mine = np.ascontiguousarray(got[r.name])
        # Mostly not a bit differs, which is found out soonest.
        if any(mine.dtype == w[r.name].dtype and mine.shape == w[r.name].shape and mine.tobytes() == w[r.name].tobytes() for w in wanted):
            continue
        fault, _ = compare(got[r.name], [w[r.name] for w in wanted], DTYPES[r.type.dtype])
        if fault is not None:
            return f"'%{r.name}' {fault}"
    return None


def device_of(target: Target) -> str:
    """What is measured on, for people."""
    if target.device is not None:
        from pipelink_ir.backends.cuda.opened import driver
        return driver().facts(target.device).name
    if target.name != "cpu":
        return target.name
    import platform
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), platform.machine())
    except OSError:
        return platform.processor() or platform.machine()
