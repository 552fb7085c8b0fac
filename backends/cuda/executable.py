"""A pipeline on a GPU: kernels loaded once, recipes by shapes, lanes for the calls that run at the same time, graphs for what is called again.

The second call with the same sizes captures the kernels as a CUDA graph, later calls replay it: one call of the driver however many kernels there are. A graph
holds the arguments of its kernels; every change of one goes through `Instance.set`, which notes the kernels that have to be told, so a replay never
runs on what is no longer true.
"""
from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

from pipelink_ir.backends.artifacts import Artifacts
from pipelink_ir.backends.cuda.compile import PipelineCode, compile_pipeline
from pipelink_ir.backends.cuda.driver import FORKED, RECORD, Commands, DeviceError, Driver, OutOfDeviceMemory, pick
from pipelink_ir.backends.cuda.failures import found_by_kernels, node_of, out_of_memory, refused
from pipelink_ir.backends.cuda.graphs import Graphs
from pipelink_ir.backends.cuda.lanes import Instance, Lane
from pipelink_ir.backends.cuda.library_call import Unfit, found, refuse
from pipelink_ir.backends.cuda.loaded import Kernels, LoadedOperator
from pipelink_ir.backends.cuda.opened import driver
from pipelink_ir.backends.cuda.order import Order
from pipelink_ir.backends.cuda.pinned import pinned_pool
from pipelink_ir.backends.cuda.recipe import ALIGN, Recipe, RecipeMaker
from pipelink_ir.backends.cuda.run import Given, Run, size_of
from pipelink_ir.backends.cuda.spares import SPARED
from pipelink_ir.backends.planning import Planner, Step, memory_statistics
from pipelink_ir.backends.scalars import Number
from pipelink_ir.ir.diagnostics import ExecutionError, Report, UsageError
from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.nodes import Module, Node
from pipelink_ir.ir.targets import Arch
from pipelink_ir.passes.aliasing.layout import Layout
from pipelink_ir.passes.aliasing.report import Memory
from pipelink_ir.passes.scheduling.libraries import GENERATED, listed

RECIPES = 64
"""Recipes kept for different shapes."""

IDLE_LANES = 4
"""Lanes that are made before a call waits for the stream of another one's run."""


_forks = 0
"""How many forks lie between this process and the first one that loaded this module; asking the system for the process costs a microsecond on some."""


def _forked() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def load(module: Module, pipeline_name: str, options: Mapping[str, Any] | None = None) -> CudaExecutable:
    """Compile and load what a pipeline calls. The module has been through `resolve`, `infer-types`, `flatten` and `simplify`.

    Options: `device`, its index (0); `arch`, an older architecture to compile for; `graphs`, how many graphs are kept (as PIPELINK_GRAPHS says), 0 for none;
    `driver` for tests."""
    options = options or {}
    chosen = options.get("driver") or driver()
    device = pick(int(options.get("device") or 0), chosen.devices())
    libraries, sm = found(module.operators), chosen.facts(device).sm
    arch: Arch = options.get("arch") or arch_of(module, sm)
    code = compile_pipeline(module, pipeline_name, arch, ahead=True, products=libraries.products, virtual=arch.sm < sm)
    return CudaExecutable(code, chosen, device, options.get("graphs"), libraries.declined)


OWN = frozenset((90,))
"""Architectures for whose own instructions there are kernels."""


def arch_of(module: Module, sm: int) -> Arch:
    """The architecture to compile for: the device's, with its own instructions where there are kernels that use them (`sm_90a`), or where an operator asks
    for them by name."""
    from pipelink_ir.ir.contracts import setting
    from pipelink_ir.ir.targets import requirements
    for op in module.operators:
        found = setting(op, "compile", "arch")
        asked = requirements(found.setting.value) if found is not None else None
        if any(r.arch.suffix and r.arch.sm == sm and r.compare in ("==", ">=") for r in asked or ()):
            return Arch("cuda", sm, "a")
    return Arch("cuda", sm, "a" if sm in OWN else "")


