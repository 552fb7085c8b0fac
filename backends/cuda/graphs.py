"""Which recipes have a graph: those that are called again, as many as the pipeline may keep, the least used one first to go."""
from __future__ import annotations

import threading
import weakref

from pipelink_ir.backends.cuda.driver import DeviceError
from pipelink_ir.backends.cuda.lanes import Instance, Lane
from pipelink_ir.backends.cuda.recipe import Recipe
from pipelink_ir.ir import environment

LEAST = 2
"""Kernels from which on a graph is worth it: one launch costs the host no more than one replay."""


class Graphs:
    """The graphs of one pipeline. A lane's graphs are touched by who holds the lane alone; only their number is shared."""

    def __init__(self, most: int | None = None, least: int = LEAST) -> None:
        self.most = environment.cuda_graphs() if most is None else most
        """How many are kept."""
        self.least = least
        self.count = 0
        self.captured = 0
        """Graphs made so far."""
        self._used: weakref.WeakKeyDictionary[Lane, dict[int, None]] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def wanted(self, recipe: Recipe) -> bool:
        """Whether a recipe that is called again is worth a graph."""
        return bool(self.most) and len(recipe.issued) >= self.least and recipe.refused is None

    def prepare(self, lane: Lane, recipe: Recipe) -> None:
        """Called before a run that is not the first of its recipe: makes a graph where one is worth it and may be kept."""
        most = self.most
        if not self.wanted(recipe):
            return
        instance = lane.instances.get(id(recipe))
        if instance is None:
            # The first run in this lane issues its kernels one by one.
            return
        used = self._used.setdefault(lane, {})
        if instance.graph is not None:
            if next(reversed(used)) != id(recipe):
                del used[id(recipe)]
                used[id(recipe)] = None
            return
        if self._room(lane, used, most):
            self._capture(lane, instance, used)

    def _room(self, lane: Lane, used: dict[int, None], most: int) -> bool:
        """Whether one more may be made; a graph of this lane makes place for it."""
        with self._lock:
            if self.count < most:
                self.count += 1
                return True
        if not used:
            return False
        oldest = lane.instances.get(next(iter(used)))
        if oldest is None:
            del used[next(iter(used))]
            return False
        self.drop(lane, oldest)
        with self._lock:
            self.count += 1
        return True

    def _capture(self, lane: Lane, instance: Instance, used: dict[int, None]) -> None:
        recipe = instance.recipe
        if not all(c.fits() for c in instance.calls):
            # A graph is of the kernels that most calls run.
            with self._lock:
                self.count -= 1
            return
        try:
            graph = lane.driver.capture(lane.device, instance.body, recipe.streams)
        except DeviceError as error:
            with self._lock:
                self.count -= 1
            if error.fatal:
                raise
            recipe.refused = str(error)
            return
        instance.graph = lane.owned.graphs[id(graph)] = graph
        instance.dirty.clear()
        instance.retold = False
        used[id(recipe)] = None
        self.captured += 1

    def drop(self, lane: Lane, instance: Instance) -> None:
        """Give a graph back."""
        used = self._used.get(lane, {})
        if instance.graph is not None:
            used.pop(id(instance.recipe), None)
            instance.drop_graph()
            with self._lock:
                self.count -= 1

    def said(self, recipe: Recipe) -> str:
        """How calls of a recipe are made, for people."""
        if not self.most:
            return "off: every call launches its kernels"
        if recipe.refused is not None:
            return f"none: {recipe.refused}"
        if len(recipe.issued) < self.least:
            return f"none: {len(recipe.issued)} kernel{'s' * (len(recipe.issued) != 1)}, which a launch costs no more"
        return f"{self.count} kept, {self.captured} captured"
