"""Results of the last calls that nobody holds any more, handed out again; and graphs for calls that come again with the same arrays altogether.

New arrays cost the host more than a replay does. In `y = pipeline(x=x).y`, called in a loop, two sets of results take turns: one is held while the other is
written. Each then has a graph of its own with all arguments in place, and a call changes none.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipelink_ir.backends.cuda.driver import LEGACY, DeviceError, Driver, Graph, quietly

if TYPE_CHECKING:
    from pipelink_ir.backends.cuda.lanes import Instance

SPARED = 2 << 20
"""Bytes of results of one call that a lane holds on to."""

SPARES = 2
"""So many calls."""

AGAIN = 2
"""A set of results has a graph of its own after so many runs with the same inputs for which that would have been quicker."""


class Spare:
    """The results of one call of an instance. Who held them when nobody had them yet is counted: when it is the same again, every caller, view and
    library has let go of them, and on the same stream nothing can read what the next run writes."""

    __slots__ = ("_refused", "addresses", "arrays", "base", "graph", "holders", "inputs", "instance", "stream", "times")

    def __init__(self, instance: Instance, arrays: list[Any], addresses: list[int], stream: int) -> None:
        self.instance, self.arrays, self.addresses, self.stream = instance, list(arrays), addresses, stream
        self.inputs: list[int] = []
        self.times = self.base = 0
        self.graph: Graph | None = None
        self._refused = False
        # The caller's list holds each once more than this one alone.
        self.holders = [(first - 1, *rest) for first, *rest in instance.lane.driver.holders(self.arrays)]

    def replay(self, inputs: list[int]) -> bool:
        """Run by the graph of these results, if it is one of these inputs and of the arena that there is."""
        if self.graph is None or self.inputs != inputs:
            return False
        lane = self.instance.lane
        if self.base and self.base != lane.arena:
            return False
        return lane.driver.replay(lane.device, self.graph, self.stream)

    def ran(self, inputs: list[int], slower: bool) -> None:
        """Notes a run the usual way, and whether a graph of its own would be quicker. The instance has the arguments of this run."""
        if self.inputs != inputs:
            self.inputs, self.times = inputs.copy(), 0
            self.close()
            return
        self.times += slower
        instance = self.instance
        if self.times < AGAIN or self.graph is not None or self._refused or instance.graph is None or self.stream != LEGACY:
            return
        lane = instance.lane
        try:
            self.graph = lane.driver.capture(lane.device, instance.body, instance.recipe.streams)
        except DeviceError:
            self._refused = True
            return
        lane.owned.graphs[id(self.graph)] = self.graph
        self.base = lane.arena if instance.recipe.bytes else 0

    def close(self) -> None:
        """Give the graph back."""
        graph, self.graph = self.graph, None
        if graph is not None:
            self.instance.lane.owned.graphs.pop(id(graph), None)
            quietly(graph.close)


class Spares:
    """Those of a lane, the latest one last; they are all of one instance and one stream."""

    def __init__(self, driver: Driver) -> None:
        self._holders = driver.holders
        self.held: list[Spare] = []
        self._turns = False
        """Whether the earlier one was free the last time, and is looked at first."""

    def find(self, instance: Instance, stream: int) -> Spare | None:
        """Results that can be handed out again. Whoever drops each at once gets the same every time, and no argument changes."""
        held = self.held
        if not held:
            return None
        latest = held[-1]
        if latest.instance is not instance or latest.stream != stream:
            self.clear()
            return None
        holders = self._holders
        if not self._turns and holders(latest.arrays) == latest.holders:
            return latest
        for n in range(len(held) - 1):
            earlier = held[n]
            if holders(earlier.arrays) == earlier.holders:
                del held[n]
                held.append(earlier)
                self._turns = True
                return earlier
        if self._turns:
            self._turns = False
            return latest if holders(latest.arrays) == latest.holders else None
        return None

    def add(self, instance: Instance, arrays: list[Any], addresses: list[int], stream: int) -> None:
        """Results of a run on this stream, which only their maker holds yet."""
        for old in self.held[:1 - SPARES]:
            old.close()
        del self.held[:1 - SPARES]
        self.held.append(Spare(instance, arrays, addresses, stream))

    def clear(self) -> None:
        """Let go of all."""
        for spare in self.held:
            spare.close()
        self.held.clear()
        self._turns = False

    def forget(self, instance: Instance) -> None:
        """Let go of those of an instance that goes."""
        if self.held and self.held[-1].instance is instance:
            self.clear()