class Pending:
    """A run that was handed over and not waited for. `results` are on the device (or for arrays of the host nowhere yet); work that is put on the stream of the
    call comes after it. `wait` holds the calling thread until it is done, raises what went wrong, and returns the results."""

    def __init__(self, executable: CudaExecutable, run: Run, event: int, results: dict[str, Any]) -> None:
        self._executable, self._run, self.results = executable, run, results
        self.event: int = event
        """The CUDA event (`cudaEvent_t`) that records the end of the run."""

    def done(self) -> bool:
        """Whether the run has come to its end."""
        return not self.event or self._executable.driver.done(self._executable.device, self.event)

    def wait(self) -> dict[str, Any]:
        """The results, when they are there. Raises `ExecutionError` for data that cannot be run on."""
        if self.event:
            event, self.event = self.event, 0
            self._executable.finish(self._run, event)
        return self.results

    def __del__(self) -> None:
        if self.event:
            self._executable.give_event(self.event, self._run)


class CudaExecutable:
    """A loaded pipeline. Calls may come from several threads at once."""

    def __init__(self, code: PipelineCode, driver: Driver, device: int, graphs: int | None = None, declined: Mapping[str, str] | None = None) -> None:
        """`declined`: why a library does not compute operators that it was to compute."""
        self.declined = declined or {}
        self.code, self.driver, self.device, self.pipeline = code, driver, device, code.pipeline
        self.kernels = Kernels(driver, device, code)
        self.order = Order.of(code.pipeline)
        self._layout = Layout.of(code.pipeline, "", {name: c.op for name, c in self.kernels.operators.items()})
        self.artifacts: dict[str, str | bytes] = Artifacts(code.artifacts)
        self.pool = pinned_pool(driver)
        self.graphs = Graphs(graphs)
        self._inputs = tuple(o.name for o in self.pipeline.inputs)
        self._results = tuple(o.name for o in self.pipeline.results)
        self._dtypes = tuple(DTYPES[o.type.dtype] for o in self.pipeline.inputs)
        self._recipes: dict[tuple[tuple[int, ...], ...], Recipe] = {}
        self._idle: list[Lane] = []
        self._lanes = 0
        self._events: list[int] = []
        self._pid, self._forks = os.getpid(), _forks
        self._lock = threading.RLock()

    # --------------------------------------------------------------------------------------------------------------------- calls

    def __call__(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """Run on C-contiguous NumPy arrays; see `backends/interface.py`."""
        import numpy as np
        given = [a if a.flags.c_contiguous and a.flags.aligned else a.copy(order="C") for a in (np.asarray(arrays[name]) for name in self._inputs)]
        return self.run(Given(tuple(a.shape for a in given), [a.__array_interface__["data"][0] for a in given], tuple(range(len(given)))))

    def run(self, given: Given) -> dict[str, Any]:
        """Run, and hand over the results: NumPy arrays with values in them, or arrays of the device whose values are there in the order of the stream."""
        recipe, lane = self._begin(given)
        try:
            run = Run(lane, recipe, given, self.pool)
            self._issue(run)
            if run.waits:
                self._wait(run)
            elif run.blocks or given.held:
                lane.held += [*run.blocks, given.held]
            return dict(zip(self._results, run.results, strict=True))
        finally:
            self._end(lane)

    def replay(self, shapes: tuple[tuple[int, ...], ...], inputs: list[int], stream: int) -> list[Any] | None:
        """`run` for arrays on the device alone, made on `stream`, where all that is to be done is to replay a graph, or to launch the kernels of a recipe that
        needs none; None where more is to be done."""
        recipe = self._recipes.get(shapes)
        if recipe is None or not recipe.plain or _forks != self._forks:
            return None
        lane = self._idle_on(stream)
        if lane is None:
            return None
        try:
            instance = lane.instances.get(id(recipe))
            if instance is None or lane.held or (instance.graph is None and self.graphs.wanted(recipe)):
                return None
            try:
                size = recipe.bytes
                if size and (size > lane.arena_bytes or instance.base != lane.arena):
                    # Another recipe has moved the arena.
                    instance.place(lane.reserve(size))
                spare = lane.spares.find(instance, stream)
                if spare is None:
                    arrays, outputs = self._fresh(instance, stream)
                else:
                    if spare.graph is not None and spare.replay(inputs):
                        lane.owned.late = lane.unfinished = True
                        return spare.arrays.copy()
                    arrays, outputs = spare.arrays.copy(), spare.addresses
                instance.give(inputs, outputs)
                slower = instance.run_again(stream)
                if spare is not None:
                    spare.ran(inputs, slower)
            except DeviceError:
                # The long way meets the fault again, and tells it.
                instance.dirty.update(instance.steps)
                return None
            lane.unfinished = True
            return arrays
        finally:
            self._idle.append(lane)

    def _fresh(self, instance: Instance, stream: int) -> tuple[list[Any], list[int]]:
        """Arrays for the results, and their addresses; small ones are remembered."""
        lane, fresh, device = instance.lane, self.driver.fresh, self.device
        arrays: list[Any] = []
        outputs: list[int] = []
        array, total = None, 0
        for shape, kind, size in instance.recipe.outputs:
            array, address = fresh(device, shape, kind, size, stream)
            arrays.append(array)
            outputs.append(address)
            total += size
        del array
        if total <= SPARED:
            lane.spares.add(instance, arrays, outputs, stream)
        return arrays, outputs

    def _idle_on(self, stream: int) -> Lane | None:
        """A lane that nobody holds and whose last run was on that stream. There is mostly one lane."""
        with self._lock:
            idle = self._idle
            if idle and idle[-1].last == stream:
                return idle.pop()
            for n, lane in enumerate(idle):
                if lane.last == stream:
                    return idle.pop(n)
        return None

    def start(self, given: Given) -> Pending:
        """Run, and return at once."""
        recipe, lane = self._begin(given)
        try:
            run = Run(lane, recipe, given, self.pool)
            event = self._take_event()
            self._issue(run, event)
            return Pending(self, run, event, dict(zip(self._results, run.results, strict=True)))
        finally:
            self._end(lane)

    def _begin(self, given: Given) -> tuple[Recipe, Lane]:
        if self._pid != os.getpid():
            raise UsageError(FORKED)
        recipe = self._recipe(given.shapes)
        return recipe, self._guarded(lambda: self._lane(given.stream), recipe)

    def _issue(self, run: Run, event: int = 0) -> None:
        recipe = run.recipe
        recipe.runs += 1
        if recipe.runs > 1:
            self._guarded(lambda: self.graphs.prepare(run.lane, recipe), recipe)
        try:
            self._guarded(lambda: run.issue(event), recipe, run)
        except Exception:
            # What was issued before the fault may still use the memory of the run.
            self._calm(run)
            raise

    def _calm(self, run: Run) -> None:
        """After a fault: wait until nothing of the run is under way, and begin with new arguments."""
        lane = run.lane
        try:
            table, _ = lane.streams(run.main, 0, ())
            self.driver.issue(self.device, Commands([(RECORD, lane.done, 0)], 1), table)
            self.driver.wait(self.device, lane.done)
            if run.instance is not None:
                self.graphs.drop(lane, run.instance)
                lane.forget(run.recipe)
        except DeviceError:
            lane.instances.pop(id(run.recipe), None)

    def _wait(self, run: Run) -> None:
        lane = run.lane
        self._guarded(lambda: self.driver.wait(self.device, lane.done), run.recipe)
        lane.unfinished = False
        lane.held.clear()
        self._check(run)

    def finish(self, run: Run, event: int) -> None:
        """Wait for a run that was started, and raise what went wrong."""
        try:
            self._guarded(lambda: self.driver.wait(self.device, event), run.recipe)
        finally:
            with self._lock:
                self._events.append(event)
        self._check(run)

    def _check(self, run: Run) -> None:
        words = run.statuses()
        fault = found_by_kernels(self.pipeline, run.recipe, words) if any(words) else None
        if fault is not None:
            raise fault

    def _guarded(self, action: Callable[[], Any], recipe: Recipe | None, run: Run | None = None) -> Any:
        """What a device refuses, told as a fault of the call."""
        try:
            return action()
        except OutOfDeviceMemory as error:
            raise out_of_memory(self.pipeline, recipe.plan if recipe is not None else None, error, self.driver, self.device) from error
        except DeviceError as error:
            node = None
            if recipe is not None and run is not None and run.instance is not None and error.inner:
                node = node_of(self.pipeline, recipe, run.instance.steps.get(error.command))
            raise refused(self.pipeline, node, error) from error

    # ---------------------------------------------------------------------------------------------------------- lanes and events

    def _lane(self, stream: int | None) -> Lane:
        """A lane that nobody holds: best one whose last run was on the same stream, or is done."""
        with self._lock:
            found = next((lane for lane in self._idle if lane.last == (lane.own if stream is None else stream)), None)
            if found is None and self._idle and (self._lanes >= IDLE_LANES or self.driver.done(self.device, self._idle[0].done)):
                found = self._idle[0]
            if found is not None:
                self._idle.remove(found)
            else:
                self._lanes += 1
        if found is None:
            try:
                found = Lane(self.driver, self.device)
            except BaseException:
                with self._lock:
                    self._lanes -= 1
                raise
        found.release()
        return found

    def _end(self, lane: Lane) -> None:
        with self._lock:
            if len(lane.instances) > len(self._recipes):
                # Recipes that are gone, whose arguments this lane still has.
                kept = {id(r) for r in self._recipes.values()}
                for instance in [i for key, i in lane.instances.items() if key not in kept]:
                    self.graphs.drop(lane, instance)
                    lane.forget(instance.recipe)
            self._idle.append(lane)

    def lane_of_last(self) -> Lane:
        """The lane of the last call, for who looks at its kernels; nobody else may call meanwhile."""
        with self._lock:
            return self._idle[-1]

    def _take_event(self) -> int:
        with self._lock:
            if self._events:
                return self._events.pop()
        return self.driver.event(self.device)

    def give_event(self, event: int, run: Run) -> None:
        """The event of a run that nobody will wait for."""
        if run.blocks or run.given.held:
            run.lane.held += [*run.blocks, run.given.held]
        with self._lock:
            self._events.append(event)

    # ------------------------------------------------------------------------------------------------------------------- recipes

    def _make(self, shapes: tuple[tuple[int, ...], ...]) -> Recipe:
        operators = dict(self.kernels.operators)
        while True:
            planner = Planner(self.pipeline, operators, self._layout)
            plan = planner.run(shapes)
            try:
                recipe = RecipeMaker(self.kernels, operators, plan, self.order, lambda step, planner=planner: self._attributes(planner, step)).run()  # type: ignore[misc]
                break
            except Unfit as unfit:
                operators[unfit.op] = self._instead(unfit)
        recipe.inputs = tuple(size_of(s, d) for s, d in zip(shapes, self._dtypes, strict=True))
        with self._lock:
            while len(self._recipes) >= RECIPES:
                del self._recipes[next(iter(self._recipes))]
            return self._recipes.setdefault(shapes, recipe)

    def _instead(self, unfit: Unfit) -> LoadedOperator:
        """What computes an operator for sizes for which the library does not."""
        op = self.kernels.operators[unfit.op].op
        if GENERATED not in listed(op):
            report = Report()
            refuse(op, f"cuBLASLt does not compute it for these sizes: {unfit.why}", "call it with others", report)
            raise ExecutionError(report.diagnostics)
        return self.kernels.own(unfit.op)

    def _attributes(self, planner: Planner[LoadedOperator], step: Step) -> Mapping[str, Number]:
        """The values of an operator's scalar attributes at a node, for the sizes of a user's launch."""
        node = self.pipeline.nodes[step.node]
        assert isinstance(node, Node)
        return planner.attribute_values(planner.units[step.op], node, step.sizes)

    def arena(self, shapes: tuple[tuple[int, ...], ...]) -> tuple[int, int]:
        """How large an arena has to be for calls with these shapes, and what it has to begin at a multiple of."""
        recipe = self._recipe(shapes)
        return recipe.bytes, max(ALIGN, recipe.plan.align)

    def memory(self, shapes: tuple[tuple[int, ...], ...]) -> Memory:
        """Who lies where in the arena in calls with these shapes."""
        return self._recipe(shapes).plan.memory

    def _recipe(self, shapes: tuple[tuple[int, ...], ...]) -> Recipe:
        found = self._recipes.get(shapes)
        return found if found is not None else self._guarded(lambda: self._make(shapes), None)

    @property
    def statistics(self) -> dict[str, int | str]:
        """What the recipe of the latest new shapes has, and how calls are made."""
        with self._lock:
            recipe = next(reversed(self._recipes.values()), None)
        if recipe is None:
            return {}
        out: dict[str, int | str] = {"kernels": len(recipe.issued), **memory_statistics(recipe.plan)}
        out["device"] = f"cuda:{self.device} ({self.kernels.facts.name})"
        return out | {"graphs": self.graphs.said(recipe)}
